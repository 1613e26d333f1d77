//! Courses about records of the stripe log: which of them count, and what a replay makes of them.
//!
//! Invariants: as of all courses (`course`).
//!
//! Deliberately absent: what any record holds (`strake_engine::recover` has a table of all cases).

use std::sync::Arc;

use strake_engine::event::{Command, IoKind, ScrubMode, Setting};
use strake_engine::logs::divide;
use strake_engine::units::StripeNo;
use strake_format::log::scan;
use strake_format::{LogPayload, WriteHole};

use crate::course::{lost_with_power, slot, start_without};
use crate::plan::workload::AskKind;
use crate::prng::Prng;
use crate::scenario::Scenario;
use crate::world::Drive;

/// What batches are padded to.
const BLOCK: u64 = 4096;

/// A batch in the ring of a lane: where it begins and ends, and its newest operation.
#[derive(Clone, Copy, Debug)]
struct InRing {
    start: u64,
    end: u64,
    newest: u64,
}

/// The ring of the only lane of a drive: where it begins and ends, and the batches that lie there.
fn ring(array: &Scenario, drive: usize) -> (u64, u64, Vec<InRing>) {
    let layout = array.world.superblock().layout;
    let plan = divide(array.world.geometry(), layout.log_bytes, 1);
    let plan = plan.expect("the log has room for one shard");
    let (first, end) = (2 * BLOCK, plan.lane_bytes);
    let area = array.world.ssd(drive).peek(layout.log_offset, end as usize);
    let area = area.expect("the log can be read");
    let from = |at: u64| scan(&area[at as usize..], layout.log_offset + at);
    let mut batches = Vec::new();
    for start in (first..end).step_by(BLOCK as usize) {
        let here = from(start);
        if let Some(Ok(batch)) = here.first()
            && here.len() > from(start + BLOCK).len()
            && let Some(newest) = batch.records.iter().map(|record| record.operation).max()
        {
            let end = start + batch.encoded_bytes(BLOCK as u32) as u64;
            batches.push(InRing { start, end, newest });
        }
    }
    (first, end, batches)
}

/// Goes on until this is so, a while at most.
pub(crate) fn step_until(array: &mut Scenario, until: impl Fn(&mut Scenario) -> bool) {
    for _ in 0..2000 {
        if until(array) {
            break;
        }
        array.steps(1);
    }
}

/// Goes on until no more requests than so many are under way, and not a step further: regions stay
/// open.
fn until_asks(array: &mut Scenario, asks: usize) {
    while array.world.under_way() > asks {
        array.steps(1);
    }
}

/// Goes on until so many writes of the log are in flight on a drive, a little while at most.
fn until_logging(array: &mut Scenario, drive: usize, writes: usize) {
    let layout = array.world.superblock().layout;
    let log = layout.log_offset..layout.log_offset + layout.log_bytes;
    for _ in 0..60 {
        let ssd = array.world.ssd(drive);
        let logging =
            |kind: &&IoKind| matches!(kind, IoKind::Write { offset, .. } if log.contains(offset));
        if ssd.kinds().filter(logging).count() == writes {
            break;
        }
        array.steps(1);
    }
}

/// Writes a block beside so many other requests that are under way.
fn write_beside(array: &mut Scenario, block: u64, asks: usize) {
    array.begin_to_write_at(block);
    until_asks(array, asks);
}

fn newest(batches: &[InRing]) -> Option<InRing> {
    batches.iter().copied().max_by_key(|batch| batch.newest)
}

/// Writes these blocks until the next record on the drive would go over this batch.
fn fill_ring(array: &mut Scenario, drive: usize, kept: InRing, blocks: impl Iterator<Item = u64>) {
    for block in blocks {
        let (first, end, batches) = ring(array, drive);
        let last = newest(&batches).expect("it has records");
        let bytes = last.end - last.start;
        let next = if last.end + bytes <= end {
            last.end
        } else {
            first
        };
        if next < kept.end && kept.start < next + bytes {
            break;
        }
        write_beside(array, block, 1);
    }
}

/// Two writes of a row are over, and no batch says so, for an older one takes long. The ring of the
/// member of the parity fills up with what comes after them. Then all of it is over, and one member
/// alone has published that when both records are being written over; and the power goes, and that
/// member.
pub(crate) fn published_by_one(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let geometry = Arc::clone(array.world.geometry());
    let strip = geometry.strip / geometry.block;
    let parity = slot(array, rng);
    // Of these stripes the same two members have the records: those of the parity and of the first
    // column.
    let stripes = (0..geometry.stripes()).map(StripeNo);
    let (alike, others): (Vec<StripeNo>, Vec<StripeNo>) =
        stripes.partition(|&stripe| geometry.slot(stripe, 2).0 == parity);
    let block = |stripe: StripeNo, column: u64| (stripe.0 * 2 + column) * strip;
    let target = alike[0];
    let (lost, aside) = (geometry.slot(target, 0).0, geometry.slot(target, 1).0);
    let beside = others.into_iter();
    let mut beside = beside.filter(|&stripe| geometry.slot(stripe, 2).0 == lost);
    let beside = beside.next().expect("every member has parities");
    for &stripe in alike.iter().chain([&beside]) {
        write_beside(array, block(stripe, 0), 0);
    }
    // It is in place but for one member, with records on two others than most.
    let (drive, holder, slow) = (array.drive(parity), array.drive(lost), array.drive(aside));
    array.begin_to_write_at(block(beside, 0));
    until_logging(array, slow, 1);
    array.pause(aside, 1);
    for column in [1, 0] {
        write_beside(array, block(target, column), 1);
    }
    array.begin(AskKind::Flush, 0, 0);
    until_asks(array, 1);
    let batches = ring(array, drive).2;
    let last = newest(&batches).expect("they have records");
    let before = batches.iter().filter(|batch| batch.newest < last.newest);
    let kept = before
        .copied()
        .max_by_key(|batch| batch.newest)
        .expect("there are two");
    let others = alike[1..].iter().cycle().take(64);
    fill_ring(array, drive, kept, others.map(|&other| block(other, 1)));
    if array.world.all_answered() {
        return;
    }
    until_asks(array, 0);
    // The records of this one are on the member that will be lost, and on their way to another.
    array.pause(aside, 1);
    array.begin_to_write_at(block(beside, 0));
    until_logging(array, holder, 1);
    until_logging(array, holder, 0);
    array.pause(parity, 2);
    for stripe in [alike[1], alike[2]] {
        array.begin_to_write_at(block(stripe, 1));
    }
    until_logging(array, drive, 2);
    lost_with_power(array, lost);
}

/// A write is over. Another of the same strip finds that too few columns can be read, and gives a
/// block of the row up: other content lies there than the first one's record says. All but one of
/// the members get the retirement of the record late; the power goes, and that one is lost.
pub(crate) fn given_up_beside(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let geometry = Arc::clone(array.world.geometry());
    let (k, strip) = (geometry.k as u64, geometry.strip / geometry.block);
    let stripe = StripeNo(rng.below(geometry.stripes()));
    let slot_of = |column: u64| geometry.slot(stripe, column as usize).0;
    let written = rng.below(k);
    let (bad, lost) = ((written + 1) % k, (written + 2) % k);
    write_beside(array, (stripe.0 * k + written) * strip, 0);
    array.begin(AskKind::Flush, 0, 0);
    until_asks(array, 0);
    let row = geometry.row(stripe).1.0;
    for column in std::iter::once(bad).chain(k..geometry.width as u64) {
        array.spoil_block(slot_of(column), row, 0);
    }
    array.begin_to_write_at((stripe.0 * k + written) * strip);
    // The list is durable: what comes next is that the record is retired.
    let listed = |array: &mut Scenario| {
        let idle = |drive: &Drive| drive.ssd().kinds().next().is_none();
        !array.unreadable().is_empty() && array.world.drives().iter().all(idle)
    };
    step_until(array, listed);
    for column in (0..geometry.width as u64).filter(|&column| column != lost) {
        array.pause(slot_of(column), 1);
    }
    step_until(array, |array| array.world.writes_in_place());
    let drive = array.drive(slot_of(lost));
    array.steps(rng.below(6)).power_cut();
    start_without(array, &[drive]);
}

/// The first block of a strip lies, or lies no more.
fn lie(array: &mut Scenario, slot: u8, stripe: StripeNo) {
    let (geometry, layout) = (&array.world.geometry(), array.world.superblock().layout);
    let at = layout.data_offset + geometry.row_offset(geometry.row(stripe).1);
    let block = geometry.block as usize;
    let drive = array.drive(slot);
    let ssd = array.world.ssd_mut(drive);
    let mut held = ssd.bytes()[at as usize..at as usize + block].to_vec();
    held.iter_mut().for_each(|byte| *byte ^= 0x40);
    ssd.rot(at, &held);
}

/// A parity lied when a write read it, and so does the record of the write, which is long over: its
/// region is Clean. Then the parity is mended, by a program from before records were retired for
/// that. The power goes, and a member that the write left alone.
pub(crate) fn mended_in_quiet(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let geometry = Arc::clone(array.world.geometry());
    let (k, strip) = (geometry.k as u64, geometry.strip / geometry.block);
    let stripe = StripeNo(rng.below(geometry.stripes()));
    let written = rng.below(k);
    let lost = (written + rng.range(1, k - 1)) % k;
    let slot_of = |column: u64| geometry.slot(stripe, column as usize).0;
    // One that is read before it is written.
    let parity = slot_of(k + rng.below(geometry.m as u64));
    lie(array, parity, stripe);
    array.write_at((stripe.0 * k + written) * strip, 1);
    array.ask(AskKind::Flush, 0, 0).rest().sleep();
    lie(array, parity, stripe);
    let drive = array.drive(slot_of(lost));
    array.power_cut();
    array.world.hide(drive);
    array.start().rest().verify();
}

/// What a write leaves alone has rotted. The power goes while it goes in place: what the replay
/// makes of the parities tells of that still, and a scrub mends it.
pub(crate) fn rots_beside(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let geometry = Arc::clone(array.world.geometry());
    let (k, strip) = (geometry.k as u64, geometry.strip / geometry.block);
    let stripe = StripeNo(rng.below(geometry.stripes()));
    let written = rng.below(k);
    let rots = (written + rng.range(1, k - 1)) % k;
    lie(array, geometry.slot(stripe, rots as usize).0, stripe);
    array.begin_to_write_at((stripe.0 * k + written) * strip);
    step_until(array, |array| array.world.writes_in_place());
    array.steps(rng.below(4)).power_cut().start().rest();
    array
        .command(Command::StartScrub(ScrubMode::Repair))
        .expect("nothing else is being done");
    array.rest().verify();
}

/// An administrator says that parity is true where a power cut left it otherwise. A write builds on
/// it, and a resync mends it beside the write's record, which counts again when another shard
/// writes in the region. The power goes, and a member with it that the first write had left alone.
pub(crate) fn outdated(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let geometry = Arc::clone(array.world.geometry());
    let (k, strip) = (geometry.k as u64, geometry.strip / geometry.block);
    let region = |stripe: u64| geometry.region(geometry.row(StripeNo(stripe)).1);
    // One to which the resync comes late, and the one before it is of the other shard.
    let mut late = (1..geometry.stripes()).rev();
    let stripe = late.find(|&stripe| region(stripe) == region(stripe - 1));
    let stripe = StripeNo(stripe.expect("regions have several rows"));
    let written = rng.below(k);
    let missing = (written + rng.range(1, k - 1)) % k;
    let left_alone = (0..k).filter(|column| ![written, missing].contains(column));
    let lost = rng.pick(&left_alone.collect::<Vec<_>>());
    let slot_of = |column: u64| geometry.slot(stripe, column as usize).0;
    let [missing, lost] = [missing, lost].map(|column| array.drive(slot_of(column)));
    let block = (stripe.0 * k + written) * strip;
    array.write_at(block, 1).ask(AskKind::Flush, 0, 0);
    lie(array, slot_of(k + 1), stripe);
    array.power_cut();
    array.world.hide(missing);
    array.start_by_force();
    let closed = Command::Set(Setting::WriteHole(WriteHole::Closed));
    array.command(closed).expect("it can be set");
    // Records from before do not count then.
    array.wait("the log covers what is written", |world| {
        world.array().status().superblock.covered
    });
    array.steps(rng.below(60));
    array.write_at(block, 1).ask(AskKind::Flush, 0, 0);
    array.wait("the resync has passed", |world| {
        world.array().status().regions.need_sync == 0
    });
    array.rest();
    let beside = (stripe.0 - 1) * k * strip;
    array.write_at(beside, 1).ask(AskKind::Flush, 0, 0);
    array.power_cut();
    array.world.hide(lost);
    array.start().rest().verify();
}

/// A write of some columns is half in place when the power goes. The member of a column that it
/// leaves alone is missing then, and the pages of the logs that say what that held have rotted:
/// more than the level survives. It may be lost, and is never made up.
pub(crate) fn syndromes_rot(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let geometry = Arc::clone(array.world.geometry());
    let (k, strip) = (geometry.k as u64, geometry.strip / geometry.block);
    for _ in 0..6 {
        let stripe = StripeNo(rng.below(geometry.stripes()));
        let columns = rng.range(1, k - 1);
        let first = rng.below(k - columns + 1);
        let written = first..first + columns;
        array.begin_to_write_blocks((stripe.0 * k + first) * strip, columns * strip);
        step_until(array, |array| array.world.writes_in_place());
        array.steps(rng.below(6)).power_cut();
        let drives = array.world.condition_on_media().0;
        let of_column = |column: u64| drives[geometry.slot(stripe, column as usize).index()];
        let holders = holders(array, &drives);
        let left_alone = (0..k).filter(|column| !written.contains(column));
        let without = left_alone.filter_map(of_column);
        let mut without = without.filter(|drive| !holders.iter().any(|(held, ..)| held == drive));
        let Some(missing) = without.next() else {
            array.start().rest().verify();
            continue;
        };
        for (drive, batch, _) in holders.into_iter().filter(|(.., syndrome)| *syndrome) {
            let log = array.world.superblock().layout.log_offset;
            let zeros = vec![0; (batch.end - batch.start) as usize];
            array.world.ssd_mut(drive).rot(log + batch.start, &zeros);
        }
        array.world.doubt(stripe.0 * k * strip, k * strip);
        return start_without(array, &[missing]);
    }
}

/// What holds already what a write puts there does not tell that the write has begun: one of two
/// stories.
pub(crate) fn unchanged(array: &mut Scenario, rng: &mut Prng) {
    match array.world.geometry().k {
        ..6 if rng.one_in(2) => unchanged_beside_rebuilt(array, rng),
        _ => unchanged_beside_lost(array, rng),
    }
}

/// A device takes the place of a member, and has a column of a stripe again. Zeros are written to
/// all others, over zeros in one and over other content in the rest. The power goes while the
/// records are written: what the device holds does not count, and the records on it do.
fn unchanged_beside_rebuilt(array: &mut Scenario, rng: &mut Prng) {
    array.fill();
    let geometry = Arc::clone(array.world.geometry());
    let (k, strip) = (geometry.k as u64, geometry.strip / geometry.block);
    let stripe = StripeNo(rng.below(6));
    let (left_alone, column) = rng.pick(&[(0, 1), (k - 1, 0)]);
    let first = (stripe.0 * k + column) * strip;
    let zeros = first + rng.below(k - 1) * strip;
    array.ask(AskKind::WriteZeroes, zeros, strip).rest();
    let slot = geometry.slot(stripe, left_alone as usize).0;
    array.lose(slot).steps(3000);
    array.add();
    let needed = geometry.row_offset(geometry.row(stripe).1) + geometry.strip;
    let holds = |array: &mut Scenario| {
        let jobs = array.status().jobs;
        jobs.is_empty() || jobs.iter().any(|job| job.done_bytes >= needed)
    };
    step_until(array, holds);
    array.begin(AskKind::WriteZeroes, first, (k - 1) * strip);
    let drive = array.drive(slot);
    until_logging(array, drive, 1);
    array.steps(rng.below(6)).power_cut();
    array.start().rest().verify();
}

/// Writes of zeros go over zeros and, in the same operation, over other content. In wide arrays
/// they read what they write over, in others what they leave alone. The power goes while the
/// records are written, until an intent is durable and no partial syndrome; and with it the member
/// of a column that the write leaves alone.
fn unchanged_beside_lost(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let geometry = Arc::clone(array.world.geometry());
    let (k, strip) = (geometry.k as u64, geometry.strip / geometry.block);
    for _ in 0..12 {
        let stripe = StripeNo(rng.below(geometry.stripes()));
        let column = rng.below(k - 1);
        let first = (stripe.0 * k + column) * strip;
        let (zeros, other) = rng.pick(&[(0, strip), (strip, 0)]);
        array.ask(AskKind::WriteZeroes, first + zeros, strip);
        array.write_at(first + other, strip);
        array.ask(AskKind::Flush, 0, 0).rest();
        array.begin(AskKind::WriteZeroes, first, 2 * strip);
        let drives = array.world.condition_on_media().0;
        let there: Vec<usize> = drives.iter().copied().flatten().collect();
        until_logging(array, rng.pick(&there), 1);
        array.steps(rng.below(6)).power_cut();
        let holders = holders(array, &drives);
        let cut_off = holders.iter().all(|(.., syndrome)| !syndrome);
        let left_alone = (0..k).filter(|c| !(column..column + 2).contains(c));
        let mut without =
            left_alone.filter_map(|c| drives[geometry.slot(stripe, c as usize).index()]);
        let without = without.find(|drive| !holders.iter().any(|(held, ..)| held == drive));
        match without {
            Some(lost) if cut_off => return start_without(array, &[lost]),
            _ => array.start().rest().verify(),
        };
    }
}

/// The drives with records of the newest operation: the batch, and whether it holds a partial
/// syndrome of it.
fn holders(array: &Scenario, drives: &[Option<usize>]) -> Vec<(usize, InRing, bool)> {
    let of_drive = |&drive: &usize| Some((drive, newest(&ring(array, drive).2)?));
    let all: Vec<(usize, InRing)> = drives.iter().flatten().filter_map(of_drive).collect();
    let operation = all.iter().map(|(_, batch)| batch.newest).max();
    let newest = all
        .into_iter()
        .filter(|(_, batch)| Some(batch.newest) == operation);
    let with_syndrome = |(drive, batch): (usize, InRing)| {
        let layout = array.world.superblock().layout;
        let (from, len) = (layout.log_offset + batch.start, batch.end - batch.start);
        let bytes = array
            .world
            .ssd(drive)
            .peek(from, len as usize)
            .unwrap_or(&[]);
        let records = scan(bytes, from)
            .into_iter()
            .flatten()
            .flat_map(|batch| batch.records);
        let mut payloads = records.map(|record| record.payload);
        let is_syndrome = |payload| matches!(payload, LogPayload::PartialSyndrome { .. });
        (drive, batch, payloads.any(is_syndrome))
    };
    newest.map(with_syndrome).collect()
}
