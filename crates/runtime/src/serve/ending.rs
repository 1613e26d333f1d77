//! How an array stops.
//!
//! Order: exports gone → engine stopped (all durable) → threads ended → devices closed. Invariants:
//! a stop takes a bounded time; one that is not clean is never said to be. Deliberately absent: the
//! superblocks that say so (engine).

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::MutexGuard;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use strake_engine::event::{Changed, Command, CommandError};
use strake_format::{Superblock, VolumeUuid};

use crate::error::ServeError;
use crate::export::locked;
use crate::mail::Mail;
use crate::serve::Serving;
use crate::serve::asking::{QUIET_PATIENCE, Unanswered, answer_unless};
use crate::serve::volumes::Served;
use crate::thread::control::Lifecycle;

/// How long the array has at least for becoming quiet, however long its exports took.
const QUIET_LEAST: Duration = Duration::from_secs(1);

/// How long it waits for members that have no space for writes: nobody may be about to make some.
const SPACE_PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take the array to say which members have none.
const SAYS_PATIENCE: Duration = Duration::from_secs(1);

/// How an array stopped.
#[derive(Debug)]
pub struct Stopped {
    /// Why it did not stop cleanly.
    pub result: Result<(), ServeError>,
    /// Devices that stay busy because the kernel still has I/O on them.
    pub busy: Vec<PathBuf>,
    /// What members have where it stopped cleanly.
    pub superblock: Option<Superblock>,
}

/// What a wait came to. Where all threads turn, a member keeps the array from being quiet.
fn in_vain(what: &'static str, error: Unanswered) -> ServeError {
    match error {
        Unanswered::Stalled(stalled) if stalled.thread.is_none() => {
            ServeError::io(what, io::ErrorKind::TimedOut)
        }
        other => ServeError::from(other),
    }
}

impl Serving {
    /// Stops taking requests, removes the export, makes everything durable and closes the members.
    pub fn stop(self) -> Result<(), ServeError> {
        self.end().result
    }

    /// The same for an array that others still look at, within a bounded time: what the kernel does
    /// not give back in time is left behind, and is named.
    pub fn end(&self) -> Stopped {
        self.end_within(QUIET_PATIENCE)
    }

    /// The same, for as long as this: an array that is not quiet then, since a member does not
    /// answer, is left as a kill would leave it.
    pub fn end_within(&self, patience: Duration) -> Stopped {
        let result = self.become_quiet(patience);
        let status = || self.status_within(SAYS_PATIENCE).ok();
        let superblock = result.is_ok().then(status).flatten();
        Stopped {
            result,
            superblock: superblock.map(|status| status.superblock),
            busy: self.threads.end(),
        }
    }

    /// Releases the array as a kill would: nothing more is written, and a ublk device stays for the
    /// next process that serves the array. Returns the devices that stay busy.
    pub fn abandon(&self) -> Vec<PathBuf> {
        self.abandon_exports();
        self.threads.end()
    }

    fn become_quiet(&self, patience: Duration) -> Result<(), ServeError> {
        let begun = Instant::now();
        self.own().closed = true;
        let mut export = self.withdraw();
        for (_, served) in self.take_volumes() {
            export = served.stop().and(export);
        }
        let mut left = patience.saturating_sub(begun.elapsed()).max(QUIET_LEAST);
        // The engine answers when everything is durable, which a member that hangs may keep it
        // from.
        let answer = self.post(|answer| Mail::Command(Command::Stop, answer));
        match self.quiet("wait for the array to stop", &answer, &mut left)? {
            Ok(Changed::Yes) => self.wait_until_stopped(&mut left)?,
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
        locked(&self.lifecycle)
    }

    fn take_volumes(&self) -> BTreeMap<VolumeUuid, Served> {
        std::mem::take(&mut locked(&self.volumes))
    }

    fn wait_until_stopped(&self, left: &mut Duration) -> Result<(), ServeError> {
        let lifecycle = self.lifecycle();
        loop {
            match self.quiet("wait for the array to become quiet", &lifecycle, left)? {
                Lifecycle::Stopped => return Ok(()),
                Lifecycle::Started | Lifecycle::Failed(_) => {}
            }
        }
    }

    /// What an array says that becomes quiet, unless its writes wait for space.
    fn quiet<T>(
        &self,
        what: &'static str,
        answer: &Receiver<T>,
        left: &mut Duration,
    ) -> Result<T, ServeError> {
        let mut full = Vec::new();
        let in_want = |waited: Duration| {
            full = match waited >= SPACE_PATIENCE {
                true => self.full_members(),
                false => Vec::new(),
            };
            !full.is_empty()
        };
        let answered = answer_unless(&self.threads.peers, answer, left, in_want);
        answered.map_err(|error| match error {
            Unanswered::GivenUp => ServeError::NoSpaceToStop(full),
            other => in_vain(what, other),
        })
    }

    /// Members that have no space for writes.
    fn full_members(&self) -> Vec<(PathBuf, Option<i32>)> {
        let members = self
            .status_within(SAYS_PATIENCE)
            .map(|status| status.members);
        let full = members.into_iter().flatten();
        let full = full.filter(|member| member.full_since_unix_s.is_some());
        let named = full.filter_map(|member| {
            let device = member.device?;
            let path = self.devices.path(device)?;
            Some((path, self.devices.recent_errno(device)))
        });
        named.collect()
    }

    /// As a kill would: sockets close, a ublk device stays for the next daemon.
    fn abandon_exports(&self) {
        let mut own = self.own();
        own.closed = true;
        let running = own.running.take();
        drop(own);
        if let Some(running) = running {
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
