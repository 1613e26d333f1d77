//! A shard's side of the region map: may this region be written?
//!
//! Invariants:
//! * A write counts as a writer of its region from before its first member I/O until it is over.
//! * After `CloseRegion` was answered with `closed`, nothing is written there until the array says so; in a
//!   region that is Unwritten by then, nothing is read either.

use crate::event::*;
use crate::shard::Shard;
use crate::units::*;

/// One region, as a shard sees it.
pub(crate) struct Gate {
    access: RegionAccess,
    /// Asked to close; nothing new starts.
    closing: bool,
    /// Operations that write here now.
    pub(crate) writers: u32,
    /// Operations that read several members here now.
    pub(crate) readers: u32,
    /// Written since the last question whether it is idle.
    pub(crate) touched: bool,
    /// The array knows that a write waits.
    asked: bool,
    /// Operations that wait.
    pub(crate) waiting: Vec<usize>,
}

impl Gate {
    pub(crate) fn new(access: RegionAccess) -> Gate {
        Gate { access, closing: false, writers: 0, readers: 0, touched: false, asked: false, waiting: Vec::new() }
    }

    /// Reads are zeros.
    pub(crate) fn unwritten(&self) -> bool {
        self.access == RegionAccess::Unwritten
    }

    /// Parity agrees with data here.
    pub(crate) fn trusted(&self) -> bool {
        self.access != RegionAccess::NeedSync
    }

    /// Writes may start.
    pub(crate) fn open(&self) -> bool {
        !self.closing && matches!(self.access, RegionAccess::Open | RegionAccess::NeedSync)
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
        gate.closing = false;
        gate.asked = false;
        if gate.waiting.is_empty() {
            return;
        }
        if gate.open() {
            for op in std::mem::take(&mut gate.waiting) {
                self.start_op(op);
            }
        } else if gate.ask() {
            self.say(FromShard::NeedRegion { region });
        }
    }

    pub(crate) fn close_region(&mut self, region: RegionNo, if_idle: bool) {
        let gate = &mut self.gates[region.0 as usize];
        let busy = gate.touched || gate.writers > 0 || !gate.waiting.is_empty();
        gate.touched = false;
        if if_idle && busy {
            return self.say(FromShard::RegionClosed { region, closed: false });
        }
        gate.closing = true;
        // Who waits from now on, and who waited, asks again when it is open for asking.
        gate.asked = true;
        self.tell_if_closed(region);
    }

    /// Closed is closed for writers; where the members are about to be zeroed, readers of several members
    /// must be through as well. None begins where reads are zeros.
    fn tell_if_closed(&mut self, region: RegionNo) {
        let gate = &self.gates[region.0 as usize];
        let read = gate.readers > 0 && gate.unwritten();
        if gate.closing && gate.writers == 0 && !read {
            self.say(FromShard::RegionClosed { region, closed: true });
        }
    }

    pub(crate) fn reader_left(&mut self, region: RegionNo) {
        let gate = &mut self.gates[region.0 as usize];
        gate.readers -= 1;
        if gate.unwritten() && gate.readers == 0 {
            self.tell_if_closed(region);
        }
    }

    /// The array has failed: who waits for a region is answered.
    pub(crate) fn fail_gated(&mut self) {
        let waiting: Vec<usize> =
            self.gates.iter_mut().flat_map(|gate| std::mem::take(&mut gate.waiting)).collect();
        for op in waiting {
            self.finish_op(op, Some(RequestError::Failed));
        }
    }

    pub(crate) fn leave_gate(&mut self, region: RegionNo) {
        let gate = &mut self.gates[region.0 as usize];
        gate.writers -= 1;
        if gate.writers == 0 {
            self.tell_if_closed(region);
        }
    }
}
