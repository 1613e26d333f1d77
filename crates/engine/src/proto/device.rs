//! Devices as the caller offers them: members found at a start, new ones, ones that come back.
//!
//! Invariant: all that the engine knows of a device before its first I/O stands here; it looks
//! nothing up. Deliberately absent: what becomes of them (`array::start::assemble`,
//! `array::members`, `array::members::rejoin`).

use strake_format::{LogBatch, MapPage, MemberUuid, Superblock, UnreadableList};

use crate::units::DeviceId;

/// What the engine must know of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Size, bytes.
    pub bytes: u64,
    /// Logical block, bytes.
    pub block_bytes: u32,
    /// Preferred write granularity (NPWG, minimum_io_size), bytes; 0 if not known.
    pub granularity_bytes: u32,
    /// It has a volatile write cache.
    pub volatile_cache: bool,
    /// It moves data from and to memory by itself, past the CPU and its caches.
    pub dma: bool,
}

/// A member found at start, its metadata read by the caller.
#[derive(Clone, Debug)]
pub struct Found {
    /// The caller's number for it.
    pub device: DeviceId,
    /// Its properties.
    pub info: DeviceInfo,
    /// The newer of its superblock copies.
    pub superblock: Superblock,
    /// Which of its copies is written over first: see [`strake_format::copy_to_replace`].
    pub copy_to_replace: usize,
    /// Where a copy of its superblock should lie and nothing does: see
    /// [`strake_format::lost_copy`].
    pub emptied: Option<u64>,
    /// The newest valid version of each region map page, `None` where neither place was valid.
    pub map: Vec<Option<MapPage>>,
    /// Of each page whether that is the newest version that the member had: see
    /// [`strake_format::region_map::is_whole`].
    pub map_whole: Vec<bool>,
    /// What the two places of the list of unreadable blocks hold, `None` where it is not valid.
    pub unreadable: [Option<UnreadableList>; 2],
    /// What a [`crate::log::scan::Gather`] kept of its log area; needed only where
    /// [`crate::log::scan::log_base`] says so.
    pub log: Vec<LogBatch>,
}

/// A device offered as a new member or spare.
#[derive(Clone, Debug)]
pub struct NewDevice {
    /// The caller's number for it.
    pub device: DeviceId,
    /// Its properties.
    pub info: DeviceInfo,
    /// A fresh random identity, drawn by the caller.
    pub member: MemberUuid,
}

/// Parities that are to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fewer {
    /// So many.
    pub parities: usize,
    /// The last one of all may be among them: no member may be lost any more then.
    pub last: bool,
}

impl Fewer {
    /// So many, and never the last one.
    pub fn of(parities: usize) -> Fewer {
        let last = false;
        Fewer { parities, last }
    }
}

/// What is to be another in the shape to which data moves, besides columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataShape {
    /// Strips of so many bytes.
    pub strip_bytes: Option<u32>,
    /// Groups of so many members: one, if these are all of them. Otherwise groups stay as large as
    /// they are, where there are several.
    pub group_size: Option<u8>,
    /// Parities that were added rotate like others. They do in groups, asked for or not.
    pub rotate: bool,
    /// Parities are to go, of which fewer were added: so many do not rotate any more, until all has
    /// moved and they go. Not together with anything else.
    pub fewer: Fewer,
}

/// The shape to which data is to move.
#[derive(Clone, Debug, Default)]
pub struct NewShape {
    /// Members, one more for each of these devices.
    pub devices: Vec<NewDevice>,
    /// What else is to be another.
    pub data: DataShape,
}

/// A device that carries a superblock of the array, and may be a member that was away.
#[derive(Clone, Debug)]
pub struct Returning {
    /// The caller's number for it.
    pub device: DeviceId,
    /// Its properties.
    pub info: DeviceInfo,
    /// The newer of its superblock copies.
    pub superblock: Box<Superblock>,
    /// The newest valid version of each region map page, by its own superblock.
    pub map: Vec<Option<MapPage>>,
    /// Which copy is to be written first: [`strake_format::copy_to_replace`].
    pub copy_to_replace: usize,
    /// Where a copy of its superblock should lie and nothing does: see
    /// [`strake_format::lost_copy`].
    pub emptied: Option<u64>,
}
