//! What an experiment is made of, and the modelled drive that a catalogue's figures give.

use strake_flash::{Geometry, Latency, Spec, Timing};
use strake_foresight::drive::Drive;
use strake_foresight::wear::spare_of;
use strake_format::{Level, Settings, WriteHole};

/// Erase blocks of a modelled drive: with so many, and 512 units in each, wear is within 1 % of the
/// closed formula.
const BLOCKS: u32 = 128;
/// Bytes of the write buffer.
const BUFFER_BYTES: u64 = 4 << 20;
/// Random writes that cost less are not by collection what they are.
const LEAST_WAF: f64 = 1.1;
/// p99 and p99.99 of a read, as multiples of its median: of data sheets that give them.
const READ_TAIL: [f64; 2] = [1.5, 4.0];
/// The mean of such a distribution, as a multiple of its median.
const READ_MEAN: f64 = 1.060;

/// What requests cost the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    /// Cores that serve.
    pub cores: u32,
    /// CPU time of a read, nanoseconds.
    pub read_ns: f64,
    /// CPU time of a write, nanoseconds.
    pub write_ns: f64,
    /// CPU time for each byte, nanoseconds.
    pub byte_ns: f64,
    /// I/Os of drives that the machine carries a second, whatever its cores; none is no limit.
    pub device_iops: Option<f64>,
}

impl Host {
    /// So many cores that the drives are the limit.
    pub fn unlimited() -> Host {
        Host {
            cores: 1,
            read_ns: 0.0,
            write_ns: 0.0,
            byte_ns: 0.0,
            device_iops: None,
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The drive; of a range the middle is taken, of that of the indirection unit the least.
    pub drive: Drive,
    /// Members.
    pub members: u8,
    /// Level.
    pub level: Level,
    /// Members of a group.
    pub group_size: Option<u8>,
    /// Bytes of a strip.
    pub strip: Option<u32>,
    /// What protects writes that are cut off.
    pub write_hole: WriteHole,
    /// Other settings of the array.
    pub settings: Settings,
    /// What requests cost.
    pub host: Host,
    /// Shards of the engine.
    pub shards: u16,
    /// Units that a modelled drive has: 64 K and more reach steady state.
    pub units: u32,
    /// Placement handles that the drive has; 1 is none of its own for anything.
    pub handles: u8,
    /// Decides the order of latencies and of random places.
    pub seed: u64,
}

impl Setup {
    /// An array with defaults: no limit of the host, the log closed, 64 K units.
    pub fn new(drive: Drive, members: u8, level: Level) -> Setup {
        Setup {
            drive,
            members,
            level,
            group_size: None,
            strip: None,
            write_hole: WriteHole::Closed,
            settings: Settings::default(),
            host: Host::unlimited(),
            shards: 2,
            units: 64 << 10,
            handles: 1,
            seed: 1,
        }
    }

    /// The indirection unit, bytes.
    pub(crate) fn unit_bytes(&self) -> u64 {
        let unit = self.drive.unit.low.clamp(512.0, 65_536.0) as u64;
        unit.next_power_of_two()
    }

    /// Bytes of an erase block.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.unit_bytes() * u64::from(self.units_per_block())
    }

    fn units_per_block(&self) -> u32 {
        (self.units / BLOCKS).max(1)
    }

    /// Over-provisioning of the modelled drive: what makes the rate of its random writes that of
    /// its data sheet, where the two rates say so; the catalogue's range may be wide.
    pub fn over_provisioning(&self) -> f64 {
        let d = &self.drive;
        let random = d.random_write_bytes.max(self.unit_bytes()) as f64;
        let waf = d.write.middle() / (d.write_iops.middle() * random);
        match waf > LEAST_WAF {
            true => spare_of(waf),
            false => d.over_provisioning.middle(),
        }
    }

    /// The modelled drive.
    pub(crate) fn spec(&self) -> Spec {
        let unit_bytes = self.unit_bytes();
        let d = &self.drive;
        let read = d.read.middle();
        let latency = d.read_latency.middle() * 1e9 / READ_MEAN;
        // Room for a block of each handle is the least that the model can have.
        let blocks = f64::from(self.units_per_block()) * f64::from(self.handles);
        let least = blocks / f64::from(self.units) * 1.01;
        Spec {
            geometry: Geometry {
                unit_bytes,
                units: self.units,
                over_provisioning: self.over_provisioning().max(least),
                units_per_block: self.units_per_block(),
                handles: self.handles,
                buffer_units: (BUFFER_BYTES / unit_bytes) as u32,
            },
            timing: Timing {
                read_bytes: read,
                read_ops: d.read_iops.middle(),
                program_bytes: d.write.middle(),
                write_ops: d.read_iops.middle(),
                link_bytes: d.link.middle(),
                mix: d.mix.middle(),
                buffer_bytes: BUFFER_BYTES as f64,
                read_latency: Latency {
                    p50: latency,
                    p99: latency * READ_TAIL[0],
                    p9999: latency * READ_TAIL[1],
                },
                write_latency: Latency::fixed(d.write_latency.middle() * 1e9),
            },
        }
    }
}
