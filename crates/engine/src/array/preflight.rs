//! Preflight: whether an array would carry out a command, decided before anything is done.
//!
//! A command asks here first ([`Array::command`]), and a dry run asks here and stops: so both are
//! refused with the same error. What only shows when a command is carried out is refused there: a
//! member that comes back and cannot (`members::rejoin`), a device that turns out to have shrunk.
//!
//! Invariant: nothing changes. Deliberately absent: what is known only when shards hold (their
//! buffers).

use strake_format::{SPARES_MAX, Settings, Slot, WriteHole};

use crate::array::{Array, SlotUse, Stage};
use crate::proto::*;
use crate::provision::limits;
use crate::units::*;

impl Array {
    /// Whether the array would carry out this command as things stand.
    ///
    /// # Errors
    /// Why it would refuse.
    pub fn preflight(&self, command: &Command) -> Result<(), CommandError> {
        match command {
            Command::Stop => return Ok(()),
            _ if self.stage != Stage::Serving => return Err(CommandError::NotServing),
            Command::Grow(sizes) => return self.may_grow(sizes),
            Command::AddParity(devices) => return self.may_add_parity(devices),
            Command::DropParity(fewer) => return self.may_drop_parity(*fewer),
            Command::Mirror => return self.may_become_mirror(),
            Command::Restripe(shape) => return self.may_restripe(shape),
            Command::StopRestripe | Command::ContinueRestripe => {
                let moves = self.sb.moving.is_some();
                return moves.then_some(()).ok_or(CommandError::NothingMoves);
            }
            Command::Fail(slot) => {
                let place = self.place(*slot)?;
                let device = place.current().or(place.incoming());
                return device.map_or(Ok(()), |device| self.may_do_without(device));
            }
            Command::FailDevice(device) => {
                self.are_members(std::slice::from_ref(device))?;
                return self.may_do_without(*device);
            }
            Command::Emptied(devices) => return self.are_members(devices),
            Command::LookAtSuperblocks => return Ok(()),
            _ => {}
        }
        match &self.reshape {
            // It waits for the end of the window, and what is so then is what counts.
            Some(reshape) if reshape.is_window() => Ok(()),
            Some(_) => Err(CommandError::Reshaping),
            None => self.preflight_now(command),
        }
    }

    /// The same for a command that waits for no change of shape.
    fn preflight_now(&self, command: &Command) -> Result<(), CommandError> {
        match command {
            Command::AcceptData if self.jobs.accept.is_some() => Ok(()),
            Command::AcceptData => self.may_accept(),
            Command::Remove(MemberRef::Slot(slot)) => match self.place(*slot)? {
                place if place.current().is_some() || place.incoming().is_some() => {
                    Err(CommandError::InUse)
                }
                _ => Ok(()),
            },
            Command::Remove(MemberRef::Device(device)) => {
                match (
                    self.table.spares().contains(device),
                    self.table.slot_of(*device),
                ) {
                    (true, _) => Ok(()),
                    (false, Some(_)) => Err(CommandError::InUse),
                    (false, None) => Err(CommandError::NoSuchMember),
                }
            }
            Command::Add(new) if self.table.has(new.device) => Ok(()),
            Command::Add(new) => self.may_take(new),
            Command::Replace(slot, new) => match self.place(*slot)?.incoming() {
                Some(_) => Err(CommandError::Rebuilding),
                None => self.may_take(new),
            },
            Command::ReplaceBySpare(slot, spare) => {
                let place = self.place(*slot)?;
                match (place.incoming(), place.current()) {
                    (Some(_), _) => Err(CommandError::Rebuilding),
                    (None, None) => Err(CommandError::NothingToReplace),
                    _ if !self.table.spares().contains(spare) => Err(CommandError::NoSuchMember),
                    _ => Ok(()),
                }
            }
            Command::Set(setting) => self.may_set(*setting),
            Command::ResetCounters(Some(MemberRef::Slot(slot))) => self.place(*slot).map(|_| ()),
            Command::ResetCounters(Some(MemberRef::Device(device))) => {
                let known = self.table.has(*device);
                known.then_some(()).ok_or(CommandError::NoSuchMember)
            }
            _ => Ok(()),
        }
    }

    fn place(&self, slot: Slot) -> Result<&SlotUse, CommandError> {
        self.table
            .slots()
            .get(slot.index())
            .ok_or(CommandError::NoSuchSlot)
    }

    /// The level survives the loss of this device, as things stand: what is being resynced has no
    /// parity to be computed from.
    fn may_do_without(&self, device: DeviceId) -> Result<(), CommandError> {
        match self.may_lose(device) {
            true => Ok(()),
            false => Err(CommandError::WouldFail),
        }
    }

    fn may_take(&self, new: &NewDevice) -> Result<(), CommandError> {
        if self.spares_to_be() >= SPARES_MAX {
            return Err(CommandError::TooManySpares);
        }
        limits::layout_on(&self.sb, &new.info).map(|_| ())
    }

    fn may_set(&self, setting: Setting) -> Result<(), CommandError> {
        let within = match setting {
            Setting::RebuildPriority(p)
            | Setting::ResyncPriority(p)
            | Setting::ScrubPriority(p)
            | Setting::RestripePriority(p)
            | Setting::InitPriority(p) => (1..=100).contains(&p),
            Setting::LatencyTargetUs(us) => us <= Settings::LATENCY_TARGET_US_MAX,
            Setting::SpareDelayMs(ms) => ms <= Settings::SPARE_DELAY_MS_MAX,
            Setting::ScrubMinute(minute) => minute <= Settings::SCRUB_MINUTE_MAX,
            Setting::ReadErrorThreshold(errors) => errors > 0,
            Setting::WriteHole(policy) => {
                let parity = self.geometry.m > 0 && !self.geometry.mirrored();
                return match policy != WriteHole::Resync && parity {
                    true if !self.log_fits() => Err(CommandError::LogTooSmall),
                    true if self.log_coverage.ended() => Err(CommandError::NumbersExhausted),
                    _ => Ok(()),
                };
            }
            Setting::ScrubPeriod(_)
            | Setting::ScrubPolicy(_)
            | Setting::HedgedReads(_)
            | Setting::Carved => true,
        };
        within.then_some(()).ok_or(CommandError::OutOfRange)
    }
}
