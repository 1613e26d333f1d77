//! Planted bugs: the simulator must find each of them within its budget of seeds.
//!
//! A canary that is not found means that the simulator has gone blind. Most are planted in the
//! simulated environment, between the engine and its devices or its user; those that cannot be
//! imitated there are hooks inside the engine (`strake_engine::canary`).
//!
//! Invariant: the product's code carries no switch for any of this: the hooks are compiled in for
//! the simulator alone.
//!
//! Deliberately absent: bugs that real devices have and the engine must survive (`drive::overlay`).

use strake_engine::canary as engine;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Some parity writes are reported done and never happen.
    ParityDropped,
    /// Some data writes are reported done and never happen.
    DataDropped,
    /// No flush reaches a device.
    FlushSwallowed,
    /// No write carries FUA.
    FuaStripped,
    /// A change is answered before any member has it.
    AnswersEarly,
    /// A superblock with a new epoch is not written.
    EpochDropped,
    /// Every third version of the region map is not written.
    MapDropped,
    /// Some data writes land on another member.
    Misdirected,
    /// What is reconstructed reads as zeros.
    ReconstructZeros,
    /// A stale member is shown to the engine as current.
    StaleBelieved,
    /// Some writes to a member that is being rebuilt are lost.
    RebuildSkipped,
    /// A new region is not zeroed.
    ZeroingSkipped,
    /// The engine is told that no device has a volatile cache.
    CacheHidden,
    /// The older version of each region map page is shown to the engine.
    OldMapShown,
    /// Region map pages are shown to the engine whatever their checksums say.
    DamagedMapShown,
    /// Some reads return another strip.
    Misread,
    /// Planted inside the engine.
    Inside(engine::Canary),
    /// No list that names unreadable blocks is written.
    ListDropped,
    /// The older version of each list of unreadable blocks is shown to the engine.
    OldListShown,
    /// A write that failed on its way is answered as done, and is tried again after that.
    AnsweredUntried,
    /// What failed on its way is tried again on a device with a volatile cache, too, as if a reset
    /// could not have cost what that held.
    CacheTrusted,
    /// A member that did not answer in time is taken back while I/Os of that time are still to
    /// land.
    ReturnsBusy,
    /// An error of a device that is being removed is believed at once.
    VerdictAtOnce,
}

impl Canary {
    /// Every canary, with the seeds within which it must be found.
    pub const ALL: [(Canary, u64); 137] = [
        (Canary::ParityDropped, 10),
        (Canary::DataDropped, 15),
        (Canary::FlushSwallowed, 40),
        (Canary::FuaStripped, 250),
        (Canary::AnswersEarly, 20),
        (Canary::EpochDropped, 200),
        (Canary::MapDropped, 60),
        (Canary::Misdirected, 10),
        (Canary::ReconstructZeros, 10),
        (Canary::StaleBelieved, 60),
        (Canary::RebuildSkipped, 20),
        (Canary::ZeroingSkipped, 10),
        (Canary::CacheHidden, 40),
        (Canary::OldMapShown, 100),
        (Canary::DamagedMapShown, 3000),
        (Canary::Misread, 15),
        (Canary::Inside(engine::Canary::NoStripeOrder), 20),
        (Canary::Inside(engine::Canary::DirtyAfterWrite), 1500),
        (Canary::Inside(engine::Canary::WritesEarly), 4000),
        (Canary::Inside(engine::Canary::KeepsEarlyReads), 6000),
        (Canary::Inside(engine::Canary::ViewBeforeDurable), 20000),
        (Canary::Inside(engine::Canary::QCoefficientOff), 80),
        (Canary::Inside(engine::Canary::ResyncSkipsRows), 60),
        (Canary::Inside(engine::Canary::CheckpointWithoutFlush), 300),
        (Canary::Inside(engine::Canary::CheckpointCountsOn), 6000),
        (Canary::Inside(engine::Canary::StepsOutOfOrder), 8000),
        (Canary::Inside(engine::Canary::CleanWithoutFlush), 100),
        (Canary::Inside(engine::Canary::SettlesWithOthers), 1500),
        (
            Canary::Inside(engine::Canary::ParityTrustedInNeedSync),
            8000,
        ),
        (Canary::Inside(engine::Canary::DiscardForgetsParity), 30),
        (Canary::Inside(engine::Canary::GatherDropsOrder), 150),
        (Canary::Inside(engine::Canary::RebuiltTooFar), 400),
        (Canary::Inside(engine::Canary::InitCutShort), 200),
        (Canary::Inside(engine::Canary::InitForgetsAbsent), 100),
        (Canary::Inside(engine::Canary::BehindNotSet), 150),
        (Canary::Inside(engine::Canary::AbsenceNotNoted), 1000),
        (Canary::Inside(engine::Canary::StaleMapTrusted), 3000),
        (Canary::Inside(engine::Canary::KeptTooSoon), 20000),
        (Canary::Inside(engine::Canary::ScrubRewritesParity), 300),
        (Canary::ListDropped, 2500),
        (Canary::OldListShown, 800),
        (Canary::AnsweredUntried, 3000),
        (Canary::CacheTrusted, 10000),
        (Canary::ReturnsBusy, 6000),
        (Canary::VerdictAtOnce, 100),
        (Canary::Inside(engine::Canary::NoLog), 60),
        (Canary::Inside(engine::Canary::NoFlushAfterLog), 6000),
        (Canary::Inside(engine::Canary::IntentOnOneMember), 500),
        (Canary::Inside(engine::Canary::RetiredBeforeFlush), 500),
        (Canary::Inside(engine::Canary::NeighbourAnswers), 100),
        (Canary::Inside(engine::Canary::NeighbourFails), 2000),
        (Canary::Inside(engine::Canary::InPlaceUnread), 100),
        (Canary::Inside(engine::Canary::HedgeInPlace), 100),
        (Canary::Inside(engine::Canary::MixtureReturned), 4000),
        (Canary::Inside(engine::Canary::RegionNotRetired), 60000),
        (Canary::Inside(engine::Canary::CoveredWithoutFlush), 12000),
        (Canary::Inside(engine::Canary::SumsOfBlocks), 6000),
        (Canary::Inside(engine::Canary::SyndromeForgotten), 400),
        (Canary::Inside(engine::Canary::LostStripForgotten), 8000),
        (Canary::Inside(engine::Canary::MixtureLeft), 6000),
        (Canary::Inside(engine::Canary::SyndromesApart), 60000),
        (Canary::Inside(engine::Canary::UnchangedIsBegun), 12000),
        (Canary::Inside(engine::Canary::GivenUpUnread), 6000),
        (Canary::Inside(engine::Canary::ReplayedTooEarly), 12000),
        (Canary::Inside(engine::Canary::LogWrittenOver), 20000),
        (Canary::Inside(engine::Canary::FailedAcknowledges), 300),
        (Canary::Inside(engine::Canary::ZerosBeyond), 12000),
        (Canary::Inside(engine::Canary::ForceBelievesStale), 2000),
        (Canary::Inside(engine::Canary::ForceForEver), 100000),
        (Canary::Inside(engine::Canary::GoesOnBeyond), 300),
        (Canary::Inside(engine::Canary::JoinsWithoutBase), 60000),
        (Canary::Inside(engine::Canary::JoinsWithoutMap), 6000),
        (
            Canary::Inside(engine::Canary::SyndromeBesideUntouched),
            12000,
        ),
        (Canary::Inside(engine::Canary::HedgeOutOfOrder), 600),
        (Canary::Inside(engine::Canary::ViewBeforeHome), 3000),
        (Canary::Inside(engine::Canary::VisitsWhileMoving), 3000),
        (Canary::Inside(engine::Canary::VisitorIgnoresRegion), 3000),
        (Canary::Inside(engine::Canary::VisitorIgnoresList), 3000),
        (Canary::Inside(engine::Canary::LateReadAnswers), 100),
        (Canary::Inside(engine::Canary::HedgeTrustsAnyParity), 30000),
        (Canary::Inside(engine::Canary::GrownRegionNotZeroed), 1500),
        (Canary::Inside(engine::Canary::ShapeBeforeMap), 24000),
        (Canary::Inside(engine::Canary::ShownTooSoon), 2000),
        (Canary::Inside(engine::Canary::EmptyForEver), 500),
        (Canary::Inside(engine::Canary::FoldedUnclean), 60000),
        (Canary::Inside(engine::Canary::FrontierBeforeRows), 3000),
        (Canary::Inside(engine::Canary::RowsOfOneShape), 600),
        (Canary::Inside(engine::Canary::LoweringForgotten), 400),
        (Canary::Inside(engine::Canary::MirrorStaysCovered), 12000),
        (Canary::Inside(engine::Canary::MovedWithoutCopy), 6000),
        (Canary::Inside(engine::Canary::CopyOnOneMember), 40000),
        (Canary::Inside(engine::Canary::NewcomerHearsEarly), 1000),
        (Canary::Inside(engine::Canary::NotSplitAnew), 6000),
        (Canary::Inside(engine::Canary::FlushAnsweredEarly), 80000),
        (Canary::Inside(engine::Canary::UnlistedUndurably), 20000),
        (Canary::Inside(engine::Canary::ListUndurable), 40000),
        (Canary::Inside(engine::Canary::ListWithoutLimit), 6000),
        (Canary::Inside(engine::Canary::ListRoomForgotten), 20000),
        (Canary::Inside(engine::Canary::ReturnsUnwitnessed), 20000),
        (Canary::Inside(engine::Canary::ApartIsAfresh), 6000),
        (Canary::Inside(engine::Canary::CleanNotBehind), 6000),
        (Canary::Inside(engine::Canary::ReplayTrustsRest), 30000),
        (Canary::Inside(engine::Canary::SourcesUnchecked), 6000),
        (Canary::Inside(engine::Canary::RunComputed), 6000),
        (Canary::Inside(engine::Canary::StandstillCounts), 200),
        (Canary::Inside(engine::Canary::VerdictsOfOneMoment), 200),
        (Canary::Inside(engine::Canary::PastIgnored), 100),
        (Canary::Inside(engine::Canary::SessionsUnnamed), 3000),
        (Canary::Inside(engine::Canary::OlderMapReturns), 20000),
        (Canary::Inside(engine::Canary::EmptiedBelieved), 100),
        (Canary::Inside(engine::Canary::EmptiedKept), 6000),
        (Canary::Inside(engine::Canary::CopiesUnread), 2000),
        (Canary::Inside(engine::Canary::DoubtForgotten), 6000),
        (Canary::Inside(engine::Canary::DoubtedIsSource), 8000),
        (Canary::Inside(engine::Canary::AgreementDecides), 8000),
        (Canary::Inside(engine::Canary::ServesUnsealed), 300),
        (Canary::Inside(engine::Canary::RebuiltGetNoRecords), 20000),
        (Canary::Inside(engine::Canary::StopKeepsBase), 80000),
        (Canary::Inside(engine::Canary::ResumedNotSpread), 60000),
        (Canary::Inside(engine::Canary::CopyOfAnyBase), 80000),
        (Canary::Inside(engine::Canary::FirstWaveGoesOn), 30000),
        (Canary::Inside(engine::Canary::LossIgnored), 80000),
        (Canary::Inside(engine::Canary::PublishedByTooFew), 40000),
        (Canary::Inside(engine::Canary::RecordsOutlived), 20000),
        (Canary::Inside(engine::Canary::NeverRetired), 10),
        (Canary::Inside(engine::Canary::RetiredByTooFew), 80000),
        (Canary::Inside(engine::Canary::QuietRecordsCount), 20000),
        (Canary::Inside(engine::Canary::RestAsItLies), 20000),
        (Canary::Inside(engine::Canary::ResyncOutdates), 6000),
        (Canary::Inside(engine::Canary::ResyncDecides), 6000),
        (Canary::Inside(engine::Canary::ReadsDecide), 6000),
        (Canary::Inside(engine::Canary::DecidedEarly), 8000),
        (Canary::Inside(engine::Canary::BuiltDecided), 6000),
        (Canary::Inside(engine::Canary::TableBeforeDurable), 20000),
        (Canary::Inside(engine::Canary::VolumeNotZeroed), 10000),
        (Canary::Inside(engine::Canary::VolumeTailKept), 3000),
        (Canary::Inside(engine::Canary::VolumeDiscardedEarly), 10000),
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Canary::ParityDropped => "parity-dropped",
            Canary::DataDropped => "data-dropped",
            Canary::FlushSwallowed => "flush-swallowed",
            Canary::FuaStripped => "fua-stripped",
            Canary::AnswersEarly => "answers-early",
            Canary::EpochDropped => "epoch-dropped",
            Canary::MapDropped => "map-dropped",
            Canary::Misdirected => "misdirected",
            Canary::ReconstructZeros => "reconstruct-zeros",
            Canary::StaleBelieved => "stale-believed",
            Canary::RebuildSkipped => "rebuild-skipped",
            Canary::ZeroingSkipped => "zeroing-skipped",
            Canary::CacheHidden => "cache-hidden",
            Canary::OldMapShown => "old-map-shown",
            Canary::DamagedMapShown => "damaged-map-shown",
            Canary::Misread => "misread",
            Canary::ListDropped => "list-dropped",
            Canary::OldListShown => "old-list-shown",
            Canary::AnsweredUntried => "answered-untried",
            Canary::CacheTrusted => "cache-trusted",
            Canary::ReturnsBusy => "returns-busy",
            Canary::VerdictAtOnce => "verdict-at-once",
            Canary::Inside(canary) => canary.name(),
        }
    }
    /// What is to be planted inside the engine.
    pub fn inside(self) -> Option<engine::Canary> {
        match self {
            Canary::Inside(canary) => Some(canary),
            _ => None,
        }
    }
    /// The canary with this name.
    pub fn parse(name: &str) -> Option<Canary> {
        Canary::ALL
            .into_iter()
            .map(|(canary, _)| canary)
            .find(|canary| canary.name() == name)
    }
}
