//! What an operation waits for outside its stripe: its region (`region_gate`), and the write token
//! of a rebuild (`job::write_order`).
//!
//! Invariants:
//! * An operation changes what the user has written only in a region that is open here.
//! * What an operation has read early counts only if it still would be read so: otherwise the
//!   operation begins again, once its region is open.
//! * An operation that waits here keeps no buffers from another one.
//!
//! Deliberately absent: its turn on the stripe (`queue`), buffers (`want`), and views.

use crate::canary::{self, Canary};
use crate::proto::*;
use crate::shard::job::write_order::{Place, Token};
use crate::shard::op::kind::{Kind, Phase};
use crate::shard::op::{CountsAs, StripeOp};
use crate::shard::{Shard, Starved};
use crate::units::*;

impl StripeOp {
    /// Its place in the order in which a rebuild writes.
    fn place(&self) -> Option<Place> {
        let step = self.kind.step()?;
        (step.kind == StepKind::Rebuild).then_some((step.step, self.stripe))
    }
}

impl Shard {
    // ---- regions -----------------------------------------------------------------------------

    pub(crate) fn set_region(&mut self, region: RegionNo, access: RegionAccess) {
        let gate = &mut self.gates[region];
        gate.set(access);
        if gate.unwritten() {
            self.zero_tracker.forget(region);
        }
        self.end_parking(region);
        let gate = &mut self.gates[region];
        // Where it reads as zeros, operations that only zero are done, and the others ask.
        if gate.open() || gate.unwritten() {
            for op in gate.take_waiting() {
                match self.ops[op].reads_early() {
                    true => self.compute(op),
                    false => self.start_op(op),
                }
            }
        } else if !gate.waiting().is_empty() && gate.ask() {
            self.out.say(FromShard::NeedRegion { region });
        }
    }

    /// Parity is true in a region that is being closed.
    pub(crate) fn region_synced(&mut self, region: RegionNo) {
        self.gates[region].sync();
        self.end_parking(region);
    }

    fn end_parking(&mut self, region: RegionNo) {
        for op in self.gates[region].take_parked() {
            self.prepare(op);
        }
    }

    /// The array has failed or stops: operations that wait for a region are answered.
    pub(crate) fn end_gated(&mut self, error: RequestError) {
        for op in self.gates.take_all_waiting() {
            self.finish_op(op, Some(error));
        }
    }

    /// Whether a write that waits for its region may read meanwhile: one round of waiting less.
    pub(crate) fn starts_early(&self, op: &StripeOp) -> bool {
        let hasty = matches!(&op.kind, Kind::Write(write) if !write.patient);
        let gate = &self.gates[op.region];
        hasty && gate.opens_as_it_is() && self.starved.is_empty()
    }

    /// True if an operation that has read early may write now. Otherwise it waits, or begins again.
    pub(crate) fn passes_gate(&mut self, key: usize) -> bool {
        if let Some(error) = self.map.closed() {
            self.finish_op(key, Some(error));
            return false;
        }
        let region = self.ops[key].region;
        let gate = &mut self.gates[region];
        if gate.open() || canary::hit(Canary::WritesEarly) {
            gate.enter();
            // A member may be there that was not when it was planned, and takes this region for one
            // that nobody wrote meanwhile.
            let seen = self.ops[key].phase.plan().view == self.map.view().version;
            let as_read = seen && gate.trusted();
            self.ops[key].counts = CountsAs::Writer;
            if !as_read {
                self.prepare(key);
            }
            return as_read;
        }
        let empty = gate.unwritten() && !canary::hit(Canary::KeepsEarlyReads);
        if empty || !self.starved.is_empty() {
            self.back_to_gate(key);
            return false;
        }
        let plan = self.ops[key].phase.plan();
        self.ops[key].phase = Phase::HasRead(plan);
        gate.wait(key);
        if gate.ask() {
            self.out.say(FromShard::NeedRegion { region });
        }
        false
    }

    /// What an operation read early does not count: it begins again, once its region is open.
    pub(crate) fn back_to_gate(&mut self, key: usize) {
        let op = &mut self.ops[key];
        op.drop_buffers();
        (op.counts, op.phase) = (CountsAs::Nothing, Phase::Gate);
        if let Kind::Write(write) = &mut op.kind {
            write.patient = true;
        }
        let region = op.region;
        self.gates.leave(region, false, &self.logs, &mut self.out);
        self.start_op(key);
    }

    /// Somebody waits for buffers: nobody keeps any before a gate. True if somebody did.
    pub(crate) fn give_up_early(&mut self) -> bool {
        if self.starved.is_empty() {
            return false;
        }
        let waits = |op: &StripeOp| op.reads_early() && op.phase.at_gate();
        let found = self.ops.iter().find(|(_, op)| waits(op));
        let Some(key) = found.map(|(key, _)| key) else {
            return false;
        };
        let region = self.ops[key].region;
        self.gates[region].stop_waiting(key);
        self.back_to_gate(key);
        true
    }

    // ---- the write token ---------------------------------------------------------------------

    /// True if the stripe must wait for the token.
    pub(crate) fn awaits_token(&mut self, key: usize) -> bool {
        let Some(place) = self.ops[key].place() else {
            return false;
        };
        let waits = self.write_order.is_early(place) && !self.must_yield(place);
        if waits {
            let plan = self.ops[key].phase.plan();
            self.ops[key].phase = Phase::AwaitToken(plan);
            self.write_order.wait(place, key);
        }
        waits
    }

    /// Continues the stripe that the token has reached, or passes the token on. True if either was
    /// done.
    pub(crate) fn pass_token(&mut self) -> bool {
        match self.write_order.pass(&self.steps, &self.map, &mut self.out) {
            Token::Stays => return false,
            Token::Moves => {}
            Token::Reaches(key) => self.compute(key),
        }
        true
    }

    /// Another operation needs what the stripe holds while it waits.
    fn must_yield(&self, place: Place) -> bool {
        let first = |starved: &Starved| match starved {
            Starved::Read(_) => true,
            Starved::Op(key) => self.ops[*key].place().is_none_or(|other| other < place),
        };
        let left = self.gates[self.map.region(place.1)].waits_for_users();
        let wanted = left || self.map.closed().is_some() || self.queue.is_pressed(place.1);
        wanted || self.starved.iter().any(first)
    }

    /// Releases one waiting stripe that blocks another operation. True if there was one.
    pub(crate) fn release_waiting(&mut self) -> bool {
        let mut waiting = self.write_order.places();
        let Some(place) = waiting.find(|place| self.must_yield(*place)) else {
            return false;
        };
        drop(waiting);
        let key = self.write_order.release(place).expect("it waits");
        self.compute(key);
        true
    }
}
