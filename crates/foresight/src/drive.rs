//! What is known of a drive: figures of its data sheet, each with its source, or a range.
//!
//! Rates are bytes a second or operations a second, sizes are bytes, powers are watts.

use serde::{Deserialize, Serialize};

use crate::value::Figure;

/// What the data lies on: decides between which bounds an unknown figure is assumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Media {
    /// Flash of one bit a cell.
    Slc,
    /// Flash of three bits a cell.
    Tlc,
    /// Flash of four bits a cell.
    Qlc,
    /// A hard disk.
    Hdd,
}

/// Where the figure of a drive comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename = "Origin")]
pub struct Origin {
    /// Which figure: a key of the catalogue.
    pub figure: String,
    /// Title of a data sheet, of a page, of a measurement; what an unknown figure is assumed by.
    pub source: String,
    /// Year and month.
    pub date: String,
}

/// A drive as the models use it. What is unknown is absent in a catalogue and a range (of
/// [`crate::value::Source::Assumed`]) here.
#[derive(Clone, Debug, PartialEq)]
pub struct Drive {
    /// Its name in the catalogue, or what the user calls it.
    pub name: String,
    /// What the data lies on.
    pub media: Media,
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
    /// What its link carries in one direction, bytes a second.
    pub link: Figure,
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
    /// Where each figure comes from.
    pub origins: Vec<Origin>,
}

/// The drive with each figure at one end of its range: what is to be computed is monotone in each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) unit: f64,
    pub(crate) read: f64,
    pub(crate) write: f64,
    pub(crate) read_iops: f64,
    pub(crate) write_iops: f64,
    pub(crate) random_write_bytes: f64,
    pub(crate) link: f64,
    pub(crate) mix: f64,
    pub(crate) read_latency: f64,
    pub(crate) write_latency: f64,
}

/// Which end of every range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Worst,
    Best,
}

impl End {
    /// Of a figure that is better the larger it is.
    pub(crate) fn more(self, figure: Figure) -> f64 {
        match self {
            End::Worst => figure.low,
            End::Best => figure.high,
        }
    }

    /// Of a figure that is better the smaller it is.
    pub(crate) fn less(self, figure: Figure) -> f64 {
        match self {
            End::Worst => figure.high,
            End::Best => figure.low,
        }
    }
}

impl Drive {
    pub(crate) fn at(&self, end: End) -> At {
        At {
            unit: end.less(self.unit),
            read: end.more(self.read),
            write: end.more(self.write),
            read_iops: end.more(self.read_iops),
            write_iops: end.more(self.write_iops),
            random_write_bytes: self.random_write_bytes as f64,
            link: end.more(self.link),
            mix: end.more(self.mix),
            read_latency: end.less(self.read_latency),
            write_latency: end.less(self.write_latency),
        }
    }
}

impl At {
    /// Seconds that a drive is busy with one read.
    pub(crate) fn read_time(&self, bytes: f64, sequential: bool) -> f64 {
        let least = if sequential {
            0.0
        } else {
            1.0 / self.read_iops
        };
        least.max(bytes / self.read)
    }

    /// Seconds that a drive is busy with one write in steady state: a random one costs whole units.
    pub(crate) fn write_time(&self, bytes: f64, sequential: bool) -> f64 {
        let streamed = bytes / self.write;
        if sequential {
            return streamed;
        }
        // A rated write of less than a unit costs a unit; other sizes cost by the units that they
        // touch, because collection works on the same flash.
        let rated = self.random_write_bytes.max(self.unit);
        streamed.max(bytes.max(self.unit) / rated / self.write_iops)
    }
}
