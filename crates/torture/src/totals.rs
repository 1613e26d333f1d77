//! What happened, counted over all arrays.
//!
//! Invariant: every count is of something that took place, not of something that was tried.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::child::Seen;

macro_rules! totals {
    ($($field:ident: $what:literal,)*) => {
        /// See the module.
        #[derive(Debug, Default)]
        pub(crate) struct Totals {
            $(#[doc = $what] pub(crate) $field: AtomicU64,)*
        }

        /// The same as plain numbers.
        #[derive(Clone, Copy, Debug, Serialize)]
        pub(crate) struct Summary {
            $($field: u64,)*
        }

        impl Totals {
            /// The numbers as they stand.
            pub(crate) fn summary(&self) -> Summary {
                Summary {
                    $($field: self.$field.load(Ordering::Relaxed),)*
                }
            }
        }

        impl Summary {
            /// In words.
            pub(crate) fn words(&self) -> String {
                let all = [$(($what, self.$field)),*];
                let parts: Vec<String> = all
                    .iter()
                    .map(|(what, count)| format!("{count} {what}"))
                    .collect();
                parts.join(", ")
            }
        }
    };
}

totals! {
    arrays: "arrays",
    rounds: "rounds",
    kills: "kills",
    kills_starting: "of them while starting",
    kills_rebuilding: "while rebuilding",
    kills_resyncing: "while resyncing",
    kills_scrubbing: "while scrubbing",
    kills_moving: "while data moves",
    kills_stopping: "while stopping",
    kills_degraded: "while degraded",
    stops: "clean stops",
    resyncs: "starts with a resync",
    members_lost: "members lost",
    members_hidden: "of them hidden",
    lost_after_kill: "of them between a kill and the next start",
    stale_returns: "members returned",
    copies_put_back: "older copies put back",
    members_emptied: "members emptied",
    shortened_serving: "of them while serving",
    older_serving: "older copies that came to a serving array",
    names_swapped: "names swapped",
    members_added: "members added",
    restripes: "moves to other shapes",
    scrubs: "scrubs finished",
    requests: "requests",
    blocks_verified: "blocks verified",
    torn_reads: "reads that met a write half way",
    mismatches: "mismatches",
}

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Totals {
    /// The number of the round that begins.
    pub(crate) fn round(&self) -> u64 {
        self.rounds.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A kill at a turn of the array's life.
    pub(crate) fn kill_at(&self, turn: &AtomicU64) {
        count(&self.kills);
        count(turn);
    }

    /// A kill while it serves, and what that interrupted.
    pub(crate) fn kill(&self, seen: &Seen) {
        count(&self.kills);
        let jobs = [
            ("Rebuild", &self.kills_rebuilding),
            ("Resync", &self.kills_resyncing),
            ("Scrub", &self.kills_scrubbing),
            ("Restripe", &self.kills_moving),
        ];
        for (kind, counter) in jobs {
            if seen.has_job(kind) {
                count(counter);
            }
        }
        if seen.state == "Degraded" {
            count(&self.kills_degraded);
        }
    }
}
