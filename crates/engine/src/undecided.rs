//! Regions whose strips were built from others that did not agree: nobody can say which are right, so
//! nothing there is named or repaired by what the others say (RFD 18).
//!
//! The region map has a flag for each. A program that knows nothing of the flag does not believe a page
//! that has one, and would go by the version before; so superblocks say that there may be such pages.
//!
//! Invariants:
//! * A page with the flag is written only when superblocks that say so are durable on every member.
//! * They say so until a page without any such region is durable on every live member.
//!
//! Deliberately absent: how it is found that strips do not agree (`check`, `scrub`).

use strake_format::{RegionState, ScrubMode};

use crate::array::{Array, Stage};
use crate::event::StepOutcome;
use crate::map::{Map, Page};
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
        let is = |r: &crate::map::Region| r.undecided && r.disk != RegionState::Unwritten;
        let places = (0..).zip(regions).filter(|(_, region)| is(region));
        places.map(|(at, _)| at).collect()
    }

    /// The pages that tell which regions are undecided are durable.
    pub(crate) fn undecided_told(&self) -> bool {
        let told = |page: &Page| match page.sequence.cmp(&page.undecided_at) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => page.pending == 0,
            std::cmp::Ordering::Greater => true,
        };
        self.pages.iter().all(told)
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
                self.sb.undecided = false;
                self.touch();
            }
        }
    }

    /// A rebuild computed strips from others that do not agree, and nobody can be named: durable before
    /// any progress behind this is.
    pub(crate) fn leave_undecided(&mut self, region: RegionNo) {
        if self.map.state(region) == RegionState::Unwritten || self.map.is_undecided(region) {
            return;
        }
        self.map.set_undecided(region, true);
        if !std::mem::replace(&mut self.sb.undecided, true) {
            self.touch();
        }
        self.write_pages();
    }

    /// The region is undecided no more.
    pub(crate) fn decide(&mut self, region: RegionNo) {
        self.map.set_undecided(region, false);
        self.write_pages();
    }

    /// In a region that is undecided nothing is repaired: what was built there would be the witness.
    pub(crate) fn scrub_mode_in(&self, region: RegionNo, mode: ScrubMode) -> ScrubMode {
        match mode == ScrubMode::Repair && self.map.is_undecided(region) {
            true => ScrubMode::Check,
            false => mode,
        }
    }
}

/// Nothing was amiss in the stripes of a step, and none was passed over.
pub(crate) fn agrees(outcome: &StepOutcome) -> bool {
    outcome.inconsistent + outcome.unreadable + outcome.skipped == 0
}
