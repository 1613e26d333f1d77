//! Scrubs go on: over pauses, stops and kills, with what they have found.

use strake_engine::event::*;
use strake_format::ScrubResult;
use strake_sim::scenario::Scenario;
use strake_sim::world::World;

/// A large array, full, at rest, with strips that lie in its first stripe and in one far behind.
fn with_two_lies(level: &str, members: u8) -> Scenario {
    let mut array = Scenario::new(level, members).large().start();
    // Regions are clean: no resync makes what lies the truth.
    array.fill().rest().sleep();
    // The replay after a kill looks at the stripes written last: not at this one.
    let far = array.world.geometry().rows * 3 / 4;
    array.rot(0, 1).rot(far, 1);
    array
}

fn done_bytes(world: &mut World) -> Option<u64> {
    let jobs = world.array().status().jobs;
    let scrub = jobs.iter().find(|job| job.kind == JobKind::Scrub);
    scrub.map(|job| job.done_bytes)
}

/// Goes on until the scrub has done half of it and some of that is durable; how much that is.
fn half_way(array: &mut Scenario) -> u64 {
    let strip = array.world.geometry().strip;
    let half = array.world.geometry().rows * strip / 2;
    array.wait("the scrub has done half", move |world| {
        done_bytes(world).is_none_or(|done| done > half)
    });
    let drive = array.drive(0);
    let sb = array.world.table_of(drive).expect("a superblock");
    sb.scrub.expect("it is under way").done_bytes
}

fn last(array: &mut Scenario) -> ScrubResult {
    let sb = array.status().superblock;
    sb.last_scrub.expect("one has ended")
}

fn begin(array: &mut Scenario, mode: ScrubMode) {
    let id = array.world.begin_scrub(mode, false);
    array.answer(id).expect("it can begin");
}

#[test]
fn a_scrub_goes_on_after_a_kill_with_what_it_has_found() {
    let mut raid6 = with_two_lies("6", 6);
    begin(&mut raid6, ScrubMode::Check);
    let noted = half_way(&mut raid6);
    assert!(noted > 0);
    raid6.kill().begin_to_start();
    let record = raid6.status().superblock.scrub;
    let record = record.expect("it is not over");
    assert!(record.done_bytes >= noted);
    assert_eq!(record.found.inconsistent, 1);
    raid6.rest();
    let result = last(&mut raid6);
    assert_eq!((result.found.inconsistent, result.found.located), (2, 2));
    assert_eq!(raid6.world.stats().scrubs, 1);
}

#[test]
fn a_scrub_that_is_paused_waits_over_a_restart_and_goes_on_where_it_was() {
    let mut raid6 = with_two_lies("6", 6);
    begin(&mut raid6, ScrubMode::Repair);
    half_way(&mut raid6);
    raid6.command(Command::PauseScrub).expect("it can pause");
    // The step that was under way counts.
    raid6.sleep();
    let before = done_bytes(&mut raid6.world);
    raid6.stop().start().rest().sleep();
    assert_eq!(done_bytes(&mut raid6.world), before);
    assert_eq!(raid6.world.stats().scrubs, 0);
    begin(&mut raid6, ScrubMode::Repair);
    assert!(done_bytes(&mut raid6.world) >= before);
    raid6.rest();
    let result = last(&mut raid6);
    assert_eq!((result.found.inconsistent, result.found.located), (2, 2));
    // All is true again.
    begin(&mut raid6, ScrubMode::Check);
    raid6.rest();
    assert_eq!(last(&mut raid6).found.inconsistent, 0);
}

#[test]
fn a_scrub_that_is_stopped_begins_anew() {
    let mut raid6 = with_two_lies("6", 6);
    begin(&mut raid6, ScrubMode::Check);
    half_way(&mut raid6);
    raid6.command(Command::StopScrub).expect("it can stop");
    raid6.stop().start().rest();
    assert_eq!(done_bytes(&mut raid6.world), None);
    begin(&mut raid6, ScrubMode::Check);
    raid6.rest();
    assert_eq!(last(&mut raid6).found.inconsistent, 2);
}

#[test]
fn a_scrub_that_halts_pauses_at_each_finding_until_it_is_told_to_go_on() {
    let mut raid5 = with_two_lies("5", 4);
    begin(&mut raid5, ScrubMode::Halt);
    raid5.rest();
    let jobs = raid5.status().jobs;
    assert!(jobs[0].paused && jobs[0].inconsistent == 1, "{jobs:?}");
    begin(&mut raid5, ScrubMode::Halt);
    raid5.rest();
    let jobs = raid5.status().jobs;
    assert!(jobs[0].paused && jobs[0].inconsistent == 2, "{jobs:?}");
    begin(&mut raid5, ScrubMode::Halt);
    raid5.rest();
    let result = last(&mut raid5);
    assert_eq!(
        (result.mode, result.found.inconsistent),
        (ScrubMode::Halt, 2)
    );
}

#[test]
fn what_the_last_scrub_found_is_known_after_restarts() {
    let mut raid6 = with_two_lies("6", 6);
    begin(&mut raid6, ScrubMode::Check);
    raid6.rest();
    let before = last(&mut raid6);
    assert!(before.ended_unix_s >= before.begun_unix_s);
    raid6.stop().start();
    assert_eq!(last(&mut raid6), before);
    raid6.power_cut().start();
    assert_eq!(last(&mut raid6), before);
}
