//! Counting I/Os that were tried again, and what stands against members from zero again.
//!
//! Invariant: a count only grows, unless an administrator resets it; a member that was failed for
//! it stays failed. Deliberately absent: counting errors (where they are seen), and keeping counts
//! over restarts.

use strake_format::Slot;

use crate::array::Array;
use crate::array::members::table::Stalls;
use crate::proto::*;
use crate::retry::Retried;
use crate::units::*;

impl RetryCounts {
    fn count(&mut self, told: &Retried) {
        self.tries += u64::from(told.retry.tries);
        match told.got_through {
            true => self.got_through += 1,
            false => self.failed += 1,
        }
    }
}

impl Array {
    /// An I/O that was tried again is over, whichever machine it was of: told before its
    /// completion.
    pub fn retried(&mut self, told: Retried) {
        let Some(member) = self.table.get_mut(told.device) else {
            // It is out, perhaps for the like of this.
            let mut places = self.table.slots_mut().iter_mut();
            if let Some(place) = places.find(|place| place.left == Some(told.device)) {
                place.counts.retries.count(&told);
            }
            return;
        };
        member.counts.retries.count(&told);
        if told.got_through && told.retry.on_its_way {
            // Shards tell of the same reset, each of its own I/Os.
            member.counts.retries.resets += u64::from(told.retry.since >= member.reset_until);
            member.reset_until = member.reset_until.max(told.ended);
        }
    }

    /// Counts from zero again: of the member that is meant, or of all. The threshold of read errors
    /// is reached by as many new ones as it says.
    pub(crate) fn reset_counters(&mut self, meant: Option<MemberRef>) -> Changed {
        let slots = 0..self.table.slots().len();
        let (slots, devices): (Vec<usize>, Vec<DeviceId>) = match meant {
            None => (
                slots.collect(),
                self.table.devices().map(|(device, _)| device).collect(),
            ),
            Some(MemberRef::Slot(slot)) => {
                let place = &self.table.slots()[slot.index()];
                let both = [place.current(), place.incoming()];
                (vec![slot.index()], both.into_iter().flatten().collect())
            }
            Some(MemberRef::Device(device)) => (Vec::new(), vec![device]),
        };
        let mut reset = Vec::new();
        for at in slots {
            let place = &mut self.table.slots_mut()[at];
            let before = std::mem::take(&mut place.counts);
            place.stalls = Stalls::default();
            // Of a slot that has a device, that device's counts are told.
            if place.current().is_none() && place.incoming().is_none() {
                reset.push((Some(Slot(at as u8)), None, before));
            }
        }
        for device in devices {
            let member = self.table.get_mut(device).expect("it is a member");
            let before = std::mem::take(&mut member.counts);
            reset.push((self.table.slot_of(device), Some(device), before));
        }
        reset.retain(|(_, _, before)| *before != ErrorCounts::default());
        let changed = if reset.is_empty() {
            Changed::No
        } else {
            Changed::Yes
        };
        for (slot, device, before) in reset {
            self.out.event(EventKind::CountersReset {
                slot,
                device,
                before,
            });
        }
        changed
    }
}
