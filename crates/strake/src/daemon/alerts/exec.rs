//! A program that is run: with the message as JSON on its standard input, without a shell.
//!
//! Invariants: the program is named by an absolute path, belongs to root or the daemon's user, and
//! nobody else can write it; of the environment it gets PATH and what the channel says; it is
//! killed with its process group when its time is over, and when the caller drops the attempt (what
//! it leaves behind when it ends by itself goes on); of its output a bounded part is kept.
//! Deliberately absent: a shell.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;

use crate::common::shown;
use crate::daemon::alerts::message::Message;
use crate::daemon::alerts::ways::{Delivered, Refused};
use crate::daemon::rounds;

/// Bytes of the output that are kept for the text of a failure.
const OUTPUT_BYTES_MAX: usize = 512;
/// How long output is read of what the program left behind when it ended.
const REST_PATIENCE: Duration = Duration::from_millis(500);
/// Where programs that it runs are.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Kills a process group when it is dropped.
struct Killed(Option<Pid>);

impl Drop for Killed {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // It may have ended in this very moment.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// What a message says in the environment.
pub(super) fn environment(message: &Message) -> Vec<(&'static str, String)> {
    let names = |key: &str| {
        let of = |item: &serde_json::Value| {
            let name = match item["kind"].as_str() {
                Some("event") => &item["event"][key],
                _ => &item[key],
            };
            name.as_str().map(str::to_owned)
        };
        let mut names: Vec<String> = message.items.iter().filter_map(of).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let mut events = names("event");
    events.extend(names("condition"));
    vec![
        ("STRAKE_ALERT_ID", message.id.clone()),
        ("STRAKE_ALERT_HOST", message.host.clone()),
        ("STRAKE_ALERT_TIME", message.time.clone()),
        (
            "STRAKE_ALERT_SEVERITY",
            message.severity.as_str().to_owned(),
        ),
        ("STRAKE_ALERT_SUBJECT", message.subject.clone()),
        ("STRAKE_ALERT_ARRAYS", names("array").join(" ")),
        ("STRAKE_ALERT_EVENTS", events.join(" ")),
    ]
}

/// Refuses a program that somebody else could have put there.
fn check(program: &Path) -> Result<(), Refused> {
    let shown = program.display();
    let about = std::fs::metadata(program)
        .map_err(|error| Refused::for_good(format!("{shown}: {error}")))?;
    let us = rustix::process::geteuid().as_raw();
    if !about.is_file() {
        return Err(Refused::for_good(format!("{shown} is no regular file")));
    }
    if ![0, us].contains(&about.uid()) {
        let owner = about.uid();
        let found = format!("{shown} belongs to user {owner}: chown {us} {shown}");
        return Err(Refused::for_good(found));
    }
    if about.mode() & 0o022 != 0 {
        let mode = about.mode() & 0o7777;
        let found = format!("others can write {shown} (mode {mode:04o}): chmod go-w {shown}");
        return Err(Refused::for_good(found));
    }
    Ok(())
}

/// Reads to the end, and keeps the beginning.
async fn beginning(mut from: impl AsyncRead + Unpin, into: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let room = OUTPUT_BYTES_MAX.saturating_sub(into.len());
        into.extend_from_slice(&buffer[..n.min(room)]);
    }
}

/// A program with the first of its arguments.
#[derive(Debug)]
pub(super) struct Program {
    command: Vec<String>,
    /// One start at a time: one may hang on a disk.
    starts: Arc<Semaphore>,
}

impl Program {
    pub(super) fn new(command: Vec<String>) -> Program {
        Program {
            command,
            starts: Arc::new(Semaphore::new(1)),
        }
    }

    /// Starts it, on a thread of its own: the disk that it lies on may hang.
    async fn start(
        &self,
        more: &[String],
        environment: Vec<(&'static str, String)>,
    ) -> Result<Child, Refused> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Refused::for_good("it names no program".to_owned()));
        };
        let Ok(starting) = Arc::clone(&self.starts).try_acquire_owned() else {
            let found = format!("{program}: an earlier start of it still waits for its disk");
            return Err(Refused::for_now(found));
        };
        let program = program.clone();
        let mut command = Command::new(&program);
        let plain = |(key, value): (&'static str, String)| (key, value.replace('\0', ""));
        command
            .args(arguments)
            .args(more)
            .env_clear()
            .env("PATH", PATH)
            .envs(environment.into_iter().map(plain))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let start = rounds::done_by_itself(move || {
            let _starting = starting;
            check(Path::new(&program))?;
            let spawned = command.spawn().map_err(strake_runtime::explained_thread);
            spawned.map_err(|error| {
                let why = format!("{program}: {error}");
                match strake_runtime::is_short_of_threads(&error) {
                    true => Refused::for_now(why),
                    false => Refused::for_good(why),
                }
            })
        });
        start
            .await
            .map_err(|failure| Refused::for_now(failure.found))?
    }

    /// Runs it.
    pub(super) async fn run(
        &self,
        more: &[String],
        environment: Vec<(&'static str, String)>,
        input: &[u8],
        patience: Duration,
    ) -> Result<Delivered, Refused> {
        let program = self.command.first().map_or("", String::as_str);
        let child = self.start(more, environment).await?;
        let (ended, said) = talk(child, input, patience).await;
        let said = shown(String::from_utf8_lossy(&said).trim(), ' ');
        let said = match said.is_empty() {
            true => String::new(),
            false => format!(": {said}"),
        };
        let found = match ended {
            Some(Ok(status)) if status.success() => return Ok(Delivered::Wholly),
            Some(Ok(status)) => format!("{program} ended with {status}{said}"),
            Some(Err(error)) => format!("{program}: {error}"),
            None => {
                let seconds = patience.as_secs();
                format!("{program} did not end within {seconds} s and was killed{said}")
            }
        };
        Err(Refused::for_now(found))
    }
}

/// Gives a program its input, and waits for its end and its output, not for ever.
async fn talk(
    mut child: Child,
    input: &[u8],
    patience: Duration,
) -> (Option<io::Result<ExitStatus>>, Vec<u8>) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    // What it started goes with it.
    let mut killed = Killed(pid.and_then(Pid::from_raw));
    let (mut stdin, stdout, stderr) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ended = {
        let feed = async {
            if let Some(stdin) = &mut stdin {
                // A program need not read it.
                let _ = stdin.write_all(input).await;
            }
            stdin = None;
        };
        let read_out = async {
            if let Some(stdout) = stdout {
                beginning(stdout, &mut out).await;
            }
        };
        let read_err = async {
            if let Some(stderr) = stderr {
                beginning(stderr, &mut err).await;
            }
        };
        let mut talk = std::pin::pin!(async { tokio::join!(feed, read_out, read_err) });
        let work = async {
            let status = tokio::select! {
                status = child.wait() => status,
                // It closed all three and may work on.
                _ = &mut talk => return child.wait().await,
            };
            // What it left behind may hold its output open.
            let _ = tokio::time::timeout(REST_PATIENCE, &mut talk).await;
            status
        };
        tokio::time::timeout(patience, work).await
    };
    if ended.is_ok() {
        // Its number may come to mean another.
        killed.0 = None;
    }
    (ended.ok(), [err, out].concat())
}
