//! How many cores of this machine are busy, by the kernel's count (`/proc/stat`).
//!
//! Counted is all that is not idle: programs, the kernel, interrupts. Deliberately absent: to which
//! program time belongs; an engine's work is spread over its own threads, those of the load that
//! enter the kernel, and interrupts.

use std::fs;
use std::time::Instant;

/// Of `/proc/stat`: user, nice, system, (idle, iowait,) irq, softirq. Time of guests is in that of
/// users, and what a hypervisor took (steal) is nobody's here.
const BUSY: [usize; 5] = [0, 1, 2, 5, 6];

/// A count that goes on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    since: Instant,
    ticks: Option<u64>,
}

impl Count {
    /// From now on.
    pub(super) fn begin() -> Count {
        Count {
            since: Instant::now(),
            ticks: now(),
        }
    }
    /// Cores that have been busy until now, on average.
    pub(super) fn end(self) -> Option<f64> {
        let ticks = now()?.checked_sub(self.ticks?)?;
        let seconds = self.since.elapsed().as_secs_f64();
        let per_second = rustix::param::clock_ticks_per_second() as f64;
        (seconds > 0.0).then(|| ticks as f64 / per_second / seconds)
    }
}

fn now() -> Option<u64> {
    busy(&fs::read_to_string("/proc/stat").ok()?)
}

/// Ticks that all cores together were busy.
fn busy(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .map_while(|n| n.parse().ok())
        .collect();
    BUSY.into_iter().map(|at| ticks.get(at)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_idle_is_busy() {
        let stat = "cpu  100 20 30 4000 500 6 7 800 9 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 5\n";
        assert_eq!(busy(stat), Some(100 + 20 + 30 + 6 + 7));
        assert_eq!(busy("cpu  1 2\n"), None);
        assert_eq!(busy(""), None);
    }

    #[test]
    fn a_core_that_computes_is_counted() {
        let count = Count::begin();
        let began = Instant::now();
        let mut sum = 0u64;
        while began.elapsed().as_millis() < 300 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        let cores = count.end().expect("this is Linux");
        let all = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
        // A busy machine gives this thread less than a core.
        assert!(cores > 0.1 && cores < all + 0.5, "{cores}");
    }
}
