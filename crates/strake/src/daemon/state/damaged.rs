//! Files of the daemon's state that cannot be read: cut off, overwritten, no file at all.
//!
//! What such a file said is not known, and the daemon goes on without it, as where nothing was ever
//! said. That is an event, looked for once when the daemon starts, and the file is set aside as
//! `NAME.damaged`, so that what is remembered next does not take its place.
//!
//! Invariants: nothing is moved without the lock of the folder; nothing here keeps a daemon from
//! starting, but for a link to what is not there, which may hold what is kept. Deliberately absent:
//! the journals of events and of wear, of which lines are passed over by themselves.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::common::errors::{Code, Failure};
use crate::common::files::{self, read_file};
use crate::daemon::array::seats::Seats;
use crate::daemon::events::{EventLog, Happened};
use crate::daemon::service::names::NameRecord;
use crate::daemon::service::scrubs::PastScrub;
use crate::daemon::state::heirs::Heir;
use crate::daemon::state::{ArrayRecord, Dir};
use crate::settings::placement::PlacementRecord;

/// Why a file cannot be read as what it is, and what is not known for it.
type Check = fn(&Path) -> Option<String>;

/// The folders of state, what lies in their files, and what becomes of an array without one.
const FOLDERS: [(&str, Check, &str); 6] = [
    (
        "arrays",
        check::<ArrayRecord>,
        "how the array was exported is not known",
    ),
    (
        "placement",
        check::<PlacementRecord>,
        "what was set for the array on this machine (degraded start, pool, memory, CPUs, \
         requests, export) is not known: strake set sets it again",
    ),
    (
        "names",
        check::<NameRecord>,
        "which array has this name here is not known",
    ),
    (
        "seats",
        check::<Seats>,
        "which devices left the slots of the array is not known",
    ),
    (
        "scrubs",
        check::<Vec<PastScrub>>,
        "what past scrubs of the array found is not known",
    ),
    (
        "heirs",
        check::<Heir>,
        "a restore that was cut off is not gone on with by itself",
    ),
];

fn check<T: DeserializeOwned>(path: &Path) -> Option<String> {
    match read_file(path) {
        Ok(text) => Some(serde_json::from_slice::<T>(&text).err()?.to_string()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(error.to_string()),
    }
}

impl Dir {
    /// Sets files aside that cannot be read, and says so.
    pub(crate) fn set_damaged_aside(&self, events: &EventLog) {
        let known = self.path().join("known-files.json");
        if let Some(why) = check::<Vec<PathBuf>>(&known) {
            let effect = "files that are members are not found by themselves: strake start NAME \
                          DEV names them again";
            tell(events, &known, &why, effect);
        }
        for (name, check, effect) in FOLDERS {
            let folder = match name {
                "arrays" => self.path().join(name),
                _ => self.lasting(name),
            };
            for file in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = file.path();
                if path.extension().is_some_and(|kind| kind == "json")
                    && let Some(why) = check(&path)
                {
                    tell(events, &path, &why, effect);
                }
            }
        }
    }
}

/// A file in place of a folder of state.
#[derive(Debug)]
pub(crate) struct InPlaceOf {
    folder: PathBuf,
    kept: io::Result<String>,
}

impl Dir {
    /// All folders of state.
    fn folders(&self) -> Vec<PathBuf> {
        let here = ["arrays", "nbd", "volumes"].map(|name| self.path().join(name));
        let lasting = FOLDERS.map(|(name, ..)| self.lasting(name)).into_iter();
        let lasting = lasting.chain(["destroyed", "restoring", "alerts"].map(|n| self.lasting(n)));
        let mut all: Vec<PathBuf> = here.into_iter().chain(lasting).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Refuses a folder of state that is a link and leads nowhere: what is kept there may be on a
    /// device that is not mounted yet.
    pub(crate) fn links_lead_somewhere(&self) -> Result<(), Failure> {
        for folder in self.folders() {
            let (Ok(target), Err(error)) = (fs::read_link(&folder), fs::metadata(&folder)) else {
                continue;
            };
            let (shown, to) = (folder.display(), target.display());
            let found = format!("{shown} is a link to {to}, which leads nowhere ({error})");
            let cure = "mount what it leads to, or make that folder, or remove the link";
            return Err(Failure::new(Code::StateDir, found).cure(cure));
        }
        Ok(())
    }

    /// Sets files aside that lie where folders of state are to be; for the daemon that has the
    /// lock.
    pub(crate) fn set_files_aside(&self) -> Vec<InPlaceOf> {
        let mut all = self.folders();
        // A link to a folder is one.
        all.retain(|path| fs::symlink_metadata(path).is_ok() && !path.is_dir());
        let aside = |folder: PathBuf| InPlaceOf {
            kept: set_aside(&folder),
            folder,
        };
        all.into_iter().map(aside).collect()
    }
}

/// Notes that a file lay where a folder of state is to be.
pub(crate) fn note_file(events: &EventLog, file: &InPlaceOf) {
    let why = "it was a file, and a folder is to be there";
    let effect = "nothing that was kept in a folder there is known";
    note(events, &file.folder, why, effect, &file.kept);
}

fn tell(events: &EventLog, path: &Path, why: &str, effect: &str) {
    note(events, path, why, effect, &set_aside(path));
}

fn note(events: &EventLog, path: &Path, why: &str, effect: &str, kept: &io::Result<String>) {
    let kept = match kept {
        Ok(kept) => kept.clone(),
        Err(error) => format!("it stays where it is ({error})"),
    };
    events.note(Happened {
        event: "state_damaged",
        cause: Some(format!("{}: {why}", path.display())),
        effect: Some(format!("{effect}; {kept}")),
        ..Happened::default()
    });
}

fn set_aside(path: &Path) -> io::Result<String> {
    let mut name = path.as_os_str().to_owned();
    name.push(".damaged");
    files::rename(path, Path::new(&name))?;
    Ok(format!("it is kept as {}", name.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_told_and_kept_and_what_can_be_stays() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        dir.make().expect("folders");
        dir.remember_files(&[PathBuf::from("/a")]).expect("write");
        let placement = temporary.path().join("placement/x.json");
        fs::write(&placement, b"{\"cpus\":[0").expect("write");
        let name = temporary.path().join("names/y.json");
        fs::create_dir(&name).expect("made");
        let events = EventLog::open(&[temporary.path().join("events.jsonl")]);
        dir.set_damaged_aside(&events);
        assert_eq!(dir.known_files(), [PathBuf::from("/a")]);
        for gone in [&placement, &name] {
            assert!(!gone.exists());
            assert!(gone.with_extension("json.damaged").exists());
        }
        fs::write(temporary.path().join("known-files.json"), b"").expect("write");
        dir.set_damaged_aside(&events);
        dir.remember_files(&[PathBuf::from("/b")]).expect("write");
        assert!(temporary.path().join("known-files.json.damaged").exists());
    }
}
