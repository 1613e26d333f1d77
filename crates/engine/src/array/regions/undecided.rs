//! Undecided regions: strips there were built from others that did not agree. It is unknown which
//! are right, so nothing there is named corrupt or repaired from the others (RFD 18).
//!
//! The region map has a flag for each. A program that knows nothing of the flag does not believe a
//! page that has one, and would go by the version before; so superblocks say that there may be such
//! pages.
//!
//! Invariants:
//! * A page with the flag is written only when superblocks that say so are durable on every member.
//! * They say so until a page without any such region is durable on every live member.
//! * Agreement decides a region only while it proves that the strips were written anew: not once a
//!   strip of some undecided region was built from the others, or is gone with its member.
//!
//! Deliberately absent: how it is found that strips do not agree (`shard::op::resync`,
//! `shard::op::scrub`).

use strake_format::{Epoch, RegionState, ScrubMode};

use crate::array::regions::{Map, Phase};
use crate::array::{Array, Stage};
use crate::canary::{self, Canary};
use crate::proto::*;
use crate::units::*;

impl Map {
    /// Strips of the region were built from others that did not agree.
    pub(crate) fn is_undecided(&self, region: RegionNo) -> bool {
        let entry = &self.regions[region.0 as usize];
        entry.undecided && entry.disk != RegionState::Unwritten
    }

    /// Whether it is so; its page is to be written if that is new.
    pub(crate) fn set_undecided(&mut self, region: RegionNo, undecided: bool) {
        let page = self.page_of(region);
        let before = std::mem::replace(&mut self.region(region).undecided, undecided);
        if before != undecided {
            let page = &mut self.pages[page];
            (page.dirty, page.undecided_at) = (true, page.sequence + 1);
        }
    }

    /// The regions for which it is so.
    pub(crate) fn undecided(&self) -> impl Iterator<Item = RegionNo> {
        let all = (0..self.regions.len() as u32).map(RegionNo);
        all.filter(|&region| self.is_undecided(region))
    }

    /// The same, of those that a page covers: their places in it.
    pub(crate) fn undecided_in(&self, page: usize) -> Vec<u16> {
        let first = page * self.page_regions;
        let regions = self.regions.iter().skip(first).take(self.page_regions);
        let is =
            |r: &crate::array::regions::Region| r.undecided && r.disk != RegionState::Unwritten;
        let places = (0..).zip(regions).filter(|(_, region)| is(region));
        places.map(|(at, _)| at).collect()
    }

    /// An operation waits until these pages are durable.
    fn await_undecided(&mut self, shard: ShardNo, op: u64) {
        self.awaiting_undecided.push((shard, op));
    }

    /// The operations that wait for that; they wait no longer.
    fn undecided_awaited(&mut self) -> Vec<(ShardNo, u64)> {
        std::mem::take(&mut self.awaiting_undecided)
    }

    /// The pages that tell which regions are undecided are durable.
    pub(crate) fn undecided_told(&self) -> bool {
        self.pages
            .iter()
            .all(|page| page.is_durable(page.undecided_at))
    }
}

impl Array {
    /// A page waits until superblocks say that there may be undecided regions.
    pub(crate) fn holds_undecided(&self, places: &[u16]) -> bool {
        !places.is_empty() && !self.persist.says_undecided()
    }

    /// What superblocks are to say of undecided regions follows what pages say.
    pub(crate) fn follow_undecided(&mut self) {
        let quiet = self.stage == Stage::Serving && self.reshape.is_none();
        if self.sb.undecided && quiet && self.map.undecided_told() {
            let any = self.map.undecided().next().is_some();
            if !any {
                (self.sb.undecided, self.sb.witnessed) = (false, false);
                self.persist.touch();
            }
        }
    }

    /// Strips are computed from others that do not agree, and no wrong strip can be located: this
    /// is durable before what is computed is written, and before any progress of a rebuild beyond
    /// it.
    pub(crate) fn leave_undecided(&mut self, region: RegionNo) {
        if self.map.state(region) == RegionState::Unwritten || self.map.is_undecided(region) {
            return;
        }
        // What is built beside it, by a rebuild that began before this was known, agrees with the
        // strips that are left.
        let rebuilds = self
            .table
            .slots()
            .iter()
            .filter(|slot| slot.incoming().is_some());
        let alone = rebuilds.count() <= 1;
        let first = self.map.undecided().next().is_none();
        self.sb.witnessed = alone && (first || self.sb.witnessed);
        self.map.set_undecided(region, true);
        if self.map.phase(region) == Phase::NeedSync {
            self.enter(region, Phase::NeedSync);
        }
        self.tell_decision(region, None);
        if !std::mem::replace(&mut self.sb.undecided, true) {
            self.persist.touch();
        }
        self.write_pages();
    }

    /// A shard's operation is about to build a part of a strip from others that do not agree; it
    /// goes on when that is durable.
    pub(crate) fn shard_undecided(&mut self, shard: ShardNo, op: u64, stripe: StripeNo) {
        let (_, row) = self.geometry.row(stripe);
        self.leave_undecided(self.geometry.region(row));
        self.map.await_undecided(shard, op);
    }

    /// Operations that wait for undecided regions to be durable, and need not any more.
    pub(crate) fn undecided_answered(&mut self) -> Vec<(ShardNo, u64)> {
        if self.stage == Stage::Failed {
            // The view that says so ends the operations.
            self.map.undecided_awaited();
        }
        match self.map.undecided_told() {
            true => self.map.undecided_awaited(),
            false => Vec::new(),
        }
    }

    /// Strips are built, or go: those of an undecided region that did not agree with the others may
    /// be among them, and what is built agrees with what is left.
    pub(crate) fn lose_witnesses(&mut self) {
        let any = self.map.undecided().next().is_some() || self.sb.undecided;
        if any && !canary::hit(Canary::AgreementDecides) {
            self.sb.witnessed = false;
        }
    }

    /// A strip, or a part of one, was computed from the others and written.
    pub(crate) fn strip_was_built(&mut self, region: RegionNo) {
        if self.map.is_undecided(region) && self.sb.witnessed {
            self.lose_witnesses();
            self.persist.touch();
        }
    }

    /// The region is undecided no more, and its page is to say so.
    pub(crate) fn decide(&mut self, region: RegionNo, decision: Decision) {
        if self.map.is_undecided(region) {
            self.tell_decision(region, Some(decision));
        }
        self.map.set_undecided(region, false);
    }

    /// An event for what of the array lies in the region.
    pub(crate) fn tell_decision(&mut self, region: RegionNo, decided: Option<Decision>) {
        let built = !self.map.phase(region).untrusted();
        let parts = self.geometry.region_parts(region);
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (offset, len) = (part.start, part.end - part.start);
            self.out.event(match decided {
                None => EventKind::Undecided { offset, len, built },
                Some(cause) => EventKind::Decided { offset, len, cause },
            });
        }
    }

    /// All strips of the region are as they were found when the array was made again: what does not
    /// agree with the others may be named.
    pub(crate) fn nothing_was_built(&self, region: RegionNo) -> bool {
        // With no change of the members no strip was rebuilt; sectors that were are not witnessed.
        let as_found = self.sb.witnessed && self.sb.epoch == Epoch(1);
        as_found && self.map.phase(region).untrusted()
    }

    /// Copies of a mirror may differ somewhere, and it is not decided which is right.
    pub(crate) fn copies_differ(&self) -> bool {
        let untrusted = |region| self.map.phase(region).untrusted();
        self.geometry.mirrored() && self.map.undecided().any(untrusted)
    }

    /// In a region that is undecided nothing is repaired: what was built there would be the
    /// witness.
    pub(crate) fn scrub_mode_in(&self, region: RegionNo, mode: ScrubMode) -> ScrubMode {
        match mode == ScrubMode::Repair && self.map.is_undecided(region) {
            true => ScrubMode::Check,
            false => mode,
        }
    }
}
