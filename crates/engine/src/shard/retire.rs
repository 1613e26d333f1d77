//! Changes in place that have no record in the stripe log: what a scrub repairs, what a resync
//! makes true, and blocks that are given up.
//!
//! A record tells of a stripe as its write left it. Replayed after such a change it would bring
//! back what has been mended, or compute what is lost from what no longer lies there. So records of
//! the stripe are retired first, durably: the operation has its range alone, hence every operation
//! that wrote there before is over, and once all that have lower numbers are over as well, a batch
//! that only publishes says so on the members of the group. It needs no record of its own: torn, a
//! repair leaves a lie what it was, and a block that is being given up is on the list by then.
//!
//! Invariants:
//! * Nothing but a logged write changes what a record may tell of, in place, before more members
//!   than may still be lost have durably published that the record is retired.
//! * An operation that waits holds no number, and operations that have one wait for no range: none
//!   waits for ever.
//!
//! Deliberately absent: blocks that are rewritten with what they held (a record tells of that,
//! too); and what the array itself writes, at rest, behind a new base
//! (`array::metadata::log_coverage`).

use std::ops::Range;

use crate::canary::{self, Canary};
use crate::proto::*;
use crate::shard::Shard;
use crate::shard::op::kind::Phase;

/// An operation that waits until records are retired.
pub(crate) struct Retiring {
    op: usize,
    /// The slots with logs that may have some.
    group: Range<usize>,
    /// They have numbers below this.
    before: u64,
}

impl Retiring {
    pub(crate) fn operation(&self) -> usize {
        self.op
    }
}

impl Shard {
    /// True if no record can count that tells of the operation's run. Otherwise the operation
    /// waits, and goes on by [`Shard::records_retired`].
    pub(crate) fn outlives_records(&mut self, key: usize) -> bool {
        let before = self.logs.next_number();
        let slot = self.map.geometry().slot(self.ops[key].stripe, 0);
        let group = self.map.geometry().log_group(slot);
        if self.retired(&group, before) || canary::hit(Canary::RecordsOutlived) {
            return true;
        }
        self.ops[key].phase = Phase::Retiring;
        self.logs.wait_to_retire(Retiring {
            op: key,
            group,
            before,
        });
        false
    }

    /// Puts in place what the operation has computed, once no record tells of what lay there.
    pub(crate) fn change_in_place(&mut self, key: usize) {
        if self.outlives_records(key) {
            self.put_in_place(key);
        }
    }

    /// Records below `before` are retired, whichever members of the group are lost. Where nothing
    /// is logged, superblocks say durably that none counts.
    fn retired(&self, group: &Range<usize>, before: u64) -> bool {
        let never = canary::hit(Canary::NeverRetired);
        !self.map.view().logging || (self.published(group) >= before && !never)
    }

    /// Goes on with what waited; true if there was something.
    pub(crate) fn drive_retiring(&mut self) -> bool {
        let mut waiting = self.logs.take_retiring();
        let all = waiting.len();
        waiting.retain(|waits| {
            if self.map.view().failed || self.retired(&waits.group, waits.before) {
                self.records_retired(waits.op);
                return false;
            }
            self.publish_below(&waits.group, waits.before);
            true
        });
        let gone_on = waiting.len() < all;
        for waits in waiting {
            self.logs.wait_to_retire(waits);
        }
        gone_on
    }

    fn records_retired(&mut self, key: usize) {
        if self.map.view().failed {
            self.finish_op(key, Some(RequestError::Failed));
        } else if self.ops[key].salvages() {
            self.salvage_next(key);
        } else {
            self.ops[key].phase = Phase::writing();
            self.put_in_place(key);
            self.end_without_writes(key);
        }
    }
}
