//! Opening the members of an array that is to be started.
//!
//! A member that cannot be used is set aside with the reason, and the array starts without it where
//! it may start without a missing one. A member that another program holds may be in service there,
//! together with the rest of the array: then the array starts here only if more than half of its
//! members are free and believed. Two programs cannot both have more than half. A device that is
//! busy with I/O of an array which was stopped here is held by the kernel alone: the array starts
//! without it as without one that is missing.
//!
//! Tables of partitions over members are believed to have destroyed nothing else only where an
//! administrator says so: `start --force` with these devices named. Their signatures are wiped
//! then, outside the data.
//!
//! Invariants: members are opened exclusively, and read again after that; nothing is written before
//! [`Opened::claim`].

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use strake_engine::StartError;
use strake_format::{Slot, SlotRecord};
use strake_runtime::{Device, DeviceError, MemberImage, OpenMode, ServeError};

use crate::common::errors::{Code, Failure};
use crate::common::partly;
use crate::common::quoted;
use crate::common::size;
use crate::daemon::array::running::Start;
use crate::daemon::array::seats::Seats;
use crate::drives::aside::advice;
use crate::drives::aside::{copies, cut_off};
use crate::drives::find;
use crate::drives::find::{Aside, FoundArray, FoundMember, Readiness, aside_text};
use crate::drives::machine::sysfs;
use crate::drives::reused;
use crate::drives::safety;
use crate::drives::safety::Permit;

/// How long a predecessor that was killed may hold members.
const PATIENCE: Duration = Duration::from_secs(5);

/// The members of an array, held.
pub(crate) struct Opened {
    pub(crate) members: Vec<(Device, MemberImage)>,
    /// Members that were found and are not used.
    pub(crate) aside: Vec<Aside>,
    /// Of the members, those that carry a table of partitions which is to be wiped, and what it
    /// is.
    tables: Vec<(usize, String)>,
}

/// Another program may have it in service.
pub(crate) fn is_held(failure: &Failure) -> bool {
    matches!(
        failure.code,
        Code::DeviceBusy | Code::DeviceMounted | Code::Permission
    )
}

/// Opens what can be used of the members found.
pub(crate) fn open(found: &FoundArray, how: &Start) -> Result<Opened, Failure> {
    let give_up = Instant::now() + PATIENCE;
    let mut opened = Opened {
        members: Vec::new(),
        aside: Vec::new(),
        tables: Vec::new(),
    };
    for member in &found.members {
        match one(found, member, how, give_up) {
            Ok((device, image, table)) => {
                let at = opened.members.len();
                opened.tables.extend(table.map(|table| (at, table.found)));
                opened.members.push((device, image));
            }
            // A start that is refused names it in its error alone.
            Err(why) => opened.aside.push(Aside::of(member, why)),
        }
    }
    opened.check(found, &how.left_behind)?;
    Ok(opened)
}

fn one(
    found: &FoundArray,
    member: &FoundMember,
    how: &Start,
    give_up: Instant,
) -> Result<(Device, MemberImage, Option<Failure>), Failure> {
    let path = &member.path;
    let is_table = |why: &Failure| {
        how.force && how.named && why.code == Code::DevicePartitioned && safety::only_tables(path)
    };
    if let Some(why) = member.trouble.as_ref().filter(|why| !is_table(why)) {
        return Err(why.clone());
    }
    // A user of a loop device over it, or of another path to it, writes it, too.
    safety::not_in_use(sysfs::identity(path)?, path)?;
    let patience = give_up.saturating_duration_since(Instant::now());
    let device = Device::open_within(path, OpenMode::Member, patience)?;
    let image = match (device.read_member(), member.is_cut_off()) {
        // An administrator named it.
        (Err(error @ DeviceError::Shrunk { .. }), true) => {
            cut_off::read(&device, &error).ok_or(error)?
        }
        (read, _) => read?,
    };
    if image.superblock.array != found.uuid {
        let other = format!("{} is now a member of another array", path.display());
        return Err(Failure::new(Code::MemberOfArray, other));
    }
    match reused::still_ours(&device) {
        Ok(()) => Ok((device, image, None)),
        Err(why) if is_table(&why) => Ok((device, image, Some(why))),
        Err(why) => Err(why),
    }
}

impl Opened {
    /// Refuses where the rest may be in service elsewhere, and where nothing can be used.
    fn check(&self, found: &FoundArray, left_behind: &BTreeSet<PathBuf>) -> Result<(), Failure> {
        if self.members.is_empty() {
            return Err(none_usable(found, &self.aside));
        }
        let elsewhere = |aside: &&Aside| is_held(&aside.why) && !left_behind.contains(&aside.path);
        let all: Vec<&Aside> = self.aside.iter().filter(elsewhere).collect();
        let Some(held) = all.first() else {
            return Ok(());
        };
        let (live, believed) = found.believed();
        let is_free = |(_, image): &&(Device, MemberImage)| {
            live.contains(&image.superblock.member) && believed.contains(&image.superblock.member)
        };
        let free = self.members.iter().filter(is_free).count();
        if 2 * free > live.len() {
            return Ok(());
        }
        let found_of_all: Vec<&str> = all.iter().map(|one| one.why.found.as_str()).collect();
        let what = format!(
            "{}; {free} of {} members {} free, and others may be in service where {}",
            found_of_all.join("; "),
            live.len(),
            size::verb(free, "is", "are"),
            size::verb(all.len(), "it is held", "they are held")
        );
        let starts = |rest: &FoundArray| {
            matches!(rest.readiness(), Readiness::Complete | Readiness::Degraded)
        };
        let cure = match without(found, &self.aside).filter(starts) {
            // A person knows what the program is that holds the others.
            Some(rest) => {
                let free: Vec<String> = rest.usable().map(|m| quoted(&m.path)).collect();
                format!(
                    "{}; or, if the array is in service nowhere: strake start {} {}",
                    held.why.cure,
                    rest.name(),
                    free.join(" ")
                )
            }
            None => held.why.cure.clone(),
        };
        Err(Failure::new(held.why.code, what).cure(cure))
    }

    /// What [`Opened::claim`] wipes, each with its device.
    pub(crate) fn to_wipe(&self) -> Vec<String> {
        self.tables.iter().map(|(_, table)| table.clone()).collect()
    }

    /// Wipes the tables of partitions that an administrator named.
    pub(crate) fn claim(&self, found: &FoundArray) -> Result<(), Failure> {
        for (at, _) in &self.tables {
            let (device, image) = &self.members[*at];
            let permit = Permit {
                force: true,
                own: Some(found.uuid),
                half_made: None,
                data: Some(safety::data_of(&image.superblock.layout)),
            };
            safety::wipe_tables(device, permit)?;
        }
        Ok(())
    }
}

/// A start that came to nothing, with what was found, and set aside, and perhaps missed for it.
pub(crate) fn with_aside(
    error: ServeError,
    found: &FoundArray,
    aside: &[Aside],
    seats: &Seats,
) -> Failure {
    // What is set aside was found, and is of no use to a start with force.
    let used = without(found, aside);
    let used = used.as_ref().unwrap_or(found);
    with_set_aside(with_paths(error, found, used, seats), found, aside)
}

/// The array as a start has it that cannot use these members after all.
fn without(found: &FoundArray, aside: &[Aside]) -> Option<FoundArray> {
    let is_used = |member: &&FoundMember| aside.iter().all(|one| one.path != member.path);
    let used: Vec<FoundMember> = found.members.iter().filter(is_used).cloned().collect();
    match used.len() < found.members.len() {
        true => find::group(used).pop(),
        false => None,
    }
}

/// Slots of which no device was found, with what they had.
fn absent(found: &FoundArray, seats: &Seats) -> String {
    let rows = &found.authority().image.superblock.slots;
    let is_there = |row: &SlotRecord| {
        let mut members = found.members.iter();
        members.any(|m| m.image.superblock.member == row.member)
    };
    let absent = (0..).zip(rows).filter(|(_, row)| !is_there(row));
    let texts: Vec<String> = absent
        .map(|(slot, _)| match seats.device_of(slot) {
            Some(device) => match advice::lies_at(device) {
                Some(now) => format!(
                    "{slot} (it had {}, which is there: {now})",
                    device.display()
                ),
                None => format!("{slot} (it had {})", device.display()),
            },
            None => slot.to_string(),
        })
        .collect();
    match texts.as_slice() {
        [] => String::new(),
        texts => format!("; no device was found of slot {}", texts.join(", ")),
    }
}

/// The engine knows slots alone: a refusal that is about members found names their devices. `used`
/// is the array without those that are set aside.
fn with_paths(error: ServeError, found: &FoundArray, used: &FoundArray, seats: &Seats) -> Failure {
    let ServeError::Start(StartError::TooFewMembers {
        missing,
        tolerated,
        aside,
    }) = error
    else {
        return error.into();
    };
    let text = |slot: Slot, why: &strake_engine::Aside| {
        let member = found.usable().find(|m| m.slot() == Some(slot.0));
        match member {
            Some(m) => (m.path.display().to_string(), m.not_used_text(why)),
            None => ("the member".to_owned(), why.to_string()),
        }
    };
    let texts = aside.iter().map(|(slot, why)| {
        let (path, why) = text(*slot, why);
        format!("; {path} of slot {} {why}", slot.0)
    });
    let texts: String = texts.collect();
    let refused = |aside| StartError::TooFewMembers {
        missing,
        tolerated,
        aside,
    };
    let absent = absent(found, seats);
    let all = format!("{}{texts}{absent}", refused(Vec::new()));
    let failure = Failure {
        found: all,
        ..Failure::from(refused(aside))
    };
    let failure = by_force(failure, used);
    match (found.cure_of_unused(), absent.is_empty()) {
        (Some(cure), true) if used.starts_by_force() => {
            let both = format!("{}; or: {cure}", failure.cure);
            failure.cure(both)
        }
        (Some(cure), true) => failure.cure(cure),
        (Some(cure), false) => {
            let both = format!("{}; of those that are there: {cure}", failure.cure);
            failure.cure(both)
        }
        (None, _) => failure,
    }
}

/// A refusal for members that lost a superblock names the command that believes them, if one does.
fn by_force(failure: Failure, found: &FoundArray) -> Failure {
    if failure.code != Code::MembersEmptied {
        return failure;
    }
    if !found.starts_by_force() {
        return failure
            .cure("bring the missing members back; force does not start it without them");
    }
    failure.cure(format!(
        "bring the missing members back; or, where what these hold is believed: strake start \
         --force {}{}, and check the data",
        found.name(),
        found.to_name()
    ))
}

/// Is it a refusal for members that are not there?
fn is_for_members(code: Code) -> bool {
    matches!(
        code,
        Code::MembersMissing
            | Code::MembersEmptied
            | Code::MembersOlder
            | Code::ArrayNotFound
            | Code::DirtyDegraded
            | Code::DegradedStart
            | Code::DeviceBusy
    )
}

/// The same with the devices that a user named and that are no members, with what they hold: what
/// overwrote a member is not found as one.
pub(crate) fn with_strangers(failure: Failure, found: &FoundArray, named: &[PathBuf]) -> Failure {
    let strangers = found.strangers(named);
    if strangers.is_empty() || !is_for_members(failure.code) {
        return failure;
    }
    let what = format!(
        "{}; named, and no members of {}: {}",
        failure.found,
        found.name(),
        strangers.join("; ")
    );
    let cure = format!(
        "{}; where one of these was a member, strake config restore FILE makes its superblock \
         again from a backup of the configuration",
        failure.cure
    );
    Failure::new(failure.code, what).cure(cure)
}

pub(crate) fn with_set_aside(failure: Failure, found: &FoundArray, aside: &[Aside]) -> Failure {
    if matches!(failure.code, Code::MemberTwice | Code::SplitBrain) {
        return copies::conflict(found).unwrap_or(failure);
    }
    if aside.is_empty() || !is_for_members(failure.code) {
        return failure;
    }
    let what = format!("{}; set aside: {}", failure.found, aside_text(aside));
    let cure = found.to_do(aside).unwrap_or(failure.cure);
    let cure = match to_make_writable(aside) {
        Some(way) => format!("{cure}; {way}"),
        None => cure,
    };
    Failure::new(failure.code, what).cure(cure)
}

/// What is to be done with members that cannot be written.
fn to_make_writable(aside: &[Aside]) -> Option<String> {
    let read_only = |aside: &&Aside| aside.why.code == Code::DeviceReadOnly;
    let paths: Vec<PathBuf> = aside
        .iter()
        .filter(read_only)
        .map(|aside| aside.path.clone())
        .collect();
    let why = &aside.iter().find(read_only)?.why;
    Some(format!("{}: {}", partly::all(&paths), why.cure))
}

/// Too few members can be used as they are.
pub(crate) fn none_usable(found: &FoundArray, aside: &[Aside]) -> Failure {
    let held = aside.iter().find(|aside| is_held(&aside.why));
    let code = held.map_or(Code::MembersMissing, |held| held.why.code);
    let what = format!(
        "{} of {} {} found and cannot be used: {}",
        size::count(aside.len(), "member"),
        found.name(),
        size::verb(aside.len(), "was", "were"),
        aside_text(aside)
    );
    let failure = Failure::new(code, what);
    match (found.to_do(aside), held) {
        (Some(cure), _) => failure.cure(cure),
        (None, Some(held)) => failure.cure(held.why.cure.clone()),
        (None, None) => match to_make_writable(aside) {
            Some(way) => failure.cure(way),
            None => failure,
        },
    }
}
