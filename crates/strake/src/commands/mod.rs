//! The commands: each asks the daemon, or does itself what needs none.
//!
//! Invariants: those of the command line (`cli`). Deliberately absent: engine and devices (they are
//! behind the API and `offline`).

pub(crate) mod alert;
pub(crate) mod config;
mod console;
pub(crate) mod doctor;
pub(crate) mod iostat;
pub(crate) mod offline;
pub(crate) mod packaged;
mod plan;
pub(crate) mod pool;
mod reshape;
pub(crate) mod settings;
pub(crate) mod status;
mod study;
pub(crate) mod top;
pub(crate) mod upkeep;
pub(crate) mod volume;

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use strake_runtime::{Device, OpenMode, spawn_scoped_thread};

use crate::api::*;
use crate::cli::args::*;
use crate::cli::client::Client;
use crate::cli::paint::{Mood, Paint};
use crate::cli::stopping;
use crate::cli::wait::Wait;
use crate::cli::*;
use crate::common::errors::{Code, Exit, Failure};
use crate::common::files::{self, FolderQuestion};
use crate::common::{absolute, absolutes, log, shown, size};
use crate::config::InUse;
use crate::daemon::array::running::Limits;
use crate::daemon::sources::Sources;
use crate::daemon::state::Dir;
use crate::drives::find;
use crate::drives::machine::answering;
use crate::drives::machine::sysfs;
use crate::serve::{self, Config};
use crate::settings as ranges;
use crate::settings::degraded::Rule;
use crate::settings::placement::SHARDS_MAX;
use crate::settings::words::parse_name;
use crate::view::latency::LatenciesJson;

/// Carries out a command.
pub(crate) fn run(cli: Cli) -> Ended {
    let context = Context {
        dir: Dir::from_env(),
        json: cli.json,
    };
    let serves = match &cli.command {
        Command::Daemon(_) | Command::Answering { .. } => true,
        Command::Start(args) => args.foreground,
        _ => false,
    };
    let (here, lasting) = folders_of(&cli.command);
    if here {
        context.dir.here_answers()?;
    }
    if lasting {
        context.dir.lasting_answers()?;
    }
    if !serves {
        files::ask_first(answering::takes_changes);
    }
    match cli.command {
        Command::Create(args) => create(&context, *args),
        Command::Plan(args) => plan::run(&context, &args),
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
        Command::Forget { name, dry_run } => upkeep::forget(&context, &name, dry_run),
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
        Command::Events(args) => events(&context, args),
        Command::Iostat(args) => iostat::run(&context, &args),
        Command::Top(args) => top::run(&context, &args),
        Command::Doctor => doctor::run(&context),
        Command::Console(args) => console::run(&context, &args),
        Command::Status { name } => status::run(&context, name.as_deref()),
        Command::Alert(command) => alert::run(&context, &command),
        Command::Explain { name, lba } => explain(&context, &name, lba),
        Command::Study(command) => study::run(&context, command),
        Command::Demo(args) => crate::demo::run(&args, cli.json),
        Command::Daemon(args) => run_daemon(context.dir, &args),
        Command::Udev(command) => packaged::udev::answer(&context, &command),
        Command::Man { folder } => packaged::manual::write(&folder),
        Command::Answering { folders } => answer_which_answer(folders),
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> Ended {
    let script = complete::script(shell);
    print(&script.map_err(|e| Failure::io("writing completions", &e))?);
    Ok(DONE)
}

/// Whether a command touches the folder of the socket, and whether it touches what outlives a
/// restart of the machine without asking for a daemon before: where one listens, that is the
/// daemon's to look at (`Client::find`).
fn folders_of(command: &Command) -> (bool, bool) {
    match command {
        Command::Answering { .. }
        | Command::Completions { .. }
        | Command::Demo(_)
        | Command::Examine { .. }
        | Command::Man { .. }
        // It asks by itself: no answer is an answer there.
        | Command::Udev(_) => (false, false),
        Command::Plan(args) => (args.like.is_some(), false),
        Command::Daemon(_) => (true, true),
        Command::Start(args) => (true, args.foreground),
        Command::Scan { devices } => (true, !devices.is_empty()),
        _ => (true, false),
    }
}

/// Looks at devices or folders for another command.
fn answer_which_answer(folders: Option<FolderQuestion>) -> Ended {
    let answered = match folders {
        Some(question) => answering::answer_of_folders(question),
        None => answering::answer(|path| drop(find::look(path))),
    };
    answered.map_err(|e| Failure::io("saying which devices answer", &e))?;
    Ok(DONE)
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
    // As the API has them, 0 is what is not said.
    let memory_limit = args.memory_limit.as_deref();
    let memory_limit = memory_limit.map(|text| settings::memory_limit("memory_limit", text));
    let shards = args.shards.as_deref().map(|text| {
        let number = settings::number(text).filter(|&shards| shards <= SHARDS_MAX);
        number.ok_or_else(|| ranges::not_taken("shards", text))
    });
    let requests = args.requests.as_deref();
    let requests = requests
        .map(|text| settings::number(text).ok_or_else(|| ranges::not_taken("requests", text)));
    Ok(CreateRequest {
        name: args.name,
        level: args.level,
        strip_bytes,
        group_size: args.group_size,
        write_hole: args.write_hole,
        latency_target_us: latency_target.transpose()?,
        cpus: args.cpus,
        shards: shards.transpose()?,
        memory_limit_bytes: memory_limit.transpose()?,
        requests: requests.transpose()?,
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
        // `--wait` waits for an array that serves.
        true => Some(Client::need(&context.dir)?),
        false => Client::find(&context.dir)?,
    };
    let ask = |request: &CreateRequest| match &client {
        Some(client) => client.post::<CreatedJson>("/v1/arrays", request),
        None => offline::create(context, request),
    };
    if request.force && !request.dry_run {
        let what = format!("strake create --force {} would overwrite", request.name);
        confirm_force(yes, &what, |force| {
            ask(&CreateRequest {
                force,
                dry_run: true,
                ..request.clone()
            })
        })?;
    }
    let mut created = ask(&request)?;
    let mut exit = None;
    if let Some(client) = client.filter(|_| wait) {
        exit = await_init(context, &client, &request, &mut created)?;
    }
    context.notes(&created.notes);
    context.say_painted(&created, |c, paint| {
        let mut text = output::array(&c.array, paint);
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
    Ok(exit.unwrap_or_else(|| state_exit(&created.array)))
}

/// Waits for what --init began. Answers the exit status of how it ended, which the notes say.
fn await_init(
    context: &Context,
    client: &Client,
    request: &CreateRequest,
    created: &mut CreatedJson,
) -> Result<Option<u8>, Failure> {
    let wait = Wait::new(context, client, &request.name)?;
    let kind = match request.init.as_deref() {
        Some("zero") => "init",
        Some("sync") => "resync",
        _ => return Ok(None),
    };
    let end = wait.until_over(kind)?;
    let exit = end.exit();
    let (array, left) = end.left(kind);
    created.array = array;
    created.notes.extend(left);
    Ok(Some(exit))
}

fn show(context: &Context, name: Option<&str>) -> Ended {
    let client = Client::find(&context.dir)?;
    let here = client.is_none();
    if let Some(name) = name {
        let path = url(name, "")?;
        let array: ArrayJson = match client {
            Some(client) => client.get(&path)?,
            None => offline::one(context, name)?,
        };
        if here && !context.json {
            offline::say_no_daemon(context);
        }
        context.say_painted(&array, output::array);
        return Ok(shown_exit(&array));
    }
    let mut unread = Vec::new();
    let all: Vec<ArrayJson> = match client {
        Some(client) => {
            let all = client.get("/v1/arrays")?;
            unread = self::unread(&client, LOOKED)?;
            all
        }
        None => offline::all(context),
    };
    say_unread(context, &unread);
    if here && (!context.json || all.is_empty()) {
        offline::say_no_daemon(context);
    }
    context.say_painted(&all, |all, paint| output::arrays(all, paint));
    Ok(worst_exit(&all))
}

/// How long a daemon may take to say what its last look at all drives was.
const LOOKED: Duration = Duration::from_secs(30);

/// Devices of which a daemon does not know what they carry, as of its last look at all drives.
fn unread(client: &Client, patience: Duration) -> Result<Vec<String>, Failure> {
    match client.get_within("/v1/scan/unread", patience) {
        // It is older than this program.
        Err(failure) if failure.code == Code::NoRoute => Ok(Vec::new()),
        answer => answer,
    }
}

/// Says of which devices a daemon does not know what they carry.
fn say_unread(context: &Context, devices: &[String]) {
    if !devices.is_empty() {
        let they = size::verb(devices.len(), "it carries", "they carry");
        let unread = stopped::unread(devices);
        context.aside(&format!("{unread}, so what {they} is not known"));
    }
}

/// The first of these that any of them has. That one is stopped is no fault of all.
fn worst_exit(all: &[ArrayJson]) -> u8 {
    let faults = [
        Exit::ArrayFailed,
        Exit::TooFew,
        Exit::Unknown,
        Exit::Degraded,
    ];
    let exits: Vec<u8> = all.iter().map(shown_exit).collect();
    let worst = faults
        .map(|e| e as u8)
        .into_iter()
        .find(|exit| exits.contains(exit));
    worst.unwrap_or(DONE)
}

/// What `show NAME` answers: the state of the array as an exit status.
fn shown_exit(array: &ArrayJson) -> u8 {
    match (array.state.as_str(), array.startable) {
        // That it does not start is what was asked for.
        ("stopped", _) if array.destroyed.is_some() => Exit::Stopped as u8,
        ("stopped", Some(false)) => Exit::TooFew as u8,
        ("stopped", _) => Exit::Stopped as u8,
        ("unknown" | "unresponsive" | "stopping", _) => Exit::Unknown as u8,
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
    context.say(&latencies, crate::cli::latency::all);
    Ok(DONE)
}

/// An array that a command is for: how it is asked for, and, with `--all`, its name.
struct Meant {
    asked: String,
    name: Option<String>,
}

impl Meant {
    /// A refusal, which does not always name the array.
    fn refused(&self, failure: Failure) -> Failure {
        match &self.name {
            Some(name) if !failure.found.starts_with(name.as_str()) => failure.about(name),
            _ => failure,
        }
    }
}

/// The array that was named, or all that are meant by `--all`.
fn named_or_all(
    client: &Client,
    name: Option<&String>,
    is_meant: impl Fn(&ArrayJson) -> bool,
) -> Result<Vec<Meant>, Failure> {
    if let Some(name) = name {
        return Ok(vec![Meant {
            asked: name.clone(),
            name: None,
        }]);
    }
    let mut all: Vec<ArrayJson> = client.get("/v1/arrays")?;
    all.retain(is_meant);
    let meant = all.into_iter().map(|array| Meant {
        asked: array.uuid,
        name: Some(array.name),
    });
    Ok(meant.collect())
}

/// Those of several arrays that were refused, which keep none of the others from it: each is told,
/// the worst by the command's own error.
#[derive(Default)]
struct Refused(Option<Failure>);

impl Refused {
    fn add(&mut self, context: &Context, failure: Failure) {
        let (worst, told) = match self.0.take() {
            None => (failure, None),
            Some(before) if failure.code.exit() as u8 > before.code.exit() as u8 => {
                (failure, Some(before))
            }
            Some(before) => (before, Some(failure)),
        };
        self.0 = Some(worst);
        if let Some(Failure { found, cure, .. }) = told {
            context.aside(&format!("{found}; {cure}"));
        }
    }

    fn or(self, exit: u8) -> Ended {
        self.0.map_or(Ok(exit), Err)
    }
}

fn start(context: &Context, args: &StartArgs) -> Ended {
    if args.foreground {
        let name = args.name.as_deref().unwrap_or_default();
        checked(name)?;
        return offline::foreground(context, name, args);
    }
    let client = Client::need(&context.dir)?;
    let meant = named_or_all(&client, args.name.as_ref(), |array| {
        if let Some(date) = &array.destroyed {
            let cure = output::destroyed_cure(&array.uuid, array.startable != Some(false));
            context.aside(&format!(
                "{} was destroyed here on {date}, so --all does not mean it; {cure}",
                array.name
            ));
        }
        is_not_served(array) && array.destroyed.is_none()
    })?;
    if meant.is_empty() {
        context.aside("no array is stopped: there is nothing to start");
    }
    let request = StartRequest {
        export: args.export.clone(),
        force: args.force,
        devices: absolutes(&args.devices),
        dry_run: args.dry_run,
        by_rule: args.all,
    };
    let mut refused = Refused::default();
    let mut agreed: Vec<Meant> = Vec::new();
    for one in meant {
        match agree_to_start(context, &client, &one.asked, args, &request) {
            Ok(()) => agreed.push(one),
            Err(failure) => refused.add(context, one.refused(failure)),
        }
    }
    let start = |client: &Client, one: &Meant| -> Result<ArrayJson, Failure> {
        client.post(&url(&one.asked, "start")?, &request)
    };
    let starts = match agreed.as_slice() {
        [one] => vec![start(&client, one)],
        all => at_once(all, |one| start(&Client::need(&context.dir)?, one)),
    };
    let mut worst = DONE;
    for (one, start) in agreed.iter().zip(starts) {
        match start.and_then(|array| started(context, &client, (args, &request), &array)) {
            Ok(exit) => worst = worst.max(exit),
            Err(failure) => refused.add(context, one.refused(failure)),
        }
    }
    refused.or(worst)
}

/// What is to be known, and agreed to, before an array starts.
fn agree_to_start(
    context: &Context,
    client: &Client,
    name: &str,
    args: &StartArgs,
    request: &StartRequest,
) -> Result<(), Failure> {
    note_ignored(context, client, name, &args.devices)?;
    if !args.force || args.dry_run {
        return Ok(());
    }
    confirm_start(args.yes, name, |force| {
        rehearsed(client, name, request, force)
    })
}

/// What a start, by force or not, would wipe.
fn rehearsed(
    client: &Client,
    name: &str,
    request: &StartRequest,
    force: bool,
) -> Result<Vec<String>, Failure> {
    let rehearsal = StartRequest {
        force,
        dry_run: true,
        ..request.clone()
    };
    let array: ArrayJson = client.post(&url(name, "start")?, &rehearsal)?;
    Ok(array.would_wipe)
}

/// What is said of a start. One that is only asked about and forced is asked about without force,
/// too: what is believed then is what the refusal names.
fn started(
    context: &Context,
    client: &Client,
    (args, request): (&StartArgs, &StartRequest),
    array: &ArrayJson,
) -> Ended {
    if !args.dry_run {
        return context.array(array);
    }
    let believed = args
        .force
        .then(|| would_believe(|force| rehearsed(client, &array.uuid, request, force)))
        .flatten();
    let lost = |m: &&MemberJson| m.state != "in_sync";
    let lost: Vec<String> = array
        .members
        .iter()
        .filter(lost)
        .filter_map(|m| Some(format!("slot {} {}", m.slot?, m.state)))
        .collect();
    let state = match lost.is_empty() || args.force || array.state != "stopped" {
        true => format!("{} now", array.state),
        false => format!("{} now, degraded then: {}", array.state, lost.join(", ")),
    };
    let what = format!("start ({state})");
    context.would(
        &array.name,
        &would_start(&what, &array.would_wipe, believed.as_deref()),
    )
}

fn stop(context: &Context, args: &OneOrAll) -> Ended {
    let client = Client::need(&context.dir)?;
    let meant = named_or_all(&client, args.name.as_ref(), |a| !is_not_served(a))?;
    if meant.is_empty() {
        context.aside("no array is in service: there is nothing to stop");
    }
    let mut refused = Refused::default();
    let dry_run = args.dry_run;
    let stop = |client: &Client, one: &Meant| -> Result<OutcomeJson, Failure> {
        let name = one.name.as_ref().unwrap_or(&one.asked);
        let path = url(name, "stop")?;
        let stop = || client.post(&path, &DryRequest { dry_run });
        stopping::telling(context, name, stop)
    };
    let stops = match meant.as_slice() {
        [one] => vec![stop(&client, one)],
        all => at_once(all, |one| stop(&Client::need(&context.dir)?, one)),
    };
    for (one, stop) in meant.iter().zip(stops) {
        match stop {
            Ok(outcome) if dry_run => context.planned(&outcome)?,
            Ok(outcome) => context.outcome(&outcome)?,
            Err(failure) => {
                refused.add(context, one.refused(failure));
                DONE
            }
        };
    }
    refused.or(DONE)
}

/// So many arrays at a time.
const AT_ONCE: usize = 64;

/// What is done to several arrays: at once, so that one that hangs holds up no other. Where there
/// are more than [`AT_ONCE`], the next begins when any has ended.
fn at_once<T: Send>(all: &[Meant], act: impl Fn(&Meant) -> T + Sync) -> Vec<T> {
    each_of(AT_ONCE, all, act)
}

fn each_of<M: Sync, T: Send>(most: usize, all: &[M], act: impl Fn(&M) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || -> Vec<(usize, T)> {
        let take = || {
            let at = next.fetch_add(1, Ordering::SeqCst);
            all.get(at).map(|one| (at, act(one)))
        };
        std::iter::from_fn(take).collect()
    };
    let work = &work;
    let mut done: Vec<(usize, T)> = std::thread::scope(|scope| {
        let begin = |_| spawn_scoped_thread(scope, "command", work);
        // With fewer threads they wait for their turn.
        let threads: Vec<_> = (0..most.min(all.len()))
            .map_while(|n| begin(n).ok())
            .collect();
        let mut done = match threads.is_empty() {
            true => work(),
            false => Vec::new(),
        };
        for thread in threads {
            done.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, one)| one).collect()
}

fn destroy(context: &Context, name: &str, yes: bool, dry_run: bool) -> Ended {
    let path = url(name, "")?;
    let client = Client::find(&context.dir)?;
    let array: ArrayJson = match &client {
        Some(client) => client.get(&path)?,
        None => offline::found(context, name)?.stopped_json(),
    };
    // What another process holds the destruction itself refuses.
    if !is_not_served(&array) {
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
    answering::need(devices)?;
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
        Some(client) => {
            let all = client.get("/v1/scan")?;
            say_unread(context, &unread(&client, LOOKED)?);
            all
        }
        None => offline::scan_json(context, devices),
    };
    context.say(&all, |all| output::scan(all));
    Ok(DONE)
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
    let of = ("add", args.name.as_str());
    take_device(context, &client, of, &request, args.yes)
}

fn replace(context: &Context, args: &ReplaceArgs) -> Ended {
    let client = Client::need(&context.dir)?;
    let request = DeviceRequest {
        member: Some(upkeep::whole(&args.member)),
        device: args.device.as_deref().map(absolute),
        force: args.force,
        dry_run: args.dry_run,
    };
    let of = ("replace", args.name.as_str());
    take_device(context, &client, of, &request, args.yes)
}

/// Gives a device to an array. What `--force` overwrites on it is asked about.
fn take_device(
    context: &Context,
    client: &Client,
    (verb, name): (&str, &str),
    request: &DeviceRequest,
    yes: bool,
) -> Ended {
    let path = &url(name, verb)?;
    if request.force && !request.dry_run {
        let what = format!("strake {verb} --force {name} would overwrite");
        confirm_force(yes, &what, |force| {
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

fn events(context: &Context, args: EventsArgs) -> Ended {
    let EventsArgs {
        follow,
        since,
        array,
        severity,
    } = args;
    let array = array.map(|name| parse_name(&name)).transpose()?;
    let filter = EventFilter {
        array: array.map(|name| name.to_string()),
        severity,
        since,
    };
    let paint = Paint::of_stdout();
    let print = |line: &str| {
        let text = if context.json {
            format!("{line}\n")
        } else if let Ok(event) = serde_json::from_str::<EventJson>(line) {
            // Each event is one line, whatever the names in it hold.
            let text = shown(&output::event(&event), ' ');
            paint.text(Mood::of_severity(event.severity), &text) + "\n"
        } else {
            return;
        };
        if !print(text.as_bytes()) {
            // No further line can be written, and there is nothing to undo.
            std::process::exit(match unwritten() {
                Some(failure) => {
                    crate::common::errors::tell_failure(&failure, context.json);
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
        Some(client) => {
            let mut path = format!("/v1/events?follow={follow}&severity={}", severity.as_str());
            if let Some(array) = &filter.array {
                path += &format!("&array={array}");
            }
            if let Some(since) = since {
                path += &format!("&since_time={since}");
            }
            client.lines_while_read(&path, print)?;
        }
        None => offline::events(context, &filter)?
            .iter()
            .for_each(|e| print(e)),
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
    log::to_stderr("info");
    args.end_with.map(end_with).transpose()?;
    let config = match &args.config {
        // A file that was named must be there and right.
        Some(file) => InUse::read_named(&absolute(file))?,
        None => InUse::read_or_last(&dir.config(), &dir.last_config()),
    };
    let said = &config.configuration.daemon;
    let usage = |found: String, cure: &str| Failure::new(Code::Usage, found).cure(cure);
    let mut limits = Limits {
        memory_bytes: said.memory.get() as usize,
        io_timeout: said.io_timeout.get(),
        ..Limits::default()
    };
    if let Some(shards) = said.shards {
        limits.shards = shards.get() as u16;
    }
    if let Some(shards) = args.shards {
        if !(1..=SHARDS_MAX).contains(&shards) {
            let found = format!("--shards {shards}: an array has 1 to {SHARDS_MAX} threads");
            return Err(usage(found, "give a number of threads in this range"));
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
    let mut extra = said.scan.clone();
    extra.extend(absolutes(&args.scan));
    let sources = Sources {
        devices: said.devices && !args.no_devices,
        extra,
    };
    let degraded = Rule {
        start: args.degraded.unwrap_or(said.degraded),
        wait: args.wait.map_or(Ok(said.wait.get()), seconds)?,
    };
    serve::run(Config {
        dir,
        sources,
        limits,
        degraded,
        config,
    })?;
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Those behind the first 16 were begun when all of these had ended.
    #[test]
    fn one_that_hangs_holds_up_none_of_many() {
        let (go, hangs) = std::sync::mpsc::channel::<u8>();
        let hangs = std::sync::Mutex::new(hangs);
        let act = |one: &u8| match one {
            0 => hangs
                .lock()
                .expect("free")
                .recv_timeout(Duration::from_secs(60)),
            9 => go.send(9).map(|()| 9).map_err(|_| unreachable!("it waits")),
            one => Ok(*one),
        };
        let all: Vec<u8> = (0..10).collect();
        let done = super::each_of(2, &all, act);
        let done: Result<Vec<u8>, _> = done.into_iter().collect();
        assert_eq!(
            done.expect("the last let it go"),
            [9, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        );
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
