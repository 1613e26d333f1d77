//! The array's control: membership, superblocks, region map, jobs.
//!
//! Order of a membership change (a member lost, a spare used, a rebuild finished):
//! 1. the table in memory changes, the epoch grows when a member's word changes;
//! 2. the superblocks are written on every live member: first copy, then second
//!    (`metadata::superblocks`);
//! 3. only when they are durable everywhere is the new view published; shards that held back
//!    answers for a
//!    lost member go on then.
//!
//! Invariants:
//! * No view is published that is not durable on every live member.
//! * Beyond the tolerance nothing is written any more: what a person could still recover stays as
//!   it is.
//!
//! Deliberately absent: user data; that is the shards'.

mod command;
mod converge;
mod invariants;
pub(crate) mod jobs;
pub(crate) mod members;
pub(crate) mod metadata;
mod outbox;
mod preflight;
pub(crate) mod read_lease;
pub(crate) mod regions;
pub(crate) mod reshape;
mod stage;
pub(crate) mod start;
mod status;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use strake_format::*;

use crate::array::jobs::Jobs;
use crate::array::jobs::zeroing::Init;
use crate::array::members::deadlines::Overdue;
use crate::array::members::table::Table;
use crate::array::metadata::bad_blocks::Unreadable;
use crate::array::metadata::log_coverage::LogCoverage;
use crate::array::metadata::superblocks::{Persist, SuperblockWaiter};
use crate::array::outbox::Outbox;
use crate::array::read_lease::LeaseState;
use crate::array::regions::Map;
use crate::array::reshape::migrate::{Move, MoveIo};
use crate::array::reshape::{Change, Reshape};
use crate::array::start::replay::{Replay, ReplayIo};
use crate::array::start::resume::Resumed;
use crate::geometry::Geometry;
use crate::geometry::region_set::RegionSet;
use crate::proto::*;
use crate::stats::device_latency::HedgeRules;
use crate::units::*;

pub(crate) use crate::array::members::table::{Member, SlotUse};
pub(crate) use crate::array::stage::Stage;
pub use crate::array::start::assemble::{StartError, StartOptions};

/// What a member I/O of the array was for.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    /// A read of what lies where a superblock is about to be written.
    SuperblockRead {
        device: DeviceId,
        place: usize,
    },
    Superblock {
        device: DeviceId,
        place: usize,
    },
    MapPage {
        page: u32,
        device: DeviceId,
    },
    /// A version of the list of unreadable blocks.
    Unreadable {
        device: DeviceId,
    },
    /// Zeroing a region (before its first write, or after a discard).
    Zero {
        region: RegionNo,
        device: DeviceId,
    },
    /// Zeroing a piece of a region in the background.
    Init {
        device: DeviceId,
    },
    /// Zeroing of what a growth adds to a region that was written, or the flush after it.
    Extend {
        device: DeviceId,
    },
    /// Flush before regions become clean, or are opened after zeroes.
    FlushBarrier {
        device: DeviceId,
    },
    /// Flush before the array stops.
    LastFlush {
        device: DeviceId,
    },
    /// Flush of a rebuild's targets.
    Checkpoint {
        device: DeviceId,
    },
    /// Flush before the superblock says that the log covers everything.
    LogCoverage {
        device: DeviceId,
    },
    /// An I/O of data that moves.
    Move {
        device: DeviceId,
        io: MoveIo,
    },
    /// An I/O of the replay.
    Replay {
        device: DeviceId,
        io: ReplayIo,
    },
}

impl Purpose {
    pub(crate) fn device(&self) -> DeviceId {
        match self {
            Purpose::SuperblockRead { device, .. }
            | Purpose::Superblock { device, .. }
            | Purpose::MapPage { device, .. }
            | Purpose::Unreadable { device }
            | Purpose::Zero { device, .. }
            | Purpose::Init { device }
            | Purpose::Extend { device }
            | Purpose::FlushBarrier { device }
            | Purpose::LastFlush { device }
            | Purpose::Checkpoint { device }
            | Purpose::LogCoverage { device }
            | Purpose::Move { device, .. }
            | Purpose::Replay { device, .. } => *device,
        }
    }
}

/// The control machine of one array.
#[derive(Debug)]
pub struct Array {
    geometry: Arc<Geometry>,
    shards: u16,
    stage: Stage,
    /// Why the array has failed, until that was said.
    failing: Option<FailCause>,
    /// Settings and progress as they shall be on the members; what is in the table is not in it.
    sb: Superblock,
    table: Table,
    view: Arc<View>,
    persist: Persist,
    map: Map,
    /// For each incoming member that was away: the regions that it lacks.
    lacking: BTreeMap<DeviceId, Arc<RegionSet>>,
    unreadable: Unreadable,
    jobs: Jobs,
    lease: LeaseState,
    out: Outbox,
    shown: ArrayState,
    stop: Option<CommandId>,
    unclean: bool,
    /// Started by force: see [`View::forced`].
    forced: Vec<Slot>,
    log_coverage: LogCoverage,
    /// Devices that are late with I/Os.
    overdue: Overdue,
    replay: Option<Replay>,
    reshape: Option<Reshape>,
    moving: Move,
    init: Init,
    resumed: Option<Resumed>,
    /// A spare can be had from elsewhere, for a member that has too many read errors.
    elsewhere: bool,
    /// Shards were made for another frontier than that of the first superblocks.
    resplit: bool,
    /// Bytes of data that move at once, about.
    window_bytes: u64,
    hedging: HedgeRules,
}

impl Array {
    /// What the shards need. Take it before `start`.
    pub fn setup(&self) -> ShardSetup {
        ShardSetup {
            geometry: Arc::clone(&self.geometry),
            view: Arc::clone(&self.view),
            regions: self.map.accesses(),
            lost: self.unreadable.published(),
            array: self.sb.array,
            log_offset: self.sb.layout.log_offset,
            log_bytes: self.sb.layout.log_bytes,
            hedging: self.hedging,
        }
    }

    /// Begins: writes the superblocks; [`ArrayOutput::Started`] follows when they are durable.
    pub fn start(&mut self, now: Time) {
        self.out.input_at(now);
        self.out.start_wall(now);
        self.table.await_missing(now);
        self.resume_scrub();
        if self.resumed.is_some() {
            self.stage = Stage::Resuming;
        } else if self.replay.is_some() {
            self.begin_replay();
        } else {
            self.begin_service();
        }
        self.converge();
    }

    /// A member I/O of the array has finished.
    pub fn complete(&mut self, now: Time, completion: Completion) {
        self.out.input_at(now);
        let purpose = self.out.completed(completion.io);
        let device = purpose.device();
        if let Purpose::Replay { io, .. } = purpose {
            self.replay_done(device, io, completion);
            return self.converge();
        }
        if let Purpose::Move { io, .. } = purpose {
            match self.resumed.is_some() {
                true => self.resumed_io_done(device, &completion),
                false => self.move_io_done(device, io, completion),
            }
            return self.converge();
        }
        if let Purpose::SuperblockRead { place, .. } = purpose {
            if self.superblock_read(device, place, &completion) {
                self.write_pages();
            }
            return self.converge();
        }
        if let Err(error) = completion.result {
            self.write_failed(device, error);
        }
        match purpose {
            Purpose::Superblock { place, .. } => {
                if self.superblock_written(device, place) {
                    self.write_pages();
                }
            }
            Purpose::MapPage { page, .. } => self.page_written(page),
            Purpose::Unreadable { .. } => self.list_written(),
            Purpose::Zero { region, .. } => self.region_zeroed(region),
            Purpose::Init { .. } => self.init_io_done(),
            Purpose::Extend { device } => self.extended(device),
            Purpose::FlushBarrier { .. } => self.barrier_flushed(),
            Purpose::LastFlush { .. } => self.last_flush_done(),
            Purpose::Checkpoint { .. } => self.checkpoint_flushed(),
            Purpose::LogCoverage { .. } => self.coverage_flushed(),
            Purpose::SuperblockRead { .. } | Purpose::Move { .. } | Purpose::Replay { .. } => {
                unreachable!("handled above")
            }
        }
        self.converge();
    }

    /// A message from a shard.
    pub fn message(&mut self, now: Time, from: ShardNo, message: FromShard) {
        self.out.input_at(now);
        match message {
            FromShard::ViewApplied { version } => self.shard_took_view(from, version),
            FromShard::MemberError {
                device,
                error,
                write,
                offset,
            } => {
                self.member_error(device, error, write, offset);
            }
            FromShard::Repaired {
                device,
                offset,
                len,
            } => self.strip_repaired(device, offset, len),
            FromShard::Mismatch {
                device,
                offset,
                len,
                repaired,
            } => self.mismatch_found(device, offset, len, repaired),
            FromShard::Inconsistent { stripe, from, len } => {
                self.inconsistent_found(stripe, from, len);
            }
            FromShard::List { op, change, parts } => self.shard_lists(from, op, change, &parts),
            FromShard::Undecided { op, stripe } => self.shard_undecided(from, op, stripe),
            FromShard::AwaitVerdict { op } => self
                .persist
                .waiters
                .push(SuperblockWaiter::Verdict(from, op)),
            FromShard::NeedRegion { region } => self.region_needed(region),
            FromShard::RegionEmpty { region } => self.region_emptied(region, from),
            FromShard::RegionClosed {
                region,
                closed,
                writes,
                next_number,
            } => {
                self.log_coverage.note_used(next_number);
                self.region_closed(region, from, closed, writes);
            }
            FromShard::StepDone {
                step,
                outcome,
                seen,
            } => self.step_done(step, outcome, seen.as_deref()),
            FromShard::Drained { log_from } => self.shard_drained(from, log_from),
            FromShard::NumbersPast { log_from, next } => self.shard_past(log_from, next),
            FromShard::NumbersShort => self.numbers_short(),
            FromShard::Quiesced {
                buffers,
                next_number,
                foreground,
                seen,
            } => {
                self.log_coverage.note_used(next_number);
                self.shard_held(from, buffers);
                self.served_beside_move(foreground, seen.as_deref());
            }
            FromShard::LeaseReturned => self.shard_returned_lease(),
            FromShard::Latencies(report) => self.latencies_told(from, report),
        }
        self.converge();
    }

    /// A user request that the router sends to the array (whole regions of discard or
    /// write-zeroes).
    pub fn submit(&mut self, now: Time, request: Request) {
        self.out.input_at(now);
        self.unmap_asked(request);
        self.converge();
    }

    pub(crate) fn unmap_asked(&mut self, request: Request) {
        if let Some(reshape) = self.reshape.as_mut().filter(|r| r.holds_unmaps()) {
            return reshape.keep_unmap(request);
        }
        match (self.stage, &request.op) {
            (Stage::Failed, _) => self.out.reply(request.id, Err(RequestError::Failed)),
            (Stage::Serving, Op::Discard { offset, len } | Op::WriteZeroes { offset, len, .. })
                if self.geometry.valid(*offset, *len) =>
            {
                let (offset, len) = (*offset, *len);
                self.unmap(request, offset, len);
            }
            (Stage::Serving, _) => self.out.reply(request.id, Err(RequestError::Invalid)),
            _ => self.out.reply(request.id, Err(RequestError::Stopping)),
        }
    }

    /// The runtime saw a device vanish.
    pub fn device_gone(&mut self, now: Time, device: DeviceId) {
        self.out.input_at(now);
        self.member_out(device, OutCause::Gone);
        self.converge();
    }

    /// Time has passed (call at [`Array::deadline`] or later).
    pub fn tick(&mut self, now: Time) {
        self.out.input_at(now);
        self.judge_overdue();
        self.forget_full();
        if self.sweep_at().is_some_and(|at| at <= now) {
            self.sweep();
        }
        self.converge();
    }

    /// The time of day, seconds since 1970. The driver gives it before other inputs: a clock may be
    /// set at any time, forwards or backwards, and goes on while the machine is suspended.
    pub fn wall_clock(&mut self, now: Time, unix_s: u64) {
        self.out.set_wall(now, unix_s);
    }

    /// When `tick` wants to be called.
    pub fn deadline(&self) -> Option<Time> {
        let both = [self.sweep_at(), self.overdue.deadline()];
        both.into_iter().flatten().min()
    }

    fn sweep_at(&self) -> Option<Time> {
        if !matches!(self.stage, Stage::Serving) {
            return None;
        }
        if self.reshape.is_some() {
            return None;
        }
        [
            self.map.deadline(),
            self.jobs.deadline(),
            self.spare_deadline(),
            self.moving.next_at,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The next effect.
    pub fn poll(&mut self) -> Option<ArrayOutput> {
        self.out.poll()
    }

    /// The stripe log is being replayed: nothing is served yet.
    pub fn recovering(&self) -> bool {
        matches!(self.stage, Stage::Recovering | Stage::Resuming)
    }

    /// It was cut off in a window of data that moves, which is to be written again.
    pub fn resumes(&self) -> bool {
        self.resumed.is_some()
    }

    /// A window of data that moves is being copied, or written over rows that count: a crash may
    /// find its copy.
    pub fn moves_by_copy(&self) -> bool {
        let change = self.reshape.as_ref().map(|reshape| &reshape.change);
        matches!(change, Some(Change::Window(window)) if window.is_copied())
    }

    /// State of a region.
    pub fn region(&self, region: RegionNo) -> RegionState {
        self.map.state(region)
    }

    /// What shards may do in a region, as far as they were told.
    pub fn access(&self, region: RegionNo) -> RegionAccess {
        self.map.access(region)
    }

    /// The arithmetic.
    pub fn geometry(&self) -> &Arc<Geometry> {
        &self.geometry
    }
}
