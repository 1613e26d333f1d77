//! Volumes of an array that serves: they are made, given other sizes and names, and deleted, while
//! requests, losses and crashes go on, and the user reads and writes through them. One array in
//! [`ONE_IN`] is carved.
//!
//! Which units a volume gets, the order of a change, what is mended at a start and how a request is
//! split are the engine's (`strake_engine::volumes`, the router); this plays the part of the
//! daemon, which carries it out.
//!
//! Invariants: draws of its own, so that worlds without volumes are what they were. A volume holds
//! what was written to it by its own offsets, and zeros everywhere else, whichever volume had its
//! units before (`Model`). A start finds the table that was acknowledged last, or one that was
//! asked for and under way.
//!
//! Arrays are too small here for the two MiB of the table. So what tables call bytes of the array
//! lies some units further on than it does: the copies, a block of 4 KiB each, have the array's
//! first bytes for themselves. And since the oracle only knows what it has numbered, a copy is
//! written as any write is; what its blocks say is looked up by the number that is read.
//!
//! Deliberately absent: devices and their names, and one change beside another (the daemon has one
//! at a time).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use strake_engine::VolumeMap;
use strake_engine::event::{Command, CommandError, Op, Request, RequestError, Setting};
use strake_engine::units::{CommandId, RequestId};
use strake_engine::volumes::{self, Ground, NewVolume, Step, VolumeError};
use strake_format::volumes::{VOLUME_AREA_BYTES, VOLUME_TABLE_OFFSETS};
use strake_format::{
    ArrayName, ChosenTable, Generation, Volume, VolumeTable, VolumeTableError, VolumeUuid,
    select_table,
};

use crate::oracle::{self, Oracle, Ticket, Version};
use crate::plan::Plan;
use crate::plan::workload::{Ask, AskKind};
use crate::prng::{Prng, Purpose};
use crate::world::{SimResult, World};

mod through;

use through::Through;

/// One array in so many has volumes.
const ONE_IN: u64 = 10;
/// Bytes of a copy of the table here.
const COPY_BYTES: u64 = 4096;
/// The most volumes: their table fits a copy, in however many pieces they are.
const MOST: usize = 6;

/// While the array changes its shape, the command to carve it is repeated after so many events.
const RETRY_EVENTS: u64 = 300;

/// A copy of the table as it was read.
type Copy = Result<Option<VolumeTable>, VolumeTableError>;

/// What a volume holds.
struct Model {
    oracle: Oracle,
    /// Units that it has.
    units: u64,
    /// Blocks of its block device.
    blocks: u64,
}

/// A part of a change, in bytes of the array.
#[derive(Clone, Debug, PartialEq)]
enum Task {
    /// The array is told that it is carved.
    Carve,
    Zero(Range<u64>),
    Discard(Range<u64>),
    Flush,
    /// A copy of the table.
    Write(usize, Vec<u8>),
    /// The change counts.
    Acknowledge,
}

/// What a change is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Carving,
    /// Both copies are to say the same, after a start.
    Start,
    Asked,
    /// A change has failed, and is not to be found.
    TakenBack,
}

/// A change of the table under way.
struct Change {
    cause: Cause,
    tasks: VecDeque<Task>,
    before: VolumeTable,
    after: VolumeTable,
    acknowledged: bool,
    /// The volume that has no device meanwhile.
    withdrawn: Option<VolumeUuid>,
    /// What of it is zeroed behind its new end.
    tail: Option<Ticket>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is known yet in this life.
    Down,
    /// The copies are read.
    Reading,
    /// The array is carved, or the copies are made the same.
    Coming,
    /// Volumes are served.
    Serving,
}

/// See the module.
pub(crate) struct Volumes {
    chance: Prng,
    no_caches: bool,
    sector_bytes: usize,
    phase: Phase,
    /// It was answered that the array is carved.
    carved: bool,
    /// The table that counts.
    table: VolumeTable,
    /// What a start may find.
    possible: Vec<VolumeTable>,
    /// A change failed, and so did taking it back.
    in_doubt: bool,
    /// What blocks of the table say, by the number of their write.
    written: BTreeMap<(u64, u64), Vec<u8>>,
    models: BTreeMap<VolumeUuid, Model>,
    change: Option<Change>,
    /// The request, or the command, that the change waits for.
    waits: Option<RequestId>,
    command: Option<CommandId>,
    /// When the array refused to be carved, in events.
    refused_at: Option<u64>,
    /// When the process is to die in the midst of a change, or just after it, in events.
    strikes_at: Option<u64>,
    copies: Vec<Copy>,
    under_way: BTreeMap<RequestId, Through>,
}

impl Plan {
    /// Some arrays have volumes. Draws of its own.
    pub(crate) fn draw_volumes(&mut self) {
        let carved = Prng::new(self.seed ^ 30, Purpose::Focus).one_in(ONE_IN);
        // Whether rot in a copy of the table may be believed is another matter.
        self.volumes = carved && !self.decays;
    }
}

/// Units further on than it lies something is for tables of this unit.
fn shift_units(unit_bytes: u64) -> u64 {
    VOLUME_AREA_BYTES.div_ceil(unit_bytes) - (2 * COPY_BYTES).div_ceil(unit_bytes)
}

fn is_served(change: Option<&Change>, volume: &Volume) -> bool {
    change.is_none_or(|change| change.withdrawn != Some(volume.uuid))
}

impl Volumes {
    /// Of a world with this plan, if it has any.
    pub(crate) fn draw(plan: &Plan, array: strake_format::ArrayUuid) -> Option<Box<Volumes>> {
        plan.volumes.then(|| {
            let mut chance = Prng::new(plan.seed ^ 30, Purpose::Focus);
            chance.bits();
            let table = VolumeTable::empty(array, COPY_BYTES);
            Box::new(Volumes {
                chance,
                no_caches: plan.devices.iter().all(|device| !device.volatile_cache),
                sector_bytes: plan.sector_bytes(),
                phase: Phase::Down,
                carved: false,
                possible: Vec::new(),
                table,
                in_doubt: false,
                written: BTreeMap::new(),
                models: BTreeMap::new(),
                change: None,
                waits: None,
                command: None,
                refused_at: None,
                strikes_at: None,
                copies: Vec::new(),
                under_way: BTreeMap::new(),
            })
        })
    }

    /// The process is gone.
    pub(crate) fn forget(&mut self) {
        self.phase = Phase::Down;
        (self.change, self.waits, self.command) = (None, None, None);
        (self.refused_at, self.strikes_at) = (None, None);
        self.copies.clear();
        self.under_way.clear();
    }

    /// The process was killed, or the power went.
    pub(crate) fn crash(&mut self, power: bool) {
        for model in self.models.values_mut() {
            model.oracle.crash(power);
        }
    }

    /// Everything answered is durable.
    pub(crate) fn all_durable(&mut self) {
        for model in self.models.values_mut() {
            model.oracle.all_durable();
        }
    }

    /// Where in the array the volume's bytes lie.
    fn map(&self, volume: &Volume, block: u64) -> VolumeMap {
        let shift = shift_units(self.table.unit_bytes) as u32;
        let mut there = volume.clone();
        for extent in &mut there.extents {
            extent.first -= shift;
        }
        VolumeMap::of(&self.table, &there, block)
    }

    /// What is to be done for these steps.
    fn tasks(&self, steps: Vec<Step>) -> VecDeque<Task> {
        let shift = shift_units(self.table.unit_bytes) * self.table.unit_bytes;
        let here = |range: Range<u64>| range.start - shift..range.end - shift;
        let place = |offset| VOLUME_TABLE_OFFSETS.iter().position(|at| *at == offset);
        let task = |step| match step {
            Step::Zero(range) => Task::Zero(match place(range.start) {
                Some(copy) => copy as u64 * COPY_BYTES..(copy as u64 + 1) * COPY_BYTES,
                None => here(range),
            }),
            Step::Discard(range) => Task::Discard(here(range)),
            Step::Flush => Task::Flush,
            Step::Acknowledge => Task::Acknowledge,
            Step::Write(offset, bytes) => {
                Task::Write(place(offset).expect("a copy's place"), bytes)
            }
        };
        steps.into_iter().map(task).collect()
    }

    /// The table counts from now on: models are those of its volumes. What is gained reads as
    /// zeros.
    fn adopt(&mut self, table: &VolumeTable, block: u64) {
        let per_unit = table.unit_bytes / block;
        let named = |uuid: &VolumeUuid| table.volumes.iter().any(|v| v.uuid == *uuid);
        self.models.retain(|uuid, _| named(uuid));
        for volume in &table.volumes {
            let (units, blocks) = (volume.units(), volume.size_bytes / block);
            let (no_caches, sector_bytes) = (self.no_caches, self.sector_bytes);
            let model = self.models.entry(volume.uuid).or_insert_with(|| Model {
                oracle: Oracle::new(blocks, block as usize, Version::ZEROS, no_caches)
                    .with_sectors(sector_bytes),
                units,
                blocks,
            });
            // Units are zeroed as a whole, whatever it had there before it shrank.
            let known = model.oracle.blocks();
            let (from, to) = (model.units * per_unit, (units * per_unit).min(known));
            if from < to {
                let zeroed = model.oracle.zero(from, to - from);
                model.oracle.answered(&zeroed, true);
            }
            if blocks > known {
                model.oracle.grow(blocks);
            }
            (model.units, model.blocks) = (units, blocks);
        }
    }
}

impl World {
    /// Is a crash due because of what is done to volumes?
    pub(crate) fn volumes_strike(&mut self) -> bool {
        let now = self.stats.events;
        let volumes = self.volumes.as_mut();
        volumes.is_some_and(|v| v.strikes_at.take_if(|at| *at <= now).is_some())
    }

    /// It is one time in so many, within so many events.
    fn strikes_within(&mut self, one_in: u64, events: u64) {
        let now = self.stats.events;
        let vols = self.vols();
        if vols.chance.one_in(one_in) {
            vols.strikes_at = Some(now + vols.chance.below(events));
        }
    }

    pub(crate) fn vols(&mut self) -> &mut Volumes {
        self.volumes.as_mut().expect("the array has volumes")
    }

    fn ground(&self, unit_bytes: u64) -> Ground {
        let Ground {
            block_bytes,
            size_bytes,
        } = Ground::of(&self.geometry);
        let shift = shift_units(unit_bytes) * unit_bytes;
        Ground {
            block_bytes,
            size_bytes: size_bytes + shift,
        }
    }

    /// Whatever is under way of a change goes on, after an event.
    pub(crate) fn volumes_step(&mut self) -> SimResult {
        let ready = self.takes_requests();
        let stops = || self.admin.commands.values().any(|text| text == "Stop");
        if self.volumes.is_none() || !ready || stops() {
            return Ok(());
        }
        if self.vols().phase == Phase::Down {
            self.bring_up()?;
        }
        if let Some(command) = self.vols().command
            && let Some(result) = self.admin.done.get(&command)
        {
            let result = *result;
            let at = self.stats.events;
            let vols = self.vols();
            vols.command = None;
            match result {
                Ok(_) => vols.carved = true,
                // Its shape is about to be another: later, perhaps.
                Err(CommandError::Reshaping) => {
                    vols.refused_at = Some(at);
                    let change = vols.change.as_mut().expect("it is under way");
                    change.tasks.push_front(Task::Carve);
                }
                Err(error) => {
                    return self.failure(format!("the array is not carved: {error}"));
                }
            }
        }
        let now = self.stats.events;
        if self
            .vols()
            .refused_at
            .is_some_and(|at| now < at + RETRY_EVENTS)
        {
            return Ok(());
        }
        self.change_on()
    }

    /// The array serves: carve it, or find out what it has.
    fn bring_up(&mut self) -> SimResult {
        let carved = self.array().status().superblock.carved;
        if self.vols().carved && !carved {
            return self.failure("the array has forgotten that it is carved");
        }
        if !carved {
            let unit = volumes::unit_bytes(&self.geometry);
            let empty = VolumeTable::empty(self.superblock.array, unit);
            let whole = self.geometry.size() / unit * unit;
            self.note(format!("the array is carved, in units of {unit}"));
            let vols = self.vols();
            vols.possible = vec![empty.clone()];
            vols.phase = Phase::Coming;
            vols.change = Some(Change {
                cause: Cause::Carving,
                tasks: [
                    Task::Zero(0..whole),
                    Task::Flush,
                    Task::Carve,
                    Task::Acknowledge,
                ]
                .into(),
                before: empty.clone(),
                after: empty,
                acknowledged: false,
                withdrawn: None,
                tail: None,
            });
            return Ok(());
        }
        self.vols().carved = true;
        self.vols().phase = Phase::Reading;
        self.read_copy()
    }

    /// Asks for the next copy of the table.
    fn read_copy(&mut self) -> SimResult {
        let copy = self.vols().copies.len() as u64;
        let count = COPY_BYTES / self.geometry.block;
        self.vols().waits = Some(RequestId(self.user.next_request));
        self.submit(Ask::new(AskKind::Read, copy * count, count))
    }

    /// What a copy of the table says, once its blocks were read.
    fn copy_read(&mut self, bytes: &[u8]) -> SimResult<Copy> {
        let block = self.geometry.block;
        let copy = self.vols().copies.len();
        let first = copy as u64 * COPY_BYTES / block;
        let mut says = Vec::new();
        for (at, bytes) in (first..).zip(bytes.chunks(block as usize)) {
            let Some(versions) = self.oracle.versions_in(at, bytes) else {
                let held = oracle::describe(at, bytes);
                return self.failure(format!("block {at} of the table of volumes: {held}"));
            };
            let sector = bytes.len() / versions.len();
            for (from, version) in (0..).step_by(sector).zip(versions) {
                match self.vols().written.get(&(version.0, at)) {
                    Some(said) => says.extend_from_slice(&said[from..from + sector]),
                    None => says.extend_from_slice(&bytes[from..from + sector]),
                }
            }
        }
        let array = self.superblock.array;
        Ok(VolumeTable::decode(
            &says,
            VOLUME_TABLE_OFFSETS[copy],
            array,
        ))
    }

    /// Both copies were read: which table is it?
    fn choose_table(&mut self) -> SimResult {
        let copies: [Copy; 2] = std::mem::take(&mut self.vols().copies)
            .try_into()
            .expect("there are two");
        let unreadable = copies.contains(&Err(VolumeTableError::Unreadable));
        let chosen = match select_table(&copies) {
            Ok(chosen) => chosen,
            Err(_) if unreadable => {
                // Whether that was fair is known: volumes are not served.
                self.note("the table of volumes cannot be read".to_owned());
                self.stats.volume_tables_lost += 1;
                self.volumes = None;
                return self.pump();
            }
            Err(error) => {
                return self.failure(format!("the table of volumes is not believed: {error}"));
            }
        };
        let vols = self.vols();
        let last = vols.possible.last().cloned();
        let last = last.expect("something was asked for");
        let found = match &chosen.table {
            Some(table) => table.clone(),
            None => VolumeTable {
                generation: Generation(0),
                volumes: Vec::new(),
                ..last
            },
        };
        if !vols.possible.contains(&found) {
            let possible: Vec<String> = vols.possible.iter().map(text).collect();
            let found = text(&found);
            let possible = possible.join(" or ");
            return self.failure(format!(
                "the table of volumes is {found}, and may be {possible}"
            ));
        }
        vols.in_doubt = false;
        self.stats.volume_tables_found += 1;
        if found != self.vols().table {
            self.stats.volume_changes_found += 1;
        }
        self.note(format!("the table of volumes is {}", text(&found)));
        let vols = self.vols();
        vols.table.unit_bytes = found.unit_bytes;
        let mut steps = volumes::repair(&chosen);
        steps.push(Step::Acknowledge);
        let tidy = vols.chance.percent(20);
        if tidy {
            let ground = self.ground(found.unit_bytes);
            steps.extend(volumes::free_ranges(&found, ground).map(Step::Discard));
        }
        let vols = self.vols();
        vols.phase = Phase::Coming;
        vols.change = Some(Change {
            cause: Cause::Start,
            tasks: vols.tasks(steps),
            before: found.clone(),
            after: found,
            acknowledged: false,
            withdrawn: None,
            tail: None,
        });
        Ok(())
    }

    /// The change goes on as far as it can without an answer.
    fn change_on(&mut self) -> SimResult {
        loop {
            let vols = self.vols();
            let Some(change) = &mut vols.change else {
                return Ok(());
            };
            let in_use = |through: &Through| change.withdrawn == Some(through.volume);
            let used = vols.under_way.values().any(in_use);
            if used || vols.waits.is_some() || vols.command.is_some() {
                return Ok(());
            }
            let Some(task) = change.tasks.pop_front() else {
                self.change_ends(true);
                return Ok(());
            };
            match task {
                Task::Acknowledge => self.acknowledge(),
                Task::Carve => {
                    let command = self.command(Command::Set(Setting::Carved));
                    self.vols().command = Some(command);
                }
                task => return self.carry_out(task),
            }
        }
    }

    fn carry_out(&mut self, task: Task) -> SimResult {
        let block = self.geometry.block;
        let over = |kind, range: &Range<u64>| {
            Ask::new(kind, range.start / block, (range.end - range.start) / block)
        };
        let ask = match &task {
            Task::Zero(range) => over(AskKind::WriteZeroes, range),
            Task::Discard(range) => over(AskKind::Discard, range),
            Task::Write(copy, bytes) => {
                assert_eq!(bytes.len() as u64, COPY_BYTES, "few volumes are one block");
                let at = *copy as u64 * COPY_BYTES;
                over(AskKind::Write, &(at..at + COPY_BYTES))
            }
            _ => over(AskKind::Flush, &(0..0)),
        };
        if ask.kind.changes() && self.touches_corrupt(&ask) {
            // As the usual user, it changes nothing where undetected corrupt content lies.
            let change = self.vols().change.as_mut();
            change.expect("it is under way").tasks.push_front(task);
            return Ok(());
        }
        let id = RequestId(self.user.next_request);
        let vols = self.vols();
        vols.waits = Some(id);
        if let Task::Write(..) = task {
            let after = &vols.change.as_ref().expect("it is under way").after;
            if !vols.possible.contains(after) {
                vols.possible.push(after.clone());
            }
        }
        self.submit(ask)?;
        if let Task::Write(_, bytes) = &task {
            let ticket = self.user.asks.get(&id).and_then(|asked| asked.ticket);
            let number = ticket.expect("a write has one").version().0;
            for (at, bytes) in (ask.first..).zip(bytes.chunks(block as usize)) {
                self.vols().written.insert((number, at), bytes.to_vec());
            }
        }
        Ok(())
    }

    /// The change is acknowledged.
    fn acknowledge(&mut self) {
        let block = self.geometry.block;
        let vols = self.vols();
        let change = vols.change.as_mut().expect("it is under way");
        change.acknowledged = true;
        let (cause, after) = (change.cause, change.after.clone());
        let withdrawn = change.withdrawn;
        if vols.in_doubt {
            vols.possible.push(after.clone());
        } else {
            vols.possible = vec![after.clone()];
        }
        let shrunk = withdrawn.and_then(|uuid| {
            let model = vols.models.get(&uuid)?;
            // Of a shrink before it a crash can have kept the tail: what it held goes with this
            // one.
            let (old, known) = (model.blocks, model.oracle.blocks());
            let volume = after.volumes.iter().find(|v| v.uuid == uuid)?;
            let kept = volume.units() * after.unit_bytes / block;
            let (from, to) = (volume.size_bytes / block, known.min(kept));
            (from < old && from < to).then_some((uuid, from, to))
        });
        vols.adopt(&after, block);
        if let Some((uuid, from, to)) = shrunk {
            let model = vols.models.get_mut(&uuid).expect("it is there still");
            let tail = model.oracle.zero(from, to - from);
            vols.change.as_mut().expect("it is under way").tail = Some(tail);
        }
        vols.phase = Phase::Serving;
        let told = format!("{cause:?}: volumes are {}", text(&after));
        vols.table = after;
        self.note(told);
        if cause == Cause::Asked {
            self.stats.volume_changes += 1;
            self.strikes_within(4, 20);
        }
    }

    /// Nothing more is to be done for the change.
    fn change_ends(&mut self, well: bool) {
        let vols = self.vols();
        let change = vols.change.take().expect("it is under way");
        let tail = change.withdrawn.zip(change.tail);
        if let Some((uuid, tail)) = tail
            && let Some(model) = vols.models.get_mut(&uuid)
        {
            match well {
                true => model.oracle.answered(&tail, false),
                false => model.oracle.unanswered(&tail),
            }
        }
    }

    /// A request that was made for volumes was answered.
    pub(crate) fn volumes_note(&mut self, id: RequestId, well: bool) -> SimResult {
        let waits = self.volumes.as_ref().and_then(|vols| vols.waits);
        if waits != Some(id) {
            return Ok(());
        }
        self.vols().waits = None;
        if self.vols().phase == Phase::Reading {
            let copy = match well {
                true => {
                    let bytes = std::mem::take(&mut self.user.scratch);
                    let copy = self.copy_read(&bytes)?;
                    self.user.scratch = bytes;
                    copy
                }
                false => Err(VolumeTableError::Unreadable),
            };
            self.vols().copies.push(copy);
            return match self.vols().copies.len() {
                1 => self.read_copy(),
                _ => self.choose_table(),
            };
        }
        if !well {
            self.task_failed();
        }
        Ok(())
    }

    /// A part of a change got an error: what the daemon does then.
    fn task_failed(&mut self) {
        self.note("the change of volumes fails".to_owned());
        self.stats.volume_changes_failed += 1;
        let vols = self.vols();
        let change = vols.change.as_mut().expect("it is under way");
        match change.cause {
            _ if change.acknowledged => self.change_ends(false),
            Cause::Carving => {
                vols.change = None;
                vols.phase = Phase::Down;
            }
            Cause::Start | Cause::TakenBack => {
                change.tasks.retain(|task| *task == Task::Acknowledge);
                vols.in_doubt = true;
            }
            Cause::Asked => {
                let again = VolumeTable {
                    generation: change.after.generation.next(),
                    ..change.before.clone()
                };
                let both = ChosenTable {
                    table: Some(again.clone()),
                    behind: [true; 2],
                };
                let mut steps = volumes::repair(&both);
                steps.push(Step::Acknowledge);
                change.cause = Cause::TakenBack;
                change.after = again;
                let tasks = vols.tasks(steps);
                vols.change.as_mut().expect("it is under way").tasks = tasks;
            }
        }
    }

    /// Begins a change.
    fn begin_change(&mut self) -> SimResult {
        let block = self.geometry.block;
        let uuid = VolumeUuid(self.vols().chance.bytes16());
        let vols = self.vols();
        let before = vols.table.clone();
        let unit = before.unit_bytes;
        let ground = self.ground(unit);
        let rng = &mut self.vols().chance;
        let there = before.volumes.len();
        let blocks = |rng: &mut Prng, most: u64| match rng.below(3) {
            0 => rng.range(1, most) * unit,
            _ => rng.range(1, most * unit / block) * block,
        };
        let any: ArrayName = format!("v{}", rng.below(9)).parse().expect("a name");
        let kind = match there {
            0 => 0,
            MOST.. => rng.range(2, 6),
            _ => rng.below(7),
        };
        if kind < 2 {
            // Small ones are in each other's way when they grow.
            let most = rng.pick(&[1, 1, 1, 2, 6]);
            let new = NewVolume {
                uuid,
                name: any,
                size_bytes: blocks(rng, most),
                created_unix_s: 1,
            };
            return match volumes::create(&before, ground, new) {
                Ok(after) => self.change_to(&before, after, None),
                Err(error) => self.change_refused(error),
            };
        }
        let volume = rng.pick(&(0..there).collect::<Vec<_>>());
        let volume = &before.volumes[volume];
        let (name, size) = (volume.name.as_str(), volume.size_bytes);
        let (after, withdrawn) = match kind {
            2 => (volumes::rename(&before, name, any), None),
            3 => (volumes::delete(&before, name), Some(volume.uuid)),
            4 => {
                let less = blocks(rng, 4).min(size - block);
                let shrink = rng.percent(90);
                let after = volumes::resize(&before, ground, name, size - less, shrink);
                let refused = matches!(after, Err(VolumeError::WouldShrink { .. }));
                if less > 0 && !shrink && !refused {
                    return self.failure(format!("{name} shrinks, and that was not said"));
                }
                (after, Some(volume.uuid))
            }
            _ => {
                let more = blocks(rng, 3);
                let after = volumes::resize(&before, ground, name, size + more, false);
                (after, None)
            }
        };
        match after {
            Ok(after) => self.change_to(&before, after, withdrawn),
            Err(error) => self.change_refused(error),
        }
    }

    fn change_to(
        &mut self,
        before: &VolumeTable,
        mut after: VolumeTable,
        withdrawn: Option<VolumeUuid>,
    ) -> SimResult {
        let steps = volumes::steps(before, &mut after);
        self.note(format!("volumes are to be {}", text(&after)));
        let ground = self.ground(after.unit_bytes);
        let beyond =
            |e: strake_format::volumes::Extent| e.end() * after.unit_bytes > ground.size_bytes;
        if after.extents().any(beyond) {
            return self.failure("a volume is given what the array does not have");
        }
        let vols = self.vols();
        let tasks = vols.tasks(steps);
        vols.change = Some(Change {
            cause: Cause::Asked,
            tasks,
            before: before.clone(),
            after,
            acknowledged: false,
            withdrawn,
            tail: None,
        });
        self.strikes_within(6, 400);
        self.change_on()
    }

    fn change_refused(&mut self, error: VolumeError) -> SimResult {
        use VolumeError::{NameTaken, NoSpace, WouldShrink};
        self.stats.volume_changes_refused += 1;
        match error {
            NameTaken | NoSpace { .. } | WouldShrink { .. } => Ok(()),
            error => self.failure(format!("a change of volumes is refused: {error}")),
        }
    }
}

/// A table in words.
fn text(table: &VolumeTable) -> String {
    let volume = |v: &Volume| {
        let extents = v.extents.iter().map(|e| format!("{}+{}", e.first, e.units));
        let extents: Vec<String> = extents.collect();
        format!("{} of {} at {}", v.name, v.size_bytes, extents.join(","))
    };
    let volumes: Vec<String> = table.volumes.iter().map(volume).collect();
    format!("({}: {})", table.generation.0, volumes.join("; "))
}
