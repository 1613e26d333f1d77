//! Load: sequential passes and a random mixture, every block written and read known to the oracle.
//!
//! Invariants: every block has one writer at a time (sequential passes hand out pieces once; in the
//! mixture worker w of n owns the units w, w + n, …); every byte read is judged. Deliberately
//! absent: rates that leave checking out; they are measured with it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::common::errors::Failure;
use crate::demo::interrupt;
use crate::demo::oracle::{BLOCK, Oracle, Verdict};
use crate::demo::target::{Aligned, Target};

/// Blocks of one request of a sequential pass: 1 MiB.
const PIECE: usize = 256;
/// Blocks that a worker of the mixture owns in one place: 64 KiB.
const UNIT: usize = 16;
const SEQUENTIAL_WORKERS: usize = 8;
const MIXTURE_WORKERS: usize = 16;
/// How often a block that was being written is read again before it is left alone.
const LOOKS: usize = 50;

/// What load works on.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) target: Arc<Target>,
    pub(crate) oracle: Arc<Oracle>,
}

impl Field {
    fn write(&self, buffer: &mut Aligned, first: usize, count: usize) -> io::Result<()> {
        let bytes = buffer.get(count * BLOCK);
        self.oracle.next(first, bytes);
        self.target.write((first * BLOCK) as u64, bytes)?;
        self.oracle.acknowledged(first, count);
        Ok(())
    }

    fn read(&self, buffer: &mut Aligned, first: usize, count: usize) -> io::Result<()> {
        let low = self.oracle.before(first, count);
        let bytes = buffer.get(count * BLOCK);
        self.target.read((first * BLOCK) as u64, bytes)?;
        let mut moving = Vec::new();
        for (i, block) in bytes.chunks_exact(BLOCK).enumerate() {
            match self.oracle.judge(first + i, block, low[i]) {
                Verdict::Moving => moving.push(first + i),
                verdict => self.report(verdict, first + i),
            }
        }
        for block in moving {
            self.look_again(buffer, block)?;
        }
        Ok(())
    }

    fn look_again(&self, buffer: &mut Aligned, block: usize) -> io::Result<()> {
        for _ in 0..LOOKS {
            let low = self.oracle.before(block, 1);
            let bytes = buffer.get(BLOCK);
            self.target.read((block * BLOCK) as u64, bytes)?;
            match self.oracle.judge(block, bytes, low[0]) {
                Verdict::Moving => thread::sleep(Duration::from_millis(1)),
                verdict => {
                    self.report(verdict, block);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn report(&self, verdict: Verdict, block: usize) {
        self.oracle.count(verdict);
        if matches!(verdict, Verdict::Lost | Verdict::Wrong) {
            let seen = self.oracle.mismatches() + self.oracle.lost();
            if seen <= 10 {
                tell!("block {block}: {verdict:?}");
            }
        }
    }

    /// Writes or reads everything once, in order, and answers bytes per second.
    pub(crate) fn pass(&self, write: bool, progress: impl Fn(u64) + Sync) -> io::Result<u64> {
        let started = Instant::now();
        let next = AtomicUsize::new(0);
        let done = AtomicU64::new(0);
        let blocks = self.oracle.blocks();
        let work = || -> io::Result<()> {
            let mut buffer = Aligned::new(PIECE * BLOCK);
            loop {
                interrupt::check_io()?;
                let first = next.fetch_add(PIECE, Ordering::Relaxed);
                if first >= blocks {
                    return Ok(());
                }
                let count = PIECE.min(blocks - first);
                match write {
                    true => self.write(&mut buffer, first, count)?,
                    false => self.read(&mut buffer, first, count)?,
                }
                let bytes = (count * BLOCK) as u64;
                progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes);
            }
        };
        thread::scope(|scope| {
            let begin = |_| strake_runtime::spawn_scoped_thread(scope, "load", work);
            let workers: io::Result<Vec<_>> = (0..SEQUENTIAL_WORKERS).map(begin).collect();
            workers?.into_iter().try_for_each(joined)
        })?;
        if write {
            self.target.flush()?;
        }
        let seconds = started.elapsed().as_secs_f64().max(1e-6);
        Ok(((blocks * BLOCK) as f64 / seconds) as u64)
    }
}

fn joined(worker: thread::ScopedJoinHandle<'_, io::Result<()>>) -> io::Result<()> {
    worker
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("a worker of the load panicked")))
}

/// A random mixture that runs until it is stopped.
#[derive(Debug)]
pub(crate) struct Mixture {
    stop: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    requests: AtomicU64,
    trouble: Mutex<Option<String>>,
}

/// xorshift64: the load needs no better randomness.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

impl Mixture {
    /// Half writes of 4 to 64 KiB, half reads; a flush now and then.
    pub(crate) fn start(field: &Field, seed: u64) -> Result<Mixture, Failure> {
        // Those that have begun end with it.
        let mut mixture = Mixture {
            stop: Arc::default(),
            workers: Vec::new(),
            shared: Arc::default(),
        };
        for w in 0..MIXTURE_WORKERS {
            let field = field.clone();
            let (stop, shared) = (mixture.stop.clone(), mixture.shared.clone());
            let mut dice = Dice((seed ^ (w as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
            let work = move || {
                while !stop.load(Ordering::Relaxed) {
                    if let Err(error) = step(&field, w, &mut dice) {
                        let mut trouble = shared.trouble.lock().expect("never held in a panic");
                        trouble.get_or_insert(error.to_string());
                        return;
                    }
                    shared.requests.fetch_add(1, Ordering::Relaxed);
                }
            };
            let worker = strake_runtime::spawn_thread("load", work);
            let worker = worker.map_err(|error| Failure::io("beginning the load", &error))?;
            mixture.workers.push(worker);
        }
        Ok(mixture)
    }
    /// Requests answered so far.
    pub(crate) fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
    /// What stopped a worker.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.shared
            .trouble
            .lock()
            .expect("never held in a panic")
            .clone()
    }
    /// Ends it, every write answered.
    pub(crate) fn stop(mut self) -> Result<u64, String> {
        self.stop.store(true, Ordering::Relaxed);
        for worker in std::mem::take(&mut self.workers) {
            if worker.join().is_err() {
                return Err("a worker of the load panicked".to_owned());
            }
        }
        let trouble = self
            .shared
            .trouble
            .lock()
            .expect("never held in a panic")
            .take();
        trouble.map_or(Ok(self.shared.requests.load(Ordering::Relaxed)), Err)
    }
}

impl Drop for Mixture {
    /// Also where the play ends early: nothing may use the block device when that goes.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            // What it had to say is of no interest any more.
            let _ = worker.join();
        }
    }
}

fn step(field: &Field, worker: usize, dice: &mut Dice) -> io::Result<()> {
    let units = field.oracle.blocks() / UNIT;
    let mut buffer = Aligned::new(UNIT * BLOCK);
    let count = 1 + dice.below(UNIT);
    let within = dice.below(UNIT - count + 1);
    match dice.below(100) {
        0 => field.target.flush(),
        1..50 => {
            let own = worker + MIXTURE_WORKERS * dice.below(units / MIXTURE_WORKERS);
            field.write(&mut buffer, own * UNIT + within, count)
        }
        _ => field.read(&mut buffer, dice.below(units) * UNIT + within, count),
    }
}
