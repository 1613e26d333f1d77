//! No request on the hot path allocates, once the machines have seen a few of its kind.

#[path = "../benches/engine/rig.rs"]
mod rig;

use rig::{Rig, Sequence};
use strake_engine::event::Op;
use strake_engine::{Buf, Slice};
use strake_format::{Level, WriteHole};

const BATCHES: u64 = 30;
const DEPTH: u64 = 16;

struct Load {
    write: bool,
    bytes: u64,
    random: bool,
}

/// Calls of the allocator while requests of a load are carried out, as many as asked for.
fn calls(rig: &mut Rig, load: &Load, batches: u64) -> u64 {
    let payload = Buf::from_bytes(&vec![0xa5; load.bytes as usize]);
    let mut sequence = Sequence(load.bytes);
    let slots = rig.size() / load.bytes;
    let mut at = 0;
    let counted = allocation_counter::measure(|| {
        for _ in 0..batches {
            for _ in 0..DEPTH {
                at += 1;
                let slot = match load.random {
                    true => sequence.next() % slots,
                    false => at % slots,
                };
                let offset = slot * load.bytes;
                rig.submit(match load.write {
                    true => Op::Write {
                        offset,
                        data: Slice::new(payload.clone(), 0, load.bytes as usize),
                        fua: false,
                    },
                    false => Op::Read {
                        offset,
                        len: load.bytes,
                    },
                });
            }
            rig.rest();
            let failed = rig.replies.drain(..).filter(|r| r.result.is_err()).count();
            assert_eq!(failed, 0, "requests failed");
        }
    });
    counted.count_total
}

#[test]
fn requests_allocate_nothing() {
    let shapes = [
        (Level::Raid5, 5, None),
        (Level::Raid6, 8, None),
        (Level::Raid7_3, 9, None),
        (Level::Raid10, 4, None),
        // More data columns than lists have in line.
        (Level::Raid6, 30, None),
    ];
    let mut loads = Vec::new();
    for (write, bytes) in [
        (true, 1 << 20),
        (true, 128 << 10),
        (true, 64 << 10),
        (true, 4096),
        (false, 1 << 20),
        (false, 64 << 10),
        (false, 4096),
    ] {
        loads.extend([true, false].map(|random| Load {
            write,
            bytes,
            random,
        }));
    }
    let mut wrong = Vec::new();
    for (level, members, group) in shapes {
        for policy in [WriteHole::Resync, WriteHole::Closed] {
            let mut rig = Rig::new((level, members, group), 64 << 10, false, policy);
            for lost in 0..2 {
                for load in &loads {
                    // Lists and tables grow at first, and now and then once more.
                    let runs = (0..4).map(|_| calls(&mut rig, load, BATCHES));
                    let calls = runs.min().expect("there are some");
                    // One call for each batch would be more than this.
                    let requests = BATCHES * DEPTH;
                    let kind = match (load.write, load.random) {
                        (true, true) => "random writes",
                        (true, false) => "writes",
                        (false, true) => "random reads",
                        (false, false) => "reads",
                    };
                    if calls * 20 > requests {
                        wrong.push(format!(
                            "level {level} of {members}, {policy}, {lost} lost, {kind} of {} \
                             bytes: {calls} allocations for {requests} requests",
                            load.bytes
                        ));
                    }
                }
                assert_eq!(rig.shard.invariants(), Ok(()));
                assert_eq!(rig.array.invariants(), Ok(()));
                if lost == 0 {
                    rig.fail(0);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
