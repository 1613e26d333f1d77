//! One connection in transmission: a reader (this thread), a writer, and what goes between.
//!
//! The reader turns requests into engine requests of a part (1 MiB) at most and posts them; each
//! is answered on a shard's thread into memory of the connection, and the writer sends. Answers
//! leave in the order in which they are ready; only the parts of a simple reply leave in their own
//! order, with nothing between.
//!
//! Invariants:
//! * A part holds one buffer of the connection's share from before it is asked for until it is
//!   sent, and a request one place among [`REQUESTS_MAX`] until its answer is: a client that does
//!   not read stops only its own requests.
//! * Every request is answered once, or the connection is closed.
//! * A simple reply cannot take back its "no error": a failure after the first part hangs up.
//!
//! Deliberately absent: buffers registered with rings (one copy between socket and memory
//! dominates here).

use std::cell::OnceCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::Shutdown;
use std::num::NonZeroU32;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use strake_engine::VolumeMap;
use strake_engine::buffers::{Buf, Slice};
use strake_engine::event::{Op, RequestError, Slices};
use strake_engine::units::ShardNo;
use strake_format::RegionState;

use super::negotiate::{Agreed, broken, negotiate, skip};
use super::wire::{self, Chunk, CommandKind, ErrorCode, Request};
use crate::export::{InFlight, Place, Target};
use crate::mail::{Answer, Mail, Peers};
use crate::memory;
use crate::memory::buffers::Share;
use crate::spawn::spawn_scoped;

/// Largest engine request.
const PART: u32 = 1 << 20;
/// Memory of a connection, 14 MiB: 64 small requests and a few large ones in flight.
const STOCK: [(usize, usize); 3] = [(16 << 10, 64), (128 << 10, 40), (PART as usize, 8)];
/// A client that connects negotiates soon.
const NEGOTIATION: Duration = Duration::from_secs(30);
/// Requests that were not answered yet, at most: beyond, they wait in the socket.
const REQUESTS_MAX: NonZeroU32 = NonZeroU32::new(256).expect("not zero");
/// How long the array is waited for that is asked for holes: its thread waits for nothing.
const HOLES_PATIENCE: Duration = Duration::from_secs(10);
/// Extents in one answer, at most.
const EXTENTS_MAX: u32 = 4096;

/// Negotiates, then serves until the client leaves or the stream ends. `has_agreed` learns that the
/// negotiation is over; it is false for a connection that is to end all the same. `refused` learns
/// why a client is not served.
pub(super) fn serve(
    stream: &UnixStream,
    target: &Target,
    shard: ShardNo,
    has_agreed: impl FnOnce() -> bool,
    refused: impl Fn(&dyn Display),
) -> io::Result<()> {
    let mut hurried = Hurried::new(stream, NEGOTIATION);
    let Some((agreed, last)) = negotiate(&mut hurried, target)? else {
        return Ok(());
    };
    let bytes = STOCK.map(|(bytes, count)| (bytes * count) as u64);
    let _reserved = match memory::reserve_for_client(bytes.iter().sum()) {
        Ok(reserved) => reserved,
        Err(error) => {
            refused(&error);
            return Ok(());
        }
    };
    if !has_agreed() {
        return Ok(());
    }
    hurried.write_all(&last)?;
    hurried.at_leisure()?;
    let share = Share::new(&STOCK).ok_or(io::ErrorKind::OutOfMemory)?;
    let share = Arc::new(share);
    let (out, outgoing) = channel();
    std::thread::scope(|scope| {
        let writer = Writer::new(stream, Arc::clone(&share), agreed.structured);
        let spawned = spawn_scoped(scope, "strake-nbd-out", move || writer.run(&outgoing));
        let mut reader = Reader {
            input: BufReader::with_capacity(4096, stream),
            target,
            shard,
            agreed,
            share,
            out,
            jobs: 0,
            zeros: OnceCell::new(),
            places: InFlight::new(REQUESTS_MAX),
        };
        let served = match spawned {
            Ok(_) => reader.run(),
            Err(error) => {
                refused(&error);
                Ok(())
            }
        };
        // The writer ends when the last request in flight has been answered.
        drop(reader);
        served
    })
}

/// From the shards (and the reader) to the writer.
enum Out {
    /// A whole message, and the place of its request.
    Message(Vec<u8>, Arc<Place>),
    /// A part of a read.
    Part {
        job: Arc<ReadJob>,
        part: u32,
        result: Result<Buf, ErrorCode>,
    },
}

/// A read under way.
struct ReadJob {
    number: u64,
    cookie: u64,
    offset: u64,
    len: u32,
    /// Until the last of it is sent.
    _place: Arc<Place>,
}

impl ReadJob {
    fn parts(&self) -> u32 {
        self.len.div_ceil(PART)
    }

    fn part_len(&self, part: u32) -> u32 {
        PART.min(self.len - part * PART)
    }
}

/// A write under way: answered when its last part is.
struct WriteJob {
    cookie: u64,
    place: Arc<Place>,
    parts_left: AtomicU32,
    /// First error as its number, 0 for none.
    error: AtomicU32,
}

struct Reader<'a> {
    input: BufReader<&'a UnixStream>,
    target: &'a Target,
    shard: ShardNo,
    agreed: Agreed,
    share: Arc<Share>,
    out: Sender<Out>,
    jobs: u64,
    /// A part of zeros, once one was needed.
    zeros: OnceCell<Buf>,
    /// Of requests that were not answered yet.
    places: Arc<InFlight>,
}

impl Reader<'_> {
    fn run(&mut self) -> io::Result<()> {
        let mut head = [0; Request::BYTES];
        loop {
            match self.input.read_exact(&mut head) {
                Ok(()) => {}
                // The client left without a word, or the server stops.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
            let request = Request::decode(&head).map_err(|e| broken(&e.to_string()))?;
            if request.kind == CommandKind::Disconnect {
                return Ok(());
            }
            self.request(request)?;
        }
    }

    fn request(&mut self, request: Request) -> io::Result<()> {
        // The writer goes on taking answers, also when the client reads no more.
        let place = Arc::new(self.places.enter());
        if let Some(error) = self.refusal(&request) {
            if request.kind == CommandKind::Write {
                if request.len > wire::PAYLOAD_BYTES_MAX {
                    return Err(broken("a write that is far too long"));
                }
                skip(&mut self.input, u64::from(request.len))?;
            }
            self.refuse(&request, error, place);
            return Ok(());
        }
        let (cookie, offset, len) = (request.cookie, request.offset, u64::from(request.len));
        let fua = request.flags & wire::CMD_FLAG_FUA != 0;
        match request.kind {
            CommandKind::Read => return self.read(&request, place),
            CommandKind::Write => return self.write(&request, fua, place),
            CommandKind::Flush => self.submit(Op::Flush, self.plain_answer(cookie, place)),
            CommandKind::Trim => {
                self.trim(offset, len, fua, self.plain_answer(cookie, place));
            }
            CommandKind::WriteZeroes if request.flags & wire::CMD_FLAG_NO_HOLE != 0 => {
                let zeros = Zeros {
                    peers: self.target.peers.clone(),
                    shard: self.shard,
                    map: self.target.map(),
                    buf: self
                        .zeros
                        .get_or_init(|| Buf::zeroed(PART as usize))
                        .clone(),
                    fua,
                };
                zeros.write(offset..offset + len, self.plain_answer(cookie, place));
            }
            CommandKind::WriteZeroes => {
                self.submit(
                    Op::WriteZeroes { offset, len, fua },
                    self.plain_answer(cookie, place),
                );
            }
            CommandKind::BlockStatus => self.block_status(&request, place),
            CommandKind::Disconnect | CommandKind::Unknown(_) => {
                unreachable!("handled before, or refused")
            }
        }
        Ok(())
    }

    /// Why a request cannot be carried out, if so.
    fn refusal(&self, request: &Request) -> Option<ErrorCode> {
        let len = u64::from(request.len);
        let beyond = request
            .offset
            .checked_add(len)
            .is_none_or(|end| end > self.target.size());
        if !request.flags_known() {
            return Some(ErrorCode::Invalid);
        }
        let limited = matches!(request.kind, CommandKind::Read | CommandKind::Write);
        if limited && request.len > wire::PAYLOAD_BYTES_MAX {
            return Some(ErrorCode::Invalid);
        }
        match request.kind {
            CommandKind::Flush => None,
            CommandKind::Write | CommandKind::WriteZeroes if beyond => Some(ErrorCode::NoSpace),
            // Block status may be asked for at any byte.
            CommandKind::BlockStatus if !self.agreed.allocation || beyond || len == 0 => {
                Some(ErrorCode::Invalid)
            }
            CommandKind::BlockStatus => None,
            CommandKind::Read if request.flags & wire::CMD_FLAG_DF != 0 && request.len > PART => {
                Some(ErrorCode::Overflow)
            }
            CommandKind::Read
            | CommandKind::Write
            | CommandKind::Trim
            | CommandKind::WriteZeroes => {
                (!self.target.valid(request.offset, len)).then_some(ErrorCode::Invalid)
            }
            CommandKind::Disconnect | CommandKind::Unknown(_) => Some(ErrorCode::Invalid),
        }
    }

    fn refuse(&self, request: &Request, error: ErrorCode, place: Arc<Place>) {
        let chunked = matches!(request.kind, CommandKind::Read | CommandKind::BlockStatus);
        let message = if self.agreed.structured && chunked {
            wire::error_chunk(request.cookie, true, error)
        } else {
            wire::simple_reply(request.cookie, Some(error)).to_vec()
        };
        self.send(message, place);
    }

    fn send(&self, message: Vec<u8>, place: Arc<Place>) {
        // The writer outlives the reader.
        let _ = self.out.send(Out::Message(message, place));
    }

    fn submit(&self, op: Op, answer: Answer) {
        let answer = match &self.target.in_flight {
            None => answer,
            Some(bound) => {
                let place = bound.enter();
                Box::new(move |result| {
                    drop(place);
                    answer(result);
                })
            }
        };
        // A shard that has ended drops the request, and with it the connection's last hope: the
        // writer ends.
        self.target
            .peers
            .shard(self.shard)
            .post(Mail::Submit(op, answer, self.target.map()));
    }

    /// Answers a request without data.
    fn plain_answer(&self, cookie: u64, place: Arc<Place>) -> Answer {
        let out = self.out.clone();
        Box::new(move |result| {
            let message = wire::simple_reply(cookie, result.err().map(code)).to_vec();
            let _ = out.send(Out::Message(message, place));
        })
    }

    fn buffer(&self, bytes: u32) -> io::Result<Buf> {
        self.share
            .take(bytes as usize)
            .ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))
    }

    fn read(&mut self, request: &Request, place: Arc<Place>) -> io::Result<()> {
        self.jobs += 1;
        let (cookie, offset, len) = (request.cookie, request.offset, request.len);
        let job = Arc::new(ReadJob {
            number: self.jobs,
            cookie,
            offset,
            len,
            _place: place,
        });
        for part in 0..job.parts() {
            let len = job.part_len(part);
            let mut buf = self.buffer(len)?;
            let (job, out) = (Arc::clone(&job), self.out.clone());
            let op = Op::Read {
                offset: offset + u64::from(part) * u64::from(PART),
                len: u64::from(len),
            };
            let answer = move |result: Result<Slices, RequestError>| {
                let result = match result {
                    Ok(slices) => {
                        gather(&slices, &mut buf.bytes_mut()[..len as usize]);
                        Ok(buf)
                    }
                    Err(error) => Err(code(error)),
                };
                let _ = out.send(Out::Part { job, part, result });
            };
            self.submit(op, Box::new(answer));
        }
        Ok(())
    }

    fn write(&mut self, request: &Request, fua: bool, place: Arc<Place>) -> io::Result<()> {
        let parts = request.len.div_ceil(PART);
        let job = Arc::new(WriteJob {
            cookie: request.cookie,
            place,
            parts_left: AtomicU32::new(parts),
            error: AtomicU32::new(0),
        });
        for part in 0..parts {
            let len = PART.min(request.len - part * PART) as usize;
            let mut buf = self.buffer(len as u32)?;
            self.input.read_exact(&mut buf.bytes_mut()[..len])?;
            let offset = request.offset + u64::from(part) * u64::from(PART);
            let op = Op::Write {
                offset,
                data: Slice::new(buf, 0, len),
                fua,
            };
            let (job, out, share) = (Arc::clone(&job), self.out.clone(), Arc::clone(&self.share));
            let answer = move |result: Result<Slices, RequestError>| {
                share.returned();
                if let Err(error) = result {
                    let number = code(error) as u32;
                    let _ =
                        job.error
                            .compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
                }
                if job.parts_left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    let error = code_of(job.error.load(Ordering::Acquire));
                    let message = wire::simple_reply(job.cookie, error).to_vec();
                    let _ = out.send(Out::Message(message, Arc::clone(&job.place)));
                }
            };
            self.submit(op, Box::new(answer));
        }
        Ok(())
    }

    /// A discard cannot be durable by itself: with FUA a flush follows it.
    fn trim(&self, offset: u64, len: u64, fua: bool, answer: Answer) {
        if !fua {
            return self.submit(Op::Discard { offset, len }, answer);
        }
        let (peers, shard) = (self.target.peers.clone(), self.shard);
        let then_flush = move |result: Result<Slices, RequestError>| match result {
            Ok(_) => {
                peers
                    .shard(shard)
                    .post(Mail::Submit(Op::Flush, answer, None));
            }
            Err(error) => answer(Err(error)),
        };
        self.submit(Op::Discard { offset, len }, Box::new(then_flush));
    }

    fn block_status(&self, request: &Request, place: Arc<Place>) {
        let (offset, len) = (request.offset, u64::from(request.len));
        let one = request.flags & wire::CMD_FLAG_REQ_ONE != 0;
        let mut extents: Vec<(u32, u32)> = Vec::new();
        let mut asked = 0;
        let until = Instant::now() + HOLES_PATIENCE;
        let ranges: Vec<Range<u64>> = match self.target.map() {
            None => std::iter::once(offset..offset + len).collect(),
            Some(volume) => volume.ranges(offset, len).collect(),
        };
        for range in ranges {
            let most = EXTENTS_MAX - asked;
            let Some(told) = self.holes(range.clone(), most, until) else {
                return self.refuse(request, ErrorCode::Shutdown, place);
            };
            asked += told.len() as u32;
            let whole = told.iter().map(|(len, _)| u64::from(*len)).sum::<u64>();
            for (len, flags) in told {
                match extents.last_mut() {
                    Some(extent) if extent.1 == flags => extent.0 += len,
                    _ => extents.push((len, flags)),
                }
            }
            if whole < range.end - range.start || asked >= EXTENTS_MAX || one && extents.len() > 1 {
                break;
            }
        }
        if one {
            extents.truncate(1);
        }
        self.send(wire::block_status_chunk(request.cookie, &extents), place);
    }

    /// What a range of the array is, region by region, `most` of them from the first on; data where
    /// the array does not say it in time, `None` where it is not served any more.
    fn holes(&self, range: Range<u64>, most: u32, until: Instant) -> Option<Vec<(u32, u32)>> {
        let geometry = &self.target.geometry;
        let all = vec![((range.end - range.start) as u32, wire::EXTENT_DATA)];
        if !self.in_this_shape() {
            return Some(all);
        }
        let region_of = |byte: u64| geometry.region(geometry.row(geometry.locate(byte).stripe).1);
        let (first, last) = (region_of(range.start), region_of(range.end - 1));
        let count = (last.0 - first.0 + 1).min(most);
        let (answer, states) = channel();
        self.target
            .peers
            .array()
            .post(Mail::Regions(first, count, answer));
        let states = match states.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(states) => states,
            Err(RecvTimeoutError::Timeout) => return Some(all),
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        let mut at = range.start;
        let told = (first.0..).zip(states).map(|(region, state)| {
            let region = geometry.region_bytes(strake_engine::units::RegionNo(region));
            // At most the length of the request, which fits.
            let len = (region.end.min(range.end) - at) as u32;
            at = region.end.min(range.end);
            match state {
                RegionState::Unwritten => (len, wire::EXTENT_HOLE_ZERO),
                _ => (len, wire::EXTENT_DATA),
            }
        });
        let told = told.collect();
        // States of another shape tell nothing of these places.
        Some(if self.in_this_shape() { told } else { all })
    }

    /// The array has the shape that it had when the client connected, and data does not move.
    fn in_this_shape(&self) -> bool {
        let geometry = &self.target.geometry;
        geometry.old_shape.is_none() && *self.target.shape.now() == **geometry
    }
}

/// Zeros that are written as data, so that they make no hole: part after part.
struct Zeros {
    peers: Peers,
    shard: ShardNo,
    map: Option<Arc<VolumeMap>>,
    buf: Buf,
    fua: bool,
}

impl Zeros {
    /// Writes them to this range, and answers.
    fn write(self, range: Range<u64>, answer: Answer) {
        let len = u64::from(PART).min(range.end - range.start);
        let op = Op::Write {
            offset: range.start,
            data: Slice::new(self.buf.clone(), 0, len as usize),
            fua: self.fua,
        };
        let left = range.start + len..range.end;
        let (peers, shard, map) = (self.peers.clone(), self.shard, self.map.clone());
        let then: Answer = Box::new(move |result| match result {
            Ok(_) if !left.is_empty() => self.write(left, answer),
            result => answer(result),
        });
        peers.shard(shard).post(Mail::Submit(op, then, map));
    }
}

/// A stream that is read and written until a moment, however little comes at a time.
struct Hurried<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl Hurried<'_> {
    fn new(stream: &UnixStream, within: Duration) -> Hurried<'_> {
        let until = Instant::now() + within;
        Hurried { stream, until }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::Error::from(io::ErrorKind::TimedOut)),
            false => Ok(Some(left)),
        }
    }

    /// From now on it takes as long as it takes.
    fn at_leisure(self) -> io::Result<()> {
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(None)
    }
}

impl Read for Hurried<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buf)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Copies the answer of a read into one piece.
fn gather(slices: &[Slice], mut room: &mut [u8]) {
    for slice in slices {
        let (here, rest) = room.split_at_mut(slice.len);
        here.copy_from_slice(slice.bytes());
        room = rest;
    }
    assert!(
        room.is_empty(),
        "the answer of a read is as long as the request"
    );
}

fn code(error: RequestError) -> ErrorCode {
    match error {
        RequestError::Invalid => ErrorCode::Invalid,
        RequestError::Unreadable | RequestError::Failed => ErrorCode::Io,
        RequestError::Stopping => ErrorCode::Shutdown,
    }
}

/// The code with this number; 0 is none.
fn code_of(number: u32) -> Option<ErrorCode> {
    let all = [
        ErrorCode::Io,
        ErrorCode::Invalid,
        ErrorCode::NoSpace,
        ErrorCode::Overflow,
        ErrorCode::Shutdown,
    ];
    all.into_iter().find(|&code| code as u32 == number)
}

/// A read as the writer sees it.
#[derive(Default)]
struct Reply {
    /// Parts that have arrived.
    arrived: u32,
    /// Parts that came before their turn (simple replies).
    early: BTreeMap<u32, Result<Buf, ErrorCode>>,
    /// Next part to send (simple replies).
    next: u32,
    failed: Option<ErrorCode>,
}

struct Writer<'a> {
    stream: &'a UnixStream,
    share: Arc<Share>,
    structured: bool,
    replies: BTreeMap<u64, Reply>,
    /// A simple reply of several parts has begun: nothing may come between.
    streaming: Option<u64>,
    held: VecDeque<Out>,
    broken: bool,
}

impl<'a> Writer<'a> {
    fn new(stream: &'a UnixStream, share: Arc<Share>, structured: bool) -> Writer<'a> {
        let (replies, held) = (BTreeMap::new(), VecDeque::new());
        Writer {
            stream,
            share,
            structured,
            replies,
            streaming: None,
            held,
            broken: false,
        }
    }

    /// Sends until every sender is gone. After an error it goes on taking, so that buffers come
    /// back.
    fn run(mut self, outgoing: &Receiver<Out>) {
        while let Ok(out) = outgoing.recv() {
            self.take(out);
            while let Some(out) = self.next_held() {
                self.take(out);
            }
        }
    }

    /// The first held message that may be sent now: any, or a further part of the answer that is
    /// being sent.
    fn next_held(&mut self) -> Option<Out> {
        let Some(streaming) = self.streaming else {
            return self.held.pop_front();
        };
        let its = |out: &Out| matches!(out, Out::Part { job, .. } if job.number == streaming);
        let at = self.held.iter().position(its)?;
        self.held.remove(at)
    }

    fn take(&mut self, out: Out) {
        let own = match &out {
            Out::Part { job, .. } => Some(job.number),
            Out::Message(..) => None,
        };
        if !self.broken && self.streaming.is_some() && self.streaming != own {
            self.held.push_back(out);
            return;
        }
        let sent = match out {
            Out::Message(message, place) => {
                let sent = self.send(&message, &[]);
                drop(place);
                sent
            }
            Out::Part { job, part, result } if self.structured => self.chunk(&job, part, result),
            Out::Part { job, part, result } => self.simple(&job, part, result),
        };
        self.share.returned();
        if let Err(error) = sent
            && !self.broken
        {
            tracing::debug!(%error, "an NBD client is gone");
            self.broken = true;
            self.streaming = None;
            self.share.close();
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }

    fn chunk(
        &mut self,
        job: &ReadJob,
        part: u32,
        result: Result<Buf, ErrorCode>,
    ) -> io::Result<()> {
        let reply = self.replies.entry(job.number).or_default();
        reply.arrived += 1;
        let last = reply.arrived == job.parts();
        let failed = reply.failed.or(result.as_ref().err().copied());
        reply.failed = failed;
        if last {
            self.replies.remove(&job.number);
        }
        if let Ok(buf) = result {
            let len = job.part_len(part);
            let done = last && failed.is_none();
            let mut head = wire::chunk(job.cookie, Chunk::OffsetData, done, 8 + len);
            head.extend((job.offset + u64::from(part) * u64::from(PART)).to_be_bytes());
            self.send(&head, &buf.bytes()[..len as usize])?;
        }
        match failed {
            // One error chunk, at the end, for however many parts.
            Some(error) if last => self.send(&wire::error_chunk(job.cookie, true, error), &[]),
            _ => Ok(()),
        }
    }

    fn simple(
        &mut self,
        job: &ReadJob,
        part: u32,
        result: Result<Buf, ErrorCode>,
    ) -> io::Result<()> {
        let mut reply = self.replies.remove(&job.number).unwrap_or_default();
        reply.early.insert(part, result);
        reply.arrived += 1;
        while reply.failed.is_none()
            && let Some(result) = reply.early.remove(&reply.next)
        {
            let first = reply.next == 0;
            let head = wire::simple_reply(job.cookie, result.as_ref().err().copied());
            match result {
                Ok(buf) => {
                    let data = &buf.bytes()[..job.part_len(reply.next) as usize];
                    self.send(if first { &head } else { &[] }, data)?;
                    reply.next += 1;
                }
                Err(error) if first => {
                    reply.failed = Some(error);
                    self.send(&head, &[])?;
                }
                Err(_) => return Err(broken("a read failed halfway through its answer")),
            }
        }
        let begun = reply.next > 0 && reply.next < job.parts();
        self.streaming = begun.then_some(job.number);
        if reply.failed.is_some() {
            // What else arrives of it is dropped.
            reply.early.clear();
        }
        if reply.arrived < job.parts() {
            self.replies.insert(job.number, reply);
        }
        Ok(())
    }

    /// Sends head and data as one.
    fn send(&mut self, head: &[u8], data: &[u8]) -> io::Result<()> {
        if self.broken {
            return Ok(());
        }
        let mut parts = [IoSlice::new(head), IoSlice::new(data)];
        let mut left = &mut parts[..];
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match (&mut &*self.stream).write_vectored(left) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                Ok(sent) => IoSlice::advance_slices(&mut left, sent),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::ublk;
    use crate::mail::Mailbox;

    #[test]
    fn a_client_that_says_a_little_now_and_then_is_not_waited_for() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let drip = std::thread::spawn(move || {
            while (&theirs).write_all(&[0]).is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut hurried = Hurried::new(&ours, Duration::from_millis(100));
        let mut much = [0; 4096];
        let error = hurried.read_exact(&mut much).expect_err("too little came");
        let late = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
        assert!(late.contains(&error.kind()), "{error}");
        drop(ours);
        drip.join().expect("it ends when nobody listens");
    }

    /// A client of an array that does not answer waited for as long as that took.
    #[test]
    fn what_the_array_does_not_say_in_time_is_data() {
        let (mailbox, mail) = Mailbox::new().expect("an eventfd");
        let target = Target {
            peers: Peers::new(vec![mailbox]),
            ..ublk::tests::target(2, 1, 65536)
        };
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let reader = Reader {
            input: BufReader::new(&ours),
            target: &target,
            shard: ShardNo(0),
            agreed: Agreed {
                structured: true,
                allocation: true,
            },
            share: Arc::new(Share::new(&[(4096, 1)]).expect("memory")),
            out: channel().0,
            jobs: 0,
            zeros: OnceCell::new(),
            places: InFlight::new(REQUESTS_MAX),
        };
        let holes = || {
            let until = Instant::now() + Duration::from_millis(100);
            reader.holes(0..1 << 20, EXTENTS_MAX, until)
        };
        assert_eq!(holes(), Some(vec![(1 << 20, wire::EXTENT_DATA)]));
        drop(mail);
        assert_eq!(holes(), None, "it is not served any more");
    }
}
