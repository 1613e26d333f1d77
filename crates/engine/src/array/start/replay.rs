//! The replay of the stripe log after an unclean stop, before anything is served.
//!
//! Order:
//! 1. *flush* every member: what is read from here on is durable;
//! 2. for a chunk of the pieces (see `log::recover`), what an earlier recovery settled first, then
//!    the oldest operations: *read* all columns; decide; *list* the blocks that are lost; *log* the
//!    outcome on every live member, as settled records that hold all that a second recovery could
//!    want, zeros for what is lost; *write* in place what differs there: parities, and blocks of W
//!    that parities know better;
//! 3. when no piece is left: superblocks with a base above all of these records.
//!
//! Invariants:
//! * Nothing is written in place before the outcome is durable on every live member. Otherwise a
//!   second crash, with the loss of a member, would find a row in a state that no record tells of.
//! * Before any record or place holds the zeros that stand for a lost block, the list of unreadable
//!   blocks says durably that it is lost; or it has no room, and an administrator said that the
//!   array starts all the same.
//! * Settled records are never written over before what they tell of is in place: chunks take turns
//!   between the halves of the area that recoveries have, the newest batch of an earlier recovery
//!   is the first chunk, as a whole, and goes over the half that no member needs (see
//!   `recover::Earlier`).
//! * A member that leaves begins the chunk anew, as a whole; what may be in place of it is settled.
//! * The missing members are durably recorded before the first chunk, and before the chunk after a
//!   loss: what is repaired without a member must not be forgotten while that member could still be
//!   believed.
//!
//! * Nothing is written, neither in place nor to the logs, where nothing is lost and every column
//!   holds what it is to hold.
//!
//! Deliberately absent: what a block becomes (`recover::mend`).

use std::collections::VecDeque;
use std::sync::Arc;

use strake_format::*;
use strake_parity::{Code, xor_into};

use crate::array::metadata::bad_blocks::ListWaiter;
use crate::array::{Array, Purpose, Stage};
use crate::canary::{self, Canary};
use crate::geometry::StripPart;
use crate::geometry::column_set::Columns;
use crate::log::layout::{Record, SECTOR, sums_bytes};
use crate::log::recover::{self, Piece, RECOVERY_LANE, Verdict};
use crate::mem::buffer::{Buf, Slice};
use crate::proto::*;
use crate::units::*;

/// The most that one chunk holds in memory of each column, bytes.
const CHUNK_BYTES: u64 = 1 << 20;

/// What an I/O of the replay was for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplayIo {
    Flush,
    Read { job: usize, column: usize },
    Log,
    Write,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Replay {
    pieces: VecDeque<Piece>,
    jobs: Vec<Job>,
    phase: Phase,
    pending: usize,
    /// A member left while this phase was at work.
    again: bool,
    /// Numbers for settled records.
    next_operation: u64,
    sequence: u64,
    /// So many of the next pieces are one chunk, and no others with them: they were one before.
    together: usize,
    /// The chunk at work is such a one.
    bound: bool,
    /// What is lost and finds no room in the list is given up: an administrator said so.
    forced: bool,
    records: u64,
    stripes: Vec<StripeNo>,
    unreadable: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Flush,
    Read,
    Log,
    List,
    Write,
}

/// A piece at work.
#[derive(Debug)]
pub(crate) struct Job {
    piece: Piece,
    pub(crate) columns: Vec<Option<Vec<u8>>>,
    /// Columns that their member could not read: they are written.
    heal: Columns,
    /// Columns of a single block that are read once more: an error may not come again.
    again: Columns,
    /// Columns that lie on two members, of which one was read.
    twice: Columns,
    /// Columns that could not be read, and would be computed from strips that do not agree: they
    /// stay as they are. The write leaves them alone.
    unclear: Columns,
    outcomes: Vec<Outcome>,
}

/// What a part of a piece becomes.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) piece: Piece,
    /// All columns.
    pub(crate) columns: Vec<Vec<u8>>,
    /// Blocks that are lost: zeros stand for them.
    pub(crate) lost: Vec<StripPart>,
}

impl Job {
    pub(crate) fn new(piece: Piece, width: usize) -> Job {
        Job {
            piece,
            columns: vec![None; width],
            heal: Columns::default(),
            again: Columns::default(),
            twice: Columns::default(),
            unclear: Columns::default(),
            outcomes: Vec::new(),
        }
    }
}

impl Job {
    /// The column was read, and holds this over a part of the piece.
    fn holds(&self, column: usize, part: &Piece, content: &[u8]) -> bool {
        let from = (part.lo - self.piece.lo) as usize;
        let read = self.columns[column].as_deref();
        read.is_some_and(|bytes| &bytes[from..from + content.len()] == content)
    }
}

impl Replay {
    /// `pieces` are in the order of `recover::winners`.
    pub(crate) fn new(
        pieces: Vec<Piece>,
        log_from: u64,
        earlier: recover::Earlier,
        forced: bool,
    ) -> Replay {
        Replay {
            forced,
            together: pieces.iter().filter(|piece| piece.settled).count(),
            pieces: pieces.into(),
            jobs: Vec::new(),
            phase: Phase::Flush,
            pending: 0,
            again: false,
            // Above all numbers in the logs; those of the session to come begin above them.
            next_operation: log_from,
            sequence: earlier.last_sequence(),
            bound: false,
            records: 0,
            stripes: Vec::new(),
            unreadable: 0,
        }
    }
}

impl Array {
    fn replaying(&mut self) -> &mut Replay {
        self.replay.as_mut().expect("the array recovers")
    }

    /// Flushes; everything else follows from completions.
    pub(crate) fn begin_replay(&mut self) {
        self.stage = Stage::Recovering;
        self.replaying().phase = Phase::Flush;
        for device in self.table.volatile() {
            self.replay_io(device, ReplayIo::Flush, IoKind::Flush);
        }
        self.replay_step();
    }

    fn replay_io(&mut self, device: DeviceId, io: ReplayIo, kind: IoKind) {
        self.replaying().pending += 1;
        self.out.io(device, Purpose::Replay { device, io }, kind);
    }

    pub(crate) fn replay_done(&mut self, device: DeviceId, io: ReplayIo, completion: Completion) {
        self.replaying().pending -= 1;
        match (io, completion.result, completion.buf) {
            (ReplayIo::Read { job, column }, Ok(()), Some(buf)) => {
                let job = &mut self.replaying().jobs[job];
                let len = (job.piece.hi - job.piece.lo) as usize;
                job.columns[column] = Some(buf.bytes()[..len].to_vec());
            }
            // What cannot be read is computed, and written (see `replay_halve`).
            (ReplayIo::Read { job, column }, Err(IoError::Media), _) => {
                self.replay_read_error(device, job);
                let block = self.geometry.block;
                let at_work = &mut self.replaying().jobs[job];
                // A longer piece is read again in halves.
                let single = at_work.piece.hi - at_work.piece.lo == block;
                if single && !at_work.again.has(column) && !canary::hit(Canary::GivenUpUnread) {
                    at_work.again.add(column);
                    self.replay_read(device, job, column);
                } else {
                    at_work.heal.add(column);
                }
            }
            (_, Ok(()), _) => {}
            (_, Err(error), _) => {
                self.write_failed(device, error);
                self.replaying().again = true;
            }
        }
        self.replay_step();
    }

    /// It counts, but fails no member: what the member holds may be needed.
    fn replay_read_error(&mut self, device: DeviceId, job: usize) {
        let piece = &self.replaying().jobs[job].piece;
        let (stripe, lo) = (piece.stripe, piece.lo);
        let offset = self.replay_offset(device, stripe) + lo;
        if let Some(member) = self.table.get_mut(device) {
            member.counts.reads += 1;
        }
        if let Some(slot) = self.table.slot_of(device) {
            self.out.event(EventKind::ReadError {
                slot,
                device,
                offset,
                instead: self.instead_of(slot, device),
            });
        }
    }

    /// The next phase, when nothing is under way.
    pub(crate) fn replay_step(&mut self) {
        while self.stage == Stage::Recovering && self.replaying().pending == 0 {
            let replay = self.replaying();
            let begins = replay.again || matches!(replay.phase, Phase::Flush | Phase::Write);
            if begins && !self.persist.quiet() {
                return;
            }
            if std::mem::take(&mut self.replaying().again) {
                self.replay_again();
                continue;
            }
            let phase = self.replaying().phase;
            match phase {
                Phase::Flush => self.replay_chunk(),
                Phase::Read => self.replay_decide(),
                Phase::List => self.replay_log(),
                Phase::Log => self.replay_write(),
                Phase::Write => self.replay_chunk(),
            }
        }
    }

    /// A member left: the chunk begins anew without it.
    fn replay_again(&mut self) {
        let replay = self.replaying();
        let begun = replay.phase == Phase::Write;
        let before = replay.pieces.len();
        for job in std::mem::take(&mut replay.jobs).into_iter().rev() {
            match begun {
                // Its outcome is in every log that is left; something of it may be in place.
                true => {
                    let pieces = job.outcomes.into_iter().rev().map(|outcome| outcome.piece);
                    pieces.for_each(|piece| replay.pieces.push_front(piece));
                }
                false => replay.pieces.push_front(job.piece),
            }
        }
        replay.together = replay.pieces.len() - before;
        self.replay_chunk();
    }

    /// The member that a column can be read from, and those that it is to be written to.
    fn column_members(&self, stripe: StripeNo, column: usize) -> (Option<DeviceId>, Vec<DeviceId>) {
        let slot = &self.table.slots()[usize::from(self.geometry.slot(stripe, column).0)];
        let row = self.geometry.row(stripe).1;
        let region = self.geometry.region(row);
        // One that came back holds what it does not lack, and is to hold what is decided there.
        let holds = |&device: &DeviceId| row < slot.rebuilt || !self.lacks(device, region);
        let incoming = slot.incoming().filter(holds);
        let all = [slot.current(), incoming];
        (
            all.into_iter().flatten().next(),
            all.into_iter().flatten().collect(),
        )
    }

    /// Takes the next pieces and reads them; when none is left, the array goes into service.
    fn replay_chunk(&mut self) {
        let most = self.chunk_bytes();
        let geometry = Arc::clone(&self.geometry);
        let width = |piece: &Piece| geometry.columns(piece.stripe).width;
        let new_job = |piece: Piece| {
            let width = width(&piece);
            Job::new(piece, width)
        };
        let replay = self.replay.as_mut().expect("the array recovers");
        replay.jobs.clear();
        let together = std::mem::take(&mut replay.together);
        replay.bound = together > 0;
        let pieces = replay.pieces.drain(..together);
        replay.jobs.extend(pieces.map(new_job));
        let mut bytes = 0;
        while together == 0
            && let Some(mut piece) = replay.pieces.pop_front()
        {
            if piece.hi - piece.lo > most {
                replay
                    .pieces
                    .push_front(piece.cut(piece.lo + most, piece.hi));
                piece = piece.cut(piece.lo, piece.lo + most);
            }
            if !replay.jobs.is_empty() && bytes + piece.hi - piece.lo > most {
                replay.pieces.push_front(piece);
                break;
            }
            // Each has its own share of header and padding.
            bytes += (piece.hi - piece.lo).next_multiple_of(4096);
            replay.jobs.push(new_job(piece));
        }
        if replay.jobs.is_empty() {
            return self.replay_finish();
        }
        replay.phase = Phase::Read;
        let mut reads = Vec::new();
        for (job, work) in replay.jobs.iter().enumerate() {
            let piece = &work.piece;
            reads.extend((0..width(piece)).map(|c| (job, c, piece.stripe)));
        }
        for (job, column, stripe) in reads {
            let (source, targets) = self.column_members(stripe, column);
            let Some(device) = source else {
                continue;
            };
            if targets.len() > 1 {
                self.replaying().jobs[job].twice.add(column);
            }
            self.replay_read(device, job, column);
        }
    }

    fn replay_read(&mut self, device: DeviceId, job: usize, column: usize) {
        let piece = &self.replaying().jobs[job].piece;
        let (stripe, lo, len) = (piece.stripe, piece.lo, (piece.hi - piece.lo) as usize);
        let kind = IoKind::Read {
            offset: self.replay_offset(device, stripe) + lo,
            buf: Buf::zeroed(len),
            start: 0,
            len,
        };
        self.replay_io(device, ReplayIo::Read { job, column }, kind);
    }

    fn replay_offset(&self, device: DeviceId, stripe: StripeNo) -> u64 {
        let row = self.geometry.row(stripe).1;
        self.table[&device].layout.data_offset + self.geometry.row_offset(row)
    }

    /// Bytes of each strip that a chunk may cover, so that its records fit into the place that is
    /// kept for them; a multiple of the block.
    fn chunk_bytes(&self) -> u64 {
        let (block, m) = (self.geometry.block, self.geometry.m as u64);
        let plan =
            crate::log::layout::divide(&self.geometry, self.sb.layout.log_bytes, self.shards);
        let room = plan.map_or(0, |plan| plan.recovery_bytes / 2);
        // A header block, records and checksums of every block at their worst, then m partial
        // syndromes and m lost strips.
        let columns = self.geometry.width_most() as u64;
        let records = (2 + 2 * m) * log::RECORD_BYTES as u64 + 4 * columns;
        let per_block = records + sums_bytes(&self.geometry, SECTOR) + 2 * m * block;
        let fits = room.saturating_sub(2 * 4096) / per_block * block;
        fits.clamp(block, CHUNK_BYTES.max(block))
    }

    /// A member that could not read all of a piece may read most of it: such a piece is read again
    /// in halves, down to the block that cannot be read. What has to be one chunk is read again
    /// with it.
    fn replay_halve(&mut self) {
        let block = self.geometry.block;
        let replay = self.replaying();
        let before = replay.pieces.len();
        let (halve, whole): (Vec<Job>, Vec<Job>) = std::mem::take(&mut replay.jobs)
            .into_iter()
            .partition(|job| !job.heal.is_empty() && job.piece.hi - job.piece.lo > block);
        if replay.bound && !halve.is_empty() {
            let whole = whole.into_iter().rev();
            whole.for_each(|job| replay.pieces.push_front(job.piece));
        } else {
            replay.jobs = whole;
        }
        for Job { piece, .. } in halve.into_iter().rev() {
            let blocks = (piece.hi - piece.lo) / block;
            let middle = piece.lo + blocks / 2 * block;
            replay.pieces.push_front(piece.cut(middle, piece.hi));
            replay.pieces.push_front(piece.cut(piece.lo, middle));
        }
        if replay.bound {
            replay.together = replay.pieces.len() - before;
        }
    }

    /// All that can be read is there: what each piece becomes, and its records.
    fn replay_decide(&mut self) {
        let block = self.geometry.block;
        self.replay_halve();
        // What goes in place may be torn there, too.
        let tears = |device: &DeviceId| u64::from(self.table[device].info.block_bytes) < block;
        let tears = self.table.live().iter().any(tears) && !canary::hit(Canary::SumsOfBlocks);
        let sector = if tears { SECTOR } else { block };
        let mut jobs = std::mem::take(&mut self.replaying().jobs);
        if jobs.is_empty() {
            return self.replay_chunk();
        }
        for job in &mut jobs {
            let k = self.geometry.columns(job.piece.stripe).k;
            let code = Code::new(k, self.geometry.m).expect("the array's code");
            job.outcomes = decide(&code, job, block, sector);
        }
        for job in &jobs {
            self.distrust_seconds(job);
        }
        let replay = self.replaying();
        for outcome in jobs.iter_mut().flat_map(|job| &mut job.outcomes) {
            outcome.piece.operation = replay.next_operation;
            replay.next_operation += 1;
        }
        replay.jobs = jobs;
        self.replay_list();
    }

    /// Of a part that is left as it is, the two members of a column may hold different things: a
    /// write that was under way may have reached one of them. The one that is being built is built
    /// anew from there.
    fn distrust_seconds(&mut self, job: &Job) {
        let piece = &job.piece;
        let parts = job.outcomes.iter().map(|o| o.piece.hi - o.piece.lo);
        let left = parts.sum::<u64>() < piece.hi - piece.lo;
        if !left || job.twice.is_empty() {
            return;
        }
        let region = self.geometry.region(self.geometry.row(piece.stripe).1);
        let first = Row(self.geometry.region_rows(region).start);
        for column in job.twice.each() {
            let slot = self.geometry.slot(piece.stripe, column);
            let slot = &mut self.table.slots_mut()[slot.index()];
            slot.rebuilt = slot.rebuilt.min(first);
            slot.flushed = slot.flushed.min(first);
        }
        self.persist.view_due = true;
    }

    /// What is lost is listed: the outcomes go to every log.
    fn replay_log(&mut self) {
        let replay = self.replaying();
        replay.phase = Phase::Log;
        let at_work = replay.jobs.iter().map(|job| &job.piece);
        let left = at_work.chain(&replay.pieces).map(|piece| piece.operation);
        let retired_before = left.min().expect("a chunk has pieces");
        let (epoch, array) = (self.sb.epoch, self.sb.array);
        let outcomes = || {
            self.replay
                .iter()
                .flat_map(|r| &r.jobs)
                .flat_map(|j| &j.outcomes)
        };
        let block = self.geometry.block as usize;
        let records: Vec<Record> = outcomes()
            .flat_map(|outcome| settled_records(outcome, block))
            .collect();
        if records.is_empty() || canary::hit(Canary::ReplayedTooEarly) {
            return;
        }
        // A batch that is not written goes over none.
        self.replaying().sequence += 1;
        let sequence = self.replaying().sequence;
        let layout = self.sb.layout;
        let plan = crate::log::layout::divide(&self.geometry, layout.log_bytes, self.shards);
        let room = plan.map_or(0, |plan| plan.recovery_bytes / 2);
        let offset = layout.log_offset + layout.log_bytes - room * (1 + sequence % 2);
        for device in self.table.live() {
            let member = &self.table[&device];
            let head = BatchHead {
                array,
                member: member.member,
                lane: RECOVERY_LANE,
                sequence,
                retired_before,
                epoch,
            };
            let bytes = BatchSize::of(&records).encoded_bytes(4096);
            assert!(
                bytes as u64 <= room,
                "a chunk fits into the place kept for it"
            );
            let mut buf = Buf::zeroed(bytes);
            head.encode_into(records.iter(), offset, 4096, buf.bytes_mut());
            let fua = member.info.volatile_cache;
            let kind = IoKind::Write {
                offset,
                data: Slice::new(buf, 0, bytes),
                fua,
                purpose: WritePurpose::Log,
            };
            self.replay_io(device, ReplayIo::Log, kind);
        }
    }

    /// What is lost is listed before a record says what stands for it.
    fn replay_list(&mut self) {
        let block = self.geometry.block;
        let replay = self.replaying();
        replay.phase = Phase::List;
        let outcomes = replay.jobs.iter().flat_map(|job| &job.outcomes);
        let parts: Vec<StripPart> = outcomes.flat_map(|o| o.lost.iter().copied()).collect();
        if parts.is_empty() {
            return;
        }
        replay.pending += 1;
        let bytes: u64 = parts.iter().map(|part| part.hi - part.lo).sum();
        replay.unreadable += bytes / block;
        if self.list_unreadable(&parts, ListWaiter::Replay).is_ok() {
            return;
        }
        if !self.replaying().forced {
            // Which blocks are lost could not be told later: nothing is served, and the log stays.
            return self.fail(FailCause::ListFull);
        }
        self.replaying().pending -= 1;
        for part in &parts {
            let blocks = self.geometry.blocks(part);
            let (offset, len) = (blocks.start * block, (blocks.end - blocks.start) * block);
            self.out.event(EventKind::GivenUp { offset, len });
        }
    }

    /// The list is durable.
    pub(crate) fn replay_listed(&mut self) {
        if self.replay.is_some() {
            self.replaying().pending -= 1;
            self.replay_step();
        }
    }

    /// The records are durable: the parities go in place, and what else is not there yet.
    fn replay_write(&mut self) {
        self.replaying().phase = Phase::Write;
        let jobs = std::mem::take(&mut self.replaying().jobs);
        for job in &jobs {
            for outcome in &job.outcomes {
                let piece = &outcome.piece;
                let shape = self.geometry.columns(piece.stripe);
                for (column, content) in outcome.columns.iter().enumerate() {
                    let (_, targets) = self.column_members(piece.stripe, column);
                    let holds = targets.len() < 2 && job.holds(column, piece, content);
                    if holds || job.unclear.has(column) {
                        continue;
                    }
                    let (k, mirrored) = (shape.k, self.geometry.mirrored());
                    let purpose = WritePurpose::of_column(column, k, mirrored);
                    for device in targets {
                        let offset = self.replay_offset(device, piece.stripe) + piece.lo;
                        let data = Slice::new(Buf::from_bytes(content), 0, content.len());
                        let fua = self.table[&device].info.volatile_cache;
                        let kind = IoKind::Write {
                            offset,
                            data,
                            fua,
                            purpose,
                        };
                        self.replay_io(device, ReplayIo::Write, kind);
                    }
                }
                let replay = self.replaying();
                replay.stripes.push(piece.stripe);
                replay.records += 1;
            }
        }
        self.replaying().jobs = jobs;
    }

    fn replay_finish(&mut self) {
        let mut replay = self.replay.take().expect("the array recovers");
        replay.stripes.sort_unstable();
        replay.stripes.dedup();
        self.persist.view_due |= self.log_coverage.replayed(replay.next_operation);
        self.out.event(EventKind::LogReplayed {
            records: replay.records,
            stripes: replay.stripes.len() as u64,
            unreadable: replay.unreadable,
        });
        self.begin_service();
    }
}

/// What becomes of each part of a piece; parts that need nothing are left out. `sector`: what a
/// member may leave torn within a block.
pub(crate) fn decide(code: &Code, job: &mut Job, block: u64, sector: u64) -> Vec<Outcome> {
    if !canary::hit(Canary::BuiltDecided) {
        job.unclear = recover::unclear(code, &job.piece, &job.columns);
    }
    let piece = &job.piece;
    let width = job.columns.len();
    let mut outcomes: Vec<Outcome> = Vec::new();
    for lo in (piece.lo..piece.hi).step_by(block as usize) {
        let Some((columns, unreadable)) = decide_block(code, job, lo, lo + block) else {
            continue;
        };
        let hi = lo + block;
        match outcomes.last_mut() {
            Some(last) if last.piece.hi == lo => last.piece.hi = hi,
            _ => outcomes.push(Outcome {
                piece: Piece {
                    lo,
                    hi,
                    ..piece.clone()
                },
                columns: vec![Vec::new(); width],
                lost: Vec::new(),
            }),
        }
        let last = outcomes.last_mut().expect("pushed above");
        let stripe = piece.stripe;
        let lost = (0..code.k()).filter(|&c| unreadable.has(c));
        last.lost.extend(lost.map(|column| StripPart {
            stripe,
            column,
            lo,
            hi,
        }));
        for (column, content) in last.columns.iter_mut().zip(&columns) {
            column.extend(content);
        }
    }
    for outcome in &mut outcomes {
        settle(code, job, outcome, sector.min(job.piece.unit));
    }
    outcomes
}

/// What a block of a row becomes, unit by unit: all columns, and those of which something is lost.
/// `None` if it is left as it is.
fn decide_block(code: &Code, job: &Job, lo: u64, hi: u64) -> Option<(Vec<Vec<u8>>, Columns)> {
    let piece = &job.piece;
    let unit = piece.unit as usize;
    let (from, to) = ((lo - piece.lo) as usize, (hi - piece.lo) as usize);
    let units = from / unit..to / unit;
    let decide = |at: usize, begun: bool| {
        let range = at * unit..(at + 1) * unit;
        let of_column = |c: &Option<Vec<u8>>| c.as_ref().map(|b| b[range.clone()].to_vec());
        let mut columns: Vec<Option<Vec<u8>>> = job.columns.iter().map(of_column).collect();
        (recover::mend(code, piece, at, &mut columns, begun), columns)
    };
    let mut decided: Vec<_> = units.clone().map(|at| decide(at, false)).collect();
    let left = |(verdict, _): &&(Verdict, _)| *verdict == Verdict::Leave;
    match decided.iter().filter(left).count() {
        0 => {}
        count if count == decided.len() => return None,
        // What a block leaves alone is lost as a whole, or not at all.
        _ => decided = units.map(|at| decide(at, true)).collect(),
    }
    let mut all = vec![Vec::new(); job.columns.len()];
    let mut unreadable = Columns::default();
    // The other member of a column may hold something else.
    let mut changes = !job.twice.is_empty();
    for (verdict, columns) in decided {
        if let Verdict::Mended { unreadable: lost } = verdict {
            changes = true;
            lost.each().for_each(|column| unreadable.add(column));
        }
        for (all, content) in all.iter_mut().zip(columns) {
            all.extend(content.expect("mended columns are all there"));
        }
    }
    changes.then_some((all, unreadable))
}

/// Makes the piece of an outcome tell what it has become: checksums of what will lie in place, the
/// partial syndromes of all parities, and the content of the columns that have no member.
fn settle(code: &Code, job: &Job, outcome: &mut Outcome, unit: u64) {
    let (k, m) = (code.k(), code.m());
    let columns = &outcome.columns;
    let len = columns[0].len();
    let piece = &mut outcome.piece;
    piece.unit = unit;
    piece.sums = sums(piece, columns, unit as usize);
    // What is left of the parities without W: what lies in U may have gone bad.
    let zeros = vec![0; len];
    let written: Vec<&[u8]> = (0..k)
        .map(|c| match piece.written.has(c) {
            true => &columns[c][..],
            false => &zeros[..],
        })
        .collect();
    let mut syndromes = vec![vec![0; len]; m];
    let mut outputs: Vec<&mut [u8]> = syndromes.iter_mut().map(Vec::as_mut_slice).collect();
    code.generate(&written, &mut outputs);
    for (syndrome, parity) in syndromes.iter_mut().zip(&columns[k..]) {
        xor_into(syndrome, parity);
    }
    piece.syndromes = syndromes.into_iter().map(Some).collect();
    let from = (piece.lo - job.piece.lo) as usize;
    let unread = |c: &usize| {
        let read = job.columns[*c].as_deref();
        let holds = read.is_some_and(|bytes| bytes[from..from + len] == columns[*c][..]);
        !holds && piece.written.has(*c)
    };
    let mut unread: Vec<usize> = (0..k).filter(unread).collect();
    // There is room for as many as the level survives. If there are more, columns with lost blocks
    // are dropped first: the list names them, and another recovery finds the same. Then what was
    // read, and is written anew from the parities.
    let given_up = |c: &usize| outcome.lost.iter().any(|part| part.column == *c);
    unread.sort_by_key(|c| (given_up(c), job.columns[*c].is_some()));
    unread.truncate(m);
    let known = |c| unread.contains(&c).then(|| columns[c].clone());
    piece.known = (0..k).map(known).collect();
    piece.unchanged = None;
    piece.settled = true;
}

/// Checksums of every unit of what a write changes, for each column.
fn sums(piece: &Piece, columns: &[Vec<u8>], unit: usize) -> Vec<Vec<u32>> {
    let k = piece.known.len();
    let of = |(c, content): (usize, &Vec<u8>)| match c >= k || piece.written.has(c) {
        true => content.chunks(unit).map(checksum::crc32c).collect(),
        false => Vec::new(),
    };
    columns.iter().enumerate().map(of).collect()
}

/// The records of an outcome; every member gets all of them.
fn settled_records(outcome: &Outcome, block: usize) -> Vec<Record> {
    let piece = &outcome.piece;
    let len = (piece.hi - piece.lo) as u32;
    let slice = |bytes: &Vec<u8>| Slice::new(Buf::from_bytes(bytes), 0, bytes.len());
    let bare = Record {
        stripe: piece.stripe.0,
        operation: piece.operation,
        start: piece.lo as u32,
        len,
        written: piece.written.0,
        checksums: Default::default(),
        settled: true,
        payload: LogPayload::None,
    };
    let intent = |sums: Vec<Vec<u32>>| Record {
        checksums: sums.concat().into(),
        ..bare.clone()
    };
    let mut records = vec![intent(sums(piece, &outcome.columns, block))];
    if piece.unit < block as u64 {
        records.push(intent(piece.sums.clone()));
    }
    for (j, bytes) in piece.syndromes.iter().enumerate() {
        let bytes = slice(bytes.as_ref().expect("a settled piece has all of them"));
        let parity = j as u8;
        records.push(Record {
            payload: LogPayload::PartialSyndrome { parity, bytes },
            ..bare.clone()
        });
    }
    for (c, bytes) in piece.known.iter().enumerate() {
        if let Some(bytes) = bytes {
            let (column, bytes) = (c as u8, slice(bytes));
            records.push(Record {
                payload: LogPayload::LostStrip { column, bytes },
                ..bare.clone()
            });
        }
    }
    records
}
