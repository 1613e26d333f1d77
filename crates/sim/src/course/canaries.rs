//! Which worlds can meet a planted bug.
//!
//! Invariant: a bug that only a course leads to is looked for there alone.

use strake_engine::canary as engine;
use strake_format::WriteHole;

use crate::canary::Canary;
use crate::course::Course;
use crate::plan::{Action, End, Plan};

impl Canary {
    /// Whether a world of this plan can be expected to meet it, as far as that is told for rare
    /// ones: in others it would only be looked for.
    pub fn may_be_met(self, plan: &Plan) -> bool {
        let cut_off = || plan.lives.iter().any(|life| life.end != End::Stop);
        let does = |what: Action| {
            let mut lives = plan.lives.iter();
            lives.any(|life| life.actions.iter().any(|(_, action)| *action == what))
        };
        let logs = plan.write_hole != WriteHole::Resync;
        if let Canary::Inside(inside) = self
            && let Some(course) = course_for(inside)
        {
            return Course::of(plan.seed) == Some(course);
        }
        match self {
            Canary::Inside(engine::Canary::ReplayTrustsRest | engine::Canary::SourcesUnchecked) => {
                plan.decays
            }
            Canary::Inside(
                engine::Canary::TableBeforeDurable
                | engine::Canary::VolumeNotZeroed
                | engine::Canary::VolumeTailKept
                | engine::Canary::VolumeDiscardedEarly,
            ) => plan.volumes && Course::of(plan.seed).is_none(),
            Canary::Inside(engine::Canary::FoldedUnclean) => logs && does(Action::Strip),
            Canary::Inside(engine::Canary::ForceForEver) => plan.beyond.is_some(),
            Canary::Inside(engine::Canary::RegionNotRetired) => logs && cut_off(),
            Canary::Inside(engine::Canary::JoinsWithoutBase) => logs && cut_off(),
            Canary::Inside(engine::Canary::HedgeTrustsAnyParity) => {
                plan.write_hole != WriteHole::Closed && plan.hedging.one_in == 1 && cut_off()
            }
            _ => true,
        }
    }
}

/// The course that leads to a bug which other seeds hardly ever meet.
fn course_for(canary: engine::Canary) -> Option<Course> {
    match canary {
        engine::Canary::FlushAnsweredEarly => Some(Course::FailedFlush),
        engine::Canary::UnlistedUndurably => Some(Course::Listed),
        engine::Canary::ListUndurable => Some(Course::Listed),
        engine::Canary::ListWithoutLimit => Some(Course::FullList),
        engine::Canary::ListRoomForgotten => Some(Course::FullList),
        engine::Canary::ReturnsUnwitnessed => Some(Course::LongAway),
        engine::Canary::CleanNotBehind => Some(Course::LostWhileAway),
        engine::Canary::OlderMapReturns => Some(Course::LiveImage),
        engine::Canary::RebuiltGetNoRecords => Some(Course::JoinsUnderWrites),
        engine::Canary::StopKeepsBase => Some(Course::BaseUnderWay),
        engine::Canary::CopyOnOneMember => Some(Course::CutWindow),
        engine::Canary::ResumedNotSpread => Some(Course::CutWindow),
        engine::Canary::CopyOfAnyBase => Some(Course::WindowAgain),
        engine::Canary::FirstWaveGoesOn => Some(Course::LostAsOneJoins),
        engine::Canary::LossIgnored => Some(Course::LostBeforePlace),
        engine::Canary::PublishedByTooFew => Some(Course::PublishedByOne),
        engine::Canary::RecordsOutlived => Some(Course::GivenUpBeside),
        engine::Canary::RetiredByTooFew => Some(Course::GivenUpBeside),
        engine::Canary::QuietRecordsCount => Some(Course::MendedInQuiet),
        engine::Canary::RestAsItLies => Some(Course::RotsBeside),
        engine::Canary::DecidedEarly => Some(Course::Accepted),
        engine::Canary::AgreementDecides => Some(Course::Accepted),
        engine::Canary::BuiltDecided => Some(Course::Unclear),
        engine::Canary::RunComputed => Some(Course::BadSector),
        engine::Canary::SumsOfBlocks => Some(Course::TornBlock),
        engine::Canary::MixtureLeft => Some(Course::SyndromesRot),
        engine::Canary::SyndromesApart => Some(Course::Unchanged),
        engine::Canary::UnchangedIsBegun => Some(Course::Unchanged),
        engine::Canary::GivenUpUnread => Some(Course::Unread),
        engine::Canary::JoinsWithoutMap => Some(Course::JoinsEmpty),
        _ => None,
    }
}
