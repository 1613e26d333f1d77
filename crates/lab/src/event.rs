//! What will happen, in the order of its time; what happens at the same time, in the order in which
//! it was said.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use strake_engine::event::{Completion, MemberIo};
use strake_engine::units::DeviceId;

/// The machine that an I/O belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Array,
    Shard(u16),
}

/// The machine's way to its drives, where it carries so many I/Os a second and no more.
#[derive(Default)]
pub(crate) struct Way {
    /// Nanoseconds of one I/O.
    pub(crate) each: f64,
    free: f64,
}

impl Way {
    pub(crate) fn of(iops: Option<f64>) -> Way {
        Way {
            each: iops.map_or(0.0, |iops| 1e9 / iops),
            free: 0.0,
        }
    }

    /// When an I/O that is sent now reaches its drive.
    pub(crate) fn reaches(&mut self, now: u64) -> u64 {
        if self.each == 0.0 {
            return now;
        }
        self.free = self.free.max(now as f64) + self.each;
        (self.free as u64).max(now)
    }
}

/// Something that happens.
pub(crate) enum Event {
    /// A member's I/O ends.
    Io(Owner, DeviceId, Completion),
    /// A shard's core has handled the end of a member's I/O.
    Handled(u16, Completion),
    /// A shard's core sends an I/O.
    Send(u16, MemberIo),
    /// An I/O of a drive without an array ends.
    Raw(u64),
    /// The array may have something to do.
    ArrayTick,
    /// A shard may.
    ShardTick(u16),
    /// A request comes to the engine, after the host's work for it.
    Ask(u64),
    /// A load of this step that keeps to a limit may go on: which, and which of its lanes.
    Next(u64, usize, u32),
    /// Nothing: time passes.
    Wake,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<Event>>,
    free: Vec<usize>,
    said: u64,
}

impl Queue {
    pub(crate) fn at(&mut self, time: u64, event: Event) {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.events.push(None);
                self.events.len() - 1
            }
        };
        self.events[place] = Some(event);
        self.said += 1;
        self.heap.push(Reverse((time, self.said, place)));
    }

    pub(crate) fn next_time(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((time, ..))| *time)
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        let Reverse((time, _, place)) = self.heap.pop()?;
        self.free.push(place);
        let event = self.events[place].take();
        Some((time, event.expect("each place in the heap has an event")))
    }
}
