//! What the daemon does for as long as it lives, in rounds: a panic in one costs that round.
//!
//! Invariants: a round that panicked is an event (`daemon_task_failed`), and what it would have
//! found is not known: it is never taken for a finding. The next round comes after a pause that
//! grows as long as every round panics, so that these events stay few. Deliberately absent: threads
//! of shards; a panic in one ends the process (runtime).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::daemon::events::{EventLog, Happened};

/// After one round that panicked.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// After many in a row.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// What a panic says.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without words".to_owned())
}

/// What `work` answers, or what its panic says. What it had half-done is found so by what comes
/// after: callers that keep state see to it.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| said(panic.as_ref()))
}

/// The same of a task that does not block. It ends when this is dropped.
pub(crate) async fn caught_task(
    work: impl Future<Output = ()> + Send + 'static,
) -> Result<(), String> {
    let mut task = JoinSet::new();
    task.spawn(work);
    match task.join_next().await {
        Some(Err(ended)) if ended.is_panic() => Err(said(ended.into_panic().as_ref())),
        _ => Ok(()),
    }
}

/// The same; that it panicked is noted, and it is not begun again.
pub(crate) async fn told(
    task: &'static str,
    events: Arc<EventLog>,
    work: impl Future<Output = ()> + Send + 'static,
) {
    if let Err(why) = caught_task(work).await {
        note(
            &events,
            task,
            &why,
            "it is over until the daemon is restarted",
        );
    }
}

/// Notes that something of the daemon has panicked.
pub(crate) fn note(events: &EventLog, task: &str, why: &str, effect: &str) {
    tracing::error!(task, why, "a task of the daemon has panicked: {effect}");
    events.note(Happened {
        event: "daemon_task_failed",
        cause: Some(format!("{task}: {why}")),
        effect: Some(effect.to_owned()),
        ..Happened::default()
    });
}

/// The rounds of one task.
#[derive(Debug)]
pub(crate) struct Rounds {
    task: &'static str,
    events: Arc<EventLog>,
    /// So many in a row have panicked.
    failed: u32,
}

impl Rounds {
    /// Of a task that has had none yet.
    pub(crate) fn new(task: &'static str, events: Arc<EventLog>) -> Rounds {
        Rounds {
            task,
            events,
            failed: 0,
        }
    }

    /// One round; `None` if it panicked.
    pub(crate) fn round<T>(&mut self, work: impl FnOnce() -> T) -> Option<T> {
        let came = caught(work);
        self.came(came)
    }

    /// The same for a round that another thread has: what came of it, or what its panic says.
    pub(crate) fn came<T>(&mut self, came: Result<T, String>) -> Option<T> {
        match came {
            Ok(done) => {
                self.failed = 0;
                Some(done)
            }
            Err(why) => {
                self.failed = self.failed.saturating_add(1);
                let effect = match self.pause() {
                    Duration::ZERO => "it goes on".to_owned(),
                    pause => format!("it goes on after {} s", pause.as_secs()),
                };
                note(&self.events, self.task, &why, &effect);
                None
            }
        }
    }

    /// One round of work that may block; none is begun again before the pause after a panic is
    /// over. `None` also where the runtime ends.
    pub(crate) async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let came = tokio::task::spawn_blocking(move || caught(work)).await;
        let done = self.came(came.ok()?);
        if done.is_none() {
            tokio::time::sleep(self.pause()).await;
        }
        done
    }

    /// How long to wait before the next one, beside what is usual.
    pub(crate) fn pause(&self) -> Duration {
        match self.failed {
            0 => Duration::ZERO,
            n => (PAUSE_MIN * 2_u32.saturating_pow(n - 1).min(1024)).min(PAUSE_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_panics_is_an_event_and_the_next_comes_after_a_pause_that_grows() {
        let events = Arc::new(EventLog::open(&[]));
        let mut rounds = Rounds::new("a test", Arc::clone(&events));
        assert_eq!(rounds.round(|| 7), Some(7));
        assert_eq!(rounds.pause(), Duration::ZERO);
        let mut pauses = Vec::new();
        for n in 0..12 {
            let panics = || -> u8 { panic!("round {n}") };
            assert_eq!(rounds.round(panics), None);
            pauses.push(rounds.pause());
        }
        assert_eq!(pauses[..3], [2, 4, 8].map(Duration::from_secs));
        assert!(pauses.is_sorted() && pauses.last() == Some(&PAUSE_MAX));
        let noted = events.since(0);
        assert_eq!(noted.len(), 12);
        assert_eq!(noted[0].event, "daemon_task_failed");
        assert_eq!(noted[0].cause.as_deref(), Some("a test: round 0"));
        assert_eq!(noted[0].effect.as_deref(), Some("it goes on after 2 s"));
        assert_eq!(rounds.round(|| 8), Some(8));
        assert_eq!(rounds.pause(), Duration::ZERO);
    }
}
