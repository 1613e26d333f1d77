//! A Debian with systemd of its own in a user-mode kernel, for what a package does to a machine:
//! units, udev rules, mounts at boot, reboots.
//!
//! Its root is an image that mmdebstrap makes once; each boot writes to a layer over it, which
//! lasts as long as the guest, also through its reboots. Or its root is on an array, and an
//! initramfs brings it up. Invariant: an image lies in a folder named after what it is made of, and
//! is moved there whole. Deliberately absent: Strake itself; a script installs the package.

use super::drives::Drives;
use super::guest::Spec;
use super::prepare::folder;
use super::usermode::{self, Kernel};
use crate::host;
use anyhow::{Context, Result, bail};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What makes a system of a tree of packages.
const SETUP: &str = include_str!("../../../tests/vm/system-setup.sh");

/// The smallest Debian that boots, and what the scripts use.
const PACKAGES: &str = "systemd,systemd-sysv,udev,dbus,kmod,mount,util-linux,fdisk,xfsprogs,\
     e2fsprogs,fio,jq,initramfs-tools,busybox,zstd,dracut-core";

/// Of the file system of the root. The file is sparse.
const SIZE: &str = "2G";

/// The drive that is the root: the last one that `ubd` has.
const ROOT: (u32, char) = (15, 'p');

/// In the shared folder: what the kernel starts from where its root is on an array.
pub(super) const INITRAMFS: &str = "initrd";

/// Of the file system there; `tests/vm/root.sh` makes it.
const ON_ARRAY: &str = "root=UUID=5eed0000-0000-4000-8000-000000000033";

/// A kernel that runs as a program, and the image of its root.
pub(crate) struct System {
    pub(crate) kernel: Kernel,
    image: PathBuf,
}

/// The image that is here, else a new one.
pub(crate) fn prepare() -> Result<System> {
    let kernel = usermode::prepare()?;
    let suite = suite()?;
    let mut hasher = DefaultHasher::new();
    (SETUP, PACKAGES, SIZE).hash(&mut hasher);
    let place = folder().join(format!("system-{suite}-{:016x}", hasher.finish()));
    let image = place.join("root");
    if !image.is_file() {
        make(&suite, &place)?;
    }
    Ok(System { kernel, image })
}

/// The host's: what was built here runs there.
fn suite() -> Result<String> {
    let about = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let line = about
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(line.context("/etc/os-release names no Debian")?.to_owned())
}

fn make(suite: &str, place: &Path) -> Result<()> {
    println!("making a Debian {suite} with systemd");
    let half = folder().join("system-half");
    let _ = fs::remove_dir_all(&half);
    fs::create_dir_all(&half)?;
    fs::write(half.join("setup"), SETUP)?;
    let script = format!(
        "set -e; cd '{}'\n\
         mmdebstrap --quiet --mode=root --variant=minbase --include={PACKAGES} {suite} tree\n\
         bash setup tree; mke2fs -q -t ext4 -d tree root {SIZE}; rm -rf tree",
        half.display()
    );
    let made = host::logged("vm-system", 1200, &["nice", "sh", "-c", &script])?;
    if !made.ok {
        bail!("mmdebstrap makes no Debian {suite}:\n{}", made.tail(20));
    }
    fs::rename(&half, place).with_context(|| place.display().to_string())?;
    Ok(())
}

/// The call that boots it. The process is the kernel, also through its reboots.
pub(crate) fn command(
    system: &System,
    spec: &Spec<'_>,
    drives: &Drives,
    share: &Path,
) -> Result<Command> {
    let mut command = usermode::program(&system.kernel, spec, share);
    let initramfs = share.join(INITRAMFS);
    if initramfs.is_file() {
        command.arg(format!("initrd={}", initramfs.display()));
        command.args([ON_ARRAY, "ro"]);
        // What the kernel does not know is in the environment of its first process.
        let env = fs::read_to_string(share.join("boot.env")).unwrap_or_default();
        command.args(env.lines().filter_map(|line| line.strip_prefix("export ")));
    } else {
        let layer = share.join("root.layer");
        // A layer of an earlier guest is none over this image.
        let _ = fs::remove_file(&layer);
        let (number, letter) = ROOT;
        command.arg(format!(
            "ubd{number}={},{}",
            layer.display(),
            system.image.display()
        ));
        command.args([&format!("root=/dev/ubd{letter}"), "rw"]);
    }
    command.args([
        // Its words are in the journal, which a script shows where something is wrong.
        "systemd.show_status=false".to_owned(),
        format!("test.share={}", share.display()),
    ]);
    command.args(drives.ubd());
    Ok(command)
}
