//! Parities that rotate go again: data moves to where it lies without them, and their members
//! become spares. And arrays with parities that are copies become the mirrors that they are.

use strake_engine::event::*;
use strake_format::{Level, WriteHole};
use strake_sim::scenario::{Draft, Scenario};

use crate::reshape::{cut_everywhere, level};
use crate::steps::{self, Move, moves, moves_on_media, size};

/// An array with memory for all shapes, full; data moves by windows of so many bytes.
fn full(draft: Draft, window_bytes: u64) -> Scenario {
    let draft = draft.roomy_log().buffers(400).window_bytes(window_bytes);
    let mut array = draft.start();
    array.fill().rest();
    array
}

/// RAID 6 that was made as one, full.
fn raid_6(window_bytes: u64) -> Scenario {
    full(Scenario::new("6", 5), window_bytes)
}

fn lower(array: &mut Scenario) -> Move {
    let to_be = size(array);
    let id = array.begin_to_lower(1, false);
    Move { id, to_be }
}

fn spares(array: &mut Scenario) -> usize {
    let sb = array.status().superblock;
    sb.spares.len()
}

/// All data lies where it does without the parities that go; they are still there.
fn all_has_moved(array: &mut Scenario) {
    array.wait("all has moved", |world| {
        let geometry = world.array().status().superblock.moving;
        geometry.is_none_or(|moving| moving.moved_rows >= world.geometry().rows_to_move())
    });
    assert!(moves(array));
}

#[test]
fn parities_that_rotate_go_while_requests_are_under_way_and_their_members_are_spares() {
    let nm = |n, m| Level::Nm { n, m };
    for (draft, fewer, to) in [
        (Scenario::new("6", 5), 1, Level::Raid5),
        (Scenario::new("6", 4), 1, Level::Raid5),
        (Scenario::new("7.3", 6), 1, Level::Raid6),
        (Scenario::new("7.3", 5), 2, Level::Raid5),
        (Scenario::new("5", 4), 1, Level::Raid0),
        (Scenario::new("6", 4), 2, Level::Raid0),
        (Scenario::new("6", 5).code(2, 3), 1, nm(2, 2)),
        (Scenario::new("6", 6).code(1, 5), 1, nm(1, 4)),
        (Scenario::new("6", 6).code(2, 4), 2, nm(2, 2)),
        (Scenario::new("6", 6).code(2, 2), 2, Level::Raid0),
    ] {
        let mut array = full(draft, 32768);
        let (was, members, m) = (
            level(&mut array),
            array.world.geometry().slots(),
            array.world.geometry().m,
        );
        let before = size(&mut array);
        let id = array.begin_to_lower(fewer, true);
        array.begin_to_write(40, 0);
        array.answer(id).expect("it begins to move");
        assert_eq!(level(&mut array), was, "until all has moved");
        assert!(moves(&mut array));
        array.write(40).rest().verify();
        assert!(!moves(&mut array));
        assert_eq!((level(&mut array), size(&mut array)), (to, before));
        let geometry = &array.world.geometry();
        let shape = (geometry.slots(), geometry.m, geometry.fixed);
        assert_eq!(shape, (members - fewer, m - fewer, 0), "{was} to {to}");
        assert_eq!(array.state(), ArrayState::Optimal);
        assert_eq!(spares(&mut array), fewer);
        array.begin_to_scrub();
        array.rest().write(40).rest().verify();
        array.stop();
        array.start().verify();
        // As many as that may be lost, and spares take their places.
        for slot in 0..m - fewer {
            array.lose(slot as u8).write(20);
        }
        array.rest().verify();
        array.power_cut();
        array.start().write(20).rest().verify();
    }
}

/// Some were added, and not as many as go.
#[test]
fn a_parity_that_was_added_goes_together_with_one_that_rotates() {
    let mut array = full(Scenario::new("6", 5), 32768);
    let id = array.begin_to_add_parity(1);
    array.answer(id).expect("RAID 7.3");
    array.rest();
    let before = size(&mut array);
    let id = array.begin_to_lower(2, false);
    array.answer(id).expect("it begins to move");
    assert_eq!(array.world.geometry().fixed, 2);
    array.rest().verify();
    assert_eq!(
        (level(&mut array), size(&mut array)),
        (Level::Raid5, before)
    );
    assert_eq!((array.world.geometry().fixed, spares(&mut array)), (0, 2));
    array.lose(0).write(30).rest().verify();
}

/// There and back: 0, 5, 6, rotated, 5, 0.
#[test]
fn an_array_goes_up_and_all_the_way_down() {
    let mut array = full(Scenario::new("0", 3).policy(WriteHole::Resync), 32768);
    let before = size(&mut array);
    for to in [Level::Raid5, Level::Raid6] {
        let id = array.begin_to_add_parity(1);
        array.answer(id).expect("a parity more");
        array.rest().verify();
        assert_eq!(level(&mut array), to);
    }
    let id = array.begin_to_rotate();
    array.answer(id).expect("they rotate");
    array.write(20).rest().verify();
    for (last, to) in [(false, Level::Raid5), (true, Level::Raid0)] {
        let id = array.begin_to_lower(1, last);
        array.answer(id).expect("a parity fewer");
        array.write(20).rest().verify();
        assert_eq!((level(&mut array), size(&mut array)), (to, before));
    }
    assert_eq!((array.world.geometry().slots(), spares(&mut array)), (3, 2));
    array.power_cut();
    array.start().write(20).rest().verify();
}

#[test]
fn a_power_cut_anywhere_while_a_parity_goes_loses_nothing_and_does_not_bring_it_back() {
    for (name, members, fewer, stride) in [("6", 5, 1, 41), ("7.3", 5, 2, 97), ("5", 4, 1, 61)] {
        let make = || full(Scenario::new(name, members), 16384);
        let to = full(Scenario::new(name, members), 16384).world.geometry().m - fewer;
        let begin = |array: &mut Scenario| {
            let to_be = size(array);
            let id = array.begin_to_lower(fewer, true);
            array.begin_to_write(steps::ASKS, 0);
            Move { id, to_be }
        };
        let over = |array: &mut Scenario, it: &Move| {
            array.world.answer_to(it.id).is_some() && !moves(array) && !moves_on_media(array)
        };
        let (mut old, mut between, mut new, mut resumed) = (0, 0, 0, 0);
        steps::everywhere(stride, make, begin, over, |array, it, nth| {
            steps::cut(array, nth);
            array.start();
            let is = array.world.geometry().m;
            let begun = moves(array) || is == to;
            match (begun, is == to) {
                (_, true) => new += 1,
                (true, _) => between += 1,
                (false, _) => old += 1,
            }
            array.rest().verify().write(20).rest().verify();
            // It is not forgotten.
            assert_eq!(array.world.geometry().m == to, begun, "after blow {nth}");
            assert_eq!(size(array), it.to_be);
            assert_eq!(array.state(), ArrayState::Optimal);
            resumed += array.world.stats().resumed;
        });
        assert!(old > 0 && between > 10 && new > 0, "{old} {between} {new}");
        assert!(resumed > 0);
    }
}

/// From the moment at which all has moved until the parity is gone, event by event.
#[test]
fn a_cut_while_the_slot_goes_does_not_forget_it_whoever_is_missing_then() {
    let mut found = [0, 0, 0];
    for events in (0..).step_by(3) {
        let mut over = false;
        for away in 0..6 {
            let mut array = raid_6(32768);
            let it = lower(&mut array);
            array.answer(it.id).expect("it begins to move");
            all_has_moved(&mut array);
            array.begin_to_write(5, events);
            over |= !moves(&mut array) && !moves_on_media(&mut array);
            let drive = array.drive(0);
            if away < 5 {
                steps::hide(&mut array, away);
            }
            steps::cut(&mut array, events as usize / 3);
            array.start();
            let sb = array.status().superblock;
            let empty = sb.slots.iter().any(|slot| slot.member.is_nil());
            let at = match (sb.moving.is_some(), empty) {
                (true, false) => 0,
                (true, true) => 1,
                (false, _) => 2,
            };
            found[at] += 1;
            array.write(20).rest().verify();
            // With a spare for each missing member, if one became a spare.
            if array.state() == ArrayState::Optimal {
                assert_eq!(level(&mut array), Level::Raid5, "{events} {away}");
            }
            array.power_cut();
            array.world.hide_none();
            if away < 5 {
                array.bring_back(drive);
            }
            array.start().write(10).rest().verify();
        }
        if over {
            break;
        }
    }
    assert!(found.iter().all(|&times| times > 2), "{found:?}");
}

/// A slot without data takes none away: the start needs no member to vouch for what was being
/// written.
#[test]
fn without_a_log_a_cut_while_the_slot_goes_needs_no_force() {
    let mut empty = 0;
    for events in 0.. {
        let draft = Scenario::new("6", 5).policy(WriteHole::Resync);
        let mut array = full(draft, 1 << 20);
        let it = lower(&mut array);
        array.begin_to_write(10, 0);
        array.answer(it.id).expect("it begins to move");
        all_has_moved(&mut array);
        array.begin_to_write(10, events);
        let over = !moves(&mut array);
        array.power_cut();
        array.start();
        let sb = array.status().superblock;
        empty += u64::from(sb.moving.is_some() && sb.slots[4].member.is_nil());
        array.rest().verify();
        assert_eq!(level(&mut array), Level::Raid5, "{events}");
        if over {
            break;
        }
    }
    assert!(empty > 0);
}

#[test]
fn a_member_that_is_lost_with_the_power_while_a_parity_goes_is_computed() {
    for slot in [1, 4] {
        steps::cut_a_move(97, || raid_6(32768), lower, Some(slot));
    }
}

/// Nothing is rebuilt for a parity that goes: the move goes on as soon as data is safe.
#[test]
fn a_member_that_is_lost_at_any_moment_holds_the_move_up_unless_data_has_left_it() {
    let (mut waited, mut went) = (0, 0);
    for slot in [2, 4] {
        let over = |array: &mut Scenario, it: &Move| {
            array.world.answer_to(it.id).is_some() && !moves(array)
        };
        let begin = |array: &mut Scenario| {
            let it = lower(array);
            array.begin_to_write(steps::ASKS, 0);
            it
        };
        steps::everywhere(
            137,
            || raid_6(32768),
            begin,
            over,
            |array, it, _| {
                if array.world.geometry().slots() > usize::from(slot) {
                    array.lose(slot);
                }
                let answer = array.answer(it.id);
                assert!(
                    matches!(answer, Ok(()) | Err(CommandError::NotOptimal)),
                    "{answer:?}"
                );
                array.write(20).rest().verify();
                waited += u64::from(moves(array));
                went += u64::from(level(array) == Level::Raid5);
                // Another one: the array is whole, and goes on.
                array.add().rest().verify();
                assert!(!moves(array));
                array.power_cut();
                array.start().write(20).rest().verify();
            },
        );
    }
    assert!(waited > 5 && went > 1, "{waited} {went}");
}

#[test]
fn a_slot_that_data_has_left_is_not_rebuilt_and_goes_without_its_member() {
    let mut array = full(Scenario::new("6", 5).spares(1), 1);
    let it = lower(&mut array);
    array.answer(it.id).expect("it begins to move");
    all_has_moved(&mut array);
    array.lose(4);
    array.rest().verify();
    assert_eq!(level(&mut array), Level::Raid5);
    assert_eq!(
        (array.state(), spares(&mut array)),
        (ArrayState::Optimal, 1)
    );
    array.lose(1).write(20).rest().verify();
    assert_eq!(
        (array.state(), spares(&mut array)),
        (ArrayState::Optimal, 0)
    );
}

#[test]
fn what_stands_half_way_survives_as_many_losses_as_before_and_goes_on_when_it_is_told() {
    let mut array = raid_6(1);
    let it = lower(&mut array);
    array.answer(it.id).expect("it begins to move");
    array.wait("some has moved", |world| world.geometry().new_rows() > 6);
    array.command(Command::StopRestripe).expect("it moves");
    let drop = Command::DropParity(Fewer::of(1));
    assert_eq!(array.command(drop), Err(CommandError::Moving));
    array.rest().begin_to_scrub();
    array.rest().fill().write(40).rest();
    array.stop();
    array.start().write(20).rest();
    assert!(moves(&mut array));
    array.lose(4).write(20).lose(2).write(20).rest().verify();
    array.power_cut();
    array.start().write(20).rest().verify();
    assert!(moves(&mut array));
    array.command(Command::ContinueRestripe).expect("it moves");
    array.add().add().rest().verify();
    assert_eq!(level(&mut array), Level::Raid5);
    assert_eq!(spares(&mut array), 1);
}

/// An array that is told to stop the move when everything has moved keeps its parity, and rebuilds
/// it.
#[test]
fn a_move_that_was_stopped_before_the_parity_went_keeps_it() {
    let mut array = full(Scenario::new("6", 5).spares(1), 1);
    let it = lower(&mut array);
    array.answer(it.id).expect("it begins to move");
    all_has_moved(&mut array);
    let stopped = array.command(Command::StopRestripe);
    array.rest();
    assert_eq!(stopped.is_ok(), moves(&mut array));
    assert!(moves(&mut array), "it was told in time");
    array.lose(4).write(20).rest().verify();
    assert_eq!(
        (array.state(), spares(&mut array)),
        (ArrayState::Optimal, 0)
    );
    array.lose(0).lose(3).write(10).verify();
    array.add().add();
    array.command(Command::ContinueRestripe).expect("it moves");
    array.rest().verify();
    assert_eq!((level(&mut array), spares(&mut array)), (Level::Raid5, 1));
}

#[test]
fn what_cannot_go_is_refused_by_name_and_a_dry_run_says_the_same() {
    let refused = |array: &mut Scenario, fewer: Fewer| {
        let command = Command::DropParity(fewer);
        let may = array.world.array().preflight(&command);
        let answer = array.command(command);
        assert_eq!(may, answer);
        answer.expect_err("it is refused")
    };
    let mut array = raid_6(1);
    let level = Level::Raid6;
    for fewer in [0, 3, usize::MAX] {
        let error = refused(&mut array, Fewer::of(fewer));
        assert_eq!(error, CommandError::ParitiesStay { level, fewer });
    }
    let error = refused(&mut array, Fewer::of(2));
    assert_eq!(error, CommandError::LastParity { level });
    for data in [
        DataShape {
            strip_bytes: Some(8192),
            ..DataShape::default()
        },
        DataShape {
            rotate: true,
            ..DataShape::default()
        },
    ] {
        let fewer = Fewer::of(1);
        let data = DataShape { fewer, ..data };
        let devices = Vec::new();
        let mixed = array.command(Command::Restripe(NewShape { devices, data }));
        assert_eq!(mixed, Err(CommandError::NotTogether));
    }
    for _ in 0..3 {
        array.add();
    }
    array.lose(1).write(5);
    assert_eq!(refused(&mut array, Fewer::of(1)), CommandError::NotOptimal);
    array.rest().verify();
    let mut groups = full(Scenario::new("60", 8), 1);
    let error = refused(&mut groups, Fewer::of(1));
    assert!(
        matches!(error, CommandError::ParitiesStay { .. }),
        "{error:?}"
    );
    // The third parity of four and more is another than that of three.
    let mut code = full(Scenario::new("6", 6).code(2, 4), 1);
    let error = refused(&mut code, Fewer::of(1));
    assert!(
        matches!(error, CommandError::ParitiesStay { .. }),
        "{error:?}"
    );
    // The last one, where it was added.
    let mut raised = full(Scenario::new("0", 3).policy(WriteHole::Resync), 1);
    let id = raised.begin_to_add_parity(1);
    raised.answer(id).expect("RAID 5");
    raised.rest();
    let level = Level::Raid5;
    let error = refused(&mut raised, Fewer::of(1));
    assert_eq!(error, CommandError::LastParity { level });
    let id = raised.begin_to_lower(1, true);
    raised.answer(id).expect("that was said");
    raised.write(20).rest().verify();
}

#[test]
fn an_array_whose_parities_are_copies_is_a_mirror_as_soon_as_it_is_called_one() {
    for m in [1, 2, 3, 5] {
        let mut array = full(Scenario::new("6", 6).code(1, m), 32768);
        let before = size(&mut array);
        array.begin_to_write(60, 200);
        let id = array.world.command(Command::Mirror);
        array.answer(id).expect("its parities are copies");
        assert_eq!(
            (level(&mut array), size(&mut array)),
            (Level::Raid1, before)
        );
        array.begin_to_scrub();
        array.rest().write(30).rest().verify();
        for slot in 0..m {
            array.lose(slot).write(20);
        }
        array.rest().verify();
        array.power_cut();
        array.start().write(20).rest().verify();
    }
}

/// Its strips of several rows become rows, which belong to other shards: requests that waited were
/// worked at by the wrong ones.
#[test]
fn requests_that_waited_for_a_mirror_go_to_the_shards_that_its_rows_have() {
    let mut again = 0;
    for events in (0..400).step_by(10) {
        let draft = Scenario::new("6", 6).code(1, 2).shards(3);
        let mut array = draft.strips(4096, 16384, 48 * 4096).start();
        let id = array.begin_to_restrip(16384, 0);
        array.answer(id).expect("it begins to move");
        array.rest();
        // Nothing moves since this start.
        array.kill();
        array.start().fill().rest();
        assert!(array.world.geometry().band > 1);
        array.begin_to_overwrite();
        let id = array.world.command(Command::Mirror);
        array.begin_to_write(30, events);
        array.begin_to_discard();
        array.answer(id).expect("its parities are copies");
        assert_eq!(array.world.geometry().band, 1);
        array.write(30).rest().verify();
        again += array.world.stats().split_anew;
    }
    assert!(again > 0);
}

#[test]
fn a_power_cut_anywhere_while_an_array_becomes_a_mirror_leaves_one_or_the_other() {
    for policy in [WriteHole::Closed, WriteHole::Resync] {
        let make = || {
            let draft = Scenario::new("6", 6).code(1, 2).policy(policy);
            let mut array = full(draft, 32768);
            array.begin_to_write(30, 60);
            array
        };
        let cuts = cut_everywhere(make, |array| array.world.command(Command::Mirror));
        assert!(cuts.0 > 1 && cuts.1 > 5, "{cuts:?}");
    }
}

#[test]
fn what_has_more_data_columns_than_one_or_no_copies_becomes_no_mirror() {
    for (name, members) in [("5", 3), ("6", 5), ("50", 6)] {
        let mut array = full(Scenario::new(name, members), 1);
        let may = array.world.array().preflight(&Command::Mirror);
        let refused = array.command(Command::Mirror);
        assert_eq!(may, refused);
        assert!(
            matches!(refused, Err(CommandError::MirrorTooSmall { has: 2.., .. })),
            "{refused:?}"
        );
    }
    for (name, members) in [("0", 3), ("1", 2), ("10", 4)] {
        let mut array = full(Scenario::new(name, members), 1);
        let refused = array.command(Command::Mirror);
        assert!(matches!(refused, Err(CommandError::NoMirror { .. })));
    }
}
