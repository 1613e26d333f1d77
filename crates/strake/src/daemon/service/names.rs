//! Which array a name means on this machine.
//!
//! An array carries its name, so drives from another host may bring one that an array has here.
//! Then the name means the array that was last served by it here: that is remembered, also over a
//! restart of the machine, until the array is destroyed, renamed, or another is imported by the
//! name. Where nothing is remembered and two arrays of one name can be started, neither is started
//! by itself.
//!
//! Invariants: what is remembered is needed for no array's data; an array has one name here.
//! Deliberately absent: arrays that belong to a host. Drives that are brought here are meant to be
//! served.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use strake_format::{ArrayName, ArrayUuid};

use crate::api::{ArrayJson, ImportRequest};
use crate::common::errors::{Code, Failure};
use crate::common::files::{self, read_file};
use crate::daemon::array::running;
use crate::daemon::array::running::Start;
use crate::daemon::events::Happened;
use crate::daemon::service::Service;
use crate::daemon::service::rename;
use crate::daemon::state;
use crate::daemon::state::Dir;
use crate::drives::find;
use crate::drives::find::{FoundArray, Readiness};
use crate::settings::words::parse_name;

/// What a name means.
#[derive(Serialize, Deserialize)]
pub(crate) struct NameRecord {
    uuid: String,
}

impl Dir {
    fn name_file(&self, name: &ArrayName) -> PathBuf {
        self.names().join(format!("{name}.json"))
    }
    /// The array that this name means here.
    pub(crate) fn owner(&self, name: &ArrayName) -> Option<ArrayUuid> {
        let text = read_file(self.name_file(name)).ok()?;
        let record: NameRecord = serde_json::from_slice(&text).ok()?;
        record.uuid.parse().ok()
    }
    /// The same of what a user gave, which may be no name.
    pub(crate) fn meant(&self, name: &str) -> Option<ArrayUuid> {
        self.owner(&name.parse().ok()?)
    }
    /// The name means this array from now on, and the array has no other. A note where that is not
    /// remembered.
    pub(crate) fn own(&self, name: &ArrayName, array: ArrayUuid) -> Option<String> {
        let mut note = None;
        if self.owner(name) != Some(array) {
            let record = NameRecord {
                uuid: array.to_string(),
            };
            let file = self.name_file(name);
            if let Err(error) = state::replace(&file, &record) {
                tracing::warn!(%error, "it is not remembered which array {name} is");
                let file = file.display();
                note = Some(format!(
                    "{file}: not remembered that {name} is {array}: {error}"
                ));
            }
        }
        self.disown(array, Some(name));
        note
    }
    /// No name but this one means this array.
    pub(crate) fn disown(&self, array: ArrayUuid, but: Option<&ArrayName>) {
        for (name, owner) in self.owned() {
            if owner == array && Some(&name) != but {
                // Read as ours a moment ago; if it was removed meanwhile, that was the aim.
                let _ = files::remove(&self.name_file(&name));
            }
        }
    }
    /// Arrays that have a name here, by their names.
    pub(crate) fn owned(&self) -> Vec<(ArrayName, ArrayUuid)> {
        self.try_owned().unwrap_or_else(|error| {
            tracing::warn!(%error, "it cannot be read which arrays are known");
            Vec::new()
        })
    }
    /// The same.
    ///
    /// # Errors
    /// The folder, or a file in it, cannot be read.
    pub(crate) fn try_owned(&self) -> io::Result<Vec<(ArrayName, ArrayUuid)>> {
        let files = match fs::read_dir(self.names()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files?,
        };
        let mut owned = Vec::new();
        for file in files {
            let name = file?.file_name();
            let name = name.to_str().and_then(|name| name.strip_suffix(".json"));
            let Some(name) = name.and_then(|name| name.parse::<ArrayName>().ok()) else {
                continue;
            };
            let text = match read_file(self.name_file(&name)) {
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                text => text?,
            };
            let record: Option<NameRecord> = serde_json::from_slice(&text).ok();
            if let Some(owner) = record.and_then(|record| record.uuid.parse().ok()) {
                owned.push((name, owner));
            }
        }
        owned.sort();
        Ok(owned)
    }
}

/// How this array can be had beside the one that has its name.
fn cure(array: ArrayUuid) -> String {
    format!("strake import {array} --as NAME starts this one under another name")
}

/// Refuses to serve an array by a name that means another one here.
///
/// # Errors
/// It does.
pub(crate) fn check_owner(dir: &Dir, name: &ArrayName, array: ArrayUuid) -> Result<(), Failure> {
    // One that a restore makes in the place of another has its name.
    let mine = |owner: &ArrayUuid| *owner == array || dir.elder_of(array) == Some(*owner);
    match dir.owner(name).filter(|owner| !mine(owner)) {
        None => Ok(()),
        Some(owner) => {
            let found = format!("here {name} is array {owner}; this one is {array}");
            let cure = format!("{}, strake import {array} by this one", cure(array));
            Err(Failure::new(Code::NameOfAnother, found).cure(cure))
        }
    }
}

impl Service {
    /// Refuses to serve an array by the name of one that is served, or a copy of one.
    pub(super) fn check_serving(
        &self,
        name: &ArrayName,
        found: &FoundArray,
    ) -> Result<(), Failure> {
        self.check_no_copy(found)?;
        match self.find_running(name.as_str()) {
            Some(other) if other.uuid != found.uuid => {
                let what = format!("another array called {name} is running");
                Err(Failure::new(Code::NameExists, what).cure(cure(found.uuid)))
            }
            _ => Ok(()),
        }
    }

    /// Refuses to start a copy of an array that is in service, whatever the copy is called.
    fn check_no_copy(&self, found: &FoundArray) -> Result<(), Failure> {
        let Some(running) = self.find_serving(&found.uuid.to_string()) else {
            return Ok(());
        };
        let copies = found.members.iter().map(|m| m.path.display().to_string());
        let copies: Vec<String> = copies.collect();
        let what = format!(
            "array {} is in service as {}; copies of its members are on {}",
            found.uuid,
            running.name(),
            copies.join(", ")
        );
        let cure = format!(
            "strake show {name} says which devices it has; take the copies away, or strake stop \
             {name} and start the array with the devices named",
            name = running.name()
        );
        Err(Failure::new(Code::ArrayInUse, what).cure(cure))
    }

    /// Refuses to choose between arrays of one name of which none was ever served here.
    pub(super) fn check_alone(&self, found: &FoundArray) -> Result<(), Failure> {
        if self.dir.owner(found.name()).is_some() {
            return Ok(());
        }
        let startable =
            |a: &FoundArray| matches!(a.readiness(), Readiness::Complete | Readiness::Degraded);
        let all = self.scan(&[]);
        let twin = |a: &&FoundArray| a.uuid != found.uuid && a.name() == found.name();
        match all.iter().find(|a| twin(a) && startable(a)) {
            None => Ok(()),
            Some(twin) => {
                let name = found.name();
                let what = format!(
                    "two arrays are called {name}: {}, {}",
                    found.uuid, twin.uuid
                );
                Err(Failure::new(Code::NameAmbiguous, what).cure(cure(found.uuid)))
            }
        }
    }

    /// Serves an array that may be another host's, perhaps by another name.
    pub(crate) fn import(&self, array: &str, request: ImportRequest) -> Result<ArrayJson, Failure> {
        let mut keys = self.keys(array);
        keys.extend(request.name.clone());
        running::check_export(request.export.as_deref())?;
        let wanted = request.name.as_deref().map(parse_name).transpose()?;
        if self.find_running(array).is_none() {
            // Before the change: a device that hangs would hold up others of the array.
            find::answering(&self.looks, &find::expand(&request.devices))?;
        }
        let _change = self.changes.begin_holding("strake import", keys)?;
        if let Some(running) = self.find_running(array) {
            return match wanted {
                Some(name) if name != running.name() => {
                    let what = format!("{array} is running as {}", running.name());
                    let cure = format!("strake rename {} {name}", running.name());
                    Err(Failure::new(Code::ArrayInUse, what).cure(cure))
                }
                _ => running.json().map(|array| self.placed(array)),
            };
        }
        let mut all = self.scan(&request.devices);
        let found = self.pick_named(all.clone(), array, &request.devices)?;
        if !request.devices.is_empty() {
            all.extend(self.scan(&[]));
        }
        let name = wanted.unwrap_or_else(|| found.name().clone());
        self.check_serving(&name, &found)?;
        rename::check_free(&name, found.uuid, &all).map_err(|f| f.cure(cure(found.uuid)))?;
        let how = Start {
            name: Some(name.clone()),
            ..self.how(request.export, request.force)
        };
        if request.dry_run {
            let would_wipe = self.may_start(&found, &how)?;
            return Ok(ArrayJson {
                name: name.to_string(),
                would_wipe,
                ..self.placed(found.stopped_json())
            });
        }
        let running = self.start_found(&found, &how)?;
        self.events.note(Happened {
            array: Some(name.to_string()),
            event: "imported",
            cause: Some("asked".to_owned()),
            effect: Some(format!("array {}, was called {}", found.uuid, found.name())),
            ..Happened::default()
        });
        running.json().map(|array| self.placed(array))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_one_array_and_an_array_has_one_name() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        dir.make().expect("folders");
        let name = |text: &str| text.parse::<ArrayName>().expect("a name");
        let (first, second) = (ArrayUuid([1; 16]), ArrayUuid([2; 16]));
        assert_eq!(dir.owner(&name("data")), None);
        dir.own(&name("data"), first);
        dir.own(&name("more.json"), second);
        assert!(check_owner(&dir, &name("data"), first).is_ok());
        let refused = check_owner(&dir, &name("data"), second).map_err(|f| f.code);
        assert_eq!(refused, Err(Code::NameOfAnother));
        // By another name.
        dir.own(&name("store"), first);
        assert_eq!(dir.owner(&name("data")), None);
        assert_eq!(dir.owner(&name("more.json")), Some(second));
        // Another array by its name.
        dir.own(&name("store"), second);
        assert_eq!(dir.owner(&name("store")), Some(second));
        assert_eq!(dir.owner(&name("more.json")), None);
        dir.forget(second);
        assert_eq!(dir.owner(&name("store")), None);
        // What cannot be read says nothing.
        fs::write(dir.name_file(&name("data")), "{").expect("written");
        assert_eq!(dir.owner(&name("data")), None);
    }
}
