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
    /// Compute a piece that its member cannot give, and answer those beside it from what that
    /// takes.
    Read {
        /// All within the bytes `lo..hi`.
        pieces: ReadPieces,
        avoid: Vec<Bad>,
        heal: Columns,
        /// Copies may differ: what is answered is made durable on all of them first.
        equalize: bool,
        /// The piece is asked for twice.
        race: Option<Racing>,
    },
    Write {
        pieces: WritePieces,
        /// A piece belongs to a sequential stream.
        stream: bool,
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
    /// Stands where there is no work.
    pub(crate) fn nothing() -> Work {
        Work {
            lo: 0,
            hi: 0,
            kind: WorkKind::Write {
                pieces: WritePieces::new(),
                stream: false,
            },
        }
    }

    pub(crate) fn read(pieces: ReadPieces, lo: u64, hi: u64, avoid: Vec<Bad>) -> Work {
        let heal = Columns::default();
        Work {
            lo,
            hi,
            kind: WorkKind::Read {
                pieces,
                avoid,
                heal,
                equalize: false,
                race: None,
            },
        }
    }

    /// The same read, of copies that may differ.
    pub(crate) fn equalizing(mut self) -> Work {
        if let WorkKind::Read { equalize, .. } = &mut self.kind {
            *equalize = true;
        }
        self
    }

    /// The same read, which also rewrites these columns.
    pub(crate) fn healing(mut self, media: Columns) -> Work {
        if let WorkKind::Read { heal, .. } = &mut self.kind {
            *heal = media;
        }
        self
    }

    pub(crate) fn write(piece: WritePiece, stream: bool) -> Work {
        Work {
            lo: piece.lo,
            hi: piece.hi,
            kind: WorkKind::Write {
                pieces: List::of(piece),
                stream,
            },
        }
    }

    /// Zeroes bytes `lo..hi` of every strip.
    pub(crate) fn zero(request: usize, lo: u64, hi: u64, fua: bool) -> Work {
        Work {
            lo,
            hi,
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

    /// All that it writes is zeros that a request asks for.
    pub(crate) fn only_zeros(&self) -> bool {
        match &self.kind {
            WorkKind::Write { pieces, .. } => pieces.iter().all(|piece| piece.zeros),
            WorkKind::Zero { .. } => true,
            WorkKind::Read { .. } | WorkKind::Step { .. } => false,
        }
    }

    /// Of work that belongs to a stream, and that nobody wants to be durable before anything else, the bytes
    /// that it writes.
    pub(crate) fn streamed_bytes(&self) -> Option<u64> {
        match &self.kind {
            WorkKind::Write {
                pieces,
                stream: true,
            } if pieces.iter().all(|piece| !piece.fua) => {
                Some(pieces.iter().map(|piece| piece.hi - piece.lo).sum())
            }
            _ => None,
        }
    }

    /// Only reads, and writes nothing back.
    pub(crate) fn shared(&self) -> bool {
        matches!(&self.kind, WorkKind::Read { heal, equalize: false, .. } if heal.is_empty())
    }

    /// Takes the pieces of another write.
    pub(crate) fn absorb(&mut self, other: Work) {
        if let (
            WorkKind::Write { pieces, stream },
            WorkKind::Write {
                pieces: mut more,
                stream: streams,
            },
        ) = (&mut self.kind, other.kind)
        {
            pieces.extend(more.drain());
            *stream |= streams;
            self.lo = self.lo.min(other.lo);
            self.hi = self.hi.max(other.hi);
        }
    }
}
