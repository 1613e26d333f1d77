//! Where the files of members go: a folder in memory, with room for them.
//!
//! Invariants: nothing is begun that does not fit; what a run that was killed has left behind is
//! removed by the next one. Deliberately absent: devices given by name; a benchmark of the machine
//! must be repeatable and must not overwrite anybody's data.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

const PREFIX: &str = "strake-bench-";
/// `TMPFS_MAGIC` of statfs(2).
const TMPFS: i64 = 0x0102_1994;
/// Left free for everybody else.
const SPARE: u64 = 512 << 20;
/// Members smaller than this are mostly metadata.
const LEAST: u64 = 64 << 20;

/// A folder for the files.
pub(crate) struct Room {
    pub(crate) folder: TempDir,
    pub(crate) in_memory: bool,
}

impl Room {
    /// A new folder in `place`.
    pub(crate) fn open(place: &Path) -> Result<Room> {
        let here = || place.display().to_string();
        let stat = rustix::fs::statfs(place).with_context(here)?;
        sweep(place);
        let folder = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{}-", std::process::id()))
            .tempdir_in(place)
            .with_context(here)?;
        Ok(Room {
            folder,
            in_memory: stat.f_type == TMPFS,
        })
    }

    /// The largest size of a member, of `wanted` at most, at which so many files fit.
    pub(crate) fn member_bytes(&self, wanted: u64, files: u64) -> Result<u64> {
        let place = self.folder.path();
        let stat = rustix::fs::statvfs(place)?;
        let mut free = stat.f_bavail * stat.f_frsize;
        if self.in_memory {
            free = free.min(available_memory().unwrap_or(free));
        }
        let fits = |bytes: &u64| bytes * files + SPARE <= free;
        let sizes = std::iter::successors(Some(wanted), |bytes| Some(bytes / 2));
        let found = sizes.take_while(|bytes| *bytes >= LEAST).find(fits);
        found.with_context(|| {
            format!(
                "no room: {files} files of {} MiB need {} MiB in {}, {} MiB are free; \
                 make room or name another folder with --dir",
                LEAST >> 20,
                (LEAST * files + SPARE) >> 20,
                place.parent().unwrap_or(place).display(),
                free >> 20
            )
        })
    }
}

/// What the kernel says can still be used without swapping.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn sweep(place: &Path) {
    for left in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let name = left.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|n| n.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // Whatever cannot be removed is no worse than before.
            let _ = std::fs::remove_dir_all(left.path());
        }
    }
}

/// Sizes that a user asks for must hold a stripe for each job.
pub(crate) fn sound(wanted: u64) -> Result<u64> {
    ensure!(
        wanted >= LEAST && wanted.is_multiple_of(1 << 20),
        "a member has at least {} MiB here",
        LEAST >> 20
    );
    Ok(wanted)
}
