//! `strake-torture`: arrays on real files, served by the real runtime in processes that are
//! killed, in the manner of OpenZFS's ztest. Never shipped.
//!
//! ```text
//!   this process ── commands ──►  child: runtime, engine ──► files in memory
//!   users, oracle ◄── NBD ─────►  (killed at any moment, started again)
//! ```
//!
//! Invariants: the process that knows what was acknowledged is not the process that is killed; a
//! seed gives the same choices again, though not the same moments. Exit code 0: no fault; 1: a
//! fault, which prints its seed and its story and leaves its files.
//!
//! Deliberately absent: power cuts and failing devices (the simulator and the virtual machine have
//! those), ublk (its requests survive a kill).

mod child;
mod files;
mod life;
mod load;
mod nbd;
mod serve;
mod shape;
mod totals;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use strake_sim::prng::{Prng, Purpose};

use crate::life::Life;
use crate::totals::{Totals, count};

/// Kills and reopens arrays until the time is over or something is wrong.
#[derive(Parser)]
#[command(name = "strake-torture")]
struct Cli {
    #[command(subcommand)]
    command: Option<Sub>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Sub {
    /// The process that is killed
    #[command(hide = true)]
    Serve(serve::Options),
}

#[derive(clap::Args)]
struct Options {
    /// End after so many minutes; endless where no end is given
    #[arg(long, conflicts_with = "seconds")]
    minutes: Option<u64>,
    /// End after so many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// End after so many arrays
    #[arg(long)]
    arrays: Option<u64>,
    /// Seed of the first array; each further one takes the next
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this level
    #[arg(long, value_parser = shape::LEVELS)]
    level: Option<String>,
    /// Arrays at a time
    #[arg(long, default_value_t = 3)]
    jobs: u64,
    /// Where the files go; in memory if not given
    #[arg(long)]
    dir: Option<PathBuf>,
    /// End with one line of JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Some(Sub::Serve(options)) => serve::run(options).map(|()| true),
        None => torture(&cli.options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What the threads that each torture one array after the other have in common.
struct Shared<'a> {
    options: &'a Options,
    place: PathBuf,
    end: Option<Instant>,
    next: AtomicU64,
    failed: AtomicBool,
    printing: Mutex<()>,
    totals: Totals,
}

const PREFIX: &str = "strake-torture-";
/// What happened to an array that failed, beside its files.
const STORY: &str = "story.txt";

/// Removes what runs that were ended have left behind, unless it holds an array that failed.
fn sweep(place: &Path) {
    for run in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let name = run.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX);
        let mut arrays = std::fs::read_dir(run.path())
            .into_iter()
            .flatten()
            .flatten();
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
            && !arrays.any(|array| array.path().join(STORY).exists())
        {
            // Whatever cannot be removed is no worse than before.
            let _ = std::fs::remove_dir_all(run.path());
        }
    }
}

fn torture(options: &Options) -> Result<bool> {
    let memory = Path::new("/dev/shm");
    let place = match &options.dir {
        Some(dir) => dir.clone(),
        None if memory.is_dir() => memory.to_owned(),
        None => std::env::temp_dir(),
    };
    sweep(&place);
    let limit = options
        .seconds
        .or(options.minutes.map(|minutes| minutes * 60));
    let shared = Shared {
        options,
        place: place.join(format!("{PREFIX}{}", std::process::id())),
        end: limit.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
        next: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        printing: Mutex::new(()),
        totals: Totals::default(),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs.max(1))
            .map(|_| scope.spawn(|| shared.work()))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("a fault is an error, not a panic"))
    })?;
    let failed = shared.failed.load(Ordering::SeqCst);
    if !failed {
        // Another run may still use the folder above.
        let _ = std::fs::remove_dir(&shared.place);
    }
    let summary = shared.totals.summary();
    if options.json {
        println!("{}", serde_json::to_string(&summary)?);
    } else {
        println!("{}", summary.words());
    }
    Ok(!failed)
}

impl Shared<'_> {
    fn over(&self) -> bool {
        self.failed.load(Ordering::SeqCst) || self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// One array after the other.
    fn work(&self) -> Result<()> {
        while !self.over() {
            let index = self.next.fetch_add(1, Ordering::SeqCst);
            if self.options.arrays.is_some_and(|arrays| index >= arrays) {
                break;
            }
            self.array(self.options.seed.wrapping_add(index))?;
        }
        Ok(())
    }

    /// The life of one array.
    fn array(&self, seed: u64) -> Result<()> {
        let dir = self.place.join(seed.to_string());
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let mut life = Life::new(seed, self.options.level.as_deref(), &dir, &self.totals)?;
        let rounds = Prng::new(seed, Purpose::Latency).range(5, 30);
        let lived = (0..rounds)
            .take_while(|_| !self.over())
            .try_for_each(|_| life.round())
            .and_then(|()| life.last_round());
        life.count();
        count(&self.totals.arrays);
        let Err(error) = lived else {
            return std::fs::remove_dir_all(&dir).context("remove the files");
        };
        self.failed.store(true, Ordering::SeqCst);
        let _alone = self.printing.lock().expect("no printer panics");
        let story = format!(
            "FAILED seed {seed}: {error:#}\n  {}\n",
            life.story.join("\n  ")
        );
        print!("{story}");
        std::fs::write(dir.join(STORY), story)?;
        if let Ok(log) = std::fs::read_to_string(dir.join("child.log")) {
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(20)..] {
                println!("  | {line}");
            }
        }
        println!(
            "again: cargo xtask torture --seed {seed} --arrays 1; files: {}",
            dir.display()
        );
        Ok(())
    }
}
