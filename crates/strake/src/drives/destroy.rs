//! Destroying an array that does not run: the superblocks of all its members that are there are
//! wiped.
//!
//! Order: all are held, so that nobody can start the array in between → the superblocks go, one
//! member after the other. Invariants: over what somebody else put on a member nothing is written
//! but zeroes over what is certainly ours; a member that cannot be wiped keeps none of the others
//! from it, and what still carries a superblock is named. Deliberately absent: remembering the
//! array as destroyed (`daemon::state::destroyed`).

use strake_format::{Layout, MemberUuid};
use strake_runtime::{Device, OpenMode};

use crate::common::errors::Failure;
use crate::common::size;
use crate::drives::find;
use crate::drives::find::FoundArray;
use crate::drives::make;
use crate::drives::reused;

/// Wipes the superblocks of every member found, or says that it would. Answers what was done, and
/// which members still carry one.
pub(crate) fn found(found: &FoundArray, dry_run: bool) -> Result<String, Failure> {
    let open = |member: &find::FoundMember| Device::open(&member.path, OpenMode::Member);
    let usable: Vec<Device> = found.usable().map(open).collect::<Result<_, _>>()?;
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
        .map(|(slot, uuid)| away_text(slot, uuid));
    left.extend(away);
    let all = usable.iter().chain(aside.iter().map(|(device, _)| device));
    let paths: Vec<String> = all.map(|d| d.path().display().to_string()).collect();
    if dry_run {
        let what = format!("would wipe the superblocks of {}", paths.join(", "));
        return Ok(and_left(what, &left));
    }
    let mut failure = None;
    for device in &usable {
        if let Err(error) = make::unmake(device, found.uuid) {
            failure.get_or_insert(error);
        }
    }
    for (device, member) in &aside {
        // The last copy of a device that changed its size lies where it ended before.
        let sizes = [
            device.info().bytes,
            member.image.superblock.layout.device_bytes,
        ];
        let mut places = sizes.map(Layout::superblock_offsets).concat();
        places.retain(|at| *at < device.info().bytes);
        if let Err(error) = reused::wipe(device, &places) {
            failure.get_or_insert(error);
        }
    }
    match failure {
        Some(failure) => Err(failure),
        None => {
            let what = format!("{} wiped", size::count(paths.len(), "superblock"));
            Ok(and_left(what, &left))
        }
    }
}

fn away_text(slot: Option<u8>, uuid: MemberUuid) -> String {
    match slot {
        Some(slot) => format!("slot {slot} (member {uuid}) is not there"),
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
