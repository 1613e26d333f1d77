//! Whether the threads of an array still take their mail.
//!
//! A thread that waits for members takes its mail: it sleeps in its ring, and a beat wakes it. So a
//! thread that is silent for long is lost (it spins, or waits for a lock that nothing releases),
//! unless the kernel holds it: then it is in uninterruptible sleep, and killing the process does
//! not end that either.
//!
//! Invariant: asking and looking never wait, but for a caller that says how long. Deliberately
//! absent: what follows from silence.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::time::Duration;

use strake_engine::event::Stalled;

use crate::mail::{Mail, Peers};

/// Waits are counted in steps of this: one of them counts for no more, however long the process
/// stood still in it.
pub(crate) const STEP: Duration = Duration::from_millis(250);

/// A question to every thread of an array.
#[derive(Debug)]
pub struct Heartbeat {
    peers: Peers,
    /// Threads that have not answered yet.
    waiting: Vec<(u16, Receiver<()>)>,
}

/// A thread that has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent {
    /// Its number in the array.
    pub thread: u16,
    /// It is in uninterruptible sleep in the kernel.
    pub in_kernel: bool,
}

impl Heartbeat {
    /// Asks all threads.
    pub(crate) fn ask(peers: &Peers) -> Heartbeat {
        let mut waiting = Vec::new();
        for (thread, peer) in (0..).zip(peers.iter()) {
            let (sender, receiver) = channel();
            peer.post(Mail::Beat(sender));
            waiting.push((thread, receiver));
        }
        let peers = peers.clone();
        Heartbeat { peers, waiting }
    }

    /// A thread that has neither answered nor ended when it was waited for so long.
    pub(crate) fn still_after(&mut self, patience: Duration) -> Option<Stalled> {
        let mut left = patience;
        while let (Some((_, answer)), false) = (self.waiting.first(), left.is_zero()) {
            let step = STEP.min(left);
            match answer.recv_timeout(step) {
                Err(RecvTimeoutError::Timeout) => left -= step,
                Ok(()) | Err(RecvTimeoutError::Disconnected) => drop(self.waiting.remove(0)),
            }
        }
        self.silent().first().map(|one| Stalled {
            thread: Some(one.thread),
            in_kernel: one.in_kernel,
            seconds: patience.as_secs(),
        })
    }

    /// Threads that have not answered by now. One that has ended, or is about to, is not silent.
    pub fn silent(&mut self) -> Vec<Silent> {
        self.waiting
            .retain(|(_, answer)| answer.try_recv() == Err(TryRecvError::Empty));
        let silent = self.waiting.iter().map(|&(thread, _)| {
            let mut peers = self.peers.iter();
            let place = peers
                .nth(usize::from(thread))
                .and_then(|peer| peer.thread());
            let in_kernel = place.is_some_and(is_in_kernel);
            Silent { thread, in_kernel }
        });
        silent.collect()
    }
}

/// Is the thread that /proc has there in uninterruptible sleep?
fn is_in_kernel(thread: &Path) -> bool {
    let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
    state(&stat) == Some("D")
}

/// The state in a line of /proc/PID/stat; the name before it may hold anything.
fn state(stat: &str) -> Option<&str> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_thread_is_found_behind_any_name() {
        assert_eq!(state("7 (strake-data-0) D 1 7"), Some("D"));
        assert_eq!(state("7 (a) R (b) S 1 7"), Some("S"));
        assert_eq!(state(""), None);
    }
}
