//! Parities that were added go again: their members become spares, the level is what it was before.
//!
//! A parity that was added lies on a member of its own, the last of the slots, and nothing else has to
//! be written without it. It goes in two steps, each of them durable, both at rest (`reshape`):
//! 1. its member is a spare, and the slot is empty: a change of members like any other. A crash from
//!    here on finds the old level with a member missing and a spare, onto which it is rebuilt;
//! 2. the slot is no more, in an epoch of the shape. The same in the other direction as when a parity
//!    is added, whose slot is empty at first.
//!
//! In one step, a table of the old shape with the member in sync and one of the new shape could be
//! found beside each other, and the member be what decides between them.
//!
//! Invariants:
//! * No slot goes that has a member.
//! * What becomes a spare hears of it after the members that stay (`persist`).
//!
//! Deliberately absent: parities that rotate, which share their members with data; and the last one.

use strake_format::*;

use crate::array::{Array, SlotUse};
use crate::event::*;
use crate::geometry::Geometry;
use crate::limits;
use crate::reshape::{Change, Step};
use crate::units::*;

use std::sync::Arc;

impl Array {
    /// Begins to let parities go; `None`: [`ArrayOutput::Done`] follows.
    pub(crate) fn drop_parity(&mut self, id: CommandId, fewer: usize) -> Option<CommandError> {
        match self.may_drop_parity(fewer) {
            Ok(()) => {
                self.begin_reshape(id, Change::DropParity(fewer));
                None
            }
            Err(error) => Some(error),
        }
    }

    pub(crate) fn may_drop_parity(&self, fewer: usize) -> Result<(), CommandError> {
        self.may_reshape()?;
        limits::may_drop(&self.sb, fewer)
    }

    /// (1) The members of the last slots become spares.
    pub(crate) fn leave_slots(&mut self, fewer: usize) -> Step {
        let since = self.sb.epoch.next();
        let nobody = SlotRecord {
            member: MemberUuid([0; 16]),
            state: SlotState::Missing,
            since,
            kept: false,
        };
        for at in self.slots.len() - fewer..self.slots.len() {
            let left = std::mem::take(&mut self.slots[at]);
            let device = left.current.expect("the array is in order");
            self.spares.push(device);
            self.sb.spares.push(self.members[&device].member);
            self.sb.slots[at] = nobody;
        }
        self.note_absence();
        self.membership_changed();
        Step::Leaving
    }

    /// (2) The slots are no more.
    pub(crate) fn lose_slots(&mut self, fewer: usize) {
        let narrow = limits::narrower(&self.sb, fewer);
        self.sb = narrow.expect("looked at when it was asked for");
        self.geometry = Arc::new(Geometry::of(&self.sb));
        let left = self.slots.len() - fewer;
        let gone = self.slots.drain(left..);
        assert!(
            gone.into_iter()
                .all(|slot: SlotUse| slot.current.or(slot.incoming).is_none()),
            "no slot goes that has a member"
        );
        self.persist.stale.retain(|slot| slot.index() < left);
        self.forced.retain(|slot| slot.index() < left);
    }
}
