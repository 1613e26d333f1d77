//! Recovery of writes that were under way: which records count, and what each block becomes.
//!
//! A record tells of one write of one stripe: which data columns it writes (W), checksums of what
//! they will hold, for each parity j the partial syndrome S_j = Σ c_ji·D_i over the columns that it
//! leaves alone (U), and the new content of those columns of W that have no member. After a crash a
//! block of W, and every parity block, is old or new; a block of U is what it was.
//!
//! A block is torn where a member's own sectors are smaller and a crash came: some of them are new,
//! others are not. So the records of an array with such a member have checksums of sectors, too,
//! and the decision is made sector by sector; without, block by block. This *unit* is what a member
//! writes whole or not at all.
//!
//! The decision, for every unit of the range, first line that applies:
//!
//! | lost columns | what is done |
//! |---|---|
//! | of U, fewer S_j than these, W and the parities are all new, or none of them is | nothing: the write never began, or was done long ago |
//! | of U, fewer S_j than these, a mixture | the blocks of U, and of W without content in the record, are unreadable: more is lost than the level survives |
//! | of U | solved from the S_j |
//! | of W, content in the record | that content |
//! | of W, others (X), or none | X, and what is not new of W, solved from parities that are new, if all of it is new then |
//! | of W, X, the W that are left are new | X solved from the parities, if it is new then |
//! | of W, X is all of W, one column | X solved from one parity: old or new, as the parity is |
//! | of W, X, no W that is left is new, the parities are old | X solved from the parities: old |
//! | of W, X, a mixture | the blocks of X are unreadable until they are rewritten |
//!
//! *New* is what the checksums of the record say. A unit may hold before the write what it is to
//! hold: a record with an empty W, behind the intent, says which do, as far as the writer knew what
//! lay there (`Unchanged`). That such a unit is new says nothing of whether the write began: it is
//! old, too, in the second line and in those of X.
//!
//! Parities that are new are used before old ones. Then the parities follow from W and, for what
//! the write leaves alone, from the S_j: what lies there is not asked, since it may have gone bad
//! and the parities are what tells of that. A parity is computed from the columns of U only if its
//! S_j is not known, and not where it and all of W are new already. Nothing is written where
//! nothing changes by that.
//!
//! Invariants:
//! * The newest record of a block wins; what is older was in place before the newer was logged,
//!   because operations that overlap in one stripe wait for each other.
//! * A block of U never changes.
//! * `settled` records (see the recovery in `array::start::replay`) never use the line "old": what
//!   lies in place may be the work of a recovery that was cut off.
//!
//! Deliberately absent: I/O, and the order in which all this becomes durable
//! (`array::start::replay`).

use std::collections::{BTreeMap, BTreeSet};

use strake_format::{LogBatch, LogPayload, checksum};
use strake_parity::{Code, xor_into};

use crate::canary::{self, Canary};
use crate::geometry::column_set::Columns;
use crate::geometry::{Geometry, Shape};
use crate::log::layout::SECTOR;
use crate::log::window_image::MOVE_LANE;
use crate::units::*;

/// The lane of batches that a recovery writes.
pub(crate) const RECOVERY_LANE: u16 = u16::MAX;

/// A range of one stripe that was being written, with all that the logs tell of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) stripe: StripeNo,
    pub(crate) operation: u64,
    /// Bytes of each strip.
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    /// Data columns written.
    pub(crate) written: Columns,
    /// What a checksum is of, bytes: see the module.
    pub(crate) unit: u64,
    /// For each column of the stripe, checksums of the new units; empty for columns not written.
    pub(crate) sums: Vec<Vec<u32>>,
    /// For each parity, its partial syndrome over the range.
    pub(crate) syndromes: Vec<Option<Vec<u8>>>,
    /// For each data column, new content from the log.
    pub(crate) known: Vec<Option<Vec<u8>>>,
    pub(crate) unchanged: Option<Unchanged>,
    pub(crate) settled: bool,
}

/// Units that hold before a write what they hold after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unchanged {
    /// Bytes of a unit.
    unit: u64,
    /// Columns of W in order, then the first parity: one flag for each of their units.
    flags: Vec<Vec<bool>>,
}

impl Unchanged {
    /// The checksums of its record: the unit, then the flags of all columns, 32 in each.
    pub(crate) fn encode(unit: u64, flags: impl Iterator<Item = bool>, to: &mut Vec<u32>) {
        to.push(unit as u32);
        for (at, flag) in flags.enumerate() {
            if at % 32 == 0 {
                to.push(0);
            }
            let word = to.last_mut().expect("one was pushed");
            *word |= u32::from(flag) << (at % 32);
        }
    }

    /// Of a record of `len` bytes that writes so many columns; `None` if it does not fit these.
    pub(crate) fn decode(
        record: &[u32],
        len: u64,
        written: usize,
        block: u64,
    ) -> Option<Unchanged> {
        let (unit, words) = record.split_first()?;
        let unit = u64::from(*unit);
        let is_unit = unit == block || (unit == SECTOR && unit < block);
        let units = is_unit.then(|| (len / unit) as usize)?;
        let all = (written + 1) * units;
        let flag = |at: usize| words[at / 32] >> (at % 32) & 1 == 1;
        (units > 0 && words.len() == all.div_ceil(32)).then(|| Unchanged {
            unit,
            flags: (0..all)
                .step_by(units)
                .map(|first| (first..first + units).map(flag).collect())
                .collect(),
        })
    }

    fn cut(&self, from: u64, to: u64) -> Unchanged {
        let units = (from / self.unit) as usize..(to / self.unit) as usize;
        let part = |flags: &Vec<bool>| flags[units.clone()].to_vec();
        Unchanged {
            unit: self.unit,
            flags: self.flags.iter().map(part).collect(),
        }
    }

    /// Whether all of these bytes are, of the column at `index` of its order.
    fn is_set(&self, index: usize, bytes: &std::ops::Range<u64>) -> bool {
        let units = (bytes.start / self.unit) as usize..bytes.end.div_ceil(self.unit) as usize;
        let flags = self.flags.get(index).and_then(|flags| flags.get(units));
        flags.is_some_and(|flags| flags.iter().all(|flag| *flag))
    }
}

impl Piece {
    /// Unit `at` of this column holds before the write what it holds after it, as the record says.
    fn is_unchanged(&self, column: usize, at: usize) -> bool {
        let Some(unchanged) = &self.unchanged else {
            return false;
        };
        let bytes = at as u64 * self.unit..(at as u64 + 1) * self.unit;
        let (k, written) = (self.known.len(), self.written.count());
        match column {
            _ if column < k => {
                let before = self.written.each().filter(|c| *c < column).count();
                self.written.has(column) && unchanged.is_set(before, &bytes)
            }
            _ if column == k => unchanged.is_set(written, &bytes),
            // That changes of several columns leave it as it was needs more than equal changes.
            _ => (0..written).all(|index| unchanged.is_set(index, &bytes)),
        }
    }

    /// The part `lo..hi` of it.
    pub(crate) fn cut(&self, lo: u64, hi: u64) -> Piece {
        let (from, to) = ((lo - self.lo) as usize, (hi - self.lo) as usize);
        let units = from / self.unit as usize..to / self.unit as usize;
        let part = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|b| b[from..to].to_vec());
        let sums = |s: &Vec<u32>| match s.is_empty() {
            true => Vec::new(),
            false => s[units.clone()].to_vec(),
        };
        Piece {
            lo,
            hi,
            sums: self.sums.iter().map(sums).collect(),
            syndromes: self.syndromes.iter().map(part).collect(),
            known: self.known.iter().map(part).collect(),
            unchanged: self
                .unchanged
                .as_ref()
                .map(|all| all.cut(lo - self.lo, hi - self.lo)),
            ..self.clone()
        }
    }
}

/// What is left of earlier recoveries: the newest of their batches, if there is any. Whatever may
/// be half in place is in it: a recovery writes a batch when the one before is in place, or when it
/// holds the same pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Earlier {
    sequence: u64,
    /// It outlives whatever the level survives.
    safe: bool,
}

impl Earlier {
    /// `in_sync`: the slots with a member in sync.
    pub(crate) fn of(
        geometry: &Geometry,
        batches: &[(Slot, &LogBatch)],
        in_sync: &[Slot],
    ) -> Earlier {
        let sequence = newest_settled(batches);
        let holders: Vec<Slot> = batches
            .iter()
            .filter(|(_, b)| b.lane == RECOVERY_LANE && b.sequence == sequence)
            .map(|(slot, _)| *slot)
            .collect();
        // Whatever is survived leaves enough of every group, of either shape.
        let safe = geometry.neighbours().any(|group| {
            let there = in_sync.iter().filter(|slot| group.contains(&slot.index()));
            let spare = (geometry.m + there.clone().count()).saturating_sub(group.len());
            there.filter(|slot| holders.contains(slot)).count() > spare
        });
        Earlier { sequence, safe }
    }

    /// The sequence after which the next recovery goes on. Batches of odd and of even numbers have
    /// a place each. Where the newest is on so few members that it could be lost, not all of them
    /// had it, so nothing of it was begun, and the one before is still needed: the next goes over
    /// the newest then, not over that.
    pub(crate) fn last_sequence(self) -> u64 {
        match self.safe {
            true => self.sequence,
            false => self.sequence.saturating_add(1),
        }
    }
}

fn newest_settled(batches: &[(Slot, &LogBatch)]) -> u64 {
    let settled = batches.iter().filter(|(_, b)| b.lane == RECOVERY_LANE);
    settled.map(|(_, b)| b.sequence).max().unwrap_or(0)
}

/// The records that count: for every block the newest of those that are not retired; what an
/// earlier recovery settled and may not have finished first, then the oldest operation first.
/// `batches` are those of the members that are believed, with their slots.
pub(crate) fn winners(geometry: &Geometry, base: u64, batches: &[(Slot, &LogBatch)]) -> Vec<Piece> {
    let retired = Retired::of(geometry, base, batches);
    let newest_settled = newest_settled(batches);
    let mut done: BTreeSet<u64> = BTreeSet::new();
    let mut operations: BTreeMap<(u64, u64, u64), Piece> = BTreeMap::new();
    for &(slot, batch) in batches {
        if batch.lane == MOVE_LANE {
            continue;
        }
        for record in &batch.records {
            if record.operation < retired.before(geometry, slot, batch.lane)
                || record.stripe >= geometry.stripes()
                || !geometry.exists(StripeNo(record.stripe))
            {
                continue;
            }
            // In place, or in the newest batch, too.
            if batch.lane == RECOVERY_LANE && batch.sequence < newest_settled {
                done.insert(record.operation);
            }
            let key = (record.operation, record.stripe, u64::from(record.start));
            // Behind the intent that it belongs to.
            if record.written == 0 {
                if let Some(piece) = operations.get_mut(&key) {
                    add_unchanged(geometry, piece, record);
                }
                continue;
            }
            let piece = operations
                .entry(key)
                .or_insert_with(|| empty(geometry, record));
            add(geometry, piece, record);
        }
    }
    // Without the intent nothing is known of the operation: it was on enough members if it began.
    operations.retain(|_, piece| piece.sums.iter().any(|s| !s.is_empty()));
    let mut left = newest(operations.into_values().collect());
    left.retain(|piece| !done.contains(&piece.operation));
    left
}

/// Below which operation everything is retired: in all, and for each lane of each group.
struct Retired {
    base: u64,
    lanes: BTreeMap<(usize, u16), u64>,
}

impl Retired {
    fn of(geometry: &Geometry, base: u64, batches: &[(Slot, &LogBatch)]) -> Retired {
        let mut retired = Retired {
            base,
            lanes: BTreeMap::new(),
        };
        for &(slot, batch) in batches {
            // A recovery takes operations in order: what it has passed is in place.
            if batch.lane == RECOVERY_LANE {
                retired.base = retired.base.max(batch.retired_before);
            }
            let lane = (group_of(geometry, slot), batch.lane);
            let before = retired.lanes.entry(lane).or_default();
            *before = batch.retired_before.max(*before);
        }
        retired
    }

    fn before(&self, geometry: &Geometry, slot: Slot, lane: u16) -> u64 {
        let lane = self.lanes.get(&(group_of(geometry, slot), lane));
        self.base.max(lane.copied().unwrap_or(0))
    }
}

fn group_of(geometry: &Geometry, slot: Slot) -> usize {
    geometry.log_group(slot).start
}

fn empty(geometry: &Geometry, record: &strake_format::LogRecord) -> Piece {
    let shape = geometry.columns(StripeNo(record.stripe));
    Piece {
        stripe: StripeNo(record.stripe),
        operation: record.operation,
        lo: u64::from(record.start),
        hi: u64::from(record.start) + u64::from(record.len),
        written: Columns(record.written),
        unit: geometry.block,
        sums: vec![Vec::new(); shape.width],
        syndromes: vec![None; geometry.m],
        known: vec![None; shape.k],
        unchanged: None,
        settled: record.settled,
    }
}

/// What this record tells of its piece. One that does not fit the geometry, or the piece that
/// others tell of, is passed over: no record of ours is like that.
fn add(geometry: &Geometry, piece: &mut Piece, record: &strake_format::LogRecord) {
    let len = piece.hi - piece.lo;
    let Shape { width, k, .. } = geometry.columns(piece.stripe);
    let fits = u64::from(record.len) == len
        && record.written == piece.written.0
        && piece.hi <= geometry.strip
        && piece.lo.is_multiple_of(geometry.block)
        && len.is_multiple_of(geometry.block)
        && record.written >> k == 0;
    if !fits {
        return;
    }
    let columns: Vec<usize> = (0..width)
        .filter(|&c| c >= k || piece.written.has(c))
        .collect();
    let units = record.checksums.len().checked_div(columns.len());
    if let Some(unit) = units.and_then(|units| unit_of(geometry, len, units as u64))
        && record.checksums.len() as u64 == len / unit * columns.len() as u64
        && unit <= piece.unit
    {
        piece.unit = unit;
        let units = (len / unit) as usize;
        for (&column, sums) in columns.iter().zip(record.checksums.chunks(units)) {
            piece.sums[column] = sums.to_vec();
        }
    }
    match &record.payload {
        LogPayload::None => {}
        LogPayload::PartialSyndrome { parity, bytes } => {
            if let Some(place) = piece.syndromes.get_mut(usize::from(*parity)) {
                *place = Some(bytes.clone());
            }
        }
        LogPayload::LostStrip { column, bytes } => {
            if let Some(place) = piece.known.get_mut(usize::from(*column)) {
                *place = Some(bytes.clone());
            }
        }
    }
}

/// What a record without W tells of its piece.
fn add_unchanged(geometry: &Geometry, piece: &mut Piece, record: &strake_format::LogRecord) {
    let len = piece.hi - piece.lo;
    if u64::from(record.len) == len {
        let written = piece.written.count();
        let told = Unchanged::decode(&record.checksums, len, written, geometry.block);
        piece.unchanged = told.or(piece.unchanged.take());
    }
}

/// What a checksum is of, if a record has so many of each column: a block or a sector. Any other
/// number is of a record of another shape.
fn unit_of(geometry: &Geometry, len: u64, units: u64) -> Option<u64> {
    [geometry.block, SECTOR]
        .into_iter()
        .find(|unit| len == units * unit)
}

/// Cuts away from every piece what newer pieces of its stripe cover.
fn newest(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_by_key(|p| std::cmp::Reverse((p.operation, p.stripe, p.lo)));
    let mut taken: BTreeMap<StripeNo, Vec<(u64, u64)>> = BTreeMap::new();
    let mut left = Vec::new();
    for piece in pieces {
        let taken = taken.entry(piece.stripe).or_default();
        let mut at = piece.lo;
        while at < piece.hi {
            let over = taken.iter().find(|&&(lo, hi)| lo <= at && at < hi);
            if let Some(&(_, hi)) = over {
                at = hi;
                continue;
            }
            let next = taken.iter().map(|r| r.0).filter(|&lo| lo > at).min();
            let end = next.unwrap_or(u64::MAX).min(piece.hi);
            left.push(piece.cut(at, end));
            at = end;
        }
        taken.push((piece.lo, piece.hi));
    }
    left.reverse();
    left.sort_by_key(|p| !p.settled);
    left
}

/// What became of one unit of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The write did not begin, or is long done: nothing to do.
    Leave,
    /// Nothing is lost, and every column holds what it is to hold.
    InPlace,
    /// Every column has its content now; that of these data columns is lost, and zeros stand for
    /// it.
    Mended { unreadable: Columns },
}

/// The line of the table that applies to the columns of W with unknown content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Forward,
    New,
    One,
    Old,
    Mixture,
}

/// One unit of a row: `columns` are the contents that could be read, `None` where the column is
/// lost; afterwards, if mended, all of them. `at` is the unit's number in the piece.
///
/// `begun`: the write has begun, as another unit of the block shows.
pub(crate) fn mend(
    code: &Code,
    piece: &Piece,
    at: usize,
    columns: &mut [Option<Vec<u8>>],
    begun: bool,
) -> Verdict {
    let (k, bytes) = (code.k(), piece.unit as usize);
    let whole = columns.iter().all(Option::is_some);
    let before = whole.then(|| columns.to_vec());
    let lost = |c: &usize| columns[*c].is_none();
    let (lost_written, lost_untouched): (Vec<usize>, Vec<usize>) =
        (0..k).filter(lost).partition(|&c| piece.written.has(c));
    let range = at * bytes..(at + 1) * bytes;
    if !lost_untouched.is_empty() {
        let Some(solved) = untouched(code, piece, range.clone(), columns, &lost_untouched) else {
            return match begun || is_mixture(piece, at, code.k(), columns) {
                true => give_up(code, piece, range, columns),
                false => Verdict::Leave,
            };
        };
        for (&column, content) in lost_untouched.iter().zip(solved) {
            columns[column] = Some(content);
        }
    }
    let write = Write {
        code,
        piece,
        at,
        range: range.clone(),
        left_alone: left_alone(code, piece, range.clone(), columns),
    };
    // An earlier recovery wrote them anew, or was about to.
    let anew = |c: &usize| {
        let content = columns[*c].as_deref();
        piece.settled && content.is_some_and(|content| !write.is_new(*c, content))
    };
    let (from_log, unknown): (Vec<usize>, Vec<usize>) = (0..k)
        .filter(|c| piece.written.has(*c))
        .filter(|c| lost_written.contains(c) || (piece.known[*c].is_some() && anew(c)))
        .partition(|&c| piece.known[c].is_some());
    let solved = write.solved(columns, &from_log, &unknown);
    for &column in &from_log {
        let content = piece.known[column].as_ref().expect("partitioned by it");
        columns[column] = Some(content[range.clone()].to_vec());
    }
    let mut unreadable = Columns::default();
    let found = solved.is_some();
    for (column, content) in solved.unwrap_or_default() {
        columns[column] = Some(content);
    }
    for &column in unknown.iter().filter(|_| !found) {
        unreadable.add(column);
        columns[column] = Some(vec![0; bytes]);
    }
    write.parities(columns);
    match before {
        Some(before) if before == columns => Verdict::InPlace,
        _ => Verdict::Mended { unreadable },
    }
}

/// Of W and the parities some are as the record says, and others are not.
fn is_mixture(piece: &Piece, at: usize, k: usize, columns: &[Option<Vec<u8>>]) -> bool {
    if canary::hit(Canary::MixtureLeft) {
        return false;
    }
    let news = columns.iter().enumerate().filter_map(|(c, content)| {
        let sum = *piece.sums[c].get(at)?;
        // A parity that had no member then may have one now.
        let unknown = c >= k && sum == 0;
        let content = content.as_deref().filter(|_| !unknown)?;
        let new = sum == checksum::crc32c(content);
        // It is old, too.
        (!new || !piece.is_unchanged(c, at)).then_some(new)
    });
    let (new, other): (Vec<bool>, Vec<bool>) = news.partition(|new| *new);
    !new.is_empty() && !other.is_empty()
}

/// What is lost and stands in no record is lost for good; the parities are those of the rest.
fn give_up(
    code: &Code,
    piece: &Piece,
    range: std::ops::Range<usize>,
    columns: &mut [Option<Vec<u8>>],
) -> Verdict {
    let k = code.k();
    let mut unreadable = Columns::default();
    for (c, column) in columns.iter_mut().enumerate().take(k) {
        let known = || piece.known[c].as_ref().map(|b| b[range.clone()].to_vec());
        if let Some(content) = column.take().or_else(known) {
            *column = Some(content);
        } else {
            unreadable.add(c);
            *column = Some(vec![0; range.len()]);
        }
    }
    let (data, parities) = columns.split_at_mut(k);
    let data: Vec<&[u8]> = data.iter().map(whole).collect();
    let mut sums = vec![vec![0; range.len()]; code.m()];
    let mut outputs: Vec<&mut [u8]> = sums.iter_mut().map(Vec::as_mut_slice).collect();
    code.generate(&data, &mut outputs);
    for (parity, sum) in parities.iter_mut().zip(sums) {
        *parity = Some(sum);
    }
    Verdict::Mended { unreadable }
}

/// For each parity what the columns that the write leaves alone add to it: as the log says, since
/// what lies there may have gone bad since; where the log does not say it, as they are.
fn left_alone(
    code: &Code,
    piece: &Piece,
    range: std::ops::Range<usize>,
    columns: &[Option<Vec<u8>>],
) -> Vec<Vec<u8>> {
    let zeros = vec![0; range.len()];
    let data: Vec<&[u8]> = (0..code.k())
        .map(|c| match piece.written.has(c) {
            true => &zeros[..],
            false => columns[c].as_deref().expect("what is left alone is known"),
        })
        .collect();
    let mut sums = vec![vec![0; range.len()]; code.m()];
    let asked = canary::hit(Canary::ReplayTrustsRest) || canary::hit(Canary::RestAsItLies);
    if asked || piece.syndromes.iter().any(Option::is_none) {
        let mut outputs: Vec<&mut [u8]> = sums.iter_mut().map(Vec::as_mut_slice).collect();
        code.generate(&data, &mut outputs);
    }
    for (sum, said) in sums.iter_mut().zip(&piece.syndromes) {
        if let Some(said) = said.as_ref().filter(|_| !asked) {
            sum.copy_from_slice(&said[range.clone()]);
        }
    }
    sums
}

/// Lost columns of U, where what they would be computed from does not agree: it has gone bad since
/// the write, and redundancy shows it.
pub(crate) fn unclear(code: &Code, piece: &Piece, columns: &[Option<Vec<u8>>]) -> Columns {
    let lost: Columns = (0..code.k())
        .filter(|&c| columns[c].is_none() && !piece.written.has(c))
        .collect();
    let bytes = (piece.hi - piece.lo) as usize;
    let zeros = vec![0; bytes];
    let row = row_of_rest(code, piece, 0..bytes, columns, &zeros);
    let available: Vec<usize> = (0..row.len()).filter(|&c| row[c].is_some()).collect();
    if lost.is_empty() || available.len() <= code.k() {
        return Columns::default();
    }
    let Ok(locator) = code.locator(&available) else {
        return Columns::default();
    };
    let mut syndromes = vec![vec![0; bytes]; locator.syndromes()];
    let mut outputs: Vec<&mut [u8]> = syndromes.iter_mut().map(Vec::as_mut_slice).collect();
    match locator.compute(&row, &mut outputs) {
        true => Columns::default(),
        false => lost,
    }
}

/// What a write leaves alone as a row of its own: zeros for W, the partial syndromes for parities.
fn row_of_rest<'a>(
    code: &Code,
    piece: &'a Piece,
    range: std::ops::Range<usize>,
    columns: &'a [Option<Vec<u8>>],
    zeros: &'a [u8],
) -> Vec<Option<&'a [u8]>> {
    let data = (0..code.k()).map(|c| match piece.written.has(c) {
        true => Some(zeros),
        false => columns[c].as_deref(),
    });
    let syndromes = piece.syndromes.iter();
    let syndromes = syndromes.map(|s| s.as_ref().map(|s| &s[range.clone()]));
    data.chain(syndromes).collect()
}

/// The lost columns of U: with zeros for W the partial syndromes are the parities of a row.
fn untouched(
    code: &Code,
    piece: &Piece,
    range: std::ops::Range<usize>,
    columns: &[Option<Vec<u8>>],
    wanted: &[usize],
) -> Option<Vec<Vec<u8>>> {
    let zeros = vec![0; range.len()];
    let row = row_of_rest(code, piece, range, columns, &zeros);
    solve(code, &row, wanted)
}

/// One unit of a write, once what it leaves alone is known.
struct Write<'a> {
    code: &'a Code,
    piece: &'a Piece,
    at: usize,
    range: std::ops::Range<usize>,
    /// See [`left_alone`].
    left_alone: Vec<Vec<u8>>,
}

impl Write<'_> {
    fn is_new(&self, column: usize, content: &[u8]) -> bool {
        self.piece.sums[column].get(self.at).copied() == Some(checksum::crc32c(content))
    }

    /// What the log does not say of W, or `None` for a mixture: the contents of the `unknown`
    /// columns, and of others that are to be written anew.
    fn solved(
        &self,
        columns: &[Option<Vec<u8>>],
        from_log: &[usize],
        unknown: &[usize],
    ) -> Option<Vec<(usize, Vec<u8>)>> {
        let (k, piece) = (self.code.k(), self.piece);
        let here = |c: usize| columns[c].as_deref();
        let is_new = |c: usize| here(c).is_some_and(|content| self.is_new(c, content));
        let left = (0..k).filter(|&c| piece.written.has(c) && here(c).is_some());
        let left = left.filter(|c| !from_log.contains(c));
        let (left_new, left_old): (Vec<usize>, Vec<usize>) = left.partition(|&c| is_new(c));
        let is_old = |c: &usize| piece.is_unchanged(*c, self.at);
        let (new, old): (Vec<usize>, Vec<usize>) = (k..k + self.code.m())
            .filter(|&c| here(c).is_some())
            .partition(|&c| is_new(c));
        if unknown.is_empty() && left_old.is_empty() {
            return Some(Vec::new());
        }
        let with_log = |c: usize| match from_log.contains(&c) {
            true => piece.known[c].as_ref().map(|b| &b[self.range.clone()]),
            false => here(c),
        };
        for line in [
            Line::Forward,
            Line::New,
            Line::One,
            Line::Old,
            Line::Mixture,
        ] {
            let found = match line {
                // Parities are in place, so the write was, or nearly. Others may have been rebuilt
                // since from a block of it that had gone bad.
                Line::Forward => {
                    let mut wanted: Vec<usize> = unknown.iter().chain(&left_old).copied().collect();
                    wanted.sort_unstable();
                    let parities: Vec<usize> = new.iter().copied().take(wanted.len()).collect();
                    let others = |c: usize| with_log(c).filter(|_| !wanted.contains(&c));
                    self.solve(&parities, columns, others, &wanted)
                        .filter(|all| all.iter().all(|(c, content)| self.is_new(*c, content)))
                }
                Line::New if left_old.is_empty() => {
                    let mut parities: Vec<usize> = new.iter().chain(&old).copied().collect();
                    parities.truncate(unknown.len());
                    self.solve(&parities, columns, with_log, unknown)
                        .filter(|all| all.iter().all(|(c, content)| self.is_new(*c, content)))
                }
                Line::One if piece.written.count() == 1 => {
                    let any: Vec<usize> = new.iter().chain(&old).copied().take(1).collect();
                    self.solve(&any, columns, with_log, unknown)
                }
                // Before the write, columns with new content in the record held something else:
                // they are unknown here, too.
                Line::Old if !piece.settled && left_new.iter().all(is_old) => {
                    self.solved_old((&old, &new), columns, unknown)
                }
                Line::Mixture if canary::hit(Canary::MixtureReturned) => {
                    let any: Vec<usize> = new.iter().chain(&old).copied().collect();
                    self.solve(&any, columns, with_log, unknown)
                }
                _ => None,
            };
            if found.is_some() || (unknown.is_empty() && line == Line::Forward) {
                // Old content that cannot be made new stays.
                return Some(found.unwrap_or_default());
            }
        }
        None
    }

    /// What the `unknown` columns hold before the write, from parities that are old: of those that
    /// are new, too, such as the write leaves unchanged.
    fn solved_old(
        &self,
        (old, new): (&[usize], &[usize]),
        columns: &[Option<Vec<u8>>],
        unknown: &[usize],
    ) -> Option<Vec<(usize, Vec<u8>)>> {
        let is_old = |c: usize| self.piece.is_unchanged(c, self.at);
        let still = new.iter().filter(|c| is_old(**c));
        let old: Vec<usize> = old.iter().chain(still).copied().collect();
        let solved = self.solve(&old, columns, |c| columns[c].as_deref(), unknown)?;
        let fits = |(c, content): &(usize, Vec<u8>)| !is_old(*c) || self.is_new(*c, content);
        solved.iter().all(fits).then_some(solved)
    }

    /// `wanted` columns of W from these parities and the others of W, as `written` knows them.
    fn solve<'b>(
        &self,
        parities: &[usize],
        columns: &[Option<Vec<u8>>],
        written: impl Fn(usize) -> Option<&'b [u8]>,
        wanted: &[usize],
    ) -> Option<Vec<(usize, Vec<u8>)>> {
        let k = self.code.k();
        let zeros = vec![0; self.range.len()];
        let without = |&parity: &usize| {
            let mut content = columns[parity].clone()?;
            xor_into(&mut content, &self.left_alone[parity - k]);
            Some((parity, content))
        };
        let parities: Vec<(usize, Vec<u8>)> = parities.iter().filter_map(without).collect();
        let of = |c: usize| {
            let found = parities.iter().find(|(parity, _)| *parity == c);
            found.map(|(_, content)| content.as_slice())
        };
        let row: Vec<Option<&[u8]>> = (0..k + self.code.m())
            .map(|c| match (c < k, self.piece.written.has(c)) {
                (true, true) => written(c),
                (true, false) => Some(&zeros[..]),
                (false, _) => of(c),
            })
            .collect();
        let solved = solve(self.code, &row, wanted)?;
        Some(wanted.iter().copied().zip(solved).collect())
    }

    /// The parities of what the data columns are now. One that the record knows stays as it is
    /// where all of W is as the record says.
    fn parities(&self, columns: &mut [Option<Vec<u8>>]) {
        let k = self.code.k();
        let new = |c: usize| {
            let content = columns[c].as_deref();
            content.is_some_and(|content| self.is_new(c, content))
        };
        let all_new = (0..k).all(|c| !self.piece.written.has(c) || new(c));
        let stays: Columns = (k..columns.len())
            .filter(|&c| all_new && new(c) && !canary::hit(Canary::ReplayTrustsRest))
            .collect();
        let zeros = vec![0; self.range.len()];
        let data: Vec<&[u8]> = (0..k)
            .map(|c| match self.piece.written.has(c) {
                true => whole(&columns[c]),
                false => &zeros[..],
            })
            .collect();
        let mut parity = vec![vec![0; self.range.len()]; self.code.m()];
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        self.code.generate(&data, &mut outputs);
        for (j, mut content) in parity.into_iter().enumerate() {
            xor_into(&mut content, &self.left_alone[j]);
            if !stays.has(k + j) {
                columns[k + j] = Some(content);
            }
        }
    }
}

fn whole(column: &Option<Vec<u8>>) -> &[u8] {
    column.as_deref().expect("every data column is known now")
}

/// `wanted` columns of a row, from those that are there; `None` if they are too few.
fn solve(code: &Code, row: &[Option<&[u8]>], wanted: &[usize]) -> Option<Vec<Vec<u8>>> {
    let available: Vec<usize> = (0..row.len()).filter(|&c| row[c].is_some()).collect();
    let decoder = code.decoder(&available, wanted).ok()?;
    let inputs: Vec<&[u8]> = decoder
        .sources()
        .iter()
        .map(|&c| row[c].expect("a source is available"))
        .collect();
    let bytes = row.iter().flatten().next().map_or(0, |b| b.len());
    let mut outputs = vec![vec![0; bytes]; wanted.len()];
    let mut slices: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    decoder.decode(&inputs, &mut slices);
    Some(outputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    #[test]
    fn flags_of_sectors_are_cut_with_their_piece_and_make_up_blocks() {
        // Two columns and the parity, two blocks of eight sectors each.
        let is_set = |at: usize| at < 8 || (16..32).contains(&at) || at == 47;
        let mut record = Vec::new();
        Unchanged::encode(SECTOR, (0..48).map(is_set), &mut record);
        assert_eq!(record.len(), 1 + 2);
        let all = Unchanged::decode(&record, 2 * BLOCK, 2, BLOCK).expect("it fits");
        let blocks = |all: &Unchanged, index: usize, count: u64| -> Vec<bool> {
            let block = |at: u64| all.is_set(index, &(at * BLOCK..(at + 1) * BLOCK));
            (0..count).map(block).collect()
        };
        assert_eq!(blocks(&all, 0, 2), [true, false]);
        assert_eq!(blocks(&all, 1, 2), [true, true]);
        assert_eq!(blocks(&all, 2, 2), [false, false]);
        assert!(all.is_set(2, &(2 * BLOCK - SECTOR..2 * BLOCK)));
        let second = all.cut(BLOCK, 2 * BLOCK);
        assert_eq!(blocks(&second, 0, 1), [false]);
        assert_eq!(blocks(&second, 1, 1), [true]);
        assert!(!second.is_set(1, &(BLOCK..2 * BLOCK)), "it ends there");
    }

    #[test]
    fn flags_that_fit_no_record_say_nothing() {
        let none = |record: &[u32], len: u64, written: usize| {
            assert_eq!(
                Unchanged::decode(record, len, written, BLOCK),
                None,
                "{record:?}"
            );
        };
        none(&[], BLOCK, 1);
        none(&[4096], BLOCK, 1);
        none(&[4096, 0, 0], BLOCK, 1);
        none(&[0, 0], BLOCK, 1);
        none(&[1024, 0], BLOCK, 1);
        none(&[u32::MAX, 0], BLOCK, 1);
        none(&[4096, 0], 512, 1);
        none(&[4096, 0], 64 * BLOCK, 63);
        assert!(Unchanged::decode(&[4096, u32::MAX], BLOCK, 1, BLOCK).is_some());
    }
}
