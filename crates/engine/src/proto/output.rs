//! What the machines want done, as data.
//!
//! Deliberately absent: how any of this is carried out.

use std::sync::Arc;

use crate::geometry::Geometry;
use crate::proto::*;
use crate::units::*;

/// What a shard wants done.
#[derive(Debug)]
pub enum ShardOutput {
    /// Do this I/O and complete it.
    Io(MemberIo),
    /// Answer this request.
    Reply(Reply),
    /// Bring this piece to the router that made it, which splits it anew
    /// ([`crate::Router::again`]): the array has another shape since.
    Again(Request),
    /// Bring this read to the shard that owns its stripe ([`crate::Shard::passed`]), and the member
    /// that is late with it, if one is.
    Pass(ShardNo, Request, Option<DeviceId>),
    /// Bring this to a shard ([`crate::Shard::turn`]).
    WriteToken(ShardNo, WriteToken),
    /// Bring this to the array.
    Message(FromShard),
}

/// What the array wants done.
#[derive(Debug)]
pub enum ArrayOutput {
    /// Do this I/O and complete it.
    Io(MemberIo),
    /// Answer this request (those that the router sends to the array).
    Reply(Reply),
    /// As [`ShardOutput::Again`].
    Again(Request),
    /// Bring this to one shard.
    Message(ShardNo, ToShard),
    /// A command is finished.
    Done {
        /// Which.
        id: CommandId,
        /// How.
        result: Result<Changed, CommandError>,
    },
    /// Something happened that a person may want to know.
    Event(Event),
    /// The device is not used any more: close it.
    Release(DeviceId),
    /// Answer to [`crate::Array::overdue`], for every thread that has I/Os of this device.
    Overdue(DeviceId, Verdict),
    /// The array serves: requests may be sent (first output after start).
    Started,
    /// The array has another shape, and every shard works by it: its users may be told.
    Reshaped(Arc<Geometry>),
    /// Everything is durable and quiet: devices may be closed.
    Stopped,
}

/// Whether a command changed something: verbs are idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It did.
    Yes,
    /// It was so already.
    No,
}

/// Why I/Os of a device are not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// They are overdue, after so many further deadlines.
    Overdue(u32),
    /// They are writes that there is no space for.
    NoSpace,
}

/// What becomes of overdue I/Os of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer those that are overdue with [`IoError::TimedOut`], and those that there is no space
    /// for with [`IoError::NoSpace`].
    GiveUp,
    /// Each gets another full deadline, and is reported again if that passes, too. What there was
    /// no space for is tried again after a pause.
    WaitOn,
}
