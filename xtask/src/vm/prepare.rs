//! What a boot needs, brought under `target/vm` once: a kernel with its modules, and virtme-ng.
//!
//! The kernel is a Debian package, downloaded and unpacked, never installed: the newest 6.12 that
//! the machine's own package sources offer, or the one that an earlier run left here. Everything is
//! found again by looking at the folder, so a run that was interrupted half way is simply
//! continued.
//!
//! The one thing outside the folder is a link `/lib/modules/VERSION`: the guest and depmod look
//! there.

use crate::{host, need};
use anyhow::{Context, Result, anyhow, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// The series that the scenarios are written for: it has ublk with user recovery.
const SERIES: &str = "6.12";

/// A kernel and a way to boot it.
pub(crate) struct Rig {
    pub(crate) vmlinuz: PathBuf,
    /// As `uname -r` says in the guest.
    pub(crate) version: String,
    /// Where virtme-ng's programs lie; they call each other by name.
    pub(crate) bin: PathBuf,
}

/// The folder of everything that the rig downloads and writes.
pub(crate) fn folder() -> PathBuf {
    host::target().join("vm")
}

/// Makes sure that everything is there. Says on standard output what takes long.
pub(crate) fn prepare() -> Result<Rig> {
    if !need::is_root() {
        bail!("the virtual machine needs root: it links a folder into /lib/modules");
    }
    if need::missing_for_vm().is_some() {
        need::install(true).map_err(|why| anyhow!("{why}"))?;
    }
    fs::create_dir_all(folder())?;
    let kernel = kernel()?;
    let version = module_version(&kernel)?;
    link_modules(&kernel, &version)?;
    let vmlinuz = kernel.join("boot").join(format!("vmlinuz-{version}"));
    if !vmlinuz.is_file() {
        bail!(
            "{} does not exist; remove {} and try again",
            vmlinuz.display(),
            kernel.display()
        );
    }
    Ok(Rig {
        vmlinuz,
        version,
        bin: virtme()?,
    })
}

/// The unpacked kernel: one that is here, else the newest on offer.
fn kernel() -> Result<PathBuf> {
    let kernels = folder().join("kernel");
    fs::create_dir_all(&kernels)?;
    let mut here: Vec<String> = fs::read_dir(&kernels)?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(SERIES))
        .collect();
    here.sort_by_key(|name| numbers(name));
    if let Some(newest) = here.last() {
        return Ok(kernels.join(newest));
    }
    let downloads = folder().join("deb");
    let package = match download(&downloads) {
        Ok(package) => package,
        // Old package lists name files that are gone from the archive.
        Err(_) => {
            need::update().map_err(|why| anyhow!("{why}"))?;
            download(&downloads)?
        }
    };
    let version = package.trim_start_matches("linux-image-").to_owned();
    // Unpacked beside its place and moved there whole: a half unpacked kernel is never taken for
    // one.
    let half = folder().join("kernel-half");
    let _ = fs::remove_dir_all(&half);
    let (from, to) = (downloads.display(), half.display());
    let unpack = format!("dpkg -x '{from}'/*.deb '{to}' && rm -r '{from}'");
    let unpacked = host::logged("vm-unpack", 300, &["sh", "-c", &unpack])?;
    if !unpacked.ok {
        bail!("unpacking {package} failed:\n{}", unpacked.tail(10));
    }
    let place = kernels.join(&version);
    fs::rename(&half, &place).with_context(|| place.display().to_string())?;
    Ok(place)
}

/// Downloads the newest kernel package into an emptied folder and returns its name.
fn download(to: &Path) -> Result<String> {
    let package = newest_on_offer()?;
    println!("downloading {package}");
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to)?;
    // apt's sandbox user may not write here; that is a warning, not a failure.
    let get = format!("cd '{}' && apt-get download -q {package}", to.display());
    let got = host::logged("vm-download", 900, &["sh", "-c", &get])?;
    if !got.ok {
        bail!("download of {package} failed:\n{}", got.tail(10));
    }
    Ok(package)
}

/// The newest kernel package of the series for ordinary machines, by its name.
fn newest_on_offer() -> Result<String> {
    let pattern = format!(
        "^linux-image-{}\\.[0-9].*-amd64$",
        SERIES.replace('.', "\\.")
    );
    let listed = host::output(&["apt-cache", "search", "--names-only", &pattern])?;
    let names = listed.lines().filter_map(|line| line.split(' ').next());
    newest(names).map(str::to_owned).with_context(|| {
        format!("no linux-image-{SERIES}*-amd64 in the package sources; add a suite that has it")
    })
}

/// The newest of the names that are neither a cloud nor a real-time build.
fn newest<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .filter(|name| !name.contains("-cloud-") && !name.contains("-rt-"))
        .max_by_key(|n| numbers(n))
}

/// The numbers in a name, so that 6.12.100 comes after 6.12.9.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_found_by_number_and_special_builds_are_left() {
        let names = [
            "linux-image-6.12.9+deb12-amd64",
            "linux-image-6.12.117+deb12-amd64",
            "linux-image-6.12.118+deb12-cloud-amd64",
            "linux-image-6.12.118+deb12-rt-amd64",
            "linux-image-6.12.100+deb12-amd64",
        ];
        assert_eq!(
            newest(names.into_iter()),
            Some("linux-image-6.12.117+deb12-amd64")
        );
        assert_eq!(newest(std::iter::empty()), None);
    }
}
