//! Devices that vanish while there is no I/O on them: inotify on the very inodes that are open.
//!
//! A device node that loses its last name was removed by the kernel; a file that loses its last
//! name was deleted. Both give an attribute event, which [`Device::is_gone`] then confirms: a node
//! deleted by hand takes no member away.
//!
//! Invariant: a watch costs nothing while nothing happens. Deliberately absent: devices that
//! appear (the daemon looks for those).

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::inotify;
use strake_engine::units::*;

use crate::device::{Device, Kind};

/// The kernel removes the node a little before the rest of the device: look again so often ...
const LOOKS: u32 = 20;
/// ... at this distance.
const LOOK_MS: u64 = 100;

/// See the module.
#[derive(Debug)]
pub(crate) struct Watch {
    /// `None` where the kernel has none left: then devices that are idle are not watched.
    inotify: Option<OwnedFd>,
    watched: BTreeMap<i32, (DeviceId, Arc<Device>)>,
    suspects: Vec<Suspect>,
}

#[derive(Debug)]
struct Suspect {
    id: DeviceId,
    device: Arc<Device>,
    next: Time,
    looks_left: u32,
}

impl Watch {
    /// A watch on nothing.
    pub(crate) fn new() -> Watch {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let inotify = inotify::init(flags)
            .inspect_err(|error| {
                tracing::warn!(
                    %error,
                    "no inotify: members that go while nothing uses them are not noticed"
                );
            })
            .ok();
        Watch {
            inotify,
            watched: BTreeMap::new(),
            suspects: Vec::new(),
        }
    }

    /// For the ring.
    pub(crate) fn fd(&self) -> Option<&OwnedFd> {
        self.inotify.as_ref()
    }

    /// Watches a device.
    pub(crate) fn add(&mut self, id: DeviceId, device: Arc<Device>) {
        let Some(inotify) = &self.inotify else { return };
        let open = format!("/proc/self/fd/{}", device.as_fd().as_raw_fd());
        match inotify::add_watch(inotify, open, inotify::WatchFlags::ATTRIB) {
            Ok(watch) => {
                self.watched.insert(watch, (id, device));
            }
            Err(error) => {
                tracing::warn!(path = %device.path().display(), %error, "not watched while idle");
            }
        }
    }

    /// Stops watching a device.
    pub(crate) fn remove(&mut self, id: DeviceId) {
        self.suspects.retain(|suspect| suspect.id != id);
        let watch = self
            .watched
            .iter()
            .find(|(_, (other, _))| *other == id)
            .map(|(&watch, _)| watch);
        if let Some(watch) = watch {
            self.watched.remove(&watch);
            // The kernel drops it with the inode anyway.
            if let Some(inotify) = &self.inotify {
                let _ = inotify::remove_watch(inotify, watch);
            }
        }
    }

    /// Something happened: which devices are gone.
    pub(crate) fn read(&mut self, now: Time) -> Vec<DeviceId> {
        let Some(inotify) = &self.inotify else {
            return Vec::new();
        };
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(inotify, &mut room);
        let mut touched = Vec::new();
        while let Ok(event) = reader.next() {
            touched.push(event.wd());
        }
        let mut gone = Vec::new();
        for watch in touched {
            let Some((id, device)) = self.watched.get(&watch) else {
                continue;
            };
            if device.is_gone() {
                gone.push(*id);
            } else if matches!(device.kind(), Kind::Block { .. }) {
                self.suspects.push(Suspect {
                    id: *id,
                    device: Arc::clone(device),
                    next: now.plus_ms(LOOK_MS),
                    looks_left: LOOKS,
                });
            }
        }
        gone
    }

    /// When [`Watch::look`] is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.suspects.iter().map(|suspect| suspect.next).min()
    }

    /// Looks again at devices under suspicion: which are gone.
    pub(crate) fn look(&mut self, now: Time) -> Vec<DeviceId> {
        let mut gone = Vec::new();
        self.suspects.retain_mut(|suspect| {
            if now < suspect.next {
                return true;
            }
            if suspect.device.is_gone() {
                gone.push(suspect.id);
                return false;
            }
            suspect.next = now.plus_ms(LOOK_MS);
            suspect.looks_left -= 1;
            suspect.looks_left > 0
        });
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::OpenMode;

    #[test]
    fn a_deleted_file_is_noticed_without_any_io() {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("member");
        std::fs::File::create(&path)
            .expect("file")
            .set_len(1 << 20)
            .expect("size");
        let device = Arc::new(Device::open(&path, OpenMode::Member).expect("opens"));
        let mut watch = Watch::new();
        watch.add(DeviceId(3), device);
        assert_eq!(watch.read(Time(0)), []);
        // A second name that goes takes nothing away.
        let second = dir.path().join("second");
        std::fs::hard_link(&path, &second).expect("link");
        std::fs::remove_file(&second).expect("removes");
        assert_eq!(watch.read(Time(0)), []);
        std::fs::remove_file(&path).expect("removes");
        let gone = watch.read(Time(0));
        assert!(
            !gone.is_empty() && gone.iter().all(|&id| id == DeviceId(3)),
            "{gone:?}"
        );
        watch.remove(DeviceId(3));
        assert_eq!((watch.read(Time(0)), watch.deadline()), (vec![], None));
    }
}
