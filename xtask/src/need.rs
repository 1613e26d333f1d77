//! What the tests need beyond Rust, by the names Debian gives it, and how it gets there.
//!
//! Only what is missing is installed, only by root and only where apt-get exists. Elsewhere the
//! steps that need it say `SKIPPED: why`, and the count shows it.

use crate::host;
use std::env;
use std::path::Path;

/// One thing that a step may need: the file that proves it is there, and the package that brings
/// it.
pub(crate) struct Need {
    /// A program looked up on the usual paths, or an absolute path.
    proof: &'static str,
    package: &'static str,
}

const fn need(proof: &'static str, package: &'static str) -> Need {
    Need { proof, package }
}

/// For tests of crates: NBD clients other than ours, a load generator, a mail server, certificates,
/// file systems to recognise.
const FOR_TESTS: &[Need] = &[
    need("cc", "gcc"),
    need("nbdinfo", "libnbd-bin"),
    need("nbdcopy", "libnbd-bin"),
    need("/usr/lib/python3/dist-packages/nbd.py", "python3-libnbd"),
    need("qemu-img", "qemu-utils"),
    need("qemu-io", "qemu-utils"),
    need("curl", "curl"),
    need("jq", "jq"),
    need("fio", "fio"),
    need("promtool", "prometheus"),
    need("prometheus", "prometheus"),
    need("openssl", "openssl"),
    // Makes a client from the API's document; `tests/cli/client.txt` names what pip installs.
    need("python3", "python3"),
    need("/usr/share/doc/python3-venv", "python3-venv"),
    need(
        "/usr/lib/python3/dist-packages/aiosmtpd",
        "python3-aiosmtpd",
    ),
    need("mkfs.xfs", "xfsprogs"),
    need("mkfs.ext4", "e2fsprogs"),
    need("mdadm", "mdadm"),
    need("losetup", "mount"),
    need("wipefs", "util-linux"),
    need("setsid", "util-linux"),
    need("sfdisk", "fdisk"),
    // File systems that show a file once more, and one without a kernel's cache.
    need("bindfs", "bindfs"),
    need("fuse2fs", "fuse2fs"),
];

/// For the virtual machine: the emulator, the programs that run inside the guest, which sees the
/// host's own file tree, and what builds a kernel.
pub(crate) const FOR_VM: &[Need] = &[
    need("qemu-system-x86_64", "qemu-system-x86"),
    need("qemu-img", "qemu-utils"),
    need("busybox", "busybox-static"),
    need("mmdebstrap", "mmdebstrap"),
    need("depmod", "kmod"),
    need("dpkg", "dpkg"),
    need("xz", "xz-utils"),
    need("python3", "python3"),
    need("jq", "jq"),
    need("fio", "fio"),
    need("mkfs.xfs", "xfsprogs"),
    need("mkfs.ext4", "e2fsprogs"),
    need("mdadm", "mdadm"),
    need("dmsetup", "dmsetup"),
    need("nvme", "nvme-cli"),
    need("unshare", "util-linux"),
    need("nsenter", "util-linux"),
    need("ip", "iproute2"),
    need("curl", "curl"),
    // To build the user-mode kernel.
    need("make", "make"),
    need("flex", "flex"),
    need("bison", "bison"),
    need("bc", "bc"),
    need("cc", "gcc"),
    need("/usr/include/stdio.h", "libc6-dev"),
];

/// For the web page: what builds it, a browser, letters for its screenshots, Cockpit, and
/// terminals for pictures of commands.
const FOR_CONSOLE: &[Need] = &[
    need("node", "nodejs"),
    need("npm", "npm"),
    need("chromium", "chromium"),
    need(
        "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
        "fonts-dejavu-core",
    ),
    need("/usr/lib/cockpit/cockpit-ws", "cockpit-ws"),
    need("/usr/share/cockpit/shell", "cockpit-system"),
    need("sudo", "sudo"),
    need("openssl", "openssl"),
    need("tmux", "tmux"),
    need("aha", "aha"),
];

/// For packages: what packs, looks at them, installs them.
const FOR_PACKAGES: &[Need] = &[
    need("dpkg-deb", "dpkg"),
    need("dpkg-shlibdeps", "dpkg-dev"),
    need("strip", "binutils"),
    need("gzip", "gzip"),
    need("lintian", "lintian"),
    need("rpm", "rpm"),
    need("deb-systemd-helper", "init-system-helpers"),
    need("systemd-analyze", "systemd"),
    need("udevadm", "udev"),
    need("unshare", "util-linux"),
    need("losetup", "mount"),
];

/// Whether the thing is there.
fn present(need: &Need) -> bool {
    if need.proof.starts_with('/') {
        return Path::new(need.proof).exists();
    }
    find(need.proof)
}

/// Whether a program is on PATH or where Debian keeps root's programs.
pub(crate) fn find(program: &str) -> bool {
    let path = env::var("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/local/sbin"];
    path.split(':')
        .chain(usual)
        .any(|folder| Path::new(folder).join(program).is_file())
}

/// Whether this process may install packages and boot guests that mount: user id 0.
pub(crate) fn is_root() -> bool {
    host::output(&["id", "-u"]).is_ok_and(|id| id.trim() == "0")
}

/// The packages that have no proof, each once.
fn missing(needs: &[&[Need]]) -> Vec<&'static str> {
    let mut packages: Vec<&'static str> = needs
        .iter()
        .flat_map(|list| list.iter())
        .filter(|need| !present(need))
        .map(|need| need.package)
        .collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Installs what is missing for tests, and for packages, the page and the virtual machine where
/// `with_vm`. What could not be had is named; the steps that need it will say so again.
pub(crate) fn install(with_vm: bool) -> Result<String, String> {
    let needs: &[&[Need]] = if with_vm {
        &[FOR_TESTS, FOR_PACKAGES, FOR_CONSOLE, FOR_VM]
    } else {
        &[FOR_TESTS]
    };
    let packages = missing(needs);
    if packages.is_empty() {
        return Ok("all there".to_owned());
    }
    let list = packages.join(" ");
    if !is_root() || !find("apt-get") {
        return Err(format!(
            "missing {list}; not root or no apt-get: install by hand"
        ));
    }
    apt(&packages)?;
    let left = missing(needs);
    if left.is_empty() {
        return Ok(format!("installed {list}"));
    }
    Err(format!(
        "still missing after apt-get install: {}",
        left.join(" ")
    ))
}

/// The search path, as `env` takes it, on which a command of cargo is found: `cargo-NAME` is
/// installed where it is missing.
pub(crate) fn cargo_tool(name: &str) -> anyhow::Result<String> {
    let tools = host::target().join("tools");
    if !find(name) && !tools.join("bin").join(name).exists() {
        let folder = tools.display().to_string();
        // Unoptimised it compiles in half the time, and has little to do but to compress.
        let compressor = "profile.dev.package.zstd-sys.opt-level=3";
        let install = [
            "cargo", "install", "--locked", "--debug", "--config", compressor, "--root", &folder,
            name,
        ];
        let installed = host::logged(&format!("{name}-install"), 1800, &install)?;
        if !installed.ok {
            anyhow::bail!("{name} could not be installed:\n{}", installed.tail(20));
        }
    }
    let path = std::env::var("PATH").unwrap_or_default();
    Ok(format!("PATH={path}:{}", tools.join("bin").display()))
}

/// What of the needs of the virtual machine is missing, in words, or nothing.
pub(crate) fn missing_for_vm() -> Option<String> {
    let packages = missing(&[FOR_VM]);
    if packages.is_empty() {
        None
    } else {
        Some(format!("missing {}", packages.join(" ")))
    }
}

/// Refreshes the package lists, then installs without a question and without recommendations.
/// Another apt-get on the machine is waited for.
fn apt(packages: &[&str]) -> Result<(), String> {
    update()?;
    let quiet = ["DPkg::Lock::Timeout=300"];
    let mut argv = vec!["apt-get", "-o", quiet[0], "install", "-y", "-qq"];
    argv.push("--no-install-recommends");
    argv.extend(packages);
    let finished = host::logged_with("apt-install", 900, &argv, &UNATTENDED);
    match finished {
        Ok(finished) if finished.ok => Ok(()),
        // One name unknown to this release fails the whole call: take the others one by one.
        Ok(_) => {
            for package in packages {
                let argv = ["apt-get", "-o", quiet[0], "install", "-y", "-qq", package];
                let _ = host::logged_with("apt-install-one", 600, &argv, &UNATTENDED);
            }
            Ok(())
        }
        Err(error) => Err(format!("{error:#}")),
    }
}

pub(crate) const UNATTENDED: [(&str, &str); 2] =
    [("DEBIAN_FRONTEND", "noninteractive"), ("LC_ALL", "C")];

/// `apt-get update`, tried again where the network hiccups.
pub(crate) fn update() -> Result<(), String> {
    for attempt in 1..=3 {
        let argv = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "update", "-qq"];
        let finished = host::logged_with("apt-update", 300, &argv, &UNATTENDED);
        match finished {
            Ok(finished) if finished.ok => return Ok(()),
            Ok(finished) if attempt == 3 => {
                return Err(format!("apt-get update failed:\n{}", finished.tail(10)));
            }
            Ok(_) => std::thread::sleep(std::time::Duration::from_secs(5)),
            Err(error) => return Err(format!("{error:#}")),
        }
    }
    Ok(())
}
