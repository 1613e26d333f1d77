//! What happens to an array in its years, with the power cut, the process killed and a member lost
//! at every step of it: replacement, take-over by a spare, return, scrub with repair, discard.
//!
//! Moves of data and growth have rooms of their own (`moving`, `groups`, `strips`, `growth`).

use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::WriteHole;
use strake_sim::scenario::{Draft, Scenario};

use crate::steps::{self, ASKS, everywhere};

/// A full array that rests.
fn full(draft: Draft) -> Scenario {
    let mut array = draft.start();
    array.fill().rest();
    array
}

/// Whole again, and whole without as many others as the level survives.
fn sound(array: &mut Scenario, spared: u8) {
    array.made_whole().verify();
    array.lose_others(Some(spared)).write(5).rest().verify();
}

/// Gives empty slots a device, as long as there are any.
fn fill_up(array: &mut Scenario) {
    array.rest();
    let empty = array.world.looks();
    let empty = empty.iter().filter(|look| look.in_sync.is_none()).count();
    for _ in 0..empty {
        array.add();
    }
    array.rest();
}

// ---- replacement ------------------------------------------------------------------------------

const REPLACED: u8 = 1;

/// The drives of a replacement, the old one and the new one, and its command.
struct Swap {
    old: usize,
    new: usize,
    id: CommandId,
}

fn begin_to_replace(array: &mut Scenario) -> Swap {
    let old = array.drive(REPLACED);
    let fresh = array.world.fresh().expect("there are devices left");
    let new = array.world.drive_of(fresh.device);
    let id = array.world.command(Command::Replace(Slot(REPLACED), fresh));
    array.begin_to_write(ASKS, 0);
    Swap { old, new, id }
}

fn is_replaced(array: &mut Scenario, swap: &Swap) -> bool {
    array.world.looks()[usize::from(REPLACED)].in_sync == Some(swap.new) && array.world.at_rest()
}

#[test]
fn a_replacement_that_is_cut_off_at_any_step_goes_on_or_never_began() {
    let (closed, resync) = (WriteHole::Closed, WriteHole::Resync);
    for (level, members, stride, policy) in [
        ("1", 2, 23, closed),
        ("5", 4, 41, closed),
        ("5", 4, 7, resync),
        ("6", 5, 67, closed),
        ("10", 4, 43, closed),
        ("50", 6, 71, closed),
    ] {
        let (mut went_on, mut anew) = (0, 0);
        let make = || full(Scenario::new(level, members).policy(policy));
        let strike = |array: &mut Scenario, swap: &Swap, nth| {
            // There are writes under way, wherever the copy has come to.
            array.begin_to_write(12, nth as u64 % 48);
            steps::cut(array, nth);
            array.start().rest().verify();
            if array.serves(swap.old) {
                // The word had not become durable: it is said again.
                array.replace(REPLACED).rest();
                anew += 1;
            } else {
                went_on += 1;
            }
            assert!(!array.serves(swap.old), "{level}, blow {nth}");
            sound(array, REPLACED);
        };
        let met = everywhere(stride, make, begin_to_replace, is_replaced, strike);
        assert!(met > 7, "{level}: {met}");
        assert!(went_on > 5 && anew > 0, "{level}: {went_on} {anew}");
    }
}

#[test]
fn a_replacement_survives_the_loss_of_the_old_the_new_or_another_member_at_any_step() {
    for (level, members, stride) in [("1", 3, 61), ("5", 4, 83), ("6", 5, 109), ("50", 6, 149)] {
        for victim in ["old", "new", "another"] {
            let make = || full(Scenario::new(level, members));
            let mut outcomes = [0; 2];
            let strike = |array: &mut Scenario, swap: &Swap, nth: usize| {
                let drive = match victim {
                    "old" => swap.old,
                    "new" => swap.new,
                    _ => array.drive(2),
                };
                // The old one may be out already.
                assert!(array.world.vanish(drive).is_ok());
                array.write(10).rest().verify();
                let answer = array.answer(swap.id);
                outcomes[usize::from(answer.is_ok())] += 1;
                assert!(victim == "new" || answer.is_ok(), "blow {nth}: {answer:?}");
                // The others go on, as long as they were begun.
                let whole = array.state() == ArrayState::Optimal;
                assert_eq!(array.serves(swap.old), victim == "new" && whole);
                fill_up(array);
                assert_eq!(array.state(), ArrayState::Optimal, "{level}, blow {nth}");
                sound(array, 0);
            };
            let met = everywhere(stride, make, begin_to_replace, is_replaced, strike);
            assert!(met > 5, "{level} without the {victim}: {met}");
            assert!(
                outcomes[1] > 5,
                "{level} without the {victim}: {outcomes:?}"
            );
        }
    }
}

#[test]
fn a_replacement_that_is_cut_off_with_a_member_lost_at_any_step_loses_nothing() {
    for (victim, stride) in [("old", 73), ("new", 89), ("another", 79)] {
        let make = || full(Scenario::new("6", 5));
        let strike = |array: &mut Scenario, swap: &Swap, nth| {
            steps::cut(array, nth);
            match victim {
                "old" => array.world.hide(swap.old),
                "new" => array.world.hide(swap.new),
                _ => steps::hide(array, 3),
            }
            array.start().write(10).rest().verify();
            fill_up(array);
            sound(array, 0);
        };
        let met = everywhere(stride, make, begin_to_replace, is_replaced, strike);
        assert!(met > 7, "without the {victim}: {met}");
    }
}

/// The replacement takes its place while a superblock is being written that takes another member
/// back: the replacement has that superblock before the member that returns has it.
#[test]
fn a_replacement_that_takes_its_place_as_another_member_returns_is_not_passed_over() {
    let begin = |events| {
        let mut array = full(Scenario::new("6", 5).no_caches());
        let away = array.drive(0);
        array.lose(0).write(10).rest();
        let fresh = array.world.fresh().expect("there are devices left");
        let new = array.world.drive_of(fresh.device);
        let replace = Command::Replace(Slot(REPLACED), fresh);
        array.world.command(replace);
        array.steps(events);
        (array, away, new)
    };
    let is_replaced =
        |array: &mut Scenario, new| array.world.looks()[usize::from(REPLACED)].in_sync == Some(new);
    let over = |events| {
        let (mut array, _, new) = begin(events);
        is_replaced(&mut array, new)
    };
    let end = (0..).find(|events| over(20 * events)).expect("it ends") * 20;
    let mut as_it_joins = 0;
    for before in 0..60 {
        for then in 0..60 {
            let (mut array, away, new) = begin(end - before);
            let replaced = is_replaced(&mut array, new);
            array.world.offer(away).expect("the drive holds a member");
            array.steps(then);
            as_it_joins += u64::from(!replaced && is_replaced(&mut array, new));
            array.power_cut();
        }
    }
    assert!(as_it_joins > 100, "{as_it_joins}");
}

// ---- a spare takes over -----------------------------------------------------------------------

fn lose_one(array: &mut Scenario) -> usize {
    let lost = array.drive(REPLACED);
    array.lose(REPLACED).begin_to_write(ASKS, 0);
    lost
}

fn is_taken_over(array: &mut Scenario, _: &usize) -> bool {
    array.state() == ArrayState::Optimal && array.world.stats().losses > 0 && array.world.at_rest()
}

#[test]
fn a_take_over_by_a_spare_that_is_cut_off_at_any_step_goes_on() {
    for (level, members, stride) in [("1", 2, 29), ("5", 4, 47), ("6", 5, 79), ("50", 6, 83)] {
        let make = || full(Scenario::new(level, members).spares(1));
        let strike = |array: &mut Scenario, lost: &usize, nth| {
            array.begin_to_write(12, nth as u64 % 48);
            steps::cut(array, nth);
            array.start().write(10).rest().verify();
            assert_eq!(array.state(), ArrayState::Optimal, "{level}, blow {nth}");
            assert!(!array.serves(*lost));
            sound(array, REPLACED);
        };
        let met = everywhere(stride, make, lose_one, is_taken_over, strike);
        assert!(met > 7, "{level}: {met}");
    }
}

#[test]
fn a_take_over_by_a_spare_survives_the_loss_of_the_spare_or_another_member_at_any_step() {
    for (victim, stride) in [("spare", 89), ("another", 97)] {
        let make = || full(Scenario::new("6", 5).spares(2));
        let strike = |array: &mut Scenario, _: &usize, nth| {
            let look = array.world.looks()[usize::from(REPLACED)];
            match (victim, look.incoming.or(look.in_sync)) {
                ("spare", Some(drive)) => assert!(array.world.vanish(drive).is_ok()),
                _ => drop(array.lose(3)),
            }
            array.write(10).rest().verify();
            // The second spare was for that.
            assert_eq!(array.state(), ArrayState::Optimal, "{victim}, blow {nth}");
            sound(array, 0);
        };
        let met = everywhere(stride, make, lose_one, is_taken_over, strike);
        assert!(met > 7, "{victim}: {met}");
    }
}

// ---- a member returns -------------------------------------------------------------------------

/// A member was away, and a part of the array was written meanwhile.
fn without_one(level: &str, members: u8) -> Scenario {
    let mut array = full(Scenario::new(level, members));
    array.pull(REPLACED).write(40).rest();
    array
}

fn begin_to_return(array: &mut Scenario) -> usize {
    let drives = 0..array.world.drives().len();
    let mut gone = drives.filter(|&drive| array.world.ssd(drive).faults.gone);
    let away = gone.next().expect("one was pulled");
    array.world.offer(away).expect("it holds a member");
    array.begin_to_write(ASKS, 0);
    away
}

fn is_back(array: &mut Scenario, away: &usize) -> bool {
    let slot = usize::from(REPLACED);
    array.world.looks()[slot].in_sync == Some(*away) && array.world.at_rest()
}

#[test]
fn a_return_that_is_cut_off_at_any_step_goes_on() {
    for (level, members, stride) in [
        ("1", 3, 19),
        ("5", 4, 31),
        ("6", 5, 53),
        ("10", 4, 31),
        ("50", 6, 29),
    ] {
        let strike = |array: &mut Scenario, away: &usize, nth| {
            array.begin_to_write(12, nth as u64 % 48);
            steps::cut(array, nth);
            array.start().write(10).rest().verify();
            assert!(array.serves(*away), "{level}, blow {nth}");
            sound(array, REPLACED);
        };
        let make = || without_one(level, members);
        let met = everywhere(stride, make, begin_to_return, is_back, strike);
        assert!(met > 7, "{level}: {met}");
    }
}

#[test]
fn a_return_survives_the_loss_of_whoever_returns_or_another_member_at_any_step() {
    for (victim, stride) in [("itself", 59), ("another", 71)] {
        let make = || without_one("6", 5);
        let strike = |array: &mut Scenario, away: &usize, nth| {
            match victim {
                "itself" => assert!(array.world.vanish(*away).is_ok()),
                _ => drop(array.lose(3)),
            }
            array.write(10).rest().verify();
            assert_eq!(array.state(), ArrayState::Degraded, "{victim}, blow {nth}");
            fill_up(array);
            sound(array, 0);
        };
        let met = everywhere(stride, make, begin_to_return, is_back, strike);
        assert!(met > 7, "{victim}: {met}");
    }
}

// ---- a scrub repairs --------------------------------------------------------------------------

fn begin_to_repair(array: &mut Scenario) -> CommandId {
    array.world.begin_scrub(ScrubMode::Repair, false)
}

fn is_scrubbed(array: &mut Scenario, _: &CommandId) -> bool {
    let sb = array.status().superblock;
    sb.last_scrub.is_some() && array.world.at_rest()
}

#[test]
fn a_scrub_that_repairs_and_is_cut_off_at_any_step_makes_all_true_in_the_end() {
    for (level, members, stride) in [("6", 6, 61), ("7.3", 6, 67), ("60", 8, 53)] {
        let make = || {
            // Regions are clean, and the log tells of the last stripes only: neither a resync nor a
            // replay makes what lies the truth.
            let mut array = full(Scenario::new(level, members).forgiving());
            array.sleep();
            let stripes = array.world.geometry().rows * array.world.geometry().groups;
            array.rot(0, 1).rot(stripes / 3, 2).rot(stripes * 2 / 3, 0);
            array.spoil_block(3, 2, 0).spoil_block(0, 4, 0);
            array
        };
        let mut repaired = 0;
        let strike = |array: &mut Scenario, _: &CommandId, nth| {
            steps::cut(array, nth);
            array.start().rest();
            repaired += u64::from(array.world.stats().repairs > 0);
            array.cure();
            array
                .command(Command::StartScrub(ScrubMode::Repair))
                .expect("it can");
            array.rest().verify();
            let unread = array.world.drives().iter();
            let unread = unread
                .map(|drive| drive.ssd().faults.latent.len())
                .sum::<usize>();
            assert_eq!(unread, 0, "{level}, blow {nth}");
            array.write(10);
            sound(array, 0);
        };
        let met = everywhere(stride, make, begin_to_repair, is_scrubbed, strike);
        assert!(met > 7 && repaired > 5, "{level}: {met} {repaired}");
    }
}

#[test]
fn a_scrub_that_repairs_survives_the_loss_of_a_member_at_any_step() {
    for (level, members, stride, slot) in [("6", 6, 59, 0), ("6", 6, 67, 3), ("60", 8, 89, 5)] {
        let make = || {
            let mut array = full(Scenario::new(level, members).forgiving());
            for row in 0..6 {
                array.spoil_block(0, 2 * row, 0);
            }
            array
        };
        let begin = |array: &mut Scenario| {
            let id = begin_to_repair(array);
            array.begin_to_write(ASKS, 0);
            id
        };
        let strike = |array: &mut Scenario, _: &CommandId, nth: usize| {
            array.lose(slot);
            if nth.is_multiple_of(3) {
                array.power_cut();
                array.start();
            }
            array.write(10).rest().verify();
            fill_up(array);
            sound(array, 1);
        };
        let met = everywhere(stride, make, begin, is_scrubbed, strike);
        assert!(met > 7, "{level} without {slot}: {met}");
    }
}

// ---- discard ----------------------------------------------------------------------------------

/// Space is given back, all of it, while some of it is written.
fn begin_to_discard(array: &mut Scenario) {
    array.begin_to_discard().begin_to_write(ASKS, 0);
}

fn is_given_back(array: &mut Scenario, (): &()) -> bool {
    array.world.at_rest()
}

#[test]
fn a_discard_that_is_cut_off_at_any_step_leaves_all_true() {
    for (level, members, stride) in [("1", 2, 13), ("5", 4, 19), ("6", 6, 29), ("50", 6, 31)] {
        let make = || full(Scenario::new(level, members).shards(2));
        let strike = |array: &mut Scenario, (): &(), nth| {
            steps::cut(array, nth);
            // Every other time with a member lost in the same outage.
            if nth % 4 > 1 {
                steps::hide(array, 1);
            }
            array.start().verify().write(20).rest().verify();
            fill_up(array);
            array.begin_to_scrub();
            sound(array, 1);
        };
        let met = everywhere(stride, make, begin_to_discard, is_given_back, strike);
        assert!(met > 7, "{level}: {met}");
    }
}

#[test]
fn a_discard_survives_the_loss_of_a_member_at_any_step() {
    for (level, members, stride) in [("1", 2, 17), ("5", 4, 23), ("6", 6, 37), ("50", 6, 41)] {
        let make = || full(Scenario::new(level, members).shards(2));
        let strike = |array: &mut Scenario, (): &(), nth: usize| {
            array.lose((nth % usize::from(members)) as u8);
            array.write(10).rest().verify();
            fill_up(array);
            array.begin_to_scrub();
            sound(array, 1);
        };
        let met = everywhere(stride, make, begin_to_discard, is_given_back, strike);
        assert!(met > 7, "{level}: {met}");
    }
}
