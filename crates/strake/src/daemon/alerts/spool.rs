//! What is to be told, on disk: one file a message, in a folder a channel, and what was told so
//! far.
//!
//! Order of one message: memory → queue → writer thread: temporary file → fsync → rename. It is
//! sent from memory meanwhile, so a disk that does not answer (it may be the very array that is
//! told of) delays no message. Its file is removed when it is delivered: a crash in between sends
//! it twice.
//!
//! Invariants: nobody waits for the disk; what was told is durable after the messages that tell it;
//! what could not be written is tried again as long as it is not delivered; the number of files is
//! bounded by the queues of the channels. Deliberately absent: what a message says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::common::files;
use crate::daemon::alerts::conditions::Open;
use crate::daemon::alerts::message::Message;
use crate::daemon::rounds;

/// Changes that may wait to be written.
const QUEUE: usize = 4096;
/// How often what could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(3);
/// A write that takes so long does not end.
const HANGS: Duration = Duration::from_secs(10);
/// Bytes of a message's file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// What was told so far.
const STATE: &str = "state.json";
/// Behind the name of a file that cannot be used.
const DAMAGED: &str = ".damaged";
/// Files of a channel that are read at a start; no queue is as long.
const FILES_MAX: usize = 4096;

/// A message, and the addresses that have it already.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Spooled {
    pub(super) message: Message,
    /// Addresses that took it.
    #[serde(default)]
    pub(super) done: BTreeSet<String>,
}

/// What outlives the daemon beside the messages.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Kept {
    /// By channel: the last event that was told.
    pub(super) told: BTreeMap<String, u64>,
    /// Conditions that last.
    pub(super) open: Vec<Open>,
}

#[derive(Debug)]
enum Ask {
    /// A file of the folder is to have this content, or not to be.
    File(PathBuf, Option<Vec<u8>>),
    Flush(SyncSender<()>),
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Spool {
    queue: Option<SyncSender<Ask>>,
    /// Files that could not be written and are still to be.
    unwritten: Arc<AtomicU64>,
    /// The error of the last write that failed.
    why: Arc<Mutex<String>>,
    /// How many files are being written, and since when.
    writing: Writing,
}

type Writing = Arc<Mutex<Option<(u64, Instant)>>>;

/// What a start finds.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// By channel, in order of their numbers.
    pub(super) messages: BTreeMap<String, Vec<(u64, Spooled)>>,
    pub(super) kept: Option<Kept>,
    /// By channel: the number of its next message.
    pub(super) next: BTreeMap<String, u64>,
    /// What could not be read, and of which channel that is.
    pub(super) lost: Vec<(Option<String>, String)>,
}

fn file_of(channel: &str, number: u64) -> PathBuf {
    Path::new(channel).join(format!("{number:020}.json"))
}

/// The first of these folders that can be written.
fn folder_of(folders: &[PathBuf]) -> PathBuf {
    let usable = |folder: &&PathBuf| {
        let probe = folder.join(".probe");
        let made = files::make_folder(folder).and_then(|()| files::replace_bytes(&probe, b""));
        // It is empty, and the next start writes it again.
        let _ = files::remove(&probe);
        made.is_ok()
    };
    let usable = folders.iter().find(usable);
    usable.or(folders.first()).cloned().unwrap_or_default()
}

/// Why a file is not read.
#[derive(Debug)]
enum Unread {
    Io(io::Error),
    NoMessage(String),
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unread::Io(error) => error.fmt(f),
            Unread::NoMessage(why) => f.write_str(why),
        }
    }
}

/// What a file holds; nothing where there is none.
fn read<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, Unread> {
    let bytes = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        about => about.map_err(Unread::Io)?.len(),
    };
    if bytes > FILE_BYTES_MAX {
        return Err(Unread::NoMessage(format!("it has {bytes} bytes")));
    }
    let text = files::read_file(path).map_err(Unread::Io)?;
    let read = serde_json::from_slice(&text);
    read.map(Some)
        .map_err(|error| Unread::NoMessage(error.to_string()))
}

/// Keeps a file that cannot be used, and says where.
fn set_aside(path: &Path) -> String {
    let mut aside = path.as_os_str().to_owned();
    aside.push(DAMAGED);
    match files::rename(path, Path::new(&aside)) {
        Ok(()) => format!("; it is kept as {}", Path::new(&aside).display()),
        Err(error) => format!("; it cannot be renamed: {error}"),
    }
}

/// Reads what a former daemon left. May block.
fn found(folder: &Path) -> Found {
    let mut found = Found::default();
    let state = folder.join(STATE);
    match read(&state) {
        Ok(kept) => found.kept = kept,
        Err(why) => {
            let aside = set_aside(&state);
            found.lost.push((
                None,
                format!(
                    "what was told so far is lost: {}: {why}{aside}",
                    state.display()
                ),
            ));
        }
    }
    for channel in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_folder = channel.file_type().is_ok_and(|kind| kind.is_dir());
        let Some(name) = channel
            .file_name()
            .to_str()
            .map(str::to_owned)
            .filter(|_| is_folder)
        else {
            continue;
        };
        let mut numbers: Vec<u64> = Vec::new();
        for file in fs::read_dir(channel.path()).into_iter().flatten().flatten() {
            let file_name = file.file_name();
            let file_name = file_name.to_str().unwrap_or_default();
            match file_name.strip_suffix(".json").map(str::parse) {
                Some(Ok(number)) => numbers.push(number),
                // Somebody may want to look at it.
                _ if file_name.ends_with(DAMAGED) => {}
                // What a killed daemon was writing.
                _ => drop(files::remove(&file.path())),
            }
        }
        numbers.sort_unstable();
        let next = numbers.last().map_or(0, |last| last + 1);
        found.next.insert(name.clone(), next);
        let mut messages = Vec::new();
        for number in numbers.into_iter().take(FILES_MAX) {
            let path = folder.join(file_of(&name, number));
            match read(&path) {
                Ok(Some(spooled)) => messages.push((number, spooled)),
                // It was removed meanwhile.
                Ok(None) => {}
                Err(why) => {
                    // One that gives an error is read again at the next start.
                    let aside = match why {
                        Unread::NoMessage(_) => set_aside(&path),
                        Unread::Io(_) => String::new(),
                    };
                    let lost = format!("1 of its messages: {}: {why}{aside}", path.display());
                    found.lost.push((Some(name.clone()), lost));
                }
            }
        }
        found.messages.insert(name, messages);
    }
    found
}

impl Spool {
    /// Opens the spool in the first of these folders that can be written. May block.
    pub(super) fn open(folders: &[PathBuf]) -> (Spool, Found) {
        let folder = folder_of(folders);
        let found = found(&folder);
        let (queue, asked) = sync_channel(QUEUE);
        let unwritten = Arc::new(AtomicU64::new(0));
        let why = Arc::<Mutex<String>>::default();
        let no_thread = Arc::clone(&why);
        let writing = Writing::default();
        let mut writer = Writer {
            why: Arc::clone(&why),
            writing: Arc::clone(&writing),
            folder,
            waiting: BTreeMap::new(),
            unwritten: Arc::clone(&unwritten),
            failed: false,
        };
        let spawned = strake_runtime::spawn_thread("alert spool", move || writer.run(&asked));
        if let Err(error) = &spawned {
            tracing::warn!(%error, "alerts are kept in memory alone");
            *no_thread.lock().unwrap_or_else(PoisonError::into_inner) = error.to_string();
        }
        let queue = spawned.is_ok().then_some(queue);
        let spool = Spool {
            queue,
            unwritten,
            why,
            writing,
        };
        (spool, found)
    }

    fn ask(&self, file: PathBuf, content: Option<Vec<u8>>) {
        let Some(queue) = &self.queue else {
            // No thread writes it: so many at least.
            self.unwritten.store(1, Ordering::Relaxed);
            return;
        };
        if queue.try_send(Ask::File(file, content)).is_err() {
            tracing::warn!("the spool of alerts does not keep up: a message is in memory alone");
        }
    }

    /// Keeps a message.
    pub(super) fn put(&self, channel: &str, number: u64, spooled: &Spooled) {
        if let Ok(bytes) = serde_json::to_vec(spooled) {
            self.ask(file_of(channel, number), Some(bytes));
        }
    }

    /// It is delivered, or dropped.
    pub(super) fn remove(&self, channel: &str, number: u64) {
        self.ask(file_of(channel, number), None);
    }

    /// Keeps what was told so far.
    pub(super) fn keep(&self, kept: &Kept) {
        if let Ok(bytes) = serde_json::to_vec(kept) {
            self.ask(PathBuf::from(STATE), Some(bytes));
        }
    }

    /// Files that could not be written yet, or that the disk does not take.
    pub(super) fn unwritten(&self) -> u64 {
        let unwritten = self.unwritten.load(Ordering::Relaxed);
        unwritten.max(self.hangs().map_or(0, |(files, _)| files))
    }

    /// Files of a write that does not end, and since when.
    fn hangs(&self) -> Option<(u64, Duration)> {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (files, since) = (*writing)?;
        Some((files, since.elapsed())).filter(|(_, time)| *time >= HANGS)
    }

    /// Why a file could not be written.
    pub(super) fn why(&self) -> String {
        if let Some((_, time)) = self.hangs() {
            return format!("a write to the disk does not end for {} s", time.as_secs());
        }
        let why = self.why.lock();
        why.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits, not for ever, until what was asked for is written.
    pub(super) fn flush(&self, patience: Duration) {
        let (done, wait) = sync_channel(1);
        let queue = self.queue.as_ref();
        if queue.is_some_and(|queue| queue.try_send(Ask::Flush(done)).is_ok()) {
            // The disk may have failed; the process ends all the same.
            let _ = wait.recv_timeout(patience);
        }
    }
}

/// Gives a file this content, or removes it.
fn written(path: &Path, content: Option<&[u8]>) -> io::Result<()> {
    match content {
        Some(bytes) => {
            files::make_folder(path.parent().unwrap_or(Path::new("/")))?;
            files::replace_bytes(path, bytes)
        }
        None => match files::remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        },
    }
}

/// The thread that writes.
#[derive(Debug)]
struct Writer {
    folder: PathBuf,
    /// What is to be, by file.
    waiting: BTreeMap<PathBuf, Option<Vec<u8>>>,
    unwritten: Arc<AtomicU64>,
    why: Arc<Mutex<String>>,
    writing: Writing,
    /// The last write failed, and that was logged.
    failed: bool,
}

impl Writer {
    fn run(&mut self, asked: &Receiver<Ask>) {
        let mut again = Instant::now();
        loop {
            let ask = match self.waiting.is_empty() {
                true => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => asked.recv_timeout(again.saturating_duration_since(Instant::now())),
            };
            match ask {
                Ok(Ask::File(file, content)) => {
                    self.waiting.insert(file, content);
                    // More that waits is written with it.
                    while let Ok(ask) = asked.try_recv() {
                        match ask {
                            Ask::File(file, content) => drop(self.waiting.insert(file, content)),
                            Ask::Flush(done) => {
                                self.write();
                                let _ = done.try_send(());
                            }
                        }
                    }
                }
                Ok(Ask::Flush(done)) => {
                    self.write();
                    // Nobody may wait any more.
                    let _ = done.try_send(());
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.write();
            again = Instant::now() + AGAIN;
        }
    }

    /// Writes what is to be. What was told so far comes last, and only where the messages that tell
    /// it are durable.
    fn write(&mut self) {
        let writing = Arc::clone(&self.writing);
        let is_writing = |what| {
            *writing.lock().unwrap_or_else(PoisonError::into_inner) = what;
        };
        is_writing(Some((self.waiting.len() as u64, Instant::now())));
        let written = rounds::caught(|| self.write_now());
        is_writing(None);
        if let Err(why) = written {
            tracing::error!(
                why,
                "the spool of alerts has panicked: it may lack messages"
            );
            *self.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
            let files = self.waiting.len().max(1) as u64;
            self.unwritten.store(files, Ordering::Relaxed);
        }
    }

    fn write_now(&mut self) {
        let told = self.waiting.remove(Path::new(STATE));
        let mut failed = None;
        let folder = &self.folder;
        self.waiting.retain(|file, content| {
            let path = folder.join(file);
            let error = written(&path, content.as_deref()).err();
            let stays = error.is_some();
            failed = error.map(|error| (path, error)).or(failed.take());
            stays
        });
        if let Some(content) = told {
            let path = folder.join(STATE);
            let error = match &failed {
                None => written(&path, content.as_deref()).err(),
                Some(_) => None,
            };
            if failed.is_some() || error.is_some() {
                self.waiting.insert(PathBuf::from(STATE), content);
            }
            failed = failed.or(error.map(|error| (path, error)));
        }
        if let Some((path, error)) = &failed {
            let mut why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
            *why = format!("{}: {error}", path.display());
        }
        self.unwritten
            .store(self.waiting.len() as u64, Ordering::Relaxed);
        match failed {
            Some((path, error)) if !std::mem::replace(&mut self.failed, true) => {
                tracing::warn!(%error, path = %path.display(), "alerts are in memory alone");
            }
            Some(_) => {}
            None => self.failed = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::common::events::Severity;

    use super::*;

    fn spooled(id: &str) -> Spooled {
        let message = Message {
            id: id.to_owned(),
            version: 1,
            host: "h".to_owned(),
            time: String::new(),
            severity: Severity::Warning,
            subject: "s".to_owned(),
            text: "t".to_owned(),
            items: Vec::new(),
            arrays: Vec::new(),
            left_out: BTreeMap::new(),
            dropped: 0,
        };
        Spooled {
            message,
            done: BTreeSet::new(),
        }
    }

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn messages_come_back_in_order_and_those_delivered_do_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let folders = [dir.path().join("alerts")];
        let (spool, found) = Spool::open(&folders);
        assert!(found.kept.is_none() && found.messages.is_empty());
        for number in [9, 10, 11] {
            spool.put("mail", number, &spooled(&number.to_string()));
        }
        spool.remove("mail", 10);
        spool.keep(&Kept {
            told: BTreeMap::from([("mail".to_owned(), 7)]),
            open: Vec::new(),
        });
        spool.flush(PATIENCE);
        let torn = folders[0].join("mail/00000000000000000012.json");
        fs::write(&torn, b"{\"message\":").expect("written");
        let (_, found) = Spool::open(&folders);
        let of = &found.messages["mail"];
        let ids: Vec<(u64, &str)> = of
            .iter()
            .map(|(n, s)| (*n, s.message.id.as_str()))
            .collect();
        assert_eq!(ids, [(9, "9"), (11, "11")]);
        assert_eq!(found.kept.as_ref().expect("kept").told["mail"], 7);
        assert!(!torn.exists());
        let aside = folders[0].join("mail/00000000000000000012.json.damaged");
        assert!(aside.exists(), "somebody may want to look at it");
        assert_eq!(found.next["mail"], 13);
        let [(Some(channel), why)] = &found.lost[..] else {
            panic!("{:?}", found.lost)
        };
        assert!(
            channel == "mail" && why.contains("12.json.damaged"),
            "{why}"
        );
        let (_, found) = Spool::open(&folders);
        assert!(aside.exists() && found.lost.is_empty(), "{:?}", found.lost);
    }

    #[test]
    fn what_cannot_be_read_is_not_deleted() {
        let dir = tempfile::tempdir().expect("a folder");
        let folders = [dir.path().join("alerts")];
        fs::create_dir_all(folders[0].join("mail")).expect("made");
        // Reading a folder as a file is an error of I/O.
        let unread = folders[0].join("mail/00000000000000000007.json");
        fs::create_dir(&unread).expect("made");
        fs::write(folders[0].join(STATE), b"{").expect("written");
        let (_, found) = Spool::open(&folders);
        assert!(unread.exists() && found.kept.is_none());
        assert_eq!(found.next["mail"], 8);
        assert_eq!(found.lost.len(), 2, "{:?}", found.lost);
        assert!(folders[0].join("state.json.damaged").exists());
    }

    #[test]
    fn what_cannot_be_written_is_counted_and_written_later() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("alerts");
        // A file is in the way.
        fs::write(&folder, b"").expect("written");
        let (spool, _) = Spool::open(std::slice::from_ref(&folder));
        spool.put("mail", 1, &spooled("1"));
        spool.flush(PATIENCE);
        assert_eq!(spool.unwritten(), 1);
        fs::remove_file(&folder).expect("removed");
        spool.flush(PATIENCE);
        assert_eq!(spool.unwritten(), 0);
        assert!(folder.join(file_of("mail", 1)).exists());
    }

    /// It was written in the order of names: of a channel `web`, what was told was durable before
    /// the message that told it.
    #[test]
    fn what_was_told_is_kept_only_when_the_messages_that_tell_it_are() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("alerts");
        let (spool, _) = Spool::open(std::slice::from_ref(&folder));
        // A file is in the way of the channel's folder.
        fs::write(folder.join("web"), b"").expect("written");
        spool.put("web", 1, &spooled("1"));
        spool.keep(&Kept::default());
        spool.flush(PATIENCE);
        assert_eq!(spool.unwritten(), 2);
        assert!(!folder.join(STATE).exists());
        fs::remove_file(folder.join("web")).expect("removed");
        spool.flush(PATIENCE);
        assert_eq!(spool.unwritten(), 0);
        assert!(folder.join(STATE).exists());
    }
}
