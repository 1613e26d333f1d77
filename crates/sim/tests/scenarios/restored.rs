//! An array that lost its metadata is made again from what was known of it, over the data that is
//! still there.

use strake_engine::StartError;
use strake_engine::event::*;
use strake_engine::restore::RestoreError;
use strake_engine::units::*;
use strake_format::{ScrubMode, WriteHole};
use strake_sim::beyond::Demand;
use strake_sim::launch::Half;
use strake_sim::scenario::Scenario;
use strake_sim::workload::AskKind;

const LEVELS: [(&str, u8); 9] = [
    ("0", 3),
    ("1", 2),
    ("5", 4),
    ("6", 5),
    ("7.3", 7),
    ("10", 4),
    ("50", 6),
    ("60", 8),
    ("n+m", 6),
];

/// Loses as many members as the array survives, and reads everything.
fn parity_is_true(array: &mut Scenario) {
    let survives = match array.world.geometry().level.parity_count() {
        0 => array.world.geometry().m as u8,
        parities => parities,
    };
    for slot in 0..survives {
        array.lose(slot);
    }
    array.rest().verify();
}

#[test]
fn an_array_that_was_stopped_is_there_again_and_so_is_its_redundancy() {
    for (level, members) in LEVELS {
        let mut array = Scenario::new(level, members).start();
        array.fill().write_at(3, 2).write_at(9, 1).rest();
        let known = array.world.superblock().clone();
        array.stop();
        array.restore(&known).start().verify().rest();
        assert_eq!(array.state(), ArrayState::Optimal, "{level}");
        array.fill().write_at(5, 7).rest().verify();
        parity_is_true(&mut array);
    }
}

#[test]
fn what_was_acknowledged_before_a_power_cut_is_there_though_the_log_counts_no_more() {
    for (level, members) in LEVELS {
        for policy in [WriteHole::Closed, WriteHole::Resync] {
            for events in [120, 333, 512] {
                let mut array = Scenario::new(level, members).policy(policy).start();
                array.fill().rest();
                let known = array.world.superblock().clone();
                array.begin_to_overwrite().steps(events);
                array.power_cut();
                array.restore(&known).start().rest().verify();
                parity_is_true(&mut array);
            }
        }
    }
}

#[test]
fn what_the_old_array_left_in_its_log_is_never_replayed_over_the_new_one() {
    let mut array = Scenario::new("5", 4).start();
    array.fill().rest();
    let known = array.world.superblock().clone();
    array.begin_to_overwrite().steps(200);
    array.power_cut();
    // Records of the first are still there when the second is cut off.
    array.restore(&known).start();
    array.begin_to_overwrite().steps(60);
    array.power_cut();
    array.start().rest().verify();
    parity_is_true(&mut array);
}

#[test]
fn a_restored_array_lives_on_with_another_parity_and_another_restore() {
    let mut array = Scenario::new("5", 4).roomy_log().start();
    array.fill().rest();
    let id = array.begin_to_add_parity(1);
    array.answer(id).expect("RAID 6");
    array.rest();
    let known = array.world.superblock().clone();
    assert_eq!(known.fixed_parities, 1);
    array.stop();
    array.restore(&known).start().rest().verify();
    array.stop();
    let known = array.world.superblock().clone();
    array.restore(&known).start().rest().verify();
    array.lose(0).lose(4).rest().verify();
}

#[test]
fn without_all_its_members_nothing_is_made_again() {
    let mut array = Scenario::new("6", 5).start();
    array.fill().rest();
    let known = array.world.superblock().clone();
    array.lose(2).rest();
    array.stop();
    let refused = array.world.restore(&known);
    assert!(
        matches!(
            refused,
            Err(RestoreError::Members {
                slots: 5,
                devices: 4
            })
        ),
        "{refused:?}"
    );
    array.start().verify();
    assert_eq!(array.world.looks()[2].in_sync, None, "{:?}", Slot(2));
}

#[test]
fn a_member_of_the_old_array_that_turns_up_later_is_a_stranger() {
    let mut raid5 = Scenario::new("5", 4).start();
    raid5.fill().rest();
    let away = raid5.drive(1);
    raid5.lose(1).write_at(0, 1).rest().add().made_whole();
    raid5.write_at(0, 4).rest();
    let known = raid5.world.superblock().clone();
    raid5.stop();
    // Its table is of a later epoch than the first of the array that was made again.
    raid5.restore(&known).bring_back(away).start();
    assert!(!raid5.serves(away));
    raid5.rest().verify().lose(0).verify();
}

#[test]
fn what_was_zeroed_as_a_whole_stays_zero_and_what_was_lost_stays_lost() {
    for (level, members) in LEVELS {
        let mut array = Scenario::new(level, members).forgiving().start();
        array.fill().rest();
        let blocks = array.world.blocks();
        array.ask(AskKind::WriteZeroes, 0, blocks).rest().sleep();
        let unwritten = |array: &mut Scenario| array.status().unwritten_bytes;
        assert!(unwritten(&mut array) > 0, "{level}");
        array.write_at(0, 1).rest().sleep();
        let before = unwritten(&mut array);
        let known = array.world.superblock().clone();
        array.stop();
        array.restore(&known).start().verify().rest().verify();
        assert_eq!(unwritten(&mut array), before, "{level}");
        parity_is_true(&mut array);
    }
}

#[test]
fn blocks_that_were_lost_stay_lost() {
    let mut raid5 = Scenario::new("5", 4).forgiving().start();
    raid5.fill().rest();
    for slot in 0..2 {
        raid5.spoil_block(slot, 1, 0);
    }
    raid5.lose(2).rest().add();
    raid5.world.demand(Demand::NothingWrong);
    raid5.wait("it is rebuilt", |world| world.looks()[2].in_sync.is_some());
    raid5.verify();
    let lost = raid5.unreadable();
    assert!(!lost.is_empty());
    let known = raid5.world.superblock().clone();
    raid5.stop();
    raid5.restore(&known).start().rest();
    assert_eq!(raid5.unreadable(), lost);
    raid5.verify();
}

/// The power goes while superblocks are made again; then it is begun again by what was known
/// before.
#[test]
fn a_restore_that_is_cut_off_anywhere_is_refused_or_right_and_is_begun_again() {
    for (level, members) in [("0", 3), ("1", 2), ("5", 4), ("6", 5), ("50", 6)] {
        let (mut right, mut refused) = (0, 0);
        for steps in 0.. {
            let draft = Scenario::new(level, members).shards(1).small_blocks();
            let mut array = draft.start();
            array.fill().rest();
            let known = array.world.superblock().clone();
            match steps % 2 {
                0 => drop(array.stop()),
                _ => drop(array.begin_to_overwrite().steps(300).power_cut()),
            }
            let drives = array.world.in_slots();
            array.world.lose_superblocks(&drives);
            let half = Half {
                steps,
                seed: steps as u64,
            };
            let restore = |array: &mut Scenario, until| {
                let restored = array.world.restore_until(&known, &drives, until);
                restored.expect("all members are there")
            };
            let all = restore(&mut array, Some(half));
            match array.world.assemble(false) {
                Ok(_) => {
                    array.start().rest().verify().power_cut();
                    right += 1;
                }
                Err(why) => {
                    array.world.note(format!("refused: {why}"));
                    array.refused(false);
                    refused += 1;
                }
            }
            restore(&mut array, None);
            array.start().rest().verify();
            // No map says any more where writes were cut off.
            if undecided(&mut array) > 0 {
                assert!(steps % 2 > 0, "{level}, {steps} steps");
                array.command(Command::AcceptData).expect("it is undecided");
                array.rest();
            }
            assert_eq!(array.state(), ArrayState::Optimal, "{level}, {steps} steps");
            array.write(20).rest();
            parity_is_true(&mut array);
            if steps > all {
                break;
            }
        }
        assert!(right > 0 && refused > 0, "{level}: {right} {refused}");
    }
}

/// RAID 6 and others, whole and stopped, with a parity (or a copy) that is wrong in stripe 4; then
/// the superblocks are lost, and the array is made again.
fn restored_with_a_wrong_parity(level: &str, members: u8, policy: WriteHole) -> Scenario {
    let mut array = Scenario::new(level, members)
        .policy(policy)
        .forgiving()
        .start();
    array.fill().rest().sleep();
    let column = array.world.geometry().width - 1;
    array.rot(4, column);
    let known = array.world.superblock().clone();
    array.stop();
    array.restore(&known);
    array
}

fn undecided(array: &mut Scenario) -> usize {
    array.status().undecided.len()
}

/// What lies in stripe 4, by column.
fn stripe(array: &Scenario) -> Vec<Vec<u8>> {
    let world = &array.world;
    let geometry = world.geometry().clone();
    let row = geometry.row(StripeNo(4)).1;
    let offset = world.superblock().layout.data_offset + geometry.row_offset(row);
    let drives = world.in_slots();
    let strip = |column| {
        let slot = geometry.slot(StripeNo(4), column);
        let drive = &world.drives()[drives[slot.index()]];
        let bytes = drive.ssd().peek(offset, geometry.strip as usize);
        bytes.expect("readable").to_vec()
    };
    (0..geometry.width).map(strip).collect()
}

/// The resync of the restored array computed the parity from the data: a device with content of
/// another time became the truth, and nothing said so.
#[test]
fn the_resync_after_a_restore_leaves_strips_that_do_not_agree_as_they_are() {
    for (level, members) in [("1", 2), ("5", 4), ("6", 5), ("10", 4)] {
        for cut in [false, true] {
            let mut array = restored_with_a_wrong_parity(level, members, WriteHole::Resync);
            let before = stripe(&array);
            array.start().rest();
            assert_eq!(undecided(&mut array), 1, "{level}");
            if cut {
                // Not even where members disagree for another reason, too.
                array.begin_to_overwrite().steps(200);
                array.power_cut();
                array.start().rest();
                assert!(undecided(&mut array) >= 1, "{level}");
            } else {
                assert!(before == stripe(&array), "{level}");
                array.verify();
            }
            array.command(Command::AcceptData).expect("it is undecided");
            array.rest();
            assert_eq!(undecided(&mut array), 0, "{level}");
            array.verify();
            parity_is_true(&mut array);
        }
    }
}

/// With two parities the member is named that does not agree with the others.
#[test]
fn the_resync_after_a_restore_names_the_member_that_does_not_agree() {
    let mut array = restored_with_a_wrong_parity("6", 5, WriteHole::Closed);
    array.start().rest();
    let named: Vec<u64> = array
        .status()
        .members
        .iter()
        .map(|m| m.mismatches)
        .collect();
    let column = array.world.geometry().width - 1;
    let slot = array.world.geometry().slot(StripeNo(4), column);
    assert_eq!(named.iter().sum::<u64>(), 1, "{named:?}");
    assert_eq!(named[slot.index()], 1, "{named:?}");
}

#[test]
fn what_is_written_anew_after_a_restore_is_decided_by_a_scrub() {
    for stops in [false, true] {
        let mut array = restored_with_a_wrong_parity("5", 4, WriteHole::Closed);
        array.start().rest();
        if stops {
            array.stop().start().rest();
        }
        assert_eq!(undecided(&mut array), 1);
        array.write_all().rest();
        array.begin_to_scrub().rest();
        assert_eq!(undecided(&mut array), 0);
        parity_is_true(&mut array);
    }
}

/// What nobody has decided is not decided by a second loss of the superblocks.
#[test]
fn a_second_restore_does_not_decide() {
    let mut array = restored_with_a_wrong_parity("5", 4, WriteHole::Closed);
    array.start().rest();
    let known = array.world.superblock().clone();
    array.stop();
    let before = stripe(&array);
    array.restore(&known).start().rest();
    assert_eq!(undecided(&mut array), 1);
    assert!(before == stripe(&array));
}

/// A read of a mirror wrote the first copy over the others: the comparison found that all agreed,
/// and nothing was left that said otherwise.
#[test]
fn a_read_of_an_undecided_mirror_writes_nothing() {
    for (level, members) in [("1", 2), ("1", 3), ("10", 4)] {
        let mut array = restored_with_a_wrong_parity(level, members, WriteHole::Resync);
        let before = stripe(&array);
        array.start().begin_to_read().verify().rest();
        assert_eq!(undecided(&mut array), 1, "{level}");
        assert!(before == stripe(&array), "{level}");
        array.verify();
        let scrub = Command::StartScrub(ScrubMode::Repair);
        array.command(scrub).expect("it scrubs");
        array.rest();
        assert_eq!(undecided(&mut array), 1, "{level}");
        assert!(before == stripe(&array), "{level}");
        array.stop().start().verify().rest();
        assert_eq!(undecided(&mut array), 1, "{level}");
        assert!(before == stripe(&array), "{level}");
    }
}

/// Beside a sector of the first copy that cannot be read the copy that differs was read; and it
/// was written over the sector, which may hold what is right.
#[test]
fn a_bad_sector_of_an_undecided_mirror_stays_and_the_copy_that_differs_answers_it_alone() {
    for (level, members) in [("1", 2), ("10", 4)] {
        let mut array = restored_with_a_wrong_parity(level, members, WriteHole::Resync);
        let geometry = array.world.geometry().clone();
        let before = stripe(&array);
        let (slot, row) = (geometry.slot(StripeNo(4), 0), geometry.row(StripeNo(4)).1.0);
        array.start().rest();
        let drive = array.drive(slot.0);
        array.spoil_block(slot.0, row, 1);
        let blocks = geometry.stripe_bytes() / geometry.block;
        array.ask(AskKind::Read, 4 * blocks, blocks).verify().rest();
        let bad = std::mem::take(&mut array.world.ssd_mut(drive).faults.latent);
        assert_eq!(bad.len(), 1, "{level}: the sector was written");
        assert_eq!(undecided(&mut array), 1, "{level}");
        assert!(before == stripe(&array), "{level}");
        array.write_all().begin_to_scrub().rest();
        assert_eq!(undecided(&mut array), 0, "{level}");
        parity_is_true(&mut array);
    }
}

/// A small write changes what it writes, on every copy; what lies beside it still differs.
#[test]
fn a_small_write_to_an_undecided_mirror_leaves_what_differs_beside_it() {
    for (level, members) in [("1", 2), ("1", 3), ("10", 4)] {
        let mut array = restored_with_a_wrong_parity(level, members, WriteHole::Resync);
        let geometry = array.world.geometry().clone();
        let block = geometry.block as usize;
        let before = stripe(&array);
        array.start().begin_to_read();
        let blocks = geometry.stripe_bytes() / geometry.block;
        // All of the strip but its first block.
        for at in 1..blocks {
            array.begin_to_write_at(4 * blocks + at);
        }
        array.rest().verify();
        assert_eq!(undecided(&mut array), 1, "{level}");
        let after = stripe(&array);
        for (before, after) in before.iter().zip(&after) {
            assert!(before[..block] == after[..block], "{level}");
            assert!(after[block..] == stripe(&array)[0][block..], "{level}");
        }
        array.write_at(4 * blocks, 1).begin_to_scrub().rest();
        assert_eq!(undecided(&mut array), 0, "{level}");
        parity_is_true(&mut array);
    }
}

/// Where a member is away its strips are compared with nothing: the region was decided by that.
#[test]
fn what_was_compared_without_a_member_is_not_decided() {
    for (level, members) in [("1", 2), ("1", 3), ("5", 4), ("6", 5), ("10", 4)] {
        for events in [0, 10, 40, 120, 300] {
            let mut array = restored_with_a_wrong_parity(level, members, WriteHole::Resync);
            let geometry = array.world.geometry().clone();
            let slot = geometry.slot(StripeNo(4), geometry.width - 1);
            array.start().steps(events).lose(slot.0).rest();
            assert!(undecided(&mut array) >= 1, "{level}, {events} events");
            if geometry.mirrored() {
                array.verify().add().rest();
                assert!(undecided(&mut array) >= 1, "{level}, {events} events");
                array.command(Command::AcceptData).expect("it is undecided");
                array.rest();
                assert_eq!(undecided(&mut array), 0, "{level}, {events} events");
                parity_is_true(&mut array);
            }
        }
    }
}

/// Parity of an undecided region is not trusted, so nothing of a member that is lost is computed
/// there, and no rebuild comes to its end, be it onto the same drive. A start by force says that
/// what it held is what parity makes of the others.
#[test]
fn an_undecided_array_that_lost_a_member_is_decided_after_a_start_by_force() {
    for (level, members) in [("5", 4), ("6", 5)] {
        for column in [0, usize::from(members) - 1] {
            for returns in [false, true] {
                let mut array = restored_with_a_wrong_parity(level, members, WriteHole::Resync);
                let geometry = array.world.geometry().clone();
                let slot = geometry.slot(StripeNo(4), column);
                array.start().rest();
                let drive = array.drive(slot.0);
                array.world.demand(Demand::NothingWrong);
                array.lose(slot.0).begin_to_read().rest();
                match returns {
                    true => {
                        array.bring_back(drive).offer(drive).expect("it comes back");
                        array.rest();
                    }
                    false => _ = array.add().rest(),
                }
                assert_eq!(array.state(), ArrayState::Degraded, "{level}");
                let accepted = array.command(Command::AcceptData);
                assert_eq!(accepted, Err(CommandError::NotOptimal), "{level}");
                array.stop();
                assert_eq!(array.refused(false), StartError::DirtyDegraded, "{level}");
                array.start_by_force().rest();
                assert_eq!(array.state(), ArrayState::Optimal, "{level}");
                // What parity makes of the others may be wrong: written anew.
                array.write_all().rest();
                array.world.demand(Demand::All);
                assert_eq!(undecided(&mut array), 1, "{level}");
                array.command(Command::AcceptData).expect("it is undecided");
                array.rest();
                assert_eq!(undecided(&mut array), 0, "{level}");
                parity_is_true(&mut array);
            }
        }
    }
}

/// What it found in a region was counted again each time it went there.
#[test]
fn a_resync_that_goes_over_a_region_again_counts_what_it_finds_once() {
    let mut array = Scenario::new("5", 4).forgiving().start();
    array.fill().rest();
    array.rot(4, 3);
    let known = array.world.superblock().clone();
    array.stop();
    array.restore(&known).start().rest();
    let resync = |array: &mut Scenario| {
        let jobs = array.status().jobs;
        let job = jobs.into_iter().find(|job| job.kind == JobKind::Resync);
        let job = job.expect("it halts");
        (
            job.paused,
            job.inconsistent,
            job.done_bytes,
            job.total_bytes,
        )
    };
    let once = resync(&mut array);
    assert_eq!((once.0, once.1), (true, 1));
    for _ in 0..3 {
        // It compares again what does not agree.
        let check = Command::StartScrub(strake_format::ScrubMode::Check);
        assert_eq!(array.command(check), Ok(()));
        array.rest();
        assert_eq!(resync(&mut array), once);
    }
}

/// Reads that begin in this column's strip of stripe 4 fail, so many of them: of which drive, and
/// where.
fn fail_reads(array: &mut Scenario, column: usize, reads: u32, error: IoError) -> (usize, u64) {
    let geometry = array.world.geometry().clone();
    let slot = geometry.slot(StripeNo(4), column);
    let row = geometry.row(StripeNo(4)).1;
    let offset = array.world.superblock().layout.data_offset + geometry.row_offset(row);
    let drive = array.world.in_slots()[slot.index()];
    let faults = &mut array.world.ssd_mut(drive).faults;
    (faults.read_errors, faults.read_error) = (reads, Some(error));
    faults.read_errors_in = Some(offset..offset + geometry.strip);
    (drive, offset)
}

fn resync_pauses(array: &mut Scenario) {
    array.wait("the resync pauses", |world| {
        let jobs = world.array().status().jobs;
        jobs.iter()
            .any(|job| job.kind == JobKind::Resync && job.paused)
    });
}

/// The strip that does not agree was not there to be compared, and what was left agreed.
#[test]
fn what_could_not_be_read_is_not_decided_by_a_comparison_of_the_rest() {
    for (level, members) in [("1", 2), ("1", 3), ("5", 4), ("6", 5), ("10", 4)] {
        for error in [IoError::Media, IoError::Transport(110)] {
            let mut array = restored_with_a_wrong_parity(level, members, WriteHole::Resync);
            let geometry = array.world.geometry().clone();
            if geometry.mirrored() && error != IoError::Media {
                // It is out for that.
                continue;
            }
            let column = geometry.width - 1;
            array.start();
            fail_reads(&mut array, column, 1, error);
            array.rest();
            let found = undecided(&mut array);
            assert!(found >= 1, "{level}, {error:?}");
            if array.state() != ArrayState::Optimal {
                continue;
            }
            // Nor by a scrub.
            fail_reads(&mut array, column, 2, error);
            let check = Command::StartScrub(ScrubMode::Check);
            assert_eq!(array.command(check), Ok(()));
            array.rest();
            assert!(undecided(&mut array) >= 1, "{level}, {error:?}");
        }
    }
}

/// Parity that could neither be compared nor written: its region was trusted all the same.
#[test]
fn a_resync_is_not_over_while_a_parity_cannot_be_read() {
    for (level, members) in [("5", 4), ("6", 5), ("50", 6)] {
        for error in [
            IoError::TimedOut,
            IoError::Transport(110),
            IoError::Unsent(11),
            IoError::Other(5),
        ] {
            let mut array = Scenario::new(level, members)
                .policy(WriteHole::Resync)
                .forgiving()
                .start();
            array.fill().rest();
            array.begin_to_overwrite().steps(300).power_cut();
            let column = array.world.geometry().width - 1;
            array.start();
            let (drive, offset) = fail_reads(&mut array, column, 1, error);
            // It is untrue.
            array.world.ssd_mut(drive).rot(offset, &[0xa5; 64]);
            resync_pauses(&mut array);
            assert_eq!(array.state(), ArrayState::Optimal, "{level}, {error:?}");
            // It goes on when it is asked to.
            let check = Command::StartScrub(ScrubMode::Check);
            assert_eq!(array.command(check), Ok(()));
            array.rest().verify();
            assert!(array.status().jobs.is_empty(), "{level}, {error:?}");
            parity_is_true(&mut array);
        }
    }
}

/// The same where data is accepted.
#[test]
fn a_region_is_not_accepted_while_a_parity_cannot_be_written() {
    for (level, members) in [("5", 4), ("6", 5)] {
        for error in [IoError::TimedOut, IoError::Transport(110)] {
            let mut array = restored_with_a_wrong_parity(level, members, WriteHole::Resync);
            let column = array.world.geometry().width - 1;
            array.start().rest();
            assert_eq!(undecided(&mut array), 1, "{level}");
            fail_reads(&mut array, column, 1, error);
            array.command(Command::AcceptData).expect("it is undecided");
            array.rest();
            assert_eq!(undecided(&mut array), 1, "{level}, {error:?}");
            array.command(Command::AcceptData).expect("it is undecided");
            array.rest();
            assert_eq!(undecided(&mut array), 0, "{level}, {error:?}");
            array.verify();
            parity_is_true(&mut array);
        }
    }
}

/// It was told once that it stops; later passes began and ended without a word.
#[test]
fn each_pass_of_a_resync_that_stops_says_so() {
    for (level, members) in [("1", 3), ("10", 4)] {
        let mut array = restored_with_a_wrong_parity(level, members, WriteHole::Resync);
        let slot = array.world.geometry().slot(StripeNo(4), 1).0;
        array.start().rest();
        let told = |array: &Scenario, event: &str| {
            let is = |line: &str| line.contains(event) && line.contains("Resync");
            array.world.notes(is)
        };
        let both = |array: &Scenario| (told(array, "JobStarted"), told(array, "JobStopped"));
        assert_eq!(both(&array), (1, 1), "{level}");
        array.lose(slot).write(20).rest();
        assert_eq!(both(&array), (2, 2), "{level}");
        let check = Command::StartScrub(ScrubMode::Check);
        assert_eq!(array.command(check), Ok(()));
        array.rest();
        assert_eq!(both(&array), (3, 3), "{level}");
    }
}

/// Three reads of one bad sector put the first copy out, and with it what had been read: the sector
/// is written anew by nobody there.
#[test]
fn a_bad_sector_read_again_and_again_puts_no_copy_of_an_undecided_mirror_out() {
    for (level, members) in [("1", 2), ("1", 3), ("10", 4)] {
        let mut array = restored_with_a_wrong_parity(level, members, WriteHole::Resync);
        let geometry = array.world.geometry().clone();
        let (slot, row) = (geometry.slot(StripeNo(4), 0), geometry.row(StripeNo(4)).1.0);
        array.start().rest();
        let drive = array.drive(slot.0);
        array.spoil_block(slot.0, row, 1);
        let blocks = geometry.stripe_bytes() / geometry.block;
        for _ in 0..10 {
            array.ask(AskKind::Read, 4 * blocks, blocks);
        }
        assert!(array.serves(drive), "{level}");
        assert_eq!(array.state(), ArrayState::Optimal, "{level}");
        assert!(array.status().members.iter().all(|m| !m.wants_spare));
        array.verify();
    }
}

/// A run of which no copy could be read as a whole was gone through block by block, and what one
/// copy lacked was written from the other.
#[test]
fn a_run_that_no_copy_of_an_undecided_mirror_has_as_a_whole_is_read_and_not_written() {
    for (level, members) in [("1", 2), ("10", 4)] {
        let mut array = restored_with_a_wrong_parity(level, members, WriteHole::Resync);
        let geometry = array.world.geometry().clone();
        let row = geometry.row(StripeNo(4)).1.0;
        let before = stripe(&array);
        array.start().rest();
        let mut drives = Vec::new();
        for column in 0..2 {
            let slot = geometry.slot(StripeNo(4), column).0;
            drives.push(array.drive(slot));
            array.spoil_block(slot, row, 1 - column as u64);
        }
        let blocks = geometry.stripe_bytes() / geometry.block;
        array.ask(AskKind::Read, 4 * blocks, blocks).verify().rest();
        assert_eq!(array.world.notes(|line| line.contains("event Repaired")), 0);
        for drive in drives {
            let bad = std::mem::take(&mut array.world.ssd_mut(drive).faults.latent);
            assert_eq!(bad.len(), 1, "{level}: the sector was written");
        }
        assert_eq!(undecided(&mut array), 1, "{level}");
        assert!(before == stripe(&array), "{level}");
    }
}
