//! What shards know of the membership and of the regions.
//!
//! Invariant: a view is replaced as a whole, and its version grows.

use std::sync::Arc;

use strake_format::MemberUuid;

use crate::geometry::region_set::RegionSet;
use crate::units::*;

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
    /// with [`FromShard::Drained`](crate::proto::FromShard::Drained).
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

    /// For each slot the member in sync, or the one being rebuilt.
    pub(crate) fn serving(&self) -> impl ExactSizeIterator<Item = Option<DeviceId>> {
        self.slots.iter().map(|slot| {
            let incoming = slot.incoming.as_ref().map(|incoming| incoming.target);
            slot.current.or(incoming).map(|d| d.device)
        })
    }

    /// A power cut may tear blocks of so many bytes on some member.
    pub(crate) fn tears(&self, block: u64) -> bool {
        let current = self.slots.iter().filter_map(|slot| slot.current.as_ref());
        let incoming = self.slots.iter().filter_map(|slot| slot.incoming.as_ref());
        let mut all = current.chain(incoming.map(|incoming| &incoming.target));
        all.any(|member| u64::from(member.sector_bytes) < block)
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
    /// Its own logical block, bytes: a power cut may tear what is longer.
    pub sector_bytes: u32,
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
    /// As `NeedSync`, and nobody knows which strips are right: nothing is written there but what
    /// users write.
    Undecided,
}
