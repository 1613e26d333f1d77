//! Remote reads: any shard may read a stripe that it does not own, if an in-sync member holds the
//! bytes.
//!
//! Protocol: the array grants every shard a read lease ([`ToShard::GrantLease`]) while all shards
//! work by the same view. It revokes the lease ([`ToShard::RevokeLease`]) before anything changes
//! that a remote read relies on, and the change waits until every shard has returned its lease
//! ([`FromShard::LeaseReturned`]). So no remote read runs while some shards know of the change and
//! others do not. Two kinds of view go out under the lease: views that only report the progress of
//! a rebuild or of the log's coverage, and the view by which the array fails, since no write is
//! answered by it.
//!
//! Invariants:
//! * While a shard has a lease, the array publishes no view that removes a member or adds one in
//!   sync, and reports no block as unreadable. So when a write that a member missed is answered,
//!   only the owner of the stripe still reads that member.
//! * A quiesced shard starts no remote read, and its remote reads have ended before it reports
//!   `Quiesced`.
//! * The result of a remote read is an answer only while the lease lasts under which the read
//!   began: a read that is in flight when the lease is revoked goes to the owner.
//! * A remote read reads only what one in-sync member holds, in a region that the shard knows to be
//!   written, trusted and not about to close. It counts as a user of the region, so a region that
//!   is given back waits for it.
//! * A stream of reads does not read remotely from stripes that miss data: their owner reads each
//!   strip once, for the reads of that strip and for the strips that are computed from it
//!   (`batch`).
//! * A piece that cannot be read remotely goes to its owner unchanged, and never comes back.
//!
//! Deliberately absent: waiting, hedges, repairs and reports of errors; those are the owner's.

use smallvec::SmallVec;

use crate::canary::{self, Canary};
use crate::geometry::extent::Piece;
use crate::mem::buffer::{Buf, Slice};
use crate::proto::*;
use crate::shard::Shard;
use crate::shard::read::direct::DirectRead;
use crate::units::*;

/// Streams of reads that are followed at once.
const FRONTS: usize = 8;

/// A shard's permission to read stripes of other shards.
#[derive(Debug, Default)]
pub(crate) struct ReadLease {
    given: bool,
    /// Counts how often the lease was revoked.
    round: u64,
    /// Where reads of stripes that miss a member ended lately.
    ends: [u64; FRONTS],
    oldest: usize,
}

impl ReadLease {
    /// Whether a read lies no further than `near` bytes from where one of the latest ended.
    fn follows(&mut self, offset: u64, len: u64, near: u64) -> bool {
        let follows = |end: &&mut u64| end.abs_diff(offset) <= near;
        if let Some(end) = self.ends.iter_mut().find(follows) {
            *end = (*end).max(offset + len);
            return true;
        }
        self.ends[self.oldest] = offset + len;
        self.oldest = (self.oldest + 1) % FRONTS;
        false
    }
}

/// A read of another shard's stripe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteRead {
    owner: ShardNo,
    offset: u64,
    len: u64,
    /// Where it goes, if all of it goes there.
    place: Option<u64>,
    /// The round of the lease under which it began.
    round: u64,
    /// Some part could not be read, or came too late to be believed.
    failed: bool,
    /// It was late, and is with the owner.
    passed: bool,
}

impl RemoteRead {
    /// The request as it came.
    fn request(&self, id: RequestId) -> Request {
        let (offset, len) = (self.offset, self.len);
        let op = match self.place {
            Some(at) => Op::ReadInPlace { offset, len, at },
            None => Op::Read { offset, len },
        };
        Request { id, op }
    }
}

type Reads = SmallVec<[DirectRead; 1]>;

impl Shard {
    /// A read of a stripe that belongs to `owner`, asked of the shard that is nearest: read here,
    /// or passed on to the owner.
    pub fn read_remote(&mut self, now: Time, owner: ShardNo, request: Request) {
        self.out.set_now(now);
        let (offset, len, place) = match request.op {
            Op::Read { offset, len } => (offset, len, None),
            Op::ReadInPlace { offset, len, at } => (offset, len, Some(at)),
            _ => return self.pass(owner, request),
        };
        let Some(reads) = self.plan_remote_read(offset, len, place) else {
            return self.pass(owner, request);
        };
        let Some(bufs) = self.buffers_for(&reads) else {
            return self.pass(owner, request);
        };
        self.requests.count();
        self.remote_reads += 1;
        let remote = RemoteRead {
            owner,
            offset,
            len,
            place: place.filter(|_| reads[0].place.is_some()),
            round: self.lease.round,
            failed: false,
            passed: false,
        };
        let now = self.out.now();
        let key = self
            .requests
            .begin_remote_read(request.id, now, reads.len(), remote);
        let mut bufs = bufs.into_iter();
        for read in reads {
            let read = DirectRead {
                request: key,
                ..read
            };
            match read.place {
                Some(at) => self.issue_in_place(read, at),
                None => self.issue_read(read, bufs.next().expect("one for each")),
            }
        }
    }

    fn pass(&mut self, owner: ShardNo, request: Request) {
        self.out.put(ShardOutput::Pass(owner, request, None));
    }

    /// The I/Os of a read, if all of it can be read remotely.
    fn plan_remote_read(&mut self, offset: u64, len: u64, place: Option<u64>) -> Option<Reads> {
        let moving = canary::hit(Canary::VisitsWhileMoving);
        let held = (self.quiesce.defers() || self.map.geometry().old_shape.is_some()) && !moving;
        if !self.lease.given
            || held
            || self.map.closed().is_some()
            || !self.map.geometry().valid(offset, len)
        {
            return None;
        }
        let pieces = self.map.pieces(offset, len, self.map.geometry().strip);
        if !(self.requests.has_turn(pieces.len()) && self.starved.is_empty()) {
            return None;
        }
        if self.streams_beside_lost(offset, len, &pieces) {
            return None;
        }
        let mut reads = Reads::new();
        for (part, piece) in pieces.iter().enumerate() {
            let read = self.remote_part(part, piece)?;
            let place = place.map(|first| first + piece.at as u64);
            reads.push(DirectRead { place, ..read });
        }
        // All or nothing: only what fills no place can be asked of somebody else as well.
        let fills = |read: &DirectRead| self.meters.fills_in_time(read.device, self.out.now());
        if place.is_some() && !reads.iter().all(fills) {
            reads.iter_mut().for_each(|read| read.place = None);
        }
        Some(reads)
    }

    /// Whether a read belongs to a stream, and what its owner computes for the stream is computed
    /// from what it asks for.
    fn streams_beside_lost(&mut self, offset: u64, len: u64, pieces: &[Piece]) -> bool {
        if self.map.whole() || self.map.geometry().m == 0 || self.map.geometry().mirrored() {
            return false;
        }
        let data = 0..self.map.geometry().k;
        let lost = |piece: &Piece| {
            data.clone()
                .any(|c| self.map.source(piece.stripe, c).is_none())
        };
        let lacks = pieces.iter().any(lost);
        lacks
            && self
                .lease
                .follows(offset, len, self.map.geometry().stripe_bytes())
    }

    /// The read of a piece, if nothing has to be known of it but where it lies.
    fn remote_part(&self, part: usize, piece: &Piece) -> Option<DirectRead> {
        let plain = self.gates[self.map.region(piece.stripe)].plain();
        if !plain && !canary::hit(Canary::VisitorIgnoresRegion) {
            return None;
        }
        if self.map.piece_lost(piece) && !canary::hit(Canary::VisitorIgnoresList) {
            return None;
        }
        let read = self.direct(0, part, piece, false)?;
        let slot = self.map.slot_view(piece.stripe, read.source);
        let in_sync = slot.current.is_some() && slot.incoming.is_none();
        in_sync.then_some(DirectRead {
            remote: true,
            ..read
        })
    }

    /// A buffer for each read that has no place; visits do not wait for any.
    fn buffers_for(&mut self, reads: &Reads) -> Option<SmallVec<[Buf; 1]>> {
        let keep = crate::provision::limits::widest(self.map.geometry());
        let mut bufs = SmallVec::new();
        for read in reads.iter().filter(|read| read.place.is_none()) {
            let len = (read.hi - read.lo) as usize;
            bufs.push(self.pool.take_leaving(len, keep)?);
        }
        Some(bufs)
    }

    /// An I/O of a visit came back.
    pub(crate) fn remote_read_came(
        &mut self,
        read: &DirectRead,
        result: Result<(), IoError>,
        buf: Option<Buf>,
    ) {
        let len = (read.hi - read.lo) as usize;
        let slice = match (result, buf, read.place) {
            (Ok(()), Some(buf), None) => Some(Slice::new(buf, 0, len)),
            (Ok(()), None, Some(_)) => Some(Slice::placed(self.nowhere.clone(), len)),
            _ => None,
        };
        let round = self.lease.round;
        let failed = slice.is_none();
        let (left, remote) = self.requests.remote_part(read.request, read.part, slice);
        remote.failed |= failed || remote.round != round;
        let remote = *remote;
        if left > 0 {
            return;
        }
        if !remote.failed && !remote.passed {
            return self.end_request(read.request);
        }
        let id = self.requests.drop_remote_read(read.request);
        if !remote.passed {
            self.pass(remote.owner, remote.request(id));
        }
    }

    /// A read of a visit is late: its owner can ask others. False if that was done before. (What
    /// fills a place is never passed on: it may still be filled.)
    pub(crate) fn pass_late(&mut self, read: &DirectRead) -> bool {
        let (id, remote) = self.requests.remote_read(read.request);
        if std::mem::replace(&mut remote.passed, true) {
            return false;
        }
        let remote = *remote;
        let (request, late) = (remote.request(id), Some(read.device));
        self.out.put(ShardOutput::Pass(remote.owner, request, late));
        true
    }

    /// The array grants the lease.
    pub(crate) fn grant_lease(&mut self) {
        self.lease.given = true;
    }

    /// The array revokes the lease.
    pub(crate) fn revoke_lease(&mut self) {
        self.lease.given = false;
        self.lease.round += 1;
        self.out.say(FromShard::LeaseReturned);
    }

    /// Reads of other shards' stripes that were begun.
    pub fn remote_reads(&self) -> u64 {
        self.remote_reads
    }
}
