//! Closes regions that have gone without writes.
//!
//! An open region is Dirty on the members: after an unclean stop it may need a resync, and a member
//! that comes back lacks it. So a *sweep*, every `clean_after_ms`, closes the regions that were not
//! written since the sweep before. But the first write to a closed region must wait until a page of
//! the map is durable on every member. Where writes are rare, as those of a database that waits for
//! each of them, opening the region costs more than the write itself.
//!
//! So each region has a *reopen history*. If a region is opened again soon after it was closed, and
//! had few writes while it was open, the sweep visits it only every second, fourth … time, as often
//! as its writes come: then each visit finds it written, and it stays open. A region that had many
//! writes in between, or none for long, is visited by every sweep again.
//!
//! Invariants:
//! * A region without writes is closed after twice [`LONGEST`] sweeps, whatever its history.
//! * Regions that stay open by their history are no more than [`KEPT_BYTES`] of a member: a resync
//!   of them, or a rebuild of what a member lacks of them, takes a minute.
//!
//! Deliberately absent: what closing is (`regions`, `shard::region_gate`), and the flushes
//! (`flush_barrier`).

use crate::array::regions::{Map, Phase};
use crate::array::{Array, Stage};
use crate::geometry::Geometry;
use crate::proto::*;
use crate::units::*;

/// At most, a sweep visits a region once in so many sweeps.
const LONGEST: u64 = 32;

/// With more writes than that, what opening costs is a small part of what they do.
const FEW: u32 = 64;

/// Of each member, bytes in regions that stay open by their history.
const KEPT_BYTES: u64 = 64 << 30;

/// How often a region was written so far, which tells when it will be opened again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReopenHistory {
    /// One sweep in 2 to the power of this visits the region.
    rare: u32,
    /// It is open, and counts among those that stay open by their history.
    kept: bool,
    /// Operations that wrote while it was open.
    writes: u32,
    /// When it was closed, if it ever was.
    closed: Option<Time>,
}

impl ReopenHistory {
    /// Operations have written.
    pub(crate) fn saw(&mut self, writes: u32) {
        self.writes = self.writes.saturating_add(writes);
    }

    /// It was written once in 2 to the power of the result sweeps; 0 if its history shows no such
    /// rhythm.
    fn learn(&self, now: Time, sweep_ms: u64) -> u32 {
        let Some(closed) = self.closed else { return 0 };
        let shut = now.since(closed).div_ceil(sweep_ms.max(1) * 1_000_000);
        let gap = (1 << self.rare) + shut;
        match self.writes <= FEW && gap <= LONGEST {
            true => gap.next_power_of_two().ilog2(),
            false => 0,
        }
    }
}

/// Sweeps, and how many regions they leave.
#[derive(Debug)]
pub(crate) struct Idle {
    clean_after_ms: u64,
    /// When the next is due.
    pub(crate) sweep: Option<Time>,
    /// So many were done.
    sweeps: u64,
    /// Regions that are open by their history, and how many may be.
    kept: u64,
    most: u64,
}

impl Idle {
    pub(crate) fn new(geometry: &Geometry, clean_after_ms: u64) -> Idle {
        Idle {
            clean_after_ms,
            sweep: None,
            sweeps: 0,
            kept: 0,
            most: KEPT_BYTES / (geometry.region_rows * geometry.strip),
        }
    }

    /// The region that has this history is opened again.
    fn open(&mut self, history: &mut ReopenHistory, now: Time) {
        history.rare = match self.kept < self.most {
            true => history.learn(now, self.clean_after_ms),
            false => 0,
        };
        history.kept = history.rare > 0;
        self.kept += u64::from(history.kept);
        history.writes = 0;
    }

    /// It is open no more.
    fn close(&mut self, history: &mut ReopenHistory) {
        self.kept -= u64::from(std::mem::take(&mut history.kept));
    }
}

impl Map {
    /// The region holds nothing any more: its history says nothing about later writes.
    pub(crate) fn forget_history(&mut self, region: RegionNo) {
        let history = &mut self.regions[region.0 as usize].history;
        self.idle.close(history);
        *history = ReopenHistory::default();
    }
}

impl Array {
    /// Looks for idle regions after a while.
    pub(crate) fn sweep_later(&mut self) {
        let next = self.out.now().plus_ms(self.map.idle.clean_after_ms);
        self.map.idle.sweep.get_or_insert(next);
    }

    /// Looks for idle regions after a while, if any are open (some are from the start).
    pub(crate) fn arm_sweep(&mut self) {
        if self.map.regions.iter().any(|r| r.phase == Phase::Open) {
            self.sweep_later();
        }
    }

    /// Looks for open regions without writes and closes them, if it is time.
    pub(crate) fn sweep(&mut self) {
        let idle = &mut self.map.idle;
        let due = idle.sweep.is_some_and(|at| at <= self.out.now());
        if !due || self.stage != Stage::Serving || self.reshape.is_some() {
            return;
        }
        idle.sweep = None;
        idle.sweeps += 1;
        let sweeps = idle.sweeps;
        let open = self.regions_in(Phase::Open);
        for &region in &open {
            if sweeps.is_multiple_of(1 << self.map.region(region).history.rare) {
                self.close(region, CloseIf::Idle, false);
            }
        }
        if !open.is_empty() {
            self.sweep_later();
        }
    }

    /// Shards have closed the region, to make it Clean or to give it back.
    pub(crate) fn note_closed(&mut self, region: RegionNo, unmap: bool) {
        if unmap {
            return self.map.forget_history(region);
        }
        let history = &mut self.map.regions[region.0 as usize].history;
        self.map.idle.close(history);
        history.closed = Some(self.out.now());
    }

    /// A region that is Clean is opened again.
    pub(crate) fn learn_habit(&mut self, region: RegionNo) {
        let history = &mut self.map.regions[region.0 as usize].history;
        self.map.idle.open(history, self.out.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWEEP_MS: u64 = 2000;

    /// Closed at 100 s.
    fn history(rare: u32, writes: u32) -> ReopenHistory {
        ReopenHistory {
            rare,
            writes,
            closed: Some(Time(100_000_000_000)),
            ..ReopenHistory::default()
        }
    }

    #[test]
    fn a_region_that_is_written_now_and_then_is_asked_as_rarely_as_that() {
        let learn = |history: ReopenHistory, ms: u64| {
            let closed = history.closed.expect("it was closed");
            history.learn(closed.plus_ms(ms), SWEEP_MS)
        };
        // It was idle for a sweep, and shut for one or less; then for three, then for six.
        assert_eq!(learn(history(0, 3), 1), 1);
        assert_eq!(learn(history(0, 3), 6000), 2);
        assert_eq!(learn(history(2, 3), 6 * SWEEP_MS), 4);
        // The longest, and one sweep more.
        assert_eq!(learn(history(4, FEW), 16 * SWEEP_MS), 5);
        assert_eq!(learn(history(4, 3), 16 * SWEEP_MS + 1), 0);
        // What is written much while it is open may close in between.
        assert_eq!(learn(history(4, FEW + 1), 1), 0);
        // Never closed: nothing is known of it, also soon after the start.
        assert_eq!(
            ReopenHistory::default().learn(Time(1_000_000_000), SWEEP_MS),
            0
        );
    }

    #[test]
    fn no_more_regions_stay_open_by_habit_than_a_minute_resyncs() {
        let mut idle = Idle {
            clean_after_ms: SWEEP_MS,
            sweep: None,
            sweeps: 0,
            kept: 0,
            most: 2,
        };
        let now = Time(101_000_000_000);
        let mut histories = [history(0, 1); 4];
        for history in &mut histories {
            idle.open(history, now);
        }
        assert_eq!(
            histories.map(|history| history.rare > 0),
            [true, true, false, false]
        );
        // Where one is closed another may stay open; twice closed is closed once.
        idle.close(&mut histories[0]);
        idle.close(&mut histories[0]);
        idle.close(&mut histories[3]);
        assert_eq!(idle.kept, 1);
        histories[2].closed = Some(now);
        idle.open(&mut histories[2], now.plus_ms(1));
        assert!(histories[2].rare > 0);
        idle.open(&mut histories[3], now.plus_ms(1));
        assert_eq!((histories[3].rare, idle.kept), (0, 2));
    }
}
