//! What the process needs of tokio: one thread, and the signals that end it.

use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::common::errors::Failure;

/// Ten years.
const FOR_GOOD: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A single-threaded runtime.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::io("starting the event loop", &e))
}

/// The same, with a thread for what tokio itself does that may block, as looking for the addresses
/// of names: without one it would panic.
pub(crate) fn runtime_for_names() -> Result<tokio::runtime::Runtime, Failure> {
    let failed = |e: std::io::Error| Failure::io("starting the event loop", &e);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_keep_alive(FOR_GOOD)
        .build()
        .map_err(failed)?;
    // There is room for it.
    strake_runtime::spawn_thread("trial", || ()).map_err(failed)?;
    runtime.spawn_blocking(|| ());
    Ok(runtime)
}

/// SIGTERM and SIGINT, caught from the moment that this is made. SIGHUP, which a terminal that goes
/// sends, ends nothing then; nor does SIGXFSZ: a write beyond `ulimit -f` fails with EFBIG, which
/// is an error of the file that it goes to.
#[derive(Debug)]
pub(crate) struct EndSignals {
    term: Signal,
    int: Signal,
    hang_up: Signal,
    /// Caught, and of no other interest.
    _file_size: Signal,
}

impl EndSignals {
    /// Catches them; within a runtime.
    pub(crate) fn catch() -> Result<EndSignals, Failure> {
        let catch = |kind| signal(kind).map_err(|e| Failure::io("catching signals", &e));
        Ok(EndSignals {
            term: catch(SignalKind::terminate())?,
            int: catch(SignalKind::interrupt())?,
            hang_up: catch(SignalKind::hangup())?,
            _file_size: catch(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }
    /// Resolves when the process is asked to end.
    pub(crate) async fn asked(mut self) {
        loop {
            tokio::select! {
                _ = self.term.recv() => return,
                _ = self.int.recv() => return,
                _ = self.hang_up.recv() => {
                    tracing::info!(
                        "SIGHUP: there is nothing to read again, and the daemon goes on"
                    );
                }
            }
        }
    }
}
