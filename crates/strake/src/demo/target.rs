//! The block device under load: NBD, or a ublk device; it may vanish for a while and come back.
//!
//! Invariant: a request that was not answered is sent again until it is, or until patience ends; so
//! an answer is always an acknowledgement. Deliberately absent: what is read and written (oracle).

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::demo::nbd::{Ask, Connection, NbdError};

/// How long a request may go unanswered, over all attempts.
const PATIENCE: Duration = Duration::from_secs(60);
const ALIGN: usize = 4096;

/// Bytes aligned for O_DIRECT.
#[derive(Debug)]
pub(crate) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Zeroes.
    pub(crate) fn new(len: usize) -> Aligned {
        let bytes = vec![0; len + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN);
        Aligned { bytes, start, len }
    }
    /// The first `len` bytes.
    pub(crate) fn get(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.len, "{len} bytes of {}", self.len);
        &mut self.bytes[self.start..self.start + len]
    }
}

#[derive(Debug)]
enum Kind {
    Nbd {
        socket: PathBuf,
        connection: Mutex<Option<Arc<Connection>>>,
    },
    Block(File),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Target {
    kind: Kind,
    resent: AtomicU64,
    errors: AtomicU64,
}

impl Target {
    /// The device that `show` names.
    pub(crate) fn open(device: &str) -> io::Result<Target> {
        let kind = match device.split_once("socket=") {
            Some((_, socket)) => Kind::Nbd {
                socket: PathBuf::from(socket),
                connection: Mutex::new(None),
            },
            None => {
                let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
                let mut options = File::options();
                options.read(true).write(true).custom_flags(direct);
                Kind::Block(options.open(Path::new(device))?)
            }
        };
        Ok(Target {
            kind,
            resent: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        })
    }
    /// Requests that were sent more than once because the daemon was gone.
    pub(crate) fn resent(&self) -> u64 {
        self.resent.load(Ordering::Relaxed)
    }
    /// Requests that were answered with an error (and sent again).
    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    fn connection(&self) -> io::Result<Arc<Connection>> {
        let Kind::Nbd { socket, connection } = &self.kind else {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        };
        let mut connection = connection.lock().expect("no user of the target panics");
        if let Some(open) = connection.as_ref().filter(|c| !c.is_dead()) {
            return Ok(Arc::clone(open));
        }
        let fresh = Connection::open(socket)?;
        *connection = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    fn nbd(&self, ask: Ask, offset: u64, payload: &[u8]) -> Result<Vec<u8>, Again> {
        let connection = self.connection().map_err(|_| Again::Gone)?;
        connection
            .call(ask, offset, payload)
            .map_err(|trouble| match trouble {
                NbdError::Broken => Again::Gone,
                NbdError::Refused(errno) => {
                    Again::Error(io::Error::from_raw_os_error(errno as i32))
                }
            })
    }

    /// Repeats until it is answered well or patience ends.
    fn patiently<T>(&self, mut attempt: impl FnMut() -> Result<T, Again>) -> io::Result<T> {
        let give_up = Instant::now() + PATIENCE;
        let mut errors_left = 3;
        loop {
            match attempt() {
                Ok(value) => return Ok(value),
                Err(_) if Instant::now() > give_up => {
                    return Err(io::Error::from(io::ErrorKind::TimedOut));
                }
                Err(Again::Gone) => {
                    self.resent.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(20));
                }
                Err(Again::Error(error)) => {
                    self.errors.fetch_add(1, Ordering::Relaxed);
                    errors_left -= 1;
                    if errors_left == 0 {
                        return Err(error);
                    }
                    thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    /// Fills `bytes` from `offset`.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.patiently(|| match &self.kind {
            Kind::Block(file) => file.read_exact_at(bytes, offset).map_err(Again::Error),
            Kind::Nbd { .. } => {
                let answer = self.nbd(Ask::Read(bytes.len() as u32), offset, &[])?;
                bytes.copy_from_slice(&answer);
                Ok(())
            }
        })
    }
    /// Writes `bytes` at `offset`.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.patiently(|| match &self.kind {
            Kind::Block(file) => file.write_all_at(bytes, offset).map_err(Again::Error),
            Kind::Nbd { .. } => self.nbd(Ask::Write, offset, bytes).map(|_| ()),
        })
    }
    /// Makes everything answered durable.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.patiently(|| match &self.kind {
            Kind::Block(file) => file.sync_data().map_err(Again::Error),
            Kind::Nbd { .. } => self.nbd(Ask::Flush, 0, &[]).map(|_| ()),
        })
    }
}

/// Why a request is sent again.
enum Again {
    /// Nobody is there.
    Gone,
    /// It was answered with an error.
    Error(io::Error),
}
