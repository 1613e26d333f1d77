//! One boot: the machine as a child, its output line by line, and the hands of the host.
//!
//! A machine is an emulated PC (`emulator`), or a kernel that is a program, over the host's file
//! tree (`usermode`) or a system of its own (`system`). The guest
//! asks for what only the host can do (pull a drive, cut the power) by a file in the
//! shared folder, and waits for the answer there: `ask.N` with the words of the request, `answer.N`
//! with `ok` or what went wrong. N counts from 1, one request at a time, so neither side needs a
//! lock.

use super::drives::Drives;
use super::prepare::{Rig, folder};
use super::qmp::Qmp;
use super::{emulator, system, usermode};
use crate::host;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How the guest is made.
pub(crate) struct Spec<'a> {
    pub(crate) name: &'a str,
    pub(crate) cpus: u32,
    pub(crate) memory_mib: u64,
    /// Longest life of the guest; past it, it is ended.
    pub(crate) limit_s: u64,
}

/// How a guest's life ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It ran its script and powered off.
    Off,
    /// It asked for its power to be cut.
    Cut,
    /// Its time was over.
    TimedOut,
    /// The emulator ended by itself, before the script did.
    Died,
}

/// How long a guest may take until its script runs. Usual are 20 s; two at a time on a slow
/// machine, a minute.
const UP: Duration = Duration::from_secs(300);

/// How often a guest is booted until its script runs.
const BOOTS: u32 = 3;

/// A running guest.
struct Guest<'a> {
    child: Child,
    lines: Receiver<String>,
    share: PathBuf,
    rig: &'a Rig,
    drives: &'a Drives,
    qmp: Option<Qmp>,
    asked: u64,
    cut: bool,
    /// Its time was over.
    late: bool,
    /// The script runs.
    up: bool,
    up_deadline: Instant,
    deadline: Instant,
}

/// The folder that host and guest share.
pub(crate) fn share(name: &str) -> PathBuf {
    folder().join("share").join(name)
}

/// Where the kernel of a guest that runs a script leaves its warnings and its last words.
pub(crate) fn console(name: &str) -> PathBuf {
    share(name).join("console")
}

/// The ends of what a guest's script and its kernel have said.
pub(crate) fn last_words(name: &str, log: &Path) -> String {
    let tail = |path: &Path| host::tail(&fs::read_to_string(path).unwrap_or_default(), 40);
    format!(
        "log {}, its end:\n{}\n--- the kernel's last words:\n{}",
        log.display(),
        tail(log),
        tail(&console(name))
    )
}

/// Boots a guest that runs `script` as root, follows it to its end and hands each line of its
/// output to `line`.
///
/// A kernel now and then ends by itself before anything of ours has run. Such a boot says
/// nothing of the arrays and has touched no drive, so the guest is booted again.
/// Of emulated machines one runs at a time: each has two CPUs.
pub(crate) fn run(
    rig: &Rig,
    spec: &Spec<'_>,
    drives: &Drives,
    script: &str,
    mut line: impl FnMut(&str),
) -> Result<End> {
    static ONE_EMULATED: Mutex<()> = Mutex::new(());
    let _turn = matches!(rig, Rig::Emulated(_))
        .then(|| ONE_EMULATED.lock().unwrap_or_else(PoisonError::into_inner));
    for boot in 1.. {
        let guest = Guest::boot(rig, spec, drives, script)?;
        let (end, up) = guest.follow(&mut line)?;
        if up || boot == BOOTS {
            return Ok(end);
        }
        println!(
            "  {}: its kernel did not come up ({end:?}); boot {} follows",
            spec.name,
            boot + 1
        );
        let console = console(spec.name);
        let kept = share(spec.name).with_extension(format!("boot-{boot}"));
        let _ = fs::rename(console, kept);
    }
    unreachable!("the last boot returns")
}

impl<'a> Guest<'a> {
    fn boot(rig: &'a Rig, spec: &Spec<'_>, drives: &'a Drives, script: &str) -> Result<Self> {
        let share = share(spec.name);
        let (mut command, errors) = match rig {
            Rig::Emulated(emulator) => {
                let _ = fs::remove_file(emulator::socket(&share));
                fs::write(share.join("machine.env"), "MACHINE=emulated\n")?;
                let command = emulator::command(emulator, spec, drives, Some(script));
                (command, Stdio::piped())
            }
            Rig::UserMode(kernel) => {
                fs::write(share.join("machine.env"), usermode::env(drives))?;
                fs::write(share.join("script"), script)?;
                let console = fs::File::create(console(spec.name))?;
                let command = usermode::command(kernel, spec, drives, &share);
                (command, console.into())
            }
            Rig::System(system) => {
                fs::write(share.join("script"), script)?;
                let console = fs::File::create(console(spec.name))?;
                let command = system::command(system, spec, drives, &share)?;
                (command, console.into())
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(errors).spawn().context("start a machine")?;
        let (sender, lines) = mpsc::channel();
        let (out, err) = (child.stdout.take(), child.stderr.take());
        pump(out.expect("standard output is piped"), sender.clone());
        if let Some(err) = err {
            pump(err, sender);
        }
        let deadline = Instant::now() + Duration::from_secs(spec.limit_s + 30);
        Ok(Self {
            child,
            lines,
            share,
            rig,
            drives,
            qmp: None,
            asked: 0,
            cut: false,
            late: false,
            up: false,
            up_deadline: Instant::now() + UP,
            deadline,
        })
    }

    /// Follows the guest to its end, hands each line of its output to `line`, and does what it asks
    /// for. The script of a guest that came up has run, at least its beginning.
    fn follow(mut self, mut line: impl FnMut(&str)) -> Result<(End, bool)> {
        loop {
            match self.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(text) => line(text.trim_end()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.serve()?;
            self.up = self.up || self.share.join("up").exists();
            let down = !self.up && Instant::now() > self.up_deadline;
            if down || Instant::now() > self.deadline {
                let _ = self.end_machine(); // it may never have come so far
                self.child.kill()?;
                self.late = true;
                break;
            }
        }
        self.up = self.up || self.share.join("up").exists();
        let status = self.child.wait()?;
        let timed_out = match self.rig {
            Rig::Emulated(_) => {
                let _ = fs::remove_file(emulator::socket(&self.share));
                matches!(status.code(), Some(124 | 137) | None)
            }
            // A kernel that ends by a signal which was not ours has crashed.
            Rig::UserMode(_) | Rig::System(_) => false,
        };
        let end = match status {
            _ if self.cut => End::Cut,
            _ if self.late || timed_out => End::TimedOut,
            _ if self.share.join("done").exists() => End::Off,
            _ => End::Died,
        };
        Ok((end, self.up))
    }

    /// Ends the machine as a cut of the power does. Of an emulated one the child is what starts the
    /// emulator, which would outlive it; a kernel that is a program is the child.
    fn end_machine(&mut self) -> Result<()> {
        if !matches!(self.rig, Rig::Emulated(_)) {
            return Ok(self.child.kill()?);
        }
        let pid = fs::read_to_string(self.share.join("pid")).context("the emulator's id")?;
        host::output(&["kill", "-KILL", pid.trim()])?;
        Ok(())
    }

    /// Answers the next request, if there is one.
    fn serve(&mut self) -> Result<()> {
        let next = self.asked + 1;
        let Ok(request) = fs::read_to_string(self.share.join(format!("ask.{next}"))) else {
            return Ok(());
        };
        self.asked = next;
        let answer = match self.carry_out(request.trim()) {
            Ok(()) => "ok".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        // Written under another name first: the guest never sees half an answer.
        let half = self.share.join("answer.half");
        fs::write(&half, answer)?;
        fs::rename(&half, self.share.join(format!("answer.{next}")))?;
        Ok(())
    }

    fn carry_out(&mut self, request: &str) -> Result<()> {
        if request == "powercut" {
            self.cut = true;
            return self.end_machine();
        }
        if !matches!(self.rig, Rig::Emulated(_)) {
            bail!("drives of a user-mode kernel are in its own hands, not the host's: {request}");
        }
        let (verb, index) = request.split_once(' ').context("a verb and a drive")?;
        let index: usize = index.parse().context("the number of a drive")?;
        if self.qmp.is_none() {
            self.qmp = Some(Qmp::connect(&emulator::socket(&self.share))?);
        }
        let qmp = self.qmp.as_mut().expect("connected just above");
        match verb {
            "unplug" => self.drives.unplug(qmp, index),
            "plug" => self.drives.plug(qmp, index),
            "renew" => self.drives.renew(qmp, index),
            "warn" => self.drives.warn(qmp, index),
            _ => bail!("unknown request {request}"),
        }
    }
}

/// Sends each line of a stream, until it ends.
fn pump(stream: impl std::io::Read + Send + 'static, sender: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while reader
            .read_until(b'\n', &mut line)
            .is_ok_and(|length| length > 0)
        {
            let text = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            if sender.send(text).is_err() {
                break;
            }
        }
    });
}

/// Lays the shared folder anew: the guest's scripts and the binary that it shall run.
pub(crate) fn fill_share(name: &str, binary: &Path) -> Result<PathBuf> {
    let share = share(name);
    let _ = fs::remove_dir_all(&share);
    fs::create_dir_all(&share).with_context(|| share.display().to_string())?;
    for (file, text) in super::scenarios::SCRIPTS {
        let mut script = fs::File::create(share.join(file))?;
        script.write_all(text.as_bytes())?;
        // One of them is a guest's first process.
        script.set_permissions(fs::Permissions::from_mode(0o755))?;
    }
    if binary.exists() {
        // Without what only a debugger reads: each boot would copy that into the guest's memory.
        let copy = share.join("strake");
        let text = |path: &Path| {
            path.to_str()
                .map(str::to_owned)
                .context("a path of letters")
        };
        host::output(&["strip", "-o", &text(&copy)?, &text(binary)?])?;
    }
    Ok(share)
}
