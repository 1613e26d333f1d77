//! Arrays that this machine served and of which no member is found.
//!
//! An array is known here by its name (`names`) from its first start until it is destroyed,
//! forgotten, or all its devices are cleaned or overwritten by another array. A known array without
//! a single member is missing: its drives lost power, a controller or an enclosure is gone, or they
//! were moved to another host. Only a user knows which; `strake forget` says so.
//!
//! Invariants: a missing array is shown at once, and told (event, alert, metric) when it was
//! missing for as long as arrays wait for their members; one that a user stopped in this life of
//! the daemon is not told. What is shown comes from what is kept of its slots; nothing is guessed,
//! so its level and size are not known. Deliberately absent: arrays with some of their members
//! (`watch`).

use std::collections::BTreeSet;

use strake_format::{ArrayName, ArrayUuid};

use crate::api::{ArrayJson, DryRequest, MemberJson, OutcomeJson};
use crate::common::errors::{Code, Failure};
use crate::daemon::array::running;
use crate::daemon::events::Happened;
use crate::daemon::service::{Service, locked, outcome};
use crate::daemon::state::Dir;
use crate::drives::find::FoundArray;

/// A missing array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) name: ArrayName,
    pub(crate) uuid: ArrayUuid,
}

impl Dir {
    /// Known arrays that are neither served nor found.
    pub(crate) fn missing(
        &self,
        found: &[FoundArray],
        serves: impl Fn(ArrayUuid) -> bool,
    ) -> Vec<Missing> {
        let is_there = |uuid: ArrayUuid| {
            // A restore that was cut off has taken its devices.
            serves(uuid)
                || found.iter().any(|a| a.uuid == uuid)
                || self.begun(uuid, found).is_some()
        };
        let known = self.owned().into_iter();
        let missing = known.filter(|(_, uuid)| !is_there(*uuid));
        missing.map(|(name, uuid)| Missing { name, uuid }).collect()
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
    /// There is no such array, or members of it are found.
    pub(crate) fn forget_missing(
        &self,
        found: &[FoundArray],
        serves: impl Fn(ArrayUuid) -> bool,
        name: &str,
        dry_run: bool,
    ) -> Result<(Missing, OutcomeJson), Failure> {
        let is_meant =
            |array: &ArrayName, uuid: ArrayUuid| array.as_str() == name || uuid.to_string() == name;
        let mut missing = self.missing(found, serves).into_iter();
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
        running::not_left_in_use(self, missing.uuid)?;
        let name = missing.name.to_string();
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
    /// left are not missing.
    pub(crate) fn not_expected(&self, arrays: &BTreeSet<ArrayUuid>, found: &[FoundArray]) {
        for array in arrays {
            if !found.iter().any(|a| a.uuid == *array) {
                self.disown(*array, None);
            }
        }
    }
}

impl Service {
    /// Known arrays without any member, by a look at all drives.
    pub(crate) fn missing(&self) -> Vec<Missing> {
        let found = self.scan(&[]);
        self.dir.missing(&found, |uuid| self.is_running(uuid))
    }

    /// The same by the last look at all drives: no drive is asked.
    pub(crate) fn seems_missing(&self) -> Vec<Missing> {
        let found: BTreeSet<String> = self.last_found().into_iter().map(|a| a.uuid).collect();
        let serves = |uuid: ArrayUuid| self.is_running(uuid) || found.contains(&uuid.to_string());
        self.dir.missing(&[], serves)
    }

    /// The missing array of that name or uuid, as `show` tells it.
    pub(crate) fn show_missing(&self, name: &str) -> Option<ArrayJson> {
        let missing = self.missing();
        let mut missing = missing.iter();
        let meant =
            missing.find(|one| one.name.as_str() == name || one.uuid.to_string() == name)?;
        Some(self.with_alerts(self.of_missing(meant)))
    }

    /// A missing array as `show` tells it.
    pub(crate) fn of_missing(&self, missing: &Missing) -> ArrayJson {
        ArrayJson {
            daemon: true,
            ..self.dir.missing_json(missing)
        }
    }

    /// Missing arrays of which it was told.
    pub(crate) fn told_missing(&self) -> Vec<Missing> {
        locked(&self.missing).clone()
    }

    /// These arrays are missing, and have been for long enough; what is new becomes an event.
    pub(crate) fn tell_missing(&self, missing: Vec<Missing>) {
        let before = std::mem::replace(&mut *locked(&self.missing), missing.clone());
        for array in missing.iter().filter(|array| !before.contains(array)) {
            let json = self.of_missing(array);
            let had = json.members.iter().filter_map(|m| {
                let was = m.was.as_ref()?;
                let serial = was.serial.as_ref();
                let serial = serial.map_or_else(String::new, |s| format!(" (serial {s})"));
                Some(format!("slot {}: {}{serial}", m.slot?, was.device))
            });
            let had: Vec<String> = had.collect();
            self.events.note(Happened {
                array: Some(array.name.to_string()),
                event: "array_not_found",
                cause: Some(match had.is_empty() {
                    true => "no drive carries a member of it".to_owned(),
                    false => format!("no drive carries a member of it; it had {}", had.join(", ")),
                }),
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
        let _change = self.change(name)?;
        let found = self.scan(&[]);
        let serves = |uuid| self.is_running(uuid);
        let (missing, done) = self
            .dir
            .forget_missing(&found, serves, name, asked.dry_run)?;
        if done.changed {
            locked(&self.missing).retain(|one| *one != missing);
            self.events.note(Happened {
                array: Some(missing.name.to_string()),
                event: "forgotten",
                cause: Some("asked".to_owned()),
                effect: Some(format!("array {}", missing.uuid)),
                ..Happened::default()
            });
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_missing_from_its_first_start_until_it_is_found_or_forgotten() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        dir.make().expect("folders");
        let name = |text: &str| text.parse::<ArrayName>().expect("a name");
        let (first, second) = (ArrayUuid([1; 16]), ArrayUuid([2; 16]));
        assert_eq!(dir.missing(&[], |_| false), []);
        dir.own(&name("data"), first);
        dir.own(&name("more"), second);
        let missing = dir.missing(&[], |uuid| uuid == second);
        let [one] = &missing[..] else {
            panic!("{missing:?}")
        };
        assert_eq!((&one.name, one.uuid), (&name("data"), first));
        let json = dir.missing_json(one);
        assert!(json.not_found && json.startable == Some(false));
        let forget = |serves: &dyn Fn(ArrayUuid) -> bool, name: &str, dry_run| {
            let done = dir.forget_missing(&[], serves, name, dry_run);
            done.map(|(_, done)| done.changed).map_err(|f| f.code)
        };
        let nothing = |_| false;
        assert_eq!(forget(&nothing, "data", true), Ok(false));
        assert_eq!(forget(&|_| true, "data", false), Err(Code::ArrayInUse));
        assert_eq!(forget(&nothing, &first.to_string(), false), Ok(true));
        assert_eq!(forget(&nothing, "data", false), Err(Code::ArrayNotFound));
        dir.not_expected(&BTreeSet::from([second]), &[]);
        assert_eq!(dir.missing(&[], nothing), []);
    }
}
