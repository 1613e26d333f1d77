//! What the daemon does for each array by itself: it is started, told the sizes of its devices,
//! given back its members, given spares of its pool and what is done in rounds besides on a thread
//! of its own, so that one that hangs holds up no other.
//!
//! Invariants: an array has one task of a kind at a time; where one is to begin meanwhile, that is
//! told again when it has ended, if anybody listens (`again`); a task is waited for no longer than
//! [`PATIENCE`], and looked after at each later look; a panic in one is an event. Deliberately
//! absent: an end of a task that hangs; what it does has bounds of its own. Where no thread is to
//! be had, those of rounds are done one after the other, by the thread of the round (`inline`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use strake_format::ArrayUuid;
use tokio::sync::Notify;

use crate::daemon::events::EventLog;
use crate::daemon::rounds;

/// Longer than an array takes if all its members answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// After a panic no task of that kind and array begins for so long.
const REST: Duration = Duration::from_secs(60);

/// Tasks of one kind.
#[derive(Debug)]
pub(crate) struct Tasks<T> {
    kind: &'static str,
    events: Arc<EventLog>,
    under_way: Vec<UnderWay<T>>,
    /// Arrays of which one has panicked, until when.
    resting: BTreeMap<ArrayUuid, Instant>,
    /// Arrays for which one was to begin while another was under way.
    wanted: Arc<Mutex<BTreeSet<ArrayUuid>>>,
    /// Told when that other has ended.
    again: Option<Arc<Notify>>,
    /// Where no thread is to be had, one is done by the thread that begins it.
    inline: bool,
}

/// One has ended, and its result is there: tells if another was to begin meanwhile.
fn has_ended(array: ArrayUuid, wanted: &Mutex<BTreeSet<ArrayUuid>>, again: Option<&Notify>) {
    let mut wanted = wanted.lock().unwrap_or_else(PoisonError::into_inner);
    if wanted.remove(&array) {
        again.into_iter().for_each(Notify::notify_one);
    }
}

/// Tasks of the rounds that a service has for its arrays.
#[derive(Debug)]
pub(crate) struct OfRounds {
    /// Spares from pools.
    pub(crate) feed: Mutex<Tasks<()>>,
    /// Volumes that are tried again.
    pub(crate) volumes: Mutex<Tasks<()>>,
    /// Members that lost their superblocks.
    pub(crate) emptied: Mutex<Tasks<()>>,
    /// Scrubs that begin by themselves.
    pub(crate) scrubs: Mutex<Tasks<()>>,
}

impl OfRounds {
    /// None yet. `look` has members looked at.
    pub(crate) fn new(events: &Arc<EventLog>, look: &Arc<Notify>) -> OfRounds {
        let of_rounds = |kind| Tasks {
            inline: true,
            ..Tasks::new(kind, events)
        };
        let none = |kind| Mutex::new(of_rounds(kind));
        OfRounds {
            feed: none("feed"),
            volumes: none("volumes of"),
            emptied: Mutex::new(Tasks {
                again: Some(Arc::clone(look)),
                ..of_rounds("members of")
            }),
            scrubs: none("scrub of"),
        }
    }
}

/// Of which array, since when, and what comes of it, or what its panic says.
type UnderWay<T> = (ArrayUuid, Instant, Receiver<Result<T, String>>);

impl<T: Send + 'static> Tasks<T> {
    /// None yet.
    pub(crate) fn new(kind: &'static str, events: &Arc<EventLog>) -> Tasks<T> {
        Tasks {
            kind,
            events: Arc::clone(events),
            under_way: Vec::new(),
            resting: BTreeMap::new(),
            wanted: Arc::default(),
            again: None,
            inline: false,
        }
    }

    /// Whether none is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether one of this array is under way.
    pub(crate) fn has(&self, array: ArrayUuid) -> bool {
        self.under_way.iter().any(|(of, ..)| *of == array)
    }

    /// Whether one that is to begin does not: another is under way, or has panicked lately.
    pub(crate) fn waits(&self, array: ArrayUuid) -> bool {
        let rests = |until: &Instant| Instant::now() < *until;
        self.has(array) || self.resting.get(&array).is_some_and(rests)
    }

    /// Begins one; not a second of the same array, and none of one that waits.
    pub(crate) fn begin(&mut self, array: ArrayUuid, work: impl FnOnce() -> T + Send + 'static) {
        if self.waits(array) {
            let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
            wanted.insert(array);
            return;
        }
        let (done, result) = channel();
        let name = format!("{} array", self.kind);
        let (wanted, again) = (Arc::clone(&self.wanted), self.again.clone());
        let work = move || {
            // Nobody may wait any more.
            let _ = done.send(rounds::caught(work));
            has_ended(array, &wanted, again.as_deref());
        };
        let work = Arc::new(Mutex::new(Some(work)));
        let own = Arc::clone(&work);
        let take = |work: &Mutex<Option<_>>| {
            let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
            work.take()
        };
        let thread = move || take(&own).into_iter().for_each(|work| work());
        match strake_runtime::spawn_thread(name, thread) {
            Ok(_) => self.under_way.push((array, Instant::now(), result)),
            Err(error) if self.inline => {
                tracing::warn!(%array, kind = self.kind, %error, "no thread: done by another");
                take(&work).into_iter().for_each(|work| work());
                self.under_way.push((array, Instant::now(), result));
            }
            Err(error) => failed(self.kind, &self.events, &mut self.resting, array, &error),
        }
    }

    /// What came of those that have ended; those that began just now are waited for.
    pub(crate) fn ended(&mut self) -> Vec<(ArrayUuid, T)> {
        let mut ended = Vec::new();
        let (kind, events) = (self.kind, &self.events);
        let (wanted, again) = (&self.wanted, self.again.as_deref());
        let resting = &mut self.resting;
        resting.retain(|array, until| {
            let rests = Instant::now() < *until;
            if !rests {
                has_ended(*array, wanted, again);
            }
            rests
        });
        self.under_way.retain(|(array, since, result)| {
            let left = (*since + PATIENCE).saturating_duration_since(Instant::now());
            match result.recv_timeout(left) {
                Ok(Ok(done)) => ended.push((*array, done)),
                Ok(Err(why)) => failed(kind, events, resting, *array, &why),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => {
                    tracing::error!(%array, kind, "its thread has ended without a result");
                }
            }
            // It may have been wanted after the thread had looked.
            has_ended(*array, wanted, again);
            false
        });
        ended
    }
}

/// Notes that one has panicked, or could not begin; it rests then.
fn failed(
    kind: &str,
    events: &EventLog,
    resting: &mut BTreeMap<ArrayUuid, Instant>,
    array: ArrayUuid,
    why: &dyn std::fmt::Display,
) {
    let task = format!("{kind} array {array}");
    let effect = format!("it is tried again after {} s", REST.as_secs());
    rounds::note(events, &task, &why.to_string(), &effect);
    resting.insert(array, Instant::now() + REST);
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn a_task_that_hangs_holds_up_no_other_and_panics_end_none() {
        let events = Arc::new(EventLog::open(&[]));
        let mut tasks = Tasks::new("test", &events);
        let (end, hangs) = channel::<()>();
        let [a, b, c] = [1, 2, 3].map(|n| ArrayUuid([n; 16]));
        tasks.begin(a, move || hangs.recv().map_or(0, |()| 1));
        // As if it had begun long ago.
        tasks.under_way[0].1 -= PATIENCE;
        tasks.begin(b, || 2);
        tasks.begin(c, || panic!("a test"));
        tasks.begin(a, || 3);
        let began = Instant::now();
        assert_eq!(tasks.ended(), [(b, 2)]);
        let noted = events.since(0);
        assert_eq!(noted.len(), 1);
        assert!(tasks.waits(c) && !tasks.waits(b));
        tasks.begin(c, || 4);
        assert!(!tasks.has(c), "not so soon");
        let cause = noted[0].cause.as_deref().unwrap_or_default();
        assert_eq!(cause, format!("test array {c}: a test"));
        assert!(began.elapsed() < PATIENCE, "it is not waited for");
        assert!(tasks.has(a) && !tasks.has(b) && !tasks.has(c));
        end.send(()).expect("it waits");
        tasks.under_way[0].1 = Instant::now();
        assert_eq!(tasks.ended(), [(a, 1)]);
        assert!(tasks.is_empty());
    }

    #[test]
    fn what_was_to_begin_meanwhile_is_told_again_once_when_the_task_has_ended() {
        let events = Arc::new(EventLog::open(&[]));
        let again = Arc::new(Notify::new());
        let mut tasks = Tasks {
            again: Some(Arc::clone(&again)),
            ..Tasks::new("test", &events)
        };
        let told = || {
            let is_told = || {
                let (told, mut context) = (again.notified(), Context::from_waker(Waker::noop()));
                pin!(told).poll(&mut context).is_ready()
            };
            (is_told(), is_told())
        };
        let array = ArrayUuid([1; 16]);
        tasks.begin(array, || ());
        assert_eq!(tasks.ended().len(), 1);
        assert_eq!(told(), (false, false), "nobody wanted another");
        let (end, hangs) = channel::<()>();
        tasks.begin(array, move || hangs.recv().unwrap_or(()));
        tasks.under_way[0].1 -= PATIENCE;
        (0..3).for_each(|_| tasks.begin(array, || ()));
        assert!(tasks.ended().is_empty());
        assert_eq!(told(), (false, false), "it is still at it");
        end.send(()).expect("it waits");
        tasks.under_way[0].1 = Instant::now();
        assert_eq!(tasks.ended().len(), 1);
        assert_eq!(told(), (true, false));
    }
}
