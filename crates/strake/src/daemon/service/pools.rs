//! Pools of spares: devices that wait for whichever of several arrays needs one first.
//!
//! Protocol: an array that is allowed to (`pool`, a setting of this machine) and has a slot that
//! nobody fills, none is waited for, and no spare of its own gets the smallest device of the pool
//! that fits, by the way of `strake add`. Its superblock is written over the pool's label, so a
//! crash leaves the device in one of the two.
//!
//! Invariants: a pool is what devices carry, no file tells of it; nothing is taken where two pools
//! have the name. Deliberately absent: giving a device back to a pool by itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use strake_engine::event::{ArrayState, Command, MemberState, MemberStatus};
use strake_format::{ArrayUuid, PoolUuid, Slot, Superblock};

use crate::api::{PoolDeviceJson, PoolDone, PoolJson, PoolRequest, PoolUserJson};
use crate::common::absolute;
use crate::common::errors::{Code, Failure};
use crate::daemon::array::running::Running;
use crate::daemon::changes::POOLS;
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

    fn found(&self) -> Vec<Pool> {
        match self.looks {
            Some(looks) => pool::find_within(looks, &self.paths),
            None => pool::find(&self.paths),
        }
    }

    /// The one of that name or uuid.
    pub(crate) fn pick(&self, name: &str) -> Result<Pool, Failure> {
        pool::pick(self.found(), name)
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
        let found = self.found();
        let mut all: Vec<PoolJson> = found.iter().map(|pool| json(pool, &users)).collect();
        for (name, _) in &users {
            if !all.iter().any(|pool| pool.name == *name) {
                all.push(PoolJson {
                    name: name.clone(),
                    uuid: None,
                    devices: Vec::new(),
                    arrays: users_of(name, &[], &users),
                });
            }
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
    pub(crate) fn create(&self, name: &str, request: &PoolRequest) -> Result<PoolDone, Failure> {
        let parsed = parse_name(name)?;
        if name == NONE {
            let found = format!("'{NONE}' says that an array takes from no pool");
            return Err(Failure::new(Code::NameInvalid, found));
        }
        if self.found().iter().any(|pool| *pool.name() == parsed) {
            let found = format!("a pool {name} exists already");
            return Err(Failure::new(Code::PoolExists, found));
        }
        self.put(&parsed, PoolUuid(random_uuid()), request)
    }

    /// Adds devices to a pool.
    pub(crate) fn add(&self, name: &str, request: &PoolRequest) -> Result<PoolDone, Failure> {
        let pool = self.pick(name)?;
        let rest = request.devices.iter().map(|path| absolute(path));
        let rest = rest.filter(|path| !pool.devices.iter().any(|device| device.path == *path));
        let request = PoolRequest {
            devices: rest.collect(),
            ..request.clone()
        };
        self.put(pool.name(), pool.uuid, &request)
    }

    fn put(
        &self,
        name: &strake_format::ArrayName,
        uuid: PoolUuid,
        request: &PoolRequest,
    ) -> Result<PoolDone, Failure> {
        let paths: Vec<PathBuf> = request.devices.iter().map(|path| absolute(path)).collect();
        if paths.is_empty() {
            return Ok(done(name.as_str(), false, "the devices are in it already"));
        }
        let permit = Permit {
            force: request.force,
            own: None,
            half_made: None,
            data: None,
        };
        none_served_by(&self.running, &paths)?;
        let foreign = safety::check(&paths, permit)?;
        pool::fit_for_any(&paths)?;
        let shown: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let mut what = match request.dry_run {
            true => format!("would add {}", shown.join(", ")),
            false => format!("{} added", shown.join(", ")),
        };
        for misfit in self.misfits(name.as_str(), &paths)? {
            what.push_str("; ");
            what.push_str(&misfit);
        }
        if request.dry_run {
            safety::may_hold(&paths)?;
            return Ok(done(name.as_str(), false, &what));
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
            what.push_str(&format!(
                "; files in it are not remembered ({error}), and found only by strake daemon \
                 --scan FILE"
            ));
        }
        pool::label(&paths, &foreign, (uuid, name), permit)?;
        Ok(done(name.as_str(), true, &what))
    }

    /// Which of these devices are of no use to which arrays that may take from the pool.
    fn misfits(&self, name: &str, paths: &[PathBuf]) -> Result<Vec<String>, Failure> {
        let users = self.users();
        let mut misfits = Vec::new();
        for path in paths {
            let info =
                strake_runtime::Device::open(path, strake_runtime::OpenMode::ReadOnly)?.info();
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
    pub(crate) fn remove(&self, name: &str, request: &PoolRequest) -> Result<PoolDone, Failure> {
        let pool = self.pick(name)?;
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
        for path in &wanted {
            if !pool.devices.iter().any(|device| device.path == *path) {
                let found = format!("{} is not in the pool {name}", path.display());
                let cure = "strake pool show lists the devices of each pool";
                return Err(Failure::new(Code::PoolNotFound, found).cure(cure));
            }
        }
        let shown: Vec<String> = wanted
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let last = if wanted.len() == pool.devices.len() {
            "; the pool has no device any more"
        } else {
            ""
        };
        let shown = shown.join(", ");
        if request.dry_run {
            return Ok(done(name, false, &format!("would remove {shown}{last}")));
        }
        let what = format!("{shown} removed{last}");
        for path in &wanted {
            pool::unlabel(path, pool.uuid)?;
        }
        // Remembered in vain is harmless.
        let _ = self.dir.forget_files(&wanted);
        Ok(done(name, true, &what))
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

fn done(pool: &str, changed: bool, what: &str) -> PoolDone {
    PoolDone {
        pool: pool.to_owned(),
        changed,
        what: what.to_owned(),
    }
}

fn json(pool: &Pool, users: &[(String, FoundArray)]) -> PoolJson {
    let device = |device: &PoolDevice| PoolDeviceJson {
        device: device.path.display().to_string(),
        uuid: device.label.device.to_string(),
        size_bytes: device.info.bytes,
        block_bytes: device.info.block_bytes,
    };
    let name = pool.name().to_string();
    PoolJson {
        uuid: Some(pool.uuid.to_string()),
        devices: pool.devices.iter().map(device).collect(),
        arrays: users_of(&name, &pool.devices, users),
        name,
    }
}

fn users_of(
    name: &str,
    devices: &[PoolDevice],
    users: &[(String, FoundArray)],
) -> Vec<PoolUserJson> {
    let of = users.iter().filter(|(pool, _)| pool == name);
    of.map(|(_, array)| PoolUserJson {
        name: array.name().to_string(),
        fitting: fitting(&array.authority().image.superblock, devices).len(),
    })
    .collect()
}

/// Devices that can be a spare of the array, the smallest first.
fn fitting<'a>(sb: &Superblock, devices: &'a [PoolDevice]) -> Vec<&'a PoolDevice> {
    let fit = |device: &&PoolDevice| pool::fits(sb, &device.info).is_ok();
    let mut fitting: Vec<&PoolDevice> = devices.iter().filter(fit).collect();
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

    /// Changes a pool as an administrator asks.
    pub(crate) fn pool_change(
        &self,
        change: impl FnOnce(&Pools<'_>) -> Result<PoolDone, Failure>,
    ) -> Result<PoolDone, Failure> {
        let _change = self.changes.begin(vec![POOLS.to_owned()])?;
        let done = change(&self.pools())?;
        self.pools_changed();
        if done.changed {
            self.events.note(Happened {
                event: "pool_changed",
                cause: Some("asked".to_owned()),
                effect: Some(format!("{}: {}", done.pool, done.what)),
                ..Happened::default()
            });
        }
        Ok(done)
    }

    /// Gives devices of pools to arrays that need one and have none of their own.
    pub(crate) fn feed_from_pools(&self) {
        for running in self.all_running() {
            if let Err(failure) = self.feed(&running) {
                tracing::warn!(
                    array = %running.name(), %failure, "nothing was taken from its pool"
                );
            }
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
            let _change = self.change_running(running, &[])?;
            running.command(Command::SparesElsewhere(may))?;
        }
        if !has_pool {
            return Ok(());
        }
        let _change = self.change_running(running, &[POOLS])?;
        let wants = |member: &&MemberStatus| member.wants_spare;
        let status = running.status()?;
        let mut wanting = status.members.iter().filter(wants);
        if wanting.clone().next().is_none() {
            // Where the pool had nothing for a member that was failed then, it may have by now.
            if !waits {
                self.pool_tries.with(|tries| tries.remove(&running.uuid));
            }
            return Ok(());
        }
        if waits {
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
            self.events.note(Happened {
                array: Some(running.name().to_string()),
                event: "pool_has_no_spare",
                cause: self.dir.placement(running.uuid).pool.map(why),
                effect: Some("add a device that fits to the pool, or to the array".to_owned()),
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
    fn pool_devices(&self, running: &Running) -> Result<Vec<PoolDevice>, Failure> {
        let Some(name) = self.dir.placement(running.uuid).pool else {
            return Ok(Vec::new());
        };
        match self.pools().pick(&name) {
            Ok(pool) => {
                let sb = running.status()?.superblock;
                Ok(fitting(&sb, &pool.devices).into_iter().cloned().collect())
            }
            Err(failure) if failure.code == Code::PoolNotFound => Ok(Vec::new()),
            Err(failure) => Err(failure),
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
        let worn = |path: &Path| {
            let as_worn = |from| health::of(path).is_ok_and(|h| h.percentage_used >= from);
            worn_from.is_some_and(as_worn)
        };
        let mut refused = None;
        for found in &self.pool_devices(running)? {
            let device = match pool::hold(found) {
                Ok(Some(device)) => device,
                // Somebody else has it: the next.
                Ok(None) => continue,
                Err(failure) => {
                    tracing::warn!(
                        device = %found.path.display(), %failure, "not taken from its pool"
                    );
                    continue;
                }
            };
            if worn(&found.path) {
                continue;
            }
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
