//! The steps of the whole run that are made of cargo and of the product's binary.
//!
//! Each turns the output of one command into counts. What a test prints as `SKIPPED: why` moves it
//! from the passed to the skipped, so that a machine that lacks something never looks better than
//! it is.

use crate::bench::Bench;
use crate::host::{self, Finished};
use crate::outcome::Outcome;
use crate::{clock, door, need};
use anyhow::{Result, bail};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// `cargo fmt --check`.
pub(crate) fn format() -> Result<Outcome> {
    let finished = host::logged("fmt", 120, &[&host::cargo(), "fmt", "--all", "--check"])?;
    Ok(Outcome::of(&finished, 60))
}

/// All lints of all targets, warnings denied.
pub(crate) fn clippy() -> Result<Outcome> {
    let cargo = host::cargo();
    let argv = [
        &cargo,
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    Ok(Outcome::of(&host::logged("clippy", 900, &argv)?, 80))
}

/// What later steps run.
const PROGRAMS: [&str; 4] = ["strake", door::SIM, door::TORTURE, "strake-bench"];

/// The product as a user builds it, and what looks for its faults. Each by itself: built together,
/// the product would have the bugs that the simulator plants, and each would be built once more
/// where it is run by itself.
pub(crate) fn build() -> Result<Outcome> {
    let cargo = host::cargo();
    for package in PROGRAMS {
        let argv = [&cargo, "build", "--release", "-p", package];
        let built = host::logged(&format!("release-build-{package}"), 1200, &argv)?;
        if !built.ok {
            return Ok(Outcome::of(&built, 80));
        }
    }
    Ok(Outcome::passed())
}

/// The benchmarks that cargo runs. Beside virtual machines this takes the compiler long.
pub(crate) fn bench_build(benches: &[Bench]) -> Result<Outcome> {
    for bench in benches {
        let Some(argv) = bench.build()? else { continue };
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let built = host::logged(&format!("bench-build-{}", bench.name), 1200, &argv)?;
        if !built.ok {
            return Ok(Outcome::of(&built, 80));
        }
    }
    Ok(Outcome::passed())
}

/// The tests of commands: most of their time they wait for daemons, so all others run beside them.
const WAITING: &str = "cli";

/// Every test of every crate. The output of passing tests is shown too, for the reasons of skips.
pub(crate) fn cargo_test() -> Result<Outcome> {
    let cargo = host::cargo();
    let test = [&cargo, "test", "--workspace", "--no-fail-fast"];
    let run = |log: &str, before: &[&str], which: &[&str]| {
        let argv = [before, &test, which, &["--", "--show-output"]].concat();
        host::logged(log, 1800, &argv)
    };
    let built = host::logged(
        "cargo-test-build",
        1800,
        &[&test[..], &["--no-run"]].concat(),
    )?;
    if !built.ok {
        return Ok(read_cargo_test(&built));
    }
    let metadata = host::metadata()?;
    let names = host::packages(&metadata)
        .iter()
        .filter_map(|p| p["name"].as_str());
    let files = names.flat_map(|package| host::targets(&metadata, package, "test"));
    let files: BTreeSet<String> = files.filter(|name| name != WAITING).collect();
    let mut others = vec!["--lib", "--bins"];
    others.extend(files.iter().flat_map(|name| ["--test", name.as_str()]));
    let finished = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| run("cargo-test-cli", &[], &["--test", WAITING]));
        let others = run("cargo-test", &LAST, &others);
        let documents = run("cargo-test-doc", &LAST, &["--doc"]);
        let waiting = waiting.join().expect("trouble is an error, not a panic");
        [waiting, others, documents]
    });
    let mut total = Outcome::default();
    for finished in finished {
        total += read_cargo_test(&finished?);
    }
    Ok(total)
}

/// Adds up the `test result:` lines and moves the tests that skipped themselves.
fn read_cargo_test(finished: &Finished) -> Outcome {
    let mut outcome = Outcome::default();
    let mut reasons = BTreeSet::new();
    let mut failures = Vec::new();
    let mut skipped = 0;
    for line in finished.text.lines() {
        if let Some(result) = line.strip_prefix("test result: ") {
            outcome.counts.passed += count(result, " passed");
            outcome.counts.failed += count(result, " failed");
            outcome.counts.skipped += count(result, " ignored");
        } else if let Some(why) = line.trim_start().strip_prefix("SKIPPED: ") {
            skipped += 1;
            reasons.insert(why.to_owned());
        } else if line.starts_with("test ") && line.ends_with("FAILED") {
            failures.push(line.to_owned());
        }
    }
    outcome.counts.passed = outcome.counts.passed.saturating_sub(skipped);
    outcome.counts.skipped += skipped;
    outcome
        .notes
        .extend(reasons.into_iter().map(|why| format!("SKIPPED: {why}")));
    outcome.notes.extend(failures);
    if !finished.ok {
        // A crate that does not compile, or a test process that died, leaves no line with a count.
        outcome.counts.failed = outcome.counts.failed.max(1);
        let why = if finished.timed_out {
            "ran past its time\n"
        } else {
            ""
        };
        outcome
            .notes
            .push(format!("{why}{}", failed_output(finished)));
    }
    outcome
}

/// The number right before a word such as ` passed`.
fn count(result: &str, word: &str) -> u64 {
    let before = result
        .split(word)
        .next()
        .filter(|before| before.len() < result.len());
    let digits = before.and_then(|text| text.rsplit([' ', '.', ';']).next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// What cargo's log says of failures: the `failures:` parts where there are some, else its end.
fn failed_output(finished: &Finished) -> String {
    let lines: Vec<&str> = finished.text.lines().collect();
    let mut shown = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        // The first of the two `failures:` lists of one test binary holds the output of the tests.
        if *line == "failures:"
            && lines
                .get(at + 2)
                .is_some_and(|next| next.starts_with("----"))
        {
            let part = lines[at..]
                .iter()
                .take_while(|line| !line.starts_with("test result:"));
            shown.extend(part.take(150).copied());
        }
    }
    let errors = lines.iter().position(|line| line.starts_with("error"));
    match (shown.is_empty(), errors) {
        (false, _) => host::tail(&shown.join("\n"), 300),
        (true, Some(at)) => lines[at..]
            .iter()
            .take(80)
            .copied()
            .collect::<Vec<_>>()
            .join("\n"),
        (true, None) => finished.tail(80),
    }
}

/// One short run of a set of benchmarks: those that no longer run, or read back wrong bytes, are
/// found here.
pub(crate) fn bench_smoke(bench: Bench) -> Result<Outcome> {
    let name = bench.name;
    let Some(argv) = bench.command(&["--smoke"])? else {
        return Ok(Outcome::skipped(format!("{name} has no benchmark")));
    };
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let run = host::logged(&format!("bench-{name}"), 1200, &argv)?;
    Ok(Outcome::of(&run, 60))
}

/// Runs the simulator behind such words as `nice`, or says that there is none.
fn simulator(name: &str, limit_s: u64, before: &[&str], args: &[&str]) -> Result<Option<Finished>> {
    if host::targets(&host::metadata()?, "strake-sim", "bin").is_empty() {
        return Ok(None);
    }
    let argv = door::command(door::SIM, args);
    let argv = argv.iter().map(String::as_str);
    let argv: Vec<&str> = before.iter().copied().chain(argv).collect();
    host::logged(name, limit_s, &argv).map(Some)
}

/// A seed taken from the commit: each commit explores its own part of the space, and a failure can
/// be repeated from the log.
fn seed_of_commit() -> u64 {
    let commit = host::output(&["git", "rev-parse", "HEAD"]).unwrap_or_default();
    commit
        .get(..8)
        .and_then(|hex| u64::from_str_radix(hex, 16).ok())
        .unwrap_or(1)
}

/// Arrays on files, killed and reopened for so many seconds.
pub(crate) fn torture(seconds: u64) -> Result<Outcome> {
    let (limit, first) = (seconds.to_string(), seed_of_commit().to_string());
    let argv = door::command(door::TORTURE, &["--seconds", &limit, "--seed", &first]);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let run = host::logged("torture", seconds + 300, &argv)?;
    let last = run.tail(1);
    Ok(Outcome::of(&run, 80).note(format!("from seed {first}: {last}")))
}

/// Many seeds.
pub(crate) fn sim_seeds(seeds: u64) -> Result<Outcome> {
    let first = seed_of_commit();
    let left = clock::left().as_secs().to_string();
    let (wanted, first) = (seeds.to_string(), first.to_string());
    let args = ["--seeds", &wanted, "--seed", &first, "--seconds", &left];
    let run = simulator("sim-seeds", 3600, &LAST, &args)?;
    Ok(match run {
        None => Outcome::skipped("strake-sim has no program yet"),
        Some(run) => {
            let last = run.text.lines().rfind(|line| !line.trim().is_empty());
            let last = last.unwrap_or_default().to_owned();
            let ran = last.split(' ').next().and_then(|n| n.parse::<u64>().ok());
            let mut outcome = Outcome::of(&run, 60).note(format!("from seed {first}: {last}"));
            if let Some(ran) = ran.filter(|ran| run.ok && *ran < seeds) {
                outcome.counts.skipped += 1;
                let left_out = seeds - ran;
                outcome = outcome.note(format!(
                    "SKIPPED: {left_out} seeds: this machine is slow, and the whole run has an end"
                ));
            }
            outcome
        }
    })
}

/// Before a command that takes what others leave of the CPUs: virtual machines and daemons, since
/// their scenarios have clocks.
const LAST: [&str; 3] = ["nice", "-n", "19"];

/// The planted bugs: each must be found.
pub(crate) fn sim_canaries() -> Result<Outcome> {
    Ok(
        match simulator("sim-canaries", 3600, &LAST, &["canaries"])? {
            None => Outcome::skipped("strake-sim has no program yet"),
            Some(run) => Outcome::of(&run, 60),
        },
    )
}

/// How many demos run side by side: each waits for clocks most of its time.
const DEMOS: usize = 3;

/// The demos of these levels.
pub(crate) fn demos(levels: &[&str]) -> Result<Outcome> {
    let one = |level: &str| {
        let outcome = demo(level)?;
        let notes = outcome
            .notes
            .iter()
            .map(|note| format!("level {level}: {note}"));
        Ok(Outcome {
            counts: outcome.counts,
            notes: notes.collect(),
        })
    };
    let mut total = Outcome::default();
    for some in levels.chunks(DEMOS) {
        let ended: Vec<Result<Outcome>> = std::thread::scope(|scope| {
            let one = &one;
            let running: Vec<_> = some
                .iter()
                .map(|level| scope.spawn(move || one(level)))
                .collect();
            let ended = running.into_iter().map(|running| running.join());
            ended
                .map(|ended| ended.expect("trouble is an error, not a panic"))
                .collect()
        });
        for outcome in ended {
            total += outcome?;
        }
    }
    Ok(total)
}

/// The whole life of one array on files, and what its closing line must say.
pub(crate) fn demo(level: &str) -> Result<Outcome> {
    let binary = host::strake_binary();
    let Some(binary) = binary
        .to_str()
        .filter(|path| std::path::Path::new(path).exists())
    else {
        return Ok(Outcome::skipped("no release build of strake"));
    };
    let argv = [binary, "demo", "--json", "--level", level];
    let run = host::logged(&format!("demo-{level}"), 300, &argv)?;
    if !run.ok {
        return Ok(Outcome::of(&run, 60));
    }
    let last = run
        .text
        .lines()
        .rfind(|line| line.starts_with('{'))
        .unwrap_or_default();
    Ok(match check_demo(last) {
        Ok(said) => Outcome::passed().note(said),
        Err(error) => Outcome::failed(format!("{error:#}\n{}", run.tail(20))),
    })
}

fn check_demo(line: &str) -> Result<String> {
    let Ok(said) = serde_json::from_str::<Value>(line) else {
        bail!("the demo did not end with a line of JSON");
    };
    let number = |key: &str| said[key].as_u64();
    for (key, want) in [("mismatches", 0), ("lost_acknowledged_writes", 0)] {
        if number(key) != Some(want) {
            bail!("{key} is {}, not {want}", said[key]);
        }
    }
    for key in ["members_lost", "daemon_kills", "verified_bytes"] {
        if number(key).is_none_or(|value| value == 0) {
            bail!("{key} is {}, not at least 1", said[key]);
        }
    }
    Ok(format!(
        "verified {} bytes, lost {} members, rebuilt at {} bytes/s",
        said["verified_bytes"], said["members_lost"], said["rebuild_bytes_per_s"]
    ))
}

/// Seconds for each fuzz target: the committed corpus, and a little more, beside virtual machines.
const FUZZ_S: u64 = 20;

/// Installs `cargo-fuzz` into this folder where the machine has none; whether it has one then.
fn has_cargo_fuzz(tools: &Path) -> Result<bool> {
    if need::find("cargo-fuzz") || tools.join("bin/cargo-fuzz").exists() {
        return Ok(true);
    }
    let folder = tools.display().to_string();
    let install = [
        "cargo",
        "install",
        "--locked",
        "--debug", // it compiles in half the time and has nothing to do but to start others
        "--root",
        &folder,
        "cargo-fuzz",
    ];
    Ok(host::logged("fuzz-install", 900, &install)?.ok)
}

/// A short run of each fuzz target, where the tools of fuzzing are installed.
pub(crate) fn fuzz_smoke() -> Result<Outcome> {
    if !host::root().join("fuzz/Cargo.toml").exists() {
        return Ok(Outcome::skipped("no fuzz targets"));
    }
    let nightly = ["env", "-u", "RUSTUP_TOOLCHAIN", "cargo", "+nightly", "-V"];
    if host::output(&nightly).is_err() {
        return Ok(Outcome::skipped("fuzzing needs a nightly toolchain"));
    }
    let tools = host::target().join("tools");
    if !has_cargo_fuzz(&tools)? {
        return Ok(Outcome::skipped("cargo-fuzz could not be installed"));
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("PATH={path}:{}", tools.join("bin").display());
    // Most of a smoke run's time is the compiler's, and its inputs are few.
    let quick = [
        "CARGO_PROFILE_RELEASE_OPT_LEVEL=0",
        "CARGO_PROFILE_RELEASE_DEBUG=0",
    ];
    // A rustup proxy picks the toolchain by `+nightly` only when the variable of the outer one is
    // gone.
    let fuzz = [
        "env",
        "-u",
        "RUSTUP_TOOLCHAIN",
        "-u",
        "CARGO",
        &path,
        quick[0],
        quick[1],
        "cargo",
        "+nightly",
        "fuzz",
    ];
    let listed = host::logged("fuzz-list", 60, &[&fuzz[..], &["list"]].concat())?;
    if !listed.ok {
        return Ok(Outcome::of(&listed, 20));
    }
    // By itself: what the HTTP target needs takes the compiler longer than a target may run.
    let built = host::logged("fuzz-build", 1800, &[&fuzz[..], &["build"]].concat())?;
    if !built.ok {
        return Ok(Outcome::of(&built, 40));
    }
    let mut total = Outcome::default();
    for target in listed
        .text
        .lines()
        .filter(|line| !line.contains(char::is_whitespace))
    {
        // What is found goes into the first folder; the second is the one in git.
        let found = host::target().join("fuzz-corpus").join(target);
        std::fs::create_dir_all(&found)?;
        let (found, kept) = (found.display().to_string(), format!("fuzz/corpus/{target}"));
        let limit = format!("-max_total_time={FUZZ_S}");
        let run = ["run", target, &found, &kept, "--", &limit];
        let argv = [&fuzz[..], &run, &["-timeout=20", "-rss_limit_mb=4096"]];
        let run = host::logged(&format!("fuzz-{target}"), 300, &argv.concat())?;
        total += Outcome::of(&run, 40);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(text: &str) -> Finished {
        Finished {
            ok: !text.contains("FAILED"),
            timed_out: false,
            text: text.to_owned(),
        }
    }

    #[test]
    fn counts_of_several_test_binaries_add_up_and_skips_leave_the_passed() {
        let outcome = read_cargo_test(&finished(
            "test a ... ok\nSKIPPED: no ublk here\n\
             test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
             test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
        ));
        let counts = outcome.counts;
        assert_eq!((counts.passed, counts.failed, counts.skipped), (12, 0, 2));
        assert_eq!(outcome.notes, ["SKIPPED: no ublk here"]);
    }

    #[test]
    fn a_workspace_that_does_not_compile_is_a_failure_though_no_line_counts_one() {
        let outcome = read_cargo_test(&Finished {
            ok: false,
            timed_out: false,
            text: "error: could not compile".to_owned(),
        });
        assert_eq!(outcome.counts.failed, 1);
    }

    #[test]
    fn a_demo_that_lost_a_write_or_killed_nobody_is_refused() {
        let line = |lost: u64, kills: u64| {
            format!(
                r#"{{"mismatches":0,"lost_acknowledged_writes":{lost},"members_lost":1,
                "daemon_kills":{kills},"verified_bytes":4096}}"#
            )
        };
        assert!(check_demo(&line(0, 1)).is_ok());
        assert!(check_demo(&line(1, 1)).is_err());
        assert!(check_demo(&line(0, 0)).is_err());
        assert!(check_demo("").is_err());
    }
}
