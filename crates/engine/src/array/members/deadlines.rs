//! I/Os that outlast their deadline: which members are given up.
//!
//! Two rules keep a standstill of the process, or of the machine, from costing members:
//! * **Only time in which the thread ran counts** ([`Pulse`](crate::Pulse)). A thread that is
//!   stopped, or gets no CPU, cannot see completions. Each turn of it counts for no more than the
//!   sleep that it asked for and some slack, so a turn that lasts longer moves every deadline.
//! * **The array decides** ([`Array::overdue`]). The driver reports a device with an overdue I/O,
//!   and does not answer the I/O until the array decides. The array collects reports for a moment.
//!   One late member that the level survives is given up. Otherwise each late I/O gets another full
//!   deadline: what stands still behind several members at once (a host, a controller, a network)
//!   is seldom the members' fault.
//!
//! | late at one moment | first report | second | third |
//! |---|---|---|---|
//! | one, and the level survives its loss | given up | given up | given up |
//! | several, or one too many | waited for | as many as the level survives are given up | given up |
//!
//! A write that there is no space for (a full file system, a full thin pool) counts as late for the
//! first time, each time that it is tried: it is never too late. One that has no space alone is
//! given up, if the level survives that; several wait for as long as there is none, and that is
//! told. A start does not wait: it fails, and can be repeated when there is space.
//!
//! Bound: a member that hangs alone is given up after one deadline and the time for collecting
//! reports; the array never waits longer than three deadlines, each with that time, in which the
//! thread ran, unless for space.
//!
//! Invariants:
//! * An I/O that is answered before the verdict arrives is complete, whatever the verdict was.
//! * A member that is given up counts as lost at once: a thread that stands still may answer its
//!   I/Os long after another member is late.
//!
//! Deliberately absent: the I/Os (the driver has them), and clocks.

use std::collections::BTreeMap;

use crate::array::{Array, Stage};
use crate::canary::{self, Canary};
use crate::proto::*;
use crate::units::*;

/// Reports are collected for this part of the I/O deadline, ...
const GATHER_PARTS: u64 = 4;
/// ... or for this long: twice as long as the driver's longest pause between two looks.
const GATHER_MAX_NS: u64 = 2_000_000_000;
/// After so many further deadlines nothing is waited for.
const ROUNDS_MAX: u32 = 2;
/// A device that was not reported again for so many times of collecting has space.
const FULL_GATHERS: u64 = 3;
/// One that is still there so many times of collecting after it was given up had answered.
const GIVEN_UP_GATHERS: u64 = 60;

/// How long reports are collected before the array decides, nanoseconds.
pub(crate) fn gather_ns(deadline_ns: u64) -> u64 {
    (deadline_ns / GATHER_PARTS).clamp(1, GATHER_MAX_NS)
}

/// What is known of a member that has no space for writes.
#[derive(Debug)]
struct Full {
    /// Seconds since 1970.
    since_unix_s: u64,
    /// Unless it is reported again.
    until: Time,
}

/// Devices that are late.
#[derive(Debug, Default)]
pub(crate) struct Overdue {
    late: BTreeMap<DeviceId, Lateness>,
    judge_at: Option<Time>,
    gather_ns: u64,
    full: BTreeMap<DeviceId, Full>,
    /// They may be in their slots still. Until then they count as lost.
    given_up: BTreeMap<DeviceId, Time>,
}

/// How late a device is.
#[derive(Clone, Copy, Debug, Default)]
struct Lateness {
    /// The further deadlines that its I/Os have had.
    rounds: u32,
    /// It has no space for some of them.
    full: bool,
}

impl Overdue {
    pub(crate) fn deadline(&self) -> Option<Time> {
        let full = self.full.values().map(|full| full.until);
        full.chain(self.judge_at).min()
    }

    /// Since when writes to it wait for space, seconds since 1970.
    pub(crate) fn full_since(&self, device: DeviceId) -> Option<u64> {
        self.full.get(&device).map(|full| full.since_unix_s)
    }
}

impl Array {
    /// I/Os of this device are not answered on some thread; their deadline was `deadline_ns`.
    /// [`ArrayOutput::Overdue`] answers, for every thread.
    pub fn overdue(&mut self, now: Time, device: DeviceId, late: Late, deadline_ns: u64) {
        self.out.input_at(now);
        let over = matches!(self.stage, Stage::Failed | Stage::Stopped);
        if over || !self.table.has(device) {
            return self.pass(device, Verdict::GiveUp);
        }
        let gather_ns = gather_ns(deadline_ns);
        let judge_at = Time(now.0.saturating_add(gather_ns));
        let overdue = &mut self.overdue;
        overdue.gather_ns = gather_ns;
        let judge_at = *overdue.judge_at.get_or_insert(judge_at);
        let lateness = overdue.late.entry(device).or_default();
        match late {
            Late::Overdue(rounds) => lateness.rounds = rounds.max(lateness.rounds),
            Late::NoSpace => lateness.full = true,
        }
        if let Some(full) = overdue.full.get_mut(&device).filter(|_| lateness.full) {
            full.until = Time(judge_at.0.saturating_add(FULL_GATHERS * gather_ns));
        }
    }

    /// Decides about the devices that were late in one moment.
    pub(crate) fn judge_overdue(&mut self) {
        let now = self.out.now();
        if self.overdue.judge_at.is_none_or(|at| at > now) {
            return;
        }
        self.overdue.judge_at = None;
        let late = std::mem::take(&mut self.overdue.late);
        self.overdue.given_up.retain(|_, until| *until > now);
        let alone = late.len() == 1;
        for (&device, lateness) in &late {
            let given_up = self.overdue.given_up.keys();
            let given_up: Vec<DeviceId> = given_up.copied().filter(|&d| d != device).collect();
            let bearable = self.stage == Stage::Failed || self.bears_loss(device, &given_up);
            let decided = bearable && (alone || lateness.rounds > 0);
            let decided = decided || lateness.rounds >= ROUNDS_MAX;
            if decided || canary::hit(Canary::VerdictsOfOneMoment) {
                let until = now
                    .0
                    .saturating_add(GIVEN_UP_GATHERS * self.overdue.gather_ns);
                self.overdue.given_up.insert(device, Time(until));
                self.pass(device, Verdict::GiveUp);
                continue;
            }
            if lateness.full {
                self.is_full(device);
            }
            self.pass(device, Verdict::WaitOn);
        }
    }

    /// Writes to this device wait for space.
    fn is_full(&mut self, device: DeviceId) {
        let Some(slot) = self.table.slot_of(device) else {
            return;
        };
        let linger_ns = FULL_GATHERS * self.overdue.gather_ns;
        let until = Time(self.out.now().0.saturating_add(linger_ns));
        let since_unix_s = self.out.unix_s();
        let mut is_new = false;
        let full = self.overdue.full.entry(device).or_insert_with(|| {
            is_new = true;
            Full {
                since_unix_s,
                until,
            }
        });
        full.until = until;
        if is_new {
            self.out.event(EventKind::MemberFull { slot, device });
        }
        let starts = [Stage::Resuming, Stage::Recovering, Stage::Starting];
        if starts.contains(&self.stage) {
            self.fail(FailCause::NoSpace);
        }
    }

    /// Devices that were not reported again have space.
    pub(crate) fn forget_full(&mut self) {
        let now = self.out.now();
        let over = self
            .overdue
            .full
            .extract_if(.., |_, full| full.until <= now);
        let over: Vec<DeviceId> = over.map(|(device, _)| device).collect();
        for device in over {
            if let Some(slot) = self.table.slot_of(device) {
                self.out
                    .event(EventKind::MemberNoLongerFull { slot, device });
            }
        }
    }

    fn pass(&mut self, device: DeviceId, verdict: Verdict) {
        self.out.push(ArrayOutput::Overdue(device, verdict));
    }

    /// The level survives the loss of this device beside those that are given up.
    pub(crate) fn bears_loss(&self, device: DeviceId, given_up: &[DeviceId]) -> bool {
        let Some(slot) = self.table.slot_of(device).map(Slot::index) else {
            return true;
        };
        if self.table.slots()[slot].current() != Some(device) {
            return true;
        }
        let lost = |at: usize| {
            let current = self.table.slots()[at].current();
            current.is_none_or(|current| given_up.contains(&current))
        };
        let m = self.geometry.m;
        let mut groups = self.geometry.neighbours().filter(|g| g.contains(&slot));
        self.may_lose(device) && groups.all(|group| group.filter(|&at| lost(at)).count() < m)
    }
}
