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
//! Deliberately absent: which stripe must not wait (`op::gate`), and order among writes in flight.
//! What a drive makes of them is its own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::proto::{ShardOutput, WriteToken};
use crate::shard::job::Steps;
use crate::shard::outbox::Outbox;
use crate::shard::stripe_map::StripeMap;
use crate::units::{ShardNo, StripeNo};

/// A stripe of a step.
pub(crate) type Place = (u64, StripeNo);

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

    /// The token comes from another shard.
    pub(crate) fn take_token(&mut self, token: WriteToken) {
        self.forget(token.step);
        self.here = Some(token);
    }

    /// A stripe that is to be written only when the token comes to it, and has not got it.
    pub(crate) fn is_early(&self, place: Place) -> bool {
        let token = self.here.as_ref();
        let has_it = token.is_some_and(|token| (token.step, token.next) == place);
        self.at_work.contains(&place) && !has_it
    }

    /// The stripe waits for the token.
    pub(crate) fn wait(&mut self, place: Place, op: usize) {
        self.waiting.insert(place, op);
    }

    /// Stripes that wait for the token, in its order.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
        self.waiting.keys().copied()
    }

    /// A stripe does not wait any more.
    pub(crate) fn release(&mut self, place: Place) -> Option<usize> {
        self.waiting.remove(&place)
    }

    /// Passes the token on, if it is here and its stripe needs it no more.
    pub(crate) fn pass(&mut self, steps: &Steps, map: &StripeMap, out: &mut Outbox) -> Token {
        let Some(token) = &mut self.here else {
            return Token::Stays;
        };
        let place = (token.step, token.next);
        if token.next >= token.end {
            self.forget(place.0);
            let next = self.begun.pop_front();
            let goes_on = next.is_some();
            self.here = next.or(self.here.take());
            return if goes_on { Token::Moves } else { Token::Stays };
        }
        if !map.is_ours(token.next) {
            let owner = map.geometry().shard(token.next, map.count());
            let token = self.here.take().expect("it is here");
            out.put(ShardOutput::WriteToken(owner, token));
            return Token::Moves;
        }
        if self.last < place.0 || steps.still_to_begin(place) {
            return Token::Stays;
        }
        if self.at_work.contains(&place) {
            let read = self.waiting.remove(&place);
            return read.map_or(Token::Stays, Token::Reaches);
        }
        token.next.0 += 1;
        Token::Moves
    }
}

/// What becomes of the token.
pub(crate) enum Token {
    Stays,
    Moves,
    /// It has come to the stripe of this operation, which has waited for it.
    Reaches(usize),
}
