//! `cargo xtask vm`: a real kernel, for what the build machine's own kernel may lack: ublk, NVMe,
//! hot unplug, power cuts, md.
//!
//! A guest runs over the host's own file tree, so what was built here runs there. There are two
//! kinds (`vm list` shows which boot has which): a PC with NVMe drives on PCIe, emulated in
//! software, which is slow; and a kernel that is a program of the host, for all that needs neither
//! emulated hardware nor a second CPU.

pub(crate) mod bench;
mod budget;
mod cuts;
mod debian;
mod drives;
mod emulator;
mod guest;
mod prepare;
mod qmp;
mod scenarios;
mod system;
mod usermode;

use crate::outcome::{Counts, Outcome};
use crate::{clock, host};
use anyhow::{Result, anyhow, bail};
use budget::Budget;
use clap::{Args, Subcommand};
use drives::Drives;
use guest::Spec;
use prepare::{Rigs, Series};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
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
            let rigs = Rigs::default();
            for machine in prepare::MACHINES {
                let rig = rigs.of(machine).map_err(|why| anyhow!("{why}"))?;
                println!("ready: {}: Linux {}", machine.word(), rig.version());
            }
            Ok(ExitCode::SUCCESS)
        }
        Some(Command::List) => {
            let machine = |boot: &scenarios::Boot| boot.machine.word();
            for (machine, scenario) in scenarios::BOOTS
                .iter()
                .flat_map(|boot| boot.scenarios.iter().map(move |one| (machine(boot), one)))
            {
                println!("{:<18} {machine:<15} {}", scenario.name, scenario.about);
            }
            for lane in &cuts::LANES {
                let machine = cuts::MACHINE.word();
                println!("{:<18} {machine:<15} {}", lane.name, lane.about);
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
    if let Some(why) = prepare::refuses() {
        bail!("{why}");
    }
    let outcome = everything(names, &binary, &Budget::unlimited())?;
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

/// How many user-mode guests run side by side, beside an emulated one.
const WORKERS: usize = 2;

/// A part of the run that needs no other.
enum Part {
    Set(scenarios::Set),
    Lane(&'static cuts::Lane),
}

/// Scenarios and series of cuts: those named, all where none is. Emulated machines one after the
/// other, user-mode guests beside them.
fn everything(names: &[String], binary: &Path, budget: &Budget) -> Result<Outcome> {
    let is_lane = |name: &String| cuts::LANES.iter().any(|lane| lane.name == name);
    let (lanes, others): (Vec<String>, Vec<String>) = names.iter().cloned().partition(is_lane);
    let sets = if names.is_empty() || !others.is_empty() {
        scenarios::sets(&others)?
    } else {
        Vec::new()
    };
    let (emulated, user_mode): (Vec<_>, Vec<_>) =
        sets.into_iter().partition(scenarios::Set::is_emulated);
    let wanted = cuts::LANES
        .iter()
        .filter(|lane| names.is_empty() || lanes.iter().any(|name| name == lane.name));
    // The longest first, so that no worker has much to do when the others have ended.
    let user_mode = wanted
        .map(Part::Lane)
        .chain(user_mode.into_iter().map(Part::Set));
    let emulated = Mutex::new(emulated.into_iter().map(Part::Set).collect());
    let user_mode = Mutex::new(user_mode.collect());
    let rigs = Rigs::default();
    let total = Mutex::new(Outcome::default());
    let work = |parts: &Mutex<VecDeque<Part>>| -> Result<()> {
        while let Some(part) = take(parts) {
            let one = match part {
                Part::Set(set) => scenarios::run(&rigs, &set, binary, budget)?,
                Part::Lane(lane) => cuts::run(&rigs, lane, binary, budget)?,
            };
            *total.lock().expect("it only adds up") += one;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let mut threads = vec![scope.spawn(|| work(&emulated))];
        threads.extend((0..WORKERS).map(|_| scope.spawn(|| work(&user_mode))));
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("trouble is an error, not a panic"))
    })?;
    Ok(total.into_inner().expect("it only adds up"))
}

fn take(parts: &Mutex<VecDeque<Part>>) -> Option<Part> {
    parts.lock().expect("it only takes").pop_front()
}

/// The release build of now, not one of yesterday.
fn build() -> Result<PathBuf> {
    if !host::open(&[&host::cargo(), "build", "--release", "-p", "strake"], &[])? {
        bail!("strake does not build");
    }
    Ok(host::strake_binary())
}

/// What the boots may take in the whole run: three times what they usually do, for slow machines.
const TIME: Duration = Duration::from_secs(45 * 60);

/// What the boots leave to the steps that have run beside them with what was left of the CPUs.
const AFTER: Duration = Duration::from_secs(8 * 60);

/// Brings and builds all kernels ahead of the steps that boot them, which count what is missing.
pub(crate) fn kernels() -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if let Some(why) = prepare::refuses() {
        return Ok(outcome.note(why));
    }
    let rigs = Rigs::default();
    for machine in prepare::MACHINES {
        let note = match rigs.of(machine) {
            Ok(rig) => format!("{}: Linux {}", machine.word(), rig.version()),
            Err(why) => format!("{}: {why}", machine.word()),
        };
        outcome = outcome.note(note);
    }
    Ok(outcome)
}

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
    match prepare::refuses() {
        None => everything(
            &[],
            &binary,
            &Budget::of(TIME.min(clock::left().saturating_sub(AFTER))),
        ),
        Some(why) => Ok(skip(why)),
    }
}

/// A guest for a person: its terminal is ours.
fn boot(options: &RunOptions) -> Result<ExitCode> {
    let rig = prepare::emulator(options.kernel)?;
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
    let mut command = emulator::command(&rig, &spec, &drives, script.as_deref());
    Ok(if command.status()?.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
