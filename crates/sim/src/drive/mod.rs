//! A simulated drive: bytes, a volatile cache, I/Os in flight, and what is left of them.
//!
//! Invariants:
//! * A read sees every completed write. A completed write is durable at once without a volatile
//!   cache, with FUA, or after a flush that was issued after it completed.
//! * At a power cut every write in the cache or in flight survives, is lost, or is torn, each
//!   independently of the others (`cut`).
//! * An I/O takes effect when it completes (or lands late, when it timed out): what is in flight
//!   together happens in any order.
//!
//! Deliberately absent: queues and bandwidth. Latency is only there to shuffle completions.

mod cut;
mod flash;
pub mod overlay;

use std::collections::BTreeMap;
use std::sync::Arc;

use strake_engine::event::{Completion, DeviceInfo, IoError, IoKind, MemberIo};
use strake_engine::units::{DeviceId, IoId, Time};
use strake_engine::{Repeats, RetryPolicy, RetryState};

pub use crate::drive::cut::CutReport;
pub use crate::drive::flash::Wear;
use crate::drive::overlay::{HICCUP, Overlay, Reset};
use crate::prng::{self, Prng};

/// What a transport fails with, of Linux' numbers.
const ENOLINK: i32 = 67;

/// Number of an I/O on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpNo(pub u64);

/// The machine that waits for an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The array.
    Array,
    /// This shard.
    Shard(u16),
}

/// When an accepted I/O ends, in nanoseconds from now.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Its number.
    pub op: OpNo,
    /// It completes.
    pub done_ns: u64,
    /// It timed out, and lands only now.
    pub late_ns: Option<u64>,
}

/// Latencies of one world, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latencies {
    /// Shortest.
    pub low_ns: u64,
    /// Usual longest.
    pub high_ns: u64,
    /// Deadline after which an I/O counts as timed out.
    pub deadline_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Normal,
    Fails(IoError),
    TimesOut,
}

struct Flight {
    owner: Owner,
    device: DeviceId,
    io: IoId,
    kind: IoKind,
    fate: Fate,
    /// For a flush: what completed before this is covered.
    issued: u64,
    /// Reported as timed out; what is left is to land.
    abandoned: bool,
    /// It failed on its way, and is tried again.
    retry: Option<RetryState>,
    /// Its deadline, where it may be missed.
    watched: Option<Watched>,
    /// There was no space for it.
    full: Option<Full>,
    /// The device dawdled when it took it: it may take longer than the deadline by itself.
    slow: bool,
}

/// What the driver knows of an I/O that may miss its deadline.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// When it is overdue, in the time in which its owner's thread ran.
    pub due: Time,
    /// The array knows that it is.
    pub reported: bool,
    /// So many further deadlines it has had.
    pub rounds: u32,
    /// It is not answered before this moment.
    pub answered_at: Time,
}

/// A write that its device has no space for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The array is to decide.
    Told,
    /// It is tried again then.
    Until(Time),
}

/// A block in the volatile cache.
struct Cached {
    block: u64,
    /// Blocks of one write bear one number.
    group: u64,
    /// When it completed.
    at: u64,
    data: Content,
}

#[derive(Clone)]
enum Content {
    Zeros,
    Bytes(Arc<[u8]>, usize),
}

/// See the module.
pub struct Ssd {
    /// What the device suffers from.
    pub faults: Overlay,
    /// The array's logical block, bytes: what is cached, goes bad or is discarded as a whole.
    pub block: u64,
    /// Its own logical block, bytes: what a cut leaves whole.
    pub sector: u64,
    /// What holds data: elsewhere all is metadata.
    pub data: std::ops::Range<u64>,
    /// What holds the stripe log.
    pub log: std::ops::Range<u64>,
    /// Write granularity that it tells of, bytes.
    pub granularity: u32,
    /// What its flash has been through.
    pub wear: Wear,
    current: Vec<u8>,
    /// What survives a power cut, where there is a volatile cache.
    durable: Option<Vec<u8>>,
    cached: Vec<Cached>,
    flights: BTreeMap<OpNo, Flight>,
    /// Flights of a vanished device that are still to be answered; empty but while it vanishes.
    told: Vec<(OpNo, Flight)>,
    next_op: u64,
    discarded: u64,
    /// Counts completions and flushes: the order of time on this device.
    moment: u64,
}

impl Ssd {
    /// A drive of `bytes`, full of garbage that follows from `seed`.
    pub fn new(bytes: usize, block: u64, volatile_cache: bool, seed: u64) -> Ssd {
        let mut current = vec![0; bytes];
        prng::fill(seed, &mut current);
        let durable = volatile_cache.then(|| current.clone());
        Ssd {
            faults: Overlay::default(),
            block,
            sector: block,
            data: 0..bytes as u64,
            log: 0..0,
            granularity: 0,
            wear: Wear::default(),
            current,
            durable,
            cached: Vec::new(),
            flights: BTreeMap::new(),
            told: Vec::new(),
            next_op: 0,
            discarded: 0,
            moment: 0,
        }
    }

    /// It has so many bytes more, of garbage; nothing is in flight.
    pub fn enlarge(&mut self, bytes: usize, seed: u64) {
        let mut more = vec![0; bytes];
        prng::fill(seed, &mut more);
        self.current.extend_from_slice(&more);
        if let Some(durable) = &mut self.durable {
            durable.extend_from_slice(&more);
        }
    }

    /// Size, bytes.
    pub fn len(&self) -> u64 {
        self.current.len() as u64
    }
    /// Never true.
    pub fn is_empty(&self) -> bool {
        self.current.is_empty()
    }
    /// It has a volatile write cache.
    pub fn volatile_cache(&self) -> bool {
        self.durable.is_some()
    }
    /// I/Os in flight, late ones included.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }
    /// What is in flight and was not reported as timed out.
    pub fn kinds(&self) -> impl Iterator<Item = &IoKind> {
        let flights = self.flights.values().filter(|flight| !flight.abandoned);
        flights.map(|flight| &flight.kind)
    }
    /// I/Os accepted so far.
    pub fn accepted(&self) -> u64 {
        self.next_op
    }
    /// Bytes that were discarded so far.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }
    /// Does anybody still wait for an I/O?
    pub fn waiting(&self) -> bool {
        self.flights.values().any(|flight| !flight.abandoned)
    }
    /// What a read of the whole device would see.
    pub fn bytes(&self) -> &[u8] {
        &self.current
    }
    /// What lies there, whether it can be read or not.
    pub fn held(&self, offset: u64, len: usize) -> &[u8] {
        &self.current[offset as usize..][..len]
    }
    /// A read outside of time, as a program does at start; `None` where a block is unreadable.
    pub fn peek(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let blocks = self.blocks(offset, len as u64);
        let readable = !self.faults.gone && !self.faults.unreadable(blocks.start, blocks.end);
        readable.then(|| &self.current[offset as usize..offset as usize + len])
    }
    /// A durable write outside of time: preparing a new device.
    pub fn poke(&mut self, offset: u64, bytes: &[u8]) {
        let at = offset as usize..offset as usize + bytes.len();
        self.current[at.clone()].copy_from_slice(bytes);
        if let Some(durable) = &mut self.durable {
            durable[at].copy_from_slice(bytes);
        }
    }

    /// A power cut may undo what was written to this block last.
    pub fn may_lose(&self, block: u64) -> bool {
        self.cached.iter().any(|cached| cached.block == block)
    }

    /// The medium silently holds other bytes from now on.
    pub fn rot(&mut self, offset: u64, bytes: &[u8]) {
        let blocks = self.blocks(offset, bytes.len() as u64);
        self.cached.retain(|cached| !blocks.contains(&cached.block));
        self.poke(offset, bytes);
    }

    /// These bytes are there again; what is still under way to their place never comes.
    pub fn put_right(&mut self, offset: u64, bytes: &[u8]) {
        self.rot(offset, bytes);
        let (from, to) = (offset, offset + bytes.len() as u64);
        for flight in self.flights.values_mut() {
            if written(&flight.kind).is_some_and(|(at, len)| at < to && from < at + len) {
                flight.kind = IoKind::Discard { offset: 0, len: 0 };
            }
        }
    }

    fn blocks(&self, offset: u64, len: u64) -> std::ops::Range<u64> {
        offset / self.block..(offset + len).div_ceil(self.block)
    }

    /// Would this write overlap one that is in flight? Their order would be left to the drive.
    pub fn overlapping_write(&self, kind: &IoKind) -> bool {
        let Some((offset, len)) = written(kind) else {
            return false;
        };
        self.flights
            .values()
            .filter(|flight| !flight.abandoned)
            .any(|flight| {
                written(&flight.kind).is_some_and(|(o, l)| o < offset + len && offset < o + l)
            })
    }

    /// Accepts an I/O and decides how it will end.
    pub fn submit(
        &mut self,
        owner: Owner,
        io: MemberIo,
        latencies: &Latencies,
        rng: &mut Prng,
    ) -> Timing {
        let op = OpNo(self.next_op);
        self.next_op += 1;
        let MemberIo { io, device, kind } = io;
        self.wear.see(&kind, self.granularity, &self.log);
        let flight = Flight {
            owner,
            device,
            io,
            kind,
            fate: Fate::Normal,
            issued: self.moment,
            abandoned: false,
            retry: None,
            watched: None,
            full: None,
            slow: false,
        };
        let crowd = self.flights.len() as u64;
        self.flights.insert(op, flight);
        self.dispatch(op, crowd, latencies, rng)
    }

    /// An I/O is on its way, for the first time or again; `crowd` others are.
    fn dispatch(&mut self, op: OpNo, crowd: u64, latencies: &Latencies, rng: &mut Prng) -> Timing {
        let is_slow = self.faults.is_slow();
        let slow = u64::from(self.faults.slowness.max(1));
        let mut done_ns = rng.range(latencies.low_ns, latencies.high_ns) * slow;
        if rng.one_in(50) && self.faults.crowding_ns == 0 {
            done_ns *= 10;
        }
        done_ns += self.faults.crowding_ns * crowd;
        // No number is drawn for a device that does not suffer from it.
        let one_in = u64::from(self.faults.hiccup_one_in);
        if one_in > 0 && rng.one_in(one_in) {
            done_ns *= HICCUP;
        }
        let mut flight = self.flights.remove(&op).expect("it is in flight");
        let may_pause = !self.faults.only_writes_pause || written(&flight.kind).is_some();
        if may_pause && Overlay::take(&mut self.faults.pauses) {
            done_ns += self.faults.pause_ns;
        }
        let fate = self.fate(&flight.kind);
        (flight.fate, flight.issued, flight.slow) = (fate, self.moment, is_slow);
        self.flights.insert(op, flight);
        let mut late_ns = None;
        if fate == Fate::TimesOut {
            done_ns = latencies.deadline_ns;
            late_ns = Some(done_ns + rng.below(2 * latencies.deadline_ns));
        }
        Timing {
            op,
            done_ns,
            late_ns,
        }
    }

    fn fate(&mut self, kind: &IoKind) -> Fate {
        if self.faults.gone {
            return Fate::Fails(IoError::Gone);
        }
        if self.faults.vanishing {
            return Fate::Fails(IoError::Unclear);
        }
        if Overlay::take(&mut self.faults.stalls) {
            return Fate::TimesOut;
        }
        let read = match kind {
            IoKind::Read { offset, .. } | IoKind::ReadInPlace { offset, .. } => Some(*offset),
            _ => None,
        };
        let may_fail = read.is_some_and(|offset| self.faults.may_fail_reads_at(offset));
        if may_fail && Overlay::take(&mut self.faults.read_errors) {
            return Fate::Fails(self.faults.read_error.unwrap_or(IoError::Media));
        }
        if matches!(kind, IoKind::Flush) && Overlay::take(&mut self.faults.flush_errors) {
            return Fate::Fails(self.faults.write_error.unwrap_or(IoError::Media));
        }
        if written(kind).is_some() && Overlay::take(&mut self.faults.write_errors) {
            return Fate::Fails(self.faults.write_error.unwrap_or(IoError::Media));
        }
        Fate::Normal
    }

    /// The I/O ends now: if the device is being reset, it fails on its way. A write may be there
    /// all the same, or in part.
    pub fn interrupt(&mut self, op: OpNo, now: Time, rng: &mut Prng) {
        let Some(reset) = self.faults.reset.filter(|reset| reset.fails(now)) else {
            return;
        };
        // What waits for space is not under way.
        let waits = |flight: &&Flight| {
            !flight.abandoned && flight.fate == Fate::Normal && flight.full.is_none()
        };
        if self.faults.gone || self.flights.get(&op).is_none_or(|flight| !waits(&flight)) {
            return;
        }
        self.faults.reset = Some(Reset { hit: true, ..reset });
        let mut flight = self.flights.remove(&op).expect("it is in flight");
        flight.fate = Fate::Fails(IoError::Transport(ENOLINK));
        // Of a device without power nothing lands that was under way.
        if let Some((offset, len)) = written(&flight.kind).filter(|_| !reset.cache_lost) {
            let percent = rng.pick(&[0, 50, 100]);
            for block in self.blocks(offset, len) {
                if rng.percent(percent) {
                    self.apply_block(&flight.kind, block, rng);
                }
            }
        }
        self.flights.insert(op, flight);
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            bytes: self.len(),
            block_bytes: self.sector as u32,
            granularity_bytes: self.granularity,
            volatile_cache: self.volatile_cache(),
            dma: true,
        }
    }

    /// If the I/O has failed on its way and is to be tried again: when. `open`: the device still
    /// is. `cache_trusted`: that of one that was reset, too, which is wrong.
    pub fn again(
        &mut self,
        op: OpNo,
        now: Time,
        policy: &RetryPolicy,
        open: bool,
        cache_trusted: bool,
    ) -> Option<Time> {
        let mut info = self.info();
        info.volatile_cache &= !cache_trusted;
        let flight = self.flights.get_mut(&op)?;
        let Fate::Fails(error @ IoError::Transport(_)) = flight.fate else {
            return None;
        };
        let repeats = match open && !self.faults.gone {
            true => Repeats::of(&info, &flight.kind),
            false => Repeats::Never,
        };
        let next = policy.after(flight.retry, error, repeats, now);
        match (next, &mut self.faults.reset) {
            (Some(retry), _) => flight.retry = Some(retry),
            (None, Some(reset)) => reset.told = true,
            (None, None) => {}
        }
        next.map(|retry| retry.again_at)
    }

    /// The error of an I/O that is not answered yet, and whether the I/O may be repeated.
    pub fn failing(&self, op: OpNo) -> Option<(IoError, Repeats)> {
        let flight = self.flights.get(&op).filter(|flight| !flight.abandoned)?;
        match flight.fate {
            Fate::Fails(error) if !self.faults.gone => {
                Some((error, Repeats::of(&self.info(), &flight.kind)))
            }
            _ => None,
        }
    }

    /// An I/O that failed on its way is retried; `None` if its owner no longer waits for it.
    pub fn retry(&mut self, op: OpNo, latencies: &Latencies, rng: &mut Prng) -> Option<Timing> {
        let flight = self.flights.get_mut(&op)?;
        if let Some(retry) = &mut flight.retry {
            retry.tries += 1;
        }
        let crowd = self.flights.len() as u64 - 1;
        Some(self.dispatch(op, crowd, latencies, rng))
    }

    /// What an I/O has been through that is still to be answered.
    pub fn retry_of(&self, op: OpNo) -> Option<RetryState> {
        let flight = self.flights.get(&op).filter(|flight| !flight.abandoned)?;
        flight.retry
    }

    /// It answers late, or will answer late what it was given.
    pub fn is_slow(&self) -> bool {
        let mut waiting = self.flights.values().filter(|flight| !flight.abandoned);
        self.faults.is_slow() || waiting.any(|flight| flight.slow)
    }

    /// Some I/O that failed on its way is still to be answered.
    pub fn tries_again(&self) -> bool {
        let mut waiting = self.flights.values().filter(|flight| !flight.abandoned);
        waiting.any(|flight| flight.retry.is_some())
    }

    /// Some I/O that is still to be answered has its deadline watched, as after a standstill.
    pub fn is_late(&self) -> bool {
        let mut waiting = self.flights.values().filter(|flight| !flight.abandoned);
        waiting.any(|flight| flight.watched.is_some())
    }

    /// What waits for an I/O that is not answered yet.
    pub fn owner_of(&self, op: OpNo) -> Option<Owner> {
        self.flights.get(&op).map(|flight| flight.owner)
    }

    /// What is known of the deadline of an I/O that is to be answered; with its device.
    pub fn watched(&mut self, op: OpNo) -> Option<(DeviceId, &mut Option<Watched>)> {
        let flight = self.flights.get_mut(&op).filter(|f| !f.abandoned)?;
        Some((flight.device, &mut flight.watched))
    }

    /// All that is watched is answered so much later.
    pub fn put_off(&mut self, ns: u64) {
        let flights = self.flights.values_mut();
        for watched in flights.filter_map(|flight| flight.watched.as_mut()) {
            watched.answered_at = Time(watched.answered_at.0 + ns);
        }
    }

    /// The time in which an I/O is tried again does not pass while the thread of its owner, or
    /// every thread, stands still.
    pub fn prolong_tries(&mut self, owner: Option<Owner>, ns: u64) {
        let all = self.flights.values_mut();
        let of = all.filter(|flight| owner.is_none_or(|owner| flight.owner == owner));
        for retry in of.filter_map(|flight| flight.retry.as_mut()) {
            retry.until = Time(retry.until.0 + ns);
        }
    }

    /// I/Os in flight that will succeed in time and have no watched deadline.
    pub fn unwatched(&self) -> Vec<OpNo> {
        let plain = |flight: &Flight| {
            let plain = flight.fate == Fate::Normal && flight.retry.is_none();
            let alone = flight.watched.is_none() && flight.full.is_none();
            plain && alone && !flight.slow && !flight.abandoned
        };
        let flights = self.flights.iter().filter(|(_, flight)| plain(flight));
        flights.map(|(op, _)| *op).collect()
    }

    /// I/Os of this owner to this device that were reported as overdue.
    pub fn overdue(&self, owner: Owner, device: DeviceId) -> Vec<OpNo> {
        let flights = self.flights.iter().filter(|(_, flight)| {
            let reported = flight.watched.is_some_and(|watched| watched.reported);
            reported && !flight.abandoned && (flight.owner, flight.device) == (owner, device)
        });
        flights.map(|(op, _)| *op).collect()
    }

    /// A write that would succeed, and that this device has, or had, no space for.
    pub fn full(&mut self, op: OpNo) -> Option<&mut Option<Full>> {
        let gone = self.faults.gone;
        let flight = self.flights.get_mut(&op)?;
        let plain = flight.fate == Fate::Normal && !flight.abandoned && !gone;
        let (offset, _) = written(&flight.kind).filter(|_| plain)?;
        let full = self.faults.full_from.is_some_and(|from| offset >= from);
        (full || flight.full.is_some()).then_some(&mut flight.full)
    }

    /// There is space now for what this I/O writes.
    pub fn has_space(&self, op: OpNo) -> bool {
        let offset = self.flights.get(&op).and_then(|f| written(&f.kind));
        let from = self.faults.full_from.zip(offset);
        from.is_none_or(|(from, (offset, _))| offset < from)
    }

    /// Writes of this owner to this device that wait until the array has decided.
    pub fn told_full(&self, owner: Owner, device: DeviceId) -> Vec<OpNo> {
        let told = self.flights.iter().filter(|(_, flight)| {
            flight.full == Some(Full::Told) && (flight.owner, flight.device) == (owner, device)
        });
        told.map(|(op, _)| *op).collect()
    }

    /// Some write waits for space.
    pub fn waits_for_space(&self) -> bool {
        self.flights.values().any(|flight| flight.full.is_some())
    }

    /// A write is to be answered: there is no space.
    pub fn refuse(&mut self, op: OpNo) {
        if let Some(flight) = self.flights.get_mut(&op) {
            (flight.fate, flight.full) = (Fate::Fails(IoError::NoSpace), None);
        }
    }

    /// The device does not answer this I/O, and its owner has not given it up yet.
    pub fn hangs(&self, op: OpNo) -> bool {
        let hangs = |f: &Flight| f.fate == Fate::TimesOut && !f.abandoned && !self.faults.gone;
        self.flights.get(&op).is_some_and(hangs)
    }

    /// An overdue I/O is given up; it lands later.
    pub fn give_up(&mut self, op: OpNo) -> Option<(Owner, DeviceId, Completion)> {
        let flight = self.flights.get_mut(&op)?;
        flight.abandoned = true;
        let (io, buf) = (flight.io, None);
        let result = Err(IoError::TimedOut);
        Some((flight.owner, flight.device, Completion { io, result, buf }))
    }

    /// The device that an I/O in flight goes to.
    pub fn device_of(&self, op: OpNo) -> Option<DeviceId> {
        self.flights.get(&op).map(|flight| flight.device)
    }

    /// Answers a write that is to be tried again as if it were done, which is wrong.
    pub fn answer_untrue(&mut self, op: OpNo) -> Option<(Owner, DeviceId, Completion)> {
        let flight = self.flights.get_mut(&op)?;
        written(&flight.kind)?;
        if std::mem::replace(&mut flight.abandoned, true) {
            return None;
        }
        let (io, buf) = (flight.io, None);
        let result = Ok(());
        Some((flight.owner, flight.device, Completion { io, result, buf }))
    }

    /// The I/O ends now: its effect, and the owner that gets the completion. `None` if it has
    /// landed already.
    pub fn finish(&mut self, op: OpNo, rng: &mut Prng) -> Option<(Owner, DeviceId, Completion)> {
        let mut flight = self.flights.remove(&op)?;
        if flight.abandoned {
            drop(self.apply(flight, rng));
            return None;
        }
        let (owner, device, io) = (flight.owner, flight.device, flight.io);
        let answer = |result, buf| Some((owner, device, Completion { io, result, buf }));
        if flight.fate == Fate::TimesOut {
            flight.abandoned = true;
            self.flights.insert(op, flight);
            return answer(Err(IoError::TimedOut), None);
        }
        if self.faults.gone {
            flight.fate = Fate::Fails(IoError::Gone);
        }
        if let Fate::Fails(error) = flight.fate {
            self.faults.medium_failed |= error == IoError::Media;
            let error = RetryPolicy::verdict(error);
            let buf = match flight.kind {
                IoKind::Read { buf, .. } => Some(buf),
                _ => None,
            };
            return answer(Err(error), buf);
        }
        let (result, buf) = self.apply(flight, rng);
        self.faults.medium_failed |= result == Err(IoError::Media);
        answer(result, buf)
    }

    fn apply(
        &mut self,
        flight: Flight,
        rng: &mut Prng,
    ) -> (Result<(), IoError>, Option<strake_engine::Buf>) {
        self.moment += 1;
        match flight.kind {
            IoKind::Read {
                offset,
                mut buf,
                start,
                len,
            } => {
                let blocks = self.blocks(offset, len as u64);
                if self.faults.unreadable(blocks.start, blocks.end) {
                    return (Err(IoError::Media), Some(buf));
                }
                let from = offset as usize;
                buf.bytes_mut()[start..start + len]
                    .copy_from_slice(&self.current[from..from + len]);
                return (Ok(()), Some(buf));
            }
            // The buffer stands for the place, and is the world's to hand on.
            IoKind::ReadInPlace { offset, len, .. } => {
                let blocks = self.blocks(offset, len as u64);
                if self.faults.unreadable(blocks.start, blocks.end) {
                    return (Err(IoError::Media), None);
                }
                let from = offset as usize;
                let bytes = &self.current[from..from + len];
                return (Ok(()), Some(strake_engine::Buf::from_bytes(bytes)));
            }
            IoKind::Write {
                offset, data, fua, ..
            } => self.write(offset, data.bytes(), fua),
            IoKind::WriteZeroes { offset, len } => self.zero(offset, len, None),
            IoKind::Discard { offset, len } => {
                self.discarded += len;
                self.zero(offset, len, Some(rng));
            }
            IoKind::Flush => self.flush(flight.issued),
        }
        (Ok(()), None)
    }

    fn write(&mut self, offset: u64, data: &[u8], fua: bool) {
        let blocks = self.blocks(offset, data.len() as u64);
        self.faults.heal(blocks.start, blocks.end);
        let at = offset as usize..offset as usize + data.len();
        self.current[at.clone()].copy_from_slice(data);
        let Some(durable) = &mut self.durable else {
            return;
        };
        if fua {
            durable[at].copy_from_slice(data);
            self.cached.retain(|cached| !blocks.contains(&cached.block));
            return;
        }
        let shared: Arc<[u8]> = data.into();
        for (index, block) in blocks.enumerate() {
            let from = index * self.block as usize;
            let data = Content::Bytes(Arc::clone(&shared), from);
            self.cache(block, data);
        }
    }

    fn cache(&mut self, block: u64, data: Content) {
        self.cached.push(Cached {
            block,
            group: self.moment,
            at: self.moment,
            data,
        });
    }

    /// Zeroes a range, or (with `chance`) leaves each block as it is, zero, or garbage.
    fn zero(&mut self, offset: u64, len: u64, mut chance: Option<&mut Prng>) {
        let size = self.block as usize;
        for block in self.blocks(offset, len) {
            let at = block as usize * size;
            let outcome = chance.as_deref_mut().map_or(0, |rng| rng.below(3));
            let data = match outcome {
                0 => Content::Zeros,
                1 => continue,
                _ => {
                    let mut garbage = vec![0; size];
                    prng::fill(self.moment << 32 | block, &mut garbage);
                    Content::Bytes(garbage.into(), 0)
                }
            };
            self.faults.heal(block, block + 1);
            put(&mut self.current[at..at + size], &data);
            if self.durable.is_some() {
                self.cache(block, data);
            }
        }
    }

    fn flush(&mut self, issued: u64) {
        let Some(durable) = &mut self.durable else {
            return;
        };
        let size = self.block as usize;
        self.cached.retain(|cached| {
            if cached.at > issued {
                return true;
            }
            let at = cached.block as usize * size;
            put(&mut durable[at..at + size], &cached.data);
            false
        });
    }

    /// The device vanishes, with its power (`pulled`) or only from sight. What was in flight may
    /// have landed; every answer from now on is [`IoError::Gone`].
    pub fn vanish(&mut self, pulled: bool, rng: &mut Prng) {
        let waiting: Vec<(OpNo, Flight)> = std::mem::take(&mut self.flights)
            .into_iter()
            .filter(|(_, flight)| !flight.abandoned)
            .collect();
        let mut report = CutReport::default();
        for (op, flight) in waiting {
            let (owner, device, io) = (flight.owner, flight.device, flight.io);
            self.flights.insert(op, flight);
            self.end_flights(rng, &mut report);
            let (kind, fate) = (IoKind::Flush, Fate::Fails(IoError::Gone));
            let told = Flight {
                owner,
                device,
                io,
                kind,
                fate,
                issued: 0,
                abandoned: false,
                retry: None,
                watched: None,
                full: None,
                slow: false,
            };
            self.told.push((op, told));
        }
        if pulled {
            self.power_cut(rng);
        }
        self.flights.extend(std::mem::take(&mut self.told));
        self.faults.gone = true;
    }

    fn apply_block(&mut self, kind: &IoKind, block: u64, rng: &mut Prng) {
        self.moment += 1;
        let at = block * self.block;
        match kind {
            IoKind::Write {
                offset, data, fua, ..
            } => {
                let from = (at - offset) as usize;
                let part = &data.bytes()[from..from + self.block as usize];
                self.write(at, part, *fua);
            }
            IoKind::WriteZeroes { .. } => self.zero(at, self.block, None),
            IoKind::Discard { .. } => self.zero(at, self.block, Some(rng)),
            IoKind::Read { .. } | IoKind::ReadInPlace { .. } | IoKind::Flush => {}
        }
    }
}

/// Offset and length of what an I/O changes.
pub fn written(kind: &IoKind) -> Option<(u64, u64)> {
    match kind {
        IoKind::Write { offset, data, .. } => Some((*offset, data.len as u64)),
        IoKind::WriteZeroes { offset, len } | IoKind::Discard { offset, len } => {
            Some((*offset, *len))
        }
        IoKind::Read { .. } | IoKind::ReadInPlace { .. } | IoKind::Flush => None,
    }
}

fn put(to: &mut [u8], content: &Content) {
    match content {
        Content::Zeros => to.fill(0),
        Content::Bytes(bytes, from) => to.copy_from_slice(&bytes[*from..*from + to.len()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prng::Purpose;
    use strake_engine::event::WritePurpose;
    use strake_engine::{Buf, Slice};

    const LATENCIES: Latencies = Latencies {
        low_ns: 1,
        high_ns: 9,
        deadline_ns: 1000,
    };

    fn write_io(offset: u64, byte: u8, len: usize, fua: bool) -> MemberIo {
        let data = Slice::new(Buf::from_bytes(&vec![byte; len]), 0, len);
        MemberIo {
            io: IoId(1),
            device: DeviceId(0),
            kind: IoKind::Write {
                offset,
                data,
                fua,
                purpose: WritePurpose::Data,
            },
        }
    }

    fn run(ssd: &mut Ssd, io: MemberIo, rng: &mut Prng) -> Result<(), IoError> {
        let timing = ssd.submit(Owner::Array, io, &LATENCIES, rng);
        ssd.finish(timing.op, rng)
            .expect("it is in flight")
            .2
            .result
    }

    fn flush_io() -> MemberIo {
        MemberIo {
            io: IoId(2),
            device: DeviceId(0),
            kind: IoKind::Flush,
        }
    }

    #[test]
    fn a_flushed_write_and_a_fua_write_survive_every_power_cut() {
        for seed in 0..50 {
            let mut rng = Prng::new(seed, Purpose::Fate);
            let mut ssd = Ssd::new(16384, 512, true, seed);
            run(&mut ssd, write_io(0, 1, 4096, false), &mut rng).expect("no fault");
            run(&mut ssd, flush_io(), &mut rng).expect("no fault");
            run(&mut ssd, write_io(4096, 2, 512, false), &mut rng).expect("no fault");
            run(&mut ssd, write_io(4096, 3, 512, true), &mut rng).expect("no fault");
            ssd.power_cut(&mut rng);
            assert!(ssd.bytes()[..4096].iter().all(|&b| b == 1));
            assert!(ssd.bytes()[4096..4608].iter().all(|&b| b == 3));
        }
    }

    #[test]
    fn an_unflushed_write_survives_is_lost_and_is_torn_each_in_some_power_cut() {
        let (mut whole, mut none, mut torn) = (0, 0, 0);
        for seed in 0..100 {
            let mut rng = Prng::new(seed, Purpose::Fate);
            let mut ssd = Ssd::new(16384, 512, true, seed);
            run(&mut ssd, write_io(0, 1, 4096, false), &mut rng).expect("no fault");
            ssd.power_cut(&mut rng);
            let blocks = ssd.bytes()[..4096].chunks(512);
            let written = blocks.filter(|c| c.iter().all(|&b| b == 1)).count();
            match written {
                0 => none += 1,
                8 => whole += 1,
                _ => torn += 1,
            }
        }
        assert!(
            whole > 10 && none > 10 && torn > 10,
            "{whole} {none} {torn}"
        );
    }

    #[test]
    fn a_flush_does_not_cover_what_completes_after_it_was_issued() {
        let mut lost = false;
        for seed in 0..50 {
            let mut rng = Prng::new(seed, Purpose::Fate);
            let mut ssd = Ssd::new(16384, 512, true, seed);
            let flush = ssd.submit(Owner::Array, flush_io(), &LATENCIES, &mut rng);
            run(&mut ssd, write_io(0, 1, 512, false), &mut rng).expect("no fault");
            ssd.finish(flush.op, &mut rng);
            ssd.power_cut(&mut rng);
            lost |= ssd.bytes()[0] != 1;
        }
        assert!(lost);
    }

    #[test]
    fn without_a_volatile_cache_a_completed_write_survives() {
        let mut rng = Prng::new(1, Purpose::Fate);
        let mut ssd = Ssd::new(16384, 512, false, 1);
        run(&mut ssd, write_io(0, 1, 4096, false), &mut rng).expect("no fault");
        ssd.power_cut(&mut rng);
        assert!(ssd.bytes()[..4096].iter().all(|&b| b == 1));
    }

    #[test]
    fn a_stalled_write_times_out_first_and_lands_later() {
        let mut rng = Prng::new(1, Purpose::Fate);
        let mut ssd = Ssd::new(16384, 512, false, 1);
        ssd.faults.stalls = 1;
        let io = write_io(0, 1, 512, false);
        let timing = ssd.submit(Owner::Array, io, &LATENCIES, &mut rng);
        let (_, _, completion) = ssd.finish(timing.op, &mut rng).expect("it answers");
        assert_eq!(completion.result, Err(IoError::TimedOut));
        assert_ne!(ssd.bytes()[0], 1);
        assert!(ssd.finish(timing.op, &mut rng).is_none());
        assert_eq!(ssd.bytes()[0], 1);
    }
}
