//! Sequential streams: writes that follow one another wait a little for those to come, so that a
//! stripe is written whole.
//!
//! A write that continues where one of the latest left off, several times in a row, belongs to a
//! stream. Work of a stream starts once the stream has left the stripe and the shard's next one
//! (requests overtake one another on their way here), or at half of all bytes that are being written:
//! as long as the other half is on its way its answers bring the next requests.
//!
//! Invariants:
//! * Nothing waits while nothing is at work: at queue depth 1, or when a stream ends, writes go at
//!   once.
//! * While the shard hears of anything nothing waits longer than a write that does not wait takes,
//!   twice: what is on its way is answered by then, and its answers bring the next requests.
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
/// The longest that work waits for more, nanoseconds: as many times what writes take lately,
const PATIENCE_WRITES: u64 = 2;
/// but at least this long, for requests that come as soon as there are CPUs for it,
const PATIENCE_LEAST_NS: u64 = 500_000;
/// and at most this long: a member that does not answer is no reason to wait.
const PATIENCE_MOST_NS: u64 = 100_000_000;
/// Of how many writes it is the mean, about.
const WRITES_SEEN: u64 = 8;

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
    /// What writes of streams take, from when they begin, nanoseconds.
    write_ns: u64,
    /// Stripes where work waits for more, and until when.
    waiting: VecDeque<(StripeNo, Time)>,
}

/// Bytes of a band, and from a band to the next one of the same shard.
fn band_and_stride(geometry: &Geometry, shards: u16, offset: u64) -> (u64, u64) {
    let shape = geometry.shape_at(offset);
    let band = shape.k as u64 * shape.band * geometry.strip;
    (band, u64::from(shards) * band)
}

impl Streams {
    /// A write begins; `shards` own stripes in turn.
    pub(crate) fn begin(&mut self, geometry: &Geometry, shards: u16, offset: u64, len: u64) {
        self.unanswered += len;
        self.clock += 1;
        let (band, stride) = band_and_stride(geometry, shards, offset);
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
    fn expects(&self, geometry: &Geometry, shards: u16, stripe: StripeNo) -> bool {
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
        let (_, stride) = band_and_stride(geometry, shards, bytes.start);
        flowing.any(|front| bytes.start < front.at && front.at < bytes.end + stride)
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

    /// A write of a stream is over, so long after it began.
    pub(crate) fn took(&mut self, ns: u64) {
        let ns = ns.min(PATIENCE_MOST_NS);
        self.write_ns = (self.write_ns * (WRITES_SEEN - 1) + ns) / WRITES_SEEN;
    }

    fn patience_ns(&self) -> u64 {
        let ns = PATIENCE_WRITES * self.write_ns;
        ns.clamp(PATIENCE_LEAST_NS, PATIENCE_MOST_NS)
    }

    /// Work on this stripe waits for more since now, or does not wait.
    pub(crate) fn note_waiting(&mut self, stripe: StripeNo, waits: bool, now: Time) {
        let known = self.waiting.iter().position(|(s, _)| *s == stripe);
        match (waits, known) {
            (true, None) => {
                let until = Time(now.0.saturating_add(self.patience_ns()));
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
        if alone || !self.streams.expects(&self.geometry, self.count, stripe) {
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
