//! Regions that are zeroed or discarded in parts are given back as if they had been discarded
//! whole.

use strake_engine::units::RegionNo;
use strake_sim::scenario::{Draft, Scenario};
use strake_sim::workload::AskKind;

/// The logical blocks of a region.
fn region(array: &Scenario, region: u32) -> std::ops::Range<u64> {
    let geometry = &array.world.geometry();
    let bytes = geometry.region_bytes(RegionNo(region));
    bytes.start / geometry.block..bytes.end / geometry.block
}

fn stripe(array: &Scenario) -> u64 {
    array.world.geometry().stripe_bytes() / array.world.geometry().block
}

fn unwritten(array: &mut Scenario) -> u64 {
    array.status().unwritten_bytes
}

/// Every block is written, and no region is open any more.
fn filled(draft: Draft) -> Scenario {
    let mut array = draft.start();
    array.fill().rest().sleep();
    assert_eq!(unwritten(&mut array), 0);
    array
}

fn drafts() -> Vec<Draft> {
    let shapes = [
        ("5", 4),
        ("6", 6),
        ("7.3", 6),
        ("1", 2),
        ("0", 3),
        ("50", 6),
    ];
    let one = |shards| shapes.map(|(level, members)| Scenario::new(level, members).shards(shards));
    one(1).into_iter().chain(one(3)).collect()
}

#[test]
fn a_region_that_is_zeroed_in_parts_of_any_size_is_given_back() {
    for draft in drafts() {
        let mut array = filled(draft);
        let (blocks, stripe) = (region(&array, 1), stripe(&array));
        let mut at = blocks.start;
        for count in [1, 3, stripe, 2 * stripe, stripe - 1].into_iter().cycle() {
            let count = count.min(blocks.end - at);
            array.ask(AskKind::WriteZeroes, at, count);
            at += count;
            if at == blocks.end {
                break;
            }
            array.sleep();
            assert_eq!(unwritten(&mut array), 0);
        }
        array.sleep();
        assert!(unwritten(&mut array) > 0);
        array.verify();
        array.power_cut();
        array.start().verify().write(40).rest().verify();
    }
}

#[test]
fn a_region_that_is_discarded_by_whole_stripes_is_given_back() {
    for draft in drafts() {
        let mut array = filled(draft);
        let (blocks, stripe) = (region(&array, 2), stripe(&array) as usize);
        for at in blocks.step_by(stripe) {
            array.ask(AskKind::Discard, at, stripe as u64);
        }
        array.sleep();
        assert!(unwritten(&mut array) > 0);
        array.verify().write(40).rest().verify();
    }
}

#[test]
fn what_was_written_since_keeps_its_region() {
    for draft in drafts() {
        let mut array = filled(draft);
        let (blocks, stripe) = (region(&array, 1), stripe(&array) as usize);
        let all: Vec<u64> = blocks.clone().step_by(stripe).collect();
        let (last, others) = all.split_last().expect("several stripes");
        for &at in others {
            array.ask(AskKind::WriteZeroes, at, stripe as u64);
        }
        array.write_at(blocks.start + 1, 1);
        array.ask(AskKind::WriteZeroes, *last, stripe as u64);
        array.sleep();
        assert_eq!(unwritten(&mut array), 0);
        array.verify();
        // Over it again: now it is.
        array.ask(AskKind::WriteZeroes, blocks.start, stripe as u64);
        // A write that comes while the region is on its way is not lost.
        array.begin_to_write_blocks(blocks.start + 1, 1);
        array.rest().verify().sleep().verify();
        for at in all {
            array.ask(AskKind::WriteZeroes, at, stripe as u64);
        }
        array.sleep();
        assert!(unwritten(&mut array) > 0);
        array.verify();
    }
}

#[test]
fn writes_and_losses_that_meet_a_region_on_its_way_are_kept() {
    for events in 0..150 {
        let mut array = filled(Scenario::new("6", 6).shards(2));
        let (blocks, stripe) = (region(&array, 1), stripe(&array) as usize);
        for at in blocks.clone().step_by(stripe) {
            array.ask(AskKind::WriteZeroes, at, stripe as u64);
        }
        array.wait("the region is closed", |world| world.at_rest());
        array.steps(events * 3);
        array.begin_to_write_blocks(blocks.start + events % 8, 2);
        if events % 3 == 0 {
            array.steps(events % 11).lose((events % 6) as u8);
        }
        array.steps(events % 17);
        match events % 4 {
            0 => {
                array.power_cut();
                array.start();
            }
            1 => {
                array.kill();
                array.start();
            }
            _ => {}
        }
        array.rest().verify().sleep().verify();
    }
}

/// A shard that has no stripe in a region never says that all it has there is zero.
#[test]
fn a_region_with_fewer_stripes_than_shards_is_given_back_in_parts() {
    let mut small = 0;
    for (level, members) in [("5", 4), ("6", 6), ("1", 2), ("50", 6)] {
        for shards in 1..16 {
            let mut array = filled(Scenario::new(level, members).shards(shards));
            let geometry = array.world.geometry().clone();
            let last = RegionNo(geometry.regions() - 1);
            let (blocks, stripe) = (region(&array, last.0), stripe(&array));
            let rows = geometry.region_rows(last);
            small += u32::from((rows.end - rows.start) * geometry.groups < u64::from(shards));
            for at in blocks.step_by(stripe as usize) {
                array.ask(AskKind::WriteZeroes, at, stripe);
            }
            array.sleep();
            assert!(unwritten(&mut array) > 0, "{level}, {shards} shards");
            array.verify().write(40).rest().verify();
        }
    }
    assert!(small > 8, "{small}");
}
