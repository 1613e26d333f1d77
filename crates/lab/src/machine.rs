//! The machines of one array over modelled members, driven in virtual time.
//!
//! Invariant: after everything that happens at one moment, the machines are polled until they are
//! quiet, as the runtime does after each batch.

use std::sync::Arc;

use strake_engine::create::{CreateSpec, Init, Tiny, plan};
use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Array, HedgeRules, Pool, Router, Shard, StartOptions, Target, limits, logs};
use strake_format::{
    ArrayUuid, MapPage, MemberUuid, Superblock, UnreadableList, region_map, unreadable,
};

use crate::bench::LabError;
use crate::cpu::Cores;
use crate::event::{self, Owner, Queue, Way};
use crate::member::Member;
use crate::setup::Setup;

/// Regions of a modelled member. A whole drive has up to 16,384: so few here keep the same relation
/// between data and the writes of the map.
const REGIONS: u64 = 64;
/// Logs that fill an erase block: on a whole drive a block takes the log many times, so that all
/// in it is stale when it is full.
const LOGS_PER_BLOCK: u64 = 4;
/// Buffer memory of a shard.
const SHARD_MEMORY: usize = 192 << 20;
const CLEAN_AFTER_MS: u64 = 5000;

/// Bytes that were written to members, by their purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Data in place.
    pub data: u64,
    /// Parity in place.
    pub parity: u64,
    /// The stripe log.
    pub log: u64,
    /// Superblocks and the region map.
    pub metadata: u64,
    /// Rebuilds.
    pub rebuild: u64,
}

impl Written {
    fn count(&mut self, io: &MemberIo) {
        if let IoKind::Write { data, purpose, .. } = &io.kind {
            let of = match purpose {
                WritePurpose::Data => &mut self.data,
                WritePurpose::Parity => &mut self.parity,
                WritePurpose::Log => &mut self.log,
                WritePurpose::Metadata => &mut self.metadata,
                WritePurpose::Rebuild => &mut self.rebuild,
            };
            *of += data.len as u64;
        }
    }

    /// What was written since an earlier count.
    pub(crate) fn since(&self, before: &Written) -> Written {
        Written {
            data: self.data - before.data,
            parity: self.parity - before.parity,
            log: self.log - before.log,
            metadata: self.metadata - before.metadata,
            rebuild: self.rebuild - before.rebuild,
        }
    }
}

/// See the module.
pub(crate) struct Machines {
    pub(crate) array: Array,
    shards: Vec<Shard>,
    pub(crate) router: Router,
    pieces: Vec<(Target, Request)>,
    array_tick: Option<u64>,
    shard_ticks: Vec<Option<u64>>,
    touched: Vec<bool>,
    array_touched: bool,
    started: bool,
    /// The way to the drives.
    pub(crate) way: Way,
    /// The cores of the shards.
    pub(crate) cores: Cores,
    /// What was written to members, by its purpose.
    pub(crate) written: Written,
    /// Something happened that changes the state of the array.
    pub(crate) news: bool,
    pub(crate) layout: strake_format::Layout,
}

fn member_uuid(number: u64) -> MemberUuid {
    MemberUuid((u128::from(number) + 1).to_be_bytes())
}

fn read(member: &Member, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    member.peek(offset, &mut bytes);
    bytes
}

fn pages(member: &Member, sb: &Superblock) -> Vec<Option<MapPage>> {
    let version = |page: u32, sequence: u64| {
        let offset = region_map::place(&sb.layout, page, sequence);
        MapPage::decode(&read(member, offset, region_map::PAGE_BYTES), offset)
    };
    (0..sb.layout.map_pages)
        .map(|page| region_map::newest(version(page, 0), version(page, 1)))
        .collect()
}

fn lists(member: &Member, sb: &Superblock) -> [Option<UnreadableList>; 2] {
    unreadable::places(&sb.layout).map(|offset| {
        let bytes = read(member, offset, sb.layout.unreadable_bytes as usize);
        UnreadableList::decode(&bytes, offset).ok()
    })
}

/// How a new array of this setup is made.
fn spec(setup: &Setup, members: &[Member]) -> CreateSpec {
    let bytes = members[0].info().bytes;
    let region_bytes = (bytes / REGIONS).next_multiple_of(1 << 20);
    CreateSpec {
        array: ArrayUuid([7; 16]),
        name: "lab".parse().expect("a name"),
        level: setup.level,
        strip_bytes: setup.strip,
        group_size: setup.group_size,
        block_bytes: Some(4096),
        write_hole: setup.write_hole,
        settings: setup.settings,
        init: Init::Lazy,
        created_unix_s: 0,
        members: (0..)
            .zip(members)
            .map(|(at, member)| (member.info(), member_uuid(at)))
            .collect(),
        spares: Vec::new(),
        tiny: Some(Tiny {
            align_bytes: 1 << 20,
            log_bytes: setup.block_bytes() / LOGS_PER_BLOCK,
            log_shards: setup.shards(),
            region_bytes,
            page_regions: None,
        }),
    }
}

impl Machines {
    /// Makes the array on these members, and starts it.
    pub(crate) fn new(setup: &Setup, members: &mut [Member]) -> Result<Machines, LabError> {
        let made = plan(&spec(setup, members)).map_err(|e| LabError::Shape(e.to_string()))?;
        for (member, writes) in members.iter_mut().zip(&made.writes) {
            for (offset, bytes) in writes {
                member.poke(*offset, bytes);
            }
        }
        let mut found = Vec::new();
        for ((at, member), superblock) in (0..).zip(members).zip(&made.superblocks) {
            member.lay_out(&superblock.layout);
            found.push(Found {
                device: DeviceId(at),
                info: member.info(),
                superblock: superblock.clone(),
                copy_to_replace: 0,
                emptied: None,
                map: pages(member, superblock),
                map_whole: Vec::new(),
                unreadable: lists(member, superblock),
                log: Vec::new(),
            });
        }
        let layout = made.superblocks[0].layout;
        let shards = logs::shards_for(&made.superblocks[0], setup.shards());
        let options = StartOptions {
            shards,
            force: false,
            clean_after_ms: CLEAN_AFTER_MS,
            hedging: HedgeRules::default(),
            window_bytes: 4 << 20,
            fold: true,
            session: 1,
            unix_s: 0,
        };
        let array = Array::assemble(found, &options);
        let mut array = array.map_err(|error| LabError::Shape(error.to_string()))?;
        let ready = array.setup();
        let geometry = Arc::clone(&ready.geometry);
        let stock = limits::stock(&geometry, SHARD_MEMORY);
        let shard = |index| Shard::new(ShardNo(index), shards, ready.clone(), Pool::new(&stock));
        let shards: Vec<Shard> = (0..shards).map(shard).collect();
        array.start(Time(0));
        let data_strips = geometry.k as f64;
        Ok(Machines {
            array,
            router: Router::new(geometry, shards.len() as u16, 0),
            pieces: Vec::new(),
            array_tick: None,
            shard_ticks: vec![None; shards.len()],
            touched: vec![true; shards.len()],
            array_touched: true,
            started: false,
            way: Way::of(setup.host.device_iops),
            cores: Cores::new(setup.host.cpu, shards.len(), data_strips),
            written: Written::default(),
            news: true,
            layout,
            shards,
        })
    }

    /// The array serves.
    pub(crate) fn serves(&self) -> bool {
        self.started
    }

    /// A device for a slot that has none.
    pub(crate) fn new_device(number: u32, member: &Member) -> NewDevice {
        NewDevice {
            device: DeviceId(number),
            info: member.info(),
            member: member_uuid(u64::from(number)),
        }
    }

    /// A request comes. An answer that needs no member comes back.
    pub(crate) fn ask(&mut self, now: u64, request: Request) -> Option<Reply> {
        let mut pieces = std::mem::take(&mut self.pieces);
        let reply = self.router.route(request, &mut pieces);
        for (target, piece) in pieces.drain(..) {
            match target {
                Target::Shard(ShardNo(shard)) => {
                    self.touched[usize::from(shard)] = true;
                    self.shards[usize::from(shard)].submit(Time(now), piece);
                }
                Target::Array => {
                    self.array_touched = true;
                    self.array.submit(Time(now), piece);
                }
            }
        }
        self.pieces = pieces;
        reply
    }

    pub(crate) fn command(&mut self, now: u64, command: Command) {
        self.array_touched = true;
        self.array.command(Time(now), CommandId(1), command);
    }

    /// A member's I/O is over.
    pub(crate) fn complete(&mut self, now: u64, owner: Owner, completion: Completion) {
        match owner {
            Owner::Array => {
                self.array_touched = true;
                self.array.complete(Time(now), completion);
            }
            Owner::Shard(shard) => {
                self.touched[usize::from(shard)] = true;
                self.shards[usize::from(shard)].complete(Time(now), completion);
            }
        }
    }

    /// Gives an I/O to its member.
    pub(crate) fn send(
        &mut self,
        now: u64,
        owner: Owner,
        io: MemberIo,
        members: &mut [Member],
        queue: &mut Queue,
    ) {
        self.written.count(&io);
        let at = self.way.reaches(now);
        let device = io.device;
        let (end, completion) = members[device.0 as usize].io(at, io);
        queue.at(end, event::Event::Io(owner, device, completion));
    }

    pub(crate) fn array_tick(&mut self, now: u64) {
        self.array_tick = None;
        if self.array.deadline().is_some_and(|at| at.0 <= now) {
            self.array_touched = true;
            self.array.tick(Time(now));
        }
    }

    pub(crate) fn shard_tick(&mut self, now: u64, shard: u16) {
        let at = usize::from(shard);
        self.shard_ticks[at] = None;
        self.touched[at] = true;
        self.shards[at].tick(Time(now));
    }

    /// Polls every machine that something came to, until all are quiet.
    pub(crate) fn rest(
        &mut self,
        now: u64,
        members: &mut [Member],
        queue: &mut Queue,
        replies: &mut Vec<Reply>,
    ) -> Result<(), LabError> {
        loop {
            let mut quiet = true;
            for shard in 0..self.shards.len() {
                if std::mem::take(&mut self.touched[shard]) || self.shards[shard].hungry() {
                    quiet &= !self.rest_shard(now, shard, members, queue, replies)?;
                }
            }
            if std::mem::take(&mut self.array_touched) {
                quiet &= !self.rest_array(now, members, queue, replies)?;
            }
            if quiet && !self.array_touched && !self.touched.contains(&true) {
                break;
            }
        }
        self.arm(now, queue);
        Ok(())
    }

    fn rest_shard(
        &mut self,
        now: u64,
        shard: usize,
        members: &mut [Member],
        queue: &mut Queue,
        replies: &mut Vec<Reply>,
    ) -> Result<bool, LabError> {
        let mut any = false;
        while let Some(output) = self.shards[shard].poll() {
            any = true;
            match output {
                ShardOutput::Io(io) => {
                    let at = self.cores.send(shard, &io, now);
                    match at > now {
                        true => queue.at(at, event::Event::Send(shard as u16, io)),
                        false => self.send(now, Owner::Shard(shard as u16), io, members, queue),
                    }
                }
                ShardOutput::Reply(reply) => replies.extend(self.router.join(reply)),
                ShardOutput::Message(message) => {
                    self.array_touched = true;
                    let from = ShardNo(shard as u16);
                    self.array.message(Time(now), from, message);
                }
                ShardOutput::Pass(ShardNo(to), piece, late) => {
                    self.touched[usize::from(to)] = true;
                    self.shards[usize::from(to)].passed(Time(now), piece, late);
                }
                ShardOutput::WriteToken(ShardNo(to), token) => {
                    self.touched[usize::from(to)] = true;
                    self.shards[usize::from(to)].write_token(Time(now), token);
                }
                ShardOutput::Again(_) => {
                    return Err(LabError::Engine(
                        "the shape of the array changed".to_owned(),
                    ));
                }
            }
        }
        Ok(any)
    }

    fn rest_array(
        &mut self,
        now: u64,
        members: &mut [Member],
        queue: &mut Queue,
        replies: &mut Vec<Reply>,
    ) -> Result<bool, LabError> {
        let mut any = false;
        while let Some(output) = self.array.poll() {
            any = true;
            match output {
                ArrayOutput::Io(io) => self.send(now, Owner::Array, io, members, queue),
                ArrayOutput::Reply(reply) => replies.extend(self.router.join(reply)),
                ArrayOutput::Message(ShardNo(shard), message) => {
                    self.touched[usize::from(shard)] = true;
                    self.shards[usize::from(shard)].message(Time(now), message);
                }
                ArrayOutput::Done { result, .. } => {
                    self.news = true;
                    if let Err(error) = result {
                        return Err(LabError::Engine(error.to_string()));
                    }
                }
                ArrayOutput::Event(_) | ArrayOutput::Release(_) => self.news = true,
                ArrayOutput::Started => self.started = true,
                ArrayOutput::Overdue(..)
                | ArrayOutput::Again(_)
                | ArrayOutput::Reshaped(_)
                | ArrayOutput::Stopped => {}
            }
        }
        Ok(any)
    }

    /// Lets the machines be called when they want to be.
    fn arm(&mut self, now: u64, queue: &mut Queue) {
        let sooner = |set: Option<u64>, at: u64| set.is_none_or(|set| at < set);
        if let Some(Time(at)) = self.array.deadline() {
            let at = at.max(now + 1);
            if sooner(self.array_tick, at) {
                self.array_tick = Some(at);
                queue.at(at, event::Event::ArrayTick);
            }
        }
        for (index, shard) in self.shards.iter().enumerate() {
            if let Some(Time(at)) = shard.deadline() {
                let at = at.max(now + 1);
                if sooner(self.shard_ticks[index], at) {
                    self.shard_ticks[index] = Some(at);
                    queue.at(at, event::Event::ShardTick(index as u16));
                }
            }
        }
    }
}
