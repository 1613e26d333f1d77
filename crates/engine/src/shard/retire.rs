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
//! Deliberately absent: how an operation goes on then (`op::records`); blocks that are rewritten
//! with what they held (a record tells of that, too); and what the array itself writes, at rest,
//! behind a new base (`array::metadata::log_coverage`).

use std::ops::Range;

use crate::canary::{self, Canary};
use crate::shard::log_writer::Logs;
use crate::shard::outbox::Outbox;
use crate::shard::stripe_map::StripeMap;
use crate::units::*;

/// An operation that waits until records are retired.
pub(crate) struct Retiring {
    op: usize,
    /// The slots with logs that may have some.
    group: Range<usize>,
    /// They have numbers below this.
    before: u64,
}

impl Retiring {
    /// All records so far that may tell of the stripe.
    pub(crate) fn new(op: usize, stripe: StripeNo, logs: &Logs, map: &StripeMap) -> Retiring {
        let slot = map.geometry().slot(stripe, 0);
        Retiring {
            op,
            group: map.geometry().log_group(slot),
            before: logs.next(),
        }
    }

    pub(crate) fn operation(&self) -> usize {
        self.op
    }

    /// They are retired, whichever members of the group are lost. Where nothing is logged,
    /// superblocks say durably that none counts.
    pub(crate) fn is_over(&self, logs: &Logs, map: &StripeMap) -> bool {
        let never = canary::hit(Canary::NeverRetired);
        !map.view().logging || (logs.published(&self.group, map) >= self.before && !never)
    }

    /// Publishes it as soon as it is so.
    pub(crate) fn publish(&self, logs: &mut Logs, map: &StripeMap, out: &mut Outbox) {
        logs.publish_below(&self.group, self.before, map, out);
    }
}
