//! Why a member that is found is not used, as data and in words.
//!
//! Deliberately absent: how that is found out (`array::start::older_images`).

use std::fmt;

use strake_format::{Epoch, MapPage, Past, Slot};

use crate::proto::*;

/// Why a device that carries the member of a slot is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aside {
    /// The member missed writes: the array went on without it.
    Missed {
        /// The epoch that it knows.
        epoch: Epoch,
    },
    /// It is an image of the member from before, or the member of an array that went on apart.
    Past(Past),
    /// It is an image of the member from before: its region map lacks versions that it had.
    OlderMap {
        /// The page.
        page: u32,
        /// The newest version that it has.
        has: u64,
        /// One that it had, as others show.
        had: u64,
    },
    /// Its region map cannot show that it holds what the member held: a page of it is damaged.
    MapDamaged {
        /// The page.
        page: u32,
        /// A version that it had.
        had: u64,
    },
    /// A copy of its superblock should lie here, and nothing does.
    Emptied {
        /// Offset, bytes.
        offset: u64,
    },
    /// Its logical blocks are larger than those of the array.
    BlockSize {
        /// Its own, bytes.
        has: u32,
        /// The array's, bytes.
        needs: u32,
    },
    /// It is too small.
    TooSmall {
        /// Its size, bytes.
        has: u64,
        /// The least, bytes.
        needs: u64,
    },
}

impl Aside {
    /// The same as a cause for events.
    pub fn cause(self) -> OutCause {
        match self {
            Aside::Missed { .. } | Aside::MapDamaged { .. } => OutCause::Stale,
            Aside::Past(Past::Unclear { .. }) => OutCause::Stale,
            Aside::Past(_) | Aside::OlderMap { .. } => OutCause::OlderImage,
            Aside::Emptied { .. } => OutCause::Emptied,
            Aside::BlockSize { .. } | Aside::TooSmall { .. } => OutCause::Unfit,
        }
    }
}

impl fmt::Display for Aside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Aside::Missed { epoch } => write!(f, "missed writes since epoch {epoch}"),
            Aside::Past(Past::Older { has, heard }) => write!(
                f,
                "is an older image: it has generation {has}, the array knows that it had {heard}"
            ),
            Aside::Past(Past::Other { has, first }) => write!(
                f,
                "is of a life that the array does not know: it has generation {has}, and was out \
                 from {first} on"
            ),
            Aside::Past(Past::Branch { has, at }) => write!(
                f,
                "is of a life that the array does not know: it has generation {has}, but another \
                 session of the array wrote generation {at} of it"
            ),
            Aside::Past(Past::Unclear { has, first }) => write!(
                f,
                "cannot be told from one of another life of the array: it has generation {has}, \
                 and was out from {first}, or a later one, on"
            ),
            Aside::Past(Past::Last) => f.write_str("is what it was last"),
            Aside::OlderMap { page, has, had } => write!(
                f,
                "is an older image: page {page} of its region map has version {has}, the others \
                 show that it had {had}"
            ),
            Aside::MapDamaged { page, had } => write!(
                f,
                "cannot be told from an older image: page {page} of its region map is damaged, \
                 and had version {had}"
            ),
            Aside::Emptied { offset } => write!(
                f,
                "has no superblock at byte {offset}, where it had one: its content may be lost"
            ),
            Aside::BlockSize { has, needs } => {
                write!(
                    f,
                    "has blocks of {has} bytes, the array has blocks of {needs}"
                )
            }
            Aside::TooSmall { has, needs } => {
                write!(f, "has {has} bytes, the array needs {needs}")
            }
        }
    }
}

pub(crate) fn told(aside: &[(Slot, Aside)]) -> String {
    let one = |(slot, aside): &(Slot, Aside)| format!("; the member found of slot {slot} {aside}");
    aside.iter().map(one).collect()
}

/// A page of the region map in which a member does not show what it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Which page.
    pub page: u32,
    /// The newest version that it shows.
    pub has: Option<u64>,
    /// The version that it had.
    pub had: u64,
}

/// Where a member with these versions in its map lacks one that it must have had.
pub(crate) fn lacks(map: &[Option<MapPage>], had: &[u64]) -> impl Iterator<Item = Lack> {
    (0..).zip(had).filter_map(|(page, &had)| {
        let newest = map.get(page as usize).and_then(Option::as_ref);
        let has = newest.map(|newest| newest.sequence);
        (has.unwrap_or(0) < had).then_some(Lack { page, has, had })
    })
}
