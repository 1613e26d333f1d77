//! Data moves to other strips while the array serves.

use strake_engine::event::*;
use strake_format::WriteHole;
use strake_sim::scenario::{Draft, Scenario};

const KIB: u32 = 1 << 10;

/// Strips of 16 KiB, and room for a copy of bands of 64 KiB.
fn striped(level: &str, members: u8) -> Draft {
    Scenario::new(level, members)
        .strips(16 * KIB, 64 * KIB, 1 << 20)
        .window_bytes(32768)
}

fn superblock(array: &mut Scenario) -> strake_format::Superblock {
    array.status().superblock
}

/// Asks for it, and waits until it has begun.
fn restrip(array: &mut Scenario, strip: u32, columns: usize) {
    let id = array.begin_to_restrip(strip, columns);
    array.answer(id).expect("it can have such strips");
    assert!(superblock(array).moving.is_some());
}

#[test]
fn data_moves_to_larger_strips_and_to_smaller_ones() {
    for (level, members) in [
        ("5", 4),
        ("0", 3),
        ("6", 6),
        ("7.3", 6),
        ("n+m", 7),
        ("50", 6),
        ("60", 8),
    ] {
        let mut array = striped(level, members).shards(2).start();
        array.fill().rest();
        let size = array.status().size_bytes;
        for strip in [64 * KIB, 4 * KIB, 8 * KIB, 32 * KIB] {
            restrip(&mut array, strip, 0);
            array.write(40).rest().verify();
            let now = superblock(&mut array);
            assert_eq!(now.moving, None, "{level}: {strip}");
            assert_eq!(now.user_strip_bytes(), strip);
            let status = array.status();
            assert_eq!(status.size_bytes, size, "{level}: nothing is lost or won");
            array
                .fill()
                .write(30)
                .begin_to_discard()
                .write(30)
                .rest()
                .verify();
        }
        for slot in 0..array.world.geometry().m as u8 {
            array.lose(slot).write(20);
        }
        array.rest().verify().stop();
        array.start();
        array.verify().write(20).rest().verify();
    }
}

#[test]
fn strips_and_columns_become_others_at_once() {
    for (level, members, strip) in [("5", 4, 4), ("5", 3, 64), ("6", 6, 32), ("1", 3, 64)] {
        let mut array = striped(level, members).shards(3).start();
        array.fill().rest();
        let before = array.status().size_bytes;
        restrip(&mut array, strip * KIB, 1);
        array.write(60).rest().verify();
        let status = array.status();
        assert_eq!(status.superblock.moving, None);
        assert!(status.size_bytes > before, "{level}");
        assert_eq!(status.superblock.user_strip_bytes(), strip * KIB);
        array.fill().lose(1).write(30).rest().verify();
    }
}

/// The power goes (or the process dies) after every so many events of a move, and where `lose` says
/// so a member with it.
fn cut_everywhere(make: impl Fn() -> Scenario, strip: u32, stride: usize, lose: Option<u8>) {
    let mut moving = 0;
    for events in (0..).step_by(stride) {
        let mut array = make();
        let id = array.begin_to_restrip(strip, 0);
        array.begin_to_write(25, events);
        let moves = superblock(&mut array).moving.is_some();
        let over = array.world.answer_to(id).is_some() && !moves;
        match events % 2 == 0 {
            true => array.power_cut(),
            false => array.kill(),
        };
        if let Some(slot) = lose {
            let drive = array.world.condition_on_media().0[usize::from(slot)];
            if let Some(drive) = drive {
                array.world.hide(drive);
            }
        }
        array.start();
        let moves = superblock(&mut array).moving.is_some();
        moving += u64::from(moves);
        array.rest().verify().write(20).rest().verify();
        if lose.is_none() && moves {
            let now = superblock(&mut array);
            assert_eq!(now.user_strip_bytes(), strip, "after {events} events");
        }
        if over {
            assert!(moving > 10, "{moving}");
            return;
        }
    }
}

fn small(level: &str, members: u8) -> Scenario {
    let draft = striped(level, members).strips(16 * KIB, 64 * KIB, 256 << 10);
    let mut array = draft.start();
    array.fill().rest();
    array
}

#[test]
fn a_power_cut_anywhere_in_a_move_to_larger_strips_loses_nothing() {
    cut_everywhere(|| small("5", 3), 32 * KIB, 79, None);
}

#[test]
fn a_power_cut_anywhere_in_a_move_to_smaller_strips_loses_nothing() {
    cut_everywhere(|| small("6", 5), 4 * KIB, 131, None);
}

#[test]
fn a_member_is_lost_with_the_power_anywhere_in_a_move() {
    cut_everywhere(|| small("5", 3), 8 * KIB, 59, Some(1));
    cut_everywhere(|| small("50", 6), 64 * KIB, 101, Some(4));
}

#[test]
fn it_is_stopped_between_two_strips_and_works_there_for_as_long_as_it_takes() {
    let mut raid6 = striped("6", 6).start();
    raid6.fill().rest();
    restrip(&mut raid6, 64 * KIB, 0);
    raid6.wait("some has moved", |world| world.geometry().new_rows() > 9);
    raid6.command(Command::StopRestripe).expect("it moves");
    raid6.write(60).rest().verify().stop();
    raid6.start();
    let moving = superblock(&mut raid6).moving.expect("it is half-way");
    assert!(moving.stopped && moving.moved_rows > 0);
    raid6
        .command(Command::StartScrub(ScrubMode::Check))
        .expect("it starts");
    raid6.lose(0).write(30).lose(3).write(30).rest().verify();
    raid6
        .command(Command::ContinueRestripe)
        .expect("it stopped");
    raid6.rest().verify();
    assert_eq!(superblock(&mut raid6).user_strip_bytes(), 64 * KIB);
}

#[test]
fn a_scrub_goes_on_where_it_was_when_rows_become_lower() {
    let mut raid5 = striped("5", 4).start();
    raid5.fill().rest();
    raid5
        .command(Command::StartScrub(ScrubMode::Check))
        .expect("it starts");
    raid5.steps(60);
    raid5.command(Command::PauseScrub).expect("it was at work");
    let done = |array: &mut Scenario| {
        let scrub = superblock(array).scrub;
        scrub.map(|scrub| scrub.done_bytes)
    };
    raid5.rest();
    let before = done(&mut raid5);
    assert!(before.is_some_and(|bytes| bytes > 0), "{before:?}");
    restrip(&mut raid5, 4 * KIB, 0);
    raid5.rest();
    assert_eq!(done(&mut raid5), before);
}

#[test]
fn what_no_array_can_have_is_refused() {
    let mut raid5 = striped("5", 4).start();
    let ask = |strip| {
        let data = DataShape {
            strip_bytes: Some(strip),
            ..DataShape::default()
        };
        Command::Restripe(NewShape {
            data,
            ..NewShape::default()
        })
    };
    raid5.write(10).rest();
    for (strip, why) in [
        (16 * KIB, CommandError::SameShape),
        (2 * KIB, CommandError::NoSuchStrip { strip: 2 * KIB }),
        (48 * KIB, CommandError::NoSuchStrip { strip: 48 * KIB }),
        (2048 * KIB, CommandError::NoSuchStrip { strip: 2048 * KIB }),
    ] {
        assert_eq!(raid5.command(ask(strip)), Err(why));
    }
    // Regions are not made of such.
    let refused = raid5.command(ask(128 * KIB));
    assert!(matches!(refused, Err(CommandError::StripUnfit { .. })));
    let mut mirror = striped("10", 4).start();
    let refused = mirror.command(ask(32 * KIB));
    assert!(matches!(refused, Err(CommandError::NoSuchShape { .. })));
    raid5.verify();
}

/// Rows stay low where that is needed: records of the log count them.
#[test]
fn bands_become_rows_at_the_start_after_a_clean_stop() {
    for events in (0..600).step_by(40) {
        let mut raid6 = striped("6", 6).start();
        raid6.fill().rest();
        restrip(&mut raid6, 64 * KIB, 0);
        raid6.rest();
        assert_eq!(superblock(&mut raid6).band_rows, 4);
        raid6.begin_to_write(30, 300).power_cut();
        raid6.start().write(20);
        assert_eq!(superblock(&mut raid6).band_rows, 4, "it was not clean");
        raid6.rest().stop();
        raid6.begin_to_start();
        raid6.steps(events).power_cut();
        raid6.start().write(20).rest().stop();
        raid6.start();
        let now = superblock(&mut raid6);
        assert_eq!((now.strip_bytes, now.band_rows), (64 * KIB, 1));
        raid6.verify().write(40).power_cut().start().rest().verify();
        raid6.lose(2).write(20).lose(3).write(20).rest().verify();
    }
}

/// Nothing is logged, so nothing used numbers up, and both windows had one base: the copy that the
/// first move had left in the logs was taken for that of the second, and brought back what was
/// there before.
#[test]
fn copies_of_two_moves_are_told_apart_where_nothing_is_logged() {
    for (level, members, policy) in [
        ("0", 3, WriteHole::Closed),
        ("5", 4, WriteHole::Resync),
        ("6", 6, WriteHole::Degraded),
    ] {
        let mut array = striped(level, members).policy(policy).start();
        array.write_at(0, 1).rest();
        let mut before = None;
        for strip in [8 * KIB, 16 * KIB] {
            restrip(&mut array, strip, 0);
            array.wait("a copy", |world| world.array().moves_by_copy());
            let base = Some(superblock(&mut array).log_base);
            assert!(base > before, "{level}: {base:?} after {before:?}");
            before = base;
            array.rest().verify();
        }
    }
}
