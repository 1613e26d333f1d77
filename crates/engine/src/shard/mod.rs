//! One shard: the stripes that one thread owns, and the user requests on them.
//!
//! Invariants:
//! * Two operations with byte ranges that overlap in one stripe never run at the same time, unless
//!   both only read; among those that overlap, the order is that of arrival.
//! * A write starts only in a region that is open here, so Dirty is durable on the members before
//!   it.
//! * A request is answered exactly once.
//!
//! Healthy reads take no lock: they go to the data column's member and are answered from there.
//! Writes that arrive before the next `poll` gather: those that touch in a stripe become one
//! operation.
//!
//! This file takes the inputs and decides which part goes on. A part has its state to itself, and
//! what it calls lies below it: the map of stripes and the outbox below everything, the operations
//! (`op`) below what begins them (direct reads, this file). What ends something below starts
//! nothing above: it is returned, or the next `poll` finds it. Only a stripe of a job's step that
//! ends feeds the step's next stripes at once (`job`), which wait in the queue of `op`.
//!
//! Deliberately absent: membership decisions and anything durable but user data; those are the
//! array's.

pub(crate) mod coalesce;
mod invariants;
pub(crate) mod job;
pub(crate) mod log_writer;
pub(crate) mod op;
pub(crate) mod op_table;
pub(crate) mod outbox;
pub(crate) mod quiesce;
pub(crate) mod read;
pub(crate) mod region_gate;
pub(crate) mod requests;
pub(crate) mod retire;
pub(crate) mod stripe_map;
pub(crate) mod zero_tracker;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::canary::{self, Canary};
use crate::geometry::Shape;
use crate::geometry::extent::{Piece, pieces};
use crate::mem::buffer::{Buf, Pool, Slice};
use crate::proto::*;
use crate::shard::coalesce::Streams;
use crate::shard::job::Steps;
use crate::shard::job::write_order::WriteOrder;
use crate::shard::log_writer::Logs;
use crate::shard::op::queue::StripeQueue;
use crate::shard::op::work::{ReadPiece, ReadPieces, Work, WritePiece};
use crate::shard::op_table::Ops;
use crate::shard::outbox::{IoFor, Outbox};
use crate::shard::quiesce::Quiesce;
use crate::shard::read::batch::Row;
use crate::shard::read::direct::DirectRead;
use crate::shard::read::hedge::Hedges;
use crate::shard::read::remote::ReadLease;
use crate::shard::region_gate::RegionGates;
use crate::shard::requests::{Requests, UserRead};
use crate::shard::stripe_map::StripeMap;
use crate::shard::zero_tracker::ZeroTracker;
use crate::stats::device_latency::Meters;
use crate::units::*;

/// The data machine of one thread.
pub struct Shard {
    map: StripeMap,
    pool: Pool,
    gates: RegionGates,
    queue: StripeQueue,
    streams: Streams,
    requests: Requests,
    /// Pieces of reads that wait for the batch to be complete.
    rows: Vec<Row>,
    ops: Ops,
    steps: Steps,
    write_order: WriteOrder,
    starved: VecDeque<Starved>,
    out: Outbox,
    zero_tracker: ZeroTracker,
    zeros: Buf,
    /// Stands for bytes that are in their requester's place.
    nowhere: Buf,
    logs: Logs,
    meters: Meters,
    hedges: Hedges,
    /// The view with this version ends the service, and is not in force yet.
    stopping: Option<u64>,
    /// Requests that wait for another shape of the array.
    quiesce: Quiesce,
    /// Whether stripes of other shards may be read.
    lease: ReadLease,
    /// Such reads that were begun.
    remote_reads: u64,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Shard {} ({} requests, {} operations)",
            self.map.index().0,
            self.requests.len(),
            self.ops.len()
        )
    }
}

/// A read or an operation that waits for buffers; they get them in order.
pub(crate) enum Starved {
    Read(DirectRead),
    Op(usize),
}

impl Shard {
    /// Shard `index` of `count`; `pool` is what [`crate::provision::limits::stock`] asks for, not
    /// shared with the memory of requests.
    pub fn new(index: ShardNo, count: u16, setup: ShardSetup, pool: Pool) -> Shard {
        let logs = Logs::new(&setup, count);
        let meters = Meters::new(setup.hedging, setup.view.serving());
        let ShardSetup { geometry, view, .. } = setup;
        Shard {
            zeros: Buf::zeroed(geometry.strip as usize),
            requests: Requests::new(&geometry, &pool),
            map: StripeMap::new((index, count), geometry, view, setup.lost),
            nowhere: Buf::nowhere(),
            logs,
            meters,
            hedges: Hedges::default(),
            pool,
            gates: RegionGates::new(setup.regions),
            queue: StripeQueue::default(),
            streams: Streams::default(),
            rows: Vec::new(),
            ops: Ops::default(),
            steps: Steps::default(),
            write_order: WriteOrder::new(index),
            starved: VecDeque::new(),
            out: Outbox::default(),
            stopping: None,
            quiesce: Quiesce::default(),
            lease: ReadLease::default(),
            remote_reads: 0,
            zero_tracker: ZeroTracker::default(),
        }
    }

    /// A user request, as the router split it: only stripes of this shard.
    pub fn submit(&mut self, now: Time, request: Request) {
        self.passed(now, request, None);
    }

    /// The same, of a request that another shard passed on ([`ShardOutput::Pass`]).
    pub fn passed(&mut self, now: Time, request: Request, late: Option<DeviceId>) {
        self.out.set_now(now);
        if self.quiesce.defers() {
            return self.quiesce.defer(request);
        }
        if self.map.is_split_otherwise(&request.op) && !canary::hit(Canary::NotSplitAnew) {
            return self.out.put(ShardOutput::Again(request));
        }
        self.requests.count();
        if let Some(error) = self.map.closed() {
            let write = matches!(request.op, Op::Write { .. });
            return match write && canary::hit(Canary::FailedAcknowledges) {
                true => self.out.answer(request.id, Ok(Slices::new())),
                false => self.out.answer(request.id, Err(error)),
            };
        }
        let (id, came) = (request.id, self.out.now());
        let read = |offset, len, place| UserRead {
            id,
            came,
            offset,
            len,
            place,
            late,
        };
        match request.op {
            Op::Read { offset, len } if self.map.geometry().valid(offset, len) => {
                self.admit_read(read(offset, len, None));
            }
            Op::ReadInPlace { offset, len, at } if self.map.geometry().valid(offset, len) => {
                self.admit_read(read(offset, len, Some(at)));
            }
            Op::Write { offset, data, fua }
                if self.map.geometry().valid(offset, data.len as u64) =>
            {
                self.write(id, offset, &data, fua);
            }
            Op::Discard { offset, len } if self.map.geometry().valid(offset, len) => {
                self.zero(id, offset, len, false, true);
            }
            Op::WriteZeroes { offset, len, fua } if self.map.geometry().valid(offset, len) => {
                self.zero(id, offset, len, fua, false);
            }
            Op::Flush => self.flush(id),
            _ => self.out.answer(id, Err(RequestError::Invalid)),
        }
    }

    /// Starts a read, or lets it wait behind others: reads that each hold some of their buffers and
    /// wait for the rest would wait for each other.
    fn admit_read(&mut self, read: UserRead) {
        match self.requests.admit(read, &self.map) {
            Ok(true) => self.read(read),
            Ok(false) => {}
            Err(error) => self.out.answer(read.id, Err(error)),
        }
    }

    /// Starts the reads for which there is room by now; false if none waits for that.
    fn admit_held(&mut self) -> bool {
        let mut any = false;
        while let Some(read) = self.requests.next_held(&self.map) {
            any = true;
            match self.map.closed() {
                Some(error) => {
                    self.out.answer(read.id, Err(error));
                    self.requests.dismiss(&read, &self.map);
                }
                None => self.read(read),
            }
        }
        any
    }

    fn read(&mut self, read: UserRead) {
        let pieces = self
            .map
            .pieces(read.offset, read.len, self.map.geometry().strip);
        let request = self.requests.begin_read(&read, pieces.len());
        let mut first = 0;
        for row in pieces.chunk_by(|a, b| a.stripe == b.stripe) {
            self.read_row(request, first, row, read.place);
            first += row.len();
        }
    }

    /// Reads a piece: from its member, or computed where none can give it; of a mirror in an
    /// `undecided` region always from the first copy.
    pub(crate) fn read_piece(
        &mut self,
        (request, part): (usize, usize),
        piece: &Piece,
        place: Option<u64>,
        undecided: bool,
    ) {
        if let Some(read) = self.direct(request, part, piece, undecided) {
            let place = place.filter(|_| self.meters.fills_in_time(read.device, self.out.now()));
            let place = place.map(|first| first + piece.at as u64);
            return self.start_read(DirectRead { place, ..read });
        }
        let pieces = ReadPieces::of(ReadPiece::of(request, part, piece));
        let work = Work::read(pieces, piece.lo, piece.hi, Vec::new());
        self.queue.enqueue(piece.stripe, work);
    }

    fn write(&mut self, id: RequestId, offset: u64, data: &Slice, fua: bool) {
        let (unit, len) = (self.logs.run_bytes(), data.len as u64);
        let pieces = self.map.pieces(offset, len, unit);
        let flow = self
            .streams
            .begin(self.map.geometry(), self.map.count(), offset, len);
        let (now, count) = (self.out.now(), pieces.len());
        let request = self.requests.begin_write(id, now, flow, count);
        for piece in &pieces {
            let data = data.part(piece.at, (piece.hi - piece.lo) as usize);
            self.write_piece(request, piece, data, fua, false);
        }
        self.streams.end();
    }

    fn write_piece(&mut self, request: usize, piece: &Piece, data: Slice, fua: bool, zeros: bool) {
        let (column, lo, hi) = (piece.column, piece.lo, piece.hi);
        let piece_of_write = WritePiece {
            request,
            column,
            lo,
            hi,
            data,
            fua,
            zeros,
        };
        let work = Work::write(piece_of_write, self.streams.flowing());
        self.queue.enqueue(piece.stripe, work);
    }

    /// Write-zeroes and discard: whole bands of stripes are zeroed on every column (parity of zeros
    /// is zero), the edges are written as zeros, or left as they are where the content is only
    /// advised away.
    fn zero(&mut self, id: RequestId, offset: u64, len: u64, fua: bool, advice: bool) {
        // One piece more than there are, so that the request cannot be answered while it is being
        // split.
        let request = self.requests.begin(id, 1);
        let mut at = offset;
        while at < offset + len {
            let stripe = self.map.geometry().locate(at).stripe;
            let whole = self.map.geometry().band_range(stripe);
            let end = whole.end.min(offset + len);
            let Shape { k, band, .. } = self.map.shape(stripe);
            let band_bytes = k as u64 * band * self.map.geometry().strip;
            let unwritten = self.gates[self.map.region(stripe)].unwritten();
            if unwritten {
                // It reads as zeros already. A write that waits to change that has not been
                // answered: either order is right.
            } else if end - at == band_bytes {
                for stripe in self.map.geometry().band_stripes(stripe) {
                    self.zero_stripe(request, stripe, fua);
                }
            } else if !advice {
                let unit = self.logs.run_bytes();
                let edge: Vec<Piece> = pieces(self.map.geometry(), at, end - at, unit).collect();
                for piece in edge {
                    let len = (piece.hi - piece.lo) as usize;
                    let zeros = Slice::new(self.zeros.clone(), 0, len);
                    self.requests.add_part(request);
                    self.write_piece(request, &piece, zeros, fua, true);
                }
            }
            at = end;
        }
        self.finish_part(request, None, Ok(()));
    }

    fn zero_stripe(&mut self, request: usize, stripe: StripeNo, fua: bool) {
        let unit = self.logs.run_bytes();
        for run in 0..self.map.geometry().strip / unit {
            self.requests.add_part(request);
            let (lo, hi) = (run * unit, (run + 1) * unit);
            self.queue.enqueue(stripe, Work::zero(request, lo, hi, fua));
        }
    }

    fn flush(&mut self, id: RequestId) {
        let devices: Vec<DeviceView> = self.map.flushable().collect();
        let request = self.requests.begin(id, devices.len() + 1);
        for device in devices {
            let device = device.device;
            self.out
                .io(device, IoFor::Flush { request, device }, IoKind::Flush);
        }
        self.finish_part(request, None, Ok(()));
    }

    /// A member I/O of this shard has finished.
    pub fn complete(&mut self, now: Time, completion: Completion) {
        self.out.set_now(now);
        let Completion { io, result, buf } = completion;
        let flight = self.out.finish_io(io);
        if result.is_ok() {
            let (what, device) = (flight.measured, flight.device);
            self.meters.note(what, device, flight.begun, now);
        }
        match flight.what {
            IoFor::Read(read) => self.read_done(read, result, buf),
            IoFor::Flush { request, device } => {
                if let Err(error) = result {
                    self.out.report(&self.map, device, error, true, 0);
                    if self.map.view().failed {
                        return self.finish_part(request, None, Err(RequestError::Failed));
                    }
                    if self.map.in_view(device) && !canary::hit(Canary::FlushAnsweredEarly) {
                        self.requests.await_device(request, device);
                    }
                }
                self.finish_part(request, None, Ok(()));
            }
            IoFor::OpRead {
                op,
                column,
                device,
                offset,
            } => {
                self.op_read_done(op, column, device, offset, result, buf);
            }
            IoFor::OpWrite { op, device, offset } => self.op_write_done(op, device, offset, result),
            IoFor::Log(flight) => self.batch_written(flight, result),
        }
    }

    /// A message from the array.
    pub fn message(&mut self, now: Time, message: ToShard) {
        self.out.set_now(now);
        match message {
            ToShard::View(view) => self.apply_view(view),
            ToShard::Region { region, access } => self.set_region(region, access),
            ToShard::CloseRegion { region, only_if } => self.close_region(region, only_if),
            ToShard::Synced { region } => self.region_synced(region),
            ToShard::Unreadable(lost) => self.map.set_unreadable(lost),
            ToShard::Listed { op, full } => self.list_answered(op, full),
            ToShard::Step(step) => self.begin_step(step),
            ToShard::Quiesce => self.quiesce.begin(),
            ToShard::Resume => self.resume(),
            ToShard::Reshape(setup) => self.reshape(*setup),
            ToShard::GrantLease => self.grant_lease(),
            ToShard::RevokeLease => self.revoke_lease(),
        }
    }

    fn close_region(&mut self, region: RegionNo, only_if: CloseIf) {
        let empty = only_if == CloseIf::Empty && self.zero_tracker.is_emptied(region, &self.map);
        let (logs, out) = (&self.logs, &mut self.out);
        self.gates.close(region, only_if, empty, logs, out);
    }

    /// The token of rebuilds comes from another shard.
    pub fn write_token(&mut self, now: Time, token: WriteToken) {
        self.out.set_now(now);
        self.write_order.take_token(token);
    }

    pub(crate) fn apply_view(&mut self, view: Arc<View>) {
        let version = view.version;
        self.map.set_view(view);
        self.meters.follow(self.map.view().serving());
        // The last view is in force when nothing is under way any more: repairs of reads that were
        // answered, too. Then devices may be closed.
        match self.map.view().stopping {
            true => self.stopping = Some(version),
            false => self.out.say(FromShard::ViewApplied { version }),
        }
        self.logs_follow_view();
        let waiting: Vec<usize> = self
            .ops
            .iter()
            .filter(|(_, op)| op.waits_for_view(self.map.view().failed))
            .map(|(key, _)| key)
            .collect();
        for op in waiting {
            self.view_changed(op);
        }
        if let Some(error) = self.map.closed() {
            self.end_gated(error);
            self.resume();
        }
        self.end_awaiting();
    }

    /// The next effect. Call until `None` after every input, and when buffers were dropped
    /// elsewhere.
    pub fn poll(&mut self) -> Option<ShardOutput> {
        while self.out.is_empty() {
            if self.admit_held() || self.plan_rows() {
                continue;
            }
            if let Some(stripe) = self.queue.next_ready() {
                self.pump(stripe, false);
            } else if !self.pump_logs()
                && !self.feed_starved()
                && !self.pass_token()
                && !self.release_waiting()
                && !self.give_up_early()
                && !self.let_go()
                && !self.say_stopped()
                && !self.report_quiesced()
            {
                return None;
            }
        }
        self.out.take()
    }

    /// Tells the array, once, that nothing is under way in a shard that is to stop.
    fn say_stopped(&mut self) -> bool {
        let quiet = self.ops.is_empty() && self.out.none_in_flight();
        let version = self.stopping.take_if(|_| quiet);
        if let Some(version) = version {
            self.out.say(FromShard::ViewApplied { version });
        }
        version.is_some()
    }

    /// Gives buffers to the first that waits for them; false if none waits or none could be had.
    fn feed_starved(&mut self) -> bool {
        match self.starved.front() {
            None => false,
            Some(Starved::Read(read)) => {
                let read = *read;
                // The member may have left while the read waited, or the region been given back.
                let region = self.map.region(read.stripe);
                if self.gates[region].unwritten()
                    || self
                        .map
                        .source(read.stripe, read.source)
                        .is_none_or(|d| d.device != read.device)
                {
                    self.starved.pop_front();
                    self.queue.enqueue(read.stripe, read.computed(Vec::new()));
                    return true;
                }
                let (len, keep) = (
                    (read.hi - read.lo) as usize,
                    crate::provision::limits::widest(self.map.geometry()),
                );
                let Some(buf) = self.pool.take_leaving(len, keep) else {
                    return false;
                };
                self.starved.pop_front();
                self.issue_read(read, buf);
                true
            }
            Some(&Starved::Op(op)) => {
                if !self.take_buffers(op) {
                    return false;
                }
                self.starved.pop_front();
                self.issue_op_reads(op);
                true
            }
        }
    }

    /// Buffers of its pool that nobody holds.
    pub fn free_buffers(&self) -> usize {
        self.pool.free()
    }

    /// Something waits for buffers: poll again when some have been dropped elsewhere.
    pub fn hungry(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Requests accepted and not yet answered.
    pub fn in_flight(&self) -> usize {
        self.requests.unanswered() + self.quiesce.len()
    }
}
