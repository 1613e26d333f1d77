//! Members without space for writes: a full file system under files, a full thin pool. However many
//! they are, the array does not fail by that, and goes on when there is space.

use strake_engine::event::*;
use strake_sim::scenario::Scenario;
use strake_sim::world::World;

use crate::REDUNDANT;

/// These drives have no space for data.
fn fill(array: &mut Scenario, drives: &[usize]) {
    let from = array.world.superblock().layout.data_offset;
    array.world.fill(drives, from);
}

/// All drives have none.
fn fill_all(array: &mut Scenario) {
    let all: Vec<usize> = (0..array.world.drives().len()).collect();
    fill(array, &all);
}

fn told(array: &Scenario, event: &str) -> usize {
    array.world.notes(|line| line.contains(event))
}

fn failed(world: &mut World) -> bool {
    world.array().status().state == ArrayState::Failed
}

#[test]
fn writes_to_several_members_without_space_wait_and_go_on_when_there_is_some() {
    for (level, members) in REDUNDANT {
        let mut array = Scenario::new(level, members).seed(300).start();
        array.fill().rest();
        fill_all(&mut array);
        array.begin_to_overwrite().steps(3000);
        let waiting = array.status().members;
        let waiting = waiting.iter().filter(|m| m.full_since_unix_s.is_some());
        assert!(waiting.count() > 1, "level {level}");
        assert!(told(&array, "MemberFull") > 1, "level {level}");
        assert_eq!(told(&array, "MemberNoLongerFull"), 0, "level {level}");
        assert_eq!(array.world.stats().losses, 0, "level {level}");
        array.world.space_is_back();
        array.wait("requests are answered", |world| world.all_answered());
        array.rest();
        array.wait("it is told that there is space", |world| {
            let members = world.array().status().members;
            members.iter().all(|m| m.full_since_unix_s.is_none())
        });
        let begun = told(&array, "MemberFull");
        assert_eq!(told(&array, "MemberNoLongerFull"), begun, "level {level}");
        assert_eq!(array.state(), ArrayState::Optimal, "level {level}");
        array.verify().lose_others(None).verify();
    }
}

#[test]
fn a_member_without_space_alone_is_out_where_the_level_survives_that() {
    for (level, members) in REDUNDANT {
        let mut array = Scenario::new(level, members).seed(310).start();
        array.fill().rest();
        let drive = array.drive(1);
        fill(&mut array, &[drive]);
        array.begin_to_overwrite();
        array.wait("it is out", move |world| {
            world.drives()[drive].device().is_none()
        });
        assert_eq!(told(&array, "MemberFull"), 0, "level {level}");
        array.wait("requests are answered", |world| world.all_answered());
        array.rest().verify();
    }
}

/// Both were given up, one after the other, since the first had its slot still.
#[test]
fn a_member_that_is_given_up_counts_as_lost_before_its_thread_has_heard_of_it() {
    let mut stood = 0;
    for seed in 0..24 {
        let draft = Scenario::new("5", 4).no_caches().shards(2);
        let mut array = draft.seed(320 + seed).start();
        array.fill().rest();
        let drives = [array.drive(0), array.drive(1)];
        fill(&mut array, &drives[..1]);
        let stripe = array.world.geometry().stripe_bytes() / array.world.geometry().block;
        array.begin_to_write_blocks(seed / 2 * stripe, stripe);
        for _ in 0..1000 {
            if array.world.stats().fill_losses == 0 {
                array.steps(1);
            }
        }
        if array.world.stats().fill_losses == 0 {
            continue;
        }
        array.thread_stands_still(Some(seed as u16 % 2), 150_000);
        fill(&mut array, &drives[1..]);
        array.begin_to_overwrite().steps(60);
        stood += u32::from(array.world.stats().losses == 0);
        array.steps(8000);
        assert_ne!(array.state(), ArrayState::Failed, "seed {seed}");
        array.world.space_is_back();
        array.wait("requests are answered", |world| world.all_answered());
        array.rest().verify();
    }
    assert!(stood > 0);
}

#[test]
fn a_start_without_space_for_its_replay_ends_and_is_repeated_with_nothing_lost() {
    let (mut refused, mut whole) = (0, 0);
    for (level, members) in REDUNDANT {
        for seed in 0..6 {
            let draft = Scenario::new(level, members).no_caches();
            let mut array = draft.seed(340 + seed).start();
            array.fill().begin_to_write(60, 40 + 20 * seed).kill();
            fill_all(&mut array);
            let launched = array.world.launch();
            assert!(launched.is_ok(), "{launched:?}");
            array.wait("it starts, or not", |world| world.serves() || failed(world));
            if failed(&mut array.world) {
                refused += 1;
                assert!(told(&array, "Failed { cause: NoSpace }") > 0);
                array.steps(1000).kill().start();
            }
            array.world.space_is_back();
            array.wait("requests are answered", |world| world.all_answered());
            array.rest().verify();
            // One that the replay needed alone.
            if array.world.stats().losses == 0 {
                array.lose_others(None).verify();
                whole += 1;
            }
        }
    }
    assert!(refused > 2 && whole > 20, "{refused}, {whole}");
}
