//! Everything that goes into the engine and comes out of it, as data.
//!
//! Two state machines make an array: one [`crate::Array`] (membership, superblocks, region map,
//! jobs) and one [`crate::Shard`] per thread (stripes). They talk only through [`ToShard`] and
//! [`FromShard`], which the runtime carries between threads and the simulator between simulated
//! ones. Messages of one sender to one receiver arrive in order.
//!
//! Deliberately absent: how any of this is carried out.

use std::sync::Arc;

use strake_format::{ArrayName, Level, MemberUuid};

pub use strake_format::{ScrubMode, ScrubPeriod};

use crate::array::ShardSetup;
use crate::array::members::rejoin::RegionSet;
use crate::array::metadata::bad_blocks::Lost;
use crate::geometry::{Geometry, StripPart};
use crate::mem::buffer::{Buf, Slice};
use crate::mem::list::List;
use crate::stats::histogram::Histogram;
use crate::units::*;

pub use crate::proto::command::*;
pub use crate::proto::device::*;
pub use crate::proto::status::*;

// ---- member I/O ------------------------------------------------------------------------------

/// One I/O that the engine asks of a member. Offsets are absolute on the device, in bytes.
#[derive(Debug)]
pub struct MemberIo {
    /// Comes back in the [`Completion`].
    pub io: IoId,
    /// On which device.
    pub device: DeviceId,
    /// What to do.
    pub kind: IoKind,
}

/// What a member I/O does.
#[derive(Debug)]
pub enum IoKind {
    /// Fill `buf[start .. start + len]` from the device; `buf` is the runtime's until the
    /// completion brings it back.
    Read {
        /// Byte offset on the device.
        offset: u64,
        /// Where the bytes go, exclusively owned.
        buf: Buf,
        /// First byte of `buf` to fill (page aligned when `offset` is).
        start: usize,
        /// Bytes to read.
        len: usize,
    },
    /// Fill the place that a request has for its data (see [`Op::ReadInPlace`]); no buffer is
    /// involved.
    ReadInPlace {
        /// Byte offset on the device.
        offset: u64,
        /// Bytes to read.
        len: usize,
        /// The piece that has the place.
        request: RequestId,
        /// First byte of the place to fill, counted as [`Op::ReadInPlace::at`].
        at: u64,
    },
    /// Write the slice. With `fua` it is durable when it completes.
    Write {
        /// Byte offset on the device.
        offset: u64,
        /// What to write; dropped by the runtime before it completes the I/O.
        data: Slice,
        /// Durable at completion.
        fua: bool,
    },
    /// Zeroes guaranteed afterwards; the range may be deallocated.
    WriteZeroes {
        /// Byte offset on the device.
        offset: u64,
        /// Bytes to zero; may be as long as a whole region.
        len: u64,
    },
    /// Advice that the range's content is not needed; its content afterwards is undefined.
    Discard {
        /// Byte offset on the device.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Everything that completed on this device before is durable when this completes.
    Flush,
}

/// A finished member I/O. The runtime completes every I/O exactly once, when it is not to be repeated any
/// more; one that outlasts its
/// deadline is completed with [`IoError::TimedOut`] (and no buffer: the runtime keeps it until the
/// kernel lets go).
#[derive(Debug)]
pub struct Completion {
    /// Which.
    pub io: IoId,
    /// How it went.
    pub result: Result<(), IoError>,
    /// The buffer of a read, on success and on error, if the kernel has let go of it.
    pub buf: Option<Buf>,
}

/// Why a member I/O failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoError {
    /// Unreadable (or unwritable) medium: ENODATA, EILSEQ, or EIO of a device that is there to stay.
    Media,
    /// EIO of a device that is still there, which says nothing of why. Whoever carries out I/Os looks once
    /// more ([`Patience::doubt`](crate::Patience::doubt)) and tells it as `Gone` or as `Media`.
    Unclear,
    /// The device is gone: ENODEV, ENXIO, or a closed device.
    Gone,
    /// The device has become smaller than it was when it was opened.
    Shrunk,
    /// No answer within the deadline.
    TimedOut,
    /// It did not reach the device, or the answer did not come back, however often it was tried
    /// ([`Patience`](crate::Patience)): with the errno of the last try. Whatever it was to write may be
    /// there in part, but nothing of it is under way any more.
    Transport(i32),
    /// The host had no means to send it, however often it was tried: nothing of it reached the device.
    Unsent(i32),
    /// No room: a full file system under a file member.
    NoSpace,
    /// Any other errno.
    Other(i32),
}

// ---- user requests ---------------------------------------------------------------------------

/// A request of the block device's user. Offsets are bytes in the array's address space.
#[derive(Debug)]
pub struct Request {
    /// Comes back in the [`Reply`].
    pub id: RequestId,
    /// What is asked.
    pub op: Op,
}

/// What a request asks.
#[derive(Clone, Debug)]
pub enum Op {
    /// Read bytes.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes; a multiple of the logical block.
        len: u64,
    },
    /// Read bytes, for a request that has a place which members can fill by themselves. What one
    /// member alone can give goes there ([`IoKind::ReadInPlace`]), and stands in the answer as a
    /// slice [in place](Slice::in_place); anything else is answered as a read.
    ReadInPlace {
        /// First byte.
        offset: u64,
        /// Bytes; a multiple of the logical block.
        len: u64,
        /// Which byte of the place that first byte is.
        at: u64,
    },
    /// Write the slice at `offset`; with `fua` it is durable when answered.
    Write {
        /// First byte.
        offset: u64,
        /// What to write; its length a multiple of the logical block.
        data: Slice,
        /// Durable when answered.
        fua: bool,
    },
    /// Everything answered before this request arrived is durable when it is answered.
    Flush,
    /// Advice: the content of the range is not needed any more. Afterwards each block reads as
    /// before or as zeros.
    Discard {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The range reads as zeros afterwards.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Durable when answered.
        fua: bool,
    },
}

/// The answer to a request; every request is answered exactly once.
#[derive(Debug)]
pub struct Reply {
    /// Which request.
    pub id: RequestId,
    /// For a read, slices that in order make up the range asked for; empty for everything else.
    pub result: Result<Slices, RequestError>,
}

/// Content in parts; mostly one.
pub type Slices = List<Slice>;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// Beyond the end, of length zero, or not aligned to the logical block (EINVAL).
    Invalid,
    /// More strips are lost or unreadable here than the level survives (EIO).
    Unreadable,
    /// The array has lost more members than the level survives; nothing was written (EIO).
    Failed,
    /// The array is stopping (ESHUTDOWN).
    Stopping,
}

// ---- what shards know of the membership ------------------------------------------------------

/// The membership as shards see it; replaced as a whole, `version` grows.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Grows with every change.
    pub version: u64,
    /// Epoch under which this view is durable on every live member.
    pub epoch: Epoch,
    /// One for each slot.
    pub slots: Vec<SlotView>,
    /// More members are lost than the level survives: requests are answered with an error.
    pub failed: bool,
    /// The array is stopping: what waits for a region, and what comes now, is answered so.
    pub stopping: bool,
    /// What the members of these slots hold is what parity makes of it, also where writes were
    /// under way when the array stopped: an administrator said so.
    pub forced: Vec<Slot>,
    /// Writes go to the stripe log before anything of them goes in place.
    pub logging: bool,
    /// Numbers of logged operations begin here; a shard that sees a higher one than before answers
    /// with [`FromShard::Drained`].
    pub log_from: u64,
    /// Reads that their member does not answer in time are asked of the others, too.
    pub hedging: bool,
    /// Every member moves its data past the CPU.
    pub dma: bool,
}

impl View {
    /// Every slot has a member in sync, and none is being rebuilt.
    pub(crate) fn whole(&self) -> bool {
        let whole = |slot: &SlotView| slot.current.is_some() && slot.incoming.is_none();
        self.slots.iter().all(whole)
    }

    /// The device serves a slot.
    pub fn has(&self, device: DeviceId) -> bool {
        self.slots.iter().any(|slot| {
            slot.current.is_some_and(|d| d.device == device)
                || slot
                    .incoming
                    .as_ref()
                    .is_some_and(|i| i.target.device == device)
        })
    }
}

/// What serves one slot.
#[derive(Clone, Debug, Default)]
pub struct SlotView {
    /// The member in sync, if there is one.
    pub current: Option<DeviceView>,
    /// The member being rebuilt into this slot: valid below `rebuilt`, written there too.
    pub incoming: Option<Incoming>,
}

/// A device as shards need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceView {
    /// Which.
    pub device: DeviceId,
    /// Where the data area starts on it, bytes.
    pub data_offset: u64,
    /// It has a volatile write cache: durability needs a flush.
    pub volatile_cache: bool,
    /// Its identity, which its log batches bear.
    pub member: MemberUuid,
    /// What its log batches are padded to, bytes: a multiple of 4096.
    pub log_granularity: u32,
}

/// A rebuild's target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The device.
    pub target: DeviceView,
    /// Rows below this one are valid on it.
    pub rebuilt: Row,
    /// Of a member that came back: the regions that it lacks. In all others it is valid.
    pub lacking: Option<Arc<RegionSet>>,
}

impl Incoming {
    /// Whether what it holds in this row of this region is valid.
    pub fn holds(&self, row: Row, region: RegionNo) -> bool {
        let there = || self.lacking.as_ref().is_some_and(|set| !set.has(region));
        row < self.rebuilt || there()
    }
}

/// What a shard may do in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionAccess {
    /// Reads are zeros; a write must ask first.
    Unwritten,
    /// Reads are served; a write must ask first.
    Clean,
    /// Reads and writes are served: Dirty is durable on the members.
    Open,
    /// As `Open`, but parity is not to be trusted until the resync has passed: writes do not build
    /// on it.
    NeedSync,
}

// ---- array and shards ------------------------------------------------------------------------

/// On what condition a region is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseIf {
    /// On none.
    Always,
    /// It was not written since the last such question.
    Idle,
    /// All that the shard has there is zero.
    Empty,
}

/// From the array to a shard.
#[derive(Clone, Debug)]
pub enum ToShard {
    /// The membership changed. Answered with [`FromShard::ViewApplied`].
    View(Arc<View>),
    /// A region may be used in this way from now on.
    Region {
        /// Which.
        region: RegionNo,
        /// How.
        access: RegionAccess,
    },
    /// Finish what is being written in the region and start nothing new there until the next
    /// [`ToShard::Region`]. Answered with [`FromShard::RegionClosed`].
    CloseRegion {
        /// Which.
        region: RegionNo,
        /// Refuse otherwise.
        only_if: CloseIf,
    },
    /// A resync has made parity true in a region that is being closed; it stays as closed as it is.
    Synced {
        /// Which.
        region: RegionNo,
    },
    /// These blocks answer an error from now on, and no others: it is durable.
    Unreadable(Arc<Lost>),
    /// Answer to [`FromShard::List`]; what it asked for is durable, and was told before. And to
    /// [`FromShard::Settle`].
    Listed {
        /// Which operation.
        op: u64,
        /// The list is full: nothing was changed.
        full: bool,
    },
    /// Work on the shard's own stripes in these rows. Answered with [`FromShard::StepDone`].
    Step(Step),
    /// The array's shape is about to change: let requests that come from now on wait, and finish
    /// what was begun. Answered with [`FromShard::Held`]. Who routes requests on the same thread
    /// must hear of it first: [`crate::Router::hold`].
    Hold,
    /// What waited since [`ToShard::Hold`] goes on; nothing has changed.
    Resume,
    /// The array has another shape: begin anew with it, and with what waited. Answered with
    /// [`FromShard::ViewApplied`]. Routers must hear of it, too: [`crate::Router::reshape`].
    Reshape(Box<ShardSetup>),
    /// Every shard works by the same view: stripes of others may be read, until [`ToShard::Home`].
    Visit,
    /// No read of another shard's stripe is answered from now on, those under way neither. Answered
    /// with [`FromShard::AtHome`].
    Home,
}

/// A piece of a background job.
#[derive(Clone, Debug)]
pub struct Step {
    /// Comes back in the answer.
    pub step: u64,
    /// What to do.
    pub kind: StepKind,
    /// First row.
    pub first: Row,
    /// Row after the last.
    pub end: Row,
    /// Stripes of the shard at work at once, at most.
    pub depth: u16,
}

/// What a step does with each stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Compute the strips of every incoming member (whose `rebuilt` lies at or below) and write
    /// them.
    Rebuild,
    /// Make parity (or mirrors) agree with the data.
    Resync,
    /// The same, durably, in regions that were undecided.
    Accept,
    /// Compare parity (or mirrors) with the data.
    Scrub(ScrubMode),
    /// Nothing: it covers no stripe, and what was served is told.
    Init,
}

/// From a shard to the array.
#[derive(Clone, Debug)]
pub enum FromShard {
    /// Nothing is under way since [`ToShard::Hold`], nor will be.
    Held {
        /// Strip-sized buffers that the shard has.
        buffers: usize,
        /// Above every number that this shard has given to operations.
        next_number: u64,
        /// Requests since this, or the end of a step, was told last.
        foreground: u64,
        /// How long those took that were answered.
        seen: Option<Box<Histogram>>,
    },
    /// Answer to [`ToShard::Home`].
    AtHome,
    /// The view with this version is in force; nothing started under an older one waits for it.
    ViewApplied {
        /// Which.
        version: u64,
    },
    /// An I/O failed on a device. Requests that it concerns wait for a view without the device if
    /// it was a write; reads are answered from the others meanwhile.
    MemberError {
        /// Where.
        device: DeviceId,
        /// How.
        error: IoError,
        /// It was a write (or flush).
        write: bool,
        /// Offset on the device, bytes.
        offset: u64,
    },
    /// A sector that could not be read was rewritten from the others.
    Repaired {
        /// Where.
        device: DeviceId,
        /// Offset on the device, bytes.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A scrub found that a member's strip is wrong here.
    Mismatch {
        /// Where.
        device: DeviceId,
        /// Offset on the device, bytes.
        offset: u64,
        /// Bytes.
        len: u64,
        /// It was rewritten.
        repaired: bool,
    },
    /// A scrub found strips that do not agree, and cannot say which is wrong.
    Inconsistent {
        /// The stripe.
        stripe: StripeNo,
        /// First byte within each strip.
        from: u64,
        /// Bytes of each strip.
        len: u64,
    },
    /// An operation waits until these parts of strips are durably on the list of unreadable blocks,
    /// or off it. Answered with [`ToShard::Listed`].
    List {
        /// Comes back in the answer.
        op: u64,
        /// Their content is lost; otherwise they were written anew, durably.
        lost: bool,
        /// Which.
        parts: Vec<StripPart>,
    },
    /// An operation cannot go on without a member that did not answer. Answered with
    /// [`ToShard::Listed`] when it is out, and the view without it was told; or when it stays.
    Settle {
        /// Comes back in the answer.
        op: u64,
    },
    /// A write waits for this region.
    NeedRegion {
        /// Which.
        region: RegionNo,
    },
    /// All that this shard has of the region was zeroed or discarded since it was written last.
    RegionEmpty {
        /// Which.
        region: RegionNo,
    },
    /// Answer to [`ToShard::CloseRegion`].
    RegionClosed {
        /// Which.
        region: RegionNo,
        /// False: it stays as it is, for the condition does not hold.
        closed: bool,
        /// Operations that wrote there since the last answer.
        writes: u32,
        /// Above every number that this shard has given to operations.
        next_number: u64,
    },
    /// Every write that was logged, or began in place, before a view with this `log_from` came is
    /// over; those after it have records with numbers from there on, if the view says so.
    Drained {
        /// Which.
        log_from: u64,
    },
    /// Numbers from this `log_from` on were given out before a view with it came: nothing follows
    /// but another view, with a higher one.
    NumbersPast {
        /// Which.
        log_from: u64,
        /// Above all that were given out.
        next: u64,
    },
    /// There are hardly any numbers left for operations.
    NumbersShort,
    /// How long members take, as this shard sees them.
    Latencies(Vec<(DeviceId, Box<crate::stats::device_latency::Latencies>)>),
    /// A step is finished.
    StepDone {
        /// Which.
        step: u64,
        /// What came of it.
        outcome: StepOutcome,
        /// How long the requests took that were answered since the last step; none if there were
        /// none.
        seen: Option<Box<Histogram>>,
    },
}

/// What a step found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepOutcome {
    /// Stripes looked at.
    pub stripes: u64,
    /// Stripes whose parity (or mirrors) did not agree.
    pub inconsistent: u64,
    /// Those of them in which it is known everywhere which member is wrong.
    pub located: u64,
    /// Stripes passed over because their region is unwritten.
    pub skipped: u64,
    /// Stripes that could not be worked on: more strips unreadable than the level survives.
    pub unreadable: u64,
    /// User requests served by this shard since the last step: the job makes room when there are
    /// any.
    pub foreground: u64,
}

/// What a shard wants done.
#[derive(Debug)]
pub enum ShardOutput {
    /// Do this I/O and complete it.
    Io(MemberIo),
    /// Answer this request.
    Reply(Reply),
    /// Bring this piece to the router that made it, which splits it anew
    /// ([`crate::Router::again`]): the array has another shape since.
    Again(Request),
    /// Bring this read to the shard that owns its stripe ([`crate::Shard::passed`]), and the member
    /// that is late with it, if one is.
    Pass(ShardNo, Request, Option<DeviceId>),
    /// Bring this to a shard ([`crate::Shard::turn`]).
    Turn(ShardNo, Turn),
    /// Bring this to the array.
    Message(FromShard),
}

/// Whose turn it is to write a rebuild's target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Of this step.
    pub(crate) step: u64,
    /// The stripe whose turn it is.
    pub(crate) next: StripeNo,
    /// Where the step ends.
    pub(crate) end: StripeNo,
}

/// What the array wants done.
#[derive(Debug)]
pub enum ArrayOutput {
    /// Do this I/O and complete it.
    Io(MemberIo),
    /// Answer this request (those that the router sends to the array).
    Reply(Reply),
    /// As [`ShardOutput::Again`].
    Again(Request),
    /// Bring this to one shard.
    Message(ShardNo, ToShard),
    /// A command is finished.
    Done {
        /// Which.
        id: CommandId,
        /// How.
        result: Result<Changed, CommandError>,
    },
    /// Something happened that a person may want to know.
    Event(Event),
    /// The device is not used any more: close it.
    Release(DeviceId),
    /// Answer to [`crate::Array::overdue`], for every thread that has I/Os of this device.
    Overdue(DeviceId, crate::Verdict),
    /// The array serves: requests may be sent (first output after start).
    Started,
    /// The array has another shape, and every shard works by it: its users may hear of it.
    Reshaped(Arc<Geometry>),
    /// Everything is durable and quiet: devices may be closed.
    Stopped,
}

/// Whether a command changed something: verbs are idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It did.
    Yes,
    /// It was so already.
    No,
}

// ---- events ----------------------------------------------------------------------------------

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub time: Time,
    /// What.
    pub kind: EventKind,
}

/// Kinds of events: what happened, to whom, and why.
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
        /// Stripes whose parity was made true.
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
    /// A rebuild built strips in this region from others that do not agree, and cannot say which are
    /// wrong: nothing is repaired there until that is decided.
    Undecided {
        /// First byte of the block device in the region.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The region is undecided no more.
    Decided {
        /// First byte of the block device in the region.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Why.
        cause: crate::array::regions::undecided::Decision,
    },
    /// The content of these bytes of the block device is lost: they answer an error until they are
    /// written.
    Unreadable {
        /// First byte of the block device.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Bytes whose content was lost were written (or discarded): they can be read again.
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
    /// A member or spare was removed.
    Removed {
        /// The slot, if it had one.
        slot: Option<Slot>,
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
    /// The array has another level: it gets more parities, which are to be built; or it was a mirror,
    /// whose copies are parity from now on while its data moves to further members.
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
    /// What was there cannot be a member: its blocks are larger than the array's, or it is too small.
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
    /// The list of unreadable blocks has no room for what a replay of the stripe log cannot decide.
    ListFull,
    /// All numbers that there are for operations in the stripe log have been used.
    NumbersExhausted,
}

/// Why a job stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// An administrator asked for it.
    Asked,
    /// The membership changed.
    Membership,
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
