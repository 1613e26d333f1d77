//! Parities that were added rotate when they are told to, and on the way to groups.

use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::Level;
use strake_sim::scenario::Scenario;

use crate::steps::{self, Move, moves, size};

/// RAID 5 that became RAID 6, full; data moves by windows of so many bytes.
fn raised(window_bytes: u64) -> Scenario {
    let draft = Scenario::new("5", 4).roomy_log().buffers(400);
    let mut array = draft.window_bytes(window_bytes).start();
    array.fill().rest();
    let id = array.begin_to_add_parity(1);
    array.answer(id).expect("RAID 5 becomes RAID 6");
    array.rest();
    assert_eq!(array.world.geometry().fixed, 1);
    array
}

fn begin(array: &mut Scenario) -> Move {
    let to_be = size(array);
    let id = array.begin_to_rotate();
    Move { id, to_be }
}

/// Data columns and parities in each slot, over as many rows as it takes.
fn share_of_parity(array: &Scenario) -> Vec<usize> {
    let geometry = &array.world.geometry();
    let mut parities = vec![0; geometry.slots()];
    for row in 0..geometry.slots() as u64 {
        for j in 0..geometry.m {
            let stripe = geometry.stripe(0, Row(row));
            parities[geometry.slot(stripe, geometry.k + j).index()] += 1;
        }
    }
    parities
}

#[test]
fn a_parity_that_was_added_is_spread_over_all_members() {
    let mut array = raised(32768);
    assert_eq!(share_of_parity(&array)[4], 5, "all of Q");
    let it = begin(&mut array);
    array.begin_to_write(40, 0);
    array.answer(it.id).expect("it rotates");
    assert!(moves(&mut array));
    array.write(40).rest().verify();
    assert!(!moves(&mut array));
    assert_eq!(
        (size(&mut array), array.world.geometry().fixed),
        (it.to_be, 0)
    );
    assert_eq!(share_of_parity(&array), [2; 5]);
    let again = array.begin_to_rotate();
    assert_eq!(array.answer(again), Err(CommandError::SameShape));
    array.begin_to_scrub();
    array
        .rest()
        .lose(0)
        .write(20)
        .lose(4)
        .write(20)
        .rest()
        .verify();
    array.stop();
    array.start().verify();
}

#[test]
fn a_power_cut_anywhere_while_parities_begin_to_rotate_loses_nothing() {
    let resumed = steps::cut_a_move(41, || raised(1), begin, None);
    assert!(resumed > 0);
}

#[test]
fn a_member_that_is_lost_with_the_power_while_parities_begin_to_rotate_is_computed() {
    for slot in [1, 4] {
        steps::cut_a_move(97, || raised(32768), begin, Some(slot));
    }
}

#[test]
fn what_stands_half_way_survives_two_losses_and_scrubs_find_nothing() {
    let mut array = raised(1);
    let it = begin(&mut array);
    array.answer(it.id).expect("it rotates");
    array.wait("some has moved", |world| world.geometry().new_rows() > 6);
    array.command(Command::StopRestripe).expect("it moves");
    array.rest().begin_to_scrub();
    array.rest().fill().write(40).rest();
    array.lose(4).write(20).lose(2).write(20).rest().verify();
    array.power_cut();
    array.start().write(20).rest().verify();
    assert!(moves(&mut array));
}

#[test]
fn on_the_way_to_groups_parities_rotate_unasked() {
    for events in [0, 600, 1300, 2100] {
        let mut array = raised(32768);
        let id = array.begin_to_regroup(4, 3);
        array.answer(id).expect("RAID 6 becomes RAID 60");
        array.begin_to_write(20, events).power_cut();
        array.start().write(40).rest().verify();
        let sb = array.status().superblock;
        assert_eq!((sb.level, sb.fixed_parities), (Level::Raid60, 0));
        for slot in [0, 2, 5, 7] {
            array.lose(slot).write(10);
        }
        array.rest().verify();
    }
}
