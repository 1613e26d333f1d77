//! A walk through crashes: a small model of an array that keeps the protocol of `select`, boots
//! with whatever is there, changes its membership, is cut off between any two superblocks, and
//! acknowledges writes.
//!
//! Invariant: a member that selection believes to be in sync holds every acknowledged write of
//! which anything found knows; where two halves can run apart (mirrors) and have done so, they are
//! not put together.

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
    split: u32,
    absent: u32,
    unnoticed: u32,
}

/// One array on one walk.
struct World {
    drives: Vec<Drive>,
    /// Slots that need not be in sync for the array to run.
    tolerance: usize,
    acknowledged: BTreeSet<u32>,
    /// A write was acknowledged by members that did not hold all those before it.
    forked: bool,
    dice: Dice,
}

/// What was found, in few words.
fn story(found: &[Superblock]) -> String {
    let line = |s: &Superblock| {
        let row = |r: &SlotRecord| format!(" {:?}@{}", r.state, r.since);
        let rows: String = s.slots.iter().map(row).collect();
        format!("\n{:?} e{} g{}:{rows}", s.role, s.epoch, s.generation)
    };
    found.iter().map(line).collect()
}

impl World {
    /// A new array.
    fn new(tolerance: usize, seed: u64) -> Self {
        let drive = |slot| Drive {
            superblock: superblock(Level::Raid1, MEMBERS, MEMBERS, slot),
            writes: BTreeSet::new(),
        };
        World {
            drives: (0..MEMBERS).map(drive).collect(),
            tolerance,
            acknowledged: BTreeSet::new(),
            forked: false,
            dice: Dice(seed),
        }
    }

    /// Boots with some of the drives, and runs until the power fails.
    fn boot(&mut self, tally: &mut Tally) {
        let mask = self.dice.roll(1 << MEMBERS);
        let present: Vec<_> = (0..self.drives.len())
            .filter(|i| mask >> i & 1 == 1)
            .collect();
        let found: Vec<_> = present
            .iter()
            .map(|&i| self.drives[i].superblock.clone())
            .collect();
        let selection = match select_array(&found) {
            Ok(selection) => selection,
            Err(SelectError::SplitBrain { .. }) => return tally.split += 1,
            Err(_) => return tally.absent += 1,
        };
        let mut table = found[selection.authority].clone();
        let believed: Vec<bool> = selection
            .slots
            .iter()
            .map(|f| matches!(f, Finding::Believed(_)))
            .collect();
        let in_sync: Vec<usize> = (0..table.slots.len())
            .filter(|&slot| believed[slot] && table.slots[slot].state == SlotState::InSync)
            .collect();
        let writes = present
            .iter()
            .flat_map(|&i| self.drives[i].writes.iter().copied());
        let known: BTreeSet<u32> = writes.collect();
        for &slot in &in_sync {
            let holds_all = self.drives[slot].writes == known;
            assert!(holds_all || self.forked, "slot {slot}: {}", story(&found));
            tally.unnoticed += u32::from(!holds_all);
        }
        if in_sync.len() + self.tolerance < self.drives.len() {
            return;
        }
        tally.started += 1;
        let may_fail = in_sync.len() + self.tolerance > self.drives.len();
        self.change_membership(&mut table, &believed, mask, may_fail, &known);
        if let Some(live) = self.write_superblocks(&table) {
            tally.acknowledged += 1;
            self.acknowledge(&table, &live, tally.acknowledged);
        }
    }

    /// Every absent member is out; now and then a present one fails, comes back, or has been
    /// rebuilt.
    fn change_membership(
        &mut self,
        table: &mut Superblock,
        believed: &[bool],
        present: usize,
        may_fail: bool,
        known: &BTreeSet<u32>,
    ) {
        let epoch = table.epoch.next();
        let (at, wish) = (self.dice.roll(self.drives.len()), self.dice.roll(3));
        // A rebuild has run only if its table took effect: every member that it calls live has it.
        let has_it = |slot: usize| self.drives[slot].superblock.slots == table.slots;
        let mut live = (0..table.slots.len()).filter(|&slot| table.slots[slot].state.is_live());
        let took_effect = live.all(has_it);
        let mut changed = false;
        for (slot, record) in table.slots.iter_mut().enumerate() {
            let wish = (slot == at).then_some(wish);
            let here = present >> slot & 1 == 1;
            let state = match (record.state, believed[slot], wish) {
                (SlotState::InSync | SlotState::Rebuilding { .. }, false, _) => SlotState::Missing,
                (SlotState::InSync, true, Some(0)) if may_fail => SlotState::Failed,
                (SlotState::Missing | SlotState::Failed, _, Some(1)) if here => {
                    SlotState::Rebuilding { rebuilt_bytes: 0 }
                }
                (SlotState::Rebuilding { .. }, true, Some(2)) if took_effect => {
                    // It holds everything before any superblock says that it is in sync.
                    self.drives[slot].writes = known.clone();
                    SlotState::InSync
                }
                (state, _, _) => state,
            };
            if state != record.state {
                (record.state, record.since) = (state, epoch);
                changed = true;
            }
        }
        // An array in order may change its shape, in an epoch of its own.
        let in_order = table.slots.iter().all(|r| r.state == SlotState::InSync);
        if in_order && self.dice.roll(4) == 0 {
            table.layout.data_bytes += u64::from(table.strip_bytes);
            table.shape_since = epoch;
            changed = true;
        }
        if changed {
            table.advance();
        }
        table.generation = table.generation.next();
    }

    /// Writes the table to those that it calls live, in some order, until the power fails; gives
    /// them if it did not.
    fn write_superblocks(&mut self, table: &Superblock) -> Option<Vec<usize>> {
        let mut live: Vec<usize> = (0..table.slots.len())
            .filter(|&slot| table.slots[slot].state.is_live())
            .collect();
        let turn = self.dice.roll(live.len());
        live.rotate_left(turn);
        let written = self.dice.roll(live.len() * 2 + 1);
        for &slot in live.iter().take(written) {
            let old = &mut self.drives[slot].superblock;
            *old = Superblock {
                member: old.member,
                role: old.role,
                ..table.clone()
            };
        }
        (written >= live.len()).then_some(live)
    }

    /// A write reaches all that are live.
    fn acknowledge(&mut self, table: &Superblock, live: &[usize], write: u32) {
        for &slot in live {
            let in_sync = table.slots[slot].state == SlotState::InSync;
            self.forked |= in_sync && self.drives[slot].writes != self.acknowledged;
            self.drives[slot].writes.insert(write);
        }
        self.acknowledged.insert(write);
    }
}

/// Walks `count` times over twelve boots.
fn walks(count: u64, tolerance: usize) -> Tally {
    let mut tally = Tally::default();
    for seed in 0..count {
        let mut world = World::new(tolerance, seed);
        for _ in 0..12 {
            world.boot(&mut tally);
        }
    }
    println!("{tally:?}");
    tally
}

#[test]
fn no_member_that_missed_a_write_is_believed_and_a_majority_is_seldom_refused() {
    let tally = walks(10_000, 1);
    assert!(tally.acknowledged > 10_000, "{tally:?}");
    assert_eq!(tally.unnoticed, 0, "{tally:?}");
    assert!(tally.split * 50 < tally.started, "{tally:?}");
}

#[test]
fn halves_of_a_mirror_that_ran_apart_never_go_unnoticed() {
    let tally = walks(10_000, usize::from(MEMBERS) - 1);
    assert!(tally.acknowledged > 10_000, "{tally:?}");
    assert!(tally.split > 1000, "{tally:?}");
    assert_eq!(tally.unnoticed, 0, "{tally:?}");
}
