//! What the process needs of tokio: one thread, and the signals that end it.

use std::ops::RangeInclusive;
use std::time::Duration;

use rustix::process::Signal as Named;
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

/// Signals that would end a process, and have no meaning for this one. SIGXFSZ comes with a write
/// beyond `ulimit -f`, which fails with EFBIG then: an error of the file that it goes to.
const OUTLIVED: [Named; 10] = [
    Named::USR1,
    Named::USR2,
    Named::ALARM,
    Named::VTALARM,
    Named::PROF,
    Named::IO,
    Named::POWER,
    Named::STKFLT,
    Named::XCPU,
    Named::XFSZ,
];
/// Those of real time.
const OUTLIVED_OF_REAL_TIME: RangeInclusive<i32> = 34..=64;

/// Signals that others send by mistake end nothing from now on; within a runtime. They are caught
/// and not ignored, so that programs which are begun have them as usual.
pub(crate) fn outlive_signals() -> Result<(), Failure> {
    // What catches a signal stays when its stream goes.
    let catch = |number| signal(SignalKind::from_raw(number)).map(drop);
    for name in OUTLIVED {
        catch(name.as_raw()).map_err(|e| Failure::io("catching signals", &e))?;
    }
    // A C library may keep the first of them for itself.
    OUTLIVED_OF_REAL_TIME.for_each(|number| drop(catch(number)));
    Ok(())
}

/// SIGTERM and SIGINT, caught from the moment that this is made. SIGHUP, which a terminal that goes
/// sends, ends nothing then.
#[derive(Debug)]
pub(crate) struct EndSignals {
    term: Signal,
    int: Signal,
    hang_up: Signal,
}

impl EndSignals {
    /// Catches them; within a runtime.
    pub(crate) fn catch() -> Result<EndSignals, Failure> {
        outlive_signals()?;
        let catch = |kind| signal(kind).map_err(|e| Failure::io("catching signals", &e));
        Ok(EndSignals {
            term: catch(SignalKind::terminate())?,
            int: catch(SignalKind::interrupt())?,
            hang_up: catch(SignalKind::hangup())?,
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
