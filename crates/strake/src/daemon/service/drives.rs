//! The drives that the daemon sees, and what each is used for.
//!
//! Invariants: nothing is written; a device that does not answer is not waited for, and is left
//! out unless an array has it; a device with several names is told once. What an array or a pool
//! has is known from there; only other devices are checked as new members are. Deliberately absent:
//! how drives wear (`upkeep`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use strake_runtime::{Device, OpenMode};

use crate::api::{ArrayJson, DriveJson, MemberJson, PoolJson};
use crate::common::errors::Failure;
use crate::daemon::service::Service;
use crate::drives::machine::sysfs::{self, Identity};
use crate::drives::safety::Permit;
use crate::drives::{pool, safety};

impl Service {
    /// All drives, in the order in which they are looked for.
    pub(crate) fn drives(&self) -> Vec<DriveJson> {
        let mut used: Vec<DriveJson> = self.show().iter().flat_map(of_array).collect();
        used.extend(self.pools().show().iter().flat_map(of_pool));
        let mut paths = self.paths();
        paths.extend(used.iter().map(|drive| PathBuf::from(&drive.device)));
        let paths = once_each(paths);
        let known: BTreeSet<Named> = used.iter().map(|drive| named(&drive.device)).collect();
        let answers = self.looks().each(&paths, move |path| {
            let is_used = known.contains(&named(path));
            look(path, is_used)
        });
        let mut drives: Vec<DriveJson> = Vec::new();
        for drive in answers.found {
            let name = named(&drive.device);
            let at = used.iter().position(|used| named(&used.device) == name);
            drives.push(match at {
                None => drive,
                Some(at) => DriveJson {
                    size_bytes: drive.size_bytes,
                    block_bytes: drive.block_bytes,
                    model: drive.model,
                    serial: drive.serial,
                    ..used.swap_remove(at)
                },
            });
        }
        // An array has them, and they do not answer.
        drives.append(&mut used);
        drives
    }
}

/// A device, whatever its path is called; by the path where nothing is there.
type Named = Result<Identity, PathBuf>;

fn named(path: impl AsRef<Path>) -> Named {
    let path = path.as_ref();
    sysfs::identity(path).map_err(|_| path.to_owned())
}

/// Paths, without further names of the same devices.
fn once_each(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let is_new = |path: &PathBuf| seen.insert(named(path));
    paths.into_iter().filter(is_new).collect()
}

/// What a device is by itself; whether an array could take it, where it is not used.
fn look(path: &Path, is_used: bool) -> DriveJson {
    let opened = Device::open(path, OpenMode::ReadOnly);
    let info = opened.as_ref().ok().map(Device::info);
    let (model, serial) = sysfs::model_and_serial(path);
    let problem = match (opened, is_used) {
        (_, true) => None,
        (Ok(_), false) => may_be_taken(path).err(),
        (Err(error), false) => Some(Failure::from(error)),
    };
    DriveJson {
        device: path.display().to_string(),
        size_bytes: info.map(|info| info.bytes),
        block_bytes: info.map(|info| info.block_bytes),
        model,
        serial,
        used_for: match problem {
            None => "free".to_owned(),
            Some(_) => "other".to_owned(),
        },
        problem: problem.map(|failure| failure.json()),
        ..DriveJson::default()
    }
}

fn may_be_taken(path: &Path) -> Result<(), Failure> {
    let paths = [path.to_owned()];
    safety::check(&paths, Permit::default())?;
    pool::fit_for_any(&paths)
}

fn of_array(array: &ArrayJson) -> Vec<DriveJson> {
    let member = |member: &MemberJson, used_for: &str| {
        Some(DriveJson {
            device: member.device.clone()?,
            used_for: used_for.to_owned(),
            array: Some(array.name.clone()),
            slot: member.slot,
            ..DriveJson::default()
        })
    };
    let members = array.members.iter().filter_map(|m| member(m, "member"));
    let spares = array.spares.iter().filter_map(|m| member(m, "spare"));
    members.chain(spares).collect()
}

fn of_pool(pool: &PoolJson) -> Vec<DriveJson> {
    let device = |device: &crate::api::PoolDeviceJson| DriveJson {
        device: device.device.clone(),
        used_for: "pool".to_owned(),
        pool: Some(pool.name.clone()),
        ..DriveJson::default()
    };
    pool.devices.iter().map(device).collect()
}
