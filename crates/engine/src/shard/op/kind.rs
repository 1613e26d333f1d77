//! The kinds of stripe operations, each with what it alone needs, and their phases, each with what
//! is known only there.
//!
//! Invariant: a field of a kind has a meaning from the beginning of its operation to its end,
//! whatever the phase.
//!
//! Deliberately absent: what all kinds have (`op`), and what is asked before it begins (`work`).

use crate::geometry::column_set::Columns;
use crate::mem::buffer::Slice;
use crate::mem::list::List;
use crate::proto::{RequestError, StepKind};
use crate::shard::op::work::{ReadWork, StepWork, WorkKind, WritePieces, WriteWork, ZeroWork};
use crate::shard::op::write::coverage;
use crate::shard::read::hedge::Racing;
use crate::stripe::write_plan::{Coverage, Extra, Reads, WritePlan};
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

    /// Where the others cannot answer, it leaves that to the member that is late.
    pub(crate) fn is_hedge(&self) -> bool {
        self.race().is_some_and(|side| side.hedge)
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

/// How far an operation has come, with what is known only there.
#[derive(Debug)]
pub(crate) enum Phase {
    Gate,
    /// A read that cannot be computed waits until its region is given back, or trusted again.
    Parked,
    /// Has read, and waits until its region is open.
    HasRead(Plan),
    /// Waits for buffers, or has just got them.
    Buffers(Wanted),
    Reading {
        /// Columns that are read, over which part of the strip.
        reads: Reads,
        reads_for: ReadFor,
        /// One of them could not be read: the plan is made anew.
        failed: bool,
    },
    /// Of a rebuild: what lies before it is not written yet.
    AwaitToken(Plan),
    /// Records are on their way to the logs.
    Logging(Logging),
    /// A record failed: waits until the view has none of the devices; then the plan is made anew.
    LogView(Logging),
    Writing {
        /// Devices that failed a write.
        failed: Vec<DeviceId>,
    },
    /// A write failed: waits until the view has none of these devices.
    View {
        failed: Vec<DeviceId>,
    },
    /// Waits for an answer of the array.
    List(Answer),
    /// Waits until no record tells of what it is about to change.
    Retiring,
}

impl Phase {
    /// It writes, and nothing has failed.
    pub(crate) fn writing() -> Phase {
        Phase::Writing { failed: Vec::new() }
    }

    /// It waits at the gate of its region, or has not begun.
    pub(crate) fn at_gate(&self) -> bool {
        matches!(self, Phase::Gate | Phase::HasRead(_))
    }

    /// What was planned, once all that the plan reads has come.
    pub(crate) fn plan(&self) -> Plan {
        match self {
            Phase::Reading {
                reads_for: ReadFor::Plan(plan),
                ..
            }
            | Phase::HasRead(plan)
            | Phase::AwaitToken(plan) => *plan,
            _ => unreachable!("what is computed was planned and read"),
        }
    }

    /// It is computed, and waits before anything of it is in a log or in place: until records are
    /// retired, or until the list of unreadable blocks has room.
    pub(crate) fn waits_to_write(&self) -> bool {
        matches!(self, Phase::Retiring | Phase::List(_))
    }
}

/// What an operation wants to read, and buffers beyond those of the reads.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) reads: Reads,
    pub(crate) extra: Extra,
    pub(crate) reads_for: ReadFor,
}

/// What an operation reads for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadFor {
    Plan(Plan),
    /// What of columns that had a media error can be read.
    Narrow,
    /// What of its run can be read, block by block.
    Salvage,
}

/// How an operation is carried out, and what it was planned by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) how: WritePlan,
    /// The view then.
    pub(crate) view: u64,
    /// Columns that could not be read.
    pub(crate) lost: Columns,
    /// Parity columns that had a member.
    pub(crate) parity: Columns,
    /// Writes are logged.
    pub(crate) logging: bool,
}

/// Records on their way.
#[derive(Debug, Default)]
pub(crate) struct Logging {
    /// Columns that had a member when the records were made.
    pub(crate) held: Columns,
    /// Devices that failed to take them.
    pub(crate) failed: Vec<DeviceId>,
}

/// What an operation waits for from the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Whether a member is out; then it is planned anew.
    Verdict,
    /// What is lost is durably on the list of unreadable blocks; then something else is written
    /// there.
    Listed,
    /// The region is durably undecided; then what was computed from strips that do not agree is
    /// computed again and written.
    Undecided,
    /// The list keeps room for what is about to be written; then the write is planned anew.
    RoomKept,
    /// What was written has durably left the list; then it is over.
    Unlisted,
}
