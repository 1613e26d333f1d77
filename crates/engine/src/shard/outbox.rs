//! What a shard puts out: answers, messages to the array, and member I/Os with what each is for.
//!
//! Invariants:
//! * A member I/O has a number of its own until it is finished.
//! * Outputs leave in the order in which they were made.
//!
//! Deliberately absent: what an answer of a member leads to (`complete` of the shard).

use std::collections::VecDeque;

use slab::Slab;

use crate::proto::*;
use crate::shard::log_writer::Flight;
use crate::shard::read::direct::DirectRead;
use crate::shard::stripe_map::StripeMap;
use crate::stats::device_latency::Measured;
use crate::units::*;

/// See the module.
#[derive(Default)]
pub(crate) struct Outbox {
    /// The time of the latest input.
    now: Time,
    out: VecDeque<ShardOutput>,
    ios: Slab<InFlight>,
}

/// A member I/O in flight.
pub(crate) struct InFlight {
    pub(crate) what: IoFor,
    pub(crate) device: DeviceId,
    pub(crate) measured: Measured,
    pub(crate) begun: Time,
}

// A member I/O is moved to its place and out of it again: what is longer than this is moved by a
// call.
const _: () = assert!(size_of::<InFlight>() <= 128);

/// What a member I/O was for.
pub(crate) enum IoFor {
    /// A healthy read.
    Read(DirectRead),
    /// A flush of the user's.
    Flush { request: usize, device: DeviceId },
    /// A read of an operation.
    OpRead {
        op: usize,
        column: usize,
        device: DeviceId,
        offset: u64,
    },
    /// A write of an operation.
    OpWrite {
        op: usize,
        device: DeviceId,
        offset: u64,
    },
    /// A batch of records.
    Log(Flight),
}

impl Outbox {
    /// An input comes.
    pub(crate) fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// The time of the latest input.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    pub(crate) fn put(&mut self, output: ShardOutput) {
        self.out.push_back(output);
    }

    pub(crate) fn say(&mut self, message: FromShard) {
        self.put(ShardOutput::Message(message));
    }

    pub(crate) fn answer(&mut self, id: RequestId, result: Result<Slices, RequestError>) {
        self.put(ShardOutput::Reply(Reply { id, result }));
    }

    /// Tells the array of an error of a member, unless the view has left it out already.
    pub(crate) fn report(
        &mut self,
        map: &StripeMap,
        device: DeviceId,
        error: IoError,
        write: bool,
        offset: u64,
    ) {
        if map.in_view(device) {
            self.say(FromShard::MemberError {
                device,
                error,
                write,
                offset,
            });
        }
    }

    pub(crate) fn io(&mut self, device: DeviceId, what: IoFor, kind: IoKind) {
        let measured = match &kind {
            IoKind::Read { .. } | IoKind::ReadInPlace { .. } => Measured::Read,
            IoKind::Write { .. } => Measured::Write,
            _ => Measured::Nothing,
        };
        let flight = InFlight {
            what,
            device,
            measured,
            begun: self.now,
        };
        let io = IoId(self.ios.insert(flight) as u64);
        self.put(ShardOutput::Io(MemberIo { io, device, kind }));
    }

    /// The next output.
    pub(crate) fn take(&mut self) -> Option<ShardOutput> {
        self.out.pop_front()
    }

    /// No output waits to be taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    // ---- I/Os in flight ----------------------------------------------------------------------

    /// The member has answered.
    pub(crate) fn finish_io(&mut self, io: IoId) -> InFlight {
        self.ios.remove(io.0 as usize)
    }

    /// No member I/O is in flight.
    pub(crate) fn none_in_flight(&self) -> bool {
        self.ios.is_empty()
    }

    /// What is in flight, by number.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (usize, &IoFor)> {
        self.ios.iter().map(|(key, flight)| (key, &flight.what))
    }

    /// A direct read in flight.
    pub(crate) fn direct_read(&mut self, key: usize) -> &mut DirectRead {
        match &mut self.ios[key].what {
            IoFor::Read(read) => read,
            _ => unreachable!("only direct reads are looked at"),
        }
    }
}
