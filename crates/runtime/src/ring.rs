//! One io_uring of one shard: submission, waiting, registered files and buffers, and the meaning
//! of `user_data`.
//!
//! Invariants:
//! * An entry pushed is submitted exactly once: until [`Ring::wait`], and where the queue is full,
//!   it waits in `backlog`, in order. There it can still become another one.
//! * [`Token`] is the only thing that makes or reads a `user_data`, but for two that are the ring's
//!   own: its bell, and the first entry of `calls`.
//! * Calls that always block go by `calls`, where the ring has it, and their completions come with
//!   all others.
//! * The caller that pushes an entry with an address keeps that memory alive until the entry's
//!   completion is reaped; the ring itself owns no memory.
//!
//! Deliberately absent: SQPOLL and IOPOLL. An idle shard sleeps in `io_uring_enter`; a polled ring
//! carries neither ublk commands nor fsync.

mod calls;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::error::ServeError;
use calls::Calls;
pub(crate) use calls::{CallNo, Open};

/// Entries of the submission queue. What does not fit waits in the backlog.
const ENTRIES: u32 = 1024;
/// Pieces of memory that one request is of, at most: of many short ones enough are left to be
/// worked on side by side.
pub(crate) const PIECES_MOST: usize = 8;
/// Places for registered files: members, spares and their successors.
const FILES: u32 = 1024;
/// The kernel registers at most this many buffers (IORING_MAX_REG_BUFFERS).
const BUFFERS_MAX: usize = 1 << 14;

/// What the bell of the calls that block is called: no token.
const BELL: u64 = u64::MAX;

/// So long the kernel may take to give the memory of a closed ring back.
const GIVEN_BACK: Duration = Duration::from_secs(1);

/// What a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The shard's eventfd: there is mail.
    Wake,
    /// The watch on member files and device nodes.
    Watch,
    /// A member I/O in this place of the table.
    Member(u32),
    /// A ublk command.
    Ublk {
        /// The queue, as this thread knows it.
        queue: u16,
        /// Tag within the queue.
        tag: u16,
    },
    /// A ublk command for many tags.
    UblkBatch {
        /// The queue, as this thread knows it.
        queue: u16,
        /// Which command it is.
        step: u32,
    },
}

impl Token {
    fn encode(self) -> u64 {
        match self {
            Token::Wake => 0,
            Token::Watch => 1 << 56,
            Token::Member(place) => 2 << 56 | u64::from(place),
            Token::Ublk { queue, tag } => 3 << 56 | u64::from(queue) << 16 | u64::from(tag),
            Token::UblkBatch { queue, step } => 4 << 56 | u64::from(queue) << 32 | u64::from(step),
        }
    }

    fn decode(data: u64) -> Token {
        match data >> 56 {
            0 => Token::Wake,
            1 => Token::Watch,
            2 => Token::Member(data as u32),
            3 => Token::Ublk {
                queue: (data >> 16) as u16,
                tag: data as u16,
            },
            4 => Token::UblkBatch {
                queue: (data >> 32) as u16,
                step: data as u32,
            },
            kind => unreachable!("no token of kind {kind} was ever made"),
        }
    }
}

/// Whether this process may have so many rings at once, one for each shard: callers check it before
/// anything is written. What they take of RLIMIT_MEMLOCK has to do for all of them.
///
/// # Errors
/// Why not.
pub fn check_io_uring(rings: u16) -> Result<(), ServeError> {
    let rings: io::Result<Vec<Ring>> = (0..rings).map(|_| Ring::made_soon()).collect();
    rings.map(drop).map_err(|error| no_io_uring(&error))
}

/// Names what forbids io_uring.
pub(crate) fn no_io_uring(error: &io::Error) -> ServeError {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let disabled = disabled.unwrap_or_default();
    let why = match (error.raw_os_error(), disabled.trim()) {
        (Some(libc::EPERM), "1") => {
            "the sysctl kernel.io_uring_disabled is 1, and this process is not in its \
             group"
                .to_owned()
        }
        (Some(libc::EPERM), "2") => "the sysctl kernel.io_uring_disabled is 2".to_owned(),
        (Some(libc::EPERM | libc::EACCES), _) => {
            "the kernel forbids it to this process (seccomp, as in a container, or a security \
             module)"
                .to_owned()
        }
        (Some(libc::ENOMEM), _) => {
            "there is no memory for its rings (RLIMIT_MEMLOCK or RLIMIT_AS of the process, or \
             the machine's)"
                .to_owned()
        }
        (Some(libc::ENOSYS), _) => "this kernel has none, or it is forbidden (seccomp)".to_owned(),
        (Some(libc::EMFILE | libc::ENFILE), _) => {
            "no descriptor is left (RLIMIT_NOFILE)".to_owned()
        }
        _ => error.to_string(),
    };
    ServeError::NoIoUring(why)
}

/// A completion: what, result, and whether more of the same will come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reaped {
    /// What it belongs to.
    pub(crate) token: Token,
    /// Bytes, or a negative errno.
    pub(crate) result: i32,
    /// A multishot request stays armed.
    pub(crate) more: bool,
    /// The buffer of the group that the kernel took for it.
    pub(crate) buffer: Option<u16>,
}

impl Reaped {
    fn of(entry: &cqueue::Entry) -> Reaped {
        Reaped {
            token: Token::decode(entry.user_data()),
            result: entry.result(),
            more: cqueue::more(entry.flags()),
            buffer: cqueue::buffer_select(entry.flags()),
        }
    }
}

/// How a file is named in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    /// Index of a registered file.
    Registered(u32),
    /// A plain descriptor.
    Plain(RawFd),
}

impl File {
    /// For `opcode::*::new`; [`File::mark`] must follow.
    pub(crate) fn fd(self) -> types::Fd {
        match self {
            File::Registered(index) => types::Fd(index as RawFd),
            File::Plain(fd) => types::Fd(fd),
        }
    }

    /// Says in the entry which of the two it is.
    pub(crate) fn mark(self, entry: squeue::Entry) -> squeue::Entry {
        match self {
            File::Registered(_) => entry.flags(squeue::Flags::FIXED_FILE),
            File::Plain(_) => entry,
        }
    }
}

/// An entry that was pushed; counted from the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pushed(u64);

/// See the module.
pub(crate) struct Ring {
    ring: IoUring,
    backlog: VecDeque<squeue::Entry>,
    /// Entries pushed so far.
    pushed: u64,
    /// Free indices of the registered file table; `None` where the kernel has none.
    free_files: Option<Vec<u32>>,
    /// Places given up that entries not yet submitted may still name.
    given_up: Vec<u32>,
    calls: Option<Calls>,
}

impl Ring {
    /// The same ring, and calls that block never make it wait. Where another thread cannot be had
    /// for them, they may.
    pub(crate) fn with_calls(mut self) -> Ring {
        match Calls::new() {
            Ok(calls) => {
                self.calls = Some(calls);
                self.poll_bell();
            }
            Err(error) => {
                tracing::warn!(%error, "a flush may wait for memory, and with it its shard");
            }
        }
        self
    }

    /// Has the kernel take memory for as many requests at once as the queue holds, and keep it. It
    /// takes some for each higher peak; where memory comes only by a write to the array, its shard
    /// cannot wait for that.
    ///
    /// # Errors
    /// There is no memory for them, and the ring cannot be used.
    pub(crate) fn with_requests(mut self) -> io::Result<Ring> {
        // Reads wait for a pipe that nothing is written to, and end with it.
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let mut byte = 0u8;
        let piece = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        let pieces = [piece; PIECES_MOST];
        let fd = types::Fd(read.as_raw_fd());
        let entry = opcode::Readv::new(fd, pieces.as_ptr(), PIECES_MOST as u32).build();
        let entries = vec![entry; ENTRIES as usize];
        // SAFETY: no read finds anything that it could write to the byte; the list is read when
        // they are submitted.
        let pushed = unsafe { self.ring.submission().push_multiple(&entries) };
        pushed.expect("the queue of a new ring is empty");
        self.ring.submit()?;
        drop(write);
        let mut left = entries.len();
        while left > 0 {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => left -= self.ring.completion().count(),
            }
        }
        Ok(self)
    }

    /// [`Ring::new`], which waits a moment where the memory of rings that were closed is not given
    /// back yet: the kernel does that after the close.
    pub(crate) fn made_soon() -> io::Result<Ring> {
        let give_up = Instant::now() + GIVEN_BACK;
        loop {
            match Ring::new() {
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOMEM) && Instant::now() < give_up =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                made => return made,
            }
        }
    }

    /// Makes the ring. Call on the thread that will use it: no other may submit.
    pub(crate) fn new() -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(ENTRIES * 4)
            .build(ENTRIES)
            .or_else(|error| {
                tracing::debug!(%error, "no deferred task work (before 6.1), plain ring");
                IoUring::builder().setup_cqsize(ENTRIES * 4).build(ENTRIES)
            })?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "io_uring is older than 5.11",
            ));
        }
        let free_files = match ring.submitter().register_files_sparse(FILES) {
            Ok(()) => Some((0..FILES).rev().collect()),
            Err(error) => {
                tracing::debug!(%error, "no registered files");
                None
            }
        };
        Ok(Ring {
            ring,
            backlog: VecDeque::new(),
            pushed: 0,
            free_files,
            given_up: Vec::new(),
            calls: None,
        })
    }

    /// Registers buffers by address and length, in order, and `empty` places after them for what
    /// the kernel itself registers. False where the kernel refuses (RLIMIT_MEMLOCK): the caller
    /// then uses the plain operations.
    ///
    /// # Safety
    /// The memory must stay where it is for as long as the ring lives.
    pub(crate) unsafe fn register_buffers(&self, addresses: &[(usize, usize)], empty: u16) -> bool {
        let empty = usize::from(empty);
        if addresses.len() + empty == 0 || addresses.len() + empty > BUFFERS_MAX {
            return false;
        }
        let nothing = std::iter::repeat_n(&(0, 0), empty);
        let iovecs: Vec<libc::iovec> = addresses
            .iter()
            .chain(nothing)
            .map(|&(base, len)| libc::iovec {
                iov_base: base as *mut libc::c_void,
                iov_len: len,
            })
            .collect();
        // SAFETY: the caller keeps the memory; the list of iovecs is read during the call only.
        match unsafe { self.ring.submitter().register_buffers(&iovecs) } {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "buffers are not registered: every I/O pins its pages anew");
                false
            }
        }
    }

    /// Registers a ring of `entries` buffers, which the kernel takes from by itself, as `group`.
    ///
    /// # Safety
    /// The memory of the ring and of its buffers must stay where it is until
    /// [`Ring::unregister_group`], or for ever.
    pub(crate) unsafe fn register_group(
        &self,
        address: u64,
        entries: u16,
        group: u16,
    ) -> io::Result<()> {
        let submitter = self.ring.submitter();
        // SAFETY: the caller keeps the memory.
        unsafe { submitter.register_buf_ring_with_flags(address, entries, group, 0) }
    }

    /// The kernel forgets a ring of buffers.
    pub(crate) fn unregister_group(&self, group: u16) -> io::Result<()> {
        self.ring.submitter().unregister_buf_ring(group)
    }

    /// Registers a descriptor, where there is room.
    pub(crate) fn register_file(&mut self, fd: RawFd) -> File {
        let Some(index) = self.free_files.as_mut().and_then(Vec::pop) else {
            return File::Plain(fd);
        };
        match self.ring.submitter().register_files_update(index, &[fd]) {
            Ok(_) => File::Registered(index),
            Err(error) => {
                tracing::debug!(%error, "file not registered");
                File::Plain(fd)
            }
        }
    }

    /// Forgets a registered descriptor; I/O in flight on it goes on.
    pub(crate) fn unregister_file(&mut self, file: File) {
        let File::Registered(index) = file else {
            return;
        };
        if self
            .ring
            .submitter()
            .register_files_update(index, &[-1])
            .is_ok()
            && self.free_files.is_some()
        {
            self.given_up.push(index);
        }
    }

    /// Submits an entry, soon.
    ///
    /// # Safety
    /// Memory that the entry names must stay alive and, where the kernel writes it, unread until
    /// its completion.
    pub(crate) unsafe fn push(&mut self, token: Token, entry: squeue::Entry) -> Pushed {
        self.backlog.push_back(entry.user_data(token.encode()));
        self.pushed += 1;
        Pushed(self.pushed - 1)
    }

    /// Submits a call that blocks and names no memory, soon: what it is called until the kernel
    /// has it, where another thread submits it.
    pub(crate) fn push_call(
        &mut self,
        token: Token,
        entry: squeue::Entry,
        open: Open,
    ) -> Option<CallNo> {
        match &mut self.calls {
            Some(calls) => Some(calls.push(token, entry, open)),
            None => {
                // SAFETY: it names no memory.
                unsafe { self.push(token, entry) };
                None
            }
        }
    }

    /// Whether the kernel has been given a call.
    pub(crate) fn has_call(&self, call: CallNo) -> bool {
        self.calls.as_ref().is_none_or(|calls| calls.has(call))
    }

    /// The thread that submits calls submits none from now on, or goes on.
    #[cfg(test)]
    pub(crate) fn calls_stand_still(&self, still: bool) {
        let calls = self.calls.as_ref().expect("there is one");
        calls.stand_still(still);
    }

    /// Does the kernel not have it yet?
    pub(crate) fn waits(&self, pushed: Pushed) -> bool {
        self.place_of(pushed).is_some()
    }

    fn place_of(&self, pushed: Pushed) -> Option<usize> {
        let submitted = self.pushed - self.backlog.len() as u64;
        pushed.0.checked_sub(submitted).map(|at| at as usize)
    }

    /// Puts another entry in the place of one that the kernel does not have yet; its token stays.
    /// False if the kernel has it.
    ///
    /// # Safety
    /// As [`Ring::push`].
    pub(crate) unsafe fn amend(&mut self, pushed: Pushed, entry: squeue::Entry) -> bool {
        let waiting = self.place_of(pushed).map(|at| &mut self.backlog[at]);
        let Some(waiting) = waiting else {
            return false;
        };
        let data = waiting.get_user_data();
        *waiting = entry.user_data(data);
        true
    }

    /// Tells of readiness to read, again and again.
    pub(crate) fn poll_readable(&mut self, token: Token, fd: RawFd) {
        // SAFETY: a poll names no memory.
        let _ = unsafe { self.push(token, readable(fd)) };
    }

    fn poll_bell(&mut self) {
        if let Some(calls) = &self.calls {
            let entry = readable(calls.bell()).user_data(BELL);
            self.backlog.push_back(entry);
            self.pushed += 1;
        }
    }

    /// Moves the backlog into the submission queue, as far as there is room.
    fn fill(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: `Ring::push` was promised that the memory of the entry stays.
            if unsafe { queue.push(entry) }.is_err() {
                break;
            }
            self.backlog.pop_front();
        }
    }

    /// Submits what is pending and sleeps until a completion is there or `timeout` has passed.
    /// Returns at once when completions wait already.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        loop {
            self.fill();
            if self.backlog.is_empty() {
                break;
            }
            match quiet(self.ring.submit())? {
                Some(count) if count > 0 => {}
                // The completion queue is full or memory is short: reap first.
                _ => return Ok(()),
            }
        }
        match timeout {
            None => quiet(self.ring.submit_and_wait(1))?,
            Some(timeout) => {
                let spec = Timespec::from(timeout);
                let args = SubmitArgs::new().timespec(&spec);
                quiet(self.ring.submitter().submit_with_args(1, &args))?
            }
        };
        // Everything that was pushed has been submitted: no entry names these places any more.
        if let Some(free) = self.free_files.as_mut()
            && self.ring.submission().is_empty()
        {
            free.append(&mut self.given_up);
        }
        Ok(())
    }

    /// Sees to it that the kernel has so many workers for calls that block, at least.
    pub(crate) fn have_workers(&self, least: u32) {
        match &self.calls {
            Some(calls) => calls.have_workers(least),
            None => raise_workers(&self.ring, least),
        }
    }

    /// Gives registered files back that no I/O in flight needs, without waiting for those that do.
    pub(crate) fn let_go_of_files(&mut self) {
        if self.free_files.is_some() {
            let none = vec![-1; FILES as usize];
            let _ = self.ring.submitter().register_files_update(0, &none);
        }
    }

    /// Gives registered files and buffers back at once. A ring that is merely dropped does so a
    /// while later, and its members would be busy until then. Not to be called with I/O in flight:
    /// it would wait for that.
    pub(crate) fn unregister_all(&mut self) {
        // What was never registered cannot be unregistered; nothing depends on it.
        let _ = self.ring.submitter().unregister_files();
        let _ = self.ring.submitter().unregister_buffers();
        self.free_files = None;
    }

    /// Takes every completion that is there.
    pub(crate) fn reap(&mut self, into: &mut Vec<Reaped>) {
        let mut silent = false;
        for entry in self.ring.completion() {
            match entry.user_data() {
                BELL => silent |= !cqueue::more(entry.flags()),
                _ => into.push(Reaped::of(&entry)),
            }
        }
        let Some(calls) = &mut self.calls else {
            return;
        };
        if silent {
            calls.hear();
        }
        calls.reap(into);
        if silent {
            self.poll_bell();
        }
    }
}

/// A poll that tells of readiness to read, again and again.
fn readable(fd: RawFd) -> squeue::Entry {
    opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32)
        .multi(true)
        .build()
}

/// Lets the kernel have so many workers at least for what this thread submits.
fn raise_workers(ring: &IoUring, least: u32) {
    let mut now = [0; 2];
    let submitter = ring.submitter();
    // Kernels before 5.15 have as many as they have.
    if submitter.register_iowq_max_workers(&mut now).is_ok() && now[0] < least {
        let _ = submitter.register_iowq_max_workers(&mut [least, 0]);
    }
}

/// Errors of `io_uring_enter` that mean "later".
fn quiet(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) => match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_user_data() {
        let tokens = [
            Token::Wake,
            Token::Watch,
            Token::Member(0),
            Token::Member(u32::MAX),
            Token::Ublk {
                queue: u16::MAX,
                tag: 4095,
            },
            Token::UblkBatch {
                queue: u16::MAX,
                step: u32::MAX,
            },
        ];
        for token in tokens {
            assert_eq!(Token::decode(token.encode()), token);
        }
    }

    #[test]
    fn more_entries_than_the_queue_holds_are_all_submitted() {
        let mut ring = Ring::new().expect("io_uring");
        let total = ENTRIES * 3 + 7;
        for place in 0..total {
            // SAFETY: a no-op names no memory.
            unsafe { ring.push(Token::Member(place), opcode::Nop::new().build()) };
        }
        let mut reaped = Vec::new();
        while reaped.len() < total as usize {
            ring.wait(Some(Duration::from_secs(5))).expect("wait");
            let before = reaped.len();
            ring.reap(&mut reaped);
            assert!(reaped.len() > before, "completions come");
        }
        let mut places: Vec<_> = reaped.iter().map(|r| r.token.encode()).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), total as usize);
    }

    #[test]
    fn a_ring_whose_requests_were_had_is_empty() {
        let mut ring = Ring::new().and_then(Ring::with_requests).expect("a ring");
        // SAFETY: a no-op names no memory.
        unsafe { ring.push(Token::Member(7), opcode::Nop::new().build()) };
        ring.wait(Some(Duration::from_secs(5))).expect("wait");
        let mut reaped = Vec::new();
        ring.reap(&mut reaped);
        let tokens: Vec<_> = reaped.iter().map(|one| one.token).collect();
        assert_eq!(tokens, [Token::Member(7)]);
    }

    #[test]
    fn waiting_ends_when_the_time_has_passed() {
        let mut ring = Ring::new().expect("io_uring");
        let start = std::time::Instant::now();
        ring.wait(Some(Duration::from_millis(30))).expect("wait");
        assert!(start.elapsed() >= Duration::from_millis(25));
    }
}
