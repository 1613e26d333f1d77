//! The command line, as clap reads it: words of cli.md, no logic.
//!
//! Invariant: `--json` is understood by every command; `--dry-run` by every command that writes.

pub(crate) mod alert;
pub(crate) mod config;
pub(crate) mod console;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod study;
pub(crate) mod volume;

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::cli::args::alert::AlertCommand;
use crate::cli::args::config::ConfigCommand;
use crate::cli::args::console::ConsoleArgs;
use crate::cli::args::plan::PlanArgs;
use crate::cli::args::pool::PoolCommand;
use crate::cli::args::study::StudyCommand;
use crate::cli::args::volume::VolumeCommand;
use crate::common::events::Severity;
use crate::common::files::FolderQuestion;
use crate::common::{size, time};
use crate::settings::degraded::DegradedStart;

/// Software RAID for NVMe drives.
#[derive(Debug, Parser)]
#[command(name = "strake", version, about, max_term_width = 100)]
pub(crate) struct Cli {
    /// Answer in JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make an array and start it
    Create(Box<CreateArgs>),
    /// Say what drives, a level and loads will do: speed, wear, rebuild, durability, cost
    ///
    /// Before buying and before creating: nothing is read from drives but with --like, and nothing
    /// is written but FILE of --html. A figure that is not known is a range; the source beside a
    /// figure is the weakest of its inputs. What limits a rate is named: drives, links, CPU, or too
    /// few requests in flight. Formulas and what they were checked against:
    /// docs/explanation/foresight.md.
    Plan(Box<PlanArgs>),
    /// Show arrays, members, jobs
    Show {
        /// Only this one
        name: Option<String>,
        /// How long its members took: all reads and writes since they came
        #[arg(long, requires = "name", conflicts_with = "wear")]
        latency: bool,
        /// How its drives wear: health, bytes written, write amplification
        #[arg(long, requires = "name")]
        wear: bool,
        /// With --wear: over the time since then, for example 24h or 7d (all that is known)
        #[arg(long, value_name = "TIME", requires = "wear", value_parser = size::span)]
        since: Option<std::time::Duration>,
    },
    /// Assemble an array and serve it
    Start(StartArgs),
    /// Adopt an array from another host and serve it
    ///
    /// Needed where its name is that of an array here; others are served as soon as they are found.
    Import(ImportArgs),
    /// Stop an array cleanly
    Stop(OneOrAll),
    /// Forget an array and wipe its superblocks
    Destroy {
        name: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Forget an array of which no member is found: it is another host's now, or given up
    ///
    /// Writes nothing to any drive. The array is served again when its drives are found here.
    Forget {
        name: String,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Find arrays on drives, complete or not
    Scan {
        /// Look at these devices, files and folders only
        devices: Vec<PathBuf>,
    },
    /// Tell what lies on one member
    Examine { device: PathBuf },
    /// Take a member out of service
    Fail(OfMember),
    /// Forget a failed or missing member, or a spare
    Remove(OfMember),
    /// Add a spare; it is used at once where a member is missing
    Add(AddArgs),
    /// Rebuild a member onto another device while it stays in service
    Replace(ReplaceArgs),
    /// Switch the light of a member's drive on or off, to find it
    Locate(LocateArgs),
    /// What concerns drives, whichever array they are in
    #[command(subcommand)]
    Drive(DriveCommand),
    /// Count read errors, write errors, mismatches and retries from zero again
    Reset(ResetArgs),
    /// Give an array another name, also while it serves
    Rename {
        name: String,
        new: String,
        /// Only check
        #[arg(long)]
        dry_run: bool,
    },
    /// Use all that the members have room for: they were replaced by larger ones, or grew
    Grow(GrowArgs),
    /// Change the level by parities on devices of their own (--level), or add data columns on them
    /// (--add)
    ///
    /// --level: 0 becomes 5, 5 becomes 6, 6 becomes 7.3, with one device for each parity more. Data
    /// stays where it is: the new parity is built on its device while the array serves, as a
    /// rebuild, and until that is done the array survives what it survived before. Without devices
    /// the way back: a parity that was added so goes, and its device is a spare.
    ///
    /// --add: all data moves to the new shape while the array serves, and the array is larger when
    /// all of it has moved. It waits while a member is missing, goes on after a crash or a restart,
    /// and can be stopped where it is (--stop) and go on later (--continue). There is no way back.
    Restripe(RestripeArgs),
    /// Start (or go on with) the rebuild of missing members, or pause it
    Rebuild(JobArgs),
    /// Zero what was never written, in the background, so that no first write waits for it; or
    /// leave it
    Init(JobArgs),
    /// Start or stop the check of parity, which changes nothing unless it is to repair
    Scrub(ScrubArgs),
    /// Change settings: rebuild_priority=1..100, latency_target=2ms, write_hole=closed...
    ///
    /// rebuild_priority, resync_priority, scrub_priority, restripe_priority, init_priority: 1
    /// (almost nothing beside requests) to 100; latency_target: background work gives way where
    /// more than one request in a hundred takes longer (500us, 2ms, 1s; off); read_error_threshold:
    /// 1 or more; write_hole: closed, degraded or resync; hedged_reads: on or off; spare_delay: how
    /// long a spare waits for a member that vanished (45s, 3m; off), one that failed is replaced at
    /// once; scrub_schedule: off, continuous, daily, weekly (Sundays) or monthly (the first),
    /// scrub_at: when on such a day (03:00), scrub_policy: report, repair or halt.
    ///
    /// On this machine: replace_at_wear: a spare takes the place of a drive that has used so much
    /// of its endurance, per cent (off, 90); pool: where spares come from, if it has none (none);
    /// degraded: whether it is started by itself without missing members: allow, never, 30s (when
    /// it has waited so long; wait: as long as the daemon's --wait), default (the daemon's
    /// --degraded).
    ///
    /// From the next start on, and on this machine: cpus (0-3,8), shards (threads), memory_limit
    /// (buffers of all threads: 256M), requests (under way at most); auto takes each back.
    Set {
        name: String,
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Tell settings
    Get { name: String, key: Option<String> },
    /// Keep spares for several arrays
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Keep what all arrays are in a file, and make them again from it
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Carve an array into volumes, each with a block device of its own
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Tell what happened, when and why
    Events(EventsArgs),
    /// Print rates of arrays and members: requests, bytes, latencies, log
    ///
    /// Columns: reads and writes per second (r/s, w/s), millions of bytes per second (rMB/s,
    /// wMB/s), mean and 99th percentile of what took so many microseconds (r_us, r99_us, w_us,
    /// w99_us), how many were under way on average (queue), reads that other members were asked
    /// for, too (hedged/s), writes to the stripe log on all members (log/s, logMB/s). Of an array
    /// its users' requests count, of a member its I/Os for requests, jobs and log. The first report
    /// is of the time since each array was started. Percentiles are read from a histogram with
    /// buckets that double; how long members took is as of the last second.
    Iostat(IostatArgs),
    /// Look for what is not as it should be, and say what to do
    ///
    /// Looks at drives (PCIe link, NUMA node, firmware, write cache, units of writes, discards), at
    /// arrays (state, spares, schedule of scrubs, unreadable blocks and the room in their list), at
    /// the kernel and its ublk, the clock, the memory lock and limits of the daemon, and the room
    /// in the file system of its folder. Changes nothing. Exit status 10 where a finding is a
    /// warning or critical. Without a daemon it looks at drives and kernel alone, and says so.
    Doctor,
    /// Watch arrays, members, jobs, latencies and events on a terminal
    ///
    /// Keys as in htop: arrows, Page Up, Page Down, Home and End choose an array; F5 or t shows its
    /// members; F6 or > sorts by the next column, I the other way round; Z holds the numbers; F1, h
    /// or ? tells the keys; F10 or q ends. The picture is drawn anew when the window changes its
    /// size, and when a daemon that went is back.
    Top(TopArgs),
    /// Print one line for each array: its state, and what is wrong
    ///
    /// Made for scripts and login banners: it waits at most a few seconds for the daemon, and its
    /// exit status is the state of NAME: 0 optimal, 5 degraded, 6 failed, 7 stopped, 8 stopped and
    /// too few drives found, 9 unknown: its threads do not answer, it is being stopped, or another
    /// process holds its members. Without NAME it is the worst of all arrays: the first of 6, 8, 9,
    /// 5 that any has (a stopped array that can be started counts only where it is named). A daemon
    /// that does not answer is an error: 1.
    Status {
        /// Only this one
        name: Option<String>,
    },
    /// Serve a page of the arrays to a browser on this machine, until Ctrl-C
    ///
    /// Prints a link that opens the page in one browser, once; another browser needs a link of its
    /// own, from another `strake console`. The page listens at 127.0.0.1 alone, and may do what
    /// this user may do at the daemon's socket. From another machine: ssh -L 9090:127.0.0.1:9090
    /// HOST, there strake console --port 9090. Its session ends with the console, after an hour
    /// without a request, and after 12 hours.
    Console(ConsoleArgs),
    /// Channels by which the daemon tells of what is wrong: mail, webhooks, programs
    #[command(subcommand)]
    Alert(AlertCommand),
    /// Tell where a logical block lies: stripe, column, slot, offset, state
    Explain { name: String, lba: u64 },
    /// Experiments on drives: what was published about them, and what this machine does
    #[command(subcommand)]
    Study(StudyCommand),
    /// Show the whole life of an array on files in a temporary folder
    Demo(DemoArgs),
    /// Serve the arrays of this machine until SIGTERM or SIGINT
    #[command(args_override_self = true)]
    Daemon(DaemonArgs),
    /// Write what a shell runs to complete commands, names of arrays, members, volumes, pools, and
    /// settings
    ///
    /// Bash: source <(strake completions bash), in ~/.bashrc. Zsh likewise. Fish: strake
    /// completions fish | source.
    Completions { shell: clap_complete::Shell },
    /// Tell udev what a block device is, for its rules
    #[command(subcommand, hide = true)]
    Udev(UdevCommand),
    /// Write the manual pages of all commands, for packages
    #[command(hide = true)]
    Man { folder: PathBuf },
    /// Say which devices do not answer, to another command
    #[command(hide = true)]
    Answering {
        /// The paths are folders, of which this is asked
        #[arg(long)]
        folders: Option<FolderQuestion>,
    },
}

/// What the rules of udev ask.
#[derive(Debug, Subcommand)]
pub(crate) enum UdevCommand {
    /// What a block device carries of Strake's
    Member { device: PathBuf },
    /// Which array or volume ublkbN is of
    Export { device: String },
}

/// Arguments of `create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    pub(crate) name: String,
    /// 0, 1, 5, 6, 7.3, 10, 50, 60, 70 or N+M
    #[arg(long, short)]
    pub(crate) level: String,
    /// Bytes of a strip: a power of two from 4K to 1M
    #[arg(long)]
    pub(crate) strip: Option<String>,
    /// Members of a group (10, 50, 60, 70)
    #[arg(long)]
    pub(crate) group_size: Option<u8>,
    /// closed (the default), degraded or resync: what protects writes that are cut off
    #[arg(long)]
    pub(crate) write_hole: Option<String>,
    /// Background work gives way where more than one request in a hundred takes longer: 2ms, off
    /// (the default)
    #[arg(long, value_name = "TIME")]
    pub(crate) latency_target: Option<String>,
    /// CPUs that its threads may use here: 0-3,8 (near the drives unless given)
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<String>,
    /// Threads: 1 to 64, or auto (by the number of CPUs, the default)
    #[arg(long)]
    pub(crate) shards: Option<String>,
    /// Buffer memory of all its threads: 256M, auto (the default)
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory_limit: Option<String>,
    /// Requests under way at most: 1 and more, or auto (the default)
    #[arg(long)]
    pub(crate) requests: Option<String>,
    /// Where it has no spare and needs one, it takes one from this pool
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Whether it is started by itself without missing members: allow, never, wait, a time to wait
    /// for them like 30s, default (as the daemon does)
    #[arg(long, value_name = "RULE")]
    pub(crate) degraded: Option<String>,
    /// auto, trim, lazy, zero (in the background), sync or assume-clean
    #[arg(long)]
    pub(crate) init: Option<String>,
    /// Logical block: 512 or 4096
    #[arg(long)]
    pub(crate) block_size: Option<String>,
    /// A spare; may be given more than once
    #[arg(long = "spare", value_name = "DEV")]
    pub(crate) spares: Vec<PathBuf>,
    /// auto, ublk, nbd or none
    #[arg(long)]
    pub(crate) export: Option<String>,
    /// Overwrite foreign signatures and members of arrays that do not run
    #[arg(long)]
    pub(crate) force: bool,
    /// Wait until what --init began is done, with a progress bar
    #[arg(long)]
    pub(crate) wait: bool,
    /// Only check, and say what would be made
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// The members, in order of their slots
    #[arg(required = true, value_name = "DEV")]
    pub(crate) devices: Vec<PathBuf>,
}

/// Arguments of `events`.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Go on telling
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Not before this: a time span like 2h or 7d before now, or a time like 2026-01-31,
    /// '2026-01-31 12:00' (in the time zone of the machine) or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time::since)]
    pub(crate) since: Option<jiff::Timestamp>,
    /// Of this array, by the name that it had then
    #[arg(long, value_name = "NAME")]
    pub(crate) array: Option<String>,
    /// As serious as this, or more
    #[arg(long, value_name = "SEVERITY", value_enum, default_value_t = Severity::Info)]
    pub(crate) severity: Severity,
}

/// Arguments of `iostat`.
#[derive(Debug, Args)]
pub(crate) struct IostatArgs {
    /// Also a line for each member
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Without the first report, which is of the time since each array was started
    #[arg(short = 'y', long, requires = "interval")]
    pub(crate) omit_first: bool,
    /// Only this array
    #[arg(long, value_name = "NAME")]
    pub(crate) array: Option<String>,
    /// A report every so many seconds (0.5, 2; also 500ms, 1m); one report unless given
    #[arg(value_parser = size::interval)]
    pub(crate) interval: Option<std::time::Duration>,
    /// So many reports; without end unless given
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Seconds between two samples (0.5, 2; also 500ms, 1m)
    #[arg(long, short, value_name = "TIME", default_value = "1", value_parser = size::interval)]
    pub(crate) delay: std::time::Duration,
}

/// Arguments of `start`.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    #[arg(required_unless_present = "all")]
    pub(crate) name: Option<String>,
    /// All arrays that are found, but for those that were destroyed here
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,
    /// Assemble from these devices only
    #[arg(value_name = "DEV")]
    pub(crate) devices: Vec<PathBuf>,
    /// Serve it in this process, without a daemon, until SIGTERM or SIGINT
    #[arg(long, requires = "name")]
    pub(crate) foreground: bool,
    /// auto, ublk, nbd or none
    #[arg(long)]
    pub(crate) export: Option<String>,
    /// Although it was not stopped cleanly and members are missing: blocks that they held may be
    /// wrong where writes were under way. Where too few members are left otherwise, also with those
    /// that lost a copy of their superblock, and perhaps their content (this is asked about).
    /// Starts neither halves that ran apart nor too few members. With devices named also: wipes
    /// partition tables that were written over them (this is asked about)
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// Its uuid, as scan tells it (or its name, where only one is called so)
    #[arg(value_name = "UUID")]
    pub(crate) array: String,
    /// The name that it is to have here
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Assemble from these devices only
    #[arg(value_name = "DEV")]
    pub(crate) devices: Vec<PathBuf>,
    /// auto, ublk, nbd or none
    #[arg(long)]
    pub(crate) export: Option<String>,
    /// As for start
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only check
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `stop`.
#[derive(Debug, Args)]
pub(crate) struct OneOrAll {
    #[arg(required_unless_present = "all")]
    pub(crate) name: Option<String>,
    /// All arrays that run
    #[arg(long, conflicts_with = "name")]
    pub(crate) all: bool,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `fail` and `remove`.
#[derive(Debug, Args)]
pub(crate) struct OfMember {
    pub(crate) name: String,
    /// A slot number or a device
    pub(crate) member: String,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// What to do with drives.
#[derive(Debug, Subcommand)]
pub(crate) enum DriveCommand {
    /// Wipe what Strake left on devices: superblocks, region maps, logs, labels of pools
    ///
    /// Refuses members of arrays that run, mounted devices, and devices without anything of
    /// Strake's.
    Clean(CleanArgs),
    /// Switch the light of a drive on or off, to find it: of a member, or of any device, in an
    /// array or not
    Locate(DriveLocateArgs),
}

/// Arguments of `drive locate`.
#[derive(Debug, Args)]
#[command(
    override_usage = concat!(
        "strake drive locate [OPTIONS] DEV on|off\n",
        "       strake drive locate [OPTIONS] NAME MEMBER on|off"
    )
)]
pub(crate) struct DriveLocateArgs {
    /// A device; or an array and a member of it, as for locate
    #[arg(required = true, num_args = 1..=2, value_names = ["DEV|NAME", "MEMBER"])]
    pub(crate) drive: Vec<String>,
    #[arg(required = true)]
    pub(crate) light: OnOff,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `drive clean`.
#[derive(Debug, Args)]
pub(crate) struct CleanArgs {
    #[arg(required = true, value_name = "DEV")]
    pub(crate) devices: Vec<PathBuf>,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only say what would be wiped
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `locate`.
#[derive(Debug, Args)]
pub(crate) struct LocateArgs {
    pub(crate) name: String,
    /// A slot number or a device
    pub(crate) member: String,
    pub(crate) light: OnOff,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// What becomes of a light.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnOff {
    On,
    Off,
}

/// Arguments of `reset`.
#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    pub(crate) name: String,
    /// A slot number or a device; all members unless given
    pub(crate) member: Option<String>,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `add`.
#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    pub(crate) name: String,
    pub(crate) device: PathBuf,
    /// Overwrite foreign signatures
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only check
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `replace`.
#[derive(Debug, Args)]
pub(crate) struct ReplaceArgs {
    pub(crate) name: String,
    /// A slot number or a device
    pub(crate) member: String,
    /// A spare unless given
    pub(crate) device: Option<PathBuf>,
    /// Overwrite foreign signatures
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only check
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `grow`.
#[derive(Debug, Args)]
pub(crate) struct GrowArgs {
    pub(crate) name: String,
    /// Wait until what it began is done, with a progress bar
    #[arg(long)]
    pub(crate) wait: bool,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The words that `restripe --add` took as devices, of a command line that has no NAME.
pub(crate) fn taken_by_add() -> Option<Vec<String>> {
    let command = Cli::command().ignore_errors(true);
    let matches = command.try_get_matches().ok()?;
    let restripe = matches.subcommand_matches("restripe")?;
    let devices = restripe.get_many::<PathBuf>("add")?;
    Some(devices.map(|d| d.display().to_string()).collect())
}

/// NAME comes first: behind `--add` it would be taken for a device.
const RESTRIPE_USAGE: &str = "\
strake restripe [OPTIONS] <NAME> --level <LEVEL> [DEV]...
       strake restripe [OPTIONS] <NAME> --add <DEV>...
       strake restripe [OPTIONS] <NAME> <--strip <SIZE>|--group-size <N>|--rotate>
       strake restripe [OPTIONS] <NAME> <--stop|--continue>";

/// Arguments of `restripe`.
#[derive(Debug, Args)]
#[command(group(
    clap::ArgGroup::new("what")
        .required(true)
        .multiple(true)
        .args(["level", "add", "strip", "group_size", "rotate", "stop", "go_on"])
))]
#[command(override_usage = RESTRIPE_USAGE)]
pub(crate) struct RestripeArgs {
    pub(crate) name: String,
    /// 5, 6, 7.3 or N+M: with as many devices as it has parities more; of a mirror with as many
    /// copies: its data moves to the devices. Without devices: back to fewer parities; what held
    /// them are spares. Data moves first, unless they were added. 0 only with --force; 1 of 1+M.
    /// 50, 60 and 70 of 5, 6 and 7.3 (with --group-size), and these of 50, 60 and 70: data moves to
    /// other groups
    #[arg(long, short, conflicts_with_all = ["add", "stop", "go_on"])]
    pub(crate) level: Option<String>,
    /// Data columns on these devices, or whole groups: data moves to them while the array serves
    #[arg(long, num_args = 1.., value_name = "DEV", conflicts_with_all = ["stop", "go_on"])]
    pub(crate) add: Vec<PathBuf>,
    /// Members of a group, of an array that gets groups, or others
    #[arg(long, value_name = "N", conflicts_with_all = ["stop", "go_on"])]
    pub(crate) group_size: Option<u8>,
    /// Parities that were added with --level rotate like others: data moves to where it lies then
    #[arg(long, conflicts_with_all = ["stop", "go_on"])]
    pub(crate) rotate: bool,
    /// Another strip, 4K to 1M: data moves to it while the array serves; alone, or besides
    /// more data columns, or other groups
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["stop", "go_on"])]
    pub(crate) strip: Option<String>,
    /// Data moves no further, also after restarts
    #[arg(long, conflicts_with = "go_on")]
    pub(crate) stop: bool,
    /// It goes on
    #[arg(long = "continue")]
    pub(crate) go_on: bool,
    /// Wait until all data has moved, or the new parity is built, with a progress bar
    #[arg(long, conflicts_with = "stop")]
    pub(crate) wait: bool,
    /// Overwrite foreign signatures; let the last parity go
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only check
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// With --level: one for each parity more, or for new groups
    #[arg(value_name = "DEV", requires = "level")]
    pub(crate) devices: Vec<PathBuf>,
}

/// Arguments of `scrub`.
#[derive(Debug, Args)]
pub(crate) struct ScrubArgs {
    pub(crate) name: String,
    /// One that was paused goes on where it was; stop forgets it; status tells what the last ten
    /// found; accept takes what is read in undecided regions for right and computes parity anew
    #[arg(value_parser = ["start", "pause", "stop", "status", "accept"], default_value = "start")]
    pub(crate) action: String,
    #[command(flatten)]
    pub(crate) how: JobHow,
    /// Rewrite strips that are named as wrong, and unreadable sectors, from the others
    #[arg(long)]
    pub(crate) repair: bool,
    /// Pause at the first stripe that is inconsistent
    #[arg(long, conflicts_with = "repair")]
    pub(crate) halt: bool,
    /// Do not ask before accept
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Arguments of `rebuild`.
#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    pub(crate) name: String,
    #[arg(value_parser = ["start", "stop"], default_value = "start")]
    pub(crate) action: String,
    #[command(flatten)]
    pub(crate) how: JobHow,
}

/// What `rebuild`, `init` and `scrub` have in common.
#[derive(Debug, Args)]
pub(crate) struct JobHow {
    /// Wait until it is done, with a progress bar
    #[arg(long)]
    pub(crate) wait: bool,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `daemon`.
#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// The configuration, which options outweigh (/etc/strake/strake.toml, or strake.toml in
    /// STRAKE_DIR, if there is one)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Also look at this device, file, or folder of files; may be given more than once
    #[arg(long = "scan", value_name = "PATH")]
    pub(crate) scan: Vec<PathBuf>,
    /// Do not look at the machine's block devices
    #[arg(long)]
    pub(crate) no_devices: bool,
    /// How long an array may wait for missing members, seconds (default 10)
    #[arg(long)]
    pub(crate) wait: Option<f64>,
    /// What becomes of an array that could start without its missing members, unless it has a
    /// setting of its own (strake start NAME always starts it; default wait)
    #[arg(long, value_enum)]
    pub(crate) degraded: Option<DegradedStart>,
    /// Threads for each array
    #[arg(long)]
    pub(crate) shards: Option<u16>,
    /// Buffer memory of each thread (default 64M)
    #[arg(long)]
    pub(crate) memory: Option<String>,
    /// A member I/O that takes longer counts as timed out; one that fails on its way is tried again
    /// for as long; seconds (default 75)
    #[arg(long)]
    pub(crate) io_timeout: Option<f64>,
    /// End when this process, which started the daemon, ends
    #[arg(long, hide = true, value_name = "PID")]
    pub(crate) end_with: Option<u32>,
}

/// Arguments of `demo`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// 1, 5, 6, 7.3, 10, 50, 60, 70 or N+M
    #[arg(long, default_value = "5")]
    pub(crate) level: String,
    /// Members, without the spare
    #[arg(long)]
    pub(crate) members: Option<u8>,
    /// Members of a group (10, 50, 60, 70)
    #[arg(long)]
    pub(crate) group_size: Option<u8>,
    /// Size of each member file
    #[arg(long, default_value = "1G")]
    pub(crate) size: String,
    /// How much of the array is written and verified
    #[arg(long, default_value = "256M")]
    pub(crate) work: String,
    /// Seconds of each timed phase
    #[arg(long, default_value_t = 4.0)]
    pub(crate) seconds: f64,
    /// auto, ublk or nbd
    #[arg(long, default_value = "auto")]
    pub(crate) export: String,
    /// Folder in which the temporary folder is made
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// Keep the folder
    #[arg(long)]
    pub(crate) keep: bool,
}
