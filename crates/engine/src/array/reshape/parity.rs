//! Parities go again: their members become spares, the level is the one that has as many fewer.
//!
//! A parity that lies on a member of its own, the last of the slots, was added to the array, or
//! data has moved to where it is so (`migrate`): nothing has to be written without it. It goes in
//! two steps, each of them durable, both at rest (`reshape`):
//! 1. its member is a spare, and the slot is empty: a change of members like any other. A crash
//!    from here on finds the old level with a member missing and a spare, onto which it is rebuilt;
//! 2. the slot is no more, in an epoch of the shape. This reverses what is done to add a parity,
//!    which begins with an empty slot.
//!
//! In one step, a table of the old shape with the member in sync and one of the new shape could be
//! found beside each other, and the member be what decides between them.
//!
//! Where parities rotate with data, data moves first. Such a move is over when the parities are
//! gone, not before: until (2) the superblocks record it, so the next start knows what is left to
//! do. Slots that everything but parity has left are not rebuilt meanwhile, and not waited for.
//!
//! An array of one data column is a mirror in all but name, because all its parities are copies. It
//! becomes one at rest, with nothing written but superblocks; its writes have no records from then
//! on.
//!
//! Invariants:
//! * No slot goes that has a member.
//! * A member that becomes a spare gets the table after the members that stay
//!   (`metadata::superblocks`).
//! * The last parity goes only if the command says so.
//!
//! Deliberately absent: groups, which have no parities of their own members.

use crate::array::Array;
use crate::array::reshape::{Change, Step};
use crate::canary::{self, Canary};
use crate::proto::*;
use crate::provision::limits;
use crate::units::*;

impl Array {
    /// Begins to let parities go; [`ArrayOutput::Done`] follows.
    pub(crate) fn drop_parity(&mut self, id: CommandId, fewer: Fewer) {
        match fewer.parities > self.geometry.fixed {
            true => self.restripe(id, leaving(fewer)),
            false => self.begin_reshape(id, Change::DropParity(fewer)),
        }
    }

    pub(crate) fn may_drop_parity(&self, fewer: Fewer) -> Result<(), CommandError> {
        if fewer.parities > self.geometry.fixed {
            return self.may_restripe(&leaving(fewer));
        }
        self.may_reshape()?;
        limits::may_drop(&self.superblock(), fewer)
    }

    pub(crate) fn may_become_mirror(&self) -> Result<(), CommandError> {
        self.may_reshape()?;
        limits::mirror(&self.superblock()).map(|_| ())
    }

    /// (1) The members of the last slots become spares.
    pub(crate) fn leave_slots(&mut self, fewer: usize) -> Step {
        let since = self.sb.epoch.next();
        let slots = self.table.slots().len();
        for at in slots - fewer..slots {
            // One that data has left may have been lost since.
            self.table.vacate(at, since);
        }
        self.note_absence();
        self.membership_changed();
        Step::Leaving
    }

    /// (2) The slots are no more.
    pub(crate) fn lose_slots(&mut self, fewer: Fewer) {
        let narrow = limits::narrower(&self.superblock(), fewer);
        let mut narrow = narrow.expect("looked at when it was asked for");
        narrow.moving = None;
        self.take_superblock(narrow);
        self.table.drop_slots();
        let left = self.table.slots().len();
        self.persist.stale.retain(|(slot, _)| slot.index() < left);
        self.forced.retain(|slot| slot.index() < left);
    }

    /// Everything has moved to where the parities that go lie alone.
    pub(crate) fn all_has_left(&mut self) -> Option<Step> {
        let fewer = self.geometry.to_go()?;
        if canary::hit(Canary::LoweringForgotten) {
            return None;
        }
        Some(self.leave_slots(fewer))
    }
}

/// The shape from which so many parities can go.
fn leaving(fewer: Fewer) -> NewShape {
    NewShape {
        devices: Vec::new(),
        data: DataShape {
            fewer,
            ..DataShape::default()
        },
    }
}
