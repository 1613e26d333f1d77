//! A shard's side of the region map: may this region be written?
//!
//! Invariants:
//! * A write counts as a writer of its region from before its first member I/O until it is over.
//! * After `CloseRegion` was answered with `closed`, nothing is written there until the array says
//!   so.
//! * A read that only untrusted parity could answer, in a region that is being given back, waits
//!   until the region reads as zeros.
//! * A write may read before its region is open (`op::gate`), and does nothing else:
//!   it is a user of the region until it may write. It gives up the buffers that it holds meanwhile
//!   when other work waits for buffers: no wait for a buffer depends on a wait for a region.
//!
//! Deliberately absent: what an operation does that waits here (`op::gate`). A gate knows it by its
//! number and hands it back.

use std::ops::{Index, IndexMut};

use crate::canary::{self, Canary};
use crate::proto::*;
use crate::shard::log_writer::Logs;
use crate::shard::outbox::Outbox;
use crate::units::*;

/// One region, as a shard sees it.
pub(crate) struct Gate {
    access: RegionAccess,
    /// Asked to close; nothing new starts.
    closing: bool,
    /// The array was told that it is closed.
    told: bool,
    /// Operations that write here now.
    writers: u32,
    /// Operations of any kind at work here, and reads that went straight to a member.
    users: u32,
    /// Operations that began to write here since the last question whether it is idle.
    writes: u32,
    /// The array knows that a write waits.
    asked: bool,
    /// Operations that wait.
    waiting: Vec<usize>,
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
        !matches!(
            self.access,
            RegionAccess::NeedSync | RegionAccess::Undecided
        )
    }

    /// Nobody knows which strips are right: the first copy of a mirror that can be read answers,
    /// and what differs stays as it is.
    pub(crate) fn undecided(&self) -> bool {
        self.access == RegionAccess::Undecided
    }

    /// Copies may differ for a known reason: what is read becomes the truth.
    pub(crate) fn equalizes(&self) -> bool {
        let blind = self.undecided() && canary::hit(Canary::ReadsDecide);
        self.access == RegionAccess::NeedSync || blind
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
        !self.closing && self.dirty()
    }

    /// Dirty is durable on the members.
    fn dirty(&self) -> bool {
        self.access == RegionAccess::Open || !self.trusted()
    }

    /// What is read before it is open counts when it is.
    pub(crate) fn opens_as_it_is(&self) -> bool {
        !self.closing && self.access == RegionAccess::Clean
    }

    /// The array has changed it.
    pub(crate) fn set(&mut self, access: RegionAccess) {
        (self.access, self.closing, self.asked) = (access, false, false);
    }

    /// Parity is true, be it that the region is being closed.
    pub(crate) fn sync(&mut self) {
        if !self.trusted() {
            self.access = RegionAccess::Open;
        }
    }

    /// An operation of any kind begins here, or a read that goes straight to a member.
    pub(crate) fn begin_use(&mut self) {
        self.users += 1;
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

    /// An operation waits for the array to change the region.
    pub(crate) fn wait(&mut self, op: usize) {
        self.waiting.push(op);
    }

    pub(crate) fn stop_waiting(&mut self, op: usize) {
        self.waiting.retain(|waiting| *waiting != op);
    }

    pub(crate) fn waiting(&self) -> &[usize] {
        &self.waiting
    }

    pub(crate) fn take_waiting(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.waiting)
    }

    /// Lets a read wait that cannot be computed, if its region is closed to be given back: that is
    /// the only reason for which one without trusted parity is closed. True if it waits.
    pub(crate) fn park(&mut self, op: usize) -> bool {
        let given_back = self.closing && !self.trusted();
        if given_back {
            self.parked.push(op);
        }
        given_back
    }

    /// Reads that wait until the region is given back.
    pub(crate) fn parked(&self) -> &[usize] {
        &self.parked
    }

    pub(crate) fn take_parked(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.parked)
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
        ensure!(
            writers == 0 || self.dirty(),
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

/// See the module.
pub(crate) struct RegionGates(Vec<Gate>);

impl Index<RegionNo> for RegionGates {
    type Output = Gate;

    fn index(&self, region: RegionNo) -> &Gate {
        &self.0[region.0 as usize]
    }
}

impl IndexMut<RegionNo> for RegionGates {
    fn index_mut(&mut self, region: RegionNo) -> &mut Gate {
        &mut self.0[region.0 as usize]
    }
}

impl RegionGates {
    pub(crate) fn new(regions: Vec<RegionAccess>) -> RegionGates {
        RegionGates(regions.into_iter().map(Gate::new).collect())
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Gate> {
        self.0.iter()
    }

    /// Operations that wait for any region.
    pub(crate) fn take_all_waiting(&mut self) -> Vec<usize> {
        let both = |gate: &mut Gate| [gate.take_waiting(), gate.take_parked()];
        self.0.iter_mut().flat_map(both).flatten().collect()
    }

    /// The array asks for it; `empty`: all that the shard has there is zero.
    pub(crate) fn close(
        &mut self,
        region: RegionNo,
        only_if: CloseIf,
        empty: bool,
        logs: &Logs,
        out: &mut Outbox,
    ) {
        let gate = &mut self[region];
        let busy = gate.writes > 0 || gate.writers > 0 || !gate.waiting.is_empty();
        let refused = match only_if {
            CloseIf::Always => false,
            CloseIf::Idle => busy,
            CloseIf::Empty => gate.writers > 0 || !empty,
        };
        if refused {
            let writes = std::mem::take(&mut gate.writes);
            return out.say(FromShard::RegionClosed {
                region,
                closed: false,
                writes,
                next_number: logs.next(),
            });
        }
        (gate.closing, gate.told) = (true, false);
        // Operations that wait, from now on or already, ask again after `set_region`.
        gate.asked = true;
        self.say_if_closed(region, logs, out);
    }

    /// Tells the array that the region is closed, once nothing stands against it: for one that is
    /// unwritten (it is about to be given back) no operation at all, otherwise no writer. What the
    /// log publishes on the way comes to its end first: after the last region nothing is in flight.
    fn say_if_closed(&mut self, region: RegionNo, logs: &Logs, out: &mut Outbox) {
        let gate = &mut self[region];
        let busy = match gate.waits_for_users() {
            true => gate.users,
            false => gate.writers,
        };
        if gate.closing && !gate.told && busy == 0 && logs.is_quiet() {
            gate.told = true;
            let writes = std::mem::take(&mut gate.writes);
            out.say(FromShard::RegionClosed {
                region,
                closed: true,
                writes,
                next_number: logs.next(),
            });
        }
    }

    /// Tells of every region that is closed now.
    pub(crate) fn say_closed(&mut self, logs: &Logs, out: &mut Outbox) {
        let regions = (0..self.0.len() as u32).map(RegionNo);
        regions.for_each(|region| self.say_if_closed(region, logs, out));
    }

    /// An operation is over, or a read that went straight to a member.
    pub(crate) fn leave(&mut self, region: RegionNo, wrote: bool, logs: &Logs, out: &mut Outbox) {
        let gate = &mut self[region];
        gate.users -= 1;
        gate.writers -= u32::from(wrote);
        self.say_if_closed(region, logs, out);
    }
}
