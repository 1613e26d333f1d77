//! The block device's user: asks, remembers, and compares what is answered with the oracle.
//!
//! Invariant: the oracle records a request before the engine gets it, and an answer before the user
//! sends anything more.
//!
//! Deliberately absent: what is asked (`plan::workload`) and what may be answered (`oracle`).

use std::collections::BTreeMap;

use strake_engine::event::{Op, RegionAccess, Reply, Request, RequestError, Slices};
use strake_engine::units::{RequestId, ShardNo, Time};
use strake_engine::{Buf, Slice, Target, limits};

use crate::canary::Canary;
use crate::oracle::{self, Saw, Ticket};
use crate::plan::workload::{self, Ask, AskKind, Swarm};
use crate::prng::Prng;
use crate::world::clock::Place;
use crate::world::life::beyond_tolerance::Demand;
use crate::world::{Happening, SimResult, World};

/// A request under way.
pub struct PendingRequest {
    pub(crate) ask: Ask,
    /// Where else it lies: a volume's request in several extents.
    pub(crate) more: Vec<Ask>,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) moment: oracle::Moment,
    /// Buffers that it may hold, by the strip of its time.
    pub(crate) buffers: u64,
    /// Where members put what a read in place asks for.
    pub(crate) place: Vec<u8>,
}

impl PendingRequest {
    /// All of where it lies.
    pub(crate) fn asks(&self) -> impl Iterator<Item = &Ask> {
        std::iter::once(&self.ask).chain(&self.more)
    }

    /// What was read.
    pub(crate) fn bytes(&self, slices: &Slices) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.read_into(slices, &mut bytes);
        bytes
    }

    fn read_into(&self, slices: &Slices, bytes: &mut Vec<u8>) {
        for slice in slices {
            let at = bytes.len();
            match slice.in_place() {
                true => bytes.extend_from_slice(&self.place[at..at + slice.len]),
                false => bytes.extend_from_slice(slice.bytes()),
            }
        }
    }
}

/// See the module.
pub(crate) struct User {
    pub(super) shape: workload::Shape,
    pub(super) swarm: Swarm,
    cursor: u64,
    /// Requests under way.
    pub(super) asks: BTreeMap<RequestId, PendingRequest>,
    pub(super) next_request: u64,
    /// Requests that the user still wants to make in this life.
    pub(super) asks_left: u64,
    next_ask_at: Time,
    /// Buffers of a shard that the user's reads may hold at the same time.
    pub(super) reading_most: u64,
    /// The most buffers of one size that a shard has.
    pub(super) strips_most: usize,
    /// Buffers that they may hold now.
    pub(super) reading: u64,
    /// A request that waits until the user reads less.
    pub(super) held: Option<Ask>,
    /// Reads of several blocks that were answered an error because of some of them.
    pub(super) refused_reads: Vec<Ask>,
    /// Single blocks that were, since everything was read last.
    pub(super) refused_blocks: Vec<u64>,
    pub(super) scratch: Vec<u8>,
}

impl User {
    pub(super) fn new(shape: workload::Shape, swarm: Swarm) -> User {
        User {
            shape,
            swarm,
            cursor: 0,
            asks: BTreeMap::new(),
            next_request: 0,
            asks_left: 0,
            next_ask_at: Time(0),
            reading_most: 0,
            strips_most: 0,
            reading: 0,
            held: None,
            refused_reads: Vec::new(),
            refused_blocks: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// The request that waits, or another.
    pub(super) fn next(&mut self, rng: &mut Prng) -> Ask {
        let drawn = || self.swarm.ask(rng, &self.shape, &mut self.cursor);
        self.held.take().unwrap_or_else(drawn)
    }

    /// The process is gone, and so are the requests that it had.
    pub(super) fn forget(&mut self) {
        self.asks.clear();
        (self.reading, self.held) = (0, None);
        (self.asks_left, self.next_ask_at) = (0, Time(0));
    }
}

impl World {
    /// The user wants to make so many requests more.
    pub fn want(&mut self, asks: u64) -> SimResult {
        self.user.asks_left += asks;
        self.pump()
    }
    /// The user wants nothing more, and was answered all.
    pub fn is_content(&self) -> bool {
        self.user.asks_left == 0 && self.all_answered()
    }
    /// Goes on until then.
    pub(crate) fn until_content(&mut self) -> SimResult {
        self.wait("requests are answered", |world| world.is_content())
    }
    /// No request is under way.
    pub fn all_answered(&self) -> bool {
        self.user.asks.is_empty()
    }
    /// Requests under way.
    pub fn under_way(&self) -> usize {
        self.user.asks.len()
    }
    /// This one is.
    pub fn is_under_way(&self, id: RequestId) -> bool {
        self.user.asks.contains_key(&id)
    }
    /// The newest of them.
    pub fn asked_last(&self) -> Option<RequestId> {
        self.user.asks.last_key_value().map(|(&id, _)| id)
    }
    /// Blocks that were answered an error since everything was read last.
    pub fn refused_blocks(&self) -> &[u64] {
        &self.user.refused_blocks
    }
    /// Buffers of one shard that a request may hold until the user lets go of the answer. Memory is
    /// bounded, so a user that reads more at once than a shard has buffers waits for ever.
    pub(crate) fn buffers_of(&self, ask: &Ask) -> u64 {
        match ask.kind {
            AskKind::Read => ask.count * self.geometry.block / self.geometry.strip + 2,
            _ => 0,
        }
    }
    /// May the user make this request now?
    pub fn may_ask(&self, ask: &Ask) -> bool {
        self.user.reading == 0 || self.user.reading + self.buffers_of(ask) <= self.user.reading_most
    }
    /// Blocks that a read may have.
    pub fn longest_read(&self) -> u64 {
        // It may begin and end within a strip, and all of its strips may be one shard's.
        let pieces = self
            .user
            .strips_most
            .saturating_sub(limits::widest(&self.geometry));
        let strips = (self.user.reading_most - 2).min(pieces.max(2) as u64 - 1);
        strips * self.geometry.strip / self.geometry.block
    }

    /// Submits one more request of the user, unless it would read too much at once.
    fn ask(&mut self) -> SimResult<bool> {
        if self.volumes.is_some() {
            return self.ask_volume();
        }
        let mut ask = self.user.next(&mut self.chance.workload);
        let changes = ask.kind.changes();
        let busy = !self.user.swarm.overlapping && self.oracle.busy(ask.first, ask.count);
        if changes && (busy || self.touches_corrupt(&ask)) {
            ask = Ask::new(AskKind::Read, ask.first, ask.count);
        }
        if ask.kind == AskKind::Read {
            ask.count = ask.count.min(self.longest_read());
        }
        if !self.may_ask(&ask) {
            self.user.held = Some(ask);
            return Ok(false);
        }
        self.user.asks_left -= 1;
        self.submit(ask)?;
        Ok(true)
    }

    /// The place of a read that members can fill, for one read in some. It holds bytes that were
    /// never written.
    pub(crate) fn in_place(&self, id: RequestId, op: &mut Op) -> Vec<u8> {
        let one_in = self.plan.in_place_one_in;
        let Op::Read { offset, len } = *op else {
            return Vec::new();
        };
        if one_in == 0 || !id.0.is_multiple_of(one_in) {
            return Vec::new();
        }
        *op = Op::ReadInPlace { offset, len, at: 0 };
        vec![0xdb; len as usize]
    }

    /// Submits this request of the user.
    pub fn submit(&mut self, ask: Ask) -> SimResult {
        self.stats.asks += 1;
        self.touch_decay(&ask);
        if self.all_answered() {
            self.silent.ended.clear();
            self.decay.forget_ended();
        }
        let buffers = self.buffers_of(&ask);
        self.user.reading += buffers;
        let id = RequestId(self.user.next_request);
        self.user.next_request += 1;
        let (mut op, ticket, moment) = self.announce(&ask);
        let place = self.in_place(id, &mut op);
        self.trace([1, id.0, ask.first, ask.count], || {
            format!("request {} {ask:?}", id.0)
        });
        let queue = (id.0 % u64::from(self.plan.queues)) as u16;
        self.user.asks.insert(
            id,
            PendingRequest {
                buffers,
                ask,
                more: Vec::new(),
                ticket,
                moment,
                place,
            },
        );
        if self
            .planted
            .as_ref()
            .is_some_and(|p| p.answers_early(ask.kind))
        {
            let asked = self.user.asks.get_mut(&id).expect("inserted above");
            if let Some(ticket) = asked.ticket.take() {
                self.oracle.answered(&ticket, ask.fua);
            }
        }
        let mut pieces = Vec::new();
        let router = &mut self.machines().routers[usize::from(queue)];
        if let Some(reply) = router.route(Request { id, op }, &mut pieces) {
            return self.answered(reply);
        }
        self.send_pieces(queue, pieces);
        Ok(())
    }

    /// Sends pieces of requests where they belong.
    pub(crate) fn send_pieces(&mut self, queue: u16, pieces: Vec<(Target, Request)>) {
        for (target, piece) in pieces {
            match target {
                Target::Shard(owner) if self.reads_remotely(queue, owner, &piece) => {
                    let near = queue % self.shards;
                    let what = Happening::RemoteRead(owner, near, piece);
                    self.send(Place::Queue(queue), Place::Shard(near), what);
                }
                Target::Shard(shard) => self.send(
                    Place::Queue(queue),
                    Place::Shard(shard.0),
                    Happening::AskShard(shard.0, piece),
                ),
                Target::Array => {
                    self.send(
                        Place::Queue(queue),
                        Place::Array,
                        Happening::AskArray(piece),
                    );
                }
            }
        }
    }

    /// The read of another shard's stripe is first asked of the shard that the queue is nearest to.
    fn reads_remotely(&self, queue: u16, owner: ShardNo, piece: &Request) -> bool {
        let read = matches!(piece.op, Op::Read { .. } | Op::ReadInPlace { .. });
        read && queue % self.shards != owner.0
    }

    /// Announces a request to the oracle before the engine gets it.
    fn announce(&mut self, ask: &Ask) -> (Op, Option<Ticket>, oracle::Moment) {
        let block = self.geometry.block;
        let (offset, len) = (ask.first * block, ask.count * block);
        let (mut ticket, mut moment) = (None, 0);
        let op = match ask.kind {
            AskKind::Read => {
                moment = self.oracle.read();
                Op::Read { offset, len }
            }
            AskKind::Flush => {
                moment = self.oracle.flush();
                Op::Flush
            }
            AskKind::Write => {
                let (announced, version) = self.oracle.write(ask.first, ask.count);
                ticket = Some(announced);
                let mut buf = Buf::zeroed(len as usize);
                let bytes = &mut buf.bytes_mut()[..len as usize];
                for (at, bytes) in (ask.first..).zip(bytes.chunks_mut(block as usize)) {
                    oracle::content(version, at, bytes);
                }
                Op::Write {
                    offset,
                    data: Slice::new(buf, 0, len as usize),
                    fua: ask.fua,
                }
            }
            AskKind::Discard => {
                ticket = Some(self.oracle.discard(ask.first, ask.count));
                Op::Discard { offset, len }
            }
            AskKind::WriteZeroes => {
                ticket = Some(self.oracle.zero(ask.first, ask.count));
                Op::WriteZeroes {
                    offset,
                    len,
                    fua: ask.fua,
                }
            }
        };
        (op, ticket, moment)
    }

    /// The array serves, and goes on to.
    pub(crate) fn takes_requests(&self) -> bool {
        let machines = self.machines.as_ref();
        machines.is_some_and(|m| m.started && !m.stopped)
    }

    /// Submits requests as long as the user wants to.
    pub fn pump(&mut self) -> SimResult {
        let ready = self.takes_requests();
        while ready && self.user.asks_left > 0 && self.user.asks.len() < self.user.swarm.depth {
            if self.user.next_ask_at > self.clock.now() {
                return Ok(());
            }
            if !self.ask()? {
                return Ok(());
            }
            let rng = &mut self.chance.workload;
            let mut pause = rng.below(self.user.swarm.pause_ns + 1);
            if rng.one_in(40) {
                pause += rng.below(4 * self.plan.clean_after_ms * 1_000_000);
            }
            if pause > 0 {
                self.user.next_ask_at = Time(self.clock.now().0 + pause);
                self.clock.at(self.user.next_ask_at, Happening::Wake);
            }
        }
        Ok(())
    }

    // ---- answers ------------------------------------------------------------------------------

    pub(crate) fn answer(&mut self, queue: u16, reply: Reply) -> SimResult {
        self.trace([10, reply.id.0, reply.result.is_ok().into(), 0], || {
            let result = reply.result.as_ref().map(|slices| slices.len());
            format!("queue {queue}: answer {:#x} {result:?}", reply.id.0)
        });
        match self.machines().routers[usize::from(queue)].join(reply) {
            Some(reply) => self.answered(reply),
            None => Ok(()),
        }
    }

    pub(crate) fn answered(&mut self, reply: Reply) -> SimResult {
        let (id, well) = (reply.id, reply.result.is_ok());
        self.take_answer(reply)?;
        self.volumes_note(id, well)
    }

    fn take_answer(&mut self, reply: Reply) -> SimResult {
        let Some(asked) = self.user.asks.remove(&reply.id) else {
            return self.failure(format!("request {} was answered twice", reply.id.0));
        };
        self.trace([11, reply.id.0, 0, 0], || {
            format!("request {} is answered", reply.id.0)
        });
        let Some((asked, reply)) = self.volume_answered(asked, reply)? else {
            return Ok(());
        };
        let slices = match reply.result {
            Ok(_) if self.expected.demand == Demand::Nothing => {
                return self.failure(format!("a failed array answered {:?}", asked.ask));
            }
            Ok(slices) => slices,
            Err(error) if self.excused_beyond(&asked, error) => {
                return self.let_go(asked.buffers);
            }
            Err(RequestError::Unreadable) if self.is_excused(&asked.ask) => {
                return self.refused(&asked);
            }
            Err(error) => return self.unreadable(&asked, error),
        };
        if asked.ask.kind != AskKind::Read && !slices.is_empty() {
            return self.failure(format!("{:?} was answered with data", asked.ask));
        }
        match (asked.ask.kind, &asked.ticket) {
            (AskKind::Read, _) => self.read_answered(&asked, slices)?,
            (AskKind::Flush, _) => self.oracle.flushed(asked.moment),
            (_, Some(ticket)) => {
                self.oracle.answered(ticket, asked.ask.fua);
                self.read_back(asked.ask);
            }
            // A planted bug answered it before.
            (_, None) => {}
        }
        Ok(())
    }

    /// While some shard may not know yet that a member is lost, what was written is asked for next.
    fn read_back(&mut self, ask: Ask) {
        if self.plan.slow_shard.is_some() && !self.expected.leaving.is_empty() {
            let count = ask.count.min(self.longest_read()).max(1);
            let read = Ask::new(AskKind::Read, ask.first, count);
            self.user.held.get_or_insert(read);
        }
    }

    /// Does the request lie where a clean error is as good as an answer?
    pub(crate) fn is_excused(&self, ask: &Ask) -> bool {
        let geometry = &self.geometry;
        let mut blocks = ask.first..ask.first + ask.count.max(1);
        blocks.any(|block| {
            let (_, row) = geometry.row(geometry.locate(block * geometry.block).stripe);
            self.expected.excused.contains(&geometry.region(row))
        })
    }

    /// A clean error: the blocks are old or new.
    fn refused(&mut self, asked: &PendingRequest) -> SimResult {
        self.stats.refused += 1;
        match &asked.ticket {
            Some(ticket) => self.oracle.unanswered(ticket),
            None => self.oracle.unread(asked.moment),
        }
        self.let_go(asked.buffers)
    }

    /// An error is right only for a read of a block that could not be computed.
    fn unreadable(&mut self, asked: &PendingRequest, error: RequestError) -> SimResult {
        self.note_lost_blocks();
        let ask = asked.ask;
        let mut blocks = ask.first..ask.first + ask.count;
        let fair = ask.kind == AskKind::Read && error == RequestError::Unreadable;
        if !fair || !blocks.any(|block| self.oracle.may_fail(asked.moment, block)) {
            return self.failure(format!("{ask:?} was answered {error:?}"));
        }
        self.stats.unreadable_answers += 1;
        self.oracle.unread(asked.moment);
        self.user.reading -= asked.buffers;
        match ask.count {
            1 => self.user.refused_blocks.push(ask.first),
            _ => self.user.refused_reads.push(ask),
        }
        Ok(())
    }

    fn read_answered(&mut self, asked: &PendingRequest, slices: Slices) -> SimResult {
        let mut bytes = std::mem::take(&mut self.user.scratch);
        bytes.clear();
        asked.read_into(&slices, &mut bytes);
        let expected = asked.ask.count * self.geometry.block;
        if bytes.len() as u64 != expected {
            let text = format!("{:?} was answered with {} bytes", asked.ask, bytes.len());
            return self.failure(text);
        }
        if self.has(Canary::ReconstructZeros) {
            self.zero_missing(asked.ask.first, &mut bytes);
        }
        self.excuse_corrupt(asked, &mut bytes);
        let first = asked.ask.first;
        let blocks = first..first + asked.ask.count;
        let saw: Vec<Saw> = blocks.map(|block| self.sees(asked.moment, block)).collect();
        let saw = |block| saw[(block - first) as usize];
        let seen = self.oracle.seen_but(asked.moment, first, &bytes, saw);
        self.user.scratch = bytes;
        if let Err(mismatch) = seen {
            let place = self.place(mismatch.block);
            return self.failure(format!("{} ({place})", mismatch.text));
        }
        if self.chance.workload.one_in(4) {
            let ns = self.chance.latency.below(200_000);
            let later = Happening::Drop(slices, asked.buffers);
            self.clock.after(ns, later);
            return Ok(());
        }
        drop(slices);
        self.let_go(asked.buffers)
    }

    /// What an answer shows of a block.
    fn sees(&mut self, moment: oracle::Moment, block: u64) -> Saw {
        if self.may_be_rotten(moment, block) {
            return Saw::Anything;
        }
        match self.copies_stay_apart(block) {
            true => Saw::OneCopy,
            false => Saw::Content,
        }
    }

    /// The block lies in an undecided region where an interrupted write may have left copies
    /// different: the first copy answers there, and another once that one is gone.
    fn copies_stay_apart(&mut self, block: u64) -> bool {
        if !self.expected.resyncing || !self.geometry.mirrored() {
            return false;
        }
        let place = self.geometry.locate(block * self.geometry.block);
        let region = self.geometry.region(self.geometry.row(place.stripe).1);
        self.array().access(region) == RegionAccess::Undecided
    }

    /// The user holds so many buffers less.
    pub(crate) fn let_go(&mut self, buffers: u64) -> SimResult {
        self.user.reading -= buffers;
        self.poll_shards()
    }

    /// Where a block lies, in words.
    pub fn place(&self, block: u64) -> String {
        let place = self.geometry.locate(block * self.geometry.block);
        let (_, row) = self.geometry.row(place.stripe);
        let slot = self.geometry.slot(place.stripe, place.column);
        let region = self.geometry.region(row);
        format!(
            "{}, row {}, column {}, slot {slot}, region {}",
            place.stripe, row.0, place.column, region.0
        )
    }

    pub(crate) fn zero_missing(&mut self, first: u64, bytes: &mut [u8]) {
        let looks = self.looks();
        let size = self.geometry.block;
        for (block, bytes) in (first..).zip(bytes.chunks_mut(size as usize)) {
            let place = self.geometry.locate(block * size);
            let slot = self.geometry.slot(place.stripe, place.column);
            if looks[slot.index()].in_sync.is_none() {
                bytes.fill(0);
            }
        }
    }
}
