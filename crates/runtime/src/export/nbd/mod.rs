//! The array, or a volume of it, over NBD on a Unix socket: for kernels without ublk, for virtual
//! machines and for tests.
//!
//! Threads: one that accepts, and for each connection one that reads requests and one that writes
//! answers, all asleep while nothing happens. Requests go to a shard by mail; connections take
//! turns among shards.
//!
//! Invariants:
//! * A connection has its own bounded memory; when that is used up its requests wait in the socket.
//! * A stop takes no more requests, has those in flight answered, and then closes.
//! * The socket is for its owner only (mode 0600), and a file left behind by a killed daemon is
//!   replaced; one that answers is not. A stop removes no file but its own.
//!
//! Deliberately absent: TCP, TLS, and more than one export on a socket.

mod connection;
mod negotiate;
pub mod wire;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use strake_engine::units::ShardNo;

use super::{Target, locked};
use crate::memory::budget::check_descriptors_for_client;
use crate::spawn::spawn;

/// Connections at once; each may hold as much memory as `connection` says.
const CONNECTIONS_MAX: usize = 32;
/// How long a file system is waited for.
const FILES_PATIENCE: Duration = Duration::from_secs(15);
/// The log has one refused client in this time.
const REFUSALS_PERIOD: Duration = Duration::from_secs(10);
/// How long a stop waits for its socket's file system, and for clients to read their answers.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// The server of one array.
#[derive(Debug)]
pub(crate) struct Server {
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// A socket, and where it has its name.
#[derive(Clone, Debug)]
struct Bound {
    path: PathBuf,
    /// Device and inode of the socket's file.
    file: (u64, u64),
    listener: Arc<UnixListener>,
}

impl Bound {
    /// Does the name still lead to this socket?
    fn is_there(&self) -> bool {
        file_at(&self.path) == Some(self.file)
    }
}

#[derive(Debug)]
struct Shared {
    /// Where it listens now.
    bound: Mutex<Bound>,
    /// Held while the file of the socket is changed, by what may wait for its file system.
    moves: Mutex<()>,
    /// What new connections get.
    target: Mutex<Arc<Target>>,
    state: Mutex<State>,
    ended: Condvar,
    refusals: Mutex<Refusals>,
}

/// Refused clients in the log: a client that connects in a loop would fill it.
#[derive(Debug, Default)]
struct Refusals {
    /// When the server logged one last.
    logged: Option<Instant>,
    /// Refusals since then.
    left_out: u64,
}

impl Refusals {
    /// How many the log left out before this one; `None` if it leaves this one out, too.
    fn next(&mut self, now: Instant) -> Option<u64> {
        let is_early = |logged| now < logged + REFUSALS_PERIOD;
        if self.logged.is_some_and(is_early) {
            self.left_out += 1;
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    next: u64,
    open: BTreeMap<u64, Open>,
}

/// A connection.
#[derive(Debug)]
struct Open {
    stream: UnixStream,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Negotiating,
    /// It made room for another, and its thread ends.
    GaveWay,
    Serving,
}

impl State {
    /// Is there room for one more connection? If not, the oldest that still negotiates gives way:
    /// clients that connect and say nothing keep no other client out.
    fn make_room(&mut self) -> bool {
        let counted = self.open.values().filter(|c| c.stage != Stage::GaveWay);
        if counted.count() < CONNECTIONS_MAX {
            return true;
        }
        let mut open = self.open.values_mut();
        let Some(silent) = open.find(|c| c.stage == Stage::Negotiating) else {
            return false;
        };
        silent.stage = Stage::GaveWay;
        let _ = silent.stream.shutdown(Shutdown::Both);
        true
    }
}

impl Shared {
    fn bound(&self) -> std::sync::MutexGuard<'_, Bound> {
        locked(&self.bound)
    }
    fn target(&self) -> std::sync::MutexGuard<'_, Arc<Target>> {
        locked(&self.target)
    }
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        locked(&self.state)
    }
    /// Logs that the server refuses a client, once in a period.
    fn refused(&self, stream: &UnixStream, why: &dyn Display) {
        let mut refusals = locked(&self.refusals);
        let next = refusals.next(Instant::now());
        let Some(left_out) = next else { return };
        let (array, client) = (self.target().name.clone(), client_of(stream));
        match left_out {
            0 => tracing::warn!(array, client, error = %why, "an NBD client is refused"),
            left_out => tracing::warn!(
                array, client, error = %why, left_out,
                "an NBD client is refused, and others were before"
            ),
        }
    }
}

impl Server {
    /// Listens on `socket`.
    pub(crate) fn start(socket: &Path, target: Target) -> io::Result<Server> {
        let shared = Arc::new(Shared {
            bound: Mutex::new(bind(socket)?),
            moves: Mutex::default(),
            target: Mutex::new(Arc::new(target)),
            state: Mutex::default(),
            ended: Condvar::new(),
            refusals: Mutex::default(),
        });
        let accepting = {
            let shared = Arc::clone(&shared);
            spawn("strake-nbd", move || accept(&shared))?
        };
        Ok(Server { shared, accepting })
    }

    /// Connections that are open.
    pub(crate) fn clients(&self) -> usize {
        self.shared.state().open.len()
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.shared.bound().path.clone()
    }

    /// Its file, for what may wait for a file system: no lock that looks take is held meanwhile.
    pub(crate) fn socket_file(&self) -> SocketFile {
        SocketFile(Arc::clone(&self.shared))
    }

    /// Answers what is in flight, then closes.
    pub(crate) fn stop(self) {
        self.end(STOP_PATIENCE);
    }

    /// Closes everything at once.
    pub(crate) fn abandon(self) {
        self.end(Duration::ZERO);
    }

    fn end(self, patience: Duration) {
        let bound = self.shared.bound().clone();
        let listener = Arc::clone(&bound.listener);
        // A file that stays is replaced by the next that listens there.
        let _ = in_time(STOP_PATIENCE, move |_| match bound.is_there() {
            true => std::fs::remove_file(&bound.path),
            // Another process may listen there by now.
            false => Ok(()),
        });
        let mut state = self.shared.state();
        state.stopping = true;
        // Readers see the end of their requests and finish what they have begun.
        for open in state.open.values() {
            let _ = open.stream.shutdown(Shutdown::Read);
        }
        drop(state);
        let _ = rustix::net::shutdown(listener.as_fd(), rustix::net::Shutdown::Both);
        let _ = self.accepting.join();
        let mut state = self.shared.state();
        let begun = Instant::now();
        while !state.open.is_empty() {
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        for open in state.open.values() {
            tracing::debug!("a client does not read its answers: hung up");
            let _ = open.stream.shutdown(Shutdown::Both);
        }
    }
}

/// The file of a server's socket.
pub(crate) struct SocketFile(Arc<Shared>);

impl SocketFile {
    /// Listens again where the socket's file was removed or replaced. Open connections stay.
    pub(crate) fn listen_again(&self) -> io::Result<()> {
        let _moves = locked(&self.0.moves);
        let bound = self.0.bound().clone();
        let again = in_time(FILES_PATIENCE, move |_| {
            if bound.is_there() {
                return Ok(None);
            }
            if let Some(folder) = bound.path.parent() {
                use std::os::unix::fs::DirBuilderExt;
                let mut make = std::fs::DirBuilder::new();
                make.recursive(true).mode(0o700).create(folder)?;
            }
            listen(&bound.path).map(Some)
        })?;
        let Some(again) = again else {
            return Ok(());
        };
        if self.0.state().stopping {
            return std::fs::remove_file(&again.path);
        }
        let before = std::mem::replace(&mut *self.0.bound(), again);
        // The thread that accepts wakes up and finds the new one.
        let _ = rustix::net::shutdown(before.listener.as_fd(), rustix::net::Shutdown::Both);
        Ok(())
    }

    /// Listens at another path and under another name from now on. Open connections stay.
    pub(crate) fn rename(&self, name: &str, socket: &Path) -> io::Result<()> {
        let _moves = locked(&self.0.moves);
        let (from, to) = (self.0.bound().path.clone(), socket.to_owned());
        in_time(FILES_PATIENCE, move |given_up| {
            std::fs::rename(&from, &to)?;
            match given_up.load(Ordering::SeqCst) {
                true => std::fs::rename(&to, &from),
                false => Ok(()),
            }
        })?;
        socket.clone_into(&mut self.0.bound().path);
        let mut target = self.0.target();
        let renamed = Target {
            name: name.to_owned(),
            ..Target::clone(&target)
        };
        *target = Arc::new(renamed);
        Ok(())
    }
}

/// Binds the socket, unless its file system hangs.
fn bind(socket: &Path) -> io::Result<Bound> {
    let socket = socket.to_owned();
    in_time(FILES_PATIENCE, move |_| listen(&socket))
}

/// Does something to files that may hang, on a thread of its own; it is told when nothing waits for
/// it any more.
fn in_time<T: Send + 'static>(
    patience: Duration,
    change: impl FnOnce(&AtomicBool) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = channel();
    let given_up = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&given_up);
    spawn("strake-nbd-file", move || {
        // Nothing waits any more for what comes too late.
        let _ = sender.send(change(&seen));
    })?;
    receiver.recv_timeout(patience).unwrap_or_else(|_| {
        given_up.store(true, Ordering::SeqCst);
        let seconds = patience.as_secs();
        let why = format!("its file system has not answered for {seconds} seconds");
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    })
}

/// Binds the socket. A socket file without a listener is removed: it is not in use.
fn listen(socket: &Path) -> io::Result<Bound> {
    let listener = UnixListener::bind(socket).or_else(|error| {
        if error.kind() != io::ErrorKind::AddrInUse {
            return Err(error);
        }
        match UnixStream::connect(socket) {
            Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(socket)?;
                UnixListener::bind(socket)
            }
            _ => Err(error),
        }
    })?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    Ok(Bound {
        path: socket.to_owned(),
        file: file_at(socket).ok_or(io::ErrorKind::NotFound)?,
        listener: Arc::new(listener),
    })
}

/// Device and inode of what lies there.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    let there = std::fs::symlink_metadata(path).ok()?;
    Some((there.dev(), there.ino()))
}

/// Which process is at the other end of a connection.
fn client_of(stream: &UnixStream) -> String {
    match rustix::net::sockopt::socket_peercred(stream) {
        Ok(peer) => format!(
            "process {} of user {}",
            peer.pid.as_raw_nonzero(),
            peer.uid.as_raw()
        ),
        Err(_) => "unknown".to_owned(),
    }
}

fn accept(shared: &Arc<Shared>) {
    let mut told = false;
    loop {
        let listener = Arc::clone(&shared.bound().listener);
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) if shared.state().stopping => return,
            Err(_) if !Arc::ptr_eq(&listener, &shared.bound().listener) => continue,
            Err(error) => {
                // Out of descriptors, most likely: clients wait in the backlog meanwhile.
                if !std::mem::replace(&mut told, true) {
                    let array = shared.target().name.clone();
                    tracing::warn!(array, %error, "NBD clients are not accepted for a while");
                }
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if let Err(error) = check_descriptors_for_client() {
            shared.refused(&stream, &error);
            continue;
        }
        told = false;
        let Ok(handle) = stream.try_clone() else {
            continue;
        };
        let number = {
            let mut state = shared.state();
            if state.stopping {
                return;
            }
            if !state.make_room() {
                drop(state);
                let why = format!("{CONNECTIONS_MAX} are connected, and no more may be");
                shared.refused(&stream, &why);
                continue;
            }
            state.next += 1;
            let number = state.next;
            let stage = Stage::Negotiating;
            state.open.insert(
                number,
                Open {
                    stream: handle,
                    stage,
                },
            );
            number
        };
        if let Err(error) = serve_on_thread(shared, number, &stream) {
            shared.refused(&stream, &error);
            shared.state().open.remove(&number);
        }
    }
}

/// Serves a connection that has a place on a thread of its own.
fn serve_on_thread(shared: &Arc<Shared>, number: u64, stream: &UnixStream) -> io::Result<()> {
    let own = Arc::clone(shared);
    let stream = stream.try_clone()?;
    let target = Target::clone(&shared.target());
    let target = Target {
        geometry: target.shape.now(),
        ..target
    };
    let shard = ShardNo((number % u64::from(target.peers.count())) as u16);
    let serve = move || {
        let agreed = || {
            let mut state = own.state();
            let open = state.open.get_mut(&number);
            let open = open.filter(|open| open.stage == Stage::Negotiating);
            open.map(|open| open.stage = Stage::Serving).is_some()
        };
        let refused = |why: &dyn Display| own.refused(&stream, why);
        if let Err(error) = connection::serve(&stream, &target, shard, agreed, refused) {
            tracing::debug!(%error, "an NBD connection ended");
        }
        let _ = stream.shutdown(Shutdown::Both);
        own.state().open.remove(&number);
        own.ended.notify_all();
    };
    spawn("strake-nbd-in", serve).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_refused_again_and_again_has_one_line_of_the_log_in_a_while() {
        let (mut refusals, begun) = (Refusals::default(), Instant::now());
        let lines: Vec<u64> = (0..1000)
            .filter_map(|n| refusals.next(begun + n * REFUSALS_PERIOD / 300))
            .collect();
        assert_eq!(lines, [0, 299, 299, 299]);
    }
}
