//! What an experiment is made of, and the modelled drive that a catalogue's figures give.

use strake_flash::{Geometry, Latency, Spec, Timing};
use strake_foresight::drive::Drive;
use strake_foresight::value::Figure;
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

/// Most shards of a modelled array: a log area of a scaled drive has room for no more. More cores
/// make each shard faster.
const SHARDS_MOST: u32 = 16;

/// What requests cost in CPU time, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cpu {
    /// Cores, a shard on each.
    pub cores: u32,
    /// A request, beside its drives' I/Os.
    pub request_ns: f64,
    /// An I/O of a drive, from the engine to its completion.
    pub io_ns: f64,
    /// A byte that is written to the array: copy and parity.
    pub byte_ns: f64,
    /// A byte of a drive that a rebuild reads or writes.
    pub check_ns: f64,
}

/// What limits beside the drives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Host {
    /// The cores; `None`: CPU time is never the limit.
    pub cpu: Option<Cpu>,
    /// I/Os of drives that the machine carries a second, whatever its cores; none is no limit.
    pub device_iops: Option<f64>,
}

impl Host {
    /// Drives and their links are the only limits.
    pub fn unlimited() -> Host {
        Host {
            cpu: None,
            device_iops: None,
        }
    }

    /// The planner's machine, each figure at the middle of its range.
    pub fn of(host: &strake_foresight::host::Host) -> Host {
        Host {
            cpu: Some(Cpu {
                cores: host.cores.middle().round().max(1.0) as u32,
                request_ns: host.request.middle() * 1e9,
                io_ns: host.io.middle() * 1e9,
                byte_ns: host.byte.middle() * 1e9,
                check_ns: host.check.middle() * 1e9,
            }),
            device_iops: host.device_iops.map(Figure::middle),
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
    /// Shards of the engine, where no cores are modelled.
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

    /// Shards: one on each core, where cores are modelled.
    pub(crate) fn shards(&self) -> u16 {
        match self.host.cpu {
            Some(cpu) => cpu.cores.clamp(1, SHARDS_MOST) as u16,
            None => self.shards,
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
