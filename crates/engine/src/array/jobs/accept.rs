//! Undecided regions get parity that agrees with their data, because an administrator takes the
//! data for right (`regions::undecided`).
//!
//! Invariant: a region that an administrator decides says so when parity that agrees with its data
//! is durable on every member, and none has come or gone meanwhile: a member that was away lacks
//! it. None of them is doubted: what it holds is not what a user wrote.

use strake_format::Epoch;

use crate::array::Array;
use crate::array::jobs::{Progress, Running};
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
    /// Stripes of it could not be read, or not as a whole, or were passed over.
    amiss: bool,
    /// Regions that stay undecided for that.
    left: u64,
    total_bytes: u64,
}

impl Array {
    /// May what lies in undecided regions be taken for right?
    pub(crate) fn may_accept(&self) -> Result<(), CommandError> {
        let believed = !self.computes_nothing();
        let ready = self.in_place() && believed && self.waits_for_decision();
        match (self.map.undecided().next(), ready) {
            (None, _) => Err(CommandError::NothingUndecided),
            (Some(_), false) => Err(CommandError::NotOptimal),
            (Some(_), true) => Ok(()),
        }
    }

    /// An administrator takes the data in undecided regions for right, as reads answer it.
    pub(crate) fn accept_data(&mut self) -> Changed {
        if self.jobs.accept.is_some() {
            return Changed::No;
        }
        let regions = self.map.undecided().count() as u64;
        self.jobs.accept = Some(Accept {
            progress: Progress::begun(self.out.now()),
            at: Row(0),
            epoch: self.sb.epoch,
            amiss: false,
            left: 0,
            total_bytes: regions * self.geometry.region_rows * self.geometry.strip,
        });
        self.begins(JobKind::Accept, 0);
        Changed::Yes
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
        if job.epoch != self.sb.epoch || !self.in_place() || !self.waits_for_decision() {
            self.stop_accepting(StopCause::Membership);
            return false;
        }
        if self.waits_for_doubts(JobKind::Accept, job.progress.worked()) {
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
        let doubts = self.computes_nothing();
        let Some(job) = &mut self.jobs.accept else {
            return;
        };
        job.progress.stepped(bytes, outcome.inconsistent);
        job.at = done.end;
        if doubts {
            // What was read meanwhile may be what no user wrote: it is gone through again.
            job.at = Row(rows.start);
            return;
        }
        job.amiss &= done.first.0 > rows.start;
        job.amiss |= outcome.unreadable + outcome.partial + outcome.skipped > 0;
        let (amiss, stayed) = (job.amiss, job.epoch == epoch);
        if done.end.0 < rows.end || !stayed || !self.map.is_undecided(region) {
            return;
        }
        if amiss {
            self.jobs.accept.as_mut().expect("it is at work").left += 1;
            return;
        }
        self.decide(region, Decision::Accepted);
        self.region_synced(region);
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
            paused: self.computes_nothing(),
            held_back,
            foreground_p99_ns,
            inconsistent: job.progress.inconsistent,
            repaired: job.progress.inconsistent,
        })
    }
}
