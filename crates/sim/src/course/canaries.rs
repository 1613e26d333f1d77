//! Which worlds can meet a planted bug.
//!
//! Invariant: a bug that only a course leads to is looked for there alone.

use strake_engine::canary as engine;
use strake_format::WriteHole;

use crate::canary::Canary;
use crate::course::Course;
use crate::plan::disaster::Disaster;
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
            Canary::Inside(engine::Canary::SessionsUnnamed) => {
                plan.beyond == Some(Disaster::Parted)
            }
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
        engine::Canary::DoubtForgotten => Some(Course::Doubted),
        engine::Canary::DoubtedIsSource => Some(Course::Doubted),
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
        engine::Canary::ResyncOutdates => Some(Course::Outdated),
        engine::Canary::ResyncDecides => Some(Course::Restored),
        engine::Canary::ReadsDecide => Some(Course::Restored),
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

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../CANARIES.md");

    /// Cells of a table's row.
    fn cells(line: &str) -> Option<Vec<&str>> {
        let inner = line.strip_prefix("| ")?.strip_suffix(" |")?;
        Some(inner.split(" | ").collect())
    }

    /// The rows of all tables that are about canaries: the name, the course if the table has any,
    /// and the budget.
    fn documented() -> Vec<(&'static str, Option<&'static str>, &'static str)> {
        let (mut header, mut rows) = (Vec::new(), Vec::new());
        for line in DOCUMENT.lines() {
            match cells(line) {
                None if !line.starts_with('|') => header.clear(),
                None => {}
                Some(first) if header.is_empty() => header = first,
                Some(row) if header[0] == "canary" => {
                    assert_eq!(row.len(), header.len(), "{line}");
                    let at = header.iter().position(|name| *name == "course");
                    rows.push((row[0], at.map(|at| row[at]), row[row.len() - 1]));
                }
                Some(_) => {}
            }
        }
        rows
    }

    #[test]
    fn the_document_names_every_canary_once_with_its_course_and_its_budget() {
        let mut rows = documented();
        for (canary, budget) in Canary::ALL {
            let at = rows.iter().position(|row| row.0 == canary.name());
            let at = at.unwrap_or_else(|| panic!("CANARIES.md lacks {}", canary.name()));
            let (name, course, seeds) = rows.swap_remove(at);
            assert_eq!(seeds, budget.to_string(), "the budget of {name}");
            let leads = canary.inside().and_then(course_for);
            let documented = course.map(|course| Course::parse(course).expect("a course"));
            assert_eq!(documented, leads, "the course of {name}");
        }
        assert_eq!(rows, [], "no such canaries, or twice");
    }
}
