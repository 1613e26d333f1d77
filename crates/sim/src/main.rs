//! The simulator's command line.
//!
//! Invariant: exit code 0 means that every seed (or canary) came out as it must, 1 that one did
//! not, 2 that the command line made no sense.
//!
//! Deliberately absent: anything that changes what a seed means.

mod hunt;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use serde::Serialize;

use strake_sim::course::Course;
use strake_sim::faults::{FaultKind, FaultSet};
use strake_sim::plan::{LEVELS, Variation};
use strake_sim::report::{Outcome, Stats};
use strake_sim::runner::{self, Enough, Run, Summary};
use strake_sim::shrink;

/// What is told of many seeds, with the names of counts.
const SUMMARY: &str = "\
    {asks} requests, {power_cuts} power cuts, {kills} kills, {stops} stops, {losses} members lost, \
    {stale_returns} stale returns, {older_images} older images, {live_images} live ones, \
    {hollowed} hollowed, {ruined} ruined, {returns} kept, {partial_rebuilds} partial rebuilds, \
    {rebuilds} rebuilds, \
    {resyncs} resyncs, {inits} inits, {scrubs} scrubs, \
    {latent_errors} latent errors ({repairs} repaired), \
    {hedges} hedged reads ({hedges_won} won, {hedges_lost} lost, {hedges_refused} refused), \
    {slow_members} slow members, {rot} rotten strips, \
    {decays} rotten blocks among all else ({decays_ended} true again, \
    {decays_carried} carried along, {decays_mirrored} of mirrors), \
    {silently_lost} writes silently lost, {misdirected} misdirected, {cures} cures, \
    {torn_writes} writes torn, {lost_writes} lost, {resets} resets ({retries} tried again), \
    {fills} times without space ({fill_waits} writes waited, {fill_losses} losses), \
    {ebbs} failed before they vanished, {tall} arrays with tall strips, \
    {padded_batches} batches padded, {unequal_growths} grown unequally, \
    {spoilt_recently} stripes spoilt when written ({given_up_recently} blocks given up), \
    {accepted} undecided parts accepted";

/// Simulates arrays under power cuts, losses and errors, and checks every block.
#[derive(Parser)]
#[command(name = "strake-sim")]
struct Cli {
    #[command(subcommand)]
    command: Option<Sub>,
    #[command(flatten)]
    seeds: Seeds,
}

#[derive(Subcommand)]
enum Sub {
    /// Plants each bug in turn and demands that it is found within its budget of seeds: at the seed
    /// at which it was found last, else at any other.
    Canaries {
        /// Print JSON.
        #[arg(long)]
        json: bool,
        /// Only this one.
        #[arg(long)]
        only: Option<String>,
        /// First seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Threads; all processors if not given.
        #[arg(long)]
        threads: Option<usize>,
        /// Search from the first seed on, as if none were known.
        #[arg(long)]
        afresh: bool,
        /// Write the seeds at which they are found to crates/sim/canaries.txt, where the next run
        /// looks first.
        #[arg(long, conflicts_with_all = ["only", "seed"])]
        keep: bool,
    },
}

#[derive(Args)]
struct Seeds {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Only this level: 0, 1, 5, 6, 7.3, 10, 50, 60, 70 or n+m.
    #[arg(long)]
    level: Option<String>,
    /// Print every event.
    #[arg(long)]
    trace: bool,
    /// Threads; all processors if not given.
    #[arg(long)]
    threads: Option<usize>,
    /// At most so many lives of the process.
    #[arg(long)]
    lives: Option<usize>,
    /// At most so many requests in each life.
    #[arg(long)]
    asks: Option<u64>,
    /// Kinds of faults to leave out, separated by commas.
    #[arg(long)]
    without: Option<String>,
    /// Only seeds that are this course.
    #[arg(long)]
    course: Option<String>,
    /// Plant this bug.
    #[arg(long)]
    canary: Option<String>,
    /// Stop after so many failing seeds.
    #[arg(long, default_value_t = 5)]
    stop_after: usize,
    /// Begin no seed after so many seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// Do not make failing seeds smaller.
    #[arg(long)]
    no_shrink: bool,
}

#[derive(Serialize)]
struct Report {
    seeds: u64,
    failures: usize,
    failing_seeds: Vec<u64>,
    #[serde(flatten)]
    stats: Stats,
    seconds: f64,
    seeds_per_second: f64,
    trace_hash: String,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Some(Sub::Canaries {
            json,
            only,
            seed,
            threads,
            afresh,
            keep,
        }) => hunt::canaries(&hunt::Hunt {
            json: *json,
            only: only.as_deref(),
            seed: *seed,
            threads: threads.unwrap_or_else(processors),
            afresh: *afresh,
            keep: *keep,
        }),
        None => seeds(&cli.seeds),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("strake-sim: {text}");
            ExitCode::from(2)
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn seeds(args: &Seeds) -> Result<bool, String> {
    let level = args.level.as_deref().map(parse_level).transpose()?;
    let without = args
        .without
        .as_deref()
        .map(parse_faults)
        .transpose()?
        .unwrap_or_default();
    let variation = Variation {
        lives: args.lives,
        asks: args.asks,
        without,
    };
    let like = Run {
        seed: args.seed,
        level,
        variation,
        course: args.course.as_deref().map(parse_course).transpose()?,
        canary: args.canary.as_deref().map(hunt::parse_canary).transpose()?,
        tracing: args.trace,
    };
    let threads = if args.trace {
        1
    } else {
        args.threads.unwrap_or_else(processors)
    };
    let began = Instant::now();
    let until = Enough {
        failures: args.stop_after,
        at: args.seconds.map(|s| began + Duration::from_secs(s)),
    };
    let summary = runner::run_many(&like, args.seed, args.seeds, threads, until);
    let seconds = began.elapsed().as_secs_f64();
    report(&summary, seconds, args.json);
    if let Some(worst) = summary.failures.first() {
        let failing = Run {
            seed: worst.seed,
            ..like
        };
        explain(&failing, worst.clone(), !args.no_shrink && !args.trace);
        for outcome in &summary.failures[1..] {
            let text = outcome.failure.as_ref().map_or("", |failure| &failure.text);
            eprintln!(
                "seed {} also fails: {text} [{}]",
                outcome.seed, outcome.world
            );
        }
    }
    Ok(summary.failures.is_empty())
}

fn parse_level(name: &str) -> Result<usize, String> {
    let name = name.to_ascii_lowercase();
    let known = LEVELS.iter().position(|level| *level == name);
    known.ok_or_else(|| format!("no level {name}; there are {}", LEVELS.join(", ")))
}

fn parse_faults(names: &str) -> Result<FaultSet, String> {
    names
        .split(',')
        .filter(|name| !name.is_empty())
        .try_fold(FaultSet::NONE, |set, name| {
            let kinds = FaultKind::ALL.map(|(_, name)| name);
            let kind = FaultKind::parse(name)
                .ok_or_else(|| format!("no fault {name}; there are {}", kinds.join(", ")))?;
            Ok(set.with(kind))
        })
}

fn parse_course(name: &str) -> Result<Course, String> {
    Course::parse(name).ok_or_else(|| format!("no course {name}"))
}

fn report(summary: &Summary, seconds: f64, json: bool) {
    let report = Report {
        seeds: summary.seeds,
        failures: summary.failures.len(),
        failing_seeds: summary
            .failures
            .iter()
            .map(|outcome| outcome.seed)
            .collect(),
        stats: summary.stats,
        seconds,
        seeds_per_second: summary.seeds as f64 / seconds.max(1e-9),
        trace_hash: format!("{:016x}", summary.hash),
    };
    if json {
        println!(
            "{}",
            serde_json::to_string(&report).expect("a report is plain data")
        );
        return;
    }
    println!(
        "{} seeds, {} failures: {}; {:.1} seeds/s; trace {}",
        report.seeds,
        report.failures,
        summary_text(&report.stats),
        report.seeds_per_second,
        report.trace_hash
    );
}

/// [`SUMMARY`] with the counts in the places of their names.
fn summary_text(stats: &Stats) -> String {
    let counts = serde_json::to_value(stats).expect("a report is plain data");
    let counts = counts.as_object().expect("counts have names");
    let mut text = SUMMARY.to_owned();
    for (name, count) in counts {
        text = text.replace(&format!("{{{name}}}"), &count.to_string());
    }
    text
}

/// Tells a failure, of the smallest variation that still fails.
fn explain(failing: &Run, outcome: Outcome, shrinking: bool) {
    let (run, outcome) = if shrinking {
        shrink::shrink(failing, outcome)
    } else {
        (failing.clone(), outcome)
    };
    let Some(failure) = &outcome.failure else {
        return;
    };
    eprintln!("\nseed {} fails: {}", outcome.seed, failure.text);
    eprintln!("the array: {}", outcome.world);
    eprintln!("the story:");
    let skipped = failure.story.len().saturating_sub(120);
    if skipped > 0 {
        eprintln!("  … {skipped} lines before");
    }
    for line in &failure.story[skipped..] {
        eprintln!("  {line}");
    }
    eprintln!(
        "again: strake-sim --seeds 1 --seed {}{} [--trace]\n",
        run.seed,
        flags(&run)
    );
}

fn flags(run: &Run) -> String {
    let mut flags = String::new();
    if let Some(level) = run.level {
        flags += &format!(" --level {}", LEVELS[level]);
    }
    if let Some(lives) = run.variation.lives {
        flags += &format!(" --lives {lives}");
    }
    if let Some(asks) = run.variation.asks {
        flags += &format!(" --asks {asks}");
    }
    if let Some(canary) = run.canary {
        flags += &format!(" --canary {}", canary.name());
    }
    if run.variation.without != FaultSet::NONE {
        flags += &format!(" --without {}", run.variation.without.names());
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_names_counts_that_there_are() {
        let text = summary_text(&Stats::default());
        assert!(
            text.starts_with("0 requests") && !text.contains('{'),
            "{text}"
        );
    }
}
