//! The array's leave to shards to read stripes of each other (`shard::read::remote`).
//!
//! Invariant: no view that lacks a member or has one more in sync is published, and no block is told to be
//! unreadable, while a shard has leave.

use crate::array::{Array, Stage};
use crate::canary::{self, Canary};
use crate::proto::*;

/// What shards were told of visits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Visiting {
    /// All are at home.
    #[default]
    Nobody,
    Given,
    /// So many have not said that they are at home.
    Called(u16),
}

impl Array {
    /// Nobody visits, nor will before that is told.
    pub(crate) fn at_home(&self) -> bool {
        self.visiting == Visiting::Nobody || canary::hit(Canary::ViewBeforeHome)
    }

    /// Nothing is about to change that visitors build on.
    fn may_be_visited(&self) -> bool {
        let moving = canary::hit(Canary::VisitsWhileMoving);
        let rests = self.reshape.is_none() && self.geometry.old_shape.is_none();
        self.shards > 1
            && self.stage == Stage::Serving
            && (!self.persist.view_due || canary::hit(Canary::ViewBeforeHome))
            && self.unreadable.agreed()
            && (rests || moving)
    }

    /// Calls shards home, or gives them leave.
    pub(crate) fn drive_visits(&mut self) {
        match (self.visiting, self.may_be_visited()) {
            (Visiting::Given, false) => {
                self.visiting = Visiting::Called(self.shards);
                self.tell_all(&ToShard::Home);
            }
            // Views that tell of progress only come and go meanwhile.
            (Visiting::Nobody, true) if self.applied(self.view.version) => {
                self.visiting = Visiting::Given;
                self.tell_all(&ToShard::Visit);
            }
            _ => {}
        }
    }

    /// A shard is at home.
    pub(crate) fn shard_at_home(&mut self) {
        if let Visiting::Called(left) = self.visiting {
            self.visiting = match left {
                1 => Visiting::Nobody,
                left => Visiting::Called(left - 1),
            };
        }
    }
}
