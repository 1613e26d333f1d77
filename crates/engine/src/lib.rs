//! The array: a deterministic state machine without I/O.
//!
//! **Architecture invariant:** nothing here does I/O, reads a clock, starts a thread or draws a
//! random number. `submit`, `complete`, `message`, `command` and `tick` take facts in, `poll` gives
//! effects out, and time is an argument. The simulator and the runtime drive this same code.
//!
//! ```text
//!   requests ─► Router ─► Shard (stripes: reads, writes, steps of jobs) ─► member I/O
//!                  │        ▲ │  messages
//!                  │        │ ▼
//!                  └────► Array (membership, superblocks, region map, jobs) ─► member I/O
//! ```
//!
//! After every input, call `poll` until it returns `None` and carry out what it says.

#![forbid(unsafe_code)]

/// Ends a check of invariants with what is violated, and its values.
macro_rules! ensure {
    ($holds:expr, $($violated:tt)+) => {
        if !$holds {
            return Err(format!($($violated)+));
        }
    };
}

pub mod array;
pub mod canary;
pub mod geometry;
mod log;
mod mem;
pub mod proto;
mod provision;
mod retry;
pub mod router;
pub mod shard;
mod stats;
mod stripe;
pub mod units;

// The names by which other crates know the rooms' files.
pub use log::layout as logs;
pub use log::scan as gather;
pub use mem::{buffer as buffers, list};
pub use proto as event;
pub use proto::status;
pub use provision::{create, limits, restore, volumes};
pub use stats::{device_latency as meters, histogram as latency};

pub use array::{Array, StartError, StartOptions};
pub use geometry::Geometry;
pub use geometry::block_set::BadBlocks;
pub use geometry::region_set::RegionSet;
pub use mem::buffer::{Buf, Pool, SharedPool, Slice};
pub use proto::{Aside, Decision, Lack, Late, ShardSetup, Verdict};
pub use provision::volumes::VolumeMap;
pub use retry::pulse::Pulse;
pub use retry::{EioGrace, Repeats, Retried, RetryPolicy, RetryState};
pub use router::{Router, Target};
pub use shard::Shard;
pub use stats::device_latency::HedgeRules;
pub use stats::histogram::{Distribution, Histogram};
