//! What is counted, and what the process tells the kernel of itself.
//!
//! Invariant: counting takes no lock and never fails. Deliberately absent: histograms and
//! exposition formats; the daemon makes those from the counters.

use std::sync::atomic::{AtomicU64, Ordering};

use strake_engine::event::IoKind;

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
}

impl Tally {
    /// Counts a request that was answered.
    pub(crate) fn count(&self, what: Counted, ok: bool) {
        if !ok {
            bump(&self.errors, 1);
            return;
        }
        match what {
            Counted::Read(bytes) => {
                bump(&self.reads, 1);
                bump(&self.read_bytes, bytes);
            }
            Counted::Write(bytes) => {
                bump(&self.writes, 1);
                bump(&self.written_bytes, bytes);
            }
            Counted::Other => {}
        }
    }

    /// Counts a member I/O that is started.
    pub(crate) fn count_member(&self, kind: &IoKind) {
        match kind {
            IoKind::Read { len, .. } | IoKind::ReadInPlace { len, .. } => {
                bump(&self.member_reads, 1);
                bump(&self.member_read_bytes, *len as u64);
                if matches!(kind, IoKind::ReadInPlace { .. }) {
                    bump(&self.member_reads_in_place, 1);
                }
            }
            IoKind::Write { data, .. } => {
                bump(&self.member_writes, 1);
                bump(&self.member_written_bytes, data.len as u64);
            }
            IoKind::WriteZeroes { .. } | IoKind::Discard { .. } | IoKind::Flush => {}
        }
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
        }
    }
}

/// Adds to a counter that no other thread writes: no locked instruction is needed.
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// Tells the kernel that this thread (and those that it starts) serves I/O: memory that it
/// allocates must not be waited for by writing pages back through the very device that it serves.
/// Needs CAP_SYS_RESOURCE; without it the array serves all the same.
pub(crate) fn declare_io_flusher() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!(%error, "not declared an I/O flusher");
    }
}

/// Keeps the process's memory out of swap once touched. Needs CAP_IPC_LOCK or a large
/// RLIMIT_MEMLOCK; without it the array serves all the same.
pub(crate) fn lock_memory() {
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: mlockall takes no pointers and changes no memory content.
    if unsafe { libc::mlockall(flags) } != 0 {
        tracing::debug!(error = %std::io::Error::last_os_error(), "memory is not locked");
    }
}
