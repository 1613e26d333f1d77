//! Members of another past: older images of them, and devices that lost their content and kept a
//! copy of the superblock.

use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Aside, StartError};
use strake_format::{Epoch, Layout, MemberUuid, Past, SelectError, WriteHole};
use strake_sim::scenario::{Draft, Scenario};

fn drafts() -> Vec<Draft> {
    let mut drafts = vec![
        Scenario::new("5", 4),
        Scenario::new("6", 6),
        Scenario::new("1", 3),
        Scenario::new("10", 4),
        Scenario::new("5", 4).policy(WriteHole::Resync),
    ];
    drafts.push(Scenario::new("5", 4).no_caches());
    drafts
}

/// What the array says of the member in a slot.
fn member(array: &mut Scenario, slot: u8) -> MemberState {
    let status = array.status();
    let of_slot = |m: &&MemberStatus| m.slot == Some(Slot(slot));
    status.members.iter().find(of_slot).expect("a slot").state
}

/// The member in this slot is stale, is not taken back, and the array is made whole without what it
/// holds.
fn is_out_and_rebuilt_whole(array: &mut Scenario, slot: u8, drive: usize) {
    assert_eq!(array.state(), ArrayState::Degraded);
    assert_eq!(member(array, slot), MemberState::Stale);
    array.verify().write(20).rest().verify();
    assert_eq!(array.offer(drive), Err(CommandError::NotKept));
    array.replace(slot).made_whole().verify();
}

/// Issue 31, 2.1: it was believed, and what had been written since read as it was before.
#[test]
fn an_older_image_of_a_member_is_out_and_never_read() {
    for draft in drafts() {
        let mut array = draft.start();
        array.fill().rest();
        let drive = array.drive(1);
        array.stop();
        array.world.take_image(drive);
        array.start().write_all().rest().stop();
        array.world.put_image_back(drive);
        array.start();
        is_out_and_rebuilt_whole(&mut array, 1, drive);
        array.lose(0).verify();
    }
}

#[test]
fn an_image_taken_while_the_array_served_is_out_after_the_clean_stop() {
    for draft in drafts() {
        let mut array = draft.start();
        array.fill().rest();
        let drive = array.drive(1);
        array.world.take_image(drive);
        array.write_all().rest().stop();
        array.world.put_image_back(drive);
        array.start();
        is_out_and_rebuilt_whole(&mut array, 1, drive);
    }
}

/// Superblocks are the same as when the image was taken; the region map has gone on.
#[test]
fn an_image_of_the_life_that_a_power_cut_ended_is_out_by_its_region_map() {
    for draft in drafts() {
        let mut array = draft.start();
        array.fill().rest().sleep();
        let drive = array.drive(1);
        array.world.take_image(drive);
        array.write_all().rest().sleep();
        array.power_cut();
        array.world.put_image_back(drive);
        array.start().rest().stop().start();
        is_out_and_rebuilt_whole(&mut array, 1, drive);
    }
}

#[test]
fn an_image_from_before_the_last_start_is_out_after_a_power_cut() {
    for draft in drafts() {
        let mut array = draft.no_caches().start();
        array.fill().rest();
        let drive = array.drive(1);
        array.stop();
        array.world.take_image(drive);
        // Nothing that is written tells of it but the start: every region is given back before the
        // cut.
        array.start().write_all().rest().sleep();
        array.power_cut();
        array.world.put_image_back(drive);
        array.start();
        is_out_and_rebuilt_whole(&mut array, 1, drive);
    }
}

#[test]
fn an_older_image_of_a_member_that_was_away_is_not_taken_back_in_part() {
    for draft in drafts() {
        let mut array = draft.start();
        array.fill().rest();
        let drive = array.drive(1);
        array.stop();
        array.world.take_image(drive);
        // It is written with the member; what is written without it is elsewhere.
        array.start().write_all().rest().sleep();
        array.lose(1).write_at(0, 1).rest();
        array.world.put_image_back(drive);
        assert_eq!(array.offer(drive), Err(CommandError::NotKept));
        array.stop().bring_back(drive).start();
        is_out_and_rebuilt_whole(&mut array, 1, drive);
    }
}

/// What is given to an array that a member has left since the image was taken.
fn images_of_a_member_that_left() -> Vec<(Scenario, usize)> {
    let mut arrays = Vec::new();
    for draft in drafts() {
        for open in [false, true] {
            let mut array = draft.clone().start();
            array.fill().rest();
            if !open {
                array.sleep();
            }
            let drive = array.drive(1);
            array.world.take_image(drive);
            // Its region is Clean again when the member leaves.
            array.write_all().rest().sleep();
            array.lose(1).write_at(0, 1).rest();
            array.world.put_image_back(drive);
            arrays.push((array, drive));
        }
    }
    arrays
}

/// Superblocks of the image are what the member had when it left; only the region map has gone on.
/// It was kept, and read as it was before.
#[test]
fn an_image_given_to_the_array_that_its_member_left_is_not_taken_back_in_part() {
    for (mut array, drive) in images_of_a_member_that_left() {
        assert_eq!(array.offer(drive), Err(CommandError::NotKept));
        array.replace(1).made_whole().verify().lose(0).verify();
    }
}

#[test]
fn an_image_given_to_a_later_start_than_its_member_left_is_not_taken_back_in_part() {
    for (at, (mut array, drive)) in (0..).zip(images_of_a_member_that_left()) {
        match at % 4 {
            0 | 1 => array.stop(),
            _ => array.power_cut(),
        };
        if at % 3 > 0 {
            array.bring_back(drive);
        }
        array.start().rest();
        assert!(!array.serves(drive));
        array.bring_back(drive);
        assert_eq!(array.offer(drive), Err(CommandError::NotKept));
        array.stop().start();
        is_out_and_rebuilt_whole(&mut array, 1, drive);
    }
}

/// Nothing is written between the leave and the stop: no page of the region map either.
#[test]
fn an_image_given_to_an_array_that_wrote_nothing_since_is_not_taken_back_in_part() {
    for draft in drafts() {
        let mut array = draft.start();
        array.fill().rest();
        let drive = array.drive(1);
        array.world.take_image(drive);
        array.write_all().rest().sleep().lose(1).rest().stop();
        array.world.put_image_back(drive);
        array.bring_back(drive).start();
        is_out_and_rebuilt_whole(&mut array, 1, drive);
    }
}

/// Two are out, since different moments; the first comes back beside the image of the other.
#[test]
fn an_image_of_a_member_that_left_after_another_is_not_taken_back_in_part() {
    for draft in [Scenario::new("6", 6), Scenario::new("1", 4)] {
        let mut array = draft.start();
        array.fill().rest();
        let drives = [array.drive(1), array.drive(2)];
        array.world.take_image(drives[1]);
        array.write_all().rest().sleep();
        array.lose(1).write_at(0, 1).rest();
        array.lose(2).write_all().rest();
        array.world.put_image_back(drives[1]);
        assert_eq!(array.offer(drives[1]), Err(CommandError::NotKept));
        array.offer(drives[0]).expect("it is what it was");
        array.rest().verify().write(20).rest();
        array.replace(2).made_whole().verify().lose(0).verify();
    }
}

/// The member itself is still taken back by what it missed.
#[test]
fn a_member_that_was_merely_away_is_taken_back_in_part_as_ever() {
    for draft in drafts() {
        let mut array = draft.start();
        array.fill().rest().stop().start();
        let drive = array.drive(1);
        array.lose(1).write_at(0, 1).rest();
        array.offer(drive).expect("it is what it was");
        array.made_whole().verify();
        array.lose(1).write_at(0, 1).rest().stop();
        array.bring_back(drive).start().made_whole().verify();
        assert!(array.serves(drive));
        array.lose(0).verify();
    }
}

#[test]
fn older_images_of_more_members_than_may_be_lost_are_refused_by_name() {
    let mut array = Scenario::new("5", 4).start();
    array.fill().rest();
    let drives: Vec<usize> = (0..3).map(|slot| array.drive(slot)).collect();
    array.stop();
    for &drive in &drives {
        array.world.take_image(drive);
    }
    array.start().write_all().rest().stop();
    let newest: Vec<Vec<u8>> = drives
        .iter()
        .map(|&drive| array.world.ssd(drive).bytes().to_vec())
        .collect();
    for &drive in &drives {
        array.world.put_image_back(drive);
    }
    for force in [false, true] {
        let refusal = array.refused(force);
        let StartError::TooFewMembers { aside, .. } = &refusal else {
            panic!("{refusal}");
        };
        let old = |(_, aside): &(Slot, Aside)| matches!(aside, Aside::Past(Past::Older { .. }));
        assert_eq!(aside.len(), 3, "{refusal}");
        assert!(aside.iter().all(old), "{refusal}");
        assert!(refusal.to_string().contains("slot 2 is an older image"));
    }
    // What the members were last is there again: all is well.
    for (&drive, bytes) in drives.iter().zip(&newest) {
        array.world.ssd_mut(drive).rot(0, bytes);
        array.world.pasts_are_right(drive);
    }
    array.start().verify();
    assert_eq!(array.state(), ArrayState::Optimal);
}

/// The array went on from images of all members but one; that one knows writes that it never had.
#[test]
fn a_member_from_the_future_of_older_images_is_refused_by_that_name() {
    for starts in 1..3 {
        let mut array = Scenario::new("5", 4).start();
        array.fill().rest();
        let drives: Vec<usize> = (0..4).map(|slot| array.drive(slot)).collect();
        array.stop();
        for &drive in &drives[..3] {
            array.world.take_image(drive);
        }
        // The oracle goes on from here: what the three hold then is what counts.
        let kept: Vec<Vec<u8>> = drives[..3]
            .iter()
            .map(|&drive| array.world.ssd(drive).bytes().to_vec())
            .collect();
        let future = array.world.ssd(drives[3]).bytes().to_vec();
        for _ in 0..starts {
            array.start().rest().stop();
        }
        assert_ne!(future, array.world.ssd(drives[3]).bytes());
        for (&drive, bytes) in drives.iter().zip(&kept) {
            array.world.ssd_mut(drive).rot(0, bytes);
        }
        array.world.hide(drives[3]);
        array.start().write(20).rest();
        array.world.set_hidden(drives[3], false);
        let back = array.offer(drives[3]);
        assert_eq!(back, Err(CommandError::SplitBrain), "{starts} starts later");
        // What it knows is given up.
        array.replace(3).made_whole().verify();
    }
}

/// Two arrays of one past, stopped, and the drive of their second slot. Their next sessions draw
/// different numbers.
fn branches(draft: Draft, again: Draft) -> ([Scenario; 2], usize) {
    let (mut first, mut second) = (draft.start(), again.start());
    for array in [&mut first, &mut second] {
        array.fill().rest();
    }
    let drive = second.drive(1);
    first.stop();
    second.stop();
    let bytes = |array: &Scenario| array.world.ssd(drive).bytes().to_vec();
    assert!(bytes(&first) == bytes(&second), "one past");
    first.world.assemble(false).expect("it could start");
    ([first, second], drive)
}

/// All members are put back to what they were, and the array goes on a second time: the superblocks
/// of both times have the same numbers. A member of the first time was believed beside those of the
/// second.
#[test]
fn a_member_of_another_branch_of_one_past_is_not_believed() {
    for (draft, again) in drafts().into_iter().zip(drafts()) {
        let ([mut first, mut second], drive) = branches(draft, again);
        for (array, requests) in [(&mut first, 30), (&mut second, 20)] {
            array.start().write(requests).rest().stop();
        }
        let bytes = first.world.ssd(drive).bytes().to_vec();
        second.world.ssd_mut(drive).rot(0, &bytes);
        for force in [false, true] {
            let refused = second.refused(force);
            let split = StartError::Select(SelectError::SplitBrain {
                first: MemberUuid::NIL,
                first_epoch: Epoch(0),
                second: MemberUuid::NIL,
                second_epoch: Epoch(0),
            });
            let kind = std::mem::discriminant;
            assert_eq!(kind(&refused), kind(&split), "{refused}");
        }
        second.world.hide(drive);
        for starts in 0..20 {
            second.start().write(5).rest();
            assert_eq!(
                second.state(),
                ArrayState::Degraded,
                "{starts} starts later"
            );
            second.stop();
        }
        second.start();
        second.world.set_hidden(drive, false);
        assert_eq!(second.offer(drive), Err(CommandError::SplitBrain));
        // What it knows is given up.
        second.replace(1).made_whole().verify();
    }
}

/// The same of the device of a running array.
#[test]
fn a_copy_of_another_branch_in_place_of_a_member_that_serves_is_out() {
    for (draft, again) in drafts().into_iter().zip(drafts()) {
        let ([mut first, mut second], drive) = branches(draft, again);
        for array in [&mut first, &mut second] {
            array.start().sleep();
        }
        let bytes = first.world.ssd(drive).bytes().to_vec();
        second.world.ssd_mut(drive).rot(0, &bytes);
        second
            .command(Command::LookAtSuperblocks)
            .expect("it looks");
        assert_eq!(second.rest().state(), ArrayState::Degraded);
        second.verify().replace(1).made_whole().verify();
    }
}

/// Superblocks of a start, or of a stop, that was cut off differ; that is no other past.
#[test]
fn a_start_that_was_cut_off_anywhere_makes_no_member_an_older_image() {
    for draft in drafts() {
        let mut array = draft.start();
        array.fill().rest().stop();
        for steps in (0..120).step_by(3) {
            array.begin_to_start().steps(steps).power_cut();
            if steps % 2 == 0 {
                array.begin_to_start().steps(steps / 2).power_cut();
            }
            array.start();
            assert_eq!(array.state(), ArrayState::Optimal, "after {steps} events");
            array.write(2).rest().stop();
        }
        array.start().verify();
    }
}

#[test]
fn a_stop_that_was_cut_off_anywhere_makes_no_member_an_older_image() {
    for draft in drafts() {
        let mut array = draft.start();
        array.fill().rest();
        for steps in (0..160).step_by(4) {
            array.world.command(Command::Stop);
            array.steps(steps).power_cut().start();
            assert_eq!(array.state(), ArrayState::Optimal, "after {steps} events");
            array.write(2).rest();
        }
        array.verify();
    }
}

/// Issue 31, 2.2: cut short and made as long again it was kept, with nothing to be rebuilt.
#[test]
fn a_member_that_was_cut_short_and_grew_again_is_out() {
    for draft in drafts() {
        let mut array = draft.start();
        array.fill().rest();
        let drive = array.drive(1);
        array.stop();
        let [first, last] = Layout::superblock_offsets(array.world.ssd(drive).len());
        array.world.empty(drive, first + 4096, last + 4096);
        array.start();
        is_out_and_rebuilt_whole(&mut array, 1, drive);
    }
}

#[test]
fn a_member_that_was_cut_short_while_it_was_away_is_not_taken_back_in_part() {
    for draft in drafts() {
        let mut array = draft.start();
        array.fill().rest();
        let drive = array.drive(1);
        array.lose(1).write_at(0, 1).rest();
        let [first, last] = Layout::superblock_offsets(array.world.ssd(drive).len());
        array.world.empty(drive, first + 4096, last + 4096);
        assert_eq!(array.offer(drive), Err(CommandError::NotKept));
        array.stop().bring_back(drive).start();
        is_out_and_rebuilt_whole(&mut array, 1, drive);
    }
}

/// The beginning of every member was wiped: `--force` is the administrator's statement that the
/// data is whole.
#[test]
fn wiped_beginnings_of_all_members_are_refused_by_name_and_believed_by_force() {
    let mut array = Scenario::new("5", 4).start();
    array.fill().rest();
    let drives: Vec<usize> = (0..4).map(|slot| array.drive(slot)).collect();
    array.stop();
    for &drive in &drives {
        let [first, _] = Layout::superblock_offsets(array.world.ssd(drive).len());
        array.world.empty(drive, 0, first + 4096);
        array.world.pasts_are_right(drive);
    }
    let refusal = array.refused(false);
    let StartError::TooFewMembers { aside, .. } = &refusal else {
        panic!("{refusal}");
    };
    assert!(
        matches!(aside[..], [(_, Aside::Emptied { offset: 4096 }), ..]),
        "{refusal}"
    );
    array.start_by_force().verify();
    assert_eq!(array.state(), ArrayState::Optimal);
    array.stop().start().verify();
    assert_eq!(array.state(), ArrayState::Optimal);
}

/// Issue 31, 2.4: what is looked at when a device is added is looked at whenever one is put to use.
/// It served, and failed at the first write.
#[test]
fn a_member_whose_blocks_are_larger_now_is_out_before_anything_is_written_to_it() {
    for draft in [Scenario::new("5", 4), Scenario::new("1", 3)] {
        let mut array = draft.small_blocks().start();
        array.fill().rest();
        let drive = array.drive(1);
        array.stop();
        let (wider, before) = (4096, array.world.ssd(drive).sector);
        assert!(wider > before);
        array.world.ssd_mut(drive).sector = wider;
        array.start();
        assert_eq!(array.state(), ArrayState::Degraded);
        assert_eq!(member(&mut array, 1), MemberState::Stale);
        let has = wider as u32;
        let needs = before as u32;
        let refused = CommandError::BlockSize { has, needs };
        assert_eq!(array.offer(drive), Err(refused));
        array.write(20).rest().verify();
        // Behind what translates it is again what it was, and it holds what it held.
        array.world.ssd_mut(drive).sector = before;
        array.offer(drive).expect("it is kept");
        array.made_whole().verify().lose(0).verify();
    }
}

/// Whatever writes superblocks.
fn writers() -> Vec<fn(&mut Scenario)> {
    let rename = |array: &mut Scenario| {
        let name = "other".parse().expect("a name");
        assert_eq!(array.command(Command::Rename(name)), Ok(()));
    };
    let set = |array: &mut Scenario| {
        let setting = Command::Set(Setting::RebuildPriority(7));
        assert_eq!(array.command(setting), Ok(()));
    };
    let add = |array: &mut Scenario| {
        array.add();
    };
    let look = |array: &mut Scenario| {
        assert_eq!(array.command(Command::LookAtSuperblocks), Ok(()));
    };
    vec![rename, set, add, look]
}

/// A member that serves was cut short and made as long again, and the array wrote superblocks
/// before anything looked at it: it was in sync for ever.
#[test]
fn a_member_emptied_while_it_serves_is_out_before_its_superblocks_are_written() {
    for (at, draft) in drafts().into_iter().enumerate() {
        for (copies, write) in [[0, 0], [1, 1], [0, 1]].into_iter().zip(writers()) {
            let mut array = draft.clone().start();
            array.fill().rest();
            let drive = array.drive(1);
            array.world.empty_superblocks(drive, &copies);
            write(&mut array);
            array.rest();
            assert!(!array.serves(drive), "draft {at}, copies {copies:?}");
            array.verify().write(20).rest().verify();
        }
    }
}

#[test]
fn a_member_emptied_before_a_stop_or_a_kill_is_out_afterwards() {
    for draft in drafts() {
        for ends in 0..3 {
            let mut array = draft.clone().start();
            array.fill().rest().sleep();
            let drive = array.drive(1);
            array.world.empty_superblocks(drive, &[1]);
            match ends {
                0 => array.stop(),
                1 => array.kill(),
                _ => array.power_cut(),
            };
            array.start();
            assert!(!array.serves(drive));
            array.rest().verify().replace(1).made_whole().verify();
        }
    }
}

/// The spare was built from zeros: the array was optimal, and nothing was said.
#[test]
fn a_spare_is_not_built_from_a_member_that_was_emptied_just_before_another_is_failed() {
    for copies in [[0, 0], [1, 1], [0, 1]] {
        let mut array = Scenario::new("5", 3).spares(1).start();
        array.fill().rest();
        let emptied = array.drive(1);
        array.world.empty_superblocks(emptied, &copies);
        let refused = array.command(Command::Fail(Slot(0)));
        assert_eq!(refused, Err(CommandError::WouldFail));
        assert!(!array.serves(emptied));
        array.made_whole().verify().lose(2).verify();
    }
    let mut array = Scenario::new("6", 5).spares(1).start();
    array.fill().rest();
    let emptied = array.drive(1);
    array.world.empty_superblocks(emptied, &[1]);
    assert_eq!(array.command(Command::Fail(Slot(0))), Ok(()));
    array.rest().verify();
    assert!(!array.serves(emptied));
}

/// Another member has vanished: nothing is left to compute the emptied one from. What shows its
/// state stays, and no spare is built from it.
#[test]
fn what_shows_that_a_member_was_emptied_stays_where_the_level_needs_the_member() {
    for copy in [0, 1] {
        let mut array = Scenario::new("5", 3).spares(1).start();
        array.fill().rest();
        let emptied = array.drive(1);
        array.world.empty_superblocks(emptied, &[copy]);
        array.lose(0).sleep();
        assert!(array.serves(emptied));
        assert_eq!(array.state(), ArrayState::Degraded);
        assert_eq!(member(&mut array, 0), MemberState::Missing);
        array.stop();
        let refusal = array.refused(false);
        let StartError::TooFewMembers { aside, .. } = &refusal else {
            panic!("{refusal}");
        };
        let lacks =
            |(slot, aside): &(Slot, Aside)| slot.0 == 1 && matches!(aside, Aside::Emptied { .. });
        assert!(aside.iter().any(lacks), "{refusal}");
    }
}

/// One was put out, and that gave the other its superblock again.
#[test]
fn of_two_emptied_members_of_raid_5_neither_gets_its_superblock_again() {
    for copy in [0, 1] {
        let mut array = Scenario::new("5", 4).start();
        array.fill().rest();
        let drives = [array.drive(1), array.drive(2)];
        for drive in drives {
            array.world.empty_superblocks(drive, &[copy]);
        }
        for write in writers() {
            write(&mut array);
        }
        array.rest();
        assert!(drives.iter().all(|&drive| array.serves(drive)));
        array.stop();
        let refusal = array.refused(false);
        let StartError::TooFewMembers { aside, .. } = &refusal else {
            panic!("{refusal}");
        };
        let emptied = |(_, aside): &&(Slot, Aside)| matches!(aside, Aside::Emptied { .. });
        assert_eq!(aside.iter().filter(emptied).count(), 2, "{refusal}");
        for drive in drives {
            array.world.pasts_are_right(drive);
        }
        array.start_by_force().verify();
        assert_eq!(array.state(), ArrayState::Optimal);
        array.stop().start().verify();
    }
}

/// The stop wrote new superblocks on it.
#[test]
fn an_older_image_put_over_a_member_that_serves_is_out_before_its_superblocks_are_written() {
    for draft in drafts() {
        for ends in 0..5 {
            let mut array = draft.clone().start();
            array.fill().rest();
            let drive = array.drive(1);
            array.stop();
            array.world.take_image(drive);
            array.start().write_all().rest().sleep();
            array.world.age_superblocks(drive);
            match ends {
                0 => array.stop(),
                1 => array.kill(),
                2 => array.power_cut(),
                _ => {
                    writers()[ends - 3](&mut array);
                    array.rest();
                    assert!(!array.serves(drive));
                    array.verify().stop()
                }
            };
            array.start();
            is_out_and_rebuilt_whole(&mut array, 1, drive);
        }
    }
}

/// Nothing is written on an older image that the level needs: the next start knows it.
#[test]
fn older_images_over_more_members_than_may_be_lost_stay_what_they_are() {
    let mut array = Scenario::new("5", 4).start();
    array.fill().rest();
    let drives = [array.drive(1), array.drive(2)];
    array.stop();
    for drive in drives {
        array.world.take_image(drive);
    }
    array.start().write_all().rest();
    for drive in drives {
        array.world.age_superblocks(drive);
    }
    array.command(Command::LookAtSuperblocks).expect("it looks");
    assert!(drives.iter().all(|&drive| array.serves(drive)));
    array.stop();
    for force in [false, true] {
        let refusal = array.refused(force);
        let StartError::TooFewMembers { aside, .. } = &refusal else {
            panic!("{refusal}");
        };
        let old = |(_, aside): &(Slot, Aside)| matches!(aside, Aside::Past(Past::Older { .. }));
        assert!(aside.len() == 2 && aside.iter().all(old), "{refusal}");
    }
}

/// A read error, and a copy that has rotted, say nothing of the rest of a member.
#[test]
fn a_copy_that_cannot_be_read_or_has_rotted_costs_no_member() {
    for rots in [false, true] {
        let mut array = Scenario::new("5", 4).start();
        array.fill().rest();
        let drive = array.drive(1);
        let [first, _] = Layout::superblock_offsets(array.world.ssd(drive).len());
        match rots {
            true => array.world.ssd_mut(drive).rot(first + 512, &[0xa5; 512]),
            false => {
                let ssd = array.world.ssd_mut(drive);
                let block = first / ssd.block;
                ssd.faults.latent.insert(block);
            }
        }
        for write in writers() {
            write(&mut array);
        }
        array.rest();
        assert_eq!(array.state(), ArrayState::Optimal);
        array.stop().start().verify();
        assert_eq!(array.state(), ArrayState::Optimal);
    }
}
