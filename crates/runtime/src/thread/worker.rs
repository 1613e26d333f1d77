//! One thread of an array: its ring, its shard of the engine, its router; on shard 0 also the
//! array's control.
//!
//! The loop: reap completions, drain mail, look at clocks, then let the machines speak until they
//! are quiet, and sleep in the kernel. Everything that has come in is given to the machines before
//! they are asked for effects, so that writes of one batch gather. Mail that has come meanwhile
//! (answers give the next requests) joins the batch before it is submitted; peers are woken once
//! for all that a batch has for them.
//!
//! **Two times.** The shard and the deadlines of member I/Os count the time in which this thread
//! ran (`strake_engine::Pulse`): hedges and latencies say nothing false after a standstill. The
//! array and its events count the time of the machine.
//!
//! Invariants:
//! * Completions that wait are taken before any deadline is looked at.
//! * Effects are carried out in the order in which a machine gives them.
//! * The thread blocks only in [`Ring::wait`]; with nothing in flight and no deadline it sleeps
//!   until it is woken.
//! * A panic of this thread ends the process: an array that serves with a shard missing would hang
//!   its users, while a daemon that is started again takes the block device over.
//!
//! Deliberately absent: decisions about the array, and locks that are held while anything waits.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Late, Pulse, Router, Shard, SharedPool, Target, Verdict, VolumeMap};

use crate::clock::{Clock, unix_s};
use crate::device::set::Devices;
use crate::export::ublk;
use crate::mail::{Answer, Mail, Peers, QueueStart};
use crate::member_io::{BorrowedPages, Finished, MemberIos, Owner};
use crate::memory::buffers::Slab;
use crate::ring::{Reaped, Ring, Token};
use crate::thread::GRACE;
use crate::thread::control::Control;
use crate::thread::counters::{Counted, Tally};

/// How soon a ublk queue that found no buffer looks again (another shard may let go of one without
/// a word).
const BUFFER_RETRY: Duration = Duration::from_millis(1);

/// A read of at least so many bytes goes straight into its request's pages, bytes. Below, the copy
/// costs no more, and a read into a buffer can be hedged.
const IN_PLACE_MIN: u64 = 32 << 10;

/// A turn of the thread counts for this much longer than it asked for at most, nanoseconds, in what
/// the shard measures: a thread that stood still says nothing of its members' latencies.
pub(crate) const SLACK_NS: u64 = 10_000_000;

/// How often mail that has come meanwhile joins a batch before the batch is submitted.
const JOINS: usize = 4;

/// The receiver of a request's answer.
enum Origin {
    Answer(Answer),
    Ublk { queue: u16, tag: u16 },
}

/// What a thread is made of. Fields drop in order: the ring before the memory that is registered
/// with it.
pub(crate) struct Worker {
    pub(crate) index: ShardNo,
    pub(crate) clock: Clock,
    /// How long the thread has run: the shard's time.
    pub(crate) pulse: Pulse,
    pub(crate) ring: Ring,
    pub(crate) ios: MemberIos,
    pub(crate) engine: Shard,
    pub(crate) control: Option<Control>,
    pub(crate) router: Router,
    pub(crate) peers: Peers,
    pub(crate) mail: Receiver<Mail>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) tallies: Arc<[Tally]>,
    pub(crate) queue_memory: Option<ublk::QueueMemory>,
    /// Places of the ring's table for pages of ublk requests: one queue has them.
    pub(crate) pages: Range<u16>,
    /// Where the stripe log lies on every member, bytes.
    pub(crate) log: Range<u64>,
    /// Kept for as long as it is registered.
    pub(crate) _client_memory: SharedPool,
    pub(crate) work: Work,
}

/// What a thread has under way.
#[derive(Default)]
pub(crate) struct Work {
    /// What each request is, and when it came.
    origins: Slab<(Origin, Counted, Time)>,
    /// I/O that was finished without the kernel.
    ready: VecDeque<Finished>,
    queues: BTreeMap<u16, ublk::Queue>,
    pieces: Vec<(Target, Request)>,
    reaped: Vec<Reaped>,
    /// Tags that a batch brought.
    tags: Vec<u16>,
    finished: Vec<Finished>,
    next_scan: Time,
    /// Peers that have mail and were not woken yet.
    to_wake: Vec<ShardNo>,
    /// Slices of other shards' buffers were dropped here.
    foreign_dropped: bool,
    /// When to give up waiting for I/O, once the thread is to end.
    ending: Option<Time>,
}

impl Worker {
    /// Runs until told to end. Answers which devices have I/O that the kernel did not end in time.
    pub(crate) fn run(mut self) -> Vec<PathBuf> {
        self.mailbox().is_of_this_thread();
        let wake = self.peers.shard(self.index).wake_fd().as_raw_fd();
        self.ring.poll_readable(Token::Wake, wake);
        let watch = self.control.as_ref().and_then(|control| control.watch.fd());
        if let Some(watch) = watch {
            self.ring.poll_readable(Token::Watch, watch.as_raw_fd());
        }
        loop {
            let now = self.clock.now();
            self.ios.wakes(now);
            self.pulse.wakes(now);
            if let Some(control) = &mut self.control {
                control.array.wall_clock(now, unix_s());
            }
            self.reap(now);
            self.drain_mail(now);
            self.look_at_clocks(now);
            if let Some(until) = self.work.ending {
                if self.ios.in_flight() == 0 {
                    self.ring.unregister_all();
                    return Vec::new();
                }
                if now >= until {
                    self.ring.let_go_of_files();
                    return self.ios.held_up();
                }
            } else {
                self.pump(now);
            }
            let patience = match self.prepare_to_sleep(now) {
                true => self.sleep(now),
                false => Some(Duration::ZERO),
            };
            self.flush_ublk();
            self.ios.sleeps(patience);
            self.pulse
                .sleeps(patience.map(|time| time.as_nanos() as u64));
            if let Err(error) = self.ring.wait(patience) {
                panic!("io_uring_enter fails on a ring that worked: {error}");
            }
            self.mailbox().awake();
            self.mailbox().set_hungry(false);
        }
    }

    /// Lets mail join the batch until there is none; false if it came faster than that, or if the
    /// thread is to end.
    fn prepare_to_sleep(&mut self, now: Time) -> bool {
        let was_ending = self.work.ending.is_some();
        let mut quiet = false;
        for _ in 0..JOINS {
            self.mailbox().about_to_sleep();
            quiet = !self.drain_mail(now);
            if quiet {
                break;
            }
            self.mailbox().awake();
            if self.work.ending.is_none() {
                self.pump(now);
            }
        }
        if self.work.ending.is_none() {
            let hungry = self.engine.hungry();
            self.mailbox().set_hungry(hungry);
            if hungry {
                self.pump(now);
            }
        }
        for shard in self.work.to_wake.drain(..) {
            self.peers.shard(shard).wake();
        }
        quiet && was_ending == self.work.ending.is_some()
    }

    /// Leaves mail for a peer, which is woken before this thread sleeps.
    fn post(&mut self, shard: ShardNo, mail: Mail) {
        self.peers.shard(shard).leave(mail);
        if !self.work.to_wake.contains(&shard) {
            self.work.to_wake.push(shard);
        }
    }

    fn mailbox(&self) -> &crate::mail::Mailbox {
        self.peers.shard(self.index)
    }

    /// How long there is nothing to do unless something happens.
    fn sleep(&self, now: Time) -> Option<Duration> {
        let until = |time: Time| Duration::from_nanos(time.since(now));
        let scan = self.ios.scan_after().map(|_| until(self.work.next_scan));
        let shard = self
            .engine
            .deadline()
            .filter(|_| self.work.ending.is_none())
            .map(|time| Duration::from_nanos(time.since(self.pulse.ran(now))));
        let control = self.control.as_ref().filter(|_| self.work.ending.is_none());
        let array = control
            .and_then(|control| control.array.deadline())
            .map(until);
        let watch = control
            .and_then(|control| control.watch.deadline())
            .map(until);
        let memory = self.queue_memory.as_ref();
        let starved = memory
            .is_some_and(ublk::QueueMemory::is_short)
            .then_some(BUFFER_RETRY);
        [scan, shard, array, watch, starved]
            .into_iter()
            .flatten()
            .min()
    }

    fn reap(&mut self, now: Time) {
        let mut reaped = std::mem::take(&mut self.work.reaped);
        let mut finished = std::mem::take(&mut self.work.finished);
        self.ring.reap(&mut reaped);
        for done in reaped.drain(..) {
            match done.token {
                Token::Wake => {
                    if !done.more {
                        self.mailbox().empty();
                        let wake = self.mailbox().wake_fd().as_raw_fd();
                        self.ring.poll_readable(Token::Wake, wake);
                    }
                }
                Token::Watch => self.watched(now, done.more),
                Token::Member(place) => {
                    let (ring, result) = (&mut self.ring, done.result);
                    self.ios.finish(ring, place, result, now, &mut finished);
                    self.take_back();
                    for one in finished.drain(..) {
                        self.complete(now, one);
                    }
                }
                Token::Ublk { queue, tag } => self.ublk_event(now, queue, tag, done.result),
                Token::UblkBatch { queue, .. } => self.ublk_batch_event(now, queue, &done),
            }
        }
        self.work.reaped = reaped;
        self.work.finished = finished;
        while let Some(finished) = self.work.ready.pop_front() {
            self.complete(now, finished);
        }
    }

    fn watched(&mut self, now: Time, more: bool) {
        let Some(control) = &mut self.control else {
            return;
        };
        if !more && let Some(watch) = control.watch.fd() {
            self.ring.poll_readable(Token::Watch, watch.as_raw_fd());
        }
        for device in control.watch.read(now) {
            control.array.device_gone(now, device);
        }
    }

    /// Tells the array of I/Os that were tried again.
    fn tell_retried(&mut self) {
        while let Some(told) = self.ios.retried() {
            match &mut self.control {
                Some(control) => control.array.retried(told),
                None => self.post(ShardNo(0), Mail::Retried(told)),
            }
        }
    }

    fn complete(&mut self, now: Time, (owner, completion): Finished) {
        self.tell_retried();
        if self.work.ending.is_some() {
            return;
        }
        match owner {
            Owner::Shard => self.engine.complete(self.pulse.ran(now), completion),
            Owner::Peer(shard) => self.post(shard, Mail::InPlaceDone(completion)),
            Owner::Array => {
                let control = self
                    .control
                    .as_mut()
                    .expect("array I/O is started where the array is");
                control.array.complete(now, completion);
            }
        }
    }

    fn look_at_clocks(&mut self, now: Time) {
        if let Some(after) = self.ios.scan_after()
            && now >= self.work.next_scan
        {
            self.work.next_scan = now.plus_ms(after.as_millis() as u64);
            let mut finished = std::mem::take(&mut self.work.finished);
            self.ios.expire(&mut self.ring, now, &mut finished);
            self.take_back();
            for one in finished.drain(..) {
                self.complete(now, one);
            }
            self.work.finished = finished;
            while let Some((device, late)) = self.ios.overdue() {
                self.report_overdue(now, device, late);
            }
        }
        if self.work.ending.is_none() {
            self.engine.tick(self.pulse.ran(now));
        }
        let Some(control) = self.control.as_mut().filter(|_| self.work.ending.is_none()) else {
            return;
        };
        for device in control.watch.look(now) {
            control.array.device_gone(now, device);
        }
        if control
            .array
            .deadline()
            .is_some_and(|deadline| now >= deadline)
        {
            control.array.tick(now);
        }
    }

    /// Tells the array that I/Os of a device are not answered.
    fn report_overdue(&mut self, now: Time, device: DeviceId, late: Late) {
        let deadline_ns = self.ios.deadline_ns();
        match &mut self.control {
            Some(control) => control.array.overdue(now, device, late, deadline_ns),
            None => self.post(ShardNo(0), Mail::Overdue(device, late)),
        }
    }

    /// The array has decided about I/Os that are overdue.
    fn judged(&mut self, now: Time, device: DeviceId, verdict: Verdict) {
        // What the kernel has answered by now is complete, whatever the verdict. An error is seen
        // by the next wait, too.
        let _ = self.ring.wait(Some(Duration::ZERO));
        self.reap(now);
        let mut finished = std::mem::take(&mut self.work.finished);
        self.ios
            .judged(&mut self.ring, device, verdict, now, &mut finished);
        self.take_back();
        for one in finished.drain(..) {
            self.complete(now, one);
        }
        self.work.finished = finished;
    }

    /// Takes in all mail; true if there was any.
    fn drain_mail(&mut self, now: Time) -> bool {
        let mut any = false;
        while let Ok(mail) = self.mail.try_recv() {
            any = true;
            if self.work.ending.is_some() {
                continue;
            }
            match mail {
                Mail::ToShard(message) => self.hear(now, message),
                Mail::Piece(request) => self.engine.submit(self.pulse.ran(now), request),
                Mail::Passed(request, late) => {
                    self.engine.passed(self.pulse.ran(now), request, late)
                }
                Mail::WriteToken(token) => self.engine.write_token(self.pulse.ran(now), token),
                Mail::PieceAgain(piece) => self.split_anew(now, piece),
                Mail::PieceReply(reply) => self.join(now, reply),
                Mail::InPlace(shard, io) => self.start_in_place(now, Owner::Peer(shard), io),
                Mail::InPlaceDone(completion) => {
                    self.engine.complete(self.pulse.ran(now), completion)
                }
                Mail::Submit(op, answer, volume) => {
                    self.submit(now, Origin::Answer(answer), op, volume.as_deref());
                }
                Mail::Release(device) => self.release(device),
                Mail::Overdue(device, late) => self.report_overdue(now, device, late),
                Mail::Judged(device, verdict) => self.judged(now, device, verdict),
                Mail::Ublk(start) => self.ublk_start(*start),
                Mail::Beat(answer) => {
                    // The daemon may have stopped waiting.
                    let _ = answer.send(());
                }
                Mail::Late(than, answer) => {
                    let _ = answer.send(self.ios.late(than, now));
                }
                Mail::Exit => {
                    self.work.ending = Some(now.plus_ms(GRACE.as_millis() as u64));
                    self.mailbox().set_hungry(false);
                }
                other => {
                    let control = self.control.as_mut().expect("such mail goes to shard 0");
                    control.receive(now, other, &self.devices);
                }
            }
        }
        any
    }

    /// Carries out what the machines want until they want nothing more.
    fn pump(&mut self, now: Time) {
        loop {
            let mut worked = self.retry_ublk(now);
            while let Some(output) = self.engine.poll() {
                worked = true;
                self.shard_output(now, output);
            }
            while let Some(output) = self
                .control
                .as_mut()
                .and_then(|control| control.array.poll())
            {
                worked = true;
                self.array_output(now, output);
            }
            while let Some(finished) = self.work.ready.pop_front() {
                worked = true;
                self.complete(now, finished);
            }
            if !worked {
                break;
            }
        }
        if std::mem::take(&mut self.work.foreign_dropped) {
            self.peers.buffers_came_back();
        }
    }

    fn shard_output(&mut self, now: Time, output: ShardOutput) {
        match output {
            ShardOutput::Io(io) => self.start_io(now, Owner::Shard, io),
            ShardOutput::Reply(reply) => self.bring_home(now, reply),
            ShardOutput::Again(piece) => self.bring_back(now, piece),
            ShardOutput::Pass(owner, request, late) => {
                self.post(owner, Mail::Passed(request, late));
            }
            ShardOutput::WriteToken(shard, token) => self.post(shard, Mail::WriteToken(token)),
            ShardOutput::Message(message) => match &mut self.control {
                Some(control) => control.array.message(now, self.index, message),
                None => self.post(ShardNo(0), Mail::FromShard(self.index, message)),
            },
        }
    }

    fn array_output(&mut self, now: Time, output: ArrayOutput) {
        match output {
            ArrayOutput::Io(io) => self.start_io(now, Owner::Array, io),
            ArrayOutput::Reply(reply) => self.bring_home(now, reply),
            ArrayOutput::Again(piece) => self.bring_back(now, piece),
            ArrayOutput::Message(shard, message) if shard == self.index => {
                self.hear(now, message);
            }
            ArrayOutput::Message(shard, message) => {
                self.post(shard, Mail::ToShard(message));
            }
            ArrayOutput::Release(device) => {
                for peer in self.peers.iter().skip(1) {
                    peer.post(Mail::Release(device));
                }
                self.release(device);
            }
            ArrayOutput::Overdue(device, verdict) => {
                for peer in self.peers.iter().skip(1) {
                    peer.post(Mail::Judged(device, verdict));
                }
                self.judged(now, device, verdict);
            }
            other => {
                let control = self.control.as_mut().expect("the array spoke");
                control.carry_out(&self.clock, other, &self.devices);
            }
        }
    }

    /// A message of the array reaches this thread's machines: the router first.
    fn hear(&mut self, now: Time, message: ToShard) {
        match &message {
            ToShard::Quiesce => self.router.quiesce(),
            ToShard::Resume => self.router.resume(),
            ToShard::Reshape(setup) => {
                self.router.reshape(Arc::clone(&setup.geometry));
                self.log = log_of(setup);
            }
            _ => {}
        }
        self.engine.message(self.pulse.ran(now), message);
    }

    fn tally(&self) -> &Tally {
        &self.tallies[usize::from(self.index.0)]
    }

    fn start_io(&mut self, now: Time, owner: Owner, io: MemberIo) {
        self.tally().count_member(&io.kind, &self.log);
        self.tally().devices().count(&io);
        if let IoKind::ReadInPlace { request, .. } = io.kind {
            // The pages are registered with the ring that fetched the request.
            let home = ShardNo(Router::queue_of(request));
            return match home == self.index {
                true => self.start_in_place(now, owner, io),
                false => self.post(home, Mail::InPlace(self.index, io)),
            };
        }
        self.start_with(now, owner, io, None);
    }

    /// Starts a read that fills pages of a request of this thread's queue.
    fn start_in_place(&mut self, now: Time, owner: Owner, io: MemberIo) {
        let IoKind::ReadInPlace { request, .. } = io.kind else {
            unreachable!("only reads in place are handed to the queue's thread")
        };
        let request = self.router.request_of(request);
        let place = request
            .expect("a request is not answered while it is read")
            .0;
        let origin = self.work.origins.get_mut(place as u32);
        let Some((Origin::Ublk { queue, tag }, ..)) = origin else {
            unreachable!("only ublk's requests are read in place")
        };
        let (queue, tag) = (*queue, *tag);
        let serving = self.work.queues.get_mut(&queue);
        let index = serving.expect("a queue outlives its requests").lend(tag);
        self.start_with(now, owner, io, Some(BorrowedPages { queue, tag, index }));
    }

    fn start_with(
        &mut self,
        now: Time,
        owner: Owner,
        io: MemberIo,
        borrowed: Option<BorrowedPages>,
    ) {
        if !self.ios.knows(io.device)
            && let Some(device) = self.devices.get(io.device)
        {
            self.ios.attach(&mut self.ring, io.device, device);
        }
        if let Some(finished) = self.ios.start(&mut self.ring, owner, io, borrowed, now) {
            self.work.ready.push_back(finished);
        }
        self.take_back();
    }

    /// Tells the queues of pages that the kernel has let go of.
    fn take_back(&mut self) {
        while let Some(borrowed) = self.ios.given_back() {
            if let Some(queue) = self.work.queues.get_mut(&borrowed.queue) {
                // The answer may have kept buffers of other shards until now.
                let answered = queue.given_back(&mut self.ring, borrowed.tag);
                self.work.foreign_dropped |= answered && self.peers.count() > 1;
            }
        }
    }

    fn release(&mut self, device: DeviceId) {
        self.devices.close(device);
        self.ios.release(&mut self.ring, device);
        if let Some(control) = &mut self.control {
            control.watch.remove(device);
        }
    }

    fn submit(&mut self, now: Time, origin: Origin, op: Op, volume: Option<&VolumeMap>) {
        let counted = match &op {
            Op::Read { len, .. } | Op::ReadInPlace { len, .. } => Counted::Read(*len),
            Op::Write { data, .. } => Counted::Write(data.len as u64),
            Op::Flush | Op::Discard { .. } | Op::WriteZeroes { .. } => Counted::Other,
        };
        let id = RequestId(u64::from(self.work.origins.insert((origin, counted, now))));
        let mut pieces = std::mem::take(&mut self.work.pieces);
        let request = Request { id, op };
        let answered = self.router.route_in(volume, request, &mut pieces);
        self.send_pieces(now, &mut pieces);
        self.work.pieces = pieces;
        if let Some(reply) = answered {
            self.answer(now, reply);
        }
    }

    /// Sends pieces of requests where they belong.
    fn send_pieces(&mut self, now: Time, pieces: &mut Vec<(Target, Request)>) {
        for (target, mut request) in pieces.drain(..) {
            if let Op::ReadInPlace { offset, len, .. } = request.op
                && len < IN_PLACE_MIN
            {
                request.op = Op::Read { offset, len };
            }
            match (target, &mut self.control) {
                (Target::Shard(shard), _) if shard == self.index => {
                    self.engine.submit(self.pulse.ran(now), request)
                }
                (Target::Shard(owner), _) if is_read(&request.op) => {
                    self.engine.read_remote(self.pulse.ran(now), owner, request);
                }
                (Target::Shard(shard), _) => self.post(shard, Mail::Piece(request)),
                (Target::Array, Some(control)) => control.array.submit(now, request),
                (Target::Array, None) => self.post(ShardNo(0), Mail::ArrayPiece(request)),
            }
        }
    }

    /// Brings a piece to the router that made it: the array has another shape since.
    fn bring_back(&mut self, now: Time, piece: Request) {
        let home = ShardNo(Router::queue_of(piece.id));
        if home == self.index {
            self.split_anew(now, piece);
        } else {
            self.post(home, Mail::PieceAgain(piece));
        }
    }

    fn split_anew(&mut self, now: Time, piece: Request) {
        let mut pieces = Vec::new();
        self.router.again(piece, &mut pieces);
        self.send_pieces(now, &mut pieces);
    }

    /// Brings the answer of a piece to the router that made the piece.
    fn bring_home(&mut self, now: Time, reply: Reply) {
        let home = ShardNo(Router::queue_of(reply.id));
        if home == self.index {
            self.join(now, reply);
        } else {
            self.post(home, Mail::PieceReply(reply));
        }
    }

    fn join(&mut self, now: Time, piece: Reply) {
        if let Some(reply) = self.router.join(piece) {
            self.answer(now, reply);
        }
    }

    fn answer(&mut self, now: Time, reply: Reply) {
        let place = u32::try_from(reply.id.0).expect("an id that this thread gave");
        let (origin, counted, came) = self
            .work
            .origins
            .remove(place)
            .expect("a request is answered exactly once");
        self.tally()
            .count(counted, reply.result.is_ok(), now.since(came));
        self.work.foreign_dropped |= self.peers.count() > 1 && has_data(&reply.result);
        match origin {
            Origin::Answer(answer) => answer(reply.result),
            Origin::Ublk { queue, tag } => {
                if let Some(queue) = self.work.queues.get_mut(&queue) {
                    queue.answer(&mut self.ring, tag, reply.result);
                }
            }
        }
    }

    fn ublk_start(&mut self, start: QueueStart) {
        let memory = self
            .queue_memory
            .as_ref()
            .expect("made where ublk was asked for");
        // Several devices have queues here, where volumes have one each.
        let queues = &self.work.queues;
        let Some(key) = (0..=u16::MAX).find(|key| !queues.contains_key(key)) else {
            return;
        };
        // A device left behind may have more queues than there are shards now.
        let pages = match self.work.queues.values().any(ublk::Queue::has_pages) {
            false => self.pages.clone(),
            true => 0..0,
        };
        let started = ublk::Queue::start(start, key, memory, pages, &mut self.ring);
        if let Some(queue) = started {
            self.work.queues.insert(key, queue);
        }
    }

    fn ublk_event(&mut self, now: Time, number: u16, tag: u16, result: i32) {
        let Some(queue) = self.work.queues.get_mut(&number) else {
            return;
        };
        match queue.event(&mut self.ring, tag, result) {
            ublk::Event::Request(op) => {
                let volume = queue.volume();
                let origin = Origin::Ublk { queue: number, tag };
                self.submit(now, origin, op, volume.as_deref());
            }
            ublk::Event::Nothing => {}
            ublk::Event::Ended => self.ublk_end(number),
        }
    }

    fn ublk_batch_event(&mut self, now: Time, number: u16, done: &Reaped) {
        let Some(queue) = self.work.queues.get_mut(&number) else {
            return;
        };
        let mut tags = std::mem::take(&mut self.work.tags);
        let ended = queue.batch_event(&mut self.ring, done, &mut tags);
        for tag in tags.drain(..) {
            self.ublk_event(now, number, tag, 0);
        }
        self.work.tags = tags;
        if ended {
            self.ublk_end(number);
        }
    }

    fn ublk_end(&mut self, number: u16) {
        if let Some(queue) = self.work.queues.remove(&number) {
            queue.end(&self.ring);
        }
    }

    /// Gives the driver the answers that have gathered.
    fn flush_ublk(&mut self) {
        for queue in self.work.queues.values_mut() {
            queue.flush(&mut self.ring);
        }
    }

    /// Gives requests that found no buffer another try, in their order, those of long buffers
    /// first.
    fn retry_ublk(&mut self, now: Time) -> bool {
        let memory = self
            .queue_memory
            .as_ref()
            .filter(|memory| memory.is_short());
        let Some(memory) = memory.cloned() else {
            return false;
        };
        let mut worked = false;
        for line in (0..memory.lines()).rev() {
            while let Some((tag, key)) = memory.first(line) {
                let Some(queue) = self.work.queues.get_mut(&key) else {
                    memory.served(line);
                    continue;
                };
                let Some(event) = queue.retry(&mut self.ring, tag) else {
                    break;
                };
                memory.served(line);
                worked = true;
                if let ublk::Event::Request(op) = event {
                    let volume = queue.volume();
                    let origin = Origin::Ublk { queue: key, tag };
                    self.submit(now, origin, op, volume.as_deref());
                }
            }
        }
        worked
    }
}

/// Where the stripe log lies on every member.
pub(crate) fn log_of(setup: &ShardSetup) -> Range<u64> {
    setup.log_offset..setup.log_offset + setup.log_bytes
}

fn is_read(op: &Op) -> bool {
    matches!(op, Op::Read { .. } | Op::ReadInPlace { .. })
}

fn has_data(result: &Result<Slices, RequestError>) -> bool {
    result.as_ref().is_ok_and(|slices| !slices.is_empty())
}
