//! Changes of the array's shape while it serves: more data on larger members, more parities.
//!
//! Nothing that a change touches is at work while it is made, so there is no state between two
//! shapes but the superblocks':
//! 1. shards let new requests wait and finish what was begun (`shard::quiesce`); background work
//!    pauses;
//! 2. the map comes to rest: no region is on its way from one state to another;
//! 3. a new base of the log, so that no record from before counts any more
//!    (`metadata::log_coverage`);
//! 4. where the map's places move (more regions, more pages): the newest version of every page and
//!    of the list goes to the B places; then the versions after these go to where the A places will
//!    be, which does not touch the old B places ([`Layout::grown`]). Superblocks with the old
//!    places find the former, superblocks with the new places the latter, and both say the same.
//!    Before that, where the last region was shorter than others and was written, what it gets is
//!    zeroed on every live member, and is stale for those that were lost meanwhile;
//! 5. superblocks with the new shape, in an epoch of their own (`shape_since`);
//! 6. shards begin anew with the new geometry, and with what waited.
//!
//! A device that grew while it serves has the place of its last superblock at its new end:
//! superblocks are written there before anything else happens, for what was the end may become
//! data.
//!
//! A crash finds the array in its old shape or in its new one. A member that is lost before (4)
//! ends the change; from then on it goes on without that member.
//!
//! Where parities go that were added (`parity`), their members become spares when everything rests,
//! and superblocks with their slots empty are durable before those with the new shape.
//!
//! A parity that is added lies on a member of its own and does not rotate: data stays where it is.
//! All that there is to do is to build it, which is a rebuild like any other; until that is done
//! the array survives what it survived before.
//!
//! Invariants:
//! * No superblock tells of places of the map before what they hold is durable on every live
//!   member.
//! * No record that was written for one shape is replayed in another.
//!
//! Deliberately absent: data that moves (`migrate`), which is a change like these for each window
//! of it, and one that brings the new members at its beginning.

pub(crate) mod migrate;
mod parity;

use std::ops::Range;
use std::sync::Arc;

use strake_format::*;

use crate::array::members::table::no_member;
use crate::array::regions::Phase;
use crate::array::reshape::migrate::Window;
use crate::array::{Array, Member, Purpose, Stage};
use crate::canary::{self, Canary};
use crate::geometry::Geometry;
use crate::proto::*;
use crate::provision::limits::{self, Joining, Shards};
use crate::units::*;

/// A change under way.
#[derive(Debug)]
pub(crate) struct Reshape {
    /// The command that asked for it; `None` for a window of a move.
    id: Option<CommandId>,
    pub(crate) change: Change,
    step: Step,
    kept: Kept,
    /// What it was, for the event.
    before: (u64, Level),
}

/// What waits for the end of a change.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Discards of whole regions.
    pub(crate) unmaps: Vec<Request>,
    /// Commands: only a window keeps them.
    pub(crate) commands: Vec<(CommandId, Command)>,
}

/// What is to be.
#[derive(Debug)]
pub(crate) enum Change {
    /// So much data on each member.
    Grow { data_bytes: u64 },
    /// Parities on these devices.
    AddParity(Vec<NewDevice>),
    /// So many of the parities that were added go.
    DropParity(Fewer),
    /// Parities are copies, and called so.
    Mirror,
    /// Data begins to move to this shape.
    Restripe(NewShape),
    /// A window of data that moves.
    Window(Window),
}

/// How far it has come; the numbers of the module's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Before (1): devices become spares of the array, so that each has a superblock before it has
    /// a slot.
    Joining,
    /// Before (1): the regions that a window writes are opened.
    Opening,
    /// (1): shards that have not said that they hold, and the fewest buffers that one has.
    Holding { waits: Vec<ShardNo>, buffers: usize },
    /// (2)
    Resting,
    /// (3): the base that the new one comes after.
    Basing { before: u64 },
    /// Of a window: see `migrate`.
    Moving,
    /// Devices that become members get the map and the list.
    Filling,
    /// Devices that are members no more are spares.
    Leaving,
    /// (4): newest versions to the B places.
    Gathering,
    /// (4): zeroes at the end of the last region, on so many members.
    Extending { pending: usize },
    /// (4): the versions after these to the new A places.
    Laying,
    /// (5)
    Telling,
    /// (6): shards take up the view with this version.
    Applying { version: u64 },
}

impl Reshape {
    /// Whole regions are not given back now.
    pub(crate) fn holds_unmaps(&self) -> bool {
        let holding = matches!(self.step, Step::Holding { .. } | Step::Joining);
        !holding || self.is_window()
    }

    /// Data moves.
    pub(crate) fn is_window(&self) -> bool {
        matches!(self.change, Change::Window(_))
    }

    /// A copy of what moves may be in the logs, for the base that they have.
    pub(crate) fn keeps_base(&self) -> bool {
        self.step == Step::Moving
    }

    pub(crate) fn keep_command(&mut self, id: CommandId, command: Command) {
        self.kept.commands.push((id, command));
    }

    pub(crate) fn keep_unmap(&mut self, request: Request) {
        self.kept.unmaps.push(request);
    }

    /// The newest version of everything is being brought to the B places.
    pub(crate) fn gathers(&self) -> bool {
        self.step == Step::Gathering
    }

    /// The next view brings another shape.
    pub(crate) fn tells(&self) -> bool {
        self.step == Step::Telling
    }
}

impl Array {
    // ---- commands ----------------------------------------------------------------------------

    pub(crate) fn may_reshape(&self) -> Result<(), CommandError> {
        if self.sb.moving.is_some() {
            return Err(CommandError::Moving);
        }
        if self.reshape.is_some() {
            return Err(CommandError::Reshaping);
        }
        match self.in_order() {
            true => Ok(()),
            false => Err(CommandError::NotOptimal),
        }
    }

    /// Superblocks of devices that grew go to their new ends.
    pub(crate) fn note_sizes(&mut self, sizes: &[(DeviceId, u64)]) -> Changed {
        let shrunk = |(device, bytes): &&(DeviceId, u64)| {
            let member = self.table.get(*device);
            // A size of 0: the device was pulled, and its I/O reports that.
            member.is_some_and(|m| *bytes > 0 && *bytes < m.layout.device_bytes)
        };
        let shrunk: Vec<DeviceId> = sizes
            .iter()
            .filter(shrunk)
            .map(|(device, _)| *device)
            .collect();
        for device in shrunk {
            self.member_out(device, OutCause::Shrunk);
        }
        for (device, bytes) in sizes {
            if let Some(member) = self.table.get_mut(*device) {
                member.info.bytes = member.info.bytes.max(*bytes);
            }
        }
        let grew = |member: &Member| member.info.bytes > member.layout.device_bytes;
        match self.table.devices().map(|(_, member)| member).any(grew) {
            true => {
                self.persist.touch();
                Changed::Yes
            }
            false => Changed::No,
        }
    }

    /// Begins to grow, unless a member turns out to have shrunk; [`ArrayOutput::Done`] follows.
    pub(crate) fn grow(&mut self, id: CommandId, sizes: &[(DeviceId, u64)]) {
        self.note_sizes(sizes);
        match self.growth() {
            Ok(data_bytes) => self.begin_reshape(id, Change::Grow { data_bytes }),
            Err(error) => self.out.done(id, Err(error)),
        }
    }

    /// Data that every member and spare has room for, if that is more than now.
    fn growth(&self) -> Result<u64, CommandError> {
        let sizes = self
            .table
            .devices()
            .map(|(_, member)| member)
            .map(|member| member.info.bytes);
        self.growth_within(sizes.min().unwrap_or(0))
    }

    /// Whether it would grow if its devices had these sizes now.
    pub(crate) fn may_grow(&self, sizes: &[(DeviceId, u64)]) -> Result<(), CommandError> {
        let now = |(id, member): (DeviceId, &Member)| {
            let told = sizes.iter().filter(|(device, _)| *device == id);
            told.map(|(_, bytes)| *bytes)
                .fold(member.info.bytes, u64::max)
        };
        let smallest = self.table.devices().map(now).min().unwrap_or(0);
        self.growth_within(smallest).map(|_| ())
    }

    fn growth_within(&self, smallest: u64) -> Result<u64, CommandError> {
        self.may_reshape()?;
        let (layout, strip) = (self.sb.layout, self.sb.user_strip_bytes());
        let data_bytes = layout.room(smallest, strip);
        if data_bytes <= layout.data_bytes {
            return Err(CommandError::NothingToGrow { smallest });
        }
        match layout.grown(data_bytes, smallest, strip) {
            Ok(layout) => {
                let grown = Superblock {
                    layout,
                    ..self.superblock()
                };
                limits::may_be_as_large(&grown)?;
                Ok(data_bytes)
            }
            Err(_) => Err(CommandError::MapTooSmall { bytes: data_bytes }),
        }
    }

    pub(crate) fn may_add_parity(&self, devices: &[NewDevice]) -> Result<(), CommandError> {
        self.may_reshape()?;
        self.may_join(devices, Joining::Parities)
    }

    /// As far as sizes and shapes say; buffers are looked at when shards hold.
    fn may_join(&self, devices: &[NewDevice], joining: Joining) -> Result<(), CommandError> {
        let infos: Vec<DeviceInfo> = devices.iter().map(|new| new.info).collect();
        let granularities = self
            .table
            .devices()
            .map(|(_, member)| member)
            .map(|m| m.info.granularity_bytes);
        let shards = Shards {
            count: self.shards,
            strips: usize::MAX,
            granularity_bytes: granularities.max().unwrap_or(0),
        };
        limits::may_join(&self.superblock(), &infos, joining, shards)
    }

    /// The superblock with so many more parities, which have no members yet.
    fn raised(&self, more: usize) -> Result<Superblock, CommandError> {
        let mut sb = limits::wider(&self.superblock(), more, Joining::Parities)?;
        let nobody = no_member(self.sb.epoch.next());
        sb.slots.extend(std::iter::repeat_n(nobody, more));
        Ok(sb)
    }

    pub(crate) fn begin_reshape(&mut self, id: CommandId, change: Change) {
        if !matches!(change, Change::Grow { .. }) {
            self.lose_witnesses();
        }
        self.begin_with(Some(id), change, Step::Resting);
        let step = self.quiesce_shards();
        self.reshape.as_mut().expect("begun above").step = step;
    }

    /// A window of data moves.
    pub(crate) fn begin_window(&mut self, window: Window) {
        self.begin_with(None, Change::Window(window), Step::Opening);
    }

    fn begin_with(&mut self, id: Option<CommandId>, change: Change, step: Step) {
        self.reshape = Some(Reshape {
            id,
            change,
            step,
            kept: Kept::default(),
            before: (self.geometry.size(), self.sb.level),
        });
    }

    /// (1)
    fn quiesce_shards(&mut self) -> Step {
        self.out.message_all(&ToShard::Quiesce);
        let waits = (0..self.shards).map(ShardNo).collect();
        let buffers = usize::MAX;
        Step::Holding { waits, buffers }
    }

    /// Begins to move data to another shape; [`ArrayOutput::Done`] follows when it has begun.
    pub(crate) fn restripe(&mut self, id: CommandId, shape: NewShape) {
        for new in &shape.devices {
            self.admit(new).expect("it was looked at");
            self.table.add_spare(new.device);
        }
        self.persist.touch();
        self.begin_with(Some(id), Change::Restripe(shape), Step::Joining);
    }

    pub(crate) fn may_restripe(&self, shape: &NewShape) -> Result<(), CommandError> {
        self.may_reshape()?;
        self.may_join(&shape.devices, Joining::Data(shape.data))
    }

    /// The superblock of this shape, when the move has begun.
    fn restriped(&self, shape: &NewShape) -> Result<Superblock, CommandError> {
        let devices = &shape.devices;
        let joining = Joining::Data(shape.data);
        let mut sb = limits::wider(&self.superblock(), devices.len(), joining)?;
        let since = sb.epoch.next();
        sb.slots.extend(devices.iter().map(|new| SlotRecord {
            member: new.member,
            state: SlotState::InSync,
            since,
            kept: false,
            known: Known::default(),
        }));
        let ours = |spare: &MemberUuid| devices.iter().any(|new| new.member == *spare);
        sb.spares.retain(|spare| !ours(spare));
        Ok(sb)
    }

    /// A shard has nothing under way.
    pub(crate) fn shard_held(&mut self, shard: ShardNo, has: usize) {
        if let Some(reshape) = &mut self.reshape
            && let Step::Holding { waits, buffers } = &mut reshape.step
        {
            waits.retain(|&s| s != shard);
            *buffers = has.min(*buffers);
        }
    }

    // ---- the order ---------------------------------------------------------------------------

    /// Goes a step on with the change, if there is one and it can be done; true if so.
    /// What waited for its end is in `kept` then.
    pub(crate) fn drive_reshape(&mut self, kept: &mut Kept) -> bool {
        if matches!(self.stage, Stage::Failed | Stage::Stopped) {
            // What waits in shards is answered by the view that says so.
            if let Some(reshape) = self.reshape.take() {
                if let Some(id) = reshape.id {
                    self.out.done(id, Err(CommandError::NotServing));
                }
                *kept = reshape.kept;
            }
            return false;
        }
        let Some(reshape) = &self.reshape else {
            return false;
        };
        let step = reshape.step.clone();
        if let Step::Applying { version } = step {
            let over = self.persist.applied(version);
            if over {
                *kept = self.end_reshape();
            }
            return over;
        }
        match self.next_step(step) {
            Ok(Some(next)) => {
                self.reshape.as_mut().expect("it is under way").step = next;
                true
            }
            Ok(None) => false,
            Err(error) => {
                *kept = self.give_up_reshape(error);
                true
            }
        }
    }

    /// The step that follows, once it may begin.
    ///
    /// # Errors
    /// Why the change is given up.
    fn next_step(&mut self, step: Step) -> Result<Option<Step>, CommandError> {
        let early = matches!(
            step,
            Step::Joining
                | Step::Opening
                | Step::Holding { .. }
                | Step::Resting
                | Step::Basing { .. }
                | Step::Filling
        );
        match step {
            // Its answers come before anything else is decided.
            _ if self.window_waits() => Ok(None),
            _ if early && !self.in_order() => Err(CommandError::NotOptimal),
            _ if !self.new_ones_are_there() => Err(CommandError::DeviceFailed),
            Step::Joining => Ok(self.metadata_quiet().then(|| self.quiesce_shards())),
            Step::Opening => {
                Ok((self.open_targets() && self.end_zeroed()).then(|| self.quiesce_shards()))
            }
            Step::Moving => self.drive_window(),
            Step::Filling => {
                let filled = self.metadata_quiet() && self.cover_quiet();
                Ok(filled.then(|| self.take_shape()))
            }
            Step::Holding { waits, buffers } => self
                .held(&waits, buffers)
                .map(|held| held.then_some(Step::Resting)),
            Step::Resting => Ok((self.at_rest() && self.open_targets()).then(|| {
                let before = self.ask_for_base();
                if self.reshape.as_ref().is_some_and(Reshape::is_window) {
                    self.base_at_rest();
                }
                Step::Basing { before }
            })),
            Step::Basing { before } => {
                let based = self.base_since(before) && self.cover_quiet();
                Ok((based && self.at_rest()).then(|| self.after_base()))
            }
            Step::Gathering => Ok(self.gather_versions().then(|| self.extend_last())),
            Step::Extending { pending } => Ok((pending == 0).then(|| self.lay_out())),
            Step::Laying | Step::Leaving => Ok(self.metadata_quiet().then(|| self.take_shape())),
            Step::Telling | Step::Applying { .. } => Ok(None),
        }
    }

    /// Shards hold, no step of a job is at work, and every shard has the buffers that it needs.
    fn held(&self, waits: &[ShardNo], has: usize) -> Result<bool, CommandError> {
        if !waits.is_empty() || self.jobs.busy() {
            return Ok(false);
        }
        let change = self.reshape.as_ref().map(|reshape| &reshape.change);
        let to_be = match change {
            Some(Change::AddParity(devices)) => Some(self.raised(devices.len())?),
            Some(Change::Restripe(shape)) => Some(self.restriped(shape)?),
            _ => None,
        };
        if let Some(to_be) = to_be {
            let geometry = Geometry::of(&to_be);
            let needs = crate::provision::limits::strips_least(&geometry);
            if has < needs {
                return Err(CommandError::BuffersTooFew { has, needs });
            }
        }
        Ok(true)
    }

    /// No region is on its way, and nothing is being written.
    fn at_rest(&self) -> bool {
        let rests = |phase| matches!(phase, Phase::Unwritten | Phase::Open | Phase::Clean);
        self.map.all(rests) && self.metadata_quiet()
    }

    fn metadata_quiet(&self) -> bool {
        let quiet = self.map.quiet() && self.unreadable.quiet();
        quiet && self.persist.quiet() && !self.persist.view_due
    }

    fn after_base(&mut self) -> Step {
        match &self.reshape.as_ref().expect("it is under way").change {
            Change::Grow { .. } => Step::Gathering,
            Change::AddParity(_) => self.take_shape(),
            &Change::DropParity(fewer) => self.leave_slots(fewer.parities),
            Change::Mirror => self.take_shape(),
            Change::Restripe(NewShape { devices, .. }) => {
                let entering = devices.iter().map(|new| new.device).collect();
                self.table.enter(entering);
                self.rewrite_map();
                self.unreadable.rewrite();
                self.write_list_if_due();
                self.flush_at_rest();
                Step::Filling
            }
            Change::Window(_) => Step::Moving,
        }
    }

    /// The devices with which data is to move have not failed since.
    fn new_ones_are_there(&self) -> bool {
        let Some(Reshape {
            change: Change::Restripe(NewShape { devices, .. }),
            step,
            ..
        }) = &self.reshape
        else {
            return true;
        };
        let over = matches!(step, Step::Telling | Step::Applying { .. });
        over || devices.iter().all(|new| self.table.has(new.device))
    }

    /// Brings the newest version of every page and of the list to the B places; true when they are
    /// there, on every live member.
    fn gather_versions(&mut self) -> bool {
        if !self.metadata_quiet() {
            return false;
        }
        let live = self.table.live();
        let elsewhere = live.iter().any(|d| self.table[d].list_place == 0);
        let moved = self.map.gather_in_b();
        if elsewhere {
            self.unreadable.rewrite();
        }
        if moved {
            self.write_pages();
        }
        if elsewhere {
            self.write_list_if_due();
        }
        !moved && !elsewhere
    }

    /// The layout of a member, as it is to be.
    fn layout_to_be(&self, device: DeviceId, data_bytes: u64) -> Layout {
        let member = &self.table[&device];
        let grown = member
            .layout
            .grown(data_bytes, member.info.bytes, self.sb.strip_bytes);
        grown.expect("the smallest member has room for it")
    }

    /// The last region, if it was written and gets rows, and those.
    fn added_to_last(&self, data_bytes: u64) -> Option<(RegionNo, Range<u64>)> {
        let geometry = &self.geometry;
        let last = RegionNo(geometry.regions() - 1);
        let start = geometry.region_rows(last).end;
        let rows = data_bytes / geometry.strip;
        let end = (u64::from(last.0 + 1) * geometry.region_rows).min(rows);
        let written = self.map.phase(last) != Phase::Unwritten;
        (start < end && written).then_some((last, start..end))
    }

    /// Zeroes what the last region gets, if it is to be longer and was written: so that its parity
    /// is true and it reads as zeros.
    fn extend_last(&mut self) -> Step {
        let Some(Reshape {
            change: Change::Grow { data_bytes },
            ..
        }) = self.reshape
        else {
            unreachable!("only growth moves the map")
        };
        let forgets = canary::hit(Canary::GrownRegionNotZeroed);
        let added = self.added_to_last(data_bytes).filter(|_| !forgets);
        let strip = self.geometry.strip;
        let mut pending = 0;
        for device in self.table.live() {
            if let Some((_, rows)) = &added {
                let offset = self.table[&device].layout.data_offset + rows.start * strip;
                let len = (rows.end - rows.start) * strip;
                let kind = IoKind::WriteZeroes { offset, len };
                self.out.io(device, Purpose::Extend { device }, kind);
                pending += 1;
            }
        }
        Step::Extending { pending }
    }

    /// A member has the zeroes; then it flushes them.
    pub(crate) fn extended(&mut self, device: DeviceId) {
        let member = self.table.get_mut(device);
        let flushes = member.is_some_and(|member| {
            !std::mem::replace(&mut member.extended, true) && member.info.volatile_cache
        });
        if flushes {
            self.out
                .io(device, Purpose::Extend { device }, IoKind::Flush);
        } else if let Some(Reshape {
            step: Step::Extending { pending },
            ..
        }) = &mut self.reshape
        {
            *pending -= 1;
        }
    }

    /// From now on pages and lists go where they will be; superblocks do not tell of it yet.
    fn lay_out(&mut self) -> Step {
        let reshape = self.reshape.as_mut().expect("it is under way");
        reshape.step = Step::Laying;
        let Change::Grow { data_bytes } = reshape.change else {
            unreachable!("only growth moves the map")
        };
        if let Some((last, _)) = self
            .added_to_last(data_bytes)
            .filter(|_| !self.table.whole())
        {
            // A member lost since the change began may lack the zeroes, however quiet the region
            // was.
            self.map.mark_stale(last);
        }
        let devices: Vec<DeviceId> = self.table.devices().map(|(device, _)| device).collect();
        for device in devices {
            let layout = self.layout_to_be(device, data_bytes);
            let member = self.table.get_mut(device).expect("one of them");
            (member.places, member.extended) = (layout, false);
            self.map.extend_to(layout.regions(), layout.map_pages);
        }
        let early = canary::hit(Canary::ShapeBeforeMap).then(|| self.take_shape());
        self.rewrite_map();
        self.unreadable.rewrite();
        self.write_list_if_due();
        early.unwrap_or(Step::Laying)
    }

    /// The shape becomes what it is to be, in memory and then in superblocks.
    fn take_shape(&mut self) -> Step {
        let since = self.sb.epoch.next();
        let reshape = self.reshape.as_mut().expect("it is under way");
        match std::mem::replace(&mut reshape.change, Change::AddParity(Vec::new())) {
            Change::Grow { .. } => {
                for member in self.table.members_mut() {
                    member.layout = member.places;
                }
                let (_, any) = self.table.devices().next().expect("an array has members");
                self.sb.layout = Layout {
                    device_bytes: self.sb.layout.device_bytes,
                    ..any.layout
                };
                self.geometry = Arc::new(Geometry::of(&self.sb));
            }
            Change::AddParity(devices) => {
                let first = self.table.slots().len();
                if self.geometry.m == 0 {
                    self.map.nothing_to_sync();
                }
                let raised = self.raised(devices.len());
                self.take_superblock(raised.expect("looked at when it was asked for"));
                self.note_absence();
                for (at, new) in (first..).zip(devices) {
                    self.table.add_slot();
                    // It may have shrunk or vanished meanwhile: then the slot is empty.
                    if self.admit(&new).is_ok() {
                        self.join(at, new.device);
                    }
                }
            }
            Change::DropParity(fewer) => self.lose_slots(fewer),
            Change::Mirror => {
                let copies = limits::mirror(&self.superblock());
                self.take_superblock(copies.expect("looked at when it was asked for"));
            }
            Change::Restripe(shape) => self.take_restriped(&shape),
            Change::Window(window) => {
                // Its data has left the slots that go.
                let parities = usize::from(self.sb.fixed_parities);
                let last = true;
                self.lose_slots(Fewer { parities, last });
                let reshape = self.reshape.as_mut().expect("it is under way");
                reshape.change = Change::Window(window);
            }
        }
        self.sb.shape_since = since;
        self.membership_changed();
        Step::Telling
    }

    /// Data begins to move: the slots of the new shape are there.
    fn take_restriped(&mut self, shape: &NewShape) {
        let restriped = self.restriped(shape);
        let strip_before = self.geometry.strip;
        self.take_superblock(restriped.expect("looked at when it was asked for"));
        self.rows_shrink(strip_before / self.geometry.strip);
        self.cover_at_rest();
        self.table.enter_none();
        for NewDevice { device, .. } in &shape.devices {
            self.table.add_served(*device);
        }
    }

    /// The array works by this superblock from now on.
    fn take_superblock(&mut self, sb: Superblock) {
        self.sb = sb;
        self.table.take(&mut self.sb);
        self.geometry = Arc::new(Geometry::of(&self.sb));
    }

    /// The view of the new shape is on its way to the shards.
    pub(crate) fn shape_told(&mut self, version: u64) {
        let reshape = self.reshape.as_mut().expect("it tells");
        reshape.step = Step::Applying { version };
        if self.stage == Stage::Failed {
            // It is unknown which shape the next start finds.
            return;
        }
        let window = reshape.is_window();
        let (from_bytes, from) = reshape.before;
        let (to_bytes, to) = (self.geometry.size(), self.sb.level);
        if from_bytes != to_bytes {
            self.out.event(EventKind::Grown {
                from_bytes,
                to_bytes,
            });
        }
        if to.parity_count() < from.parity_count() {
            return self.out.event(EventKind::LevelLowered { from, to });
        }
        let raised = self.sb.moving.is_none() || from == Level::Raid1;
        if from != to && raised && !window {
            self.out.event(EventKind::LevelRaised { from, to });
        }
    }

    /// Every shard works by the new shape.
    fn end_reshape(&mut self) -> Kept {
        let reshape = self.reshape.take().expect("it was under way");
        // Not before: a request for what is new may come to any of them.
        self.out
            .push(ArrayOutput::Reshaped(Arc::clone(&self.geometry)));
        if let Change::Window(window) = &reshape.change {
            self.window_over(window, true);
        }
        if let Some(id) = reshape.id {
            self.out.done(id, Ok(Changed::Yes));
        }
        reshape.kept
    }

    /// The change is not made.
    fn give_up_reshape(&mut self, error: CommandError) -> Kept {
        let reshape = self.reshape.take().expect("it was under way");
        match &reshape.change {
            Change::Window(window) => self.window_over(window, false),
            Change::Restripe(NewShape { devices, .. }) => {
                self.table.enter_none();
                for new in devices {
                    self.give_up_spare(new.device);
                }
            }
            _ => {}
        }
        if let Some(id) = reshape.id {
            self.out.done(id, Err(error));
        }
        if !matches!(reshape.step, Step::Joining | Step::Opening) {
            self.out.message_all(&ToShard::Resume);
        }
        reshape.kept
    }
}
