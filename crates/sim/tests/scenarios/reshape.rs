//! The array changes its shape while it serves: more data, more parities.

use strake_engine::create::Init;
use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::{Level, Settings, WriteHole};
use strake_sim::beyond::Demand;
use strake_sim::scenario::{Draft, Scenario};

/// Bytes that each device gets: several regions, and more pages of the map.
pub(super) const MORE: u64 = 40 * 4096;

/// Bytes of which the last region, which is shorter than others, gets a part.
pub(super) const LONGER: u64 = 147_456;

/// The same array, with a map of several pages.
pub(super) fn paged(level: &str, members: u8) -> Draft {
    Scenario::new(level, members).pages_of(4)
}

fn size(array: &mut Scenario) -> u64 {
    array.status().size_bytes
}

pub(super) fn level(array: &mut Scenario) -> Level {
    array.status().superblock.level
}

#[test]
fn an_array_on_devices_that_grew_grows_and_keeps_what_it_holds() {
    for (name, members) in [("5", 4), ("6", 6), ("1", 2), ("0", 3), ("10", 4), ("50", 6)] {
        let mut array = paged(name, members).start();
        array.fill().rest();
        array.stop();
        array.enlarge(MORE).start();
        let before = size(&mut array);
        array.begin_to_write(40, 200);
        array
            .command(Command::Grow(Vec::new()))
            .expect("there is room");
        let after = size(&mut array);
        let data = array.world.geometry().k as u64 * array.world.geometry().groups;
        assert!(
            after >= before + data * (MORE - (64 << 10)),
            "{name}: {before} {after}"
        );
        array.fill().write(60).rest().verify();
        array.stop();
        array.start();
        assert_eq!(size(&mut array), after);
        array.verify();
    }
}

#[test]
fn a_command_that_finds_a_device_smaller_than_the_level_bears_is_answered() {
    for grows in [false, true] {
        let mut raid0 = paged("0", 3).start();
        raid0.write(20).rest();
        raid0.stop();
        raid0.enlarge(MORE).start();
        let drive = raid0.drive(1);
        let device = raid0.world.drives()[drive].device().expect("it serves");
        let sizes = vec![(device, 64 << 10)];
        let answer = raid0.command(match grows {
            true => Command::Grow(sizes),
            false => Command::Sizes(sizes),
        });
        assert_eq!(answer, Err(CommandError::NotServing), "grows: {grows}");
        assert_eq!(raid0.state(), ArrayState::Failed);
        // Requests that come now are answered, too: nothing waits for a shape that does not come.
        raid0.world.demand(Demand::NothingWrong);
        raid0.begin_to_write(10, 50);
        raid0.wait("all is answered", |world| world.all_answered());
    }
}

#[test]
fn what_has_no_room_does_not_grow() {
    let mut raid5 = paged("5", 4).start();
    raid5.write(20).rest();
    let refused = raid5.command(Command::Grow(Vec::new()));
    assert!(
        matches!(refused, Err(CommandError::NothingToGrow { .. })),
        "{refused:?}"
    );
    raid5.stop();
    raid5.enlarge(MORE).start();
    raid5.lose(1).write(10).rest();
    assert_eq!(
        raid5.command(Command::Grow(Vec::new())),
        Err(CommandError::NotOptimal)
    );
    raid5.verify();
}

/// A parity more, and then one more.
pub(super) fn raises(level: &str, members: u8) -> Draft {
    Scenario::new(level, members).roomy_log()
}

#[test]
fn a_parity_is_added_while_requests_are_under_way_and_then_one_more_member_may_be_lost() {
    for (name, members, to) in [
        ("5", 4, Level::Raid6),
        ("6", 6, Level::Raid7_3),
        ("5", 3, Level::Raid6),
    ] {
        let mut array = raises(name, members).start();
        array.fill().rest().begin_to_write(60, 300);
        let id = array.begin_to_add_parity(1);
        array.answer(id).expect("it has a level to become");
        assert_eq!(level(&mut array), to);
        array.rest().verify();
        assert_eq!(array.state(), ArrayState::Optimal);
        let survives = array.world.geometry().m as u8;
        for slot in 0..survives {
            array.lose(slot).write(30);
        }
        array.rest().verify();
        array.stop();
        array.start().verify();
    }
}

#[test]
fn an_array_without_parity_gets_one_where_it_is_told_to_do_without_a_log() {
    let mut raid0 = Scenario::new("0", 3).policy(WriteHole::Resync).start();
    raid0.fill().rest().begin_to_write(30, 100);
    let id = raid0.begin_to_add_parity(1);
    raid0.answer(id).expect("RAID 5");
    assert_eq!(level(&mut raid0), Level::Raid5);
    raid0.write(40).rest().verify();
    raid0.lose(1).write(20).rest().verify();
}

#[test]
fn two_parities_at_once_and_a_third_after_them() {
    let mut raid5 = raises("5", 4).start();
    raid5.fill().rest();
    let id = raid5.begin_to_add_parity(2);
    raid5.answer(id).expect("RAID 7.3");
    raid5.rest();
    assert_eq!(level(&mut raid5), Level::Raid7_3);
    let id = raid5.begin_to_add_parity(1);
    let refused = raid5.answer(id);
    assert!(
        matches!(refused, Err(CommandError::NoSuchLevel { .. })),
        "{refused:?}"
    );
    raid5.lose(0).lose(3).lose(5).write(60).rest().verify();
}

#[test]
fn until_the_parity_is_built_the_array_survives_what_it_survived_before() {
    let mut raid5 = raises("5", 4).start();
    raid5.fill().rest();
    raid5
        .command(Command::StopRebuild)
        .expect("nothing is rebuilt");
    let id = raid5.begin_to_add_parity(1);
    raid5.answer(id).expect("RAID 6");
    assert_eq!(raid5.state(), ArrayState::Degraded);
    raid5.write(30).lose(2).write(30).verify();
    assert_eq!(
        raid5.command(Command::Fail(Slot(0))),
        Err(CommandError::WouldFail)
    );
    raid5.power_cut();
    raid5.start();
    raid5.write(10).verify();
}

/// The power goes after every so many events of a change; the array is found in one shape or the
/// other, and goes on in it.
pub(super) fn cut_everywhere(
    make: impl Fn() -> Scenario,
    change: impl Fn(&mut Scenario) -> CommandId,
) -> (u64, u64) {
    let (mut old, mut new) = (0, 0);
    for events in (0..).step_by(7) {
        let mut array = make();
        let before = (size(&mut array), level(&mut array));
        let id = change(&mut array);
        array.steps(events);
        let over = array.world.answer_to(id).is_some() && events > 600;
        match events % 2 == 0 {
            true => array.power_cut(),
            false => array.kill(),
        };
        array.start();
        match (size(&mut array), level(&mut array)) == before {
            true => old += 1,
            false => new += 1,
        }
        array.rest().verify().write(20).rest().verify();
        if over {
            return (old, new);
        }
    }
    unreachable!("it comes to an end")
}

#[test]
fn a_power_cut_anywhere_in_a_growth_leaves_the_old_shape_or_the_new_one() {
    let make = || {
        let mut array = paged("6", 6).start();
        array.write(30).rest();
        array.stop();
        array.enlarge(MORE).start();
        array.begin_to_write(30, 60);
        array
    };
    let cuts = cut_everywhere(make, |array| array.world.command(Command::Grow(Vec::new())));
    assert!(cuts.0 > 5 && cuts.1 > 5, "{cuts:?}");
}

#[test]
fn a_power_cut_anywhere_while_a_parity_is_added_leaves_the_old_level_or_the_new_one() {
    let make = || {
        let mut array = raises("5", 4).start();
        array.write(40).rest().begin_to_write(30, 60);
        array
    };
    let cuts = cut_everywhere(make, |array| array.begin_to_add_parity(1));
    assert!(cuts.0 > 5 && cuts.1 > 5, "{cuts:?}");
}

#[test]
fn without_a_log_a_crash_while_the_parity_is_built_needs_no_force() {
    let settings = Settings::default();
    let mut raid5 = raises("5", 4)
        .policy(WriteHole::Resync)
        .settings(settings)
        .start();
    raid5.fill().rest();
    let id = raid5.begin_to_add_parity(1);
    raid5.answer(id).expect("RAID 6");
    raid5.begin_to_write(40, 80);
    raid5.power_cut();
    raid5.start();
    raid5.rest().verify();
    assert_eq!(raid5.state(), ArrayState::Optimal);
}

#[test]
fn a_member_that_is_lost_in_the_middle_ends_the_change_or_is_left_behind() {
    for events in (0..700).step_by(23) {
        let mut array = paged("6", 6).start();
        array.write(30).rest();
        array.stop();
        array.enlarge(MORE).start();
        let lost = array.drive(3);
        let id = array.world.command(Command::Grow(Vec::new()));
        array.steps(events).lose(3).write(20);
        let answer = array.answer(id);
        assert!(
            matches!(answer, Ok(_) | Err(CommandError::NotOptimal)),
            "{answer:?}"
        );
        array.rest().verify();
        // It may hold a superblock of the old shape.
        array.offer(lost).expect("it is kept");
        array.rest().verify();
        assert_eq!(array.state(), ArrayState::Optimal);
        array.stop();
        array.start().verify();
    }
}

/// A region that is Clean is not behind by itself, and yet it gets zeroes that the member lacks.
#[test]
fn a_member_that_is_lost_while_a_quiet_region_becomes_longer_lacks_that_region() {
    for events in (0..).step_by(3) {
        let mut array = Scenario::new("5", 4).start();
        array.fill().rest().sleep();
        array.stop();
        array.enlarge(LONGER).start();
        let lost = array.drive(0);
        let id = array.world.command(Command::Grow(Vec::new()));
        array.steps(events).lose(0);
        let over = array.answer(id);
        let told = matches!(over, Ok(_) | Err(CommandError::NotOptimal));
        assert!(told, "after {events} events: {over:?}");
        if array.rest().state() == ArrayState::Optimal {
            // It was over, and the member got no I/O since.
            assert!(events > 30, "{events}");
            return;
        }
        array.offer(lost).expect("it is kept");
        array.rest().verify();
    }
}

#[test]
fn a_discard_of_everything_that_meets_a_growth_is_done() {
    for events in (0..400).step_by(29) {
        let mut array = paged("5", 4).start();
        array.fill().rest();
        array.stop();
        array.enlarge(MORE).start();
        array.begin_to_discard().steps(events / 3);
        let id = array.world.command(Command::Grow(Vec::new()));
        array.steps(events).begin_to_discard();
        array.answer(id).expect("there is room");
        array.rest().verify();
    }
}

#[test]
fn an_array_that_had_no_parity_has_none_to_sync_once_it_was_built() {
    let mut raid0 = Scenario::new("0", 3).roomy_log().init(Init::Sync).start();
    raid0.write(20).rest();
    let id = raid0.begin_to_add_parity(1);
    raid0.answer(id).expect("RAID 5");
    raid0.rest().write(10).lose(0).write(10).power_cut();
    raid0.start().rest().verify();
}
