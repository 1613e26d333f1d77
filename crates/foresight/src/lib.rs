//! What these drives, this level and this load will do, by formula: before buying and before
//! creating.
//!
//! **Architecture Invariant:** pure arithmetic; no I/O, no clock, no chance. Every figure carries
//! its source, and what is unknown is a range.

#![forbid(unsafe_code)]

pub mod acceptance;
pub mod catalogue;
pub mod cost;
pub mod drive;
pub mod durability;
pub mod engine;
pub mod host;
pub mod load;
pub mod page;
pub mod plan;
pub mod rebuild;
pub mod shape;
pub mod speed;
pub mod value;
pub mod wear;
