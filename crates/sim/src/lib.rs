//! Deterministic simulator of Strake: drives the real engine over simulated drives.
//!
//! ```text
//! plan (seed) ─► launch ─► world ◄─► engine (Array, Shards, Routers)
//!                            │ ▲
//!      life, atlas, faults ──┘ └── ssd (drives)      oracle ◄── workload
//! ```
//!
//! Invariants: one seed, one trace: no clock, no thread, no randomness but the seed's inside a
//! world; the engine that runs here is the one that is shipped.
//!
//! Deliberately absent: performance. Latencies only shuffle what happens.

#![forbid(unsafe_code)]

pub mod aim;
pub mod atlas;
pub mod beyond;
pub mod canary;
pub mod checkers;
pub mod clock;
pub mod comeback;
pub mod course;
pub mod dawdle;
pub mod decay;
mod ebb;
pub mod faults;
pub mod finale;
pub mod hear;
pub mod launch;
pub mod life;
pub mod look;
pub mod lost;
pub mod metadata;
pub mod misled;
pub mod oracle;
pub mod past;
pub mod plan;
pub mod prng;
mod records;
pub mod report;
pub mod reset;
pub mod reshape;
pub mod restored;
pub mod runner;
pub mod scenario;
mod sectors;
pub mod shrink;
pub mod silent;
mod spoilt;
pub mod ssd;
mod standstill;
pub mod tally;
pub mod trim;
pub mod user;
mod volumes;
mod words;
pub mod workload;
pub mod world;
