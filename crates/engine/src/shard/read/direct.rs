//! Reads that one member alone can answer: they go straight to it, into a buffer or into the place
//! that their request has for its data.
//!
//! A **read in place** moves no byte of ours, so only the member that fills the place knows what
//! came. From there follow the invariants:
//! * While a member may still fill the place of a piece, the piece is not finished, whatever
//!   happens; so no request is answered before its places are let go of. The exception is a device
//!   that answers nothing: its read ends at the deadline (the lender of the place waits for the
//!   device itself then).
//! * No read in place is hedged: the answer would lie where the late member still writes. A member
//!   that is late with one is read into buffers, which can be hedged, until it has been in time for
//!   a while ([`HedgeRules::in_place_pause_ns`]).
//! * What fails in place is asked of the same member again, with a buffer: perhaps the place was to
//!   blame, which its user chose.
//!
//! Deliberately absent: which requests have a place, and from what size on it is worth it (the
//! submitter says so), and writes from a place (parity must see what is written).
//!
//! [`HedgeRules::in_place_pause_ns`]: crate::stats::device_latency::HedgeRules

use crate::canary::{self, Canary};
use crate::geometry::column_set::Columns;
use crate::geometry::extent::Piece;
use crate::mem::buffer::{Buf, Slice};
use crate::proto::*;
use crate::shard::op::work::{Bad, ReadPiece, ReadPieces, Work};
use crate::shard::outbox::IoFor;
use crate::shard::read::hedge::{NEVER, Racing};
use crate::shard::{Shard, Starved};
use crate::units::*;

/// A piece of a read that goes straight to the member.
#[derive(Clone, Copy)]
pub(crate) struct DirectRead {
    pub(crate) request: usize,
    pub(crate) part: usize,
    pub(crate) stripe: StripeNo,
    pub(crate) column: usize,
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    /// The column that was chosen to answer (a copy's, in a mirror), and its device.
    pub(crate) source: usize,
    pub(crate) device: DeviceId,
    pub(crate) offset: u64,
    /// When it is late, or to be looked at again.
    pub(crate) late_at: Time,
    /// It was late and the budget used up.
    pub(crate) refused: bool,
    /// It was late, and is asked of the others, too.
    pub(crate) racing: Option<Racing>,
    /// Where it goes in the place that its request has, if it goes there.
    pub(crate) place: Option<u64>,
    /// It is of another shard's stripe (`remote`).
    pub(crate) remote: bool,
}

impl DirectRead {
    /// The same as work for an operation, which does without these.
    pub(crate) fn computed(&self, avoid: Vec<Bad>) -> Work {
        let pieces = ReadPieces::of(self.piece());
        Work::read(pieces, self.lo, self.hi, avoid)
    }

    fn piece(&self) -> ReadPiece {
        ReadPiece {
            request: self.request,
            part: self.part,
            column: self.column,
            lo: self.lo,
            hi: self.hi,
        }
    }
}

impl Shard {
    /// The member that can answer this piece alone, if any. `undecided`: of copies that differ it
    /// is always the same one.
    pub(crate) fn direct(
        &self,
        request: usize,
        part: usize,
        piece: &Piece,
        undecided: bool,
    ) -> Option<DirectRead> {
        let columns = if self.map.geometry().mirrored() {
            self.map.width(piece.stripe)
        } else {
            1
        };
        // Copies of a mirror take turns by place in their group, so that neighbours go to the same
        // member. By the number of the stripe, all of a group would go to one of two copies.
        let (_, row) = self.map.geometry().row(piece.stripe);
        let first = match undecided {
            true => 0,
            false => (row.0 + piece.lo / 65536) as usize,
        };
        (0..columns).find_map(|turn| {
            let source = if columns == 1 {
                piece.column
            } else {
                (first + turn) % columns
            };
            let device = self.map.source(piece.stripe, source)?;
            let offset = self.map.member_offset(device, piece.stripe) + piece.lo;
            Some(DirectRead {
                request,
                part,
                stripe: piece.stripe,
                column: piece.column,
                lo: piece.lo,
                hi: piece.hi,
                source,
                device: device.device,
                offset,
                late_at: NEVER,
                refused: false,
                racing: None,
                place: None,
                remote: false,
            })
        })
    }

    pub(crate) fn start_read(&mut self, read: DirectRead) {
        if let Some(at) = read.place {
            return self.issue_in_place(read, at);
        }
        let len = (read.hi - read.lo) as usize;
        let keep = crate::provision::limits::widest(self.map.geometry());
        let buf = match self.starved.is_empty() {
            true => self.pool.take_leaving(len, keep),
            false => None,
        };
        match buf {
            Some(buf) => self.issue_read(read, buf),
            None => self.starved.push_back(Starved::Read(read)),
        }
    }

    pub(crate) fn issue_in_place(&mut self, mut read: DirectRead, at: u64) {
        read.late_at = self.direct_begins(&read);
        let region = self.map.region(read.stripe);
        self.gates[region].begin_use();
        let kind = IoKind::ReadInPlace {
            offset: read.offset,
            len: (read.hi - read.lo) as usize,
            request: self.requests.id(read.request),
            at,
        };
        self.out.io(read.device, IoFor::Read(read), kind);
    }

    pub(crate) fn issue_read(&mut self, mut read: DirectRead, buf: Buf) {
        read.late_at = self.direct_begins(&read);
        let len = (read.hi - read.lo) as usize;
        let region = self.map.region(read.stripe);
        self.gates[region].begin_use();
        let kind = IoKind::Read {
            offset: read.offset,
            buf,
            start: 0,
            len,
        };
        self.out.io(read.device, IoFor::Read(read), kind);
    }

    pub(crate) fn read_done(
        &mut self,
        read: DirectRead,
        result: Result<(), IoError>,
        buf: Option<Buf>,
    ) {
        let region = self.map.region(read.stripe);
        self.gates.leave(region, false, &self.logs, &mut self.out);
        self.hedges.direct_ends();
        if read.remote {
            return self.remote_read_came(&read, result, buf);
        }
        let len = (read.hi - read.lo) as usize;
        let blind = read.place.is_some() && canary::hit(Canary::InPlaceUnread);
        let slice = match (result, buf, read.place) {
            (Ok(()), Some(buf), None) => Some(Slice::new(buf, 0, len)),
            (Ok(()), None, Some(_)) => Some(Slice::placed(self.nowhere.clone(), len)),
            _ if blind => Some(Slice::placed(self.nowhere.clone(), len)),
            _ => None,
        };
        match slice {
            Some(slice) => self.read_came(&read, slice),
            None => self.read_failed(&read, result.err().unwrap_or(IoError::TimedOut)),
        }
    }

    fn read_came(&mut self, read: &DirectRead, slice: Slice) {
        if !self.hedges.claims(read.racing, &mut self.meters) {
            return self.side_ends(read.racing, None);
        }
        self.finish_read(&read.piece(), slice, read.stripe);
        self.side_ends(read.racing, None);
    }

    fn read_failed(&mut self, read: &DirectRead, error: IoError) {
        if read.place.is_some()
            && !matches!(error, IoError::TimedOut | IoError::Gone | IoError::Shrunk)
        {
            // Perhaps the place is to blame, which its user chose; the member is asked once more
            // for a buffer of ours.
            let place = None;
            let again = DirectRead { place, ..*read };
            return self.starved.push_back(Starved::Read(again));
        }
        self.out
            .report(&self.map, read.device, error, false, read.offset);
        let mut media = Columns::default();
        if error == IoError::Media {
            media.add(read.source);
        }
        if media.is_empty() && self.hedges.outrun(read.racing) {
            return self.side_ends(read.racing, None);
        }
        let bad = vec![(read.source, read.device)];
        let work = read.computed(bad).healing(media);
        self.queue.enqueue(read.stripe, work.racing(read.racing));
    }
}
