//! The order in which a rebuild writes its target: stripes are read several at a time, on every
//! shard, and written one after the other.
//!
//! A drive that is written from its first strip to its last, each strip whole and a multiple of its
//! write granularity, has nothing to read back or to move.
//!
//! One write token goes from stripe to stripe, and so from shard to shard. A stripe that has the
//! token and has been read begins its writes and passes the token on; a stripe that is still being
//! read keeps it until then.
//!
//! Invariants:
//! * There is one token. It comes to every stripe of every step of a rebuild, in their order, also
//!   to those that need it no more.
//! * A stripe that waits for the token blocks no other operation: where a request waits for the
//!   stripe or for buffers, or an earlier stripe waits for buffers, or the region is given back,
//!   the stripe is written out of order.
//!
//! Deliberately absent: order among writes in flight. What a drive makes of them is its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::proto::{ShardOutput, StepKind, WriteToken};
use crate::shard::op::kind::Phase;
use crate::shard::{Shard, Starved};
use crate::units::{ShardNo, StripeNo, Time};

/// A stripe of a step.
type Place = (u64, StripeNo);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct WriteOrder {
    /// The token, if it is here.
    here: Option<WriteToken>,
    /// Steps that the token has not reached yet, as far as this shard knows: from their first
    /// stripe.
    begun: VecDeque<WriteToken>,
    /// The last step that was begun here.
    last: u64,
    /// Stripes that are at work and not written yet, and those of them that are read.
    at_work: BTreeSet<Place>,
    waiting: BTreeMap<Place, usize>,
}

impl WriteOrder {
    /// The token begins on the first shard, before all steps.
    pub(crate) fn new(index: ShardNo) -> WriteOrder {
        let here = (index == ShardNo(0)).then_some(WriteToken {
            step: 0,
            next: StripeNo(0),
            end: StripeNo(0),
        });
        WriteOrder {
            here,
            ..WriteOrder::default()
        }
    }

    /// A step of a rebuild begins here.
    pub(crate) fn begin(&mut self, step: WriteToken) {
        self.last = step.step;
        self.begun.push_back(step);
    }

    /// The token is past all steps up to this.
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

    /// Operations that wait for the turn.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = usize> {
        self.waiting.values().copied()
    }

    /// It is being written, or over.
    pub(crate) fn leave(&mut self, step: u64, stripe: StripeNo) {
        self.at_work.remove(&(step, stripe));
    }
}

impl Shard {
    /// The token comes from another shard.
    pub fn write_token(&mut self, now: Time, token: WriteToken) {
        self.out.set_now(now);
        self.write_order.forget(token.step);
        self.write_order.here = Some(token);
    }

    fn place(&self, key: usize) -> Option<Place> {
        let op = &self.ops[key];
        let step = op.kind.step()?;
        (step.kind == StepKind::Rebuild).then_some((step.step, op.stripe))
    }

    /// True if the stripe must wait for the token.
    pub(crate) fn awaits_token(&mut self, key: usize) -> bool {
        let Some(place) = self.place(key) else {
            return false;
        };
        let token = self.write_order.here.as_ref();
        let has_it = token.is_some_and(|token| (token.step, token.next) == place);
        let waits = self.write_order.at_work.contains(&place) && !has_it && !self.must_yield(place);
        if waits {
            let plan = self.ops[key].phase.plan();
            self.ops[key].phase = Phase::AwaitToken(plan);
            self.write_order.waiting.insert(place, key);
        }
        waits
    }

    /// Continues the stripe that the token has reached, or passes the token on. True if either was
    /// done.
    pub(crate) fn pass_token(&mut self) -> bool {
        let Some(token) = &self.write_order.here else {
            return false;
        };
        if token.next >= token.end {
            let step = token.step;
            self.write_order.forget(step);
            let next = self.write_order.begun.pop_front();
            let goes_on = next.is_some();
            self.write_order.here = next.or(self.write_order.here.take());
            return goes_on;
        }
        let place = (token.step, token.next);
        let owner = self.map.geometry().shard(token.next, self.map.count());
        if owner != self.map.index() {
            let token = self.write_order.here.take().expect("it is here");
            self.out.put(ShardOutput::WriteToken(owner, token));
            return true;
        }
        if self.write_order.last < place.0 || self.still_to_begin(place) {
            return false;
        }
        if self.write_order.at_work.contains(&place) {
            let read = self.write_order.waiting.remove(&place);
            read.inspect(|key| self.compute(*key));
            return read.is_some();
        }
        let token = self.write_order.here.as_mut().expect("it is here");
        token.next.0 += 1;
        true
    }

    /// Another operation needs what the stripe holds while it waits.
    fn must_yield(&self, place: Place) -> bool {
        let first = |starved: &Starved| match starved {
            Starved::Read(_) => true,
            Starved::Op(key) => self.place(*key).is_none_or(|other| other < place),
        };
        let left = self.gates[self.map.region(place.1).0 as usize].waits_for_users();
        let wanted = left || self.map.closed().is_some() || self.is_pressed(place.1);
        wanted || self.starved.iter().any(first)
    }

    /// Releases one waiting stripe that blocks another operation. True if there was one.
    pub(crate) fn release_waiting(&mut self) -> bool {
        let mut waiting = self.write_order.waiting.keys();
        let Some(place) = waiting.find(|place| self.must_yield(**place)).copied() else {
            return false;
        };
        let key = self.write_order.waiting.remove(&place).expect("it waits");
        self.compute(key);
        true
    }
}
