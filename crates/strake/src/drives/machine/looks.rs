//! Looking at many devices of which some may not answer: each by a thread of its own, waited for
//! only so long.
//!
//! Invariants: no more than one thread at a time is at one device, however often it is looked at; a
//! device that is not answered for keeps nobody from what the others say. What a thread finds that
//! nobody waited for is thrown away, and that it came back is told, so that somebody looks again.
//!
//! Deliberately absent: ending such a thread. A read that the kernel does not end cannot be ended.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::common::errors::Failure;
use crate::common::partly;
use crate::drives::machine::sysfs::Identity;
use crate::drives::machine::{paths, sysfs};

/// A drive that sleeps needs some seconds to spin up.
const PATIENCE: Duration = Duration::from_secs(10);
/// So many threads at a time.
const AT_ONCE: usize = 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct Looks {
    patience: Duration,
    /// One look at many devices at a time: a device that another look is just asking would seem not
    /// to be there.
    turn: Mutex<()>,
    state: Arc<Mutex<State>>,
}

/// What devices say.
#[derive(Debug)]
pub(crate) struct Answers<T> {
    /// Of those that answered, in their order.
    pub(crate) found: Vec<T>,
    /// Those that are there and did not answer.
    pub(crate) silent: Vec<PathBuf>,
    /// Why some of those were not even asked.
    pub(crate) no_thread: Option<io::Error>,
}

impl<T> Answers<T> {
    /// Refuses what is not known of devices that were not even asked.
    pub(crate) fn all_asked(self) -> Result<Answers<T>, Failure> {
        match &self.no_thread {
            None => Ok(self),
            Some(error) => {
                let silent = partly::all(&self.silent);
                Err(Failure::io(format!("looking at {silent}"), error))
            }
        }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Devices that a thread is at.
    busy: BTreeSet<Identity>,
    /// Those of them that nobody waits for any more.
    silent: BTreeSet<Identity>,
    /// Paths of which not even that is known what they stand for.
    unknown: BTreeSet<PathBuf>,
    /// One of those has answered.
    came_back: bool,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Nothing in it is ever half done.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread is at a device until this is dropped, however it ends.
struct At {
    state: Arc<Mutex<State>>,
    device: Identity,
}

impl Drop for At {
    fn drop(&mut self) {
        let mut state = locked(&self.state);
        state.busy.remove(&self.device);
        state.came_back |= state.silent.remove(&self.device);
    }
}

impl Default for Looks {
    fn default() -> Looks {
        Looks::with(PATIENCE)
    }
}

impl Looks {
    /// How long a look at so many devices takes at most.
    pub(crate) fn longest(devices: usize) -> Duration {
        let parts = devices.div_ceil(AT_ONCE);
        PATIENCE.saturating_mul(u32::try_from(parts).unwrap_or(u32::MAX))
    }

    fn with(patience: Duration) -> Looks {
        Looks {
            patience,
            turn: Mutex::default(),
            state: Arc::default(),
        }
    }

    /// What `look` says of each of these devices, in their order; the same device under two names
    /// counts once. One that does not answer in time, or has a look that has not come back yet, is
    /// named as silent.
    pub(crate) fn each<T: Send + 'static>(
        &self,
        paths: &[PathBuf],
        look: impl Fn(&Path) -> T + Clone + Send + 'static,
    ) -> Answers<T> {
        let mut all = Answers {
            found: Vec::new(),
            silent: Vec::new(),
            no_thread: None,
        };
        // Before the turn begins: a file system that hangs keeps no other look waiting.
        let devices = self.there(paths, &mut all.silent);
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        for part in devices.chunks(AT_ONCE) {
            self.some(part, &look, &mut all);
        }
        all
    }

    /// Those that are there, each once. What does not even say what it is is silent.
    fn there(&self, paths: &[PathBuf], silent: &mut Vec<PathBuf>) -> Vec<(PathBuf, Identity)> {
        let each = sysfs::each_once(paths);
        let waits = each.unknown.iter().filter(|path| paths::is_silent(path));
        locked(&self.state).unknown.extend(waits.cloned());
        silent.extend(each.unknown);
        each.devices
    }

    fn some<T: Send + 'static>(
        &self,
        paths: &[(PathBuf, Identity)],
        look: &(impl Fn(&Path) -> T + Clone + Send + 'static),
        all: &mut Answers<T>,
    ) {
        let (sender, receiver) = channel();
        let until = Instant::now() + self.patience;
        let mut asked: Vec<(usize, Identity)> = Vec::new();
        let mut found: Vec<Option<T>> = paths.iter().map(|_| None).collect();
        // Waits for one of those that were asked; false if none is left to wait for.
        let receive = |asked: &[(usize, Identity)], found: &mut [Option<T>]| {
            let waits = asked.iter().any(|(index, _)| found[*index].is_none());
            let left = until.saturating_duration_since(Instant::now());
            let came = waits.then(|| receiver.recv_timeout(left).ok()).flatten();
            came.map(|(index, one)| found[index] = Some(one)).is_some()
        };
        for (index, (path, device)) in paths.iter().enumerate() {
            let device = *device;
            loop {
                let Some(at) = self.begin(device) else {
                    all.silent.push(path.clone());
                    break;
                };
                let (sender, look, path) = (sender.clone(), look.clone(), path.clone());
                let begun = strake_runtime::spawn_thread("look", move || {
                    let found = look(&path);
                    // Before the result is sent: another look right after it must find this one
                    // gone.
                    drop(at);
                    // Perhaps nobody waits any more.
                    let _ = sender.send((index, found));
                });
                match begun {
                    Ok(_) => asked.push((index, device)),
                    // As many threads as there may be: a look that ends makes room for the next.
                    Err(_) if receive(&asked, &mut found) => continue,
                    Err(error) => {
                        tracing::warn!(%error, "no thread to look at a device");
                        all.silent.push(paths[index].0.clone());
                        all.no_thread = Some(error);
                    }
                }
                break;
            }
        }
        drop(sender);
        while receive(&asked, &mut found) {}
        for (index, device) in asked {
            if found[index].is_none() {
                self.give_up(&paths[index].0, device);
                all.silent.push(paths[index].0.clone());
            }
        }
        all.found.extend(found.into_iter().flatten());
    }

    /// Nobody is at this device now.
    fn begin(&self, device: Identity) -> Option<At> {
        let state = Arc::clone(&self.state);
        locked(&state).busy.insert(device).then_some(())?;
        Some(At { state, device })
    }

    fn give_up(&self, path: &Path, device: Identity) {
        let mut state = locked(&self.state);
        match state.busy.contains(&device) {
            true => {
                tracing::warn!(
                    device = %path.display(), "it does not answer, and is not waited for"
                );
                state.silent.insert(device);
            }
            // In this very moment.
            false => state.came_back = true,
        }
    }

    /// Is any device silent?
    pub(crate) fn waits(&self) -> bool {
        let state = locked(&self.state);
        state.came_back || !state.silent.is_empty() || !state.unknown.is_empty()
    }

    /// Has one answered, since this was asked last, that nobody waited for any more?
    pub(crate) fn came_back(&self) -> bool {
        let mut state = locked(&self.state);
        let before = state.unknown.len();
        state.unknown.retain(|path| paths::is_silent(path));
        std::mem::take(&mut state.came_back) || state.unknown.len() < before
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, LazyLock};

    use super::*;

    /// A drive that hangs until it is let go.
    #[derive(Default)]
    struct Hang {
        free: Mutex<bool>,
        changed: Condvar,
        inside: AtomicUsize,
        most: AtomicUsize,
        looked: AtomicUsize,
    }

    impl Hang {
        fn enter(&self) {
            self.looked.fetch_add(1, Ordering::SeqCst);
            let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(inside, Ordering::SeqCst);
            let mut free = self.free.lock().expect("no thread panics");
            while !*free {
                free = self.changed.wait(free).expect("no thread panics");
            }
            self.inside.fetch_sub(1, Ordering::SeqCst);
        }
        fn let_go(&self) {
            *self.free.lock().expect("no thread panics") = true;
            self.changed.notify_all();
        }
    }

    fn names(found: &[PathBuf]) -> Vec<&str> {
        let named = found.iter().filter_map(|path| path.file_name()?.to_str());
        named.collect()
    }

    #[test]
    fn a_device_that_hangs_keeps_nobody_from_the_others_and_has_one_thread() {
        static HANG: LazyLock<Hang> = LazyLock::new(Hang::default);
        let folder = tempfile::tempdir().expect("temporary folder");
        let paths: Vec<PathBuf> = ["a", "hangs", "z"]
            .iter()
            .map(|name| folder.path().join(name))
            .collect();
        for path in &paths {
            std::fs::write(path, "").expect("written");
        }
        let look = |path: &Path| {
            if path.ends_with("hangs") {
                HANG.enter();
            }
            path.to_owned()
        };
        // The others answer within it on a busy machine too; only the first look waits for it.
        let looks = Looks::with(Duration::from_secs(5));
        for _ in 0..3 {
            let begun = Instant::now();
            let answers = looks.each(&paths, look);
            assert_eq!(names(&answers.found), ["a", "z"]);
            assert_eq!(names(&answers.silent), ["hangs"]);
            assert!(begun.elapsed() < Duration::from_secs(30));
            assert!(looks.waits() && !looks.came_back());
        }
        assert_eq!(HANG.looked.load(Ordering::SeqCst), 1, "asked once");
        HANG.let_go();
        let give_up = Instant::now() + Duration::from_secs(30);
        while !looks.came_back() {
            assert!(Instant::now() < give_up, "that it came back is told");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!looks.waits() && !looks.came_back(), "told once");
        let answers = looks.each(&paths, look);
        assert_eq!(names(&answers.found), ["a", "hangs", "z"]);
        assert!(answers.silent.is_empty(), "{answers:?}");
        assert_eq!(HANG.most.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn more_devices_than_threads_are_all_looked_at_in_order_and_each_once() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = |n: usize| folder.path().join(format!("{n:03}"));
        let mut paths: Vec<PathBuf> = (0..3 * AT_ONCE + 1).map(path).collect();
        for path in &paths {
            std::fs::write(path, "").expect("written");
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&paths[0], &link).expect("a link");
        let first = paths.clone();
        paths.push(link);
        let looks = Looks::with(Duration::from_secs(60));
        let answers = looks.each(&paths, |path: &Path| path.to_owned());
        assert_eq!(answers.found, first);
        assert!(!looks.waits());
    }

    #[test]
    fn who_looks_at_the_same_time_finds_all_of_them() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let paths: Vec<PathBuf> = (0..4).map(|n| folder.path().join(n.to_string())).collect();
        for path in &paths {
            std::fs::write(path, "").expect("written");
        }
        let looks = Looks::with(Duration::from_secs(60));
        let slow = |path: &Path| {
            std::thread::sleep(Duration::from_millis(20));
            path.to_owned()
        };
        std::thread::scope(|scope| {
            let both: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| looks.each(&paths, slow)))
                .collect();
            for found in both {
                assert_eq!(found.join().expect("no thread panics").found, paths);
            }
        });
    }

    #[test]
    fn a_look_that_panics_is_no_device_that_hangs() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("a");
        std::fs::write(&path, "").expect("written");
        let patience = Duration::from_secs(60);
        let looks = Looks::with(patience);
        let begun = Instant::now();
        let answers = looks.each(std::slice::from_ref(&path), |_: &Path| -> u8 {
            panic!("as planned")
        });
        assert!(answers.found.is_empty() && begun.elapsed() < patience);
        assert_eq!(answers.silent, std::slice::from_ref(&path));
        assert_eq!(looks.each(&[path], |_: &Path| 7).found, [7]);
    }
}
