//! The drives of a guest: sparse files, each behind an emulated NVMe controller on a root port of
//! its own, so that each can be pulled and plugged while the guest runs.
//!
//! Invariant: drive `i` is node `d{i}`, device `nv{i}` and serial number `SN{i}` for as long as the
//! guest lives, whatever name the guest's kernel gives it.

use super::prepare;
use super::qmp::Qmp;
use crate::host;
use anyhow::{Context, Result};
use serde_json::json;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The files of all drives of one set, which may outlive a boot. They vanish with this value.
pub(crate) struct Drives {
    folder: PathBuf,
    count: usize,
    size_mib: u64,
    block_bytes: u64,
}

/// Where the files go: in memory where there is room, else under `target/vm`.
fn place() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let avail = host::output(&["df", "--output=avail", "-B1M", "/dev/shm"]).unwrap_or_default();
    let mib: u64 = avail
        .lines()
        .last()
        .and_then(|line| line.trim().parse().ok())
        .unwrap_or(0);
    if mib >= 6144 {
        memory.to_path_buf()
    } else {
        prepare::folder()
    }
}

const PREFIX: &str = "strake-vm-";

/// Removes what runs that were killed have left behind: folders named after processes that are
/// gone.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drives {
    /// Makes empty drives.
    pub(crate) fn make(set: &str, count: usize, size_mib: u64, block_bytes: u64) -> Result<Self> {
        let place = place();
        sweep(&place);
        let folder = place.join(format!("{PREFIX}{}-{set}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let drives = Self {
            folder,
            count,
            size_mib,
            block_bytes,
        };
        for index in 0..count {
            drives.empty(index)?;
        }
        Ok(drives)
    }

    fn file(&self, index: usize) -> PathBuf {
        self.folder.join(format!("d{index}"))
    }

    /// Makes a drive as good as new.
    fn empty(&self, index: usize) -> Result<()> {
        let path = self.file(index);
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        file.set_len(self.size_mib << 20)?;
        Ok(())
    }

    /// The emulator's options for all drives.
    pub(crate) fn options(&self) -> Vec<String> {
        let mut options = Vec::new();
        for i in 0..self.count {
            let (file, block) = (self.file(i), self.block_bytes);
            let file = file.display();
            options.push(format!(
                "-device pcie-root-port,id=rp{i},chassis={i},slot={i}"
            ));
            options.push(format!(
                "-blockdev driver=raw,node-name=d{i},discard=unmap,\
                 file.driver=file,file.filename={file},file.aio=threads"
            ));
            options.push(format!(
                "-device nvme,bus=rp{i},serial=SN{i},drive=d{i},id=nv{i},\
                 logical_block_size={block},physical_block_size={block}"
            ));
        }
        options
    }

    /// Pulls a drive; returns when the guest has let go of it.
    pub(crate) fn unplug(&self, qmp: &mut Qmp, index: usize) -> Result<()> {
        let device = format!("nv{index}");
        qmp.call("device_del", json!({"id": device}))?;
        qmp.wait_deleted(&device)
    }

    /// Plugs a drive that was pulled.
    pub(crate) fn plug(&self, qmp: &mut Qmp, index: usize) -> Result<()> {
        let device = json!({
            "driver": "nvme", "id": format!("nv{index}"), "bus": format!("rp{index}"),
            "drive": format!("d{index}"), "serial": format!("SN{index}"),
            "logical_block_size": self.block_bytes, "physical_block_size": self.block_bytes,
        });
        qmp.call("device_add", device).map(drop)
    }

    /// Puts an empty drive in place of one that was pulled, and plugs it.
    pub(crate) fn renew(&self, qmp: &mut Qmp, index: usize) -> Result<()> {
        self.empty(index)?;
        self.plug(qmp, index)
    }
}

impl Drop for Drives {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
