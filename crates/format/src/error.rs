//! Everything that can be wrong with what was found: small `Copy` enums that say what was found.
//!
//! Invariants: no `String`, no allocation; "not ours", "damaged", "misplaced", "too new" and
//! "senseless" are never one and the same variant, because the cures differ.

use thiserror::Error;

use crate::identity::{ArrayUuid, Epoch, Generation, MemberUuid};

/// A text that names nothing of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// Neither 8-4-4-4-12 nor 32 hexadecimal digits.
    #[error("not a UUID")]
    Uuid,
    /// Not a write-hole policy.
    #[error("not one of closed, degraded, resync")]
    WriteHole,
}

/// What is wrong with an array's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// No character at all.
    #[error("the name is empty")]
    Empty,
    /// More than 32 bytes.
    #[error("the name has {bytes} bytes, more than 32")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The first character is neither letter nor digit.
    #[error("the name begins with {found:?}, neither a letter nor a digit")]
    First {
        /// The first character.
        found: char,
    },
    /// A character outside `[A-Za-z0-9._-]`.
    #[error("the name contains {found:?}, which is none of A-Z a-z 0-9 . _ -")]
    Character {
        /// The first such character.
        found: char,
    },
}

/// What is wrong with the name of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LevelError {
    /// No such level.
    #[error("not one of 0, 1, 5, 6, 7.3, 10, 50, 60, 70, N+M")]
    Unknown,
    /// N+M out of bounds.
    #[error("out of bounds: N is at least 1, M is 1 to 32, N+M is at most 64")]
    Bounds {
        /// Data strips.
        n: u8,
        /// Parities.
        m: u8,
    },
}

/// What is wrong with a level × members × group size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// The level itself.
    #[error(transparent)]
    Level(LevelError),
    /// N+M of another sum.
    #[error("level {n}+{m} has {} members, not {members}", u16::from(*n) + u16::from(*m))]
    MembersNotNm {
        /// Members found.
        members: u8,
        /// Data strips.
        n: u8,
        /// Parities.
        m: u8,
    },
    /// More than 64.
    #[error("at most 64 members, not {members}")]
    TooManyMembers {
        /// Members found.
        members: u8,
    },
    /// Fewer than the level needs.
    #[error("at least {members_min} members, not {members}")]
    TooFewMembers {
        /// Members found.
        members: u8,
        /// The fewest.
        members_min: u8,
    },
    /// Groups smaller than the level needs.
    #[error("groups of at least {group_min} members, not {group_size}")]
    GroupTooSmall {
        /// Members of a group.
        group_size: u8,
        /// The fewest.
        group_min: u8,
    },
    /// A group size where the level has no groups.
    #[error("a group size of {group_size} for {members} members of a level without groups")]
    NotGrouped {
        /// Members found.
        members: u8,
        /// Members of a group.
        group_size: u8,
    },
    /// Not two or more whole groups.
    #[error("{members} members do not make two or more whole groups of {group_size}")]
    Uneven {
        /// Members found.
        members: u8,
        /// Members of a group.
        group_size: u8,
    },
}

/// A part of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// The region map and the list of unreadable blocks.
    Map,
    /// The stripe log.
    Log,
    /// The data.
    Data,
}

/// What is wrong with the places on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// The strip is no power of two from 4 KiB to 1 MiB.
    #[error("a strip of {bytes} bytes is not a power of two from 4 KiB to 1 MiB")]
    Strip {
        /// The strip found.
        bytes: u32,
    },
    /// The data alignment is no power of two of at least 4 KiB (1 MiB in the product).
    #[error("a data alignment of {bytes} bytes")]
    Align {
        /// The alignment found.
        bytes: u64,
    },
    /// The log is not made of whole blocks, or is smaller than the product's least.
    #[error("a stripe log of {bytes} bytes")]
    LogBytes {
        /// The size found.
        bytes: u64,
    },
    /// The region is no multiple of the strip.
    #[error("a region of {bytes} bytes is not a multiple of the strip")]
    Region {
        /// The size found.
        bytes: u64,
    },
    /// More regions than the map may have.
    #[error("{regions} regions")]
    TooManyRegions {
        /// Regions that there would be.
        regions: u64,
    },
    /// The usable size is more than the device's own.
    #[error("{usable_bytes} bytes to use of a device of {device_bytes}")]
    Usable {
        /// The smallest member's size.
        usable_bytes: u64,
        /// This member's size.
        device_bytes: u64,
    },
    /// Nothing is left for data.
    #[error("a device of {device_bytes} bytes is too small")]
    TooSmall {
        /// This member's size.
        device_bytes: u64,
    },
    /// An area does not begin on a block.
    #[error("the {area:?} area begins at {offset}, not on a block of 4096")]
    Unaligned {
        /// Which area.
        area: Area,
        /// Where it begins.
        offset: u64,
    },
    /// An area reaches into what lies before it or after it.
    #[error("the {area:?} area overlaps what lies before or after it")]
    Overlap {
        /// Which area.
        area: Area,
    },
    /// The list of unreadable blocks has no whole blocks, or too many.
    #[error("a list of unreadable blocks of {bytes} bytes")]
    UnreadableBytes {
        /// The size found.
        bytes: u32,
    },
    /// A page of the region map covers no region, or more than fit.
    #[error("{regions} regions in a page of the region map")]
    PageRegions {
        /// The number found.
        regions: u16,
    },
    /// The data is empty or not made of whole strips.
    #[error("{bytes} bytes of data are not one or more whole strips")]
    DataBytes {
        /// The size found.
        bytes: u64,
    },
    /// The map has more or fewer pages than the regions need.
    #[error("{found} map pages where {needed} are needed")]
    MapPages {
        /// Pages found.
        found: u32,
        /// Pages needed.
        needed: u32,
    },
}

/// A superblock with a right checksum and content that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Invalid {
    /// An unknown code of the level.
    #[error("level code {0}")]
    LevelCode(u8),
    /// Level, members and group size do not fit together.
    #[error(transparent)]
    Shape(ShapeError),
    /// The places do not fit together.
    #[error(transparent)]
    Layout(LayoutError),
    /// Neither 512 nor 4096.
    #[error("a logical block of {0} bytes")]
    BlockBytes(u32),
    /// The name.
    #[error(transparent)]
    Name(NameError),
    /// The name is not text, or its padding is not zero.
    #[error("the name's bytes")]
    NameBytes,
    /// The array's uuid is nil.
    #[error("a nil array uuid")]
    NilArray,
    /// The member's uuid is nil.
    #[error("a nil member uuid")]
    NilMember,
    /// An unknown code of the write-hole policy.
    #[error("write-hole code {0}")]
    WriteHoleCode(u8),
    /// A flag that is neither 1 nor 2.
    #[error("clean flag {0}")]
    CleanCode(u8),
    /// A flag that is neither 1 nor 2.
    #[error("covered flag {0}")]
    CoveredCode(u8),
    /// A setting that is neither on nor off.
    #[error("hedged reads {0}")]
    HedgedReadsCode(u8),
    /// Zeroing that is neither on nor off.
    #[error("zeroing {0}")]
    ZeroingCode(u8),
    /// More bytes than a block device can have.
    #[error("an array of members with {0} bytes of data is larger than 2^63 - 1 bytes")]
    Size(u64),
    /// Numbers that are neither noted nor not.
    #[error("numbers noted {0}")]
    NumbersNotedCode(u8),
    /// Sessions in no order that they can have.
    #[error("the sessions are in no order")]
    Sessions,
    /// Longer than a week.
    #[error("spare delay {0} ms")]
    SpareDelay(u32),
    /// An unknown code in what is told of scrubs.
    #[error("scrub code {0}")]
    ScrubCode(u8),
    /// No minute of a day.
    #[error("scrubs at minute {0} of the day")]
    ScrubMinute(u16),
    /// A scrub that has done more than there is.
    #[error("a scrub that has done {0} bytes")]
    ScrubDone(u64),
    /// The shape is from an epoch that has not come yet.
    #[error("a shape since {0}")]
    ShapeSince(Epoch),
    /// More parities that do not rotate than there are, or at a level that has none.
    #[error("{0} parities that do not rotate")]
    FixedParities(u8),
    /// Bands of rows that members, regions or the level cannot have.
    #[error("bands of {0} rows")]
    Bands(u16),
    /// A move of data that makes no sense in this array, or that has an unknown code.
    #[error("a move of data from a shape of {0} members")]
    Moving(u8),
    /// Slots that do not exist are accepted as they are.
    #[error("accepted slots {0:#x}")]
    Accepted(u64),
    /// An unknown role.
    #[error("role code {0}")]
    RoleCode(u8),
    /// The role's slot does not hold this member, or the role's spare is not listed.
    #[error("the role disagrees with the table")]
    Role,
    /// Not 0 for the first copy, 1 for the last, as the offset says.
    #[error("copy number {0}")]
    Copy(u8),
    /// The table has another length than there are members.
    #[error("a table of {0} slots")]
    SlotCount(usize),
    /// An unknown state of a slot.
    #[error("state code {code} of slot {slot}")]
    StateCode {
        /// The slot.
        slot: u8,
        /// The code.
        code: u8,
    },
    /// A slot's state and member do not fit, or it entered its state after the present epoch, or it
    /// is rebuilt beyond its end.
    #[error("the record of slot {0}")]
    SlotRecord(u8),
    /// A row behind the last slot, or behind the last spare, is not empty.
    #[error("a row behind the end of the table")]
    UnusedRow,
    /// More than 16 spares.
    #[error("{0} spares")]
    SpareCount(usize),
    /// A replacement that is no spare, or for a slot that has no member in sync or two
    /// replacements.
    #[error("the replacement of slot {0}")]
    Replacement(u8),
    /// A spare without a uuid.
    #[error("a nil spare")]
    NilSpare,
    /// No number for the present edition of the table.
    #[error("no edition")]
    Edition,
    /// The array was last whole in an epoch that has not come yet.
    #[error("whole since epoch {0}")]
    WholeSince(Epoch),
    /// One uuid in two places of the table.
    #[error("one member in two places of the table")]
    Twice,
    /// Not 1 to 100.
    #[error("rebuild priority {0}")]
    RebuildPriority(u8),
    /// Not 1 to 100, of a resync or a scrub.
    #[error("priority {0} of a job")]
    JobPriority(u8),
    /// Longer than a minute.
    #[error("a latency target of {0} µs")]
    LatencyTarget(u32),
    /// Zero.
    #[error("a read-error threshold of zero")]
    ReadErrorThreshold,
    /// Bytes that this version leaves zero are not.
    #[error("reserved bytes in use")]
    Reserved,
}

/// Why a block is not a believable superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SuperblockError {
    /// Not 4096 bytes.
    #[error("{bytes} bytes are not a block")]
    Length {
        /// Bytes given.
        bytes: usize,
    },
    /// No trace of our magic: something else lies here, or nothing.
    #[error("no strake superblock here")]
    NotStrake,
    /// Ours, but the checksum is wrong: torn or rotten.
    #[error("damaged: checksum {stored:08x} stored, {computed:08x} computed")]
    Damaged {
        /// As it lies on the member.
        stored: u32,
        /// Of what lies on the member.
        computed: u32,
    },
    /// Whole, but it belongs elsewhere: a write or a read went astray.
    #[error("misplaced: read at {offset}, names {named}")]
    Misplaced {
        /// Where it says that it lies.
        named: u64,
        /// Where it was read.
        offset: u64,
    },
    /// Written by a version that this one cannot read.
    #[error("version {major}.{minor} is not one that this program reads")]
    Version {
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// Uses features without which it cannot be read rightly.
    #[error("unknown incompatible features {unknown:#x}")]
    Features {
        /// The unknown bits.
        unknown: u64,
    },
    /// Whole, in place, known, and senseless.
    #[error("senseless: {0}")]
    Invalid(Invalid),
}

/// Why a block is not a believable page of the region map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MapError {
    /// Not 4096 bytes.
    #[error("{bytes} bytes are not a block")]
    Length {
        /// Bytes given.
        bytes: usize,
    },
    /// No trace of our magic.
    #[error("no region map page here")]
    NotMap,
    /// Ours, but the checksum is wrong.
    #[error("damaged: checksum {stored:08x} stored, {computed:08x} computed")]
    Damaged {
        /// As it lies on the member.
        stored: u32,
        /// Of what lies on the member.
        computed: u32,
    },
    /// Whole, but it belongs elsewhere.
    #[error("misplaced: read at {offset}, names {named}")]
    Misplaced {
        /// Where it says that it lies.
        named: u64,
        /// Where it was read.
        offset: u64,
    },
    /// Written by a version that this one cannot read.
    #[error("version {version} is not one that this program reads")]
    Version {
        /// Its version.
        version: u16,
    },
    /// A region state without a meaning.
    #[error("state {code} of region {region} of the page")]
    State {
        /// The region, counted from the page's first.
        region: u16,
        /// The code.
        code: u8,
    },
    /// More regions than a page holds.
    #[error("{count} regions in a page")]
    Count {
        /// Regions found.
        count: u16,
    },
    /// Bytes behind the last region, or reserved ones, are not zero.
    #[error("reserved bytes in use")]
    Reserved,
}

/// Why an image is not a believable list of unreadable blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UnreadableError {
    /// Not one or more whole blocks.
    #[error("{bytes} bytes are not whole blocks")]
    Length {
        /// Bytes given.
        bytes: usize,
    },
    /// No trace of our magic.
    #[error("no list of unreadable blocks here")]
    NotList,
    /// Ours, but the checksum is wrong.
    #[error("damaged: checksum {stored:08x} stored, {computed:08x} computed")]
    Damaged {
        /// As it lies on the member.
        stored: u32,
        /// Of what lies on the member.
        computed: u32,
    },
    /// Whole, but it belongs elsewhere.
    #[error("misplaced: read at {offset}, names {named}")]
    Misplaced {
        /// Where it says that it lies.
        named: u64,
        /// Where it was read.
        offset: u64,
    },
    /// Written by a version that this one cannot read.
    #[error("version {version} is not one that this program reads")]
    Version {
        /// Its version.
        version: u16,
    },
    /// More ranges than fit.
    #[error("{count} ranges")]
    Count {
        /// Ranges found.
        count: u32,
    },
    /// A range that is empty, beyond all blocks, or not behind the one before it.
    #[error("range {index} is empty, too long, or out of order")]
    Range {
        /// Which.
        index: u32,
    },
    /// Bytes behind the last range, or reserved ones, are not zero.
    #[error("reserved bytes in use")]
    Reserved,
}

/// Why a place of the log holds no believable batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LogError {
    /// No magic: nothing was ever written here, or this is the inside of an older batch.
    #[error("no log batch at {offset}")]
    NotLog {
        /// Byte offset on the member.
        offset: u64,
    },
    /// Less than a block, or less than the batch says that it has.
    #[error("the batch at {offset} needs {needed} bytes, {bytes} are left")]
    Short {
        /// Byte offset on the member.
        offset: u64,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that there are.
        bytes: u64,
    },
    /// The header's checksum is wrong: torn, or overwritten in part.
    #[error("torn header at {offset}")]
    TornHeader {
        /// Byte offset on the member.
        offset: u64,
    },
    /// The payload's checksum is wrong: torn, or overwritten in part.
    #[error("torn payload of the batch at {offset}")]
    TornPayload {
        /// Byte offset on the member.
        offset: u64,
    },
    /// Whole, but it belongs elsewhere.
    #[error("misplaced: read at {offset}, names {named}")]
    Misplaced {
        /// Byte offset on the member.
        offset: u64,
        /// Where it says that it lies.
        named: u64,
    },
    /// Written by a version that this one cannot read.
    #[error("version {version} of the batch at {offset} is not one that this program reads")]
    Version {
        /// Byte offset on the member.
        offset: u64,
        /// Its version.
        version: u16,
    },
    /// Whole, in place, known, and senseless.
    #[error("senseless batch at {offset}: record {record}")]
    Invalid {
        /// Byte offset on the member.
        offset: u64,
        /// The record; the count of records where the batch as a whole is senseless.
        record: u32,
    },
}

/// Why no array can be assembled from what was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SelectError {
    /// Neither copy has a trace of our magic.
    #[error("no strake superblock on this device")]
    NotStrake,
    /// There are traces, but no copy can be believed.
    #[error("no valid superblock: first copy {first}; last copy {last}")]
    NoValidCopy {
        /// The first copy.
        first: SuperblockError,
        /// The last copy.
        last: SuperblockError,
    },
    /// Both copies are valid and name different members or arrays.
    #[error("the copies name different members: {first} and {last}")]
    CopiesDisagree {
        /// The member that the first copy names.
        first: MemberUuid,
        /// The member that the last copy names.
        last: MemberUuid,
    },
    /// Both copies are valid, of one generation, and not the same.
    #[error("the copies differ within generation {generation}")]
    CopiesDiffer {
        /// The generation.
        generation: Generation,
    },
    /// The device is smaller than the superblock says that it was: its end is gone.
    #[error("the device shrank from {recorded_bytes} to {device_bytes} bytes")]
    Shrunk {
        /// Size that the superblock names.
        recorded_bytes: u64,
        /// Size now.
        device_bytes: u64,
    },
    /// No superblock was given.
    #[error("no member was found")]
    NoMembers,
    /// Superblocks of more than one array.
    #[error("members of two arrays: {first} and {second}")]
    TwoArrays {
        /// One array.
        first: ArrayUuid,
        /// Another.
        second: ArrayUuid,
    },
    /// One member on two devices: a copied drive.
    #[error("two devices are member {member}")]
    DuplicateMember {
        /// The member.
        member: MemberUuid,
    },
    /// Two members with diverged histories: each may hold acknowledged writes that the other lacks.
    #[error(
        "split brain: {first} (epoch {first_epoch}) and {second} ({second_epoch}) went on apart"
    )]
    SplitBrain {
        /// The one that would have been the authority.
        first: MemberUuid,
        /// Its epoch.
        first_epoch: Epoch,
        /// The one that contradicts it.
        second: MemberUuid,
        /// Its epoch.
        second_epoch: Epoch,
    },
    /// Of every slot, the member that was found is out by a table that was found: the members that
    /// went on are absent.
    #[error("the members that went on are absent: {witness} (epoch {epoch}) knows of them")]
    AuthorityAbsent {
        /// A spare, or a member that is out, with the newest table.
        witness: MemberUuid,
        /// Its epoch.
        epoch: Epoch,
    },
}
