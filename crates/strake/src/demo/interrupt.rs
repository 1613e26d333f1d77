//! The demo is interrupted: by SIGINT, SIGQUIT, SIGTERM, or SIGHUP of a terminal that goes away.
//!
//! Order: a thread takes the signal → the play sees it before its next act, request to the daemon
//! or piece of load, and ends as any play ends: load, block device, daemon, folder. What does not
//! end in time (a request that waits for a daemon that was just killed) is ended from here: daemon,
//! folder.
//!
//! Invariant: whatever happens, what the demo made is gone before the process ends. Deliberately
//! absent: SIGKILL, after which the daemon ends by itself and the next demo removes the folder
//! (`stage`).

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::common::errors::{Code, Failure};

/// So long the play may take to end by itself: longer than the clean end of a daemon.
const PATIENCE: Duration = Duration::from_secs(15);

/// The signal that came, or 0.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// What there is to end.
static STAGE: Mutex<Set> = Mutex::new(Set {
    daemon: None,
    folder: None,
});

/// What a demo has made.
#[derive(Debug)]
pub(super) struct Set {
    /// Pid of the daemon.
    pub(super) daemon: Option<Pid>,
    /// The folder, unless it is to be kept.
    pub(super) folder: Option<PathBuf>,
}

/// What there is to end. Held while it changes.
pub(super) fn set() -> MutexGuard<'static, Set> {
    STAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Catches the signals from now on.
pub(super) fn catch() -> Result<(), Failure> {
    let cannot = |e: io::Error| Failure::io("catching signals", &e);
    let runtime = crate::common::process::runtime()?;
    let mut signals = {
        let _within = runtime.enter();
        let caught = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
        ];
        caught.map(|kind| signal(kind).map(|signal| (kind.as_raw_value(), signal)))
    };
    if let Some(at) = signals.iter().position(Result::is_err) {
        let error = signals.into_iter().nth(at).and_then(Result::err);
        return Err(cannot(
            error.unwrap_or_else(|| io::Error::other("no signals")),
        ));
    }
    let wait = move || {
        let [int, term, hup, quit] = &mut signals;
        let (Ok((_, int)), Ok((_, term)), Ok((_, hup)), Ok((_, quit))) = (int, term, hup, quit)
        else {
            return;
        };
        let came = runtime.block_on(async {
            tokio::select! {
                _ = int.recv() => SignalKind::interrupt(),
                _ = term.recv() => SignalKind::terminate(),
                _ = hup.recv() => SignalKind::hangup(),
                _ = quit.recv() => SignalKind::quit(),
            }
        });
        SIGNAL.store(came.as_raw_value(), Ordering::Relaxed);
        thread::sleep(PATIENCE);
        let set = set();
        if let Some(daemon) = set.daemon {
            // It may have ended by itself.
            let _ = kill_process(daemon, Signal::KILL);
        }
        if let Some(folder) = &set.folder {
            let _ = fs::remove_dir_all(folder);
        }
        std::process::exit(status().unwrap_or(1));
    };
    strake_runtime::spawn_thread("signals", wait).map_err(cannot)?;
    Ok(())
}

/// The exit status after a signal, as shells have it; `None` where none came.
pub(super) fn status() -> Option<i32> {
    let signal = SIGNAL.load(Ordering::Relaxed);
    (signal != 0).then_some(128 + signal)
}

/// An error where a signal came.
pub(super) fn check() -> Result<(), Failure> {
    match status() {
        None => Ok(()),
        Some(_) => Err(Failure::new(Code::DemoFailed, "interrupted")),
    }
}

/// The same for load.
pub(super) fn check_io() -> io::Result<()> {
    check().map_err(|failure| io::Error::new(io::ErrorKind::Interrupted, failure.found))
}
