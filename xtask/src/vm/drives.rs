//! The drives of a guest: sparse files, each behind an emulated NVMe controller on a root port of
//! its own, so that each can be pulled and plugged while the guest runs.
//!
//! A killed emulator loses nothing that it gave to the host's page cache. A drive that *loses its
//! cache* lies under a copy-on-write overlay made anew for each boot: where a block of an overlay
//! lies is kept in the emulator's memory until the guest flushes, so a kill undoes every block
//! written for the first time since the boot and not flushed. Such drives are SCSI disks, because
//! the emulator's NVMe controller says that it knows FUA and does not heed it: a power cut takes
//! what was written with it. Its SCSI disks heed it (`dpofua`).
//!
//! Invariant: drive `i` is node `d{i}`, device `nv{i}` and serial number `SN{i}` for as long as the
//! guest lives, whatever name the guest's kernel gives it.

use super::prepare;
use super::qmp::Qmp;
use crate::host;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The files of all drives of one set, which may outlive a boot. They vanish with this value.
pub(crate) struct Drives {
    folder: PathBuf,
    count: usize,
    size_mib: u64,
    block_bytes: u64,
    /// A cut of the power empties the drives' caches.
    loses_cache: bool,
    /// Drives that are not plugged at the next boot.
    absent: Vec<usize>,
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
            loses_cache: false,
            absent: Vec::new(),
        };
        for index in 0..count {
            drives.empty(index)?;
        }
        Ok(drives)
    }

    /// From the next boot on a cut of the power empties the drives' caches.
    pub(crate) fn lose_caches(&mut self) {
        self.loses_cache = true;
    }

    /// Readies the drives for another boot, at which some of them are not there.
    pub(crate) fn before_boot(&mut self, absent: &[usize]) -> Result<()> {
        self.absent = absent.to_vec();
        if !self.loses_cache {
            return Ok(());
        }
        for index in 0..self.count {
            let (base, overlay) = (self.file(index), self.overlay(index));
            let (base, over) = (base.display().to_string(), overlay.display().to_string());
            if overlay.exists() {
                host::output(&["qemu-img", "commit", "-q", &over])?;
            }
            let argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b"];
            let finest = ["-o", "cluster_size=4096", &over];
            host::output(&[&argv[..], &[&base], &finest].concat())?;
        }
        Ok(())
    }

    fn overlay(&self, index: usize) -> PathBuf {
        self.folder.join(format!("d{index}.overlay"))
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
        if self.loses_cache {
            options.push("-device virtio-scsi-pci,id=scsi".to_owned());
        }
        for i in 0..self.count {
            let (driver, file) = if self.loses_cache {
                ("qcow2", self.overlay(i))
            } else {
                options.push(format!(
                    "-device pcie-root-port,id=rp{i},chassis={i},slot={i}"
                ));
                ("raw", self.file(i))
            };
            let file = file.display();
            options.push(format!(
                "-blockdev driver={driver},node-name=d{i},discard=unmap,\
                 file.driver=file,file.filename={file},file.aio=threads"
            ));
            if !self.absent.contains(&i) {
                // As JSON it would have to survive a shell's quoting.
                options.push(format!("-device {}", words(&self.device(i))));
            }
        }
        options
    }

    /// A drive as a device of the emulator.
    fn device(&self, index: usize) -> Value {
        let mut device = json!({
            "driver": "nvme", "bus": format!("rp{index}"), "id": format!("nv{index}"),
            "drive": format!("d{index}"), "serial": format!("SN{index}"),
            "logical_block_size": self.block_bytes, "physical_block_size": self.block_bytes,
        });
        if self.loses_cache {
            device["driver"] = json!("scsi-hd");
            device["bus"] = json!("scsi.0");
            device["scsi-id"] = json!(index);
            device["dpofua"] = json!(true);
        }
        device
    }

    /// Pulls a drive; returns when the guest has let go of it.
    pub(crate) fn unplug(&self, qmp: &mut Qmp, index: usize) -> Result<()> {
        let device = format!("nv{index}");
        qmp.call("device_del", json!({"id": device}))?;
        qmp.wait_deleted(&device)
    }

    /// Plugs a drive that was pulled.
    pub(crate) fn plug(&self, qmp: &mut Qmp, index: usize) -> Result<()> {
        qmp.call("device_add", self.device(index)).map(drop)
    }

    /// Puts an empty drive in place of one that was pulled, and plugs it.
    pub(crate) fn renew(&self, qmp: &mut Qmp, index: usize) -> Result<()> {
        if self.loses_cache {
            bail!("a drive under an overlay cannot be emptied while the guest runs");
        }
        self.empty(index)?;
        self.plug(qmp, index)
    }

    /// From now on a drive's SMART log warns of its spare, and says that its media are read only; it
    /// goes on as before.
    pub(crate) fn warn(&self, qmp: &mut Qmp, index: usize) -> Result<()> {
        let set = json!({
            "path": format!("/machine/peripheral/nv{index}"),
            "property": "smart_critical_warning",
            "value": 0b1001,
        });
        qmp.call("qom-set", set).map(drop)
    }
}

/// The properties of a device as the emulator's command line wants them, its driver first.
fn words(device: &Value) -> String {
    let properties = device.as_object().expect("a device is an object");
    let driver = properties.get("driver").into_iter();
    let others = properties.iter().filter(|(key, _)| *key != "driver");
    let words = driver
        .map(plain)
        .chain(others.map(|(key, value)| format!("{key}={}", plain(value))));
    words.collect::<Vec<_>>().join(",")
}

fn plain(value: &Value) -> String {
    match value {
        Value::Bool(on) => if *on { "on" } else { "off" }.to_owned(),
        Value::String(word) => word.clone(),
        other => other.to_string(),
    }
}

impl Drop for Drives {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
