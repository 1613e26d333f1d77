//! One queue of a ublk device, on the ring of one shard.
//!
//! A tag is always in one of four hands: the driver's (fetching), the array's (busy), or it waits
//! for a buffer (for its data, or to fetch again), or it has ended. **Ownership of buffers:** in
//! copy mode, the tag's buffer is the driver's while fetching; a write's buffer then goes to the
//! engine, which may keep it longer than the request lasts, and the tag fetches its next request
//! with another. In the other modes a tag has no buffer between requests.
//!
//! **Ownership of a request's pages:** they are its user's. In auto-buffer mode the driver
//! registers them with the ring under an index of the tag's own, from the fetch to the commit, and
//! reads of members may fill them meanwhile (the tag is *lent*). An answer is given only when none
//! of these reads is in the kernel any more, also where one outlasted its deadline: what a member
//! brought late would otherwise lie over what others made of it.
//!
//! Invariants: every request that came is answered once, by COMMIT_AND_FETCH or in a batch; the
//! queue ends when every tag was handed back with an error (in batches: when nothing is handed out
//! any more, and every answer was taken), and only then is the character device closed.
//! Deliberately absent: io_uring for the copies. /dev/ublkcN has no non-blocking reads, so the
//! ring would hand each copy to a kernel worker; pread and pwrite here are plain memory copies and
//! do not wait.

use std::fs::File;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use io_uring::{opcode, types};
use rustix::mm::{MapFlags, ProtFlags};
use strake_engine::VolumeMap;
use strake_engine::buffers::{Buf, Slice};
use strake_engine::event::{Op, RequestError, Slices};

use super::abi::{self, Descriptor, DeviceInfo, SECTOR};
use super::batch::{Batch, Step};
use super::waiting::QueueMemory;
use crate::mail::{Data, Mode, QueueStart, VolumeView};
use crate::ring::{Reaped, Ring, Token};

/// Sizes and counts of a queue's buffers.
pub(crate) type Stock = Vec<(usize, usize)>;

impl QueueStart {
    /// `started` gets a message when all tags are fetched; `ended` is dropped when the queue has
    /// closed the device.
    pub(super) fn new(
        device: Arc<File>,
        queue: u16,
        info: &DeviceInfo,
        (mode, volume): (Mode, Option<Arc<VolumeView>>),
        started: Sender<io::Result<()>>,
        ended: Sender<()>,
    ) -> QueueStart {
        let (depth, max_io_bytes) = (info.depth, info.max_io_bytes);
        QueueStart {
            device,
            queue,
            depth,
            max_io_bytes,
            mode,
            volume,
            started,
            ended,
        }
    }
}

/// The driver's list of requests, one for each tag.
struct Descriptors {
    base: NonNull<Descriptor>,
    bytes: usize,
    depth: u16,
}

impl Descriptors {
    fn map(device: &File, queue: u16, depth: u16) -> io::Result<Descriptors> {
        let bytes = (usize::from(depth) * size_of::<Descriptor>()).next_multiple_of(4096);
        let offset = abi::descriptors_offset(queue);
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping, at an address of the kernel's choice, changes no memory that is
        // in use.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                flags,
                device,
                offset,
            )
        }?;
        let base = NonNull::new(base.cast()).expect("a mapping is not at zero");
        Ok(Descriptors { base, bytes, depth })
    }

    fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "a tag of the queue");
        // SAFETY: `tag` lies within the mapping, which lives as long as `self`. The driver writes
        // the entry before it completes the fetch and not again before the commit; volatile,
        // because it is not this program that writes it.
        unsafe { self.base.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this address and length, and no reference into it
        // exists.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// What the array answers.
type Answered = Result<Slices, RequestError>;

/// The owner of a tag.
enum Tag {
    /// The driver's. In copy mode with a buffer for what comes.
    Fetching(Option<Buf>),
    /// The array's: a request of so many bytes. In copy mode a read keeps its buffer.
    Busy {
        read: bool,
        len: u64,
        buf: Option<Buf>,
        /// Reads of members that fill the request's pages now.
        borrowed: u32,
        /// An answer that waits for them.
        late: Option<Answered>,
    },
    /// A write waits for a buffer for its data.
    NeedsData,
    /// An answer waits for a buffer to fetch the next request with.
    NeedsFetch(i32),
    /// It has no owner any more.
    Ended,
}

/// See the module.
pub(crate) struct Queue {
    start: QueueStart,
    /// What its completions are known by on this thread's ring.
    key: u16,
    /// Where the ring's table has places for the pages of the first tags.
    pages: Range<u16>,
    descriptors: Descriptors,
    memory: QueueMemory,
    tags: Vec<Tag>,
    /// Tags that have not ended.
    live: u16,
    /// Where commands come in batches: they, and tags that are not the driver's.
    batch: Option<Batch>,
    held: u16,
}

/// What came of a completion.
pub(crate) enum Event {
    /// A request.
    Request(Op),
    /// Nothing for the array.
    Nothing,
    /// The queue is no more.
    Ended,
}

impl Queue {
    /// Fetches every tag. `None` if that could not be begun; the other end has been told.
    ///
    /// `pages`: places of the ring's table, one for each tag. A tag for which there is none has its
    /// reads copied in.
    pub(crate) fn start(
        start: QueueStart,
        key: u16,
        memory: &QueueMemory,
        pages: Range<u16>,
        ring: &mut Ring,
    ) -> Option<Queue> {
        let memory = memory.clone();
        let descriptors = match Descriptors::map(&start.device, start.queue, start.depth) {
            Ok(descriptors) => descriptors,
            Err(error) => {
                let _ = start.started.send(Err(error));
                return None;
            }
        };
        let mut bufs = vec![None; usize::from(start.depth)];
        if start.mode.data == Data::Copy {
            bufs = vec![start.max_io_bytes as usize; usize::from(start.depth)]
                .into_iter()
                .map(|bytes| memory.take(bytes, false))
                .collect();
            if bufs.iter().any(Option::is_none) {
                let _ = start
                    .started
                    .send(Err(io::Error::from(io::ErrorKind::OutOfMemory)));
                return None;
            }
        }
        let live = start.depth;
        let tags = (0..live).map(|_| Tag::Ended).collect();
        let mut queue = Queue {
            start,
            key,
            pages,
            descriptors,
            memory,
            tags,
            live,
            batch: None,
            held: 0,
        };
        match queue.start.mode.batch {
            true => {
                if let Err(error) = queue.start_batch(ring) {
                    let _ = queue.start.started.send(Err(error));
                    return None;
                }
            }
            false => {
                for (tag, buf) in (0..live).zip(bufs) {
                    queue.command(ring, abi::FETCH_REQ, tag, 0, buf);
                }
            }
        }
        // The entries go to the driver before this thread sleeps; START_DEV waits for them. Of a
        // batch it is told whether it was taken.
        if queue.batch.is_none() {
            let _ = queue.start.started.send(Ok(()));
        }
        Some(queue)
    }

    fn start_batch(&mut self, ring: &mut Ring) -> io::Result<()> {
        self.tags.fill_with(|| Tag::Fetching(None));
        let page = |tag| self.page_of(tag).unwrap_or(abi::NO_PAGE);
        let tags = (0..self.start.depth).map(|tag| (tag, page(tag)));
        let registers = self.start.mode.data == Data::AutoBuffer;
        let names = (self.start.queue, self.key, registers);
        self.batch = Some(Batch::start(
            ring,
            self.start.device.as_raw_fd(),
            names,
            tags,
        )?);
        Ok(())
    }

    /// Where the bytes of its requests lie, if not where they say.
    pub(crate) fn volume(&self) -> Option<Arc<VolumeMap>> {
        self.start.volume.as_ref().map(|volume| volume.map())
    }

    /// It has places for the pages of its requests.
    pub(crate) fn has_pages(&self) -> bool {
        !self.pages.is_empty()
    }

    fn command(
        &mut self,
        ring: &mut Ring,
        command: u32,
        tag: u16,
        result: i32,
        mut buf: Option<Buf>,
    ) {
        let addr = buf
            .as_mut()
            .map_or(0, |buf| buf.bytes_mut().as_mut_ptr() as u64);
        self.tags[usize::from(tag)] = Tag::Fetching(buf);
        let entry = opcode::UringCmd16::new(types::Fd(self.start.device.as_raw_fd()), command)
            .cmd(abi::io_command(self.start.queue, tag, result, addr));
        let entry = match self.start.mode.data {
            Data::AutoBuffer => entry.addr(Some(abi::register_at(self.page_of(tag)))),
            Data::UserCopy | Data::Copy => entry,
        };
        let entry = entry.build();
        // SAFETY: the buffer at this address stays in `tags` until the completion; `drop` leaks
        // those that are still the driver's.
        unsafe {
            ring.push(
                Token::Ublk {
                    queue: self.key,
                    tag,
                },
                entry,
            )
        };
    }

    /// Where the ring's table has the pages of a tag's request; without a place for them the driver
    /// is told one that no table has, and marks the request.
    fn page_of(&self, tag: u16) -> Option<u16> {
        self.pages.clone().nth(usize::from(tag))
    }

    /// A fetch has ended: with a request, or for good.
    pub(crate) fn event(&mut self, ring: &mut Ring, tag: u16, result: i32) -> Event {
        let state = std::mem::replace(&mut self.tags[usize::from(tag)], Tag::Ended);
        let Tag::Fetching(buf) = state else {
            panic!("a completion of tag {tag}, which does not fetch")
        };
        if result != abi::IO_RES_OK {
            if result != -libc::ENODEV {
                let error = io::Error::from_raw_os_error(-result);
                tracing::warn!(queue = self.start.queue, tag, %error, "ublk fetch");
            }
            self.live -= 1;
            return if self.live == 0 {
                Event::Ended
            } else {
                Event::Nothing
            };
        }
        match self.begin(tag, buf, false) {
            Begun::Request(op) => Event::Request(op),
            Begun::Starved(bytes) => {
                self.memory.wait((tag, self.key), bytes);
                Event::Nothing
            }
            Begun::Refused(errno) => {
                self.commit(ring, tag, -errno, None);
                Event::Nothing
            }
        }
    }

    /// A batch command has completed. Tags that brought requests are put into `tags`, for
    /// [`Queue::event`]; true if the queue is no more.
    pub(crate) fn batch_event(
        &mut self,
        ring: &mut Ring,
        done: &Reaped,
        tags: &mut Vec<u16>,
    ) -> bool {
        let batch = self.batch.as_mut().expect("a queue that takes batches");
        let Token::UblkBatch { step, .. } = done.token else {
            panic!("not a batch command: {done:?}")
        };
        match Step::decode(step) {
            Step::Prepared => {
                batch.prepared();
                let _ = self.start.started.send(match done.result {
                    errno if errno < 0 => Err(io::Error::from_raw_os_error(-errno)),
                    _ => Ok(()),
                });
            }
            Step::Fetched => {
                let result = (done.result, done.buffer, done.more);
                if let Err(errno) = batch.fetched(ring, result, tags) {
                    if errno != libc::ENODEV {
                        let error = io::Error::from_raw_os_error(errno);
                        tracing::warn!(queue = self.start.queue, %error, "ublk fetch");
                    }
                    self.live = 0;
                }
                self.held += tags.len() as u16;
            }
            Step::Committed(list) => {
                if let Err((errno, requests)) = batch.committed(ring, list, done.result) {
                    let error = io::Error::from_raw_os_error(errno);
                    tracing::warn!(queue = self.start.queue, requests, %error, "ublk answer");
                }
            }
        }
        self.live == 0 && self.held == 0 && self.batch.as_ref().is_some_and(Batch::quiet)
    }

    /// Gives the driver the answers that have gathered.
    pub(crate) fn flush(&mut self, ring: &mut Ring) {
        if let Some(batch) = &mut self.batch {
            batch.flush(ring);
        }
    }

    /// The queue is no more.
    pub(crate) fn end(mut self, ring: &Ring) {
        if let Some(batch) = self.batch.take() {
            batch.end(ring);
        }
    }

    /// Makes a request of what the driver wrote. `first`: it is the first of those that wait for
    /// memory.
    fn begin(&mut self, tag: u16, buf: Option<Buf>, first: bool) -> Begun {
        let descriptor = self.descriptors.get(tag);
        // A flush has no position, and says so with all bits; anything else that far out is
        // refused.
        let offset = descriptor.start_sector.saturating_mul(SECTOR);
        let len = u64::from(descriptor.sectors) * SECTOR;
        let fua = descriptor.op_flags & abi::IO_F_FUA != 0;
        let mut kept = None;
        let (op, read) = match descriptor.op_flags & 0xff {
            abi::OP_READ => {
                kept = buf;
                let registered = descriptor.op_flags & abi::IO_F_NEED_REG_BUF == 0;
                let fillable = registered && self.page_of(tag).is_some();
                match self.start.mode.data == Data::AutoBuffer && fillable {
                    true => (Op::ReadInPlace { offset, len, at: 0 }, true),
                    false => (Op::Read { offset, len }, true),
                }
            }
            abi::OP_WRITE => match self.data(tag, len, buf, first) {
                Ok(Some(data)) => (Op::Write { offset, data, fua }, false),
                Ok(None) => {
                    self.tags[usize::from(tag)] = Tag::NeedsData;
                    return Begun::Starved(len as usize);
                }
                Err(errno) => return Begun::Refused(errno),
            },
            abi::OP_FLUSH => (Op::Flush, false),
            abi::OP_DISCARD => (Op::Discard { offset, len }, false),
            abi::OP_WRITE_ZEROES => (Op::WriteZeroes { offset, len, fua }, false),
            other => {
                tracing::warn!(other, "a ublk request that was not offered");
                return Begun::Refused(libc::EOPNOTSUPP);
            }
        };
        self.tags[usize::from(tag)] = Tag::Busy {
            read,
            len,
            buf: kept,
            borrowed: 0,
            late: None,
        };
        Begun::Request(op)
    }

    /// The data of a write; `Ok(None)`: no buffer is free.
    fn data(
        &self,
        tag: u16,
        len: u64,
        buf: Option<Buf>,
        first: bool,
    ) -> Result<Option<Slice>, i32> {
        let len = len as usize;
        if let Some(buf) = buf {
            return if len <= buf.len() {
                Ok(Some(Slice::new(buf, 0, len)))
            } else {
                Err(libc::EIO)
            };
        }
        if self.memory.line_of(len).is_none() {
            return Err(libc::EIO);
        }
        let Some(mut buf) = self.memory.take(len, first) else {
            return Ok(None);
        };
        let at = abi::data_offset(self.start.queue, tag);
        let mut done = 0;
        while done < len {
            let room = &mut buf.bytes_mut()[done..len];
            match rustix::io::pread(&*self.start.device, room, at + done as u64) {
                Ok(0) => return Err(libc::EIO),
                Ok(got) => done += got,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.raw_os_error()),
            }
        }
        Ok(Some(Slice::new(buf, 0, len)))
    }

    /// A member is about to fill pages of a request: where the ring's table has them.
    pub(crate) fn lend(&mut self, tag: u16) -> u16 {
        let page = self.page_of(tag);
        let Tag::Busy { borrowed, .. } = &mut self.tags[usize::from(tag)] else {
            panic!("tag {tag} asks nothing that could be filled")
        };
        *borrowed += 1;
        page.expect("only a tag with a place asks to be read in place")
    }

    /// The kernel has let go of pages that were lent; true if an answer had waited for it.
    pub(crate) fn given_back(&mut self, ring: &mut Ring, tag: u16) -> bool {
        let Tag::Busy { borrowed, late, .. } = &mut self.tags[usize::from(tag)] else {
            panic!("tag {tag} has lent nothing")
        };
        *borrowed -= 1;
        let waited = late.take_if(|_| *borrowed == 0);
        let answers = waited.is_some();
        if let Some(result) = waited {
            self.answer(ring, tag, result);
        }
        answers
    }

    /// The array has answered a request.
    pub(crate) fn answer(&mut self, ring: &mut Ring, tag: u16, result: Answered) {
        if let Tag::Busy { borrowed, late, .. } = &mut self.tags[usize::from(tag)]
            && *borrowed > 0
        {
            *late = Some(result);
            return;
        }
        let state = std::mem::replace(&mut self.tags[usize::from(tag)], Tag::Ended);
        let Tag::Busy {
            read, len, mut buf, ..
        } = state
        else {
            panic!("an answer for tag {tag}, which asks nothing")
        };
        let value = match result {
            Ok(slices) if read => self.give(tag, len as usize, &slices, buf.as_mut()),
            Ok(_) => i32::try_from(len).unwrap_or(i32::MAX),
            Err(error) => -errno(error),
        };
        self.commit(ring, tag, value, buf);
    }

    /// Hands the data of a read to the driver (or puts it where the driver will take it), but for
    /// what members have put into the request's pages.
    fn give(&self, tag: u16, len: usize, slices: &[Slice], buf: Option<&mut Buf>) -> i32 {
        let have: usize = slices.iter().map(|slice| slice.len).sum();
        assert_eq!(have, len, "the answer of a read is as long as the request");
        if let Some(buf) = buf {
            let mut room = &mut buf.bytes_mut()[..len];
            for slice in slices {
                let (here, rest) = room.split_at_mut(slice.len);
                here.copy_from_slice(slice.bytes());
                room = rest;
            }
            return len as i32;
        }
        let mut at = abi::data_offset(self.start.queue, tag);
        for run in slices.chunk_by(|a, b| a.in_place() == b.in_place()) {
            let bytes: usize = run.iter().map(|slice| slice.len).sum();
            if !run[0].in_place()
                && let Err(errno) = self.put(at, run)
            {
                return -errno;
            }
            at += bytes as u64;
        }
        len as i32
    }

    /// Copies slices into a request's pages.
    fn put(&self, mut at: u64, slices: &[Slice]) -> Result<(), i32> {
        let mut parts: Vec<IoSlice<'_>> = slices
            .iter()
            .map(|slice| IoSlice::new(slice.bytes()))
            .collect();
        let mut left = &mut parts[..];
        while !left.is_empty() {
            let batch = left.len().min(1024);
            match rustix::io::pwritev(&*self.start.device, &left[..batch], at) {
                Ok(0) => return Err(libc::EIO),
                Ok(got) => {
                    at += got as u64;
                    IoSlice::advance_slices(&mut left, got);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.raw_os_error()),
            }
        }
        Ok(())
    }

    /// Answers the driver and fetches the next request of the tag.
    fn commit(&mut self, ring: &mut Ring, tag: u16, value: i32, buf: Option<Buf>) {
        let page = self.page_of(tag).unwrap_or(abi::NO_PAGE);
        if let Some(batch) = &mut self.batch {
            batch.answer(tag, page, value);
            self.tags[usize::from(tag)] = Tag::Fetching(None);
            self.held -= 1;
            return;
        }
        let buf = match (self.start.mode.data, buf) {
            (Data::UserCopy | Data::AutoBuffer, _) => None,
            (Data::Copy, Some(buf)) => Some(buf),
            (Data::Copy, None) => match self.memory.take(self.fetch_bytes(), false) {
                Some(buf) => Some(buf),
                None => {
                    self.tags[usize::from(tag)] = Tag::NeedsFetch(value);
                    self.memory.wait((tag, self.key), self.fetch_bytes());
                    return;
                }
            },
        };
        self.command(ring, abi::COMMIT_AND_FETCH_REQ, tag, value, buf);
    }

    /// What a tag fetches requests with in copy mode.
    fn fetch_bytes(&self) -> usize {
        self.start.max_io_bytes as usize
    }

    /// Tries again for a tag that is the first of those that wait for a buffer. `None`: there is
    /// none yet.
    pub(crate) fn retry(&mut self, ring: &mut Ring, tag: u16) -> Option<Event> {
        match self.tags[usize::from(tag)] {
            Tag::NeedsData => match self.begin(tag, None, true) {
                Begun::Request(op) => return Some(Event::Request(op)),
                Begun::Starved(_) => return None,
                Begun::Refused(errno) => self.commit(ring, tag, -errno, None),
            },
            Tag::NeedsFetch(value) => {
                let buf = self.memory.take(self.fetch_bytes(), true)?;
                self.commit(ring, tag, value, Some(buf));
            }
            _ => {}
        }
        Some(Event::Nothing)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        for tag in self.tags.drain(..) {
            if let Tag::Fetching(Some(buf)) = tag {
                // The driver may still write there.
                std::mem::forget(buf);
            }
        }
        tracing::debug!(queue = self.start.queue, "ublk queue ended");
        let _ = &self.start.ended;
    }
}

enum Begun {
    Request(Op),
    /// A buffer for so many bytes is to be waited for.
    Starved(usize),
    Refused(i32),
}

/// What the block layer is told of a failed request.
fn errno(error: RequestError) -> i32 {
    match error {
        RequestError::Invalid => libc::EINVAL,
        RequestError::Unreadable | RequestError::Failed => libc::EIO,
        RequestError::Stopping => libc::ESHUTDOWN,
    }
}
