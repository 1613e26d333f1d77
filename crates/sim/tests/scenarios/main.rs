//! Named scenarios: each is a story that must come out well.
//!
//! Here members come and go, in `life` with cuts and losses at every step (by `steps`); `made` and
//! `restored` are about arrays that are not there yet, or not any more; `carved` is about the word
//! that an array has volumes, `beyond` about more that is lost than the level survives, `media`
//! about sectors that cannot be read and strips that lie, `log` about what power cuts leave of
//! writes, `records` about changes that have no record in the log, `salvage` about stripes of which
//! too much cannot be read at once, `reshape`, `growth`, `moving`, `strips`, `groups`, `rotate` and
//! `back` about other shapes, `resets` about drives that do not answer for a while, `metadata`
//! about writes that tell of the others and go wrong, `init` about zeroing in the background,
//! `full` about devices without space, `idle` about regions that are not written for a while,
//! `pace` about background work beside a load, `numbers` about counters that end, `undecided` about
//! strips that are built from others that do not agree, `past` about members of another past,
//! `visits` about reads of other shards' stripes, `wear` about what the log costs drives that write
//! in large units.

mod back;
mod beyond;
mod carved;
mod doubt;
mod full;
mod groups;
mod growth;
mod idle;
mod init;
mod life;
mod log;
mod lower;
mod made;
mod media;
mod metadata;
mod moving;
mod numbers;
mod pace;
mod past;
mod records;
mod resets;
mod reshape;
mod restored;
mod rotate;
mod salvage;
mod scrub;
mod slow;
mod spares;
mod standstill;
mod steps;
mod strips;
mod trim;
mod undecided;
mod visits;
mod wear;

use strake_engine::StartError;
use strake_engine::event::{ArrayState, Command, CommandError, IoKind, JobKind};
use strake_engine::units::{RegionNo, Row, Slot};
use strake_format::region_map::{self, PAGE_BYTES};
use strake_format::{RegionState, SelectError, WriteHole};
use strake_sim::scenario::Scenario;
use strake_sim::workload::AskKind;

#[test]
fn degraded_write_survives_the_loss_of_power_after_a_clean_region() {
    let mut raid5 = Scenario::new("5", 4).start();
    raid5.write(60).lose(1).write(60).rest().steps(10_000);
    raid5.power_cut().start().verify();
    assert_eq!(raid5.state(), ArrayState::Degraded);
}

#[test]
fn two_members_lost_one_after_another_on_raid_6_lose_nothing() {
    let mut raid6 = Scenario::new("6", 6).start();
    raid6.write(80).lose(0).write(40).lose(3).write(40).verify();
    raid6.add().add().made_whole().verify();
}

#[test]
fn three_members_lost_on_raid_7_3_lose_nothing() {
    let mut raid = Scenario::new("7.3", 6).start();
    raid.write(80)
        .lose(0)
        .lose(2)
        .write(40)
        .lose(5)
        .write(40)
        .verify();
    raid.stop().start().verify();
}

#[test]
fn rebuild_resumes_after_a_restart() {
    let mut raid5 = Scenario::new("5", 5).start();
    raid5.write(120).rest().lose(2).steps(2000).add().steps(60);
    assert_eq!(raid5.state(), ArrayState::Degraded);
    raid5.stop().start().made_whole().verify();
}

#[test]
fn rebuild_resumes_after_a_kill() {
    let mut raid6 = Scenario::new("6", 5).start();
    raid6.write(120).rest().lose(2).steps(2000).add().steps(60);
    raid6.kill().start().made_whole().verify();
}

#[test]
fn a_stale_member_is_not_believed() {
    for (level, members) in [("1", 3), ("5", 4), ("6", 5), ("10", 4)] {
        let mut array = Scenario::new(level, members).start();
        array.write(40);
        let lost = array.drive(1);
        array.lose(1).write(60).rest().remove(1);
        array.stop().bring_back(lost).start();
        assert!(!array.serves(lost), "level {level}");
        array.verify().add().made_whole().verify();
    }
}

/// Every level that has redundancy, with a size that is drawn.
pub(crate) const REDUNDANT: [(&str, u8); 6] = [
    ("1", 2),
    ("5", 4),
    ("6", 5),
    ("10", 4),
    ("50", 6),
    ("n+m", 6),
];

#[test]
fn a_member_found_at_the_start_gets_only_what_was_written_while_it_was_away() {
    for (level, members) in REDUNDANT {
        let mut array = Scenario::new(level, members).start();
        array.write(120).rest().steps(10_000);
        let lost = array.drive(1);
        array.lose(1).write(3).rest().steps(10_000).stop();
        array.bring_back(lost).start();
        assert!(array.serves(lost), "level {level}");
        array.made_whole().verify();
        assert_eq!(array.world.stats().partial_rebuilds, 1, "level {level}");
        array.lose_others(Some(1)).verify();
    }
}

#[test]
fn a_member_that_is_plugged_in_again_gets_only_what_was_written_while_it_was_away() {
    for (level, members) in REDUNDANT {
        let mut array = Scenario::new(level, members).start();
        array.write(100).rest();
        let lost = array.drive(0);
        array.pull(0).write(20).rest();
        array.begin_to_write(60, 20);
        array.offer(lost).expect("it is kept");
        array.wait("requests are answered", |world| world.all_answered());
        array.made_whole().verify().lose(1).verify();
        assert_eq!(array.world.stats().partial_rebuilds, 1, "level {level}");
    }
}

#[test]
fn a_partial_rebuild_covers_the_regions_written_and_no_more() {
    let mut raid5 = Scenario::new("5", 4).start();
    raid5.fill().rest().steps(10_000);
    let lost = raid5.drive(1);
    raid5.lose(1).steps(500);
    let block = raid5.world.blocks() - 1;
    raid5.write_at(block, 1).rest().steps(10_000);
    raid5.offer(lost).expect("it is kept");
    let status = raid5.status();
    let region = raid5
        .world
        .geometry()
        .region(Row(raid5.world.geometry().rows - 1));
    let rows = raid5.world.geometry().region_rows(region);
    let jobs: Vec<(bool, u64)> = (status.jobs.iter())
        .map(|job| (job.partial, job.total_bytes))
        .collect();
    let bytes = (rows.end - rows.start) * raid5.world.geometry().strip;
    assert_eq!(jobs, [(true, bytes)]);
    raid5.made_whole().verify().lose(0).verify();
}

#[test]
fn a_member_that_leaves_and_comes_back_again_and_again_stays_kept() {
    let mut raid6 = Scenario::new("6", 6).start();
    raid6.write(100).rest();
    let lost = raid6.drive(2);
    for round in 0..6 {
        raid6.pull(2).write(10);
        raid6.begin_to_write(30, 30 * round);
        raid6.wait("it is known to be out", |world| {
            world.looks()[2].remains && world.drives()[lost].device().is_none()
        });
        raid6.offer(lost).expect("it is kept");
        raid6.steps(40 * round);
    }
    raid6.write(20).made_whole().verify();
    raid6.lose(0).lose(1).verify();
}

#[test]
fn a_partial_rebuild_goes_on_after_power_cuts_at_any_moment() {
    for events in 0..40 {
        let mut raid1 = Scenario::new("1", 3).seed(4000 + events).start();
        raid1.write(80).rest();
        let lost = raid1.drive(1);
        raid1.pull(1).write(40).rest();
        raid1.offer(lost).expect("it is kept");
        raid1.steps(events * 5).power_cut().start();
        raid1.write(10).made_whole().verify();
        assert!(raid1.serves(lost));
        raid1.lose(0).lose(2).verify();
    }
}

#[test]
fn what_an_administrator_failed_comes_back_only_when_it_is_asked_for() {
    let mut raid5 = Scenario::new("5", 4).start();
    raid5.write(60).rest();
    let failed = raid5.drive(3);
    raid5
        .command(Command::Fail(Slot(3)))
        .expect("it may be lost");
    raid5.write(10).rest().stop().start();
    assert!(!raid5.serves(failed));
    raid5.offer(failed).expect("it is kept");
    raid5.made_whole().verify().lose(1).verify();
}

#[test]
fn a_member_that_failed_to_write_is_not_taken_back_as_it_is() {
    let mut raid5 = Scenario::new("5", 4).start();
    raid5.write(60).rest();
    let failed = raid5.drive(3);
    raid5.world.ssd_mut(failed).faults.write_errors = 1;
    raid5.write(60).rest();
    assert!(!raid5.serves(failed));
    assert_eq!(raid5.offer(failed), Err(CommandError::NotKept));
}

#[test]
fn a_member_that_was_replaced_is_not_taken_back_as_it_is() {
    let mut raid5 = Scenario::new("5", 4).spares(1).start();
    raid5.write(60).rest();
    let lost = raid5.drive(3);
    raid5.lose(3).write(20).rest();
    assert_eq!(raid5.state(), ArrayState::Optimal);
    assert_eq!(raid5.offer(lost), Err(CommandError::NotKept));
}

#[test]
fn a_spare_takes_over_by_itself() {
    let mut raid5 = Scenario::new("5", 4).spares(1).start();
    raid5.write(60).lose(3).write(20).rest().verify();
    assert_eq!(raid5.state(), ArrayState::Optimal);
}

#[test]
fn a_latent_error_during_the_rebuild_of_raid_6_is_repaired() {
    let mut raid6 = Scenario::new("6", 6).forgiving().start();
    raid6.write(150).rest().lose(1).steps(3000);
    for row in 0..8 {
        raid6.spoil(4, row);
    }
    raid6.add().made_whole().verify();
    assert!(raid6.world.stats().repairs > 0);
    // Sectors that the rebuild had no need of may be unreadable still: they count as a loss.
    raid6.lose(0).verify();
}

#[test]
fn a_power_cut_between_superblock_copies_leaves_an_array() {
    for events in 0..60 {
        let mut raid1 = Scenario::new("1", 3).seed(900 + events).start();
        raid1.write(20).lose(1).steps(events);
        raid1.power_cut().start().rest().verify();
    }
}

#[test]
fn power_cuts_during_the_start_lose_nothing() {
    let mut raid5 = Scenario::new("5", 4).start();
    raid5.write(50).begin_to_write(20, 40);
    raid5.power_cut();
    for events in 0..40 {
        raid5.begin_to_start().steps(events).power_cut();
    }
    raid5.start().rest().verify();
}

/// The power went while the second copies were being written, and tore one. The next start wrote
/// the first copies first, which were the only whole ones, and was cut off as well: the member had
/// none, counted as missing, and an array with writes under way refused to start.
#[test]
fn a_start_that_is_cut_off_after_a_power_cut_leaves_every_member_a_superblock() {
    for seed in 0..120 {
        let mut raid6 = Scenario::new("6", 6).small_blocks().seed(seed).start();
        // The table lies in other blocks than the checksum: what is torn is seen.
        let absent = raid6.drive(4);
        raid6.world.command(Command::Fail(Slot(5)));
        raid6.steps(7 + seed % 4).power_cut();
        let members = raid6.world.present().len();
        raid6.world.hide(absent);
        raid6.begin_to_start().steps(1 + seed % 7).power_cut();
        raid6.world.set_hidden(absent, false);
        assert_eq!(raid6.world.present().len(), members, "seed {seed}");
    }
}

/// The simulator demanded that the loss of a second member be refused while a spare waited; it was
/// whole in the first one's slot before the command came.
#[test]
fn a_member_may_be_failed_when_the_spare_has_taken_over() {
    for events in 0..60 {
        let draft = Scenario::new("5", 4).spares(1).no_caches();
        let mut raid5 = draft.message_ns(5_000_000).start();
        raid5.world.command(Command::Fail(Slot(0)));
        raid5.steps(events);
        let asked = raid5.world.ask_too_much();
        assert!(asked.is_ok());
        raid5.rest().verify();
    }
}

/// A region that waited for its resync was discarded. While it was being closed the resync passed
/// over it, or left it out, and was called finished; but shards still took its parity for untrue,
/// and when a member was lost before the region read as zeros, reads of what that member held were
/// answered with an error.
#[test]
fn a_member_is_lost_while_a_region_that_was_not_yet_synced_is_discarded() {
    for seed in 0..60 {
        let mut raid5 = Scenario::new("5", 4).no_caches().seed(seed).start();
        raid5.write(60).begin_to_write(20, 60).kill().start();
        raid5.steps(seed).begin_to_discard();
        raid5.wait("parity is true or given up", |world| {
            world.refresh_resyncing();
            world.is_synced()
        });
        raid5.lose(1).begin_to_read().rest().verify();
    }
}

/// Cuts the power; of the region map writes of `drive` that it interrupts, nothing can be read.
fn cut_map_writes_off(array: &mut Scenario, drive: usize) -> bool {
    let layout = array.world.superblock().layout;
    let places = [0, 1].map(|sequence| region_map::place(&layout, 0, sequence));
    let len = PAGE_BYTES as u64;
    let interrupted = |offset: &u64| {
        let kind = IoKind::WriteZeroes {
            offset: *offset,
            len,
        };
        array.world.ssd(drive).overlapping_write(&kind)
    };
    let torn: Vec<u64> = places.into_iter().filter(interrupted).collect();
    array.power_cut();
    let block = array.world.geometry().block;
    let blocks = torn.iter().map(|offset| offset / block);
    array.world.ssd_mut(drive).faults.latent.extend(blocks);
    !torn.is_empty()
}

/// A power cut tore the newest version of a page of the region map on one member. The next start
/// wrote the version after it, over the only whole one that the member had, and was cut off, too:
/// with the other member lost, no version was left, and the array could not be started.
#[test]
fn a_member_whose_map_was_torn_twice_still_has_one() {
    let mut torn_twice = 0;
    for seed in 0..300 {
        let mut raid1 = Scenario::new("1", 2).no_caches().seed(seed).start();
        let (kept, lost) = (raid1.drive(0), raid1.drive(1));
        raid1.write(10).begin_to_write(20, 5 + seed % 40);
        if !cut_map_writes_off(&mut raid1, kept) {
            continue;
        }
        raid1.begin_to_start().steps(seed % 9);
        torn_twice += u32::from(cut_map_writes_off(&mut raid1, kept));
        raid1.world.hide(lost);
        raid1.start().rest().verify();
    }
    assert!(torn_twice > 5, "{torn_twice}");
}

/// A read met an unreadable sector and waited behind a write of the same stripe to be computed from
/// the others. The write healed the sector; then another member was lost, and the read was answered
/// with an error because of a sector that could be read again.
#[test]
fn a_sector_that_was_healed_while_a_read_waited_is_read() {
    for seed in 0..60 {
        let draft = Scenario::new("5", 4).forgiving().no_caches();
        let mut raid5 = draft.seed(seed).start();
        raid5.begin_to_overwrite().rest();
        let bad = raid5.drive(2);
        for row in 0..6 {
            raid5.spoil(2, row);
        }
        raid5.begin_to_read().begin_to_overwrite();
        while !raid5.world.ssd(bad).faults.latent.is_empty() {
            raid5.steps(1);
        }
        raid5.lose(0).rest().verify();
    }
}

#[test]
fn the_last_redundancy_is_not_given_away_on_request() {
    let mut raid5 = Scenario::new("5", 4).start();
    raid5.write(30);
    assert_eq!(raid5.command(Command::Fail(Slot(0))), Ok(()));
    assert_eq!(
        raid5.command(Command::Fail(Slot(2))),
        Err(CommandError::WouldFail)
    );
    raid5.write(30).verify();
}

/// What is known to hold nothing does not serve on because the level needs it.
#[test]
fn members_that_are_empty_go_out_whatever_depends_on_them() {
    let device = |array: &mut Scenario, slot: u8| {
        let drive = array.drive(slot);
        array.world.drives()[drive].device().expect("it serves")
    };
    let mut raid5 = Scenario::new("5", 4).start();
    raid5.write(30);
    let [one, two] = [0, 2].map(|slot| device(&mut raid5, slot));
    assert_eq!(raid5.command(Command::Emptied(vec![one])), Ok(()));
    raid5.write(30).verify();
    let refused = raid5.command(Command::Emptied(vec![two, one]));
    assert_eq!(refused, Err(CommandError::NoSuchMember));
    assert_eq!(raid5.state(), ArrayState::Degraded);

    let mut raid6 = Scenario::new("6", 5).start();
    raid6.write(30);
    let drives = [0, 1, 3].map(|slot| raid6.drive(slot));
    let devices = [0, 1, 3].map(|slot| device(&mut raid6, slot)).to_vec();
    let generation = |array: &Scenario, drive: usize| {
        let own = array.world.table_of(drive);
        own.expect("it has one").generation
    };
    let before = drives.map(|drive| generation(&raid6, drive));
    let failed = raid6.command(Command::Emptied(devices));
    assert_eq!(failed, Err(CommandError::NotServing));
    assert_eq!(raid6.state(), ArrayState::Failed);
    // A superblock on one of them would make it look like a member in sync.
    assert_eq!(before, drives.map(|drive| generation(&raid6, drive)));
}

#[test]
fn a_member_is_replaced_while_it_serves() {
    let mut raid60 = Scenario::new("60", 8).start();
    let old = raid60.drive(5);
    raid60.write(100).replace(5).write(60).rest();
    assert!(!raid60.serves(old));
    assert_eq!(raid60.state(), ArrayState::Optimal);
    raid60.lose(4).lose(6).verify();
}

#[test]
fn killed_again_and_again_under_load_a_mirror_keeps_what_it_answered() {
    let mut raid10 = Scenario::new("10", 4).no_caches().start();
    for round in 0..12 {
        raid10.begin_to_write(30, 50 + 17 * round).kill().start();
    }
    raid10.rest().verify();
}

/// A region that waits for its resync is given back while a scrub is at work there: the scrub
/// reported parity as untrue that was not needed any more.
#[test]
fn a_scrub_does_not_call_a_region_inconsistent_that_is_discarded_before_its_resync() {
    for seed in 0..260 {
        let mut raid5 = Scenario::new("5", 5).seed(seed).no_caches().start();
        raid5.write(20).begin_to_write(40, 100 + seed % 300);
        raid5.power_cut().start();
        // Slow writes hold the regions back on their way to Unwritten.
        raid5.begin_to_write(20, seed % 37).slow(0).slow(1);
        raid5.begin_to_discard().steps(seed % 11);
        raid5.begin_to_scrub().rest().verify();
        assert_eq!(raid5.world.stats().scrubs, 1, "seed {seed}");
    }
}

/// Two halves of an array, each of which can run without the other.
const HALVES: [(&str, u8, &[usize]); 4] = [
    ("1", 2, &[0]),
    ("1", 3, &[0, 2]),
    ("10", 4, &[0, 2]),
    ("10", 6, &[0, 1, 3]),
];

#[test]
fn two_halves_that_ran_apart_are_never_put_together_not_even_by_force() {
    for (level, members, half) in HALVES {
        for clean in [false, true] {
            let mut array = Scenario::new(level, members).start();
            array.write(40).rest().stop();
            for turn in [true, false] {
                for drive in 0..usize::from(members) {
                    array.world.set_hidden(drive, half.contains(&drive) == turn);
                }
                array.start().write_at(turn.into(), 1).steps(20_000);
                if clean {
                    array.stop();
                } else {
                    array.kill();
                }
            }
            array.world.hide_none();
            for force in [false, true] {
                let refusal = array.refused(force);
                assert!(
                    matches!(refusal, StartError::Select(SelectError::SplitBrain { .. })),
                    "level {level} of {members}: {refusal}"
                );
            }
        }
    }
}

#[test]
fn a_half_that_ran_alone_is_noticed_after_the_other_was_rebuilt_onto_new_devices() {
    let mut raid1 = Scenario::new("1", 2).start();
    raid1.write(40).rest().stop();
    raid1.world.hide(1);
    raid1.start().write_at(0, 1).rest().stop();
    raid1.world.hide(0);
    raid1.world.set_hidden(1, false);
    raid1.start().write_at(1, 1);
    // Every row of the other half's table is a new one in the end.
    raid1.remove(0).add().made_whole();
    let last = raid1.drive(1);
    raid1.replace(1).rest();
    assert!(!raid1.serves(last));
    raid1.steps(20_000).stop();
    raid1.world.set_hidden(0, false);
    let refusal = raid1.refused(true);
    let split = matches!(refusal, StartError::Select(SelectError::SplitBrain { .. }));
    assert!(split, "{refusal}");
}

#[test]
fn force_starts_no_array_of_which_too_many_members_are_missing() {
    for (level, members, missing) in [("1", 2, 2), ("5", 4, 2), ("6", 5, 3), ("10", 4, 2)] {
        let mut array = Scenario::new(level, members).start();
        array.write(40).rest().stop();
        for drive in 0..missing {
            array.world.hide(drive);
        }
        let refusal = array.refused(true);
        let named = matches!(
            refusal,
            StartError::TooFewMembers { .. } | StartError::Select(SelectError::NoMembers)
        );
        assert!(named, "level {level}: {refusal}");
        array.world.hide_none();
        array.start().verify();
    }
}

#[test]
fn force_starts_what_was_cut_off_in_the_middle_and_gives_up_only_what_was_being_written() {
    for (level, members) in [("5", 4), ("6", 5), ("50", 6), ("7.3", 5)] {
        let mut forced = 0;
        for seed in 0..12 {
            let draft = Scenario::new(level, members).policy(WriteHole::Resync);
            let mut array = draft.seed(700 + seed).start();
            array.write(80).rest().steps(10_000);
            array.begin_to_write(30, 40 + 11 * seed).power_cut();
            array.world.hide(seed as usize % usize::from(members));
            if array.world.assemble(false).is_ok() {
                continue; // Nothing was being written.
            }
            forced += 1;
            assert_eq!(array.refused(false), StartError::DirtyDegraded);
            array.start_by_force().verify().fill().verify();
            array.add().made_whole().verify();
        }
        assert!(forced > 6, "level {level}: {forced}");
    }
}

fn accepted(array: &Scenario) -> u64 {
    let drives = array.world.drives().iter();
    drives.map(|drive| drive.ssd().accepted()).sum()
}

#[test]
fn what_was_never_written_is_read_without_a_drive() {
    for (level, members) in REDUNDANT {
        let mut array = Scenario::new(level, members).start();
        array.steps(10_000);
        let before = accepted(&array);
        array.verify();
        assert_eq!(accepted(&array), before, "level {level}");
    }
}

#[test]
fn a_sequential_stream_is_written_in_whole_stripes_and_survives_a_power_cut() {
    for (level, members, policy) in [
        ("5", 4, WriteHole::Resync),
        ("5", 4, WriteHole::Closed),
        ("6", 6, WriteHole::Resync),
    ] {
        let draft = Scenario::new(level, members).small_blocks();
        let mut array = draft.policy(policy).start();
        array.write_all().rest();
        let geometry = array.world.geometry().clone();
        let stripe = geometry.stripe_bytes() / geometry.block;
        let stripes = array.world.blocks() / stripe;
        // Half a strip at a time, more than two stripes of each of two shards under way.
        let half = geometry.strip / geometry.block / 2;
        let depth = (4 * stripe / half + 2) as usize;
        let before = accepted(&array);
        array.stream(half, depth).rest();
        let commands = (accepted(&array) - before) / stripes;
        // One by one each of the writes to a stripe would read and write the parity.
        let most = 4 * stripe / half / 2;
        assert!(
            commands <= most,
            "level {level}: {commands} commands a stripe"
        );
        array.verify();
        array.stream(half, depth).power_cut().start().verify();
    }
}

/// The slower the members, the longer it takes until answers bring what a stripe still misses; and
/// requests reach a shard in any order.
#[test]
fn a_sequential_stream_is_written_in_whole_stripes_by_slow_members() {
    for (policy, most) in [(WriteHole::Resync, 5.6), (WriteHole::Closed, 8.5)] {
        let draft = Scenario::new("5", 4).small_blocks();
        let mut array = draft.policy(policy).start();
        array.write_all().rest();
        for slot in 0..4 {
            array.slow(slot);
        }
        let geometry = array.world.geometry().clone();
        let stripe = geometry.stripe_bytes() / geometry.block;
        let stripes = array.world.blocks() / stripe;
        // Half a strip at a time, eight stripes under way, four times.
        let half = geometry.strip / geometry.block / 2;
        let before = accepted(&array);
        for _ in 0..4 {
            array.stream(half, (8 * stripe / half) as usize).rest();
        }
        let commands = (accepted(&array) - before) as f64 / (4 * stripes) as f64;
        // Four strips are written, and some records.
        assert!(commands < most, "{policy:?}: {commands} commands a stripe");
        array.verify();
    }
}

#[test]
fn a_stream_waits_for_nothing_where_nothing_is_under_way() {
    let mut raid5 = Scenario::new("5", 4).small_blocks().start();
    raid5.write_all().rest();
    // Every request is answered although no other comes.
    raid5.stream(1, 1).rest().verify();
    raid5.stream(1, 2).rest().verify();
}

#[test]
fn a_degraded_read_of_whole_stripes_reads_no_strip_twice() {
    for (level, members, lost) in [("5", 4, 1), ("6", 6, 1), ("6", 6, 2), ("70", 10, 3)] {
        let mut array = Scenario::new(level, members).small_blocks().start();
        array.write_all().rest();
        for slot in 0..lost {
            array.lose(slot);
        }
        // Every loss is noticed, and every region called clean.
        array.write_all().rest().steps(20_000);
        let geometry = array.world.geometry().clone();
        let stripe = geometry.stripe_bytes() / geometry.block;
        let (total, k) = (array.world.blocks(), geometry.k as u64);
        let before = accepted(&array);
        for first in (0..total).step_by(stripe as usize) {
            array.ask(AskKind::Read, first, stripe);
        }
        assert_eq!(accepted(&array) - before, total / stripe * k, "{level}");
        // Longer than a stripe and not along its borders: the oracle judges the answers.
        for first in (0..total - 2 * stripe).step_by(stripe as usize - 1) {
            array.ask(AskKind::Read, first, 2 * stripe);
        }
        array.verify();
    }
}

/// A stream of reads far smaller than a strip, on an array that misses members: whatever comes in
/// one batch is computed from one read of each strip.
#[test]
fn degraded_reads_of_one_batch_read_no_strip_twice() {
    for (level, members, lost) in [("5", 4, 1), ("6", 6, 2), ("70", 10, 3)] {
        let draft = Scenario::new(level, members).small_blocks().batches();
        let mut array = draft.queues(1).start();
        array.write_all().rest();
        for slot in 0..lost {
            array.lose(slot);
        }
        array.write_all().rest().steps(20_000);
        let geometry = array.world.geometry().clone();
        let stripe = geometry.stripe_bytes() / geometry.block;
        let half = geometry.strip / geometry.block / 2;
        let (total, k) = (array.world.blocks(), geometry.k as u64);
        let before = accepted(&array);
        for first in (0..total).step_by(stripe as usize) {
            for first in (first..first + stripe).step_by(half as usize) {
                array.begin(AskKind::Read, first, half);
            }
            array.wait("they are answered", |world| world.all_answered());
        }
        // Of a stripe that lost only parities, each half of a strip is read by itself.
        let commands = accepted(&array) - before;
        let most = total / stripe * k * 7 / 4;
        assert!(commands <= most, "level {level}: {commands}, not {most}");
        array.verify();
    }
}

#[test]
fn a_block_that_cannot_be_computed_is_an_error_of_its_own_reader_alone() {
    for (row, block) in (0..8).flat_map(|row| [(row, 0), (row, 3), (row, 7)]) {
        let draft = Scenario::new("5", 4).small_blocks().batches();
        let mut raid5 = draft.start();
        raid5.write_all().rest().lose(1).steps(3000);
        raid5.spoil_block(2, row, block);
        let geometry = raid5.world.geometry().clone();
        let stripe = geometry.stripe_bytes() / geometry.block;
        for first in row * stripe..(row + 1) * stripe {
            raid5.begin(AskKind::Read, first, 1);
        }
        // The oracle knows which block may answer an error.
        raid5.wait("they are answered", |world| world.all_answered());
        raid5.verify();
    }
}

#[test]
fn a_resync_touches_only_what_was_being_written_and_the_array_serves_meanwhile() {
    for (level, members) in REDUNDANT {
        let mut array = Scenario::new(level, members)
            .policy(WriteHole::Resync)
            .start();
        array.fill().rest().steps(20_000);
        array.write_at(0, 1).kill().start();
        let jobs: Vec<(JobKind, u64)> = (array.status().jobs.iter())
            .map(|job| (job.kind, job.total_bytes))
            .collect();
        let geometry = &array.world.geometry();
        let region = geometry.region_rows * geometry.strip;
        assert_eq!(jobs, [(JobKind::Resync, region)], "level {level}");
        // Both in the region that is being synced and in one that is not.
        let last = array.world.blocks() - 1;
        array.write_at(1, 1).write_at(last, 1);
        array.verify().rest().verify();
    }
}

#[test]
fn a_discard_of_everything_gives_every_region_back_to_the_drives() {
    for (level, members) in REDUNDANT {
        let mut array = Scenario::new(level, members).start();
        array.fill().rest();
        array.begin_to_discard();
        array
            .wait("it is answered", |world| world.all_answered())
            .rest();
        let states = (0..array.world.geometry().regions())
            .map(|region| array.world.array().region(RegionNo(region)));
        assert!(
            states
                .into_iter()
                .all(|state| state == RegionState::Unwritten)
        );
        let data = array.world.superblock().layout.data_bytes;
        for slot in 0..members {
            let drive = array.drive(slot);
            let given = array.world.ssd(drive).discarded();
            assert_eq!(given, data, "level {level}, slot {slot}");
        }
        let before = accepted(&array);
        array.steps(10_000).verify();
        assert_eq!(accepted(&array), before, "level {level}");
        array.write(60).verify();
    }
}
