//! The stripe log as it lies on the members: how an area is divided, what a start reads there, and
//! what its records make of the stripes.
//!
//! Invariant: nothing here writes; the state of a log in use belongs to its shard
//! (`shard::log_writer`).

pub(crate) mod checksum_pool;
pub mod layout;
pub(crate) mod recover;
pub(crate) mod ring;
pub mod scan;
pub(crate) mod sequence;
pub(crate) mod window_image;
