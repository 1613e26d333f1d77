//! Devices in pools of spares: which devices carry a label, writing labels, taking them away.
//!
//! Invariants: a device with a whole superblock is in no pool, whatever label lies beside it; a
//! label is written and wiped only by the process that holds the device, after looking again.
//! Deliberately absent: which array takes from which pool, and when (the daemon's).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use strake_engine::event::DeviceInfo;
use strake_format::*;
use strake_runtime::{Device, DeviceError, OpenMode};

use crate::api::{ScanDeviceJson, ScanJson};
use crate::common::errors::{Code, Failure};
use crate::common::partly::Partly;
use crate::drives::machine::looks::Looks;
use crate::drives::machine::stack::Stack;
use crate::drives::machine::sysfs;
use crate::drives::make;
use crate::drives::make::random_uuid;
use crate::drives::reused;
use crate::drives::safety;
use crate::drives::safety::Permit;

/// A device in a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolDevice {
    pub(crate) path: PathBuf,
    pub(crate) info: DeviceInfo,
    pub(crate) label: PoolLabel,
}

/// The devices found of one pool, in order of path.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) uuid: PoolUuid,
    pub(crate) devices: Vec<PoolDevice>,
}

impl Pool {
    /// Its name.
    pub(crate) fn name(&self) -> &ArrayName {
        &self
            .devices
            .first()
            .expect("a pool found has a device")
            .label
            .name
    }
    /// Why a device of it is not used: another carries the same label, and nobody knows which of
    /// the two it is.
    pub(crate) fn twice(&self, device: &PoolDevice) -> Option<Failure> {
        let mut others = self
            .devices
            .iter()
            .filter(|other| other.path != device.path);
        let other = others.find(|other| other.label.device == device.label.device)?;
        let found = format!(
            "{} and {} are copies of one device of the pool {}",
            device.path.display(),
            other.path.display(),
            self.name()
        );
        let cure = format!(
            "take the copy away, or out of the pool: strake pool remove {} DEV",
            self.name()
        );
        Some(Failure::new(Code::MemberTwice, found).cure(cure))
    }
    /// Has it this name or uuid?
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name().as_str() == name || self.uuid.to_string() == name
    }
    /// As `scan` tells it.
    pub(crate) fn scan_json(&self) -> ScanJson {
        let device = |device: &PoolDevice| ScanDeviceJson {
            device: device.path.display().to_string(),
            uuid: device.label.device.to_string(),
            slot: None,
            state: "pool".to_owned(),
            epoch: 0,
            problem: self.twice(device).map(|why| why.found),
            held: None,
            also: Vec::new(),
        };
        ScanJson {
            name: self.name().to_string(),
            uuid: self.uuid.to_string(),
            level: "pool".to_owned(),
            members: 0,
            found: self.devices.len(),
            members_found: 0,
            spares: 0,
            spares_found: 0,
            destroyed: None,
            state: "pool".to_owned(),
            reason: None,
            moving: None,
            devices: self.devices.iter().map(device).collect(),
            overwritten: Vec::new(),
            unread: Vec::new(),
        }
    }
}

/// The label of a device, if it is in a pool.
pub(crate) fn label_of(device: &Device) -> Result<Option<PoolLabel>, Failure> {
    let info = device.info();
    if info.bytes < 2 * POOL_LABEL_BYTES as u64 {
        return Ok(None);
    }
    match device.read_member() {
        Ok(_) => return Ok(None),
        // What is left of a member counts for nothing beside a whole label.
        Err(DeviceError::NotStrake(_) | DeviceError::Damaged { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(labels_of(device).into_iter().flatten().next())
}

/// What lies in the two places; a copy that cannot be read is none.
fn labels_of(device: &Device) -> [Option<PoolLabel>; 2] {
    Layout::superblock_offsets(device.info().bytes).map(|offset| {
        let mut block = [0; POOL_LABEL_BYTES];
        device.read_at(offset, &mut block).ok()?;
        PoolLabel::decode(&block, offset).ok()
    })
}

/// Pools among these devices, in order of name. What cannot be read is left out; the same device
/// under two names counts once.
pub(crate) fn find(paths: &[PathBuf]) -> Vec<Pool> {
    let each = sysfs::each_once(paths).devices;
    group(each.iter().filter_map(|(path, _)| device_at(path)))
}

/// The same; a device that does not answer is not waited for.
pub(crate) fn find_within(looks: &Looks, paths: &[PathBuf]) -> Found {
    let answers = looks.each(paths, device_at);
    Found {
        pools: group(answers.found.into_iter().flatten()),
        silent: answers.silent,
    }
}

/// Pools found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) pools: Vec<Pool>,
    /// Devices that did not answer: they may be in any of them.
    pub(crate) silent: Vec<PathBuf>,
}

fn device_at(path: &Path) -> Option<PoolDevice> {
    let device = Device::open(path, OpenMode::ReadOnly).ok()?;
    let label = label_of(&device).ok()??;
    Some(PoolDevice {
        path: path.to_owned(),
        info: device.info(),
        label,
    })
}

fn group(devices: impl Iterator<Item = PoolDevice>) -> Vec<Pool> {
    let mut pools: BTreeMap<(ArrayName, PoolUuid), Vec<PoolDevice>> = BTreeMap::new();
    let key = |device: &PoolDevice| (device.label.pool, device.label.device);
    let once = Stack::default().each_drive_once(devices.collect(), key, |d| &d.path);
    for (found, _) in once {
        let key = (found.label.name.clone(), found.label.pool);
        pools.entry(key).or_default().push(found);
    }
    let mut pools: Vec<Pool> = pools
        .into_iter()
        .map(|((_, uuid), devices)| Pool { uuid, devices })
        .collect();
    pools
        .iter_mut()
        .for_each(|pool| pool.devices.sort_by(|a, b| a.path.cmp(&b.path)));
    pools
}

/// The one pool of that name or uuid.
pub(crate) fn pick(pools: Vec<Pool>, name: &str) -> Result<Pool, Failure> {
    let found = pools.into_iter().filter(|pool| pool.is_called(name));
    let mut found: Vec<Pool> = found.collect();
    match found.len() {
        0 => Err(Failure::new(
            Code::PoolNotFound,
            format!("no device of a pool {name} was found"),
        )),
        1 => Ok(found.remove(0)),
        _ => {
            let uuids: Vec<String> = found.iter().map(|pool| pool.uuid.to_string()).collect();
            let what = format!("two pools are called {name}: {}", uuids.join(", "));
            Err(Failure::new(Code::PoolAmbiguous, what))
        }
    }
}

/// Could a device like this be a spare of the array? If not, why.
pub(crate) fn fits(sb: &Superblock, info: &DeviceInfo) -> Result<(), String> {
    if info.block_bytes > sb.block_bytes {
        let (has, takes) = (info.block_bytes, sb.block_bytes);
        return Err(format!("blocks of {has} bytes, it has {takes}"));
    }
    match sb.layout.for_device(info.bytes, sb.strip_bytes) {
        Ok(_) => Ok(()),
        Err(_) => Err(format!("{} bytes are too few", info.bytes)),
    }
}

/// Refuses a device that is in a pool.
pub(crate) fn not_in_a_pool(device: &Device, permit: Permit) -> Result<(), Failure> {
    match label_of(device) {
        Ok(Some(label)) if !permit.force => {
            let found = format!("{} is in the pool {}", device.path().display(), label.name);
            Err(Failure::new(Code::DeviceInPool, found))
        }
        _ => Ok(()),
    }
}

/// Refuses devices that no array could take: what `create` asks of the members of the smallest
/// array, a mirror of two such.
pub(crate) fn fit_for_any(paths: &[PathBuf]) -> Result<(), Failure> {
    for (path, info) in paths.iter().zip(safety::infos(paths)?) {
        make::may_be_member(path, info)?;
    }
    Ok(())
}

/// Puts devices into a pool. They were checked ([`safety::check`]); `foreign` are those that lose
/// their signatures first. One that cannot be labelled keeps none of the others from it.
///
/// # Errors
/// No device was labelled.
pub(crate) fn label(
    paths: &[PathBuf],
    foreign: &[PathBuf],
    (pool, name): (PoolUuid, &ArrayName),
    permit: Permit,
) -> Result<Partly, Failure> {
    let devices = safety::hold(paths, foreign, permit)?;
    let mut partly = Partly::default();
    for device in &devices {
        let label = PoolLabel {
            pool,
            name: name.clone(),
            device: MemberUuid(random_uuid()),
            device_bytes: device.info().bytes,
        };
        partly.note(device.path(), write(device, &label));
    }
    Ok(partly)
}

/// Writes a label, or leaves none if that can be had.
fn write(device: &Device, label: &PoolLabel) -> Result<(), Failure> {
    let places = Layout::superblock_offsets(device.info().bytes);
    let written = places.iter().try_for_each(|&offset| {
        device.write_at(offset, &label.encode(offset)[..])?;
        device.flush()
    });
    written.map_err(|error| {
        let failure = Failure::from(error);
        match reused::wipe(device, &places) {
            Ok(()) => failure,
            Err(_) => {
                let shown = device.path().display();
                let found = format!(
                    "{}; {shown} may have got a label, which could not be wiped again",
                    failure.found
                );
                Failure { found, ..failure }
            }
        }
    })
}

/// Takes a device out of its pool.
pub(crate) fn unlabel(path: &Path, pool: PoolUuid) -> Result<(), Failure> {
    let device = Device::open(path, OpenMode::Member)?;
    if label_of(&device)?.map(|label| label.pool) != Some(pool) {
        let found = format!("{} is not in this pool any more", path.display());
        return Err(Failure::new(Code::PoolNotFound, found));
    }
    reused::wipe(&device, &Layout::superblock_offsets(device.info().bytes))
}

/// Opens a device of a pool for an array that takes it: held, still in the pool, and nothing else
/// by now.
pub(crate) fn hold(found: &PoolDevice) -> Result<Option<Device>, Failure> {
    let device = Device::open(&found.path, OpenMode::Member)?;
    let still = label_of(&device)?.is_some_and(|label| label == found.label);
    reused::still_ours(&device)?;
    Ok(Some(device).filter(|_| still))
}
