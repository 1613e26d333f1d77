//! Member I/Os: what the engine asks of a device, and what came of it.
//!
//! Deliberately absent: how an I/O is carried out, and when it is tried again (`retry`).

use crate::mem::buffer::{Buf, Slice};
use crate::units::*;

/// One I/O that the engine asks of a member. Offsets are absolute on the device, in bytes.
#[derive(Debug)]
pub struct MemberIo {
    /// Comes back in the [`Completion`].
    pub io: IoId,
    /// On which device.
    pub device: DeviceId,
    /// What to do.
    pub kind: IoKind,
}

/// What a member I/O does.
#[derive(Debug)]
pub enum IoKind {
    /// Fill `buf[start .. start + len]` from the device; `buf` is the runtime's until the
    /// completion brings it back.
    Read {
        /// Byte offset on the device.
        offset: u64,
        /// Where the bytes go, exclusively owned.
        buf: Buf,
        /// First byte of `buf` to fill (page aligned when `offset` is).
        start: usize,
        /// Bytes to read.
        len: usize,
    },
    /// Fill the place that a request has for its data (see
    /// [`Op::ReadInPlace`](crate::proto::Op::ReadInPlace)); no buffer is involved.
    ReadInPlace {
        /// Byte offset on the device.
        offset: u64,
        /// Bytes to read.
        len: usize,
        /// The piece that has the place.
        request: RequestId,
        /// First byte of the place to fill, counted as
        /// [`Op::ReadInPlace::at`](crate::proto::Op::ReadInPlace::at).
        at: u64,
    },
    /// Write the slice. With `fua` it is durable when it completes.
    Write {
        /// Byte offset on the device.
        offset: u64,
        /// What to write; dropped by the runtime before it completes the I/O.
        data: Slice,
        /// Durable at completion.
        fua: bool,
        /// What it is, for a drive that keeps apart what does not live equally long.
        purpose: WritePurpose,
    },
    /// Zeroes guaranteed afterwards; the range may be deallocated.
    WriteZeroes {
        /// Byte offset on the device.
        offset: u64,
        /// Bytes to zero; may be as long as a whole region.
        len: u64,
    },
    /// Advice that the range's content is not needed; its content afterwards is undefined.
    Discard {
        /// Byte offset on the device.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Everything that completed on this device before is durable when this completes.
    Flush,
}

/// What the bytes of a write are. A drive that has several placement handles puts each in erase
/// blocks of its own; the content and the place on the member say nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WritePurpose {
    /// Data columns in place: what a user writes, or a repair of it.
    Data,
    /// Parity columns in place, or a repair of them. Copies of a mirror are data.
    Parity,
    /// The stripe log: written in a circle, over and over.
    Log,
    /// Superblocks, the region map, lists of unreadable blocks: small, and rewritten in place.
    Metadata,
    /// What the array holds already, written in bulk to another place: to a member that is being
    /// rebuilt, or where a restripe moves it. It lives until a user writes it anew.
    Rebuild,
}

impl WritePurpose {
    /// Of a write in place, in a stripe with so many data columns.
    pub(crate) fn of_column(column: usize, k: usize, mirrored: bool) -> WritePurpose {
        match column >= k && !mirrored {
            true => WritePurpose::Parity,
            false => WritePurpose::Data,
        }
    }
}

/// A finished member I/O. The runtime completes every I/O exactly once, when it is not to be
/// repeated any more; one that outlasts its deadline is completed with [`IoError::TimedOut`] (and
/// no buffer: the runtime keeps it until the kernel lets go).
#[derive(Debug)]
pub struct Completion {
    /// Which.
    pub io: IoId,
    /// How it went.
    pub result: Result<(), IoError>,
    /// The buffer of a read, on success and on error, if the kernel has let go of it.
    pub buf: Option<Buf>,
}

/// Why a member I/O failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoError {
    /// Unreadable (or unwritable) medium: ENODATA, EILSEQ, or EIO of a device that is there to
    /// stay.
    Media,
    /// EIO without a cause, of a device that is still there. The caller that carries out I/Os waits
    /// and looks again ([`RetryPolicy::grace`](crate::RetryPolicy::grace)), and then returns `Gone`
    /// or `Media`.
    Unclear,
    /// The device is gone: ENODEV, ENXIO, or a closed device.
    Gone,
    /// The device has become smaller than it was when it was opened.
    Shrunk,
    /// No answer within the deadline.
    TimedOut,
    /// It did not reach the device, or the answer did not come back, however often it was tried
    /// ([`RetryPolicy`](crate::RetryPolicy)): with the errno of the last try. Whatever it was to
    /// write may be there in part, but nothing of it is under way any more.
    Transport(i32),
    /// The host had no means to send it, however often it was tried: nothing of it reached the
    /// device.
    Unsent(i32),
    /// No room: a full file system under a file member.
    NoSpace,
    /// Any other errno.
    Other(i32),
}

/// Stands where a flush should: an I/O that makes nothing durable.
pub(crate) fn read_of_nothing() -> IoKind {
    const LEN: usize = 4096;
    IoKind::Read {
        offset: 0,
        buf: Buf::zeroed(LEN),
        start: 0,
        len: LEN,
    }
}
