//! Making the metadata of an array again over the data that its members still hold: for an array
//! that lost its superblocks, from a backup or from a superblock that is left.
//!
//! It becomes a new array, with an identity of its own, in the places of the old one: nothing that
//! the old one left (a member that was away, a page of a map, a record in a log) is believed ever
//! again. Parity is trusted nowhere (NeedSync). Where writes may have been under way by the maps of
//! all members it is computed from data. Where the map of one said Clean, or says nothing, or the
//! maps are of different times, strips should agree: there the resync only compares (the region is
//! undecided), for a device that is not the member, or is older, must not become the truth.
//!
//! Regions that are certain to be Unwritten stay so, and blocks that were lost stay lost. What had
//! a record in the log and nothing else is lost: blocks of writes that were under way when the
//! array last stopped without a word, and were never answered.
//!
//! Invariants: every slot has its member, for parity that may be untrue brings back no member; data
//! is not written. Deliberately absent: telling which device was in which slot, and whether all of
//! them were in sync (the caller's).

use std::collections::BTreeSet;
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
    /// The newest version of each page on that member of which it is oldest, and on that of which
    /// it is newest.
    versions: Vec<Option<(u64, u64)>>,
    /// Pages of which some member has none, or none that follow each other.
    silent: BTreeSet<u32>,
}

impl Told {
    /// Takes up what the two places of a page hold on a member that was in sync to the end, where
    /// they hold pages of that member. It is certain only if both are whole: a version after them
    /// would lie in place of the older one, and if that version is the damaged one, this cannot be
    /// seen.
    pub fn take_page(&mut self, page: u32, places: [Option<&MapPage>; 2]) {
        let at = page as usize;
        if self.pages.len() <= at {
            self.pages.resize(at + 1, None);
            self.versions.resize(at + 1, None);
        }
        let Some(newest) = places.iter().flatten().map(|page| page.sequence).max() else {
            self.silent.insert(page);
            return;
        };
        // A version is written when all members have the one before.
        let (least, most) = self.versions[at].unwrap_or((newest, newest));
        let (least, most) = (least.min(newest), most.max(newest));
        self.versions[at] = Some((least, most));
        let [Some(a), Some(b)] = places else { return };
        let (older, newer) = if a.sequence < b.sequence {
            (a, b)
        } else {
            (b, a)
        };
        if newer.sequence - older.sequence != 1 {
            self.silent.insert(page);
            return;
        }
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
                    *state = both(*state, *own);
                }
            }
        }
    }

    /// What becomes of the regions of a page: Unwritten if that is certain. And whether strips of a
    /// region have to agree.
    fn of_page(&self, page: u32, count: usize) -> Vec<(RegionState, bool)> {
        let known = self.pages.get(page as usize).cloned().flatten();
        let known = known.filter(|states| states.len() == count);
        let known = known.unwrap_or_else(|| vec![RegionState::Clean; count]);
        let versions = self.versions.get(page as usize).copied().flatten();
        let apart = versions.is_some_and(|(least, most)| most - least > 1);
        let compared = apart || self.silent.contains(&page);
        let state = |state| match state {
            RegionState::Unwritten => (RegionState::Unwritten, false),
            RegionState::Clean => (RegionState::NeedSync, true),
            RegionState::Dirty | RegionState::NeedSync => (RegionState::NeedSync, compared),
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

/// What two members say of a region.
///
/// Where they differ the array stopped while it wrote the page: no write had begun by it, or all
/// were done. So strips agree if both are members as they were, and where one is older nothing else
/// shows it. Parity is untrue for a known reason only where no member says anything else.
fn both(one: RegionState, other: RegionState) -> RegionState {
    let written = |state| matches!(state, RegionState::Dirty | RegionState::NeedSync);
    match one == other {
        true => one,
        false if written(one) && written(other) => RegionState::NeedSync,
        false => RegionState::Clean,
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
        let count = layout.regions_in_page(page);
        let states = spec.told.of_page(page, count).into_iter();
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

#[cfg(test)]
mod tests {
    use super::*;
    use RegionState::{Clean, Dirty, NeedSync, Unwritten};

    fn page(sequence: u64, states: &[RegionState]) -> MapPage {
        MapPage {
            array: ArrayUuid([1; 16]),
            member: MemberUuid([2; 16]),
            page: 0,
            epoch: Epoch(1),
            sequence,
            states: states.to_vec(),
            behind: Vec::new(),
            undecided: Vec::new(),
            whole_at: 0,
        }
    }

    /// What becomes of a region of which the members say this, each with the version of its page.
    fn becomes(members: &[(u64, RegionState)]) -> (RegionState, bool) {
        let mut told = Told::default();
        for &(sequence, state) in members {
            let (older, newer) = (page(sequence - 1, &[state]), page(sequence, &[state]));
            told.take_page(0, [Some(&older), Some(&newer)]);
        }
        told.of_page(0, 1)[0]
    }

    const COMPARED: (RegionState, bool) = (NeedSync, true);
    const COMPUTED: (RegionState, bool) = (NeedSync, false);

    #[test]
    fn parity_is_computed_anew_only_where_all_maps_say_that_it_may_be_untrue() {
        assert_eq!(becomes(&[(7, Dirty), (7, Dirty)]), COMPUTED);
        assert_eq!(becomes(&[(7, Dirty), (8, NeedSync), (7, Dirty)]), COMPUTED);
        assert_eq!(becomes(&[(7, Clean), (7, Clean)]), COMPARED);
        assert_eq!(becomes(&[(7, Unwritten); 3]), (Unwritten, false));
    }

    /// A member of an older image says Dirty, or Clean, of a region that the others say is not so.
    #[test]
    fn what_maps_that_differ_say_is_compared() {
        for other in [Clean, Unwritten] {
            for written in [Dirty, NeedSync] {
                assert_eq!(becomes(&[(7, written), (8, other)]), COMPARED);
                assert_eq!(becomes(&[(8, other), (7, written)]), COMPARED);
                assert_eq!(becomes(&[(8, other), (7, written), (7, Dirty)]), COMPARED);
            }
        }
    }

    /// The page is written when all members have the version before.
    #[test]
    fn a_member_with_an_older_map_is_compared_though_it_says_the_same() {
        assert_eq!(becomes(&[(7, Dirty), (9, Dirty)]), COMPARED);
        assert_eq!(becomes(&[(9, Dirty), (9, Dirty), (7, NeedSync)]), COMPARED);
        assert_eq!(becomes(&[(9, Dirty), (7, Dirty), (9, Dirty)]), COMPARED);
        assert_eq!(becomes(&[(8, Dirty), (7, Dirty), (9, Dirty)]), COMPARED);
        assert_eq!(
            becomes(&[(9, Unwritten), (7, Unwritten)]),
            (Unwritten, false)
        );
    }

    #[test]
    fn a_member_that_says_nothing_is_compared() {
        let (older, newer) = (page(6, &[Dirty]), page(7, &[Dirty]));
        let old = page(3, &[Dirty]);
        // Of a page that was being written when the power went one version is left.
        for (places, becomes) in [
            ([None, None], COMPARED),
            ([None, Some(&old)], COMPARED),
            ([Some(&old), Some(&newer)], COMPARED),
            ([Some(&older), None], COMPUTED),
            ([None, Some(&newer)], COMPUTED),
        ] {
            let mut told = Told::default();
            told.take_page(0, [Some(&older), Some(&newer)]);
            told.take_page(0, places);
            assert_eq!(told.of_page(0, 1)[0], becomes, "{places:?}");
        }
    }
}
