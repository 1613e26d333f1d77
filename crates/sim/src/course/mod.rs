//! Courses: seeds that follow a script, where chance only decides places and moments.
//!
//! Some faults need a chain of events that lives of chance hardly ever go through: a flush that
//! fails just before the power goes, a full list of unreadable blocks, a member that went on alone
//! and comes back after more epochs than a table remembers. One seed in [`ONE_IN`] is a scenario
//! that leads there, in one of many variants.
//!
//! Invariants: a course follows from its seed; what it demands holds for every engine without a
//! bug.
//!
//! Deliberately absent: the tolerance rules. The author of a course knows which faults are fair.

mod canaries;
mod doubts;
mod joins;
mod lists;
mod records;
mod restored;
mod sectors;

use strake_engine::create::Init;
use strake_engine::event::{Command, CommandError, ScrubMode};
use strake_engine::units::{Slot, StripeNo};
use strake_format::log::scan;
use strake_format::{Layout, SlotState, WriteHole};

use crate::canary::Canary;
use crate::plan::workload::AskKind;
use crate::prng::{Prng, Purpose};
use crate::report::Outcome;
use crate::report::panics::catching;
use crate::scenario::{Draft, Scenario};

/// One seed in so many is a course.
pub const ONE_IN: u64 = 40;
/// So long that no region becomes Clean.
const LONG_MS: u64 = 1_000_000_000;

/// Where a course leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// A flush of the user fails on a member, is answered, and the power goes.
    FailedFlush,
    /// Blocks are listed as unreadable, or leave the list, and the power goes.
    Listed,
    /// More is unreadable than the list has room for; or what leaves it takes the last of its room.
    FullList,
    /// A member that went on alone comes back after more epochs than a table remembers.
    LongAway,
    /// A window of a move is cut off, and the start after it, too.
    CutWindow,
    /// A window of a move is given up after its copy was written, and begins again.
    WindowAgain,
    /// The array stops while a new base of the log is on its way, and writes after the next start.
    BaseUnderWay,
    /// A member is lost while the records of writes are on their way.
    LostBeforePlace,
    /// A rebuilt member comes in sync while writes are under way.
    JoinsUnderWrites,
    /// Records are written over all the time, and the power goes with a member.
    FullRing,
    /// Blocks of a Clean region are given up while a member is away that comes back.
    LostWhileAway,
    /// A device joins, and a member is lost while the superblocks that name the device are written.
    LostAsOneJoins,
    /// The newest record of a block is being written over, and the member that published its
    /// retirement is lost.
    PublishedByOne,
    /// Blocks are given up beside the record of a finished write, and the member that published its
    /// retirement is lost.
    GivenUpBeside,
    /// A record of a Clean region lies, since its parity did when it was made.
    MendedInQuiet,
    /// What a write leaves alone has rotted, and the write is cut off.
    RotsBeside,
    /// An image of a member is taken while the array serves, and given to it when the member has
    /// left.
    LiveImage,
    /// What lies in an undecided region is taken for right, and the power goes.
    Accepted,
    /// A sector cannot be read, and another strip rots beside it.
    BadSector,
    /// Writes of several columns are cut off between the sectors of a block, and another column of
    /// them is lost.
    TornBlock,
    /// A write is half in place, and what it leaves alone is lost, and in no log.
    SyndromesRot,
    /// A member is missing, and another cannot read a block for a moment while the log is replayed.
    Unread,
    /// A device joins a mirror in which nothing is to be copied, is slow to write the region map,
    /// and the others are lost when it is in sync.
    JoinsEmpty,
    /// A write that leaves some of its blocks as they are is cut off as its records are written,
    /// and a member is lost.
    Unchanged,
    /// A block cannot be read, another block of its row rots, and no redundancy is left to locate
    /// that one; then something is computed from them.
    Unclear,
    /// A write takes parity for true that is not, and a resync mends it beside the write's record.
    Outdated,
    /// Strips do not agree, and the array is made again from what was known of it.
    Restored,
    /// Members that the level needs lose their superblocks while they serve, and cannot be read now
    /// and then.
    Doubted,
}

/// One seed in so many is a course that is drawn apart from the others.
const ACCEPTED_ONE_IN: u64 = 300;
const BAD_SECTOR_ONE_IN: u64 = 300;
const TORN_BLOCK_ONE_IN: u64 = 300;
const SYNDROMES_ROT_ONE_IN: u64 = 300;
const UNREAD_ONE_IN: u64 = 300;
const JOINS_EMPTY_ONE_IN: u64 = 300;
const UNCHANGED_ONE_IN: u64 = 300;
const UNCLEAR_ONE_IN: u64 = 300;
/// Beside its weight.
const FULL_LIST_ONE_IN: u64 = 300;
const OUTDATED_ONE_IN: u64 = 300;
const RESTORED_ONE_IN: u64 = 300;
const DOUBTED_ONE_IN: u64 = 300;

/// All courses, with their names on the command line and their weights: some are dear, thousands of
/// events, or many starts. Those without a weight are drawn apart.
const COURSES: [(Course, &str, u32); 28] = [
    (Course::FailedFlush, "failed-flush", 7),
    (Course::Listed, "listed", 9),
    (Course::FullList, "full-list", 1),
    (Course::LongAway, "long-away", 2),
    (Course::CutWindow, "cut-window", 6),
    (Course::WindowAgain, "window-again", 6),
    (Course::BaseUnderWay, "base-under-way", 5),
    (Course::LostBeforePlace, "lost-before-place", 6),
    (Course::JoinsUnderWrites, "joins-under-writes", 4),
    (Course::FullRing, "full-ring", 6),
    (Course::LostWhileAway, "lost-while-away", 2),
    (Course::LostAsOneJoins, "lost-as-one-joins", 2),
    (Course::PublishedByOne, "published-by-one", 4),
    (Course::GivenUpBeside, "given-up-beside", 3),
    (Course::MendedInQuiet, "mended-in-quiet", 2),
    (Course::RotsBeside, "rots-beside", 2),
    (Course::LiveImage, "live-image", 3),
    (Course::Accepted, "accepted", 0),
    (Course::BadSector, "bad-sector", 0),
    (Course::TornBlock, "torn-block", 0),
    (Course::SyndromesRot, "syndromes-rot", 0),
    (Course::Unread, "unread", 0),
    (Course::JoinsEmpty, "joins-empty", 0),
    (Course::Unchanged, "unchanged", 0),
    (Course::Unclear, "unclear", 0),
    (Course::Outdated, "outdated", 0),
    (Course::Restored, "restored", 0),
    (Course::Doubted, "doubted", 0),
];

impl Course {
    /// The course of a seed, if it is one.
    pub fn of(seed: u64) -> Option<Course> {
        let mut rng = Prng::new(seed, Purpose::Course);
        let weights = COURSES.map(|(.., weight)| weight);
        let (drawn, ..) = COURSES[rng.weighted(&weights)];
        let usual = rng.one_in(ONE_IN).then_some(drawn);
        // Drawn by themselves, so that others stay the courses that they were.
        let apart = [
            (Course::Accepted, 24, ACCEPTED_ONE_IN),
            (Course::BadSector, 27, BAD_SECTOR_ONE_IN),
            (Course::TornBlock, 32, TORN_BLOCK_ONE_IN),
            (Course::SyndromesRot, 33, SYNDROMES_ROT_ONE_IN),
            (Course::Unread, 34, UNREAD_ONE_IN),
            (Course::JoinsEmpty, 35, JOINS_EMPTY_ONE_IN),
            (Course::Unchanged, 36, UNCHANGED_ONE_IN),
            (Course::Unclear, 37, UNCLEAR_ONE_IN),
            (Course::FullList, 38, FULL_LIST_ONE_IN),
            (Course::Outdated, 39, OUTDATED_ONE_IN),
            (Course::Restored, 40, RESTORED_ONE_IN),
            (Course::Doubted, 41, DOUBTED_ONE_IN),
        ];
        let is_drawn = |salt: u64, one_in| Prng::new(seed ^ salt, Purpose::Focus).one_in(one_in);
        let mut apart = apart
            .into_iter()
            .filter(|&(_, salt, one_in)| is_drawn(salt, one_in));
        usual.or_else(|| apart.next().map(|(course, ..)| course))
    }

    /// Every course.
    pub fn all() -> impl Iterator<Item = Course> {
        COURSES.into_iter().map(|(course, ..)| course)
    }

    /// The course with this name.
    pub fn parse(name: &str) -> Option<Course> {
        let found = COURSES.into_iter().find(|(_, known, _)| *known == name);
        found.map(|(course, ..)| course)
    }

    /// Runs it.
    pub(crate) fn run(self, seed: u64, canary: Option<Canary>, tracing: bool) -> Outcome {
        let mut rng = Prng::new(seed ^ 1, Purpose::Course);
        let mut array = self.draft(&mut rng).seed(seed).made(canary);
        array.world.print_events(tracing);
        strake_engine::canary::plant(canary.and_then(Canary::inside));
        let ended = catching(|| self.go(&mut array, &mut rng));
        strake_engine::canary::plant(None);
        let world = array.world;
        let failure = ended.err().map(|panic| {
            let text = panic.split(": the story:").next().unwrap_or_default();
            world.failed(text.to_owned())
        });
        let mut outcome = world.outcome(seed, format!("course {self:?}"), failure);
        outcome.stats.courses = 1;
        outcome
    }

    fn draft(self, rng: &mut Prng) -> Draft {
        let any = |rng: &mut Prng, of: &[(&'static str, u8)]| {
            let (level, members) = rng.pick(of);
            Scenario::new(level, members)
        };
        match self {
            Course::FailedFlush => any(rng, &[("1", 2), ("1", 3), ("10", 4)]),
            Course::Listed => {
                let policy = rng.pick(&[WriteHole::Closed, WriteHole::Resync]);
                any(rng, &[("5", 4), ("5", 3)]).policy(policy)
            }
            Course::FullList => any(rng, &[("5", 4), ("5", 5)]).small_blocks(),
            Course::LongAway => Scenario::new("1", 3),
            // With memory for no more than one copy the members get it one after the other.
            Course::CutWindow | Course::WindowAgain => any(rng, &[("5", 4), ("5", 3), ("6", 5)])
                .roomy_log()
                .window_bytes(rng.pick(&[1, 1, 1, 32768])),
            Course::BaseUnderWay => any(rng, &[("5", 4), ("5", 3), ("6", 5)])
                .shards(2)
                .slow_shard(rng.below(2) as u16)
                .message_ns(rng.pick(&[5_000, 100_000])),
            Course::LostBeforePlace => any(rng, &[("5", 4), ("6", 5), ("6", 6), ("7.3", 6)]),
            Course::JoinsUnderWrites => any(rng, &[("5", 4), ("5", 3), ("6", 5)]),
            Course::FullRing => any(rng, &[("5", 3), ("5", 4), ("6", 4)]).small_log(),
            Course::LostWhileAway => any(rng, &[("6", 5), ("6", 6), ("7.3", 7)]),
            Course::LostAsOneJoins => any(rng, &[("1", 3), ("6", 5), ("6", 6), ("7.3", 6)]),
            // Writes of one strip read the other, and the parity is only written.
            Course::PublishedByOne => {
                let draft = Scenario::new("5", 3).small_log().small_blocks();
                draft.clean_after_ms(LONG_MS)
            }
            Course::GivenUpBeside => any(rng, &[("5", 4), ("5", 5), ("50", 8)])
                .clean_after_ms(LONG_MS)
                .shards(1),
            // So wide that a write of one block reads parities, and not what it leaves alone.
            Course::MendedInQuiet | Course::RotsBeside => Scenario::new("6", 7),
            Course::Outdated => Scenario::new("6", 7)
                .policy(WriteHole::Resync)
                .clean_after_ms(LONG_MS)
                .shards(2),
            Course::Restored => {
                let policy = rng.pick(&[WriteHole::Closed, WriteHole::Resync]);
                any(rng, &[("1", 2), ("5", 4), ("6", 5), ("10", 4), ("50", 6)]).policy(policy)
            }
            Course::Doubted => {
                let policy = rng.pick(&[WriteHole::Closed, WriteHole::Resync, WriteHole::Resync]);
                let of = [("1", 2), ("1", 3), ("5", 4), ("6", 5), ("6", 6), ("50", 6)];
                any(rng, &of).policy(policy)
            }
            Course::LiveImage => any(rng, &[("5", 4), ("6", 5), ("1", 3), ("10", 4)]),
            Course::Accepted => any(rng, &[("6", 6), ("6", 5)]),
            Course::Unread => any(rng, &[("5", 4), ("5", 5), ("50", 8)]),
            Course::JoinsEmpty => any(rng, &[("1", 2), ("1", 3)]),
            // The wide ones so wide that a write of two columns reads what it writes over.
            Course::Unchanged => {
                let wide = [("5", 9), ("5", 10), ("6", 10)];
                let draft = match rng.one_in(2) {
                    true => any(rng, &wide),
                    false => any(rng, &[("5", 4), ("5", 5)]),
                };
                draft.shards(1)
            }
            Course::SyndromesRot => any(rng, &[("5", 4), ("5", 5), ("6", 6), ("6", 7)]).shards(1),
            Course::BadSector => {
                any(rng, &[("5", 4), ("6", 5), ("50", 6), ("60", 8)]).small_blocks()
            }
            Course::Unclear => any(rng, &[("6", 5), ("6", 6), ("6", 7)]).small_blocks(),
            Course::TornBlock => {
                any(rng, &[("5", 3), ("5", 4), ("6", 4), ("6", 5), ("50", 6)]).small_sectors()
            }
        }
        .init(Init::Lazy)
        .forgiving()
    }

    fn go(self, array: &mut Scenario, rng: &mut Prng) {
        array.begin_life();
        match self {
            Course::FailedFlush => failed_flush(array, rng),
            Course::Listed => listed(array, rng),
            Course::FullList => lists::full_list(array, rng),
            Course::LongAway => long_away(array, rng),
            Course::CutWindow => cut_window(array, rng),
            Course::WindowAgain => window_again(array, rng),
            Course::BaseUnderWay => base_under_way(array, rng),
            Course::LostBeforePlace => lost_before_place(array, rng),
            Course::JoinsUnderWrites => joins::joins_under_writes(array, rng),
            Course::FullRing => full_ring(array, rng),
            Course::LostWhileAway => lost_while_away(array, rng),
            Course::LostAsOneJoins => joins::lost_as_one_joins(array, rng),
            Course::PublishedByOne => records::published_by_one(array, rng),
            Course::GivenUpBeside => records::given_up_beside(array, rng),
            Course::MendedInQuiet => records::mended_in_quiet(array, rng),
            Course::RotsBeside => records::rots_beside(array, rng),
            Course::Outdated => records::outdated(array, rng),
            Course::Restored => restored::restored(array, rng),
            Course::Doubted => doubts::doubted(array, rng),
            Course::LiveImage => live_image(array, rng),
            Course::Accepted => accepted(array, rng),
            Course::BadSector => sectors::rots_beside_a_bad_one(array, rng),
            Course::TornBlock => sectors::torn_beside_lost(array, rng),
            Course::SyndromesRot => records::syndromes_rot(array, rng),
            Course::Unread => sectors::unread_for_a_moment(array, rng),
            Course::JoinsEmpty => joins::joins_empty(array, rng),
            Course::Unchanged => records::unchanged(array, rng),
            Course::Unclear => sectors::unclear(array, rng),
        }
    }
}

/// Any slot.
pub(crate) fn slot(array: &Scenario, rng: &mut Prng) -> u8 {
    rng.below(array.world.geometry().slots() as u64) as u8
}

/// Any block.
fn block(array: &Scenario, rng: &mut Prng) -> u64 {
    rng.below(array.world.blocks())
}

/// Starts without these drives, which may have been the only ones with some of what was written.
fn start_without(array: &mut Scenario, drives: &[usize]) {
    drives.iter().for_each(|&drive| array.world.hide(drive));
    array.world.doubt_torn_blocks();
    array.start().rest().verify();
}

/// The power goes, and the member of this slot with it.
fn lost_with_power(array: &mut Scenario, slot: u8) {
    array.power_cut();
    let drives = array.world.condition_on_media().0;
    start_without(array, drives[usize::from(slot)].as_slice());
}

fn failed_flush(array: &mut Scenario, rng: &mut Prng) {
    array.fill();
    for _ in 0..rng.range(4, 12) {
        let at = block(array, rng);
        array.write_at(at, 1);
    }
    let drive = array.drive(slot(array, rng));
    array.world.ssd_mut(drive).faults.flush_errors = 1;
    array.ask(AskKind::Flush, 0, 0);
    array.power_cut().start().rest().verify();
}

/// A member is lost and another cannot read some sectors: what a rebuild finds there is given up.
fn listed(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let slots = array.world.geometry().slots() as u8;
    let lost = slot(array, rng);
    let bad = (lost + rng.range(1, u64::from(slots) - 1) as u8) % slots;
    array.lose(lost).steps(3000);
    for row in 0..rng.range(1, 6) {
        array.spoil_block(bad, row, 0);
    }
    array.add();
    if rng.percent(50) {
        array.wait("something is given up", |world| {
            !world.array().status().unreadable.is_empty() || world.at_rest()
        });
        array.steps(rng.below(400));
        if array.world.plan().write_hole == WriteHole::Resync {
            // Degraded, and with parity that nothing tells of, it would not start.
            array.rest();
        }
        array.power_cut().start().rest().verify();
        return;
    }
    array.rest();
    for block in array.unreadable() {
        if rng.percent(50) {
            array.ask(AskKind::Write, block, 1);
        }
    }
    array.power_cut().start().rest().verify();
}

/// One slot's member goes on alone, with a table of its own, and is written.
fn long_away(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let away = array.drive(2);
    let own = array.world.table_of(away);
    let mut own = own.expect("it is a member").as_ref().clone();
    let out = |array: &mut Scenario, slot: u8| {
        array.lose(slot).write_at(0, 1);
        array.wait("it is out", move |world| {
            world.looks()[usize::from(slot)].in_sync.is_none() && world.all_answered()
        });
        array.steps(3000);
    };
    // Two epochs, of which it saw neither; then the others do without those that knew it.
    out(array, 1);
    out(array, 2);
    for other in [0, 1] {
        own.slots[other].state = SlotState::Missing;
        own.slots[other].since = own.epoch.next();
    }
    own.advance();
    own.generation = own.generation.next();
    let ssd = array.world.ssd_mut(away);
    for offset in Layout::superblock_offsets(ssd.len()) {
        ssd.poke(offset, &own.encode(offset)[..]);
    }
    let mut alone = vec![0; own.layout.data_bytes as usize];
    crate::prng::fill(rng.bits(), &mut alone);
    ssd.poke(own.layout.data_offset, &alone);
    array.add().rest();
    array.replace(0).rest();
    let epoch = |array: &mut Scenario| array.status().superblock.epoch.0;
    while epoch(array) <= own.epoch.0 + own.editions.len() as u64 {
        let flaps = array.drive(1);
        out(array, 1);
        array.offer(flaps).expect("it is kept");
        array.rest();
    }
    let taken = array.offer(away);
    assert!(taken.is_err(), "a member that went on alone is taken back");
    array.rest().verify();
}

fn cut_window(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    begin_to_copy(array, rng);
    if rng.percent(30) {
        // Every member has the copy, or one.
        until_in_place(array, rng);
        array.power_cut();
        let holders = copy_holders(array);
        hide(array, rng, &holders);
        array.start().rest().verify();
        return;
    }
    array.power_cut();
    let holders = copy_holders(array);
    array.begin_to_start();
    if !array.world.array().resumes() {
        array.rest().verify();
        return;
    }
    until_in_place(array, rng);
    array.power_cut();
    hide(array, rng, &holders);
    array.start().rest().verify();
}

/// Data moves, and a window is being copied.
fn begin_to_copy(array: &mut Scenario, rng: &mut Prng) {
    array.begin_to_restripe(1);
    array.wait("a copy", |world| world.array().moves_by_copy());
    if array.world.plan().window_bytes == 1 && rng.percent(60) {
        // Less of the next one lies where it lay.
        array.wait("the next window", |world| !world.array().moves_by_copy());
        array.wait("a copy", |world| world.array().moves_by_copy());
    }
    if rng.percent(20) {
        array.steps(rng.below(24));
        return;
    }
    // Until the first member has it.
    for _ in 0..40 {
        if !copy_holders(array).is_empty() {
            break;
        }
        array.steps(1);
    }
}

/// These are not found at the next start, if the level survives that; otherwise any member that
/// counts.
fn hide(array: &mut Scenario, rng: &mut Prng, holders: &[usize]) {
    let drives = array.world.condition_on_media().0;
    let few = (1..=array.world.geometry().m).contains(&holders.len());
    let count = holders.iter().all(|drive| drives.contains(&Some(*drive)));
    let any = drives[rng.index(drives.len())];
    let hidden = if few && count {
        holders
    } else {
        any.as_slice()
    };
    for &drive in hidden {
        array.world.hide(drive);
    }
}

/// Goes on until something is on its way in place, and a little further.
fn until_in_place(array: &mut Scenario, rng: &mut Prng) {
    for _ in 0..1000 {
        if array.world.writes_in_place() {
            break;
        }
        array.steps(1);
    }
    array.steps(rng.below(12));
}

/// The drives that hold most of a copy in their log.
fn copy_holders(array: &Scenario) -> Vec<usize> {
    let count = |drive: usize| {
        let Some(own) = array.world.table_of(drive) else {
            return 0;
        };
        let layout = &own.layout;
        let ssd = array.world.ssd(drive);
        let area = ssd.peek(layout.log_offset, layout.log_bytes as usize);
        let batches = scan(area.unwrap_or(&[]), layout.log_offset);
        let copies = batches.into_iter().flatten().filter(|batch| {
            batch.member == own.member && batch.records.iter().any(|record| record.settled)
        });
        copies.map(|batch| batch.records.len()).sum()
    };
    let counts: Vec<usize> = (0..array.world.drives().len()).map(count).collect();
    let most = counts.iter().copied().max().filter(|most| *most > 0);
    let holds = |index: &usize| Some(counts[*index]) == most;
    (0..counts.len()).filter(holds).collect()
}

fn window_again(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    begin_to_copy(array, rng);
    let strikes = slot(array, rng);
    let drive = array.world.looks()[usize::from(strikes)].in_sync;
    match (rng.below(3), drive) {
        (0, Some(drive)) if rng.one_in(2) => {
            array.steps(rng.below(40));
            array.lose(strikes).steps(rng.below(600));
            let rows = rng.range(1, 6);
            for _ in 0..rows {
                let at = block(array, rng) / rng.pick(&[1, 8]);
                array.begin_to_write_at(at);
            }
            array.steps(rng.below(2000));
            if array.world.is_away(drive) {
                array.world.offer(drive);
            }
        }
        (1, _) => {
            array.steps(rng.below(40));
            array.world.command(Command::StopRestripe);
            for _ in 0..rng.range(1, 6) {
                let at = block(array, rng) / rng.pick(&[1, 8]);
                array.begin_to_write_at(at);
            }
            array.steps(rng.below(600));
            array.world.command(Command::ContinueRestripe);
        }
        _ => {
            array.power_cut();
            let holders = copy_holders(array);
            let tolerated = array.world.geometry().m;
            for &drive in holders.iter().filter(|_| holders.len() <= tolerated) {
                array.world.hide(drive);
            }
            array.start();
            // What was to be moved has other content then.
            for at in 0..rng.range(8, 24) {
                array.write_at(at, 1);
            }
            array.ask(AskKind::Flush, 0, 0);
            for &drive in &holders {
                if array.world.is_away(drive) {
                    array.offer(drive).expect("it is kept");
                }
            }
            if rng.percent(70) {
                // The window has not begun again, and an old copy of it is there.
                array.wait("it is in sync", |world| {
                    world.looks().iter().all(|look| look.in_sync.is_some())
                });
                array.steps(rng.below(30)).power_cut();
                array.start().rest().verify();
                return;
            }
            array.wait("a copy, or the end", |world| {
                world.array().moves_by_copy() || world.at_rest()
            });
        }
    }
    let most = rng.pick(&[20, 20, 60, 1200]);
    array.steps(rng.below(most)).power_cut();
    array.start().rest().verify();
}

/// The last records of a session count until the next base, wherever that was when it stopped.
fn base_under_way(array: &mut Scenario, rng: &mut Prng) {
    // Records of the first session are of a base that was reached.
    array.fill().rest().stop().start();
    let stripe = array.world.geometry().stripe_bytes() / array.world.geometry().block;
    let strip = array.world.geometry().strip / array.world.geometry().block;
    let region = array.world.geometry().region_rows * stripe;
    let all = array.world.blocks();
    let target = rng.below(all / stripe) * stripe;
    // Of another region, if there is one.
    let given_back = (target / region + 1) * region % all / region * region;
    for _ in 0..rng.below(4) {
        let at = block(array, rng);
        array.begin_to_write_at(at);
    }
    if rng.percent(50) {
        array.begin(AskKind::Discard, given_back, region.min(all - given_back));
    }
    array.steps(rng.below(300));
    let columns = stripe / strip;
    let each = rng.percent(60);
    for _ in 0..rng.range(1, 12) {
        let column = rng.below(columns);
        array.begin_to_write_at(target + column * strip);
        if each {
            array.wait("it is written", |world| world.all_answered());
        }
    }
    array.wait("requests are answered", |world| world.all_answered());
    array.stop().start();
    for _ in 0..rng.range(1, 3) {
        let column = rng.below(columns);
        array.begin_to_write_at(target + column * strip);
    }
    let mut lost = slot(array, rng);
    if rng.percent(50) {
        let column = rng.below(columns);
        array.write_at(target + column * strip, 1);
        array.ask(AskKind::Flush, 0, 0);
        let written = array
            .world
            .geometry()
            .locate((target + column * strip) * array.world.geometry().block);
        lost = array
            .world
            .geometry()
            .slot(written.stripe, written.column)
            .0;
    } else {
        until_in_place(array, rng);
    }
    lost_with_power(array, lost);
}

fn lost_before_place(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    if array.world.geometry().m == 1 || rng.percent(50) {
        return lost_while_logged(array, rng);
    }
    array.begin_to_write(rng.range(4, 20), rng.range(5, 80));
    let first = slot(array, rng);
    array.lose(first).steps(rng.below(60));
    until_in_place(array, rng);
    let second = slot(array, rng);
    lost_with_power(array, second);
}

/// What is written lies on a member that leaves while another is slow to take the records; then
/// some of it is in place, and the power goes. Of what had a member no more nothing may be lost.
fn lost_while_logged(array: &mut Scenario, rng: &mut Prng) {
    let geometry = array.world.geometry().clone();
    let (k, m) = (geometry.k, geometry.m);
    let stripes = array.world.blocks() * geometry.block / geometry.stripe_bytes();
    let stripe = StripeNo(rng.below(stripes));
    let slot_of = |column: usize| geometry.slot(stripe, column).0;
    // Of all columns: nothing is read. Members of parities, and of the first column, have records.
    let lost = slot_of(rng.range(1, k as u64 - 1) as usize);
    let strip = geometry.strip / geometry.block;
    let at = stripe.0 * k as u64 * strip;
    array.write_at(at, 1);
    array.pause(slot_of(k + rng.index(m)), 1);
    array.begin_to_write_blocks(at, k as u64 * strip);
    for _ in 0..300 {
        if array.world.writes_to_logs() || array.world.all_answered() {
            break;
        }
        array.steps(1);
    }
    if array.world.writes_in_place() {
        return;
    }
    array.lose(lost);
    array.world.command(Command::Fail(Slot(lost)));
    array.wait("it is out, or in place", |world| {
        let out = world.looks()[usize::from(lost)].in_sync.is_none();
        out && world.none_leaves() || world.writes_in_place()
    });
    let early = array.world.writes_in_place();
    until_in_place(array, rng);
    array.power_cut().start();
    let lost = array.unreadable();
    let fair = early || lost.is_empty();
    assert!(
        fair,
        "blocks {lost:?} had no member before anything of them was in place"
    );
    array.rest().verify();
}

fn full_ring(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let stripe = array.world.geometry().stripe_bytes() / array.world.geometry().block;
    let target = rng.below(array.world.blocks() / stripe / 2) * stripe;
    let slow = slot(array, rng);
    array.slow(slow);
    let stripes = rng.range(1, 3);
    let depth = rng.pick(&[2, 4, 8]);
    for _ in 0..rng.range(10, 80) {
        while array.world.under_way() >= depth {
            array.steps(1);
        }
        let count = rng.range(1, 2);
        let at = target + rng.below(stripes * stripe - count);
        array.begin_to_write_blocks(at, count);
        array.steps(rng.below(12));
    }
    until_in_place(array, rng);
    array.power_cut();
    let drives = array.world.condition_on_media().0;
    let mut order: Vec<usize> = drives.iter().flatten().copied().collect();
    rng.shuffle(&mut order);
    order.truncate(array.world.geometry().m);
    start_without(array, &order);
}

/// What it lacks may lie in regions that are rebuilt: then it is taken back. What is read says
/// whether that was right.
fn live_image(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    if rng.percent(40) {
        array.sleep();
    }
    let slot = rng.below(array.world.geometry().slots() as u64) as u8;
    let drive = array.drive(slot);
    let under_way = rng.below(10);
    array.begin_to_write(under_way, 200);
    array.world.take_image(drive);
    array.rest().write(rng.range(5, 40)).rest();
    if rng.percent(80) {
        array.sleep();
    }
    array.lose(slot);
    let first = rng.below(array.world.geometry().size() / array.world.geometry().block);
    array.write_at(first, 1).rest();
    let again = rng.percent(40);
    if !again && !array.world.is_away(drive) {
        // It was not asked for anything yet.
        array.write_all().rest();
    }
    if again {
        match rng.percent(60) || !array.world.is_away(drive) {
            true => array.stop(),
            false => array.power_cut(),
        };
    }
    array.world.put_image_back(drive);
    array.world.pasts_are_right(drive);
    if again {
        array.bring_back(drive).start();
    } else if let Err(refused) = array.offer(drive) {
        assert_eq!(refused, CommandError::NotKept);
    }
    array.rest().verify();
}

fn lost_while_away(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    array.sleep();
    let slots = array.world.geometry().slots() as u8;
    let away = slots - 1;
    let drive = array.drive(away);
    array.lose(away).steps(3000);
    let tolerated = array.world.geometry().m as u8;
    for slot in 0..tolerated - 1 {
        array.lose(slot).steps(3000);
    }
    array.sleep();
    let bad = rng.range(u64::from(tolerated), u64::from(slots) - 2) as u8;
    for _ in 0..rng.range(1, 4) {
        let row = rng.below(array.world.geometry().rows);
        array.spoil_block(bad, row, 0);
    }
    array.add().rest();
    if rng.percent(30) {
        array.power_cut().start().rest();
    }
    if array.world.looks()[usize::from(away)].in_sync.is_some() {
        return;
    }
    // It is offered as a member that was away; a start has found it already.
    if array.world.is_away(drive) {
        array.offer(drive).expect("it is kept");
    }
    array.rest();
    array.begin_to_scrub().rest().verify();
    for slot in [Slot(1), Slot(2)]
        .into_iter()
        .take(usize::from(tolerated) - 1)
    {
        if array.world.looks()[slot.index()].in_sync.is_some() {
            array.lose(slot.0).steps(3000);
        }
    }
    array.verify();
}

/// A parity is built from strips of which one rots; then data is taken for right as it is, and the
/// power goes. The region is undecided as before, or its strips agree; what users read stays. Or
/// the last strip that says otherwise goes with its member, and the region stays undecided.
fn accepted(array: &mut Scenario, rng: &mut Prng) {
    array.fill().rest();
    let geometry = array.world.geometry().clone();
    let (k, m) = (geometry.k, geometry.m);
    let stripe = rng.below(geometry.stripes());
    let rots = rng.index(k);
    array.rot(stripe, rots);
    let lost = rng.index(m);
    let slot = |parity: usize| geometry.slot(StripeNo(stripe), k + parity).0;
    array.lose(slot(lost)).add().made_whole();
    let undecided = |array: &mut Scenario| array.status().undecided.len();
    assert!(undecided(array) > 0, "what was built has a wrong source");
    if rng.percent(30) {
        // What did not agree leaves, too.
        for parity in (0..m).filter(|&parity| parity != lost) {
            array.lose(slot(parity)).add().made_whole();
        }
        if rng.percent(50) {
            array.stop().start();
        }
        array
            .command(Command::StartScrub(ScrubMode::Check))
            .expect("it scrubs");
        array.rest();
        assert!(
            undecided(array) > 0,
            "a region is called decided for strips that were built from what rots"
        );
        return;
    }
    let drive = array.drive(geometry.slot(StripeNo(stripe), rots).0);
    let at = array.world.superblock().layout.data_offset
        + geometry.row_offset(geometry.row(StripeNo(stripe)).1);
    let strip = geometry.strip as usize;
    let held = |array: &Scenario| array.world.ssd(drive).held(at, strip).to_vec();
    let before = held(array);
    array.world.command(Command::AcceptData);
    if rng.percent(50) {
        array.wait("it is decided, or not", |world| {
            world.array().status().undecided.is_empty() || world.at_rest()
        });
        array.steps(rng.below(20));
    } else {
        array.steps(rng.below(200));
    }
    array.power_cut().start();
    array.rest();
    assert!(before == held(array), "what users read was changed");
    if undecided(array) == 0 {
        array
            .command(Command::StartScrub(ScrubMode::Check))
            .expect("it scrubs");
        array.rest();
        let last = array.status().superblock.last_scrub;
        let found = last.expect("it has ended").found.inconsistent;
        assert!(
            found == 0,
            "a region is called decided, and {found} of its stripes do not agree"
        );
    }
}
