//! A failing seed made smaller: fewer lives, fewer requests, fewer kinds of faults.
//!
//! Invariant: what is returned fails, too (not necessarily in the same way).
//!
//! Deliberately absent: leaving out single requests. A short story is enough for a person.

use crate::drive::overlay::{FaultKind, FaultSet};
use crate::plan::Variation;
use crate::report::Outcome;
use crate::runner::{Run, run};

/// The smallest failing variation found, and what came of it.
pub fn shrink(failing: &Run, first: Outcome) -> (Run, Outcome) {
    let (mut best, mut outcome) = (failing.clone(), first);
    let attempt = |best: &mut Run, outcome: &mut Outcome, variation: Variation| {
        let candidate = Run {
            variation,
            ..best.clone()
        };
        let tried = run(&candidate);
        let smaller = tried.failure.is_some() && tried.stats.events <= outcome.stats.events;
        if smaller {
            (*best, *outcome) = (candidate, tried);
        }
        smaller
    };
    for lives in 0..5 {
        let variation = Variation {
            lives: Some(lives),
            ..best.variation
        };
        if attempt(&mut best, &mut outcome, variation) {
            break;
        }
    }
    for (kind, _) in FaultKind::ALL {
        let without: FaultSet = best.variation.without.with(kind);
        let variation = Variation {
            without,
            ..best.variation
        };
        attempt(&mut best, &mut outcome, variation);
    }
    let (mut low, mut high) = (0, best.variation.asks.unwrap_or(128));
    while low < high {
        let middle = (low + high) / 2;
        let variation = Variation {
            asks: Some(middle),
            ..best.variation
        };
        if attempt(&mut best, &mut outcome, variation) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    (best, outcome)
}
