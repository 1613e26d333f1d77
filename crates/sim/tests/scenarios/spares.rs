//! Spares wait for members that are only missing, and for no others.

use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::Settings;
use strake_sim::scenario::{Draft, Scenario};
use strake_sim::world::World;

const DELAY_MS: u32 = 5000;

/// RAID 6 with a spare that waits.
fn patient(spares: usize) -> Draft {
    let settings = Settings {
        spare_delay_ms: DELAY_MS,
        ..Settings::default()
    };
    Scenario::new("6", 6).spares(spares).settings(settings)
}

fn spares(array: &mut Scenario) -> usize {
    spares_of(&mut array.world)
}

fn spares_of(world: &mut World) -> usize {
    let members = world.array().status().members;
    members.iter().filter(|m| m.slot.is_none()).count()
}

/// How long it takes until so many spares are left, milliseconds.
fn until_spares_are(array: &mut Scenario, left: usize) -> u64 {
    let from = array.world.now();
    array.wait("a spare is used", move |world| spares_of(world) == left);
    array.world.now().since(from) / 1_000_000
}

#[test]
fn a_member_that_drops_for_a_moment_comes_back_by_what_was_written_and_the_spare_stays_one() {
    let mut raid6 = patient(1).start();
    raid6.fill().rest();
    let dropped = raid6.drive(2);
    raid6.lose(2).write(20).rest();
    assert_eq!(raid6.state(), ArrayState::Degraded);
    let waits = raid6.status().members[2].spare_in_ns;
    assert!(waits.is_some_and(|ns| ns <= 5_000_000_000), "{waits:?}");
    raid6.offer(dropped).expect("it is kept");
    raid6.rest().sleep().verify();
    assert_eq!(raid6.state(), ArrayState::Optimal);
    assert!(raid6.serves(dropped));
    assert_eq!(spares(&mut raid6), 1);
    assert_eq!(raid6.world.stats().partial_rebuilds, 1);
}

#[test]
fn a_spare_takes_over_when_the_delay_has_passed_and_not_before() {
    let mut raid6 = patient(1).start();
    raid6.write(60).rest().lose(2).write(10);
    let waited_ms = until_spares_are(&mut raid6, 0);
    assert!((4900..=5000).contains(&waited_ms), "{waited_ms} ms");
    raid6.rest().verify();
    assert_eq!(raid6.state(), ArrayState::Optimal);
}

#[test]
fn an_array_in_which_a_spare_waits_asks_for_one_tick() {
    let mut raid6 = patient(1).start();
    raid6.write(60).rest().sleep().lose(2).write(1).rest();
    let asked = raid6.world.array().deadline();
    assert!(asked.is_some());
    // All that happens until then is over soon.
    raid6.steps(2000);
    let events = raid6.world.stats().events;
    raid6.sleep();
    assert_eq!(raid6.state(), ArrayState::Optimal);
    assert!(raid6.world.stats().events - events < 3000);
    assert_eq!(raid6.world.array().deadline(), None);
}

#[test]
fn members_that_failed_or_were_put_out_are_replaced_at_once() {
    let mut raid6 = patient(2).start();
    raid6.write(60).rest();
    let out = Command::Fail(Slot(0));
    raid6.command(out).expect("it may be lost");
    assert!(until_spares_are(&mut raid6, 1) < 100);
    raid6.rest();
    let failing = raid6.drive(3);
    raid6.world.ssd_mut(failing).faults.write_errors = 1;
    raid6.write(60).rest();
    assert_eq!(raid6.state(), ArrayState::Optimal);
    assert!(!raid6.serves(failing));
    assert_eq!(spares(&mut raid6), 0);
}

/// The daemon asks for this where a pool keeps spares for several arrays.
#[test]
fn an_array_without_a_spare_wants_one_when_the_delay_has_passed_and_not_before() {
    let wants = |array: &mut Scenario, in_ms: u64| {
        let then = array.world.now().plus_ms(in_ms);
        let members = array.world.array().status_at(then).members;
        members.iter().filter(|m| m.wants_spare).count()
    };
    let delay_ms = u64::from(DELAY_MS);
    let mut raid6 = patient(0).start();
    raid6.write(60).rest();
    assert_eq!(wants(&mut raid6, delay_ms), 0);
    raid6.lose(2).write(10);
    assert_eq!((wants(&mut raid6, 0), wants(&mut raid6, delay_ms)), (0, 1));
    // No spare waits for a member that an administrator put out.
    raid6
        .command(Command::Fail(Slot(4)))
        .expect("it survives that");
    assert_eq!((wants(&mut raid6, 0), wants(&mut raid6, delay_ms)), (1, 2));
    raid6.add();
    assert_eq!(wants(&mut raid6, delay_ms), 1, "a spare is used at once");
    raid6.command(Command::StopRebuild).expect("it pauses");
    assert_eq!(wants(&mut raid6, delay_ms), 0);
    raid6.command(Command::StartRebuild).expect("it goes on");
    raid6.rest().verify();
    assert_eq!(wants(&mut raid6, 0), 1);
}

#[test]
fn what_is_missing_at_the_start_is_waited_for_from_then_on() {
    let mut raid6 = patient(1).start();
    raid6.write(60).rest();
    let away = raid6.drive(4);
    raid6.stop();
    raid6.world.hide(away);
    let from = raid6.world.now();
    raid6.start();
    until_spares_are(&mut raid6, 0);
    let waited_ms = raid6.world.now().since(from) / 1_000_000;
    assert!((5000..=5100).contains(&waited_ms), "{waited_ms} ms");
    raid6.rest().verify();
}

/// The spare that waits, and the command by which it takes the place of a member that serves.
fn relieve(array: &mut Scenario, slot: u8) -> Command {
    let members = array.status().members;
    let spare = members.iter().find(|m| m.slot.is_none());
    let device = spare.and_then(|spare| spare.device);
    Command::ReplaceBySpare(Slot(slot), device.expect("a spare waits"))
}

#[test]
fn a_spare_takes_the_place_of_a_member_that_serves_and_the_array_stays_whole() {
    let mut raid5 = Scenario::new("5", 4).spares(1).start();
    raid5.write_all().rest();
    let old = raid5.drive(1);
    let relief = relieve(&mut raid5, 1);
    raid5.command(relief.clone()).expect("it may be relieved");
    assert_eq!(raid5.command(relief), Err(CommandError::Rebuilding));
    assert!(raid5.serves(old));
    raid5.write(60);
    assert_eq!(raid5.state(), ArrayState::Optimal);
    raid5.rest().verify();
    assert!(!raid5.serves(old));
    assert_eq!(
        (raid5.state(), spares(&mut raid5)),
        (ArrayState::Optimal, 0)
    );
    // It is a member like any other.
    raid5.lose(2).verify();
}

#[test]
fn a_spare_that_relieves_a_member_goes_on_after_a_cut_and_whichever_of_the_two_is_lost() {
    let (mut went_on, mut cut_off) = (0, 0);
    for seed in 0..45 {
        let mut raid5 = Scenario::new("5", 4).spares(1).seed(seed).start();
        raid5.write_all().rest();
        let old = raid5.drive(1);
        let relief = relieve(&mut raid5, 1);
        raid5.world.command(relief);
        raid5.begin_to_write(20, 4 * seed);
        let replacing = raid5.status().members.len() == 5 && spares(&mut raid5) == 0;
        match seed % 3 {
            0 => drop(raid5.power_cut().start()),
            1 if raid5.serves(old) => drop(raid5.lose(1)),
            _ => drop(raid5.kill().start()),
        }
        went_on += u64::from(replacing);
        cut_off += u64::from(!replacing);
        raid5.rest().verify();
        if spares(&mut raid5) > 0 && raid5.serves(old) {
            // The word had not become durable: it is said again.
            let relief = relieve(&mut raid5, 1);
            raid5.command(relief).expect("it may be relieved");
        }
        raid5.made_whole().verify();
        assert!(!raid5.serves(old));
        raid5.lose(3).verify();
    }
    assert!(went_on > 5 && cut_off > 0, "{went_on} {cut_off}");
}

#[test]
fn only_a_spare_relieves_and_only_a_member_that_serves() {
    let mut raid6 = patient(1).start();
    raid6.write(60).rest();
    let relief = relieve(&mut raid6, 1);
    let Command::ReplaceBySpare(_, spare) = relief else {
        panic!("it is that command");
    };
    let members = raid6.status().members;
    let member = members[0].device.expect("slot 0 has a device");
    let not_a_spare = Command::ReplaceBySpare(Slot(1), member);
    assert_eq!(raid6.command(not_a_spare), Err(CommandError::NoSuchMember));
    let nowhere = Command::ReplaceBySpare(Slot(60), spare);
    assert_eq!(raid6.command(nowhere), Err(CommandError::NoSuchSlot));
    raid6.lose(1).write(5);
    assert_eq!(raid6.command(relief), Err(CommandError::NothingToReplace));
    assert_eq!(spares(&mut raid6), 1);
}

/// Reads with an unreadable sector in one slot after the other row, until so many errors were
/// counted against it, or it is not in service any more.
fn read_errors(array: &mut Scenario, slot: u8, wanted: u64) {
    let counted = |array: &mut Scenario| {
        let members = array.status().members;
        let member = members.iter().find(|m| m.slot == Some(Slot(slot)));
        member.map_or(0, |member| member.read_errors)
    };
    for row in 0..40 {
        let drive = array.drive(slot);
        if counted(array) >= wanted {
            return;
        }
        array.spoil_drive(drive, row, 0);
        array.begin_to_read();
        let served = |world: &mut World| world.all_answered();
        array.wait("the reads are answered", served);
    }
    panic!("{wanted} errors were not counted");
}

#[test]
fn a_member_with_too_many_read_errors_serves_until_a_spare_is_filled() {
    let mut raid5 = Scenario::new("5", 4).spares(1).threshold(3).start();
    raid5.write_all().rest();
    let old = raid5.drive(1);
    read_errors(&mut raid5, 1, 3);
    assert!(
        raid5.serves(old),
        "it holds what the array needs if another is lost"
    );
    assert_eq!(raid5.state(), ArrayState::Optimal);
    // What it cannot read is computed from the others, however much that is.
    for row in 0..6 {
        raid5.spoil_drive(old, row, 1);
    }
    raid5.write(20).rest().verify();
    assert!(!raid5.serves(old));
    assert_eq!(
        (raid5.state(), spares(&mut raid5)),
        (ArrayState::Optimal, 0)
    );
    raid5.lose(2).verify();
}

/// Where spares are kept for several arrays.
#[test]
fn a_member_with_too_many_read_errors_serves_until_a_spare_from_elsewhere_is_filled() {
    let wants = |array: &mut Scenario| {
        let members = array.status().members;
        let wants = members.iter().filter(|m| m.wants_spare);
        wants.filter_map(|m| m.slot).collect::<Vec<Slot>>()
    };
    for comes in [true, false] {
        let mut raid5 = Scenario::new("5", 4).threshold(3).start();
        raid5.write_all().rest();
        raid5
            .command(Command::SparesElsewhere(true))
            .expect("it is told");
        let old = raid5.drive(1);
        read_errors(&mut raid5, 1, 3);
        assert!(raid5.serves(old), "it is asked for first");
        assert_eq!(
            (wants(&mut raid5), raid5.state()),
            (vec![Slot(1)], ArrayState::Optimal)
        );
        // More of them change nothing until it is answered.
        read_errors(&mut raid5, 1, 2);
        raid5.write(20);
        assert!(raid5.serves(old));
        match comes {
            true => {
                let new = raid5.world.fresh().expect("there are drives left");
                let replace = Command::Replace(Slot(1), new);
                raid5.command(replace).expect("it serves still");
            }
            false => {
                let none = Command::SparesElsewhere(false);
                raid5.command(none).expect("it is told");
                assert!(!raid5.serves(old));
                assert_eq!(raid5.state(), ArrayState::Degraded);
                raid5.add();
            }
        }
        raid5.write(20).rest().verify();
        assert!(!raid5.serves(old));
        assert_eq!(raid5.state(), ArrayState::Optimal);
        assert_eq!(wants(&mut raid5), []);
        raid5.lose(2).verify();
    }
}

#[test]
fn a_spare_that_an_empty_slot_needs_does_not_relieve_a_failing_member() {
    let mut raid6 = patient(1).threshold(3).start();
    raid6.write_all().rest().lose(1).write(5);
    let failing = raid6.drive(3);
    read_errors(&mut raid6, 3, 3);
    assert!(!raid6.serves(failing), "it is failed, as without a spare");
    raid6.rest().verify();
}

#[test]
fn a_failing_member_is_relieved_through_cuts_and_losses() {
    let mut relieved = 0;
    for seed in 0..30 {
        let mut raid6 = Scenario::new("6", 5)
            .spares(1)
            .threshold(2)
            .seed(seed)
            .start();
        raid6.write_all().rest();
        let old = raid6.drive(1);
        read_errors(&mut raid6, 1, 2);
        raid6.begin_to_write(20, 6 * seed);
        match seed % 3 {
            0 => drop(raid6.power_cut().start()),
            1 => drop(raid6.lose(3)),
            _ => drop(raid6.lose(1)),
        }
        raid6.rest().verify();
        relieved += u64::from(!raid6.serves(old));
    }
    assert!(relieved > 10, "{relieved}");
}

#[test]
fn who_cannot_wait_says_so() {
    /// What is said, and how many spares are left then.
    type Hurry = (fn(&mut Scenario), usize);
    let hurry: [Hurry; 4] = [
        (
            |array| {
                let at_once = Command::Set(Setting::SpareDelayMs(0));
                array.command(at_once).expect("it can be set");
            },
            0,
        ),
        (
            |array| {
                array.command(Command::StartRebuild).expect("it goes on");
            },
            0,
        ),
        (
            |array| {
                array.add();
            },
            1,
        ),
        (
            |array| {
                array.remove(2);
            },
            0,
        ),
    ];
    for (way, (hurry, left)) in hurry.into_iter().enumerate() {
        let mut raid6 = patient(1).start();
        raid6.write(60).rest().lose(2).write(10).rest();
        assert_eq!(raid6.state(), ArrayState::Degraded, "{way}");
        hurry(&mut raid6);
        assert!(until_spares_are(&mut raid6, left) < 100, "{way}");
        raid6.rest().verify();
        assert_eq!(raid6.state(), ArrayState::Optimal, "{way}");
    }
}

#[test]
fn a_rebuild_that_was_stopped_is_not_begun_by_a_spare_that_waited() {
    let mut raid6 = patient(1).start();
    raid6.write(60).rest();
    raid6.command(Command::StopRebuild).expect("it may stop");
    raid6.lose(2).write(10).rest().sleep();
    assert_eq!(raid6.state(), ArrayState::Degraded);
    assert_eq!(spares(&mut raid6), 1);
    let waits = raid6.status().members[2].spare_in_ns;
    assert_eq!(waits, None);
}

#[test]
fn a_spare_that_drops_while_it_is_filled_gives_way_to_the_next_at_once() {
    let mut raid6 = patient(2).large().start();
    raid6.fill().rest();
    raid6
        .command(Command::Fail(Slot(1)))
        .expect("it may be lost");
    until_spares_are(&mut raid6, 1);
    raid6.steps(100).lose(1).write(1);
    assert!(until_spares_are(&mut raid6, 0) < 100);
    raid6.rest().verify();
    assert_eq!(raid6.state(), ArrayState::Optimal);
}

#[test]
fn a_delay_that_is_longer_than_a_week_is_refused() {
    let mut raid6 = patient(1).start();
    let set = |ms| Command::Set(Setting::SpareDelayMs(ms));
    let longest = Settings::SPARE_DELAY_MS_MAX;
    assert_eq!(
        raid6.command(set(longest + 1)),
        Err(CommandError::OutOfRange)
    );
    raid6.command(set(longest)).expect("a week is fine");
    raid6.write(10).rest().stop().start();
    let settings = raid6.status().superblock.settings;
    assert_eq!(settings.spare_delay_ms, longest);
}

#[test]
fn what_was_replaced_keeps_its_slot_if_the_new_member_is_lost_before_that_is_durable() {
    for after in 0..4 {
        let mut raid6 = Scenario::new("6", 6).seed(after + 1).start();
        raid6.fill().rest().lose(0).write(5).lose(3).write(5).rest();
        let (old, new) = (raid6.drive(1), raid6.world.fresh().expect("a drive"));
        let target = raid6.world.drive_of(new.device);
        raid6
            .command(Command::Replace(Slot(1), new))
            .expect("it can be replaced");
        raid6.begin_to_write(30, 0);
        while raid6.world.looks()[1].in_sync != Some(target) {
            raid6.steps(1);
        }
        // Nothing more may be lost but this; superblocks are on their way.
        raid6.steps(after);
        let vanished = raid6.world.vanish(target);
        vanished.expect("it vanishes");
        raid6.write(30).rest();
        assert_eq!(raid6.state(), ArrayState::Degraded);
        assert_eq!(raid6.drive(1), old);
        raid6.verify().stop();
        raid6.start().verify();
    }
}
