//! What the array gives out, and which of its member I/Os are in flight.
//!
//! Invariant: each I/O that is in flight has one purpose, and its completion takes that away.
//!
//! Deliberately absent: what a completion leads to ([`Array::complete`](super::Array::complete)).

use std::collections::VecDeque;

use slab::Slab;

use crate::array::Purpose;
use crate::proto::*;
use crate::units::*;

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    outputs: VecDeque<ArrayOutput>,
    in_flight: Slab<Purpose>,
    shards: u16,
    /// The time of the latest input: events carry it.
    now: Time,
    /// What time of day it was when the driver said so last, seconds since 1970.
    wall: (Time, u64),
}

impl Outbox {
    /// Of an array that so many shards serve.
    pub(crate) fn new(shards: u16, unix_s: u64) -> Outbox {
        Outbox {
            outputs: VecDeque::new(),
            in_flight: Slab::new(),
            shards,
            now: Time(0),
            wall: (Time(0), unix_s),
        }
    }

    /// An input comes at this time.
    pub(crate) fn input_at(&mut self, now: Time) {
        self.now = now;
    }

    /// The time of the latest input.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// The time of day, as the driver says it.
    pub(crate) fn set_wall(&mut self, now: Time, unix_s: u64) {
        self.wall = (now, unix_s);
    }

    /// The time of day counts from now on.
    pub(crate) fn start_wall(&mut self, now: Time) {
        self.wall.0 = now;
    }

    /// The time of day, seconds since 1970.
    pub(crate) fn unix_s(&self) -> u64 {
        let (told, unix_s) = self.wall;
        unix_s.saturating_add(self.now.since(told) / 1_000_000_000)
    }

    /// The next effect.
    pub(crate) fn poll(&mut self) -> Option<ArrayOutput> {
        self.outputs.pop_front()
    }

    /// What the I/Os in flight are for.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = &Purpose> {
        self.in_flight.iter().map(|(_, purpose)| purpose)
    }

    /// An I/O is over: what it was for.
    pub(crate) fn completed(&mut self, io: IoId) -> Purpose {
        self.in_flight.remove(io.0 as usize)
    }

    pub(crate) fn push(&mut self, output: ArrayOutput) {
        self.outputs.push_back(output);
    }

    pub(crate) fn io(&mut self, device: DeviceId, purpose: Purpose, kind: IoKind) {
        let io = IoId(self.in_flight.insert(purpose) as u64);
        self.push(ArrayOutput::Io(MemberIo { io, device, kind }));
    }

    pub(crate) fn event(&mut self, kind: EventKind) {
        let time = self.now;
        self.push(ArrayOutput::Event(Event { time, kind }));
    }

    pub(crate) fn reply(&mut self, id: RequestId, result: Result<(), RequestError>) {
        let result = result.map(|()| Slices::new());
        self.push(ArrayOutput::Reply(Reply { id, result }));
    }

    pub(crate) fn done(&mut self, id: CommandId, result: Result<Changed, CommandError>) {
        self.push(ArrayOutput::Done { id, result });
    }

    pub(crate) fn message(&mut self, shard: ShardNo, message: ToShard) {
        self.push(ArrayOutput::Message(shard, message));
    }

    pub(crate) fn message_all(&mut self, message: &ToShard) {
        for shard in 0..self.shards {
            self.message(ShardNo(shard), message.clone());
        }
    }
}
