//! What the array and its shards say to each other.
//!
//! Two state machines make an array: one [`crate::Array`] (membership, superblocks, region map,
//! jobs) and one [`crate::Shard`] per thread (stripes). They talk only through [`ToShard`] and
//! [`FromShard`], which the runtime carries between threads and the simulator between simulated
//! ones. Messages of one sender to one receiver arrive in order.

use std::sync::Arc;

use strake_format::ArrayUuid;

use crate::geometry::block_set::BadBlocks;
use crate::geometry::{Geometry, StripPart};
use crate::proto::*;
use crate::stats::device_latency::{HedgeRules, Latencies};
use crate::stats::histogram::Histogram;
use crate::units::*;

/// What a shard needs at start.
#[derive(Clone, Debug)]
pub struct ShardSetup {
    /// The arithmetic.
    pub geometry: Arc<Geometry>,
    /// The membership.
    pub view: Arc<View>,
    /// Access to each region.
    pub regions: Vec<RegionAccess>,
    /// Blocks that answer an error.
    pub lost: Arc<BadBlocks>,
    /// The array, for log batches.
    pub array: ArrayUuid,
    /// Where the log lies on every member, bytes.
    pub log_offset: u64,
    /// Its size, bytes.
    pub log_bytes: u64,
    /// When reads are late, and members slow.
    pub hedging: HedgeRules,
}

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
    Unreadable(Arc<BadBlocks>),
    /// Answer to [`FromShard::List`]; a change of the list is durable, and shards know it. And to
    /// [`FromShard::AwaitVerdict`] and [`FromShard::Undecided`].
    Listed {
        /// Which operation.
        op: u64,
        /// The list is full: nothing was changed.
        full: bool,
    },
    /// Work on the shard's own stripes in these rows. Answered with [`FromShard::StepDone`].
    Step(Step),
    /// The array's shape is about to change: the shard defers new requests and finishes what it has
    /// begun. Answered with [`FromShard::Quiesced`]. A router on the same thread must be quiesced
    /// first: [`crate::Router::quiesce`].
    Quiesce,
    /// The shard submits the requests that it deferred since [`ToShard::Quiesce`]; nothing has
    /// changed.
    Resume,
    /// The array has another shape: the shard begins anew with it, and with the deferred requests.
    /// Answered with [`FromShard::ViewApplied`]. Routers take the new shape, too:
    /// [`crate::Router::reshape`].
    Reshape(Box<ShardSetup>),
    /// All shards work by the same view: the shard may read stripes of other shards until
    /// [`ToShard::RevokeLease`].
    GrantLease,
    /// The shard answers no read of another shard's stripe from now on, not even one that is in
    /// flight. Answered with [`FromShard::LeaseReturned`].
    RevokeLease,
}

/// What an operation wants of the list of unreadable blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListChange {
    /// The content of these blocks is lost: they come onto the list.
    Add,
    /// These blocks are about to be written: the list keeps room for them to leave. Nothing of the
    /// write is in a log or in place.
    Reserve,
    /// These blocks were written anew, durably: they leave the list, and give their room back.
    Remove,
    /// The write that had room kept ended without a change: it gives the room back.
    Stay,
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
    /// Compute the strips of every incoming member (if its `rebuilt` lies at or below) and write
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
    /// Nothing is under way since [`ToShard::Quiesce`], nor will be.
    Quiesced {
        /// Strip-sized buffers that the shard has.
        buffers: usize,
        /// Above every number that this shard has given to operations.
        next_number: u64,
        /// Requests since this, or the end of a step, was told last.
        foreground: u64,
        /// How long those took that were answered.
        seen: Option<Box<Histogram>>,
    },
    /// Answer to [`ToShard::RevokeLease`].
    LeaseReturned,
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
    /// An operation wants a change of the list of unreadable blocks. Answered with
    /// [`ToShard::Listed`], unless it is [`ListChange::Stay`].
    List {
        /// Comes back in the answer.
        op: u64,
        /// What it wants.
        change: ListChange,
        /// These parts of strips.
        parts: Vec<StripPart>,
    },
    /// An operation is about to write what it computes from strips that do not agree, and none of
    /// which can be named as wrong. Answered with [`ToShard::Listed`] when the region is durably
    /// undecided.
    Undecided {
        /// Comes back in the answer.
        op: u64,
        /// Which stripe.
        stripe: StripeNo,
    },
    /// An operation cannot go on without a member that did not answer. Answered with
    /// [`ToShard::Listed`] when it is out, and the view without it was told; or when it stays.
    AwaitVerdict {
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
    Latencies(Vec<(DeviceId, Box<Latencies>)>),
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
    /// Stripes with parity (or mirrors) that did not agree.
    pub inconsistent: u64,
    /// Those of them in which it is known everywhere which member is wrong.
    pub located: u64,
    /// Stripes passed over because their region is unwritten.
    pub skipped: u64,
    /// Stripes that could not be worked on: more strips unreadable than the level survives.
    pub unreadable: u64,
    /// Stripes of which a member did not give its strip, and was not written either: that strip was
    /// compared with nothing.
    pub partial: u64,
    /// User requests served by this shard since the last step: the job makes room when there are
    /// any.
    pub foreground: u64,
}

/// The permission to write a rebuild's target, which one stripe has at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteToken {
    /// Of this step.
    pub(crate) step: u64,
    /// The stripe that has the token.
    pub(crate) next: StripeNo,
    /// Where the step ends.
    pub(crate) end: StripeNo,
}
