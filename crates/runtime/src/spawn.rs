//! Threads that are begun by name, and what ran out where one cannot be made.
//!
//! Invariant: a thread that cannot be made is an error of the one that asked for it, never a panic.
//! Deliberately absent: how many threads there may be; the kernel counts those of the whole user
//! and of the whole cgroup.

use std::fmt::{self, Display};
use std::fs;
use std::io;
use std::path::Path;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use rustix::process::{Resource, getrlimit};

use crate::memory::{cgroup_folders, check_for_thread, tried_for};

/// Begins a thread.
///
/// # Errors
/// It cannot be made; [`is_short`] of the error says whether threads have run out. It is
/// [`io::ErrorKind::OutOfMemory`] where its stack would take the last of the memory.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    check_for_thread()?;
    let thread = Builder::new().name(name.into());
    thread.spawn(work).map_err(explained)
}

/// The same within a scope.
///
/// # Errors
/// Those of [`spawn`].
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    check_for_thread()?;
    let thread = Builder::new().name(name.into());
    thread.spawn_scoped(scope, work).map_err(explained)
}

/// Refuses to begin where so few threads can be made that no array could be served.
///
/// # Errors
/// Those of [`spawn`].
pub fn check_threads_left() -> io::Result<()> {
    check_threads(1)
}

/// Refuses an array of so many shards if too few threads can be made.
///
/// # Errors
/// Those of [`spawn`].
pub(crate) fn check_threads(shards: u16) -> io::Result<()> {
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Arc::new(std::sync::Mutex::new(held));
    let mut trial = Vec::new();
    let made = (0..tried_for(shards)).try_for_each(|_| {
        let held = std::sync::Arc::clone(&held);
        let wait = move || drop(held.lock().map(|held| held.recv()));
        trial.push(spawn("trial", wait)?);
        Ok(())
    });
    drop(hold);
    for thread in trial {
        // It does nothing that could fail.
        let _ = thread.join();
    }
    made
}

/// An error of the making of a thread or a process, with what ran out if that is why.
pub fn explained(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::WouldBlock || is_short(&error) {
        return error;
    }
    let limits = limits(Path::new("/"), Path::new("/proc/self/cgroup"));
    io::Error::new(io::ErrorKind::WouldBlock, Short { error, limits })
}

/// Is this the error of a thread or a process that could not be made, because there are as many as
/// there may be?
pub fn is_short(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Short>())
}

/// There are as many threads and processes as there may be.
#[derive(Debug)]
struct Short {
    error: io::Error,
    limits: String,
}

impl Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Short { error, limits } = self;
        let errno = error.raw_os_error().unwrap_or_default();
        let text = error.to_string();
        let text = text.split(" (os error").next().unwrap_or_default();
        write!(
            f,
            "no thread or process can be made (errno {errno}, {text}; {limits})"
        )
    }
}

impl std::error::Error for Short {}

/// What bounds threads and processes here, and how many there are where that is counted.
fn limits(root: &Path, own: &Path) -> String {
    let number = |file: &Path| -> Option<u64> {
        let text = fs::read_to_string(file).ok()?;
        text.trim().parse().ok()
    };
    let of_cgroup = |folder: &std::path::PathBuf| {
        // `max`, or no file at all: no limit here.
        let most = number(&folder.join("pids.max"))?;
        let there = number(&folder.join("pids.current"));
        let left = there.map_or(u64::MAX, |there| most.saturating_sub(there));
        let there = there.map_or("an unknown number".to_owned(), |there| there.to_string());
        let shown = folder.display();
        Some((left, format!("{there} of pids.max {most} in {shown}")))
    };
    let cgroups = cgroup_folders(root, own, "pids");
    let tightest = cgroups.iter().filter_map(of_cgroup).min();
    let mut all: Vec<String> = tightest.map(|(_, text)| text).into_iter().collect();
    let user = rustix::process::getuid().as_raw();
    if let Some(most) = getrlimit(Resource::Nproc).current {
        all.push(format!("RLIMIT_NPROC {most} of user {user}"));
    }
    for (limit, name) in [(Resource::As, "RLIMIT_AS"), (Resource::Data, "RLIMIT_DATA")] {
        if let Some(bytes) = getrlimit(limit).current {
            all.push(format!("{name} {bytes} bytes"));
        }
    }
    for name in ["threads-max", "pid_max"] {
        if let Some(most) = number(&root.join("proc/sys/kernel").join(name)) {
            all.push(format!("kernel.{name} {most}"));
        }
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_out_is_named_by_the_tightest_cgroup_and_the_kernels_own_limits() {
        let root = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().expect("below the root")).expect("made");
            fs::write(file, text).expect("written");
        };
        write("own", "0::/x/y\n");
        write("sys/fs/cgroup/x/pids.max", "100\n");
        write("sys/fs/cgroup/x/pids.current", "50\n");
        write("sys/fs/cgroup/x/y/pids.max", "12\n");
        write("sys/fs/cgroup/x/y/pids.current", "12\n");
        write("proc/sys/kernel/threads-max", "4711\n");
        let text = limits(root.path(), &root.path().join("own"));
        assert!(text.starts_with("12 of pids.max 12 in "), "{text}");
        assert!(text.contains("x/y"), "{text}");
        assert!(text.contains("kernel.threads-max 4711"), "{text}");
    }

    #[test]
    fn only_what_ran_out_is_explained() {
        let again = || io::Error::from_raw_os_error(rustix::io::Errno::AGAIN.raw_os_error());
        let error = explained(again());
        assert!(is_short(&error) && !is_short(&again()));
        assert!(error.to_string().contains("errno 11"), "{error}");
        let other = explained(io::ErrorKind::NotFound.into());
        assert!(!is_short(&other));
        check_threads_left().expect("a few threads");
    }
}
