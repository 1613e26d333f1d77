//! Stories about regions that are not written for a while, and are written again.

use strake_engine::units::*;
use strake_format::{RegionState, WriteHole};
use strake_sim::scenario::{Draft, Scenario};
use strake_sim::workload::AskKind;

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
    array.world.array().region(RegionNo(region))
}

fn first_block(array: &Scenario, region: u32) -> u64 {
    let geometry = &array.world.geometry();
    geometry.region_bytes(RegionNo(region)).start / geometry.block
}

/// Time passes, in sweeps; the first region is written all the while.
fn pass(array: &mut Scenario, sweeps: u64) {
    let busy = first_block(array, 0);
    let ns = array.world.plan().clean_after_ms * 1_000_000;
    let until = array.world.now().0 + sweeps * ns;
    while array.world.now().0 < until {
        array.write_at(busy, 1);
        let next = array.world.now().0 + ns / 2;
        array.wait("time passes", |world| world.now().0 >= next);
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
        for region in 0..array.world.geometry().regions() {
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
    let regions = u64::from(array.world.geometry().regions());
    let before = crate::accepted(&array);
    array.sleep();
    assert_eq!(state(&mut array, 0), RegionState::Clean);
    let took = (crate::accepted(&array) - before) / 4;
    // The first that is closed begins a round and a version of its page; all others come with the
    // next.
    assert!(
        regions > 2 * took,
        "{took} I/Os of each member for {regions} regions"
    );
}

/// How long it takes to write so many blocks in each region, one region after the other,
/// microseconds.
fn write_each_us(array: &mut Scenario, count: u64) -> u64 {
    let regions = 0..array.world.geometry().regions();
    let ask = |region| {
        let block = first_block(array, region);
        array.ask_us(AskKind::Write, block, count)
    };
    regions.map(ask).sum()
}

#[test]
fn a_write_reads_while_its_region_is_opened() {
    for policy in [WriteHole::Closed, WriteHole::Resync] {
        let draft = || Scenario::new("5", 4).policy(policy).no_caches();
        let stripe = {
            let array = draft().start();
            array.world.geometry().stripe_bytes() / array.world.geometry().block
        };
        // A whole stripe has nothing to read: it waits for its region first.
        let [whole, part] = [stripe, 1].map(|count| {
            let mut array = filled(draft());
            let (mut closed, mut open) = (0, 0);
            for _ in 0..8 {
                closed += write_each_us(&mut array, count);
                open += write_each_us(&mut array, count);
                array.sleep();
            }
            closed.saturating_sub(open)
        });
        assert!(
            4 * part < 3 * whole,
            "{part} us more for regions that have to be opened, {whole} us without reads"
        );
    }
}

#[test]
fn writes_that_wait_for_their_regions_keep_no_buffers_from_others() {
    for draft in drafts() {
        // The least memory that there is, and more writes than it holds.
        let mut array = filled(draft);
        for region in 0..array.world.geometry().regions() {
            let block = first_block(&array, region);
            for at in block..(block + 4).min(array.world.blocks()) {
                array.begin_to_write_blocks(at, 1);
            }
        }
        array.begin_to_read().rest().verify();
    }
}

#[test]
fn a_region_is_given_back_while_a_write_reads_there() {
    for draft in drafts() {
        for events in 0..24 {
            let mut array = filled(draft.clone());
            let block = first_block(&array, 2);
            array.begin_to_discard().steps(events);
            array.begin_to_write_blocks(block, 1).rest().verify();
            array.sleep().begin_to_write_blocks(block, 1).steps(events);
            array.begin_to_discard().rest().verify();
        }
    }
}

#[test]
fn members_leave_and_power_goes_while_a_write_waits_for_its_region() {
    for draft in drafts() {
        for events in 0..24 {
            let mut array = filled(draft.clone());
            let (one, other) = (first_block(&array, 2), first_block(&array, 5));
            array.begin_to_write_blocks(one, 1).steps(events);
            array.power_cut().start().rest().verify().sleep();
            array.begin_to_write_blocks(other, 1).steps(events);
            array.lose(1).rest().verify();
        }
    }
}

#[test]
fn a_member_comes_back_while_writes_wait_for_their_regions() {
    for shards in [1, 3] {
        for events in (0..400).step_by(3) {
            let draft = Scenario::new("6", 6).shards(shards).message_ns(400_000);
            let mut array = filled(draft);
            let drive = array.drive(1);
            // It is missed in the first region.
            array.lose(1).write_at(0, 1).rest().sleep();
            array.bring_back(drive);
            let id = array.world.offer(drive).expect("it holds a member");
            array.steps(events);
            for region in 0..array.world.geometry().regions() {
                array.begin_to_write_blocks(first_block(&array, region), 1);
            }
            array.answer(id).expect("it is taken back");
            array.rest().verify().sleep();
            array.begin_to_scrub().rest().lose(0).lose(2).verify();
        }
    }
}
