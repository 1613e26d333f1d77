//! Planted bugs: places where the simulator may break the engine on purpose, to show that it would
//! notice.
//!
//! Only the simulator turns the feature `canary` on (`cargo xtask tidy` holds that). Without it,
//! [`hit`] is the constant `false` and the compiler takes the planted bugs out.
//!
//! Invariant: nothing is planted unless [`plant`] was called on this thread, and one thread's bug
//! is never another's: a world that runs beside it stays deterministic.
//!
//! Deliberately absent: bugs that can be planted from outside, between the engine and its devices;
//! those are the simulator's own.

/// A bug that can be planted inside the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// An array serves before it is durable that every member has a superblock of this start, and
    /// has stopped before the same of the stop.
    ServesUnsealed,
    /// What members are known to have does not count.
    PastIgnored,
    /// A member that was away comes back in part whatever its region map shows.
    OlderMapReturns,
    /// A member that has lost a copy of its superblock is believed as if it had been torn.
    EmptiedBelieved,
    /// A member that lost its content while it served counts as one that holds valid data.
    EmptiedKept,
    /// A region in which strips were built is decided where a scrub finds that they agree.
    AgreementDecides,
    /// Superblocks tell of a new frontier before the rows are durable in the new shape.
    FrontierBeforeRows,
    /// A window of data that moves over itself is not copied first.
    MovedWithoutCopy,
    /// One member alone has the copy.
    CopyOnOneMember,
    /// A move from parities that go is over before they are gone.
    LoweringForgotten,
    /// An array that becomes a mirror goes on to say that the log covers its writes.
    MirrorStaysCovered,
    /// Stripes of rows that have fewer groups than numbers are counted as if they had all.
    RowsOfOneShape,
    /// A device that joins gets the table with the first wave.
    NewcomerHearsEarly,
    /// Requests that waited for another shape stay where they were sent by the one before.
    NotSplitAnew,
    /// Overlapping operations on one stripe run at the same time.
    NoStripeOrder,
    /// A write starts before its region's Dirty page is durable.
    DirtyAfterWrite,
    /// A write that has read before its region is open does not wait for that any more.
    WritesEarly,
    /// It keeps what it read, and its place in the region, although that is to be given back.
    KeepsEarlyReads,
    /// Views are published before the superblocks are durable everywhere.
    ViewBeforeDurable,
    /// Read-modify-write adds to Q with the coefficient of the neighbouring column.
    QCoefficientOff,
    /// A resync passes over the first row of each region.
    ResyncSkipsRows,
    /// A rebuild's progress is written down before its target was flushed.
    CheckpointWithoutFlush,
    /// What was rebuilt while targets were flushed counts as flushed.
    CheckpointCountsOn,
    /// A rebuild's steps count before those that began before them.
    StepsOutOfOrder,
    /// A region becomes Clean before the members flushed.
    CleanWithoutFlush,
    /// A region becomes Clean with flushes that began before it was closed.
    SettlesWithOthers,
    /// Reads and writes build on parity that waits for its resync.
    ParityTrustedInNeedSync,
    /// A stripe that is zeroed keeps its old parity.
    DiscardForgetsParity,
    /// A write is gathered past operations that stand before it.
    GatherDropsOrder,
    /// A member that joins during a step is credited with it.
    RebuiltTooFar,
    /// Background zeroing takes a region for zero after its first piece.
    InitCutShort,
    /// A region that background zeroing makes Clean while a member is out is not marked behind.
    InitForgetsAbsent,
    /// A region that is opened while a member is out is not marked behind.
    BehindNotSet,
    /// A member that leaves marks no region behind.
    AbsenceNotNoted,
    /// A start that does not find the array whole believes in the flags of Dirty regions.
    StaleMapTrusted,
    /// A member that comes back is believed in regions that are not quiet.
    KeptTooSoon,
    /// A scrub that repairs makes parity agree with the data, whichever strip is corrupt.
    ScrubRewritesParity,
    /// Writes go in place without a record, although superblocks say otherwise.
    NoLog,
    /// Records are not durable when the write goes in place.
    NoFlushAfterLog,
    /// One member alone holds the records of a write.
    IntentOnOneMember,
    /// A record counts as retired before what it tells of is durable in place.
    RetiredBeforeFlush,
    /// Reads that are computed together all get the first one's bytes.
    NeighbourAnswers,
    /// What makes one of them unreadable is told to all.
    NeighbourFails,
    /// A read in its user's place that failed counts as done.
    InPlaceUnread,
    /// A late read is hedged although its member may still fill its user's place.
    HedgeInPlace,
    /// Blocks of a write half of which is in place are computed from whatever lies there.
    MixtureReturned,
    /// A recovery writes in place before its records are on every live member.
    ReplayedTooEarly,
    /// Records are written over although their operation is at work, or others do not know yet that
    /// it is over.
    LogWrittenOver,
    /// A region is given back while records of it still count.
    RegionNotRetired,
    /// Superblocks say that the log covers everything while writes without records are in caches.
    CoveredWithoutFlush,
    /// Records hold no partial syndromes.
    SyndromeForgotten,
    /// Records do not hold the new content of strips that have no member.
    LostStripForgotten,
    /// What a growth adds to the last region is not zeroed.
    GrownRegionNotZeroed,
    /// Superblocks tell of places of the region map before anything lies there.
    ShapeBeforeMap,
    /// A member is called in sync while records from before it was away may count.
    JoinsWithoutBase,
    /// An array that has failed acknowledges writes.
    FailedAcknowledges,
    /// Reads that too few members are left for answer zeros.
    ZerosBeyond,
    /// A start by force believes members that missed writes.
    ForceBelievesStale,
    /// A start by force believes parity also for members that are lost later.
    ForceForEver,
    /// A member that is one too many is written down as out, and the array goes on.
    GoesOnBeyond,
    /// A partial syndrome lies on the member of a column that only a part of the run writes.
    SyndromeBesideUntouched,
    /// A read that is late is asked of the others at once, whatever is being written there.
    HedgeOutOfOrder,
    /// Views are published, and lists told, while shards read stripes of others by the one before.
    ViewBeforeHome,
    /// Shards read stripes of others while data moves.
    VisitsWhileMoving,
    /// A remote read does not check the state of the stripe's region.
    VisitorIgnoresRegion,
    /// A remote read does not check which blocks are unreadable.
    VisitorIgnoresList,
    /// What comes in after the others have answered is an answer, too.
    LateReadAnswers,
    /// A hedge is computed from parity that waits for its resync.
    HedgeTrustsAnyParity,
    /// A member is shown in sync before the superblocks that say so are durable.
    ShownTooSoon,
    /// A region that was zeroed in parts counts as empty although it was written since.
    EmptyForEver,
    /// Bands become rows although records of the log count rows.
    FoldedUnclean,
    /// A flush that failed is answered before the member that failed it is out.
    FlushAnsweredEarly,
    /// What is written over unreadable blocks is not durable when they leave the list.
    UnlistedUndurably,
    /// The list of unreadable blocks is not durable when it counts.
    ListUndurable,
    /// The list of unreadable blocks is given more ranges than it has room for.
    ListWithoutLimit,
    /// A member is kept although its superblock is older than all editions that are remembered.
    ReturnsUnwitnessed,
    /// A Clean region in which blocks are given up is not marked behind.
    CleanNotBehind,
    /// A replay computes parities from what lies in the columns that a write left alone.
    ReplayTrustsRest,
    /// What a member is rebuilt from is not checked against the redundancy that is left.
    SourcesUnchecked,
    /// Time in which a thread stood still counts against members.
    StandstillCounts,
    /// Every member that is late is given up, however many are late at one moment.
    VerdictsOfOneMoment,
    /// Members that are being rebuilt get no records.
    RebuiltGetNoRecords,
    /// A clean stop does not note how far numbers were used.
    StopKeepsBase,
    /// The copy of a window that is written again stays on the members that had it.
    ResumedNotSpread,
    /// The copy of a window is believed whatever its base.
    CopyOfAnyBase,
    /// A table that calls a member in sync goes to newcomers although that member left before it
    /// had it.
    FirstWaveGoesOn,
    /// A write goes in place by records that were made when a column had a member which left
    /// meanwhile.
    LossIgnored,
    /// Records are written over when one member too few has published that they are retired.
    PublishedByTooFew,
    /// What has no record changes in place while records count that tell of what lay there.
    RecordsOutlived,
    /// Records never count as retired for what waits for that.
    NeverRetired,
    /// They do when one member too few has published it.
    RetiredByTooFew,
    /// Records count in regions in which nothing is under way, too.
    QuietRecordsCount,
    /// What a write leaves alone adds to parity what lies there, whatever the records say.
    RestAsItLies,
    /// A region is called decided before its parity is durable.
    DecidedEarly,
    /// Of a column of which a sector cannot be read all of the run is computed.
    RunComputed,
    /// A table of volumes counts before it is durable.
    TableBeforeDurable,
    /// What a volume is given is not zeroed before a table names it.
    VolumeNotZeroed,
    /// What lies behind the end of a volume that shrank stays.
    VolumeTailKept,
    /// What volumes give up is discarded before the table without it is durable.
    VolumeDiscardedEarly,
}

impl Canary {
    /// Every canary.
    pub const ALL: [Canary; 95] = [
        Canary::ReplayTrustsRest,
        Canary::SourcesUnchecked,
        Canary::NoStripeOrder,
        Canary::DirtyAfterWrite,
        Canary::WritesEarly,
        Canary::KeepsEarlyReads,
        Canary::ViewBeforeDurable,
        Canary::QCoefficientOff,
        Canary::ResyncSkipsRows,
        Canary::CheckpointWithoutFlush,
        Canary::CheckpointCountsOn,
        Canary::StepsOutOfOrder,
        Canary::CleanWithoutFlush,
        Canary::SettlesWithOthers,
        Canary::ParityTrustedInNeedSync,
        Canary::DiscardForgetsParity,
        Canary::GatherDropsOrder,
        Canary::RebuiltTooFar,
        Canary::InitCutShort,
        Canary::InitForgetsAbsent,
        Canary::BehindNotSet,
        Canary::AbsenceNotNoted,
        Canary::StaleMapTrusted,
        Canary::KeptTooSoon,
        Canary::ScrubRewritesParity,
        Canary::NoLog,
        Canary::NoFlushAfterLog,
        Canary::IntentOnOneMember,
        Canary::RetiredBeforeFlush,
        Canary::MixtureReturned,
        Canary::ReplayedTooEarly,
        Canary::LogWrittenOver,
        Canary::RegionNotRetired,
        Canary::CoveredWithoutFlush,
        Canary::SyndromeForgotten,
        Canary::LostStripForgotten,
        Canary::JoinsWithoutBase,
        Canary::FailedAcknowledges,
        Canary::ZerosBeyond,
        Canary::ForceBelievesStale,
        Canary::ForceForEver,
        Canary::GoesOnBeyond,
        Canary::SyndromeBesideUntouched,
        Canary::HedgeOutOfOrder,
        Canary::ViewBeforeHome,
        Canary::VisitsWhileMoving,
        Canary::VisitorIgnoresRegion,
        Canary::VisitorIgnoresList,
        Canary::LateReadAnswers,
        Canary::HedgeTrustsAnyParity,
        Canary::GrownRegionNotZeroed,
        Canary::ShapeBeforeMap,
        Canary::ShownTooSoon,
        Canary::EmptyForEver,
        Canary::FoldedUnclean,
        Canary::FrontierBeforeRows,
        Canary::MovedWithoutCopy,
        Canary::CopyOnOneMember,
        Canary::NewcomerHearsEarly,
        Canary::NotSplitAnew,
        Canary::RowsOfOneShape,
        Canary::LoweringForgotten,
        Canary::MirrorStaysCovered,
        Canary::FlushAnsweredEarly,
        Canary::UnlistedUndurably,
        Canary::ListUndurable,
        Canary::ListWithoutLimit,
        Canary::ReturnsUnwitnessed,
        Canary::CleanNotBehind,
        Canary::StandstillCounts,
        Canary::VerdictsOfOneMoment,
        Canary::ServesUnsealed,
        Canary::PastIgnored,
        Canary::OlderMapReturns,
        Canary::EmptiedBelieved,
        Canary::EmptiedKept,
        Canary::AgreementDecides,
        Canary::RebuiltGetNoRecords,
        Canary::StopKeepsBase,
        Canary::ResumedNotSpread,
        Canary::CopyOfAnyBase,
        Canary::FirstWaveGoesOn,
        Canary::LossIgnored,
        Canary::PublishedByTooFew,
        Canary::RecordsOutlived,
        Canary::NeverRetired,
        Canary::RetiredByTooFew,
        Canary::QuietRecordsCount,
        Canary::RestAsItLies,
        Canary::DecidedEarly,
        Canary::RunComputed,
        Canary::TableBeforeDurable,
        Canary::VolumeNotZeroed,
        Canary::VolumeTailKept,
        Canary::VolumeDiscardedEarly,
    ];

    /// Its name on the simulator's command line.
    pub fn name(self) -> &'static str {
        match self {
            Canary::MirrorStaysCovered => "mirror-stays-covered",
            Canary::LoweringForgotten => "lowering-forgotten",
            Canary::RowsOfOneShape => "rows-of-one-shape",
            Canary::FrontierBeforeRows => "frontier-before-rows",
            Canary::MovedWithoutCopy => "moved-without-copy",
            Canary::CopyOnOneMember => "copy-on-one-member",
            Canary::NewcomerHearsEarly => "newcomer-hears-early",
            Canary::NotSplitAnew => "request-not-split-anew",
            Canary::NoStripeOrder => "no-stripe-order",
            Canary::DirtyAfterWrite => "dirty-after-write",
            Canary::WritesEarly => "writes-early",
            Canary::KeepsEarlyReads => "keeps-early-reads",
            Canary::ViewBeforeDurable => "view-before-durable",
            Canary::QCoefficientOff => "q-coefficient-off",
            Canary::ResyncSkipsRows => "resync-skips-rows",
            Canary::CheckpointWithoutFlush => "checkpoint-without-flush",
            Canary::CheckpointCountsOn => "checkpoint-counts-on",
            Canary::StepsOutOfOrder => "steps-out-of-order",
            Canary::CleanWithoutFlush => "clean-without-flush",
            Canary::SettlesWithOthers => "settles-with-others",
            Canary::ParityTrustedInNeedSync => "parity-trusted-in-need-sync",
            Canary::DiscardForgetsParity => "discard-forgets-parity",
            Canary::GatherDropsOrder => "gather-drops-order",
            Canary::RebuiltTooFar => "rebuilt-too-far",
            Canary::InitCutShort => "init-cut-short",
            Canary::InitForgetsAbsent => "init-forgets-absent",
            Canary::BehindNotSet => "behind-not-set",
            Canary::AbsenceNotNoted => "absence-not-noted",
            Canary::StaleMapTrusted => "stale-map-trusted",
            Canary::KeptTooSoon => "kept-too-soon",
            Canary::ScrubRewritesParity => "scrub-rewrites-parity-blindly",
            Canary::NoLog => "no-log",
            Canary::NoFlushAfterLog => "no-flush-after-log",
            Canary::IntentOnOneMember => "intent-on-one-member",
            Canary::RetiredBeforeFlush => "retired-before-flush",
            Canary::NeighbourAnswers => "neighbour-answers",
            Canary::NeighbourFails => "neighbour-fails",
            Canary::InPlaceUnread => "in-place-unread",
            Canary::HedgeInPlace => "hedge-in-place",
            Canary::MixtureReturned => "mixture-returned",
            Canary::ReplayedTooEarly => "replayed-too-early",
            Canary::LogWrittenOver => "log-written-over",
            Canary::RegionNotRetired => "region-not-retired",
            Canary::CoveredWithoutFlush => "covered-without-flush",
            Canary::SyndromeForgotten => "syndrome-forgotten",
            Canary::LostStripForgotten => "lost-strip-forgotten",
            Canary::JoinsWithoutBase => "joins-without-base",
            Canary::GrownRegionNotZeroed => "grown-region-not-zeroed",
            Canary::ShapeBeforeMap => "shape-before-map",
            Canary::FailedAcknowledges => "failed-acknowledges",
            Canary::ZerosBeyond => "zeros-beyond",
            Canary::ForceBelievesStale => "force-believes-stale",
            Canary::ForceForEver => "force-for-ever",
            Canary::GoesOnBeyond => "goes-on-beyond",
            Canary::SyndromeBesideUntouched => "syndrome-beside-untouched",
            Canary::HedgeOutOfOrder => "hedge-out-of-order",
            Canary::ViewBeforeHome => "view-before-home",
            Canary::VisitsWhileMoving => "visits-while-moving",
            Canary::VisitorIgnoresRegion => "visitor-ignores-region",
            Canary::VisitorIgnoresList => "visitor-ignores-list",
            Canary::LateReadAnswers => "late-read-answers",
            Canary::HedgeTrustsAnyParity => "hedge-trusts-any-parity",
            Canary::ShownTooSoon => "shown-too-soon",
            Canary::EmptyForEver => "empty-for-ever",
            Canary::FoldedUnclean => "folded-unclean",
            Canary::FlushAnsweredEarly => "flush-answered-early",
            Canary::UnlistedUndurably => "unlisted-undurably",
            Canary::ListUndurable => "list-undurable",
            Canary::ListWithoutLimit => "list-without-limit",
            Canary::ReturnsUnwitnessed => "returns-unwitnessed",
            Canary::CleanNotBehind => "clean-not-behind",
            Canary::ReplayTrustsRest => "replay-trusts-rest",
            Canary::SourcesUnchecked => "sources-unchecked",
            Canary::StandstillCounts => "standstill-counts",
            Canary::VerdictsOfOneMoment => "verdicts-of-one-moment",
            Canary::ServesUnsealed => "serves-unsealed",
            Canary::PastIgnored => "past-ignored",
            Canary::OlderMapReturns => "older-map-returns",
            Canary::EmptiedBelieved => "emptied-believed",
            Canary::EmptiedKept => "emptied-kept",
            Canary::AgreementDecides => "agreement-decides",
            Canary::RebuiltGetNoRecords => "rebuilt-get-no-records",
            Canary::StopKeepsBase => "stop-keeps-base",
            Canary::ResumedNotSpread => "resumed-not-spread",
            Canary::CopyOfAnyBase => "copy-of-any-base",
            Canary::FirstWaveGoesOn => "first-wave-goes-on",
            Canary::LossIgnored => "loss-ignored",
            Canary::PublishedByTooFew => "published-by-too-few",
            Canary::RecordsOutlived => "records-outlived",
            Canary::NeverRetired => "never-retired",
            Canary::RetiredByTooFew => "retired-by-too-few",
            Canary::QuietRecordsCount => "quiet-records-count",
            Canary::RestAsItLies => "rest-as-it-lies",
            Canary::DecidedEarly => "decided-early",
            Canary::RunComputed => "run-computed",
            Canary::TableBeforeDurable => "table-before-durable",
            Canary::VolumeNotZeroed => "volume-not-zeroed",
            Canary::VolumeTailKept => "volume-tail-kept",
            Canary::VolumeDiscardedEarly => "volume-discarded-early",
        }
    }
}

#[cfg(feature = "canary")]
mod planted {
    use super::Canary;
    use std::cell::Cell;

    std::thread_local! {
        static PLANTED: Cell<Option<Canary>> = const { Cell::new(None) };
    }

    /// Plants a bug into every machine that runs on this thread, or takes it out.
    pub fn plant(canary: Option<Canary>) {
        PLANTED.with(|planted| planted.set(canary));
    }

    pub(crate) fn hit(canary: Canary) -> bool {
        PLANTED.with(Cell::get) == Some(canary)
    }
}

#[cfg(feature = "canary")]
pub(crate) use planted::hit;
#[cfg(feature = "canary")]
pub use planted::plant;

/// Is this bug planted here? Never, in the product.
#[cfg(not(feature = "canary"))]
#[inline(always)]
pub(crate) const fn hit(_: Canary) -> bool {
    false
}
