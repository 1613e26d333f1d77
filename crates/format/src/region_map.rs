//! The region map: one byte per region, in pages of 4096 bytes that each have two places.
//!
//! Protocol: a page's sequence grows by one with every write; the write with sequence s goes to
//! place s mod 2, so a torn write never hurts the version before it. On assembly the newest valid
//! version of a page, over both places, is the member's; which member to ask is the engine's to
//! know.
//!
//! Beside its state a region carries a flag, *behind*: it was (or may have been) written while some
//! slot of the array was not in sync, so a member that was away may lack what it holds. The flags
//! count from the epoch `whole_since` of the superblock on.
//!
//! And a second one, *undecided*: strips of it were built from others that did not agree, where
//! redundancy does not tell which of them is wrong. What was built would vouch for those that it
//! was built from, so no strip of such a region is named, or repaired, by what the others say. A
//! page with such a flag has version 2: an older program would blame strips that are right.
//!
//! A page that is written while some slot is not in sync says which version of it every member had
//! when the array was last whole: a member that comes back and lacks that version is an older image
//! of the member (see `docs/rfd/0019-older-images.md`). Such a page has version 3.
//!
//! Invariants: a decoded page has only states with a meaning, lies where it says, and is whole.
//!
//! Deliberately absent: the transitions between states (engine), and compression: a page is one
//! atomic write.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::BLOCK_BYTES;
use crate::checksum;
use crate::error::MapError;
use crate::identity::{ArrayUuid, Epoch, MemberUuid};
use crate::layout::Layout;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Regions that one page covers.
pub const REGIONS_PER_PAGE: usize = PAGE_BYTES - HEADER_BYTES - MAGIC.len();

const HEADER_BYTES: usize = 96;
const MAGIC: [u8; 8] = *b"STRKMAP\x1a";
const VERSION: u16 = 1;
/// The version of pages that have undecided regions.
const VERSION_UNDECIDED: u16 = 2;
const CHECKSUM_AT: usize = 12;
/// The version of pages that say what every member had.
const VERSION_WHOLE_AT: u16 = 3;
/// Set in a region's byte where it is behind.
const BEHIND: u8 = 0x80;
/// Set in a region's byte where it is undecided.
const UNDECIDED: u8 = 0x40;

/// What is known of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum RegionState {
    /// Never written since creation or discard: reads as zeros, is neither synced nor rebuilt.
    #[default]
    Unwritten = 0,
    /// Written, and its redundancy is true.
    Clean = 1,
    /// Writes may be under way: after an unclean stop its redundancy may be untrue.
    Dirty = 2,
    /// Its redundancy is known or feared to be untrue.
    NeedSync = 3,
}

impl TryFrom<u8> for RegionState {
    type Error = u8;

    fn try_from(code: u8) -> Result<Self, u8> {
        match code {
            0 => Ok(RegionState::Unwritten),
            1 => Ok(RegionState::Clean),
            2 => Ok(RegionState::Dirty),
            3 => Ok(RegionState::NeedSync),
            _ => Err(code),
        }
    }
}

/// One page of the map of one member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapPage {
    /// The array.
    pub array: ArrayUuid,
    /// The member.
    pub member: MemberUuid,
    /// Which page, from 0.
    pub page: u32,
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// Grows by one with every write of this page; tells the newer place.
    pub sequence: u64,
    /// At most [`REGIONS_PER_PAGE`] states, from region `page * REGIONS_PER_PAGE`.
    pub states: Vec<RegionState>,
    /// Places among `states` of the regions that are behind, ascending.
    pub behind: Vec<u16>,
    /// Places among `states` of the regions that are undecided, ascending.
    pub undecided: Vec<u16>,
    /// The newest sequence of this page that every member had when every slot was last in sync.
    /// Zero: some slot was not in sync only after this page was written, or it is not known.
    pub whole_at: u64,
}

/// The page as it lies on the member. Each field names the failure that it defends against.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPage {
    /// Something else lies here.
    magic: [u8; 8],
    /// A format of the future.
    version: U16,
    /// States behind the end taken for regions.
    count: U16,
    /// Torn writes and rot: CRC-32C of the page with this field zero.
    checksum: U32,
    /// Misdirected writes and reads: the byte offset on the member.
    offset: U64,
    /// A leftover of another array.
    array: [u8; 16],
    /// A page of another member: a copied or swapped drive.
    member: [u8; 16],
    /// A page of a membership that has gone.
    epoch: U64,
    /// An old version taken for the new one: a lost write, or a torn one at the other place.
    sequence: U64,
    /// A page taken for another.
    page: U32,
    /// An older image of a member taken for a member that was away: the version that every member
    /// had when the array was last whole.
    whole_at: U64,
    /// Room to grow; zero.
    reserved: [u8; 12],
    /// The states, one byte each, with [`BEHIND`] where the region is behind; zero behind the last.
    states: [u8; REGIONS_PER_PAGE],
    /// A torn head: the magic once more, so that a page that lost its first sector is still known
    /// as damaged.
    magic_tail: [u8; 8],
}

const _: () = {
    assert!(size_of::<RawPage>() == PAGE_BYTES);
    assert!(PAGE_BYTES as u64 == BLOCK_BYTES);
    assert!(std::mem::offset_of!(RawPage, checksum) == CHECKSUM_AT);
    assert!(std::mem::offset_of!(RawPage, states) == HEADER_BYTES);
    assert!(REGIONS_PER_PAGE == 3992);
};

/// Where the version `sequence` of `page` lies: the byte offset on the member. Even sequences lie
/// in the A places, from the map's beginning; odd ones in the B places, which end where the log
/// begins.
///
/// # Panics
/// If the map has no such page.
pub fn place(layout: &Layout, page: u32, sequence: u64) -> u64 {
    assert!(
        page < layout.map_pages,
        "the map has {} pages, not page {page}",
        layout.map_pages
    );
    let a = layout.map_offset;
    let b = layout.log_offset - u64::from(layout.map_pages) * BLOCK_BYTES;
    let first = if sequence.is_multiple_of(2) { a } else { b };
    first + u64::from(page) * BLOCK_BYTES
}

/// The newer of what the two places of a page hold; None where neither can be believed. Of two
/// versions with one sequence (which the protocol does not produce) the first is taken.
pub fn newest(a: Result<MapPage, MapError>, b: Result<MapPage, MapError>) -> Option<MapPage> {
    match (a, b) {
        (Ok(a), Ok(b)) if b.sequence > a.sequence => Some(b),
        (Ok(a), _) => Some(a),
        (Err(_), Ok(b)) => Some(b),
        (Err(_), Err(_)) => None,
    }
}

/// Both places of a page hold what was written there last, as far as can be told: no version is
/// lost that the member had.
pub fn is_whole(a: Option<&MapPage>, b: Option<&MapPage>) -> bool {
    let both = a.zip(b);
    both.is_some_and(|(a, b)| a.sequence.abs_diff(b.sequence) == 1)
}

impl MapPage {
    /// The page's bytes for the place at `offset`.
    ///
    /// # Panics
    /// If there are more states than fit, or a region that has no state is behind.
    pub fn encode(&self, offset: u64) -> Box<[u8; PAGE_BYTES]> {
        assert!(
            self.states.len() <= REGIONS_PER_PAGE,
            "a page holds {REGIONS_PER_PAGE} regions"
        );
        let mut raw = RawPage {
            magic: MAGIC,
            version: match (self.whole_at, self.undecided.is_empty()) {
                (0, true) => VERSION.into(),
                (0, false) => VERSION_UNDECIDED.into(),
                _ => VERSION_WHOLE_AT.into(),
            },
            count: (self.states.len() as u16).into(),
            checksum: 0.into(),
            offset: offset.into(),
            array: self.array.0,
            member: self.member.0,
            epoch: self.epoch.0.into(),
            sequence: self.sequence.into(),
            page: self.page.into(),
            whole_at: self.whole_at.into(),
            reserved: [0; 12],
            states: [0; REGIONS_PER_PAGE],
            magic_tail: MAGIC,
        };
        for (byte, state) in raw.states.iter_mut().zip(&self.states) {
            *byte = *state as u8;
        }
        for (places, flag) in [(&self.behind, BEHIND), (&self.undecided, UNDECIDED)] {
            for &at in places {
                let at = usize::from(at);
                assert!(
                    at < self.states.len(),
                    "region {at} of the page has no state"
                );
                raw.states[at] |= flag;
            }
        }
        raw.checksum = checksum::sealed(raw.as_bytes(), CHECKSUM_AT).into();
        Box::new(zerocopy::transmute!(raw))
    }

    /// The page that lies at `offset`.
    ///
    /// # Errors
    /// Why these bytes cannot be believed.
    pub fn decode(bytes: &[u8], offset: u64) -> Result<MapPage, MapError> {
        let raw =
            RawPage::ref_from_bytes(bytes).map_err(|_| MapError::Length { bytes: bytes.len() })?;
        if raw.magic != MAGIC && raw.magic_tail != MAGIC {
            return Err(MapError::NotMap);
        }
        let (stored, computed) = (raw.checksum.get(), checksum::sealed(bytes, CHECKSUM_AT));
        if stored != computed || raw.magic != raw.magic_tail {
            return Err(MapError::Damaged { stored, computed });
        }
        if !(VERSION..=VERSION_WHOLE_AT).contains(&raw.version.get()) {
            return Err(MapError::Version {
                version: raw.version.get(),
            });
        }
        if raw.offset.get() != offset {
            return Err(MapError::Misplaced {
                named: raw.offset.get(),
                offset,
            });
        }
        raw.parse()
    }
}

impl RawPage {
    /// The value of a page that is whole and in its place.
    fn parse(&self) -> Result<MapPage, MapError> {
        let count = self.count.get();
        let used = usize::from(count);
        let Some((used, unused)) = self.states.split_at_checked(used) else {
            return Err(MapError::Count { count });
        };
        if unused.iter().chain(&self.reserved).any(|&byte| byte != 0) {
            return Err(MapError::Reserved);
        }
        let state = |(region, &code): (usize, &u8)| {
            let region = region as u16;
            let flags = match self.version.get() {
                VERSION => BEHIND,
                _ => BEHIND | UNDECIDED,
            };
            RegionState::try_from(code & !flags).map_err(|_| MapError::State { region, code })
        };
        let flagged = |flag: u8| {
            let places = (0..).zip(used).filter(move |(_, code)| **code & flag != 0);
            places.map(|(at, _)| at).collect()
        };
        let undecided: Vec<u16> = flagged(UNDECIDED);
        let (version, whole_at) = (self.version.get(), self.whole_at.get());
        if whole_at > 0 && version != VERSION_WHOLE_AT {
            return Err(MapError::Reserved);
        }
        let due = match version {
            VERSION => true,
            VERSION_UNDECIDED => !undecided.is_empty(),
            _ => whole_at > 0,
        };
        if !due {
            return Err(MapError::Version { version });
        }
        Ok(MapPage {
            array: ArrayUuid(self.array),
            member: MemberUuid(self.member),
            page: self.page.get(),
            epoch: Epoch(self.epoch.get()),
            sequence: self.sequence.get(),
            states: used
                .iter()
                .enumerate()
                .map(state)
                .collect::<Result<_, _>>()?,
            behind: flagged(BEHIND),
            undecided,
            whole_at,
        })
    }
}
