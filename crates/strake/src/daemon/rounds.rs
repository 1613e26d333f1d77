//! What the daemon does for as long as it lives, in rounds: a panic in one costs that round.
//!
//! Invariants: a round that panicked is an event (`daemon_task_failed`), and what it would have
//! found is not known: it is never taken for a finding. The next round comes after a pause that
//! grows as long as every round panics, so that these events stay few. Deliberately absent: threads
//! of shards; a panic in one ends the process (runtime).

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::common::errors::{Code, Failure};
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

/// So many requests of clients at once may block: clients that ask again and again for what hangs
/// take no more threads.
static REQUESTS: Places = Places::new(448);
/// So much work of the daemon itself at once may block. Clients take none of these places: what
/// the daemon does by itself goes on, whatever they ask for.
static OWN: Places = Places::new(64);

/// Places for work that may block.
struct Places {
    most: usize,
    taken: AtomicUsize,
}

/// One of them, until this is dropped.
struct Place(&'static Places);

impl Places {
    const fn new(most: usize) -> Places {
        let taken = AtomicUsize::new(0);
        Places { most, taken }
    }

    fn take(&'static self) -> io::Result<Place> {
        let before = self.taken.fetch_add(1, Ordering::SeqCst);
        let place = Place(self);
        match before < self.most {
            true => Ok(place),
            false => Err(io::Error::other(format!(
                "{} requests and looks have not come to their end",
                self.most
            ))),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What came of work on a thread of its own, or what its panic says.
pub(crate) type Came<T> = oneshot::Receiver<Result<T, String>>;

/// Begins what may block and no client asked for, on a thread of its own, which nothing needs to
/// wait for. Tokio's own `spawn_blocking` panics where no thread can be made, and does the work
/// later all the same.
///
/// # Errors
/// No thread can be made.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Came<T>> {
    blocking_in(&OWN, work)
}

fn blocking_in<T: Send + 'static>(
    places: &'static Places,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Came<T>> {
    let (done, came) = oneshot::channel();
    let (runtime, place) = (Handle::current(), places.take()?);
    strake_runtime::spawn_thread("blocking", move || {
        let (_within, _place) = (runtime.enter(), place);
        // Nothing may wait any more.
        let _ = done.send(caught(work));
    })?;
    Ok(came)
}

/// What comes of work that a client asked for and that may block.
pub(crate) async fn done<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    done_in(&REQUESTS, "request", work).await
}

/// The same of work of the daemon itself.
pub(crate) async fn done_by_itself<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    done_in(&OWN, "work", work).await
}

async fn done_in<T: Send + 'static>(
    places: &'static Places,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let came =
        blocking_in(places, work).map_err(|error| Failure::io("doing what is asked", &error))?;
    let ended = |why: &str| Failure::new(Code::Internal, format!("the {what} ended: {why}"));
    let came = came.await.map_err(|_| ended("its thread is gone"))?;
    came.map_err(|why| ended(&why))
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

/// Notes that something of the daemon has panicked, or could not begin.
pub(crate) fn note(events: &EventLog, task: &str, why: &str, effect: &str) {
    tracing::error!(task, why, "a task of the daemon has failed: {effect}");
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
    /// over. `None` also where it could not begin for want of a thread.
    pub(crate) async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let came = match blocking(work) {
            Ok(came) => came.await.ok()?,
            Err(error) => Err(error.to_string()),
        };
        let done = self.came(came);
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

    /// They had one number of places, all of which clients could take.
    #[tokio::test]
    async fn clients_that_take_all_their_places_leave_rounds_theirs() {
        let asked: Vec<_> = std::iter::from_fn(|| REQUESTS.take().ok()).collect();
        let refused = done(|| ()).await.expect_err("no place is left");
        assert!(
            refused.found.contains("have not come to their end"),
            "{refused}"
        );
        let mut rounds = Rounds::new("a test", Arc::new(EventLog::open(&[])));
        assert_eq!(rounds.blocking(|| 7).await, Some(7));
        assert_eq!(done_by_itself(|| 8).await.ok(), Some(8));
        let other = Places::new(1);
        let other: &'static Places = Box::leak(Box::new(other));
        let place = other.take().expect("one");
        assert!(other.take().is_err());
        drop(place);
        assert!(other.take().is_ok(), "what was refused takes no place");
        drop(asked);
    }

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
