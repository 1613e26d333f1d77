//! Members without an array: one thread and one ring for each job, requests in turns on all
//! members. What this takes is the ground of every ceiling.
//!
//! Invariant: the same code of the runtime, the same number of threads, the same depth and the same
//! work for each request (stamps, clocks, histogram) as in front of an array.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context, Result};
use strake_engine::event::{IoKind, WritePurpose};
use strake_engine::{Buf, SharedPool, Slice};
use strake_runtime::{Device, OpenMode, RawMembers};

use crate::load::{Job, Limit, Load, Place, Space, Tally};
use crate::meter::{Sample, Subject, Watch};
use crate::stamp::{BLOCK, Patterns};

/// Memory of a job for what it writes (and, raw, for as much that it reads): classes of buffers
/// with so many buffers that a write that releases its buffer a little after its answer delays no
/// other.
pub(crate) const STOCK: [(usize, usize); 4] =
    [(BLOCK, 128), (64 << 10, 64), (128 << 10, 64), (1 << 20, 24)];

/// Fills all buffers of a pool with patterns.
pub(crate) fn prepare(pool: &SharedPool, patterns: &Patterns) {
    let mut all: Vec<Buf> = STOCK
        .iter()
        .flat_map(|&(bytes, count)| (0..count).map(move |_| bytes))
        .map_while(|bytes| pool.take(bytes))
        .collect();
    for (at, buf) in all.iter_mut().enumerate() {
        patterns.fill(buf.bytes_mut(), at);
    }
}

/// A buffer for a write: of the pool, or, where everything is held, a new one.
pub(crate) fn payload(pool: &SharedPool, patterns: &Patterns, bytes: usize) -> Buf {
    pool.take(bytes).unwrap_or_else(|| {
        let mut buf = Buf::zeroed(bytes);
        patterns.fill(buf.bytes_mut(), 0);
        buf
    })
}

type Order = (Load, Limit, bool);

/// A thread, and the ways to it and back.
struct Hand {
    orders: Sender<Order>,
    results: Receiver<Result<Tally>>,
    thread: JoinHandle<()>,
}

/// See the module.
pub(crate) struct Raw {
    hands: Vec<Hand>,
}

impl Raw {
    /// Files for `members` members in `dir`, filled.
    pub(crate) fn new(
        dir: &Path,
        members: u64,
        member_bytes: u64,
        jobs: u16,
        patterns: &Arc<Patterns>,
    ) -> Result<Raw> {
        let mut devices = Vec::new();
        for at in 0..members {
            let path = dir.join(format!("raw{at}"));
            std::fs::File::create(&path)?.set_len(member_bytes)?;
            devices.push(Arc::new(Device::open(&path, OpenMode::Member)?));
        }
        let share = (member_bytes / u64::from(jobs)) >> 20 << 20;
        let mut hands = Vec::new();
        for at in 0..u64::from(jobs) {
            let space = Space {
                lanes: members,
                stride: member_bytes,
                first: at * share,
                bytes: share,
            };
            let job = Job::new(space, Arc::clone(patterns));
            let (devices, patterns) = (devices.clone(), Arc::clone(patterns));
            let ((orders, ordered), (done, results)) = (channel(), channel());
            let thread = std::thread::Builder::new()
                .name(format!("raw-{at}"))
                .spawn(move || obey(job, &devices, &patterns, &ordered, &done))?;
            hands.push(Hand {
                orders,
                results,
                thread,
            });
        }
        let mut raw = Raw { hands };
        raw.fill()?;
        Ok(raw)
    }

    /// Ends the threads and closes the members.
    pub(crate) fn close(self) -> Result<()> {
        for hand in self.hands {
            drop(hand.orders);
            let ended = hand.thread.join();
            ended.map_err(|_| anyhow::anyhow!("a raw thread has panicked"))?;
        }
        Ok(())
    }
}

impl Subject for Raw {
    fn run(&mut self, load: Load, limit: &Limit, check: bool) -> Result<Sample> {
        let watch = Watch::start();
        for hand in &self.hands {
            let order = (load, limit.clone(), check);
            hand.orders.send(order).context("a raw thread has ended")?;
        }
        let tallies = self
            .hands
            .iter()
            .map(|hand| hand.results.recv().context("a raw thread has ended")?)
            .collect::<Result<Vec<_>>>()?;
        watch.stop(load, &tallies, None)
    }
}

/// A thread: one load after the other.
fn obey(
    job: Job,
    devices: &[Arc<Device>],
    patterns: &Patterns,
    ordered: &Receiver<Order>,
    done: &Sender<Result<Tally>>,
) {
    let (writes, reads) = (SharedPool::new(&STOCK), SharedPool::new(&STOCK));
    prepare(&writes, patterns);
    let mut lane = match RawMembers::new(devices, &[&writes, &reads]) {
        Ok(members) => Lane {
            members,
            job,
            writes,
            reads,
        },
        Err(error) => {
            // Nobody listens where the bench has ended already.
            let _ = done.send(Err(error).context("set up io_uring"));
            return;
        }
    };
    for (load, limit, check) in ordered {
        lane.job.begin(load, &limit, check);
        if done.send(lane.run(patterns)).is_err() {
            return;
        }
    }
}

struct Lane {
    members: RawMembers,
    job: Job,
    writes: SharedPool,
    reads: SharedPool,
}

impl Lane {
    fn run(&mut self, patterns: &Patterns) -> Result<Tally> {
        for slot in 0..self.job.load().depth {
            self.give(slot, Instant::now(), patterns);
        }
        let mut finished = Vec::new();
        while self.members.in_flight() > 0 {
            self.members.wait(&mut finished)?;
            for completion in finished.drain(..) {
                let now = Instant::now();
                let slot = completion.io.0 as usize;
                let read = completion.buf.as_ref().map(|buf| buf.bytes());
                let bytes = self.job.load().bytes;
                let parts = read.map(|all| &all[..bytes]).into_iter();
                let result = completion.result.map(|()| parts);
                let result = result.map_err(|error| format!("{error:?}"));
                self.job.answered(slot, now, result);
                drop(completion.buf);
                self.give(slot, now, patterns);
            }
        }
        Ok(self.job.tally().clone())
    }

    fn give(&mut self, slot: usize, now: Instant, patterns: &Patterns) {
        let load = self.job.load();
        let Some(place) = self.job.next(slot, now) else {
            return;
        };
        let Place { lane, offset } = place;
        let kind = if load.write {
            let mut buf = payload(&self.writes, patterns, load.bytes);
            self.job.stamp(place, &mut buf.bytes_mut()[..load.bytes]);
            IoKind::Write {
                offset,
                data: Slice::new(buf, 0, load.bytes),
                fua: false,
                purpose: WritePurpose::Data,
            }
        } else {
            let buf = self.reads.take(load.bytes);
            IoKind::Read {
                offset,
                buf: buf.expect("reads hold no buffer beyond their completion"),
                start: 0,
                len: load.bytes,
            }
        };
        let member = u32::try_from(lane).expect("few members");
        self.members.start(member, slot as u64, kind);
    }
}
