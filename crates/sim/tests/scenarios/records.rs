//! Records of the stripe log beside changes that have none: scrubs that repair, blocks that are
//! given up, strips that rot. The power goes, and a member with it.

use std::sync::Arc;

use strake_engine::event::{ArrayState, Command, JobKind, ScrubMode, Setting};
use strake_engine::units::{RegionNo, StripeNo};
use strake_format::{RegionState, WriteHole};
use strake_sim::scenario::{Draft, Scenario};
use strake_sim::workload::AskKind;

/// The stripe that it is about.
const STRIPE: StripeNo = StripeNo(4);

/// Long enough for a region to stay open in all of a scenario.
const LONG_MS: u64 = 1_000_000_000;

/// An array of one shard that is full, with regions that stay open.
fn full(draft: Draft, seed: u64) -> Scenario {
    full_with(draft.clean_after_ms(LONG_MS), seed)
}

fn full_with(draft: Draft, seed: u64) -> Scenario {
    let mut array = draft.forgiving().shards(1).seed(seed).start();
    array.fill().rest();
    array
}

/// Levels with so many parities at least, without members to spare.
fn levels(parities: usize) -> Vec<(String, Draft)> {
    let named = [("5", 4), ("6", 7), ("7.3", 8), ("50", 8), ("60", 10)];
    let named = named.map(|(level, members)| (level.to_owned(), Scenario::new(level, members)));
    let wide = ("3+4".to_owned(), Scenario::new("n+m", 7).code(3, 4));
    let enough = |(name, _): &(String, Draft)| parities == 1 || !matches!(&name[..], "5" | "50");
    named.into_iter().chain([wide]).filter(enough).collect()
}

/// The slot of a column of the stripe.
fn slot(array: &Scenario, column: usize) -> u8 {
    array.world.geometry().slot(STRIPE, column).0
}

/// The first block of a data column of the stripe.
fn block(array: &Scenario, column: usize) -> u64 {
    let geometry = &array.world.geometry();
    (STRIPE.0 * geometry.stripe_bytes() + column as u64 * geometry.strip) / geometry.block
}

/// The member of this column has a sector at the beginning of its strip that cannot be read.
fn spoil(array: &mut Scenario, column: usize) {
    let (slot, row) = (slot(array, column), array.world.geometry().row(STRIPE).1.0);
    array.spoil_block(slot, row, 0);
}

/// Columns that cannot be read together: one of data, and all parities.
fn one_too_many(array: &Scenario) -> Vec<usize> {
    let geometry = &array.world.geometry();
    std::iter::once(1)
        .chain(geometry.k..geometry.k + geometry.m)
        .collect()
}

fn region(array: &mut Scenario) -> RegionState {
    let geometry = &array.world.geometry();
    let region = geometry.region(geometry.row(STRIPE).1);
    array.world.array().region(RegionNo(region.0))
}

/// The power goes, and the member of this column.
fn cut_without(array: &mut Scenario, column: usize) {
    let drive = array.drive(slot(array, column));
    array.power_cut();
    array.world.hide(drive);
    array.start();
}

fn scrub_repairs(array: &mut Scenario) {
    array
        .command(Command::StartScrub(ScrubMode::Repair))
        .expect("it can begin");
    array.wait("the scrub is over", |world| {
        let jobs = world.array().status().jobs;
        !jobs.iter().any(|job| job.kind == JobKind::Scrub)
    });
}

/// P lied when a write read it, so what the write's record says of the other columns is a lie, too.
/// A scrub mended P. Then the power went with a member that the write had left alone, and what that
/// held was computed from the record: blocks that were never written.
#[test]
fn a_lost_strip_is_not_computed_from_a_record_that_a_scrub_has_proved_wrong() {
    let mut open = 0;
    for (level, draft) in levels(2) {
        for (seed, rests) in [(0, false), (1, false), (2, true)] {
            let mut array = match rests {
                true => full_with(draft.clone(), seed),
                false => full(draft.clone(), seed),
            };
            let first = block(&array, 0);
            let parity = array.world.geometry().k;
            array.rot(STRIPE.0, parity);
            array.write_at(first, 1).ask(AskKind::Flush, 0, 0);
            scrub_repairs(&mut array);
            if rests {
                array.rest().sleep();
            }
            open += u32::from(region(&mut array) == RegionState::Dirty);
            cut_without(&mut array, 2);
            eprintln!("level {level}, seed {seed}");
            array.verify();
        }
    }
    assert!(open > 4, "{open} times a region was open");
}

/// A write could not be planned, because too few columns could be read, and gave a block up: other
/// content lay there than the record of an earlier write said.
#[test]
fn a_lost_strip_is_not_computed_from_a_record_beside_which_a_write_gave_blocks_up() {
    for (level, draft) in levels(1) {
        let mut given_up = 0;
        for events in (0..400).step_by(3) {
            let mut array = full(draft.clone(), events % 5);
            let (written, lost) = (block(&array, 0), block(&array, 1));
            array.write_at(written, 1).ask(AskKind::Flush, 0, 0);
            for column in one_too_many(&array) {
                spoil(&mut array, column);
            }
            array.begin_to_write_blocks(written, 1).steps(events);
            given_up += usize::from(!array.unreadable().is_empty());
            let over = array.world.all_answered();
            cut_without(&mut array, 2);
            eprintln!("level {level}, {events} events");
            array.verify();
            let listed = array.unreadable();
            assert!(
                listed.iter().all(|&b| b == lost || b == written),
                "{listed:?}"
            );
            if over {
                break;
            }
        }
        assert!(given_up > 0, "level {level}: nothing was given up");
    }
}

/// The same by a rebuild that came upon too few columns that could be read.
#[test]
fn a_lost_strip_is_not_computed_from_a_record_beside_which_a_rebuild_gave_blocks_up() {
    for (level, draft) in levels(2) {
        let mut given_up = 0;
        for seed in 0..6 {
            let mut array = full(draft.clone(), seed);
            let (first, parity) = (block(&array, 0), array.world.geometry().k);
            array.write_at(first, 1).ask(AskKind::Flush, 0, 0);
            for column in one_too_many(&array) {
                if column != parity {
                    spoil(&mut array, column);
                }
            }
            let rebuilt = slot(&array, parity);
            array.lose(rebuilt).add();
            array.wait("it gives up or is over", |world| {
                let status = world.array().status();
                let idle = status.state == ArrayState::Optimal && status.jobs.is_empty();
                idle || !status.unreadable.is_empty()
            });
            array.steps(20 * seed);
            given_up += array.unreadable().len();
            cut_without(&mut array, 2);
            eprintln!("level {level}, seed {seed}");
            array.verify();
        }
        assert!(given_up > 0, "level {level}: nothing was given up");
    }
}

/// Of two blocks that were written at once, and acknowledged, one was given up later. The record of
/// the write fitted neither the old row nor the new one, so the other block, which the power cut
/// took with its member, was given up for nothing.
#[test]
fn an_acknowledged_block_is_not_given_up_because_another_of_its_write_was() {
    for (level, members) in [("5", 4), ("50", 8)] {
        for seed in 0..6 {
            let mut array = full(Scenario::new(level, members), seed);
            let geometry = array.world.geometry().clone();
            let (first, lost) = (block(&array, 0), block(&array, 1));
            let two = 2 * geometry.strip / geometry.block;
            array.write_at(first, two).ask(AskKind::Flush, 0, 0);
            let drives = one_too_many(&array).into_iter();
            let drives: Vec<usize> = drives.map(|c| array.drive(slot(&array, c))).collect();
            for column in one_too_many(&array) {
                spoil(&mut array, column);
            }
            let replaced = slot(&array, geometry.k);
            array.replace(replaced);
            array.wait("other content lies there", move |world| {
                let readable = |&drive: &usize| world.ssd(drive).faults.latent.is_empty();
                drives.iter().all(readable)
            });
            assert_eq!(array.unreadable(), [lost]);
            assert_eq!(array.state(), ArrayState::Optimal);
            cut_without(&mut array, 0);
            eprintln!("level {level}, seed {seed}");
            array.verify();
            assert_eq!(array.unreadable(), [lost]);
        }
    }
}

/// The same by a member that is replaced while it is still there, on a level that survives one
/// loss.
#[test]
fn a_lost_strip_is_not_computed_from_a_record_beside_which_a_replacement_gave_blocks_up() {
    for (level, members) in [("5", 4), ("50", 8)] {
        let mut given_up = 0;
        for seed in 0..6 {
            let mut array = full(Scenario::new(level, members), seed);
            let (first, parity) = (block(&array, 0), array.world.geometry().k);
            array.write_at(first, 1).ask(AskKind::Flush, 0, 0);
            for column in one_too_many(&array) {
                spoil(&mut array, column);
            }
            let replaced = slot(&array, parity);
            array.replace(replaced);
            array.wait("it gives up or is over", |world| {
                let status = world.array().status();
                status.jobs.is_empty() || !status.unreadable.is_empty()
            });
            array.steps(20 * seed);
            given_up += array.unreadable().len();
            cut_without(&mut array, 2);
            eprintln!("level {level}, seed {seed}");
            array.verify();
        }
        assert!(given_up > 0, "level {level}: nothing was given up");
    }
}

/// A block rotted beside the record of a write that was long over. The replay computed all parities
/// anew, from that block, too: no scrub could find it any more.
#[test]
fn a_replay_leaves_parity_that_tells_of_a_rotten_block() {
    for (level, draft) in levels(1) {
        for seed in 0..4 {
            let mut array = full(draft.clone(), seed);
            let first = block(&array, 0);
            array.write_at(first, 1).ask(AskKind::Flush, 0, 0);
            array.rot(STRIPE.0, 1);
            assert_eq!(region(&mut array), RegionState::Dirty);
            array.power_cut().start();
            scrub_repairs(&mut array);
            let sb = array.status().superblock;
            let found = sb.last_scrub.expect("one has ended").found.inconsistent;
            assert_eq!(found, 1, "level {level}, seed {seed}");
            if array.world.geometry().m > 1 {
                array.rest().verify();
            }
        }
    }
}

/// What lies in the data areas of all drives.
fn data(array: &Scenario) -> Vec<Vec<u8>> {
    let layout = array.world.superblock().layout;
    let all = layout.data_offset as usize..(layout.data_offset + layout.data_bytes) as usize;
    let drives = array.world.drives().iter();
    drives
        .map(|drive| drive.ssd().bytes()[all.clone()].to_vec())
        .collect()
}

/// What rotted was of the write itself. Its record and the parities know what it held.
#[test]
fn a_replay_mends_a_rotten_block_of_a_write_that_was_over() {
    for (level, draft) in levels(1) {
        let parity = draft.clone().start().world.geometry().k;
        for column in [0, parity] {
            let mut array = full(draft.clone(), 1);
            let first = block(&array, 0);
            array.write_at(first, 1).ask(AskKind::Flush, 0, 0);
            let right = data(&array);
            array.rot(STRIPE.0, column);
            assert!(data(&array) != right);
            array.power_cut().start();
            assert!(data(&array) == right, "level {level}, column {column}");
            array.verify();
        }
    }
}

/// Nothing was under way when the power went: the replay finds all of it in place.
#[test]
fn a_replay_of_writes_that_are_over_writes_nothing() {
    for (level, draft) in levels(1) {
        let mut array = full(draft, 3);
        let first = block(&array, 0);
        array.write_at(first, 1).ask(AskKind::Flush, 0, 0);
        array.power_cut();
        let before = data(&array);
        array.start();
        assert!(data(&array) == before, "level {level}");
        let nothing = |line: &str| line.contains("LogReplayed { records: 0,");
        assert!(array.world.notes(nothing) > 0, "level {level}");
    }
}

/// An administrator said that parity is true where it was not. A write took it for that, and its
/// record says of the columns that it left alone what it did. A resync made the parity true.
/// Another shard wrote in the region, so that the record counted again, and what a member held that
/// the first write had left alone was computed from it.
#[test]
fn a_lost_strip_is_not_computed_from_a_record_that_a_resync_has_outdated() {
    for (level, draft) in levels(2) {
        let mut outdated = 0;
        for seed in 0..12 {
            let draft = draft.clone().policy(WriteHole::Resync).shards(2);
            let draft = draft.clean_after_ms(LONG_MS).forgiving();
            let mut array = draft.seed(seed).start();
            array.fill().rest();
            let geometry = Arc::clone(array.world.geometry());
            let region = |stripe: u64| geometry.region(geometry.row(StripeNo(stripe)).1);
            let first = |stripe: u64| stripe * geometry.stripe_bytes() / geometry.block;
            // The resync comes to it last, and the one before it is of the other shard.
            let mut late = (1..geometry.stripes()).rev();
            let stripe = late.find(|&stripe| region(stripe) == region(stripe - 1));
            let stripe = stripe.expect("regions have several stripes");
            let drive = |column| array.drive(geometry.slot(StripeNo(stripe), column).0);
            let [missing, lost] = [1, 2].map(drive);
            array.write_at(first(stripe), 1).ask(AskKind::Flush, 0, 0);
            // As a power cut leaves it: one parity is of another write than the rest.
            array.rot(stripe, geometry.k + 1).power_cut();
            array.world.hide(missing);
            array.start_by_force();
            let closed = Setting::WriteHole(WriteHole::Closed);
            array.command(Command::Set(closed)).expect("it can be set");
            array.wait("the log covers what is written", |world| {
                world.array().status().superblock.covered
            });
            array.write_at(first(stripe), 1).ask(AskKind::Flush, 0, 0);
            let state = array.world.array().region(region(stripe));
            outdated += u32::from(state == RegionState::NeedSync);
            array.wait("the resync has passed", |world| {
                world.array().status().regions.need_sync == 0
            });
            array.rest();
            array
                .write_at(first(stripe - 1), 1)
                .ask(AskKind::Flush, 0, 0);
            array.power_cut();
            array.world.hide(lost);
            array.start().verify();
        }
        assert!(outdated > 6, "level {level}: {outdated}");
    }
}
