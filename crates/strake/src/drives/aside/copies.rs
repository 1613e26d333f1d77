//! Two devices that carry one member: one is a copy of the other.
//!
//! Which of them is the member is not guessed. But the table of the other members says which
//! generation the member had in both copies of its superblock: a device that has less is an older
//! image (RFD 19), and is set aside, so that the array starts without it as if it were not there.
//!
//! Invariant: nothing but the table of members that have no copy proves one older; with two devices
//! that it does not prove older the array is not started.

use std::collections::BTreeMap;
use std::path::Path;

use strake_format::{MemberUuid, Past, SelectError, Superblock, past, select_array};

use crate::common::errors::{Code, Failure};
use crate::common::quoted;
use crate::drives::find::{FoundArray, FoundMember, Readiness, group};

/// Sets those aside that are proven to be older copies of others among these members of one array.
pub(crate) fn set_older_aside(members: &mut [FoundMember]) {
    for (index, why) in older(members) {
        members[index].trouble = Some(why);
    }
}

fn older(members: &[FoundMember]) -> Vec<(usize, Failure)> {
    let mut of: BTreeMap<MemberUuid, Vec<usize>> = BTreeMap::new();
    for (index, member) in members.iter().enumerate() {
        if member.trouble.is_none() {
            let uuid = member.image.superblock.member;
            of.entry(uuid).or_default().push(index);
        }
    }
    if of.values().all(|same| same.len() == 1) {
        return Vec::new();
    }
    let alone = of.values().filter(|same| same.len() == 1);
    let alone: Vec<Superblock> = alone
        .map(|same| members[same[0]].image.superblock.clone())
        .collect();
    let Ok(selection) = select_array(&alone) else {
        return Vec::new();
    };
    let table = &alone[selection.authority];
    let mut all = Vec::new();
    for same in of.values().filter(|same| same.len() > 1) {
        let past = |index: &usize| past(&members[*index].image.superblock, table);
        let not_older: Vec<usize> = same
            .iter()
            .copied()
            .filter(|index| !matches!(past(index), Past::Older { .. }))
            .collect();
        let &[kept] = not_older.as_slice() else {
            continue;
        };
        for index in same.iter().filter(|index| **index != kept) {
            if let Past::Older { has, heard } = past(index) {
                let (path, kept) = (&members[*index].path, &members[kept].path);
                all.push((*index, why(path, kept, has.0, heard.0)));
            }
        }
    }
    all
}

fn why(path: &Path, kept: &Path, has: u64, heard: u64) -> Failure {
    let found = format!(
        "{} is an older copy of {}: it has generation {has}, the array knows that the member had \
         {heard}",
        path.display(),
        kept.display()
    );
    let cure = format!(
        "nothing is needed of it: take it away; or, while the array is stopped, strake drive \
         clean {} makes the device free",
        quoted(path)
    );
    Failure::new(Code::MemberTwice, found).cure(cure)
}

/// Two devices that carry one member, and of which neither is set aside.
fn twice(found: &FoundArray) -> Option<(&FoundMember, &FoundMember)> {
    found.usable().find_map(|first| {
        let same = |m: &&FoundMember| {
            m.path != first.path && m.image.superblock.member == first.image.superblock.member
        };
        found.usable().find(same).map(|second| (first, second))
    })
}

/// A device with what its superblock says of it.
fn told(m: &FoundMember) -> String {
    let sb = &m.image.superblock;
    let slot = m.slot();
    let slot = slot.map_or_else(|| "spare".to_owned(), |slot| format!("slot {slot}"));
    format!(
        "{} ({slot}, epoch {}, generation {})",
        m.path.display(),
        sb.epoch.0,
        sb.generation.0
    )
}

/// The refusal of an array with two such devices, which names both and what starts it.
fn refused(found: &FoundArray) -> Option<Failure> {
    let (first, second) = twice(found)?;
    let what = format!(
        "{} and {} carry the same member: one is a copy of the other",
        told(first),
        told(second)
    );
    // What else is there twice was copied with it: of each pair the same one is left out.
    let without = |other: &FoundMember| {
        let twin = |m: &FoundMember| {
            let same = |o: &&FoundMember| {
                o.path != m.path && o.image.superblock.member == m.image.superblock.member
            };
            found.usable().find(same)
        };
        let is_later = |m: &FoundMember| twin(m).map(|twin| m.path > twin.path);
        let all = found.usable().filter(|m| {
            let left_out = is_later(m).is_some_and(|later| Some(later) == is_later(other));
            !left_out
        });
        let all: Vec<String> = all.map(|m| quoted(&m.path)).collect();
        format!("strake start {} {}", found.name(), all.join(" "))
    };
    let cure = format!(
        "take the copy away; or start the array with the devices named: if {} is the copy, {}; if \
         {} is, {}",
        second.path.display(),
        without(second),
        first.path.display(),
        without(first)
    );
    Some(Failure::new(Code::MemberTwice, what).cure(cure))
}

/// The members that contradict neither this one nor each other.
fn side_of(found: &FoundArray, member: MemberUuid) -> Vec<&FoundMember> {
    let is_first = |m: &&FoundMember| m.image.superblock.member == member;
    let mut side: Vec<&FoundMember> = found.usable().filter(is_first).take(1).collect();
    for other in found.usable().filter(|m| !is_first(m)) {
        let with = side.iter().copied().chain([other]);
        let with: Vec<Superblock> = with.map(|m| m.image.superblock.clone()).collect();
        let parts = matches!(
            select_array(&with),
            Err(SelectError::SplitBrain { .. } | SelectError::DuplicateMember { .. })
        );
        if !parts {
            side.push(other);
        }
    }
    side
}

/// The command that starts the array with these members alone, if they are enough.
fn start_of(side: &[&FoundMember]) -> Option<String> {
    let members = side.iter().copied().cloned().collect();
    let alone = group(members).into_iter().next()?;
    if !matches!(alone.readiness(), Readiness::Complete | Readiness::Degraded) {
        return None;
    }
    let paths: Vec<String> = side.iter().map(|m| quoted(&m.path)).collect();
    Some(format!("strake start {} {}", alone.name(), paths.join(" ")))
}

/// Why superblocks that contradict each other make no array, with the devices.
pub(crate) fn conflict(found: &FoundArray) -> Option<Failure> {
    let error = *found.selection.as_ref().err()?;
    if found.readiness() != Readiness::Conflicting {
        return None;
    }
    let device = |member: MemberUuid| {
        let mut usable = found.usable();
        let device = usable.find(|m| m.image.superblock.member == member);
        device.map_or_else(|| member.to_string(), told)
    };
    Some(match error {
        SelectError::DuplicateMember { .. } => refused(found).unwrap_or_else(|| error.into()),
        SelectError::SplitBrain { first, second, .. } => {
            let what = format!("{} and {} went on apart", device(first), device(second));
            let sides = [first, second].map(|member| side_of(found, member));
            let commands: Vec<String> = sides.iter().filter_map(|s| start_of(s)).collect();
            let failure = Failure {
                found: what,
                ..Failure::from(error)
            };
            match commands.is_empty() {
                true => failure,
                false => failure.cure(format!(
                    "choose the members that are right: {}; the others may hold writes that these \
                     lack, and strake add --force overwrites them",
                    commands.join(", or ")
                )),
            }
        }
        _ => error.into(),
    })
}
