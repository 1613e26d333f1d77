//! The kernel as a program: built once from its source for the architecture `um`, it runs on the
//! host's own processor, boots in a second, and ends like any process. A cut of the power is a
//! SIGKILL.
//!
//! It has one CPU and no hardware. Its drives are files of the host behind the kernel's own block
//! driver `ubd`, each made an NVMe controller by the kernel's loop transport
//! (`tests/vm/usermode.sh`), so that scripts find them where they find those of an emulated
//! machine, and can take them away.
//!
//! Invariant: a kernel lies in a folder named after its version and after the configuration that it
//! was built with, and is moved there whole, so another configuration is another kernel and a build
//! that was interrupted leaves none. Deliberately absent: what needs an emulated drive's commands,
//! two CPUs, or Debian's own build of a kernel; such boots stay with the emulator.

use super::debian;
use super::drives::Drives;
use super::guest::Spec;
use super::prepare::folder;
use crate::host;
use anyhow::{Context, Result, bail};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The series that is built from source: ublk has all its modes, and a device may grow.
const SERIES: &str = "7";

/// What the kernel is to have and not to have, on top of the smallest configuration there is.
const CONFIG: &str = include_str!("../../../tests/vm/user-mode.config");

/// A kernel that runs as a program.
pub(crate) struct Kernel {
    pub(crate) program: PathBuf,
    /// As `uname -r` says in the guest.
    pub(crate) version: String,
}

/// Where built kernels lie.
fn built() -> PathBuf {
    folder().join("user-mode")
}

/// What tells kernels of this configuration from others.
fn mark() -> String {
    let mut hasher = DefaultHasher::new();
    CONFIG.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The kernel of this configuration: one that is here, else the newest on offer, built.
pub(crate) fn prepare() -> Result<Kernel> {
    fs::create_dir_all(built())?;
    let end = format!("-{}", mark());
    let mut here: Vec<String> = fs::read_dir(built())?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(&end))
        .collect();
    here.sort_by_key(|name| debian::numbers(name.trim_end_matches(&end)));
    let kernel = match here.last() {
        Some(newest) => built().join(newest),
        None => build()?,
    };
    let program = kernel.join("linux");
    let version = version(&program)?;
    Ok(Kernel { program, version })
}

fn version(program: &Path) -> Result<String> {
    let said = host::output(&[&program.display().to_string(), "--version"]);
    let said = said.with_context(|| format!("{} does not run here", program.display()))?;
    Ok(said.trim().to_owned())
}

/// Gets the source, builds the kernel, and returns its folder. The source is not kept: it is twenty
/// times what is built of it.
fn build() -> Result<PathBuf> {
    let start = Instant::now();
    let work = folder().join("user-mode-half");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir_all(&work)?;
    let package = debian::source(SERIES, &folder(), &work.join("package")).with_context(|| {
        format!(
            "the source of Linux {SERIES}, which the user-mode kernel is built of, could not be \
             had (Debian package linux-source-{SERIES}.*)"
        )
    })?;
    println!("building a user-mode kernel of Linux {package}");
    fs::write(work.join("wanted"), CONFIG)?;
    let jobs = std::thread::available_parallelism().map_or(2, usize::from);
    let script = format!(
        "set -e; cd '{}'; mkdir source out\n\
         tar -x --strip-components=1 -C source -f package/usr/src/linux-source-{package}.tar.xz\n\
         cd source; unset MAKEFLAGS; make='make ARCH=um O=../out'\n\
         $make tinyconfig; scripts/kconfig/merge_config.sh -m -O ../out ../out/.config ../wanted\n\
         $make olddefconfig; $make -j{jobs} linux; strip ../out/linux",
        work.display()
    );
    let made = host::logged("vm-user-mode", 3600, &["nice", "sh", "-c", &script])?;
    if !made.ok {
        let why = if made.timed_out {
            "took too long"
        } else {
            "failed"
        };
        bail!(
            "building a user-mode kernel of Linux {package} {why}:\n{}",
            made.tail(20)
        );
    }
    let config = fs::read_to_string(work.join("out/.config"))?;
    if let Some(other) = other_than_wanted(CONFIG, &config) {
        bail!("Linux {package} does not take `{other}` of tests/vm/user-mode.config");
    }
    let version = version(&work.join("out/linux"))?;
    let ready = folder().join("user-mode-ready");
    let _ = fs::remove_dir_all(&ready);
    fs::create_dir_all(&ready)?;
    fs::rename(work.join("out/linux"), ready.join("linux"))?;
    fs::rename(work.join("out/.config"), ready.join("config"))?;
    let place = built().join(format!("{version}-{}", mark()));
    fs::rename(&ready, &place).with_context(|| place.display().to_string())?;
    fs::remove_dir_all(&work)?;
    println!(
        "built Linux {version} in {:.0} s",
        start.elapsed().as_secs_f64()
    );
    Ok(place)
}

/// The first line of what is wanted that came out otherwise.
fn other_than_wanted<'a>(wanted: &'a str, config: &str) -> Option<&'a str> {
    let has = |line: &str| config.lines().any(|one| one == line);
    let names = |name: &str| {
        config
            .lines()
            .any(|one| one.starts_with(&format!("{name}=")))
    };
    wanted.lines().find(|line| {
        let off = line
            .strip_prefix("# ")
            .and_then(|rest| rest.strip_suffix(" is not set"));
        match off {
            Some(name) => names(name),
            None => line.starts_with("CONFIG_") && !has(line),
        }
    })
}

/// What the guest's first process is told of its machine, as lines for a shell.
pub(crate) fn env(drives: &Drives) -> String {
    format!(
        "MACHINE=user-mode\nUBD_DRIVES={}\nUBD_BLOCK_BYTES={}\nUBD_LOSES_CACHE={}\n",
        drives.count(),
        drives.block_bytes(),
        u8::from(drives.loses_caches())
    )
}

/// The call that boots the kernel over the host's file tree, which it cannot write to but for the
/// shared folders.
pub(crate) fn command(kernel: &Kernel, spec: &Spec<'_>, drives: &Drives, share: &Path) -> Command {
    let mut command = program(kernel, spec, share);
    command.args(["rootfstype=hostfs", "rootflags=/", "ro"]);
    command.arg(format!("init={}/usermode-init.sh", share.display()));
    command.args(drives.ubd());
    command
}

/// The kernel without root and drives. The process is the kernel: with it the machine is gone.
pub(super) fn program(kernel: &Kernel, spec: &Spec<'_>, share: &Path) -> Command {
    // Ended by a signal of the parent's death; `setpriv` becomes the kernel, so its id is the
    // kernel's.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(&kernel.program);
    command.arg(format!("mem={}M", spec.memory_mib));
    // The kernel's own words go to the file behind standard error, those of the script to the
    // pipe.
    command.args(["con=null", "con0=null,fd:2", "con1=null,fd:1", "loglevel=5"]);
    command.args([
        "seccomp=auto",
        "null_blk.nr_devices=0",
        "nvme_core.multipath=N",
    ]);
    command.arg(format!("uml_dir={}/", share.display()));
    command.arg("umid=kernel");
    command.current_dir(share);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_came_out_otherwise_is_named() {
        let wanted = "# A note.\n# CONFIG_SMP is not set\n\nCONFIG_NET=y\n";
        let of = |config: &str| other_than_wanted(wanted, config);
        assert_eq!(of("CONFIG_NET=y\n# CONFIG_SMP is not set\n"), None);
        assert_eq!(
            of("CONFIG_NET=y\n"),
            None,
            "what it never heard of is not set"
        );
        assert_eq!(of("# CONFIG_NET is not set\n"), Some("CONFIG_NET=y"));
        assert_eq!(
            of("CONFIG_NET=y\nCONFIG_SMP=y\n"),
            Some("# CONFIG_SMP is not set")
        );
    }
}
