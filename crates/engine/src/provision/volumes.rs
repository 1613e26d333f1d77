//! Volumes: where their bytes lie in the array, which volume gets which units, and in which order a
//! change of their table becomes durable.
//!
//! Order of a change: units that are gained are zeroed (regions become Unwritten) → flush → first
//! copy of the table → flush → second copy → flush, and only now is the change acknowledged → units
//! that were given up are discarded. A crash anywhere leaves the table before or after; a unit that
//! no table names may hold anything, and is zeroed before any table names it again.
//!
//! Invariants: [`steps`] and [`repair`] give whole orders, to be carried out one after the other;
//! what fails is not gone on with. A volume's bytes never lie in those of another or in a copy of
//! the table. Growing never moves a byte.
//!
//! Deliberately absent: carrying out (runtime), devices and names in the file system (daemon), and
//! promising more than there is.

use std::ops::Range;

use strake_format::volumes::{
    EXTENTS_MAX, Extent, VOLUME_TABLE_BYTES, VOLUME_TABLE_OFFSETS, VOLUMES_MAX, Volume, VolumeTable,
};
use strake_format::{ArrayName, ChosenTable, VolumeUuid};

use crate::canary::{self, Canary};
use crate::geometry::Geometry;
use crate::units::RegionNo;

/// Why a change of the table is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeError {
    /// No volume has this name.
    #[error("no such volume")]
    NoSuchVolume,
    /// Another volume has this name.
    #[error("a volume has this name already")]
    NameTaken,
    /// As many as there may be.
    #[error("there are {VOLUMES_MAX} volumes already")]
    TooMany,
    /// Not whole blocks, or nothing.
    #[error(
        "a size of {size_bytes} {} is not one or more blocks of {block_bytes} bytes",
        if *size_bytes == 1 { "byte" } else { "bytes" }
    )]
    Size {
        /// What was asked for, bytes.
        size_bytes: u64,
        /// A logical block.
        block_bytes: u64,
    },
    /// The array is full.
    #[error("{needed_bytes} bytes are needed and {free_bytes} are free")]
    NoSpace {
        /// What is free, bytes.
        free_bytes: u64,
        /// What is needed besides what it has, bytes.
        needed_bytes: u64,
    },
    /// What is free is in too many pieces.
    #[error("what is free is in too many pieces: {EXTENTS_MAX} extents at most")]
    Scattered,
    /// Smaller than it is, without a permission to shrink it.
    #[error("the volume would shrink from {has_bytes} to {gets_bytes} bytes")]
    WouldShrink {
        /// Its size, bytes.
        has_bytes: u64,
        /// What was asked for, bytes.
        gets_bytes: u64,
    },
}

/// What an array has to give, and in which pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ground {
    /// A logical block, bytes.
    pub block_bytes: u64,
    /// Size of the array, bytes.
    pub size_bytes: u64,
}

impl Ground {
    /// Of an array.
    pub fn of(geometry: &Geometry) -> Ground {
        Ground {
            block_bytes: geometry.block,
            size_bytes: geometry.size(),
        }
    }
}

/// Bytes of a unit of an array that is carved now: of a region, so that what is given up is
/// Unwritten again as a whole. While data moves, as it will be.
pub fn unit_bytes(geometry: &Geometry) -> u64 {
    let region = geometry.after_move().region_bytes(RegionNo(0));
    region.end - region.start
}

/// A step of a change. Each is done when the array has answered it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make these bytes of the array read as zeros.
    Zero(Range<u64>),
    /// Make all that was answered durable.
    Flush,
    /// Write bytes at this byte of the array.
    Write(u64, Vec<u8>),
    /// The change is durable: it may be acknowledged. The steps that follow are useful and not
    /// necessary.
    Acknowledge,
    /// These bytes of the array are not needed any more.
    Discard(Range<u64>),
}

/// The steps from a table to the next. `after` takes the next generation.
pub fn steps(before: &VolumeTable, after: &mut VolumeTable) -> Vec<Step> {
    after.generation = before.generation.next();
    let mut steps: Vec<Step> = missing(after, before).map(Step::Zero).collect();
    if canary::hit(Canary::VolumeNotZeroed) {
        steps.clear();
    }
    if canary::hit(Canary::VolumeDiscardedEarly) {
        steps.extend(missing(before, after).map(Step::Discard));
    }
    if !steps.is_empty() {
        steps.push(Step::Flush);
    }
    for offset in VOLUME_TABLE_OFFSETS {
        steps.push(Step::Write(offset, after.encode(offset)));
        if !canary::hit(Canary::TableBeforeDurable) {
            steps.push(Step::Flush);
        }
    }
    steps.push(Step::Acknowledge);
    steps.extend(missing(before, after).map(Step::Discard));
    if !canary::hit(Canary::VolumeTailKept) {
        steps.extend(tails(before, after).map(Step::Zero));
    }
    steps
}

/// What lies behind the ends of volumes that shrank, in units that they keep: it is not to show
/// again when they grow.
fn tails(before: &VolumeTable, after: &VolumeTable) -> impl Iterator<Item = Range<u64>> {
    let unit = after.unit_bytes;
    after.volumes.iter().filter_map(move |volume| {
        let old = before.volumes.iter().find(|v| v.uuid == volume.uuid)?;
        let used = volume.size_bytes % unit;
        let end = volume.extents.last()?.end() * unit;
        (volume.size_bytes < old.size_bytes && used > 0).then_some(end - unit + used..end)
    })
}

/// The steps that make both copies say the same after a start, before anything else is done with
/// them. What was not acknowledged may have been written: it is so from now on. Where there is no
/// table, a copy that could not be read becomes zeros: it may hold a first table that nobody
/// acknowledged, and a later start that can read it would find volumes that this one did not.
pub fn repair(chosen: &ChosenTable) -> Vec<Step> {
    let mut steps = Vec::new();
    for (offset, behind) in VOLUME_TABLE_OFFSETS.into_iter().zip(chosen.behind) {
        if behind {
            steps.push(match &chosen.table {
                Some(table) => Step::Write(offset, table.encode(offset)),
                None => Step::Zero(offset..offset + VOLUME_TABLE_BYTES),
            });
            steps.push(Step::Flush);
        }
    }
    steps
}

/// Runs of units that `one` has and `other` has not, as bytes of the array.
fn missing(one: &VolumeTable, other: &VolumeTable) -> impl Iterator<Item = Range<u64>> {
    let unit = one.unit_bytes;
    let runs = gaps(&sorted(other), 0..u64::from(u32::MAX));
    let mut lacks = Vec::new();
    for own in sorted(one) {
        let at = runs.partition_point(|run| run.end <= own.start);
        for run in runs[at..].iter().take_while(|run| run.start < own.end) {
            lacks.push(run.start.max(own.start)..run.end.min(own.end));
        }
    }
    lacks
        .into_iter()
        .map(move |units| units.start * unit..units.end * unit)
}

/// All extents in the order of their units.
fn sorted(table: &VolumeTable) -> Vec<Range<u64>> {
    let mut taken: Vec<Range<u64>> = table
        .extents()
        .map(|extent| u64::from(extent.first)..extent.end())
        .collect();
    taken.sort_unstable_by_key(|run| run.start);
    taken
}

/// What lies between sorted runs, within `all`.
fn gaps(taken: &[Range<u64>], all: Range<u64>) -> Vec<Range<u64>> {
    let mut free = Vec::new();
    let mut at = all.start;
    for run in taken {
        if run.start > at {
            free.push(at..run.start.min(all.end));
        }
        at = at.max(run.end);
    }
    if at < all.end {
        free.push(at..all.end);
    }
    free
}

/// Runs of free units.
fn free(table: &VolumeTable, ground: Ground) -> Vec<Range<u64>> {
    // The last number is never given out: it would be the end of all extents.
    let units = (ground.size_bytes / table.unit_bytes).min(u64::from(u32::MAX));
    let reserved = table.reserved_units();
    gaps(&sorted(table), reserved..units.max(reserved))
}

/// Bytes that volumes can still be given.
pub fn free_bytes(table: &VolumeTable, ground: Ground) -> u64 {
    let units: u64 = free(table, ground).iter().map(|r| r.end - r.start).sum();
    units * table.unit_bytes
}

/// Free bytes, for what a crash kept from being discarded.
pub fn free_ranges(table: &VolumeTable, ground: Ground) -> impl Iterator<Item = Range<u64>> {
    let unit = table.unit_bytes;
    free(table, ground)
        .into_iter()
        .map(move |run| run.start * unit..run.end * unit)
}

/// Gives `units` more to a volume with these extents: behind its last where that is free, else the
/// smallest run that has room for all, else one run after the other.
fn give(
    table: &VolumeTable,
    ground: Ground,
    extents: &mut Vec<Extent>,
    units: u64,
) -> Result<(), VolumeError> {
    let mut runs = free(table, ground);
    let there: u64 = runs.iter().map(|run| run.end - run.start).sum();
    if there < units {
        return Err(VolumeError::NoSpace {
            free_bytes: there * table.unit_bytes,
            needed_bytes: units.saturating_mul(table.unit_bytes),
        });
    }
    let behind = extents.last().map(|last| last.end());
    let fits = |run: &Range<u64>| run.end - run.start >= units;
    runs.sort_by_key(|run| {
        let follows = Some(run.start) == behind;
        let waste = if fits(run) {
            run.end - run.start
        } else {
            u64::MAX
        };
        (!follows, waste, run.start)
    });
    let mut left = units;
    for run in runs {
        let here = left.min(run.end - run.start);
        if here == 0 {
            break;
        }
        left -= here;
        match extents.last_mut().filter(|last| last.end() == run.start) {
            Some(last) => last.units += here as u32,
            None => extents.push(Extent {
                first: run.start as u32,
                units: here as u32,
            }),
        }
    }
    let others = table.extents().count();
    match others + extents.len() > EXTENTS_MAX {
        true => Err(VolumeError::Scattered),
        false => Ok(()),
    }
}

fn units_of(table: &VolumeTable, ground: Ground, size_bytes: u64) -> Result<u64, VolumeError> {
    let block_bytes = ground.block_bytes;
    match size_bytes > 0 && size_bytes.is_multiple_of(block_bytes) {
        true => Ok(size_bytes.div_ceil(table.unit_bytes)),
        false => Err(VolumeError::Size {
            size_bytes,
            block_bytes,
        }),
    }
}

/// The identity of a new volume.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Its identity.
    pub uuid: VolumeUuid,
    /// Its name.
    pub name: ArrayName,
    /// Its size.
    pub size_bytes: u64,
    /// Now, seconds since 1970.
    pub created_unix_s: u64,
}

/// The table with one more volume.
///
/// # Errors
/// Why it cannot be.
pub fn create(
    table: &VolumeTable,
    ground: Ground,
    new: NewVolume,
) -> Result<VolumeTable, VolumeError> {
    let units = units_of(table, ground, new.size_bytes)?;
    if table.volume(new.name.as_str()).is_some() {
        return Err(VolumeError::NameTaken);
    }
    if table.volumes.len() >= VOLUMES_MAX {
        return Err(VolumeError::TooMany);
    }
    let mut extents = Vec::new();
    give(table, ground, &mut extents, units)?;
    let mut after = table.clone();
    after.volumes.push(Volume {
        uuid: new.uuid,
        name: new.name,
        size_bytes: new.size_bytes,
        created_unix_s: new.created_unix_s,
        extents,
    });
    Ok(after)
}

fn place_of(table: &VolumeTable, name: &str) -> Result<usize, VolumeError> {
    let named = |volume: &Volume| volume.name.as_str() == name;
    let at = table.volumes.iter().position(named);
    at.ok_or(VolumeError::NoSuchVolume)
}

/// The table without a volume.
///
/// # Errors
/// There is none of that name.
pub fn delete(table: &VolumeTable, name: &str) -> Result<VolumeTable, VolumeError> {
    let at = place_of(table, name)?;
    let mut after = table.clone();
    after.volumes.remove(at);
    Ok(after)
}

/// The table with another name for a volume.
///
/// # Errors
/// Why it cannot be.
pub fn rename(table: &VolumeTable, name: &str, to: ArrayName) -> Result<VolumeTable, VolumeError> {
    let at = place_of(table, name)?;
    if to.as_str() != name && table.volume(to.as_str()).is_some() {
        return Err(VolumeError::NameTaken);
    }
    let mut after = table.clone();
    after.volumes[at].name = to;
    Ok(after)
}

/// The table with another size for a volume; a smaller one only where `shrink` says so.
///
/// # Errors
/// Why it cannot be.
pub fn resize(
    table: &VolumeTable,
    ground: Ground,
    name: &str,
    size_bytes: u64,
    shrink: bool,
) -> Result<VolumeTable, VolumeError> {
    let units = units_of(table, ground, size_bytes)?;
    let at = place_of(table, name)?;
    let has_bytes = table.volumes[at].size_bytes;
    if size_bytes < has_bytes && !shrink {
        return Err(VolumeError::WouldShrink {
            has_bytes,
            gets_bytes: size_bytes,
        });
    }
    let mut after = table.clone();
    let volume = &mut after.volumes[at];
    volume.size_bytes = size_bytes;
    let has = volume.units();
    if units > has {
        let mut extents = std::mem::take(&mut volume.extents);
        give(table, ground, &mut extents, units - has)?;
        after.volumes[at].extents = extents;
        return Ok(after);
    }
    let mut surplus = has - units;
    while surplus > 0 {
        let last = volume.extents.last_mut().expect("it has the surplus");
        let here = surplus.min(u64::from(last.units)) as u32;
        last.units -= here;
        surplus -= u64::from(here);
        if last.units == 0 {
            volume.extents.pop();
        }
    }
    Ok(after)
}

/// Where the bytes of a volume lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMap {
    size: u64,
    block: u64,
    /// First byte of the volume, and of the array, of each extent.
    extents: Vec<(u64, u64)>,
}

impl VolumeMap {
    /// The map of a volume of a table, for an array with such blocks.
    pub fn of(table: &VolumeTable, volume: &Volume, block_bytes: u64) -> VolumeMap {
        let mut at = 0;
        let mut extents: Vec<(u64, u64)> = Vec::with_capacity(volume.extents.len());
        for extent in &volume.extents {
            extents.push((at, u64::from(extent.first) * table.unit_bytes));
            at += u64::from(extent.units) * table.unit_bytes;
        }
        VolumeMap {
            size: volume.size_bytes,
            block: block_bytes,
            extents,
        }
    }

    /// Size of the block device, bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Is this request inside the volume, aligned, and longer than nothing?
    pub fn valid(&self, offset: u64, len: u64) -> bool {
        len > 0
            && offset.is_multiple_of(self.block)
            && len.is_multiple_of(self.block)
            && offset.checked_add(len).is_some_and(|end| end <= self.size)
    }

    /// The ranges of the array that a range of the volume is, in order.
    ///
    /// # Panics
    /// If the range is not inside the volume.
    pub fn ranges(&self, offset: u64, len: u64) -> impl Iterator<Item = Range<u64>> {
        assert!(offset + len <= self.size, "a range of the volume");
        let first = self.extents.partition_point(|(at, _)| *at <= offset);
        let (mut at, mut left) = (offset, len);
        // The extent before is where it begins: the first begins at 0.
        (first.saturating_sub(1)..).map_while(move |index| {
            if left == 0 {
                return None;
            }
            let (begin, array) = self.extents[index];
            let next = self.extents.get(index + 1).map_or(u64::MAX, |(at, _)| *at);
            let here = left.min(next - at);
            let start = array + (at - begin);
            at += here;
            left -= here;
            Some(start..start + here)
        })
    }
}
