//! Where members are looked for.
//!
//! Deliberately absent: reading them (`drives`).

use std::path::PathBuf;

use crate::daemon::state::Dir;
use crate::drives::find;
use crate::drives::machine::sysfs;

/// Where to look for members.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// The machine's block devices.
    pub(crate) devices: bool,
    /// Files, devices, and folders of files.
    pub(crate) extra: Vec<PathBuf>,
}

impl Sources {
    /// Every device and file to look at.
    pub(crate) fn paths(&self, dir: &Dir) -> Vec<PathBuf> {
        let mut paths = if self.devices {
            sysfs::candidates()
        } else {
            Vec::new()
        };
        paths.extend(find::expand(&self.extra));
        for known in dir.known_files() {
            if !paths.contains(&known) {
                paths.push(known);
            }
        }
        paths
    }
}
