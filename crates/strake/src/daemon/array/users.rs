//! What uses the block device of an array or a volume: mounts, holders, processes.
//!
//! Deliberately absent: what uses members (`common::uses`, which is asked here, and `drives`).

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::uses;

/// The daemon waits so long for a process that has a block device open only to look at it, as udev
/// does.
const LOOKING_PATIENCE: Duration = Duration::from_secs(2);

/// Whether the kernel has such a block device.
pub(crate) fn ublk_exists(id: u32) -> bool {
    Path::new(&format!("/sys/class/block/ublkb{id}")).exists()
}

/// What keeps a ublk device busy.
pub(crate) fn user_of_ublk(id: u32) -> Option<String> {
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let rdev = std::fs::metadata(format!("/dev/ublkb{id}")).ok()?.rdev();
    if let Some(point) = uses::mounted(rdev) {
        return Some(format!("/dev/ublkb{id} is mounted on {point}"));
    }
    let holders = uses::holders(rdev);
    if !holders.is_empty() {
        let holders = holders.join(", ");
        return Some(format!("/dev/ublkb{id} is held by {holders}"));
    }
    // Mounts in other mount namespaces are not seen above, but they hold the device exclusively.
    let exclusive = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::EXCL.bits() as i32)
        .open(format!("/dev/ublkb{id}"));
    let busy = exclusive.is_err_and(|e| e.kind() == std::io::ErrorKind::ResourceBusy);
    let user = || match uses::of(Path::new(&format!("/dev/ublkb{id}"))) {
        Some(used) => format!("/dev/ublkb{id} is {used}"),
        None => format!("/dev/ublkb{id} is in use"),
    };
    busy.then(user)
}

/// The same, and processes that only have it open, as virtual machines and databases do: for
/// commands that take data away. A process that only looks at it, like udev, is waited for.
pub(crate) fn opener_of_ublk(id: u32) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let rdev = std::fs::metadata(format!("/dev/ublkb{id}")).ok()?.rdev();
    let since = Instant::now();
    loop {
        if let Some(found) = user_of_ublk(id) {
            return Some(found);
        }
        let opener = uses::opener(rdev)?;
        if since.elapsed() > LOOKING_PATIENCE {
            return Some(format!("/dev/ublkb{id} is open in {opener}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
