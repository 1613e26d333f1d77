//! Load on the array, judged by the simulator's oracle.
//!
//! The oracle lives in the process that is not killed: a request is announced before it is sent,
//! and what was answered before the kill still lies in the socket. So what was acknowledged and
//! what was in flight is known exactly.
//!
//! Invariants: no two requests that change the same block are in flight at once; every block read
//! is judged. Deliberately absent: power cuts (a killed process loses no page cache), so everything
//! answered counts as durable.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use strake_sim::oracle::{Oracle, Ticket, Version, content};
use strake_sim::prng::{Prng, Purpose};

use crate::nbd::{Ask, Client, NbdError};

const EIO: u32 = 5;
const ESHUTDOWN: u32 = 108;
/// Bytes of one read of a verification.
const CHUNK: usize = 1 << 20;
/// Bytes of the longest request of the load.
const LONGEST: u64 = 256 << 10;
/// Half of the load falls on so many bytes, so that requests meet in the same stripes.
const HOT: u64 = 1 << 20;

/// The array as its users know it.
pub(crate) struct Field {
    oracle: Mutex<Oracle>,
    block: usize,
    blocks: u64,
    /// Blocks that had a write in flight at the last kill.
    cut: Mutex<BTreeSet<u64>>,
    /// Blocks that were in flight when a member was lost in the same outage: an error is a good
    /// answer until they are written again.
    excused: Mutex<BTreeSet<u64>>,
    fault: Mutex<Option<String>>,
    mismatches: AtomicU64,
    /// Reads that met a write half way, on files in memory.
    pub(crate) torn: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) verified: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no user of the array panics")
}

impl Field {
    /// A new array: all zeros.
    pub(crate) fn new(size: u64, block: u32) -> Arc<Field> {
        let blocks = size / u64::from(block);
        let oracle = Oracle::new(blocks, block as usize, Version::ZEROS, true);
        Arc::new(Field {
            oracle: Mutex::new(oracle),
            block: block as usize,
            blocks,
            cut: Mutex::default(),
            excused: Mutex::default(),
            fault: Mutex::default(),
            mismatches: AtomicU64::new(0),
            torn: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            verified: AtomicU64::new(0),
        })
    }

    /// The first thing that was not as it must be.
    pub(crate) fn fault(&self) -> Option<String> {
        locked(&self.fault).clone()
    }

    fn blame(&self, what: String) {
        locked(&self.fault).get_or_insert(what);
    }

    /// Blocks that held what they could not.
    pub(crate) fn mismatches(&self) -> u64 {
        self.mismatches.load(Ordering::Relaxed)
    }

    /// A member was lost in the outage in which these writes were cut off.
    pub(crate) fn excuse_cut(&self) {
        let cut = std::mem::take(&mut *locked(&self.cut));
        locked(&self.excused).extend(cut);
    }

    /// The array has come back: what was cut off is as it is.
    pub(crate) fn recovered(&self) {
        locked(&self.cut).clear();
    }

    /// Reads and judges blocks.
    pub(crate) fn read(&self, client: &mut Client, first: u64, bytes: &mut [u8]) -> Option<()> {
        let moment = locked(&self.oracle).read();
        let offset = first * self.block as u64;
        match client.ask(Ask::Read, offset, bytes) {
            Ok(()) => {
                let mut oracle = locked(&self.oracle);
                let seen = oracle.seen(moment, first, bytes);
                if let Err(mismatch) = seen {
                    let at = (mismatch.block - first) as usize * self.block;
                    let block = &bytes[at..at + self.block];
                    let torn = oracle.torn(moment, mismatch.block, block);
                    drop(oracle);
                    if torn {
                        // Files in memory are copied word by word while others write there: when
                        // the write is over, so is that.
                        self.torn.fetch_add(1, Ordering::Relaxed);
                        return self.read(client, first, bytes);
                    }
                    self.mismatches.fetch_add(1, Ordering::Relaxed);
                    self.blame(format!("wrong bytes: {}", mismatch.text));
                    return None;
                }
                drop(oracle);
                let blocks = (bytes.len() / self.block) as u64;
                self.verified.fetch_add(blocks, Ordering::Relaxed);
                Some(())
            }
            Err(error) => {
                locked(&self.oracle).unread(moment);
                let blocks = (bytes.len() / self.block) as u64;
                let excused = locked(&self.excused)
                    .range(first..first + blocks)
                    .next()
                    .is_some();
                match error {
                    NbdError::Refused(EIO) if excused && blocks == 1 => Some(()),
                    NbdError::Refused(EIO) if excused => bytes
                        .chunks_mut(self.block)
                        .zip(first..)
                        .try_for_each(|(one, at)| self.read(client, at, one)),
                    _ => self.note_error(&format!("read of block {first}"), error),
                }
            }
        }
    }

    /// A request came to nothing. Only what a kill or a stop explains is no fault.
    fn note_error(&self, what: &str, error: NbdError) -> Option<()> {
        match error {
            NbdError::Cut | NbdError::Refused(ESHUTDOWN) => {}
            NbdError::Refused(errno) => self.blame(format!("{what} was refused: errno {errno}")),
            NbdError::Silent => self.blame(format!("{what} was never answered")),
        }
        None
    }

    /// Announces a change of blocks, unless one is under way there.
    fn announce(&self, ask: Ask, first: u64, count: u64) -> Option<(Ticket, Version)> {
        let mut oracle = locked(&self.oracle);
        if oracle.busy(first, count) {
            return None;
        }
        Some(match ask {
            Ask::Trim => (oracle.discard(first, count), Version::ZEROS),
            Ask::Zeroes { .. } => (oracle.zero(first, count), Version::ZEROS),
            _ => oracle.write(first, count),
        })
    }

    fn change(&self, client: &mut Client, ask: Ask, first: u64, bytes: &mut [u8]) -> Option<()> {
        let count = (bytes.len() / self.block) as u64;
        let Some((ticket, version)) = self.announce(ask, first, count) else {
            return Some(());
        };
        for (at, block) in (first..).zip(bytes.chunks_mut(self.block)) {
            content(version, at, block);
        }
        match client.ask(ask, first * self.block as u64, bytes) {
            Ok(()) => {
                locked(&self.oracle).answered(&ticket, true);
                if ask != Ask::Trim {
                    let mut excused = locked(&self.excused);
                    excused.retain(|block| !(first..first + count).contains(block));
                }
                Some(())
            }
            Err(error) => {
                locked(&self.oracle).unanswered(&ticket);
                locked(&self.cut).extend(first..first + count);
                self.note_error(&format!("{ask:?} of block {first}"), error)
            }
        }
    }

    /// Reads everything.
    pub(crate) fn verify(&self, client: &mut Client) -> Option<()> {
        let mut bytes = vec![0; CHUNK];
        let step = (CHUNK / self.block) as u64;
        let mut first = 0;
        while first < self.blocks {
            let count = step.min(self.blocks - first);
            self.read(client, first, &mut bytes[..count as usize * self.block])?;
            first += count;
        }
        Some(())
    }

    /// One random request.
    fn step(&self, client: &mut Client, rng: &mut Prng, mix: Mix, bytes: &mut [u8]) -> Option<()> {
        let block = self.block as u64;
        // Mostly a few blocks; now and then several stripes.
        let most = (LONGEST / block).min(self.blocks);
        let count = match rng.weighted(&[40, 40, 20]) {
            0 => rng.range(1, 4.min(most)),
            1 => rng.range(1, 32.min(most)),
            _ => rng.range(1, most),
        };
        let field = if rng.percent(50) {
            (HOT / block).min(self.blocks)
        } else {
            self.blocks
        };
        let first = rng.below(field.max(count) - count + 1);
        let bytes = &mut bytes[..(count * block) as usize];
        self.requests.fetch_add(1, Ordering::Relaxed);
        let fua = rng.percent(20);
        let drawn = rng.weighted(&[if mix.writes { 58 } else { 0 }, 35, 3, 2, 2]);
        match drawn {
            0 => self.change(client, Ask::Write { fua }, first, bytes),
            2 if mix.writes => self.change(client, Ask::Zeroes { fua }, first, bytes),
            3 if mix.writes => self.change(client, Ask::Trim, first, bytes),
            4 => match client.ask(Ask::Flush, 0, &mut []) {
                Ok(()) => Some(()),
                Err(error) => self.note_error("a flush", error),
            },
            _ => self.read(client, first, bytes),
        }
    }
}

/// What the load is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) users: u64,
    pub(crate) writes: bool,
}

/// Users at work.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    users: Vec<JoinHandle<()>>,
}

impl Load {
    /// Sets users to work on the socket.
    pub(crate) fn start(field: &Arc<Field>, socket: &Path, seed: u64, mix: Mix) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let users = (0..mix.users)
            .map(|user| {
                let (field, stop) = (Arc::clone(field), Arc::clone(&stop));
                let socket: PathBuf = socket.to_owned();
                std::thread::spawn(move || {
                    // A server that was killed already takes no connection.
                    let Ok(mut client) = Client::open(&socket) else {
                        return;
                    };
                    let mut rng = Prng::new(seed ^ (user << 48), Purpose::Workload);
                    let mut bytes = vec![0; LONGEST as usize];
                    while !stop.load(Ordering::Relaxed)
                        && field.fault().is_none()
                        && field.step(&mut client, &mut rng, mix, &mut bytes).is_some()
                    {
                    }
                })
            })
            .collect();
        Load { stop, users }
    }

    /// Ends it; every request has been answered, or was cut off.
    pub(crate) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for user in self.users {
            user.join().expect("no user of the array panics");
        }
    }
}
