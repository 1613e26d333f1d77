//! Members come and go: errors, commands, spares.
//!
//! Invariants:
//! * A member that failed a write is out, and the survivors durably know it, before the write is
//!   answered.
//! * No member is taken out for read errors, or on request, if data would be lost by it.
//! * Only one device at a time is being rebuilt into a slot.
//! * A member that did not answer in time is missing, as one that vanished: it is waited for, and
//!   comes back by what was written meanwhile. One that does so again and again has failed.
//! * A member with too many read errors goes on serving while what replaces it is filled: each
//!   place that it cannot read is computed from the others, and the rest is redundancy that the
//!   array would lack without it.

pub(crate) mod deadlines;
mod error_counters;
pub(crate) mod rejoin;
pub(crate) mod slow;
pub(crate) mod table;

use strake_format::*;

use crate::array::members::rejoin::keeps;
use crate::array::metadata::superblocks::SuperblockWaiter;
use crate::array::{Array, Member, SlotUse, Stage, Stalls};
use crate::canary::{self, Canary};
use crate::proto::*;
use crate::provision::limits;
use crate::units::*;

impl Array {
    /// An I/O of the array itself failed on a device (all of them write or flush).
    pub(crate) fn write_failed(&mut self, device: DeviceId, error: IoError) {
        if let Some(member) = self.table.devices.get_mut(&device) {
            member.counts.writes += 1;
        }
        self.member_out(device, cause_of(error));
    }

    /// A shard's I/O failed.
    pub(crate) fn member_error(
        &mut self,
        device: DeviceId,
        error: IoError,
        write: bool,
        offset: u64,
    ) {
        let Some(slot) = self.table.slot_of(device) else {
            if write {
                // What was just replaced is of no use any more: it lacks a write.
                self.member_out(device, cause_of(error));
            }
            return;
        };
        let Some(member) = self.table.devices.get_mut(&device) else {
            return;
        };
        if write {
            member.counts.writes += 1;
            return self.member_out(device, cause_of(error));
        }
        member.counts.reads += 1;
        let too_many = member.counts.reads >= u64::from(self.sb.settings.read_error_threshold);
        self.out.event(EventKind::ReadError {
            slot,
            device,
            offset,
            instead: self.instead_of(slot, device),
        });
        // A read error alone never costs the array its last redundancy: the read is answered with
        // it.
        match error {
            IoError::Gone | IoError::Shrunk => self.member_out(device, cause_of(error)),
            _ if !self.may_lose(device) => {}
            IoError::Media if !too_many || self.relieved(slot) => {}
            IoError::Media => self.member_out(device, OutCause::ReadErrors),
            _ => self.member_out(device, cause_of(error)),
        }
    }

    /// A spare takes the place of the member in this slot, which has too many read errors, or is
    /// about to: none that an empty slot needs. Or one is asked for elsewhere.
    fn relieved(&mut self, slot: Slot) -> bool {
        let place = &self.table.slots[usize::from(slot.0)];
        if place.incoming.is_some() || place.failing {
            return true;
        }
        // A window of data that moves is soon over.
        let reshapes = self.reshape.as_ref().is_some_and(|r| !r.is_window());
        if reshapes || self.jobs.paused {
            return false;
        }
        let first = |s: &SlotUse| s.incoming.is_none() && (s.current.is_none() || s.failing);
        let own = self.table.spares.len() > self.table.slots.iter().filter(|s| first(s)).count();
        let elsewhere = self.elsewhere && self.table.spares.is_empty();
        if !own && !elsewhere {
            return false;
        }
        let device = place.current;
        self.table.slots[usize::from(slot.0)].failing = true;
        if let Some(device) = device {
            self.out.event(EventKind::MemberFailing { slot, device });
        }
        true
    }

    /// The level survives the loss of this device, as things stand: what is being resynced has no
    /// parity to be computed from.
    pub(crate) fn may_lose(&self, device: DeviceId) -> bool {
        let Some(slot) = self.table.slot_of(device) else {
            return true;
        };
        let syncing = !self.geometry.mirrored() && self.map.syncing();
        self.table.slots[usize::from(slot.0)].current != Some(device)
            || (self.table.lost_in_group(&self.geometry, slot) < self.geometry.m && !syncing)
    }

    /// What has the content of this device of a slot, without the device.
    pub(crate) fn instead_of(&self, slot: Slot, device: DeviceId) -> Instead {
        let place = &self.table.slots[slot.index()];
        let lost = self.table.lost_in_group(&self.geometry, slot);
        match place.current {
            // What replaced it lacks nothing of it, or the other way round.
            Some(current) if current != device || place.outgoing.is_some() => Instead::SameSlot,
            Some(_) if lost >= self.geometry.m => Instead::Nothing,
            _ => Instead::Others,
        }
    }

    /// Takes a device out of service.
    pub(crate) fn member_out(&mut self, device: DeviceId, cause: OutCause) {
        if matches!(self.stage, Stage::Failed | Stage::Stopped) {
            return;
        }
        if self.table.spares.contains(&device) {
            self.table.entering.retain(|&d| d != device);
            self.table.spares.retain(|&d| d != device);
            self.forget_spare(device);
            self.out.event(EventKind::Removed { slot: None });
            return self.touch();
        }
        if let Some(at) = self.table.outgoing_in(device) {
            // It is not needed any more, if the other is in sync.
            self.table.slots[at].outgoing = None;
            self.table.devices.remove(&device);
            return self.persist.waiters.push(SuperblockWaiter::Release(device));
        }
        let Some(slot) = self.table.slot_of(device) else {
            return;
        };
        let at = usize::from(slot.0);
        self.out.event(EventKind::MemberOut {
            slot,
            device: Some(device),
            cause,
            instead: self.instead_of(slot, device),
        });
        let place = &mut self.table.slots[at];
        let mut known = Known::default();
        if let Some(member) = self.table.devices.get(&device) {
            place.counts = member.counts;
            place.left = Some(device);
            known = Known::heard(member.heard).until(self.sb.generation.next());
        }
        let since = self.sb.epoch.next();
        if self.keeps_slot(at, device) {
            self.table.devices.remove(&device);
            self.persist.waiters.push(SuperblockWaiter::Release(device));
            return self.membership_changed();
        }
        let patient =
            cause != OutCause::TimedOut || self.table.slots[at].stalls.record(self.out.now());
        let place = &mut self.table.slots[at];
        if place.incoming == Some(device) {
            place.incoming = None;
            (place.rebuilt, place.flushed) = (Row(0), Row(0));
            if place.current.is_none() {
                let record = &mut self.table.records[at];
                (record.state, record.since) = (out_state(cause, patient), since);
                (record.kept, record.known) = (record.kept && keeps(cause), known);
                place.missing_from = may_return(record).then_some(self.out.now());
            }
            self.table
                .listed
                .retain(|uuid| Some(*uuid) != self.table.devices.get(&device).map(|m| m.member));
        } else {
            let beyond = self.table.lost_in_group(&self.geometry, slot) >= self.geometry.m;
            if beyond && !canary::hit(Canary::GoesOnBeyond) {
                return self.fail(FailCause::MembersLost);
            }
            let place = &mut self.table.slots[at];
            place.current = None;
            match place.incoming {
                // What was to replace it takes its place in the table, as far as it has come.
                Some(incoming) => {
                    let uuid = self.table.devices[&incoming].member;
                    self.table.listed.retain(|spare| *spare != uuid);
                    let state = SlotState::Rebuilding { rebuilt_bytes: 0 };
                    self.table.records[at] = SlotRecord {
                        member: uuid,
                        state,
                        since,
                        kept: false,
                        known: Known::default(),
                    };
                }
                None => {
                    let record = &mut self.table.records[at];
                    (record.state, record.since) = (out_state(cause, patient), since);
                    (record.kept, record.known) = (keeps(cause), known);
                    self.table.slots[at].missing_from =
                        may_return(record).then_some(self.out.now());
                }
            }
            self.note_absence();
        }
        self.table.devices.remove(&device);
        self.persist.waiters.push(SuperblockWaiter::Release(device));
        self.membership_changed();
    }

    /// The array cannot go on: stop writing, leave everything as it is.
    pub(crate) fn fail(&mut self, cause: FailCause) {
        self.stage = Stage::Failed;
        self.out.event(EventKind::Failed { cause });
        self.fail_unmaps();
        self.publish();
        if let Some(id) = self.stop.take() {
            self.out.done(id, Err(CommandError::NotServing));
        }
        for waiter in std::mem::take(&mut self.persist.waiters) {
            match waiter {
                SuperblockWaiter::Done(id, _) => self.out.done(id, Err(CommandError::NotServing)),
                SuperblockWaiter::Release(device) | SuperblockWaiter::Replaced(device) => {
                    self.persist.leaving.push((device, self.view.version));
                }
                // The view that says so ends it.
                SuperblockWaiter::Verdict(..) => {}
                SuperblockWaiter::Unmap(_)
                | SuperblockWaiter::Rebuilt(..)
                | SuperblockWaiter::RebuildOver => {}
            }
        }
    }

    /// The incoming member of a slot is whole: it takes the slot.
    pub(crate) fn take_slot(&mut self, at: usize) {
        let slot = &mut self.table.slots[at];
        let incoming = slot.incoming.take().expect("a rebuild has a target");
        let replaced = slot.current.replace(incoming);
        let partial = self.table.records[at].kept && replaced.is_none();
        *slot = SlotUse {
            current: slot.current,
            outgoing: replaced,
            stalls: if partial {
                slot.stalls
            } else {
                Stalls::default()
            },
            ..SlotUse::default()
        };
        let member = self.table.devices[&incoming].member;
        self.table.listed.retain(|spare| *spare != member);
        let since = self.sb.epoch.next();
        self.table.records[at] = SlotRecord {
            member,
            state: SlotState::InSync,
            since,
            kept: false,
            known: Known::default(),
        };
        let whole = SuperblockWaiter::Rebuilt(Slot(at as u8), incoming, partial);
        self.persist.waiters.push(whole);
        if let Some(device) = replaced {
            self.persist
                .waiters
                .push(SuperblockWaiter::Replaced(device));
        }
    }

    /// It is durable everywhere that this device has its slot, unless it was lost since.
    pub(crate) fn rebuilt(&mut self, slot: Slot, device: DeviceId, partial: bool) {
        if self.table.slots[slot.index()].current == Some(device) {
            self.out.event(EventKind::Rebuilt {
                slot,
                device,
                partial,
            });
        }
    }

    /// It is durable everywhere that another has the slot of this device.
    pub(crate) fn replaced(&mut self, device: DeviceId) {
        let cause = OutCause::Replaced;
        let Some(at) = self.table.outgoing_in(device) else {
            return;
        };
        self.table.slots[at].outgoing = None;
        self.table.devices.remove(&device);
        self.out.event(EventKind::MemberOut {
            slot: Slot(at as u8),
            device: Some(device),
            cause,
            instead: Instead::SameSlot,
        });
        self.persist.leaving.push((device, self.view.version));
    }

    /// A device that has just taken a slot is lost before that is durable: what it replaced holds
    /// all that it should, and keeps the slot. True if so.
    fn keeps_slot(&mut self, at: usize, device: DeviceId) -> bool {
        let place = &mut self.table.slots[at];
        if place.current != Some(device) {
            return false;
        }
        let Some(kept) = place.outgoing.take() else {
            return false;
        };
        place.current = Some(kept);
        self.table.records[at] = SlotRecord {
            member: self.table.devices[&kept].member,
            state: SlotState::InSync,
            since: self.sb.epoch.next(),
            kept: false,
            known: Known::default(),
        };
        true
    }

    fn forget_spare(&mut self, device: DeviceId) {
        if let Some(member) = self.table.devices.remove(&device) {
            self.table.listed.retain(|uuid| *uuid != member.member);
            self.persist.waiters.push(SuperblockWaiter::Release(device));
        }
    }

    /// A device that was to become a member is none.
    pub(crate) fn give_up_spare(&mut self, device: DeviceId) {
        self.table.spares.retain(|&d| d != device);
        self.forget_spare(device);
        self.touch();
    }

    /// Gives spares to slots without a member, once that has been waited for.
    pub(crate) fn use_spares(&mut self) {
        let quiet = self.stage == Stage::Serving && !self.persist.view_due;
        if !quiet || self.reshape.is_some() || self.jobs.paused {
            return;
        }
        let going = self.going();
        for at in (0..self.table.slots.len()).filter(|at| !going.contains(at)) {
            let slot = self.table.slots[at];
            if slot.current.is_some() || slot.incoming.is_some() || self.table.spares.is_empty() {
                continue;
            }
            if self.spare_due(at).is_some_and(|due| due > self.out.now()) {
                continue;
            }
            self.give_spare(at, 0);
        }
        for at in 0..self.table.slots.len() {
            if self.asks_elsewhere(&self.table.slots[at]) {
                continue;
            }
            let slot = &mut self.table.slots[at];
            // Where none is left, the next read error decides again.
            if std::mem::take(&mut slot.failing)
                && slot.current.is_some()
                && slot.incoming.is_none()
                && !self.table.spares.is_empty()
            {
                self.give_spare(at, 0);
            }
        }
    }

    /// The member in this slot has too many read errors, and waits for a spare from elsewhere.
    pub(crate) fn asks_elsewhere(&self, slot: &SlotUse) -> bool {
        let serves = slot.current.is_some() && slot.incoming.is_none();
        slot.failing && serves && self.elsewhere && self.table.spares.is_empty()
    }

    /// Whether a spare can be had elsewhere. If not, members that wait for one are failed, as they
    /// would have been.
    fn spares_elsewhere(&mut self, can: bool) -> Changed {
        if self.elsewhere == can {
            return Changed::No;
        }
        let waits = |slot: &SlotUse| self.asks_elsewhere(slot).then_some(slot.current).flatten();
        let waiting: Vec<DeviceId> = self.table.slots.iter().filter_map(waits).collect();
        self.elsewhere = can;
        for device in waiting {
            if self.may_lose(device) {
                self.member_out(device, OutCause::ReadErrors);
            }
        }
        Changed::Yes
    }

    /// Rebuilds the slot onto one of the spares that wait, of which the first has waited longest.
    fn give_spare(&mut self, at: usize, which: usize) {
        let device = self.table.spares.remove(which);
        let member = self.table.devices[&device].member;
        self.table.listed.retain(|uuid| *uuid != member);
        self.join(at, device);
    }

    /// At the start: what is missing is waited for from now on.
    pub(crate) fn await_the_missing(&mut self) {
        for (slot, record) in self.table.slots.iter_mut().zip(&self.table.records) {
            slot.missing_from = may_return(record).then_some(self.out.now());
        }
    }

    /// When the member of this slot has been waited for long enough; `None` where it is not.
    pub(crate) fn spare_due(&self, at: usize) -> Option<Time> {
        let slot = &self.table.slots[at];
        let empty = slot.current.is_none() && slot.incoming.is_none();
        let delay_ms = u64::from(self.sb.settings.spare_delay_ms);
        let from = slot.missing_from.filter(|_| empty)?;
        Some(from.plus_ms(delay_ms))
    }

    /// When a spare that waits is to be used.
    pub(crate) fn spare_deadline(&self) -> Option<Time> {
        if self.table.spares.is_empty() || self.jobs.paused {
            return None;
        }
        let due = (0..self.table.slots.len()).filter_map(|at| self.spare_due(at));
        // One that is due already is used as soon as the array is quiet.
        due.filter(|&due| due > self.out.now()).min()
    }

    /// Members that are missing are not waited for any longer.
    pub(crate) fn wait_no_longer(&mut self) -> Changed {
        let mut changed = Changed::No;
        for at in 0..self.table.slots.len() {
            if self.spare_due(at).is_some() && !self.table.spares.is_empty() {
                changed = Changed::Yes;
            }
            self.table.slots[at].missing_from = None;
        }
        changed
    }

    /// Starts to rebuild a slot onto a device.
    pub(crate) fn join(&mut self, at: usize, device: DeviceId) {
        let slot = &mut self.table.slots[at];
        (slot.incoming, slot.rebuilt, slot.flushed) = (Some(device), Row(0), Row(0));
        slot.joined = self.jobs.last_step();
        let member = self.table.devices[&device].member;
        if slot.current.is_none() {
            let state = SlotState::Rebuilding { rebuilt_bytes: 0 };
            self.table.records[at] = SlotRecord {
                member,
                state,
                since: self.sb.epoch.next(),
                kept: false,
                known: Known::default(),
            };
        } else {
            self.table.listed.push(member);
        }
        self.persist.stale.retain(|(s, _)| usize::from(s.0) != at);
        self.lose_witnesses();
        self.out.event(EventKind::SpareUsed {
            slot: Slot(at as u8),
            device,
        });
        self.membership_changed();
        self.rewrite_map();
        self.rewrite_list();
    }

    // ---- commands ----------------------------------------------------------------------------

    /// An administrator's command; answered by [`ArrayOutput::Done`].
    pub fn command(&mut self, now: Time, id: CommandId, command: Command) {
        self.out.input_at(now);
        let result = match command {
            Command::Stop => return self.begin_stop(id),
            _ if self.stage != Stage::Serving => Err(CommandError::NotServing),
            Command::Grow(sizes) => return self.begun(id, |array| array.grow(id, &sizes)),
            Command::AddParity(devices) => {
                return self.begun(id, |array| array.add_parity(id, devices));
            }
            Command::DropParity(fewer) => {
                return self.begun(id, |array| array.drop_parity(id, fewer));
            }
            Command::Mirror => return self.begun(id, |array| array.become_mirror(id)),
            Command::Restripe(shape) => {
                return self.begun(id, |array| array.restripe(id, shape));
            }
            Command::StopRestripe => self.stop_restripe(true),
            Command::ContinueRestripe => self.stop_restripe(false),
            Command::Fail(slot) => self.fail_member(slot),
            Command::FailDevice(device) => self.fail_device(device),
            Command::Emptied(devices) => self.devices_emptied(&devices),
            // All else would change what the change was begun for.
            _ if self.reshape.is_some() => {
                let reshape = self.reshape.as_mut().expect("looked at");
                if reshape.is_window() {
                    // It takes no longer than a slow write.
                    return reshape.keep_command(id, command);
                }
                Err(CommandError::Reshaping)
            }
            Command::Sizes(sizes) => Ok(self.note_sizes(&sizes)),
            Command::Remove(MemberRef::Slot(slot)) => self.remove_slot(slot),
            Command::Remove(MemberRef::Device(device)) => self.remove_device(device),
            Command::Add(device) => self.add(device),
            Command::Return(device) => self.return_member(device),
            Command::Replace(slot, device) => self.replace(slot, device),
            Command::ReplaceBySpare(slot, spare) => self.replace_by_spare(slot, spare),
            Command::SparesElsewhere(can) => Ok(self.spares_elsewhere(can)),
            Command::StartRebuild => Ok(self.start_rebuild()),
            Command::StartInit => Ok(self.start_init()),
            Command::StopInit => Ok(self.stop_init()),
            Command::StopRebuild => Ok(self.stop_rebuild()),
            Command::StartScrub(mode) => Ok(self.start_scrub(mode)),
            Command::PauseScrub => Ok(self.pause_scrub()),
            Command::StopScrub => Ok(self.stop_scrub()),
            Command::AcceptData => self.accept_data(),
            Command::Set(setting) => self.set(setting),
            Command::Rename(name) => Ok(self.rename(name)),
            Command::ResetCounters(member) => self.reset_counters(member),
        };
        match result {
            Ok(changed) => self
                .persist
                .waiters
                .push(SuperblockWaiter::Done(id, changed)),
            Err(error) => self.out.done(id, Err(error)),
        }
        self.converge();
    }

    /// A command that is answered when what it began is over, unless it is refused.
    fn begun(&mut self, id: CommandId, begin: impl FnOnce(&mut Array) -> Option<CommandError>) {
        if let Some(error) = begin(self) {
            self.out.done(id, Err(error));
        }
        self.converge();
    }

    fn slot_use(&self, slot: Slot) -> Result<SlotUse, CommandError> {
        self.table
            .slots
            .get(usize::from(slot.0))
            .copied()
            .ok_or(CommandError::NoSuchSlot)
    }

    fn fail_member(&mut self, slot: Slot) -> Result<Changed, CommandError> {
        let place = self.slot_use(slot)?;
        let Some(device) = place.current.or(place.incoming) else {
            return Ok(Changed::No);
        };
        if !self.may_lose(device) {
            return Err(CommandError::WouldFail);
        }
        self.member_out(device, OutCause::Asked);
        Ok(Changed::Yes)
    }

    fn fail_device(&mut self, device: DeviceId) -> Result<Changed, CommandError> {
        if !self.table.devices.contains_key(&device) {
            return Err(CommandError::NoSuchMember);
        }
        if !self.may_lose(device) {
            return Err(CommandError::WouldFail);
        }
        self.member_out(device, OutCause::Asked);
        Ok(Changed::Yes)
    }

    pub(crate) fn are_members(&self, devices: &[DeviceId]) -> Result<(), CommandError> {
        let known = devices
            .iter()
            .all(|device| self.table.devices.contains_key(device));
        known.then_some(()).ok_or(CommandError::NoSuchMember)
    }

    /// Unlike a member that an administrator puts out, these have nothing to be kept for.
    fn devices_emptied(&mut self, devices: &[DeviceId]) -> Result<Changed, CommandError> {
        self.are_members(devices)?;
        for device in devices {
            self.member_out(*device, OutCause::Emptied);
        }
        match self.stage {
            Stage::Failed => Err(CommandError::NotServing),
            _ => Ok(Changed::Yes),
        }
    }

    fn remove_slot(&mut self, slot: Slot) -> Result<Changed, CommandError> {
        let place = self.slot_use(slot)?;
        if place.current.is_some() || place.incoming.is_some() {
            return Err(CommandError::InUse);
        }
        let at = usize::from(slot.0);
        let nil = MemberUuid([0; 16]);
        if self.table.records[at].member == nil {
            return Ok(Changed::No);
        }
        let since = self.sb.epoch.next();
        self.table.records[at] = SlotRecord {
            member: nil,
            state: SlotState::Missing,
            since,
            kept: false,
            known: Known::default(),
        };
        self.table.slots[at] = SlotUse::default();
        self.persist.stale.retain(|(s, _)| *s != slot);
        self.out.event(EventKind::Removed { slot: Some(slot) });
        self.membership_changed();
        Ok(Changed::Yes)
    }

    fn remove_device(&mut self, device: DeviceId) -> Result<Changed, CommandError> {
        if self.table.spares.contains(&device) {
            self.table.spares.retain(|&d| d != device);
            self.forget_spare(device);
            self.out.event(EventKind::Removed { slot: None });
            self.touch();
            return Ok(Changed::Yes);
        }
        match self.table.slot_of(device) {
            Some(_) => Err(CommandError::InUse),
            None => Err(CommandError::NoSuchMember),
        }
    }

    /// The places on a device like this, if it can be a member.
    pub(crate) fn layout_for(&self, info: &DeviceInfo) -> Result<Layout, CommandError> {
        limits::layout_on(&self.superblock(), info)
    }

    /// Can this device be a member? Then it becomes one of the devices known.
    pub(crate) fn admit(&mut self, new: &NewDevice) -> Result<(), CommandError> {
        let layout = self.layout_for(&new.info)?;
        let member = Member::new(new.info, new.member, layout);
        self.table.devices.insert(new.device, member);
        Ok(())
    }

    fn add(&mut self, new: NewDevice) -> Result<Changed, CommandError> {
        if self.table.devices.contains_key(&new.device) {
            return Ok(Changed::No);
        }
        if self.spares_to_be() >= SPARES_MAX {
            return Err(CommandError::TooManySpares);
        }
        self.admit(&new)?;
        self.table.spares.push(new.device);
        self.table.listed.push(new.member);
        self.out.event(EventKind::SpareAdded { device: new.device });
        // A device that is added now is meant to be used.
        self.wait_no_longer();
        self.touch();
        Ok(Changed::Yes)
    }

    fn replace(&mut self, slot: Slot, new: NewDevice) -> Result<Changed, CommandError> {
        let place = self.slot_use(slot)?;
        if place.incoming.is_some() {
            return Err(CommandError::Rebuilding);
        }
        if self.spares_to_be() >= SPARES_MAX {
            return Err(CommandError::TooManySpares);
        }
        self.admit(&new)?;
        self.join(usize::from(slot.0), new.device);
        Ok(Changed::Yes)
    }

    /// A spare takes the place of a member that still serves.
    fn replace_by_spare(&mut self, slot: Slot, spare: DeviceId) -> Result<Changed, CommandError> {
        let place = self.slot_use(slot)?;
        if place.incoming.is_some() {
            return Err(CommandError::Rebuilding);
        }
        if place.current.is_none() {
            return Err(CommandError::NothingToReplace);
        }
        let waits = self.table.spares.iter().position(|&device| device == spare);
        let which = waits.ok_or(CommandError::NoSuchMember)?;
        self.give_spare(usize::from(slot.0), which);
        Ok(Changed::Yes)
    }

    fn rename(&mut self, to: ArrayName) -> Changed {
        if to == self.sb.name {
            return Changed::No;
        }
        let from = std::mem::replace(&mut self.sb.name, to.clone());
        self.out.event(EventKind::Renamed { from, to });
        self.touch();
        Changed::Yes
    }

    fn set(&mut self, setting: Setting) -> Result<Changed, CommandError> {
        let before = (self.sb.settings, self.sb.write_hole, self.sb.carved);
        match setting {
            Setting::RebuildPriority(p) if !(1..=100).contains(&p) => {
                return Err(CommandError::OutOfRange);
            }
            Setting::ResyncPriority(p)
            | Setting::ScrubPriority(p)
            | Setting::RestripePriority(p)
            | Setting::InitPriority(p)
                if !(1..=100).contains(&p) =>
            {
                return Err(CommandError::OutOfRange);
            }
            Setting::LatencyTargetUs(us) if us > Settings::LATENCY_TARGET_US_MAX => {
                return Err(CommandError::OutOfRange);
            }
            Setting::SpareDelayMs(ms) if ms > Settings::SPARE_DELAY_MS_MAX => {
                return Err(CommandError::OutOfRange);
            }
            Setting::ScrubMinute(minute) if minute > Settings::SCRUB_MINUTE_MAX => {
                return Err(CommandError::OutOfRange);
            }
            Setting::ReadErrorThreshold(0) => return Err(CommandError::OutOfRange),
            Setting::RebuildPriority(p) => self.sb.settings.rebuild_priority = p,
            Setting::ResyncPriority(p) => self.sb.settings.resync_priority = p,
            Setting::ScrubPriority(p) => self.sb.settings.scrub_priority = p,
            Setting::RestripePriority(p) => self.sb.settings.restripe_priority = p,
            Setting::InitPriority(p) => self.sb.settings.init_priority = p,
            Setting::LatencyTargetUs(us) => self.sb.settings.latency_target_us = us,
            Setting::ReadErrorThreshold(n) => self.sb.settings.read_error_threshold = n,
            Setting::ScrubPeriod(period) => self.sb.settings.scrub_period = period,
            Setting::ScrubMinute(minute) => self.sb.settings.scrub_minute = minute,
            Setting::ScrubPolicy(mode) => self.sb.settings.scrub_policy = mode,
            Setting::SpareDelayMs(ms) => self.sb.settings.spare_delay_ms = ms,
            Setting::Carved => self.sb.carved = true,
            Setting::HedgedReads(on) => {
                let before = std::mem::replace(&mut self.sb.settings.hedged_reads, on);
                self.persist.view_due |= before != on;
            }
            Setting::WriteHole(policy) => {
                // A log that is too small for the geometry cannot keep what is asked.
                let before = std::mem::replace(&mut self.sb.write_hole, policy);
                let parity = self.geometry.m > 0 && !self.geometry.mirrored();
                if policy != WriteHole::Resync && parity && !self.log_fits() {
                    self.sb.write_hole = before;
                    return Err(CommandError::LogTooSmall);
                }
                if policy != WriteHole::Resync && parity && self.log_coverage.ended() {
                    self.sb.write_hole = before;
                    return Err(CommandError::NumbersExhausted);
                }
                self.persist.view_due |= before != policy;
            }
        }
        if before == (self.sb.settings, self.sb.write_hole, self.sb.carved) {
            return Ok(Changed::No);
        }
        // A pause was meant by what was set before.
        self.jobs.end_pause();
        self.touch();
        Ok(Changed::Yes)
    }

    fn begin_stop(&mut self, id: CommandId) {
        match self.stage {
            Stage::Serving => {
                self.stage = Stage::Stopping;
                self.stop = Some(id);
            }
            // Nothing may be written any more; the devices may be closed as they are.
            Stage::Failed => {
                self.out.done(id, Ok(Changed::Yes));
                self.out.push(ArrayOutput::Stopped);
            }
            Stage::Stopped => self.out.done(id, Ok(Changed::No)),
            Stage::Resuming
            | Stage::Recovering
            | Stage::Starting
            | Stage::Stopping
            | Stage::Closing => {
                self.out.done(id, Err(CommandError::NotServing));
            }
        }
        self.converge();
    }

    /// Stopping: closes regions, waits for steps, then writes the last superblocks.
    pub(crate) fn drive_stop(&mut self) {
        let busy = self.jobs.busy() || self.persist.view_due || self.reshape.is_some();
        if self.stage != Stage::Stopping || busy {
            return;
        }
        let quiet = self.unreadable.quiet() && self.cover_quiet();
        if self.close_all() && quiet && self.flushed_for_stop() {
            self.stage = Stage::Closing;
            // Operations that still wait for a region are told that the array stops.
            self.seal();
            self.sb.clean = self
                .regions_in(crate::array::regions::Phase::NeedSync)
                .is_empty();
            if self.sb.clean {
                // All is over. Numbers that were given out, or are of a base that was on its way,
                // must not be given out again, or these records would count.
                if !canary::hit(Canary::StopKeepsBase) {
                    self.sb.log_base = self.log_coverage.used();
                }
                self.sb.numbers_noted = true;
            }
            // Nothing is under way: what force was used for need not be said again.
            self.sb.accepted = match self.sb.clean {
                true => 0,
                false => self.forced.iter().fold(0, |bits, slot| bits | 1 << slot.0),
            };
            self.persist.view_due = true;
            self.touch();
            self.drive_persist();
        }
    }
}

fn cause_of(error: IoError) -> OutCause {
    match error {
        IoError::Gone => OutCause::Gone,
        IoError::Shrunk => OutCause::Shrunk,
        IoError::TimedOut | IoError::Transport(_) | IoError::Unsent(_) => OutCause::TimedOut,
        IoError::Media | IoError::Unclear | IoError::NoSpace | IoError::Other(_) => {
            OutCause::WriteError
        }
    }
}

/// A member that was there a moment ago and holds what it held: a cable, a slot, a restart of its
/// firmware that took too long. One that failed, was put out, or was being rebuilt as a whole is
/// not waited for.
fn may_return(record: &SlotRecord) -> bool {
    record.state == SlotState::Missing && record.kept && !record.member.is_nil()
}

fn out_state(cause: OutCause, patient: bool) -> SlotState {
    match cause {
        OutCause::NotFound | OutCause::Stale | OutCause::Gone => SlotState::Missing,
        OutCause::OlderImage | OutCause::Unfit => SlotState::Missing,
        OutCause::TimedOut if patient => SlotState::Missing,
        _ => SlotState::Failed,
    }
}
