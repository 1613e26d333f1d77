//! Salvage: an operation that cannot be planned because too many strips are unreadable goes through
//! its run again, down to single logical blocks.
//!
//! Order, under the operation's lock of its run:
//! 1. every column that has a member is read, in halves where a medium fails, down to the block;
//! 2. a block with enough left is computed and rewritten at once;
//! 3. where too little is left, the data columns that are gone are put on the list of unreadable
//!    blocks, all of the run at once, and the operation waits until that is durable
//!    (`array::metadata::bad_blocks`);
//! 4. then records of the stripe log that tell of the run are retired (`retire`);
//! 5. then those blocks are rewritten, and the operation is planned anew, on members that can be
//!    read.
//!
//! What a lost block is rewritten with: as many unreadable columns as there are equations too few
//! are taken as zeros, and the rest follows from what *can* be read. So nothing readable is
//! changed, and whatever part of it a crash leaves undone follows from the rest: no write hole.
//! Where parity is not trusted, unreadable columns are zeros, and the resync that is due makes
//! parity of them.
//!
//! Invariants:
//! * Nothing is given up that the code can compute, or that a member which is only slow or gone may
//!   still hold: at least one of the columns has a medium that failed, at this very block.
//! * Reads of the user give nothing up: they may be tried again.
//! * In an undecided region that waits for its resync they write nothing either: what they read and
//!   compute answers them, and is gone.

use crate::canary::{self, Canary};
use crate::geometry::StripPart;
use crate::geometry::column_set::Columns;
use crate::mem::buffer::{Buf, Slice};
use crate::proto::*;
use crate::shard::Shard;
use crate::shard::op::kind::{Answer, Kind, Phase, ReadFor};
use crate::shard::op::scrub::Found;
use crate::shard::op::work::{Bad, ReadPiece, Work};
use crate::shard::op::{Again, StripeOp};
use crate::stripe::write_plan::{Extra, Reads};
use crate::units::*;

/// Salvages of one operation: sectors that fail again as soon as they were written end it. Every
/// member that leaves or falls silent meanwhile takes a round or two, too, and no write may fail
/// for that.
const ROUNDS: u32 = 16;

/// How far a salvage has come.
#[derive(Debug, Default)]
pub(crate) struct Salvage {
    /// Parts of the run that are still to be looked at, the next one last.
    todo: Vec<(u64, u64)>,
    /// The part at work.
    at: (u64, u64),
    /// Columns that had a media error there.
    pub(crate) unreadable: Columns,
    /// Columns that are being rewritten as they were.
    restored: Columns,
    /// Blocks to be listed.
    lost: Vec<StripPart>,
    /// The epoch in which the array was asked to list: by then it knows which members are away, and
    /// that they lack what is given up. (Not the view: there is a new one whenever a rebuild comes
    /// along.)
    asked: Option<Epoch>,
    /// Of a read that may write nothing: what it has of the columns that it is asked for, and where
    /// in their strips that begins.
    kept: Option<Vec<(usize, u64, Vec<u8>)>>,
}

impl StripeOp {
    /// Its run is being gone through again.
    pub(crate) fn salvages(&self) -> bool {
        matches!(self.again, Again::Salvage(_))
    }

    /// What it has computed, or is about to, comes from strips that do not agree and none of which
    /// can be named, and its region is not undecided yet.
    pub(crate) fn builds_unclear(&self) -> bool {
        let unclear = self.findings.iter().any(|found| found.corrupt.is_empty());
        unclear && !self.undecided && !canary::hit(Canary::BuiltDecided)
    }

    /// It is planned anew.
    pub(crate) fn end_salvage(&mut self) {
        if self.salvages() {
            self.again = Again::Nothing;
        }
    }
}

impl Shard {
    /// The operation cannot be planned: finds out why, or gives it up.
    pub(crate) fn begin_salvage(&mut self, key: usize) {
        let op = &self.ops[key];
        let (scrub, reads) = (op.kind.is_scrub(), op.kind.is_read());
        let media = |&(column, _): &Bad| op.heal.has(column);
        let silent = |bad: &Bad| !media(bad) && self.map.in_view(bad.1);
        if scrub || op.rounds == ROUNDS {
            return self.finish_op(key, Some(RequestError::Unreadable));
        }
        if op.bad.iter().any(silent) {
            return self.await_verdict(key);
        }
        if !op.bad.iter().any(media) {
            if reads && canary::hit(Canary::ZerosBeyond) {
                return self.pass_over(key);
            }
            return self.finish_op(key, Some(RequestError::Unreadable));
        }
        if op.kind.shared() {
            return self.read_alone(key);
        }
        let op = &mut self.ops[key];
        op.rounds += 1;
        // They are looked at again; what else failed stays so.
        let heal = std::mem::take(&mut op.heal);
        op.bad.retain(|&(column, _)| !heal.has(column));
        let todo = vec![(op.lo, op.hi)];
        let keeps = reads && self.gates[op.region].undecided();
        op.again = Again::Salvage(Box::new(Salvage {
            todo,
            kept: keeps.then(Vec::new),
            ..Salvage::default()
        }));
        self.salvage_next(key);
    }

    /// A member is silent or gone, and the array may be about to take it out: that is waited for.
    /// Another one may have come in sync meanwhile, which this shard does not know yet.
    fn await_verdict(&mut self, key: usize) {
        if self.map.view().failed {
            return self.finish_op(key, Some(RequestError::Failed));
        }
        let op = &mut self.ops[key];
        op.rounds += 1;
        op.drop_buffers();
        op.phase = Phase::List(Answer::Verdict);
        self.out.say(FromShard::AwaitVerdict { op: key as u64 });
    }

    /// Only an operation that holds its range alone may write back: the read comes again as one.
    fn read_alone(&mut self, key: usize) {
        let op = *self.retire(key);
        let Kind::Read(read) = op.kind else {
            unreachable!("only reads share")
        };
        let work = Work::read(read.asked.pieces, op.lo, op.hi, op.bad);
        self.queue
            .enqueue(op.stripe, work.healing(op.heal).racing(read.asked.race));
    }

    fn salvaging(&mut self, key: usize) -> &mut Salvage {
        match &mut self.ops[key].again {
            Again::Salvage(salvage) => salvage,
            _ => unreachable!("the operation is in salvage"),
        }
    }

    /// Reads the next part of the run.
    pub(crate) fn salvage_next(&mut self, key: usize) {
        let Some((lo, hi)) = self.salvaging(key).todo.pop() else {
            return self.salvage_over(key);
        };
        let salvage = self.salvaging(key);
        (salvage.at, salvage.unreadable) = ((lo, hi), Columns::default());
        let missing = self.lost(&self.ops[key]);
        let reads: Reads = (0..self.ops[key].width)
            .filter(|&c| !missing.has(c))
            .map(|c| (c, lo, hi))
            .collect();
        if reads.is_empty() {
            return self.finish_op(key, Some(RequestError::Unreadable));
        }
        let single = hi - lo == self.map.geometry().block;
        let outputs = if single { self.map.geometry().m } else { 0 };
        let extra = Extra {
            bytes: (hi - lo) as usize,
            count: outputs,
        };
        self.want(key, reads, extra, ReadFor::Salvage);
    }

    /// Every column of the part was read, or failed to be.
    pub(crate) fn salvage_read(&mut self, key: usize) {
        let (block, salvage) = (self.map.geometry().block, self.salvaging(key));
        let (lo, hi) = salvage.at;
        if salvage.unreadable.is_empty() {
            self.keep_part(key, Columns::default());
            return self.salvage_next(key);
        }
        if hi - lo > block {
            let middle = lo + (hi - lo) / block / 2 * block;
            salvage.todo.extend([(middle, hi), (lo, middle)]);
            return self.salvage_next(key);
        }
        let op = &self.ops[key];
        let (bad, mut gone) = (self.salvage_of(key).unreadable, Columns::default());
        let (width, k) = (op.width, op.k);
        (0..width)
            .filter(|&c| op.columns[c].is_none())
            .for_each(|c| gone.add(c));
        let data_gone = (0..k).any(|c| gone.has(c));
        let enough = gone.count() <= self.map.geometry().m;
        let keeps = self.salvage_of(key).kept.is_some();
        if !keeps && op.kind.is_read() && self.gates[op.region].undecided() {
            // It was not when this began.
            return self.prepare(key);
        }
        if keeps && (enough && self.trusted(op.stripe, gone) || !self.asks_for(key, gone)) {
            self.keep_part(key, gone);
            return self.salvage_next(key);
        }
        if !keeps && enough && (!data_gone || self.trusted(op.stripe, gone)) {
            self.salvaging(key).restored = bad;
            return self.rewrite(key, bad, gone, false);
        }
        let parts = self.lost_parts(key, gone, (lo, hi));
        let asked = self.salvage_of(key).asked == Some(self.map.view().epoch);
        let listed = asked && parts.iter().all(|part| self.map.is_listed(part));
        if !self.may_give_up(key, bad, gone) {
            if !self.parks(key) {
                self.finish_op(key, Some(RequestError::Unreadable));
            }
        } else if !listed {
            self.salvaging(key).lost.extend(parts);
            self.salvage_next(key);
        } else {
            self.salvaging(key).restored = Columns::default();
            self.rewrite(key, bad, gone, true);
        }
    }

    /// The part at work of any of these columns is asked for by a read.
    fn asks_for(&self, key: usize, columns: Columns) -> bool {
        self.asked_of(key).each().any(|column| columns.has(column))
    }

    /// The columns that a read asks for in the part at work.
    fn asked_of(&self, key: usize) -> Columns {
        let (lo, hi) = self.salvage_of(key).at;
        let Kind::Read(read) = &self.ops[key].kind else {
            return Columns::default();
        };
        let pieces = read.asked.pieces.iter();
        let there = pieces.filter(|piece| piece.lo < hi && lo < piece.hi);
        there.map(|piece| piece.column).collect()
    }

    /// The part at work was read but for columns that are `gone`, which are computed: a read that
    /// may write nothing keeps what it is asked for.
    fn keep_part(&mut self, key: usize, gone: Columns) {
        if self.salvage_of(key).kept.is_none() {
            return;
        }
        let asked = self.asked_of(key);
        let computed: Columns = asked.each().filter(|&column| gone.has(column)).collect();
        let mirrored = self.map.geometry().mirrored();
        let mut op = self.ops.take(key);
        if !computed.is_empty() && !mirrored {
            self.decode_into(&mut op, gone, computed);
        }
        let mut parts = Vec::new();
        for column in asked.each() {
            let content = match mirrored {
                // The first copy that can be read.
                true => op.columns.iter().flatten().next(),
                false => op.columns[column].as_ref(),
            };
            parts.push((column, content.expect("read or decoded").bytes().to_vec()));
        }
        self.ops.put_back(key, op);
        let salvage = self.salvaging(key);
        let lo = salvage.at.0;
        let kept = salvage.kept.as_mut().expect("it keeps what it reads");
        kept.extend(parts.into_iter().map(|(column, bytes)| (column, lo, bytes)));
    }

    /// A read that may write nothing has all that it is asked for.
    fn answer_kept(&mut self, key: usize, kept: &[(usize, u64, Vec<u8>)]) {
        let stripe = self.ops[key].stripe;
        let Kind::Read(read) = &mut self.ops[key].kind else {
            unreachable!("only a read keeps what it reads");
        };
        read.answered = true;
        let (mut pieces, race) = (read.asked.pieces.clone(), read.asked.race);
        let claims = self.hedges.claims(race, &mut self.meters);
        for piece in pieces.drain().filter(|_| claims) {
            let mut content = Buf::zeroed((piece.hi - piece.lo) as usize);
            let of_column = kept.iter().filter(|(column, ..)| *column == piece.column);
            for (_, from, bytes) in of_column {
                let (lo, hi) = (piece.lo.max(*from), piece.hi.min(from + bytes.len() as u64));
                if lo < hi {
                    let within = (lo - from) as usize..(hi - from) as usize;
                    let at = (lo - piece.lo) as usize..(hi - piece.lo) as usize;
                    content.bytes_mut()[at].copy_from_slice(&bytes[within]);
                }
            }
            let slice = Slice::new(content, 0, (piece.hi - piece.lo) as usize);
            self.finish_read(&piece, slice, stripe);
        }
        self.finish_op(key, None);
    }

    fn salvage_of(&self, key: usize) -> &Salvage {
        match &self.ops[key].again {
            Again::Salvage(salvage) => salvage,
            _ => unreachable!("the operation is in salvage"),
        }
    }

    /// The data columns of a block that are gone.
    fn lost_parts(&self, key: usize, gone: Columns, (lo, hi): (u64, u64)) -> Vec<StripPart> {
        let stripe = self.ops[key].stripe;
        let part = |column| StripPart {
            stripe,
            column,
            lo,
            hi,
        };
        let data = (0..self.map.shape(stripe).k).filter(|&c| gone.has(c));
        data.map(part).collect()
    }

    /// May a block be given up of which the columns `gone` are missing, the media of `bad` among
    /// them having failed?
    fn may_give_up(&self, key: usize, bad: Columns, gone: Columns) -> bool {
        let op = &self.ops[key];
        let reads = op.kind.is_read();
        let away = Columns(gone.0 & !bad.0);
        let missing = |c: &usize| away.has(*c);
        let (width, k) = (op.width, op.k);
        let data_missing = (0..k).any(|c| missing(&c));
        // A member that is there and did not answer may do so later; with parity that is not
        // trusted, only the member that is away has the data.
        let hung = op.bad.iter().any(|&(_, device)| self.map.in_view(device));
        let unknown = data_missing && !self.trusted(op.stripe, away);
        let beyond = (0..width).filter(missing).count() > self.map.geometry().m;
        !(reads || hung || unknown || beyond)
    }

    /// Writes the `bad` columns of a block of which those in `gone` are missing: as they were, or
    /// if too few are left, what agrees with those that are. That is new content, and what is
    /// computed from it elsewhere must not outlive it: it is durable (`fua`).
    fn rewrite(&mut self, key: usize, bad: Columns, gone: Columns, fua: bool) {
        let (lo, hi) = self.salvage_of(key).at;
        let mut op = self.ops.take(key);
        let zeros = Slice::new(self.zeros.clone(), 0, (hi - lo) as usize);
        let (width, k) = (op.width, op.k);
        let columns: Vec<usize> = (0..width).filter(|&c| bad.has(c)).collect();
        let data_gone = (0..k).any(|c| gone.has(c));
        let free = match !data_gone || self.trusted(op.stripe, gone) {
            true => gone.count().saturating_sub(self.map.geometry().m),
            false => columns.len(),
        };
        let (free, computed) = columns.split_at(free);
        let mut lost = gone;
        for &column in free {
            op.columns[column] = Some(zeros.clone());
            lost = lost.without(column);
        }
        if !computed.is_empty() {
            if free.is_empty() {
                // A strip that is named as corrupt is replaced in memory first. Where none can be
                // named, the strips are used as they are, in a region that is undecided: the
                // operation could not go on without them.
                let before = std::mem::take(&mut op.findings);
                self.judge_sources(&mut op, lost, Columns::default());
                if op.builds_unclear() {
                    op.findings = before;
                    self.ops.put_back(key, op);
                    self.salvaging(key).todo.push((lo, hi));
                    return self.leave_undecided(key);
                }
                self.keep_findings(&mut op, before, lo);
            }
            self.decode_into(&mut op, lost, computed.iter().copied().collect());
        }
        op.phase = Phase::writing();
        let contents: Vec<Option<Slice>> = columns.iter().map(|&c| op.columns[c].clone()).collect();
        self.ops.put_back(key, op);
        for (&column, content) in columns.iter().zip(contents) {
            let content = content.expect("taken as zeros or computed");
            self.write_column(key, column, lo, content, fua);
        }
        if self.ops[key].pending == 0 {
            self.salvage_written(key);
        }
    }

    /// What was found in a part of the run that begins at `lo`: told at once, or, of a step, with
    /// all that it finds. A strip that is named here is named again when the step is planned anew.
    fn keep_findings(&mut self, op: &mut StripeOp, before: Vec<Found>, lo: u64) {
        if op.kind.step().is_none() {
            self.say_findings(op, lo, ScrubMode::Check);
            op.findings.clear();
            return;
        }
        let found = std::mem::replace(&mut op.findings, before);
        let unclear = found.into_iter().filter(|found| found.corrupt.is_empty());
        op.findings.extend(unclear.map(|found| Found {
            lo: found.lo + lo as usize,
            hi: found.hi + lo as usize,
            ..found
        }));
    }

    /// A block was rewritten.
    pub(crate) fn salvage_written(&mut self, key: usize) {
        let salvage = self.salvaging(key);
        let (restored, (lo, hi)) = (std::mem::take(&mut salvage.restored), salvage.at);
        let stripe = self.ops[key].stripe;
        self.say_repaired(stripe, restored, lo, hi);
        self.salvage_next(key);
    }

    /// The whole run was looked at: what is lost is listed; or the operation is planned anew.
    fn salvage_over(&mut self, key: usize) {
        if let Some(kept) = self.salvaging(key).kept.take() {
            return self.answer_kept(key, &kept);
        }
        let parts = std::mem::take(&mut self.salvaging(key).lost);
        if parts.is_empty() {
            return self.prepare(key);
        }
        let mut blocks: Vec<(u64, u64)> = parts.iter().map(|part| (part.lo, part.hi)).collect();
        blocks.dedup();
        let epoch = self.map.view().epoch;
        let salvage = self.salvaging(key);
        (salvage.todo, salvage.asked) = (blocks, Some(epoch));
        self.ask_for_list(key, ListChange::Add, parts);
    }

    /// The array is asked to leave the region of an operation undecided, durably: what it is about
    /// to write would agree with a strip that is wrong.
    pub(crate) fn leave_undecided(&mut self, key: usize) {
        let op = &mut self.ops[key];
        op.undecided = true;
        op.drop_buffers();
        op.phase = Phase::List(Answer::Undecided);
        let (op, stripe) = (key as u64, op.stripe);
        self.out.say(FromShard::Undecided { op, stripe });
    }

    // ---- the list ----------------------------------------------------------------------------

    fn ask_for_list(&mut self, key: usize, change: ListChange, parts: Vec<StripPart>) {
        if self.map.view().failed {
            // Nothing is listed any more, and nobody would answer.
            return self.finish_op(key, Some(RequestError::Failed));
        }
        let op = &mut self.ops[key];
        op.drop_buffers();
        op.phase = Phase::List(match change {
            ListChange::Add => Answer::Listed,
            ListChange::Reserve => Answer::RoomKept,
            ListChange::Remove | ListChange::Stay => Answer::Unlisted,
        });
        self.out.say(FromShard::List {
            op: key as u64,
            change,
            parts,
        });
    }

    /// The list is durable as the operation wanted it, or full; or a member was judged.
    pub(crate) fn list_answered(&mut self, op: u64, full: bool) {
        let key = op as usize;
        let Phase::List(answer) = self.ops[key].phase else {
            unreachable!("the array answers what it was asked");
        };
        match answer {
            Answer::Verdict => self.prepare(key),
            _ if full => self.finish_op(key, Some(RequestError::Unreadable)),
            // Other content is about to lie there.
            Answer::Listed | Answer::Undecided if !self.outlives_records(key) => {}
            Answer::Undecided if !self.ops[key].salvages() => self.prepare(key),
            Answer::Listed | Answer::Undecided => self.salvage_next(key),
            Answer::RoomKept => {
                self.ops[key].room_kept = true;
                self.prepare(key);
            }
            Answer::Unlisted => self.finish_op(key, None),
        }
    }

    /// The operation has written in place, durably: if blocks among it are listed, they leave the
    /// list before it is over. True if it waits for that.
    pub(crate) fn unlists(&mut self, key: usize) -> bool {
        let listed = self.listed_parts(key);
        if listed.is_empty() {
            return false;
        }
        // With that the room is used.
        self.ops[key].room_kept = false;
        self.ask_for_list(key, ListChange::Remove, listed);
        true
    }

    /// Before anything of a write is in the log or in place: if blocks among it are listed, the
    /// array keeps room for them to leave the list, or the write ends with an error and has changed
    /// nothing. True if it waits for that.
    pub(crate) fn awaits_room(&mut self, key: usize) -> bool {
        if self.ops[key].room_kept || self.listed_parts(key).is_empty() {
            return false;
        }
        // All that it writes: a salvage may list more of it before it is in place.
        let parts = self.written_parts(key, |_| true);
        self.ask_for_list(key, ListChange::Reserve, parts);
        true
    }

    /// An operation ends: it needs no room any more.
    pub(crate) fn give_room_back(&mut self, key: usize) {
        if std::mem::take(&mut self.ops[key].room_kept) {
            self.out.say(FromShard::List {
                op: key as u64,
                change: ListChange::Stay,
                parts: Vec::new(),
            });
        }
    }

    /// What an operation writes that is listed.
    fn listed_parts(&self, key: usize) -> Vec<StripPart> {
        self.written_parts(key, |part| self.map.touches_lost(part))
    }

    /// What an operation writes of the user's data, as far as `counts`.
    fn written_parts(&self, key: usize, counts: impl Fn(&StripPart) -> bool) -> Vec<StripPart> {
        let op = &self.ops[key];
        let stripe = op.stripe;
        match &op.kind {
            Kind::Write(write) => {
                let places = write.asked.pieces.iter().map(|p| p.place(stripe));
                places.filter(|part| counts(part)).collect()
            }
            Kind::Zero(_) => {
                let places = self.map.run(stripe, op.lo, op.hi);
                places.filter(|part| counts(part)).collect()
            }
            Kind::Read(_) | Kind::Step(_) => Vec::new(),
        }
    }

    /// A piece of a read has its content; unless that means nothing by now.
    pub(crate) fn finish_read(&mut self, piece: &ReadPiece, slice: Slice, stripe: StripeNo) {
        match self.map.touches_lost(&piece.place(stripe)) {
            true => self.finish_part(piece.request, None, Err(RequestError::Unreadable)),
            false => self.finish_part(piece.request, Some((piece.part, slice)), Ok(())),
        }
    }
}
