//! Sequential streams: writes that follow one another wait a little for those to come, so that a
//! stripe is written whole.
//!
//! A write that continues where one of the latest left off, several times in a row, belongs to a
//! stream. Work of a stream starts once the stream has left the stripe, or at half of all bytes
//! that are being written: as long as the other half is on its way its answers bring the next
//! requests.
//!
//! Invariants:
//! * Nothing waits while nothing is at work: at queue depth 1, or when a stream ends, writes go at
//!   once.
//! * Nothing waits longer than [`PATIENCE_NS`] while the shard hears of anything.
//! * Waiting changes nothing but the time: work keeps its place in the order of its stripe.
//!
//! Deliberately absent: how writes are put together (see `order`).

use std::collections::VecDeque;

use crate::geometry::Geometry;
use crate::shard::Shard;
use crate::units::*;

/// Streams that are followed at once.
const FRONTS: usize = 8;
/// Writes that must have followed one another.
const HITS: u32 = 3;
/// The longest that work waits for more, nanoseconds: a few times what a full-stripe write takes.
const PATIENCE_NS: u64 = 500_000;

/// Where a stream stands.
#[derive(Clone, Copy, Debug, Default)]
struct Front {
    /// Byte of the array that is to come next.
    at: u64,
    hits: u32,
    /// When it was seen last, in writes.
    seen: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    fronts: [Front; FRONTS],
    clock: u64,
    /// Bytes of writes that are not answered.
    unanswered: u64,
    /// The write that is being split belongs to a stream.
    flowing: bool,
    /// Stripes where work waits for more, and until when.
    waiting: VecDeque<(StripeNo, Time)>,
}

impl Streams {
    /// A write begins; `shards` own stripes in turn.
    pub(crate) fn begin(&mut self, geometry: &Geometry, shards: u16, offset: u64, len: u64) {
        self.unanswered += len;
        self.clock += 1;
        let shape = geometry.shape_at(offset);
        let band = shape.k as u64 * shape.band * geometry.strip;
        let stride = u64::from(shards) * band;
        // Behind the end of a band comes the next one of this shard.
        let end = offset + len;
        let next = match end.is_multiple_of(band) {
            true => end - band + stride,
            false => end,
        };
        // Requests of one stream overtake one another on the way here.
        let near = |front: &&mut Front| front.seen > 0 && front.at.abs_diff(offset) <= stride;
        let clock = self.clock;
        if let Some(front) = self.fronts.iter_mut().find(near) {
            front.at = front.at.max(next);
            front.hits += 1;
            front.seen = clock;
            self.flowing = front.hits >= HITS;
            return;
        }
        let oldest = self.fronts.iter_mut().min_by_key(|front| front.seen);
        *oldest.expect("there are fronts") = Front {
            at: next,
            hits: 0,
            seen: clock,
        };
    }

    /// More is to come in this stripe.
    fn expects(&self, geometry: &Geometry, stripe: StripeNo) -> bool {
        let mut flowing = self
            .fronts
            .iter()
            .filter(|front| front.hits >= HITS)
            .peekable();
        // The case of every random write.
        if flowing.peek().is_none() {
            return false;
        }
        let bytes = geometry.band_range(stripe);
        flowing.any(|front| bytes.start < front.at && front.at < bytes.end)
    }

    /// The write is split.
    pub(crate) fn end(&mut self) {
        self.flowing = false;
    }

    /// What is being split belongs to a stream.
    pub(crate) fn flowing(&self) -> bool {
        self.flowing
    }

    /// A write of so many bytes was answered.
    pub(crate) fn answered(&mut self, bytes: u64) {
        self.unanswered -= bytes;
    }

    /// Work on this stripe waits for more since now, or does not wait.
    pub(crate) fn note_waiting(&mut self, stripe: StripeNo, waits: bool, now: Time) {
        let known = self.waiting.iter().position(|(s, _)| *s == stripe);
        match (waits, known) {
            (true, None) => {
                let until = Time(now.0.saturating_add(PATIENCE_NS));
                self.waiting.push_back((stripe, until));
            }
            (false, Some(at)) => {
                self.waiting.remove(at);
            }
            _ => {}
        }
    }
}

impl Shard {
    /// Nothing else is at work, so nothing may wait.
    fn must_go(&self) -> bool {
        (self.ops.is_empty() && self.ios.is_empty()) || self.closed().is_some()
    }

    /// How many bytes of a stream are worth waiting for in this stripe.
    pub(crate) fn worth_waiting_for(&self, stripe: StripeNo) -> u64 {
        // Without parity writes are not gathered (see `order`): there is nothing to wait for.
        let alone = self.geometry.m == 0 || self.must_go();
        if alone || !self.streams.expects(&self.geometry, stripe) {
            return 0;
        }
        let whole = self.run_bytes() * self.shape(stripe).k as u64;
        whole.min(self.streams.unanswered / 2)
    }

    /// Starts what has waited long enough, or all that waits if nothing else is at work.
    pub(crate) fn let_go(&mut self) -> bool {
        let all = self.must_go();
        let now = self.now;
        let mut any = false;
        while let Some((stripe, until)) = self.streams.waiting.front().copied()
            && (all || until <= now)
        {
            self.streams.waiting.pop_front();
            self.pump(stripe, true);
            any = true;
        }
        any
    }
}
