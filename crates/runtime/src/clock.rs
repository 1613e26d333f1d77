//! The engine's time: monotonic nanoseconds since the array was opened, and what they are on the
//! wall.
//!
//! Invariant: every shard of an array shares one origin, so that times of different threads
//! compare. Deliberately absent: a cached or coarse clock; reading it costs no system call.

use std::time::{Duration, Instant, SystemTime};

use strake_engine::units::Time;

/// The clock of one array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
    wall: SystemTime,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Clock {
        Clock {
            origin: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// Now. (2^64 ns are 584 years.)
    pub(crate) fn now(&self) -> Time {
        Time(self.origin.elapsed().as_nanos() as u64)
    }

    /// The wall-clock time of a moment, by the wall clock at the origin.
    pub(crate) fn wall(&self, time: Time) -> SystemTime {
        self.wall + Duration::from_nanos(time.0)
    }
}

/// The time of day, seconds since 1970; 0 where the clock was never set.
pub(crate) fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
