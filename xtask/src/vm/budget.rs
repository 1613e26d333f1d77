//! The time that the virtual machine may take in the whole run.
//!
//! Emulation is the most of the whole run's time, and on a slow machine it takes several times as
//! long. The whole run must end all the same, so no boot begins once the time is used up.
//!
//! Invariant: what is left out is counted as skipped, and says why; what a person asks for by
//! `cargo xtask vm` is never left out.

use crate::outcome::Outcome;
use std::time::{Duration, Instant};

/// See the module.
#[derive(Clone, Copy)]
pub(crate) struct Budget(Option<(Instant, Duration)>);

impl Budget {
    /// As long as it takes.
    pub(crate) fn unlimited() -> Budget {
        Budget(None)
    }

    /// So long from now on.
    pub(crate) fn of(time: Duration) -> Budget {
        Budget(Some((Instant::now(), time)))
    }

    /// Why nothing more may begin, if that is so.
    pub(crate) fn used_up(self) -> Option<String> {
        let (since, time) = self.0?;
        (since.elapsed() >= time).then(|| {
            let minutes = time.as_secs() / 60;
            format!("this machine is slow, and the {minutes} minutes of the boots are over")
        })
    }

    /// Leaves out so many checks.
    pub(crate) fn leave_out(total: &mut Outcome, count: u64, what: &str, why: &str) {
        println!("  skipped {what}: {why}");
        total.counts.skipped += count;
        total.notes.push(format!("SKIPPED: {what}: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_asks_for_is_never_left_out_and_the_whole_run_ends() {
        assert!(Budget::unlimited().used_up().is_none());
        assert!(Budget::of(Duration::from_secs(3600)).used_up().is_none());
        let why = Budget::of(Duration::ZERO).used_up().expect("it is over");
        let mut total = Outcome::default();
        Budget::leave_out(&mut total, 5, "five cuts", &why);
        assert_eq!(total.counts.skipped, 5);
        assert!(total.notes[0].starts_with("SKIPPED: five cuts: "));
    }
}
