//! A strip of which some sectors cannot be read keeps the others.
//!
//! A medium fails a read as a whole, be it for one sector. If all of the run were computed from the
//! other columns, it would take what has rotted in these: where no redundancy is left nothing shows
//! it, and right bytes beside the bad sector would be written over. So an operation that is about
//! to compute columns after media errors first reads these columns once more, in halves, down to
//! the logical block. What can be read stays as it is; only the rest is computed.
//!
//! Invariants:
//! * Only an operation that has its run alone narrows: what it has read stays true until it is
//!   over.
//! * A column is narrowed once for a plan; what fails again, or was interrupted, is computed as a
//!   whole.
//! * What is kept is no buffer of the pool: an operation that holds one never waits for another.
//!
//! Deliberately absent: a comparison of what is kept with what the others say (`scrub::judge`), and
//! columns of which too many fail at once (`salvage`, block by block anyway).

use crate::canary::{self, Canary};
use crate::geometry::column_set::Columns;
use crate::mem::buffer::{Buf, Slice};
use crate::shard::Shard;
use crate::shard::op::kind::ReadFor;
use crate::shard::op::{Again, StripeOp};
use crate::stripe::write_plan::{Extra, Reads};

/// Part of a column's run.
#[derive(Clone, Copy, Debug)]
struct Part {
    column: usize,
    lo: u64,
    hi: u64,
}

/// How far an operation has come with it.
#[derive(Debug, Default)]
pub(crate) struct Narrow {
    /// Parts that are still to be read, the next one last.
    todo: Vec<Part>,
    /// The part at work.
    at: Option<Part>,
    /// Its medium failed.
    failed: bool,
    /// Columns that were gone through, or given up.
    done: Columns,
    /// What could be read: column, where it begins within the strip, and bytes.
    kept: Vec<(usize, u64, Vec<u8>)>,
}

impl StripeOp {
    /// The medium failed the part that is being read again.
    pub(crate) fn narrow_failed(&mut self) {
        self.narrowing().failed = true;
    }

    fn narrowing(&mut self) -> &mut Narrow {
        match &mut self.again {
            Again::Narrow(narrow) => narrow,
            _ => unreachable!("a part is being read again"),
        }
    }

    /// Parts could be read of columns that could not be read as a whole.
    pub(crate) fn has_kept(&self) -> bool {
        matches!(&self.again, Again::Narrow(narrow) if !narrow.kept.is_empty())
    }

    /// The columns, beside those that were read as a whole, of which this block could be read, and
    /// what they hold there; `lo`: bytes within the run.
    pub(crate) fn kept_at(&self, lo: usize, len: usize) -> Vec<(usize, &[u8])> {
        let Again::Narrow(narrow) = &self.again else {
            return Vec::new();
        };
        let at = self.lo + lo as u64;
        let held = |(column, from, bytes): &'_ (usize, u64, Vec<u8>)| {
            let start = at.checked_sub(*from)? as usize;
            let inside = start + len <= bytes.len() && self.columns[*column].is_none();
            inside.then_some((*column, start))
        };
        let parts = narrow.kept.iter();
        parts
            .filter_map(|part| held(part).map(|(c, start)| (c, &part.2[start..start + len])))
            .collect()
    }

    /// Lays over what was computed of a column what could be read of it.
    pub(crate) fn keep_read(&self, column: usize, computed: &mut Buf, len: usize) {
        let (lo, hi) = (self.lo, self.hi);
        let whole = len as u64 == hi - lo;
        // A salvage computes single blocks, which cannot be read.
        let narrow = match &self.again {
            Again::Narrow(narrow) if whole => narrow,
            _ => return,
        };
        let of_column = narrow.kept.iter().filter(|(kept, ..)| *kept == column);
        for (_, from, bytes) in of_column {
            let from = (from - lo) as usize;
            computed.bytes_mut()[from..from + bytes.len()].copy_from_slice(bytes);
        }
    }
}

impl Shard {
    /// The operation could be carried out: if it is to compute columns of which most can perhaps be
    /// read, that is found out first. True if it waits for that.
    pub(crate) fn begin_to_narrow(&mut self, key: usize) -> bool {
        let block = self.map.geometry().block;
        let op = &mut self.ops[key];
        if op.heal.is_empty() || op.hi - op.lo <= block || op.kind.shared() {
            return false;
        }
        if canary::hit(Canary::RunComputed) || op.kind.is_hedge() {
            return false;
        }
        let mut narrow = match std::mem::replace(&mut self.ops[key].again, Again::Nothing) {
            Again::Narrow(narrow) => narrow,
            _ => Box::default(),
        };
        (narrow.at, narrow.failed) = (None, false);
        narrow.todo.clear();
        let op = &self.ops[key];
        let there = |&column: &usize| {
            let source = self.map.source(op.stripe, column);
            source.is_some_and(|s| op.bad.contains(&(column, s.device)))
        };
        let fresh: Columns = (op.heal.each())
            .filter(|&column| !narrow.done.has(column))
            .filter(there)
            .collect();
        if fresh.is_empty() {
            self.ops[key].again = Again::Narrow(narrow);
            return false;
        }
        if op.reads_early() {
            // It begins again when its region is open.
            self.back_to_gate(key);
            return true;
        }
        let (lo, hi) = (op.lo, op.hi);
        narrow.done = narrow.done.with(fresh);
        for column in fresh.each() {
            narrow.halve(Part { column, lo, hi }, block);
        }
        self.ops[key].again = Again::Narrow(narrow);
        self.narrow_next(key);
        true
    }

    fn narrow_next(&mut self, key: usize) {
        let op = &mut self.ops[key];
        let narrow = op.narrowing();
        (narrow.at, narrow.failed) = (narrow.todo.pop(), false);
        let Some(Part { column, lo, hi }) = narrow.at else {
            return self.prepare(key);
        };
        let reads: Reads = std::iter::once((column, lo, hi)).collect();
        self.want(key, reads, Extra::default(), ReadFor::Narrow);
    }

    /// The part was read, or its medium failed.
    pub(crate) fn narrow_read(&mut self, key: usize) {
        let block = self.map.geometry().block;
        let op = &mut self.ops[key];
        let part = op.narrowing().at.expect("a part was being read");
        let read: Option<Slice> = op.columns[part.column].take();
        let narrow = op.narrowing();
        match read.filter(|_| !narrow.failed) {
            Some(read) => {
                let kept = (part.column, part.lo, read.bytes().to_vec());
                narrow.kept.push(kept);
            }
            None if part.hi - part.lo > block => narrow.halve(part, block),
            None => {}
        }
        self.narrow_next(key);
    }
}

impl Narrow {
    /// Both halves are to be read, the first one next.
    fn halve(&mut self, Part { column, lo, hi }: Part, block: u64) {
        let middle = lo + (hi - lo) / block / 2 * block;
        let half = |lo, hi| Part { column, lo, hi };
        self.todo.extend([half(middle, hi), half(lo, middle)]);
    }
}
