//! The levels and the shapes that they may have.
//!
//! Invariants: a shape (level, members, group size) that [`Level::check_shape`] passes gives every
//! group at least one data strip; `Display` and `FromStr` are inverse. Where strips lie is the
//! engine's to know, not ours.

use std::fmt;
use std::str::FromStr;

use crate::error::{LevelError, ShapeError};
use crate::superblock::MEMBERS_MAX;

/// How an array spreads data and redundancy over its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Striping without redundancy.
    Raid0,
    /// Mirrors, as many as there are members.
    Raid1,
    /// One parity.
    Raid5,
    /// Two parities.
    Raid6,
    /// Three parities, "7.3".
    Raid7_3,
    /// Stripes over mirrors: groups of `group_size` mirrors.
    Raid10,
    /// Stripes over groups of RAID 5.
    Raid50,
    /// Stripes over groups of RAID 6.
    Raid60,
    /// Stripes over groups of RAID 7.3.
    Raid70,
    /// `n` data and `m` parities, `n + m` members.
    Nm {
        /// Data strips of a stripe.
        n: u8,
        /// Parities of a stripe.
        m: u8,
    },
}

impl Level {
    /// The most parities of a stripe.
    pub const PARITIES_MAX: u8 = 32;

    /// Whether the array is made of groups: 10, 50, 60, 70.
    pub fn is_grouped(self) -> bool {
        matches!(
            self,
            Level::Raid10 | Level::Raid50 | Level::Raid60 | Level::Raid70
        )
    }

    /// Whether stripes carry parity: 5, 6, 7.3, 50, 60, 70, N+M.
    pub fn has_parity(self) -> bool {
        self.parity_count() > 0
    }

    /// Parities in a stripe of one group: 0 for striping and mirrors.
    pub fn parity_count(self) -> u8 {
        match self {
            Level::Raid0 | Level::Raid1 | Level::Raid10 => 0,
            Level::Raid5 | Level::Raid50 => 1,
            Level::Raid6 | Level::Raid60 => 2,
            Level::Raid7_3 | Level::Raid70 => 3,
            Level::Nm { m, .. } => m,
        }
    }

    /// The level with so many parities more over the same data, where there is one and the parities
    /// that are there are the same at both: up to three, each is what it is whatever comes after
    /// it.
    pub fn with_parities(self, more: usize) -> Option<Level> {
        self.of_parities(|now| now.checked_add(more))
    }

    /// The level with so many parities fewer over the same data, in the same way: the first two of
    /// any code are the same, and so are all of those from four on. RAID 0 where none is left.
    pub fn without_parities(self, fewer: usize) -> Option<Level> {
        let left = usize::from(self.parity_count()).checked_sub(fewer)?;
        match self {
            Level::Nm { n, m } if left > 0 => {
                let same = left <= 2 || (left <= 3) == (m <= 3);
                let m = left as u8;
                same.then_some(Level::Nm { n, m })
            }
            Level::Nm { .. } => Some(Level::Raid0),
            level => level.of_parities(|_| Some(left)),
        }
    }

    fn of_parities(self, to: impl FnOnce(usize) -> Option<usize>) -> Option<Level> {
        let now = match self {
            Level::Raid0 | Level::Raid5 | Level::Raid6 | Level::Raid7_3 | Level::Nm { .. } => {
                usize::from(self.parity_count())
            }
            Level::Raid1 | Level::Raid10 | Level::Raid50 | Level::Raid60 | Level::Raid70 => {
                return None;
            }
        };
        match (self, to(now)?) {
            (Level::Nm { n, .. }, m @ 1..=3) => Some(Level::Nm { n, m: m as u8 }),
            (Level::Nm { .. }, _) => None,
            (_, 0) => Some(Level::Raid0),
            (_, 1) => Some(Level::Raid5),
            (_, 2) => Some(Level::Raid6),
            (_, 3) => Some(Level::Raid7_3),
            _ => None,
        }
    }

    /// The level of groups of this one, or of one group: 5 and 50, 6 and 60, 7.3 and 70. `None`
    /// where there is no such level.
    pub fn with_groups(self, groups: bool) -> Option<Level> {
        let (one, several) = match self {
            Level::Raid5 | Level::Raid50 => (Level::Raid5, Level::Raid50),
            Level::Raid6 | Level::Raid60 => (Level::Raid6, Level::Raid60),
            Level::Raid7_3 | Level::Raid70 => (Level::Raid7_3, Level::Raid70),
            Level::Raid0 | Level::Raid1 | Level::Raid10 | Level::Nm { .. } => return None,
        };
        Some(if groups { several } else { one })
    }

    /// The level that an array of this one and of so many members has once data columns are added
    /// to its one group; `None` where they cannot be. A mirror is an array with parities that are
    /// copies of its one data column.
    pub fn with_data(self, members: u8, more: usize) -> Option<Level> {
        let widened = u8::try_from(more).ok()?.checked_add(members)?;
        match self {
            _ if more == 0 || self.is_grouped() => None,
            Level::Raid10 => None,
            Level::Raid1 => Level::Raid0.with_parities(usize::from(members) - 1),
            Level::Nm { m, .. } => Some(Level::Nm { n: widened - m, m }),
            level => Some(level),
        }
    }

    /// Data strips in a stripe of one group of `group_size` members: 1 for mirrors.
    pub fn data_count(self, group_size: u8) -> u8 {
        match self {
            Level::Raid1 | Level::Raid10 => 1,
            _ => group_size.saturating_sub(self.parity_count()),
        }
    }

    /// Members that one group of `group_size` members may lose without losing data.
    pub fn tolerance(self, group_size: u8) -> u8 {
        match self {
            Level::Raid0 => 0,
            Level::Raid1 | Level::Raid10 => group_size.saturating_sub(1),
            _ => self.parity_count(),
        }
    }

    /// The fewest members of one group.
    pub fn group_min(self) -> u8 {
        match self {
            Level::Raid0 => 1,
            Level::Raid1 | Level::Raid10 => 2,
            Level::Raid5 | Level::Raid50 => 3,
            Level::Raid6 | Level::Raid60 => 4,
            Level::Raid7_3 | Level::Raid70 => 5,
            Level::Nm { n, m } => n.saturating_add(m),
        }
    }

    /// Whether `members` in groups of `group_size` make sense at this level.
    ///
    /// # Errors
    /// What is wrong with the shape. Where the level is not grouped, `group_size` must equal
    /// `members`.
    pub fn check_shape(self, members: u8, group_size: u8) -> Result<(), ShapeError> {
        if let Level::Nm { n, m } = self {
            check_nm(n, m).map_err(ShapeError::Level)?;
            if members != n + m {
                return Err(ShapeError::MembersNotNm { members, n, m });
            }
        }
        if usize::from(members) > MEMBERS_MAX {
            return Err(ShapeError::TooManyMembers { members });
        }
        let group_min = self.group_min();
        let members_min = if self.is_grouped() {
            group_min * 2
        } else {
            group_min
        };
        if members < members_min {
            return Err(ShapeError::TooFewMembers {
                members,
                members_min,
            });
        }
        if group_size < group_min {
            return Err(ShapeError::GroupTooSmall {
                group_size,
                group_min,
            });
        }
        match self.is_grouped() {
            false if group_size != members => Err(ShapeError::NotGrouped {
                members,
                group_size,
            }),
            true if !members.is_multiple_of(group_size) || members == group_size => {
                Err(ShapeError::Uneven {
                    members,
                    group_size,
                })
            }
            _ => Ok(()),
        }
    }
}

/// Whether n data and m parities are within the bounds of the mathematics and of the superblock.
fn check_nm(n: u8, m: u8) -> Result<(), LevelError> {
    let sum = u16::from(n) + u16::from(m);
    let fits = n >= 1 && (1..=Level::PARITIES_MAX).contains(&m) && usize::from(sum) <= MEMBERS_MAX;
    if fits {
        Ok(())
    } else {
        Err(LevelError::Bounds { n, m })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Raid0 => f.pad("0"),
            Level::Raid1 => f.pad("1"),
            Level::Raid5 => f.pad("5"),
            Level::Raid6 => f.pad("6"),
            Level::Raid7_3 => f.pad("7.3"),
            Level::Raid10 => f.pad("10"),
            Level::Raid50 => f.pad("50"),
            Level::Raid60 => f.pad("60"),
            Level::Raid70 => f.pad("70"),
            Level::Nm { n, m } => f.pad(&format!("{n}+{m}")),
        }
    }
}

impl FromStr for Level {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        Ok(match text {
            "0" => Level::Raid0,
            "1" => Level::Raid1,
            "5" => Level::Raid5,
            "6" => Level::Raid6,
            "7.3" => Level::Raid7_3,
            "10" => Level::Raid10,
            "50" => Level::Raid50,
            "60" => Level::Raid60,
            "70" => Level::Raid70,
            _ => {
                let (n, m) = text.split_once('+').ok_or(LevelError::Unknown)?;
                let number = |digits: &str| match digits.bytes().all(|c| c.is_ascii_digit()) {
                    true => digits.parse::<u8>().map_err(|_| LevelError::Unknown),
                    false => Err(LevelError::Unknown),
                };
                let (n, m) = (number(n)?, number(m)?);
                check_nm(n, m)?;
                Level::Nm { n, m }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_reads_back_what_it_prints() {
        for text in [
            "0", "1", "5", "6", "7.3", "10", "50", "60", "70", "6+4", "1+1", "32+32",
        ] {
            let level: Level = text.parse().expect("a level");
            assert_eq!(level.to_string(), text);
        }
        for text in [
            "", "2", "7", "07", "+", "6+", "+4", "6+4+1", "-1+4", "+6+4", "999+1",
        ] {
            assert_eq!(text.parse::<Level>(), Err(LevelError::Unknown), "{text}");
        }
        for (n, m) in [(0, 1), (1, 0), (1, 33), (33, 32), (255, 255)] {
            let text = format!("{n}+{m}");
            assert_eq!(
                text.parse::<Level>(),
                Err(LevelError::Bounds { n, m }),
                "{text}"
            );
        }
    }

    #[test]
    fn every_shape_that_passes_leaves_data_and_whole_groups() {
        let mut levels = vec![
            Level::Raid0,
            Level::Raid1,
            Level::Raid5,
            Level::Raid6,
            Level::Raid7_3,
        ];
        levels.extend([Level::Raid10, Level::Raid50, Level::Raid60, Level::Raid70]);
        levels.extend((0..=70).flat_map(|n| (0..=40).map(move |m| Level::Nm { n, m })));
        let mut passed = 0;
        for level in levels {
            for (members, group) in (0..=255).flat_map(|a| (0..=66).map(move |g| (a, g))) {
                if level.check_shape(members, group).is_ok() {
                    passed += 1;
                    assert!(members <= 64 && group >= 1 && members % group == 0);
                    assert!(level.data_count(group) >= 1);
                    assert!(level.tolerance(group) < group);
                    assert_eq!(level.is_grouped(), group != members);
                }
            }
        }
        assert!(passed > 1000);
    }
}
