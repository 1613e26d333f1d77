//! The commands of a ublk queue in batches (7.0): one command hands out request after request, one
//! answers many.
//!
//! * PREP_IO_CMDS, once, readies all tags;
//! * FETCH_IO_CMDS, a multishot command, completes again and again, each time with a list of tags
//!   in a buffer that it takes from a *provided ring*; the buffer goes back when it has been read.
//!   Out of buffers it ends, and is given anew;
//! * COMMIT_IO_CMDS answers every tag of a list, and readies it again. Answers gather for as long
//!   as the thread works, and leave before it sleeps.
//!
//! **Ownership of memory:** lists of answers are the driver's until their command completes,
//! buffers for tags for as long as they are in the ring. What the driver has at the end is leaked.
//!
//! Invariants: a tag is in one list of answers for each request that it brought; the part of a list
//! that the driver did not take is given again.
//!
//! Deliberately absent: several fetches of one queue (one thread serves it).

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use io_uring::{opcode, squeue, types};

use super::abi;
use crate::ring::{Ring, Token};

/// Buffers for tags; a power of two.
const BUFFERS: u16 = 32;
/// Tags in a buffer: as many as the driver hands out at once.
const TAGS: usize = 128;

/// What a completion of a batch command means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// All tags are ready.
    Prepared,
    /// Tags, or the end of the fetch.
    Fetched,
    /// A list of answers was taken: the one in this place.
    Committed(u16),
}

impl Step {
    /// For a token.
    pub(crate) fn encode(self) -> u32 {
        match self {
            Step::Prepared => 0,
            Step::Fetched => 1,
            Step::Committed(list) => 2 + u32::from(list),
        }
    }

    /// From a token.
    pub(crate) fn decode(number: u32) -> Step {
        match number {
            0 => Step::Prepared,
            1 => Step::Fetched,
            list => Step::Committed((list - 2) as u16),
        }
    }
}

/// One page for the provided ring, and the buffers in it.
#[repr(C, align(4096))]
struct Shared {
    ring: [BufRingEntry; BUFFERS as usize],
    buffers: [[u16; TAGS]; BUFFERS as usize],
}

/// Buffers that the driver fills with tags.
struct TagBuffers {
    shared: NonNull<Shared>,
    group: u16,
    /// Of the provided ring: where the next buffer goes.
    tail: u16,
}

impl TagBuffers {
    /// Registers them with the ring as `group`.
    fn new(ring: &Ring, group: u16) -> io::Result<TagBuffers> {
        // SAFETY: zeros are a valid value of every field: they are integers all of them.
        let shared = unsafe { Box::<Shared>::new_zeroed().assume_init() };
        let shared = NonNull::from(Box::leak(shared));
        // SAFETY: the memory is leaked, and freed after the group was unregistered only.
        let registered = unsafe { ring.register_group(shared.as_ptr() as u64, BUFFERS, group) };
        if let Err(error) = registered {
            // SAFETY: it came from a box, and the kernel has not taken it.
            drop(unsafe { Box::from_raw(shared.as_ptr()) });
            return Err(error);
        }
        let mut buffers = TagBuffers {
            shared,
            group,
            tail: 0,
        };
        (0..BUFFERS).for_each(|buffer| buffers.provide(buffer));
        Ok(buffers)
    }

    fn buffer(&self, buffer: u16) -> *mut [u16; TAGS] {
        assert!(
            buffer < BUFFERS,
            "the driver names a buffer that it was given"
        );
        let shared = self.shared.as_ptr();
        // SAFETY: the place lies within `shared`; no reference is made.
        unsafe {
            (&raw mut (*shared).buffers)
                .cast::<[u16; TAGS]>()
                .add(usize::from(buffer))
        }
    }

    /// Gives a buffer to the driver.
    fn provide(&mut self, buffer: u16) {
        let at = usize::from(self.tail % BUFFERS);
        let place = self.buffer(buffer);
        let shared = self.shared.as_ptr();
        // SAFETY: the entry lies within `shared`, and the kernel does not read it before the tail
        // has moved beyond it; the tail itself lies in bytes of the first entry that the setters
        // leave alone.
        let (entry, tail) = unsafe {
            let ring = (&raw mut (*shared).ring).cast::<BufRingEntry>();
            (
                &mut *ring.add(at),
                BufRingEntry::tail(ring).cast::<AtomicU16>(),
            )
        };
        entry.set_addr(place as u64);
        entry.set_len(size_of::<[u16; TAGS]>() as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: aligned as a `u16` is, and shared with the kernel, which reads it atomically.
        unsafe { (*tail).store(self.tail, Ordering::Release) };
    }

    /// The tags in the first `bytes` bytes of a buffer that was filled; gives it back.
    fn take(&mut self, buffer: u16, bytes: usize, into: &mut Vec<u16>) {
        let count = (bytes / size_of::<u16>()).min(TAGS);
        let place = self.buffer(buffer).cast::<u16>();
        // SAFETY: within the buffer, which is ours from its completion until it is provided again.
        into.extend((0..count).map(|at| unsafe { place.add(at).read_volatile() }));
        self.provide(buffer);
    }
}

/// See the module.
pub(super) struct Batch {
    device: RawFd,
    queue: u16,
    /// What its completions are known by on this thread's ring.
    key: u16,
    /// Pages of requests are registered.
    registers: bool,
    buffers: TagBuffers,
    /// Answers that were not given to the driver yet.
    answers: Vec<u8>,
    /// Lists that are the driver's, with how many bytes it took of each already.
    lists: Vec<Option<(Vec<u8>, usize)>>,
    free: VecDeque<u16>,
    fetching: bool,
    preparing: Option<Vec<u8>>,
}

impl Batch {
    /// Begins: all `tags` are readied, each with the place for its pages, and then fetched.
    pub(super) fn start(
        ring: &mut Ring,
        device: RawFd,
        (queue, key, registers): (u16, u16, bool),
        tags: impl Iterator<Item = (u16, u16)>,
    ) -> io::Result<Batch> {
        let mut batch = Batch {
            device,
            queue,
            key,
            registers,
            buffers: TagBuffers::new(ring, key)?,
            answers: Vec::new(),
            lists: Vec::new(),
            free: VecDeque::new(),
            fetching: false,
            preparing: None,
        };
        let tags = tags.flat_map(|(tag, page)| abi::element(tag, page, 0));
        let list: Vec<u8> = tags.collect();
        batch.command(ring, abi::PREP_IO_CMDS, &list, Step::Prepared);
        batch.preparing = Some(list);
        batch.fetch(ring);
        Ok(batch)
    }

    fn command(&self, ring: &mut Ring, command: u32, list: &[u8], step: Step) {
        let elements = (list.len() / abi::ELEMENT_BYTES) as u16;
        let entry = opcode::UringCmd16::new(types::Fd(self.device), command)
            .cmd(abi::batch_command(self.queue, elements, self.registers))
            .addr(Some(list.as_ptr() as u64))
            .build();
        // SAFETY: the callers keep the list until the command has completed; `drop` leaks what is
        // still the driver's.
        unsafe { ring.push(self.token(step), entry) };
    }

    fn token(&self, step: Step) -> Token {
        Token::UblkBatch {
            queue: self.key,
            step: step.encode(),
        }
    }

    fn fetch(&mut self, ring: &mut Ring) {
        let entry = opcode::UringCmd16::new(types::Fd(self.device), abi::FETCH_IO_CMDS)
            .cmd(abi::fetch_command(self.queue))
            .buf_index(Some(self.buffers.group))
            .build();
        // SAFETY: the buffers live as long as the group is registered.
        unsafe { ring.push(self.token(Step::Fetched), multishot(entry)) };
        self.fetching = true;
    }

    /// Tags that the driver hands out. `Err` when it will hand out no more, with its errno.
    pub(super) fn fetched(
        &mut self,
        ring: &mut Ring,
        (result, buffer, more): (i32, Option<u16>, bool),
        tags: &mut Vec<u16>,
    ) -> Result<(), i32> {
        if let (Ok(bytes), Some(buffer)) = (usize::try_from(result), buffer) {
            self.buffers.take(buffer, bytes, tags);
        }
        if more {
            return Ok(());
        }
        self.fetching = false;
        if result < 0 && result != -libc::ENOBUFS {
            return Err(-result);
        }
        self.fetch(ring);
        Ok(())
    }

    /// The driver has readied all tags, or not.
    pub(super) fn prepared(&mut self) {
        self.preparing = None;
    }

    /// Answers a request; leaves with [`Batch::flush`].
    pub(super) fn answer(&mut self, tag: u16, page: u16, result: i32) {
        self.answers.extend(abi::element(tag, page, result));
    }

    /// Gives the driver the answers that have gathered.
    pub(super) fn flush(&mut self, ring: &mut Ring) {
        if self.answers.is_empty() {
            return;
        }
        let place = self.free.pop_front().unwrap_or_else(|| {
            self.lists.push(None);
            (self.lists.len() - 1) as u16
        });
        let answers = std::mem::take(&mut self.answers);
        self.commit(ring, place, answers, 0);
    }

    fn commit(&mut self, ring: &mut Ring, place: u16, list: Vec<u8>, done: usize) {
        let step = Step::Committed(place);
        self.command(ring, abi::COMMIT_IO_CMDS, &list[done..], step);
        self.lists[usize::from(place)] = Some((list, done));
    }

    /// The driver took a list, a part of it, or nothing: then `Err` with its errno, and how many
    /// requests have lost their answers.
    pub(super) fn committed(
        &mut self,
        ring: &mut Ring,
        place: u16,
        result: i32,
    ) -> Result<(), (i32, usize)> {
        let given = self.lists.get_mut(usize::from(place));
        let (mut list, mut done) = given
            .and_then(Option::take)
            .expect("a list that it was given");
        let Ok(bytes) = usize::try_from(result) else {
            self.free.push_back(place);
            return Err((-result, (list.len() - done) / abi::ELEMENT_BYTES));
        };
        done += bytes;
        if done < list.len() && bytes > 0 {
            self.commit(ring, place, list, done);
            return Ok(());
        }
        let left = (list.len() - done) / abi::ELEMENT_BYTES;
        self.free.push_back(place);
        list.clear();
        if self.answers.capacity() == 0 {
            self.answers = list;
        }
        match left {
            0 => Ok(()),
            _ => Err((libc::EIO, left)),
        }
    }

    /// The driver has none of its memory, and nothing waits to go there.
    pub(super) fn quiet(&self) -> bool {
        let idle = !self.fetching && self.preparing.is_none() && self.answers.is_empty();
        idle && self.lists.iter().all(Option::is_none)
    }

    /// Gives its memory back, if the driver has none of it.
    pub(super) fn end(self, ring: &Ring) {
        if self.quiet() && ring.unregister_group(self.buffers.group).is_ok() {
            // SAFETY: it came from a box, and the kernel knows it no more.
            drop(unsafe { Box::from_raw(self.buffers.shared.as_ptr()) });
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // The driver may still read these; the buffers for tags are freed by `end` only.
        self.lists.drain(..).flatten().for_each(std::mem::forget);
        self.preparing.take().into_iter().for_each(std::mem::forget);
    }
}

/// Makes a command one that completes again and again, each time with a buffer of the group that
/// it names as `buf_index`: for that the library has no words.
fn multishot(entry: squeue::Entry) -> squeue::Entry {
    /// `uring_cmd_flags` of `struct io_uring_sqe`, and `IORING_URING_CMD_MULTISHOT` for it.
    const FLAGS_AT: usize = 28;
    const MULTISHOT: u32 = 1 << 1;
    const _: () = assert!(size_of::<squeue::Entry>() == 64);
    let mut entry = entry.flags(squeue::Flags::BUFFER_SELECT);
    // SAFETY: an entry is a `struct io_uring_sqe` and nothing else, so these are its four bytes of
    // flags, aligned.
    unsafe {
        (&raw mut entry)
            .cast::<u8>()
            .add(FLAGS_AT)
            .cast::<u32>()
            .write(MULTISHOT)
    };
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_survive_their_numbers() {
        for step in [Step::Prepared, Step::Fetched, Step::Committed(u16::MAX)] {
            assert_eq!(Step::decode(step.encode()), step);
        }
    }

    #[test]
    fn a_buffer_that_was_read_is_given_back_and_filled_again() {
        let ring = Ring::new().expect("io_uring");
        let mut buffers = TagBuffers::new(&ring, 7).expect("provided rings");
        let mut tags = Vec::new();
        for turn in 0..3 * BUFFERS {
            let place = buffers.buffer(turn % BUFFERS).cast::<u16>();
            // SAFETY: what the kernel would do.
            unsafe {
                place.write(turn);
                place.add(1).write(turn + 1);
            }
            buffers.take(turn % BUFFERS, 4, &mut tags);
            assert_eq!(tags[tags.len() - 2..], [turn, turn + 1]);
        }
        assert_eq!(buffers.tail, 4 * BUFFERS);
        ring.unregister_group(7).expect("it was registered");
    }
}
