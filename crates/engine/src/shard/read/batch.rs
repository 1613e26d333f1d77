//! Reads of stripes that miss a member, planned together.
//!
//! What a lost strip held is computed from the others, and requests for those in the same batch can
//! be answered from the same reads. So where a member is missing, the pieces of reads wait until
//! the batch is complete (the next `poll`). Then, of each stripe, lost pieces that touch become one
//! *run*, and other pieces that lie within it come along: the run is read once. A stream of small
//! reads costs no more than one of whole stripes, and one read for each strip where it would have
//! cost many.
//!
//! Invariants:
//! * No piece waits for a request that has not come.
//! * What makes one piece unreadable is told to its own request alone: a run that cannot be had as
//!   a whole is taken apart (`Shard::finish_op`).
//!
//! Deliberately absent: what is read for one batch and kept for the next. That would be a cache.

use crate::geometry::extent::{Piece, Pieces};
use crate::mem::list::{List, listed};
use crate::proto::RequestError;
use crate::shard::Shard;
use crate::shard::op::work::{ReadPiece, ReadPieces, Work};
use crate::units::*;

/// Pieces of a request that lie in one stripe.
pub(crate) struct Row {
    stripe: StripeNo,
    /// So many came before it in its batch.
    came: usize,
    request: usize,
    /// Which of the request's pieces the first is.
    first: usize,
    pieces: Pieces,
    /// Where the request's first byte goes, if it has a place for its data.
    place: Option<u64>,
}

/// Bytes of every strip that are computed, and what is answered from them.
type Run = (u64, u64, ReadPieces);

listed!(Run);

impl Shard {
    /// Reads the pieces of a request that lie in one stripe, the first of which is its piece
    /// `first`.
    pub(crate) fn read_row(
        &mut self,
        request: usize,
        first: usize,
        row: &[Piece],
        place: Option<u64>,
    ) {
        let stripe = row[0].stripe;
        if self.map.whole() || self.map.geometry().m == 0 || self.map.geometry().mirrored() {
            return self.read_apart(stripe, request, first, row, place);
        }
        self.rows.push(Row {
            stripe,
            came: self.rows.len(),
            request,
            first,
            pieces: row.iter().copied().collect(),
            place,
        });
    }

    /// Plans what has gathered; false if nothing has.
    pub(crate) fn plan_rows(&mut self) -> bool {
        if self.rows.is_empty() {
            return false;
        }
        let mut rows = std::mem::take(&mut self.rows);
        // In the order in which they came: what lies side by side on a member is asked for so.
        rows.sort_unstable_by_key(|row| (row.stripe, row.came));
        for together in rows.chunk_by(|a, b| a.stripe == b.stripe) {
            self.read_together(together);
        }
        rows.clear();
        self.rows = rows;
        true
    }

    /// Reads pieces of one stripe.
    fn read_together(&mut self, rows: &[Row]) {
        let stripe = rows[0].stripe;
        if let Some(error) = self.map.closed() {
            for row in rows {
                let pieces = row.pieces.iter();
                pieces.for_each(|_| self.finish_part(row.request, None, Err(error)));
            }
            return;
        }
        let unwritten = self.gates[self.map.region(stripe)].unwritten();
        let mut runs = match unwritten {
            true => List::new(),
            false => self.runs(rows),
        };
        for row in rows {
            if runs.is_empty() {
                self.read_apart(stripe, row.request, row.first, &row.pieces, row.place);
                continue;
            }
            for (at, piece) in row.pieces.iter().enumerate() {
                let part = row.first + at;
                let within = |run: &&mut Run| run.0 <= piece.lo && piece.hi <= run.1;
                if self.map.piece_lost(piece) {
                    self.finish_part(row.request, None, Err(RequestError::Unreadable));
                } else if let Some((_, _, pieces)) = runs.iter_mut().find(within) {
                    pieces.push(ReadPiece::of(row.request, part, piece));
                } else {
                    self.read_piece((row.request, part), piece, row.place, false);
                }
            }
        }
        for (lo, hi, pieces) in runs.drain() {
            // What is unreadable was answered already.
            if !pieces.is_empty() {
                self.queue
                    .enqueue(stripe, Work::read(pieces, lo, hi, Vec::new()));
            }
        }
    }

    /// The ranges that have to be computed: those of pieces that no member can give, where they
    /// touch as one.
    fn runs(&self, rows: &[Row]) -> List<Run, 2> {
        let pieces = rows.iter().flat_map(|row| &row.pieces);
        let lost = |piece: &&Piece| !self.map.piece_lost(piece) && !self.map.readable(piece);
        let mut ranges: List<(u64, u64), 4> = pieces
            .filter(lost)
            .map(|piece| (piece.lo, piece.hi))
            .collect();
        ranges.sort_unstable();
        let mut runs: List<Run, 2> = List::new();
        for &(lo, hi) in &ranges {
            match runs.last_mut() {
                Some(run) if lo <= run.1 => run.1 = run.1.max(hi),
                _ => runs.push((lo, hi, ReadPieces::new())),
            }
        }
        runs
    }

    /// Reads each piece by itself.
    fn read_apart(
        &mut self,
        stripe: StripeNo,
        request: usize,
        first: usize,
        row: &[Piece],
        place: Option<u64>,
    ) {
        let gate = &self.gates[self.map.region(stripe)];
        let (unwritten, undecided) = (gate.unwritten(), gate.undecided());
        let equalizes = gate.equalizes() && self.map.geometry().mirrored();
        for (at, piece) in row.iter().enumerate() {
            let part = first + at;
            if unwritten {
                let zeros = self.zeros_of(piece.hi - piece.lo);
                self.finish_part(request, Some((part, zeros)), Ok(()));
            } else if self.map.piece_lost(piece) {
                self.finish_part(request, None, Err(RequestError::Unreadable));
            } else if equalizes {
                let pieces = ReadPieces::of(ReadPiece::of(request, part, piece));
                let work = Work::read(pieces, piece.lo, piece.hi, Vec::new());
                self.queue.enqueue(stripe, work.equalizing());
            } else {
                self.read_piece((request, part), piece, place, undecided);
            }
        }
    }
}
