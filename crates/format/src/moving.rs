//! A move of the array's data to a shape with more data columns, or other strips of users, as the
//! superblock tells of it.
//!
//! Level, members and table of the superblock are those of the new shape. The old one differs in
//! its members, its groups, its bands and in which of its parities rotate: strip, number of
//! parities, rows of each member and regions are the same, and members that are new lie behind
//! those that were there. With one data column it is that of a mirror: parities of one strip are
//! copies of it.
//!
//! Invariant: the superblock tells of rows of the new shape only when they are durable on every
//! live member.
//!
//! Deliberately absent: how data moves, and which row an address lies in (the engine's
//! `reshape::migrate` and `geometry`).

use crate::error::Invalid;
use crate::level::Level;
use crate::superblock::Superblock;

/// A move under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Moving {
    /// Members of the old shape.
    pub members: u8,
    /// Members of a group of the old shape: all of them where it has none.
    pub group_size: u8,
    /// Parities of the old shape that lie on members of their own: as many as in the new one;
    /// more, where those of the new one all rotate; or fewer, where those of the new one go when
    /// all has moved.
    pub fixed_parities: u8,
    /// Rows of a band of the old shape: so many strips of a column are one of users.
    pub band_rows: u16,
    /// Rows of the new shape, from the first, that hold their data: the frontier.
    pub moved_rows: u64,
    /// An administrator stopped it: the array stays in two shapes until it is told to go on.
    pub stopped: bool,
}

impl Moving {
    /// The level of the old shape, where that of the new one is `level`.
    pub fn old_level(&self, level: Level) -> Level {
        let m = level.parity_count();
        match level {
            Level::Nm { m, .. } => Level::Nm {
                n: self.members.saturating_sub(m),
                m,
            },
            _ if m > 0 && self.members == m + 1 => Level::Raid1,
            level => level
                .with_groups(self.group_size != self.members)
                .unwrap_or(level),
        }
    }

    /// Members have other neighbours in the shape of this superblock.
    pub(crate) fn regroups(&self, members: u8, group_size: u8) -> bool {
        // As many groups of one size, or one group of any: what is new is behind what was there.
        let (old, new) = (
            self.members / self.group_size.max(1),
            members / group_size.max(1),
        );
        old != new || new > 1 && self.group_size != group_size
    }

    /// Parities rotate in the new shape, which has so many that do not, and did not in the old.
    pub(crate) fn rotates(&self, fixed_parities: u8) -> bool {
        fixed_parities == 0 && self.fixed_parities > 0
    }

    /// More parities lie on members of their own in the new shape, which has so many: they go when
    /// all data has moved.
    pub fn lowers(&self, fixed_parities: u8) -> bool {
        fixed_parities > self.fixed_parities
    }

    /// Whether it makes sense in this superblock.
    pub(crate) fn check(&self, superblock: &Superblock) -> Result<(), Invalid> {
        let (level, old) = (superblock.level, self.old_level(superblock.level));
        let mirrored = matches!(level, Level::Raid1 | Level::Raid10);
        let rows = superblock.layout.data_bytes / u64::from(superblock.strip_bytes);
        let (group_size, fixed) = (superblock.group_size, self.fixed_parities);
        let one = !level.is_grouped() && self.group_size == self.members;
        let shaped = old.check_shape(self.members, self.group_size).is_ok();
        let wider = one && self.members < superblock.members && fixed < self.members && shaped;
        let same = self.members == superblock.members && self.group_size == group_size;
        let rotated = self.rotates(superblock.fixed_parities);
        let lowers = self.lowers(superblock.fixed_parities);
        let restriped = same && (rotated || lowers || self.band_rows != superblock.band_rows);
        let columns = |members: u8, group_size: u8| {
            let groups = u16::from(members / group_size.max(1));
            groups * u16::from(level.data_count(group_size))
        };
        let regrouped = self.regroups(superblock.members, group_size)
            && shaped
            && old.parity_count() == level.parity_count()
            && self.members <= superblock.members
            && columns(self.members, self.group_size) <= columns(superblock.members, group_size);
        let at_once = u64::from(self.band_rows.max(superblock.band_rows));
        let own = match (rotated, lowers) {
            (true, _) => fixed <= level.parity_count() && self.group_size == self.members,
            (_, true) => same && self.band_rows == superblock.band_rows,
            _ => fixed == superblock.fixed_parities,
        };
        let sound = !mirrored
            && own
            && (wider || restriped || regrouped)
            && self.moved_rows <= rows
            && self.moved_rows.is_multiple_of(at_once);
        match sound {
            true => superblock.check_bands(self.band_rows),
            false => Err(Invalid::Moving(self.members)),
        }
    }
}
