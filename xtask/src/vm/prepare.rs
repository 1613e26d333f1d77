//! What a boot needs, brought under `target/vm` once: a kernel with its modules and virtme-ng, or a
//! kernel as a program.
//!
//! A kernel is the newest of its series on offer (`debian`), or the one that an earlier run left
//! here. Everything is found again by looking at the folder, so a run that was interrupted half way
//! is simply continued.
//!
//! The one thing outside the folder is a link `/lib/modules/VERSION`: the guest and depmod look
//! there.

use super::system::{self, System};
use super::{debian, usermode};
use crate::outcome::Outcome;
use crate::{host, need};
use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// One thread at a time brings what is needed, and those that wait find it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A series of kernels that scenarios are written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Series {
    /// ublk with user recovery and user copy
    #[value(name = "6.12")]
    Stable,
    /// ublk with automatic buffer registration and batches
    #[value(name = "7")]
    New,
}

impl Series {
    /// The first numbers of its versions.
    fn numbers(self) -> &'static str {
        match self {
            Series::Stable => "6.12",
            Series::New => "7",
        }
    }
}

/// What a guest is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Machine {
    /// A PC with two CPUs and NVMe drives on PCIe, emulated, with Debian's kernel.
    Emulated(Series),
    /// The same with drives that have placement handles, which only newer emulators know; with the
    /// newest kernel.
    Placing,
    /// A kernel that is a program of the host.
    UserMode,
    /// The same with a Debian of its own, which systemd runs.
    System,
    /// The same from this initramfs, with its root on an array.
    OnArray(&'static str),
}

/// All of them, in the order in which they are quick to get.
pub(crate) const MACHINES: [Machine; 5] = [
    Machine::Emulated(Series::Stable),
    Machine::Emulated(Series::New),
    Machine::Placing,
    Machine::UserMode,
    Machine::System,
];

impl Machine {
    /// Its kernel is built here.
    fn is_ours(self) -> bool {
        !self.is_emulated()
    }

    /// It is a PC in an emulator.
    pub(crate) fn is_emulated(self) -> bool {
        matches!(self, Machine::Emulated(_) | Machine::Placing)
    }

    /// As `vm list` shows it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Machine::Emulated(Series::Stable) => "emulated, 6.12",
            Machine::Emulated(Series::New) => "emulated, 7",
            Machine::Placing => "placing, 7",
            Machine::UserMode => "user-mode, 7",
            Machine::System => "systemd, 7",
            Machine::OnArray(_) => "on an array, 7",
        }
    }
}

/// A kernel and a way to boot it.
pub(crate) enum Rig {
    Emulated(Emulator),
    UserMode(usermode::Kernel),
    System(System),
}

impl Rig {
    /// As `uname -r` says in the guest.
    pub(crate) fn version(&self) -> &str {
        match self {
            Rig::Emulated(emulator) => &emulator.version,
            Rig::UserMode(kernel) => &kernel.version,
            Rig::System(system) => &system.kernel.version,
        }
    }
}

/// The rigs of a run, each prepared once, when the first boot needs it.
#[derive(Default)]
pub(crate) struct Rigs {
    stable: OnceLock<Result<Rig, String>>,
    new: OnceLock<Result<Rig, String>>,
    placing: OnceLock<Result<Rig, String>>,
    user_mode: OnceLock<Result<Rig, String>>,
    system: OnceLock<Result<Rig, String>>,
}

impl Rigs {
    /// The rig of a machine, or why there is none.
    pub(crate) fn of(&self, machine: Machine) -> Result<&Rig, &str> {
        let place = match machine {
            Machine::Emulated(Series::Stable) => &self.stable,
            Machine::Emulated(Series::New) => &self.new,
            Machine::Placing => &self.placing,
            Machine::UserMode => &self.user_mode,
            Machine::System | Machine::OnArray(_) => &self.system,
        };
        let made = place.get_or_init(|| prepare(machine).map_err(|why| format!("{why:#}")));
        made.as_ref().map_err(String::as_str)
    }
}

/// Counts checks that have no machine. An emulator and Debian's kernels are had or not; a user-mode
/// kernel is ours to build, so without it they have failed.
pub(crate) fn lacks(total: &mut Outcome, machine: Machine, count: u64, what: &str, why: &str) {
    let word = if machine.is_ours() {
        total.counts.failed += count;
        "FAILED"
    } else {
        total.counts.skipped += count;
        "SKIPPED"
    };
    println!("  {word}: {what}: {why}");
    total.notes.push(format!("{word}: {what}: {why}"));
}

/// Debian's kernel and the emulator that boots it.
pub(crate) struct Emulator {
    pub(crate) vmlinuz: PathBuf,
    /// As `uname -r` says in the guest.
    pub(crate) version: String,
    /// Where virtme-ng's programs lie; they call each other by name.
    pub(crate) bin: PathBuf,
    /// Where a newer QEMU than the machine's own is unpacked.
    pub(crate) qemu: Option<PathBuf>,
}

impl Emulator {
    /// The program of a QEMU that is unpacked here.
    pub(crate) fn program(root: &Path) -> PathBuf {
        root.join("usr/bin/qemu-system-x86_64")
    }
}

/// The folder of everything that the rig downloads and writes.
pub(crate) fn folder() -> PathBuf {
    host::target().join("vm")
}

/// Why nothing can be booted here at all, if that is so.
pub(crate) fn refuses() -> Option<String> {
    if !need::is_root() {
        return Some(
            "the virtual machine needs root: it links a folder into /lib/modules".to_owned(),
        );
    }
    need::missing_for_vm()?;
    need::install(true).err()
}

/// Makes sure that everything is there. Says on standard output what takes long.
fn prepare(machine: Machine) -> Result<Rig> {
    // A rig of emulated machines is not kept waiting by the build of a user-mode kernel.
    static BUILD: Mutex<()> = Mutex::new(());
    let turn = if machine.is_ours() {
        &BUILD
    } else {
        &ONE_AT_A_TIME
    };
    let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(match machine {
        Machine::Emulated(series) => Rig::Emulated(emulator(series)?),
        Machine::Placing => Rig::Emulated(Emulator {
            qemu: Some(newer_qemu()?),
            ..emulator(Series::New)?
        }),
        Machine::UserMode => {
            needs()?;
            Rig::UserMode(usermode::prepare()?)
        }
        Machine::System | Machine::OnArray(_) => {
            needs()?;
            Rig::System(system::prepare()?)
        }
    })
}

fn needs() -> Result<()> {
    if let Some(why) = refuses() {
        bail!("{why}");
    }
    Ok(fs::create_dir_all(folder())?)
}

/// An emulated machine with a kernel of this series.
pub(crate) fn emulator(series: Series) -> Result<Emulator> {
    needs()?;
    let kernel = kernel(series)?;
    let version = module_version(&kernel)?;
    link_modules(&kernel, &version)?;
    // Newer packages keep the image beside the modules.
    let beside = modules(&kernel)?.join(&version).join("vmlinuz");
    let vmlinuz = [
        kernel.join("boot").join(format!("vmlinuz-{version}")),
        beside,
    ]
    .into_iter()
    .find(|path| path.is_file())
    .with_context(|| {
        let kernel = kernel.display();
        format!("{kernel} holds no kernel image; remove it and try again")
    })?;
    Ok(Emulator {
        vmlinuz,
        version,
        bin: virtme()?,
        qemu: None,
    })
}

/// The folder of a QEMU that knows drives with placement handles (8.1 and later), unpacked beside
/// what the machine has installed. It runs with the machine's own libraries.
fn newer_qemu() -> Result<PathBuf> {
    needs()?;
    let place = folder().join("qemu");
    let version = |root: &Path| {
        let program = Emulator::program(root).display().to_string();
        host::output(&[&program, "--version"])
    };
    if version(&place).is_err() {
        let half = folder().join("qemu-half");
        debian::qemu(&folder(), &half)?;
        version(&half).context("the newer QEMU does not run here")?;
        let _ = fs::remove_dir_all(&place);
        fs::rename(&half, &place).with_context(|| place.display().to_string())?;
    }
    Ok(place)
}

/// The unpacked kernel: one that is here, else the newest on offer.
fn kernel(series: Series) -> Result<PathBuf> {
    let kernels = folder().join("kernel");
    fs::create_dir_all(&kernels)?;
    let start = format!("{}.", series.numbers());
    let mut here: Vec<String> = fs::read_dir(&kernels)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(&start))
        .collect();
    here.sort_by_key(|name| debian::numbers(name));
    if let Some(newest) = here.last() {
        return Ok(kernels.join(newest));
    }
    // Unpacked beside its place and moved there whole: a half unpacked kernel is never taken for
    // one.
    let half = folder().join("kernel-half");
    let own = series == Series::Stable;
    let version = debian::kernel(series.numbers(), own, &folder(), &half)?;
    let place = kernels.join(&version);
    fs::rename(&half, &place).with_context(|| place.display().to_string())?;
    Ok(place)
}

/// Where the modules of an unpacked kernel lie; newer Debian unpacks under /usr.
fn modules(kernel: &Path) -> Result<PathBuf> {
    ["lib/modules", "usr/lib/modules"]
        .map(|folder| kernel.join(folder))
        .into_iter()
        .find(|folder| folder.is_dir())
        .with_context(|| {
            format!(
                "{} holds no modules; remove it and try again",
                kernel.display()
            )
        })
}

fn module_version(kernel: &Path) -> Result<String> {
    let folder = modules(kernel)?;
    let mut entries = fs::read_dir(&folder)?;
    let entry = entries
        .next()
        .with_context(|| format!("{} is empty", folder.display()))??;
    Ok(entry.file_name().to_string_lossy().into_owned())
}

/// Makes /lib/modules/VERSION lead to the unpacked modules, with their dependencies written down.
fn link_modules(kernel: &Path, version: &str) -> Result<()> {
    let real = modules(kernel)?.join(version);
    let link = Path::new("/lib/modules").join(version);
    fs::create_dir_all("/lib/modules")?;
    let installed = link.is_dir() && !link.is_symlink();
    if !installed && fs::read_link(&link).ok().as_deref() != Some(&real) {
        // A link that another checkout left, perhaps to a folder that is gone.
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&real, &link).with_context(|| link.display().to_string())?;
    }
    if link.join("modules.dep.bin").is_file() {
        return Ok(());
    }
    let made = host::logged("vm-depmod", 120, &["depmod", version])?;
    if !made.ok {
        bail!("depmod {version} failed:\n{}", made.tail(10));
    }
    Ok(())
}

/// virtme-ng in an environment of its own; returns the folder of its programs.
fn virtme() -> Result<PathBuf> {
    let venv = folder().join("venv");
    let bin = venv.join("bin");
    let pip = bin.join("pip");
    if bin.join("vng").is_file() && works(&bin) {
        return Ok(bin);
    }
    println!("installing virtme-ng");
    let _ = fs::remove_dir_all(&venv);
    let venv = venv.display().to_string();
    let make = ["python3", "-m", "venv", &venv];
    if !host::logged("vm-venv", 300, &make)?.ok || !pip.is_file() {
        let argv = [
            "apt-get",
            "-o",
            "DPkg::Lock::Timeout=300",
            "install",
            "-y",
            "-qq",
        ];
        let argv = [&argv[..], &["--no-install-recommends", "python3-venv"]].concat();
        need::update().map_err(|why| anyhow!("{why}"))?;
        host::logged_with("vm-venv-apt", 600, &argv, &need::UNATTENDED)?;
        let made = host::logged("vm-venv", 300, &make)?;
        if !made.ok {
            bail!("python3 -m venv failed:\n{}", made.tail(10));
        }
    }
    let pip = pip.display().to_string();
    for attempt in 1..=3 {
        let got = host::logged("vm-pip", 600, &[&pip, "install", "--quiet", "virtme-ng"])?;
        if got.ok {
            break;
        }
        if attempt == 3 {
            bail!("pip install virtme-ng failed:\n{}", got.tail(10));
        }
    }
    Ok(bin)
}

/// A venv breaks when the checkout moves or the system's Python goes.
fn works(bin: &Path) -> bool {
    let vng = bin.join("vng").display().to_string();
    host::output(&[&vng, "--version"]).is_ok()
}
