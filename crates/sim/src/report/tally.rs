//! Faults in metadata, counted: what happened to which area.
//!
//! Invariant: every count has a name of its own in JSON, `kind_areas`, whether it is zero or not,
//! so that a run which placed nothing of a kind shows it.
//!
//! Deliberately absent: faults in data, which `report` counts.

use std::ops::AddAssign;

use serde::ser::{Serialize, SerializeMap, Serializer};

/// What a place on a member holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// A copy of the superblock.
    Superblock,
    /// A version of a page of the region map.
    Map,
    /// A version of the list of unreadable blocks.
    List,
    /// A part of the stripe log.
    Log,
}

/// What happened there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A bit flipped.
    Rot,
    /// It cannot be read.
    Unreadable,
    /// A write of it was reported done and never happened.
    Lost,
    /// A write of it landed elsewhere on the member.
    Misdirected,
    /// A misdirected write landed on it.
    Overwritten,
    /// A write of it was cut off within a logical block.
    Torn,
    /// It was damaged, and is whole again because the engine wrote it.
    Mended,
}

const AREAS: [(Area, &str); 4] = [
    (Area::Superblock, "superblocks"),
    (Area::Map, "map_pages"),
    (Area::List, "lists"),
    (Area::Log, "log_blocks"),
];

const KINDS: [(Damage, &str); 7] = [
    (Damage::Rot, "rot"),
    (Damage::Unreadable, "unreadable"),
    (Damage::Lost, "lost"),
    (Damage::Misdirected, "misdirected"),
    (Damage::Overwritten, "overwritten"),
    (Damage::Torn, "torn"),
    (Damage::Mended, "mended"),
];

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    counts: [[u64; AREAS.len()]; KINDS.len()],
    /// Of all that happened to pages of the region map, what happened behind the first page.
    later_pages: u64,
}

impl Tally {
    /// This happened once more.
    pub fn count(&mut self, damage: Damage, area: Area) {
        self.counts[damage as usize][area as usize] += 1;
    }
    /// It happened to a page of the region map behind the first.
    pub fn count_later_page(&mut self) {
        self.later_pages += 1;
    }
    /// How often it happened.
    pub fn of(&self, damage: Damage, area: Area) -> u64 {
        self.counts[damage as usize][area as usize]
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        let sums = self.counts.iter_mut().flatten();
        for (sum, more) in sums.zip(other.counts.iter().flatten()) {
            *sum += more;
        }
        self.later_pages += other.later_pages;
    }
}

impl Serialize for Tally {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (damage, kind) in KINDS {
            for (area, areas) in AREAS {
                map.serialize_entry(&format!("{kind}_{areas}"), &self.of(damage, area))?;
            }
        }
        map.serialize_entry("damage_to_later_map_pages", &self.later_pages)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_is_told_under_its_own_name() {
        let mut tally = Tally::default();
        for (at, (damage, _)) in KINDS.into_iter().enumerate() {
            for (area, _) in AREAS.into_iter().take(at + 1) {
                tally.count(damage, area);
            }
        }
        let told = serde_json::to_value(tally).expect("numbers");
        let told = told.as_object().expect("a map");
        assert_eq!(told.len(), KINDS.len() * AREAS.len() + 1);
        assert_eq!(
            (&told["rot_map_pages"], &told["rot_superblocks"]),
            (&0.into(), &1.into())
        );
        assert_eq!(told["torn_log_blocks"], 1);
    }
}
