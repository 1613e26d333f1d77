//! Names of the block devices of arrays and volumes: `/dev/strake/NAME`, `/dev/strake/NAME/VOLUME`.
//!
//! Order: the daemon makes the link, then has the kernel announce a change of the device. Where
//! udev runs, its rule asks [`name_of`] for the name and takes the link over, with those in
//! `/dev/disk`; it takes all of them away with the device. Elsewhere the daemon's link is all there
//! is.
//!
//! Invariants: a link to another device is replaced only by [`link`] and removed by nothing here.
//! A link saves typing: what fails here is in the log and stops nothing.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::{Component, Path, PathBuf};

use strake_format::ArrayName;

use crate::drives::machine::sysfs;

/// Where the links are.
const FOLDER: &str = "/dev/strake";

/// Where the block device of an array has its name, or the folder with those of its volumes.
pub(crate) fn of_array(name: &ArrayName) -> PathBuf {
    Path::new(FOLDER).join(name.as_str())
}

/// Gives `/dev/ublkbN` a name that stays the same, and has the kernel announce the device anew.
pub(crate) fn link(link: &Path, id: u32) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // One that udev made is left to it.
    if leads_to(link) != Some(id) {
        let folder = link.parent().unwrap_or(Path::new(FOLDER));
        let device = format!("/dev/ublkb{id}");
        let made = fs::create_dir_all(folder).and_then(|()| match fs::remove_file(link) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => symlink(device, link),
        });
        if let Err(error) = made {
            tracing::warn!(%error, link = %link.display(), "no link to the device");
        }
    }
    announce(Path::new(&format!("/dev/ublkb{id}")));
}

/// Has the kernel announce a block device anew: what it is called, or what it carries, is another.
/// What is made before it serves is announced by udev itself, once it is closed.
pub(crate) fn announce(device: &Path) {
    let Ok(about) = fs::metadata(device) else {
        return;
    };
    if !about.file_type().is_block_device() {
        return;
    }
    let folder = Path::new("/sys/dev/block").join(sysfs::dev_text(about.rdev()));
    if let Err(error) = fs::write(folder.join("uevent"), "change") {
        tracing::debug!(%error, device = %device.display(), "not announced");
    }
}

/// Takes the name away again, if it is that of this device.
pub(crate) fn unlink(link: &Path, id: u32) {
    if leads_to(link) == Some(id) {
        // It only saves typing; the device is what counts.
        let _ = fs::remove_file(link);
    }
}

/// N of the `/dev/ublkbN` that a link leads to; as the daemon makes it, or udev (`../ublkbN`).
fn leads_to(link: &Path) -> Option<u32> {
    let target = fs::read_link(link).ok()?;
    let in_dev = |folder: &Path| {
        let mut steps = folder.components();
        folder == Path::new("/dev") || steps.all(|step| step == Component::ParentDir)
    };
    let name = target.file_name()?.to_str()?.strip_prefix("ublkb")?;
    let folder = target.parent()?;
    name.parse().ok().filter(|_| in_dev(folder))
}

/// The array, and the volume, that `/dev/ublkbN` is known as.
pub(crate) fn name_of(id: u32) -> Option<(ArrayName, Option<ArrayName>)> {
    name_in(Path::new(FOLDER), id)
}

fn name_in(folder: &Path, id: u32) -> Option<(ArrayName, Option<ArrayName>)> {
    names_in(folder).find_map(|array| {
        let link = folder.join(array.as_str());
        if leads_to(&link) == Some(id) {
            return Some((array, None));
        }
        // A link to another device is no folder of volumes.
        let is_folder = fs::symlink_metadata(&link).is_ok_and(|about| about.is_dir());
        let volume = names_in(&link)
            .filter(|_| is_folder)
            .find(|volume| leads_to(&link.join(volume.as_str())) == Some(id))?;
        Some((array, Some(volume)))
    })
}

/// What in a folder has a name that an array or a volume may have.
fn names_in(folder: &Path) -> impl Iterator<Item = ArrayName> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ArrayName {
        text.parse().expect("a name")
    }

    #[test]
    fn a_device_is_found_by_the_links_of_the_daemon_and_of_udev() {
        let folder = tempfile::tempdir().expect("works");
        let folder = folder.path();
        fs::create_dir(folder.join("carved")).expect("works");
        for (link, target) in [
            ("data", "/dev/ublkb1"),
            ("other", "../ublkb2"),
            ("carved/home", "../../ublkb3"),
            ("elsewhere", "/dev/shm/ublkb4"),
            ("nvme", "/dev/nvme5n1"),
        ] {
            symlink(target, folder.join(link)).expect("works");
        }
        let found = [1, 2, 3, 4, 5].map(|id| name_in(folder, id));
        let carved = (name("carved"), Some(name("home")));
        let (data, other) = ((name("data"), None), (name("other"), None));
        assert_eq!(found, [Some(data), Some(other), Some(carved), None, None]);
        assert_eq!(name_in(&folder.join("gone"), 1), None);
    }

    #[test]
    fn a_link_is_taken_away_only_if_it_is_that_of_the_device() {
        let folder = tempfile::tempdir().expect("works");
        let link = folder.path().join("data");
        symlink("../ublkb7", &link).expect("works");
        unlink(&link, 8);
        assert!(fs::symlink_metadata(&link).is_ok(), "it is another's");
        unlink(&link, 7);
        assert!(fs::symlink_metadata(&link).is_err());
    }
}
