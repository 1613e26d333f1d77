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

macro_rules! canaries {
    ($($(#[$doc:meta])* $canary:ident = $name:literal,)+) => {
        /// A bug that can be planted inside the engine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Canary {
            $($(#[$doc])* $canary,)+
        }

        impl Canary {
            /// Every one of them.
            pub const ALL: &'static [Canary] = &[$(Canary::$canary,)+];

            /// Its name on the simulator's command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Canary::$canary => $name,)+
                }
            }
        }
    };
}

canaries! {
    /// An array serves before it is durable that every member has a superblock of this start, and
    /// has stopped before the same of the stop.
    ServesUnsealed = "serves-unsealed",
    /// What members are known to have does not count.
    PastIgnored = "past-ignored",
    /// Superblocks do not say which session wrote them.
    SessionsUnnamed = "sessions-unnamed",
    /// A member that was away comes back in part whatever its region map shows.
    OlderMapReturns = "older-map-returns",
    /// A member that has lost a copy of its superblock is believed as if it had been torn.
    EmptiedBelieved = "emptied-believed",
    /// A member that lost its content while it served counts as one that holds valid data.
    EmptiedKept = "emptied-kept",
    /// Superblocks are written over what was not read before.
    CopiesUnread = "copies-unread",
    /// A place of a member that is doubted shows nothing against it where one read of it failed.
    DoubtForgotten = "doubt-forgotten",
    /// Jobs compute from a member that is doubted.
    DoubtedIsSource = "doubted-is-source",
    /// A region in which strips were built is decided where a scrub finds that they agree.
    AgreementDecides = "agreement-decides",
    /// Superblocks tell of a new frontier before the rows are durable in the new shape.
    FrontierBeforeRows = "frontier-before-rows",
    /// A window of data that moves over itself is not copied first.
    MovedWithoutCopy = "moved-without-copy",
    /// One member alone has the copy.
    CopyOnOneMember = "copy-on-one-member",
    /// A move from parities that go is over before they are gone.
    LoweringForgotten = "lowering-forgotten",
    /// An array that becomes a mirror goes on to say that the log covers its writes.
    MirrorStaysCovered = "mirror-stays-covered",
    /// Stripes of rows that have fewer groups than numbers are counted as if they had all.
    RowsOfOneShape = "rows-of-one-shape",
    /// A device that joins gets the table with the first wave.
    NewcomerHearsEarly = "newcomer-hears-early",
    /// Requests that waited for another shape stay where they were sent by the one before.
    NotSplitAnew = "request-not-split-anew",
    /// Overlapping operations on one stripe run at the same time.
    NoStripeOrder = "no-stripe-order",
    /// A write starts before its region's Dirty page is durable.
    DirtyAfterWrite = "dirty-after-write",
    /// A write that has read before its region is open does not wait for that any more.
    WritesEarly = "writes-early",
    /// It keeps what it read, and its place in the region, although that is to be given back.
    KeepsEarlyReads = "keeps-early-reads",
    /// Views are published before the superblocks are durable everywhere.
    ViewBeforeDurable = "view-before-durable",
    /// Read-modify-write adds to Q with the coefficient of the neighbouring column.
    QCoefficientOff = "q-coefficient-off",
    /// A resync passes over the first row of each region.
    ResyncSkipsRows = "resync-skips-rows",
    /// A rebuild's progress is written down before its target was flushed.
    CheckpointWithoutFlush = "checkpoint-without-flush",
    /// What was rebuilt while targets were flushed counts as flushed.
    CheckpointCountsOn = "checkpoint-counts-on",
    /// A rebuild's steps count before those that began before them.
    StepsOutOfOrder = "steps-out-of-order",
    /// A region becomes Clean before the members flushed.
    CleanWithoutFlush = "clean-without-flush",
    /// A region becomes Clean with flushes that began before it was closed.
    SettlesWithOthers = "settles-with-others",
    /// Reads and writes build on parity that waits for its resync.
    ParityTrustedInNeedSync = "parity-trusted-in-need-sync",
    /// A stripe that is zeroed keeps its old parity.
    DiscardForgetsParity = "discard-forgets-parity",
    /// A write is gathered past operations that stand before it.
    GatherDropsOrder = "gather-drops-order",
    /// A member that joins during a step is credited with it.
    RebuiltTooFar = "rebuilt-too-far",
    /// Background zeroing takes a region for zero after its first piece.
    InitCutShort = "init-cut-short",
    /// A region that background zeroing makes Clean while a member is out is not marked behind.
    InitForgetsAbsent = "init-forgets-absent",
    /// A region that is opened while a member is out is not marked behind.
    BehindNotSet = "behind-not-set",
    /// A member that leaves marks no region behind.
    AbsenceNotNoted = "absence-not-noted",
    /// A start that does not find the array whole believes in the flags of Dirty regions.
    StaleMapTrusted = "stale-map-trusted",
    /// A member that comes back is believed in regions that are not quiet.
    KeptTooSoon = "kept-too-soon",
    /// A scrub that repairs makes parity agree with the data, whichever strip is corrupt.
    ScrubRewritesParity = "scrub-rewrites-parity-blindly",
    /// Writes go in place without a record, although superblocks say otherwise.
    NoLog = "no-log",
    /// Records are not durable when the write goes in place.
    NoFlushAfterLog = "no-flush-after-log",
    /// One member alone holds the records of a write.
    IntentOnOneMember = "intent-on-one-member",
    /// A record counts as retired before what it tells of is durable in place.
    RetiredBeforeFlush = "retired-before-flush",
    /// Reads that are computed together all get the first one's bytes.
    NeighbourAnswers = "neighbour-answers",
    /// What makes one of them unreadable is told to all.
    NeighbourFails = "neighbour-fails",
    /// A read in its user's place that failed counts as done.
    InPlaceUnread = "in-place-unread",
    /// A late read is hedged although its member may still fill its user's place.
    HedgeInPlace = "hedge-in-place",
    /// Blocks of a write half of which is in place are computed from whatever lies there.
    MixtureReturned = "mixture-returned",
    /// A write half of which is in place is left so where what it leaves alone cannot be computed.
    MixtureLeft = "mixture-left",
    /// Each partial syndrome is on the member of its parity alone.
    SyndromesApart = "syndromes-apart",
    /// No record says that a write leaves a block as it is.
    UnchangedIsBegun = "unchanged-is-begun",
    /// A recovery gives up what it could not read once.
    GivenUpUnread = "given-up-unread",
    /// A recovery writes in place before its records are on every live member.
    ReplayedTooEarly = "replayed-too-early",
    /// Records are written over although their operation is at work, or others do not know yet that
    /// it is over.
    LogWrittenOver = "log-written-over",
    /// A region is given back while records of it still count.
    RegionNotRetired = "region-not-retired",
    /// Superblocks say that the log covers everything while writes without records are in caches.
    CoveredWithoutFlush = "covered-without-flush",
    /// Records have checksums of blocks alone, also where members have smaller sectors.
    SumsOfBlocks = "sums-of-blocks",
    /// Records hold no partial syndromes.
    SyndromeForgotten = "syndrome-forgotten",
    /// Records do not hold the new content of strips that have no member.
    LostStripForgotten = "lost-strip-forgotten",
    /// What a growth adds to the last region is not zeroed.
    GrownRegionNotZeroed = "grown-region-not-zeroed",
    /// Superblocks tell of places of the region map before anything lies there.
    ShapeBeforeMap = "shape-before-map",
    /// A member is called in sync while records from before it was away may count.
    JoinsWithoutBase = "joins-without-base",
    /// A member is called in sync before it has the region map.
    JoinsWithoutMap = "joins-without-map",
    /// An array that has failed acknowledges writes.
    FailedAcknowledges = "failed-acknowledges",
    /// Reads that too few members are left for answer zeros.
    ZerosBeyond = "zeros-beyond",
    /// A start by force believes members that missed writes.
    ForceBelievesStale = "force-believes-stale",
    /// A start by force believes parity also for members that are lost later.
    ForceForEver = "force-for-ever",
    /// A member that is one too many is written down as out, and the array goes on.
    GoesOnBeyond = "goes-on-beyond",
    /// A partial syndrome lies on the member of a column that only a part of the run writes.
    SyndromeBesideUntouched = "syndrome-beside-untouched",
    /// A read that is late is asked of the others at once, whatever is being written there.
    HedgeOutOfOrder = "hedge-out-of-order",
    /// Views are published, and lists told, while shards read stripes of others by the one before.
    ViewBeforeHome = "view-before-home",
    /// Shards read stripes of others while data moves.
    VisitsWhileMoving = "visits-while-moving",
    /// A remote read does not check the state of the stripe's region.
    VisitorIgnoresRegion = "visitor-ignores-region",
    /// A remote read does not check which blocks are unreadable.
    VisitorIgnoresList = "visitor-ignores-list",
    /// What comes in after the others have answered is an answer, too.
    LateReadAnswers = "late-read-answers",
    /// A hedge is computed from parity that waits for its resync.
    HedgeTrustsAnyParity = "hedge-trusts-any-parity",
    /// A member is shown in sync before the superblocks that say so are durable.
    ShownTooSoon = "shown-too-soon",
    /// A region that was zeroed in parts counts as empty although it was written since.
    EmptyForEver = "empty-for-ever",
    /// Bands become rows although records of the log count rows.
    FoldedUnclean = "folded-unclean",
    /// A flush that failed is answered before the member that failed it is out.
    FlushAnsweredEarly = "flush-answered-early",
    /// What is written over unreadable blocks is not durable when they leave the list.
    UnlistedUndurably = "unlisted-undurably",
    /// The list of unreadable blocks is not durable when it counts.
    ListUndurable = "list-undurable",
    /// The list of unreadable blocks is given more ranges than it has room for.
    ListWithoutLimit = "list-without-limit",
    /// The list of unreadable blocks forgets what it keeps room for: each write and discard is told
    /// that there is some.
    ListRoomForgotten = "list-room-forgotten",
    /// A member is kept although its superblock is older than all editions that are remembered.
    ReturnsUnwitnessed = "returns-unwitnessed",
    /// A member that served on while the array was started from older images of the others is said
    /// to hold nothing that counts.
    ApartIsAfresh = "apart-is-afresh",
    /// A Clean region in which blocks are given up is not marked behind.
    CleanNotBehind = "clean-not-behind",
    /// A replay computes parities from what lies in the columns that a write left alone.
    ReplayTrustsRest = "replay-trusts-rest",
    /// What a member is rebuilt from is not checked against the redundancy that is left.
    SourcesUnchecked = "sources-unchecked",
    /// Time in which a thread stood still counts against members.
    StandstillCounts = "standstill-counts",
    /// Every member that is late is given up, however many are late at one moment.
    VerdictsOfOneMoment = "verdicts-of-one-moment",
    /// Members that are being rebuilt get no records.
    RebuiltGetNoRecords = "rebuilt-get-no-records",
    /// A clean stop does not note how far numbers were used.
    StopKeepsBase = "stop-keeps-base",
    /// The copy of a window that is written again stays on the members that had it.
    ResumedNotSpread = "resumed-not-spread",
    /// The copy of a window is believed whatever its base.
    CopyOfAnyBase = "copy-of-any-base",
    /// A table that calls a member in sync goes to newcomers although that member left before it
    /// had it.
    FirstWaveGoesOn = "first-wave-goes-on",
    /// A write goes in place by records that were made when a column had a member which left
    /// meanwhile.
    LossIgnored = "loss-ignored",
    /// Records are written over when one member too few has published that they are retired.
    PublishedByTooFew = "published-by-too-few",
    /// What has no record changes in place while records count that tell of what lay there.
    RecordsOutlived = "records-outlived",
    /// Records never count as retired for what waits for that.
    NeverRetired = "never-retired",
    /// They do when one member too few has published it.
    RetiredByTooFew = "retired-by-too-few",
    /// Records count in regions in which nothing is under way, too.
    QuietRecordsCount = "quiet-records-count",
    /// What a write leaves alone adds to parity what lies there, whatever the records say.
    RestAsItLies = "rest-as-it-lies",
    /// A resync changes parity beside records of writes that took it for true.
    ResyncOutdates = "resync-outdates",
    /// A resync computes parity anew where strips of an undecided region do not agree.
    ResyncDecides = "resync-decides",
    /// A read of a mirror makes copies of an undecided region equal.
    ReadsDecide = "reads-decide",
    /// A region is called decided before its parity is durable.
    DecidedEarly = "decided-early",
    /// What is computed from strips that do not agree is written in a region that is decided.
    BuiltDecided = "built-decided",
    /// Of a column of which a sector cannot be read all of the run is computed.
    RunComputed = "run-computed",
    /// A table of volumes counts before it is durable.
    TableBeforeDurable = "table-before-durable",
    /// What a volume is given is not zeroed before a table names it.
    VolumeNotZeroed = "volume-not-zeroed",
    /// What lies behind the end of a volume that shrank stays.
    VolumeTailKept = "volume-tail-kept",
    /// What volumes give up is discarded before the table without it is durable.
    VolumeDiscardedEarly = "volume-discarded-early",
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
