//! Members that the array cannot do without lose what they hold while it serves.
//!
//! Invariant: what was lost is brought back in the end, and all is as if it had not been lost: the
//! array has not written over what shows the loss, and has computed nothing from what lay there.
//! Deliberately absent: requests meanwhile, which read what lies there.

use strake_engine::StartError;
use strake_engine::event::{Command, JobKind, Setting};
use strake_engine::units::{RegionNo, Slot};
use strake_format::{RegionState, SUPERBLOCK_BYTES};

use crate::prng::Prng;
use crate::scenario::Scenario;

/// A member, and what it held.
struct Victim {
    drive: usize,
    slot: u8,
    /// What was there, and what lies there now, at the places that were lost.
    places: Vec<(u64, Vec<u8>, Vec<u8>)>,
    data: (u64, Vec<u8>),
}

/// Copies of superblocks are zeros, or those of an image, on more members than the level survives,
/// or while parity is not trusted; reads of these places fail now and then, while superblocks are
/// written. Then all of it is brought back, to the array that serves, or to the next start.
pub(crate) fn doubted(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let group = array.world.geometry().neighbours().next();
    let group: Vec<u8> = group.expect("a group").map(|slot| slot as u8).collect();
    let (first, m) = (rng.index(group.len()), array.world.geometry().m);
    let some = |count: usize| (0..count).map(|at| group[(first + at) % group.len()]);
    let slots: Vec<u8> = some(m + 1).collect();
    let drives: Vec<usize> = slots.iter().map(|&slot| array.drive(slot)).collect();
    array.stop();
    drives
        .iter()
        .for_each(|&drive| array.world.take_image(drive));
    array.start().write_all().rest();
    let resyncs = rng.percent(50);
    let count = match resyncs {
        true => {
            array.begin_to_overwrite().steps(rng.range(50, 600));
            array.power_cut().start();
            rng.range(1, m as u64 + 1) as usize
        }
        false => {
            let lost = rng.index(m + 1);
            slots[..lost].iter().for_each(|&slot| {
                array.lose(slot);
            });
            array.sleep();
            m + 1 - lost
        }
    };
    let victims = slots.iter().zip(&drives).rev().take(count);
    let mut victims: Vec<Victim> = victims
        .map(|(&slot, &drive)| lose_content(array, rng, slot, drive))
        .collect();
    array.command(Command::LookAtSuperblocks).expect("it looks");
    if !victims.iter().all(|victim| array.serves(victim.drive)) {
        assert!(resyncs, "the level does not survive it");
        // The resync was over, and the array does without them.
        array.rest().verify();
        return;
    }
    // A step that was at work is over, and was the last one of its region perhaps.
    let before = untrusted(array);
    array.sleep();
    let left = untrusted(array);
    assert!(before <= left + 1, "the resync went on");
    if resyncs && left == 0 {
        array.verify();
        return;
    }
    for victim in &mut victims {
        lose_data(array, victim);
    }
    for _ in 0..rng.range(2, 5) {
        let Victim { drive, places, .. } = &victims[rng.index(victims.len())];
        let (offset, ..) = places[rng.index(places.len())];
        let faults = &mut array.world.ssd_mut(*drive).faults;
        if rng.percent(60) {
            faults.read_errors = 1;
            faults.read_errors_in = Some(offset..offset + 1);
        }
        write_superblocks(array, rng);
        array.steps(rng.below(300));
        let faults = &mut array.world.ssd_mut(*drive).faults;
        (faults.read_errors, faults.read_errors_in) = (0, None);
        for Victim { drive, places, .. } in &victims {
            assert!(array.serves(*drive), "drive {drive} is needed, and is out");
            for (offset, _, shows) in places {
                let held = array.world.ssd(*drive).held(*offset, SUPERBLOCK_BYTES);
                assert!(held == *shows, "drive {drive} is written at {offset:#x}");
            }
        }
    }
    let restarts = !resyncs && rng.percent(50);
    if restarts {
        array.stop();
        let refusal = array.refused(false);
        let StartError::TooFewMembers { aside, .. } = &refusal else {
            panic!("the start is refused: {refusal}");
        };
        let named = |victim: &Victim| aside.iter().any(|(slot, _)| *slot == Slot(victim.slot));
        assert!(victims.iter().all(named), "not all are named: {refusal}");
    }
    for victim in &victims {
        bring_back(array, victim);
    }
    if restarts {
        array.start();
    } else {
        array.command(Command::LookAtSuperblocks).expect("it looks");
    }
    array.rest();
    assert!(!resync_waits(array), "the resync does not go on");
    array.verify();
    if resyncs {
        some(m).for_each(|slot| {
            array.lose(slot);
        });
        array.verify();
    }
}

/// Regions without parity that is trusted.
fn untrusted(array: &mut Scenario) -> usize {
    let regions = (0..array.world.geometry().regions()).map(RegionNo);
    let state = |region| array.world.array().region(region);
    regions
        .map(state)
        .filter(|s| *s == RegionState::NeedSync)
        .count()
}

fn resync_waits(array: &mut Scenario) -> bool {
    let jobs = array.status().jobs;
    jobs.iter().any(|job| job.kind == JobKind::Resync)
}

/// A copy of the superblock is zeros from now on, or both are those of an image.
fn lose_content(array: &mut Scenario, rng: &mut Prng, slot: u8, drive: usize) -> Victim {
    let layout = array.world.table_of(drive).expect("it serves").layout;
    let held = |array: &Scenario, from: u64, len: usize| {
        let ssd = array.world.ssd(drive);
        ssd.held(from, len).to_vec()
    };
    let offsets = strake_format::Layout::superblock_offsets(layout.device_bytes);
    let were = offsets.map(|offset| held(array, offset, SUPERBLOCK_BYTES));
    // Images of all members of a mirror are an array of their own.
    let ages = !array.world.geometry().mirrored() && rng.one_in(3);
    match ages {
        true => array.world.age_superblocks(drive),
        false => array.world.empty_superblocks(drive, &[rng.index(2)]),
    }
    let places = offsets.into_iter().zip(were).filter_map(|(offset, was)| {
        let shows = held(array, offset, SUPERBLOCK_BYTES);
        (shows != was).then_some((offset, was, shows))
    });
    Victim {
        drive,
        slot,
        places: places.collect(),
        data: (layout.data_offset, vec![0; layout.data_bytes as usize]),
    }
}

/// Its data is zeros from now on.
fn lose_data(array: &mut Scenario, victim: &mut Victim) {
    let (from, data) = &mut victim.data;
    let ssd = array.world.ssd_mut(victim.drive);
    *data = ssd.held(*from, data.len()).to_vec();
    ssd.rot(*from, &vec![0; data.len()]);
}

/// What was there is there again.
fn bring_back(array: &mut Scenario, victim: &Victim) {
    let (from, data) = &victim.data;
    let ssd = array.world.ssd_mut(victim.drive);
    ssd.rot(*from, data);
    for (offset, was, _) in &victim.places {
        ssd.rot(*offset, was);
    }
    array.world.pasts_are_right(victim.drive);
}

/// The array reads superblocks, and writes them perhaps.
fn write_superblocks(array: &mut Scenario, rng: &mut Prng) {
    let command = match rng.below(3) {
        0 => Command::LookAtSuperblocks,
        1 => Command::Set(Setting::RebuildPriority(rng.range(1, 100) as u8)),
        _ => {
            let name = format!("name{}", rng.below(1000));
            Command::Rename(name.parse().expect("a name"))
        }
    };
    array.command(command).expect("it is carried out");
}
