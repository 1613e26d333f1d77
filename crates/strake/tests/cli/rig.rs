//! A folder with member files and a STRAKE_DIR of its own, and the real binary run against them.
//!
//! Invariants: tests share nothing; a daemon started here is ended here; block devices of the
//! machine are never looked at by the daemon (`--no-devices`).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The binary under test.
pub(crate) const STRAKE: &str = env!("CARGO_BIN_EXE_strake");

/// What a run of the binary gave.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    /// Standard output as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
    /// Asserts that it succeeded.
    pub(crate) fn ok(self) -> Run {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
    /// The error on standard error as JSON; before it, a device of the machine may be told of that
    /// another test has made hang.
    pub(crate) fn json_error(&self) -> Value {
        let said = self
            .err
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        // Notes may come before it.
        let mut errors = said.filter(|said| said.get("code").is_some());
        errors
            .next()
            .unwrap_or_else(|| panic!("no error: {self:?}"))
    }
    /// Asserts exit code and error code, and that the error has all three fields.
    pub(crate) fn refused(self, code: i32, error: &str) -> Run {
        assert_eq!(self.code, code, "{self:?}");
        let json = self.json_error();
        assert_eq!(json["code"], error, "{self:?}");
        for field in ["found", "cure"] {
            assert!(
                json[field].as_str().is_some_and(|t| t.len() > 3),
                "{self:?}"
            );
        }
        self
    }
}

/// A file in memory that can be made to refuse all writes.
pub(crate) struct Sealed(std::os::fd::OwnedFd);

impl Sealed {
    pub(crate) fn new(bytes: u64) -> Sealed {
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING | rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("member", flags).expect("a file in memory");
        rustix::fs::ftruncate(&file, bytes).expect("sparse");
        Sealed(file)
    }
    /// For every process of this user.
    pub(crate) fn path(&self) -> String {
        let (process, fd) = (std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&self.0));
        format!("/proc/{process}/fd/{fd}")
    }
    pub(crate) fn refuse_writes(&self) {
        let seal = rustix::fs::SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&self.0, seal).expect("sealed");
    }
}

/// See the module.
pub(crate) struct Rig {
    pub(crate) folder: tempfile::TempDir,
    daemon: Option<Child>,
    foreground: Vec<Child>,
}

impl Rig {
    pub(crate) fn new() -> Rig {
        let folder = tempfile::Builder::new()
            .prefix("strake-test-")
            .tempdir()
            .expect("works");
        Rig {
            folder,
            daemon: None,
            foreground: Vec::new(),
        }
    }
    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.path().join("run")
    }
    /// Has the daemon look at a device that it was not told of.
    pub(crate) fn knows(&self, path: &str) {
        let file = self.dir().join("known-files.json");
        let known = std::fs::read_to_string(&file).expect("it knows some");
        let mut known: Vec<String> = serde_json::from_str(&known).expect("a list");
        known.push(path.to_owned());
        let known = serde_json::to_string(&known).expect("text");
        std::fs::write(&file, known).expect("written");
    }
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }
    /// A sparse file that its owner alone may read.
    pub(crate) fn file(&self, name: &str, bytes: u64) -> String {
        let path = self.path(name);
        let mut options = File::options();
        let file = options.create(true).truncate(true).write(true).mode(0o600);
        let file = file.open(&path).expect("works");
        file.set_len(bytes).expect("works");
        path
    }
    /// `count` sparse files of 64 MiB.
    pub(crate) fn files(&self, count: usize) -> Vec<String> {
        self.files_called("d", count)
    }
    /// The same, with names that begin so.
    pub(crate) fn files_called(&self, name: &str, count: usize) -> Vec<String> {
        (0..count)
            .map(|i| self.file(&format!("{name}{i}"), 64 << 20))
            .collect()
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(STRAKE);
        command.env("STRAKE_DIR", self.dir()).stdin(Stdio::null());
        command
    }
    /// Runs with `--json`.
    pub(crate) fn run(&self, args: &[&str]) -> Run {
        self.run_command(self.command().arg("--json").args(args))
    }
    /// The same in a process that can write no byte of a file beyond the first 40 MiB: the last
    /// superblock or label of a larger one.
    pub(crate) fn run_within_40_mib(&self, args: &[&str]) -> Run {
        let limited = "trap '' XFSZ; ulimit -f 81920; exec \"$@\"";
        let mut command = Command::new("sh");
        command
            .args(["-c", limited, "sh", STRAKE, "--json"])
            .args(args)
            .env("STRAKE_DIR", self.dir())
            .stdin(Stdio::null());
        self.run_command(&mut command)
    }
    pub(crate) fn run_command(&self, command: &mut Command) -> Run {
        let output = command.output().expect("works");
        Run {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).expect("works"),
            err: String::from_utf8(output.stderr).expect("works"),
        }
    }
    /// `create` with these options and devices.
    pub(crate) fn create(
        &self,
        name: &str,
        level: &str,
        options: &[&str],
        devices: &[String],
    ) -> Run {
        let mut args = vec!["create", name, "--level", level];
        args.extend(options);
        args.extend(devices.iter().map(String::as_str));
        self.run(&args)
    }
    pub(crate) fn show(&self, name: &str) -> Value {
        let run = self.run(&["show", name]);
        assert!(matches!(run.code, 0 | 5..=9), "{run:?}");
        run.json()
    }

    pub(crate) fn start_daemon(&mut self) {
        self.start_daemon_with(&[]);
    }
    pub(crate) fn start_daemon_with(&mut self, options: &[&str]) {
        self.start_daemon_by(&[], options);
    }
    /// With limits as the shell's `ulimit` takes them.
    pub(crate) fn start_daemon_limited(&mut self, ulimit: &str, options: &[&str]) {
        let script = format!("ulimit {ulimit} && exec \"$0\" \"$@\"");
        self.start_daemon_by(&["sh", "-c", &script], options);
    }
    /// By a program that runs what its last arguments say.
    pub(crate) fn start_daemon_by(&mut self, by: &[&str], options: &[&str]) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("daemon.log"))
            .expect("works");
        self.spawn_daemon(by, options, Stdio::from(log));
    }
    /// Its log goes there.
    pub(crate) fn start_daemon_logging_to(&mut self, log: Stdio) {
        self.spawn_daemon(&[], &[], log);
    }
    fn spawn_daemon(&mut self, by: &[&str], options: &[&str], log: Stdio) {
        fs::create_dir_all(self.dir()).expect("works");
        let mut command = match by {
            [] => self.command(),
            [program, args @ ..] => {
                let mut command = Command::new(program);
                command.args(args).arg(STRAKE);
                command.env("STRAKE_DIR", self.dir()).stdin(Stdio::null());
                command
            }
        };
        let child = command
            .args(["daemon", "--no-devices", "--wait", "1"])
            .args(options)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("works");
        self.daemon = Some(child);
        // The socket of one that was killed accepts until the kernel has closed it.
        self.until("the daemon to answer", || {
            let Ok(mut socket) = UnixStream::connect(self.dir().join("api.sock")) else {
                return false;
            };
            let patience = socket.set_read_timeout(Some(Duration::from_secs(10)));
            patience.expect("a time");
            let asked = socket.write_all(b"GET / HTTP/1.1\r\nHost: strake\r\n\r\n");
            asked.is_ok() && matches!(socket.read(&mut [0]), Ok(1))
        });
    }
    pub(crate) fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().expect("it was started").id()
    }
    /// SIGKILL.
    pub(crate) fn kill_daemon(&mut self) {
        let mut child = self.daemon.take().expect("works");
        child.kill().expect("works");
        child.wait().expect("works");
    }
    /// SIGTERM; it must end cleanly.
    pub(crate) fn stop_daemon(&mut self) {
        let child = self.daemon.take().expect("works");
        assert!(end(child), "{}", self.log());
    }
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("daemon.log")).unwrap_or_default()
    }
    /// `start --foreground`, until the array answers on standard output.
    pub(crate) fn foreground(&mut self, args: &[&str]) -> Child {
        use std::io::{BufRead, BufReader};
        let mut child = self
            .command()
            .args(["--json", "start", "--foreground", "--export", "nbd"])
            .args(args)
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("works");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("works"))
            .read_line(&mut line)
            .expect("works");
        assert!(line.contains("\"state\""), "{line}");
        child
    }
    /// Waits.
    pub(crate) fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        // Only what never comes is waited for so long; machines that run tests are busy.
        let give_up = Instant::now() + Duration::from_secs(120);
        while !done() {
            assert!(
                Instant::now() < give_up,
                "waited too long for {what}\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    pub(crate) fn until_state(&self, name: &str, state: &str) {
        self.until(state, || self.run(&["show", name]).json()["state"] == state);
    }
    /// Names of events so far.
    pub(crate) fn events(&self) -> Vec<Value> {
        let run = self.run(&["events"]).ok();
        run.out
            .lines()
            .map(|l| serde_json::from_str(l).expect("works"))
            .collect()
    }
    /// The first event that is so, when it has come: an array hands its events to the log a moment
    /// after the answer to what caused them.
    pub(crate) fn event(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        self.until(what, || {
            found = self.events().into_iter().find(&is);
            found.is_some()
        });
        found.expect("it was waited for")
    }
    /// What the API answers to a request without a body, head and all.
    pub(crate) fn ask(&self, method: &str, path: &str) -> String {
        let mut stream = UnixStream::connect(self.dir().join("api.sock")).expect("it listens");
        let head = "host: strake\r\nconnection: close\r\n\r\n";
        let request = format!("{method} {path} HTTP/1.1\r\n{head}");
        stream.write_all(request.as_bytes()).expect("asks");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answers");
        text
    }
    /// The array's NBD socket.
    pub(crate) fn nbd(&self, name: &str) -> PathBuf {
        self.dir().join("nbd").join(format!("{name}.sock"))
    }
    /// Runs qemu-io commands against the array; None where there is no qemu-io.
    pub(crate) fn qemu_io(&self, name: &str, commands: &[&str]) -> Option<String> {
        let uri = format!("nbd+unix:///?socket={}", self.nbd(name).display());
        let mut command = Command::new("qemu-io");
        command.args(["-f", "raw"]);
        for text in commands {
            command.args(["-c", text]);
        }
        let Ok(output) = command.arg(uri).output() else {
            skipped("qemu-io is not installed");
            return None;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        Some(text)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for child in self
            .daemon
            .take()
            .into_iter()
            .chain(self.foreground.drain(..))
        {
            end(child);
        }
    }
}

/// SIGTERM, then patience, then SIGKILL. True if it ended by itself with 0 (or 5).
pub(crate) fn end(mut child: Child) -> bool {
    let _ = Command::new("kill").arg(child.id().to_string()).status();
    let give_up = Instant::now() + Duration::from_secs(60);
    while Instant::now() < give_up {
        if let Some(status) = child.try_wait().expect("works") {
            return matches!(status.code(), Some(0 | 5));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// Says that something was not tested; CI counts these lines.
pub(crate) fn skipped(why: &str) {
    println!("SKIPPED: {why}");
}

/// Whether a command can be run at all.
pub(crate) fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A file's bytes, to compare before and after.
pub(crate) fn bytes(path: &str) -> Vec<u8> {
    fs::read(Path::new(path)).expect("works")
}
