//! Which drives a study may overwrite: those that are free, and that the user named one by one.
//!
//! Invariants: a drive that is in use is refused whatever the user says; a drive is overwritten
//! only if `--yes-erase` names it or its name was typed on a terminal; a name that matches no drive
//! or two is an error.

use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};

use strake_format::ArrayUuid;
use strake_runtime::{Device, OpenMode};
use strake_study::real::Consent;
use strake_study::result::DriveSeen;

use crate::common::errors::{Code, Failure};
use crate::common::{shown, size};
use crate::drives::machine::sysfs::{self, Identity};
use crate::drives::machine::traits;
use crate::drives::safety::{self, Permit};

/// What stays the same of a drive, over a reboot too.
pub(super) fn seen(path: &Path) -> Result<DriveSeen, Failure> {
    let identity = sysfs::identity(path)?;
    let (model, serial) = sysfs::model_and_serial(path);
    let firmware = traits::of(path).and_then(|traits| traits.firmware);
    Ok(DriveSeen {
        path: path.to_owned(),
        is_file: matches!(identity, Identity::File(..)),
        wwid: sysfs::wwid(path),
        serial,
        model,
        firmware,
        bytes: Device::open(path, OpenMode::ReadOnly)?.info().bytes,
    })
}

/// Content may go, use may not.
pub(super) const OVERWRITE: Permit = Permit {
    force: true,
    own: None,
    half_made: None,
    data: None,
};

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

fn is_named(drive: &DriveSeen, word: &str) -> bool {
    drive.path == Path::new(word)
        || crate::common::absolute(Path::new(word)) == drive.path
        || name(&drive.path) == word
        || drive.serial.as_deref() == Some(word)
}

/// Drives that `words` name.
fn named<'a>(drives: &'a [DriveSeen], words: &[String]) -> Result<Vec<&'a DriveSeen>, Failure> {
    let mut all = Vec::new();
    for word in words {
        let found: Vec<&DriveSeen> = drives.iter().filter(|d| is_named(d, word)).collect();
        match found[..] {
            [drive] => all.push(drive),
            [] => {
                let found = format!("--yes-erase {word} names no drive of the study");
                let cure = "give names of drives that --on names";
                return Err(Failure::new(Code::Usage, found).cure(cure));
            }
            [first, second, ..] => {
                let (first, second) = (first.path.display(), second.path.display());
                let found = format!("--yes-erase {word} may be {first} or {second}");
                return Err(Failure::new(Code::Usage, found).cure("give the path of one"));
            }
        }
    }
    Ok(all)
}

/// Refuses drives that are in use.
pub(super) fn free(paths: &[PathBuf]) -> Result<(), Failure> {
    safety::check(paths, OVERWRITE)?;
    safety::may_hold(paths)
}

/// About which drives the user is asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// About each.
    OfAll,
    /// About those that hold something else than members of this array: the others were named when
    /// the study began.
    OfForeign { own: Option<ArrayUuid> },
}

/// What a drive holds that would be lost, in words.
fn content(path: &Path, asked: Asked) -> Option<Failure> {
    let own = match asked {
        Asked::OfAll => None,
        Asked::OfForeign { own } => own,
    };
    let permit = Permit {
        own,
        ..Permit::default()
    };
    safety::check(std::slice::from_ref(&path.to_owned()), permit).err()
}

/// Has the user name each of these drives.
pub(super) fn ask(
    drives: &[DriveSeen],
    yes_erase: &[String],
    asked: Asked,
) -> Result<Consent, Failure> {
    let named = named(drives, yes_erase)?;
    let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    for drive in drives {
        if named.contains(&drive) {
            continue;
        }
        let content = content(&drive.path, asked);
        if content.is_none() && matches!(asked, Asked::OfForeign { .. }) {
            continue;
        }
        let path = drive.path.display();
        let holds = content.map_or_else(
            || format!("{path} ({}) would be overwritten", size::bytes(drive.bytes)),
            |failure| {
                let bytes = size::bytes(drive.bytes);
                format!("{path} ({bytes}) would be overwritten: {}", failure.found)
            },
        );
        let refused = || {
            let cure = format!("name it to go on without being asked: --yes-erase {path}");
            Failure::new(Code::NotConfirmed, &holds).cure(cure)
        };
        if !terminal {
            return Err(refused());
        }
        let name = name(&drive.path);
        // Without a terminal there is no answer.
        let _ = write!(
            std::io::stderr(),
            "{}. Type {} to go on: ",
            shown(&holds, ' '),
            shown(&name, ' ')
        );
        let mut line = String::new();
        // Nothing read means no.
        let _ = std::io::stdin().read_line(&mut line);
        if line.trim() != name {
            return Err(refused());
        }
    }
    Ok(Consent::given(
        drives.iter().map(|drive| drive.path.clone()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_names_one_drive_or_is_refused() {
        let drive = |path: &str, serial: Option<&str>| DriveSeen {
            path: path.into(),
            serial: serial.map(str::to_owned),
            ..DriveSeen::default()
        };
        let drives = [
            drive("/dev/nvme0n1", Some("S1")),
            drive("/dev/nvme1n1", Some("S2")),
            drive("/a/file", None),
            drive("/b/file", None),
        ];
        let one = |word: &str| {
            let named = named(&drives, &[word.to_owned()])?;
            Ok::<PathBuf, Failure>(named[0].path.clone())
        };
        for (word, path) in [
            ("/dev/nvme0n1", "/dev/nvme0n1"),
            ("nvme1n1", "/dev/nvme1n1"),
            ("S2", "/dev/nvme1n1"),
            ("/b/file", "/b/file"),
        ] {
            assert_eq!(one(word).expect(word), Path::new(path));
        }
        assert!(
            one("file")
                .expect_err("two")
                .found
                .contains("/a/file or /b/file")
        );
        assert!(
            one("nvme2n1")
                .expect_err("none")
                .found
                .contains("names no drive")
        );
    }
}
