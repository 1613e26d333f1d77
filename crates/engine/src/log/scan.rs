//! What a recovery wants of a member's log, kept while the log is read batch by batch.
//!
//! An area of many megabytes holds mostly what is long retired. A [`Gather`] is given every batch
//! and keeps the records that may still count; of the others only what they say about numbers.
//!
//! Invariants:
//! * What it gives back makes the same recovery as all the batches would: a record is dropped only
//!   where the member's own batches, or the superblock that is believed, say that it is retired.
//! * It holds at most twice what counts so far, and [`SLACK_BYTES`].
//!
//! Deliberately absent: which record wins (`recover`), and reading.

use std::collections::BTreeMap;

use strake_format::{ArrayUuid, LogBatch, LogRecord, MemberUuid, Superblock};

use crate::canary::{self, Canary};
use crate::log::recover::RECOVERY_LANE;
use crate::log::window_image::MOVE_LANE;
use crate::proto::Found;

/// What may be kept in vain before the retired is dropped once more.
const SLACK_BYTES: usize = 1 << 20;

/// Whether the log areas have to be read, and below which operation everything is retired, as the
/// superblock says that will be believed; `None` where they need not be, or where there is none to
/// believe, which [`crate::Array::assemble`] then says.
pub fn log_base(found: &[Found]) -> Option<u64> {
    let superblock = authority(found)?;
    is_read(superblock).then_some(superblock.log_base)
}

/// The log areas are read: something may have to be replayed, or the log base is not above all
/// numbers that were used, as an older program left it.
pub(crate) fn is_read(superblock: &Superblock) -> bool {
    let wanted = !superblock.clean || !superblock.numbers_noted;
    wanted && (superblock.level.parity_count() > 0 || superblock.moving.is_some())
}

/// The superblock that will be believed about the array's settings.
pub fn authority(found: &[Found]) -> Option<&Superblock> {
    let superblocks: Vec<Superblock> = found.iter().map(|f| f.superblock.clone()).collect();
    let selection = strake_format::select_array(&superblocks).ok()?;
    Some(&found[selection.authority].superblock)
}

/// See the module.
#[derive(Debug)]
pub struct Gather {
    array: ArrayUuid,
    member: MemberUuid,
    base: u64,
    lanes: BTreeMap<u16, LogBatch>,
    kept: Vec<LogBatch>,
    kept_bytes: usize,
    /// Drop what is retired when so much is kept.
    sweep_at: usize,
}

impl Gather {
    /// For the log of the member that carries this superblock; `base` as [`log_base`] says.
    pub fn new(superblock: &Superblock, base: u64) -> Gather {
        Gather {
            array: superblock.array,
            member: superblock.member,
            base,
            lanes: BTreeMap::new(),
            kept: Vec::new(),
            kept_bytes: 0,
            sweep_at: SLACK_BYTES,
        }
    }

    /// Takes the next batch. Batches of other arrays and members do not count.
    pub fn take(&mut self, mut batch: LogBatch) {
        if (batch.array, batch.member) != (self.array, self.member) {
            return;
        }
        let old = |batch: &LogBatch| batch.records.iter().all(|r| r.operation < self.base);
        if batch.lane == RECOVERY_LANE && old(&batch) {
            // Of a recovery that has ended. How far it came must not be taken for how far a later
            // one did, of which a member may hold less than it does of that.
            return;
        }
        let records = std::mem::take(&mut batch.records);
        // How far the lane has come counts though no record of it may.
        match self.lanes.get_mut(&batch.lane) {
            Some(lane) => {
                lane.retired_before = lane.retired_before.max(batch.retired_before);
                lane.sequence = lane.sequence.max(batch.sequence);
            }
            None => {
                self.lanes.insert(batch.lane, batch.clone());
            }
        }
        batch.records = records;
        self.retain(&mut batch);
        if batch.records.is_empty() {
            return;
        }
        self.kept_bytes += bytes(&batch);
        self.kept.push(batch);
        if self.kept_bytes >= self.sweep_at {
            self.sweep();
        }
    }

    /// What counts; for [`Found::log`].
    pub fn finish(mut self) -> Vec<LogBatch> {
        self.sweep();
        self.kept.extend(self.lanes.into_values());
        self.kept
    }

    /// Below this everything of a lane is retired.
    fn retired_before(&self, lane: u16) -> u64 {
        let said = |lane| self.lanes.get(&lane).map_or(0, |l| l.retired_before);
        self.base.max(said(lane)).max(said(RECOVERY_LANE))
    }

    fn retain(&self, batch: &mut LogBatch) {
        if batch.lane == MOVE_LANE && canary::hit(Canary::CopyOfAnyBase) {
            return;
        }
        let before = self.retired_before(batch.lane);
        batch.records.retain(|record| record.operation >= before);
    }

    fn sweep(&mut self) {
        let mut kept = std::mem::take(&mut self.kept);
        kept.iter_mut().for_each(|batch| self.retain(batch));
        kept.retain(|batch| !batch.records.is_empty());
        self.kept_bytes = kept.iter().map(bytes).sum();
        self.sweep_at = 2 * self.kept_bytes + SLACK_BYTES;
        self.kept = kept;
    }
}

/// Memory that the records of a batch take, about.
fn bytes(batch: &LogBatch) -> usize {
    let record = |r: &LogRecord| size_of::<LogRecord>() + r.record_bytes() + r.payload_bytes();
    batch.records.iter().map(record).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_format::{Epoch, LogPayload};

    const ARRAY: ArrayUuid = ArrayUuid([1; 16]);
    const MEMBER: MemberUuid = MemberUuid([2; 16]);

    fn batch(lane: u16, sequence: u64, retired_before: u64, operations: &[u64]) -> LogBatch {
        let record = |&operation: &u64| LogRecord {
            stripe: operation % 7,
            operation,
            start: 0,
            len: 4096,
            written: 1,
            checksums: vec![5].into(),
            settled: false,
            payload: LogPayload::PartialSyndrome {
                parity: 0,
                bytes: vec![operation as u8; 4096],
            },
        };
        LogBatch {
            array: ARRAY,
            member: MEMBER,
            lane,
            sequence,
            retired_before,
            epoch: Epoch(1),
            records: operations.iter().map(record).collect(),
        }
    }

    fn gather(base: u64) -> Gather {
        Gather {
            array: ARRAY,
            member: MEMBER,
            base,
            lanes: BTreeMap::new(),
            kept: Vec::new(),
            kept_bytes: 0,
            sweep_at: SLACK_BYTES,
        }
    }

    fn operations(log: &[LogBatch]) -> Vec<u64> {
        let records = log.iter().flat_map(|batch| &batch.records);
        let mut all: Vec<u64> = records.map(|r| r.operation).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_long_log_of_retired_writes_takes_little_memory() {
        let mut gather = gather(0);
        let mut most = 0;
        // 256 MiB of payloads; never more than 16 operations are under way.
        for operation in 0..65536u64 {
            let retired = operation.saturating_sub(16);
            gather.take(batch(0, operation, retired, &[operation]));
            let kept: usize = gather.kept.iter().map(bytes).sum();
            most = most.max(kept);
        }
        assert!(most < 3 * SLACK_BYTES, "{most} bytes were held");
        let log = gather.finish();
        assert_eq!(operations(&log), (65519..65536).collect::<Vec<u64>>());
    }

    #[test]
    fn what_is_retired_later_in_the_area_is_dropped_and_how_far_it_came_is_kept() {
        let mut gather = gather(10);
        gather.take(batch(0, 3, 12, &[12, 13]));
        gather.take(batch(1, 9, 11, &[9, 11, 14]));
        gather.take(batch(0, 4, 20, &[]));
        gather.take(batch(1, 2, 10, &[10]));
        let log = gather.finish();
        assert_eq!(operations(&log), [11, 14]);
        let far = |lane: u16| {
            let of_lane = log.iter().filter(|b| b.lane == lane);
            of_lane.map(|b| (b.retired_before, b.sequence)).max()
        };
        assert_eq!((far(0), far(1)), (Some((20, 4)), Some((11, 9))));
    }

    #[test]
    fn a_recovery_that_has_ended_says_nothing_of_a_later_one() {
        let mut gather = gather(40);
        gather.take(batch(RECOVERY_LANE, 4, 30, &[38, 39]));
        gather.take(batch(RECOVERY_LANE, 1, 35, &[44]));
        let log = gather.finish();
        assert_eq!(log.iter().map(|batch| batch.sequence).max(), Some(1));
        assert_eq!(operations(&log), [44]);
    }

    #[test]
    fn what_a_recovery_has_passed_counts_in_every_lane_and_foreign_batches_in_none() {
        let mut gather = gather(0);
        gather.take(batch(0, 1, 0, &[30, 40]));
        gather.take(batch(RECOVERY_LANE, 5, 35, &[50]));
        gather.take(batch(1, 1, 0, &[34, 36]));
        let foreign = LogBatch {
            member: MemberUuid([9; 16]),
            ..batch(0, 9, 100, &[100])
        };
        gather.take(foreign);
        assert_eq!(operations(&gather.finish()), [36, 40, 50]);
    }
}
