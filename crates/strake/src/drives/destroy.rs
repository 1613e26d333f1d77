//! Destroying an array that does not run: the superblocks of all its members that are there are
//! wiped.
//!
//! Order: all are held, so that nobody can start the array in between → the superblocks go, one
//! member after the other. Invariants: over what somebody else put on a member nothing is written
//! but zeroes over what is certainly ours; a member that cannot be wiped keeps none of the others
//! from it, and what still carries a superblock is named. Deliberately absent: remembering the
//! array as destroyed (`daemon::state::destroyed`).

use std::collections::BTreeSet;
use std::path::PathBuf;

use strake_format::{Layout, MemberUuid};
use strake_runtime::{Device, OpenMode};

use crate::common::errors::Failure;
use crate::common::partly::{self, Partly};
use crate::common::size;
use crate::drives::find;
use crate::drives::find::FoundArray;
use crate::drives::make;
use crate::drives::reused;
use crate::drives::safety;

/// What became of the members of an array of which at least one was wiped.
#[derive(Debug)]
pub(crate) struct Destroyed {
    /// In words, with the members that still carry a superblock.
    pub(crate) what: String,
    /// Members that carry none any more.
    pub(crate) wiped: Vec<PathBuf>,
    /// Why not all of those that were found were wiped.
    pub(crate) failure: Option<Failure>,
}

/// Wipes the superblocks of every member found, or says that it would.
/// `last` is the device that a slot had last, where that is known; `rid` are members of which it is
/// known that their superblocks are gone.
///
/// # Errors
/// No member was wiped.
pub(crate) fn found(
    found: &FoundArray,
    last: impl Fn(u8) -> Option<PathBuf>,
    rid: &BTreeSet<MemberUuid>,
    dry_run: bool,
) -> Result<Destroyed, Failure> {
    let open = |member: &find::FoundMember| Device::open(&member.path, OpenMode::Member);
    let usable = safety::hold_all(found.usable().map(|member| member.path.as_path()))?;
    let mut left: Vec<String> = Vec::new();
    // What nobody would start the array with need not be held for it.
    let mut aside = Vec::new();
    for member in found.members.iter().filter(|m| m.trouble.is_some()) {
        match open(member) {
            Ok(device) => aside.push((device, member)),
            Err(error) => left.push(error.to_string()),
        }
    }
    let away = found
        .away()
        .into_iter()
        .filter(|(_, uuid)| !rid.contains(uuid))
        .map(|(slot, uuid)| away_text(slot, slot.and_then(&last), uuid));
    left.extend(away);
    if dry_run {
        let all = usable.iter().chain(aside.iter().map(|(device, _)| device));
        let paths: Vec<PathBuf> = all.map(|device| device.path().to_owned()).collect();
        let what = format!("would wipe the superblocks of {}", partly::all(&paths));
        return Ok(Destroyed {
            what: and_left(what, &left),
            wiped: Vec::new(),
            failure: None,
        });
    }
    wipe(found, &usable, &aside).destroyed(found, &left)
}

/// Members that are set aside, and their devices.
type Aside<'a> = [(Device, &'a find::FoundMember)];

fn wipe(found: &FoundArray, usable: &[Device], aside: &Aside<'_>) -> Partly {
    let mut partly = Partly::default();
    for device in usable {
        partly.note(device.path(), make::unmake(device, found.uuid));
    }
    for (device, member) in aside {
        // The last copy of a device that changed its size lies where it ended before.
        let sizes = [
            device.info().bytes,
            member.image.superblock.layout.device_bytes,
        ];
        let mut places = sizes.map(Layout::superblock_offsets).concat();
        places.retain(|at| *at < device.info().bytes);
        partly.note(device.path(), reused::wipe(device, &places));
    }
    partly
}

impl Partly {
    fn destroyed(self, found: &FoundArray, left: &[String]) -> Result<Destroyed, Failure> {
        let (name, uuid) = (found.name(), found.uuid);
        let failure = self.failure("wiped").map(|failure| {
            failure.cure(format!(
                "mend that, and strake destroy {uuid} wipes the others; strake start --force \
                 {uuid} takes back what is left of {name}"
            ))
        });
        let wiped = self.done().to_vec();
        match failure {
            Some(failure) if wiped.is_empty() => {
                let cure = format!("mend that, and strake destroy {uuid} again");
                Err(failure.cure(cure))
            }
            failure => {
                let mut what = format!("{} wiped", size::count(wiped.len(), "superblock"));
                if let Some(failure) = &failure {
                    what.push_str(&format!(", not all: {}", failure.found));
                }
                Ok(Destroyed {
                    what: and_left(what, left),
                    wiped,
                    failure,
                })
            }
        }
    }
}

fn away_text(slot: Option<u8>, last: Option<PathBuf>, uuid: MemberUuid) -> String {
    let last = last.map(|path| format!(", which had {}", path.display()));
    let last = last.unwrap_or_default();
    match slot {
        Some(slot) => format!("slot {slot}{last} (member {uuid}) is not there"),
        None => format!("a spare (member {uuid}) is not there"),
    }
}

fn and_left(what: String, left: &[String]) -> String {
    match left {
        [] => what,
        left => format!(
            "{what}; these still carry theirs, if they exist: {}",
            left.join(", ")
        ),
    }
}
