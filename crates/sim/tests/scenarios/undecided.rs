//! What is built from strips that do not agree with each other: it is no witness against those that
//! are right.

use strake_engine::event::*;
use strake_engine::units::StripeNo;
use strake_format::ScrubMode;
use strake_sim::scenario::Scenario;

/// What lies in a column is flipped behind the array's back; then something is built from it.
fn flipped(level: &str, members: u8, column: usize) -> Scenario {
    let mut array = Scenario::new(level, members).forgiving().start();
    array.fill().rest();
    array.rot(4, column);
    array
}

/// What every member in sync holds of a row, by slot.
fn row_of(array: &mut Scenario, stripe: u64) -> Vec<Vec<u8>> {
    let geometry = array.world.geometry.clone();
    let row = geometry.row(StripeNo(stripe)).1;
    let slots = 0..geometry.width as u8;
    let data_offset = array.world.superblock.layout.data_offset;
    let offset = data_offset + geometry.row_offset(row);
    let drives: Vec<usize> = slots.map(|slot| array.drive(slot)).collect();
    let strip = |drive: usize| {
        let drive = &array.world.drives[drive];
        let bytes = drive.ssd.peek(offset, geometry.strip as usize);
        bytes.expect("readable").to_vec()
    };
    drives.into_iter().map(strip).collect()
}

/// Made by a rebuild of Q: the strips that it was built from had not agreed, and a repair blamed
/// the one that was right, because Q vouched for the one that was not.
#[test]
fn a_repair_leaves_alone_what_was_built_from_strips_that_did_not_agree() {
    for (level, members, wrong, gone) in [
        ("6", 6, 1, 5),
        ("6", 6, 4, 5),
        ("6", 6, 1, 2),
        ("6", 6, 4, 2),
        ("6", 6, 5, 2),
        ("6", 6, 1, 4),
    ] {
        for restarts in [false, true] {
            let mut array = flipped(level, members, wrong);
            let slot = array.world.geometry.slot(StripeNo(4), gone).0;
            array.lose(slot).add().made_whole();
            if restarts {
                array.stop().start();
            }
            let before = row_of(&mut array, 4);
            array
                .command(Command::StartScrub(ScrubMode::Repair))
                .expect("it scrubs");
            array.rest();
            let after = row_of(&mut array, 4);
            assert!(before == after, "{level}: {wrong} wrong, {gone} gone");
        }
    }
}

/// With redundancy to spare who is wrong is known, and what is built is right.
#[test]
fn a_rebuild_does_not_believe_a_strip_that_the_others_call_wrong() {
    for (wrong, gone) in [(1, 2), (5, 2), (1, 6), (7, 6), (2, 1)] {
        let mut array = flipped("7.3", 8, wrong);
        let slot = array.world.geometry.slot(StripeNo(4), gone).0;
        array.lose(slot).add().made_whole();
        array
            .command(Command::StartScrub(ScrubMode::Repair))
            .expect("it scrubs");
        array.rest().verify();
        let last = array.world.machines().array.status().superblock.last_scrub;
        let found = last.expect("it has ended").found;
        assert_eq!((found.inconsistent, found.located), (1, 1));
    }
}

/// RAID 5 that gets a second parity: built from data of which a part was wrong, it vouched for
/// that part.
#[test]
fn a_parity_that_is_added_does_not_vouch_for_what_it_was_built_from() {
    let mut array = flipped("5", 4, 1);
    let id = array.begin_to_add_parity(1);
    array.answer(id).expect("it can have one more");
    array.made_whole();
    let before = row_of(&mut array, 4);
    array
        .command(Command::StartScrub(ScrubMode::Repair))
        .expect("it scrubs");
    array.rest();
    assert!(before == row_of(&mut array, 4));
}
