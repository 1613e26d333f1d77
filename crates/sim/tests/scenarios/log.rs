//! What power cuts leave of writes, and what the next starts make of it.

use strake_engine::event::{Command, Setting};
use strake_engine::units::{RegionNo, StripeNo};
use strake_format::{RegionState, SlotState, Superblock, WriteHole};
use strake_sim::scenario::Scenario;
use strake_sim::workload::AskKind;
use strake_sim::world::World;

/// Two writes of one stripe became one operation: what one of them left alone of a column lay, as
/// the partial syndrome, on the member of that very column, because the other wrote there.
#[test]
fn a_cut_in_a_write_of_different_parts_of_columns_keeps_what_neither_wrote() {
    for seed in 0..60 {
        let mut raid5 = Scenario::new("5", 4).small_blocks().seed(seed).start();
        raid5.write_all().rest();
        let geometry = raid5.world.geometry().clone();
        let strip = geometry.strip / geometry.block;
        let stripe = geometry.k as u64 * strip;
        // Behind a write of the whole stripe they wait for each other, and are gathered.
        raid5.begin_to_overwrite();
        for first in (0..raid5.world.blocks()).step_by(stripe as usize) {
            raid5.begin_to_write_blocks(first, strip / 2);
            raid5.begin_to_write_blocks(first + strip + strip / 2, strip / 2);
        }
        raid5.steps(400 + 23 * seed).power_cut();
        raid5.world.hide(seed as usize % 4);
        raid5.start().verify();
    }
}

/// A replay listed blocks that cannot be computed any more, and the array served before its shards
/// had the list: the first reads returned the zeros that stand for them.
#[test]
fn what_a_replay_gives_up_is_never_read_however_late_shards_hear_of_it() {
    let mut given_up = 0;
    for seed in 0..50 {
        let draft = Scenario::new("5", 4).message_ns(5_000_000).seed(seed);
        let mut raid5 = draft.start();
        raid5.write_all().rest();
        raid5.begin_to_overwrite().steps(10 + 6 * seed).power_cut();
        raid5.world.hide(seed as usize % 4);
        raid5.start().verify();
        given_up += raid5.unreadable().len();
    }
    assert!(given_up > 0, "no write was cut off half in place");
}

/// An outage left the copies of a mirror different, and the mirror answered reads from the first of
/// them. A flush did not update the others: after another outage that took the first copy, an older
/// version came back.
#[test]
fn what_a_mirror_answered_before_its_resync_stays_when_the_copy_that_spoke_is_lost() {
    for seed in 0..40 {
        for (level, members) in [("1", 2), ("10", 4)] {
            let draft = Scenario::new(level, members).seed(seed);
            let mut mirror = draft.policy(WriteHole::Resync).start();
            mirror.write_all().rest();
            mirror.begin_to_overwrite().steps(40 + 7 * seed).power_cut();
            mirror.start().slow(1).verify().ask(AskKind::Flush, 0, 0);
            mirror.power_cut();
            mirror.world.hide(0);
            mirror.start().verify();
        }
    }
}

/// What waited for a resync was called Dirty on the members still. As soon as the log was on, the
/// next start took it for covered by the log: parity stayed untrue for good, and the next loss
/// brought back what never was.
#[test]
fn a_resync_that_is_due_is_not_forgotten_when_the_log_is_turned_on() {
    let mut untrue = 0;
    for seed in 0..60 {
        let draft = Scenario::new("5", 4).policy(WriteHole::Resync);
        let mut raid5 = draft.seed(seed).start();
        raid5.write_all().rest();
        raid5.begin_to_overwrite().steps(100 + 10 * seed);
        let closed = Setting::WriteHole(WriteHole::Closed);
        raid5.world.command(Command::Set(closed));
        raid5.steps(40).power_cut().start();
        let regions = 0..raid5.world.geometry().regions();
        let state = |region| raid5.world.array().region(RegionNo(region));
        untrue += regions
            .map(state)
            .filter(|state| *state == RegionState::NeedSync)
            .count();
        raid5.power_cut().start().rest().lose(1).verify();
    }
    assert!(untrue > 0, "no stripe was cut off without a record");
}

/// A member that had been away still had the record of a write from before. What told that it was
/// retired, and the newer record of the same blocks, were on the one member that the next outage
/// took: the replay solved that member's strip from what it had been before it was written.
#[test]
fn records_of_a_member_that_was_away_are_not_believed_when_it_is_back() {
    for (level, members) in [("5", 4), ("6", 5)] {
        let mut array = Scenario::new(level, members).start();
        array.write_all().rest();
        let geometry = array.world.geometry().clone();
        let (stripe, parity) = (StripeNo(4), geometry.k);
        let slot = |column: usize| geometry.slot(stripe, column).0;
        let block = |column: u64| {
            (stripe.0 * geometry.stripe_bytes() + column * geometry.strip) / geometry.block
        };
        let (taken, away) = (array.drive(slot(0)), array.drive(slot(parity)));
        array.write_at(block(1), 1);
        array.lose(slot(parity)).steps(500);
        array.write_at(block(0), 1).ask(AskKind::Flush, 0, 0);
        array.offer(away).expect("it is kept");
        array.made_whole().power_cut();
        array.world.hide(taken);
        array.start().verify();
    }
}

/// Writes that began while a member was away have their records on one member less. They were
/// under way still when the member was called in sync, and the outage took the one that had them.
#[test]
fn writes_under_way_while_a_member_comes_in_sync_survive_an_outage_that_takes_another() {
    for seed in 0..120 {
        let mut raid5 = Scenario::new("5", 4).seed(seed).start();
        raid5.write_all().rest();
        let away = raid5.drive(3);
        raid5.lose(3).steps(300);
        raid5.write_at(seed, 1);
        raid5.offer(away).expect("it is kept");
        raid5.world.command(Command::StartRebuild);
        // So says what lies on every drive.
        let whole = |world: &World| {
            let in_sync = |sb: &Superblock| sb.slots[3].state == SlotState::InSync;
            world.present().iter().all(|(_, sb)| in_sync(sb))
        };
        let mut block = 0;
        while !whole(&raid5.world) {
            if raid5.world.under_way() < 12 {
                raid5.begin_to_write_at((block * 7 + seed) % raid5.world.blocks());
                block += 1;
            }
            raid5.steps(1);
        }
        let taken = raid5.drive((seed % 3) as u8);
        raid5.steps(seed % 30).power_cut();
        raid5.world.hide(taken);
        raid5.start().verify();
    }
}

/// A recovery that was cut off left batches of settled records behind, the newest of them not in
/// place yet. The next one began with the others, and wrote its second batch over the newest before
/// it came to that: cut off once more, the array forgot that write, and its parity stayed untrue.
#[test]
fn a_replay_that_is_cut_off_again_and_again_forgets_nothing() {
    let mut cut = 0;
    for seed in 0..300 {
        let mut raid50 = Scenario::new("50", 8).no_caches().seed(seed).start();
        raid50.write_all().rest();
        raid50.begin_to_write(40, 200 + seed % 60).power_cut();
        for round in 0..6 {
            raid50
                .begin_to_start()
                .steps(10 + (seed * 7 + round * 13) % 90);
            if raid50.world.serves() {
                break;
            }
            raid50.power_cut();
            cut += 1;
        }
        if !raid50.world.lives() {
            raid50.start();
        }
        raid50
            .rest()
            .begin_to_scrub()
            .rest()
            .lose(1)
            .lose(6)
            .verify();
    }
    assert!(cut > 300, "{cut} replays were cut off");
}

/// The last write before an outage is over and its region Clean, so its record does not count. A
/// member that was pulled after it comes back with all of it, and another cannot read its part:
/// what came back makes that good.
#[test]
fn what_a_member_that_came_back_holds_of_a_quiet_region_is_enough_without_its_record() {
    for seed in 0..24u64 {
        let (name, members) = [("5", 4), ("6", 5), ("7.3", 6)][seed as usize % 3];
        let mut array = Scenario::new(name, members).seed(seed).start();
        array.fill().rest().sleep();
        let geometry = (*array.world.geometry()).clone();
        let stripe = StripeNo(seed % 12);
        let strip = geometry.strip / geometry.block;
        let first = stripe.0 * geometry.stripe_bytes() / geometry.block;
        array.write_at(first, 2 * strip).rest().sleep();
        let slot = |column: usize| geometry.slot(stripe, column).0;
        let away = array.drive(slot(1));
        let unreadable = array.drive(slot(0));
        array.lose(slot(1)).ask(AskKind::Flush, 0, 0);
        array.rest().power_cut();
        let row = geometry.row(stripe).1.0;
        array.spoil_drive(unreadable, row, 0);
        array.bring_back(away);
        let before = array.world.stats().records_replayed;
        array.start().rest().verify();
        assert_eq!(array.world.stats().records_replayed, before);
        assert_eq!(array.unreadable(), []);
        array.add().rest();
        array.begin_to_scrub().rest().verify();
        for lost in 0..geometry.m {
            array.lose(slot(2 + lost)).rest();
        }
        array.verify();
    }
}
