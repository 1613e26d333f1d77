//! A planted bug at work between the engine and its devices.
//!
//! Deliberately absent: which bugs there are, and the budgets of seeds (`canary`).

use strake_engine::event::{IoKind, MemberIo};
use strake_engine::units::Row;
use strake_format::region_map::PAGE_BYTES;
use strake_format::{Layout, MapPage, Slot, Superblock, UnreadableList};

use crate::canary::Canary;
use crate::plan::workload::AskKind;
use crate::prng::{Prng, Purpose};
use crate::world::World;

/// A planted bug at work.
#[derive(Clone, Debug)]
pub struct Planted {
    /// Which.
    pub canary: Canary,
    rng: Prng,
}

/// What part of a member an I/O writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Superblock,
    Map,
    Data,
    Other,
}

fn part(layout: &Layout, offset: u64, device_bytes: u64) -> Part {
    if Layout::superblock_offsets(device_bytes).contains(&offset) {
        Part::Superblock
    } else if (layout.map_offset..layout.log_offset).contains(&offset) {
        Part::Map
    } else if (layout.data_offset..layout.data_offset + layout.data_bytes).contains(&offset) {
        Part::Data
    } else {
        Part::Other
    }
}

impl Planted {
    /// Plants it.
    pub fn new(canary: Canary, seed: u64) -> Planted {
        Planted {
            canary,
            rng: Prng::new(seed, Purpose::Canary),
        }
    }

    /// Is a request of this kind answered at once?
    pub fn answers_early(&self, kind: AskKind) -> bool {
        self.canary == Canary::AnswersEarly && kind != AskKind::Read && kind != AskKind::Flush
    }

    /// Alters the I/O for `drive`, and says to which drive it goes.
    pub fn strike(&mut self, world: &mut World, drive: usize, io: &mut MemberIo) -> usize {
        match &io.kind {
            IoKind::Flush => {
                if self.canary == Canary::FlushSwallowed {
                    swallow(io);
                }
            }
            IoKind::Read { offset, .. } | IoKind::ReadInPlace { offset, .. } => {
                let offset = *offset;
                self.strike_read(world, drive, offset, io);
            }
            IoKind::WriteZeroes { .. } => {
                if self.canary == Canary::ZeroingSkipped {
                    swallow(io);
                }
            }
            IoKind::Discard { .. } => {}
            IoKind::Write { offset, .. } => {
                let offset = *offset;
                let bytes = world.drives[drive].ssd.len();
                let part = part(&world.superblock.layout, offset, bytes);
                return self.strike_write(world, drive, part, offset, io);
            }
        }
        drive
    }

    fn strike_read(&mut self, world: &World, drive: usize, offset: u64, io: &mut MemberIo) {
        let layout = &world.superblock.layout;
        let is_data = part(layout, offset, world.drives[drive].ssd.len()) == Part::Data;
        if self.canary != Canary::Misread || !is_data || !self.rng.one_in(100) {
            return;
        }
        let strip = world.geometry.strip;
        let (IoKind::Read { offset, len, .. } | IoKind::ReadInPlace { offset, len, .. }) =
            &mut io.kind
        else {
            return;
        };
        if *offset + strip + *len as u64 <= layout.data_offset + layout.data_bytes {
            *offset += strip;
        }
    }

    fn strike_write(
        &mut self,
        world: &mut World,
        drive: usize,
        part: Part,
        offset: u64,
        io: &mut MemberIo,
    ) -> usize {
        let is_data = part == Part::Data;
        let lost = match self.canary {
            Canary::ParityDropped => {
                is_data && is_parity(world, drive, offset) && self.rng.one_in(10)
            }
            Canary::DataDropped => {
                is_data && !is_parity(world, drive, offset) && self.rng.one_in(30)
            }
            Canary::EpochDropped => part == Part::Superblock && newer(world, drive, io),
            Canary::ListDropped => part == Part::Map && names_blocks(io),
            Canary::MapDropped => part == Part::Map && to_be_dropped(io),
            Canary::RebuildSkipped => {
                let rebuilding = world
                    .looks()
                    .iter()
                    .any(|look| look.incoming == Some(drive));
                is_data && rebuilding && self.rng.one_in(5)
            }
            Canary::FuaStripped => {
                if let IoKind::Write { fua, .. } = &mut io.kind {
                    *fua = false;
                }
                false
            }
            Canary::Misdirected if is_data && self.rng.one_in(50) => {
                let open = |index: &usize| world.drives[*index].device.is_some();
                let others: Vec<usize> = (0..world.drives.len())
                    .filter(|i| *i != drive)
                    .filter(open)
                    .collect();
                let target = if others.is_empty() {
                    drive
                } else {
                    self.rng.pick(&others)
                };
                // The engine gets the completion as from the drive that it meant.
                return target;
            }
            _ => false,
        };
        if lost {
            swallow(io);
        }
        drive
    }
}

/// Makes the I/O succeed without effect.
fn swallow(io: &mut MemberIo) {
    io.kind = IoKind::Discard { offset: 0, len: 0 };
}

fn is_parity(world: &World, drive: usize, offset: u64) -> bool {
    let geometry = &world.geometry;
    let layout = &world.superblock.layout;
    let Some(slot) = slot_of(world, drive) else {
        return false;
    };
    let row = Row((offset - layout.data_offset) / geometry.strip);
    let Some(stripe) = geometry.stripe_in(slot, row) else {
        return false;
    };
    geometry
        .column(stripe, slot)
        .is_some_and(|column| column >= geometry.columns(stripe).k)
}

fn slot_of(world: &World, drive: usize) -> Option<Slot> {
    let ssd = &world.drives[drive].ssd;
    let offset = Layout::superblock_offsets(ssd.len())[0];
    let superblock = Superblock::decode(ssd.peek(offset, 4096)?, offset).ok()?;
    superblock.slot_of(superblock.member)
}

/// Every third version of a region map page, on whichever member.
fn to_be_dropped(io: &MemberIo) -> bool {
    let IoKind::Write { offset, data, .. } = &io.kind else {
        return false;
    };
    let page = data
        .bytes()
        .get(..PAGE_BYTES)
        .and_then(|b| MapPage::decode(b, *offset).ok());
    page.is_some_and(|page| page.sequence.is_multiple_of(3))
}

/// Is this a list of unreadable blocks that is not empty?
fn names_blocks(io: &MemberIo) -> bool {
    let IoKind::Write { offset, data, .. } = &io.kind else {
        return false;
    };
    UnreadableList::decode(data.bytes(), *offset).is_ok_and(|list| !list.ranges.is_empty())
}

/// Is this a superblock of a newer epoch than the one that it replaces?
fn newer(world: &World, drive: usize, io: &MemberIo) -> bool {
    let IoKind::Write { offset, data, .. } = &io.kind else {
        return false;
    };
    let ssd = &world.drives[drive].ssd;
    let old = ssd
        .peek(*offset, 4096)
        .and_then(|bytes| Superblock::decode(bytes, *offset).ok());
    let new = data
        .bytes()
        .get(..4096)
        .and_then(|b| Superblock::decode(b, *offset).ok());
    match (old, new) {
        (Some(old), Some(new)) => old.array == new.array && new.epoch > old.epoch,
        _ => false,
    }
}
