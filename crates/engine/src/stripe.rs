//! Stripe operations: one enum for what is done, one for how far it has come.
//!
//! Order of a write (each step waits for the one before):
//! 1. *gate*: the region is open, so Dirty is durable on the members;
//! 2. *buffers*: all that the plan needs, or none;
//! 3. *read* what the plan needs; a read that fails changes the plan and starts again from 2;
//! 4. compute parity;
//! 5. *write* data and parity in place, with FUA where the request has it;
//! 6. if a write failed: wait for a view without that device, which the array publishes once the survivors
//!    durably know that it is out;
//! 7. answer.
//!
//! Invariant: nothing is computed from a column that is lost or that failed to read in this operation.

use strake_parity::xor;

use crate::buffers::{Buf, Slice};
use crate::event::*;
use crate::plan::{Columns, Coverage, Facts, WritePlan};
use crate::shard::{IoFor, Shard, Starved};
use crate::units::*;

/// What waits for its turn on a stripe.
pub(crate) struct Work {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    pub(crate) kind: WorkKind,
}

pub(crate) enum WorkKind {
    /// Compute a piece that its member cannot give.
    Read {
        request: usize,
        part: usize,
        column: usize,
        avoid: Vec<Bad>,
        heal: Columns,
    },
    Write {
        pieces: Vec<WritePiece>,
    },
    Zero {
        request: usize,
        fua: bool,
    },
    Step {
        step: u64,
        kind: StepKind,
    },
}

/// A part of a write request within one strip.
pub(crate) struct WritePiece {
    pub(crate) request: usize,
    pub(crate) column: usize,
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    pub(crate) data: Slice,
    pub(crate) fua: bool,
}

/// A column that a device could not give.
pub(crate) type Bad = (usize, DeviceId);

impl Work {
    pub(crate) fn read(
        request: usize,
        part: usize,
        column: usize,
        lo: u64,
        hi: u64,
        avoid: Vec<Bad>,
    ) -> Work {
        let heal = Columns::default();
        Work {
            lo,
            hi,
            kind: WorkKind::Read {
                request,
                part,
                column,
                avoid,
                heal,
            },
        }
    }

    /// The same read, which also rewrites these columns.
    pub(crate) fn healing(mut self, media: Columns) -> Work {
        if let WorkKind::Read { heal, .. } = &mut self.kind {
            *heal = media;
        }
        self
    }

    pub(crate) fn write(piece: WritePiece) -> Work {
        Work {
            lo: piece.lo,
            hi: piece.hi,
            kind: WorkKind::Write {
                pieces: vec![piece],
            },
        }
    }

    pub(crate) fn zero(request: usize, strip: u64, fua: bool) -> Work {
        Work {
            lo: 0,
            hi: strip,
            kind: WorkKind::Zero { request, fua },
        }
    }

    pub(crate) fn step(step: u64, kind: StepKind, strip: u64) -> Work {
        Work {
            lo: 0,
            hi: strip,
            kind: WorkKind::Step { step, kind },
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self.kind, WorkKind::Write { .. })
    }

    /// Only reads, and writes nothing back.
    pub(crate) fn shared(&self) -> bool {
        matches!(&self.kind, WorkKind::Read { heal, .. } if heal.is_empty())
    }

    /// Takes the pieces of another write.
    pub(crate) fn absorb(&mut self, other: Work) {
        if let (WorkKind::Write { pieces }, WorkKind::Write { pieces: more }) =
            (&mut self.kind, other.kind)
        {
            pieces.extend(more);
            self.lo = self.lo.min(other.lo);
            self.hi = self.hi.max(other.hi);
        }
    }
}

/// How far an operation has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Gate,
    Buffers,
    Reading,
    Writing,
    /// A write failed: wait until the view has none of these devices.
    View,
}

/// An operation at work on one run of one stripe.
pub(crate) struct StripeOp {
    pub(crate) stripe: StripeNo,
    pub(crate) work: Work,
    phase: Phase,
    /// Member I/Os in flight.
    pending: usize,
    /// Columns that failed to read here and on which device, and those of them that are to be rewritten.
    bad: Vec<Bad>,
    read_failed: bool,
    heal: Columns,
    plan: WritePlan,
    /// Columns to read, over which part of the strip.
    reads: Vec<(usize, u64, u64)>,
    /// Buffer lengths wanted beyond the reads'.
    extra: Vec<usize>,
    bufs: Vec<Buf>,
    /// Content of each column: what was read, then what is computed.
    columns: Vec<Option<Slice>>,
    failed: Vec<DeviceId>,
    /// Counted as a user of its region, and as a writer there.
    pub(crate) entered: bool,
    pub(crate) gated: bool,
    /// A step's stripe in a region that was given back.
    skipped: bool,
    error: Option<RequestError>,
    found_inconsistent: bool,
    /// Columns that could not be read when the plan was made.
    lost: Columns,
    /// Columns that were rewritten after a media error.
    healed: Columns,
    /// Parity columns that had a member when the plan was made.
    parity: Columns,
    /// A read's answer is out; what is left is the repair.
    answered: bool,
    /// Incoming members that this rebuild writes.
    targets: Vec<DeviceId>,
}

impl StripeOp {
    pub(crate) fn new(stripe: StripeNo, work: Work) -> StripeOp {
        let (bad, heal) = match &work.kind {
            WorkKind::Read { avoid, heal, .. } => (avoid.clone(), *heal),
            _ => (Vec::new(), Columns::default()),
        };
        StripeOp {
            stripe,
            work,
            phase: Phase::Gate,
            pending: 0,
            bad,
            read_failed: false,
            heal,
            plan: WritePlan::Full,
            reads: Vec::new(),
            extra: Vec::new(),
            bufs: Vec::new(),
            columns: Vec::new(),
            failed: Vec::new(),
            entered: false,
            gated: false,
            skipped: false,
            error: None,
            found_inconsistent: false,
            lost: Columns::default(),
            healed: Columns::default(),
            parity: Columns::default(),
            answered: false,
            targets: Vec::new(),
        }
    }

    pub(crate) fn waits_for_view(&self) -> bool {
        self.phase == Phase::View
    }

    fn drop_buffers(&mut self) {
        self.bufs.clear();
        self.columns.iter_mut().for_each(|c| *c = None);
    }
}

/// What is written for each data column, in the order of the pieces.
fn coverage(k: usize, pieces: &[WritePiece]) -> Vec<Option<Coverage>> {
    let mut all: Vec<Option<Coverage>> = vec![None; k];
    for (column, slot) in all.iter_mut().enumerate() {
        let mut ranges: Vec<(u64, u64)> = pieces
            .iter()
            .filter(|p| p.column == column)
            .map(|p| (p.lo, p.hi))
            .collect();
        ranges.sort_unstable();
        let Some(&(lo, first_hi)) = ranges.first() else {
            continue;
        };
        let (mut hi, mut solid) = (first_hi, true);
        for (l, h) in ranges {
            solid &= l <= hi;
            hi = hi.max(h);
        }
        *slot = Some(Coverage { lo, hi, solid });
    }
    all
}

impl Shard {
    pub(crate) fn start_op(&mut self, key: usize) {
        if let Some(error) = self.closed() {
            return self.finish_op(key, Some(error));
        }
        let op = &self.ops[key];
        let gated = matches!(op.work.kind, WorkKind::Write { .. } | WorkKind::Zero { .. });
        let region = self.region(op.stripe);
        if !gated && self.gates[region.0 as usize].unwritten() {
            return self.pass_over(key);
        }
        if gated {
            let gate = &mut self.gates[region.0 as usize];
            if !gate.open() {
                gate.waiting.push(key);
                if gate.ask() {
                    self.say(FromShard::NeedRegion { region });
                }
                return;
            }
            gate.writers += 1;
            gate.touched = true;
            self.ops[key].gated = true;
        }
        self.gates[region.0 as usize].users += 1;
        self.ops[key].entered = true;
        self.prepare(key);
    }

    /// Reads of a region that was given back while they waited are zeros; steps have nothing to do there.
    fn pass_over(&mut self, key: usize) {
        let op = &mut self.ops[key];
        op.skipped = true;
        if let WorkKind::Read { request, part, .. } = op.work.kind {
            op.answered = true;
            let zeros = Slice::new(self.zeros.clone(), 0, (op.work.hi - op.work.lo) as usize);
            self.finish_part(request, Some((part, zeros)), Ok(()));
        }
        self.finish_op(key, None);
    }

    /// Parity agrees with the data in this stripe, or is believed to by an administrator's word.
    fn trusted(&self, stripe: StripeNo) -> bool {
        let lost = |c: usize| self.source(stripe, c).is_none();
        self.gates[self.region(stripe).0 as usize].trusted()
            || self.geometry.mirrored()
            || (self.view.forced && (0..self.geometry.k).any(lost))
    }

    /// Columns of the operation that cannot be read: no member, or a failed read.
    fn lost(&self, op: &StripeOp) -> Columns {
        let mut lost = Columns::default();
        for column in 0..self.geometry.width {
            let source = self.source(op.stripe, column);
            if source.is_none_or(|d| op.bad.contains(&(column, d.device))) {
                lost.add(column);
            }
        }
        lost
    }

    /// Plans the operation: what to read, which buffers. Runs again after a failed read.
    fn prepare(&mut self, key: usize) {
        if self.view.failed {
            return self.finish_op(key, Some(RequestError::Failed));
        }
        let op = &self.ops[key];
        let (lost, stripe) = (self.lost(op), op.stripe);
        let planned = match &op.work.kind {
            WorkKind::Write { pieces } => self.plan_write(op, pieces, lost),
            WorkKind::Read { column, .. } => self.plan_read(op, *column, lost),
            WorkKind::Zero { .. } => Some((WritePlan::Full, Vec::new(), Vec::new())),
            WorkKind::Step { kind, .. } => self.plan_step(op, *kind, lost),
        };
        let Some((plan, reads, extra)) = planned else {
            return self.finish_op(key, Some(RequestError::Unreadable));
        };
        let (k, width) = (self.geometry.k, self.geometry.width);
        let mut parity = Columns::default();
        (k..width)
            .filter(|&c| self.has_target(stripe, c))
            .for_each(|c| parity.add(c));
        let targets = self
            .unbuilt(stripe)
            .into_iter()
            .map(|(_, t)| t.device)
            .collect();
        let op = &mut self.ops[key];
        op.drop_buffers();
        op.columns.resize_with(width, || None);
        (op.plan, op.reads, op.extra, op.phase) = (plan, reads, extra, Phase::Buffers);
        (op.lost, op.read_failed) = (lost, false);
        (op.parity, op.targets) = (parity, targets);
        if self.starved.is_empty() && self.take_buffers(key) {
            self.issue_op_reads(key);
        } else {
            self.starved.push_back(Starved::Op(key));
        }
    }

    fn plan_write(&self, op: &StripeOp, pieces: &[WritePiece], lost: Columns) -> Option<Planned> {
        let (lo, hi) = (op.work.lo, op.work.hi);
        let k = self.geometry.k;
        if self.lost_beyond(op.stripe) {
            return None;
        }
        let coverage = coverage(k, pieces);
        let trusted = self.trusted(op.stripe);
        let geometry = &self.geometry;
        let mut parity = Columns::default();
        for c in (k..geometry.width).filter(|&c| self.has_target(op.stripe, c)) {
            parity.add(c);
        }
        let facts = Facts {
            geometry,
            lo,
            hi,
            coverage: &coverage,
            lost,
            parity,
            trusted,
        };
        let plan = facts.choose()?;
        let mut wanted = facts.reads(plan);
        if plan == WritePlan::Decode {
            let missing = missing_data(k, &coverage, lost, lo, hi);
            let available: Vec<usize> = available(geometry.width, lost);
            let decoder = self.code.decoder(&available, &missing).ok()?;
            decoder.sources().iter().for_each(|&c| wanted.add(c));
        }
        let range = |c: usize| match (plan, coverage.get(c).copied().flatten()) {
            (WritePlan::ReadModifyWrite | WritePlan::Full, Some(v)) if c < k => (c, v.lo, v.hi),
            _ => (c, lo, hi),
        };
        let reads = (0..geometry.width)
            .filter(|&c| wanted.has(c))
            .map(range)
            .collect();
        let len = (hi - lo) as usize;
        // Columns put together from several pieces; then differences, or parity and decoded columns.
        let written = coverage.iter().flatten().count();
        let more = match plan {
            WritePlan::ReadModifyWrite => written,
            WritePlan::Full | WritePlan::ReconstructWrite => geometry.m,
            WritePlan::Decode => geometry.m + lost.count().min(geometry.m),
        };
        let extra = vec![len; written + more];
        Some((plan, reads, extra))
    }

    fn plan_read(&self, op: &StripeOp, column: usize, lost: Columns) -> Option<Planned> {
        let (lo, hi) = (op.work.lo, op.work.hi);
        let trusted = self.trusted(op.stripe);
        let mut wanted: Vec<usize> = (0..self.geometry.width)
            .filter(|&c| op.heal.has(c) && c != column)
            .collect();
        wanted.insert(0, column);
        let direct = !lost.has(column) && wanted.len() == 1;
        if direct {
            return Some((WritePlan::Full, vec![(column, lo, hi)], Vec::new()));
        }
        if !trusted {
            return None;
        }
        let decoder = self
            .code
            .decoder(&available(self.geometry.width, lost), &wanted)
            .ok()?;
        let reads = decoder.sources().iter().map(|&c| (c, lo, hi)).collect();
        Some((
            WritePlan::Decode,
            reads,
            vec![(hi - lo) as usize; wanted.len()],
        ))
    }

    /// Some member holds this column.
    fn has_target(&self, stripe: StripeNo, column: usize) -> bool {
        self.targets(stripe, column).iter().any(Option::is_some)
    }

    /// More columns of this stripe have no member than there are parities.
    fn lost_beyond(&self, stripe: StripeNo) -> bool {
        let lost = (0..self.geometry.width)
            .filter(|&c| self.source(stripe, c).is_none())
            .count();
        lost > self.geometry.m
    }

    /// Takes all buffers that the operation wants; false if they are not all there.
    pub(crate) fn take_buffers(&mut self, key: usize) -> bool {
        let op = &self.ops[key];
        let reads = op.reads.iter().map(|&(_, lo, hi)| (hi - lo) as usize);
        let wanted: Vec<usize> = reads.chain(op.extra.iter().copied()).collect();
        match self.pool.take_all(&wanted) {
            Some(bufs) => {
                self.ops[key].bufs = bufs;
                true
            }
            None => false,
        }
    }

    pub(crate) fn issue_op_reads(&mut self, key: usize) {
        let op = &mut self.ops[key];
        op.phase = Phase::Reading;
        let reads = std::mem::take(&mut op.reads);
        let bufs: Vec<Buf> = op.bufs.drain(..reads.len()).collect();
        let stripe = op.stripe;
        // The view may have changed while the operation waited for buffers.
        if reads
            .iter()
            .any(|&(column, ..)| self.source(stripe, column).is_none())
        {
            drop(bufs);
            return self.prepare(key);
        }
        for (&(column, lo, hi), buf) in reads.iter().zip(bufs) {
            let device = self.source(stripe, column).expect("checked above");
            let offset = self.member_offset(device, stripe) + lo;
            let what = IoFor::OpRead {
                op: key,
                column,
                device: device.device,
                offset,
            };
            let kind = IoKind::Read {
                offset,
                buf,
                start: 0,
                len: (hi - lo) as usize,
            };
            self.io(device.device, what, kind);
            self.ops[key].pending += 1;
        }
        self.ops[key].reads = reads;
        if self.ops[key].pending == 0 {
            self.compute(key);
        }
    }

    pub(crate) fn op_read_done(
        &mut self,
        key: usize,
        column: usize,
        device: DeviceId,
        offset: u64,
        result: Result<(), IoError>,
        buf: Option<Buf>,
    ) {
        let op = &mut self.ops[key];
        op.pending -= 1;
        match (result, buf) {
            (Ok(()), Some(buf)) => {
                let (_, lo, hi) = *op
                    .reads
                    .iter()
                    .find(|r| r.0 == column)
                    .expect("the operation asked for it");
                op.columns[column] = Some(Slice::new(buf, 0, (hi - lo) as usize));
            }
            (result, _) => {
                op.bad.push((column, device));
                op.read_failed = true;
                let error = result.err().unwrap_or(IoError::TimedOut);
                if error == IoError::Media {
                    op.heal.add(column);
                }
                self.report(device, error, false, offset);
            }
        }
        let op = &self.ops[key];
        if op.pending == 0 {
            if op.read_failed {
                self.prepare(key)
            } else {
                self.compute(key)
            }
        }
    }

    fn compute(&mut self, key: usize) {
        if self.view.failed {
            return self.finish_op(key, Some(RequestError::Failed));
        }
        self.ops[key].phase = Phase::Writing;
        match &self.ops[key].work.kind {
            WorkKind::Write { .. } => self.compute_write(key),
            WorkKind::Read { .. } => self.compute_read(key),
            WorkKind::Zero { fua, .. } => {
                let fua = *fua;
                self.write_zeroes(key, fua);
            }
            WorkKind::Step { kind, .. } => {
                let kind = *kind;
                self.compute_step(key, kind);
            }
        }
        if self.ops.contains(key) && self.ops[key].pending == 0 {
            self.writes_done(key);
        }
    }

    fn compute_write(&mut self, key: usize) {
        let mut op = std::mem::replace(&mut self.ops[key], StripeOp::placeholder());
        let lost = op.lost;
        let WorkKind::Write { pieces } = &mut op.work.kind else {
            unreachable!("only for writes")
        };
        let all_pieces = std::mem::take(pieces);
        let pieces = all_pieces.as_slice();
        let (k, lo, hi) = (self.geometry.k, op.work.lo, op.work.hi);
        let coverage = coverage(k, pieces);
        let fua = pieces.iter().any(|p| p.fua);
        if op.plan == WritePlan::Decode {
            let missing = missing_data(k, &coverage, lost, lo, hi);
            self.decode_into(&mut op, lost, &missing);
        }
        // New content of the written columns, each over its own coverage or, where the whole run is
        // known, over the run.
        let whole = matches!(op.plan, WritePlan::ReconstructWrite | WritePlan::Decode);
        let mut new: Vec<Option<(Slice, u64)>> = vec![None; k];
        for c in 0..k {
            let Some(v) = coverage[c] else { continue };
            let (from, to) = if whole && op.columns[c].is_some() {
                (lo, hi)
            } else {
                (v.lo, v.hi)
            };
            new[c] = Some((
                assemble(&mut op.bufs, op.columns[c].as_ref(), pieces, c, from, to),
                from,
            ));
        }
        let rows: Vec<usize> = (0..self.geometry.m)
            .filter(|&j| self.has_target(op.stripe, k + j) && op.parity.has(k + j))
            .collect();
        let parity = self.new_parity(&mut op, &rows, &new, lo, hi);
        let mut writes: Vec<(usize, u64, Slice)> = Vec::new();
        for c in 0..k {
            if let Some((slice, from)) = new[c].take() {
                let v = coverage[c].expect("new content is of written columns");
                if op.heal.has(c) {
                    op.healed.add(c);
                    writes.push((c, from, slice));
                } else {
                    writes.extend(
                        runs(pieces, c, v).map(|(l, h)| {
                            (c, l, slice.part((l - from) as usize, (h - l) as usize))
                        }),
                    );
                }
            } else if op.heal.has(c)
                && let Some(slice) = op.columns[c].clone().filter(|s| s.len as u64 == hi - lo)
            {
                op.healed.add(c);
                writes.push((c, lo, slice));
            }
        }
        rows.iter()
            .filter(|&&j| op.heal.has(k + j))
            .for_each(|&j| op.healed.add(k + j));
        writes.extend(
            rows.iter()
                .zip(parity)
                .map(|(&j, slice)| (k + j, lo, slice)),
        );
        op.work.kind = WorkKind::Write { pieces: all_pieces };
        self.ops[key] = op;
        for (column, from, slice) in writes {
            self.write_column(key, column, from, slice, fua);
        }
    }

    /// The parities in `rows` after the write, over the run.
    fn new_parity(
        &self,
        op: &mut StripeOp,
        rows: &[usize],
        new: &[Option<(Slice, u64)>],
        lo: u64,
        hi: u64,
    ) -> Vec<Slice> {
        let (k, len) = (self.geometry.k, (hi - lo) as usize);
        if rows.is_empty() {
            return Vec::new();
        }
        if op.plan == WritePlan::ReadModifyWrite {
            let mut parity: Vec<Slice> = rows
                .iter()
                .map(|&j| {
                    op.columns[k + j]
                        .take()
                        .expect("the plan reads every live parity")
                })
                .collect();
            for (c, content) in new.iter().enumerate() {
                let Some((slice, from)) = content else {
                    continue;
                };
                let mut delta = op.bufs.pop().expect("a buffer for each written column");
                let old = op.columns[c].as_ref().expect("the plan reads the old data");
                xor(
                    &mut delta.bytes_mut()[..slice.len],
                    old.bytes(),
                    slice.bytes(),
                );
                let start = (from - lo) as usize;
                let mut outputs: Vec<&mut [u8]> = parity
                    .iter_mut()
                    .map(|p| &mut p.buf.bytes_mut()[start..start + slice.len])
                    .collect();
                self.code
                    .update_rows(rows, c, &delta.bytes()[..slice.len], &mut outputs);
            }
            return parity;
        }
        let mut parity: Vec<Buf> = rows
            .iter()
            .map(|_| op.bufs.pop().expect("a buffer for each parity"))
            .collect();
        let data: Vec<&[u8]> = (0..k)
            .map(|c| match (&new[c], &op.columns[c]) {
                (Some((slice, from)), _) if *from == lo && slice.len == len => slice.bytes(),
                (None, Some(slice)) => slice.bytes(),
                _ => unreachable!("the plan covers every data column over the whole run"),
            })
            .collect();
        let mut outputs: Vec<&mut [u8]> = parity
            .iter_mut()
            .map(|buf| &mut buf.bytes_mut()[..len])
            .collect();
        self.code.generate_rows(rows, &data, &mut outputs);
        parity
            .into_iter()
            .map(|buf| Slice::new(buf, 0, len))
            .collect()
    }

    /// Computes the `wanted` columns from those read; they become the operation's content.
    pub(crate) fn decode_into(&self, op: &mut StripeOp, lost: Columns, wanted: &[usize]) {
        let len = (op.work.hi - op.work.lo) as usize;
        let decoder = self
            .code
            .decoder(&available(self.geometry.width, lost), wanted)
            .expect("the plan found enough columns");
        let mut outputs: Vec<Buf> = wanted
            .iter()
            .map(|_| op.bufs.pop().expect("a buffer for each lost column"))
            .collect();
        let inputs: Vec<&[u8]> = decoder
            .sources()
            .iter()
            .map(|&c| {
                op.columns[c]
                    .as_ref()
                    .expect("the plan reads every source")
                    .bytes()
            })
            .collect();
        let mut slices: Vec<&mut [u8]> = outputs
            .iter_mut()
            .map(|buf| &mut buf.bytes_mut()[..len])
            .collect();
        decoder.decode(&inputs, &mut slices);
        for (&column, buf) in wanted.iter().zip(outputs) {
            op.columns[column] = Some(Slice::new(buf, 0, len));
        }
    }

    fn compute_read(&mut self, key: usize) {
        let mut op = std::mem::replace(&mut self.ops[key], StripeOp::placeholder());
        let lost = op.lost;
        let WorkKind::Read {
            request,
            part,
            column,
            ..
        } = op.work.kind
        else {
            unreachable!("only for reads")
        };
        let heal: Vec<usize> = (0..self.geometry.width)
            .filter(|&c| op.heal.has(c) && c != column)
            .collect();
        if op.plan == WritePlan::Decode {
            let mut wanted = heal;
            wanted.insert(0, column);
            self.decode_into(&mut op, lost, &wanted);
        }
        let slice = op.columns[column].clone().expect("read or decoded");
        let healed: Vec<(usize, Slice)> = (0..self.geometry.width)
            .filter(|&c| op.heal.has(c))
            .filter_map(|c| op.columns[c].clone().map(|s| (c, s)))
            .collect();
        // Only the exclusive form may write: a read that met its first bad sector here comes again as one.
        let exclusive = !op.work.shared();
        let (stripe, lo, hi, found) = (op.stripe, op.work.lo, op.work.hi, op.heal);
        self.ops[key] = op;
        if !exclusive && !found.is_empty() {
            let bad = std::mem::take(&mut self.ops[key].bad);
            self.retire(key);
            let work = Work::read(request, part, column, lo, hi, bad).healing(found);
            return self.enqueue(stripe, work);
        }
        self.ops[key].answered = true;
        if exclusive {
            for (column, slice) in healed {
                self.ops[key].healed.add(column);
                self.write_column(key, column, lo, slice, false);
            }
        }
        self.finish_part(request, Some((part, slice)), Ok(()));
    }

    fn write_zeroes(&mut self, key: usize, fua: bool) {
        let (stripe, strip) = (self.ops[key].stripe, self.geometry.strip);
        if self.lost_beyond(stripe) {
            self.ops[key].error = Some(RequestError::Unreadable);
            return;
        }
        for column in 0..self.geometry.width {
            if fua {
                let zeros = Slice::new(self.zeros.clone(), 0, strip as usize);
                self.write_column(key, column, 0, zeros, true);
                continue;
            }
            for device in self.targets(stripe, column).into_iter().flatten() {
                let offset = self.member_offset(device, stripe);
                let what = IoFor::OpWrite {
                    op: key,
                    device: device.device,
                    offset,
                };
                self.io(
                    device.device,
                    what,
                    IoKind::WriteZeroes { offset, len: strip },
                );
                self.ops[key].pending += 1;
            }
        }
    }

    /// Writes `slice` at byte `from` of the column's strip, on every member that holds it.
    pub(crate) fn write_column(
        &mut self,
        key: usize,
        column: usize,
        from: u64,
        slice: Slice,
        fua: bool,
    ) {
        let stripe = self.ops[key].stripe;
        for device in self.targets(stripe, column).into_iter().flatten() {
            self.write_to(key, device, from, slice.clone(), fua);
        }
    }

    pub(crate) fn write_to(
        &mut self,
        key: usize,
        device: DeviceView,
        from: u64,
        slice: Slice,
        fua: bool,
    ) {
        let stripe = self.ops[key].stripe;
        let offset = self.member_offset(device, stripe) + from;
        let what = IoFor::OpWrite {
            op: key,
            device: device.device,
            offset,
        };
        let fua = fua && device.volatile_cache;
        self.io(
            device.device,
            what,
            IoKind::Write {
                offset,
                data: slice,
                fua,
            },
        );
        self.ops[key].pending += 1;
    }

    pub(crate) fn op_write_done(
        &mut self,
        key: usize,
        device: DeviceId,
        offset: u64,
        result: Result<(), IoError>,
    ) {
        self.ops[key].pending -= 1;
        if let Err(error) = result {
            self.ops[key].failed.push(device);
            self.report(device, error, true, offset);
        }
        if self.ops[key].pending == 0 {
            self.writes_done(key);
        }
    }

    /// All writes have come back: done, or waiting for a view without the devices that failed.
    fn writes_done(&mut self, key: usize) {
        let failed = std::mem::take(&mut self.ops[key].failed);
        let still: Vec<DeviceId> = failed.into_iter().filter(|&d| self.in_view(d)).collect();
        if self.view.failed {
            return self.finish_op(key, Some(RequestError::Failed));
        }
        if still.is_empty() {
            let error = self.ops[key].error;
            return self.finish_op(key, error);
        }
        let op = &mut self.ops[key];
        (op.failed, op.phase) = (still, Phase::View);
    }

    pub(crate) fn view_changed(&mut self, key: usize) {
        self.writes_done(key);
    }

    /// The operation is over: answers, lets the region and the stripe go.
    pub(crate) fn finish_op(&mut self, key: usize, error: Option<RequestError>) {
        let op = self.retire(key);
        let result = match error {
            Some(error) => Err(error),
            None => Ok(()),
        };
        match &op.work.kind {
            WorkKind::Write { pieces } => {
                for piece in pieces {
                    self.finish_part(piece.request, None, result);
                }
            }
            WorkKind::Zero { request, .. } => self.finish_part(*request, None, result),
            WorkKind::Read { request, .. } => {
                // A read that could be computed was answered before its repair was written.
                if !op.answered {
                    self.finish_part(*request, None, result.and(Err(RequestError::Unreadable)));
                }
            }
            WorkKind::Step { step, kind, .. } => {
                // Resync and scrub leave the strips of incoming members as they are.
                let rebuilt = *kind == StepKind::Rebuild && error.is_none() && !op.skipped;
                for &target in op.targets.iter().filter(|_| rebuilt) {
                    self.mark_rebuilt(op.stripe, target);
                }
                self.step_stripe_done(*step, error.is_some(), op.found_inconsistent, op.skipped);
            }
        }
        if error.is_none() && !op.healed.is_empty() {
            self.say_repaired(&op);
        }
    }

    fn say_repaired(&mut self, op: &StripeOp) {
        for column in 0..self.geometry.width {
            if op.healed.has(column)
                && let Some(device) = self.source(op.stripe, column)
            {
                let offset = self.member_offset(device, op.stripe) + op.work.lo;
                let len = op.work.hi - op.work.lo;
                self.say(FromShard::Repaired {
                    device: device.device,
                    offset,
                    len,
                });
            }
        }
    }

    // ---- steps of jobs -----------------------------------------------------------------------

    /// The incoming members of a stripe whose strip is not valid yet.
    fn unbuilt(&self, stripe: StripeNo) -> Vec<(usize, DeviceView)> {
        (0..self.geometry.width)
            .filter_map(|c| {
                self.incoming(stripe, c)
                    .map(|(target, done)| (c, target, done))
            })
            .filter(|&(_, _, done)| !done)
            .map(|(c, target, _)| (c, target))
            .collect()
    }

    fn plan_step(&self, op: &StripeOp, kind: StepKind, lost: Columns) -> Option<Planned> {
        let strip = self.geometry.strip;
        let width = self.geometry.width;
        let trusted = self.trusted(op.stripe);
        if kind == StepKind::Rebuild {
            let wanted: Vec<usize> = self
                .unbuilt(op.stripe)
                .into_iter()
                .map(|(c, _)| c)
                .collect();
            // The target may have left after a sector was found unreadable: that is mended all the same.
            if wanted.is_empty() && op.heal.is_empty() {
                return Some((WritePlan::Full, Vec::new(), Vec::new()));
            }
            let (copied, computed): (Vec<usize>, Vec<usize>) =
                wanted.into_iter().partition(|&c| !lost.has(c));
            let mut columns: Vec<usize> = copied;
            if !computed.is_empty() || !op.heal.is_empty() {
                let all = rebuild_wanted(&computed, op.heal, width);
                let decoder = self.code.decoder(&available(width, lost), &all).ok()?;
                if !trusted && decoder.sources().iter().any(|&c| c >= self.geometry.k) {
                    return None;
                }
                columns.extend(decoder.sources());
            }
            columns.sort_unstable();
            columns.dedup();
            let reads = columns.into_iter().map(|c| (c, 0, strip)).collect();
            let extra = vec![strip as usize; self.geometry.m];
            return Some((WritePlan::Decode, reads, extra));
        }
        // Resync and scrub look at everything that is there.
        let data_lost = (0..self.geometry.k).any(|c| lost.has(c));
        if data_lost && !trusted {
            return None;
        }
        if available(width, lost).len() < self.geometry.k {
            return None;
        }
        let reads = available(width, lost)
            .into_iter()
            .map(|c| (c, 0, strip))
            .collect();
        Some((
            WritePlan::Decode,
            reads,
            vec![strip as usize; 2 * self.geometry.m],
        ))
    }

    fn compute_step(&mut self, key: usize, kind: StepKind) {
        match kind {
            StepKind::Rebuild => self.compute_rebuild(key),
            StepKind::Resync => self.compute_check(key, true),
            StepKind::Scrub => self.compute_check(key, false),
        }
    }

    fn compute_rebuild(&mut self, key: usize) {
        let (stripe, lost) = (self.ops[key].stripe, self.ops[key].lost);
        // A member that came after the plan was made waits for a step of its own.
        let mut targets = self.unbuilt(stripe);
        let planned = &self.ops[key].targets;
        targets.retain(|(_, target)| planned.contains(&target.device));
        let mut op = std::mem::replace(&mut self.ops[key], StripeOp::placeholder());
        let computed: Vec<usize> = targets
            .iter()
            .map(|t| t.0)
            .filter(|&c| op.columns[c].is_none())
            .collect();
        let all = rebuild_wanted(&computed, op.heal, self.geometry.width);
        if !all.is_empty() {
            self.decode_into(&mut op, lost, &all);
        }
        let heal: Vec<usize> = (0..self.geometry.width)
            .filter(|&c| op.heal.has(c))
            .collect();
        heal.iter().for_each(|&c| op.healed.add(c));
        self.ops[key] = op;
        for (column, target) in targets {
            let slice = self.ops[key].columns[column]
                .clone()
                .expect("read or decoded");
            self.write_to(key, target, 0, slice, false);
        }
        for column in heal {
            let slice = self.ops[key].columns[column].clone().expect("decoded");
            self.write_column(key, column, 0, slice, false);
        }
    }

    /// Compares parity with data; with `mend`, writes the parity that the data ask for.
    fn compute_check(&mut self, key: usize, mend: bool) {
        let lost = self.ops[key].lost;
        let (k, m, strip) = (
            self.geometry.k,
            self.geometry.m,
            self.geometry.strip as usize,
        );
        let mut op = std::mem::replace(&mut self.ops[key], StripeOp::placeholder());
        let missing: Vec<usize> = (0..k).filter(|&c| lost.has(c)).collect();
        if !missing.is_empty() {
            self.decode_into(&mut op, lost, &missing);
        }
        // A parity that could not be read is compared with nothing, but written when mending.
        let rows: Vec<usize> = (0..m)
            .filter(|&j| op.columns[k + j].is_some() || (mend && op.heal.has(k + j)))
            .collect();
        let data: Vec<&[u8]> = (0..k)
            .map(|c| op.columns[c].as_ref().expect("read or decoded").bytes())
            .collect();
        let mut expected: Vec<Buf> = rows
            .iter()
            .map(|_| op.bufs.pop().expect("a buffer for each parity"))
            .collect();
        let mut outputs: Vec<&mut [u8]> = expected
            .iter_mut()
            .map(|buf| &mut buf.bytes_mut()[..strip])
            .collect();
        self.code.generate_rows(&rows, &data, &mut outputs);
        let mut writes = Vec::new();
        for (&j, buf) in rows.iter().zip(expected) {
            let stored = op.columns[k + j].as_ref();
            if stored.is_none_or(|stored| stored.bytes() != &buf.bytes()[..strip]) {
                op.found_inconsistent |= stored.is_some();
                writes.push((k + j, Slice::new(buf, 0, strip)));
            }
        }
        if mend {
            op.healed = op.heal;
            let healed = (0..k).filter(|&c| op.heal.has(c));
            writes.extend(healed.filter_map(|c| op.columns[c].clone().map(|s| (c, s))));
        }
        self.ops[key] = op;
        if mend {
            for (column, slice) in writes {
                self.write_column(key, column, 0, slice, false);
            }
        }
    }
}

type Planned = (WritePlan, Vec<(usize, u64, u64)>, Vec<usize>);

impl StripeOp {
    /// Stands in the slab while an operation is taken out to be worked on.
    fn placeholder() -> StripeOp {
        StripeOp::new(
            StripeNo(0),
            Work {
                lo: 0,
                hi: 0,
                kind: WorkKind::Write { pieces: Vec::new() },
            },
        )
    }
}

fn available(width: usize, lost: Columns) -> Vec<usize> {
    (0..width).filter(|&c| !lost.has(c)).collect()
}

fn rebuild_wanted(computed: &[usize], heal: Columns, width: usize) -> Vec<usize> {
    let mut all = computed.to_vec();
    all.extend((0..width).filter(|&c| heal.has(c) && !computed.contains(&c)));
    all
}

/// Data columns whose old content is lost and not wholly written.
fn missing_data(
    k: usize,
    coverage: &[Option<Coverage>],
    lost: Columns,
    lo: u64,
    hi: u64,
) -> Vec<usize> {
    let covered =
        |c: usize| coverage[c].is_some_and(|v: Coverage| v.solid && v.lo == lo && v.hi == hi);
    (0..k).filter(|&c| lost.has(c) && !covered(c)).collect()
}

/// Bytes `from..to` of column `c` after the write: a piece itself where one piece is all of it, else a
/// buffer with the pieces laid over what was read.
fn assemble(
    bufs: &mut Vec<Buf>,
    old: Option<&Slice>,
    pieces: &[WritePiece],
    c: usize,
    from: u64,
    to: u64,
) -> Slice {
    let mut mine = pieces.iter().filter(|p| p.column == c);
    if let (Some(only), None) = (mine.next(), mine.next())
        && (only.lo, only.hi) == (from, to)
    {
        return only.data.clone();
    }
    let len = (to - from) as usize;
    let mut buf = bufs.pop().expect("a buffer for each column put together");
    let bytes = &mut buf.bytes_mut()[..len];
    if let Some(old) = old {
        bytes.copy_from_slice(old.bytes());
    }
    for piece in pieces.iter().filter(|p| p.column == c) {
        let at = (piece.lo - from) as usize;
        bytes[at..at + piece.data.len].copy_from_slice(piece.data.bytes());
    }
    Slice::new(buf, 0, len)
}

/// The parts of column `c` that are written, merged and in order.
fn runs(pieces: &[WritePiece], c: usize, v: Coverage) -> impl Iterator<Item = (u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    if v.solid {
        ranges.push((v.lo, v.hi));
    } else {
        ranges.extend(
            pieces
                .iter()
                .filter(|p| p.column == c)
                .map(|p| (p.lo, p.hi)),
        );
        ranges.sort_unstable();
        ranges.dedup_by(|next, before| {
            let touch = next.0 <= before.1;
            if touch {
                before.1 = before.1.max(next.1);
            }
            touch
        });
    }
    ranges.into_iter()
}
