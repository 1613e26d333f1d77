//! An array on files from creation to its last member, over NBD: loss, degraded service, rebuild,
//! restart, kill.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::{Level, RegionState};
use strake_runtime::*;

const MIB: u64 = 1 << 20;

/// Writes the whole array and says what it should hold.
fn fill(client: &mut Client, size: u64, version: u64) {
    let mut at = 0;
    while at < size {
        let len = (3 * MIB).min(size - at) as usize;
        client
            .write(at, &pattern(at, len, version))
            .expect("writes");
        at += len as u64;
    }
}

fn check(client: &mut Client, size: u64, version: u64) {
    let mut at = 0;
    while at < size {
        let len = (3 * MIB).min(size - at) as usize;
        assert!(
            client.read(at, len).expect("reads") == pattern(at, len, version),
            "wrong bytes in {len} at {at}"
        );
        at += len as u64;
    }
}

/// Checks every level that `fill` wrote with as many members lost as it survives, then rebuilt.
fn life_of(spec: Spec, lose: &[usize]) {
    let level = spec.level;
    let rig = Rig::create(Spec {
        spares: lose.len(),
        ..spec
    });
    let (serving, events) = rig.serve();
    let mut client = rig.client();
    fill(&mut client, rig.size, 1);
    check(&mut client, rig.size, 1);
    for &slot in lose {
        std::fs::remove_file(&rig.paths[slot]).expect("removes");
    }
    wait_for(&serving, "loss", |status| {
        lose.iter().all(|&slot| {
            let lost = status
                .members
                .iter()
                .find(|m| m.slot == Some(Slot(slot as u8)));
            lost.is_none_or(|m| m.state != MemberState::InSync)
                || status.state == ArrayState::Degraded
        })
    });
    check(&mut client, rig.size, 1);
    fill(&mut client, rig.size, 2);
    wait_for(&serving, "rebuild", optimal);
    check(&mut client, rig.size, 2);
    assert_eq!(serving.counters().errors, 0, "{level}");
    drop(client);
    serving.stop().expect("stops");
    let gone = events
        .iter()
        .filter(|e| matches!(e.kind, EventKind::MemberOut { .. }))
        .count();
    assert_eq!(gone, lose.len(), "{level}: one event for each member lost");
    let (serving, _) = rig.serve();
    assert!(
        optimal(&serving.status()),
        "{level} after a restart: {:#?}",
        serving.status()
    );
    check(&mut rig.client(), rig.size, 2);
    serving.stop().expect("stops");
}

#[test]
fn raid1_loses_a_member_that_is_deleted_and_rebuilds() {
    life_of(
        Spec {
            member_bytes: 32 * MIB,
            ..Spec::new(Level::Raid1, 2)
        },
        &[0],
    );
}

#[test]
fn raid5_loses_a_member_that_is_deleted_and_rebuilds() {
    life_of(
        Spec {
            member_bytes: 32 * MIB,
            shards: 2,
            ..Spec::new(Level::Raid5, 5)
        },
        &[2],
    );
}

#[test]
fn raid6_loses_two_members_and_rebuilds() {
    life_of(
        Spec {
            member_bytes: 32 * MIB,
            shards: 3,
            ..Spec::new(Level::Raid6, 5)
        },
        &[0, 3],
    );
}

#[test]
fn raid50_loses_one_member_in_each_group_and_rebuilds() {
    let spec = Spec::new(Level::Raid50, 6);
    life_of(
        Spec {
            member_bytes: 32 * MIB,
            group_size: Some(3),
            ..spec
        },
        &[1, 4],
    );
}

#[test]
fn an_array_dropped_without_a_stop_holds_every_acknowledged_write() {
    for shards in [1, 2] {
        let rig = Rig::create(Spec {
            shards,
            ..Spec::new(Level::Raid6, 5)
        });
        for round in 0..4u64 {
            let (serving, _) = rig.serve();
            let mut client = rig.client();
            if round > 0 {
                check(&mut client, 8 * MIB, round - 1);
            }
            fill(&mut client, 8 * MIB, round);
            // More is under way when the array is dropped, beyond what is checked.
            for i in 0..20 {
                let at = 16 * MIB + i * 65536;
                client.send(0, common::WRITE, at, 65536, &pattern(at, 65536, round));
            }
            drop(serving);
        }
        let (serving, _) = rig.serve();
        check(&mut rig.client(), 8 * MIB, 3);
        wait_for(&serving, "resync", |status| status.jobs.is_empty());
        serving.stop().expect("stops");
    }
}

/// Failing a replacement once took out the good member that it was to replace.
#[test]
fn a_replacement_that_is_failed_leaves_the_slot_to_the_old_member() {
    let rig = Rig::create(Spec {
        member_bytes: 32 * MIB,
        ..Spec::new(Level::Raid5, 3)
    });
    let (serving, _) = rig.serve();
    let mut client = rig.client();
    fill(&mut client, rig.size, 3);
    let old = serving.status().members[0].device;
    assert_eq!(serving.command(Command::StopRebuild), Ok(Changed::Yes));
    let device = new_device(&serving, &rig.dir.path().join("new"), 32 * MIB, 99);
    let new = device.device;
    let replace = Command::Replace(Slot(0), device);
    assert_eq!(serving.command(replace), Ok(Changed::Yes));
    assert_eq!(serving.status().members.len(), 4, "the old and the new one");
    let fail = serving.command(Command::FailDevice(new));
    assert_eq!(fail, Ok(Changed::Yes));
    let status = serving.status();
    assert_eq!(status.state, ArrayState::Optimal);
    assert_eq!(status.members[0].device, old);
    assert!(status.members.iter().all(|m| m.device != Some(new)));
    check(&mut client, rig.size, 3);
    serving.stop().expect("stops");
}

#[test]
fn members_fail_by_command_come_back_as_new_and_are_replaced() {
    let rig = Rig::create(Spec {
        member_bytes: 32 * MIB,
        ..Spec::new(Level::Raid5, 3)
    });
    let (serving, _) = rig.serve();
    let mut client = rig.client();
    fill(&mut client, rig.size, 7);
    assert_eq!(serving.command(Command::Fail(Slot(1))), Ok(Changed::Yes));
    assert_eq!(
        serving.command(Command::Fail(Slot(1))),
        Ok(Changed::No),
        "idempotent"
    );
    assert_eq!(
        serving.command(Command::Fail(Slot(9))),
        Err(CommandError::NoSuchSlot)
    );
    assert_eq!(
        serving.command(Command::Fail(Slot(0))),
        Err(CommandError::WouldFail)
    );
    assert_eq!(serving.status().state, ArrayState::Degraded);
    check(&mut client, rig.size, 7);
    let device = new_device(&serving, &rig.dir.path().join("new"), 32 * MIB, 99);
    assert_eq!(serving.command(Command::Add(device)), Ok(Changed::Yes));
    wait_for(&serving, "rebuild", optimal);
    let device = new_device(&serving, &rig.dir.path().join("newer"), 32 * MIB, 98);
    let id = device.device;
    assert_eq!(
        serving.command(Command::Replace(Slot(0), device)),
        Ok(Changed::Yes)
    );
    wait_for(&serving, "replacement", |status| {
        optimal(status)
            && status
                .members
                .iter()
                .any(|m| m.slot == Some(Slot(0)) && m.device == Some(id))
    });
    assert_eq!(serving.path(id), Some(rig.dir.path().join("newer")));
    check(&mut client, rig.size, 7);
    let small = new_device(&serving, &rig.dir.path().join("small"), 4 * MIB, 97);
    let id = small.device;
    let refused = serving.command(Command::Add(small));
    assert!(
        matches!(refused, Err(CommandError::TooSmall { .. })),
        "{refused:?}"
    );
    serving.detach(id);
    assert_eq!(
        serving.command(Command::StartScrub(ScrubMode::Check)),
        Ok(Changed::Yes)
    );
    wait_for(&serving, "scrub", |status| status.jobs.is_empty());
    serving.stop().expect("stops");
}

#[test]
fn an_idle_array_sleeps_and_notices_a_deleted_member() {
    let spec = Spec {
        name: "idle",
        shards: 2,
        ..Spec::new(Level::Raid5, 3)
    };
    let rig = Rig::create(spec);
    let (serving, events) = rig.serve();
    let mut client = rig.client();
    client.write(0, &pattern(0, 65536, 0)).expect("writes");
    wait_for(&serving, "calm", |_| {
        serving.region_of(0) == Some(RegionState::Clean)
    });
    let end = serving.status().size_bytes;
    assert_eq!(serving.region_of(end - 1), Some(RegionState::Unwritten));
    assert_eq!(serving.region_of(end), None);
    let wakeups = || {
        let mut total = 0;
        for task in std::fs::read_dir("/proc/self/task").expect("tasks") {
            let task = task.expect("task").path();
            let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
            if name.starts_with("strake-idle") {
                let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
                let line = status
                    .lines()
                    .find(|l| l.starts_with("voluntary"))
                    .expect("a count");
                total += line
                    .split_whitespace()
                    .nth(1)
                    .expect("number")
                    .parse::<u64>()
                    .expect("number");
            }
        }
        total
    };
    // Its last work may take a while on a busy machine.
    let mut woke: Vec<u64> = Vec::new();
    let quiet = |woke: &[u64]| woke.len() >= 3 && woke.iter().rev().take(3).all(|&n| n <= 2);
    while woke.len() < 30 && !quiet(&woke) {
        std::thread::sleep(Duration::from_millis(300));
        let before = wakeups();
        std::thread::sleep(Duration::from_secs(1));
        woke.push(wakeups() - before);
    }
    assert!(
        quiet(&woke),
        "an idle array woke up so many times in a second each: {woke:?}"
    );
    std::fs::remove_file(&rig.paths[1]).expect("removes");
    let out = events
        .iter()
        .find(|event| matches!(event.kind, EventKind::MemberOut { .. }))
        .expect("the event of the loss");
    assert_eq!(out.device.as_deref(), Some(rig.paths[1].as_path()));
    assert!(
        matches!(
            out.kind,
            EventKind::MemberOut {
                slot: Slot(1),
                cause: OutCause::Gone,
                ..
            }
        ),
        "{out:?}"
    );
    check(&mut client, 65536, 0);
    serving.stop().expect("stops");
}

#[test]
fn more_members_lost_than_survived_answer_a_clean_error() {
    let rig = Rig::create(Spec::new(Level::Raid5, 4));
    let (serving, _) = rig.serve();
    let mut client = rig.client();
    fill(&mut client, 4 * MIB, 1);
    std::fs::remove_file(&rig.paths[0]).expect("removes");
    wait_for(&serving, "loss", |status| {
        status.state == ArrayState::Degraded
    });
    std::fs::remove_file(&rig.paths[1]).expect("removes");
    wait_for(&serving, "failure", |status| {
        status.state == ArrayState::Failed
    });
    assert_eq!(client.write(0, &pattern(0, 65536, 2)), Err(5), "EIO");
    drop(client);
    serving.stop().expect("stops");
    let refused = serve(rig.config()).map(drop);
    assert!(matches!(refused, Err(ServeError::Start(_))), "{refused:?}");
}

#[test]
fn load_goes_on_without_an_error_while_a_member_goes_and_its_spare_comes() {
    let spec = Spec {
        member_bytes: 48 * MIB,
        spares: 1,
        shards: 2,
        ..Spec::new(Level::Raid5, 4)
    };
    let rig = Rig::create(spec);
    let (serving, _) = rig.serve();
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3u64)
        .map(|n| {
            let (mut client, stop) = (rig.client(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let base = n * 16 * MIB;
                let mut version = 1u64;
                let mut state = n + 1;
                let mut held = vec![0u64; 512];
                while !stop.load(Ordering::Relaxed) {
                    state = state
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let (block, count) = (
                        (state >> 40) as usize % 500,
                        1 + (state >> 33) as usize % 12,
                    );
                    let data: Vec<u8> = (block..block + count)
                        .flat_map(|b| pattern(base + b as u64 * 4096, 4096, version))
                        .collect();
                    client
                        .write(base + block as u64 * 4096, &data)
                        .expect("no error reaches the client");
                    held[block..block + count].fill(version);
                    version += 1;
                    let read = client
                        .read(base + block as u64 * 4096, 4096)
                        .expect("reads");
                    assert!(read == pattern(base + block as u64 * 4096, 4096, held[block]));
                }
                for (block, &version) in held.iter().enumerate().filter(|(_, v)| **v > 0) {
                    let at = base + block as u64 * 4096;
                    assert!(
                        client.read(at, 4096).expect("reads") == pattern(at, 4096, version),
                        "block {block}"
                    );
                }
                version
            })
        })
        .collect();
    // Each writes at least once, on a busy machine too.
    std::thread::sleep(Duration::from_secs(2));
    std::fs::remove_file(&rig.paths[2]).expect("removes");
    let begun = Instant::now();
    wait_for(&serving, "rebuild", |status| {
        optimal(status) && !status.members.iter().any(|m| m.slot.is_none())
    });
    println!("rebuilt after {:?}", begun.elapsed());
    std::thread::sleep(Duration::from_millis(300));
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        assert!(writer.join().expect("no error") > 1);
    }
    assert_eq!(serving.counters().errors, 0);
    serving.stop().expect("stops");
}

/// The superblocks of the stop could not be written, and the stop was told to be a clean one.
#[test]
fn a_stop_in_which_the_array_fails_is_no_clean_one() {
    let rig = Rig::create(Spec {
        export: ExportKind::None,
        member_bytes: 16 * MIB,
        ..Spec::new(Level::Raid0, 2)
    });
    let sealed = Sealed::copy(&rig.paths[1]);
    let paths = [rig.paths[0].clone(), sealed.path()];
    let (serving, _) = serve(rig.config_of(&paths)).expect("serves");
    sealed.refuse_writes();
    let stopped = serving.stop();
    assert!(
        matches!(
            stopped,
            Err(ServeError::FailedAtStop(FailCause::MembersLost))
        ),
        "{stopped:?}"
    );
    // One that had failed before has nothing to write.
    let rig = Rig::create(Spec {
        export: ExportKind::None,
        member_bytes: 16 * MIB,
        ..Spec::new(Level::Raid0, 2)
    });
    let (serving, _) = rig.serve();
    std::fs::remove_file(&rig.paths[1]).expect("removes");
    wait_for(&serving, "the loss", |status| {
        status.state == ArrayState::Failed
    });
    serving.stop().expect("stops as it is");
}
