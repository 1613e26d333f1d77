//! Blocks with lost content: the durable list of them, and how blocks get on it and off it.
//!
//! A block is lost where more strips are missing or unreadable than parity can make good. It is put
//! on the array's *list of unreadable blocks*; only then is something else taken for its content,
//! so that parity becomes consistent and a job goes on. A listed block answers EIO until it is
//! written again. What adds blocks to the list and removes them:
//! * a shard's operation, by [`FromShard::List`] (see `shard::op::salvage`): it waits for
//!   [`ToShard::Listed`], and writes in place only then; a write of a listed block is durable in
//!   place first, then the block leaves the list, then the write is answered;
//! * zeroing of a region that was discarded: its blocks leave the list before they can be written
//!   again; room for that is kept from the moment on when all shards have closed it, and where
//!   there is none it is not discarded;
//! * anything of the array itself, by [`Array::list_unreadable`], at any time between
//!   [`Array::start`] and the end, also before the array serves: ranges of strips in, and an
//!   [`ListWaiter`] that says what goes on (in [`Array::drive_unreadable`]) once all of it is
//!   durable on every live member. A new user adds its variant there.
//!
//! Invariants:
//! * Nothing goes on before the version that it waits for is durable on every live member, and a
//!   member that did not take that version is durably out; nor before the map says that members
//!   which are away lack what is given up (`members::rejoin`).
//! * Shards know of a change only when it is durable; and of what a replay lists before anything is
//!   served.
//! * A version never overwrites a member's newest: each member remembers which of its two places
//!   holds that.
//!
//! Deliberately absent: how it is found out that a block is lost (`shard::op::salvage`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rangemap::RangeSet;
use strake_format::unreadable::{self, capacity, places};
use strake_format::*;

use crate::array::outbox::Outbox;
use crate::array::reshape::Reshape;
use crate::array::{Array, Purpose, Stage};
use crate::canary::{self, Canary};
use crate::geometry::block_set::BadBlocks;
use crate::geometry::{Geometry, StripPart};
use crate::mem::buffer::{Buf, Slice};
use crate::proto::*;
use crate::units::*;

/// The list has no room for one more range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListFull;

/// What goes on once a version of the list is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListWaiter {
    /// A shard's operation.
    Shard { shard: ShardNo, op: u64 },
    /// The zeroing of a region.
    Zeroed(RegionNo),
    /// The replay of the stripe log.
    Replay,
    /// A window of data that moves.
    Moved,
}

/// The array's list; see the module.
#[derive(Debug, Default)]
pub(crate) struct Unreadable {
    /// As it shall be.
    lost: BadBlocks,
    /// As shards know it.
    published: Arc<BadBlocks>,
    sequence: u64,
    /// Changed since the version in flight was put together.
    due: bool,
    flight: Option<Flight>,
    /// The waiters for the next version.
    next: Vec<ListWaiter>,
    /// Regions that are being given back, and how many ranges their blocks may add by leaving.
    leaving: BTreeMap<RegionNo, usize>,
}

#[derive(Debug)]
struct Flight {
    pending: usize,
    lost: BadBlocks,
    waiting: Vec<ListWaiter>,
}

/// The newest list of a member, and which place holds it.
pub(crate) fn newest(found: &Found) -> Option<(usize, &UnreadableList)> {
    let sb = &found.superblock;
    unreadable::newest(&found.unreadable, sb.array, sb.member)
}

impl Unreadable {
    /// See the module; so many writes of the list are in flight.
    pub(crate) fn check(&self, writes: usize) -> Result<(), String> {
        let pending = self.flight.as_ref().map_or(0, |flight| flight.pending);
        ensure!(
            pending == writes,
            "the list of unreadable blocks waits for {pending} writes, and {writes} are in flight"
        );
        let (ranges, most) = (self.lost.blocks.len(), self.lost.most);
        ensure!(
            ranges <= most,
            "the list of unreadable blocks has {ranges} ranges and room for {most}"
        );
        Ok(())
    }

    /// From the newest list of the members in sync; what lies in regions that read as zeros means
    /// nothing any more.
    pub(crate) fn new(
        geometry: &Geometry,
        list: &UnreadableList,
        place_bytes: u32,
        zeros: &[Range<u64>],
    ) -> Unreadable {
        let blocks = geometry.size() / geometry.block;
        let mut lost = BadBlocks {
            most: capacity(place_bytes),
            ..BadBlocks::default()
        };
        let inside = list.ranges.iter().filter(|r| r.start < blocks);
        lost.blocks
            .extend(inside.map(|r| r.start..r.end.min(blocks)));
        for region in zeros {
            lost.blocks
                .remove(region.start / geometry.block..region.end / geometry.block);
        }
        Unreadable {
            published: Arc::new(lost.clone()),
            lost,
            sequence: list.sequence,
            ..Unreadable::default()
        }
    }

    /// How many versions there have been.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Ranges that the list has room for, in places of so many bytes.
    pub(crate) fn room(&self, place_bytes: u32) -> usize {
        capacity(place_bytes).saturating_sub(self.lost.blocks.len())
    }

    /// What shards know.
    pub(crate) fn published(&self) -> Arc<BadBlocks> {
        Arc::clone(&self.published)
    }

    /// Bytes of the array's address space that answer an error, in order.
    pub(crate) fn bytes(&self, geometry: &Geometry) -> Vec<Range<u64>> {
        self.lost.bytes(geometry)
    }

    /// Shards know all that there is to know.
    pub(crate) fn agreed(&self) -> bool {
        let same = |flight: &Flight| flight.lost == *self.published;
        self.lost == *self.published && self.flight.as_ref().is_none_or(same)
    }

    /// Nothing is being written, or is to be.
    pub(crate) fn quiet(&self) -> bool {
        !self.due && self.flight.is_none()
    }
}

impl Unreadable {
    /// Takes these ranges of blocks off the list; as [`Array::list_unreadable`].
    ///
    /// # Errors
    /// The list is full: what was one range becomes two.
    fn unlist(
        &mut self,
        ranges: &[Range<u64>],
        waiter: ListWaiter,
        geometry: &Geometry,
        out: &mut Outbox,
    ) -> Result<(), ListFull> {
        let mut lost = self.lost.clone();
        for range in ranges {
            lost.blocks.remove(range.clone());
        }
        self.has_room(&lost, true)?;
        for range in ranges {
            for part in self.lost.parts_within(range) {
                let (offset, len) = bytes_of(geometry, &part);
                out.event(EventKind::Rewritten { offset, len });
            }
        }
        self.change(lost, waiter);
        Ok(())
    }

    /// Whether the list has room. Blocks that come leave some for those that go: one that leaves
    /// the middle of a range makes two of it.
    fn has_room(&self, lost: &BadBlocks, leaving: bool) -> Result<(), ListFull> {
        let most = self.lost.most;
        let kept: usize = self.leaving.values().sum();
        let kept = if leaving { kept } else { kept.max(most / 8) };
        let most = most.saturating_sub(kept);
        match lost.blocks.len() <= most || canary::hit(Canary::ListWithoutLimit) {
            true => Ok(()),
            false => Err(ListFull),
        }
    }

    fn change(&mut self, lost: BadBlocks, waiter: ListWaiter) {
        self.lost = lost;
        self.due = true;
        self.next.push(waiter);
    }

    /// The list must be written on every live member: at start, and when one joins.
    pub(crate) fn rewrite(&mut self) {
        self.due = true;
    }

    /// Blocks of a region that are listed: they leave the list when its zeroes are there. True if
    /// there are any, and [`ListWaiter::Zeroed`] follows.
    pub(crate) fn unlist_region(
        &mut self,
        region: RegionNo,
        geometry: &Geometry,
        out: &mut Outbox,
    ) -> bool {
        self.leaving.remove(&region);
        let ranges = self.listed_in(region, geometry);
        let waiter = ListWaiter::Zeroed(region);
        !ranges.is_empty() && self.unlist(&ranges, waiter, geometry, out).is_ok()
    }

    /// A region is closed, to be given back. False if its blocks could not leave the list: zeros
    /// that were acknowledged would answer an error as soon as the region is written again.
    pub(crate) fn may_unlist_region(&mut self, region: RegionNo, geometry: &Geometry) -> bool {
        let mut left = self.lost.blocks.clone();
        let now = left.len();
        for range in self.listed_in(region, geometry) {
            left.remove(range);
        }
        // The more others leave, the less is added by this one.
        let more = left.len().saturating_sub(now);
        let kept: usize = self.leaving.values().sum();
        let may = more == 0 || now + kept + more <= self.lost.most;
        if may && more > 0 {
            self.leaving.insert(region, more);
        }
        may
    }

    /// Parts of the region in which blocks are listed.
    fn listed_in(&self, region: RegionNo, geometry: &Geometry) -> Vec<Range<u64>> {
        let block = geometry.block;
        let parts = geometry.region_parts(region).into_iter();
        let ranges = parts.map(|bytes| bytes.start / block..bytes.end / block);
        let listed = |range: &Range<u64>| !range.is_empty() && self.lost.blocks.overlaps(range);
        ranges.filter(listed).collect()
    }
}

fn bytes_of(geometry: &Geometry, blocks: &Range<u64>) -> (u64, u64) {
    let block = geometry.block;
    (blocks.start * block, (blocks.end - blocks.start) * block)
}

impl Array {
    /// Puts these parts of strips on the list. When that is durable on every live member, what
    /// `until` says goes on.
    ///
    /// # Errors
    /// The list is full: nothing was changed, and nothing goes on.
    pub(crate) fn list_unreadable(
        &mut self,
        parts: &[StripPart],
        waiter: ListWaiter,
    ) -> Result<(), ListFull> {
        let mut lost = self.unreadable.lost.clone();
        let ranges = parts.iter().map(|part| self.geometry.blocks(part));
        // What has moved away is not lost with what it left behind.
        let ranges: Vec<Range<u64>> = ranges.filter(|range| !range.is_empty()).collect();
        lost.blocks.extend(ranges.iter().cloned());
        // A replay may have what is kept for blocks that leave: without it nothing is served at
        // all.
        self.unreadable
            .has_room(&lost, matches!(waiter, ListWaiter::Replay))?;
        let mut new = RangeSet::new();
        for range in ranges {
            new.extend(self.unreadable.lost.blocks.gaps(&range));
        }
        for range in new.iter() {
            let (offset, len) = bytes_of(&self.geometry, range);
            self.out.event(EventKind::Unreadable { offset, len });
        }
        for part in parts {
            let (_, row) = self.geometry.row(part.stripe);
            self.note_stale(self.geometry.region(row));
        }
        self.unreadable.change(lost, waiter);
        Ok(())
    }

    /// A shard's operation wants parts of strips listed, or taken off.
    pub(crate) fn shard_lists(&mut self, shard: ShardNo, op: u64, lost: bool, parts: &[StripPart]) {
        let waiter = ListWaiter::Shard { shard, op };
        if self.stage == Stage::Failed {
            // The view that says so ends the operation.
            return;
        }
        // The last view is known only when nothing is under way.
        if lost && !self.view.stopping && !self.persist.knows(shard, self.persist.epoch_view) {
            // By a view that is over: a member that came back may hold it. It looks again, and asks
            // again.
            return self.answer_list(shard, op, false);
        }
        let listed = if lost {
            self.list_unreadable(parts, waiter)
        } else {
            let ranges = parts.iter().map(|part| self.geometry.blocks(part));
            let ranges: Vec<Range<u64>> = ranges.filter(|range| !range.is_empty()).collect();
            let unreadable = &mut self.unreadable;
            unreadable.unlist(&ranges, waiter, &self.geometry, &mut self.out)
        };
        if listed.is_err() {
            self.jobs.note_list_full();
            self.answer_list(shard, op, true);
        }
    }

    pub(crate) fn answer_list(&mut self, shard: ShardNo, op: u64, full: bool) {
        let answer = ToShard::Listed { op, full };
        self.out.push(ArrayOutput::Message(shard, answer));
    }

    /// A version that is durable on every live member, where each member that did not take it is
    /// durably out: shards know it now. Gives what waited for it.
    pub(crate) fn list_durable(&mut self) -> Vec<ListWaiter> {
        if !self.may_write_list() {
            return Vec::new();
        }
        // The map may have to say that a member which is away lacks what is being given up.
        let told = self.map.quiet() || canary::hit(Canary::JoinsWithoutMap);
        // Every shard that may read a block must know that it is given up before other content is
        // written there.
        let (home, known) = (
            self.lease.returned(),
            Arc::clone(&self.unreadable.published),
        );
        let over =
            |flight: &mut Flight| flight.pending == 0 && told && (home || flight.lost == *known);
        let Some(flight) = self.unreadable.flight.take_if(over) else {
            return Vec::new();
        };
        if *known != flight.lost {
            self.unreadable.published = Arc::new(flight.lost);
            let published = self.unreadable.published();
            self.out.message_all(&ToShard::Unreadable(published));
            // Before it serves, the array must know that shards have the list: they answer a view.
            self.persist.view_due |= matches!(
                self.stage,
                Stage::Resuming | Stage::Recovering | Stage::Starting
            );
        }
        flight.waiting
    }

    /// A member that failed must be durably out before anything builds on its absence.
    fn may_write_list(&self) -> bool {
        !self.persist.view_due && !matches!(self.stage, Stage::Failed | Stage::Stopped)
    }

    /// Writes the next version of the list.
    pub(crate) fn write_list_if_due(&mut self) {
        if self.may_write_list() && self.unreadable.due && self.unreadable.flight.is_none() {
            self.write_list();
        }
    }

    fn write_list(&mut self) {
        let mut devices = self.table.live();
        if self.reshape.as_ref().is_some_and(Reshape::gathers) {
            // A member with the newest version in its B place keeps it there.
            devices.retain(|device| self.table[device].list_place == 0);
        }
        let list = &mut self.unreadable;
        list.due = false;
        list.sequence += 1;
        let sequence = list.sequence;
        let ranges: Vec<Range<u64>> = list.lost.blocks.iter().cloned().collect();
        list.flight = Some(Flight {
            pending: devices.len(),
            lost: list.lost.clone(),
            waiting: std::mem::take(&mut list.next),
        });
        for device in devices {
            let member = self.table.get_mut(device).expect("it is live");
            member.list_place = 1 - member.list_place;
            let offset = places(&member.places)[member.list_place];
            let image = UnreadableList {
                array: self.sb.array,
                member: member.member,
                epoch: self.sb.epoch,
                sequence,
                ranges: ranges.clone(),
            };
            let bytes = image.encode(member.layout.unreadable_bytes, offset);
            let fua = member.info.volatile_cache && !canary::hit(Canary::ListUndurable);
            let data = Slice::new(Buf::from_bytes(&bytes), 0, bytes.len());
            let kind = IoKind::Write {
                offset,
                data,
                fua,
                purpose: WritePurpose::Metadata,
            };
            self.out.io(device, Purpose::Unreadable { device }, kind);
        }
    }

    pub(crate) fn list_written(&mut self) {
        if let Some(flight) = &mut self.unreadable.flight {
            flight.pending -= 1;
        }
    }
}
