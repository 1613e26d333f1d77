//! What members hold beside data and log, and when it is durable.

pub(crate) mod bad_blocks;
pub(crate) mod log_coverage;
pub(crate) mod superblocks;
