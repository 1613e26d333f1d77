//! The read lease: the array permits shards to read stripes of each other (`shard::read::remote`).
//!
//! Invariant: while a shard has a lease, the array publishes no view that removes a member or adds
//! one in sync, and reports no block as unreadable.

use crate::array::{Array, Stage};
use crate::canary::{self, Canary};
use crate::proto::*;

/// Which shards have a read lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LeaseState {
    /// No shard.
    #[default]
    Returned,
    Granted,
    /// The lease is revoked, and so many shards have not returned it yet.
    Revoking(u16),
}

impl LeaseState {
    /// No shard has a lease, nor gets one before the array grants it.
    pub(crate) fn returned(self) -> bool {
        self == LeaseState::Returned || canary::hit(Canary::ViewBeforeHome)
    }
}

impl Array {
    /// Nothing is about to change that remote reads rely on.
    fn may_grant_lease(&self) -> bool {
        let moving = canary::hit(Canary::VisitsWhileMoving);
        let rests = self.reshape.is_none() && self.geometry.old_shape.is_none();
        self.shards > 1
            && self.stage == Stage::Serving
            && (!self.persist.view_due || canary::hit(Canary::ViewBeforeHome))
            && self.unreadable.agreed()
            && (rests || moving)
    }

    /// Revokes the lease, or grants it.
    pub(crate) fn drive_lease(&mut self) {
        match (self.lease, self.may_grant_lease()) {
            (LeaseState::Granted, false) => {
                self.lease = LeaseState::Revoking(self.shards);
                self.out.message_all(&ToShard::RevokeLease);
            }
            // Views that only report progress may go out under the lease.
            (LeaseState::Returned, true) if self.persist.applied(self.view.version) => {
                self.lease = LeaseState::Granted;
                self.out.message_all(&ToShard::GrantLease);
            }
            _ => {}
        }
    }

    /// A shard returned its lease.
    pub(crate) fn shard_returned_lease(&mut self) {
        if let LeaseState::Revoking(left) = self.lease {
            self.lease = match left {
                1 => LeaseState::Returned,
                left => LeaseState::Revoking(left - 1),
            };
        }
    }
}
