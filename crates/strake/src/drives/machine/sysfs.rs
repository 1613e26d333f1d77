//! What the kernel says about block devices in /sys.
//!
//! Invariant: a file that cannot be read means "nothing known", never an error: containers hide
//! parts of /sys. Deliberately absent: opening devices, and what uses one (`common::uses`).

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::common::errors::{Code, Failure};
use crate::common::uses;
use crate::common::uses::{names_in, read_trimmed, sys_dir};
use crate::drives::machine::{answering, paths};

pub(crate) use crate::common::uses::dev_text;

/// What a path stands for, whatever its spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Identity {
    /// A block device, by its number.
    Block(u64),
    /// A file, by file system and inode.
    File(u64, u64),
}

/// These paths without those at which no device and no file is, the same device under two names
/// once.
#[derive(Debug, Default)]
pub(crate) struct Each {
    pub(crate) devices: Vec<(PathBuf, Identity)>,
    /// Those of which the kernel does not say what they are: no answer, or a file system failed.
    pub(crate) unknown: Vec<PathBuf>,
}

/// See [`Each`].
pub(crate) fn each_once(paths: &[PathBuf]) -> Each {
    let mut each = Each::default();
    for (path, meta) in paths.iter().zip(paths::metadata_of_each(paths)) {
        let hides = meta.as_ref().is_err_and(paths::hides);
        match about(path, meta).map(|(id, _)| id) {
            Ok(id) if each.devices.iter().all(|(_, other)| *other != id) => {
                each.devices.push((path.clone(), id));
            }
            Err(_) if hides => each.unknown.push(path.clone()),
            // The same again, or nothing is there.
            _ => {}
        }
    }
    each
}

/// What a drive calls itself wherever it is plugged in; `None` for files, partitions, and drives
/// that do not say.
pub(crate) fn wwid(path: &Path) -> Option<String> {
    let Identity::Block(rdev) = identity(path).ok()? else {
        return None;
    };
    let folder = Path::new("/sys/dev/block").join(dev_text(rdev));
    let read = |file: &str| fs::read_to_string(folder.join(file)).ok();
    let text = read("wwid").or_else(|| read("device/wwid"))?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// What is printed on a drive, of a block device or of the drive that a partition lies on; `None`
/// is what the kernel does not know.
pub(crate) fn model_and_serial(path: &Path) -> (Option<String>, Option<String>) {
    let Ok(Identity::Block(rdev)) = identity(path) else {
        return (None, None);
    };
    let Ok(mut folder) = fs::canonicalize(sys_dir(rdev)) else {
        return (None, None);
    };
    if folder.join("partition").exists() {
        folder.pop();
    }
    let read = |file: &str| {
        let text = read_trimmed(&folder.join("device").join(file))?;
        Some(text).filter(|text| !text.is_empty())
    };
    let serial = read("serial").or_else(|| read_trimmed(&folder.join("serial")));
    (
        read("model"),
        serial
            .filter(|text| !text.is_empty())
            .or_else(|| wwid(path)),
    )
}

/// Looks at what a path stands for, through links.
pub(crate) fn identity(path: &Path) -> Result<Identity, Failure> {
    about(path, paths::metadata(path)).map(|(id, _)| id)
}

/// The same of many.
pub(crate) fn identity_of_each(paths: &[PathBuf]) -> Vec<Result<Identity, Failure>> {
    let all = about_each(paths).into_iter();
    all.map(|about| about.map(|(id, _)| id)).collect()
}

/// What many are, with what else the kernel says of them.
pub(crate) fn about_each(paths: &[PathBuf]) -> Vec<Result<(Identity, fs::Metadata), Failure>> {
    let all = paths.iter().zip(paths::metadata_of_each(paths));
    all.map(|(path, meta)| about(path, meta)).collect()
}

fn about(path: &Path, meta: io::Result<fs::Metadata>) -> Result<(Identity, fs::Metadata), Failure> {
    let meta = meta.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => answering::refused(&[path.to_owned()]),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Failure::new(
            Code::DeviceNotFound,
            format!("{}: not found", path.display()),
        ),
        _ => Failure::io(path.display(), &error),
    })?;
    let kind = meta.file_type();
    if kind.is_block_device() {
        Ok((Identity::Block(meta.rdev()), meta))
    } else if kind.is_file() {
        Ok((Identity::File(meta.dev(), meta.ino()), meta))
    } else {
        let found = format!(
            "{}: neither a block device nor a regular file",
            path.display()
        );
        Err(Failure::new(Code::DeviceKind, found))
    }
}

/// Whether another process has this member for itself, as a daemon that serves it does: block
/// devices are opened exclusively, files are locked. What cannot be asked is taken as not held.
pub(crate) fn is_held(path: &Path) -> bool {
    let own = std::process::id();
    is_taken(path)
        && match identity(path) {
            Ok(Identity::Block(rdev)) => !uses::is_open_here(rdev),
            _ => !strake_runtime::lock_holders(path).contains(&own),
        }
}

/// The same of any process, this one too.
fn is_taken(path: &Path) -> bool {
    use std::os::unix::fs::OpenOptionsExt;
    let block = matches!(identity(path), Ok(Identity::Block(_)));
    let flags = match block {
        true => rustix::fs::OFlags::EXCL | rustix::fs::OFlags::NONBLOCK,
        false => rustix::fs::OFlags::NONBLOCK,
    };
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path);
    match opened {
        Ok(_) if block => false,
        Ok(file) => {
            let shared = rustix::fs::FlockOperation::NonBlockingLockShared;
            rustix::fs::flock(&file, shared) == Err(rustix::io::Errno::WOULDBLOCK)
        }
        Err(error) => block && error.kind() == std::io::ErrorKind::ResourceBusy,
    }
}

/// Does the kernel refuse writes to this device, or to the file system of this file?
pub(crate) fn is_read_only(path: &Path) -> bool {
    match identity(path) {
        Ok(Identity::Block(rdev)) => {
            read_trimmed(&sys_dir(rdev).join("ro")).is_some_and(|read_only| read_only == "1")
        }
        Ok(Identity::File(..)) => {
            let may_write = rustix::fs::access(path, rustix::fs::Access::WRITE_OK);
            may_write == Err(rustix::io::Errno::ROFS)
        }
        Err(_) => false,
    }
}

/// Kernel name of a device (`nvme0n1`).
pub(crate) fn name_of(rdev: u64) -> Option<String> {
    let target = fs::canonicalize(sys_dir(rdev)).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

/// Block devices that may carry members: `/dev` paths in order of name.
pub(crate) fn candidates() -> Vec<PathBuf> {
    let mut names = names_in(Path::new("/sys/class/block"));
    names.retain(|name| may_carry_member(name));
    names.sort();
    names
        .into_iter()
        .map(|name| Path::new("/dev").join(name.replace('!', "/")))
        .collect()
}

/// Is this a device worth reading? ublk and nbd are what we export ourselves; a scan of them would
/// wait for an array that waits for the scan.
fn may_carry_member(name: &str) -> bool {
    const NEVER: [&str; 7] = ["ublk", "nbd", "ram", "zram", "sr", "fd", "mtdblock"];
    if NEVER.iter().any(|prefix| name.starts_with(prefix)) {
        return false;
    }
    let dir = Path::new("/sys/class/block").join(name);
    if name.starts_with("loop") && !dir.join("loop/backing_file").exists() && !is_partition(&dir) {
        return false;
    }
    let hidden = read_trimmed(&dir.join("hidden")).is_some_and(|h| h == "1");
    let sectors = read_trimmed(&dir.join("size")).and_then(|s| s.parse::<u64>().ok());
    !hidden && sectors.is_some_and(|n| n > 0)
}

fn is_partition(dir: &Path) -> bool {
    dir.join("partition").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_and_its_target_are_one_device() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let file = dir.path().join("a");
        fs::write(&file, b"x").expect("write");
        let link = dir.path().join("b");
        std::os::unix::fs::symlink(&file, &link).expect("link");
        assert_eq!(identity(&file), identity(&link));
        assert_eq!(
            identity(dir.path()).map_err(|f| f.code),
            Err(Code::DeviceKind)
        );
        let absent = dir.path().join("c");
        assert_eq!(
            identity(&absent).map_err(|f| f.code),
            Err(Code::DeviceNotFound)
        );
    }

    #[test]
    fn exported_and_empty_devices_are_no_candidates() {
        for name in ["ublkb0", "nbd3", "ram0", "zram0", "sr0"] {
            assert!(!may_carry_member(name), "{name}");
        }
    }
}
