//! Making an array on simulated devices, and starting it from what they carry.
//!
//! Invariant: the engine learns of the past only through the bytes on the devices.
//!
//! Deliberately absent: which devices are there at a start (`life`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use strake_engine::create::{self, CreatePlan, CreateSpec, Init, Step};
use strake_engine::event::{Command, DeviceInfo, Found, Setting};
use strake_engine::gather::{self, Gather};
use strake_engine::logs::shards_for;
use strake_engine::units::{RegionNo, ShardNo};
use strake_engine::{Array, Geometry, Pool, Router, Shard, StartError, StartOptions, limits};
use strake_format::log::Scan;
use strake_format::region_map::{self, PAGE_BYTES};
use strake_format::unreadable;
use strake_format::{
    ArrayName, ArrayUuid, CopyStatus, Known, LogBatch, MapError, MapPage, MemberUuid, RegionState,
    Role, SUPERBLOCK_BYTES, SlotRecord, SlotState, Superblock, SuperblockBytes, UnreadableList,
    copy_to_replace, lost_copy, select_member,
};

use crate::canary::Canary;
use crate::drive::{Ssd, Wear};
use crate::oracle::Version;
use crate::plan::{Device, Plan, grain_at};
use crate::prng::{Prng, Purpose};
use crate::world::inspect;
use crate::world::{Drive, Machines, SimResult, World};

/// A new array.
pub struct Made {
    /// A superblock of it.
    pub superblock: Superblock,
    /// The devices, with the array on them.
    pub drives: Vec<Drive>,
    /// What is left of the stream of identities.
    pub identity: Prng,
    /// What every block holds.
    pub content: Version,
}

/// The plan's devices, full of garbage.
fn fresh_drives(plan: &Plan, identity: &mut Prng) -> Vec<Drive> {
    let fresh = |device: &Device, identity: &mut Prng| {
        let block = u64::from(plan.block);
        let bytes = device.bytes as usize;
        let mut ssd = Ssd::new(bytes, block, device.volatile_cache, identity.bits());
        ssd.granularity = device.granularity;
        if device.small_sectors {
            ssd.sector = 512;
        }
        if device.flash {
            ssd.wear = Wear::of(device.bytes, device.granularity);
        }
        ssd
    };
    plan.devices
        .iter()
        .map(|device| Drive::new(fresh(device, identity)))
        .collect()
}

/// How much of making an array was done when the power went.
#[derive(Clone, Copy, Debug)]
pub struct Half {
    /// Steps that were begun.
    pub steps: usize,
    /// Decides what is left of what was not durable.
    pub seed: u64,
}

/// How many steps it takes to make the plan's array.
///
/// # Panics
/// If the engine refuses the plan.
pub fn steps_to_make(plan: &Plan) -> usize {
    let mut identity = Prng::new(plan.seed, Purpose::Identity);
    let drives = fresh_drives(plan, &mut identity);
    let spec = spec_of(plan, &drives, &mut identity);
    let made = create::plan(&spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"));
    all_steps(&made).len()
}

/// Makes the plan's array on fresh devices.
///
/// # Panics
/// If the engine refuses the plan: plans are drawn so that it does not.
pub fn make(plan: &Plan) -> Made {
    make_until(plan, None)
}

/// The same, perhaps not to its end.
///
/// # Panics
/// If the engine refuses the plan.
pub fn make_until(plan: &Plan, until: Option<Half>) -> Made {
    let mut identity = Prng::new(plan.seed, Purpose::Identity);
    let drives = fresh_drives(plan, &mut identity);
    make_on(plan, drives, identity, until)
}

/// The same on these devices, whatever they hold.
///
/// # Panics
/// If the engine refuses the plan.
pub fn make_on(
    plan: &Plan,
    mut drives: Vec<Drive>,
    mut identity: Prng,
    until: Option<Half>,
) -> Made {
    let members = usize::from(plan.shape.members);
    let spec = spec_of(plan, &drives, &mut identity);
    let made = create::plan(&spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"));
    let superblock = made.superblocks[0].clone();
    let layout = &superblock.layout;
    if plan.init == Init::AssumeClean {
        let zeros = vec![0; layout.data_bytes as usize];
        for drive in &mut drives[..members] {
            drive.ssd.poke(layout.data_offset, &zeros);
        }
    }
    for drive in &mut drives[..members + plan.spares] {
        drive.used = true;
    }
    lay(&all_steps(&made), plan.block, until, |at, offset, bytes| {
        drives[at].ssd.poke(offset, bytes);
    });
    for drive in &mut drives {
        drive.ssd.data = layout.data_offset..layout.data_offset + layout.data_bytes;
        drive.ssd.log = layout.log_offset..layout.log_offset + layout.log_bytes;
    }
    let content = if plan.init == Init::Sync {
        Version::UNDEFINED
    } else {
        Version::ZEROS
    };
    Made {
        superblock,
        drives,
        identity,
        content,
    }
}

fn spec_of(plan: &Plan, drives: &[Drive], identity: &mut Prng) -> CreateSpec {
    let members = usize::from(plan.shape.members);
    let mut devices: Vec<(DeviceInfo, MemberUuid)> = drives[..members + plan.spares]
        .iter()
        .map(|drive| {
            let info = DeviceInfo {
                bytes: drive.ssd.len(),
                block_bytes: drive.ssd.sector as u32,
                granularity_bytes: drive.ssd.granularity,
                volatile_cache: drive.ssd.volatile_cache(),
                dma: true,
            };
            (info, MemberUuid(identity.bytes16()))
        })
        .collect();
    let spares = devices.split_off(members);
    CreateSpec {
        array: ArrayUuid(identity.bytes16()),
        name: ArrayName::try_from("sim").expect("a name"),
        level: plan.shape.level,
        strip_bytes: Some(plan.strip),
        group_size: plan.shape.group,
        block_bytes: Some(plan.block),
        write_hole: plan.write_hole,
        settings: plan.settings,
        init: plan.init,
        created_unix_s: 1_700_000_000,
        members: devices,
        spares,
        tiny: Some(plan.tiny),
    }
}

/// Everything that making an array is, but for its data area.
fn all_steps(made: &CreatePlan) -> Vec<Step<'_>> {
    [made.clearing(), made.steps()].concat()
}

/// Does the steps, all of them or until the power goes: then of each that its device was not told
/// to make durable, any blocks may be there, or none. `poke` writes to a device.
pub(crate) fn lay(
    steps: &[Step<'_>],
    block: u32,
    until: Option<Half>,
    mut poke: impl FnMut(usize, u64, &[u8]),
) {
    let begun = until.map_or(steps.len(), |half| half.steps.min(steps.len()));
    let mut fate = Prng::new(until.map_or(0, |half| half.seed), Purpose::Fate);
    let done = &steps[..begun];
    for (nth, step) in done.iter().enumerate() {
        let (at, offset, bytes) = match step {
            Step::Zero { at, offset, len } => (*at, *offset, vec![0; *len as usize]),
            Step::Write { at, offset, bytes } => (*at, *offset, bytes.to_vec()),
            Step::Flush { .. } => continue,
        };
        let durable = until.is_none() || done[nth..].contains(&Step::Flush { at });
        let whole = durable || fate.one_in(3);
        for (piece, from) in bytes
            .chunks(block as usize)
            .zip((offset..).step_by(block as usize))
        {
            if whole || fate.percent(50) {
                poke(at, from, piece);
            }
        }
    }
}

/// A superblock, and whether its copies are whole.
pub type Carried = (Arc<Superblock>, [CopyStatus; 2]);

/// What a drive carried when it was last looked at: worlds look far more often than superblocks
/// change, and to compare them is much quicker than to decode them.
#[derive(Default)]
pub struct Memo(RefCell<Option<Seen>>);

struct Seen {
    /// Of a device of this size.
    bytes: u64,
    /// What was looked at for it, and what was there.
    looked_at: Vec<(u64, Option<SuperblockBytes>)>,
    carried: Option<Carried>,
}

fn boxed(bytes: &[u8]) -> SuperblockBytes {
    Box::new(bytes.try_into().expect("a superblock's length"))
}

impl Drive {
    /// What the drive carries.
    pub fn carried(&self) -> Option<Carried> {
        let at = |offset: u64| self.ssd.peek(offset, SUPERBLOCK_BYTES);
        let mut memo = self.memo.0.borrow_mut();
        let bytes = self.ssd.len();
        let same = |seen: &&Seen| {
            let mut looked_at = seen.looked_at.iter();
            seen.bytes == bytes
                && looked_at.all(|(offset, was)| at(*offset) == was.as_ref().map(|was| &was[..]))
        };
        if let Some(seen) = memo.as_ref().filter(same) {
            return seen.carried.clone();
        }
        let mut looked_at = Vec::new();
        let read = |offset| {
            let copy = at(offset).map(boxed);
            looked_at.push((offset, copy.clone()));
            copy
        };
        let carried = select_member(bytes, read).ok();
        let carried = carried.map(|(chosen, copies)| (Arc::new(chosen), copies));
        *memo = Some(Seen {
            bytes,
            looked_at,
            carried: carried.clone(),
        });
        carried
    }

    /// Where a copy of this superblock, which it carries, should lie and nothing does.
    pub(crate) fn emptied(&self, superblock: &Superblock) -> Option<u64> {
        lost_copy(superblock, |offset| {
            self.ssd.peek(offset, SUPERBLOCK_BYTES).map(boxed)
        })
    }

    /// The identity that the drive carries, if it is one of this array: even if it cannot be read
    /// now.
    pub fn named(&self, array: ArrayUuid) -> Option<MemberUuid> {
        let read = |offset: u64| {
            let bytes = self.ssd.bytes().get(offset as usize..)?;
            Some(boxed(bytes.get(..SUPERBLOCK_BYTES)?))
        };
        let (superblock, _) = select_member(self.ssd.len(), read).ok()?;
        (superblock.array == array).then_some(superblock.member)
    }

    /// The drive's superblock, if it carries one of this array.
    pub fn superblock(&self, array: ArrayUuid) -> Option<Arc<Superblock>> {
        let (superblock, _) = self.carried()?;
        (superblock.array == array).then_some(superblock)
    }
}

/// What counts of a member's log.
fn log(ssd: &Ssd, superblock: &Superblock, base: u64) -> Vec<LogBatch> {
    let layout = &superblock.layout;
    let block = 4096;
    let mut gather = Gather::new(superblock, base);
    let mut scan = Scan::new(layout.log_offset);
    let blocks = layout.log_bytes / block;
    for at in 0..blocks {
        // A block that cannot be read counts as torn.
        let content = ssd.peek(layout.log_offset + at * block, block as usize);
        let content = content.unwrap_or(&[0; 4096]);
        scan.feed(content, at + 1 == blocks, |batch| {
            if let Ok(batch) = batch {
                gather.take(batch);
            }
        });
    }
    gather.finish()
}

/// How the pages of a region map are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// The newest version that is whole.
    Right,
    /// The one before it.
    Older,
    /// The newest, its checksum notwithstanding.
    Damaged,
}

/// A page of the map, whatever its checksum says.
fn believe_damaged(bytes: &[u8], offset: u64) -> Result<MapPage, MapError> {
    match MapPage::decode(bytes, offset) {
        Err(MapError::Damaged { computed, .. }) => {
            let mut bytes = bytes.to_vec();
            bytes[12..16].copy_from_slice(&computed.to_le_bytes());
            MapPage::decode(&bytes, offset)
        }
        decoded => decoded,
    }
}

/// What both places of a page of a member's region map hold.
fn versions(
    ssd: &Ssd,
    superblock: &Superblock,
    page: u32,
    how: Reading,
) -> [Result<MapPage, MapError>; 2] {
    [0, 1].map(|sequence| {
        let offset = region_map::place(&superblock.layout, page, sequence);
        let bytes = ssd.peek(offset, PAGE_BYTES).unwrap_or(&[]);
        let decoded = match how {
            Reading::Damaged => believe_damaged(bytes, offset)?,
            _ => MapPage::decode(bytes, offset)?,
        };
        let own = decoded.array == superblock.array
            && decoded.member == superblock.member
            && decoded.page == page;
        if own {
            Ok(decoded)
        } else {
            Err(MapError::NotMap)
        }
    })
}

/// The newest valid version of each page of a member's region map, or what a bug takes for it.
pub(crate) fn map(ssd: &Ssd, superblock: &Superblock, how: Reading) -> Vec<Option<MapPage>> {
    let pages = (0..superblock.layout.map_pages).map(|page| {
        let [even, odd] = versions(ssd, superblock, page, how);
        match (even, odd) {
            (Ok(even), Ok(odd)) if how == Reading::Older => Some(if even.sequence < odd.sequence {
                even
            } else {
                odd
            }),
            (even, odd) => region_map::newest(even, odd),
        }
    });
    pages.collect()
}

/// Of each page of a member's region map whether neither place lacks a version.
pub(crate) fn whole_pages(ssd: &Ssd, superblock: &Superblock) -> Vec<bool> {
    let whole = |page| {
        let [a, b] = versions(ssd, superblock, page, Reading::Right).map(Result::ok);
        region_map::is_whole(a.as_ref(), b.as_ref())
    };
    (0..superblock.layout.map_pages).map(whole).collect()
}

/// What the two places of a member's list of unreadable blocks hold.
fn lists(ssd: &Ssd, superblock: &Superblock) -> [Option<UnreadableList>; 2] {
    let layout = &superblock.layout;
    unreadable::places(layout).map(|offset| {
        let bytes = ssd.peek(offset, layout.unreadable_bytes as usize)?;
        UnreadableList::decode(bytes, offset).ok()
    })
}

impl World {
    /// Another array of the same kind, with other identities, on the same devices, made until the
    /// power goes perhaps; nothing runs, and it is not started.
    #[must_use]
    pub fn make_anew(self, until: Option<Half>) -> World {
        let drives = self.drives.into_iter();
        let drives = drives.map(|drive| Drive::new(drive.ssd)).collect();
        let made = make_on(&self.plan, drives, self.chance.identity, until);
        World::new(self.plan, made, None)
    }

    /// While nothing runs: another array of the same plan is made over the devices of this one, up
    /// to some step; a search for this array finds what that left of it.
    pub fn make_over(&mut self, half: Half) {
        let spec = spec_of(&self.plan, &self.drives, &mut self.chance.identity);
        let made = create::plan(&spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"));
        let drives = &mut self.drives;
        lay(
            &all_steps(&made),
            self.plan.block,
            Some(half),
            |at, offset, bytes| {
                drives[at].ssd.poke(offset, bytes);
            },
        );
        self.note(format!("another array is made over it: {half:?}"));
    }

    /// Drives that would be found now.
    pub fn present(&self) -> Vec<(usize, Arc<Superblock>)> {
        let found = self.drives.iter().enumerate().filter_map(|(index, drive)| {
            let there = drive.used && !drive.hidden && !drive.ssd.faults.gone;
            there
                .then(|| drive.superblock(self.superblock.array))
                .flatten()
                .map(|sb| (index, sb))
        });
        found.collect()
    }

    fn found(&mut self) -> Vec<Found> {
        for (index, drive) in self.drives.iter_mut().enumerate() {
            if self.plan.regrains && self.starts > 0 {
                drive.ssd.granularity = grain_at(self.plan.seed, index, self.starts);
            }
        }
        let canary = self.planted.as_ref().map(|planted| planted.canary);
        let present = self.present().into_iter();
        let mut present: Vec<(usize, Superblock)> =
            present.map(|(index, sb)| (index, (*sb).clone())).collect();
        if canary == Some(Canary::StaleBelieved) {
            believe_stale(&mut present);
        }
        let mut found = Vec::new();
        for (index, superblock) in present {
            let device = self.open(index);
            let how = match canary {
                Some(Canary::OldMapShown) => Reading::Older,
                Some(Canary::DamagedMapShown) => Reading::Damaged,
                _ => Reading::Right,
            };
            let drive = &self.drives[index];
            let map_whole = whole_pages(&drive.ssd, &superblock);
            let map = map(&drive.ssd, &superblock, how);
            let (_, copies) = drive.carried().expect("it is present by its superblock");
            let emptied = drive.emptied(&superblock);
            let mut unreadable = lists(&drive.ssd, &superblock);
            if canary == Some(Canary::OldListShown) {
                forget_newest(&mut unreadable);
            }
            found.push(Found {
                device,
                info: self.info(index),
                log: Vec::new(),
                superblock,
                copy_to_replace: copy_to_replace(copies),
                emptied,
                map,
                map_whole,
                unreadable,
            });
        }
        if let Some(base) = gather::log_base(&found) {
            for found in &mut found {
                let index = self.drive_of(found.device);
                found.log = log(&self.drives[index].ssd, &found.superblock, base);
            }
        }
        self.chance.faults.shuffle(&mut found);
        found
    }

    /// What comes of putting the array together from what is there; nothing is written for it.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub fn assemble(&mut self, force: bool) -> Result<Array, StartError> {
        let found = self.found();
        let name = |f: &Found| {
            let sb = &f.superblock;
            format!("{:?}={:?}@{}", f.device, sb.role, sb.epoch)
        };
        let names: Vec<String> = found.iter().map(name).collect();
        self.note(format!("start with {}", names.join(" ")));
        // What a member cannot read is as lost to the replay as a member.
        if self
            .drives
            .iter()
            .any(|drive| !drive.ssd.faults.latent.is_empty())
            || (0..self.drives.len()).any(|index| self.is_damaged(index))
        {
            self.doubt_torn_blocks();
        }
        let options = StartOptions {
            // Now and then memory does not reach.
            fold: self.starts % 4 != 3,
            shards: self.shards,
            force,
            clean_after_ms: self.plan.clean_after_ms,
            hedging: self.plan.hedging,
            window_bytes: self.plan.window_bytes,
            session: self.session_number(),
            unix_s: self.clock.now().0 / 1_000_000_000,
        };
        Array::assemble(found, &options)
    }

    /// Drawn anew for each start, also where two worlds, or two branches, start alike.
    fn session_number(&mut self) -> u32 {
        self.sessions += 1;
        Prng::new(self.plan.seed ^ self.sessions << 32, Purpose::Session).bits() as u32
    }

    /// As many shards as the plan says, and as the log has room for: an array that has more
    /// parities than at first may have room for fewer.
    fn shards_to_start(&self) -> u16 {
        let wanted = self.plan.shards_of(self.starts);
        inspect::newest(&self.present()).map_or(wanted, |sb| shards_for(sb, wanted))
    }

    /// What missing members held may be undecided in more places than the list has room for: a
    /// start without them is refused, and a person brings those back that are there. True if there
    /// are any.
    fn bring_hidden_back(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.drives.len() {
            self.drives[index].device = None;
            if std::mem::take(&mut self.drives[index].hidden) {
                any = true;
                self.note(format!("drive {index} is brought back for the start"));
            }
        }
        any
    }

    /// Starts the process: assembles the array and lets it begin.
    pub fn launch(&mut self) -> SimResult {
        self.launch_as(false)
    }

    /// The same, by force or not.
    pub fn launch_as(&mut self, force: bool) -> SimResult {
        self.look_at_damage();
        self.shards = self.shards_to_start();
        self.starts += 1;
        let mut assembled = self.assemble(force);
        if matches!(assembled, Err(StartError::ListFull { .. })) && self.bring_hidden_back() {
            assembled = self.assemble(force);
        }
        let array = match assembled {
            Ok(array) => array,
            Err(error) => return self.failure(format!("the array does not start: {error}")),
        };
        self.stats.resumed += u64::from(array.resumes());
        let setup = array.setup();
        let geometry = Arc::clone(&setup.geometry);
        self.find_shape(&array, &geometry)?;
        let stock = limits::stock(&geometry, self.plan.budget_bytes);
        let pools: Vec<Pool> = (0..self.shards).map(|_| Pool::new(&stock)).collect();
        // Answers of one shard's pieces are held until those of the others have come: the pools
        // must be large enough for that. With one shard the engine itself keeps the measure.
        let reserved = 2 * limits::widest(&geometry) + 2;
        self.user.strips_most = pools[0].largest_count();
        self.user.reading_most = match self.shards {
            1 => 1 << 32,
            _ => (pools[0].free() - reserved) as u64,
        };
        let shards = (0..self.shards)
            .zip(pools)
            .map(|(index, pool)| Shard::new(ShardNo(index), self.shards, setup.clone(), pool))
            .collect();
        let routers = (0..self.plan.queues)
            .map(|queue| Router::new(Arc::clone(&geometry), self.shards, queue))
            .collect();
        self.machines = Some(Machines {
            polls: 0,
            array,
            shards,
            routers,
            geometry,
            started: false,
            stopped: false,
            tick_at: None,
            shard_ticks: vec![None; usize::from(self.shards)],
            pulses: crate::world::standstill::pulses(&self.plan, self.shards, self.clock.now()),
            standing: None,
            in_place: BTreeMap::new(),
            array_ios: 0,
        });
        let regions = self.geometry.regions();
        let array = self.array();
        self.expected.resyncing |=
            (0..regions).any(|region| array.region(RegionNo(region)) == RegionState::NeedSync);
        let now = self.clock.now();
        self.array().start(now);
        self.note_lost_blocks();
        self.poll_array()?;
        self.poll_shards()
    }

    /// Holds the shape that a start has found against the one that is known, and takes it.
    fn find_shape(&mut self, array: &Array, geometry: &Arc<Geometry>) -> SimResult {
        let superblock = array.status().superblock;
        let moves = superblock.moving.is_some();
        if **geometry != *self.geometry && same_bytes(geometry, &self.geometry) {
            self.stats.folded += u64::from(geometry.strip > self.geometry.strip);
            // Until it serves, the next start may find it as it was; so may another half.
            self.admin.reshaping = true;
            self.take_shape(Arc::clone(geometry), superblock);
        } else if **geometry != *self.geometry {
            // It was cut off when it had changed and before that was announced.
            if !self.admin.reshaping {
                return self.failure(format!("the geometry changed: {geometry:?}"));
            }
            let moved = |geometry: &Geometry| geometry.old_shape.map(|old| old.moved);
            if moved(&self.geometry).is_some() && moved(geometry) < moved(&self.geometry) {
                let back = geometry.old_shape.is_some();
                if back {
                    return self.failure(format!("the frontier went back: {geometry:?}"));
                }
            }
            self.take_shape(Arc::clone(geometry), superblock);
        }
        self.admin.reshaping |= moves;
        Ok(())
    }

    /// Tells the array what the plan says of read errors.
    pub fn settle_threshold(&mut self) -> Option<strake_engine::units::CommandId> {
        let threshold = self
            .plan
            .read_error_threshold
            .filter(|_| !self.admin.errors_forgiven)?;
        Some(self.command(Command::Set(Setting::ReadErrorThreshold(threshold))))
    }
}

/// Leaves only the older of two lists of unreadable blocks.
fn forget_newest(lists: &mut [Option<UnreadableList>; 2]) {
    if let [Some(a), Some(b)] = lists {
        let newest = usize::from((b.epoch, b.sequence) > (a.epoch, a.sequence));
        lists[newest] = None;
    }
}

/// Shows members that missed a change as if they had seen it: all tables say that they are in sync.
fn believe_stale(present: &mut [(usize, Superblock)]) {
    let Some(newest) = inspect::newest(present).cloned() else {
        return;
    };
    let mut table = newest.slots.clone();
    for (_, stale) in present.iter() {
        if let Role::Slot(slot) = stale.role
            && newest.slot_of(stale.member).is_none_or(|own| own == slot)
            && !table[slot.index()].state.is_live()
        {
            let (member, since) = (stale.member, stale.slots[slot.index()].since);
            table[slot.index()] = SlotRecord {
                member,
                state: SlotState::InSync,
                since,
                kept: false,
                known: Known::default(),
            };
        }
    }
    for (_, superblock) in present {
        let (member, role, layout) = (superblock.member, superblock.role, superblock.layout);
        let slots = table.clone();
        *superblock = Superblock {
            member,
            role,
            layout,
            slots,
            ..newest.clone()
        };
    }
}

/// Whether every byte lies where it does in the other shape, in rows of another height perhaps.
fn same_bytes(one: &Geometry, other: &Geometry) -> bool {
    let rest = one.old_shape.is_none() && other.old_shape.is_none();
    rest && one.folded() == other.folded()
}
