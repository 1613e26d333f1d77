//! The thread that asks the daemon: a sample each time, and events since the last one.
//!
//! Invariant: it outlives a daemon that goes, and asks the next one for everything anew.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use crate::api::{ArrayJson, EventJson};
use crate::cli::client::Client;
use crate::common::errors::Failure;
use crate::daemon::state::Dir;
use crate::view::stats::StatsJson;

/// How long the daemon may take for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// So many events of the past are of interest.
pub(super) const EVENTS: usize = 500;

/// What the picture is told.
#[derive(Debug)]
pub(super) enum News {
    Told(Box<Told>),
    /// No daemon answers, and why.
    Lost(String),
    /// A signal ends the process.
    End,
}

/// What the daemon said.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) arrays: Vec<ArrayJson>,
    pub(super) stats: Vec<StatsJson>,
    /// Those since the last time.
    pub(super) events: Vec<EventJson>,
}

/// Starts it. It ends with the process, or with the one that listens.
pub(super) fn start(dir: Dir, delay: Duration, sender: Sender<News>) -> Result<(), Failure> {
    let ask = move || {
        let mut after = None;
        let mut next = Instant::now();
        loop {
            let news = match sample(&dir, after) {
                Ok(told) => {
                    let last = told.events.last().map(|event| event.sequence);
                    after = last.or(after).or(Some(0));
                    News::Told(Box::new(told))
                }
                Err(failure) => {
                    after = None;
                    News::Lost(failure.found)
                }
            };
            if sender.send(news).is_err() {
                return;
            }
            next = (next + delay).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    };
    let started = strake_runtime::spawn_thread("asker", ask);
    started.map_err(|e| Failure::io("asking the daemon", &e))?;
    Ok(())
}

/// One answer; `after`: the last event that was seen.
fn sample(dir: &Dir, after: Option<u64>) -> Result<Told, Failure> {
    let client = Client::need(dir)?;
    let arrays = client.get_within("/v1/arrays", PATIENCE)?;
    let stats = client.get_within("/v1/stats", PATIENCE)?;
    let mut events: Vec<EventJson> = Vec::new();
    let since = after.map_or(0, |last| last + 1);
    client.lines(&format!("/v1/events?since={since}"), |line| {
        events.extend(serde_json::from_str::<EventJson>(line));
    })?;
    let old = events.len().saturating_sub(EVENTS);
    events.drain(..old);
    Ok(Told {
        arrays,
        stats,
        events,
    })
}
