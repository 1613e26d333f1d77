//! A shard's side of the region map: may this region be written?
//!
//! Invariants:
//! * A write counts as a writer of its region from before its first member I/O until it is over.
//! * After `CloseRegion` was answered with `closed`, nothing is written there until the array says
//!   so.
//! * A read that only untrusted parity could answer, in a region that is being given back, waits
//!   until the region reads as zeros.
//! * A write may read before its region is open ([`Shard::starts_early`]), and does nothing else:
//!   it is a user of the region until it may write. It gives up the buffers that it holds meanwhile
//!   when other work waits for buffers: no wait for a buffer depends on a wait for a region.

use crate::canary::{self, Canary};
use crate::proto::*;
use crate::shard::Shard;
use crate::shard::op::kind::{Kind, Phase};
use crate::shard::op::{CountsAs, StripeOp};
use crate::units::*;

/// One region, as a shard sees it.
pub(crate) struct Gate {
    access: RegionAccess,
    /// Asked to close; nothing new starts.
    closing: bool,
    /// The array was told that it is closed.
    told: bool,
    /// Operations that write here now.
    pub(crate) writers: u32,
    /// Operations of any kind at work here, and reads that went straight to a member.
    pub(crate) users: u32,
    /// Operations that began to write here since the last question whether it is idle.
    pub(crate) writes: u32,
    /// The array knows that a write waits.
    asked: bool,
    /// Operations that wait.
    pub(crate) waiting: Vec<usize>,
    /// Reads that wait until the region is given back.
    parked: Vec<usize>,
}

impl Gate {
    pub(crate) fn new(access: RegionAccess) -> Gate {
        Gate {
            access,
            closing: false,
            told: false,
            writers: 0,
            users: 0,
            writes: 0,
            asked: false,
            waiting: Vec::new(),
            parked: Vec::new(),
        }
    }

    /// Reads are zeros.
    pub(crate) fn unwritten(&self) -> bool {
        self.access == RegionAccess::Unwritten
    }

    /// Parity agrees with data here.
    pub(crate) fn trusted(&self) -> bool {
        self.access != RegionAccess::NeedSync
    }

    /// Copies agree, and parity is true: without anybody's word. All that says whether a hedge may
    /// be computed.
    pub(crate) fn answers_hedge(&self) -> bool {
        !self.unwritten() && (self.trusted() || canary::hit(Canary::HedgeTrustsAnyParity))
    }

    /// Read by anybody: nothing is about to change but content.
    pub(crate) fn plain(&self) -> bool {
        !self.closing && self.trusted() && !self.unwritten()
    }

    /// It is given back once no operation of any kind is at work here.
    pub(crate) fn waits_for_users(&self) -> bool {
        self.closing && self.unwritten()
    }

    /// Writes may start.
    pub(crate) fn open(&self) -> bool {
        !self.closing && matches!(self.access, RegionAccess::Open | RegionAccess::NeedSync)
    }

    /// What is read before it is open counts when it is.
    fn opens_as_it_is(&self) -> bool {
        !self.closing && self.access == RegionAccess::Clean
    }

    /// An operation begins to write.
    pub(crate) fn enter(&mut self) {
        self.writers += 1;
        self.writes = self.writes.saturating_add(1);
    }

    /// Writes may start, or are at work.
    pub(crate) fn is_written(&self) -> bool {
        self.open() || self.writers > 0
    }

    /// Reads that wait until the region is given back.
    pub(crate) fn parked(&self) -> &[usize] {
        &self.parked
    }

    /// See the module; so many operations and direct reads are at work in the region, and so many
    /// operations that write.
    pub(crate) fn check(&self, region: usize, users: u32, writers: u32) -> Result<(), String> {
        ensure!(
            (self.users, self.writers) == (users, writers),
            "region {region} counts {} users and {} writers, and has {users} and {writers}",
            self.users,
            self.writers
        );
        let dirty = matches!(self.access, RegionAccess::Open | RegionAccess::NeedSync);
        ensure!(
            writers == 0 || dirty,
            "region {region} is written by {writers} operations and is {:?}",
            self.access
        );
        ensure!(
            !(self.closing && self.told) || writers == 0,
            "region {region} was reported closed and is written by {writers} operations"
        );
        ensure!(
            self.waiting.is_empty() || self.asked,
            "operations {:?} wait for region {region}, which the array does not know",
            self.waiting
        );
        let given_back = self.closing && !self.trusted();
        ensure!(
            self.parked.is_empty() || given_back,
            "reads {:?} wait until region {region} is given back, and it is not closing",
            self.parked
        );
        Ok(())
    }

    /// True the first time that the array must be asked.
    pub(crate) fn ask(&mut self) -> bool {
        !std::mem::replace(&mut self.asked, true)
    }
}

impl Shard {
    pub(crate) fn set_region(&mut self, region: RegionNo, access: RegionAccess) {
        let gate = &mut self.gates[region.0 as usize];
        gate.access = access;
        if gate.unwritten() {
            self.zero_tracker.forget(region);
        }
        let gate = &mut self.gates[region.0 as usize];
        gate.closing = false;
        gate.asked = false;
        self.end_parking(region);
        let gate = &mut self.gates[region.0 as usize];
        if gate.waiting.is_empty() {
            return;
        }
        // Where it reads as zeros, operations that only zero are done, and the others ask.
        if gate.open() || gate.unwritten() {
            for op in std::mem::take(&mut gate.waiting) {
                match self.ops[op].reads_early() {
                    true => self.compute(op),
                    false => self.start_op(op),
                }
            }
        } else if gate.ask() {
            self.out.say(FromShard::NeedRegion { region });
        }
    }

    /// Whether a write that waits for its region may read meanwhile: one round of waiting less.
    pub(crate) fn starts_early(&self, op: &StripeOp) -> bool {
        let hasty = matches!(&op.kind, Kind::Write(write) if !write.patient);
        let gate = &self.gates[self.map.region(op.stripe).0 as usize];
        hasty && gate.opens_as_it_is() && self.starved.is_empty()
    }

    /// True if an operation that has read early may write now. Otherwise it waits, or begins again.
    pub(crate) fn passes_gate(&mut self, key: usize) -> bool {
        if let Some(error) = self.map.closed() {
            self.finish_op(key, Some(error));
            return false;
        }
        let region = self.map.region(self.ops[key].stripe);
        let gate = &mut self.gates[region.0 as usize];
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
        gate.waiting.push(key);
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
        let region = self.map.region(self.ops[key].stripe);
        self.leave_region(region, false);
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
        let region = self.map.region(self.ops[key].stripe);
        let gate = &mut self.gates[region.0 as usize];
        gate.waiting.retain(|waiting| *waiting != key);
        self.back_to_gate(key);
        true
    }

    /// Parity is true in a region that is being closed.
    pub(crate) fn region_synced(&mut self, region: RegionNo) {
        let gate = &mut self.gates[region.0 as usize];
        if gate.access == RegionAccess::NeedSync {
            gate.access = RegionAccess::Open;
        }
        self.end_parking(region);
    }

    /// Lets a read wait that cannot be computed, if its region is closed to be given back: that is
    /// the only reason for which one without trusted parity is closed. True if it waits.
    pub(crate) fn park(&mut self, op: usize, region: RegionNo) -> bool {
        let gate = &mut self.gates[region.0 as usize];
        let given_back = gate.closing && !gate.trusted();
        if given_back {
            gate.parked.push(op);
        }
        given_back
    }

    fn end_parking(&mut self, region: RegionNo) {
        for op in std::mem::take(&mut self.gates[region.0 as usize].parked) {
            self.prepare(op);
        }
    }

    pub(crate) fn close_region(&mut self, region: RegionNo, only_if: CloseIf) {
        let empty = only_if == CloseIf::Empty && self.is_emptied(region);
        let gate = &mut self.gates[region.0 as usize];
        let busy = gate.writes > 0 || gate.writers > 0 || !gate.waiting.is_empty();
        let refused = match only_if {
            CloseIf::Always => false,
            CloseIf::Idle => busy,
            CloseIf::Empty => gate.writers > 0 || !empty,
        };
        if refused {
            let writes = std::mem::take(&mut gate.writes);
            return self.out.say(FromShard::RegionClosed {
                region,
                closed: false,
                writes,
                next_number: self.logs.next(),
            });
        }
        (gate.closing, gate.told) = (true, false);
        // Operations that wait, from now on or already, ask again after `set_region`.
        gate.asked = true;
        self.say_if_closed(region);
    }

    /// Tells the array that the region is closed, once nothing stands against it: for one that is
    /// unwritten (it is about to be given back) no operation at all, otherwise no writer. What the
    /// log publishes on the way comes to its end first: after the last region nothing is in flight.
    fn say_if_closed(&mut self, region: RegionNo) {
        let quiet = self.log_quiet();
        let gate = &mut self.gates[region.0 as usize];
        let busy = match gate.waits_for_users() {
            true => gate.users,
            false => gate.writers,
        };
        if gate.closing && !gate.told && busy == 0 && quiet {
            gate.told = true;
            let writes = std::mem::take(&mut gate.writes);
            self.out.say(FromShard::RegionClosed {
                region,
                closed: true,
                writes,
                next_number: self.logs.next(),
            });
        }
    }

    /// Tells of every region that is closed now.
    pub(crate) fn say_closed(&mut self) {
        (0..self.gates.len() as u32).for_each(|r| self.say_if_closed(RegionNo(r)));
    }

    /// The array has failed or stops: operations that wait for a region are answered.
    pub(crate) fn end_gated(&mut self, error: RequestError) {
        let waiting: Vec<usize> = self
            .gates
            .iter_mut()
            .flat_map(|gate| [&mut gate.waiting, &mut gate.parked])
            .flat_map(std::mem::take)
            .collect();
        for op in waiting {
            self.finish_op(op, Some(error));
        }
    }

    /// An operation is over.
    pub(crate) fn leave_region(&mut self, region: RegionNo, wrote: bool) {
        let gate = &mut self.gates[region.0 as usize];
        gate.users -= 1;
        gate.writers -= u32::from(wrote);
        self.say_if_closed(region);
    }
}
