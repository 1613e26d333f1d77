//! What is built from strips that do not agree with each other: it is no witness against those that
//! are right.

use strake_engine::event::*;
use strake_engine::geometry::StripPart;
use strake_engine::units::{Slot, StripeNo};
use strake_format::{Layout, MapPage, SUPERBLOCK_BYTES, ScrubMode, Superblock, region_map};
use strake_sim::scenario::Scenario;
use strake_sim::workload::AskKind;
use strake_sim::world::{Drive, World};

/// What lies in a column is flipped behind the array's back; then something is built from it.
fn flipped(level: &str, members: u8, column: usize) -> Scenario {
    let mut array = Scenario::new(level, members).forgiving().start();
    array.fill().rest();
    array.rot(4, column);
    array
}

/// What every member in sync holds of a row, by slot.
fn row_of(array: &mut Scenario, stripe: u64) -> Vec<Vec<u8>> {
    let geometry = array.world.geometry().clone();
    let row = geometry.row(StripeNo(stripe)).1;
    let slots = 0..geometry.width as u8;
    let data_offset = array.world.superblock().layout.data_offset;
    let offset = data_offset + geometry.row_offset(row);
    let drives: Vec<usize> = slots.map(|slot| array.drive(slot)).collect();
    let strip = |drive: usize| {
        let drive = &array.world.drives()[drive];
        let bytes = drive.ssd().peek(offset, geometry.strip as usize);
        bytes.expect("readable").to_vec()
    };
    drives.into_iter().map(strip).collect()
}

/// Made by a rebuild of Q: the strips that it was built from had not agreed, and a repair blamed
/// the one that was right, because Q vouched for the one that was not.
#[test]
fn a_repair_leaves_alone_what_was_built_from_strips_that_did_not_agree() {
    for (level, members, wrong, gone) in [
        ("6", 6, 1, 5),
        ("6", 6, 4, 5),
        ("6", 6, 1, 2),
        ("6", 6, 4, 2),
        ("6", 6, 5, 2),
        ("6", 6, 1, 4),
    ] {
        for restarts in [false, true] {
            let mut array = flipped(level, members, wrong);
            let slot = array.world.geometry().slot(StripeNo(4), gone).0;
            array.lose(slot).add().made_whole();
            if restarts {
                array.stop().start();
            }
            let before = row_of(&mut array, 4);
            array
                .command(Command::StartScrub(ScrubMode::Repair))
                .expect("it scrubs");
            array.rest();
            let after = row_of(&mut array, 4);
            assert!(before == after, "{level}: {wrong} wrong, {gone} gone");
        }
    }
}

/// Mirror of four, one copy wrong, two members gone. What is built for the one may be a copy of the
/// wrong strip, and outvotes the right one while the other is built; a replacement of the member
/// with the right strip gets it all the same.
#[test]
fn a_replacement_has_the_strip_of_its_member_whatever_the_others_say_of_it() {
    let mut array = Scenario::new("1", 4).forgiving().start();
    array.fill().rest();
    let slot = |array: &mut Scenario, column| array.world.geometry().slot(StripeNo(4), column).0;
    let right = slot(&mut array, 2);
    let truth = row_of(&mut array, 4)[usize::from(right)].clone();
    array.rot(4, 1);
    for gone in [0, 3] {
        let gone = slot(&mut array, gone);
        array.lose(gone).steps(3000);
    }
    array.add().rest();
    assert!(
        undecided_regions(&mut array) > 0,
        "strips that differ agree"
    );
    for replaces in [true, false] {
        let new = array.world.fresh().expect("there are devices left");
        array.world.command(match replaces {
            true => Command::Replace(Slot(right), new),
            false => Command::Add(new),
        });
    }
    array.rest();
    assert!(
        array
            .world
            .looks()
            .iter()
            .all(|look| look.in_sync.is_some())
    );
    let after = row_of(&mut array, 4)[usize::from(right)].clone();
    assert!(after == truth, "the last strip that was right is gone");
    assert!(undecided_regions(&mut array) > 0, "decided by itself");
}

/// With redundancy to spare the wrong strip is located, and what is built is right.
#[test]
fn a_rebuild_does_not_believe_a_strip_that_the_others_call_wrong() {
    for (wrong, gone) in [(1, 2), (5, 2), (1, 6), (7, 6), (2, 1)] {
        let mut array = flipped("7.3", 8, wrong);
        let slot = array.world.geometry().slot(StripeNo(4), gone).0;
        array.lose(slot).add().made_whole();
        array
            .command(Command::StartScrub(ScrubMode::Repair))
            .expect("it scrubs");
        array.rest().verify();
        let last = array.status().superblock.last_scrub;
        let found = last.expect("it has ended").found;
        assert_eq!((found.inconsistent, found.located), (1, 1));
    }
}

/// RAID 5 that gets a second parity: built from data of which a part was wrong, it vouched for
/// that part.
#[test]
fn a_parity_that_is_added_does_not_vouch_for_what_it_was_built_from() {
    let mut array = flipped("5", 4, 1);
    let id = array.begin_to_add_parity(1);
    array.answer(id).expect("it can have one more");
    array.made_whole();
    let before = row_of(&mut array, 4);
    array
        .command(Command::StartScrub(ScrubMode::Repair))
        .expect("it scrubs");
    array.rest();
    assert!(before == row_of(&mut array, 4));
}

/// Whether a page of the map on any drive has undecided regions, in either place.
fn has_undecided_page(world: &World) -> bool {
    let layout = &world.superblock().layout;
    let has = |drive: &Drive, page: u32, sequence: u64| {
        let at = region_map::place(layout, page, sequence);
        let bytes = drive.ssd().peek(at, region_map::PAGE_BYTES);
        let page = bytes.and_then(|bytes| MapPage::decode(bytes, at).ok());
        page.is_some_and(|page| !page.undecided.is_empty())
    };
    let on = |drive: &Drive| {
        let mut pages = (0..layout.map_pages).flat_map(|page| [(page, 0), (page, 1)]);
        pages.any(|(page, sequence)| has(drive, page, sequence))
    };
    world.drives().iter().any(on)
}

/// Of the copies of superblocks on the drives that serve: those that say that there may be such
/// pages, and all.
fn copies_that_say_so(world: &World) -> (usize, usize) {
    let members = world.drives().iter();
    let members = members.filter(|drive| !drive.is_hidden() && !drive.ssd().faults.gone);
    let copies = members.flat_map(|drive| {
        let offsets = Layout::superblock_offsets(drive.ssd().len());
        offsets.into_iter().filter_map(|at| {
            let bytes = drive.ssd().peek(at, SUPERBLOCK_BYTES)?;
            Superblock::decode(bytes, at).ok()
        })
    });
    let said: Vec<bool> = copies.map(|sb| sb.undecided).collect();
    (said.iter().filter(|says| **says).count(), said.len())
}

/// RAID 6, a wrong block, and Q on a new member: one region is undecided.
pub(crate) fn undecided(seed: u64) -> Scenario {
    let mut array = Scenario::new("6", 6).seed(seed).forgiving().start();
    array.fill().rest();
    array.rot(4, 1);
    let slot = array.world.geometry().slot(StripeNo(4), 5).0;
    array.lose(slot).add().made_whole();
    array
}

/// A program that knows nothing of undecided regions does not believe the page that has one, and
/// went by the version before: it must not start the array at all.
#[test]
fn superblocks_say_that_there_may_be_undecided_regions_before_a_page_has_one() {
    let mut seen = 0;
    for seed in 0..30 {
        let mut array = Scenario::new("6", 6).seed(seed).forgiving().start();
        array.fill().rest();
        array.rot(4, 1);
        assert_eq!(copies_that_say_so(&array.world).0, 0);
        let slot = array.world.geometry().slot(StripeNo(4), 5).0;
        array.lose(slot).add();
        let gone = array.world.drives().iter().filter(|d| d.ssd().faults.gone);
        assert_eq!(gone.count(), 1);
        array.wait("a page has it", |world| has_undecided_page(world));
        array.power_cut();
        if has_undecided_page(&array.world) {
            seen += 1;
            let (so, all) = copies_that_say_so(&array.world);
            assert_eq!((so, all), (12, 12), "seed {seed}");
        }
        array.start();
        array.made_whole();
        assert_eq!(copies_that_say_so(&array.world), (12, 12), "seed {seed}");
    }
    assert!(seen > 5, "{seen}");
}

/// An array that no program from before could use for ever would have to be made anew.
#[test]
fn superblocks_say_so_no_more_when_no_region_is_undecided() {
    for (seed, discards) in [(1, false), (2, true)] {
        let mut array = undecided(seed);
        assert_eq!(copies_that_say_so(&array.world), (12, 12));
        match discards {
            true => {
                array.begin_to_discard().rest();
            }
            false => {
                array.write_all().rest();
                array.begin_to_scrub().rest();
            }
        }
        array.rest();
        assert_eq!(copies_that_say_so(&array.world), (0, 12), "{discards}");
        array.stop().start();
        array.rest();
        assert_eq!(copies_that_say_so(&array.world), (0, 12), "{discards}");
    }
}

/// The parity that did not agree left with its member. What was built instead agrees with the wrong
/// block, and so did all: a scrub called that decided.
#[test]
fn agreement_is_no_proof_once_a_strip_was_built_from_the_others() {
    let witnessed = |array: &mut Scenario| {
        let status = array.status();
        status.superblock.witnessed
    };
    for returns in [false, true] {
        let mut array = undecided(9);
        assert_eq!(
            (undecided_regions(&mut array), witnessed(&mut array)),
            (1, true)
        );
        assert_eq!(inconsistent(&mut array), 1);
        let slot = array.world.geometry().slot(StripeNo(4), 4).0;
        array.lose(slot).add().made_whole();
        assert_eq!(inconsistent(&mut array), 0);
        assert_eq!(
            (undecided_regions(&mut array), witnessed(&mut array)),
            (1, false)
        );
        if returns {
            array.stop().start();
            array.rest();
        }
        // Nor does it matter that all of it is written anew: nobody knows what of it was.
        array.write_all().rest();
        assert_eq!(inconsistent(&mut array), 0);
        assert_eq!(undecided_regions(&mut array), 1);
        array.command(Command::AcceptData).expect("it is undecided");
        array.rest();
        array.steps(1000);
        array.rest();
        assert_eq!(
            (undecided_regions(&mut array), witnessed(&mut array)),
            (0, false)
        );
        assert_eq!(copies_that_say_so(&array.world), (0, 12));
    }
}

fn undecided_regions(array: &mut Scenario) -> usize {
    array.status().undecided.len()
}

/// What a scrub of everything finds: stripes that do not agree.
fn inconsistent(array: &mut Scenario) -> u64 {
    array
        .command(Command::StartScrub(ScrubMode::Check))
        .expect("it scrubs");
    array.rest();
    let last = array.status().superblock.last_scrub;
    last.expect("it has ended").found.inconsistent
}

/// What lies in the data columns of stripe 4.
fn data_of(array: &mut Scenario) -> Vec<Vec<u8>> {
    let slots = (0..array.world.geometry().k).map(|column| {
        let slot = array.world.geometry().slot(StripeNo(4), column);
        slot.index()
    });
    let slots: Vec<usize> = slots.collect();
    let row = row_of(array, 4);
    slots.into_iter().map(|slot| row[slot].clone()).collect()
}

#[test]
fn data_in_an_undecided_region_is_taken_for_right_when_that_is_said() {
    let mut array = undecided(7);
    let data = data_of(&mut array);
    assert_eq!(
        (undecided_regions(&mut array), inconsistent(&mut array)),
        (1, 1)
    );
    array.command(Command::AcceptData).expect("it is undecided");
    array.rest();
    assert_eq!(
        (undecided_regions(&mut array), inconsistent(&mut array)),
        (0, 0)
    );
    assert!(data == data_of(&mut array), "what users read was changed");
    assert_eq!(copies_that_say_so(&array.world), (0, 12));
    let refused = array.command(Command::AcceptData);
    assert_eq!(refused, Err(CommandError::NothingUndecided));
}

#[test]
fn nothing_is_decided_while_a_member_is_missing() {
    let mut array = undecided(8);
    // The array knows of it by an I/O that fails.
    array.lose(0).write(20).rest();
    let refused = array.command(Command::AcceptData);
    assert_eq!(refused, Err(CommandError::NotOptimal));
    assert_eq!(undecided_regions(&mut array), 1);
}

/// The page that says so must not be durable before the parity is.
#[test]
fn a_region_whose_decision_was_cut_off_is_undecided_or_agrees() {
    let (mut decided, mut undecided_still) = (0, 0);
    for events in 0..150 {
        let mut array = undecided(events + 1);
        let data = data_of(&mut array);
        array.world.command(Command::AcceptData);
        array.steps(events).power_cut().start();
        array.rest();
        assert!(data == data_of(&mut array), "after {events}");
        if undecided_regions(&mut array) == 0 {
            decided += 1;
            assert_eq!(inconsistent(&mut array), 0, "after {events}");
            continue;
        }
        undecided_still += 1;
        array.command(Command::AcceptData).expect("it is undecided");
        array.rest();
        assert_eq!(
            (undecided_regions(&mut array), inconsistent(&mut array)),
            (0, 0)
        );
    }
    assert!(
        decided > 10 && undecided_still > 10,
        "{decided} {undecided_still}"
    );
}

/// The parity that does not agree could not be read, and a scrub took the agreement of the rest for
/// a proof.
#[test]
fn a_strip_that_cannot_be_read_does_not_agree() {
    let mut array = undecided(10);
    let geometry = array.world.geometry().clone();
    let (slot, row) = (geometry.slot(StripeNo(4), 4), geometry.row(StripeNo(4)).1.0);
    array.spoil_block(slot.0, row, 0);
    assert_eq!(inconsistent(&mut array), 0);
    assert_eq!(undecided_regions(&mut array), 1);
    let drive = array.drive(slot.0);
    array.world.ssd_mut(drive).faults.latent.clear();
    assert_eq!(inconsistent(&mut array), 1);
    assert_eq!(undecided_regions(&mut array), 1);
}

/// It lacks parity that was computed while it was away, and nothing says that the region is behind.
#[test]
fn a_member_that_comes_and_goes_meanwhile_leaves_the_region_undecided() {
    let (mut decided, mut undecided_still, mut kept) = (0, 0, 0);
    for events in 0..120 {
        let mut array = undecided(events + 1);
        let slot = (events % 6) as u8;
        array.world.command(Command::AcceptData);
        array.steps(events);
        let drive = array.drive(slot);
        let last = array.world.blocks() - 1;
        array.pull(slot).write_at(last, 1).rest();
        match array.bring_back(drive).offer(drive) {
            Ok(()) => kept += 1,
            Err(_) => _ = array.add(),
        }
        array.made_whole();
        match undecided_regions(&mut array) {
            0 => {
                decided += 1;
                assert_eq!(inconsistent(&mut array), 0, "after {events}");
            }
            _ => undecided_still += 1,
        }
    }
    assert!(kept > 10, "{kept}");
    assert!(
        decided > 10 && undecided_still > 10,
        "{decided} {undecided_still}"
    );
}

/// Reads the first block of a strip that has a media error there, beside a strip that rotted. With
/// the drive of that strip.
fn read_beside_rot(level: &str, members: u8, wrong: usize, seed: u64) -> (Scenario, usize) {
    let mut array = Scenario::new(level, members).seed(seed).forgiving().start();
    array.fill().rest();
    array.rot(4, wrong);
    let geometry = array.world.geometry().clone();
    let (stripe, column) = (StripeNo(4), 2);
    let (slot, row) = (geometry.slot(stripe, column), geometry.row(stripe).1);
    array.spoil_block(slot.0, row.0, 0);
    let (lo, hi) = (0, geometry.block);
    let part = StripPart {
        stripe,
        column,
        lo,
        hi,
    };
    let block = geometry.blocks(&part).start;
    array.ask(AskKind::Read, block, 1).rest();
    let drive = array.drive(slot.0);
    (array, drive)
}

/// Computed from a strip that is wrong, and written back, it agreed with that one: a repair named
/// and overwrote the parity that was right.
#[test]
fn a_sector_that_cannot_be_read_is_not_rewritten_from_strips_that_do_not_agree() {
    for (seed, wrong) in [(1, 1), (2, 4), (3, 5), (4, 0)] {
        let (mut array, drive) = read_beside_rot("6", 6, wrong, seed);
        // Its medium is looked at as if it could be read.
        let latent = std::mem::take(&mut array.world.ssd_mut(drive).faults.latent);
        assert!(!latent.is_empty(), "{wrong} is wrong: it was written over");
        let before = row_of(&mut array, 4);
        array.world.ssd_mut(drive).faults.latent = latent;
        array
            .command(Command::StartScrub(ScrubMode::Repair))
            .expect("it scrubs");
        array.rest();
        array.world.ssd_mut(drive).faults.latent.clear();
        assert!(before == row_of(&mut array, 4), "{wrong} is wrong");
    }
}

/// With redundancy to spare the wrong strip is located: the answer is right, and so is what is
/// written back.
#[test]
fn a_sector_that_cannot_be_read_is_rewritten_without_the_strip_that_is_wrong() {
    for (seed, wrong) in [(1, 1), (2, 5), (3, 6), (4, 0)] {
        let (mut array, drive) = read_beside_rot("7.3", 8, wrong, seed);
        array.wait("it is rewritten", |world| {
            world.ssd(drive).faults.latent.is_empty()
        });
        array
            .command(Command::StartScrub(ScrubMode::Repair))
            .expect("it scrubs");
        array.rest().verify();
        let last = array.status().superblock.last_scrub;
        let found = last.expect("it has ended").found;
        assert_eq!(
            (found.inconsistent, found.located),
            (1, 1),
            "{wrong} is wrong"
        );
    }
}

/// Rows that do not agree stop a move; what is decided lets it go on.
#[test]
fn data_moves_on_over_rows_that_were_undecided() {
    let mut array = Scenario::new("5", 4).roomy_log().forgiving().start();
    array.fill().rest();
    array.rot(20, 1);
    let id = array.begin_to_add_parity(1);
    array.answer(id).expect("it can have one more");
    array.made_whole();
    assert_eq!(undecided_regions(&mut array), 1);
    let data = DataShape {
        rotate: true,
        ..DataShape::default()
    };
    let devices = Vec::new();
    array
        .command(Command::Restripe(NewShape { devices, data }))
        .expect("it can");
    array.rest();
    let moves = |array: &mut Scenario| {
        let status = array.status();
        status.superblock.moving.is_some()
    };
    assert!(moves(&mut array), "rows that do not agree were moved");
    array.command(Command::AcceptData).expect("it is undecided");
    array.rest();
    assert_eq!(undecided_regions(&mut array), 0);
    array
        .command(Command::ContinueRestripe)
        .expect("it stopped");
    array.rest();
    assert!(!moves(&mut array));
    assert_eq!(inconsistent(&mut array), 0);
}
