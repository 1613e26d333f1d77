//! The kinds of stripe operations, each with what it alone needs.
//!
//! Invariant: a field has a meaning from the beginning of its operation to its end, whatever the
//! phase.
//!
//! Deliberately absent: what all kinds have (`op`), and what is asked before it begins (`work`).

use crate::mem::buffer::Slice;
use crate::mem::list::List;
use crate::proto::{RequestError, StepKind};
use crate::shard::op::work::{ReadWork, StepWork, WorkKind, WritePieces, WriteWork, ZeroWork};
use crate::shard::op::write::coverage;
use crate::shard::read::hedge::Racing;
use crate::stripe::write_plan::Coverage;
use crate::units::DeviceId;

/// What an operation does.
pub(crate) enum Kind {
    Read(ReadOp),
    Write(WriteOp),
    Zero(ZeroOp),
    Step(StepOp),
}

/// Pieces of reads that are computed, or read by an operation of their own.
pub(crate) struct ReadOp {
    pub(crate) asked: ReadWork,
    /// Its answer is out; what is left is the repair.
    pub(crate) answered: bool,
    /// Its answer, once all copies hold it.
    pub(crate) equalized: Option<Slice>,
}

/// For each data column what is written of it.
pub(crate) type Coverages = List<Option<Coverage>, 4>;

/// Pieces of writes.
pub(crate) struct WriteOp {
    pub(crate) asked: WriteWork,
    /// What is written of each data column.
    pub(crate) coverage: Coverages,
    /// It reads nothing before its region is open.
    pub(crate) patient: bool,
}

/// A run of every column becomes zeros.
pub(crate) struct ZeroOp {
    pub(crate) asked: ZeroWork,
    /// Nothing is written, and this is the answer.
    pub(crate) refused: Option<RequestError>,
}

/// A stripe of a step of a job.
pub(crate) struct StepOp {
    pub(crate) asked: StepWork,
    /// Incoming members that a rebuild writes.
    pub(crate) targets: Vec<DeviceId>,
    /// Its region was given back.
    pub(crate) skipped: bool,
    pub(crate) found_inconsistent: bool,
}

impl Kind {
    /// No operation.
    pub(crate) fn nothing() -> Kind {
        let (pieces, stream) = (WritePieces::new(), false);
        Kind::of(WorkKind::Write(WriteWork { pieces, stream }), 0)
    }

    /// It begins, in a stripe with so many data columns.
    pub(crate) fn of(asked: WorkKind, k: usize) -> Kind {
        match asked {
            WorkKind::Read(asked) => Kind::Read(ReadOp {
                asked,
                answered: false,
                equalized: None,
            }),
            WorkKind::Write(asked) => Kind::Write(WriteOp {
                coverage: coverage(k, &asked.pieces),
                asked,
                patient: false,
            }),
            WorkKind::Zero(asked) => Kind::Zero(ZeroOp {
                asked,
                refused: None,
            }),
            WorkKind::Step(asked) => Kind::Step(StepOp {
                asked,
                targets: Vec::new(),
                skipped: false,
                found_inconsistent: false,
            }),
        }
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Kind::Read(_))
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Kind::Write(_))
    }

    /// It changes what the user has written, so its region must be open.
    pub(crate) fn changes_data(&self) -> bool {
        matches!(self, Kind::Write(_) | Kind::Zero(_))
    }

    /// The step of a job that it belongs to.
    pub(crate) fn step(&self) -> Option<StepWork> {
        match self {
            Kind::Step(step) => Some(step.asked),
            _ => None,
        }
    }

    pub(crate) fn is_scrub(&self) -> bool {
        let step = self.step();
        step.is_some_and(|step| matches!(step.kind, StepKind::Scrub(_)))
    }

    /// Only reads, and writes nothing back.
    pub(crate) fn shared(&self) -> bool {
        matches!(self, Kind::Read(read) if read.asked.shared())
    }

    /// The side of a race that it is, if any.
    pub(crate) fn race(&self) -> Option<Racing> {
        match self {
            Kind::Read(read) => read.asked.race,
            _ => None,
        }
    }

    /// All that it writes is zeros that a request asks for.
    pub(crate) fn only_zeros(&self) -> bool {
        match self {
            Kind::Write(write) => write.asked.only_zeros(),
            Kind::Zero(_) => true,
            Kind::Read(_) | Kind::Step(_) => false,
        }
    }

    /// Something is wrong with the stripe of a step.
    pub(crate) fn note_inconsistent(&mut self, found: bool) {
        if let Kind::Step(step) = self {
            step.found_inconsistent = found;
        }
    }
}
