//! A load's requests: where the next one goes, and what its requests reached.

use hdrhistogram::Histogram;
use strake_foresight::load::Load;

/// Chance of places and kinds (SplitMix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Where a request goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) is_read: bool,
    pub(crate) offset: u64,
}

/// What was counted.
#[derive(Clone)]
pub(crate) struct Tally {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    /// Nanoseconds, with two digits.
    pub(crate) latency: Histogram<u32>,
}

impl Default for Tally {
    fn default() -> Tally {
        let mut latency = Histogram::new(2).expect("two digits are allowed");
        latency.auto(true);
        Tally {
            reads: 0,
            writes: 0,
            latency,
        }
    }
}

/// See the module.
pub(crate) struct Source {
    pub(crate) load: Load,
    chance: Chance,
    /// Places of one request that each job has, and the next one of each.
    share: u64,
    next: Vec<u64>,
    /// When a load with a limit may go on, nanoseconds.
    pub(crate) free_at: f64,
    pub(crate) tally: Tally,
    /// Bytes of requests that were answered, counted or not.
    pub(crate) moved: u64,
}

impl Source {
    /// A load over `size` bytes.
    pub(crate) fn new(load: Load, size: u64, seed: u64) -> Source {
        let places = size / load.bytes;
        Source {
            share: (places / u64::from(load.jobs)).max(1),
            next: vec![0; load.jobs as usize],
            chance: Chance(seed),
            free_at: 0.0,
            tally: Tally::default(),
            moved: 0,
            load,
        }
    }

    /// The next request of a lane.
    pub(crate) fn next(&mut self, lane: u32, size: u64) -> Place {
        let load = &self.load;
        let percent = u64::from(load.read_percent);
        let is_read = match percent {
            0 => false,
            100 => true,
            percent => self.chance.below(100) < percent,
        };
        let places = size / load.bytes;
        let place = if load.sequential {
            let job = lane % load.jobs;
            let next = &mut self.next[job as usize];
            let place = u64::from(job) * self.share + *next;
            *next = (*next + 1) % self.share;
            place % places
        } else {
            self.chance.below(places)
        };
        Place {
            is_read,
            offset: place * load.bytes,
        }
    }

    /// When a request of this load may begin, at `now` or later.
    pub(crate) fn begin_at(&mut self, now: u64) -> u64 {
        let Some(limit) = self.load.limit else {
            return now;
        };
        let at = self.free_at.max(now as f64);
        self.free_at = at + self.load.bytes as f64 / limit * 1e9;
        at as u64
    }

    pub(crate) fn answered(&mut self, is_read: bool, ns: u64) {
        match is_read {
            true => self.tally.reads += 1,
            false => self.tally.writes += 1,
        }
        let recorded = self.tally.latency.record(ns);
        recorded.expect("it grows as it needs");
    }
}
