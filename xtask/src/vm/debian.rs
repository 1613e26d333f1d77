//! Where kernels and a newer emulator come from: Debian packages, downloaded and unpacked, never
//! installed.
//!
//! The stable series comes from the machine's own package sources. A newer one comes from a newer
//! suite of the same archive: the machine's sources of its own release, copied into a private apt
//! configuration with the suite replaced, so that no address stands here and nothing changes what
//! the machine itself installs.

use crate::{host, need};
use anyhow::{Context, Result, anyhow, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Package lists and downloads are the business of one thread at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What there is of a kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Built, for an emulated PC.
    Image,
    /// Its source.
    Source,
}

/// Suites that carry what the machine's own release does not, most settled first.
const NEWER: [&str; 2] = ["testing", "sid"];

/// The packages that a kernel may be split over. Only those on offer are taken.
const PARTS: [&str; 4] = ["image", "binary", "modules", "base"];

/// Downloads and unpacks the newest kernel of a series (a version's first numbers) into the folder
/// `to`, which it empties, and returns its version.
pub(crate) fn kernel(series: &str, own: bool, work: &Path, to: &Path) -> Result<String> {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let downloads = work.join("deb");
    let version = if own {
        let apt = Apt::default();
        // Old package lists name files that are gone from the archive.
        apt.download(Kind::Image, series, &downloads).or_else(|_| {
            need::update().map_err(|why| anyhow!("{why}"))?;
            apt.download(Kind::Image, series, &downloads)
        })?
    } else {
        from_newer_suite(Kind::Image, series, work, &downloads)?
    };
    unpack(&format!("Linux {version}"), &downloads, to)?;
    Ok(version)
}

/// What an emulator of a PC is split over; what else it needs the machine's own has brought.
const QEMU: [&str; 3] = ["qemu-system-x86", "qemu-system-common", "qemu-system-data"];

/// Downloads and unpacks the QEMU that was built anew for this release, into the folder `to`, which
/// it empties.
pub(crate) fn qemu(work: &Path, to: &Path) -> Result<()> {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let suite = format!("{}-backports", own_release()?);
    let downloads = work.join("deb-qemu");
    println!("downloading QEMU of the suite {suite}");
    Apt::of_suite(&suite, &work.join("apt").join(&suite))
        .and_then(|apt| apt.get("QEMU", &QEMU.map(str::to_owned), &downloads))
        .with_context(|| format!("QEMU of the suite {suite}"))?;
    unpack("QEMU", &downloads, to)
}

/// Downloads and unpacks the source package of the newest kernel of a series, from a newer suite,
/// into the folder `to`, which it empties, and returns its version: its first two numbers.
pub(crate) fn source(series: &str, work: &Path, to: &Path) -> Result<String> {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let downloads = work.join("deb-source");
    let version = from_newer_suite(Kind::Source, series, work, &downloads)?;
    unpack(&format!("Linux {version}"), &downloads, to)?;
    Ok(version)
}

/// Unpacks the downloaded packages into the folder `to`, which it empties, and removes them.
fn unpack(what: &str, downloads: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(to);
    let (from, to) = (downloads.display(), to.display());
    let unpack = format!(
        "for p in '{from}'/*.deb; do dpkg -x \"$p\" '{to}' || exit 1; done; rm -r '{from}'"
    );
    let unpacked = host::logged("vm-unpack", 300, &["sh", "-c", &unpack])?;
    if !unpacked.ok {
        bail!("unpacking {what} failed:\n{}", unpacked.tail(10));
    }
    Ok(())
}

fn from_newer_suite(kind: Kind, series: &str, work: &Path, downloads: &Path) -> Result<String> {
    let mut why = anyhow!("no newer suite is known");
    for suite in NEWER {
        let found = Apt::of_suite(suite, &work.join("apt").join(suite))
            .and_then(|apt| apt.download(kind, series, downloads));
        match found {
            Ok(version) => return Ok(version),
            Err(error) => why = error.context(format!("Linux {series} of the suite {suite}")),
        }
    }
    Err(why)
}

/// apt with some options; none are the machine's own configuration.
#[derive(Default)]
struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// A configuration with lists and cache of its own, refreshed.
    fn of_suite(suite: &str, folder: &Path) -> Result<Self> {
        let text = sources(&own_sources(), &own_release()?, suite);
        if text.is_empty() {
            bail!("the package sources name no archive of this release");
        }
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        let list = folder.join("own.sources");
        fs::write(&list, text).with_context(|| list.display().to_string())?;
        let folder = folder.display();
        let apt = Self {
            options: [
                format!("Dir::Etc::sourcelist={}", list.display()),
                "Dir::Etc::sourceparts=-".to_owned(),
                format!("Dir::State::Lists={folder}/lists"),
                format!("Dir::Cache={folder}/cache"),
                "Acquire::Languages=none".to_owned(),
                // The sandbox's user may not write here.
                "APT::Sandbox::User=root".to_owned(),
            ]
            .into_iter()
            .flat_map(|option| ["-o".to_owned(), option])
            .collect(),
        };
        let options: Vec<&str> = apt.options.iter().map(String::as_str).collect();
        let argv = [&["apt-get"], &options[..], &["update", "-qq"]].concat();
        let updated = host::logged_with("vm-apt-update", 300, &argv, &need::UNATTENDED)?;
        if !updated.ok {
            bail!("apt-get update failed:\n{}", updated.tail(10));
        }
        Ok(apt)
    }

    /// Names of packages that match.
    fn names(&self, pattern: &str) -> Result<Vec<String>> {
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let search = ["search", "--names-only", pattern];
        let listed = host::output(&[&["apt-cache"], &options[..], &search].concat())?;
        let first = |line: &str| line.split(' ').next().map(str::to_owned);
        Ok(listed.lines().filter_map(first).collect())
    }

    /// Downloads the newest kernel of a series into an emptied folder and returns its version.
    fn download(&self, kind: Kind, series: &str, to: &Path) -> Result<String> {
        let number = series.replace('.', "\\.");
        let (pattern, start) = match kind {
            Kind::Image => (
                format!("^linux-image-{number}\\.[0-9].*-amd64$"),
                "linux-image-",
            ),
            Kind::Source => (format!("^linux-source-{number}\\.[0-9]+$"), "linux-source-"),
        };
        let names = self.names(&pattern)?;
        let newest = newest(names.iter().map(String::as_str)).with_context(|| {
            format!("no {start}{series}* in the package sources; add a suite that has it")
        })?;
        let version = newest.trim_start_matches(start).to_owned();
        let parts = if kind == Kind::Source {
            vec![newest.to_owned()]
        } else {
            let quoted = version.replace('.', "\\.").replace('+', "\\+");
            self.names(&format!("^linux-({})-{quoted}$", PARTS.join("|")))?
        };
        println!("downloading Linux {version}");
        self.get(&format!("Linux {version}"), &parts, to)?;
        Ok(version)
    }

    /// Downloads packages into an emptied folder.
    fn get(&self, what: &str, packages: &[String], to: &Path) -> Result<()> {
        let _ = fs::remove_dir_all(to);
        fs::create_dir_all(to)?;
        // apt's sandbox user may not write here; that is a warning, not a failure.
        let get = format!(
            "cd '{}' && apt-get {} download -q {}",
            to.display(),
            self.options.join(" "),
            packages.join(" ")
        );
        let got = host::logged("vm-download", 900, &["sh", "-c", &get])?;
        if !got.ok {
            bail!("download of {what} failed:\n{}", got.tail(10));
        }
        Ok(())
    }
}

/// The newest of the names that are neither a cloud nor a real-time build.
fn newest<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .filter(|name| !name.contains("-cloud-") && !name.contains("-rt-"))
        .max_by_key(|n| numbers(n))
}

/// The numbers in a name, so that 6.12.100 comes after 6.12.9.
pub(crate) fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

/// The name of the release that this machine runs.
fn own_release() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    text.lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
        .map(|name| name.trim_matches('"').to_owned())
        .context("/etc/os-release names no release")
}

/// All package sources of the machine, in either notation, one text for each file.
fn own_sources() -> Vec<String> {
    let parts = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten();
    let mut paths: Vec<PathBuf> = parts.filter_map(|part| Some(part.ok()?.path())).collect();
    paths.push("/etc/apt/sources.list".into());
    paths.sort();
    paths
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect()
}

/// The sources of the release itself (not of its updates), with the suite replaced, as stanzas.
fn sources(texts: &[String], release: &str, suite: &str) -> String {
    let mut all = String::new();
    for text in texts {
        for stanza in text.split("\n\n") {
            all.push_str(&from_stanza(stanza, release, suite).unwrap_or_default());
        }
        for line in text.lines() {
            all.push_str(&from_line(line, release, suite).unwrap_or_default());
        }
    }
    all
}

fn stanza(uri: &str, suite: &str, key: Option<&str>) -> String {
    let key = key.map_or_else(String::new, |key| format!("Signed-By: {key}\n"));
    format!("Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: main\n{key}\n")
}

fn from_stanza(text: &str, release: &str, suite: &str) -> Option<String> {
    let field = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find_map(|(key, value)| key.eq_ignore_ascii_case(name).then(|| value.trim()))
    };
    let has = |name, word| field(name).is_some_and(|words| words.split(' ').any(|w| w == word));
    let ours = has("Types", "deb") && has("Suites", release) && has("Components", "main");
    let uri = field("URIs").filter(|_| ours)?;
    Some(stanza(uri, suite, field("Signed-By")))
}

/// `deb [options] URI SUITE COMPONENT…`.
fn from_line(line: &str, release: &str, suite: &str) -> Option<String> {
    let rest = line.trim().strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [uri, of, components @ ..] = words.as_slice() else {
        return None;
    };
    let mut options = options.split_whitespace();
    let key = options.find_map(|option| option.strip_prefix("signed-by="));
    (*of == release && components.contains(&"main")).then(|| stanza(uri, suite, key))
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

    #[test]
    fn sources_of_the_release_itself_are_taken_with_another_suite() {
        let stanzas = "Types: deb\n# a note\nURIs: http://a.example/d\nSuites: old old-updates\n\
                       Components: main\nSigned-By: /k.gpg\n\n\
                       Types: deb\nURIs: http://a.example/s\n\
                       Suites: old-security\nComponents: main";
        let lines = "deb http://tool.example old-tool main\n# deb http://b.example old main\n\
                     deb [arch=amd64 signed-by=/l.gpg] http://c.example old main contrib\n";
        let got = sources(&[stanzas.to_owned(), lines.to_owned()], "old", "new");
        assert_eq!(
            got,
            "Types: deb\nURIs: http://a.example/d\nSuites: new\nComponents: main\n\
             Signed-By: /k.gpg\n\n\
             Types: deb\nURIs: http://c.example\nSuites: new\nComponents: main\n\
             Signed-By: /l.gpg\n\n"
        );
    }
}
