//! Member I/O in flight: from what the engine asks to ring entries, and from completions back to
//! the engine.
//!
//! **Ownership of buffers in flight:** the table here owns them, from [`MemberIos::start`] until
//! the kernel's completion has been reaped, whatever the engine has been told meanwhile. An I/O
//! that outlasts its deadline is answered with [`IoError::TimedOut`] and *abandoned*: its place,
//! and its memory, stay taken until the kernel lets go. If the thread ends with I/O in flight, the
//! table leaks that memory rather than let the kernel write into memory of another owner.
//!
//! **An I/O that failed on its way** (a reset, a path) is repeated as `strake_engine::retry` says,
//! from the table: the same bytes from the same memory, on the same device, and only after the
//! kernel has answered the try before. Its owner gets only the final result. One that the kernel
//! does not answer is never repeated.
//!
//! **When a device may be opened again:** every I/O in the table holds its device, abandoned or
//! not, and a device is open for one user at a time. So a member that went out cannot be taken back
//! while the kernel may still carry out an old write to it; after the thread has ended the kernel's
//! own hold on the open file does the same.
//!
//! Invariants: every I/O started is completed to the engine exactly once; a short transfer is
//! continued where it stopped; a device that answers nothing costs its own deadline, never a hang
//! and no other I/O's deadline: calls that block wait for the `limiter`, and their deadline begins
//! when the kernel gets them (`queued`). Deadlines count in the time in which the thread ran
//! (`strake_engine::Pulse`): a process that is stopped, or gets no CPU, reaches none of them.
//!
//! **An I/O of an array that outlasts its deadline** is reported ([`MemberIos::overdue`]) and stays
//! as it is until the array has decided ([`MemberIos::judged`]): completed if the kernel answers
//! first, abandoned, or waited for by another deadline.
//!
//! **A write that its device has no space for** is reported in the same way ([`full`]), and tried
//! again until there is space or the array has decided.
//!
//! Deliberately absent: which errors are worth a repetition, and how often, and which late member
//! is given up (the engine decides), and cancellation (a device that hangs ignores it).

mod entries;
mod full;
pub(crate) mod limiter;
mod merge;
mod queued;
pub(crate) mod raw;
mod room;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strake_engine::buffers::{Buf, Slice};
use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{EioGrace, Late, Pulse, Repeats, Retried, RetryPolicy, RetryState, Verdict};

use crate::device::{Device, Kind};
use crate::member_io::limiter::{Call, Limiter};
use crate::memory::buffers::{Registered, Slab};
use crate::ring::{File, Pushed, Ring, Token};
use entries::{TRANSFER_MAX, entry, write_flags};
use merge::{Merged, Newest};
use queued::Queued;
use room::Room;

/// Zeros are written in parts of this size where a device cannot zero ranges by itself.
const ZERO_PART: usize = 1 << 18;
/// Slowest speed at which a device may zero or deallocate a range before it counts as stalled.
const ZERO_BYTES_PER_S: u64 = 32 << 20;

/// Which machine of the shard's thread asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The shard.
    Shard,
    /// The array.
    Array,
    /// Another shard: its request has its place with this shard's ring.
    Peer(ShardNo),
}

/// Pages of a ublk request that a read fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BorrowedPages {
    /// The queue and the tag that they belong to.
    pub(crate) queue: u16,
    pub(crate) tag: u16,
    /// Where the ring's table of buffers has them.
    pub(crate) index: u16,
}

/// A device as the ring knows it.
#[derive(Debug)]
struct Attached {
    device: Arc<Device>,
    file: File,
    eio_grace: EioGrace,
    newest: Option<Newest>,
    /// As [`Device::refuses`], until the kernel says otherwise.
    refuses: usize,
}

#[derive(Debug)]
enum Work {
    Read {
        offset: u64,
        buf: Buf,
        start: usize,
        len: usize,
        done: usize,
    },
    /// Into pages of a request, from byte `at` of them on.
    ReadInPlace {
        offset: u64,
        borrowed: BorrowedPages,
        at: u64,
        len: usize,
        done: usize,
    },
    Write {
        offset: u64,
        data: Slice,
        fua: bool,
        /// The write stream of its device; 0 for none.
        stream: u8,
        done: usize,
    },
    Flush,
    /// `fallocate` with [`PUNCH`].
    Range {
        offset: u64,
        len: u64,
        discard: bool,
    },
    /// Zeros written the hard way, `done` of `len`, in parts.
    Zeros {
        offset: u64,
        len: u64,
        done: u64,
    },
}

impl Work {
    /// The pages that it fills, if it is a read in place.
    fn borrowed(&self) -> Option<BorrowedPages> {
        match self {
            Work::ReadInPlace { borrowed, .. } => Some(*borrowed),
            _ => None,
        }
    }

    /// `lent`: what a read in place fills.
    fn of(kind: IoKind, borrowed: Option<BorrowedPages>, device: &Device) -> Work {
        match kind {
            IoKind::ReadInPlace {
                offset, len, at, ..
            } => Work::ReadInPlace {
                offset,
                borrowed: borrowed.expect("the pages to fill are known before the read starts"),
                at,
                len,
                done: 0,
            },
            IoKind::Read {
                offset,
                buf,
                start,
                len,
            } => {
                assert!(start + len <= buf.len(), "a read lies within its buffer");
                Work::Read {
                    offset,
                    buf,
                    start,
                    len,
                    done: 0,
                }
            }
            IoKind::Write {
                offset,
                data,
                fua,
                purpose,
            } => Work::Write {
                offset,
                data,
                fua,
                stream: device.streams().stream(purpose),
                done: 0,
            },
            IoKind::Flush => Work::Flush,
            IoKind::WriteZeroes { offset, len } => Work::Range {
                offset,
                len,
                discard: false,
            },
            IoKind::Discard { offset, len } => Work::Range {
                offset,
                len,
                discard: true,
            },
        }
    }
}

#[derive(Debug)]
struct Flight {
    owner: Owner,
    io: IoId,
    id: DeviceId,
    device: Arc<Device>,
    file: File,
    work: Work,
    /// When it was asked for, or was tried again after there was no space.
    since: Time,
    /// It blocks a worker of the kernel, and has or waits for a turn.
    blocks: bool,
    /// In the time in which the thread ran. Never, while it waits for its turn, or to be tried
    /// again.
    due: Time,
    /// A call that the kernel has not been given yet, as far as is known.
    queued: Option<Queued>,
    /// It is overdue, and the array knows.
    reported: bool,
    /// So many further deadlines it has had.
    rounds: u32,
    abandoned: bool,
    repeats: Repeats,
    /// It failed on its way, and is repeated.
    retry: Option<RetryState>,
    /// What the last try failed with, while the kernel does not have it.
    pauses: Option<IoError>,
    /// What it failed with is told then, if its device is still there.
    verdict_at: Option<Time>,
    /// Its device has no space for it: it is tried again then; never, before the array decides.
    full: Option<Time>,
    /// Others go with it.
    merged: Option<Box<Merged>>,
    room: Room,
}

/// Later than any deadline.
const NEVER: Time = Time(u64::MAX);

/// A completion and the machine that waits for it.
pub(crate) type Finished = (Owner, Completion);

/// See the module.
pub(crate) struct MemberIos {
    flights: Slab<Flight>,
    limiter: Limiter,
    attached: BTreeMap<DeviceId, Attached>,
    registered: Registered,
    zeros: Slice,
    timeout: Duration,
    /// How long the thread has run.
    pulse: Pulse,
    /// An array decides about I/Os that are overdue.
    is_judged: bool,
    /// Devices with I/Os that the array is to decide about, and why.
    overdue: Vec<(DeviceId, Late)>,
    retry_policy: RetryPolicy,
    /// How many wait to be tried again.
    pausing: usize,
    /// Those that wait for room on their device.
    without_room: VecDeque<u32>,
    /// Pages that the kernel has let go of.
    given_back: Vec<BorrowedPages>,
    /// What became of I/Os that were tried again.
    retried: Vec<Retried>,
    /// I/Os that lie side by side go as one.
    merges: bool,
    /// Lists of them, to be used again.
    #[expect(
        clippy::vec_box,
        reason = "a flight has one, and is not to be larger for it"
    )]
    spare: Vec<Box<Merged>>,
}

const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

impl MemberIos {
    /// An empty table; `registered` lists the ring's buffers (none where the kernel refused).
    pub(crate) fn new(registered: Registered, timeout: Duration) -> MemberIos {
        MemberIos {
            flights: Slab::default(),
            limiter: Limiter::default(),
            attached: BTreeMap::new(),
            registered,
            zeros: Slice::new(Buf::zeroed(ZERO_PART), 0, ZERO_PART),
            timeout,
            pulse: Pulse::of_deadline(timeout.as_nanos() as u64, Time(0)),
            is_judged: false,
            overdue: Vec::new(),
            retry_policy: RetryPolicy::new(timeout.as_nanos() as u64),
            pausing: 0,
            without_room: VecDeque::new(),
            given_back: Vec::new(),
            retried: Vec::new(),
            merges: false,
            spare: Vec::new(),
        }
    }

    /// The same, and nothing is ever tried again.
    pub(crate) fn impatient(mut self) -> MemberIos {
        self.retry_policy = RetryPolicy::new(0);
        self
    }

    /// The same, and an array decides about what is overdue.
    pub(crate) fn under_an_array(mut self) -> MemberIos {
        self.is_judged = true;
        self
    }

    /// The thread begins a turn.
    pub(crate) fn wakes(&mut self, now: Time) {
        let gap_ns = self.pulse.wakes(now);
        if gap_ns == 0 {
            return;
        }
        for (_, flight) in self.flights.iter_mut() {
            if let Some(retry) = &mut flight.retry {
                retry.until = Time(retry.until.0.saturating_add(gap_ns));
            }
        }
    }

    /// The thread sleeps for so long at most.
    pub(crate) fn sleeps(&mut self, at_most: Option<Duration>) {
        self.pulse
            .sleeps(at_most.map(|time| time.as_nanos() as u64));
    }

    /// The deadline of an I/O, nanoseconds.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.timeout.as_nanos() as u64
    }

    /// A device with an I/O that the array is to decide about, and why.
    pub(crate) fn overdue(&mut self) -> Option<(DeviceId, Late)> {
        self.overdue.pop()
    }

    /// Devices with an I/O that has taken longer than this and is waited for, and how long the
    /// oldest of each has; not for want of space, to which the device does answer.
    pub(crate) fn late(&mut self, than: Duration, now: Time) -> Vec<(DeviceId, Duration)> {
        let mut late = BTreeMap::new();
        let flights = self.flights.iter_mut().map(|(_, flight)| flight);
        for flight in flights.filter(|flight| !flight.abandoned && flight.full.is_none()) {
            let took = Duration::from_nanos(now.since(flight.since));
            if took > than {
                let oldest = late.entry(flight.id).or_insert(took);
                *oldest = took.max(*oldest);
            }
        }
        late.into_iter().collect()
    }

    /// I/Os without a reaped completion, abandoned or not; an I/O that only waits for a retry, or
    /// for room on its device, does not count.
    pub(crate) fn in_flight(&self) -> usize {
        self.flights.len() - self.pausing - self.without_room.len()
    }

    /// Devices with I/O that the kernel has not ended.
    pub(crate) fn held_up(&mut self) -> Vec<PathBuf> {
        let flights = self.flights.iter_mut().map(|(_, flight)| flight);
        let there = flights.filter(|flight| flight.is_in_the_kernel());
        there.map(|f| f.device.path().to_owned()).collect()
    }

    /// Is the device known to this ring?
    pub(crate) fn knows(&self, device: DeviceId) -> bool {
        self.attached.contains_key(&device)
    }

    /// Makes a device known.
    pub(crate) fn attach(&mut self, ring: &mut Ring, id: DeviceId, device: Arc<Device>) {
        let file = ring.register_file(device.raw_fd());
        let refuses = device.refuses();
        let attached = Attached {
            device,
            file,
            eio_grace: EioGrace::default(),
            newest: None,
            refuses,
        };
        self.attached.insert(id, attached);
        // Files are read and written by workers, too: more of them than CPUs only get in each
        // other's way.
        let block = |attached: &&Attached| matches!(attached.device.kind(), Kind::Block { .. });
        let blocks = self.attached.values().filter(block).count();
        ring.have_workers((blocks * limiter::AT_ONCE) as u32);
    }

    /// Forgets a device. What is in flight on it goes on and keeps it open.
    pub(crate) fn release(&mut self, ring: &mut Ring, id: DeviceId) {
        if let Some(attached) = self.attached.remove(&id) {
            ring.unregister_file(attached.file);
        }
    }

    /// Pages that were lent and that the kernel has let go of since the last call.
    pub(crate) fn given_back(&mut self) -> Option<BorrowedPages> {
        self.given_back.pop()
    }

    /// What became of I/Os that were tried again, since the last call; to be told before their
    /// completions.
    pub(crate) fn retried(&mut self) -> Option<Retried> {
        self.retried.pop()
    }

    /// Starts an I/O. One on a device that is not (or no longer) attached is finished at once.
    /// `lent`: the pages that a read in place fills.
    pub(crate) fn start(
        &mut self,
        ring: &mut Ring,
        owner: Owner,
        io: MemberIo,
        borrowed: Option<BorrowedPages>,
        now: Time,
    ) -> Option<Finished> {
        let Some(attached) = self.attached.get(&io.device) else {
            self.given_back.extend(borrowed);
            let buf = match io.kind {
                IoKind::Read { buf, .. } => Some(buf),
                _ => None,
            };
            return Some((
                owner,
                Completion {
                    io: io.io,
                    result: Err(IoError::Gone),
                    buf,
                },
            ));
        };
        let repeats = Repeats::of(&attached.device.info(), &io.kind);
        let work = Work::of(io.kind, borrowed, &attached.device);
        let call = match work {
            Work::Flush => Some(Call::Flush),
            Work::Range { .. } => Some(Call::Range),
            _ => None,
        };
        let room = Room::of(&work, attached.refuses);
        let (device, file) = (Arc::clone(&attached.device), attached.file);
        // Between release and completion a registered index could come to mean another device;
        // continuations use the descriptor, which the flight keeps open.
        let plain = File::Plain(device.raw_fd());
        let place = self.flights.insert(Flight {
            owner,
            io: io.io,
            id: io.device,
            device,
            file: plain,
            work,
            since: now,
            blocks: call.is_some(),
            due: NEVER,
            queued: None,
            reported: false,
            rounds: 0,
            abandoned: false,
            repeats,
            retry: None,
            pauses: None,
            verdict_at: None,
            full: None,
            merged: None,
            room,
        });
        if !self.join(ring, place, now)
            && call.is_none_or(|call| self.limiter.enter(io.device, call, place))
            && !self.lines_up(place, now)
            && let Some(pushed) = self.begin(ring, place, file, now)
        {
            self.may_be_joined(place, pushed);
        }
        None
    }

    /// Gives an I/O to the kernel; its deadline begins.
    fn begin(&mut self, ring: &mut Ring, place: u32, file: File, now: Time) -> Option<Pushed> {
        self.due(place, now);
        self.submit(ring, place, file)
    }

    /// The deadline of a flight begins.
    fn due(&mut self, place: u32, now: Time) {
        let ran = self.pulse.ran(now);
        let flight = self
            .flights
            .get_mut(place)
            .expect("a flight begins while it is in the table");
        flight.due = ran.plus_ms(self.timeout.as_millis() as u64);
        if let Some(retry) = flight.retry {
            let left_ns = retry.until.since(now);
            flight.due = flight.due.min(Time(ran.0.saturating_add(left_ns)));
        }
        if let Work::Range { len, .. } = flight.work {
            flight.due = flight.due.plus_ms(len / (ZERO_BYTES_PER_S / 1000));
        }
    }

    /// A try has failed. True if there is to be another, or if the device may be about to vanish:
    /// the owner gets no answer yet.
    fn pause(&mut self, place: u32, error: IoError, now: Time) -> bool {
        let flight = self
            .flights
            .get_mut(place)
            .expect("a completion belongs to a flight");
        // A member that was put out is not written to any more, and must be released.
        let over = flight.abandoned || !self.attached.contains_key(&flight.id);
        let repeats = if over { Repeats::Never } else { flight.repeats };
        let device = flight.device.path().display();
        if let Some(retry) = self.retry_policy.after(flight.retry, error, repeats, now) {
            if self.pausing == 0 {
                tracing::warn!(%device, ?error, "an I/O did not get through, and is tried again");
            }
            flight.retry = Some(retry);
        } else if let Some(attached) = self.attached.get_mut(&flight.id)
            && let Some(at) = self
                .retry_policy
                .grace(&mut attached.eio_grace, error, repeats, now)
        {
            if self.pausing == 0 {
                tracing::warn!(%device, "an I/O failed: the device is failing, or being removed");
            }
            flight.verdict_at = Some(at);
        } else {
            return !over && self.waits_for_space(place, error);
        }
        (flight.pauses, flight.due) = (Some(error), NEVER);
        (flight.reported, flight.rounds) = (false, 0);
        self.pausing += 1;
        true
    }

    /// Tries again what has waited for it, and tells what is not tried again; of a device that was
    /// let go meanwhile nothing is.
    fn try_again(&mut self, ring: &mut Ring, now: Time, finished: &mut Vec<Finished>) {
        let attached = &self.attached;
        let mut due = Vec::new();
        for (place, flight) in self.flights.iter_mut() {
            if flight.pauses.is_none() {
                continue;
            }
            let lost = !attached.contains_key(&flight.id) || flight.device.is_gone();
            let over = flight.verdict_at.is_some_and(|at| now >= at);
            let again = match flight.full {
                Some(at) => now >= at,
                None => {
                    flight.verdict_at.is_none() && flight.retry.is_some_and(|t| now >= t.again_at)
                }
            };
            if lost || over || again {
                due.push((place, flight.file, !again || lost));
            }
        }
        for (place, file, ends) in due {
            let flight = self.flights.get_mut(place).expect("it was just seen");
            let error = flight.pauses.take().expect("it was just seen to pause");
            self.pausing -= 1;
            if !ends {
                if flight.full.take().is_some() {
                    flight.since = now;
                } else if let Some(retry) = flight.retry.as_mut() {
                    retry.tries += 1;
                }
                self.begin(ring, place, file, now);
                continue;
            }
            let verdict = Err(flight.device.why_gone().unwrap_or(error));
            finished.extend(self.conclude(ring, place, verdict, now));
        }
    }

    /// Submits what a flight still has to do, on `file`. Returns the place in the ring where others
    /// may join it.
    fn submit(&mut self, ring: &mut Ring, place: u32, file: File) -> Option<Pushed> {
        let flight = self
            .flights
            .get_mut(place)
            .expect("a flight is submitted while it is in the table");
        let how = (flight.room.flag(), flight.part());
        let is_call = matches!(flight.work, Work::Flush | Work::Range { .. });
        // Files are registered with the ring for reads and writes.
        let file = if is_call { flight.file } else { file };
        let entry = entry(&mut flight.work, file, how, &self.registered, &self.zeros);
        if is_call {
            let device = Arc::clone(&flight.device);
            let call = ring.push_call(Token::Member(place), entry, device);
            flight.queued = call.map(Queued::new);
            return None;
        }
        // SAFETY: the memory named is that of `flight.work` (or `self.zeros`), which stays in the
        // table until the completion is reaped; `drop` leaks it if that never happens.
        Some(unsafe { ring.push(Token::Member(place), entry) })
    }

    /// A completion was reaped: what is over is added to `finished`.
    pub(crate) fn finish(
        &mut self,
        ring: &mut Ring,
        place: u32,
        result: i32,
        now: Time,
        finished: &mut Vec<Finished>,
    ) {
        let flight = (self.flights.get_mut(place)).expect("a completion belongs to a flight");
        let device = flight.id;
        match flight.merged.take() {
            Some(merged) => self.part(ring, merged, result, now, finished),
            None => finished.extend(self.finish_one(ring, place, result, now)),
        }
        let refused = result == -libc::EAGAIN && self.is_at_work(device, None);
        if !refused && !self.without_room.is_empty() {
            self.has_room(ring, device, now, finished);
        }
    }

    /// A flight was answered.
    fn finish_one(
        &mut self,
        ring: &mut Ring,
        place: u32,
        result: i32,
        now: Time,
    ) -> Option<Finished> {
        if result < 0 && self.was_refused(ring, place, result) {
            return None;
        }
        let flight = self
            .flights
            .get_mut(place)
            .expect("a completion belongs to a flight");
        #[cfg(test)]
        let result = tests::or_fault(flight.device.path(), result);
        let step = flight.advance(result);
        let verdict = match step {
            Step::Again if !flight.abandoned => {
                let file = flight.file;
                self.submit(ring, place, file);
                return None;
            }
            Step::Again => Err(IoError::TimedOut),
            Step::Done(verdict) => verdict,
        };
        if let Err(error) = verdict
            && self.pause(place, error, now)
        {
            return None;
        }
        self.conclude(ring, place, verdict, now)
    }

    /// The kernel is done with an I/O, and it will not be tried again.
    fn conclude(
        &mut self,
        ring: &mut Ring,
        place: u32,
        verdict: Result<(), IoError>,
        now: Time,
    ) -> Option<Finished> {
        let flight = self.flights.remove(place).expect("it is in the table");
        let verdict = verdict.map_err(RetryPolicy::verdict);
        if flight.blocks
            && let Some(next) = self.limiter.leave(flight.id, place)
        {
            let file = self
                .flights
                .get_mut(next)
                .expect("it waits in the table")
                .file;
            self.begin(ring, next, file, now);
        }
        self.given_back.extend(flight.work.borrowed());
        if flight.abandoned {
            tracing::debug!(device = %flight.device.path().display(), "an abandoned I/O came back");
            return None;
        }
        self.retried.extend(flight.retried(verdict.is_ok(), now));
        let buf = match flight.work {
            Work::Read { buf, .. } => Some(buf),
            // A write's data is dropped here, before the engine gets the completion.
            _ => None,
        };
        Some((
            flight.owner,
            Completion {
                io: flight.io,
                result: verdict,
                buf,
            },
        ))
    }

    /// Answers every I/O that is past its deadline or lost its device meanwhile, and retries those
    /// that have paused long enough.
    pub(crate) fn expire(&mut self, ring: &mut Ring, now: Time, finished: &mut Vec<Finished>) {
        if self.pausing > 0 {
            self.try_again(ring, now, finished);
        }
        self.excuse_queued(ring, now);
        let ran = self.pulse.ran(now);
        for (_, flight) in self.flights.iter_mut() {
            if flight.abandoned || ran < flight.due {
                continue;
            }
            // Of a device that is not there any more there is nothing to decide.
            if self.is_judged && !flight.device.is_gone() {
                if !std::mem::replace(&mut flight.reported, true) {
                    report(&mut self.overdue, flight.id, Late::Overdue(flight.rounds));
                }
                continue;
            }
            flight.abandon();
            self.retried.extend(flight.retried(false, now));
            finished.push((flight.owner, flight.unanswered()));
        }
        self.give_up_turns(now, finished);
    }

    /// The array has decided about I/Os of this device that are overdue.
    pub(crate) fn judged(
        &mut self,
        ring: &mut Ring,
        device: DeviceId,
        verdict: Verdict,
        now: Time,
        finished: &mut Vec<Finished>,
    ) {
        let ran = self.pulse.ran(now);
        self.judged_full(ring, device, verdict, now, finished);
        for (_, flight) in self.flights.iter_mut() {
            if flight.id != device || !flight.reported || flight.abandoned {
                continue;
            }
            match verdict {
                Verdict::GiveUp => {
                    flight.abandon();
                    self.retried.extend(flight.retried(false, now));
                    finished.push((flight.owner, flight.unanswered()));
                }
                Verdict::WaitOn => {
                    flight.reported = false;
                    flight.rounds += 1;
                    flight.due = ran.plus_ms(self.timeout.as_millis() as u64);
                }
            }
        }
        self.give_up_turns(now, finished);
    }

    /// Answers what waits behind calls that never come back, and would wait as long; forgets what
    /// was answered and the kernel does not have.
    fn give_up_turns(&mut self, now: Time, finished: &mut Vec<Finished>) {
        if !self.without_room.is_empty() {
            self.forget_abandoned();
        }
        let flights = &mut self.flights;
        let stuck = |place| flights.get_mut(place).is_none_or(|flight| flight.abandoned);
        for place in self.limiter.give_up(stuck) {
            let flight = self.flights.remove(place).expect("it waits in the table");
            self.retried.extend(flight.retried(false, now));
            finished.push((flight.owner, flight.unanswered()));
        }
    }

    /// How soon [`MemberIos::expire`] is worth calling again; `None` while nothing is in flight.
    pub(crate) fn scan_after(&self) -> Option<Duration> {
        let most = match self.pausing {
            0 => Duration::from_secs(1),
            _ => Duration::from_millis(100),
        };
        let coarse = (self.timeout / 4).clamp(Duration::from_millis(10), most);
        (self.flights.len() > 0).then_some(coarse)
    }
}

impl Drop for MemberIos {
    fn drop(&mut self) {
        let count = self.in_flight();
        if count > 0 {
            tracing::warn!(count, "I/O never came back: its memory is not used again");
            // What waits to be tried again, to be told, or for room, the kernel does not have.
            let there = |flight: &&mut Flight| flight.is_in_the_kernel();
            for flight in self
                .flights
                .iter_mut()
                .map(|(_, flight)| flight)
                .filter(there)
            {
                // Not the device: what the kernel works on keeps it open by itself, and no other
                // process may have it for longer than that.
                std::mem::forget(std::mem::replace(&mut flight.work, Work::Flush));
                std::mem::forget(flight.merged.take());
            }
            // Writes of zeros among them use this memory.
            std::mem::forget(self.zeros.clone());
        }
    }
}

/// A device has an I/O that the array is to decide about.
fn report(overdue: &mut Vec<(DeviceId, Late)>, device: DeviceId, late: Late) {
    for (_, told) in overdue.iter_mut().filter(|(id, _)| *id == device) {
        match (told, late) {
            (Late::Overdue(most), Late::Overdue(rounds)) => {
                *most = rounds.max(*most);
                return;
            }
            (Late::NoSpace, Late::NoSpace) => return,
            _ => {}
        }
    }
    overdue.push((device, late));
}

enum Step {
    /// Not done yet: submit the rest.
    Again,
    Done(Result<(), IoError>),
}

impl Flight {
    /// Does the kernel have it, as far as its answers say?
    fn is_in_the_kernel(&self) -> bool {
        self.pauses.is_none() && !matches!(self.room, Room::Missing(_))
    }

    /// Why nothing is heard of it.
    fn timeout_error(&self) -> IoError {
        self.device.why_gone().unwrap_or(IoError::TimedOut)
    }

    /// Its owner no longer waits for it.
    fn abandon(&mut self) {
        self.abandoned = true;
        // The kernel may keep the memory for ever; the owner must be able to go on without it.
        match &self.work {
            Work::Read { buf, .. } => buf.orphan(),
            Work::Write { data, .. } => data.buf.orphan(),
            _ => {}
        }
        let device = self.device.path().display();
        let error = self.timeout_error();
        tracing::warn!(%device, ?error, "an I/O outlasted its deadline");
    }

    /// What became of it, if it was tried again.
    fn retried(&self, got_through: bool, ended: Time) -> Option<Retried> {
        self.retry.map(|retry| Retried {
            device: self.id,
            retry,
            got_through,
            ended,
        })
    }

    /// What its owner is told when it is not waited for any longer.
    fn unanswered(&self) -> Completion {
        Completion {
            io: self.io,
            result: Err(self.timeout_error()),
            buf: None,
        }
    }

    /// Takes in a result of the kernel.
    fn advance(&mut self, result: i32) -> Step {
        if result < 0 {
            return self.failed(-result);
        }
        let got = result as usize;
        match &mut self.work {
            // A device or file that ends before its size does is not the one that was opened.
            Work::Read { len, done, .. } | Work::ReadInPlace { len, done, .. }
                if got == 0 && *done < *len =>
            {
                Step::Done(Err(self.device.why_gone().unwrap_or(IoError::Gone)))
            }
            Work::Write { data, done, .. } if got == 0 && *done < data.len => {
                self.failed(libc::ENOSPC)
            }
            Work::Read { len, done, .. } | Work::ReadInPlace { len, done, .. } => {
                *done += got;
                if *done < *len {
                    Step::Again
                } else {
                    Step::Done(Ok(()))
                }
            }
            Work::Write { data, done, .. } => {
                *done += got;
                if *done < data.len {
                    Step::Again
                } else {
                    Step::Done(Ok(()))
                }
            }
            Work::Zeros { len, done, .. } => {
                *done += got as u64;
                if got == 0 {
                    self.failed(libc::ENOSPC)
                } else if *done < *len {
                    Step::Again
                } else {
                    Step::Done(Ok(()))
                }
            }
            Work::Flush | Work::Range { .. } => Step::Done(Ok(())),
        }
    }

    fn failed(&mut self, errno: i32) -> Step {
        if errno == libc::EINTR {
            return Step::Again;
        }
        let unsupported = matches!(errno, libc::EOPNOTSUPP | libc::ENOSYS);
        match self.work {
            Work::Write { ref mut stream, .. } if errno == libc::EINVAL && *stream > 0 => {
                // The drive was given another configuration. It is as well written without.
                *stream = 0;
                if self.device.streams().forget() {
                    let device = self.device.path().display();
                    tracing::warn!(%device, "refuses its write streams: none is used any more");
                }
                return Step::Again;
            }
            Work::Range { discard: true, .. } if unsupported => return Step::Done(Ok(())),
            // Not ZERO_RANGE: there the kernel writes the zeros, with memory that what is swapped
            // out to this array may hold.
            Work::Range { offset, len, .. } if unsupported => {
                let done = 0;
                self.work = Work::Zeros { offset, len, done };
                self.room = Room::of(&self.work, self.device.refuses());
                return Step::Again;
            }
            _ => {}
        }
        let error = match (self.device.classify(errno), &self.work) {
            // A device says so of what it is not ready for; of what it cannot do at all, too, but
            // that is never a write or a flush.
            (IoError::Media, Work::Write { .. } | Work::Zeros { .. } | Work::Flush)
                if errno == libc::EREMOTEIO =>
            {
                IoError::Transport(errno)
            }
            (error, _) => error,
        };
        Step::Done(Err(error))
    }
}

#[cfg(test)]
pub(crate) mod tests;
