//! What the array tells by events: counted, held against what the world knows, and acted upon where
//! a user would.
//!
//! Deliberately absent: what becomes of scrubs' findings (`fault::silent`) and of losses
//! (`lost_blocks`).

use strake_engine::Decision;
use strake_engine::event::*;
use strake_engine::units::{DeviceId, Slot};

use crate::world::{SimResult, World};

impl World {
    pub(crate) fn hear(&mut self, event: Event) -> SimResult {
        self.note_scrub(&event.kind);
        self.hear_of_job(&event.kind)?;
        match event.kind {
            EventKind::LogReplayed {
                records, stripes, ..
            } => {
                self.stats.log_replays += u64::from(records > 0);
                self.stats.records_replayed += records;
                self.stats.stripes_replayed += stripes;
            }
            EventKind::Returned { .. } => self.stats.returns += 1,
            EventKind::Rebuilt { partial, .. } => {
                self.stats.partial_rebuilds += u64::from(partial);
                self.accept_some(60)?;
                if self.plan.lowers {
                    self.command(Command::DropParity(Fewer::of(1)));
                }
            }
            EventKind::MemberFailing { slot, .. } if self.plan.elsewhere => {
                self.answer_failing(slot);
            }
            EventKind::MemberOut { device, cause, .. } => self.member_out(device, cause)?,
            EventKind::Unreadable { offset, len } => self.given_up(offset, len)?,
            EventKind::Rewritten { offset, len } => {
                let size = self.geometry.block;
                self.stats.rewritten_blocks += len / size;
                let blocks = offset / size..(offset + len) / size;
                self.expected.unlisting.extend(blocks);
            }
            // Only by force, and only what was never acknowledged.
            EventKind::GivenUp { offset, len } => {
                let size = self.geometry.block;
                for block in offset / size..(offset + len) / size {
                    if !self.expected.torn_blocks.contains(&block) {
                        return self.failure(format!("block {block} was given up"));
                    }
                    self.oracle.undefine(block, 1);
                }
            }
            EventKind::Repaired { .. } => self.stats.repairs += 1,
            EventKind::Decided {
                offset,
                len,
                cause: Decision::Accepted,
            } => self.is_accepted(offset, len),
            EventKind::LevelLowered { .. } => {
                self.stats.lowered += 1;
                self.admin.reshaped_at = Some(self.stats.events);
            }
            EventKind::Grown { .. } | EventKind::LevelRaised { .. } => {
                self.admin.reshaped_at = Some(self.stats.events);
            }
            EventKind::MemberSlow { .. } => self.stats.slow_members += 1,
            EventKind::Started { unclean: true } if self.expected.clean => {
                return self.failure("the array was stopped cleanly and does not know it");
            }
            _ => {}
        }
        self.note(format!("event {:?}", event.kind));
        match event.kind {
            EventKind::JobFinished { .. } => self.audit_decay(),
            _ => Ok(()),
        }
    }

    fn hear_of_job(&mut self, event: &EventKind) -> SimResult {
        match *event {
            EventKind::JobFinished {
                kind, inconsistent, ..
            } => match kind {
                JobKind::Rebuild => self.stats.rebuilds += 1,
                JobKind::Resync => self.stats.resyncs += 1,
                JobKind::Init => self.stats.inits += 1,
                JobKind::Scrub => {
                    self.stats.scrubs += 1;
                    if inconsistent > 0 && self.expected.scrub_must_agree {
                        self.note(format!("{event:?}"));
                        return self
                            .failure(format!("a scrub found {inconsistent} stripes inconsistent"));
                    }
                }
                _ => {}
            },
            EventKind::JobStarted {
                kind: JobKind::Accept,
                from_bytes,
            } => self.may_be_accepted(from_bytes == 0),
            EventKind::JobStopped {
                kind: JobKind::Accept,
                ..
            } => self.may_be_accepted(false),
            EventKind::JobStopped {
                kind: JobKind::Restripe,
                cause: StopCause::Inconsistent,
            } if !self.is_corrupt() && self.decay.is_empty() => {
                return self.failure("rows that nobody lied about stopped a move");
            }
            _ => {}
        }
        Ok(())
    }

    fn member_out(&mut self, device: Option<DeviceId>, cause: OutCause) -> SimResult {
        self.judge_loss(device, cause)?;
        self.judge_verdict(device, cause)?;
        self.expected.leaving.extend(device);
        if let Some(device) = device {
            self.pasts.member_left(self.drive_of(device));
        }
        self.stats.losses += 1;
        self.expected.last_loss = self.oracle.moment();
        self.doubt_torn_blocks();
        self.note_lost_blocks();
        Ok(())
    }

    /// A member has too many read errors, and the array may have no spare of its own: there is one
    /// elsewhere, or none.
    pub(crate) fn answer_failing(&mut self, slot: Slot) {
        let members = self.array().status().members;
        let wants = members
            .iter()
            .any(|m| m.slot == Some(slot) && m.wants_spare);
        let has = wants && !self.chance.faults.one_in(4);
        match has.then(|| self.fresh()).flatten() {
            Some(new) => {
                let device = new.device;
                let id = self.command(Command::Replace(slot, new));
                self.admin.offered.insert(id, vec![device]);
            }
            None if wants => drop(self.command(Command::SparesElsewhere(false))),
            None => {}
        }
    }
}
