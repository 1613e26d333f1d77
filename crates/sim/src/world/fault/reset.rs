//! Devices that are reset: for a while nothing gets through to them, and then they go on as ever;
//! and devices that did not answer in time, which are there again after that, as the daemon's
//! watcher finds them.
//!
//! What becomes of an I/O that failed on its way is decided by the engine's [`RetryPolicy`], as in
//! the runtime. A reset that ends in time must cost nothing: where a device without a volatile
//! cache goes out for one, the world has failed.
//!
//! Invariants:
//! * A device that lost its cache with a reset answers nothing more until it is opened again, if
//!   any failure was reported. A drive that loses its cache and goes on as if nothing had happened
//!   cannot be detected.
//! * A device is not offered again while one of its I/Os is under way.
//! * Chance of its own: worlds without resets are what they would be without all this.
//!
//! Deliberately absent: devices that are late and answer (`latency`), and those that never do
//! (`Action::Stall`).

use strake_engine::RetryPolicy;
use strake_engine::event::{Completion, OutCause};
use strake_engine::units::*;

use crate::canary::Canary;
use crate::drive::overlay::{FaultKind, FaultSet, Reset};
use crate::drive::{CutReport, OpNo, Owner};
use crate::prng::{self, Prng, Purpose};
use crate::world::{Drive, Happening, SimResult, World};

/// A device is left in peace after a reset for as long, in deadlines.
const PEACE: u64 = 2;

impl World {
    /// Is this bug planted?
    pub(crate) fn has(&self, canary: Canary) -> bool {
        self.planted.as_ref().is_some_and(|p| p.canary == canary)
    }

    pub(crate) fn retry_policy(&self) -> RetryPolicy {
        RetryPolicy::new(self.plan.latencies.deadline_ns)
    }

    /// An I/O ends: true if it failed on its way and is to be tried again.
    pub(crate) fn interrupted(&mut self, drive: usize, op: OpNo) -> bool {
        if self.drives[drive].ssd.faults.reset.is_none() {
            return false;
        }
        let (now, policy) = (self.clock.now(), self.retry_policy());
        let trusted = self.has(Canary::CacheTrusted);
        let drive_now = &mut self.drives[drive];
        drive_now.ssd.interrupt(op, now, &mut self.chance.reset);
        let open = drive_now.device == drive_now.ssd.device_of(op);
        let Some(at) = drive_now.ssd.again(op, now, &policy, open, trusted) else {
            return false;
        };
        self.stats.retries += 1;
        self.trace.add(15);
        self.clock.at(at, Happening::Retry(drive, op));
        true
    }

    /// An I/O that is to be tried again is answered: only where that bug is planted.
    pub(crate) fn untrue(
        &mut self,
        drive: usize,
        op: OpNo,
    ) -> Option<(Owner, DeviceId, Completion)> {
        let planted = self.has(Canary::AnsweredUntried);
        planted.then(|| self.drives[drive].ssd.answer_untrue(op))?
    }

    pub(crate) fn ended(
        &mut self,
        drive: usize,
        op: OpNo,
    ) -> Option<(Owner, DeviceId, Completion)> {
        self.drives[drive].ssd.finish(op, &mut self.chance.fate)
    }

    /// An I/O is tried again, unless its device was let go meanwhile.
    pub(crate) fn retry(&mut self, drive: usize, op: OpNo) -> SimResult {
        let now = &mut self.drives[drive];
        let device = now.ssd.device_of(op);
        if device.is_some() && now.device != device {
            return self.io_done(drive, op);
        }
        let latencies = self.plan.latencies;
        if let Some(timing) = now.ssd.retry(op, &latencies, &mut self.chance.reset) {
            self.expect(drive, timing);
        }
        Ok(())
    }

    /// A device is reset from now on for so long. Whether it lost what its cache had answered.
    pub(crate) fn reset(&mut self, drive: usize, ns: u64, cache_lost: bool) {
        self.stats.resets += 1;
        let until = Time(self.clock.now().0 + ns);
        let lost = if cache_lost {
            ", and lost its cache"
        } else {
            ""
        };
        self.note(format!("drive {drive} is reset for {} us{lost}", ns / 1000));
        let deadline_ns = self.plan.latencies.deadline_ns;
        let Drive { ssd, stalls, .. } = &mut self.drives[drive];
        *stalls |= ssd.volatile_cache() || ns >= deadline_ns;
        if cache_lost {
            ssd.lose_cache(&mut CutReport::default(), &mut self.chance.reset);
        }
        ssd.faults.reset = Some(Reset {
            until,
            cache_lost,
            hit: false,
            told: false,
        });
    }

    /// In the course of a life: some devices are reset, in the worlds that have such.
    pub(crate) fn reset_some(&mut self, without: FaultSet) -> SimResult {
        let mut of_world = Prng::new(prng::mix(self.plan.seed), Purpose::Reset);
        let has = of_world.one_in(4);
        if !has || without.has(FaultKind::Reset) || !self.serves() {
            return Ok(());
        }
        if !self.chance.reset.one_in(12) || self.is_corrupt() {
            return Ok(());
        }
        if self.chance.reset.percent(50) {
            self.reset_harmlessly();
            return Ok(());
        }
        let (situation, tolerance) = (self.situation(), self.tolerance());
        let fair: Vec<usize> = (0..situation.slots.len())
            .filter(|&slot| tolerance.may_lose(&situation, slot))
            .collect();
        if fair.is_empty() {
            return Ok(());
        }
        let slot = self.chance.reset.pick(&fair);
        let Some(index) = self.looks()[slot].in_sync.filter(|&i| self.in_peace(i)) else {
            return Ok(());
        };
        let deadline_ns = self.plan.latencies.deadline_ns;
        let rng = &mut self.chance.reset;
        let volatile = self.drives[index].ssd.volatile_cache();
        let ns = match volatile && rng.percent(70) {
            true => rng.range(10_000, deadline_ns / 4),
            false => rng.range(deadline_ns, 3 * deadline_ns),
        };
        let cache_lost = volatile && rng.percent(60);
        self.drives[index].doomed = true;
        self.reset(index, ns, cache_lost);
        Ok(())
    }

    /// Devices without a volatile cache are reset for less than the deadline, as many at once as
    /// chance says: none may go out for it.
    fn reset_harmlessly(&mut self) {
        let deadline_ns = self.plan.latencies.deadline_ns;
        let all = self.chance.reset.one_in(4);
        for index in 0..self.drives.len() {
            let drive = &self.drives[index];
            let open = drive.device.is_some() && !drive.ssd.volatile_cache();
            // What takes most of the deadline takes longer than it has when it is tried again.
            if open
                && !drive.ssd.is_slow()
                && self.in_peace(index)
                && (all || self.chance.reset.one_in(3))
            {
                let ns = self.chance.reset.range(10_000, deadline_ns / 2);
                self.reset(index, ns, false);
            }
        }
    }

    /// It was not reset a moment ago, and no I/O that failed then is still to be answered: on a
    /// slow device one try may take longer than the deadline for all of them. Nor is an I/O late
    /// after a standstill: with a reset on top it may miss the deadline.
    fn in_peace(&self, index: usize) -> bool {
        let peace = PEACE * self.plan.latencies.deadline_ns;
        let now = self.clock.now();
        let ssd = &self.drives[index].ssd;
        let passed = |reset: Reset| !reset.fails(now) && now.since(reset.until) > peace;
        !ssd.tries_again() && !ssd.is_late() && ssd.faults.reset.is_none_or(passed)
    }

    /// Devices that did not answer in time are there again, some of them.
    pub(crate) fn bring_back_stalled(&mut self) {
        if !self.drives.iter().any(|drive| drive.stalls) || !self.serves() {
            return;
        }
        if !self.chance.reset.one_in(30) || self.is_corrupt() {
            return;
        }
        let now = self.clock.now();
        for index in 0..self.drives.len() {
            let drive = &self.drives[index];
            let over = drive
                .ssd
                .faults
                .reset
                .is_none_or(|reset| now >= reset.until);
            if drive.stalls && over && !drive.ssd.faults.gone && self.is_away(index) {
                self.offer(index);
            }
        }
    }

    /// A member went out: not because it was reset, or it had to.
    pub(crate) fn judge_loss(&mut self, device: Option<DeviceId>, cause: OutCause) -> SimResult {
        let Some(device) = device.filter(|_| cause == OutCause::TimedOut) else {
            return Ok(());
        };
        let index = self.drive_of(device);
        match self.drives[index].stalls || self.stands_alone(index) {
            true => Ok(()),
            false => self.failure(format!("{device:?} is out for what ends in time")),
        }
    }
}
