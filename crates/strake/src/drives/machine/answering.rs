//! Which devices answer: for a command, which has to end although one of them never does.
//!
//! Protocol: a process of this same program (`strake answering`) gets paths on its standard input,
//! a NUL behind each, and looks at them, each on a thread of its own ([`Looks`]). Of folders
//! (`--folders`) it lists what is in them, or makes a file without a name there, and says nothing
//! before that is done. It writes those
//! that do not answer, a NUL behind each, and then one more NUL. The command reads no further, and
//! reads only devices that answer.
//!
//! A thread does not suffice, as it does for the daemon: a process with a thread in a read that the
//! kernel does not end (state D) cannot end itself, since its exit waits for all its threads.
//! SIGKILL does not end it either, and the shell that started it waits on. So the process that may
//! hang is another one, that nothing waits for; it ends when the kernel lets go of the device.
//!
//! Invariants: such a process holds no descriptor of the terminal or of a pipe of the user; what
//! was asked once is not asked again by the same command. Deliberately absent: a device that
//! answers here and hangs a moment later.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::common::absolute;
use crate::common::errors::{Code, Failure};
use crate::common::files::{self, FolderQuestion};
use crate::common::partly;
use crate::drives::machine::looks::{Answers, Looks};
use crate::drives::machine::sysfs;
use crate::drives::machine::sysfs::Identity;

/// What the other process is asked by.
pub(crate) const COMMAND: &str = "answering";
/// How long the other process may take to begin and to end, beside its looks.
const SLACK: Duration = Duration::from_secs(5);

/// Whether a device answers, by what was asked so far.
static ASKED: Mutex<BTreeMap<Identity, bool>> = Mutex::new(BTreeMap::new());
/// The same of folders that were to be looked at.
static LOOKED: Mutex<BTreeMap<PathBuf, bool>> = Mutex::new(BTreeMap::new());

/// Those of these devices that answer, and those that do not. What is not there counts as one that
/// answers: to read it fails at once.
pub(crate) fn of(paths: &[PathBuf]) -> Answers<PathBuf> {
    let identities = sysfs::identity_of_each(paths);
    // Held meanwhile: another thread that asks would ask the same.
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut new: BTreeMap<Identity, PathBuf> = BTreeMap::new();
    for (path, identity) in paths.iter().zip(&identities) {
        if let Some(device) = identity.as_ref().ok().filter(|id| !asked.contains_key(id)) {
            new.entry(*device).or_insert_with(|| absolute(path));
        }
    }
    if !new.is_empty() {
        let list: Vec<&PathBuf> = new.values().collect();
        let silent = match ask(&[], &list) {
            Ok(silent) => silent,
            Err(error) => {
                tracing::warn!(%error, "it is not known which devices answer");
                Vec::new()
            }
        };
        let answers = |path: &PathBuf| !silent.contains(path);
        asked.extend(new.iter().map(|(device, path)| (*device, answers(path))));
    }
    let mut answers = Answers {
        found: Vec::new(),
        silent: Vec::new(),
        no_thread: None,
    };
    for (path, identity) in paths.iter().zip(identities) {
        let is_silent = match identity {
            Ok(device) => asked.get(&device) == Some(&false),
            Err(why) => why.code == Code::DeviceSilent,
        };
        match is_silent {
            true => answers.silent.push(path.clone()),
            false => answers.found.push(path.clone()),
        }
    }
    answers
}

/// Whether it was asked, and does not answer.
pub(crate) fn is_silent(path: &Path) -> bool {
    let device = sysfs::identity(path);
    let asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    match device {
        Ok(device) => asked.get(&device) == Some(&false),
        Err(why) => why.code == Code::DeviceSilent,
    }
}

/// Refuses devices that do not answer: whatever is to be done with them would wait for them.
pub(crate) fn need(paths: &[PathBuf]) -> Result<(), Failure> {
    match of(paths).silent {
        silent if silent.is_empty() => Ok(()),
        silent => Err(refused(&silent)),
    }
}

/// The refusal of devices that do not answer.
pub(crate) fn refused(silent: &[PathBuf]) -> Failure {
    let found = format!("{}: no answer", partly::all(silent));
    let cure = "look at the kernel log; leave out what does not answer";
    Failure::new(Code::DeviceSilent, found).cure(cure)
}

/// Whether the file system of a folder takes changes. To ask, a file without a name is made there.
pub(crate) fn takes_changes(folder: &Path) -> bool {
    folder_answers("change", &folder.to_owned())
}

/// Whether a folder, or what is above one that is not there, can be looked at. This process does
/// not touch it.
pub(crate) fn can_be_looked_at(folder: &PathBuf) -> bool {
    let mut looked = LOOKED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(answers) = looked.get(folder) {
        return *answers;
    }
    let answers = folder_answers("look", folder);
    looked.insert(folder.clone(), answers);
    answers
}

fn folder_answers(question: &str, folder: &PathBuf) -> bool {
    match ask(&["--folders", question], &[folder]) {
        Ok(silent) => silent.is_empty(),
        // It is found out by what is done there.
        Err(error) => {
            tracing::debug!(%error, "it is not known whether {folder:?} answers");
            true
        }
    }
}

/// Asks another process. One that says nothing in time leaves all of them silent.
fn ask(question: &[&str], paths: &[&PathBuf]) -> io::Result<Vec<PathBuf>> {
    let (hand_over, handed) = channel::<Child>();
    let (sender, receiver) = channel();
    let mut list = Vec::new();
    for path in paths {
        list.extend(path.as_os_str().as_bytes());
        list.push(0);
    }
    // Before the process: one that nothing waits for would stay. It waits for a pipe and for a
    // process, which keeps no process from its end.
    strake_runtime::spawn_thread(COMMAND, move || {
        let Ok(mut child) = handed.recv() else { return };
        let input = child.stdin.take();
        let written = input.map_or(Ok(()), |mut pipe| pipe.write_all(&list));
        let output = child.stdout.take();
        let answer = written.and_then(|()| output.map_or(Ok(Vec::new()), silent_in));
        // It may be late.
        let _ = sender.send(answer);
        // Which may be never.
        let _ = child.wait();
    })?;
    let child = Command::new("/proc/self/exe")
        .arg(COMMAND)
        .args(question)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // It may stay for long: it keeps neither a reader of the user nor a file system waiting.
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()
        .map_err(strake_runtime::explained_thread)?;
    // It waits for this.
    let _ = hand_over.send(child);
    let late = |_| Ok(paths.iter().map(|path| (*path).clone()).collect());
    let patience = Looks::longest(paths.len()) + SLACK;
    receiver.recv_timeout(patience).unwrap_or_else(late)
}

/// What the other process says, to its end mark.
fn silent_in(pipe: impl Read) -> io::Result<Vec<PathBuf>> {
    let mut silent = Vec::new();
    let mut path = Vec::new();
    for byte in io::BufReader::new(pipe).bytes() {
        match byte? {
            0 if path.is_empty() => return Ok(silent),
            0 => silent.push(path_of(&std::mem::take(&mut path))),
            other => path.push(other),
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}

fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn asked() -> io::Result<Vec<PathBuf>> {
    let mut list = Vec::new();
    io::stdin().lock().read_to_end(&mut list)?;
    let paths = list.split(|byte| *byte == 0);
    let paths = paths.filter(|path| !path.is_empty());
    Ok(paths.map(path_of).collect())
}

/// What the other process does with devices.
pub(crate) fn answer(look: impl Fn(&Path) + Clone + Send + 'static) -> io::Result<()> {
    let answers = Looks::default().each(&asked()?, look);
    // Nothing is said of devices that were not asked: the command looks at them itself.
    answers.no_thread.map_or(Ok(()), Err)?;
    say(&answers.silent)
}

/// What it does with folders. One that refuses answers; of one that hangs nothing is ever said.
pub(crate) fn answer_of_folders(question: FolderQuestion) -> io::Result<()> {
    for folder in asked()? {
        let folder = files::there(&folder);
        match question {
            FolderQuestion::Look => drop(fs::read_dir(folder).map(|mut all| drop(all.next()))),
            FolderQuestion::Change => drop(tempfile::tempfile_in(folder)),
        }
    }
    say(&[])
}

fn say(silent: &[PathBuf]) -> io::Result<()> {
    let mut said = Vec::new();
    for path in silent {
        said.extend(path.as_os_str().as_bytes());
        said.push(0);
    }
    said.push(0);
    let mut out = io::stdout().lock();
    out.write_all(&said)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_silent_is_read_to_the_end_mark_and_no_further() {
        let read = |bytes: &[u8]| silent_in(bytes).map_err(|error| error.kind());
        let paths = |all: &[&str]| Ok(all.iter().map(PathBuf::from).collect());
        assert_eq!(read(b"\0"), paths(&[]));
        assert_eq!(
            read(b"/dev/a\0/dev/b\nc\0\0/dev/d"),
            paths(&["/dev/a", "/dev/b\nc"])
        );
        assert_eq!(read(b"/dev/a\0"), Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(read(b"running 3 tests"), Err(io::ErrorKind::UnexpectedEof));
    }
}
