//! The time that the virtual machine may take in the whole run.
//!
//! Emulation is the most of the whole run's time, and on a slow machine it takes several times as
//! long. The whole run must end all the same, so no boot begins that would not end within the time
//! if it took as many times the usual as those before it.
//!
//! Invariant: what is left out is counted as skipped, and says why; what a person asks for by
//! `cargo xtask vm` is never left out.

use crate::outcome::Outcome;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// See the module.
pub(crate) struct Budget {
    since: Instant,
    /// None: as long as it takes.
    time: Option<Duration>,
    /// What the boots that have ended usually take, seconds.
    usual_s: AtomicU64,
}

impl Budget {
    /// As long as it takes.
    pub(crate) fn unlimited() -> Budget {
        Budget {
            since: Instant::now(),
            time: None,
            usual_s: AtomicU64::new(0),
        }
    }

    /// So long from now on.
    pub(crate) fn of(time: Duration) -> Budget {
        Budget {
            time: Some(time),
            ..Budget::unlimited()
        }
    }

    /// A boot has ended that usually takes so long. Of boots side by side, one tells.
    pub(crate) fn spent(&self, usual_s: u64) {
        self.usual_s.fetch_add(usual_s, Ordering::Relaxed);
    }

    /// Why a boot that usually takes so long may not begin, if that is so.
    pub(crate) fn refuses(&self, usual_s: u64) -> Option<String> {
        let before = self.usual_s.load(Ordering::Relaxed);
        let refused = late(self.since.elapsed(), before, usual_s, self.time?);
        refused.then(|| {
            let minutes = self.time.map_or(0, |time| time.as_secs() / 60);
            format!("this machine is slow, and all boots have {minutes} minutes")
        })
    }

    /// Leaves out so many checks.
    pub(crate) fn leave_out(total: &mut Outcome, count: u64, what: &str, why: &str) {
        println!("  skipped {what}: {why}");
        total.counts.skipped += count;
        total.notes.push(format!("SKIPPED: {what}: {why}"));
    }
}

/// Whether a boot that usually takes `usual_s` would end too late, if those before it, which
/// usually take `before_s`, took the time `elapsed`.
fn late(elapsed: Duration, before_s: u64, usual_s: u64, time: Duration) -> bool {
    let times = match before_s {
        0 => 1.0,
        _ => (elapsed.as_secs_f64() / before_s as f64).max(1.0),
    };
    elapsed.as_secs_f64() + usual_s as f64 * times > time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_asks_for_is_never_left_out() {
        assert!(Budget::unlimited().refuses(1_000_000).is_none());
        assert!(Budget::of(Duration::from_secs(3600)).refuses(60).is_none());
        let why = Budget::of(Duration::ZERO).refuses(60).expect("it is over");
        let mut total = Outcome::default();
        Budget::leave_out(&mut total, 5, "five cuts", &why);
        assert_eq!(total.counts.skipped, 5);
        assert!(total.notes[0].starts_with("SKIPPED: five cuts: "));
    }

    #[test]
    fn a_boot_begins_only_if_it_would_end_in_time_on_a_machine_as_slow_as_this() {
        let minutes = |n: u64| Duration::from_secs(n * 60);
        assert!(!late(minutes(9), 540, 180, minutes(48)));
        assert!(
            !late(minutes(20), 300, 60, minutes(48)),
            "4 × slow: 4 minutes"
        );
        assert!(
            late(minutes(20), 300, 600, minutes(48)),
            "4 × slow: 40 minutes"
        );
        assert!(!late(minutes(1), 300, 60, minutes(48)), "a quick one");
    }
}
