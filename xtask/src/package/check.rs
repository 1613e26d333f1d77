//! What the packages must hold and do.
//!
//! The .deb is installed, installed again, removed and purged in a *copy of the machine's own
//! root*: an overlay over `/` in a mount namespace of its own, with everything that is written in
//! memory. Nothing of it is left behind. The same root shows the unit to systemd's checks and the
//! rules to udev.
//!
//! Deliberately absent: a systemd that runs. There is none in such a root, so the scripts of the
//! package find nothing to start.

use crate::host::{self, Finished};
use crate::need;
use crate::outcome::Outcome;
use crate::package::Packages;
use anyhow::{Result, bail};
use std::path::Path;

/// What both packages hold, without the leading slash.
const BOTH: &[&str] = &[
    "etc/strake/strake.toml",
    "usr/bin/strake",
    "usr/lib/systemd/system/strake.service",
    "usr/lib/udev/rules.d/62-strake.rules",
    "usr/lib/tmpfiles.d/strake.conf",
    "usr/lib/modules-load.d/strake.conf",
    "usr/lib/strake/root-daemon",
    "usr/lib/dracut/modules.d/95strake/module-setup.sh",
    "usr/lib/dracut/modules.d/95strake/arrays.sh",
    "usr/lib/dracut/modules.d/95strake/strake-initrd.service",
    "usr/share/cockpit/strake/cockpit.html",
    "usr/share/cockpit/strake/manifest.json",
    "usr/share/cockpit/strake/strake.css",
    "usr/share/cockpit/strake/strake.js",
    "usr/share/cockpit/strake/LICENSES.txt",
    "usr/share/man/man8/strake.8.gz",
    "usr/share/man/man8/strake-create.8.gz",
    "usr/share/man/man8/strake-volume-create.8.gz",
    "usr/share/strake/monitoring/strake.rules.yml",
    "usr/share/strake/monitoring/strake-dashboard.json",
    "usr/share/bash-completion/completions/strake",
    "usr/share/fish/vendor_completions.d/strake.fish",
];
const DEB: &[&str] = &[
    "usr/share/initramfs-tools/hooks/strake",
    "usr/share/initramfs-tools/scripts/local-top/strake",
    "usr/share/initramfs-tools/scripts/panic/strake",
    "usr/share/doc/strake/copyright",
    "usr/share/doc/strake/third-party-licences.gz",
    "usr/share/zsh/vendor-completions/_strake",
];
const RPM: &[&str] = &[
    "usr/share/licenses/strake/LICENSE-MIT",
    "usr/share/licenses/strake/LICENSE-APACHE",
    "usr/share/licenses/strake/third-party-licences.gz",
    "usr/share/zsh/site-functions/_strake",
];

/// How exposed the unit may be by systemd's count: 100 is a unit without any restriction.
const EXPOSURE_MAX: &str = "--threshold=40";

/// Runs with the package as its first argument, an empty folder as its second. Each check prints
/// one line.
const IN_A_ROOT: &str = include_str!("in-a-root.sh");

pub(super) fn all(packages: &Packages) -> Result<Outcome> {
    let deb = packages.deb.display().to_string();
    let mut total = holds(&["dpkg-deb", "--fsys-tarfile", &deb], &[BOTH, DEB])?;
    total += of_program(
        "lintian",
        &["lintian", "--allow-root", "--fail-on", "error", &deb],
    )?;
    let rpm = packages.rpm.display().to_string();
    total += match need::find("rpm") {
        true => holds(&["rpm", "-qlp", &rpm], &[BOTH, RPM])?,
        false => Outcome::skipped("rpm is not installed"),
    };
    total += in_a_root(packages)?;
    Ok(total)
}

/// A check that is one program of another package.
fn of_program(program: &str, argv: &[&str]) -> Result<Outcome> {
    if !need::find(program) {
        return Ok(Outcome::skipped(format!("{program} is not installed")));
    }
    Ok(Outcome::of(&host::logged(program, 300, argv)?, 40))
}

/// Whether a package holds all that it must.
fn holds(argv: &[&str], lists: &[&[&str]]) -> Result<Outcome> {
    let text = match argv {
        ["dpkg-deb", ..] => {
            let list = format!("{} | tar -t", argv.join(" "));
            host::output(&["sh", "-c", &list])?
        }
        _ => host::output(argv)?,
    };
    let missing = missing(&text, lists);
    Ok(match missing.as_slice() {
        [] => Outcome::passed(),
        _ => Outcome::failed(format!("{} lacks {}", argv[2], missing.join(", "))),
    })
}

/// What a list of files lacks.
fn missing<'a>(text: &str, lists: &[&[&'a str]]) -> Vec<&'a str> {
    let held: Vec<&str> = text
        .lines()
        .map(|line| line.trim_start_matches("./").trim_start_matches('/'))
        .collect();
    let wanted = lists.iter().flat_map(|list| list.iter().copied());
    wanted.filter(|file| !held.contains(file)).collect()
}

fn in_a_root(packages: &Packages) -> Result<Outcome> {
    if !need::is_root() {
        return Ok(Outcome::skipped("installing the packages needs root"));
    }
    let folder = host::target().join("package/root");
    std::fs::create_dir_all(&folder)?;
    let shown = |path: &Path| path.display().to_string();
    let (deb, rpm, folder) = (shown(&packages.deb), shown(&packages.rpm), shown(&folder));
    let argv = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        IN_A_ROOT,
        "in-a-root",
        &deb,
        &folder,
        EXPOSURE_MAX,
        &rpm,
    ];
    let run = host::logged("package-in-a-root", 300, &argv)?;
    checks(&run)
}

/// Reads the lines of the script.
fn checks(run: &Finished) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for line in run.text.lines() {
        if line.starts_with("ok: ") {
            outcome.counts.passed += 1;
        } else if line.starts_with("FAILED: ") {
            outcome.counts.failed += 1;
        } else if line.starts_with("SKIPPED: ") {
            outcome.counts.skipped += 1;
        } else {
            continue;
        }
        if !line.starts_with("ok: ") {
            outcome.notes.push(line.to_owned());
        }
    }
    if !run.ok {
        bail!("the checks did not come to their end:\n{}", run.tail(30));
    }
    if outcome.counts.failed > 0 {
        outcome.notes.push(run.tail(60));
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_package_lacks_is_named() {
        let lists: &[&[&str]] = &[&["usr/bin/strake"], &["usr/lib/x"]];
        assert_eq!(missing("./usr/bin/strake\n", lists), ["usr/lib/x"]);
        assert!(missing("/usr/lib/x\n/usr/bin/strake\n", lists).is_empty());
    }

    #[test]
    fn the_lines_of_the_script_are_counted_and_an_early_end_is_an_error() {
        let run = |ok, text: &str| Finished {
            ok,
            timed_out: false,
            text: text.to_owned(),
        };
        let outcome = checks(&run(true, "ok: a\nnoise\nFAILED: b\nSKIPPED: c\n"));
        let counts = outcome.expect("it ended").counts;
        assert_eq!((counts.passed, counts.failed, counts.skipped), (1, 1, 1));
        assert!(checks(&run(false, "ok: a\n")).is_err());
    }
}
