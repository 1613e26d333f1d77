//! How far a rebuild has come is made durable beside its next steps, and members that are whole
//! take their slots.
//!
//! Invariants:
//! * The row up to which a member counts as rebuilt in its superblock was flushed on it before.
//! * No step is at work while members take their slots, and none begins while they wait for that.

use crate::array::metadata::superblocks::SuperblockWaiter;
use crate::array::{Array, Purpose, SlotUse, Stage};
use crate::canary::{self, Canary};
use crate::proto::*;
use crate::units::*;

/// Rebuild targets are flushing; then those that are whole wait for a base of the log.
#[derive(Clone, Debug)]
pub(crate) struct Checkpoint {
    pending: usize,
    targets: Vec<Flushing>,
    /// One after this.
    base: Option<u64>,
}

/// A target, and how far it was rebuilt when it was to be flushed.
#[derive(Clone, Copy, Debug)]
struct Flushing {
    device: DeviceId,
    joined: u64,
    rebuilt: Row,
}

impl Checkpoint {
    /// Members that are whole wait to take their slots.
    pub(crate) fn joins(&self) -> bool {
        self.base.is_some()
    }
}

impl Array {
    /// Flushes the targets; then their progress is written down, and those that are whole take
    /// their slots.
    pub(crate) fn checkpoint(&mut self, row: Row) {
        self.jobs.checkpointed = row.0;
        let flushing = |slot: &SlotUse| {
            let (joined, rebuilt) = (slot.joined, slot.rebuilt);
            let flushing = |device| Flushing {
                device,
                joined,
                rebuilt,
            };
            slot.incoming().map(flushing)
        };
        let targets: Vec<Flushing> = self.table.slots().iter().filter_map(flushing).collect();
        self.jobs.checkpoint = Some(Checkpoint {
            pending: targets.len(),
            targets: targets.clone(),
            base: None,
        });
        for Flushing { device, .. } in targets {
            let kind = match canary::hit(Canary::CheckpointWithoutFlush) {
                true => read_of_nothing(),
                false => IoKind::Flush,
            };
            self.out.io(device, Purpose::Checkpoint { device }, kind);
        }
    }

    pub(crate) fn checkpoint_flushed(&mut self) {
        let Some(checkpoint) = &mut self.jobs.checkpoint else {
            return;
        };
        checkpoint.pending -= 1;
        if checkpoint.pending > 0 {
            return;
        }
        let flushed = std::mem::take(&mut checkpoint.targets);
        if self.stage == Stage::Failed {
            self.jobs.checkpoint = None;
            return;
        }
        for slot in self.table.slots_mut() {
            // One that joined during the flush was not flushed, and what was rebuilt during it was
            // not.
            let same = |target: &&Flushing| {
                (Some(target.device), target.joined) == (slot.incoming(), slot.joined)
            };
            if let Some(target) = flushed.iter().find(same) {
                let counts_on = canary::hit(Canary::CheckpointCountsOn);
                let row = if counts_on {
                    Row(u64::MAX)
                } else {
                    target.rebuilt
                };
                slot.flushed = row.min(slot.rebuilt);
            }
        }
        if self.whole_targets().is_empty() {
            self.jobs.checkpoint = None;
            return self.persist.touch();
        }
        let before = match canary::hit(Canary::JoinsWithoutBase) {
            true => 0,
            false => self.ask_for_base(),
        };
        if let Some(checkpoint) = &mut self.jobs.checkpoint {
            checkpoint.base = Some(before);
        }
    }

    /// Slots with an incoming member that is whole, durably.
    fn whole_targets(&self) -> Vec<usize> {
        let whole =
            |slot: &SlotUse| slot.incoming().is_some() && slot.flushed.0 >= self.geometry.rows;
        (0..self.table.slots().len())
            .filter(|&at| whole(&self.table.slots()[at]))
            .collect()
    }

    /// Members that are whole take their slots once the log has a base that they know of.
    pub(crate) fn drive_checkpoint(&mut self) {
        let base = (self.jobs.checkpoint.as_ref()).and_then(|checkpoint| checkpoint.base);
        let over = matches!(self.stage, Stage::Failed | Stage::Stopped);
        let works = self.jobs.works();
        if over || works || !base.is_some_and(|before| self.base_since(before)) {
            return;
        }
        self.jobs.checkpoint = None;
        let finished = self.whole_targets();
        if finished.is_empty() {
            // They left while they waited.
            return;
        }
        for at in finished {
            let taken = self.table.take_slot(at, self.sb.epoch.next());
            let slot = Slot(at as u8);
            let whole = SuperblockWaiter::Rebuilt(slot, taken.device, taken.partial);
            self.persist.waiters.push(whole);
            let replaced = taken.replaced.map(SuperblockWaiter::Replaced);
            self.persist.waiters.extend(replaced);
        }
        self.membership_changed();
        if self.map.flagged() && self.table.whole() {
            self.sb.whole_since = self.sb.epoch;
        }
        if self.rebuild_row().is_none() {
            self.jobs.rebuild = None;
            self.persist.waiters.push(SuperblockWaiter::RebuildOver);
        }
    }
}
