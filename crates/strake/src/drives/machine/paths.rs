//! Asking the kernel about paths, with a bound: the file system of a member that is a file may hang
//! (NFS or FUSE without its server, a disk that does not answer).
//!
//! One thread asks about many paths, one after the other. Where it stands still, another takes the
//! rest, and paths of the same folder are not asked.
//!
//! Invariants: a path that did not answer, and those beside it, answer "no answer" at once until it
//! has answered, or until it is time to ask anew: the folder may be another's by then. Few threads
//! ever wait at one path. What is below /dev lies in memory and is asked directly; so is everything
//! where no thread is to be had. `TimedOut` is said of what gave no answer, and of nothing else.
//!
//! Deliberately absent: reading what is there (`looks`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A disk that sleeps needs some seconds to spin up.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a path that did not answer is not asked; longer each time.
const PAUSE: Duration = Duration::from_secs(60);
const LONGER_MOST: u32 = 6;
/// So many threads wait at one path at most.
const THREADS_MOST: u32 = 16;

/// A path that did not answer.
#[derive(Debug)]
struct Silent {
    /// So many threads are at it.
    threads: u32,
    asked: Instant,
}

impl Silent {
    fn is_asked_again(&self) -> bool {
        let pause = PAUSE * (1 << self.threads.min(LONGER_MOST));
        self.threads < THREADS_MOST && self.asked.elapsed() >= pause
    }
}

static SILENT: Mutex<BTreeMap<PathBuf, Silent>> = Mutex::new(BTreeMap::new());

fn silent() -> MutexGuard<'static, BTreeMap<PathBuf, Silent>> {
    // Nothing in it is ever half done.
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// It, or one beside it, was asked, has not answered yet, and is not asked anew now.
pub(crate) fn is_silent(path: &Path) -> bool {
    let waits = |(other, one): (&PathBuf, &Silent)| {
        (other == path || other.parent() == path.parent()) && !one.is_asked_again()
    };
    silent().iter().any(waits)
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
    let mut all = each_within(PATIENCE, &[path.to_owned()], &ask);
    all.pop().unwrap_or_else(|| Err(no_answer()))
}

/// What the kernel says of a path, through links.
///
/// # Errors
/// Those of [`in_time`].
pub(crate) fn metadata(path: &Path) -> io::Result<fs::Metadata> {
    in_time(path, |path| fs::metadata(path))
}

/// What the kernel says of many.
pub(crate) fn metadata_of_each(paths: &[PathBuf]) -> Vec<io::Result<fs::Metadata>> {
    each_within(PATIENCE, paths, &|path: &Path| fs::metadata(path))
}

/// Something is there, or may be: there is no answer.
pub(crate) fn exists(path: &Path) -> bool {
    let about = metadata(path).map_err(|error| error.kind());
    matches!(about, Ok(_) | Err(io::ErrorKind::TimedOut))
}

/// A file is there.
pub(crate) fn is_file(path: &Path) -> bool {
    metadata(path).is_ok_and(|about| about.is_file())
}

/// Where a thread is that asks.
#[derive(Debug, Default)]
struct At {
    path: Option<PathBuf>,
    /// Nobody waits for it any more.
    given_up: bool,
}

/// Marks its end, however it ends.
struct End(Arc<Mutex<At>>);

fn locked(at: &Mutex<At>) -> MutexGuard<'_, At> {
    at.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for End {
    fn drop(&mut self) {
        let mut silent = silent();
        let mut at = locked(&self.0);
        let Some(path) = at.path.take().filter(|_| at.given_up) else {
            return;
        };
        // It may have answered another meanwhile.
        if let Some(one) = silent.get_mut(&path) {
            one.threads -= 1;
            if one.threads == 0 {
                silent.remove(&path);
            }
        }
    }
}

fn asked<T>(path: &Path, ask: &impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    ask(path).map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => io::Error::other(error.to_string()),
        _ => error,
    })
}

fn each_within<T: Send + 'static>(
    patience: Duration,
    paths: &[PathBuf],
    ask: &(impl Fn(&Path) -> io::Result<T> + Clone + Send + 'static),
) -> Vec<io::Result<T>> {
    let mut found: Vec<Option<io::Result<T>>> = Vec::new();
    let mut left = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        let direct = path.starts_with("/dev");
        found.push(direct.then(|| asked(path, ask)));
        if !direct {
            left.push((index, path.clone()));
        }
    }
    loop {
        left.retain(|(index, path)| found[*index].is_none() && !is_silent(path));
        if left.is_empty() {
            break;
        }
        walk(patience, &left, ask, &mut found);
    }
    let found = found.into_iter();
    found
        .map(|one| one.unwrap_or_else(|| Err(no_answer())))
        .collect()
}

/// Asks these paths, up to one that does not answer, which is silent then.
fn walk<T: Send + 'static>(
    patience: Duration,
    paths: &[(usize, PathBuf)],
    ask: &(impl Fn(&Path) -> io::Result<T> + Clone + Send + 'static),
    found: &mut [Option<io::Result<T>>],
) {
    let (sender, receiver) = channel();
    let at = Arc::new(Mutex::new(At::default()));
    let end = End(Arc::clone(&at));
    let (list, own) = (paths.to_vec(), ask.clone());
    let begun = strake_runtime::spawn_thread("paths", move || {
        for (index, path) in list {
            locked(&end.0).path = Some(path.clone());
            let answer = asked(&path, &own);
            // Perhaps nobody waits any more.
            if locked(&end.0).given_up || sender.send((index, answer)).is_err() {
                return;
            }
        }
        locked(&end.0).path = None;
    });
    if begun.is_err() {
        for (index, path) in paths {
            found[*index] = Some(asked(path, ask));
        }
        return;
    }
    for (own, path) in paths {
        match receiver.recv_timeout(patience) {
            Ok((index, answer)) => {
                found[index] = Some(answer);
                // Others may still be at what it was before.
                silent().remove(path);
            }
            // It panicked.
            Err(RecvTimeoutError::Disconnected) => {
                found[*own] = Some(Err(no_answer()));
                return;
            }
            Err(RecvTimeoutError::Timeout) => {
                give_up(path, &at);
                return;
            }
        }
    }
}

fn give_up(path: &Path, at: &Mutex<At>) {
    let mut silent = silent();
    let mut at = locked(at);
    at.given_up = true;
    if at.path.as_deref() != Some(path) {
        // In this very moment: it is asked again.
        at.path = None;
        return;
    }
    tracing::warn!(path = %path.display(), "it does not answer, and is not waited for");
    let (threads, asked) = (0, Instant::now());
    let one = silent.entry(path.to_path_buf());
    let one = one.or_insert(Silent { threads, asked });
    (one.threads, one.asked) = (one.threads + 1, asked);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Condvar, LazyLock};

    use super::*;

    fn kinds(all: Vec<io::Result<u8>>) -> Vec<Result<u8, io::ErrorKind>> {
        let all = all.into_iter();
        all.map(|one| one.map_err(|error| error.kind())).collect()
    }

    #[test]
    fn a_path_that_does_not_answer_keeps_no_other_and_is_not_asked_twice() {
        static LET_GO: LazyLock<(Mutex<bool>, Condvar)> = LazyLock::new(Default::default);
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let ask = |path: &Path| {
            if path.starts_with("/x/hangs") {
                ASKED.fetch_add(1, Ordering::SeqCst);
                let mut free = LET_GO.0.lock().expect("no thread panics");
                while !*free {
                    free = LET_GO.1.wait(free).expect("no thread panics");
                }
            }
            Ok(7)
        };
        let paths = ["/x/1/a", "/x/hangs/b", "/x/hangs/c", "/x/1/d"].map(PathBuf::from);
        let patience = Duration::from_secs(5);
        let none = Err(io::ErrorKind::TimedOut);
        for _ in 0..3 {
            let begun = Instant::now();
            let said = kinds(each_within(patience, &paths, &ask));
            assert_eq!(said, [Ok(7), none, none, Ok(7)]);
            assert!(begun.elapsed() < 6 * patience);
        }
        assert_eq!(ASKED.load(Ordering::SeqCst), 1);
        // Somebody has mounted another file system there: it is asked anew after a while.
        let long_ago = Instant::now()
            .checked_sub(3 * PAUSE)
            .expect("it runs for longer");
        silent().get_mut(&paths[1]).expect("it is silent").asked = long_ago;
        let other = |_: &Path| Ok(8);
        assert_eq!(kinds(each_within(patience, &paths, &other)), [Ok(8); 4]);
        assert!(!is_silent(&paths[1]) && !is_silent(&paths[2]));
        // The one that was at it says nothing of it any more.
        *LET_GO.0.lock().expect("no thread panics") = true;
        LET_GO.1.notify_all();
        assert_eq!(kinds(each_within(patience, &paths, &ask)), [Ok(7); 4]);
    }

    #[test]
    fn a_path_that_answers_late_is_asked_again() {
        static FREE: LazyLock<(Mutex<bool>, Condvar)> = LazyLock::new(Default::default);
        let path = PathBuf::from("/x/late/a");
        let ask = |_: &Path| {
            let mut free = FREE.0.lock().expect("no thread panics");
            while !*free {
                free = FREE.1.wait(free).expect("no thread panics");
            }
            Ok(7)
        };
        let one = std::slice::from_ref(&path);
        let patience = Duration::from_millis(50);
        assert_eq!(
            kinds(each_within(patience, one, &ask)),
            [Err(io::ErrorKind::TimedOut)]
        );
        assert!(is_silent(&path) && is_silent(Path::new("/x/late/b")));
        *FREE.0.lock().expect("no thread panics") = true;
        FREE.1.notify_all();
        let give_up = Instant::now() + Duration::from_secs(60);
        while is_silent(&path) {
            assert!(Instant::now() < give_up, "that it answered is known");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(in_time(&path, ask).expect("an answer"), 7);
    }

    #[test]
    fn an_error_of_a_file_system_is_an_answer() {
        let late = |_: &Path| -> io::Result<u8> { Err(io::ErrorKind::TimedOut.into()) };
        let said = in_time(Path::new("/x/error"), late).map_err(|error| error.kind());
        assert_eq!(said, Err(io::ErrorKind::Other));
        let panics = |_: &Path| -> io::Result<u8> { panic!("as planned") };
        let said = in_time(Path::new("/x/panics"), panics).map_err(|error| error.kind());
        assert_eq!(said, Err(io::ErrorKind::TimedOut));
        assert!(!is_silent(Path::new("/x/panics")));
    }
}
