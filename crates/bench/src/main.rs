//! `strake-bench`: arrays on files in memory, beside the raw members that they are made of.
//!
//! ```text
//!   job ─► RawMembers: ring ─► member files       the same files' size, the same threads and
//!   job ─► LocalClient: shard, engine, ring ─► files   depth, in turns, round by round
//! ```
//!
//! Invariants: every row stands beside what raw members took in the same round; everything that
//! was written is read back and compared after every state; a row of nothing ends the run with an
//! error.
//! Deliberately absent: thresholds. These are figures; what is a good one, people say.

#![forbid(unsafe_code)]

mod array;
mod ceiling;
mod host;
mod load;
mod meter;
mod raw;
mod report;
mod room;
mod run;
mod stamp;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// Measures arrays on files in memory beside their raw members.
#[derive(Parser)]
#[command(name = "strake-bench")]
struct Options {
    /// A short run that checks every byte it reads; its figures mean nothing
    #[arg(long)]
    smoke: bool,
    /// End with one line of JSON
    #[arg(long)]
    json: bool,
    /// Rounds; figures are medians over them
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds of each measurement in each round
    #[arg(long)]
    seconds: Option<f64>,
    /// Jobs, and with them threads and shards
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=16))]
    jobs: u16,
    /// Size of a member, at most; less where there is no room
    #[arg(long)]
    member_mib: Option<u64>,
    /// Only this level (may be given several times)
    #[arg(long, value_parser = ["5", "6"])]
    level: Vec<String>,
    /// Only loads with this in their name, such as `random write`
    #[arg(long)]
    only: Option<String>,
    /// Only this state (may be given several times)
    #[arg(long, value_parser = ["optimal", "degraded", "rebuilding", "degraded twice"])]
    state: Vec<String>,
    /// Write what was measured of this machine as a host file: see `strake plan --host-file`
    #[arg(long, value_name = "FILE", conflicts_with = "smoke")]
    host: Option<PathBuf>,
    /// What `cargo xtask bench engine --json` printed: the host file then has the engine's own
    /// time, too
    #[arg(long, value_name = "FILE", requires = "host")]
    engine: Option<PathBuf>,
    /// Where the files go
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// `cargo bench` says so to whatever it starts
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match go(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn go(options: &Options) -> Result<()> {
    let report = run::all(options)?;
    report.print();
    if let Some(path) = &options.host {
        host::write(&report, options.engine.as_deref(), path)?;
    }
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    }
    Ok(())
}
