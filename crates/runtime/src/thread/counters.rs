//! What is counted.
//!
//! Invariant: counting takes no lock, allocates nothing and never fails. Deliberately absent:
//! exposition formats; the daemon makes those from the counters.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use strake_engine::Distribution;
use strake_engine::event::IoKind;
use strake_engine::latency::{DOUBLINGS, doubling};

use crate::thread::device_counts::PerDevice;

/// Requests served since start, for `show`, the demo and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads answered.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes answered.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Member reads, those of jobs and metadata too.
    pub member_reads: u64,
    /// Member writes, those of jobs, logs and metadata too.
    pub member_writes: u64,
    /// Bytes that member reads were asked for, those of jobs and metadata too.
    pub member_read_bytes: u64,
    /// Bytes given to member writes, those of jobs, logs and metadata too.
    pub member_written_bytes: u64,
    /// Member reads that filled their requests' own pages.
    pub member_reads_in_place: u64,
    /// Member writes to the areas of the stripe log.
    pub log_writes: u64,
    /// Their bytes.
    pub log_written_bytes: u64,
}

/// How long requests took that were answered without an error, from the moment at which their
/// thread took them to the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestLatencies {
    /// Reads.
    pub reads: Distribution,
    /// Writes.
    pub writes: Distribution,
}

impl std::ops::AddAssign for RequestLatencies {
    fn add_assign(&mut self, other: RequestLatencies) {
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
    }
}

impl std::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Counters) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.errors += other.errors;
        self.member_reads += other.member_reads;
        self.member_writes += other.member_writes;
        self.member_read_bytes += other.member_read_bytes;
        self.member_written_bytes += other.member_written_bytes;
        self.member_reads_in_place += other.member_reads_in_place;
        self.log_writes += other.log_writes;
        self.log_written_bytes += other.log_written_bytes;
    }
}

/// What a request is, as far as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// A read of so many bytes.
    Read(u64),
    /// A write of so many bytes.
    Write(u64),
    /// Anything else.
    Other,
}

/// Counters of one shard, written by its thread alone. Aligned so that shards do not share cache
/// lines (CPUs fetch them in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Tally {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    errors: AtomicU64,
    member_reads: AtomicU64,
    member_writes: AtomicU64,
    member_read_bytes: AtomicU64,
    member_written_bytes: AtomicU64,
    member_reads_in_place: AtomicU64,
    log_writes: AtomicU64,
    log_written_bytes: AtomicU64,
    reads_took: Took,
    writes_took: Took,
    devices: PerDevice,
}

/// How long requests of one kind took.
#[derive(Debug, Default)]
struct Took {
    counts: [AtomicU64; DOUBLINGS],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Took {
    fn note(&self, ns: u64) {
        bump(&self.counts[doubling(ns)], 1);
        bump(&self.sum_ns, ns);
        if ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.store(ns, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Distribution {
        let mut counts = [0; DOUBLINGS];
        for (count, counter) in counts.iter_mut().zip(&self.counts) {
            *count = counter.load(Ordering::Relaxed);
        }
        let [sum_ns, max_ns] = [&self.sum_ns, &self.max_ns].map(|ns| ns.load(Ordering::Relaxed));
        Distribution::of(counts, sum_ns, max_ns)
    }
}

impl Tally {
    /// Counts a request that was answered after so many nanoseconds.
    pub(crate) fn count(&self, what: Counted, ok: bool, took_ns: u64) {
        if !ok {
            bump(&self.errors, 1);
            return;
        }
        match what {
            Counted::Read(bytes) => {
                bump(&self.reads, 1);
                bump(&self.read_bytes, bytes);
                self.reads_took.note(took_ns);
            }
            Counted::Write(bytes) => {
                bump(&self.writes, 1);
                bump(&self.written_bytes, bytes);
                self.writes_took.note(took_ns);
            }
            Counted::Other => {}
        }
    }

    /// Counts a member I/O that is started; `log` is the area of the stripe log on each member.
    pub(crate) fn count_member(&self, kind: &IoKind, log: &Range<u64>) {
        match kind {
            IoKind::Read { len, .. } | IoKind::ReadInPlace { len, .. } => {
                bump(&self.member_reads, 1);
                bump(&self.member_read_bytes, *len as u64);
                if matches!(kind, IoKind::ReadInPlace { .. }) {
                    bump(&self.member_reads_in_place, 1);
                }
            }
            IoKind::Write { offset, data, .. } => {
                bump(&self.member_writes, 1);
                bump(&self.member_written_bytes, data.len as u64);
                if log.contains(offset) {
                    bump(&self.log_writes, 1);
                    bump(&self.log_written_bytes, data.len as u64);
                }
            }
            IoKind::WriteZeroes { .. } | IoKind::Discard { .. } | IoKind::Flush => {}
        }
    }

    /// I/Os by device.
    pub(crate) fn devices(&self) -> &PerDevice {
        &self.devices
    }

    /// The counters at this moment.
    pub(crate) fn read(&self) -> Counters {
        Counters {
            reads: self.reads.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            member_reads: self.member_reads.load(Ordering::Relaxed),
            member_writes: self.member_writes.load(Ordering::Relaxed),
            member_read_bytes: self.member_read_bytes.load(Ordering::Relaxed),
            member_written_bytes: self.member_written_bytes.load(Ordering::Relaxed),
            member_reads_in_place: self.member_reads_in_place.load(Ordering::Relaxed),
            log_writes: self.log_writes.load(Ordering::Relaxed),
            log_written_bytes: self.log_written_bytes.load(Ordering::Relaxed),
        }
    }

    /// How long requests took until this moment.
    pub(crate) fn latencies(&self) -> RequestLatencies {
        RequestLatencies {
            reads: self.reads_took.read(),
            writes: self.writes_took.read(),
        }
    }
}

/// Adds to a counter that no other thread writes: no locked instruction is needed.
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}
