//! A bench: modelled drives, an array over them, loads, and what they reached.
//!
//! Invariants: a step ends, whatever the load (a bound on virtual time); what is counted begins
//! after the ramp; requests under way when a step ends belong to no step.

use std::collections::BTreeMap;
use std::time::Duration;

use strake_engine::event::{
    ArrayState, Command, Completion, JobKind, MemberState, Op, Reply, Request,
};
use strake_engine::units::{DeviceId, RequestId, Slot};
use strake_engine::{Buf, Slice};
use strake_flash::{Counters, Op as DriveOp};
use strake_foresight::load::Load;
use strake_format::ScrubMode;

use crate::event::{Event, Owner, Queue};
use crate::machine::{Machines, Written};
use crate::member::Member;
use crate::setup::Setup;
use crate::source::{Chance, Source, Tally};
use crate::steady::{WINDOW, is_steady};

/// Reads of so many bytes go straight into the place of the request, as in the product.
const IN_PLACE_MIN: u64 = 32 << 10;
/// No step takes longer, nanoseconds of virtual time.
const PATIENCE_NS: u64 = 3_600_000_000_000;
/// The largest request of a fill.
const FILL_BYTES: u64 = 1 << 20;
/// How long a round is that is to become steady, of the target's bytes.
const STEADY_SHARE: f64 = 0.05;

/// What the loads of a step run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The array.
    Array,
    /// All drives, each by itself.
    Drives,
}

/// How long a step runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// So long, after a ramp that does not count.
    Time {
        /// Does not count.
        ramp: Duration,
        /// Counts.
        run: Duration,
    },
    /// Until the loads have moved so many times the bytes of their target.
    Passes(f64),
    /// Until five rounds in a row are within 20 % of their mean and their slope within 10 % of it
    /// (SNIA PTS), at most so many passes; the last five count.
    Steady {
        /// At most.
        passes: f64,
    },
}

/// What one load of a step reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    /// The load.
    pub load: Load,
    /// Reads a second.
    pub read_iops: f64,
    /// Writes a second.
    pub write_iops: f64,
    /// p50, p99, p99.9, p99.99, microseconds.
    pub latency_us: [f64; 4],
}

impl Reached {
    /// Bytes read a second.
    pub fn read_bytes_per_s(&self) -> f64 {
        self.read_iops * self.load.bytes as f64
    }

    /// Bytes written a second.
    pub fn write_bytes_per_s(&self) -> f64 {
        self.write_iops * self.load.bytes as f64
    }
}

/// What each drive has counted.
pub type Wear = Vec<Counters>;

/// What a rebuild or a scrub took.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Seconds that it takes on the whole drive.
    pub seconds: f64,
    /// Bytes of a member for each second.
    pub bytes_per_s: f64,
    /// What the loads beside it reached.
    pub beside: Vec<Reached>,
    /// Flash bytes for each host byte of the new drive meanwhile; none for a scrub.
    pub waf: Option<f64>,
}

/// Why the lab could not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabError {
    /// There is no such array.
    #[error("{0}")]
    Shape(String),
    /// A load that does not fit the array.
    #[error("a request of {bytes} bytes does not fit: the modelled {target} has {size} bytes")]
    Load {
        /// Of the request.
        bytes: u64,
        /// What it was for.
        target: &'static str,
        /// Its size.
        size: u64,
    },
    /// The engine refused, or reported what it should not.
    #[error("the engine: {0}")]
    Engine(String),
    /// A request was answered with an error.
    #[error("a request was answered with {0}")]
    Request(String),
    /// It did not end.
    #[error("{0} did not end within an hour of virtual time")]
    Endless(&'static str),
}

/// A request under way.
struct Pending {
    /// The step that it belongs to.
    epoch: u64,
    source: usize,
    lane: u32,
    is_read: bool,
    offset: u64,
    begun: u64,
    device: Option<usize>,
}

/// See the module.
pub struct Lab {
    setup: Setup,
    members: Vec<Member>,
    machines: Machines,
    queue: Queue,
    now: u64,
    replies: Vec<Reply>,
    pending: BTreeMap<u64, Pending>,
    asked: u64,
    /// Bytes of all writes that loads have asked for.
    asked_to_write: u64,
    sources: Vec<Source>,
    /// Which step it is: a request of one that is over is followed by none.
    epoch: u64,
    target: Target,
    /// What is written.
    content: Buf,
    counting: bool,
    /// Of the step before: share of the cores' time that was used.
    cpu_busy: Option<f64>,
    /// Which device is in each slot.
    slots: Vec<usize>,
}

impl Lab {
    /// Makes the drives and the array over them.
    pub fn new(setup: Setup) -> Result<Lab, LabError> {
        let spec = setup.spec();
        let mut members: Vec<Member> = (0..u64::from(setup.members))
            .map(|at| Member::new(spec, setup.seed.wrapping_mul(1000) + at))
            .collect();
        if members.is_empty() {
            return Err(LabError::Shape("an array without members".to_owned()));
        }
        // A drive in use has no unit without a place: its log area and what lies beside the data,
        // too.
        for member in &mut members {
            member.condition();
        }
        let machines = Machines::new(&setup, &mut members)?;
        let mut lab = Lab {
            slots: (0..members.len()).collect(),
            members,
            machines,
            queue: Queue::default(),
            now: 0,
            replies: Vec::new(),
            pending: BTreeMap::new(),
            asked: 0,
            asked_to_write: 0,
            sources: Vec::new(),
            epoch: 0,
            target: Target::Array,
            cpu_busy: None,
            content: Buf::from_bytes(&content()),
            counting: false,
            setup,
        };
        lab.rest()?;
        while !lab.machines.serves() {
            if !lab.step()? {
                return Err(LabError::Engine("the array does not start".to_owned()));
            }
        }
        Ok(lab)
    }

    /// Seconds until the array could be used.
    pub fn created_after(&self) -> f64 {
        self.now as f64 / 1e9
    }

    /// Bytes of the modelled array.
    pub fn size(&self) -> u64 {
        self.machines.array.geometry().size()
    }

    /// Bytes of user data on a full array of whole drives.
    pub fn full_size(&self) -> f64 {
        self.size() as f64 * self.scale()
    }

    /// How many times larger the whole drive is.
    pub fn scale(&self) -> f64 {
        self.setup.drive.capacity as f64 / self.members[0].info().bytes as f64
    }

    /// Bytes of a strip.
    pub fn strip(&self) -> u64 {
        self.machines.array.geometry().strip
    }

    /// What each slot's drive has counted.
    pub fn wear(&self) -> Wear {
        let of = |device: &usize| self.members[*device].counters().clone();
        self.slots.iter().map(of).collect()
    }

    /// Bytes of all writes that loads have asked for so far.
    pub fn asked_to_write(&self) -> u64 {
        self.asked_to_write
    }

    /// What was written to members so far, by its purpose.
    pub fn written(&self) -> Written {
        self.machines.written
    }

    /// Share of the cores' time that the last step used while it counted; `None` where no cores are
    /// modelled.
    pub fn cpu_busy(&self) -> Option<f64> {
        self.cpu_busy
    }

    // ---- steps --------------------------------------------------------------------------------

    /// Writes the whole array in order, so many times.
    pub fn fill(&mut self, times: f64) -> Result<(), LabError> {
        let load = Load {
            sequential: true,
            read_percent: 0,
            bytes: FILL_BYTES,
            depth: 64,
            jobs: 4,
            limit: None,
        };
        self.run(Target::Array, &[load], Until::Passes(times))?;
        Ok(())
    }

    /// Brings the flash of every drive to the state that random writes of whole units over all data
    /// leave, without the engine and without time: so many passes.
    pub fn condition_at_random(&mut self, passes: f64) {
        for (at, member) in (0..).zip(&mut self.members) {
            let unit = member.drive.flash().geometry().unit_bytes;
            let (first, units) = (
                member.data.start / unit,
                (member.data.end - member.data.start) / unit,
            );
            let mut chance = Chance(self.setup.seed ^ at << 32);
            for _ in 0..(units as f64 * passes) as u64 {
                let offset = (first + chance.below(units)) * unit;
                member.drive.flash().write(offset, unit, 0);
            }
        }
    }

    /// Runs loads side by side.
    pub fn run(
        &mut self,
        target: Target,
        loads: &[Load],
        until: Until,
    ) -> Result<Vec<Reached>, LabError> {
        self.begin(target, loads)?;
        let size = self.target_size() as f64;
        let begun = self.now;
        let reached = match until {
            Until::Time { ramp, run } => {
                self.advance_to(begun + ramp.as_nanos() as u64)?;
                self.count();
                let from = self.now;
                self.advance_to(from + run.as_nanos() as u64)?;
                self.reached(from)
            }
            Until::Passes(passes) => {
                self.count();
                let from = self.now;
                self.advance_by_bytes(size * passes)?;
                self.reached(from)
            }
            Until::Steady { passes } => self.until_steady(size, passes)?,
        };
        self.end()?;
        Ok(reached)
    }

    fn until_steady(&mut self, size: f64, passes: f64) -> Result<Vec<Reached>, LabError> {
        let rounds_most = ((passes / STEADY_SHARE) as usize).max(WINDOW);
        let mut rounds: Vec<(Vec<Reached>, f64)> = Vec::new();
        for _ in 0..rounds_most {
            self.count();
            let from = self.now;
            self.advance_by_bytes(size * STEADY_SHARE)?;
            let reached = self.reached(from);
            let ops = reached.iter().map(|r| r.read_iops + r.write_iops).sum();
            rounds.push((reached, ops));
            let rates: Vec<f64> = rounds.iter().map(|(_, ops)| *ops).collect();
            if is_steady(&rates) {
                break;
            }
        }
        // The last round is what a steady state is; its latencies are of one population.
        Ok(rounds.pop().map(|(reached, _)| reached).unwrap_or_default())
    }

    /// Takes the member of a slot out of service.
    pub fn fail(&mut self, slot: usize) -> Result<(), LabError> {
        self.check_slot(slot)?;
        self.machines
            .command(self.now, Command::Fail(Slot(slot as u8)));
        self.rest()?;
        self.wait("taking a member out of service", |lab| {
            lab.state() == ArrayState::Degraded
        })
    }

    fn check_slot(&self, slot: usize) -> Result<(), LabError> {
        match slot < self.slots.len() {
            true => Ok(()),
            false => Err(LabError::Engine(format!(
                "slot {slot} of {}",
                self.slots.len()
            ))),
        }
    }

    /// Puts a new drive into a slot without a member and waits for its rebuild, loads beside it.
    pub fn rebuild(&mut self, slot: usize, beside: &[Load]) -> Result<Job, LabError> {
        self.check_slot(slot)?;
        let spec = self.setup.spec();
        let number = self.members.len();
        let mut member = Member::new(spec, self.setup.seed.wrapping_mul(1000) + number as u64);
        member.lay_out(&self.machines.layout);
        let device = Machines::new_device(number as u32, &member);
        self.members.push(member);
        self.slots[slot] = number;
        self.begin(Target::Array, beside)?;
        self.count();
        let (from, bytes) = (self.now, self.written_bytes());
        self.machines.command(self.now, Command::Add(device));
        self.rest()?;
        self.wait("the rebuild", |lab| lab.state() == ArrayState::Optimal)?;
        let job = self.job(
            from,
            bytes,
            self.members[number]
                .counters()
                .waf_since(&Counters::default()),
        );
        self.end()?;
        Ok(job)
    }

    /// Reads and checks all that was written, loads beside it.
    pub fn scrub(&mut self, beside: &[Load]) -> Result<Job, LabError> {
        self.begin(Target::Array, beside)?;
        self.count();
        let (from, bytes) = (self.now, self.written_bytes());
        self.machines
            .command(self.now, Command::StartScrub(ScrubMode::Check));
        self.rest()?;
        self.wait("the scrub", |lab| !lab.has_job(JobKind::Scrub))?;
        let job = self.job(from, bytes, None);
        self.end()?;
        Ok(job)
    }

    fn job(&mut self, from: u64, bytes: f64, waf: Option<f64>) -> Job {
        let seconds = (self.now - from) as f64 / 1e9;
        let bytes_per_s = bytes / seconds;
        let full = self.setup.drive.capacity as f64;
        let written = bytes / (self.members[0].data.end - self.members[0].data.start) as f64;
        Job {
            seconds: full * written / bytes_per_s,
            bytes_per_s,
            beside: self.reached(from),
            waf,
        }
    }

    /// Bytes of a member in regions that were written.
    fn written_bytes(&self) -> f64 {
        let status = self.machines.array.status();
        let written = status.size_bytes - status.unwritten_bytes;
        let data = &self.members[0].data;
        (data.end - data.start) as f64 * written as f64 / status.size_bytes as f64
    }

    fn state(&self) -> ArrayState {
        self.machines.array.status().state
    }

    fn has_job(&self, kind: JobKind) -> bool {
        let status = self.machines.array.status();
        status.jobs.iter().any(|job| job.kind == kind)
    }

    /// State of the member in a slot.
    pub fn member_state(&self, slot: usize) -> Option<MemberState> {
        let status = self.machines.array.status();
        let of = |s: &strake_engine::status::MemberStatus| s.slot == Some(Slot(slot as u8));
        status.members.iter().find(|s| of(s)).map(|s| s.state)
    }

    // ---- loads --------------------------------------------------------------------------------

    fn target_size(&self) -> u64 {
        match self.target {
            Target::Array => self.size(),
            Target::Drives => self.members[0].info().bytes * self.slots.len() as u64,
        }
    }

    fn begin(&mut self, target: Target, loads: &[Load]) -> Result<(), LabError> {
        self.target = target;
        let size = match target {
            Target::Array => self.size(),
            Target::Drives => self.members[0].info().bytes,
        };
        for load in loads {
            if load.bytes > size || load.bytes > self.content.len() as u64 {
                let target = match target {
                    Target::Array => "array",
                    Target::Drives => "drive",
                };
                let bytes = load.bytes;
                return Err(LabError::Load {
                    bytes,
                    target,
                    size,
                });
            }
        }
        self.epoch += 1;
        self.counting = false;
        // A load over drives is one load on each, with its part of the jobs and the depth.
        let drives = match target {
            Target::Array => 1,
            Target::Drives => self.slots.len() as u32,
        };
        self.sources.clear();
        for (nth, load) in loads.iter().enumerate() {
            for drive in 0..drives {
                let jobs = load.jobs.div_ceil(drives);
                let each = Load {
                    depth: load.depth.div_ceil(drives).next_multiple_of(jobs),
                    jobs,
                    limit: load.limit.map(|limit| limit / f64::from(drives)),
                    ..*load
                };
                let number = nth as u64 * 1000 + u64::from(drive);
                let seed = self.setup.seed ^ (self.epoch << 24) ^ number;
                self.sources.push(Source::new(each, size, seed));
            }
        }
        for source in 0..self.sources.len() {
            for lane in 0..self.sources[source].load.depth {
                self.go_on(source, lane)?;
            }
        }
        self.rest()
    }

    /// The lane's next request, now or when the load's limit allows it.
    fn go_on(&mut self, source: usize, lane: u32) -> Result<(), LabError> {
        let at = self.sources[source].begin_at(self.now);
        if at > self.now {
            self.queue.at(at, Event::Next(self.epoch, source, lane));
            return Ok(());
        }
        self.give(source, lane)
    }

    fn give(&mut self, source: usize, lane: u32) -> Result<(), LabError> {
        let size = match self.target {
            Target::Array => self.size(),
            Target::Drives => self.members[0].info().bytes,
        };
        let place = self.sources[source].next(lane, size);
        let bytes = self.sources[source].load.bytes;
        self.asked += 1;
        let id = self.asked;
        let drive = source % self.slots.len();
        self.pending.insert(
            id,
            Pending {
                epoch: self.epoch,
                source,
                lane,
                is_read: place.is_read,
                offset: place.offset,
                begun: self.now,
                device: (self.target == Target::Drives).then_some(self.slots[drive]),
            },
        );
        // The core's work comes first.
        let written = if place.is_read { 0 } else { bytes };
        self.asked_to_write += written;
        let at = self.machines.cores.request(id, written, self.now);
        if at > self.now {
            self.queue.at(at, Event::Ask(id));
            return Ok(());
        }
        self.ask(id)
    }

    fn ask(&mut self, id: u64) -> Result<(), LabError> {
        let Some(pending) = self.pending.get(&id) else {
            return Ok(());
        };
        let (offset, bytes) = (pending.offset, self.sources[pending.source].load.bytes);
        if let Some(device) = pending.device {
            let op = match pending.is_read {
                true => DriveOp::Read,
                false => DriveOp::Write { handle: 0 },
            };
            let at = self.machines.way.reaches(self.now);
            let end = self.members[device].drive.submit(at, op, offset, bytes);
            self.queue.at(end, Event::Raw(id));
            return Ok(());
        }
        let op = match pending.is_read {
            true if bytes >= IN_PLACE_MIN => Op::ReadInPlace {
                offset,
                len: bytes,
                at: 0,
            },
            true => Op::Read { offset, len: bytes },
            false => Op::Write {
                offset,
                data: Slice::new(self.content.clone(), 0, bytes as usize),
                fua: false,
            },
        };
        let request = Request {
            id: RequestId(id),
            op,
        };
        if let Some(reply) = self.machines.ask(self.now, request) {
            self.replies.push(reply);
        }
        Ok(())
    }

    fn answered(&mut self, id: u64) -> Result<(), LabError> {
        let Some(pending) = self.pending.remove(&id) else {
            return Ok(());
        };
        self.sources[pending.source].moved += self.sources[pending.source].load.bytes;
        if self.counting {
            let ns = self.now - pending.begun;
            self.sources[pending.source].answered(pending.is_read, ns);
        }
        match pending.epoch == self.epoch {
            true => self.go_on(pending.source, pending.lane),
            false => Ok(()),
        }
    }

    /// Counting begins anew.
    fn count(&mut self) {
        self.counting = true;
        self.machines.cores.count();
        for source in &mut self.sources {
            source.tally = Tally::default();
        }
    }

    /// What was counted since then, for each load as it was given.
    fn reached(&mut self, from: u64) -> Vec<Reached> {
        self.cpu_busy = self.machines.cores.busy((self.now - from) as f64);
        let seconds = ((self.now - from) as f64 / 1e9).max(1e-9);
        let drives = match self.target {
            Target::Array => 1,
            Target::Drives => self.slots.len(),
        };
        let of = |sources: &[Source]| {
            let mut all = Tally::default();
            for source in sources {
                all.reads += source.tally.reads;
                all.writes += source.tally.writes;
                let added = all.latency.add(&source.tally.latency);
                added.expect("both grow as they need");
            }
            let quantile = |q: f64| all.latency.value_at_quantile(q) as f64 / 1e3;
            let one = sources[0].load;
            Reached {
                load: Load {
                    depth: one.depth * drives as u32,
                    jobs: one.jobs * drives as u32,
                    limit: one.limit.map(|limit| limit * drives as f64),
                    ..one
                },
                read_iops: all.reads as f64 / seconds,
                write_iops: all.writes as f64 / seconds,
                latency_us: [0.5, 0.99, 0.999, 0.9999].map(quantile),
            }
        };
        self.sources.chunks(drives).map(of).collect()
    }

    /// The loads end: no request is given any more, and all that are under way are answered.
    fn end(&mut self) -> Result<(), LabError> {
        self.counting = false;
        self.epoch += 1;
        while !self.pending.is_empty() {
            if !self.step()? {
                return Err(LabError::Engine("requests without an answer".to_owned()));
            }
        }
        self.sources.clear();
        Ok(())
    }

    // ---- time ---------------------------------------------------------------------------------

    fn advance_to(&mut self, time: u64) -> Result<(), LabError> {
        self.queue.at(time, Event::Wake);
        while self.now < time {
            if !self.step()? {
                break;
            }
        }
        Ok(())
    }

    fn advance_by_bytes(&mut self, bytes: f64) -> Result<(), LabError> {
        let moved = |lab: &Lab| lab.sources.iter().map(|s| s.moved).sum::<u64>() as f64;
        let goal = moved(self) + bytes;
        self.wait("the load", |lab| moved(lab) >= goal)
    }

    fn wait(&mut self, what: &'static str, over: impl Fn(&Lab) -> bool) -> Result<(), LabError> {
        let last = self.now + PATIENCE_NS;
        let by_load = what == "the load";
        loop {
            // To ask the array for its state is dear: only when there is news of it.
            if (by_load || std::mem::take(&mut self.machines.news)) && over(self) {
                return Ok(());
            }
            if !self.step()? || self.now > last {
                return Err(LabError::Endless(what));
            }
        }
    }

    /// All that happens at the next moment. False if nothing will.
    fn step(&mut self) -> Result<bool, LabError> {
        let Some(time) = self.queue.next_time() else {
            return Ok(false);
        };
        self.now = time;
        while self.queue.next_time() == Some(time) {
            let Some((_, event)) = self.queue.pop() else {
                break;
            };
            match event {
                Event::Io(owner, DeviceId(_), completion) => self.completed(owner, completion),
                Event::Handled(shard, completion) => {
                    self.machines
                        .complete(time, Owner::Shard(shard), completion);
                }
                Event::Send(shard, io) => {
                    let owner = Owner::Shard(shard);
                    let (members, queue) = (&mut self.members, &mut self.queue);
                    self.machines.send(time, owner, io, members, queue);
                }
                Event::Raw(id) => self.answered(id)?,
                Event::ArrayTick => self.machines.array_tick(time),
                Event::ShardTick(shard) => self.machines.shard_tick(time, shard),
                Event::Ask(id) => self.ask(id)?,
                Event::Next(epoch, source, lane) => {
                    if epoch == self.epoch {
                        self.give(source, lane)?;
                    }
                }
                Event::Wake => {}
            }
        }
        self.rest()?;
        Ok(true)
    }

    /// A member's I/O is over: the shard handles that when its core is free.
    fn completed(&mut self, owner: Owner, completion: Completion) {
        if let Owner::Shard(shard) = owner {
            let at = self.machines.cores.handle(usize::from(shard), self.now);
            if at > self.now {
                self.queue.at(at, Event::Handled(shard, completion));
                return;
            }
        }
        self.machines.complete(self.now, owner, completion);
    }

    /// Lets the machines come to rest, and gives the loads their answers, until neither has more.
    fn rest(&mut self) -> Result<(), LabError> {
        loop {
            self.machines.rest(
                self.now,
                &mut self.members,
                &mut self.queue,
                &mut self.replies,
            )?;
            if self.replies.is_empty() {
                return Ok(());
            }
            let mut replies = std::mem::take(&mut self.replies);
            for reply in replies.drain(..) {
                if let Err(error) = reply.result {
                    return Err(LabError::Request(format!("{error:?}")));
                }
                self.answered(reply.id.0)?;
            }
            if self.replies.is_empty() {
                self.replies = replies;
            }
        }
    }
}

/// What requests write: no two pages are alike near each other, and none is zeros, so that parities
/// change, too.
fn content() -> Vec<u8> {
    const PAGE: usize = 4096;
    let mut bytes = vec![0; 64 << 20];
    for (at, page) in (1u64..).zip(bytes.chunks_mut(PAGE)) {
        page.fill((at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1);
    }
    bytes
}
