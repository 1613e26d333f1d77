//! Members come and go: errors, spares.
//!
//! Invariants:
//! * A member that failed a write is out, and the survivors durably know it, before the write is
//!   answered.
//! * No member is taken out for read errors, or on request, if data would be lost by it.
//! * Nor for read errors of the medium while copies of a mirror may differ and nobody knows which
//!   is right: sectors that fail are not written anew there, so they fail with each read, and with
//!   the first copy its answers would go.
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
use crate::array::members::table::Left;
use crate::array::metadata::superblocks::SuperblockWaiter;
use crate::array::{Array, Member, SlotUse, Stage};
use crate::canary::{self, Canary};
use crate::proto::*;
use crate::provision::limits;
use crate::units::*;

impl Array {
    /// An I/O of the array itself failed on a device (all of them write or flush).
    pub(crate) fn write_failed(&mut self, device: DeviceId, error: IoError) {
        if let Some(member) = self.table.get_mut(device) {
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
        let Some(member) = self.table.get_mut(device) else {
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
            IoError::Media if !too_many || self.copies_differ() || self.relieved(slot) => {}
            IoError::Media => self.member_out(device, OutCause::ReadErrors),
            _ => self.member_out(device, cause_of(error)),
        }
    }

    /// A spare takes the place of the member in this slot, which has too many read errors, or is
    /// about to: none that an empty slot needs. Or one is asked for elsewhere.
    fn relieved(&mut self, slot: Slot) -> bool {
        let place = &self.table.slots()[usize::from(slot.0)];
        if place.incoming().is_some() || place.failing {
            return true;
        }
        // A window of data that moves is soon over.
        let reshapes = self.reshape.as_ref().is_some_and(|r| !r.is_window());
        if reshapes || self.jobs.paused {
            return false;
        }
        let first = |s: &SlotUse| s.incoming().is_none() && (s.current().is_none() || s.failing);
        let own =
            self.table.spares().len() > self.table.slots().iter().filter(|s| first(s)).count();
        let elsewhere = self.elsewhere && self.table.spares().is_empty();
        if !own && !elsewhere {
            return false;
        }
        let device = place.current();
        self.table.slots_mut()[slot.index()].failing = true;
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
        self.table.slots()[usize::from(slot.0)].current() != Some(device)
            || (self.table.lost_in_group(&self.geometry, slot) < self.geometry.m && !syncing)
    }

    /// What has the content of this device of a slot, without the device.
    pub(crate) fn instead_of(&self, slot: Slot, device: DeviceId) -> Instead {
        let place = &self.table.slots()[slot.index()];
        let lost = self.table.lost_in_group(&self.geometry, slot);
        match place.current() {
            // What replaced it lacks nothing of it, or the other way round.
            Some(current) if current != device || place.outgoing().is_some() => Instead::SameSlot,
            Some(_) if lost >= self.geometry.m => Instead::Nothing,
            _ => Instead::Others,
        }
    }

    /// Takes a device out of service.
    pub(crate) fn member_out(&mut self, device: DeviceId, cause: OutCause) {
        if matches!(self.stage, Stage::Failed | Stage::Stopped) {
            return;
        }
        if self.table.spares().contains(&device) {
            self.give_up_spare(device);
            let (slot, device, cause) = (None, Some(device), Some(cause));
            let removed = EventKind::Removed {
                slot,
                device,
                cause,
            };
            return self.out.event(removed);
        }
        if let Some(at) = self.table.outgoing_in(device) {
            // It is not needed any more, if the other is in sync.
            self.table.drop_outgoing(at);
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
        let mut known = Known::default();
        if let Some(member) = self.table.get(device) {
            known = Known::heard(member.heard).until(self.sb.generation.next());
            let counts = member.counts;
            let place = &mut self.table.slots_mut()[at];
            (place.counts, place.left) = (counts, Some(device));
        }
        let (since, now) = (self.sb.epoch.next(), self.out.now());
        if !self.table.keep_slot(at, device, since) {
            let late = cause == OutCause::TimedOut;
            let patient = !late || self.table.slots_mut()[at].stalls.record(now);
            let serves = self.table.slots()[at].incoming() != Some(device);
            let beyond = self.table.lost_in_group(&self.geometry, slot) >= self.geometry.m;
            if serves && beyond && !canary::hit(Canary::GoesOnBeyond) {
                return self.fail(FailCause::MembersLost);
            }
            let left = Left {
                state: out_state(cause, patient),
                since,
                keeps: keeps(cause),
                known,
                now,
            };
            if self.table.leave(at, device, left) {
                self.note_absence();
            }
        }
        self.table.forget(device);
        self.persist.waiters.push(SuperblockWaiter::Release(device));
        self.membership_changed();
    }

    /// It is durable everywhere that this device has its slot, unless it was lost since.
    pub(crate) fn rebuilt(&mut self, slot: Slot, device: DeviceId, partial: bool) {
        if self.table.slots()[slot.index()].current() == Some(device) {
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
        self.table.drop_outgoing(at);
        self.out.event(EventKind::MemberOut {
            slot: Slot(at as u8),
            device: Some(device),
            cause,
            instead: Instead::SameSlot,
        });
        self.persist.leaving.push((device, self.view.version));
    }

    /// A spare that waits, or a device that was to become a member, is none any more.
    pub(crate) fn give_up_spare(&mut self, device: DeviceId) {
        if self.table.drop_spare(device) {
            self.persist.waiters.push(SuperblockWaiter::Release(device));
        }
        self.persist.touch();
    }

    /// Gives spares to slots without a member, once that has been waited for.
    pub(crate) fn use_spares(&mut self) {
        let quiet = self.stage == Stage::Serving && !self.persist.view_due;
        let halts = self.jobs.paused || self.table.doubts();
        if !quiet || self.reshape.is_some() || halts {
            return;
        }
        let going = self.going();
        for at in (0..self.table.slots().len()).filter(|at| !going.contains(at)) {
            if !self.table.slots()[at].is_empty() || self.table.spares().is_empty() {
                continue;
            }
            if self.spare_due(at).is_some_and(|due| due > self.out.now()) {
                continue;
            }
            self.give_spare(at, 0);
        }
        for at in 0..self.table.slots().len() {
            if self.asks_elsewhere(&self.table.slots()[at]) {
                continue;
            }
            let slot = &mut self.table.slots_mut()[at];
            // Where none is left, the next read error decides again.
            if std::mem::take(&mut slot.failing)
                && slot.current().is_some()
                && slot.incoming().is_none()
                && !self.table.spares().is_empty()
            {
                self.give_spare(at, 0);
            }
        }
    }

    /// The member in this slot has too many read errors, and waits for a spare from elsewhere.
    pub(crate) fn asks_elsewhere(&self, slot: &SlotUse) -> bool {
        let serves = slot.current().is_some() && slot.incoming().is_none();
        slot.failing && serves && self.elsewhere && self.table.spares().is_empty()
    }

    /// Whether a spare can be had elsewhere. If not, members that wait for one are failed, as they
    /// would have been.
    pub(crate) fn spares_elsewhere(&mut self, can: bool) -> Changed {
        if self.elsewhere == can {
            return Changed::No;
        }
        let waits = |slot: &SlotUse| {
            self.asks_elsewhere(slot)
                .then_some(slot.current())
                .flatten()
        };
        let waiting: Vec<DeviceId> = self.table.slots().iter().filter_map(waits).collect();
        self.elsewhere = can;
        for device in waiting {
            if self.may_lose(device) && !self.copies_differ() {
                self.member_out(device, OutCause::ReadErrors);
            }
        }
        Changed::Yes
    }

    /// Rebuilds the slot onto one of the spares that wait, of which the first has waited longest.
    pub(crate) fn give_spare(&mut self, at: usize, which: usize) {
        let device = self.table.take_spare(which);
        self.join(at, device);
    }

    /// When the member of this slot has been waited for long enough; `None` where it is not.
    pub(crate) fn spare_due(&self, at: usize) -> Option<Time> {
        let delay_ms = u64::from(self.sb.settings.spare_delay_ms);
        let from = self.table.awaited_from(at)?;
        Some(from.plus_ms(delay_ms))
    }

    /// When a spare that waits is to be used.
    pub(crate) fn spare_deadline(&self) -> Option<Time> {
        if self.table.spares().is_empty() || self.jobs.paused || self.table.doubts() {
            return None;
        }
        let due = (0..self.table.slots().len()).filter_map(|at| self.spare_due(at));
        // One that is due already is used as soon as the array is quiet.
        due.filter(|&due| due > self.out.now()).min()
    }

    /// Starts to rebuild a slot onto a device.
    pub(crate) fn join(&mut self, at: usize, device: DeviceId) {
        let since = self.sb.epoch.next();
        self.table.join(at, device, self.jobs.last_step(), since);
        self.persist.stale.retain(|(s, _)| usize::from(s.0) != at);
        self.lose_witnesses();
        self.out.event(EventKind::SpareUsed {
            slot: Slot(at as u8),
            device,
        });
        self.membership_changed();
        self.rewrite_map();
        self.unreadable.rewrite();
    }

    pub(crate) fn are_members(&self, devices: &[DeviceId]) -> Result<(), CommandError> {
        let known = devices.iter().all(|device| self.table.has(*device));
        known.then_some(()).ok_or(CommandError::NoSuchMember)
    }

    /// Can this device be a member? Then it becomes one of the devices known.
    pub(crate) fn admit(&mut self, new: &NewDevice) -> Result<(), CommandError> {
        let layout = limits::layout_on(&self.sb, &new.info)?;
        let member = Member::new(new.info, new.member, layout);
        self.table.admit(new.device, member);
        Ok(())
    }
}

pub(crate) fn cause_of(error: IoError) -> OutCause {
    match error {
        IoError::Gone => OutCause::Gone,
        IoError::Shrunk => OutCause::Shrunk,
        IoError::TimedOut | IoError::Transport(_) | IoError::Unsent(_) => OutCause::TimedOut,
        IoError::Media | IoError::Unclear | IoError::NoSpace | IoError::Other(_) => {
            OutCause::WriteError
        }
    }
}

fn out_state(cause: OutCause, patient: bool) -> SlotState {
    match cause {
        OutCause::NotFound | OutCause::Stale | OutCause::Gone => SlotState::Missing,
        OutCause::OlderImage | OutCause::Unfit => SlotState::Missing,
        OutCause::TimedOut if patient => SlotState::Missing,
        _ => SlotState::Failed,
    }
}
