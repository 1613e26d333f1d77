//! Reads before they need a stripe operation: from one member, late, of another shard's stripe, or
//! several at once.
//!
//! Invariant: what cannot be answered here becomes an operation of the shard that owns the stripe.

pub(crate) mod batch;
pub(crate) mod direct;
pub(crate) mod hedge;
pub(crate) mod remote;
