//! Names of the block devices of arrays and volumes: `/dev/strake/NAME`, `/dev/strake/NAME/VOLUME`.
//!
//! Order: the daemon makes the link, then has the kernel announce a change of the device. Where
//! udev runs, its rule asks for the name that the daemon remembers of the device (`strake udev
//! export`) and takes the link over, with those in `/dev/disk`; it takes all of them away with the
//! device. Elsewhere the daemon's link is all there is.
//!
//! udev may be late: it handles events of a device that is gone beside a new one of its number. So
//! nothing but what the daemon remembers says what a device is called.
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
    if leads_to(link) != Some(id)
        && let Err(error) = make(link, id)
    {
        tracing::warn!(%error, link = %link.display(), "no link to the device");
    }
    announce(Path::new(&format!("/dev/ublkb{id}")));
}

/// Makes it in place of what is there.
fn make(link: &Path, id: u32) -> io::Result<()> {
    let folder = link.parent().unwrap_or(Path::new(FOLDER));
    // The array had a block device of its own before it had volumes.
    if leads_to(folder).is_some() {
        fs::remove_file(folder)?;
    }
    fs::create_dir_all(folder)?;
    let is_folder = fs::symlink_metadata(link).is_ok_and(|about| about.is_dir());
    let removed = match is_folder {
        // An array of this name had volumes.
        true => fs::remove_dir(link),
        false => fs::remove_file(link),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => symlink(format!("/dev/ublkb{id}"), link),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_the_daemon_and_of_udev_lead_to_their_device() {
        let folder = tempfile::tempdir().expect("works");
        for (target, id) in [
            ("/dev/ublkb1", Some(1)),
            ("../ublkb2", Some(2)),
            ("../../ublkb3", Some(3)),
            ("/dev/shm/ublkb4", None),
            ("/dev/nvme5n1", None),
        ] {
            let link = folder.path().join("data");
            symlink(target, &link).expect("works");
            assert_eq!(leads_to(&link), id, "{target}");
            fs::remove_file(link).expect("works");
        }
    }

    /// udev may handle an event of the device that was there before after the daemon took the name
    /// of that away.
    #[test]
    fn what_an_earlier_device_left_gives_way() {
        let temporary = tempfile::tempdir().expect("works");
        let folder = temporary.path().join("strake");
        let (array, volume) = (folder.join("data"), folder.join("data/home"));
        make(&array, 0).expect("works");
        make(&volume, 0).expect("a link of the array gives way to the folder of its volumes");
        assert_eq!(leads_to(&volume), Some(0));
        fs::remove_file(&volume).expect("works");
        make(&array, 1).expect("an empty folder gives way to a link");
        assert_eq!(leads_to(&array), Some(1));

        fs::remove_file(&array).expect("works");
        make(&volume, 2).expect("works");
        assert!(make(&array, 3).is_err(), "the folder has a name of another");
        fs::remove_file(&volume).expect("works");
        fs::remove_dir(&array).expect("works");
        symlink("/dev/nvme0n1", &array).expect("works");
        assert!(
            make(&volume, 2).is_err(),
            "a link that leads elsewhere is not ours"
        );
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
