//! More is lost than the level survives, or an administrator says that it does not matter.

use strake_engine::StartError;
use strake_engine::event::{ArrayState, IoKind};
use strake_engine::units::RegionNo;
use strake_format::{RegionState, WriteHole};
use strake_sim::beyond::Demand;
use strake_sim::scenario::Scenario;
use strake_sim::workload::AskKind;

/// An array without a log that was cut off while it wrote, one member of which is missing; `None`
/// if nothing was being written.
fn cut_off(level: &str, members: u8, seed: u64) -> Option<Scenario> {
    let draft = Scenario::new(level, members).policy(WriteHole::Resync);
    let mut array = draft.seed(700 + seed).forgiving().start();
    array.write(80).rest().steps(10_000);
    array.begin_to_write(30, 40 + 11 * seed).power_cut();
    array.world.hide(seed as usize % usize::from(members));
    match array.world.assemble(false) {
        Ok(_) => None,
        Err(error) => {
            assert_eq!(error, StartError::DirtyDegraded);
            Some(array)
        }
    }
}

/// A write of data or parity is on its way.
pub(crate) fn writes_data(array: &Scenario) -> bool {
    let data_offset = array.world.superblock().layout.data_offset;
    let drives = array.world.drives().iter();
    let mut kinds = drives.flat_map(|drive| drive.ssd().kinds());
    kinds.any(|kind| matches!(kind, IoKind::Write { offset, .. } if *offset >= data_offset))
}

fn waits_for_resync(array: &mut Scenario) -> bool {
    let regions = array.world.geometry().regions();
    let engine = array.world.array();
    let mut states = (0..regions).map(|region| engine.region(RegionNo(region)));
    states.any(|state| state == RegionState::NeedSync)
}

/// It was stopped before its resync had passed, and the next start asked for `--force` again,
/// although nothing had been under way.
#[test]
fn an_array_started_by_force_and_stopped_cleanly_starts_by_itself() {
    for (level, members) in [("5", 4), ("6", 5), ("50", 6), ("7.3", 5)] {
        let mut stopped_early = 0;
        for seed in 0..12 {
            let Some(mut array) = cut_off(level, members, seed) else {
                continue;
            };
            array.start_by_force().steps(3 * seed);
            stopped_early += u32::from(waits_for_resync(&mut array));
            array.stop().start().verify().rest();
            assert!(!waits_for_resync(&mut array));
            array.begin_to_scrub().rest().verify();
            array.add().made_whole().verify();
        }
        assert!(stopped_early > 3, "level {level}: {stopped_early}");
    }
}

/// Writes that ended with an error because the array had failed were called retired: shards went on
/// with their logs. When the members were back nothing was replayed, and what a write had left half
/// in place was what the missing member was computed from.
#[test]
fn what_was_half_in_place_when_the_array_failed_is_replayed_when_its_members_are_back() {
    let mut failed = 0;
    for seed in 0..120 {
        let (level, members) = [("5", 4), ("50", 6)][seed as usize % 2];
        let draft = Scenario::new(level, members).small_blocks();
        let mut array = draft.seed(seed).start();
        array.write_all().rest().lose(0).steps(1000);
        let blocks = array.world.blocks();
        for n in 0..200 {
            array.begin_to_write_blocks((n * 37 + seed) % (blocks - 3), 3);
        }
        array.slow(1).steps(600 + 10 * seed);
        let away = array.drive(2);
        array.world.demand(Demand::NothingWrong);
        array.lose(2).steps(2000);
        failed += u32::from(array.state() == ArrayState::Failed);
        array.kill().bring_back(away);
        array.world.demand(Demand::All);
        array.start().verify();
    }
    assert!(failed > 60, "{failed}");
}

#[test]
fn force_is_no_word_about_what_is_lost_later() {
    let mut refused = 0;
    for seed in 0..12 {
        let Some(mut raid6) = cut_off("6", 5, seed) else {
            continue;
        };
        raid6.start_by_force();
        let other = (0..5).find(|slot| raid6.world.looks()[*slot].in_sync.is_some());
        let other = other.expect("some member is in sync") as u8;
        raid6.world.demand(Demand::NothingWrong);
        raid6.lose(other).verify();
        raid6.world.demand(Demand::All);
        if !waits_for_resync(&mut raid6) {
            continue;
        }
        raid6.stop();
        assert_eq!(raid6.refused(false), StartError::DirtyDegraded);
        refused += 1;
    }
    assert!(refused > 3, "{refused}");
}

/// A sector that could not be read was computed, and rewritten, from parity that was not true yet,
/// because force had been used for another member.
#[test]
fn force_is_no_word_about_sectors_that_cannot_be_read() {
    let mut lost = 0;
    for seed in 0..12 {
        let Some(mut raid6) = cut_off("6", 5, seed) else {
            continue;
        };
        raid6.start_by_force();
        let other = (0..5).find(|slot| raid6.world.looks()[*slot].in_sync.is_some());
        let other = other.expect("some member is in sync") as u8;
        for row in 0..raid6.world.geometry().rows {
            raid6.spoil_block(other, row, 0);
        }
        raid6.verify().rest().verify();
        let unreadable = raid6.unreadable();
        assert_eq!(raid6.fails(), unreadable);
        lost += unreadable.len();
        raid6.fill().rest().verify();
        assert_eq!(raid6.fails(), []);
        raid6.add().made_whole().begin_to_scrub().rest().verify();
    }
    assert!(lost > 0);
}

#[test]
fn an_array_started_by_force_and_killed_while_it_writes_has_to_be_forced_again() {
    let mut refused = 0;
    for seed in 0..12 {
        let Some(mut raid6) = cut_off("6", 5, seed) else {
            continue;
        };
        raid6.start_by_force().begin_to_write(20, 60 + seed);
        // Until then the resync may have passed, and nothing be open.
        while !writes_data(&raid6) {
            raid6.steps(1);
        }
        raid6.kill();
        refused += 1;
        assert_eq!(raid6.refused(false), StartError::DirtyDegraded);
        raid6.start_by_force().rest().verify();
        raid6.stop().start().verify();
    }
    assert!(refused > 6, "{refused}");
}

/// Makes a RAID 5 array with a full list of unreadable blocks.
fn with_a_full_list(seed: u64) -> Scenario {
    let draft = Scenario::new("5", 4).small_blocks().forgiving();
    let mut raid5 = draft.seed(seed).start();
    raid5.write_all().rest().lose(1).steps(3000);
    for (row, block) in (0..24).flat_map(|row| [0, 1, 2, 4, 5, 6].map(|block| (row, block))) {
        for slot in [0, 2, 3] {
            raid5.spoil_block(slot, row, block);
        }
    }
    raid5.add().made_whole();
    // What leaves the middle of a range makes two of it: there is room for that.
    let block = raid5.world.geometry().block;
    let ranges = raid5.status().unreadable;
    let wide = ranges.iter().filter(|r| r.end - r.start == 3 * block);
    let room = strake_format::unreadable::capacity(4096) - ranges.len();
    for range in wide.take(room) {
        raid5.write_at(range.start / block + 1, 1);
    }
    raid5
}

/// A list of unreadable blocks that takes no more, among them all of a region and of the rows
/// beside it.
fn with_a_region_that_is_lost() -> Scenario {
    let draft = Scenario::new("5", 4).small_blocks().forgiving();
    let mut raid5 = draft.start();
    raid5.write_all().rest().lose(1).steps(3000);
    let geometry = raid5.world.geometry().clone();
    let all = geometry.strip / geometry.block;
    let rows = geometry.region_rows(RegionNo(1));
    for row in 0..geometry.rows.min(30) {
        let whole = (rows.start - 1..rows.end + 1).contains(&row);
        let lost = (0..all).filter(|block| whole || block % 4 < 3);
        for (block, slot) in lost.flat_map(|block| [0, 2, 3].map(|slot| (block, slot))) {
            raid5.spoil_block(slot, row, block);
        }
    }
    raid5.add().made_whole();
    fill_list(&mut raid5);
    raid5
}

/// Writes the middle of ranges of three blocks, so that the list has no room for one more.
fn fill_list(raid5: &mut Scenario) {
    let block = raid5.world.geometry().block;
    let ranges = raid5.status().unreadable;
    let wide = ranges.iter().filter(|r| r.end - r.start == 3 * block);
    let room = strake_format::unreadable::capacity(4096) - ranges.len();
    for range in wide.take(room) {
        raid5.write_at(range.start / block + 1, 1);
    }
    let ranges = raid5.status().unreadable.len();
    assert_eq!(ranges, strake_format::unreadable::capacity(4096));
}

/// The list had no room for what one range becomes when its middle leaves. The zeros were
/// acknowledged all the same, and answered errors as soon as something was written in their region.
#[test]
fn a_region_whose_blocks_cannot_leave_the_list_is_not_discarded() {
    let mut raid5 = with_a_region_that_is_lost();
    let geometry = raid5.world.geometry().clone();
    let rows = geometry.region_rows(RegionNo(1));
    let stripe = geometry.stripe_bytes() / geometry.block;
    let (first, count) = (rows.start * stripe, (rows.end - rows.start) * stripe);
    raid5.begin(AskKind::WriteZeroes, first, count);
    while !raid5.world.all_answered() {
        raid5.world.excuse(RegionNo(1));
        raid5.steps(1);
    }
    assert_eq!(raid5.world.stats().refused, 1);
    raid5.write_at(first, 1).rest().verify();
    raid5.power_cut().start().verify();
    // From its beginning it gets shorter.
    let beside = first - stripe;
    raid5.ask(AskKind::WriteZeroes, beside, stripe);
    raid5.ask(AskKind::WriteZeroes, first, count).verify();
    let region = first..first + count;
    assert!(!raid5.unreadable().iter().any(|b| region.contains(b)));
}

/// Such a block was written, durably, before the write was answered with an error.
#[test]
fn a_write_whose_block_cannot_leave_the_list_changes_nothing() {
    let mut raid5 = with_a_full_list(3);
    let geometry = raid5.world.geometry().clone();
    let ranges = raid5.status().unreadable;
    let wide = |r: &&std::ops::Range<u64>| r.end - r.start == 3 * geometry.block;
    let middle = ranges.iter().find(wide).expect("there are more").start + geometry.block;
    let region = geometry.region(geometry.row(geometry.locate(middle).stripe).1);
    raid5.world.excuse(region);
    let data = |raid5: &Scenario| -> Vec<Vec<u8>> {
        let from = raid5.world.superblock().layout.data_offset as usize;
        let to = from + raid5.world.superblock().layout.data_bytes as usize;
        let drives = raid5.world.drives().iter();
        drives.map(|d| d.ssd().bytes()[from..to].to_vec()).collect()
    };
    let before = data(&raid5);
    raid5.write_at(middle / geometry.block, 1);
    assert_eq!(raid5.world.stats().refused, 1);
    assert!(data(&raid5) == before);
    raid5.verify();
}

/// Both found that the list had room for what becomes of their ranges. The second was durable in
/// place when it was answered with an error.
#[test]
fn of_two_writes_that_split_ranges_at_once_the_one_without_room_changes_nothing() {
    for seed in 0..8 {
        let mut raid5 = with_a_full_list(seed);
        let geometry = raid5.world.geometry().clone();
        let (ranges, size) = (raid5.status().unreadable, geometry.block);
        let single = ranges.iter().find(|r| r.end - r.start == size);
        raid5.write_at(single.expect("some were split").start / size, 1);
        let wide = ranges.iter().filter(|r| r.end - r.start == 3 * size);
        let row = |block: u64| geometry.row(geometry.locate(block * size).stripe).1;
        let wide: Vec<u64> = wide.map(|r| r.start / size + 1).collect();
        let first = wide[seed as usize];
        let second = wide.iter().rev().find(|&&block| row(block) != row(first));
        let both = [first, *second.expect("there are many rows")];
        let strips = |raid5: &Scenario, block: u64| -> Vec<Vec<u8>> {
            let from =
                raid5.world.superblock().layout.data_offset + geometry.row_offset(row(block));
            let strip = from as usize..(from + geometry.strip) as usize;
            let drives = raid5.world.drives().iter();
            drives
                .map(|d| d.ssd().bytes()[strip.clone()].to_vec())
                .collect()
        };
        let before = both.map(|block| strips(&raid5, block));
        for block in both {
            raid5.world.excuse(geometry.region(row(block)));
            raid5.begin_to_write_at(block);
        }
        raid5.wait("both are answered", |world| world.all_answered());
        assert_eq!(raid5.world.stats().refused, 1);
        let listed = raid5.unreadable();
        for (block, before) in both.into_iter().zip(before) {
            let refused = listed.contains(&block);
            assert_eq!(strips(&raid5, block) == before, refused, "block {block}");
        }
        raid5.world.excuse_none();
        raid5.rest().verify();
        raid5.power_cut().start().verify();
    }
}

/// The array failed as if members had failed. By then the survivors knew that the one that was
/// missing is out, so bringing it back did not help.
#[test]
fn what_a_replay_may_have_no_room_for_is_refused_before_anything_is_written() {
    let (mut refused, mut given_up) = (0, 0);
    for seed in 0..16 {
        let mut raid5 = with_a_full_list(seed);
        let geometry = raid5.world.geometry().clone();
        let stripe = geometry.stripe_bytes() / geometry.block;
        for row in 24..geometry.rows {
            raid5.begin_to_write_blocks(row * stripe, stripe);
        }
        raid5.steps(40 + 20 * seed).power_cut();
        raid5.world.doubt_torn_blocks();
        raid5.world.hide(2);
        if raid5.world.assemble(false).is_ok() {
            continue;
        }
        refused += 1;
        let refusal = raid5.refused(false);
        assert!(matches!(refusal, StartError::ListFull { .. }), "{refusal}");
        if seed % 2 == 0 {
            raid5.world.set_hidden(2, false);
            raid5.start().rest().verify();
            continue;
        }
        let launched = raid5.world.launch_as(true);
        assert!(launched.is_ok());
        raid5.wait("the array serves", |world| world.serves());
        let told = |line: &str| line.contains("GivenUp");
        given_up += u32::from(raid5.world.notes(told) > 0);
        raid5.rest().verify();
        raid5.stop().start().verify();
        assert_eq!(raid5.state(), ArrayState::Degraded);
    }
    assert!(refused > 6 && given_up > 0, "{refused} {given_up}");
}

/// More strips of a row were unreadable than the level survives, and the records of what became of
/// it did not fit into the place that is kept for them.
#[test]
fn a_row_of_which_most_strips_cannot_be_read_is_replayed() {
    let mut replayed = 0;
    for seed in 0..60 {
        let (level, members) = [("5", 4), ("6", 6), ("50", 8)][seed as usize % 3];
        let draft = Scenario::new(level, members).seed(seed).forgiving();
        let mut array = draft.start();
        array.write_all().rest();
        for row in 0..4 {
            array.begin_to_write_blocks(row * 3, 3);
        }
        while !writes_data(&array) {
            array.steps(1);
        }
        array.steps(seed / 3);
        for row in 0..array.world.geometry().rows {
            (0..3).for_each(|slot| {
                array.spoil_block(slot, row, 0);
            });
        }
        array.world.demand(Demand::NothingWrong);
        array.power_cut().start();
        replayed += array.world.stats().log_replays;
        array.verify().rest().verify();
    }
    assert!(replayed > 20, "{replayed}");
}

/// The array answered a request for its list by a view that was over, when it had failed meanwhile:
/// by then the shard had ended the operation that had asked.
#[test]
fn an_array_fails_while_a_shard_asks_it_to_list_a_block() {
    let mut failed = 0;
    for seed in 0..120 {
        let (level, members) = [("5", 4), ("6", 6)][seed as usize % 2];
        let draft = Scenario::new(level, members).small_blocks().forgiving();
        let mut array = draft.seed(seed).message_ns(2_000_000).start();
        array.write_all().rest();
        let m = array.world.geometry().m as u8;
        let mut lost = Vec::new();
        (0..m).for_each(|slot| {
            lost.push(array.drive(slot));
            array.lose(slot).steps(2000);
        });
        for row in 0..array.world.geometry().rows {
            array.spoil_block(m, row, 0).spoil_block(m, row, 3);
        }
        let stripe = array.world.geometry().stripe_bytes() / array.world.geometry().block;
        for n in 0..24 {
            array.begin_to_write_blocks(n * stripe + n % 3, 2);
        }
        array.steps(20 + 6 * seed);
        array.world.demand(Demand::NothingWrong);
        let away = array.drive(m + 1);
        array.lose(m + 1).steps(6000);
        failed += u32::from(array.state() == ArrayState::Failed);
        array.kill().bring_back(away);
        // Where a loss was noticed late, this one may be out in the tables, and that one not.
        for drive in lost {
            array.bring_back(drive);
        }
        array.start().verify();
    }
    assert!(failed > 60, "{failed}");
}
