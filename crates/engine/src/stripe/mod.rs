//! Pure parts of a stripe operation: plans of writes, codes and decoders, parts of records.
//!
//! Invariant: what comes out depends on the arguments alone, and on no shard.

pub(crate) mod codes;
pub(crate) mod decoder_cache;
pub(crate) mod log_records;
pub(crate) mod write_plan;
