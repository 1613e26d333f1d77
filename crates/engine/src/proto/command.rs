//! What an administrator asks of a running array, and why it may be refused.
//!
//! Invariant: a command is answered exactly once; one that is refused has changed nothing.
//! Deliberately absent: what becomes of them (`array::members`, `array::jobs`, `array::reshape`).

use strake_format::{ArrayName, Level, ScrubMode, ScrubPeriod, WriteHole};

use crate::proto::{Fewer, NewDevice, NewShape, Returning};
use crate::units::*;

/// What an administrator asks of a running array.
#[derive(Clone, Debug)]
pub enum Command {
    /// Take the member in this slot out of service.
    Fail(Slot),
    /// Take this very device out of service: a member, a replacement, or a spare.
    FailDevice(DeviceId),
    /// These devices hold nothing of their members any more: they are out of service, whatever
    /// depends on them. Where the level cannot do without them, the array fails, and nothing is
    /// written to any of them.
    Emptied(Vec<DeviceId>),
    /// Look at the superblocks of all members, and put out members that were emptied or are older
    /// images of themselves, as far as the level survives that.
    LookAtSuperblocks,
    /// Forget the member of this slot (failed, missing or stale) or this spare.
    Remove(MemberRef),
    /// Add a spare; it is used at once where a member is missing.
    Add(NewDevice),
    /// A member that was away is there again: rebuild what was written meanwhile onto it, and use
    /// the rest as it is.
    Return(Returning),
    /// Rebuild this slot onto the device; the present member stays in service until it is done.
    Replace(Slot, NewDevice),
    /// The same onto a spare of the array.
    ReplaceBySpare(Slot, DeviceId),
    /// Whether a spare can be had from elsewhere for a member that has too many read errors, where
    /// the array has none of its own: its slot wants one then
    /// ([`MemberStatus::wants_spare`](crate::proto::MemberStatus::wants_spare)), and it serves
    /// until it is replaced. With the answer that none can be had it is failed. Not at first.
    SparesElsewhere(bool),
    /// Start or go on with the rebuild of missing members (spares are used by themselves).
    StartRebuild,
    /// Pause the rebuild until it is started again.
    StopRebuild,
    /// Zero what was never written, in the background, so that first writes wait for nothing.
    StartInit,
    /// Leave what was not zeroed so far to its first write.
    StopInit,
    /// Check parity, and perhaps repair what is wrong; or go on where a scrub was paused. One of
    /// the other mode ends.
    StartScrub(ScrubMode),
    /// The scrub waits until it is started again, also after restarts.
    PauseScrub,
    /// Stop the scrub.
    StopScrub,
    /// Take the data in undecided regions for right, as reads answer it, and compute parity anew.
    AcceptData,
    /// Sizes of devices now, bytes, as far as they may differ from what was told before: the last
    /// superblock of one that grew goes to its new end, where a start looks for it.
    Sizes(Vec<(DeviceId, u64)>),
    /// Use what the members have room for: they were replaced by larger ones, or grew. Sizes as in
    /// [`Command::Sizes`].
    Grow(Vec<(DeviceId, u64)>),
    /// Add parities, one for each of these devices, on which they are built while the array serves:
    /// the level becomes the one that has as many.
    AddParity(Vec<NewDevice>),
    /// Let parities go: their members become spares, the level the one that has as many fewer.
    /// Those that were added go at once; where they are fewer, data moves to where it lies without
    /// those that go, before, and this is answered when that has begun.
    DropParity(Fewer),
    /// Parities of one data column are copies of it: become a mirror.
    Mirror,
    /// Data moves to another shape while the array serves. Answered when that has begun.
    Restripe(NewShape),
    /// Data moves no further: the array stays in two shapes until it is told to go on.
    StopRestripe,
    /// It goes on.
    ContinueRestripe,
    /// Change a setting.
    Set(Setting),
    /// Call the array by another name.
    Rename(ArrayName),
    /// Count the errors, mismatches and retries of this member, or of all, from zero again.
    ResetCounters(Option<MemberRef>),
    /// Make everything durable and stop.
    Stop,
}

impl Command {
    /// It waits for the end of a window of data that moves: it would change what the window was
    /// begun for.
    pub(crate) fn waits_for_window(&self) -> bool {
        !matches!(
            self,
            Command::Stop
                | Command::Grow(_)
                | Command::AddParity(_)
                | Command::DropParity(_)
                | Command::Mirror
                | Command::Restripe(_)
                | Command::StopRestripe
                | Command::ContinueRestripe
                | Command::Fail(_)
                | Command::FailDevice(_)
                | Command::Emptied(_)
                | Command::LookAtSuperblocks
        )
    }
}

/// A member as commands name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberRef {
    /// Whatever fills this slot.
    Slot(Slot),
    /// A spare, by its device.
    Device(DeviceId),
}

/// A setting of a running array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// 1 (give way to every request) to 100 (as fast as it can).
    RebuildPriority(u8),
    /// The same for a resync.
    ResyncPriority(u8),
    /// The same for a scrub.
    ScrubPriority(u8),
    /// The same for data that moves.
    RestripePriority(u8),
    /// The same for the zeroing of what was never written.
    InitPriority(u8),
    /// Background work gives way where more than one request in a hundred takes longer than this,
    /// microseconds; 0: it is not looked at.
    LatencyTargetUs(u32),
    /// Read errors after which a member is failed.
    ReadErrorThreshold(u32),
    /// What protects writes that are cut off.
    WriteHole(WriteHole),
    /// Reads that their member does not answer in time are asked of the others, too.
    HedgedReads(bool),
    /// So long a spare waits for a member that is missing and may come back, milliseconds.
    SpareDelayMs(u32),
    /// When scrubs begin by themselves; the daemon, which has a calendar, starts them.
    ScrubPeriod(ScrubPeriod),
    /// At which minute of the day they do.
    ScrubMinute(u16),
    /// What these do with what they find.
    ScrubPolicy(ScrubMode),
    /// The array's data begins with a table of volumes from now on, whatever becomes of these: for
    /// ever.
    Carved,
}

/// What of an array does not come to an end. The runtime says so, never the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalled {
    /// The thread that stands still; `None`: all turn, and what was asked for takes too long.
    pub thread: Option<u16>,
    /// It is in uninterruptible sleep in the kernel.
    pub in_kernel: bool,
    /// For how long it was waited for, seconds.
    pub seconds: u64,
}

impl std::fmt::Display for Stalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.seconds;
        match self.thread {
            Some(thread) => {
                write!(
                    f,
                    "thread {thread} of the array has not answered for {seconds} s"
                )?;
                let held = ": the kernel holds it";
                f.write_str(if self.in_kernel { held } else { "" })
            }
            None => write!(f, "the array is not done with it after {seconds} s"),
        }
    }
}

/// Why a command was refused or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// Slot number outside the array.
    #[error("no such slot")]
    NoSuchSlot,
    /// Not a member or spare of this array.
    #[error("no such member")]
    NoSuchMember,
    /// Failing this member would lose data.
    #[error("the array would fail: no redundancy is left to lose this member")]
    WouldFail,
    /// The member is in use; fail it first.
    #[error("the member is in use")]
    InUse,
    /// The device is too small.
    #[error("the device is too small: {has} bytes, at least {needs} are needed")]
    TooSmall {
        /// Bytes that the device has.
        has: u64,
        /// Bytes that a member of this array needs.
        needs: u64,
    },
    /// The device has another logical block size than the array.
    #[error("the device has blocks of {has} bytes, larger than the array's {needs}")]
    BlockSize {
        /// The device's block, bytes.
        has: u32,
        /// The array's block, bytes.
        needs: u32,
    },
    /// There is nothing in the slot that a spare could relieve.
    #[error("the slot has no member in sync: a spare takes it by itself")]
    NothingToReplace,
    /// Sixteen spares at most.
    #[error("too many spares")]
    TooManySpares,
    /// A value outside its range.
    #[error("the value is out of range")]
    OutOfRange,
    /// The array is stopping or has failed.
    #[error("the array is not serving")]
    NotServing,
    /// A thread of the array does not answer: the command was not begun. The runtime says so, never
    /// the array.
    #[error("{0}; nothing was done")]
    Silent(Stalled),
    /// The command was begun, and its end is not known. The runtime says so, never the array.
    #[error("{0}; what was asked for has begun, and is done when the array goes on")]
    Unfinished(Stalled),
    /// The slot is being rebuilt or replaced already.
    #[error("the slot is being rebuilt already")]
    Rebuilding,
    /// The device is not a member that can keep its content.
    #[error("what the device holds is of no use any more: it would have to be rebuilt as a whole")]
    NotKept,
    /// The device went on without the array.
    #[error(
        "the device and the array went on without each other: \
         each may hold writes that the other lacks"
    )]
    SplitBrain,
    /// A member is missing, being rebuilt or doubted, or a resync is under way.
    #[error("the array is not in order: a member is missing, rebuilt or doubted, or it resyncs")]
    NotOptimal,
    /// Another change of the array's shape is under way.
    #[error("the array's shape is being changed already")]
    Reshaping,
    /// No member or spare has room for more than it holds.
    #[error("the members have no room for more: the smallest has {smallest} bytes")]
    NothingToGrow {
        /// Bytes of the smallest member or spare.
        smallest: u64,
    },
    /// The region map before the data has no room for as many regions.
    #[error("the region map has no room for a member of {bytes} bytes of data")]
    MapTooSmall {
        /// Data of a member, bytes.
        bytes: u64,
    },
    /// Data is moving to another shape.
    #[error("data is moving to another shape")]
    Moving,
    /// Neither columns nor strips would be others.
    #[error("the array has this shape already")]
    SameShape,
    /// A strip that no array can have.
    #[error("a strip has 4 KiB to 1 MiB, a power of two and at least a block, not {strip} bytes")]
    NoSuchStrip {
        /// Bytes of it.
        strip: u32,
    },
    /// A strip that members can only write by writing more.
    #[error(
        "the strip of {strip} bytes is not a multiple of the members' write granularity, \
         {granularity}"
    )]
    StripGranularity {
        /// Bytes of it.
        strip: u32,
        /// The members' granularity, bytes.
        granularity: u32,
    },
    /// Members or regions are not made of whole strips of this size.
    #[error("strips of {strip} bytes do not fit into {data_bytes} bytes of each member")]
    StripUnfit {
        /// Bytes of the strip.
        strip: u32,
        /// Data of each member.
        data_bytes: u64,
    },
    /// No region is undecided.
    #[error("no region is undecided")]
    NothingUndecided,
    /// No data is moving.
    #[error("no data is moving to another shape")]
    NothingMoves,
    /// The level cannot have so many data columns more.
    #[error("level {level} cannot have {more} data columns more")]
    NoSuchShape {
        /// The level now.
        level: Level,
        /// Columns asked for.
        more: usize,
    },
    /// Members do not make groups of so many.
    #[error("{members} members do not make level {level} in groups of {group_size}")]
    NoSuchGroups {
        /// The level to be.
        level: Level,
        /// Members then.
        members: u8,
        /// Of a group.
        group_size: u8,
    },
    /// The block device would become smaller.
    #[error(
        "a row would have {gets} data columns instead of {has}: the array would become smaller, \
         it takes {needs} members"
    )]
    WouldShrink {
        /// Data columns of a row, all groups.
        has: u16,
        /// The same, then.
        gets: u16,
        /// The fewest members that would do.
        needs: u16,
    },
    /// No level has as many parities as asked, over the data that are there.
    #[error("level {level} cannot have {more} parities more")]
    NoSuchLevel {
        /// The level now.
        level: Level,
        /// Parities asked for.
        more: usize,
    },
    /// No level has as few parities, over the data that are there.
    #[error("level {level} cannot do with {fewer} parities fewer")]
    ParitiesStay {
        /// The level now.
        level: Level,
        /// Parities that were to go.
        fewer: usize,
    },
    /// The last parity goes only if that is said.
    #[error("the last parity of level {level} would go: no member could be lost any more")]
    LastParity {
        /// The level now.
        level: Level,
    },
    /// A move from parities that go is to nothing else.
    #[error("parities that go do so alone: not with other members, strips, groups or --rotate")]
    NotTogether,
    /// A mirror has one data column.
    #[error(
        "a mirror has one column of data, level {level} has {has}: the array would become smaller"
    )]
    MirrorTooSmall {
        /// The level now.
        level: Level,
        /// Data columns of a row.
        has: u16,
    },
    /// The level has parities that are not copies.
    #[error("level {level} does not become a mirror")]
    NoMirror {
        /// The level now.
        level: Level,
    },
    /// The shards' buffers are too few for an operation of the new shape.
    #[error("an operation would need {needs} buffers of a strip, a thread has {has}")]
    BuffersTooFew {
        /// Strip-sized buffers of the thread that has fewest.
        has: usize,
        /// Needed at least.
        needs: usize,
    },
    /// The members' log areas are too small for this geometry and number of shards.
    #[error("the members' log areas are too small for the stripe log of this array")]
    LogTooSmall,
    /// More bytes than a block device can have.
    #[error(
        "{data_bytes} bytes of data on each member would make an array of more than the \
         2^63 - 1 bytes that a block device can have"
    )]
    ArrayTooLarge {
        /// On each member.
        data_bytes: u64,
    },
    /// The stripe log has used up its numbers for operations.
    #[error("the numbers of operations in the stripe log are used up")]
    NumbersExhausted,
    /// The device failed while it was being added.
    #[error("the device failed while it was being prepared")]
    DeviceFailed,
}

/// What was counted against a member since the start, or since it was told to begin again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts {
    /// Reads that failed.
    pub reads: u64,
    /// Writes and flushes that failed.
    pub writes: u64,
    /// Pieces that a scrub found wrong.
    pub mismatches: u64,
    /// I/Os that did not get through at once.
    pub retries: RetryCounts,
}

/// What became of a member's I/Os that were tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryCounts {
    /// Tries after the first of each.
    pub tries: u64,
    /// I/Os that succeeded in the end.
    pub got_through: u64,
    /// I/Os that did not.
    pub failed: u64,
    /// Times in which I/Os failed on their way and succeeded later: what overlaps is one.
    pub resets: u64,
}
