//! What the threads of an array that serves have counted.
//!
//! Invariant: reading waits for no thread. Deliberately absent: what is counted (`thread`).

use strake_engine::units::DeviceId;

use crate::serve::Serving;
use crate::thread::counters::{Counters, RequestLatencies};
use crate::thread::device_counts::DeviceCounts;

impl Serving {
    /// Requests served.
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.tallies.iter().for_each(|tally| sum += tally.read());
        sum
    }

    /// How long requests took, those of all threads together.
    pub fn request_latencies(&self) -> RequestLatencies {
        let mut sum = RequestLatencies::default();
        self.tallies.iter().for_each(|of| sum += of.latencies());
        sum
    }

    /// I/Os that a device got, of all threads together.
    pub fn device_counts(&self, device: DeviceId) -> DeviceCounts {
        let mut sum = DeviceCounts::default();
        for tally in self.tallies.iter() {
            sum += tally.devices().of(device);
        }
        sum
    }
}
