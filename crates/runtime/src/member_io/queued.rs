//! Calls that block and that the thread which submits them has not given to the kernel yet: it may
//! wait for memory, or be slow. Their devices know nothing of them.
//!
//! Invariants: the deadline of a call that waits begins when the kernel is seen to have it. Where
//! it has it not after [`DEADLINES_MAX`] deadlines, the call is late as one that hangs: that thread
//! stands still, and the array waits no longer than for a member.

use strake_engine::units::Time;

use super::MemberIos;
use crate::ring::{CallNo, Ring};

/// So many deadlines of a call that the kernel does not have are no fault of its device: as many as
/// an array waits for a member (`array::members::deadlines` of the engine).
const DEADLINES_MAX: u32 = 3;

/// A call in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    call: CallNo,
    /// A look has found that the kernel does not have it.
    waits: bool,
    /// Deadlines that have passed.
    deadlines: u32,
}

impl Queued {
    pub(super) fn new(call: CallNo) -> Queued {
        Queued {
            call,
            waits: false,
            deadlines: 0,
        }
    }
}

impl MemberIos {
    /// Has the deadlines of calls begin that the kernel has got since the last look, and lets those
    /// pass that it has not got.
    pub(super) fn excuse_queued(&mut self, ring: &Ring, now: Time) {
        let ran = self.pulse.ran(now);
        let mut begin = Vec::new();
        for (place, flight) in self.flights.iter_mut() {
            let Some(queued) = &mut flight.queued else {
                continue;
            };
            if ring.has_call(queued.call) {
                // One that did not wait got there at once.
                begin.extend(queued.waits.then_some(place));
                flight.queued = None;
                continue;
            }
            queued.waits = true;
            if ran >= flight.due && !flight.reported {
                queued.deadlines += 1;
                if queued.deadlines < DEADLINES_MAX {
                    begin.push(place);
                }
            }
        }
        for place in begin {
            self.due(place, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use strake_engine::event::{IoError, IoKind};
    use strake_engine::{Late, Verdict};

    use super::super::tests::{Bench, ID, member};
    use super::*;

    const DEADLINE_MS: u64 = 5000;

    fn bench(path: &std::path::Path) -> Bench {
        let mut bench = Bench::new(path, Duration::from_millis(DEADLINE_MS));
        bench.ios.is_judged = true;
        bench
    }

    fn look(bench: &mut Bench, now: Time) -> bool {
        let mut finished = Vec::new();
        bench.ios.expire(&mut bench.ring, now, &mut finished);
        assert!(finished.is_empty());
        bench.ios.overdue() == Some((ID, Late::Overdue(0)))
    }

    /// Its deadline began when it was queued.
    #[test]
    fn the_deadline_of_a_call_begins_when_the_kernel_gets_it() {
        let file = member(1 << 20);
        let mut bench = bench(file.path());
        bench.ring.calls_stand_still(true);
        let begun = bench.clock.now();
        assert!(bench.start(1, IoKind::Flush).is_none());
        let later = |parts: u64| begun.plus_ms(DEADLINE_MS * parts / 10);
        assert!(!look(&mut bench, later(9)));
        assert!(!look(&mut bench, later(19)), "its device does not have it");
        bench.ring.calls_stand_still(false);
        let give_up = Instant::now() + Duration::from_secs(60);
        let has_it = |bench: &mut Bench| {
            let (_, flight) = bench.ios.flights.iter_mut().next().expect("in flight");
            bench
                .ring
                .has_call(flight.queued.expect("not seen yet").call)
        };
        while !has_it(&mut bench) {
            assert!(Instant::now() < give_up, "the kernel does not get it");
            std::thread::sleep(Duration::from_millis(1));
        }
        // Its completion is not reaped: the device may hang from now on.
        assert!(!look(&mut bench, later(28)), "its deadline begins");
        assert!(!look(&mut bench, later(37)));
        assert!(look(&mut bench, later(39)), "it has had one");
        let (place, result) = bench.reap();
        assert_eq!(bench.finish(place, result)[0].result, Ok(()));
    }

    #[test]
    fn a_thread_that_submits_nothing_is_waited_for_no_longer_than_a_member() {
        let file = member(1 << 20);
        let mut bench = bench(file.path());
        bench.ring.calls_stand_still(true);
        let begun = bench.clock.now();
        assert!(bench.start(1, IoKind::Flush).is_none());
        // The call may have begun a while later, where the machine is busy.
        let after = |deadlines: u32| begun.plus_ms((DEADLINE_MS + 3000) * u64::from(deadlines));
        for deadline in 1..DEADLINES_MAX {
            assert!(!look(&mut bench, after(deadline)), "{deadline}");
        }
        let now = after(DEADLINES_MAX);
        assert!(look(&mut bench, now));
        let mut finished = Vec::new();
        let verdict = Verdict::GiveUp;
        (bench.ios).judged(&mut bench.ring, ID, verdict, now, &mut finished);
        assert_eq!(finished[0].1.result, Err(IoError::TimedOut));
        bench.ring.calls_stand_still(false);
        let (place, result) = bench.reap();
        assert!(bench.finish(place, result).is_empty(), "answered once");
    }
}
