//! What hedged reads do for the latency of reads, in simulated time: off and on side by side.
//!
//! Invariant: no clock is read here; members take times drawn from a reproducible sequence, so two
//! runs of one build show the same figures.
//!
//! Deliberately absent: the engine's own time. It counts for nothing here.

use serde_json::{Value, json};
use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Buf, Slice};
use strake_format::{Level, WriteHole};

use crate::rig::{Rig, Sequence, Shape};

/// A member I/O under simulated time: when it completes, and a number that keeps equal ones apart.
type Due = std::cmp::Reverse<(u64, u64)>;

/// Simulated latencies, nanoseconds: a member takes this long, give or take a quarter.
const USUAL_NS: u64 = 80_000;
/// One read in so many of one member takes a hundred times as long.
const SLOW_ONE_IN: u64 = 100;

/// An array that was written in full: regions that never were are not read.
fn filled(shape: Shape, hedging: bool) -> Rig {
    let mut rig = Rig::new(shape, 64 << 10, false, WriteHole::Resync);
    rig.array.command(
        Time(0),
        CommandId(2),
        Command::Set(Setting::HedgedReads(hedging)),
    );
    rig.rest();
    let payload = Buf::from_bytes(&vec![0xa5; 1 << 20]);
    for at in 0..rig.size() >> 20 {
        let data = Slice::new(payload.clone(), 0, 1 << 20);
        let (offset, fua) = (at << 20, false);
        rig.submit(Op::Write { offset, data, fua });
        rig.rest();
    }
    rig.replies.clear();
    rig
}

/// How long a member takes for a read.
fn read_ns(device: DeviceId, sequence: &mut Sequence) -> u64 {
    let ns = USUAL_NS * 3 / 4 + sequence.next() % (USUAL_NS / 2);
    match device == DeviceId(0) && sequence.next().is_multiple_of(SLOW_ONE_IN) {
        true => ns * 100,
        false => ns,
    }
}

/// Latencies of random reads in simulated time, sorted, and how many of them were hedged: `depth`
/// of them are in flight, and one member is slow now and then.
fn tail(shape: Shape, hedging: bool, depth: usize, requests: usize) -> (Vec<u64>, u64) {
    let mut rig = filled(shape, hedging);
    let mut sequence = Sequence(7);
    let mut due: std::collections::BinaryHeap<Due> = std::collections::BinaryHeap::new();
    let mut flights = std::collections::BTreeMap::new();
    let mut begun = std::collections::BTreeMap::new();
    let (mut now, mut number) = (Time(0), 0);
    let (mut latencies, mut warm) = (Vec::with_capacity(requests), requests / 10);
    let slots = rig.size() / 4096;
    while latencies.len() < requests {
        while begun.len() < depth {
            let offset = sequence.next() % slots * 4096;
            rig.next += 1;
            let id = RequestId(rig.next);
            begun.insert(id, now);
            let mut pieces = Vec::new();
            let op = Op::Read { offset, len: 4096 };
            rig.router.route(Request { id, op }, &mut pieces);
            for (_, piece) in pieces {
                rig.shard.submit(now, piece);
            }
        }
        loop {
            match rig.shard.poll() {
                Some(ShardOutput::Io(io)) => {
                    let ns = read_ns(io.device, &mut sequence);
                    number += 1;
                    due.push(std::cmp::Reverse((now.0 + ns, number)));
                    flights.insert(number, io);
                }
                Some(ShardOutput::Reply(reply)) => {
                    if let Some(reply) = rig.router.join(reply) {
                        assert!(reply.result.is_ok(), "reads succeed");
                        let at = begun.remove(&reply.id).expect("answered once");
                        match warm {
                            0 => latencies.push(now.since(at)),
                            _ => warm -= 1,
                        }
                    }
                }
                Some(ShardOutput::Message(message)) => {
                    rig.array.message(now, ShardNo(0), message);
                }
                Some(
                    ShardOutput::Again(_) | ShardOutput::Pass(..) | ShardOutput::WriteToken(..),
                ) => {
                    unreachable!("no data moves")
                }
                None => break,
            }
        }
        if begun.len() < depth {
            continue;
        }
        let next = due.peek().map_or(u64::MAX, |due| due.0.0);
        match rig.shard.deadline() {
            Some(at) if at.0 <= next => {
                now = Time(now.0.max(at.0));
                rig.shard.tick(now);
            }
            _ => {
                let std::cmp::Reverse((at, number)) = due.pop().expect("reads are in flight");
                now = Time(at);
                let io = flights.remove(&number).expect("in flight");
                let completion = rig.io(io);
                rig.shard.complete(now, completion);
            }
        }
    }
    latencies.sort_unstable();
    (latencies, hedged(&rig))
}

fn hedged(rig: &Rig) -> u64 {
    let members = rig.array.status().members;
    members.iter().map(|m| m.latency.hedges.issued).sum()
}

/// What hedged reads do for the tail, in simulated time: off and on side by side.
pub(crate) fn off_and_on(requests: usize) -> Vec<Value> {
    println!(
        "\nrandom read 4K, one read in {SLOW_ONE_IN} of one member takes 100 times as long \
         (simulated, us)"
    );
    println!(
        "{:<10} {:>3} {:<12} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "array", "qd", "hedged reads", "p50", "p99", "p99.9", "p99.99", "hedged"
    );
    let shapes = [
        ("5 of 5", (Level::Raid5, 5, None)),
        ("6 of 8", (Level::Raid6, 8, None)),
        ("1 of 2", (Level::Raid1, 2, None)),
    ];
    let mut rows = Vec::new();
    for (name, shape) in shapes {
        for depth in [1, 32] {
            for (word, on) in [("off", false), ("on", true)] {
                let (latencies, hedged) = tail(shape, on, depth, requests);
                let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize] / 1000;
                let share = hedged as f64 / requests as f64;
                println!(
                    "{name:<10} {depth:>3} {word:<12} {:>9} {:>9} {:>9} {:>9} {:>8.2}%",
                    at(0.5),
                    at(0.99),
                    at(0.999),
                    at(0.9999),
                    100.0 * share
                );
                rows.push(json!({
                    "array": name, "depth": depth, "hedged_reads": on,
                    "p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999),
                    "p9999_us": at(0.9999), "hedged": share,
                }));
            }
        }
    }
    rows
}
