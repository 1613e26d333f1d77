//! Which device has which slot of an array that is made again.
//!
//! Invariants: nothing is written here; what a device says of itself is not overruled, and a
//! device that left the array before what is known of its members is refused, whatever is
//! accepted.

use std::path::PathBuf;

use strake_engine::create::Definition;
use strake_format::{ArrayUuid, MemberUuid};

use crate::api::config::{RestoreRequest, SlotDevice};
use crate::common::errors::{Code, Failure};
use crate::common::partly;
use crate::common::{absolute, quoted};
use crate::daemon::service::backup::age::{is_older, older};
use crate::drives::lost;
use crate::drives::lost::Remains;

/// The last members of an array, as the backup or a newer superblock names them.
pub(super) struct Members<'a> {
    pub(super) array: &'a str,
    /// What names them.
    pub(super) by: &'static str,
    /// Of each slot.
    pub(super) uuids: &'a [MemberUuid],
    /// The epoch in which they were its members; 0 where an older Strake took the backup.
    pub(super) epoch: u64,
}

impl Members<'_> {
    fn has(&self, member: MemberUuid) -> bool {
        self.uuids.contains(&member)
    }
    /// The epoch of the superblock on a device that was a member before these were, and is none
    /// of them.
    fn left_in(&self, remains: &Remains) -> Option<u64> {
        let epoch = remains.superblock.as_ref()?.epoch.0;
        let other = remains.member.is_some_and(|member| !self.has(member));
        (other && epoch < self.epoch).then_some(epoch)
    }
    /// What is known of a device that was a member and is none of these.
    fn stranger(&self, remains: &Remains) -> String {
        let path = remains.path.display();
        let what = format!("{path} was a member of it that {} does not name", self.by);
        match self.left_in(remains) {
            Some(epoch) => format!(
                "{what}: it left before (its superblock is of epoch {epoch}, the members of epoch \
                 {})",
                self.epoch
            ),
            None => what,
        }
    }
}

/// What a device that somebody put into a slot still carries of the array.
pub(super) fn named_device(
    told: &SlotDevice,
    array: ArrayUuid,
    definition: &Definition,
) -> Remains {
    let path = absolute(&told.device);
    let found = lost::look_at(&path, array, &definition.layout);
    found.unwrap_or_else(|| Remains::nothing(&path))
}

/// The device of each slot, and a doubt about one that was named.
pub(super) type Assigned = (Vec<Option<Remains>>, Option<String>);

/// The device of each slot: the one that carries its member, else the one that is named for it.
pub(super) fn assign(
    members: &Members<'_>,
    remains: &[Remains],
    request: &RestoreRequest,
    look: impl Fn(&SlotDevice) -> Remains,
) -> Result<Assigned, Failure> {
    let carries = |member: MemberUuid| remains.iter().filter(move |r| r.member == Some(member));
    let mut slots: Vec<Option<Remains>> = vec![None; members.uuids.len()];
    let mut doubt = None;
    for told in &request.slots {
        let device = look(told);
        let why = check_named(members, remains, told, &device)?;
        doubt = doubt.or(why);
        slots[usize::from(told.slot)] = Some(device);
    }
    for (slot, member) in slots.iter_mut().zip(members.uuids) {
        if slot.is_some() {
            continue;
        }
        let mut carry = carries(*member);
        *slot = carry.next().cloned();
        if let (Some(a), Some(b)) = (&*slot, carry.next()) {
            let (a, b) = (a.path.display(), b.path.display());
            let found = format!("{a} and {b} are copies of one member");
            let cure = "take one of them away, or name the right one: --slot N=DEV";
            return Err(Failure::new(Code::MembersDisagree, found).cure(cure));
        }
    }
    match slots.iter().all(Option::is_some) {
        true => Ok((slots, doubt)),
        false => Err(missing(members, &slots, remains)),
    }
}

/// Refuses a device that cannot have the slot for which it is named; a doubt whether it can.
fn check_named(
    members: &Members<'_>,
    remains: &[Remains],
    told: &SlotDevice,
    device: &Remains,
) -> Result<Option<String>, Failure> {
    let Some(&member) = members.uuids.get(usize::from(told.slot)) else {
        let found = format!("{} has no slot {}", members.array, told.slot);
        return Err(Failure::new(Code::MemberNotFound, found));
    };
    is_no_other(told, device, members.uuids)?;
    if device.member == Some(member) {
        return Ok(None);
    }
    let (path, slot) = (device.path.display(), told.slot);
    // One that left while the other took its place is older; then the one that is named is right.
    let left = |other: &&Remains| device.member.is_some() && is_older(other, device);
    let mut carry = remains.iter().filter(|r| r.member == Some(member));
    if let Some(other) = carry.find(|other| !left(other)) {
        let other = other.path.display();
        let what = match device.member {
            Some(_) => format!(
                "the region map of a member that {} does not name",
                members.by
            ),
            None => "no region map".to_owned(),
        };
        let found =
            format!("{path} carries {what}; {other} carries that of the member in slot {slot}");
        if device.member.is_some() {
            let cure = format!("omit --slot {slot}: {other} is taken");
            return Err(Failure::new(Code::MembersDisagree, found).cure(cure));
        }
        return Ok(Some(found));
    }
    if members.left_in(device).is_some() {
        let found = members.stranger(device);
        let cure = format!(
            "omit --slot {slot}={path}, which lacks what was written since: bring the device that \
             took its place"
        );
        return Err(Failure::new(Code::MembersMissing, found).cure(cure));
    }
    Ok(device.member.map(|_| members.stranger(device)))
}

/// A refusal where slots have no device, with what may be one and what cannot be.
fn missing(members: &Members<'_>, slots: &[Option<Remains>], remains: &[Remains]) -> Failure {
    let absent = (0..).zip(slots).filter(|(_, device)| device.is_none());
    let absent: Vec<String> = absent
        .map(|(slot, _): (usize, _)| slot.to_string())
        .collect();
    let mut found = format!(
        "no device carries what was in slot {} of {}",
        absent.join(", "),
        members.array
    );
    let (mut left, mut may_be) = (Vec::new(), Vec::new());
    for other in strangers(remains, members.uuids) {
        found += &format!("; {}", members.stranger(other));
        match members.left_in(other) {
            Some(_) => left.push(other.path.clone()),
            None => may_be.push(other.path.clone()),
        }
    }
    let mut how = "strake config restore FILE NAME --slot N=DEV".to_owned();
    if !may_be.is_empty() {
        how += &format!(", and --accept-stale with {}", partly::all(&may_be));
    }
    let cure = match left.as_slice() {
        [] => format!("if you know it: {how}"),
        left => format!(
            "bring the device; if it is there and lost what named it: {how}, but not with {}",
            partly::all(left)
        ),
    };
    Failure::new(Code::MembersMissing, found).cure(cure)
}

/// Devices that were members of the array and are none of these.
fn strangers<'a>(
    remains: &'a [Remains],
    members: &'a [MemberUuid],
) -> impl Iterator<Item = &'a Remains> {
    let other = |r: &&Remains| r.member.is_some_and(|member| !members.contains(&member));
    remains.iter().filter(other)
}

/// Refuses a device that says itself that it was in another slot.
fn is_no_other(
    told: &SlotDevice,
    remains: &Remains,
    members: &[MemberUuid],
) -> Result<(), Failure> {
    let was = members
        .iter()
        .position(|other| Some(*other) == remains.member);
    let Some(was) = was.filter(|&was| was != usize::from(told.slot)) else {
        return Ok(());
    };
    let (path, slot) = (remains.path.display(), told.slot);
    let found = format!("{path} was in slot {was} by its own region map, not in slot {slot}");
    Err(Failure::new(Code::MembersDisagree, found).cure("omit --slot for it"))
}

/// A device that left before the others, a page of its region map that shows it, and those that may
/// have taken its place.
struct Left<'a> {
    slot: usize,
    device: &'a Remains,
    page: usize,
    joined: Vec<&'a Remains>,
}

impl Left<'_> {
    fn text(&self) -> String {
        let (path, page) = (self.device.path.display(), self.page);
        format!("{path} left the array before the others: its region map is older (page {page})")
    }
    fn named(&self, device: &Remains) -> String {
        format!("--slot {}={}", self.slot, quoted(&device.path))
    }
}

/// Refuses what is certainly stale, whatever is accepted: a device that the backup does not name
/// and that is older than the others; and, unless it is named by `--slot`, one that is older than a
/// device which the backup does not name yet.
pub(super) fn not_replaced(
    found: &[Remains],
    members: &Members<'_>,
    remains: &[Remains],
    request: &RestoreRequest,
) -> Result<(), Failure> {
    let has_slot = |other: &&Remains| found.iter().any(|r| r.path == other.path);
    let strangers = strangers(remains, members.uuids).filter(|other| !has_slot(other));
    let strangers: Vec<&Remains> = strangers.collect();
    let mut all = Vec::new();
    for (device, page) in older(found) {
        let slot = found.iter().position(|r| r.path == device.path);
        let mut left = Left {
            slot: slot.unwrap_or(0),
            device,
            page,
            joined: Vec::new(),
        };
        if device.member.is_some_and(|member| !members.has(member)) {
            let found = format!("{}, and {} does not name it", left.text(), members.by);
            let cure = "bring the device that took its place; members that are missing cannot be \
                        done without";
            return Err(Failure::new(Code::MembersMissing, found).cure(cure));
        }
        let is_named = |told: &SlotDevice| usize::from(told.slot) == left.slot;
        if !request.slots.iter().any(is_named) {
            let newer = strangers.iter().filter(|other| is_older(device, other));
            left.joined.extend(newer);
            all.extend(Some(left).filter(|left| !left.joined.is_empty()));
        }
    }
    match all.as_slice() {
        [] => Ok(()),
        all => Err(replaced(all)),
    }
}

/// Either is in doubt then: one is not in the backup, the other lacks what was written since.
fn replaced(all: &[Left<'_>]) -> Failure {
    let left: Vec<String> = all.iter().map(Left::text).collect();
    let mut joined: Vec<PathBuf> = Vec::new();
    for device in all.iter().flat_map(|left| &left.joined) {
        if !joined.contains(&device.path) {
            joined.push(device.path.clone());
        }
    }
    let found = format!(
        "{}, and {} joined it after the backup was taken",
        left.join("; "),
        partly::all(&joined)
    );
    let cure = match all {
        [one] if joined.len() == 1 => format!(
            "if {} took its place: {} --accept-stale; if not: {} --accept-stale",
            joined[0].display(),
            one.named(one.joined[0]),
            one.named(one.device)
        ),
        all => {
            let ways = all.iter().map(|left| {
                let ways = left.joined.iter().map(|device| left.named(device));
                let ways: Vec<String> = ways.collect();
                format!(
                    "slot {}: {}, whichever took the place of {}, or {} where none did",
                    left.slot,
                    ways.join(" or "),
                    left.device.path.display(),
                    left.named(left.device)
                )
            });
            let ways: Vec<String> = ways.collect();
            format!(
                "name the device of each, with --accept-stale: {}",
                ways.join("; ")
            )
        }
    };
    Failure::new(Code::MembersDisagree, found).cure(cure)
}
