//! The engine over members that answer at once: what one core makes of requests when drives cost
//! nothing.
//!
//! Every figure stands beside a ceiling of the same run: a copy of the same bytes (memcpy). For one
//! request it shows nanoseconds, instructions where the machine counts them, and allocations; each
//! is the median over several rounds. What can be asked for stands in `options`.
//!
//! Invariant: what the tables show is what `--json` says at the end.
//!
//! Deliberately absent: thresholds. These are figures.

mod hedged;
mod meter;
mod options;
mod rig;
mod shards;

use std::process::ExitCode;

use meter::{Cost, Meter, median, middle};
use options::{List, Options};
use rig::{Rig, Sequence};

use serde_json::{Value, json};
use strake_engine::event::*;
use strake_engine::{Buf, Slice};
use strake_format::{Level, WriteHole};

/// Rounds of everything; figures are medians over them.
const ROUNDS: usize = 7;
/// Reads of each row of the list of hedged reads.
const HEDGED_REQUESTS: usize = 500_000;

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

/// Different contents of writes, a page apart.
const CONTENTS: u64 = 16;
const PAGE: u64 = 4096;

/// Carries out a load of `total` bytes, and what is missing to a whole number of batches.
fn measure(rig: &mut Rig, load: Load, total: u64, meter: &mut Meter) -> Cost {
    // No write may find what it writes: contents begin at different pages of one buffer.
    let bytes = (0..load.bytes + CONTENTS * PAGE).map(|at| (at / PAGE) as u8 ^ 0xa5);
    let payload = Buf::from_bytes(&bytes.collect::<Vec<u8>>());
    let mut sequence = Sequence(load.bytes);
    let slots = rig.size() / load.bytes;
    let mut at = 0;
    let requests = (total / load.bytes).next_multiple_of(load.depth as u64);
    meter.of(requests, || {
        while at < requests {
            for _ in 0..load.depth {
                let slot = if load.random {
                    sequence.next() % slots
                } else {
                    at % slots
                };
                let from = (at + at / slots) % CONTENTS * PAGE;
                at += 1;
                let offset = slot * load.bytes;
                rig.submit(if load.write {
                    let data = Slice::new(payload.clone(), from as usize, load.bytes as usize);
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
    let rounds = ((256 << 20) / ROUNDS / bytes).max(1) as u64;
    let cost = meter.of(rounds, || {
        for _ in 0..rounds {
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&mut to);
        }
    });
    cost.ns
}

/// The rounds of one load, each with a copy of the same bytes: the middle of the costs and of the
/// copy's shares.
fn rounds(rig: &mut Rig, load: Load, total: u64, meter: &mut Meter) -> (Cost, f64) {
    // Regions become Dirty, and what is recycled comes to rest.
    let some = rig.size().min(total / 4);
    measure(rig, load, some, meter);
    let (mut costs, mut shares) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let cost = measure(rig, load, total / ROUNDS as u64, meter);
        shares.push(memcpy_ceiling(load.bytes as usize, meter) / cost.ns);
        costs.push(cost);
    }
    (middle(costs), median(shares))
}

/// The main table.
fn figures(only: &str, meter: &mut Meter) -> Vec<Value> {
    let shapes = [
        ("5 of 5", Level::Raid5, 5, None),
        ("6 of 8", Level::Raid6, 8, None),
        ("7.3 of 9", Level::Raid7_3, 9, None),
        ("50 of 10", Level::Raid50, 10, Some(5)),
        ("10 of 4", Level::Raid10, 4, None),
    ];
    println!(
        "{:<10} {:<26} {:>10} {:>12} {:>10} {:>12} {:>10}   medians of {ROUNDS} rounds",
        "array", "load", "MiB/s", "ns", "of memcpy", "instructions", "allocs"
    );
    let mut rows = Vec::new();
    for (name, level, members, group) in shapes {
        let shape = (level, members, group);
        let mut rig = Rig::new(shape, 64 << 10, false, WriteHole::Resync);
        // What was never written is read from no member: whatever is asked for, all is written.
        let all = rig.size();
        measure(&mut rig, LOADS[0], all, meter);
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
            let (cost, of_memcpy) = rounds(&mut rig, load, total, meter);
            println!(
                "{name:<10} {:<26} {:>10.0} {:>12.0} {:>9.1}% {:>12} {:>10.2}",
                load.name,
                load.bytes as f64 / 1048576.0 / (cost.ns * 1e-9),
                cost.ns,
                100.0 * of_memcpy,
                cost.instructions(),
                cost.allocations
            );
            rows.push(json!({
                "array": name, "load": load.name, "depth": load.depth,
                "bytes_per_s": load.bytes as f64 / (cost.ns * 1e-9),
                "ns": cost.ns, "of_memcpy": of_memcpy,
                "instructions": cost.instructions, "allocations": cost.allocations,
            }));
        }
    }
    rows
}

/// The loads that a closed write hole makes dearer.
fn closed_loads(stripe: u64) -> [Load; 3] {
    let load = |name, bytes, random, depth| Load {
        name,
        write: true,
        bytes,
        random,
        depth,
        lost: 0,
    };
    [
        load("random write 4K", 4096, true, 64),
        load("random write 64K", 65536, true, 64),
        load("full-stripe write", stripe, false, 8),
    ]
}

/// What the stripe log costs: the policies `closed` and `resync` side by side, round by round.
fn cost_of_closed(only: &str, meter: &mut Meter) -> Vec<Value> {
    let shapes = [
        ("5 of 5", (Level::Raid5, 5, None), 256 << 10),
        ("6 of 8", (Level::Raid6, 8, None), 384 << 10),
    ];
    println!(
        "\n{:<10} {:<22} {:<8} {:>10} {:>12} {:>10} {:>14}",
        "array", "load", "policy", "ns", "instructions", "allocs", "costs"
    );
    let mut rows = Vec::new();
    for (name, shape, stripe) in shapes {
        let loads = closed_loads(stripe).into_iter();
        for load in loads.filter(|load| load.name.contains(only)) {
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
            let middles = costs.map(middle);
            for (policy, cost) in policies.into_iter().zip(&middles) {
                let costs_ns = (policy == WriteHole::Closed).then_some(cost.ns - middles[0].ns);
                let more = costs_ns.map_or(String::new(), |ns| format!("{ns:+.0} ns"));
                println!(
                    "{name:<10} {:<22} {:<8} {:>10.0} {:>12} {:>10.2} {more:>14}",
                    load.name,
                    policy.to_string(),
                    cost.ns,
                    cost.instructions(),
                    cost.allocations,
                );
                rows.push(json!({
                    "array": name, "load": load.name, "policy": policy.to_string(),
                    "ns": cost.ns, "instructions": cost.instructions,
                    "allocations": cost.allocations, "costs_ns": costs_ns,
                }));
            }
        }
    }
    rows
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
}

/// A load's name contains the text that chooses loads.
fn known(options: &Options) -> bool {
    let closed = closed_loads(0);
    let named = |load: &Load| load.name.contains(&options.only);
    let figures = options.wants(List::Figures) && LOADS.iter().any(named);
    let closed = options.wants(List::Closed) && closed.iter().any(named);
    options.only.is_empty() || figures || closed
}

/// Runs what was asked for; the lists as one value.
fn all(options: &Options, meter: &mut Meter) -> Value {
    let rounds = if options.smoke { 1 } else { ROUNDS };
    let (mut rows, mut hedged, mut shards, mut closed) = (vec![], vec![], vec![], vec![]);
    if options.smoke {
        smoke();
        shards = shards::beside_one(rounds);
    } else {
        if options.wants(List::Figures) {
            rows = figures(&options.only, meter);
        }
        if options.wants(List::Hedged) {
            hedged = hedged::off_and_on(HEDGED_REQUESTS);
        }
        if options.wants(List::Shards) {
            shards = shards::beside_one(rounds);
        }
        if options.wants(List::Closed) {
            closed = cost_of_closed(&options.only, meter);
        }
    }
    json!({
        "smoke": options.smoke, "rounds": rounds,
        "rows": rows, "hedged": hedged, "shards": shards, "closed": closed,
    })
}

fn main() -> ExitCode {
    let options = match options::read(std::env::args().skip(1)) {
        Ok(options) if known(&options) => options,
        Ok(options) => {
            eprintln!("engine: no load's name contains {:?}", options.only);
            return ExitCode::FAILURE;
        }
        Err(error) => {
            eprintln!("engine: {error}; known are {}", options::KNOWN);
            return ExitCode::FAILURE;
        }
    };
    let mut meter = Meter::new();
    let lists = all(&options, &mut meter);
    let counts = options.wants(List::Figures) || options.wants(List::Closed);
    if let Some(why) = meter.without_instructions().filter(|_| counts) {
        println!("\nSKIPPED: instructions are not counted here: {why}");
    }
    if options.json {
        println!("{lists}");
    }
    ExitCode::SUCCESS
}
