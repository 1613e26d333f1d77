//! Files that the program keeps or is given: read with a bound, replaced as a whole.
//!
//! A thread of each file system changes files there, one after the other, and ends when nothing is
//! left to change. A file system that is frozen, or on a disk that hangs, holds up no command: when
//! it has been at one change for [`PATIENCE`], all that wait for it are given up. Of what is given
//! up nothing is done later, but for the one call that the kernel is at.
//!
//! Invariants: of what is no regular file nothing is read; a file is replaced by rename, never
//! written in place; changes of a file are made in the order in which they were wanted.
//! Deliberately absent: what the files hold.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;

/// How the name of a file begins that is to replace another and does not yet.
pub(crate) const UNNAMED: &str = ".strake-";

/// Nothing that is read whole is as large.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// What a regular file holds. Of anything else nothing is read: a FIFO would be waited for.
pub(crate) fn read_file(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = File::options()
        .read(true)
        .custom_flags(nonblock)
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        let why = "it is no regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if about.len() > FILE_BYTES_MAX {
        let why = format!("it has {} bytes, more than {FILE_BYTES_MAX}", about.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// So long a change is waited for: a busy disk may take seconds for a flush.
const PATIENCE: Duration = Duration::from_secs(15);
/// So many changes wait for a file system.
const WAITING_MOST: usize = 256;

type Change = Box<dyn FnOnce() + Send>;
/// Nobody waits for a change any more.
type GivenUp = Arc<AtomicBool>;

/// What waits for a file system.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Change>,
    /// The change at work began then; `None` if the file system has no thread.
    since: Option<Instant>,
}

/// By the number of the device that the file system is on.
static LINES: Mutex<BTreeMap<u64, Line>> = Mutex::new(BTreeMap::new());

fn lines() -> MutexGuard<'static, BTreeMap<u64, Line>> {
    // Nothing in it is ever half done.
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a file in place of another, whole or not at all.
pub(crate) fn replace_bytes(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let (path, bytes) = (target.to_owned(), bytes.to_owned());
    in_time(target, move |given_up| {
        replace_unless(given_up, &path, &bytes)
    })
}

/// The same, however long the file system takes: for a file that a user names.
pub(crate) fn replace_patiently(target: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_unless(&AtomicBool::new(false), target, bytes)
}

/// Removes a file.
pub(crate) fn remove(target: &Path) -> io::Result<()> {
    // What is not there is not waited for.
    fs::symlink_metadata(target)?;
    let path = target.to_owned();
    in_time(target, move |_| fs::remove_file(path))
}

/// Gives a file another name in its folder.
pub(crate) fn rename(target: &Path, name: &Path) -> io::Result<()> {
    let (from, to) = (target.to_owned(), name.to_owned());
    in_time(target, move |_| fs::rename(from, to))
}

/// How long a change waits for its turn, which another process has. One that the file system holds
/// up has it for longer; then a change is refused, and not made beside the other.
pub(crate) const TURN_PATIENCE: Duration = Duration::from_secs(10);

/// Changes what a file holds, one process at a time: the one that has a lock on the file `turn`.
/// The lock is held until the change has ended, also one that was given up with the kernel at it.
/// `None`: there is no such file.
///
/// # Errors
/// Another process has its turn for longer than `patience`, or the file cannot be read: it stays as
/// it is.
pub(crate) fn change_in_turn(
    target: &Path,
    turn: &Path,
    patience: Duration,
    change: impl FnOnce(Option<Vec<u8>>) -> io::Result<Vec<u8>> + Send + 'static,
) -> io::Result<()> {
    let path = turn.to_owned();
    let held = in_time(turn, move |_| lockable(&path))?;
    if !locked_within(&held, patience) {
        let (shown, seconds) = (target.display(), patience.as_secs());
        let by = match holder(&held) {
            Some(pid) => format!("process {pid}"),
            None => "another process".to_owned(),
        };
        let why = format!("{by} is changing {shown}, and has not ended within {seconds} s");
        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
    }
    let path = target.to_owned();
    in_time(target, move |given_up| {
        let text = match read_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(read?),
        };
        let text = change(text)?;
        let changed = replace_unless(given_up, &path, &text);
        drop(held);
        changed
    })
}

/// Opens a file for a lock, and makes it where there is none.
pub(crate) fn lockable(path: &Path) -> io::Result<File> {
    use rustix::fs::OFlags;
    // A FIFO would be waited for.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
}

/// Takes a lock, unless another process holds it for so long.
pub(crate) fn locked_within(file: &File, patience: Duration) -> bool {
    let give_up = Instant::now() + patience;
    loop {
        match rustix::fs::flock(file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return true,
            Err(_) if Instant::now() < give_up => std::thread::sleep(Duration::from_millis(20)),
            Err(_) => return false,
        }
    }
}

/// The process that has the lock on a file, if the kernel says so.
fn holder(file: &File) -> Option<u32> {
    let about = file.metadata().ok()?;
    let locks = fs::read_to_string("/proc/locks").ok()?;
    holder_in(&locks, about.dev(), about.ino())
}

fn holder_in(locks: &str, device: u64, inode: u64) -> Option<u32> {
    use rustix::fs::{major, minor};
    let of_inode = |line: &'_ str| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, pid) = (words.next()?, words.nth(2)?);
        let (at, number) = words.next()?.rsplit_once(':')?;
        let is_it = kind == "FLOCK" && number.parse() == Ok(inode);
        let pid = pid.parse().ok().filter(|_| is_it)?;
        Some((at.to_owned(), pid))
    };
    let all: Vec<(String, u32)> = locks.lines().filter_map(of_inode).collect();
    let own = format!("{:02x}:{:02x}", major(device), minor(device));
    match (all.iter().find(|(at, _)| *at == own), all.as_slice()) {
        (Some((_, pid)), _) => Some(*pid),
        // A file system may say another number here than to a program.
        (None, [(_, pid)]) => Some(*pid),
        (None, _) => None,
    }
}

/// Makes a folder, and those above it that are missing, that only the owner may enter.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    // A file system that is frozen would be waited for.
    if folder.is_dir() {
        return Ok(());
    }
    let path = folder.to_owned();
    in_time(folder, move |_| {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(path)
    })
}

/// What a folder is asked, to find out whether it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FolderQuestion {
    /// What is in it.
    Look,
    /// To take a file without a name.
    Change,
}

/// Whether the file system of a folder takes changes; see [`ask_first`].
type Takes = fn(&Path) -> bool;

static ASK: OnceLock<Takes> = OnceLock::new();
/// What was answered, by the number of the device that the file system is on.
static ASKED: Mutex<BTreeMap<u64, bool>> = Mutex::new(BTreeMap::new());

/// From now on a file system is asked before its first change, and not changed where it does not
/// answer: for a command, which cannot end with a thread in a change that the kernel does not end.
pub(crate) fn ask_first(ask: Takes) {
    // It is the same for the whole process.
    let _ = ASK.set(ask);
}

fn takes_changes(device: u64, folder: &Path) -> bool {
    let Some(ask) = ASK.get() else { return true };
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    *asked.entry(device).or_insert_with(|| ask(folder))
}

/// The folder, or the nearest above it that is there.
pub(crate) fn there(folder: &Path) -> &Path {
    let mut all = folder.ancestors();
    all.find(|above| above.exists()).unwrap_or(folder)
}

/// See the module; `target` is what is changed.
fn in_time<T: Send + 'static>(
    target: &Path,
    change: impl FnOnce(&AtomicBool) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let device = device_of(folder_of(target))?;
    if !takes_changes(device, folder_of(target)) {
        return Err(late());
    }
    let (sender, receiver) = channel();
    let given_up = GivenUp::default();
    let seen = Arc::clone(&given_up);
    let change = move || {
        if !seen.load(Ordering::SeqCst) {
            // Perhaps nobody waits any more.
            let _ = sender.send(change(&seen));
        }
    };
    let mut lines = lines();
    let line = lines.entry(device).or_default();
    if line.waiting.len() >= WAITING_MOST {
        return Err(late());
    }
    line.waiting.push_back(Box::new(change));
    if line.since.is_none() {
        line.since = Some(Instant::now());
        let begun = strake_runtime::spawn_thread("files", move || while next(device) {});
        drop(lines);
        if begun.is_err() {
            // No thread is to be had.
            while next(device) {}
        }
    } else {
        drop(lines);
    }
    let until = Instant::now() + 2 * PATIENCE;
    loop {
        let left = patience_left(device).min(until.saturating_duration_since(Instant::now()));
        match receiver.recv_timeout(left) {
            Ok(done) => return done,
            Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                given_up.store(true, Ordering::SeqCst);
                return Err(late());
            }
            // Another change is being made by now, or none.
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("this program failed to do it"));
            }
        }
    }
}

/// How much longer the change that a file system is making is waited for.
fn patience_left(device: u64) -> Duration {
    let since = lines().get(&device).and_then(|line| line.since);
    since.map_or(PATIENCE, |since| PATIENCE.saturating_sub(since.elapsed()))
}

/// Makes the next change of a file system; false if there is none, and its thread is to end.
fn next(device: u64) -> bool {
    let mut all = lines();
    let change = all.get_mut(&device).and_then(|line| {
        line.since = Some(Instant::now());
        line.waiting.pop_front()
    });
    let Some(change) = change else {
        all.remove(&device);
        return false;
    };
    drop(all);
    // The others are still to be made.
    let _ = catch_unwind(AssertUnwindSafe(change));
    true
}

fn late() -> io::Error {
    let seconds = PATIENCE.as_secs();
    let why = format!("its file system has not answered for {seconds} seconds: it was given up");
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// The number of the device that a folder is on, or will be.
fn device_of(folder: &Path) -> io::Result<u64> {
    match fs::metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match folder.parent() {
            Some(_) => device_of(folder_of(folder)),
            None => Err(error),
        },
        about => Ok(about?.dev()),
    }
}

fn folder_of(target: &Path) -> &Path {
    let folder = target
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

fn replace_unless(given_up: &AtomicBool, target: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::metadata(target).is_ok_and(|there| !there.is_file()) {
        let why = "it is no regular file, which could be replaced";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let folder = folder_of(target);
    let mut file = tempfile::Builder::new()
        .prefix(UNNAMED)
        .permissions(fs::Permissions::from_mode(0o644))
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    if given_up.load(Ordering::SeqCst) {
        return Err(late());
    }
    file.persist(target)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_that_of_its_own_file_system_or_nobody_else_has_that_inode() {
        let lock = |pid: u32, at: &str, inode: u64| {
            format!("1: FLOCK  ADVISORY  WRITE {pid} {at}:{inode} 0 EOF\n")
        };
        let device = rustix::fs::makedev(0xfe, 1);
        let other = lock(7, "00:1a", 12);
        assert_eq!(
            holder_in(&other, device, 12),
            Some(7),
            "it says another number"
        );
        assert_eq!(holder_in(&other, device, 13), None);
        let both = other.clone() + &lock(8, "fe:01", 12);
        assert_eq!(holder_in(&both, device, 12), Some(8));
        let others = other + &lock(9, "00:1b", 12);
        assert_eq!(holder_in(&others, device, 12), None, "one of two");
        let waits = "1: -> FLOCK  ADVISORY  WRITE 5 fe:01:12 0 EOF\n";
        assert_eq!(holder_in(waits, device, 12), None);
    }

    #[test]
    fn a_file_system_that_hangs_is_waited_for_once_and_what_is_given_up_is_not_done() {
        // Not where other tests of this process change files.
        let folder = tempfile::tempdir_in("/dev/shm").expect("temporary folder");
        let file = folder.path().join("a");
        replace_bytes(&file, b"before").expect("it answers");
        let (let_go, held) = channel::<()>();
        let path = file.clone();
        let hung = in_time(&file, move |given_up| {
            let _ = held.recv();
            replace_unless(given_up, &path, b"hung")
        });
        let text = hung.expect_err("it hangs").to_string();
        assert!(text.contains("not answered for 15 seconds"), "{text}");
        let begun = Instant::now();
        assert!(replace_bytes(&file, b"meanwhile").is_err());
        assert!(remove(&file).is_err());
        assert!(begun.elapsed() < PATIENCE, "it is known to hang");
        drop(let_go);
        let give_up = Instant::now() + Duration::from_secs(60);
        while replace_bytes(&folder.path().join("b"), b"after").is_err() {
            assert!(Instant::now() < give_up, "it answers again");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(read_file(&file).expect("it is there"), b"before");
        let panics: io::Result<()> = in_time(&file, |_| panic!("as planned"));
        assert!(panics.is_err(), "it was never done");
        let inner = folder.path().join("c/d");
        make_folder(&inner).expect("both are made");
        make_folder(&inner).expect("it is there");
        rename(&file, &folder.path().join("e")).expect("it is there");
        fs::remove_dir_all(folder.path().join("c")).expect("it is empty");
        rename(&folder.path().join("e"), &file).expect("it is there");
        remove(&file).expect("it is there");
        let gone = remove(&file).expect_err("it is gone");
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        let left = fs::read_dir(folder.path()).expect("read").count();
        assert_eq!(left, 1, "nothing is left of what was given up");
    }
}
