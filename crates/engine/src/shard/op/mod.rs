//! Stripe operations: one enum for what is done ([`kind::Kind`]), one for how far it has come
//! ([`kind::Phase`]). Each has what is known only there.
//!
//! Order of a write (each step waits for the one before):
//! 1. *gate*: the region is open, so Dirty is durable on the members; where it is about to be, 2
//!    and 3 come before (`gate`, `region_gate`);
//! 2. *buffers*: all that the plan needs, or none;
//! 3. *read* what the plan needs; a read that fails changes the plan and starts again from 2;
//! 4. compute parity;
//! 5. *log*, where the view says so: the records are durable on their members; if a member was
//!    lost meanwhile, the plan is made anew;
//! 6. *write* data and parity in place, with FUA where the request has it or the write is logged;
//! 7. if a write failed: wait for a view without that device, which the array publishes once the
//!    survivors
//!    durably know that it is out;
//! 8. answer; the records are retired.
//!
//! Invariant: nothing is computed from a column that is lost or that failed to read in this
//! operation.

mod gate;
pub(crate) mod kind;
pub(crate) mod narrow;
pub(crate) mod queue;
mod read;
mod records;
mod resync;
pub(crate) mod salvage;
pub(crate) mod scrub;
pub(crate) mod work;
mod write;

use crate::canary::{self, Canary};
use crate::geometry::Shape;
use crate::geometry::column_set::Columns;
use crate::mem::buffer::{Buf, Slice};
use crate::mem::list::{List, listed};
use crate::proto::*;
use crate::shard::op::kind::{Kind, Logging, Phase, Plan, ReadFor, Wanted};
use crate::shard::op::narrow::Narrow;
use crate::shard::op::salvage::Salvage;
use crate::shard::op::scrub::Found;
use crate::shard::op::work::{Bad, ReadPiece, ReadPieces, StepWork, Work, WorkKind};
use crate::shard::outbox::IoFor;
use crate::shard::stripe_map::StripeMap;
use crate::shard::{Shard, Starved};
use crate::stripe::log_records::NewContent;
use crate::stripe::write_plan::{Extra, Reads, WritePlan};
use crate::units::*;

listed!(Buf);

/// As what an operation is counted in its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountsAs {
    /// It has not begun there.
    Nothing,
    /// It reads there.
    User,
    /// It writes there, or will.
    Writer,
}

/// What an operation reads once more of what it could not read.
pub(crate) enum Again {
    Nothing,
    /// Columns that had a media error, in parts: what came of that.
    Narrow(Box<Narrow>),
    /// Its run, block by block.
    Salvage(Box<Salvage>),
}

impl Again {
    /// The medium of a column failed where a salvage reads.
    fn medium_failed(&mut self, column: usize) {
        if let Again::Salvage(salvage) = self {
            salvage.unreadable.add(column);
        }
    }
}

/// What an operation writes in place once it may: empty until it is computed.
#[derive(Default)]
pub(crate) struct InPlace {
    pub(crate) puts: Vec<Put>,
    /// All of it is durable when it completes.
    pub(crate) fua: bool,
}

/// Something to write in place.
pub(crate) struct Put {
    pub(crate) column: usize,
    /// First byte within the strip.
    pub(crate) from: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// `None`: zeros.
    pub(crate) content: Option<Slice>,
}

impl Put {
    /// This content.
    pub(crate) fn of(column: usize, from: u64, slice: Slice) -> Put {
        Put {
            column,
            from,
            len: slice.len as u64,
            content: Some(slice),
        }
    }
}

/// An operation at work on one run of one stripe.
pub(crate) struct StripeOp {
    pub(crate) stripe: StripeNo,
    /// Where the stripe lies, and its columns: all of them, and those of data. The array has no
    /// other shape while an operation is at work.
    pub(crate) region: RegionNo,
    pub(crate) width: usize,
    pub(crate) k: usize,
    /// The run: bytes of every strip.
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    pub(crate) kind: Kind,
    /// When it had all that it needs, and its I/O began.
    pub(crate) began: Option<Time>,
    pub(crate) phase: Phase,
    /// Member I/Os in flight.
    pub(crate) pending: usize,
    /// Columns that failed to read here and on which device, and those of them that are to be
    /// rewritten.
    pub(crate) bad: Vec<Bad>,
    pub(crate) heal: Columns,
    pub(crate) bufs: Vec<Buf>,
    /// Content of each column: what was read, then what is computed.
    pub(crate) columns: Vec<Option<Slice>>,
    pub(crate) counts: CountsAs,
    /// What a scrub found.
    pub(crate) findings: Vec<Found>,
    /// Columns that were rewritten after a media error.
    pub(crate) healed: Columns,
    pub(crate) again: Again,
    /// The array was asked to leave its region undecided.
    pub(crate) undecided: bool,
    /// How often its run was gone through again, or a verdict was waited for.
    pub(crate) rounds: u32,
    pub(crate) in_place: InPlace,
    /// Its number in the log, while it has records there.
    pub(crate) operation: Option<u64>,
    /// The list of unreadable blocks keeps room for what it writes to leave.
    pub(crate) room_kept: bool,
}

// It stays where it is, but each begins by being written over as a whole.
const _: () = assert!(size_of::<StripeOp>() <= 1024);

impl StripeOp {
    /// No operation: what the next begins in.
    pub(crate) fn idle() -> StripeOp {
        StripeOp {
            stripe: StripeNo(0),
            region: RegionNo(0),
            width: 0,
            k: 0,
            lo: 0,
            hi: 0,
            kind: Kind::nothing(),
            began: None,
            phase: Phase::Gate,
            pending: 0,
            bad: Vec::new(),
            heal: Columns::default(),
            bufs: Vec::new(),
            columns: Vec::new(),
            counts: CountsAs::Nothing,
            findings: Vec::new(),
            healed: Columns::default(),
            again: Again::Nothing,
            undecided: false,
            rounds: 0,
            in_place: InPlace::default(),
            operation: None,
            room_kept: false,
        }
    }

    /// Begins, in memory of one that is over.
    pub(crate) fn begin(&mut self, stripe: StripeNo, map: &StripeMap, work: Work) {
        let Shape { width, k, .. } = map.shape(stripe);
        let (bad, heal) = match &work.kind {
            WorkKind::Read(read) => (read.avoid.clone(), read.heal),
            _ => (Vec::new(), Columns::default()),
        };
        *self = StripeOp {
            stripe,
            region: map.region(stripe),
            width,
            k,
            lo: work.lo,
            hi: work.hi,
            kind: Kind::of(work.kind, k),
            bad,
            heal,
            bufs: std::mem::take(&mut self.bufs),
            columns: std::mem::take(&mut self.columns),
            in_place: InPlace {
                puts: std::mem::take(&mut self.in_place.puts),
                fua: false,
            },
            ..StripeOp::idle()
        };
    }

    /// It is over: holds no more than empty memory of its own.
    pub(crate) fn end(&mut self) {
        self.drop_buffers();
        self.columns.clear();
        self.again = Again::Nothing;
        self.kind = Kind::nothing();
    }

    /// The view concerns it: it waits for one, or for a list that an array which has failed does
    /// not write any more.
    pub(crate) fn waits_for_view(&self, failed: bool) -> bool {
        match self.phase {
            Phase::View { .. } | Phase::LogView(_) => true,
            Phase::List(_) => failed,
            _ => false,
        }
    }

    /// A write that has begun to read, in a region that is not open yet.
    pub(crate) fn reads_early(&self) -> bool {
        self.kind.is_write() && self.counts == CountsAs::User
    }

    /// Something of it may be in the logs or in place.
    pub(crate) fn began(&self) -> bool {
        let began = matches!(
            self.phase,
            Phase::Logging(_)
                | Phase::LogView(_)
                | Phase::Writing { .. }
                | Phase::View { .. }
                | Phase::List(_)
        );
        self.kind.changes_data() && began
    }

    /// What could not be read before this read waited for its turn may have been rewritten by what
    /// went before it. True if there was such a thing: it is worth another try, once.
    fn forget_avoided(&mut self) -> bool {
        let Kind::Read(read) = &mut self.kind else {
            return false;
        };
        let avoided = std::mem::take(&mut read.asked.avoid);
        self.bad.retain(|bad| !avoided.contains(bad));
        let columns = avoided.iter().fold(0, |all, (column, _)| all | 1 << column);
        self.heal = Columns(self.heal.0 & !columns);
        !avoided.is_empty()
    }

    /// Something is wrong with the stripe of a step.
    pub(crate) fn found_inconsistent(&self) -> bool {
        matches!(&self.kind, Kind::Step(step) if step.found_inconsistent)
    }

    /// A strip could not be read, and was not written anew.
    pub(crate) fn leaves_out(&self) -> bool {
        let mut bad = self.bad.iter();
        bad.any(|&(column, _)| !self.healed.has(column))
    }

    /// It holds buffers of the pool, or the user's.
    pub(crate) fn holds_buffers(&self) -> bool {
        let content = self.columns.iter().any(Option::is_some);
        content || !self.bufs.is_empty() || !self.in_place.puts.is_empty()
    }

    pub(crate) fn drop_buffers(&mut self) {
        self.bufs.clear();
        self.in_place.puts.clear();
        self.columns.iter_mut().for_each(|c| *c = None);
    }
}

impl Shard {
    pub(crate) fn start_op(&mut self, key: usize) {
        if let Some(error) = self.map.closed() {
            return self.finish_op(key, Some(error));
        }
        if self.is_outrun(key) {
            return self.finish_op(key, None);
        }
        let op = &self.ops[key];
        let gated = op.kind.changes_data();
        let region = op.region;
        if !gated && self.gates[region].unwritten() {
            return self.pass_over(key);
        }
        if op.kind.only_zeros() && self.gates[region].unwritten() {
            // It reads as zeros already, and did not when this was asked for.
            return self.finish_op(key, None);
        }
        if gated {
            let gate = &mut self.gates[region];
            if !gate.open() {
                let hasty = canary::hit(Canary::DirtyAfterWrite) && !gate.unwritten();
                if gate.ask() {
                    self.out.say(FromShard::NeedRegion { region });
                }
                if !hasty && self.starts_early(&self.ops[key]) {
                    self.gates[region].begin_use();
                    self.ops[key].counts = CountsAs::User;
                    return self.prepare(key);
                }
                if !hasty {
                    return self.gates[region].wait(key);
                }
            }
            self.gates[region].enter();
        }
        self.gates[region].begin_use();
        self.ops[key].counts = match gated {
            true => CountsAs::Writer,
            false => CountsAs::User,
        };
        self.prepare(key);
    }

    /// An operation that reads for nobody ends before it begins; repairs are done all the same.
    fn is_outrun(&mut self, key: usize) -> bool {
        let op = &mut self.ops[key];
        let outrun = op.heal.is_empty() && self.hedges.outrun(op.kind.race());
        if let Kind::Read(read) = &mut op.kind {
            read.answered |= outrun;
        }
        outrun
    }

    /// Parity agrees with the data in this stripe, whichever members are lost.
    pub(crate) fn synced(&self, stripe: StripeNo) -> bool {
        self.gates[self.map.region(stripe)].trusted()
    }

    /// Parity agrees with the data in this stripe, or an administrator accepted that it does.
    /// `gone`: columns that the operation cannot read, beside those that no member holds.
    pub(crate) fn trusted(&self, stripe: StripeNo, gone: Columns) -> bool {
        self.synced(stripe)
            || canary::hit(Canary::ParityTrustedInNeedSync)
            || self.map.geometry().mirrored()
            || self.accepted(stripe, gone)
    }

    /// Data columns are lost, and an administrator accepted (`--force`) that parity defines these
    /// columns. This covers the members that were missing then, not members that were lost since or
    /// do not answer.
    fn accepted(&self, stripe: StripeNo, gone: Columns) -> bool {
        let lost = |c: &usize| gone.has(*c) || self.map.source(stripe, *c).is_none();
        let said = |c: usize| {
            self.map
                .view()
                .forced
                .contains(&self.map.geometry().slot(stripe, c))
        };
        let mut columns = (0..self.map.shape(stripe).k).filter(lost).peekable();
        if canary::hit(Canary::ForceForEver) && !self.map.view().forced.is_empty() {
            return columns.peek().is_some();
        }
        !self.map.view().forced.is_empty() && columns.peek().is_some() && columns.all(said)
    }

    /// Columns of the operation that cannot be read: no member, or a failed read.
    pub(crate) fn lost(&self, op: &StripeOp) -> Columns {
        let mut lost = Columns::default();
        if self.map.whole() && op.bad.is_empty() {
            return lost;
        }
        let scrub = op.kind.is_scrub();
        for column in 0..op.width {
            // A scrub neither judges members that are being rebuilt nor judges by them.
            let source = match scrub {
                true => self.map.slot_view(op.stripe, column).current,
                false => self.map.source(op.stripe, column),
            };
            if source.is_none_or(|d| op.bad.contains(&(column, d.device))) {
                lost.add(column);
            }
        }
        lost
    }

    /// Plans the operation: what to read, which buffers. Runs again after a failed read.
    pub(crate) fn prepare(&mut self, key: usize) {
        self.ops[key].end_salvage();
        if self.map.view().failed {
            return self.finish_op(key, Some(RequestError::Failed));
        }
        let op = &self.ops[key];
        // Its region was given back since it started: parity that no resync has passed over must
        // not be computed from only because the region counts as trusted now.
        if op.counts != CountsAs::Writer && self.gates[op.region].unwritten() {
            return match op.reads_early() {
                true => self.back_to_gate(key),
                false => self.pass_over(key),
            };
        }
        let lost = self.lost(op);
        // Only writes put new parity in place.
        let parity = match op.kind {
            Kind::Write(_) => self.map.live_parity(op.stripe),
            _ => Columns::default(),
        };
        let planned = match &op.kind {
            Kind::Write(write) => self.plan_write(op, write, lost, parity),
            Kind::Read(read) => self.plan_read(op, &read.asked, lost),
            Kind::Zero(_) => Some((WritePlan::Full, Reads::new(), Extra::default())),
            Kind::Step(step) => self.plan_step(op, step.asked.kind, lost),
        };
        let Some((how, reads, extra)) = planned else {
            return self.no_plan(key);
        };
        if self.begin_to_narrow(key) {
            return;
        }
        let unbuilt = match self.ops[key].kind.step() {
            Some(_) => self.map.unbuilt(self.ops[key].stripe),
            None => Vec::new(),
        };
        let op = &mut self.ops[key];
        if let Kind::Step(step) = &mut op.kind {
            step.targets = unbuilt.into_iter().map(|(_, t)| t.device).collect();
        }
        let plan = Plan {
            how,
            view: self.map.view().version,
            lost,
            parity,
            logging: self.map.view().logging,
        };
        self.want(key, reads, extra, ReadFor::Plan(plan));
    }

    /// The operation wants to read this, and buffers for it and for more.
    pub(crate) fn want(&mut self, key: usize, reads: Reads, extra: Extra, reads_for: ReadFor) {
        let width = self.ops[key].width;
        let op = &mut self.ops[key];
        op.drop_buffers();
        op.columns.resize_with(width, || None);
        let nothing_early = op.reads_early() && reads.is_empty();
        op.phase = Phase::Buffers(Wanted {
            reads,
            extra,
            reads_for,
        });
        if !nothing_early && self.starved.is_empty() && self.take_buffers(key) {
            self.issue_op_reads(key);
        } else if self.ops[key].reads_early() {
            self.back_to_gate(key);
        } else {
            self.starved.push_back(Starved::Op(key));
        }
    }

    /// The members cannot give what the operation needs.
    fn no_plan(&mut self, key: usize) {
        if self.ops[key].reads_early() {
            return self.back_to_gate(key);
        }
        let op = &mut self.ops[key];
        op.drop_buffers();
        if op.kind.is_hedge() {
            return self.finish_op(key, Some(RequestError::Unreadable));
        }
        if self.ops[key].forget_avoided() {
            return self.prepare(key);
        }
        if !self.parks(key) {
            self.begin_salvage(key);
        }
    }

    /// A read that cannot be computed waits if its region is about to read as zeros.
    pub(crate) fn parks(&mut self, key: usize) -> bool {
        let op = &mut self.ops[key];
        op.drop_buffers();
        let (region, reads) = (op.region, op.kind.is_read());
        let parks = reads && self.gates[region].park(key);
        if parks {
            self.ops[key].phase = Phase::Parked;
        }
        parks
    }

    /// Takes all buffers that the operation wants; false if they are not all there.
    pub(crate) fn take_buffers(&mut self, key: usize) -> bool {
        let op = &mut self.ops[key];
        let Phase::Buffers(Wanted { reads, extra, .. }) = &op.phase else {
            unreachable!("it waits for buffers");
        };
        let reads = reads.iter().map(|&(_, lo, hi)| (hi - lo) as usize);
        let extra = std::iter::repeat_n(extra.bytes, extra.count);
        self.pool.take_all(reads.chain(extra), &mut op.bufs)
    }

    pub(crate) fn issue_op_reads(&mut self, key: usize) {
        let op = &mut self.ops[key];
        op.began = Some(self.out.now());
        let Phase::Buffers(wanted) = std::mem::replace(&mut op.phase, Phase::Gate) else {
            unreachable!("it has waited for buffers");
        };
        let Wanted {
            reads, reads_for, ..
        } = wanted;
        let mut bufs: List<Buf, 8> = op.bufs.drain(..reads.len()).collect();
        let stripe = op.stripe;
        // The view may have changed while the operation waited for buffers.
        if reads
            .iter()
            .any(|&(column, ..)| self.map.source(stripe, column).is_none())
        {
            drop(bufs);
            return self.prepare(key);
        }
        for (&(column, lo, hi), buf) in reads.iter().zip(bufs.drain()) {
            let device = self.map.source(stripe, column).expect("checked above");
            let offset = self.map.member_offset(device, stripe) + lo;
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
            self.out.io(device.device, what, kind);
            self.ops[key].pending += 1;
        }
        let failed = false;
        self.ops[key].phase = Phase::Reading {
            reads,
            reads_for,
            failed,
        };
        if self.ops[key].pending == 0 && !self.awaits_token(key) {
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
        let Phase::Reading {
            reads,
            reads_for,
            failed,
        } = &mut op.phase
        else {
            unreachable!("it reads until all reads have come back");
        };
        let reads_for = *reads_for;
        match (result, buf, reads_for) {
            (Ok(()), Some(buf), _) => {
                let (_, lo, hi) = *reads
                    .iter()
                    .find(|r| r.0 == column)
                    .expect("the operation asked for it");
                op.columns[column] = Some(Slice::new(buf, 0, (hi - lo) as usize));
            }
            (Err(IoError::Media), _, ReadFor::Salvage) => op.again.medium_failed(column),
            (Err(IoError::Media), _, ReadFor::Narrow) => op.narrow_failed(),
            (result, ..) => {
                op.bad.push((column, device));
                *failed = true;
                let error = result.err().unwrap_or(IoError::TimedOut);
                if error == IoError::Media {
                    op.heal.add(column);
                }
                self.out.report(&self.map, device, error, false, offset);
            }
        }
        let op = &self.ops[key];
        if op.pending > 0 {
            return;
        }
        if matches!(op.phase, Phase::Reading { failed: true, .. }) {
            return self.prepare(key);
        }
        if self.map.view().failed {
            return self.finish_op(key, Some(RequestError::Failed));
        }
        match reads_for {
            ReadFor::Salvage => self.salvage_read(key),
            ReadFor::Narrow => self.narrow_read(key),
            ReadFor::Plan(_) if self.awaits_token(key) => {}
            ReadFor::Plan(_) => self.compute(key),
        }
    }

    pub(crate) fn compute(&mut self, key: usize) {
        if self.map.view().failed {
            return self.finish_op(key, Some(RequestError::Failed));
        }
        if self.ops[key].reads_early() && !self.passes_gate(key) {
            return;
        }
        // A write that is to be logged wants more buffers than one that is not.
        let plan = self.ops[key].phase.plan();
        if self.map.view().logging && !plan.logging {
            return self.prepare(key);
        }
        self.ops[key].phase = Phase::writing();
        match &self.ops[key].kind {
            Kind::Write(_) => self.compute_write(key, &plan),
            Kind::Read(read) if read.asked.equalize => self.compute_equalized(key),
            Kind::Read(_) => self.compute_read(key, &plan),
            Kind::Zero(zero) => {
                let fua = zero.asked.fua;
                self.compute_zero(key, fua, &plan);
            }
            Kind::Step(step) => {
                let StepWork { step, kind } = step.asked;
                self.write_order.leave(step, self.ops[key].stripe);
                self.compute_step(key, kind, &plan);
            }
        }
        if self.ops.contains(key) && !self.ops[key].phase.waits_to_write() {
            self.end_without_writes(key);
        }
    }

    /// Nothing has to be waited for where nothing was written.
    pub(crate) fn end_without_writes(&mut self, key: usize) {
        if self.ops[key].pending == 0 {
            self.writes_done(key);
        }
    }

    /// A write is computed: its records go to the logs first, or it goes in place at once.
    pub(crate) fn carry_out(&mut self, key: usize, new: Option<NewContent>) {
        if self.awaits_room(key) {
            return;
        }
        let Some(new) = new.filter(|_| !canary::hit(Canary::NoLog)) else {
            return self.put_in_place(key);
        };
        let (operation, short) = self.logs.number();
        if short {
            self.out.say(FromShard::NumbersShort);
        }
        let held = self.map.held(self.ops[key].stripe);
        let members = self.log_write(key, operation, &new);
        assert!(members > 0, "some member of the group is in sync");
        let op = &mut self.ops[key];
        (op.operation, op.pending) = (Some(operation), members);
        let failed = Vec::new();
        op.phase = Phase::Logging(Logging { held, failed });
    }

    /// The records of an operation on one member are durable, or not.
    pub(crate) fn record_written(&mut self, key: usize, device: DeviceId, failed: bool) {
        let op = &mut self.ops[key];
        op.pending -= 1;
        if failed {
            let Phase::Logging(logging) = &mut op.phase else {
                unreachable!("records are on their way in no other phase");
            };
            logging.failed.push(device);
        }
        if op.pending == 0 {
            self.logged(key);
        }
    }

    /// All records came back: in place with it, or anew where a member was lost.
    fn logged(&mut self, key: usize) {
        if self.map.view().failed {
            return self.finish_op(key, Some(RequestError::Failed));
        }
        let (Phase::Logging(logging) | Phase::LogView(logging)) = &mut self.ops[key].phase else {
            unreachable!("its records came back, or it has waited for a view since");
        };
        let Logging { held, failed } = std::mem::take(logging);
        let still: Vec<DeviceId> = failed
            .iter()
            .copied()
            .filter(|&d| self.map.in_view(d))
            .collect();
        if !still.is_empty() {
            let failed = still;
            self.ops[key].phase = Phase::LogView(Logging { held, failed });
            return;
        }
        let op = &self.ops[key];
        let fewer = held.0 & !self.map.held(op.stripe).0 != 0 && !canary::hit(Canary::LossIgnored);
        if fewer || !failed.is_empty() {
            // Nothing of it is in place: these records mean nothing, and the new ones are newer.
            let operation = self.ops[key].operation.take().expect("it has records");
            self.logs.over(operation);
            return self.prepare(key);
        }
        self.ops[key].phase = Phase::writing();
        self.put_in_place(key);
        self.end_without_writes(key);
    }

    pub(crate) fn put_in_place(&mut self, key: usize) {
        let op = &mut self.ops[key];
        let logged = op.operation.is_some() && !canary::hit(Canary::RetiredBeforeFlush);
        let (stripe, fua) = (op.stripe, op.in_place.fua || logged);
        let mut puts = std::mem::take(&mut op.in_place.puts);
        for put in puts.drain(..) {
            for device in self.map.targets(stripe, put.column).into_iter().flatten() {
                let zeroes = put.content.is_none() && !(fua && device.volatile_cache);
                if zeroes {
                    self.zero_on(key, device, put.from, put.len);
                    continue;
                }
                let zeros = || Slice::new(self.zeros.clone(), 0, put.len as usize);
                let content = put.content.clone().unwrap_or_else(zeros);
                let purpose = self.purpose(key, put.column);
                self.write_to(key, device, put.from, content, fua, purpose);
            }
        }
        self.ops[key].in_place.puts = puts;
    }

    fn zero_on(&mut self, key: usize, device: DeviceView, from: u64, len: u64) {
        let offset = self.map.member_offset(device, self.ops[key].stripe) + from;
        let what = IoFor::OpWrite {
            op: key,
            device: device.device,
            offset,
        };
        self.out
            .io(device.device, what, IoKind::WriteZeroes { offset, len });
        self.ops[key].pending += 1;
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
        let purpose = self.purpose(key, column);
        for device in self.map.targets(stripe, column).into_iter().flatten() {
            self.write_to(key, device, from, slice.clone(), fua, purpose);
        }
    }

    /// What a write of this column in place is.
    fn purpose(&self, key: usize, column: usize) -> WritePurpose {
        WritePurpose::of_column(column, self.ops[key].k, self.map.geometry().mirrored())
    }

    pub(crate) fn write_to(
        &mut self,
        key: usize,
        device: DeviceView,
        from: u64,
        slice: Slice,
        fua: bool,
        purpose: WritePurpose,
    ) {
        let stripe = self.ops[key].stripe;
        let offset = self.map.member_offset(device, stripe) + from;
        let what = IoFor::OpWrite {
            op: key,
            device: device.device,
            offset,
        };
        let fua = fua && device.volatile_cache;
        self.out.io(
            device.device,
            what,
            IoKind::Write {
                offset,
                data: slice,
                fua,
                purpose,
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
            let Phase::Writing { failed } = &mut self.ops[key].phase else {
                unreachable!("it writes in no other phase");
            };
            failed.push(device);
            self.out.report(&self.map, device, error, true, offset);
        }
        if self.ops[key].pending == 0 {
            self.writes_done(key);
        }
    }

    /// All writes have come back: done, or waiting for a view without the devices that failed.
    fn writes_done(&mut self, key: usize) {
        let failed = match &mut self.ops[key].phase {
            Phase::Writing { failed } | Phase::View { failed } => std::mem::take(failed),
            _ => Vec::new(),
        };
        let still: Vec<DeviceId> = failed
            .into_iter()
            .filter(|&d| self.map.in_view(d))
            .collect();
        if self.map.view().failed {
            return self.finish_op(key, Some(RequestError::Failed));
        }
        if still.is_empty() && self.ops[key].salvages() {
            return self.salvage_written(key);
        }
        if still.is_empty() {
            let error = match &self.ops[key].kind {
                Kind::Zero(zero) => zero.refused,
                _ => None,
            };
            if error.is_none() && self.unlists(key) {
                return;
            }
            return self.finish_op(key, error);
        }
        self.ops[key].phase = Phase::View { failed: still };
    }

    pub(crate) fn view_changed(&mut self, key: usize) {
        match self.ops[key].phase {
            Phase::LogView(_) => self.logged(key),
            _ => self.writes_done(key),
        }
    }

    /// The operation is over: answers, lets the region and the stripe go.
    pub(crate) fn finish_op(&mut self, key: usize, error: Option<RequestError>) {
        self.zero_tracker
            .note(&self.ops[key], error.is_some(), &self.map, &mut self.out);
        self.give_room_back(key);
        let op = self.retire(key);
        let result = match error {
            Some(error) => Err(error),
            None => Ok(()),
        };
        match &op.kind {
            Kind::Write(write) => {
                for piece in &write.asked.pieces {
                    self.finish_part(piece.request, None, result);
                }
            }
            Kind::Zero(zero) => self.finish_part(zero.asked.request, None, result),
            Kind::Read(read) => {
                let (pieces, race) = (&read.asked.pieces, read.asked.race);
                if let (Some(slice), Ok(())) = (&read.equalized, result) {
                    for piece in pieces {
                        self.finish_read(piece, slice.clone(), op.stripe);
                    }
                } else if !read.answered && race.is_none() {
                    // One that could be computed was answered before its repair was written.
                    let result = result.and(Err(RequestError::Unreadable));
                    self.fail_read(op.stripe, pieces, result);
                }
                self.side_ends(race, error);
            }
            Kind::Step(step) => {
                let kind = step.asked.kind;
                // Resync and scrub leave the strips of incoming members as they are.
                let rebuilt = kind == StepKind::Rebuild && error.is_none() && !step.skipped;
                for &target in step.targets.iter().filter(|_| rebuilt) {
                    self.map.mark_rebuilt(op.stripe, target);
                }
                match (kind, error) {
                    (StepKind::Scrub(mode), None) => self.say_findings(&op, 0, mode),
                    (StepKind::Rebuild, None) => self.say_findings(&op, 0, ScrubMode::Check),
                    _ => {}
                }
                self.step_stripe_done(step, error.is_some(), &op);
            }
        }
        if error.is_none() {
            self.say_repaired(op.stripe, op.healed, op.lo, op.hi);
        }
        self.ops.over(op);
    }

    /// A read cannot be had. Of several that were planned together others may do: each comes again
    /// by itself.
    fn fail_read(
        &mut self,
        stripe: StripeNo,
        pieces: &[ReadPiece],
        result: Result<(), RequestError>,
    ) {
        let apart = pieces.len() > 1 && result == Err(RequestError::Unreadable);
        for piece in pieces {
            match apart && !canary::hit(Canary::NeighbourFails) {
                true => {
                    let own = ReadPieces::of(*piece);
                    let work = Work::read(own, piece.lo, piece.hi, Vec::new());
                    self.queue.enqueue(stripe, work);
                }
                false => self.finish_part(piece.request, None, result),
            }
        }
    }

    pub(crate) fn say_repaired(&mut self, stripe: StripeNo, columns: Columns, lo: u64, hi: u64) {
        for column in 0..self.map.width(stripe) {
            if columns.has(column)
                && let Some(device) = self.map.source(stripe, column)
            {
                let offset = self.map.member_offset(device, stripe) + lo;
                let len = hi - lo;
                self.out.say(FromShard::Repaired {
                    device: device.device,
                    offset,
                    len,
                });
            }
        }
    }
}
