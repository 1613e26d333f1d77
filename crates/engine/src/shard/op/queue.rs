//! The order of operations on a stripe: which may start, which wait, which writes become one.
//!
//! Invariants:
//! * Two operations with byte ranges that overlap in one stripe never run at the same time, unless
//!   both only read; among those that overlap, the order is that of arrival.
//! * What waits for its stream to go on (see `coalesce`) keeps its place in the order, and waits no
//!   more once something else waits for it.
//!
//! Deliberately absent: what an operation does (see `op`).

use std::collections::VecDeque;

use crate::canary::{self, Canary};
use crate::mem::list::{List, listed};
use crate::shard::Shard;
use crate::shard::coalesce::Streams;
use crate::shard::op::kind::Kind;
use crate::shard::op::work::Work;
use crate::shard::op::{CountsAs, StripeOp};
use crate::shard::op_table::Ops;
use crate::units::*;

/// Operations on a stripe: those at work and those waiting, in order of arrival.
#[derive(Default)]
struct Lock {
    active: List<Held, 2>,
    queue: VecDeque<Work>,
}

/// The stripes that something is going on in.
#[derive(Default)]
pub(crate) struct StripeQueue {
    /// Nobody goes through them: they have no order.
    locks: rustc_hash::FxHashMap<StripeNo, Lock>,
    /// Memory of locks that are over, for the next.
    idle: Vec<Lock>,
    /// Stripes with a queue that may have something to start.
    ready: VecDeque<StripeNo>,
}

/// Ranges that something at work or waiting stands on, and whether it only reads.
type Blocked = List<(u64, u64, bool), 4>;

struct Held {
    op: usize,
    lo: u64,
    hi: u64,
    shared: bool,
}

listed!(Held, Work);

impl Lock {
    /// See the module.
    fn check(&self, stripe: StripeNo, ops: &Ops, streams: bool) -> Result<(), String> {
        let stripe_no = stripe.0;
        for (at, held) in self.active.iter().enumerate() {
            let Held { op, lo, hi, shared } = *held;
            ensure!(
                ops.contains(op) && ops[op].stripe == stripe,
                "stripe {stripe_no} holds {lo}..{hi} for operation {op}, which is not at work there"
            );
            let work = &ops[op];
            ensure!(
                (work.lo, work.hi, work.kind.shared()) == (lo, hi, shared),
                "operation {op} works on {}..{} of stripe {stripe_no} and holds {lo}..{hi}",
                work.lo,
                work.hi
            );
            let overlaps =
                |other: &&Held| lo < other.hi && other.lo < hi && !(shared && other.shared);
            if let Some(other) = self.active[at + 1..].iter().find(overlaps) {
                return Err(format!(
                    "operations {op} on {lo}..{hi} and {} on {}..{} of stripe {stripe_no} overlap",
                    other.op, other.lo, other.hi
                ));
            }
        }
        ensure!(
            !self.active.is_empty() || !self.queue.is_empty() && streams,
            "stripe {stripe_no}: {} pieces of work wait, and nothing that ends",
            self.queue.len()
        );
        Ok(())
    }
}

impl StripeQueue {
    /// Queues work on a stripe; it starts at the next `poll`.
    pub(crate) fn enqueue(&mut self, stripe: StripeNo, work: Work) {
        let idle = || self.idle.pop().unwrap_or_default();
        let lock = self.locks.entry(stripe).or_insert_with(idle);
        lock.queue.push_back(work);
        self.ready.push_back(stripe);
    }

    /// A stripe that may have something to start.
    pub(crate) fn next_ready(&mut self) -> Option<StripeNo> {
        self.ready.pop_front()
    }

    /// No stripe may have anything to start.
    pub(crate) fn none_ready(&self) -> bool {
        self.ready.is_empty()
    }

    /// Something waits for the stripe.
    pub(crate) fn is_pressed(&self, stripe: StripeNo) -> bool {
        let lock = self.locks.get(&stripe);
        lock.is_some_and(|lock| !lock.queue.is_empty())
    }

    /// An operation has its range of the stripe.
    pub(crate) fn hold(&mut self, stripe: StripeNo, op: usize, lo: u64, hi: u64, shared: bool) {
        let lock = self.locks.get_mut(&stripe);
        let lock = lock.expect("it has active operations");
        lock.active.push(Held { op, lo, hi, shared });
    }

    /// An operation is over: what waited for its range may start.
    fn release(&mut self, stripe: StripeNo, op: usize) {
        if let Some(lock) = self.locks.get_mut(&stripe) {
            lock.active.retain(|held| held.op != op);
        }
        self.ready.push_back(stripe);
    }

    /// Keeps the memory of a lock for the next if nothing is left of it.
    fn tidy(&mut self, stripe: StripeNo) {
        let lock = self.locks.get(&stripe);
        if lock.is_some_and(|lock| lock.active.is_empty() && lock.queue.is_empty()) {
            self.idle.extend(self.locks.remove(&stripe));
        }
    }

    /// What waits on any stripe, in no order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Work> {
        self.locks.values().flat_map(|lock| &lock.queue)
    }

    /// See the module.
    pub(crate) fn check(&self, ops: &Ops, streams: &Streams) -> Result<(), String> {
        let mut held = 0;
        for (&stripe, lock) in &self.locks {
            lock.check(stripe, ops, streams.waits(stripe))?;
            held += lock.active.len();
        }
        ensure!(
            held == ops.len(),
            "{} operations are at work, and {held} hold their range",
            ops.len()
        );
        Ok(())
    }
}

impl Shard {
    /// Starts everything on the stripe that nothing before it stands in the way of; without
    /// `at_once`, parts of streams may wait for more.
    pub(crate) fn pump(&mut self, stripe: StripeNo, at_once: bool) {
        let unit = self.logs.run_bytes();
        let worth = match at_once {
            true => 0,
            false => self.worth_waiting_for(stripe, unit),
        };
        // What waits for more, and whether something waits for that.
        let (mut kept, mut pressed) = (Blocked::new(), false);
        let Some(lock) = self.queue.locks.get_mut(&stripe) else {
            return;
        };
        let mut blocked: Blocked = lock.active.iter().map(|h| (h.lo, h.hi, h.shared)).collect();
        let mut at = 0;
        let mut start: List<Work, 2> = List::new();
        while at < lock.queue.len() {
            let work = &lock.queue[at];
            let (lo, hi, shared) = (work.lo, work.hi, work.shared());
            if conflicts(&blocked, lo, hi, shared) {
                pressed |= conflicts(&kept, lo, hi, shared);
                blocked.push((lo, hi, shared));
                at += 1;
                continue;
            }
            let mut work = lock.queue.remove(at).expect("the index was checked");
            // Without parity there is nothing to be gained by it, and a gap would have to be read.
            if self.map.geometry().m > 0 {
                gather(&mut work, &mut lock.queue, at, &blocked, unit);
            }
            blocked.push((work.lo, work.hi, shared));
            if work.streamed_bytes().is_some_and(|bytes| bytes < worth) {
                kept.push((work.lo, work.hi, shared));
                lock.queue.insert(at, work);
                at += 1;
                continue;
            }
            start.push(work);
        }
        let waits = !kept.is_empty() && !pressed;
        self.streams.note_waiting(stripe, waits, self.out.now());
        for work in start.drain() {
            let (lo, hi, shared) = (work.lo, work.hi, work.shared());
            let op = self.ops.insert(stripe, &self.map, work);
            self.queue.hold(stripe, op, lo, hi, shared);
            self.start_op(op);
        }
        self.queue.tidy(stripe);
        if pressed {
            self.pump(stripe, true);
        }
    }

    /// Nothing else is at work, so nothing may wait.
    fn must_go(&self) -> bool {
        let idle = self.ops.is_empty() && self.out.none_in_flight();
        idle || self.map.closed().is_some()
    }

    /// How many bytes of a stream are worth waiting for in this stripe, in runs of `unit` bytes.
    fn worth_waiting_for(&self, stripe: StripeNo, unit: u64) -> u64 {
        // Without parity writes are not gathered, and copies are whole by themselves.
        let plain = self.map.geometry().m == 0 || self.map.geometry().mirrored();
        if plain || self.must_go() {
            return 0;
        }
        let whole = unit * self.map.shape(stripe).k as u64;
        self.streams.worth_waiting_for(stripe, whole, &self.map)
    }

    /// Starts what has waited long enough or has nothing to wait for any more, and all that waits
    /// if nothing else is at work.
    pub(crate) fn let_go(&mut self) -> bool {
        let mut any = false;
        while self.streams.any_waits()
            && let (now, must_go) = (self.out.now(), self.must_go())
            && let Some(stripe) = self.streams.next_to_go(now, must_go, &self.map)
        {
            self.pump(stripe, true);
            any = true;
        }
        any
    }

    /// Removes an operation and lets the stripe's next go on.
    pub(crate) fn retire(&mut self, op: usize) -> Box<StripeOp> {
        let done = self.ops.remove(op);
        if let Some(began) = done.began
            && let Kind::Write(write) = &done.kind
            && write.asked.streamed_bytes().is_some()
        {
            self.streams.took(self.out.now().since(began));
        }
        self.queue.release(done.stripe, op);
        // What ends because the array has failed may be half in place: its records still count.
        if let Some(operation) = done.operation.filter(|_| !self.map.view().failed) {
            self.logs.over(operation);
        }
        self.logs.drained(op, &mut self.out);
        if done.counts != CountsAs::Nothing {
            let wrote = done.counts == CountsAs::Writer;
            self.gates
                .leave(done.region, wrote, &self.logs, &mut self.out);
        }
        done
    }
}

/// Does anything at work or waiting before stand in the way of this range?
fn conflicts(blocked: &[(u64, u64, bool)], lo: u64, hi: u64, shared: bool) -> bool {
    if canary::hit(Canary::NoStripeOrder) {
        return false;
    }
    blocked
        .iter()
        .any(|&(l, h, s)| lo < h && l < hi && !(s && shared))
}

/// Adds to a write those writes waiting after it that touch its run and that nothing else stands
/// before.
fn gather(
    work: &mut Work,
    queue: &mut VecDeque<Work>,
    from: usize,
    blocked: &[(u64, u64, bool)],
    unit: u64,
) {
    if !work.is_write() {
        return;
    }
    let mut passed = Blocked::new();
    let mut at = from;
    while at < queue.len() {
        let next = &queue[at];
        let touches = next.is_write() && next.lo <= work.hi && work.lo <= next.hi;
        let (lo, hi) = (work.lo.min(next.lo), work.hi.max(next.hi));
        let one_run = lo / unit == (hi - 1) / unit;
        let free = canary::hit(Canary::GatherDropsOrder)
            || !conflicts(blocked, lo, hi, false) && !conflicts(&passed, lo, hi, false);
        if touches && one_run && free {
            let next = queue.remove(at).expect("the index was checked");
            work.absorb(next);
        } else {
            passed.push((next.lo, next.hi, next.shared()));
            at += 1;
        }
    }
}
