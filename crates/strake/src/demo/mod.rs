//! `strake demo`: the whole life of an array on files in a temporary folder.
//!
//! The play: daemon and array → fill → verified reads → a random mixture that from now on never
//! pauses while something happens → a member's file is removed → degraded reads → the spare is
//! rebuilt → the daemon is killed and comes back → everything is verified → a read-only scrub.
//! Every phase is bounded, in bytes or in seconds. Nothing here is simulated: daemon, export, files
//! and signals are the real ones.
//!
//! Invariant: the last line on standard output with `--json` is the JSON of cli.md, also when data
//! were wrong.

mod interrupt;
mod load;
mod nbd;
mod oracle;
mod stage;
mod target;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use strake_format::Level;

use crate::api::*;
use crate::cli::args::DemoArgs;
use crate::cli::output::{Bar, Table};
use crate::cli::{Ended, print};
use crate::common::errors::{Code, Failure};
use crate::common::size;
use crate::demo::load::{Field, Mixture};
use crate::demo::oracle::{BLOCK, Oracle};
use crate::demo::stage::{NAME, Stage};
use crate::demo::target::Target;

/// The slot that loses its member.
const VICTIM: usize = 1;

/// What the demo ends with (cli.md).
#[derive(Clone, Debug, Default, Serialize)]
struct Report {
    level: String,
    members: u8,
    verified_bytes: u64,
    mismatches: u64,
    members_lost: u64,
    daemon_kills: u64,
    lost_acknowledged_writes: u64,
    rebuild_bytes_per_s: u64,
    write_bytes_per_s: u64,
    read_bytes_per_s: u64,
    degraded_read_bytes_per_s: u64,
    scrub_inconsistent_stripes: u64,
}

/// The cast, from the arguments.
#[derive(Debug)]
struct Plan {
    level: Level,
    members: u8,
    group_size: Option<u8>,
    member_bytes: u64,
    work_bytes: u64,
    phase: Duration,
    export: String,
}

fn plan(args: &DemoArgs) -> Result<Plan, Failure> {
    if !matches!(args.export.as_str(), "auto" | "ublk" | "nbd") {
        let found = format!("--export {}: the demo needs a block device", args.export);
        return Err(Failure::new(Code::Usage, found).cure("use auto, ublk or nbd"));
    }
    let level: Level = args
        .level
        .parse()
        .map_err(|e| Failure::new(Code::LevelUnknown, format!("level '{}' is {e}", args.level)))?;
    let (members, group) = match level {
        Level::Raid0 => {
            let failure = Failure::new(Code::Usage, "level 0 survives no loss");
            return Err(failure.cure("choose a level with redundancy"));
        }
        Level::Raid1 => (2, None),
        Level::Raid5 => (5, None),
        Level::Raid6 => (6, None),
        Level::Raid7_3 => (7, None),
        Level::Raid10 => (4, Some(2)),
        Level::Raid50 => (6, Some(3)),
        Level::Raid60 => (8, Some(4)),
        Level::Raid70 => (10, Some(5)),
        Level::Nm { n, m } => (n + m, None),
    };
    let given = args.members.unwrap_or(members);
    // Two groups, unless the user says otherwise; RAID 10 keeps pairs.
    let group = group.map(|g| {
        if level == Level::Raid10 {
            g
        } else {
            (given / 2).max(1)
        }
    });
    Ok(Plan {
        level,
        members: given,
        group_size: args.group_size.or(group),
        member_bytes: sized("--size", &args.size)?,
        work_bytes: sized("--work", &args.work)?,
        phase: Duration::try_from_secs_f64(args.seconds)
            .map_err(|_| Failure::new(Code::Usage, format!("{} seconds", args.seconds)))?,
        export: args.export.clone(),
    })
}

/// The play under way.
struct Play {
    plan: Plan,
    stage: Stage,
    field: Field,
    report: Report,
    quiet: bool,
    started: Instant,
    resent: u64,
}

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs, json: bool) -> Ended {
    let plan = plan(args)?;
    interrupt::catch()?;
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    Stage::sweep(&parent);
    let mut play = match Play::begin(plan, &parent, args.keep, json) {
        Err(_) if interrupt::status().is_some() => interrupted(),
        begun => begun?,
    };
    let played = play.all_acts();
    play.report.verified_bytes = play.field.oracle.verified_bytes();
    play.report.mismatches = play.field.oracle.mismatches();
    play.report.lost_acknowledged_writes = play.field.oracle.lost();
    let good = play.report.mismatches == 0 && play.report.lost_acknowledged_writes == 0;
    let Play {
        stage,
        field,
        report,
        started,
        resent,
        ..
    } = play;
    drop(field);
    if interrupt::status().is_some() {
        match args.keep {
            true => drop(stage.keep()),
            false => drop(stage),
        }
        interrupted();
    }
    let keep = args.keep || played.is_err() || !good;
    let tail = stage.log_tail();
    let kept = if keep { Some(stage.keep()) } else { None };
    if let Err(failure) = played {
        let place = kept.map_or_else(String::new, |p| format!(" ({} is kept)", p.display()));
        let found = format!("{}{place}; the daemon's last words: {tail}", failure.found);
        return Err(Failure { found, ..failure });
    }
    end(&report, json, started.elapsed(), resent);
    if let Some(path) = &kept {
        tell!("kept: {}", path.display());
    }
    match good {
        true => Ok(0),
        false => Err(Failure::new(Code::DemoFailed, "data were wrong or lost")),
    }
}

/// A size that an option gives: more than nothing.
fn sized(option: &str, text: &str) -> Result<u64, Failure> {
    match size::parse(text)? {
        0 => {
            let found = format!("{option} {text} leaves nothing to work with");
            Err(Failure::new(Code::SizeInvalid, found).cure(format!("give a larger {option}")))
        }
        bytes => Ok(bytes),
    }
}

/// Nothing is left of it.
fn interrupted() -> ! {
    tell!("interrupted");
    std::process::exit(interrupt::status().unwrap_or(1))
}

/// The closing table, or the one JSON line.
fn end(report: &Report, json: bool, took: Duration, resent: u64) {
    if json {
        let line = serde_json::to_string(report).expect("the report is JSON");
        print(format!("{line}\n").as_bytes());
        return;
    }
    let mut table = Table::new(&["WHAT", "RESULT"]);
    let mut row = |what: &str, result: String| table.row(vec![what.to_owned(), result]);
    row(
        "level",
        format!("{} of {} members and a spare", report.level, report.members),
    );
    row("verified", size::bytes(report.verified_bytes));
    row("mismatches", report.mismatches.to_string());
    row(
        "acknowledged writes lost",
        report.lost_acknowledged_writes.to_string(),
    );
    row("members lost", report.members_lost.to_string());
    row(
        "daemon kills",
        format!("{} ({resent} requests sent again)", report.daemon_kills),
    );
    row("write", size::rate(report.write_bytes_per_s));
    row("read", size::rate(report.read_bytes_per_s));
    row(
        "degraded read",
        size::rate(report.degraded_read_bytes_per_s),
    );
    row("rebuild", size::rate(report.rebuild_bytes_per_s));
    row(
        "inconsistent stripes",
        report.scrub_inconsistent_stripes.to_string(),
    );
    row("time", format!("{:.1} s", took.as_secs_f64()));
    print(format!("\n{}", table.text(0)).as_bytes());
}

impl Play {
    fn begin(
        plan: Plan,
        parent: &std::path::Path,
        keep: bool,
        quiet: bool,
    ) -> Result<Play, Failure> {
        let started = Instant::now();
        let files = usize::from(plan.members) + 1;
        let mut stage = Stage::set(parent, files, plan.member_bytes, keep)?;
        tell!(
            "{files} files of {} in {}",
            size::bytes(plan.member_bytes),
            stage.path().display()
        );
        stage.start_daemon()?;
        let (members, spares) = stage.files.split_at(usize::from(plan.members));
        let array = stage.create(&CreateRequest {
            name: NAME.to_owned(),
            level: plan.level.to_string(),
            strip_bytes: None,
            group_size: plan.group_size,
            write_hole: None,
            latency_target_us: None,
            cpus: None,
            shards: None,
            memory_limit_bytes: None,
            pool: None,
            degraded: None,
            requests: None,
            init: None,
            block_bytes: Some(BLOCK as u32),
            devices: members.to_vec(),
            spares: spares.to_vec(),
            export: Some(plan.export.clone()),
            force: false,
            dry_run: false,
        })?;
        let device = array.device.clone().unwrap_or_default();
        tell!(
            "array of {} served as {device}",
            size::bytes(array.size_bytes)
        );
        let target =
            Target::open(&device).map_err(|e| Failure::io(format!("opening {device}"), &e))?;
        let blocks = plan.work_bytes.min(array.size_bytes) / (1 << 20) * (1 << 20) / BLOCK as u64;
        if blocks < 1024 {
            let failure = Failure::new(Code::Usage, "the demo needs at least 4 MiB to work on");
            return Err(failure.cure("choose a larger --work or --size"));
        }
        let run = u64::from(std::process::id()) << 32 | 0x5eed;
        let oracle = Arc::new(Oracle::new(blocks as usize, run));
        let report = Report {
            level: plan.level.to_string(),
            members: plan.members,
            ..Report::default()
        };
        let field = Field {
            target: Arc::new(target),
            oracle,
        };
        Ok(Play {
            plan,
            stage,
            field,
            report,
            quiet,
            started,
            resent: 0,
        })
    }

    fn say(&self, text: &str) {
        tell!("{:>6.1} s  {text}", self.started.elapsed().as_secs_f64());
    }

    fn all_acts(&mut self) -> Result<(), Failure> {
        self.report.write_bytes_per_s = self.pass("fill", true)?;
        self.report.read_bytes_per_s = self.pass("read and verify", false)?;
        self.lose_a_member()?;
        self.rebuild()?;
        self.kill_the_daemon()?;
        self.pass("verify everything", false)?;
        self.scrub()?;
        self.resent = self.field.target.resent();
        if self.field.target.errors() > 0 {
            self.say(&format!(
                "{} requests got an error first",
                self.field.target.errors()
            ));
        }
        Ok(())
    }

    fn pass(&self, what: &str, write: bool) -> Result<u64, Failure> {
        let total = (self.field.oracle.blocks() * BLOCK) as u64;
        let bar = Mutex::new(Bar::new(what, total, self.quiet));
        let rate = self.field.pass(write, |done| {
            bar.lock().expect("a bar does not panic").at(done, total);
        });
        bar.into_inner().expect("a bar does not panic").end();
        let rate = rate.map_err(|e| Failure::io(what, &e))?;
        self.say(&format!(
            "{what}: {} at {}",
            size::bytes(total),
            size::rate(rate)
        ));
        Ok(rate)
    }

    /// Lets the mixture run for a while, and looks whether it still does.
    fn let_run(&self, load: &Mixture, time: Duration) -> Result<(), Failure> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            interrupt::check()?;
            if let Some(trouble) = load.trouble() {
                let found = format!("the load was answered with an error: {trouble}");
                return Err(Failure::new(Code::DemoFailed, found));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn stop(&self, load: Mixture, during: &str) -> Result<(), Failure> {
        let requests = load.stop().map_err(|trouble| {
            let found = format!("the load was answered with an error during {during}: {trouble}");
            Failure::new(Code::DemoFailed, found)
        })?;
        self.say(&format!(
            "{during}: {requests} requests answered and checked"
        ));
        Ok(())
    }

    /// A member's file is removed under load; the spare must wait until degraded reads were
    /// measured.
    fn lose_a_member(&mut self) -> Result<(), Failure> {
        self.stage.priority(1)?;
        let load = Mixture::start(&self.field, 1)?;
        self.let_run(&load, self.plan.phase / 2)?;
        let victim = self.stage.files[VICTIM].clone();
        std::fs::remove_file(&victim).map_err(|e| Failure::io("removing a member", &e))?;
        self.say(&format!(
            "took away slot {VICTIM}: removed {}",
            victim.display()
        ));
        let limit = Duration::from_secs(30);
        self.stage
            .wait_for("the loss to be noticed", limit, |a| a.state == "degraded")?;
        self.report.members_lost = 1;
        // Idempotent: where the rebuild has not begun yet this holds it back.
        self.stage.job("rebuild", "stop")?;
        self.say("degraded; the spare waits while degraded reads are measured");
        self.let_run(&load, self.plan.phase / 4)?;
        self.stop(load, "load while a member was lost")?;
        self.report.degraded_read_bytes_per_s = self.pass("degraded read and verify", false)?;
        Ok(())
    }

    /// The spare takes over, under load.
    fn rebuild(&mut self) -> Result<(), Failure> {
        let load = Mixture::start(&self.field, 2)?;
        self.stage.priority(100)?;
        self.stage.job("rebuild", "start")?;
        let mut bar = Bar::new("rebuild under load", 0, self.quiet);
        let (mut started, mut bytes) = (None, (u64::MAX, 0));
        let limit = Duration::from_secs(90);
        let array = self.stage.wait_for("the rebuild", limit, |array| {
            if let Some(job) = array.jobs.iter().find(|j| j.kind == "rebuild" && !j.paused) {
                started.get_or_insert_with(Instant::now);
                bytes = (bytes.0.min(job.done_bytes), bytes.1.max(job.total_bytes));
                bar.at(job.done_bytes, job.total_bytes);
            }
            array.state == "optimal"
        });
        bar.end();
        array?;
        let (first, total) = bytes;
        let rebuilt = total.saturating_sub(first.min(total));
        let took = started.map_or(0.0, |s: Instant| s.elapsed().as_secs_f64());
        let rate = rebuilt as f64 / took.max(1e-3);
        self.report.rebuild_bytes_per_s = rate as u64;
        self.say(&format!(
            "rebuilt onto the spare: {} at {}",
            size::bytes(rebuilt),
            size::rate(rate as u64)
        ));
        self.stop(load, "load during the rebuild")
    }

    fn kill_the_daemon(&mut self) -> Result<(), Failure> {
        let load = Mixture::start(&self.field, 3)?;
        self.let_run(&load, self.plan.phase / 2)?;
        self.stage.kill_daemon()?;
        self.report.daemon_kills = 1;
        let answered = load.requests();
        self.say(&format!("killed the daemon after {answered} requests"));
        let killed = Instant::now();
        self.stage.start_daemon()?;
        let limit = Duration::from_secs(30);
        self.stage
            .wait_for("the array to come back", limit, |a| a.state == "optimal")?;
        self.say(&format!(
            "it is back after {:.1} s",
            killed.elapsed().as_secs_f64()
        ));
        self.let_run(&load, self.plan.phase / 2)?;
        if load.requests() == answered {
            let found = "no request was answered after the daemon came back";
            return Err(Failure::new(Code::DemoFailed, found));
        }
        self.stop(load, "load over the daemon's death")
    }

    /// Read-only check of parity; a resync after the kill ends first.
    fn scrub(&mut self) -> Result<(), Failure> {
        let limit = Duration::from_secs(60);
        self.stage
            .wait_for("the resync", limit, |a| a.jobs.is_empty())?;
        let since = self.stage.events(0)?.last().map_or(0, |e| e.sequence + 1);
        self.stage.job("scrub", "start")?;
        let mut bar = Bar::new("scrub", 0, self.quiet);
        let give_up = Instant::now() + limit;
        let finished = loop {
            if let Some(job) = self.stage.show()?.jobs.iter().find(|j| j.kind == "scrub") {
                bar.at(job.done_bytes, job.total_bytes);
            }
            let events = self.stage.events(since)?;
            let scrub = |e: &&EventJson| e.cause.as_deref() == Some("scrub");
            if let Some(event) = events
                .iter()
                .filter(|e| e.event == "job_finished")
                .find(scrub)
            {
                break event.inconsistent_stripes.unwrap_or(0);
            }
            if Instant::now() > give_up {
                return Err(Failure::new(
                    Code::DemoFailed,
                    "the scrub did not end in time",
                ));
            }
            thread::sleep(Duration::from_millis(50));
        };
        bar.end();
        self.report.scrub_inconsistent_stripes = finished;
        self.say(&format!("scrub: {finished} stripes inconsistent"));
        Ok(())
    }
}
