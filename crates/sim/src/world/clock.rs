//! Virtual time: what happens next.
//!
//! Invariants: happenings come in the order of (time, sequence), so that of two at one time the one
//! scheduled first comes first; time never goes back; messages on one lane keep their order.
//!
//! Deliberately absent: the real clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use strake_engine::units::Time;

struct Entry<T> {
    at: Time,
    sequence: u64,
    what: T,
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}
impl<T> Eq for Entry<T> {}
impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// The queue of what is to happen.
pub(super) struct Clock<T> {
    now: Time,
    sequence: u64,
    queue: BinaryHeap<Reverse<Entry<T>>>,
    lanes: Lanes,
}

impl<T> Default for Clock<T> {
    fn default() -> Self {
        Clock {
            now: Time(1),
            sequence: 0,
            queue: BinaryHeap::new(),
            lanes: Lanes::default(),
        }
    }
}

impl<T> Clock<T> {
    /// The present.
    pub(super) fn now(&self) -> Time {
        self.now
    }
    /// `what` happens `ns` nanoseconds from now.
    pub(super) fn after(&mut self, ns: u64, what: T) {
        self.at(Time(self.now.0.saturating_add(ns)), what);
    }
    /// `what` happens at `at`, or now if that is past.
    pub(super) fn at(&mut self, at: Time, what: T) {
        self.sequence += 1;
        let entry = Entry {
            at: at.max(self.now),
            sequence: self.sequence,
            what,
        };
        self.queue.push(Reverse(entry));
    }
    /// `what` arrives when it has travelled `ns`, and after all that was sent on its lane before.
    pub(super) fn send(&mut self, from: Place, to: Place, ns: u64, what: T) {
        let at = self.lanes.arrival(from, to, self.now, ns);
        self.at(at, what);
    }
    /// What is sent from `from` from now on does not overtake what `other` has sent to the same
    /// place: they are one thread.
    pub(super) fn join(&mut self, from: Place, other: Place, to: Place) {
        self.lanes.join(from, other, to);
    }
    /// When the next happening comes.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse(next)| next.at)
    }
    /// Goes to the next happening.
    pub(super) fn advance(&mut self) -> Option<T> {
        let Reverse(entry) = self.queue.pop()?;
        self.now = entry.at;
        Some(entry.what)
    }
    /// The next happening, if it comes within `ns` and is one of these: it comes now.
    pub(super) fn next_if(&mut self, ns: u64, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let Reverse(next) = self.queue.peek()?;
        let soon = next.at.0 <= self.now.0.saturating_add(ns);
        let Reverse(entry) = (soon && wanted(&next.what)).then(|| self.queue.pop())??;
        Some(entry.what)
    }
    /// Nothing that was to happen will.
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.lanes = Lanes::default();
    }
    /// Lets time pass while nothing runs.
    pub(super) fn pass(&mut self, ns: u64) {
        self.now = Time(self.now.0 + ns);
    }
    /// Nothing happens for so long, and all that was to happen does so later.
    pub(super) fn stand_still(&mut self, ns: u64) {
        self.now = Time(self.now.0 + ns);
        let later = |Reverse(entry): Reverse<Entry<T>>| {
            let at = Time(entry.at.0 + ns);
            Reverse(Entry { at, ..entry })
        };
        self.queue = std::mem::take(&mut self.queue)
            .into_iter()
            .map(later)
            .collect();
        self.lanes.stand_still(ns);
    }
    /// Nothing is to happen.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// The sender or receiver of a message: each ordered pair is a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The array's control.
    Array,
    /// A shard.
    Shard(u16),
    /// An export queue.
    Queue(u16),
}

const PLACES: usize = 16;

impl Place {
    fn index(self) -> usize {
        match self {
            Place::Array => 0,
            Place::Shard(n) => 1 + usize::from(n),
            Place::Queue(n) => 8 + usize::from(n),
        }
    }
}

/// When the last message of each lane arrives, so that none overtakes another.
struct Lanes([Time; PLACES * PLACES]);

impl Default for Lanes {
    fn default() -> Self {
        Lanes([Time(0); PLACES * PLACES])
    }
}

impl Lanes {
    /// When a message that is sent now and travels `ns` arrives.
    fn arrival(&mut self, from: Place, to: Place, now: Time, ns: u64) -> Time {
        let last = &mut self.0[from.index() * PLACES + to.index()];
        *last = Time(now.0 + ns).max(Time(last.0 + 1));
        *last
    }

    /// What is on its way arrives so much later.
    fn stand_still(&mut self, ns: u64) {
        for last in &mut self.0 {
            *last = Time(last.0 + ns);
        }
    }

    fn join(&mut self, from: Place, other: Place, to: Place) {
        let others = self.0[other.index() * PLACES + to.index()];
        let last = &mut self.0[from.index() * PLACES + to.index()];
        *last = others.max(*last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn happenings_come_in_order_of_time_and_then_of_being_announced() {
        let mut clock = Clock::default();
        clock.after(5, 'b');
        clock.after(5, 'c');
        clock.after(1, 'a');
        assert_eq!(
            [clock.advance(), clock.advance(), clock.advance()],
            [Some('a'), Some('b'), Some('c')]
        );
        assert!(clock.is_empty());
    }

    #[test]
    fn no_message_overtakes_another_of_its_lane() {
        let mut lanes = Lanes::default();
        let slow = lanes.arrival(Place::Array, Place::Shard(0), Time(10), 100);
        let fast = lanes.arrival(Place::Array, Place::Shard(0), Time(11), 1);
        let other = lanes.arrival(Place::Array, Place::Shard(1), Time(11), 1);
        assert!(fast > slow && other < slow);
    }
}
