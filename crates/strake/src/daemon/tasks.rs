//! What the watcher has done for it: each array is started, told the sizes of its devices and given
//! back its members on a thread of its own, so that one that hangs holds up no other.
//!
//! Invariants: an array has one task of a kind at a time; a task is waited for no longer than
//! [`PATIENCE`], and looked after at each later look. Deliberately absent: an end of a task that
//! hangs; what it does has bounds of its own.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use strake_format::ArrayUuid;

/// Longer than an array takes if all its members answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tasks of one kind.
#[derive(Debug)]
pub(super) struct Tasks<T> {
    kind: &'static str,
    under_way: Vec<(ArrayUuid, Instant, Receiver<T>)>,
}

impl<T: Send + 'static> Tasks<T> {
    /// None yet.
    pub(super) fn new(kind: &'static str) -> Tasks<T> {
        Tasks {
            kind,
            under_way: Vec::new(),
        }
    }

    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Whether one of this array is under way.
    pub(super) fn has(&self, array: ArrayUuid) -> bool {
        self.under_way.iter().any(|(of, ..)| *of == array)
    }

    /// Begins one; not a second of the same array.
    pub(super) fn begin(&mut self, array: ArrayUuid, work: impl FnOnce() -> T + Send + 'static) {
        if self.has(array) {
            return;
        }
        let (done, result) = channel();
        let thread = std::thread::Builder::new().name(format!("{} array", self.kind));
        let work = move || {
            // Nobody may wait any more.
            let _ = done.send(work());
        };
        match thread.spawn(work) {
            Ok(_) => self.under_way.push((array, Instant::now(), result)),
            Err(error) => tracing::error!(%array, %error, kind = self.kind, "no thread for it"),
        }
    }

    /// What came of those that have ended; those that began just now are waited for.
    pub(super) fn ended(&mut self) -> Vec<(ArrayUuid, T)> {
        let mut ended = Vec::new();
        let kind = self.kind;
        self.under_way.retain(|(array, since, result)| {
            let left = (*since + PATIENCE).saturating_duration_since(Instant::now());
            match result.recv_timeout(left) {
                Ok(done) => ended.push((*array, done)),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => {
                    tracing::error!(%array, kind, "its thread has panicked");
                }
            }
            false
        });
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_hangs_holds_up_no_other_and_panics_end_none() {
        let mut tasks = Tasks::new("test");
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
        assert!(began.elapsed() < PATIENCE, "it is not waited for");
        assert!(tasks.has(a) && !tasks.has(b) && !tasks.has(c));
        end.send(()).expect("it waits");
        tasks.under_way[0].1 = Instant::now();
        assert_eq!(tasks.ended(), [(a, 1)]);
        assert!(tasks.is_empty());
    }
}
