//! `cargo xtask console`: the web page, from `console/` into `console/dist/`.
//!
//! Order: the packages of `package-lock.json` → the type check → the bundle.
//!
//! Invariants: the same sources and packages make the same bytes, so `--check` compares what is
//! checked in with what is built. The product builds without Node: it uses what is checked in.

use crate::host::{self, Finished};
use crate::need;
use crate::outcome::Outcome;
use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Options {
    /// Build elsewhere, and fail where `console/dist` differs
    #[arg(long)]
    check: bool,
}

/// What the page's tools need.
const NODE_MIN: u32 = 20;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(why) = missing() {
        bail!("{why}");
    }
    for finished in [packages()?, types()?] {
        if !finished.ok {
            bail!("{}", finished.tail(60));
        }
    }
    if !options.check {
        let built = build(&dist())?;
        if !built.ok {
            bail!("{}", built.tail(60));
        }
        println!("console/dist: {} bytes", size(&dist())?);
        return Ok(ExitCode::SUCCESS);
    }
    match difference()? {
        None => Ok(ExitCode::SUCCESS),
        Some(found) => bail!("{found}"),
    }
}

/// Types, the bundle that is checked in, and the page in a browser against a daemon.
pub(crate) fn step() -> Result<Outcome> {
    if let Some(why) = missing() {
        return Ok(Outcome::skipped(why));
    }
    if !packages()?.ok {
        let why = "npm ci failed (see console-packages.log): the packages of the page are missing";
        return Ok(Outcome::skipped(why));
    }
    let mut total = Outcome::of(&types()?, 40);
    total += match difference()? {
        None => Outcome::passed(),
        Some(found) => Outcome::failed(found),
    };
    total += browser()?;
    Ok(total)
}

/// What is needed and not there, in words.
fn missing() -> Option<String> {
    for program in ["node", "npm"] {
        if !need::find(program) {
            return Some(format!("{program} is not installed"));
        }
    }
    let version = host::output(&["node", "--version"]).unwrap_or_default();
    let version = version.trim();
    let major = version.trim_start_matches('v').split('.').next();
    let major: u32 = major.and_then(|text| text.parse().ok()).unwrap_or(0);
    (major < NODE_MIN).then(|| format!("node is {version}, and {NODE_MIN} or later is needed"))
}

fn dist() -> std::path::PathBuf {
    host::root().join("console/dist")
}

/// Installs what `package-lock.json` names, unless it is there.
fn packages() -> Result<Finished> {
    let console = host::root().join("console");
    let wanted = fs::read(console.join("package-lock.json"))?;
    let stamp = console.join("node_modules/.installed-lock.json");
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(Finished {
            ok: true,
            timed_out: false,
            text: String::new(),
        });
    }
    let argv = ["npm", "--prefix", "console", "ci"];
    let finished = host::logged("console-packages", 600, &argv)?;
    if finished.ok {
        fs::write(&stamp, wanted)?;
    }
    Ok(finished)
}

fn types() -> Result<Finished> {
    let argv = ["npm", "--prefix", "console", "run", "--silent", "types"];
    host::logged("console-types", 300, &argv)
}

fn build(out: &Path) -> Result<Finished> {
    let out = out.display().to_string();
    host::logged("console-build", 300, &["node", "console/build.mjs", &out])
}

/// What differs between the bundle that is checked in and one that is built now.
fn difference() -> Result<Option<String>> {
    let folder = host::target().join("console-dist");
    let built = build(&folder)?;
    if !built.ok {
        return Ok(Some(built.tail(60)));
    }
    let (kept, made) = (files(&dist())?, files(&folder)?);
    let mut names: Vec<&String> = kept.keys().chain(made.keys()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| kept.get(*name) != made.get(*name));
    Ok((!names.is_empty()).then(|| {
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        format!(
            "console/dist differs from what its sources make: {}; run cargo xtask console",
            names.join(", ")
        )
    }))
}

/// The files of a folder, without folders in it: the bundle has none.
fn files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.insert(name, fs::read(entry.path())?);
    }
    Ok(files)
}

fn size(folder: &Path) -> Result<usize> {
    Ok(files(folder)?.values().map(Vec::len).sum())
}

/// The page in Chromium, against the release build.
fn browser() -> Result<Outcome> {
    if !need::find("chromium") {
        return Ok(Outcome::skipped("chromium is not installed"));
    }
    let binary = host::strake_binary();
    if !binary.exists() {
        return Ok(Outcome::skipped("no release build of strake"));
    }
    let binary = binary.display().to_string();
    let argv = [
        "node",
        "--test",
        "--test-reporter=tap",
        "console/test/console.test.mjs",
        "console/test/cockpit.test.mjs",
        "console/test/terminal.test.mjs",
    ];
    let run = host::logged_with("console", 900, &argv, &[("STRAKE_BINARY", &binary)])?;
    Ok(read_tap(&run))
}

/// The counts at the end of what Node's test runner prints, and what failed.
fn read_tap(run: &Finished) -> Outcome {
    let count = |what: &str| -> u64 {
        let lines = run.text.lines();
        let found = lines.filter_map(|line| line.strip_prefix("# ")?.strip_prefix(what));
        found
            .filter_map(|rest| rest.trim().parse::<u64>().ok())
            .sum()
    };
    let mut outcome = Outcome::default();
    outcome.counts.passed = count("pass ");
    outcome.counts.failed = count("fail ") + count("cancelled ");
    let reasons = run
        .text
        .lines()
        .filter_map(|line| line.split_once("# SKIP "));
    let reasons: Vec<&str> = reasons.map(|(_, why)| why).collect();
    // Those after a failure are no skips that a machine asks for.
    if outcome.counts.failed > 0 || !run.ok {
        outcome.counts.failed = outcome.counts.failed.max(1);
        outcome.notes.push(run.tail(80));
    } else {
        outcome.counts.skipped = reasons.len() as u64;
        let said = reasons.iter().map(|why| format!("SKIPPED: {why}"));
        outcome.notes.extend(said);
    }
    if outcome.counts.passed == 0 && outcome.counts.failed == 0 {
        return Outcome::failed("no test of the page ran");
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(ok: bool, text: &str) -> Finished {
        Finished {
            ok,
            timed_out: false,
            text: text.to_owned(),
        }
    }

    #[test]
    fn tests_of_the_page_are_counted_and_none_is_a_failure() {
        let text = "# tests 17\n# pass 16\n# fail 0\n# cancelled 0\n# skipped 1\n";
        let outcome = read_tap(&finished(true, text));
        assert_eq!((outcome.counts.passed, outcome.counts.failed), (16, 0));
        let text = "ok 1 - Cockpit # SKIP it is not there\n# pass 2\n# fail 0\n# skipped 1\n";
        let outcome = read_tap(&finished(true, text));
        assert_eq!((outcome.counts.passed, outcome.counts.skipped), (2, 1));
        assert_eq!(outcome.notes, ["SKIPPED: it is not there"]);
        let outcome = read_tap(&finished(false, "# pass 2\n# fail 1\n# cancelled 1\n"));
        assert_eq!((outcome.counts.passed, outcome.counts.failed), (2, 2));
        assert_eq!(read_tap(&finished(true, "")).counts.failed, 1);
        assert_eq!(read_tap(&finished(false, "# pass 2\n")).counts.failed, 1);
    }
}
