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
//!   again;
//! * anything of the array itself, by [`Array::list_unreadable`], at any time between
//!   [`Array::start`] and the end, also before the array serves: ranges of strips in, and an
//!   [`ListWaiter`] that says what goes on (in [`Array::drive_unreadable`]) once all of it is
//!   durable on every live member. A new user adds its variant there.
//!
//! Blocks that leave the middle of a range make two ranges of it. So whatever is to leave has room
//! kept first ([`Unreadable::reserve`]): for a write, before anything of it is in a log or in
//! place; for a region, when all shards have closed it. Without room the write or the discard is
//! refused, and has changed nothing.
//!
//! Invariants:
//! * The list has room for all that was promised to leave, in any order, and with any part of it
//!   staying: a promise counts one range if its blocks are the middle of a range *now*. What leaves
//!   never puts others into a middle; what comes is counted with what it does to the promises.
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

/// What has room kept for its blocks to leave the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Leaver {
    /// A shard's operation, which is about to write them.
    Write { shard: ShardNo, op: u64 },
    /// A region that is being given back.
    Region(RegionNo),
}

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
    /// Ranges that it has room for.
    most: usize,
    /// As shards know it.
    published: Arc<BadBlocks>,
    sequence: u64,
    /// Changed since the version in flight was put together.
    due: bool,
    flight: Option<Flight>,
    /// The waiters for the next version.
    next: Vec<ListWaiter>,
    /// Blocks that have room kept to leave, whether they are listed or not.
    leaving: BTreeMap<Leaver, RangeSet<u64>>,
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
        let (ranges, kept, most) = (self.lost.blocks.len(), self.kept(&self.lost), self.most);
        ensure!(
            ranges + kept <= most,
            "the list of unreadable blocks has {ranges} ranges, keeps room for {kept}, and has \
             room for {most}"
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
        let mut lost = BadBlocks::default();
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
            most: capacity(place_bytes),
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
    /// Takes these ranges of blocks off the list; as [`Array::list_unreadable`]. The room that was
    /// kept for them is used.
    ///
    /// # Errors
    /// The list is full, although room was kept for all that leaves: a fault of this program.
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
        if lost.blocks.len() > self.most {
            let planted = canary::hit(Canary::ListRoomForgotten);
            debug_assert!(planted, "room was kept for {waiter:?}");
            return Err(ListFull);
        }
        for range in ranges {
            for part in self.lost.parts_within(range) {
                let (offset, len) = bytes_of(geometry, &part);
                out.event(EventKind::Rewritten { offset, len });
            }
        }
        self.change(lost, waiter);
        Ok(())
    }

    /// Ranges that may be added to this list by what has room kept to leave it.
    fn kept(&self, lost: &BadBlocks) -> usize {
        if canary::hit(Canary::ListRoomForgotten) {
            return 0;
        }
        let leaving = self.leaving.values().flat_map(RangeSet::iter);
        leaving.filter(|blocks| lost.splits_at(blocks)).count()
    }

    /// Keeps room for these blocks to leave the list, instead of what was kept for the same before.
    ///
    /// # Errors
    /// There is none: nothing is kept.
    fn reserve(
        &mut self,
        leaver: Leaver,
        blocks: impl Iterator<Item = Range<u64>>,
    ) -> Result<(), ListFull> {
        self.leaving.remove(&leaver);
        let blocks: RangeSet<u64> = blocks.filter(|range| !range.is_empty()).collect();
        let more = blocks.iter().filter(|blocks| self.lost.splits_at(blocks));
        let ranges = self.lost.blocks.len() + more.count();
        if ranges + self.kept(&self.lost) > self.most {
            return Err(ListFull);
        }
        self.leaving.insert(leaver, blocks);
        Ok(())
    }

    /// Whether this list, to which blocks have come, has room beside what is kept for those that
    /// leave.
    fn has_room(&self, lost: &BadBlocks, replay: bool) -> Result<(), ListFull> {
        let kept = self.kept(lost);
        let kept = if replay {
            kept
        } else {
            kept.max(self.most / 8)
        };
        let fits = lost.blocks.len() + kept <= self.most;
        match fits || canary::hit(Canary::ListWithoutLimit) {
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

    /// Blocks of a region that are listed leave the list when its zeros are there. True if there
    /// are any, and [`ListWaiter::Zeroed`] follows.
    ///
    /// # Errors
    /// As of [`Unreadable::unlist`].
    pub(crate) fn unlist_region(
        &mut self,
        region: RegionNo,
        geometry: &Geometry,
        out: &mut Outbox,
    ) -> Result<bool, ListFull> {
        self.leaving.remove(&Leaver::Region(region));
        let listed = |range: &Range<u64>| !range.is_empty() && self.lost.blocks.overlaps(range);
        let ranges: Vec<Range<u64>> = blocks_of(region, geometry).filter(listed).collect();
        if !ranges.is_empty() {
            self.unlist(&ranges, ListWaiter::Zeroed(region), geometry, out)?;
        }
        Ok(!ranges.is_empty())
    }

    /// A region is closed, to be given back. False if its blocks could not leave the list: zeros
    /// that were acknowledged would answer an error as soon as the region is written again.
    pub(crate) fn may_unlist_region(&mut self, region: RegionNo, geometry: &Geometry) -> bool {
        let blocks = blocks_of(region, geometry);
        self.reserve(Leaver::Region(region), blocks).is_ok()
    }
}

/// Logical blocks of a region, before and behind what moves.
fn blocks_of(region: RegionNo, geometry: &Geometry) -> impl Iterator<Item = Range<u64>> {
    let block = geometry.block;
    let parts = geometry.region_parts(region).into_iter();
    parts.map(move |bytes| bytes.start / block..bytes.end / block)
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

    /// A shard's operation wants a change of the list.
    pub(crate) fn shard_lists(
        &mut self,
        shard: ShardNo,
        op: u64,
        change: ListChange,
        parts: &[StripPart],
    ) {
        if self.stage == Stage::Failed {
            // The view that says so ends the operation.
            return;
        }
        let waiter = ListWaiter::Shard { shard, op };
        let leaver = Leaver::Write { shard, op };
        let blocks = parts.iter().map(|part| self.geometry.blocks(part));
        match change {
            ListChange::Add => self.shard_gives_up(shard, op, parts),
            ListChange::Reserve => {
                let full = self.unreadable.reserve(leaver, blocks).is_err();
                self.answer_list(shard, op, full);
            }
            ListChange::Remove => {
                let blocks: Vec<Range<u64>> = blocks.filter(|range| !range.is_empty()).collect();
                let unreadable = &mut self.unreadable;
                unreadable.leaving.remove(&leaver);
                let left = unreadable.unlist(&blocks, waiter, &self.geometry, &mut self.out);
                if left.is_err() {
                    // An error would be said of what is durable: nothing is said any more.
                    self.fail(FailCause::ListFull);
                }
            }
            ListChange::Stay => {
                self.unreadable.leaving.remove(&leaver);
            }
        }
    }

    /// A shard's operation wants parts of strips listed.
    fn shard_gives_up(&mut self, shard: ShardNo, op: u64, parts: &[StripPart]) {
        // The last view is known only when nothing is under way.
        if !self.view.stopping && !self.persist.knows(shard, self.persist.epoch_view) {
            // By a view that is over: a member that came back may hold it. It looks again, and asks
            // again.
            return self.answer_list(shard, op, false);
        }
        let waiter = ListWaiter::Shard { shard, op };
        if self.list_unreadable(parts, waiter).is_err() {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A list with room for 16 ranges.
    fn list(blocks: &[Range<u64>]) -> Unreadable {
        let mut list = Unreadable {
            most: 16,
            ..Unreadable::default()
        };
        list.lost.blocks.extend(blocks.iter().cloned());
        list
    }

    fn write(op: u64) -> Leaver {
        let shard = ShardNo(0);
        Leaver::Write { shard, op }
    }

    impl Unreadable {
        fn comes(&mut self, blocks: Range<u64>) -> bool {
            let mut lost = self.lost.clone();
            lost.blocks.insert(blocks);
            let fits = self.has_room(&lost, false).is_ok();
            if fits {
                self.lost = lost;
            }
            self.check(0).expect("what was promised has room");
            fits
        }

        fn leaves(&mut self, leaver: Leaver) {
            let blocks = self.leaving.remove(&leaver).expect("room was kept");
            blocks
                .iter()
                .for_each(|range| self.lost.blocks.remove(range.clone()));
            self.check(0).expect("what was promised has room");
        }
    }

    /// The region's blocks were the end of a range, for which no room was kept. Then the block
    /// behind them was listed, too, and writes took the room that was left: the region's blocks
    /// stayed on the list, and its zeros answered an error later.
    #[test]
    fn a_region_whose_neighbour_is_listed_meanwhile_leaves_the_list_all_the_same() {
        let wide = (1..12).map(|n| 100 * n..100 * n + 3);
        let mut list = list(&wide.chain(std::iter::once(10..20)).collect::<Vec<_>>());
        list.lost.blocks.insert(8..10);
        let region = Leaver::Region(RegionNo(1));
        assert!(list.reserve(region, std::iter::once(10..20)).is_ok());
        assert!(list.comes(20..21));
        let middle = |n: u64| std::iter::once(100 * n + 1..100 * n + 2);
        let taken = (1..12).filter(|&n| list.reserve(write(n), middle(n)).is_ok());
        assert_eq!(taken.collect::<Vec<_>>(), [1, 2, 3]);
        (1..4).for_each(|n| list.leaves(write(n)));
        list.leaves(region);
        assert_eq!(list.lost.blocks.len(), 16);
    }

    /// What ends without a change, in whatever order the others leave, hurts no promise.
    #[test]
    fn promises_hold_in_any_order() {
        let mut state = 1_u64;
        let mut below = |end: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % end
        };
        let (mut left, mut refused) = (0, 0);
        for _ in 0..400 {
            let mut list = list(&(0..13).map(|n| 6 * n..6 * n + 5).collect::<Vec<_>>());
            for _ in 0..60 {
                let (at, op) = (below(80), below(6));
                match below(4) {
                    0 => {
                        list.comes(at..at + 1 + below(4));
                    }
                    1 => {
                        let places = [at..at + 1 + below(3), at + 20..at + 21];
                        let others = list
                            .leaving
                            .iter()
                            .filter(|(leaver, _)| **leaver != write(op));
                        let mut others = others.flat_map(|(_, blocks)| blocks.iter());
                        if !others
                            .any(|r| places.iter().any(|p| p.start < r.end && r.start < p.end))
                        {
                            let kept = list.reserve(write(op), places.into_iter());
                            refused += u32::from(kept.is_err());
                        }
                    }
                    2 => {
                        list.leaving.remove(&write(op));
                    }
                    _ if list.leaving.contains_key(&write(op)) => {
                        list.leaves(write(op));
                        left += 1;
                    }
                    _ => {}
                }
            }
        }
        assert!(left > 1000 && refused > 10, "{left} {refused}");
    }
}
