//! A user that zeroes or discards whole regions in parts, as `fstrim` does, and goes on to write
//! there.
//!
//! Draws of its own: seeds without it are what they were.
//!
//! Deliberately absent: single discards of any kind, which the workload draws.

use crate::plan::workload::{Ask, AskKind};
use crate::prng::{Prng, Purpose};
use crate::world::{SimResult, World};

impl World {
    /// Trims a region in parts.
    pub(crate) fn trim(&mut self) -> SimResult {
        if self.volumes.is_some() {
            // Regions are not the user's there.
            return Ok(());
        }
        let seed = self.plan.seed ^ self.stats.events << 20;
        let mut rng = Prng::new(seed, Purpose::Trim);
        let regions = self.user.shape.total.div_ceil(self.user.shape.region);
        let first = rng.below(regions) * self.user.shape.region;
        let end = (first + self.user.shape.region).min(self.user.shape.total);
        let whole = rng.percent(50);
        let mut at = first;
        while at < end {
            let count = match whole {
                true => self.user.shape.stripe * rng.range(1, 3),
                false => rng.range(1, 2 * self.user.shape.stripe),
            };
            let count = count.min(end - at);
            let kind = match whole && rng.percent(60) {
                true => AskKind::Discard,
                false => AskKind::WriteZeroes,
            };
            self.change(kind, at, count)?;
            at += count;
        }
        if rng.percent(30) {
            let at = rng.range(first, end - 1);
            self.change(AskKind::Write, at, 1)?;
        }
        Ok(())
    }

    /// Asks for a change, unless the usual user would not.
    fn change(&mut self, kind: AskKind, first: u64, count: u64) -> SimResult {
        let ask = Ask::new(kind, first, count);
        let busy = !self.user.swarm.overlapping && self.oracle.busy(first, count);
        match busy || self.touches_corrupt(&ask) {
            true => Ok(()),
            false => self.submit(ask),
        }
    }
}
