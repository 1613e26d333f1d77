//! `cargo xtask vm`: a real kernel with emulated NVMe drives, for what the build machine's own
//! kernel may lack: ublk, NVMe, hot unplug, power cuts, md.
//!
//! The guest runs over the host's own file tree, so what was built here runs there. It is emulated
//! in software: its speed means nothing, its behaviour everything.

pub(crate) mod bench;
mod budget;
mod cuts;
mod debian;
mod drives;
mod guest;
mod prepare;
mod qmp;
mod scenarios;

use crate::host;
use crate::outcome::{Counts, Outcome};
use anyhow::{Result, bail};
use budget::Budget;
use clap::{Args, Subcommand};
use drives::Drives;
use guest::Spec;
use prepare::{Rig, Series};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Download and install what boots need, and stop there
    Prepare,
    /// Show the scenarios
    List,
    /// Run scenarios (all where none is named)
    Test {
        /// Names of scenarios, as `vm list` shows them
        names: Vec<String>,
        /// The binary to prove, instead of the release build
        #[arg(long)]
        binary: Option<PathBuf>,
    },
    /// Boot, run one command as root, power off; a shell where none is given
    Run(RunOptions),
}

#[derive(Args)]
struct RunOptions {
    /// Which series of kernels
    #[arg(long, value_enum, default_value = "6.12")]
    kernel: Series,
    /// How many NVMe drives
    #[arg(long, default_value_t = 6)]
    drives: usize,
    /// Size of each drive, in MiB
    #[arg(long, default_value_t = 1024)]
    size_mib: u64,
    /// Logical block size, in bytes
    #[arg(long, default_value_t = 512)]
    block_bytes: u64,
    /// The guest's memory, in MiB
    #[arg(long, default_value_t = 4096)]
    memory_mib: u64,
    /// The command; a shell where none is given
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    argv: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match &options.command {
        None => boot(&RunOptions {
            kernel: Series::Stable,
            drives: 6,
            size_mib: 1024,
            block_bytes: 512,
            memory_mib: 4096,
            argv: Vec::new(),
        }),
        Some(Command::Run(options)) => boot(options),
        Some(Command::Prepare) => {
            for series in [Series::Stable, Series::New] {
                println!("ready: Linux {}", prepare::prepare(series)?.version);
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::List) => {
            for scenario in scenarios::BOOTS.iter().flat_map(|boot| boot.scenarios) {
                println!("{:<18} {}", scenario.name, scenario.about);
            }
            for lane in &cuts::LANES {
                println!("{:<18} {}", lane.name, lane.about);
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::Test { names, binary }) => test(names, binary.clone()),
    }
}

fn test(names: &[String], binary: Option<PathBuf>) -> Result<ExitCode> {
    let binary = match binary {
        Some(binary) => binary,
        None => build()?,
    };
    if !binary.is_file() {
        bail!("{} does not exist; build it", binary.display());
    }
    let outcome = everything(
        &prepare::prepare(Series::Stable)?,
        names,
        &binary,
        &Budget::unlimited(),
    )?;
    for line in outcome.notes.iter().flat_map(|note| note.lines()) {
        println!("  {line}");
    }
    let Counts {
        passed,
        failed,
        skipped,
    } = outcome.counts;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Scenarios and series of cuts: those named, all where none is.
fn everything(rig: &Rig, names: &[String], binary: &Path, budget: &Budget) -> Result<Outcome> {
    let is_lane = |name: &String| cuts::LANES.iter().any(|lane| lane.name == name);
    let (lanes, others): (Vec<String>, Vec<String>) = names.iter().cloned().partition(is_lane);
    let mut total = Outcome::default();
    let scenarios = |late, total: &mut Outcome| -> Result<()> {
        if names.is_empty() || !others.is_empty() {
            let some = scenarios::run(rig, &others, late, binary, budget)?;
            total.counts += some.counts;
            total.notes.extend(some.notes);
        }
        Ok(())
    };
    scenarios(false, &mut total)?;
    let wanted: Vec<&cuts::Lane> = cuts::LANES
        .iter()
        .filter(|lane| names.is_empty() || lanes.iter().any(|name| name == lane.name))
        .collect();
    let cuts = cuts::run(rig, &wanted, binary, budget)?;
    total.counts += cuts.counts;
    total.notes.extend(cuts.notes);
    scenarios(true, &mut total)?;
    Ok(total)
}

/// The release build of now, not one of yesterday.
fn build() -> Result<PathBuf> {
    if !host::open(&[&host::cargo(), "build", "--release", "-p", "strake"], &[])? {
        bail!("strake does not build");
    }
    Ok(host::strake_binary())
}

/// What the boots may take in the whole run: a little more than they usually do.
const TIME: Duration = Duration::from_secs(48 * 60);

/// All scenarios, as a step of the whole run. What the rig lacks skips them, each counted.
pub(crate) fn step() -> Result<Outcome> {
    let binary = host::strake_binary();
    let all: u64 = scenarios::BOOTS
        .iter()
        .map(|boot| boot.scenarios.len() as u64)
        .sum::<u64>()
        + cuts::count(cuts::LANES.len());
    let skip = |why: String| Outcome {
        counts: Counts {
            skipped: all,
            ..Counts::default()
        },
        notes: vec![format!("SKIPPED: {why}")],
    };
    if !binary.is_file() {
        return Ok(skip("no release build of strake".to_owned()));
    }
    match prepare::prepare(Series::Stable) {
        Ok(rig) => everything(&rig, &[], &binary, &Budget::of(TIME)),
        Err(error) => Ok(skip(format!("{error:#}"))),
    }
}

/// A guest for a person: its terminal is ours.
fn boot(options: &RunOptions) -> Result<ExitCode> {
    let rig = prepare::prepare(options.kernel)?;
    let drives = Drives::make("run", options.drives, options.size_mib, options.block_bytes)?;
    let share = guest::fill_share("run", &host::strake_binary())?;
    let spec = Spec {
        name: "run",
        cpus: 2,
        memory_mib: options.memory_mib,
        limit_s: 86_400,
    };
    println!("shared folder: {}", share.display());
    let script = (!options.argv.is_empty()).then(|| options.argv.join(" "));
    let mut command = guest::command(&rig, &spec, &drives, script.as_deref());
    Ok(if command.status()?.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
