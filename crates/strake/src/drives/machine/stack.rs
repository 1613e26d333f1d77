//! What block devices lie on: partitions, loop devices, device mapper, md, and several paths to one
//! drive.
//!
//! Two devices that share bytes are one device for an array: each would overwrite what the other
//! holds. Two devices that lie on one drive without sharing bytes (its partitions) are two, and
//! fail together.
//!
//! Invariants: nothing is opened; a file of /sys that cannot be read means "nothing known". Where
//! it is not known which part of a lower device an upper one takes (device mapper, md), it may be
//! any part: then the upper one shares bytes with the lower one, and not with its neighbours.
//! Deliberately absent: tables of device mapper (an ioctl as root).

use std::fs;
use std::path::{Path, PathBuf};

use crate::drives::machine::sysfs;
use crate::drives::machine::sysfs::Identity;

/// Deeper stacks are not followed: a loop in a made-up tree must end.
const DEPTH_MAX: u32 = 16;
const SECTOR: u64 = 512;

/// The devices of one /sys.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    sys: PathBuf,
}

/// A range of a device that lies on nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ground {
    id: Identity,
    /// What the drive calls itself, the same by each of its paths.
    wwid: Option<String>,
    /// The drive: its kernel name without the namespace.
    drive: Option<String>,
    from: u64,
    len: u64,
    /// All of the range belongs to the device; else some part of it.
    exact: bool,
}

/// How two devices share what they lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    /// Bytes: they are one device.
    Bytes,
    /// A drive.
    Drive,
}

/// Loop devices, as they were at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Loops(Vec<(PathBuf, String)>);

impl Loops {
    /// Those over this device, by the name of what lies under a loop device: no other file is
    /// asked, for it may not answer. One under another name is not seen.
    pub(crate) fn over(&self, path: &Path) -> Vec<String> {
        let Ok(path) = fs::canonicalize(path) else {
            return Vec::new();
        };
        let over = self.0.iter().filter(|(backing, _)| *backing == path);
        over.map(|(_, name)| name.clone()).collect()
    }
}

impl Default for Stack {
    fn default() -> Stack {
        Stack::at(Path::new("/sys"))
    }
}

impl Stack {
    /// The devices of the /sys that is mounted here.
    pub(crate) fn at(sys: &Path) -> Stack {
        Stack {
            sys: sys.to_owned(),
        }
    }

    fn folder(&self, id: Identity) -> Option<PathBuf> {
        let Identity::Block(rdev) = id else {
            return None;
        };
        let link = self.sys.join("dev/block").join(sysfs::dev_text(rdev));
        fs::canonicalize(link).ok()
    }

    /// What a device lies on directly: each device or file, with the range of it, and whether all
    /// of that range is the device's.
    fn below(&self, id: Identity) -> Vec<(Identity, u64, u64, bool)> {
        let Some(folder) = self.folder(id) else {
            return Vec::new();
        };
        let bytes = size_in(&folder);
        if folder.join("partition").exists() {
            let parent = folder.parent().and_then(device_in);
            let start = number_in(&folder.join("start")).unwrap_or(0) * SECTOR;
            return parent
                .map(|id| (id, start, bytes, true))
                .into_iter()
                .collect();
        }
        if let Some(backing) = text_in(&folder.join("loop/backing_file")) {
            let offset = number_in(&folder.join("loop/offset")).unwrap_or(0);
            let backing = sysfs::identity(Path::new(&backing)).ok();
            return backing
                .map(|id| (id, offset, bytes, true))
                .into_iter()
                .collect();
        }
        let slaves: Vec<PathBuf> = entries(&folder.join("slaves"));
        let multipath = text_in(&folder.join("dm/uuid")).is_some_and(|u| u.starts_with("mpath-"));
        let lower = slaves.iter().filter_map(|slave| {
            let folder = fs::canonicalize(slave).ok()?;
            let lower = size_in(&folder);
            // The whole of it, where it is as large.
            let exact = multipath || slaves.len() == 1 && lower == bytes;
            Some((device_in(&folder)?, 0, lower, exact))
        });
        lower.collect()
    }

    /// What a device lies on in the end.
    pub(crate) fn ground(&self, id: Identity) -> Vec<Ground> {
        let mut found = Vec::new();
        let len = self.folder(id).map_or(u64::MAX, |folder| size_in(&folder));
        self.descend(id, (0, len, true), DEPTH_MAX, &mut found);
        found
    }

    fn descend(
        &self,
        id: Identity,
        (from, len, exact): (u64, u64, bool),
        depth: u32,
        found: &mut Vec<Ground>,
    ) {
        let below = self.below(id);
        if below.is_empty() || depth == 0 {
            let folder = self.folder(id);
            let wwid = folder.as_deref().and_then(wwid_in);
            let drive = folder.as_deref().and_then(drive_of);
            found.push(Ground {
                id,
                wwid,
                drive,
                from,
                len,
                exact,
            });
            return;
        }
        for (lower, at, range, all) in below {
            // Of a lower device that is taken in some unknown way, any part may be meant.
            let (from, len) = match all {
                true => (at.saturating_add(from), len.min(range)),
                false => (at, range),
            };
            self.descend(lower, (from, len, exact && all), depth - 1, found);
        }
    }

    /// How two different devices share what they lie on.
    pub(crate) fn shared(&self, a: Identity, b: Identity) -> Option<Shared> {
        Stack::shared_ground(&self.ground(a), &self.ground(b))
    }

    /// The same, of what they lie on.
    pub(crate) fn shared_ground(ours: &[Ground], theirs: &[Ground]) -> Option<Shared> {
        let mut shared = None;
        for (a, b) in ours.iter().flat_map(|a| theirs.iter().map(move |b| (a, b))) {
            let one = a.id == b.id || a.wwid.is_some() && a.wwid == b.wwid;
            let apart =
                a.from.saturating_add(a.len) <= b.from || b.from.saturating_add(b.len) <= a.from;
            if one && !apart && (a.exact || b.exact) {
                return Some(Shared::Bytes);
            }
            if one || a.drive.is_some() && a.drive == b.drive {
                shared = Some(Shared::Drive);
            }
        }
        shared
    }

    /// In words, of two devices that share bytes.
    pub(crate) fn how_shared(&self, a: Identity, b: Identity) -> String {
        if self.lies_on(a, b) || self.lies_on(b, a) {
            return "one lies on the other".to_owned();
        }
        let (ours, theirs) = (self.ground(a), self.ground(b));
        let wwid = ours.iter().find_map(|a| {
            let wwid = a.wwid.as_ref()?;
            theirs
                .iter()
                .any(|b| b.wwid.as_ref() == Some(wwid))
                .then_some(wwid)
        });
        match wwid {
            Some(wwid) => format!("both are paths to the drive {wwid}"),
            None => "both lie on the same bytes of one file or drive".to_owned(),
        }
    }

    /// Does `upper` lie on `lower`, perhaps with others in between?
    pub(crate) fn lies_on(&self, upper: Identity, lower: Identity) -> bool {
        self.lies_within(upper, lower, DEPTH_MAX)
    }

    fn lies_within(&self, upper: Identity, lower: Identity, depth: u32) -> bool {
        let mut below = self.below(upper).into_iter();
        depth > 0 && below.any(|(id, ..)| id == lower || self.lies_within(id, lower, depth - 1))
    }

    /// Names of other block devices that share bytes with this one, and lie neither on it nor under
    /// it: another loop device over its file, another path to its drive.
    pub(crate) fn other_paths(&self, id: Identity) -> Vec<String> {
        let ground = self.ground(id);
        let beside = |folder: &PathBuf| {
            let other = device_in(folder)?;
            let name = folder.file_name()?.to_str()?;
            // The few that can be, before all that they lie on is looked at.
            let backing = text_in(&folder.join("loop/backing_file"));
            let backing = backing.and_then(|file| sysfs::identity(Path::new(&file)).ok());
            let wwid = wwid_in(folder);
            let likely = |g: &Ground| Some(g.id) == backing || wwid.is_some() && g.wwid == wwid;
            let one = other != id
                && ground.iter().any(likely)
                && self.shared(id, other) == Some(Shared::Bytes)
                && !self.lies_on(id, other)
                && !self.lies_on(other, id);
            one.then(|| name.to_owned())
        };
        self.devices().iter().filter_map(beside).collect()
    }

    /// Names of loop devices over this device; these are not among its holders.
    pub(crate) fn loops_over(&self, id: Identity) -> Vec<String> {
        let over = |folder: &PathBuf| {
            let name = folder.file_name()?.to_str()?;
            let backing = text_in(&folder.join("loop/backing_file"))?;
            let is = sysfs::identity(Path::new(&backing)).ok() == Some(id);
            is.then(|| name.to_owned())
        };
        self.devices().iter().filter_map(over).collect()
    }

    /// All loop devices, each with the name of what lies under it.
    pub(crate) fn loops(&self) -> Loops {
        let is_loop = |folder: &PathBuf| {
            let backing = text_in(&folder.join("loop/backing_file"))?;
            let name = folder.file_name()?.to_str()?;
            Some((PathBuf::from(backing), name.to_owned()))
        };
        Loops(self.devices().iter().filter_map(is_loop).collect())
    }

    /// Of things found on devices, each once where they are the same by `key` and their devices are
    /// other names of one drive: by the uppermost, which is what others use, with those that lie
    /// under it or beside it. Copies on other drives stay: they are two.
    pub(crate) fn each_drive_once<T, K: PartialEq>(
        &self,
        found: Vec<T>,
        key: impl Fn(&T) -> K,
        path: impl Fn(&T) -> &Path,
    ) -> Vec<(T, Vec<T>)> {
        let mut kept: Vec<(T, Vec<T>)> = Vec::new();
        for mut one in found {
            let same = |(other, _): &&mut (T, Vec<T>)| {
                if key(&one) != key(other) {
                    return false;
                }
                let ids = sysfs::identity(path(&one)).ok();
                let ids = ids.zip(sysfs::identity(path(other)).ok());
                let one_drive = |(id, other)| {
                    self.lies_on(id, other) || self.shared(id, other) == Some(Shared::Bytes)
                };
                ids.is_some_and(one_drive)
            };
            let Some((other, others)) = kept.iter_mut().find(same) else {
                kept.push((one, Vec::new()));
                continue;
            };
            let ids = sysfs::identity(path(&one)).ok();
            let ids = ids.zip(sysfs::identity(path(other)).ok());
            if ids.is_some_and(|(id, other)| self.lies_on(id, other)) {
                std::mem::swap(other, &mut one);
            }
            others.push(one);
        }
        kept
    }

    fn devices(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = entries(&self.sys.join("class/block"))
            .into_iter()
            .filter_map(|entry| fs::canonicalize(entry).ok())
            .collect();
        found.sort();
        found
    }
}

fn text_in(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn number_in(file: &Path) -> Option<u64> {
    text_in(file)?.parse().ok()
}

fn size_in(folder: &Path) -> u64 {
    number_in(&folder.join("size"))
        .unwrap_or(0)
        .saturating_mul(SECTOR)
}

fn wwid_in(folder: &Path) -> Option<String> {
    text_in(&folder.join("wwid")).or_else(|| text_in(&folder.join("device/wwid")))
}

fn device_in(folder: &Path) -> Option<Identity> {
    let text = text_in(&folder.join("dev"))?;
    let (major, minor) = text.split_once(':')?;
    let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    Some(Identity::Block(number))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten();
    read.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// `nvme0` of `nvme0n1`; of others the kernel's name.
fn drive_of(folder: &Path) -> Option<String> {
    let name = folder.file_name()?.to_str()?;
    let controller = name
        .strip_prefix("nvme")
        .and_then(|rest| rest.split_once('n'));
    Some(controller.map_or_else(|| name.to_owned(), |(number, _)| format!("nvme{number}")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A /sys of our own.
    struct Tree {
        folder: tempfile::TempDir,
    }

    impl Tree {
        fn new() -> Tree {
            let folder = tempfile::tempdir().expect("temporary folder");
            for dir in ["dev/block", "class/block", "devices"] {
                fs::create_dir_all(folder.path().join(dir)).expect("made");
            }
            Tree { folder }
        }
        fn stack(&self) -> Stack {
            Stack::at(self.folder.path())
        }
        fn device(&self, place: &str, minor: u32, mib: u64, files: &[(&str, &str)]) -> Identity {
            let folder = self.folder.path().join("devices").join(place);
            fs::create_dir_all(&folder).expect("made");
            fs::write(folder.join("dev"), format!("7:{minor}\n")).expect("written");
            fs::write(folder.join("size"), format!("{}\n", mib << 11)).expect("written");
            for (name, text) in files {
                let file = folder.join(name);
                fs::create_dir_all(file.parent().expect("a folder")).expect("made");
                fs::write(file, text).expect("written");
            }
            let name = folder.file_name().expect("a name");
            for link in [
                self.folder.path().join(format!("dev/block/7:{minor}")),
                self.folder.path().join("class/block").join(name),
            ] {
                symlink(&folder, link).expect("a link");
            }
            Identity::Block(rustix::fs::makedev(7, minor))
        }
        fn on(&self, upper: &str, lower: &[&str]) {
            let slaves = self
                .folder
                .path()
                .join("devices")
                .join(upper)
                .join("slaves");
            fs::create_dir_all(&slaves).expect("made");
            for lower in lower {
                let target = self.folder.path().join("devices").join(lower);
                let name = target.file_name().expect("a name").to_owned();
                symlink(target, slaves.join(name)).expect("a link");
            }
        }
    }

    #[test]
    fn partitions_of_one_drive_are_two_devices_and_one_with_the_drive() {
        let tree = Tree::new();
        let disk = tree.device("sda", 0, 100, &[]);
        let part = |n: u32, start: &str| {
            let files = [("partition", "1"), ("start", start)];
            tree.device(&format!("sda/sda{n}"), n, 40, &files)
        };
        let (one, two) = (part(1, "2048"), part(2, "102400"));
        let other = tree.device("sdb", 9, 100, &[]);
        let stack = tree.stack();
        assert_eq!(stack.shared(one, two), Some(Shared::Drive));
        assert_eq!(stack.shared(one, disk), Some(Shared::Bytes));
        assert_eq!(stack.shared(two, other), None);
        assert!(stack.lies_on(one, disk) && !stack.lies_on(disk, one));
    }

    #[test]
    fn the_legs_of_a_multipath_device_and_that_device_are_one() {
        let tree = Tree::new();
        let wwid = [("device/wwid", "naa.5000\n")];
        let (a, b) = (
            tree.device("sda", 0, 100, &wwid),
            tree.device("sdb", 1, 100, &wwid),
        );
        let upper = tree.device("dm-0", 2, 100, &[("dm/uuid", "mpath-35000")]);
        tree.on("dm-0", &["sda", "sdb"]);
        let other = tree.device("sdc", 3, 100, &[("device/wwid", "naa.5001\n")]);
        let stack = tree.stack();
        for (x, y) in [(a, b), (a, upper), (b, upper)] {
            assert_eq!(stack.shared(x, y), Some(Shared::Bytes));
        }
        assert_eq!(stack.shared(a, other), None);
        assert_eq!(stack.other_paths(a), ["sdb"]);
        assert!(stack.lies_on(upper, a) && stack.lies_on(upper, b));
    }

    #[test]
    fn namespaces_of_one_nvme_drive_fail_together_and_its_paths_are_one() {
        let tree = Tree::new();
        let first = tree.device("nvme0n1", 0, 50, &[("wwid", "eui.01")]);
        let second = tree.device("nvme0n2", 1, 50, &[("wwid", "eui.02")]);
        let path = tree.device("nvme3n1", 2, 50, &[("wwid", "eui.01")]);
        let stack = tree.stack();
        assert_eq!(stack.shared(first, second), Some(Shared::Drive));
        assert_eq!(stack.shared(first, path), Some(Shared::Bytes));
        assert_eq!(stack.other_paths(path), ["nvme0n1"]);
        assert_eq!(stack.shared(second, path), None);
    }

    #[test]
    fn logical_volumes_are_neighbours_and_each_shares_bytes_with_the_drive() {
        let tree = Tree::new();
        let disk = tree.device("sda", 0, 100, &[]);
        let (a, b) = (
            tree.device("dm-0", 1, 40, &[]),
            tree.device("dm-1", 2, 40, &[]),
        );
        tree.on("dm-0", &["sda"]);
        tree.on("dm-1", &["sda"]);
        // The whole of it, twice.
        let whole = tree.device("dm-2", 3, 100, &[]);
        tree.on("dm-2", &["sda"]);
        // md with its superblock at the end, over a drive and another.
        let mirror = tree.device("md0", 4, 99, &[]);
        tree.device("sdb", 5, 100, &[]);
        tree.on("md0", &["sda", "sdb"]);
        let stack = tree.stack();
        assert_eq!(stack.shared(a, b), Some(Shared::Drive));
        assert_eq!(stack.shared(a, disk), Some(Shared::Bytes));
        assert_eq!(stack.shared(whole, disk), Some(Shared::Bytes));
        assert_eq!(stack.shared(whole, a), Some(Shared::Bytes));
        assert_eq!(stack.shared(mirror, disk), Some(Shared::Bytes));
        assert!(stack.lies_on(mirror, disk));
    }

    #[test]
    fn loop_devices_over_one_file_are_one_device_where_they_overlap() {
        let tree = Tree::new();
        let file = tree.folder.path().join("file");
        fs::write(&file, "x").expect("written");
        let over = |minor: u32, offset: &str| {
            let backing = file.display().to_string();
            let files = [("loop/backing_file", &backing[..]), ("loop/offset", offset)];
            tree.device(&format!("loop{minor}"), minor, 32, &files)
        };
        let (a, b) = (over(0, "0"), over(1, "0"));
        let (later, overlapping) = (over(2, "33554432"), over(3, "1048576"));
        let stack = tree.stack();
        assert_eq!(stack.shared(a, b), Some(Shared::Bytes));
        assert_eq!(stack.shared(a, overlapping), Some(Shared::Bytes));
        assert_eq!(stack.shared(a, later), Some(Shared::Drive));
        let file = sysfs::identity(&file).expect("a file");
        assert_eq!(stack.shared(file, a), Some(Shared::Bytes));
        assert!(stack.lies_on(a, file));
        assert_eq!(stack.loops_over(file).len(), 4);
        assert_eq!(stack.other_paths(a), ["loop1", "loop3"]);
    }

    #[test]
    fn a_tree_that_leads_back_to_itself_ends() {
        let tree = Tree::new();
        let a = tree.device("dm-0", 0, 10, &[]);
        let b = tree.device("dm-1", 1, 10, &[]);
        tree.on("dm-0", &["dm-1"]);
        tree.on("dm-1", &["dm-0"]);
        let stack = tree.stack();
        assert!(stack.lies_on(a, b));
        stack.shared(a, b);
    }
}
