//! Which of several superblocks to believe.

use crate::error::{SelectError, SuperblockError};
use crate::identity::Generation;
use crate::superblock::Superblock;

/// What one copy of a superblock turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStatus {
    /// Believable, though perhaps older than the other.
    Valid(Generation),
    /// Not believable.
    Bad(SuperblockError),
}

impl CopyStatus {
    /// Whether the copy is believable.
    pub fn is_valid(self) -> bool {
        matches!(self, CopyStatus::Valid(_))
    }
}

/// What was found for a slot; the index is that of the superblock given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Its member, with all that the authority's table says it has.
    Believed(usize),
    /// A member that missed writes, or was removed.
    Stale(usize),
    /// Nothing.
    Absent,
}

/// What an array can be assembled from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The superblock whose table holds.
    pub authority: usize,
    /// One finding per slot.
    pub slots: Vec<Finding>,
    /// Spares found that the authority lists.
    pub spares: Vec<usize>,
    /// Found, but of no use: removed or replaced members whose slot another has, spares that are no
    /// more listed.
    pub strays: Vec<usize>,
}

/// The superblock of one member from its two copies.
///
/// # Errors
/// Why neither can be believed, or both cannot be believed together.
pub fn select_copy(
    device_bytes: u64,
    first: &[u8],
    last: &[u8],
) -> Result<(Superblock, [CopyStatus; 2]), SelectError> {
    let _ = (device_bytes, first, last);
    todo!()
}

/// What the members found of one array are to it.
///
/// # Errors
/// Why no array can be assembled from them.
pub fn select_array(found: &[Superblock]) -> Result<Selection, SelectError> {
    let _ = found;
    todo!()
}
