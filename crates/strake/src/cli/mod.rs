//! The command line: each command asks the daemon, or does itself what needs none.
//!
//! Invariants: exit codes and error lines are those of cli.md; nothing prompts without a terminal;
//! a dry run changes nothing. Deliberately absent: engine and devices (they are behind the API and
//! `offline`).

pub(crate) mod args;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod offline;
pub(crate) mod output;
pub(crate) mod pool;
mod reshape;
pub(crate) mod settings;
pub(crate) mod size;
pub(crate) mod upkeep;
pub(crate) mod volume;
mod wait;

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use clap::CommandFactory;
use serde::Serialize;
use strake_format::ArrayUuid;

use strake_runtime::{Device, OpenMode};

use crate::api::latency::LatenciesJson;
use crate::api::types::*;
use crate::cli::args::*;
use crate::cli::client::Client;
use crate::cli::wait::Wait;
use crate::daemon::degraded::Rule;
use crate::daemon::running::Limits;
use crate::daemon::service::{Sources, outcome};
use crate::daemon::settings as ranges;
use crate::daemon::state::Dir;
use crate::daemon::{self, Config};
use crate::drives::make::parse_name;
use crate::drives::sysfs;
use crate::errors::{Code, Exit, Failure};

/// How it ended: 0, or 5 for "done, but the array is degraded".
pub(crate) type Ended = Result<u8, Failure>;

pub(crate) const DONE: u8 = 0;

/// Why an answer could not be written to standard output.
static UNWRITTEN: OnceLock<Failure> = OnceLock::new();

/// Writes to standard output. Answers false if that is not possible: the reader has gone away (head,
/// less) and does not want the rest, or it failed otherwise, which [`unwritten`] has then.
pub(crate) fn print(bytes: &[u8]) -> bool {
    let mut out = std::io::stdout().lock();
    printed(out.write_all(bytes).and_then(|()| out.flush()))
}

/// The same of something that was written already.
pub(crate) fn printed(written: std::io::Result<()>) -> bool {
    let Err(error) = written else { return true };
    if error.kind() != std::io::ErrorKind::BrokenPipe {
        let found = format!("the answer cannot be written to standard output: {error}");
        let cure = "what was asked for is done, but its answer is not whole: make room where it goes, or send it elsewhere";
        // The first one says it.
        let _ = UNWRITTEN.set(Failure::new(Code::Io, found).cure(cure));
    }
    false
}

/// Why standard output lacks some of the answer, unless its reader has gone away.
pub(crate) fn unwritten() -> Option<Failure> {
    UNWRITTEN.get().cloned()
}

/// Where the CLI works and how it answers.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) dir: Dir,
    pub(crate) json: bool,
}

impl Context {
    /// Prints an answer.
    pub(crate) fn say<T: Serialize>(&self, value: &T, human: impl FnOnce(&T) -> String) {
        let text = if self.json {
            let json = serde_json::to_string(value).expect("the shapes are all JSON");
            format!("{json}\n")
        } else {
            human(value)
        };
        print(text.as_bytes());
    }
    /// Tells what is good to know; in JSON the answer has it.
    pub(crate) fn notes(&self, notes: &[String]) {
        if !self.json {
            notes.iter().for_each(|note| tell!("note: {note}"));
        }
    }
    /// Says on standard error what the answer is worth, also with `--json`: where the answer has no
    /// place for it.
    pub(crate) fn aside(&self, note: &str) {
        // A reader that has gone away does not want it.
        let _ = match self.json {
            true => writeln!(std::io::stderr(), "{}", serde_json::json!({ "note": note })),
            false => writeln!(std::io::stderr(), "note: {note}"),
        };
    }
    pub(crate) fn outcome(&self, outcome: &OutcomeJson) -> Ended {
        self.notes(&outcome.notes);
        self.say(outcome, |o| {
            let unchanged = if o.changed { "" } else { " (nothing changed)" };
            format!("{}: {}{unchanged}\n", o.array, o.what)
        });
        Ok(DONE)
    }
    pub(crate) fn would(&self, array: &str, what: &str) -> Ended {
        let planned = Planned {
            dry_run: true,
            array: array.to_owned(),
            would: what.to_owned(),
        };
        self.say(&planned, |p| format!("{}: would {}\n", p.array, p.would));
        Ok(DONE)
    }
    /// What the daemon says that it would do.
    pub(crate) fn planned(&self, outcome: &OutcomeJson) -> Ended {
        let what = outcome.what.strip_prefix("would ");
        self.would(&outcome.array, what.unwrap_or(&outcome.what))
    }
    pub(crate) fn array(&self, array: &ArrayJson) -> Ended {
        self.say(array, output::array);
        Ok(state_exit(array))
    }
}

/// What a dry run answers.
#[derive(Debug, Serialize)]
struct Planned {
    dry_run: bool,
    array: String,
    would: String,
}

/// 5 when degraded, 6 when failed.
pub(crate) fn state_exit(array: &ArrayJson) -> u8 {
    match array.state.as_str() {
        "degraded" => Exit::Degraded as u8,
        "failed" => Exit::ArrayFailed as u8,
        _ => DONE,
    }
}

pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn absolutes(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths.iter().map(|p| absolute(p)).collect()
}

/// Says which devices are not looked at because the array runs.
pub(crate) fn note_ignored(
    context: &Context,
    client: &Client,
    name: &str,
    devices: &[PathBuf],
) -> Result<(), Failure> {
    if devices.is_empty() {
        return Ok(());
    }
    // An array that is not found is for the command itself to refuse.
    let array = client.get::<ArrayJson>(&url(name, "")?);
    if array.is_ok_and(|array| array.state != "stopped") {
        let shown: Vec<String> = devices.iter().map(|d| d.display().to_string()).collect();
        let shown = shown.join(", ");
        let are = if devices.len() == 1 { "is" } else { "are" };
        context.aside(&format!("{name} runs already: {shown} {are} not looked at"));
    }
    Ok(())
}

/// A name or uuid that is fit for a URL.
pub(crate) fn checked(name: &str) -> Result<&str, Failure> {
    if name.parse::<ArrayUuid>().is_err() {
        parse_name(name)?;
    }
    Ok(name)
}

pub(crate) fn url(name: &str, verb: &str) -> Result<String, Failure> {
    let name = checked(name)?;
    Ok(if verb.is_empty() {
        format!("/v1/arrays/{name}")
    } else {
        format!("/v1/arrays/{name}/{verb}")
    })
}

/// Carries out a command.
pub(crate) fn run(cli: Cli) -> Ended {
    let context = Context {
        dir: Dir::from_env(),
        json: cli.json,
    };
    match cli.command {
        Command::Create(args) => create(&context, *args),
        Command::Show {
            name: Some(name),
            wear: true,
            since,
            ..
        } => wear(&context, &name, since),
        Command::Show {
            name: Some(name),
            latency: true,
            ..
        } => latency(&context, &name),
        Command::Show { name, .. } => show(&context, name.as_deref()),
        Command::Start(args) => start(&context, &args),
        Command::Import(args) => upkeep::import(&context, args),
        Command::Stop(args) => stop(&context, &args),
        Command::Destroy { name, yes, dry_run } => destroy(&context, &name, yes, dry_run),
        Command::Scan { devices } => scan(&context, &devices),
        Command::Examine { device } => offline::examine(&context, &device),
        Command::Fail(args) => of_member(&context, "fail", &args),
        Command::Remove(args) => of_member(&context, "remove", &args),
        Command::Add(args) => add(&context, &args),
        Command::Replace(args) => replace(&context, &args),
        Command::Drive(DriveCommand::Clean(args)) => upkeep::clean(&context, &args),
        Command::Drive(DriveCommand::Locate(args)) => upkeep::locate_drive(&context, &args),
        Command::Locate(args) => upkeep::locate(&context, &args),
        Command::Reset(args) => upkeep::reset(&context, &args),
        Command::Rename { name, new, dry_run } => upkeep::rename(&context, &name, new, dry_run),
        Command::Grow(args) => reshape::grow(&context, &args),
        Command::Restripe(args) => reshape::restripe(&context, &args),
        Command::Rebuild(args) => start_or_stop(&context, "rebuild", &args),
        Command::Init(args) => start_or_stop(&context, "init", &args),
        Command::Scrub(args) => scrub(&context, &args),
        Command::Set {
            name,
            settings,
            dry_run,
        } => settings::set(&context, &name, &settings, dry_run),
        Command::Get { name, key } => settings::get(&context, &name, key.as_deref()),
        Command::Pool(command) => pool::run(&context, &command),
        Command::Config(command) => config::run(&context, &command),
        Command::Volume(command) => volume::run(&context, &command),
        Command::Events { follow } => events(&context, follow),
        Command::Explain { name, lba } => explain(&context, &name, lba),
        Command::Demo(args) => crate::demo::run(&args, cli.json),
        Command::Daemon(args) => run_daemon(context.dir, &args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "strake", &mut script);
            print(&script);
            Ok(DONE)
        }
    }
}

/// What the words of `create` ask for.
fn create_request(args: CreateArgs) -> Result<CreateRequest, Failure> {
    let strip_bytes = args.strip.as_deref().map(size::parse).transpose()?;
    let block_bytes = args
        .block_size
        .as_deref()
        .map(size::parse)
        .transpose()?
        .map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
    let latency_target = args.latency_target.as_deref().map(|text| {
        let us = size::micros(text);
        us.and_then(|us| ranges::latency_target(us).ok())
            .ok_or_else(|| ranges::not_taken("latency_target", text))
    });
    let memory_limit = args.memory_limit.as_deref().map(size::parse).transpose()?;
    // As the API has them, 0 is what is not said.
    for (given, option) in [
        (args.shards.map(u64::from), "--shards"),
        (args.requests.map(u64::from), "--requests"),
        (memory_limit, "--memory-limit"),
    ] {
        if given == Some(0) {
            return Err(Failure::new(
                Code::SettingInvalid,
                format!("{option} 0 leaves nothing to work with"),
            )
            .cure("give more, or leave it away"));
        }
    }
    Ok(CreateRequest {
        name: args.name,
        level: args.level,
        strip_bytes,
        group_size: args.group_size,
        write_hole: args.write_hole,
        latency_target_us: latency_target.transpose()?,
        cpus: args.cpus,
        shards: args.shards,
        memory_limit_bytes: memory_limit,
        requests: args.requests,
        pool: args.pool,
        degraded: args.degraded,
        init: args.init,
        block_bytes,
        devices: absolutes(&args.devices),
        spares: absolutes(&args.spares),
        export: args.export,
        force: args.force,
        dry_run: args.dry_run,
    })
}

fn create(context: &Context, args: CreateArgs) -> Ended {
    let (yes, wait) = (args.yes, args.wait && !args.dry_run);
    let request = create_request(args)?;
    let client = match wait {
        // Who waits waits for an array that serves.
        true => Some(Client::need(&context.dir)?),
        false => Client::find(&context.dir)?,
    };
    let ask = |request: &CreateRequest| match &client {
        Some(client) => client.post::<CreatedJson>("/v1/arrays", request),
        None => offline::create(context, request),
    };
    if request.force && !request.dry_run {
        confirm_force(yes, |force| {
            ask(&CreateRequest {
                force,
                dry_run: true,
                ..request.clone()
            })
        })?;
    }
    let mut created = ask(&request)?;
    if let Some(client) = client.filter(|_| wait) {
        let wait = Wait::new(context, &client, &request.name)?;
        for kind in ["init", "resync"] {
            created.array = wait.until_over(kind)?.needs_done(kind)?;
        }
    }
    context.notes(&created.notes);
    context.say(&created, |c| {
        let mut text = output::array(&c.array);
        match (c.dry_run, c.serving) {
            (true, _) => text.push_str("nothing was written (--dry-run)\n"),
            (false, true) => {}
            (false, false) => text.push_str(
                "made, but nothing serves it yet: run strake daemon, or \
                 strake start --foreground\n",
            ),
        }
        text
    });
    Ok(state_exit(&created.array))
}

/// The one rule for all that destroys data: it is asked about on a terminal, and without one `--yes`
/// must say it.
pub(crate) fn confirm(yes: bool, what: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::new(Code::NotConfirmed, what));
    }
    // Who cannot be asked does not answer.
    let _ = write!(std::io::stderr(), "{what}. Go on? [y/N] ");
    let mut line = String::new();
    // Nothing read means no.
    let _ = std::io::stdin().read_line(&mut line);
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::new(Code::NotConfirmed, what)),
    }
}

/// The same for what is asked for with `--force` (or `--shrink`): what that overrides is what would be
/// destroyed. `check` asks for a dry run, with the option or without. Where nothing has to be overridden
/// there is no question, and what is refused all the same is refused before it.
pub(crate) fn confirm_force<T>(
    yes: bool,
    check: impl Fn(bool) -> Result<T, Failure>,
) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    check(true)?;
    match check(false) {
        // Redundancy goes, and no data.
        Err(failure) if failure.code != Code::LastParity => confirm(false, &failure.found),
        _ => Ok(()),
    }
}

/// The same for a start that takes members in whose content may be lost, because too few are left
/// without them. `check` rehearses the start, with `--force` or without.
pub(crate) fn confirm_emptied<T>(
    yes: bool,
    name: &str,
    check: impl Fn(bool) -> Result<T, Failure>,
) -> Result<(), Failure> {
    if yes || check(true).is_err() {
        // What is refused with it is refused by the start itself.
        return Ok(());
    }
    match check(false) {
        Err(failure) if failure.code == Code::MembersEmptied => confirm(
            false,
            &format!(
                "strake start --force {name} would believe members that may have lost their content: {}",
                failure.found
            ),
        ),
        _ => Ok(()),
    }
}

fn show(context: &Context, name: Option<&str>) -> Ended {
    let client = Client::find(&context.dir)?;
    let here = client.is_none();
    if let Some(name) = name {
        let path = url(name, "")?;
        let array: ArrayJson = match client {
            Some(client) => client.get(&path)?,
            None => offline::shown(context, &offline::found(context, name)?),
        };
        if here && !context.json {
            offline::say_no_daemon(context);
        }
        context.say(&array, output::array);
        return Ok(shown_exit(&array));
    }
    let all: Vec<ArrayJson> = match client {
        Some(client) => client.get("/v1/arrays")?,
        None => offline::scan(context, &[])
            .iter()
            .map(|a| offline::shown(context, a))
            .collect(),
    };
    if here && (!context.json || all.is_empty()) {
        offline::say_no_daemon(context);
    }
    context.say(&all, |all| output::arrays(all));
    // The first of these that any of them has. That one is stopped is no fault of all.
    let faults = [Exit::ArrayFailed, Exit::TooFew, Exit::Degraded];
    let exits: Vec<u8> = all.iter().map(shown_exit).collect();
    let worst = faults
        .map(|e| e as u8)
        .into_iter()
        .find(|exit| exits.contains(exit));
    Ok(worst.unwrap_or(DONE))
}

/// What `show NAME` answers: the state of the array as an exit status.
fn shown_exit(array: &ArrayJson) -> u8 {
    match (array.state.as_str(), array.startable) {
        ("stopped", Some(false)) => Exit::TooFew as u8,
        ("stopped", _) => Exit::Stopped as u8,
        ("unknown", _) => Exit::Unknown as u8,
        _ => state_exit(array),
    }
}

fn wear(context: &Context, name: &str, since: Option<Duration>) -> Ended {
    let client = Client::need(&context.dir)?;
    let over = since.map_or_else(String::new, |since| format!("?since_s={}", since.as_secs()));
    let wear: WearJson = client.get(&(url(name, "wear")? + &over))?;
    context.say(&wear, output::wear);
    Ok(DONE)
}

fn latency(context: &Context, name: &str) -> Ended {
    let client = Client::need(&context.dir)?;
    let latencies: LatenciesJson = client.get(&url(name, "latency")?)?;
    context.say(&latencies, output::all_latencies);
    Ok(DONE)
}

fn start(context: &Context, args: &StartArgs) -> Ended {
    if args.foreground {
        let name = args.name.as_deref().unwrap_or_default();
        checked(name)?;
        return offline::foreground(context, name, args);
    }
    let client = Client::need(&context.dir)?;
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => {
            let all: Vec<ArrayJson> = client.get("/v1/arrays")?;
            all.into_iter()
                .filter(|a| a.state == "stopped")
                .map(|a| a.uuid)
                .collect()
        }
    };
    let request = StartRequest {
        export: args.export.clone(),
        force: args.force,
        devices: absolutes(&args.devices),
        dry_run: args.dry_run,
        by_rule: args.all,
    };
    let mut worst = DONE;
    let mut refused: Option<Failure> = None;
    for name in names {
        note_ignored(context, &client, &name, &args.devices)?;
        if args.force && !args.dry_run {
            confirm_emptied(args.yes, &name, |force| {
                let rehearsal = StartRequest {
                    force,
                    dry_run: true,
                    ..request.clone()
                };
                client.post::<ArrayJson>(&url(&name, "start")?, &rehearsal)
            })?;
        }
        let array: ArrayJson = match client.post(&url(&name, "start")?, &request) {
            Ok(array) => array,
            // It keeps none of the others from it.
            Err(failure) if args.all && failure.code == Code::DegradedStart => {
                if let Some(one_more) = refused.replace(failure) {
                    context.notes(&[one_more.found]);
                }
                continue;
            }
            Err(failure) => return Err(failure),
        };
        if args.dry_run {
            context.would(&array.name, &format!("start ({} now)", array.state))?;
            continue;
        }
        worst = worst.max(context.array(&array)?);
    }
    refused.map_or(Ok(worst), Err)
}

fn stop(context: &Context, args: &OneOrAll) -> Ended {
    let client = Client::need(&context.dir)?;
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => {
            let all: Vec<ArrayJson> = client.get("/v1/arrays")?;
            all.into_iter()
                .filter(|a| a.state != "stopped")
                .map(|a| a.name)
                .collect()
        }
    };
    for name in names {
        let dry_run = args.dry_run;
        let outcome: OutcomeJson = client.post(&url(&name, "stop")?, &DryRequest { dry_run })?;
        match dry_run {
            true => context.planned(&outcome)?,
            false => context.outcome(&outcome)?,
        };
    }
    Ok(DONE)
}

fn destroy(context: &Context, name: &str, yes: bool, dry_run: bool) -> Ended {
    let path = url(name, "")?;
    let client = Client::find(&context.dir)?;
    let array: ArrayJson = match &client {
        Some(client) => client.get(&path)?,
        None => offline::found(context, name)?.stopped_json(),
    };
    if array.state != "stopped" {
        let cure = format!("strake stop {name} first");
        return Err(Failure::new(Code::ArrayInUse, format!("{name} is running")).cure(cure));
    }
    let ask = |dry_run| match &client {
        Some(client) => client.call("DELETE", &path, &DryRequest { dry_run }),
        None => offline::destroy(context, name, dry_run),
    };
    // Looked at first, so that it is known what the answer is about.
    let planned: OutcomeJson = ask(true)?;
    if dry_run {
        return context.planned(&planned);
    }
    confirm(yes, &format!("strake destroy {name} {}", planned.what))?;
    context.outcome(&ask(false)?)
}

fn scan(context: &Context, devices: &[PathBuf]) -> Ended {
    for device in devices.iter().filter(|device| !device.is_dir()) {
        sysfs::identity(device)?;
        // Of one that cannot be read it is not known that it carries nothing.
        Device::open(device, OpenMode::ReadOnly)?;
    }
    let client = match devices {
        [] => Client::find(&context.dir)?,
        _ => None,
    };
    let all: Vec<ScanJson> = match client {
        Some(client) => client.get("/v1/scan")?,
        None => offline::scan_json(context, devices),
    };
    context.say(&all, |all| output::scan(all));
    Ok(DONE)
}

/// The member that a user means, as `show` tells it.
pub(crate) fn shown_member(array: &ArrayJson, text: &str) -> Result<MemberJson, Failure> {
    let path = absolute(Path::new(text)).display().to_string();
    let is = |m: &&MemberJson| match text.parse::<u8>() {
        Ok(slot) => m.slot == Some(slot),
        Err(_) => m.device.as_ref() == Some(&path),
    };
    // The device that was in a slot is the slot's, too.
    let had = |m: &&MemberJson| m.was.as_ref().is_some_and(|was| was.device == path);
    let members = || array.members.iter().chain(&array.spares);
    members()
        .find(is)
        .or_else(|| members().find(had))
        .cloned()
        .ok_or_else(|| {
            let found = format!("{text} is no slot or device of {}", array.name);
            Failure::new(Code::MemberNotFound, found)
        })
}

fn of_member(context: &Context, verb: &str, args: &OfMember) -> Ended {
    let client = Client::need(&context.dir)?;
    let request = MemberRequest {
        member: upkeep::whole(&args.member),
        dry_run: args.dry_run,
    };
    let outcome: OutcomeJson = client.post(&url(&args.name, verb)?, &request)?;
    match args.dry_run {
        true => context.planned(&outcome),
        false => context.outcome(&outcome),
    }
}

fn add(context: &Context, args: &AddArgs) -> Ended {
    let client = Client::need(&context.dir)?;
    let request = DeviceRequest {
        member: None,
        device: Some(absolute(&args.device)),
        force: args.force,
        dry_run: args.dry_run,
    };
    take_device(
        context,
        &client,
        &url(&args.name, "add")?,
        &request,
        args.yes,
    )
}

fn replace(context: &Context, args: &ReplaceArgs) -> Ended {
    let client = Client::need(&context.dir)?;
    let request = DeviceRequest {
        member: Some(upkeep::whole(&args.member)),
        device: args.device.as_deref().map(absolute),
        force: args.force,
        dry_run: args.dry_run,
    };
    take_device(
        context,
        &client,
        &url(&args.name, "replace")?,
        &request,
        args.yes,
    )
}

/// Gives a device to an array. What `--force` overwrites on it is asked about.
fn take_device(
    context: &Context,
    client: &Client,
    path: &str,
    request: &DeviceRequest,
    yes: bool,
) -> Ended {
    if request.force && !request.dry_run {
        confirm_force(yes, |force| {
            let rehearsal = DeviceRequest {
                force,
                dry_run: true,
                ..request.clone()
            };
            client.post::<OutcomeJson>(path, &rehearsal)
        })?;
    }
    context.outcome(&client.post(path, request)?)
}

fn start_or_stop(context: &Context, verb: &str, args: &JobArgs) -> Ended {
    let request = JobRequest {
        action: args.action.clone(),
        repair: false,
        halt: false,
        dry_run: args.how.dry_run,
    };
    job(context, verb, &args.name, &request, &args.how)
}

fn scrub(context: &Context, args: &ScrubArgs) -> Ended {
    if args.action == "status" {
        let found: ScrubsJson = match Client::find(&context.dir)? {
            Some(client) => client.get(&url(&args.name, "scrub")?)?,
            None => offline::scrubs(context, &args.name)?,
        };
        context.say(&found, output::scrubs);
        return Ok(DONE);
    }
    let request = JobRequest {
        action: args.action.clone(),
        repair: args.repair,
        halt: args.halt,
        dry_run: args.how.dry_run,
    };
    let accepts = args.action == "accept";
    if accepts && !args.how.dry_run {
        let rehearsal = JobRequest {
            dry_run: true,
            ..request.clone()
        };
        let would: OutcomeJson =
            Client::need(&context.dir)?.post(&url(&args.name, "scrub")?, &rehearsal)?;
        let what = format!(
            "strake scrub {} accept {}: what other strips say of these data is lost",
            args.name, would.what
        );
        confirm(args.yes, &what)?;
    }
    job(context, "scrub", &args.name, &request, &args.how)
}

fn job(context: &Context, verb: &str, name: &str, request: &JobRequest, how: &JobHow) -> Ended {
    let client = Client::need(&context.dir)?;
    let accepts = request.action == "accept";
    let waits = how.wait && (request.action == "start" || accepts) && !request.dry_run;
    let wait = waits.then(|| Wait::new(context, &client, name));
    let wait = wait.transpose()?;
    let outcome: OutcomeJson = client.post(&url(name, verb)?, request)?;
    if request.dry_run {
        return context.planned(&outcome);
    }
    match wait {
        Some(wait) => {
            let kind = if accepts { "accept" } else { verb };
            wait.until_over(kind)?.answer(context, &outcome)
        }
        None => context.outcome(&outcome),
    }
}

fn events(context: &Context, follow: bool) -> Ended {
    let print = |line: &str| {
        let text = if context.json {
            format!("{line}\n")
        } else if let Ok(event) = serde_json::from_str::<EventJson>(line) {
            format!("{}\n", output::event(&event))
        } else {
            return;
        };
        if !print(text.as_bytes()) {
            // No further line can be written, and there is nothing to undo.
            std::process::exit(match unwritten() {
                Some(failure) => {
                    crate::tell_failure(&failure, context.json);
                    failure.code.exit() as i32
                }
                None => i32::from(DONE),
            });
        }
    };
    let client = match follow {
        true => Some(Client::need(&context.dir)?),
        false => Client::find(&context.dir)?,
    };
    match client {
        Some(client) => client.lines(&format!("/v1/events?follow={follow}"), print)?,
        None => offline::events(context)?.iter().for_each(|e| print(e)),
    }
    Ok(DONE)
}

fn explain(context: &Context, name: &str, lba: u64) -> Ended {
    let path = format!("{}?lba={lba}", url(name, "explain")?);
    let explained: ExplainJson = match Client::find(&context.dir)? {
        Some(client) => client.get(&path)?,
        None => crate::daemon::service::explain_offline(&offline::found(context, name)?, lba)?,
    };
    context.say(&explained, output::explain);
    Ok(DONE)
}

fn seconds(value: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| Failure::new(Code::Usage, format!("{value} is no number of seconds")))
}

/// Has the kernel end this process with the one that started it.
fn end_with(parent: u32) -> Result<(), Failure> {
    use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|e| Failure::io("ending with the parent process", &e.into()))?;
    let alive = getppid()
        .map(Pid::as_raw_nonzero)
        .map(|pid| pid.get().unsigned_abs());
    match alive == Some(parent) {
        true => Ok(()),
        false => Err(Failure::new(Code::Usage, "the parent process is gone")),
    }
}

fn run_daemon(dir: Dir, args: &DaemonArgs) -> Ended {
    daemon::log::to_stderr("info");
    args.end_with.map(end_with).transpose()?;
    let mut limits = Limits::default();
    let usage = |found: String, cure: &str| Failure::new(Code::Usage, found).cure(cure);
    if let Some(shards) = args.shards {
        if !(1..=64).contains(&shards) {
            let found = format!("--shards {shards}: an array has 1 to 64 threads");
            return Err(usage(found, "give 1 to 64"));
        }
        limits.shards = shards;
    }
    if let Some(memory) = &args.memory {
        let bytes = size::parse(memory)?;
        limits.memory_bytes = usize::try_from(bytes)
            .ok()
            .filter(|&b| b > 0)
            .ok_or_else(|| {
                let found = format!("--memory {memory} leaves nothing to work with");
                usage(found, "give more, or omit it")
            })?;
    }
    if let Some(timeout) = args.io_timeout {
        limits.io_timeout = seconds(timeout)?;
        if limits.io_timeout < Duration::from_millis(100) {
            let found = format!("--io-timeout {timeout}: every I/O would count as timed out");
            return Err(usage(found, "give 0.1 seconds or more; 75 is usual"));
        }
    }
    let sources = Sources {
        devices: !args.no_devices,
        extra: absolutes(&args.scan),
    };
    daemon::run(Config {
        dir,
        sources,
        limits,
        degraded: Rule {
            start: args.degraded,
            wait: seconds(args.wait)?,
        },
    })?;
    Ok(DONE)
}

/// The outcome of something done without a daemon.
pub(crate) fn done(array: &str, what: &str) -> OutcomeJson {
    outcome(array, true, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
