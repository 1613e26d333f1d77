//! Courses about single sectors: what cannot be read, and what rots beside it; what a cut leaves of
//! a block that has several.
//!
//! Invariants: as of all courses (`course`).
//!
//! Deliberately absent: sectors of which too many cannot be read at once (the scenarios `salvage`).

use std::sync::Arc;

use strake_engine::event::{Command, ScrubMode};
use strake_engine::units::StripeNo;
use strake_format::Layout;

use crate::course::records::step_until;
use crate::course::start_without;
use crate::plan::workload::AskKind;
use crate::prng::Prng;
use crate::scenario::Scenario;

/// A sector of a strip cannot be read, and another block of another strip rots. No redundancy is
/// left that could name what rots; so the rest of the first strip has to stay as it is, whatever
/// reads it.
pub(crate) fn rots_beside_a_bad_one(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let geometry = Arc::clone(array.world.geometry());
    let (k, m) = (geometry.k, geometry.m);
    let stripe = StripeNo(rng.below(geometry.stripes()));
    let slot = |column: usize| geometry.slot(stripe, column).0;
    for column in k + 1..k + m {
        array.lose(slot(column)).rest();
    }
    let mut columns: Vec<usize> = (0..=k).collect();
    rng.shuffle(&mut columns);
    let (kept, rots) = (columns[0], columns[1]);
    let block = geometry.block as usize;
    let blocks = geometry.strip / geometry.block;
    let bad = rng.below(blocks);
    let rotten = (bad + rng.range(1, blocks - 1)) % blocks;
    let drive = array.drive(slot(kept));
    let row = geometry.row(stripe).1;
    let from = array.world.superblock().layout.data_offset + geometry.row_offset(row);
    let held = |array: &Scenario, at: u64| {
        let from = from as usize + at as usize * block;
        array.world.ssd(drive).bytes()[from..from + block].to_vec()
    };
    let right: Vec<Vec<u8>> = (0..blocks).map(|at| held(array, at)).collect();
    array
        .world
        .rot_at(stripe, rots, rotten * geometry.block, block);
    array.spoil_block(slot(kept), row.0, bad);
    let first = stripe.0 * k as u64 * blocks;
    match rng.below(4) {
        0 if m > 1 => {
            array.add().rest();
        }
        1 => {
            let repair = Command::StartScrub(ScrubMode::Repair);
            array.command(repair).expect("it is begun");
            array.rest();
        }
        // All but the column that it is about, so that this one is read; or nothing, so that parity
        // is.
        _ => {
            let column = columns[2..].iter().find(|column| **column < k);
            let reads = kept < k && (rng.percent(60) || column.is_none());
            match (reads, column) {
                (false, Some(&column)) => {
                    array.ask(AskKind::Write, first + column as u64 * blocks, blocks - 1)
                }
                _ => array.ask(
                    AskKind::Read,
                    first + kept.min(k - 1) as u64 * blocks,
                    blocks,
                ),
            };
        }
    }
    // Parity changes with what is written.
    let changed = |at: u64| kept >= k || held(array, at) == right[at as usize];
    let wrong: Vec<u64> = (0..blocks).filter(|&at| !changed(at)).collect();
    assert!(
        wrong.is_empty(),
        "blocks {wrong:?} of a strip took what rots in another, for a sector of it that cannot be \
         read"
    );
}

/// A block of a strip cannot be read, and the same block of another strip rots: redundancy is left
/// that shows it, and not enough to locate it. Whatever is computed then may be wrong, and the
/// region says so; so no strip that is right is ever repaired by it.
pub(crate) fn unclear(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let geometry = Arc::clone(array.world.geometry());
    let (k, width) = (geometry.k, geometry.width);
    let stripe = StripeNo(rng.below(geometry.stripes()));
    let (block, blocks) = (geometry.block, geometry.strip / geometry.block);
    let row = geometry.row(stripe).1;
    let slot = |column: usize| geometry.slot(stripe, column).0;
    let from = array.world.superblock().layout.data_offset + geometry.row_offset(row);
    let bad = rng.below(blocks);
    // By slot: another device may take the place of a member.
    let held = |array: &mut Scenario, column: usize| {
        let drive = array.drive(slot(column));
        let at = (from + bad * block) as usize;
        array.world.ssd(drive).bytes()[at..at + block as usize].to_vec()
    };
    let right: Vec<Vec<u8>> = (0..width).map(|column| held(array, column)).collect();
    let mut columns: Vec<usize> = (0..width).collect();
    rng.shuffle(&mut columns);
    let (kept, rots, third, fourth) = (columns[0], columns[1], columns[2], columns[3]);
    array
        .world
        .rot_at(stripe, rots, bad * block, block as usize);
    array.spoil_block(slot(kept), row.0, bad);
    // So much of the run cannot be read that it is gone through block by block.
    if rng.percent(50) && blocks > 2 {
        array.spoil_block(slot(third), row.0, (bad + 1) % blocks);
        array.spoil_block(slot(fourth), row.0, (bad + 2) % blocks);
    }
    // A read may be answered what follows from the rotten block.
    let block_of = |column: usize| (stripe.0 * k as u64 + column as u64) * blocks + bad;
    (0..k).for_each(|column| array.world.demand_nothing(block_of(column)));
    let column = kept.min(k - 1);
    let first = block_of(column) - bad;
    let mut written = Vec::new();
    match rng.below(4) {
        0 => {
            array.begin(AskKind::Read, first, blocks);
        }
        1 => {
            // All before the block, or the same block of another column.
            written = (k..width).collect();
            if rng.one_in(2) && bad > 0 {
                array.begin(AskKind::Write, first, bad);
            } else {
                let other = (column + 1) % k;
                array.begin(AskKind::Write, block_of(other), 1);
                written.push(other);
            }
        }
        2 => {
            let repair = Command::StartScrub(ScrubMode::Repair);
            array.command(repair).expect("it is begun");
        }
        _ => {
            array.replace(slot(kept));
        }
    }
    if rng.percent(40) {
        array.steps(rng.range(1, 200)).power_cut().start();
    }
    array.rest();
    let repair = Command::StartScrub(ScrubMode::Repair);
    array.command(repair).expect("it is begun");
    array.rest();
    let decided = array.status().undecided.is_empty();
    for column in (0..width).filter(|column| *column != rots && !written.contains(column)) {
        let drive = array.drive(slot(column));
        let sector = (from + bad * block) / block;
        let unread = array.world.ssd(drive).faults.latent.contains(&sector);
        let wrong = !unread && held(array, column) != right[column];
        assert!(
            !wrong || column == kept && !decided,
            "column {column} took what rots in column {rots}"
        );
    }
}

/// Rows are written, or parts of them, and the power goes while that is on its way in place. Where
/// it left some sectors of a block new, most often another column of the same write is lost, too:
/// what it held is computed sector by sector, or lost.
pub(crate) fn torn_beside_lost(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let geometry = Arc::clone(array.world.geometry());
    let (k, strip) = (geometry.k as u64, geometry.strip / geometry.block);
    for _ in 0..10 {
        let stripe = rng.below(geometry.stripes());
        let columns = rng.range(2, k);
        let first = rng.below(k - columns + 1);
        array.begin_to_write_blocks((stripe * k + first) * strip, columns * strip);
        step_until(array, |array| array.world.writes_in_place());
        array.steps(rng.below(4)).power_cut();
        let slot = array.world.victims()[0];
        let lost = array.world.condition_on_media().0[slot];
        let Some(drive) = lost.filter(|_| array.world.tore_a_block()) else {
            array.start().rest().verify();
            continue;
        };
        start_without(array, &[drive]);
        array.offer(drive).expect("it comes back");
        array.rest();
    }
}

/// The power goes while a write of some columns is on its way in place, and a member of those that
/// it leaves alone is missing. Another cannot read a block of it for a moment: nothing is lost.
pub(crate) fn unread_for_a_moment(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let geometry = Arc::clone(array.world.geometry());
    let (k, strip) = (geometry.k as u64, geometry.strip / geometry.block);
    let stripe = StripeNo(rng.below(geometry.stripes()));
    let slot = |column: u64| geometry.slot(stripe, column as usize).index();
    let written = rng.below(k);
    array.begin_to_write_blocks((stripe.0 * k + written) * strip, 1);
    step_until(array, |array| array.world.writes_in_place());
    array.steps(rng.below(6)).power_cut();
    let drives = array.world.condition_on_media().0;
    let left_alone: Vec<u64> = (0..k).filter(|column| *column != written).collect();
    let (missing, unread) = (left_alone[0], left_alone[1]);
    if let (Some(missing), Some(unread)) = (drives[slot(missing)], drives[slot(unread)]) {
        array.world.hide(missing);
        // The start reads superblocks, too.
        let layout = array.world.superblock().layout;
        let data = layout.data_offset..Layout::superblock_offsets(layout.device_bytes)[1];
        let faults = &mut array.world.ssd_mut(unread).faults;
        (faults.read_errors, faults.read_errors_in) = (1, Some(data));
    }
    array.start().rest().verify();
}
