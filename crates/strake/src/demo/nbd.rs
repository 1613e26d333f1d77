//! A small NBD client for the demo's load: one connection, many requests in flight.
//!
//! Protocol: fixed newstyle handshake, `NBD_OPT_GO`, simple replies. A thread reads replies and
//! hands each to the caller that waits for its cookie. Invariant: a request is answered once, or
//! its caller learns that the connection broke; what was not answered may be sent again on a new
//! connection.
//!
//! Deliberately absent: structured replies, TLS, everything that only other clients need (they are
//! tested with Debian's).

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const OPT_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const CLIENT_FLAGS: u32 = 3;

/// What to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// Read this many bytes.
    Read(u32),
    /// Write the payload.
    Write,
    /// Make everything durable.
    Flush,
}

impl Ask {
    fn code(self) -> u16 {
        match self {
            Ask::Read(_) => 0,
            Ask::Write => 1,
            Ask::Flush => 3,
        }
    }
}

/// Why a request has no good answer.
#[derive(Debug)]
pub(crate) enum NbdError {
    /// The connection broke before the answer came.
    Broken,
    /// The server answered with this errno.
    Refused(u32),
}

#[derive(Debug)]
struct Waiter {
    read_bytes: usize,
    answer: SyncSender<Result<Vec<u8>, u32>>,
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    write: Mutex<UnixStream>,
    waiting: Mutex<HashMap<u64, Waiter>>,
    next: AtomicU64,
    dead: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no user of the connection panics")
}

fn array<const N: usize>(stream: &mut UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn senseless(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the NBD server sent {what}"),
    )
}

fn handshake(stream: &mut UnixStream) -> io::Result<()> {
    if u64::from_be_bytes(array(stream)?) != MAGIC
        || u64::from_be_bytes(array(stream)?) != OPTION_MAGIC
    {
        return Err(senseless("no NBD greeting"));
    }
    let _flags: [u8; 2] = array(stream)?;
    let mut go = Vec::new();
    go.extend(CLIENT_FLAGS.to_be_bytes());
    go.extend(OPTION_MAGIC.to_be_bytes());
    go.extend(OPT_GO.to_be_bytes());
    go.extend(6u32.to_be_bytes());
    go.extend(0u32.to_be_bytes());
    go.extend(0u16.to_be_bytes());
    stream.write_all(&go)?;
    loop {
        if u64::from_be_bytes(array(stream)?) != OPTION_REPLY_MAGIC {
            return Err(senseless("no option reply"));
        }
        let _option: [u8; 4] = array(stream)?;
        let kind = u32::from_be_bytes(array(stream)?);
        let len = u32::from_be_bytes(array(stream)?);
        let mut data = vec![0; len.min(1 << 16) as usize];
        stream.read_exact(&mut data)?;
        match kind {
            REPLY_ACK => return Ok(()),
            REPLY_INFO => {}
            _ => return Err(senseless("an error to NBD_OPT_GO")),
        }
    }
}

impl Connection {
    /// Connects and negotiates.
    pub(crate) fn open(socket: &Path) -> io::Result<Arc<Connection>> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        handshake(&mut stream)?;
        stream.set_read_timeout(None)?;
        let reader = stream.try_clone()?;
        let connection = Arc::new(Connection {
            write: Mutex::new(stream),
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
            dead: AtomicBool::new(false),
        });
        let shared = Arc::clone(&connection);
        strake_runtime::spawn_thread("nbd replies", move || {
            // Why it ended does not matter: all waiting threads learn that it did.
            let _ = shared.read_replies(reader);
            shared.dead.store(true, Ordering::SeqCst);
            locked(&shared.waiting).clear();
        })?;
        Ok(connection)
    }

    fn read_replies(&self, mut stream: UnixStream) -> io::Result<()> {
        loop {
            let head: [u8; 16] = array(&mut stream)?;
            let (magic, rest) = head.split_at(4);
            if magic != REPLY_MAGIC.to_be_bytes() {
                return Err(senseless("no reply"));
            }
            let (error, cookie) = rest.split_at(4);
            let error = u32::from_be_bytes(error.try_into().expect("four bytes"));
            let cookie = u64::from_be_bytes(cookie.try_into().expect("eight bytes"));
            let Some(waiter) = locked(&self.waiting).remove(&cookie) else {
                return Err(senseless("a reply to nothing"));
            };
            let answer = if error == 0 {
                let mut bytes = vec![0; waiter.read_bytes];
                stream.read_exact(&mut bytes)?;
                Ok(bytes)
            } else {
                Err(error)
            };
            // A caller that has given up does not want it.
            let _ = waiter.answer.send(answer);
        }
    }

    /// Whether it broke.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Ends it: waiting threads learn that it broke.
    pub(crate) fn close(&self) {
        // It may be closed already.
        let _ = locked(&self.write).shutdown(std::net::Shutdown::Both);
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn call(&self, ask: Ask, offset: u64, payload: &[u8]) -> Result<Vec<u8>, NbdError> {
        let cookie = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = sync_channel(1);
        let (read_bytes, len) = match ask {
            Ask::Read(len) => (len as usize, len),
            Ask::Write => (0, payload.len() as u32),
            Ask::Flush => (0, 0),
        };
        locked(&self.waiting).insert(cookie, Waiter { read_bytes, answer });
        // If the connection dies after this, its reader finds the cookie in `waiting`; if it died
        // before, that is seen here.
        if self.is_dead() {
            locked(&self.waiting).remove(&cookie);
            return Err(NbdError::Broken);
        }
        let mut head = Vec::with_capacity(28);
        head.extend(REQUEST_MAGIC.to_be_bytes());
        head.extend(0u16.to_be_bytes());
        head.extend(ask.code().to_be_bytes());
        head.extend(cookie.to_be_bytes());
        head.extend(offset.to_be_bytes());
        head.extend(len.to_be_bytes());
        let sent = {
            let mut stream = locked(&self.write);
            stream
                .write_all(&head)
                .and_then(|()| stream.write_all(payload))
        };
        if sent.is_err() {
            self.close();
        }
        match answered.recv() {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(errno)) => Err(NbdError::Refused(errno)),
            Err(_) => Err(NbdError::Broken),
        }
    }
}
