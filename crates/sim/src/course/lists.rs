//! Courses about a full list of unreadable blocks.
//!
//! Invariants: as of all courses (`course`).
//!
//! Deliberately absent: lists with room (`course::listed`).

use strake_engine::StartError;
use strake_engine::event::Command;
use strake_engine::units::RegionNo;
use strake_format::unreadable::capacity;

use crate::course::{block, slot};
use crate::plan::workload::AskKind;
use crate::prng::Prng;
use crate::scenario::Scenario;
use crate::world::World;

/// Bytes of a member for the list, in arrays of this size.
const PLACE_BYTES: u32 = 4096;
/// Blocks of a range that is to be split.
const WIDE: u64 = 3;

/// One of two stories.
pub(crate) fn full_list(array: &mut Scenario, rng: &mut Prng) {
    match rng.one_in(3) {
        true => more_than_fits(array, rng),
        false => split(array, rng),
    }
}

/// Jobs are over, or have stopped.
fn jobs_over(world: &mut World) -> bool {
    world.array().status().jobs.iter().all(|job| job.paused)
}

/// A member is lost. On each other one some blocks of every row cannot be read, from each of
/// `firsts` so many as `wide` says; and a device takes the place of the lost one.
fn lose_blocks(array: &mut Scenario, rng: &mut Prng, firsts: &[u64], wide: u64) {
    array.fill().rest();
    let slots = array.world.geometry().slots() as u8;
    let lost = slot(array, rng);
    array.lose(lost).steps(3000);
    let rows = rng.range(20, 30).min(array.world.geometry().rows);
    for row in 0..rows {
        for block in firsts.iter().flat_map(|&first| first..first + wide) {
            for slot in (0..slots).filter(|slot| *slot != lost) {
                array.spoil_block(slot, row, block);
            }
        }
    }
    array.add();
    array.wait("the rebuild ends, or gives up", jobs_over);
    array.verify();
}

/// A rebuild finds more than the list has room for. Some of that is written, and the power goes.
fn more_than_fits(array: &mut Scenario, rng: &mut Prng) {
    lose_blocks(array, rng, &[0, 2, 4, 6], 1);
    for block in array.unreadable() {
        if rng.percent(20) {
            array.ask(AskKind::Write, block, 1);
        }
    }
    array.power_cut().start();
    array.wait("the rebuild ends, or gives up", jobs_over);
    array.verify();
}

/// A rebuild finds ranges of some blocks. Writes into their middles take the room of the list until
/// next to nothing is left. Then some writes split ranges at once, while regions are discarded, or
/// the power goes, or data moves.
fn split(array: &mut Scenario, rng: &mut Prng) {
    lose_blocks(array, rng, &[0, 4], WIDE);
    take_room(array, rng);
    excuse_all(array);
    for _ in 0..rng.range(1, 3) {
        let middles = wide_middles(array);
        if rng.percent(60) {
            begin_to_discard_listed(array, rng);
        }
        for _ in 0..rng.range(2, 6).min(middles.len() as u64) {
            array.begin_to_write_at(rng.pick(&middles));
            array.steps(rng.pick(&[0, 0, 3, 40]));
        }
        if !middles.is_empty() && rng.percent(30) {
            // Others go from their ends.
            array.begin_to_write_at(rng.pick(&middles) + 1);
        }
        if rng.one_in(4) {
            array.steps(rng.below(800));
            return cut_off(array, rng);
        }
        array.wait("requests are answered", |world| world.all_answered());
    }
    match rng.below(3) {
        0 => moved(array, rng),
        1 => {
            array.wait("jobs end, or give up", jobs_over);
            array.power_cut().start();
        }
        _ => {}
    }
    array.wait("jobs end, or give up", jobs_over);
    array.world.excuse_none();
    array.verify();
    array.stop().start().verify();
}

/// Writes split ranges until the list has room for a few more. There is room for each of these.
fn take_room(array: &mut Scenario, rng: &mut Prng) {
    let most = capacity(PLACE_BYTES);
    let left = rng.below(3) as usize;
    loop {
        let room = most.saturating_sub(left + array.status().unreadable.len());
        let middles = wide_middles(array);
        let many = middles.len().min(room).min(16);
        if many == 0 {
            return;
        }
        let step = middles.len() / many;
        for &middle in middles.iter().step_by(step).take(many) {
            array.begin_to_write_at(middle);
        }
        array.wait("requests are answered", |world| world.all_answered());
    }
}

/// The middles of ranges that have one.
fn wide_middles(array: &mut Scenario) -> Vec<u64> {
    let size = array.world.geometry().block;
    let ranges = array.status().unreadable.into_iter();
    let wide = ranges.filter(|range| range.end - range.start == WIDE * size);
    wide.map(|range| range.start / size + 1).collect()
}

/// Requests may be refused: the list may have no room for what they split.
fn excuse_all(array: &mut Scenario) {
    for region in 0..array.world.geometry().regions() {
        array.world.excuse(RegionNo(region));
    }
}

/// The region of a block that is listed, or of any, is discarded.
fn begin_to_discard_listed(array: &mut Scenario, rng: &mut Prng) {
    let listed = array.unreadable();
    let block = match listed.is_empty() {
        true => block(array, rng),
        false => rng.pick(&listed),
    };
    let geometry = array.world.geometry().clone();
    let place = geometry.locate(block * geometry.block);
    let region = geometry.region(geometry.row(place.stripe).1);
    let kind = rng.pick(&[AskKind::Discard, AskKind::WriteZeroes]);
    for bytes in geometry.region_parts(region) {
        let (first, end) = (bytes.start / geometry.block, bytes.end / geometry.block);
        let end = end.min(array.world.blocks());
        if first < end {
            array.begin(kind, first, end - first);
        }
    }
}

/// The power goes, perhaps with a member. A replay without it may lose more than the list has room
/// for: then the start is refused, and nothing is written.
fn cut_off(array: &mut Scenario, rng: &mut Prng) {
    array.power_cut();
    let drives = array.world.condition_on_media().0;
    let whole = drives.iter().all(Option::is_some);
    let away = rng.pick(&drives).filter(|_| whole && rng.percent(70));
    if let Some(away) = away {
        array.world.hide(away);
        array.world.doubt_torn_blocks();
        if array.world.assemble(false).is_err() {
            let refusal = array.refused(false);
            let full = matches!(refusal, StartError::ListFull { .. });
            assert!(full, "the start is refused: {refusal}");
            array.world.set_hidden(away, false);
        }
    }
    array.start();
    array.wait("jobs end, or give up", jobs_over);
    array.verify();
}

/// Data moves, and some of it cannot be read: there may be no room to list it. Then writes take
/// ranges off the list as wholes, and the move goes on.
fn moved(array: &mut Scenario, rng: &mut Prng) {
    array.wait("jobs end, or give up", jobs_over);
    let whole = array
        .world
        .looks()
        .iter()
        .all(|look| look.in_sync.is_some());
    if !whole {
        return;
    }
    let rows = array.world.geometry().rows;
    for _ in 0..rng.range(1, 4) {
        let (row, bad, many) = (rng.below(rows), rng.below(8), rng.range(1, 2));
        let first = slot(array, rng);
        let slots = array.world.geometry().slots() as u8;
        for more in 0..=many as u8 {
            array.spoil_block((first + more) % slots, row, bad);
        }
    }
    array.begin_to_restripe(1);
    array.wait("the move ends, or stops", jobs_over);
    let size = array.world.geometry().block;
    let ranges = array.status().unreadable;
    for range in ranges.iter().step_by(2) {
        let (first, end) = (range.start / size, range.end / size);
        array.ask(AskKind::Write, first, end - first);
    }
    if rng.one_in(2) {
        array.world.command(Command::ContinueRestripe);
        array.steps(3000);
    }
}
