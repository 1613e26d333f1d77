//! When to look for members that did not answer in time.
//!
//! Such a member has not gone anywhere, so nothing tells when it answers again: it is looked for
//! from time to time, for a while. Invariants: no clock, time is an argument; the last look is
//! after all of that time, so that a member that answers at its very end is found. Deliberately
//! absent: which members these are (the array's table says so).

use std::time::{Duration, Instant};

/// It is looked for at this distance, ...
pub(crate) const PERIOD: Duration = Duration::from_secs(15);
/// ... for so long: a controller that is reset several times over takes minutes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Late(Option<Looking>);

#[derive(Debug)]
struct Looking {
    look_at: Instant,
    until: Instant,
}

impl Late {
    /// Is any looked for?
    pub(crate) fn looks(&self) -> bool {
        self.0.is_some()
    }

    /// Is it time to look? `more`: another member did not answer in time.
    pub(crate) fn is_due(&mut self, more: bool, now: Instant) -> bool {
        if more {
            let next = now + PERIOD;
            self.0 = Some(Looking {
                // A member that is looked for already does not wait for the other.
                look_at: self.0.as_ref().map_or(next, |before| before.look_at),
                until: now + PATIENCE,
            });
        }
        let Some(looking) = self.0.as_mut().filter(|looking| now >= looking.look_at) else {
            return false;
        };
        looking.look_at = now + PERIOD;
        if now >= looking.until {
            self.0 = None;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks every two seconds, as the watcher does, until nothing is looked for any more; answers
    /// when it was time to.
    fn looks(late: &mut Late, begun: Instant, from_s: u64) -> Vec<u64> {
        let mut at = Vec::new();
        for s in (from_s..2000).step_by(2) {
            if !late.looks() {
                break;
            }
            if late.is_due(false, begun + Duration::from_secs(s)) {
                at.push(s);
            }
        }
        at
    }

    #[test]
    fn a_late_member_is_looked_for_at_intervals_and_not_for_ever() {
        let begun = Instant::now();
        let mut late = Late::default();
        assert!(!late.is_due(false, begun) && !late.looks());
        assert!(!late.is_due(true, begun), "it has just been asked");
        assert!(late.looks());
        let at = looks(&mut late, begun, 2);
        assert_eq!(at[..3], [16, 32, 48]);
        assert!(at.windows(2).all(|pair| pair[1] - pair[0] == 16));
        assert!(
            at.last().is_some_and(|&last| (600..=616).contains(&last)),
            "{at:?}"
        );
        assert!(!late.is_due(false, begun + Duration::from_secs(3600)));
    }

    #[test]
    fn another_late_member_is_looked_for_as_long_as_the_first_which_does_not_wait_for_it() {
        let begun = Instant::now();
        let at = |s| begun + Duration::from_secs(s);
        let mut late = Late::default();
        late.is_due(true, begun);
        assert!(!late.is_due(true, at(10)));
        assert!(late.is_due(true, at(15)), "15 seconds after the first");
        assert!(late.is_due(true, at(590)));
        let at = looks(&mut late, begun, 592);
        assert_eq!(at[0], 606);
        assert!(at.last().is_some_and(|&last| last >= 590 + 600), "{at:?}");
    }
}
