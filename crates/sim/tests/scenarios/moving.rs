//! Data moves to a shape with more data columns while the array serves.

use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::WriteHole;
use strake_sim::scenario::{Draft, Scenario};

use crate::steps::{self, Move, moves, size};

/// An array with room in its log for what is to come.
fn roomy(level: &str, members: u8) -> Draft {
    Scenario::new(level, members)
        .roomy_log()
        .window_bytes(32768)
}

/// The size of the array when so many data columns were added.
fn widened(array: &mut Scenario, more: u64) -> u64 {
    let geometry = &array.world.geometry();
    geometry.rows * (geometry.k as u64 + more) * geometry.strip
}

#[test]
fn data_moves_while_requests_are_under_way_and_then_there_is_more_room() {
    for (name, members, more) in [
        ("5", 4, 1),
        ("5", 3, 2),
        ("0", 3, 1),
        ("6", 6, 1),
        ("7.3", 6, 2),
        ("n+m", 7, 1),
        ("1", 2, 1),
        ("1", 2, 3),
        ("1", 3, 1),
        ("1", 4, 2),
    ] {
        let mut array = roomy(name, members).start();
        array.fill().rest();
        let to_be = widened(&mut array, more);
        let id = array.begin_to_restripe(more as usize);
        array.begin_to_write(60, 0);
        array.answer(id).expect("it can have more columns");
        assert!(moves(&mut array), "{name}");
        array.write(40).rest();
        assert!(!moves(&mut array), "{name}");
        assert_eq!(size(&mut array), to_be, "{name}");
        array.verify();
        array.fill().write(60).rest().verify();
        let survives = array.world.geometry().m as u8;
        for slot in 0..survives {
            array.lose(slot).write(20);
        }
        array.rest().verify();
        array.stop();
        array.start();
        assert_eq!(size(&mut array), to_be);
        array.verify();
    }
}

#[test]
fn an_array_with_an_added_parity_moves_like_any_other() {
    for events in [0, 700, 1400] {
        let mut array = roomy("5", 4).shards(2).start();
        array.fill().rest();
        let raised = array.begin_to_add_parity(1);
        array.answer(raised).expect("RAID 5 becomes RAID 6");
        array.rest();
        let to_be = widened(&mut array, 1);
        let id = array.begin_to_restripe(1);
        array.answer(id).expect("it can have more columns");
        array.begin_to_write(40, events).power_cut();
        array.start().write(40).rest().verify();
        assert_eq!(size(&mut array), to_be, "after {events} events");
        assert_eq!(array.world.geometry().fixed, 1);
        array.lose(4).write(20).lose(5).write(20).rest().verify();
    }
}

#[test]
fn what_was_never_written_moves_without_reading_or_writing_it() {
    let mut raid6 = roomy("6", 6).start();
    raid6.write_at(3, 2).rest();
    let to_be = widened(&mut raid6, 1);
    let id = raid6.begin_to_restripe(1);
    raid6.answer(id).expect("it can have more columns");
    raid6.rest().verify();
    assert_eq!(size(&mut raid6), to_be);
    raid6.write(80).rest().verify();
}

/// A data column more, beside which the power goes (or the process dies) after every so many
/// events.
fn cut_everywhere(make: impl Fn() -> Scenario, stride: usize, lose: Option<u8>) {
    let begin = |array: &mut Scenario| Move {
        to_be: widened(array, 1),
        id: array.begin_to_restripe(1),
    };
    steps::cut_a_move(stride, make, begin, lose);
}

#[test]
fn a_power_cut_anywhere_in_a_move_loses_nothing_and_the_move_goes_on() {
    let make = || {
        let mut array = roomy("5", 3).start();
        array.write(40).rest();
        array
    };
    cut_everywhere(make, 29, None);
}

/// Frontiers that superblocks tell of, by drive.
fn frontiers(array: &Scenario) -> Vec<(u64, usize)> {
    let told = |drive| {
        let moving = array.world.table_of(drive)?.moving?;
        Some((moving.moved_rows, drive))
    };
    (0..array.world.drives().len()).filter_map(told).collect()
}

/// A copy was whole on one member alone, the next start is cut off, and that member is lost.
#[test]
fn a_window_is_written_again_only_when_every_member_has_its_copy() {
    let mut tried = 0;
    for seed in 0..160u64 {
        let mut array = roomy("5", 4).seed(seed).start();
        array.fill().rest();
        array.begin_to_restripe(1);
        array.wait("a copy", |world| world.array().moves_by_copy());
        array.steps(seed % 12).power_cut();
        array.begin_to_start();
        if !array.world.array().resumes() {
            array.rest().verify();
            continue;
        }
        tried += 1;
        array.steps(4 + seed / 12 * 3).power_cut();
        let drive = array.world.condition_on_media().0[seed as usize % 4];
        array.world.hide(drive.expect("all are there"));
        array.start().rest().verify();
    }
    assert!(tried > 20, "{tried}");
}

/// The frontier was in one superblock alone, the next start is cut off, and that member is lost.
#[test]
fn regions_are_forgotten_only_when_no_superblock_counts_them() {
    let mut tried = 0;
    for round in 0..120u64 {
        let mut array = roomy("5", 3).seed(round).no_caches().start();
        array.fill().rest();
        array.begin_to_restripe(1);
        array.steps(round / 6 * 40);
        let one_knows = |array: &Scenario| {
            let mut told = frontiers(array);
            told.sort_unstable();
            matches!(told[..], [.., (before, _), (after, _)] if before < after)
        };
        for _ in 0..6000 {
            if one_knows(&array) {
                break;
            }
            array.steps(1);
        }
        array.power_cut();
        let mut told = frontiers(&array);
        told.sort_unstable();
        let [.., (before, _), (after, drive)] = told[..] else {
            continue;
        };
        if before == after {
            continue;
        }
        tried += 1;
        array.begin_to_start();
        array.steps(round % 6 * 7 + round / 6).power_cut();
        array.world.hide(drive);
        array.start().rest().verify();
    }
    assert!(tried > 10, "{tried}");
}

/// What comes first was never written, so that the frontier runs ahead without a copy; the window
/// after that is copied, and its first regions were unmapped before.
#[test]
fn a_window_that_is_written_again_keeps_regions_that_were_nobodys() {
    for policy in [WriteHole::Closed, WriteHole::Resync] {
        let mut resumed = 0;
        for events in (0..2400).step_by(12) {
            let mut array = roomy("5", 3).policy(policy).window_bytes(1 << 20).start();
            let region = array.world.geometry().region_bytes(RegionNo(0)).end;
            let block = array.world.geometry().block;
            array.write_at(2 * region / block, 3 * region / block);
            array.rest();
            array.begin_to_restripe(2);
            array.steps(events).kill();
            array.begin_to_start();
            resumed += u64::from(array.world.array().resumes());
            array.rest().verify();
        }
        assert!(resumed > 0, "{policy:?}");
    }
}

#[test]
fn a_power_cut_anywhere_while_a_mirror_becomes_one_with_parity_loses_nothing() {
    for (members, lose) in [(2, None), (2, Some(1)), (3, Some(0))] {
        let make = || {
            let mut array = roomy("1", members).start();
            array.write(40).rest();
            array
        };
        cut_everywhere(make, 23, lose);
    }
}

#[test]
fn a_power_cut_anywhere_in_a_move_and_a_member_lost_with_it_lose_nothing() {
    for slot in [0, 2] {
        let make = || {
            let mut array = roomy("6", 5).start();
            array.fill().rest();
            array
        };
        cut_everywhere(make, 47, Some(slot));
    }
}

#[test]
fn a_power_cut_anywhere_in_a_move_of_an_array_without_a_log_loses_nothing() {
    for level in [("0", 3), ("5", 4)] {
        let make = || {
            let mut array = roomy(level.0, level.1).policy(WriteHole::Resync).start();
            array.write(40).rest();
            array
        };
        cut_everywhere(make, 19, None);
    }
}

/// The first windows move over rows that still count: there the copy is what is left of them.
#[test]
fn a_window_that_moves_over_itself_is_written_again_from_its_copy() {
    for (name, members, lose) in [
        ("5", 3, None),
        ("6", 6, Some(1)),
        ("6", 6, Some(6)),
        ("0", 3, None),
    ] {
        let mut resumed = 0;
        for events in (40..440).step_by(5) {
            let mut array = roomy(name, members).window_bytes(1).start();
            array.fill().rest();
            array.begin_to_restripe(1);
            array.wait("it has begun", |world| world.geometry().old_shape.is_some());
            array.steps(events - 40);
            match events % 3 {
                0 => array.kill(),
                _ => array.power_cut(),
            };
            for slot in lose.iter().copied() {
                if let Some(drive) = array.world.condition_on_media().0[slot] {
                    array.world.hide(drive);
                }
            }
            array.begin_to_start();
            // And once more, in the middle of that.
            if events % 2 == 0 {
                array.steps(events / 9).power_cut();
                array.start();
            }
            array.wait("it serves", |world| world.serves());
            resumed += array.world.stats().resumed;
            array.verify().write(20).rest().verify();
        }
        assert!(resumed > 3, "{name}: {resumed}");
    }
}

#[test]
fn a_member_that_is_lost_anywhere_in_a_move_is_waited_for() {
    for events in (0..2600).step_by(83) {
        let mut array = roomy("6", 5).start();
        array.fill().rest();
        let to_be = widened(&mut array, 1);
        let lost = array.drive(2);
        let id = array.begin_to_restripe(1);
        array.steps(events).lose(2).write(20);
        let answer = array.answer(id);
        let known = matches!(answer, Ok(_) | Err(CommandError::NotOptimal));
        assert!(known, "after {events} events: {answer:?}");
        array.rest().verify();
        if answer.is_err() {
            continue;
        }
        if array.offer(lost).is_ok() {
            array.rest().verify();
            assert_eq!(array.state(), ArrayState::Optimal);
            array.rest();
            assert_eq!(size(&mut array), to_be, "after {events} events");
        }
        array.stop();
        array.start().rest().verify();
    }
}

#[test]
fn what_is_stopped_stays_in_two_shapes_until_it_is_told_to_go_on() {
    let mut raid5 = roomy("5", 4).window_bytes(1).start();
    raid5.fill().rest();
    let (before, to_be) = (size(&mut raid5), widened(&mut raid5, 1));
    let id = raid5.begin_to_restripe(1);
    raid5.answer(id).expect("it can have more columns");
    raid5.wait("some has moved", |world| world.geometry().new_rows() > 9);
    for _ in 0..40 {
        // In a window, and between two.
        raid5.steps(3);
        let refused = raid5.command(Command::Restripe(NewShape::default()));
        assert_eq!(refused, Err(CommandError::Moving));
    }
    raid5.command(Command::StopRestripe).expect("it moves");
    raid5.rest();
    let moved = raid5.world.geometry().new_rows();
    assert!(moves(&mut raid5) && size(&mut raid5) == before);
    raid5.fill().write(60).rest().verify();
    for refused in [Command::Grow(Vec::new()), Command::AddParity(Vec::new())] {
        assert_eq!(raid5.command(refused), Err(CommandError::Moving));
    }
    raid5.stop();
    raid5.start().write(30).rest().verify();
    assert_eq!(raid5.world.geometry().new_rows(), moved);
    raid5.lose(3).write(30).rest().verify();
    raid5.power_cut();
    raid5.start().write(30).rest().verify();
    let new = raid5.world.fresh().expect("there are drives left");
    raid5.command(Command::Add(new)).expect("it fits");
    raid5.rest().verify();
    assert_eq!(raid5.state(), ArrayState::Optimal);
    raid5
        .command(Command::ContinueRestripe)
        .expect("it goes on");
    raid5.rest().verify();
    assert_eq!(size(&mut raid5), to_be);
    assert_eq!(
        raid5.command(Command::StopRestripe),
        Err(CommandError::NothingMoves)
    );
}

#[test]
fn what_cannot_be_moved_is_refused_by_name() {
    let mut mirrors = roomy("10", 4).start();
    mirrors.write(5).rest();
    let id = mirrors.begin_to_restripe(1);
    let answer = mirrors.answer(id);
    let refused = matches!(answer, Err(CommandError::NoSuchShape { .. }));
    assert!(refused, "{answer:?}");
    mirrors.verify();
    let mut raid5 = roomy("5", 4).start();
    raid5.lose(0).write(5).rest();
    let id = raid5.begin_to_restripe(1);
    assert_eq!(raid5.answer(id), Err(CommandError::NotOptimal));
}

#[test]
fn blocks_that_are_lost_stay_lost_and_nothing_else_does() {
    let mut raid5 = roomy("5", 4).forgiving().start();
    raid5.fill().rest();
    raid5
        .spoil_block(0, 5, 0)
        .spoil_block(1, 5, 0)
        .spoil_block(2, 9, 0);
    let id = raid5.begin_to_restripe(1);
    raid5.answer(id).expect("it can have more columns");
    raid5.rest().verify();
    assert!(!moves(&mut raid5));
    let lost = raid5.status().unreadable;
    assert!(!lost.is_empty());
}

#[test]
fn requests_that_wait_for_a_window_are_split_by_the_shape_that_comes_after_it() {
    let mut split = 0;
    for seed in 1..9 {
        let mut raid5 = roomy("5", 4).seed(seed).shards(3).window_bytes(1).start();
        raid5.fill().rest();
        let id = raid5.begin_to_restripe(1);
        raid5.answer(id).expect("it can have more columns");
        while moves(&mut raid5) {
            raid5.begin_to_overwrite().begin_to_read().steps(60);
            raid5.wait("all is answered", |world| world.all_answered());
        }
        raid5.begin_to_scrub();
        raid5.rest().verify();
        split += raid5.world.stats().split_anew;
    }
    assert!(split > 20, "{split}");
}

#[test]
fn discards_that_meet_a_move_are_done() {
    for events in (0..1500).step_by(71) {
        let mut raid6 = roomy("6", 5).shards(2).start();
        raid6.fill().rest();
        raid6.begin_to_restripe(1);
        raid6.steps(events).begin_to_discard().steps(events % 90);
        raid6.begin_to_discard().write(20).rest().verify();
        raid6.fill().rest().begin_to_scrub();
        raid6.rest().verify();
    }
}

#[test]
fn a_scrub_in_two_shapes_finds_nothing_and_so_does_one_that_meets_the_move() {
    let mut raid6 = roomy("6", 6).window_bytes(1).start();
    raid6.fill().rest();
    raid6.begin_to_restripe(1);
    raid6.wait("some has moved", |world| {
        world.geometry().new_rows() > 6 && world.geometry().old_shape.is_some()
    });
    raid6.begin_to_scrub();
    raid6.command(Command::StopRestripe).expect("it moves");
    raid6.rest().begin_to_scrub();
    raid6.rest().verify();
    raid6
        .command(Command::ContinueRestripe)
        .expect("it was stopped");
    raid6.begin_to_scrub();
    raid6.rest().verify();
}

#[test]
fn rows_that_do_not_agree_stop_the_move_until_they_are_mended() {
    let mut raid6 = roomy("6", 6).start();
    raid6.fill().rest();
    raid6.rot(20, 1);
    let new = raid6.world.fresh().expect("there are drives left");
    raid6
        .command(Command::Restripe(NewShape {
            devices: vec![new],
            data: DataShape::default(),
        }))
        .expect("it can");
    raid6.rest();
    assert!(moves(&mut raid6));
    raid6.cure();
    raid6
        .command(Command::ContinueRestripe)
        .expect("it stopped");
    raid6.rest().verify();
    assert!(!moves(&mut raid6));
}

#[test]
fn a_new_member_that_fails_before_it_has_a_slot_ends_the_change() {
    for events in (0..240).step_by(13) {
        let mut raid5 = roomy("5", 4).start();
        raid5.fill().rest();
        let id = raid5.begin_to_restripe(1);
        raid5.steps(events);
        let new = raid5.world.opened_last().expect("it was opened");
        let vanished = raid5.world.vanish(new);
        assert!(vanished.is_ok());
        let answer = raid5.answer(id);
        let told = matches!(
            answer,
            Ok(_) | Err(CommandError::DeviceFailed | CommandError::NotOptimal)
        );
        assert!(told, "after {events} events: {answer:?}");
        raid5.write(20).rest().verify();
        raid5.power_cut();
        raid5.start().write(20).rest().verify();
    }
}

/// A device that gets a slot is written after the others record it. Otherwise, after a crash before
/// that and a start without the device, the device would overrule an array that went on.
#[test]
fn a_new_member_never_has_the_table_alone() {
    let mut tried = 0;
    for seed in 0..40u64 {
        let mut raid5 = roomy("5", 4).seed(seed).no_caches().start();
        raid5.fill().rest();
        let old = raid5.world.condition_on_media().0;
        raid5.begin_to_restripe(1);
        for _ in 0..4000 {
            let told: Vec<usize> = frontiers(&raid5).iter().map(|f| f.1).collect();
            let is_old = |drive: &&usize| old.contains(&Some(**drive));
            let olds = told.iter().filter(is_old).count();
            assert!(olds == told.len() || olds == old.len(), "{told:?}");
            if olds > 0 {
                break;
            }
            raid5.steps(1);
        }
        raid5.steps(seed % 8).power_cut();
        let told: Vec<usize> = frontiers(&raid5).iter().map(|f| f.1).collect();
        let new = told.iter().find(|drive| !old.contains(&Some(**drive)));
        tried += u64::from(new.is_none());
        for drive in 0..raid5.world.drives().len() {
            raid5.world.set_hidden(drive, !old.contains(&Some(drive)));
        }
        raid5.start().write(20).rest().verify().power_cut();
        raid5.start().rest().verify();
    }
    assert!(tried > 5, "{tried}");
}
