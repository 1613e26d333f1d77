//! The array as a Linux block device: a small client of the kernel's ublk driver.
//!
//! Order of a start: ADD_DEV → SET_PARAMS → every queue fetches all its tags (on the shards'
//! threads) → START_DEV. After a kill: START_USER_RECOVERY (refused until the old server is wholly
//! gone) → fetch → END_USER_RECOVERY; requests that were in flight come again. Order of a stop:
//! STOP_DEV (which waits for requests in flight) → queues closed → DEL_DEV.
//!
//! Modes, by what the driver has, best first: *auto-buffer* (6.16), where members fill the pages of
//! larger healthy reads by themselves and everything else goes as in *user copy* (6.5), where data
//! goes through pread and pwrite on /dev/ublkcN; else *copy*, where the driver copies to and from
//! an address given with each fetch. The first two come with a command for each request, or with
//! commands for many (7.0, `batch`). `STRAKE_UBLK_MODE` overrides the choice ([`Mode::as_str`]). A
//! device left behind is taken over in the mode that it has, but that copy and the others do not
//! mix: their memory differs.
//!
//! Invariants: one queue is served by one thread; control commands run on the caller's thread,
//! never on a shard's (START_DEV reads the partition table through the shards), and no longer than
//! a bound (`patience_of`); a device left behind that cannot be taken over is never replaced by a
//! new one, for its users wait for this one. Deliberately absent: unprivileged devices, and drivers
//! before 6.4.

mod abi;
mod batch;
mod left;
mod queue;
mod waiting;

use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use strake_engine::units::ShardNo;

use super::{Left, Target, UblkExport, locked};
use crate::error::ServeError;
use crate::mail::{Data, Mail, Mode, QueueStart};
use crate::spawn::spawn;
pub use left::UblkDevices;
pub(crate) use queue::{Event, Queue, Stock};
pub(crate) use waiting::QueueMemory;

use abi::{Command, ControlCommand, DeviceInfo, Params, SECTOR};

const CONTROL: &str = "/dev/ublk-control";
/// Requests that one queue has in flight: what keeps drives busy behind one shard.
const DEPTH_USER_COPY: u16 = 128;
/// The deepest queue that the driver has (`UBLK_MAX_QUEUE_DEPTH`).
const DEPTH_MAX: u16 = 4096;
/// In copy mode every tag holds a buffer of the largest size.
const DEPTH_COPY: u16 = 64;
/// Largest request.
const MAX_IO_USER_COPY: u32 = 1 << 20;
/// Largest request where every tag holds that much memory.
const MAX_IO_COPY: u32 = 256 << 10;
/// Largest discard or write-zeroes request: 1 GiB. What regions are longer is given back in parts.
const MAX_RANGE_SECTORS: u32 = 1 << 21;
/// How long the driver may take to notice that the old server is gone.
pub(super) const RECOVERY_PATIENCE: Duration = Duration::from_secs(30);
/// How long a queue may take to close, a device node to appear, or the driver to answer a command
/// that waits for no request.
const PATIENCE: Duration = Duration::from_secs(10);
/// And a command that waits for requests: longer than members that do not answer hold them up.
const REQUESTS_PATIENCE: Duration = Duration::from_secs(320);

/// How long a control command may take. START_DEV reads the partition table, STOP_DEV waits for
/// requests in flight.
fn patience_of(command: Command) -> Duration {
    match command {
        Command::StartDev | Command::StopDev => REQUESTS_PATIENCE,
        _ => PATIENCE,
    }
}

/// Where the kernel says which program gets it a module.
const MODPROBE: &str = "/proc/sys/kernel/modprobe";

/// Asks for the driver's module, once in the life of the process: a kernel that has none has none
/// later either.
fn ask_for_module() {
    static ASKED: Once = Once::new();
    ask_once(&ASKED, Path::new(MODPROBE));
}

/// The same. The program is the kernel's own choice, by its absolute path.
fn ask_once(asked: &Once, choice: &Path) {
    asked.call_once(|| {
        let program = std::fs::read_to_string(choice).unwrap_or_default();
        let program = Path::new(program.trim());
        if !program.is_absolute() {
            return;
        }
        let mut modprobe = std::process::Command::new(program);
        modprobe.args(["-q", "ublk_drv"]);
        let (done, ended) = channel();
        // To begin it may hang, too. It reads nothing of ours, and may stay.
        let begun = spawn("modprobe", move || {
            // Where it is missing or knows no such module, opening the driver says the rest.
            let _ = modprobe.status();
            let _ = done.send(());
        });
        if begun.is_ok() && ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("modprobe ublk_drv does not end: it is not waited for");
        }
    });
}

/// The kernel's ublk driver, found working.
pub(crate) struct Driver {
    ring: Box<IoUring<squeue::Entry128, cqueue::Entry>>,
    control: File,
    mode: Mode,
    features: u64,
    /// Requests of all queues together, where they are bounded.
    requests: Option<NonZeroU32>,
    /// The kernel still works at a command that took too long: no other is given to it.
    overdue: bool,
    /// The device was removed, and its number may be another's.
    removed: bool,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Driver({:?})", self.mode)
    }
}

impl Driver {
    /// Finds the driver (and asks for its module where there is none), or says why there is none
    /// for us.
    pub(crate) fn open(requests: Option<NonZeroU32>) -> Result<Driver, String> {
        if !Path::new(CONTROL).exists() && rustix::process::geteuid().is_root() {
            ask_for_module();
        }
        let control = File::options()
            .read(true)
            .write(true)
            .open(CONTROL)
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    format!(
                        "{CONTROL} is missing: this kernel has no ublk driver (module ublk_drv)"
                    )
                }
                io::ErrorKind::PermissionDenied => {
                    format!("{CONTROL}: permission denied: ublk devices are for root here")
                }
                _ => format!("{CONTROL}: {error}"),
            })?;
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .build(4)
            .map_err(|error| format!("no io_uring with large entries: {error}"))?;
        let mut driver = Driver {
            ring: Box::new(ring),
            control,
            mode: Mode::new(Data::UserCopy, false),
            features: 0,
            requests,
            overdue: false,
            removed: false,
        };
        driver.features = driver.ask_features()?;
        let wanted = std::env::var("STRAKE_UBLK_MODE").ok();
        driver.mode = choose(driver.features, wanted.as_deref())?;
        Ok(driver)
    }

    /// What the driver can. One that does not know the question is that of 6.4.
    fn ask_features(&mut self) -> Result<u64, String> {
        let mut features = [0; 8];
        match self.command_with(Command::GetFeatures, u32::MAX, &mut features) {
            Ok(_) => Ok(u64::from_ne_bytes(features)),
            Err(error) => match error.raw_os_error() {
                Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTTY) => Ok(abi::F_CMD_IOCTL_ENCODE
                    | abi::F_USER_RECOVERY
                    | abi::F_USER_RECOVERY_REISSUE),
                Some(libc::EPERM | libc::EACCES) => Err("ublk devices are for root here".into()),
                _ => Err(format!("the driver does not answer: {error}")),
            },
        }
    }

    /// Whether several devices can share the memory of a shard: where each tag keeps a buffer,
    /// there is enough for one.
    pub(crate) fn shares_memory(&self) -> bool {
        self.mode.data != Data::Copy
    }

    /// What each queue's memory is made of.
    pub(crate) fn stock(&self) -> Stock {
        match self.mode.data {
            Data::UserCopy | Data::AutoBuffer => {
                let longest = MAX_IO_USER_COPY as usize;
                vec![(4096, 128), (65536, 32), (131072, 24), (longest, 9)]
            }
            Data::Copy => vec![(MAX_IO_COPY as usize, usize::from(DEPTH_COPY) + 16)],
        }
    }

    /// Places that a ring needs for the pages of requests: one for each tag of its queue. Also
    /// where another mode was asked for: a device left behind may want them.
    pub(crate) fn pages(&self) -> u16 {
        match self.features & abi::F_AUTO_BUF_REG {
            0 => 0,
            _ => queues(1, self.requests, Data::AutoBuffer)
                .1
                .max(DEPTH_USER_COPY),
        }
    }

    /// Gives a command to the driver, with memory that it reads or writes, and waits for its answer
    /// as long as `patience_of` says.
    fn run(
        &mut self,
        command: Command,
        device: u32,
        data: u64,
        bytes: &mut [u8],
    ) -> io::Result<i32> {
        if self.overdue {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut memory: Box<[u8]> = (*bytes).into();
        let (len, addr) = (memory.len() as u16, memory.as_mut_ptr() as u64);
        let control = ControlCommand {
            device,
            len,
            addr: if len == 0 { 0 } else { addr },
            data,
        };
        let entry = opcode::UringCmd80::new(types::Fd(self.control.as_raw_fd()), command as u32)
            .cmd(control.bytes())
            .build();
        // SAFETY: the memory that `addr` names lives until the completion has come, or for ever.
        unsafe { self.ring.submission().push(&entry) }.expect("one command at a time");
        let until = Instant::now() + patience_of(command);
        let answer = loop {
            if let Some(done) = self.ring.completion().next() {
                break done.result();
            }
            let left = until.saturating_duration_since(Instant::now());
            let left = types::Timespec::from(left);
            let wait = types::SubmitArgs::new().timespec(&left);
            match self.ring.submitter().submit_with_args(1, &wait) {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => {
                    if Instant::now() < until {
                        continue;
                    }
                    // The kernel may still read or write it.
                    Box::leak(memory);
                    self.overdue = true;
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => panic!("io_uring_enter fails on a ring that worked: {error}"),
                Ok(_) => {}
            }
        };
        bytes.copy_from_slice(&memory);
        match answer {
            errno if errno < 0 => Err(io::Error::from_raw_os_error(-errno)),
            value => Ok(value),
        }
    }

    fn command(&mut self, command: Command, device: u32, data: u64) -> io::Result<i32> {
        self.run(command, device, data, &mut [])
    }

    fn command_with(&mut self, command: Command, device: u32, bytes: &mut [u8]) -> io::Result<i32> {
        self.run(command, device, 0, bytes)
    }

    /// Makes the block device, or takes over the one that a killed server left.
    pub(crate) fn serve(
        mut self,
        target: &Target,
        left: Option<Left>,
    ) -> Result<Device, ServeError> {
        let Some(left) = left else {
            return self.create(target, None);
        };
        let info = self.info(left.id);
        let info = info.map_err(|e| ServeError::io("ask for the ublk device", e))?;
        match info.filter(|info| info.tag == target.tag) {
            None => tracing::warn!(left.id, "the ublk device left behind is not this array's"),
            // Its server was killed before it started the disk, or after it had stopped it.
            Some(info) if info.state == abi::STATE_DEAD => self.delete_left(left.id)?,
            Some(info) => {
                let ends = self.recover(target, left, info)?;
                return Ok(Device::new(self, &info, ends));
            }
        }
        self.create(target, Some(left.id))
    }

    fn create(mut self, target: &Target, wanted: Option<u32>) -> Result<Device, ServeError> {
        let recovery = abi::F_USER_RECOVERY | abi::F_USER_RECOVERY_REISSUE;
        let max_io_bytes = match self.mode.data {
            Data::Copy => MAX_IO_COPY,
            Data::UserCopy | Data::AutoBuffer => MAX_IO_USER_COPY,
        };
        let (queues, depth) = queues(target.peers.count(), self.requests, self.mode.data);
        let info = DeviceInfo {
            queues,
            depth,
            max_io_bytes,
            server_pid: std::process::id() as i32,
            flags: abi::F_CMD_IOCTL_ENCODE | needs(self.mode) | (recovery & self.features),
            tag: target.tag,
            ..DeviceInfo::default()
        };
        let info = self
            .add(info, wanted)
            .map_err(|e| ServeError::io("add a ublk device", e))?;
        let id = info.id;
        let set_up = self.set_params(target, &info).and_then(|()| {
            let ends = start_queues(target, &info, self.mode, PATIENCE)?;
            self.command(Command::StartDev, id, u64::from(std::process::id()))
                .map_err(|e| ServeError::io("start the ublk device", e))?;
            Ok(ends)
        });
        match set_up {
            Ok(ends) => Ok(Device::new(self, &info, ends)),
            Err(error) => {
                let _ = self.command(Command::StopDev, id, 0);
                let _ = self.command(Command::DelDev, id, 0);
                Err(error)
            }
        }
    }

    /// Adds a device, with the number wanted if that is free.
    fn add(&mut self, info: DeviceInfo, wanted: Option<u32>) -> io::Result<DeviceInfo> {
        for id in wanted.into_iter().chain([u32::MAX]) {
            let mut bytes = DeviceInfo { id, ..info }.bytes();
            match self.command_with(Command::AddDev, id, &mut bytes) {
                Ok(_) => return Ok(DeviceInfo::from_bytes(&bytes)),
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) && id != u32::MAX => {}
                Err(error) => return Err(error),
            }
        }
        unreachable!("the last round returns")
    }

    fn set_params(&mut self, target: &Target, info: &DeviceInfo) -> Result<(), ServeError> {
        let params = params(target, info.max_io_bytes);
        self.command_with(Command::SetParams, info.id, &mut params.bytes())
            .map(drop)
            .map_err(|e| ServeError::io("describe the ublk device", e))
    }

    /// Removes a device that was stopped. If a process still has it open, against all that was
    /// checked before, the wait for that process is bounded.
    fn remove(&mut self, id: u32) -> io::Result<()> {
        let stays = || {
            tracing::warn!(
                id,
                "the ublk device goes when the last program has closed it"
            );
        };
        let removed = self.command(Command::DelDevAsync, id, 0);
        match removed.as_ref().map_err(io::Error::raw_os_error) {
            // A driver before 6.9 waits until the last has closed it.
            Err(Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENOTTY)) => {
                return match self.command(Command::DelDev, id, 0) {
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                        stays();
                        Ok(())
                    }
                    removed => removed.map(drop),
                };
            }
            _ => removed?,
        };
        let since = Instant::now();
        while Path::new(&format!("/dev/ublkc{id}")).exists() {
            if since.elapsed() > PATIENCE {
                stays();
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Tells the block layer of another size; false where the driver cannot.
    fn update_size(&mut self, id: u32, bytes: u64) -> Result<bool, ServeError> {
        if self.removed {
            return Ok(true);
        }
        if self.features & abi::F_UPDATE_SIZE == 0 {
            return Ok(false);
        }
        self.command(Command::UpdateSize, id, bytes / SECTOR)
            .map(|_| true)
            .map_err(|e| ServeError::io("tell the ublk device its size", e))
    }

    /// Takes a device over.
    fn recover(
        &mut self,
        target: &Target,
        left: Left,
        info: DeviceInfo,
    ) -> Result<Vec<Receiver<()>>, ServeError> {
        let id = left.id;
        let mut params = [0; Params::BYTES];
        params[0..4].copy_from_slice(&(Params::BYTES as u32).to_ne_bytes());
        self.command_with(Command::GetParams, id, &mut params)
            .map_err(|e| ServeError::io("ask for the ublk device", e))?;
        // The array, or the volume, may have grown, and the daemon been killed before it said so.
        let left_bytes = Params::sectors_of(&params) * SECTOR;
        let grown = left_bytes < target.size();
        if left_bytes > target.size() {
            let bytes = target.size();
            return Err(ServeError::UblkSize {
                id,
                left_bytes,
                bytes,
            });
        }
        let mode = mode_of(info.flags);
        if (mode.data == Data::Copy) != (self.mode.data == Data::Copy) {
            // The shards' memory was made for the other mode.
            let (left, now) = (mode.as_str(), self.mode.as_str());
            return Err(ServeError::UblkMode { id, left, now });
        }
        self.mode = mode;
        self.begin_recovery(left)?;
        if info.state != abi::STATE_QUIESCED {
            tracing::debug!(
                id,
                state = info.state,
                "waited for the ublk device to become quiet"
            );
        }
        let ends = start_queues(target, &info, mode, left.patience.min(PATIENCE))?;
        self.command(Command::EndUserRecovery, id, u64::from(std::process::id()))
            .map_err(|e| ServeError::io("end the recovery of the ublk device", e))?;
        if grown {
            // Its users have not heard of it yet; where they cannot, the next start tells.
            if let Err(error) = self.update_size(id, target.size()) {
                tracing::warn!(id, %error, "the ublk device keeps its old size");
            }
        }
        Ok(ends)
    }

    /// Has the driver wait for a new server, once it knows that the old one is gone.
    fn begin_recovery(&mut self, left: Left) -> Result<(), ServeError> {
        let since = Instant::now();
        loop {
            match self.command(Command::StartUserRecovery, left.id, 0) {
                Ok(_) => return Ok(()),
                Err(error)
                    if error.raw_os_error() == Some(libc::EBUSY)
                        && since.elapsed() < left.patience =>
                {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(error) => return Err(ServeError::io("recover the ublk device", error)),
            }
        }
    }
}

/// How many queues there are, and how deep each is. Their product is what the block layer has in
/// flight at most: never more than `requests`.
fn queues(shards: u16, requests: Option<NonZeroU32>, data: Data) -> (u16, u16) {
    let (usual, most) = match data {
        Data::UserCopy | Data::AutoBuffer => (DEPTH_USER_COPY, DEPTH_MAX),
        Data::Copy => (DEPTH_COPY, DEPTH_COPY),
    };
    let Some(requests) = requests.map(NonZeroU32::get) else {
        return (shards, usual);
    };
    let queues = u32::from(shards).min(requests);
    let depth = (requests / queues).min(u32::from(most));
    (queues as u16, depth as u16)
}

/// The features that a mode needs.
fn needs(mode: Mode) -> u64 {
    let data = match mode.data {
        Data::Copy => 0,
        Data::UserCopy => abi::F_USER_COPY,
        Data::AutoBuffer => abi::F_USER_COPY | abi::F_AUTO_BUF_REG,
    };
    data | if mode.batch { abi::F_BATCH_IO } else { 0 }
}

/// The mode of a device with these flags; the best of a driver with these features.
fn mode_of(flags: u64) -> Mode {
    let fits = |mode: &Mode| flags & needs(*mode) == needs(*mode);
    let found = Mode::ALL.into_iter().find(fits);
    found.expect("copy needs no feature")
}

/// The best mode that the driver's features allow, or the one asked for.
fn choose(features: u64, wanted: Option<&str>) -> Result<Mode, String> {
    let Some(word) = wanted else {
        return Ok(mode_of(features));
    };
    let Some(mode) = Mode::ALL.into_iter().find(|mode| mode.as_str() == word) else {
        let words = Mode::ALL.map(Mode::as_str).join(", ");
        return Err(format!("STRAKE_UBLK_MODE is one of {words}, not {word}"));
    };
    let lacks = |flag| needs(mode) & !features & flag != 0;
    let missing = [
        (abi::F_USER_COPY, "user copy (6.5)"),
        (abi::F_AUTO_BUF_REG, "automatic buffer registration (6.16)"),
        (abi::F_BATCH_IO, "commands in batches (7.0)"),
    ];
    match missing.into_iter().find(|&(flag, _)| lacks(flag)) {
        None => Ok(mode),
        Some((_, name)) => Err(format!("the driver has no {name}")),
    }
}

/// What the block layer is told. The driver takes `io_min` and `io_opt` as powers of two only;
/// where the full data stripe is none, `io_opt` is its largest divisor that is one times the
/// strip: true, if not the whole truth.
fn params(target: &Target, max_io_bytes: u32) -> Params {
    let geometry = &target.geometry;
    let shift = |bytes: u64| bytes.ilog2() as u8;
    let k = geometry.k as u64;
    let columns = if geometry.mirrored() {
        1
    } else {
        1 << k.trailing_zeros()
    };
    let physical = u64::from(target.granularity)
        .next_power_of_two()
        .clamp(geometry.block, 4096);
    let strip = geometry.band * geometry.strip;
    // Requests are cut at multiples of the stripe, where at least one fits.
    let stripe = geometry.band * geometry.stripe_bytes();
    let max_io = u64::from(max_io_bytes);
    let cut = if stripe <= max_io {
        max_io / stripe * stripe
    } else {
        max_io
    };
    Params {
        logical_shift: shift(geometry.block),
        physical_shift: shift(physical),
        io_min_shift: shift(strip.max(physical)),
        io_opt_shift: shift(strip * columns),
        max_sectors: (cut / SECTOR) as u32,
        sectors: target.size() / SECTOR,
        discard_granularity: geometry.block as u32,
        max_discard_sectors: MAX_RANGE_SECTORS,
        max_write_zeroes_sectors: MAX_RANGE_SECTORS,
    }
}

/// Has the shards fetch all tags of all queues; queue q goes to shard q mod shards. Returns, for
/// each queue, what tells of its end.
fn start_queues(
    target: &Target,
    info: &DeviceInfo,
    mode: Mode,
    patience: Duration,
) -> Result<Vec<Receiver<()>>, ServeError> {
    let device = open_char(info.id, patience);
    let device =
        Arc::new(device.map_err(|e| ServeError::io("open the ublk device for serving", e))?);
    let mut ends = Vec::new();
    for queue in 0..info.queues {
        let (started, start) = channel();
        let (ended, end) = channel();
        let shard = ShardNo(queue % target.peers.count());
        let (device, how) = (Arc::clone(&device), (mode, target.volume.clone()));
        let message = QueueStart::new(device, queue, info, how, started, ended);
        target
            .peers
            .shard(shard)
            .post(Mail::Ublk(Box::new(message)));
        // The shard's thread waits for nothing when it begins to serve a queue.
        start
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::BrokenPipe)))
            .map_err(|e| ServeError::io("serve a queue of the ublk device", e))?;
        ends.push(end);
    }
    Ok(ends)
}

/// Opens /dev/ublkcN, which appears a moment after the device was added.
fn open_char(id: u32, patience: Duration) -> io::Result<File> {
    let path = PathBuf::from(format!("/dev/ublkc{id}"));
    let since = Instant::now();
    loop {
        let opened = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path);
        match opened {
            Err(error)
                if since.elapsed() < patience
                    && matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EBUSY)) =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            other => return other,
        }
    }
}

/// A block device that serves.
#[derive(Debug)]
pub(crate) struct Device {
    /// Locked for as long as a command takes.
    driver: Arc<Mutex<Driver>>,
    /// What never changes, and is told without a wait.
    export: UblkExport,
    /// Behind a lock only so that a served array can be shared between threads.
    ends: Mutex<Vec<Receiver<()>>>,
}

impl Device {
    fn new(driver: Driver, info: &DeviceInfo, ends: Vec<Receiver<()>>) -> Device {
        let export = UblkExport {
            id: info.id,
            mode: driver.mode.as_str(),
            queues: info.queues,
            depth: info.depth,
            kernel_features: abi::feature_names(driver.features),
        };
        Device {
            driver: Arc::new(Mutex::new(driver)),
            export,
            ends: Mutex::new(ends),
        }
    }

    /// What it is to the outside.
    pub(crate) fn export(&self) -> UblkExport {
        self.export.clone()
    }

    /// What announces to its users that it has grown, and waits for the driver; false where they
    /// see it only at the next start. One that was removed meanwhile has no users.
    pub(crate) fn grown(&self, bytes: u64) -> impl FnOnce() -> Result<bool, ServeError> + use<> {
        let (driver, id) = (Arc::clone(&self.driver), self.export.id);
        move || locked(&driver).update_size(id, bytes)
    }

    /// Removes the device: requests in flight are answered first.
    pub(crate) fn stop(self) -> Result<(), ServeError> {
        let id = self.export.id;
        let mut driver = locked(&self.driver);
        driver.removed = true;
        driver
            .command(Command::StopDev, id, 0)
            .map_err(|e| ServeError::io("stop the ublk device", e))?;
        for end in locked(&self.ends).iter() {
            // Disconnected is what a queue's end looks like.
            let _ = end.recv_timeout(PATIENCE);
        }
        driver
            .remove(id)
            .map_err(|e| ServeError::io("remove the ublk device", e))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::mail::{Mailbox, Peers};
    use strake_engine::Geometry;
    use strake_format::Level;

    #[test]
    fn the_module_is_asked_for_once_by_the_program_that_the_kernel_names() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let (program, calls, choice) = (at("modprobe"), at("calls"), at("choice"));
        let script = format!("#!/bin/sh\necho \"$@\" >> {}\nexit 1\n", calls.display());
        std::fs::write(&program, script).expect("written");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, mode).expect("may run");
        std::fs::write(&choice, "modprobe\n").expect("written");
        ask_once(&Once::new(), &choice);
        assert!(!calls.exists(), "no program is looked for by its name");
        std::fs::write(&choice, format!("{}\n", program.display())).expect("written");
        let asked = Once::new();
        for _ in 0..3 {
            ask_once(&asked, &choice);
        }
        let calls = std::fs::read_to_string(calls).expect("it was called");
        assert_eq!(calls, "-q ublk_drv\n");
    }

    pub(crate) fn target(k: usize, m: usize, strip: u64) -> Target {
        let geometry = Geometry {
            level: Level::Raid5,
            groups: 1,
            per_row: 1,
            width: k + m,
            k,
            m,
            fixed: 0,
            strip,
            block: 4096,
            band: 1,
            rows: 1000,
            region_rows: 100,
            old_shape: None,
        };
        let (mailbox, _) = Mailbox::new().expect("eventfd");
        let peers = Peers::new(vec![mailbox]);
        Target {
            name: "t".into(),
            tag: 7,
            shape: crate::mail::shape::Shape::new(Arc::new(geometry.clone())),
            geometry: Arc::new(geometry),
            volume: None,
            granularity: 512,
            peers,
            in_flight: None,
        }
    }

    #[test]
    fn what_the_block_layer_is_told_is_true_of_the_array() {
        let four = params(&target(4, 1, 65536), 1 << 20);
        assert_eq!(
            (four.io_min_shift, four.io_opt_shift),
            (16, 18),
            "strip and full stripe"
        );
        assert_eq!((four.logical_shift, four.physical_shift), (12, 12));
        assert_eq!(four.max_sectors, 2048);
        let six = params(&target(6, 2, 131072), 1 << 20);
        assert_eq!(
            (six.io_min_shift, six.io_opt_shift),
            (17, 18),
            "two strips divide the stripe"
        );
        assert_eq!(six.max_sectors, 6 * 256, "cut where a stripe ends");
        let three = params(&target(3, 1, 1 << 20), 1 << 20);
        assert_eq!((three.io_min_shift, three.io_opt_shift), (20, 20));
        assert_eq!(three.max_sectors, 2048, "no stripe fits");
    }

    #[test]
    fn queues_hold_no_more_requests_than_were_asked_for() {
        let of = |shards, requests, data| queues(shards, NonZeroU32::new(requests), data);
        assert_eq!(of(2, 0, Data::UserCopy), (2, DEPTH_USER_COPY));
        assert_eq!(of(2, 64, Data::UserCopy), (2, 32));
        assert_eq!(
            of(4, 3, Data::UserCopy),
            (3, 1),
            "less than one for each shard"
        );
        assert_eq!(of(1, u32::MAX, Data::UserCopy), (1, DEPTH_MAX));
        assert_eq!(
            of(2, 1000, Data::Copy),
            (2, DEPTH_COPY),
            "memory for so many"
        );
    }

    #[test]
    fn the_best_mode_is_chosen_unless_another_is_asked_for() {
        let auto = abi::F_USER_COPY | abi::F_AUTO_BUF_REG;
        let batch = auto | abi::F_BATCH_IO;
        let chosen = |features, wanted| choose(features, wanted).map(Mode::as_str);
        assert_eq!(chosen(0, None), Ok("copy"));
        assert_eq!(chosen(abi::F_USER_COPY, None), Ok("user-copy"));
        assert_eq!(chosen(auto, None), Ok("auto-buffer"));
        assert_eq!(chosen(batch, None), Ok("batch-auto-buffer"));
        for mode in Mode::ALL {
            assert_eq!(chosen(batch, Some(mode.as_str())), Ok(mode.as_str()));
            assert_eq!(mode_of(needs(mode)), mode, "a device says what it is");
        }
        assert!(choose(0, Some("user-copy")).is_err());
        assert!(choose(abi::F_USER_COPY, Some("auto-buffer")).is_err());
        let why = choose(auto, Some("batch-user-copy")).expect_err("no batches there");
        assert!(why.contains("7.0"), "{why}");
        assert!(choose(auto, Some("fast")).is_err());
    }

    /// Every look at all arrays waited for the command that tells one of its size.
    #[test]
    fn what_a_device_is_can_be_told_while_the_driver_is_at_a_command() {
        let ring = IoUring::builder().build(4);
        let driver = Driver {
            ring: Box::new(ring.expect("a ring")),
            control: File::open("/dev/null").expect("there is one"),
            mode: Mode::new(Data::UserCopy, false),
            features: abi::F_USER_COPY,
            requests: None,
            overdue: false,
            removed: false,
        };
        let info = DeviceInfo {
            id: 7,
            queues: 2,
            depth: 64,
            ..DeviceInfo::default()
        };
        let device = Device::new(driver, &info, Vec::new());
        let command = locked(&device.driver);
        let (told, export) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let grown = device.grown(1 << 20);
                let _ = told.send(device.export());
                assert!(matches!(grown(), Ok(false)), "this driver cannot tell");
            });
            let export = export.recv_timeout(PATIENCE);
            drop(command);
            let export = export.expect("it waits for no command");
            assert_eq!((export.id, export.mode), (7, "user-copy"));
            assert_eq!((export.queues, export.depth), (2, 64));
        });
        let late = device.grown(1 << 20);
        let mut driver = locked(&device.driver);
        (driver.features, driver.removed) = (abi::F_UPDATE_SIZE, true);
        drop(driver);
        assert!(matches!(late(), Ok(true)), "its number may be another's");
    }

    #[test]
    fn a_kernel_without_ublk_is_named() {
        if Path::new(CONTROL).exists() {
            println!("SKIPPED: this kernel has ublk");
            return;
        }
        let why = Driver::open(None).expect_err("no driver here");
        assert!(why.contains("ublk"), "{why}");
    }
}
