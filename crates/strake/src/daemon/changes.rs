//! Locks of changes: one change at a time of each array, name and pool.
//!
//! A change holds keys: the name and the uuid of its array, both names of a rename, [`pool_key`]
//! for a pool of spares. Two changes exclude each other if they share a key; a change of one array
//! or pool that hangs on a device keeps no other from its administration. A dry run changes nothing
//! and takes no key: no change excludes it, and it excludes none. But a dry run that holds devices,
//! to see whether they are free, takes the keys of its change ([`Changes::begin_holding`]): a start
//! beside it would set aside, as busy, what it holds.
//!
//! Invariants: the keys that one call takes are taken together or not at all; no wait for a key is
//! longer than the patience given; no key is of more than one array or pool. Deliberately absent:
//! what a change does, and reading (which takes no key).

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::common::errors::{Code, Failure};

/// Before the name or uuid of a pool: no array is called so.
const POOL: &str = "pools/";

/// The key of a pool of spares, by its name or its uuid. A change of the pool has both.
pub(crate) fn pool_key(pool: &str) -> String {
    format!("{POOL}{pool}")
}

/// How long a user's change waits for another one of the same array.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The daemon is stopping: nothing begins any more.
    closing: bool,
    /// Keys that are held.
    held: BTreeMap<String, Held>,
}

/// How a key is held.
#[derive(Clone, Copy, Debug)]
struct Held {
    since: Instant,
    /// By which command or round.
    by: &'static str,
}

/// The right to change something, until it is dropped.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    changes: &'a Changes,
    keys: Vec<String>,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut state = self.changes.state();
        for key in &self.keys {
            state.held.remove(key);
        }
        self.changes.changed.notify_all();
    }
}

fn closing() -> Failure {
    let found = "the daemon is stopping".to_owned();
    Failure::new(Code::NotServing, found).cure("start it again")
}

impl Changes {
    fn state(&self) -> MutexGuard<'_, State> {
        // What a panic left half-done is for its own request to answer for; the rest must go on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes these keys for a command, which waits a moment for another change; a dry run, which
    /// holds no device, takes none.
    pub(crate) fn begin(
        &self,
        by: &'static str,
        mut keys: Vec<String>,
        dry_run: bool,
    ) -> Result<Change<'_>, Failure> {
        if dry_run {
            keys.clear();
        }
        self.begin_within(by, keys, PATIENCE)
    }

    /// Takes these keys for a command that holds devices, by a dry run too.
    pub(crate) fn begin_holding(
        &self,
        by: &'static str,
        keys: Vec<String>,
    ) -> Result<Change<'_>, Failure> {
        self.begin(by, keys, false)
    }

    /// Takes these keys if nobody has one of them: for what the daemon does by itself, and tries
    /// again.
    pub(crate) fn try_begin(
        &self,
        by: &'static str,
        keys: Vec<String>,
    ) -> Result<Change<'_>, Failure> {
        self.begin_within(by, keys, Duration::ZERO)
    }

    fn begin_within(
        &self,
        by: &'static str,
        keys: Vec<String>,
        patience: Duration,
    ) -> Result<Change<'_>, Failure> {
        let until = Instant::now() + patience;
        let mut state = self.state();
        loop {
            if state.closing {
                return Err(closing());
            }
            let taken = keys.iter().find_map(|key| state.held.get_key_value(key));
            let Some((key, held)) = taken else { break };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = match key.strip_prefix(POOL) {
                    Some(pool) => format!("the pool {pool}"),
                    None => key.clone(),
                };
                let (by, seconds) = (held.by, held.since.elapsed().as_secs());
                let found =
                    format!("another change of {what} has been under way for {seconds} s: {by}");
                return Err(Failure::new(Code::ChangeUnderWay, found));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let held = Held {
            since: Instant::now(),
            by,
        };
        // A key that is named twice is one key.
        let keys: std::collections::BTreeSet<String> = keys.into_iter().collect();
        for key in &keys {
            state.held.insert(key.clone(), held);
        }
        drop(state);
        let keys = keys.into_iter().collect();
        Ok(Change {
            changes: self,
            keys,
        })
    }

    /// Lets nothing begin any more, and waits for what is under way, for as long as `patience`.
    /// False if something is still under way.
    pub(crate) fn close(&self, patience: Duration) -> bool {
        let mut state = self.state();
        state.closing = true;
        let under_way = |state: &mut State| !state.held.is_empty();
        let waited = self.changed.wait_timeout_while(state, patience, under_way);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(all: &[&str]) -> Vec<String> {
        all.iter().map(|key| (*key).to_owned()).collect()
    }

    #[test]
    fn a_change_that_hangs_keeps_only_its_own_array_from_changes() {
        let changes = Changes::default();
        let hangs = changes
            .try_begin("a test", keys(&["z", "uuid-of-z"]))
            .expect("free");
        drop(
            changes
                .try_begin("a test", keys(&["y"]))
                .expect("another array"),
        );
        for key in ["z", "uuid-of-z"] {
            let refused =
                changes.begin_within("a test", keys(&["a", key]), Duration::from_millis(20));
            assert_eq!(
                refused.map(|_| ()).map_err(|f| f.code),
                Err(Code::ChangeUnderWay)
            );
        }
        drop(
            changes
                .try_begin("a test", keys(&["a"]))
                .expect("a refused change holds nothing"),
        );
        assert!(
            !changes.close(Duration::from_millis(20)),
            "it is still under way"
        );
        drop(hangs);
        assert!(changes.close(Duration::ZERO));
        let late = changes.try_begin("a test", keys(&["y"])).map(|_| ());
        assert_eq!(late.map_err(|f| f.code), Err(Code::NotServing));
    }

    #[test]
    fn a_change_of_a_pool_that_hangs_keeps_no_other_pool_from_changes() {
        let changes = Changes::default();
        let hangs = changes
            .try_begin("a test", vec![pool_key("p")])
            .expect("free");
        drop(
            changes
                .try_begin("a test", vec![pool_key("q")])
                .expect("another"),
        );
        drop(changes.try_begin("a test", keys(&["p"])).expect("an array"));
        let refused =
            changes.begin_within("a test", vec![pool_key("p")], Duration::from_millis(20));
        let refused = refused.map(|_| ()).expect_err("it is under way");
        assert!(
            refused.found.starts_with("another change of the pool p ")
                && refused.found.ends_with(": a test"),
            "{refused:?}"
        );
        drop(hangs);
    }

    #[test]
    fn a_dry_run_waits_for_no_change_and_excludes_none() {
        let changes = Changes::default();
        let hangs = changes.try_begin("a test", keys(&["z"])).expect("free");
        let dry = changes.begin("a test", keys(&["z", "y"]), true);
        let dry = dry.expect("it changes nothing");
        drop(changes.try_begin("a test", keys(&["y"])).expect("free"));
        drop(hangs);
        drop(changes.try_begin("a test", keys(&["z"])).expect("free"));
        assert!(changes.close(Duration::ZERO), "it is not waited for");
        drop(dry);
        let late = changes.begin("a test", keys(&["z"]), true).map(|_| ());
        assert_eq!(late.map_err(|f| f.code), Err(Code::NotServing));
    }

    #[test]
    fn who_waits_begins_when_the_change_before_has_ended() {
        let changes = Changes::default();
        let first = changes.begin("a test", keys(&["z"]), false).expect("free");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| changes.begin("a test", keys(&["z", "z"]), false).is_ok());
            drop(first);
            assert!(second.join().expect("no panic"));
        });
        assert!(changes.close(Duration::ZERO));
    }
}
