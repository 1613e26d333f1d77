//! What these drives, this level and this load will do, by formula: before buying and before
//! creating.
//!
//! **Architecture Invariant:** pure arithmetic; no I/O, no clock, no chance. Every figure carries
//! its source, and what is unknown is a range.

#![forbid(unsafe_code)]

pub mod drive;
pub mod load;
pub mod value;
