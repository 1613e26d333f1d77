//! Where a byte of the array lies: level, stripes, rows, columns, slots.
//!
//! Every level is one shape: `groups` groups of `width` slots; a stripe has `k` data columns and
//! `m` parity columns in one row of one group. A mirror is the code with k = 1, and its parities
//! are copies; RAID 0 is m = 0. Parities that were added to an array (`fixed`) lie in the last
//! slots and do not rotate; what follows is about the others. Parity levels rotate as Linux md's
//! left-symmetric layout does: for row r of n members P lies in slot n−1−(r mod n), the other
//! parities in the slots after it (wrapping), data after those. Mirrors and RAID 0 do not rotate.
//!
//! A user's strip may be several of ours, in rows that follow one another: then the strips of a
//! column in such a *band* of rows hold bytes of the array that follow one another, and parity
//! rotates from band to band. Parity is the same byte for byte, so only addresses know of bands: it
//! is how an array gets another strip while it serves.
//!
//! While data moves to another shape ([`OldShape`], `array::reshape::migrate`), the shape of a
//! stripe is a function of its row: those below the frontier have the new one, those from the first
//! on that still counts have the old one, and rows between them are unmapped. Every function of a
//! row, a stripe or an address takes that into account, so that its callers need not know of a
//! move. Where the shapes have groups of different numbers, a row has room for as many stripes as
//! the one with more of them needs: a stripe keeps its number when the frontier passes it, and some
//! numbers belong to no stripe (`exists`).
//!
//! Invariants: `locate` and `slot` are inverses over the whole address space; no row has two
//! shapes; groups of either shape are slots that follow one another, from the first on (tested).

pub(crate) mod block_set;
pub(crate) mod column_set;
pub(crate) mod extent;
pub(crate) mod region_set;

use std::collections::BTreeSet;
use std::ops::Range;

use strake_format::{Level, Superblock};

use crate::canary::{self, Canary};
use crate::units::*;

/// The arithmetic of one array; immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The level.
    pub level: Level,
    /// Groups (1 unless the level is 10, 50, 60 or 70).
    pub groups: u64,
    /// Numbers of stripes in a row: as many as there are groups, of the shape that has more of them
    /// while data moves.
    pub per_row: u64,
    /// Members in a group.
    pub width: usize,
    /// Data columns of a stripe.
    pub k: usize,
    /// Parity columns (or further copies) of a stripe.
    pub m: usize,
    /// Of these the last, each of which lies in a slot of its own, behind those that rotate.
    pub fixed: usize,
    /// Bytes of a strip.
    pub strip: u64,
    /// Rows of a band: strips that one of a user is made of.
    pub band: u64,
    /// Logical block, bytes.
    pub block: u64,
    /// Rows of every group.
    pub rows: u64,
    /// Rows of a region.
    pub region_rows: u64,
    /// Data is moving: the shape that it comes from. All of the above is the new one.
    pub old_shape: Option<OldShape>,
}

/// The shape from which data moves to one with more data columns in a row, with other groups, with
/// parities that rotate, or that do not, or with other bands. Parities are as many, strips of ours
/// and rows the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldShape {
    /// Groups.
    pub groups: u64,
    /// Members of a group.
    pub width: usize,
    /// Parities that lie in slots of their own: as many as in the new shape; more of them, where
    /// those of the new one rotate; or fewer, where those of the new one go when all has moved.
    pub fixed: usize,
    /// Rows of a band.
    pub band: u64,
    /// The frontier: rows of the new shape that hold their data.
    pub moved: u64,
}

/// What a stripe is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Groups: stripes of a row.
    pub groups: u64,
    /// Members.
    pub width: usize,
    /// Data columns.
    pub k: usize,
    /// Parities that lie in slots of their own.
    pub fixed: usize,
    /// Rows of a band.
    pub band: u64,
}

/// A position in the array's address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The stripe.
    pub stripe: StripeNo,
    /// Data column, 0..k.
    pub column: usize,
    /// Byte within the strip.
    pub offset: u64,
}

/// Bytes of a strip: of a data column of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripPart {
    /// The stripe.
    pub stripe: StripeNo,
    /// Data column, 0..k.
    pub column: usize,
    /// First byte within the strip, a multiple of the logical block.
    pub lo: u64,
    /// Byte after the last, a multiple of the logical block.
    pub hi: u64,
}

impl Geometry {
    /// The geometry that a superblock describes.
    pub fn of(sb: &Superblock) -> Geometry {
        let members = usize::from(sb.members);
        let width = usize::from(sb.group_size);
        let m = match sb.level {
            Level::Raid0 => 0,
            Level::Raid1 | Level::Raid10 => width - 1,
            Level::Raid5 | Level::Raid50 => 1,
            Level::Raid6 | Level::Raid60 => 2,
            Level::Raid7_3 | Level::Raid70 => 3,
            Level::Nm { m, .. } => usize::from(m),
        };
        let strip = u64::from(sb.strip_bytes);
        let groups = (members / width) as u64;
        let old_shape = sb.moving.as_ref().map(|moving| OldShape {
            groups: u64::from(moving.members / moving.group_size),
            width: usize::from(moving.group_size),
            fixed: usize::from(moving.fixed_parities),
            band: u64::from(moving.band_rows),
            moved: moving.moved_rows,
        });
        Geometry {
            level: sb.level,
            groups,
            per_row: old_shape.map_or(groups, |old| old.groups.max(groups)),
            width,
            k: width - m,
            m,
            fixed: usize::from(sb.fixed_parities),
            strip,
            band: u64::from(sb.band_rows),
            block: u64::from(sb.block_bytes),
            rows: sb.layout.data_bytes / strip,
            region_rows: sb.layout.region_bytes / strip,
            old_shape,
        }
    }

    // ---- the two shapes of a move --------------------------------------------------------------

    /// The shape of a stripe.
    pub fn columns(&self, stripe: StripeNo) -> Shape {
        match &self.old_shape {
            Some(old) if self.row(stripe).1.0 >= old.moved => self.old_columns(old),
            _ => self.new_columns(),
        }
    }
    fn new_columns(&self) -> Shape {
        Shape {
            groups: self.groups,
            width: self.width,
            k: self.k,
            fixed: self.fixed,
            band: self.band,
        }
    }
    fn old_columns(&self, old: &OldShape) -> Shape {
        Shape {
            groups: old.groups,
            width: old.width,
            k: old.width - self.m,
            fixed: old.fixed,
            band: old.band,
        }
    }
    /// Data columns of a row, all groups, in the new shape.
    pub fn row_columns(&self) -> u64 {
        self.groups * self.k as u64
    }
    /// The same in the old shape, while data moves.
    pub fn old_row_columns(&self) -> Option<u64> {
        let old = self.old_columns(self.old_shape.as_ref()?);
        Some(old.groups * old.k as u64)
    }
    /// Members of the widest stripes.
    pub fn width_most(&self) -> usize {
        self.old_shape
            .map_or(self.width, |old| old.width.max(self.width))
    }
    /// Data bytes of a row of this shape, all groups.
    fn row_bytes(&self, shape: Shape) -> u64 {
        shape.groups * shape.k as u64 * self.strip
    }
    /// Rows that are moved at once at least: whole bands of both shapes, because a row that holds a
    /// part of what has moved must not lie where the rest is to go.
    pub fn rows_at_once(&self) -> u64 {
        self.old_shape
            .map_or(self.band, |old| old.band.max(self.band))
    }
    /// The first address that lies in the old shape: the size where none does.
    pub fn frontier(&self) -> u64 {
        match &self.old_shape {
            Some(old) => (old.moved * self.row_bytes(self.new_columns())).min(self.size()),
            None => self.size(),
        }
    }
    /// The first row of the old shape that still counts; the first data of it may have moved.
    pub fn first_old_row(&self) -> Row {
        match &self.old_shape {
            Some(old) if self.frontier() < self.size() => {
                let rows = self.frontier() / self.row_bytes(self.old_columns(old));
                Row(rows - rows % old.band)
            }
            _ => Row(self.rows),
        }
    }
    /// Rows of the old shape that hold the data of these rows of the new one.
    ///
    /// # Panics
    /// Where no data moves.
    pub fn sources(&self, from: u64, to: u64) -> Range<u64> {
        let old = self.old_shape.as_ref().expect("data is moving");
        let (here, there) = (self.new_columns(), self.old_columns(old));
        let end = (to * self.row_bytes(here)).min(self.size());
        let first = from * self.row_bytes(here) / self.row_bytes(there);
        let end = end.div_ceil(self.row_bytes(there));
        first - first % old.band..end.next_multiple_of(old.band)
    }
    /// Rows of the new shape that count.
    pub fn new_rows(&self) -> u64 {
        self.old_shape.map_or(self.rows, |old| old.moved)
    }
    /// The row is in a shape.
    pub fn counts(&self, row: Row) -> bool {
        row.0 < self.new_rows() || row >= self.first_old_row()
    }
    /// The stripe is in a shape: its row is, and has so many groups.
    pub fn exists(&self, stripe: StripeNo) -> bool {
        let (group, row) = self.row(stripe);
        let all = canary::hit(Canary::RowsOfOneShape);
        (all || group < self.columns(stripe).groups) && self.counts(row)
    }
    /// The stripe of a row that has a strip in this slot.
    pub fn stripe_in(&self, slot: Slot, row: Row) -> Option<StripeNo> {
        let Shape { groups, width, .. } = self.columns(self.stripe(0, row));
        let group = (slot.index() / width) as u64;
        (group < groups && self.counts(row)).then(|| self.stripe(group, row))
    }
    /// Sets of slots of which no more than `m` may be lost: the groups, of both shapes while data
    /// moves.
    pub fn neighbours(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let of = |groups: u64, width: usize| {
            (0..groups as usize).map(move |group| group * width..(group + 1) * width)
        };
        let (groups, width) = self.old_shape.map_or((0, 1), |old| (old.groups, old.width));
        of(self.groups, self.width).chain(of(groups, width))
    }
    /// In the two shapes of a move slots have different neighbours.
    pub fn regroups(&self) -> bool {
        self.old_shape.is_some_and(|old| {
            old.groups != self.groups || self.groups > 1 && old.width != self.width
        })
    }
    /// The slots that share their log records with this one: its group. While data moves to other
    /// groups these are all slots, and each publishes to all of them.
    pub fn log_group(&self, slot: Slot) -> Range<usize> {
        if self.regroups() {
            return 0..self.slots();
        }
        let first = slot.index() / self.width * self.width;
        first..first + self.width
    }
    /// Of the members in sync of a log group, how many may still be lost at most.
    pub fn log_spare(&self, group: &Range<usize>, in_sync: usize) -> usize {
        // Losses that the new shape does not survive are too many, whatever the old one does.
        let groups = group.len() / self.width;
        (in_sync + groups * self.m).saturating_sub(group.len())
    }
    /// The shape in which everything has moved so far, and nothing else is left.
    pub fn moved_to(&self, rows: u64) -> Geometry {
        let old_shape = self.old_shape.map(|old| OldShape { moved: rows, ..old });
        Geometry { old_shape, ..*self }
    }
    /// The geometry when all has moved.
    pub fn after_move(&self) -> Geometry {
        Geometry {
            old_shape: None,
            per_row: self.groups,
            ..*self
        }
    }
    /// The same bytes in the same places, in rows as high as bands.
    ///
    /// # Panics
    /// While data moves.
    pub fn folded(&self) -> Geometry {
        assert!(
            self.old_shape.is_none(),
            "rows of two shapes are of one height"
        );
        Geometry {
            strip: self.strip * self.band,
            band: 1,
            rows: self.rows / self.band,
            region_rows: self.region_rows / self.band,
            ..*self
        }
    }
    /// Data moves away from slots that go when it has: how many, the last ones.
    pub fn to_go(&self) -> Option<usize> {
        let old = self.old_shape.as_ref()?;
        (self.fixed > old.fixed).then_some(self.fixed)
    }
    /// Of these, those that nothing but parity is left in.
    pub fn gone(&self) -> Range<usize> {
        let all = self.slots();
        match self.to_go() {
            Some(fewer) if self.new_rows() >= self.rows_to_move() => all - fewer..all,
            _ => all..all,
        }
    }
    /// Rows that the new shape needs for all that is in the array.
    pub fn rows_to_move(&self) -> u64 {
        let rows = self.size().div_ceil(self.row_bytes(self.new_columns()));
        rows.next_multiple_of(self.rows_at_once())
    }
    /// Bytes of the array that a band holds in the group of this stripe, as far as they lie there;
    /// none where it does not count.
    pub fn band_range(&self, stripe: StripeNo) -> Range<u64> {
        let (group, row) = self.row(stripe);
        let shape = self.columns(stripe);
        let bytes = shape.k as u64 * shape.band * self.strip;
        let start = (row.0 / shape.band * shape.groups + group) * bytes;
        match &self.old_shape {
            None => start..start + bytes,
            Some(old) if row.0 < old.moved => {
                start.min(self.size())..(start + bytes).min(self.size())
            }
            Some(_) => start.max(self.frontier())..(start + bytes).max(self.frontier()),
        }
    }
    /// Stripes of a band, in the group of this one.
    pub fn band_stripes(&self, stripe: StripeNo) -> impl Iterator<Item = StripeNo> + use<> {
        let (group, Row(row)) = self.row(stripe);
        let (band, per_row) = (self.columns(stripe).band, self.per_row);
        let first = row - row % band;
        (first..first + band).map(move |row| StripeNo(row * per_row + group))
    }

    /// Slots of the array.
    pub fn slots(&self) -> usize {
        self.groups as usize * self.width
    }
    /// Data bytes of a stripe.
    pub fn stripe_bytes(&self) -> u64 {
        self.k as u64 * self.strip
    }
    /// Stripes of the array, and numbers without a stripe.
    pub fn stripes(&self) -> u64 {
        self.rows * self.per_row
    }
    /// Size of the block device, bytes: what it was before, as long as data moves.
    pub fn size(&self) -> u64 {
        let old = self.old_shape.as_ref().map(|old| self.old_columns(old));
        self.rows * self.row_bytes(old.unwrap_or(self.new_columns()))
    }
    /// True for RAID 1 and 10: every column of a stripe is a copy of the same data.
    pub fn mirrored(&self) -> bool {
        matches!(self.level, Level::Raid1 | Level::Raid10)
    }
    /// Parity rotates in stripes of this shape.
    fn rotates(&self, fixed: usize) -> bool {
        !self.mirrored() && self.m > fixed
    }
    /// This slot holds nothing but parity.
    pub fn only_parity(&self, slot: Slot) -> bool {
        if self.fixed == 0 {
            return false;
        }
        // Only arrays of one group have any.
        let at = usize::from(slot.0);
        let left = self.frontier() < self.size();
        let old = |old: &OldShape| !left || at >= old.width - old.fixed;
        at >= self.width - self.fixed && self.old_shape.as_ref().is_none_or(old)
    }
    /// Group and row of a stripe.
    pub fn row(&self, stripe: StripeNo) -> (u64, Row) {
        match self.per_row {
            // Asked many times for each request, and a division takes a while.
            1 => (0, Row(stripe.0)),
            per_row => (stripe.0 % per_row, Row(stripe.0 / per_row)),
        }
    }
    /// The stripe of a group in a row.
    pub fn stripe(&self, group: u64, row: Row) -> StripeNo {
        StripeNo(row.0 * self.per_row + group)
    }
    /// Stripes in rows `first..end`, all groups; also those that are in no shape
    /// ([`Self::exists`]).
    pub fn stripes_of_rows(&self, first: Row, end: Row) -> Range<u64> {
        first.0 * self.per_row..end.0.min(self.rows) * self.per_row
    }
    /// Slot that holds `column` of a stripe: 0..k data, k..k+m parity (or copies).
    pub fn slot(&self, stripe: StripeNo, column: usize) -> Slot {
        let (group, row) = self.row(stripe);
        let Shape {
            width,
            k,
            fixed,
            band,
            ..
        } = self.columns(stripe);
        let n = width - fixed;
        let local = if self.rotates(fixed) && column < n {
            let p = n - 1 - turn(row, band, n);
            let after_p = if column < k {
                self.m - fixed + column
            } else {
                column - k
            };
            match p + after_p {
                beyond if beyond >= n => beyond - n,
                within => within,
            }
        } else {
            column
        };
        Slot((group as usize * width + local) as u8)
    }
    /// Column that `slot` holds in a stripe, if it belongs to the stripe's group.
    pub fn column(&self, stripe: StripeNo, slot: Slot) -> Option<usize> {
        let (group, row) = self.row(stripe);
        let Shape {
            width,
            k,
            fixed,
            band,
            ..
        } = self.columns(stripe);
        let n = width - fixed;
        let local = usize::from(slot.0)
            .checked_sub(group as usize * width)
            .filter(|&l| l < width)?;
        if !self.rotates(fixed) || local >= n {
            return Some(local);
        }
        let p = n - 1 - turn(row, band, n);
        let after_p = (local + n - p) % n;
        let rotating = self.m - fixed;
        Some(if after_p < rotating {
            k + after_p
        } else {
            after_p - rotating
        })
    }
    /// The shape in which a byte of the array lies.
    pub fn shape_at(&self, offset: u64) -> Shape {
        match &self.old_shape {
            Some(old) if offset >= self.frontier() => self.old_columns(old),
            _ => self.new_columns(),
        }
    }
    /// Stripe, column and offset of a byte of the array.
    pub fn locate(&self, offset: u64) -> Place {
        let Shape {
            groups, k, band, ..
        } = self.shape_at(offset);
        let strip = self.strip;
        let column_bytes = band * strip;
        let (columns, in_column) = (offset >> bits(column_bytes), offset & (column_bytes - 1));
        let (at, column) = (columns / k as u64, columns % k as u64);
        let (stripe, offset) = match band {
            1 if groups == self.per_row => (at, in_column),
            _ => {
                let row = at / groups * band + (in_column >> bits(strip));
                let stripe = row * self.per_row + at % groups;
                (stripe, in_column & (strip - 1))
            }
        };
        Place {
            stripe: StripeNo(stripe),
            column: column as usize,
            offset,
        }
    }
    /// Where a strip of a data column begins in the array, in the shape of its row.
    fn strip_start(&self, stripe: StripeNo, column: usize) -> u64 {
        let Shape {
            groups, k, band, ..
        } = self.columns(stripe);
        let (group, Row(row)) = self.row(stripe);
        let bands = (row / band * groups + group) * k as u64 + column as u64;
        (bands * band + row % band) * self.strip
    }
    /// The logical blocks of the array that a part of a strip holds: none where they have moved
    /// away.
    pub fn blocks(&self, part: &StripPart) -> Range<u64> {
        let strip = self.strip_start(part.stripe, part.column);
        let (lo, hi) = (strip + part.lo, strip + part.hi);
        let moved = match &self.old_shape {
            Some(old) if self.row(part.stripe).1.0 >= old.moved => self.frontier(),
            _ => 0,
        };
        lo.max(moved) / self.block..hi.max(moved) / self.block
    }
    /// Byte offset of a row in a member's data area.
    pub fn row_offset(&self, row: Row) -> u64 {
        row.0 * self.strip
    }
    /// Region of a row.
    pub fn region(&self, row: Row) -> RegionNo {
        let rows = self.region_rows;
        let region = match rows.is_power_of_two() {
            true => row.0 >> bits(rows),
            false => row.0 / rows,
        };
        RegionNo(region as u32)
    }
    /// Number of regions.
    pub fn regions(&self) -> u32 {
        self.rows.div_ceil(self.region_rows) as u32
    }
    /// Rows of a region.
    pub fn region_rows(&self, region: RegionNo) -> Range<u64> {
        let first = u64::from(region.0) * self.region_rows;
        first..(first + self.region_rows).min(self.rows)
    }
    /// No row of the region is in a shape.
    pub fn is_unmapped(&self, region: RegionNo) -> bool {
        let rows = self.region_rows(region);
        self.new_rows() <= rows.start && rows.end <= self.first_old_row().0
    }
    /// What of the array's address space lies in a region, bytes: in the new shape, and in the old
    /// one. Both are there only near the frontier of a move.
    pub fn region_parts(&self, region: RegionNo) -> [Range<u64>; 2] {
        let rows = self.region_rows(region);
        let bytes = |first: u64, end: u64| match first < end {
            true => {
                let first = self.stripe(0, Row(first));
                let groups = self.columns(first).groups;
                let last = self.stripe(groups - 1, Row(end - 1));
                self.band_range(first).start..self.band_range(last).end
            }
            false => 0..0,
        };
        if self.old_shape.is_none() {
            let per_row = self.row_bytes(self.new_columns());
            return [rows.start * per_row..rows.end * per_row, 0..0];
        }
        let (new, old) = (self.new_rows(), self.first_old_row().0);
        [
            bytes(rows.start, rows.end.min(new)),
            bytes(rows.start.max(old), rows.end),
        ]
    }
    /// The region of a byte of the array, what lies there with it in the same shape, and whether
    /// that is all that lies there.
    pub fn region_at(&self, offset: u64) -> (RegionNo, Range<u64>, bool) {
        let region = self.region(self.row(self.locate(offset).stripe).1);
        let [new, old] = self.region_parts(region);
        let alone = new.is_empty() || old.is_empty();
        let part = if old.contains(&offset) { old } else { new };
        (region, part, alone)
    }
    /// Bytes of the array in a region: of the first shape that it is in.
    pub fn region_bytes(&self, region: RegionNo) -> Range<u64> {
        let [new, old] = self.region_parts(region);
        if new.is_empty() { old } else { new }
    }
    /// Is this request inside the array, aligned, and longer than nothing?
    pub fn valid(&self, offset: u64, len: u64) -> bool {
        len > 0
            && (offset | len) & (self.block - 1) == 0
            && offset
                .checked_add(len)
                .is_some_and(|end| end <= self.size())
    }
    /// Strips of which these bytes lie in some.
    pub fn strips(&self, offset: u64, len: u64) -> u64 {
        let strip = bits(self.strip);
        ((offset + len - 1) >> strip) - (offset >> strip) + 1
    }
    /// The shard that owns a stripe, of `shards`: the same for a band.
    pub fn shard(&self, stripe: StripeNo, shards: u16) -> ShardNo {
        let Shape { groups, band, .. } = self.columns(stripe);
        let at = match band {
            1 if groups == self.per_row => stripe.0,
            _ => {
                let (group, Row(row)) = self.row(stripe);
                row / band * groups + group
            }
        };
        ShardNo((at % u64::from(shards)) as u16)
    }

    /// The shards that have stripes in a region: fewer than there are where it has few.
    pub(crate) fn owners(&self, region: RegionNo, shards: u16) -> BTreeSet<ShardNo> {
        let rows = self.region_rows(region);
        let mut owners = BTreeSet::new();
        let stripes = self.stripes_of_rows(Row(rows.start), Row(rows.end));
        for stripe in stripes.map(StripeNo).filter(|&s| self.exists(s)) {
            owners.insert(self.shard(stripe, shards));
            if owners.len() == usize::from(shards) {
                break;
            }
        }
        owners
    }
}

/// Strips, bands and blocks are powers of two, and every request is asked about them several times:
/// a shift is quicker than a division.
fn bits(power_of_two: u64) -> u32 {
    debug_assert!(power_of_two.is_power_of_two());
    power_of_two.trailing_zeros()
}

/// How far parity has rotated in a row, of `n` members.
fn turn(row: Row, band: u64, n: usize) -> usize {
    let row = row.0 >> bits(band);
    (row % n as u64) as usize
}
