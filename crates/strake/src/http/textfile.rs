//! Metrics in a file, which the node exporter's textfile collector reads.
//!
//! Order: the metrics are put together, written to a file beside it with a name that the collector
//! does not read, and that is renamed. When the daemon ends, the file is removed: nothing would be
//! true in it any more.
//!
//! Invariants: a reader sees one whole state; all users can read the file, and it belongs to the
//! user that it belonged to before. A folder that is missing or full costs one event; arrays and
//! their commands wait for nothing of it. Deliberately absent: a flush, since the file is written
//! again soon.

use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use crate::daemon::events::Happened;
use crate::daemon::rounds;
use crate::daemon::service::Service;
use crate::http::metrics;

/// So long the end of the daemon waits for the removal of the file: its folder may hang.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Textfile {
    path: PathBuf,
    /// True once it was removed.
    ended: Arc<Mutex<bool>>,
}

impl Textfile {
    /// A file that is not written yet.
    pub(crate) fn new(path: PathBuf) -> Textfile {
        Textfile {
            path,
            ended: Arc::default(),
        }
    }

    /// Writes it again and again until it is dropped.
    pub(crate) async fn keep(self, service: Arc<Service>, period: Duration) {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failing = false;
        loop {
            ticks.tick().await;
            let (file, of) = (self.clone(), Arc::clone(&service));
            let written = rounds::done_by_itself(move || file.write(&metrics::text(&of))).await;
            let written = written.unwrap_or_else(|failure| Err(io::Error::other(failure.found)));
            let path = self.path.display();
            let news = match written {
                Ok(()) if failing => Happened {
                    event: "metrics_served_again",
                    cause: Some(format!("{path} is written")),
                    ..Happened::default()
                },
                Err(error) if !failing => Happened {
                    event: "metrics_not_served",
                    cause: Some(format!("{path}: {error}")),
                    effect: Some(format!(
                        "arrays serve all the same; it is tried again every {} s",
                        period.as_secs()
                    )),
                    ..Happened::default()
                },
                Ok(()) | Err(_) => continue,
            };
            failing = !failing;
            service.events().note(news);
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        match *ended {
            true => Ok(()),
            false => replace(&self.path, text.as_bytes()),
        }
    }

    /// Removes it, and does not write it any more.
    pub(crate) async fn end(self) {
        let path = self.path.display().to_string();
        let remove = move || {
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            *ended = true;
            is_replaceable(&self.path)?;
            fs::remove_file(&self.path)
        };
        match tokio::time::timeout(END_PATIENCE, rounds::done_by_itself(remove)).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) if error.kind() == io::ErrorKind::NotFound => {}
            other => tracing::warn!(path, ?other, "the file of the metrics stays, and is stale"),
        }
    }
}

/// What is there, if it may be replaced, and removed: a regular file, or nothing.
fn is_replaceable(target: &Path) -> io::Result<Option<fs::Metadata>> {
    let there = fs::symlink_metadata(target).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        let why = "it is no regular file, which could be replaced";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(there)
}

/// Puts a file in place of another, whole or not at all.
fn replace(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let there = is_replaceable(target)?;
    let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else {
        let why = "it names no file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    };
    let beside = folder.join(format!(".{}.new", name.to_string_lossy()));
    // What a killed daemon left; another may have put a link there.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = File::options();
    let mut file = options
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(&beside)?;
    let owner = there.map(|there| (there.uid(), there.gid()));
    let written = fill(&mut file, bytes, owner).and_then(|()| fs::rename(&beside, target));
    if written.is_err() {
        // The error before counts.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn fill(file: &mut File, bytes: &[u8], owner: Option<(u32, u32)>) -> io::Result<()> {
    file.write_all(bytes)?;
    let own = file.metadata()?;
    if let Some((user, group)) = owner
        && (user, group) != (own.uid(), own.gid())
    {
        // Root alone may; another user's file that this user may replace is readable to all.
        let _ = std::os::unix::fs::fchown(&*file, Some(user), Some(group));
    }
    // Not by the mode of its making, which the umask cuts.
    file.set_permissions(Permissions::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a folder for temporary files")
    }

    fn names(folder: &Path) -> Vec<String> {
        let all = fs::read_dir(folder).expect("it is there").flatten();
        let mut all: Vec<String> = all
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        all.sort();
        all
    }

    #[test]
    fn a_file_is_replaced_and_all_may_read_it_and_what_a_killed_daemon_left_is_gone() {
        let folder = folder();
        let path = folder.path().join("strake.prom");
        fs::write(folder.path().join(".strake.prom.new"), "half").expect("written");
        replace(&path, b"a 1\n").expect("there is room");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
        assert_eq!(mode(&path), 0o644);
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1234), Some(4321)).expect("root may");
        }
        let before = fs::metadata(&path).expect("it is there");
        replace(&path, b"a 2\n").expect("there is room");
        let after = fs::metadata(&path).expect("it is there");
        assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
        assert_eq!(mode(&path), 0o644);
        assert_eq!(fs::read(&path).expect("it is there"), b"a 2\n");
        assert_eq!(names(folder.path()), ["strake.prom"]);
    }

    #[test]
    fn what_is_no_file_is_left_alone_and_a_folder_that_is_missing_is_an_error() {
        let folder = folder();
        let link = folder.path().join("strake.prom");
        std::os::unix::fs::symlink("/dev/null", &link).expect("made");
        let refused = replace(&link, b"a 1\n").expect_err("a link");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(names(folder.path()), ["strake.prom"]);
        let gone = replace(&folder.path().join("no/strake.prom"), b"a 1\n");
        assert_eq!(gone.expect_err("no folder").kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_file_that_was_removed_at_the_end_is_not_written_any_more() {
        let folder = folder();
        let file = Textfile::new(folder.path().join("strake.prom"));
        file.write("a 1\n").expect("there is room");
        let late = file.clone();
        file.end().await;
        late.write("a 2\n").expect("nothing is done");
        assert_eq!(names(folder.path()), Vec::<String>::new());
    }

    /// A FIFO that was configured was removed, though nothing had been written to it.
    #[tokio::test]
    async fn what_would_not_be_replaced_is_not_removed_at_the_end() {
        let folder = folder();
        let path = folder.path().join("strake.prom");
        std::os::unix::fs::symlink("/dev/null", &path).expect("made");
        Textfile::new(path.clone()).end().await;
        assert_eq!(names(folder.path()), ["strake.prom"]);
        fs::remove_file(&path).expect("it is ours");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo runs").success());
        Textfile::new(path).end().await;
        assert_eq!(names(folder.path()), ["strake.prom"]);
    }
}
