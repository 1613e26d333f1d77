//! Writes: what to read for them, the parity that follows, what goes to which member.
//!
//! Invariants:
//! * Every live parity column is true for the run after the write, whatever the plan.
//! * A piece that is all of its column's part of the run is written from the user's own memory.
//!
//! Deliberately absent: when (see `stripe`), and the choice of the plan (see `plan`).

use strake_parity::xor;

use crate::buffers::{Buf, Slice};
use crate::canary::{self, Canary};
use crate::event::*;
use crate::intent::NewContent;
use crate::plan::{Columns, Coverage, Facts, WritePlan};
use crate::shard::Shard;
use crate::stripe::{Planned, Put, StripeOp, WorkKind, WritePiece, available};
use crate::units::StripeNo;

impl Shard {
    pub(crate) fn plan_write(
        &self,
        op: &StripeOp,
        pieces: &[WritePiece],
        lost: Columns,
    ) -> Option<Planned> {
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
        // Columns put together from several pieces; then differences, or parity and decoded
        // columns.
        let written = coverage.iter().flatten().count();
        let more = match plan {
            WritePlan::ReadModifyWrite => written,
            WritePlan::Full | WritePlan::ReconstructWrite => geometry.m,
            WritePlan::Decode => geometry.m + lost.count().min(geometry.m),
        };
        // What the log takes: the partial syndromes.
        let logged = if self.view.logging { geometry.m } else { 0 };
        let extra = vec![len; written + more + logged];
        Some((plan, reads, extra))
    }

    pub(crate) fn compute_write(&mut self, key: usize) {
        let mut op = std::mem::replace(&mut self.ops[key], StripeOp::placeholder());
        let lost = op.lost;
        let WorkKind::Write { pieces } = &mut op.work.kind else {
            unreachable!("only for writes")
        };
        let all_pieces = std::mem::take(pieces);
        let pieces = all_pieces.as_slice();
        let (k, lo, hi) = (self.geometry.k, op.work.lo, op.work.hi);
        let coverage = coverage(k, pieces);
        let fua = self.must_last(op.stripe, pieces);
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
        let new = op.logging.then(|| {
            let of_data = |c: usize| coverage[c].map(|v| runs(pieces, c, v).collect());
            let ranges: Vec<Vec<(u64, u64)>> =
                (0..k).map(|c| of_data(c).unwrap_or_default()).collect();
            self.new_content(&mut op, &rows, &writes, &ranges)
        });
        op.work.kind = WorkKind::Write { pieces: all_pieces };
        let put = |(column, from, slice): (usize, u64, Slice)| Put {
            column,
            from,
            len: slice.len as u64,
            content: Some(slice),
        };
        op.puts = writes.into_iter().map(put).collect();
        op.fua = fua;
        self.ops[key] = op;
        self.carry_out(key, new);
    }

    /// What the log must know of a write: `ranges` are what it writes of each data column, `writes`
    /// what goes in place (more, where a column is mended), the parities of `rows` last.
    fn new_content(
        &self,
        op: &mut StripeOp,
        rows: &[usize],
        writes: &[(usize, u64, Slice)],
        ranges: &[Vec<(u64, u64)>],
    ) -> NewContent {
        let (k, lo, hi) = (self.geometry.k, op.work.lo, op.work.hi);
        let mut data: Vec<(usize, u64, Slice)> = Vec::new();
        for (column, ranges) in ranges.iter().enumerate() {
            for &(from, to) in ranges {
                let covers = |w: &&(usize, u64, Slice)| {
                    w.0 == column && w.1 <= from && to <= w.1 + w.2.len as u64
                };
                let (_, start, slice) = writes.iter().find(covers).expect("it goes in place");
                let part = slice.part((from - start) as usize, (to - from) as usize);
                data.push((column, from, part));
            }
        }
        let mut parity: Vec<Option<Slice>> = vec![None; self.geometry.m];
        for (column, _, slice) in writes.iter().filter(|w| w.0 >= k) {
            parity[column - k] = Some(slice.clone());
        }
        let mut syndromes: Vec<Option<Slice>> = vec![None; self.geometry.m];
        let whole = |r: &Vec<(u64, u64)>| r.as_slice() == [(lo, hi)];
        if !rows.is_empty() && !ranges.iter().all(whole) {
            let mut bufs: Vec<Buf> = rows
                .iter()
                .map(|_| op.bufs.pop().expect("a buffer for each syndrome"))
                .collect();
            for (&j, buf) in rows.iter().zip(&mut bufs) {
                let stored = parity[j].as_ref().expect("it goes in place");
                buf.bytes_mut()[..stored.len].copy_from_slice(stored.bytes());
            }
            for (column, from, slice) in &data {
                let start = (from - lo) as usize;
                let mut outputs: Vec<&mut [u8]> = bufs
                    .iter_mut()
                    .map(|buf| &mut buf.bytes_mut()[start..start + slice.len])
                    .collect();
                self.code
                    .update_rows(rows, *column, slice.bytes(), &mut outputs);
            }
            for (&j, buf) in rows.iter().zip(bufs) {
                syndromes[j] = Some(Slice::new(buf, 0, (hi - lo) as usize));
            }
        }
        NewContent {
            data,
            parity,
            syndromes,
        }
    }

    /// Is the write durable when it ends? What leaves the list of unreadable blocks is.
    fn must_last(&self, stripe: StripeNo, pieces: &[WritePiece]) -> bool {
        let mut places = pieces.iter().map(|p| p.place(stripe));
        pieces.iter().any(|p| p.fua) || places.any(|place| self.touches_lost(&place))
    }

    /// The parities in `rows` after the write, over the run.
    pub(crate) fn new_parity(
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
                let delta = &delta.bytes()[..slice.len];
                if canary::hit(Canary::QCoefficientOff) {
                    for (&row, output) in rows.iter().zip(outputs) {
                        let column = if row == 1 { (c + 1) % k } else { c };
                        self.code.update(row, column, delta, output);
                    }
                    continue;
                }
                self.code.update_rows(rows, c, delta, &mut outputs);
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

    /// Zeroes on every column: parity of zeros is zero.
    pub(crate) fn compute_zero(&mut self, key: usize, fua: bool) {
        let op = &self.ops[key];
        let (lo, len) = (op.work.lo, op.work.hi - op.work.lo);
        let fua = fua
            || self
                .run(op.stripe, lo, lo + len)
                .any(|part| self.touches_lost(&part));
        if self.lost_beyond(op.stripe) {
            self.ops[key].error = Some(RequestError::Unreadable);
            return;
        }
        let zeros = || Slice::new(self.zeros.clone(), 0, len as usize);
        let new = op.logging.then(|| NewContent {
            data: (0..self.geometry.k).map(|c| (c, lo, zeros())).collect(),
            parity: (0..self.geometry.m).map(|_| Some(zeros())).collect(),
            syndromes: vec![None; self.geometry.m],
        });
        let put = |column| Put {
            column,
            from: lo,
            len,
            content: None,
        };
        let columns = match canary::hit(Canary::DiscardForgetsParity) {
            true => self.geometry.k,
            false => self.geometry.width,
        };
        let puts = (0..columns).map(put).collect();
        let op = &mut self.ops[key];
        (op.puts, op.fua) = (puts, fua);
        self.carry_out(key, new);
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
