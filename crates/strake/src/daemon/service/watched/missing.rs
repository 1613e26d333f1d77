//! Arrays that this machine served and of which no member is found.
//!
//! An array is known here by its name (`names`) from its first start until it is destroyed,
//! forgotten, or all its devices are cleaned or overwritten by another array. A known array without
//! a single member is missing: its drives lost power, a controller or an enclosure is gone, or they
//! were moved to another host. Only a user knows which; `strake forget` says so.
//!
//! Invariants: a missing array is shown at once, and told (event, alert, metric) when it was
//! missing for as long as arrays wait for their members; one that a user stopped in this life of
//! the daemon is not told. While a device does not answer or cannot be read, none is told as
//! missing and none is forgotten: its members may be there. What is shown comes from what is kept
//! of its slots; nothing is guessed, so its level and size are not known. Deliberately absent:
//! arrays with some of their members (`watch`).

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use strake_format::{ArrayName, ArrayUuid};

use crate::api::{ArrayJson, DryRequest, MemberJson, OutcomeJson};
use crate::common::errors::{Code, Failure};
use crate::common::size;
use crate::daemon::array::left;
use crate::daemon::array::left::Before;
use crate::daemon::events::Happened;
use crate::daemon::service::watched::answers::Look;
use crate::daemon::service::{Service, locked, outcome};
use crate::daemon::state::Dir;
use crate::drives::find;
use crate::drives::find::FoundArray;

/// A missing array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) name: ArrayName,
    pub(crate) uuid: ArrayUuid,
}

/// A missing array of which it was told.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) missing: Missing,
    /// As `show` tells it.
    pub(crate) json: ArrayJson,
}

/// Devices of which it is not known what they carry.
fn unread_text(unread: &[PathBuf]) -> String {
    let paths: Vec<String> = unread.iter().map(|p| p.display().to_string()).collect();
    format!(
        "{} that cannot be read, or give no answer: {}",
        size::count(paths.len(), "device"),
        paths.join(", ")
    )
}

/// What the slots of a missing array had, behind what is said of it.
fn had(array: &ArrayJson) -> String {
    let had = array.members.iter().filter_map(|m| {
        let was = m.was.as_ref()?;
        let serial = was.serial.as_ref();
        let serial = serial.map_or_else(String::new, |s| format!(" (serial {s})"));
        Some(format!("slot {}: {}{serial}", m.slot?, was.device))
    });
    let had: Vec<String> = had.collect();
    match had.is_empty() {
        true => String::new(),
        false => format!("; it had {}", had.join(", ")),
    }
}

/// What a command for a missing array is refused with: what its slots had, and the ways on.
pub(crate) fn refused(array: &ArrayJson, unread: &[PathBuf]) -> Failure {
    let name = &array.name;
    let mut found = format!("no member of {name} is found{}", had(array));
    let back = "bring its members back (power, cables and controllers of these drives)";
    let cure = match unread.is_empty() {
        true => format!("{back}, or strake forget {name} where they are not to come back"),
        false => {
            found += &format!("; they may be on {}", unread_text(unread));
            format!("mend what cannot be read, or {back}")
        }
    };
    Failure::new(Code::ArrayNotFound, found).cure(cure)
}

/// It is not known whether an array is missing.
fn silent(name: &str, unread: &[PathBuf]) -> Failure {
    let found = format!(
        "no member of {name} was found; some may be on {}",
        unread_text(unread)
    );
    let cure = "look at the kernel log; mend these devices, or remove them from the machine \
                (echo 1 > /sys/block/NAME/device/delete), and try again";
    Failure::new(Code::DeviceSilent, found).cure(cure.to_owned())
}

impl Dir {
    /// Known arrays that are neither served nor found.
    ///
    /// # Errors
    /// It cannot be read which are known.
    pub(crate) fn missing(
        &self,
        found: &[FoundArray],
        serves: impl Fn(ArrayUuid) -> bool,
    ) -> io::Result<Vec<Missing>> {
        let is_there = |uuid: ArrayUuid| {
            // A restore that was cut off has taken its devices.
            serves(uuid)
                || found.iter().any(|a| a.uuid == uuid)
                || self.begun(uuid, found).is_some()
        };
        let known = self.try_owned()?.into_iter();
        let missing = known.filter(|(_, uuid)| !is_there(*uuid));
        Ok(missing.map(|(name, uuid)| Missing { name, uuid }).collect())
    }

    /// It cannot be read which arrays are known.
    pub(crate) fn not_known(&self, error: &io::Error) -> Failure {
        Failure::new(Code::Io, format!("{}: {error}", self.names().display()))
    }

    /// A missing array as `show` tells it: what its slots had.
    pub(crate) fn missing_json(&self, missing: &Missing) -> ArrayJson {
        let seats = self.seats(missing.uuid);
        let member = |slot| MemberJson {
            slot: Some(slot),
            state: "missing".to_owned(),
            ..MemberJson::default()
        };
        let array = ArrayJson {
            name: missing.name.to_string(),
            uuid: missing.uuid.to_string(),
            state: "stopped".to_owned(),
            startable: Some(false),
            not_found: true,
            members: seats.slots().map(member).collect(),
            ..ArrayJson::default()
        };
        seats.shown(array)
    }

    /// Forgets a missing array, or says what that would be.
    ///
    /// # Errors
    /// There is no such array, members of it are found, or may be on a device that is unread.
    pub(crate) fn forget_missing(
        &self,
        found: &[FoundArray],
        unread: &[PathBuf],
        serves: impl Fn(ArrayUuid) -> bool,
        name: &str,
        dry_run: bool,
    ) -> Result<(Missing, OutcomeJson), Failure> {
        let is_meant =
            |array: &ArrayName, uuid: ArrayUuid| array.as_str() == name || uuid.to_string() == name;
        let missing = self.missing(found, serves);
        let missing = missing.map_err(|error| self.not_known(&error))?;
        let mut missing = missing.into_iter();
        let Some(missing) = missing.find(|one| is_meant(&one.name, one.uuid)) else {
            let known = self.owned();
            let mut here = found
                .iter()
                .map(|a| (a.name().clone(), a.uuid))
                .chain(known);
            return Err(match here.find(|(name, uuid)| is_meant(name, *uuid)) {
                Some((name, uuid)) => {
                    let devices = found.iter().find(|a| a.uuid == uuid);
                    let devices = devices.into_iter().flat_map(|a| &a.members);
                    let devices: Vec<String> =
                        devices.map(|m| m.path.display().to_string()).collect();
                    let found = match devices.is_empty() {
                        true => format!("{name} is in service"),
                        false => format!("members of {name} are found: {}", devices.join(", ")),
                    };
                    let cure = format!(
                        "only an array without any member is forgotten: strake destroy {name} \
                         wipes what its members say of it"
                    );
                    Failure::new(Code::ArrayInUse, found).cure(cure)
                }
                None => Failure::new(Code::ArrayNotFound, format!("no array {name} is known")),
            });
        };
        if !unread.is_empty() {
            return Err(silent(missing.name.as_str(), unread));
        }
        let name = missing.name.to_string();
        left::delete_unused(self, missing.uuid, &name, Before::Forget, dry_run)?;
        if dry_run {
            let what = format!("would forget {}", missing.uuid);
            return Ok((missing, outcome(&name, false, &what)));
        }
        self.forget(missing.uuid);
        let what = format!(
            "{} is forgotten; it is served again when its drives are found",
            missing.uuid
        );
        Ok((missing, outcome(&name, true, &what)))
    }

    /// Devices were wiped or overwritten as a user asked: those of these arrays of which none is
    /// left are not missing. Which these are.
    pub(crate) fn not_expected(
        &self,
        arrays: &BTreeSet<ArrayUuid>,
        found: &[FoundArray],
        unread: &[PathBuf],
    ) -> Vec<Missing> {
        if !unread.is_empty() {
            return Vec::new();
        }
        let mut all = self.owned();
        all.retain(|(_, uuid)| {
            arrays.contains(uuid) && !found.iter().any(|array| array.uuid == *uuid)
        });
        let gone = all.into_iter().map(|(name, uuid)| {
            self.disown(uuid, None);
            left::end(self, uuid, name.as_str());
            Missing { name, uuid }
        });
        gone.collect()
    }
}

impl Service {
    /// Known arrays without any member, by a look at all drives; none while one is unread.
    pub(crate) fn missing(&self) -> Vec<Missing> {
        let Look { found, unread } = self.look();
        match unread.is_empty() {
            true => self.missing_beside(&found),
            false => Vec::new(),
        }
    }

    /// Known arrays of which no member is among these, as `show` lists them.
    pub(crate) fn missing_beside(&self, found: &[FoundArray]) -> Vec<Missing> {
        let missing = self.dir.missing(found, |uuid| self.is_running(uuid));
        missing.unwrap_or_else(|error| {
            tracing::warn!(%error, "it cannot be read which arrays are known");
            Vec::new()
        })
    }

    /// Are all devices read that are there? Looks at them.
    pub(crate) fn all_read(&self) -> bool {
        self.look().unread.is_empty()
    }

    /// Known arrays of which no member was found by the last look at all drives, and the devices
    /// that this look did not read: no drive is asked.
    ///
    /// # Errors
    /// It cannot be read which are known.
    pub(crate) fn seems_missing(&self) -> io::Result<(Vec<Missing>, Vec<PathBuf>)> {
        let (found, unread) = {
            let last = locked(&self.last_look);
            let found = last.found.iter().map(|a| a.uuid.clone());
            (found.collect::<BTreeSet<String>>(), last.unread.clone())
        };
        let serves = |uuid: ArrayUuid| self.is_running(uuid) || found.contains(&uuid.to_string());
        Ok((self.dir.missing(&[], serves)?, unread))
    }

    /// The missing array of that name or uuid, as `show` tells it.
    ///
    /// # Errors
    /// `not_found` where there is none; it is not known whether it is missing.
    pub(crate) fn show_missing(
        &self,
        name: &str,
        not_found: Failure,
    ) -> Result<ArrayJson, Failure> {
        self.scan(&[]);
        let missing = self.seems_missing();
        let (missing, unread) = missing.map_err(|error| self.dir.not_known(&error))?;
        let mut missing = missing.iter();
        let is_meant = |one: &&Missing| one.name.as_str() == name || one.uuid.to_string() == name;
        match (missing.find(is_meant), unread.is_empty()) {
            (Some(meant), true) => Ok(self.with_alerts(self.of_missing(meant))),
            (None, true) => Err(not_found),
            (_, false) => Err(silent(name, &unread)),
        }
    }

    /// The array of that name or uuid among those found; one that is missing is refused with what
    /// its slots had.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub(crate) fn pick(&self, found: Vec<FoundArray>, name: &str) -> Result<FoundArray, Failure> {
        find::pick(found, name, self.dir.meant(name)).map_err(|failure| {
            let is_meant =
                |one: &Missing| one.name.as_str() == name || one.uuid.to_string() == name;
            if failure.code != Code::ArrayNotFound {
                return failure;
            }
            let (missing, unread) = match self.seems_missing() {
                Ok(pair) => pair,
                Err(error) => return self.dir.not_known(&error),
            };
            match missing.into_iter().find(is_meant) {
                Some(meant) => refused(&self.dir.missing_json(&meant), &unread),
                None if unread.is_empty() => failure,
                None => silent(name, &unread),
            }
        })
    }

    /// The same where a user named the devices, and all of these were read: what others may carry
    /// is not asked for.
    pub(crate) fn pick_named(
        &self,
        found: Vec<FoundArray>,
        name: &str,
        devices: &[PathBuf],
    ) -> Result<FoundArray, Failure> {
        match devices {
            [] => self.pick(found, name),
            devices => find::pick_of(found, name, self.dir.meant(name), devices),
        }
    }

    /// Notes that no member of an array is found, while devices are unread.
    pub(crate) fn note_unread(&self, array: &Missing, unread: &[PathBuf]) {
        self.events.note(Happened {
            array: Some(array.name.to_string()),
            uuid: Some(array.uuid.to_string()),
            event: "array_not_read",
            cause: Some(format!("its members may be on {}", unread_text(unread))),
            effect: Some("it is served when they can be read".to_owned()),
            ..Happened::default()
        });
    }

    /// A missing array as `show` tells it.
    pub(crate) fn of_missing(&self, missing: &Missing) -> ArrayJson {
        ArrayJson {
            daemon: true,
            ..self.dir.missing_json(missing)
        }
    }

    /// Missing arrays of which it was told, as `show` tells them; no drive and no file is read. One
    /// that has come back is left out before the watcher ends its look.
    pub(crate) fn told_missing(&self) -> Vec<Told> {
        let found: BTreeSet<String> = self.last_found().into_iter().map(|a| a.uuid).collect();
        let is_there =
            |one: &Told| self.is_running(one.missing.uuid) || found.contains(&one.json.uuid);
        let told = locked(&self.missing).clone();
        told.into_iter().filter(|one| !is_there(one)).collect()
    }

    /// These arrays are missing, and have been for long enough; what is new becomes an event.
    pub(crate) fn tell_missing(&self, missing: Vec<Missing>) {
        let before = locked(&self.missing).clone();
        let told = missing.into_iter().map(|one| {
            let known = before.iter().find(|told| told.missing == one).cloned();
            known.unwrap_or_else(|| Told {
                json: self.of_missing(&one),
                missing: one,
            })
        });
        let told: Vec<Told> = told.collect();
        locked(&self.missing).clone_from(&told);
        let is_new = |one: &&Told| !before.iter().any(|told| told.missing == one.missing);
        for Told {
            missing: array,
            json,
        } in told.iter().filter(is_new)
        {
            let had = had(json);
            self.events.note(Happened {
                array: Some(array.name.to_string()),
                uuid: Some(array.uuid.to_string()),
                event: "array_not_found",
                cause: Some(format!("no drive carries a member of it{had}")),
                effect: Some(format!(
                    "it is served when they are back; strake forget {} where they are not to come \
                     back",
                    array.name
                )),
                ..Happened::default()
            });
        }
    }

    /// Forgets an array of which no member is found.
    pub(crate) fn forget(&self, name: &str, asked: &DryRequest) -> Result<OutcomeJson, Failure> {
        let _change = self.change("strake forget", name, asked.dry_run)?;
        let Look { found, unread } = self.look();
        let serves = |uuid| self.is_running(uuid);
        let (missing, done) =
            self.dir
                .forget_missing(&found, &unread, serves, name, asked.dry_run)?;
        if done.changed {
            self.note_forgotten(&missing, "asked");
        }
        Ok(done)
    }

    fn note_forgotten(&self, missing: &Missing, cause: &str) {
        locked(&self.missing).retain(|one| one.missing != *missing);
        self.events.note(Happened {
            array: Some(missing.name.to_string()),
            uuid: Some(missing.uuid.to_string()),
            event: "forgotten",
            cause: Some(cause.to_owned()),
            effect: Some(format!("array {}", missing.uuid)),
            ..Happened::default()
        });
    }

    /// These arrays are not expected any more where nothing of them is left. Looks at all drives.
    pub(crate) fn not_expected(&self, arrays: &BTreeSet<ArrayUuid>) {
        let Look { found, unread } = self.look();
        for missing in self.dir.not_expected(arrays, &found, &unread) {
            self.note_forgotten(&missing, "its devices were wiped or overwritten");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::array::running::Limits;
    use crate::daemon::sources::Sources;

    #[test]
    fn an_array_is_missing_from_its_first_start_until_it_is_found_or_forgotten() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        dir.make().expect("folders");
        let name = |text: &str| text.parse::<ArrayName>().expect("a name");
        let (first, second) = (ArrayUuid([1; 16]), ArrayUuid([2; 16]));
        let known = |serves: &dyn Fn(ArrayUuid) -> bool| dir.missing(&[], serves).expect("read");
        assert_eq!(known(&|_| false), []);
        dir.own(&name("data"), first);
        dir.own(&name("more"), second);
        let missing = known(&|uuid| uuid == second);
        let [one] = &missing[..] else {
            panic!("{missing:?}")
        };
        assert_eq!((&one.name, one.uuid), (&name("data"), first));
        let json = dir.missing_json(one);
        assert!(json.not_found && json.startable == Some(false));
        let forget = |serves: &dyn Fn(ArrayUuid) -> bool, name: &str, dry_run| {
            let done = dir.forget_missing(&[], &[], serves, name, dry_run);
            done.map(|(_, done)| done.changed).map_err(|f| f.code)
        };
        let nothing = |_| false;
        assert_eq!(forget(&nothing, "data", true), Ok(false));
        assert_eq!(forget(&|_| true, "data", false), Err(Code::ArrayInUse));
        // Its members may be on a drive that hangs.
        let hangs = [PathBuf::from("/dev/hangs")];
        let refused = dir.forget_missing(&[], &hangs, nothing, "data", false);
        let refused = refused.expect_err("refused");
        assert_eq!(refused.code, Code::DeviceSilent, "{refused:?}");
        assert!(refused.found.contains("/dev/hangs"), "{refused:?}");
        assert_eq!(dir.not_expected(&BTreeSet::from([first]), &[], &hangs), []);
        assert_eq!(known(&nothing).len(), 2);
        assert_eq!(forget(&nothing, &first.to_string(), false), Ok(true));
        assert_eq!(forget(&nothing, "data", false), Err(Code::ArrayNotFound));
        let gone = dir.not_expected(&BTreeSet::from([second]), &[], &[]);
        assert_eq!(gone.len(), 1);
        assert_eq!(known(&nothing), []);
        // A names folder that cannot be read says nothing of arrays.
        std::fs::remove_dir_all(dir.names()).expect("removed");
        std::fs::write(dir.names(), b"").expect("written");
        assert!(dir.missing(&[], nothing).is_err());
        // It was said that no array of that name was found.
        let service = Service::new(dir, Sources::default(), Limits::default());
        let shown = service.show_one("data").map(|_| ());
        let picked = service.pick(Vec::new(), "data").map(|_| ());
        for failure in [shown, picked].map(|answer| answer.expect_err("it is not known")) {
            assert_eq!(failure.code, Code::Io, "{failure:?}");
            assert!(failure.found.contains("names"), "{failure:?}");
        }
    }

    /// What was found came of one look, and what was not read of another.
    #[test]
    fn what_is_missing_and_what_was_not_read_are_of_one_look() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a");
        let file = std::fs::File::create(&path).expect("made");
        file.set_len(32 << 20).expect("sparse");
        let dir = Dir::at(&folder.path().join("run"));
        dir.make().expect("folders");
        let service = Service::new(dir, Sources::default(), Limits::default());
        let request = serde_json::json!({
            "name": "data", "level": "0", "devices": [path], "export": "none",
        });
        let request = serde_json::from_value(request).expect("a request");
        service.create(request).expect("made");
        service.stop_all();
        let kept = std::fs::read(&path).expect("ours");
        // As a newer version would write it.
        let mut newer = kept.clone();
        for at in [4096, kept.len() - 65536] {
            let block = &mut newer[at..at + 4096];
            block[8] = 99;
            let sum = strake_format::checksum::sealed(block, 12).to_le_bytes();
            block[12..16].copy_from_slice(&sum);
        }
        std::fs::write(&path, newer).expect("ours");
        let look = service.look();
        let seems = service.seems_missing().expect("read");
        std::fs::write(&path, kept).expect("ours");
        assert_eq!(service.look().found.len(), 1, "another look finds it");
        assert!(look.found.is_empty());
        assert_eq!(look.unread, std::slice::from_ref(&path));
        assert_eq!((seems.0.len(), seems.1), (1, vec![path]));
        let seems = service.seems_missing().expect("read");
        assert_eq!((seems.0.len(), seems.1.len()), (0, 0));
    }
}
