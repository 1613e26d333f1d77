//! The stage: temporary folder, member files, and a real daemon in a process of its own.
//!
//! Invariants: whatever happens, the daemon is ended when the stage goes, and the folder is removed
//! unless it is to be kept. A demo that is killed takes its daemon with it (the kernel sees to
//! that), and lets go of the lock in its folder, by which the next demo knows that it may remove
//! it. Deliberately absent: the play (mod).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;

use crate::api::*;
use crate::cli::client::Client;
use crate::common::errors::{Code, Failure};
use crate::daemon::state::Dir;
use crate::demo::interrupt;

/// Name of the demo's array.
pub(crate) const NAME: &str = "demo";
/// Folders of demos begin so.
const PREFIX: &str = "strake-demo-";
/// Held as long as the demo runs.
const LOCK: &str = "lock";
const URL: &str = "/v1/arrays/demo";

/// See the module.
#[derive(Debug)]
pub(crate) struct Stage {
    folder: tempfile::TempDir,
    /// Says that the folder is in use; none where it is to be kept.
    _lock: Option<File>,
    /// Member files, then the spare.
    pub(crate) files: Vec<PathBuf>,
    dir: Dir,
    daemon: Option<Child>,
    client: Option<Client>,
}

fn pid(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

/// A lock in the folder that no other demo can take before this one has it: it gets its name
/// afterwards.
fn lock(folder: &Path) -> io::Result<File> {
    let made = folder.join("lock.new");
    let file = File::create_new(&made)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    fs::rename(made, folder.join(LOCK))?;
    Ok(file)
}

/// Whether this is the folder of a demo of this user that was killed: its lock is free.
fn is_left(folder: &Path) -> bool {
    let own = fs::symlink_metadata(folder)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw());
    let open = || {
        File::options()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
            .open(folder.join(LOCK))
    };
    own && open().is_ok_and(|lock| {
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

fn failed(what: impl Into<String>) -> Failure {
    Failure::new(Code::DemoFailed, what)
}

impl Stage {
    /// Removes what demos left that were killed. The daemon of one ends with it; one that has not
    /// ended yet has only files that nothing needs.
    pub(crate) fn sweep(parent: &Path) {
        let Ok(entries) = fs::read_dir(parent) else {
            return;
        };
        for entry in entries.filter_map(Result::ok) {
            let named = entry.file_name().to_string_lossy().starts_with(PREFIX);
            let folder = entry.path();
            if named && is_left(&folder) {
                match fs::remove_dir_all(&folder) {
                    Ok(()) => tell!("removed {}, of a demo that was killed", folder.display()),
                    Err(error) => tell!("note: {}: {error}", folder.display()),
                }
            }
        }
    }

    /// Folder and sparse files.
    pub(crate) fn set(
        parent: &Path,
        files: usize,
        bytes: u64,
        keep: bool,
    ) -> Result<Stage, Failure> {
        let make = |e: std::io::Error| Failure::io(format!("a folder in {}", parent.display()), &e);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent);
        let folder = folder.map_err(make)?;
        let lock = match keep {
            true => None,
            false => {
                interrupt::set().folder = Some(folder.path().to_owned());
                Some(lock(folder.path()).map_err(make)?)
            }
        };
        let members = folder.path().join("members");
        fs::create_dir(&members).map_err(make)?;
        let mut paths = Vec::new();
        for i in 0..files {
            let path = members.join(format!("drive{i}"));
            File::create_new(&path)
                .and_then(|f| f.set_len(bytes))
                .map_err(make)?;
            paths.push(path);
        }
        let dir = Dir::at(&folder.path().join("run"));
        Ok(Stage {
            folder,
            _lock: lock,
            files: paths,
            dir,
            daemon: None,
            client: None,
        })
    }
    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
    /// Leaves the folder where it is.
    pub(crate) fn keep(mut self) -> PathBuf {
        self.end();
        interrupt::set().folder = None;
        // The next demo is to leave it alone. It may not have one.
        let _ = fs::remove_file(self.folder.path().join(LOCK));
        self.folder.disable_cleanup(true);
        self.folder.path().to_owned()
    }

    /// Starts the daemon and waits until it answers.
    pub(crate) fn start_daemon(&mut self) -> Result<(), Failure> {
        let cannot = |e: std::io::Error| Failure::io("starting the daemon", &e);
        let program = std::env::current_exe().map_err(cannot)?;
        let log = self.folder.path().join("daemon.log");
        let log = File::options()
            .create(true)
            .append(true)
            .open(log)
            .map_err(cannot)?;
        let mut set = interrupt::set();
        interrupt::check()?;
        let child = Command::new(program)
            .args(["daemon", "--no-devices", "--wait", "1", "--end-with"])
            .arg(std::process::id().to_string())
            // What a terminal interrupts is the demo, which ends it in order.
            .process_group(0)
            .env("STRAKE_DIR", self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(cannot)?;
        set.daemon = pid(&child);
        drop(set);
        self.daemon = Some(child);
        let give_up = Instant::now() + Duration::from_secs(15);
        while Instant::now() < give_up {
            // The lock file's holder may be the one that was killed: only the new one's pid will
            // do.
            if let Some(client) = Client::find(&self.dir)?
                && client.get::<VersionJson>("/v1/version").is_ok()
            {
                self.client = Some(client);
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err(failed(format!(
            "the daemon does not answer: {}",
            self.log_tail()
        )))
    }

    /// Last line of the daemon's log.
    pub(crate) fn log_tail(&self) -> String {
        let text = fs::read_to_string(self.folder.path().join("daemon.log")).unwrap_or_default();
        text.lines().last().unwrap_or("its log is empty").to_owned()
    }

    /// SIGKILL.
    pub(crate) fn kill_daemon(&mut self) -> Result<(), Failure> {
        self.client = None;
        let Some(mut child) = self.daemon.take() else {
            return Ok(());
        };
        interrupt::set().daemon = None;
        child
            .kill()
            .and_then(|()| child.wait())
            .map(|_| ())
            .map_err(|e| Failure::io("killing the daemon", &e))
    }

    fn client(&self) -> Result<&Client, Failure> {
        interrupt::check()?;
        self.client
            .as_ref()
            .ok_or_else(|| failed("the daemon is not there"))
    }
    /// POST to the array.
    pub(crate) fn post<T: DeserializeOwned>(
        &self,
        verb: &str,
        body: &impl serde::Serialize,
    ) -> Result<T, Failure> {
        self.client()?.post(&format!("{URL}/{verb}"), body)
    }
    /// Makes the array.
    pub(crate) fn create(&self, request: &CreateRequest) -> Result<ArrayJson, Failure> {
        let created: CreatedJson = self.client()?.post("/v1/arrays", request)?;
        Ok(created.array)
    }
    /// The array.
    pub(crate) fn show(&self) -> Result<ArrayJson, Failure> {
        self.client()?.get(URL)
    }
    /// Sets the rebuild's priority.
    pub(crate) fn priority(&self, priority: u8) -> Result<(), Failure> {
        let wanted = SettingsJson {
            rebuild_priority: Some(priority),
            ..SettingsJson::default()
        };
        let path = format!("{URL}/settings");
        self.client()?
            .call::<OutcomeJson>("PATCH", &path, &wanted)
            .map(|_| ())
    }
    /// Starts or stops a job.
    pub(crate) fn job(&self, kind: &str, action: &str) -> Result<(), Failure> {
        let request = JobRequest {
            dry_run: false,
            action: action.to_owned(),
            repair: false,
            halt: false,
        };
        self.post::<OutcomeJson>(kind, &request).map(|_| ())
    }
    /// Events from `since` on.
    pub(crate) fn events(&self, since: u64) -> Result<Vec<EventJson>, Failure> {
        let mut events = Vec::new();
        self.client()?
            .lines(&format!("/v1/events?since={since}"), |line| {
                events.extend(serde_json::from_str::<EventJson>(line));
            })?;
        Ok(events)
    }
    /// Waits until the array looks as it should, looking often.
    pub(crate) fn wait_for(
        &self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&ArrayJson) -> bool,
    ) -> Result<ArrayJson, Failure> {
        let give_up = Instant::now() + limit;
        loop {
            let array = self.show()?;
            if done(&array) {
                return Ok(array);
            }
            if Instant::now() > give_up {
                let found = format!(
                    "waited {} s for {what}; it is {}",
                    limit.as_secs(),
                    array.state
                );
                return Err(failed(found));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(&mut self) {
        self.client = None;
        let Some(mut child) = self.daemon.take() else {
            return;
        };
        if let Some(pid) = pid(&child) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
        let give_up = Instant::now() + Duration::from_secs(10);
        while Instant::now() < give_up {
            if matches!(child.try_wait(), Ok(Some(_))) {
                interrupt::set().daemon = None;
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        // It did not end when asked.
        let _ = child.kill();
        let _ = child.wait();
        interrupt::set().daemon = None;
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.end();
    }
}
