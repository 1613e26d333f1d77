//! The ring entry of an I/O.
//!
//! Invariant: an entry names memory of its work, or the zeros that the caller keeps, and no other.
//! Deliberately absent: entries of what is merged (`merge`).

use io_uring::{opcode, squeue, types};
use strake_engine::buffers::Slice;

use super::{PUNCH, Work};
use crate::memory::buffers::Registered;
use crate::ring::File;

/// The kernel moves at most this much in one entry (it cuts at 2 GiB less a page), bytes.
pub(super) const TRANSFER_MAX: usize = 1 << 30;

/// The ring entry for what is left of `work`; for a read or a write with this flag, and so many
/// bytes at most.
pub(super) fn entry(
    work: &mut Work,
    file: File,
    (flag, most): (i32, usize),
    registered: &Registered,
    zeros: &Slice,
) -> squeue::Entry {
    let fd = file.fd();
    let built = match work {
        Work::Read {
            offset,
            buf,
            start,
            len,
            done,
        } => {
            let index = registered.index(buf);
            let rest = &mut buf.bytes_mut()[*start + *done..*start + *len];
            let (base, count) = (rest.as_mut_ptr(), rest.len().min(most) as u32);
            let at = *offset + *done as u64;
            match index {
                Some(index) => opcode::ReadFixed::new(fd, base, count, index)
                    .offset(at)
                    .rw_flags(flag)
                    .build(),
                None => opcode::Read::new(fd, base, count)
                    .offset(at)
                    .rw_flags(flag)
                    .build(),
            }
        }
        Work::ReadInPlace {
            offset,
            borrowed,
            at,
            len,
            done,
        } => {
            // A request's pages have no address of ours: they begin at 0.
            let base = (*at + *done as u64) as usize as *mut u8;
            let count = (*len - *done).min(most) as u32;
            opcode::ReadFixed::new(fd, base, count, borrowed.index)
                .offset(*offset + *done as u64)
                .rw_flags(flag)
                .build()
        }
        Work::Write {
            offset,
            data,
            fua,
            stream,
            done,
        } => {
            let index = registered.index(&data.buf);
            let rest = &data.bytes()[*done..];
            let rest = &rest[..rest.len().min(most)];
            let how = (write_flags(*fua) | flag, *stream);
            write_entry(fd, rest, index, *offset + *done as u64, how)
        }
        Work::Flush => opcode::Fsync::new(fd)
            .flags(types::FsyncFlags::DATASYNC)
            .build(),
        Work::Range { offset, len, .. } => opcode::Fallocate::new(fd, *len)
            .offset(*offset)
            .mode(PUNCH)
            .build(),
        Work::Zeros { offset, len, done } => {
            let part = (*len - *done).min(zeros.len as u64) as usize;
            let part = part.min(most);
            write_entry(fd, &zeros.bytes()[..part], None, *offset + *done, (flag, 0))
        }
    };
    file.mark(built)
}

pub(super) fn write_flags(fua: bool) -> i32 {
    if fua { libc::RWF_DSYNC } else { 0 }
}

/// `how`: its flags, and its write stream.
fn write_entry(
    fd: types::Fd,
    bytes: &[u8],
    index: Option<u16>,
    at: u64,
    (flags, stream): (i32, u8),
) -> squeue::Entry {
    let (base, count) = (bytes.as_ptr(), bytes.len() as u32);
    match index {
        Some(index) => opcode::WriteFixed::new(fd, base, count, index)
            .offset(at)
            .rw_flags(flags)
            .write_stream(stream)
            .build(),
        None => opcode::Write::new(fd, base, count)
            .offset(at)
            .rw_flags(flags)
            .write_stream(stream)
            .build(),
    }
}
