//! New and restored arrays, the buffers that an array needs, which shapes it may get, and its
//! volumes.
//!
//! Invariant: everything here is a plan; the caller carries it out.

pub mod create;
pub mod limits;
pub mod restore;
pub mod volumes;
