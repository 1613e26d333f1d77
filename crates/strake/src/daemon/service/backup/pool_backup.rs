//! Pools of spares in a backup, and pools that are made again by it.
//!
//! A device in a pool carries its label and nothing else that is of worth. Where both places of the
//! label are overwritten, nothing on the device tells that it was in a pool: it is recognised by
//! what the drive calls itself (its wwid) where the kernel tells that, else by its path; and by its
//! size.
//!
//! Order: no device of the pool is left in it → the devices → none of them is a member, in another
//! pool, or holds what an array of the backup has lost → nobody uses them, nothing foreign lies
//! there → labels. Invariant: nothing is written before all of that is known of all of them;
//! `force` is about foreign signatures, and region maps of arrays that nobody knows.
//!
//! Deliberately absent: devices that were taken out, or that an array took: what is left of a pool
//! is left as it is.

use std::path::{Path, PathBuf};

use strake_format::region_map::PAGE_BYTES;
use strake_format::{ArrayName, ArrayUuid, MapPage, PoolUuid};
use strake_runtime::{Device, OpenMode};

use crate::api::config::{BackupPoolDeviceJson, BackupPoolJson, RestoreRequest, RestoredPoolJson};
use crate::common::errors::{Code, Failure};
use crate::common::partly::Partly;
use crate::daemon::changes::pool_key;
use crate::daemon::events::Happened;
use crate::daemon::service::Service;
use crate::daemon::service::backup::uuid;
use crate::drives::find;
use crate::drives::find::{FoundArray, Readiness};
use crate::drives::machine::sysfs;
use crate::drives::pool;
use crate::drives::pool::Pool;
use crate::drives::safety;
use crate::drives::safety::Permit;
use crate::settings::NO_POOL;
use crate::settings::words::parse_name;

/// Region maps lie before this, bytes, or begin there.
const HEAD_BYTES: u64 = 4 << 20;

/// These pools, as a backup has them.
pub(crate) fn of_pools(pools: &[Pool]) -> Vec<BackupPoolJson> {
    let device = |found: &pool::PoolDevice| BackupPoolDeviceJson {
        uuid: found.label.device.to_string(),
        device: found.path.clone(),
        size_bytes: found.info.bytes,
        wwid: sysfs::wwid(&found.path),
    };
    let one = |pool: &Pool| BackupPoolJson {
        name: pool.name().to_string(),
        uuid: pool.uuid.to_string(),
        devices: pool.devices.iter().map(device).collect(),
    };
    pools.iter().map(one).collect()
}

impl Service {
    /// Makes a pool of a backup again, if no device of it is left.
    pub(super) fn restore_pool(
        &self,
        entry: &BackupPoolJson,
        request: &RestoreRequest,
    ) -> Result<RestoredPoolJson, Failure> {
        let answer = |restored, what: String, devices: &[PathBuf]| RestoredPoolJson {
            name: entry.name.clone(),
            restored,
            what,
            devices: devices.iter().map(|d| d.display().to_string()).collect(),
        };
        let name = parse_name(&entry.name)?;
        let id: PoolUuid = uuid(&entry.uuid)?;
        if entry.name == NO_POOL {
            let found = format!("'{}' says that an array takes from no pool", NO_POOL);
            return Err(Failure::new(Code::NameInvalid, found));
        }
        let keys = vec![pool_key(&entry.name), pool_key(&entry.uuid)];
        let mut paths = self.paths();
        paths.extend(find::expand(&request.devices));
        paths.extend(entry.devices.iter().map(|told| told.device.clone()));
        // As for an array: before the change.
        find::ask(&self.looks, &paths);
        let _change = self.changes.begin_holding("strake config restore", keys)?;
        let found = pool::find_within(&self.looks, &paths).pools;
        if let Some(pool) = found.iter().find(|pool| pool.uuid == id) {
            let there: Vec<PathBuf> = pool.devices.iter().map(|d| d.path.clone()).collect();
            return Ok(answer(false, still_there(entry, pool), &there));
        }
        if found.iter().any(|pool| *pool.name() == name) {
            let what = format!("there is another pool called {name}");
            let cure = "strake pool delete it, or restore the others by name";
            return Err(Failure::new(Code::PoolExists, what).cure(cure));
        }
        let devices = devices_of(entry, &paths, |devices| self.pools().answering(devices))?;
        let arrays = find::group(find::members_within(&self.looks, &paths));
        let permit = Permit {
            force: request.force,
            ..Permit::default()
        };
        safety::distinct(&devices)?;
        for path in &devices {
            self.is_free(path, request, &arrays)?;
        }
        self.none_in_service(&devices)?;
        let foreign = safety::check(&devices, permit)?;
        pool::fit_for_any(&devices)?;
        let missing = entry.devices.len() - devices.len();
        let others = match missing {
            0 => String::new(),
            n => format!("; {n} more were not found"),
        };
        if request.dry_run {
            safety::may_hold(&devices)?;
            let what = format!("would be made again{others}");
            return Ok(answer(true, what, &devices));
        }
        // Before: a daemon that is killed when labels are written finds them again.
        self.remember(devices.iter().cloned());
        let labelled = pool::label(&devices, &foreign, (id, &name), permit)?;
        self.was_made_again(&name, &labelled, request)?;
        Ok(answer(true, format!("made again{others}"), &devices))
    }

    /// Notes that a pool was made again.
    ///
    /// # Errors
    /// Not of all its devices.
    fn was_made_again(
        &self,
        name: &ArrayName,
        labelled: &Partly,
        request: &RestoreRequest,
    ) -> Result<(), Failure> {
        if !labelled.done().is_empty() {
            self.pools_changed();
            self.events.note(Happened {
                event: "pool_changed",
                cause: Some(format!("asked, by the backup of {}", request.backup.taken)),
                effect: Some(format!("{name}: made again on {}", shown(labelled.done()))),
                ..Happened::default()
            });
        }
        let failure = labelled.failure(&format!("put into the pool {name} again"));
        let cure = format!("mend that; strake pool add {name} DEV adds those that are not in it");
        failure.map_or(Ok(()), |failure| Err(failure.cure(cure)))
    }

    /// Refuses a device that is in another pool, a member, or holds what an array has lost.
    fn is_free(
        &self,
        path: &Path,
        request: &RestoreRequest,
        arrays: &[FoundArray],
    ) -> Result<(), Failure> {
        let device = Device::open(path, OpenMode::ReadOnly)?;
        let cure = "name what else is to be restored: strake config restore FILE NAME";
        safety::not_serving(&device, Permit::default()).map_err(|f| f.cure(cure))?;
        safety::not_a_member(&device, Permit::default()).map_err(|f| f.cure(cure))?;
        pool::not_in_a_pool(&device, Permit::default()).map_err(|f| f.cure(cure))?;
        for array in maps_on(&device)? {
            let there = |found: &FoundArray| {
                let ready = matches!(found.readiness(), Readiness::Complete | Readiness::Degraded);
                found.uuid == array && ready
            };
            if self.is_running(array) || arrays.iter().any(there) {
                // It was a member of it once.
                continue;
            }
            let mut known = request.backup.arrays.iter();
            let known = known.find(|entry| entry.uuid == array.to_string());
            if known.is_none() && request.force {
                continue;
            }
            let name = known.map_or_else(|| array.to_string(), |entry| entry.name.clone());
            let shown = path.display();
            let found = format!("{shown} carries a region map of array {name}, which is not there");
            let cure = match known {
                Some(_) => "restore that array first, by its name",
                None => "if no data is missed that was on it, --force takes it",
            };
            return Err(Failure::new(Code::MemberOfArray, found).cure(cure));
        }
        Ok(())
    }
}

fn shown(devices: &[PathBuf]) -> String {
    let devices = devices.iter().map(|path| path.display().to_string());
    devices.collect::<Vec<_>>().join(", ")
}

/// That a pool is there, and which devices that it had are not in it.
fn still_there(entry: &BackupPoolJson, pool: &Pool) -> String {
    let is = |told: &&BackupPoolDeviceJson| {
        let mut devices = pool.devices.iter();
        !devices.any(|found| found.label.device.to_string() == told.uuid)
    };
    let gone = entry.devices.iter().filter(is);
    let gone: Vec<PathBuf> = gone.map(|told| told.device.clone()).collect();
    match gone.is_empty() {
        true => "is there".to_owned(),
        false => format!("is there; no more in it: {}", shown(&gone)),
    }
}

/// The devices of a pool that are found; refused where there is none. They are read after
/// `answering` has let them pass.
fn devices_of(
    entry: &BackupPoolJson,
    paths: &[PathBuf],
    answering: impl FnOnce(&[PathBuf]) -> Result<(), Failure>,
) -> Result<Vec<PathBuf>, Failure> {
    let there = entry.devices.iter();
    let alike = there.filter_map(|told| Some((alike(told, paths)?, told.size_bytes)));
    let (mut devices, sizes): (Vec<PathBuf>, Vec<u64>) = alike.unzip();
    answering(&devices)?;
    let mut sizes = sizes.into_iter();
    devices.retain(|path| bytes_of(path) == sizes.next());
    if devices.is_empty() {
        let what = format!("no device that was in the pool {} was found", entry.name);
        let cure = "strake pool create makes it of others, or name what else is to be restored";
        return Err(Failure::new(Code::PoolNotFound, what).cure(cure));
    }
    Ok(devices)
}

/// Where the device may be that was in a pool; it is not read.
fn alike(told: &BackupPoolDeviceJson, paths: &[PathBuf]) -> Option<PathBuf> {
    let alike = |path: &&PathBuf| match &told.wwid {
        Some(wwid) => sysfs::wwid(path).as_ref() == Some(wwid),
        None => **path == told.device && sysfs::wwid(path).is_none(),
    };
    paths.iter().find(alike).cloned()
}

fn bytes_of(path: &Path) -> Option<u64> {
    let device = Device::open(path, OpenMode::ReadOnly).ok()?;
    Some(device.info().bytes)
}

/// Arrays of which pages of the region map lie on this device.
fn maps_on(device: &Device) -> Result<Vec<ArrayUuid>, Failure> {
    let mut head = vec![0; HEAD_BYTES.min(device.info().bytes) as usize];
    device.read_at(0, &mut head)?;
    let pages = (0..).step_by(PAGE_BYTES).zip(head.chunks_exact(PAGE_BYTES));
    let mut arrays: Vec<ArrayUuid> = pages
        .filter_map(|(offset, bytes)| MapPage::decode(bytes, offset).ok())
        .map(|page| page.array)
        .collect();
    arrays.sort();
    arrays.dedup();
    Ok(arrays)
}
