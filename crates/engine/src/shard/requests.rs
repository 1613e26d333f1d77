//! The requests of a shard from their arrival to their answer, and the pieces of reads that may
//! hold buffers at once.
//!
//! Invariants:
//! * A request is answered exactly once: when its last piece is done and no device is awaited.
//! * Reads begin in the order in which they came, each once there is room for all of its pieces:
//!   reads that each held some of their buffers and waited for the rest would wait for each other.
//!
//! A read that ends starts none of those that wait for its room: the next `poll` finds them
//! ([`Requests::next_held`]), and they meet the view and the regions of that moment. A read of
//! another shard's stripe that turns out to be for its owner ends here without an answer.
//!
//! Deliberately absent: how a request is cut into pieces (`Shard::submit`), and what becomes of
//! each.

use std::collections::VecDeque;

use slab::Slab;

use crate::geometry::Geometry;
use crate::mem::buffer::{Pool, Slice};
use crate::mem::list::{List, listed};
use crate::proto::*;
use crate::shard::Shard;
use crate::shard::coalesce::Flow;
use crate::shard::read::hedge::{NEVER, Racing};
use crate::shard::read::remote::RemoteRead;
use crate::shard::stripe_map::StripeMap;
use crate::stats::histogram::Histogram;
use crate::units::*;

/// What was told longer ago than this was not told by the step before: what came since then is not
/// all beside one that begins now. Longer than any pause.
const STALE_NS: u64 = 2_000_000_000;

/// See the module.
pub(crate) struct Requests {
    active: Slab<Active>,
    /// Flushes, each with a device that failed it: answered when the view has none of its devices.
    awaited: Vec<(usize, DeviceId)>,
    /// Pieces of reads that may be at work at once, so that each can hold a buffer until its
    /// request is answered and one operation of any kind still finds all of its own.
    pieces_max: usize,
    pieces: usize,
    /// Reads that wait for their turn, in order.
    held: VecDeque<UserRead>,
    /// Requests that came since the array was told last.
    foreground: u64,
    /// How long reads and writes took, since it was told last, and when that was.
    latencies: Histogram,
    latencies_told: Time,
}

/// A read as a user asks for it.
#[derive(Clone, Copy)]
pub(crate) struct UserRead {
    pub(crate) id: RequestId,
    pub(crate) came: Time,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// It has a place for its data, and this byte of it is the first.
    pub(crate) place: Option<u64>,
    /// This member is late with it already.
    pub(crate) late: Option<DeviceId>,
}

impl UserRead {
    /// Pieces that it is made of.
    fn pieces(&self, map: &StripeMap) -> usize {
        map.geometry().strips(self.offset, self.len) as usize
    }
}

/// A user request at work.
struct Active {
    id: RequestId,
    /// When a read or write came, for its latency; never, of others.
    came: Time,
    kind: RequestKind,
    /// Pieces not finished.
    remaining: u32,
    /// For flushes, devices that failed to flush ([`Requests::awaited`]).
    awaits: u32,
    error: Option<RequestError>,
    /// For reads, the pieces in order.
    parts: List<Option<Slice>>,
    /// This member was late with it when another shard asked.
    late: Option<DeviceId>,
}

/// What is to be known of a request beside its pieces.
enum RequestKind {
    Plain,
    /// It writes: what it is to streams.
    Write(Flow),
    /// It reads a stripe of another shard.
    RemoteRead(RemoteRead),
}

// A request is moved to its place and out of it again: what is longer than this is moved by a call.
const _: () = assert!(size_of::<Active>() <= 128);

listed!(Option<Slice>, Slice);

impl Requests {
    pub(crate) fn new(geometry: &Geometry, pool: &Pool) -> Requests {
        Requests {
            active: Slab::new(),
            awaited: Vec::new(),
            pieces_max: pieces_max(geometry, pool),
            pieces: 0,
            held: VecDeque::new(),
            foreground: 0,
            latencies: Histogram::default(),
            latencies_told: Time(0),
        }
    }

    /// The array has another shape.
    pub(crate) fn reshape(&mut self, geometry: &Geometry, pool: &Pool) {
        self.pieces_max = pieces_max(geometry, pool);
    }

    /// A request came.
    pub(crate) fn count(&mut self) {
        self.foreground += 1;
    }

    /// Requests at work.
    pub(crate) fn len(&self) -> usize {
        self.active.len()
    }

    /// Requests that are not answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.active.len() + self.held.len()
    }

    /// No request at work has a number as high as this.
    pub(crate) fn keys(&self) -> usize {
        self.active.capacity()
    }

    // ---- beginnings --------------------------------------------------------------------------

    fn insert(&mut self, id: RequestId, came: Time, kind: RequestKind, parts: usize) -> usize {
        self.active.insert(Active {
            id,
            came,
            kind,
            remaining: parts as u32,
            awaits: 0,
            error: None,
            parts: List::new(),
            late: None,
        })
    }

    /// A request without content that has so many parts.
    pub(crate) fn begin(&mut self, id: RequestId, parts: usize) -> usize {
        self.insert(id, NEVER, RequestKind::Plain, parts)
    }

    pub(crate) fn begin_write(
        &mut self,
        id: RequestId,
        came: Time,
        flow: Flow,
        parts: usize,
    ) -> usize {
        self.insert(id, came, RequestKind::Write(flow), parts)
    }

    /// A read, for the pieces of which there is room already.
    pub(crate) fn begin_read(&mut self, read: &UserRead, parts: usize) -> usize {
        let key = self.insert(read.id, read.came, RequestKind::Plain, parts);
        let active = &mut self.active[key];
        (active.parts, active.late) = (no_parts(parts), read.late);
        key
    }

    pub(crate) fn begin_remote_read(
        &mut self,
        id: RequestId,
        came: Time,
        parts: usize,
        remote: RemoteRead,
    ) -> usize {
        self.pieces += parts;
        let key = self.insert(id, came, RequestKind::RemoteRead(remote), parts);
        self.active[key].parts = no_parts(parts);
        key
    }

    /// A request that is being split has one part more.
    pub(crate) fn add_part(&mut self, request: usize) {
        self.active[request].remaining += 1;
    }

    // ---- room for pieces of reads ------------------------------------------------------------

    /// So many pieces more may hold buffers.
    fn has_room(&self, pieces: usize) -> bool {
        self.pieces + pieces <= self.pieces_max
    }

    /// A read of so many pieces waits for no other.
    pub(crate) fn has_turn(&self, pieces: usize) -> bool {
        self.held.is_empty() && self.has_room(pieces)
    }

    /// A read comes: true if it begins at once, otherwise it waits until those before it let it; an
    /// error if nothing ever can hold as many pieces.
    pub(crate) fn admit(&mut self, read: UserRead, map: &StripeMap) -> Result<bool, RequestError> {
        let pieces = read.pieces(map);
        let begins = self.has_turn(pieces);
        match begins {
            true => self.pieces += pieces,
            false if pieces > self.pieces_max => return Err(RequestError::Invalid),
            false => self.held.push_back(read),
        }
        Ok(begins)
    }

    /// A read that was admitted does not begin after all.
    pub(crate) fn dismiss(&mut self, read: &UserRead, map: &StripeMap) {
        self.pieces -= read.pieces(map);
    }

    /// A piece is asked for twice, and may hold a second buffer.
    pub(crate) fn take_room(&mut self) {
        self.pieces += 1;
    }

    /// The next read that waits, if there is room for it: that is taken.
    pub(crate) fn next_held(&mut self, map: &StripeMap) -> Option<UserRead> {
        let pieces = self.held.front()?.pieces(map);
        if !self.has_room(pieces) {
            return None;
        }
        self.pieces += pieces;
        self.held.pop_front()
    }

    // ---- at work -----------------------------------------------------------------------------

    pub(crate) fn id(&self, request: usize) -> RequestId {
        self.active[request].id
    }

    /// The member that another shard found late with the request, and has paid for the hedge.
    pub(crate) fn late(&self, request: usize) -> Option<DeviceId> {
        self.active[request].late
    }

    /// A flush is not answered before this device is out of the view.
    pub(crate) fn await_device(&mut self, request: usize, device: DeviceId) {
        self.active[request].awaits += 1;
        self.awaited.push((request, device));
    }

    pub(crate) fn remote_read(&mut self, request: usize) -> (RequestId, &mut RemoteRead) {
        let active = &mut self.active[request];
        match &mut active.kind {
            RequestKind::RemoteRead(remote) => (active.id, remote),
            _ => unreachable!("it was begun as one"),
        }
    }

    /// A part of a remote read came, or did not; parts that are left.
    pub(crate) fn remote_part(
        &mut self,
        request: usize,
        part: usize,
        slice: Option<Slice>,
    ) -> (u32, &mut RemoteRead) {
        let active = &mut self.active[request];
        active.parts[part] = slice;
        active.remaining -= 1;
        (active.remaining, self.remote_read(request).1)
    }

    /// A remote read ends without an answer.
    pub(crate) fn drop_remote_read(&mut self, request: usize) -> RequestId {
        let active = self.active.remove(request);
        self.pieces -= active.parts.len();
        active.id
    }

    // ---- what the array is told --------------------------------------------------------------

    /// Requests since this was asked last, and how long those took that were answered.
    pub(crate) fn take_latencies(&mut self, now: Time) -> (u64, Option<Histogram>) {
        self.latencies_told = now;
        let foreground = std::mem::take(&mut self.foreground);
        let any = self.latencies.count() > 0;
        (foreground, any.then(|| std::mem::take(&mut self.latencies)))
    }

    /// A step begins after a pause: what came before it is not beside it.
    pub(crate) fn forget_stale_latencies(&mut self, now: Time) {
        if now.since(self.latencies_told) >= STALE_NS {
            self.take_latencies(now);
        }
    }

    /// See the module; for each request so many pieces are under way, and so many pieces are asked
    /// for twice.
    pub(crate) fn check(
        &self,
        pieces: &[u32],
        races: usize,
        map: &StripeMap,
    ) -> Result<(), String> {
        let mut parts = races;
        for (key, active) in &self.active {
            let pieces = pieces[key];
            ensure!(
                active.remaining == pieces,
                "request {} waits for {} pieces, and {pieces} are under way",
                active.id.0,
                active.remaining
            );
            let awaited = self.awaited.iter().filter(|(request, _)| *request == key);
            let awaited = awaited.count() as u32;
            ensure!(
                active.awaits == awaited && pieces + awaited > 0,
                "request {} waits for {} devices to leave, and {awaited} are awaited",
                active.id.0,
                active.awaits
            );
            parts += active.parts.len();
        }
        ensure!(
            self.pieces == parts,
            "reads are counted as {} pieces and have {parts}",
            self.pieces
        );
        let fits = |read: &UserRead| self.has_room(read.pieces(map));
        let waits = self.held.front().is_some_and(fits);
        ensure!(!waits, "a read waits for others, and there is room for it");
        let left = |(_, device): &&(usize, _)| !map.in_view(*device);
        ensure!(
            self.awaited.iter().find(left).is_none(),
            "a flush waits for a device to leave that has left"
        );
        Ok(())
    }
}

/// As many pieces as leave room for one operation of any kind.
fn pieces_max(geometry: &Geometry, pool: &Pool) -> usize {
    let widest = crate::provision::limits::widest(geometry);
    pool.largest_count().saturating_sub(widest).max(1)
}

/// Places for so many pieces.
fn no_parts(count: usize) -> List<Option<Slice>> {
    match count {
        1 => List::of(None),
        _ => (0..count).map(|_| None).collect(),
    }
}

impl Shard {
    /// A piece of a request is done; answers the request when it was the last.
    pub(crate) fn finish_part(
        &mut self,
        request: usize,
        part: Option<(usize, Slice)>,
        result: Result<(), RequestError>,
    ) {
        let active = &mut self.requests.active[request];
        if let Some((index, slice)) = part {
            active.parts[index] = Some(slice);
        }
        if let Err(error) = result {
            active.error.get_or_insert(error);
        }
        active.remaining -= 1;
        if active.remaining == 0 && active.awaits == 0 {
            self.end_request(request);
        }
    }

    /// Nothing of a request is left to be done.
    pub(crate) fn end_request(&mut self, request: usize) {
        let mut active = self.requests.active.remove(request);
        if let RequestKind::Write(flow) = active.kind {
            self.streams.answered(flow);
        }
        if active.came != NEVER {
            let took = self.out.now().since(active.came);
            self.requests.latencies.note(took);
        }
        self.requests.pieces -= active.parts.len();
        let read = |part: Option<Slice>| part.expect("every piece was read");
        let result = match (active.error, &mut active.parts[..]) {
            (Some(error), _) => Err(error),
            // Most reads are one piece.
            (None, [one]) => Ok(Slices::of(read(one.take()))),
            (None, _) => Ok(active.parts.drain().map(read).collect()),
        };
        self.out.answer(active.id, result);
    }

    /// A side of a race has ended, perhaps without an answer; the request has an error if neither
    /// had one.
    pub(crate) fn side_ends(&mut self, racing: Option<Racing>, error: Option<RequestError>) {
        if let Some((request, error)) = self.hedges.side_ends(racing, error) {
            if let Some(error) = error {
                self.finish_part(request, None, Err(error));
            }
            self.requests.pieces -= 1;
        }
    }

    /// A view came: flushes do not wait any more for devices that it has not.
    pub(crate) fn end_awaiting(&mut self) {
        let failed = self.map.view().failed;
        for (request, device) in std::mem::take(&mut self.requests.awaited) {
            if !failed && self.map.in_view(device) {
                self.requests.awaited.push((request, device));
                continue;
            }
            let active = &mut self.requests.active[request];
            active.awaits -= 1;
            if failed {
                active.error.get_or_insert(RequestError::Failed);
            }
            if active.awaits == 0 && active.remaining == 0 {
                self.end_request(request);
            }
        }
    }
}
