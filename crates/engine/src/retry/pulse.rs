//! How long a thread has run: the time that the deadlines of its I/Os count in.
//!
//! Invariant: a standstill of the process, or of the machine, moves every deadline.
//!
//! Deliberately absent: clocks, and what becomes of an I/O that is overdue
//! (`array::members::deadlines`).

use crate::canary::{self, Canary};
use crate::units::Time;

/// A turn of a thread may take this part of the I/O deadline longer than it asked for.
const SLACK_PARTS: u64 = 64;

/// How long a thread has run: the time that its deadlines count in.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    slack_ns: u64,
    lost_ns: u64,
    /// When the present turn began, and for how long the thread meant to sleep in it.
    turn: Time,
    asked_ns: u64,
}

impl Pulse {
    /// A turn counts for the sleep that was asked for and `slack_ns` at most.
    pub fn new(slack_ns: u64, now: Time) -> Pulse {
        Pulse {
            slack_ns: slack_ns.max(1),
            lost_ns: 0,
            turn: now,
            asked_ns: 0,
        }
    }

    /// The pulse that I/Os with this deadline are measured with.
    pub fn of_deadline(deadline_ns: u64, now: Time) -> Pulse {
        Pulse::new(deadline_ns / SLACK_PARTS, now)
    }

    /// The thread sleeps until something happens, for so long at most.
    pub fn sleeps(&mut self, at_most_ns: Option<u64>) {
        self.asked_ns = at_most_ns.unwrap_or(u64::MAX);
    }

    /// The thread begins another turn. Returns how long it stood still in the last one,
    /// nanoseconds.
    pub fn wakes(&mut self, now: Time) -> u64 {
        let fair_ns = self.asked_ns.saturating_add(self.slack_ns);
        let mut gap_ns = now.since(self.turn).saturating_sub(fair_ns);
        if canary::hit(Canary::StandstillCounts) {
            gap_ns = 0;
        }
        self.lost_ns += gap_ns;
        (self.turn, self.asked_ns) = (now, 0);
        gap_ns
    }

    /// A moment in the time in which the thread ran.
    pub fn ran(&self, now: Time) -> Time {
        Time(now.0.saturating_sub(self.lost_ns))
    }

    /// How long the thread has stood still so far, nanoseconds.
    pub fn lost_ns(&self) -> u64 {
        self.lost_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_stood_still_has_not_run_and_one_that_slept_as_it_asked_has() {
        let mut pulse = Pulse::of_deadline(6_400, Time(1_000));
        pulse.sleeps(Some(500));
        assert_eq!(pulse.wakes(Time(1_550)), 0);
        assert_eq!(pulse.ran(Time(1_550)), Time(1_550));
        pulse.sleeps(Some(500));
        assert_eq!(pulse.wakes(Time(91_550)), 89_400);
        assert_eq!(pulse.ran(Time(91_550)), Time(2_150));
        // A turn that never ended counts for the slack.
        assert_eq!(pulse.wakes(Time(100_000)), 8_350);
        pulse.sleeps(None);
        assert_eq!(pulse.wakes(Time(1_000_000)), 0, "it meant to sleep");
    }
}
