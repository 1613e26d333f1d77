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
//!
//! * A region that an administrator decides says so when parity that agrees with its data is
//!   durable on every member, and none has come or gone meanwhile: a member that was away lacks it.
//!
//! * Agreement decides a region only while it proves that the strips were written anew: not once a
//!   strip of some undecided region was built from the others, or is gone with its member.
//!
//! Deliberately absent: how it is found that strips do not agree (`shard::op::resync`,
//! `shard::op::scrub`).

use strake_format::{Epoch, RegionState, ScrubMode};

use crate::array::jobs::{Progress, Running};
use crate::array::regions::{Map, Page};
use crate::array::{Array, Stage};
use crate::canary::{self, Canary};
use crate::proto::*;
use crate::units::*;

/// Undecided regions get parity that agrees with their data, because an administrator says that
/// this is right. It ends with the array's stop: what is decided by then stays so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accept {
    progress: Progress,
    /// Next row.
    at: Row,
    /// In which the region at work was begun.
    epoch: Epoch,
    /// Stripes of it could not be read, or were passed over.
    amiss: bool,
    /// Regions that stay undecided for that.
    left: u64,
    total_bytes: u64,
}

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
                (self.sb.undecided, self.sb.witnessed) = (false, false);
                self.touch();
            }
        }
    }

    /// A rebuild computed strips from others that do not agree, and no wrong strip can be located:
    /// this is durable before any progress beyond it is.
    pub(crate) fn leave_undecided(&mut self, region: RegionNo) {
        if self.map.state(region) == RegionState::Unwritten || self.map.is_undecided(region) {
            return;
        }
        // What is built beside it, by a rebuild that began before this was known, agrees with the
        // strips that are left.
        let rebuilds = self
            .table
            .slots
            .iter()
            .filter(|slot| slot.incoming.is_some());
        let alone = rebuilds.count() <= 1;
        let first = self.map.undecided().next().is_none();
        self.sb.witnessed = alone && (first || self.sb.witnessed);
        self.map.set_undecided(region, true);
        self.tell_decision(region, None);
        if !std::mem::replace(&mut self.sb.undecided, true) {
            self.touch();
        }
        self.write_pages();
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
            self.touch();
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
    fn tell_decision(&mut self, region: RegionNo, decided: Option<Decision>) {
        let parts = self.geometry.region_parts(region);
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (offset, len) = (part.start, part.end - part.start);
            self.out.event(match decided {
                None => EventKind::Undecided { offset, len },
                Some(cause) => EventKind::Decided { offset, len, cause },
            });
        }
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

impl Array {
    /// May what lies in undecided regions be taken for right?
    pub(crate) fn may_accept(&self) -> Result<(), CommandError> {
        match (self.map.undecided().next(), self.in_order()) {
            (None, _) => Err(CommandError::NothingUndecided),
            (Some(_), false) => Err(CommandError::NotOptimal),
            (Some(_), true) => Ok(()),
        }
    }

    /// An administrator takes the data in undecided regions for right, as reads answer it.
    pub(crate) fn accept_data(&mut self) -> Result<Changed, CommandError> {
        if self.jobs.accept.is_some() {
            return Ok(Changed::No);
        }
        self.may_accept()?;
        let regions = self.map.undecided().count() as u64;
        self.jobs.accept = Some(Accept {
            progress: Progress::begun(self.out.now()),
            at: Row(0),
            epoch: self.sb.epoch,
            amiss: false,
            left: 0,
            total_bytes: regions * self.geometry.region_rows * self.geometry.strip,
        });
        self.out.event(EventKind::JobStarted {
            kind: JobKind::Accept,
            from_bytes: 0,
        });
        Ok(Changed::Yes)
    }

    pub(crate) fn stop_accepting(&mut self, cause: StopCause) {
        self.jobs.accept = None;
        let kind = JobKind::Accept;
        self.out.event(EventKind::JobStopped { kind, cause });
    }

    /// True if it is at work.
    pub(crate) fn drive_accept(&mut self) -> bool {
        let Some(job) = self.jobs.accept else {
            return false;
        };
        if job.epoch != self.sb.epoch || !self.in_order() {
            self.stop_accepting(StopCause::Membership);
            return false;
        }
        let rows = |region: RegionNo| self.geometry.region_rows(region);
        let next = self.map.undecided().map(rows);
        let next = next
            .filter(|rows| rows.end > job.at.0)
            .min_by_key(|rows| rows.start);
        if let Some(rows) = next {
            let first = Row(rows.start.max(job.at.0));
            let end = self.step_end(StepKind::Accept, first);
            self.step(StepKind::Accept, first, end);
            return true;
        }
        if !self.map.undecided_told() {
            return true;
        }
        if job.left > 0 {
            self.stop_accepting(StopCause::Unreadable);
            return false;
        }
        self.jobs.accept = None;
        let inconsistent = job.progress.inconsistent;
        self.out.event(EventKind::JobFinished {
            kind: JobKind::Accept,
            inconsistent,
            repaired: inconsistent,
        });
        false
    }

    /// A step is over: all that it wrote is durable.
    pub(crate) fn accept_stepped(&mut self, done: &Running, bytes: u64) {
        let region = self.geometry.region(done.first);
        let rows = self.geometry.region_rows(region);
        let (epoch, outcome) = (self.sb.epoch, done.outcome);
        let Some(job) = &mut self.jobs.accept else {
            return;
        };
        job.progress.stepped(bytes, outcome.inconsistent);
        job.at = done.end;
        job.amiss &= done.first.0 > rows.start;
        job.amiss |= outcome.unreadable + outcome.skipped > 0;
        let (amiss, stayed) = (job.amiss, job.epoch == epoch);
        if done.end.0 < rows.end || !stayed || !self.map.is_undecided(region) {
            return;
        }
        if amiss {
            self.jobs.accept.as_mut().expect("it is at work").left += 1;
            return;
        }
        self.decide(region, Decision::Accepted);
        self.write_pages();
    }

    pub(crate) fn accept_status(&self) -> Option<JobStatus> {
        let job = self.jobs.accept?;
        let (held_back, foreground_p99_ns) = self.pace_of(StepKind::Accept);
        Some(JobStatus {
            kind: JobKind::Accept,
            slot: None,
            partial: false,
            done_bytes: job.progress.worked().min(job.total_bytes),
            total_bytes: job.total_bytes,
            rate_bytes_per_s: job.progress.rate(self.out.now()),
            paused: false,
            held_back,
            foreground_p99_ns,
            inconsistent: job.progress.inconsistent,
            repaired: job.progress.inconsistent,
        })
    }
}

/// Nothing was amiss in the stripes of a step, and none was passed over.
pub(crate) fn agrees(outcome: &StepOutcome) -> bool {
    outcome.inconsistent + outcome.unreadable + outcome.skipped == 0
}
