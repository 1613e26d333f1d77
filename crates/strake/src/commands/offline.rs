//! What needs no daemon: making and destroying, looking, and serving one array in the foreground.
//!
//! Invariant: the same code as the daemon's does the work; members that a daemon (of another
//! STRAKE_DIR) serves are held exclusively, so this never touches them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use strake_format::ArrayUuid;
use strake_runtime::{Device, OpenMode};

use crate::api::*;
use crate::cli::args::StartArgs;
use crate::cli::output;
use crate::cli::{Context, Ended, confirm_start, done, would_believe, would_start};
use crate::common::errors::{Code, Failure};
use crate::common::log;
use crate::common::partly;
use crate::common::process::EndSignals;
use crate::common::size;
use crate::common::{absolute, absolutes};
use crate::daemon::array::left;
use crate::daemon::array::left::Before;
use crate::daemon::array::opening;
use crate::daemon::array::running;
use crate::daemon::array::running::{Limits, Running, Start};
use crate::daemon::events::EventLog;
use crate::daemon::events::journal;
use crate::daemon::rounds;
use crate::daemon::service;
use crate::daemon::service::ending::{QUIET_PATIENCE, note_unclean, unclean};
use crate::daemon::service::pools::{Pools, check_named};
use crate::daemon::service::rename;
use crate::daemon::service::scrubs;
use crate::daemon::service::upkeep::overwritten;
use crate::daemon::service::volumes;
use crate::daemon::service::watched::missing;
use crate::daemon::sources::Sources;
use crate::daemon::state::{Dir, keep_placement, may_keep};
use crate::drives::aside::cut_off;
use crate::drives::destroy;
use crate::drives::find;
use crate::drives::find::{FoundArray, FoundMember};
use crate::drives::machine::answering;
use crate::drives::machine::looks::Answers;
use crate::drives::machine::{paths, sysfs};
use crate::drives::make;
use crate::drives::pool;
use crate::settings::placement::{PlacementRecord, Wanted};
use crate::settings::words;
use crate::view;

/// Arrays on these devices, or on all that can be found.
pub(crate) fn scan(context: &Context, devices: &[PathBuf]) -> Vec<FoundArray> {
    find::group(find::members(&paths(context, devices)))
}

/// What there is to look at, but for devices that do not answer, which are said: a command that
/// reads one of them never ends.
fn paths(context: &Context, devices: &[PathBuf]) -> Vec<PathBuf> {
    answers(context, devices).found
}

fn answers(context: &Context, devices: &[PathBuf]) -> Answers<PathBuf> {
    let paths = match devices {
        [] => Sources {
            devices: true,
            extra: Vec::new(),
        }
        .paths(&context.dir),
        given => find::expand(given),
    };
    let answers = answering::of(&paths);
    say_silent(context, &answers.silent);
    answers
}

/// What devices carry, and those of which it is not known: some do not answer.
fn looked(context: &Context) -> find::Scan {
    let Answers { found, silent, .. } = answers(context, &[]);
    let mut scan = find::scan(&found);
    say_once(context, &scan.unread, unknown_text);
    scan.unread.extend(silent);
    scan
}

/// Says once which devices do not answer.
fn say_silent(context: &Context, silent: &[PathBuf]) {
    say_once(context, silent, silent_text);
}

fn say_once(context: &Context, devices: &[PathBuf], text: fn(&[PathBuf]) -> String) {
    static SAID: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let new: Vec<PathBuf> = devices
        .iter()
        .filter(|s| said.insert((*s).clone()))
        .cloned()
        .collect();
    if !new.is_empty() {
        context.aside(&text(&new));
    }
}

/// Of devices of which the kernel says only an error.
fn unknown_text(devices: &[PathBuf]) -> String {
    let they = size::verb(devices.len(), "it carries", "they carry");
    let devices = partly::all(devices);
    format!("{devices}: cannot be read, so what {they} is not known")
}

fn silent_text(silent: &[PathBuf]) -> String {
    let they = size::verb(silent.len(), "it carries", "they carry");
    format!(
        "{}: no answer, so what {they} is not known",
        partly::all(silent)
    )
}

/// As `scan` tells it.
pub(crate) fn scan_json(context: &Context, devices: &[PathBuf]) -> Vec<ScanJson> {
    let paths = paths(context, devices);
    say_unread(context, &paths);
    let found = find::group(find::members(&paths));
    let all = find::scan_json(&found, &pool::find(&paths));
    let all = context.dir.with_older(all, &found);
    // Of some devices alone nobody knows what the others carry.
    let missing = devices
        .is_empty()
        .then(|| context.dir.missing(&found, |_| false));
    let missing = missing.into_iter().flatten().flatten();
    let missing: Vec<_> = missing
        .map(|one| (one.name.to_string(), one.uuid))
        .collect();
    let is_meant = |path: &Path| {
        let mut devices = devices.iter();
        devices.len() == 0 || devices.any(|device| absolute(device) == path)
    };
    let found = found.iter().map(|array| array.uuid);
    let known = found.chain(missing.iter().map(|(_, uuid)| *uuid));
    let mut had: Vec<PathBuf> = known
        .flat_map(|uuid| context.dir.seats(uuid).devices())
        .collect();
    had.retain(|path| is_meant(path));
    say_silent(context, &answering::of(&had).silent);
    context.dir.with_known(all, missing, is_meant)
}

/// The pools that are found.
pub(crate) fn found_pools(context: &Context) -> Vec<pool::Pool> {
    pool::find(&paths(context, &[]))
}

/// Pools of spares on this machine.
pub(crate) fn pools(context: &Context) -> Pools<'_> {
    Pools::new(&context.dir, paths(context, &[]))
}

/// The array of that name or uuid.
pub(crate) fn found(context: &Context, name: &str) -> Result<FoundArray, Failure> {
    pick(context, scan(context, &[]), name)
}

/// The array of that name or uuid among these. Where devices could not be looked at, it is not
/// known that there is none.
fn pick(context: &Context, all: Vec<FoundArray>, name: &str) -> Result<FoundArray, Failure> {
    find::pick(all, name, context.dir.meant(name)).map_err(|failure| {
        if failure.code != Code::ArrayNotFound {
            return failure;
        }
        let Answers { found, silent, .. } = answers(context, &[]);
        let unread = unread(&found);
        let unknown = find::scan(&found).unread;
        let (code, why) = match (unread.is_empty(), silent.is_empty()) {
            (false, _) => (Code::Permission, unread_text(&unread)),
            (true, false) => (Code::DeviceSilent, silent_text(&silent)),
            (true, true) if !unknown.is_empty() => (Code::DeviceSilent, unknown_text(&unknown)),
            (true, true) => {
                if let Err(error) = context.dir.missing(&[], |_| false) {
                    return context.dir.not_known(&error);
                }
                let mut missing = missing(context, &scan(context, &[])).into_iter();
                let meant = missing.find(|array| array.name == name || array.uuid == name);
                return meant.map_or(failure, |array| missing::refused(&array, &[]));
            }
        };
        Failure::new(code, format!("{}; {why}", failure.found))
    })
}

/// An array that no daemon here serves, as `show` says it.
pub(crate) fn shown(context: &Context, found: &FoundArray) -> ArrayJson {
    let (array, held) = found.not_served_json();
    let array = context.dir.told_older(found, array);
    let array = context.dir.told_destroyed(array);
    let seats = context.dir.seats(found.uuid);
    say_silent(context, &answering::of(&seats.devices()).silent);
    let array = seats.shown(array);
    let array = view::with_placement(array, &context.dir.placement(found.uuid));
    if let Some(held) = held {
        context.notes(&[format!(
            "{}: {}; it is held by another process, such as a daemon with a STRAKE_DIR of its own",
            array.name, held.found
        )]);
    }
    array
}

/// All arrays: those that are found, and those of which no member is.
pub(crate) fn all(context: &Context) -> Vec<ArrayJson> {
    let found = scan(context, &[]);
    let shown = found.iter().map(|a| shown(context, a));
    let mut all: Vec<ArrayJson> = shown.chain(missing(context, &found)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// The array of that name or uuid, also one of which no member is found.
pub(crate) fn one(context: &Context, name: &str) -> Result<ArrayJson, Failure> {
    let found = scan(context, &[]);
    let mut missing = missing(context, &found).into_iter();
    match missing.find(|array| array.name == name || array.uuid == name) {
        Some(array) if !found.iter().any(|a| a.name().as_str() == name) => Ok(array),
        _ => Ok(shown(context, &self::found(context, name)?)),
    }
}

/// Arrays that were served here and of which no member is found. None are named where some devices
/// may not be read, or cannot: their members may be there.
fn missing(context: &Context, found: &[FoundArray]) -> Vec<ArrayJson> {
    if !unread(&paths(context, &[])).is_empty() {
        return Vec::new();
    }
    if !looked(context).unread.is_empty() {
        return Vec::new();
    }
    let missing = context.dir.missing(found, |_| false);
    missing
        .iter()
        .flatten()
        .map(|one| context.dir.missing_json(one))
        .collect()
}

/// Forgets an array of which no member is found.
pub(crate) fn forget(context: &Context, name: &str, dry_run: bool) -> Result<OutcomeJson, Failure> {
    context.dir.check()?;
    let denied = unread(&paths(context, &[]));
    if !denied.is_empty() {
        return Err(Failure::new(Code::Permission, unread_text(&denied)));
    }
    let find::Scan { members, unread } = looked(context);
    let found = find::group(members);
    let forgotten = context
        .dir
        .forget_missing(&found, &unread, |_| false, name, dry_run);
    forgotten.map(|(_, done)| done)
}

/// These arrays are not expected any more where nothing of them is left.
pub(crate) fn not_expected(context: &Context, arrays: &BTreeSet<ArrayUuid>) {
    let find::Scan { members, unread } = looked(context);
    context
        .dir
        .not_expected(arrays, &find::group(members), &unread);
}

/// Says that no daemon answers.
pub(crate) fn say_no_daemon(context: &Context) {
    let dir = context.dir.path().display();
    context.aside(&format!(
        "no daemon listens in {dir}: this is what the drives say, and nothing is known of what runs"
    ));
    say_unread(context, &paths(context, &[]));
}

/// Says which devices this user may not read: what they carry is not known.
pub(crate) fn say_unread(context: &Context, paths: &[PathBuf]) {
    let unread = unread(paths);
    if !unread.is_empty() {
        context.aside(&unread_text(&unread));
    }
}

fn unread_text(unread: &[String]) -> String {
    format!(
        "{} may not be read by this user, so what they carry is not known: {}",
        size::count(unread.len(), "device"),
        unread.join(", ")
    )
}

fn unread(paths: &[PathBuf]) -> Vec<String> {
    use rustix::fs::{Access, access};
    let ask = |path: &Path| Ok(access(path, Access::READ_OK) == Err(rustix::io::Errno::ACCESS));
    let all = paths.iter().zip(paths::each(paths, ask));
    let denied = all.filter(|(_, denied)| denied.as_ref().is_ok_and(|denied| *denied));
    denied.map(|(path, _)| path.display().to_string()).collect()
}

/// Makes an array.
pub(crate) fn create(context: &Context, request: &CreateRequest) -> Result<CreatedJson, Failure> {
    running::check_export(request.export.as_deref())?;
    answering::need(&request.all_devices())?;
    let mut taken = scan(context, &[]);
    taken.extend(scan(context, &request.devices));
    // A device of the request that is itself a member is named as such, not as a taken name.
    let given = |a: &FoundArray| a.members.iter().any(|m| request.devices.contains(&m.path));
    let names: Vec<make::Taken> = taken
        .iter()
        .filter(|a| !given(a))
        .map(|a| context.dir.taken(a))
        .collect();
    let mut placement = service::placement_of(request, Limits::default().shards)?;
    placement.export.clone_from(&request.export);
    check_named(&pools(context), request.pool.as_deref())?;
    if placement != PlacementRecord::default() {
        // It is to be kept there, which is looked at before superblocks are written.
        context.dir.check()?;
    }
    if !request.dry_run && placement != PlacementRecord::default() {
        context.dir.make()?;
        may_keep(&context.dir, &placement)?;
    }
    let taken = match request.force {
        true => overwritten(&context.dir, &scan(context, &request.all_devices()), &[])?,
        false => BTreeSet::new(),
    };
    let mut made = make::make(request, &names, |_, _| Ok(()))?;
    if !request.dry_run {
        let paths: Vec<PathBuf> = made.paths.iter().map(|(_, path)| path.clone()).collect();
        // Without a folder of its own a user names the files again; block devices are found anyway.
        let _ = context.dir.make();
        let name = made.superblock.name.to_string();
        made.notes.extend(context.dir.not_remembered(&name, &paths));
        keep_placement(&context.dir, made.superblock.array, &placement)?;
        if !taken.is_empty() {
            not_expected(context, &taken);
        }
        let note = context
            .dir
            .own(&made.superblock.name, made.superblock.array);
        made.notes.extend(note);
    }
    Ok(service::created_json(&made, &placement, request.dry_run))
}

/// Wipes the superblocks of an array, or says that it would.
pub(crate) fn destroy(
    context: &Context,
    name: &str,
    dry_run: bool,
) -> Result<OutcomeJson, Failure> {
    let found = found(context, name)?;
    left::delete_unused(&context.dir, found.uuid, name, Before::Destroy, dry_run)?;
    let seats = context.dir.seats(found.uuid);
    let last = |slot| seats.device_of(slot).map(Path::to_owned);
    let destroyed = destroy::found(&found, last, &context.dir.rid_of(&found), dry_run)?;
    if dry_run {
        return Ok(service::outcome(name, false, &destroyed.what));
    }
    let notes = context.dir.was_destroyed(&found, &destroyed);
    match destroyed.failure {
        Some(failure) => Err(failure),
        None => Ok(done(name, &destroyed.what).noted(&notes)),
    }
}

/// Gives an array that does not run another name.
pub(crate) fn rename(
    context: &Context,
    name: &str,
    request: &RenameRequest,
) -> Result<OutcomeJson, Failure> {
    let new = words::parse_name(&request.name)?;
    let all = scan(context, &[]);
    let found = pick(context, all.clone(), name)?;
    if *found.name() == new {
        return Ok(service::outcome(
            name,
            false,
            &format!("it is called {new} already"),
        ));
    }
    context.dir.not_destroyed(found.uuid, found.name(), false)?;
    rename::check_free(&new, found.uuid, &all)?;
    if request.dry_run {
        rename::may_rename_stopped(&context.dir, &found, &new)?;
        return Ok(service::outcome(
            name,
            false,
            &format!("would be called {new}"),
        ));
    }
    let mut notes = Vec::from_iter(rename::rename_stopped(&context.dir, &found, &new)?);
    notes.extend(context.dir.own(&new, found.uuid));
    Ok(done(name, &format!("is called {new} now")).noted(&notes))
}

/// Adopts an array: the next daemon here serves it, by this name.
pub(crate) fn import(
    context: &Context,
    array: &str,
    request: &ImportRequest,
) -> Result<ArrayJson, Failure> {
    let wanted = request.name.as_deref().map(words::parse_name).transpose()?;
    answering::need(&request.devices)?;
    let mut all = scan(context, &request.devices);
    let found = pick(context, all.clone(), array)?;
    all.extend(scan(context, &[]));
    context
        .dir
        .not_destroyed(found.uuid, found.name(), request.force)?;
    let name = wanted.unwrap_or_else(|| found.name().clone());
    rename::check_free(&name, found.uuid, &all).map_err(|f| f.cure("give it another with --as"))?;
    let renames = name != *found.name();
    if renames && request.dry_run {
        rename::may_rename_stopped(&context.dir, &found, &name)?;
    }
    if !request.dry_run {
        if renames {
            rename::rename_stopped(&context.dir, &found, &name)?;
        }
        context.dir.make()?;
        let paths: Vec<PathBuf> = found.members.iter().map(|m| m.path.clone()).collect();
        // A folder that cannot be written makes a user name the files again: harmless.
        let _ = context.dir.remember_files(&paths);
        context.notes(context.dir.own(&name, found.uuid).as_slice());
    }
    Ok(ArrayJson {
        name: name.to_string(),
        ..found.not_served_json().0
    })
}

/// Settings that an array carries.
pub(crate) fn settings(context: &Context, name: &str) -> Result<SettingsJson, Failure> {
    let found = found(context, name)?;
    let placement = context.dir.try_placement(found.uuid)?;
    Ok(view::settings(
        &found.authority().image.superblock,
        &placement,
    ))
}

/// The events that the journal holds and that are asked for, each as a line of JSON; says that no
/// daemon answers.
pub(crate) fn events(context: &Context, filter: &EventFilter) -> Result<Vec<String>, Failure> {
    let dir = context.dir.path().display();
    let mut unread = None;
    for path in context.dir.events() {
        if !path.exists() {
            continue;
        }
        match journal::read(&path) {
            Ok(events) => {
                let path = path.display();
                context.aside(&format!(
                    "no daemon listens in {dir}: these events are those of the journal {path}"
                ));
                let line = |event| serde_json::to_string(event).expect("the shapes are all JSON");
                let asked = events.iter().filter(|event| filter.takes(event));
                return Ok(asked.map(line).collect());
            }
            Err(error) => unread = Some(Failure::io(path.display(), &error)),
        }
    }
    let found = format!("no daemon listens in {dir}, and there is no journal of events");
    Err(unread.unwrap_or_else(|| Failure::new(Code::NoDaemon, found)))
}

/// Changes what an array may take of this machine, which its members do not carry: it may be what
/// keeps the daemon from serving it.
pub(crate) fn set(
    context: &Context,
    name: &str,
    wanted: &SettingsJson,
) -> Result<OutcomeJson, Failure> {
    let asked = SettingsJson {
        dry_run: false,
        ..wanted.clone()
    };
    if !asked.only_places() {
        let what = format!("no daemon listens in {}", context.dir.path().display());
        let cure = "without one only cpus, shards, memory_limit, requests, replace_at_wear, pool \
                    and degraded can be set";
        return Err(Failure::new(Code::NoDaemon, what).cure(cure));
    }
    check_named(&pools(context), asked.pool.as_deref())?;
    let found = found(context, name)?;
    context.dir.not_destroyed(found.uuid, found.name(), false)?;
    let before = context.dir.try_placement(found.uuid)?;
    let record = before.with(Wanted::of_settings(&asked))?;
    let remembered = context.dir.record(found.uuid);
    let export = running::parse_export(remembered.as_ref().map_or("auto", |r| &r.export))?;
    let superblock = &found.authority().image.superblock;
    record.check_memory(superblock, export, Limits::default().shards)?;
    let changed = record != before && !wanted.dry_run;
    if changed {
        context.dir.make()?;
        context.dir.place(found.uuid, &record)?;
    }
    Ok(service::outcome(found.name().as_str(), changed, "set"))
}

/// What past scrubs of an array found.
pub(crate) fn scrubs(context: &Context, name: &str) -> Result<ScrubsJson, Failure> {
    let found = found(context, name)?;
    let sb = &found.authority().image.superblock;
    Ok(scrubs::json(&context.dir, sb, &[]))
}

/// Tells what lies on one member.
pub(crate) fn examine(context: &Context, device: &Path) -> Ended {
    sysfs::identity(device)?;
    answering::need(&[device.to_owned()])?;
    let looked = find::look(device).map_err(|failure| match failure.code {
        Code::Damaged => match find::members(&[device.to_owned()]).pop() {
            // Its first copy is whole, and says of which array it is.
            Some(FoundMember { trouble, image, .. }) => {
                let why = trouble.unwrap_or(failure);
                let name = &image.superblock.name;
                let cure = format!("{}; strake show {name} says what else helps", why.cure);
                why.cure(cure)
            }
            None => failure.cure(
                "nothing of this member can be believed; strake scan shows whether the other \
                 members start the array",
            ),
        },
        _ => failure,
    })?;
    let Some(image) = looked else {
        let shown = device.display();
        if let Some(label) = pool::label_of(&Device::open(device, OpenMode::ReadOnly)?)? {
            let found = format!("{shown} is no member: it waits in the pool {}", label.name);
            let cure = "strake pool show tells of pools";
            return Err(Failure::new(Code::NotAMember, found).cure(cure));
        }
        let found = format!("{shown} holds no Strake superblock");
        return Err(Failure::new(Code::NotAMember, found));
    };
    context.say(&view::examine(&image), output::examine);
    Ok(0)
}

/// Waits until the process is asked to end. Meanwhile volumes that could not be served are tried
/// again.
async fn serve_until(signals: EndSignals, running: &Arc<Running>, dir: &Dir, log: &Arc<EventLog>) {
    let mut ticks = tokio::time::interval(volumes::PERIOD);
    let mut asked = std::pin::pin!(signals.asked());
    loop {
        tokio::select! {
            () = &mut asked => return,
            _ = ticks.tick() => {}
        }
        let (running, dir, log) = (Arc::clone(running), dir.clone(), Arc::clone(log));
        // It is waited for: a volume must not be served when the array stops.
        let tried = rounds::done(move || running.serve_volumes(&dir, &log)).await;
        if let Err(failure) = tried.and_then(|tried| tried) {
            tracing::debug!(%failure, "no volume is tried again");
        }
    }
}

/// Serves one array until the process is asked to end.
pub(crate) fn foreground(context: &Context, name: &str, args: &StartArgs) -> Ended {
    log::to_stderr("warn");
    running::check_export(args.export.as_deref())?;
    let devices = absolutes(&args.devices);
    for device in &devices {
        let is_folder = |failure: &Failure| failure.code == Code::DeviceKind && device.is_dir();
        sysfs::identity(device).or_else(|failure| match is_folder(&failure) {
            true => Ok(sysfs::Identity::Block(0)),
            false => Err(failure),
        })?;
    }
    answering::need(&devices)?;
    let all = scan(context, &devices);
    let mut found = match devices.as_slice() {
        [] => pick(context, all, name)?,
        // What others carry, and whether they answer, is not asked for.
        devices => find::pick_of(all, name, context.dir.meant(name), devices)?,
    };
    // A refusal looks at what was in its slots.
    let seats = context.dir.seats(found.uuid);
    say_silent(context, &answering::of(&seats.devices()).silent);
    if !devices.is_empty() {
        found = cut_off::counted(&found).unwrap_or(found);
    }
    let told = |failure| opening::with_strangers(failure, &found, &devices);
    let how = Start {
        export: args.export.clone(),
        force: args.force,
        named: !devices.is_empty(),
        ..Start::of_daemon(Limits::default())
    };
    let rehearse = |force| {
        let how = Start {
            force,
            ..how.clone()
        };
        running::may_start(&context.dir, &found, &how)
    };
    if args.dry_run {
        let wiped = running::may_start(&context.dir, &found, &how).map_err(told)?;
        let believed = would_believe(rehearse).filter(|_| args.force);
        let what = format!("start ({})", found.as_str());
        return context.would(name, &would_start(&what, &wiped, believed.as_deref()));
    }
    if args.force {
        confirm_start(args.yes, name, rehearse)?;
    }
    strake_runtime::bound_heaps();
    strake_runtime::check_descriptors_left()?;
    strake_runtime::check_memory_left().map_err(|e| Failure::io("beginning", &e))?;
    context.dir.takes_changes()?;
    strake_runtime::check_threads_left().map_err(|e| Failure::io("beginning", &e))?;
    context.dir.make()?;
    let log = Arc::new(EventLog::open(&context.dir.events()));
    let runtime = crate::common::process::runtime()?;
    let signals = {
        let _within = runtime.enter();
        EndSignals::catch()?
    };
    let running = Arc::new(running::start(&context.dir, &log, &found, &how).map_err(told)?);
    let ended = running.json().and_then(|array| context.array(&array));
    runtime.block_on(serve_until(signals, &running, &context.dir, &log));
    match running.not_in_use() {
        Ok(()) => {
            // The log names devices that stay busy.
            running.put_out_emptied(&log);
            let stopped = running.stop_within(&context.dir, QUIET_PATIENCE);
            let failure = unclean(running.name().as_str(), &stopped);
            if let Some(failure) = &failure {
                note_unclean(&log, running.name().as_str(), failure);
            }
            log.finish();
            failure.map_or(Ok(()), Err)?;
        }
        // To stop it would take the block device from under its users.
        Err(failure) => {
            running.leave();
            return Err(failure);
        }
    }
    ended
}
