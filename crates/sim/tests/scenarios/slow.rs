//! Members that are slow: read around, told of, and never believed any less.

use strake_engine::event::{Command, Setting};
use strake_engine::status::LatencyStatus;
use strake_engine::units::{RegionNo, StripeNo};
use strake_format::{RegionState, WriteHole};
use strake_sim::scenario::Scenario;
use strake_sim::workload::{Ask, AskKind};

/// What is told of the member in a slot.
fn latency(array: &mut Scenario, slot: usize) -> LatencyStatus {
    array.status().members[slot].latency
}

/// So many reads that every member has shown how quick it is.
fn show_how_quick(array: &mut Scenario) {
    for _ in 0..24 {
        array.read_each_us();
    }
}

#[test]
fn reads_of_a_member_that_stands_still_are_answered_by_the_others_in_time() {
    for (level, members) in [
        ("1", 2),
        ("1", 3),
        ("5", 4),
        ("6", 6),
        ("7.3", 6),
        ("10", 6),
        ("50", 6),
        ("n+m", 7),
    ] {
        let mut array = Scenario::new(level, members).hedging(1, 64).start();
        array.fill().rest();
        show_how_quick(&mut array);
        array.sleep().pause(0, 10_000);
        let slowest_us = array.read_each_us();
        assert!(slowest_us < 4_000, "level {level}: {slowest_us} us");
        let hedges = array.hedges();
        assert!(hedges.won > 0, "level {level}: {hedges:?}");
        array.verify();
    }
}

#[test]
fn a_member_that_is_late_with_a_read_in_place_is_waited_for_once_and_then_read_around() {
    for (level, members) in [("1", 2), ("5", 4), ("6", 6), ("50", 6)] {
        let mut array = Scenario::new(level, members)
            .hedging(1, 64)
            .in_place()
            .queues(1)
            .start();
        array.fill().rest();
        show_how_quick(&mut array);
        array.sleep().pause(0, 10_000);
        // No other copy may answer where it may still write.
        assert!(array.read_each_us() > 40_000, "level {level}");
        let told = array.hedges();
        assert!(told.refused > 0, "level {level}: {told:?}");
        assert!(
            told.won > 0,
            "level {level}: others were read into buffers: {told:?}"
        );
        array.pause(0, 0).sleep();
        show_how_quick(&mut array);
        array.verify();
    }
}

#[test]
fn a_late_read_in_place_delays_what_was_under_way_and_nothing_that_came_after_it() {
    let draft = Scenario::new("5", 4).hedging(1, 64).in_place();
    let mut raid5 = draft.queues(1).start();
    raid5.fill().rest();
    show_how_quick(&mut raid5);
    raid5.sleep().pause(0, 10_000);
    let on_first = |array: &Scenario, block: u64| {
        let geometry = &array.world.geometry();
        let place = geometry.locate(block * geometry.block);
        geometry.slot(place.stripe, place.column).0 == 0
    };
    let blocks = 0..raid5.world.blocks();
    let blocks: Vec<u64> = blocks.filter(|&block| on_first(&raid5, block)).collect();
    let begun = raid5.world.now();
    let since_us = |array: &Scenario| array.world.now().since(begun) / 1000;
    raid5.begin(AskKind::Read, blocks[0], 1);
    while since_us(&raid5) < 2_000 {
        raid5.steps(1);
    }
    for &block in &blocks[1..] {
        let asked = raid5.world.under_way();
        let at_us = since_us(&raid5);
        raid5.begin(AskKind::Read, block, 1);
        while raid5.world.under_way() > asked {
            raid5.steps(1);
        }
        let took_us = since_us(&raid5) - at_us;
        assert!(took_us < 4_000, "{took_us} us, at {at_us} us");
        if since_us(&raid5) > 30_000 {
            break;
        }
    }
    assert_eq!(
        raid5.world.under_way(),
        1,
        "the first one waits for its member"
    );
    raid5.pause(0, 0).rest();
    assert!(raid5.hedges().won > 0);
    raid5.verify();
}

#[test]
fn without_hedged_reads_a_member_that_stands_still_is_waited_for() {
    let mut raid5 = Scenario::new("5", 4).hedging(1, 64).start();
    raid5.fill().rest();
    let off = Command::Set(Setting::HedgedReads(false));
    raid5.command(off).expect("they can be turned off");
    show_how_quick(&mut raid5);
    raid5.sleep().pause(0, 10_000);
    assert!(raid5.read_each_us() > 40_000);
    assert_eq!(raid5.hedges().issued, 0);
    // It is remembered.
    raid5.stop().start().pause(0, 0);
    let settings = raid5.status().superblock.settings;
    assert!(!settings.hedged_reads);
}

#[test]
fn nothing_is_hedged_while_the_array_has_lost_as_many_members_as_it_can_bear() {
    let mut raid5 = Scenario::new("5", 4).hedging(1, 64).start();
    raid5.fill().rest();
    show_how_quick(&mut raid5);
    raid5.lose(1).steps(3000).sleep();
    let before = raid5.hedges();
    raid5.pause(0, 10_000);
    assert!(raid5.read_each_us() > 40_000);
    assert_eq!(raid5.hedges(), before);
    raid5.pause(0, 0).verify();
}

#[test]
fn parity_that_waits_for_its_resync_answers_no_hedge() {
    let mut raid5 = Scenario::new("5", 4)
        .policy(WriteHole::Resync)
        .hedging(1, 64)
        .start();
    raid5.fill().rest();
    raid5.begin_to_overwrite().steps(60).power_cut();
    // One read shows how quick a member is, and no resync gets on while one stands still.
    raid5.world.hedging().samples_min = 1;
    raid5.start().pause(2, 10_000);
    let geometry = raid5.world.geometry().clone();
    let blocks = 0..raid5.world.blocks();
    let (mut late, mut others) = (Vec::new(), Vec::new());
    // Some region may be resynced already; the last one is not.
    let waiting = (0..geometry.regions())
        .map(RegionNo)
        .filter(|&region| raid5.world.array().region(region) == RegionState::NeedSync);
    let last = waiting.last().expect("regions were being written");
    for block in blocks {
        let place = geometry.locate(block * geometry.block);
        let region = geometry.region(geometry.row(place.stripe).1);
        let waits = region == last;
        match geometry.slot(place.stripe, place.column).0 {
            3 if waits => late.push(block),
            0 | 1 if waits => others.push(block),
            _ => {}
        }
    }
    let begun = raid5.world.now();
    late.iter().chain(&others).for_each(|&block| {
        raid5.read_us(block, 1);
    });
    raid5.pause(3, 10_000);
    for &first in &late {
        let (kind, count, fua) = (AskKind::Read, 1, false);
        let ask = Ask {
            kind,
            first,
            count,
            fua,
        };
        raid5.world.submit(ask).expect("it is asked");
    }
    while raid5.world.now().since(begun) < 20_000_000 {
        raid5.steps(1);
    }
    assert!(
        !late.is_empty() && raid5.world.under_way() == late.len(),
        "{late:?}"
    );
    let told = latency(&mut raid5, 3).read;
    assert!(told.is_some(), "its latency was learned");
    raid5.pause(2, 0).pause(3, 0).rest().verify();
}

#[test]
fn an_answer_that_comes_after_its_member_was_replaced_is_nobodys() {
    let mut raid6 = Scenario::new("6", 6).hedging(1, 64).start();
    raid6.fill().rest();
    show_how_quick(&mut raid6);
    raid6.sleep().pause(2, 10_000);
    raid6.begin_to_read();
    while !raid6.world.all_answered() {
        raid6.steps(1);
    }
    // All is answered while reads of the slow one are still on their way.
    let drive = raid6.drive(2);
    assert!(raid6.world.ssd(drive).waiting());
    raid6.lose(2).add().write(20).made_whole().verify();
    assert!(!raid6.world.ssd(drive).waiting());
    raid6.power_cut().start().rest().verify();
}

#[test]
fn an_error_that_comes_late_is_counted_and_the_sector_repaired() {
    let mut raid5 = Scenario::new("5", 4).forgiving().hedging(1, 64).start();
    raid5.fill().rest();
    show_how_quick(&mut raid5);
    raid5.sleep().spoil(1, 3).pause(1, 10_000);
    let slowest_us = raid5.read_each_us();
    assert!(slowest_us < 4_000, "{slowest_us} us");
    raid5.sleep();
    let member = raid5.status().members.remove(1);
    let spoilt = member.read_errors;
    let drive = raid5.drive(1);
    let left = raid5.world.ssd(drive).faults.latent.len() as u64;
    assert!(
        spoilt > 0 && left == 0,
        "{spoilt} errors, {left} sectors left"
    );
    assert_eq!(raid5.world.stats().repairs, spoilt);
    raid5.pause(1, 0).verify();
}

#[test]
fn what_neither_the_member_nor_the_others_can_read_is_an_error_and_nothing_else_is() {
    let mut raid5 = Scenario::new("5", 4).forgiving().hedging(1, 64).start();
    raid5.fill().rest();
    show_how_quick(&mut raid5);
    raid5.sleep();
    raid5.spoil_block(0, 3, 0).spoil_block(1, 3, 0);
    raid5.pause(0, 10_000).verify();
    let fails = raid5.fails();
    // Two data columns of a row, or one and a parity, which holds no block of the user.
    assert!((1..=2).contains(&fails.len()), "{fails:?}");
    raid5.pause(0, 0).verify();
    assert_eq!(raid5.fails(), fails);
    for block in fails {
        raid5.ask(AskKind::Write, block, 1);
    }
    raid5.verify();
    assert_eq!(raid5.fails(), []);
}

#[test]
fn hedges_stay_within_their_budget() {
    let mut raid5 = Scenario::new("5", 4).hedging(20, 2).start();
    raid5.fill().rest();
    let rounds = 12;
    for round in 0..rounds {
        // Half of what one member is asked for takes a hundred times as long.
        let drive = raid5.drive(0);
        raid5.world.ssd_mut(drive).faults.hiccup_one_in = if round < 4 { 0 } else { 2 };
        raid5.read_each_us();
    }
    let hedges = raid5.hedges();
    let reads = rounds * raid5.world.blocks();
    let shards = u64::from(raid5.world.plan().shards);
    let most = reads / 20 + 2 * shards;
    assert!(
        hedges.issued > 0 && hedges.issued <= most,
        "{hedges:?}, {most} at most"
    );
    assert!(hedges.refused > 0, "{hedges:?}");
    assert_eq!(hedges.issued, hedges.won + hedges.lost);
    raid5.verify();
}

#[test]
fn a_member_that_is_slow_for_long_is_told_of_and_again_when_it_recovers() {
    let mut raid6 = Scenario::new("6", 6).hedging(20, 2).start();
    raid6.fill().rest();
    let rounds = |raid6: &mut Scenario, until_slow: bool| {
        for round in 0..400 {
            raid6.read_each_us();
            if latency(raid6, 4).slow == until_slow {
                return round;
            }
        }
        panic!("nothing is told of it");
    };
    raid6.slow(4);
    rounds(&mut raid6, true);
    let told = latency(&mut raid6, 4).read.expect("it was read from");
    let peer = latency(&mut raid6, 0).read.expect("it was read from");
    assert!(told.p50_ns > 10 * peer.p50_ns, "{told:?} beside {peer:?}");
    let slow = |line: &str| line.contains("MemberSlow { slot: Slot(4)");
    assert_eq!(raid6.world.notes(slow), 1);
    assert_eq!(raid6.world.stats().slow_members, 1);
    let drive = raid6.drive(4);
    raid6.world.ssd_mut(drive).faults.slowness = 1;
    rounds(&mut raid6, false);
    for slot in [0, 1, 2, 3, 5] {
        assert!(!latency(&mut raid6, slot).slow);
    }
    let quiet = |line: &str| line.contains("MemberNoLongerSlow");
    assert_eq!(raid6.world.notes(quiet), 1);
}

/// It was called slow by its first read after the pause, as if it had been slow all the time.
#[test]
fn time_in_which_nothing_is_read_makes_no_member_slow() {
    let mut raid6 = Scenario::new("6", 6).hedging(20, 2).start();
    raid6.fill().rest().stop();
    raid6.world.hedging().slow_after_ns = 1_000_000_000;
    raid6.start().slow(4);
    // It looks slow, but not for long enough.
    let begun = raid6.world.now();
    while raid6.world.now().since(begun) < 800_000_000 {
        raid6.read_each_us();
    }
    assert!(!latency(&mut raid6, 4).slow);
    raid6.sleep();
    raid6.world.pass(60_000_000_000);
    raid6.read_each_us();
    assert!(!latency(&mut raid6, 4).slow);
    let begun = raid6.world.now();
    while raid6.world.now().since(begun) < 1_200_000_000 {
        raid6.read_each_us();
    }
    assert!(latency(&mut raid6, 4).slow);
}

/// Reads of one member race: they are late and answered by the others.
fn racing(level: &str, members: u8) -> Scenario {
    let mut array = Scenario::new(level, members).hedging(1, 64).start();
    array.fill().rest();
    show_how_quick(&mut array);
    array.sleep().pause(0, 10_000);
    array.read_each_us();
    let drive = array.drive(0);
    assert!(array.world.ssd(drive).waiting(), "some still race");
    array
}

#[test]
fn an_array_that_is_stopped_while_reads_race_waits_for_the_late_ones_and_stops() {
    for (level, members) in [("1", 2), ("5", 4), ("6", 6)] {
        let mut array = racing(level, members);
        array.stop().start().verify();
    }
}

#[test]
fn hedged_reads_are_turned_off_and_on_while_some_race() {
    let mut raid5 = racing("5", 4);
    let set = |on| Command::Set(Setting::HedgedReads(on));
    raid5.command(set(false)).expect("they can be turned off");
    assert!(raid5.read_each_us() > 40_000, "no read is hedged any more");
    let before = raid5.hedges();
    assert_eq!(before.issued, before.won + before.lost);
    raid5.command(set(true)).expect("and on again");
    raid5.read_each_us();
    assert!(raid5.hedges().won > before.won);
    raid5.verify();
}

/// As in any degraded read: the hedge is as good as the strips that it is computed from.
#[test]
fn a_strip_that_lies_shows_in_a_hedge_beside_it_until_a_scrub_has_passed() {
    for (level, members) in [("5", 4), ("6", 6)] {
        // The shard that reads has read from that member before.
        let draft = Scenario::new(level, members).hedging(1, 64);
        let mut array = draft.queues(1).start();
        array.fill().rest();
        show_how_quick(&mut array);
        let geometry = array.world.geometry().clone();
        array.sleep().rot(3, 1);
        let late = geometry.slot(StripeNo(3), 0).0;
        let won = array.hedges().won;
        array.pause(late, 10_000);
        let first = 3 * geometry.stripe_bytes() / geometry.block;
        assert!(array.read_us(first, 1) < 4_000);
        assert_eq!(array.hedges().won, won + 1);
        array.pause(late, 0).cure().verify();
    }
}

#[test]
fn rules_of_nothing_hedge_no_read_of_a_member_that_nothing_is_known_of() {
    let mut raid5 = Scenario::new("5", 4).hedging(1, 64).start();
    raid5.fill().rest().stop();
    let rules = raid5.world.hedging();
    (rules.samples_min, rules.one_in, rules.look_every_ns) = (0, 0, 0);
    (rules.floor_ns, rules.ceiling_ns, rules.burst) = (1_000_000, 0, u32::MAX);
    raid5.start().pause(0, 10_000);
    let on_first = |array: &Scenario, block: &u64| {
        let place = array
            .world
            .geometry()
            .locate(block * array.world.geometry().block);
        array.world.geometry().slot(place.stripe, place.column).0 == 0
    };
    let mut blocks = 0..raid5.world.blocks();
    let first = blocks.find(|block| on_first(&raid5, block));
    assert!(raid5.read_us(first.expect("it holds data"), 1) > 40_000);
    assert_eq!(raid5.hedges().issued, 0);
    // One read says how long it takes, and the others' say that this is long.
    raid5.read_each_us();
    assert!(raid5.hedges().won > 0);
    raid5.verify();
}

#[test]
fn an_array_that_is_asked_for_nothing_falls_asleep() {
    let mut raid5 = Scenario::new("5", 4).hedging(1, 64).start();
    raid5.fill().rest().verify().sleep();
    assert!(raid5.world.is_asleep());
}

/// A reader of histograms takes one that shrinks for one that began anew.
#[test]
fn what_was_measured_of_members_that_stay_is_kept_when_the_array_gets_another_shape() {
    let mut array = Scenario::new("5", 4).start();
    let counts = |array: &mut Scenario| -> Vec<u64> {
        array.sleep();
        let count = |slot| {
            let took = latency(array, slot);
            took.all_reads.count() + took.all_writes.count()
        };
        (0..4).map(count).collect()
    };
    array.fill().write(40).rest();
    let before = counts(&mut array);
    assert!(before.iter().all(|&count| count > 0), "{before:?}");
    array.begin_to_add_parity(1);
    array.rest();
    let after = counts(&mut array);
    assert!(
        after
            .iter()
            .zip(&before)
            .all(|(after, before)| after >= before),
        "{before:?}, {after:?}"
    );
}
