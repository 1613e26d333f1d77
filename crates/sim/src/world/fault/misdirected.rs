//! Writes of metadata that are lost, or land elsewhere on the same member. The device says that all
//! is well.
//!
//! A misdirected write may land on a place of any kind, the one beside it that holds the version
//! before among them; there it is as rot. Where it lands in data, that lies until a scrub has
//! passed (`silent`), so it does only where nothing else goes wrong until then. It lands at once:
//! what was being written there at that moment lands later.
//!
//! Invariant: a write goes wrong only on a member in sync that the array could do without, and that
//! counts as lost from then on until the place is written again (`metadata`).
//!
//! Deliberately absent: writes of data (`silent`).

use strake_engine::event::{IoKind, MemberIo};

use crate::drive::overlay::{FaultKind, FaultSet};
use crate::report::tally::{Area, Damage};
use crate::world::World;
use crate::world::fault::metadata::BLOCK;
use crate::world::fault::silent::WriteFault;

/// So many writes pass before one is considered again, where one was not fair.
const UNFAIR_SKIP: u64 = 5;

/// A write that is to go wrong.
#[derive(Clone, Copy, Debug)]
pub struct Armed {
    /// How.
    pub fault: WriteFault,
    /// What it writes.
    pub area: Area,
    /// To which drive; any if not given.
    pub drive: Option<usize>,
    /// So many others come first.
    pub skip: u64,
    /// It may land in data.
    pub into_data: bool,
}

impl World {
    /// Some write of metadata that is to come goes wrong.
    pub(crate) fn arm_metadata(&mut self, fault: WriteFault, into_data: bool) {
        let areas = [Area::Superblock, Area::Map, Area::List, Area::Log];
        let area = areas[self.chance.faults.weighted(&[3, 3, 2, 4])];
        let slots = self.geometry.slots() as u64;
        let skip = self.chance.faults.below(2 * slots + 1);
        self.metadata.arm(Armed {
            fault,
            area,
            drive: None,
            skip,
            into_data,
        });
    }

    /// The next such write goes wrong.
    pub fn misdirect(&mut self, armed: Armed) {
        self.metadata.arm(armed);
    }

    /// What was to land in data does so no more: nothing will be scrubbed before the next crash.
    pub(crate) fn spare_data(&mut self) {
        if let Some(armed) = &mut self.metadata.armed {
            armed.into_data = false;
        }
    }

    /// The array is about to be started: perhaps a write of that goes wrong.
    pub(crate) fn arm_start(&mut self, without: FaultSet) {
        self.spare_data();
        if !self.chance.faults.percent(15) {
            return;
        }
        let (fault, kind) = match self.chance.faults.percent(50) {
            true => (WriteFault::Lost, FaultKind::LostWrite),
            false => (WriteFault::Misdirected, FaultKind::Misdirected),
        };
        if !without.has(kind) {
            self.arm_metadata(fault, false);
        }
    }

    /// An I/O is on its way to a drive: perhaps the one that goes wrong.
    pub(crate) fn strike_metadata_write(&mut self, drive: usize, io: &mut MemberIo) {
        let Some(armed) = self.metadata.armed else {
            return;
        };
        let IoKind::Write { offset, data, .. } = &io.kind else {
            return;
        };
        let aimed = armed.drive.is_none_or(|aimed| aimed == drive);
        if !aimed || self.area_at(drive, *offset) != Some(armed.area) {
            return;
        }
        if armed.skip > 0 {
            let skip = armed.skip - 1;
            self.metadata.armed = Some(Armed { skip, ..armed });
            return;
        }
        if !self.may_strike_metadata(drive) {
            // To ask that for each of thousands of writes would take longer than all the rest.
            let skip = UNFAIR_SKIP;
            self.metadata.armed = Some(Armed { skip, ..armed });
            return;
        }
        let (offset, data) = (*offset, data.bytes().to_vec());
        let gone_wrong = match armed.fault {
            WriteFault::Lost => self.lose_metadata(drive, armed.area, offset, &data),
            WriteFault::Misdirected => self.misdirect_metadata(drive, &armed, offset, &data),
        };
        if gone_wrong {
            io.kind = IoKind::Discard { offset: 0, len: 0 };
            self.metadata.armed = None;
        }
    }

    /// The drive serves a slot, and the array could do without it.
    fn may_strike_metadata(&mut self, drive: usize) -> bool {
        if self.geometry.m == 0 || self.is_corrupt() || self.plan.decays {
            return false;
        }
        let mut looks = self.looks().into_iter();
        let Some(slot) = looks.position(|look| look.in_sync == Some(drive)) else {
            return false;
        };
        let situation = self.situation();
        self.tolerance().may_lose(&situation, slot)
    }

    fn lose_metadata(&mut self, drive: usize, area: Area, offset: u64, data: &[u8]) -> bool {
        if self.lacks(drive, area, offset, data) {
            self.note(format!(
                "drive {drive}: a write of {area:?} to {offset:#x} is lost"
            ));
            self.count_damage(Damage::Lost, area, offset);
            return true;
        }
        false
    }

    /// Blocks from `offset` on that do not hold this are damaged; true if there are any.
    fn lacks(&mut self, drive: usize, area: Area, offset: u64, data: &[u8]) -> bool {
        let mut any = false;
        for (at, wanted) in (offset..).step_by(BLOCK).zip(data.chunks(BLOCK)) {
            let ssd = &self.drives[drive].ssd;
            let here = ssd.held(at, BLOCK).to_vec();
            // What could not be read still cannot, whatever lies there.
            let readable = ssd.peek(at, BLOCK).is_some();
            if here != wanted || !readable {
                let here = readable.then_some(here);
                self.metadata.spoil(drive, area, at, here);
                any = true;
            }
        }
        any
    }

    fn misdirect_metadata(
        &mut self,
        drive: usize,
        armed: &Armed,
        offset: u64,
        data: &[u8],
    ) -> bool {
        let area = armed.area;
        if armed.into_data && self.chance.faults.percent(50) {
            return self.misdirect_into_data(drive, area, offset, data);
        }
        let Some((victim, at)) = self.other_place(drive, area, offset, data.len()) else {
            return false;
        };
        self.note(format!(
            "drive {drive}: a write of {area:?} to {offset:#x} lands at {at:#x}, {victim:?}"
        ));
        let before = self.drives[drive].ssd.held(at, data.len()).to_vec();
        self.land(drive, at, data);
        self.lacks(drive, area, offset, data);
        // The part of its own place that it hit is told of already.
        let own = offset..offset + data.len() as u64;
        let pieces = data.chunks(BLOCK).zip(before.chunks(BLOCK));
        for (at, (landed, before)) in (at..).step_by(BLOCK).zip(pieces) {
            if landed != before && !own.contains(&at) {
                self.metadata
                    .spoil(drive, victim, at, Some(landed.to_vec()));
            }
        }
        self.count_damage(Damage::Misdirected, area, offset);
        self.count_damage(Damage::Overwritten, victim, at);
        true
    }

    /// These bytes are silently on the medium.
    fn land(&mut self, drive: usize, at: u64, data: &[u8]) {
        let (ssd, block) = (&mut self.drives[drive].ssd, self.geometry.block);
        ssd.rot(at, data);
        let blocks = at / block..(at + data.len() as u64) / block;
        ssd.faults.heal(blocks.start, blocks.end);
    }

    /// A place of metadata on the same drive where so many bytes fit. Batches of the log that are
    /// longer than a block land in the log.
    fn other_place(
        &mut self,
        drive: usize,
        area: Area,
        offset: u64,
        bytes: usize,
    ) -> Option<(Area, u64)> {
        let layout = self.superblock.layout;
        let mut places = self.metadata_places(drive);
        if bytes > BLOCK {
            places.clear();
        }
        // A block of the log is as likely as all of another kind.
        let log = self.log_place();
        let end = layout.log_offset + layout.log_bytes;
        places.extend(log.filter(|(_, at)| at + bytes as u64 <= end));
        places.retain(|&(_, at)| at != offset);
        if self.chance.faults.percent(50) && places.iter().any(|&(here, _)| here == area) {
            places.retain(|&(here, _)| here == area);
        }
        (!places.is_empty()).then(|| self.chance.faults.pick(&places))
    }

    /// It lands in a strip, which lies from then on, where that is fair.
    fn misdirect_into_data(&mut self, drive: usize, area: Area, offset: u64, data: &[u8]) -> bool {
        let strip = self.geometry.strip;
        let started = self.machines().started;
        if data.len() as u64 > strip || !started || !self.all_well() {
            return false;
        }
        let row = self.chance.faults.below(self.geometry.rows);
        let strip_at = self.superblock.layout.data_offset + row * strip;
        let Some(victim) = self.victim(drive, strip_at, 0, data) else {
            return false;
        };
        self.note(format!(
            "drive {drive}: a write of {area:?} to {offset:#x} lands at {:#x}, in {}",
            victim.offset, victim.stripe
        ));
        self.land(drive, victim.offset, data);
        self.add_corrupt(victim);
        self.lacks(drive, area, offset, data);
        self.count_damage(Damage::Misdirected, area, offset);
        self.stats.misdirected_into_data += 1;
        true
    }
}
