//! Changes of volumes that have begun, without a known end: the array did not answer a step of
//! theirs, and may carry it out yet.
//!
//! What was asked for is taken back once that step has ended, for its caller was told that it is
//! not done; only what the array is told for good (that it is carved) is brought to its end. The
//! rounds that try volumes again see to it.
//!
//! Invariants: no other change begins, and no volume is served that is not, before what is in doubt
//! has ended and is settled: a step that is carried out late meets no volume but those it knew.
//! Deliberately absent: waits.

use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use strake_engine::event::Stalled;
use strake_format::VolumeTable;
use strake_runtime::{NotDone, UnderWay};

use crate::common::errors::{Code, Failure};
use crate::daemon::service::volumes::{Carved, Site, Volumes, why};

/// What of a change is not known to have ended.
#[derive(Debug)]
pub(crate) enum Doubt {
    /// A step from the one table to the other.
    Change(VolumeTable, VolumeTable, UnderWay),
    /// The array is made empty, before it is carved.
    Clearing(UnderWay),
    /// The array is told that it is carved.
    Carving(UnderWay),
    /// Room that was given up is discarded.
    Rest(UnderWay),
}

/// The same, and since when.
#[derive(Debug)]
pub(crate) struct Doubted {
    doubt: Doubt,
    since: Instant,
}

impl Doubt {
    fn has_ended(&self) -> bool {
        match self {
            Doubt::Change(_, _, step)
            | Doubt::Clearing(step)
            | Doubt::Carving(step)
            | Doubt::Rest(step) => step.has_ended(),
        }
    }

    /// What becomes of it.
    fn told(&self) -> &'static str {
        match self {
            Doubt::Change(before, after, _) if before == after => {
                "a copy of their table is not written yet; a start before that may find the other \
                 one as it was"
            }
            Doubt::Change(..) => {
                "the change has begun and is not done: it is taken back when the array goes on; a \
                 start before that may find it done"
            }
            Doubt::Clearing(_) => {
                "no volume was made, and the array has no device before it goes on: then its own \
                 comes back"
            }
            Doubt::Carving(_) => {
                "no volume was made; the array has no device any more, and takes volumes when it \
                 goes on"
            }
            Doubt::Rest(_) => "the change is done; room that it gave up is not discarded yet",
        }
    }
}

impl Volumes {
    fn doubted(&self) -> MutexGuard<'_, Option<Doubted>> {
        self.doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is something in doubt that can be settled now.
    pub(crate) fn is_settled_soon(&self) -> bool {
        let doubted = self.doubted();
        doubted.as_ref().is_some_and(|one| one.doubt.has_ended())
    }
}

impl Site<'_> {
    /// Keeps in mind that the array has not answered a step.
    pub(crate) fn doubt(&self, stalled: Stalled, doubt: Doubt) -> Failure {
        let told = doubt.told();
        self.note(
            "volume_change_in_doubt",
            &stalled.to_string(),
            told.to_owned(),
        );
        *self.running.volumes.doubted() = Some(Doubted {
            doubt,
            since: Instant::now(),
        });
        let name = self.running.name();
        let cure = format!(
            "look at the kernel log for a device that hangs; strake volume show {name} tells the \
             volumes, and strake events when it is over (volume_change_in_doubt)"
        );
        Failure::new(Code::CommandUnfinished, format!("{stalled}; {told}")).cure(cure)
    }

    /// A step that nobody waits for was not carried out.
    pub(crate) fn left_undone(&self, not_done: NotDone, what: &'static str) {
        match not_done {
            NotDone::Failed(error) => tracing::warn!(error = why(error), "{what}"),
            NotDone::Unfinished(stalled, step) => drop(self.doubt(stalled, Doubt::Rest(step))),
        }
    }

    /// Refuses while the end of a change is not known.
    pub(crate) fn no_doubt(&self, code: Code) -> Result<(), Failure> {
        match &*self.running.volumes.doubted() {
            None => Ok(()),
            Some(Doubted { doubt, since }) => {
                let name = self.running.name();
                let found = format!(
                    "the array has not ended a change of the volumes of {name} for {} s: {}",
                    since.elapsed().as_secs(),
                    doubt.told()
                );
                let cure = "wait until the array goes on: strake events tells when \
                            (volume_change_in_doubt), the kernel log which device hangs";
                Err(Failure::new(code, found).cure(cure))
            }
        }
    }

    /// Settles what is in doubt, where it has ended.
    pub(crate) fn settle(&self) -> Result<(), Failure> {
        let volumes = &self.running.volumes;
        if !volumes.is_settled_soon() {
            return Ok(());
        }
        self.serving.turns()?;
        let Some(doubted) = volumes.doubted().take() else {
            return Ok(());
        };
        let effect = match doubted.doubt {
            Doubt::Change(before, after, _) => {
                let newest = self.take_back(&before, &after);
                *self.running.carved() = Carved::Table(newest);
                match before == after {
                    true => "both copies of the table of volumes say the same",
                    false => "it is taken back: the volumes are as before",
                }
            }
            Doubt::Clearing(_) => {
                self.expose();
                "the array is not carved, and has its device again"
            }
            Doubt::Carving(_) => match self.carve_for_good() {
                Ok(()) => "the array takes volumes now",
                Err(failure) if failure.code == Code::CommandUnfinished => return Err(failure),
                Err(failure) => {
                    self.expose();
                    tracing::warn!(%failure, "the array is not carved");
                    "the array is not carved, and has its device again"
                }
            },
            Doubt::Rest(_) => "the room that was given up is free",
        };
        // One that came up meanwhile has been noted.
        if volumes.doubted().is_none() {
            let cause = "the array goes on";
            self.note("volume_change_in_doubt", cause, effect.to_owned());
        }
        Ok(())
    }
}
