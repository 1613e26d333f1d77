//! Pools of spares: devices that wait for whichever of several arrays needs one first.
//!
//! Protocol: an array that is allowed to (`pool`, a setting of this machine) and has a slot that
//! nobody fills, none is waited for, and no spare of its own gets the smallest device of the pool
//! that fits, by the way of `strake add`. Its superblock is written over the pool's label, so a
//! crash leaves the device in one of the two.
//!
//! Invariants: a pool is what devices carry, no file tells of it; nothing is taken where two pools
//! have the name. A device that does not answer costs its own pool and nothing else: each pool has
//! a key of its own (`changes`), devices are looked at for a bounded time (`looks`), and each array
//! takes its spares on a thread of its own (`tasks`). Deliberately absent: giving a device back to
//! a pool by itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use strake_engine::event::{ArrayState, Command, MemberState, MemberStatus};
use strake_format::{ArrayUuid, PoolUuid, Slot, Superblock};
use strake_runtime::{Device, OpenMode};

use crate::api::{PoolDeviceJson, PoolDone, PoolJson, PoolRequest, PoolUserJson};
use crate::common::absolute;
use crate::common::errors::{Code, Failure};
use crate::common::partly::{self, Partly};
use crate::daemon::array::running::Running;
use crate::daemon::changes::pool_key;
use crate::daemon::events::Happened;
use crate::daemon::service::upkeep::none_served_by;
use crate::daemon::service::{Service, take_in};
use crate::daemon::state::Dir;
use crate::drives::find;
use crate::drives::find::FoundArray;
use crate::drives::machine::health;
use crate::drives::machine::looks::Looks;
use crate::drives::make::random_uuid;
use crate::drives::pool;
use crate::drives::pool::{Pool, PoolDevice};
use crate::drives::safety;
use crate::drives::safety::Permit;
use crate::settings::words::parse_name;

/// How often arrays are looked at that may take from a pool.
pub(crate) const PERIOD: Duration = Duration::from_secs(2);
/// So long after a pool had nothing for an array all devices are read again.
const PAUSE: Duration = Duration::from_secs(60);
/// What `pool=` says where an array is to take from none.
pub(crate) const NONE: &str = "none";

/// What becomes of pools, with a daemon or without.
#[derive(Debug)]
pub(crate) struct Pools<'a> {
    dir: &'a Dir,
    /// Every device and file to look at.
    paths: Vec<PathBuf>,
    /// Of a daemon: one that hangs must not keep it.
    looks: Option<&'a Looks>,
    /// Arrays that the daemon serves.
    running: Vec<Arc<Running>>,
}

impl<'a> Pools<'a> {
    /// Those on these devices.
    pub(crate) fn new(dir: &'a Dir, paths: Vec<PathBuf>) -> Pools<'a> {
        Pools {
            dir,
            paths,
            looks: None,
            running: Vec::new(),
        }
    }

    fn found(&self) -> pool::Found {
        match self.looks {
            Some(looks) => pool::find_within(looks, &self.paths),
            None => pool::Found {
                pools: pool::find(&self.paths),
                silent: Vec::new(),
            },
        }
    }

    /// The one of that name or uuid.
    pub(crate) fn pick(&self, name: &str) -> Result<Pool, Failure> {
        self.pick_of(self.found(), name)
    }

    fn pick_of(&self, found: pool::Found, name: &str) -> Result<Pool, Failure> {
        let silent = may_be_in_it(&found.silent);
        pool::pick(found.pools, name).map_err(|failure| match failure.code {
            Code::PoolNotFound => Failure {
                found: format!("{}{silent}", failure.found),
                ..failure
            },
            _ => failure,
        })
    }

    /// Refuses devices that do not answer: a change of a pool would wait for them.
    pub(crate) fn answering(&self, paths: &[PathBuf]) -> Result<(), Failure> {
        self.looks
            .map_or(Ok(()), |looks| find::answering(looks, paths))
    }

    /// Arrays found, with the name of the pool that each may take from.
    fn users(&self) -> Vec<(String, FoundArray)> {
        let members = match self.looks {
            Some(looks) => find::members_within(looks, &self.paths),
            None => find::members(&self.paths),
        };
        let all = find::group(members).into_iter();
        let with = |array: FoundArray| Some((self.dir.placement(array.uuid).pool?, array));
        all.filter_map(with).collect()
    }

    /// All, as `pool show` tells them; also such that arrays are to take from, and have no device.
    pub(crate) fn show(&self) -> Vec<PoolJson> {
        let users = self.users();
        let pool::Found { pools, silent } = self.found();
        let mut all: Vec<PoolJson> = pools.iter().map(|pool| json(pool, &users)).collect();
        for (name, _) in &users {
            if !all.iter().any(|pool| pool.name == *name) {
                all.push(PoolJson {
                    name: name.clone(),
                    uuid: None,
                    devices: Vec::new(),
                    arrays: users_of(name, None, &users),
                    silent: Vec::new(),
                });
            }
        }
        let silent: Vec<String> = silent.iter().map(|p| p.display().to_string()).collect();
        for pool in &mut all {
            pool.silent.clone_from(&silent);
        }
        all
    }

    /// One of them.
    pub(crate) fn show_one(&self, name: &str) -> Result<PoolJson, Failure> {
        let is = |pool: &PoolJson| pool.name == name || pool.uuid.as_deref() == Some(name);
        let mut found: Vec<PoolJson> = self.show().into_iter().filter(is).collect();
        match found.len() {
            1 => Ok(found.remove(0)),
            // Says which of the two it is.
            _ => Err(self.pick(name).err().unwrap_or_else(|| {
                Failure::new(Code::PoolNotFound, format!("no pool {name} was found"))
            })),
        }
    }

    /// Makes a pool of devices.
    pub(crate) fn create(&self, name: &str, request: &PoolRequest) -> Result<Changed, Failure> {
        let parsed = parse_name(name)?;
        if name == NONE {
            let found = format!("'{NONE}' says that an array takes from no pool");
            return Err(Failure::new(Code::NameInvalid, found));
        }
        let found = self.found();
        if found.pools.iter().any(|pool| *pool.name() == parsed) {
            let found = format!("a pool {name} exists already");
            return Err(Failure::new(Code::PoolExists, found));
        }
        let mut changed = self.put(&parsed, PoolUuid(random_uuid()), request)?;
        if !found.silent.is_empty() {
            let silent = partly::all(&found.silent);
            let note = format!("; {silent}: no answer, a pool {name} may be there already");
            changed.done.what.push_str(&note);
        }
        Ok(changed)
    }

    /// Adds devices to a pool.
    pub(crate) fn add(&self, name: &str, request: &PoolRequest) -> Result<Changed, Failure> {
        let pool = self.pick(name)?;
        let mut rest = Vec::new();
        for path in request.devices.iter().map(|path| absolute(path)) {
            match pool.devices.iter().find(|device| device.path == path) {
                Some(device) => pool.twice(device).map_or(Ok(()), Err)?,
                None => rest.push(path),
            }
        }
        let request = PoolRequest {
            devices: rest,
            ..request.clone()
        };
        self.put(pool.name(), pool.uuid, &request)
    }

    fn put(
        &self,
        name: &strake_format::ArrayName,
        uuid: PoolUuid,
        request: &PoolRequest,
    ) -> Result<Changed, Failure> {
        let paths: Vec<PathBuf> = request.devices.iter().map(|path| absolute(path)).collect();
        if paths.is_empty() {
            let what = "the devices are in it already";
            return Ok(Changed::whole(name.as_str(), false, what));
        }
        self.answering(&paths)?;
        let permit = Permit {
            force: request.force,
            own: None,
            half_made: None,
            data: None,
        };
        none_served_by(&self.running, &paths)?;
        let foreign = safety::check(&paths, permit)?;
        pool::fit_for_any(&paths)?;
        let mut notes = String::new();
        for misfit in self.misfits(name.as_str(), &paths)? {
            notes.push_str("; ");
            notes.push_str(&misfit);
        }
        if request.dry_run {
            safety::may_hold(&paths)?;
            let what = format!("would add {}{notes}", partly::all(&paths));
            return Ok(Changed::whole(name.as_str(), false, &what));
        }
        // Before: a daemon that is killed when labels are written finds them again. A folder that
        // cannot be written makes a user name files again; block devices are found.
        let remembered = self.dir.make().map_err(|failure| failure.found);
        let remembered = remembered.and_then(|()| {
            let kept = self.dir.remember_files(&paths);
            kept.map_err(|error| error.to_string())
        });
        let file = |path: &PathBuf| path.is_file();
        if let Some(error) = remembered.err().filter(|_| paths.iter().any(file)) {
            notes.push_str(&format!(
                "; files in it are not remembered ({error}), and found only by strake daemon \
                 --scan FILE"
            ));
        }
        let labelled = pool::label(&paths, &foreign, (uuid, name), permit)?;
        let cure = format!("mend that; strake pool add {name} DEV adds those that are not in it");
        Changed::of(name.as_str(), &labelled, "added", &notes, cure)
    }

    /// Which of these devices are of no use to which arrays that may take from the pool.
    fn misfits(&self, name: &str, paths: &[PathBuf]) -> Result<Vec<String>, Failure> {
        let users = self.users();
        let mut misfits = Vec::new();
        for path in paths {
            let info = Device::open(path, OpenMode::ReadOnly)?.info();
            for (_, array) in users.iter().filter(|(pool, _)| pool == name) {
                if let Err(why) = pool::fits(&array.authority().image.superblock, &info) {
                    let shown = path.display();
                    misfits.push(format!("{shown} is no spare for {}: {why}", array.name()));
                }
            }
        }
        Ok(misfits)
    }

    /// Takes devices out of a pool; none: all of them, and with them the pool.
    pub(crate) fn remove(&self, name: &str, request: &PoolRequest) -> Result<Changed, Failure> {
        let found = self.found();
        let silent = may_be_in_it(&found.silent);
        let pool = self.pick_of(found, name)?;
        if request.devices.is_empty() && !request.all {
            let found = "no device is named".to_owned();
            return Err(Failure::new(Code::Usage, found).cure("name them, or say all"));
        }
        let wanted: Vec<PathBuf> = match request.all {
            true => pool
                .devices
                .iter()
                .map(|device| device.path.clone())
                .collect(),
            false => request.devices.iter().map(|path| absolute(path)).collect(),
        };
        self.answering(&wanted)?;
        for path in &wanted {
            if !pool.devices.iter().any(|device| device.path == *path) {
                let found = format!("{} is not in the pool {name}", path.display());
                let cure = "strake pool show lists the devices of each pool";
                return Err(Failure::new(Code::PoolNotFound, found).cure(cure));
            }
        }
        let last = match wanted.len() == pool.devices.len() {
            true if silent.is_empty() => "; the pool has no device any more".to_owned(),
            true => format!("; no other device of the pool was found{silent}"),
            false => String::new(),
        };
        if request.dry_run {
            let what = format!("would remove {}{last}", partly::all(&wanted));
            return Ok(Changed::whole(name, false, &what));
        }
        let mut removed = Partly::default();
        for path in &wanted {
            removed.note(path, pool::unlabel(path, pool.uuid));
        }
        // Remembered in vain is harmless.
        let _ = self.dir.forget_files(removed.done());
        let cure = format!("mend that, and remove the others again: strake pool remove {name} DEV");
        Changed::of(name, &removed, "removed", &last, cure)
    }
}

/// That devices which do not answer may be in a pool, behind what else is said of it.
fn may_be_in_it(silent: &[PathBuf]) -> String {
    match silent {
        [] => String::new(),
        silent => format!(" ({}: no answer, perhaps in it)", partly::all(silent)),
    }
}

/// It is not known whether a pool has a device for an array.
fn silent(pool: &str, silent: &[PathBuf]) -> Failure {
    let found = format!(
        "no device of the pool {pool} that fits was found{}",
        may_be_in_it(silent)
    );
    let cure = "look at the kernel log; mend these devices, or remove them from the machine \
                (echo 1 > /sys/block/NAME/device/delete), and try again";
    Failure::new(Code::DeviceSilent, found).cure(cure)
}

/// What became of a pool.
#[derive(Debug)]
pub(crate) struct Changed {
    /// What was done.
    done: PoolDone,
    /// Why not all that was asked for was done.
    failure: Option<Failure>,
}

impl Changed {
    fn whole(pool: &str, changed: bool, what: &str) -> Changed {
        Changed {
            done: PoolDone {
                pool: pool.to_owned(),
                changed,
                what: what.to_owned(),
            },
            failure: None,
        }
    }

    /// Of devices that were `did` one after the other; `notes` if all of them were.
    fn of(
        pool: &str,
        partly: &Partly,
        did: &str,
        notes: &str,
        cure: String,
    ) -> Result<Changed, Failure> {
        let failure = partly.failure(did).map(|failure| failure.cure(cure));
        let notes = if failure.is_some() { "" } else { notes };
        let what = format!("{} {did}{notes}", partly::all(partly.done()));
        match failure {
            Some(failure) if partly.done().is_empty() => Err(failure),
            failure => Ok(Changed {
                failure,
                ..Changed::whole(pool, true, &what)
            }),
        }
    }

    /// What is answered.
    ///
    /// # Errors
    /// Not all was done that was asked for.
    pub(crate) fn answer(self) -> Result<PoolDone, Failure> {
        self.failure.map_or(Ok(self.done), Err)
    }
}

/// A pool that an array is to take from must be there: a name that is spelt wrongly would only be
/// noticed when it is needed.
pub(crate) fn check_named(pools: &Pools<'_>, name: Option<&str>) -> Result<(), Failure> {
    match name {
        Some(name) if name != NONE => pools.pick(name).map(|_| ()),
        _ => Ok(()),
    }
}

fn json(pool: &Pool, users: &[(String, FoundArray)]) -> PoolJson {
    let device = |device: &PoolDevice| PoolDeviceJson {
        device: device.path.display().to_string(),
        uuid: device.label.device.to_string(),
        size_bytes: device.info.bytes,
        block_bytes: device.info.block_bytes,
        problem: pool.twice(device).map(|why| why.found),
    };
    let name = pool.name().to_string();
    PoolJson {
        uuid: Some(pool.uuid.to_string()),
        devices: pool.devices.iter().map(device).collect(),
        arrays: users_of(&name, Some(pool), users),
        name,
        silent: Vec::new(),
    }
}

fn users_of(name: &str, pool: Option<&Pool>, users: &[(String, FoundArray)]) -> Vec<PoolUserJson> {
    let of = users.iter().filter(|(pool, _)| pool == name);
    of.map(|(_, array)| PoolUserJson {
        name: array.name().to_string(),
        fitting: pool.map_or(0, |pool| {
            fitting(&array.authority().image.superblock, pool).len()
        }),
    })
    .collect()
}

/// Devices of a pool that can be a spare of the array, the smallest first; none of which there are
/// copies.
fn fitting<'a>(sb: &Superblock, pool: &'a Pool) -> Vec<&'a PoolDevice> {
    let once = pool.devices.iter().filter(|d| pool.twice(d).is_none());
    let fit = |device: &&PoolDevice| pool::fits(sb, &device.info).is_ok();
    let mut fitting: Vec<&PoolDevice> = once.filter(fit).collect();
    fitting.sort_by_key(|device| (device.info.bytes, &device.path));
    fitting
}

/// When pools had nothing for an array; all devices are not read for it again at once.
#[derive(Debug, Default)]
pub(crate) struct Tries(Mutex<BTreeMap<ArrayUuid, Instant>>);

impl Tries {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<ArrayUuid, Instant>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Service {
    /// The pools on this machine.
    pub(crate) fn pools(&self) -> Pools<'_> {
        Pools {
            looks: Some(&self.looks),
            running: self.all_running(),
            ..Pools::new(&self.dir, self.paths())
        }
    }

    /// Arrays for which pools had nothing look again.
    pub(super) fn pools_changed(&self) {
        self.pool_tries.with(BTreeMap::clear);
    }

    /// What a change of this pool holds: what it is called here, and its name and uuid where it is
    /// found. Devices are looked at, so no key is held meanwhile.
    fn pool_keys(&self, called: &str) -> Vec<String> {
        let found = self.pools().found().pools.into_iter();
        let meant = found.filter(|pool| pool.is_called(called));
        let both = meant.flat_map(|pool| [pool.name().to_string(), pool.uuid.to_string()]);
        let all = both.chain([called.to_owned()]);
        all.map(|name| pool_key(&name)).collect()
    }

    /// The same of the pool that an array takes from.
    pub(super) fn own_pool_keys(&self, running: &Running) -> Vec<String> {
        let named = self.dir.placement(running.uuid).pool;
        named.map_or_else(Vec::new, |named| self.pool_keys(&named))
    }

    /// Changes a pool as an administrator asks; `looks_only`: as a dry run that holds no device.
    pub(crate) fn pool_change(
        &self,
        by: &'static str,
        name: &str,
        looks_only: bool,
        request: &PoolRequest,
        change: impl FnOnce(&Pools<'_>, &PoolRequest) -> Result<Changed, Failure>,
    ) -> Result<PoolDone, Failure> {
        let _change = self.changes.begin(by, self.pool_keys(name), looks_only)?;
        let changed = change(&self.pools(), request)?;
        self.pools_changed();
        if changed.done.changed {
            let done = &changed.done;
            let left = changed.failure.as_ref();
            let left = left.map_or_else(String::new, |failure| format!("; {}", failure.found));
            self.events.note(Happened {
                event: "pool_changed",
                cause: Some("asked".to_owned()),
                effect: Some(format!("{}: {}{left}", done.pool, done.what)),
                ..Happened::default()
            });
        }
        changed.answer()
    }

    /// Gives devices of pools to arrays that need one and have none of their own.
    pub(crate) fn feed_from_pools(self: &Arc<Service>) {
        self.each(&self.tasks.feed, |_| true, Service::feed_by_itself);
    }

    fn feed_by_itself(&self, running: &Running) {
        match self.feed(running) {
            Ok(()) => {}
            // It is tried again in a moment.
            Err(failure) if failure.code == Code::ChangeUnderWay => {
                tracing::debug!(array = %running.name(), %failure, "nothing was taken yet");
            }
            Err(failure) => tracing::warn!(
                array = %running.name(), %failure, "nothing was taken from its pool"
            ),
        }
    }

    fn feed(&self, running: &Running) -> Result<(), Failure> {
        let tried = self
            .pool_tries
            .with(|tries| tries.get(&running.uuid).copied());
        let waits = tried.is_some_and(|at| at.elapsed() < PAUSE);
        let has_pool = self.dir.placement(running.uuid).pool.is_some();
        let status = running.status()?;
        let may = has_pool && !waits;
        // One that has failed takes no commands, and would be told again and again.
        let serves = matches!(status.state, ArrayState::Optimal | ArrayState::Degraded);
        if serves && may != status.spares_elsewhere {
            let _change = self.change_running("a look at its pool", running, &[])?;
            running.command(Command::SparesElsewhere(may))?;
        }
        if !has_pool {
            return Ok(());
        }
        let wants = |member: &&MemberStatus| member.wants_spare;
        if !status.members.iter().any(|member| wants(&member)) {
            // Where the pool had nothing for a member that was failed then, it may have by now.
            if !waits {
                self.pool_tries.with(|tries| tries.remove(&running.uuid));
            }
            return Ok(());
        }
        if waits {
            return Ok(());
        }
        let _change = self.change_running(
            "a spare from its pool",
            running,
            &self.own_pool_keys(running),
        )?;
        let status = running.status()?;
        let mut wanting = status.members.iter().filter(wants);
        if wanting.clone().next().is_none() {
            return Ok(());
        }
        self.pool_tries
            .with(|tries| tries.insert(running.uuid, Instant::now()));
        // Slots that nobody fills come first: there a spare of the array is used by itself.
        let serves = |member: &MemberStatus| member.state == MemberState::InSync;
        let all_serve = wanting.clone().all(serves);
        let failing = wanting.find_map(|member| member.slot).filter(|_| all_serve);
        let taken = self.take_from_pool(running, failing, None);
        if let Ok(Some(_)) = taken {
            // Where more slots are empty, the next look takes the next.
            self.pool_tries.with(|tries| tries.remove(&running.uuid));
        } else if tried.is_none() {
            let why = |pool| match &taken {
                Err(failure) => format!("pool {pool}: {}: {}", failure.code.name(), failure.found),
                Ok(_) => format!("pool {pool}"),
            };
            let effect = match &taken {
                Err(failure) if failure.code == Code::DeviceSilent => {
                    "mend what gives no answer, or add a device that fits to the array"
                }
                _ => "add a device that fits to the pool, or to the array",
            };
            self.events.note(Happened {
                array: Some(running.name().to_string()),
                event: "pool_has_no_spare",
                cause: self.dir.placement(running.uuid).pool.map(why),
                effect: Some(effect.to_owned()),
                ..Happened::default()
            });
        }
        let taken = taken.map(|_| ());
        if self
            .pool_tries
            .with(|tries| tries.contains_key(&running.uuid))
        {
            // A member with too many read errors waits no longer.
            running.command(Command::SparesElsewhere(false))?;
        }
        taken
    }

    /// The device that the array would be given.
    pub(super) fn pool_device(&self, running: &Running) -> Result<Option<String>, Failure> {
        let first = self.pool_devices(running)?.into_iter().next();
        Ok(first.map(|device| device.path.display().to_string()))
    }

    /// Those of its pool that fit, the smallest first.
    ///
    /// # Errors
    /// None was found, and devices gave no answer that may be in it.
    fn pool_devices(&self, running: &Running) -> Result<Vec<PoolDevice>, Failure> {
        let Some(name) = self.dir.placement(running.uuid).pool else {
            return Ok(Vec::new());
        };
        let pools = self.pools();
        let found = pools.found();
        let unknown = match found.silent.as_slice() {
            [] => Ok(Vec::new()),
            devices => Err(silent(&name, devices)),
        };
        match pools.pick_of(found, &name) {
            Ok(pool) => {
                let sb = running.status()?.superblock;
                let fitting: Vec<_> = fitting(&sb, &pool).into_iter().cloned().collect();
                let twice = pool.devices.iter().find_map(|device| pool.twice(device));
                match twice.filter(|_| fitting.is_empty()) {
                    Some(why) => Err(why),
                    None if fitting.is_empty() => unknown,
                    None => Ok(fitting),
                }
            }
            Err(failure) if failure.code == Code::PoolNotFound => unknown,
            Err(failure) => Err(failure),
        }
    }

    /// A device of a pool, held, if it may be taken: it answers, is in the pool still, and is not
    /// as worn as `worn_from`.
    fn hold(&self, found: &PoolDevice, worn_from: Option<u8>) -> Option<Device> {
        let wanted = found.clone();
        let look = move |path: &Path| -> Result<Option<Device>, Failure> {
            let held = pool::hold(&wanted)?;
            let as_worn = |from| health::of(path).is_ok_and(|h| h.percentage_used >= from);
            // Somebody else has it, or it would relieve nobody.
            Ok(held.filter(|_| !worn_from.is_some_and(as_worn)))
        };
        let mut answers = self.looks.each(std::slice::from_ref(&found.path), look);
        let device = found.path.display();
        match answers.found.pop() {
            Some(Ok(held)) => held,
            Some(Err(failure)) => {
                tracing::warn!(%device, %failure, "not taken from its pool");
                None
            }
            None => {
                tracing::warn!(%device, "not taken from its pool: gone, or no answer");
                None
            }
        }
    }

    /// Gives the array the smallest device of its pool that fits: as a spare, or to replace the
    /// member in `slot`. Which one; `None` where there is none, or no pool. Drives that are as worn
    /// as `worn_from` relieve nobody. Under `change`.
    pub(super) fn take_from_pool(
        &self,
        running: &Running,
        slot: Option<Slot>,
        worn_from: Option<u8>,
    ) -> Result<Option<String>, Failure> {
        let mut refused = None;
        for found in &self.pool_devices(running)? {
            let Some(device) = self.hold(found, worn_from) else {
                continue;
            };
            if let Err(failure) = take_in(running, device, slot, false) {
                // That one; another may do.
                tracing::warn!(device = %found.path.display(), %failure, "not taken from its pool");
                refused = Some(failure);
                continue;
            }
            self.remember(std::iter::once(found.path.clone()));
            let shown = found.path.display().to_string();
            self.events.note(Happened {
                array: Some(running.name().to_string()),
                event: "pool_spare_taken",
                slot: slot.map(|slot| slot.0),
                device: Some(shown.clone()),
                cause: Some(format!("pool {}", found.label.name)),
                effect: Some("it belongs to the array now".to_owned()),
                ..Happened::default()
            });
            let name = found.label.name.to_string();
            let none = matches!(self.pools().pick(&name), Err(f) if f.code == Code::PoolNotFound);
            // A device that does not answer may be in it.
            if none && self.all_read() {
                self.events.note(Happened {
                    array: Some(running.name().to_string()),
                    event: "pool_empty",
                    cause: Some(format!("pool {name}")),
                    effect: Some(format!(
                        "strake pool create {name} DEV gives it another spare"
                    )),
                    ..Happened::default()
                });
            }
            return Ok(Some(shown));
        }
        refused.map_or(Ok(None), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::array::running::Limits;
    use crate::daemon::sources::Sources;

    #[test]
    fn a_change_of_one_pool_that_hangs_refuses_none_of_another() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = |name: &str| {
            let path = folder.path().join(name);
            let file = std::fs::File::create(&path).expect("made");
            file.set_len(32 << 20).expect("sparse");
            path
        };
        let dir = Dir::at(&folder.path().join("run"));
        dir.make().expect("folders");
        let service = Service::new(dir, Sources::default(), Limits::default());
        let request = |name: &str| PoolRequest {
            devices: vec![path(name)],
            ..PoolRequest::default()
        };
        let create = |name: &str| {
            let request = request(name);
            service.pool_change("a test", name, false, &request, |pools, request| {
                pools.create(name, request)
            })
        };
        create("p").expect("made");
        let uuid = service.pools().pick("p").expect("found").uuid.to_string();
        let hangs = service
            .changes
            .begin("a test", service.pool_keys("p"), false);
        let hangs = hangs.expect("nothing else is under way");
        create("q").expect("made");
        for name in ["p", &uuid] {
            let keys = service.pool_keys(name);
            let refused = service.changes.try_begin("a test", keys).map(|_| ());
            assert_eq!(refused.map_err(|f| f.code), Err(Code::ChangeUnderWay));
        }
        drop(hangs);
    }
}
