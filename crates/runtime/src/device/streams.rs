//! Write streams: to which placement handle of a drive (NVMe FDP) a write goes.
//!
//! A drive with placement handles fills erase blocks of their own from each. Linux (6.16 and later)
//! numbers those of a namespace from 1, its write streams; what has number 0 goes where the drive
//! puts it by itself, which is the first of them.
//!
//! Invariants:
//! * A number that the kernel does not offer is never passed on: it would refuse the write, and a
//!   kernel that knows no write streams may, too.
//! * Nothing but the lifetime of erase blocks depends on it: what is written without is as durable.
//!
//! Deliberately absent: which handles other namespaces of the drive use.

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use strake_engine::event::WritePurpose;

/// The write streams of an opened device.
#[derive(Debug, Default)]
pub(crate) struct WriteStreams {
    count: AtomicU8,
}

impl WriteStreams {
    /// So many.
    pub(crate) fn of(count: u8) -> WriteStreams {
        WriteStreams {
            count: AtomicU8::new(count),
        }
    }

    /// The stream of such a write; 0 for none.
    ///
    /// Streams are given to what gains most first. A rebuild is the most bytes that live longest:
    /// beside what is overwritten it leaves half-dead erase blocks behind, one for each that it
    /// fills. The log is overwritten soonest, and all of it; metadata is alike, and little. Parity
    /// of small writes is overwritten as often as all data columns of its stripe together.
    pub(crate) fn stream(&self, purpose: WritePurpose) -> u8 {
        let number = match purpose {
            WritePurpose::Data => 0,
            WritePurpose::Rebuild => 2,
            WritePurpose::Log | WritePurpose::Metadata => 3,
            WritePurpose::Parity => 4,
        };
        match number <= self.count.load(Ordering::Relaxed) {
            true => number,
            false => 0,
        }
    }

    /// As if the kernel had offered so many.
    #[cfg(test)]
    pub(crate) fn pretend(&self, count: u8) {
        self.count.store(count, Ordering::Relaxed);
    }

    /// The device has refused one: it offers them no more.
    pub(crate) fn forget(&self) -> bool {
        self.count.swap(0, Ordering::Relaxed) > 0
    }
}

/// Write streams that the kernel offers for a block device. For a partition it offers none,
/// whatever its drive has.
pub(super) fn offered(sysfs: &Path) -> u8 {
    let count = std::fs::read_to_string(sysfs.join("queue/max_write_streams"));
    let count = count
        .ok()
        .and_then(|count| count.trim().parse::<u64>().ok());
    count.unwrap_or(0).min(u8::MAX.into()) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [WritePurpose; 5] = [
        WritePurpose::Data,
        WritePurpose::Parity,
        WritePurpose::Log,
        WritePurpose::Metadata,
        WritePurpose::Rebuild,
    ];

    #[test]
    fn no_stream_is_passed_on_that_is_not_offered_and_a_rebuild_gets_the_first() {
        for (count, streams) in [
            (0, [0, 0, 0, 0, 0]),
            (1, [0, 0, 0, 0, 0]),
            (2, [0, 0, 0, 0, 2]),
            (3, [0, 0, 3, 3, 2]),
            (4, [0, 4, 3, 3, 2]),
            (255, [0, 4, 3, 3, 2]),
        ] {
            let of = WriteStreams::of(count);
            assert_eq!(ALL.map(|purpose| of.stream(purpose)), streams, "{count}");
            assert_eq!((of.forget(), of.forget()), (count > 0, false));
            assert_eq!(ALL.map(|purpose| of.stream(purpose)), [0; 5]);
        }
    }

    #[test]
    fn streams_are_those_of_the_device_itself() {
        let dir = tempfile::tempdir().expect("folder");
        let part = dir.path().join("nvme0n1p1");
        let queue = dir.path().join("queue");
        std::fs::create_dir(&part).expect("folder");
        std::fs::create_dir(&queue).expect("folder");
        assert_eq!(offered(dir.path()), 0, "an older kernel");
        for (value, count) in [("0\n", 0), ("8\n", 8), ("128\n", 128), ("300\n", 255)] {
            std::fs::write(queue.join("max_write_streams"), value).expect("written");
            assert_eq!((offered(dir.path()), offered(&part)), (count, 0));
        }
    }
}
