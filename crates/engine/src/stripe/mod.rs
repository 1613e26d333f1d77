//! What is computed for one stripe, whichever shard owns it: plans of writes, decoders, records.

pub(crate) mod codes;
pub(crate) mod decoder_cache;
pub(crate) mod log_records;
pub(crate) mod write_plan;
