//! ublk devices that an earlier daemon left in the kernel: those of an array that does not run,
//! what uses them, and their end.
//!
//! A device without a server answers nothing: a read of it waits, and so does `umount` of a file
//! system on it. Only a daemon that serves the array again (`--export ublk`) ends that wait.
//! Commands that end the array, or serve it in another way, ask here first.
//!
//! Invariants: a device that something uses is never deleted; a number is forgotten when the kernel
//! has no such device of this array any more, and not before. Deliberately absent: taking a device
//! over (runtime).

use std::sync::mpsc::channel;
use std::time::Duration;

use strake_format::{ArrayUuid, VolumeUuid};
use strake_runtime::UblkDevices;

use crate::common::errors::{Code, Failure};
use crate::daemon::array::users;
use crate::daemon::state::{ArrayRecord, Dir};

/// How long a look at the users of a device may take: longer than the wait for a process that only
/// looks at it. A device without a server may not even open.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);

/// A device of the kernel that belongs to an array which does not run, or to a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftDevice {
    /// N of /dev/ublkbN.
    pub(crate) id: u32,
    tag: u64,
    /// What it is, in words.
    of: String,
}

/// What asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Before<'a> {
    /// `strake destroy`.
    Destroy,
    /// `strake forget`: no drive of the array is there.
    Forget,
    /// `strake drive clean`.
    Clean,
    /// `strake create --force` on devices of the array.
    Create,
    /// A start with this export.
    Start(&'a str),
}

impl Before<'_> {
    /// What ends the wait of the device's users, and then allows what was asked.
    fn cure(self, array: &str) -> String {
        let again = format!(
            "to unmount it now would hang: strake start {array} --export ublk serves it again; \
             then unmount or close it, strake stop {array}"
        );
        match self {
            Before::Destroy => format!("{again}, and strake destroy {array}"),
            Before::Clean => format!("{again}, and clean the devices"),
            Before::Create => format!("{again}, and create the new array then"),
            Before::Start(export) => {
                format!("{again}, and strake start {array} --export {export}")
            }
            Before::Forget => format!(
                "to unmount it now would hang: bring the drives of {array} back, and strake start \
                 {array} --export ublk serves it again; without them only a restart of the machine \
                 ends its users' wait"
            ),
        }
    }
}

/// The kernel's devices of an array or a volume: first `remembered`, if it is one of them.
pub(crate) fn of(uuid: &[u8; 16], remembered: Option<u32>) -> Result<Vec<u32>, Failure> {
    match UblkDevices::open() {
        Ok(None) => Ok(Vec::new()),
        Ok(Some(mut devices)) => Ok(devices.of(UblkDevices::tag(uuid), remembered)?),
        // A user without the right to ask has none that is not remembered.
        Err(failure) => match remembered.filter(|&id| users::ublk_exists(id)) {
            Some(_) => Err(failure.into()),
            None => Ok(Vec::new()),
        },
    }
}

/// The devices of an array that does not run, as far as they are known here.
pub(crate) fn of_array(dir: &Dir, array: ArrayUuid) -> Result<Vec<LeftDevice>, Failure> {
    let record = dir.record(array);
    let name = record
        .as_ref()
        .map_or_else(|| array.to_string(), |r| r.name.clone());
    let mut all = own(array, record.as_ref(), &name)?;
    let record = record.into_iter();
    for (key, id) in record.clone().flat_map(|record| record.volumes) {
        let Ok(volume) = key.parse::<VolumeUuid>() else {
            continue;
        };
        let names = record.clone().map(|record| record.volume_names);
        let volume_name = names.filter_map(|names| names.get(&key).cloned()).next();
        let of_volume = format!("volume {} of {name}", volume_name.unwrap_or(key));
        all.extend(devices(&volume.0, Some(id), &of_volume)?);
    }
    Ok(all)
}

/// Those of the array itself.
pub(crate) fn own(
    array: ArrayUuid,
    record: Option<&ArrayRecord>,
    name: &str,
) -> Result<Vec<LeftDevice>, Failure> {
    let remembered = record.and_then(|record| record.ublk);
    devices(&array.0, remembered, &format!("array {name}"))
}

fn devices(
    uuid: &[u8; 16],
    remembered: Option<u32>,
    what: &str,
) -> Result<Vec<LeftDevice>, Failure> {
    let tag = UblkDevices::tag(uuid);
    let device = |id| LeftDevice {
        id,
        tag,
        of: what.to_owned(),
    };
    Ok(of(uuid, remembered)?.into_iter().map(device).collect())
}

/// What keeps a device busy that may have no server, by a look of a bounded time.
pub(crate) fn user(id: u32) -> Option<String> {
    let (found, user) = channel();
    let look = move || {
        // Nobody may wait any more.
        let _ = found.send(users::opener_of_ublk(id));
    };
    let silent = || format!("/dev/ublkb{id} does not answer");
    if let Err(error) = strake_runtime::spawn_thread("look", look) {
        return Some(format!("what uses /dev/ublkb{id} is not known: {error}"));
    }
    let user = user.recv_timeout(LOOK_PATIENCE);
    user.unwrap_or_else(|_| Some(silent()))
}

/// Refuses if one of these devices is in use.
pub(crate) fn none_in_use(
    devices: &[LeftDevice],
    array: &str,
    before: Before<'_>,
) -> Result<(), Failure> {
    for device in devices {
        if let Some(user) = user(device.id) {
            let found = format!(
                "{}: {user}, and an earlier daemon left it without a server",
                device.of
            );
            let failure = Failure::new(Code::ArrayInUse, found);
            return Err(failure.cure(before.cure(array)));
        }
    }
    Ok(())
}

/// The devices of an array that does not run, to be deleted; refuses if one of them is in use.
pub(crate) fn unused(
    dir: &Dir,
    array: ArrayUuid,
    name: &str,
    before: Before<'_>,
) -> Result<Vec<LeftDevice>, Failure> {
    let devices = of_array(dir, array)?;
    none_in_use(&devices, name, before)?;
    Ok(devices)
}

/// Deletes the devices of an array that does not run; refuses if one of them is in use.
pub(crate) fn delete_unused(
    dir: &Dir,
    array: ArrayUuid,
    name: &str,
    before: Before<'_>,
    dry_run: bool,
) -> Result<(), Failure> {
    let devices = unused(dir, array, name, before)?;
    match dry_run {
        true => Ok(()),
        false => delete(dir, array, &devices),
    }
}

/// Deletes devices that nothing uses, and forgets those of the array that are gone.
pub(crate) fn delete(dir: &Dir, array: ArrayUuid, devices: &[LeftDevice]) -> Result<(), Failure> {
    let deleted = devices
        .iter()
        .try_for_each(|device| delete_one(device.id, device.tag));
    if let Some(mut record) = dir.record(array)
        && forget_gone(&mut record, array)
        && let Err(error) = dir.remember(array, &record)
    {
        tracing::warn!(%error, "ublk devices that are gone are still remembered");
    }
    deleted
}

/// Deletes a device that nothing uses.
pub(crate) fn delete_one(id: u32, tag: u64) -> Result<(), Failure> {
    let Some(mut devices) = UblkDevices::open()? else {
        return Ok(());
    };
    devices.delete(id, tag).map_err(|error| {
        let failure = Failure::from(error);
        failure.about(format!("/dev/ublkb{id}, left behind by an earlier daemon"))
    })?;
    tracing::info!(
        id,
        "a ublk device that an earlier daemon left behind is deleted"
    );
    Ok(())
}

/// Deletes what an array that is known no more left in the kernel, and forgets it; what is in use
/// stays, and stays remembered.
pub(crate) fn end(dir: &Dir, array: ArrayUuid, name: &str) {
    if let Err(failure) = delete_unused(dir, array, name, Before::Destroy, false) {
        tracing::warn!(%array, %failure, "its ublk device stays");
    }
}

/// Strikes the devices that the kernel has no more, or has for another; were there any?
pub(crate) fn forget_gone(record: &mut ArrayRecord, array: ArrayUuid) -> bool {
    let exists = |uuid: &[u8; 16], id: u32| match of(uuid, Some(id)) {
        Ok(there) => there.contains(&id),
        Err(failure) => {
            tracing::warn!(%failure, id, "it is not known whether the ublk device is gone");
            users::ublk_exists(id)
        }
    };
    let before = record.volumes.len();
    record.volumes.retain(|key, id| {
        let volume = key.parse::<VolumeUuid>();
        volume.is_ok_and(|volume| exists(&volume.0, *id))
    });
    let volumes = &record.volumes;
    record
        .volume_names
        .retain(|key, _| volumes.contains_key(key));
    let own = record.ublk.take_if(|id| !exists(&array.0, *id));
    own.is_some() || record.volumes.len() < before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cure_serves_the_device_before_it_unmounts_it() {
        for before in [
            Before::Destroy,
            Before::Clean,
            Before::Create,
            Before::Start("nbd"),
        ] {
            let cure = before.cure("data");
            let order = ["--export ublk", "unmount or close", "strake stop data"];
            let at = order.map(|step| cure.find(step).expect("a step of the cure"));
            assert!(at.is_sorted(), "{cure}");
        }
        let cure = Before::Start("none").cure("data");
        assert!(cure.ends_with("strake start data --export none"), "{cure}");
        assert!(Before::Forget.cure("data").contains("bring the drives"));
    }

    #[test]
    fn what_the_kernel_does_not_have_is_forgotten() {
        let mut record = ArrayRecord {
            name: "data".into(),
            export: "ublk".into(),
            // More than the kernel gives away.
            ublk: Some(u32::MAX - 1),
            volumes: [("5a".repeat(16), u32::MAX - 2)].into(),
            volume_names: [("5a".repeat(16), "home".to_owned())].into(),
        };
        let array = ArrayUuid([7; 16]);
        assert!(forget_gone(&mut record, array));
        assert!(record.ublk.is_none() && record.volumes.is_empty());
        assert!(record.volume_names.is_empty());
        assert!(
            !forget_gone(&mut record, array),
            "nothing is left to forget"
        );
    }
}
