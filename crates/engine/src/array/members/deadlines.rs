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
//! Bound: a member that hangs alone is given up after one deadline and the time for collecting
//! reports; the array never waits longer than three deadlines, each with that time, in which the
//! thread ran.
//!
//! Invariant: an I/O that is answered before the verdict arrives is complete, whatever the verdict
//! was. Deliberately absent: the I/Os (the driver has them), and clocks.

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

/// How long reports are collected before the array decides, nanoseconds.
pub(crate) fn gather_ns(deadline_ns: u64) -> u64 {
    (deadline_ns / GATHER_PARTS).clamp(1, GATHER_MAX_NS)
}

/// Devices that are late.
#[derive(Debug, Default)]
pub(crate) struct Overdue {
    /// With the further deadlines that their I/Os have had.
    late: BTreeMap<DeviceId, u32>,
    pub(crate) judge_at: Option<Time>,
}

impl Array {
    /// An I/O of this device is overdue on some thread, after `rounds` further deadlines of
    /// `deadline_ns`. [`ArrayOutput::Overdue`] answers, for every thread.
    pub fn overdue(&mut self, now: Time, device: DeviceId, rounds: u32, deadline_ns: u64) {
        self.out.input_at(now);
        let over = matches!(self.stage, Stage::Failed | Stage::Stopped);
        if over || !self.table.has(device) {
            return self.pass(device, Verdict::GiveUp);
        }
        let late = self.overdue.late.entry(device).or_default();
        *late = rounds.max(*late);
        let judge_at = Time(now.0.saturating_add(gather_ns(deadline_ns)));
        self.overdue.judge_at.get_or_insert(judge_at);
    }

    /// Decides about the devices that were late in one moment.
    pub(crate) fn judge_overdue(&mut self) {
        if self.overdue.judge_at.is_none_or(|at| at > self.out.now()) {
            return;
        }
        self.overdue.judge_at = None;
        let late = std::mem::take(&mut self.overdue.late);
        let alone = late.len() == 1;
        let failed = self.stage == Stage::Failed;
        let mut given_up = Vec::new();
        for (device, rounds) in late {
            let bearable = failed || self.bears_loss(device, &given_up);
            let decided = bearable && (alone || rounds > 0) || rounds >= ROUNDS_MAX;
            if decided || canary::hit(Canary::VerdictsOfOneMoment) {
                given_up.push(device);
                self.pass(device, Verdict::GiveUp);
            } else {
                self.pass(device, Verdict::WaitOn);
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
