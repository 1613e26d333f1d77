//! What `stop` says while an array takes its time: the members that the daemon says it waits for
//! (event `stop_waits`).
//!
//! Invariant: what cannot be had of the daemon changes nothing about the stop. Deliberately absent:
//! the stop.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use strake_runtime::spawn_scoped_thread;

use crate::api::EventJson;
use crate::cli::Context;
use crate::cli::client::Client;

/// A stop that takes no longer says nothing: the daemon looks after 10 s.
const PATIENCE: Duration = Duration::from_secs(11);
/// How often the daemon is asked for more.
const PERIOD: Duration = Duration::from_secs(3);

/// Asks for a stop, and tells what it waits for.
pub(crate) fn telling<T>(context: &Context, array: &str, stop: impl FnOnce() -> T) -> T {
    let (over, ended) = channel::<()>();
    std::thread::scope(|scope| {
        let tell = || tell(context, array, ended);
        // Without a thread nothing is told.
        let _ = spawn_scoped_thread(scope, "command", tell);
        let stopped = stop();
        drop(over);
        stopped
    })
}

fn tell(context: &Context, array: &str, ended: Receiver<()>) {
    let since = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let path = format!("/v1/events?severity=warning&array={array}&since_time={since}");
    let (mut patience, mut next) = (PATIENCE, 0);
    while ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
        patience = PERIOD;
        let Ok(client) = Client::need(&context.dir) else {
            continue;
        };
        let mut all = Vec::new();
        let each = |line: &str| all.extend(serde_json::from_str::<EventJson>(line));
        if client.lines(&path, each).is_err() {
            continue;
        }
        all.retain(|event| event.event == "stop_waits" && event.sequence >= next);
        for event in all {
            next = event.sequence + 1;
            context.aside(&told(array, &event));
        }
    }
}

fn told(array: &str, event: &EventJson) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let slot = event.slot.map(|slot| format!("slot {slot}, "));
    let (slot, device) = (slot.unwrap_or_default(), text(&event.device));
    let (cause, effect) = (text(&event.cause), text(&event.effect));
    format!("{array}: {slot}{device}: {cause}; {effect}")
}
