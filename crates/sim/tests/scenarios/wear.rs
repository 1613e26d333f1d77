//! What the stripe log wears of drives that write in units larger than a block, beside what it
//! protects.
//!
//! A block that is overwritten at random costs a unit on each member, and the drive's collection
//! moves that unit's neighbours: as many times more as its write amplification. Batches of the log
//! are written in a circle, of which nothing is alive when it is written over, so that their write
//! amplification is 1 where they have erase blocks of their own.

use strake_engine::event::WritePurpose;
use strake_engine::units::RequestId;
use strake_sim::scenario::Scenario;
use strake_sim::workload::{Ask, AskKind};

/// Of blocks that are overwritten at random, where the effective over-provisioning is 13 %.
const RANDOM_WAF: f64 = 4.5;
const UNIT: u32 = 16 << 10;

/// Units of the log for each write of a block, and those of data and parity, at this depth.
fn units_of(level: &str, members: u8, shards: u16, depth: usize) -> (f64, f64) {
    const WRITES: u64 = 4000;
    let draft = Scenario::new(level, members).units(UNIT, 8 << 20);
    let draft = draft.shards(shards).no_caches().message_ns(100);
    let mut array = draft.start();
    array.fill().rest();
    let units = |array: &Scenario| {
        let [log, data, parity] = [WritePurpose::Log, WritePurpose::Data, WritePurpose::Parity]
            .map(|purpose| array.world.units(purpose));
        (log, data + parity)
    };
    let before = units(&array);
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
    let after = units(&array);
    let each = |before: u64, after: u64| (after - before) as f64 / asked as f64;
    (each(before.0, after.0), each(before.1, after.1))
}

/// The log's share, in percent of what data and parity wear.
fn share(level: &str, members: u8, shards: u16, depth: usize) -> f64 {
    let (log, in_place) = units_of(level, members, shards, depth);
    log / (in_place * RANDOM_WAF) * 100.0
}

/// What counts is how many requests each shard has: records of several share a unit.
#[test]
fn the_more_a_shard_has_to_do_the_less_the_log_wears_beside_data() {
    // Alone, each record is a unit of its own.
    for (level, members) in [("5", 5), ("6", 6)] {
        let alone = share(level, members, 1, 1);
        assert!((22.0..22.5).contains(&alone), "{level}: {alone:.1} %");
    }
    for (level, members, shards, depth, most) in [
        ("5", 5, 1, 32, 6.0),
        ("5", 5, 1, 64, 5.0),
        ("5", 5, 2, 128, 5.0),
        ("6", 6, 1, 32, 8.0),
        ("6", 6, 1, 64, 6.0),
        ("6", 6, 1, 128, 5.2),
    ] {
        let share = share(level, members, shards, depth);
        let what = format!("level {level}, {shards} shards, depth {depth}");
        assert!(share <= most, "{what}: {share:.1} %, not {most}");
    }
}
