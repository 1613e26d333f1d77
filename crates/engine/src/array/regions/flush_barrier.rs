//! Flushes of members that regions wait for, before a page says Clean, or Dirty after zeroes.
//!
//! A flush makes durable whatever was answered before it, whichever region it lies in. So there is
//! one round of flushes at a time, on every live member with a volatile cache, for all regions that
//! wait; a region that comes during a round waits for the next one. A sweep that closes a thousand
//! regions flushes once and not a thousand times.
//!
//! Invariant: a region goes on only after a round that began when shards had finished their writes
//! there, or all of its zeroes were answered. A member that fails a flush is out before a page
//! relies on it (`regions`).
//!
//! Deliberately absent: which regions close, and when (`aging`), and pages (`regions`).

use crate::array::regions::Phase;
use crate::array::{Array, Purpose, Stage};
use crate::canary::{self, Canary};
use crate::proto::*;
use crate::units::*;

/// The round that is under way, and the regions that wait for the next.
#[derive(Debug, Default)]
pub(crate) struct FlushBarrier {
    /// Flushes in flight.
    pending: usize,
    /// Regions that go on when they are over.
    round: Vec<RegionNo>,
    /// Regions that came since it began.
    next: Vec<RegionNo>,
}

impl FlushBarrier {
    /// Every region that settles goes on after a round; so many flushes are in flight.
    pub(crate) fn check(&self, flushes: usize, mut settles: Vec<RegionNo>) -> Result<(), String> {
        ensure!(
            self.pending == flushes,
            "regions wait for {} flushes, and {flushes} are in flight",
            self.pending
        );
        let mut waiting: Vec<RegionNo> = self.round.iter().chain(&self.next).copied().collect();
        waiting.sort_unstable();
        settles.sort_unstable();
        ensure!(
            waiting == settles,
            "regions {settles:?} wait for flushes, and {waiting:?} go on after them"
        );
        ensure!(
            self.pending > 0 || waiting.is_empty(),
            "regions {waiting:?} wait for flushes, and none is in flight"
        );
        Ok(())
    }
}

impl Array {
    /// Flushes members, then opens the region or makes it Clean.
    pub(crate) fn flush_region(&mut self, region: RegionNo, open: bool) {
        self.set_phase(region, Phase::Flushing { open });
        let flush_barrier = &mut self.map.flush_barrier;
        if flush_barrier.pending > 0 && canary::hit(Canary::SettlesWithOthers) {
            flush_barrier.round.push(region);
        } else {
            flush_barrier.next.push(region);
        }
        self.drive_flush_barrier();
    }

    /// A flush of the round is over, well or not.
    pub(crate) fn barrier_flushed(&mut self) {
        self.map.flush_barrier.pending -= 1;
        self.drive_flush_barrier();
    }

    /// Ends the round if it is over, and begins the next if a region waits for one.
    fn drive_flush_barrier(&mut self) {
        while self.map.flush_barrier.pending == 0 && self.stage != Stage::Failed {
            for region in std::mem::take(&mut self.map.flush_barrier.round) {
                self.leave_barrier(region);
            }
            if self.map.flush_barrier.pending > 0 {
                return;
            }
            let round = std::mem::take(&mut self.map.flush_barrier.next);
            if round.is_empty() {
                return;
            }
            let opens =
                |&region: &RegionNo| self.map.phase(region) == Phase::Flushing { open: true };
            let hasty = !round.iter().any(opens) && canary::hit(Canary::CleanWithoutFlush);
            let devices = match hasty {
                true => Vec::new(),
                false => self.table.volatile(),
            };
            self.map.flush_barrier.round = round;
            self.map.flush_barrier.pending = devices.len();
            for device in devices {
                self.out
                    .io(device, Purpose::FlushBarrier { device }, IoKind::Flush);
            }
        }
    }

    fn leave_barrier(&mut self, region: RegionNo) {
        match self.map.phase(region) {
            Phase::Flushing { open: true } => self.open_region(region),
            Phase::Flushing { open: false } => self.make_clean(region),
            _ => unreachable!("the barrier ends before the region's phase changes"),
        }
    }
}
