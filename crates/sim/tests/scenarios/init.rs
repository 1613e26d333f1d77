//! Stories about zeroing in the background: what was never written is made zero before anybody
//! writes it.

use strake_engine::create::Init;
use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::{RegionState, Settings, WriteHole};
use strake_sim::scenario::{Draft, Scenario};

use crate::steps::{self, ASKS, everywhere};

/// An array that is to be zeroed, in pieces of a row.
fn to_be_zeroed(level: &str, members: u8) -> Draft {
    Scenario::new(level, members)
        .init(Init::Zero)
        .window_bytes(1)
}

fn zeroing(array: &mut Scenario) -> bool {
    array.status().superblock.zeroing
}

fn unwritten(array: &mut Scenario) -> u64 {
    array.status().unwritten_bytes
}

/// Writes come meanwhile, all over it.
fn begin(array: &mut Scenario) {
    let blocks = array.world.blocks();
    for nth in 0..ASKS {
        array.begin_to_write_at(nth * 7919 % blocks);
    }
}

/// Bytes of each member that are zero, while it is at work.
fn job(array: &mut Scenario) -> Option<JobStatus> {
    let status = array.status();
    status
        .jobs
        .into_iter()
        .find(|job| job.kind == JobKind::Init)
}

fn clean(array: &mut Scenario) -> usize {
    let array = array.world.array();
    let regions = (0..array.geometry().regions()).map(RegionNo);
    regions
        .filter(|&region| array.region(region) == RegionState::Clean)
        .count()
}

/// Without any members, as many as the level survives, it reads the same.
fn sound(array: &mut Scenario) {
    array.made_whole().verify();
    array.lose_others(None).write(5).rest().verify();
}

#[test]
fn all_of_it_becomes_zero_and_clean_and_then_nobody_zeroes_anything_more() {
    for (level, members) in [
        ("0", 3),
        ("1", 2),
        ("5", 4),
        ("6", 5),
        ("10", 4),
        ("50", 6),
        ("n+m", 6),
    ] {
        let mut array = to_be_zeroed(level, members).start();
        assert!(zeroing(&mut array), "level {level}");
        array.rest().verify();
        assert!(!zeroing(&mut array), "level {level}");
        assert_eq!(unwritten(&mut array), 0, "level {level}");
        let regions = array.world.geometry().regions() as usize;
        assert_eq!(clean(&mut array), regions, "level {level}");
        array.stop().start();
        assert!(job(&mut array).is_none(), "level {level}");
        array.write(60).rest().verify();
        sound(&mut array);
    }
}

#[test]
fn it_is_cut_off_at_any_step_and_goes_on() {
    let (closed, resync) = (WriteHole::Closed, WriteHole::Resync);
    for (level, members, stride, policy) in [
        ("1", 2, 5, closed),
        ("5", 4, 11, closed),
        ("5", 4, 7, resync),
        ("6", 5, 13, closed),
        ("10", 4, 11, closed),
        ("50", 6, 17, closed),
    ] {
        let make = || to_be_zeroed(level, members).policy(policy).start();
        let over = |array: &mut Scenario, _: &()| !zeroing(array);
        let met = everywhere(stride, make, begin, over, |array, _, nth| {
            steps::cut(array, nth);
            array.start().rest().verify();
            assert!(!zeroing(array), "level {level}, blow {nth}");
            sound(array);
        });
        assert!(met > 10, "level {level}: {met}");
    }
}

#[test]
fn a_member_that_leaves_at_any_step_and_comes_back_lacks_what_was_zeroed_meanwhile() {
    for (level, members, stride) in [("1", 2, 3), ("5", 4, 5), ("6", 5, 7), ("10", 4, 7)] {
        let mut lacked = 0;
        let make = || to_be_zeroed(level, members).start();
        let over = |array: &mut Scenario, _: &()| !zeroing(array);
        let met = everywhere(stride, make, begin, over, |array, _, nth| {
            let away = array.drive(1);
            array.pull(1);
            array.wait("what it was asked for is answered", |world| {
                world.all_answered()
            });
            // Some is zeroed while it is away, or all.
            array.steps(if nth % 2 == 0 { 100 } else { 3000 });
            array.offer(away).expect("it may come back");
            lacked += u64::from(array.state() == ArrayState::Degraded);
            array.rest().verify();
            assert_eq!(unwritten(array), 0, "level {level}, blow {nth}");
            array.made_whole().verify();
            array.lose_others(Some(1)).write(5).rest().verify();
        });
        assert!(met > 10 && lacked > 10, "level {level}: {met}, {lacked}");
    }
}

#[test]
fn a_member_that_fails_at_any_step_is_rebuilt_and_the_rest_is_zeroed() {
    for (level, members, stride) in [("5", 4, 7), ("6", 5, 11)] {
        let make = || to_be_zeroed(level, members).start();
        let over = |array: &mut Scenario, _: &()| !zeroing(array);
        let met = everywhere(stride, make, begin, over, |array, _, _| {
            array.lose(2).add();
            array.rest().verify();
            assert_eq!(unwritten(array), 0, "level {level}");
            sound(array);
        });
        assert!(met > 10, "level {level}: {met}");
    }
}

#[test]
fn what_is_discarded_meanwhile_stays_unwritten_where_it_has_been_already() {
    for stride in [7, 13] {
        let make = || to_be_zeroed("5", 4).start();
        let over = |array: &mut Scenario, _: &()| !zeroing(array);
        everywhere(stride, make, begin, over, |array, _, nth| {
            array.begin_to_discard().rest().verify();
            assert!(!zeroing(array), "blow {nth}");
            array.write(20).rest();
            sound(array);
        });
    }
    let mut array = to_be_zeroed("5", 4).start();
    array.rest().begin_to_discard().rest();
    assert!(unwritten(&mut array) > 0);
}

#[test]
fn it_is_begun_and_stopped_by_command_and_remembers_that() {
    let mut array = Scenario::new("6", 5).window_bytes(1).start();
    assert!(!zeroing(&mut array));
    let all = unwritten(&mut array);
    array.command(Command::StartInit).expect("it begins");
    array.steps(300);
    array.command(Command::StopInit).expect("it stops");
    array.rest();
    let left = unwritten(&mut array);
    assert!(0 < left && left < all, "{left} of {all}");
    assert!(job(&mut array).is_none());
    array.stop().start().rest().verify();
    assert_eq!(unwritten(&mut array), left);
    array.command(Command::StartInit).expect("it goes on");
    array.steps(20).power_cut().start().rest().verify();
    assert_eq!(unwritten(&mut array), 0);
    sound(&mut array);
}

#[test]
fn it_goes_on_behind_a_growth_and_a_move_of_data_that_come_between_at_any_step() {
    let make = || to_be_zeroed("5", 4).large().start();
    let over = |array: &mut Scenario, _: &()| !zeroing(array);
    let mut moved = 0;
    let met = everywhere(61, make, begin, over, |array, _, nth| {
        let id = match nth % 2 {
            0 => array.begin_to_restripe(1),
            _ => array.begin_to_add_parity(1),
        };
        // Once zeroing is over, room that the array gains is not zeroed.
        let before = array.world.geometry().slots();
        let has_begun = |array: &Scenario| array.world.geometry().slots() != before;
        while zeroing(array) && !has_begun(array) && array.world.answer_to(id).is_none() {
            array.steps(1);
        }
        let in_time = has_begun(array);
        array.rest();
        moved += u64::from(array.answer(id).is_ok());
        array.rest().verify();
        assert!(!zeroing(array), "blow {nth}");
        assert!(!in_time || unwritten(array) == 0, "blow {nth}");
        sound(array);
    });
    assert!(met > 5 && moved > 5, "{met}, {moved}");
}

/// What a first write waits for while it zeroes at priority 1, piece by piece, beside other
/// requests: what is left of one region, not a piece a second.
#[test]
fn a_first_write_does_not_wait_for_its_pace() {
    let slow = Settings {
        init_priority: 1,
        ..Settings::default()
    };
    let mut array = to_be_zeroed("5", 4).large().settings(slow).start();
    array.write(3);
    for _ in 0..40 {
        // It is kept at its pace by requests, and pauses most of the time.
        array.begin_to_read().steps(30);
    }
    let before = job(&mut array).expect("it is at work").done_bytes;
    let since = array.world.now();
    for block in (0..array.world.blocks()).step_by(97) {
        let began = array.world.now();
        array.write_at(block, 1);
        let took = array.world.now().since(began);
        assert!(took < 100_000_000, "{took} ns at block {block}");
    }
    assert!(array.world.now().since(since) < 60_000_000_000);
    assert!(before < array.world.geometry().rows * array.world.geometry().strip);
    array.rest().verify();
    sound(&mut array);
}
