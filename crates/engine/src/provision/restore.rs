//! Making the metadata of an array again over the data that its members still hold: for an array
//! that lost its superblocks, from a backup or from a superblock that is left.
//!
//! It becomes a new array, with an identity of its own, in the places of the old one: nothing that
//! the old one left (a member that was away, a page of a map, a record in a log) is believed ever
//! again. Parity is trusted nowhere (NeedSync). Where writes may have been under way it is computed
//! from data. Where the map said Clean, or says nothing, strips should agree: there the resync only
//! compares (the region is undecided), for a device that is not the member, or is older, must not
//! become the truth. Regions that are certain to be Unwritten stay so, and blocks that were lost
//! stay lost. What had a record in the log and nothing else is lost: blocks of writes that were
//! under way when the array last stopped without a word, and were never answered.
//!
//! Invariants: every slot has its member, for parity that may be untrue brings back no member; data
//! is not written. Deliberately absent: telling which device was in which slot, and whether all of
//! them were in sync (the caller's).

use std::ops::Range;

use strake_format::*;

use crate::geometry::Geometry;
use crate::proto::DeviceInfo;
use crate::provision::create::{self, CreatePlan, Definition};

/// What members still tell of the array that was.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// For each page of the region map the states of its regions, where they are certain.
    pub pages: Vec<Option<Vec<RegionState>>>,
    /// Logical blocks that lost their content, in any order.
    pub unreadable: Vec<Range<u64>>,
}

impl Told {
    /// Takes up what the two places of a page hold on a member that was in sync to the end, where
    /// they hold pages of that member. It is certain only if both are whole: a version after them
    /// would lie in place of the older one, and if that version is the damaged one, this cannot be
    /// seen.
    pub fn take_page(&mut self, page: u32, places: [Option<&MapPage>; 2]) {
        let [Some(a), Some(b)] = places else { return };
        let (older, newer) = if a.sequence < b.sequence {
            (a, b)
        } else {
            (b, a)
        };
        if newer.sequence - older.sequence != 1 {
            return;
        }
        let at = page as usize;
        if self.pages.len() <= at {
            self.pages.resize(at + 1, None);
        }
        // Of members that differ (the array stopped while it wrote the page) neither is certain.
        let states = &mut self.pages[at];
        let mut told = newer.states.clone();
        for &at in &newer.undecided {
            // Nobody has decided it since: as where parity should be true.
            told[usize::from(at)] = RegionState::Clean;
        }
        match states {
            None => *states = Some(told),
            Some(other) => {
                for (state, own) in other.iter_mut().zip(&told) {
                    if *state != *own {
                        *state = RegionState::NeedSync;
                    }
                }
            }
        }
    }

    /// What becomes of the regions of a page: Unwritten if that is certain. And whether strips of a
    /// region have to agree.
    fn states(&self, layout: &Layout, page: u32) -> Vec<(RegionState, bool)> {
        let count = layout.regions_in_page(page);
        let known = self.pages.get(page as usize).cloned().flatten();
        let known = known.filter(|states| states.len() == count);
        let known = known.unwrap_or_else(|| vec![RegionState::Clean; count]);
        let state = |state| match state {
            RegionState::Unwritten => (RegionState::Unwritten, false),
            RegionState::Clean => (RegionState::NeedSync, true),
            RegionState::Dirty | RegionState::NeedSync => (RegionState::NeedSync, false),
        };
        known.into_iter().map(state).collect()
    }

    /// Lost blocks of an array of so many, in order and apart.
    fn lost(&self, blocks: u64) -> Vec<Range<u64>> {
        let mut ranges = self.unreadable.clone();
        ranges.sort_by_key(|range| range.start);
        let mut lost: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            let range = range.start..range.end.min(blocks);
            match lost.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ if range.start < range.end => lost.push(range),
                _ => {}
            }
        }
        lost
    }
}

/// What to make again.
#[derive(Clone, Debug)]
pub struct RestoreSpec {
    /// Random identity, drawn by the caller: not that of the array that was.
    pub array: ArrayUuid,
    /// Seconds since the Unix epoch.
    pub created_unix_s: u64,
    /// What it is.
    pub definition: Definition,
    /// The device of every slot in order, with new identities drawn by the caller.
    pub members: Vec<(DeviceInfo, MemberUuid)>,
    /// What they tell.
    pub told: Told,
}

/// Why it cannot be made again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Not one device for each slot.
    #[error("the array has {slots} slots, and the number of devices given is {devices}")]
    Members {
        /// Slots.
        slots: u8,
        /// Devices.
        devices: usize,
    },
    /// Blocks larger than the array's.
    #[error("the device of slot {slot} has blocks of {has} bytes, the array's have {array}")]
    Block {
        /// Which.
        slot: usize,
        /// The device's.
        has: u32,
        /// The array's.
        array: u32,
    },
    /// The places do not fit.
    #[error("the device of slot {slot} does not fit: {source}")]
    Layout {
        /// Which.
        slot: usize,
        /// What does not fit.
        source: LayoutError,
    },
    /// What it is said to be is nothing that an array can be.
    #[error("no array can be like that: {0}")]
    Definition(Invalid),
    /// More lost blocks than the list has room for.
    #[error("{ranges} ranges of lost blocks do not fit into the list of unreadable blocks")]
    ListFull {
        /// How many.
        ranges: usize,
    },
}

/// Checks `spec` and lays the superblocks, maps and lists out.
///
/// # Errors
/// The first thing that does not fit.
pub fn plan(spec: &RestoreSpec) -> Result<CreatePlan, RestoreError> {
    let mut superblocks = superblocks(spec)?;
    let first = &superblocks[0];
    let geometry = Geometry::of(first);
    let lost = spec
        .told
        .lost(geometry.size() / u64::from(first.block_bytes));
    if lost.len() > unreadable::capacity(first.layout.unreadable_bytes) {
        let ranges = lost.len();
        return Err(RestoreError::ListFull { ranges });
    }
    let redundant = geometry.m > 0;
    for sb in &mut superblocks {
        (sb.undecided, sb.witnessed) = (redundant, redundant);
    }
    let states = |layout: &Layout, page| {
        let states = spec.told.states(layout, page).into_iter();
        states
            .map(|(state, agrees)| (state, agrees && redundant))
            .collect()
    };
    Ok(CreatePlan::of(superblocks, states, &lost))
}

/// The superblocks alone, checked: nothing of the size of the array is laid out.
///
/// # Errors
/// The first thing that does not fit.
pub fn superblocks(spec: &RestoreSpec) -> Result<Vec<Superblock>, RestoreError> {
    let definition = &spec.definition;
    if spec.members.len() != usize::from(definition.members) || spec.members.is_empty() {
        return Err(RestoreError::Members {
            slots: definition.members,
            devices: spec.members.len(),
        });
    }
    let array = definition.block_bytes;
    let mut layouts = Vec::new();
    for (slot, (info, _)) in spec.members.iter().enumerate() {
        let has = info.block_bytes;
        if has > array {
            return Err(RestoreError::Block { slot, has, array });
        }
        let layout = definition
            .layout
            .for_device(info.bytes, definition.strip_bytes);
        layouts.push(layout.map_err(|source| RestoreError::Layout { slot, source })?);
    }
    let ids: Vec<MemberUuid> = spec.members.iter().map(|(_, member)| *member).collect();
    let mut superblocks =
        create::superblocks(spec.array, spec.created_unix_s, definition, &ids, &layouts);
    // It is unknown whether parity is true. As long as that is so, a start without a member has to
    // be refused: of one that a power cut kept from its superblock, too.
    for sb in &mut superblocks {
        (sb.clean, sb.numbers_noted) = (false, false);
    }
    // Before anything computes with numbers from a file of unknown origin.
    for sb in &superblocks {
        sb.check().map_err(RestoreError::Definition)?;
    }
    Ok(superblocks)
}
