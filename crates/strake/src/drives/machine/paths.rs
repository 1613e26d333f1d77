//! Asking the kernel about paths, with a bound: the file system of a member that is a file may hang
//! (NFS or FUSE without its server, a disk that does not answer).
//!
//! Invariants: a path that did not answer is not asked again before it has, so that there is no
//! thread more for each time that it is wanted; it answers "no answer" at once. What is below /dev
//! lies in memory and is asked directly; so is everything where no thread is to be had.
//!
//! Deliberately absent: reading what is there (`looks`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A disk that sleeps needs some seconds to spin up.
const PATIENCE: Duration = Duration::from_secs(8);
/// So many threads at a time.
const AT_ONCE: usize = 32;

/// How many threads are at a path that nobody waits for any more.
static SILENT: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());

fn silent() -> MutexGuard<'static, BTreeMap<PathBuf, usize>> {
    // Nothing in it is ever half done.
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// It was asked, and has not answered yet.
pub(crate) fn is_silent(path: &Path) -> bool {
    silent().contains_key(path)
}

fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer")
}

/// What `ask` says of a path.
///
/// # Errors
/// Its own; `TimedOut` where there is no answer.
pub(crate) fn in_time<T: Send + 'static>(
    path: &Path,
    ask: impl Fn(&Path) -> io::Result<T> + Clone + Send + 'static,
) -> io::Result<T> {
    let mut all = each_within(PATIENCE, &[path], &ask);
    all.pop().unwrap_or_else(|| Err(no_answer()))
}

/// What the kernel says of a path, through links.
///
/// # Errors
/// Those of [`in_time`].
pub(crate) fn metadata(path: &Path) -> io::Result<fs::Metadata> {
    in_time(path, |path| fs::metadata(path))
}

/// Something is there, or may be: there is no answer.
pub(crate) fn exists(path: &Path) -> bool {
    metadata(path).is_ok() || is_silent(path)
}

/// A file is there.
pub(crate) fn is_file(path: &Path) -> bool {
    metadata(path).is_ok_and(|about| about.is_file())
}

/// What the kernel says of many, at the same time.
pub(crate) fn metadata_of_each(paths: &[PathBuf]) -> Vec<io::Result<fs::Metadata>> {
    let mut all = Vec::new();
    for part in paths.chunks(AT_ONCE) {
        let part: Vec<&Path> = part.iter().map(PathBuf::as_path).collect();
        all.extend(each_within(PATIENCE, &part, &|path: &Path| {
            fs::metadata(path)
        }));
    }
    all
}

/// One ask: it has ended, or nobody waits for it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    UnderWay,
    Ended,
    GivenUp,
}

/// Marks its end, however it ends.
struct End {
    path: PathBuf,
    ask: Arc<Mutex<Ask>>,
}

fn of(ask: &Mutex<Ask>) -> MutexGuard<'_, Ask> {
    ask.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for End {
    fn drop(&mut self) {
        let mut silent = silent();
        if std::mem::replace(&mut *of(&self.ask), Ask::Ended) != Ask::GivenUp {
            return;
        }
        if let Some(threads) = silent.get_mut(&self.path) {
            *threads -= 1;
        }
        silent.retain(|_, threads| *threads > 0);
    }
}

fn each_within<T: Send + 'static>(
    patience: Duration,
    paths: &[&Path],
    ask: &(impl Fn(&Path) -> io::Result<T> + Clone + Send + 'static),
) -> Vec<io::Result<T>> {
    let (sender, receiver) = channel();
    let mut found: Vec<Option<io::Result<T>>> = paths.iter().map(|_| None).collect();
    let mut asked = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        if path.starts_with("/dev") {
            found[index] = Some(ask(path));
            continue;
        }
        if is_silent(path) {
            continue;
        }
        let state = Arc::new(Mutex::new(Ask::UnderWay));
        let end = End {
            path: path.to_path_buf(),
            ask: Arc::clone(&state),
        };
        let (sender, own) = (sender.clone(), ask.clone());
        let begun = strake_runtime::spawn_thread("path", move || {
            let answer = own(&end.path);
            // Before the answer is sent: what is asked right after it must find this one gone.
            drop(end);
            // Perhaps nobody waits any more.
            let _ = sender.send((index, answer));
        });
        match begun {
            Ok(_) => asked.push((index, state)),
            Err(_) => found[index] = Some(ask(path)),
        }
    }
    drop(sender);
    let until = Instant::now() + patience;
    while asked.iter().any(|(index, _)| found[*index].is_none()) {
        let left = until.saturating_duration_since(Instant::now());
        let Ok((index, answer)) = receiver.recv_timeout(left) else {
            break;
        };
        found[index] = Some(answer);
    }
    for (index, state) in asked {
        if found[index].is_some() {
            continue;
        }
        let mut silent = silent();
        let mut state = of(&state);
        if *state == Ask::UnderWay {
            let path = paths[index];
            tracing::warn!(path = %path.display(), "it does not answer, and is not waited for");
            *state = Ask::GivenUp;
            *silent.entry(path.to_path_buf()).or_default() += 1;
        }
    }
    let found = found.into_iter();
    found
        .map(|one| one.unwrap_or_else(|| Err(no_answer())))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_path_that_does_not_answer_keeps_no_other_and_is_not_asked_twice() {
        static LET_GO: LazyLock<(Mutex<bool>, std::sync::Condvar)> =
            LazyLock::new(Default::default);
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let ask = |path: &Path| {
            if path.ends_with("hangs") {
                ASKED.fetch_add(1, Ordering::SeqCst);
                let mut free = LET_GO.0.lock().expect("no thread panics");
                while !*free {
                    free = LET_GO.1.wait(free).expect("no thread panics");
                }
            }
            fs::metadata("/").map(|_| 7)
        };
        let paths = ["/x/a", "/x/hangs", "/x/z"].map(Path::new);
        let patience = Duration::from_secs(5);
        for _ in 0..3 {
            let begun = Instant::now();
            let all = each_within(patience, &paths, &ask);
            let said = all.into_iter().map(|one| one.map_err(|error| error.kind()));
            let said: Vec<_> = said.collect();
            assert_eq!(said, [Ok(7), Err(io::ErrorKind::TimedOut), Ok(7)]);
            assert!(begun.elapsed() < 6 * patience);
        }
        assert_eq!(ASKED.load(Ordering::SeqCst), 1);
        *LET_GO.0.lock().expect("no thread panics") = true;
        LET_GO.1.notify_all();
        let give_up = Instant::now() + Duration::from_secs(60);
        while is_silent(paths[1]) {
            assert!(Instant::now() < give_up, "that it answered is known");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(in_time(paths[1], ask).expect("an answer"), 7);
    }

    #[test]
    fn an_ask_that_panics_is_an_answer_that_does_not_come() {
        let path = Path::new("/x/panics");
        let none = in_time(path, |_: &Path| -> io::Result<u8> { panic!("as planned") });
        assert_eq!(
            none.map_err(|error| error.kind()),
            Err(io::ErrorKind::TimedOut)
        );
        let give_up = Instant::now() + Duration::from_secs(60);
        while is_silent(path) {
            assert!(Instant::now() < give_up, "its thread has ended");
        }
    }
}
