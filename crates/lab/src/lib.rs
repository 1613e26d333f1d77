//! The engine on modelled drives, in virtual time: what an array of these drives will do under a
//! load, from the product's own code.
//!
//! Drives are scaled down in capacity, and in nothing else: the same rates, unit, over-provisioning
//! and latencies. So rates, latencies and wear are those of the whole drive; times of jobs are
//! scaled up by what they have to move. Every byte of data is zero: parity and checksums are
//! computed as always, and a drive needs to keep none of it.
//!
//! **Architecture Invariants:** no clock, thread, I/O or chance from outside: the same setup gives
//! the same figures. The engine is the product's; nothing in it knows of the lab.
//!
//! Deliberately absent: faults (`sim` has them), the kernel, and what an export costs beyond the
//! CPU time of [`Host`].

#![forbid(unsafe_code)]

mod bench;
mod cpu;
mod event;
pub mod forecast;
mod machine;
mod member;
mod setup;
mod source;
pub mod steady;

pub use bench::{Job, Lab, LabError, Reached, Target, Until, Wear};
pub use machine::Written;
pub use setup::{Cpu, Host, Setup};
