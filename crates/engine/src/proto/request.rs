//! Requests of the block device's user, and their answers.
//!
//! Invariant: every request is answered exactly once.

use crate::mem::buffer::Slice;
use crate::mem::list::List;
use crate::units::*;

/// A request of the block device's user. Offsets are bytes in the array's address space.
#[derive(Debug)]
pub struct Request {
    /// Comes back in the [`Reply`].
    pub id: RequestId,
    /// What is asked.
    pub op: Op,
}

/// What a request asks.
#[derive(Clone, Debug)]
pub enum Op {
    /// Read bytes.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes; a multiple of the logical block.
        len: u64,
    },
    /// Read bytes, for a request that has a place which members can fill by themselves. What one
    /// member alone can give goes there
    /// ([`IoKind::ReadInPlace`](crate::proto::IoKind::ReadInPlace)), and stands in the answer as a
    /// slice [in place](Slice::in_place); anything else is answered as a read.
    ReadInPlace {
        /// First byte.
        offset: u64,
        /// Bytes; a multiple of the logical block.
        len: u64,
        /// Which byte of the place that first byte is.
        at: u64,
    },
    /// Write the slice at `offset`; with `fua` it is durable when answered.
    Write {
        /// First byte.
        offset: u64,
        /// What to write; its length a multiple of the logical block.
        data: Slice,
        /// Durable when answered.
        fua: bool,
    },
    /// Everything answered before this request arrived is durable when it is answered.
    Flush,
    /// Advice: the content of the range is not needed any more. Afterwards each block reads as
    /// before or as zeros.
    Discard {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The range reads as zeros afterwards.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Durable when answered.
        fua: bool,
    },
}

/// The answer to a request; every request is answered exactly once.
#[derive(Debug)]
pub struct Reply {
    /// Which request.
    pub id: RequestId,
    /// For a read, slices that in order make up the range asked for; empty for everything else.
    pub result: Result<Slices, RequestError>,
}

/// Content in parts; mostly one.
pub type Slices = List<Slice>;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// Beyond the end, of length zero, or not aligned to the logical block (EINVAL).
    Invalid,
    /// More strips are lost or unreadable here than the level survives (EIO).
    Unreadable,
    /// The array has lost more members than the level survives; nothing was written (EIO).
    Failed,
    /// The array is stopping (ESHUTDOWN).
    Stopping,
}
