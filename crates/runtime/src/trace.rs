//! What is counted, and what the process tells the kernel of itself.
//!
//! Invariant: counting takes no lock and never fails. Deliberately absent: histograms and
//! exposition formats; the daemon makes those from the counters.

use std::sync::atomic::{AtomicU64, Ordering};

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

/// Counters of one array, written by its shards.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    errors: AtomicU64,
}

impl Tally {
    /// Counts a request that was answered.
    pub(crate) fn count(&self, what: Counted, ok: bool) {
        if !ok {
            self.errors.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match what {
            Counted::Read(bytes) => {
                self.reads.fetch_add(1, Ordering::Relaxed);
                self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Counted::Write(bytes) => {
                self.writes.fetch_add(1, Ordering::Relaxed);
                self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Counted::Other => {}
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
        }
    }
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
