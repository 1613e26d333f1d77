//! Aimed misfortunes: what a focused world does to the stripe log and to its replay.
//!
//! Chains of events that break a log are rare under average chances: a power cut within the few
//! writes of a replay, then the loss of just those members that hold a record, or that were being
//! written. A [`Focus`] of the plan makes them frequent in a share of the seeds, and leaves the
//! others as they are.
//!
//! Invariant: aiming chooses among the faults that the tolerance rules permit; it permits none by
//! itself.
//!
//! Deliberately absent: what is fair (`fault::tolerance`), and what such a world does otherwise
//! (`plan`).

use std::collections::BTreeMap;
use std::sync::Arc;

use strake_engine::geometry::Geometry;
use strake_engine::geometry::Shape;
use strake_engine::units::{Slot, StripeNo};
use strake_format::log::scan;
use strake_format::{LogPayload, LogRecord, Superblock, checksum};

use crate::drive::{Ssd, written};
use crate::plan::Focus;
use crate::world::{Drive, World};

/// So many of the newest operations in the logs are aimed at.
const NEWEST: usize = 4;
/// And so many where very many are at work at a time.
const NEWEST_DEEP: usize = 48;

impl World {
    /// Is now the moment to cut a replay off? One of so many events of it is its last; with the
    /// focus on replays most of those while something of it is on its way in place.
    pub(crate) fn cuts_replay(&mut self) -> bool {
        if !self.array().recovering() {
            return false;
        }
        let in_place = self.plan.focus == Focus::Replay && self.writes_in_place();
        self.chance.faults.one_in(if in_place { 4 } else { 300 })
    }

    /// Does the crash come now? It is `due` by the plan, or not; a focus waits for its moment.
    pub(crate) fn strikes(&mut self, due: bool) -> bool {
        match self.plan.focus {
            Focus::Wide | Focus::Replay | Focus::Join => due,
            Focus::Ring => due && self.strikes_log(),
            Focus::Deep => due && self.writes_in_place() && self.strikes_half(),
            Focus::Return => due || self.is_whole_again() && self.chance.faults.one_in(4),
        }
    }

    /// With the focus on depth a crash hits writes that are half in place, most often such as only
    /// few could tell of after the loss of one member more.
    fn strikes_half(&mut self) -> bool {
        if !self.chance.faults.one_in(10) {
            return false;
        }
        let shape = self.shape_on_media();
        let records = self.newest_records(&shape, self.newest_aimed_at());
        let (_, aside) = self.half_in_place(&shape, &records);
        !aside.is_empty() || self.chance.faults.one_in(20)
    }

    /// The user has asked all that it wanted to, and every member is in sync, durably.
    fn is_whole_again(&mut self) -> bool {
        let over = self.is_content() && self.serves();
        over && self.situation().slots.iter().all(|slot| slot.intact)
    }

    /// With the focus on rings a crash waits until it hits records that are being written over,
    /// most often two batches of them on one member; what is at its end is cut off all the same.
    fn strikes_log(&mut self) -> bool {
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
        let Some(superblock) = drive.superblock(self.superblock.array) else {
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
    /// records of many others from being retired; with that on depth, so that records wait for one
    /// member and not for another.
    pub(crate) fn slow_some(&mut self) {
        match self.plan.focus {
            Focus::Ring => self.slow_down(&[1, 5, 30]),
            Focus::Deep => self.slow_down(&[3, 8, 30]),
            _ => {}
        }
    }

    /// With the focus on depth most lives begin with a look at everything: the user is about to
    /// write over what the last one left.
    pub(crate) fn reads_first(&mut self) -> bool {
        self.plan.focus == Focus::Deep && self.chance.faults.percent(75)
    }

    /// Some member has a write of data or parity in flight.
    pub(crate) fn writes_in_place(&self) -> bool {
        let layout = &self.superblock.layout;
        self.writes_to(layout.data_offset..layout.data_offset + layout.data_bytes)
    }

    /// Some member has a write to its log in flight.
    pub(crate) fn writes_to_logs(&self) -> bool {
        let layout = &self.superblock.layout;
        self.writes_to(layout.log_offset..layout.log_offset + layout.log_bytes)
    }

    fn writes_to(&self, area: std::ops::Range<u64>) -> bool {
        let drives = self.drives.iter();
        let mut writes = drives
            .flat_map(|drive| drive.ssd.kinds())
            .filter_map(written);
        writes.any(|(offset, _)| area.contains(&offset))
    }

    /// All slots, in the order in which members are to be left out at a start: by chance, but first
    /// those that one of the newest records of the logs is about, where that is aimed at.
    pub(crate) fn victims(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.geometry.slots()).collect();
        let shape = self.shape_on_media();
        self.chance.faults.shuffle(&mut order);
        if let Some(of_data) = self.victims_of_spoilt() {
            order.sort_by_key(|slot| !of_data.contains(slot));
            return order;
        }
        if let Some(beside) = self.victims_beside_torn(&shape) {
            order.sort_by_key(|slot| !beside.contains(slot));
            return order;
        }
        if self.plan.focus == Focus::Wide {
            return order;
        }
        let records = self.newest_records(&shape, self.newest_aimed_at());
        let mut about: Vec<&LogRecord> = records.iter().map(|(_, record)| record).collect();
        if self.plan.focus == Focus::Deep {
            let (halved, aside) = self.half_in_place(&shape, &records);
            let best = [aside, halved].into_iter().find(|some| !some.is_empty());
            about = best.unwrap_or(about);
        }
        if about.is_empty() {
            return order;
        }
        let record = about[self.chance.faults.index(about.len())];
        let of_it = records.iter().filter(|(_, other)| same(record, other));
        let holders: Vec<usize> = of_it.clone().map(|(slot, _)| *slot).collect();
        if self.plan.focus == Focus::Deep && self.chance.faults.percent(40) {
            let of_syndrome = of_it.filter(|(_, other)| holds_syndrome(other));
            let holders: Vec<usize> = of_syndrome.map(|(slot, _)| *slot).collect();
            order.sort_by_key(|slot| !holders.contains(slot));
            return order;
        }
        // Either the members that were written and those that hold the record, or the members that
        // were left alone: what is computed for the latter is only as good as the record.
        let written = columns(&shape, record);
        let aims_at_written = self.chance.faults.percent(60);
        order.sort_by_key(|slot| match aims_at_written {
            true => !(written.contains(slot) || holders.contains(slot)),
            false => written.contains(slot),
        });
        order
    }

    /// The last crash left a block with some of its sectors new.
    pub(crate) fn tore_a_block(&self) -> bool {
        !self.expected.torn_on.is_empty()
    }

    /// Of a write of several columns that left a block torn between its sectors, most often: the
    /// slots of the others. What they held is computed beside that block.
    fn victims_beside_torn(&mut self, shape: &Geometry) -> Option<Vec<usize>> {
        if self.expected.torn_on.is_empty() || !self.chance.faults.percent(80) {
            return None;
        }
        let present = self.present();
        let slots: BTreeMap<usize, usize> = present
            .iter()
            .filter_map(|(index, sb)| Some((sb.slot_of(sb.member)?.index(), *index)))
            .collect();
        let torn = |record: &LogRecord, slot: usize| {
            let (_, row) = shape.row(StripeNo(record.stripe));
            let strip = self.superblock.layout.data_offset + row.0 * shape.strip;
            let from = strip + u64::from(record.start);
            let range = from..from + u64::from(record.len);
            let on = self.expected.torn_on.iter();
            let mut on = on.filter(|(drive, _)| slots.get(&slot) == Some(drive));
            on.any(|(_, offset)| range.contains(offset))
        };
        let beside = |record: &LogRecord| {
            let written = columns(shape, record);
            let (torn, others): (Vec<usize>, Vec<usize>) =
                written.into_iter().partition(|&slot| torn(record, slot));
            (!torn.is_empty() && !others.is_empty()).then_some(others)
        };
        let records = self.newest_records(shape, NEWEST_DEEP);
        let found: Vec<Vec<usize>> = records.iter().filter_map(|(_, r)| beside(r)).collect();
        let chosen = self.chance.faults.index(found.len().max(1));
        found.into_iter().nth(chosen)
    }

    /// So many of the newest operations are aimed at.
    fn newest_aimed_at(&self) -> usize {
        match self.plan.focus {
            Focus::Deep => NEWEST_DEEP,
            _ => NEWEST,
        }
    }

    /// Records of the newest operations in the logs of the members that are there, each with the
    /// slot of the member that holds it.
    fn newest_records(&self, shape: &Geometry, newest: usize) -> Vec<(usize, LogRecord)> {
        let mut records = Vec::new();
        for (index, superblock) in self.present() {
            let Some(slot) = superblock.slot_of(superblock.member) else {
                continue;
            };
            let mut found = records_of(&self.drives[index].ssd, &superblock);
            // Those of another shape may have other numbers.
            found.retain(|record| {
                let stripe = StripeNo(record.stripe);
                stripe.0 < shape.stripes() && shape.exists(stripe)
            });
            records.extend(found.into_iter().map(|record| (slot.index(), record)));
        }
        let mut operations: Vec<u64> = records.iter().map(|(_, r)| r.operation).collect();
        operations.sort_unstable();
        operations.dedup();
        let least = operations
            .get(operations.len().saturating_sub(newest))
            .copied();
        records.retain(|(_, record)| Some(record.operation) >= least);
        records
    }

    /// The newest shape that a superblock tells of: it is durable before anybody is told of it.
    fn shape_on_media(&self) -> Arc<Geometry> {
        let present = self.present();
        let newest = present
            .iter()
            .max_by_key(|(_, sb)| (sb.epoch, sb.generation));
        match newest {
            Some((_, sb)) if !same_columns(sb, &self.geometry) => Arc::new(Geometry::of(sb)),
            _ => Arc::clone(&self.geometry),
        }
    }

    /// The records of writes that are in place in some columns and not in others; and those of them
    /// that belong to a write of different columns along its run, the partial syndrome of which
    /// lies beside data.
    fn half_in_place<'a>(
        &self,
        shape: &Geometry,
        records: &'a [(usize, LogRecord)],
    ) -> (Vec<&'a LogRecord>, Vec<&'a LogRecord>) {
        let mut drives = vec![None; shape.slots()];
        for (index, superblock) in self.present() {
            let slot = superblock.slot_of(superblock.member);
            if let Some(place) = slot.and_then(|slot| drives.get_mut(slot.index())) {
                *place = Some(index);
            }
        }
        let halved = |record: &&LogRecord| {
            let columns = columns_with_sums(shape, record);
            // A shape that has lost its last parity has none of the columns of records from before.
            let sums = record.checksums.len();
            let blocks = sums.checked_div(columns.len()).unwrap_or(0);
            if blocks == 0 {
                return false;
            }
            let is_new = |(&column, sums): (&usize, &[u32])| {
                let slot = shape.slot(StripeNo(record.stripe), column);
                let content = self.content_of(drives[slot.index()]?, record)?;
                let blocks = content.chunks(content.len() / blocks);
                Some(blocks.map(checksum::crc32c).eq(sums.iter().copied()))
            };
            let mut new = columns
                .iter()
                .zip(record.checksums.chunks(blocks))
                .filter_map(is_new);
            let first = new.next();
            new.any(|other| Some(other) != first)
        };
        let halved: Vec<&LogRecord> = records.iter().map(|(_, r)| r).filter(halved).collect();
        let aside = |record: &&LogRecord| {
            let stripe = StripeNo(record.stripe);
            let mut others = records.iter().filter(|(_, other)| same(record, other));
            let parts = others.clone().any(|(_, other)| other.start != record.start);
            let is_data = |slot: usize| {
                let column = shape.column(stripe, Slot(slot as u8));
                column.is_some_and(|column| column < shape.k)
            };
            parts && others.any(|(slot, other)| holds_syndrome(other) && is_data(*slot))
        };
        let aside = halved.iter().copied().filter(aside).collect();
        (halved, aside)
    }

    /// What a drive holds where a record's write goes.
    fn content_of(&self, drive: usize, record: &LogRecord) -> Option<&[u8]> {
        let (_, row) = self.geometry.row(StripeNo(record.stripe));
        let strip = self.superblock.layout.data_offset + row.0 * self.geometry.strip;
        let offset = strip + u64::from(record.start);
        self.drives[drive].ssd.peek(offset, record.len as usize)
    }
}

/// Do they tell of one write?
fn same(a: &LogRecord, b: &LogRecord) -> bool {
    (a.operation, a.stripe) == (b.operation, b.stripe)
}

fn holds_syndrome(record: &LogRecord) -> bool {
    matches!(record.payload, LogPayload::PartialSyndrome { .. })
}

/// The columns that a record has checksums of, in their order.
fn columns_with_sums(geometry: &Geometry, record: &LogRecord) -> Vec<usize> {
    let Shape { width, k, .. } = geometry.columns(StripeNo(record.stripe));
    let changed = |column: &usize| *column >= k || record.written & (1 << column) != 0;
    (0..width).filter(changed).collect()
}

/// The slots that a record's write changes, parities left out.
fn columns(geometry: &Geometry, record: &LogRecord) -> Vec<usize> {
    let k = geometry.columns(StripeNo(record.stripe)).k;
    let changed = (0..k).filter(|column| record.written & (1 << column) != 0);
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

/// Whether this superblock tells of the columns that the shape has.
fn same_columns(sb: &strake_format::Superblock, geometry: &Geometry) -> bool {
    let strips = (u64::from(sb.strip_bytes), u64::from(sb.band_rows));
    let groups = usize::from(sb.group_size) == geometry.width;
    let numbers = Geometry::of(sb).per_row == geometry.per_row;
    let slots = sb.slots.len() == geometry.slots();
    slots && groups && numbers && strips == (geometry.strip, geometry.band)
}
