//! Aimed misfortunes: what a focused world does to the stripe log and to its replay.
//!
//! Chains of events that break a log are rare under average chances: a power cut within the few
//! writes of a replay, then the loss of just those members that hold a record, or that were being
//! written. A [`Focus`] of the plan makes them frequent in a share of the seeds, and leaves the
//! others as they are.
//!
//! Invariant: aiming chooses among what the atlas permits; it permits nothing.
//!
//! Deliberately absent: what is fair (`atlas`), and what such a world does otherwise (`plan`).

use strake_engine::geometry::Geometry;
use strake_engine::units::{Slot, StripeNo};
use strake_format::log::scan;
use strake_format::{LogRecord, Superblock};

use crate::plan::Focus;
use crate::ssd::{Ssd, written};
use crate::world::{Drive, World};

/// So many of the newest operations in the logs are aimed at.
const NEWEST: usize = 4;

impl World {
    /// Is now the moment to cut a replay off? One of so many events of it is its last; with the
    /// focus on replays most of those while something of it is on its way in place.
    pub(crate) fn cuts_replay(&mut self) -> bool {
        if !self.machines().array.recovering() {
            return false;
        }
        let in_place = self.plan.focus == Focus::Replay && self.writes_in_place();
        self.chance.faults.one_in(if in_place { 4 } else { 300 })
    }

    /// With the focus on rings a crash waits until it hits records that are being written over,
    /// most often two batches of them on one member; what is at its end is cut off all the same.
    pub(crate) fn strikes_log(&mut self) -> bool {
        if self.plan.focus != Focus::Ring {
            return true;
        }
        let most = self
            .drives
            .iter()
            .map(|drive| self.written_over(drive))
            .max();
        match most {
            Some(0) | None => false,
            Some(1) => self.chance.faults.one_in(10),
            Some(_) => true,
        }
    }

    /// Batches in flight on a drive that go over records which the superblock does not call
    /// retired.
    fn written_over(&self, drive: &Drive) -> usize {
        let layout = &self.superblock.layout;
        let log = layout.log_offset..layout.log_offset + layout.log_bytes;
        let Some(superblock) = drive.superblock(self.array) else {
            return 0;
        };
        let counts = |(offset, len): &(u64, u64)| {
            let bytes = &drive.ssd.bytes()[*offset as usize..(offset + len) as usize];
            let batches = scan(bytes, *offset).into_iter().flatten();
            let mut records = batches.flat_map(|batch| batch.records);
            records.any(|record| record.operation >= superblock.log_base)
        };
        let writes = drive.ssd.kinds().filter_map(written);
        writes
            .filter(|(offset, _)| log.contains(offset))
            .filter(counts)
            .count()
    }

    /// With the focus on rings members are not equally fast, so that the oldest operation keeps the
    /// records of many others from being retired.
    pub(crate) fn slow_some(&mut self) {
        if self.plan.focus == Focus::Ring {
            self.slow_down(&[1, 5, 30]);
        }
    }

    /// Some member has a write of data or parity in flight.
    fn writes_in_place(&self) -> bool {
        let layout = &self.superblock.layout;
        let data = layout.data_offset..layout.data_offset + layout.data_bytes;
        let drives = self.drives.iter();
        let mut writes = drives
            .flat_map(|drive| drive.ssd.kinds())
            .filter_map(written);
        writes.any(|(offset, _)| data.contains(&offset))
    }

    /// All slots, in the order in which members are to be left out at a start: by chance, but first
    /// those that one of the newest records of the logs is about, where that is aimed at.
    pub(crate) fn victims(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.geometry.slots()).collect();
        self.chance.faults.shuffle(&mut order);
        if self.plan.focus == Focus::Wide {
            return order;
        }
        let mut records = self.newest_records();
        if records.is_empty() {
            return order;
        }
        let record = self.chance.faults.index(records.len());
        let (_, record) = records.swap_remove(record);
        let holders: Vec<usize> = (self.newest_records().into_iter())
            .filter(|(_, other)| other.operation == record.operation)
            .map(|(slot, _)| slot)
            .collect();
        // Either who was written and who knows of it, or who was left alone: what is computed for
        // those is only as good as the record.
        let written = columns(&self.geometry, &record);
        let aims_at_written = self.chance.faults.percent(60);
        order.sort_by_key(|slot| match aims_at_written {
            true => !(written.contains(slot) || holders.contains(slot)),
            false => written.contains(slot),
        });
        order
    }

    /// Records of the newest operations in the logs of the members that are there, each with the
    /// slot of the member that holds it.
    fn newest_records(&self) -> Vec<(usize, LogRecord)> {
        let mut records = Vec::new();
        for (index, superblock) in self.present() {
            let Some(slot) = superblock.slot_of(superblock.member) else {
                continue;
            };
            let found = records_of(&self.drives[index].ssd, &superblock);
            records.extend(found.into_iter().map(|record| (slot.index(), record)));
        }
        let mut operations: Vec<u64> = records.iter().map(|(_, r)| r.operation).collect();
        operations.sort_unstable();
        operations.dedup();
        let least = operations
            .get(operations.len().saturating_sub(NEWEST))
            .copied();
        records.retain(|(_, record)| Some(record.operation) >= least);
        records
    }
}

/// The slots that a record's write changes, parities left out.
fn columns(geometry: &Geometry, record: &LogRecord) -> Vec<usize> {
    let changed = (0..geometry.k).filter(|column| record.written & (1 << column) != 0);
    let slot = |column| geometry.slot(StripeNo(record.stripe), column);
    changed.map(slot).map(Slot::index).collect()
}

fn records_of(ssd: &Ssd, superblock: &Superblock) -> Vec<LogRecord> {
    let layout = &superblock.layout;
    let area = ssd.peek(layout.log_offset, layout.log_bytes as usize);
    let batches = scan(area.unwrap_or(&[]), layout.log_offset);
    let ours = batches
        .into_iter()
        .flatten()
        .filter(|batch| (batch.array, batch.member) == (superblock.array, superblock.member));
    ours.flat_map(|batch| batch.records).collect()
}
