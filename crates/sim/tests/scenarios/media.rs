//! Sectors that cannot be read, strips that lie.

use strake_engine::event::{ArrayState, Command, CommandError, MemberRef, ScrubMode};
use strake_engine::status::MemberState;
use strake_engine::units::Slot;
use strake_sim::scenario::Scenario;
use strake_sim::workload::AskKind;

#[test]
fn scrub_repairs_whichever_strip_lies_where_two_others_can_tell() {
    for (level, members) in [
        ("6", 5),
        ("7.3", 6),
        ("60", 8),
        ("n+m", 7),
        ("1", 3),
        ("10", 6),
    ] {
        let mut array = Scenario::new(level, members).start();
        array.fill().rest();
        let width = array.world.geometry().width;
        for column in 0..width {
            array.rot(column as u64 % 4, column).cure().verify();
        }
        assert_eq!(array.world.stats().cures, width as u64, "level {level}");
    }
}

#[test]
fn scrub_tells_of_both_readings_and_keeps_them_where_nobody_can_be_named() {
    for (level, members) in [("5", 4), ("50", 6), ("1", 2), ("10", 4)] {
        let mut array = Scenario::new(level, members).start();
        array.fill().rest();
        for column in 0..array.world.geometry().width {
            array.rot(2, column).cure().verify();
        }
    }
}

#[test]
fn a_degraded_array_still_names_the_liar_while_two_strips_are_left_to_spare() {
    let mut raid = Scenario::new("7.3", 6).start();
    raid.fill().rest().lose(1).write(20).rest();
    // Columns that have no member cannot rot.
    for column in 0..6 {
        raid.rot(3, column);
        if raid.world.is_corrupt() {
            raid.cure();
        }
    }
    assert_eq!(raid.world.stats().cures, 5);
    raid.verify();
}

#[test]
fn a_power_cut_after_a_repair_does_not_bring_the_lie_back() {
    let mut raid6 = Scenario::new("6", 6).start();
    raid6.fill().rest().rot(1, 0).rot(2, 5).cure();
    raid6.power_cut().start().rest().verify();
    raid6.begin_to_scrub().rest();
    assert_eq!(raid6.world.stats().cures, 1);
}

#[test]
fn a_scrub_that_begins_again_passes_over_nothing() {
    let mut raid6 = Scenario::new("6", 5).start();
    raid6.fill().rest().rot(0, 1);
    // The step that the first scrub left under way says nothing of the second.
    raid6.world.command(Command::StartScrub(ScrubMode::Check));
    raid6.steps(8);
    raid6.world.command(Command::StopScrub);
    raid6.cure().verify();
}

/// A rebuild that met a sector which no redundancy could make good stopped for good.
#[test]
fn a_rebuild_goes_on_over_unreadable_sectors_and_loses_exactly_those() {
    let mut raid5 = Scenario::new("5", 4).start();
    raid5.write_all().rest();
    raid5.lose(1).steps(3000);
    raid5.spoil_block(0, 3, 0).spoil_block(2, 5, 0);
    raid5.add().made_whole();
    let lost = raid5.unreadable();
    // In each of two rows, what is lost is the unreadable sector and the missing one, if they are
    // data.
    assert!((2..=4).contains(&lost.len()), "{lost:?}");
    raid5.verify();
    assert_eq!(raid5.fails(), lost);
    // It is remembered, by whomever is left.
    raid5.stop().start().verify();
    assert_eq!(raid5.fails(), lost);
    raid5.power_cut().start().rest().lose(3).verify();
    assert_eq!(raid5.unreadable(), lost);
}

#[test]
fn a_lost_block_answers_again_once_it_is_written_also_after_a_power_cut() {
    let mut raid5 = Scenario::new("5", 4).start();
    raid5.write_all().rest().lose(1).steps(3000);
    for row in 0..4 {
        raid5.spoil_block(3, row, 0);
    }
    raid5.add().made_whole();
    let lost = raid5.unreadable();
    assert!(lost.len() > 4, "{lost:?}");
    let (first, rest) = lost.split_first().expect("some are lost");
    raid5
        .ask(AskKind::Write, *first, 1)
        .power_cut()
        .start()
        .rest()
        .verify();
    assert_eq!(raid5.unreadable(), rest);
    for &block in rest {
        raid5.ask(AskKind::Write, block, 1);
    }
    assert_eq!(raid5.unreadable(), []);
    raid5.verify();
    assert_eq!(raid5.fails(), []);
}

#[test]
fn a_resync_goes_on_over_an_unreadable_sector() {
    for (level, members) in [("5", 4), ("6", 5)] {
        let mut array = Scenario::new(level, members).start();
        array.write_all().begin_to_write(60, 200).power_cut();
        array.spoil_drive(0, 2, 0).start().rest();
        let unreadable = array.unreadable();
        array.verify();
        assert_eq!(array.fails(), unreadable);
        assert_eq!(array.state(), ArrayState::Optimal);
    }
}

/// A replay that met an unreadable sector gave up all that it had read together with it.
#[test]
fn a_replay_gives_up_no_more_than_the_sector_that_it_cannot_read() {
    let mut gave_up = 0;
    for seed in 0..16 {
        let mut raid5 = Scenario::new("5", 4)
            .small_blocks()
            .forgiving()
            .seed(seed)
            .start();
        raid5.write_all().rest().lose(1).steps(3000);
        raid5
            .begin_to_overwrite()
            .steps(60 + 20 * (seed % 8))
            .power_cut();
        for row in 0..4 {
            raid5.spoil_drive(3, row, 1);
        }
        raid5.start().rest().verify();
        let lost = raid5.unreadable();
        assert!(lost.len() <= 8, "two strips of each row at most: {lost:?}");
        gave_up += usize::from(!lost.is_empty());
    }
    assert!(gave_up > 4, "{gave_up}");
}

#[test]
fn sectors_unreadable_on_two_members_in_different_places_of_a_strip_lose_nothing() {
    let mut raid5 = Scenario::new("5", 4).small_blocks().forgiving().start();
    raid5.write_all().rest();
    for row in 0..4 {
        // Two of the three are data.
        raid5
            .spoil_block(0, row, 0)
            .spoil_block(2, row, 1)
            .spoil_block(3, row, 2);
    }
    raid5.verify();
    assert_eq!((raid5.unreadable(), raid5.fails()), (vec![], vec![]));
    assert!(raid5.world.stats().repairs > 0);
}

#[test]
fn discarding_a_region_forgets_what_was_lost_there() {
    let mut raid5 = Scenario::new("5", 4).start();
    raid5
        .write_all()
        .rest()
        .lose(0)
        .steps(3000)
        .spoil_block(2, 0, 0);
    raid5.add().made_whole();
    assert!(!raid5.unreadable().is_empty());
    let total = raid5.world.blocks();
    raid5.ask(AskKind::WriteZeroes, 0, total);
    assert_eq!(raid5.unreadable(), []);
    raid5.write(40).verify();
    raid5.stop().start().verify();
    assert_eq!(raid5.fails(), []);
}

/// The list is bounded: beyond it a rebuild stops, and says why.
#[test]
fn a_full_list_stops_the_rebuild_and_changes_nothing() {
    let mut raid5 = Scenario::new("5", 4).small_blocks().start();
    raid5.write_all().rest().lose(1).steps(3000);
    for (row, block) in (0..24).flat_map(|row| [0, 2, 4, 6].map(|block| (row, block))) {
        for slot in [0, 2, 3] {
            raid5.spoil_block(slot, row, block);
        }
    }
    raid5.add();
    raid5.wait("the rebuild gives up", |world| {
        world.array().status().jobs.iter().any(|job| job.paused)
    });
    assert_eq!(raid5.state(), ArrayState::Degraded);
    assert!(raid5.world.notes(|line| line.contains("ListFull")) > 0);
    raid5.verify();
}

#[test]
fn a_member_whose_errors_are_counted_anew_is_failed_by_as_many_new_ones() {
    let mut raid6 = Scenario::new("6", 5).threshold(3).start();
    raid6.write_all().rest();
    let status = |raid6: &mut Scenario| {
        let members = raid6.status().members;
        let member = members.into_iter().find(|m| m.slot == Some(Slot(2)));
        member.expect("slot 2 is told of")
    };
    let mut row = 0;
    for of_two in 0..3 {
        if of_two > 0 {
            let meant = (of_two == 1).then_some(MemberRef::Slot(Slot(2)));
            raid6
                .command(Command::ResetCounters(meant))
                .expect("counts are taken back at any time");
            assert_eq!(status(&mut raid6).read_errors, 0);
        }
        while status(&mut raid6).read_errors < 2 {
            raid6.spoil_block(2, row, 0).verify();
            row += 1;
        }
        assert_eq!(status(&mut raid6).state, MemberState::InSync);
    }
    while status(&mut raid6).read_errors < 3 {
        raid6.spoil_block(2, row, 0).verify();
        row += 1;
    }
    let failed = status(&mut raid6);
    assert_eq!(failed.state, MemberState::Failed);
    // What it was failed for is told of its slot, and can be forgotten; it stays failed.
    let meant = Some(MemberRef::Slot(Slot(2)));
    raid6
        .command(Command::ResetCounters(meant))
        .expect("counts are taken back at any time");
    let failed = status(&mut raid6);
    assert_eq!((failed.read_errors, failed.state), (0, MemberState::Failed));
    let nobody = Command::ResetCounters(Some(MemberRef::Slot(Slot(60))));
    assert_eq!(raid6.command(nobody), Err(CommandError::NoSuchSlot));
    raid6.add().made_whole().verify();
}

/// It was failed at the read error after the one that the setting names.
#[test]
fn a_member_is_failed_at_the_read_error_that_the_threshold_names() {
    for (threshold, seed) in [(None, 1), (Some(1), 2), (Some(5), 3)] {
        let mut raid6 = Scenario::new("6", 5).seed(seed);
        if let Some(threshold) = threshold {
            raid6 = raid6.threshold(threshold);
        }
        let mut raid6 = raid6.start();
        raid6.write_all().rest();
        let named = u64::from(threshold.unwrap_or(3));
        let mut errors = 0;
        for row in 0.. {
            raid6.spoil_block(2, row, 0).verify();
            let status = raid6.status();
            let member = status.members.iter().find(|m| m.slot == Some(Slot(2)));
            let member = member.expect("slot 2 is told of");
            assert!(member.read_errors <= errors + 1, "one for one sector");
            errors = member.read_errors;
            let failed = member.state == MemberState::Failed;
            assert_eq!(failed, errors >= named, "{errors} of {named}");
            if failed {
                break;
            }
        }
        raid6.add().made_whole().verify();
    }
}

/// An administrator may pull another member in the very moment in which the state becomes
/// `optimal`; and the power may go.
#[test]
fn a_member_is_shown_in_sync_only_when_a_crash_finds_it_so() {
    for (level, members) in [("5", 4), ("6", 5), ("10", 4), ("50", 6)] {
        for seed in 0..6 {
            let mut array = Scenario::new(level, members).seed(40 + seed).start();
            array.write(60).rest().lose(0).write(20).rest();
            array.add();
            array.wait("it is optimal again", |world| {
                world.array().status().state == ArrayState::Optimal
            });
            let other = array.drive(1);
            array.power_cut();
            array.world.hide(other);
            array.start().verify().write(10).rest().verify();
        }
    }
}
