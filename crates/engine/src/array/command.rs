//! Commands of an administrator, and the end of the array's service.
//!
//! A command is carried out only if [`Array::preflight`] permits it. It is answered when what it
//! changed is durable on every live member, or, for a change of shape, when that is over.

use strake_format::*;

use crate::array::metadata::superblocks::SuperblockWaiter;
use crate::array::reshape::Change;
use crate::array::{Array, Stage};
use crate::canary::{self, Canary};
use crate::proto::*;
use crate::units::*;

impl Array {
    /// An administrator's command; answered by [`ArrayOutput::Done`].
    pub fn command(&mut self, now: Time, id: CommandId, command: Command) {
        self.out.input_at(now);
        match self.preflight(&command) {
            Ok(()) => self.carry_out(id, command),
            Err(error) => self.out.done(id, Err(error)),
        }
        self.converge();
    }

    fn carry_out(&mut self, id: CommandId, command: Command) {
        // A window takes no longer than a slow write; preflight looks at the command again then.
        if let Some(reshape) = self.reshape.as_mut().filter(|_| command.waits_for_window()) {
            return reshape.keep_command(id, command);
        }
        let result = match command {
            Command::Stop => return self.begin_stop(id),
            Command::Grow(sizes) => return self.grow(id, &sizes),
            Command::AddParity(devices) => {
                return self.begin_reshape(id, Change::AddParity(devices));
            }
            Command::DropParity(fewer) => return self.drop_parity(id, fewer),
            Command::Mirror => return self.begin_reshape(id, Change::Mirror),
            Command::Restripe(shape) => return self.restripe(id, shape),
            Command::StopRestripe => Ok(self.stop_restripe(true)),
            Command::ContinueRestripe => Ok(self.stop_restripe(false)),
            Command::Fail(slot) => match self.table.slots()[slot.index()].any() {
                Some(device) => return self.look_and_put_out(id, device),
                None => Ok(Changed::No),
            },
            Command::FailDevice(device) => return self.look_and_put_out(id, device),
            Command::Emptied(devices) => self.devices_emptied(&devices),
            Command::LookAtSuperblocks => Ok(self.look_at_superblocks()),
            Command::Sizes(sizes) => Ok(self.note_sizes(&sizes)),
            Command::Remove(MemberRef::Slot(slot)) => Ok(self.remove_slot(slot)),
            Command::Remove(MemberRef::Device(device)) => Ok(self.remove_spare(device)),
            Command::Add(device) => self.add(device),
            Command::Return(device) => self.return_member(device),
            Command::Replace(slot, device) => self.replace(slot, device),
            Command::ReplaceBySpare(slot, spare) => Ok(self.replace_by_spare(slot, spare)),
            Command::SparesElsewhere(can) => Ok(self.spares_elsewhere(can)),
            Command::StartRebuild => Ok(self.start_rebuild()),
            Command::StartInit => Ok(self.start_init()),
            Command::StopInit => Ok(self.stop_init()),
            Command::StopRebuild => Ok(self.stop_rebuild()),
            Command::StartScrub(mode) => Ok(self.start_scrub(mode)),
            Command::PauseScrub => Ok(self.pause_scrub()),
            Command::StopScrub => Ok(self.stop_scrub()),
            Command::AcceptData => Ok(self.accept_data()),
            Command::Set(setting) => Ok(self.set(setting)),
            Command::Rename(name) => Ok(self.rename(name)),
            Command::ResetCounters(member) => Ok(self.reset_counters(member)),
        };
        match result {
            Ok(changed) => self
                .persist
                .waiters
                .push(SuperblockWaiter::Done(id, changed)),
            Err(error) => self.out.done(id, Err(error)),
        }
    }

    /// Another member may have lost its content since its superblocks were written: then the level
    /// may not survive this. So the array reads all superblocks first.
    fn look_and_put_out(&mut self, id: CommandId, device: DeviceId) {
        self.look_at_superblocks();
        let waiter = SuperblockWaiter::PutOut(id, device);
        self.persist.waiters.push(waiter);
    }

    /// All superblocks were read. Nothing is left to be done where the device has gone meanwhile:
    /// that it has is durable.
    pub(crate) fn put_out(&mut self, id: CommandId, device: DeviceId) {
        if !self.table.has(device) {
            return self.out.done(id, Ok(Changed::No));
        }
        if let Err(error) = self.preflight(&Command::FailDevice(device)) {
            return self.out.done(id, Err(error));
        }
        self.member_out(device, OutCause::Asked);
        // The table of a member that was replaced stays what it was; the answer waits for one.
        self.persist.touch();
        let waiter = SuperblockWaiter::Done(id, Changed::Yes);
        self.persist.waiters.push(waiter);
    }

    /// Unlike a member that an administrator puts out, these have nothing to be kept for.
    fn devices_emptied(&mut self, devices: &[DeviceId]) -> Result<Changed, CommandError> {
        for device in devices {
            self.member_out(*device, OutCause::Emptied);
        }
        match self.stage {
            Stage::Failed => Err(CommandError::NotServing),
            _ => Ok(Changed::Yes),
        }
    }

    /// They are read, and not written: what they show decides.
    fn look_at_superblocks(&mut self) -> Changed {
        self.persist.look();
        Changed::Yes
    }

    fn remove_slot(&mut self, slot: Slot) -> Changed {
        let since = self.sb.epoch.next();
        if !self.table.clear(slot.index(), since) {
            return Changed::No;
        }
        self.persist.stale.retain(|(s, _)| *s != slot);
        let (slot, device, cause) = (Some(slot), None, None);
        self.out.event(EventKind::Removed {
            slot,
            device,
            cause,
        });
        self.membership_changed();
        Changed::Yes
    }

    fn remove_spare(&mut self, device: DeviceId) -> Changed {
        self.give_up_spare(device);
        let (slot, device, cause) = (None, Some(device), None);
        self.out.event(EventKind::Removed {
            slot,
            device,
            cause,
        });
        Changed::Yes
    }

    fn add(&mut self, new: NewDevice) -> Result<Changed, CommandError> {
        if self.table.has(new.device) {
            return Ok(Changed::No);
        }
        self.admit(&new)?;
        self.table.add_spare(new.device);
        self.out.event(EventKind::SpareAdded { device: new.device });
        // A device that is added now is meant to be used.
        self.table.wait_no_longer();
        self.persist.touch();
        Ok(Changed::Yes)
    }

    fn replace(&mut self, slot: Slot, new: NewDevice) -> Result<Changed, CommandError> {
        self.admit(&new)?;
        self.join(slot.index(), new.device);
        Ok(Changed::Yes)
    }

    /// A spare takes the place of a member that still serves.
    fn replace_by_spare(&mut self, slot: Slot, spare: DeviceId) -> Changed {
        let waits = self
            .table
            .spares()
            .iter()
            .position(|&device| device == spare);
        self.give_spare(slot.index(), waits.expect("preflight found it"));
        Changed::Yes
    }

    fn rename(&mut self, to: ArrayName) -> Changed {
        if to == self.sb.name {
            return Changed::No;
        }
        let from = std::mem::replace(&mut self.sb.name, to.clone());
        self.out.event(EventKind::Renamed { from, to });
        self.persist.touch();
        Changed::Yes
    }

    fn set(&mut self, setting: Setting) -> Changed {
        let before = (self.sb.settings, self.sb.write_hole, self.sb.carved);
        match setting {
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
                let before = std::mem::replace(&mut self.sb.write_hole, policy);
                self.persist.view_due |= before != policy;
            }
        }
        if before == (self.sb.settings, self.sb.write_hole, self.sb.carved) {
            return Changed::No;
        }
        // A pause was meant by what was set before.
        self.jobs.end_pause();
        self.persist.touch();
        Changed::Yes
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
    }

    /// Stopping: closes regions and waits for steps. True when the last superblocks are to be
    /// written.
    pub(crate) fn drive_stop(&mut self) -> bool {
        let busy = self.jobs.busy() || self.persist.view_due || self.reshape.is_some();
        if self.stage != Stage::Stopping || busy {
            return false;
        }
        let quiet = self.unreadable.quiet() && self.cover_quiet();
        if !(self.close_all() && quiet && self.flushed_for_stop()) {
            return false;
        }
        self.stage = Stage::Closing;
        // Operations that still wait for a region are told that the array stops.
        self.persist.seal(self.sb.generation);
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
        self.persist.touch();
        true
    }
}
