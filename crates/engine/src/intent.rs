//! What a write puts into the stripe log: which records, on which members.
//!
//! The run of the operation is cut where the set W of written columns changes; each part has an
//! intent (with a checksum of every new block of W and of the parities). Parity members get S_j in
//! addition, unless W is all of the data, and every holder gets the new content of those columns of
//! W that have no member in sync: how far one that is being rebuilt has come is not durable at once.
//!
//! S_j = P_j + Σ_{i∈W} c_ji·D_i with P_j and D_i as they will be: what is left are the columns that
//! the write does not touch. So it is the same for every plan of the write.
//!
//! Invariant: with m parities and l members of the group lost already, m − l + 1 members in sync
//! hold the intent, so one of them is there after any losses that the level survives; every parity
//! member in sync is among them. What is to replace one of them holds the same, because it may take
//! its place while the operation is under way.

use strake_format::{LogPayload, checksum};

use crate::buffers::Slice;
use crate::canary::{self, Canary};
use crate::event::*;
use crate::logs::Record;
use crate::plan::Columns;
use crate::shard::Shard;
use crate::stripe::StripeOp;
use crate::units::*;

/// New content of an operation, over parts of its run.
pub(crate) struct NewContent {
    /// Data: column, first byte within the strip, content.
    pub(crate) data: Vec<(usize, u64, Slice)>,
    /// For each parity of the code its new content over the run, where it has a member.
    pub(crate) parity: Vec<Option<Slice>>,
    /// For each parity its partial syndrome over the run, where it has a member and the write leaves
    /// columns alone somewhere.
    pub(crate) syndromes: Vec<Option<Slice>>,
}

/// A part of the run in which the written columns are the same.
struct Part {
    lo: u64,
    hi: u64,
    written: Columns,
}

impl NewContent {
    /// The run cut into parts; stretches where nothing is written are left out.
    fn parts(&self) -> Vec<Part> {
        let ends = |(_, from, slice): &(usize, u64, Slice)| [*from, *from + slice.len as u64];
        let mut cuts: Vec<u64> = self.data.iter().flat_map(ends).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut parts: Vec<Part> = Vec::new();
        for pair in cuts.windows(2) {
            let (lo, hi) = (pair[0], pair[1]);
            let mut written = Columns::default();
            for (column, from, slice) in &self.data {
                if *from <= lo && hi <= *from + slice.len as u64 {
                    written.add(*column);
                }
            }
            match parts.last_mut() {
                Some(last) if last.hi == lo && last.written == written => last.hi = hi,
                _ if written.is_empty() => {}
                _ => parts.push(Part { lo, hi, written }),
            }
        }
        parts
    }

    /// The new content of a written column over a part.
    fn column(&self, column: usize, part: &Part) -> Slice {
        let covers = |(c, from, slice): &&(usize, u64, Slice)| {
            *c == column && *from <= part.lo && part.hi <= *from + slice.len as u64
        };
        let (_, from, slice) = self.data.iter().find(covers).expect("it is written here");
        slice.part((part.lo - from) as usize, (part.hi - part.lo) as usize)
    }
}

impl Shard {
    /// The members of a stripe's group that hold the intent, and of which parity they are.
    fn holders(&self, stripe: StripeNo) -> Vec<(DeviceView, Option<usize>)> {
        let (k, m, width) = (self.geometry.k, self.geometry.m, self.geometry.width);
        let member = |c: usize| self.slot_view(stripe, c).current;
        let lost = (0..width).filter(|&c| member(c).is_none()).count();
        let needed = (m + 1).saturating_sub(lost).max(1);
        let mut columns: Vec<usize> = (k..width).filter(|&c| member(c).is_some()).collect();
        let data = (0..k).filter(|&c| member(c).is_some());
        columns.extend(data.take(needed.saturating_sub(columns.len())));
        let with_parity = |c: usize| {
            let members = self.targets(stripe, c).into_iter().flatten();
            members.map(move |member| (member, c.checked_sub(k)))
        };
        let mut holders: Vec<_> = columns.into_iter().flat_map(with_parity).collect();
        if canary::hit(Canary::IntentOnOneMember) {
            holders.truncate(1);
        }
        holders
    }

    /// The records of an operation, for each member that is to hold some.
    pub(crate) fn records(
        &self,
        op: &StripeOp,
        operation: u64,
        new: &NewContent,
    ) -> Vec<(DeviceView, Vec<Record>)> {
        let stripe = op.stripe;
        let mut all: Vec<(DeviceView, Option<usize>, Vec<Record>)> = self
            .holders(stripe)
            .into_iter()
            .map(|(member, parity)| (member, parity, Vec::new()))
            .collect();
        for part in new.parts() {
            let intent = self.intent(op, operation, new, &part);
            let bare = Record {
                checksums: Vec::new(),
                ..intent.clone()
            };
            let kept = !canary::hit(Canary::LostStripForgotten);
            let without = |c: &usize| {
                kept && part.written.has(*c) && self.slot_view(stripe, *c).current.is_none()
            };
            let lost: Vec<usize> = (0..self.geometry.k).filter(without).collect();
            for (_, parity, records) in &mut all {
                records.push(intent.clone());
                let syndrome = parity.and_then(|j| Some((j, new.syndromes[j].as_ref()?)));
                if let Some((j, syndrome)) = syndrome
                    && part.written.count() < self.geometry.k
                    && !canary::hit(Canary::SyndromeForgotten)
                {
                    let (from, len) = (part.lo - op.work.lo, part.hi - part.lo);
                    let bytes = syndrome.part(from as usize, len as usize);
                    let parity = j as u8;
                    records.push(Record {
                        payload: LogPayload::PartialSyndrome { parity, bytes },
                        ..bare.clone()
                    });
                }
                records.extend(lost.iter().map(|&c| Record {
                    payload: LogPayload::LostStrip {
                        column: c as u8,
                        bytes: new.column(c, &part),
                    },
                    ..bare.clone()
                }));
            }
        }
        all.into_iter()
            .map(|(member, _, records)| (member, records))
            .collect()
    }

    fn intent(&self, op: &StripeOp, operation: u64, new: &NewContent, part: &Part) -> Record {
        let block = self.geometry.block as usize;
        let (len, mut checksums) = ((part.hi - part.lo) as usize, Vec::new());
        let mut sums = |slice: Slice| {
            let blocks = slice.bytes().chunks(block);
            checksums.extend(blocks.map(checksum::crc32c));
        };
        (0..self.geometry.k)
            .filter(|&c| part.written.has(c))
            .for_each(|c| sums(new.column(c, part)));
        for parity in &new.parity {
            match parity {
                Some(slice) => sums(slice.part((part.lo - op.work.lo) as usize, len)),
                None => sums(Slice::new(self.zeros.clone(), 0, len)),
            }
        }
        Record {
            stripe: op.stripe.0,
            operation,
            start: part.lo as u32,
            len: len as u32,
            written: part.written.0,
            checksums,
            settled: false,
            payload: LogPayload::None,
        }
    }
}
