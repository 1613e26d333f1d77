//! What `show` tells of an array: words and counts, as data.
//!
//! Invariant: everything here is a copy; nothing in it changes the array. Deliberately absent: how
//! it is said (`strake`).

use std::ops::Range;

use strake_format::{Generation, MapPage, MemberUuid, RegionState, Superblock};

use crate::proto::*;
use crate::stats::device_latency::HedgeCounts;
use crate::stats::histogram::Distribution;
use crate::units::*;

/// State of the array, one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayState {
    /// Every member in sync.
    Optimal,
    /// Members missing, data all there.
    Degraded,
    /// More members missing than the level survives.
    Failed,
    /// Not serving.
    Stopped,
}

/// State of a member, one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Holds what it should.
    InSync,
    /// Being rebuilt.
    Rebuilding,
    /// Not there.
    Missing,
    /// Taken out of service.
    Failed,
    /// There, but has missed writes.
    Stale,
    /// Waiting for use.
    Spare,
}

/// How many regions are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionCounts {
    /// Never written, or given back since: they read as zeros.
    pub unwritten: u64,
    /// Parity is true, and no write is under way.
    pub clean: u64,
    /// Being written, or on the way from one state to another.
    pub dirty: u64,
    /// Parity is not to be trusted until a resync.
    pub need_sync: u64,
}

impl RegionCounts {
    /// One more region.
    pub fn add(&mut self, state: RegionState) {
        let count = match state {
            RegionState::Unwritten => &mut self.unwritten,
            RegionState::Clean => &mut self.clean,
            RegionState::Dirty => &mut self.dirty,
            RegionState::NeedSync => &mut self.need_sync,
        };
        *count += 1;
    }
}

/// Everything that `show` tells.
#[derive(Clone, Debug)]
pub struct Status {
    /// The superblock's view of the array (name, level, geometry, epoch, settings); as of the first
    /// member.
    pub superblock: Superblock,
    /// One word.
    pub state: ArrayState,
    /// Size of the block device, bytes.
    pub size_bytes: u64,
    /// Bytes of the block device in regions never written.
    pub unwritten_bytes: u64,
    /// Regions by their state.
    pub regions: RegionCounts,
    /// Bytes of the block device that lost their content, in order.
    pub unreadable: Vec<Range<u64>>,
    /// The version of each page of the region map that a member must show which comes back in part;
    /// 0 where that is not known.
    pub map_had: Vec<u64>,
    /// Regions with strips that were built from others that did not agree, in order.
    pub undecided: Vec<RegionNo>,
    /// Slots and spares.
    pub members: Vec<MemberStatus>,
    /// Jobs at work or paused.
    pub jobs: Vec<JobStatus>,
    /// Rebuilds were stopped, and wait for their start.
    pub rebuilds_stopped: bool,
    /// A rebuild could not compute stripes: it waits for its start, or for other members.
    pub rebuild_blocked: bool,
    /// What it was told last of spares elsewhere.
    pub spares_elsewhere: bool,
}

impl Status {
    /// What a member with these versions in its region map lacks of those that it must show, if it
    /// was away and is to come back by a partial rebuild.
    pub fn lacks(&self, map: &[Option<MapPage>]) -> Option<Lack> {
        lacks(map, &self.map_had).next()
    }
}

/// A member as `show` tells it.
#[derive(Clone, Debug)]
pub struct MemberStatus {
    /// Its slot; `None` for a spare.
    pub slot: Option<Slot>,
    /// The device, if it is there.
    pub device: Option<DeviceId>,
    /// Its identity (nil where a slot was vacated).
    pub member: MemberUuid,
    /// One word.
    pub state: MemberState,
    /// Both copies of its superblock have this generation, or a newer one.
    pub heard: Generation,
    /// It stays in service although its superblocks speak against it: why it would be out.
    pub doubted: Option<OutCause>,
    /// Writes to it have waited for space since then, seconds since 1970.
    pub full_since_unix_s: Option<u64>,
    /// Read errors since start.
    pub read_errors: u64,
    /// Write errors since start.
    pub write_errors: u64,
    /// Pieces of strips that scrubs found wrong since start.
    pub mismatches: u64,
    /// I/Os that were tried again since start.
    pub retries: RetryCounts,
    /// How long it takes.
    pub latency: LatencyStatus,
    /// The member is missing, and a spare takes its place after so long, nanoseconds.
    pub spare_in_ns: Option<u64>,
    /// The slot has no member and waits for none, and there is no spare: a device that is added now
    /// is used at once. Or the member in sync here has too many read errors, and is to be replaced.
    pub wants_spare: bool,
    /// The slot has no device, and the member that was found of it at the start is not used: why.
    pub aside: Option<Aside>,
}

/// What has the content of a member that is out, or of blocks of it that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// The other members, by redundancy.
    Others,
    /// Another member of its slot.
    SameSlot,
    /// Nothing: no redundancy is left.
    Nothing,
}

/// How long a member takes, as `show` tells it; as of the last second in which it was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyStatus {
    /// Of its recent reads, if there were any.
    pub read: Option<Quantiles>,
    /// Of its recent writes.
    pub write: Option<Quantiles>,
    /// All of its reads since it took its slot here.
    pub all_reads: Distribution,
    /// All of its writes.
    pub all_writes: Distribution,
    /// What became of hedges of its reads since the start.
    pub hedges: HedgeCounts,
    /// It has been far slower than the others for a while.
    pub slow: bool,
}

/// Quantiles of recent latencies, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantiles {
    /// Half of them are below.
    pub p50_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
}

/// What makes a job slower than the members and the processor would let it be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// Nothing.
    None,
    /// It pauses for its priority.
    Priority,
    /// It does less than its priority allows, so that requests keep to the latency target.
    Latency,
}

/// A job as `show` tells it.
#[derive(Clone, Copy, Debug)]
pub struct JobStatus {
    /// Which.
    pub kind: JobKind,
    /// For a rebuild, the (first) slot.
    pub slot: Option<Slot>,
    /// A rebuild of nothing but what was written while members were away.
    pub partial: bool,
    /// Bytes of member space done, over all members of the array's height.
    pub done_bytes: u64,
    /// Bytes of member space in all (regions never written count as nothing).
    pub total_bytes: u64,
    /// Bytes per second since it started.
    pub rate_bytes_per_s: u64,
    /// It waits for `rebuild start`.
    pub paused: bool,
    /// What makes it slower than it could be.
    pub held_back: HeldBack,
    /// The p99 of reads and writes beside it in the last seconds, nanoseconds; none if there were
    /// none.
    pub foreground_p99_ns: Option<u64>,
    /// Stripes found inconsistent so far.
    pub inconsistent: u64,
    /// Those of them that are consistent again.
    pub repaired: u64,
}

/// State of a region, as the map has it (for `explain`).
pub type Region = RegionState;
