//! A move of the array's data to a shape with more data columns, or other strips of users, as the
//! superblock tells of it.
//!
//! Level, members and table of the superblock are those of the new shape. The elder one differs in
//! its members and in its bands alone: strip, parities, rows of each member and regions are the same,
//! and members that are new lie behind those that were there. With one data column it is that of a mirror:
//! parities of one strip are copies of it.
//!
//! Invariant: the superblock tells of rows of the new shape only when they are durable on every
//! live member.
//!
//! Deliberately absent: how data moves, and which row an address lies in (the engine's `moving` and
//! `geometry`).

use crate::error::Invalid;
use crate::level::Level;
use crate::superblock::Superblock;

/// A move under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moving {
    /// Members of the elder shape.
    pub members: u8,
    /// Rows of a band of the elder shape: so many strips of a column are one of users.
    pub band_rows: u16,
    /// Rows of the new shape, from the first, that hold their data: the frontier.
    pub moved_rows: u64,
    /// An administrator stopped it: the array stays in two shapes until it is told to go on.
    pub stopped: bool,
}

impl Moving {
    /// The level of the elder shape, where that of the new one is `level`.
    pub fn elder_level(&self, level: Level) -> Level {
        let m = level.parity_count();
        match level {
            Level::Nm { m, .. } => Level::Nm {
                n: self.members.saturating_sub(m),
                m,
            },
            _ if m > 0 && self.members == m + 1 => Level::Raid1,
            level => level,
        }
    }

    /// Whether it makes sense in this superblock.
    pub(crate) fn check(&self, superblock: &Superblock) -> Result<(), Invalid> {
        let (level, elder) = (superblock.level, self.elder_level(superblock.level));
        let mirrored = matches!(level, Level::Raid1 | Level::Raid10);
        let rows = superblock.layout.data_bytes / u64::from(superblock.strip_bytes);
        let wider = !level.is_grouped()
            && self.members < superblock.members
            && superblock.fixed_parities < self.members
            && elder.check_shape(self.members, self.members).is_ok();
        let restriped =
            self.members == superblock.members && self.band_rows != superblock.band_rows;
        let at_once = u64::from(self.band_rows.max(superblock.band_rows));
        let sound = !mirrored
            && (wider || restriped)
            && self.moved_rows <= rows
            && self.moved_rows.is_multiple_of(at_once);
        match sound {
            true => superblock.check_bands(self.band_rows),
            false => Err(Invalid::Moving(self.members)),
        }
    }
}
