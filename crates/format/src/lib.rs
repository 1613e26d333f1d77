//! What lies on a member of a Strake array: bytes to values and back, no I/O.
//!
//! A member carries, in this order: a first superblock, the region map and the list of unreadable
//! blocks (two places for each), the stripe log, the data, and a last superblock. The data of an
//! array that is carved begins with a table of volumes. A device that waits in a pool of spares
//! carries a label instead. The tables of bytes stand in `docs/explanation/on-disk-format.md`.
//!
//! Invariants:
//! * A value that came out of `decode` is valid by type: the checksum was right, the block was
//!   where it says it belongs, and every field made sense together with the others.
//! * `decode` and `scan` survive any bytes: they answer an error, never a panic.
//! * `encode` of an invalid value is a programmer's error and asserts: nothing senseless becomes
//!   durable.
//! * Zero is never the code of a meaning in a durable enumeration, except where "never written" is
//!   the meaning.
//!
//! **Architecture Invariant:** this crate does no I/O, knows no clock, draws no random number, and
//! depends on no other crate of the workspace. Examining a member offline needs nothing else.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod error;
pub mod identity;
pub mod layout;
pub mod level;
pub mod log;
pub mod moving;
pub mod pool;
pub mod region_map;
pub mod scrub;
pub mod select;
pub mod sessions;
pub mod settings;
pub mod superblock;
pub mod unreadable;
pub mod volumes;

pub use error::{
    Area, Invalid, LayoutError, LevelError, LogError, MapError, NameError, ParseError, SelectError,
    ShapeError, SuperblockError, UnreadableError,
};
pub use identity::{
    ArrayName, ArrayUuid, Epoch, Generation, MemberUuid, PoolUuid, Slot, VolumeUuid, WriteHole,
};
pub use layout::{Layout, LayoutParams};
pub use level::Level;
pub use log::{BatchHead, BatchSize, LogBatch, LogPayload, LogRecord};
pub use moving::Moving;
pub use pool::{POOL_LABEL_BYTES, PoolLabel, PoolLabelError};
pub use region_map::{MapPage, RegionState};
pub use scrub::{ScrubCounts, ScrubMode, ScrubPeriod, ScrubRecord, ScrubResult};
pub use select::{
    CopyStatus, Finding, Past, Returns, Selection, SuperblockBytes, copy_to_replace, lost_copy,
    past, returns, select_array, select_copy, select_member,
};
pub use sessions::{SESSIONS_MAX, Session, Sessions};
pub use settings::Settings;
pub use superblock::{
    EDITIONS, Known, MEMBERS_MAX, Replacement, Role, SPARES_MAX, SUPERBLOCK_BYTES, SlotRecord,
    SlotState, Superblock,
};
pub use unreadable::UnreadableList;
pub use volumes::{
    ChosenTable, EXTENTS_MAX, Extent, VOLUME_AREA_BYTES, VOLUME_TABLE_BYTES, VOLUME_TABLE_OFFSETS,
    VOLUMES_MAX, Volume, VolumeTable, VolumeTableError, select_table,
};

/// The unit of everything durable that is not data: no structure is smaller, none starts elsewhere.
pub const BLOCK_BYTES: u64 = 4096;
/// The largest array: offsets of a block device are signed 64-bit numbers to the kernel.
pub const ARRAY_BYTES_MAX: u64 = i64::MAX as u64;
