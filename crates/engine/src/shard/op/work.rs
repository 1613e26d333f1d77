//! What waits for its turn on a stripe: what is asked, before it is known how it is done.
//!
//! Invariant: writes that are put together keep all their pieces, each of which is answered.
//! Deliberately absent: how far it has come (`op`), and in what order (`queue`).

use crate::geometry::StripPart;
use crate::geometry::column_set::Columns;
use crate::geometry::extent::Piece;
use crate::mem::buffer::Slice;
use crate::mem::list::{List, listed};
use crate::proto::StepKind;
use crate::shard::read::hedge::Racing;
use crate::units::*;

/// What waits for its turn on a stripe.
pub(crate) struct Work {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    pub(crate) kind: WorkKind,
}

pub(crate) enum WorkKind {
    Read(ReadWork),
    Write(WriteWork),
    Zero(ZeroWork),
    Step(StepWork),
}

/// Compute a piece that its member cannot give, and answer those beside it from what that takes.
pub(crate) struct ReadWork {
    /// All within the bytes `lo..hi`.
    pub(crate) pieces: ReadPieces,
    pub(crate) avoid: Vec<Bad>,
    pub(crate) heal: Columns,
    /// Copies may differ: what is answered is made durable on all of them first.
    pub(crate) equalize: bool,
    /// The piece is asked for twice.
    pub(crate) race: Option<Racing>,
}

impl ReadWork {
    /// Only reads, and writes nothing back.
    pub(crate) fn shared(&self) -> bool {
        self.heal.is_empty() && !self.equalize
    }
}

pub(crate) struct WriteWork {
    pub(crate) pieces: WritePieces,
    /// A piece belongs to a sequential stream.
    pub(crate) stream: bool,
}

impl WriteWork {
    /// Of what belongs to a stream, and is not to be durable before anything else, the bytes that
    /// it writes.
    pub(crate) fn streamed_bytes(&self) -> Option<u64> {
        let waits = self.stream && self.pieces.iter().all(|piece| !piece.fua);
        waits.then(|| self.pieces.iter().map(|piece| piece.hi - piece.lo).sum())
    }

    /// All that it writes is zeros that a request asks for.
    pub(crate) fn only_zeros(&self) -> bool {
        self.pieces.iter().all(|piece| piece.zeros)
    }
}

pub(crate) struct ZeroWork {
    pub(crate) request: usize,
    pub(crate) fua: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct StepWork {
    pub(crate) step: u64,
    pub(crate) kind: StepKind,
}

/// A part of a write request within one strip.
pub(crate) struct WritePiece {
    pub(crate) request: usize,
    pub(crate) column: usize,
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    pub(crate) data: Slice,
    pub(crate) fua: bool,
    /// It is what a request zeroes, not data.
    pub(crate) zeros: bool,
}

impl WritePiece {
    /// Where it goes.
    pub(crate) fn place(&self, stripe: StripeNo) -> StripPart {
        StripPart {
            stripe,
            column: self.column,
            lo: self.lo,
            hi: self.hi,
        }
    }
}

/// A part of a read request within one strip.
#[derive(Clone, Copy)]
pub(crate) struct ReadPiece {
    pub(crate) request: usize,
    /// Which of the request's.
    pub(crate) part: usize,
    pub(crate) column: usize,
    pub(crate) lo: u64,
    pub(crate) hi: u64,
}

impl ReadPiece {
    pub(crate) fn of(request: usize, part: usize, piece: &Piece) -> ReadPiece {
        ReadPiece {
            request,
            part,
            column: piece.column,
            lo: piece.lo,
            hi: piece.hi,
        }
    }

    /// Where it lies.
    pub(crate) fn place(&self, stripe: StripeNo) -> StripPart {
        StripPart {
            stripe,
            column: self.column,
            lo: self.lo,
            hi: self.hi,
        }
    }
}

/// Mostly one, outside streams.
pub(crate) type WritePieces = List<WritePiece>;

/// Mostly one.
pub(crate) type ReadPieces = List<ReadPiece>;

listed!(ReadPiece, WritePiece);

/// A column that a device could not give.
pub(crate) type Bad = (usize, DeviceId);

impl Work {
    pub(crate) fn read(pieces: ReadPieces, lo: u64, hi: u64, avoid: Vec<Bad>) -> Work {
        let kind = WorkKind::Read(ReadWork {
            pieces,
            avoid,
            heal: Columns::default(),
            equalize: false,
            race: None,
        });
        Work { lo, hi, kind }
    }

    /// The same read, of copies that may differ.
    pub(crate) fn equalizing(mut self) -> Work {
        if let WorkKind::Read(read) = &mut self.kind {
            read.equalize = true;
        }
        self
    }

    /// The same read, which also rewrites these columns.
    pub(crate) fn healing(mut self, media: Columns) -> Work {
        if let WorkKind::Read(read) = &mut self.kind {
            read.heal = media;
        }
        self
    }

    pub(crate) fn write(piece: WritePiece, stream: bool) -> Work {
        let (lo, hi) = (piece.lo, piece.hi);
        let pieces = List::of(piece);
        let kind = WorkKind::Write(WriteWork { pieces, stream });
        Work { lo, hi, kind }
    }

    /// Zeroes bytes `lo..hi` of every strip.
    pub(crate) fn zero(request: usize, lo: u64, hi: u64, fua: bool) -> Work {
        let kind = WorkKind::Zero(ZeroWork { request, fua });
        Work { lo, hi, kind }
    }

    pub(crate) fn step(step: u64, kind: StepKind, strip: u64) -> Work {
        let kind = WorkKind::Step(StepWork { step, kind });
        let (lo, hi) = (0, strip);
        Work { lo, hi, kind }
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self.kind, WorkKind::Write(_))
    }

    /// See [`WriteWork::streamed_bytes`].
    pub(crate) fn streamed_bytes(&self) -> Option<u64> {
        match &self.kind {
            WorkKind::Write(write) => write.streamed_bytes(),
            _ => None,
        }
    }

    /// Only reads, and writes nothing back.
    pub(crate) fn shared(&self) -> bool {
        matches!(&self.kind, WorkKind::Read(read) if read.shared())
    }

    /// Takes the pieces of another write.
    pub(crate) fn absorb(&mut self, other: Work) {
        if let (WorkKind::Write(write), WorkKind::Write(mut more)) = (&mut self.kind, other.kind) {
            write.pieces.extend(more.pieces.drain());
            write.stream |= more.stream;
            self.lo = self.lo.min(other.lo);
            self.hi = self.hi.max(other.hi);
        }
    }
}
