//! Drives that are reset: what ends in time costs nothing, what does not costs what was written
//! meanwhile.

use strake_engine::create::Init;
use strake_engine::event::*;
use strake_format::Settings;
use strake_sim::scenario::{Draft, Scenario};

use crate::REDUNDANT;

/// Longer than any I/O is tried: the deadline in a scenario is 50 ms.
const TOO_LONG_US: u64 = 200_000;

/// RAID 6 with a spare that waits.
fn patient() -> Draft {
    let settings = Settings {
        spare_delay_ms: 60_000,
        ..Settings::default()
    };
    Scenario::new("6", 6)
        .no_caches()
        .spares(1)
        .settings(settings)
}

/// What was counted of the member in this slot.
fn retries(array: &mut Scenario, slot: usize) -> RetryCounts {
    array.status().members[slot].retries
}

#[test]
fn what_did_not_get_through_is_counted_for_its_member_and_a_reset_is_one_however_many_ios_it_met() {
    let mut array = Scenario::new("6", 6).no_caches().start();
    array.fill().begin_to_write(60, 30);
    array.reset(1, 25_000, false);
    array.wait("requests are answered", |world| world.all_answered());
    array.write(20).rest();
    let stats = *array.world.stats();
    let counts = retries(&mut array, 1);
    assert!(counts.got_through > 1 && counts.tries >= counts.got_through);
    assert_eq!(counts.tries, stats.retries);
    assert_eq!(counts.got_through, stats.retried_through);
    assert_eq!((counts.failed, counts.resets), (0, 1));
    assert_eq!(retries(&mut array, 0), RetryCounts::default());
    array.begin_to_write(60, 30).reset(1, 25_000, false);
    array.wait("requests are answered", |world| world.all_answered());
    array.write(20).rest();
    assert_eq!(retries(&mut array, 1).resets, 2);
    let reset = Command::ResetCounters(None);
    array.command(reset).expect("it can be");
    assert_eq!(retries(&mut array, 1), RetryCounts::default());
}

#[test]
fn what_never_got_through_is_counted_in_the_slot_that_its_member_left() {
    let mut array = patient().start();
    array.fill();
    stall(&mut array, 1);
    let counts = retries(&mut array, 1);
    assert!(counts.failed > 0 && counts.tries > 0, "{counts:?}");
    assert_eq!(counts.resets, 0, "none was ridden out");
}

fn state(array: &mut Scenario, slot: usize) -> MemberState {
    array.status().members[slot].state
}

/// Nothing gets through to the member in this slot until it is out.
fn stall(array: &mut Scenario, slot: u8) -> usize {
    let drive = array.drive(slot);
    array.reset(slot, TOO_LONG_US, false).write(30);
    array.wait("it is out", move |world| {
        world.looks()[usize::from(slot)].in_sync.is_none()
            && world.drives()[drive].device().is_none()
    });
    drive
}

/// Until nothing is under way on a drive, and its reset is over.
fn until_it_answers(array: &mut Scenario, drive: usize) {
    let reset = array.world.ssd(drive).faults.reset;
    let until = reset.expect("it is reset").until;
    let wait_ns = until.since(array.world.now());
    assert_eq!(array.world.ssd(drive).in_flight(), 0);
    array.world.pass(wait_ns + 1);
}

/// The member on this drive is taken back by a partial rebuild, and two others may be lost then.
fn comes_back(raid6: &mut Scenario, drive: usize) {
    raid6.offer(drive).expect("it is kept");
    raid6.rest().verify();
    assert_eq!(raid6.state(), ArrayState::Optimal);
    assert!(raid6.serves(drive));
    assert_eq!(raid6.world.stats().partial_rebuilds, 1);
    raid6.lose(0).lose(1).verify();
}

#[test]
fn a_reset_that_ends_in_time_costs_no_member_and_no_byte() {
    for (level, members) in REDUNDANT {
        for seed in 0..8 {
            let draft = Scenario::new(level, members).no_caches();
            let mut array = draft.seed(800 + seed).start();
            array.fill().begin_to_write(60, 30 * seed);
            array.reset(1, 25_000, false);
            array.wait("requests are answered", |world| world.all_answered());
            array.write(20).rest();
            assert!(array.world.stats().retries > 0, "level {level}");
            assert_eq!(array.world.stats().losses, 0, "level {level}");
            assert_eq!(array.state(), ArrayState::Optimal);
            array.verify();
            array.lose_others(Some(1)).verify();
        }
    }
}

/// A host adapter, a switch, a shelf: no member is left to answer from, so requests wait.
#[test]
fn all_members_may_be_reset_at_once_even_where_none_may_be_lost() {
    for (level, members) in [("0", 4), ("1", 2), ("5", 4), ("50", 6)] {
        let mut array = Scenario::new(level, members).no_caches().start();
        array.fill().begin_to_write(60, 40);
        (0..members).for_each(|slot| {
            array.reset(slot, 20_000, false);
        });
        array.wait("requests are answered", |world| world.all_answered());
        array.write(20).rest().verify();
        assert_eq!(array.world.stats().losses, 0, "level {level}");
        assert!(array.world.stats().retries > 0, "level {level}");
    }
}

#[test]
fn a_power_cut_or_a_kill_in_the_middle_of_a_reset_loses_nothing() {
    for (level, members) in REDUNDANT {
        for moment in 0..12 {
            let draft = Scenario::new(level, members).no_caches();
            let mut array = draft.seed(900 + moment).start();
            array.write(60).begin_to_write(40, 20);
            array.reset(0, 30_000, false).steps(17 * moment);
            let array = match moment % 2 {
                0 => array.power_cut(),
                _ => array.kill(),
            };
            array.start().rest().verify();
            array.lose(1).write(10).verify();
        }
    }
}

#[test]
fn reads_are_answered_by_the_others_while_a_member_is_reset() {
    let mut raid6 = Scenario::new("6", 6).no_caches().hedging(1, 64).start();
    raid6.fill().rest();
    for _ in 0..24 {
        raid6.read_each_us();
    }
    raid6.sleep().reset(2, 30_000, false);
    let slowest_us = raid6.read_each_us();
    assert!(slowest_us < 4_000, "{slowest_us} us");
    raid6.rest().verify();
    assert_eq!(raid6.world.stats().losses, 0);
}

#[test]
fn a_member_that_is_reset_for_too_long_is_waited_for_and_gets_what_was_written_meanwhile() {
    let mut raid6 = patient().start();
    raid6.fill().rest();
    let late = stall(&mut raid6, 2);
    raid6.write(20).rest();
    assert_eq!(state(&mut raid6, 2), MemberState::Missing);
    let spare = raid6.status().members[2].spare_in_ns;
    assert!(spare.is_some_and(|ns| ns > 50_000_000_000), "{spare:?}");
    until_it_answers(&mut raid6, late);
    comes_back(&mut raid6, late);
}

/// Survivors know that it is out before a write is answered that it missed, so a start without any
/// of them, or with it, believes nothing that it holds.
#[test]
fn a_member_that_was_reset_for_too_long_is_not_believed_after_a_power_cut() {
    for moment in 0..12 {
        let mut raid6 = patient().seed(1000 + moment).start();
        raid6.fill().rest();
        let late = stall(&mut raid6, 2);
        raid6.begin_to_write(30, 11 * moment).power_cut();
        raid6.world.hide((late + 1 + moment as usize % 5) % 6);
        raid6.start().rest().verify();
    }
}

#[test]
fn one_that_does_not_answer_again_and_again_has_failed_unless_it_is_forgiven() {
    for forgiven in [false, true] {
        let mut raid6 = patient().start();
        raid6.fill().rest();
        for _ in 0..3 {
            let late = stall(&mut raid6, 2);
            assert_eq!(state(&mut raid6, 2), MemberState::Missing);
            until_it_answers(&mut raid6, late);
            raid6.offer(late).expect("it is kept");
            raid6.rest();
            assert_eq!(raid6.state(), ArrayState::Optimal);
        }
        if forgiven {
            let all = Command::ResetCounters(None);
            raid6.command(all).expect("it is done");
        }
        let late = stall(&mut raid6, 2);
        raid6.rest();
        let (expected, rebuilds) = match forgiven {
            true => (ArrayState::Degraded, 0),
            false => (ArrayState::Optimal, 1),
        };
        assert_eq!(raid6.state(), expected);
        let full = raid6.world.stats().rebuilds - raid6.world.stats().partial_rebuilds;
        assert_eq!(full, rebuilds);
        assert!(!raid6.serves(late));
        raid6.verify();
    }
}

/// What resets it may have taken its power: what its cache had answered since the last flush is
/// lost without an error. Nothing that it holds there is used before it was written anew.
#[test]
fn a_device_that_may_have_lost_its_cache_goes_out_at_once_and_comes_back_by_regions() {
    for (level, members) in REDUNDANT {
        for seed in 0..8 {
            let mut array = Scenario::new(level, members).seed(1100 + seed).start();
            array.fill().begin_to_write(40, 25 * seed);
            let lost = array.drive(1);
            array.reset(1, 2_000, true);
            array.wait("requests are answered", |world| world.all_answered());
            array.write(30);
            array.wait("it is out", move |world| {
                world.drives()[lost].device().is_none()
            });
            assert_eq!(array.world.stats().retries, 0, "level {level}");
            assert_eq!(state(&mut array, 1), MemberState::Missing);
            array.rest().offer(lost).expect("it is kept");
            array.made_whole().verify();
            assert_eq!(array.world.stats().partial_rebuilds, 1, "level {level}");
            array.lose_others(Some(1)).verify();
        }
    }
}

/// Two deadlines at most, whatever the device does.
#[test]
fn a_write_to_a_member_that_is_reset_for_ever_is_answered_in_time() {
    let mut raid5 = Scenario::new("5", 4).no_caches().start();
    raid5.write_all().rest().reset(1, 1_000_000_000, false);
    let from = raid5.world.now();
    raid5.begin_to_overwrite();
    raid5.wait("requests are answered", |world| world.all_answered());
    let took_ms = raid5.world.now().since(from) / 1_000_000;
    assert!(took_ms < 2 * 50, "{took_ms} ms");
    assert_eq!(raid5.state(), ArrayState::Degraded);
    raid5.rest().verify();
}

/// The kernel may answer EIO before it takes a drive away: that is no verdict over what the drive
/// holds.
#[test]
fn a_member_that_fails_all_for_a_moment_and_vanishes_is_kept_and_gets_what_was_written_meanwhile() {
    for seed in 0..20 {
        let mut raid6 = Scenario::new("6", 6).no_caches().seed(seed).start();
        raid6.fill().begin_to_write(60, 3 * seed);
        let pulled = raid6.vanish_soon(2);
        raid6.wait("it is out", |world| world.looks()[2].in_sync.is_none());
        raid6.wait("requests are answered", |world| world.all_answered());
        assert_eq!(state(&mut raid6, 2), MemberState::Missing);
        raid6.write(20);
        comes_back(&mut raid6, pulled);
    }
}

/// The same with what the job `init` has under way.
#[test]
fn so_is_one_that_was_being_zeroed() {
    for seed in 0..20 {
        let draft = Scenario::new("6", 6).no_caches().init(Init::Zero);
        let mut raid6 = draft.seed(seed).start();
        raid6.steps(10 * seed);
        let pulled = raid6.vanish_soon(2);
        raid6.wait("it is out", |world| world.looks()[2].in_sync.is_none());
        raid6.write(20);
        assert_eq!(state(&mut raid6, 2), MemberState::Missing);
        comes_back(&mut raid6, pulled);
    }
}

/// A sector that could not be read a moment before is a reason to be failed. (The simulator took
/// that for an error of the moment.)
#[test]
fn a_member_may_be_failed_for_a_sector_while_it_is_about_to_vanish() {
    let mut failed = 0;
    for seed in 0..40 {
        let draft = Scenario::new("6", 6).no_caches().threshold(1);
        let mut raid6 = draft.seed(seed).start();
        raid6.fill().rest();
        for row in 0..8 {
            raid6.spoil_block(2, row, 0);
        }
        raid6.begin_to_read().steps(8 + 2 * (seed % 20));
        if raid6.world.looks()[2].in_sync.is_none() {
            continue;
        }
        raid6.vanish_soon(2);
        raid6.wait("it is out", |world| world.looks()[2].in_sync.is_none());
        failed += usize::from(state(&mut raid6, 2) == MemberState::Failed);
        raid6.rest().verify();
    }
    assert!(failed > 0, "no sector was met");
}
