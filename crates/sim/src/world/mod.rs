//! One simulated machine: devices, the engine's state machines, messages between them, and a user.
//!
//! Invariants: everything that happens comes off the clock's queue, one at a time; after every
//! input the machine that got it is polled dry; the oracle records a request before the engine gets
//! it, and an answer before the user sends anything more.
//!
//! Deliberately absent: which faults come when (`life`), how an array is put together (`launch`).

mod admin;
mod clock;
pub mod events;
pub mod fault;
pub mod inspect;
pub mod launch;
pub mod life;
pub mod lost_blocks;
mod member_io;
pub mod reshape;
mod standstill;
mod trace;
pub mod user;
pub(crate) mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Array, EioGrace, Geometry, HedgeRules, Late, Pulse, Router, Shard, Verdict};
use strake_format::Superblock;

use crate::canary::Canary;
use crate::drive::{OpNo, Owner, Ssd};
use crate::oracle::Oracle;
use crate::plan::Plan;
use crate::plan::workload::Swarm;
use crate::prng::{Prng, Purpose};
use crate::report::words::op_text;
use crate::report::{Failure, Stats};
use crate::world::admin::Admin;
use crate::world::clock::{Clock, Place};
use crate::world::fault::decay::Decay;
use crate::world::fault::metadata::Metadata;
use crate::world::fault::past::Pasts;
use crate::world::fault::planted::Planted;
use crate::world::fault::ruined::Ruined;
use crate::world::fault::silent::Silent;
use crate::world::launch::Memo;
use crate::world::life::beyond_tolerance::Demand;
use crate::world::trace::Trace;
use crate::world::user::User;
use crate::world::volumes::Volumes;

/// The longest delay of messages from the array to a slow shard, nanoseconds.
const SLOW_MAIL_NS: u64 = 2_000_000;

/// Result of going on: a failure ends the world.
pub type SimResult<T = ()> = Result<T, Box<Failure>>;

/// What travels on the clock's queue.
pub(crate) enum Happening {
    /// An I/O of a drive ends.
    Io(usize, OpNo),
    /// One that failed on its way is tried again.
    Retry(usize, OpNo),
    /// The deadline of an I/O passes.
    Due(usize, OpNo),
    /// The array gets the report that I/Os of a device are not answered.
    Overdue(DeviceId, Late),
    /// A thread gets the array's decision about that.
    Judged(Owner, DeviceId, Verdict),
    /// A thread that stood still goes on.
    GoesOn(Owner),
    /// Devices have space again.
    Space,
    /// A message reaches a shard.
    ToShard(u16, ToShard),
    /// A request reaches a shard.
    AskShard(u16, Request),
    /// A read of a stripe that the first shard owns reaches the second shard, which has the queue
    /// that it came by.
    RemoteRead(ShardNo, u16, Request),
    /// A read that another shard began reaches its owner, with the member that is late.
    Passed(u16, Request, Option<DeviceId>),
    /// The turn of a rebuild reaches a shard.
    WriteToken(u16, WriteToken),
    /// A message reaches the array.
    FromShard(u16, FromShard),
    /// A request reaches the array.
    AskArray(Request),
    /// A command reaches the array.
    Command(CommandId, Command),
    /// A drive that was opened as this device vanishes.
    Vanishes(usize, DeviceId),
    /// The array gets the report that a device vanished.
    Gone(DeviceId),
    /// A piece reaches the export queue that made it, to be split anew.
    Again(u16, Request),
    /// An answer reaches an export queue.
    Answer(u16, Reply),
    /// The array's deadline.
    Tick,
    /// A shard's deadline.
    ShardTick(u16),
    /// The user may go on.
    Wake,
    /// The user lets go of what it read, which may have held so many buffers.
    Drop(Slices, u64),
}

/// A drive and what the simulator knows of it.
pub struct Drive {
    /// The drive.
    ssd: Ssd,
    memo: Memo,
    /// The engine's number for it, while it is open.
    device: Option<DeviceId>,
    /// A fault that will surely fail it is under way.
    doomed: bool,
    /// Left out at the next start.
    hidden: bool,
    /// It lost its power when it vanished.
    pulled: bool,
    /// It belongs, or belonged, to the array.
    used: bool,
    /// It does not answer in time, or did not, and is to be there again by itself.
    stalls: bool,
    /// Its errors that say nothing of why, since it was opened as this device.
    eio_grace: Option<(DeviceId, EioGrace)>,
    /// It stands still beside others until then.
    stands: Option<Time>,
}

impl Drive {
    fn new(ssd: Ssd) -> Drive {
        Drive {
            ssd,
            memo: Memo::default(),
            device: None,
            doomed: false,
            hidden: false,
            pulled: false,
            used: false,
            stalls: false,
            stands: None,
            eio_grace: None,
        }
    }
    /// What it is made of.
    pub fn ssd(&self) -> &Ssd {
        &self.ssd
    }
    /// The engine's number for it, while it is open.
    pub fn device(&self) -> Option<DeviceId> {
        self.device
    }
    /// Left out at the next start.
    pub fn is_hidden(&self) -> bool {
        self.hidden
    }
    /// It belongs, or belonged, to the array.
    pub fn is_used(&self) -> bool {
        self.used
    }
}

/// The engine's machines of one life.
struct Machines {
    /// Control.
    array: Array,
    /// Data.
    shards: Vec<Shard>,
    /// Export queues.
    routers: Vec<Router>,
    /// The arithmetic.
    geometry: Arc<Geometry>,
    /// It serves.
    started: bool,
    /// It has stopped.
    stopped: bool,
    /// When the next tick is on the queue.
    tick_at: Option<Time>,
    /// The same of each shard.
    shard_ticks: Vec<Option<Time>>,
    /// How long the array's thread, and then each shard's, has run.
    pulses: Vec<Pulse>,
    /// A thread that stands still, since when, and what waits for it.
    standing: Option<(Owner, Time, Vec<Happening>)>,
    /// I/Os of the array in flight.
    array_ios: usize,
    /// Reads in place in flight, by shard and number: the request that has the place, and which
    /// bytes of it.
    in_place: BTreeMap<(u16, u64), (RequestId, Range<usize>)>,
    /// How often a shard was polled to its end.
    polls: u64,
}

/// The streams of chance.
struct Chances {
    /// Requests.
    workload: Prng,
    /// Latencies.
    latency: Prng,
    /// Faults.
    faults: Prng,
    /// What survives.
    fate: Prng,
    /// Identities.
    identity: Prng,
    /// Latency faults of devices.
    latency_fault: Prng,
    /// Devices that are reset.
    reset: Prng,
    /// Devices that are about to vanish.
    removal: Prng,
    /// What stands still.
    standstill: Prng,
    /// What has no space.
    full: Prng,
}

impl Chances {
    /// Those of a seed; the array has been made, with some of the identities.
    fn new(seed: u64, identity: Prng) -> Chances {
        Chances {
            workload: Prng::new(seed, Purpose::Workload),
            latency: Prng::new(seed, Purpose::Latency),
            faults: Prng::new(seed, Purpose::Faults),
            fate: Prng::new(seed, Purpose::Fate),
            identity,
            latency_fault: Prng::new(seed ^ 1, Purpose::LatencyFault),
            reset: Prng::new(seed, Purpose::Reset),
            removal: Prng::new(seed, Purpose::Removal),
            standstill: Prng::new(seed, Purpose::Standstill),
            full: Prng::new(seed, Purpose::Full),
        }
    }
}

/// What the world knows of the array that decides which answers are right.
#[derive(Default)]
struct Expected {
    /// Redundancy may be untrue since an unclean stop.
    resyncing: bool,
    /// The array was stopped cleanly, and everything is in order.
    clean: bool,
    /// Regions in which requests may be refused, because reads failed while parity was untrue.
    excused: Vec<RegionNo>,
    /// Blocks that were being written when the process died: if a member is lost before the log is
    /// replayed, they may answer an error.
    torn_blocks: BTreeSet<u64>,
    /// The stripes of those of the last crash, until the array serves again and they were looked
    /// at.
    torn_stripes: BTreeSet<u64>,
    /// Drives and offsets of blocks of which the last crash left only some sectors new.
    torn_on: Vec<(usize, u64)>,
    /// Blocks that leave the list of unreadable blocks, until the shard that answers them knows.
    unlisting: BTreeSet<u64>,
    /// Members that were lost and that some shard may still write to.
    leaving: BTreeSet<DeviceId>,
    /// When a member was lost last, and no shard wrote to it any more.
    last_loss: crate::oracle::Moment,
    /// What answers are fair: more may be lost than the level survives.
    demand: Demand,
    /// The last scrub's findings are to be none.
    scrub_must_agree: bool,
}

/// See the module.
pub struct World {
    /// What the seed stands for.
    plan: Plan,
    /// Chance.
    chance: Chances,
    /// Time.
    clock: Clock<Happening>,
    /// Drives: members, spares, and those that may be added.
    drives: Vec<Drive>,
    /// Drive of each device number given so far.
    devices: Vec<usize>,
    /// The engine, while the process lives.
    machines: Option<Machines>,
    /// Starts so far.
    starts: u64,
    /// Numbers that sessions have drawn.
    sessions: u64,
    /// Shards of the present start, or of the last.
    shards: u16,
    /// The oracle.
    oracle: Oracle,
    /// A superblock of the array, for identity, places and geometry.
    superblock: Superblock,
    /// The arithmetic.
    geometry: Arc<Geometry>,
    user: User,
    admin: Admin,
    expected: Expected,
    /// The volumes of an array that is carved.
    volumes: Option<Box<Volumes>>,
    /// A planted bug.
    planted: Option<Planted>,
    /// Corrupt content on the devices that no error reported.
    silent: Silent,
    decay: Decay,
    /// What drives were before.
    pasts: Pasts,
    ruined: Ruined,
    /// What of the metadata is damaged, or is to be.
    metadata: Metadata,
    /// What happened, counted.
    stats: Stats,
    trace: Trace,
}

impl World {
    /// A world before anything happened, with drives full of garbage.
    pub fn new(plan: Plan, made: launch::Made, canary: Option<Canary>) -> World {
        let seed = plan.seed;
        let geometry = Arc::new(Geometry::of(&made.superblock));
        let shape = reshape::shape_of(&geometry);
        let mut chance = Chances::new(seed, made.identity);
        let swarm = Swarm::draw_for(plan.focus, &mut chance.workload, &shape);
        let no_caches = plan.devices.iter().all(|device| !device.volatile_cache);
        let block = geometry.block as usize;
        let sector = plan.sector_bytes();
        World {
            user: User::new(shape, swarm),
            oracle: Oracle::new(shape.total, block, made.content, no_caches).with_sectors(sector),
            volumes: Volumes::draw(&plan, made.superblock.array),
            decay: Decay::new(seed),
            pasts: Pasts::new(seed, made.drives.len()),
            ruined: Ruined::new(seed),
            planted: canary.map(|canary| Planted::new(canary, seed)),
            chance,
            clock: Clock::default(),
            drives: made.drives,
            devices: Vec::new(),
            machines: None,
            starts: 0,
            sessions: 0,
            shards: plan.shards,
            superblock: made.superblock,
            geometry,
            admin: Admin::default(),
            expected: Expected {
                clean: true,
                ..Expected::default()
            },
            silent: Silent::default(),
            metadata: Metadata::default(),
            stats: Stats::default(),
            trace: Trace::default(),
            plan,
        }
    }

    // ---- what others see ----------------------------------------------------------------------

    /// What the seed stands for.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
    /// When reads are hedged, from the next start on.
    pub fn hedging(&mut self) -> &mut HedgeRules {
        &mut self.plan.hedging
    }
    /// The array's arithmetic.
    pub fn geometry(&self) -> &Arc<Geometry> {
        &self.geometry
    }
    /// A superblock of the array.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }
    /// Blocks of the array.
    pub fn blocks(&self) -> u64 {
        self.oracle.blocks()
    }
    /// What happened, counted.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }
    /// The present.
    pub fn now(&self) -> Time {
        self.clock.now()
    }
    /// Lets time pass while nothing runs.
    pub fn pass(&mut self, ns: u64) {
        self.clock.pass(ns);
    }
    /// The drives: members, spares, and those that may be added.
    pub fn drives(&self) -> &[Drive] {
        &self.drives
    }
    /// What a drive is made of.
    pub fn ssd(&self, drive: usize) -> &Ssd {
        &self.drives[drive].ssd
    }
    /// The same, to change it.
    pub fn ssd_mut(&mut self, drive: usize) -> &mut Ssd {
        &mut self.drives[drive].ssd
    }
    /// A drive's superblock, if it carries one of this array.
    pub fn table_of(&self, drive: usize) -> Option<Arc<Superblock>> {
        self.drives[drive].superblock(self.superblock.array)
    }
    /// The drive that was opened as this device.
    pub fn drive_of(&self, device: DeviceId) -> usize {
        self.devices[device.0 as usize]
    }
    /// The drive that was opened last.
    pub fn opened_last(&self) -> Option<usize> {
        self.devices.last().copied()
    }
    /// No drive is open any more: those were that a start was tried with.
    pub fn close_all(&mut self) {
        self.drives.iter_mut().for_each(|drive| drive.device = None);
    }
    /// The drive is left out at the next start.
    pub fn hide(&mut self, drive: usize) {
        self.set_hidden(drive, true);
    }
    /// The same, or it is not.
    pub fn set_hidden(&mut self, drive: usize, hidden: bool) {
        self.drives[drive].hidden = hidden;
    }
    /// No drive is.
    pub fn hide_none(&mut self) {
        let drives = self.drives.iter_mut();
        drives.for_each(|drive| drive.hidden = false);
    }
    /// From now on other answers are fair.
    pub fn demand(&mut self, demand: Demand) {
        self.expected.demand = demand;
    }
    /// Requests in this region may be refused.
    pub fn excuse(&mut self, region: RegionNo) {
        self.expected.excused.push(region);
    }
    /// Requests may be refused in no region any more.
    pub fn excuse_none(&mut self) {
        self.expected.excused.clear();
    }
    /// Redundancy is true everywhere, as far as was found out.
    pub fn is_synced(&self) -> bool {
        !self.expected.resyncing
    }
    /// No shard writes to a member any more that was lost.
    pub fn none_leaves(&self) -> bool {
        self.expected.leaving.is_empty()
    }
    /// Some strip is corrupt in silence.
    pub fn is_corrupt(&self) -> bool {
        !self.silent.corrupt.is_empty()
    }
    /// The process lives.
    pub fn lives(&self) -> bool {
        self.machines.is_some()
    }
    /// The array.
    pub fn array(&mut self) -> &mut Array {
        &mut self.machines().array
    }
    /// No I/O of the array itself is under way; shards may have theirs.
    pub fn array_is_idle(&mut self) -> bool {
        self.machines().array_ios == 0
    }
    /// Neither the array nor a shard asks for a tick.
    pub fn is_asleep(&mut self) -> bool {
        let machines = self.machines();
        let mut shards = machines.shards.iter();
        machines.array.deadline().is_none() && shards.all(|shard| shard.deadline().is_none())
    }
    /// The array serves.
    pub fn serves(&mut self) -> bool {
        self.machines().started
    }
    /// The machines of this life.
    fn machines(&mut self) -> &mut Machines {
        self.machines.as_mut().expect("the process lives")
    }

    // ---- sending ------------------------------------------------------------------------------

    pub(crate) fn send(&mut self, from: Place, to: Place, what: Happening) {
        let mut ns = self.chance.latency.below(self.plan.message_ns) + 1;
        let slow = self.plan.slow_shard.map(Place::Shard);
        if from == Place::Array && Some(to) == slow {
            ns += self.chance.latency.below(SLOW_MAIL_NS);
        }
        self.clock.send(from, to, ns, what);
    }

    // ---- what happens -------------------------------------------------------------------------

    /// One event. False if nothing more will happen by itself.
    pub fn step(&mut self) -> SimResult<bool> {
        let Some(happening) = self.clock.advance() else {
            return Ok(false);
        };
        self.stats.events += 1;
        if let Some(happening) = self.hold_back(happening) {
            self.happen(happening)?;
        }
        self.watch_decay();
        self.volumes_step()?;
        self.pump()?;
        Ok(true)
    }

    pub(crate) fn happen(&mut self, happening: Happening) -> SimResult {
        let now = self.clock.now();
        match happening {
            Happening::Io(drive, op) => self.io_done(drive, op)?,
            Happening::Retry(drive, op) => self.retry(drive, op)?,
            Happening::Due(drive, op) => self.due(drive, op)?,
            Happening::Overdue(device, late) => self.overdue(device, late)?,
            Happening::Judged(owner, device, verdict) => self.judged(owner, device, verdict)?,
            Happening::GoesOn(owner) => self.goes_on(owner)?,
            Happening::Space => self.space_is_back(),
            Happening::ToShard(shard, message) => self.shard_message(shard, message)?,
            Happening::AskShard(shard, _)
            | Happening::RemoteRead(_, shard, _)
            | Happening::Passed(shard, ..) => {
                self.ask_shard(happening, 0);
                self.join_batch(shard);
                self.poll_shard(shard)?;
            }
            Happening::WriteToken(shard, token) => {
                self.trace([15, u64::from(shard), 0, 0], || {
                    format!("shard {shard}: {token:?}")
                });
                let ran = self.ran(Owner::Shard(shard));
                self.machines().shards[usize::from(shard)].write_token(ran, token);
                self.poll_shard(shard)?;
            }
            Happening::FromShard(shard, message) => {
                self.trace([4, u64::from(shard), 0, 0], || {
                    format!("array: from shard {shard}: {message:?}")
                });
                self.array().message(now, ShardNo(shard), message);
                self.poll_array()?;
            }
            Happening::AskArray(request) => {
                self.trace([5, request.id.0, 0, 0], || {
                    format!("array: {}", op_text(&request))
                });
                self.array().submit(now, request);
                self.poll_array()?;
            }
            Happening::Command(id, command) => {
                self.trace([6, id.0, 0, 0], || format!("array: command {}", id.0));
                self.array().command(now, id, command);
                self.poll_array()?;
            }
            Happening::Vanishes(drive, device) => self.removed(drive, device)?,
            Happening::Gone(device) => {
                self.trace([7, u64::from(device.0), 0, 0], || {
                    format!("array: gone {device:?}")
                });
                self.array().device_gone(now, device);
                self.poll_array()?;
            }
            Happening::Answer(queue, reply) => self.answer(queue, reply)?,
            Happening::Again(queue, piece) => self.split_anew(queue, piece)?,
            Happening::Tick => self.array_tick()?,
            Happening::ShardTick(shard) => self.shard_tick(shard)?,
            Happening::Wake => {}
            Happening::Drop(slices, held) => {
                drop(slices);
                self.let_go(held)?;
            }
        }
        Ok(())
    }

    fn shard_message(&mut self, shard: u16, message: ToShard) -> SimResult {
        self.tell_routers(shard, &message);
        if let ToShard::Unreadable(list) = &message {
            self.note_unlisted(shard, |block| list.has(block));
        }
        self.trace([2, u64::from(shard), 0, 0], || {
            format!("shard {shard}: {message:?}")
        });
        let ran = self.ran(Owner::Shard(shard));
        self.machines().shards[usize::from(shard)].message(ran, message);
        self.poll_shard(shard)
    }

    fn array_tick(&mut self) -> SimResult {
        self.trace.add(8);
        let now = self.clock.now();
        let machines = self.machines();
        machines.tick_at = None;
        if machines.array.deadline().is_some_and(|at| at <= now) {
            machines.array.tick(now);
        }
        self.poll_array()
    }

    /// A request reaches a shard, one way or another.
    fn ask_shard(&mut self, happening: Happening, same_batch: u64) {
        let among = ["", ", same batch"][same_batch as usize];
        match happening {
            Happening::AskShard(shard, request) => {
                self.trace([3, u64::from(shard), request.id.0, same_batch], || {
                    format!("shard {shard}{among}: {}", op_text(&request))
                });
                let now = self.ran(Owner::Shard(shard));
                self.machines().shards[usize::from(shard)].submit(now, request);
            }
            Happening::RemoteRead(owner, shard, request) => {
                self.trace([13, u64::from(shard), request.id.0, same_batch], || {
                    format!("shard {shard}{among}, on a visit: {}", op_text(&request))
                });
                let now = self.ran(Owner::Shard(shard));
                let machine = &mut self.machines().shards[usize::from(shard)];
                let before = machine.remote_reads();
                machine.read_remote(now, owner, request);
                let begun = machine.remote_reads() - before;
                self.stats.visits += begun;
            }
            Happening::Passed(shard, request, late) => {
                self.trace([14, u64::from(shard), request.id.0, same_batch], || {
                    let what = op_text(&request);
                    format!("shard {shard}{among}, passed on: {what}, {late:?} is late")
                });
                let now = self.ran(Owner::Shard(shard));
                self.machines().shards[usize::from(shard)].passed(now, request, late);
            }
            _ => unreachable!("only requests are asked for"),
        }
    }

    /// Requests that reach the shard next are in the same batch, where the plan has such: nothing
    /// that depends on an answer is among them.
    fn join_batch(&mut self, shard: u16) {
        let within = self.plan.batch_ns;
        let same = |next: &Happening| match next {
            Happening::AskShard(of, _)
            | Happening::RemoteRead(_, of, _)
            | Happening::Passed(of, ..) => *of == shard,
            _ => false,
        };
        while within > 0
            && let Some(next) = self.clock.next_if(within, same)
        {
            self.ask_shard(next, 1);
        }
    }

    /// Polls every shard: buffers were dropped.
    pub fn poll_shards(&mut self) -> SimResult {
        for shard in 0..self.shards {
            let now = self.ran(Owner::Shard(shard));
            self.machines().shards[usize::from(shard)].tick(now);
            self.poll_shard(shard)?;
        }
        Ok(())
    }

    pub(crate) fn poll_shard(&mut self, shard: u16) -> SimResult {
        for _ in 0..100_000 {
            let Some(output) = self.machines().shards[usize::from(shard)].poll() else {
                self.arm_shard_tick(shard);
                return self.check_shard(shard);
            };
            match output {
                ShardOutput::Io(io) => self.submit_io(Owner::Shard(shard), io)?,
                ShardOutput::Reply(reply) => {
                    let queue = Router::queue_of(reply.id);
                    self.send(
                        Place::Shard(shard),
                        Place::Queue(queue),
                        Happening::Answer(queue, reply),
                    );
                }
                ShardOutput::Again(piece) => {
                    let queue = Router::queue_of(piece.id);
                    let to = Place::Queue(queue);
                    self.send(Place::Shard(shard), to, Happening::Again(queue, piece));
                }
                ShardOutput::Pass(owner, piece, late) => {
                    self.stats.visits_passed += 1;
                    let what = Happening::Passed(owner.0, piece, late);
                    self.send(Place::Shard(shard), Place::Shard(owner.0), what);
                }
                ShardOutput::WriteToken(to, token) => {
                    let what = Happening::WriteToken(to.0, token);
                    self.send(Place::Shard(shard), Place::Shard(to.0), what);
                }
                ShardOutput::Message(message) => self.tell_array(shard, message),
            }
        }
        self.failure(format!(
            "shard {shard} does not come to an end of its outputs"
        ))
    }

    /// Polls the array dry.
    pub fn poll_array(&mut self) -> SimResult {
        for _ in 0..100_000 {
            let Some(output) = self.array().poll() else {
                self.arm_tick()?;
                return self.check_array();
            };
            self.array_output(output)?;
        }
        self.failure("the array does not come to an end of its outputs")
    }

    pub(crate) fn arm_tick(&mut self) -> SimResult {
        let now = self.clock.now();
        let machines = self.machines.as_mut().expect("the process lives");
        if let Some(deadline) = machines.array.deadline()
            && machines.tick_at.is_none_or(|at| deadline < at)
        {
            // Never at once again: a deadline that lies in the past must not stop time.
            let at = deadline.max(Time(now.0 + 1));
            machines.tick_at = Some(at);
            self.clock.at(at, Happening::Tick);
        }
        Ok(())
    }

    fn array_output(&mut self, output: ArrayOutput) -> SimResult {
        match output {
            ArrayOutput::Io(io) => {
                self.machines().array_ios += 1;
                self.submit_io(Owner::Array, io)?;
            }
            ArrayOutput::Reply(reply) => {
                let queue = Router::queue_of(reply.id);
                self.send(
                    Place::Array,
                    Place::Queue(queue),
                    Happening::Answer(queue, reply),
                );
            }
            ArrayOutput::Again(piece) => {
                let queue = Router::queue_of(piece.id);
                let to = Place::Queue(queue);
                self.send(Place::Array, to, Happening::Again(queue, piece));
            }
            ArrayOutput::Message(ShardNo(shard), message) => {
                let to = Place::Shard(shard);
                self.send(Place::Array, to, Happening::ToShard(shard, message));
            }
            ArrayOutput::Overdue(device, verdict) => self.tell_verdict(device, verdict),
            ArrayOutput::Done { id, result } => self.command_done(id, result)?,
            ArrayOutput::Event(event) => self.hear(event)?,
            ArrayOutput::Release(device) => {
                self.expected.leaving.remove(&device);
                self.expected.last_loss = self.oracle.moment();
                self.note(format!("{device:?} is released"));
                self.close(device);
                self.empty_released(device);
            }
            ArrayOutput::Started => {
                self.note("the array serves".to_owned());
                self.machines().started = true;
                // Until then a start that is cut off leaves the next one to find either shape.
                let moving = self.array().status().superblock.moving;
                self.admin.reshaping = moving.is_some();
                self.admin.wary.clear();
                if self.plan.elsewhere {
                    self.command(Command::SparesElsewhere(true));
                }
                self.expected.torn_blocks.clear();
                self.strangers_are_out()?;
                self.members_are_sealed();
                self.metadata_is_mended()?;
            }
            ArrayOutput::Reshaped(geometry) => self.reshaped(geometry)?,
            ArrayOutput::Stopped => {
                self.note("the array has stopped".to_owned());
                self.ruined_are_out()?;
                self.members_are_sealed();
                self.machines().stopped = true;
            }
        }
        Ok(())
    }

    fn reshaped(&mut self, geometry: Arc<Geometry>) -> SimResult {
        self.note(format!("another shape: {geometry:?}"));
        match geometry.old_shape.is_some() {
            true => self.stats.windows += 1,
            false => self.stats.reshapes += 1,
        }
        if geometry.old_shape.is_some_and(|old| old.moved == 0) {
            self.admin.reshaped_at = Some(self.stats.events);
        }
        if let Err(why) = self.parities_went(&geometry) {
            return self.failure(why);
        }
        let ended = self.geometry.old_shape.is_some() && geometry.old_shape.is_none();
        self.stats.moves += u64::from(ended);
        self.stats.regrouped += u64::from(ended && self.geometry.regroups());
        self.stats.regroup_windows += u64::from(geometry.regroups());
        let superblock = self.array().status().superblock;
        self.take_shape(geometry, superblock);
        Ok(())
    }
}
