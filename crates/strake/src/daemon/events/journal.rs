//! The journal of events: a file that survives a power cut, and can be read without a daemon.
//!
//! It lies where state is kept (`/var/lib/strake`, or `STRAKE_DIR`), one JSON object a line. Order
//! of one event: ring in memory (`events`) → queue → writer thread: append → fdatasync. The thread
//! writes all events that wait with one append and one fdatasync, so an event is durable as soon as
//! the file system allows it, and a burst of events costs few syncs.
//!
//! Invariants: a thread that notes an event never waits for the file: the queue is bounded, and an
//! event that finds it full is counted and left out of the file (it stays in the ring). The files
//! are bounded: `events.jsonl` turns over at 4 MiB, and one older part is kept. A line that is no
//! event, such as the last one before a power cut, costs itself only.
//!
//! Deliberately absent: what the events are (`events`).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use crate::api::EventJson;
use crate::daemon::rounds;

/// Bytes of `events.jsonl` at most.
pub(super) const FILE_BYTES_MAX: u64 = 4 << 20;
/// Events that may wait to be written: as many as the ring in memory holds.
const QUEUE: usize = 4096;
/// So long the end of a process waits for its last events.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// What the writer thread is asked.
#[derive(Debug)]
enum Ask {
    /// Append this line.
    Line(Vec<u8>),
    /// Answer when all lines before this are durable.
    Flush(SyncSender<()>),
}

/// The writer's face. See the module.
#[derive(Debug)]
pub(super) struct Journal {
    queue: Option<SyncSender<Ask>>,
    left_out: u64,
}

/// What is found of events when a journal is opened.
#[derive(Debug, Default)]
struct Found {
    events: Vec<EventJson>,
    bytes: u64,
    /// The file ends within a line.
    torn: bool,
}

impl Journal {
    /// Opens the first of these files that can be written; what it holds already is read first.
    /// Where none can be, events are kept in memory alone.
    pub(super) fn open(paths: &[PathBuf]) -> (Journal, Vec<EventJson>) {
        for path in paths {
            let found = found(path);
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "earlier events are not known");
                    Found::default()
                }
            };
            match appended(path) {
                Ok(file) => {
                    let writer = Writer {
                        path: path.clone(),
                        file,
                        bytes: found.bytes,
                        torn: found.torn,
                        failed: false,
                    };
                    return (Journal::with(writer), found.events);
                }
                Err(error) => {
                    tracing::warn!(%error, path = %path.display(), "events are not kept there");
                }
            }
        }
        let journal = Journal {
            queue: None,
            left_out: 0,
        };
        (journal, Vec::new())
    }

    fn with(mut writer: Writer) -> Journal {
        let (queue, asked) = sync_channel(QUEUE);
        let spawned = strake_runtime::spawn_thread("event journal", move || writer.run(&asked));
        if let Err(error) = &spawned {
            tracing::warn!(%error, "events are kept in memory alone");
        }
        Journal {
            queue: spawned.is_ok().then_some(queue),
            left_out: 0,
        }
    }

    /// Appends an event, some time soon.
    pub(super) fn append(&mut self, event: &EventJson) {
        let Some(queue) = &self.queue else { return };
        let Ok(mut line) = serde_json::to_vec(event) else {
            return;
        };
        line.push(b'\n');
        if let Err(TrySendError::Full(_)) = queue.try_send(Ask::Line(line)) {
            self.left_out += 1;
        }
    }

    /// Events that the file lacks because the queue was full.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Asks for an answer when everything appended so far is durable.
    pub(super) fn flush(&self) -> Option<Receiver<()>> {
        let (done, wait) = sync_channel(1);
        let queue = self.queue.as_ref()?;
        queue.try_send(Ask::Flush(done)).ok()?;
        Some(wait)
    }
}

impl Drop for Journal {
    /// A disk that does not answer does not keep a process from its end.
    fn drop(&mut self) {
        if let Some(wait) = self.flush() {
            let _ = wait.recv_timeout(END_PATIENCE);
        }
    }
}

/// The thread that writes.
#[derive(Debug)]
struct Writer {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// The file may end within a line.
    torn: bool,
    /// The last write failed, and that was logged.
    failed: bool,
}

impl Writer {
    fn run(&mut self, asked: &Receiver<Ask>) {
        while let Ok(first) = asked.recv() {
            // No event: it would go this way.
            if let Err(why) = rounds::caught(|| self.take_up(first, asked)) {
                tracing::error!(
                    why,
                    "the journal of events has panicked: it may lack events"
                );
                // Whatever was written of a line.
                self.torn = true;
            }
        }
    }

    /// Writes this and what else waits.
    fn take_up(&mut self, first: Ask, asked: &Receiver<Ask>) {
        let mut lines = Vec::new();
        let mut waiting = Vec::new();
        let mut take = |ask, lines: &mut Vec<u8>| match ask {
            Ask::Line(line) => lines.extend(line),
            Ask::Flush(done) => waiting.push(done),
        };
        take(first, &mut lines);
        while (lines.len() as u64) < FILE_BYTES_MAX / 4 {
            match asked.try_recv() {
                Ok(ask) => take(ask, &mut lines),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        let written = match lines.is_empty() {
            true => Ok(()),
            false => self.write(lines),
        };
        match written {
            Ok(()) => self.failed = false,
            // The event is in memory and in the daemon's log. One warning for one trouble.
            Err(error) if !std::mem::replace(&mut self.failed, true) => {
                tracing::warn!(%error, path = %self.path.display(), "events are not kept");
            }
            Err(_) => {}
        }
        for done in waiting {
            // The waiting thread may have given up.
            let _ = done.try_send(());
        }
    }

    fn write(&mut self, mut lines: Vec<u8>) -> io::Result<()> {
        if self.file.metadata()?.nlink() == 0 {
            // It was removed: what is written to it would be lost.
            self.file = appended(&self.path)?;
            self.bytes = self.file.metadata()?.len();
            self.torn = false;
        }
        if std::mem::take(&mut self.torn) {
            lines.insert(0, b'\n');
        }
        if self.bytes > 0 && self.bytes + lines.len() as u64 > FILE_BYTES_MAX {
            self.turn_over()?;
        }
        self.bytes += lines.len() as u64;
        let written = self.file.write_all(&lines);
        self.torn = written.is_err();
        written?;
        self.file.sync_data()
    }

    /// What there is becomes the older part; a new file begins.
    fn turn_over(&mut self) -> io::Result<()> {
        fs::rename(&self.path, older_of(&self.path))?;
        self.file = appended(&self.path)?;
        self.bytes = 0;
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        File::open(folder)?.sync_all()
    }
}

/// Opens a regular file that is not behind a link, and no other: to open a FIFO waits for a reader.
fn opened(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    use rustix::fs::OFlags;
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let no_file = |what: &str| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("it is {what}, no regular file"),
        )
    };
    if let Ok(there) = fs::symlink_metadata(path) {
        let kind = there.file_type();
        match () {
            () if kind.is_file() => {}
            () if kind.is_dir() => return Err(no_file("a folder")),
            () if kind.is_fifo() => return Err(no_file("a FIFO")),
            () if kind.is_symlink() => return Err(no_file("a link")),
            () => return Err(no_file("a device or a socket")),
        }
    }
    let file = options.custom_flags(flags.bits() as i32).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(no_file("something else")),
    }
}

fn appended(path: &Path) -> io::Result<File> {
    opened(path, File::options().create(true).append(true))
}

/// Where the part before this one is kept.
fn older_of(path: &Path) -> PathBuf {
    path.with_extension("jsonl.1")
}

fn found(path: &Path) -> io::Result<Found> {
    let part = |path: &Path| match opened(path, File::options().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(mut file) => {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        }
    };
    let (older, bytes) = (part(&older_of(path))?, part(path)?);
    let lines = [&older, &bytes]
        .into_iter()
        .flat_map(|part| part.split(|&b| b == b'\n'));
    Ok(Found {
        events: lines
            .filter_map(|line| serde_json::from_slice::<EventJson>(line).ok())
            .map(EventJson::graded)
            .collect(),
        bytes: bytes.len() as u64,
        torn: bytes.last().is_some_and(|&last| last != b'\n'),
    })
}

/// The events that the journal at `path` holds, without writing anything.
pub(crate) fn read(path: &Path) -> io::Result<Vec<EventJson>> {
    Ok(found(path)?.events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(sequence: u64, cause: &str) -> EventJson {
        EventJson {
            sequence,
            event: "e".to_owned(),
            cause: Some(cause.to_owned()),
            ..EventJson::default()
        }
    }

    fn sequences(path: &Path) -> Vec<u64> {
        let events = read(path).expect("it can be read");
        events.iter().map(|e| e.sequence).collect()
    }

    #[test]
    fn a_torn_line_costs_its_event_and_no_other() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("events.jsonl");
        let append = |n| {
            Journal::open(std::slice::from_ref(&path))
                .0
                .append(&event(n, ""))
        };
        append(1);
        let mut file = File::options().append(true).open(&path).expect("there");
        file.write_all(b"\xff\xfe no event\n{\"sequence\":2,\"tim")
            .expect("written");
        append(2);
        fs::rename(&path, older_of(&path)).expect("kept as the older part");
        append(3);
        assert_eq!(sequences(&path), [1, 2, 3]);
    }

    /// What a file system may show of the last page after a power cut.
    #[test]
    fn zeros_at_the_end_cost_no_event() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("events.jsonl");
        let append = |n| {
            Journal::open(std::slice::from_ref(&path))
                .0
                .append(&event(n, ""))
        };
        append(1);
        let mut file = File::options().append(true).open(&path).expect("there");
        file.write_all(&[0; 500]).expect("written");
        assert_eq!(sequences(&path), [1]);
        append(2);
        assert_eq!(sequences(&path), [1, 2]);
    }

    #[test]
    fn the_files_are_bounded() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let path = dir.path().join("events.jsonl");
        let long = "x".repeat(100_000);
        let (mut journal, _) = Journal::open(std::slice::from_ref(&path));
        for n in 0..100 {
            journal.append(&event(n, &long));
        }
        drop(journal);
        assert!(fs::metadata(&path).expect("file").len() <= FILE_BYTES_MAX);
        assert!(fs::metadata(older_of(&path)).expect("file").len() <= FILE_BYTES_MAX);
        assert_eq!(sequences(&path).last(), Some(&99));
    }

    #[test]
    fn a_folder_that_cannot_be_written_gives_way_to_the_next() {
        let dir = tempfile::tempdir().expect("temporary folder");
        let absent = dir.path().join("absent/events.jsonl");
        let path = dir.path().join("events.jsonl");
        let (mut journal, before) = Journal::open(&[absent, path.clone()]);
        assert!(before.is_empty());
        journal.append(&event(1, ""));
        drop(journal);
        assert_eq!(sequences(&path), [1]);
        let (mut nowhere, _) = Journal::open(&[]);
        nowhere.append(&event(2, ""));
    }

    #[test]
    fn a_writer_that_stands_still_costs_events_of_the_file_and_no_time() {
        let (queue, _asked) = sync_channel(2);
        let mut journal = Journal {
            queue: Some(queue),
            left_out: 0,
        };
        for n in 0..5 {
            journal.append(&event(n, ""));
        }
        assert_eq!(journal.left_out(), 3);
    }
}
