//! Members that were away rejoin by a partial rebuild: of the regions that were written meanwhile.
//!
//! A region is *stale* (on the members: the flag `behind`) if it was, or may have been, written
//! while some slot was not in sync. The map has the flag beside the region's state. A member that
//! comes back is rebuilt in stale regions, and holds the right data in all others.
//!
//! Protocol:
//! 1. A member leaves: every region that is neither Clean nor Unwritten is stale from then on. The
//!    array writes nothing for that: on the members such a region is Dirty or NeedSync, and a start
//!    that does not find the array whole takes those regions as stale.
//! 2. A region is opened while the array is not whole: the page that records Dirty also sets the
//!    flag. The page also sets it, even for a Clean region, where blocks are given up as
//!    unreadable: what an absent member holds there no longer agrees with the others.
//! 3. A member comes back ([`strake_format::returns`] decides whether it may): it becomes the
//!    slot's incoming member, `kept`. When that is durable everywhere, the array fixes the set of
//!    regions that the member lacks: the stale ones, and those that are not quiet at that moment.
//!    In all others the member is read and written at once. The rebuild covers the regions that it
//!    lacks. If the region map of a device lacks a version that the member had, the device is an
//!    older image of the member and does not rejoin (`regions::last_whole`).
//! 4. The last slot is in sync: the table that records it takes `whole_since`, and the flags are
//!    cleared only when that table is durable everywhere.
//!
//! Why a Clean region is safe although members have volatile caches: a page says Clean only after
//! every member flushed what it had answered there, and a member that fails a flush is out before a
//! page relies on it. Whatever a member loses with its power lies in regions that are not Clean,
//! and those are stale.
//!
//! Invariants:
//! * If an absent member may lack a write to a region, that region is stale, or not Clean, in the
//!   newest page on every live member.
//! * No flag is cleared before a table in which every slot is in sync is durable.
//! * The regions that an incoming member holds do not shrink while it serves: a region that becomes
//!   stale later was written on it as well.
//!
//! Deliberately absent: which devices are looked at (runtime, daemon), and when during an absence a
//! region was written: all absent members share one flag.

use std::sync::Arc;

use strake_format::*;

use crate::array::metadata::copies::Copies;
use crate::array::regions::Phase;
use crate::array::{Array, Member};
use crate::canary::{Canary, hit};
use crate::geometry::region_set::RegionSet;
use crate::proto::*;
use crate::provision::limits;
use crate::units::*;

/// Whether a member that left for this cause still holds valid data. One that failed to write or to
/// read does not: its medium must be written anew.
pub(crate) fn keeps(cause: OutCause) -> bool {
    match cause {
        // The device that was found does not count, but the member itself may still come.
        OutCause::OlderImage | OutCause::Unfit => true,
        OutCause::Emptied => hit(Canary::EmptiedKept),
        OutCause::Shrunk => false,
        OutCause::NotFound
        | OutCause::Stale
        | OutCause::Gone
        | OutCause::TimedOut
        | OutCause::Asked => true,
        OutCause::WriteError | OutCause::ReadErrors | OutCause::Replaced => false,
    }
}

/// How a member may come back.
pub(crate) fn comes_back(own: &Superblock, table: &Superblock) -> Returns {
    if hit(Canary::ApartIsAfresh) && matches!(past(own, table), Past::Other { .. }) {
        return Returns::Afresh;
    }
    let forgotten = own.epoch < table.epoch && table.edition_of(own.epoch).is_none();
    if !forgotten || !hit(Canary::ReturnsUnwitnessed) {
        return returns(own, table);
    }
    // As if its edition were the oldest that the table remembers.
    let mut table = table.clone();
    let oldest = table.editions.len() - 1;
    table.epoch = Epoch(own.epoch.0 + oldest as u64);
    table.editions[oldest] = own.editions[0];
    returns(own, &table)
}

impl Array {
    /// A member has left: what is not quiet now may miss a write on it.
    pub(crate) fn note_absence(&mut self) {
        self.freeze_whole_at();
        if hit(Canary::AbsenceNotNoted) {
            return;
        }
        for region in (0..self.geometry.regions()).map(RegionNo) {
            if !matches!(self.map.phase(region), Phase::Unwritten | Phase::Clean) {
                self.map.mark_stale(region);
            }
        }
    }

    /// The superblocks are durable: if they say that the array is whole, nothing is behind any
    /// more.
    pub(crate) fn forget_stale(&mut self) {
        if self.map.flagged() && self.table.whole() {
            self.map.clear_stale();
            self.write_pages();
        }
    }

    /// Fixes what each kept member lacks, once it is about to be published: from then on every
    /// write elsewhere reaches it, and none that did not is under way.
    pub(crate) fn fix_lacking(&mut self) {
        let kept: Vec<DeviceId> = (0..self.table.slots().len())
            .filter_map(|at| self.table.kept(at))
            .collect();
        self.lacking.retain(|device, _| kept.contains(device));
        for device in kept {
            if self.lacking.contains_key(&device) {
                continue;
            }
            let lacks = |region: RegionNo| match self.map.phase(region) {
                Phase::Unwritten => false,
                Phase::Clean => self.map.is_stale(region),
                _ => self.map.is_stale(region) || !hit(Canary::KeptTooSoon),
            };
            let set = RegionSet::of(self.geometry.regions(), lacks);
            self.lacking.insert(device, Arc::new(set));
        }
    }

    /// Is the region to be rebuilt onto this incoming member?
    pub(crate) fn lacks(&self, device: DeviceId, region: RegionNo) -> bool {
        self.lacking
            .get(&device)
            .is_none_or(|lacking| lacking.has(region))
    }

    /// Bytes of each member in regions that are behind.
    pub(crate) fn stale_bytes(&self) -> u64 {
        (0..self.geometry.regions())
            .map(RegionNo)
            .filter(|&region| self.map.phase(region) != Phase::Unwritten)
            .filter(|&region| self.map.is_stale(region) || self.map.phase(region) != Phase::Clean)
            .map(|region| self.geometry.region_rows(region))
            .map(|rows| (rows.end - rows.start) * self.geometry.strip)
            .sum()
    }

    /// A member that was away is there again.
    pub(crate) fn return_member(&mut self, new: Returning) -> Result<Changed, CommandError> {
        if self.table.has(new.device) {
            return Ok(Changed::No);
        }
        if new.emptied.is_some() && !hit(Canary::EmptiedBelieved) {
            return Err(CommandError::NotKept);
        }
        let slot = match comes_back(&new.superblock, &self.superblock()) {
            Returns::Kept(slot) => slot,
            Returns::Afresh => return Err(CommandError::NotKept),
            Returns::SplitBrain => return Err(CommandError::SplitBrain),
        };
        let lacks = lacks(&new.map, &self.map.whole_at()).next().is_some();
        if lacks && !hit(Canary::OlderMapReturns) {
            return Err(CommandError::NotKept);
        }
        let at = slot.index();
        assert!(
            self.table.slots()[at].is_empty(),
            "a slot whose member is out is empty"
        );
        // Its own may be from before the array's shape changed.
        let layout = limits::layout_on(&self.sb, &new.info)?;
        // Its own list is older than any that it gets now.
        let member = Member {
            first_copy: new.copy_to_replace,
            copies: Copies::found(&new.info, &new.superblock, new.copy_to_replace),
            heard: self.table.records()[at].known.heard,
            ..Member::new(new.info, new.superblock.member, layout)
        };
        self.table.admit(new.device, member);
        let since = self.sb.epoch.next();
        let joined = self.jobs.last_step();
        self.table.rejoin(at, new.device, joined, since);
        self.persist.stale.retain(|(s, _)| *s != slot);
        self.lose_witnesses();
        self.tell_returned(slot, new.device);
        self.membership_changed();
        self.rewrite_map();
        self.unreadable.rewrite();
        Ok(Changed::Yes)
    }

    pub(crate) fn tell_returned(&mut self, slot: Slot, device: DeviceId) {
        let behind_bytes = self.stale_bytes();
        self.out.event(EventKind::Returned {
            slot,
            device,
            behind_bytes,
        });
    }
}
