//! What a stop waits for, told while it waits: members with I/O that they do not answer. The array
//! waits for it until its deadlines are over (`array::members::deadlines` of the engine).
//!
//! Invariant: each member is told once. Deliberately absent: what the stop does (runtime).

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use strake_format::ArrayName;
use strake_runtime::{Serving, spawn_scoped_thread};

use crate::daemon::events::{EventLog, Happened};

/// A stop that takes no longer says nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// An I/O that takes no longer is none that a stop waits for.
const LATE: Duration = Duration::from_secs(5);
/// How often it is looked for further ones.
const PERIOD: Duration = Duration::from_secs(3);

/// Has an array stop, and tells what that waits for.
pub(super) fn telling<T>(
    array: &ArrayName,
    serving: &Serving,
    log: &EventLog,
    stop: impl FnOnce() -> T,
) -> T {
    let (over, ended) = channel::<()>();
    std::thread::scope(|scope| {
        // Without a thread nothing is told, and the stop is the same.
        let tell = || tell(array, serving, log, ended);
        if let Err(error) = spawn_scoped_thread(scope, "stop waits", tell) {
            tracing::warn!(%error, "nothing tells what the stop waits for");
        }
        let stopped = stop();
        drop(over);
        stopped
    })
}

fn tell(array: &ArrayName, serving: &Serving, log: &EventLog, ended: Receiver<()>) {
    let mut told = BTreeSet::new();
    let mut patience = PATIENCE;
    while ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
        patience = PERIOD;
        let late = serving.late(LATE);
        if late.is_empty() {
            continue;
        }
        let status = serving.status_within(PERIOD).ok();
        for (device, took) in late {
            if !told.insert(device) {
                continue;
            }
            let of = status.iter().flat_map(|status| &status.members);
            let slot = of.filter(|m| m.device == Some(device)).find_map(|m| m.slot);
            log.note(Happened {
                array: Some(array.to_string()),
                slot: slot.map(|slot| slot.0),
                event: "stop_waits",
                device: serving.path(device).map(|path| path.display().to_string()),
                cause: Some(format!("no answer to an I/O for {} s", took.as_secs())),
                effect: Some(
                    "the stop waits for it, as long as its deadlines allow: three times the \
                     --io-timeout of the daemon at most"
                        .to_owned(),
                ),
                ..Happened::default()
            });
        }
    }
}
