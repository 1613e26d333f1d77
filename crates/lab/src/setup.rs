//! What an experiment is made of, and the modelled drive that a catalogue's figures give.

use strake_flash::{Geometry, Latency, Spec, Timing};
use strake_foresight::drive::Drive;
use strake_format::{Level, Settings, WriteHole};

/// Units of an erase block: with so many, and 64 K units of a drive, wear is within 1 % of the
/// closed formula.
const UNITS_PER_BLOCK: u32 = 512;
/// Bytes of the write buffer.
const BUFFER_BYTES: u64 = 4 << 20;
/// p99 and p99.99 of a read, as multiples of its median: of data sheets that give them.
const READ_TAIL: [f64; 2] = [1.5, 4.0];

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
}

impl Host {
    /// So many cores that the drives are the limit.
    pub fn unlimited() -> Host {
        Host {
            cores: 1,
            read_ns: 0.0,
            write_ns: 0.0,
            byte_ns: 0.0,
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The drive; of a range the middle is taken.
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
        let unit = self.drive.unit.middle().clamp(512.0, 65_536.0) as u64;
        unit.next_power_of_two()
    }

    /// The modelled drive.
    pub(crate) fn spec(&self) -> Spec {
        let unit_bytes = self.unit_bytes();
        let d = &self.drive;
        let read = d.read.middle();
        let latency = d.read_latency.middle() * 1e9;
        // Room for a block of each handle is the least that the model can have.
        let blocks = f64::from(UNITS_PER_BLOCK) * f64::from(self.handles);
        let least = blocks / f64::from(self.units) * 1.01;
        Spec {
            geometry: Geometry {
                unit_bytes,
                units: self.units,
                over_provisioning: d.over_provisioning.middle().max(least),
                units_per_block: UNITS_PER_BLOCK,
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
