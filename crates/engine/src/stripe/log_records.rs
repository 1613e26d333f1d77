//! New content of a write, cut into parts for its records in the stripe log.
//!
//! Invariant: in a part the written columns are the same over all of its bytes.
//!
//! Deliberately absent: which members hold the records (`shard::op::records`).

use crate::geometry::column_set::Columns;
use crate::mem::buffer::Slice;
use crate::mem::list::{List, listed};

/// New content of an operation, over parts of its run.
pub(crate) struct NewContent {
    /// Data.
    pub(crate) data: Written,
    /// For each parity of the code its new content over the run, where it has a member.
    pub(crate) parity: List<Option<Slice>, 3>,
    /// For each parity its partial syndrome over the run, where it has a member and the write
    /// leaves columns alone somewhere.
    pub(crate) syndromes: List<Option<Slice>, 3>,
}

/// Column, first byte within the strip, content.
pub(crate) type Written = List<(usize, u64, Slice), 2>;

/// A part of the run in which the written columns are the same.
pub(crate) struct Part {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    pub(crate) written: Columns,
}

impl NewContent {
    /// The run cut into parts; stretches where nothing is written are left out.
    pub(crate) fn parts(&self) -> List<Part, 2> {
        let ends = |(_, from, slice): &(usize, u64, Slice)| [*from, *from + slice.len as u64];
        let mut cuts: List<u64, 8> = self.data.iter().flat_map(ends).collect();
        cuts.sort_unstable();
        cuts.dedup_by(|next, before| next == before);
        let mut parts: List<Part, 2> = List::new();
        for pair in cuts.windows(2) {
            let (lo, hi) = (pair[0], pair[1]);
            let mut written = Columns::default();
            for (column, from, slice) in &self.data {
                if *from <= lo && hi <= *from + slice.len as u64 {
                    written.add(*column);
                }
            }
            match parts.last_mut() {
                Some(last) if last.hi == lo && last.written == written => last.hi = hi,
                _ if written.is_empty() => {}
                _ => parts.push(Part { lo, hi, written }),
            }
        }
        parts
    }

    /// The new content of a written column over a part.
    pub(crate) fn column(&self, column: usize, part: &Part) -> Slice {
        let covers = |(c, from, slice): &&(usize, u64, Slice)| {
            *c == column && *from <= part.lo && part.hi <= *from + slice.len as u64
        };
        let (_, from, slice) = self.data.iter().find(covers).expect("it is written here");
        slice.part((part.lo - from) as usize, (part.hi - part.lo) as usize)
    }
}

listed!(Part, (usize, u64, Slice));
