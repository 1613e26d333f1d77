//! Which writes are in the stripe log, and what the superblock says of that.
//!
//! `covered` in the superblock: every write that may be under way has its record in the log, so an
//! unclean stop is followed by a replay, not by a resync. `log_base`: records of operations below
//! are retired.
//!
//! Order, when the policy or the membership turns logging on: a view that says so, with numbers
//! from a new base (1); when all that began before it is over on every shard, flushes, so that what
//! has no record is durable (2); superblocks that say `covered` with that base (3). Turning it off:
//! superblocks that say not `covered`, then the view. A region that is given back waits for (1) and
//! (3), too: a record of what lay there must not be found when the region is written again.
//! So does a member that takes a slot. What retires the records that it brings back from before it
//! was away may lie on a single member; and writes that began before then have their records on as
//! many members as could be lost without it.
//!
//! A base exceeds every number that was given out, and is the next one or little more. Shards
//! number by themselves: the array knows what they had come to when they spoke of it last
//! ([`LogCoverage::used`]). A shard that had come further when the view reached it says so, and the
//! array tries a base with some room above that.
//!
//! A start begins above all that lies in the logs, and above what a member that is not there may
//! have of operations that were under way ([`UNDER_WAY_MOST`]). Clean stops note how far numbers
//! were used.
//!
//! After a start that has a resync to do, `covered` waits for the pages that say NeedSync: what is
//! only Dirty then is not resynced.
//!
//! A mirror that becomes an array with parity is covered by the superblocks that say so: all of it
//! is at rest and flushed then. In between, a cut and a member lost with it would be one loss too
//! many for what a mirror survives.
//!
//! Invariants:
//! * `covered` is durable only while no write goes in place without a record.
//! * No record with a number from `log_base` on is older than a change in place that has none,
//!   unless it is retired by its lane (`shard::retire`).
//! * A base is above every number that was given out before it, in this session or another.
//! * Every window of data that moves has a base of its own, whether writes are logged or not.
//! * No number wraps: an array fails, or does not start, before that ([`NUMBERS_END`]).

use strake_format::*;

use crate::array::metadata::superblocks::SuperblockWaiter;
use crate::array::reshape::Reshape;
use crate::array::{Array, Purpose, Stage};
use crate::canary::{self, Canary};
use crate::log::sequence::{NUMBERS_END, NUMBERS_SHORT};
use crate::proto::*;
use crate::units::*;

/// Room that a base leaves for numbers that shards take while it is on its way to them, where the
/// one before was passed; and 16 times as much each time that it did not suffice.
const ROOM: u64 = 1 << 12;
/// Operations of one shard that are under way at once, at most: each has a kilobyte of memory. So
/// far may the numbers in the log of a member that is away be above those of the others.
const UNDER_WAY_MOST: u64 = 1 << 26;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LogCoverage {
    /// What the newest view says.
    pub(crate) log_from: u64,
    /// Shards that have not said that what began before `log_from` is over.
    waits: Option<Vec<ShardNo>>,
    /// Flushes under way, and for which base.
    flushes: usize,
    flushed_for: u64,
    /// Regions that wait for the base under way, and for the next.
    held: Vec<RegionNo>,
    regions: Vec<RegionNo>,
    /// Above every number that a shard had given out when it spoke of it.
    used: u64,
    /// So many bases in a row did not exceed what had been given out when shards heard of them.
    tries: u32,
    /// The next is to begin because of that.
    short: bool,
    /// There is no higher base, or shards are about to have no higher number.
    exhausted: bool,
    /// A member is about to take a slot.
    joins: bool,
}

impl LogCoverage {
    /// The first base after a start; `seen` is above every number in the logs, if these were read:
    /// otherwise `log_base` is.
    pub(crate) fn new(log_base: u64, seen: Option<u64>) -> LogCoverage {
        let log_from = match seen {
            Some(seen) => log_base.max(seen).saturating_add(UNDER_WAY_MOST),
            // A copy of data that moves is not taken for that of another window.
            None => log_base.saturating_add(1),
        };
        LogCoverage {
            log_from,
            used: log_from,
            ..LogCoverage::default()
        }
    }

    /// Above every number that was given out, as far as shards have said.
    pub(crate) fn used(&self) -> u64 {
        self.log_from.max(self.used)
    }

    /// No base can follow.
    pub(crate) fn ended(&self) -> bool {
        self.used() >= NUMBERS_END
    }

    /// There are numbers for the records of a replay, which does not need a base.
    pub(crate) fn may_replay(&self) -> bool {
        self.log_from < NUMBERS_SHORT
    }

    /// A shard has given out numbers below this.
    pub(crate) fn note_used(&mut self, next: u64) {
        self.used = self.used.max(next);
    }

    /// The replay has given out numbers below this; shards have given out none.
    pub(crate) fn replayed(&mut self, next: u64) -> bool {
        let higher = next > self.log_from;
        self.log_from = self.log_from.max(next);
        self.note_used(next);
        higher
    }

    /// The next base, which shards do not know yet.
    fn advance(&mut self) {
        let room = match self.tries {
            0 => 1,
            tries => ROOM << (4 * (tries - 1)).min(24),
        };
        let next = self.used().saturating_add(room);
        self.exhausted |= next > NUMBERS_END;
        self.log_from = next.min(NUMBERS_END).max(self.log_from);
    }
}

impl Array {
    /// Writes go to the log, as policy and membership are.
    pub(crate) fn logging(&self) -> bool {
        let parity = self.geometry.m > 0 && !self.geometry.mirrored();
        let asked = match self.sb.write_hole {
            WriteHole::Closed => true,
            WriteHole::Degraded => self.table.slots().iter().any(|s| s.current().is_none()),
            WriteHole::Resync => false,
        };
        parity && asked && self.log_fits()
    }

    /// The log areas are large enough for as many shards.
    pub(crate) fn log_fits(&self) -> bool {
        let bytes = self.sb.layout.log_bytes;
        crate::log::layout::divide(&self.geometry, bytes, self.shards).is_some()
    }

    /// Before superblocks are written: they must not promise what the next view does not keep.
    pub(crate) fn note_cover(&mut self) {
        let crashed = matches!(self.stage, Stage::Recovering | Stage::Resuming);
        let stays = self.geometry.mirrored() && canary::hit(Canary::MirrorStaysCovered);
        if !crashed && !self.logging() && !stays {
            self.sb.covered = false;
        }
    }

    /// Before a view is published: logging begins with a new base.
    pub(crate) fn before_view(&mut self) {
        if !self.logging() {
            self.log_coverage.waits = None;
            self.release_held();
        } else if !self.sb.covered && self.log_coverage.waits.is_none() && !self.base_stays() {
            self.next_base();
        }
    }

    /// Nothing is being written, and what is in the logs counts for this base alone.
    fn base_stays(&self) -> bool {
        self.resumed.is_some() || self.reshape.as_ref().is_some_and(Reshape::keeps_base)
    }

    fn next_base(&mut self) {
        (self.log_coverage.short, self.log_coverage.joins) = (false, false);
        self.log_coverage.advance();
        self.log_coverage.waits = Some((0..self.shards).map(ShardNo).collect());
    }

    /// A shard had given out numbers from this base on when it heard of it: the next is higher.
    pub(crate) fn shard_past(&mut self, log_from: u64, next: u64) {
        self.log_coverage.note_used(next);
        if log_from == self.log_coverage.log_from && self.log_coverage.waits.take().is_some() {
            self.log_coverage.tries += 1;
            self.log_coverage.short = true;
        }
    }

    /// A shard says that what began before this base is over.
    pub(crate) fn shard_drained(&mut self, shard: ShardNo, log_from: u64) {
        let over = matches!(self.stage, Stage::Closing | Stage::Stopped | Stage::Failed);
        if log_from != self.log_coverage.log_from || over {
            return;
        }
        let Some(waits) = &mut self.log_coverage.waits else {
            return;
        };
        waits.retain(|s| *s != shard);
        if !waits.is_empty() {
            return;
        }
        if self.sb.covered || canary::hit(Canary::CoveredWithoutFlush) {
            return self.base_reached();
        }
        let devices = self.table.volatile();
        self.log_coverage.flushed_for = log_from;
        self.log_coverage.flushes += devices.len() + 1;
        for device in devices {
            self.out
                .io(device, Purpose::LogCoverage { device }, IoKind::Flush);
        }
        self.coverage_flushed();
    }

    /// Writes have no records, and none is under way: what there was is made durable.
    pub(crate) fn flush_at_rest(&mut self) {
        if self.sb.covered {
            return;
        }
        let devices = self.table.volatile();
        self.log_coverage.flushes += devices.len();
        for device in devices {
            self.out
                .io(device, Purpose::LogCoverage { device }, IoKind::Flush);
        }
    }

    /// All is at rest and durable: from a new base on every write has a record, if any has.
    pub(crate) fn cover_at_rest(&mut self) {
        if self.logging() && !self.sb.covered && !self.map.unrecorded() {
            self.log_coverage.advance();
            (self.sb.log_base, self.sb.covered) = (self.log_coverage.log_from, true);
        }
    }

    /// Nothing of this is in flight.
    pub(crate) fn cover_quiet(&self) -> bool {
        self.log_coverage.flushes == 0
    }

    /// One of the flushes is over. Those for an earlier base are waited for, too: no harm.
    pub(crate) fn coverage_flushed(&mut self) {
        self.log_coverage.flushes -= 1;
        let due = self.log_coverage.waits.as_ref().is_some_and(Vec::is_empty);
        let current = self.log_coverage.flushed_for == self.log_coverage.log_from;
        if self.log_coverage.flushes == 0 && due && current && self.stage != Stage::Failed {
            self.base_reached();
        }
    }

    /// All that began before the newest base is over, and durable where it has no record.
    fn base_reached(&mut self) {
        self.log_coverage.waits = None;
        self.log_coverage.tries = 0;
        self.sb.covered = true;
        self.sb.log_base = self.log_coverage.log_from;
        self.persist.touch();
        self.release_held();
    }

    /// Regions that waited for this base go on when the superblocks are durable.
    fn release_held(&mut self) {
        let held = std::mem::take(&mut self.log_coverage.held);
        self.persist
            .waiters
            .extend(held.into_iter().map(SuperblockWaiter::Unmap));
    }

    /// A shard is about to run out of numbers.
    pub(crate) fn numbers_short(&mut self) {
        self.log_coverage.exhausted = true;
    }

    /// Members are about to take slots: a base is to begin, and the one before it, for
    /// [`Array::base_since`].
    pub(crate) fn ask_for_base(&mut self) -> u64 {
        self.log_coverage.joins = true;
        self.log_coverage.log_from
    }

    /// All is at rest, and writes have no records: the base goes on all the same, with the
    /// superblocks that are written for it. Copies of data that moves tell by it which of them
    /// counts.
    pub(crate) fn base_at_rest(&mut self) {
        if !self.logging() {
            self.log_coverage.joins = false;
            self.log_coverage.advance();
            self.sb.log_base = self.log_coverage.log_from;
            self.persist.touch();
        }
    }

    /// A base that began after `before` is reached; or writes are not logged, and need none.
    pub(crate) fn base_since(&self, before: u64) -> bool {
        !self.logging() || (self.sb.covered && self.sb.log_base > before)
    }

    /// A region that is closed is to be given back: true if that can be done at once, otherwise it
    /// waits until no record of it counts.
    pub(crate) fn region_unlogged(&mut self, region: RegionNo) -> bool {
        // That nothing is covered must be durable: until then a record may bring back what lay
        // there.
        let at_once = !self.logging() && !self.sb.covered && self.persist.nothing_wanted();
        let at_once = at_once || canary::hit(Canary::RegionNotRetired);
        if !at_once {
            self.log_coverage.regions.push(region);
        }
        at_once
    }

    /// Begins the base that regions wait for. True if a view is to say so.
    pub(crate) fn drive_log_coverage(&mut self) -> bool {
        let over = matches!(self.stage, Stage::Failed | Stage::Stopped);
        if std::mem::take(&mut self.log_coverage.exhausted) && !over {
            // Without numbers that are higher no write could be told from an older one.
            self.fail(FailCause::NumbersExhausted);
            return false;
        }
        let serving = matches!(self.stage, Stage::Serving | Stage::Stopping);
        if !serving
            || self.persist.view_due
            || self.log_coverage.waits.is_some()
            || self.base_stays()
        {
            return false;
        }
        if self.log_coverage.regions.is_empty()
            && !self.log_coverage.short
            && !self.log_coverage.joins
        {
            return false;
        }
        let regions = std::mem::take(&mut self.log_coverage.regions);
        self.log_coverage.held.extend(regions);
        let begins = self.logging();
        if begins {
            self.next_base();
        } else {
            // The superblocks that say so are on their way, if they are not durable.
            self.log_coverage.joins = false;
            self.release_held();
        }
        begins
    }
}
