//! What a person may want to know of: events, and their causes.

use strake_format::{ArrayName, Level, MemberUuid};

use crate::proto::*;
use crate::units::*;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub time: Time,
    /// What.
    pub kind: EventKind,
}

/// Kinds of events: what happened, to what, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The array serves.
    Started {
        /// It was not stopped cleanly before.
        unclean: bool,
    },
    /// The stripe log was replayed after an unclean stop.
    LogReplayed {
        /// Records replayed: one for each write, or part of one, of a stripe.
        records: u64,
        /// Stripes that got true parity.
        stripes: u64,
        /// Blocks that were lost with a member in the middle of a write: they answer an error until
        /// they are written.
        unreadable: u64,
    },
    /// The array was started by force: blocks of the members of slots that are missing may be
    /// wrong, in regions that were being written when it stopped.
    Forced {
        /// So many bytes at most: what these members hold in these regions.
        bytes_max: u64,
    },
    /// Blocks that were being written when the power went are lost with a member, the list of
    /// unreadable blocks has no room for them, and the array was started by force: they read as
    /// zeros.
    GivenUp {
        /// First byte of the array's address space.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The array has failed: everything is answered with an error, and nothing is written any more.
    Failed {
        /// Why.
        cause: FailCause,
    },
    /// The array's state changed.
    State {
        /// Before.
        from: ArrayState,
        /// After.
        to: ArrayState,
    },
    /// The array has another name. Told before that is durable; the answer to the command is not.
    Renamed {
        /// Before.
        from: ArrayName,
        /// From now on.
        to: ArrayName,
    },
    /// The errors and mismatches of a member are counted from zero again.
    CountersReset {
        /// Its slot; a spare has none.
        slot: Option<Slot>,
        /// The device, if there is one.
        device: Option<DeviceId>,
        /// What had been counted.
        before: ErrorCounts,
    },
    /// A member was taken out of service.
    MemberOut {
        /// Its slot.
        slot: Slot,
        /// The device, if it was there.
        device: Option<DeviceId>,
        /// Why.
        cause: OutCause,
        /// What has its content.
        instead: Instead,
    },
    /// A read error on a member.
    ReadError {
        /// Its slot.
        slot: Slot,
        /// The device.
        device: DeviceId,
        /// Offset on the device, bytes.
        offset: u64,
        /// What has its content.
        instead: Instead,
    },
    /// An unreadable sector was rewritten.
    Repaired {
        /// Its slot.
        slot: Slot,
        /// The device.
        device: DeviceId,
        /// Offset on the device, bytes.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A scrub found that a member's strip is wrong: the others agree without it.
    Mismatch {
        /// Its slot.
        slot: Slot,
        /// The device.
        device: DeviceId,
        /// Offset on the device, bytes.
        offset: u64,
        /// Bytes.
        len: u64,
        /// It was rewritten from the others.
        repaired: bool,
    },
    /// A scrub found strips that do not agree, and cannot say which is wrong; nothing was changed.
    Inconsistent {
        /// The stripe.
        stripe: StripeNo,
        /// Where its data begin in the array, bytes.
        offset: u64,
        /// First byte within each strip.
        from: u64,
        /// Bytes of each strip.
        len: u64,
    },
    /// Strips in this region do not agree: nothing is repaired there until it is decided which are
    /// right.
    Undecided {
        /// First byte of the block device in the region.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Others were built from them. If not, a resync found it, and left them as they are.
        built: bool,
    },
    /// The region is undecided no more.
    Decided {
        /// First byte of the block device in the region.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Why.
        cause: Decision,
    },
    /// The content of these bytes of the block device is lost: they answer an error until they are
    /// written.
    Unreadable {
        /// First byte of the block device.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Bytes that had lost their content were written (or discarded): they can be read again.
    Rewritten {
        /// First byte of the block device.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A member has too many read errors, and a spare waits: it serves until the spare is filled.
    MemberFailing {
        /// Its slot.
        slot: Slot,
        /// The device.
        device: DeviceId,
    },
    /// The superblocks of a member show that its content cannot be believed, and the level does not
    /// survive its loss: it stays in service. What shows that is not written over.
    MemberDoubted {
        /// Its slot.
        slot: Slot,
        /// The device.
        device: DeviceId,
        /// Why it would be out.
        cause: OutCause,
    },
    /// Its superblocks do not speak against it any more. Its data may lack what was written
    /// meanwhile.
    MemberNoLongerDoubted {
        /// Its slot.
        slot: Slot,
        /// The device.
        device: DeviceId,
    },
    /// There is no space for writes to a member, and they wait: the level does not survive the loss
    /// of all that are so.
    MemberFull {
        /// Its slot.
        slot: Slot,
        /// The device.
        device: DeviceId,
    },
    /// Its writes do not wait for space any more.
    MemberNoLongerFull {
        /// Its slot.
        slot: Slot,
        /// The device.
        device: DeviceId,
    },
    /// A spare (or a new device) was given a slot.
    SpareUsed {
        /// The slot.
        slot: Slot,
        /// The device.
        device: DeviceId,
    },
    /// A member that was away is there again, and gets what was written meanwhile.
    Returned {
        /// Its slot.
        slot: Slot,
        /// The device.
        device: DeviceId,
        /// Bytes of it that are to be rebuilt; all else is used as it is.
        behind_bytes: u64,
    },
    /// A member is in sync now: it was rebuilt.
    Rebuilt {
        /// Its slot.
        slot: Slot,
        /// The device.
        device: DeviceId,
        /// Only what was written while it was away.
        partial: bool,
    },
    /// A spare was added.
    SpareAdded {
        /// The device.
        device: DeviceId,
    },
    /// A spare was not there when the array started, or cannot be used: it is none any more.
    SpareGone {
        /// Its identity.
        member: MemberUuid,
        /// Which of both.
        cause: OutCause,
    },
    /// A member or spare was removed.
    Removed {
        /// The slot, if it had one.
        slot: Option<Slot>,
        /// The spare, if it had none.
        device: Option<DeviceId>,
        /// Why, if that was not asked for.
        cause: Option<OutCause>,
    },
    /// A member has been far slower than the others for a while.
    MemberSlow {
        /// Its slot.
        slot: Slot,
        /// The device.
        device: DeviceId,
        /// It is about its writes, not its reads.
        write: bool,
        /// 95 of 100 take less on it, nanoseconds.
        usual_ns: u64,
        /// The same of the others (their median), nanoseconds.
        peers_ns: u64,
    },
    /// It has been as quick as the others for a while.
    MemberNoLongerSlow {
        /// Its slot.
        slot: Slot,
        /// The device.
        device: DeviceId,
    },
    /// The block device has grown.
    Grown {
        /// Its size before, bytes.
        from_bytes: u64,
        /// And now.
        to_bytes: u64,
    },
    /// The array has another level: it gets more parities, which are to be built; or it was a
    /// mirror: its copies are parity from now on, while its data moves to further members.
    LevelRaised {
        /// Before.
        from: Level,
        /// And now.
        to: Level,
    },
    /// The array has another level: parities that were added to it went, and their members are
    /// spares.
    LevelLowered {
        /// Before.
        from: Level,
        /// And now.
        to: Level,
    },
    /// A job started, or went on after a restart.
    JobStarted {
        /// Which.
        kind: JobKind,
        /// Bytes already done.
        from_bytes: u64,
    },
    /// A job was paused or stopped.
    JobStopped {
        /// Which.
        kind: JobKind,
        /// Why.
        cause: StopCause,
    },
    /// A job finished.
    JobFinished {
        /// Which.
        kind: JobKind,
        /// Stripes found inconsistent (resync, scrub).
        inconsistent: u64,
        /// Those of them that are consistent again (resync, scrub).
        repaired: u64,
    },
    /// The array was stopped cleanly.
    Stopped,
}

/// Why a member went out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutCause {
    /// It was not there when the array started.
    NotFound,
    /// It was there but had missed writes.
    Stale,
    /// What was there is an image of it from before ([`strake_format::Past`]).
    OlderImage,
    /// What was there has lost a copy of its superblock, and whatever else lay there with it.
    Emptied,
    /// What was there cannot be a member: its blocks are larger than the array's, or it is too
    /// small.
    Unfit,
    /// The device became smaller: what lay behind its end is gone, even if it grows again.
    Shrunk,
    /// The device vanished.
    Gone,
    /// A write to it failed.
    WriteError,
    /// It did not answer in time, or could not be reached.
    TimedOut,
    /// Too many read errors.
    ReadErrors,
    /// An administrator asked for it.
    Asked,
    /// It was replaced.
    Replaced,
}

/// Why an array failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailCause {
    /// More members are lost than the level survives.
    MembersLost,
    /// The list of unreadable blocks has no room for what a replay of the stripe log cannot decide;
    /// or, by a fault of this program, for what splits when blocks of it were written anew.
    ListFull,
    /// All numbers that there are for operations in the stripe log have been used.
    NumbersExhausted,
    /// Members have no space for what the start writes: it is to be repeated when they have.
    NoSpace,
}

/// Why a job stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// An administrator asked for it.
    Asked,
    /// The membership changed.
    Membership,
    /// The content of a member cannot be believed ([`EventKind::MemberDoubted`]).
    Doubted,
    /// Stripes could not be read.
    Unreadable,
    /// More blocks are unreadable than the list of them has room for.
    ListFull,
    /// A scrub that halts at what it finds has found something; or data that was to move does not
    /// agree with its parity.
    Inconsistent,
}

/// Background jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKind {
    /// Compute what missing members held onto their replacements.
    Rebuild,
    /// Make parity true after an unclean stop.
    Resync,
    /// Check parity.
    Scrub,
    /// Move data to another shape.
    Restripe,
    /// Zero what was never written.
    Init,
    /// Make parity of undecided regions agree with their data.
    Accept,
}

/// Why a region is undecided no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A scrub of all of it found that its strips agree, and none was built meanwhile.
    Agreed,
    /// An administrator takes the data for right; parity was computed anew.
    Accepted,
    /// It was given back.
    GivenBack,
}
