//! Scrub: checks whether the strips of a stripe agree, names the corrupt strip where redundancy can
//! locate it, and repairs it if asked to.
//!
//! A scrub judges one logical block of a stripe at a time, so that strips that are corrupt in
//! different blocks are located separately. Which strips it names, and why that is right, is
//! explained in `strake_parity` (`locate`): with r strips more than data, up to r − 1 corrupt
//! strips.
//!
//! Invariants:
//! * A check writes nothing. A repair writes only blocks of strips that were named (or that could
//!   not be read), computed from strips that agree with each other. Parity is one strip among
//!   others.
//! * Where no strip can be named, a repair changes nothing: neither data nor parity.
//! * Members that are being rebuilt are not judged, and are not used to judge others.
//!
//! A repair waits until the stripe log has no record of the stripe (`retire`). It is written
//! through (FUA), so that what a scrub reported as repaired stays so after a power cut. It needs no
//! Dirty region: a torn repair leaves a strip that was corrupt before corrupt.

use strake_parity::Verdict;

use crate::canary::{self, Canary};
use crate::geometry::column_set::Columns;
use crate::mem::buffer::Buf;
use crate::proto::*;
use crate::shard::Shard;
use crate::shard::op::{InPlace, Put, StripeOp};
use crate::stripe::write_plan::available;

/// A piece of a stripe in which strips do not agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Bytes within what was read of each strip.
    pub(crate) lo: usize,
    pub(crate) hi: usize,
    /// The corrupt columns; empty if redundancy cannot locate them.
    pub(crate) corrupt: Columns,
}

impl Shard {
    /// The strips of a stripe were read: judges them.
    pub(crate) fn compute_scrub(&mut self, key: usize, mode: ScrubMode, lost: Columns) {
        let width = self.ops[key].width;
        let mut op = self.ops.take(key);
        let whole = lost.is_empty();
        if !(whole && self.agree(&op)) {
            self.judge(&mut op, lost);
        }
        let lies = !op.findings.is_empty();
        op.kind.note_inconsistent(lies);
        if mode != ScrubMode::Repair {
            self.ops.put_back(key, op);
            return;
        }
        if lies && canary::hit(Canary::ScrubRewritesParity) {
            self.ops.put_back(key, op);
            return self.compute_resync(key, lost);
        }
        self.mend(&mut op, lost);
        let puts = mended(&op, width).into_iter().map(|(column, lo, hi)| {
            let strip = op.columns[column].as_ref();
            let slice = strip.expect("read or decoded").part(lo, hi - lo);
            Put::of(column, lo as u64, slice)
        });
        let puts = puts.collect();
        op.in_place = InPlace { puts, fua: true };
        self.ops.put_back(key, op);
        match lies {
            true => self.change_in_place(key),
            // As they were before they could not be read.
            false => self.put_in_place(key),
        }
    }

    /// Do all columns agree? For stripes of which every column was read.
    pub(crate) fn agree(&self, op: &StripeOp) -> bool {
        let columns: Vec<&[u8]> = op.columns.iter().flatten().map(|s| s.bytes()).collect();
        let (data, stored) = columns.split_at(op.k);
        self.map
            .code(op.stripe)
            .check_with(self.heat(op), data, stored)
    }

    /// Finds the pieces of what was read in which strips do not agree, and names the corrupt
    /// strips.
    pub(crate) fn judge(&self, op: &mut StripeOp, lost: Columns) {
        if op.has_kept() {
            return self.judge_blocks(op, lost);
        }
        let block = self.map.geometry().block as usize;
        let present = available(op.width, lost);
        let locator = self.map.code(op.stripe).locator(&present);
        let locator = locator.expect("the plan read k columns at least");
        let len = op.columns.iter().flatten().map(|column| column.len).next();
        let Some(len) = len.filter(|_| locator.syndromes() > 0) else {
            return;
        };
        let at = op.bufs.len() - locator.syndromes();
        let mut bufs: Vec<Buf> = op.bufs.split_off(at);
        let mut syndromes: Vec<&mut [u8]> = bufs
            .iter_mut()
            .map(|buf| &mut buf.bytes_mut()[..len])
            .collect();
        let columns: Vec<Option<&[u8]>> = op
            .columns
            .iter()
            .map(|column| column.as_ref().map(|slice| slice.bytes()))
            .collect();
        if !locator.compute(&columns, &mut syndromes) {
            for lo in (0..len).step_by(block) {
                let piece: Vec<&[u8]> = syndromes.iter().map(|s| &s[lo..lo + block]).collect();
                let corrupt = match locator.locate(&piece) {
                    Verdict::Consistent => continue,
                    Verdict::Lies(set) => Columns(set),
                    Verdict::Unclear => Columns::default(),
                };
                let hi = lo + block;
                match op.findings.last_mut() {
                    Some(last) if last.hi == lo && last.corrupt == corrupt => last.hi = hi,
                    _ => op.findings.push(Found { lo, hi, corrupt }),
                }
            }
        }
        op.bufs.extend(bufs);
    }

    /// The same where columns could be read in parts: each of them counts where it was read. What
    /// only they name is not named: there are not enough others to compute what it should be.
    fn judge_blocks(&self, op: &mut StripeOp, lost: Columns) {
        let block = self.map.geometry().block as usize;
        let present = available(op.width, lost);
        let mends = present.len() > op.k;
        let len = op.columns.iter().flatten().map(|column| column.len).next();
        for lo in (0..len.unwrap_or(0)).step_by(block) {
            let mut columns: Vec<Option<&[u8]>> = op
                .columns
                .iter()
                .map(|column| column.as_ref().map(|slice| &slice.bytes()[lo..lo + block]))
                .collect();
            let mut here: Vec<usize> = present.iter().copied().collect();
            for (column, bytes) in op.kept_at(lo, block) {
                columns[column] = Some(bytes);
                here.push(column);
            }
            here.sort_unstable();
            let locator = self.map.code(op.stripe).locator(&here);
            let locator = locator.expect("the plan read k columns at least");
            let mut syndromes = vec![vec![0; block]; locator.syndromes()];
            let mut outputs: Vec<&mut [u8]> = syndromes.iter_mut().map(|s| &mut s[..]).collect();
            if outputs.is_empty() || locator.compute(&columns, &mut outputs) {
                continue;
            }
            let syndromes: Vec<&[u8]> = syndromes.iter().map(|s| &s[..]).collect();
            let corrupt = match locator.locate(&syndromes) {
                Verdict::Consistent => continue,
                Verdict::Lies(set) => Columns(set),
                Verdict::Unclear => Columns::default(),
            };
            let named = mends && corrupt.each().all(|column| present.contains(&column));
            let enough = present.len() >= op.k + corrupt.count();
            let corrupt = match named && enough {
                true => corrupt,
                false => Columns::default(),
            };
            let hi = lo + block;
            match op.findings.last_mut() {
                Some(last) if last.hi == lo && last.corrupt == corrupt => last.hi = hi,
                _ => op.findings.push(Found { lo, hi, corrupt }),
            }
        }
    }

    /// Puts the truth into the columns that were named, and into those that could not be read.
    fn mend(&self, op: &mut StripeOp, lost: Columns) {
        self.mend_named(op, lost);
        let clear = op.findings.iter().all(|found| !found.corrupt.is_empty());
        if clear && !op.heal.is_empty() {
            op.healed = op.heal;
            let unreadable = op.heal;
            self.decode_into(op, lost, unreadable);
        }
    }

    /// Puts the truth into the columns that were named; those that are `lost` were not judged.
    pub(crate) fn mend_named(&self, op: &mut StripeOp, lost: Columns) {
        for found in &op.findings {
            let (lo, hi, corrupt) = (found.lo, found.hi, found.corrupt);
            if corrupt.is_empty() {
                continue;
            }
            let decoder = self.map.decoder(op.stripe, lost.with(corrupt), corrupt);
            let decoder = decoder.expect("corrupt columns are named only where k others agree");
            let inputs: Vec<&[u8]> = decoder
                .sources()
                .iter()
                .map(|&c| &op.columns[c].as_ref().expect("it was read").bytes()[lo..hi])
                .collect();
            let at = op.bufs.len() - corrupt.count();
            let mut truths: Vec<&mut [u8]> = op.bufs[at..]
                .iter_mut()
                .map(|buf| &mut buf.bytes_mut()[..hi - lo])
                .collect();
            decoder.decode(&inputs, &mut truths);
            for (column, truth) in corrupt.each().zip(&truths) {
                let strip = op.columns[column].as_mut().expect("it was read");
                strip.buf.bytes_mut()[lo..hi].copy_from_slice(truth);
            }
        }
    }

    /// Tells the array what a scrub found in a stripe; `base` is where in its strips what was
    /// judged begins.
    pub(crate) fn say_findings(&mut self, op: &StripeOp, base: u64, mode: ScrubMode) {
        for found in &op.findings {
            let len = (found.hi - found.lo) as u64;
            if found.corrupt.is_empty() {
                self.out.say(FromShard::Inconsistent {
                    stripe: op.stripe,
                    from: base + found.lo as u64,
                    len,
                });
            }
            for column in (0..op.width).filter(|&c| found.corrupt.has(c)) {
                if let Some(device) = self.map.slot_view(op.stripe, column).current {
                    let offset = self.map.member_offset(device, op.stripe) + base + found.lo as u64;
                    self.out.say(FromShard::Mismatch {
                        device: device.device,
                        offset,
                        len,
                        repaired: mode == ScrubMode::Repair,
                    });
                }
            }
        }
    }
}

/// What a repair writes: column and bytes within its strip.
fn mended(op: &StripeOp, width: usize) -> Vec<(usize, usize, usize)> {
    let columns = |set: Columns| (0..width).filter(move |&c| set.has(c));
    let lies = op
        .findings
        .iter()
        .flat_map(|found| columns(found.corrupt).map(|c| (c, found.lo, found.hi)));
    let unread = columns(op.healed).map(|c| (c, 0, (op.hi - op.lo) as usize));
    lies.chain(unread).collect()
}
