//! Writes: what to read for them, the parity that follows, what goes to which member.
//!
//! Invariants:
//! * Every live parity column is true for the run after the write, whatever the plan.
//! * A piece that is all of its column's part of the run is written from the user's own memory.
//!
//! Deliberately absent: when (see `op`), and the choice of the plan (see `stripe::write_plan`).

use strake_parity::xor;

use crate::canary::{self, Canary};
use crate::geometry::column_set::Columns;
use crate::mem::buffer::{Buf, Slice};
use crate::mem::list::{Brief, List, listed};
use crate::proto::*;
use crate::shard::Shard;
use crate::shard::op::kind::{Coverages, Kind, Plan, WriteOp};
use crate::shard::op::work::WritePiece;
use crate::shard::op::{InPlace, Put, StripeOp};
use crate::stripe::log_records::{NewContent, Written};
use crate::stripe::write_plan::{Coverage, Facts, WritePlan, available};
use crate::stripe::write_plan::{Extra, Planned};
use crate::units::StripeNo;

impl Shard {
    pub(crate) fn plan_write(
        &self,
        op: &StripeOp,
        write: &WriteOp,
        lost: Columns,
        parity: Columns,
    ) -> Option<Planned> {
        let (lo, hi) = (op.lo, op.hi);
        let (width, k) = (op.width, op.k);
        if self.map.lost_beyond(op.stripe) {
            return None;
        }
        let coverage = &write.coverage;
        let trusted = self.trusted(op.stripe, lost);
        let geometry = self.map.geometry();
        let facts = Facts {
            geometry,
            lo,
            hi,
            coverage,
            lost,
            parity,
            trusted,
            synced: self.synced(op.stripe),
        };
        let plan = facts.choose()?;
        let mut wanted = facts.reads(plan);
        if plan == WritePlan::Decode {
            let missing = missing_data(k, coverage, lost, lo, hi);
            let decoder = self.map.decoder(op.stripe, lost, missing)?;
            decoder.sources().iter().for_each(|&c| wanted.add(c));
        }
        // What cannot be read is rewritten: what it is computed from is checked.
        let checks = plan == WritePlan::Decode && self.checks_mended(op, lost);
        if checks {
            let present = available(width, lost);
            present.iter().for_each(|&c| wanted.add(c));
        }
        let range = |c: usize| match (plan, coverage.get(c).copied().flatten()) {
            (WritePlan::ReadModifyWrite | WritePlan::Full, Some(v)) if c < k => (c, v.lo, v.hi),
            _ => (c, lo, hi),
        };
        let reads = (0..width).filter(|&c| wanted.has(c)).map(range).collect();
        let len = (hi - lo) as usize;
        // Columns put together from several pieces; then differences, or parity and decoded
        // columns.
        let written = coverage.iter().flatten().count();
        let more = match plan {
            WritePlan::ReadModifyWrite => written,
            WritePlan::Full | WritePlan::ReconstructWrite => geometry.m,
            WritePlan::Decode => geometry.m + lost.count().min(geometry.m),
        };
        // What the log takes: the partial syndromes.
        let logged = if self.map.view().logging {
            geometry.m
        } else {
            0
        };
        let extra = Extra {
            bytes: len,
            count: written + more + logged + if checks { geometry.m } else { 0 },
        };
        Some((plan, reads, extra))
    }

    pub(crate) fn compute_write(&mut self, key: usize, plan: &Plan) {
        let mut op = self.ops.take(key);
        let Kind::Write(write) = &mut op.kind else {
            unreachable!("only for writes")
        };
        let all_pieces = std::mem::take(&mut write.asked.pieces);
        let coverage = std::mem::take(&mut write.coverage);
        let pieces = &all_pieces[..];
        let (k, lo, hi) = (op.k, op.lo, op.hi);
        op.in_place.fua = self.must_last(op.stripe, pieces);
        if plan.how == WritePlan::Decode {
            op.findings.clear();
            if self.checks_mended(&op, plan.lost) {
                self.judge_sources(&mut op, plan.lost, Columns::default());
            }
            if op.builds_unclear() {
                if let Kind::Write(write) = &mut op.kind {
                    (write.asked.pieces, write.coverage) = (all_pieces, coverage);
                }
                self.ops.put_back(key, op);
                return self.leave_undecided(key);
            }
            self.say_findings(&op, lo, ScrubMode::Check);
            let missing = missing_data(k, &coverage, plan.lost, lo, hi);
            self.decode_into(&mut op, plan.lost, missing);
        }
        let new = new_data(&mut op, plan.how, &coverage, pieces);
        let rows: Rows = (0..self.map.geometry().m)
            .filter(|&j| self.map.has_target(op.stripe, k + j) && plan.parity.has(k + j))
            .collect();
        let solid = coverage.iter().flatten().all(|v| v.solid);
        let Parities { parity, syndromes } = self.new_parity(&mut op, plan, &rows, &new, solid);
        let mut puts = std::mem::take(&mut op.in_place.puts);
        for (c, new) in new.iter().enumerate() {
            self.put_data(&mut op, &mut puts, (c, new, coverage[c]), pieces);
        }
        let healed = rows.iter().filter(|&&j| op.heal.has(k + j));
        healed.for_each(|&j| op.healed.add(k + j));
        let put = |(&j, slice): (&usize, &Slice)| Put::of(k + j, lo, slice.clone());
        puts.extend(rows.iter().zip(&parity).map(put));
        let new = plan.logging.then(|| {
            let written = written_data(&coverage, pieces, &new);
            self.new_content(&mut op, &rows, written, &parity, syndromes)
        });
        if let Kind::Write(write) = &mut op.kind {
            (write.asked.pieces, write.coverage) = (all_pieces, coverage);
        }
        op.in_place.puts = puts;
        self.ops.put_back(key, op);
        self.carry_out(key, new);
    }

    /// It rewrites what it could not read, and redundancy is left by which to check what that is
    /// computed from.
    fn checks_mended(&self, op: &StripeOp, lost: Columns) -> bool {
        let data = op.heal.each().any(|column| column < op.k);
        data && self.checks_sources(op.stripe, lost)
    }

    /// What goes in place of a data column: what is written of it, or all of the run where it is
    /// mended.
    fn put_data(
        &self,
        op: &mut StripeOp,
        puts: &mut Vec<Put>,
        (c, new, coverage): (usize, &Option<(Slice, u64)>, Option<Coverage>),
        pieces: &[WritePiece],
    ) {
        let (lo, hi) = (op.lo, op.hi);
        match (new, coverage) {
            (Some((slice, from)), Some(_)) if op.heal.has(c) => {
                op.healed.add(c);
                puts.push(Put::of(c, *from, slice.clone()));
            }
            (Some((slice, from)), Some(v)) => puts
                .extend(runs(pieces, c, v).map(|(l, h)| {
                    Put::of(c, l, slice.part((l - from) as usize, (h - l) as usize))
                })),
            _ => {
                if op.heal.has(c)
                    && let Some(slice) = op.columns[c].clone().filter(|s| s.len as u64 == hi - lo)
                {
                    op.healed.add(c);
                    puts.push(Put::of(c, lo, slice));
                }
            }
        }
    }

    /// What the log must know of a write: the data that it writes, the new parities of `rows`, and
    /// their partial syndromes, computed from those where they are not known.
    fn new_content(
        &self,
        op: &mut StripeOp,
        rows: &[usize],
        data: Written,
        parity: &[Slice],
        known: Option<List<Slice, 3>>,
    ) -> NewContent {
        let (k, m, lo, hi) = (op.k, self.map.geometry().m, op.lo, op.hi);
        let by_row = |slices: &[Slice]| {
            let mut all: List<Option<Slice>, 3> = (0..m).map(|_| None).collect();
            for (&j, slice) in rows.iter().zip(slices) {
                all[j] = Some(slice.clone());
            }
            all
        };
        let whole = data.len() == k
            && data
                .iter()
                .all(|(_, from, s)| (*from, s.len as u64) == (lo, hi - lo));
        let syndromes = match known {
            Some(known) => known,
            None if whole => List::new(),
            None => self.syndromes(op, rows, &data, parity),
        };
        NewContent {
            parity: by_row(parity),
            syndromes: by_row(&syndromes),
            data,
        }
    }

    /// What is left of new parities without what is written.
    fn syndromes(
        &self,
        op: &mut StripeOp,
        rows: &[usize],
        data: &[(usize, u64, Slice)],
        parity: &[Slice],
    ) -> List<Slice, 3> {
        let written = data.iter();
        let written = written.map(|(column, from, slice)| (*column, *from, slice.bytes()));
        self.copies_with(op, rows, parity, written)
    }

    /// Copies of these rows over the run, to which what is `added` of data columns contributes: the
    /// first of them in the pass that copies.
    fn copies_with<'a>(
        &self,
        op: &mut StripeOp,
        rows: &[usize],
        bases: &[Slice],
        mut added: impl Iterator<Item = (usize, u64, &'a [u8])>,
    ) -> List<Slice, 3> {
        let lo = op.lo;
        let mut copies: List<Slice, 3> = bases
            .iter()
            .map(|base| {
                let buf = op.bufs.pop().expect("a buffer for each copy");
                Slice::new(buf, 0, base.len)
            })
            .collect();
        let first = added.next();
        let part = match first {
            Some((_, from, bytes)) => (from - lo) as usize..(from - lo) as usize + bytes.len(),
            None => 0..0,
        };
        for (copy, base) in copies.iter_mut().zip(bases) {
            let (to, from) = (copy.buf.bytes_mut(), base.bytes());
            to[..part.start].copy_from_slice(&from[..part.start]);
            to[part.end..from.len()].copy_from_slice(&from[part.end..]);
        }
        if let Some((column, _, bytes)) = first {
            let bases: Brief<&[u8]> = bases.iter().map(|b| &b.bytes()[part.clone()]).collect();
            let mut outputs: Brief<&mut [u8]> = copies
                .iter_mut()
                .map(|copy| &mut copy.buf.bytes_mut()[part.clone()])
                .collect();
            self.map
                .code(op.stripe)
                .update_copies(rows, column, bytes, &bases, &mut outputs);
        }
        for (column, from, bytes) in added {
            let start = (from - lo) as usize;
            self.add(op.stripe, rows, column, bytes, start, &mut copies);
        }
        copies
    }

    /// Adds what `bytes` of a data column, from byte `start` of the run, contribute to each of
    /// these rows.
    fn add(
        &self,
        stripe: StripeNo,
        rows: &[usize],
        column: usize,
        bytes: &[u8],
        start: usize,
        sums: &mut [Slice],
    ) {
        let part = start..start + bytes.len();
        let mut outputs: Brief<&mut [u8]> = sums
            .iter_mut()
            .map(|sum| &mut sum.buf.bytes_mut()[part.clone()])
            .collect();
        self.map
            .code(stripe)
            .update_rows(rows, column, bytes, &mut outputs);
    }

    /// Is the write durable when it ends? What leaves the list of unreadable blocks is.
    fn must_last(&self, stripe: StripeNo, pieces: &[WritePiece]) -> bool {
        let mut places = pieces.iter().map(|p| p.place(stripe));
        pieces.iter().any(|p| p.fua)
            || places.any(|place| self.map.touches_lost(&place))
                && !canary::hit(Canary::UnlistedUndurably)
    }

    /// The parities in `rows` after the write, over the run; `solid`: nothing between the first and
    /// the last byte written of a column is left alone.
    fn new_parity(
        &self,
        op: &mut StripeOp,
        plan: &Plan,
        rows: &[usize],
        new: &[NewData],
        solid: bool,
    ) -> Parities {
        let (k, lo, len) = (op.k, op.lo, (op.hi - op.lo) as usize);
        if rows.is_empty() {
            return Parities::default();
        }
        if plan.how == WritePlan::ReadModifyWrite {
            let mut old = |j: usize| op.columns[k + j].take();
            let parity: List<Slice, 3> = rows
                .iter()
                .map(|&j| old(j).expect("the plan reads every live parity"))
                .collect();
            return match plan.logging && solid {
                true => self.parity_by_syndrome(op, rows, new, parity),
                false => Parities {
                    parity: self.parity_by_difference(op, rows, new, parity),
                    syndromes: None,
                },
            };
        }
        let mut parity: List<Buf, 3> = rows
            .iter()
            .map(|_| op.bufs.pop().expect("a buffer for each parity"))
            .collect();
        let data: Brief<&[u8]> = (0..k)
            .map(|c| match (&new[c], &op.columns[c]) {
                (Some((slice, from)), _) if *from == lo && slice.len == len => slice.bytes(),
                (None, Some(slice)) => slice.bytes(),
                _ => unreachable!("the plan covers every data column over the whole run"),
            })
            .collect();
        let mut outputs: Brief<&mut [u8]> = parity
            .iter_mut()
            .map(|buf| &mut buf.bytes_mut()[..len])
            .collect();
        self.map
            .code(op.stripe)
            .generate_rows(rows, &data, &mut outputs);
        drop(outputs);
        let slice = |buf| Slice::new(buf, 0, len);
        Parities {
            parity: parity.drain().map(slice).collect(),
            syndromes: None,
        }
    }

    /// Read-modify-write of a write that is logged: the old data is taken out of the old parity,
    /// what is left is the partial syndrome, and the new data is added to that.
    fn parity_by_syndrome(
        &self,
        op: &mut StripeOp,
        rows: &[usize],
        new: &[NewData],
        mut syndromes: List<Slice, 3>,
    ) -> Parities {
        let lo = op.lo;
        let written = || {
            new.iter()
                .enumerate()
                .filter_map(|(c, new)| Some((c, new.as_ref()?)))
        };
        for (c, (_, from)) in written() {
            let old = op.columns[c].as_ref().expect("the plan reads the old data");
            self.add(
                op.stripe,
                rows,
                c,
                old.bytes(),
                (from - lo) as usize,
                &mut syndromes,
            );
        }
        let stripe = op.stripe;
        let added = written().map(|(c, (slice, from))| {
            let column = self.coefficient_of(stripe, c, rows);
            (column, *from, slice.bytes())
        });
        let parity = self.copies_with(op, rows, &syndromes, added);
        Parities {
            parity,
            syndromes: Some(syndromes),
        }
    }

    /// Read-modify-write: the difference of the data is added to the parity.
    fn parity_by_difference(
        &self,
        op: &mut StripeOp,
        rows: &[usize],
        new: &[NewData],
        mut parity: List<Slice, 3>,
    ) -> List<Slice, 3> {
        let lo = op.lo;
        for (c, content) in new.iter().enumerate() {
            let Some((slice, from)) = content else {
                continue;
            };
            let mut delta = op.bufs.pop().expect("a buffer for each written column");
            let old = op.columns[c].as_ref().expect("the plan reads the old data");
            let difference = &mut delta.bytes_mut()[..slice.len];
            xor(difference, old.bytes(), slice.bytes());
            let c = self.coefficient_of(op.stripe, c, rows);
            self.add(
                op.stripe,
                rows,
                c,
                difference,
                (from - lo) as usize,
                &mut parity,
            );
        }
        parity
    }

    /// The column that a read-modify-write takes its coefficients from: the written one, always.
    fn coefficient_of(&self, stripe: StripeNo, column: usize, rows: &[usize]) -> usize {
        match canary::hit(Canary::QCoefficientOff) && rows.contains(&1) {
            true => (column + 1) % self.map.shape(stripe).k,
            false => column,
        }
    }

    /// Zeroes on every column: parity of zeros is zero.
    pub(crate) fn compute_zero(&mut self, key: usize, fua: bool, plan: &Plan) {
        let op = &self.ops[key];
        let (width, k) = (op.width, op.k);
        let (lo, len) = (op.lo, op.hi - op.lo);
        let fua = fua
            || self
                .map
                .run(op.stripe, lo, lo + len)
                .any(|part| self.map.touches_lost(&part));
        if self.map.lost_beyond(op.stripe) {
            if let Kind::Zero(zero) = &mut self.ops[key].kind {
                zero.refused = Some(RequestError::Unreadable);
            }
            return;
        }
        let zeros = || Slice::new(self.zeros.clone(), 0, len as usize);
        let new = plan.logging.then(|| NewContent {
            data: (0..k).map(|c| (c, lo, zeros())).collect(),
            parity: (0..self.map.geometry().m).map(|_| Some(zeros())).collect(),
            syndromes: (0..self.map.geometry().m).map(|_| None).collect(),
        });
        let put = |column| Put {
            column,
            from: lo,
            len,
            content: None,
        };
        let columns = match canary::hit(Canary::DiscardForgetsParity) {
            true => k,
            false => width,
        };
        let puts = (0..columns).map(put).collect();
        let op = &mut self.ops[key];
        op.in_place = InPlace { puts, fua };
        self.carry_out(key, new);
    }
}

/// A data column's new content and where in the strip it begins; `None` where nothing is written.
type NewData = Option<(Slice, u64)>;

listed!(NewData, Option<Coverage>);

/// Numbers of parity rows.
type Rows = List<usize, 4>;

/// Parities after a write, for each row that has a member, and the partial syndromes, where they
/// came with them.
#[derive(Default)]
struct Parities {
    parity: List<Slice, 3>,
    syndromes: Option<List<Slice, 3>>,
}

/// New content of the written columns, each over its own coverage or, where the whole run is known,
/// over the run.
fn new_data(
    op: &mut StripeOp,
    how: WritePlan,
    coverage: &[Option<Coverage>],
    pieces: &[WritePiece],
) -> List<NewData, 8> {
    let whole = matches!(how, WritePlan::ReconstructWrite | WritePlan::Decode);
    let (lo, hi) = (op.lo, op.hi);
    let content = |(c, v): (usize, &Option<Coverage>)| {
        let v = (*v)?;
        let (from, to) = match whole && op.columns[c].is_some() {
            true => (lo, hi),
            false => (v.lo, v.hi),
        };
        let old = op.columns[c].as_ref();
        Some((assemble(&mut op.bufs, old, pieces, c, from, to), from))
    };
    coverage.iter().enumerate().map(content).collect()
}

/// What is written of the data columns, in parts without holes.
fn written_data(coverage: &[Option<Coverage>], pieces: &[WritePiece], new: &[NewData]) -> Written {
    let mut all = List::new();
    for (c, new) in new.iter().enumerate() {
        if let (Some((slice, from)), Some(v)) = (new, coverage[c]) {
            all.extend(runs(pieces, c, v).map(|(l, h)| {
                let part = slice.part((l - from) as usize, (h - l) as usize);
                (c, l, part)
            }));
        }
    }
    all
}

/// What is written for each data column, in the order of the pieces.
pub(crate) fn coverage(k: usize, pieces: &[WritePiece]) -> Coverages {
    let mut all: Coverages = (0..k).map(|_| None).collect();
    if let [only] = pieces {
        all[only.column] = Some(Coverage {
            lo: only.lo,
            hi: only.hi,
            solid: true,
        });
        return all;
    }
    for (column, slot) in all.iter_mut().enumerate() {
        let mut ranges: List<(u64, u64), 8> = pieces
            .iter()
            .filter(|p| p.column == column)
            .map(|p| (p.lo, p.hi))
            .collect();
        ranges.sort_unstable();
        let Some(&(lo, first_hi)) = ranges.first() else {
            continue;
        };
        let (mut hi, mut solid) = (first_hi, true);
        for &(l, h) in &ranges {
            solid &= l <= hi;
            hi = hi.max(h);
        }
        *slot = Some(Coverage { lo, hi, solid });
    }
    all
}

/// Data columns that are lost and that the write does not cover wholly.
fn missing_data(
    k: usize,
    coverage: &[Option<Coverage>],
    lost: Columns,
    lo: u64,
    hi: u64,
) -> Columns {
    let covered =
        |c: usize| coverage[c].is_some_and(|v: Coverage| v.solid && v.lo == lo && v.hi == hi);
    (0..k).filter(|&c| lost.has(c) && !covered(c)).collect()
}

/// Bytes `from..to` of column `c` after the write: a piece itself where one piece is all of it,
/// else a buffer with the pieces laid over what was read.
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
    let mut ranges: List<(u64, u64), 4> = List::new();
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
    (0..ranges.len()).map(move |at| ranges[at])
}
