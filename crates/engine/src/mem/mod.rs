//! Memory of the data path: buffers from pools that are allocated at the start, and lists that take the
//! memory of lists that have ended.

pub mod buffer;
pub mod list;
