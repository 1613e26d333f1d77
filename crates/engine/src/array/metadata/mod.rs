//! What members hold beside data and log: superblocks, lists of unreadable blocks, and which writes
//! the log covers.
//!
//! Invariant: what follows from a version begins when the version is durable on every live member.

pub(crate) mod bad_blocks;
pub(crate) mod copies;
pub(crate) mod log_coverage;
pub(crate) mod superblocks;
