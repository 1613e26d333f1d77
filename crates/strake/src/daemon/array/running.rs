//! One array in service: opening its members, starting it, what it tells, stopping it.
//!
//! Invariant: members are opened exclusively and read again after opening, so that what is served
//! is what was checked (`opening`).
//!
//! Deliberately absent: which arrays there are (service).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use strake_engine as engine;
use strake_engine::Geometry;
use strake_engine::event::{
    ArrayState, Changed, Command, CommandError, EventKind, MemberState, MemberStatus, RegionCounts,
    Status,
};
use strake_engine::units::DeviceId;
use strake_format::{ArrayName, ArrayUuid, MemberUuid, Past, Superblock};
use strake_runtime::{
    Counters, Device, EventRecord, ExportKind, Heartbeat, MemberImage, Placement, Promise,
    RequestLatencies, ServeConfig, Serving, Stopped,
};

use crate::api::{ArrayJson, ExplainJson, SetAsideJson};
use crate::common::errors::{Code, Failure};
use crate::common::quoted;
use crate::common::size;
use crate::daemon::array::emptied;
use crate::daemon::array::left;
use crate::daemon::array::left::{Before, LeftDevice};
use crate::daemon::array::links;
use crate::daemon::array::opening;
use crate::daemon::array::opening::Opened;
use crate::daemon::array::seats::Keeper;
use crate::daemon::array::users;
use crate::daemon::array::waits;
use crate::daemon::events;
use crate::daemon::events::{EventLog, Happened};
use crate::daemon::rounds::Rounds;
use crate::daemon::service::names;
use crate::daemon::service::volumes::Volumes;
use crate::daemon::state::spares;
use crate::daemon::state::{ArrayRecord, Dir};
use crate::drives::find::{Aside, FoundArray, FoundMember, Readiness};
use crate::drives::machine::sysfs;
use crate::drives::machine::sysfs::Identity;
use crate::settings::placement::PlacementRecord;
use crate::view;
use crate::view::latency;
use crate::view::latency::{LatenciesJson, MemberLatenciesJson};
use crate::view::stats;
use crate::view::stats::StatsJson;

/// How arrays are served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Threads for each array.
    pub(crate) shards: u16,
    /// Buffer memory of each thread, bytes.
    pub(crate) memory_bytes: usize,
    /// A member I/O that takes longer counts as timed out; one that failed on its way is tried
    /// again for as long.
    pub(crate) io_timeout: Duration,
}

/// Longer than Linux needs to bring an NVMe controller to its senses, or to give it up: 30 s
/// (nvme_core's `io_timeout`) until it asks the controller to abort a command, 30 s more until it
/// resets it, and what a reset takes after that. What ends in this time never was an error to
/// anybody. A member must not be put out before, and less than the 120 s after which the kernel
/// complains of tasks that hang is waited.
const IO_TIMEOUT: Duration = Duration::from_secs(75);

impl Default for Limits {
    fn default() -> Limits {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
        Limits {
            shards: cpus.clamp(1, 4) as u16,
            memory_bytes: 64 << 20,
            io_timeout: IO_TIMEOUT,
        }
    }
}

/// An array that has not answered for so long is shown as one that does not. `strake status` waits
/// 5 s for its daemon, and Prometheus 10 s.
pub(super) const LOOK_PATIENCE: Duration = Duration::from_secs(4);

/// How to start one array.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// `auto`, `ublk`, `nbd` or `none`; `None`: as it was remembered, else auto.
    pub(crate) export: Option<String>,
    /// Although it is dirty and degraded.
    pub(crate) force: bool,
    /// Of devices that an administrator named.
    pub(crate) named: bool,
    /// By this name, whatever array had it here; `None`: by its own, unless that is another's here.
    pub(crate) name: Option<ArrayName>,
    /// Not without a member that was found and cannot be used after all.
    pub(crate) whole: bool,
    /// The array that it was before it was restored: its volumes are those of this one.
    pub(crate) elder: Option<ArrayUuid>,
    /// Devices on which the kernel still has I/O of an array that was stopped here.
    pub(crate) left_behind: BTreeSet<PathBuf>,
    /// Resources.
    pub(crate) limits: Limits,
    /// Memory that is kept for it, since it was made.
    pub(crate) promised: Option<Arc<Promise>>,
}

impl Start {
    /// By itself, as the daemon does.
    pub(crate) fn of_daemon(limits: Limits) -> Start {
        Start {
            export: None,
            force: false,
            named: false,
            name: None,
            whole: false,
            elder: None,
            left_behind: BTreeSet::new(),
            limits,
            promised: None,
        }
    }
}

/// All that is counted of an array in service, beside what `show` tells.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) array: ArrayJson,
    pub(crate) members: Vec<MemberLatenciesJson>,
    pub(crate) requests: RequestLatencies,
    pub(crate) counters: Counters,
    pub(crate) regions: RegionCounts,
    /// Ranges that the list of unreadable blocks has room for.
    pub(crate) unreadable_most: usize,
    /// Lanes of the stripe log, and bytes of its area on each member; none where it has no log.
    pub(crate) log: Option<(u16, u64)>,
}

/// An array in service.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) uuid: ArrayUuid,
    /// As it is called now.
    name: Mutex<ArrayName>,
    /// Empty once it was stopped. The lock is never held while something waits: a caller that
    /// queries the array keeps its own `Arc` for as long as that takes.
    serving: Arc<Mutex<Option<Arc<Serving>>>>,
    record: Mutex<ArrayRecord>,
    /// Known once it was started.
    pub(crate) volumes: Volumes,
    /// Members that are being looked at.
    pub(crate) looks: emptied::Looks,
    /// Doubted members of which it was noted what they lack.
    pub(crate) noted: emptied::Noted,
    /// Under way at most.
    requests: Option<u32>,
    /// What was in its slots is kept there.
    pub(super) dir: Dir,
    /// Members that were found when it was started: those that were set aside, and where each was.
    aside: Arc<[Aside]>,
    found: Vec<(MemberUuid, PathBuf)>,
    /// When it was started.
    since: Instant,
}

/// Parses the word of `--export`.
pub(crate) fn parse_export(text: &str) -> Result<ExportKind, Failure> {
    Ok(match text {
        "auto" => ExportKind::Auto,
        "ublk" => ExportKind::Ublk,
        "nbd" => ExportKind::Nbd,
        "none" => ExportKind::None,
        _ => {
            let found = format!("'{text}' is no export");
            return Err(Failure::new(Code::Usage, found).cure("use auto, ublk, nbd or none"));
        }
    })
}

/// Refuses, before anything is written, an export that this kernel cannot have.
pub(crate) fn check_export(text: Option<&str>) -> Result<(), Failure> {
    let kind = parse_export(text.unwrap_or("auto"))?;
    if kind == ExportKind::Ublk && !Path::new("/dev/ublk-control").exists() {
        return Err(Failure::new(
            Code::NoUblk,
            "no ublk: /dev/ublk-control is not there",
        ));
    }
    Ok(())
}

/// What it takes to serve an array found: looked at, and its members held.
struct Ready {
    /// Of the export, as it is remembered.
    word: String,
    name: ArrayName,
    /// ublk devices of an earlier daemon that nothing uses and nothing is to serve.
    superfluous: Vec<LeftDevice>,
    requests: Option<u32>,
    opened: Opened,
    config: ServeConfig,
}

/// The device of an earlier daemon that is to be taken over, and those that are to be deleted.
/// Refuses if one that is in use could not be served.
fn left_behind(
    dir: &Dir,
    found: &FoundArray,
    how: &Start,
    export: &str,
) -> Result<(Option<u32>, Vec<LeftDevice>), Failure> {
    let name = found.name().as_str();
    let before = Before::Start(export);
    if matches!(parse_export(export)?, ExportKind::Nbd | ExportKind::None) {
        let unused = left::unused(dir, found.uuid, name, before)?;
        return Ok((None, unused));
    }
    // One that is carved serves its volumes, and those are looked for one by one.
    let carved = found.authority().image.superblock.carved;
    let mut rest = left::own(found.uuid, dir.record(found.uuid).as_ref(), name)?;
    let taken_over = match carved || rest.is_empty() {
        true => None,
        false => Some(rest.remove(0).id),
    };
    if let Some(elder) = how.elder.or_else(|| dir.elder_of(found.uuid)) {
        rest.extend(left::own(elder, dir.record(elder).as_ref(), name)?);
    }
    rest.retain(|device| match left::user(device.id) {
        None => true,
        Some(user) => {
            tracing::warn!(array = name, user, "a ublk device without a server stays");
            false
        }
    });
    Ok((taken_over, rest))
}

/// How an array that is still to be made would be served.
pub(crate) fn trial(placement: &PlacementRecord, limits: Limits) -> Result<ServeConfig, Failure> {
    Ok(ServeConfig {
        members: Vec::new(),
        shards: placement.shards(limits.shards),
        memory_bytes: limits.memory_bytes,
        placement: placement.for_runtime(),
        io_timeout: limits.io_timeout,
        force: false,
        export: parse_export(placement.export.as_deref().unwrap_or("auto"))?,
        nbd_socket: PathBuf::new(),
        recover_ublk: None,
        client_stock: Vec::new(),
    })
}

/// Looks whether an array found may be started so, and holds its members.
fn ready(dir: &Dir, found: &FoundArray, how: &Start) -> Result<Ready, Failure> {
    let remembered = dir.record(found.uuid);
    let word = how
        .export
        .clone()
        .or_else(|| remembered.as_ref().map(|r| r.export.clone()))
        .or_else(|| dir.placement(found.uuid).export)
        .unwrap_or_else(|| "auto".to_owned());
    check_export(Some(&word))?;
    let (recover_ublk, superfluous) = left_behind(dir, found, how, &word)?;
    let name = how.name.clone().unwrap_or_else(|| found.name().clone());
    if how.name.is_none() {
        names::check_owner(dir, &name, found.uuid)?;
    }
    let placement = dir.placement(found.uuid);
    dir.not_destroyed(found.uuid, found.name(), how.force)?;
    let opened = opening::open(found, how)?;
    same_name(found, &opened.members)?;
    // A person that names the devices wants these.
    if !how.named {
        let older = dir.not_older(found, &opened.members);
        older.map_err(|why| opening::with_set_aside(why, found, &opened.aside))?;
    }
    // Without an older copy of a member that is there nothing is missing.
    let left_out: Vec<Aside> = opened
        .aside
        .iter()
        .filter(|a| !a.is_copy())
        .cloned()
        .collect();
    if how.whole && !left_out.is_empty() {
        return Err(not_whole(found, &name, &left_out));
    }
    let config = ServeConfig {
        members: Vec::new(),
        shards: placement.shards(how.limits.shards),
        memory_bytes: how.limits.memory_bytes,
        placement: Placement {
            promised: how.promised.clone(),
            ..placement.for_runtime()
        },
        io_timeout: how.limits.io_timeout,
        force: how.force,
        export: parse_export(&word)?,
        nbd_socket: dir.nbd_socket(&name),
        recover_ublk,
        client_stock: Vec::new(),
    };
    Ok(Ready {
        word,
        name,
        superfluous,
        requests: placement.requests,
        opened,
        config,
    })
}

/// Refuses an array that was renamed after it was found: all that goes by the name would go by the
/// old one.
fn same_name(found: &FoundArray, members: &[(Device, MemberImage)]) -> Result<(), Failure> {
    let images = members.iter().map(|(_, image)| &image.superblock);
    let newer = |superblock: &&Superblock| superblock.generation > found.generation();
    let newest = images.filter(newer).max_by_key(|one| one.generation);
    let Some(now) = newest
        .map(|one| &one.name)
        .filter(|name| *name != found.name())
    else {
        return Ok(());
    };
    let what = format!("{} is called {now} since it was looked at", found.name());
    let cure = format!("strake start {now}");
    Err(Failure::new(Code::ChangeUnderWay, what).cure(cure))
}

/// The refusal to start an array without these of its members.
fn not_whole(found: &FoundArray, name: &ArrayName, aside: &[Aside]) -> Failure {
    let left_out = aside.len();
    let what = format!(
        "{} of {name} {} found and cannot be used",
        size::count(left_out, "member"),
        size::verb(left_out, "was", "were")
    );
    let cure = format!("look at them, or strake start {name} starts it without them");
    // Nothing tells when a program lets go of one: that start is tried again.
    let held = aside.iter().any(|aside| opening::is_held(&aside.why));
    let code = if held {
        Code::DeviceBusy
    } else {
        Code::DegradedStart
    };
    opening::with_set_aside(Failure::new(code, what).cure(cure), found, aside)
}

/// Whether an array found would be started so, and what would be wiped off its members then. They
/// are held for a moment, and nothing is written.
pub(crate) fn may_start(
    dir: &Dir,
    found: &FoundArray,
    how: &Start,
) -> Result<Vec<String>, Failure> {
    let Ready { opened, config, .. } = ready(dir, found, how)?;
    let wiped = opened.to_wipe();
    let (members, aside) = (opened.members, opened.aside);
    let may = strake_runtime::may_serve(ServeConfig { members, ..config });
    may.map_err(|error| opening::with_aside(error, found, &aside, &dir.seats(found.uuid)))?;
    Ok(wiped)
}

/// A member that lost a copy of its superblock: where the member is, and what it lacks.
type Emptied = (MemberUuid, PathBuf, String);

fn emptied(found: &FoundArray, members: &[(Device, MemberImage)]) -> Vec<Emptied> {
    let cut_off = |path: &Path| {
        let is = |m: &&FoundMember| m.path == path && m.is_cut_off();
        found.usable().any(|m| is(&m))
    };
    let emptied = |(device, image): &(Device, MemberImage)| {
        let (path, offset) = (device.path().to_owned(), image.emptied?);
        let lacks = match cut_off(&path) {
            true => "on a device that shrank".to_owned(),
            false => format!("without its superblock at byte {offset}"),
        };
        Some((image.superblock.member, path, lacks))
    };
    members.iter().filter_map(emptied).collect()
}

/// Notes each of these that is in service by an administrator's word.
fn note_believed(log: &EventLog, name: &ArrayName, serving: &Serving, emptied: &[Emptied]) {
    for (member, path, lacks) in emptied {
        let Ok(status) = serving.status_now() else {
            return;
        };
        let Some(slot) = status.superblock.slot_of(*member) else {
            continue;
        };
        let state = status.members.get(slot.index()).map(|member| member.state);
        if state != Some(MemberState::InSync) {
            continue;
        }
        log.note(Happened {
            array: Some(name.to_string()),
            slot: Some(slot.0),
            event: "member_believed",
            device: Some(path.display().to_string()),
            cause: Some("start --force".to_owned()),
            effect: Some(format!(
                "in service {lacks}, and perhaps without its content: check the data"
            )),
            ..Happened::default()
        });
    }
}

/// Notes each member that was found and is not used.
fn note_aside(log: &EventLog, name: &ArrayName, aside: &[Aside]) {
    for aside in aside {
        tracing::warn!(why = %aside.why, "member left out");
        log.note(Happened {
            array: Some(name.to_string()),
            slot: aside.slot,
            event: "member_set_aside",
            device: Some(aside.path.display().to_string()),
            cause: Some(format!("{}: {}", aside.why.code.name(), aside.why.found)),
            effect: Some(format!("not used; {}", aside.why.cure)),
            ..Happened::default()
        });
    }
}

/// How an array went out of service.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Devices that stay busy: the kernel still has I/O on them.
    pub(crate) busy: Vec<PathBuf>,
    /// Why it did not stop cleanly.
    pub(crate) failure: Option<Failure>,
}

/// What the thread needs that takes the events of one array to the log.
struct Teller {
    array: String,
    log: Arc<EventLog>,
    aside: Arc<[Aside]>,
    seats: Keeper,
    served: Weak<Mutex<Option<Arc<Serving>>>>,
}

impl Teller {
    /// Starts the thread. It ends when the array is served no more.
    fn start(mut self, receiver: Receiver<EventRecord>) -> Result<(), Failure> {
        let name = format!("events {}", self.array);
        let tell = move || {
            let log = Arc::clone(&self.log);
            let _telling = log.telling();
            let mut rounds = Rounds::new("events of an array", Arc::clone(&log));
            for record in receiver {
                rounds.round(|| self.tell(&record));
            }
        };
        let started = strake_runtime::spawn_thread(name, tell);
        started.map_err(|e| Failure::io("following the array's events", &e))?;
        Ok(())
    }

    fn served(&self) -> Option<Arc<Serving>> {
        asked(&*self.served.upgrade()?)
    }

    fn tell(&mut self, record: &EventRecord) {
        self.seats.follow(record, &self.aside);
        self.seats.follow_spares(record, self.served().as_deref());
        self.seats.follow_members(record, self.served().as_deref());
        let mut told = events::describe_with(&self.array, record, &self.aside);
        if let EventKind::SpareGone { member, .. } = record.kind {
            told = self.seats.spares().told(told, member, &self.aside);
        }
        self.log.note_at(record.time, told);
        if let EventKind::Renamed { to, .. } = &record.kind {
            self.array = to.to_string();
        }
        if let EventKind::Grown { to_bytes, .. } = record.kind
            && let Some(serving) = self.served()
            && let Some(not_told) = serving.has_grown(to_bytes)
        {
            let news = Happened::size_not_told(&self.array, not_told);
            self.log.note(news);
        }
    }
}

/// What is to be remembered of an array that was just started: also the devices that an earlier
/// daemon left of its volumes.
fn record_of(
    dir: &Dir,
    array: ArrayUuid,
    name: &ArrayName,
    export: String,
    serving: &Serving,
) -> ArrayRecord {
    let left = dir.record(array);
    let left = left.map(|record| (record.volumes, record.volume_names));
    let (volumes, volume_names) = left.unwrap_or_default();
    ArrayRecord {
        name: name.to_string(),
        export,
        ublk: serving.export().ublk(),
        volumes,
        volume_names,
    }
}

/// Starts an array found. Its events go to `log` until it stops.
pub(crate) fn start(
    dir: &Dir,
    log: &Arc<EventLog>,
    found: &FoundArray,
    how: &Start,
) -> Result<Running, Failure> {
    let ready = ready(dir, found, how)?;
    let (name, requests) = (ready.name, ready.requests);
    ready.opened.claim(found)?;
    left::delete(dir, found.uuid, &ready.superfluous)?;
    let (members, aside) = (ready.opened.members, ready.opened.aside);
    let emptied = match how.force && found.readiness() == Readiness::Incomplete {
        true => emptied(found, &members),
        false => Vec::new(),
    };
    let config = ServeConfig {
        members,
        ..ready.config
    };
    let (serving, receiver) = strake_runtime::serve(config)
        .map_err(|error| opening::with_aside(error, found, &aside, &dir.seats(found.uuid)))?;
    dir.not_destroyed_any_more(found.uuid);
    note_believed(log, &name, &serving, &emptied);
    note_aside(log, &name, &aside);
    spares::note_unlisted(dir, log, &name, found);
    if name != *found.name()
        && let Err(failure) = rename(&serving, dir, &name)
    {
        if let Err(error) = serving.stop() {
            tracing::warn!(%error, "the array did not stop cleanly");
        }
        return Err(failure);
    }
    dir.own(&name, found.uuid);
    let record = record_of(dir, found.uuid, &name, ready.word, &serving);
    if let Err(error) = dir.remember(found.uuid, &record) {
        tracing::warn!(%error, "the export is not remembered");
    }
    if let Some(id) = record.ublk {
        links::link(&links::of_array(&name), id);
    }
    let aside: Arc<[Aside]> = aside.into();
    if let Ok(status) = serving.status_now() {
        dir.was_served(&status.superblock);
    }
    let seats = Keeper::new(dir, found.uuid, &serving);
    let serving = Arc::new(Mutex::new(Some(Arc::new(serving))));
    let teller = Teller {
        array: name.to_string(),
        log: Arc::clone(log),
        aside: Arc::clone(&aside),
        seats,
        served: Arc::downgrade(&serving),
    };
    teller.start(receiver)?;
    // The path of a member is not that of an older copy.
    let paths = found.members.iter().filter(|m| !m.is_copy());
    let paths = paths.map(|m| (m.image.superblock.member, m.path.clone()));
    let running = Running {
        uuid: found.uuid,
        name: Mutex::new(name),
        serving,
        record: Mutex::new(record),
        volumes: Volumes::default(),
        looks: emptied::Looks::default(),
        noted: emptied::Noted::default(),
        requests,
        dir: dir.clone(),
        aside,
        found: paths.collect(),
        since: Instant::now(),
    };
    let elder = how.elder.or_else(|| dir.elder_of(found.uuid));
    running.bring_up_volumes(dir, log, elder)?;
    Ok(running)
}

/// Gives it another name, on its members and for new connections.
fn rename(serving: &Serving, dir: &Dir, name: &ArrayName) -> Result<Changed, Failure> {
    let changed = serving.command(Command::Rename(name.clone()))?;
    if let Err(error) = serving.rename_export(name, &dir.nbd_socket(name)) {
        tracing::warn!(%error, "the socket keeps its name until the array is started again");
    }
    Ok(changed)
}

/// What is served, for as long as somebody asks it something.
fn asked(serving: &Mutex<Option<Arc<Serving>>>) -> Option<Arc<Serving>> {
    let serving = serving.lock().unwrap_or_else(PoisonError::into_inner);
    serving.clone()
}

/// It is in sync, being rebuilt, or a spare.
pub(crate) fn in_service(member: &MemberStatus) -> bool {
    use MemberState::{InSync, Rebuilding, Spare};
    matches!(member.state, InSync | Rebuilding | Spare)
}

impl Running {
    /// As it is called now.
    pub(crate) fn name(&self) -> ArrayName {
        let name = self.name.lock().unwrap_or_else(PoisonError::into_inner);
        name.clone()
    }
    /// Gives it another name: on its members, then to all that goes by the name.
    pub(crate) fn rename(&self, dir: &Dir, new: &ArrayName) -> Result<Changed, Failure> {
        let old = self.name();
        let changed = self.with(|s| {
            self.not_carved(s, &old)?;
            rename(s, dir, new)
        })?;
        dir.own(new, self.uuid);
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = new.clone();
        self.remember(dir, |record| record.name = new.to_string());
        if let Some(id) = self.with(|s| Ok(s.export().ublk()))? {
            links::unlink(&links::of_array(&old), id);
            links::link(&links::of_array(new), id);
        }
        Ok(changed)
    }
    /// Its volumes go by its name, and are in use by it.
    fn not_carved(&self, serving: &Serving, name: &ArrayName) -> Result<(), Failure> {
        if !serving.status_now()?.superblock.carved {
            return Ok(());
        }
        let found = format!("{name} is carved, and its volumes are served by its name");
        let cure = format!("strake stop {name} first");
        Err(Failure::new(Code::ArrayInUse, found).cure(cure))
    }
    /// Does something with it, while it is served.
    pub(crate) fn with<T>(
        &self,
        act: impl FnOnce(&Serving) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match asked(&self.serving) {
            Some(serving) => act(&serving).map_err(|failure| self.explained(&serving, failure)),
            None => Err(Failure::new(
                Code::NotServing,
                format!("{} is stopping", self.name()),
            )),
        }
    }
    /// As `show` tells it.
    pub(crate) fn json(&self) -> Result<ArrayJson, Failure> {
        Ok(self.told()?.0)
    }
    /// The same, with how long its members took.
    pub(crate) fn told(&self) -> Result<(ArrayJson, LatenciesJson), Failure> {
        self.with(|s| {
            let status = s.status_of_all_within(LOOK_PATIENCE)?;
            let latencies = latency::of(&status, |id| s.path(id));
            Ok((self.shown(s, &status), latencies))
        })
    }
    /// The same, with all that is counted of it.
    pub(crate) fn measured(&self) -> Result<Measured, Failure> {
        self.with(|s| {
            let status = s.status_of_all_within(LOOK_PATIENCE)?;
            let geometry = Geometry::of(&status.superblock);
            let layout = &status.superblock.layout;
            Ok(Measured {
                array: self.shown(s, &status),
                members: latency::of(&status, |id| s.path(id)).members,
                requests: s.request_latencies(),
                counters: s.counters(),
                regions: status.regions,
                unreadable_most: strake_format::unreadable::capacity(layout.unreadable_bytes),
                log: (geometry.m > 0 && !geometry.mirrored())
                    .then_some((s.placed().shards, layout.log_bytes)),
            })
        })
    }
    pub(super) fn shown(&self, s: &Serving, status: &Status) -> ArrayJson {
        let placed = view::placed(s.placed(), self.requests);
        let told = view::running(status, &s.export(), placed, |id| s.path(id));
        // One that came back since is not aside any more.
        let back = |aside: &&Aside| {
            let path = aside.path.display().to_string();
            told.members_and_spares()
                .any(|m| m.device.as_ref() == Some(&path))
        };
        let aside = self.aside.iter().filter(|aside| !back(aside));
        let not_used = status.members.iter().filter_map(|m| self.not_used(m));
        let array = ArrayJson {
            volumes: self.volumes_json(s),
            set_aside: aside.map(Aside::json).chain(not_used).collect(),
            ..told
        };
        match status.state {
            // Which members it lost only what is kept of its slots says.
            ArrayState::Failed => self.dir.seats(self.uuid).shown(array),
            _ => array,
        }
    }
    /// A member that was found at the start and that the engine does not use, and what to do with
    /// it.
    fn not_used(&self, member: &MemberStatus) -> Option<SetAsideJson> {
        let (aside, slot) = (member.aside?, member.slot?);
        let is = |(found, _): &&(MemberUuid, PathBuf)| *found == member.member;
        let path = &self.found.iter().find(is)?.1;
        let (device, quoted) = (path.display().to_string(), quoted(path));
        let name = self.name();
        let cure = match aside {
            engine::Aside::BlockSize { .. } | engine::Aside::TooSmall { .. } => format!(
                "give it back what it had and start the array anew, or strake replace {name} {} \
                 DEV with another",
                slot.0
            ),
            engine::Aside::Past(Past::Other { .. } | Past::Branch { .. }) => {
                format!("strake add --force {name} {quoted} overwrites it and rebuilds it")
            }
            _ => format!("strake add {name} {quoted} takes it in, and rebuilds what it lacks"),
        };
        Some(SetAsideJson {
            slot: Some(slot.0),
            code: view::out_cause(aside.cause()).to_owned(),
            found: format!("{device} {aside}"),
            cure,
            device,
        })
    }
    /// As asked for.
    pub(crate) fn export_kind(&self) -> Result<ExportKind, Failure> {
        parse_export(&self.record().export)
    }
    /// What is remembered of it.
    pub(crate) fn record(&self) -> ArrayRecord {
        let record = self.record.lock();
        record.unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Remembers something else.
    pub(crate) fn remember(&self, dir: &Dir, change: impl FnOnce(&mut ArrayRecord)) {
        let record = self.record.lock();
        let mut record = record.unwrap_or_else(PoisonError::into_inner);
        change(&mut record);
        if let Err(error) = dir.remember(self.uuid, &record) {
            tracing::warn!(%error, "the exports are not remembered");
        }
    }
    /// Makes NBD sockets of it again where their files are gone.
    pub(crate) fn listen_again(&self) -> Result<(), Failure> {
        let Some(serving) = asked(&self.serving) else {
            return Ok(());
        };
        let again = serving.listen_again();
        again.map_err(|e| Failure::io(format!("the NBD socket of {}", self.name()), &e))
    }
    /// Remembers its own block device, which has come back, and gives it its name.
    pub(crate) fn name_device(&self, dir: &Dir, serving: &Serving) {
        let id = serving.export().ublk();
        self.remember(dir, |record| record.ublk = id);
        if let Some(id) = id {
            links::link(&links::of_array(&self.name()), id);
        }
    }
    /// Takes away the name of its own block device, before that goes.
    pub(crate) fn unlink_array(&self, serving: &Serving) {
        if let Some(id) = serving.export().ublk() {
            links::unlink(&links::of_array(&self.name()), id);
        }
    }
    /// It is being stopped, or was.
    pub(crate) fn is_stopping(&self) -> bool {
        asked(&self.serving).is_none()
    }
    /// Asks its threads for a sign, unless it was stopped.
    pub(crate) fn heartbeat(&self) -> Option<Heartbeat> {
        asked(&self.serving).map(|serving| serving.heartbeat())
    }
    /// The engine's status.
    pub(crate) fn status(&self) -> Result<Status, Failure> {
        self.with(|s| Ok(s.status_now()?))
    }
    /// What was counted of it.
    pub(crate) fn stats(&self) -> Result<StatsJson, Failure> {
        self.with(|s| {
            let device = |id| (s.path(id), s.device_counts(id));
            let (counters, requests) = (s.counters(), s.request_latencies());
            // Counts and time of one moment: the status may have to be waited for.
            let served = self.since.elapsed();
            let status = s.status_within(LOOK_PATIENCE)?;
            let mut stats = stats::of(&status, served, &counters, &requests, device);
            if status.state == ArrayState::Failed {
                let seats = self.dir.seats(self.uuid);
                stats.mark_lost(|slot, device| seats.is_lost(slot, device));
            }
            Ok(stats)
        })
    }
    /// Carries out a command.
    pub(crate) fn command(&self, command: Command) -> Result<bool, Failure> {
        self.with(|s| Ok(s.command(command)? == Changed::Yes))
    }
    /// Refuses where one of its threads stands still.
    pub(crate) fn turns(&self) -> Result<(), Failure> {
        self.with(|s| Ok(s.turns()?))
    }
    /// Whether it would carry out a command, which does nothing.
    pub(crate) fn preflight(&self, command: Command) -> Result<(), Failure> {
        self.with(|s| Ok(s.preflight(command)?))
    }
    /// Hands a device over and carries out the command made for it.
    pub(crate) fn command_with(
        &self,
        device: Device,
        make: impl FnOnce(strake_engine::units::DeviceId) -> Command,
    ) -> Result<bool, Failure> {
        let path = device.path().to_owned();
        let changed = self.with(|s| {
            let id = s.attach(device)?;
            let done = s.command(make(id));
            let unknown = matches!(done, Err(CommandError::Unfinished(_)));
            if done.is_err() && !unknown {
                s.detach(id);
            }
            Ok(done? == Changed::Yes)
        })?;
        links::announce(&path);
        Ok(changed)
    }
    /// Where a device of it is.
    pub(crate) fn path(&self, device: DeviceId) -> Result<String, Failure> {
        let path = self.with(|s| Ok(s.path(device)))?;
        Ok(path.map_or_else(|| "no device".to_owned(), |path| path.display().to_string()))
    }
    /// Is this device in service here already?
    pub(crate) fn serves(&self, path: &Path) -> bool {
        path.to_str()
            .and_then(|text| self.present(text).ok().flatten())
            .is_some_and(|member| in_service(&member))
    }
    /// Refuses a device that is in service here already, where another one is wanted.
    pub(crate) fn not_joined(&self, path: &Path) -> Result<(), Failure> {
        let member = path.to_str().and_then(|text| self.present(text).ok());
        let Some(member) = member.flatten().filter(in_service) else {
            return Ok(());
        };
        let (name, shown) = (self.name(), path.display());
        let failure = |found| Failure::new(Code::MemberInUse, found);
        Err(match member.slot {
            Some(slot) => failure(format!("{shown} has slot {} of {name}", slot.0))
                .cure("name a device that has no slot"),
            None => failure(format!("{shown} is a spare of {name}"))
                .cure(format!("strake remove {name} {shown} first")),
        })
    }
    /// Refuses a device with the superblock of a member or spare in service: another path to it, or
    /// a copy of it.
    pub(crate) fn not_in_service(&self, path: &Path, own: &Superblock) -> Result<(), Failure> {
        if own.array != self.uuid {
            return Ok(());
        }
        let found = self.with(|s| {
            let is = |m: &&MemberStatus| m.member == own.member && in_service(m);
            let status = s.status_now()?;
            let device = status.members.iter().find(is).and_then(|m| m.device);
            Ok(device.and_then(|device| s.path(device)))
        })?;
        match found {
            Some(serving) => {
                let (path, serving) = (path.display(), serving.display());
                let name = self.name();
                let found = format!(
                    "{path} is another path to {serving}, which array {name} has in service, or a \
                     copy of it"
                );
                let cure = format!(
                    "if it is a copy on another drive, take it while the array is stopped: \
                     strake stop {name}"
                );
                Err(Failure::new(Code::MemberTwice, found).cure(cure))
            }
            None => Ok(()),
        }
    }
    /// Members in service that are files.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        self.with(|s| {
            let status = s.status_now()?;
            let file = |m: &MemberStatus| {
                let path = s.path(m.device?)?;
                let is_file = matches!(sysfs::identity(&path), Ok(Identity::File(..)));
                (m.slot.is_some() && is_file).then_some(path)
            };
            let served = status.members.iter().filter(|m| in_service(m));
            Ok(served.filter_map(file).collect())
        })
    }
    /// Where a block lies.
    pub(crate) fn explain(&self, lba: u64) -> Result<ExplainJson, Failure> {
        let members = self.json()?.members;
        self.with(|s| {
            let status = s.status_now()?;
            let state = |offset, _| s.region_of(offset);
            let (sb, lost) = (&status.superblock, &status.unreadable);
            view::explain(sb, &members, lba, lost, &status.undecided, state)
        })
    }
    /// Refuses if a block device of it is mounted, held or open.
    pub(crate) fn not_in_use(&self) -> Result<(), Failure> {
        asked(&self.serving).map_or(Ok(()), |serving| self.free(&serving))
    }
    /// The same, for a caller that holds it.
    pub(crate) fn free(&self, serving: &Serving) -> Result<(), Failure> {
        let own = serving.export().ublk().and_then(users::opener_of_ublk);
        match own.or_else(|| self.volume_user(serving)) {
            Some(found) => {
                Err(Failure::new(Code::ArrayInUse, found).cure("unmount or close it first"))
            }
            None => Ok(()),
        }
    }
    /// Releases it as a kill would: nothing more is written, and a ublk device stays for the next
    /// daemon that serves the array.
    pub(crate) fn leave(&self) {
        if let Some(serving) = self.take() {
            serving.abandon();
        }
    }
    /// From now on nobody asks it anything.
    fn take(&self) -> Option<Arc<Serving>> {
        let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        serving.take()
    }
    /// Stops it, within a bounded time, and tells what that waits for. Nothing is done if it was
    /// stopped already.
    pub(crate) fn stop(&self, dir: &Dir, log: &EventLog) -> Ended {
        let name = self.name();
        self.stop_by(dir, |serving| {
            waits::telling(&name, serving, log, || serving.end())
        })
    }
    /// The same as the process ends, which waits no longer than this for members that do not
    /// answer.
    pub(crate) fn stop_within(&self, dir: &Dir, patience: Duration) -> Ended {
        self.stop_by(dir, |serving| serving.end_within(patience))
    }
    fn stop_by(&self, dir: &Dir, end: impl FnOnce(&Serving) -> Stopped) -> Ended {
        let Some(serving) = self.take() else {
            return Ended {
                busy: Vec::new(),
                failure: None,
            };
        };
        self.unlink_array(&serving);
        self.unlink_volumes(&serving);
        let stopped = end(&serving);
        if let Some(superblock) = &stopped.superblock {
            dir.was_served(superblock);
        }
        // What was not taken over, or does not go, waits for the next start.
        let mut left = self.record();
        left::forget_gone(&mut left, self.uuid);
        self.remember(dir, |record| *record = left);
        Ended {
            failure: stopped.result.err().map(Failure::from),
            busy: stopped.busy,
        }
    }
}
