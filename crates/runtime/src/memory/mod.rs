//! How much memory this process may have, and how much of it arrays have.
//!
//! What bounds it: the machine's memory, the cgroups of the process from its own up to the root (v2
//! `memory.max`, v1 `memory.limit_in_bytes`), and `RLIMIT_AS` and `RLIMIT_DATA`.
//!
//! Invariant: an array is refused before anything is written if its buffers, with those of the
//! arrays that are served already, exceed a bound. A bound that the system does not tell bounds
//! nothing. A client of an array is refused where it would take what the rest of the process needs.
//! Deliberately absent: overcommitting on purpose; buffers are used in full sooner or later.

pub(crate) mod budget;
pub(crate) mod buffers;
pub(crate) mod resident;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, getrlimit};

use crate::error::ServeError;

/// Bytes that arrays of this process, and their clients, have reserved.
static RESERVED: AtomicU64 = AtomicU64::new(0);

/// A reservation; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Reserved(u64);

impl Drop for Reserved {
    fn drop(&mut self) {
        RESERVED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// A bound: so many bytes, and what says so.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    bytes: u64,
    of: String,
}

/// Refuses so much memory for one array where this process may never have as much: whatever others
/// use now, and whichever arrays it serves.
///
/// # Errors
/// What bounds it.
pub fn may_have(bytes: u64) -> Result<(), ServeError> {
    fits(bytes, 0, &bounds())
}

/// Reserves memory for an array.
pub(crate) fn reserve(bytes: u64) -> Result<Reserved, ServeError> {
    let others = RESERVED.fetch_add(bytes, Ordering::Relaxed);
    let reserved = Reserved(bytes);
    fits(bytes, others, &bounds())?;
    let free = [available(), address_space()];
    let free: Vec<Bound> = free.into_iter().flatten().collect();
    // What others have reserved and use is not in there any more.
    fits(bytes, 0, &free)?;
    Ok(reserved)
}

/// The part of what bounds this process that clients leave to all else that it does.
const NOT_FOR_CLIENTS: u64 = 4;

/// Reserves memory for a client that connects. Arrays, and what commands need, come first.
pub(crate) fn reserve_for_client(bytes: u64) -> Result<Reserved, ServeError> {
    let left = |bound: Bound| Bound {
        bytes: bound.bytes - bound.bytes / NOT_FOR_CLIENTS,
        of: format!("{}, less a quarter that clients leave", bound.of),
    };
    let others = RESERVED.fetch_add(bytes, Ordering::Relaxed);
    let reserved = Reserved(bytes);
    let bounds: Vec<Bound> = bounds().into_iter().map(left).collect();
    fits(bytes, others, &bounds)?;
    Ok(reserved)
}

fn fits(bytes: u64, others: u64, bounds: &[Bound]) -> Result<(), ServeError> {
    let exceeded = |bound: &&Bound| bytes.saturating_add(others) > bound.bytes;
    match bounds
        .iter()
        .filter(exceeded)
        .min_by_key(|bound| bound.bytes)
    {
        None => Ok(()),
        Some(bound) => Err(ServeError::NoMemory {
            needs: bytes,
            others,
            has: bound.bytes,
            of: bound.of.clone(),
        }),
    }
}

/// The part of the machine's, or a cgroup's, memory that buffers leave to all else: the kernel ends
/// the process, with all arrays, where there is nothing left.
const NOT_FOR_BUFFERS: u64 = 8;

/// What bounds the buffers of this process for good.
fn bounds() -> Vec<Bound> {
    let mut all: Vec<Bound> = meminfo("MemTotal").into_iter().collect();
    all.extend(cgroups(Path::new("/"), Path::new("/proc/self/cgroup")));
    for bound in &mut all {
        bound.bytes -= bound.bytes / NOT_FOR_BUFFERS;
        bound.of = format!("seven eighths of {}", bound.of);
    }
    for (resource, name) in [(Resource::As, "RLIMIT_AS"), (Resource::Data, "RLIMIT_DATA")] {
        if let Some(bytes) = getrlimit(resource).current {
            let of = format!("{name} of the process");
            all.push(Bound { bytes, of });
        }
    }
    all
}

/// Of the machine's memory, as the kernel counts it.
fn meminfo(field: &str) -> Option<Bound> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line
        .strip_prefix(':')?
        .trim()
        .strip_suffix("kB")?
        .trim()
        .parse()
        .ok()?;
    Some(Bound {
        bytes: kib << 10,
        of: format!("{field} of this machine"),
    })
}

fn available() -> Option<Bound> {
    meminfo("MemAvailable")
}

/// What is left of `RLIMIT_AS`.
fn address_space() -> Option<Bound> {
    let limit = getrlimit(Resource::As).current?;
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').next()?.parse().ok()?;
    let used = pages * rustix::param::page_size() as u64;
    Some(Bound {
        bytes: limit.saturating_sub(used),
        of: "what is left of RLIMIT_AS".to_owned(),
    })
}

/// Limits of the cgroups that the process is in, from its own up to the root.
fn cgroups(root: &Path, own: &Path) -> Vec<Bound> {
    let mut bounds = Vec::new();
    for folder in cgroup_folders(root, own, "memory") {
        for file in ["memory.max", "memory.limit_in_bytes"] {
            let file = folder.join(file);
            // `max`, or no file at all: no limit here.
            let limit = fs::read_to_string(&file).ok();
            if let Some(bytes) = limit.and_then(|text| text.trim().parse().ok()) {
                let of = file.display().to_string();
                bounds.push(Bound { bytes, of });
            }
        }
    }
    bounds
}

/// Folders of the cgroups (v2, and v1 of this controller) that the process is in, from its own up
/// to the root.
pub(crate) fn cgroup_folders(root: &Path, own: &Path, controller: &str) -> Vec<PathBuf> {
    let text = fs::read_to_string(own).unwrap_or_default();
    let mut all = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let top = root.join("sys/fs/cgroup");
        let top = match controllers {
            "" => top,
            list if list.split(',').any(|c| c == controller) => top.join(controller),
            _ => continue,
        };
        let place: PathBuf = top.join(path.trim_start_matches('/'));
        let above = place.ancestors().map(Path::to_owned);
        all.extend(above.take_while(|folder| folder.starts_with(&top)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_every_cgroup_up_to_the_root_bounds() {
        let root = tempfile::tempdir().expect("a folder for temporary files");
        let write = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().expect("it has one")).expect("writable");
            fs::write(file, text).expect("writable");
        };
        write("own", "4:cpu,memory:/a/b\n0::/x/y\n");
        write("sys/fs/cgroup/x/y/memory.max", "max\n");
        write("sys/fs/cgroup/x/memory.max", "1000\n");
        write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "70\n");
        write(
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712\n",
        );
        let found = cgroups(root.path(), &root.path().join("own"));
        let bytes: Vec<u64> = found.iter().map(|bound| bound.bytes).collect();
        assert_eq!(bytes, [70, 9_223_372_036_854_771_712, 1000]);
        let error = fits(60, 11, &found).expect_err("71 of 70");
        assert!(
            error.to_string().contains("memory.limit_in_bytes"),
            "{error}"
        );
        assert!(fits(60, 10, &found).is_ok());
    }

    #[test]
    fn no_machine_has_as_much_as_this() {
        let error = may_have(u64::MAX / 2).expect_err("too much");
        assert!(matches!(error, ServeError::NoMemory { .. }), "{error}");
        assert!(reserve(u64::MAX / 2).is_err());
        drop(reserve(1 << 20).expect("a MiB is there"));
    }
}
