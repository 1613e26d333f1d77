//! What the block device's user asks for: swarms of requests.
//!
//! Invariant: a world draws its weights once, so that some worlds only write small, some only
//! discard, and so on: rare mixtures are more likely than with one average load.
//!
//! Deliberately absent: content (the oracle numbers it) and time (the world spaces requests).

use crate::plan::Focus;
use crate::prng::Prng;

/// A request, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// What.
    pub kind: AskKind,
    /// First block.
    pub first: u64,
    /// Blocks.
    pub count: u64,
    /// With FUA.
    pub fua: bool,
}

impl Ask {
    /// One without FUA.
    pub fn new(kind: AskKind, first: u64, count: u64) -> Ask {
        Ask {
            kind,
            first,
            count,
            fua: false,
        }
    }
}

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskKind {
    /// Read.
    Read,
    /// Write new content.
    Write,
    /// Flush.
    Flush,
    /// Discard.
    Discard,
    /// Write zeroes.
    WriteZeroes,
}

impl AskKind {
    /// Blocks may be others after it.
    pub fn changes(self) -> bool {
        !matches!(self, AskKind::Read | AskKind::Flush)
    }
}

/// What the workload must know of the array, in blocks.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The whole array.
    pub total: u64,
    /// A strip.
    pub strip: u64,
    /// The data of a stripe.
    pub stripe: u64,
    /// A region.
    pub region: u64,
}

/// The weights of one world.
#[derive(Clone, Debug)]
pub struct Swarm {
    kinds: [u32; 5],
    sizes: [u32; 5],
    places: [u32; 4],
    fua_percent: u64,
    /// Requests may overlap writes in flight.
    pub overlapping: bool,
    /// Requests in flight at most.
    pub depth: usize,
    /// Longest usual pause between requests, nanoseconds.
    pub pause_ns: u64,
    hot: u64,
    /// Only the first part of the array is written, so that regions stay unwritten.
    span: u64,
}

impl Swarm {
    /// Draws the weights.
    pub fn draw(rng: &mut Prng, shape: &Shape) -> Swarm {
        let weight = |rng: &mut Prng, usual: u32| match rng.below(4) {
            0 => 0,
            1 => usual * 4,
            _ => usual,
        };
        let mut swarm = Swarm {
            kinds: [
                weight(rng, 8),
                12,
                weight(rng, 2),
                weight(rng, 2),
                weight(rng, 1),
            ],
            sizes: [
                weight(rng, 6),
                weight(rng, 4),
                weight(rng, 4),
                weight(rng, 3),
                1,
            ],
            places: [4, weight(rng, 4), weight(rng, 4), weight(rng, 2)],
            fua_percent: rng.pick(&[0, 0, 10, 50]),
            overlapping: rng.percent(30),
            depth: rng.pick(&[1, 2, 4, 8, 16]),
            pause_ns: rng.pick(&[0, 5_000, 50_000, 500_000]),
            hot: rng.below(shape.total / shape.stripe),
            span: shape.total,
        };
        if rng.percent(40) {
            swarm.span = (shape.total / 2).max(shape.stripe);
            swarm.hot %= swarm.span / shape.stripe;
        }
        swarm
    }

    /// Draws the weights of a world with this focus.
    pub fn draw_for(focus: Focus, rng: &mut Prng, shape: &Shape) -> Swarm {
        let mut swarm = Swarm::draw(rng, shape);
        match focus {
            Focus::Wide => {}
            Focus::Replay => swarm.broaden(),
            Focus::Ring => swarm.heat(rng, shape),
            Focus::Deep => swarm.crowd(rng, shape),
            Focus::Return | Focus::Join => swarm.linger(rng, shape),
        }
        swarm
    }

    /// Mostly writes of several strips, so that a crash leaves mixtures.
    fn broaden(&mut self) {
        self.kinds = [1, 12, 1, 0, 0];
        self.sizes = [1, 2, 6, 3, 1];
        (self.depth, self.pause_ns) = (self.depth.max(4), self.pause_ns.min(50_000));
    }

    /// Mostly partial writes of a few stripes, many at a time, so that records of the same blocks
    /// follow each other and wait for room.
    fn heat(&mut self, rng: &mut Prng, shape: &Shape) {
        self.kinds = [1, 20, 1, 0, 0];
        self.sizes = [2, 4, 4, 1, 0];
        self.places = [1, 0, 0, 0];
        self.span = (shape.stripe * rng.range(1, 4)).min(shape.total);
        self.overlapping = true;
        (self.depth, self.pause_ns) = (rng.pick(&[8, 16]), 0);
    }

    /// Very many small writes at a time of parts of a few stripes, so that they wait for each other
    /// and become one operation, and operations wait for the log.
    fn crowd(&mut self, rng: &mut Prng, shape: &Shape) {
        self.kinds = [1, 30, 1, 0, 0];
        self.sizes = [4, 6, 2, 1, 0];
        self.places = [1, 0, 0, 0];
        self.span = (shape.stripe * rng.pick(&[2, 4, 8, 16])).min(shape.total);
        self.overlapping = true;
        (self.depth, self.pause_ns) = (rng.pick(&[48, 96, 192]), 0);
    }

    /// A few writes of one stripe or two, each of them over before the next.
    fn linger(&mut self, rng: &mut Prng, shape: &Shape) {
        self.kinds = [0, 20, 1, 0, 0];
        self.sizes = [2, 2, 2, 0, 0];
        self.places = [1, 0, 0, 0];
        self.span = (shape.stripe * rng.range(1, 2)).min(shape.total);
        (self.depth, self.pause_ns) = (1, 5_000_000);
    }

    /// Draws a request; `cursor` is where a sequential stream stands.
    pub fn ask(&self, rng: &mut Prng, shape: &Shape, cursor: &mut u64) -> Ask {
        const KINDS: [AskKind; 5] = [
            AskKind::Read,
            AskKind::Write,
            AskKind::Flush,
            AskKind::Discard,
            AskKind::WriteZeroes,
        ];
        let kind = KINDS[rng.weighted(&self.kinds)];
        if kind == AskKind::Flush {
            return Ask::new(kind, 0, 0);
        }
        let fua =
            matches!(kind, AskKind::Write | AskKind::WriteZeroes) && rng.percent(self.fua_percent);
        if kind == AskKind::Discard && rng.percent(40) {
            let regions = shape.total.div_ceil(shape.region);
            let first = rng.below(regions) * shape.region;
            let count = (shape.region * rng.range(1, 2)).min(shape.total - first);
            return Ask {
                kind,
                first,
                count,
                fua,
            };
        }
        let count = self.size(rng, shape).min(self.span);
        let last = self.span - count;
        let first = match rng.weighted(&self.places) {
            0 => rng.below(last + 1),
            1 => {
                let first = if *cursor > last { 0 } else { *cursor };
                *cursor = first + count;
                first
            }
            2 => (self.hot * shape.stripe + rng.below(shape.stripe)).min(last),
            _ => {
                let at = rng.below(last + 1);
                at - at % shape.stripe
            }
        };
        Ask {
            kind,
            first,
            count,
            fua,
        }
    }

    fn size(&self, rng: &mut Prng, shape: &Shape) -> u64 {
        match rng.weighted(&self.sizes) {
            0 => 1,
            1 => rng.range(1, shape.strip),
            2 => shape.strip * rng.range(1, (shape.stripe / shape.strip).min(4)),
            3 => shape.stripe,
            _ => rng.range(1, (shape.stripe * 3).min(96 * shape.strip)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Purpose;

    #[test]
    fn every_request_lies_inside_the_array() {
        for seed in 0..200 {
            let mut rng = Prng::new(seed, Purpose::Workload);
            let shape = Shape {
                total: 40 * 24,
                strip: 8,
                stripe: 24,
                region: 24 * 7,
            };
            let swarm = Swarm::draw(&mut rng, &shape);
            let mut cursor = 0;
            for _ in 0..200 {
                let ask = swarm.ask(&mut rng, &shape, &mut cursor);
                assert!(ask.first + ask.count <= shape.total);
                assert_eq!(ask.count == 0, ask.kind == AskKind::Flush);
            }
        }
    }
}
