//! Splits user requests among shards and joins the answers.
//!
//! One router for each export queue, on that queue's thread. Invariant: every request is answered
//! exactly once, with the first error of its pieces if any failed.
//!
//! A volume's request is split along the volume's extents first; the rest of the engine knows
//! nothing of volumes.
//!
//! A long discard is a write-zeroes: it costs no more, and regions that several of them cover can
//! be given back (`shard::zero_tracker`). Of a short one, whole stripes are zeroed and the rest is
//! left as it is.
//!
//! Discards and write-zeroes give whole regions to the array, which forgets them; the rest goes to
//! shards. A piece that was split by the geometry of another moment comes back, and is split anew.

use std::sync::Arc;

use slab::Slab;

use crate::geometry::Geometry;
use crate::mem::list::{List, listed};
use crate::proto::*;
use crate::provision::volumes::VolumeMap;
use crate::units::*;

/// Where a piece of a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// To this shard.
    Shard(ShardNo),
    /// To the array: whole regions.
    Array,
}

/// See the module.
#[derive(Debug)]
pub struct Router {
    geometry: Arc<Geometry>,
    shards: u16,
    queue: u16,
    requests: Slab<Split>,
    /// The array's shape is about to change: where its last region will end is not known here.
    held: bool,
}

/// A request with pieces in flight.
#[derive(Debug)]
struct Split {
    id: RequestId,
    /// It is itself a piece, split anew.
    piece: bool,
    /// Answers of the pieces, in the order of the pieces.
    parts: List<Option<Slices>>,
    left: usize,
    error: Option<RequestError>,
}

listed!(Option<Slices>);

/// From so many stripes on a discard is long.
const LONG_STRIPES: u64 = 8;

/// Bits of a piece's id: 16 queue, 24 request, 24 piece.
const PIECE_BITS: u32 = 24;

impl Router {
    /// A router with piece ids that are unique if `queue` is: ids of pieces carry it in their top
    /// 16 bits.
    pub fn new(geometry: Arc<Geometry>, shards: u16, queue: u16) -> Router {
        Router {
            geometry,
            shards,
            queue,
            requests: Slab::new(),
            held: false,
        }
    }

    /// The array's shape is about to change ([`ToShard::Quiesce`]): a last region that is shorter
    /// than others may become longer, so it is not given back as a whole until [`Router::reshape`]
    /// or [`Router::resume`].
    pub fn quiesce(&mut self) {
        self.held = true;
    }

    /// It did not change.
    pub fn resume(&mut self) {
        self.held = false;
    }

    /// The array has another shape; what was split before stays as it is.
    pub fn reshape(&mut self, geometry: Arc<Geometry>) {
        self.geometry = geometry;
        self.held = false;
    }

    /// The queue that a piece's id belongs to: how the runtime brings its reply home.
    pub fn queue_of(piece: RequestId) -> u16 {
        (piece.0 >> 48) as u16
    }

    /// Splits `request` into pieces. Invalid requests are answered at once.
    pub fn route(
        &mut self,
        request: Request,
        pieces: &mut Vec<(Target, Request)>,
    ) -> Option<Reply> {
        self.route_in(None, request, pieces)
    }

    /// The same for a request of a volume's user: its bytes are those of the volume, and pieces are
    /// of the array.
    pub fn route_in(
        &mut self,
        volume: Option<&VolumeMap>,
        request: Request,
        pieces: &mut Vec<(Target, Request)>,
    ) -> Option<Reply> {
        let Request { id, op } = request;
        let range = match &op {
            Op::Read { offset, len } | Op::ReadInPlace { offset, len, .. } => Some((*offset, *len)),
            Op::Write { offset, data, .. } => Some((*offset, data.len as u64)),
            Op::Discard { offset, len } | Op::WriteZeroes { offset, len, .. } => {
                Some((*offset, *len))
            }
            Op::Flush => None,
        };
        let valid = |(offset, len)| match volume {
            None => self.geometry.valid(offset, len),
            Some(volume) => volume.valid(offset, len),
        };
        if range.is_some_and(|range| !valid(range)) {
            return Some(Reply {
                id,
                result: Err(RequestError::Invalid),
            });
        }
        let (key, base) = self.begin(id, false);
        let mut left = 0;
        let mut push = |target, op| {
            let id = RequestId(base | left as u64);
            pieces.push((target, Request { id, op }));
            left += 1;
        };
        match (range, volume) {
            (None, _) => push(Target::Shard(ShardNo(0)), op),
            (Some((offset, len)), None) => self.split(&op, 0, offset, len, push),
            (Some((offset, len)), Some(volume)) => {
                let mut from = 0;
                for range in volume.ranges(offset, len) {
                    let len = range.end - range.start;
                    self.split(&op, from, range.start, len, &mut push);
                    from += len;
                }
            }
        }
        self.expect(key, left);
        None
    }

    /// Splits a piece that comes back because it was split by the geometry of another moment. Its
    /// parts count as the piece. What stays whole keeps its id: it may come back as often as it
    /// will until this router has heard of the shape that the shards have.
    pub fn again(&mut self, piece: Request, pieces: &mut Vec<(Target, Request)>) {
        let Request { id, op } = piece;
        let (offset, len) = match &op {
            Op::Read { offset, len }
            | Op::ReadInPlace { offset, len, .. }
            | Op::Discard { offset, len }
            | Op::WriteZeroes { offset, len, .. } => (*offset, *len),
            Op::Write { offset, data, .. } => (*offset, data.len as u64),
            Op::Flush => unreachable!("a flush lies nowhere"),
        };
        let first = pieces.len();
        self.split(&op, 0, offset, len, |target, op| {
            pieces.push((target, Request { id, op }));
        });
        let parts = pieces.len() - first;
        if parts == 1 {
            return;
        }
        let (key, base) = self.begin(id, true);
        for (part, (_, request)) in pieces[first..].iter_mut().enumerate() {
            request.id = RequestId(base | part as u64);
        }
        self.expect(key, parts);
    }

    fn begin(&mut self, id: RequestId, piece: bool) -> (usize, u64) {
        let key = self.requests.insert(Split {
            id,
            piece,
            parts: List::new(),
            left: 0,
            error: None,
        });
        let base = (u64::from(self.queue) << 48) | ((key as u64) << PIECE_BITS);
        (key, base)
    }

    fn expect(&mut self, key: usize, pieces: usize) {
        let split = &mut self.requests[key];
        split.parts.resize_with(pieces, || None);
        split.left = pieces;
    }

    /// Splits the part of a request that is these bytes of the array and begins at its byte `from`.
    fn split(&self, op: &Op, from: u64, offset: u64, len: u64, mut push: impl FnMut(Target, Op)) {
        let (mut at, end) = (offset, offset + len);
        let forgets = matches!(op, Op::Discard { .. } | Op::WriteZeroes { .. });
        let long = forgets && len >= LONG_STRIPES * self.geometry.stripe_bytes();
        while at < end {
            let (target, to) = self.next_piece(at, end, forgets);
            let part = match op {
                Op::Read { .. } => Op::Read {
                    offset: at,
                    len: to - at,
                },
                Op::ReadInPlace { at: first, .. } => Op::ReadInPlace {
                    offset: at,
                    len: to - at,
                    at: first + from + (at - offset),
                },
                Op::Write { data, fua, .. } => {
                    let data = data.part((from + at - offset) as usize, (to - at) as usize);
                    Op::Write {
                        offset: at,
                        data,
                        fua: *fua,
                    }
                }
                Op::Discard { .. } if long => Op::WriteZeroes {
                    offset: at,
                    len: to - at,
                    fua: false,
                },
                Op::Discard { .. } => Op::Discard {
                    offset: at,
                    len: to - at,
                },
                Op::WriteZeroes { fua, .. } => Op::WriteZeroes {
                    offset: at,
                    len: to - at,
                    fua: *fua,
                },
                Op::Flush => Op::Flush,
            };
            push(target, part);
            at = to;
        }
    }

    /// The target of what starts at `at`, and up to where.
    fn next_piece(&self, at: u64, end: u64, forgets: bool) -> (Target, u64) {
        let geometry = &self.geometry;
        let mut limit = end;
        if forgets {
            let (region, here, alone) = geometry.region_at(at);
            let short = self.held && region.0 + 1 == geometry.regions();
            if !short && alone && at == here.start && here.end <= end {
                return (Target::Array, here.end);
            }
            // Up to the next region that is wholly inside.
            let next = match at == here.start && alone {
                true => at,
                false => here.end,
            };
            if !short && next > at && next < end {
                limit = next;
            }
        }
        if self.shards == 1 {
            return (Target::Shard(ShardNo(0)), limit);
        }
        let stripe = geometry.locate(at).stripe;
        let stripe_end = geometry.band_range(stripe).end;
        (
            Target::Shard(geometry.shard(stripe, self.shards)),
            limit.min(stripe_end),
        )
    }

    /// A piece was answered; the whole answer when it was the last.
    pub fn join(&mut self, piece: Reply) -> Option<Reply> {
        let mask = (1 << PIECE_BITS) - 1;
        let (key, at) = (
            (piece.id.0 >> PIECE_BITS & mask) as usize,
            (piece.id.0 & mask) as usize,
        );
        let split = &mut self.requests[key];
        if split.parts.len() == 1 {
            // Most of all.
            let Split { id, piece: of, .. } = self.requests.remove(key);
            let result = piece.result;
            return self.joined(of, Reply { id, result });
        }
        split.left -= 1;
        match piece.result {
            Ok(slices) => split.parts[at] = Some(slices),
            Err(error) => {
                split.error.get_or_insert(error);
            }
        }
        if split.left > 0 {
            return None;
        }
        let mut split = self.requests.remove(key);
        let result = match split.error {
            Some(error) => Err(error),
            None => {
                let mut all = Slices::new();
                for part in split.parts.iter_mut().flatten() {
                    all.extend(part.drain());
                }
                Ok(all)
            }
        };
        let id = split.id;
        self.joined(split.piece, Reply { id, result })
    }

    /// A request is whole: that of a user, or a piece of one.
    fn joined(&mut self, piece: bool, reply: Reply) -> Option<Reply> {
        match piece {
            true => self.join(reply),
            false => Some(reply),
        }
    }

    /// The request that a piece belongs to, as long as it is not answered.
    pub fn request_of(&self, piece: RequestId) -> Option<RequestId> {
        let mask = (1 << PIECE_BITS) - 1;
        let split = self.requests.get((piece.0 >> PIECE_BITS & mask) as usize)?;
        match split.piece {
            true => self.request_of(split.id),
            false => Some(split.id),
        }
    }

    /// Requests not yet answered.
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }
}
