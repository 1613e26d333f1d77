//! The daemon's arrays and what can be asked of them; the API and the watcher call this.
//!
//! Invariants: changes (create, start, stop, destroy, add …) of one array are one at a time
//! (`changes`), those of different arrays wait for nothing of each other; looking never waits for a
//! change; an array is in `running` from its start to the end of its stop. Verbs are idempotent and
//! say whether they changed something.
//!
//! Deliberately absent: HTTP (api), looking for drives by itself (watch).

pub(crate) mod backup;
pub(crate) mod drives;
pub(crate) mod ending;
pub(crate) mod names;
pub(crate) mod pools;
pub(crate) mod relief;
pub(crate) mod rename;
pub(crate) mod reshape;
pub(crate) mod scrubs;
pub(crate) mod settings;
pub(crate) mod upkeep;
pub(crate) mod volumes;
pub(crate) mod watched;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use strake_engine::event::{
    Command, CommandError, MemberState, MemberStatus, NewDevice, Returning,
};
use strake_engine::limits::Joining;
use strake_format::{ArrayUuid, MemberUuid, Returns, Slot, SlotState, Superblock, returns};
use strake_runtime::{Device, MemberImage, OpenMode};
use tokio::sync::Notify;

use crate::api::*;
use crate::common::absolute;
use crate::common::errors::{Code, Failure};
use crate::common::size;
use crate::daemon::alerts::board::Board;
use crate::daemon::array::running::{Limits, Running, Start};
use crate::daemon::array::{left, opening, running};
use crate::daemon::changes::{Change, Changes};
use crate::daemon::events::{EventLog, Happened};
use crate::daemon::service::pools::Tries;
use crate::daemon::service::watched::answers::LastLook;
use crate::daemon::service::watched::health::DriveTold;
use crate::daemon::service::watched::missing::Told;
use crate::daemon::sources::Sources;
use crate::daemon::state::Dir;
use crate::daemon::state::wear::WearLog;
use crate::daemon::state::{keep_placement, may_keep};
use crate::daemon::tasks::OfRounds;
use crate::drives::aside::cut_off;
use crate::drives::destroy;
use crate::drives::find;
use crate::drives::find::{FoundArray, Readiness};
use crate::drives::machine::looks::Looks;
use crate::drives::machine::sysfs;
use crate::drives::make;
use crate::drives::notes;
use crate::drives::pool;
use crate::drives::pool::Pool;
use crate::drives::reused;
use crate::drives::safety;
use crate::drives::safety::Permit;
use crate::settings::degraded;
use crate::settings::degraded::OwnRule;
use crate::settings::placement::{PlacementRecord, Wanted};
use crate::view;

/// See the module.
#[derive(Debug)]
pub(crate) struct Service {
    dir: Dir,
    events: Arc<EventLog>,
    alerts: Arc<Board>,
    wear: WearLog,
    /// What drives told last, by their paths.
    told: Mutex<BTreeMap<String, DriveTold>>,
    /// What the last look at all drives found.
    last_look: Mutex<LastLook>,
    /// Arrays that were served here and of which no member is found, as of what was told.
    missing: Mutex<Vec<Told>>,
    since: SystemTime,
    pool_tries: Tries,
    tasks: OfRounds,
    sources: Sources,
    looks: Looks,
    /// Where drives are asked how they are: what hangs there may still answer reads.
    health_looks: Looks,
    limits: Limits,
    changes: Changes,
    running: Mutex<BTreeMap<ArrayUuid, Arc<Running>>>,
    stopped: Mutex<BTreeSet<ArrayUuid>>,
    /// Devices on which the kernel still had I/O when their array was stopped.
    left_behind: Mutex<BTreeSet<PathBuf>>,
    doubts: Arc<Notify>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left half-done is for its own request to answer for; the rest must go on.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// The right to change an array by this command, until it is dropped.
    pub(super) fn change(
        &self,
        by: &'static str,
        array: &str,
        dry_run: bool,
    ) -> Result<Change<'_>, Failure> {
        self.changes.begin(by, self.keys(array), dry_run)
    }
    /// The same for a command of which the dry run holds devices, too.
    pub(super) fn change_holding(
        &self,
        by: &'static str,
        array: &str,
    ) -> Result<Change<'_>, Failure> {
        self.changes.begin_holding(by, self.keys(array))
    }
    /// The same, for an array in service and what is done by itself.
    pub(super) fn change_running(
        &self,
        by: &'static str,
        running: &Running,
        more: &[String],
    ) -> Result<Change<'_>, Failure> {
        let mut keys = vec![running.uuid.to_string(), running.name().to_string()];
        keys.extend_from_slice(more);
        self.changes.try_begin(by, keys)
    }
    /// What a change of this array holds: its name and its uuid, as far as they are known.
    pub(super) fn keys(&self, array: &str) -> Vec<String> {
        let mut keys = vec![array.to_owned()];
        if let Some(running) = self.find_running(array) {
            keys.extend([running.uuid.to_string(), running.name().to_string()]);
        }
        keys
    }

    /// A daemon without arrays.
    pub(crate) fn new(dir: Dir, sources: Sources, limits: Limits) -> Service {
        let events = Arc::new(EventLog::open(&dir.events()));
        let wear = WearLog::open(&dir.wear());
        let doubts = Arc::default();
        Service {
            dir,
            tasks: OfRounds::new(&events, &doubts),
            events,
            alerts: Arc::default(),
            wear,
            told: Mutex::default(),
            last_look: Mutex::default(),
            missing: Mutex::default(),
            since: SystemTime::now(),
            pool_tries: Tries::default(),
            sources,
            looks: Looks::default(),
            health_looks: Looks::default(),
            limits,
            changes: Changes::default(),
            running: Mutex::default(),
            stopped: Mutex::default(),
            left_behind: Mutex::default(),
            doubts,
        }
    }

    /// Where it keeps what is to last.
    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }
    /// What happens.
    pub(crate) fn events(&self) -> &Arc<EventLog> {
        &self.events
    }
    /// Something happened to devices: members may have lost what they held.
    pub(crate) fn doubts(&self) -> &Notify {
        &self.doubts
    }
    /// Where devices are looked at that may hang.
    pub(crate) fn looks(&self) -> &Looks {
        &self.looks
    }

    // ---- looking -----------------------------------------------------------------------------

    /// Every device and file to look at.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.sources.paths(&self.dir)
    }
    /// Arrays in service.
    pub(crate) fn all_running(&self) -> Vec<Arc<Running>> {
        locked(&self.running).values().cloned().collect()
    }
    /// Their uuids.
    pub(super) fn uuids_running(&self) -> Vec<ArrayUuid> {
        locked(&self.running).keys().copied().collect()
    }
    /// Was it stopped by a user in this daemon's life?
    pub(crate) fn is_stopped(&self, uuid: ArrayUuid) -> bool {
        locked(&self.stopped).contains(&uuid)
    }
    /// Is it in service?
    pub(crate) fn is_running(&self, uuid: ArrayUuid) -> bool {
        locked(&self.running).contains_key(&uuid)
    }
    /// What drives carry, with `extra` devices.
    pub(crate) fn scan(&self, extra: &[PathBuf]) -> Vec<FoundArray> {
        match extra {
            [] => self.look().found,
            extra => find::group(find::members_within(&self.looks, &find::expand(extra))),
        }
    }
    /// Arrays that are not in service, as of the last look at all drives; no drive is asked.
    pub(crate) fn not_running(&self) -> Vec<ArrayJson> {
        let running = self.all_running();
        let serves = |array: &ArrayJson| running.iter().any(|r| r.uuid.to_string() == array.uuid);
        let last = locked(&self.last_look);
        last.found
            .iter()
            .filter(|array| !serves(array))
            .cloned()
            .collect()
    }
    /// Arrays on drives, as of the last look at all drives, as if none were in service.
    pub(crate) fn last_found(&self) -> Vec<ArrayJson> {
        locked(&self.last_look).found.clone()
    }
    /// Devices that did not answer the last look at all drives, or could not be read: they may
    /// carry members.
    pub(crate) fn unread(&self) -> Vec<PathBuf> {
        locked(&self.last_look).unread.clone()
    }
    /// When this daemon began.
    pub(crate) fn since(&self) -> SystemTime {
        self.since
    }
    /// Pools of spares on drives.
    pub(super) fn scan_pools(&self) -> Vec<Pool> {
        pool::find_within(&self.looks, &self.paths()).pools
    }
    /// Arrays and pools, as `scan` tells them.
    pub(crate) fn scan_json(&self) -> Vec<ScanJson> {
        let found = self.scan(&[]);
        let all = find::scan_json(&found, &self.scan_pools());
        let all = self.dir.with_older(all, &found);
        let missing = self.missing_beside(&found).into_iter();
        let missing = missing.map(|one| (one.name.to_string(), one.uuid));
        self.dir.with_known(all, missing, |_| true)
    }

    /// The array in service of that name or uuid, if there is one.
    pub(super) fn find_running(&self, name: &str) -> Option<Arc<Running>> {
        let running = self.all_running();
        running
            .into_iter()
            .find(|r| r.name().as_str() == name || r.uuid.to_string() == name)
    }
    /// The same, unless it is being stopped.
    pub(super) fn find_serving(&self, name: &str) -> Option<Arc<Running>> {
        let running = self.find_running(name);
        running.filter(|running| !running.is_stopping())
    }
    /// The array in service of that name or uuid.
    pub(crate) fn running(&self, name: &str) -> Result<Arc<Running>, Failure> {
        let found = match self.running_or(name, || self.scan(&[])) {
            Ok(running) => return Ok(running),
            Err(found) => self.pick(found, name)?,
        };
        self.dir.not_destroyed(found.uuid, found.name(), false)?;
        let cure = format!("strake start {name} first");
        Err(Failure::new(Code::NotServing, format!("{name} is not started")).cure(cure))
    }

    /// Where a block lies.
    pub(crate) fn explain(&self, name: &str, lba: u64) -> Result<ExplainJson, Failure> {
        match self.find_running(name) {
            Some(running) => running.explain(lba),
            None => explain_offline(&self.pick(self.scan(&[]), name)?, lba),
        }
    }

    // ---- changing ----------------------------------------------------------------------------

    /// Names in use, and what is left of destroyed arrays by theirs.
    fn names(&self) -> Vec<make::Taken> {
        let running = self.all_running();
        let running = running.iter().map(|r| make::Taken {
            name: r.name(),
            left: None,
        });
        let found = self.scan(&[]);
        let found = found.iter().map(|a| self.dir.taken(a));
        running.chain(found).collect()
    }

    /// Makes an array and starts it.
    pub(crate) fn create(&self, mut request: CreateRequest) -> Result<CreatedJson, Failure> {
        running::check_export(request.export.as_deref())?;
        for path in request.devices.iter_mut().chain(&mut request.spares) {
            *path = absolute(path);
        }
        pools::check_named(&self.pools(), request.pool.as_deref())?;
        strake_runtime::check_io_uring(1)?;
        find::answering(&self.looks, &request.all_devices())?;
        let _change = self.change_holding("strake create", &request.name)?;
        let mut placement = placement_of(&request, self.limits.shards)?;
        placement.export.clone_from(&request.export);
        self.none_in_service(&request.all_devices())?;
        let name = request.name.clone();
        let names = self.names();
        if !request.dry_run {
            may_keep(&self.dir, &placement)?;
        }
        let config = running::trial(&placement, self.limits)?;
        // Its memory is kept for it until it starts: another may start meanwhile.
        let promised = RefCell::new(None);
        let may = |superblock: &Superblock, devices: usize| {
            let promise = strake_runtime::may_make(superblock, devices, &config)?;
            promised.replace(Some(Arc::new(promise)));
            Ok(())
        };
        let paths = request.all_devices();
        let taken = match request.force {
            true => upkeep::overwritten(&self.dir, &self.scan(&paths), &self.uuids_running())?,
            false => BTreeSet::new(),
        };
        if request.dry_run {
            let made = make::make(&request, &names, may)?;
            return Ok(created_json(&made, &placement, true));
        }
        // Before: a daemon that is killed when superblocks are written finds them again.
        let known = self.dir.known_files();
        let note = self.dir.not_remembered(&name, &paths);
        let made = make::make(&request, &names, may);
        let mut made = made.inspect_err(|_| {
            self.dir.forget_but(&paths, &known);
            // Another array may have been made of some of them meanwhile.
            self.remember_running();
        })?;
        if !taken.is_empty() {
            self.not_expected(&taken);
        }
        made.notes.extend(note);
        self.events.note(Happened {
            array: Some(name.clone()),
            event: "created",
            cause: Some("asked".to_owned()),
            effect: Some(size::count(made.paths.len(), "device")),
            ..Happened::default()
        });
        let how = Start {
            // Whatever array had it before was not found.
            name: Some(made.superblock.name.clone()),
            promised: promised.take(),
            ..self.how(request.export, false)
        };
        let started = keep_placement(&self.dir, made.superblock.array, &placement)
            .and_then(|()| find::pick(find::group(find::members(&paths)), &name, None))
            .and_then(|found| self.start_found(&found, &how));
        let running = started.map_err(|failure| made_not_started(failure, &name))?;
        Ok(CreatedJson {
            dry_run: false,
            serving: true,
            notes: made.notes,
            array: self.placed(running.json()?),
        })
    }

    pub(crate) fn remember(&self, paths: impl Iterator<Item = PathBuf>) {
        let paths: Vec<PathBuf> = paths.collect();
        if let Err(error) = self.dir.remember_files(&paths) {
            tracing::warn!(%error, "the members' paths are not remembered");
        }
    }

    /// Remembers again what is known of arrays that run: what was remembered of them is gone.
    pub(crate) fn remember_running(&self) {
        for running in self.all_running() {
            running.remember(&self.dir, |_| ());
            let files = running.files().unwrap_or_default();
            self.remember(files.into_iter());
        }
    }

    /// Makes NBD sockets again where their files are gone.
    pub(crate) fn listen_again(&self) -> Result<(), Failure> {
        let all = self.all_running();
        all.iter()
            .map(|running| running.listen_again())
            .fold(Ok(()), Result::and)
    }

    /// How to start what is asked for.
    pub(super) fn how(&self, export: Option<String>, force: bool) -> Start {
        Start {
            export,
            force,
            left_behind: locked(&self.left_behind).clone(),
            ..Start::of_daemon(self.limits)
        }
    }

    pub(super) fn start_found(
        &self,
        found: &FoundArray,
        how: &Start,
    ) -> Result<Arc<Running>, Failure> {
        self.check_serving(how.name.as_ref().unwrap_or(found.name()), found)?;
        let running = Arc::new(running::start(&self.dir, &self.events, found, how)?);
        self.remember(found.members.iter().map(|m| absolute(&m.path)));
        locked(&self.stopped).remove(&found.uuid);
        locked(&self.running).insert(found.uuid, Arc::clone(&running));
        Ok(running)
    }

    /// Starts an array that the watcher found.
    pub(crate) fn start_by_itself(&self, found: &FoundArray, whole: bool) -> Result<(), Failure> {
        let keys = vec![found.uuid.to_string(), found.name().to_string()];
        let _change = self.changes.try_begin("a start", keys)?;
        if self.is_running(found.uuid) || self.is_stopped(found.uuid) {
            return Ok(());
        }
        self.check_alone(found)?;
        let how = Start {
            whole,
            ..self.how(None, false)
        };
        self.start_found(found, &how).map(|_| ())
    }

    /// Starts an array as a user asks.
    pub(crate) fn start(&self, name: &str, request: StartRequest) -> Result<ArrayJson, Failure> {
        running::check_export(request.export.as_deref())?;
        if let Some(running) = self.find_serving(name) {
            return running.json().map(|array| self.placed(array));
        }
        find::answering(&self.looks, &find::expand(&request.devices))?;
        let found = self.pick_named(self.scan(&request.devices), name, &request.devices)?;
        let keys = vec![found.uuid.to_string(), found.name().to_string()];
        let _change = self.changes.begin_holding("strake start", keys)?;
        // Somebody else may have started it meanwhile.
        if let Some(running) = self.find_serving(name) {
            return running.json().map(|array| self.placed(array));
        }
        let found = match request.devices.is_empty() {
            false => cut_off::counted(&found).unwrap_or(found),
            true => found,
        };
        let own = || Ok::<_, Failure>(self.dir.try_placement(found.uuid)?.degraded);
        let whole = request.by_rule && own()? == Some(OwnRule::Never);
        if whole && found.readiness() == Readiness::Degraded {
            return Err(degraded::refused(found.name().as_str()));
        }
        let how = Start {
            whole,
            named: !request.devices.is_empty(),
            ..self.how(request.export.clone(), request.force)
        };
        let told = |failure| opening::with_strangers(failure, &found, &request.devices);
        if request.dry_run {
            let would_wipe = self.may_start(&found, &how).map_err(told)?;
            return Ok(ArrayJson {
                would_wipe,
                ..self.placed(found.stopped_json())
            });
        }
        let started = self.start_found(&found, &how).map_err(told)?;
        keep_export(&self.dir, found.uuid, request.export.as_deref());
        Ok(self.placed(started.json()?))
    }

    /// Whether an array found would be started so, and what would be wiped off its members.
    pub(super) fn may_start(
        &self,
        found: &FoundArray,
        how: &Start,
    ) -> Result<Vec<String>, Failure> {
        self.check_serving(how.name.as_ref().unwrap_or(found.name()), found)?;
        running::may_start(&self.dir, found, how)
    }

    /// Wipes the superblocks of a stopped array.
    pub(crate) fn destroy(&self, name: &str, dry_run: bool) -> Result<OutcomeJson, Failure> {
        let mut keys = self.keys(name);
        if self.find_running(name).is_none() {
            let found = self.pick(self.scan(&[]), name)?;
            keys.extend([found.uuid.to_string(), found.name().to_string()]);
        }
        let _change = self.changes.begin_holding("strake destroy", keys)?;
        if let Some(running) = self.find_running(name) {
            running.not_in_use()?;
            let cure = format!("strake stop {name} first");
            return Err(Failure::new(Code::ArrayInUse, format!("{name} is running")).cure(cure));
        }
        let found = self.pick(self.scan(&[]), name)?;
        let name = found.name().as_str();
        left::delete_unused(&self.dir, found.uuid, name, left::Before::Destroy, dry_run)?;
        let seats = self.dir.seats(found.uuid);
        let last = |slot| seats.device_of(slot).map(Path::to_owned);
        let destroyed = destroy::found(&found, last, &self.dir.rid_of(&found), dry_run)?;
        if dry_run {
            return Ok(outcome(name, false, &destroyed.what));
        }
        let notes = self.dir.was_destroyed(&found, &destroyed);
        self.events.note(Happened {
            array: Some(found.name().to_string()),
            uuid: Some(found.uuid.to_string()),
            event: "destroyed",
            cause: Some("asked".to_owned()),
            effect: Some(destroyed.what.clone()),
            ..Happened::default()
        });
        let done = outcome(name, true, &destroyed.what).noted(&notes);
        destroyed.failure.map_or(Ok(done), Err)
    }

    /// Takes a member out of service.
    pub(crate) fn fail(&self, name: &str, request: &MemberRequest) -> Result<OutcomeJson, Failure> {
        let _change = self.change("strake fail", name, request.dry_run)?;
        let running = self.running(name)?;
        let member = request.member.as_str();
        let found = running.member(member)?;
        // A device means that very device: in a slot that is being replaced there are two.
        let command = match (member.parse::<u8>(), found.slot, found.device) {
            (Ok(_), Some(slot), _) => Command::Fail(slot),
            (Err(_), _, Some(device)) => Command::FailDevice(device),
            _ => Command::Fail(slot_of(&running, member)?),
        };
        let would = || {
            let shown = shown(&running, &found)?;
            Ok(format!("would take {member} ({shown}) out of service"))
        };
        let done = format!("{member} is out of service");
        carry_out(&running, command, request.dry_run, would, &done)
            .map_err(|why| about_member(&running, &found, why))
    }

    /// Forgets a member or spare.
    pub(crate) fn remove(
        &self,
        name: &str,
        request: &MemberRequest,
    ) -> Result<OutcomeJson, Failure> {
        let _change = self.change("strake remove", name, request.dry_run)?;
        let running = self.running(name)?;
        let member = request.member.as_str();
        let found = running.member(member)?;
        let command = Command::Remove(Running::reference(&found)?);
        let would = || {
            Ok(format!(
                "would forget {member} ({})",
                shown(&running, &found)?
            ))
        };
        let done = format!("{member} removed");
        carry_out(&running, command, request.dry_run, would, &done)
            .map_err(|why| about_member(&running, &found, why))
    }

    /// Adds a spare, or replaces a member where the request names one.
    pub(crate) fn add(&self, name: &str, request: DeviceRequest) -> Result<OutcomeJson, Failure> {
        let device = request
            .device
            .as_deref()
            .ok_or_else(|| Failure::new(Code::BadRequest, "a device is needed"))?;
        let path = absolute(device);
        // Before the change: a device that hangs would hold up others of the array.
        let serves = |running: Arc<Running>| running.serves(&path);
        let asked = !self.find_running(name).is_some_and(serves);
        if asked {
            find::answering(&self.looks, std::slice::from_ref(&path))?;
        }
        let by = match request.member {
            Some(_) => "strake replace",
            None => "strake add",
        };
        let _change = self.change_holding(by, name)?;
        let running = self.running(name)?;
        let name = running.name();
        let name = name.as_str();
        let shown = path.display().to_string();
        let slot = match &request.member {
            Some(member) => Some(slot_of(&running, member)?),
            None => None,
        };
        match (running.serves(&path), slot) {
            (false, _) => {}
            (true, None) => {
                let what = format!("{shown} is in service already");
                return Ok(outcome(name, false, &what));
            }
            (true, Some(_)) => running.not_joined(&path)?,
        }
        if !asked {
            // It was in service, and left it meanwhile: perhaps for its silence.
            find::answering(&self.looks, std::slice::from_ref(&path))?;
        }
        let own = own_superblock(&path, running.uuid);
        let status = running.status()?;
        let back = match &own {
            Ok(Some(own)) => returns(own, &status.superblock),
            _ => Returns::Afresh,
        };
        let kept = slot.is_none() && matches!(back, Returns::Kept(_));
        let holds =
            |image: MemberImage| image.emptied.is_none() && status.lacks(&image.map).is_none();
        let kept = kept && find::look(&path)?.is_some_and(holds);
        // What somebody else has written since is not believed, whatever is permitted.
        let kept = kept && (!request.force || reused::is_still_ours(&path)?);
        let layout = own.as_ref().ok().and_then(|own| Some(own.as_ref()?.layout));
        let permit = Permit {
            force: request.force,
            own: Some(running.uuid),
            half_made: None,
            data: layout.filter(|_| kept).as_ref().map(safety::data_of),
        };
        self.none_in_service(std::slice::from_ref(&path))?;
        let wipe = safety::check(std::slice::from_ref(&path), permit)?;
        own?;
        not_apart(back, &path, request.force)?;
        if !kept {
            may_take(&running, &path, slot)?;
        }
        let mut notes = joining_notes(&running, std::slice::from_ref(&path))?;
        if request.dry_run {
            safety::may_hold(std::slice::from_ref(&path))?;
            let what = would_take(slot, kept, &shown);
            return Ok(outcome(name, false, &what).noted(&notes));
        }
        // Before it is a member: a daemon that is killed then finds it again.
        notes.extend(self.dir.not_remembered(name, std::slice::from_ref(&path)));
        let held = safety::hold(std::slice::from_ref(&path), &wipe, permit)?;
        let device = held.into_iter().next().expect("one path, one device");
        let changed = take_in(&running, device, slot, kept)?;
        if changed && !running.serves(&path) {
            let found = format!("{shown} failed as {name} took it in, and is out again");
            return Err(Failure::new(Code::DeviceSilent, found));
        }
        Ok(outcome(name, changed, &was_taken(slot, kept, &shown)).noted(&notes))
    }

    /// Takes a member back that the watcher found, if it was only away: what failed, or was put out
    /// by an administrator, waits for a word. Whether it was taken back.
    pub(crate) fn return_by_itself(
        &self,
        running: &Running,
        found: &find::FoundMember,
    ) -> Result<bool, Failure> {
        if self
            .dir
            .spares(running.uuid)
            .is_away(found.image.superblock.member)
        {
            return self.add_again(running, found);
        }
        let _change = self.change_running("the return of a member", running, &[])?;
        let own = &found.image.superblock;
        let status = running.status()?;
        let table = &status.superblock;
        let Returns::Kept(slot) = returns(own, table) else {
            return Ok(false);
        };
        let missing = table.slot(slot).map(|row| row.state) == Some(SlotState::Missing);
        let older = status.lacks(&found.image.map).is_some();
        if !missing || older || running.serves(&found.path) {
            return Ok(false);
        }
        if found.image.emptied.is_some() {
            // The present user of the device is named.
            reused::still_ours(&Device::open(&found.path, OpenMode::ReadOnly)?)?;
            return Ok(false);
        }
        safety::not_in_use(sysfs::identity(&found.path)?, &found.path)?;
        let device = Device::open(&found.path, OpenMode::Member)?;
        take_in(running, device, None, true)
    }

    /// Adds a spare again that the array lost only because it was not there when it started.
    fn add_again(&self, running: &Running, found: &find::FoundMember) -> Result<bool, Failure> {
        let lists = |table: Superblock| table.spares.contains(&found.image.superblock.member);
        if found.image.emptied.is_some() || lists(running.status()?.superblock) {
            return Ok(false);
        }
        let request = DeviceRequest {
            member: None,
            device: Some(found.path.clone()),
            force: false,
            dry_run: false,
        };
        Ok(self.add(running.name().as_str(), request)?.changed)
    }
}

/// Carries a command out; a dry run asks whether it may be, and says what it would do.
fn carry_out(
    running: &Running,
    command: Command,
    dry_run: bool,
    would: impl FnOnce() -> Result<String, Failure>,
    done: &str,
) -> Result<OutcomeJson, Failure> {
    let name = running.name();
    if dry_run {
        running.preflight(command)?;
        return Ok(outcome(name.as_str(), false, &would()?));
    }
    Ok(outcome(name.as_str(), running.command(command)?, done))
}

/// A refusal to do without a member, with which one.
fn about_member(running: &Running, member: &MemberStatus, why: Failure) -> Failure {
    match (why.code, shown(running, member), member.slot) {
        (Code::WouldFail | Code::MemberInUse, Ok(shown), Some(slot)) => {
            why.about(format!("slot {slot} of {} ({shown})", running.name()))
        }
        _ => why,
    }
}

/// A member's device and state, for a message that says what would become of it.
fn shown(running: &Running, member: &MemberStatus) -> Result<String, Failure> {
    let device = member.device.map(|device| running.path(device));
    let device = device.transpose()?;
    let device = device.unwrap_or_else(|| "no device".to_owned());
    Ok(format!(
        "{device}, {} now",
        view::member_state(member.state)
    ))
}

/// What an array that is to be made may take of this machine; checked before anything is written.
pub(crate) fn placement_of(
    request: &CreateRequest,
    usual_shards: u16,
) -> Result<PlacementRecord, Failure> {
    let placement = PlacementRecord::default().with(Wanted::of_create(request))?;
    if placement.memory_limit_bytes.is_some() {
        let rehearsal = CreateRequest {
            dry_run: true,
            ..request.clone()
        };
        let made = make::make(&rehearsal, &[], |_, _| Ok(()))?;
        let export = running::parse_export(request.export.as_deref().unwrap_or("auto"))?;
        let enough = placement.check_memory(&made.superblock, export, usual_shards);
        let of_create = |failure: Failure| match failure.code {
            Code::MemoryShort | Code::MemoryLimit => failure.cure(
                "give another --memory-limit, or fewer --shards; for all arrays: strake daemon \
                 --memory",
            ),
            _ => failure,
        };
        enough.map_err(of_create)?;
    }
    Ok(placement)
}

/// Remembers, also for later starts, how an array is to be served, if something was said.
pub(crate) fn keep_export(dir: &Dir, array: ArrayUuid, export: Option<&str>) {
    let Some(export) = export else { return };
    let keep = |mut record: PlacementRecord| {
        if record.export.as_deref() == Some(export) {
            return Ok(());
        }
        record.export = Some(export.to_owned());
        dir.place(array, &record)
    };
    // What cannot be read is not overwritten.
    if let Err(failure) = dir.try_placement(array).and_then(keep) {
        tracing::warn!(%failure, "the export is not remembered");
    }
}

/// Whether the array would take this device, as a spare or to replace the member in `slot`: asked
/// before what is on the device is overwritten.
pub(super) fn may_take(running: &Running, path: &Path, slot: Option<Slot>) -> Result<(), Failure> {
    let infos = safety::infos(&[path.to_owned()])?;
    let joins = running.with(|s| Ok(s.may_join(&infos, Joining::Spares)?));
    joins.map_err(|failure| match failure.code {
        Code::DeviceTooSmall | Code::MixedBlocks => failure.about(path.display()),
        _ => failure,
    })?;
    let rebuilds = |m: &MemberStatus| m.slot == slot && m.state == MemberState::Rebuilding;
    match slot.is_some() && running.status()?.members.iter().any(rebuilds) {
        true => Err(CommandError::Rebuilding.into()),
        false => Ok(()),
    }
}

/// What would become of a device.
fn would_take(slot: Option<Slot>, kept: bool, shown: &str) -> String {
    match slot {
        Some(slot) => format!("would rebuild slot {slot} onto {shown}"),
        None if kept => format!("would take {shown} back as the member that it was"),
        None => format!("would add {shown}"),
    }
}

/// What became of it.
fn was_taken(slot: Option<Slot>, kept: bool, shown: &str) -> String {
    match slot {
        Some(slot) => format!("slot {slot} is being rebuilt onto {shown}"),
        None if kept => {
            format!("{shown} is back: only what was written meanwhile is rebuilt onto it")
        }
        None => format!("{shown} added"),
    }
}

/// What these devices pay for being members of the array.
pub(super) fn joining_notes(running: &Running, paths: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let members = running.with(|s| Ok(s.granularity_bytes()))?;
    let strip = u64::from(running.status()?.superblock.user_strip_bytes());
    let infos = safety::infos(paths)?;
    let each = paths.iter().zip(&infos);
    let note = each.filter_map(|(path, info)| {
        let device = path.display().to_string();
        notes::of_joining(&device, info.granularity_bytes, members, strip)
    });
    let mut notes: Vec<String> = note.collect();
    let json = running.json()?;
    let before: Vec<PathBuf> = json
        .members_and_spares()
        .filter_map(|m| m.device.as_ref().map(PathBuf::from))
        .collect();
    notes.extend(make::of_devices(&before, paths));
    Ok(notes)
}

/// Gives the device to the array: to replace the member in `slot`, as the member that it was
/// (`kept`), or as a new one.
pub(super) fn take_in(
    running: &Running,
    device: Device,
    slot: Option<Slot>,
    kept: bool,
) -> Result<bool, Failure> {
    let info = device.info();
    // Read again: only now is it certain that nobody else writes it.
    if kept {
        reused::still_ours(&device)?;
    }
    let image = kept.then(|| device.read_member()).transpose()?;
    running.command_with(device, |device| {
        let member = MemberUuid(make::random_uuid());
        let new = NewDevice {
            device,
            info,
            member,
        };
        match (slot, image) {
            (Some(slot), _) => Command::Replace(slot, new),
            (None, Some(image)) => Command::Return(Returning {
                device,
                info,
                copy_to_replace: image.copy_to_replace,
                emptied: image.emptied,
                map: image.map,
                superblock: Box::new(image.superblock),
            }),
            (None, None) => Command::Add(new),
        }
    })
}

/// Refuses a device that may hold acknowledged writes that the array lacks, unless they may go.
pub(super) fn not_apart(back: Returns, path: &Path, force: bool) -> Result<(), Failure> {
    if back != Returns::SplitBrain || force {
        return Ok(());
    }
    let cure = "the same with --force overwrites what it holds";
    let failure = Failure::from(CommandError::SplitBrain).about(path.display());
    Err(failure.cure(cure))
}

/// The superblock of a device that carries one of this array.
pub(super) fn own_superblock(
    path: &Path,
    array: ArrayUuid,
) -> Result<Option<Box<Superblock>>, Failure> {
    let image = find::look(path)?.map(|image| Box::new(image.superblock));
    Ok(image.filter(|superblock| superblock.array == array))
}

/// The slot of the member that a user means.
pub(super) fn slot_of(running: &Running, member: &str) -> Result<Slot, Failure> {
    running.member(member)?.slot.ok_or_else(|| {
        let found = format!("{member} is a spare of {}", running.name());
        Failure::new(Code::MemberNotFound, found).cure("name a slot or the device in it")
    })
}

/// An outcome.
pub(crate) fn outcome(array: &str, changed: bool, what: &str) -> OutcomeJson {
    OutcomeJson {
        array: array.to_owned(),
        changed,
        what: what.to_owned(),
        notes: Vec::new(),
        ended: None,
        scrub: None,
    }
}

/// What was made, as JSON.
pub(crate) fn created_json(
    made: &make::Made,
    placement: &PlacementRecord,
    dry_run: bool,
) -> CreatedJson {
    let path = |member: MemberUuid| {
        made.paths
            .iter()
            .find(|(m, _)| *m == member)
            .map(|(_, path)| path.clone())
    };
    let mut array = view::stopped(&made.superblock, &[], &[], path);
    if made.unwritten {
        array.unwritten_bytes = array.size_bytes;
    }
    CreatedJson {
        dry_run,
        serving: false,
        notes: made.notes.clone(),
        array: view::with_placement(array, placement),
    }
}

/// An array that was made and did not start: what a refusal says of a start, that nothing was
/// written, is not so.
fn made_not_started(failure: Failure, name: &str) -> Failure {
    let what = format!("{name} was made and did not start: {}", failure.found);
    let cure = format!("mend that, and strake start {name}; or strake destroy {name}");
    Failure::new(failure.code, what).cure(cure)
}

/// Where a block of an array that does not run lies.
pub(crate) fn explain_offline(found: &FoundArray, lba: u64) -> Result<ExplainJson, Failure> {
    let members = found.stopped_json().members;
    let image = &found.authority().image;
    let state = |_, region| view::region_in(&image.superblock, &image.map, region);
    let lost = image.lost_bytes().unwrap_or_default();
    let undecided = view::undecided_in(&image.superblock, &image.map);
    view::explain(&image.superblock, &members, lba, &lost, &undecided, state)
}
