//! `cargo xtask bench vm`: raw drives, Linux md and Strake side by side, in one boot of a real
//! kernel.
//!
//! The guest's script (`tests/vm/bench.sh`) makes the drives, lets the subjects take turns within
//! each round, and leaves fio's reports in the shared folder; here they become medians, ceilings
//! and ratios (`results`, `table`).
//!
//! Invariant: no figure without a measurement: a load that is missing for a subject in a round, or
//! in which fio met an error, ends the run with an error. Deliberately absent: thresholds. The
//! guest is emulated in software, so its figures mean nothing beside those of another boot.

mod report;
mod results;
mod table;

use super::drives::Drives;
use super::guest::{self, End, Spec};
use super::prepare::{self, Rig, Series};
use crate::host;
use crate::outcome::Outcome;
use anyhow::{Context, Result, bail};
use clap::Parser;
use results::Results;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Linux md and Strake beside their raw drives, in one boot of the virtual machine.
#[derive(Parser)]
#[command(name = "cargo xtask bench vm", about)]
struct Options {
    /// Rounds of everything: figures are medians over them
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// Size of a member, in MiB
    #[arg(long, default_value_t = 384)]
    member_mib: u64,
    /// I/Os per second of each drive, so that the drives are the limit and not the CPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    drive_iops: Option<u64>,
    /// Bytes per second of each drive, in 10^6
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    drive_mbps: Option<u64>,
    /// Only this level
    #[arg(long, value_parser = ["5", "6"])]
    level: Option<String>,
    /// Only loads with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Without rebuilds
    #[arg(long)]
    no_rebuild: bool,
    /// A few seconds of a few loads, to see that it works; its figures mean nothing
    #[arg(long)]
    smoke: bool,
    /// Boot nothing, and print what the last run has measured; with the options of that
    #[arg(long, conflicts_with = "smoke")]
    report: bool,
    /// End with one line of JSON
    #[arg(long)]
    json: bool,
    /// The binary to measure, instead of the release build
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Which series of kernels
    #[arg(long, value_enum, default_value = "6.12")]
    kernel: Series,
}

/// As the guest's script knows them.
const LOADS: [&str; 7] = [
    "sequential-read-512K",
    "sequential-write-512K",
    "sequential-write-128K",
    "random-read-4K",
    "random-write-4K",
    "random-read-4K-qd1",
    "random-write-4K-qd1",
];
const LOADS_SMOKE: [&str; 2] = ["random-read-4K", "sequential-write-512K"];
/// What runs beside a rebuild.
const BESIDE: [&str; 3] = ["idle", "random-read-4K", "random-write-4K"];
/// A rebuild that takes longer is a failure.
const REBUILD_LIMIT_S: u64 = 240;

impl Options {
    fn levels(&self) -> Vec<&str> {
        match &self.level {
            Some(level) => vec![level],
            None if self.smoke => vec!["5"],
            None => vec!["5", "6"],
        }
    }

    fn loads(&self) -> Vec<&'static str> {
        let all: &[&str] = if self.smoke { &LOADS_SMOKE } else { &LOADS };
        let only = self.only.as_deref().unwrap_or_default().replace(' ', "-");
        let wanted = all.iter().copied().filter(|load| load.contains(&only));
        wanted.collect()
    }

    fn beside(&self) -> &'static [&'static str] {
        match (self.no_rebuild, self.smoke) {
            (true, _) => &[],
            (false, true) => &BESIDE[..1],
            (false, false) => &BESIDE,
        }
    }

    /// Seconds for which an open array has nothing to do.
    fn idle_s(&self) -> u64 {
        if self.smoke { 5 } else { 60 }
    }

    fn member_mib(&self) -> u64 {
        if self.smoke { 48 } else { self.member_mib }
    }

    /// What the guest's script is told.
    fn env(&self) -> String {
        let (rounds, seconds) = if self.smoke {
            (1, 1)
        } else {
            (self.rounds, self.seconds)
        };
        format!(
            "LOADS=\"{}\"\nSTATES=\"{}\"\nREBUILDS=\"{}\"\nROUNDS={rounds}\n\
             SECONDS_EACH={seconds}\nIDLE_S={}\nMEMBER_MIB={}\n\
             REBUILD_LIMIT_S={REBUILD_LIMIT_S}\n\
             DRIVE_IOPS={}\nDRIVE_MBPS={}\n",
            self.loads().join(" "),
            if self.smoke {
                "optimal"
            } else {
                "optimal degraded"
            },
            self.beside().join(" "),
            self.idle_s(),
            self.member_mib(),
            self.drive_iops.unwrap_or(0),
            self.drive_mbps.unwrap_or(0),
        )
    }

    /// Three sets of drives in memory, two of them with one more than there are members; and what a
    /// machine needs.
    fn memory_mib(&self) -> u64 {
        let members = |level: &str| if level == "5" { 5 } else { 6 };
        let widest = self.levels().into_iter().map(members).max().unwrap_or(0);
        (3 * widest + 2) * self.member_mib() + 2560
    }

    /// The longest that the boot may take: what is measured, four times over, and a start.
    fn limit_s(&self) -> u64 {
        let measured = self.rounds * self.loads().len() as u64 * 9 * (self.seconds + 3);
        // A load runs before each rebuild that it stands beside, too, and once on one raw drive.
        let alone = self.rounds * (self.beside().len() as u64 * 2 + 1) * (self.seconds + 3);
        let rebuilt = self.rounds * self.beside().len() as u64 * 2 * REBUILD_LIMIT_S / 4;
        // Each set is filled once, and md writes its drives again when it is given a bitmap.
        let mib_per_s = self.drive_mbps.unwrap_or(100).min(100);
        let filled = (4 + self.rounds) * self.member_mib() / mib_per_s;
        self.levels().len() as u64 * 4 * (measured + alone + rebuilt + filled + self.idle_s()) + 300
    }
}

/// What `cargo xtask bench vm` does with its arguments.
pub(crate) fn run(args: &[&str]) -> Result<ExitCode> {
    let name = ["cargo xtask bench vm"];
    let options = match Options::try_parse_from(name.iter().chain(args)) {
        Ok(options) => options,
        Err(error) => error.exit(),
    };
    if options.loads().is_empty() {
        bail!("no load of that name; there are {}", LOADS.join(", "));
    }
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => super::build()?,
    };
    if !binary.is_file() {
        bail!("{} does not exist; build it", binary.display());
    }
    let rig = Rig::Emulated(prepare::emulator(options.kernel)?);
    let results = match options.report {
        true => read(&options)?,
        false => measure(&rig, &options, &binary)?,
    };
    let about = table::About {
        kernel: rig.version(),
        cpus: CPUS,
        member_mib: options.member_mib(),
        drive_iops: options.drive_iops,
        drive_mbps: options.drive_mbps,
        rounds: results.rounds(),
    };
    print!("{}", table::text(&about, &results));
    if options.json {
        println!("{}", table::json(&about, &results));
    }
    Ok(ExitCode::SUCCESS)
}

/// The smoke run as a step of the whole run. What the rig lacks skips it.
pub(crate) fn smoke() -> Result<Outcome> {
    let binary = host::strake_binary();
    if !binary.is_file() {
        return Ok(Outcome::skipped("no release build of strake"));
    }
    let rig = match prepare::emulator(Series::Stable) {
        Ok(emulator) => Rig::Emulated(emulator),
        Err(error) => return Ok(Outcome::skipped(format!("{error:#}"))),
    };
    let options = Options::try_parse_from(["smoke", "--smoke"])?;
    let results = measure(&rig, &options, &binary)?;
    let beside = results.beside_md();
    if beside.is_empty() {
        return Ok(Outcome::failed("nothing was measured beside md"));
    }
    Ok(Outcome::passed())
}

const CPUS: u32 = 2;

/// Its shared folder and its log.
const NAME: &str = "bench";

/// Boots, and reads what the guest has left.
fn measure(rig: &Rig, options: &Options, binary: &Path) -> Result<Results> {
    let drives = Drives::make(NAME, 0, 0, 512)?;
    let share = guest::fill_share(NAME, binary)?;
    fs::write(share.join("bench.env"), options.env())?;
    let names: Vec<String> = options
        .levels()
        .iter()
        .map(|l| format!("raid{l}"))
        .collect();
    let place = share.display();
    let script = format!("bash {place}/bench.sh {place} {}", names.join(" "));
    let spec = Spec {
        name: NAME,
        cpus: CPUS,
        memory_mib: options.memory_mib(),
        limit_s: options.limit_s(),
    };
    let logs = prepare::folder().join("logs");
    fs::create_dir_all(&logs)?;
    let log_path = logs.join("bench.log");
    let mut log = File::create(&log_path).with_context(|| log_path.display().to_string())?;
    println!("boot bench (Linux {}): {}", rig.version(), names.join(" "));
    let (start, mut wrong, mut well) = (Instant::now(), None, 0);
    let end = guest::run(rig, &spec, &drives, &script, |line| {
        let at = start.elapsed().as_secs_f64();
        let _ = writeln!(log, "{at:7.1} {line}");
        if line.starts_with("ok ") {
            well += 1;
        } else if let Some(why) = line.strip_prefix("not ok ") {
            wrong.get_or_insert(why.to_owned());
        } else if line.starts_with("# ") || line.starts_with("| ") {
            println!("  {line}");
        }
    })?;
    if let Some(why) = wrong {
        bail!("{why}; log {}", log_path.display());
    }
    if end != End::Off || well != names.len() {
        let words = guest::last_words(NAME, &log_path);
        bail!("the guest ended ({end:?}); {words}");
    }
    read(options)
}

/// What the guest has left in its shared folder.
fn read(options: &Options) -> Result<Results> {
    let mut results = Results::read(&guest::share(NAME), CPUS)?;
    results.held = options.drive_iops.is_some() || options.drive_mbps.is_some();
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Options {
        Options::try_parse_from(["bench"].iter().chain(args)).expect("valid arguments")
    }

    #[test]
    fn a_part_of_a_loads_name_chooses_it_in_people_s_words_too() {
        let chosen = |text| options(&["--only", text]).loads();
        assert_eq!(
            chosen("random write 4K"),
            LOADS[4..7]
                .iter()
                .copied()
                .filter(|l| l.contains("write"))
                .collect::<Vec<_>>()
        );
        assert_eq!(chosen("qd1").len(), 2);
        assert!(chosen("seqential").is_empty());
    }

    #[test]
    fn the_guest_s_script_is_told_a_word_a_line() {
        let value = |args: &[&str], name: &str| {
            let env = options(args).env();
            let mut lines = env.lines().filter_map(|line| line.split_once('='));
            assert!(lines.clone().all(|(name, _)| !name.contains(' ')), "{env}");
            let found = lines.find(|(known, _)| *known == name);
            found.map(|(_, value)| value.to_owned())
        };
        assert_eq!(value(&[], "IDLE_S").as_deref(), Some("60"));
        assert_eq!(value(&["--smoke"], "IDLE_S").as_deref(), Some("5"));
        assert_eq!(value(&[], "MEMBER_MIB").as_deref(), Some("384"));
        assert_eq!(
            value(&["--no-rebuild"], "REBUILDS").as_deref(),
            Some("\"\"")
        );
        assert_eq!(value(&[], "DRIVE_MBPS").as_deref(), Some("0"));
    }

    #[test]
    fn the_guest_s_memory_holds_all_drives_of_the_widest_level() {
        let mib = options(&["--level", "6", "--member-mib", "100"]).memory_mib();
        assert_eq!(mib, (6 + 7 + 7) * 100 + 2560);
    }
}
