//! Courses about devices that join, and members that are lost meanwhile.
//!
//! Invariants: as of all courses (`course`).
//!
//! Deliberately absent: members that come back (`course`).

use strake_engine::event::Command;
use strake_engine::units::{Slot, StripeNo};
use strake_format::SlotState;

use crate::course::{block, records, slot, start_without};
use crate::prng::Prng;
use crate::scenario::Scenario;

pub(crate) fn joins_under_writes(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let lost = slot(array, rng);
    array.lose(lost).steps(3000);
    array.add();
    let geometry = array.world.geometry().clone();
    let strip = geometry.strip / geometry.block;
    let (k, m) = (geometry.k, geometry.m);
    let stripes = array.world.blocks() / (k as u64 * strip);
    // Most often the stripes that have their parity on it, except for the column that makes its
    // member hold records.
    let first_of = |stripe: u64| geometry.slot(StripeNo(stripe), k).0 == lost;
    let aimed = rng.percent(70);
    let targets: Vec<u64> = (0..stripes).filter(|&s| !aimed || first_of(s)).collect();
    let slow = if aimed { lost } else { slot(array, rng) };
    let joined =
        |world: &mut crate::world::World| world.looks()[usize::from(lost)].in_sync.is_some();
    // Until it is in sync there are always writes under way, some of which take long.
    for _ in 0..20_000 {
        if joined(&mut array.world) {
            break;
        }
        if array.world.under_way() < 6 && !targets.is_empty() {
            let column = rng.range(u64::from(aimed), k as u64 - 1);
            array.begin_to_write_at((rng.pick(&targets) * k as u64 + column) * strip);
        }
        let rebuilt = built(array, lost);
        let often = if aimed && rebuilt { 3 } else { 20 };
        let there = aimed || array.world.looks()[usize::from(slow)].in_sync.is_some();
        if rng.one_in(often) && there {
            array.pause(slow, 1);
        }
        array.steps(1);
    }
    let mut hidden = vec![slot(array, rng)];
    if let Some(&target) = targets.first().filter(|_| aimed) {
        let others = std::iter::once(0).chain(k + 1..k + m);
        hidden = others
            .map(|c| geometry.slot(StripeNo(target), c).0)
            .collect();
        let drives: Vec<usize> = hidden.iter().map(|&slot| array.drive(slot)).collect();
        // Until a member that is left records it as in sync.
        for _ in 0..100 {
            let known = (0..array.world.drives().len()).filter(|drive| !drives.contains(drive));
            if known
                .into_iter()
                .any(|drive| calls_in_sync(array, drive, lost))
            {
                break;
            }
            array.steps(1);
        }
    }
    array.steps(rng.pick(&[0, 0, 4, 30])).power_cut();
    let drives = array.world.condition_on_media().0;
    let out = drives.iter().filter(|drive| drive.is_none()).count();
    let left = (0..array.world.drives().len()).filter(|&drive| calls_in_sync(array, drive, lost));
    let left: Vec<usize> = left.collect();
    let hidden = hidden
        .into_iter()
        .filter_map(|slot| drives[usize::from(slot)]);
    let fair = |drive: &usize| out < m || (aimed && left.iter().any(|other| other != drive));
    let hidden: Vec<usize> = hidden.filter(fair).collect();
    start_without(array, &hidden);
}

/// All of what is to take the slot was built.
fn built(array: &mut Scenario, slot: u8) -> bool {
    let status = array.status();
    let mut jobs = status.jobs.iter();
    jobs.any(|job| job.slot == Some(Slot(slot)) && job.done_bytes >= job.total_bytes)
}

/// What lies on a drive says that the slot has a member in sync.
fn calls_in_sync(array: &Scenario, drive: usize, slot: u8) -> bool {
    let table = array.world.table_of(drive);
    let row = table.and_then(|table| table.slot(Slot(slot)).copied());
    row.is_some_and(|row| row.state == SlotState::InSync)
}

/// A member of the first wave is slow to take the table that calls a device a member, and leaves
/// before it has it.
pub(crate) fn lost_as_one_joins(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let lost = slot(array, rng);
    array.lose(lost);
    array.world.command(Command::Fail(Slot(lost)));
    array.steps(3000);
    let slots = array.world.geometry().slots() as u8;
    let leaves = (lost + rng.range(1, u64::from(slots) - 1) as u8) % slots;
    let drive = array.drive(leaves);
    array.pause(leaves, 1);
    array.world.ssd_mut(drive).faults.only_writes_pause = true;
    let new = array.world.fresh().expect("there are devices left");
    let joins = array.world.drive_of(new.device);
    array.world.command(Command::Add(new));
    // Until it is slow, and the array waits for no other member.
    for _ in 0..200 {
        let mut drives = (0..).zip(array.world.drives());
        let is_slow = array.world.ssd(drive).faults.pauses == 0;
        if is_slow
            && array.world.ssd(drive).waiting()
            && drives.all(|(other, now)| other == drive || !now.ssd().waiting())
        {
            break;
        }
        array.steps(1);
    }
    array.lose(leaves);
    for _ in 0..100 {
        let table = array.world.table_of(joins);
        if table.is_some_and(|table| table.slot_of(table.member).is_some()) {
            break;
        }
        array.steps(1);
    }
    array.steps(rng.below(4)).power_cut();
    array.bring_back(drive);
    let heard = array.world.newcomers_heard_last(&[joins], &[]);
    assert!(
        heard.is_ok(),
        "drive {joins} joins, and has a table that drive {drive} lacks"
    );
    array.start().rest().verify();
}

/// A device joins a mirror of which little was ever written, and is slow to take the region map; as
/// soon as superblocks call it in sync, the power goes, with the others.
pub(crate) fn joins_empty(array: &mut Scenario, rng: &mut Prng) {
    if rng.percent(50) {
        let at = block(array, rng);
        array.begin_to_write_at(at).rest();
    }
    let lost = slot(array, rng);
    array.lose(lost);
    array.world.command(Command::Fail(Slot(lost)));
    array.rest();
    let new = array.world.fresh().expect("there are devices left");
    let joins = array.world.drive_of(new.device);
    array.world.command(Command::Add(new));
    records::step_until(array, |array| {
        let table = array.world.table_of(joins);
        table.is_some_and(|table| table.slot_of(table.member).is_some())
    });
    array.steps(rng.below(3));
    let faults = &mut array.world.ssd_mut(joins).faults;
    (faults.pauses, faults.pause_ns) = (1, 40_000_000);
    records::step_until(array, |array| {
        let table = array.world.table_of(joins);
        let slot = table.and_then(|table| table.slots.get(usize::from(lost)).copied());
        slot.is_some_and(|slot| slot.state == SlotState::InSync)
    });
    array.power_cut();
    let others = array.world.condition_on_media().0.into_iter().flatten();
    let others: Vec<usize> = others.filter(|&drive| drive != joins).collect();
    start_without(array, &others);
    array.rest().verify();
}
