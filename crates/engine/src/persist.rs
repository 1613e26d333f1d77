//! Superblocks become durable: one flight at a time, first copies everywhere, then second copies.
//!
//! Invariants:
//! * At every moment at least one copy on each member is whole: the second is written only when the first
//!   is durable.
//! * Waiters run, and views are published, only when nothing newer than what is durable is wanted.

use strake_format::*;

use crate::array::{Array, Purpose, Stage};
use crate::buffers::{Buf, Slice};
use crate::event::*;
use crate::units::*;

/// What waits for the superblocks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum After {
    Done(CommandId, Changed),
    Release(DeviceId),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Persist {
    /// Grows with every change of the table.
    wanted: u64,
    durable: u64,
    flight: Option<Flight>,
    /// The membership differs from what shards know.
    pub(crate) view_due: bool,
    pub(crate) after: Vec<After>,
    /// Slots whose member was found but had missed writes.
    pub(crate) stale: Vec<Slot>,
}

#[derive(Debug)]
struct Flight {
    version: u64,
    copy: usize,
    pending: usize,
    image: Superblock,
}

impl Persist {
    pub(crate) fn new(after: Vec<After>, stale: Vec<Slot>) -> Persist {
        Persist { after, stale, ..Persist::default() }
    }
}

impl Array {
    /// The table or a setting changed: it must become durable.
    pub(crate) fn touch(&mut self) {
        self.persist.wanted += 1;
    }

    /// The membership changed: new epoch, durable first, then a new view.
    pub(crate) fn membership_changed(&mut self) {
        self.sb.epoch = self.sb.epoch.next();
        self.persist.view_due = true;
        self.touch();
    }

    pub(crate) fn drive_persist(&mut self) {
        if self.persist.flight.is_some() || matches!(self.stage, Stage::Failed | Stage::Stopped) {
            return;
        }
        if self.persist.wanted > self.persist.durable {
            self.sb.generation = self.sb.generation.next();
            self.persist.flight = Some(Flight {
                version: self.persist.wanted,
                copy: 0,
                pending: 0,
                image: self.sb.clone(),
            });
            self.write_copies();
            return;
        }
        if std::mem::take(&mut self.persist.view_due) {
            self.publish();
        }
        for after in std::mem::take(&mut self.persist.after) {
            match after {
                After::Done(id, changed) => self.done(id, Ok(changed)),
                After::Release(device) => self.out.push_back(ArrayOutput::Release(device)),
            }
        }
        self.durable_now();
    }

    /// Nothing newer than what is durable is wanted: stages that waited for this go on.
    fn durable_now(&mut self) {
        match self.stage {
            Stage::Starting if self.map.quiet() => {
                self.stage = Stage::Serving;
                self.out.push_back(ArrayOutput::Started);
                self.event(EventKind::Started { unclean: self.unclean });
            }
            Stage::Closing => {
                self.stage = Stage::Stopped;
                self.event(EventKind::Stopped);
                if let Some(id) = self.stop.take() {
                    self.done(id, Ok(Changed::Yes));
                }
                self.out.push_back(ArrayOutput::Stopped);
            }
            _ => {}
        }
    }

    fn write_copies(&mut self) {
        let flight = self.persist.flight.as_ref().expect("a flight was begun");
        let (copy, image) = (flight.copy, flight.image.clone());
        let mut pending = 0;
        let devices: Vec<DeviceId> = self.live().into_iter().chain(self.spares.clone()).collect();
        for device in devices {
            let member = &self.members[&device];
            let (fua, member_uuid) = (member.info.volatile_cache, member.member);
            let role = self.slot_of(device).map_or(Role::Spare, Role::Slot);
            // While a slot has a member in sync, its replacement is still a spare to the table.
            let replacing = |slot: &Slot| self.slots[usize::from(slot.0)].current.is_some();
            let role = match role {
                Role::Slot(slot)
                    if self.slots[usize::from(slot.0)].incoming == Some(device)
                        && replacing(&slot) =>
                {
                    Role::Spare
                }
                role => role,
            };
            let sb = Superblock { member: member_uuid, role, layout: member.layout, ..image.clone() };
            let offset = Layout::superblock_offsets(member.layout.device_bytes)[copy];
            let data = Slice::new(Buf::from_bytes(&sb.encode(offset)[..]), 0, SUPERBLOCK_BYTES);
            let kind = IoKind::Write { offset, data, fua };
            self.io(device, Purpose::Superblock { device }, kind);
            pending += 1;
        }
        let flight = self.persist.flight.as_mut().expect("a flight was begun");
        flight.pending = pending;
        if pending == 0 {
            self.copies_written();
        }
    }

    pub(crate) fn superblock_written(&mut self) {
        let Some(flight) = &mut self.persist.flight else { return };
        flight.pending -= 1;
        if flight.pending == 0 {
            self.copies_written();
        }
    }

    fn copies_written(&mut self) {
        if matches!(self.stage, Stage::Failed | Stage::Stopped) {
            self.persist.flight = None;
            return;
        }
        let flight = self.persist.flight.as_mut().expect("its last write came back");
        if flight.copy == 0 {
            flight.copy = 1;
            self.write_copies();
        } else {
            self.persist.durable = flight.version;
            self.persist.flight = None;
        }
    }
}
