//! One seed, one trace; and some seeds of every level and of every course without a failure.

use strake_sim::course::Course;
use strake_sim::plan::LEVELS;
use strake_sim::runner::{Enough, Run, run, run_many};

fn trace(seed: u64) -> (u64, u64) {
    let outcome = run(&Run {
        seed,
        ..Run::default()
    });
    (outcome.hash, outcome.stats.events)
}

#[test]
fn the_same_seed_has_the_same_trace_whatever_ran_before() {
    let forwards: Vec<_> = (1..25).map(trace).collect();
    let mut backwards: Vec<_> = (1..25).rev().map(trace).collect();
    backwards.reverse();
    assert_eq!(forwards, backwards);
}

#[test]
fn threads_do_not_change_the_trace_of_many_seeds() {
    let one = run_many(&Run::default(), 1, 30, 1, Enough::failures(usize::MAX));
    let three = run_many(&Run::default(), 1, 30, 3, Enough::failures(usize::MAX));
    assert_eq!((one.hash, one.stats), (three.hash, three.stats));
}

#[test]
fn another_process_sees_the_same_trace() {
    let program = env!("CARGO_BIN_EXE_strake-sim");
    let run = || {
        let args = ["--seeds", "20", "--seed", "5", "--json"];
        let output = std::process::Command::new(program).args(args).output();
        let output = output.expect("the simulator starts");
        let json: serde_json::Value =
            serde_json::from_slice(&output.stdout).expect("it prints JSON");
        (json["trace_hash"].clone(), json["events"].clone())
    };
    assert_eq!(run(), run());
}

/// Seeds of each level; `cargo xtask mutants` asks for more.
fn seeds_of_a_level() -> u64 {
    let asked = std::env::var("STRAKE_SIM_SEEDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(25)
}

#[test]
fn some_seeds_of_every_level_come_out_well() {
    let seeds = seeds_of_a_level();
    for (level, name) in LEVELS.iter().enumerate() {
        let like = Run {
            level: Some(level),
            ..Run::default()
        };
        let summary = run_many(&like, 1, seeds, 2, Enough::failures(1));
        if let Some(failing) = summary.failures.first() {
            let failure = failing.failure.as_ref().expect("it failed");
            let story = failure.story.join("\n");
            panic!(
                "level {name}, seed {}: {}\n{story}",
                failing.seed, failure.text
            );
        }
    }
}

/// A seed that is asked for with a level is no course.
#[test]
fn some_seeds_of_every_course_come_out_well() {
    let of_each = (seeds_of_a_level() / 12).max(1);
    for course in Course::all() {
        let is_one = |seed: &u64| Course::of(*seed) == Some(course);
        for seed in (1..).filter(is_one).take(of_each as usize) {
            let outcome = run(&Run {
                seed,
                ..Run::default()
            });
            if let Some(failure) = outcome.failure {
                let story = failure.story.join("\n");
                panic!("{course:?}, seed {seed}: {}\n{story}", failure.text);
            }
            assert_eq!(outcome.stats.courses, 1, "{course:?}, seed {seed}");
        }
    }
}

#[test]
fn a_planted_bug_is_found_and_shrinks_to_a_shorter_story() {
    use strake_sim::canary::Canary;
    let like = Run {
        canary: Some(Canary::DataDropped),
        ..Run::default()
    };
    let summary = run_many(&like, 1, 20, 1, Enough::failures(1));
    let first = summary
        .failures
        .first()
        .expect("the canary is found")
        .clone();
    let failing = Run {
        seed: first.seed,
        ..like
    };
    let events = first.stats.events;
    let (_, smaller) = strake_sim::shrink::shrink(&failing, first);
    assert!(smaller.failure.is_some() && smaller.stats.events <= events);
}

/// A member came in sync a moment before another was lost, and a shard had not been told of the
/// one: a read that found neither was answered with an error. It waits for the array's verdict now.
#[test]
fn a_read_is_not_refused_for_what_a_shard_is_about_to_be_told() {
    let level = LEVELS.iter().position(|name| *name == "10");
    let outcome = run(&Run {
        seed: 149,
        level,
        ..Run::default()
    });
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
}
