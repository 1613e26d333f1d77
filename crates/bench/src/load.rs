//! A load: what is asked for, and the stream of requests of one job.
//!
//! Invariants: two requests of a job in flight never overlap, and jobs have spaces of their own, so
//! the content of every block at rest is known exactly; requests are timed one by one, from before
//! they are given to after they are answered.
//!
//! Deliberately absent: what carries out the requests (raw members or an array): both use this, so
//! that what the bench itself costs is the same on both sides.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::stamp::{BLOCK, Patterns, stamp};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) write: bool,
    pub(crate) random: bool,
    /// Bytes of a request.
    pub(crate) bytes: usize,
    /// Requests in flight of each job.
    pub(crate) depth: usize,
    /// All requests go to the first lane of the space.
    pub(crate) one_lane: bool,
}

/// Requests of a job in flight, if none is longer than [`DEPTH_BYTES`] would allow.
const DEPTH: usize = 32;
/// Bytes in flight of each job, at most.
const DEPTH_BYTES: usize = 8 << 20;

impl Load {
    pub(crate) const fn new(write: bool, random: bool, bytes: usize) -> Load {
        let fits = DEPTH_BYTES / bytes;
        let depth = if fits < DEPTH { fits } else { DEPTH };
        Load {
            write,
            random,
            bytes,
            depth,
            one_lane: false,
        }
    }

    /// `random write 4K`.
    pub(crate) fn name(self) -> String {
        let order = if self.random { "random" } else { "sequential" };
        let what = if self.write { "write" } else { "read" };
        let size = match self.bytes >> 10 {
            mib if mib >= 1024 => format!("{}M", mib >> 10),
            kib => format!("{kib}K"),
        };
        format!("{order} {what} {size}")
    }
}

/// The loads, in the order in which they are shown.
pub(crate) fn all() -> Vec<Load> {
    let large = [1 << 20, 512 << 10, 128 << 10, 64 << 10, 4 << 10];
    let small = [4 << 10, 16 << 10, 64 << 10, 128 << 10, 512 << 10, 1 << 20];
    let sequential = |write| large.map(|bytes| Load::new(write, false, bytes));
    let random = |write| small.map(|bytes| Load::new(write, true, bytes));
    [
        &sequential(false)[..],
        &sequential(true),
        &random(false),
        &random(true),
    ]
    .concat()
}

/// Those of them that are measured with two members lost.
pub(crate) fn twice() -> [Load; 4] {
    [
        Load::new(false, false, 512 << 10),
        Load::new(true, false, 512 << 10),
        Load::new(false, true, 4 << 10),
        Load::new(true, true, 4 << 10),
    ]
}

/// When a job gives no more requests.
#[derive(Clone, Debug)]
pub(crate) enum Limit {
    /// After this long.
    Time(Duration),
    /// After going once over its whole space.
    Once,
    /// When it is told.
    Told(Arc<AtomicBool>),
}

/// A job's part of the addresses: the same range on each of so many lanes (members; one for an
/// array).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Space {
    pub(crate) lanes: u64,
    /// From one lane's first byte to the next one's.
    pub(crate) stride: u64,
    /// First byte within a lane.
    pub(crate) first: u64,
    /// Bytes within a lane.
    pub(crate) bytes: u64,
}

/// A place of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) lane: u64,
    /// Byte within the lane.
    pub(crate) offset: u64,
}

impl Space {
    fn lanes_of(&self, load: Load) -> u64 {
        if load.one_lane { 1 } else { self.lanes }
    }

    fn requests(&self, load: Load) -> u64 {
        self.lanes_of(load) * (self.bytes / load.bytes as u64)
    }

    /// The places of a load's requests, one after the other, in turns on the lanes.
    fn place(&self, number: u64, load: Load) -> Place {
        let lanes = self.lanes_of(load);
        Place {
            lane: number % lanes,
            offset: self.first + number / lanes * load.bytes as u64,
        }
    }

    /// What a block is stamped with.
    fn address(&self, place: Place) -> u64 {
        (place.lane * self.stride + place.offset) / BLOCK as u64
    }

    /// Where a block's version is kept.
    fn index(&self, place: Place) -> usize {
        let byte = place.lane * self.bytes + (place.offset - self.first);
        usize::try_from(byte).expect("a space fits into memory") / BLOCK
    }

    fn blocks(&self) -> usize {
        usize::try_from(self.lanes * self.bytes).expect("a space fits into memory") / BLOCK
    }
}

/// What a job has to show.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) latencies_ns: Histogram<u64>,
    /// The moment of the last answer.
    pub(crate) last: Instant,
    /// The first thing that was wrong.
    pub(crate) wrong: Option<String>,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    number: u64,
    begun: Instant,
}

/// One stream of requests, and what its blocks hold.
pub(crate) struct Job {
    space: Space,
    versions: Vec<u32>,
    chance: SmallRng,
    patterns: Arc<Patterns>,
    load: Load,
    /// The load's own number of requests in the space.
    requests: u64,
    check: bool,
    next: u64,
    end: Option<Instant>,
    told: Option<Arc<AtomicBool>>,
    left: u64,
    flights: Vec<Option<Flight>>,
    in_flight: usize,
    tally: Tally,
}

/// Latencies between a nanosecond and a minute, three digits of them.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are sound")
}

impl Job {
    pub(crate) fn new(space: Space, patterns: Arc<Patterns>) -> Job {
        Job {
            space,
            versions: vec![0; space.blocks()],
            chance: SmallRng::seed_from_u64(space.first ^ space.lanes),
            patterns,
            load: Load::new(false, false, BLOCK),
            requests: 0,
            check: false,
            next: 0,
            end: None,
            told: None,
            left: 0,
            flights: Vec::new(),
            in_flight: 0,
            tally: Tally {
                requests: 0,
                latencies_ns: histogram(),
                last: Instant::now(),
                wrong: None,
            },
        }
    }

    /// Begins with a load; with `check`, every block that is read is compared with what was
    /// written.
    pub(crate) fn begin(&mut self, load: Load, limit: &Limit, check: bool) {
        assert_eq!(self.in_flight, 0, "one load after the other");
        self.requests = self.space.requests(load);
        assert!(
            self.requests > load.depth as u64,
            "requests in flight do not overlap"
        );
        let now = Instant::now();
        (self.end, self.told, self.left) = match limit {
            Limit::Time(time) => (Some(now + *time), None, u64::MAX),
            Limit::Once => (None, None, self.requests),
            Limit::Told(told) => (None, Some(Arc::clone(told)), u64::MAX),
        };
        (self.load, self.check, self.next) = (load, check, 0);
        self.flights = vec![None; load.depth];
        self.tally = Tally {
            requests: 0,
            latencies_ns: histogram(),
            last: now,
            wrong: None,
        };
    }

    pub(crate) fn load(&self) -> Load {
        self.load
    }

    /// Nothing is in flight.
    pub(crate) fn at_rest(&self) -> bool {
        self.in_flight == 0
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The next request, in this slot of those in flight, if there is to be one.
    pub(crate) fn next(&mut self, slot: usize, now: Instant) -> Option<Place> {
        let told = self.told.as_ref();
        let over = self.left == 0
            || self.end.is_some_and(|end| now >= end)
            || told.is_some_and(|told| told.load(Ordering::Relaxed))
            || self.tally.wrong.is_some();
        if over {
            return None;
        }
        self.left -= 1;
        let number = if self.load.random {
            self.pick()
        } else {
            let next = self.next;
            self.next = (next + 1) % self.requests;
            next
        };
        self.flights[slot] = Some(Flight { number, begun: now });
        self.in_flight += 1;
        Some(self.space.place(number, self.load))
    }

    fn pick(&mut self) -> u64 {
        loop {
            let number = self.chance.random_range(0..self.requests);
            let taken = |flight: &Option<Flight>| flight.is_some_and(|f| f.number == number);
            if !self.flights.iter().any(taken) {
                return number;
            }
        }
    }

    /// Stamps the data of a write.
    pub(crate) fn stamp(&mut self, place: Place, data: &mut [u8]) {
        let (first, index) = (self.space.address(place), self.space.index(place));
        let versions = &mut self.versions[index..];
        for ((block, version), address) in data.chunks_exact_mut(BLOCK).zip(versions).zip(first..) {
            *version += 1;
            stamp(block, address, *version);
        }
    }

    /// The request in this slot was answered, a read with these parts.
    pub(crate) fn answered<'a>(
        &mut self,
        slot: usize,
        now: Instant,
        result: Result<impl Iterator<Item = &'a [u8]>, String>,
    ) {
        let flight = self.flights[slot].take().expect("a request in flight");
        self.in_flight -= 1;
        let tally = &mut self.tally;
        tally.requests += 1;
        tally.last = now;
        let took = now.duration_since(flight.begun).as_nanos() as u64;
        tally.latencies_ns.saturating_record(took.max(1));
        let verdict = match result {
            Ok(parts) if !self.load.write && self.check => {
                self.compare(self.space.place(flight.number, self.load), parts)
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(wrong) = verdict {
            let name = self.load.name();
            let said = || format!("{name}, request {}: {wrong}", flight.number);
            self.tally.wrong.get_or_insert_with(said);
        }
    }

    fn compare<'a>(
        &self,
        place: Place,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(), String> {
        let (mut address, mut index) = (self.space.address(place), self.space.index(place));
        let mut bytes = 0;
        for part in parts {
            bytes += part.len();
            if !part.len().is_multiple_of(BLOCK) {
                return Err(format!("a part of {} bytes", part.len()));
            }
            for block in part.chunks_exact(BLOCK) {
                self.patterns.check(block, address, self.versions[index])?;
                (address, index) = (address + 1, index + 1);
            }
        }
        match bytes == self.load.bytes {
            true => Ok(()),
            false => Err(format!("{bytes} bytes read of {}", self.load.bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(lanes: u64) -> Job {
        let space = Space {
            lanes,
            stride: 1 << 30,
            first: 1 << 20,
            bytes: 1 << 20,
        };
        Job::new(space, Arc::new(Patterns::new()))
    }

    #[test]
    fn going_once_over_a_space_touches_every_block_once() {
        let mut job = job(3);
        job.begin(Load::new(true, false, 64 << 10), &Limit::Once, false);
        let mut data = vec![0; 64 << 10];
        while let Some(place) = job.next(0, Instant::now()) {
            assert!(place.offset >= 1 << 20 && place.offset < 2 << 20);
            job.stamp(place, &mut data);
            job.answered(0, Instant::now(), Ok(std::iter::empty()));
        }
        assert!(job.versions.iter().all(|&version| version == 1));
        assert_eq!(job.tally().requests, 48);
    }

    #[test]
    fn random_requests_in_flight_never_overlap() {
        let mut job = job(1);
        let load = Load::new(false, true, 16 << 10);
        job.begin(load, &Limit::Told(Arc::default()), false);
        for round in 0..1000 {
            let slot = round % load.depth;
            if job.flights[slot].is_some() {
                job.answered(slot, Instant::now(), Ok(std::iter::empty()));
            }
            job.next(slot, Instant::now())
                .expect("nobody told it to end");
            let mut numbers: Vec<u64> = job.flights.iter().flatten().map(|f| f.number).collect();
            let count = numbers.len();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), count);
        }
    }

    #[test]
    fn a_read_of_an_older_write_or_of_too_few_bytes_ends_the_job() {
        let mut job = job(1);
        let patterns = Patterns::new();
        let (mut old, mut new) = (vec![0; BLOCK], vec![0; BLOCK]);
        for data in [&mut old, &mut new] {
            patterns.fill(data, 0);
            job.begin(Load::new(true, false, BLOCK), &Limit::Once, false);
            let place = job.next(0, Instant::now()).expect("the first");
            job.stamp(place, data);
            job.answered(0, Instant::now(), Ok(std::iter::empty()));
        }
        for (read, right) in [(&new[..], true), (&old[..], false), (&new[..0], false)] {
            job.begin(Load::new(false, false, BLOCK), &Limit::Once, true);
            job.next(0, Instant::now()).expect("the first");
            job.answered(0, Instant::now(), Ok([read].into_iter()));
            assert_eq!(job.tally().wrong.is_none(), right);
            assert_eq!(job.next(0, Instant::now()).is_some(), right);
            job.in_flight = 0;
        }
    }
}
