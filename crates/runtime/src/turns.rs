//! Which calls that block a kernel worker wait until fewer are at work on their device.
//!
//! Flushes and changes of ranges (zeroing, deallocation) have no way to be done without waiting: the
//! ring hands each to a worker of the kernel, and workers are few and shared by all devices of a
//! thread. A device that answers none of them would take them all, and devices that are well would
//! seem to be late.
//!
//! Invariant: of one device so many at most are in the kernel; the others wait here, in their order.
//! Deliberately absent: deadlines (`member_io`, which begins to count when the kernel has the call).

use std::collections::{BTreeMap, VecDeque};

use strake_engine::units::DeviceId;

/// Calls that block, in the kernel at once on one device.
pub(crate) const AT_ONCE: usize = 4;

/// See the module. Places are those of the table of what is in flight.
#[derive(Debug, Default)]
pub(crate) struct Turns(BTreeMap<DeviceId, OfDevice>);

#[derive(Debug, Default)]
struct OfDevice {
    running: Vec<u32>,
    waiting: VecDeque<u32>,
}

impl Turns {
    /// A call on this device wants to be in the kernel: true if it may, else it waits.
    pub(crate) fn enter(&mut self, device: DeviceId, place: u32) -> bool {
        let of_device = self.0.entry(device).or_default();
        let may = of_device.running.len() < AT_ONCE;
        match may {
            true => of_device.running.push(place),
            false => of_device.waiting.push_back(place),
        }
        may
    }

    /// One is over. Answers the next, whose turn it is.
    pub(crate) fn leave(&mut self, device: DeviceId, place: u32) -> Option<u32> {
        let of_device = self.0.get_mut(&device)?;
        of_device.running.retain(|&other| other != place);
        let next = of_device.waiting.pop_front();
        of_device.running.extend(next);
        if of_device.running.is_empty() {
            self.0.remove(&device);
        }
        next
    }

    /// Takes those that wait for devices on which every call that runs is `stuck`.
    pub(crate) fn give_up(&mut self, mut stuck: impl FnMut(u32) -> bool) -> Vec<u32> {
        let mut given_up = Vec::new();
        for of_device in self.0.values_mut() {
            let waits = !of_device.waiting.is_empty();
            if waits && of_device.running.iter().all(|&place| stuck(place)) {
                given_up.extend(of_device.waiting.drain(..));
            }
        }
        given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_device_a_few_run_and_the_others_wait_in_their_order() {
        let mut turns = Turns::default();
        let (one, other) = (DeviceId(1), DeviceId(2));
        let entered: Vec<bool> = (0..6).map(|place| turns.enter(one, place)).collect();
        assert_eq!(entered, [true, true, true, true, false, false]);
        assert!(
            turns.enter(other, 10),
            "another device has turns of its own"
        );
        assert_eq!(turns.leave(one, 2), Some(4));
        assert_eq!(turns.give_up(|place| place != 4), [0; 0], "one is at work");
        assert_eq!(turns.give_up(|_| true), [5]);
        for place in [0, 1, 3, 4] {
            assert_eq!(turns.leave(one, place), None);
        }
        assert_eq!(turns.leave(other, 10), None);
        assert!(turns.0.is_empty());
    }
}
