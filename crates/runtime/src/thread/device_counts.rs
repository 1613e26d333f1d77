//! How many I/Os each device of an array got, and their bytes: by one thread.
//!
//! Invariants: counting takes no lock and never fails; it allocates only when the first device of
//! another [`IN_PART`] is used. A device beyond the last part is not counted: an array has got so
//! many devices in its life that their numbers are used up. Deliberately absent: how long they took
//! (the engine knows).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use strake_engine::event::{IoKind, MemberIo};
use strake_engine::units::DeviceId;

/// Devices of a part.
const IN_PART: usize = 64;
const PARTS: usize = 64;

/// I/Os that a device got, those of jobs, log and metadata too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Reads.
    pub reads: u64,
    /// Bytes that they were asked for.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes given to them.
    pub written_bytes: u64,
}

impl std::ops::AddAssign for DeviceCounts {
    fn add_assign(&mut self, other: DeviceCounts) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
    }
}

#[derive(Debug, Default)]
struct Counter {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

/// Written by one thread, read by any. See the module.
#[derive(Debug)]
pub(crate) struct PerDevice([OnceLock<Box<[Counter; IN_PART]>>; PARTS]);

fn part() -> Box<[Counter; IN_PART]> {
    Box::new(std::array::from_fn(|_| Counter::default()))
}

impl Default for PerDevice {
    /// With the first part, so that the devices that an array begins with cost no memory later.
    fn default() -> PerDevice {
        let parts = std::array::from_fn(|_| OnceLock::new());
        let _first = parts[0].get_or_init(part);
        PerDevice(parts)
    }
}

impl PerDevice {
    /// Counts a member I/O that is started.
    pub(crate) fn count(&self, io: &MemberIo) {
        let (at, within) = (
            io.device.0 as usize / IN_PART,
            io.device.0 as usize % IN_PART,
        );
        let Some(cell) = self.0.get(at) else { return };
        let counter = &cell.get_or_init(part)[within];
        match &io.kind {
            IoKind::Read { len, .. } | IoKind::ReadInPlace { len, .. } => {
                bump(&counter.reads, 1);
                bump(&counter.read_bytes, *len as u64);
            }
            IoKind::Write { data, .. } => {
                bump(&counter.writes, 1);
                bump(&counter.written_bytes, data.len as u64);
            }
            IoKind::WriteZeroes { .. } | IoKind::Discard { .. } | IoKind::Flush => {}
        }
    }

    /// The counts of a device at this moment.
    pub(crate) fn of(&self, device: DeviceId) -> DeviceCounts {
        let cell = self.0.get(device.0 as usize / IN_PART);
        let Some(part) = cell.and_then(OnceLock::get) else {
            return DeviceCounts::default();
        };
        let counter = &part[device.0 as usize % IN_PART];
        DeviceCounts {
            reads: counter.reads.load(Ordering::Relaxed),
            read_bytes: counter.read_bytes.load(Ordering::Relaxed),
            writes: counter.writes.load(Ordering::Relaxed),
            written_bytes: counter.written_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Adds to a counter that no other thread writes.
fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use strake_engine::buffers::{Buf, Slice};
    use strake_engine::event::WritePurpose;
    use strake_engine::units::IoId;

    use super::*;

    #[test]
    fn each_device_has_counts_of_its_own_and_numbers_without_a_place_have_none() {
        let all = PerDevice::default();
        let write = |device: u32, len: usize| {
            let kind = IoKind::Write {
                offset: 0,
                data: Slice::new(Buf::zeroed(8192), 0, len),
                fua: false,
                purpose: WritePurpose::Data,
            };
            let device = DeviceId(device);
            let io = IoId(0);
            all.count(&MemberIo { io, device, kind });
        };
        let flush = MemberIo {
            io: IoId(0),
            device: DeviceId(3),
            kind: IoKind::Flush,
        };
        all.count(&flush);
        for (device, len) in [
            (3, 4096),
            (3, 512),
            (67, 8192),
            (4096, 512),
            (u32::MAX, 512),
        ] {
            write(device, len);
        }
        let written = |device| {
            let counts = all.of(DeviceId(device));
            (counts.writes, counts.written_bytes)
        };
        assert_eq!((written(3), written(67)), ((2, 4608), (1, 8192)));
        for other in [0, 66, 4095, 4096, u32::MAX] {
            assert_eq!(written(other), (0, 0), "{other}");
        }
    }
}
