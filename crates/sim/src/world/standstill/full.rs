//! Devices without space for writes: a full file system under files, a full thin pool.
//!
//! As in the runtime (`member_io::full`), such a write is not answered: the array is told, and
//! decides as of an I/O that is overdue for the first time. A write of a member that it gives up
//! fails; every other is tried again after a pause, for as long as there is no space.
//!
//! Invariants:
//! * However many devices are full, the array does not fail by that alone: a device that is full
//!   counts as lost for what else may happen, and nothing more is forgiven.
//! * What is full has space again while the array serves, or its process ends.
//! * Chance of its own: worlds without this are what they would be without it.
//!
//! Deliberately absent: starts without space, and flushes that fail for want of it.

use strake_engine::units::*;
use strake_engine::{Late, Verdict};

use crate::drive::overlay::{FaultKind, FaultSet};
use crate::drive::{Full, OpNo, Owner};
use crate::prng::{self, Prng, Purpose};
use crate::world::clock::Place;
use crate::world::standstill::place_of;
use crate::world::{Drive, Happening, SimResult, World};

/// A write is tried again so long after the decision, in parts of the deadline.
const PAUSE_PARTS: u64 = 8;
/// It is looked at so often meanwhile: its device may be let go of.
const LOOK_PARTS: u64 = 10;

impl Drive {
    /// It has no space, or a write still waits for some.
    pub(crate) fn is_full(&self) -> bool {
        self.ssd.faults.full_from.is_some() || self.ssd.waits_for_space()
    }
}

impl World {
    /// A write ends: true if there is no space for it, and it waits.
    pub(crate) fn waits_for_space(&mut self, drive: usize, op: OpNo) -> bool {
        let now = self.clock.now();
        let look_ns = self.plan.latencies.deadline_ns / LOOK_PARTS;
        let open = self.drives[drive].device;
        let ssd = &mut self.drives[drive].ssd;
        let is_there = ssd.device_of(op) == open;
        let owner = ssd.owner_of(op);
        let has_space = ssd.has_space(op);
        let Some(owner) = owner.filter(|_| ssd.full(op).is_some()) else {
            return false;
        };
        let full = ssd.full(op).expect("it was just seen");
        match *full {
            _ if !is_there => {
                ssd.refuse(op);
                return false;
            }
            Some(Full::Told) => {}
            Some(Full::Until(at)) if at > now => {}
            Some(Full::Until(_)) if has_space => {
                *full = None;
                return false;
            }
            _ => self.tell_full(drive, op, owner),
        }
        self.clock.after(look_ns, Happening::Io(drive, op));
        true
    }

    /// The array is told.
    fn tell_full(&mut self, drive: usize, op: OpNo, owner: Owner) {
        let ssd = &mut self.drives[drive].ssd;
        let (device, watched) = ssd.watched(op).expect("it is to be answered");
        *watched = None;
        *ssd.full(op).expect("it is full") = Some(Full::Told);
        self.stats.fill_waits += 1;
        self.trace.add(17);
        let what = Happening::Overdue(device, Late::NoSpace);
        self.send(place_of(owner), Place::Array, what);
    }

    /// A thread gets the array's decision.
    pub(crate) fn judged_full(
        &mut self,
        drive: usize,
        owner: Owner,
        device: DeviceId,
        verdict: Verdict,
    ) -> SimResult {
        let pause_ns = self.plan.latencies.deadline_ns / PAUSE_PARTS;
        let again = Time(self.clock.now().0 + pause_ns);
        for op in self.drives[drive].ssd.told_full(owner, device) {
            let retry = self.drives[drive].ssd.retry_of(op);
            if verdict == Verdict::WaitOn {
                let full = self.drives[drive].ssd.full(op);
                *full.expect("it waits") = Some(Full::Until(again));
                continue;
            }
            self.drives[drive].ssd.refuse(op);
            if let Some(finished) = self.ended(drive, op) {
                self.deliver(drive, finished, retry)?;
            }
        }
        Ok(())
    }

    /// The array gives a device up, or not.
    pub(crate) fn note_verdict(&mut self, device: DeviceId, verdict: Verdict) {
        let index = self.drive_of(device);
        if verdict == Verdict::GiveUp && self.drives[index].is_full() {
            self.drives[index].doomed = true;
            self.stats.fill_losses += 1;
        }
    }

    // ---- what has no space --------------------------------------------------------------------

    /// In the course of a life: devices have no space for a while, in the worlds that have such.
    pub(crate) fn fill_some(&mut self, without: FaultSet) {
        let mut of_world = Prng::new(prng::mix(self.plan.seed), Purpose::Full);
        let has = of_world.one_in(4);
        if !has || without.has(FaultKind::Full) || !self.serves() {
            return;
        }
        if !self.chance.full.one_in(12) || !self.may_fill() {
            return;
        }
        let of_slots = self.looks();
        let members = of_slots.iter().filter_map(|look| look.in_sync);
        let mut chosen: Vec<usize> = members.collect();
        let rng = &mut self.chance.full;
        match rng.below(3) {
            0 => chosen = vec![rng.pick(&chosen)],
            1 => chosen.retain(|_| rng.percent(60)),
            // One file system under all.
            _ => chosen = (0..self.drives.len()).collect(),
        }
        let layout = self.superblock.layout;
        let from = rng.pick(&[0, layout.log_offset, layout.data_offset, layout.data_offset]);
        let deadline_ns = self.plan.latencies.deadline_ns;
        let longest = rng.pick(&[1, 4, 4, 20]);
        let ns = rng.range(deadline_ns / 10, longest * deadline_ns);
        self.fill(&chosen, from);
        self.clock.after(ns, Happening::Space);
    }

    /// These devices have no space for writes from this offset on.
    pub fn fill(&mut self, drives: &[usize], from: u64) {
        self.stats.fills += 1;
        self.note(format!("drives {drives:?} have no space from {from} on"));
        for &index in drives {
            self.drives[index].ssd.faults.full_from = Some(from);
        }
    }

    /// All have space again.
    pub fn space_is_back(&mut self) {
        self.note("there is space again".to_owned());
        for drive in &mut self.drives {
            drive.ssd.faults.full_from = None;
        }
    }

    /// The array knows of all that is lost: so it gives up no more than the level survives.
    fn may_fill(&mut self) -> bool {
        let doomed = |drive: &Drive| {
            let at_risk = drive.doomed || drive.stands.is_some() || drive.is_full();
            drive.device.is_some() && at_risk
        };
        let known = self.situation();
        let looks = self.looks();
        let mut slots = known.slots.iter().zip(&looks);
        let whole = slots.all(|(slot, look)| {
            let fine = slot.intact && slot.spoiled_rows.is_empty() && !slot.damaged;
            fine || look.in_sync.is_none()
        });
        whole
            && !known.resyncing
            && !self.is_corrupt()
            && self.decay.is_empty()
            && !self.drives.iter().any(doomed)
    }
}
