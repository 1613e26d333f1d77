//! What a step of the whole run came to: counts that add up, and the lines a person needs to see.
//!
//! A thing that could not be checked is counted as skipped and says why; it is never silently left
//! out.

use std::ops::AddAssign;

/// Counts of checks. One step may stand for one check or for a thousand tests.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Counts, and what there is to say about them.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    /// Shown under the step's line: reasons of skips, figures, the tail of the log of a failure.
    pub(crate) notes: Vec<String>,
}

impl AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.counts += other.counts;
        self.notes.extend(other.notes);
    }
}

impl Outcome {
    pub(crate) fn passed() -> Self {
        Self {
            counts: Counts {
                passed: 1,
                ..Counts::default()
            },
            notes: Vec::new(),
        }
    }

    pub(crate) fn failed(note: impl Into<String>) -> Self {
        Self {
            counts: Counts {
                failed: 1,
                ..Counts::default()
            },
            notes: vec![note.into()],
        }
    }

    pub(crate) fn skipped(why: impl AsRef<str>) -> Self {
        let notes = vec![format!("SKIPPED: {}", why.as_ref())];
        Self {
            counts: Counts {
                skipped: 1,
                ..Counts::default()
            },
            notes,
        }
    }

    /// The outcome of one check that is a whole command.
    pub(crate) fn of(finished: &crate::host::Finished, tail: usize) -> Self {
        if finished.ok {
            return Self::passed();
        }
        let why = if finished.timed_out {
            "ran past its time\n"
        } else {
            ""
        };
        Self::failed(format!("{why}{}", finished.tail(tail)))
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}
