//! The paths by which a daemon is reached: the lock of its folder, its socket, those of its arrays.
//!
//! A cleaner of temporary folders, or `rm -rf`, can take them from a daemon that serves. Its arrays
//! go on, and no command reaches it any more. So the daemon looks after these paths: what is gone
//! is made again, and an event says so. Where another daemon took the folder in the meantime, this
//! one goes on serving, says in its log how to end it, and takes the folder back when the other
//! has ended. Without an array it has nothing to go on for, and ends.
//!
//! Invariants: what another daemon holds is not touched; one trouble is one line of the log; no
//! command waits for an array, or for a socket of one, before it reaches the daemon again.
//! Deliberately absent: what was kept in the folder. It is gone.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::errors::{Code, Failure};
use crate::daemon::events::Happened;
use crate::daemon::service::Service;
use crate::daemon::state::{Dir, DirLock};

/// How often the paths are looked at.
pub(crate) const PERIOD: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub(crate) struct Home {
    service: Arc<Service>,
    lock: DirLock,
    /// The folder was made anew, and the daemon does not listen in it yet.
    forgotten: bool,
    /// What the daemon serves is to be remembered again, and this to be told then.
    restored: Option<Happened>,
    /// Device and inode of the socket's file.
    socket: Option<(u64, u64)>,
    /// The last trouble, which was logged.
    told: Option<String>,
}

/// What a look found.
#[derive(Debug)]
pub(crate) enum Look {
    /// All is as it was, or cannot be mended now.
    Same,
    /// The socket was made anew.
    Again(UnixListener),
    /// Another daemon has the folder, and this one serves no array.
    Superfluous(Failure),
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    let there = fs::symlink_metadata(path).ok()?;
    Some((there.dev(), there.ino()))
}

/// The process that listens at a socket.
fn listener_of(socket: &Path) -> Option<i32> {
    let stream = UnixStream::connect(socket).ok()?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
    Some(peer.pid.as_raw_nonzero().get())
}

impl Home {
    /// Of a daemon that has the lock and does not listen yet.
    pub(crate) fn new(service: Arc<Service>, lock: DirLock) -> Home {
        Home {
            service,
            lock,
            forgotten: false,
            restored: None,
            socket: None,
            told: None,
        }
    }

    fn dir(&self) -> &Dir {
        self.service.dir()
    }

    /// Opens the socket. The lock is held: one that lies there belongs to a daemon that is gone.
    pub(crate) fn listen(&mut self) -> Result<UnixListener, Failure> {
        use std::os::unix::fs::PermissionsExt;
        let socket = self.dir().socket();
        let failed = |error: std::io::Error| Failure::io(socket.display(), &error);
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).map_err(failed)?;
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        self.socket = file_at(&socket);
        Ok(listener)
    }

    /// Takes the socket away, unless another daemon listens there.
    pub(crate) fn leave(&self) {
        let socket = self.dir().socket();
        if self.socket.is_some() && file_at(&socket) == self.socket {
            let _ = fs::remove_file(socket);
        }
    }

    /// Looks at the paths, and makes again what is gone.
    pub(crate) fn look(&mut self) -> Look {
        let locked = self.lock.is_at(self.dir());
        let socket = self.dir().socket();
        let look = match locked && file_at(&socket) == self.socket {
            true => Ok(Look::Same),
            false => self.come_back(locked),
        };
        self.remember();
        let failure = match look {
            // Sockets of arrays come at the next look.
            Ok(Look::Again(listener)) => return Look::Again(listener),
            Ok(look) => match self.service.listen_again() {
                Ok(()) => {
                    self.told = None;
                    return look;
                }
                Err(failure) => {
                    self.tell(&failure, "an NBD socket is gone, and cannot be made again");
                    return look;
                }
            },
            Err(failure) => failure,
        };
        if failure.code != Code::DaemonRunning {
            self.tell(&failure, "no command reaches this daemon");
            return Look::Same;
        }
        let other =
            listener_of(&socket).map_or_else(String::new, |pid| format!(" (process {pid})"));
        let found = format!(
            "the folder {} was removed, and another daemon{other} has it now",
            self.dir().path().display()
        );
        let failure = Failure::new(Code::DaemonRunning, found);
        let arrays = self.service.all_running();
        if arrays.is_empty() {
            return Look::Superfluous(failure);
        }
        let arrays: Vec<String> = arrays
            .iter()
            .map(|array| array.name().to_string())
            .collect();
        let own = std::process::id();
        let failure = failure.cure(format!(
            "this one serves {} on: kill {own} stops them cleanly, and the other can start them",
            arrays.join(", ")
        ));
        self.tell(&failure, "no command reaches this daemon");
        Look::Same
    }

    fn tell(&mut self, failure: &Failure, what: &str) {
        let said = failure.to_string();
        if self.told.as_ref() != Some(&said) {
            tracing::error!(%failure, "{what}");
            self.told = Some(said);
        }
    }

    /// Makes the folder, takes its lock and opens the socket.
    fn come_back(&mut self, locked: bool) -> Result<Look, Failure> {
        let shown = self.dir().path().display().to_string();
        let socket = self.dir().socket().display().to_string();
        self.dir().make_own()?;
        if !locked {
            self.lock = self.dir().lock()?;
            self.forgotten = true;
        }
        self.dir().make()?;
        let (cause, effect) = match self.forgotten {
            false => (
                format!("{socket} was removed or replaced"),
                "made again: commands reach the daemon".to_owned(),
            ),
            true => (
                format!("{shown} or its lock was removed"),
                format!(
                    "made again: commands reach the daemon; settings, names and earlier events \
                     that were kept in {shown} may be gone: strake get shows settings, strake set \
                     sets them"
                ),
            ),
        };
        let listener = self.listen()?;
        let happened = Happened {
            event: "folder_restored",
            cause: Some(cause),
            effect: Some(effect),
            ..Happened::default()
        };
        match std::mem::take(&mut self.forgotten) {
            true => self.restored = Some(happened),
            false => self.service.events().note(happened),
        }
        Ok(Look::Again(listener))
    }

    /// Has what the daemon serves remembered again, on a thread of its own: arrays are asked, and
    /// one may hang. Where no thread can be made it is tried again at the next look.
    fn remember(&mut self) {
        let Some(happened) = self.restored.take() else {
            return;
        };
        let (service, again) = (Arc::clone(&self.service), happened.clone());
        let remembering = move || {
            service.remember_running();
            service.events().note(happened);
        };
        if strake_runtime::spawn_thread("remember", remembering).is_err() {
            self.restored = Some(again);
        }
    }
}
