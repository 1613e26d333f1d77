//! `cargo xtask mutants`: changes the engine and the format in small ways, and looks whether the
//! simulator notices.
//!
//! `cargo mutants` makes the changes: a comparison turned round, a function that returns at once.
//! The judges are the simulator's own tests: its scenarios, and seeds of every level and of every
//! course. A mutant that survives shows code that no test would miss. By default a sample is drawn;
//! which one follows from `--seed`.
//!
//! Order: list all mutants; draw; run the tests without a mutant; test the mutants one by one in a
//! copy of the tree; print each survivor with its place and what was changed.
//!
//! Deliberately absent: a limit on survivors. Some mutants do the same as the original, so a person
//! reads the list.

use crate::host;
use crate::need;
use anyhow::{Result, bail};
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The packages that are changed, and the package that has the tests.
const CHANGED: [&str; 2] = ["strake-engine", "strake-format"];
const JUDGE: &str = "strake-sim";
/// Hooks of planted bugs do nothing but by the simulator's order.
const HOOKS: &str = "crates/engine/src/canary.rs";
/// So many seeds of each level, and a twelfth of that of each course, judge a mutant: more than in
/// the usual run of the tests.
const SEEDS: &str = "100";

#[derive(Args)]
pub(crate) struct Options {
    /// How many mutants are drawn
    #[arg(long, default_value_t = 20)]
    sample: usize,
    /// Decides which
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// All of them: days of one processor
    #[arg(long)]
    all: bool,
    /// Only mutants with this word in their file or name
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// End after so many minutes, with what is known by then
    #[arg(long, default_value_t = 120)]
    minutes: u64,
    /// Take it for granted that the tests pass without a mutant
    #[arg(long)]
    no_baseline: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let path = need::cargo_tool("cargo-mutants")?;
    let path: [&str; 4] = ["env", "-u", "CARGO_TARGET_DIR", &path];
    let all = list(&path, &[])?;
    let drawn = draw(&all, options);
    if drawn.is_empty() {
        bail!("no mutant fits; there are {}", all.len());
    }
    let out = host::target().join("mutants");
    std::fs::create_dir_all(&out)?;
    let folder = out.display().to_string();
    let names = format!(
        "^({})$",
        drawn
            .iter()
            .map(|n| escaped(n))
            .collect::<Vec<_>>()
            .join("|")
    );
    let files: Vec<&str> = files(&drawn);
    let mut which = vec!["--re", &names];
    which.extend(files.iter().flat_map(|file| ["--file", file]));
    // What is left out of a struct's fields goes by no name: those of the same files come along.
    let chosen = list(&path, &which)?;
    println!("{} of {} mutants", chosen.len(), all.len());
    let mut argv = [
        &path[..],
        &["cargo", "mutants"],
        &packages(),
        &["--test-package", JUDGE],
        &["--exclude", HOOKS, "--output", &folder],
        &which,
        &["--no-times", "--colors", "never"],
    ]
    .concat();
    let tests = ["--test", "scenarios", "--test", "seeds"];
    let env = [("STRAKE_SIM_SEEDS", SEEDS)];
    // The baseline of cargo-mutants runs the tests of the changed package, which has none of these.
    if !options.no_baseline {
        let baseline = [&["cargo", "test", "--package", JUDGE][..], &tests].concat();
        let judged = host::logged_with("mutants-baseline", 3600, &baseline, &env)?;
        if !judged.ok {
            bail!(
                "the tests of {JUDGE} fail without a mutant:\n{}",
                judged.tail(30)
            );
        }
    }
    argv.extend(["--baseline", "skip", "--timeout", "1200", "--"]);
    argv.extend(tests);
    let run = host::logged_with("mutants", options.minutes * 60, &argv, &env)?;
    tell(&out.join("mutants.out"), chosen.len(), &run)
}

/// The packages that are changed, as arguments.
fn packages() -> Vec<&'static str> {
    let packages = CHANGED.iter();
    packages.flat_map(|name| ["--package", name]).collect()
}

/// The names of mutants, of all if nothing is asked for: file, line, column, and what is changed.
fn list(path: &[&str], which: &[&str]) -> Result<Vec<String>> {
    let what = ["--list", "--json", "--exclude", HOOKS];
    let argv = [path, &["cargo", "mutants"], &packages(), &what, which].concat();
    let text = host::output(&argv)?;
    let listed: Value = serde_json::from_str(&text)?;
    let names = listed.as_array().into_iter().flatten();
    Ok(names
        .filter_map(|one| one["name"].as_str().map(str::to_owned))
        .collect())
}

/// The files that these mutants are in.
fn files<'a>(drawn: &[&'a String]) -> Vec<&'a str> {
    let mut files: Vec<&str> = drawn.iter().filter_map(|n| n.split(':').next()).collect();
    files.dedup();
    files
}

/// Those that are to be tested, in their order.
fn draw<'a>(all: &'a [String], options: &Options) -> Vec<&'a String> {
    let by_name = |name: &&String| options.all || !name.contains(" delete field ");
    let of = |name: &&String| options.only.as_ref().is_none_or(|word| name.contains(word));
    let fits = |name: &&String| by_name(name) && of(name);
    let mut left: Vec<&String> = all.iter().filter(fits).collect();
    if options.all {
        return left;
    }
    let mut state = options.seed;
    let mut drawn = Vec::new();
    while drawn.len() < options.sample && !left.is_empty() {
        let at = next(&mut state) % left.len() as u64;
        drawn.push(left.swap_remove(at as usize));
    }
    drawn.sort();
    drawn
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// What has a meaning in a regular expression.
const META: &str = r"\.+*?()|[]{}^$";

/// The name as a regular expression that fits nothing else.
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for c in name.chars() {
        if META.contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

/// Prints what became of the mutants. It succeeds where each was caught.
fn tell(out: &Path, drawn: usize, run: &host::Finished) -> Result<ExitCode> {
    let lines = |name: &str| {
        let text = std::fs::read_to_string(out.join(name)).unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines
    };
    let (caught, missed) = (lines("caught.txt"), lines("missed.txt"));
    let (timeout, unviable) = (lines("timeout.txt"), lines("unviable.txt"));
    for name in &missed {
        println!("survived   {name}");
    }
    for name in &timeout {
        println!("timed out  {name}");
    }
    let known = caught.len() + missed.len() + timeout.len() + unviable.len();
    if known == 0 {
        bail!("no mutant was tested:\n{}", run.tail(30));
    }
    if run.timed_out {
        println!(
            "time is up: {} mutants were not tested",
            drawn.saturating_sub(known)
        );
    }
    println!(
        "{} caught, {} survived, {} timed out, {} do not compile; logs: {}",
        caught.len(),
        missed.len(),
        timeout.len(),
        unviable.len(),
        PathBuf::from(out).join("log").display()
    );
    Ok(match missed.is_empty() && known == drawn {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(sample: usize, seed: u64) -> Options {
        Options {
            sample,
            seed,
            all: false,
            only: None,
            minutes: 1,
            no_baseline: false,
        }
    }

    #[test]
    fn a_sample_follows_from_its_seed_and_names_no_mutant_twice() {
        let all: Vec<String> = (0..100).map(|n| format!("a.rs:{n}: replace")).collect();
        let drawn = draw(&all, &options(30, 7));
        assert_eq!(drawn, draw(&all, &options(30, 7)));
        assert_ne!(drawn, draw(&all, &options(30, 8)));
        let names: std::collections::BTreeSet<&String> = drawn.iter().copied().collect();
        assert_eq!(names.len(), 30);
        assert_eq!(draw(&all, &options(200, 7)).len(), 100);
    }

    #[test]
    fn a_name_is_escaped_so_that_it_fits_itself_alone() {
        assert_eq!(escaped("a.rs:1: x -> (y)"), r"a\.rs:1: x -> \(y\)");
    }
}
