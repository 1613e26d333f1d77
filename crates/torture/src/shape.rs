//! What is drawn once for each array: level, width, strip, sizes; and the making of its files.
//!
//! Invariant: the same seed draws the same array. Strips are small and arrays too, so that partial
//! stripes are common and a whole verification takes a moment.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use strake_engine::create::{CreateSpec, Init, Tiny, plan};
use strake_format::{ArrayName, ArrayUuid, Level, MemberUuid, Settings, WriteHole};
use strake_runtime::{Device, OpenMode};
use strake_sim::prng::Prng;

/// The levels, by the names that the command line gives them.
pub(crate) const LEVELS: [&str; 10] = ["0", "1", "5", "6", "7.3", "10", "50", "60", "70", "4+4"];
/// How often each is drawn: those with parity have the most to lose.
const WEIGHTS: [u32; 10] = [1, 3, 6, 6, 3, 2, 2, 2, 1, 2];

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) level: Level,
    pub(crate) members: usize,
    pub(crate) group: Option<u8>,
    pub(crate) strip: u32,
    pub(crate) block: u32,
    pub(crate) file_bytes: u64,
    pub(crate) tiny: Option<Tiny>,
    /// Policy of the write hole.
    pub(crate) write_hole: WriteHole,
    /// Its data moves to other shapes now and then; the log has room for that.
    pub(crate) moves: bool,
}

/// Another shape for data to move to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    /// Members that are added.
    pub(crate) more: usize,
    /// Bytes of a strip, if that is another.
    pub(crate) strip: Option<u32>,
    /// Members of a group, if that is another.
    pub(crate) group: Option<usize>,
}

/// An array that has as many members gets no more.
const MEMBERS_MOST: usize = 12;
/// Room in the log for shapes to come.
const MOVING_LOG_BYTES: u64 = 4 << 20;

impl Shape {
    /// Draws an array, of this level if one is given.
    pub(crate) fn draw(rng: &mut Prng, level: Option<&str>) -> Result<Shape> {
        let drawn = LEVELS[rng.weighted(&WEIGHTS)];
        let level: Level = level.unwrap_or(drawn).parse().context("a level")?;
        let least = usize::from(level.group_min());
        let (members, group) = match level {
            Level::Raid0 => (rng.range(2, 4) as usize, None),
            Level::Raid1 => (rng.range(2, 3) as usize, None),
            Level::Raid10 => (2 * rng.range(2, 3) as usize, None),
            Level::Nm { n, m } => (usize::from(n) + usize::from(m), None),
            grouped if grouped.is_grouped() => (2 * least, Some(level.group_min())),
            _ => (least + rng.range(0, 2) as usize, None),
        };
        let tiny = rng.percent(60).then(|| Tiny {
            align_bytes: 4096,
            log_bytes: rng.pick(&[128 << 10, 512 << 10]),
            log_shards: 4,
            region_bytes: rng.pick(&[64 << 10, 256 << 10]),
            page_regions: rng.pick(&[None, Some(16)]),
        });
        let data_bytes = rng.range(24, 64) * (128 << 10);
        let beside = if tiny.is_some() { 1 << 20 } else { 6 << 20 };
        let policy = rng.pick(&[WriteHole::Closed, WriteHole::Closed, WriteHole::Resync]);
        let (strip, block) = (rng.pick(&[4096, 8192, 16384]), rng.pick(&[512, 4096, 4096]));
        let parity = level.parity_count() > 0 && !matches!(level, Level::Nm { .. });
        let moves = parity && rng.percent(40);
        let room = if moves { MOVING_LOG_BYTES } else { 0 };
        let tiny = tiny.map(|tiny| Tiny {
            log_bytes: tiny.log_bytes + room,
            ..tiny
        });
        Ok(Shape {
            level,
            members,
            group,
            strip,
            block,
            file_bytes: data_bytes + beside + room,
            tiny,
            write_hole: policy,
            moves,
        })
    }

    /// A shape that an array like this may get which has so many slots, in groups of `width`, and
    /// strips of so many bytes now: its device does not become smaller by that.
    pub(crate) fn change(
        &self,
        rng: &mut Prng,
        slots: usize,
        width: usize,
        strip: u32,
    ) -> Option<Change> {
        let m = self.tolerates();
        let one = slots == width;
        let change = match (rng.below(3), one) {
            (0, _) => Change {
                strip: Some(if strip < 16384 { 2 * strip } else { strip / 2 }),
                ..Change::default()
            },
            (1, true) => Change {
                more: 1,
                ..Change::default()
            },
            (1, false) => Change {
                more: width,
                ..Change::default()
            },
            (_, true) => {
                // Two groups that hold as much, the smallest that there are.
                let least = usize::from(self.level.group_min());
                let group = (slots - m).div_ceil(2) + m;
                let group = group.max(least).max(slots.div_ceil(2));
                Change {
                    more: 2 * group - slots,
                    group: Some(group),
                    ..Change::default()
                }
            }
            (_, false) => Change {
                group: Some(slots),
                ..Change::default()
            },
        };
        (self.moves && slots + change.more <= MEMBERS_MOST).then_some(change)
    }

    /// Members of a group that may be lost.
    pub(crate) fn tolerates(&self) -> usize {
        match self.level {
            Level::Raid1 => self.members - 1,
            Level::Raid10 => 1,
            level => usize::from(level.parity_count()),
        }
    }

    /// Slots of a group.
    pub(crate) fn width(&self) -> usize {
        match self.level {
            Level::Raid10 => 2,
            _ => self.group.map_or(self.members, usize::from),
        }
    }

    /// Copies instead of parity (or nothing at all): there is no write hole.
    pub(crate) fn without_parity(&self) -> bool {
        matches!(self.level, Level::Raid0 | Level::Raid1 | Level::Raid10)
    }

    /// Writes may be cut off, and members lost, in any order.
    pub(crate) fn hole_closed(&self) -> bool {
        self.without_parity() || self.write_hole == WriteHole::Closed
    }

    /// An empty file of a member's size.
    pub(crate) fn empty_file(&self, path: &Path) -> Result<()> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        Ok(file.set_len(self.file_bytes)?)
    }

    /// Makes the array on new files, and says how large it is, and its block: the drawn one, or
    /// what the file system asks for where that is more.
    pub(crate) fn create(&self, rng: &mut Prng, paths: &[PathBuf]) -> Result<(u64, u32)> {
        let mut devices = Vec::new();
        for path in paths {
            self.empty_file(path)?;
            devices.push(Device::open(path, OpenMode::Member)?);
        }
        let members: Vec<_> = devices
            .iter()
            .map(|device| (device.info(), MemberUuid(rng.bytes16())))
            .collect();
        let asked = members.iter().map(|(info, _)| info.block_bytes).max();
        let block = asked.unwrap_or(0).max(self.block);
        let created = plan(&CreateSpec {
            array: ArrayUuid(rng.bytes16()),
            name: "torture".parse::<ArrayName>().context("a name")?,
            level: self.level,
            strip_bytes: Some(self.strip),
            group_size: self.group,
            block_bytes: Some(block),
            write_hole: self.write_hole,
            // A round is too short to wait for a member that was removed.
            settings: Settings {
                spare_delay_ms: 0,
                ..Settings::default()
            },
            init: Init::Lazy,
            created_unix_s: 0,
            members,
            spares: Vec::new(),
            tiny: self.tiny,
        })?;
        for (device, writes) in devices.iter().zip(&created.writes) {
            for (offset, bytes) in writes {
                device.write_at(*offset, bytes)?;
            }
            device.flush()?;
        }
        Ok((created.size_bytes, block))
    }
}
