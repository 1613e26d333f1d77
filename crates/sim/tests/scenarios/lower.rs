//! A parity that was added goes again while the array serves.

use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::Level;
use strake_sim::scenario::Scenario;

use crate::reshape::{cut_everywhere, level, raises};

const LOWER: fn(&mut Scenario) -> CommandId =
    |array| array.world.command(Command::DropParity(Fewer::of(1)));

/// RAID 5 of four members that has become RAID 6 of five.
fn raised() -> Scenario {
    let mut array = raises("5", 4).start();
    array.fill().rest();
    let id = array.begin_to_add_parity(1);
    array.answer(id).expect("RAID 6");
    array.rest();
    assert_eq!(level(&mut array), Level::Raid6);
    array
}

fn spares(array: &mut Scenario) -> usize {
    array.status().superblock.spares.len()
}

#[test]
fn a_parity_that_was_added_goes_while_requests_are_under_way_and_its_member_is_a_spare() {
    let mut array = raised();
    array.begin_to_write(60, 300);
    let id = LOWER(&mut array);
    array.answer(id).expect("it was added");
    assert_eq!(level(&mut array), Level::Raid5);
    array.rest().verify();
    assert_eq!(array.state(), ArrayState::Optimal);
    assert_eq!(spares(&mut array), 1);
    // It is as good as any other spare.
    array.lose(1).write(30).rest().verify();
    assert_eq!(array.state(), ArrayState::Optimal);
    assert_eq!(spares(&mut array), 0);
    array.stop();
    array.start().verify();
    array.lose(3).write(30).rest().verify();
}

#[test]
fn of_three_parities_two_go_at_once_and_come_back() {
    let mut array = raised();
    let id = array.begin_to_add_parity(1);
    array.answer(id).expect("RAID 7.3");
    array.rest();
    let id = array.world.command(Command::DropParity(Fewer::of(2)));
    array.answer(id).expect("both were added");
    assert_eq!(level(&mut array), Level::Raid5);
    assert_eq!(spares(&mut array), 2);
    array.write(60).rest().verify();
    let spares: Vec<_> = array.status().members;
    for spare in spares.iter().filter(|m| m.state == MemberState::Spare) {
        let device = spare.device.expect("it is there");
        array
            .command(Command::Remove(MemberRef::Device(device)))
            .expect("a spare goes when it is told to");
    }
    let id = array.begin_to_add_parity(2);
    array.answer(id).expect("RAID 7.3 again");
    array.rest().verify();
    array.lose(0).lose(2).lose(4).write(40).rest().verify();
}

#[test]
fn only_what_there_is_goes_and_only_from_an_array_in_order() {
    let mut array = raised();
    let level = Level::Raid6;
    for (fewer, error) in [
        (0, CommandError::ParitiesStay { level, fewer: 0 }),
        (2, CommandError::LastParity { level }),
        (3, CommandError::ParitiesStay { level, fewer: 3 }),
    ] {
        let refused = array.command(Command::DropParity(Fewer::of(fewer)));
        assert_eq!(refused, Err(error));
    }
    array.lose(2).write(20).rest();
    let refused = array.command(Command::DropParity(Fewer::of(1)));
    assert_eq!(refused, Err(CommandError::NotOptimal));
    array.verify();
}

#[test]
fn a_crash_anywhere_while_a_parity_goes_leaves_the_old_level_or_the_new_one() {
    let make = || {
        let mut array = raised();
        array.begin_to_write(30, 60);
        array
    };
    let cuts = cut_everywhere(make, LOWER);
    assert!(cuts.0 > 5 && cuts.1 > 5, "{cuts:?}");
}

#[test]
fn a_member_that_is_lost_while_a_parity_goes_is_rebuilt_at_the_old_level_or_the_new_one() {
    let mut levels = Vec::new();
    for events in (0..600).step_by(11) {
        let mut array = raised();
        array.begin_to_write(20, 60);
        let id = LOWER(&mut array);
        array.steps(events).lose(2).write(20);
        let answer = array.answer(id);
        assert!(
            matches!(answer, Ok(_) | Err(CommandError::NotOptimal)),
            "{answer:?}"
        );
        levels.push(level(&mut array));
        array.rest().verify();
        array.power_cut();
        array.start().rest().verify();
    }
    assert!(levels.contains(&Level::Raid5) && levels.contains(&Level::Raid6));
}

/// The tables of the old level and of the new one beside each other, and some members missing.
#[test]
fn whoever_is_missing_after_a_crash_the_array_goes_on_and_takes_them_back() {
    for events in (0..700).step_by(13) {
        for away in 0..5 {
            let mut array = raised();
            array.begin_to_write(20, 60);
            let drive = array.drive(away);
            LOWER(&mut array);
            array.steps(events).power_cut();
            array.world.hide(drive);
            array.start().write(20).rest().verify();
            array.power_cut();
            array.bring_back(drive).start().write(10).rest().verify();
        }
    }
}
