//! Where a byte of the array lies: level, stripes, rows, columns, slots.
//!
//! Every level is one shape: `groups` groups of `width` slots; a stripe has `k` data columns and
//! `m` parity columns in one row of one group. A mirror is the code with k = 1 whose parities are
//! copies; RAID 0 is m = 0. Parities that were added to an array (`fixed`) lie in the last slots and
//! do not rotate; what follows is about the others. Parity levels rotate as Linux md's left-symmetric layout does: for row
//! r of n members P lies in slot n−1−(r mod n), the other parities in the slots after it
//! (wrapping), data after those. Mirrors and RAID 0 do not rotate.
//!
//! While data moves to another shape ([`Elder`], `moving`), the shape of a stripe is a function of its
//! row: those below the frontier have the new one, those from the first on that still counts have the
//! elder one, and what lies between them is nobody's. Everything that is asked with a row, a stripe
//! or an address answers by it, so that whoever asks needs to know of no move.
//!
//! Invariants: `locate` and `slot` are inverses over the whole address space; no row has two shapes
//! (tested).

use std::ops::Range;

use strake_format::{Level, Superblock};

use crate::units::*;

/// The arithmetic of one array; immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The level.
    pub level: Level,
    /// Groups (1 unless the level is 10, 50, 60 or 70).
    pub groups: u64,
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
    /// Logical block, bytes.
    pub block: u64,
    /// Rows of every group.
    pub rows: u64,
    /// Rows of a region.
    pub region_rows: u64,
    /// Data is moving: the shape that it comes from. All of the above is the new one.
    pub elder: Option<Elder>,
}

/// The shape from which data moves to one with more data columns. Level, strip, parities and rows
/// are the same, and there are no groups: the number of a stripe is that of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elder {
    /// Members.
    pub width: usize,
    /// The frontier: rows of the new shape that hold their data.
    pub moved: u64,
}

/// What a stripe is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Members.
    pub width: usize,
    /// Data columns.
    pub k: usize,
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
        Geometry {
            level: sb.level,
            groups: (members / width) as u64,
            width,
            k: width - m,
            m,
            fixed: usize::from(sb.fixed_parities),
            strip,
            block: u64::from(sb.block_bytes),
            rows: sb.layout.data_bytes / strip,
            region_rows: sb.layout.region_bytes / strip,
            elder: sb.moving.as_ref().map(|moving| Elder {
                width: usize::from(moving.members),
                moved: moving.moved_rows,
            }),
        }
    }

    // ---- the two shapes of a move --------------------------------------------------------------

    /// The shape of a stripe.
    pub fn columns(&self, stripe: StripeNo) -> Shape {
        match &self.elder {
            Some(elder) if stripe.0 >= elder.moved => self.elder_columns(elder),
            _ => Shape {
                width: self.width,
                k: self.k,
            },
        }
    }
    fn elder_columns(&self, elder: &Elder) -> Shape {
        Shape {
            width: elder.width,
            k: elder.width - self.m,
        }
    }
    /// Data bytes of a stripe of the elder shape.
    fn elder_bytes(&self, elder: &Elder) -> u64 {
        self.elder_columns(elder).k as u64 * self.strip
    }
    /// The first address that lies in the elder shape: the size where none does.
    pub fn frontier(&self) -> u64 {
        match &self.elder {
            Some(elder) => (elder.moved * self.stripe_bytes()).min(self.size()),
            None => self.size(),
        }
    }
    /// The first row of the elder shape that still counts; the first data of it may have moved.
    pub fn first_elder(&self) -> Row {
        match &self.elder {
            Some(elder) if self.frontier() < self.size() => {
                Row(self.frontier() / self.elder_bytes(elder))
            }
            _ => Row(self.rows),
        }
    }
    /// Rows of the new shape that count.
    pub fn new_rows(&self) -> u64 {
        self.elder.map_or(self.rows, |elder| elder.moved)
    }
    /// The row is in a shape.
    pub fn counts(&self, row: Row) -> bool {
        row.0 < self.new_rows() || row >= self.first_elder()
    }
    /// The shape in which everything has moved so far, and nothing else is left.
    pub fn moved_to(&self, rows: u64) -> Geometry {
        let elder = self.elder.map(|elder| Elder {
            moved: rows,
            ..elder
        });
        Geometry { elder, ..*self }
    }
    /// The geometry when all has moved.
    pub fn settled(&self) -> Geometry {
        Geometry {
            elder: None,
            ..*self
        }
    }
    /// Rows that the new shape needs for all that is in the array.
    pub fn rows_to_move(&self) -> u64 {
        self.size().div_ceil(self.stripe_bytes())
    }
    /// Bytes of the array that a stripe holds, as far as they lie there; none where it does not
    /// count.
    pub fn stripe_range(&self, stripe: StripeNo) -> Range<u64> {
        let Some(elder) = &self.elder else {
            return stripe.0 * self.stripe_bytes()..(stripe.0 + 1) * self.stripe_bytes();
        };
        if stripe.0 < elder.moved {
            let start = stripe.0 * self.stripe_bytes();
            return start..(start + self.stripe_bytes()).min(self.size());
        }
        let start = stripe.0 * self.elder_bytes(elder);
        let end = start + self.elder_bytes(elder);
        start.max(self.frontier())..end.max(self.frontier())
    }

    /// Slots of the array.
    pub fn slots(&self) -> usize {
        self.groups as usize * self.width
    }
    /// Data bytes of a stripe.
    pub fn stripe_bytes(&self) -> u64 {
        self.k as u64 * self.strip
    }
    /// Stripes of the array.
    pub fn stripes(&self) -> u64 {
        self.rows * self.groups
    }
    /// Size of the block device, bytes: what it was before, as long as data moves.
    pub fn size(&self) -> u64 {
        match &self.elder {
            Some(elder) => self.rows * self.elder_bytes(elder),
            None => self.stripes() * self.stripe_bytes(),
        }
    }
    /// True for RAID 1 and 10: every column of a stripe is a copy of the same data.
    pub fn mirrored(&self) -> bool {
        matches!(self.level, Level::Raid1 | Level::Raid10)
    }
    /// Parity rotates.
    fn rotates(&self) -> bool {
        !self.mirrored() && self.m > self.fixed
    }
    /// This slot holds nothing but parity.
    pub fn only_parity(&self, slot: Slot) -> bool {
        let at = usize::from(slot.0);
        let elder = |elder: &Elder| at >= elder.width - self.fixed;
        at % self.width >= self.width - self.fixed && self.elder.as_ref().is_none_or(elder)
    }
    /// Group and row of a stripe.
    pub fn row(&self, stripe: StripeNo) -> (u64, Row) {
        match self.groups {
            // Asked many times for each request, and a division takes a while.
            1 => (0, Row(stripe.0)),
            groups => (stripe.0 % groups, Row(stripe.0 / groups)),
        }
    }
    /// The stripe of a group in a row.
    pub fn stripe(&self, group: u64, row: Row) -> StripeNo {
        StripeNo(row.0 * self.groups + group)
    }
    /// Stripes in rows `first..end`, all groups; also those that do not count.
    pub fn stripes_of_rows(&self, first: Row, end: Row) -> Range<u64> {
        first.0 * self.groups..end.0.min(self.rows) * self.groups
    }
    /// Slot that holds `column` of a stripe: 0..k data, k..k+m parity (or copies).
    pub fn slot(&self, stripe: StripeNo, column: usize) -> Slot {
        let (group, row) = self.row(stripe);
        let Shape { width, k } = self.columns(stripe);
        let n = width - self.fixed;
        let local = if self.rotates() && column < n {
            let p = n - 1 - (row.0 % n as u64) as usize;
            let after_p = if column < k {
                self.m - self.fixed + column
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
        let Shape { width, k } = self.columns(stripe);
        let n = width - self.fixed;
        let local = usize::from(slot.0)
            .checked_sub(group as usize * width)
            .filter(|&l| l < width)?;
        if !self.rotates() || local >= n {
            return Some(local);
        }
        let p = n - 1 - (row.0 % n as u64) as usize;
        let after_p = (local + n - p) % n;
        let rotating = self.m - self.fixed;
        Some(if after_p < rotating {
            k + after_p
        } else {
            after_p - rotating
        })
    }
    /// Stripe, column and offset of a byte of the array.
    pub fn locate(&self, offset: u64) -> Place {
        let bytes = match &self.elder {
            Some(elder) if offset >= self.frontier() => self.elder_bytes(elder),
            _ => self.stripe_bytes(),
        };
        let in_stripe = offset % bytes;
        Place {
            stripe: StripeNo(offset / bytes),
            column: (in_stripe / self.strip) as usize,
            offset: in_stripe % self.strip,
        }
    }
    /// The logical blocks of the array that a part of a strip holds: none where they have moved
    /// away.
    pub fn blocks(&self, part: &StripPart) -> Range<u64> {
        let k = self.columns(part.stripe).k as u64;
        let strip = (part.stripe.0 * k + part.column as u64) * self.strip;
        let (lo, hi) = (strip + part.lo, strip + part.hi);
        let moved = match &self.elder {
            Some(elder) if part.stripe.0 >= elder.moved => self.frontier(),
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
        RegionNo((row.0 / self.region_rows) as u32)
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
    pub fn nobodys(&self, region: RegionNo) -> bool {
        let rows = self.region_rows(region);
        self.new_rows() <= rows.start && rows.end <= self.first_elder().0
    }
    /// What of the array's address space lies in a region, bytes: in the new shape, and in the elder
    /// one. Both are there only near the frontier of a move.
    pub fn region_parts(&self, region: RegionNo) -> [Range<u64>; 2] {
        let rows = self.region_rows(region);
        let bytes = |first: u64, end: u64| match first < end {
            true => {
                let (first, last) = (StripeNo(first), StripeNo(end - 1));
                self.stripe_range(first).start..self.stripe_range(last).end
            }
            false => 0..0,
        };
        if self.elder.is_none() {
            let per_row = self.groups * self.stripe_bytes();
            return [rows.start * per_row..rows.end * per_row, 0..0];
        }
        let (new, elder) = (self.new_rows(), self.first_elder().0);
        [
            bytes(rows.start, rows.end.min(new)),
            bytes(rows.start.max(elder), rows.end),
        ]
    }
    /// The region of a byte of the array, what lies there with it in the same shape, and whether
    /// that is all that lies there.
    pub fn region_at(&self, offset: u64) -> (RegionNo, Range<u64>, bool) {
        let region = self.region(self.row(self.locate(offset).stripe).1);
        let [new, elder] = self.region_parts(region);
        let alone = new.is_empty() || elder.is_empty();
        let part = if elder.contains(&offset) { elder } else { new };
        (region, part, alone)
    }
    /// Bytes of the array in a region: of the first shape that it is in.
    pub fn region_bytes(&self, region: RegionNo) -> Range<u64> {
        let [new, elder] = self.region_parts(region);
        if new.is_empty() { elder } else { new }
    }
    /// Is this request inside the array, aligned, and longer than nothing?
    pub fn valid(&self, offset: u64, len: u64) -> bool {
        len > 0
            && offset.is_multiple_of(self.block)
            && len.is_multiple_of(self.block)
            && offset
                .checked_add(len)
                .is_some_and(|end| end <= self.size())
    }
    /// The shard that owns a stripe, of `shards`.
    pub fn shard(&self, stripe: StripeNo, shards: u16) -> ShardNo {
        ShardNo((stripe.0 % u64::from(shards)) as u16)
    }
}
