//! The drives of a guest: sparse files. In an emulated machine each is behind an NVMe controller on
//! a root port of its own, so that each can be pulled and plugged while the guest runs; what a
//! user-mode guest makes of them is in `tests/vm/usermode.sh`.
//!
//! A machine that is killed loses nothing that it gave to the host's page cache. A drive that
//! *loses its cache* keeps in the guest's memory what no flush followed; only user-mode guests have
//! such.
//!
//! Invariant: drive `i` is node `d{i}`, device `nv{i}` and serial number `SN{i}` for as long as the
//! guest lives, whatever name the guest's kernel gives it.

use super::prepare;
use super::qmp::Qmp;
use crate::host;
use anyhow::{Context, Result};
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
    /// They have placement handles.
    places: bool,
}

/// Placement handles of a drive that has some.
const HANDLES: u32 = 8;

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
            places: false,
        };
        for index in 0..count {
            drives.empty(index)?;
        }
        Ok(drives)
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    pub(crate) fn loses_caches(&self) -> bool {
        self.loses_cache
    }

    /// The files as arguments of a user-mode kernel. What follows the number says that none of them
    /// is a layer over another, whatever its first bytes look like.
    pub(crate) fn ubd(&self) -> Vec<String> {
        let argument = |i: usize| format!("ubd{i}d={}", self.file(i).display());
        (0..self.count).map(argument).collect()
    }

    /// From the next boot on a cut of the power empties the drives' caches.
    pub(crate) fn lose_caches(&mut self) {
        self.loses_cache = true;
    }

    /// From the next boot on each drive has placement handles (NVMe FDP), with reclaim units that
    /// are larger than a drive. It cannot be pulled.
    pub(crate) fn have_handles(&mut self) {
        self.places = true;
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
            let file = self.file(i);
            let file = file.display();
            options.push(format!(
                "-device pcie-root-port,id=rp{i},chassis={i},slot={i}"
            ));
            options.push(format!(
                "-blockdev driver=raw,node-name=d{i},discard=unmap,\
                 file.driver=file,file.filename={file},file.aio=threads"
            ));
            if self.places {
                options.extend(self.with_handles(i));
                continue;
            }
            // As JSON it would have to survive a shell's quoting.
            options.push(format!("-device {}", words(&self.device(i))));
        }
        options
    }

    /// A drive as a device of the emulator.
    fn device(&self, index: usize) -> Value {
        json!({
            "driver": "nvme", "bus": format!("rp{index}"), "id": format!("nv{index}"),
            "drive": format!("d{index}"), "serial": format!("SN{index}"),
            "logical_block_size": self.block_bytes, "physical_block_size": self.block_bytes,
        })
    }

    /// A drive with placement handles: these are its subsystem's, and its namespace uses all.
    fn with_handles(&self, i: usize) -> [String; 3] {
        let (block, last) = (self.block_bytes, HANDLES - 1);
        [
            format!("-device nvme-subsys,id=su{i},fdp=on,fdp.runs=1G,fdp.nrg=1,fdp.nruh={HANDLES}"),
            format!("-device nvme,bus=rp{i},id=nv{i},serial=SN{i},subsys=su{i}"),
            format!(
                "-device nvme-ns,bus=nv{i},drive=d{i},nsid=1,fdp.ruhs=0-{last},\
                 logical_block_size={block},physical_block_size={block}"
            ),
        ]
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
        self.empty(index)?;
        self.plug(qmp, index)
    }

    /// From now on a drive's SMART log warns of its spare, and says that its media are read only;
    /// it goes on as before.
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
