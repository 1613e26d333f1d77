//! The order in which a rebuild writes its target: stripes are read several at a time, on every
//! shard, and written one after the other.
//!
//! A drive that is written from its first strip to its last, each strip whole and a multiple of its
//! write granularity, has nothing to read back or to move.
//!
//! One turn goes from stripe to stripe, and from shard to shard with them. Who has it and has read
//! its stripe begins to write, and gives it on; who has not, keeps it until then.
//!
//! Invariants:
//! * There is one turn. It comes to every stripe of every step of a rebuild, in their order, also
//!   to those that need it no more.
//! * A stripe waits for its turn with nothing that others need: where a request waits for the
//!   stripe, or for buffers, or a stripe before it does for buffers, or its region is given back,
//!   it is written out of order.
//!
//! Deliberately absent: order among writes in flight. What a drive makes of them is its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::proto::{ShardOutput, StepKind, Turn};
use crate::shard::op::Phase;
use crate::shard::op::work::WorkKind;
use crate::shard::{Shard, Starved};
use crate::units::{ShardNo, StripeNo, Time};

/// A stripe of a step.
type Place = (u64, StripeNo);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The turn, if it is here.
    here: Option<Turn>,
    /// Steps that the turn has not come to yet, as far as is known here: from their first stripe.
    begun: VecDeque<Turn>,
    /// The last step that was begun here.
    last: u64,
    /// Stripes that are at work and not written yet, and those of them that are read.
    at_work: BTreeSet<Place>,
    waiting: BTreeMap<Place, usize>,
}

impl Turns {
    /// The turn begins on the first shard, before all steps.
    pub(crate) fn new(index: ShardNo) -> Turns {
        let here = (index == ShardNo(0)).then_some(Turn {
            step: 0,
            next: StripeNo(0),
            end: StripeNo(0),
        });
        Turns {
            here,
            ..Turns::default()
        }
    }

    /// A step of a rebuild begins here.
    pub(crate) fn begin(&mut self, step: Turn) {
        self.last = step.step;
        self.begun.push_back(step);
    }

    /// The turn is past all steps up to this.
    fn forget(&mut self, step: u64) {
        while self
            .begun
            .pop_front_if(|begun| begun.step <= step)
            .is_some()
        {}
    }

    /// A stripe of it is at work.
    pub(crate) fn enter(&mut self, step: u64, stripe: StripeNo) {
        self.at_work.insert((step, stripe));
    }

    /// It is being written, or over.
    pub(crate) fn leave(&mut self, step: u64, stripe: StripeNo) {
        self.at_work.remove(&(step, stripe));
    }
}

impl Shard {
    /// The turn comes from another shard.
    pub fn turn(&mut self, now: Time, turn: Turn) {
        self.now = now;
        self.turns.forget(turn.step);
        self.turns.here = Some(turn);
    }

    fn place(&self, key: usize) -> Option<Place> {
        let op = &self.ops[key];
        let rebuild = StepKind::Rebuild;
        match &op.work.kind {
            WorkKind::Step { step, kind, .. } if *kind == rebuild => Some((*step, op.stripe)),
            _ => None,
        }
    }

    /// True if it has to wait for its turn.
    pub(crate) fn awaits_turn(&mut self, key: usize) -> bool {
        let Some(place) = self.place(key) else {
            return false;
        };
        let turn = self.turns.here.as_ref();
        let has_it = turn.is_some_and(|turn| (turn.step, turn.next) == place);
        let waits = self.turns.at_work.contains(&place) && !has_it && !self.in_need(place);
        if waits {
            self.ops[key].phase = Phase::Turn;
            self.turns.waiting.insert(place, key);
        }
        waits
    }

    /// Lets the stripe go on to which the turn has come, or gives it on. True if it did.
    pub(crate) fn take_turns(&mut self) -> bool {
        let Some(turn) = &self.turns.here else {
            return false;
        };
        if turn.next >= turn.end {
            let step = turn.step;
            self.turns.forget(step);
            let next = self.turns.begun.pop_front();
            let goes_on = next.is_some();
            self.turns.here = next.or(self.turns.here.take());
            return goes_on;
        }
        let place = (turn.step, turn.next);
        let owner = self.geometry.shard(turn.next, self.count);
        if owner != self.index {
            let turn = self.turns.here.take().expect("it is here");
            self.out.push_back(ShardOutput::Turn(owner, turn));
            return true;
        }
        if self.turns.last < place.0 || self.still_to_begin(place) {
            return false;
        }
        if self.turns.at_work.contains(&place) {
            let read = self.turns.waiting.remove(&place);
            read.inspect(|key| self.compute(*key));
            return read.is_some();
        }
        let turn = self.turns.here.as_mut().expect("it is here");
        turn.next.0 += 1;
        true
    }

    /// Somebody needs what the stripe holds while it waits.
    fn in_need(&self, place: Place) -> bool {
        let first = |starved: &Starved| match starved {
            Starved::Read(_) => true,
            Starved::Op(key) => self.place(*key).is_none_or(|other| other < place),
        };
        let left = self.gates[self.region(place.1).0 as usize].waits_for_users();
        let wanted = left || self.closed().is_some() || self.is_pressed(place.1);
        wanted || self.starved.iter().any(first)
    }

    /// Nobody waits for its turn whom somebody else waits for. True if somebody did.
    pub(crate) fn give_up_turns(&mut self) -> bool {
        let mut waiting = self.turns.waiting.keys();
        let Some(place) = waiting.find(|place| self.in_need(**place)).copied() else {
            return false;
        };
        let key = self.turns.waiting.remove(&place).expect("it waits");
        self.compute(key);
        true
    }
}
