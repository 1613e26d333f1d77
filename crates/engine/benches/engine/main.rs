//! The engine over members that answer at once: what one core makes of requests when drives cost
//! nothing.
//!
//! Every figure stands beside a ceiling of the same run: a copy of the same bytes (memcpy). For one
//! request it shows nanoseconds, instructions where the machine counts them, and allocations.
//! `--smoke` runs small, over members that keep what is written, reads all back and compares;
//! `--closed` shows only what the stripe log costs, `--shards` only what a second shard adds on a
//! second thread, `--hedged` only what hedged reads do for the
//! latency of reads, in simulated time; `--only TEXT` leaves loads out.
//!
//! Deliberately absent: thresholds. These are figures.

mod meter;
mod rig;
mod shards;

use meter::{Cost, Meter};
use rig::{Rig, Sequence, Shape};

use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Buf, Slice};
use strake_format::{Level, WriteHole};

#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    write: bool,
    bytes: u64,
    random: bool,
    depth: usize,
    /// Members taken out first.
    lost: u8,
}

const LOADS: &[Load] = &[
    Load {
        name: "write 1M",
        write: true,
        bytes: 1 << 20,
        random: false,
        depth: 4,
        lost: 0,
    },
    Load {
        name: "write 128K",
        write: true,
        bytes: 128 << 10,
        random: false,
        depth: 16,
        lost: 0,
    },
    Load {
        name: "random write 4K",
        write: true,
        bytes: 4096,
        random: true,
        depth: 32,
        lost: 0,
    },
    Load {
        name: "read 1M",
        write: false,
        bytes: 1 << 20,
        random: false,
        depth: 4,
        lost: 0,
    },
    Load {
        name: "random read 4K",
        write: false,
        bytes: 4096,
        random: true,
        depth: 32,
        lost: 0,
    },
    Load {
        name: "degraded random read 4K",
        write: false,
        bytes: 4096,
        random: true,
        depth: 32,
        lost: 1,
    },
    Load {
        name: "degraded random write 4K",
        write: true,
        bytes: 4096,
        random: true,
        depth: 32,
        lost: 1,
    },
];

/// Carries out a load of `total` bytes.
fn measure(rig: &mut Rig, load: Load, total: u64, meter: &mut Meter) -> Cost {
    let payload = Buf::from_bytes(&vec![0xa5; load.bytes as usize]);
    let mut sequence = Sequence(load.bytes);
    let slots = rig.size() / load.bytes;
    let mut at = 0;
    let requests = total / load.bytes;
    meter.of(requests, || {
        while at < requests {
            for _ in 0..load.depth {
                let slot = if load.random {
                    sequence.next() % slots
                } else {
                    at % slots
                };
                at += 1;
                let offset = slot * load.bytes;
                rig.submit(if load.write {
                    let data = Slice::new(payload.clone(), 0, load.bytes as usize);
                    Op::Write {
                        offset,
                        data,
                        fua: false,
                    }
                } else {
                    Op::Read {
                        offset,
                        len: load.bytes,
                    }
                });
            }
            rig.rest();
            let failed = rig.replies.drain(..).filter(|r| r.result.is_err()).count();
            assert_eq!(failed, 0, "{}: requests failed", load.name);
        }
    })
}

/// Nanoseconds of a copy of so many bytes.
fn memcpy_ceiling(bytes: usize, meter: &mut Meter) -> f64 {
    let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
    let rounds = ((256 << 20) / bytes) as u64;
    let cost = meter.of(rounds, || {
        for _ in 0..rounds {
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&mut to);
        }
    });
    cost.ns
}

fn figures(only: &str, meter: &mut Meter) {
    let shapes = [
        ("5 of 5", Level::Raid5, 5, None),
        ("6 of 8", Level::Raid6, 8, None),
        ("7.3 of 9", Level::Raid7_3, 9, None),
        ("50 of 10", Level::Raid50, 10, Some(5)),
        ("10 of 4", Level::Raid10, 4, None),
    ];
    println!(
        "{:<10} {:<26} {:>10} {:>12} {:>10} {:>12} {:>10}",
        "array", "load", "MiB/s", "ns", "of memcpy", "instructions", "allocs"
    );
    for (name, level, members, group) in shapes {
        let shape = (level, members, group);
        let mut rig = Rig::new(shape, 64 << 10, false, WriteHole::Resync);
        let mut lost = 0;
        for &load in LOADS.iter().filter(|load| load.name.contains(only)) {
            while lost < load.lost {
                rig.fail(lost);
                lost += 1;
            }
            let total = if load.bytes > 4096 {
                2 << 30
            } else {
                512 << 20
            };
            // Regions become Dirty, and what is recycled comes to rest.
            let some = rig.size().min(total / 4);
            measure(&mut rig, load, some, meter);
            let cost = measure(&mut rig, load, total, meter);
            let ceiling = memcpy_ceiling(load.bytes as usize, meter);
            println!(
                "{name:<10} {:<26} {:>10.0} {:>12.0} {:>9.1}% {:>12} {:>10.2}",
                load.name,
                load.bytes as f64 / 1048576.0 / (cost.ns * 1e-9),
                cost.ns,
                100.0 * ceiling / cost.ns,
                cost.instructions(),
                cost.allocations
            );
        }
    }
}

/// What the stripe log costs: the policies `closed` and `resync` side by side, round by round.
fn cost_of_closed(only: &str, meter: &mut Meter) {
    const ROUNDS: usize = 7;
    let load = |name, bytes, random, depth| Load {
        name,
        write: true,
        bytes,
        random,
        depth,
        lost: 0,
    };
    let shapes = [
        ("5 of 5", (Level::Raid5, 5, None), 256 << 10),
        ("6 of 8", (Level::Raid6, 8, None), 384 << 10),
    ];
    println!(
        "\n{:<10} {:<22} {:<8} {:>10} {:>12} {:>10} {:>14}",
        "array", "load", "policy", "ns", "instructions", "allocs", "costs"
    );
    for (name, shape, stripe) in shapes {
        let loads = [
            load("random write 4K", 4096, true, 64),
            load("random write 64K", 65536, true, 64),
            load("full-stripe write", stripe, false, 8),
        ];
        for load in loads.into_iter().filter(|load| load.name.contains(only)) {
            let policies = [WriteHole::Resync, WriteHole::Closed];
            let mut rigs = policies.map(|policy| Rig::new(shape, 64 << 10, false, policy));
            let total = if load.random { 128 << 20 } else { 1 << 30 };
            for rig in &mut rigs {
                let all = rig.size();
                measure(rig, load, all, meter);
            }
            let mut costs = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (rig, costs) in rigs.iter_mut().zip(&mut costs) {
                    costs.push(measure(rig, load, total, meter));
                }
            }
            let median = costs.map(|mut all| {
                all.sort_by(|a, b| a.ns.total_cmp(&b.ns));
                all.swap_remove(ROUNDS / 2)
            });
            for (policy, cost) in policies.into_iter().zip(&median) {
                let more = match policy {
                    WriteHole::Closed => format!("{:+.0} ns", cost.ns - median[0].ns),
                    _ => String::new(),
                };
                println!(
                    "{name:<10} {:<22} {:<8} {:>10.0} {:>12} {:>10.2} {more:>14}",
                    load.name,
                    policy.to_string(),
                    cost.ns,
                    cost.instructions(),
                    cost.allocations,
                );
            }
        }
    }
}

/// A member I/O under simulated time: when it completes, and a number that keeps equal ones apart.
type Due = std::cmp::Reverse<(u64, u64)>;

/// Simulated latencies, nanoseconds: a member takes this long, give or take a quarter.
const USUAL_NS: u64 = 80_000;
/// One read in so many of one member takes a hundred times as long.
const SLOW_ONE_IN: u64 = 100;

/// Latencies of random reads in simulated time, sorted, and how many of them were hedged: `depth`
/// of them are in flight, and one member is slow now and then.
fn tail(shape: Shape, hedging: bool, depth: usize, requests: usize) -> (Vec<u64>, u64) {
    let mut rig = Rig::new(shape, 64 << 10, false, WriteHole::Resync);
    rig.array.command(
        Time(0),
        CommandId(2),
        Command::Set(Setting::HedgedReads(hedging)),
    );
    rig.rest();
    // Regions that were never written are not read.
    let payload = Buf::from_bytes(&vec![0xa5; 1 << 20]);
    for at in 0..rig.size() >> 20 {
        let data = Slice::new(payload.clone(), 0, 1 << 20);
        let (offset, fua) = (at << 20, false);
        rig.submit(Op::Write { offset, data, fua });
        rig.rest();
    }
    rig.replies.clear();
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
                    let mut ns = USUAL_NS * 3 / 4 + sequence.next() % (USUAL_NS / 2);
                    if io.device == DeviceId(0) && sequence.next().is_multiple_of(SLOW_ONE_IN) {
                        ns *= 100;
                    }
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
                Some(ShardOutput::Again(_) | ShardOutput::Pass(..)) => {
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
    let members = rig.array.status().members;
    let hedged = members.iter().map(|m| m.latency.hedges.issued).sum();
    latencies.sort_unstable();
    (latencies, hedged)
}

/// What hedged reads do for the tail, in simulated time: off and on side by side.
fn hedged_reads(requests: usize) {
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
    for (name, shape) in shapes {
        for depth in [1, 32] {
            for (word, on) in [("off", false), ("on", true)] {
                let (latencies, hedged) = tail(shape, on, depth, requests);
                let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize] / 1000;
                println!(
                    "{name:<10} {depth:>3} {word:<12} {:>9} {:>9} {:>9} {:>9} {:>8.2}%",
                    at(0.5),
                    at(0.99),
                    at(0.999),
                    at(0.9999),
                    100.0 * hedged as f64 / requests as f64
                );
            }
        }
    }
}

/// Writes a known pattern by requests of all sizes, takes members out, reads it back.
fn smoke() {
    let shapes = [
        (Level::Raid0, 3, None, 0),
        (Level::Raid1, 3, None, 2),
        (Level::Raid5, 5, None, 1),
        (Level::Raid6, 6, None, 2),
        (Level::Raid7_3, 7, None, 3),
        (Level::Raid10, 4, None, 1),
        (Level::Raid50, 6, Some(3), 1),
        (Level::Raid60, 8, Some(4), 2),
        (Level::Raid70, 10, Some(5), 3),
        (Level::Nm { n: 6, m: 4 }, 10, None, 4),
    ];
    for (level, members, group, tolerated) in shapes {
        let shape = (level, members, group);
        let mut rig = Rig::new(shape, 16 << 10, true, WriteHole::Closed);
        let size = (8 << 20).min(rig.size());
        let mut image = vec![0u8; size as usize];
        let mut sequence = Sequence(1);
        let mut write_some = |rig: &mut Rig, image: &mut Vec<u8>| {
            for _ in 0..300 {
                for _ in 0..8 {
                    let len = 512 << (sequence.next() % 9);
                    let offset = (sequence.next() % (size - len)) & !511;
                    let bytes: Vec<u8> = (0..len).map(|_| sequence.next() as u8).collect();
                    image[offset as usize..(offset + len) as usize].copy_from_slice(&bytes);
                    let data = Slice::new(Buf::from_bytes(&bytes), 0, len as usize);
                    rig.submit(Op::Write {
                        offset,
                        data,
                        fua: false,
                    });
                }
                rig.rest();
            }
        };
        let check = |rig: &mut Rig, image: &[u8], when: &str| {
            rig.replies.clear();
            for at in (0..size).step_by(1 << 20) {
                rig.submit(Op::Read {
                    offset: at,
                    len: 1 << 20,
                });
                rig.rest();
                let reply = rig.replies.pop().expect("a read is answered");
                let slices = reply.result.expect("a read within the tolerance succeeds");
                let bytes: Vec<u8> = slices.iter().flat_map(|s| s.bytes().to_vec()).collect();
                assert!(
                    bytes == image[at as usize..(at + (1 << 20)) as usize],
                    "{level} {when}: wrong bytes"
                );
            }
        };
        write_some(&mut rig, &mut image);
        check(&mut rig, &image, "healthy");
        for lost in 0..tolerated {
            rig.fail(lost);
            check(&mut rig, &image, "degraded");
            write_some(&mut rig, &mut image);
            check(&mut rig, &image, "degraded and written");
        }
        println!("level {level}: {members} members, {tolerated} lost, read back what was written");
    }
    shards::beside_one(1);
}

fn main() {
    let asked = |name: &str| std::env::args().any(|arg| arg == name);
    if asked("--smoke") {
        return smoke();
    }
    if asked("--hedged") {
        return hedged_reads(500_000);
    }
    if asked("--shards") {
        return shards::beside_one(7);
    }
    let only = std::env::args().skip_while(|arg| arg != "--only").nth(1);
    let only = only.unwrap_or_default();
    let mut meter = Meter::new();
    if !asked("--closed") {
        figures(&only, &mut meter);
        hedged_reads(500_000);
        shards::beside_one(7);
    }
    cost_of_closed(&only, &mut meter);
    if let Some(why) = meter.without_instructions() {
        println!("\nSKIPPED: instructions are not counted here: {why}");
    }
}
