//! The whole proof in one command: the steps, in the order in which they are cheapest to fail.
//!
//! Each step prints one line with its counts and its time when it ends, and the run closes with one
//! line `N passed, N failed, N skipped`. A failed step does not stop the later ones: one run tells
//! everything that is wrong. Only a workspace that does not build ends the run early, since nothing
//! after it could speak.
//!
//! A step *beside* others is one that they do not wait for; its line comes last. Kernels are
//! brought and built beside the compiler, which leaves a CPU idle while it links. The virtual
//! machines begin when the tests with clocks are over, and what no clock decides runs beside them.

use crate::bench::BENCHES;
use crate::outcome::{Counts, Outcome};
use crate::{clock, need, test, tidy, vm};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Args)]
pub(crate) struct Options {
    /// The part that takes under five minutes: no fuzzing, no virtual machine, no packages, no
    /// web page, no benchmarks, no planted bugs, one demo, few seeds
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only the steps with this word in their name (may be given several times)
    #[arg(long = "only", value_name = "WORD")]
    only: Vec<String>,
}

/// One step: its name, and what it does.
struct Step {
    name: String,
    run: Box<dyn FnOnce() -> Result<Outcome> + Send>,
    /// Those after it do not wait for it.
    beside: bool,
}

fn step(name: impl Into<String>, run: impl FnOnce() -> Result<Outcome> + Send + 'static) -> Step {
    Step {
        name: name.into(),
        run: Box::new(run),
        beside: false,
    }
}

impl Step {
    fn beside(mut self) -> Step {
        self.beside = true;
        self
    }

    fn perform(self) -> Performed {
        let start = Instant::now();
        let outcome = (self.run)().unwrap_or_else(|error| Outcome::failed(format!("{error:#}")));
        Performed {
            name: self.name,
            outcome,
            time: start.elapsed(),
        }
    }
}

/// A step that is over.
struct Performed {
    name: String,
    outcome: Outcome,
    time: Duration,
}

/// The levels for which the demo must show a whole life.
const LEVELS: [&str; 9] = ["1", "5", "6", "7.3", "10", "50", "60", "70", "6+4"];

/// Enough to meet every level and every fault in the long run, and a taste of them in the quick
/// one.
const SEEDS: u64 = 5000;
const SEEDS_QUICK: u64 = 300;

/// Hundreds of rounds of kill and reopen, and a taste of them in the quick run.
const TORTURE_S: u64 = 75;
const TORTURE_S_QUICK: u64 = 8;

/// What `--quick` leaves out.
const LEFT_OUT: &str = "virtual machines, packages, the web page, fuzzing, benchmarks, planted \
                        bugs, the demos of eight levels, most seeds and most of the torture";

fn steps(quick: bool) -> Vec<Step> {
    let build = [
        step("format", test::format),
        step("tidy", tidy::step),
        step("clippy", test::clippy),
        step("release build", test::build),
        step("cargo test", test::cargo_test),
    ];
    let seconds = if quick { TORTURE_S_QUICK } else { TORTURE_S };
    let torture = step(format!("torture {seconds} s"), move || {
        test::torture(seconds)
    });
    let seeds = if quick { SEEDS_QUICK } else { SEEDS };
    let sim = step(format!("sim {seeds} seeds"), move || test::sim_seeds(seeds));
    let mut steps = Vec::new();
    if quick {
        steps.extend(build);
        steps.push(torture);
        steps.push(sim);
        steps.push(step("demo level 5", || test::demo("5")));
        return steps;
    }
    steps.push(step("kernels", vm::kernels).beside());
    steps.extend(build);
    steps.push(step("benchmark build", || test::bench_build(&BENCHES)));
    steps.push(torture);
    steps.push(step("virtual machine", vm::step).beside());
    steps.push(step("vm bench smoke", vm::bench::smoke).beside());
    steps.push(step("package", crate::package::step).beside());
    steps.push(sim.beside());
    steps.push(step("sim canaries", test::sim_canaries).beside());
    for bench in BENCHES {
        let name = format!("{} bench smoke", bench.name);
        steps.push(step(name, move || test::bench_smoke(bench)));
    }
    steps.push(step("studies", crate::studies::step));
    steps.push(step("demos", || test::demos(&LEVELS)));
    steps.push(step("console", crate::console::step));
    steps.push(step("fuzz smoke", test::fuzz_smoke));
    steps
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let start = Instant::now();
    clock::begin();
    let steps = steps(options.quick).into_iter().filter(|step| {
        options.only.is_empty() || options.only.iter().any(|word| step.name.contains(word))
    });
    let mut total = Counts::default();
    let what = step("needs", {
        let with_vm = !options.quick;
        move || Ok(needs(with_vm))
    });
    let mut beside: Vec<(String, JoinHandle<Performed>)> = Vec::new();
    for step in std::iter::once(what).chain(steps) {
        let name = step.name.clone();
        if step.beside {
            beside.push((name, std::thread::spawn(|| step.perform())));
            continue;
        }
        let counts = tell(step.perform());
        total += counts;
        if name == "release build" && counts.failed > 0 {
            println!("the workspace does not build: the steps after this one cannot run");
            break;
        }
    }
    for (name, running) in beside {
        let performed = running.join().unwrap_or_else(|_| Performed {
            name,
            outcome: Outcome::failed("the step has panicked"),
            time: start.elapsed(),
        });
        total += tell(performed);
    }
    let Counts {
        passed,
        failed,
        skipped,
    } = total;
    if options.quick {
        println!("quick run: left out are {LEFT_OUT}");
    }
    println!("whole run: {}", seconds(start.elapsed()));
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints the line of a step.
fn tell(performed: Performed) -> Counts {
    let Performed {
        name,
        outcome,
        time,
    } = performed;
    let Counts {
        passed,
        failed,
        skipped,
    } = outcome.counts;
    let word = if failed > 0 { "FAILED" } else { "ok" };
    let time = seconds(time);
    println!(
        "{word:<6} {name:<20} {time:>9}   {passed} passed, {failed} failed, {skipped} skipped"
    );
    for line in outcome.notes.iter().flat_map(|note| note.lines()) {
        println!("         {line}");
    }
    outcome.counts
}

/// Installing is no check of ours: it counts only where something stays missing.
fn needs(with_vm: bool) -> Outcome {
    match need::install(with_vm) {
        Ok(said) => Outcome::default().note(said),
        Err(why) => Outcome::skipped(why),
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
