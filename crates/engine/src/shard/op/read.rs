//! Reads that their own member cannot answer: computed from the others, and written back where a
//! medium failed.
//!
//! Invariants:
//! * Only the bytes asked for are read, from as few members as the code needs, and none twice for
//!   one request.
//! * Nothing is computed from parity that is not trusted.
//! * Only an operation that holds its range alone writes back.
//! * What is written back was computed from strips that agree with all that are there; where they
//!   do not, and redundancy does not locate the corrupt strip, the sector stays unreadable: what it
//!   held may still locate it.
//! * Where copies of a mirror may differ, an answer is durable on all of them before it is given:
//!   otherwise the loss of the copy that spoke would bring another version back. In an undecided
//!   region the first copy that can be read answers, and nothing is written: the others may be
//!   right.

use crate::canary::{self, Canary};
use crate::geometry::column_set::Columns;
use crate::mem::buffer::{Buf, Slice};
use crate::mem::list::{Brief, List, listed};
use crate::proto::ScrubMode;
use crate::shard::Shard;
use crate::shard::op::StripeOp;
use crate::shard::op::kind::{Kind, Plan};
use crate::shard::op::work::{ReadPiece, ReadWork, Work};
use crate::stripe::write_plan::WritePlan;
use crate::stripe::write_plan::{Extra, Planned, Reads, available};

/// What answers each piece of a read.
type ReadAnswers = List<(ReadPiece, Slice)>;

listed!((ReadPiece, Slice));

impl Shard {
    /// Reads of a region that was given back while they waited are zeros; steps have nothing to do
    /// there.
    pub(crate) fn pass_over(&mut self, key: usize) {
        let op = &mut self.ops[key];
        if let Kind::Step(step) = &mut op.kind {
            step.skipped = true;
        }
        if let Kind::Read(read) = &mut op.kind {
            read.answered = true;
            let (mut pieces, race) = (read.asked.pieces.clone(), read.asked.race);
            let claims = self.hedges.claims(race, &mut self.meters);
            for piece in pieces.drain().filter(|_| claims) {
                let zeros = self.zeros_of(piece.hi - piece.lo);
                self.finish_part(piece.request, Some((piece.part, zeros)), Ok(()));
            }
        }
        self.finish_op(key, None);
    }

    pub(crate) fn plan_read(
        &self,
        op: &StripeOp,
        asked: &ReadWork,
        lost: Columns,
    ) -> Option<Planned> {
        let (lo, hi, pieces) = (op.lo, op.hi, &asked.pieces[..]);
        if asked.equalize {
            let copies = available(op.width, lost);
            let reads: Reads = copies.iter().map(|&c| (c, lo, hi)).collect();
            return (!reads.is_empty()).then_some((WritePlan::Full, reads, Extra::default()));
        }
        let hedge = asked.race.is_some_and(|side| side.hedge);
        if hedge && !self.gates[op.region].answers_hedge() {
            return None;
        }
        let trusted = hedge || self.trusted(op.stripe, lost);
        let wanted = self.to_decode(op, pieces, lost);
        let there = |c: &usize| !wanted.has(*c);
        let mut reads: Columns = pieces.iter().map(|p| p.column).filter(there).collect();
        let checks = !asked.shared() && self.checks_sources(op.stripe, lost);
        let plan = match wanted.is_empty() {
            true => WritePlan::Full,
            false if !trusted => return None,
            false => {
                let decoder = self.map.decoder(op.stripe, lost, wanted)?;
                decoder.sources().iter().for_each(|&c| reads.add(c));
                if checks {
                    let present = available(op.width, lost);
                    present.iter().for_each(|&c| reads.add(c));
                }
                WritePlan::Decode
            }
        };
        let reads = reads.each().map(|c| (c, lo, hi)).collect();
        let extra = Extra {
            bytes: (hi - lo) as usize,
            count: wanted.count() + if checks { self.map.geometry().m } else { 0 },
        };
        Some((plan, reads, extra))
    }

    /// The columns that a read computes: those asked for that cannot be read, and those that are
    /// to be rewritten.
    fn to_decode(&self, op: &StripeOp, pieces: &[ReadPiece], lost: Columns) -> Columns {
        let asked = pieces.iter().map(|piece| piece.column);
        let computed: Columns = asked.filter(|&c| lost.has(c)).collect();
        computed.with(op.heal)
    }

    /// Computes the `wanted` columns from those read; they become the operation's content.
    pub(crate) fn decode_into(&self, op: &mut StripeOp, lost: Columns, wanted: Columns) {
        let decoder = self
            .map
            .decoder(op.stripe, lost, wanted)
            .expect("the plan found enough columns");
        let mut outputs: List<Buf, 3> = decoder
            .wanted()
            .iter()
            .map(|_| op.bufs.pop().expect("a buffer for each lost column"))
            .collect();
        let inputs: Brief<&[u8]> = decoder
            .sources()
            .iter()
            .map(|&c| {
                op.columns[c]
                    .as_ref()
                    .expect("the plan reads every source")
                    .bytes()
            })
            .collect();
        let len = inputs[0].len();
        let mut slices: Brief<&mut [u8]> = outputs
            .iter_mut()
            .map(|buf| &mut buf.bytes_mut()[..len])
            .collect();
        decoder.decode_with(self.heat(op), &inputs, &mut slices);
        drop((inputs, slices));
        for (&column, mut buf) in decoder.wanted().iter().zip(outputs.drain()) {
            op.keep_read(column, &mut buf, len);
            op.columns[column] = Some(Slice::new(buf, 0, len));
        }
    }

    /// The first copy that can be read speaks; the answer waits until all of them say the same,
    /// durably.
    pub(crate) fn compute_equalized(&mut self, key: usize) {
        let op = &mut self.ops[key];
        let first = op.columns.iter().flatten().next();
        let slice = first.expect("the plan reads one at least").clone();
        let same = |copy: &Option<Slice>| {
            let copy = copy.as_ref();
            copy.is_some_and(|copy| copy.bytes() == slice.bytes())
        };
        let differ: Vec<usize> = (0..op.columns.len())
            .filter(|&c| !same(&op.columns[c]))
            .collect();
        op.healed = op.heal;
        if let Kind::Read(read) = &mut op.kind {
            read.equalized = Some(slice.clone());
        }
        let lo = op.lo;
        for column in differ {
            self.write_column(key, column, lo, slice.clone(), true);
        }
    }

    pub(crate) fn compute_read(&mut self, key: usize, plan: &Plan) {
        let mut op = self.ops.take(key);
        let lost = plan.lost;
        let Kind::Read(read) = &op.kind else {
            unreachable!("only for reads")
        };
        let (pieces, race) = (read.asked.pieces.clone(), read.asked.race);
        // Only the exclusive form may write: a read that met its first bad sector here comes again
        // as one.
        let exclusive = !op.kind.shared();
        if plan.how == WritePlan::Decode {
            let wanted = self.to_decode(&op, &pieces, lost);
            if exclusive && !op.heal.is_empty() {
                self.judge_sources(&mut op, lost, Columns::default());
                self.say_findings(&op, op.lo, ScrubMode::Check);
            }
            self.decode_into(&mut op, lost, wanted);
        }
        let mut answers: ReadAnswers = pieces
            .iter()
            .map(|piece| {
                let whole = op.columns[piece.column].as_ref();
                let from = match canary::hit(Canary::NeighbourAnswers) {
                    true => 0,
                    false => (piece.lo - op.lo) as usize,
                };
                let slice = whole.expect("read or decoded");
                (*piece, slice.part(from, (piece.hi - piece.lo) as usize))
            })
            .collect();
        let heals = op.heal.is_empty() || !self.gates[op.region].undecided();
        let clear = heals && op.findings.iter().all(|found| !found.corrupt.is_empty());
        let healed: Vec<(usize, Slice)> = (0..op.width)
            .filter(|&c| clear && op.heal.has(c))
            .filter_map(|c| op.columns[c].clone().map(|s| (c, s)))
            .collect();
        let (stripe, lo, hi, found) = (op.stripe, op.lo, op.hi, op.heal);
        self.ops.put_back(key, op);
        if !exclusive && !found.is_empty() {
            let bad = std::mem::take(&mut self.ops[key].bad);
            let op = self.retire(key);
            self.ops.over(op);
            let work = Work::read(pieces, lo, hi, bad).healing(found);
            return self.queue.enqueue(stripe, work.racing(race));
        }
        if let Kind::Read(read) = &mut self.ops[key].kind {
            read.answered = true;
        }
        if exclusive {
            for (column, slice) in healed {
                self.ops[key].healed.add(column);
                self.write_column(key, column, lo, slice, false);
            }
        }
        let claims = self.hedges.claims(race, &mut self.meters);
        for (piece, slice) in answers.drain().filter(|_| claims) {
            self.finish_read(&piece, slice, stripe);
        }
    }

    /// So many zeros.
    pub(crate) fn zeros_of(&self, bytes: u64) -> Slice {
        Slice::new(self.zeros.clone(), 0, bytes as usize)
    }
}
