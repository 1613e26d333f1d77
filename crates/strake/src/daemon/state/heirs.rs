//! Arrays that are being made again by a backup (`config restore`), until that has ended.
//!
//! A restored array has an identity of its own. A restore that is cut off (the daemon is killed,
//! the power goes) leaves devices that carry the new identity, all of them or some, and a name that
//! still means the old array. What is remembered here lets a start give the new array the name and
//! the volumes of the one that it replaces, and lets the same command finish its work.
//!
//! Invariants: remembered, also when the power goes, before anything is written to a member;
//! forgotten when the restore has ended. Which devices they are, and which of their blocks are
//! lost, may be known nowhere else by then.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use strake_format::ArrayUuid;

use crate::common::errors::Failure;
use crate::common::files::{self, read_file};
use crate::daemon::state;
use crate::daemon::state::Dir;
use crate::drives::find::{FoundArray, Readiness};

/// An array that takes the place of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heir {
    /// The uuid of the array that was.
    elder: String,
    /// The device of each slot.
    pub(crate) devices: Vec<PathBuf>,
    /// Logical blocks that lost their content: first, and behind the last.
    unreadable: Vec<(u64, u64)>,
}

impl Heir {
    pub(crate) fn new(elder: ArrayUuid, devices: &[PathBuf], unreadable: &[Range<u64>]) -> Heir {
        Heir {
            elder: elder.to_string(),
            devices: devices.to_vec(),
            unreadable: unreadable.iter().map(|r| (r.start, r.end)).collect(),
        }
    }
    pub(crate) fn elder(&self) -> Option<ArrayUuid> {
        self.elder.parse().ok()
    }
    pub(crate) fn unreadable(&self) -> impl Iterator<Item = Range<u64>> {
        self.unreadable.iter().map(|&(start, end)| start..end)
    }
}

/// A restore that was cut off.
pub(crate) struct Begun<'a> {
    /// The identity of the new array.
    pub(crate) made: ArrayUuid,
    pub(crate) heir: Heir,
    /// What its devices carry of it, unless no superblock was written yet.
    pub(crate) found: Option<&'a FoundArray>,
}

impl Begun<'_> {
    /// Does every device carry it?
    pub(crate) fn is_whole(&self) -> bool {
        let complete = |found: &FoundArray| found.readiness() == Readiness::Complete;
        self.found.is_some_and(complete)
    }
}

impl Dir {
    fn heir_file(&self, array: ArrayUuid) -> PathBuf {
        self.lasting("heirs").join(format!("{array}.json"))
    }

    /// Remembers that this array is about to be made in the place of another.
    pub(crate) fn inherits(&self, array: ArrayUuid, heir: &Heir) -> Result<(), Failure> {
        self.make_folder(&self.lasting("heirs"))?;
        let file = self.heir_file(array);
        state::replace(&file, heir).map_err(|error| Failure::io(file.display(), &error))
    }

    /// The record of an array that is being made in the place of another.
    pub(crate) fn heir(&self, array: ArrayUuid) -> Option<Heir> {
        let text = read_file(self.heir_file(array)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// The array that this one replaces.
    pub(crate) fn elder_of(&self, array: ArrayUuid) -> Option<ArrayUuid> {
        self.heir(array)?.elder()
    }

    /// The restore of `elder` that was cut off, if one was; of several the one that got furthest.
    pub(crate) fn begun<'a>(&self, elder: ArrayUuid, found: &'a [FoundArray]) -> Option<Begun<'a>> {
        let files = fs::read_dir(self.lasting("heirs")).into_iter().flatten();
        let arrays = files.flatten().filter_map(|file| {
            let name = file.file_name();
            name.to_str()?.strip_suffix(".json")?.parse().ok()
        });
        let begun = arrays.filter_map(|made: ArrayUuid| {
            let heir = self.heir(made)?;
            (heir.elder() == Some(elder)).then(|| Begun {
                made,
                heir,
                found: found.iter().find(|found| found.uuid == made),
            })
        });
        begun.max_by_key(|begun| begun.found.map_or(0, |found| found.members.len() + 1))
    }

    /// The restore has ended.
    pub(crate) fn has_inherited(&self, array: ArrayUuid) {
        // What stays would be read once more, and tell nothing new.
        let _ = files::remove(&self.heir_file(array));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_restore_that_was_cut_off_needs_is_read_back_and_forgotten() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        let (elder, made) = (ArrayUuid([1; 16]), ArrayUuid([2; 16]));
        let heir = Heir::new(elder, &[PathBuf::from("/a")], &[3..9, 12..13]);
        dir.inherits(made, &heir).expect("kept");
        assert_eq!(dir.elder_of(made), Some(elder));
        let begun = dir.begun(elder, &[]).expect("begun");
        assert_eq!((begun.made, &begun.heir), (made, &heir));
        assert_eq!(begun.heir.unreadable().collect::<Vec<_>>(), [3..9, 12..13]);
        assert!(!begun.is_whole());
        assert!(dir.begun(made, &[]).is_none());
        dir.has_inherited(made);
        assert!(dir.begun(elder, &[]).is_none());
    }
}
