//! Newtypes of the engine: no two bare integers of different meaning side by side.
//!
//! Deliberately absent: conversions that guess. Byte offsets stay `u64` and are named `*_bytes` or
//! `offset` with their origin said at the field.

use std::fmt;

pub use strake_format::{Epoch, Generation, Slot};

/// A moment in nanoseconds since an origin that the caller chooses; it never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub u64);

impl Time {
    /// This moment plus `ms` milliseconds.
    pub fn plus_ms(self, ms: u64) -> Time {
        Time(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }
    /// Nanoseconds since `earlier`, zero if it lies later.
    pub fn since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A device as the runtime (or the simulator) numbers it: never used again for another device while
/// the array runs, so a late completion of a lost device is never taken for its successor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u32);

/// A member I/O in flight. Unique within the machine (array or shard) that issued it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// A request of the block device's user, numbered by the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A command of the administrator, numbered by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId(pub u64);

/// Number of a stripe in the array's address space: stripe s holds the bytes
/// `s·k·strip .. (s+1)·k·strip`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StripeNo(pub u64);

/// Row of a group: the strips at member data offset `row·strip`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(pub u64);

/// Number of a region of the region map; the same rows on every member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionNo(pub u32);

/// Index of a shard, 0-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardNo(pub u16);

impl fmt::Display for StripeNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stripe {}", self.0)
    }
}
