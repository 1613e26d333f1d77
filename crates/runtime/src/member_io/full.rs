//! Writes that their device has no space for: a full file system under files, a full thin pool, a
//! limit of the size of files.
//!
//! That says nothing against the drive, whatever it holds is still true, and it is seldom of one
//! member alone. So the owner gets no answer: the array is told, and decides as of I/Os that are
//! overdue (`array::members::deadlines` of the engine). One member that the level survives is given
//! up. Several in one moment, or one too many, wait: each write is tried again until there is
//! space, without an end.
//!
//! Invariants:
//! * However many devices are full, the array is not failed by it. A write that waits is not
//!   acknowledged.
//! * A start does not wait without an end: what the array cannot do without ends the start.
//! * No further deadline is counted ([`Flight::rounds`]): after some the array gives up whatever is
//!   late.
//!
//! Deliberately absent: flushes (what one of them lost, the next one does not bring) and reads.

use super::*;

/// So long after the array's decision it is tried again.
const PAUSE_MS: u64 = 1000;

impl MemberIos {
    /// A try has failed. True if it was for want of space: the array is to decide.
    pub(super) fn waits_for_space(&mut self, place: u32, error: IoError) -> bool {
        let flight = self.flights.get_mut(place).expect("it is in the table");
        let writes = match flight.work {
            Work::Write { .. } | Work::Range { .. } | Work::Zeros { .. } => true,
            Work::Read { .. } | Work::ReadInPlace { .. } | Work::Flush => false,
        };
        if error != IoError::NoSpace || !writes || !self.is_judged {
            return false;
        }
        if self.pausing == 0 {
            let device = flight.device.path().display();
            tracing::warn!(%device, "there is no space for a write: the array decides");
        }
        (flight.pauses, flight.due, flight.full) = (Some(error), NEVER, Some(NEVER));
        (flight.reported, flight.rounds) = (true, 0);
        report(&mut self.overdue, flight.id, Late::NoSpace);
        self.pausing += 1;
        true
    }

    /// The array has decided about a device.
    pub(super) fn judged_full(
        &mut self,
        ring: &mut Ring,
        device: DeviceId,
        verdict: Verdict,
        now: Time,
        finished: &mut Vec<Finished>,
    ) {
        let mut given_up = Vec::new();
        for (place, flight) in self.flights.iter_mut() {
            if flight.id != device || !flight.reported || flight.full.is_none() {
                continue;
            }
            match verdict {
                Verdict::GiveUp => given_up.push(place),
                Verdict::WaitOn => {
                    flight.reported = false;
                    flight.full = Some(now.plus_ms(PAUSE_MS));
                }
            }
        }
        for place in given_up {
            let flight = self.flights.get_mut(place).expect("it was just seen");
            let error = flight.pauses.take().expect("the kernel does not have it");
            self.pausing -= 1;
            let verdict = Err(flight.device.why_gone().unwrap_or(error));
            finished.extend(self.conclude(ring, place, verdict, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Bench, ID, fail_once, member, write_of};
    use super::*;

    fn bench(path: &std::path::Path) -> Bench {
        let mut bench = Bench::new(path, Duration::from_secs(5));
        bench.ios.is_judged = true;
        bench
    }

    fn judged(bench: &mut Bench, verdict: Verdict, now: Time) -> Vec<Finished> {
        let mut finished = Vec::new();
        bench
            .ios
            .judged(&mut bench.ring, ID, verdict, now, &mut finished);
        finished
    }

    #[test]
    fn a_write_without_space_is_the_arrays_to_decide_and_tried_again_for_as_long_as_it_says() {
        let file = member(1 << 20);
        let mut bench = bench(file.path());
        for errno in [libc::ENOSPC, libc::EFBIG, libc::EDQUOT] {
            let told = fail_once(&mut bench, write_of(7), Repeats::Unsent, errno);
            assert!(told.is_none());
            for round in 0..5 {
                assert_eq!(bench.ios.overdue(), Some((ID, Late::NoSpace)), "{round}");
                assert_eq!(bench.ios.overdue(), None);
                let now = bench.clock.now();
                let mut finished = Vec::new();
                bench
                    .ios
                    .expire(&mut bench.ring, now.plus_ms(99_000), &mut finished);
                assert_eq!(bench.ios.in_flight(), 0, "it waits for the array");
                finished.extend(judged(&mut bench, Verdict::WaitOn, now));
                bench.ios.expire(&mut bench.ring, now, &mut finished);
                assert_eq!(bench.ios.in_flight(), 0, "it pauses");
                let later = now.plus_ms(PAUSE_MS);
                bench.ios.expire(&mut bench.ring, later, &mut finished);
                assert_eq!((finished.len(), bench.ios.in_flight()), (0, 1));
                let (place, result) = bench.reap();
                let last = round == 4;
                let result = if last { result } else { -errno };
                let over = bench.finish(place, result);
                assert_eq!(over.len(), usize::from(last));
                assert!(over.iter().all(|done| done.result == Ok(())));
            }
        }
        assert_eq!(bench.ios.pausing, 0);
    }

    #[test]
    fn a_write_without_space_is_told_as_that_when_the_array_gives_its_device_up() {
        let file = member(1 << 20);
        let mut bench = bench(file.path());
        assert!(fail_once(&mut bench, write_of(7), Repeats::All, libc::ENOSPC).is_none());
        let now = bench.clock.now();
        let told = judged(&mut bench, Verdict::GiveUp, now);
        let results: Vec<_> = told.iter().map(|(_, done)| done.result).collect();
        assert_eq!(results, [Err(IoError::NoSpace)]);
        assert_eq!((bench.ios.pausing, bench.ios.in_flight()), (0, 0));
        // So is one of a device that was let go meanwhile.
        assert!(fail_once(&mut bench, write_of(7), Repeats::All, libc::ENOSPC).is_none());
        bench.ios.release(&mut bench.ring, ID);
        let mut finished = Vec::new();
        bench.ios.expire(&mut bench.ring, now, &mut finished);
        assert_eq!((finished.len(), bench.ios.pausing), (1, 0));
    }

    #[test]
    fn zeros_that_are_written_for_want_of_another_way_wait_as_any_write() {
        let file = member(1 << 20);
        let mut bench = bench(file.path());
        let zeros = IoKind::WriteZeroes {
            offset: 0,
            len: 4096,
        };
        assert!(fail_once(&mut bench, zeros, Repeats::All, libc::EOPNOTSUPP).is_none());
        assert_eq!(bench.ios.overdue(), None);
        let (place, _) = bench.reap();
        assert!(bench.finish(place, -libc::ENOSPC).is_empty());
        assert_eq!(bench.ios.overdue(), Some((ID, Late::NoSpace)));
    }

    #[test]
    fn a_flush_without_space_is_told_at_once() {
        let file = member(1 << 20);
        let mut bench = bench(file.path());
        let told = fail_once(&mut bench, IoKind::Flush, Repeats::All, libc::ENOSPC);
        assert_eq!(told.map(|done| done.result), Some(Err(IoError::NoSpace)));
    }
}
