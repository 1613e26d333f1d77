//! A model of an NVMe drive of flash: what it does to data (wear) and how long it takes (time).
//!
//! * The mapping is kept at the **indirection unit**: a write of a part of a unit reads the unit
//!   and programs it whole. No open simulator known to its authors models a unit that is coarser
//!   than a page; drives of tens of terabytes have units of 16 to 64 KiB.
//! * A **write buffer** merges partial writes of a unit, as drives with power-loss protection do.
//! * **Erase blocks**, over-provisioning, greedy garbage collection, deallocation, and an append
//!   point for each **placement handle** (NVMe FDP); what is collected stays with its handle.
//! * **Time**: bandwidth, operations a second, a limit on reads and writes together, the link, and
//!   a distribution of latencies.
//! * **Counters** as in the SMART and OCP logs: host bytes, flash bytes, unaligned writes.
//!
//! ```
//! use strake_flash::{Flash, Geometry};
//!
//! let mut flash = Flash::new(Geometry {
//!     unit_bytes: 16 << 10,
//!     units: 20_000,
//!     over_provisioning: 0.28,
//!     units_per_block: 256,
//!     handles: 1,
//!     buffer_units: 64,
//! });
//! flash.write(0, 4 << 10, 0);
//! assert_eq!(flash.counters().host_written, 4 << 10);
//! ```
//!
//! **Architecture Invariants:** no clock, thread, I/O or chance from outside: time is an argument,
//! and the same calls in the same order give the same figures. A drive holds no data: what lies in
//! a unit is the caller's. It knows nothing of arrays.
//!
//! Deliberately absent: dies and planes, wear levelling, read disturb, refresh, bad blocks, and
//! caches of single-level cells. A collection reads flash at no cost in time: the rates that data
//! sheets give for random writes have it in them.

#![forbid(unsafe_code)]

mod buffer;
mod counters;
mod drive;
mod flash;
mod formula;
mod mapping;
mod rng;
mod timing;

pub use counters::{Counters, HandleCounters};
pub use drive::{Drive, Op, Spec};
pub use flash::{Flash, Geometry};
pub use formula::collection_waf;
pub use timing::{Latency, Timing};
