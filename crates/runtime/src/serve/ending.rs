//! How an array stops.
//!
//! Order: exports gone → engine stopped (all durable) → threads ended → devices closed. Invariants:
//! a stop takes a bounded time; one that is not clean is never said to be. Deliberately absent: the
//! superblocks that say so (engine).

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::MutexGuard;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use strake_engine::event::{Changed, Command, CommandError};
use strake_format::VolumeUuid;

use crate::error::ServeError;
use crate::mail::Mail;
use crate::serve::volumes::Served;
use crate::serve::{STOP_PATIENCE, Serving};
use crate::thread::control::Lifecycle;

/// How an array stopped.
#[derive(Debug)]
pub struct Stopped {
    /// Why it did not stop cleanly.
    pub result: Result<(), ServeError>,
    /// Devices that stay busy because the kernel still has I/O on them.
    pub busy: Vec<PathBuf>,
}

impl Serving {
    /// Stops taking requests, removes the export, makes everything durable and closes the members.
    pub fn stop(self) -> Result<(), ServeError> {
        self.end().result
    }

    /// The same for an array that others still look at, within a bounded time: what the kernel does
    /// not give back in time is left behind, and is named.
    pub fn end(&self) -> Stopped {
        self.end_within(STOP_PATIENCE)
    }

    /// The same, for as long as this: an array that is not quiet then, since a member does not
    /// answer, is left as a kill would leave it.
    pub fn end_within(&self, patience: Duration) -> Stopped {
        let result = self.become_quiet(Instant::now() + patience);
        Stopped {
            result,
            busy: self.threads.end(),
        }
    }

    /// Releases the array as a kill would: nothing more is written, and a ublk device stays for the
    /// next process that serves the array. Returns the devices that stay busy.
    pub fn abandon(&self) -> Vec<PathBuf> {
        self.abandon_exports();
        self.threads.end()
    }

    fn become_quiet(&self, until: Instant) -> Result<(), ServeError> {
        let mut export = self.withdraw();
        for (_, served) in self.take_volumes() {
            export = served.stop().and(export);
        }
        // The engine answers when everything is durable, which a member that hangs may keep it
        // from.
        let (sender, receiver) = channel();
        let mail = Mail::Command(Command::Stop, sender);
        self.threads.peers.array().post(mail);
        let unanswered = |error| match error {
            RecvTimeoutError::Timeout => {
                ServeError::io("wait for the array to stop", io::ErrorKind::TimedOut)
            }
            RecvTimeoutError::Disconnected => ServeError::Ended,
        };
        let left = until.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left).map_err(unanswered)? {
            Ok(Changed::Yes) => self.wait_until_stopped(until)?,
            // It was quiet already.
            Ok(Changed::No) => {}
            Err(error) => return Err(self.not_stopped(error)),
        }
        export
    }

    /// Why a stop came to nothing. An array that had failed before stops as it is: one that refuses
    /// fails while it stops, or is being stopped by another.
    fn not_stopped(&self, error: CommandError) -> ServeError {
        let failed = self.lifecycle().try_iter().find_map(|said| match said {
            Lifecycle::Failed(cause) => Some(cause),
            Lifecycle::Started | Lifecycle::Stopped => None,
        });
        match failed {
            Some(cause) => ServeError::FailedAtStop(cause),
            None => ServeError::NotStopped(error),
        }
    }

    fn lifecycle(&self) -> MutexGuard<'_, Receiver<Lifecycle>> {
        let lifecycle = self.lifecycle.lock();
        lifecycle.expect("no thread panics with the receiver")
    }

    fn take_volumes(&self) -> BTreeMap<VolumeUuid, Served> {
        let volumes = self.volumes.lock();
        std::mem::take(&mut volumes.expect("no thread panics with the exports"))
    }

    fn wait_until_stopped(&self, until: Instant) -> Result<(), ServeError> {
        let lifecycle = self.lifecycle();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match lifecycle.recv_timeout(left) {
                Ok(Lifecycle::Stopped) => return Ok(()),
                Ok(Lifecycle::Started | Lifecycle::Failed(_)) => {}
                Err(_) => {
                    let source = io::Error::from(io::ErrorKind::TimedOut);
                    return Err(ServeError::io("wait for the array to become quiet", source));
                }
            }
        }
    }

    /// As a kill would: sockets close, a ublk device stays for the next daemon.
    fn abandon_exports(&self) {
        if let Some(running) = self.running().take() {
            running.abandon();
        }
        for served in self.take_volumes().into_values() {
            served.abandon();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.abandon_exports();
    }
}
