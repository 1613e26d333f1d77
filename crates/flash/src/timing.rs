//! How long a drive takes: bandwidth, operations a second, both together, and latencies.
//!
//! Reads and writes are two queues that run side by side; a third one is shared, and holds
//! reads/READ + writes/WRITE at or below `mix`. A write is answered when the buffer has room for
//! it, a read when its bytes are there.

use crate::rng::Rng;

/// Rates and latencies of a drive. Times are nanoseconds, rates are per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// Bytes read a second.
    pub read_bytes: f64,
    /// Reads a second, however small.
    pub read_ops: f64,
    /// Bytes programmed a second: what a sequential write reaches.
    pub program_bytes: f64,
    /// Writes a second, however small.
    pub write_ops: f64,
    /// Bytes a second that the link carries in each direction.
    pub link_bytes: f64,
    /// What reads and writes reach together: 1.0 where one takes all from the other, up to 2.0
    /// where neither slows the other.
    pub mix: f64,
    /// Bytes that the buffer holds before writes wait for the flash.
    pub buffer_bytes: f64,
    /// Latency of a read of an idle drive.
    pub read_latency: Latency,
    /// Latency of a write into the buffer.
    pub write_latency: Latency,
}

/// A distribution of latencies by three of its quantiles, nanoseconds; between them the logarithm
/// of the latency grows with that of the rarity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Half of all.
    pub p50: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 9,999 of 10,000.
    pub p9999: f64,
}

impl Latency {
    /// The same for every I/O.
    pub fn fixed(ns: f64) -> Latency {
        Latency {
            p50: ns,
            p99: ns,
            p9999: ns,
        }
    }

    fn draw(&self, rng: &mut Rng) -> f64 {
        // Nines: 0.3 at the median, 2 at p99, 4 at p99.99.
        let rarity = -(1.0 - rng.fraction()).log10();
        let (from, to, share) = match rarity {
            r if r < 0.301 => return self.p50,
            r if r < 2.0 => (self.p50, self.p99, (r - 0.301) / 1.699),
            r => (self.p99, self.p9999, ((r - 2.0) / 2.0).min(1.0)),
        };
        from * (to / from).powf(share)
    }
}

/// The queues of a drive: when each is free again, nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    timing: Timing,
    rng: Rng,
    read: f64,
    write: f64,
    both: f64,
    /// Share of reads in the work of late, from 0 to 1.
    reads: f64,
}

/// Work, in nanoseconds, over which the share of reads is taken.
const MEMORY: f64 = 2e6;
const SECOND: f64 = 1e9;

impl Queues {
    pub(crate) fn new(timing: Timing, seed: u64) -> Queues {
        Queues {
            timing,
            rng: Rng::new(seed),
            read: 0.0,
            write: 0.0,
            both: 0.0,
            reads: 0.5,
        }
    }

    /// When a read that comes now is answered.
    pub(crate) fn read(&mut self, now: f64, len: u64) -> f64 {
        let t = &self.timing;
        let bytes = len as f64;
        let work = (bytes / t.read_bytes.min(t.link_bytes)).max(1.0 / t.read_ops) * SECOND;
        let latency = t.read_latency.draw(&mut self.rng);
        self.read = self.read.max(now) + work;
        let both = self.share(now, work, true);
        self.read.max(both) + latency
    }

    /// When a write that comes now, for which so many bytes were programmed, is answered.
    pub(crate) fn write(&mut self, now: f64, len: u64, programmed: u64) -> f64 {
        let t = &self.timing;
        let link = len as f64 / t.link_bytes * SECOND;
        let work = (programmed as f64 / t.program_bytes * SECOND).max(SECOND / t.write_ops);
        let room = t.buffer_bytes / t.program_bytes * SECOND;
        let latency = t.write_latency.draw(&mut self.rng);
        self.write = self.write.max(now) + work;
        let both = self.share(now, work, false);
        // What the buffer holds is answered before it is in the flash.
        let taken = (self.write.max(both) - room).max(now);
        taken + link + latency
    }

    /// Work in the queue that both share; answers when it is done.
    fn share(&mut self, now: f64, work: f64, is_read: bool) -> f64 {
        let weight = (work / MEMORY).min(1.0);
        self.reads += weight * (f64::from(u8::from(is_read)) - self.reads);
        // One kind alone reaches its own rate, whatever the two reach together.
        let mixed = (5.0 * self.reads.min(1.0 - self.reads)).min(1.0);
        let limit = 1.0 + (self.timing.mix - 1.0) * mixed;
        self.both = self.both.max(now) + work / limit;
        self.both
    }
}
