//! Locks of changes: one change at a time of each array, name and pool.
//!
//! A change holds keys: the name and the uuid of its array, both names of a rename, [`pool_key`]
//! for a pool of spares. Two changes exclude each other if they share a key; a change of one array
//! or pool that hangs on a device keeps no other from its administration.
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
    /// Keys, and since when they are held.
    held: BTreeMap<String, Instant>,
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

    /// Takes these keys for a command, which waits a moment for another change.
    pub(crate) fn begin(&self, keys: Vec<String>) -> Result<Change<'_>, Failure> {
        self.begin_within(keys, PATIENCE)
    }

    /// Takes these keys if nobody has one of them: for what the daemon does by itself, and tries
    /// again.
    pub(crate) fn try_begin(&self, keys: Vec<String>) -> Result<Change<'_>, Failure> {
        self.begin_within(keys, Duration::ZERO)
    }

    fn begin_within(&self, keys: Vec<String>, patience: Duration) -> Result<Change<'_>, Failure> {
        let until = Instant::now() + patience;
        let mut state = self.state();
        loop {
            if state.closing {
                return Err(closing());
            }
            let taken = keys.iter().find_map(|key| state.held.get_key_value(key));
            let Some((key, since)) = taken else { break };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = match key.strip_prefix(POOL) {
                    Some(pool) => format!("the pool {pool}"),
                    None => key.clone(),
                };
                let seconds = since.elapsed().as_secs();
                let found = format!("another change of {what} has been under way for {seconds} s");
                return Err(Failure::new(Code::ChangeUnderWay, found));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let now = Instant::now();
        // A key that is named twice is one key.
        let keys: std::collections::BTreeSet<String> = keys.into_iter().collect();
        for key in &keys {
            state.held.insert(key.clone(), now);
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
        let hangs = changes.try_begin(keys(&["z", "uuid-of-z"])).expect("free");
        drop(changes.try_begin(keys(&["y"])).expect("another array"));
        for key in ["z", "uuid-of-z"] {
            let refused = changes.begin_within(keys(&["a", key]), Duration::from_millis(20));
            assert_eq!(
                refused.map(|_| ()).map_err(|f| f.code),
                Err(Code::ChangeUnderWay)
            );
        }
        drop(
            changes
                .try_begin(keys(&["a"]))
                .expect("a refused change holds nothing"),
        );
        assert!(
            !changes.close(Duration::from_millis(20)),
            "it is still under way"
        );
        drop(hangs);
        assert!(changes.close(Duration::ZERO));
        let late = changes.try_begin(keys(&["y"])).map(|_| ());
        assert_eq!(late.map_err(|f| f.code), Err(Code::NotServing));
    }

    #[test]
    fn a_change_of_a_pool_that_hangs_keeps_no_other_pool_from_changes() {
        let changes = Changes::default();
        let hangs = changes.try_begin(vec![pool_key("p")]).expect("free");
        drop(changes.try_begin(vec![pool_key("q")]).expect("another"));
        drop(changes.try_begin(keys(&["p"])).expect("an array"));
        let refused = changes.begin_within(vec![pool_key("p")], Duration::from_millis(20));
        let refused = refused.map(|_| ()).expect_err("it is under way");
        assert!(
            refused.found.starts_with("another change of the pool p "),
            "{refused:?}"
        );
        drop(hangs);
    }

    #[test]
    fn who_waits_begins_when_the_change_before_has_ended() {
        let changes = Changes::default();
        let first = changes.begin(keys(&["z"])).expect("free");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| changes.begin(keys(&["z", "z"])).is_ok());
            drop(first);
            assert!(second.join().expect("no panic"));
        });
        assert!(changes.close(Duration::ZERO));
    }
}
