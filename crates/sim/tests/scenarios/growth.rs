//! Changes of shape that are cut off at bad moments, and devices that grow while the array serves.

use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::{CopyStatus, region_map};
use strake_sim::scenario::Scenario;
use strake_sim::world::Drive;

use crate::reshape::{LONGER, MORE, paged, raises};

/// Sizes of devices as the runtime gives them.
fn sizes(array: &mut Scenario) -> Vec<(DeviceId, u64)> {
    let members = array.status().members;
    let devices: Vec<DeviceId> = members.iter().filter_map(|m| m.device).collect();
    let size = |device: DeviceId| {
        let drive = array.world.drive_of(device);
        (device, array.world.ssd(drive).len())
    };
    devices.into_iter().map(size).collect()
}

/// The command to grow.
fn grow(array: &mut Scenario) -> Command {
    Command::Grow(sizes(array))
}

/// Is every superblock where a start looks for it?
fn all_copies(array: &Scenario) -> bool {
    let used = array.world.drives().iter().filter(|drive| drive.is_used());
    let mut carried = used.map(|drive| drive.carried());
    carried.all(|carried| {
        carried.is_some_and(|(_, [first, last])| first.is_valid() && last.is_valid())
    })
}

#[test]
fn superblocks_follow_the_ends_of_devices_that_grow_whether_the_array_does_or_not() {
    for events in 0..60 {
        let mut array = Scenario::new("5", 4).seed(events).start();
        array.write(20).rest();
        array.enlarge(MORE);
        assert!(!all_copies(&array));
        let size = array.world.geometry().size();
        let told = Command::Sizes(sizes(&mut array));
        match events % 2 {
            0 => assert_eq!(array.command(told), Ok(())),
            _ => drop(array.world.command(told)),
        }
        if events % 2 == 1 {
            array.steps(events).power_cut();
            array.start();
        }
        array.rest();
        assert!(all_copies(&array), "after {events} events");
        assert_eq!(array.world.geometry().size(), size);
        array.verify();
    }
}

/// The drives, except one, with a superblock of a later epoch.
fn later(array: &Scenario, epoch: Epoch, but: Option<usize>) -> Vec<usize> {
    let is_later = |&drive: &usize| {
        let own = array.world.table_of(drive);
        own.is_some_and(|sb| sb.epoch > epoch) && Some(drive) != but
    };
    (0..array.world.drives().len()).filter(is_later).collect()
}

#[test]
fn a_power_cut_while_superblocks_move_to_the_ends_of_devices_that_grew_leaves_an_array() {
    for seed in 0..40 {
        for events in (0..260).step_by(13) {
            let mut array = paged("5", 4).small_blocks().seed(seed).start();
            array.write(20).rest();
            array.enlarge(MORE);
            let grow = grow(&mut array);
            array.world.command(grow);
            array.steps(events).power_cut();
            array.start().rest().verify();
        }
    }
}

#[test]
fn superblocks_leave_the_place_that_becomes_data_before_it_does() {
    for events in (0..200).step_by(3) {
        let mut array = Scenario::new("5", 4).start();
        array.fill().rest().sleep();
        array.enlarge(LONGER);
        let grow = grow(&mut array);
        let id = array.world.command(grow);
        array.steps(events).lose(0);
        let over = array.answer(id);
        let told = matches!(over, Ok(_) | Err(CommandError::NotOptimal));
        assert!(told, "after {events} events: {over:?}");
        array.rest().verify();
    }
}

/// The power goes as soon as there is a later superblock: which drive has it, if one alone does.
fn cut_at_first(array: &mut Scenario, before: Epoch, but: Option<usize>) -> Option<usize> {
    while later(array, before, but).is_empty() {
        array.steps(1);
    }
    array.power_cut();
    match later(array, before, but)[..] {
        [drive] => Some(drive),
        _ => None,
    }
}

/// The first is of a parity that was being added, and its member was away while the others went on.
#[test]
fn two_tables_that_never_took_effect_may_be_of_two_shapes() {
    let mut tried = 0;
    for seed in 0..60 {
        let mut array = raises("5", 4).seed(seed).no_caches().start();
        array.write(20).rest();
        let before = array.status().superblock.epoch;
        array.begin_to_add_parity(1);
        let Some(away) = cut_at_first(&mut array, before, None) else {
            continue;
        };
        array.world.hide(away);
        array.begin_to_start();
        if cut_at_first(&mut array, before, Some(away)).is_none() {
            continue;
        }
        tried += 1;
        array.world.set_hidden(away, false);
        array.start().rest().verify();
    }
    assert!(tried > 0);
}

/// Only one member has the superblock of the new shape, which has more pages of the map, and cannot
/// read its own.
#[test]
fn a_page_that_only_one_member_looked_for_is_not_missed() {
    let mut tried = 0;
    for seed in 0..20 {
        let mut array = paged("5", 4).seed(seed).no_caches().start();
        array.fill().rest();
        array.stop();
        array.enlarge(MORE).start();
        array.rest();
        let pages = array.world.superblock().layout.map_pages;
        let before = array.status().superblock.epoch;
        array.world.command(Command::Grow(Vec::new()));
        let Some(drive) = cut_at_first(&mut array, before, None) else {
            continue;
        };
        let own = array.world.table_of(drive);
        let layout = own.expect("it has one").layout;
        assert!(layout.map_pages > pages);
        tried += 1;
        let at = region_map::place(&layout, layout.map_pages - 1, 0) / array.world.geometry().block;
        array.world.ssd_mut(drive).faults.latent.insert(at);
        array.start().rest().verify();
    }
    assert!(tried > 0);
}

/// The start after a growth that was cut off finds one superblock of the new shape, is cut off
/// itself before the others have theirs, and the member that had it is lost.
#[test]
fn a_start_after_a_growth_that_is_cut_off_leaves_what_the_old_shape_has() {
    let mut tried = 0;
    for seed in 0..60 {
        let mut array = paged("5", 4).seed(seed).no_caches().start();
        array.fill().rest();
        array.stop();
        array.enlarge(MORE).start();
        array.rest();
        let before = array.status().superblock.epoch;
        array.world.command(Command::Grow(Vec::new()));
        let Some(drive) = cut_at_first(&mut array, before, None) else {
            continue;
        };
        array.begin_to_start().steps(seed);
        if array.world.serves() {
            continue;
        }
        array.power_cut();
        array.world.hide(drive);
        array.start().rest().verify();
        tried += 1;
        array.world.set_hidden(drive, false);
        array.power_cut();
        array.start().rest().verify();
    }
    assert!(tried > 10, "{tried}");
}

/// Growth after growth while the array serves, each with a loss or a crash somewhere.
#[test]
fn growth_after_growth_with_losses_and_crashes_keeps_everything() {
    const LEVELS: [(&str, u8); 6] = [("5", 4), ("6", 6), ("1", 2), ("10", 4), ("50", 6), ("6", 5)];
    for seed in 0..160u64 {
        let (name, members) = LEVELS[seed as usize % LEVELS.len()];
        let draft = match seed % 4 {
            0 => paged(name, members),
            1 => Scenario::new(name, members).roomy_log().spares(1),
            2 => Scenario::new(name, members).roomy_log(),
            _ => paged(name, members).small_blocks(),
        };
        let mut array = draft.seed(seed).start();
        array.fill().rest();
        if seed % 3 == 0 {
            array.sleep();
        }
        for round in 0..3 {
            let more = [LONGER, MORE, 4096 * 24][((seed + round) % 3) as usize];
            if !array.world.enlarge(more) {
                break;
            }
            grow_badly(&mut array, seed, round);
            array.begin_to_scrub().rest().verify();
        }
        array.lose(0).verify().write(20).rest().verify();
        array.stop();
        array.start().verify();
    }
}

/// One growth, and what goes wrong in it; afterwards the array is whole.
fn grow_badly(array: &mut Scenario, seed: u64, round: u64) {
    array.begin_to_write(10, seed % 7 * 3);
    let grow = grow(array);
    let id = array.world.command(grow);
    array.steps((seed * 13 + round * 37) % 110);
    let slot = (seed % 2) as u8;
    let lost = array.world.looks()[usize::from(slot)].in_sync;
    match seed % 5 {
        0 => drop(array.power_cut().start()),
        1 => drop(array.kill().start()),
        2 | 3 if lost.is_some() => {
            array.lose(slot).write(10);
            match seed % 2 {
                0 => drop(array.steps(seed % 40).power_cut().start()),
                _ => drop(array.answer(id)),
            }
        }
        _ => drop(array.answer(id)),
    }
    array.rest().verify();
    if array.state() != ArrayState::Optimal {
        if let Some(id) = lost.and_then(|drive| array.world.offer(drive)) {
            array.answer(id).ok();
        }
        array.rest().verify();
    }
    if array.state() != ArrayState::Optimal {
        array.add().made_whole();
    }
}

#[test]
fn a_member_lost_anywhere_while_a_parity_is_added_comes_back() {
    for seed in 0..240u64 {
        let (name, members) = [("5", 4), ("6", 6), ("5", 3)][seed as usize % 3];
        let mut array = raises(name, members).seed(seed).start();
        array.fill().rest();
        match seed % 2 {
            0 => drop(array.sleep()),
            _ => drop(array.begin_to_write(20, seed % 50)),
        }
        let slot = (seed % 3) as u8;
        let lost = array.drive(slot);
        let id = array.begin_to_add_parity(1);
        array.steps(seed * 7 % 300).lose(slot);
        match seed % 4 {
            0 => drop(array.answer(id)),
            1 => drop(array.steps(seed % 60).power_cut().start()),
            2 => drop(array.write(10)),
            _ => drop(array.write(10).steps(seed % 90).kill().start()),
        }
        array.rest().verify();
        if !array.serves(lost) && array.world.offer(lost).is_none() {
            array.add();
        }
        array.rest().verify();
        if array.state() != ArrayState::Optimal {
            array.add().made_whole();
        }
        array.begin_to_scrub().rest().verify();
        for slot in 0..array.world.geometry().m as u8 {
            array.lose(slot + 1);
        }
        array.write(20).rest().verify();
    }
}

/// Which drives have a newer table at one place (0: the first, 1: the last) than at the other.
fn newer_at(array: &Scenario, place: usize) -> Vec<bool> {
    let newer = |drive: &Drive| match drive.carried() {
        Some((_, [CopyStatus::Valid(first), CopyStatus::Valid(last)])) => {
            let both = [first, last];
            both[place] > both[1 - place]
        }
        _ => false,
    };
    array.world.drives().iter().map(newer).collect()
}

/// Goes on until some drive has.
fn until_newer_at(array: &mut Scenario, place: usize) -> Vec<bool> {
    for _ in 0..10_000 {
        let there = newer_at(array, place);
        if there.contains(&true) {
            return there;
        }
        array.steps(1);
    }
    panic!("no table is written");
}

/// The table that members had durably heard of lay at the end of some, and nowhere else, when the
/// process was killed; then the devices grew. Those members came back with the table before, while
/// a device that was about to join had the newer one.
#[test]
fn a_table_at_the_end_of_a_device_is_found_after_the_device_grew() {
    for (level, members) in [("1", 3), ("5", 4), ("6", 5)] {
        let mut grew = 0;
        for seed in 0..40 {
            let draft = Scenario::new(level, members).no_caches();
            let mut array = draft.seed(seed).start();
            array.write(20).rest().steps(20_000);
            array.world.command(Command::Fail(Slot(1)));
            until_newer_at(&mut array, 0);
            // What is older is written first.
            array.kill().begin_to_start();
            let there = until_newer_at(&mut array, 1);
            array.kill();
            let told = |array: &Scenario| {
                let drives = array.world.drives().iter().zip(&there);
                let drives = drives.filter(|(_, at_end)| **at_end);
                let tables = drives.map(|(drive, _)| drive.carried().map(|(table, _)| table));
                tables.collect::<Vec<_>>()
            };
            let before = told(&array);
            // A device would be lost if its first superblock were torn just then.
            if array.world.enlarge(MORE) {
                grew += 1;
                assert_eq!(told(&array), before, "level {level}, seed {seed}");
            }
            array.start().rest().verify();
        }
        assert!(grew > 5, "level {level}: {grew}");
    }
}
