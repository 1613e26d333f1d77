//! Silent faults in data: bit rot, lost writes, misdirected writes. The device says that all is
//! well.
//!
//! Until a scrub has passed, a block on which such a fault was placed may read wrong, and what is
//! computed from it may be wrong: no code can tell without reading everything. So a fault is placed
//! only where the level can find it, and until it is cured nothing is written to its stripe, no
//! member is lost and nothing crashes.
//!
//! A *cure* demands all that the engine promises: a check finds exactly the stripes in which a
//! strip lies and changes nothing; with two parities or three copies it names exactly the strips; a
//! repair makes exactly those true, and leaves everything as it is where no strip can be located.
//! There the simulator restores the truth itself, as an administrator with a backup would.
//!
//! Invariant: the truth of every lie is known.
//!
//! Deliberately absent: silent faults in metadata (`metadata`).

use std::collections::BTreeSet;
use std::sync::Arc;

use strake_engine::event::{Command, EventKind, IoKind, JobKind, MemberIo, ScrubMode};
use strake_engine::geometry::{Place, StripPart};
use strake_engine::units::{RegionNo, Row, StripeNo};
use strake_format::RegionState;
use strake_parity::Code;

use crate::oracle::Moment;
use crate::plan::workload::{Ask, AskKind};
use crate::prng;
use crate::world::user::PendingRequest;
use crate::world::{SimResult, World};

/// The widest stripe in which something lies.
const WIDEST: usize = 11;

/// How the next write of data goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// It is reported done and never happens.
    Lost,
    /// It lands elsewhere on the same member.
    Misdirected,
}

/// A piece of a strip that is not what was written there.
#[derive(Clone, Debug)]
pub struct CorruptStrip {
    /// The drive.
    pub drive: usize,
    /// The stripe that it belongs to.
    pub stripe: StripeNo,
    /// The column of that stripe.
    pub column: usize,
    /// Where it begins on the drive.
    pub offset: u64,
    /// What should be there.
    pub truth: Vec<u8>,
    /// What is there instead, unless a repair has passed.
    pub held: Vec<u8>,
}

/// What was placed and has not been cured, and what scrubs said.
#[derive(Debug, Default)]
pub struct Silent {
    /// The drive on which the next fair write goes wrong.
    pub armed: Option<(usize, WriteFault)>,
    /// What lies.
    pub corrupt: Vec<CorruptStrip>,
    /// Regions that may have been given back since the start, or may be at any moment.
    pub emptied: BTreeSet<RegionNo>,
    /// Strips that were put right while requests were under way, which may have met them before.
    /// With when that was.
    pub(crate) ended: Vec<(Moment, CorruptStrip)>,
    /// Blocks that a scrub named: drive and block.
    named: BTreeSet<(usize, u64)>,
    /// Stripes in which it could locate no strip.
    unclear: BTreeSet<u64>,
    /// Stripes that the last scrub found inconsistent, and repaired.
    counted: (u64, u64),
}

impl World {
    /// A stripe may be lied about: it is written, trusted, whole, and nothing changes it now but
    /// `asks` requests.
    fn fair(&self, stripe: StripeNo, asks: usize) -> bool {
        let (_, row) = self.geometry.row(stripe);
        let region = self.geometry.region(row);
        let machines = self.machines.as_ref().expect("the process lives");
        let state = machines.array.region(region);
        let written = matches!(state, RegionState::Clean | RegionState::Dirty);
        let lied = self.silent.corrupt.iter().any(|bad| bad.stripe == stripe);
        let stays = !self.silent.emptied.contains(&region);
        written && stays && !lied && self.changing(stripe).count() == asks
    }

    /// All of a request's part of this stripe is one operation: it lies in one strip, or is the
    /// whole stripe. Else a later operation of the same request could write over what went wrong.
    fn at_once(&self, stripe: StripeNo) -> bool {
        let strip = self.geometry.strip / self.geometry.block;
        let k = self.geometry.columns(stripe).k as u64;
        self.user
            .asks
            .values()
            .flat_map(|asked| asked.asks())
            .all(|ask| {
                let (first, end) = (ask.first, ask.first + ask.count);
                let parts = (0..k as usize).map(|column| {
                    let strip = self.blocks_of(stripe, column);
                    strip.end.min(end).saturating_sub(strip.start.max(first))
                });
                let parts: Vec<u64> = parts.filter(|&blocks| blocks > 0).collect();
                parts.len() < 2 || parts.iter().sum::<u64>() == k * strip
            })
    }

    /// A read of a mirror is under way here. If it began before the resync had passed, it makes the
    /// copies agree when its turn comes, whichever lies by then.
    pub(crate) fn is_settled(&self, stripe: StripeNo) -> bool {
        let mut asks = self.user.asks.values().flat_map(|asked| asked.asks());
        self.geometry.mirrored()
            && asks.any(|ask| ask.kind == AskKind::Read && self.touches(ask, stripe))
    }

    /// Every member is in sync and well, and nothing is about to change that.
    pub(crate) fn all_well(&mut self) -> bool {
        // A move would take the lie along; and of very wide stripes it takes long to find out what
        // can be computed from one that lies.
        let moves = self.geometry.old_shape.is_some() || self.geometry.width > WIDEST;
        if self.geometry.m == 0 || moves || !self.admin.commands.is_empty() {
            return false;
        }
        let situation = self.situation();
        let well = |slot: &crate::world::fault::tolerance::Condition| {
            slot.intact && !slot.damaged && slot.spoiled_rows.is_empty()
        };
        let incoming = self.looks().iter().any(|look| look.incoming.is_some());
        !situation.resyncing && !incoming && situation.slots.iter().all(well)
    }

    /// Blocks of the array that a strip holds.
    fn blocks_of(&self, stripe: StripeNo, column: usize) -> std::ops::Range<u64> {
        let (lo, hi) = (0, self.geometry.strip);
        self.geometry.blocks(&StripPart {
            stripe,
            column,
            lo,
            hi,
        })
    }

    /// Requests under way, or parts of them, that change something of this stripe.
    pub(crate) fn changing(&self, stripe: StripeNo) -> impl Iterator<Item = &Ask> {
        let asks = self.user.asks.values().flat_map(|asked| asked.asks());
        asks.filter(move |ask| ask.kind.changes() && self.touches(ask, stripe))
    }

    /// Some of the request lies in this stripe.
    pub(crate) fn touches(&self, ask: &Ask, stripe: StripeNo) -> bool {
        (0..self.geometry.columns(stripe).k).any(|column| {
            let strip = self.blocks_of(stripe, column);
            strip.start < ask.first + ask.count.max(1) && ask.first < strip.end
        })
    }

    /// Would this request change a stripe in which a strip lies?
    pub(crate) fn touches_corrupt(&self, ask: &Ask) -> bool {
        let mut corrupt = self.silent.corrupt.iter();
        corrupt.any(|bad| self.touches(ask, bad.stripe))
    }

    /// The stripe, the column and the byte within its strip that lie here on a drive.
    fn stripe_at(&mut self, drive: usize, offset: u64) -> Option<(StripeNo, usize, u64)> {
        let looks = self.looks();
        let slot = looks.iter().position(|look| look.in_sync == Some(drive))?;
        let layout = &self.superblock.layout;
        let at = offset.checked_sub(layout.data_offset)?;
        if at >= layout.data_bytes {
            return None;
        }
        let slot = strake_engine::units::Slot(slot as u8);
        let row = Row(at / self.geometry.strip);
        let stripe = self.geometry.stripe_in(slot, row)?;
        let column = self.geometry.column(stripe, slot)?;
        Some((stripe, column, at % self.geometry.strip))
    }

    /// Some blocks of a member's data rot; with three parities, perhaps of two members at once.
    pub(crate) fn rot(&mut self) -> SimResult {
        if !self.all_well() {
            return Ok(());
        }
        let stripes = self.geometry.stripes();
        let any = StripeNo(self.chance.faults.below(stripes));
        let next = (0..stripes).map(|n| StripeNo((any.0 + n) % stripes));
        let Some(stripe) = next.into_iter().find(|&stripe| self.fair(stripe, 0)) else {
            return Ok(());
        };
        let (block, strip) = (self.geometry.block, self.geometry.strip);
        let blocks = self.chance.faults.range(1, strip / block);
        let from = self.chance.faults.below(strip / block - blocks + 1) * block;
        let mut columns: Vec<usize> = (0..self.geometry.width).collect();
        self.chance.faults.shuffle(&mut columns);
        let most = if self.geometry.m >= 3 { 2 } else { 1 };
        let count = self.chance.faults.range(1, most) as usize;
        for &column in &columns[..count] {
            self.rot_at(stripe, column, from, (blocks * block) as usize);
        }
        Ok(())
    }

    /// These bytes of a strip rot.
    pub fn rot_at(&mut self, stripe: StripeNo, column: usize, from: u64, len: usize) {
        let slot = self.geometry.slot(stripe, column);
        let Some(drive) = self.looks()[slot.index()].in_sync else {
            return;
        };
        let row = self.geometry.row(stripe).1;
        let offset = self.superblock.layout.data_offset + self.geometry.row_offset(row) + from;
        let truth = self.drives[drive].ssd.held(offset, len).to_vec();
        let mut rotten = truth.clone();
        let (flips, mut noise) = (self.chance.faults.percent(50), self.chance.faults.bits());
        for block in rotten.chunks_mut(self.geometry.block as usize) {
            let at = self.chance.faults.below(block.len() as u64) as usize;
            let bytes = if flips { at..at + 1 } else { 0..block.len() };
            for byte in &mut block[bytes] {
                noise = prng::mix(noise);
                *byte ^= noise as u8 | 1;
            }
        }
        self.note(format!(
            "drive {drive} (slot {slot}): {stripe} rots at {offset:#x}+{len:#x}"
        ));
        self.drives[drive].ssd.rot(offset, &rotten);
        self.stats.rot += 1;
        self.add_corrupt(CorruptStrip {
            drive,
            stripe,
            column,
            offset,
            truth,
            held: rotten,
        });
    }

    /// All that a shard has in a region is zero by now, and the array may give it back at any
    /// moment: nothing is there then that could lie. What lies there is put right.
    pub(crate) fn ends_corrupt(&mut self, region: RegionNo) {
        let geometry = Arc::clone(&self.geometry);
        let of = |stripe: StripeNo| geometry.region(geometry.row(stripe).1);
        let (ended, corrupt) = std::mem::take(&mut self.silent.corrupt)
            .into_iter()
            .partition(|bad| of(bad.stripe) == region);
        self.silent.corrupt = corrupt;
        self.void_decay(region);
        self.put_right(ended);
        self.silent.emptied.insert(region);
    }

    /// The array may have fewer parities than before: what lay in those belongs to no stripe any
    /// more. Without any parity a scrub cannot find the other corrupt strips, so they are put
    /// right.
    pub(crate) fn end_corrupt_of_lost_parity(&mut self) {
        let geometry = Arc::clone(&self.geometry);
        let there = |bad: &CorruptStrip| bad.column < geometry.columns(bad.stripe).width;
        self.silent.corrupt.retain(there);
        if geometry.m == 0 {
            let ended = std::mem::take(&mut self.silent.corrupt);
            self.put_right(ended);
        }
    }

    fn put_right(&mut self, ended: Vec<CorruptStrip>) {
        for bad in ended {
            self.drives[bad.drive].ssd.put_right(bad.offset, &bad.truth);
            self.silent.ended.push((self.oracle.moment(), bad));
        }
    }

    pub(crate) fn add_corrupt(&mut self, bad: CorruptStrip) {
        self.silent.corrupt.push(bad);
        self.expected.scrub_must_agree = false;
    }

    /// The next fair write of some member goes wrong.
    pub(crate) fn arm(&mut self, fault: WriteFault) {
        let looks = self.looks();
        let serving: Vec<usize> = looks.iter().filter_map(|look| look.in_sync).collect();
        if self.silent.armed.is_none() && !serving.is_empty() {
            let drive = self.chance.faults.pick(&serving);
            self.silent.armed = Some((drive, fault));
        }
    }

    /// A shard's I/O is on its way to a drive: perhaps the one that goes wrong.
    pub(crate) fn strike_data_write(&mut self, drive: usize, io: &mut MemberIo) {
        let Some((_, fault)) = self.silent.armed.filter(|&(armed, _)| armed == drive) else {
            return;
        };
        let IoKind::Write { offset, data, .. } = &io.kind else {
            return;
        };
        let (offset, truth) = (*offset, data.bytes().to_vec());
        let Some((stripe, column, from)) = self.stripe_at(drive, offset) else {
            return;
        };
        let old = self.drives[drive].ssd.held(offset, truth.len()).to_vec();
        // Only a request's own write: none of a job, and no other is under way there.
        let fair = self.fair(stripe, 1) && self.at_once(stripe) && !self.is_settled(stripe);
        if old == truth || !fair || !self.all_well() {
            return;
        }
        if fault == WriteFault::Misdirected {
            let Some(victim) = self.victim(drive, offset - from, from, &truth) else {
                return;
            };
            self.note(format!(
                "drive {drive}: a write of {stripe} to {offset:#x} lands at {:#x}, in {}",
                victim.offset, victim.stripe
            ));
            if let IoKind::Write { offset, .. } = &mut io.kind {
                *offset = victim.offset;
            }
            self.stats.misdirected += 1;
            self.add_corrupt(victim);
        } else {
            self.note(format!(
                "drive {drive}: a write of {stripe} to {offset:#x} is lost"
            ));
            io.kind = IoKind::Discard { offset: 0, len: 0 };
            self.stats.silently_lost += 1;
        }
        self.silent.armed = None;
        self.add_corrupt(CorruptStrip {
            drive,
            stripe,
            column,
            offset,
            truth,
            held: old,
        });
    }

    /// Where a misdirected write lands: the row before or behind, or any other of the same member.
    pub(crate) fn victim(
        &mut self,
        drive: usize,
        strip_at: u64,
        from: u64,
        data: &[u8],
    ) -> Option<CorruptStrip> {
        let layout = self.superblock.layout;
        let strip = self.geometry.strip;
        let row = (strip_at - layout.data_offset) / strip;
        let any = self.chance.faults.below(self.geometry.rows);
        let row = self
            .chance
            .faults
            .pick(&[row.wrapping_sub(1), row + 1, any]);
        if row >= self.geometry.rows {
            return None;
        }
        let offset = layout.data_offset + row * strip + from;
        let (stripe, column, _) = self.stripe_at(drive, offset)?;
        let truth = self.drives[drive].ssd.held(offset, data.len()).to_vec();
        let fair = truth != data && self.fair(stripe, 0);
        fair.then_some(CorruptStrip {
            drive,
            stripe,
            column,
            offset,
            truth,
            held: data.to_vec(),
        })
    }

    /// What the user read may lie where a strip does, and where a late read was computed from one
    /// that does. Of exactly such blocks the truth is put in their place before they are judged.
    pub(crate) fn excuse_corrupt(&mut self, asked: &PendingRequest, bytes: &mut [u8]) {
        if !self.is_corrupt() && self.silent.ended.is_empty() {
            return;
        }
        let slots: Vec<Option<usize>> = self.looks().iter().map(|look| look.in_sync).collect();
        let block = self.geometry.block;
        for (index, bytes) in (asked.ask.first..).zip(bytes.chunks_mut(block as usize)) {
            let place = self.geometry.locate(index * block);
            let columns = self.possible_contents(&place, &slots, asked.moment);
            let told = |own: &Vec<&[u8]>| own.contains(&&*bytes);
            let lied = columns.iter().any(|column| column.len() > 1);
            let Some(&truth) = columns[place.column].first().filter(|_| lied) else {
                continue;
            };
            let excused = match self.geometry.mirrored() {
                true => columns.iter().any(told),
                false => told(&columns[place.column]) || self.computed(&columns, &place, bytes),
            };
            if excused {
                let truth = truth.to_vec();
                bytes.copy_from_slice(&truth);
            }
        }
    }

    /// What each column of a stripe may hold at the block of this place: the truth first, then what
    /// lies in its stead. Nothing changes where a strip lies, so what a medium holds beside it is
    /// the truth.
    fn possible_contents(
        &self,
        place: &Place,
        slots: &[Option<usize>],
        since: Moment,
    ) -> Vec<Vec<&[u8]>> {
        let (block, data) = (
            self.geometry.block as usize,
            self.superblock.layout.data_offset,
        );
        let (row, strip) = (self.geometry.row(place.stripe).1, self.geometry.strip);
        let at = data + self.geometry.row_offset(row) + place.offset;
        let telling = |column| {
            let ended = self.silent.ended.iter();
            let met = ended.filter(|(moment, _)| since <= *moment);
            let corrupt = self.silent.corrupt.iter().chain(met.map(|(_, bad)| bad));
            let mut here = corrupt.filter(|l| (l.stripe, l.column) == (place.stripe, column));
            let bad = here.find_map(|bad| {
                let from = place.offset.checked_sub((bad.offset - data) % strip)? as usize;
                let part = from..from + block;
                Some(vec![bad.truth.get(part.clone())?, bad.held.get(part)?])
            });
            let slot = self.geometry.slot(place.stripe, column);
            let on_medium = |drive: usize| {
                let bytes = self.drives[drive].ssd.bytes();
                vec![&bytes[at as usize..][..block]]
            };
            bad.unwrap_or_else(|| slots[slot.index()].map(on_medium).unwrap_or_default())
        };
        (0..self.geometry.width).map(telling).collect()
    }

    /// Is this what the block of a place is computed as from some of the other columns?
    fn computed(&self, columns: &[Vec<&[u8]>], place: &Place, bytes: &[u8]) -> bool {
        let (k, width) = (self.geometry.k, self.geometry.width);
        let code = Code::new(k, self.geometry.m).expect("the geometry has a code");
        let sets = (0..1u32 << width).filter(|set| set.count_ones() as usize == k);
        for set in sets.filter(|set| set >> place.column & 1 == 0) {
            let sources: Vec<usize> = (0..width).filter(|&c| set >> c & 1 == 1).collect();
            if sources.iter().all(|&c| columns[c].len() < 2) {
                continue;
            }
            let decoder = code.decoder(&sources, &[place.column]);
            let decoder = decoder.expect("k columns are enough");
            let mut out = vec![0; bytes.len()];
            for inputs in combinations(&sources, columns) {
                decoder.decode(&inputs, &mut [&mut out]);
                if out == bytes {
                    return true;
                }
            }
        }
        false
    }

    /// A scrub told something.
    pub(crate) fn note_scrub(&mut self, kind: &EventKind) {
        match *kind {
            EventKind::Mismatch {
                device,
                offset,
                len,
                ..
            } => {
                let (drive, block) = (self.drive_of(device), self.geometry.block);
                let blocks = offset / block..(offset + len) / block;
                let named = blocks.map(|block| (drive, block));
                let place = self.stripe_at(drive, offset);
                self.silent.named.extend(named);
                if let Some((stripe, ..)) = place {
                    self.decay_is_found(stripe);
                }
            }
            EventKind::Inconsistent { stripe, .. } => {
                self.silent.unclear.insert(stripe.0);
            }
            EventKind::JobFinished {
                kind: JobKind::Scrub,
                inconsistent,
                repaired,
                ..
            } => self.silent.counted = (inconsistent, repaired),
            _ => {}
        }
    }

    fn bytes_at(&self, bad: &CorruptStrip) -> &[u8] {
        self.drives[bad.drive].ssd.held(bad.offset, bad.truth.len())
    }

    /// Does every group have enough redundancy left to locate corrupt strips?
    fn names_corrupt(&mut self) -> bool {
        let looks = self.looks();
        let lost = |group: std::ops::Range<usize>| {
            let lost = looks[group].iter().filter(|look| look.in_sync.is_none());
            lost.count()
        };
        let most = self.geometry.neighbours().map(lost).max();
        self.geometry.m >= 2 + most.unwrap_or(0)
    }

    /// Scrubs, and demands that it finds what lies and nothing else.
    fn scrub_finds(&mut self, mode: ScrubMode) -> SimResult {
        let corrupt = self.silent.corrupt.clone();
        let before: Vec<Vec<u8>> = corrupt.iter().map(|l| self.bytes_at(l).to_vec()).collect();
        let block = self.geometry.block as usize;
        // A scrub in the middle of life may have repaired it already.
        let mut expected = BTreeSet::new();
        let mut stripes = BTreeSet::new();
        for (bad, held) in corrupt.iter().zip(&before) {
            let pieces = bad.truth.chunks(block).zip(held.chunks(block));
            for (index, (truth, held)) in (bad.offset / block as u64..).zip(pieces) {
                if truth != held {
                    expected.insert((bad.drive, index));
                    stripes.insert(bad.stripe.0);
                }
            }
        }
        let names = self.names_corrupt();
        self.silent.named.clear();
        self.silent.unclear.clear();
        self.command(Command::StopScrub);
        self.command(Command::StartScrub(mode));
        self.wait("the scrub ends", World::at_rest)?;
        let repairs = names && mode == ScrubMode::Repair;
        let count = stripes.len() as u64;
        if self.silent.counted != (count, if repairs { count } else { 0 }) {
            let text = format!("a scrub counted {:?}, {count} lie", self.silent.counted);
            return self.failure(text);
        }
        let (named, unclear) = match names {
            true => (expected, BTreeSet::new()),
            false => (BTreeSet::new(), stripes),
        };
        if self.silent.named != named || self.silent.unclear != unclear {
            let text = format!(
                "a scrub named {:?} and found {:?} unclear; there were {named:?} and {unclear:?}",
                self.silent.named, self.silent.unclear
            );
            return self.failure(text);
        }
        for (bad, before) in corrupt.iter().zip(&before) {
            let wanted = if repairs { &bad.truth } else { before };
            if self.bytes_at(bad) != wanted.as_slice() {
                let text = format!("{mode:?} of {}, drive {}: wrong", bad.stripe, bad.drive);
                return self.failure(text);
            }
        }
        Ok(())
    }

    /// What scrubs find from now on counts.
    pub(crate) fn begin_to_find(&mut self) {
        self.silent.named.clear();
        self.silent.unclear.clear();
    }

    /// A scrub found that this stripe does not agree, or located the corrupt strip in this block of
    /// it.
    pub(crate) fn was_found(&self, stripe: StripeNo, sector: u64, drives: &[usize]) -> bool {
        let mut named = drives.iter().map(|&drive| (drive, sector));
        self.silent.unclear.contains(&stripe.0) || named.any(|at| self.silent.named.contains(&at))
    }

    /// Everything that lies is found and made true again: see the module.
    pub fn cure(&mut self) -> SimResult {
        self.silent.armed = None;
        self.spare_data();
        if !self.is_corrupt() {
            return Ok(());
        }
        self.wait("nothing is under way", World::at_rest)?;
        if self.chance.faults.percent(50) {
            self.scrub_finds(ScrubMode::Check)?;
        }
        self.scrub_finds(ScrubMode::Repair)?;
        let names = self.names_corrupt();
        for bad in std::mem::take(&mut self.silent.corrupt) {
            if !names {
                self.drives[bad.drive].ssd.put_right(bad.offset, &bad.truth);
            }
        }
        self.stats.cures += 1;
        self.expected.scrub_must_agree = true;
        self.scrub_finds(ScrubMode::Check)
    }
}

/// Everything that these columns may tell together.
fn combinations<'a>(sources: &[usize], columns: &[Vec<&'a [u8]>]) -> Vec<Vec<&'a [u8]>> {
    let mut all: Vec<Vec<&'a [u8]>> = vec![Vec::new()];
    for &column in sources {
        let mut longer = Vec::new();
        for one in &all {
            for &held in &columns[column] {
                let mut with = one.clone();
                with.push(held);
                longer.push(with);
            }
        }
        all = longer;
    }
    all
}
