//! What is salvaged where too many strips of a stripe cannot be read as a whole: block by block,
//! and no more is given up than has to be.

use strake_engine::event::{ArrayState, Command, ScrubMode};
use strake_engine::units::StripeNo;
use strake_sim::scenario::Scenario;
use strake_sim::workload::AskKind;

/// The stripe that it is about.
const STRIPE: StripeNo = StripeNo(4);

/// An array that is full, with many blocks in each strip.
fn full(level: &str, members: u8, seed: u64) -> Scenario {
    let draft = Scenario::new(level, members).small_blocks().forgiving();
    let mut array = draft.seed(seed).start();
    array.write_all().rest();
    array
}

/// The slot of a column of the stripe.
fn slot(array: &Scenario, column: usize) -> u8 {
    array.world.geometry().slot(STRIPE, column).0
}

/// A block of a data column of the stripe.
fn block(array: &Scenario, column: usize, at: u64) -> u64 {
    let geometry = &array.world.geometry();
    (STRIPE.0 * geometry.stripe_bytes() + column as u64 * geometry.strip) / geometry.block + at
}

/// Blocks in a strip.
fn strip(array: &Scenario) -> u64 {
    array.world.geometry().strip / array.world.geometry().block
}

/// This block of a strip cannot be read.
fn spoil(array: &mut Scenario, column: usize, at: u64) {
    let row = array.world.geometry().row(STRIPE).1.0;
    array.spoil_block(slot(array, column), row, at);
}

/// Asks to write all of a data column of the stripe, and does not wait.
fn begin_to_write(array: &mut Scenario, column: usize) {
    let (first, count) = (block(array, column, 0), strip(array));
    array.begin_to_write_blocks(first, count);
}

/// No sector is unreadable on any member.
fn healed(array: &Scenario) -> bool {
    let mut drives = array.world.drives().iter();
    drives.all(|drive| drive.ssd().faults.latent.is_empty() || drive.ssd().faults.gone)
}

/// As many members of the stripe's columns as the level survives are lost, and everything is read.
fn verify_without(array: &mut Scenario, columns: std::ops::Range<usize>) {
    for column in columns {
        array.lose(slot(array, column)).rest();
    }
    array.verify();
}

/// Every strip but one of a stripe lacks a block, or all of it; no two lack the same block but for
/// the member that is rebuilt.
#[test]
fn a_rebuild_loses_nothing_where_members_cannot_read_different_blocks_of_a_strip() {
    for (level, members) in [("6", 5), ("7.3", 6), ("60", 8)] {
        let mut array = full(level, members, 1);
        let m = array.world.geometry().m;
        array.lose(slot(&array, 0)).steps(3000);
        for column in 1..=m {
            spoil(&mut array, column, 2 * column as u64);
        }
        array.add().made_whole();
        assert_eq!(array.unreadable(), [], "level {level}");
        assert!(healed(&array), "level {level}");
        array.verify();
        assert_eq!(array.fails(), []);
        verify_without(&mut array, 1..1 + m);
    }
}

/// The same in a write, which needs what it leaves alone.
#[test]
fn a_write_loses_nothing_where_members_cannot_read_different_blocks_of_a_strip() {
    for (level, members) in [("5", 4), ("6", 5), ("50", 8), ("60", 10)] {
        let mut array = full(level, members, 2);
        let (k, m) = (array.world.geometry().k, array.world.geometry().m);
        // All parities, and one more strip.
        for (at, column) in std::iter::once(1).chain(k..k + m).enumerate() {
            spoil(&mut array, column, 2 * at as u64);
        }
        begin_to_write(&mut array, 0);
        array.wait("it is written", |world| world.all_answered());
        assert_eq!(array.unreadable(), [], "level {level}");
        assert!(healed(&array), "level {level}");
        array.verify();
        assert_eq!(array.fails(), []);
        verify_without(&mut array, 0..m);
    }
}

/// Columns of which the same block cannot be read so that `lost` and these are one too many, and
/// the blocks of the array that are lost by that.
fn one_too_many(array: &mut Scenario, lost: Option<usize>, at: u64) -> Vec<u64> {
    let (k, m) = (array.world.geometry().k, array.world.geometry().m);
    let columns: Vec<usize> = match lost {
        Some(_) => (1..=m).collect(),
        None => std::iter::once(1).chain(k..k + m).collect(),
    };
    for &column in &columns {
        spoil(array, column, at);
        // Its neighbour is not, on one of them; nor is another one.
        if column == 1 {
            spoil(array, column, at + 1);
            spoil(array, column, at - 2);
        }
    }
    let data = lost.into_iter().chain(columns).filter(|&column| column < k);
    data.map(|column| block(array, column, at)).collect()
}

#[test]
fn a_rebuild_lists_the_blocks_that_too_many_cannot_read_and_none_of_their_neighbours() {
    for (level, members) in [("5", 4), ("6", 5), ("7.3", 6), ("50", 6), ("60", 8)] {
        let mut array = full(level, members, 3);
        array.lose(slot(&array, 0)).steps(3000);
        let lost = match level {
            // One bad block beside the lost member is too many here, also its neighbours'.
            "5" | "50" => {
                spoil(&mut array, 1, 3);
                vec![block(&array, 0, 3), block(&array, 1, 3)]
            }
            _ => one_too_many(&mut array, Some(0), 3),
        };
        array.add().made_whole();
        assert_eq!(array.unreadable(), lost, "level {level}");
        assert!(healed(&array), "level {level}");
        array.verify();
        assert_eq!(array.fails(), lost);
        array.stop().start().verify();
        assert_eq!(array.fails(), lost);
    }
}

#[test]
fn a_write_lists_the_block_that_too_many_cannot_read_and_none_of_its_neighbours() {
    for (level, members) in [("5", 4), ("6", 5), ("50", 6), ("60", 8)] {
        let mut array = full(level, members, 4);
        let lost = one_too_many(&mut array, None, 3);
        begin_to_write(&mut array, 0);
        array.wait("it is written", |world| world.all_answered());
        assert_eq!(array.unreadable(), lost, "level {level}");
        assert!(healed(&array), "level {level}");
        array.verify();
        assert_eq!(array.fails(), lost);
        // What was written in its place agrees with the rest, whichever member is lost then.
        let m = array.world.geometry().m;
        verify_without(&mut array, 2..2 + m);
        assert_eq!(array.fails(), lost);
        array.ask(AskKind::Write, lost[0], 1).verify();
        assert_eq!((array.unreadable(), array.fails()), (vec![], vec![]));
    }
}

/// The power goes at any moment of it.
#[test]
fn a_rebuild_that_is_cut_off_while_it_salvages_gives_up_no_more() {
    for (level, members) in [("6", 5), ("7.3", 6)] {
        let mut listed = 0;
        for events in (0..700).step_by(13) {
            let mut array = full(level, members, events % 7);
            array.lose(slot(&array, 0)).steps(3000);
            let lost = one_too_many(&mut array, Some(0), 3);
            array.add().steps(events).power_cut().start().rest();
            listed += array.unreadable().len();
            let whole = array.state() == ArrayState::Optimal;
            eprintln!("level {level}, {events} events, whole: {whole}");
            array.verify();
            assert!(array.unreadable().iter().all(|b| lost.contains(b)));
            if !whole {
                array.add();
            }
            array.made_whole();
            assert_eq!(array.unreadable(), lost);
            array.verify();
            assert_eq!(array.fails(), lost);
            // A member is lost that had all of its blocks, and parities tell the same.
            let last = array.world.geometry().width - 1;
            array.lose(slot(&array, last)).rest().verify();
        }
        assert!(listed > 0, "level {level}");
    }
}

/// The power goes at any moment of it, and perhaps a member that the write left alone.
#[test]
fn a_write_that_is_cut_off_while_it_salvages_gives_up_no_more() {
    for (level, members) in [("5", 4), ("6", 5)] {
        let (mut listed, mut over) = (0, 0);
        for events in 0..200 {
            let mut array = full(level, members, events % 7);
            let lost = one_too_many(&mut array, None, 3);
            begin_to_write(&mut array, 0);
            array.steps(events);
            over += u32::from(array.world.all_answered());
            let known = !array.unreadable().is_empty();
            listed += u32::from(known);
            let aside = array.drive(slot(&array, 2));
            array.power_cut();
            array
                .world
                .set_hidden(aside, known && events % 2 == 1 && healed(&array));
            array.start().rest();
            eprintln!("level {level}, {events} events");
            array.verify();
            assert!(array.unreadable().iter().all(|b| lost.contains(b)));
            begin_to_write(&mut array, 0);
            array.wait("it is written", |world| world.all_answered());
            assert_eq!(array.unreadable(), lost);
            array.verify();
            assert_eq!(array.fails(), lost);
        }
        assert!(listed > 0 && over > 0, "level {level}: {listed}, {over}");
    }
}

/// What is computed for a block that cannot be read is checked: a strip that lies is no witness,
/// and where it can be named, what it says is not used.
#[test]
fn a_block_is_not_made_good_from_a_strip_that_lies() {
    for (level, members) in [("7.3", 6), ("n+m", 7)] {
        let mut array = match level {
            "n+m" => {
                let draft = Scenario::new(level, members).code(3, 4).small_blocks();
                let mut array = draft.forgiving().seed(5).start();
                array.write_all().rest();
                array
            }
            _ => full(level, members, 5),
        };
        let (k, m) = (array.world.geometry().k, array.world.geometry().m);
        let (drive, layout) = (
            array.drive(slot(&array, 1)),
            array.world.superblock().layout,
        );
        let row = array.world.geometry().row(STRIPE).1;
        let from = (layout.data_offset + array.world.geometry().row_offset(row)) as usize;
        let held = |array: &Scenario| {
            let bytes = array.world.ssd(drive).bytes();
            bytes[from..from + array.world.geometry().strip as usize].to_vec()
        };
        let right = held(&array);
        array.rot(STRIPE.0, 0);
        spoil(&mut array, 1, 0);
        // So many strips that it goes block by block; none of them lacks the one that is about.
        for (at, column) in (2..k + m - 1).enumerate() {
            spoil(&mut array, column, 2 + at as u64);
        }
        let first = block(&array, 1, 0);
        array.ask(AskKind::Read, first, strip(&array));
        assert!(
            array.world.ssd(drive).faults.latent.is_empty(),
            "level {level}"
        );
        assert!(held(&array) == right, "level {level}");
        array.cure().verify();
        assert_eq!(array.unreadable(), []);
    }
}

/// A sector of a strip cannot be read, and another block of another strip has rotted: what the rest
/// of the strip holds is right, and stays.
#[test]
fn a_strip_of_which_a_sector_cannot_be_read_takes_no_rot_from_the_others() {
    for (level, members) in [
        ("5", 4),
        ("6", 5),
        ("50", 6),
        ("60", 8),
        ("1", 2),
        ("10", 4),
    ] {
        for what in ["read", "write", "rebuild", "repair"] {
            let mut array = full(level, members, 6);
            let geometry = array.world.geometry().clone();
            let (k, m) = (geometry.k, geometry.m);
            // Of a mirror the other copy rots.
            let (kept, lies) = if k > 1 { (1, 0) } else { (0, 1) };
            // No redundancy is left beside the bad sector: where there is some, it names what rots.
            let lost: Vec<usize> = (k + 1..k + m).filter(|_| k > 1).collect();
            for &column in &lost {
                array.lose(slot(&array, column)).rest();
            }
            if what == "rebuild" && lost.is_empty() {
                continue;
            }
            let (drive, layout) = (
                array.drive(slot(&array, kept)),
                array.world.superblock().layout,
            );
            let from = layout.data_offset + geometry.row_offset(geometry.row(STRIPE).1);
            let (from, len) = (from as usize, geometry.strip as usize);
            let held = |array: &Scenario| array.world.ssd(drive).bytes()[from..from + len].to_vec();
            let right = held(&array);
            array.rot(STRIPE.0, lies);
            spoil(&mut array, kept, 5);
            match what {
                "read" => {
                    let (first, count) = (block(&array, kept, 0), strip(&array));
                    array.ask(AskKind::Read, first, count);
                }
                // It needs what it leaves alone, or what lay there.
                "write" => {
                    let column = if k > 1 { 2 } else { 0 };
                    let first = block(&array, column.min(k - 1), 0);
                    array.ask(AskKind::Write, first, strip(&array) - 1);
                }
                "repair" => {
                    let command = Command::StartScrub(ScrubMode::Repair);
                    array.command(command).expect("it is begun");
                    array.rest();
                }
                _ => {
                    array.add().rest();
                }
            }
            let now = held(&array);
            let wrong = |block: &usize| {
                let bytes = block * geometry.block as usize..(block + 1) * geometry.block as usize;
                now[bytes.clone()] != right[bytes]
            };
            let wrong: Vec<usize> = (0..strip(&array) as usize).filter(wrong).collect();
            // A write changes what it writes.
            let changed = what == "write" && k <= 2;
            assert!(
                changed || wrong.is_empty(),
                "level {level}, {what}: {wrong:?}"
            );
        }
    }
}

// ---- a replacement ------------------------------------------------------------------------------

/// A member is being replaced, and the row of the stripe is built: the write that is under way
/// reaches both members or one. Of the columns that it leaves alone more are lost than its records
/// tell of.
#[test]
fn what_a_replay_cannot_mend_is_the_same_on_a_replacement() {
    let mut cut_short = 0;
    for seed in 0..160 {
        let mut array = full("6", 7, seed);
        let replaced = slot(&array, 0);
        array.replace(replaced);
        array.wait("its row is built", |world| {
            let jobs = world.array().status().jobs;
            jobs.iter().any(|job| 2 * job.done_bytes > job.total_bytes)
        });
        // A clean stop says on the media how far it came.
        array.stop().start();
        let _over = array.command(Command::StopRebuild);
        for away in [1, 2].map(|column| slot(&array, column)) {
            array.lose(away).rest();
        }
        spoil(&mut array, 3, 0);
        array.begin_to_write_blocks(block(&array, 0, 0), 1);
        array.steps(60 + seed % 45);
        cut_short += u32::from(!array.world.at_rest());
        array.power_cut().start().add().add().made_whole();
        array.begin_to_scrub().rest();
        array.verify();
    }
    assert!(cut_short > 20, "{cut_short} writes were under way");
}
