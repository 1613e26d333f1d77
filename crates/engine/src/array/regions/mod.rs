//! The region map: what was never written, what may be inconsistent after an unclean stop.
//!
//! A region goes `Unwritten → Zeroing → Opening → Open → Closing → Flushing → Cleaning → Clean →
//! Opening …`, and from any quiet state through `Closing` to `Unmapping → Unwritten` when all of it
//! is discarded; before that it is `Retiring`, until no record of the stripe log tells of it.
//!
//! Invariants:
//! * Shards write a region only after a page that says Dirty (or NeedSync) is durable on every live
//!   member, and it is durable which members are live.
//! * A page says Clean only after every shard closed the region and every live member flushed.
//! * What reads as zeros because it is Unwritten is zeroed on every member before its first write,
//!   so that
//!   parity is true from the start.
//! * A page is written to alternating places, a whole version at a time on all live members; every
//!   member in sync has the version before whole by then.

pub(crate) mod aging;
mod check;
pub(crate) mod flush_barrier;
pub(crate) mod last_whole;
pub(crate) mod undecided;
mod unmap;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use strake_format::region_map::{PAGE_BYTES, place};
use strake_format::*;

use crate::array::regions::aging::{Idle, ReopenHistory};
use crate::array::regions::flush_barrier::FlushBarrier;
use crate::array::{Array, Purpose, Stage};
use crate::canary::{self, Canary};
use crate::geometry::Geometry;
use crate::mem::buffer::{Buf, Slice};
use crate::proto::*;
use crate::units::*;

/// How far a region has come in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Unwritten,
    /// Being zeroed on every member, or given back to them after a discard.
    Zeroing {
        pending: u32,
        then: AfterZeroing,
    },
    /// Dirty is on its way to the members.
    Opening,
    Open,
    /// As open, parity not trusted; a resync is due.
    NeedSync,
    /// Shards are finishing their writes there.
    Closing {
        waits: u32,
        refused: bool,
        unmap: bool,
        sync: bool,
    },
    /// Members flush: so that Clean will be true, or so that what was zeroed stays zero.
    Flushing {
        open: bool,
    },
    /// Clean is on its way to the members.
    Cleaning,
    Clean,
    /// Closed, to be given back: records of the stripe log that tell of it still count.
    Retiring {
        sync: bool,
    },
    /// Unwritten is on its way to the members.
    Unmapping,
    /// Shards answer zeros; what they are still computing from the members there comes to its end.
    Draining {
        waits: u32,
    },
}

/// What becomes of a region that is zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterZeroing {
    /// It is opened for its first write.
    Open,
    /// Clean: it is zeroed in the background (`jobs::zeroing`).
    Clean,
    /// It was given back: no zeroes were written.
    Unwritten,
}

impl Phase {
    /// It is on its way to be Clean.
    pub(crate) fn becomes_clean(self) -> bool {
        let zeroing = matches!(self, Phase::Zeroing { then, .. } if then == AfterZeroing::Clean);
        zeroing || matches!(self, Phase::Flushing { open: false } | Phase::Cleaning)
    }

    /// Parity is not to be trusted.
    pub(crate) fn untrusted(self) -> bool {
        matches!(
            self,
            Phase::NeedSync | Phase::Closing { sync: true, .. } | Phase::Retiring { sync: true }
        )
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) phase: Phase,
    /// What the newest page version says (or will say, once written).
    pub(crate) disk: RegionState,
    /// Written while some slot was not in sync: see `members::rejoin`.
    stale: bool,
    /// Strips of it were built from others that did not agree.
    pub(crate) undecided: bool,
    /// A shard asked for it during a transition.
    wanted: bool,
    /// Requests that discard it wholly.
    unmap: Vec<RequestId>,
    /// How long it stays open without writes.
    pub(crate) history: ReopenHistory,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) sequence: u64,
    /// Writes in flight of the version `sequence`.
    pub(crate) pending: u32,
    /// Changed since the version in flight was put together.
    pub(crate) dirty: bool,
    /// The version that tells of undecided regions as they are.
    pub(crate) undecided_at: u64,
    /// The version that members which joined since then must have before they serve.
    joined_at: u64,
    /// The newest version that every member had when the array was last whole: see `last_whole`.
    pub(crate) whole_at: u64,
    /// The version `sequence` says so.
    pub(crate) says_whole_at: bool,
    /// Regions that wait for the version in flight.
    waiting: Vec<RegionNo>,
    /// Regions that wait for the next.
    next: Vec<RegionNo>,
    /// Members in sync on which `sequence` is not whole: they get it before the next, which would
    /// go over the only whole version that they have.
    pub(crate) lagging: Vec<DeviceId>,
}

impl Page {
    /// Every member that is there has taken this version, or a newer one.
    pub(crate) fn is_durable(&self, version: u64) -> bool {
        match self.sequence.cmp(&version) {
            Ordering::Less => false,
            Ordering::Equal => self.pending == 0,
            Ordering::Greater => true,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) regions: Vec<Region>,
    pub(crate) pages: Vec<Page>,
    /// Regions that a page covers.
    pub(crate) page_regions: usize,
    /// When regions that are not written are closed.
    pub(crate) idle: Idle,
    /// Regions that wait for flushes.
    pub(crate) flush_barrier: FlushBarrier,
    /// Flushes left before the array may stop, once they were asked for.
    stop_flush: Option<usize>,
    /// Pieces of requests over several regions: request, regions left, and what came of the others.
    unmapping: Vec<(RequestId, u32, Result<(), RequestError>)>,
    /// Shards that have, or had, nothing but zeros in a region.
    pub(crate) empty: BTreeMap<RegionNo, BTreeSet<ShardNo>>,
    /// Operations of shards that wait for pages that say which regions are undecided.
    awaiting_undecided: Vec<(ShardNo, u64)>,
    /// Some region may be stale.
    flagged: bool,
    /// Some regions need a resync that no page records yet.
    unrecorded: bool,
}

impl Map {
    /// From the pages chosen at assembly; Dirty regions need a resync after a stop that was unclean
    /// and not covered by the stripe log. Where not every slot is in sync (`whole`), what is
    /// neither Clean nor Unwritten is stale.
    pub(crate) fn new(
        geometry: &Geometry,
        page_regions: u16,
        pages: &[MapPage],
        resync: bool,
        whole: bool,
        clean_after_ms: u64,
        had: &[u64],
    ) -> Map {
        let states = pages.iter().flat_map(|p| {
            let has = |places: &[u16], at: usize| places.binary_search(&(at as u16)).is_ok();
            let flags = move |at| (has(&p.behind, at), has(&p.undecided, at));
            (0..p.states.len()).map(move |at| (p.states[at], flags(at)))
        });
        let mut unrecorded = false;
        let regions: Vec<Region> = states
            .take(geometry.regions() as usize)
            .map(|(disk, (stale, undecided))| {
                let phase = match disk {
                    RegionState::Unwritten => Phase::Unwritten,
                    RegionState::Clean => Phase::Clean,
                    RegionState::Dirty if !resync || geometry.m == 0 => Phase::Open,
                    RegionState::NeedSync if geometry.m == 0 => Phase::Open,
                    RegionState::Dirty | RegionState::NeedSync => Phase::NeedSync,
                };
                let open = matches!(disk, RegionState::Dirty | RegionState::NeedSync);
                // Dirty means nothing to resync as soon as superblocks say that the log tells all.
                let due = phase == Phase::NeedSync;
                unrecorded |= due && disk != RegionState::NeedSync;
                Region {
                    phase,
                    disk: if due { RegionState::NeedSync } else { disk },
                    stale: stale || (open && !whole && !canary::hit(Canary::StaleMapTrusted)),
                    undecided,
                    wanted: false,
                    unmap: Vec::new(),
                    history: ReopenHistory::default(),
                }
            })
            .collect();
        let pages = pages
            .iter()
            .zip(had)
            .map(|(p, &whole_at)| Page {
                sequence: p.sequence,
                whole_at,
                says_whole_at: p.whole_at > 0,
                ..Page::default()
            })
            .collect();
        let flagged = regions.iter().any(|r| r.stale);
        Map {
            regions,
            flagged,
            unrecorded,
            pages,
            page_regions: usize::from(page_regions),
            idle: Idle::new(geometry, clean_after_ms),
            flush_barrier: FlushBarrier::default(),
            stop_flush: None,
            unmapping: Vec::new(),
            empty: BTreeMap::new(),
            awaiting_undecided: Vec::new(),
        }
    }

    /// Members that lack the newest version of a page.
    pub(crate) fn set_lagging(&mut self, page: u32, devices: Vec<DeviceId>) {
        self.pages[page as usize].lagging = devices;
    }

    /// The page that covers a region.
    pub(crate) fn page_of(&self, region: RegionNo) -> usize {
        region.0 as usize / self.page_regions
    }

    pub(crate) fn region(&mut self, region: RegionNo) -> &mut Region {
        &mut self.regions[region.0 as usize]
    }

    pub(crate) fn phase(&self, region: RegionNo) -> Phase {
        self.regions[region.0 as usize].phase
    }

    /// A shard waits for the region.
    pub(crate) fn wanted(&self, region: RegionNo) -> bool {
        self.regions[region.0 as usize].wanted
    }

    /// A shard waits for the region, or a request to give it back does.
    pub(crate) fn awaited(&self, region: RegionNo) -> bool {
        self.wanted(region) || !self.regions[region.0 as usize].unmap.is_empty()
    }

    fn not_empty(&mut self, region: RegionNo, shard: ShardNo) {
        if let Some(shards) = self.empty.get_mut(&region) {
            shards.remove(&shard);
        }
    }

    pub(crate) fn is_stale(&self, region: RegionNo) -> bool {
        self.regions[region.0 as usize].stale
    }

    pub(crate) fn mark_stale(&mut self, region: RegionNo) {
        self.region(region).stale = true;
        self.flagged = true;
    }

    /// Some region may be stale.
    pub(crate) fn flagged(&self) -> bool {
        self.flagged
    }

    /// No region is stale any more; pages that record stale regions are written again.
    pub(crate) fn clear_stale(&mut self) {
        let regions = self.regions.chunks_mut(self.page_regions);
        for (page, regions) in self.pages.iter_mut().zip(regions) {
            for region in regions.iter_mut() {
                page.dirty |= std::mem::take(&mut region.stale);
            }
        }
        self.flagged = false;
    }

    /// Some regions need a resync that no page recorded when the array was found: the superblock
    /// may not say `covered` before the pages record it.
    pub(crate) fn unrecorded(&self) -> bool {
        self.unrecorded
    }

    /// The pages of the start are durable. True if they recorded a resync that no page had.
    pub(crate) fn take_unrecorded(&mut self) -> bool {
        std::mem::take(&mut self.unrecorded)
    }

    /// What `explain` tells.
    pub(crate) fn state(&self, region: RegionNo) -> RegionState {
        match self.phase(region) {
            Phase::Unwritten
            | Phase::Zeroing { .. }
            | Phase::Unmapping
            | Phase::Draining { .. } => RegionState::Unwritten,
            phase if phase.untrusted() => RegionState::NeedSync,
            Phase::Clean => RegionState::Clean,
            _ => RegionState::Dirty,
        }
    }

    /// There was no parity so far: what pages call NeedSync is only Dirty. To be written.
    pub(crate) fn nothing_to_sync(&mut self) {
        let untrue = |region: &&mut Region| region.disk == RegionState::NeedSync;
        for region in self.regions.iter_mut().filter(untrue) {
            region.disk = RegionState::Dirty;
        }
    }

    /// Every region is in a phase for which this holds.
    pub(crate) fn all(&self, holds: impl Fn(Phase) -> bool) -> bool {
        self.regions.iter().all(|region| holds(region.phase))
    }

    /// Writes every page that lacks its newest version in the B place on some live member; true if
    /// there are any.
    pub(crate) fn gather_in_b(&mut self) -> bool {
        let elsewhere =
            |page: &&mut Page| page.sequence.is_multiple_of(2) || !page.lagging.is_empty();
        let mut any = false;
        for page in self.pages.iter_mut().filter(elsewhere) {
            (page.dirty, any) = (true, true);
        }
        any
    }

    /// The map covers so many regions; those that are new were never written. Their pages have no
    /// version yet, and the first goes to the A place, as the next does of all others.
    pub(crate) fn extend_to(&mut self, regions: u32, pages: u32) {
        let unwritten = Region {
            phase: Phase::Unwritten,
            disk: RegionState::Unwritten,
            stale: false,
            undecided: false,
            wanted: false,
            unmap: Vec::new(),
            history: ReopenHistory::default(),
        };
        self.regions.resize(regions as usize, unwritten);
        let fresh = Page {
            sequence: 1,
            ..Page::default()
        };
        self.pages.resize(pages as usize, fresh);
    }

    /// Nothing lies in the region any more. Its page is to be written.
    pub(crate) fn forget(&mut self, region: RegionNo) {
        let page = self.page_of(region);
        self.forget_history(region);
        let entry = self.region(region);
        if (entry.phase, entry.disk) == (Phase::Unwritten, RegionState::Unwritten) {
            return;
        }
        (entry.phase, entry.disk) = (Phase::Unwritten, RegionState::Unwritten);
        (entry.stale, entry.undecided) = (false, false);
        self.pages[page].dirty = true;
    }

    /// Members that joined have every page, of that time or newer.
    pub(crate) fn members_have_it(&self) -> bool {
        self.pages
            .iter()
            .all(|page| page.is_durable(page.joined_at))
    }

    /// No page is being written.
    pub(crate) fn quiet(&self) -> bool {
        let quiet = |p: &Page| p.pending == 0 && !p.dirty && p.waiting.is_empty();
        self.pages.iter().all(quiet)
    }

    pub(crate) fn access(&self, region: RegionNo) -> RegionAccess {
        self.regions[region.0 as usize].access()
    }

    pub(crate) fn accesses(&self) -> Vec<RegionAccess> {
        self.regions.iter().map(Region::access).collect()
    }

    pub(crate) fn unwritten_bytes(&self, geometry: &Geometry) -> u64 {
        (0..geometry.regions())
            .map(RegionNo)
            .filter(|&r| self.state(r) == RegionState::Unwritten)
            .flat_map(|r| geometry.region_parts(r))
            .map(|range| range.end - range.start)
            .sum()
    }

    /// How many regions are in each state.
    pub(crate) fn counts(&self, geometry: &Geometry) -> RegionCounts {
        let mut counts = RegionCounts::default();
        (0..geometry.regions()).for_each(|r| counts.add(self.state(RegionNo(r))));
        counts
    }

    /// Somewhere parity is not trusted.
    pub(crate) fn syncing(&self) -> bool {
        self.regions.iter().any(|r| r.phase.untrusted())
    }

    /// When idle regions are looked for again.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.idle.sweep
    }
}

impl Region {
    fn access(&self) -> RegionAccess {
        match self.phase {
            Phase::Unwritten
            | Phase::Zeroing { .. }
            | Phase::Unmapping
            | Phase::Draining { .. } => RegionAccess::Unwritten,
            Phase::Open => RegionAccess::Open,
            Phase::NeedSync if self.undecided => RegionAccess::Undecided,
            Phase::NeedSync => RegionAccess::NeedSync,
            _ => RegionAccess::Clean,
        }
    }
}

impl Array {
    pub(crate) fn set_phase(&mut self, region: RegionNo, phase: Phase) {
        self.map.region(region).phase = phase;
    }

    /// Enters a phase that shards must know of.
    fn enter(&mut self, region: RegionNo, phase: Phase) {
        self.set_phase(region, phase);
        let access = self.map.region(region).access();
        // A shard that asked during the transition asks again, if the answer is not what it needs.
        self.out.message_all(&ToShard::Region { region, access });
        if matches!(phase, Phase::Open | Phase::NeedSync) {
            self.sweep_later();
        }
        let entry = self.map.region(region);
        entry.wanted = false;
        if !entry.unmap.is_empty() && matches!(self.stage, Stage::Serving | Stage::Stopping) {
            self.close(region, CloseIf::Always, true);
        } else if phase == Phase::Clean {
            self.give_back_if_empty(region);
        }
    }

    /// A shard has a write that waits for the region.
    pub(crate) fn region_needed(&mut self, region: RegionNo) {
        if !matches!(self.stage, Stage::Serving | Stage::Stopping) {
            return;
        }
        match self.map.phase(region) {
            Phase::Unwritten => self.zero_region(region, AfterZeroing::Open),
            Phase::Clean => {
                self.learn_habit(region);
                self.open_region(region);
            }
            Phase::Open => self.enter(region, Phase::Open),
            Phase::NeedSync => self.enter(region, Phase::NeedSync),
            _ => self.map.region(region).wanted = true,
        }
    }

    /// Zeroes the region's rows on every live member, to open it; or gives them back: there are no
    /// more reads, and before the next write all of it is zeroed. So it does not matter what a
    /// member makes of the advice, and one that cannot deallocate writes nothing for it.
    fn zero_region(&mut self, region: RegionNo, then: AfterZeroing) {
        let rows = self.geometry.region_rows(region);
        let (start, len) = (rows.start * self.geometry.strip, rows.end - rows.start);
        let len = len * self.geometry.strip;
        let devices = self.table.live();
        if !self.enter_zeroing(region, devices.len() as u32, then) {
            return;
        }
        for device in devices {
            let offset = self.table[&device].layout.data_offset + start;
            let kind = match then {
                AfterZeroing::Unwritten => IoKind::Discard { offset, len },
                _ => IoKind::WriteZeroes { offset, len },
            };
            self.out.io(device, Purpose::Zero { region, device }, kind);
        }
    }

    /// False if the array failed.
    fn enter_zeroing(&mut self, region: RegionNo, waits: u32, then: AfterZeroing) -> bool {
        // What is lost there is lost no more: it must not be listed when the region is written
        // again.
        let unreadable = &mut self.unreadable;
        let listed = unreadable.unlist_region(region, &self.geometry, &mut self.out);
        if listed.is_err() {
            // Zeros were acknowledged that would answer an error.
            self.fail(FailCause::ListFull);
        }
        let pending = waits + u32::from(listed == Ok(true));
        self.set_phase(region, Phase::Zeroing { pending, then });
        listed.is_ok()
    }

    /// The region is zeroed in the background: `region_zeroed` follows once.
    pub(crate) fn begin_zeroing(&mut self, region: RegionNo) {
        self.enter_zeroing(region, 1, AfterZeroing::Clean);
    }

    pub(crate) fn region_zeroed(&mut self, region: RegionNo) {
        let Phase::Zeroing { pending, then } = self.map.phase(region) else {
            unreachable!("zeroing ends before the region's phase changes")
        };
        let pending = pending - 1;
        self.set_phase(region, Phase::Zeroing { pending, then });
        if pending > 0 || self.stage == Stage::Failed {
            return;
        }
        match then {
            AfterZeroing::Clean if !self.map.wanted(region) => {
                if !self.table.whole() && !canary::hit(Canary::InitForgetsAbsent) {
                    self.map.mark_stale(region);
                }
                self.flush_region(region, false);
            }
            AfterZeroing::Open | AfterZeroing::Clean => {
                self.map.region(region).wanted = false;
                self.flush_region(region, true);
            }
            AfterZeroing::Unwritten => {
                // A shard that asked meanwhile asks again.
                self.unmapped(region, Ok(()));
                self.map.empty.remove(&region);
                self.enter(region, Phase::Unwritten);
            }
        }
    }

    pub(crate) fn open_region(&mut self, region: RegionNo) {
        if !self.table.whole() && !canary::hit(Canary::BehindNotSet) {
            self.map.mark_stale(region);
        }
        self.set_phase(region, Phase::Opening);
        self.write_state(region, RegionState::Dirty);
    }

    /// Content changes in the region in whatever state it is: a member that is away lacks it, and
    /// so does an image of one that is there. Durable when no page is being written.
    pub(crate) fn note_stale(&mut self, region: RegionNo) {
        let clean = self.map.phase(region) == Phase::Clean;
        match self.table.whole() {
            // Any other takes a new version of its page when it becomes Clean.
            true if !clean => return,
            true => {}
            false if self.map.is_stale(region) => return,
            false if clean && canary::hit(Canary::CleanNotBehind) => return,
            false => self.map.mark_stale(region),
        }
        let at = self.map.page_of(region);
        self.map.pages[at].dirty = true;
        self.write_page(at as u32);
    }

    /// Puts a new state of the region into its page and writes it.
    fn write_state(&mut self, region: RegionNo, state: RegionState) {
        self.map.region(region).disk = state;
        let at = self.map.page_of(region);
        let page = &mut self.map.pages[at];
        page.next.push(region);
        page.dirty = true;
        self.write_page(at as u32);
    }

    /// Writes every page anew (at start, and when a member joins).
    pub(crate) fn rewrite_map(&mut self) {
        for page in &mut self.map.pages {
            (page.dirty, page.joined_at) = (true, page.sequence + 1);
        }
        self.write_pages();
    }

    /// Goes on with what the pages waited for, and writes those that were held back.
    pub(crate) fn write_pages(&mut self) {
        for page in 0..self.map.pages.len() as u32 {
            self.page_durable(page);
            self.write_page(page);
        }
    }

    fn write_page(&mut self, at: u32) {
        let page = &self.map.pages[at as usize];
        // A member that failed must be durably out before a page builds on its absence: a flush
        // that it did not do must not make a region Clean for which it is believed later.
        let held = self.persist.view_due || self.stage == Stage::Failed;
        if page.pending > 0 || !page.dirty || held {
            return;
        }
        let undecided = self.map.undecided_in(at as usize);
        if self.holds_undecided(&undecided) {
            return;
        }
        let says = page.says(self.table.whole());
        if says > 0 && !self.persist.says_whole_at() {
            return;
        }
        let live = self.table.live();
        let page = &mut self.map.pages[at as usize];
        page.says_whole_at = says > 0;
        let mut devices = std::mem::take(&mut page.lagging);
        devices.retain(|device| live.contains(device));
        if devices.is_empty() {
            devices = live;
            page.dirty = false;
            page.sequence += 1;
            page.waiting = std::mem::take(&mut page.next);
        }
        let sequence = page.sequence;
        let page_regions = self.map.page_regions;
        let first = at as usize * page_regions;
        let states: Vec<RegionState> = self
            .map
            .regions
            .iter()
            .skip(first)
            .take(page_regions)
            .map(|r| r.disk)
            .collect();
        let shown = self.map.regions.iter().skip(first).zip(&states);
        // A region that was never written is zeroed on the members that are there before its first
        // write.
        let stale: Vec<u16> = (0..)
            .zip(shown)
            .filter(|(_, (r, state))| r.stale && **state != RegionState::Unwritten)
            .map(|(at, _)| at)
            .collect();
        self.map.pages[at as usize].pending = devices.len() as u32;
        for device in devices {
            let member = &self.table[&device];
            let offset = place(&member.places, at, sequence);
            let image = MapPage {
                array: self.sb.array,
                member: member.member,
                page: at,
                epoch: self.sb.epoch,
                sequence,
                states: states.clone(),
                behind: stale.clone(),
                undecided: undecided.clone(),
                whole_at: says,
            };
            let fua = member.info.volatile_cache;
            let data = Slice::new(Buf::from_bytes(&image.encode(offset)[..]), 0, PAGE_BYTES);
            let kind = IoKind::Write {
                offset,
                data,
                fua,
                purpose: WritePurpose::Metadata,
            };
            self.out
                .io(device, Purpose::MapPage { page: at, device }, kind);
        }
    }

    pub(crate) fn page_written(&mut self, at: u32) {
        let page = &mut self.map.pages[at as usize];
        page.pending -= 1;
        if page.pending > 0 || self.stage == Stage::Failed {
            return;
        }
        self.page_durable(at);
        self.write_page(at);
    }

    /// Every live member has taken a version of a page, and a member that did not is durably out:
    /// until then it could be believed at the next start, with the version before, where this one
    /// is damaged on the others. What waits for the version goes on.
    fn page_durable(&mut self, at: u32) {
        let everywhere = self.has_everywhere(&self.map.pages[at as usize]);
        let page = &mut self.map.pages[at as usize];
        if page.pending > 0 || self.persist.view_due || self.stage == Stage::Failed {
            return;
        }
        if everywhere {
            page.whole_at = page.sequence;
        }
        for region in std::mem::take(&mut page.waiting) {
            self.state_durable(region);
        }
    }

    fn state_durable(&mut self, region: RegionNo) {
        match self.map.phase(region) {
            Phase::Opening => self.enter(region, Phase::Open),
            Phase::Cleaning => {
                let wanted = self.map.region(region).wanted;
                self.enter(region, Phase::Clean);
                if wanted && self.map.phase(region) == Phase::Clean {
                    self.learn_habit(region);
                    self.open_region(region);
                }
            }
            Phase::Unmapping => {
                // Shards answer zeros from now on, and say when nothing is left that reads the
                // members; then the members' blocks go.
                self.out.message_all(&ToShard::Region {
                    region,
                    access: RegionAccess::Unwritten,
                });
                self.set_phase(
                    region,
                    Phase::Draining {
                        waits: u32::from(self.shards),
                    },
                );
                self.out.message_all(&ToShard::CloseRegion {
                    region,
                    only_if: CloseIf::Always,
                });
            }
            _ => {}
        }
    }

    // ---- closing -----------------------------------------------------------------------------

    pub(crate) fn close(&mut self, region: RegionNo, only_if: CloseIf, unmap: bool) {
        let sync = self.map.phase(region) == Phase::NeedSync;
        let waits = u32::from(self.shards);
        self.set_phase(
            region,
            Phase::Closing {
                waits,
                refused: false,
                unmap,
                sync,
            },
        );
        self.out
            .message_all(&ToShard::CloseRegion { region, only_if });
    }

    pub(crate) fn region_closed(
        &mut self,
        region: RegionNo,
        from: ShardNo,
        closed: bool,
        writes: u32,
    ) {
        self.map.region(region).history.saw(writes);
        if let Phase::Draining { waits } = self.map.phase(region) {
            self.set_phase(region, Phase::Draining { waits: waits - 1 });
            if waits == 1 && self.stage != Stage::Failed {
                self.zero_region(region, AfterZeroing::Unwritten);
            }
            return;
        }
        let Phase::Closing {
            waits,
            refused,
            unmap,
            sync,
        } = self.map.phase(region)
        else {
            return;
        };
        if unmap && !closed {
            // It was empty for a moment only.
            self.map.not_empty(region, from);
        }
        let refused = refused || !closed;
        self.set_phase(
            region,
            Phase::Closing {
                waits: waits - 1,
                refused,
                unmap,
                sync,
            },
        );
        if waits > 1 || self.stage == Stage::Failed {
            return;
        }
        if refused {
            let phase = match (sync, unmap) {
                (true, _) => Phase::NeedSync,
                // Only a region that is Clean is given back on a condition.
                (false, true) => Phase::Clean,
                (false, false) => Phase::Open,
            };
            return self.enter(region, phase);
        }
        if unmap && !self.unreadable.may_unlist_region(region, &self.geometry) {
            self.jobs.note_list_full();
            return self.keep_region(region, sync);
        }
        self.note_closed(region, unmap);
        if unmap {
            self.set_phase(region, Phase::Retiring { sync });
            if self.region_unlogged(region) {
                self.unmap_region(region);
            }
        } else {
            self.flush_region(region, false);
        }
    }

    /// A region that was closed to be given back stays as it was, and the requests for that are
    /// answered.
    fn keep_region(&mut self, region: RegionNo, sync: bool) {
        self.unmapped(region, Err(RequestError::Unreadable));
        self.map.empty.remove(&region);
        let phase = match (sync, self.map.region(region).disk) {
            (true, _) => Phase::NeedSync,
            (false, RegionState::Clean) => Phase::Clean,
            (false, _) => Phase::Open,
        };
        self.enter(region, phase);
    }

    /// Nothing tells of the region's content any more: it becomes Unwritten.
    pub(crate) fn unmap_region(&mut self, region: RegionNo) {
        self.set_phase(region, Phase::Unmapping);
        // What did not agree is gone.
        self.decide(region, Decision::GivenBack);
        self.write_state(region, RegionState::Unwritten);
    }

    /// Members hold durably what is in the region.
    pub(crate) fn make_clean(&mut self, region: RegionNo) {
        self.set_phase(region, Phase::Cleaning);
        self.write_state(region, RegionState::Clean);
    }

    /// Members flush once more before the array stops, if regions stay that were never closed: what
    /// was acknowledged there is durable then.
    pub(crate) fn flushed_for_stop(&mut self) -> bool {
        if self.map.stop_flush.is_none() {
            let devices = self.table.volatile();
            self.map.stop_flush = Some(devices.len());
            for device in devices {
                self.out
                    .io(device, Purpose::LastFlush { device }, IoKind::Flush);
            }
        }
        self.map.stop_flush == Some(0)
    }

    pub(crate) fn last_flush_done(&mut self) {
        self.map.stop_flush = self.map.stop_flush.map(|left| left - 1);
    }

    pub(crate) fn regions_in(&self, phase: Phase) -> Vec<RegionNo> {
        (0..self.map.regions.len() as u32)
            .map(RegionNo)
            .filter(|&r| self.map.phase(r) == phase)
            .collect()
    }

    /// A resync has passed over the region: parity is true.
    pub(crate) fn region_synced(&mut self, region: RegionNo) {
        match self.map.phase(region) {
            Phase::NeedSync => {
                // Closed at once: what was mended is flushed, and the members know that parity may
                // be trusted here, also after an unclean stop.
                self.enter(region, Phase::Open);
                if self.map.phase(region) == Phase::Open {
                    self.close(region, CloseIf::Always, false);
                }
            }
            Phase::Closing {
                waits,
                refused,
                unmap,
                ..
            } => {
                self.set_phase(
                    region,
                    Phase::Closing {
                        waits,
                        refused,
                        unmap,
                        sync: false,
                    },
                );
                // Writes that the closing waits for may have to compute what a lost member held.
                self.out.message_all(&ToShard::Synced { region });
            }
            _ => {}
        }
    }

    // ---- discard of whole regions ------------------------------------------------------------

    pub(crate) fn unmap(&mut self, request: Request, offset: u64, len: u64) {
        let id = request.id;
        let (mut regions, mut at) = (Vec::new(), offset);
        while at < offset + len {
            let (region, bytes, alone) = self.geometry.region_at(at);
            if !alone || bytes.start != at || bytes.end > offset + len {
                // By the router's geometry it was one.
                return self.out.push(ArrayOutput::Again(request));
            }
            regions.push(region);
            at = bytes.end;
        }
        let mut left = 0;
        let mut close = Vec::new();
        for region in regions {
            let entry = self.map.region(region);
            if entry.phase == Phase::Unwritten {
                continue;
            }
            entry.unmap.push(id);
            left += 1;
            if matches!(entry.phase, Phase::Open | Phase::NeedSync | Phase::Clean) {
                close.push(region);
            }
        }
        if left == 0 {
            return self.out.reply(id, Ok(()));
        }
        self.map.unmapping.push((id, left, Ok(())));
        for region in close {
            self.close(region, CloseIf::Always, true);
        }
    }

    fn unmapped(&mut self, region: RegionNo, result: Result<(), RequestError>) {
        for id in std::mem::take(&mut self.map.region(region).unmap) {
            let at = self.map.unmapping.iter().position(|(r, ..)| *r == id);
            let at = at.expect("a request stays until its regions are done");
            let (_, left, all) = &mut self.map.unmapping[at];
            *left -= 1;
            *all = all.and(result);
            if *left == 0 {
                let (_, _, all) = self.map.unmapping.swap_remove(at);
                self.out.reply(id, all);
            }
        }
    }

    /// The array has failed: requests that wait for a region are answered.
    pub(crate) fn fail_unmaps(&mut self) {
        for (id, ..) in std::mem::take(&mut self.map.unmapping) {
            self.out.reply(id, Err(RequestError::Failed));
        }
        self.map.regions.iter_mut().for_each(|r| r.unmap.clear());
    }

    // ---- stopping ----------------------------------------------------------------------------

    /// Closes what is open; true when every region is quiet.
    pub(crate) fn close_all(&mut self) -> bool {
        for region in self.regions_in(Phase::Open) {
            self.close(region, CloseIf::Always, false);
        }
        let quiet = |r: &Region| {
            let still = matches!(r.phase, Phase::Unwritten | Phase::Clean | Phase::NeedSync);
            still && r.unmap.is_empty()
        };
        self.map.regions.iter().all(quiet) && self.map.quiet()
    }
}
