//! What the stripe log wears of drives that write in units larger than a block, beside what it
//! protects.
//!
//! A block that is overwritten at random costs a unit on each member, and the drive's collection
//! moves that unit's neighbours: as many times more as its write amplification. Batches of the log
//! lie side by side, and the drive's buffer makes whole units of them; they are written in a
//! circle, of which nothing is alive when it is written over. So their write amplification is 1
//! where they have erase blocks of their own.

use strake_engine::event::WritePurpose;
use strake_engine::units::RequestId;
use strake_sim::scenario::Scenario;
use strake_sim::workload::{Ask, AskKind};

/// Of blocks that are overwritten at random, where the effective over-provisioning is 13 %.
const RANDOM_WAF: f64 = 4.5;
const UNIT: u32 = 16 << 10;

/// Bytes that flash programs of the log for each write of a block, and those of data and parity, at
/// this depth.
fn programmed(level: &str, members: u8, shards: u16, depth: usize) -> (f64, f64) {
    const WRITES: u64 = 4000;
    let draft = Scenario::new(level, members).units(UNIT, 8 << 20);
    let draft = draft.shards(shards).no_caches().message_ns(100);
    let mut array = draft.start();
    array.fill().rest();
    let programmed = |array: &Scenario| {
        let [log, data, parity] = [WritePurpose::Log, WritePurpose::Data, WritePurpose::Parity]
            .map(|purpose| array.world.programmed(purpose));
        (log, data + parity)
    };
    let before = programmed(&array);
    let blocks = array.world.blocks();
    let (mut under_way, mut asked): (Vec<RequestId>, u64) = (Vec::new(), 0);
    while asked < WRITES {
        under_way.retain(|&id| array.world.is_under_way(id));
        while under_way.len() < depth {
            asked += 1;
            // A stride that meets each block once, far from the one before.
            let block = asked * 7919 % blocks;
            let ask = Ask::new(AskKind::Write, block, 1);
            assert!(array.world.submit(ask).is_ok(), "a request is taken");
            under_way.push(array.world.asked_last().expect("just asked"));
        }
        array.steps(1);
    }
    array.rest();
    let after = programmed(&array);
    let each = |before: u64, after: u64| (after - before) as f64 / asked as f64;
    (each(before.0, after.0), each(before.1, after.1))
}

/// The log's share, in percent of what data and parity wear.
fn share(level: &str, members: u8, shards: u16, depth: usize) -> f64 {
    let (log, in_place) = programmed(level, members, shards, depth);
    log / (in_place * RANDOM_WAF) * 100.0
}

/// What counts is how many requests each shard has: records of several share a block of heads, and
/// what is left of a unit is the next batch's.
#[test]
fn the_more_a_shard_has_to_do_the_less_the_log_wears_beside_data() {
    for (level, members, shards, depth, least, most) in [
        // Alone, a record is a block of heads on each of its members, and a syndrome for each
        // parity; as a unit of its own it would be 22 %.
        ("5", 5, 1, 1, 8.0, 9.5),
        ("6", 6, 1, 1, 9.0, 10.7),
        ("5", 5, 1, 16, 4.0, 5.2),
        ("5", 5, 2, 32, 4.0, 6.0),
        ("5", 5, 1, 32, 3.0, 4.5),
        ("5", 5, 2, 128, 3.0, 5.0),
        ("6", 6, 1, 32, 4.0, 6.2),
        ("6", 6, 1, 64, 4.0, 5.4),
        ("6", 6, 1, 128, 3.0, 5.0),
    ] {
        let share = share(level, members, shards, depth);
        let what = format!("level {level}, {shards} shards, depth {depth}");
        assert!((least..=most).contains(&share), "{what}: {share:.1} %");
    }
}
