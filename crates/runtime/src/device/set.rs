//! The devices of an array: numbered once, open until released.
//!
//! Invariant: a number is never given twice, so a late answer of one device is never taken for
//! another's. A device for which there is no number left is refused. Deliberately absent: what a
//! device is to the array (the engine knows).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use strake_engine::units::DeviceId;

use crate::device::{Device, DeviceError};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Devices(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    open: BTreeMap<DeviceId, Arc<Device>>,
    /// The number of the next device.
    next: u32,
    /// Kept after release: events still name them.
    paths: BTreeMap<DeviceId, PathBuf>,
    /// Of what was released: why, if an I/O said so.
    errnos: BTreeMap<DeviceId, i32>,
}

impl Devices {
    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0
            .lock()
            .expect("no thread panics with the table of devices")
    }

    /// Numbers a device.
    ///
    /// # Errors
    /// No number is left: the device is closed.
    pub(crate) fn add(&self, device: Device) -> Result<DeviceId, DeviceError> {
        let mut table = self.table();
        let path = device.path().to_owned();
        let Some(next) = table.next.checked_add(1) else {
            return Err(DeviceError::NoNumber(path));
        };
        let id = DeviceId(std::mem::replace(&mut table.next, next));
        table.paths.insert(id, path);
        table.open.insert(id, Arc::new(device));
        Ok(id)
    }

    /// A device that is open.
    pub(crate) fn get(&self, id: DeviceId) -> Option<Arc<Device>> {
        self.table().open.get(&id).cloned()
    }

    /// Every device that is open.
    pub(crate) fn all(&self) -> Vec<(DeviceId, Arc<Device>)> {
        self.table()
            .open
            .iter()
            .map(|(&id, device)| (id, Arc::clone(device)))
            .collect()
    }

    /// Lets go of a device; it closes when the last shard has let go.
    pub(crate) fn close(&self, id: DeviceId) {
        let mut table = self.table();
        let closed = table.open.remove(&id);
        let errno = closed.and_then(|device| device.recent_errno());
        table.errnos.extend(errno.map(|errno| (id, errno)));
    }

    /// What the last I/O that failed on a device was answered, if that was a short while ago.
    pub(crate) fn recent_errno(&self, id: DeviceId) -> Option<i32> {
        let table = self.table();
        match table.open.get(&id) {
            Some(device) => device.recent_errno(),
            None => table.errnos.get(&id).copied(),
        }
    }

    /// The path of a device, open or not.
    pub(crate) fn path(&self, id: DeviceId) -> Option<PathBuf> {
        self.table().paths.get(&id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::OpenMode;

    #[test]
    fn a_device_without_a_number_is_refused_by_name_and_closed() {
        let dir = tempfile::tempdir().expect("a folder");
        let open = |name: &str| {
            let path = dir.path().join(name);
            let file = std::fs::File::create(&path).expect("a file");
            file.set_len(1 << 20).expect("a size");
            Device::open(&path, OpenMode::Member).expect("it opens")
        };
        let devices = Devices::default();
        devices.table().next = u32::MAX - 1;
        let last = devices.add(open("last")).expect("it has a number");
        assert_eq!(last, DeviceId(u32::MAX - 1));
        for _ in 0..2 {
            let refused = devices.add(open("one-more"));
            assert!(
                matches!(refused, Err(DeviceError::NoNumber(path)) if path.ends_with("one-more"))
            );
        }
        assert_eq!(devices.path(last), Some(dir.path().join("last")));
        assert_eq!(devices.all().len(), 1);
    }
}
