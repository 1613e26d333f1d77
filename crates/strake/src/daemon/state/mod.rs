//! What a daemon keeps in STRAKE_DIR: lock, socket, known files, the export of each array; and what
//! must outlive a restart of the machine: what an array may take of it, which array a name means,
//! how drives wear, what scrubs found, what happened, what was in which slot.
//!
//! Without STRAKE_DIR these are two folders, because /run is empty after a restart of the machine.
//!
//! Invariant: nothing here is needed to find an array's data again; the members carry that. It only
//! spares the administrator from naming files again, and lets a daemon that was killed take its
//! exports back. Files are replaced by rename, never rewritten in place.

pub(crate) mod backed_up;
pub(crate) mod damaged;
pub(crate) mod destroyed;
pub(crate) mod heirs;
pub(crate) mod served;
pub(crate) mod spares;
pub(crate) mod wear;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use strake_format::{ArrayName, ArrayUuid};

use crate::common::errors::{Code, Failure};
use crate::common::files::{self, UNNAMED, read_file, replace_bytes};
use crate::common::{all_quoted, quoted};
use crate::config;
use crate::daemon::array::seats::Seats;
use crate::daemon::service::scrubs::PastScrub;
use crate::drives::machine::answering;
use crate::settings::placement::PlacementRecord;

/// A file with such a name is written no more after so long.
const LEFT_AFTER: Duration = Duration::from_secs(600);
/// A daemon that is just dying lets go of its folder within so long.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// The folder of one daemon.
#[derive(Clone, Debug)]
pub(crate) struct Dir {
    here: PathBuf,
    /// For what outlives a restart of the machine.
    lasting: PathBuf,
}

/// What is remembered of an array while the kernel may still have its ublk device.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ArrayRecord {
    pub(crate) name: String,
    /// `auto`, `ublk`, `nbd` or `none`, as asked for.
    pub(crate) export: String,
    /// N of /dev/ublkbN, while it is served.
    pub(crate) ublk: Option<u32>,
    /// The same for each of its volumes, by uuid.
    #[serde(default)]
    pub(crate) volumes: BTreeMap<String, u32>,
    /// What these volumes are called, by uuid.
    #[serde(default)]
    pub(crate) volume_names: BTreeMap<String, String>,
}

impl ArrayRecord {
    /// Forgets the block devices that are another array's now; were there any?
    fn strike(&mut self, other: &ArrayRecord) -> bool {
        let is_others =
            |id: &u32| other.ublk == Some(*id) || other.volumes.values().any(|has| has == id);
        let before = self.volumes.len();
        self.volumes.retain(|_, id| !is_others(id));
        let volumes = &self.volumes;
        self.volume_names
            .retain(|uuid, _| volumes.contains_key(uuid));
        self.ublk.take_if(|id| is_others(id)).is_some() || self.volumes.len() < before
    }
}

/// What `/dev/ublkbN` is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExportedAs {
    pub(crate) array: ArrayUuid,
    pub(crate) name: ArrayName,
    /// Uuid and name of the volume, if it is one.
    pub(crate) volume: Option<(String, ArrayName)>,
}

/// Held for the daemon's life.
#[derive(Debug)]
pub(crate) struct DirLock {
    file: File,
}

impl DirLock {
    /// Is this the lock of the folder that has this path now?
    pub(crate) fn is_at(&self, dir: &Dir) -> bool {
        use std::os::unix::fs::MetadataExt;
        let there = fs::symlink_metadata(dir.lock_file());
        let (Ok(held), Ok(there)) = (self.file.metadata(), there) else {
            return false;
        };
        (held.dev(), held.ino()) == (there.dev(), there.ino())
    }
}

impl Dir {
    /// `STRAKE_DIR`, or /run/strake and /var/lib/strake.
    pub(crate) fn from_env() -> Dir {
        match std::env::var_os("STRAKE_DIR").filter(|dir| !dir.is_empty()) {
            Some(dir) => {
                // Behind a slash at the end, a link would be its target.
                let path: PathBuf = PathBuf::from(dir).components().collect();
                Dir::at(&std::path::absolute(&path).unwrap_or(path))
            }
            None => Dir {
                here: PathBuf::from("/run/strake"),
                lasting: PathBuf::from("/var/lib/strake"),
            },
        }
    }
    /// A given folder.
    pub(crate) fn at(path: &Path) -> Dir {
        Dir {
            here: path.to_owned(),
            lasting: path.to_owned(),
        }
    }
    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.here
    }
    /// The API's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.here.join("api.sock")
    }
    /// Where the journal of events may lie: the first that can be written has it.
    pub(crate) fn events(&self) -> [PathBuf; 2] {
        [&self.lasting, &self.here].map(|dir| dir.join("events.jsonl"))
    }
    /// Where alerts that are not delivered may lie: in the first that can be written.
    pub(crate) fn alerts(&self) -> [PathBuf; 2] {
        [&self.lasting, &self.here].map(|dir| dir.join("alerts"))
    }
    /// How drives wear.
    pub(crate) fn wear(&self) -> PathBuf {
        self.lasting.join("wear.jsonl")
    }
    /// The daemon's configuration, unless it is told of another file.
    pub(crate) fn config(&self) -> PathBuf {
        match self.here == self.lasting {
            true => self.here.join("strake.toml"),
            false => PathBuf::from(config::PATH),
        }
    }
    /// What the configuration was when it could be used last.
    pub(crate) fn last_config(&self) -> PathBuf {
        self.lasting.join("last-config.toml")
    }
    /// The NBD socket of an array.
    pub(crate) fn nbd_socket(&self, name: &ArrayName) -> PathBuf {
        self.here.join("nbd").join(format!("{name}.sock"))
    }

    /// The NBD socket of a volume.
    pub(crate) fn volume_socket(&self, array: &ArrayName, volume: &ArrayName) -> PathBuf {
        let folder = self.here.join("volumes").join(array.as_str());
        folder.join(format!("{volume}.sock"))
    }

    /// Makes a folder that only the owner may enter.
    pub(crate) fn make_folder(&self, dir: &Path) -> Result<(), Failure> {
        files::make_folder(dir).map_err(|error| match fs::symlink_metadata(dir) {
            Ok(there) if !there.is_dir() => {
                let shown = dir.display();
                let found = format!("{shown} is no folder, and one is to be there");
                let quoted = quoted(dir);
                Failure::new(Code::StateDir, found).cure(format!("mv {quoted} {quoted}.aside"))
            }
            _ => Failure::io(dir.display(), &error),
        })
    }

    /// Refuses a folder of the socket that does not answer at all, as that of a server that is
    /// gone: what looks at it waits for good. To be asked before anything else touches it.
    pub(crate) fn here_answers(&self) -> Result<(), Failure> {
        answers(&self.here)
    }

    /// The same for the folder of what outlives a restart of the machine, which a command touches
    /// only where no daemon listens. One folder is not asked twice.
    pub(crate) fn lasting_answers(&self) -> Result<(), Failure> {
        match self.lasting == self.here {
            true => Ok(()),
            false => answers(&self.lasting),
        }
    }

    /// The folders that all others lie in.
    pub(crate) fn roots(&self) -> Vec<&Path> {
        let mut folders = vec![self.here.as_path(), &self.lasting];
        folders.dedup();
        folders
    }

    /// Refuses folders on a file system that takes no change: what is begun there does not end, and
    /// neither does the process that began it.
    pub(crate) fn takes_changes(&self) -> Result<(), Failure> {
        for folder in self.roots() {
            if !answering::takes_changes(folder) {
                let shown = folder.display();
                let found = format!("the file system of {shown} takes no change: no answer");
                return Err(Failure::new(Code::StateDirSilent, found));
            }
        }
        Ok(())
    }

    /// Refuses a folder that another user owns or may write, or a link to one: a user that can put
    /// files there decides what is started.
    fn check_owner(&self, dir: &Path) -> Result<(), Failure> {
        use rustix::fs::{Mode, OFlags, fstat, open};
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let shown = dir.display();
        let refused = |found: String| Err(Failure::new(Code::StateDir, found));
        let folder = match open(dir, flags, Mode::empty()) {
            Ok(folder) => folder,
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
                return refused(format!(
                    "{shown} is no folder of its own, but a link or a file"
                ));
            }
            Err(error) => return Err(Failure::io(shown, &error.into())),
        };
        let stat = fstat(&folder).map_err(|error| Failure::io(shown, &error.into()))?;
        let own = rustix::process::geteuid().as_raw();
        // What root keeps there is believed by every user.
        if stat.st_uid != own && stat.st_uid != 0 {
            return refused(format!(
                "{} is owned by user {}, not by user {own}",
                dir.display(),
                stat.st_uid
            ));
        }
        match stat.st_mode & 0o022 {
            0 => Ok(()),
            _ => refused(format!(
                "{} can be written by others (mode {:o})",
                dir.display(),
                stat.st_mode & 0o7777
            )),
        }
    }

    /// Refuses folders that are there and not this user's own.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        for dir in [&self.here, &self.lasting] {
            if fs::symlink_metadata(dir).is_ok() {
                self.check_owner(dir)?;
            }
        }
        Ok(())
    }

    fn make_here(&self, folder: &Path) -> Result<(), Failure> {
        self.make_folder(folder)
            .map_err(|failure| match failure.code {
                Code::StateDir => failure,
                _ => failure.cure("set STRAKE_DIR to a folder of your own"),
            })
    }

    /// Makes the folder that the lock is in.
    pub(crate) fn make_own(&self) -> Result<(), Failure> {
        if self.here.exists() {
            self.check_owner(&self.here)?;
        }
        self.make_here(&self.here)?;
        self.check_owner(&self.here)
    }

    /// Makes the folder and those in it.
    pub(crate) fn make(&self) -> Result<(), Failure> {
        let make = |dir: PathBuf| self.make_folder(&dir);
        self.make_own()?;
        for dir in ["arrays", "nbd"] {
            self.make_here(&self.here.join(dir))?;
        }
        if self.lasting.exists() {
            self.check_owner(&self.lasting)?;
        }
        // A machine without a writable /var serves all the same.
        for dir in self.lasting_folders() {
            if let Err(failure) = make(dir) {
                tracing::warn!(%failure, "nothing that outlives a restart of the machine is kept");
            }
        }
        Ok(())
    }

    /// The folders below that for what outlives a restart of the machine.
    fn lasting_folders(&self) -> impl Iterator<Item = PathBuf> {
        let lasting = ["placement", "scrubs", "restoring", "seats", "served"]
            .map(|name| self.lasting.join(name));
        lasting.into_iter().chain([self.names()])
    }

    /// Removes files that a killed process left before it gave them their names. A young one may be
    /// that of a command that still writes it.
    fn remove_leftovers(&self) {
        let own = [
            self.here.clone(),
            self.here.join("arrays"),
            self.lasting.clone(),
        ];
        for folder in own.into_iter().chain(self.lasting_folders()) {
            let Ok(entries) = fs::read_dir(&folder) else {
                continue;
            };
            for entry in entries.flatten() {
                let unnamed = entry
                    .file_name()
                    .as_encoded_bytes()
                    .starts_with(UNNAMED.as_bytes());
                let about = entry.metadata().ok().filter(fs::Metadata::is_file);
                let written = about.and_then(|about| about.modified().ok());
                let age = written.and_then(|written| written.elapsed().ok());
                if unnamed && age.is_some_and(|age| age > LEFT_AFTER) {
                    let left = entry.path();
                    match files::remove(&left) {
                        Ok(()) => tracing::info!(left = %left.display(), "removed"),
                        Err(error) => tracing::warn!(left = %left.display(), %error, "stays"),
                    }
                }
            }
        }
    }

    fn lock_file(&self) -> PathBuf {
        self.here.join("lock")
    }

    /// Takes the lock of the folder.
    pub(crate) fn lock(&self) -> Result<DirLock, Failure> {
        let path = self.lock_file();
        let file = files::lockable(&path).map_err(|e| Failure::io(path.display(), &e))?;
        if !files::locked_within(&file, LOCK_PATIENCE) {
            let found = format!("another daemon serves {}", self.here.display());
            return Err(Failure::new(Code::DaemonRunning, found));
        }
        self.remove_leftovers();
        Ok(DirLock { file })
    }

    /// Devices and files that carried members when last seen.
    pub(crate) fn known_files(&self) -> Vec<PathBuf> {
        let text = read_file(self.here.join("known-files.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
    /// Remembers paths.
    pub(crate) fn remember_files(&self, paths: &[PathBuf]) -> io::Result<()> {
        let known = self.known_files();
        if paths.iter().all(|path| known.contains(path)) {
            return Ok(());
        }
        let paths = paths.to_vec();
        self.change_known(files::TURN_PATIENCE, move |known| {
            for path in paths {
                if !known.contains(&path) {
                    known.push(path);
                }
            }
        })
    }
    /// Changes the paths that are known. Commands without a daemon run beside each other, and
    /// beside a daemon: one at a time reads what the other has written.
    fn change_known(
        &self,
        patience: Duration,
        change: impl FnOnce(&mut Vec<PathBuf>) + Send + 'static,
    ) -> io::Result<()> {
        let file = self.here.join("known-files.json");
        let turn = self.here.join("known-files.lock");
        files::change_in_turn(&file, &turn, patience, |text| {
            let mut known = match text {
                Some(text) => serde_json::from_slice(&text)?,
                None => Vec::new(),
            };
            change(&mut known);
            Ok(serde_json::to_vec(&known)?)
        })
    }
    /// Remembers the members of an array that was made; a note where that fails, and files are
    /// among them, which are not looked for.
    pub(crate) fn not_remembered(&self, array: &str, paths: &[PathBuf]) -> Option<String> {
        let error = self.remember_files(paths).err()?;
        tracing::warn!(%error, "the members' paths are not remembered");
        let file = |path: &PathBuf| fs::metadata(path).is_ok_and(|meta| meta.is_file());
        paths.iter().any(file).then(|| {
            format!(
                "files among its members are not remembered ({error}), and not found by \
                 themselves: strake start {array} {}",
                all_quoted(paths)
            )
        })
    }
    /// Forgets those of these paths that were not known before.
    pub(crate) fn forget_but(&self, paths: &[PathBuf], known: &[PathBuf]) {
        let new = |path: &&PathBuf| !known.contains(path);
        let new: Vec<PathBuf> = paths.iter().filter(new).cloned().collect();
        // One that stays known is looked at in vain.
        let _ = self.forget_files(&new);
    }
    /// Forgets paths.
    pub(crate) fn forget_files(&self, paths: &[PathBuf]) -> io::Result<()> {
        let known = self.known_files();
        if !paths.iter().any(|path| known.contains(path)) {
            return Ok(());
        }
        let paths = paths.to_vec();
        self.change_known(files::TURN_PATIENCE, move |known| {
            known.retain(|path| !paths.contains(path));
        })
    }

    fn record_name(uuid: ArrayUuid) -> PathBuf {
        Path::new("arrays").join(format!("{uuid}.json"))
    }
    /// What is remembered of an array.
    pub(crate) fn record(&self, uuid: ArrayUuid) -> Option<ArrayRecord> {
        serde_json::from_slice(&read_file(self.here.join(Dir::record_name(uuid))).ok()?).ok()
    }
    /// The array, and the volume, that `/dev/ublkbN` is remembered for.
    pub(crate) fn exported_as(&self, id: u32) -> Option<ExportedAs> {
        self.records().find_map(|(array, record)| {
            let mut volumes = record.volumes.iter();
            let volume = match volumes.find(|(_, has)| **has == id) {
                Some((uuid, _)) => {
                    let name = record.volume_names.get(uuid)?.parse().ok()?;
                    Some((uuid.clone(), name))
                }
                None if record.ublk == Some(id) => None,
                None => return None,
            };
            let name = record.name.parse().ok()?;
            Some(ExportedAs {
                array,
                name,
                volume,
            })
        })
    }
    /// Remembers it. What others were served as before, and is this one's now, is theirs no more:
    /// the kernel gives the number of a device that is gone to the next one, perhaps before the
    /// array has come to its end that had it.
    pub(crate) fn remember(&self, uuid: ArrayUuid, record: &ArrayRecord) -> io::Result<()> {
        for (other, mut before) in self.records() {
            if other != uuid && before.strike(record) {
                self.replace(&Dir::record_name(other), &before)?;
            }
        }
        self.replace(&Dir::record_name(uuid), record)
    }
    /// What is remembered of all arrays.
    fn records(&self) -> impl Iterator<Item = (ArrayUuid, ArrayRecord)> {
        let entries = fs::read_dir(self.here.join("arrays")).into_iter().flatten();
        entries.flatten().filter_map(|entry| {
            let file = entry.file_name();
            let array = file.to_str()?.strip_suffix(".json")?.parse().ok()?;
            Some((array, self.record(array)?))
        })
    }
    /// Forgets it.
    pub(crate) fn forget(&self, uuid: ArrayUuid) {
        // It may never have been remembered.
        let _ = files::remove(&self.here.join(Dir::record_name(uuid)));
        let _ = files::remove(&self.placement_file(uuid));
        let _ = files::remove(&self.scrubs_file(uuid));
        let _ = files::remove(&self.seats_file(uuid));
        self.forget_spares(uuid);
        self.not_served_any_more(uuid);
        self.has_inherited(uuid);
        self.disown(uuid, None);
    }

    /// A folder of what outlives a restart of the machine.
    pub(super) fn lasting(&self, name: &str) -> PathBuf {
        self.lasting.join(name)
    }

    /// The folder of what names mean.
    pub(super) fn names(&self) -> PathBuf {
        self.lasting.join("names")
    }

    fn placement_file(&self, uuid: ArrayUuid) -> PathBuf {
        self.lasting.join("placement").join(format!("{uuid}.json"))
    }
    /// What an array may take of this machine; what was never said is left to the runtime.
    pub(crate) fn placement(&self, uuid: ArrayUuid) -> PlacementRecord {
        let text = read_file(self.placement_file(uuid)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
    /// The same, where it matters that what was said is not passed over, or is to be said anew.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn try_placement(&self, uuid: ArrayUuid) -> Result<PlacementRecord, Failure> {
        let file = self.placement_file(uuid);
        let record = match read_file(&file) {
            Ok(text) => serde_json::from_slice(&text).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PlacementRecord::default()),
            Err(error) => Err(error),
        };
        record.map_err(|error| {
            let shown = file.display();
            let cure = format!(
                "what was set for the array on this machine (degraded, pool, memory_limit, cpus, \
                 shards, requests) is in that file: let it be read again, or put it aside (mv \
                 {quoted} {quoted}.damaged) and set it anew",
                quoted = quoted(&file)
            );
            Failure::io(shown, &error).cure(cure)
        })
    }
    /// Remembers it.
    pub(crate) fn place(&self, uuid: ArrayUuid, record: &PlacementRecord) -> Result<(), Failure> {
        let file = self.placement_file(uuid);
        replace(&file, record).map_err(|error| Failure::io(file.display(), &error))
    }

    /// Refuses where that could not be remembered of an array that is still to be made.
    pub(crate) fn may_place(&self, record: &PlacementRecord) -> Result<(), Failure> {
        let file = self.lasting.join("placement").join("rehearsal.json");
        let written = replace(&file, record).map_err(|error| Failure::io(file.display(), &error));
        // Remembered in vain is harmless.
        let _ = files::remove(&file);
        written
    }

    fn restoring_file(&self, name: &str) -> PathBuf {
        self.lasting.join("restoring").join(format!("{name}.json"))
    }
    /// Remembers, also when the power goes, which device is in which slot of an array that is about
    /// to be restored. Answers in which file.
    pub(crate) fn restoring(&self, name: &str, devices: &[PathBuf]) -> Result<PathBuf, Failure> {
        let file = self.restoring_file(name);
        replace(&file, &devices).map_err(|error| Failure::io(file.display(), &error))?;
        Ok(file)
    }
    /// It is restored.
    pub(crate) fn restored(&self, name: &str) {
        // It tells of what was, and is harmless.
        let _ = files::remove(&self.restoring_file(name));
    }

    fn seats_file(&self, uuid: ArrayUuid) -> PathBuf {
        self.lasting.join("seats").join(format!("{uuid}.json"))
    }
    /// What is and was in the slots of an array.
    pub(crate) fn seats(&self, uuid: ArrayUuid) -> Seats {
        let text = read_file(self.seats_file(uuid)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
    /// Remembers it.
    pub(crate) fn keep_seats(&self, uuid: ArrayUuid, seats: &Seats) -> Result<(), Failure> {
        let file = self.seats_file(uuid);
        replace(&file, seats).map_err(|error| Failure::io(file.display(), &error))
    }

    fn scrubs_file(&self, uuid: ArrayUuid) -> PathBuf {
        self.lasting.join("scrubs").join(format!("{uuid}.json"))
    }
    /// What past scrubs of an array found.
    pub(crate) fn scrubs(&self, uuid: ArrayUuid) -> Vec<PastScrub> {
        let text = read_file(self.scrubs_file(uuid)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
    /// Remembers it.
    pub(crate) fn keep_scrubs(&self, uuid: ArrayUuid, past: &[PastScrub]) -> Result<(), Failure> {
        let file = self.scrubs_file(uuid);
        replace(&file, &past).map_err(|error| Failure::io(file.display(), &error))
    }

    fn replace<T: Serialize>(&self, name: &Path, value: &T) -> io::Result<()> {
        replace(&self.here.join(name), value)
    }
}

fn answers(folder: &PathBuf) -> Result<(), Failure> {
    if answering::can_be_looked_at(folder) {
        return Ok(());
    }
    let shown = folder.display();
    let found = format!("the file system of {shown} cannot be looked at: no answer");
    Err(Failure::new(Code::StateDirSilent, found))
}

/// Puts a value in place of another, whole or not at all.
pub(super) fn replace<T: Serialize>(target: &Path, value: &T) -> io::Result<()> {
    replace_bytes(target, &serde_json::to_vec(value)?)
}

/// Remembers what an array may take of this machine, if something was said.
pub(crate) fn keep_placement(
    dir: &Dir,
    array: ArrayUuid,
    placement: &PlacementRecord,
) -> Result<(), Failure> {
    if *placement == PlacementRecord::default() {
        return Ok(());
    }
    let cure = "the array was made: strake start NAME DEV… serves it; what it may take of this \
                machine is not kept, strake set NAME sets it again";
    dir.place(array, placement).map_err(|f| f.cure(cure))
}

/// Refuses, before anything is written, what could not be kept of it.
pub(crate) fn may_keep(dir: &Dir, placement: &PlacementRecord) -> Result<(), Failure> {
    if *placement == PlacementRecord::default() {
        return Ok(());
    }
    dir.may_place(placement).map_err(|failure| {
        let first = match failure.code {
            Code::NoSpace => "make room in that file system",
            _ => "let this user write that folder",
        };
        let cure = format!(
            "nothing was written: {first}, or omit what is kept there (--export, --cpus, --shards, \
             --memory-limit, --requests, --pool, --degraded)"
        );
        failure.cure(cure)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn paths_that_are_remembered_at_once_are_all_known() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        dir.make().expect("folders");
        let paths: Vec<PathBuf> = (0..12).map(|n| PathBuf::from(format!("/{n}"))).collect();
        std::thread::scope(|scope| {
            for some in paths.chunks(3) {
                let dir = &dir;
                scope.spawn(move || {
                    for path in some {
                        let path = std::slice::from_ref(path);
                        dir.remember_files(path).expect("write");
                    }
                });
            }
        });
        let mut known = dir.known_files();
        known.sort_by_key(|path| path.to_str().and_then(|p| p[1..].parse::<u32>().ok()));
        assert_eq!(known, paths);
    }

    /// It was taken for an empty one, and all that it named was forgotten.
    #[test]
    fn a_list_of_files_that_cannot_be_read_is_not_replaced() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        dir.make().expect("folders");
        let file = temporary.path().join("known-files.json");
        for damaged in ["", "[\"/a\", \"/b"] {
            fs::write(&file, damaged).expect("written");
            let new = [PathBuf::from("/c")];
            assert!(dir.remember_files(&new).is_err(), "{damaged:?}");
            let left = fs::read_to_string(&file).expect("it is there");
            assert_eq!(left, damaged);
        }
        fs::remove_file(&file).expect("it is there");
        dir.remember_files(&[PathBuf::from("/c")])
            .expect("no file is an empty list");
        assert_eq!(dir.known_files(), [PathBuf::from("/c")]);
    }

    /// It went on without its turn, and what the other process wrote last was lost.
    #[test]
    fn paths_are_not_remembered_beside_a_process_that_has_the_turn_and_it_is_named() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        dir.make().expect("folders");
        dir.remember_files(&[PathBuf::from("/a")]).expect("write");
        let turn = files::lockable(&temporary.path().join("known-files.lock")).expect("there");
        assert!(files::locked_within(&turn, Duration::ZERO));
        let refused = dir.change_known(Duration::ZERO, Vec::clear);
        let why = refused.expect_err("it has no turn").to_string();
        let pid = format!("process {} ", std::process::id());
        assert!(
            why.starts_with(&pid) && why.contains("known-files.json"),
            "{why}"
        );
        assert_eq!(dir.known_files(), [PathBuf::from("/a")]);
        drop(turn);
        dir.change_known(Duration::ZERO, Vec::clear).expect("free");
        assert_eq!(dir.known_files(), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_is_remembered_is_read_back_and_forgotten() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        dir.make().expect("folders");
        let paths = [PathBuf::from("/a"), PathBuf::from("/b")];
        dir.remember_files(&paths).expect("write");
        dir.remember_files(&paths[..1]).expect("write");
        assert_eq!(dir.known_files(), paths);
        dir.forget_files(&paths[..1]).expect("write");
        assert_eq!(dir.known_files(), paths[1..]);
        let uuid = ArrayUuid([7; 16]);
        let record = ArrayRecord {
            name: "d".into(),
            export: "ublk".into(),
            ublk: Some(3),
            volumes: BTreeMap::from([("v".into(), 4)]),
            volume_names: BTreeMap::from([("v".into(), "home".into())]),
        };
        dir.remember(uuid, &record).expect("write");
        assert_eq!(dir.record(uuid).and_then(|r| r.ublk), Some(3));
        assert_eq!(dir.record(uuid).map(|r| r.volumes["v"]), Some(4));
        let named = |text: &str| text.parse::<ArrayName>().expect("a name");
        let whole = ExportedAs {
            array: uuid,
            name: named("d"),
            volume: None,
        };
        let volume = ExportedAs {
            volume: Some(("v".into(), named("home"))),
            ..whole.clone()
        };
        assert_eq!(dir.exported_as(3), Some(whole));
        assert_eq!(dir.exported_as(4), Some(volume));
        assert_eq!(dir.exported_as(5), None);
        // Another array stops, and the kernel gives its number away before it has come to its end.
        let next = ArrayRecord {
            name: "e".into(),
            volumes: BTreeMap::from([("w".into(), 4)]),
            volume_names: BTreeMap::from([("w".into(), "srv".into())]),
            ..record.clone()
        };
        let other = ArrayUuid([8; 16]);
        dir.remember(other, &next).expect("write");
        let names = [3, 4].map(|id| {
            dir.exported_as(id)
                .map(|as_| (as_.array, as_.name.to_string()))
        });
        assert_eq!(names, [0, 1].map(|_| Some((other, "e".to_owned()))));
        let left = dir.record(uuid).expect("it is remembered");
        assert!(left.ublk.is_none() && left.volumes.is_empty() && left.volume_names.is_empty());
        dir.forget(other);
        dir.remember(uuid, &record).expect("write");
        let placement = PlacementRecord {
            cpus: vec![0],
            ..PlacementRecord::default()
        };
        assert_eq!(dir.placement(uuid), PlacementRecord::default());
        dir.place(uuid, &placement).expect("write");
        assert_eq!(dir.placement(uuid), placement);
        dir.forget(uuid);
        assert!(dir.record(uuid).is_none());
        assert_eq!(dir.placement(uuid), PlacementRecord::default());
    }

    #[test]
    fn a_folder_that_others_may_write_or_a_link_is_refused() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let (open, link) = (temporary.path().join("open"), temporary.path().join("link"));
        fs::create_dir(&open).expect("made");
        let refused = |path: &Path| Dir::at(path).make().map_err(|f| f.code);
        let mode = |bits| fs::set_permissions(&open, fs::Permissions::from_mode(bits));
        for bits in [0o777, 0o1777, 0o770] {
            mode(bits).expect("it is ours");
            assert_eq!(refused(&open), Err(Code::StateDir), "{bits:o}");
        }
        mode(0o755).expect("it is ours");
        std::os::unix::fs::symlink(&open, &link).expect("a link");
        assert_eq!(refused(&link), Err(Code::StateDir));
        assert_eq!(refused(&open), Ok(()));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&open, Some(65534), None).expect("root may");
            assert_eq!(refused(&open), Err(Code::StateDir));
        }
    }

    #[test]
    fn what_a_killed_daemon_was_writing_is_removed_by_the_next() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        dir.make().expect("folders");
        let file = |name: &str, age: Duration| {
            let path = temporary.path().join(name);
            let written = std::time::SystemTime::now() - age;
            let file = File::create(&path).expect("made");
            file.set_modified(written).expect("it is ours");
            path
        };
        let left = file(".strake-Ab3dEf", 2 * LEFT_AFTER);
        let below = file("seats/.strake-Ab3dEf", 2 * LEFT_AFTER);
        let young = file("placement/.strake-Ab3dEf", Duration::ZERO);
        let other = file("known-files.json", 2 * LEFT_AFTER);
        let lock = dir.lock().expect("first");
        assert!(!left.exists() && !below.exists());
        assert!(young.exists() && other.exists());
        // A daemon that does not get the lock touches nothing.
        let left = file(".strake-Ab3dEf", 2 * LEFT_AFTER);
        assert!(dir.lock().is_err());
        assert!(left.exists());
        drop(lock);
    }

    #[test]
    fn one_daemon_serves_a_folder() {
        let temporary = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::at(temporary.path());
        let first = dir.lock().expect("first");
        assert_eq!(
            dir.lock().map(|_| ()).map_err(|f| f.code),
            Err(Code::DaemonRunning)
        );
        drop(first);
        assert!(dir.lock().is_ok());
    }
}
