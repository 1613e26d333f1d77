//! How long the whole run has taken, and what is left of the time that it may take.
//!
//! CI ends a run after 90 minutes, and machines differ by a factor of two. So what can be done in
//! part, seeds and boots of virtual machines, begins nothing that would end too late.
//!
//! Invariant: what is left out is counted as skipped or said with its number. Deliberately absent:
//! a limit for what a person asks for by itself.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// When the whole run began.
static BEGAN: OnceLock<Instant> = OnceLock::new();

/// By then all that can be left out has ended; some minutes are for what cannot.
const END: Duration = Duration::from_secs(80 * 60);

/// The whole run begins.
pub(crate) fn begin() {
    BEGAN.get_or_init(Instant::now);
}

/// What is left.
pub(crate) fn left() -> Duration {
    let passed = BEGAN.get().map_or(Duration::ZERO, Instant::elapsed);
    END.saturating_sub(passed)
}
