//! From members found to an array ready to start.
//!
//! `strake_format::select_array` decides which members to believe; here the believed members become
//! slots, the newest believed region map pages become the map, and what cannot be started safely is
//! refused. Nothing is written before [`Array::start`].

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use strake_format::*;

use crate::array::jobs::Jobs;
use crate::array::jobs::zeroing::Init;
use crate::array::members::rejoin::{comes_back, keeps};
use crate::array::members::table::Table;
use crate::array::metadata::bad_blocks::{self, Unreadable};
use crate::array::metadata::copies::Copies;
use crate::array::metadata::log_coverage::LogCoverage;
use crate::array::metadata::superblocks::{Persist, SuperblockWaiter, in_sync};
use crate::array::outbox::Outbox;
use crate::array::regions::Map;
use crate::array::regions::last_whole::whole_at;
use crate::array::reshape::migrate::Move;
use crate::array::start::older_images::{Had, map_had};
use crate::array::start::replay::Replay;
use crate::array::start::resume::Resumed;
use crate::array::{Array, Member, SlotUse, Stage};
use crate::canary::{self, Canary};
use crate::geometry::Geometry;
use crate::log::recover::{self, Piece};
use crate::log::window_image::Copy;
use crate::proto::*;
use crate::provision::limits;
use crate::stats::device_latency::HedgeRules;
use crate::units::*;

/// How to start.
#[derive(Clone, Copy, Debug)]
pub struct StartOptions {
    /// Number of shards that will be made.
    pub shards: u16,
    /// Start although it is not certain that nothing is lost ([`StartError::DirtyDegraded`]), or
    /// that all that is lost can be listed ([`StartError::ListFull`]).
    pub force: bool,
    /// An open region without writes for this long becomes clean, milliseconds.
    pub clean_after_ms: u64,
    /// When reads are late, and members slow.
    pub hedging: HedgeRules,
    /// Data that moves to another shape moves so many bytes at once, about: requests wait as long.
    pub window_bytes: u64,
    /// Bands become rows ([`Superblock::folded`]), if the array can have it so: buffers are to have
    /// the size of a user's strip then.
    pub fold: bool,
    /// Drawn at random: sets this session apart from others that number superblocks as it does.
    pub session: u32,
    /// The time of day at the start, seconds since 1970: when scrubs begin and end is told by it.
    pub unix_s: u64,
}

/// Why an array cannot be started. Nothing has been written then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The superblocks do not make one array.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// More members are missing than the level survives.
    #[error(
        "{missing} {} of a group {} missing, the level survives {tolerated}{}",
        if *missing == 1 { "member" } else { "members" },
        if *missing == 1 { "is" } else { "are" },
        told(aside)
    )]
    TooFewMembers {
        /// Missing in the worst group.
        missing: usize,
        /// Tolerated in each group.
        tolerated: usize,
        /// Found, and not used.
        aside: Vec<(Slot, Aside)>,
    },
    /// Writes were under way when it stopped, and members are missing: parity cannot be trusted.
    #[error(
        "it was not stopped cleanly and members are missing: \
         blocks that the missing members held may be lost"
    )]
    DirtyDegraded,
    /// No member has a valid version of this region map page.
    #[error("page {0} of the region map is damaged on every member")]
    MapDamaged(u32),
    /// No member has a valid list of unreadable blocks: which blocks are lost is not known.
    #[error("the list of unreadable blocks is damaged on every member")]
    UnreadableDamaged,
    /// A power cut left so much undecided about members that are missing that the list of
    /// unreadable blocks may not have room for it.
    #[error(
        "{undecided} places may be undecided without the missing members, \
         the list of unreadable blocks has room for {room}"
    )]
    ListFull {
        /// Ranges of blocks, at most.
        undecided: usize,
        /// Ranges that the list has room for.
        room: usize,
    },
    /// The policy wants the stripe log, and the log areas have no room for as many shards.
    #[error("the members' log areas are too small for {0} shards")]
    LogTooSmall(u16),
    /// The stripe log has used up its numbers for operations, and the policy wants it.
    #[error("the numbers of operations in the stripe log are used up: the log base is {base}")]
    NumbersExhausted {
        /// The base that a start would begin with.
        base: u64,
    },
    /// A counter that lies on the members is about to end.
    #[error("{counter} has come to {value}, and must not wrap")]
    CounterExhausted {
        /// Which.
        counter: &'static str,
        /// How far it has come.
        value: u64,
    },
    /// Superblocks of one array that describe different geometry.
    #[error("the members of {0} describe different arrays")]
    Geometry(ArrayUuid),
}

/// The array's own view of what `select_array` found.
struct Believed {
    sb: Superblock,
    slots: Vec<SlotUse>,
    spares: Vec<DeviceId>,
    /// Slots with a member in the table that was not found, or is not used.
    gone: Vec<(Slot, OutCause)>,
    /// What was found and is not used.
    aside: Vec<(Slot, Aside)>,
    /// Members that were away and come back by what was written since.
    returned: Vec<(Slot, DeviceId)>,
    used: Vec<usize>,
}

/// For each slot the member that the tables of all in-sync members call in sync.
fn agreed(found: &[Found], slots: &[SlotUse]) -> Vec<Option<MemberUuid>> {
    let serves = |f: &&Found| slots.iter().any(|slot| slot.current() == Some(f.device));
    let tables = found.iter().filter(serves).map(|f| &f.superblock);
    let agree = |a: Vec<Option<MemberUuid>>, b: Vec<Option<MemberUuid>>| {
        let both = a.into_iter().zip(b);
        both.map(|(a, b)| a.filter(|_| a == b)).collect()
    };
    let each = tables.map(|table| in_sync(table).collect());
    each.reduce(agree).unwrap_or_default()
}

/// Takes out of a selection what could not serve as it is. `empty`: what has lost a copy of its
/// superblock is believed to hold the rest all the same.
fn fit(found: &[Found], selection: &mut Selection, had: &Had, empty: bool) {
    let table = &found[selection.authority].superblock;
    let aside = |index: usize| {
        let aside = Aside::of(&found[index], table, had, true);
        aside.filter(|aside| !(empty && matches!(aside, Aside::Emptied { .. })))
    };
    for finding in &mut selection.slots {
        if let Finding::Believed(index) = *finding
            && aside(index).is_some()
        {
            *finding = Finding::Stale(index);
        }
    }
    // Of a spare nothing counts but that it can be written.
    selection
        .spares
        .retain(|&index| limits::layout_on(table, &found[index].info).is_ok());
}

/// The table with bands that have become rows, if they can.
fn folded(table: &Superblock) -> Option<Superblock> {
    if !canary::hit(Canary::FoldedUnclean) {
        return table.folded();
    }
    let (clean, covered) = (table.clean, table.covered);
    let stopped = Superblock {
        clean: true,
        ..table.clone()
    };
    stopped.folded().map(|sb| Superblock {
        clean,
        covered,
        ..sb
    })
}

/// The row of a member that is not there, or does not count: out from now on, if it was not.
fn leave_out(record: &mut SlotRecord, aside: Option<Aside>, since: Epoch) -> Option<OutCause> {
    if !record.state.is_live() {
        return None;
    }
    let cause = aside.map_or(OutCause::NotFound, Aside::cause);
    // What is being rebuilt as a whole holds nothing by itself.
    record.kept |= record.state == SlotState::InSync;
    // Its superblock alone would not show next time that it is an image.
    record.kept &= keeps(cause) && !matches!(aside, Some(Aside::OlderMap { .. }));
    (record.state, record.since) = (SlotState::Missing, since);
    Some(cause)
}

fn believe(found: &[Found], selection: &Selection, had: &Had, fold: bool) -> Believed {
    let table = &found[selection.authority].superblock;
    let folded = fold.then(|| folded(table)).flatten();
    let mut sb = folded.unwrap_or_else(|| table.clone());
    let since = sb.epoch.next();
    let strip = u64::from(sb.strip_bytes);
    let mut slots = vec![SlotUse::default(); selection.slots.len()];
    let (mut gone, mut used) = (Vec::new(), Vec::new());
    let mut asides = Vec::new();
    let mut returned = Vec::new();
    for (at, finding) in selection.slots.iter().enumerate() {
        let record = &mut sb.slots[at];
        match finding {
            &Finding::Believed(index) => {
                used.push(index);
                let device = found[index].device;
                match record.state {
                    SlotState::Rebuilding { rebuilt_bytes } => {
                        slots[at].fill(device, Row(rebuilt_bytes / strip));
                    }
                    _ => slots[at] = SlotUse::served_by(device),
                }
                if canary::hit(Canary::ForceBelievesStale) && !record.state.is_live() {
                    record.state = SlotState::InSync;
                }
            }
            // What an administrator took out of service does not come back by itself.
            &Finding::Stale(index)
                if record.state == SlotState::Missing
                    && matches!(
                        Aside::of(&found[index], table, had, false),
                        Some(Aside::Missed { .. })
                    )
                    && comes_back(&found[index].superblock, table)
                        == Returns::Kept(Slot(at as u8)) =>
            {
                used.push(index);
                slots[at].fill(found[index].device, Row(0));
                record.state = SlotState::Rebuilding { rebuilt_bytes: 0 };
                record.since = since;
                sb.witnessed = false;
                returned.push((Slot(at as u8), found[index].device));
            }
            Finding::Stale(_) | Finding::Absent => {
                let aside = match *finding {
                    Finding::Stale(index) => Aside::of(&found[index], table, had, false),
                    _ => None,
                };
                let slot = Slot(at as u8);
                asides.extend(aside.map(|aside| (slot, aside)));
                let left = leave_out(record, aside, since);
                gone.extend(left.map(|cause| (slot, cause)));
            }
        }
    }
    let spares = believe_spares(found, selection, &mut sb, &mut slots);
    used.extend(&selection.spares);
    // The next version must differ in number from every copy that it goes beside.
    let generations = used.iter().map(|&i| found[i].superblock.generation);
    sb.generation = generations.fold(sb.generation, Ord::max);
    Believed {
        sb,
        slots,
        spares,
        gone,
        aside: asides,
        returned,
        used,
    }
}

/// The newest generation of the authority and of members in slots. A spare may be ahead of them: it
/// was with a member that went on without these. What that member has then is not what it had last,
/// and these had less than the spare (`format::select`).
fn members_generation(found: &[Found], selection: &Selection, slots: &[SlotUse]) -> Generation {
    let authority = found[selection.authority].superblock.generation;
    let in_slot = |f: &&Found| slots.iter().any(|slot| slot.current() == Some(f.device));
    let generations = found.iter().filter(in_slot);
    generations
        .map(|f| f.superblock.generation)
        .fold(authority, Ord::max)
}

/// The superblocks from the next one on are of this session. `known`: what the table's own history
/// comes to.
fn begin_session(sb: &mut Superblock, known: Generation, number: u32) {
    let rows = sb.slots.iter().map(|row| row.known);
    let filled = sb.replacements.iter().map(|row| row.known);
    let needed: Vec<Generation> = rows.chain(filled).map(|known| known.heard).collect();
    let session = Session {
        first: sb.generation.next(),
        // Zero means that a session is not known.
        number: number.max(1),
    };
    if !canary::hit(Canary::SessionsUnnamed) {
        sb.sessions.begin(session, known, &needed);
    }
}

/// A planted bug.
fn believe_stale(selection: &mut Selection) {
    for finding in &mut selection.slots {
        if let Finding::Stale(index) = *finding {
            *finding = Finding::Believed(index);
        }
    }
}

/// The spares that only wait. One that was being filled for a member which is still in sync goes on
/// being filled.
fn believe_spares(
    found: &[Found],
    selection: &Selection,
    sb: &mut Superblock,
    slots: &mut [SlotUse],
) -> Vec<DeviceId> {
    let strip = u64::from(sb.strip_bytes);
    let table = &found[selection.authority].superblock;
    let mut spares: Vec<DeviceId> = selection.spares.iter().map(|&i| found[i].device).collect();
    sb.spares = selection
        .spares
        .iter()
        .map(|&i| found[i].superblock.member)
        .collect();
    for replacement in std::mem::take(&mut sb.replacements) {
        let Some(at) = sb.spares.iter().position(|s| *s == replacement.member) else {
            continue;
        };
        let device = found[selection.spares[at]].device;
        let slot = &mut slots[replacement.slot.index()];
        if slot.current().is_some() {
            let spare = &found[selection.spares[at]];
            let last = past(&spare.superblock, table) == Past::Last;
            let kept = last && spare.emptied.is_none() || canary::hit(Canary::PastIgnored);
            let rebuilt_bytes = if kept { replacement.rebuilt_bytes } else { 0 };
            slot.fill(device, Row(rebuilt_bytes / strip));
            spares.retain(|&spare| spare != device);
        }
    }
    spares
}

/// The newest version of every page among the members in sync.
fn newest_pages(
    sb: &Superblock,
    slots: &[SlotUse],
    found: &[Found],
) -> Result<Vec<MapPage>, StartError> {
    let in_sync = |f: &&Found| slots.iter().any(|s| s.current() == Some(f.device));
    (0..sb.layout.map_pages)
        .map(|page| {
            let states = sb.layout.regions_in_page(page);
            let versions = found.iter().filter(in_sync).filter_map(|f| {
                let version = f.map.get(page as usize)?.as_ref()?;
                let ours = version.array == sb.array
                    && version.member == f.superblock.member
                    && version.page == page
                    // Longer where a growth was cut off: it says the same of what there is.
                    && version.states.len() >= states;
                ours.then_some(version)
            });
            let newest = versions.max_by_key(|v| v.sequence).cloned();
            // Nothing was served by a shape of which a member in sync holds the table just before.
            let unknown = |f: &Found| {
                let own = &f.superblock;
                own.layout.map_pages <= page && own.generation.next() == sb.generation
            };
            let fresh = found.iter().filter(in_sync).any(unknown);
            let unwritten = fresh.then(|| MapPage {
                array: sb.array,
                member: sb.member,
                page,
                epoch: sb.epoch,
                sequence: 2,
                states: vec![RegionState::Unwritten; states],
                behind: Vec::new(),
                undecided: Vec::new(),
                whole_at: 0,
            });
            newest.or(unwritten).ok_or(StartError::MapDamaged(page))
        })
        .collect()
}

/// Regions in which no row is in any of these shapes are Unwritten, whatever the page says of what
/// was there.
fn forget_unmapped(shapes: &[Option<&Geometry>], sb: &Superblock, page: &mut MapPage) {
    let first = page.page * u32::from(sb.layout.page_regions);
    for (at, state) in page.states.iter_mut().enumerate() {
        let region = RegionNo(first + at as u32);
        let is_unmapped =
            |shape: &&Geometry| region.0 < shape.regions() && shape.is_unmapped(region);
        if shapes.iter().flatten().all(is_unmapped) {
            *state = RegionState::Unwritten;
            page.behind.retain(|behind| usize::from(*behind) != at);
        }
    }
}

/// Members in sync that lack the newest version of a page: its write was cut off, or it has gone
/// bad.
fn lacking(page: &MapPage, slots: &[SlotUse], found: &[Found]) -> Vec<DeviceId> {
    let has = |device: DeviceId| {
        let found = found.iter().find(|f| f.device == device);
        let version = found.and_then(|f| f.map.get(page.page as usize)?.as_ref());
        version.is_some_and(|version| version.sequence == page.sequence)
    };
    let current = slots.iter().filter_map(|slot| slot.current());
    current.filter(|&device| !has(device)).collect()
}

/// The newest list of unreadable blocks among the members in sync. What lies in regions that were
/// never written, or discarded since, reads as zeros: it is lost no more.
fn newest_list(
    geometry: &Geometry,
    place_bytes: u32,
    pages: &[MapPage],
    slots: &[SlotUse],
    found: &[Found],
) -> Result<Unreadable, StartError> {
    let in_sync = |f: &&Found| slots.iter().any(|s| s.current() == Some(f.device));
    let lists = found.iter().filter(in_sync).filter_map(bad_blocks::newest);
    let newest = lists.max_by_key(|(_, list)| (list.epoch, list.sequence));
    let (_, list) = newest.ok_or(StartError::UnreadableDamaged)?;
    let states = pages.iter().flat_map(|p| &p.states);
    let regions = (0..geometry.regions()).map(RegionNo).zip(states);
    let unwritten = regions.filter(|(_, state)| **state == RegionState::Unwritten);
    let zeros = unwritten.flat_map(|(r, _)| geometry.region_parts(r));
    let zeros: Vec<_> = zeros.filter(|bytes| !bytes.is_empty()).collect();
    Ok(Unreadable::new(geometry, list, place_bytes, &zeros))
}

/// After an unclean stop a replacement may have missed the last writes that the member which it
/// replaces got: it counts as filled only up to the first region that was being written.
fn distrust_replacements(geometry: &Geometry, pages: &[MapPage], slots: &mut [SlotUse]) {
    let open = |s: &RegionState| matches!(s, RegionState::Dirty | RegionState::NeedSync);
    let first = pages
        .iter()
        .flat_map(|p| &p.states)
        .position(open)
        .unwrap_or(0);
    let row = Row(geometry.region_rows(RegionNo(first as u32)).start);
    for slot in slots
        .iter_mut()
        .filter(|s| s.current().is_some() && s.incoming().is_some())
    {
        slot.rebuilt = slot.rebuilt.min(row);
        slot.flushed = slot.flushed.min(row);
    }
}

fn same_geometry(a: &Superblock, b: &Superblock) -> bool {
    let key = |s: &Superblock| {
        (
            s.level,
            (s.strip_bytes, s.band_rows),
            s.group_size,
            s.members,
            s.fixed_parities,
            s.block_bytes,
            s.layout.data_bytes,
        )
    };
    key(a) == key(b) && a.layout.region_bytes == b.layout.region_bytes
}

/// The geometry that all believed members agree on, and how many slots of the worst group miss a
/// member in sync.
fn shape<'a>(
    sb: &Superblock,
    slots: &[SlotUse],
    mut used: impl Iterator<Item = &'a Found>,
) -> Result<(Geometry, usize), StartError> {
    // Superblocks from before a change of shape, or of one that never took effect, are believed for
    // what they say of their member.
    let explained = |own: &Superblock| sb.shape_since != own.shape_since;
    let differs = |own: &Superblock| !same_geometry(sb, own) && !explained(own);
    if used.any(|found| differs(&found.superblock)) {
        return Err(StartError::Geometry(sb.array));
    }
    let geometry = Geometry::of(sb);
    let tolerated = geometry.m;
    let lost = |group: std::ops::Range<usize>| {
        let slots = &slots[group];
        slots.iter().filter(|s| s.current().is_none()).count()
    };
    let missing = geometry.neighbours().map(lost).max().unwrap_or(0);
    if missing > tolerated {
        let aside = Vec::new();
        return Err(StartError::TooFewMembers {
            missing,
            tolerated,
            aside,
        });
    }
    Ok((geometry, missing))
}

/// More is missing than the level survives, if this is what is believed.
fn too_few(found: &[Found], selection: &Selection, had: &Had, fold: bool) -> bool {
    let believed = believe(found, selection, had, fold);
    let used = believed.used.iter().map(|&i| &found[i]);
    let shape = shape(&believed.sb, &believed.slots, used);
    matches!(shape, Err(StartError::TooFewMembers { .. }))
}

/// Slots without a member in sync that hold data: one that holds only parity takes none away.
fn without_data(geometry: &Geometry, slots: &[SlotUse]) -> Vec<Slot> {
    let missing = (0..).map(Slot).zip(slots);
    missing
        .filter(|(at, slot)| slot.current().is_none() && !geometry.only_parity(*at))
        .map(|(at, _)| at)
        .collect()
}

/// Slots with a member in sync.
fn with_member(slots: &[SlotUse]) -> Vec<Slot> {
    let all = (0..).map(Slot).zip(slots);
    all.filter(|(_, slot)| slot.current().is_some())
        .map(|(at, _)| at)
        .collect()
}

/// The most ranges of blocks that a replay can leave undecided: data under a write of several
/// columns that has no member, and no content in the records.
fn undecided_most(geometry: &Geometry, pieces: &[Piece], slots: &[SlotUse]) -> usize {
    let of_piece = |piece: &Piece| {
        let undecided = |column: &usize| {
            let slot = geometry.slot(piece.stripe, *column);
            piece.written.has(*column)
                && slots[slot.index()].current().is_none()
                && piece.known[*column].is_none()
        };
        let columns = match piece.written.count() {
            0 | 1 => 0,
            _ => (0..geometry.columns(piece.stripe).k)
                .filter(undecided)
                .count(),
        };
        // At worst every other block is.
        columns * ((piece.hi - piece.lo) / geometry.block).div_ceil(2) as usize
    };
    pieces.iter().map(of_piece).sum()
}

/// The log batches of the members that serve slots, with these. What `returned` had to say before
/// it was out is settled without it.
fn believed_logs<'a>(
    sb: &Superblock,
    slots: &[SlotUse],
    returned: &[(Slot, DeviceId)],
    found: &'a [Found],
) -> Vec<(Slot, &'a LogBatch)> {
    let mut logs = Vec::new();
    for (at, slot) in slots.iter().enumerate() {
        let of_slot = |f: &&Found| {
            let was_out = returned.iter().any(|(_, device)| *device == f.device);
            [slot.current(), slot.incoming()].contains(&Some(f.device)) && !was_out
        };
        for member in found.iter().filter(of_slot) {
            let ours = |batch: &&LogBatch| {
                batch.array == sb.array && batch.member == member.superblock.member
            };
            let batches = member.log.iter().filter(ours);
            logs.extend(batches.map(|batch| (Slot(at as u8), batch)));
        }
    }
    logs
}

/// Above every number of an operation that these logs hold, or held: what is retired was dropped
/// where they were read.
fn highest(logs: &[(Slot, &LogBatch)]) -> u64 {
    let above = |record: &LogRecord| record.operation.saturating_add(1);
    let kept = |batch: &LogBatch| batch.records.iter().map(above).max();
    let numbers = logs
        .iter()
        .map(|(_, batch)| kept(batch).unwrap_or(0).max(batch.retired_before));
    numbers.max().unwrap_or(0)
}

/// What the table knows this member to have.
pub(crate) fn heard(sb: &Superblock, member: MemberUuid) -> Generation {
    let row = sb.slot_of(member).map(|slot| sb.slots[slot.index()].known);
    let filled = sb.replacements.iter().find(|r| r.member == member);
    let known = row.or(filled.map(|r| r.known));
    known.unwrap_or_default().heard
}

fn members_of(
    sb: &Superblock,
    found: &[Found],
    used: &[usize],
) -> Result<BTreeMap<DeviceId, Member>, StartError> {
    let member = |found: &Found| {
        let own = &found.superblock;
        // A device may have grown, and its superblock may be from before the shape changed.
        let layout = sb.layout.for_device(found.info.bytes, sb.strip_bytes);
        layout.map(|layout| Member {
            first_copy: found.copy_to_replace,
            copies: Copies::found(&found.info, own, found.copy_to_replace),
            heard: heard(sb, own.member),
            list_place: match layout.map_pages.cmp(&own.layout.map_pages) {
                Ordering::Equal => bad_blocks::newest(found).map_or(1, |(place, _)| place),
                // The order of a change of shape: see `reshape`.
                Ordering::Greater => 0,
                Ordering::Less => 1,
            },
            ..Member::new(found.info, own.member, layout)
        })
    };
    let members = used
        .iter()
        .map(|&i| Some((found[i].device, member(&found[i]).ok()?)));
    members
        .collect::<Option<_>>()
        .ok_or(StartError::Geometry(sb.array))
}

impl StartError {
    /// It names the devices that were set aside.
    fn beside(self, aside: &[(Slot, Aside)]) -> StartError {
        match self {
            StartError::TooFewMembers {
                missing, tolerated, ..
            } => StartError::TooFewMembers {
                missing,
                tolerated,
                aside: aside.to_vec(),
            },
            error => error,
        }
    }
}

/// Which devices are believed, and what the region map of each has.
fn select(found: &[Found], options: &StartOptions) -> Result<(Selection, Had), StartError> {
    let mut superblocks: Vec<Superblock> = found.iter().map(|f| f.superblock.clone()).collect();
    if canary::hit(Canary::PastIgnored) {
        let rows = superblocks.iter_mut().flat_map(|sb| &mut sb.slots);
        rows.for_each(|row| row.known = Known::default());
    }
    let selection = select_array(&superblocks)?;
    let newest = &found[selection.authority].superblock;
    counts_on(&[
        ("the epoch", newest.epoch.0),
        (GENERATION, newest.generation.0),
    ])?;
    let had = map_had(found, &selection);
    let mut whole = selection.clone();
    fit(found, &mut whole, &had, false);
    if options.force && too_few(found, &whole, &had, options.fold) {
        whole = selection;
        fit(found, &mut whole, &had, true);
    }
    if options.force && canary::hit(Canary::ForceBelievesStale) {
        believe_stale(&mut whole);
    }
    Ok((whole, had))
}

/// The devices that have this copy of a window in their logs.
fn with_copy(
    copy: &Copy,
    sb: &Superblock,
    geometry: &Geometry,
    logs: &[(Slot, &LogBatch)],
    found: &[Found],
) -> Vec<DeviceId> {
    let has = |f: &&Found| {
        let own = logs.iter().map(|(_, batch)| *batch);
        let own = own.filter(|batch| batch.member == f.superblock.member);
        Copy::find(sb, geometry, own).as_ref() == Some(copy)
    };
    found.iter().filter(has).map(|f| f.device).collect()
}

/// What is to be replayed. In regions that are not open nothing is under way: what records tell of
/// is in place, durably. Since records are retired before such a change (`shard::retire`), what
/// lies there is what they tell of, too; but a program from before that may have changed it.
fn pieces_to_replay(
    geometry: &Geometry,
    log_base: u64,
    logs: &[(Slot, &LogBatch)],
    map: &Map,
) -> Vec<Piece> {
    let open = |p: &Piece| {
        let state = map.state(geometry.region(geometry.row(p.stripe).1));
        matches!(state, RegionState::Dirty | RegionState::NeedSync)
            || canary::hit(Canary::QuietRecordsCount)
    };
    let pieces = recover::winners(geometry, log_base, logs).into_iter();
    pieces.filter(open).collect()
}

/// What a session may add to a counter: a thousand steps a second for thousands of years.
const COUNTER_END: u64 = u64::MAX - (1 << 48);
/// The same of generations, of which [`Known`] notes so many: a thousand a second for two years.
const GENERATION_END: u64 = Known::HEARD_MAX - (1 << 36);
const GENERATION: &str = "the generation of the superblocks";
const RECOVERIES: &str = "the sequence of recoveries of the stripe log";

/// Nothing starts that would make a counter wrap.
fn counts_on(counters: &[(&'static str, u64)]) -> Result<(), StartError> {
    let end = |counter: &str| match counter {
        GENERATION => GENERATION_END,
        _ => COUNTER_END,
    };
    let mut counters = counters.iter();
    let ended = counters.find(|(counter, value)| *value > end(counter));
    match ended {
        Some(&(counter, value)) => Err(StartError::CounterExhausted { counter, value }),
        None => Ok(()),
    }
}

impl Array {
    /// Chooses among the members found and gets ready to start. Devices that are not believed come
    /// out as [`ArrayOutput::Release`].
    ///
    /// # Errors
    /// Why the array cannot be started; nothing has been written.
    pub fn assemble(found: Vec<Found>, options: &StartOptions) -> Result<Array, StartError> {
        let (selection, had) = select(&found, options)?;
        let Believed {
            mut sb,
            slots,
            spares,
            gone,
            aside,
            returned,
            used,
        } = believe(&found, &selection, &had, options.fold);
        // That of a spare may be higher than the authority's.
        counts_on(&[(GENERATION, sb.generation.0)])?;
        let generation = members_generation(&found, &selection, &slots);
        let table = &found[selection.authority].superblock;
        begin_session(&mut sb, table.generation, options.session);
        for (slot, _) in &gone {
            let row = &mut sb.slots[slot.index()];
            row.known = row.known.until(generation.next());
        }
        let folded = sb.strip_bytes != found[selection.authority].superblock.strip_bytes;
        // It may have a table of its own that gives it a slot, which differs from that of an array
        // that went on without it only if that array has another epoch.
        let listed = found[selection.authority].superblock.spares.iter();
        let spares_gone: Vec<MemberUuid> = listed
            .filter(|spare| !sb.spares.contains(spare))
            .copied()
            .collect();
        let shape = shape(&sb, &slots, used.iter().map(|&i| &found[i]));
        let (geometry, missing) = shape.map_err(|error| error.beside(&aside))?;
        let unclean = !sb.clean;
        let logs = believed_logs(&sb, &slots, &returned, &found);
        let batches = logs.iter().map(|(_, batch)| *batch);
        let copy = Copy::find(&sb, &geometry, batches).filter(|_| unclean);
        let resumed = copy.clone().map(|copy| {
            let had = with_copy(&copy, &sb, &geometry, &logs, &found);
            Resumed::of(copy, had)
        });
        // A window that is written again makes rows count.
        let counted = copy.as_ref().map(|copy| geometry.moved_to(copy.to));
        let mut pages = newest_pages(&sb, &slots, &found)?;
        for page in &mut pages {
            let shapes = [Some(&geometry), counted.as_ref()];
            forget_unmapped(&shapes, &sb, page);
        }
        let unreadable = newest_list(
            &geometry,
            sb.layout.unreadable_bytes,
            &pages,
            &slots,
            &found,
        )?;
        let pages_sequence = pages.iter().map(|page| page.sequence).max();
        counts_on(&[
            (
                "the sequence of the region map",
                pages_sequence.unwrap_or(0),
            ),
            (
                "the sequence of the list of unreadable blocks",
                unreadable.sequence(),
            ),
        ])?;
        if crate::log::layout::shards_for(&sb, options.shards) != options.shards {
            return Err(StartError::LogTooSmall(options.shards));
        }
        let seen = crate::log::scan::is_read(&sb).then(|| highest(&logs));
        let log_coverage = LogCoverage::new(sb.log_base, seen);
        // A replay takes numbers, too.
        let covered = unclean && sb.covered && log_coverage.may_replay();
        let open = |s: &RegionState| match s {
            RegionState::Dirty => !covered,
            state => *state == RegionState::NeedSync,
        };
        let dirty = unclean && pages.iter().flat_map(|p| &p.states).any(open);
        let parity = geometry.m > 0 && !geometry.mirrored();
        let forced = match dirty && parity && missing > 0 {
            true => without_data(&geometry, &slots),
            false => Vec::new(),
        };
        let accepted = |slot: &Slot| sb.accepted & (1 << slot.0) != 0;
        if !options.force && !forced.iter().all(accepted) {
            return Err(StartError::DirtyDegraded);
        }
        let whole = slots.iter().all(|slot| slot.current().is_some());
        let resync = unclean && !covered;
        let page_regions = sb.layout.page_regions;
        let clean_after_ms = options.clean_after_ms;
        let table = &found[selection.authority].superblock;
        let had: Vec<u64> = pages.iter().map(|page| whole_at(page, table)).collect();
        let mut map = Map::new(
            &geometry,
            page_regions,
            &pages,
            resync,
            whole,
            clean_after_ms,
            &had,
        );
        for page in &pages {
            map.set_lagging(page.page, lacking(page, &slots, &found));
        }
        let mut slots = slots;
        if dirty {
            distrust_replacements(&geometry, &pages, &mut slots);
        }
        let members = members_of(&sb, &found, &used)?;
        let logs_writes = parity && sb.write_hole != WriteHole::Resync;
        if logs_writes && log_coverage.ended() {
            if !options.force {
                let base = log_coverage.log_from;
                return Err(StartError::NumbersExhausted { base });
            }
            // An administrator said that it is to go on without the log.
            sb.write_hole = WriteHole::Resync;
        }
        // Where there is one, nothing was written since its base.
        let replay = match covered && copy.is_none() {
            true => {
                let room = unreadable.room(sb.layout.unreadable_bytes);
                let pieces = pieces_to_replay(&geometry, sb.log_base, &logs, &map);
                let undecided = undecided_most(&geometry, &pieces, &slots);
                if undecided > room && !options.force {
                    return Err(StartError::ListFull { undecided, room });
                }
                let earlier = recover::Earlier::of(&geometry, &logs, &with_member(&slots));
                counts_on(&[(RECOVERIES, earlier.last_sequence())])?;
                let from = log_coverage.log_from;
                Some(Replay::new(pieces, from, earlier, options.force))
            }
            false => None,
        };
        let released = found.iter().filter(|f| !members.contains_key(&f.device));
        let waiters = released
            .map(|f| SuperblockWaiter::Release(f.device))
            .collect();
        let agreed = agreed(&found, &slots);
        let announced = used.iter().all(|&i| found[i].superblock.map_whole_at);
        sb.map_whole_at |= !whole;
        let persist = Persist::new(waiters, aside, agreed, options.shards, announced);
        let mut array = Array {
            geometry: Arc::new(geometry),
            shards: options.shards,
            stage: Stage::Starting,
            failing: None,
            table: Table::of(&mut sb, members, slots, spares),
            sb,
            view: Arc::default(),
            log_coverage,
            replay,
            reshape: None,
            moving: Move::default(),
            init: Init::default(),
            resumed,
            elsewhere: false,
            resplit: false,
            window_bytes: options.window_bytes,
            persist,
            map,
            lacking: BTreeMap::new(),
            unreadable,
            lease: crate::array::read_lease::LeaseState::default(),
            jobs: Jobs::default(),
            out: Outbox::new(options.shards, options.unix_s),
            shown: ArrayState::Stopped,
            stop: None,
            unclean: unclean && dirty,
            forced,
            hedging: options.hedging,
            overdue: Default::default(),
        };
        // Of a growth that was cut off: superblocks of the new shape come first, then what lies in
        // its places, which may be the only whole ones that an old superblock points at.
        let pages = |f: &Found| f.superblock.layout.map_pages != array.sb.layout.map_pages;
        let old_places = used.iter().any(|&i| pages(&found[i]));
        let gone_or_back = !gone.is_empty() || !returned.is_empty();
        let changed = gone_or_back || !spares_gone.is_empty() || old_places || folded;
        array.tell_gone(gone);
        array.tell_spares_gone(spares_gone, &found);
        array.tell_forced();
        for (slot, device) in returned {
            array.tell_returned(slot, device);
        }
        if changed {
            array.membership_changed();
        }
        array.fix_lacking();
        array.view = Arc::new(array.make_view(1));
        Ok(array)
    }

    /// What force means here: the slots that it is about, in regions in which parity is untrue.
    fn tell_forced(&mut self) {
        if self.forced.is_empty() {
            return;
        }
        let regions = (0..self.geometry.regions()).map(RegionNo);
        let untrue = regions.filter(|&region| self.map.phase(region).untrusted());
        let rows = untrue.map(|region| self.geometry.region_rows(region));
        let rows: u64 = rows.map(|rows| rows.end - rows.start).sum();
        let bytes_max = rows * self.geometry.strip * self.forced.len() as u64;
        self.out.event(EventKind::Forced { bytes_max });
    }

    /// Spares that the table lists and that are none from now on.
    fn tell_spares_gone(&mut self, gone: Vec<MemberUuid>, found: &[Found]) {
        for member in gone {
            let cause = match found.iter().any(|f| f.superblock.member == member) {
                true => OutCause::Unfit,
                false => OutCause::NotFound,
            };
            self.out.event(EventKind::SpareGone { member, cause });
        }
    }

    /// Members that the table has and that were not found: out from now on.
    fn tell_gone(&mut self, gone: Vec<(Slot, OutCause)>) {
        for (slot, cause) in gone {
            self.out.event(EventKind::MemberOut {
                slot,
                device: None,
                cause,
                instead: Instead::Others,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::invariants::tests::{created, found, options};

    /// The row of a member that is not found says which generation the others had then. A spare
    /// that was ahead of them counted, too: the next start, with that member, took the others for
    /// more, or for less, than they were.
    #[test]
    fn the_row_of_a_member_that_is_not_there_says_nothing_of_spares() {
        let (heard, has, ahead) = (Generation(19), Generation(20), Generation(90));
        let mut plan = created();
        for (at, superblock) in plan.superblocks.iter_mut().enumerate() {
            superblock.generation = if at == 3 { ahead } else { has };
            for row in &mut superblock.slots {
                row.known = Known::heard(heard);
            }
        }
        let there = [0, 1, 3].map(|at| found(&plan, at)).to_vec();
        let array = Array::assemble(there, &options()).expect("one may be missing");
        let known = array.superblock().slots[2].known;
        assert_eq!(known, Known::heard(heard).until(has.next()));
        // The next superblock goes beside that of the spare.
        assert_eq!(array.sb.generation, ahead);
    }
}
