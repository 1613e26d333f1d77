//! Which calls that block a kernel worker wait until fewer are at work on their device.
//!
//! Flushes and changes of ranges (zeroing, deallocation) have no way to be done without waiting:
//! the ring hands each to a worker of the kernel, and workers are few and shared by all devices of
//! a thread. A device that answers none of them would take them all, and devices that are well
//! would seem to be late.
//!
//! A flush is what a user waits for; ranges come in bursts, when regions are given back. So ranges
//! leave one place to flushes, and a flush goes before every range that waits, but that one range
//! has a place where any waits: writes may wait for it. Neither relies on the order in which they
//! reach the kernel: a caller that needs one waits for its completion.
//!
//! Invariant: of one device so many at most are in the kernel; the others wait here, each kind in
//! its order. Deliberately absent: deadlines (`member_io`, which begins to count when the kernel
//! has the call).

use std::collections::{BTreeMap, VecDeque};

use strake_engine::units::DeviceId;

/// Calls that block, in the kernel at once on one device.
pub(crate) const AT_ONCE: usize = 4;
/// Of those, changes of ranges.
const RANGES_AT_ONCE: usize = AT_ONCE - 1;

/// A call that blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Flush,
    Range,
}

/// See the module. Places are those of the table of what is in flight.
#[derive(Debug, Default)]
pub(crate) struct Limiter(BTreeMap<DeviceId, OfDevice>);

#[derive(Debug, Default)]
struct OfDevice {
    running: Vec<(Call, u32)>,
    flushes: VecDeque<u32>,
    ranges: VecDeque<u32>,
}

impl OfDevice {
    /// Starts the next call, if there is room.
    fn next(&mut self) -> Option<u32> {
        let ranges = self.running.iter().filter(|(call, _)| *call == Call::Range);
        let (room, ranges) = (self.running.len() < AT_ONCE, ranges.count());
        let for_range = ranges < RANGES_AT_ONCE;
        // Many flushes do not keep ranges waiting for ever.
        let turn = ranges == 0 && !self.ranges.is_empty();
        let flush = self.flushes.pop_front_if(|_| room && !turn);
        let next = match flush {
            Some(place) => Some((Call::Flush, place)),
            None => {
                let range = self.ranges.pop_front_if(|_| room && for_range);
                range.map(|place| (Call::Range, place))
            }
        };
        self.running.extend(next);
        next.map(|(_, place)| place)
    }
}

impl Limiter {
    /// A call on this device wants to be in the kernel: true if it may, else it waits.
    pub(crate) fn enter(&mut self, device: DeviceId, call: Call, place: u32) -> bool {
        let of_device = self.0.entry(device).or_default();
        match call {
            Call::Flush => of_device.flushes.push_back(place),
            Call::Range => of_device.ranges.push_back(place),
        }
        // The calls that wait already have found no room.
        of_device.next() == Some(place)
    }

    /// A call is over. Returns the next call to run.
    pub(crate) fn leave(&mut self, device: DeviceId, place: u32) -> Option<u32> {
        let of_device = self.0.get_mut(&device)?;
        of_device.running.retain(|&(_, other)| other != place);
        let next = of_device.next();
        if of_device.running.is_empty() {
            self.0.remove(&device);
        }
        next
    }

    /// Takes those that wait for devices on which every call that runs is `stuck`.
    pub(crate) fn give_up(&mut self, mut stuck: impl FnMut(u32) -> bool) -> Vec<u32> {
        let mut given_up = Vec::new();
        for of_device in self.0.values_mut() {
            let all_stuck = of_device.running.iter().all(|&(_, place)| stuck(place));
            if all_stuck {
                given_up.extend(of_device.flushes.drain(..));
                given_up.extend(of_device.ranges.drain(..));
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
        let mut limiter = Limiter::default();
        let (one, other) = (DeviceId(1), DeviceId(2));
        let entered: Vec<bool> = (0..5)
            .map(|place| limiter.enter(one, Call::Range, place))
            .collect();
        assert_eq!(entered, [true, true, true, false, false]);
        assert!(
            limiter.enter(other, Call::Range, 10),
            "another device has turns of its own"
        );
        assert_eq!(limiter.leave(one, 2), Some(3));
        assert_eq!(
            limiter.give_up(|place| place != 3),
            [0; 0],
            "one is at work"
        );
        assert_eq!(limiter.give_up(|_| true), [4]);
        for place in [0, 1, 3] {
            assert_eq!(limiter.leave(one, place), None);
        }
        assert_eq!(limiter.leave(other, 10), None);
        assert!(limiter.0.is_empty());
    }

    #[test]
    fn a_flush_does_not_wait_behind_ranges() {
        let (mut limiter, device) = (Limiter::default(), DeviceId(1));
        (0..20).for_each(|place| {
            limiter.enter(device, Call::Range, place);
        });
        assert!(
            limiter.enter(device, Call::Flush, 20),
            "a place is left to it"
        );
        assert!(!limiter.enter(device, Call::Flush, 21));
        assert_eq!(
            limiter.leave(device, 0),
            Some(21),
            "before ranges that wait"
        );
        assert_eq!(limiter.leave(device, 20), Some(3));
        assert_eq!(limiter.leave(device, 21), None, "ranges leave a place");
        assert!(limiter.enter(device, Call::Flush, 22));
    }

    #[test]
    fn ranges_go_on_however_many_flushes_come() {
        let (mut limiter, device) = (Limiter::default(), DeviceId(1));
        (0..20).for_each(|place| {
            limiter.enter(device, Call::Flush, place);
        });
        assert!(!limiter.enter(device, Call::Range, 20));
        assert_eq!(limiter.leave(device, 0), Some(20));
        assert_eq!(limiter.leave(device, 1), Some(4), "one is at work");
    }
}
