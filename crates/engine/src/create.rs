//! Making an array: what a new array is, checked, and the bytes to write on each member.
//!
//! Pure: the caller does the writes (the second superblock copy last, then a flush of every member).
//! Deliberately absent: looking at what is on the devices (mounts, signatures); the caller does that first.

use strake_format::*;

use crate::event::DeviceInfo;

/// What to make.
#[derive(Clone, Debug)]
pub struct CreateSpec {
    /// Random identity of the array, drawn by the caller.
    pub array: ArrayUuid,
    /// Its name.
    pub name: ArrayName,
    /// Its level.
    pub level: Level,
    /// Bytes of a strip; `None`: the largest that keeps a full data stripe at or under 1 MiB, at least
    /// 16 KiB and the members' write granularity.
    pub strip_bytes: Option<u32>,
    /// Members of a group, for the grouped levels (10 defaults to 2).
    pub group_size: Option<u8>,
    /// Logical block: 512 or 4096; `None`: the members' largest.
    pub block_bytes: Option<u32>,
    /// Write-hole policy.
    pub write_hole: WriteHole,
    /// What the members hold at first.
    pub init: Init,
    /// Seconds since the Unix epoch.
    pub created_unix_s: u64,
    /// Members, one for each slot in order, with identities drawn by the caller.
    pub members: Vec<(DeviceInfo, MemberUuid)>,
    /// Spares.
    pub spares: Vec<(DeviceInfo, MemberUuid)>,
    /// Layout of the simulator: small alignment, log and regions.
    pub tiny: Option<Tiny>,
}

/// Small layout for small members.
#[derive(Clone, Copy, Debug)]
pub struct Tiny {
    /// Alignment of the data area, bytes.
    pub align_bytes: u64,
    /// Bytes of the log area.
    pub log_bytes: u64,
    /// Bytes of a region on each member.
    pub region_bytes: u64,
}

/// State of the regions of a new array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// Unwritten; each region is zeroed on every member before its first write.
    Lazy,
    /// The caller has zeroed (or deallocated to zeros) every member's data area: Clean.
    Zeroed,
    /// Parity unknown: a resync makes it true while the array serves.
    Sync,
    /// The administrator swears that parity is true.
    AssumeClean,
}

/// The bytes of a new array.
#[derive(Clone, Debug)]
pub struct CreatePlan {
    /// Superblock of every member, then of every spare.
    pub superblocks: Vec<Superblock>,
    /// Writes for the same, in the same order: (offset on the device, bytes), to be done in this order.
    pub writes: Vec<Vec<(u64, Vec<u8>)>>,
    /// Size of the block device, bytes.
    pub size_bytes: u64,
}

/// Why an array cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// Fewer members than the level needs.
    #[error("level {level} needs at least {needs} members, {has} were given")]
    TooFew {
        /// The level.
        level: Level,
        /// At least.
        needs: usize,
        /// Given.
        has: usize,
    },
    /// More members than the level or the format allows.
    #[error("level {level} takes at most {max} members, {has} were given")]
    TooMany {
        /// The level.
        level: Level,
        /// At most.
        max: usize,
        /// Given.
        has: usize,
    },
    /// More than sixteen spares.
    #[error("at most 16 spares, {0} were given")]
    TooManySpares(usize),
    /// Strip not a power of two within 4 KiB and 1 MiB.
    #[error("a strip is a power of two from 4096 to 1048576 bytes, {0} is not")]
    Strip(u64),
    /// Strip smaller than the logical block.
    #[error("the strip of {strip} bytes is not a multiple of the members' write granularity, {granularity}")]
    StripGranularity {
        /// The strip.
        strip: u32,
        /// The members' granularity.
        granularity: u32,
    },
    /// A group size for a level without groups.
    #[error("level {0} has no groups")]
    NoGroups(Level),
    /// A grouped level without a group size.
    #[error("level {0} needs a group size")]
    GroupSizeMissing(Level),
    /// The group size does not divide the number of members, or is too small for the level.
    #[error("a group of {group} does not fit {members} members of level {level} (at least {needs} a group)")]
    GroupSize {
        /// The level.
        level: Level,
        /// Asked for.
        group: u8,
        /// Members given.
        members: usize,
        /// Smallest group of the level.
        needs: usize,
    },
    /// Logical block other than 512 or 4096.
    #[error("a logical block has 512 or 4096 bytes, not {0}")]
    Block(u32),
    /// Members of different logical block size.
    #[error("members have different logical block sizes: {0} and {1} bytes")]
    MixedBlocks(u32, u32),
    /// Logical block smaller than a member's.
    #[error("a logical block of {asked} bytes is smaller than the members' {has}")]
    BlockTooSmall {
        /// Asked for.
        asked: u32,
        /// The members'.
        has: u32,
    },
    /// A member too small for any data.
    #[error("member {index} is too small: {source}")]
    Layout {
        /// Position in the list, members then spares.
        index: usize,
        /// What does not fit.
        source: LayoutError,
    },
}

/// Checks `spec` and lays the array out.
pub fn plan(_spec: &CreateSpec) -> Result<CreatePlan, CreateError> {
    todo!()
}
