//! The threads of an array, and their end.
//!
//! Order of an end: every thread is told to exit → each waits a grace time for member I/O that the
//! kernel has → it drops its ring, devices and memory and reports which devices still have I/O in
//! the kernel → it is joined if there are none.
//!
//! Invariant: an end takes a bounded time. A thread cannot exit while the kernel does not end its
//! I/O (the kernel waits for that I/O), so such a thread is detached: it holds nothing but the
//! memory of that I/O. Deliberately absent: cancelling I/O (a device that hangs ignores it).

pub(crate) mod control;
pub(crate) mod counters;
pub(crate) mod device_counts;
pub(crate) mod heartbeat;
pub(crate) mod worker;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::mail::{Mail, Peers};

/// How long an ending thread waits for I/O in flight.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// How long the report of a thread is waited for: its grace time, and as much again.
const REPORT_PATIENCE: Duration = Duration::from_secs(10);

/// What a thread reports when it has let go of everything: devices with I/O that the kernel still
/// has.
pub(crate) type Ended = (u16, Vec<PathBuf>);

/// The array's threads; dropping ends them.
#[derive(Debug)]
pub(crate) struct Threads {
    pub(crate) peers: Peers,
    /// `None` once they have ended.
    running: Mutex<Option<Running>>,
    ended: Sender<Ended>,
}

#[derive(Debug)]
struct Running {
    handles: Vec<Option<JoinHandle<()>>>,
    reports: Receiver<Ended>,
}

impl Threads {
    /// No threads yet.
    pub(crate) fn new(peers: Peers) -> Threads {
        let (ended, reports) = channel();
        let handles = Vec::new();
        Threads {
            peers,
            running: Mutex::new(Some(Running { handles, reports })),
            ended,
        }
    }

    /// Where a thread reports its end.
    pub(crate) fn ended(&self) -> Sender<Ended> {
        self.ended.clone()
    }

    /// A thread more; in the order of their numbers.
    pub(crate) fn add(&self, handle: JoinHandle<()>) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let running = running.as_mut().expect("threads are added before they end");
        running.handles.push(Some(handle));
    }

    /// Ends all threads within a bounded time. Answers which devices stay busy because the kernel
    /// still has I/O on them; nothing if the threads had ended already.
    pub(crate) fn end(&self) -> Vec<PathBuf> {
        let running = self.running.lock();
        let running = running.unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut running) = running else {
            return Vec::new();
        };
        for peer in self.peers.iter() {
            peer.post(Mail::Exit);
        }
        let until = Instant::now() + REPORT_PATIENCE;
        let mut busy = BTreeSet::new();
        let mut left = running.handles.len();
        while left > 0 {
            let patience = until.saturating_duration_since(Instant::now());
            let Ok((index, devices)) = running.reports.recv_timeout(patience) else {
                break;
            };
            left -= 1;
            let handle = running.handles.get_mut(usize::from(index));
            let handle = handle.and_then(Option::take);
            match (devices.is_empty(), handle) {
                // It has nothing left to do but to exit. A thread that panicked has ended the
                // process.
                (true, Some(handle)) => drop(handle.join()),
                (_, handle) => drop(handle),
            }
            busy.extend(devices);
        }
        for (index, handle) in running.handles.iter().enumerate() {
            if handle.is_some() {
                tracing::error!(thread = index, "a thread does not end: it is left behind");
            }
        }
        for device in &busy {
            let device = device.display();
            tracing::warn!(
                %device,
                "the kernel still has I/O on it: it stays busy until that ends"
            );
        }
        busy.into_iter().collect()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end();
    }
}

/// `strake-NAME-N`, cut to the kernel's 15 bytes with the number kept.
pub(crate) fn thread_name(array: &str, index: u16) -> String {
    let number = format!("-{index}");
    let mut name = format!("strake-{array}");
    let mut keep = name.len().min(15 - number.len());
    while !name.is_char_boundary(keep) {
        keep -= 1;
    }
    name.truncate(keep);
    name + &number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_names_keep_their_number() {
        assert_eq!(thread_name("data", 3), "strake-data-3");
        assert_eq!(thread_name("a-rather-long-name", 12), "strake-a-rat-12");
        assert_eq!(thread_name("xäöüäöü", 0), "strake-xäö-0");
    }
}
