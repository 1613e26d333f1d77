//! The scrub: reads every stripe, says what does not agree, and repairs it if that is asked for.
//!
//! Invariants:
//! * What it has found and how far it has come is durable, and goes on after a restart.
//! * It repairs nothing while a member is doubted, and goes after the resync also then: otherwise
//!   it would end without a word of regions that wait.
//! * A region is decided by agreement only while that proves something (`regions::undecided`).

use strake_format::*;

use crate::array::Array;
use crate::array::jobs::{CHECKPOINTS, Progress, Running};
use crate::geometry::StripPart;
use crate::proto::*;
use crate::units::*;

/// Of the findings of a scrub or a resync, so many are told as events; all are counted.
pub(super) const FINDINGS_TOLD: u64 = 1000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Scrub {
    mode: ScrubMode,
    paused: bool,
    progress: Progress,
    pub(super) at: Row,
    /// Row of the last durable progress.
    pub(super) noted: Row,
    /// The last step before it began: what that says is not its finding.
    after: u64,
    found: ScrubCounts,
    /// Events told so far.
    pub(super) told: u64,
    /// Nothing was amiss in the region at work, from its first row on.
    agrees: bool,
}

impl Array {
    pub(crate) fn start_scrub(&mut self, mode: ScrubMode) -> Changed {
        self.compare_again();
        if let Some(scrub) = self.jobs.scrub.as_mut().filter(|scrub| scrub.mode == mode) {
            if !std::mem::take(&mut scrub.paused) {
                return Changed::No;
            }
            // The pause does not count as time in which it worked.
            (scrub.progress.started, scrub.progress.worked) = (self.out.now(), 0);
            let from_bytes = scrub.at.0 * self.geometry.strip;
            self.tell_scrub_starts(from_bytes);
            self.persist.touch();
            return Changed::Yes;
        }
        self.stop_scrub();
        self.take_up_scrub(&ScrubRecord {
            mode,
            paused: false,
            done_bytes: 0,
            found: ScrubCounts::default(),
        });
        self.sb.scrub_begun_unix_s = self.out.unix_s();
        self.tell_scrub_starts(0);
        self.persist.touch();
        Changed::Yes
    }

    fn tell_scrub_starts(&mut self, from_bytes: u64) {
        self.begins(JobKind::Scrub, from_bytes);
    }

    pub(crate) fn pause_scrub(&mut self) -> Changed {
        let at_work = self.jobs.scrub.as_mut().filter(|scrub| !scrub.paused);
        let Some(scrub) = at_work else {
            return Changed::No;
        };
        scrub.paused = true;
        self.tell_scrub_stops(StopCause::Asked);
        Changed::Yes
    }

    pub(crate) fn stop_scrub(&mut self) -> Changed {
        match self.jobs.scrub.take() {
            None => return Changed::No,
            // That it stopped was told when it was paused.
            Some(scrub) if scrub.paused => self.persist.touch(),
            Some(_) => self.tell_scrub_stops(StopCause::Asked),
        }
        Changed::Yes
    }

    fn tell_scrub_stops(&mut self, cause: StopCause) {
        self.out.event(EventKind::JobStopped {
            kind: JobKind::Scrub,
            cause,
        });
        self.persist.touch();
    }

    /// At the start: the scrub that was not over goes on.
    pub(crate) fn resume_scrub(&mut self) {
        let Some(record) = self.sb.scrub else { return };
        self.take_up_scrub(&record);
        if !record.paused {
            self.tell_scrub_starts(record.done_bytes);
        }
    }

    fn take_up_scrub(&mut self, record: &ScrubRecord) {
        let at = Row(record.done_bytes / self.geometry.strip);
        let progress = Progress::begun(self.out.now());
        self.jobs.scrub = Some(Scrub {
            mode: record.mode,
            paused: record.paused,
            progress,
            at,
            noted: at,
            after: self.jobs.step,
            found: record.found,
            told: 0,
            agrees: false,
        });
    }

    /// How far the scrub has come, into the table. What it repaired was written durably.
    pub(crate) fn note_scrub(&mut self) {
        let strip = self.geometry.strip;
        self.sb.scrub = self.jobs.scrub.map(|scrub| ScrubRecord {
            mode: scrub.mode,
            paused: scrub.paused,
            done_bytes: scrub.at.0 * strip,
            found: scrub.found,
        });
    }

    /// A member is doubted, and the scrub would compute from it; or the resync waits, before which
    /// a scrub has nothing to say of its regions.
    fn scrub_waits(&self, mode: ScrubMode) -> bool {
        let repairs = mode == ScrubMode::Repair;
        self.computes_nothing() && (repairs || self.resync_due().1.is_some())
    }

    pub(super) fn drive_scrub(&mut self) {
        let at_work = self.jobs.scrub.filter(|scrub| !scrub.paused);
        let Some(scrub) = at_work else { return };
        let from_bytes = scrub.at.0 * self.geometry.strip;
        let held = self.scrub_waits(scrub.mode);
        if self.held_by_doubts(held, JobKind::Scrub, from_bytes) {
            return;
        }
        let mut row = scrub.at;
        while row.0 < self.geometry.rows {
            let region = self.geometry.region(row);
            // Parity that waits for its resync (or for the discard of its region) is not wrong: a
            // scrub has nothing to say about it.
            let waits = self.map.phase(region).untrusted()
                && (!self.map.is_undecided(region) || self.is_to_be_compared(region));
            if self.map.state(region) != RegionState::Unwritten && !waits {
                break;
            }
            row = Row(self.geometry.region_rows(region).end);
        }
        if row.0 >= self.geometry.rows {
            return self.end_scrub(&scrub);
        }
        let kind = StepKind::Scrub(self.scrub_mode_in(self.geometry.region(row), scrub.mode));
        let end = self.step_end(kind, row);
        self.step(kind, row, end);
    }

    /// A region in which a scrub finds that all strips agree is undecided no more: what did not
    /// agree was written anew. Where strips were built meanwhile they agree in any case, and only
    /// an administrator decides.
    fn note_agreement(&mut self, done: &Running) {
        let region = self.geometry.region(done.first);
        let rows = self.geometry.region_rows(region);
        let whole = self.in_place() && !self.computes_nothing();
        let Some(scrub) = self.jobs.scrub.as_mut().filter(|s| s.after < done.step) else {
            return;
        };
        scrub.agrees =
            agrees(&done.outcome) && whole && (scrub.agrees || done.first.0 == rows.start);
        let proves = scrub.agrees && self.sb.witnessed;
        if proves && done.end.0 == rows.end && self.map.is_undecided(region) {
            self.decide(region, Decision::Agreed);
            self.region_synced(region);
            self.write_pages();
        }
    }

    fn end_scrub(&mut self, scrub: &Scrub) {
        self.jobs.scrub = None;
        self.sb.last_scrub = Some(ScrubResult {
            mode: scrub.mode,
            begun_unix_s: self.sb.scrub_begun_unix_s,
            ended_unix_s: self.out.unix_s(),
            found: scrub.found,
        });
        self.out.event(EventKind::JobFinished {
            kind: JobKind::Scrub,
            inconsistent: scrub.found.inconsistent,
            repaired: scrub.found.repaired(scrub.mode),
        });
        self.persist.touch();
    }

    /// One more finding of the job at work: told, unless there are too many of them.
    fn tell_finding(&mut self, kind: EventKind) {
        if self.may_tell() {
            self.out.event(kind);
        }
    }

    /// Where a byte of a member lies among what it holds of the array.
    fn within_data(&self, device: DeviceId, offset: u64) -> Option<u64> {
        let member = self.table.get(device)?;
        offset.checked_sub(member.layout.data_offset)
    }

    /// A shard wrote a part of a member's strip anew.
    pub(crate) fn strip_repaired(&mut self, device: DeviceId, offset: u64, len: u64) {
        if let Some(within) = self.within_data(device, offset) {
            let row = Row(within / self.geometry.strip);
            self.strip_was_built(self.geometry.region(row));
        }
        if let Some(slot) = self.table.slot_of(device) {
            self.out.event(EventKind::Repaired {
                slot,
                device,
                offset,
                len,
            });
        }
    }

    /// A scrub found a member's strip wrong.
    pub(crate) fn mismatch_found(
        &mut self,
        device: DeviceId,
        offset: u64,
        len: u64,
        repaired: bool,
    ) {
        let Some(slot) = self.table.slot_of(device) else {
            return;
        };
        let within = self.within_data(device, offset);
        let row = Row(within.unwrap_or(0) / self.geometry.strip);
        let region = self.geometry.region(row);
        if self.map.is_undecided(region) && !self.nothing_was_built(region) {
            // A strip that was built there would be the witness: no member is named.
            let group = slot.0 as usize / self.geometry.width;
            let stripe = self.geometry.stripe(group as u64, row);
            return self.inconsistent_found(stripe, within.unwrap_or(0) % self.geometry.strip, len);
        }
        if let Some(member) = self.table.get_mut(device) {
            member.counts.mismatches += 1;
        }
        self.tell_finding(EventKind::Mismatch {
            slot,
            device,
            offset,
            len,
            repaired,
        });
    }

    /// A scrub found strips that do not agree, and cannot locate the corrupt one.
    pub(crate) fn inconsistent_found(&mut self, stripe: StripeNo, from: u64, len: u64) {
        let (column, lo, hi) = (0, 0, self.geometry.strip);
        let part = StripPart {
            stripe,
            column,
            lo,
            hi,
        };
        let offset = self.geometry.blocks(&part).start * self.geometry.block;
        self.tell_finding(EventKind::Inconsistent {
            stripe,
            offset,
            from,
            len,
        });
    }

    /// A step of a scrub is over, perhaps of one that has ended since.
    pub(super) fn scrub_stepped(&mut self, done: &Running, bytes: u64) {
        self.note_agreement(done);
        let scrub = self.jobs.scrub.as_mut();
        let Some(scrub) = scrub.filter(|scrub| scrub.after < done.step) else {
            return;
        };
        scrub.at = done.end;
        scrub.progress.worked += bytes;
        let located = match done.kind == StepKind::Scrub(scrub.mode) {
            true => done.outcome.located,
            false => 0,
        };
        let found = &mut scrub.found;
        for (count, more) in [
            (&mut found.inconsistent, done.outcome.inconsistent),
            (&mut found.located, located),
            (&mut found.unreadable, done.outcome.unreadable),
        ] {
            *count = count.saturating_add(more);
        }
        let halts = scrub.mode == ScrubMode::Halt && done.outcome.inconsistent > 0;
        let at_work = !scrub.paused;
        scrub.paused |= halts;
        let due = (scrub.at.0 - scrub.noted.0).saturating_mul(CHECKPOINTS);
        if halts && at_work {
            self.tell_scrub_stops(StopCause::Inconsistent);
        } else if due >= self.geometry.rows {
            scrub.noted = scrub.at;
            self.persist.touch();
        }
    }

    pub(super) fn scrub_status(&self) -> Option<JobStatus> {
        let job = self.jobs.scrub?;
        let (held_back, foreground_p99_ns) = self.pace_of(StepKind::Scrub(job.mode));
        Some(JobStatus {
            kind: JobKind::Scrub,
            slot: None,
            partial: false,
            done_bytes: self.written_to(job.at),
            total_bytes: self.written_to(Row(self.geometry.rows)),
            rate_bytes_per_s: job.progress.rate(self.out.now()),
            paused: job.paused || self.scrub_waits(job.mode),
            held_back,
            foreground_p99_ns,
            inconsistent: job.found.inconsistent,
            repaired: job.found.repaired(job.mode),
        })
    }
}

/// Nothing was amiss in the stripes of a step, each was compared as a whole, and none was passed
/// over.
fn agrees(outcome: &StepOutcome) -> bool {
    let left_out = outcome.partial + outcome.unreadable + outcome.skipped;
    outcome.inconsistent + left_out == 0
}
