//! The process that is killed, seen from the one that kills it.
//!
//! Invariant: no child outlives its value. Deliberately absent: signals other than SIGKILL.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// A command that takes longer never ends.
const PATIENCE: Duration = Duration::from_secs(90);

/// See the module.
pub(crate) struct Child {
    process: std::process::Child,
    questions: ChildStdin,
    lines: Receiver<String>,
}

/// What the child says of the array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) state: String,
    /// Regions wait for a resync.
    pub(crate) unsynced: bool,
    /// Untrue stripes of the last scrub, if one has ended.
    pub(crate) scrubbed: Option<u64>,
    /// Slots and members of a group, of the shape that the array has; and while data moves of the
    /// one that it comes from.
    pub(crate) shapes: Vec<(usize, usize)>,
    /// Bytes of a strip.
    pub(crate) strip: u32,
    /// Kinds of jobs, and whether each is paused.
    pub(crate) jobs: Vec<(String, bool)>,
    /// Slot, state, file.
    pub(crate) members: Vec<(Option<usize>, String, PathBuf)>,
}

impl Seen {
    fn read(lines: &[String]) -> Result<Seen> {
        let mut seen = Seen::default();
        for line in lines {
            let words: Vec<&str> = line.split('\t').collect();
            match words.as_slice() {
                ["state", state] => seen.state = (*state).to_owned(),
                ["shape", slots, width] => seen.shapes.push((slots.parse()?, width.parse()?)),
                ["strip", bytes] => seen.strip = bytes.parse()?,
                ["unsynced", yes] => seen.unsynced = yes.parse()?,
                ["scrubbed", count] => seen.scrubbed = count.parse::<u64>()?.checked_sub(1),
                ["job", kind, paused] => seen.jobs.push(((*kind).to_owned(), paused.parse()?)),
                ["member", slot, state, path] => {
                    let slot = usize::try_from(slot.parse::<i32>()?).ok();
                    let member = (slot, (*state).to_owned(), PathBuf::from(path));
                    seen.members.push(member);
                }
                other => bail!("the child says {other:?}"),
            }
        }
        Ok(seen)
    }

    /// A job of this kind is at work or paused.
    pub(crate) fn has_job(&self, kind: &str) -> bool {
        self.jobs.iter().any(|(job, _)| job == kind)
    }

    /// All parity (or all mirrors) can be believed.
    pub(crate) fn synced(&self) -> bool {
        !self.unsynced && !self.has_job("Resync")
    }

    /// Every member in its place and no job left that makes it so.
    pub(crate) fn whole(&self) -> bool {
        self.state == "Optimal" && self.synced() && !self.has_job("Rebuild")
    }
}

impl Child {
    /// Starts a child that opens these files.
    pub(crate) fn spawn(
        socket: &Path,
        shards: u64,
        memory_mib: u64,
        files: &[PathBuf],
        log: &Path,
    ) -> Result<Child> {
        let log = File::options().append(true).create(true).open(log)?;
        let mut process = Command::new(std::env::current_exe().context("this program")?)
            .args(["serve", "--shards", &shards.to_string()])
            .args(["--memory-mib", &memory_mib.to_string(), "--socket"])
            .arg(socket)
            .args(files)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("start a child")?;
        let questions = process.stdin.take().expect("standard input is piped");
        let answers = process.stdout.take().expect("standard output is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(answers).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Child {
            process,
            questions,
            lines,
        })
    }

    /// The next answer: its lines, and the last one without its point.
    pub(crate) fn answer(&mut self) -> Result<(Vec<String>, String)> {
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => match line.strip_prefix('.') {
                    Some(last) => return Ok((lines, last.to_owned())),
                    None => lines.push(line),
                },
                Err(RecvTimeoutError::Timeout) => bail!("the child does not answer"),
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the child ended by itself: {}", self.process.wait()?)
                }
            }
        }
    }

    /// Sends a line without waiting for its answer.
    pub(crate) fn tell(&mut self, words: &[&str]) -> Result<()> {
        let line = words.join("\t") + "\n";
        let told = self.questions.write_all(line.as_bytes());
        told.with_context(|| format!("tell the child to {}", words.join(" ")))
    }

    /// Sends a command and waits for what comes of it.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<String> {
        self.tell(words)?;
        Ok(self.answer()?.1)
    }

    /// How the array is.
    pub(crate) fn status(&mut self) -> Result<Seen> {
        self.tell(&["status"])?;
        let (lines, last) = self.answer()?;
        ensure!(last == "status", "the child says {last}");
        Seen::read(&lines)
    }

    /// Waits for the child that was told to stop.
    pub(crate) fn wait(mut self) -> Result<()> {
        let status = self.process.wait()?;
        ensure!(status.success(), "the child ended with {status}");
        Ok(())
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.process.kill().context("kill the child")?;
        self.process.wait().context("wait for the child")?;
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
