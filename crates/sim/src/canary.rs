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
use strake_engine::event::{IoKind, MemberIo};
use strake_engine::units::Row;
use strake_format::region_map::PAGE_BYTES;
use strake_format::{Layout, MapPage, Slot, Superblock, UnreadableList, WriteHole};

use crate::course::Course;
use crate::plan::workload::AskKind;
use crate::plan::{Action, End, Plan};
use crate::prng::{Prng, Purpose};
use crate::world::World;

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
    /// What failed on its way is tried again on a device with a volatile cache, too, as if a reset could not
    /// have cost what that held.
    CacheTrusted,
    /// A member that did not answer in time is taken back while I/Os of that time are still to land.
    ReturnsBusy,
    /// An error of a device that is being removed is believed at once.
    VerdictAtOnce,
}

impl Canary {
    /// Every canary, with the seeds within which it must be found.
    pub const ALL: [(Canary, u64); 119] = [
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
        (Canary::Inside(engine::Canary::InitCutShort), 60),
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
        (Canary::Inside(engine::Canary::SyndromeForgotten), 400),
        (Canary::Inside(engine::Canary::LostStripForgotten), 8000),
        (Canary::Inside(engine::Canary::ReplayedTooEarly), 12000),
        (Canary::Inside(engine::Canary::LogWrittenOver), 20000),
        (Canary::Inside(engine::Canary::FailedAcknowledges), 300),
        (Canary::Inside(engine::Canary::ZerosBeyond), 2000),
        (Canary::Inside(engine::Canary::ForceBelievesStale), 2000),
        (Canary::Inside(engine::Canary::ForceForEver), 100000),
        (Canary::Inside(engine::Canary::GoesOnBeyond), 300),
        (Canary::Inside(engine::Canary::JoinsWithoutBase), 60000),
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
        (Canary::Inside(engine::Canary::ReturnsUnwitnessed), 20000),
        (Canary::Inside(engine::Canary::CleanNotBehind), 6000),
        (Canary::Inside(engine::Canary::ReplayTrustsRest), 30000),
        (Canary::Inside(engine::Canary::SourcesUnchecked), 6000),
        (Canary::Inside(engine::Canary::RunComputed), 6000),
        (Canary::Inside(engine::Canary::StandstillCounts), 200),
        (Canary::Inside(engine::Canary::VerdictsOfOneMoment), 200),
        (Canary::Inside(engine::Canary::PastIgnored), 100),
        (Canary::Inside(engine::Canary::OlderMapReturns), 20000),
        (Canary::Inside(engine::Canary::EmptiedBelieved), 100),
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
        (Canary::Inside(engine::Canary::DecidedEarly), 8000),
        (Canary::Inside(engine::Canary::TableBeforeDurable), 20000),
        (Canary::Inside(engine::Canary::VolumeNotZeroed), 10000),
        (Canary::Inside(engine::Canary::VolumeTailKept), 3000),
        (Canary::Inside(engine::Canary::VolumeDiscardedEarly), 10000),
    ];

    /// Whether a world of this plan can be expected to meet it, as far as that is told for rare ones:
    /// in others it would only be looked for.
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

/// The course that leads to a bug which other seeds hardly ever meet.
fn course_for(canary: engine::Canary) -> Option<Course> {
    match canary {
        engine::Canary::FlushAnsweredEarly => Some(Course::FailedFlush),
        engine::Canary::UnlistedUndurably => Some(Course::Listed),
        engine::Canary::ListUndurable => Some(Course::Listed),
        engine::Canary::ListWithoutLimit => Some(Course::FullList),
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
        engine::Canary::RunComputed => Some(Course::BadSector),
        _ => None,
    }
}

/// A planted bug at work.
#[derive(Clone, Debug)]
pub struct Planted {
    /// Which.
    pub canary: Canary,
    rng: Prng,
}

/// What part of a member an I/O writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Superblock,
    Map,
    Data,
    Other,
}

fn part(layout: &Layout, offset: u64, device_bytes: u64) -> Part {
    if Layout::superblock_offsets(device_bytes).contains(&offset) {
        Part::Superblock
    } else if (layout.map_offset..layout.log_offset).contains(&offset) {
        Part::Map
    } else if (layout.data_offset..layout.data_offset + layout.data_bytes).contains(&offset) {
        Part::Data
    } else {
        Part::Other
    }
}

impl Planted {
    /// Plants it.
    pub fn new(canary: Canary, seed: u64) -> Planted {
        Planted {
            canary,
            rng: Prng::new(seed, Purpose::Canary),
        }
    }

    /// Is a request of this kind answered at once?
    pub fn answers_early(&self, kind: AskKind) -> bool {
        self.canary == Canary::AnswersEarly && kind != AskKind::Read && kind != AskKind::Flush
    }

    /// Alters the I/O for `drive`, and says to which drive it goes.
    pub fn strike(&mut self, world: &mut World, drive: usize, io: &mut MemberIo) -> usize {
        match &io.kind {
            IoKind::Flush => {
                if self.canary == Canary::FlushSwallowed {
                    swallow(io);
                }
            }
            IoKind::Read { offset, .. } | IoKind::ReadInPlace { offset, .. } => {
                let offset = *offset;
                self.strike_read(world, drive, offset, io);
            }
            IoKind::WriteZeroes { .. } => {
                if self.canary == Canary::ZeroingSkipped {
                    swallow(io);
                }
            }
            IoKind::Discard { .. } => {}
            IoKind::Write { offset, .. } => {
                let offset = *offset;
                let bytes = world.drives[drive].ssd.len();
                let part = part(&world.superblock.layout, offset, bytes);
                return self.strike_write(world, drive, part, offset, io);
            }
        }
        drive
    }

    fn strike_read(&mut self, world: &World, drive: usize, offset: u64, io: &mut MemberIo) {
        let layout = &world.superblock.layout;
        let is_data = part(layout, offset, world.drives[drive].ssd.len()) == Part::Data;
        if self.canary != Canary::Misread || !is_data || !self.rng.one_in(100) {
            return;
        }
        let strip = world.geometry.strip;
        let (IoKind::Read { offset, len, .. } | IoKind::ReadInPlace { offset, len, .. }) =
            &mut io.kind
        else {
            return;
        };
        if *offset + strip + *len as u64 <= layout.data_offset + layout.data_bytes {
            *offset += strip;
        }
    }

    fn strike_write(
        &mut self,
        world: &mut World,
        drive: usize,
        part: Part,
        offset: u64,
        io: &mut MemberIo,
    ) -> usize {
        let is_data = part == Part::Data;
        let lost = match self.canary {
            Canary::ParityDropped => {
                is_data && is_parity(world, drive, offset) && self.rng.one_in(10)
            }
            Canary::DataDropped => {
                is_data && !is_parity(world, drive, offset) && self.rng.one_in(30)
            }
            Canary::EpochDropped => part == Part::Superblock && newer(world, drive, io),
            Canary::ListDropped => part == Part::Map && names_blocks(io),
            Canary::MapDropped => part == Part::Map && to_be_dropped(io),
            Canary::RebuildSkipped => {
                let rebuilding = world
                    .looks()
                    .iter()
                    .any(|look| look.incoming == Some(drive));
                is_data && rebuilding && self.rng.one_in(5)
            }
            Canary::FuaStripped => {
                if let IoKind::Write { fua, .. } = &mut io.kind {
                    *fua = false;
                }
                false
            }
            Canary::Misdirected if is_data && self.rng.one_in(50) => {
                let open = |index: &usize| world.drives[*index].device.is_some();
                let others: Vec<usize> = (0..world.drives.len())
                    .filter(|i| *i != drive)
                    .filter(open)
                    .collect();
                let target = if others.is_empty() {
                    drive
                } else {
                    self.rng.pick(&others)
                };
                // The engine hears of it from the drive that it meant.
                return target;
            }
            _ => false,
        };
        if lost {
            swallow(io);
        }
        drive
    }
}

/// Makes the I/O succeed without effect.
fn swallow(io: &mut MemberIo) {
    io.kind = IoKind::Discard { offset: 0, len: 0 };
}

fn is_parity(world: &World, drive: usize, offset: u64) -> bool {
    let geometry = &world.geometry;
    let layout = &world.superblock.layout;
    let Some(slot) = slot_of(world, drive) else {
        return false;
    };
    let row = Row((offset - layout.data_offset) / geometry.strip);
    let Some(stripe) = geometry.stripe_in(slot, row) else {
        return false;
    };
    geometry
        .column(stripe, slot)
        .is_some_and(|column| column >= geometry.columns(stripe).k)
}

fn slot_of(world: &World, drive: usize) -> Option<Slot> {
    let ssd = &world.drives[drive].ssd;
    let offset = Layout::superblock_offsets(ssd.len())[0];
    let superblock = Superblock::decode(ssd.peek(offset, 4096)?, offset).ok()?;
    superblock.slot_of(superblock.member)
}

/// Every third version of a region map page, on whichever member.
fn to_be_dropped(io: &MemberIo) -> bool {
    let IoKind::Write { offset, data, .. } = &io.kind else {
        return false;
    };
    let page = data
        .bytes()
        .get(..PAGE_BYTES)
        .and_then(|b| MapPage::decode(b, *offset).ok());
    page.is_some_and(|page| page.sequence.is_multiple_of(3))
}

/// Is this a list of unreadable blocks that is not empty?
fn names_blocks(io: &MemberIo) -> bool {
    let IoKind::Write { offset, data, .. } = &io.kind else {
        return false;
    };
    UnreadableList::decode(data.bytes(), *offset).is_ok_and(|list| !list.ranges.is_empty())
}

/// Is this a superblock of a newer epoch than the one that it replaces?
fn newer(world: &World, drive: usize, io: &MemberIo) -> bool {
    let IoKind::Write { offset, data, .. } = &io.kind else {
        return false;
    };
    let ssd = &world.drives[drive].ssd;
    let old = ssd
        .peek(*offset, 4096)
        .and_then(|bytes| Superblock::decode(bytes, *offset).ok());
    let new = data
        .bytes()
        .get(..4096)
        .and_then(|b| Superblock::decode(b, *offset).ok());
    match (old, new) {
        (Some(old), Some(new)) => old.array == new.array && new.epoch > old.epoch,
        _ => false,
    }
}
