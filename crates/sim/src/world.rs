//! One simulated machine: devices, the engine's state machines, messages between them, and a user.
//!
//! Invariants: everything that happens comes off the clock's queue, one at a time; after every input
//! the machine that got it is polled dry; the oracle hears of a request before the engine does, and
//! of an answer before the user asks anything more.
//!
//! Deliberately absent: which faults come when (`life`), how an array is put together (`launch`).

use std::collections::BTreeMap;
use std::sync::Arc;

use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Array, Buf, Geometry, Pool, Router, Shard, Slice, Target};
use strake_format::{ArrayUuid, MemberUuid, RegionState, Superblock};

use crate::atlas::{Atlas, Condition, Rules, Situation};
use crate::canary::{Canary, Planted};
use crate::clock::{Clock, Lanes, Place};
use crate::oracle::{self, Oracle, Ticket};
use crate::plan::Plan;
use crate::prng::{Prng, Purpose, TraceHash};
use crate::report::{Failure, Stats};
use crate::ssd::{self, OpNo, Owner, Ssd};
use crate::workload::{self, Ask, AskKind, Swarm};

/// Result of going on: a failure ends the world.
pub type Going<T = ()> = Result<T, Box<Failure>>;

/// What travels on the clock's queue.
pub enum Happening {
    /// An I/O of a drive ends.
    Io(usize, OpNo),
    /// A message reaches a shard.
    ToShard(u16, ToShard),
    /// A request reaches a shard.
    AskShard(u16, Request),
    /// A message reaches the array.
    FromShard(u16, FromShard),
    /// A request reaches the array.
    AskArray(Request),
    /// A command reaches the array.
    Command(CommandId, Command),
    /// The array hears that a device vanished.
    Gone(DeviceId),
    /// An answer reaches an export queue.
    Answer(u16, Reply),
    /// The array's deadline.
    Tick,
    /// The user may go on.
    Wake,
    /// The user lets go of what it read, which may have held so many buffers.
    Drop(Vec<Slice>, u64),
}

/// A drive and what the simulator knows of it.
pub struct Drive {
    /// The drive.
    pub ssd: Ssd,
    /// The engine's number for it, while it is open.
    pub device: Option<DeviceId>,
    /// A fault that will surely fail it is under way.
    pub doomed: bool,
    /// Left out at the next start.
    pub hidden: bool,
    /// It lost its power when it vanished.
    pub pulled: bool,
    /// It belongs, or belonged, to the array.
    pub used: bool,
}

/// The engine's machines of one life.
pub struct Machines {
    /// Control.
    pub array: Array,
    /// Data.
    pub shards: Vec<Shard>,
    /// Export queues.
    pub routers: Vec<Router>,
    /// The arithmetic.
    pub geometry: Arc<Geometry>,
    /// The shards' memory.
    pub pools: Vec<Pool>,
    /// It serves.
    pub started: bool,
    /// It has stopped.
    pub stopped: bool,
    /// When the next tick is on the queue.
    pub tick_at: Option<Time>,
    /// I/Os of the array in flight.
    pub array_ios: usize,
}

/// A request under way.
pub struct Asked {
    ask: Ask,
    ticket: Option<Ticket>,
    moment: oracle::Moment,
}

/// The streams of chance.
pub struct Chances {
    /// Requests.
    pub workload: Prng,
    /// Latencies.
    pub latency: Prng,
    /// Faults.
    pub faults: Prng,
    /// What survives.
    pub fate: Prng,
    /// Identities.
    pub identity: Prng,
}

/// See the module.
pub struct World {
    /// What the seed stands for.
    pub plan: Plan,
    /// A planted bug.
    pub planted: Option<Planted>,
    /// Chance.
    pub chance: Chances,
    /// Time.
    pub clock: Clock<Happening>,
    lanes: Lanes,
    /// Drives: members, spares, and those that may be added.
    pub drives: Vec<Drive>,
    /// Drive of each device number given so far.
    pub devices: Vec<usize>,
    /// The engine, while the process lives.
    pub machines: Option<Machines>,
    /// The oracle.
    pub oracle: Oracle,
    /// A superblock of the array, for places and geometry.
    pub superblock: Superblock,
    /// The array.
    pub array: ArrayUuid,
    /// The arithmetic.
    pub geometry: Arc<Geometry>,
    shape: workload::Shape,
    swarm: Swarm,
    cursor: u64,
    /// Requests under way.
    pub asks: BTreeMap<RequestId, Asked>,
    next_request: u64,
    /// Commands under way, in words.
    pub commands: BTreeMap<CommandId, String>,
    /// Commands that were answered.
    pub done: BTreeMap<CommandId, Result<Changed, CommandError>>,
    next_command: u64,
    /// Requests that the user still wants to make in this life.
    pub asks_left: u64,
    next_ask_at: Time,
    /// Buffers of a shard that the user's reads may hold at the same time.
    pub reading_most: u64,
    /// Buffers that they may hold now.
    pub reading: u64,
    /// A request that waits until the user reads less.
    held: Option<Ask>,
    /// Redundancy may be untrue since an unclean stop.
    pub resyncing: bool,
    /// The array was told to forgive any number of read errors.
    pub errors_forgiven: bool,
    /// The last scrub's findings are to be none.
    pub scrub_must_agree: bool,
    /// What happened, counted.
    pub stats: Stats,
    /// Everything that happened, as a number.
    pub hash: TraceHash,
    /// What happened, in words.
    pub story: Vec<String>,
    /// Print every event.
    pub tracing: bool,
    scratch: Vec<u8>,
}

impl World {
    /// A world before anything happened, with drives full of garbage.
    pub fn new(plan: Plan, made: crate::launch::Made, canary: Option<Canary>) -> World {
        let seed = plan.seed;
        let geometry = Arc::new(Geometry::of(&made.superblock));
        let block = geometry.block;
        let shape = workload::Shape {
            total: geometry.size() / block,
            strip: geometry.strip / block,
            stripe: geometry.stripe_bytes() / block,
            region: geometry.region_bytes(RegionNo(0)).end / block,
        };
        let chance = Chances {
            workload: Prng::new(seed, Purpose::Workload),
            latency: Prng::new(seed, Purpose::Latency),
            faults: Prng::new(seed, Purpose::Faults),
            fate: Prng::new(seed, Purpose::Fate),
            identity: made.identity,
        };
        let mut workload = chance.workload;
        let swarm = Swarm::draw(&mut workload, &shape);
        let no_caches = plan.devices.iter().all(|device| !device.volatile_cache);
        let oracle = Oracle::new(shape.total, block as usize, made.content, no_caches);
        World {
            planted: canary.map(|canary| Planted::new(canary, seed)),
            chance: Chances { workload, ..chance },
            clock: Clock::default(),
            lanes: Lanes::default(),
            drives: made.drives,
            devices: Vec::new(),
            machines: None,
            oracle,
            array: made.superblock.array,
            superblock: made.superblock,
            geometry,
            shape,
            swarm,
            cursor: 0,
            asks: BTreeMap::new(),
            next_request: 0,
            commands: BTreeMap::new(),
            done: BTreeMap::new(),
            next_command: 0,
            asks_left: 0,
            next_ask_at: Time(0),
            reading_most: 0,
            reading: 0,
            held: None,
            resyncing: false,
            errors_forgiven: false,
            scrub_must_agree: false,
            stats: Stats::default(),
            hash: TraceHash::default(),
            story: Vec::new(),
            tracing: false,
            scratch: Vec::new(),
            plan,
        }
    }

    // ---- telling ------------------------------------------------------------------------------

    /// Writes a line of the story.
    pub fn note(&mut self, text: String) {
        let line = format!("{:>12} {text}", micros(self.clock.now()));
        if self.tracing {
            eprintln!("{line}");
        }
        self.story.push(line);
    }
    /// The world has failed.
    pub fn failure<T>(&mut self, text: impl Into<String>) -> Going<T> {
        let text = text.into();
        self.note(format!("FAILURE: {text}"));
        Err(Box::new(Failure { text, story: self.story.clone() }))
    }
    fn trace(&mut self, words: [u64; 4], text: impl FnOnce() -> String) {
        for word in words {
            self.hash.add(word);
        }
        self.hash.add(self.clock.now().0);
        if self.tracing {
            eprintln!("{:>12}   {}", micros(self.clock.now()), text());
        }
    }

    /// The machines of this life.
    pub fn machines(&mut self) -> &mut Machines {
        self.machines.as_mut().expect("the process lives")
    }

    // ---- sending ------------------------------------------------------------------------------

    fn send(&mut self, from: Place, to: Place, what: Happening) {
        let ns = self.chance.latency.below(self.plan.message_ns) + 1;
        let at = self.lanes.arrival(from, to, self.clock.now(), ns);
        self.clock.at(at, what);
    }

    /// Sends a command to the array.
    pub fn command(&mut self, command: Command) -> CommandId {
        let id = CommandId(self.next_command);
        self.next_command += 1;
        let text = command_text(&command);
        self.note(format!("command {}: {text}", id.0));
        self.commands.insert(id, text);
        self.send(Place::Queue(7), Place::Array, Happening::Command(id, command));
        id
    }

    /// Buffers of one shard that a request may hold until the user lets go of the answer. Memory is
    /// bounded, so a user that reads more at once than a shard has buffers waits for ever.
    fn buffers_of(&self, ask: &Ask) -> u64 {
        match ask.kind {
            AskKind::Read => ask.count * self.geometry.block / self.geometry.strip + 2,
            _ => 0,
        }
    }
    /// May the user make this request now?
    pub fn may_ask(&self, ask: &Ask) -> bool {
        self.reading == 0 || self.reading + self.buffers_of(ask) <= self.reading_most
    }
    /// Blocks that a read may have.
    pub fn longest_read(&self) -> u64 {
        (self.reading_most - 2) * self.geometry.strip / self.geometry.block
    }

    /// Submits one more request of the user, unless it would read too much at once.
    fn ask(&mut self) -> Going<bool> {
        let held = self.held.take();
        let ask = held.unwrap_or_else(|| {
            self.swarm.ask(&mut self.chance.workload, &self.shape, &mut self.cursor)
        });
        let most = self.longest_read();
        let mut ask = Ask { count: ask.count.min(most), ..ask };
        let changes = matches!(
            ask.kind,
            AskKind::Write | AskKind::WriteZeroes | AskKind::Discard
        );
        if changes && !self.swarm.overlapping && self.oracle.busy(ask.first, ask.count) {
            ask = Ask { kind: AskKind::Read, fua: false, ..ask };
        }
        if !self.may_ask(&ask) {
            self.held = Some(ask);
            return Ok(false);
        }
        self.asks_left -= 1;
        self.submit(ask)?;
        Ok(true)
    }

    /// Submits this request of the user.
    pub fn submit(&mut self, ask: Ask) -> Going {
        self.stats.asks += 1;
        self.reading += self.buffers_of(&ask);
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let block = self.geometry.block;
        let (offset, len) = (ask.first * block, ask.count * block);
        let (mut ticket, mut moment) = (None, 0);
        let op = match ask.kind {
            AskKind::Read => {
                moment = self.oracle.read();
                Op::Read { offset, len }
            }
            AskKind::Flush => {
                moment = self.oracle.flush();
                Op::Flush
            }
            AskKind::Write => {
                let (announced, version) = self.oracle.write(ask.first, ask.count);
                ticket = Some(announced);
                let mut buf = Buf::zeroed(len as usize);
                let bytes = &mut buf.bytes_mut()[..len as usize];
                for (at, bytes) in (ask.first..).zip(bytes.chunks_mut(block as usize)) {
                    oracle::content(version, at, bytes);
                }
                Op::Write { offset, data: Slice::new(buf, 0, len as usize), fua: ask.fua }
            }
            AskKind::Discard => {
                ticket = Some(self.oracle.discard(ask.first, ask.count));
                Op::Discard { offset, len }
            }
            AskKind::WriteZeroes => {
                ticket = Some(self.oracle.zero(ask.first, ask.count));
                Op::WriteZeroes { offset, len, fua: ask.fua }
            }
        };
        self.trace([1, id.0, ask.first, ask.count], || format!("request {} {ask:?}", id.0));
        let queue = (id.0 % u64::from(self.plan.queues)) as u16;
        self.asks.insert(id, Asked { ask, ticket, moment });
        if self.planted.as_ref().is_some_and(|p| p.answers_early(ask.kind)) {
            let asked = self.asks.get_mut(&id).expect("inserted above");
            if let Some(ticket) = asked.ticket.take() {
                self.oracle.answered(&ticket, ask.fua);
            }
        }
        let mut pieces = Vec::new();
        let router = &mut self.machines().routers[usize::from(queue)];
        if let Some(reply) = router.route(Request { id, op }, &mut pieces) {
            return self.answered(reply);
        }
        for (target, piece) in pieces {
            match target {
                Target::Shard(shard) => self.send(
                    Place::Queue(queue),
                    Place::Shard(shard.0),
                    Happening::AskShard(shard.0, piece),
                ),
                Target::Array => {
                    self.send(Place::Queue(queue), Place::Array, Happening::AskArray(piece));
                }
            }
        }
        Ok(())
    }

    /// Submits requests as long as the user wants to.
    pub fn pump(&mut self) -> Going {
        let ready = self.machines.as_ref().is_some_and(|m| m.started && !m.stopped);
        while ready && self.asks_left > 0 && self.asks.len() < self.swarm.depth {
            if self.next_ask_at > self.clock.now() {
                return Ok(());
            }
            if !self.ask()? {
                return Ok(());
            }
            let rng = &mut self.chance.workload;
            let mut pause = rng.below(self.swarm.pause_ns + 1);
            if rng.one_in(40) {
                pause += rng.below(4 * self.plan.clean_after_ms * 1_000_000);
            }
            if pause > 0 {
                self.next_ask_at = Time(self.clock.now().0 + pause);
                self.clock.at(self.next_ask_at, Happening::Wake);
            }
        }
        Ok(())
    }

    // ---- what happens -------------------------------------------------------------------------

    /// One event. False if nothing more will happen by itself.
    pub fn step(&mut self) -> Going<bool> {
        let Some(happening) = self.clock.next() else { return Ok(false) };
        self.stats.events += 1;
        let now = self.clock.now();
        match happening {
            Happening::Io(drive, op) => self.io_done(drive, op)?,
            Happening::ToShard(shard, message) => {
                self.trace([2, u64::from(shard), 0, 0], || format!("shard {shard}: {message:?}"));
                self.machines().shards[usize::from(shard)].message(now, message);
                self.poll_shard(shard)?;
            }
            Happening::AskShard(shard, request) => {
                self.trace([3, u64::from(shard), request.id.0, 0], || {
                    format!("shard {shard}: {}", op_text(&request))
                });
                self.machines().shards[usize::from(shard)].submit(now, request);
                self.poll_shard(shard)?;
            }
            Happening::FromShard(shard, message) => {
                self.trace([4, u64::from(shard), 0, 0], || {
                    format!("array: from shard {shard}: {message:?}")
                });
                self.machines().array.message(now, ShardNo(shard), message);
                self.poll_array()?;
            }
            Happening::AskArray(request) => {
                self.trace([5, request.id.0, 0, 0], || format!("array: {}", op_text(&request)));
                self.machines().array.submit(now, request);
                self.poll_array()?;
            }
            Happening::Command(id, command) => {
                self.trace([6, id.0, 0, 0], || format!("array: command {}", id.0));
                self.machines().array.command(now, id, command);
                self.poll_array()?;
            }
            Happening::Gone(device) => {
                self.trace([7, u64::from(device.0), 0, 0], || format!("array: gone {device:?}"));
                self.machines().array.device_gone(now, device);
                self.poll_array()?;
            }
            Happening::Answer(queue, reply) => self.answer(queue, reply)?,
            Happening::Tick => {
                self.hash.add(8);
                let machines = self.machines();
                machines.tick_at = None;
                if machines.array.deadline().is_some_and(|at| at <= now) {
                    machines.array.tick(now);
                }
                self.poll_array()?;
            }
            Happening::Wake => {}
            Happening::Drop(slices, held) => {
                drop(slices);
                self.reading -= held;
                self.poll_shards()?;
            }
        }
        self.pump()?;
        Ok(true)
    }

    fn io_done(&mut self, drive: usize, op: OpNo) -> Going {
        let finished = self.drives[drive].ssd.finish(op, &mut self.chance.fate);
        let Some((owner, device, completion)) = finished else {
            // A late I/O landed and let go of its buffer.
            return self.poll_shards();
        };
        self.trace([9, drive as u64, completion.io.0, completion.result.is_ok().into()], || {
            format!("{owner:?}: {:?} of {device:?} {:?}", completion.io, completion.result)
        });
        let now = self.clock.now();
        if let Err(error) = completion.result
            && error != IoError::Gone
        {
            self.stats.io_errors += 1;
            // Perhaps the error that was one too many.
            self.drives[drive].doomed |= self.atlas().rules.errors_fail_members;
        }
        match owner {
            Owner::Array => {
                let machines = self.machines();
                machines.array_ios -= 1;
                machines.array.complete(now, completion);
                self.poll_array()
            }
            Owner::Shard(shard) => {
                self.machines().shards[usize::from(shard)].complete(now, completion);
                self.poll_shard(shard)
            }
        }
    }

    /// Polls every shard: buffers were dropped.
    pub fn poll_shards(&mut self) -> Going {
        for shard in 0..self.plan.shards {
            self.poll_shard(shard)?;
        }
        Ok(())
    }

    fn poll_shard(&mut self, shard: u16) -> Going {
        for _ in 0..100_000 {
            let Some(output) = self.machines().shards[usize::from(shard)].poll() else {
                return Ok(());
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
                ShardOutput::Message(message) => self.send(
                    Place::Shard(shard),
                    Place::Array,
                    Happening::FromShard(shard, message),
                ),
            }
        }
        self.failure(format!("shard {shard} does not come to an end of its outputs"))
    }

    /// Polls the array dry.
    pub fn poll_array(&mut self) -> Going {
        for _ in 0..100_000 {
            let Some(output) = self.machines().array.poll() else {
                return self.arm_tick();
            };
            self.array_output(output)?;
        }
        self.failure("the array does not come to an end of its outputs")
    }

    fn arm_tick(&mut self) -> Going {
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

    fn array_output(&mut self, output: ArrayOutput) -> Going {
        match output {
            ArrayOutput::Io(io) => {
                self.machines().array_ios += 1;
                self.submit_io(Owner::Array, io)?;
            }
            ArrayOutput::Reply(reply) => {
                let queue = Router::queue_of(reply.id);
                self.send(Place::Array, Place::Queue(queue), Happening::Answer(queue, reply));
            }
            ArrayOutput::Message(ShardNo(shard), message) => {
                let to = Place::Shard(shard);
                self.send(Place::Array, to, Happening::ToShard(shard, message));
            }
            ArrayOutput::Done { id, result } => self.command_done(id, result)?,
            ArrayOutput::Event(event) => self.event(event)?,
            ArrayOutput::Release(device) => {
                self.note(format!("{device:?} is released"));
                self.close(device);
            }
            ArrayOutput::Started => {
                self.note("the array serves".to_owned());
                self.machines().started = true;
            }
            ArrayOutput::Stopped => {
                self.note("the array has stopped".to_owned());
                self.machines().stopped = true;
            }
        }
        Ok(())
    }

    fn close(&mut self, device: DeviceId) {
        let drive = self.devices[device.0 as usize];
        if self.drives[drive].device == Some(device) {
            self.drives[drive].device = None;
        }
    }

    fn command_done(&mut self, id: CommandId, result: Result<Changed, CommandError>) -> Going {
        self.hash.add(id.0 << 8 | u64::from(result.is_ok()));
        let Some(text) = self.commands.remove(&id) else {
            return self.failure(format!("command {} was answered twice", id.0));
        };
        self.note(format!("command {} ({text}): {result:?}", id.0));
        self.done.insert(id, result);
        Ok(())
    }

    fn event(&mut self, event: Event) -> Going {
        match event.kind {
            EventKind::JobFinished { kind: JobKind::Rebuild, .. } => self.stats.rebuilds += 1,
            EventKind::JobFinished { kind: JobKind::Resync, .. } => self.stats.resyncs += 1,
            EventKind::JobFinished { kind: JobKind::Scrub, inconsistent } => {
                self.stats.scrubs += 1;
                if inconsistent > 0 && self.scrub_must_agree {
                    self.note(format!("{:?}", event.kind));
                    return self.failure(format!(
                        "a scrub found {inconsistent} stripes inconsistent"
                    ));
                }
            }
            EventKind::MemberOut { .. } => self.stats.losses += 1,
            EventKind::Repaired { .. } => self.stats.repairs += 1,
            _ => {}
        }
        self.note(format!("event {:?}", event.kind));
        Ok(())
    }

    // ---- answers ------------------------------------------------------------------------------

    fn answer(&mut self, queue: u16, reply: Reply) -> Going {
        self.trace([10, reply.id.0, reply.result.is_ok().into(), 0], || {
            let result = reply.result.as_ref().map(Vec::len);
            format!("queue {queue}: answer {:#x} {result:?}", reply.id.0)
        });
        match self.machines().routers[usize::from(queue)].join(reply) {
            Some(reply) => self.answered(reply),
            None => Ok(()),
        }
    }

    fn answered(&mut self, reply: Reply) -> Going {
        let Some(asked) = self.asks.remove(&reply.id) else {
            return self.failure(format!("request {} was answered twice", reply.id.0));
        };
        self.trace([11, reply.id.0, 0, 0], || format!("request {} is answered", reply.id.0));
        let slices = match reply.result {
            Ok(slices) => slices,
            Err(error) => {
                return self.failure(format!("{:?} was answered {error:?}", asked.ask));
            }
        };
        if asked.ask.kind != AskKind::Read && !slices.is_empty() {
            return self.failure(format!("{:?} was answered with data", asked.ask));
        }
        match (asked.ask.kind, &asked.ticket) {
            (AskKind::Read, _) => self.read_answered(&asked, slices)?,
            (AskKind::Flush, _) => self.oracle.flushed(asked.moment),
            (_, Some(ticket)) => self.oracle.answered(ticket, asked.ask.fua),
            // A planted bug answered it before.
            (_, None) => {}
        }
        Ok(())
    }

    fn read_answered(&mut self, asked: &Asked, slices: Vec<Slice>) -> Going {
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        slices.iter().for_each(|slice| bytes.extend_from_slice(slice.bytes()));
        let expected = asked.ask.count * self.geometry.block;
        if bytes.len() as u64 != expected {
            let text = format!("{:?} was answered with {} bytes", asked.ask, bytes.len());
            return self.failure(text);
        }
        if self.planted.as_ref().is_some_and(|p| p.canary == Canary::ReconstructZeros) {
            self.zero_missing(asked.ask.first, &mut bytes);
        }
        let seen = self.oracle.seen(asked.moment, asked.ask.first, &bytes);
        self.scratch = bytes;
        if let Err(mismatch) = seen {
            let place = self.place(mismatch.block);
            return self.failure(format!("{} ({place})", mismatch.text));
        }
        let held = self.buffers_of(&asked.ask);
        if self.chance.workload.one_in(4) {
            let ns = self.chance.latency.below(200_000);
            self.clock.after(ns, Happening::Drop(slices, held));
            return Ok(());
        }
        drop(slices);
        self.reading -= held;
        self.poll_shards()
    }

    /// Where a block lies, in words.
    pub fn place(&self, block: u64) -> String {
        let place = self.geometry.locate(block * self.geometry.block);
        let (_, row) = self.geometry.row(place.stripe);
        let slot = self.geometry.slot(place.stripe, place.column);
        let region = self.geometry.region(row);
        format!(
            "{}, row {}, column {}, slot {slot}, region {}",
            place.stripe, row.0, place.column, region.0
        )
    }

    fn zero_missing(&mut self, first: u64, bytes: &mut [u8]) {
        let looks = self.looks();
        let size = self.geometry.block;
        for (block, bytes) in (first..).zip(bytes.chunks_mut(size as usize)) {
            let place = self.geometry.locate(block * size);
            let slot = self.geometry.slot(place.stripe, place.column);
            if looks[slot.index()].in_sync.is_none() {
                bytes.fill(0);
            }
        }
    }

    // ---- member I/O ---------------------------------------------------------------------------

    fn submit_io(&mut self, owner: Owner, mut io: MemberIo) -> Going {
        let Some(&index) = self.devices.get(io.device.0 as usize) else {
            return self.failure(format!("I/O to {:?}, which does not exist", io.device));
        };
        if let Err(text) = check_io(&self.drives[index].ssd, &io) {
            return self.failure(format!("{owner:?} to {:?}: {text}", io.device));
        }
        if self.drives[index].device != Some(io.device) {
            return self.failure(format!("{owner:?}: I/O to {:?}, which is closed", io.device));
        }
        self.trace([12, index as u64, io.io.0, 0], || {
            format!("{owner:?}: {:?} {:?} {}", io.io, io.device, io_text(&io.kind))
        });
        let mut target = index;
        if let Some(mut planted) = self.planted.take() {
            target = planted.strike(self, index, &mut io);
            self.planted = Some(planted);
        }
        if let Some(strip) = self.overlap(index, &io) {
            return self.failure(format!(
                "{owner:?}: two writes of {:?} in flight overlap at {strip}",
                io.device
            ));
        }
        let latencies = self.plan.latencies;
        let drive = &mut self.drives[target];
        let timing = drive.ssd.submit(owner, io, &latencies, &mut self.chance.latency);
        self.clock.after(timing.done_ns, Happening::Io(target, timing.op));
        if let Some(late_ns) = timing.late_ns {
            self.clock.after(late_ns, Happening::Io(target, timing.op));
        }
        Ok(())
    }

    fn overlap(&self, drive: usize, io: &MemberIo) -> Option<u64> {
        let overlaps = self.drives[drive].ssd.overlapping_write(&io.kind);
        overlaps.then(|| ssd::written(&io.kind).map_or(0, |(offset, _)| offset))
    }

    // ---- looking ------------------------------------------------------------------------------

    /// What serves each slot, as the array says.
    pub fn looks(&mut self) -> Vec<Look> {
        let mut looks = vec![Look::default(); self.geometry.slots()];
        let status = self.machines().array.status();
        for member in &status.members {
            let Some(slot) = member.slot else { continue };
            let look = &mut looks[slot.index()];
            let drive = member.device.map(|device| self.devices[device.0 as usize]);
            match member.state {
                MemberState::InSync => look.in_sync = drive,
                MemberState::Rebuilding => look.incoming = drive,
                MemberState::Failed | MemberState::Missing | MemberState::Stale => {
                    look.remains = !member.member.is_nil();
                }
                MemberState::Spare => {}
            }
        }
        looks
    }

    /// The array as far as faults go.
    pub fn situation(&mut self) -> Situation {
        self.refresh_resyncing();
        let looks = self.looks();
        // In sync is what the superblocks say; what only the array says may be forgotten yet.
        let (media, _) = self.condition_on_media();
        let slots = looks
            .iter()
            .zip(media)
            .map(|(look, media)| {
                let durable = look.in_sync.is_some() && look.in_sync == media;
                if durable { self.condition(look) } else { Condition::default() }
            })
            .collect();
        let regions = self.geometry.regions();
        let array = &self.machines().array;
        let dirty =
            (0..regions).any(|region| array.region(RegionNo(region)) == RegionState::Dirty);
        let array_ios = self.machines().array_ios;
        let writing = dirty || array_ios > 0 || !self.asks.is_empty();
        Situation { slots, resyncing: self.resyncing, writing }
    }

    /// The condition of a slot that this serves.
    pub fn condition(&self, look: &Look) -> Condition {
        let Some(drive) = look.in_sync.map(|index| &self.drives[index]) else {
            return Condition::default();
        };
        let faults = &drive.ssd.faults;
        let fine = !faults.gone && faults.write_errors == 0 && faults.stalls == 0;
        let layout = &self.superblock.layout;
        let row = |block: &u64| {
            (block * drive.ssd.block).checked_sub(layout.data_offset).map(|o| o / self.geometry.strip)
        };
        let mut spoiled_rows: Vec<u64> = faults.latent.iter().filter_map(row).collect();
        spoiled_rows.dedup();
        Condition { intact: fine && !drive.doomed, spoiled_rows }
    }

    /// Finds out whether redundancy is still untrue after an unclean stop.
    pub fn refresh_resyncing(&mut self) {
        if !self.resyncing {
            return;
        }
        let regions = self.geometry.regions();
        let started = self.machines().started;
        let array = &self.machines().array;
        let unsynced =
            (0..regions).any(|region| array.region(RegionNo(region)) == RegionState::NeedSync);
        let job = array.status().jobs.iter().any(|job| job.kind == JobKind::Resync);
        if started && !unsynced && !job {
            self.resyncing = false;
            self.oracle.set_pinning(true);
        }
    }

    /// The atlas of this world.
    pub fn atlas(&self) -> Atlas {
        let geometry = &self.geometry;
        Atlas {
            width: geometry.width,
            tolerated: geometry.m,
            mirrored: geometry.mirrored(),
            rules: Rules {
                write_hole_closed: crate::WRITE_HOLE_CLOSED,
                lose_in_resync: self.plan.lose_in_resync,
                errors_fail_members: !self.errors_forgiven,
            },
        }
    }

    /// A number for a device that is opened.
    pub fn open(&mut self, drive: usize) -> DeviceId {
        let device = DeviceId(self.devices.len() as u32);
        self.devices.push(drive);
        self.drives[drive].device = Some(device);
        device
    }

    /// What the engine must know of a drive.
    pub fn info(&self, drive: usize) -> DeviceInfo {
        let ssd = &self.drives[drive].ssd;
        let hides = self.planted.as_ref().is_some_and(|p| p.canary == Canary::CacheHidden);
        DeviceInfo {
            bytes: ssd.len(),
            block_bytes: self.plan.block,
            granularity_bytes: 0,
            volatile_cache: ssd.volatile_cache() && !hides,
        }
    }

    /// A fresh identity.
    pub fn identity(&mut self) -> MemberUuid {
        MemberUuid(self.chance.identity.bytes16())
    }

    /// The process is gone: forgets machines, messages and requests.
    pub fn forget_process(&mut self) {
        self.clock.clear();
        self.lanes = Lanes::default();
        self.machines = None;
        self.reading = 0;
        self.held = None;
        self.next_ask_at = Time(0);
        self.asks.clear();
        self.commands.clear();
        self.done.clear();
        self.asks_left = 0;
        self.scrub_must_agree = false;
        for drive in &mut self.drives {
            drive.device = None;
            drive.doomed = false;
            drive.ssd.faults.write_errors = 0;
            drive.ssd.faults.stalls = 0;
            drive.ssd.faults.slowness = 0;
        }
    }

    /// Goes on until `until` says so.
    pub fn wait(&mut self, what: &str, until: impl Fn(&mut World) -> bool) -> Going {
        let limit = Time(self.clock.now().0 + 30_000_000_000);
        let mut round = 0u32;
        loop {
            round += 1;
            if round % 8 == 1 && until(self) {
                return Ok(());
            }
            let more = self.step()?;
            if !more && !until(self) {
                let state = self.state_text();
                return self.failure(format!("nothing more happens, waiting for {what}; {state}"));
            }
            if !more {
                return Ok(());
            }
            if self.clock.now() > limit || round > 3_000_000 {
                let state = self.state_text();
                return self.failure(format!("does not come to rest: {what}; {state}"));
            }
        }
    }

    /// The state of things, in words.
    pub fn state_text(&mut self) -> String {
        let asks: Vec<String> =
            self.asks.iter().take(4).map(|(id, a)| format!("{} {:?}", id.0, a.ask)).collect();
        let commands: Vec<&String> = self.commands.values().collect();
        let queues: Vec<usize> = self.drives.iter().map(|d| d.ssd.in_flight()).collect();
        let mut text = format!(
            "requests {} {asks:?}, commands {commands:?}, I/Os in flight {queues:?}",
            self.asks.len()
        );
        if let Some(machines) = &self.machines {
            let status = machines.array.status();
            let members: Vec<_> =
                status.members.iter().map(|m| (m.slot.map(|s| s.0), m.device, m.state)).collect();
            text += &format!(", {:?}, {members:?}, jobs {:?}", status.state, status.jobs);
            let free: Vec<usize> = machines.pools.iter().map(Pool::free).collect();
            text += &format!(", {:?}, buffers free {free:?}", machines.shards);
        }
        text
    }
}

/// What serves a slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Drive of the member in sync.
    pub in_sync: Option<usize>,
    /// Drive of the member being rebuilt.
    pub incoming: Option<usize>,
    /// A member is named there that is not in service.
    pub remains: bool,
}

fn check_io(ssd: &Ssd, io: &MemberIo) -> Result<(), String> {
    let (offset, len) = match &io.kind {
        IoKind::Read { offset, buf, start, len } => {
            if start + len > buf.len() {
                return Err(format!("a read of {len} at {start} of a buffer of {}", buf.len()));
            }
            (*offset, *len as u64)
        }
        IoKind::Flush => return Ok(()),
        kind => ssd::written(kind).expect("a write"),
    };
    let aligned = offset.is_multiple_of(ssd.block) && len.is_multiple_of(ssd.block);
    if !aligned || len == 0 || offset + len > ssd.len() {
        return Err(format!("{offset}+{len} does not fit the device: {}", io_text(&io.kind)));
    }
    Ok(())
}

fn micros(at: Time) -> String {
    format!("{}.{:03}", at.0 / 1000, at.0 % 1000)
}

/// An I/O in words.
pub fn io_text(kind: &IoKind) -> String {
    match kind {
        IoKind::Read { offset, len, .. } => format!("read {offset:#x}+{len:#x}"),
        IoKind::Write { offset, data, fua } => {
            let fua = if *fua { " fua" } else { "" };
            format!("write {offset:#x}+{:#x}{fua}", data.len)
        }
        IoKind::WriteZeroes { offset, len } => format!("zero {offset:#x}+{len:#x}"),
        IoKind::Discard { offset, len } => format!("discard {offset:#x}+{len:#x}"),
        IoKind::Flush => "flush".to_owned(),
    }
}

fn op_text(request: &Request) -> String {
    let text = match &request.op {
        Op::Read { offset, len } => format!("read {offset:#x}+{len:#x}"),
        Op::Write { offset, data, fua } => format!("write {offset:#x}+{:#x} {fua}", data.len),
        Op::Flush => "flush".to_owned(),
        Op::Discard { offset, len } => format!("discard {offset:#x}+{len:#x}"),
        Op::WriteZeroes { offset, len, fua } => format!("zero {offset:#x}+{len:#x} {fua}"),
    };
    format!("piece {:#x} {text}", request.id.0)
}

fn command_text(command: &Command) -> String {
    match command {
        Command::Fail(slot) => format!("fail slot {slot}"),
        Command::Remove(MemberRef::Slot(slot)) => format!("remove slot {slot}"),
        Command::Remove(MemberRef::Device(device)) => format!("remove {device:?}"),
        Command::Add(new) => format!("add {:?}", new.device),
        Command::Replace(slot, new) => format!("replace slot {slot} by {:?}", new.device),
        other => format!("{other:?}"),
    }
}
