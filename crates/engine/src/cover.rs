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
//! After a start that has a resync to do, `covered` waits for the pages that say NeedSync: what is
//! only Dirty then is not resynced.
//!
//! A mirror that becomes an array with parity is covered by the superblocks that say so: all of it is
//! at rest and flushed then. In between, a cut and a member lost with it would be one loss too many
//! for what a mirror survives.
//!
//! Invariants:
//! * `covered` is durable only while no write goes in place without a record.
//! * No record with a number from `log_base` on is older than a change in place that has none.

use strake_format::*;

use crate::array::{Array, Purpose, Stage};
use crate::canary::{self, Canary};
use crate::event::*;
use crate::persist::After;
use crate::reshape::Reshape;
use crate::units::*;

/// From one base to the next. A shard that comes to use half of it asks for the next.
pub(crate) const STRIDE: u64 = 1 << 36;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cover {
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
    /// The numbers of this base run short.
    short: bool,
    /// A member is about to take a slot.
    joins: bool,
}

impl Cover {
    /// The first base after a start; `seen` is above every number in the logs.
    pub(crate) fn new(log_base: u64, seen: u64) -> Cover {
        Cover {
            log_from: log_base.max(seen).saturating_add(STRIDE),
            ..Cover::default()
        }
    }
}

impl Array {
    /// Writes go to the log, as policy and membership are.
    pub(crate) fn logging(&self) -> bool {
        let parity = self.geometry.m > 0 && !self.geometry.mirrored();
        let asked = match self.sb.write_hole {
            WriteHole::Closed => true,
            WriteHole::Degraded => self.slots.iter().any(|s| s.current.is_none()),
            WriteHole::Resync => false,
        };
        parity && asked && self.log_fits()
    }

    /// The log areas are large enough for as many shards.
    pub(crate) fn log_fits(&self) -> bool {
        let bytes = self.sb.layout.log_bytes;
        crate::logs::divide(&self.geometry, bytes, self.shards).is_some()
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
            self.cover.waits = None;
            self.release_held();
        } else if !self.sb.covered && self.cover.waits.is_none() && !self.base_stays() {
            self.next_base();
        }
    }

    /// Nothing is being written, and what is in the logs counts for this base alone.
    fn base_stays(&self) -> bool {
        self.resumed.is_some() || self.reshape.as_ref().is_some_and(Reshape::keeps_base)
    }

    fn next_base(&mut self) {
        (self.cover.short, self.cover.joins) = (false, false);
        self.cover.log_from = self.cover.log_from.saturating_add(STRIDE);
        self.cover.waits = Some((0..self.shards).map(ShardNo).collect());
    }

    /// A shard says that what began before this base is over.
    pub(crate) fn shard_drained(&mut self, shard: ShardNo, log_from: u64) {
        let over = matches!(self.stage, Stage::Closing | Stage::Stopped | Stage::Failed);
        if log_from != self.cover.log_from || over {
            return;
        }
        let Some(waits) = &mut self.cover.waits else {
            return;
        };
        waits.retain(|s| *s != shard);
        if !waits.is_empty() {
            return;
        }
        if self.sb.covered || canary::hit(Canary::CoveredWithoutFlush) {
            return self.base_reached();
        }
        let devices = self.volatile();
        self.cover.flushed_for = log_from;
        self.cover.flushes += devices.len() + 1;
        for device in devices {
            self.io(device, Purpose::Cover { device }, IoKind::Flush);
        }
        self.cover_flushed();
    }

    /// Writes have no records, and none is under way: what there was is made durable.
    pub(crate) fn flush_at_rest(&mut self) {
        if self.sb.covered {
            return;
        }
        let devices = self.volatile();
        self.cover.flushes += devices.len();
        for device in devices {
            self.io(device, Purpose::Cover { device }, IoKind::Flush);
        }
    }

    /// All is at rest and durable: from a new base on every write has a record, if any has.
    pub(crate) fn cover_at_rest(&mut self) {
        if self.logging() && !self.sb.covered && !self.map.untold() {
            self.cover.log_from = self.cover.log_from.saturating_add(STRIDE);
            (self.sb.log_base, self.sb.covered) = (self.cover.log_from, true);
        }
    }

    /// Live members that have a volatile cache.
    fn volatile(&self) -> Vec<DeviceId> {
        let volatile = |d: &DeviceId| self.members[d].info.volatile_cache;
        self.live().into_iter().filter(volatile).collect()
    }

    /// Nothing of this is in flight.
    pub(crate) fn cover_quiet(&self) -> bool {
        self.cover.flushes == 0
    }

    /// One of the flushes is over. Those for an earlier base are waited for, too: no harm.
    pub(crate) fn cover_flushed(&mut self) {
        self.cover.flushes -= 1;
        let due = self.cover.waits.as_ref().is_some_and(Vec::is_empty);
        let current = self.cover.flushed_for == self.cover.log_from;
        if self.cover.flushes == 0 && due && current && self.stage != Stage::Failed {
            self.base_reached();
        }
    }

    /// All that began before the newest base is over, and durable where it has no record.
    fn base_reached(&mut self) {
        self.cover.waits = None;
        self.sb.covered = true;
        self.sb.log_base = self.cover.log_from;
        self.touch();
        self.release_held();
    }

    /// Regions that waited for this base go on when the superblocks are durable.
    fn release_held(&mut self) {
        let held = std::mem::take(&mut self.cover.held);
        self.persist
            .after
            .extend(held.into_iter().map(After::Unmap));
    }

    /// A shard is about to run out of numbers.
    pub(crate) fn numbers_short(&mut self) {
        self.cover.short = true;
    }

    /// Members are about to take slots: a base is to begin, and the one before it, for
    /// [`Array::base_since`].
    pub(crate) fn ask_for_base(&mut self) -> u64 {
        self.cover.joins = true;
        self.cover.log_from
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
            self.cover.regions.push(region);
        }
        at_once
    }

    /// Begins the base that regions wait for.
    pub(crate) fn drive_cover(&mut self) {
        let serving = matches!(self.stage, Stage::Serving | Stage::Stopping);
        if !serving || self.persist.view_due || self.cover.waits.is_some() || self.base_stays() {
            return;
        }
        if self.cover.regions.is_empty() && !self.cover.short && !self.cover.joins {
            return;
        }
        let regions = std::mem::take(&mut self.cover.regions);
        self.cover.held.extend(regions);
        if self.logging() {
            self.next_base();
            self.publish();
        } else {
            // The superblocks that say so are on their way, if they are not durable.
            self.cover.joins = false;
            self.release_held();
        }
    }
}
