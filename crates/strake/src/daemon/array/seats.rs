//! What is, and what was, in each slot: path, model and serial of the device, and why it left.
//!
//! A drive that is gone says nothing any more, and its members' table knows it by a uuid that no
//! label on a drive carries. So what a drive calls itself is written down while it is there.
//!
//! Invariants: kept where state is kept, so it outlives restarts; written when a device takes a
//! slot or leaves it, never by looking; what left a slot is remembered until it comes back, or
//! another device leaves. Nothing here decides anything about members.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use strake_engine::event::{ArrayState, EventKind, MemberState};
use strake_format::{ArrayUuid, MemberUuid, Slot};
use strake_runtime::{EventRecord, Serving};

use crate::api::{ArrayJson, WasJson};
use crate::common::time::rfc3339;
use crate::daemon::events;
use crate::daemon::state::Dir;
use crate::daemon::state::spares::Spares;
use crate::drives::aside::advice;
use crate::drives::find;
use crate::drives::find::Aside;
use crate::drives::machine::locate;
use crate::drives::machine::looks::Looks;
use crate::drives::machine::{paths, sysfs};
use crate::view;

/// A device in a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) device: PathBuf,
    pub(crate) model: Option<String>,
    pub(crate) serial: Option<String>,
    /// The file that switches the light of the place that it is plugged into.
    pub(crate) light: Option<PathBuf>,
}

/// A device that left its slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Departed {
    seat: Seat,
    /// RFC 3339.
    until: String,
    cause: Option<String>,
    errno: Option<i32>,
}

/// A slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Place {
    now: Option<Seat>,
    was: Option<Departed>,
}

/// The slots of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seats(BTreeMap<u8, Place>);

impl Seat {
    pub(crate) fn of(device: &Path) -> Seat {
        let (model, serial) = sysfs::model_and_serial(device);
        Seat {
            device: device.to_owned(),
            model,
            serial,
            light: locate::light_of(device),
        }
    }

    /// Is another drive, or a file, at its path now, by what the drives call themselves? A drive
    /// that says nothing now may be the same. Not to be asked of a device that does not answer:
    /// some drivers ask the drive.
    pub(crate) fn is_another(&self) -> bool {
        let Some(was) = &self.serial else {
            return false;
        };
        let now = sysfs::model_and_serial(&self.device).1;
        now.map_or_else(|| paths::is_file(&self.device), |now| now != *was)
    }

    /// Is the drive that is at its path now provably the same? Where it has no serial number, what
    /// lies on it says so: it is a member that was in the slot.
    pub(crate) fn is_there(&self, array: ArrayUuid, slot: Option<u8>) -> bool {
        let serial = match paths::exists(&self.device) {
            true => sysfs::model_and_serial(&self.device).1,
            false => return false,
        };
        match (&serial, &self.serial) {
            (Some(now), Some(was)) => now == was,
            (None, None) => {
                // One that has failed may not answer.
                let looked = Looks::default().each(std::slice::from_ref(&self.device), find::look);
                let image = looked.found.into_iter().next();
                image.and_then(Result::ok).flatten().is_some_and(|image| {
                    let own = image.superblock;
                    let was = own.slot_of(own.member).map(|slot| slot.0);
                    own.array == array && was.is_some() && was == slot
                })
            }
            _ => false,
        }
    }
}

impl Seats {
    /// Slots of which anything is known.
    pub(crate) fn slots(&self) -> impl Iterator<Item = u8> {
        self.0.keys().copied()
    }
    /// The device that has a slot, or had it last.
    pub(crate) fn device_of(&self, slot: u8) -> Option<&Path> {
        let place = self.0.get(&slot)?;
        let was = place.was.as_ref().map(|was| &was.seat);
        place.now.as_ref().or(was).map(|seat| seat.device.as_path())
    }
    /// The devices of all slots.
    pub(crate) fn devices(&self) -> Vec<PathBuf> {
        let devices = self.slots().filter_map(|slot| self.device_of(slot));
        devices.map(Path::to_owned).collect()
    }
    /// A device takes a slot.
    fn take(&mut self, slot: Slot, seat: Seat) {
        let place = self.0.entry(slot.0).or_default();
        let same = |was: &Departed| match (&was.seat.serial, &seat.serial) {
            (Some(was), Some(now)) => was == now,
            _ => was.seat.device == seat.device,
        };
        place.was.take_if(|was| same(was));
        place.now = Some(seat);
    }

    /// A device leaves a slot; `None` is the one that was there.
    fn leave(&mut self, slot: Slot, device: Option<&Path>, event: &EventRecord, aside: &[Aside]) {
        let place = self.0.entry(slot.0).or_default();
        let own = |now: &mut Seat| device.is_none_or(|device| now.device == device);
        let seat = match (place.now.take_if(own), device) {
            (Some(seat), _) => Some(seat),
            // It was replaced, and another has the slot already.
            (None, Some(device)) => Some(Seat::of(device)),
            (None, None) => None,
        };
        if let Some(seat) = seat {
            place.was = Some(Departed {
                seat,
                until: rfc3339(event.time),
                cause: events::out_cause_of(&event.kind, aside),
                errno: event.errno,
            });
        }
    }

    /// What an event changes, where these were set aside at the start; whether it did.
    fn follow(&mut self, event: &EventRecord, aside: &[Aside]) -> bool {
        let before = self.clone();
        let device = event.device.as_deref();
        match (&event.kind, device) {
            (EventKind::MemberOut { slot, .. }, device) => {
                self.leave(*slot, device, event, aside);
            }
            (
                EventKind::SpareUsed { slot, .. }
                | EventKind::Returned { slot, .. }
                | EventKind::Rebuilt { slot, .. },
                Some(device),
            ) => self.take(*slot, Seat::of(device)),
            // Which drive was there is still asked.
            (
                EventKind::Removed {
                    slot: Some(slot), ..
                },
                _,
            ) if self.0.get(&slot.0).is_some_and(|place| place.now.is_some()) => {
                self.leave(*slot, None, event, aside);
            }
            _ => {}
        }
        *self != before
    }

    /// The device in a slot, or what left it last.
    pub(crate) fn seat(&self, slot: u8) -> Option<&Seat> {
        let place = self.0.get(&slot)?;
        place
            .now
            .as_ref()
            .or(place.was.as_ref().map(|was| &was.seat))
    }

    /// What left a slot last.
    pub(crate) fn departed(&self, slot: u8) -> Option<&Seat> {
        let place = self.0.get(&slot)?;
        let was = place.was.as_ref().map(|was| &was.seat);
        was.or(place.now.as_ref())
    }

    fn was(&self, slot: u8, empty: bool) -> Option<WasJson> {
        let place = self.0.get(&slot)?;
        let json = |seat: &Seat| WasJson {
            device: seat.device.display().to_string(),
            model: seat.model.clone(),
            serial: seat.serial.clone(),
            ..WasJson::default()
        };
        match (&place.was, &place.now) {
            // It was there when it was seen last, and is not now.
            (_, Some(now)) if empty => Some(json(now)),
            (Some(was), _) => Some(WasJson {
                until: Some(was.until.clone()),
                cause: was.cause.clone(),
                errno: was.errno,
                ..json(&was.seat)
            }),
            (None, _) => None,
        }
    }

    /// Whether this device left the slot and did not come back. The last member that a failed array
    /// lost keeps its slot: without it there is no array.
    pub(crate) fn is_lost(&self, slot: u8, device: &str) -> bool {
        // Another drive may have come to the same path.
        let empty = self.0.get(&slot).filter(|place| place.now.is_none());
        let was = empty.and_then(|place| place.was.as_ref());
        was.is_some_and(|was| was.seat.device == Path::new(device))
    }

    /// An array with what its slots had; where it has failed, what is out of service is `failed`.
    pub(crate) fn shown(&self, mut array: ArrayJson) -> ArrayJson {
        let has_failed = array.state == view::array_state(ArrayState::Failed);
        let is_stopped = array.state == "stopped";
        let aside = |device: &str| array.set_aside.iter().any(|one| one.device == device);
        for member in &mut array.members {
            let Some(slot) = member.slot else { continue };
            let is_absent = member.device.is_none();
            member.was = self.was(slot, is_absent);
            // Of one that is set aside it is said there.
            if let Some(was) = member.was.as_mut().filter(|was| !aside(&was.device))
                && is_absent
                && is_stopped
            {
                was.holds = advice::lies_at(Path::new(&was.device));
            }
            let mut device = member.device.iter();
            if has_failed && device.any(|device| self.is_lost(slot, device)) {
                member.state = view::member_state(MemberState::Failed).to_owned();
            }
        }
        array
    }
}

/// Writes down what an array's slots have, as long as it serves.
#[derive(Debug)]
pub(crate) struct Keeper {
    dir: Dir,
    array: ArrayUuid,
    seats: Seats,
    spares: Spares,
    /// The file has something older, for its file system did not take this.
    unkept: bool,
}

impl Keeper {
    /// Begins with the members that it has now.
    pub(crate) fn new(dir: &Dir, array: ArrayUuid, serving: &Serving) -> Keeper {
        let mut keeper = Keeper {
            dir: dir.clone(),
            array,
            seats: dir.seats(array),
            spares: dir.spares(array),
            unkept: false,
        };
        let before = (keeper.seats.clone(), keeper.spares.clone());
        // One that does not answer is looked at when it tells of something.
        let members = serving.status_now().map(|status| status.members);
        for member in &members.unwrap_or_default() {
            let device = member.device.and_then(|id| serving.path(id));
            match (member.slot, device) {
                (Some(slot), Some(device)) => keeper.seats.take(slot, Seat::of(&device)),
                (None, Some(device)) => keeper.spares.wait(member.member, &device),
                (_, None) => {}
            }
        }
        if keeper.seats != before.0 {
            keeper.keep();
        }
        if keeper.spares != before.1 {
            dir.keep_spares(array, &keeper.spares);
        }
        keeper
    }

    /// The same for spares: `serving` is asked for those that are new, if it still serves.
    pub(crate) fn follow_spares(&mut self, event: &EventRecord, serving: Option<&Serving>) {
        let before = self.spares.clone();
        match (&event.kind, serving) {
            (EventKind::SpareGone { member, cause }, _) => self.spares.lose(*member, *cause),
            (
                EventKind::Removed {
                    slot: None,
                    cause: Some(cause),
                    ..
                },
                _,
            ) => {
                let device = event.device.as_deref();
                if let Some(member) = device.and_then(|device| self.spares.at(device)) {
                    self.spares.lose(member, *cause);
                }
            }
            (EventKind::SpareAdded { .. } | EventKind::LevelLowered { .. }, Some(serving)) => {
                let Ok(status) = serving.status_now() else {
                    return;
                };
                let spares = status.members.iter().filter(|m| m.slot.is_none());
                let all: Vec<MemberUuid> = spares.clone().map(|m| m.member).collect();
                self.spares.only(&all);
                for member in spares {
                    if let Some(device) = member.device.and_then(|id| serving.path(id)) {
                        self.spares.wait(member.member, &device);
                    }
                }
            }
            _ => {}
        }
        if self.spares != before {
            self.dir.keep_spares(self.array, &self.spares);
        }
    }

    /// Members are in sync that were not, or are not any more.
    pub(crate) fn follow_members(&self, event: &EventRecord, serving: Option<&Serving>) {
        let changed = matches!(
            event.kind,
            EventKind::MemberOut { .. } | EventKind::Rebuilt { .. } | EventKind::Returned { .. }
        );
        let serving = serving.filter(|_| changed);
        if let Some(status) = serving.and_then(|serving| serving.status_now().ok()) {
            self.dir.was_served(&status.superblock);
        }
    }

    pub(crate) fn spares(&self) -> &Spares {
        &self.spares
    }

    /// Something happened to it.
    pub(crate) fn follow(&mut self, event: &EventRecord, aside: &[Aside]) {
        if self.seats.follow(event, aside) || self.unkept {
            self.keep();
        }
    }

    fn keep(&mut self) {
        let kept = self.dir.keep_seats(self.array, &self.seats);
        self.unkept = kept.is_err();
        if let Err(failure) = kept {
            tracing::warn!(array = %self.array, %failure, "what its slots have is not kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use strake_engine::event::{Instead, OutCause};
    use strake_engine::units::DeviceId;

    use super::*;

    fn seat(name: &str) -> Seat {
        Seat {
            device: PathBuf::from(format!("/dev/{name}")),
            model: Some("M".to_owned()),
            serial: Some(format!("serial-of-{name}")),
            light: None,
        }
    }

    fn out(device: Option<&str>, cause: OutCause, errno: Option<i32>) -> EventRecord {
        EventRecord {
            time: SystemTime::UNIX_EPOCH,
            kind: EventKind::MemberOut {
                slot: Slot(1),
                device: device.map(|_| DeviceId(0)),
                cause,
                instead: Instead::Others,
            },
            device: device.map(|name| PathBuf::from(format!("/dev/{name}"))),
            errno,
        }
    }

    /// A drive without a serial number now was taken for another one.
    #[test]
    fn a_drive_that_says_nothing_now_is_not_another_one() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut seat = seat("a");
        assert!(!seat.is_another(), "nothing is there");
        seat.device = PathBuf::from("/dev/null");
        assert!(!seat.is_another(), "it says nothing");
        seat.device = file.path().to_owned();
        assert!(seat.is_another(), "a file is no drive");
        seat.serial = None;
        assert!(!seat.is_another());
    }

    #[test]
    fn what_failed_is_remembered_also_when_a_spare_has_its_slot() {
        let mut seats = Seats::default();
        seats.take(Slot(1), seat("a"));
        assert_eq!(seats.was(1, false), None);
        assert!(seats.follow(&out(Some("a"), OutCause::WriteError, Some(5)), &[]));
        let was = seats.was(1, true).expect("it is remembered");
        assert_eq!(was.serial.as_deref(), Some("serial-of-a"));
        assert_eq!(
            (was.cause.as_deref(), was.errno),
            (Some("write_error"), Some(5))
        );
        seats.take(Slot(1), seat("b"));
        assert_eq!(seats.was(1, false), Some(was));
        assert_eq!(seats.seat(1), Some(&seat("b")));
        // The same drive is back, by another path.
        let back = Seat {
            device: PathBuf::from("/dev/c"),
            ..seat("a")
        };
        seats.take(Slot(1), back);
        assert_eq!(seats.was(1, false), None);
    }

    #[test]
    fn one_that_was_not_found_at_a_start_is_the_one_of_before() {
        let mut seats = Seats::default();
        seats.take(Slot(1), seat("a"));
        let text = serde_json::to_string(&seats).expect("JSON");
        let mut seats: Seats = serde_json::from_str(&text).expect("JSON");
        let was = seats.was(1, true).expect("it was there");
        assert_eq!((was.device.as_str(), was.cause), ("/dev/a", None));
        seats.follow(&out(None, OutCause::NotFound, None), &[]);
        let was = seats.was(1, true).expect("it was there");
        assert_eq!(was.cause.as_deref(), Some("not_found"));
        assert!(!seats.follow(&out(None, OutCause::NotFound, None), &[]));
        let gone = EventKind::Removed {
            slot: Some(Slot(1)),
            device: None,
            cause: None,
        };
        let removed = EventRecord {
            kind: gone,
            ..out(None, OutCause::Asked, None)
        };
        assert!(!seats.follow(&removed, &[]));
        let was = seats.was(1, true).expect("it is asked which drive it was");
        assert_eq!(was.device, "/dev/a");
        seats.take(Slot(1), seat("b"));
        assert_eq!(seats.departed(1), Some(&seat("a")));
    }
}
