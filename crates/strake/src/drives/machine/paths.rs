//! Asking the kernel about paths, with a bound: the file system of a member that is a file may hang
//! (NFS or FUSE without its server, a disk that does not answer).
//!
//! A thread for each folder asks about its paths, one after the other; all of them have one
//! patience. Where one stands still, another asks about the rest of that folder.
//!
//! Invariants: a path that did not answer answers "no answer" at once until it has answered, or
//! until it is time to ask anew: another file system may be there by then. So do all of a folder
//! of which two are such. What is below /dev lies in memory and is asked directly; so is everything
//! where no thread is to be had. `TimedOut` is said of what gave no answer, and of nothing else.
//!
//! Deliberately absent: reading what is there (`looks`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// A disk that sleeps needs some seconds to spin up.
const PATIENCE: Duration = Duration::from_secs(8);
/// For the rest of a folder in which a path did not answer.
const FOR_THE_REST: Duration = Duration::from_secs(4);
/// How long a path that did not answer is not asked; twice as long after each try.
const PAUSE: Duration = Duration::from_secs(120);
const LONGER_MOST: u32 = 5;
/// Beyond so many threads at one path the longest pause holds.
const THREADS_MOST: u32 = 8;
/// So many folders at a time.
const AT_ONCE: usize = 32;

/// A path that did not answer.
#[derive(Debug)]
struct Silent {
    /// Which of those that this path had.
    number: u64,
    /// So many threads are at it.
    threads: u32,
    /// How often it was asked before.
    tries: u32,
    asked: Instant,
}

impl Silent {
    fn is_asked_again(&self) -> bool {
        let longer = match self.threads < THREADS_MOST {
            true => self.tries.min(LONGER_MOST),
            false => LONGER_MOST,
        };
        self.asked.elapsed() >= PAUSE * (1 << longer)
    }
}

static SILENT: Mutex<BTreeMap<PathBuf, Silent>> = Mutex::new(BTreeMap::new());
static NUMBERS: AtomicU64 = AtomicU64::new(0);

fn silent() -> MutexGuard<'static, BTreeMap<PathBuf, Silent>> {
    // Nothing in it is ever half done.
    SILENT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// It was asked, has not answered yet, and is not asked anew now; or two beside it are such.
pub(crate) fn is_silent(path: &Path) -> bool {
    let silent = silent();
    let waits = silent.iter().filter(|(_, one)| !one.is_asked_again());
    let mut beside = 0;
    for (other, _) in waits {
        if other == path {
            return true;
        }
        beside += usize::from(other.parent() == path.parent());
    }
    beside > 1
}

fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer")
}

/// Something may be there of which the kernel says this: it gave no answer, or a file system
/// failed. It is not, where the path leads nowhere or this user may not go there.
pub(crate) fn hides(error: &io::Error) -> bool {
    let none = [
        Errno::NOENT,
        Errno::NOTDIR,
        Errno::ACCESS,
        Errno::PERM,
        Errno::LOOP,
        Errno::NAMETOOLONG,
        Errno::INVAL,
    ];
    let is_none = Errno::from_io_error(error).is_some_and(|errno| none.contains(&errno));
    // A path with a NUL has no errno.
    !is_none && error.kind() != io::ErrorKind::InvalidInput
}

/// What `ask` says of a path.
///
/// # Errors
/// Its own; `TimedOut` where there is no answer.
pub(crate) fn in_time<T: Send + 'static>(
    path: &Path,
    ask: impl Fn(&Path) -> io::Result<T> + Clone + Send + 'static,
) -> io::Result<T> {
    let mut all = each(&[path.to_owned()], ask);
    all.pop().unwrap_or_else(|| Err(no_answer()))
}

/// What `ask` says of each of these paths.
pub(crate) fn each<T: Send + 'static>(
    paths: &[PathBuf],
    ask: impl Fn(&Path) -> io::Result<T> + Clone + Send + 'static,
) -> Vec<io::Result<T>> {
    each_within([PATIENCE, FOR_THE_REST], paths, &ask)
}

/// What the kernel says of a path, through links.
///
/// # Errors
/// Those of [`in_time`].
pub(crate) fn metadata(path: &Path) -> io::Result<fs::Metadata> {
    in_time(path, |path| fs::metadata(path))
}

/// The same of many.
pub(crate) fn metadata_of_each(paths: &[PathBuf]) -> Vec<io::Result<fs::Metadata>> {
    each(paths, |path| fs::metadata(path))
}

/// Something is there, or may be.
pub(crate) fn exists(path: &Path) -> bool {
    metadata(path).map_or_else(|error| hides(&error), |_| true)
}

/// A file is there.
pub(crate) fn is_file(path: &Path) -> bool {
    metadata(path).is_ok_and(|about| about.is_file())
}

/// Where a thread is that asks.
#[derive(Debug, Default)]
struct At {
    path: Option<PathBuf>,
    /// Nobody waits for it any more; which entry counts it, if one does.
    given_up: Option<Option<u64>>,
}

/// Marks its end, however it ends.
struct End(Arc<Mutex<At>>);

fn locked(at: &Mutex<At>) -> MutexGuard<'_, At> {
    at.lock().unwrap_or_else(PoisonError::into_inner)
}

impl End {
    /// It is at this path now; false where nobody waits any more.
    fn goes_to(&self, path: Option<&Path>) -> bool {
        let mut at = locked(&self.0);
        if at.given_up.is_none() {
            at.path = path.map(Path::to_owned);
        }
        at.given_up.is_none()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut silent = silent();
        let mut at = locked(&self.0);
        let (Some(path), Some(Some(number))) = (at.path.take(), at.given_up) else {
            return;
        };
        // It may have answered another meanwhile.
        let one = silent.get_mut(&path).filter(|one| one.number == number);
        if let Some(one) = one {
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

/// Paths with their places among all.
type Places = Vec<(usize, PathBuf)>;

fn each_within<T: Send + 'static>(
    patience: [Duration; 2],
    paths: &[PathBuf],
    ask: &(impl Fn(&Path) -> io::Result<T> + Clone + Send + 'static),
) -> Vec<io::Result<T>> {
    let mut found: Vec<Option<io::Result<T>>> = Vec::new();
    let mut folders: BTreeMap<PathBuf, Places> = BTreeMap::new();
    for (index, path) in paths.iter().enumerate() {
        let direct = path.starts_with("/dev");
        found.push(direct.then(|| asked(path, ask)));
        if !direct {
            let folder = path.parent().unwrap_or(path).to_owned();
            folders
                .entry(folder)
                .or_default()
                .push((index, path.clone()));
        }
    }
    let mut folders: Vec<Places> = folders.into_values().collect();
    // The second time the rest of folders in which one did not answer.
    for patience in patience {
        for part in folders.chunks_mut(AT_ONCE) {
            let until = Instant::now() + patience;
            part.iter_mut()
                .for_each(|all| all.retain(|(_, path)| !is_silent(path)));
            let walks = part.iter_mut().filter(|all| !all.is_empty());
            let walks: Vec<_> = walks
                .filter_map(|all| Some((walk(all, ask, &mut found)?, all)))
                .collect();
            for (walk, all) in walks {
                walk.results(until, all, &mut found);
            }
        }
    }
    let found = found.into_iter();
    found
        .map(|one| one.unwrap_or_else(|| Err(no_answer())))
        .collect()
}

/// A thread that asks about the paths of one folder.
struct Walk<T> {
    at: Arc<Mutex<At>>,
    answers: Receiver<(usize, io::Result<T>)>,
}

/// Begins to ask; where no thread is to be had, all are asked here.
fn walk<T: Send + 'static>(
    all: &mut Places,
    ask: &(impl Fn(&Path) -> io::Result<T> + Clone + Send + 'static),
    found: &mut [Option<io::Result<T>>],
) -> Option<Walk<T>> {
    let (sender, answers) = channel();
    let at = Arc::new(Mutex::new(At::default()));
    let end = End(Arc::clone(&at));
    let (list, own) = (all.clone(), ask.clone());
    let begun = strake_runtime::spawn_thread("paths", move || {
        for (index, path) in list {
            if !end.goes_to(Some(&path)) {
                return;
            }
            // Perhaps nobody waits any more.
            if sender.send((index, asked(&path, &own))).is_err() {
                return;
            }
        }
        end.goes_to(None);
    });
    if begun.is_err() {
        for (index, path) in all.drain(..) {
            found[index] = Some(asked(&path, ask));
        }
        return None;
    }
    Some(Walk { at, answers })
}

impl<T> Walk<T> {
    /// Takes what it says until then. What is left in `all` was not asked.
    fn results(self, until: Instant, all: &mut Places, found: &mut [Option<io::Result<T>>]) {
        let mut answered = 0;
        while answered < all.len() {
            let left = until.saturating_duration_since(Instant::now());
            let Ok((index, answer)) = self.answers.recv_timeout(left) else {
                // It does not answer, or the question panicked.
                self.give_up(&all[answered].1);
                answered += 1;
                break;
            };
            found[index] = Some(answer);
            // Others may still be at what it was before.
            silent().remove(&all[answered].1);
            answered += 1;
        }
        all.drain(..answered);
    }

    fn give_up(&self, path: &Path) {
        let mut silent = silent();
        let mut at = locked(&self.at);
        at.given_up = Some(None);
        if at.path.as_deref() != Some(path) {
            // It has not begun yet, or has answered in this very moment, or its thread is gone.
            return;
        }
        tracing::warn!(path = %path.display(), "it does not answer, and is not waited for");
        let one = silent.entry(path.to_path_buf()).or_insert_with(|| Silent {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            threads: 0,
            tries: 0,
            asked: Instant::now(),
        });
        if one.threads > 0 && one.is_asked_again() {
            one.tries += 1;
            one.asked = Instant::now();
        }
        one.threads += 1;
        at.given_up = Some(Some(one.number));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
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
        let paths = ["/x/1/a", "/x/hangs/b", "/x/hangs/c", "/x/1/d", "/x/hangs/e"];
        let paths = paths.map(PathBuf::from);
        let patience = [Duration::from_secs(5); 2];
        let none = Err(io::ErrorKind::TimedOut);
        for _ in 0..3 {
            let begun = Instant::now();
            let said = kinds(each_within(patience, &paths, &ask));
            assert_eq!(said, [Ok(7), none, none, Ok(7), none]);
            assert!(begun.elapsed() < 10 * patience[0]);
        }
        assert_eq!(
            ASKED.load(Ordering::SeqCst),
            2,
            "two of a folder are enough"
        );
        // Somebody has mounted another file system there: it is asked anew after a while.
        let long_ago = Instant::now()
            .checked_sub(2 * PAUSE)
            .expect("it runs for longer");
        for path in &paths[1..3] {
            silent().get_mut(path).expect("it is silent").asked = long_ago;
        }
        let other = |_: &Path| Ok(8);
        assert_eq!(kinds(each_within(patience, &paths, &other)), [Ok(8); 5]);
        assert!(!is_silent(&paths[1]) && !is_silent(&paths[2]));
        // The one that was at it says nothing of it any more.
        *LET_GO.0.lock().expect("no thread panics") = true;
        LET_GO.1.notify_all();
        assert_eq!(kinds(each_within(patience, &paths, &ask)), [Ok(7); 5]);
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
        let patience = [Duration::from_millis(50), Duration::ZERO];
        while !is_silent(&path) {
            let said = kinds(each_within(patience, one, &ask));
            assert_eq!(said, [Err(io::ErrorKind::TimedOut)]);
        }
        assert!(!is_silent(Path::new("/x/late/b")), "it may be another's");
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
    fn a_link_to_what_hangs_hides_nothing_beside_it_and_folders_hang_side_by_side() {
        let ask = |path: &Path| match path.ends_with("hangs") {
            true => loop {
                std::thread::park();
            },
            false => Ok(7),
        };
        let folders = 0..40;
        let paths = folders.flat_map(|n| ["hangs", "b"].map(|name| format!("/x/links/{n}/{name}")));
        let paths: Vec<PathBuf> = paths.map(PathBuf::from).collect();
        let patience = [3, 30].map(Duration::from_secs);
        let begun = Instant::now();
        let said = kinds(each_within(patience, &paths, &ask));
        assert!(said.iter().step_by(2).all(Result::is_err), "{said:?}");
        assert!(
            said.iter().skip(1).step_by(2).all(|one| *one == Ok(7)),
            "{said:?}"
        );
        assert!(
            begun.elapsed() < Duration::from_secs(100),
            "not one after the other"
        );
    }

    #[test]
    fn what_leads_nowhere_hides_nothing_and_what_fails_does() {
        let is_hidden = |errno: Errno| hides(&errno.into());
        assert!(
            [Errno::NOTCONN, Errno::STALE, Errno::IO]
                .into_iter()
                .all(is_hidden)
        );
        let none = [Errno::NOENT, Errno::ACCESS, Errno::LOOP, Errno::NAMETOOLONG];
        assert!(!none.into_iter().any(is_hidden));
        assert!(hides(&no_answer()));
    }

    #[test]
    fn an_error_of_a_file_system_is_an_answer() {
        let late = |_: &Path| -> io::Result<u8> { Err(io::ErrorKind::TimedOut.into()) };
        let said = in_time(Path::new("/x/error"), late).map_err(|error| error.kind());
        assert_eq!(said, Err(io::ErrorKind::Other));
        let panics = |_: &Path| -> io::Result<u8> { panic!("as planned") };
        let said = in_time(Path::new("/x/panics"), panics).map_err(|error| error.kind());
        assert_eq!(said, Err(io::ErrorKind::TimedOut));
        let give_up = Instant::now() + Duration::from_secs(60);
        while is_silent(Path::new("/x/panics")) {
            assert!(Instant::now() < give_up, "its thread is gone");
        }
    }
}
