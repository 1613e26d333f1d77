//! What is measured: histograms of latencies, and those of each device.

pub mod device_latency;
pub mod histogram;
