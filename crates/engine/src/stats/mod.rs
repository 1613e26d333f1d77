//! Latencies: histograms, and what a shard measures of each device.
//!
//! Invariant: measuring changes no data and allocates nothing.

pub mod device_latency;
pub mod histogram;
