//! One member: a block device or a file, opened, and its synchronous (control-path) I/O.
//!
//! Invariants:
//! * A device opened as a member is ours alone: block devices by O_EXCL (which mounts, md and
//!   device-mapper respect), files by an exclusive `flock`. Opening the same one twice fails, also
//!   within one process, and a file while a loop device over it is a member, or the other way
//!   round.
//! * Metadata I/O goes past the page cache where the device allows it, through aligned buffers of
//!   its own.
//!
//! Deliberately absent: the data path (see `member_io`), and looking for foreign signatures and
//! mounts (the command line does that before it opens anything for writing).

mod metadata;
pub mod nvme;
mod probe;
pub(crate) mod set;
pub(crate) mod streams;
pub(crate) mod watch;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use strake_engine::buffers::{Buf, PAGE};
use strake_engine::event::{DeviceInfo, IoError};

use streams::WriteStreams;

pub use metadata::{Look, MemberImage};
pub use probe::lock_holders;

/// Bytes of one synchronous transfer.
const CHUNK: usize = 1 << 20;

/// So long the errno of an I/O explains what becomes of its device: longer than an I/O may take.
const ERRNO_EXPLAINS: Duration = Duration::from_secs(300);

/// How long a device that is held is tried again.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait between tries.
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// A member device or file, opened.
#[derive(Debug)]
pub struct Device {
    path: PathBuf,
    file: File,
    /// The file under it, if it is a loop device: held open, so that no other array takes it as a
    /// member.
    _backing: Option<File>,
    kind: Kind,
    info: DeviceInfo,
    at_once: usize,
    refuses: usize,
    streams: WriteStreams,
    last_error: Mutex<Option<(i32, Instant)>>,
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A block device, with its number.
    Block {
        /// `st_rdev`.
        number: u64,
        /// It had an entry in sysfs when it was opened.
        in_sysfs: bool,
    },
    /// A regular file.
    File,
}

/// How to open a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// To look only; works while another process holds it.
    ReadOnly,
    /// As a member: read and write, O_DIRECT, O_EXCL for block devices, an exclusive lock for
    /// files.
    Member,
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
    /// It cannot be written: the device is read-only, or what it lies on is.
    #[error("{0}: is read-only")]
    ReadOnly(PathBuf),
    /// Another process (or array) holds it.
    #[error("{0}: in use by another program")]
    Busy(PathBuf),
    /// Neither a block device nor a regular file.
    #[error("{0}: neither a block device nor a regular file")]
    Kind(PathBuf),
    /// The array has had 2^32 - 1 devices since it was started.
    #[error("{0}: the array has had too many devices since it was started to number another")]
    NoNumber(PathBuf),
    /// An I/O failed.
    #[error("{path}: {action}: {source}")]
    Io {
        /// The device.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// The errno.
        source: io::Error,
    },
    /// No superblock of ours.
    #[error("{0}: holds no Strake superblock")]
    NotStrake(PathBuf),
    /// Superblocks of ours that this program cannot read.
    #[error("{path}: was written by a newer version: {what}")]
    Newer {
        /// The device.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// The device ends before the end that its superblock names.
    #[error("{path}: the device shrank from {recorded_bytes} to {device_bytes} bytes")]
    Shrunk {
        /// The device.
        path: PathBuf,
        /// Its size, as the superblock has it.
        recorded_bytes: u64,
        /// Its size now.
        device_bytes: u64,
    },
    /// Superblocks of ours, none of which can be believed.
    #[error("{path}: {what}")]
    Damaged {
        /// The device.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// Names the error of an I/O on `path`.
fn failed(path: &Path, action: &'static str, source: impl Into<io::Error>) -> DeviceError {
    let source = source.into();
    let path = path.to_owned();
    match source.raw_os_error() {
        Some(libc::ENOENT) => DeviceError::NotFound(path),
        Some(libc::EACCES | libc::EPERM) => DeviceError::Permission(path),
        Some(libc::EROFS) => DeviceError::ReadOnly(path),
        Some(libc::EBUSY | libc::EWOULDBLOCK | libc::ETXTBSY) => DeviceError::Busy(path),
        _ => DeviceError::Io {
            path,
            action,
            source,
        },
    }
}

/// Opens with O_DIRECT where the file system knows it. The flag says whether it did.
fn open_direct(path: &Path, write: bool, flags: OFlags) -> io::Result<(File, bool)> {
    let open = |extra: OFlags| {
        std::fs::OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags((flags | extra | OFlags::CLOEXEC | OFlags::NONBLOCK).bits() as i32)
            .open(path)
    };
    match open(OFlags::DIRECT) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            open(OFlags::empty()).map(|file| (file, false))
        }
        Err(error) => Err(error),
    }
}

impl Device {
    /// Opens a device or file. One that is held is tried again for a second: a device that an
    /// array has just released closes when its last shard has let go, and the kernel takes a while
    /// to close the rings of a daemon that was killed.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Device, DeviceError> {
        Device::open_within(path, mode, BUSY_PATIENCE)
    }

    /// As [`Device::open`], but waits up to `patience` for another process to release the device.
    pub fn open_within(
        path: &Path,
        mode: OpenMode,
        patience: Duration,
    ) -> Result<Device, DeviceError> {
        let give_up = Instant::now() + patience;
        loop {
            match Device::open_once(path, mode) {
                Err(DeviceError::Busy(_)) if Instant::now() < give_up => {
                    std::thread::sleep(BUSY_PAUSE);
                }
                other => return other,
            }
        }
    }

    fn open_once(path: &Path, mode: OpenMode) -> Result<Device, DeviceError> {
        let kind = std::fs::metadata(path)
            .map_err(|e| failed(path, "stat", e))?
            .file_type();
        if !kind.is_block_device() && !kind.is_file() {
            return Err(DeviceError::Kind(path.to_owned()));
        }
        let member = mode == OpenMode::Member;
        let exclusive = if member && kind.is_block_device() {
            OFlags::EXCL
        } else {
            OFlags::empty()
        };
        let (file, mut direct) =
            open_direct(path, member, exclusive).map_err(|e| failed(path, "open", e))?;
        let opened = file.metadata().map_err(|e| failed(path, "stat", e))?;
        if opened.file_type() != kind {
            return Err(DeviceError::Kind(path.to_owned()));
        }
        // Linux opens one for root all the same, and refuses each write.
        if member && kind.is_block_device() && probe::is_read_only(opened.rdev()) {
            return Err(DeviceError::ReadOnly(path.to_owned()));
        }
        if member && kind.is_file() {
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
                .map_err(|e| failed(path, "lock", e))?;
        }
        let backing = match member && kind.is_block_device() {
            true => lock_backing(path, opened.rdev())?,
            false => None,
        };
        let (kind, info) = if kind.is_block_device() {
            probe::block(&file).map_err(|e| failed(path, "ask for its properties", e))?
        } else {
            let (info, usable) = probe::file(&file, direct)
                .map_err(|e| failed(path, "ask for its properties", e))?;
            if direct && !usable {
                file_without_direct(&file).map_err(|e| failed(path, "clear O_DIRECT", e))?;
                direct = false;
            }
            (Kind::File, info)
        };
        // Only the open itself was not to wait: with the flag, io_uring would do the I/O of some
        // file systems in the submitting thread.
        let flags = rustix::fs::fcntl_getfl(&file)
            .and_then(|flags| rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK));
        flags.map_err(|e| failed(path, "clear O_NONBLOCK", e))?;
        let mut info = info;
        if !direct {
            // The page cache is a volatile cache, whatever the device says.
            info.volatile_cache = true;
            tracing::debug!(path = %path.display(), "no O_DIRECT: through the page cache");
        }
        Ok(Device {
            path: path.to_owned(),
            file,
            _backing: backing,
            refuses: match kind {
                Kind::Block { number, .. } if direct => probe::refuses(number),
                _ => 0,
            },
            at_once: match kind {
                Kind::Block { number, .. } => probe::at_once(number),
                Kind::File => usize::MAX,
            },
            streams: match kind {
                Kind::Block { number, .. } => {
                    WriteStreams::of(streams::offered(&probe::sysfs(number)))
                }
                Kind::File => WriteStreams::default(),
            },
            kind,
            info,
            last_error: Mutex::default(),
        })
    }

    /// Its path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the block device that it is or lies on; 0 if that is not known.
    pub(crate) fn number(&self) -> u64 {
        match self.kind {
            Kind::Block { number, .. } => number,
            Kind::File => rustix::fs::fstat(&self.file).map_or(0, |stat| stat.st_dev),
        }
    }

    /// Its properties.
    pub fn info(&self) -> DeviceInfo {
        self.info
    }

    /// Bytes that one request can carry, wherever they lie; 0 if that is not known.
    pub(crate) fn at_once(&self) -> usize {
        self.at_once
    }

    /// So long an I/O may be that the kernel refuses where the device has no room for it
    /// (RWF_NOWAIT), bytes; 0 for none.
    pub(crate) fn refuses(&self) -> usize {
        self.refuses
    }

    /// Its write streams.
    pub(crate) fn streams(&self) -> &WriteStreams {
        &self.streams
    }

    /// Its size now: it may have grown since it was opened. What does not tell is as it was.
    pub fn bytes_now(&self) -> u64 {
        let bytes = match self.kind {
            Kind::Block { .. } => probe::block_bytes(&self.file).ok(),
            // One that was cut to nothing is there, and has shrunk.
            Kind::File => self.file.metadata().ok().map(|stat| stat.len().max(1)),
        };
        // A drive that was pulled has none.
        bytes.filter(|&bytes| bytes > 0).unwrap_or(self.info.bytes)
    }

    /// Reads, synchronously (metadata, control path). Any alignment.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), DeviceError> {
        let page = PAGE as u64;
        let mut bounce = Buf::zeroed(CHUNK.min(bytes.len() + 2 * PAGE));
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let skip = (at % page) as usize;
            let want = (bounce.len() - skip).min(bytes.len() - done);
            let len = (skip + want).next_multiple_of(PAGE).min(bounce.len());
            let got = self
                .read_some(at - skip as u64, &mut bounce.bytes_mut()[..len])
                .map_err(|e| failed(&self.path, "read", e))?;
            if got <= skip {
                let source = io::Error::from(io::ErrorKind::UnexpectedEof);
                return Err(failed(&self.path, "read beyond its end", source));
            }
            let useful = (got - skip).min(want);
            bytes[done..done + useful].copy_from_slice(&bounce.bytes()[skip..skip + useful]);
            done += useful;
        }
        Ok(())
    }

    /// Reads until `bytes` is full or the device ends.
    fn read_some(&self, offset: u64, bytes: &mut [u8]) -> rustix::io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pread(&self.file, &mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(Errno::INTR) => {}
                // A direct read that starts at an end which is not a whole page says EINVAL.
                Err(Errno::INVAL) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes, synchronously (metadata, control path). Offset and length multiples of 4096.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        if !offset.is_multiple_of(PAGE as u64) || !bytes.len().is_multiple_of(PAGE) {
            return Err(failed(&self.path, "write unaligned metadata", Errno::INVAL));
        }
        let mut bounce = Buf::zeroed(CHUNK.min(bytes.len()));
        for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
            bounce.bytes_mut()[..chunk.len()].copy_from_slice(chunk);
            let at = offset + (index * CHUNK) as u64;
            self.write_all(at, &bounce.bytes()[..chunk.len()])
                .map_err(|e| failed(&self.path, "write", e))?;
        }
        Ok(())
    }

    fn write_all(&self, offset: u64, bytes: &[u8]) -> rustix::io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&self.file, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(got) => done += got,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Makes what was written durable.
    pub fn flush(&self) -> Result<(), DeviceError> {
        rustix::fs::fdatasync(&self.file).map_err(|e| failed(&self.path, "flush", e))
    }

    /// Zeroes a range, by deallocation where the device can guarantee zeros.
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        if len == 0 {
            return Ok(());
        }
        let keep = FallocateFlags::KEEP_SIZE;
        let ways: &[FallocateFlags] = match self.kind {
            // On a block device: Write Zeroes with deallocation, then without it (the kernel
            // writes zeros if need be).
            Kind::Block { .. } => &[FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE],
            Kind::File => &[FallocateFlags::PUNCH_HOLE],
        };
        for &way in ways {
            match rustix::fs::fallocate(&self.file, way | keep, offset, len) {
                Ok(()) => return Ok(()),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(error) => return Err(failed(&self.path, "zero a range", error)),
            }
        }
        let zeros = Buf::zeroed(CHUNK);
        let mut at = offset;
        while at < offset + len {
            let part = (offset + len - at).min(CHUNK as u64) as usize;
            self.write_all(at, &zeros.bytes()[..part])
                .map_err(|e| failed(&self.path, "zero a range", e))?;
            at += part as u64;
        }
        Ok(())
    }

    /// Deallocates a range. Where the device cannot, nothing happens.
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        if len == 0 {
            return Ok(());
        }
        let done = match self.kind {
            Kind::Block { .. } => probe::block_discard(&self.file, offset, len),
            Kind::File => rustix::fs::fallocate(
                &self.file,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                offset,
                len,
            )
            .map_err(io::Error::from),
        };
        match done {
            Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => {
                Err(failed(&self.path, "discard", error))
            }
            _ => Ok(()),
        }
    }

    /// Its descriptor, for the data path.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Its descriptor, for the watch.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// What it is.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Has it vanished? A drive that was pulled answers every I/O with EIO and has a size of zero;
    /// a file member has lost its last name or was cut short.
    pub(crate) fn is_gone(&self) -> bool {
        self.why_gone().is_some()
    }

    /// The same, with what became of it: one that is there and is smaller than it was has lost what
    /// lay behind its end.
    pub(crate) fn why_gone(&self) -> Option<IoError> {
        let (there, bytes) = match self.kind {
            Kind::Block { number, in_sysfs } => {
                let there = !in_sysfs || probe::sysfs(number).exists();
                (there, probe::block_bytes(&self.file).unwrap_or(0))
            }
            Kind::File => match rustix::fs::fstat(&self.file) {
                Ok(stat) => (stat.st_nlink > 0, stat.st_size as u64),
                Err(_) => (false, 0),
            },
        };
        let empty_file = matches!(self.kind, Kind::File) && bytes == 0;
        match there && (bytes > 0 || empty_file) {
            true if bytes < self.info.bytes => Some(IoError::Shrunk),
            true => None,
            false => Some(IoError::Gone),
        }
    }

    fn last_error(&self) -> MutexGuard<'_, Option<(i32, Instant)>> {
        self.last_error
            .lock()
            .expect("no thread panics with the last error of a device")
    }

    /// The errno of the last I/O that failed, if that was a short while ago: it explains why the
    /// device goes out now. An older one explains nothing.
    pub(crate) fn recent_errno(&self) -> Option<i32> {
        let (errno, at) = (*self.last_error())?;
        (at.elapsed() < ERRNO_EXPLAINS).then_some(errno)
    }

    /// What an errno of this device means to the engine. Of a drive that was pulled Linux says many
    /// things: EIO, and, since it has no size any more, ENOSPC of writes and EINVAL of zeroes.
    pub(crate) fn classify(&self, errno: i32) -> IoError {
        *self.last_error() = Some((errno, Instant::now()));
        match errno {
            libc::ENODEV | libc::ENXIO | libc::EBADF | libc::ENOMEDIUM | libc::ESHUTDOWN => {
                self.why_gone().unwrap_or(IoError::Gone)
            }
            errno => self.why_gone().unwrap_or_else(|| of_errno(errno)),
        }
    }
}

/// What an errno means of a device that is there.
fn of_errno(errno: i32) -> IoError {
    match errno {
        libc::EIO => IoError::Unclear,
        libc::ENODATA | libc::EILSEQ | libc::EREMOTEIO | libc::EBADE => IoError::Media,
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => IoError::NoSpace,
        // The kernel's words for what did not get through: a path or a controller that is being
        // reset (ENOLINK, EBUSY), or its own deadlines (ETIMEDOUT, ETIME).
        libc::ENOLINK | libc::EBUSY | libc::ETIME | libc::ETIMEDOUT => IoError::Transport(errno),
        // Nothing cancels an I/O here but a ring that gets no thread for one that may block (a
        // flush): there are as many threads as there may be.
        libc::EAGAIN | libc::ENOMEM | libc::ENOBUFS | libc::ECANCELED => IoError::Unsent(errno),
        other => IoError::Other(other),
    }
}

/// Locks the file that a loop device lies over. Other loop devices, or partitions of this one, may
/// lie over other parts of it.
fn lock_backing(path: &Path, device: u64) -> Result<Option<File>, DeviceError> {
    let backing = probe::backing(device);
    if let Some(backing) = &backing {
        rustix::fs::flock(backing, FlockOperation::NonBlockingLockShared)
            .map_err(|e| failed(path, "lock its backing file", e))?;
    }
    Ok(backing)
}

/// Removes O_DIRECT from an open file if its file system wants a larger alignment than the engine
/// keeps.
fn file_without_direct(file: &File) -> rustix::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, flags - OFlags::DIRECT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        file.as_file().set_len(bytes).expect("size");
        file
    }

    #[test]
    fn a_member_file_is_ours_alone() {
        let file = file(1 << 20);
        let first = Device::open(file.path(), OpenMode::Member).expect("opens");
        let again = Device::open(file.path(), OpenMode::Member);
        assert!(matches!(again, Err(DeviceError::Busy(_))), "{again:?}");
        Device::open(file.path(), OpenMode::ReadOnly).expect("looking works");
        drop(first);
        Device::open(file.path(), OpenMode::Member).expect("free again");
    }

    #[test]
    fn a_file_and_a_loop_device_over_it_are_not_two_members() {
        let file = file(1 << 20);
        let losetup = |args: &[&str]| {
            let output = std::process::Command::new("losetup").args(args).output();
            let output = output.ok().filter(|output| output.status.success())?;
            Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let path = file.path().to_str().expect("a name");
        let Some(device) = losetup(&["--find", "--show", path]) else {
            println!("SKIPPED: no loop devices here");
            return;
        };
        let device = PathBuf::from(device);
        let busy = |path: &Path| {
            let opened = Device::open_within(path, OpenMode::Member, Duration::ZERO);
            matches!(opened, Err(DeviceError::Busy(_)))
        };
        let over = Device::open(&device, OpenMode::Member).expect("nobody has it");
        assert!(busy(file.path()), "the file under a member");
        drop(over);
        let under = Device::open(file.path(), OpenMode::Member).expect("nobody has it");
        assert!(busy(&device), "the loop device over a member");
        drop(under);
        assert!(!busy(&device) && !busy(file.path()));
        losetup(&["--detach", device.to_str().expect("a name")]).expect("detached");
    }

    #[test]
    fn what_is_not_a_device_is_named() {
        let dir = tempfile::tempdir().expect("folder");
        let missing = Device::open(&dir.path().join("nothing"), OpenMode::ReadOnly);
        assert!(
            matches!(missing, Err(DeviceError::NotFound(_))),
            "{missing:?}"
        );
        let folder = Device::open(dir.path(), OpenMode::ReadOnly);
        assert!(matches!(folder, Err(DeviceError::Kind(_))), "{folder:?}");
        let null = Device::open(Path::new("/dev/null"), OpenMode::Member);
        assert!(matches!(null, Err(DeviceError::Kind(_))), "{null:?}");
    }

    #[test]
    fn metadata_comes_back_at_any_alignment() {
        // Not a multiple of a page: the last read is cut short by the end.
        let file = file(3 * (1 << 20) + 512);
        let device = Device::open(file.path(), OpenMode::Member).expect("opens");
        let bytes: Vec<u8> = (0..2 * CHUNK + PAGE)
            .map(|i| (i * 7 + i / 4096) as u8)
            .collect();
        device.write_at(4096, &bytes).expect("writes");
        for (offset, len) in [
            (4096, bytes.len()),
            (5000, 1),
            (4095, 2),
            (8191, 1 << 20),
            (4096, 0),
        ] {
            let mut read = vec![0xee; len];
            device.read_at(offset, &mut read).expect("reads");
            for (i, &byte) in read.iter().enumerate() {
                let at = offset as usize + i;
                let expected = if at < 4096 { 0 } else { bytes[at - 4096] };
                assert_eq!(byte, expected, "byte {at}");
            }
        }
        let mut tail = [1u8; 512];
        device
            .read_at(3 * (1 << 20), &mut tail)
            .expect("the last sector");
        assert_eq!(tail, [0; 512]);
        assert!(
            device.read_at(3 * (1 << 20) + 511, &mut [0; 2]).is_err(),
            "beyond the end"
        );
        assert!(device.write_at(512, &[0; 4096]).is_err(), "unaligned");
    }

    #[test]
    fn zeroed_and_discarded_ranges_read_as_zeros() {
        let file = file(4 << 20);
        let device = Device::open(file.path(), OpenMode::Member).expect("opens");
        device.write_at(0, &vec![0x5a; 4 << 20]).expect("writes");
        device.write_zeroes(4096, 1 << 20).expect("zeroes");
        device.discard(2 << 20, 1 << 20).expect("discards");
        let mut all = vec![1; 4 << 20];
        device.read_at(0, &mut all).expect("reads");
        for (at, &byte) in all.iter().enumerate() {
            let zero = (4096..4096 + (1 << 20)).contains(&at) || (2 << 20..3 << 20).contains(&at);
            assert_eq!(byte, if zero { 0 } else { 0x5a }, "byte {at}");
        }
    }

    #[test]
    fn a_deleted_or_truncated_file_is_gone() {
        let kept = file(1 << 20);
        let device = Device::open(kept.path(), OpenMode::Member).expect("opens");
        assert!(!device.is_gone());
        kept.as_file().set_len(4096).expect("cut");
        assert_eq!(device.why_gone(), Some(IoError::Shrunk));
        assert_eq!(device.classify(libc::EIO), IoError::Shrunk);
        kept.as_file().set_len(1 << 20).expect("grown");
        assert!(!device.is_gone());
        assert_eq!(device.classify(libc::EIO), IoError::Unclear);
        drop(kept);
        assert!(device.is_gone());
        for errno in [libc::EIO, libc::ENOSPC, libc::EINVAL, libc::ENOLINK] {
            assert_eq!(device.classify(errno), IoError::Gone);
        }
    }
}
