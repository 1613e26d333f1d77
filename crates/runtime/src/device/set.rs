//! The devices of an array: numbered once, open until released.
//!
//! Invariant: a number is never given twice, so a late answer of one device is never taken for
//! another's. Deliberately absent: what a device is to the array (the engine knows).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use strake_engine::units::DeviceId;

use crate::device::Device;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Devices(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    open: BTreeMap<DeviceId, Arc<Device>>,
    /// Kept after release: events still name them.
    paths: Vec<PathBuf>,
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
    pub(crate) fn add(&self, device: Device) -> DeviceId {
        let mut table = self.table();
        let id = DeviceId(u32::try_from(table.paths.len()).expect("fewer than 2^32 devices"));
        table.paths.push(device.path().to_owned());
        table.open.insert(id, Arc::new(device));
        id
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
        self.table().paths.get(id.0 as usize).cloned()
    }
}
