//! Data moves to other groups, or to one, while the array serves.

use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::Level;
use strake_sim::scenario::{Draft, Scenario};

use crate::steps::{self, Move, moves, size};

/// A way from one shape to another.
#[derive(Clone, Copy, Debug)]
struct Way {
    level: &'static str,
    members: u8,
    /// Of a group, in the new shape.
    group_size: u8,
    /// Members that are added.
    more: u8,
    becomes: Level,
}

const fn way(level: &'static str, members: u8, group_size: u8, more: u8, becomes: Level) -> Way {
    Way {
        level,
        members,
        group_size,
        more,
        becomes,
    }
}

const WAYS: [Way; 13] = [
    way("5", 4, 4, 4, Level::Raid50),
    way("5", 5, 3, 1, Level::Raid50),
    way("5", 5, 3, 4, Level::Raid50),
    way("50", 6, 6, 0, Level::Raid5),
    way("50", 8, 9, 1, Level::Raid5),
    way("50", 6, 3, 3, Level::Raid50),
    way("50", 6, 4, 2, Level::Raid50),
    way("50", 8, 3, 1, Level::Raid50),
    way("6", 4, 4, 4, Level::Raid60),
    way("6", 6, 4, 2, Level::Raid60),
    way("60", 8, 8, 0, Level::Raid6),
    way("60", 8, 4, 4, Level::Raid60),
    way("70", 10, 10, 0, Level::Raid7_3),
];

impl Way {
    /// An array of the old shape, with room in its log and memory for what is to come.
    fn draft(&self) -> Draft {
        Scenario::new(self.level, self.members)
            .roomy_log()
            .buffers(400)
    }
    /// The same, full; data moves by windows of so many bytes.
    fn full(&self, window_bytes: u64) -> Scenario {
        let mut array = self.draft().window_bytes(window_bytes).start();
        array.fill().rest();
        array
    }
    /// Data begins to move.
    fn begin(&self, array: &mut Scenario) -> Move {
        let geometry = &array.world.geometry();
        let groups = u64::from((self.members + self.more) / self.group_size);
        let k = u64::from(self.becomes.data_count(self.group_size));
        let to_be = geometry.rows * groups * k * geometry.strip;
        let id = array.begin_to_regroup(self.group_size, usize::from(self.more));
        Move { id, to_be }
    }
    /// Data moves, and is stopped where some of it is in either shape.
    fn half_way(&self) -> Scenario {
        let mut array = self.full(1);
        let it = self.begin(&mut array);
        array.answer(it.id).expect("it can have these groups");
        array.wait("some has moved", |world| world.geometry().new_rows() > 6);
        array.command(Command::StopRestripe).expect("it moves");
        array.rest();
        assert!(moves(&mut array), "{self:?}");
        array
    }
}

/// Slots that may be lost at the same time, as many as there can be from this end on.
fn survived(array: &Scenario, from_the_end: bool) -> Vec<u8> {
    let geometry = &array.world.geometry();
    let mut lost: Vec<u8> = Vec::new();
    let mut slots: Vec<u8> = (0..geometry.slots() as u8).collect();
    if from_the_end {
        slots.reverse();
    }
    for slot in slots {
        let mut near = geometry.neighbours();
        let may = near.all(|group| {
            let of = |slot: &u8| group.contains(&usize::from(*slot));
            !of(&slot) || lost.iter().filter(|lost| of(lost)).count() < geometry.m
        });
        if may {
            lost.push(slot);
        }
    }
    lost
}

/// Loses that many while requests are under way, and everything is there.
fn survives(array: &mut Scenario, from_the_end: bool) -> usize {
    let lost = survived(array, from_the_end);
    for &slot in &lost {
        array.begin_to_write(10, 30).lose(slot);
    }
    array.wait("requests are answered", |world| world.is_content());
    array.rest().verify();
    lost.len()
}

#[test]
fn data_moves_to_other_groups_under_load_and_what_is_there_survives_as_much_as_they_do() {
    for (nth, it) in WAYS.iter().enumerate() {
        let draft = it.draft().window_bytes(32768);
        let mut array = draft.shards(1 + nth as u16 % 3).start();
        array.fill().rest();
        let under_way = it.begin(&mut array);
        array.begin_to_write(60, 0);
        let answer = array.answer(under_way.id);
        assert_eq!(answer, Ok(()), "{it:?}");
        assert!(moves(&mut array), "{it:?}");
        array.write(40).rest();
        assert!(!moves(&mut array), "{it:?}");
        assert_eq!(size(&mut array), under_way.to_be, "{it:?}");
        let sb = array.status().superblock;
        assert_eq!((sb.level, sb.group_size), (it.becomes, it.group_size));
        array.verify().fill().write(60).rest().begin_to_scrub();
        array.rest().verify();
        let (groups, m) = (array.world.geometry().groups, array.world.geometry().m);
        let lost = survives(&mut array, nth % 2 == 0);
        assert_eq!(lost, groups as usize * m, "{it:?}");
        array.stop();
        array.start();
        assert_eq!(size(&mut array), under_way.to_be, "{it:?}");
        array.verify();
    }
}

#[test]
fn what_was_never_written_gets_other_groups_without_reading_or_writing_it() {
    for it in WAYS {
        let mut array = it.draft().start();
        array.write_at(3, 2).rest();
        let under_way = it.begin(&mut array);
        array.answer(under_way.id).expect("it can");
        array.rest().verify();
        assert_eq!(size(&mut array), under_way.to_be, "{it:?}");
        array.write(80).rest().verify();
    }
}

#[test]
fn half_way_between_two_shapes_as_many_may_be_lost_as_both_survive() {
    for it in WAYS {
        for from_the_end in [false, true] {
            let mut array = it.half_way();
            array.write(20).rest();
            survives(&mut array, from_the_end);
            array.write(30).rest().verify();
            let moved = array.world.geometry().new_rows();
            array.power_cut();
            array.start().write(20).rest().verify();
            assert_eq!(array.world.geometry().new_rows(), moved, "{it:?}");
            let lost = survived(&array, from_the_end);
            for _ in &lost {
                array.add();
            }
            array.made_whole().verify();
            array
                .command(Command::ContinueRestripe)
                .expect("it was stopped");
            array.rest().verify();
            assert!(!moves(&mut array), "{it:?}");
            survives(&mut array, !from_the_end);
        }
    }
}

/// Each of the two could be done without in one of the shapes, or in the other, but not in both.
#[test]
fn who_is_needed_by_one_of_the_two_shapes_is_not_given_away() {
    // In one group of six no two may be lost; in two of three they would be of different ones.
    let joined = (WAYS[3], [0, 4], None);
    // The old group is the first five slots; the last three have no neighbours there.
    let parted = (WAYS[2], [0, 4], Some(7));
    for (it, [first, second], may) in [joined, parted] {
        let mut array = it.half_way();
        let fail = |slot| Command::Fail(Slot(slot));
        assert_eq!(array.command(fail(first)), Ok(()), "{it:?}");
        let refused = array.command(fail(second));
        assert_eq!(refused, Err(CommandError::WouldFail), "{it:?}");
        if let Some(slot) = may {
            assert_eq!(array.command(fail(slot)), Ok(()), "{it:?}");
            array.write(20).rest().verify().add();
        }
        array.write(20).rest().verify().add().made_whole();
        array
            .command(Command::ContinueRestripe)
            .expect("it was stopped");
        array.rest().verify();
        // Now only the new shape counts.
        assert_eq!(array.command(fail(first)), Ok(()), "{it:?}");
        let answer = array.command(fail(second));
        let one_group = array.world.geometry().groups == 1;
        assert_eq!(answer.is_err(), one_group, "{it:?}: {answer:?}");
        array.write(20).rest().verify();
    }
}

#[test]
fn a_power_cut_anywhere_in_a_move_to_other_groups_loses_nothing_and_the_move_goes_on() {
    for (it, stride) in [
        (WAYS[0], 131),
        (WAYS[2], 173),
        (WAYS[3], 113),
        (WAYS[5], 151),
        (WAYS[6], 157),
        (WAYS[9], 197),
        (WAYS[10], 211),
    ] {
        steps::cut_a_move(stride, || it.full(32768), |array| it.begin(array), None);
    }
}

#[test]
fn a_power_cut_anywhere_in_a_move_to_other_groups_and_a_member_lost_with_it_lose_nothing() {
    for (it, stride, slot) in [
        (WAYS[0], 199, 1),
        (WAYS[0], 211, 6),
        (WAYS[3], 191, 4),
        (WAYS[9], 263, 5),
        (WAYS[11], 281, 9),
    ] {
        let make = || it.full(32768);
        steps::cut_a_move(stride, make, |array| it.begin(array), Some(slot));
    }
}

/// The first windows move over rows that still count: there the copy is what is left of them.
#[test]
fn a_window_of_other_groups_is_written_again_from_its_copy_also_without_a_member() {
    for (it, lose) in [
        (WAYS[0], None),
        (WAYS[0], Some(5)),
        (WAYS[2], Some(0)),
        (WAYS[3], None),
        (WAYS[3], Some(3)),
        (WAYS[5], None),
        (WAYS[10], Some(7)),
    ] {
        let mut resumed = 0;
        for nth in 0..60 {
            let mut array = it.full(1);
            it.begin(&mut array);
            array.wait("it has begun", |world| world.geometry().old_shape.is_some());
            array.steps(nth * 7);
            steps::cut(&mut array, nth as usize);
            lose.into_iter()
                .for_each(|slot| steps::hide(&mut array, slot));
            array.begin_to_start();
            // And once more, in the middle of that.
            if nth % 3 == 0 {
                array.steps(nth).power_cut();
                array.start();
            }
            array.wait("it serves", |world| world.serves());
            resumed += array.world.stats().resumed;
            array.verify().write(20).rest().verify();
        }
        assert!(resumed > 3, "{it:?} without {lose:?}: {resumed}");
    }
}

#[test]
fn a_member_that_is_lost_anywhere_in_a_move_to_other_groups_is_waited_for() {
    for (it, stride, slot) in [
        (WAYS[0], 307, 2),
        (WAYS[3], 211, 5),
        (WAYS[6], 293, 0),
        (WAYS[9], 331, 3),
    ] {
        let over = |array: &mut Scenario, it: &Move| {
            array.world.answer_to(it.id).is_some() && !moves(array)
        };
        let make = || it.full(32768);
        let begin = |array: &mut Scenario| {
            let known = (array.drive(slot), it.begin(array));
            array.begin_to_write(steps::ASKS, 0);
            known
        };
        let over = |array: &mut Scenario, (_, it): &(usize, Move)| over(array, it);
        let met = steps::everywhere(stride, make, begin, over, |array, (lost, it), nth| {
            array.lose(slot).write(20);
            let answer = array.answer(it.id);
            let known = matches!(answer, Ok(()) | Err(CommandError::NotOptimal));
            assert!(known, "blow {nth}: {answer:?}");
            array.rest().verify();
            array.offer(*lost).expect("it is kept");
            array.made_whole().verify();
            if answer.is_ok() {
                assert_eq!(size(array), it.to_be, "blow {nth}");
            }
            array.stop();
            array.start().rest().verify();
        });
        assert!(met > 5, "{it:?}: {met}");
    }
}

#[test]
fn a_scrub_of_two_kinds_of_groups_finds_nothing_and_so_does_one_that_meets_the_move() {
    for it in WAYS {
        let mut array = it.half_way();
        array.write(30).rest().begin_to_scrub();
        array.rest().verify();
        array
            .command(Command::ContinueRestripe)
            .expect("it was stopped");
        array.begin_to_scrub();
        array.write(30).rest().verify();
        assert!(!moves(&mut array), "{it:?}");
        array.begin_to_scrub();
        array.rest().verify();
        assert!(array.world.stats().scrubs > 1, "{it:?}");
    }
}

#[test]
fn blocks_that_are_lost_stay_lost_in_other_groups_and_nothing_else_does() {
    for it in [WAYS[0], WAYS[2], WAYS[3], WAYS[5], WAYS[8], WAYS[10]] {
        let mut array = it.draft().window_bytes(32768).forgiving().start();
        array.fill().rest();
        // One more than the first group survives without, in a row of its own, and one that it
        // does.
        for slot in 0..=array.world.geometry().m as u8 {
            array.spoil_block(slot, 5, 0);
        }
        array.spoil_block(2, 9, 0).verify();
        let lost = array.fails();
        assert!(!lost.is_empty(), "{it:?}");
        let under_way = it.begin(&mut array);
        array.answer(under_way.id).expect("it can");
        array.rest().verify();
        assert!(!moves(&mut array), "{it:?}");
        assert_eq!(array.fails(), lost, "{it:?}");
        assert_eq!(array.unreadable(), lost, "{it:?}");
        array.power_cut();
        array.start().rest().verify();
        assert_eq!(array.fails(), lost, "{it:?}");
        // Written anew they can be read.
        array.fill().rest().verify();
        assert_eq!(array.fails(), [], "{it:?}");
    }
}

#[test]
fn groups_that_no_array_can_have_are_refused_by_name() {
    let answer_to = |level, members, group_size, more| {
        let mut array = Scenario::new(level, members).roomy_log().start();
        array.write(10).rest();
        let before = array.world.geometry().clone();
        let id = array.begin_to_regroup(group_size, more);
        let answer = array.answer(id);
        assert_eq!(*array.world.geometry(), before);
        array.write(10).rest().verify().stop();
        array.start().verify();
        answer.expect_err("it must be refused")
    };
    // Five strips of data in a row, and four in two groups of three.
    let shrinks = CommandError::WouldShrink {
        has: 5,
        gets: 4,
        needs: 9,
    };
    assert_eq!(answer_to("5", 6, 3, 0), shrinks);
    let refused = |level, members, group_size| CommandError::NoSuchGroups {
        level,
        members,
        group_size,
    };
    let raid50 = Level::Raid50;
    assert_eq!(answer_to("5", 4, 4, 3), refused(raid50, 7, 4));
    assert_eq!(answer_to("5", 4, 2, 2), refused(raid50, 6, 2));
    assert_eq!(answer_to("50", 6, 0, 1), refused(raid50, 7, 0));
    assert_eq!(answer_to("50", 6, 3, 0), CommandError::SameShape);
    assert_eq!(answer_to("5", 5, 5, 0), CommandError::SameShape);
    for (level, members, group_size) in [("10", 4, 4), ("n+m", 6, 3), ("1", 4, 2), ("0", 4, 2)] {
        let answer = answer_to(level, members, group_size, 0);
        let known = matches!(answer, CommandError::NoSuchShape { .. });
        assert!(known, "{level}: {answer:?}");
    }
}
