//! What the steps of jobs do with a stripe: rebuild it onto incoming members, or make its parity
//! true (resync). What a scrub does stands in `scrub`.
//!
//! Invariant: a rebuild writes only members that were incoming when it was planned.

use strake_parity::Heat;

use crate::canary::{self, Canary};
use crate::geometry::Shape;
use crate::geometry::column_set::Columns;
use crate::mem::buffer::{Buf, Slice};
use crate::proto::*;
use crate::shard::Shard;
use crate::shard::op::kind::{Kind, Plan};
use crate::shard::op::{Put, StripeOp};
use crate::stripe::write_plan::WritePlan;
use crate::stripe::write_plan::{Extra, Planned, Reads, available};
use crate::units::*;

impl Shard {
    pub(crate) fn plan_step(
        &self,
        op: &StripeOp,
        kind: StepKind,
        lost: Columns,
    ) -> Option<Planned> {
        let strip = self.map.geometry().strip;
        let (width, k) = (op.width, op.k);
        let trusted = self.trusted(op.stripe, lost);
        if kind == StepKind::Rebuild {
            let wanted = self.map.unbuilt(op.stripe).into_iter().map(|(c, _)| c);
            let wanted: Columns = wanted.collect();
            // The target may have left after a sector was found unreadable: that is mended all the
            // same.
            if wanted.is_empty() && op.heal.is_empty() {
                return Some((WritePlan::Full, Reads::new(), Extra::default()));
            }
            // What can still be read is copied, the rest is computed.
            let computed = wanted.each().filter(|&c| lost.has(c));
            let computed = computed.collect::<Columns>().with(op.heal);
            let mut columns: Columns = wanted.each().filter(|&c| !lost.has(c)).collect();
            let present = available(width, lost);
            if !computed.is_empty() && self.checks_sources(op.stripe, lost) {
                present.iter().for_each(|&c| columns.add(c));
            } else if !computed.is_empty() {
                let decoder = self.map.decoder(op.stripe, lost, computed)?;
                if !trusted && decoder.sources().iter().any(|&c| c >= k) {
                    return None;
                }
                decoder.sources().iter().for_each(|&c| columns.add(c));
            }
            let reads = columns.each().map(|c| (c, 0, strip)).collect();
            let extra = Extra {
                bytes: strip as usize,
                count: 2 * self.map.geometry().m,
            };
            return Some((WritePlan::Decode, reads, extra));
        }
        // Resync and scrub look at everything that is there.
        let data_lost = (0..k).any(|c| lost.has(c));
        if data_lost && !trusted {
            return None;
        }
        if available(width, lost).len() < k {
            return None;
        }
        let reads = available(width, lost)
            .iter()
            .map(|&c| (c, 0, strip))
            .collect();
        Some((
            WritePlan::Decode,
            reads,
            Extra {
                bytes: strip as usize,
                count: 2 * self.map.geometry().m,
            },
        ))
    }

    pub(crate) fn compute_step(&mut self, key: usize, kind: StepKind, plan: &Plan) {
        let lost = plan.lost;
        match kind {
            StepKind::Rebuild => self.compute_rebuild(key, lost),
            StepKind::Resync | StepKind::Accept => self.compute_resync(key, lost),
            StepKind::Scrub(mode) => self.compute_scrub(key, mode, lost),
            StepKind::Init => unreachable!("its steps cover no stripe"),
        }
    }

    /// Where an operation's data lies when it is computed with. What background work reads is much
    /// at once, and what it computes goes back to the members alone: on members that move data by
    /// themselves no CPU has seen it, nor will.
    pub(crate) fn heat(&self, op: &StripeOp) -> Heat {
        match op.kind {
            Kind::Step(_) if self.map.view().dma => Heat::Cold,
            _ => Heat::Warm,
        }
    }

    pub(crate) fn compute_rebuild(&mut self, key: usize, lost: Columns) {
        let stripe = self.ops[key].stripe;
        // A member that came after the plan was made waits for a step of its own.
        let mut targets = self.map.unbuilt(stripe);
        if let Kind::Step(step) = &self.ops[key].kind {
            targets.retain(|(_, target)| step.targets.contains(&target.device));
        }
        let (heal, columns) = (self.ops[key].heal, &self.ops[key].columns);
        let computed = targets.iter().map(|t| t.0);
        let computed: Columns = computed.filter(|&c| columns[c].is_none()).collect();
        let computed = computed.with(heal);
        // A replacement gets the strip of the member that it replaces as that strip was read. What
        // the other strips say of it, a copy that was built meanwhile among them, changes nothing:
        // it may be the last that is right.
        let as_read = targets.iter().map(|t| t.0);
        let as_read: Columns = as_read.filter(|&c| !computed.has(c)).collect();
        let mut kept = Vec::new();
        let mut op = self.ops.take(key);
        if !computed.is_empty() {
            let before = std::mem::take(&mut op.findings);
            kept = self.judge_sources(&mut op, lost, as_read);
            if op.builds_unclear() {
                op.findings = before;
                self.ops.put_back(key, op);
                return self.leave_undecided(key);
            }
            op.findings.extend(before);
            self.decode_into(&mut op, lost, computed);
        }
        op.healed = op.healed.with(heal);
        self.ops.put_back(key, op);
        for (column, target) in targets {
            let kept = kept.iter().find(|(kept, _)| *kept == column);
            let slice = kept.map(|(_, slice)| slice.clone());
            let slice = slice.or_else(|| self.ops[key].columns[column].clone());
            let slice = slice.expect("read or decoded");
            self.write_to(key, target, 0, slice, false, WritePurpose::Rebuild);
        }
        for column in heal.each() {
            let slice = self.ops[key].columns[column].clone().expect("decoded");
            self.write_column(key, column, 0, slice, false);
        }
    }

    /// Checks the strips from which others are about to be computed, where redundancy is left:
    /// strips that it names as corrupt are replaced in memory by what the others give; where it can
    /// name none, the stripe is undecided. Returns what was read of those `as_read` columns that it
    /// names.
    pub(crate) fn judge_sources(
        &self,
        op: &mut StripeOp,
        lost: Columns,
        as_read: Columns,
    ) -> Vec<(usize, Slice)> {
        let present = available(op.width, lost);
        let all = present.iter().all(|&c| op.columns[c].is_some());
        let blind = canary::hit(Canary::SourcesUnchecked);
        let checks = match op.has_kept() {
            true => self.synced(op.stripe),
            false => self.checks_sources(op.stripe, lost),
        };
        if blind || !(all && checks) {
            return Vec::new();
        }
        // The region may have become trusted since the plan was made without that.
        if op.bufs.len() < present.len() - op.k {
            return Vec::new();
        }
        self.judge(op, lost);
        let is_named = |column: &usize| op.findings.iter().any(|f| f.corrupt.has(*column));
        let copy = |column: usize| {
            let read = op.columns[column].as_ref()?;
            let copy = Buf::from_bytes(read.bytes());
            Some((column, Slice::new(copy, 0, read.len)))
        };
        let kept = as_read.each().filter(is_named).filter_map(copy).collect();
        self.mend_named(op, lost);
        op.kind.note_inconsistent(!op.findings.is_empty());
        kept
    }

    /// Redundancy is left where the `lost` columns are computed: what they are computed from is
    /// checked against it.
    pub(crate) fn checks_sources(&self, stripe: StripeNo, lost: Columns) -> bool {
        let Shape { width, k, .. } = self.map.shape(stripe);
        self.synced(stripe) && available(width, lost).len() > k
    }

    /// Compares parity with data, and writes the parity that the data ask for.
    pub(crate) fn compute_resync(&mut self, key: usize, lost: Columns) {
        let stripe = self.ops[key].stripe;
        let (k, m, strip) = (
            self.ops[key].k,
            self.map.geometry().m,
            self.map.geometry().strip as usize,
        );
        let mut op = self.ops.take(key);
        let missing: Columns = (0..k).filter(|&c| lost.has(c)).collect();
        if !missing.is_empty() {
            self.decode_into(&mut op, lost, missing);
        }
        // As nearly all are. To compare is cheaper than to compute parity and then compare.
        if op.heal.is_empty() && op.columns.iter().all(Option::is_some) && self.agree(&op) {
            return self.ops.put_back(key, op);
        }
        // A parity that could not be read is compared with nothing, but written.
        let rows: Vec<usize> = (0..m)
            .filter(|&j| op.columns[k + j].is_some() || op.heal.has(k + j))
            .collect();
        let data: Vec<&[u8]> = (0..k)
            .map(|c| op.columns[c].as_ref().expect("read or decoded").bytes())
            .collect();
        let mut expected: Vec<Buf> = rows
            .iter()
            .map(|_| op.bufs.pop().expect("a buffer for each parity"))
            .collect();
        let mut outputs: Vec<&mut [u8]> = expected
            .iter_mut()
            .map(|buf| &mut buf.bytes_mut()[..strip])
            .collect();
        self.map
            .code(stripe)
            .generate_rows(&rows, &data, &mut outputs);
        let mut untrue = op.found_inconsistent();
        for (&j, buf) in rows.iter().zip(expected) {
            let stored = op.columns[k + j].as_ref();
            if stored.is_none_or(|stored| stored.bytes() != &buf.bytes()[..strip]) {
                untrue |= stored.is_some();
                op.in_place
                    .puts
                    .push(Put::of(k + j, 0, Slice::new(buf, 0, strip)));
            }
        }
        op.healed = op.heal;
        let healed = (0..k).filter(|&c| op.heal.has(c));
        let healed = healed.filter_map(|c| Some(Put::of(c, 0, op.columns[c].clone()?)));
        op.in_place.puts.extend(healed);
        // From now on any copy of a mirror may answer (see `read`).
        // Nor is an undecided region closed and flushed before its page says that it is decided.
        let step = op.kind.step();
        let accepts = step.is_some_and(|step| step.kind == StepKind::Accept);
        let early = canary::hit(Canary::DecidedEarly);
        op.in_place.fua = self.map.geometry().mirrored() || accepts && !early;
        op.kind.note_inconsistent(untrue);
        self.ops.put_back(key, op);
        let outdates = untrue && !canary::hit(Canary::ResyncOutdates);
        match outdates {
            // A write that took the parity for true may have a record.
            true => self.change_in_place(key),
            false => self.put_in_place(key),
        }
    }
}
