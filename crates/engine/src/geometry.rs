//! Where a byte of the array lies: level, stripes, rows, columns, slots.
//!
//! Every level is one shape: `groups` groups of `width` slots; a stripe has `k` data columns and
//! `m` parity columns in one row of one group. A mirror is the code with k = 1 whose parities are
//! copies; RAID 0 is m = 0. Parities that were added to an array (`fixed`) lie in the last slots and
//! do not rotate; what follows is about the others. Parity levels rotate as Linux md's left-symmetric layout does: for row
//! r of n members P lies in slot n−1−(r mod n), the other parities in the slots after it
//! (wrapping), data after those. Mirrors and RAID 0 do not rotate.
//!
//! Invariant: `locate` and `slot` are inverses over the whole address space (tested).

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
        }
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
    /// Size of the block device, bytes.
    pub fn size(&self) -> u64 {
        self.stripes() * self.stripe_bytes()
    }
    /// True for RAID 1 and 10: every column of a stripe is a copy of the same data.
    pub fn mirrored(&self) -> bool {
        matches!(self.level, Level::Raid1 | Level::Raid10)
    }
    /// Parity rotates.
    fn rotates(&self) -> bool {
        !self.mirrored() && self.m > self.fixed
    }
    /// Slots of a group among which columns rotate.
    fn turning(&self) -> usize {
        self.width - self.fixed
    }
    /// This slot holds nothing but parity.
    pub fn only_parity(&self, slot: Slot) -> bool {
        usize::from(slot.0) % self.width >= self.turning()
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
    /// Stripes in rows `first..end`, all groups.
    pub fn stripes_of_rows(&self, first: Row, end: Row) -> Range<u64> {
        first.0 * self.groups..end.0.min(self.rows) * self.groups
    }
    /// Slot that holds `column` of a stripe: 0..k data, k..k+m parity (or copies).
    pub fn slot(&self, stripe: StripeNo, column: usize) -> Slot {
        let (group, row) = self.row(stripe);
        let n = self.turning();
        let local = if self.rotates() && column < n {
            let p = n - 1 - (row.0 % n as u64) as usize;
            let after_p = if column < self.k {
                self.m - self.fixed + column
            } else {
                column - self.k
            };
            match p + after_p {
                beyond if beyond >= n => beyond - n,
                within => within,
            }
        } else {
            column
        };
        Slot((group as usize * self.width + local) as u8)
    }
    /// Column that `slot` holds in a stripe, if it belongs to the stripe's group.
    pub fn column(&self, stripe: StripeNo, slot: Slot) -> Option<usize> {
        let (group, row) = self.row(stripe);
        let n = self.turning();
        let local = usize::from(slot.0)
            .checked_sub(group as usize * self.width)
            .filter(|&l| l < self.width)?;
        if !self.rotates() || local >= n {
            return Some(local);
        }
        let p = n - 1 - (row.0 % n as u64) as usize;
        let after_p = (local + n - p) % n;
        let rotating = self.m - self.fixed;
        Some(if after_p < rotating {
            self.k + after_p
        } else {
            after_p - rotating
        })
    }
    /// Stripe, column and offset of a byte of the array.
    pub fn locate(&self, offset: u64) -> Place {
        let in_stripe = offset % self.stripe_bytes();
        Place {
            stripe: StripeNo(offset / self.stripe_bytes()),
            column: (in_stripe / self.strip) as usize,
            offset: in_stripe % self.strip,
        }
    }
    /// The logical blocks of the array that a part of a strip holds.
    pub fn blocks(&self, part: &StripPart) -> Range<u64> {
        let strip = part.stripe.0 * self.stripe_bytes() + part.column as u64 * self.strip;
        (strip + part.lo) / self.block..(strip + part.hi) / self.block
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
    /// Range of a region in the array's address space, bytes.
    pub fn region_bytes(&self, region: RegionNo) -> Range<u64> {
        let rows = self.region_rows(region);
        let per_row = self.groups * self.stripe_bytes();
        rows.start * per_row..rows.end * per_row
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
