//! What an administrator asks of an array now and then, beside its service.
//!
//! Invariant: as in `service`: one change at a time, verbs are idempotent and say whether they
//! changed something. Deliberately absent: what an array does by itself.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use strake_engine::event::Command;
use strake_format::ArrayUuid;

use crate::api::{
    ArrayJson, CleanRequest, CleanedDeviceJson, CleanedJson, DriveDone, DriveLocateRequest,
    LocateRequest, MemberJson, OutcomeJson, ResetRequest,
};
use crate::common::absolute;
use crate::common::errors::{Code, Failure};
use crate::daemon::array::left;
use crate::daemon::array::left::Before;
use crate::daemon::array::running::Running;
use crate::daemon::array::seats::Seat;
use crate::daemon::events::Happened;
use crate::daemon::service::{Service, carry_out, locked, outcome};
use crate::daemon::state::Dir;
use crate::daemon::tasks::Tasks;
use crate::drives::clean;
use crate::drives::find;
use crate::drives::find::FoundArray;
use crate::drives::machine::locate;
use crate::drives::machine::sysfs;
use crate::drives::safety;
use crate::view::shown_member;

impl Service {
    /// Wipes what Strake left on devices that no array in service uses.
    pub(crate) fn clean(&self, request: &CleanRequest) -> Result<CleanedJson, Failure> {
        let paths: Vec<PathBuf> = request.devices.iter().map(|path| absolute(path)).collect();
        let keys = paths.iter().map(|path| path.display().to_string());
        for running in self.all_running() {
            if let Some(path) = running.serves_one_of(&paths) {
                let found = format!("{} is in service in {}", path.display(), running.name());
                return Err(Failure::new(Code::MemberInUse, found));
            }
        }
        find::answering(&self.looks, &paths)?;
        let _change = self
            .changes
            .begin_holding("strake drive clean", keys.collect())?;
        self.none_in_service(&paths)?;
        let running = self.uuids_running();
        let not_expected = |arrays: &BTreeSet<ArrayUuid>| {
            self.not_expected(arrays);
        };
        let (cleaned, failure) =
            clean_devices(&self.dir, &paths, &running, not_expected, request.dry_run)?;
        if !request.dry_run {
            for device in &cleaned.devices {
                self.events.note(Happened {
                    event: "cleaned",
                    device: Some(device.device.clone()),
                    cause: Some("asked".to_owned()),
                    effect: Some(format!("was {}", device.was)),
                    ..Happened::default()
                });
            }
        }
        failure.map_or(Ok(cleaned), Err)
    }

    /// Does this for each array in service for which it is `due`, unless it is being done for it:
    /// one that hangs holds up no other.
    pub(super) fn each(
        self: &Arc<Service>,
        tasks: &Mutex<Tasks<()>>,
        due: impl Fn(&Running) -> bool,
        work: fn(&Service, &Running),
    ) {
        let mut tasks = locked(tasks);
        for running in self.all_running().into_iter().filter(|one| due(one)) {
            let service = Arc::clone(self);
            tasks.begin(running.uuid, move || work(&service, &running));
        }
        tasks.ended();
    }

    /// Puts out members that lost their superblocks while they served.
    pub(crate) fn put_out_emptied(self: &Arc<Service>) {
        self.each(
            &self.tasks.emptied,
            |_| true,
            |service, running| {
                let by = "a look for overwritten members";
                // A device that is being added has not both copies yet.
                if let Ok(_change) = service.change_running(by, running, &[]) {
                    running.put_out_emptied(&service.events);
                }
            },
        );
    }

    /// See [`none_served_by`].
    pub(super) fn none_in_service(&self, paths: &[PathBuf]) -> Result<(), Failure> {
        none_served_by(&self.all_running(), paths)
    }

    /// Switches the light of a member's drive; the array may be stopped.
    pub(crate) fn locate(
        &self,
        name: &str,
        request: &LocateRequest,
    ) -> Result<OutcomeJson, Failure> {
        let array = self.show_one(name)?;
        let done = switch_light(&self.dir, &array, request)?;
        if done.changed {
            let member = shown_member(&array, &request.member)?;
            self.events.note(Happened {
                array: Some(array.name),
                event: "located",
                slot: member.slot,
                device: member.device,
                cause: Some("asked".to_owned()),
                effect: Some(done.what.clone()),
                ..Happened::default()
            });
        }
        Ok(done)
    }

    /// Switches the light of a drive, whatever it is used for.
    pub(crate) fn locate_drive(&self, request: &DriveLocateRequest) -> Result<DriveDone, Failure> {
        let done = light(&absolute(&request.device), request.on, request.dry_run)?;
        if done.changed {
            let path = Path::new(&done.device);
            let running = self.all_running().into_iter();
            let serves = running.into_iter().find(|running| running.serves(path));
            let member = serves.as_ref();
            let member = member.and_then(|r| r.present(&done.device).ok().flatten());
            self.events.note(Happened {
                array: serves.map(|running| running.name().to_string()),
                event: "located",
                slot: member.and_then(|member| member.slot).map(|slot| slot.0),
                device: Some(done.device.clone()),
                cause: Some("asked".to_owned()),
                effect: Some(done.what.clone()),
                ..Happened::default()
            });
        }
        Ok(done)
    }

    /// Counts errors, mismatches and retries from zero again, of one member or of all.
    pub(crate) fn reset(&self, name: &str, request: &ResetRequest) -> Result<OutcomeJson, Failure> {
        let _change = self.change("strake reset", name, request.dry_run)?;
        let running = self.running(name)?;
        let (meant, members) = match &request.member {
            None => (None, "all members".to_owned()),
            Some(member) => {
                let reference = Running::exact_reference(&running.member(member)?, member)?;
                (Some(reference), member.clone())
            }
        };
        let command = Command::ResetCounters(meant);
        let would = || {
            let array = running.json()?;
            let members = match &request.member {
                Some(member) => vec![shown_member(&array, member)?],
                None => array.members.into_iter().chain(array.spares).collect(),
            };
            let sum = |of: fn(&MemberJson) -> u64| members.iter().map(of).sum::<u64>();
            Ok(format!(
                "would forget {} read errors, {} write errors, {} mismatches and {} retries",
                sum(|m| m.read_errors),
                sum(|m| m.write_errors),
                sum(|m| m.mismatches),
                sum(|m| m.retries.tries)
            ))
        };
        let done =
            format!("errors, mismatches and retries of {members} are counted from zero again");
        carry_out(&running, command, request.dry_run, would, &done)
    }
}

/// Refuses devices that are other names of members in service, or copies of them, whatever the
/// caller permits: the kernel may not know that they are one. One that is in service by this name
/// is for others to refuse, as is one that cannot be read.
pub(super) fn none_served_by(all: &[Arc<Running>], paths: &[PathBuf]) -> Result<(), Failure> {
    for path in paths {
        let Ok(Some(image)) = find::look(path) else {
            continue;
        };
        let own = &image.superblock;
        let of = all.iter().find(|running| running.uuid == own.array);
        if let Some(running) = of.filter(|running| !running.serves(path)) {
            // What the kernel knows of it says more.
            safety::not_in_use(sysfs::identity(path)?, path)?;
            running.not_in_service(path, own)?;
        }
    }
    Ok(())
}

/// Switches the light of a drive.
pub(crate) fn light(device: &Path, on: bool, dry_run: bool) -> Result<DriveDone, Failure> {
    Ok(DriveDone {
        device: device.display().to_string(),
        changed: !dry_run,
        what: locate::switch(device, on, dry_run)?,
    })
}

/// Switches the light of a member of an array, as it is told.
pub(crate) fn switch_light(
    dir: &Dir,
    array: &ArrayJson,
    request: &LocateRequest,
) -> Result<OutcomeJson, Failure> {
    let member = shown_member(array, &request.member)?;
    let uuid = array.uuid.parse().ok();
    let seats = uuid.map(|uuid| dir.seats(uuid)).unwrap_or_default();
    let (on, dry_run) = (request.on, request.dry_run);
    // The device that was in a slot is meant, whatever has the slot now.
    let shown = absolute(Path::new(&request.member)).display().to_string();
    let named = request.member.parse::<u8>().is_err();
    let was = member.was.as_ref();
    let was = was.filter(|was| named && was.device == shown);
    let now = member.device.as_ref();
    let now = now.filter(|device| was.is_none() || **device == shown);
    let had = member.slot.and_then(|slot| match was {
        Some(_) => seats.departed(slot),
        None => seats.seat(slot),
    });
    let what = match (now, had) {
        (Some(device), _) => locate::switch(Path::new(device), on, dry_run)?,
        (None, Some(had)) if uuid.is_some_and(|uuid| had.is_there(uuid, member.slot)) => {
            locate::switch(&had.device, on, dry_run)?
        }
        (None, Some(had)) => {
            let device = had.device.display().to_string();
            let Some(light) = had.light.as_ref().filter(|light| light.exists()) else {
                return Err(no_light(&array.name, member.slot, had));
            };
            locate::switch_place(&device, light, on, dry_run)?
        }
        (None, None) => {
            let found = format!(
                "nothing is in {} of {} now, and what was there is not known",
                request.member, array.name
            );
            return Err(Failure::new(Code::MemberNotFound, found));
        }
    };
    Ok(outcome(&array.name, !request.dry_run, &what))
}

/// No light finds the drive that was in a slot.
fn no_light(array: &str, slot: Option<u8>, had: &Seat) -> Failure {
    let device = had.device.display();
    let slot = slot.map(|slot| slot.to_string()).unwrap_or_default();
    let found = match had.device.exists() {
        true => format!(
            "nothing proves that {device} is the drive that was in slot {slot} of {array} by that \
             name, and no light of its place is known"
        ),
        false => format!(
            "{device}, which was in slot {slot} of {array}, is gone, and no light of its place is \
             known"
        ),
    };
    let known = [("model", &had.model), ("serial number", &had.serial)];
    let known = known.map(|(what, value)| Some(format!("{what} {}", value.as_ref()?)));
    let known: Vec<String> = known.into_iter().flatten().collect();
    let failure = Failure::new(Code::NoLight, found);
    match known.is_empty() {
        true => failure.cure(format!(
            "strake show {array} says until when the slot had it; nothing is known that is on its \
             label"
        )),
        false => failure.cure(format!("look for its label: {}", known.join(", "))),
    }
}

/// The arrays that lose members to a new one, of those on its devices. Refuses if something uses a
/// ublk device that an earlier daemon left of one that does not run.
pub(crate) fn overwritten(
    dir: &Dir,
    found: &[FoundArray],
    running: &[ArrayUuid],
) -> Result<BTreeSet<ArrayUuid>, Failure> {
    let arrays: BTreeSet<ArrayUuid> = found.iter().map(|array| array.uuid).collect();
    arrays
        .iter()
        .filter(|array| !running.contains(array))
        .try_for_each(|array| no_user_left(dir, *array, Before::Create))?;
    Ok(arrays)
}

/// Refuses if something uses a ublk device that an earlier daemon left of an array.
fn no_user_left(dir: &Dir, array: ArrayUuid, before: Before<'_>) -> Result<(), Failure> {
    let name = dir.record(array).map(|record| record.name);
    let name = name.unwrap_or_else(|| array.to_string());
    left::unused(dir, array, &name, before).map(drop)
}

/// Wipes what Strake left on these devices, or says what that is. Arrays that lost members so are
/// given to `not_expected`. Answers also why not all devices were wiped.
pub(crate) fn clean_devices(
    dir: &Dir,
    paths: &[PathBuf],
    running: &[ArrayUuid],
    not_expected: impl Fn(&BTreeSet<ArrayUuid>),
    dry_run: bool,
) -> Result<(CleanedJson, Option<Failure>), Failure> {
    let arrays = clean::look(paths)?.into_iter().filter_map(|f| f.array());
    arrays
        .filter(|array| !running.contains(array))
        .try_for_each(|array| no_user_left(dir, array, Before::Clean))?;
    let (found, failure) = match dry_run {
        true => {
            let found = clean::look(paths)?;
            safety::may_hold(paths)?;
            (found, None)
        }
        false => clean::clean(paths)?,
    };
    if !dry_run {
        let wiped: Vec<PathBuf> = found.iter().map(|found| found.path.clone()).collect();
        // Remembered in vain is harmless.
        let _ = dir.forget_files(&wiped);
        let arrays: BTreeSet<ArrayUuid> = found.iter().filter_map(clean::Found::array).collect();
        if !arrays.is_empty() {
            not_expected(&arrays);
        }
    }
    let device = |found: &clean::Found| CleanedDeviceJson {
        device: found.path.display().to_string(),
        was: found.was.clone(),
    };
    let cleaned = CleanedJson {
        dry_run,
        devices: found.iter().map(device).collect(),
    };
    Ok((cleaned, failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It advised a command that has no serial number of a drive that is gone.
    #[test]
    fn a_drive_that_is_gone_is_to_be_found_by_what_is_on_its_label() {
        let had = Seat {
            device: PathBuf::from("/nonexistent/nvme0n1"),
            model: Some("MODEL X".to_owned()),
            serial: Some("S1".to_owned()),
            light: None,
        };
        let failure = no_light("data", Some(3), &had);
        assert!(failure.found.contains("slot 3 of data"), "{failure}");
        let label = "look for its label: model MODEL X, serial number S1";
        assert_eq!(failure.cure, label);
        let unknown = Seat::default();
        let failure = no_light("data", Some(3), &unknown);
        assert!(failure.cure.starts_with("strake show data"), "{failure}");
    }
}
