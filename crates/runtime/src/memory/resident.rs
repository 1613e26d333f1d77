//! Memory that is there before it is needed, so that a thread that serves I/O need not wait for it.
//!
//! Where memory is short, a page is had by writing another one back, perhaps to the very array that
//! waits for the page: both wait for ever. So pools are filled when they are made (`Pool`), and
//! here the rest is had at the start: the program, the stack of each shard, and a part of the heap
//! that a shard grows into under its first load and that the process does not give back.
//!
//! Without CAP_IPC_LOCK or a large RLIMIT_MEMLOCK the array serves all the same, and `doctor` says
//! that memory is not locked.
//!
//! The kernel's threads for I/O that would block are had elsewhere, too: reads and writes are
//! refused instead (`member_io::room`), and another thread submits calls (`ring::calls`).
//!
//! What io_uring keeps for requests is had at the start as well (`Ring::with_requests`).
//!
//! Deliberately absent: what the block layer and a device's driver allocate for each I/O. The block
//! layer has pools for it; not every driver has.

use std::fs;
use std::hint::black_box;
use std::io::Error;

use rustix::mm::Advice;

/// Heap that a shard finds free when it begins, bytes: more than twice what its tables grow by
/// under the heaviest load that was measured (small and long writes at a depth of 64).
const HEAP: usize = 2 << 20;
/// It is had in pieces that the allocator does not map one by one, bytes.
const PIECE: usize = 64 << 10;
/// What the allocator maps by itself is at least so long, bytes: tables that grow stay in the heap.
const MAPPED: i32 = 512 << 10;
/// So much of a heap may be free before the allocator gives memory back, bytes: more than a shard
/// has at its start, and little enough that what many requests took goes back.
const KEPT: i32 = 4 << 20;
/// Stack that a shard may use, bytes.
const STACK: usize = 256 << 10;

/// Heap of a shard, bytes: what it has at its start, and as much again that the allocator takes
/// ahead.
pub(super) const OF_SHARD: u64 = 2 * HEAP as u64;
/// Of a limit of the process's memory one heap of the allocator is made for so many bytes, as a
/// power of two: each takes 64 MiB of the address space.
const EACH_HEAP: u32 = 28;

/// Has the allocator make few heaps where a limit bounds the process's memory: those of many
/// threads would take the address space. To be called before there are threads.
pub fn bound_heaps() {
    let Some(limit) = super::tightest_limit() else {
        return;
    };
    let heaps = (limit >> EACH_HEAP).clamp(1, 64) as i32;
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes no pointers and changes no memory content.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, heaps)
    };
    tracing::debug!(heaps, "a limit bounds the heaps of threads");
}

/// Keeps the process's memory out of swap once touched, and has its program in memory.
pub(crate) fn lock_memory() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_MMAP_THRESHOLD, MAPPED),
        (libc::M_TRIM_THRESHOLD, KEPT),
        // Of the heap of a thread other than the first, this is what is kept.
        (libc::M_TOP_PAD, KEPT),
    ] {
        // SAFETY: mallopt takes no pointers and changes no memory content.
        unsafe { libc::mallopt(parameter, value) };
    }
    let flags = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    // SAFETY: mlockall takes no pointers and changes no memory content.
    if unsafe { libc::mlockall(flags) } != 0 {
        tracing::debug!(error = %Error::last_os_error(), "memory is not locked");
    }
    for (start, bytes) in program() {
        // SAFETY: the advice reads pages of files in, and changes no content.
        let read = unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxPopulateRead) };
        if let Err(error) = read {
            tracing::debug!(%error, "the program is read when it is needed");
            break;
        }
    }
}

/// The mappings of files that the program runs from.
fn program() -> Vec<(*mut libc::c_void, usize)> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter_map(of_a_file).collect()
}

/// A line of `/proc/self/maps`: `start-end flags offset device inode path`, if it maps a file that
/// can be read.
fn of_a_file(line: &str) -> Option<(*mut libc::c_void, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let flags = fields.next()?;
    let path = fields.nth(3)?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let is_file = path.starts_with('/') && !path.starts_with("/dev/");
    (is_file && flags.starts_with('r')).then(|| {
        let at = std::ptr::with_exposed_provenance_mut(start);
        (at, end.saturating_sub(start))
    })
}

/// Takes the calling thread's stack, and heap for what it will allocate from now on.
pub(crate) fn have_stack_and_heap() {
    touch_stack();
    let pieces: Vec<Vec<u8>> = (0..HEAP / PIECE).map(|_| vec![1; PIECE]).collect();
    drop(black_box(pieces));
}

#[inline(never)]
fn touch_stack() {
    black_box(&mut [1u8; STACK]);
}

/// Says to the kernel that this thread (and those that it starts) serves I/O: memory that it
/// allocates must not be waited for by writing pages back through the very device that it serves.
/// Needs CAP_SYS_RESOURCE; without it the array serves all the same.
pub(crate) fn declare_io_flusher() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!(%error, "not declared an I/O flusher");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_files_are_told_from_others() {
        let file = "7f10-7f30 r-xp 00000000 08:01 17 /usr/bin/strake";
        assert_eq!(of_a_file(file).map(|(_, bytes)| bytes), Some(0x20));
        for other in [
            "7f10-7f30 ---p 00000000 08:01 17 /usr/lib/libc.so.6",
            "7f10-7f30 rw-p 00000000 00:00 0 ",
            "7f10-7f30 rw-p 00000000 00:00 0 [heap]",
            "7f10-7f30 rw-s 00000000 00:06 17 /dev/ublkc0",
            "",
        ] {
            assert_eq!(of_a_file(other), None, "{other}");
        }
        assert!(!program().is_empty());
    }
}
