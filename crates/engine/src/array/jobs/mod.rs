//! Background jobs: resync, rebuild, accept, init, scrub; one step at a time, in that order of
//! precedence. Without requests a rebuild begins its next step while shards work on the one before,
//! so that members always have something to do.
//!
//! Invariants:
//! * A resync goes before a rebuild: nothing is computed from parity that is not trusted.
//! * Steps count in the order in which they began: rows are rebuilt when all before them are.
//! * Regions never written are passed over. One that is being written for the first time is waited
//!   for.
//! * No job computes anything from a member that is doubted (`metadata::copies`), which may hold
//!   what no user wrote: a resync, a rebuild, what is accepted and a scrub that repairs wait, and
//!   say so. Nor does one decide by a step that was at work when the doubt arose.
//!
//! How much of the members' time a step takes, and the pause after it, is decided by `throttle`.

mod accept;
pub(crate) mod checkpoint;
mod scrub;
pub(crate) mod throttle;
pub(crate) mod zeroing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use strake_format::*;

use crate::array::jobs::accept::Accept;
use crate::array::jobs::checkpoint::Checkpoint;
use crate::array::jobs::scrub::{FINDINGS_TOLD, Scrub};
use crate::array::jobs::throttle::{Pace, Rules, depth_max};
use crate::array::metadata::superblocks::SuperblockWaiter;
use crate::array::regions::Phase;
use crate::array::{Array, SlotUse, Stage};
use crate::canary::{self, Canary};
use crate::proto::*;
use crate::stats::histogram::Histogram;
use crate::units::*;

/// A rebuild's progress is made durable this many times.
const CHECKPOINTS: u64 = 32;
/// Steps of a rebuild at work at once, without requests.
const STEPS_ALONE: usize = 2;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    step: u64,
    /// Steps at work, or over before those that began before them; only rebuilds have several.
    running: VecDeque<Running>,
    next_at: Option<Time>,
    pace: Pace,
    /// The administrator stopped the rebuild.
    pub(crate) paused: bool,
    /// Stripes could not be computed; tried again when the membership changes.
    pub(crate) blocked: bool,
    /// The list of unreadable blocks had no room.
    list_full: bool,
    /// Jobs that wait because a member is doubted, and said so.
    waiting: BTreeSet<JobKind>,
    pub(crate) rebuild: Option<Progress>,
    resync: Option<Resync>,
    pub(crate) accept: Option<Accept>,
    scrub: Option<Scrub>,
    pub(crate) checkpoint: Option<Checkpoint>,
    /// Row of the last durable progress of a rebuild.
    pub(crate) checkpointed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    started: Time,
    /// Bytes of member space worked on since then.
    worked: u64,
    pub(crate) inconsistent: u64,
}

impl Progress {
    pub(crate) fn begun(started: Time) -> Progress {
        Progress {
            started,
            ..Progress::default()
        }
    }

    pub(crate) fn stepped(&mut self, bytes: u64, inconsistent: u64) {
        self.worked += bytes;
        self.inconsistent += inconsistent;
    }

    pub(crate) fn worked(&self) -> u64 {
        self.worked
    }

    /// Bytes per second.
    pub(crate) fn rate(&self, now: Time) -> u64 {
        let ns = u128::from(now.since(self.started).max(1));
        (u128::from(self.worked) * 1_000_000_000 / ns) as u64
    }
}

#[derive(Clone, Debug, Default)]
struct Resync {
    progress: Progress,
    /// Stripes of which parity was computed anew.
    mended: u64,
    at: Row,
    /// Regions that could not be synced.
    stuck: BTreeSet<RegionNo>,
    /// Undecided regions that it has gone through, and that stay undecided.
    undecided: BTreeSet<RegionNo>,
    /// It was told that it does not go on with these, and not yet that it goes on after all.
    halted: bool,
    /// In which the region at work was begun, and whether all members were in place then.
    epoch: Epoch,
    whole: bool,
    /// Stripes of the region at work that do not agree, and are left so.
    amiss: u64,
    unreadable: u64,
    /// Bytes of each region that it has gone through, and stripes in them that do not agree and are
    /// left so: where it goes through a region again, these count no more.
    passes: BTreeMap<RegionNo, (u64, u64)>,
    total: u64,
    /// Events told of what does not agree.
    told: u64,
}

impl Resync {
    /// Bytes of each member that it has gone through.
    fn done(&self) -> u64 {
        let passed = self.passes.values().map(|(bytes, _)| bytes);
        passed.sum::<u64>().min(self.total)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    step: u64,
    kind: StepKind,
    pub(crate) first: Row,
    pub(crate) end: Row,
    waits: u16,
    pub(crate) outcome: StepOutcome,
    started: Time,
}

impl Jobs {
    pub(crate) fn last_step(&self) -> u64 {
        self.step
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.next_at
    }

    /// The settings changed: what was decided by the old ones does not count any more.
    pub(crate) fn end_pause(&mut self) {
        self.next_at = None;
    }

    /// Bytes of each member that a piece of work is to cover now.
    pub(crate) fn piece_bytes(&self) -> u64 {
        self.pace.step_bytes()
    }

    /// Steps are at work.
    pub(crate) fn works(&self) -> bool {
        !self.running.is_empty()
    }

    pub(crate) fn busy(&self) -> bool {
        self.works() || self.checkpoint.is_some()
    }

    /// The list of unreadable blocks had no room.
    pub(crate) fn note_list_full(&mut self) {
        self.list_full = true;
    }

    /// Membership changed: the resync retries regions that were blocked.
    pub(crate) fn retry_blocked(&mut self) {
        self.blocked = false;
        if let Some(job) = &mut self.resync {
            job.stuck.clear();
        }
    }
}

impl Array {
    pub(crate) fn drive_jobs(&mut self) {
        // A pause that is over must not stay as a deadline while something else is waited for:
        // whatever ends that comes by here again.
        self.jobs.next_at = self.jobs.next_at.filter(|&at| at > self.out.now());
        self.hurry_init();
        let paused = self.jobs.next_at.is_some();
        let joins = (self.jobs.checkpoint.as_ref()).is_some_and(Checkpoint::joins);
        let waits = self.persist.view_due || joins || self.reshape.is_some();
        if self.stage != Stage::Serving || waits || paused {
            return;
        }
        if self.jobs.works() {
            return self.go_ahead();
        }
        self.jobs.pace.refresh(self.out.now());
        if !(self.drive_resync()
            || self.drive_rebuild()
            || self.drive_accept()
            || self.drive_init())
        {
            self.drive_scrub();
        }
    }

    /// A member is doubted: no job computes anything from what members hold.
    pub(crate) fn computes_nothing(&self) -> bool {
        self.table.doubts() && !canary::hit(Canary::DoubtedIsSource)
    }

    /// A job waits while a member is doubted.
    fn waits_for_doubts(&mut self, kind: JobKind, from_bytes: u64) -> bool {
        self.held_by_doubts(self.computes_nothing(), kind, from_bytes)
    }

    /// A job waits if it is `held` because a member is doubted. It says so when it begins to wait,
    /// and when it goes on.
    fn held_by_doubts(&mut self, held: bool, kind: JobKind, from_bytes: u64) -> bool {
        if held && self.jobs.waiting.insert(kind) {
            let cause = StopCause::Doubted;
            self.out.event(EventKind::JobStopped { kind, cause });
        } else if !held && self.jobs.waiting.contains(&kind) {
            self.begins(kind, from_bytes);
        }
        held
    }

    /// A job begins, or goes on.
    fn begins(&mut self, kind: JobKind, from_bytes: u64) {
        self.jobs.waiting.remove(&kind);
        self.out.event(EventKind::JobStarted { kind, from_bytes });
    }

    pub(crate) fn step(&mut self, kind: StepKind, first: Row, end: Row) {
        self.step_as(kind, kind, first, end);
    }

    /// A step of one job that does to stripes what another does.
    fn step_as(&mut self, kind: StepKind, does: StepKind, first: Row, end: Row) {
        self.jobs.step += 1;
        let step = self.jobs.step;
        let waits = self.shards;
        let (outcome, started) = (StepOutcome::default(), self.out.now());
        self.jobs.running.push_back(Running {
            step,
            kind,
            first,
            end,
            waits,
            outcome,
            started,
        });
        let depth = self.jobs.pace.depth(self.rules(kind));
        self.out.message_all(&ToShard::Step(Step {
            step,
            kind: does,
            first,
            end,
            depth,
        }));
    }

    /// What a job has to keep to.
    fn rules(&self, kind: StepKind) -> Rules {
        let settings = &self.sb.settings;
        self.rules_by(match kind {
            StepKind::Rebuild => settings.rebuild_priority,
            StepKind::Resync => settings.resync_priority,
            StepKind::Scrub(_) | StepKind::Accept => settings.scrub_priority,
            StepKind::Init => settings.init_priority,
        })
    }

    /// After a piece of background zeroing: shards tell what they served beside it.
    pub(crate) fn ask_beside_init(&mut self, region: RegionNo) {
        let row = Row(self.geometry.region_rows(region).start);
        self.step(StepKind::Init, row, row);
    }

    /// What holds a job back, and the p99 of requests beside it.
    pub(crate) fn pace_of(&self, kind: StepKind) -> (HeldBack, Option<u64>) {
        let held_back = self.jobs.pace.held_back(self.out.now(), self.rules(kind));
        (held_back, self.jobs.pace.p99_ns(self.out.now()))
    }

    /// A rebuild is at work.
    pub(crate) fn rebuilds(&self) -> bool {
        self.jobs.rebuild.is_some()
    }

    fn rules_of_move(&self) -> Rules {
        self.rules_by(self.sb.settings.restripe_priority)
    }

    fn rules_by(&self, priority: u8) -> Rules {
        let target_us = u64::from(self.sb.settings.latency_target_us);
        Rules {
            priority,
            target_ns: (target_us > 0).then_some(target_us * 1000),
            depth_max: depth_max(self.geometry.strip),
        }
    }

    /// How long to wait after a window of data that moved: as after a step of a rebuild.
    pub(crate) fn pause_after(&mut self, took_ns: u64, bytes: u64) -> u64 {
        let rules = self.rules_of_move();
        self.jobs.pace.refresh(self.out.now());
        self.jobs
            .pace
            .stepped(self.out.now(), took_ns, bytes, rules)
    }

    /// Requests were served between windows.
    pub(crate) fn pace_beside_move(&mut self, foreground: u64, seen: Option<&Histogram>) {
        let rules = self.rules_of_move();
        self.jobs
            .pace
            .served(self.out.now(), foreground, seen, rules);
    }

    pub(crate) fn pace_of_move(&self, status: JobStatus) -> JobStatus {
        JobStatus {
            held_back: self
                .jobs
                .pace
                .held_back(self.out.now(), self.rules_of_move()),
            foreground_p99_ns: self.jobs.pace.p99_ns(self.out.now()),
            ..status
        }
    }

    /// Rows have become so many times as many, because they are so much lower.
    pub(crate) fn rows_shrink(&mut self, times: u64) {
        if let Some(scrub) = &mut self.jobs.scrub {
            scrub.at.0 *= times;
            scrub.noted.0 *= times;
        }
        // Its rows are counted anew.
        if self.jobs.accept.is_some() {
            self.stop_accepting(StopCause::Asked);
        }
    }

    /// The rows of a step that starts at `row` and stays in its region: as many as the pace says,
    /// and not fewer than keep all the stripes busy that may be at work at once.
    pub(crate) fn step_end(&self, kind: StepKind, row: Row) -> Row {
        let depth = u64::from(self.jobs.pace.depth(self.rules(kind)));
        let at_once = (depth * u64::from(self.shards)).div_ceil(self.geometry.groups);
        let rows = (self.jobs.pace.step_bytes() / self.geometry.strip).max(at_once);
        let region_end = self.geometry.region_rows(self.geometry.region(row)).end;
        Row((row.0 + rows).min(region_end))
    }

    pub(crate) fn step_done(&mut self, step: u64, outcome: StepOutcome, seen: Option<&Histogram>) {
        let Some(at) = self.jobs.running.iter().position(|r| r.step == step) else {
            return;
        };
        let rules = self.rules(self.jobs.running[at].kind);
        self.jobs
            .pace
            .served(self.out.now(), outcome.foreground, seen, rules);
        let running = &mut self.jobs.running[at];
        running.waits -= 1;
        running.outcome.stripes += outcome.stripes;
        running.outcome.inconsistent += outcome.inconsistent;
        running.outcome.located += outcome.located;
        running.outcome.unreadable += outcome.unreadable;
        running.outcome.partial += outcome.partial;
        running.outcome.skipped += outcome.skipped;
        let over = |running: &mut Running| running.waits == 0;
        if canary::hit(Canary::StepsOutOfOrder) {
            self.jobs
                .running
                .make_contiguous()
                .sort_by_key(|r| r.waits > 0);
        }
        while let Some(done) = self.jobs.running.pop_front_if(over) {
            self.step_over(&done, rules);
        }
    }

    fn step_over(&mut self, done: &Running, rules: Rules) {
        let (took_ns, bytes) = match done.kind {
            StepKind::Init => self.init_paced(),
            _ => (
                self.out.now().since(done.started),
                (done.end.0 - done.first.0) * self.geometry.strip,
            ),
        };
        let pause_ns = self
            .jobs
            .pace
            .stepped(self.out.now(), took_ns, bytes, rules);
        if pause_ns > 0 {
            // Of two steps that were at work each has its pause.
            let until = Time(self.out.now().0 + pause_ns);
            self.jobs.next_at = self.jobs.next_at.max(Some(until));
        }
        match done.kind {
            StepKind::Resync => self.resync_stepped(done, bytes),
            StepKind::Rebuild => self.rebuild_stepped(done, bytes),
            StepKind::Accept => self.accept_stepped(done, bytes),
            StepKind::Init => {}
            StepKind::Scrub(_) => self.scrub_stepped(done, bytes),
        }
    }

    // ---- resync ------------------------------------------------------------------------------

    /// The regions that wait for the resync, and the first of them that it can go through.
    fn resync_due(&self) -> (Vec<RegionNo>, Option<RegionNo>) {
        let due = self.regions_in(Phase::NeedSync);
        let job = self.jobs.resync.as_ref();
        let stuck = |r: &RegionNo| job.is_some_and(|job| job.stuck.contains(r));
        let next = due.iter().copied().find(|r| !stuck(r));
        (due, next)
    }

    /// True if a resync step was started.
    fn drive_resync(&mut self) -> bool {
        let (due, next) = self.resync_due();
        let Some(region) = next else {
            self.resync_rests();
            return false;
        };
        if self.jobs.resync.is_none() {
            let total = due.len() as u64 * self.geometry.region_rows * self.geometry.strip;
            let progress = Progress::begun(self.out.now());
            self.jobs.resync = Some(Resync {
                progress,
                total,
                // Of no region.
                at: Row(u64::MAX),
                ..Resync::default()
            });
            self.begins(JobKind::Resync, 0);
        }
        let done = self.jobs.resync.as_ref().map_or(0, Resync::done);
        let halted = |job: &mut Resync| std::mem::take(&mut job.halted);
        if self.jobs.resync.as_mut().is_some_and(halted) {
            self.begins(JobKind::Resync, done);
        }
        if self.waits_for_doubts(JobKind::Resync, done) {
            return false;
        }
        let rows = self.geometry.region_rows(region);
        let (epoch, whole) = (self.sb.epoch, self.in_place());
        let job = self.jobs.resync.as_mut().expect("made above");
        if !rows.contains(&job.at.0) {
            job.at = Row(rows.start);
            (job.epoch, job.whole) = (epoch, whole);
            (job.amiss, job.unreadable) = (0, 0);
            let (_, left) = job.passes.remove(&region).unwrap_or_default();
            job.progress.inconsistent -= left;
        }
        let skips = canary::hit(Canary::ResyncSkipsRows) && job.at.0 + 1 < rows.end;
        let first = Row(job.at.0 + u64::from(skips));
        let end = self.step_end(StepKind::Resync, first);
        // What does not agree in an undecided region is not made to agree by a resync.
        let compares = self.map.is_undecided(region) && !canary::hit(Canary::ResyncDecides);
        let does = match compares {
            true => StepKind::Scrub(ScrubMode::Check),
            false => StepKind::Resync,
        };
        self.step_as(StepKind::Resync, does, first, end);
        true
    }

    /// Nothing is left that the resync can do.
    fn resync_rests(&mut self) {
        // A region that is being closed to be given back needs none once it is closed.
        let syncing = self.map.syncing();
        let Some(job) = &mut self.jobs.resync else {
            return;
        };
        let (inconsistent, repaired) = (job.progress.inconsistent, job.mended);
        if !syncing {
            self.jobs.resync = None;
            self.out.event(EventKind::JobFinished {
                kind: JobKind::Resync,
                inconsistent,
                repaired,
            });
        } else if !job.undecided.is_empty() && !std::mem::replace(&mut job.halted, true) {
            self.out.event(EventKind::JobStopped {
                kind: JobKind::Resync,
                cause: StopCause::Inconsistent,
            });
        }
    }

    fn resync_stepped(&mut self, done: &Running, bytes: u64) {
        let region = self.geometry.region(done.first);
        let region_end = self.geometry.region_rows(region).end;
        let compared = self.map.is_undecided(region);
        let whole = self.in_place();
        let (epoch, witnessed) = (self.sb.epoch, self.sb.witnessed);
        let doubts = self.computes_nothing();
        let Some(job) = &mut self.jobs.resync else {
            return;
        };
        job.progress.worked += bytes;
        job.progress.inconsistent += done.outcome.inconsistent;
        let (passed, left) = job.passes.entry(region).or_default();
        *passed += bytes;
        match compared {
            true => {
                job.amiss += done.outcome.inconsistent;
                *left += done.outcome.inconsistent;
            }
            false => job.mended += done.outcome.inconsistent,
        }
        // Neither is done where a strip of a member is left out: that member is still counted on.
        job.unreadable += done.outcome.unreadable + done.outcome.partial;
        job.at = done.end;
        if doubts {
            // What was read meanwhile may be what no user wrote: the region is gone through again.
            job.at = Row(u64::MAX);
            return;
        }
        if done.end.0 < region_end {
            return;
        }
        // The next region starts from its first row.
        job.at = Row(u64::MAX);
        let moved = job.epoch != epoch;
        let came = compared && whole && (moved || !job.whole);
        if came || (moved && job.unreadable > 0) {
            // Members have come or gone meanwhile: it is gone through once more.
            return;
        }
        // Of a strip that was not there it is unknown whether it agrees.
        let amiss = job.amiss > 0 || (compared && (!whole || job.unreadable > 0));
        if amiss {
            job.stuck.insert(region);
        } else if job.unreadable > 0 {
            job.stuck.insert(region);
            let cause = self.why_unreadable();
            self.out.event(EventKind::JobStopped {
                kind: JobKind::Resync,
                cause,
            });
        } else {
            if compared && witnessed {
                self.agrees(region);
            }
            self.region_synced(region);
        }
        if compared && (amiss || !witnessed) {
            self.stays_undecided(region);
        }
    }

    /// The resync went through a region that stays undecided.
    fn stays_undecided(&mut self, region: RegionNo) {
        let job = self.jobs.resync.as_mut();
        if job.is_some_and(|job| job.undecided.insert(region)) && self.may_tell() {
            self.tell_decision(region, None);
        }
    }

    /// Strips of an undecided region agree, and prove something.
    fn agrees(&mut self, region: RegionNo) {
        let job = self.jobs.resync.as_mut();
        match job.is_some_and(|job| job.undecided.remove(&region)) {
            true => self.decide(region, Decision::Agreed),
            // Nobody was told of it.
            false => self.map.set_undecided(region, false),
        }
    }

    /// One more event may be told of what the job at work finds.
    fn may_tell(&mut self) -> bool {
        let resyncs = self.jobs.running.iter().any(|r| r.kind == StepKind::Resync);
        let told = match (&mut self.jobs.scrub, &mut self.jobs.resync) {
            (Some(scrub), _) if !resyncs => &mut scrub.told,
            (_, Some(resync)) => &mut resync.told,
            _ => return true,
        };
        *told += 1;
        *told <= FINDINGS_TOLD
    }

    /// Regions that the resync has yet to go through: what they are is not known before.
    pub(crate) fn is_to_be_compared(&self, region: RegionNo) -> bool {
        let done = |job: &Resync| job.undecided.contains(&region);
        self.map.phase(region).untrusted() && !self.jobs.resync.as_ref().is_some_and(done)
    }

    /// The resync goes once more through regions in which it went no further: those that stay
    /// undecided are compared, and of those that could not be read more may answer by now.
    pub(crate) fn compare_again(&mut self) {
        if let Some(job) = &mut self.jobs.resync {
            job.stuck.clear();
        }
    }

    /// Parity is trusted, or a person has to decide whether it may be.
    pub(crate) fn waits_for_decision(&self) -> bool {
        let regions = (0..self.geometry.regions()).map(RegionNo);
        let mut untrusted = regions.filter(|&r| self.map.phase(r).untrusted());
        untrusted.all(|r| self.map.is_undecided(r) && !self.is_to_be_compared(r))
    }

    fn why_unreadable(&mut self) -> StopCause {
        match std::mem::take(&mut self.jobs.list_full) {
            true => StopCause::ListFull,
            false => StopCause::Unreadable,
        }
    }

    // ---- rebuild -----------------------------------------------------------------------------

    pub(crate) fn rebuild_row(&self) -> Option<Row> {
        self.table
            .slots()
            .iter()
            .filter(|s| s.incoming().is_some())
            .map(|s| s.rebuilt)
            .min()
    }

    /// Nothing is rebuilt now: what a member holds that cannot be believed would spread.
    fn rebuild_waits(&self) -> bool {
        self.jobs.paused || self.jobs.blocked || self.computes_nothing()
    }

    /// True if there is a rebuild at work (even if it waits).
    fn drive_rebuild(&mut self) -> bool {
        let Some(mut row) = self.rebuild_row() else {
            self.jobs.waiting.remove(&JobKind::Rebuild);
            if self.jobs.rebuild.take().is_some() {
                let cause = StopCause::Membership;
                self.out.event(EventKind::JobStopped {
                    kind: JobKind::Rebuild,
                    cause,
                });
            }
            return false;
        };
        if self.rebuild_waits() {
            let free = !(self.jobs.paused || self.jobs.blocked);
            if free && self.waits_for_doubts(JobKind::Rebuild, 0) {
                self.jobs.rebuild = None;
            }
            return false;
        }
        // A member that joined begins at its own first row.
        self.jobs.checkpointed = self.jobs.checkpointed.min(row.0);
        if self.jobs.rebuild.is_none() {
            self.jobs.rebuild = Some(Progress::begun(self.out.now()));
            self.jobs.checkpointed = row.0;
            let from_bytes = row.0 * self.geometry.strip;
            self.begins(JobKind::Rebuild, from_bytes);
        }
        let before = row;
        let wait = self.pass_over_whole(&mut row);
        if row > before {
            self.raise_rebuilt(before, row, u64::MAX);
        }
        if wait {
            // What it waits for may wait for a pace that is over.
            self.hurry_init();
            return true;
        }
        self.checkpoint_if_due(row);
        if row.0 >= self.geometry.rows {
            return true;
        }
        let end = self.step_end(StepKind::Rebuild, row);
        self.step(StepKind::Rebuild, row, end);
        true
    }

    /// Begins the next step of a rebuild beside the one that is at work.
    fn go_ahead(&mut self) {
        let rebuilds = |running: &Running| running.kind == StepKind::Rebuild;
        let jobs = &self.jobs;
        let room = jobs.running.len() < STEPS_ALONE && jobs.running.iter().all(rebuilds);
        // What begins or ends a job is seen where nothing is at work.
        let begun = jobs.rebuild.is_some() && jobs.resync.is_none();
        let stopped = self.rebuild_waits() || !begun;
        if !room || stopped || !jobs.pace.alone() || !self.regions_in(Phase::NeedSync).is_empty() {
            return;
        }
        let (Some(row), Some(last)) = (self.rebuild_row(), self.jobs.running.back()) else {
            return;
        };
        // A member that joined since then begins at its own first row.
        let (next, joined) = (last.end, last.step);
        let early = |slot: &SlotUse| slot.incoming().is_none() || slot.joined < joined;
        if row < self.jobs.running[0].first || !self.table.slots().iter().all(early) {
            return;
        }
        self.checkpoint_if_due(row);
        // Rows that are passed over count only when those before them do.
        let mut lacking = next;
        let waits = self.pass_over_whole(&mut lacking);
        if !waits && lacking == next && next.0 < self.geometry.rows {
            let end = self.step_end(StepKind::Rebuild, next);
            self.step(StepKind::Rebuild, next, end);
        }
    }

    fn checkpoint_if_due(&mut self, row: Row) {
        let (rows, checkpointed) = (self.geometry.rows, self.jobs.checkpointed);
        let due = row
            .0
            .saturating_sub(checkpointed)
            .saturating_mul(CHECKPOINTS)
            >= rows;
        // A member that takes a slot has the list of unreadable blocks and the region map first.
        let map = self.map.members_have_it() || canary::hit(Canary::JoinsWithoutMap);
        let told = self.unreadable.quiet() && self.map.undecided_told() && map;
        let free = self.jobs.checkpoint.is_none() && told;
        if free && (row.0 >= rows || (due && row.0 > checkpointed)) {
            self.checkpoint(row);
        }
    }

    /// Moves on to a row that an incoming member lacks. True if its region must come to rest first.
    fn pass_over_whole(&self, row: &mut Row) -> bool {
        while row.0 < self.geometry.rows {
            let region = self.geometry.region(*row);
            let end = Row(self.geometry.region_rows(region).end);
            match self.map.phase(region) {
                Phase::Unwritten => *row = end,
                _ if !self.lacked(region, end) => *row = end,
                // Zeroes (or what follows them) are under way on the members that were there then,
                // and shards still take the region for unwritten; or it is about to be given back
                // and its parity is not true.
                Phase::Zeroing { .. }
                | Phase::Closing { sync: true, .. }
                | Phase::Unmapping
                | Phase::Draining { .. }
                | Phase::Flushing { .. }
                | Phase::Cleaning
                | Phase::Retiring { .. }
                | Phase::Opening => {
                    return true;
                }
                _ => return false,
            }
        }
        false
    }

    /// Some incoming member lacks (part of) this region, which ends at `end`.
    fn lacked(&self, region: RegionNo, end: Row) -> bool {
        self.table
            .slots()
            .iter()
            .filter(|slot| slot.rebuilt < end)
            .filter_map(|slot| slot.incoming())
            .any(|device| self.lacks(device, region))
    }

    /// Rows up to `end` are valid on every incoming member for which those up to `first` were, and
    /// that was there when `step` began.
    fn raise_rebuilt(&mut self, first: Row, end: Row, step: u64) {
        for slot in self
            .table
            .slots_mut()
            .iter_mut()
            .filter(|s| s.incoming().is_some())
        {
            let early = slot.joined < step || canary::hit(Canary::RebuiltTooFar);
            let next = slot.rebuilt >= first || canary::hit(Canary::StepsOutOfOrder);
            if next && early {
                slot.rebuilt = slot.rebuilt.max(end);
            }
        }
        // While a change of membership is not durable, shards go by their own marks.
        if !self.persist.view_due {
            self.publish_view();
        }
    }

    fn rebuild_stepped(&mut self, done: &Running, bytes: u64) {
        if done.outcome.inconsistent > done.outcome.located {
            self.leave_undecided(self.geometry.region(done.first));
        }
        if let Some(job) = &mut self.jobs.rebuild {
            job.worked += bytes;
        }
        if done.outcome.unreadable > 0 {
            self.jobs.blocked = true;
            let cause = self.why_unreadable();
            if self.jobs.rebuild.take().is_some() {
                self.out.event(EventKind::JobStopped {
                    kind: JobKind::Rebuild,
                    cause,
                });
            }
            return;
        }
        // A stripe was passed over because its region was given back meanwhile: look at the rows
        // again.
        if done.outcome.skipped == 0 {
            self.raise_rebuilt(done.first, done.end, done.step);
        }
    }

    /// All that was rebuilt is durably in sync.
    pub(crate) fn rebuild_over(&mut self) {
        self.out.event(EventKind::JobFinished {
            kind: JobKind::Rebuild,
            inconsistent: 0,
            repaired: 0,
        });
    }

    // ---- rebuild commands, stop, status ------------------------------------------------------

    pub(crate) fn start_rebuild(&mut self) -> Changed {
        let blocked = std::mem::take(&mut self.jobs.blocked);
        let paused = std::mem::take(&mut self.jobs.paused);
        match self.table.wait_no_longer() || paused || blocked {
            true => Changed::Yes,
            false => Changed::No,
        }
    }

    pub(crate) fn stop_rebuild(&mut self) -> Changed {
        if self.jobs.paused {
            return Changed::No;
        }
        self.jobs.paused = true;
        if self.jobs.rebuild.take().is_some() {
            let cause = StopCause::Asked;
            self.out.event(EventKind::JobStopped {
                kind: JobKind::Rebuild,
                cause,
            });
        }
        Changed::Yes
    }

    pub(crate) fn job_status(&self) -> Vec<JobStatus> {
        let mut jobs = Vec::new();
        jobs.extend(self.resync_status());
        jobs.extend(self.rebuild_status());
        jobs.extend(self.scrub_status());
        jobs.extend(self.accept_status());
        jobs.extend(self.init_status());
        jobs
    }

    /// Bytes of each member in rows up to `end`, of the regions that count.
    fn bytes_to(&self, end: Row, counts: impl Fn(RegionNo) -> bool) -> u64 {
        (0..self.geometry.regions())
            .map(RegionNo)
            .filter(|&r| self.map.state(r) != RegionState::Unwritten && counts(r))
            .map(|r| self.geometry.region_rows(r))
            .map(|rows| rows.end.min(end.0).saturating_sub(rows.start) * self.geometry.strip)
            .sum()
    }

    fn written_to(&self, end: Row) -> u64 {
        self.bytes_to(end, |_| true)
    }

    fn resync_status(&self) -> Option<JobStatus> {
        let job = self.jobs.resync.as_ref()?;
        let due = self.regions_in(Phase::NeedSync);
        let stuck = || due.iter().all(|r| job.stuck.contains(r));
        let (held_back, foreground_p99_ns) = self.pace_of(StepKind::Resync);
        Some(JobStatus {
            kind: JobKind::Resync,
            slot: None,
            partial: false,
            done_bytes: job.done(),
            total_bytes: job.total,
            rate_bytes_per_s: job.progress.rate(self.out.now()),
            paused: self.computes_nothing() || !job.stuck.is_empty() && stuck(),
            held_back,
            foreground_p99_ns,
            inconsistent: job.progress.inconsistent,
            repaired: job.mended,
        })
    }

    fn rebuild_status(&self) -> Option<JobStatus> {
        let slots = self.table.slots();
        let incoming = || slots.iter().filter_map(|slot| slot.incoming());
        let lacked = |end| self.bytes_to(end, |r| incoming().any(|d| self.lacks(d, r)));
        let end = Row(self.geometry.rows);
        let over = |waiter: &SuperblockWaiter| matches!(waiter, SuperblockWaiter::RebuildOver);
        let (slot, partial, done_bytes, total_bytes) = match self.rebuild_row() {
            Some(row) => {
                let slot = slots.iter().position(|s| s.incoming().is_some());
                let partial = incoming().all(|device| self.lacking.contains_key(&device));
                (slot, partial, lacked(row), lacked(end))
            }
            // It is not over before the superblocks say so.
            None if self.persist.waiters.iter().any(over) => {
                let durable = |at: &usize| self.persist.durably_in_sync(&self.table, *at);
                let slot = (0..slots.len()).find(|at| !durable(at));
                let all = self.written_to(end);
                (slot, false, all, all)
            }
            None => return None,
        };
        let (held_back, foreground_p99_ns) = self.pace_of(StepKind::Rebuild);
        let rate = |job: &Progress| job.rate(self.out.now());
        Some(JobStatus {
            kind: JobKind::Rebuild,
            slot: slot.map(|slot| Slot(slot as u8)),
            partial,
            done_bytes,
            total_bytes,
            rate_bytes_per_s: self.jobs.rebuild.as_ref().map_or(0, rate),
            paused: self.rebuild_waits(),
            held_back,
            foreground_p99_ns,
            inconsistent: 0,
            repaired: 0,
        })
    }
}
