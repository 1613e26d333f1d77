//! Sequential streams: writes that follow one another wait a little for those to come, so that a
//! stripe is written whole.
//!
//! A write that continues where one of the latest left off, several times in a row, belongs to a
//! stream. Work of a stream starts once the stream has left the stripe and the shard's next one
//! (requests overtake one another on their way here), or at half of all bytes of the stream that
//! are being written: as long as the other half is on its way its answers bring the next requests.
//!
//! Invariants:
//! * Nothing waits while nothing is at work, nor for a stream of which one request at a time is
//!   under way, whatever else there is.
//! * Nothing waits longer than twice what a write takes: what is on its way is answered by then,
//!   and its answers bring the next requests.
//! * Waiting changes nothing but the time: work keeps its place in the order of its stripe.
//!
//! Deliberately absent: how writes are put together, and that nothing waits while nothing is at
//! work (see `op::queue`).

use crate::geometry::Geometry;
use crate::shard::stripe_map::StripeMap;
use crate::units::*;

/// Streams that are followed at once.
const FRONTS: usize = 8;
/// A front's score: so much more for a write that goes on, one less for one that falls behind it,
/// which was overtaken or belongs to no stream.
const GOES_ON: u32 = 2;
/// The score from which on it is a stream: that of three writes that follow one another.
const STREAM: u32 = 3 * GOES_ON;
/// The highest score.
const SCORE_MOST: u32 = 16 * GOES_ON;
/// What lies within so many stripes of a shard belongs together.
const NEAR: u64 = 8;
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
    score: u32,
    /// When it was seen first and last, in writes.
    born: u64,
    seen: u64,
    /// Its writes that are not answered, and their bytes.
    requests: u64,
    bytes: u64,
}

impl Front {
    fn flows(&self) -> bool {
        self.score >= STREAM
    }
}

/// A write, and the front that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    front: usize,
    born: u64,
    bytes: u64,
}

/// A stripe where work waits for more, and until when.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    stripe: StripeNo,
    until: Time,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    fronts: [Front; FRONTS],
    clock: u64,
    /// The write that is being split belongs to a stream.
    flowing: bool,
    /// What writes of streams take, from when they begin, nanoseconds.
    write_ns: u64,
    waiting: Vec<Waiting>,
}

/// Bytes of a band, and from a band to the next one of the same shard.
fn band_and_stride(geometry: &Geometry, shards: u16, offset: u64) -> (u64, u64) {
    let shape = geometry.shape_at(offset);
    let band = shape.k as u64 * shape.band * geometry.strip;
    (band, u64::from(shards) * band)
}

impl Streams {
    /// A write begins; `shards` own stripes in turn.
    pub(crate) fn begin(
        &mut self,
        geometry: &Geometry,
        shards: u16,
        offset: u64,
        len: u64,
    ) -> Flow {
        self.clock += 1;
        let (band, stride) = band_and_stride(geometry, shards, offset);
        // Behind the end of a band comes the next one of this shard.
        let end = offset + len;
        let next = match end.is_multiple_of(band) {
            true => end - band + stride,
            false => end,
        };
        // Requests of one stream overtake one another on the way here.
        let near = |front: &Front| front.seen > 0 && front.at.abs_diff(offset) <= stride;
        let at = match self.fronts.iter().position(near) {
            Some(at) => {
                let front = &mut self.fronts[at];
                front.score = match next > front.at {
                    true => (front.score + GOES_ON).min(SCORE_MOST),
                    false => front.score.saturating_sub(1),
                };
                at
            }
            None => {
                let by_age = |&at: &usize| self.fronts[at].seen;
                let oldest = (0..FRONTS).min_by_key(by_age).expect("there are fronts");
                self.fronts[oldest] = Front {
                    born: self.clock,
                    ..Front::default()
                };
                oldest
            }
        };
        let front = &mut self.fronts[at];
        (front.at, front.seen) = (front.at.max(next), self.clock);
        (front.requests, front.bytes) = (front.requests + 1, front.bytes + len);
        self.flowing = front.flows();
        Flow {
            front: at,
            born: front.born,
            bytes: len,
        }
    }

    /// The streams that have more to come in this stripe.
    fn expected(
        &self,
        geometry: &Geometry,
        shards: u16,
        stripe: StripeNo,
    ) -> impl Iterator<Item = &Front> {
        let mut flowing = self.fronts.iter().filter(|front| front.flows()).peekable();
        // The case of every random write.
        let range = flowing.peek().map(|_| {
            let bytes = geometry.band_range(stripe);
            let (_, stride) = band_and_stride(geometry, shards, bytes.start);
            bytes.start..bytes.end + stride
        });
        let here = move |front: &&Front| {
            (range.as_ref()).is_some_and(|range| range.start < front.at && front.at < range.end)
        };
        flowing.filter(here)
    }

    /// Bytes of writes under way around this stripe: what overtakes others by far has a front of
    /// its own.
    fn near(&self, geometry: &Geometry, shards: u16, stripe: StripeNo) -> u64 {
        let start = geometry.band_range(stripe).start;
        let (_, stride) = band_and_stride(geometry, shards, start);
        let near = |front: &&Front| front.at.abs_diff(start) <= NEAR * stride;
        self.fronts
            .iter()
            .filter(near)
            .map(|front| front.bytes)
            .sum()
    }

    /// The write is split.
    pub(crate) fn end(&mut self) {
        self.flowing = false;
    }

    /// What is being split belongs to a stream.
    pub(crate) fn flowing(&self) -> bool {
        self.flowing
    }

    /// A write was answered.
    pub(crate) fn answered(&mut self, flow: Flow) {
        let front = &mut self.fronts[flow.front];
        if front.born == flow.born {
            (front.requests, front.bytes) = (front.requests - 1, front.bytes - flow.bytes);
        }
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
        let known = self
            .waiting
            .iter()
            .position(|waiting| waiting.stripe == stripe);
        match (waits, known) {
            (true, None) => {
                let until = Time(now.0.saturating_add(self.patience_ns()));
                self.waiting.push(Waiting { stripe, until });
            }
            (false, Some(at)) => {
                self.waiting.remove(at);
            }
            _ => {}
        }
    }

    /// Work on this stripe waits for more.
    pub(crate) fn waits(&self, stripe: StripeNo) -> bool {
        self.waiting.iter().any(|waiting| waiting.stripe == stripe)
    }

    /// Some work waits for more.
    pub(crate) fn any_waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How many bytes of a stream are worth waiting for in this stripe, which takes `whole`.
    pub(crate) fn worth_waiting_for(&self, stripe: StripeNo, whole: u64, map: &StripeMap) -> u64 {
        let (geometry, count) = (map.geometry(), map.count());
        // What is a stream's only request does not wait for itself.
        let mut expected = self.expected(geometry, count, stripe);
        match expected.any(|front| front.requests > 1) {
            true => whole.min(self.near(geometry, count, stripe) / 2),
            false => 0,
        }
    }

    /// A stripe where work has waited long enough or has nothing to wait for any more; any, if it
    /// `must_go`.
    pub(crate) fn next_to_go(
        &mut self,
        now: Time,
        must_go: bool,
        map: &StripeMap,
    ) -> Option<StripeNo> {
        let waits = |waiting: &Waiting| {
            let mut expected = self.expected(map.geometry(), map.count(), waiting.stripe);
            waiting.until > now && !must_go && expected.next().is_some()
        };
        let at = self.waiting.iter().position(|waiting| !waits(waiting))?;
        Some(self.waiting.remove(at).stripe)
    }

    /// When the first has waited long enough.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.waiting.iter().map(|waiting| waiting.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_format::Level;

    const STRIPE: u64 = 4 * 4096;

    fn geometry() -> Geometry {
        Geometry {
            level: Level::Raid5,
            groups: 1,
            per_row: 1,
            width: 5,
            k: 4,
            m: 1,
            fixed: 0,
            strip: 4096,
            block: 512,
            band: 1,
            rows: 4096,
            region_rows: 64,
            old_shape: None,
        }
    }

    /// So many writes of `len`, one after the other from `at` on, none answered.
    fn stream(streams: &mut Streams, at: u64, len: u64, count: u64) -> Vec<Flow> {
        let geometry = geometry();
        let write = |i| streams.begin(&geometry, 1, at + i * len, len);
        (0..count).map(write).collect()
    }

    fn depths(streams: &Streams, stripe: u64) -> Vec<u64> {
        let geometry = geometry();
        let expected = streams.expected(&geometry, 1, StripeNo(stripe));
        expected.map(|front| front.requests).collect()
    }

    #[test]
    fn a_stripe_is_expected_to_be_filled_until_the_stream_has_left_the_next_one_too() {
        let mut streams = Streams::default();
        stream(&mut streams, 0, 4096, 3);
        assert_eq!(depths(&streams, 0), []);
        stream(&mut streams, 3 * 4096, 4096, 2);
        assert_eq!(depths(&streams, 0), [5]);
        assert_eq!(depths(&streams, 1), [5]);
        assert_eq!(depths(&streams, 2), []);
        stream(&mut streams, 5 * 4096, 4096, 3);
        assert_eq!(depths(&streams, 0), []);
        assert_eq!(depths(&streams, 1), [8]);
    }

    /// A log that is written one request at a time beside a deep stream.
    #[test]
    fn each_stream_counts_its_own_requests() {
        let mut streams = Streams::default();
        let bulk = stream(&mut streams, 0, STRIPE, 32);
        let log = 1000 * STRIPE;
        for i in 0..8 {
            for flow in stream(&mut streams, log + i * 512, 512, 1) {
                streams.answered(flow);
            }
        }
        stream(&mut streams, log + 8 * 512, 512, 1);
        assert_eq!(depths(&streams, 1000), [1]);
        let near = |stripe| streams.near(&geometry(), 1, StripeNo(stripe));
        assert_eq!((near(1000), near(32)), (512, 32 * STRIPE));
        bulk.into_iter().for_each(|flow| streams.answered(flow));
        assert_eq!(streams.near(&geometry(), 1, StripeNo(32)), 0);
    }

    #[test]
    fn writes_that_go_to_and_fro_in_a_small_area_are_no_stream() {
        let mut streams = Streams::default();
        for i in 0..1000 {
            stream(&mut streams, i * 7 % 13 * 512, 512, 1);
        }
        assert!(!streams.flowing());
        assert_eq!(depths(&streams, 0), []);
    }

    #[test]
    fn the_longest_wait_follows_what_writes_take_and_has_bounds() {
        let mut streams = Streams::default();
        assert_eq!(streams.patience_ns(), PATIENCE_LEAST_NS);
        (0..100).for_each(|_| streams.took(3_000_000));
        assert!((5_900_000..=6_000_000).contains(&streams.patience_ns()));
        (0..100).for_each(|_| streams.took(u64::MAX));
        assert_eq!(streams.patience_ns(), PATIENCE_MOST_NS);
    }
}
