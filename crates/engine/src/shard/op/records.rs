//! What a write puts into the stripe log: which records, on which members; and how operations go on
//! when records are durable, or retired.
//!
//! The run of the operation is cut where the set W of written columns changes; each part has an
//! intent (with a checksum of every new block of W and of the parities). Parity members get S_j in
//! addition, and others where the invariants below say so, unless W is all of the data. Every
//! holder gets the new content of those columns of W that have no member in sync: how far one that
//! is being rebuilt has come is not durable at once.
//!
//! S_j = P_j + Σ_{i∈W} c_ji·D_i with P_j and D_i as they will be: what is left are the columns that
//! the write does not touch. So it is the same for every plan of the write.
//!
//! Invariants:
//! * With m parities and l members of the group lost already, m − l + 1 members in sync hold the
//!   intent, so one of them is there after any losses that the level survives.
//! * Where the old content is known, the intent comes with a record of the units that the write
//!   leaves as they are: that they hold what it writes does not tell that it began.
//! * S_j is on the member of parity j: without that parity nobody asks for it. With one parity and
//!   no member lost it may be on the member of a column instead that is written over all of the
//!   run: without that one, all that the write does not touch is there.
//! * Every holder has as many S_j as columns that the write leaves alone have no member in sync. A
//!   crash loses those at least: a record that says that the write may have begun says what they
//!   held, however many others were cut off. Where zeros are written over what is not known, every
//!   holder has as many as can be lost.
//! * What is to replace a holder holds the same, because it may take its place while the operation
//!   is under way; and so does every member that is being rebuilt and holds the stripe by now,
//!   because l becomes less when it is in sync.

use std::sync::Arc;

use strake_format::{LogPayload, checksum};

use crate::canary::{self, Canary};
use crate::geometry::Shape;
use crate::geometry::column_set::Columns;
use crate::log::layout::{Record, Records};
use crate::log::recover::Unchanged;
use crate::mem::buffer::Slice;
use crate::mem::list::{Brief, List, listed};
use crate::proto::*;
use crate::shard::Shard;
use crate::shard::log_writer::{Flight, SumsUnit};
use crate::shard::op::StripeOp;
use crate::shard::op::kind::{Kind, Phase, WriteOp};
use crate::shard::retire::Retiring;
use crate::stripe::log_records::{NewContent, Part};
use crate::units::*;

/// A member that holds records of an operation, and of which parity the partial syndrome.
type Holder = (DeviceView, Option<usize>);

/// What all holders get of a part.
struct Logged {
    /// The intent, once for each unit of checksums.
    intents: List<Record>,
    /// What it leaves as it is, if that is anything.
    unchanged: Option<Record>,
    /// Columns of W that have no member in sync.
    lost: Columns,
    /// So many partial syndromes.
    on_all: usize,
}

listed!(Holder, (usize, Option<usize>), Logged);

impl Shard {
    /// The members of a stripe's group that hold the intent of a write that puts new content into
    /// these columns over all of its run. Where there is a choice, those that have a batch to write
    /// anyway.
    fn holders(&self, stripe: StripeNo, written: Columns) -> List<Holder, 4> {
        let Shape { width, k, .. } = self.map.shape(stripe);
        let m = self.map.geometry().m;
        let in_sync =
            |c: &usize| self.map.whole() || self.map.slot_view(stripe, *c).current.is_some();
        let mut free = Columns::default();
        (0..width).filter(in_sync).for_each(|c| free.add(c));
        let needed = (m + 1).saturating_sub(width - free.count()).max(1);
        let mut holders: List<(usize, Option<usize>), 4> = List::new();
        if m == 1 && free.count() == width {
            let or_written = (0..k).filter(|&c| written.has(c));
            let column = self.busiest(stripe, std::iter::once(k).chain(or_written));
            holders.push((column.expect("the parity is one of them"), Some(0)));
        } else {
            let parities = (0..m).filter(|j| free.has(k + j));
            holders.extend(parities.map(|j| (k + j, Some(j))));
        }
        for &(c, _) in &holders {
            free = free.without(c);
        }
        while holders.len() < needed {
            let column = self.busiest(stripe, (0..width).filter(|&c| free.has(c)));
            let column = column.expect("as many are in sync");
            free = free.without(column);
            holders.push((column, None));
        }
        // Once those that are being rebuilt are in sync, one more may be lost for each.
        let built = |c: &usize| !in_sync(c) && self.map.has_target(stripe, *c);
        if !canary::hit(Canary::RebuiltGetNoRecords) {
            holders.extend((0..width).filter(built).map(|c| (c, c.checked_sub(k))));
        }
        if canary::hit(Canary::IntentOnOneMember) {
            holders.truncate(1);
        }
        let with_targets = |(c, parity): (usize, Option<usize>)| {
            let members = self.map.targets(stripe, c).into_iter().flatten();
            members.map(move |member| (member, parity))
        };
        holders.drain().flat_map(with_targets).collect()
    }

    /// The first of these columns with a member that has records to write, or the first of all.
    fn busiest(&self, stripe: StripeNo, columns: impl Iterator<Item = usize>) -> Option<usize> {
        let mut first = None;
        for column in columns {
            let member = self.map.slot_view(stripe, column).current;
            if member.is_some_and(|member| self.logs.waits(member.device)) {
                return Some(column);
            }
            first = first.or(Some(column));
        }
        first
    }

    /// Queues the records of an operation on each member that is to hold some; on how many.
    pub(crate) fn log_write(&mut self, key: usize, operation: u64, new: &NewContent) -> usize {
        let (stripe, k) = (self.ops[key].stripe, self.ops[key].k);
        let group = self
            .map
            .geometry()
            .log_group(self.map.geometry().slot(stripe, 0));
        let parts = new.parts();
        let all: List<Logged, 2> = parts
            .iter()
            .map(|part| self.logged_of(key, operation, new, part))
            .collect();
        let lo = self.ops[key].lo;
        // What one part writes may be what another leaves alone.
        let columns = parts.iter().map(|part| part.written.0);
        let written = match canary::hit(Canary::SyndromeBesideUntouched) {
            true => columns.fold(0, |any, part| any | part),
            false => columns.fold(u64::MAX, |all, part| all & part),
        };
        let holders = self.holders(stripe, Columns(written));
        for &(member, parity) in &holders {
            let mut records = Records::new();
            for (part, logged) in parts.iter().zip(&all) {
                records.extend(logged.intents.iter().cloned());
                let intent = &logged.intents[0];
                let bare = |payload| Record {
                    checksums: self.logs.sums.none(),
                    payload,
                    ..*intent
                };
                let syndrome = |j: usize| {
                    let (from, len) = (part.lo - lo, part.hi - part.lo);
                    let bytes = new.syndromes[j].as_ref()?;
                    let bytes = bytes.part(from as usize, len as usize);
                    let parity = j as u8;
                    Some(bare(LogPayload::PartialSyndrome { parity, bytes }))
                };
                if part.written.count() < k && !canary::hit(Canary::SyndromeForgotten) {
                    let others = (0..new.syndromes.len()).filter(|j| Some(*j) != parity);
                    let all = parity.into_iter().chain(others);
                    let own = usize::from(parity.is_some());
                    records.extend(all.filter_map(syndrome).take(own.max(logged.on_all)));
                }
                let strips = (0..k).filter(|&c| logged.lost.has(c));
                records.extend(strips.map(|c| {
                    bare(LogPayload::LostStrip {
                        column: c as u8,
                        bytes: new.column(c, part),
                    })
                }));
            }
            let unchanged = all.iter().filter_map(|logged| logged.unchanged.as_ref());
            if self.logs.fits(&records, unchanged.clone()) {
                records.extend(unchanged.cloned());
            }
            self.logs
                .queue_records(key, operation, (group.clone(), member), records);
        }
        holders.len()
    }

    /// What all holders get of a part.
    fn logged_of(&mut self, key: usize, operation: u64, new: &NewContent, part: &Part) -> Logged {
        let stripe = self.ops[key].stripe;
        let units: List<SumsUnit, 2> = self.logs.units().iter().copied().collect();
        let of_unit = |unit: &SumsUnit| self.intent(key, operation, new, part, *unit);
        let intents: List<Record> = units.iter().map(of_unit).collect();
        // What a replay decides by.
        let (Some(finest), Some(intent)) = (units.last(), intents.last()) else {
            unreachable!("records have checksums of blocks");
        };
        let unchanged = self.unchanged(key, new, part, finest.bytes, intent);
        let lost = self.without_member(stripe, part.written);
        let on_all = match self.may_repeat(key, part, finest, intent) {
            true => {
                let may_be_lost = self.map.geometry().m.saturating_sub(lost.count());
                may_be_lost.min(self.ops[key].k - part.written.count())
            }
            false => self.untouched_lost(stripe, part),
        };
        Logged {
            intents,
            unchanged,
            lost,
            on_all,
        }
    }

    /// Those of the written columns that have no member in sync.
    fn without_member(&self, stripe: StripeNo, written: Columns) -> Columns {
        let mut lost = Columns::default();
        if self.map.whole() {
            return lost;
        }
        let without =
            |c: &usize| written.has(*c) && self.map.slot_view(stripe, *c).current.is_none();
        if !canary::hit(Canary::LostStripForgotten) {
            (0..self.map.shape(stripe).k)
                .filter(without)
                .for_each(|c| lost.add(c));
        }
        lost
    }

    /// How many of the columns that the part leaves alone have no member in sync.
    fn untouched_lost(&self, stripe: StripeNo, part: &Part) -> usize {
        if self.map.whole() || canary::hit(Canary::SyndromesApart) {
            return 0;
        }
        let without =
            |c: &usize| !part.written.has(*c) && self.map.slot_view(stripe, *c).current.is_none();
        (0..self.map.shape(stripe).k).filter(without).count()
    }

    /// A column may hold before the write what it is to hold, and that is not known: the part puts
    /// zeros there. Other content hardly ever is what lies there already.
    fn may_repeat(&self, key: usize, part: &Part, unit: &SumsUnit, intent: &Record) -> bool {
        let op = &self.ops[key];
        let Kind::Write(write) = &op.kind else {
            return false;
        };
        let units = (part.hi - part.lo) as usize / unit.bytes;
        let mut columns = part.written.each().zip(intent.checksums.chunks(units));
        part.written.count() > 1
            && !canary::hit(Canary::SyndromesApart)
            && columns.any(|(c, sums)| {
                sums.contains(&unit.of_zeros) && before(op, write, part, c).is_none()
            })
    }

    fn intent(
        &mut self,
        key: usize,
        operation: u64,
        new: &NewContent,
        part: &Part,
        unit: SumsUnit,
    ) -> Record {
        let mut sums = self.logs.sums.take();
        let op = &self.ops[key];
        let checksums = Arc::get_mut(&mut sums).expect("nobody else holds it");
        self.put_checksums(op, new, part, unit, checksums);
        let intent = Record {
            stripe: op.stripe.0,
            operation,
            start: part.lo as u32,
            len: (part.hi - part.lo) as u32,
            written: part.written.0,
            checksums: sums,
            settled: false,
            payload: LogPayload::None,
        };
        self.logs.sums.lend(&intent.checksums);
        intent
    }

    /// A record of what the write leaves as it is, where it is known what lay there; `None` where
    /// that is nothing. A replay that finds such a unit does not take it for written.
    fn unchanged(
        &mut self,
        key: usize,
        new: &NewContent,
        part: &Part,
        unit: usize,
        intent: &Record,
    ) -> Option<Record> {
        let op = &self.ops[key];
        let Kind::Write(write) = &op.kind else {
            return None;
        };
        let len = (part.hi - part.lo) as usize;
        let columns: Brief<Change> = (part.written.each())
            .map(|c| (new.column(c, part), before(op, write, part, c)))
            .collect();
        if canary::hit(Canary::UnchangedIsBegun) || !unchanged(&columns, len, unit).any(|is| is) {
            return None;
        }
        let mut sums = self.logs.sums.take();
        let flags = Arc::get_mut(&mut sums).expect("nobody else holds it");
        Unchanged::encode(unit as u64, unchanged(&columns, len, unit), flags);
        self.logs.sums.lend(&sums);
        Some(Record {
            written: 0,
            checksums: sums,
            ..intent.clone()
        })
    }

    /// The checksums of every unit of new content.
    fn put_checksums(
        &self,
        op: &StripeOp,
        new: &NewContent,
        part: &Part,
        unit: SumsUnit,
        checksums: &mut Vec<u32>,
    ) {
        let len = (part.hi - part.lo) as usize;
        let sums = |slice: &[u8], all: &mut Vec<u32>| {
            all.extend(slice.chunks(unit.bytes).map(checksum::crc32c));
        };
        let k = op.k;
        (0..k)
            .filter(|&c| part.written.has(c))
            .for_each(|c| sums(new.column(c, part).bytes(), checksums));
        let from = (part.lo - op.lo) as usize;
        for (j, parity) in new.parity.iter().enumerate() {
            match parity {
                // The first parity is the sum of the data.
                Some(_) if j == 0 && part.written.count() == k => {
                    let count = len / unit.bytes;
                    for at in 0..count {
                        let data = checksums[at..].iter().step_by(count).copied();
                        let sum = checksum::crc32c_of_sum(data.take(k), unit.of_zeros);
                        checksums.push(sum);
                    }
                }
                Some(slice) => sums(&slice.bytes()[from..from + len], checksums),
                None => checksums.extend(std::iter::repeat_n(0, len / unit.bytes)),
            }
        }
    }

    // ---- on the way --------------------------------------------------------------------------

    /// Goes on with what waits for records to be retired, or writes records that wait; true if
    /// there is something to put out or to go on with.
    pub(crate) fn pump_logs(&mut self) -> bool {
        if !self.logs.is_due() {
            return false;
        }
        if self.logs.any_retiring() && self.drive_retiring() {
            return true;
        }
        self.logs.write(self.ops.len(), &self.map, &mut self.out);
        // What was to be published while records are retired does not wait for the commit.
        !self.out.is_empty()
    }

    /// A batch was written, or not.
    pub(crate) fn batch_written(&mut self, flight: Flight, result: Result<(), IoError>) {
        let device = flight.device;
        let ops = self.logs.written(flight, result, &self.map, &mut self.out);
        if ops.is_empty() {
            // It published, and regions are closed only when nothing does.
            self.gates.say_closed(&self.logs, &mut self.out);
        }
        for &op in &ops {
            self.record_written(op, device, result.is_err());
        }
    }

    /// A view came: records for members that left count as failed, and numbers may begin anew.
    pub(crate) fn logs_follow_view(&mut self) {
        for (op, device) in self.logs.drop_lanes(self.map.view()) {
            self.record_written(op, device, true);
        }
        self.logs.follow_sectors(&self.map);
        let began = self.ops.iter().filter(|(_, op)| op.began());
        let began = began.map(|(key, _)| key);
        let view = self.map.view();
        self.logs.begin_drain(view, began, &mut self.out);
    }

    // ---- records that must not be replayed (`retire`) ----------------------------------------

    /// True if no record can count that tells of the operation's run. Otherwise the operation
    /// waits, and goes on by [`Shard::records_retired`].
    pub(crate) fn outlives_records(&mut self, key: usize) -> bool {
        let op = &mut self.ops[key];
        let waits = Retiring::new(key, op.stripe, &self.logs, &self.map);
        if waits.is_over(&self.logs, &self.map) || canary::hit(Canary::RecordsOutlived) {
            return true;
        }
        op.phase = Phase::Retiring;
        self.logs.wait_to_retire(waits);
        false
    }

    /// Puts in place what the operation has computed, once no record tells of what lay there.
    pub(crate) fn change_in_place(&mut self, key: usize) {
        if self.outlives_records(key) {
            self.put_in_place(key);
        }
    }

    /// Goes on with what waited; true if there was something.
    fn drive_retiring(&mut self) -> bool {
        let mut waiting = self.logs.take_retiring();
        let all = waiting.len();
        waiting.retain(|waits| {
            let over = self.map.view().failed || waits.is_over(&self.logs, &self.map);
            match over {
                true => self.records_retired(waits.operation()),
                false => waits.publish(&mut self.logs, &self.map, &mut self.out),
            }
            !over
        });
        let gone_on = waiting.len() < all;
        for waits in waiting {
            self.logs.wait_to_retire(waits);
        }
        gone_on
    }

    fn records_retired(&mut self, key: usize) {
        if self.map.view().failed {
            self.finish_op(key, Some(RequestError::Failed));
        } else if self.ops[key].salvages() {
            self.salvage_next(key);
        } else if self.ops[key].undecided {
            self.prepare(key);
        } else {
            self.ops[key].phase = Phase::writing();
            self.put_in_place(key);
            self.end_without_writes(key);
        }
    }
}

/// What a column holds over a part before the write, if that was read or computed.
fn before<'a>(op: &'a StripeOp, write: &WriteOp, part: &Part, column: usize) -> Option<&'a [u8]> {
    let (read, covered) = (op.columns[column].as_ref()?, write.coverage[column]?);
    let whole = read.len as u64 == op.hi - op.lo;
    let from = if whole { op.lo } else { covered.lo };
    let at = part.lo.checked_sub(from)? as usize;
    read.bytes().get(at..at + (part.hi - part.lo) as usize)
}

/// What a write puts into a column, and what it holds before, where that is known.
type Change<'a> = (Slice, Option<&'a [u8]>);

/// Whether each unit of each of these columns stays as it is, and then of their sum, which is the
/// first parity. False where it is not known.
fn unchanged<'a>(
    columns: &'a [Change<'a>],
    len: usize,
    unit: usize,
) -> impl Iterator<Item = bool> + 'a {
    let unit_at = move |at: usize| at * unit..(at + 1) * unit;
    let of_column = move |(new, old): &'a Change<'a>| {
        let same =
            move |at: usize| old.is_some_and(|old| old[unit_at(at)] == new.bytes()[unit_at(at)]);
        (0..len / unit).map(same)
    };
    let sums = (0..len / unit).map(move |at| sum_is_unchanged(columns, unit_at(at)));
    columns.iter().flat_map(of_column).chain(sums)
}

fn sum_is_unchanged(columns: &[Change], unit: std::ops::Range<usize>) -> bool {
    let mut changed: Brief<(&[u8], &[u8])> = Brief::new();
    for (new, old) in columns {
        let Some(old) = old else {
            return false;
        };
        let (new, old) = (&new.bytes()[unit.clone()], &old[unit.clone()]);
        if new != old {
            changed.push((new, old));
        }
    }
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes.as_chunks().0[at]);
    let difference = |at: usize| {
        let all = changed.iter();
        all.fold(0, |sum, (new, old)| sum ^ word(new, at) ^ word(old, at))
    };
    match changed.len() {
        0 => true,
        1 => false,
        _ => (0..unit.len() / size_of::<u64>()).all(|at| difference(at) == 0),
    }
}
