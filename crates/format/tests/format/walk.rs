//! A walk through crashes: a small model of an array that keeps the protocol, boots with whatever
//! is there, changes its membership, is cut off between any two superblocks, and acknowledges
//! writes. Whatever the walk, a member that selection believes to be in sync holds every
//! acknowledged write of which anything found knows.

use std::collections::BTreeSet;

use strake_format::*;

use crate::samples::superblock;

/// Members of the model.
const MEMBERS: u8 = 4;

/// A member: its superblock and the acknowledged writes that it holds.
#[derive(Clone)]
struct Drive {
    superblock: Superblock,
    writes: BTreeSet<u32>,
}

/// A linear congruential generator: the walk is the same every time.
struct Dice(u64);

impl Dice {
    /// A number below `bound`.
    fn roll(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

/// What the walks came to.
#[derive(Debug, Default)]
struct Tally {
    started: u32,
    acknowledged: u32,
    refused: u32,
}

/// Boots with the drives `present`; runs if at most `tolerance` slots are not in sync. True if a
/// table took effect.
fn boot(
    drives: &mut [Drive],
    present: &[usize],
    tolerance: usize,
    dice: &mut Dice,
    tally: &mut Tally,
) {
    let found: Vec<_> = present
        .iter()
        .map(|&i| drives[i].superblock.clone())
        .collect();
    let Ok(selection) = select_array(&found) else {
        tally.refused += 1;
        return;
    };
    let known: BTreeSet<u32> = present
        .iter()
        .flat_map(|&i| drives[i].writes.iter().copied())
        .collect();
    let mut table = found[selection.authority].clone();
    let believed = |slot: usize| match selection.slots[slot] {
        Finding::Believed(index) => Some(present[index]),
        Finding::Stale(_) | Finding::Absent => None,
    };
    for (slot, record) in table.slots.iter().enumerate() {
        if let (Some(drive), SlotState::InSync) = (believed(slot), record.state) {
            let holds = &drives[drive].writes;
            assert_eq!(holds, &known, "slot {slot} of {found:#?}");
        }
    }
    let in_sync = (0..table.slots.len())
        .filter(|&slot| believed(slot).is_some() && table.slots[slot].state == SlotState::InSync);
    if in_sync.count() + tolerance < drives.len() {
        return;
    }
    tally.started += 1;
    // Whoever is not there is out; now and then one that is there fails, or comes back, or has been
    // rebuilt.
    let epoch = table.epoch.next();
    let wish = (dice.roll(drives.len()), dice.roll(3));
    let mut out = table
        .slots
        .iter()
        .filter(|record| !record.state.is_live())
        .count();
    let mut rebuilt = None;
    let mut changed = false;
    for (slot, record) in table.slots.iter_mut().enumerate() {
        let here = present.contains(&slot);
        let state = match (record.state, believed(slot), wish) {
            (SlotState::InSync | SlotState::Rebuilding { .. }, None, _) => SlotState::Missing,
            (SlotState::InSync, Some(_), (at, 0)) if at == slot && out < tolerance => {
                out += 1;
                SlotState::Failed
            }
            (SlotState::Missing | SlotState::Failed, _, (at, 1)) if at == slot && here => {
                SlotState::Rebuilding { rebuilt_bytes: 0 }
            }
            (SlotState::Rebuilding { .. }, Some(_), (at, 2)) if at == slot => {
                rebuilt = Some(slot);
                SlotState::InSync
            }
            (state, _, _) => state,
        };
        if state != record.state {
            (record.state, record.since) = (state, epoch);
            changed = true;
        }
    }
    if changed {
        table.epoch = epoch;
    }
    table.generation = table.generation.next();
    // A rebuilt member holds everything before any superblock says that it is in sync.
    if let Some(slot) = rebuilt {
        drives[slot].writes = known.clone();
    }
    let mut live: Vec<usize> = (0..drives.len())
        .filter(|&slot| table.slots[slot].state.is_live())
        .collect();
    let turn = dice.roll(live.len());
    live.rotate_left(turn);
    for &slot in live.iter().take(dice.roll(live.len() * 2 + 1)) {
        let (member, role) = (drives[slot].superblock.member, drives[slot].superblock.role);
        drives[slot].superblock = Superblock {
            member,
            role,
            ..table.clone()
        };
    }
    let durable = |&slot: &usize| drives[slot].superblock.generation == table.generation;
    if live.iter().all(durable) {
        tally.acknowledged += 1;
        for &slot in &live {
            drives[slot].writes.insert(tally.acknowledged);
        }
    }
}

/// Walks `count` times over `steps` boots.
fn walks(count: u64, steps: usize, tolerance: usize) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..count {
        let mut dice = Dice(seed);
        let drive = |slot| Drive {
            superblock: superblock(Level::Raid1, MEMBERS, MEMBERS, slot),
            writes: BTreeSet::new(),
        };
        let mut drives: Vec<_> = (0..MEMBERS).map(drive).collect();
        for _ in 0..steps {
            let mask = dice.roll(1 << MEMBERS);
            let present: Vec<_> = (0..drives.len()).filter(|i| mask >> i & 1 == 1).collect();
            boot(&mut drives, &present, tolerance, &mut dice, &mut tally);
        }
    }
    tally
}

#[test]
fn a_mirror_never_believes_a_member_that_missed_a_write_that_anything_found_knows_of() {
    let tally = walks(4000, 12, usize::from(MEMBERS) - 1);
    assert!(tally.acknowledged > 5000, "{tally:?}");
}

/// Where two halves can never both run, nothing is ever split, and selection should seldom say that
/// it is.
#[test]
fn an_array_that_needs_a_majority_is_seldom_refused() {
    let tally = walks(4000, 12, 1);
    assert!(tally.acknowledged > 5000, "{tally:?}");
    assert!(tally.refused * 20 < tally.started, "{tally:?}");
}
