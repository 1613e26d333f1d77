//! I/Os that did not reach their device, or got no answer back from it, are repeated for a while.
//!
//! A controller that is reset, a path that changes, a host that is out of memory: the error says
//! nothing of the medium, and a moment later the same I/O succeeds. The caller that carries out
//! member I/Os (the runtime, the simulator) asks here what to do with one that failed, and returns
//! only the final result to the machine that issued it. So the machines know nothing of retries: an
//! operation keeps its stripe locked and its buffers unchanged until its I/O is answered, and each
//! retry is the very same I/O.
//!
//! Invariants:
//! * An I/O is repeated only after it was answered: of two tries only one is ever under way, so no
//!   try can land after its successor was answered. An I/O without an answer is waited for, never
//!   repeated.
//! * A device with a volatile cache is not trusted to hold what it answered before the error: the
//!   reset may have cut its power. It goes out at the first error, and comes back by a rebuild of
//!   what was written meanwhile (`array::members::rejoin`), which does not rely on the cache. An
//!   I/O that was never sent is retried all the same.
//! * Nothing is repeated for ever: from the first error on there is one deadline for all tries
//!   together.
//!
//! **An error without a cause** (EIO) is not returned at once either: the kernel may answer so for
//! a moment before it removes a drive. A member that is gone keeps its data and comes back by
//! itself; a member that cannot read or write has failed. So the caller waits a moment and looks
//! again ([`RetryPolicy::grace`]). It repeats nothing for that.
//!
//! Deliberately absent: clocks and queues (the caller's), and which errors of a kernel mean this
//! (the runtime's).

pub(crate) mod pulse;

use crate::proto::{DeviceInfo, IoError, IoKind};
use crate::units::*;

/// Between the first error and the second try.
const PAUSE_MIN_PARTS: u64 = 512;
/// Between two tries at most.
const PAUSE_MAX_PARTS: u64 = 16;
/// Between an error that says nothing of why and the verdict.
const LOOK_PARTS: u64 = 64;
/// So long after it, a device is taken to be there: what it answers is told at once.
const STANDS_PARTS: u64 = 8;

/// How long and how often an I/O is retried.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    deadline_ns: u64,
}

/// The retries of one I/O so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryState {
    /// No try is waited for any longer than until then.
    pub until: Time,
    /// When it is tried again.
    pub again_at: Time,
    /// When it failed first.
    pub since: Time,
    /// Retries so far: the caller counts each one that it carries out.
    pub tries: u32,
    /// One of them failed on its way; otherwise it was never sent.
    pub on_its_way: bool,
    pause_ns: u64,
}

/// What became of an I/O that was tried again: the array counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retried {
    /// On which device.
    pub device: DeviceId,
    /// What it had been through.
    pub retry: RetryState,
    /// It succeeded in the end.
    pub got_through: bool,
    /// When it was over.
    pub ended: Time,
}

/// Since when a device answers errors without a cause (EIO).
#[derive(Clone, Copy, Debug, Default)]
pub struct EioGrace {
    since: Option<Time>,
}

impl RetryPolicy {
    /// With the deadline that each I/O has: all further tries together have it once more.
    pub fn new(deadline_ns: u64) -> RetryPolicy {
        RetryPolicy { deadline_ns }
    }

    /// A try has failed. What it is to wait for, or `None`: its owner is to be told.
    pub fn after(
        &self,
        before: Option<RetryState>,
        error: IoError,
        repeats: Repeats,
        now: Time,
    ) -> Option<RetryState> {
        match (error, repeats) {
            (IoError::Transport(_), Repeats::All)
            | (IoError::Unsent(_), Repeats::All | Repeats::Unsent) => {}
            _ => return None,
        }
        let parts = |parts: u64| (self.deadline_ns / parts).max(1);
        let on_its_way = matches!(error, IoError::Transport(_));
        let retry = match before {
            None => RetryState {
                until: Time(now.0.saturating_add(self.deadline_ns)),
                again_at: Time(now.0.saturating_add(parts(PAUSE_MIN_PARTS))),
                since: now,
                tries: 0,
                on_its_way,
                pause_ns: parts(PAUSE_MIN_PARTS),
            },
            Some(retry) => {
                let pause_ns = (2 * retry.pause_ns).min(parts(PAUSE_MAX_PARTS));
                RetryState {
                    again_at: Time(now.0.saturating_add(pause_ns)),
                    on_its_way: retry.on_its_way || on_its_way,
                    pause_ns,
                    ..retry
                }
            }
        };
        (retry.again_at < retry.until).then_some(retry)
    }

    /// A device answered with an error. If the error has no cause (EIO): the time until which its
    /// owner does not get it, since the device may turn out to be gone. All such errors in the
    /// meantime share that time. (A read in place is answered at once: its owner repeats it with a
    /// buffer, and that gets the grace.)
    pub fn grace(
        &self,
        grace: &mut EioGrace,
        error: IoError,
        repeats: Repeats,
        now: Time,
    ) -> Option<Time> {
        if error != IoError::Unclear || repeats == Repeats::Never {
            return None;
        }
        let stands_ns = self.deadline_ns / STANDS_PARTS;
        let since = grace.since.filter(|&since| now.since(since) < stands_ns);
        let since = *grace.since.insert(since.unwrap_or(now));
        let until = Time(since.0.saturating_add(self.deadline_ns / LOOK_PARTS));
        (now < until).then_some(until)
    }

    /// The verdict over a device that is still there.
    pub fn verdict(error: IoError) -> IoError {
        match error {
            IoError::Unclear => IoError::Media,
            clear => clear,
        }
    }
}

/// After which errors an I/O may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeats {
    /// None.
    Never,
    /// It never was on its way.
    Unsent,
    /// Nor is it of weight whether it was.
    All,
}

impl Repeats {
    /// Of an I/O of this kind on such a device. The owner of a read in place repeats it at once
    /// with a buffer.
    pub fn of(info: &DeviceInfo, kind: &IoKind) -> Repeats {
        match kind {
            IoKind::ReadInPlace { .. } => Repeats::Never,
            _ if info.volatile_cache => Repeats::Unsent,
            _ => Repeats::All,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESET: IoError = IoError::Transport(67);

    #[test]
    fn tries_come_less_and_less_often_and_end_with_the_deadline() {
        let policy = RetryPolicy::new(75_000_000_000);
        let (mut now, mut retry, mut pauses) = (Time(5), None, Vec::new());
        while let Some(next) = policy.after(retry, RESET, Repeats::All, now) {
            pauses.push(next.again_at.since(now) / 1_000_000);
            (now, retry) = (next.again_at, Some(next));
        }
        assert_eq!(pauses[..6], [146, 292, 585, 1171, 2343, 4687]);
        assert!(pauses[6..].iter().all(|&pause| pause == 4687));
        assert!(now.since(Time(5)) < 75_000_000_000 && pauses.len() == 20);
    }

    #[test]
    fn what_a_repetition_does_not_mend_is_told_at_once() {
        let policy = RetryPolicy::new(75_000_000_000);
        for error in [IoError::Media, IoError::Gone, IoError::TimedOut] {
            assert_eq!(policy.after(None, error, Repeats::All, Time(0)), None);
        }
        let told = |error, repeats| policy.after(None, error, repeats, Time(0)).is_none();
        assert!(told(RESET, Repeats::Unsent) && told(RESET, Repeats::Never));
        assert!(told(IoError::Unsent(12), Repeats::Never));
        assert!(!told(IoError::Unsent(12), Repeats::Unsent));
    }

    #[test]
    fn an_error_that_says_nothing_is_told_a_moment_later_and_for_a_while_after_that_at_once() {
        let (policy, mut grace) = (RetryPolicy::new(64_000), EioGrace::default());
        let mut until = |error, now| policy.grace(&mut grace, error, Repeats::All, Time(now));
        assert_eq!(until(IoError::Media, 10), None);
        assert_eq!(until(IoError::Unclear, 10), Some(Time(1010)));
        assert_eq!(until(IoError::Unclear, 900), Some(Time(1010)));
        assert_eq!(until(IoError::Unclear, 1010), None);
        assert_eq!(until(IoError::Unclear, 8009), None);
        assert_eq!(until(IoError::Unclear, 8010), Some(Time(9010)));
        let at_once = |deadline_ns, repeats| {
            let policy = RetryPolicy::new(deadline_ns);
            policy.grace(&mut EioGrace::default(), IoError::Unclear, repeats, Time(5))
        };
        assert_eq!(at_once(0, Repeats::All), None);
        assert_eq!(at_once(64_000, Repeats::Never), None);
    }

    #[test]
    fn a_device_that_may_have_lost_its_cache_is_not_asked_again() {
        let mut info = DeviceInfo {
            bytes: 1 << 20,
            block_bytes: 4096,
            granularity_bytes: 0,
            volatile_cache: false,
            dma: false,
        };
        assert_eq!(Repeats::of(&info, &IoKind::Flush), Repeats::All);
        info.volatile_cache = true;
        assert_eq!(Repeats::of(&info, &IoKind::Flush), Repeats::Unsent);
    }
}
