//! How arrays stop: one that a user stops, and all of them as the daemon ends.
//!
//! Invariants: a stop takes a bounded time, whatever hangs; what is left busy is named.
//! Deliberately absent: how one array becomes quiet (runtime).

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use strake_format::ArrayUuid;

use crate::api::OutcomeJson;
use crate::common::errors::{Code, Failure};
use crate::common::partly;
use crate::daemon::array::running::{Ended, Running};
use crate::daemon::events::{EventLog, Happened};
use crate::daemon::rounds;
use crate::daemon::service::{Service, locked, outcome};
use crate::daemon::state::Dir;

/// How long the end of the daemon waits for changes that are under way.
const CLOSING_PATIENCE: Duration = Duration::from_secs(4);
/// How long an array may take to become quiet as the process ends. Members that do not answer have
/// longer deadlines, and the service manager does not wait for these: it kills the daemon. An array
/// that is not quiet then is left as after a kill, from which it comes back.
pub(crate) const QUIET_PATIENCE: Duration = Duration::from_secs(12);
/// How long the end of the daemon waits for arrays to stop: longer than each takes, with 5 s for
/// its exports and 10 s for its threads beside that ([`strake_runtime::Serving::end_within`]). All
/// in all less than 30 s.
const STOP_ALL_PATIENCE: Duration = Duration::from_secs(25);
/// How long an array without a thread waits for one that ends.
const ROOM_PATIENCE: Duration = Duration::from_secs(1);

impl Service {
    /// Stops an array; it stays stopped until it is started again or the daemon is.
    pub(crate) fn stop(&self, name: &str, dry_run: bool) -> Result<OutcomeJson, Failure> {
        let _change = self.change("strake stop", name, dry_run)?;
        let Some(running) = self.find_running(name) else {
            let found = self.pick(self.scan(&[]), name)?;
            if !dry_run {
                locked(&self.stopped).insert(found.uuid);
            }
            return Ok(outcome(
                found.name().as_str(),
                false,
                "it was stopped already",
            ));
        };
        let name = running.name();
        let name = name.as_str();
        // Else it would be out of service, with devices that stay busy, as after a kill.
        running.turns()?;
        running.not_in_use()?;
        if dry_run {
            return Ok(outcome(name, false, "would stop"));
        }
        running.put_out_emptied(&self.events);
        locked(&self.stopped).insert(running.uuid);
        let _ends = Ends {
            service: self,
            array: running.uuid,
        };
        let ended = running.stop(&self.dir, &self.events);
        locked(&self.left_behind).extend(ended.busy.iter().cloned());
        match unclean(name, &ended) {
            None => Ok(outcome(name, true, "stopped").noted(&busy_notes(&ended.busy))),
            Some(failure) => {
                note_unclean(&self.events, name, &failure);
                Err(failure)
            }
        }
    }

    /// Stops everything, as far as it can be.
    ///
    /// An array with its block device in use is left as a kill would leave it: the device stays,
    /// its users wait, and the next daemon takes it over. To stop it would take it from under them.
    ///
    /// Arrays stop at the same time, so that one with a member that hangs holds up no other.
    pub(crate) fn stop_all(&self) {
        if !self.changes.close(CLOSING_PATIENCE) {
            tracing::warn!("a change is still under way: its array is stopped all the same");
        }
        let stop = |running: &Arc<Running>, done: &Sender<Arc<Running>>| {
            let (dir, events) = (self.dir.clone(), Arc::clone(&self.events));
            let (running, done) = (Arc::clone(running), done.clone());
            move || {
                // It has come to its end, also by a panic.
                let _ = rounds::caught(|| end(&running, &dir, &events));
                // Nobody may wait any more.
                let _ = done.send(running);
            }
        };
        let begin = |running: &Arc<Running>, done: &Sender<Arc<Running>>| {
            let name = running.name();
            let begun = strake_runtime::spawn_thread(format!("stop {name}"), stop(running, done));
            begun
                .map(drop)
                .inspect_err(|error| tracing::warn!(array = %name, %error, "it stops later"))
        };
        let over = |running: &Arc<Running>| drop(locked(&self.running).remove(&running.uuid));
        let left = end_all(
            self.all_running(),
            STOP_ALL_PATIENCE,
            (begin, |running, done| stop(running, done)()),
            over,
        );
        if left > 0 {
            tracing::error!(
                arrays = left,
                "arrays that do not stop are left as after a kill"
            );
        }
    }
}

/// Has all come to their ends at the same time, and waits for these. Of those for which no thread
/// is to be had one at a time has this one, when the others have begun, unless a thread that ends
/// makes room. How many have not ended in time; of these some may not have begun.
fn end_all<T>(
    all: Vec<T>,
    patience: Duration,
    (begin, here): (
        impl Fn(&T, &Sender<T>) -> io::Result<()>,
        impl Fn(&T, &Sender<T>),
    ),
    over: impl Fn(&T),
) -> usize {
    let until = Instant::now() + patience;
    let (done, ends) = channel();
    let mut left = all.len();
    let next = |most: Duration| {
        let patience = until.saturating_duration_since(Instant::now());
        ends.recv_timeout(patience.min(most)).map(|one| over(&one))
    };
    let mut waiting: Vec<T> = all
        .into_iter()
        .filter(|one| begin(one, &done).is_err())
        .collect();
    while let Some(one) = waiting.pop() {
        if next(ROOM_PATIENCE).is_ok() {
            left -= 1;
            if begin(&one, &done).is_ok() {
                continue;
            }
        }
        if Instant::now() < until {
            here(&one, &done);
        }
    }
    while left > 0 && next(patience).is_ok() {
        left -= 1;
    }
    left
}

/// The stop of an array: when it is over, in whatever way, the array is in service no more.
struct Ends<'a> {
    service: &'a Service,
    array: ArrayUuid,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        locked(&self.service.running).remove(&self.array);
    }
}

/// Stops an array as the daemon ends, or leaves it to the next daemon.
fn end(running: &Running, dir: &Dir, events: &EventLog) {
    let array = running.name();
    if let Err(failure) = running.not_in_use() {
        tracing::warn!(%array, %failure, "left for the next daemon");
        running.leave();
        return;
    }
    running.put_out_emptied(events);
    let ended = running.stop_within(dir, QUIET_PATIENCE);
    if let Some(failure) = unclean(array.as_str(), &ended) {
        note_unclean(events, array.as_str(), &failure);
    }
}

/// That an array is out of service and did not stop cleanly, with the devices that stay busy.
pub(crate) fn unclean(array: &str, ended: &Ended) -> Option<Failure> {
    let failure = ended.failure.clone()?;
    let mut found = format!(
        "{array} is out of service and was not stopped cleanly: {}",
        failure.found
    );
    if !ended.busy.is_empty() {
        let busy = partly::all(&ended.busy);
        found.push_str(&format!(
            "; the kernel still has I/O on {busy}, busy until that ends"
        ));
    }
    let cure = match failure.code {
        Code::NoSpace => format!(
            "make room in the file systems of these members, or extend their pools; then strake \
             start {array} recovers what was under way, and all that was acknowledged is there"
        ),
        _ => format!(
            "strake start {array} recovers what was under way; look at the devices and the kernel \
             log first"
        ),
    };
    // The stop has begun: what that code says, that nothing was done, is not so.
    let code = match failure.code {
        Code::ArraySilent => Code::CommandUnfinished,
        code => code,
    };
    let failure = Failure {
        code,
        found,
        ..failure
    };
    Some(failure.cure(cure))
}

/// An array is left as a kill would leave it.
pub(crate) fn note_unclean(events: &EventLog, array: &str, failure: &Failure) {
    tracing::error!(%array, %failure, "not stopped cleanly");
    events.note(Happened {
        array: Some(array.to_owned()),
        event: "stopped",
        cause: Some(failure.found.clone()),
        effect: Some(
            "not clean: as after a kill, its next start recovers what was under way".to_owned(),
        ),
        ..Happened::default()
    });
}

/// What is said of devices that stay busy after a stop.
fn busy_notes(busy: &[PathBuf]) -> Vec<String> {
    let note = |device: &PathBuf| {
        let device = device.display();
        format!(
            "{device} does not answer: the kernel still has I/O on it, and it stays busy until \
             that ends; the other devices are free, and the array can be started without it"
        )
    };
    busy.iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// Long enough for a busy machine to begin what there is time for.
    const PATIENCE: Duration = Duration::from_secs(10);

    fn ends(one: &u8, done: &Sender<u8>) {
        done.send(*one).expect("it is waited for");
    }

    /// What has no thread was stopped before the others were waited for, and without a bound.
    #[test]
    fn all_that_have_a_thread_begin_and_what_has_none_gets_that_of_one_that_has_ended() {
        let (begun, over) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let free = Cell::new(2);
        let begin = |one: &u8, done: &Sender<u8>| {
            if free.get() == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            free.set(free.get() - 1);
            begun.borrow_mut().push(*one);
            ends(one, done);
            Ok(())
        };
        let here = |_: &u8, _: &Sender<u8>| panic!("there is room for it");
        let ended = |one: &u8| {
            free.set(free.get() + 1);
            over.borrow_mut().push(*one);
        };
        assert_eq!(end_all(vec![1, 2, 3, 4], PATIENCE, (begin, here), ended), 0);
        assert_eq!(*begun.borrow(), [1, 2, 4, 3]);
        assert_eq!(over.borrow().len(), 4);
    }

    #[test]
    fn what_hangs_costs_no_more_than_the_time_that_there_is() {
        let tried = RefCell::new(Vec::new());
        let begin = |one: &u8, _: &Sender<u8>| match one {
            // It hangs.
            1 => Ok(()),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        };
        let here = |one: &u8, done: &Sender<u8>| {
            tried.borrow_mut().push(*one);
            std::thread::sleep(PATIENCE - ROOM_PATIENCE / 2);
            ends(one, done);
        };
        let start = Instant::now();
        let left = end_all(vec![1, 2, 3], PATIENCE, (begin, here), |_| ());
        assert_eq!(*tried.borrow(), [3], "no time is left for the other");
        assert_eq!(left, 2);
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
