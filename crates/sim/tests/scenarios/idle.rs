//! Stories about regions that are not written for a while, and are written again.

use strake_engine::units::*;
use strake_format::{RegionState, WriteHole};
use strake_sim::scenario::{Draft, Scenario};

fn drafts() -> Vec<Draft> {
    let mut drafts = Vec::new();
    for policy in [WriteHole::Closed, WriteHole::Resync] {
        for (level, members) in [("5", 4), ("6", 6), ("10", 4), ("n+m", 6)] {
            for shards in [1, 3] {
                let draft = Scenario::new(level, members).shards(shards);
                drafts.push(draft.policy(policy));
            }
        }
    }
    drafts
}

/// All of it was written, and nothing is open.
fn filled(draft: Draft) -> Scenario {
    let mut array = draft.start();
    array.fill().rest().sleep();
    array
}

fn state(array: &mut Scenario, region: u32) -> RegionState {
    array.world.machines().array.region(RegionNo(region))
}

fn first_block(array: &Scenario, region: u32) -> u64 {
    let geometry = &array.world.geometry;
    geometry.region_bytes(RegionNo(region)).start / geometry.block
}

/// Time passes, in sweeps; the first region is written all the while.
fn pass(array: &mut Scenario, sweeps: u64) {
    let busy = first_block(array, 0);
    let ns = array.world.plan.clean_after_ms * 1_000_000;
    let until = array.world.clock.now().0 + sweeps * ns;
    while array.world.clock.now().0 < until {
        array.write_at(busy, 1);
        let next = array.world.clock.now().0 + ns / 2;
        array.wait("time passes", |world| world.clock.now().0 >= next);
    }
}

/// Writes into a region so many times, now and then; how often it had to be opened for it.
fn opened(array: &mut Scenario, region: u32, every: u64, times: u64) -> u64 {
    let block = first_block(array, region);
    let mut opened = 0;
    for _ in 0..times {
        opened += u64::from(state(array, region) == RegionState::Clean);
        array.write_at(block, 1);
        pass(array, every);
    }
    opened
}

#[test]
fn a_region_that_is_written_now_and_then_stays_open() {
    for draft in drafts() {
        let mut array = filled(draft);
        // Idle for the first time it is closed, and once more where it is asked too early.
        let opens = opened(&mut array, 2, 5, 10);
        assert!((1..=3).contains(&opens), "opened {opens} times");
        assert_eq!(state(&mut array, 2), RegionState::Dirty);
        // One that is written much less often is closed each time.
        assert_eq!(opened(&mut array, 3, 80, 3), 3);
        // Nothing stays open for ever, and what was learned is not believed for ever.
        pass(&mut array, 64);
        assert_eq!(state(&mut array, 2), RegionState::Clean);
        assert!(opened(&mut array, 2, 80, 3) >= 2);
        array.rest().verify().sleep();
        for region in 0..array.world.geometry.regions() {
            assert_eq!(state(&mut array, region), RegionState::Clean);
        }
    }
}

#[test]
fn a_region_that_is_written_much_while_it_is_open_is_closed() {
    // Members that take so little that all of it is written between two sweeps.
    let mut array = filled(Scenario::new("5", 4).no_caches());
    let block = first_block(&array, 2);
    // By what it was like when it was filled it may stay open for longer once.
    for sweeps in [70, 4, 4, 4] {
        assert_eq!(state(&mut array, 2), RegionState::Clean);
        for _ in 0..70 {
            array.write_at(block, 1);
        }
        pass(&mut array, sweeps);
    }
}

#[test]
fn what_stays_open_is_told_after_a_power_cut() {
    for draft in drafts() {
        let mut array = filled(draft);
        opened(&mut array, 2, 5, 8);
        assert_eq!(state(&mut array, 2), RegionState::Dirty);
        let block = first_block(&array, 2);
        array.begin_to_write_blocks(block, 2).steps(40).power_cut();
        array.start().rest().verify().lose(1).verify();
    }
}

#[test]
fn members_flush_once_for_all_regions_that_close_together() {
    let mut array = Scenario::new("5", 4).start();
    array.fill().rest();
    let regions = u64::from(array.world.geometry.regions());
    let before = crate::accepted(&array);
    array.sleep();
    assert_eq!(state(&mut array, 0), RegionState::Clean);
    let took = (crate::accepted(&array) - before) / 4;
    // The first that is closed begins a round and a version of its page; all others come with the next.
    assert!(
        regions > 2 * took,
        "{took} I/Os of each member for {regions} regions"
    );
}
