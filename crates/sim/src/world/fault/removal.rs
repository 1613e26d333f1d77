//! Devices that are about to vanish: for a moment all their I/Os fail without a cause. A kernel may
//! answer so before it removes a drive.
//!
//! Like the runtime, the simulator waits and looks again before it believes such an error (the
//! engine's [`RetryPolicy::grace`](strake_engine::RetryPolicy::grace)). So a member that vanishes
//! this way is gone and has not failed: it keeps its data and comes back. The world has failed
//! where it is out for an error.
//!
//! Invariant: the moment is shorter than the look.

use strake_engine::EioGrace;
use strake_engine::event::OutCause;
use strake_engine::units::*;

use crate::canary::Canary;
use crate::drive::OpNo;
use crate::world::{Happening, SimResult, World};

/// The longest moment, in parts of the deadline.
const MOMENT_PARTS: u64 = 70;

impl World {
    /// A member vanishes: at once, or so that everything it is asked for fails a moment before.
    pub(crate) fn vanish_somehow(&mut self, index: usize) -> SimResult {
        let open = self.drives[index].device.is_some();
        if open && self.chance.removal.percent(40) {
            self.vanish_soon(index);
            return Ok(());
        }
        self.vanish(index)
    }

    /// All that the drive is asked for fails, and a moment later it is gone.
    pub fn vanish_soon(&mut self, index: usize) {
        let device = self.drives[index].device.expect("it is open");
        let longest = self.plan.latencies.deadline_ns / MOMENT_PARTS;
        let ns = self.chance.removal.range(1, longest.max(2));
        self.note(format!("drive {index} will vanish in {} us", ns / 1000));
        self.drives[index].doomed = true;
        self.drives[index].ssd.faults.vanishing = true;
        self.clock.after(ns, Happening::Vanishes(index, device));
    }

    /// The drive answers nothing more.
    pub fn hang(&mut self, index: usize) {
        let drive = &mut self.drives[index];
        (drive.ssd.faults.stalls, drive.stalls) = (u32::MAX, true);
    }

    /// The moment is over.
    pub(crate) fn removed(&mut self, index: usize, device: DeviceId) -> SimResult {
        let drive = &self.drives[index];
        if !drive.ssd.faults.vanishing || drive.device.is_some_and(|now| now != device) {
            return Ok(());
        }
        let faults = &mut self.drives[index].ssd.faults;
        (faults.vanishing, faults.medium_failed) = (false, false);
        self.stats.ebbs += 1;
        self.vanish(index)
    }

    /// An I/O ends: true if its error says nothing of why, and is not believed yet.
    pub(crate) fn doubted(&mut self, index: usize, op: OpNo) -> bool {
        let (now, policy) = (self.clock.now(), self.retry_policy());
        let drive = &mut self.drives[index];
        let Some(device) = drive
            .device
            .filter(|_| drive.device == drive.ssd.device_of(op))
        else {
            return false;
        };
        let Some((error, repeats)) = drive.ssd.failing(op) else {
            return false;
        };
        let before = drive.eio_grace.filter(|&(of, _)| of == device);
        let mut grace = before.map_or(EioGrace::default(), |(_, grace)| grace);
        let until = policy.grace(&mut grace, error, repeats, now);
        drive.eio_grace = Some((device, grace));
        let until = until.filter(|_| !self.has(Canary::VerdictAtOnce));
        if let Some(at) = until {
            self.clock.at(at, Happening::Io(index, op));
        }
        until.is_some()
    }

    /// A member went out: not for an error of a device that was about to vanish, unless its medium
    /// has failed as well.
    pub(crate) fn judge_verdict(&mut self, device: Option<DeviceId>, cause: OutCause) -> SimResult {
        let failed = matches!(cause, OutCause::WriteError | OutCause::ReadErrors);
        let Some(device) = device.filter(|_| failed) else {
            return Ok(());
        };
        let index = self.drive_of(device);
        let faults = &self.drives[index].ssd.faults;
        match faults.vanishing && !faults.medium_failed {
            false => Ok(()),
            true => self.failure(format!(
                "{device:?} has failed, and was only about to vanish"
            )),
        }
    }
}
