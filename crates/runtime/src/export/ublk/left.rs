//! Devices that a server left behind: finding them in the kernel by what they serve, and deleting
//! those that nothing uses.
//!
//! Each device carries a tag, half of the uuid of its array or volume ([`UblkDevices::tag`]), and
//! the kernel keeps it for as long as the device exists. Numbers are given away again; a number
//! with the tag is certain. So the kernel is asked, and what a process remembers of numbers is only
//! where to look first.
//!
//! Order of a deletion: the device is this tag's and has no server → nothing has it open, where the
//! driver can say so (7.0) → DEL_DEV, which ends with errors what waits for a server.
//!
//! Invariants: every question has a bound (`Driver::run`); a device with another tag, or with a
//! server, is not touched. Deliberately absent: what uses a device (the caller looks at mounts and
//! processes).

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::abi::{self, Command, DeviceInfo};
use super::{CONTROL, Driver};
use crate::error::ServeError;

/// Every ublk device is a folder here, also one that has no disk (yet, or any more).
const FOLDER: &str = "/sys/class/ublk-char";
/// How long the driver may take to notice that a server is gone.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// The kernel's ublk devices.
#[derive(Debug)]
pub struct UblkDevices {
    driver: Driver,
}

impl UblkDevices {
    /// What the devices of an array or a volume carry; of its uuid.
    pub fn tag(uuid: &[u8; 16]) -> u64 {
        u64::from_be_bytes(uuid[..8].try_into().expect("a uuid has 16 bytes"))
    }

    /// Opens the driver; `None` where the kernel has none, and so no devices.
    ///
    /// # Errors
    /// It is there, and does not answer this user.
    pub fn open() -> Result<Option<UblkDevices>, ServeError> {
        if !Path::new(CONTROL).exists() {
            return Ok(None);
        }
        let driver = Driver::open(None).map_err(ServeError::NoUblk)?;
        Ok(Some(UblkDevices { driver }))
    }

    /// The devices with this tag: first `remembered`, if it is one of them.
    ///
    /// # Errors
    /// The driver does not answer.
    pub fn of(&mut self, tag: u64, remembered: Option<u32>) -> Result<Vec<u32>, ServeError> {
        let number = |name: &str| name.strip_prefix("ublkc")?.parse().ok();
        let folder = fs::read_dir(FOLDER).into_iter().flatten().flatten();
        let mut all: Vec<u32> = folder
            .filter_map(|entry| number(entry.file_name().to_str()?))
            .collect();
        all.sort_unstable_by_key(|id| (Some(*id) != remembered, *id));
        let mut of_tag = Vec::new();
        for id in all {
            if self.driver.device_of(id, tag)?.is_some() {
                of_tag.push(id);
            }
        }
        Ok(of_tag)
    }

    /// Whether this is a device with this tag.
    ///
    /// # Errors
    /// The driver does not answer.
    pub fn is_of(&mut self, id: u32, tag: u64) -> Result<bool, ServeError> {
        Ok(self.driver.device_of(id, tag)?.is_some())
    }

    /// Deletes a device that has no server and that nothing uses: the caller has looked. Nothing is
    /// done if it is gone, or is another's.
    ///
    /// # Errors
    /// A process serves it, or has it open; or the kernel does not delete it in time.
    pub fn delete(&mut self, id: u32, tag: u64) -> Result<(), ServeError> {
        let since = Instant::now();
        while let Some(info) = self.driver.device_of(id, tag)? {
            if info.state != abi::STATE_LIVE {
                return self.driver.delete_left(id);
            }
            if since.elapsed() > END_PATIENCE {
                let pid = info.server_pid;
                return Err(ServeError::UblkServed { id, pid });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Driver {
    /// What the kernel says of a device, if there is one.
    pub(super) fn info(&mut self, id: u32) -> io::Result<Option<DeviceInfo>> {
        let mut bytes = [0; DeviceInfo::BYTES];
        match self.command_with(Command::GetDevInfo, id, &mut bytes) {
            Ok(_) => Ok(Some(DeviceInfo::from_bytes(&bytes))),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The same, if it has this tag.
    fn device_of(&mut self, id: u32, tag: u64) -> Result<Option<DeviceInfo>, ServeError> {
        let info = self.info(id);
        let info = info.map_err(|e| ServeError::io("ask for a ublk device", e))?;
        Ok(info.filter(|info| info.tag == tag))
    }

    /// Deletes a device without a server.
    pub(super) fn delete_left(&mut self, id: u32) -> Result<(), ServeError> {
        if self.features & abi::F_SAFE_STOP_DEV != 0 {
            match self.command(Command::TryStopDev, id, 0) {
                // It has no disk: nothing can have it open.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                stopped => {
                    stopped
                        .map_err(|e| ServeError::io("stop a ublk device without a server", e))?;
                }
            }
        }
        self.remove(id)
            .map_err(|e| ServeError::io("delete a ublk device without a server", e))
    }
}
