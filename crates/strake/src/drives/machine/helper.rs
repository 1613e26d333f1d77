//! Programs of the system that look at drives for us: `wipefs`, `blkid`, `ledctl`.
//!
//! Invariants: a program is run by an absolute path in the folders of the system, whatever PATH
//! says; it gets a bounded time and is killed then. One that the kernel does not let die (it hangs
//! on a device) is left to a thread of its own. Deliberately absent: what the programs say.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Where programs of the system are.
const FOLDERS: [&str; 5] = [
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/run/current-system/sw/bin",
];
/// How long a program may look at a device: longer than a drive takes to spin up.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where a program of the system is.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let places = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
    places.into_iter().find(|place| place.is_file())
}

/// The command that runs a program of the system; it fails to run where there is none.
pub(crate) fn tool(name: &str) -> Command {
    let missing = || Path::new(FOLDERS[0]).join(name);
    Command::new(find(name).unwrap_or_else(missing))
}

/// Runs a command and answers what it said.
///
/// # Errors
/// It cannot be run, or does not end in time ([`io::ErrorKind::TimedOut`]).
pub(crate) fn output(command: &mut Command) -> io::Result<Output> {
    output_within(command, PATIENCE)
}

fn output_within(command: &mut Command, patience: Duration) -> io::Result<Output> {
    let (hand_over, handed) = channel::<Child>();
    let (sender, receiver) = channel();
    // Before the program: one that nothing waits for would stay.
    strake_runtime::spawn_thread("helper", move || {
        let Ok(child) = handed.recv() else { return };
        // Nobody may wait any more.
        let _ = sender.send(child.wait_with_output());
    })?;
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(strake_runtime::explained_thread)?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // It cannot come to mean another process, as a number can.
    let pidfd = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // It waits for this.
    let _ = hand_over.send(child);
    receiver.recv_timeout(patience).unwrap_or_else(|_| {
        if let Some(pidfd) = &pidfd {
            // It may have ended in this very moment.
            let _ = pidfd_send_signal(pidfd.as_fd(), Signal::KILL);
        }
        let seconds = patience.as_secs();
        let why = format!("it did not answer within {seconds} s and was killed");
        Err(io::Error::new(io::ErrorKind::TimedOut, why))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_killed_and_told_of() {
        let begun = Instant::now();
        let result = output_within(tool("sleep").arg("1000"), Duration::from_millis(50));
        let error = result.expect_err("it sleeps for long");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_program_is_found_whatever_path_says_and_answers() {
        let output = output(tool("echo").arg("here").env("PATH", "/nowhere"));
        assert_eq!(output.expect("it runs").stdout, b"here\n");
        let missing = tool("no-such-program-of-the-system");
        assert!(Path::new(missing.get_program()).is_absolute());
    }
}
