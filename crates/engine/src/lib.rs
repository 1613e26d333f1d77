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

pub mod array;
mod aside;
mod assemble;
mod behind;
pub mod buffers;
pub mod canary;
mod check;
mod checkpoint;
mod command;
mod counters;
mod cover;
pub mod create;
mod decoders;
mod direct;
mod emptied;
pub mod event;
pub mod gather;
pub mod geometry;
mod hedge;
mod hold;
mod idle;
mod init;
mod intent;
mod jobs;
pub mod latency;
pub mod limits;
pub mod list;
pub mod logs;
mod lower;
mod map;
mod may;
mod member;
pub mod meters;
mod moved;
mod moving;
mod narrow;
mod offered;
mod ops;
mod order;
mod overdue;
mod pace;
mod patience;
mod persist;
mod pieces;
mod plan;
mod read;
mod recover;
#[cfg(test)]
mod recovery_table;
mod regions;
mod replay;
mod reshape;
pub mod restore;
mod retire;
mod ring;
pub mod router;
mod rows;
mod salvage;
mod scrub;
mod settle;
pub mod shard;
mod slow;
pub mod status;
mod steps;
mod streams;
mod stripe;
mod sums;
mod turns;
mod undecided;
pub mod units;
mod unreadable;
mod visit;
pub mod volumes;
mod whole;
mod work;
mod write;

pub use array::{Array, ShardSetup, StartError, StartOptions};
pub use aside::Aside;
pub use behind::RegionSet;
pub use buffers::{Buf, Pool, SharedPool, Slice};
pub use geometry::Geometry;
pub use latency::{Distribution, Histogram};
pub use meters::HedgeRules;
pub use overdue::{Pulse, Verdict};
pub use patience::{Doubt, Patience, Repeats, Retried, Trouble};
pub use router::{Router, Target};
pub use shard::Shard;
pub use undecided::Decision;
pub use unreadable::Lost;
pub use volumes::VolumeMap;
pub use whole::Lack;
