//! Reads that need no stripe operation of their own, or not yet.

pub(crate) mod batch;
pub(crate) mod direct;
pub(crate) mod hedge;
pub(crate) mod remote;
