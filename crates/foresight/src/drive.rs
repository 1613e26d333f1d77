//! What is known of a drive: figures of its data sheet, each with its source, or a range.
//!
//! Rates are bytes a second or operations a second, sizes are bytes, powers are watts.

use crate::value::Figure;

/// A drive as the models use it. What is unknown is `None` in a catalogue and a range (of
/// [`crate::value::Source::Assumed`]) here.
#[derive(Clone, Debug, PartialEq)]
pub struct Drive {
    /// Its name in the catalogue, or what the user calls it.
    pub name: String,
    /// Bytes that a user can write.
    pub capacity: u64,
    /// Indirection unit, bytes.
    pub unit: Figure,
    /// Sequential read, bytes a second.
    pub read: Figure,
    /// Sequential write, bytes a second.
    pub write: Figure,
    /// Random reads of 4 KiB, a second.
    pub read_iops: Figure,
    /// Random writes of `random_write_bytes` in steady state, a second.
    pub write_iops: Figure,
    /// The size for which `write_iops` holds, bytes.
    pub random_write_bytes: u64,
    /// Effective over-provisioning, a fraction of the capacity.
    pub over_provisioning: Figure,
    /// What reads and writes together reach: reads/READ + writes/WRITE stays at or below it.
    pub mix: Figure,
    /// Latency of one read of 4 KiB, seconds.
    pub read_latency: Figure,
    /// Latency of one write of 4 KiB into the buffer, seconds.
    pub write_latency: Figure,
    /// Bytes that may be written to the flash in its life.
    pub endurance: Figure,
    /// Watts under load.
    pub watts_active: Figure,
    /// Watts at rest.
    pub watts_idle: Figure,
    /// Failures a year, a fraction of the drives.
    pub afr: Figure,
    /// Unreadable sectors for each bit that is read.
    pub uber: Figure,
    /// US dollars for each GB.
    pub price_gb: Figure,
}
