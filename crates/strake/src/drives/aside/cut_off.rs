//! Members on devices that are shorter than they were: a controller that reports less, a partition
//! edge, a file that was cut. What lay behind the new end is gone, and with it the last copy of the
//! superblock.
//!
//! Such a member is set aside. Where all of its data lies before the new end, and too few others
//! are there, an administrator may believe it (`strake start --force NAME DEV...`): then it counts
//! as a member that lost one copy of its superblock, and its next superblocks are written for the
//! new size.
//!
//! Invariant: a member that lost data, or of which that is not known, is never believed.

use std::path::Path;

use strake_runtime::{Device, DeviceError, MemberImage};

use crate::common::errors::{Code, Failure};
use crate::common::quoted;
use crate::drives::find::{self, FoundArray, FoundMember, Readiness};

/// What a member holds on a device that was refused for its size, if all of its data is there.
pub(crate) fn read(device: &Device, error: &DeviceError) -> Option<MemberImage> {
    match error {
        DeviceError::Shrunk { .. } => device.read_cut_off().ok().flatten(),
        _ => None,
    }
}

/// How large the device of such a member was.
pub(crate) fn had_bytes(image: &MemberImage, error: &DeviceError) -> Option<u64> {
    match error {
        DeviceError::Shrunk { recorded_bytes, .. } if image.emptied.is_some() => {
            Some(*recorded_bytes)
        }
        _ => None,
    }
}

/// Why a member with this superblock is set aside, and what helps.
pub(crate) fn why(image: &MemberImage, error: DeviceError) -> Failure {
    let DeviceError::Shrunk {
        path,
        recorded_bytes,
        device_bytes,
    } = &error
    else {
        return error.into();
    };
    let sb = &image.superblock;
    let end = sb.layout.data_offset + sb.layout.data_bytes;
    let what = match (image.emptied, end > *device_bytes) {
        (Some(_), _) => format!("its data ends before that, at byte {end}"),
        (None, true) => format!("its data went on to byte {end}"),
        (None, false) => "what lay behind its end is lost".to_owned(),
    };
    let found = format!("{error}; {what}");
    let path = quoted(path);
    let cure = format!("give {path} its {recorded_bytes} bytes back");
    let failure = Failure::from(error);
    Failure { found, ..failure }.cure(cure)
}

/// Its device is shorter than it was.
pub(crate) fn shrank(member: &FoundMember) -> bool {
    let then = member.image.superblock.layout.device_bytes;
    member.is_cut_off() || then > member.info.bytes
}

/// Why it is set aside, with what helps where the array serves without it.
pub(crate) fn and_without(member: &FoundMember, why: Failure) -> Failure {
    if why.code != Code::Damaged || !shrank(member) {
        return why;
    }
    let (name, path) = (&member.image.superblock.name, quoted(&member.path));
    let cure = format!(
        "{}, and strake add {name} {path} rebuilds it where it is not taken back; or, as it is: \
         strake drive clean {path}, and strake add {name} {path} takes it as a new device if it \
         is large enough",
        why.cure
    );
    why.cure(cure)
}

/// The same array with the members that were cut off counted as members that lost one copy of
/// their superblock. `None` where there are none, or where the array starts without them.
pub(crate) fn counted(found: &FoundArray) -> Option<FoundArray> {
    let is_wanted = |m: &FoundMember| m.trouble.is_some() && m.is_cut_off();
    if found.readiness() != Readiness::Incomplete || !found.members.iter().any(is_wanted) {
        return None;
    }
    let mut members = found.members.clone();
    for member in members.iter_mut().filter(|m| is_wanted(m)) {
        member.trouble = None;
    }
    find::group(members).pop()
}

/// Members that were cut off and with which the array starts, if they are believed.
pub(crate) fn believable(found: &FoundArray) -> Vec<&Path> {
    match counted(found) {
        Some(with) if with.starts_by_force() => {
            let cut = found.members.iter();
            let cut = cut.filter(|m| m.trouble.is_some() && m.is_cut_off());
            cut.map(|m| m.path.as_path()).collect()
        }
        _ => Vec::new(),
    }
}
