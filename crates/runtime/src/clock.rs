//! The engine's time: monotonic nanoseconds since the array was opened, and what they are on the
//! wall.
//!
//! The wall clock is looked at anew each time: it may be set while an array serves (a machine that
//! starts without a clock of its own is corrected later), and goes on while the machine is
//! suspended, as the monotonic one does not.
//!
//! Invariant: every shard of an array shares one origin, so that times of different threads
//! compare. Deliberately absent: a cached or coarse clock; reading it costs no system call.

use std::time::{Duration, Instant, SystemTime};

use strake_engine::units::Time;

/// The clock of one array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn start() -> Clock {
        Clock {
            origin: Instant::now(),
        }
    }

    /// Now. (2^64 ns are 584 years.)
    pub(crate) fn now(&self) -> Time {
        Time(self.origin.elapsed().as_nanos() as u64)
    }

    /// The wall-clock time of a moment that has just been, by the wall clock as it is now.
    pub(crate) fn wall(&self, time: Time) -> SystemTime {
        let ago = Duration::from_nanos(self.now().since(time));
        let now = SystemTime::now();
        now.checked_sub(ago).unwrap_or(now)
    }
}

/// The time of day, seconds since 1970; 0 where the clock was never set.
pub(crate) fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// A number that no two sessions share but by chance.
pub(crate) fn random_number() -> u32 {
    use rustix::rand::{GetRandomFlags, getrandom};
    let mut bytes = [0; 4];
    // Early at boot the kernel may have gathered too little for secrets: this is none.
    match getrandom(&mut bytes, GetRandomFlags::INSECURE) {
        Ok(4) => u32::from_ne_bytes(bytes),
        // Forbidden by a filter of system calls, say.
        _ => {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let nanos = since.map_or(0, |since| since.as_nanos() as u64);
            (nanos ^ nanos >> 32) as u32 ^ std::process::id().rotate_left(16)
        }
    }
}
