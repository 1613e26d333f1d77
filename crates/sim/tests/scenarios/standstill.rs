//! The machine, one thread, or what lies behind all devices stands still for longer than the
//! deadline of an I/O: no member goes out for that. And the wall clock, which may be set at any
//! time.

use strake_engine::event::*;
use strake_sim::scenario::Scenario;

use crate::REDUNDANT;

/// The deadline of an I/O in a scenario.
const DEADLINE_US: u64 = 50_000;

/// All requests are answered, no member went out, and as many may be lost as ever.
fn unharmed(array: &mut Scenario) {
    array.wait("requests are answered", |world| world.all_answered());
    array.write(20).rest();
    assert_eq!(array.world.stats().losses, 0);
    assert_eq!(array.state(), ArrayState::Optimal);
    array.verify().lose_others(None).verify();
}

#[test]
fn a_machine_that_stands_still_for_longer_than_the_deadline_puts_no_member_out() {
    for (level, members) in REDUNDANT {
        for seed in 0..8 {
            let mut array = Scenario::new(level, members).seed(900 + seed).start();
            array.fill().begin_to_write(60, 20 + 30 * seed);
            array.machine_stands_still((1 + seed % 3) * DEADLINE_US + 7, seed % 4 > 0);
            array.steps(40).machine_stands_still(3 * DEADLINE_US, true);
            unharmed(&mut array);
        }
    }
}

#[test]
fn a_thread_that_stands_still_while_the_others_go_on_puts_no_member_out() {
    for (level, members) in REDUNDANT {
        for seed in 0..6 {
            let draft = Scenario::new(level, members).shards(2);
            let mut array = draft.seed(950 + seed).start();
            array.fill().begin_to_write(60, 30 * seed);
            let thread = [None, Some(0), Some(1)][seed as usize % 3];
            array.thread_stands_still(thread, 2 * DEADLINE_US);
            unharmed(&mut array);
        }
    }
}

#[test]
fn members_that_are_late_at_the_same_moment_get_another_deadline_and_all_stay() {
    let mut several = 0;
    for (level, members) in REDUNDANT {
        for seed in 0..8 {
            let mut array = Scenario::new(level, members).seed(980 + seed).start();
            array.fill().begin_to_write(60, 20 + 11 * seed);
            several += u32::from(array.answers_stand_still());
            unharmed(&mut array);
        }
    }
    assert!(several > 10, "{several}");
}

#[test]
fn a_member_that_hangs_alone_is_out_after_one_deadline_and_a_quarter() {
    for (level, members) in REDUNDANT {
        let mut array = Scenario::new(level, members).no_caches().start();
        array.fill().rest();
        let begun = array.world.now();
        let drive = array.hang(1);
        array.begin_to_overwrite();
        array.wait("it is out", move |world| {
            world.drives()[drive].device().is_none()
        });
        let us = array.world.now().since(begun) / 1000;
        assert!(us > DEADLINE_US, "level {level}: {us} us");
        assert!(us < DEADLINE_US * 4 / 3, "level {level}: {us} us");
        array.wait("requests are answered", |world| world.all_answered());
        array.rest().verify();
    }
}

#[test]
fn of_two_members_that_hang_one_is_out_after_two_deadlines_and_the_array_ends_after_the_third() {
    let mut array = Scenario::new("5", 4).no_caches().start();
    array.fill().rest();
    let begun = array.world.now();
    array.world.demand(strake_sim::beyond::Demand::Nothing);
    array.hang(0);
    array.hang(1);
    array.begin_to_overwrite();
    let failed =
        |world: &mut strake_sim::world::World| world.array().status().state == ArrayState::Failed;
    array.wait("it has failed", failed);
    let us = array.world.now().since(begun) / 1000;
    assert!(us > 2 * DEADLINE_US, "{us} us");
    assert!(us < 4 * DEADLINE_US, "{us} us");
}

#[test]
fn a_scrub_is_dated_by_the_clock_as_it_is_when_it_begins_and_ends() {
    const IN_2000: u64 = 946_684_800;
    const IN_2026: u64 = 1_795_737_600;
    let mut array = Scenario::new("6", 6).start();
    array.fill().rest();
    let set = |array: &mut Scenario, unix_s| {
        let now = array.world.now();
        array.world.array().wall_clock(now, unix_s);
    };
    // The machine starts without a clock, and is corrected; then it is set back.
    for unix_s in [IN_2000, IN_2026, IN_2000 + 5] {
        set(&mut array, unix_s);
        array.begin_to_scrub().rest();
        let sb = array.status().superblock;
        let ended_s = sb.last_scrub.expect("it ended").ended_unix_s;
        assert!((unix_s..unix_s + 60).contains(&sb.scrub_begun_unix_s));
        assert!((unix_s..unix_s + 60).contains(&ended_s));
    }
}
