//! Findings about the folders that the daemon keeps things in.
//!
//! Deliberately absent: what lies in them, and file systems of members.

use std::path::Path;

use crate::api::{DoctorJson, FindingJson, UncheckedJson};
use crate::common::events::Severity;
use crate::common::size;
use crate::daemon::state::Dir;

const CHECK: &str = "state-folder";
/// With less than this nothing is kept any more: the smallest file takes a block of 4 KiB, and is
/// written beside the one that it replaces.
const NONE_BYTES: u64 = 64 << 10;
/// Less is soon used up: the journal of events alone may take so much.
const LITTLE_BYTES: u64 = 16 << 20;
/// The same of inodes.
const NONE_INODES: u64 = 4;
const LITTLE_INODES: u64 = 128;

/// What is left in a file system. A file system that does not tell of something has no limit of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    bytes: Option<u64>,
    inodes: Option<u64>,
}

impl Left {
    fn of(folder: &Path) -> rustix::io::Result<Left> {
        let stat = rustix::fs::statvfs(folder)?;
        // The daemon is root, as a rule, and has what is kept back for root.
        let root = rustix::process::geteuid().is_root();
        let (blocks, inodes) = match root {
            true => (stat.f_bfree, stat.f_ffree),
            false => (stat.f_bavail, stat.f_favail),
        };
        Ok(Left {
            bytes: (stat.f_blocks > 0).then_some(blocks.saturating_mul(stat.f_frsize)),
            inodes: (stat.f_files > 0).then_some(inodes),
        })
    }

    /// How bad that is, and what there is.
    fn judged(self) -> Option<(Severity, String)> {
        let below = |left: Option<u64>, none: u64, little: u64| match left? {
            left if left < none => Some((Severity::Critical, left)),
            left if left < little => Some((Severity::Warning, left)),
            _ => None,
        };
        let bytes = below(self.bytes, NONE_BYTES, LITTLE_BYTES)
            .map(|(severity, left)| (severity, format!("{} left", size::bytes(left))));
        let inodes = below(self.inodes, NONE_INODES, LITTLE_INODES)
            .map(|(severity, left)| (severity, format!("{left} inodes left")));
        let all: Vec<(Severity, String)> = [bytes, inodes].into_iter().flatten().collect();
        let worst = all.iter().map(|(severity, _)| *severity).max()?;
        let texts: Vec<String> = all.into_iter().map(|(_, text)| text).collect();
        Some((worst, texts.join(" and ")))
    }
}

pub(super) fn check(dir: &Dir, report: &mut DoctorJson) {
    let unchecked = |why: String| UncheckedJson {
        check: CHECK.to_owned(),
        device: None,
        why,
    };
    if let Err(failure) = dir.lasting_answers() {
        return report.unchecked.push(unchecked(failure.found));
    }
    for folder in dir.roots() {
        let shown = folder.display();
        match Left::of(folder) {
            Ok(left) => report.findings.extend(finding(folder, left)),
            // A folder that is not there holds nothing.
            Err(rustix::io::Errno::NOENT) => {}
            Err(error) => report
                .unchecked
                .push(unchecked(format!("{shown}: {error}"))),
        }
    }
}

fn finding(folder: &Path, left: Left) -> Option<FindingJson> {
    let (severity, left) = left.judged()?;
    let shown = folder.display();
    let costs = match severity {
        Severity::Critical => "what the daemon would keep there is lost when it ends",
        _ => "soon nothing can be kept there any more",
    };
    Some(FindingJson {
        check: CHECK.to_owned(),
        severity,
        found: format!(
            "the file system of {shown} has {left}: {costs} (events, paths of devices, what arrays \
             may take of the machine, alerts that are not delivered)"
        ),
        cure: format!("make room in the file system of {shown}; arrays serve meanwhile"),
        ..FindingJson::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(bytes: Option<u64>, inodes: Option<u64>) -> Option<Severity> {
        let found = finding(Path::new("/run/strake"), Left { bytes, inodes })?;
        assert!(found.found.contains("/run/strake") && found.found.contains("left"));
        Some(found.severity)
    }

    #[test]
    fn what_is_full_is_critical_and_what_is_soon_full_a_warning() {
        let plenty = Some(1 << 30);
        assert_eq!(judged(plenty, plenty), None);
        assert_eq!(judged(None, None), None, "no limits");
        for none in [(Some(0), plenty), (plenty, Some(0)), (Some(0), Some(0))] {
            assert_eq!(judged(none.0, none.1), Some(Severity::Critical));
        }
        assert_eq!(judged(Some(1 << 20), plenty), Some(Severity::Warning));
        assert_eq!(judged(None, Some(20)), Some(Severity::Warning));
    }

    #[test]
    fn a_folder_of_this_machine_tells_what_is_left() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let left = Left::of(folder.path()).expect("it answers");
        assert!(left.bytes.is_some_and(|bytes| bytes > 0), "{left:?}");
        let absent = folder.path().join("absent");
        assert_eq!(Left::of(&absent), Err(rustix::io::Errno::NOENT));
    }
}
