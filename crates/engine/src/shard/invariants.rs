//! What is true of a shard whenever it has given all its outputs.
//!
//! Tests and the simulator call [`Shard::invariants`] after they have polled a shard to its end.
//! Each check is a sentence under "Invariants" of the file that it looks at, or follows from some:
//! what is counted is there as often as it is counted, and what waits waits for something that will
//! come. So a request that nothing will answer is found when it is left behind, not when a test has
//! waited for it.
//!
//! Deliberately absent: what only a sequence of states shows (the order of arrival on a stripe),
//! what other machines know (the simulator compares regions with the array), and bytes (the
//! simulator's oracle).

use crate::geometry::Geometry;
use crate::shard::log_writer::Flight;
use crate::shard::op::kind::{Kind, Logging, Phase};
use crate::shard::op::work::{ReadWork, Work, WorkKind, WriteWork};
use crate::shard::op::{CountsAs, StripeOp};
use crate::shard::outbox::IoFor;
use crate::shard::{Shard, Starved};
use crate::units::RegionNo;

/// What is under way, counted from the things themselves.
struct Counted<'a> {
    /// For each operation the member I/Os and records that come back to it.
    pending: Vec<usize>,
    /// For each request the pieces that are not finished.
    pieces: Vec<u32>,
    /// For each region operations and direct reads at work, and operations that write.
    users: Vec<u32>,
    writers: Vec<u32>,
    direct: usize,
    batches: Vec<&'a Flight>,
}

/// The requests of a read that it will answer a piece of: of a race the sides answer together.
fn of_read(read: &ReadWork, each: impl FnMut(usize)) {
    let pieces = read.pieces.iter().filter(|_| read.race.is_none());
    pieces.map(|piece| piece.request).for_each(each);
}

fn of_write(write: &WriteWork, each: impl FnMut(usize)) {
    write
        .pieces
        .iter()
        .map(|piece| piece.request)
        .for_each(each);
}

/// The requests that an operation will answer a piece of.
fn of_op(op: &StripeOp, mut each: impl FnMut(usize)) {
    match &op.kind {
        Kind::Write(write) => of_write(&write.asked, each),
        Kind::Zero(zero) => each(zero.asked.request),
        Kind::Read(read) if !read.answered => of_read(&read.asked, each),
        Kind::Read(_) | Kind::Step(_) => {}
    }
}

/// The same of work that waits.
fn of_work(work: &Work, mut each: impl FnMut(usize)) {
    match &work.kind {
        WorkKind::Write(write) => of_write(write, each),
        WorkKind::Zero(zero) => each(zero.request),
        WorkKind::Read(read) => of_read(read, each),
        WorkKind::Step(_) => {}
    }
}

impl Shard {
    /// Checks what must be true whenever [`Shard::poll`] has returned `None`; names what is
    /// violated, with its values. For tests and the simulator: it looks at everything that is under
    /// way.
    pub fn invariants(&self) -> Result<(), String> {
        let counted = self.count_all()?;
        self.check_stripes()?;
        self.check_operations(&counted)?;
        self.check_regions(&counted)?;
        let races = self.hedges.races();
        self.requests.check(&counted.pieces, races, &self.map)?;
        self.check_log(&counted)?;
        self.check_steps()?;
        self.check_rest()?;
        self.map.check()?;
        self.hedges.check(counted.direct)?;
        self.ops.check()
    }

    /// Writes may start in the region, or are at work there.
    pub fn is_written(&self, region: RegionNo) -> bool {
        let gate = self.gates.iter().nth(region.0 as usize);
        gate.is_some_and(|gate| gate.is_written())
    }

    /// The shape that it works by.
    pub fn geometry(&self) -> &Geometry {
        self.map.geometry()
    }

    /// The array knows that nothing is under way here, and that nothing begins.
    pub fn holds(&self) -> bool {
        self.quiesce.is_held()
    }

    fn count_all(&self) -> Result<Counted<'_>, String> {
        let mut counted = Counted {
            pending: vec![0; self.ops.keys()],
            pieces: vec![0; self.requests.keys()],
            users: vec![0; self.gates.iter().len()],
            writers: vec![0; self.gates.iter().len()],
            direct: 0,
            batches: Vec::new(),
        };
        let region = |stripe| self.map.region(stripe).0 as usize;
        for (_, what) in self.out.in_flight() {
            match what {
                IoFor::Read(read) => {
                    counted.direct += 1;
                    counted.users[region(read.stripe)] += 1;
                    if read.racing.is_none() {
                        counted.pieces[read.request] += 1;
                    }
                }
                IoFor::Flush { request, .. } => counted.pieces[*request] += 1,
                IoFor::OpRead { op, .. } | IoFor::OpWrite { op, .. } => counted.pending[*op] += 1,
                IoFor::Log(flight) => {
                    let ops = flight.operations().into_iter().flatten();
                    ops.for_each(|&op| counted.pending[op] += 1);
                    counted.batches.push(flight);
                }
            }
        }
        for (op, number) in self.logs.queued() {
            let at_work = self.ops.contains(op) && self.ops[op].operation == Some(number);
            ensure!(at_work, "records of operation {number} wait, which is over");
            counted.pending[op] += 1;
        }
        for (_, op) in self.ops.iter() {
            counted.users[region(op.stripe)] += u32::from(op.counts != CountsAs::Nothing);
            counted.writers[region(op.stripe)] += u32::from(op.counts == CountsAs::Writer);
            of_op(op, |request| counted.pieces[request] += 1);
        }
        for work in self.queue.waiting() {
            of_work(work, |request| counted.pieces[request] += 1);
        }
        for starved in &self.starved {
            if let Starved::Read(read) = starved
                && read.racing.is_none()
            {
                counted.pieces[read.request] += 1;
            }
        }
        let races = self.hedges.open_races();
        races.for_each(|request| counted.pieces[request] += 1);
        Ok(counted)
    }

    /// The order of operations on a stripe (`op::queue`).
    fn check_stripes(&self) -> Result<(), String> {
        self.queue.check(&self.ops, &self.streams)?;
        let nothing = self.ops.is_empty() && self.out.none_in_flight();
        let waits = nothing && self.streams.any_waits();
        ensure!(!waits, "work of a stream waits while nothing is at work");
        Ok(())
    }

    /// Each operation waits for something that will come, and holds buffers only where it may.
    fn check_operations(&self, counted: &Counted) -> Result<(), String> {
        let mut waiting = 0;
        for (key, op) in self.ops.iter() {
            let pending = counted.pending[key];
            let (stripe, phase) = (op.stripe.0, &op.phase);
            ensure!(
                op.pending == pending,
                "operation {key} on stripe {stripe} counts {} I/Os and has {pending} ({phase:?})",
                op.pending
            );
            let region = self.map.region(op.stripe);
            ensure!(
                op.region == region,
                "operation {key} on stripe {stripe} takes {:?} for its region, not {region:?}",
                op.region
            );
            let gate = &self.gates[region];
            let parked = gate.parked().contains(&key);
            let gated = gate.waiting().contains(&key);
            let starves = |starved: &Starved| matches!(starved, Starved::Op(op) if *op == key);
            let starved = self.starved.iter().any(starves);
            waiting += usize::from(parked) + usize::from(gated) + usize::from(starved);
            let comes = match phase {
                _ if parked => matches!(phase, Phase::Parked) && !gated && pending == 0,
                Phase::Parked => false,
                Phase::Gate | Phase::HasRead(_) => gated && pending == 0,
                Phase::Buffers(_) => starved && pending == 0,
                Phase::Reading { .. } | Phase::Logging(_) | Phase::Writing { .. } => pending > 0,
                Phase::AwaitToken(_) => self.write_order.waiting().any(|other| other == key),
                Phase::View { failed } | Phase::LogView(Logging { failed, .. }) => {
                    let still = |&device| self.map.in_view(device);
                    pending == 0 && !self.map.view().failed && failed.iter().any(still)
                }
                Phase::List(_) => pending == 0 && !self.map.view().failed,
                Phase::Retiring => self.logs.retiring().any(|other| other == key),
            };
            ensure!(
                comes,
                "operation {key} on stripe {stripe} waits for nothing that comes ({phase:?}, \
                 {pending} I/Os)"
            );
            let idle = parked || starved || matches!(phase, Phase::List(_));
            ensure!(
                !(idle && op.holds_buffers()),
                "operation {key} on stripe {stripe} waits with buffers ({phase:?})"
            );
            self.check_writer(key, op)?;
        }
        let keys = self
            .gates
            .iter()
            .map(|gate| gate.waiting().len() + gate.parked().len());
        let all = keys.sum::<usize>() + self.starved.iter().filter(|s| is_op(s)).count();
        ensure!(
            all == waiting,
            "{all} places are waited in, and {waiting} operations wait there"
        );
        Ok(())
    }

    /// A write counts as a writer of its region from before its first member I/O until it is over.
    fn check_writer(&self, key: usize, op: &StripeOp) -> Result<(), String> {
        let writes = op.kind.changes_data();
        let begun = matches!(
            op.phase,
            Phase::Logging(_) | Phase::LogView(_) | Phase::Writing { .. }
        );
        ensure!(
            !(writes && begun) || op.counts == CountsAs::Writer,
            "operation {key} on stripe {} writes and is no writer of its region ({:?})",
            op.stripe.0,
            op.phase
        );
        Ok(())
    }

    /// The gates of regions (`region_gate`).
    fn check_regions(&self, counted: &Counted) -> Result<(), String> {
        let counts = counted.users.iter().zip(&counted.writers);
        for (region, (gate, (&users, &writers))) in self.gates.iter().zip(counts).enumerate() {
            gate.check(region, users, writers)?;
            let waits = self.map.closed().is_some() && !gate.waiting().is_empty();
            ensure!(
                !waits,
                "operations wait for region {region} of an array that is closed"
            );
        }
        Ok(())
    }

    /// The stripe log (`log_writer`).
    fn check_log(&self, counted: &Counted) -> Result<(), String> {
        self.logs.check(&counted.batches)?;
        // What ends because the array has failed keeps its records.
        if self.map.view().failed {
            return Ok(());
        }
        let numbers: Vec<u64> = self.ops.iter().filter_map(|(_, op)| op.operation).collect();
        self.logs.check_numbers(&numbers)
    }

    /// Steps of jobs (`job`).
    fn check_steps(&self) -> Result<(), String> {
        let at_work = self.ops.iter().filter_map(|(_, op)| op.kind.step());
        let waiting = self.queue.waiting();
        let waiting = waiting.filter_map(|work| match work.kind {
            WorkKind::Step(step) => Some(step),
            _ => None,
        });
        let steps: Vec<u64> = match self.steps.is_empty() {
            true => return Ok(()),
            false => at_work.chain(waiting).map(|step| step.step).collect(),
        };
        self.steps.check(&steps)?;
        for key in self.write_order.waiting() {
            let waits =
                self.ops.contains(key) && matches!(self.ops[key].phase, Phase::AwaitToken(_));
            ensure!(
                waits,
                "operation {key} is to get the turn and does not wait for it"
            );
        }
        Ok(())
    }

    fn check_rest(&self) -> Result<(), String> {
        let ios = self.out.in_flight().count();
        let under_way = (self.requests.len(), self.ops.len(), ios);
        ensure!(
            !self.quiesce.is_held() || under_way == (0, 0, 0) && self.steps.is_empty(),
            "the shard holds, and (requests, operations, I/Os) are under way: {under_way:?}"
        );
        let idle = self.out.is_empty() && self.queue.none_ready() && self.rows.is_empty();
        ensure!(idle, "the shard was not polled to its end");
        Ok(())
    }
}

fn is_op(starved: &Starved) -> bool {
    matches!(starved, Starved::Op(_))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use strake_format::{ArrayUuid, Level, MemberUuid};

    use super::*;
    use crate::geometry::Geometry;
    use crate::geometry::block_set::BadBlocks;
    use crate::mem::buffer::{Buf, Pool, Slice};
    use crate::proto::*;
    use crate::shard::op::kind::Answer;
    use crate::stats::device_latency::HedgeRules;
    use crate::units::*;

    fn view(members: u32) -> View {
        let device = |at| DeviceView {
            device: DeviceId(at),
            data_offset: 1 << 20,
            volatile_cache: true,
            member: MemberUuid([at as u8 + 1; 16]),
            log_granularity: 4096,
            sector_bytes: 4096,
        };
        let slot = |at| SlotView {
            current: Some(device(at)),
            incoming: None,
        };
        View {
            version: 1,
            slots: (0..members).map(slot).collect(),
            ..View::default()
        }
    }

    /// Of three members, one region of which is open and the other never written.
    fn shard() -> Shard {
        let geometry = Geometry {
            level: Level::Raid5,
            groups: 1,
            per_row: 1,
            width: 3,
            k: 2,
            m: 1,
            fixed: 0,
            strip: 4096,
            block: 512,
            band: 1,
            rows: 32,
            region_rows: 16,
            old_shape: None,
        };
        let pool = Pool::new(&crate::provision::limits::stock(&geometry, 1 << 20));
        let setup = ShardSetup {
            geometry: Arc::new(geometry),
            view: Arc::new(view(3)),
            regions: vec![RegionAccess::Open, RegionAccess::Unwritten],
            lost: Arc::new(BadBlocks::default()),
            array: ArrayUuid([9; 16]),
            log_offset: 0,
            log_bytes: 0,
            hedging: HedgeRules::default(),
        };
        Shard::new(ShardNo(0), 1, setup, pool)
    }

    /// A shard at work on two writes: one reads what it needs, the other waits for its region.
    fn at_work() -> Shard {
        let mut shard = shard();
        for (id, offset) in [(1, 0), (2, 17 * 8192)] {
            let data = Slice::new(Buf::from_bytes(&[1; 512]), 0, 512);
            let fua = false;
            let op = Op::Write { offset, data, fua };
            let id = RequestId(id);
            shard.submit(Time(1), Request { id, op });
        }
        while shard.poll().is_some() {}
        shard
    }

    /// What is said of a shard that was broken so.
    fn broken(how: impl FnOnce(&mut Shard)) -> String {
        let mut shard = at_work();
        assert_eq!(shard.invariants(), Ok(()));
        how(&mut shard);
        shard.invariants().expect_err("it is broken")
    }

    fn key_of(shard: &Shard, is: impl Fn(&Phase) -> bool) -> usize {
        let mut found = shard.ops.iter().filter(|(_, op)| is(&op.phase));
        found.next().expect("an operation is there").0
    }

    #[test]
    fn an_operation_that_nothing_wakes_is_named() {
        let forgotten = broken(|shard| drop(shard.gates[RegionNo(1)].take_waiting()));
        assert!(
            forgotten.contains("waits for nothing that comes (Gate"),
            "{forgotten}"
        );
        let unasked = broken(|shard| {
            let key = key_of(shard, |phase| matches!(phase, Phase::Reading { .. }));
            shard.ops[key].phase = Phase::Retiring;
        });
        assert!(
            unasked.contains("waits for nothing that comes (Retiring"),
            "{unasked}"
        );
        let lost = broken(|shard| {
            let (io, _) = shard.out.in_flight().next().expect("it reads");
            shard.out.finish_io(IoId(io as u64));
        });
        assert!(lost.contains("counts 1 I/Os and has 0"), "{lost}");
    }

    #[test]
    fn a_write_in_a_region_that_is_not_dirty_is_named() {
        let text = broken(|shard| {
            shard.gates[RegionNo(0)] = super::super::region_gate::Gate::new(RegionAccess::Clean)
        });
        assert!(text.contains("region 0 counts 0 users"), "{text}");
        let text = broken(|shard| {
            let key = key_of(shard, Phase::at_gate);
            shard.gates[RegionNo(1)].take_waiting();
            shard.gates[RegionNo(1)].enter();
            shard.gates[RegionNo(1)].begin_use();
            shard.ops[key].counts = CountsAs::Writer;
            (shard.ops[key].phase, shard.ops[key].pending) = (Phase::List(Answer::Unlisted), 0);
        });
        assert!(
            text.contains("region 1 is written by 1 operations and is Unwritten"),
            "{text}"
        );
    }

    #[test]
    fn a_request_that_is_not_answered_is_named() {
        let text = broken(|shard| {
            shard.requests.add_part(0);
        });
        assert!(
            text.contains("request 1 waits for 2 pieces, and 1 are under way"),
            "{text}"
        );
    }

    #[test]
    fn operations_that_overlap_are_named() {
        let text = broken(|shard| {
            let key = key_of(shard, |phase| matches!(phase, Phase::Reading { .. }));
            let stripe = shard.ops[key].stripe;
            let work = Work::zero(0, 0, 4096, false);
            let other = shard.ops.insert(stripe, &shard.map, work);
            shard.queue.hold(stripe, other, 0, 4096, false);
        });
        assert!(text.contains("of stripe 0 overlap"), "{text}");
    }

    #[test]
    fn a_strip_that_counts_as_rebuilt_on_a_member_that_left_is_named() {
        let text = broken(|shard| {
            shard.map.count_as_rebuilt(StripeNo(3), DeviceId(8));
        });
        assert!(
            text.contains("rebuilt on device 8, which is not being rebuilt"),
            "{text}"
        );
    }
}
