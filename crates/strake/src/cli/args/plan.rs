//! Arguments of `strake plan`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use strake_lab::forecast;

/// What is to be planned.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// A drive of the catalogue (--drives lists it); without one, give figures, at least --capacity
    #[arg(long, value_name = "NAME", conflicts_with = "drives")]
    pub(crate) drive: Option<String>,
    /// An array of this machine: its level, members, groups, strip and drives; other options
    /// outweigh what it has
    #[arg(long, value_name = "ARRAY")]
    pub(crate) like: Option<String>,
    /// Members, without spares
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u8>,
    /// 0, 1, 5, 6, 7.3, 10, 50, 60, 70 or N+M; 5, 6 and 7.3 with a smaller --group-size are 50, 60
    /// and 70
    #[arg(long, short)]
    pub(crate) level: Option<String>,
    /// Members of a group
    #[arg(long, value_name = "N")]
    pub(crate) group_size: Option<u8>,
    /// Bytes of a strip: a power of two from 4K to 1M (what create takes, unless given)
    #[arg(long, value_name = "SIZE")]
    pub(crate) strip: Option<String>,
    /// Drives that wait, in addition to --count
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) spares: u8,
    /// A load, as PATTERN:SIZE:DEPTH or PATTERN:SIZE:DEPTH:BYTES_A_SECOND; PATTERN is seq-read,
    /// seq-write, rand-read, rand-write, seq-mixedN or rand-mixedN (N of 100 read); DEPTH is
    /// requests in flight, of seq- streams; may be given more than once: loads run at once
    #[arg(long = "load", value_name = "LOAD")]
    pub(crate) loads: Vec<String>,
    /// Plan another shape beside it, as LEVEL[:COUNT[:GROUP[:STRIP]]][@DRIVE], or md: the same
    /// shape served by Linux md; may be given more than once
    #[arg(long, value_name = "SHAPE", conflicts_with = "best_for")]
    pub(crate) compare: Vec<String>,
    /// Try all levels, groups and strips of the members, and say why the best wins
    #[arg(long, value_enum, value_name = "GOAL")]
    pub(crate) best_for: Option<Best>,
    /// What the best must reach, at the worse end of every range: usable=500TB, tolerance=2,
    /// nines=6, rate=20GB, life=5 (years); may be given more than once
    #[arg(long, value_name = "KEY=VALUE", requires = "best_for")]
    pub(crate) at_least: Vec<String>,
    /// Run the loads by the engine on modelled drives, too, and show what that reached beside the
    /// formulas: rates, p50 to p99.9, write amplification by cause; optimal, degraded, rebuilding.
    /// This takes seconds to a minute for each shape
    #[arg(long, requires = "loads")]
    pub(crate) simulate: bool,
    /// What decides the order of latencies and of random places of --simulate: the same seed gives
    /// the same figures
    #[arg(long, value_name = "N", default_value_t = forecast::SEED, requires = "simulate")]
    pub(crate) seed: u64,
    /// Write one HTML file with tables and charts
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// More drives, as TOML; may be given more than once
    #[arg(long, value_name = "FILE")]
    pub(crate) drive_file: Vec<PathBuf>,
    /// What the benchmarks measured of the machine, as cargo xtask bench system --host FILE writes
    /// it; of several files the later one counts
    #[arg(long, value_name = "FILE")]
    pub(crate) host_file: Vec<PathBuf>,
    /// List the drives of the catalogue
    #[arg(long)]
    pub(crate) drives: bool,
    #[command(flatten)]
    pub(crate) figures: FigureArgs,
    #[command(flatten)]
    pub(crate) terms: TermArgs,
}

/// What is best.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Best {
    /// Least money for each usable TB
    Cost,
    /// Most bytes a second
    Speed,
    /// Most nines
    Durability,
}

/// What the drives' data lies on.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum MediaArg {
    Slc,
    Tlc,
    Qlc,
    Hdd,
}

/// Figures of the drive. Each takes a number, or a range as 1..2.
#[derive(Debug, Args)]
#[command(next_help_heading = "Figures of the drive (a number, or a range as 1..2)")]
pub(crate) struct FigureArgs {
    /// Bytes of a drive
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) capacity: Option<String>,
    /// What its data lies on: decides which ranges stand for what is unknown
    #[arg(long, value_enum)]
    pub(crate) media: Option<MediaArg>,
    /// Indirection unit
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) unit: Option<String>,
    /// Sequential read, bytes a second
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) read: Option<String>,
    /// Sequential write, bytes a second
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) write: Option<String>,
    /// Random reads of 4 KiB a second
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) read_iops: Option<String>,
    /// Random writes a second in steady state, of --write-size
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) write_iops: Option<String>,
    /// The size of these writes (4K)
    #[arg(
        long,
        value_name = "SIZE",
        requires = "write_iops",
        allow_hyphen_values = true
    )]
    pub(crate) write_size: Option<String>,
    /// Share of the drives that fail in a year, as 0.5%
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub(crate) afr: Option<String>,
    /// Unreadable sectors for each bit that is read
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) uber: Option<String>,
    /// US dollars for each GB
    #[arg(long, value_name = "USD", allow_hyphen_values = true)]
    pub(crate) price_gb: Option<String>,
    /// Watts at work
    #[arg(long, value_name = "W", allow_hyphen_values = true)]
    pub(crate) watts_active: Option<String>,
    /// Watts at rest
    #[arg(long, value_name = "W", allow_hyphen_values = true)]
    pub(crate) watts_idle: Option<String>,
}

/// The machine, the running and the money.
#[derive(Debug, Args)]
#[command(next_help_heading = "Machine, running and money (ranges unless given)")]
pub(crate) struct TermArgs {
    /// Cores that serve the array (those of --host-file, or 16..64)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) cores: Option<String>,
    /// What all links of the drives carry together in one direction, bytes a second
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) uplink: Option<String>,
    /// Share of the bytes that are written (100%)
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub(crate) written: Option<String>,
    /// Share of the drives' time that a rebuild has beside requests (4.5%..50%)
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub(crate) rebuild_share: Option<String>,
    /// Which engine serves and rebuilds: strake, or Linux md as it is installed
    #[arg(long, value_parser = ["strake", "md"], default_value = "strake")]
    pub(crate) engine: String,
    /// How much likelier a drive fails while another has (1..5)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) correlation: Option<String>,
    /// Days between two scrubs (7..365)
    #[arg(long, value_name = "DAYS", allow_hyphen_values = true)]
    pub(crate) scrub_days: Option<String>,
    /// Hours until a failed drive is replaced where there is no spare (4..72)
    #[arg(long, value_name = "HOURS", allow_hyphen_values = true)]
    pub(crate) replace_hours: Option<String>,
    /// Settings of durability that reproduce a published table: seed-graid (UBER 5e-18, correlation
    /// 5, no latent errors)
    #[arg(long, value_parser = ["seed-graid"])]
    pub(crate) preset: Option<String>,
    /// Bytes of data to hold: the cost is that of as many arrays as this takes
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) hold: Option<String>,
    /// The term (5)
    #[arg(long, value_name = "YEARS", allow_hyphen_values = true)]
    pub(crate) years: Option<String>,
    /// US dollars for each kilowatt-hour (0.25)
    #[arg(long, value_name = "USD", allow_hyphen_values = true)]
    pub(crate) kwh: Option<String>,
    /// Watts of the building for each watt of the machines (1.35)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) pue: Option<String>,
    /// Share of the time that drives work (3%)
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub(crate) duty: Option<String>,
    /// Drives of a server (24)
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) drives_per_server: Option<String>,
    /// US dollars of a server without drives (14222)
    #[arg(long, value_name = "USD", allow_hyphen_values = true)]
    pub(crate) server_price: Option<String>,
}
