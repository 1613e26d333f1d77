//! The hunt for planted bugs: each must be found within its budget of seeds.
//!
//! `canaries.txt` keeps the seed at which each was found last. That seed is tried first; where it
//! finds nothing any more, because the code or the plans have changed, all seeds of the budget are
//! searched. A kept seed beyond the budget counts for nothing, so what is found and what is missed
//! is the same with the file and without it: a run of a seed is decided by the seed alone.
//!
//! Invariant: a seed that fails without the bug, too, is no find.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use strake_sim::canary::Canary;
use strake_sim::report::Outcome;
use strake_sim::runner::{self, Enough, Run};

/// The seeds at which canaries were found last: a name and a seed a line.
const KEPT: &str = include_str!("../canaries.txt");

/// Where they are kept.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/canaries.txt");

/// What is asked for.
pub(crate) struct Hunt<'a> {
    pub(crate) json: bool,
    pub(crate) only: Option<&'a str>,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    /// Without the seeds that are kept.
    pub(crate) afresh: bool,
    /// Write down where they are found.
    pub(crate) keep: bool,
}

#[derive(Serialize)]
struct Found {
    canary: &'static str,
    budget: u64,
    /// The seed that was tried first.
    expected: Option<u64>,
    found_after: Option<u64>,
    failure: Option<String>,
}

/// Hunts each canary that is asked for; whether all are found.
pub(crate) fn canaries(hunt: &Hunt<'_>) -> Result<bool, String> {
    let only = hunt.only.map(parse_canary).transpose()?;
    let kept = if hunt.afresh { "" } else { KEPT };
    let wanted: Vec<(Canary, u64, Option<u64>)> = Canary::ALL
        .into_iter()
        .filter(|(canary, _)| only.is_none_or(|only| only == *canary))
        .map(|(canary, budget)| (canary, budget, expected(kept, canary, hunt.seed, budget)))
        .collect();
    let at_once = where_expected(&wanted, hunt.threads);
    let mut found = Vec::new();
    for ((canary, budget, expected), at_once) in wanted.into_iter().zip(at_once) {
        let all = hunt.seed..hunt.seed + budget;
        let first = at_once.or_else(|| first_of(&planted(canary), all, hunt.threads));
        let one = Found {
            canary: canary.name(),
            budget,
            expected,
            found_after: first.as_ref().map(|outcome| outcome.seed - hunt.seed + 1),
            failure: first.and_then(|outcome| outcome.failure.map(|f| f.text)),
        };
        if !hunt.json {
            let after = one
                .found_after
                .map_or("NOT FOUND".to_owned(), |n| format!("seed {n}"));
            let text = one.failure.clone().unwrap_or_default();
            println!("{:<28} {after:>10} of {budget:<5} {text}", one.canary);
        }
        found.push(one);
    }
    let missed = found.iter().filter(|one| one.found_after.is_none()).count();
    if hunt.json {
        let all = serde_json::json!({ "canaries": found, "missed": missed });
        println!("{all}");
    }
    if hunt.keep && missed == 0 {
        std::fs::write(FILE, lines(&found)).map_err(|why| format!("{FILE}: {why}"))?;
    }
    Ok(missed == 0)
}

pub(crate) fn parse_canary(name: &str) -> Result<Canary, String> {
    Canary::parse(name).ok_or_else(|| format!("no canary {name}"))
}

fn planted(canary: Canary) -> Run {
    Run {
        canary: Some(canary),
        ..Run::default()
    }
}

/// The seed that is kept of a canary, if a search from `first` on would come to it.
fn expected(kept: &str, canary: Canary, first: u64, budget: u64) -> Option<u64> {
    let mut lines = kept.lines().filter_map(|line| line.split_once(' '));
    let (_, seed) = lines.find(|(name, _)| *name == canary.name())?;
    let seed: u64 = seed.trim().parse().ok()?;
    (first..first + budget).contains(&seed).then_some(seed)
}

/// What the expected seeds come to, of several canaries at a time.
fn where_expected(wanted: &[(Canary, u64, Option<u64>)], threads: usize) -> Vec<Option<Outcome>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(canary, _, expected)) = wanted.get(at) else {
                return found;
            };
            let outcome = expected.and_then(|seed| first_of(&planted(canary), seed..seed + 1, 1));
            found.push((at, outcome));
        }
    };
    let mut all: Vec<(usize, Option<Outcome>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .flat_map(|found| found.expect("a run that panics is an outcome"))
            .collect()
    });
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}

/// The file's text. Counts begin at 1, and so do the seeds that are kept.
fn lines(found: &[Found]) -> String {
    let mut text = String::new();
    for one in found {
        let seed = one.found_after.expect("kept only where all are found");
        writeln!(text, "{} {seed}", one.canary).expect("a string takes all");
    }
    text
}

/// The first of these seeds that fails with the bug planted and passes without it: one that fails
/// anyway is no find.
fn first_of(like: &Run, seeds: Range<u64>, threads: usize) -> Option<Outcome> {
    let mut next = seeds.start;
    while next < seeds.end {
        let summary = runner::run_many(like, next, seeds.end - next, threads, Enough::failures(1));
        let found = summary.failures.into_iter().next()?;
        let seed = found.seed;
        let plain = Run {
            seed,
            ..Run::default()
        };
        match runner::run(&plain).failure {
            None => return Some(found),
            Some(failure) => eprintln!("seed {seed} fails without a bug: {}", failure.text),
        }
        next = seed + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_seed_counts_only_where_a_search_would_come_to_it() {
        let (canary, budget) = Canary::ALL[0];
        let kept = format!("no-such 3\n{} 7\n", canary.name());
        assert_eq!(expected(&kept, canary, 1, 7), Some(7));
        assert_eq!(expected(&kept, canary, 1, 6), None, "beyond its budget");
        assert_eq!(expected(&kept, canary, 8, budget), None, "before the first");
        assert_eq!(expected("", canary, 1, budget), None);
    }

    #[test]
    fn a_kept_seed_that_finds_nothing_is_followed_by_the_search_of_the_whole_budget() {
        let (canary, budget) = Canary::ALL[0];
        let first = first_of(&planted(canary), 1..1 + budget, 1).expect("it is found");
        let blind = (1..).find(|&seed| first_of(&planted(canary), seed..seed + 1, 1).is_none());
        let missed = where_expected(&[(canary, budget, blind)], 2);
        assert!(missed[0].is_none());
        let at_once = where_expected(&[(canary, budget, Some(first.seed))], 2);
        let at_once = at_once[0].as_ref().expect("found where it was before");
        assert_eq!(at_once.seed, first.seed);
    }

    #[test]
    fn every_bug_that_the_engine_can_have_planted_is_hunted() {
        let hunted: Vec<Canary> = Canary::ALL.iter().map(|(canary, _)| *canary).collect();
        for &canary in strake_engine::canary::Canary::ALL {
            assert!(
                hunted.contains(&Canary::Inside(canary)),
                "{}",
                canary.name()
            );
        }
    }

    #[test]
    fn seeds_are_kept_of_canaries_that_there_are() {
        let names: Vec<&str> = Canary::ALL
            .iter()
            .map(|(canary, _)| canary.name())
            .collect();
        for line in KEPT.lines() {
            let (name, seed) = line.split_once(' ').expect("a name and a seed");
            assert!(names.contains(&name), "{name}");
            assert!(seed.parse::<u64>().is_ok_and(|seed| seed > 0), "{line}");
        }
    }
}
