//! Faults that strike a world while it runs: in data, in metadata, of devices, and planted bugs.
//!
//! Invariant: what is fair stands in `tolerance`; no other fault asks for more than the level
//! survives.

pub mod decay;
pub mod latency;
pub mod metadata;
pub mod misdirected;
pub mod past;
pub mod planted;
pub(crate) mod removal;
pub mod reset;
pub mod ruined;
pub mod silent;
pub mod tolerance;
