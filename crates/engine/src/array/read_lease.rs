//! The array's leave to shards to read stripes of each other (`shard::read::remote`).
//!
//! Invariant: no view that lacks a member or has one more in sync is published, and no block is told to be
//! unreadable, while a shard has leave.

use crate::array::{Array, Stage};
use crate::canary::{self, Canary};
use crate::proto::*;

/// What shards were told of visits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// All are at home.
    #[default]
    Returned,
    Granted,
    /// So many have not said that they are at home.
    Revoking(u16),
}

impl Array {
    /// Nobody visits, nor will before that is told.
    pub(crate) fn lease_returned(&self) -> bool {
        self.lease == LeaseState::Returned || canary::hit(Canary::ViewBeforeHome)
    }

    /// Nothing is about to change that visitors build on.
    fn may_grant_lease(&self) -> bool {
        let moving = canary::hit(Canary::VisitsWhileMoving);
        let rests = self.reshape.is_none() && self.geometry.old_shape.is_none();
        self.shards > 1
            && self.stage == Stage::Serving
            && (!self.persist.view_due || canary::hit(Canary::ViewBeforeHome))
            && self.unreadable.agreed()
            && (rests || moving)
    }

    /// Calls shards home, or gives them leave.
    pub(crate) fn drive_lease(&mut self) {
        match (self.lease, self.may_grant_lease()) {
            (LeaseState::Granted, false) => {
                self.lease = LeaseState::Revoking(self.shards);
                self.tell_all(&ToShard::RevokeLease);
            }
            // Views that tell of progress only come and go meanwhile.
            (LeaseState::Returned, true) if self.applied(self.view.version) => {
                self.lease = LeaseState::Granted;
                self.tell_all(&ToShard::GrantLease);
            }
            _ => {}
        }
    }

    /// A shard is at home.
    pub(crate) fn shard_returned_lease(&mut self) {
        if let LeaseState::Revoking(left) = self.lease {
            self.lease = match left {
                1 => LeaseState::Returned,
                left => LeaseState::Revoking(left - 1),
            };
        }
    }
}
