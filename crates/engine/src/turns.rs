//! The order in which a rebuild writes its target: stripes of a step are read several at a time,
//! and written one after the other.
//!
//! A drive that is written from its first strip to its last, each strip whole and a multiple of its
//! write granularity, has nothing to read back or to move.
//!
//! Invariants:
//! * A stripe waits for none but those before it whose reads are in flight, and those come back by
//!   themselves: it never waits for a buffer, a lock, a region or a view, so nobody waits for
//!   another in a circle.
//! * No request waits for the buffers of a stripe that only awaits its turn.
//!
//! Deliberately absent: order between shards; their stripes take turns on the target, and a drive
//! sees them within the few that are at work.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::StepKind;
use crate::shard::{Shard, Starved};
use crate::stripe::Phase;
use crate::units::StripeNo;
use crate::work::WorkKind;

/// Stripes of a rebuild whose reads are in flight, and those that are read and await their turn.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    reading: BTreeSet<StripeNo>,
    waiting: BTreeMap<StripeNo, usize>,
}

impl Shard {
    fn rebuilds(&self, key: usize) -> bool {
        let kind = &self.ops[key].work.kind;
        let rebuild = StepKind::Rebuild;
        matches!(kind, WorkKind::Step { kind, .. } if *kind == rebuild)
    }

    /// The reads of an operation begin.
    pub(crate) fn enter_turn(&mut self, key: usize) {
        if self.rebuilds(key) {
            self.turns.reading.insert(self.ops[key].stripe);
        }
    }

    /// They are all there, or failed.
    pub(crate) fn leave_turn(&mut self, key: usize) {
        self.turns.reading.remove(&self.ops[key].stripe);
    }

    /// True if it has to wait for stripes before it.
    pub(crate) fn awaits_turn(&mut self, key: usize) -> bool {
        let stripe = self.ops[key].stripe;
        let behind = self
            .turns
            .reading
            .first()
            .is_some_and(|first| *first < stripe);
        let waits = behind && self.rebuilds(key) && !self.others_starve();
        if waits {
            self.ops[key].phase = Phase::Turn;
            self.turns.waiting.insert(stripe, key);
        }
        waits
    }

    /// Lets those go on whose turn has come.
    pub(crate) fn take_turns(&mut self) {
        while let Some((&stripe, _)) = self.turns.waiting.first_key_value() {
            if self
                .turns
                .reading
                .first()
                .is_some_and(|first| *first < stripe)
            {
                return;
            }
            let (_, key) = self.turns.waiting.pop_first().expect("it is the first");
            self.compute(key);
        }
    }

    /// Somebody else than a rebuild waits for buffers. A stripe of its own comes later in the order
    /// than those that have theirs.
    fn others_starve(&self) -> bool {
        let other = |starved: &Starved| match starved {
            Starved::Read(_) => true,
            Starved::Op(key) => !self.rebuilds(*key),
        };
        self.starved.iter().any(other)
    }

    /// Somebody waits for buffers: nobody keeps any for the sake of order. True if somebody did.
    pub(crate) fn give_up_turns(&mut self) -> bool {
        if self.turns.waiting.is_empty() || !self.others_starve() {
            return false;
        }
        for key in std::mem::take(&mut self.turns.waiting).into_values() {
            self.compute(key);
        }
        true
    }
}
