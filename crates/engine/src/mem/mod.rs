//! Memory of the data path: buffers of pools, and lists.
//!
//! Invariant: memory is allocated when a pool is made. A request takes a buffer from its pool, and
//! a list takes the memory of one that has ended.

pub mod buffer;
pub mod list;
