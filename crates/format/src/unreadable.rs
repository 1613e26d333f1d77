//! The list of unreadable blocks: logical blocks that lost their content and answer an error until
//! they are written again.
//!
//! Protocol: the list has two places of `unreadable_bytes` each, and every version is a whole
//! image. A member's next version goes to the place that does not hold its newest, so a torn write
//! never hurts the version before it, also where a member lags one version behind the others. Of
//! two valid versions the newer is the one with the higher epoch, then the higher sequence: what a
//! member wrote before it went away never outweighs what it was told when it came back.
//!
//! Invariants: a decoded list is sorted, its ranges neither touch nor overlap nor are empty, it
//! lies where it says, and is whole.
//!
//! Deliberately absent: which member to ask, and what a range means to a request (engine).

use std::ops::Range;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::BLOCK_BYTES;
use crate::checksum;
use crate::error::UnreadableError;
use crate::identity::{ArrayUuid, Epoch, MemberUuid};
use crate::layout::Layout;

/// Bytes of one place in the product: room for 4089 ranges.
pub const UNREADABLE_BYTES: u32 = 64 << 10;

const HEADER_BYTES: usize = 96;
const RANGE_BYTES: usize = 16;
const MAGIC: [u8; 8] = *b"STRKUNR\x1a";
const VERSION: u16 = 1;
const CHECKSUM_AT: usize = 12;

/// A version of the list of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableList {
    /// The array.
    pub array: ArrayUuid,
    /// The member.
    pub member: MemberUuid,
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// Grows by one with every version.
    pub sequence: u64,
    /// Logical blocks of the array's address space: in order, not empty, not touching each other.
    pub ranges: Vec<Range<u64>>,
}

/// The beginning of an image. Each field names the failure that it defends against.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    /// Something else lies here.
    magic: [u8; 8],
    /// A format of the future.
    version: U16,
    /// Room to grow; zero.
    reserved_head: [u8; 2],
    /// Torn writes and rot: CRC-32C of the whole image with this field zero.
    checksum: U32,
    /// Misdirected writes and reads: the byte offset on the member.
    offset: U64,
    /// A leftover of another array.
    array: [u8; 16],
    /// A list of another member: a copied or swapped drive.
    member: [u8; 16],
    /// What was written before a member went away taken for what it was told since.
    epoch: U64,
    /// The old version taken for the new one: a lost or a torn write.
    sequence: U64,
    /// Bytes behind the end taken for ranges.
    count: U32,
    /// Room to grow; zero.
    reserved: [u8; 20],
}

/// A run of blocks.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRange {
    first: U64,
    blocks: U64,
}

const _: () = {
    assert!(size_of::<RawHeader>() == HEADER_BYTES);
    assert!(size_of::<RawRange>() == RANGE_BYTES);
    assert!(std::mem::offset_of!(RawHeader, checksum) == CHECKSUM_AT);
    assert!((UNREADABLE_BYTES as u64).is_multiple_of(BLOCK_BYTES));
    assert!(capacity(UNREADABLE_BYTES) == 4089);
};

/// Where the two places lie: byte offsets on the member. The first follows the map's A places, the
/// second goes before its B places.
pub fn places(layout: &Layout) -> [u64; 2] {
    let map_bytes = u64::from(layout.map_pages) * BLOCK_BYTES;
    let first = layout.map_offset + map_bytes;
    let second = layout.log_offset - map_bytes - u64::from(layout.unreadable_bytes);
    [first, second]
}

/// Ranges that an image of so many bytes holds.
pub const fn capacity(unreadable_bytes: u32) -> usize {
    (unreadable_bytes as usize - HEADER_BYTES - MAGIC.len()) / RANGE_BYTES
}

/// The newest of what a member's two places hold, and which place that is; None where neither is a
/// list of this array and member.
pub fn newest(
    places: &[Option<UnreadableList>; 2],
    array: ArrayUuid,
    member: MemberUuid,
) -> Option<(usize, &UnreadableList)> {
    let lists = places.iter().enumerate();
    let lists = lists.filter_map(|(place, list)| Some((place, list.as_ref()?)));
    lists
        .filter(|(_, list)| (list.array, list.member) == (array, member))
        .max_by_key(|(_, list)| (list.epoch, list.sequence))
}

impl UnreadableList {
    /// The image of `bytes` bytes for the place at `offset`.
    ///
    /// # Panics
    /// If the ranges do not fit, or are not in order and apart.
    pub fn encode(&self, bytes: u32, offset: u64) -> Vec<u8> {
        assert!(
            self.ranges.len() <= capacity(bytes),
            "{} ranges do not fit into {bytes} bytes",
            self.ranges.len()
        );
        assert!(
            self.ranges.is_sorted_by(|a, b| a.end < b.start)
                && self.ranges.iter().all(|range| range.start < range.end),
            "ranges are in order and apart"
        );
        let header = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            reserved_head: [0; 2],
            checksum: 0.into(),
            offset: offset.into(),
            array: self.array.0,
            member: self.member.0,
            epoch: self.epoch.0.into(),
            sequence: self.sequence.into(),
            count: (self.ranges.len() as u32).into(),
            reserved: [0; 20],
        };
        let mut image = Vec::with_capacity(bytes as usize);
        image.extend_from_slice(header.as_bytes());
        for range in &self.ranges {
            let raw = RawRange {
                first: range.start.into(),
                blocks: (range.end - range.start).into(),
            };
            image.extend_from_slice(raw.as_bytes());
        }
        image.resize(bytes as usize - MAGIC.len(), 0);
        image.extend_from_slice(&MAGIC);
        let sum = checksum::sealed(&image, CHECKSUM_AT);
        image[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        image
    }

    /// The list from its image at `offset`.
    ///
    /// # Errors
    /// Why these bytes cannot be believed.
    pub fn decode(bytes: &[u8], offset: u64) -> Result<UnreadableList, UnreadableError> {
        let length = UnreadableError::Length { bytes: bytes.len() };
        if bytes.is_empty() || !bytes.len().is_multiple_of(BLOCK_BYTES as usize) {
            return Err(length);
        }
        let (raw, rest) = RawHeader::ref_from_prefix(bytes).map_err(|_| length)?;
        let (rest, tail) = rest.split_at(rest.len() - MAGIC.len());
        if raw.magic != MAGIC && *tail != MAGIC {
            return Err(UnreadableError::NotList);
        }
        let (stored, computed) = (raw.checksum.get(), checksum::sealed(bytes, CHECKSUM_AT));
        if stored != computed || raw.magic != *tail {
            return Err(UnreadableError::Damaged { stored, computed });
        }
        let version = raw.version.get();
        if version != VERSION {
            return Err(UnreadableError::Version { version });
        }
        let named = raw.offset.get();
        if named != offset {
            return Err(UnreadableError::Misplaced { named, offset });
        }
        raw.parse(rest)
    }
}

impl RawHeader {
    /// The value of an image that is whole and in its place; `rest` lies between header and tail.
    fn parse(&self, rest: &[u8]) -> Result<UnreadableList, UnreadableError> {
        let count = self.count.get();
        let parsed = <[RawRange]>::ref_from_prefix_with_elems(rest, count as usize);
        let (raw, unused) = parsed.map_err(|_| UnreadableError::Count { count })?;
        let mut reserved = self
            .reserved_head
            .iter()
            .chain(&self.reserved)
            .chain(unused);
        if reserved.any(|&byte| byte != 0) {
            return Err(UnreadableError::Reserved);
        }
        let mut ranges: Vec<Range<u64>> = Vec::with_capacity(raw.len());
        for (index, range) in (0..count).zip(raw) {
            let (first, blocks) = (range.first.get(), range.blocks.get());
            let end = first.checked_add(blocks).filter(|_| blocks > 0);
            let apart = ranges.last().is_none_or(|before| before.end < first);
            match end.filter(|_| apart) {
                Some(end) => ranges.push(first..end),
                None => return Err(UnreadableError::Range { index }),
            }
        }
        Ok(UnreadableList {
            array: ArrayUuid(self.array),
            member: MemberUuid(self.member),
            epoch: Epoch(self.epoch.get()),
            sequence: self.sequence.get(),
            ranges,
        })
    }
}
