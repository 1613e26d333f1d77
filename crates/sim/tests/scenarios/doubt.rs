//! Members that are doubted: emptied or overwritten while they serve, and needed by the level.

use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Aside, StartError};
use strake_format::{Layout, SUPERBLOCK_BYTES, ScrubMode, WriteHole};
use strake_sim::scenario::Scenario;
use strake_sim::world::World;

/// Writes superblocks.
fn rename(array: &mut Scenario) {
    let name = "other".parse().expect("a name");
    assert_eq!(array.command(Command::Rename(name)), Ok(()));
    let name = "back".parse().expect("a name");
    assert_eq!(array.command(Command::Rename(name)), Ok(()));
}

fn look(array: &mut Scenario) {
    assert_eq!(array.command(Command::LookAtSuperblocks), Ok(()));
}

fn places(array: &Scenario, drive: usize) -> [u64; 2] {
    Layout::superblock_offsets(array.world.ssd(drive).len())
}

/// What lies at both places.
fn copies(array: &Scenario, drive: usize) -> [Vec<u8>; 2] {
    places(array, drive).map(|offset| {
        let offset = offset as usize;
        array.world.ssd(drive).bytes()[offset..offset + SUPERBLOCK_BYTES].to_vec()
    })
}

/// RAID 5 without the member in slot 0; the one in slot 1 lacks a copy.
fn needed(copy: usize) -> (Scenario, usize) {
    let mut array = Scenario::new("5", 3).start();
    array.fill().rest().lose(0).sleep();
    let drive = array.drive(1);
    array.world.empty_superblocks(drive, &[copy]);
    look(&mut array);
    assert!(array.serves(drive));
    (array, drive)
}

/// The copy is there again: somebody brought it back.
fn bring_back(array: &mut Scenario, drive: usize, copy: usize, bytes: &[u8]) {
    let offset = places(array, drive)[copy];
    array.world.ssd_mut(drive).rot(offset, bytes);
    array.world.pasts_are_right(drive);
    look(array);
}

fn job(array: &mut Scenario, kind: JobKind) -> Option<JobStatus> {
    let jobs = array.status().jobs;
    jobs.into_iter().find(|job| job.kind == kind)
}

/// One failed read, and the doubt was forgotten: the next superblock was written over the evidence.
#[test]
fn a_read_that_fails_does_not_end_a_doubt() {
    for copy in [0, 1] {
        for write in [rename, look] {
            let (mut array, drive) = needed(copy);
            let offset = places(&array, drive)[copy];
            let block = offset / array.world.ssd(drive).block;
            array.world.ssd_mut(drive).faults.latent.insert(block);
            write(&mut array);
            array.world.ssd_mut(drive).faults.latent.clear();
            write(&mut array);
            assert!(copies(&array, drive)[copy].iter().all(|byte| *byte == 0));
            array.stop();
            let refusal = array.refused(false);
            let StartError::TooFewMembers { aside, .. } = &refusal else {
                panic!("{refusal}");
            };
            let lacks = |(slot, aside): &(Slot, Aside)| {
                slot.0 == 1 && matches!(aside, Aside::Emptied { .. })
            };
            assert!(aside.iter().any(lacks), "{refusal}");
        }
    }
}

/// An older image of which one copy is gone, too: the other was written anew, and the next start
/// took the member for one that lost a copy.
#[test]
fn an_older_image_that_lacks_a_copy_is_not_written() {
    for copy in [0, 1] {
        let mut array = Scenario::new("5", 3).start();
        array.fill().rest();
        let drive = array.drive(1);
        array.stop();
        array.world.take_image(drive);
        array.start().write_all().rest().lose(0).sleep();
        array.world.age_superblocks(drive);
        let old = copies(&array, drive);
        array.world.empty_superblocks(drive, &[copy]);
        rename(&mut array);
        assert!(array.serves(drive));
        assert!(
            copies(&array, drive)[1 - copy] == old[1 - copy],
            "it is written"
        );
    }
}

/// Why the member is doubted, as `show` has it.
fn doubted(array: &mut Scenario, slot: u8) -> Option<OutCause> {
    let members = array.status().members;
    let mut of = members.iter().filter(|m| m.slot == Some(Slot(slot)));
    of.next().expect("the slot").doubted
}

/// Nothing but an event showed a doubt, and nothing showed its end.
#[test]
fn a_doubt_and_its_cause_are_shown_until_the_copies_are_back() {
    for copy in [0, 1] {
        let mut array = Scenario::new("5", 3).start();
        array.fill().rest().lose(0).sleep();
        let drive = array.drive(1);
        let was = copies(&array, drive);
        assert_eq!(doubted(&mut array, 1), None);
        for times in 1..3 {
            array.world.empty_superblocks(drive, &[copy]);
            (0..3).for_each(|_| look(&mut array));
            assert_eq!(doubted(&mut array, 1), Some(OutCause::Emptied));
            assert_eq!(doubted(&mut array, 2), None);
            assert_eq!(told(&array, "MemberDoubted"), times);
            assert_eq!(told(&array, "MemberNoLongerDoubted"), times - 1);
            bring_back(&mut array, drive, copy, &was[copy]);
            assert_eq!(doubted(&mut array, 1), None);
            look(&mut array);
            assert_eq!(told(&array, "MemberNoLongerDoubted"), times);
        }
        array.verify();
    }
}

/// An image is doubted as one, also where superblocks are written beside it.
#[test]
fn a_doubted_image_is_shown_as_an_older_one() {
    let mut array = Scenario::new("5", 3).start();
    array.fill().rest();
    let drive = array.drive(1);
    array.stop();
    array.world.take_image(drive);
    array.start().rest().lose(0).sleep();
    let was = copies(&array, drive);
    array.world.age_superblocks(drive);
    look(&mut array);
    rename(&mut array);
    assert_eq!(doubted(&mut array, 1), Some(OutCause::OlderImage));
    assert_eq!(told(&array, "MemberNoLongerDoubted"), 0);
    for (offset, bytes) in places(&array, drive).into_iter().zip(&was) {
        array.world.ssd_mut(drive).rot(offset, bytes);
    }
    array.world.pasts_are_right(drive);
    look(&mut array);
    assert_eq!(doubted(&mut array, 1), None);
    assert_eq!(told(&array, "MemberNoLongerDoubted"), 1);
    array.verify();
}

/// Of two doubted members one is right again, so the level survives the loss of the other.
#[test]
fn a_doubted_member_that_goes_out_is_not_said_to_be_right() {
    let mut array = Scenario::new("5", 4).start();
    array.fill().rest();
    let drives = [1, 2].map(|slot| array.drive(slot));
    let was = copies(&array, drives[0]);
    let empty = |&drive: &usize| array.world.empty_superblocks(drive, &[0]);
    drives.iter().for_each(empty);
    look(&mut array);
    for slot in [1, 2] {
        assert_eq!(doubted(&mut array, slot), Some(OutCause::Emptied));
    }
    bring_back(&mut array, drives[0], 0, &was[0]);
    assert!(array.serves(drives[0]) && !array.serves(drives[1]));
    for slot in [1, 2] {
        assert_eq!(doubted(&mut array, slot), None);
    }
    assert_eq!(told(&array, "MemberNoLongerDoubted { slot: Slot(1)"), 1);
    assert_eq!(told(&array, "MemberNoLongerDoubted"), 1);
}

/// Nothing but the member's last copy was written, each minute.
#[test]
fn a_look_writes_nothing() {
    for copy in [0, 1] {
        let (mut array, drive) = needed(copy);
        let before = copies(&array, drive);
        let other = array.drive(2);
        let of_other = copies(&array, other);
        for _ in 0..3 {
            look(&mut array);
        }
        assert!(copies(&array, drive) == before, "the doubted member");
        assert!(copies(&array, other) == of_other, "another member");
    }
}

/// An error on the way to a place put the member out, and with it the array.
#[test]
fn a_place_that_cannot_be_reached_costs_no_last_redundancy() {
    for error in [
        IoError::TimedOut,
        IoError::Transport(110),
        IoError::Unsent(11),
        IoError::NoSpace,
    ] {
        let mut array = Scenario::new("5", 3).start();
        array.fill().rest().lose(0).sleep();
        let drive = array.drive(1);
        let faults = &mut array.world.ssd_mut(drive).faults;
        (faults.read_errors, faults.read_error) = (2, Some(error));
        look(&mut array);
        assert_eq!(array.state(), ArrayState::Degraded, "{error:?}");
        array.world.ssd_mut(drive).faults.read_errors = 0;
        rename(&mut array);
        array.verify();
    }
}

/// The command was never answered: the member had gone when its turn came.
#[test]
fn to_fail_a_member_that_has_just_gone_is_answered() {
    for (level, members) in [("6", 5), ("1", 3)] {
        for steps in 0..40 {
            let mut array = Scenario::new(level, members).start();
            array.fill().rest().sleep();
            let drive = array.drive(0);
            let device = array.world.drives()[drive].device().expect("it serves");
            let id = array.world.command(Command::FailDevice(device));
            array.steps(steps);
            if array.serves(drive) {
                array.lose(0);
            }
            assert_eq!(array.answer(id), Ok(()), "{level} after {steps} events");
            array.sleep();
            assert!(!array.serves(drive));
        }
    }
}

/// Parity is not trusted yet: no member is spared, and the resync computed parity from what the
/// emptied one holds.
#[test]
fn a_resync_waits_while_a_member_is_doubted() {
    for (level, members, copy) in [("5", 4, 0), ("6", 6, 1), ("6", 6, 0)] {
        let draft = Scenario::new(level, members).policy(WriteHole::Resync);
        let mut array = draft.start();
        array.fill().rest();
        array.begin_to_overwrite().steps(300).power_cut().start();
        let drive = array.drive(1);
        let was = copies(&array, drive);
        array.world.empty_superblocks(drive, &[copy]);
        look(&mut array);
        array.sleep();
        assert!(array.serves(drive), "{level}: it is needed");
        let waits = job(&mut array, JobKind::Resync).expect("it is not over");
        assert!(waits.paused, "{level}");
        // Nothing is computed by it, whatever is written beside it.
        rename(&mut array);
        array.sleep();
        let still = job(&mut array, JobKind::Resync).expect("it is not over");
        assert_eq!(still.done_bytes, waits.done_bytes, "{level}");
        bring_back(&mut array, drive, copy, &was[copy]);
        array.rest();
        assert!(job(&mut array, JobKind::Resync).is_none());
        array.verify().lose(0).verify();
    }
}

/// More members lack a copy than the level survives. What their copies were.
fn doubt_three(array: &mut Scenario) -> Vec<(usize, Vec<u8>)> {
    let drives: Vec<usize> = (0..3).map(|slot| array.drive(slot)).collect();
    let first = |&drive: &usize| (drive, copies(array, drive)[0].clone());
    let were = drives.iter().map(first).collect();
    for &drive in &drives {
        array.world.empty_superblocks(drive, &[0]);
    }
    look(array);
    assert!(drives.iter().all(|&drive| array.serves(drive)));
    were
}

fn bring_back_all(array: &mut Scenario, copies: &[(usize, Vec<u8>)]) {
    for (drive, bytes) in copies {
        let offset = places(array, *drive)[0];
        array.world.ssd_mut(*drive).rot(offset, bytes);
        array.world.pasts_are_right(*drive);
    }
    look(array);
}

/// The data of a member that is doubted is not what users wrote.
#[test]
fn nothing_is_accepted_while_a_member_is_doubted() {
    let mut array = crate::undecided::undecided(7);
    let copies = doubt_three(&mut array);
    let refused = array.command(Command::AcceptData);
    assert_eq!(refused, Err(CommandError::NotOptimal));
    bring_back_all(&mut array, &copies);
    assert_eq!(array.command(Command::AcceptData), Ok(()));
    let copies = doubt_three(&mut array);
    array.sleep();
    let waits = job(&mut array, JobKind::Accept).expect("it waits");
    assert!(waits.paused);
    rename(&mut array);
    array.sleep();
    let still = job(&mut array, JobKind::Accept).expect("it waits");
    assert_eq!(still.done_bytes, waits.done_bytes);
    bring_back_all(&mut array, &copies);
    array.rest();
    let refused = array.command(Command::AcceptData);
    assert_eq!(refused, Err(CommandError::NothingUndecided));
}

/// One event after the other while members are doubted: no region is decided by it.
fn decides_nothing(array: &mut Scenario, events: u64) {
    let undecided = |array: &mut Scenario| array.status().undecided.len();
    let mut before = undecided(array);
    for _ in 0..events {
        let doubted = told(array, "MemberDoubted") > 0;
        let now = undecided(array);
        assert!(!doubted || now == before, "decided while doubted");
        before = now;
        array.steps(1);
    }
}

/// So often the array has told of this.
fn told(array: &Scenario, event: &str) -> usize {
    array.world.notes(|line| line.contains(event))
}

/// The first copies of three members are gone, and the array is about to look.
fn begin_to_doubt(array: &mut Scenario) -> Vec<(usize, Vec<u8>)> {
    let drives: Vec<usize> = (0..3).map(|slot| array.drive(slot)).collect();
    // What is about to be written at a place would be there after all.
    array.wait("the array writes nothing", World::array_is_idle);
    let first = |&drive: &usize| (drive, copies(array, drive)[0].clone());
    let were = drives.iter().map(first).collect();
    for &drive in &drives {
        array.world.empty_superblocks(drive, &[0]);
    }
    array.world.command(Command::LookAtSuperblocks);
    were
}

/// The last step of a region was at work when the doubt arose: the region was decided by that.
#[test]
fn no_comparison_that_was_at_work_when_a_member_became_doubted_decides() {
    for steps in 0..60 {
        let mut array = Scenario::new("6", 5).start();
        array.fill().rest();
        let known = array.world.superblock().clone();
        array.stop();
        array.restore(&known).start().steps(10 * steps);
        let copies = begin_to_doubt(&mut array);
        decides_nothing(&mut array, 400);
        bring_back_all(&mut array, &copies);
        array.rest();
        assert!(array.status().undecided.is_empty(), "{steps}");
    }
}

/// It passed over the regions that the resync had not come to, and had found nothing.
#[test]
fn a_scrub_waits_with_the_resync_while_a_member_is_doubted() {
    let mut array = Scenario::new("5", 4).policy(WriteHole::Resync).start();
    array.fill().rest();
    array.begin_to_overwrite().steps(300).power_cut().start();
    let drive = array.drive(1);
    let was = copies(&array, drive);
    array.world.empty_superblocks(drive, &[0]);
    look(&mut array);
    array.sleep();
    assert!(job(&mut array, JobKind::Resync).expect("it waits").paused);
    let check = Command::StartScrub(ScrubMode::Check);
    assert_eq!(array.command(check), Ok(()));
    array.sleep();
    assert!(job(&mut array, JobKind::Scrub).expect("it waits").paused);
    assert!(array.status().superblock.last_scrub.is_none());
    bring_back(&mut array, drive, 0, &was[0]);
    array.rest().verify();
    assert!(array.status().jobs.is_empty());
    assert!(array.status().superblock.last_scrub.is_some());
}

/// What it writes anew is computed from the members.
#[test]
fn a_scrub_that_repairs_waits_while_a_member_is_doubted() {
    let mut array = Scenario::new("6", 5).forgiving().start();
    array.fill().rest();
    array.rot(4, 1);
    let slot = array.world.geometry().slot(StripeNo(4), 1).0;
    let wrong = array.drive(slot);
    let data = array.world.superblock().layout.data_offset as usize;
    let data = data..places(&array, wrong)[1] as usize;
    let before = array.world.ssd(wrong).bytes()[data.clone()].to_vec();
    let copies = doubt_three(&mut array);
    let repair = Command::StartScrub(ScrubMode::Repair);
    assert_eq!(array.command(repair), Ok(()));
    array.sleep();
    assert!(job(&mut array, JobKind::Scrub).expect("it waits").paused);
    assert!(array.world.ssd(wrong).bytes()[data.clone()] == before);
    bring_back_all(&mut array, &copies);
    array.rest();
    assert!(array.world.ssd(wrong).bytes()[data] != before);
}

/// The drives that the array had are brought back after users wrote beside their images: they lack
/// what was written meanwhile, and the superblocks on them were the newest that they ever had.
#[test]
fn drives_that_missed_writes_beside_a_doubt_are_not_believed() {
    for (level, members, lost) in [("5", 3, 1), ("5", 4, 0), ("6", 5, 1), ("6", 5, 2)] {
        for sleeps in [false, true] {
            let mut array = Scenario::new(level, members).start();
            array.fill().rest();
            let parities = array.world.geometry().m as u8;
            let doubted: Vec<usize> = (lost..=parities).map(|slot| array.drive(slot)).collect();
            array.stop();
            doubted
                .iter()
                .for_each(|&drive| array.world.take_image(drive));
            array.start().write_all().rest();
            (0..lost).for_each(|slot| {
                array.lose(slot);
            });
            array.sleep();
            let held = |&drive: &usize| (drive, array.world.ssd(drive).bytes().to_vec());
            let held: Vec<(usize, Vec<u8>)> = doubted.iter().map(held).collect();
            doubted
                .iter()
                .for_each(|&drive| array.world.age_superblocks(drive));
            look(&mut array);
            assert!(doubted.iter().all(|&drive| array.serves(drive)));
            array.write_all();
            if sleeps {
                array.sleep();
            }
            array.stop();
            for (drive, bytes) in held {
                array.world.ssd_mut(drive).rot(0, &bytes);
                array.world.pasts_are_right(drive);
            }
            let refusal = array.refused(false);
            let StartError::TooFewMembers { aside, .. } = &refusal else {
                panic!("{level} {sleeps}: {refusal}");
            };
            let older = |(_, aside): &(Slot, Aside)| matches!(aside, Aside::OlderMap { .. });
            assert!(aside.iter().any(older), "{level} {sleeps}: {refusal}");
        }
    }
}

/// What an accept and a scrub do while members become doubted, at each of their moments: parity
/// that they compute from what lies there, and what they find equal, decide no region.
#[test]
fn no_accept_and_no_scrub_at_work_when_a_member_became_doubted_decides() {
    for repairs in [ScrubMode::Check, ScrubMode::Repair] {
        for (job, command) in [
            (JobKind::Accept, Command::AcceptData),
            (JobKind::Scrub, Command::StartScrub(repairs)),
        ] {
            let mut at_work = 0;
            for steps in 0..40 {
                let mut array = crate::undecided::undecided(7);
                array.sleep();
                array.world.command(command.clone());
                array.steps(2 * steps);
                at_work += u64::from(self::job(&mut array, job).is_some());
                let copies = begin_to_doubt(&mut array);
                decides_nothing(&mut array, 400);
                bring_back_all(&mut array, &copies);
                array.rest();
                if job == JobKind::Accept {
                    assert!(array.status().undecided.is_empty(), "{steps}");
                }
            }
            assert!(at_work > 10, "{job:?}: {at_work}");
        }
    }
}
