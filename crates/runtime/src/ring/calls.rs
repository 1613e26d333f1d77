//! Calls of one shard that always block (fsync, fallocate): a second ring, to which a thread of its
//! own submits.
//!
//! io_uring has threads that wait for such calls, and makes them on the thread that submits. A
//! thread takes memory. Where memory is short, a shard that submits by itself waits for memory that
//! comes only once its own array has written pages of others (swap, a file system's), and both wait
//! for ever. Here only the thread that submits waits.
//!
//! Invariants:
//! * The shard waits neither for that thread nor for a lock that it holds while it waits.
//! * Of the kernel's threads one is made at the start, and stays (the kernel keeps the last one):
//!   calls go on one after the other while no further one can be made.
//! * An entry names no memory, and its file stays open until the kernel has the entry.
//!
//! Deliberately absent: limits (`member_io::limiter`), and deadlines (`member_io`): calls are
//! numbered, and the last one that the kernel has is told, so that no device is held to account
//! for a thread that waits for memory.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};

use super::{Reaped, Token, quiet, raise_workers};
use crate::spawn::spawn;

/// Entries of the submission queue.
const ENTRIES: u32 = 64;
/// What the first entry, which only has a thread made, is called: no token.
const FIRST: u64 = u64::MAX;
/// How soon an entry that the kernel had no memory for is submitted again.
const PAUSE: Duration = Duration::from_millis(1);

/// What keeps the file of an entry open.
pub(crate) type Open = Arc<dyn Any + Send + Sync>;

/// See the module.
pub(super) struct Calls {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Entries without a reaped completion.
    under_way: usize,
    /// Entries that the thread was given.
    given: u64,
}

/// The number of a call, in the order in which they are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallNo(u64);

struct Shared {
    ring: IoUring,
    /// Tells of completions.
    bell: OwnedFd,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Entries that the kernel was given.
    submitted: AtomicU64,
}

#[derive(Default)]
struct Queue {
    entries: Vec<(squeue::Entry, Open)>,
    workers: u32,
    over: bool,
    /// The thread has nothing to do.
    idle: bool,
    /// It is to submit nothing.
    #[cfg(test)]
    still: bool,
}

impl Queue {
    fn is_still(&self) -> bool {
        #[cfg(test)]
        return self.still;
        #[cfg(not(test))]
        false
    }

    /// Whether there is nothing to submit, nor anything else to do.
    fn is_quiet(&self, workers: u32) -> bool {
        self.is_still() || (self.entries.is_empty() && self.workers == workers)
    }
}

impl Calls {
    /// Makes the ring, its thread, and the first of the kernel's threads.
    pub(super) fn new() -> io::Result<Calls> {
        let ring = IoUring::builder().setup_submit_all().build(ENTRIES)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        ring.submitter().register_eventfd(bell.as_raw_fd())?;
        let shared = Arc::new(Shared {
            ring,
            bell,
            queue: Mutex::default(),
            changed: Condvar::new(),
            submitted: AtomicU64::new(0),
        });
        let of_thread = Arc::clone(&shared);
        let thread = spawn("strake-calls", move || of_thread.submit_all())?;
        Ok(Calls {
            shared,
            thread: Some(thread),
            under_way: 0,
            given: 0,
        })
    }

    /// What becomes readable when completions come.
    pub(super) fn bell(&self) -> i32 {
        self.shared.bell.as_raw_fd()
    }

    /// Makes the bell silent.
    pub(super) fn hear(&self) {
        // It may be silent already.
        let _ = rustix::io::read(self.shared.bell.as_fd(), &mut [0; 8]);
    }

    /// Submits an entry that names no memory, soon.
    pub(super) fn push(&mut self, token: Token, entry: squeue::Entry, open: Open) -> CallNo {
        self.under_way += 1;
        self.given += 1;
        let entry = entry.user_data(token.encode());
        self.shared.queue().entries.push((entry, open));
        self.shared.changed.notify_one();
        CallNo(self.given)
    }

    /// Whether the kernel has been given a call.
    pub(super) fn has(&self, call: CallNo) -> bool {
        self.shared.submitted.load(Ordering::Acquire) >= call.0
    }

    /// The thread submits nothing from now on, or goes on.
    #[cfg(test)]
    pub(super) fn stand_still(&self, still: bool) {
        self.shared.queue().still = still;
        self.shared.changed.notify_one();
    }

    /// Sees to it that the kernel has so many threads, at least.
    pub(super) fn have_workers(&self, least: u32) {
        self.shared.queue().workers = least;
        self.shared.changed.notify_one();
    }

    /// Takes every completion that is there.
    pub(super) fn reap(&mut self, into: &mut Vec<Reaped>) {
        // SAFETY: only the shard, which has this, takes completions of that ring.
        let completions = unsafe { self.shared.ring.completion_shared() };
        for entry in completions.filter(|entry| entry.user_data() != FIRST) {
            self.under_way -= 1;
            into.push(Reaped::of(&entry));
        }
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        queue.over = true;
        let idle = queue.idle;
        drop(queue);
        self.shared.changed.notify_one();
        // A call that hangs, or memory that is short, keeps the thread from its end.
        if idle
            && self.under_way == 0
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue
            .lock()
            .expect("no thread panics with the queue of calls")
    }

    /// What the thread does.
    fn submit_all(&self) {
        let first = opcode::Fsync::new(types::Fd(self.bell.as_raw_fd()));
        self.submit(&first.build().user_data(FIRST));
        let (mut taken, mut workers) = (Vec::new(), 0);
        loop {
            let mut queue = self.queue();
            queue.idle = true;
            while queue.is_quiet(workers) && !queue.over {
                queue = self
                    .changed
                    .wait(queue)
                    .expect("no thread panics with the queue of calls");
            }
            if queue.over {
                return;
            }
            queue.idle = false;
            std::mem::swap(&mut queue.entries, &mut taken);
            let wanted = queue.workers;
            drop(queue);
            if wanted != workers {
                workers = wanted;
                raise_workers(&self.ring, workers);
            }
            for (entry, _open) in taken.drain(..) {
                self.submit(&entry);
                self.submitted.fetch_add(1, Ordering::Release);
            }
        }
    }

    fn submit(&self, entry: &squeue::Entry) {
        // SAFETY: only this thread submits to that ring, an entry names no memory, and each entry
        // is taken from the queue before the next one is put there, so that there is room.
        let pushed = unsafe { self.ring.submission_shared().push(entry) };
        pushed.expect("the queue is empty");
        let mut told = false;
        loop {
            match quiet(self.ring.submit()) {
                Ok(Some(count)) if count > 0 => return,
                Err(error) if !std::mem::replace(&mut told, true) => {
                    tracing::warn!(%error, "a call that blocks is not submitted yet");
                }
                Ok(_) | Err(_) => {}
            }
            if self.queue().over {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}
