//! What uses a device or file: mounts, swap, devices stacked on it, processes that have it open.
//!
//! Invariants: nothing is opened for it, and no file is asked that a server must answer for. A file
//! of /sys or /proc that cannot be read means "nothing known": other users' processes are seen by
//! root alone. A look through all processes that only serves a message ends after [`LOOK_MAX`].

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// How long processes are looked through to name a user of a device: thousands of them, with
/// hundreds of open files each.
const LOOK_MAX: Duration = Duration::from_millis(500);
/// So many processes are named.
const NAMED_MAX: usize = 3;

/// `MAJ:MIN` as the kernel writes it.
pub(crate) fn dev_text(rdev: u64) -> String {
    format!("{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev))
}

/// Where sysfs describes a block device.
pub(crate) fn sys_dir(rdev: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}", dev_text(rdev)))
}

pub(crate) fn read_trimmed(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

pub(crate) fn names_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter_map(|e| e.file_name().into_string().ok())
        .collect()
}

/// Partitions of a device: name and `MAJ:MIN`.
pub(crate) fn partitions(rdev: u64) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(sys_dir(rdev)) else {
        return Vec::new();
    };
    let mut found: Vec<(String, String)> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().join("partition").exists())
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some((name, read_trimmed(&entry.path().join("dev"))?))
        })
        .collect();
    found.sort();
    found
}

/// Devices stacked on this one or on its partitions (device mapper, md, bcache …), as their own
/// tools call them.
pub(crate) fn holders(rdev: u64) -> Vec<String> {
    let mut folders = vec![sys_dir(rdev)];
    let parts = partitions(rdev).into_iter();
    folders.extend(parts.map(|(_, dev)| PathBuf::from(format!("/sys/dev/block/{dev}"))));
    let holders = folders.iter().map(|folder| folder.join("holders"));
    let mut found: Vec<String> = holders
        .flat_map(|holders| {
            let names = names_in(&holders).into_iter();
            let named = names.map(|name| holder_text(&holders.join(&name), &name));
            named.collect::<Vec<_>>()
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// A holder, by its folder in sysfs and its kernel name.
fn holder_text(folder: &Path, name: &str) -> String {
    match read_trimmed(&folder.join("dm/name")) {
        Some(mapped) => format!("/dev/mapper/{mapped} ({name})"),
        None => format!("/dev/{}", name.replace('!', "/")),
    }
}

/// Mount points (and swap) of any of these `MAJ:MIN`, from the given text of mountinfo and swaps.
fn uses_in(mountinfo: &str, devs: &[String], sources: &[String]) -> Option<String> {
    for line in mountinfo.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (Some(dev), Some(point)) = (fields.get(2), fields.get(4)) else {
            continue;
        };
        // btrfs and others show an anonymous device number; their source names the real one.
        let source = fields
            .iter()
            .position(|f| *f == "-")
            .and_then(|dash| fields.get(dash + 2));
        if devs.iter().any(|d| d == dev)
            || source.is_some_and(|source| sources.iter().any(|s| s == source))
        {
            return Some((*point).to_owned());
        }
    }
    None
}

/// The numbers and the usual paths of a device and its partitions.
fn numbers_and_paths(rdev: u64) -> (Vec<String>, Vec<String>) {
    let parts = partitions(rdev);
    let name = fs::canonicalize(sys_dir(rdev)).ok();
    let name = name.and_then(|target| Some(target.file_name()?.to_str()?.to_owned()));
    let names = name.into_iter().chain(parts.iter().map(|(n, _)| n.clone()));
    let sources = names.map(|name| format!("/dev/{name}")).collect();
    let mut devs = vec![dev_text(rdev)];
    devs.extend(parts.into_iter().map(|(_, dev)| dev));
    (devs, sources)
}

/// Where a device, or one of its partitions, is mounted (or that it is swap).
pub(crate) fn mounted(rdev: u64) -> Option<String> {
    let (devs, sources) = numbers_and_paths(rdev);
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(point) = uses_in(&mountinfo, &devs, &sources) {
        return Some(point);
    }
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut lines = swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next());
    lines
        .find(|name| sources.iter().any(|s| s == name))
        .map(|_| "swap".to_owned())
}

/// The processes of this machine, but for this one.
fn other_processes() -> impl Iterator<Item = String> {
    let own = std::process::id().to_string();
    let pids = names_in(Path::new("/proc")).into_iter();
    pids.filter(move |pid| *pid != own && pid.bytes().all(|b| b.is_ascii_digit()))
}

/// A process as messages name it: its name and number.
fn process_text(pid: &str) -> String {
    match read_trimmed(&Path::new("/proc").join(pid).join("comm")) {
        Some(name) => format!("{name} ({pid})"),
        None => format!("process {pid}"),
    }
}

/// No process has this number any more.
fn has_ended(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// Processes that have this file open, other than this one.
fn processes_with_file(path: &Path) -> Vec<String> {
    let about = |path: &Path| {
        let flags = AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(rustix::fs::CWD, path, flags, StatxFlags::INO).ok()?;
        Some((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
    };
    let Some(file) = about(path) else {
        return Vec::new();
    };
    let has_open = |pid: &String| {
        let folder = Path::new("/proc").join(pid).join("fd");
        let mut open = names_in(&folder).into_iter();
        open.any(|fd| about(&folder.join(fd)) == Some(file))
    };
    let until = Instant::now() + LOOK_MAX;
    let pids = other_processes().take_while(|_| Instant::now() < until);
    let with = pids.filter(has_open).take(NAMED_MAX);
    with.map(|pid| process_text(&pid)).collect()
}

/// What has a file locked, after the word `is`. A lock outlives the process that took it where
/// another one has its descriptor.
fn locked(path: &Path) -> Option<String> {
    let holders = strake_runtime::lock_holders(path);
    let (ended, alive): (Vec<u32>, Vec<u32>) = holders.into_iter().partition(|pid| has_ended(*pid));
    let alive: Vec<String> = alive
        .iter()
        .map(|pid| process_text(&pid.to_string()))
        .collect();
    let gone = ended.first().map(|pid| {
        let open = processes_with_file(path);
        let heirs = match open.is_empty() {
            true => "another process has its descriptor".to_owned(),
            false => format!("the file is open in {}", open.join(", ")),
        };
        format!("process {pid}, which has ended: {heirs}")
    });
    let all: Vec<String> = alive.into_iter().chain(gone).collect();
    (!all.is_empty()).then(|| format!("locked by {}", all.join(", ")))
}

/// The number of the block device that a process has open under this descriptor.
fn block_device_of(descriptor: &Path) -> Option<String> {
    // Of a file on a network or on FUSE what the kernel has of it is enough: its server may hang.
    let flags = AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(rustix::fs::CWD, descriptor, flags, StatxFlags::TYPE).ok()?;
    let is_block = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::BlockDevice;
    is_block.then(|| format!("{}:{}", stat.stx_rdev_major, stat.stx_rdev_minor))
}

fn has_open(pid: &str, devs: &[String]) -> bool {
    let folder = Path::new("/proc").join(pid).join("fd");
    let mut open = names_in(&folder).into_iter();
    open.any(|fd| block_device_of(&folder.join(fd)).is_some_and(|dev| devs.contains(&dev)))
}

/// A process that has this block device or a partition of it open, other than this one: its name
/// and number.
pub(crate) fn opener(rdev: u64) -> Option<String> {
    let (devs, _) = numbers_and_paths(rdev);
    let mut pids = other_processes();
    let pid = pids.find(|pid| has_open(pid, &devs))?;
    Some(process_text(&pid))
}

/// Whether this process has a block device or a partition of it open.
pub(crate) fn is_open_here(rdev: u64) -> bool {
    has_open("self", &numbers_and_paths(rdev).0)
}

/// Where a device is mounted for a process that sees other mounts than this one.
fn mounted_for(pid: &str, devs: &[String], sources: &[String]) -> Option<String> {
    let space = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    if space(pid) == space("self") {
        return None;
    }
    let mountinfo = fs::read_to_string(format!("/proc/{pid}/mountinfo")).ok()?;
    let point = uses_in(&mountinfo, devs, sources)?;
    let process = process_text(pid);
    Some(format!(
        "mounted on {point}, as the process {process} sees it"
    ))
}

/// Processes that use a block device: by a mount of their own, or because they have it open.
fn processes_with(rdev: u64) -> Option<String> {
    let (devs, sources) = numbers_and_paths(rdev);
    let until = Instant::now() + LOOK_MAX;
    let mut open = Vec::new();
    for pid in other_processes().take_while(|_| Instant::now() < until) {
        if let Some(mount) = mounted_for(&pid, &devs, &sources) {
            return Some(mount);
        }
        if open.len() < NAMED_MAX && has_open(&pid, &devs) {
            open.push(process_text(&pid));
        }
    }
    (!open.is_empty()).then(|| format!("open in {}", open.join(", ")))
}

/// What uses this block device that the kernel refused as busy, after the word `is`.
fn of_block(rdev: u64) -> Option<String> {
    match mounted(rdev) {
        Some(point) if point == "swap" => return Some("used as swap".to_owned()),
        Some(point) => return Some(format!("mounted on {point}")),
        None => {}
    }
    let holders = holders(rdev);
    if !holders.is_empty() {
        return Some(format!("held by {}", holders.join(", ")));
    }
    processes_with(rdev)
}

/// What uses a device or file that was refused as busy, after the word `is`: found out now, when it
/// may have ended.
pub(crate) fn of(path: &Path) -> Option<String> {
    let about = fs::metadata(path).ok()?;
    if about.file_type().is_block_device() {
        return of_block(about.rdev());
    }
    locked(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
40 22 0:45 / /srv rw - btrfs /dev/sdb rw
41 22 8:17 /sub /mnt/a rw - xfs /dev/sdb1 rw";

    #[test]
    fn a_mount_is_found_by_number_and_by_source() {
        assert_eq!(uses_in(MOUNTS, &["8:2".into()], &[]), Some("/".into()));
        assert_eq!(
            uses_in(MOUNTS, &["8:17".into()], &[]),
            Some("/mnt/a".into())
        );
        assert_eq!(
            uses_in(MOUNTS, &["8:16".into()], &["/dev/sdb".into()]),
            Some("/srv".into())
        );
        assert_eq!(
            uses_in(MOUNTS, &["8:33".into()], &["/dev/sdc1".into()]),
            None
        );
    }

    #[test]
    fn a_mapped_device_goes_by_its_own_name() {
        let dir = tempfile::tempdir().expect("temporary folder");
        fs::create_dir(dir.path().join("dm")).expect("made");
        fs::write(dir.path().join("dm/name"), "vg-lv\n").expect("written");
        let text = holder_text(dir.path(), "dm-3");
        assert_eq!(text, "/dev/mapper/vg-lv (dm-3)");
        assert_eq!(holder_text(&dir.path().join("dm"), "md127"), "/dev/md127");
    }

    #[test]
    fn what_is_no_block_device_has_no_number() {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        assert_eq!(block_device_of(file.path()), None);
        assert_eq!(block_device_of(Path::new("/proc/self/fd/99999")), None);
        assert_eq!(of(&file.path().join("absent")), None);
    }
}
