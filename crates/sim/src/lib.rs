//! Deterministic simulator of Strake: drives the real engine over simulated drives.
//!
//! ```text
//! plan (seed) ─► launch ─► world ◄─► engine (Array, Shards, Routers)
//!                            │ ▲
//!    life, faults (world) ──┘ └── drive             oracle ◄── plan::workload
//! ```
//!
//! Invariants: one seed, one trace: no clock, no thread, no randomness but the seed's inside a
//! world; the engine that runs here is the one that is shipped.
//!
//! Deliberately absent: performance. Latencies only shuffle what happens.

#![forbid(unsafe_code)]

pub mod canary;
pub mod course;
pub mod drive;
pub mod oracle;
pub mod plan;
pub mod prng;
pub mod report;
pub mod runner;
pub mod scenario;
pub mod world;

// The names by which tests and other crates know the rooms' files.
pub use drive as ssd;
pub use drive::overlay as faults;
pub use plan::workload;
pub use report::tally;
pub use runner::shrink;
pub use world::fault::{past, silent};
pub use world::launch;
pub use world::life::beyond_tolerance as beyond;
