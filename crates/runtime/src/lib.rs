//! The data path's syscalls: members, shards (one thread and one io_uring each), exports (ublk, NBD).
//!
//! **Architecture invariant:** no decision about the array is taken here; what to do is the engine's word, how
//! to have it done is the runtime's.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime};

use strake_engine::event::{Changed, Command, CommandError, DeviceInfo, EventKind, Found, Status};
use strake_engine::units::DeviceId;
use strake_format::{MapPage, Superblock};

/// A member device or file, opened.
#[derive(Debug)]
pub struct Device {}

/// How to open a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// To look only; works while somebody else holds it.
    ReadOnly,
    /// As a member: read and write, O_DIRECT, O_EXCL for block devices, an exclusive lock for files.
    Member,
}

/// What reading a member's metadata found.
#[derive(Clone, Debug)]
pub struct MemberImage {
    /// The newer valid copy.
    pub superblock: Superblock,
    /// Offset and validity of both copies.
    pub copies: [(u64, bool); 2],
    /// Newest valid version of each region map page.
    pub map: Vec<Option<MapPage>>,
}

/// Why a device operation failed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// No such file or device.
    #[error("{0}: not found")]
    NotFound(PathBuf),
    /// No permission.
    #[error("{0}: permission denied")]
    Permission(PathBuf),
    /// Another process (or array) holds it.
    #[error("{0}: in use by another program")]
    Busy(PathBuf),
    /// Neither a block device nor a regular file.
    #[error("{0}: neither a block device nor a regular file")]
    Kind(PathBuf),
    /// An I/O failed.
    #[error("{path}: {action}: {source}")]
    Io {
        /// The device.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// The errno.
        source: std::io::Error,
    },
    /// No superblock of ours.
    #[error("{0}: holds no Strake superblock")]
    NotStrake(PathBuf),
    /// Superblocks of ours, none of them whole.
    #[error("{path}: both superblock copies are damaged: {what}")]
    Damaged {
        /// The device.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

#[expect(unused_variables, reason = "signatures first")]
impl Device {
    /// Opens a device or file.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Device, DeviceError> {
        todo!()
    }
    /// Its path as given.
    pub fn path(&self) -> &Path {
        todo!()
    }
    /// Its properties.
    pub fn info(&self) -> DeviceInfo {
        todo!()
    }
    /// Reads, synchronously (metadata, control path). Any alignment.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        todo!()
    }
    /// Writes, synchronously (metadata, control path). Offset and length multiples of 4096.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        todo!()
    }
    /// Makes what was written durable.
    pub fn flush(&self) -> Result<(), DeviceError> {
        todo!()
    }
    /// Zeroes a range, by deallocation where the device can guarantee zeros.
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        todo!()
    }
    /// Deallocates a range.
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        todo!()
    }
    /// Superblock copies and region map.
    pub fn read_member(&self) -> Result<MemberImage, DeviceError> {
        todo!()
    }
}

/// How to serve the block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportKind {
    /// ublk where the kernel has it and the user may, else NBD.
    Auto,
    /// /dev/ublkbN.
    Ublk,
    /// A Unix socket that speaks NBD.
    Nbd,
    /// Nothing.
    None,
}

/// What is needed to serve an array.
#[derive(Debug)]
pub struct ServeConfig {
    /// Members and spares found, opened with [`OpenMode::Member`].
    pub members: Vec<(Device, MemberImage)>,
    /// Threads; 1 or more.
    pub shards: u16,
    /// Buffer memory of each shard, bytes.
    pub memory_bytes: usize,
    /// A member I/O that takes longer counts as timed out.
    pub io_timeout: Duration,
    /// Start a dirty degraded array all the same.
    pub force: bool,
    /// How to serve it.
    pub export: ExportKind,
    /// Where the NBD socket goes.
    pub nbd_socket: PathBuf,
    /// Number of a ublk device that a daemon killed before left behind, to be recovered.
    pub recover_ublk: Option<u32>,
}

/// What serves the array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Export {
    /// A block device.
    Ublk {
        /// N of /dev/ublkbN.
        id: u32,
    },
    /// An NBD URI, `nbd+unix:///?socket=…`.
    Nbd {
        /// The socket.
        socket: PathBuf,
    },
    /// Nothing.
    None,
}

impl Export {
    /// `/dev/ublkbN`, an NBD URI that libnbd's tools accept, or nothing.
    pub fn device(&self) -> Option<String> {
        match self {
            Export::Ublk { id } => Some(format!("/dev/ublkb{id}")),
            Export::Nbd { socket } => Some(format!("nbd+unix:///?socket={}", socket.display())),
            Export::None => None,
        }
    }
}

/// Why an array cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The engine refused.
    #[error(transparent)]
    Start(#[from] strake_engine::StartError),
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The kernel has no ublk driver, or the user may not use it.
    #[error("no ublk: {0}")]
    NoUblk(String),
    /// A syscall failed.
    #[error("{action}: {source}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// The errno.
        source: std::io::Error,
    },
    /// Members failed while the array was starting, and too few are left.
    #[error("members failed while the array was starting")]
    MembersFailed,
}

/// An event with wall-clock time.
#[derive(Clone, Debug)]
pub struct EventRecord {
    /// When.
    pub time: SystemTime,
    /// What.
    pub kind: EventKind,
    /// Path of the device that the event names, if any.
    pub device: Option<PathBuf>,
}

/// Requests served since start, for `show`, the demo and metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Reads answered.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes answered.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
}

/// An array being served. All methods may be called from any thread; they block until answered.
#[derive(Debug)]
pub struct Serving {}

/// Assembles, starts shards and the export, and returns when the array serves.
#[expect(unused_variables, reason = "signatures first")]
pub fn serve(config: ServeConfig) -> Result<(Serving, Receiver<EventRecord>), ServeError> {
    todo!()
}

#[expect(unused_variables, reason = "signatures first")]
impl Serving {
    /// Everything that `show` tells.
    pub fn status(&self) -> Status {
        todo!()
    }
    /// Path of a device.
    pub fn path(&self, device: DeviceId) -> Option<PathBuf> {
        todo!()
    }
    /// Numbers a device and hands it over, for use in a [`Command::Add`] or [`Command::Replace`].
    pub fn attach(&self, device: Device) -> DeviceId {
        todo!()
    }
    /// Carries out a command.
    pub fn command(&self, command: Command) -> Result<Changed, CommandError> {
        todo!()
    }
    /// What serves it.
    pub fn export(&self) -> Export {
        todo!()
    }
    /// Requests served.
    pub fn counters(&self) -> Counters {
        todo!()
    }
    /// State of the region that holds a byte of the array.
    pub fn region_of(&self, offset: u64) -> strake_format::RegionState {
        todo!()
    }
    /// Stops taking requests, removes the export, makes everything durable and closes the members.
    pub fn stop(self) -> Result<(), ServeError> {
        todo!()
    }
}

/// The engine's description of a member found, for offline use.
pub fn found(device: DeviceId, info: DeviceInfo, image: MemberImage) -> Found {
    Found { device, info, superblock: image.superblock, map: image.map }
}
