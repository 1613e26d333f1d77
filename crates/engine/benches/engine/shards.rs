//! Two shards on two threads beside one on one: what a second core adds.
//!
//! Each thread asks as a queue of the block device does, of the whole array: half of what it asks
//! is the other shard's. As in the runtime, reads are done by the shard that was asked, and writes
//! and their answers travel in batches, one lock for many. The ceiling is what the machine gives:
//! two arrays that have nothing to do with each other, on one thread each. Two virtual CPUs are
//! often one core.
//!
//! Deliberately absent: sleeping. A thread without work looks for it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Array, Buf, Pool, Router, Shard, Slice, Target, limits};
use strake_format::{Level, WriteHole};

use crate::meter::median;
use crate::rig::{Sequence, Shape, assembled, at_once};

/// Requests under way on each thread.
const DEPTH: usize = 64;
const BYTES: u64 = 4096;
/// So many of 100 requests of the mix are reads.
const READS_PERCENT: u64 = 70;

/// What others have for a thread.
#[derive(Default)]
struct Post {
    pieces: Vec<Request>,
    replies: Vec<Reply>,
    messages: Vec<ToShard>,
}

impl Post {
    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.replies.is_empty() && self.messages.is_empty()
    }

    fn take_all(&mut self, other: &mut Post) {
        self.pieces.append(&mut other.pieces);
        self.replies.append(&mut other.replies);
        self.messages.append(&mut other.messages);
    }
}

/// The array, its members, and the threads' letter boxes.
struct Common {
    array: Mutex<(Array, Vec<Vec<u8>>)>,
    kept_below: u64,
    boxes: Vec<Letterbox>,
}

/// A check for new mail takes no lock.
#[derive(Default)]
#[repr(align(128))]
struct Letterbox {
    full: AtomicBool,
    post: Mutex<Post>,
}

impl Letterbox {
    fn put(&self, put: impl FnOnce(&mut Post)) {
        put(&mut self.post.lock().expect("no panic"));
        self.full.store(true, Ordering::Release);
    }

    fn empty_into(&self, inbox: &mut Post) {
        if self.full.swap(false, Ordering::Acquire) {
            inbox.take_all(&mut self.post.lock().expect("no panic"));
        }
    }
}

impl Common {
    /// Has the array do what it has to.
    fn drive(&self, array: &mut Array, disks: &mut [Vec<u8>]) {
        let post = |shard: u16| &self.boxes[usize::from(shard)];
        while let Some(output) = array.poll() {
            match output {
                ArrayOutput::Io(io) => {
                    let disk = &mut disks[io.device.0 as usize];
                    let done = at_once(disk, self.kept_below, io);
                    array.complete(Time(0), done);
                }
                ArrayOutput::Message(shard, message) => {
                    post(shard.0).put(|post| post.messages.push(message))
                }
                ArrayOutput::Reply(reply) => {
                    post(Router::queue_of(reply.id)).put(|post| post.replies.push(reply))
                }
                _ => {}
            }
        }
    }

    fn tell(&self, shard: ShardNo, message: FromShard) {
        let (array, disks) = &mut *self.array.lock().expect("no panic");
        array.message(Time(0), shard, message);
        self.drive(array, disks);
    }
}

/// What a thread has, in cache lines of its own.
#[repr(align(128))]
struct Lane {
    number: u16,
    shard: Shard,
    router: Router,
    sequence: Sequence,
    /// A buffer for each of many requests, as users have: none is shared.
    payloads: Vec<Buf>,
    size: u64,
    asked: u64,
    answered: u64,
    /// What is on its way to each thread.
    out: Vec<Post>,
    inbox: Post,
    pieces: Vec<(Target, Request)>,
    /// One reading of the clock for each turn.
    clock: Instant,
    now: Time,
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Every stripe is written.
    Fill,
    Mix,
}

impl Lane {
    fn op(&mut self, load: Load) -> Op {
        let random = self.sequence.next();
        let (offset, read, len) = match load {
            Load::Fill => (self.asked * (64 << 10) % self.size, false, 64 << 10),
            Load::Mix => {
                let read = (random >> 40) % 100 < READS_PERCENT;
                (random % (self.size / BYTES) * BYTES, read, BYTES)
            }
        };
        if read {
            return Op::Read { offset, len };
        }
        let payload = &self.payloads[self.asked as usize % self.payloads.len()];
        let data = Slice::new(payload.clone(), 0, len as usize);
        let fua = false;
        Op::Write { offset, data, fua }
    }

    fn ask(&mut self, load: Load, common: &Common) {
        let op = self.op(load);
        self.asked += 1;
        let id = RequestId(self.asked);
        let request = Request { id, op };
        let refused = self.router.route(request, &mut self.pieces);
        assert!(refused.is_none(), "every request is a good one");
        for (target, piece) in self.pieces.drain(..) {
            match target {
                Target::Shard(ShardNo(shard)) if shard == self.number => {
                    self.shard.submit(self.now, piece);
                }
                Target::Shard(owner) if matches!(piece.op, Op::Read { .. }) => {
                    self.shard.read_remote(self.now, owner, piece);
                }
                Target::Shard(ShardNo(shard)) => self.out[usize::from(shard)].pieces.push(piece),
                Target::Array => {
                    let (array, disks) = &mut *common.array.lock().expect("no panic");
                    array.submit(self.now, piece);
                    common.drive(array, disks);
                }
            }
        }
    }

    fn answer(&mut self, reply: Reply) {
        let home = Router::queue_of(reply.id);
        if home != self.number {
            return self.out[usize::from(home)].replies.push(reply);
        }
        if let Some(reply) = self.router.join(reply) {
            assert!(reply.result.is_ok(), "requests succeed");
            self.answered += 1;
        }
    }

    /// Goes on with what there is; false if that was nothing.
    fn turn(&mut self, common: &Common) -> bool {
        let mut busy = false;
        self.now = Time(self.clock.elapsed().as_nanos() as u64);
        if self.shard.deadline().is_some_and(|at| at <= self.now) {
            self.shard.tick(self.now);
        }
        common.boxes[usize::from(self.number)].empty_into(&mut self.inbox);
        for message in std::mem::take(&mut self.inbox.messages) {
            (busy, _) = (true, self.shard.message(self.now, message));
        }
        let mut pieces = std::mem::take(&mut self.inbox.pieces);
        let mut replies = std::mem::take(&mut self.inbox.replies);
        busy |= !pieces.is_empty() || !replies.is_empty();
        pieces
            .drain(..)
            .for_each(|piece| self.shard.submit(self.now, piece));
        replies.drain(..).for_each(|reply| self.answer(reply));
        (self.inbox.pieces, self.inbox.replies) = (pieces, replies);
        while let Some(output) = self.shard.poll() {
            busy = true;
            match output {
                ShardOutput::Io(io) => self.shard.complete(self.now, at_once(&mut [], 0, io)),
                ShardOutput::Message(message) => common.tell(ShardNo(self.number), message),
                ShardOutput::Reply(reply) => self.answer(reply),
                ShardOutput::Pass(owner, piece, _) => {
                    self.out[usize::from(owner.0)].pieces.push(piece);
                }
                ShardOutput::Again(_) | ShardOutput::WriteToken(..) => {
                    unreachable!("no data moves, and nothing is rebuilt")
                }
            }
        }
        for (post, out) in common.boxes.iter().zip(&mut self.out) {
            if !out.is_empty() {
                post.put(|post| post.take_all(out));
            }
        }
        busy
    }

    /// Asks so many requests, and serves until every thread has its answers.
    fn work(&mut self, load: Load, requests: u64, common: &Common, at_work: &AtomicUsize) {
        (self.asked, self.answered) = (0, 0);
        let mut mine = true;
        while at_work.load(Ordering::Acquire) > 0 {
            while self.asked < requests && self.asked - self.answered < DEPTH as u64 {
                self.ask(load, common);
            }
            let busy = self.turn(common);
            if mine && self.answered == requests {
                at_work.fetch_sub(1, Ordering::AcqRel);
                mine = false;
            }
            if !busy {
                std::hint::spin_loop();
            }
        }
    }
}

/// An array with as many threads as it has shards.
struct Rig {
    common: Common,
    lanes: Vec<Lane>,
}

impl Rig {
    fn new(shape: Shape, write_hole: WriteHole, shards: u16) -> Rig {
        let (mut array, disks, kept_below) = assembled(shape, 64 << 10, write_hole, shards);
        let geometry = array.geometry().clone();
        let clock = Instant::now();
        let lane = |number: u16, setup| {
            let pool = Pool::new(&limits::stock(&geometry, 64 << 20));
            Lane {
                number,
                shard: Shard::new(ShardNo(number), shards, setup, pool),
                router: Router::new(geometry.clone(), shards, number),
                sequence: Sequence(u64::from(number) + 1),
                payloads: (0..2 * DEPTH).map(|_| Buf::zeroed(64 << 10)).collect(),
                size: geometry.size(),
                asked: 0,
                answered: 0,
                out: (0..shards).map(|_| Post::default()).collect(),
                inbox: Post::default(),
                pieces: Vec::new(),
                clock,
                now: Time(0),
            }
        };
        let lanes = (0..shards).map(|n| lane(n, array.setup())).collect();
        array.start(Time(0));
        let mut rig = Rig {
            common: Common {
                array: Mutex::new((array, disks)),
                kept_below,
                boxes: (0..shards).map(|_| Letterbox::default()).collect(),
            },
            lanes,
        };
        {
            let (array, disks) = &mut *rig.common.array.lock().expect("no panic");
            rig.common.drive(array, disks);
        }
        for _ in 0..8 {
            rig.lanes.iter_mut().for_each(|lane| {
                lane.turn(&rig.common);
            });
        }
        let all = rig.lanes[0].size / (64 << 10);
        run(std::slice::from_mut(&mut rig), Load::Fill, all);
        rig
    }
}

/// Requests each second, of all threads of these arrays together, of which each asks so many.
fn run(rigs: &mut [Rig], load: Load, requests: u64) -> f64 {
    let threads: usize = rigs.iter().map(|rig| rig.lanes.len()).sum();
    let at_work: Vec<AtomicUsize> = rigs
        .iter()
        .map(|rig| AtomicUsize::new(rig.lanes.len()))
        .collect();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (rig, at_work) in rigs.iter_mut().zip(&at_work) {
            let common = &rig.common;
            for lane in &mut rig.lanes {
                scope.spawn(move || lane.work(load, requests, common, at_work));
            }
        }
    });
    threads as f64 * requests as f64 / begun.elapsed().as_secs_f64()
}

/// One shard, two shards, and two arrays of one shard each, round by round.
pub(crate) fn beside_one(rounds: usize) -> Vec<Value> {
    println!(
        "\nrandom 4K, {READS_PERCENT} % reads, {DEPTH} under way on each thread: \
         requests each second, medians of {rounds}"
    );
    println!(
        "{:<10} {:<8} {:>10} {:>10} {:>8} {:>12} {:>8} {:>11}",
        "array", "policy", "1 shard", "2 shards", "times", "two arrays", "times", "of ceiling"
    );
    let shapes = [
        ("5 of 5", (Level::Raid5, 5, None)),
        ("6 of 8", (Level::Raid6, 8, None)),
    ];
    let mut rows = Vec::new();
    let requests = if rounds == 1 { 20_000 } else { 400_000 };
    for (name, shape) in shapes {
        for policy in [WriteHole::Resync, WriteHole::Closed] {
            let rig = |shards| vec![Rig::new(shape, policy, shards)];
            let (mut one, mut two) = (rig(1), rig(2));
            let mut both = rig(1);
            both.extend(rig(1));
            let mut rates = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..rounds {
                for (rigs, rates) in [&mut one, &mut two, &mut both].into_iter().zip(&mut rates) {
                    rates.push(run(rigs, Load::Mix, requests));
                }
            }
            let [one, two, both] = rates.map(median);
            println!(
                "{name:<10} {:<8} {one:>10.0} {two:>10.0} {:>7.2}x {both:>12.0} {:>7.2}x {:>10.1}%",
                policy.to_string(),
                two / one,
                both / one,
                100.0 * two / both
            );
            rows.push(json!({
                "array": name, "policy": policy.to_string(), "depth": DEPTH,
                "one_shard_requests_per_s": one, "two_shards_requests_per_s": two,
                "two_arrays_requests_per_s": both, "times": two / one, "of_ceiling": two / both,
            }));
        }
    }
    rows
}
