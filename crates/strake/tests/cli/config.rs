//! A backup of the configuration, and arrays made again from it when their superblocks are gone.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::hung::within;
use crate::life::{rot, stored};
use crate::rig::{Rig, STRAKE, skipped};

const NBD: &[&str] = &["--export", "nbd"];

/// Overwrites what lies at both ends of a member, as a partitioning tool would, and more of it.
pub(crate) fn destroy(path: &str, head_bytes: usize) {
    let file = File::options().write(true).open(path).expect("opened");
    let tail = 256 << 10;
    let len = file.metadata().expect("a size").len();
    file.write_all_at(&vec![0x5a; head_bytes], 0)
        .expect("written");
    file.write_all_at(&vec![0x5a; tail], len - tail as u64)
        .expect("written");
}

/// Enough for the superblock, not for the region map.
pub(crate) const HEAD: usize = 64 << 10;
/// The region map, too.
const HEAD_AND_MAP: usize = 1 << 20;

fn bytes_of(paths: &[String]) -> Vec<Vec<u8>> {
    paths
        .iter()
        .map(|path| fs::read(path).expect("read"))
        .collect()
}

/// An array with data of known content and a backup of it; then it is stopped. None where nobody
/// can write data.
fn backed_up(rig: &mut Rig, level: &str, members: usize) -> Option<(Vec<String>, String)> {
    rig.start_daemon();
    let devices = rig.files(members);
    let group: &[&str] = match level {
        "50" => &["--group-size", "3"],
        _ => &[],
    };
    rig.create("data", level, &[NBD, group].concat(), &devices)
        .ok();
    let settings = ["rebuild_priority=77", "write_hole=resync", "shards=1"];
    rig.run(&[&["set", "data"], &settings[..]].concat()).ok();
    rig.qemu_io("data", &["write -P 1 0 4M", "write -P 2 12M 64k", "flush"])?;
    let file = rig.path("backup.json");
    rig.run(&["config", "backup", &file]).ok();
    rig.run(&["stop", "data"]).ok();
    Some((devices, file))
}

const CONTENT: &[&str] = &["read -P 1 0 4M", "read -P 2 12M 64k"];

#[test]
fn an_array_whose_superblocks_are_gone_is_made_again_with_its_data_and_settings() {
    for (level, members) in [("5", 4), ("6", 5), ("1", 2), ("50", 6)] {
        let mut rig = Rig::new();
        let Some((devices, file)) = backed_up(&mut rig, level, members) else {
            return;
        };
        let before = rig.show("data");
        devices.iter().for_each(|device| destroy(device, HEAD));
        rig.run(&["start", "data"]).refused(3, "array-not-found");

        let raw = bytes_of(&devices);
        let would = rig
            .run(&["config", "restore", &file, "--dry-run"])
            .ok()
            .json();
        assert_eq!(would["arrays"][0]["restored"], true, "{would}");
        assert_eq!(would["arrays"][0]["devices"], json!(devices));
        rig.run(&["config", "restore", &file])
            .refused(4, "not-confirmed");
        assert!(bytes_of(&devices) == raw, "a rehearsal wrote something");

        let done = rig.run(&["config", "restore", &file, "--yes"]).ok().json();
        assert_eq!(done["arrays"][0]["restored"], true, "{done}");
        let after = rig.show("data");
        assert_eq!(after["size_bytes"], before["size_bytes"]);
        assert_ne!(after["uuid"], before["uuid"]);
        for key in ["rebuild_priority", "write_hole", "shards"] {
            let get = rig.run(&["get", "data", key]).ok().json();
            let set = match key {
                "rebuild_priority" => json!(77),
                "write_hole" => json!("resync"),
                _ => json!(1),
            };
            assert_eq!(get[key], set, "{get}");
        }
        rig.qemu_io("data", CONTENT);
        rig.until("the resync", || rig.show("data")["jobs"] == json!([]));
        rig.run(&["scrub", "data", "start", "--wait"]).ok();
        assert_eq!(rig.show("data")["last_scrub"]["inconsistent_stripes"], 0);
        rig.run(&["fail", "data", "0"]).ok();
        rig.qemu_io("data", CONTENT);
        assert!(
            rig.events()
                .iter()
                .any(|event| event["event"] == "restored")
        );
        // It is an array like any other now.
        rig.stop_daemon();
        rig.start_daemon();
        rig.until_state("data", "degraded");
        rig.qemu_io("data", CONTENT);
    }
}

#[test]
fn an_array_that_is_made_again_has_its_volumes() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices).ok();
    let create = ["volume", "create", "data", "v", "--size", "8M"];
    rig.run(&create).ok();
    let file = rig.path("backup.json");
    rig.run(&["config", "backup", &file]).ok();
    rig.run(&["stop", "data"]).ok();
    devices.iter().for_each(|device| destroy(device, HEAD));
    rig.run(&["config", "restore", &file, "--yes"]).ok();
    let volumes = |rig: &Rig| rig.run(&["volume", "show", "data"]).ok().json()["volumes"].clone();
    let restored = volumes(&rig);
    assert_eq!(restored[0]["name"], "v", "{restored}");
    rig.stop_daemon();
    rig.start_daemon();
    rig.until("it serves", || rig.show("data")["state"] == "optimal");
    assert_eq!(volumes(&rig), restored);
}

#[test]
fn devices_that_tell_nothing_any_more_are_named_by_slot() {
    let mut rig = Rig::new();
    let Some((devices, file)) = backed_up(&mut rig, "5", 3) else {
        return;
    };
    destroy(&devices[0], HEAD);
    destroy(&devices[1], HEAD_AND_MAP);
    destroy(&devices[2], HEAD_AND_MAP);
    let refused = rig.run(&["config", "restore", &file, "--yes"]);
    let found = refused.json_error()["found"].clone();
    refused.refused(4, "members-missing");
    assert!(found.to_string().contains("slot 1, 2 of data"), "{found}");
    let slot = |slot: usize, device: &str| format!("{slot}={device}");
    let (one, two) = (slot(1, &devices[1]), slot(2, &devices[2]));
    let twice = slot(2, &devices[1]);
    let named = |a: &str, b: &str| {
        rig.run(&[
            "config", "restore", &file, "data", "--yes", "--slot", a, "--slot", b,
        ])
    };
    named(&one, &twice).refused(2, "device-given-twice");
    named(&one, &slot(7, &devices[2])).refused(3, "member-not-found");
    named(&one, "2").refused(2, "usage");
    // What a device says itself is not overruled.
    named(&one, &slot(2, &devices[0])).refused(4, "members-disagree");
    let short = rig.file("short", 32 << 20);
    named(&one, &slot(2, &short)).refused(2, "device-too-small");
    named(&one, &two).ok();
    rig.qemu_io("data", CONTENT);
}

#[test]
fn what_is_no_device_is_refused_before_a_restore_judges_by_it() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    let file = rig.path("backup.json");
    rig.run(&["config", "backup", &file]).ok();
    let (gone, folder) = (rig.path("nonexist"), rig.path("folder"));
    fs::create_dir(&folder).expect("made");
    let restore = |more: &[&str], code, error| {
        let args = ["config", "restore", &file, "data", "--dry-run"];
        let refused = rig.run(&[&args, more].concat());
        let path = more.last().expect("a path").trim_start_matches("0=");
        assert!(refused.err.contains(path), "{refused:?}");
        refused.refused(code, error);
    };
    let slot = |path: &str| format!("0={path}");
    // Where it is there, and where it is to be made again.
    for is_there in [true, false] {
        if !is_there {
            rig.run(&["stop", "data"]).ok();
            devices.iter().for_each(|device| destroy(device, HEAD));
        }
        for more in [&["--slot"][..], &["--accept-stale", "--slot"]] {
            restore(&[more, &[&slot(&gone)]].concat(), 3, "device-not-found");
            restore(&[more, &[&slot(&folder)]].concat(), 2, "device-kind");
        }
        restore(&["--device", &gone], 3, "device-not-found");
        restore(&["--device", "/dev/null"], 2, "device-kind");
    }
    rig.run(&[
        "config",
        "restore",
        &file,
        "data",
        "--dry-run",
        "--device",
        &folder,
    ])
    .ok();
}

/// The cure was to see an errno that there is not.
#[test]
fn a_backup_is_written_to_no_folder_and_no_device() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let folder = rig.path("folder");
    fs::create_dir(&folder).expect("made");
    for target in ["/dev/null", &folder] {
        let refused = rig.run(&["config", "backup", target]);
        let cure = refused.json_error()["cure"].to_string();
        assert!(cure.contains("a regular file"), "{refused:?}");
        refused.refused(1, "io-error");
    }
}

#[test]
fn a_member_that_was_out_for_a_while_is_not_taken_for_one_that_was_not() {
    let mut rig = Rig::new();
    let Some((devices, file)) = backed_up(&mut rig, "6", 5) else {
        return;
    };
    rig.run(&["start", "data"]).ok();
    rig.run(&["fail", "data", "3"]).ok();
    rig.qemu_io("data", &["write -P 9 0 1M", "flush"]);
    rig.run(&["stop", "data"]).ok();
    // One superblock is left, and tells which member was out.
    devices[1..].iter().for_each(|device| destroy(device, HEAD));
    rig.run(&["config", "restore", &file, "--yes"])
        .refused(4, "members-missing");
    // None is left, but the region maps differ.
    destroy(&devices[0], HEAD);
    let raw = bytes_of(&devices);
    rig.run(&["config", "restore", &file, "--yes"])
        .refused(4, "members-disagree");
    rig.run(&["config", "restore", &file, "--yes", "--force"])
        .refused(4, "members-disagree");
    assert!(bytes_of(&devices) == raw, "a refusal wrote something");
    let accept = ["config", "restore", &file, "--yes", "--accept-stale"];
    let done = rig.run(&accept).ok().json();
    let doubt = done["arrays"][0]["doubt"].as_str().expect("a doubt");
    assert!(doubt.contains(&devices[3]), "{doubt}");
    let told = |event: &Value| event["event"] == "restoring";
    assert!(rig.events().iter().any(told));
}

/// An array of which slot 1 failed and was replaced by `new`, with the backups taken before and
/// after; all are wiped but the member that failed, which is still plugged in. None where nobody
/// can write data.
fn replaced(rig: &mut Rig, level: &str, members: usize) -> Option<([String; 2], Vec<String>)> {
    let (devices, before) = backed_up(rig, level, members)?;
    rig.run(&["start", "data"]).ok();
    rig.run(&["fail", "data", "1"]).ok();
    rig.qemu_io("data", &["write -P 9 0 4M", "flush"]);
    let new = rig.file("new", 64 << 20);
    rig.run(&["add", "data", &new]).ok();
    rig.until_state("data", "optimal");
    rig.qemu_io("data", &["write -P 8 12M 64k", "flush"]);
    let after = rig.path("after.json");
    rig.run(&["config", "backup", &after]).ok();
    rig.run(&["stop", "data"]).ok();
    let mut right = devices;
    right[1] = new;
    right.iter().for_each(|device| destroy(device, HEAD));
    Some(([before, after], right))
}

#[test]
fn a_failed_member_still_plugged_in_is_not_taken_for_the_one_that_replaced_it() {
    for (level, members) in [("5", 3), ("1", 2)] {
        let mut rig = Rig::new();
        let Some(([before, after], right)) = replaced(&mut rig, level, members) else {
            return;
        };
        let left = rig.path("d1");
        let restore = |file: &str, more: &[&str]| {
            rig.run(&[&["config", "restore", file, "data", "--yes"], more].concat())
        };
        let (ours, stale) = (format!("1={}", right[1]), format!("1={left}"));
        let raw = bytes_of(&right);
        for more in [&["--dry-run"][..], &["--dry-run", "--slot", &ours]] {
            let would = restore(&after, more).ok().json();
            assert_eq!(would["arrays"][0]["devices"], json!(right), "{would}");
        }
        restore(&after, &["--accept-stale", "--slot", &stale]).refused(4, "members-disagree");
        // The backup from before names the one that failed, which is older than the one that came
        // after it.
        for more in [&[][..], &["--accept-stale"]] {
            let refused = restore(&before, more);
            assert!(refused.err.contains(&right[1]), "{refused:?}");
            let cure = refused.json_error()["cure"].clone();
            refused.refused(4, "members-disagree");
            // Whichever it is: what is advised is all that is needed.
            let cure = cure.as_str().expect("a cure");
            let (yes, no) = cure.split_once("; if not: ").expect("two ways");
            let (_, yes) = yes.split_once("took its place: ").expect("a way");
            for (way, device) in [(yes, &right[1]), (no, &left)] {
                let way: Vec<&str> = way.split(' ').chain(["--dry-run"]).collect();
                let would = restore(&before, &way).ok().json();
                assert_eq!(would["arrays"][0]["devices"][1], json!(device), "{would}");
            }
        }
        let named = ["--accept-stale", "--slot", &ours, "--dry-run"];
        let would = restore(&before, &named).ok().json();
        assert_eq!(would["arrays"][0]["devices"], json!(right), "{would}");
        // Without the one that replaced it there is nothing to make it of.
        std::fs::rename(&right[1], rig.path("away")).expect("renamed");
        let refused = restore(&after, &["--accept-stale"]);
        assert!(refused.err.contains(&left), "{refused:?}");
        refused.refused(4, "members-missing");
        restore(&after, &["--accept-stale", "--slot", &stale]).refused(4, "members-missing");
        std::fs::rename(rig.path("away"), &right[1]).expect("renamed");
        assert!(bytes_of(&right) == raw, "a refusal wrote something");

        let done = restore(&after, &[]).ok().json();
        assert_eq!(done["arrays"][0]["devices"], json!(right), "{done}");
        rig.qemu_io("data", &["read -P 9 0 4M", "read -P 8 12M 64k"]);
    }
}

/// d1 failed and `new` took its place; then `new` is lost, and the others are wiped with their
/// region maps. d1 alone has a superblock, and lacks what was written since.
#[test]
fn a_member_that_left_before_the_backup_is_refused_also_where_no_region_map_is_left() {
    let mut rig = Rig::new();
    let Some(([_, after], right)) = replaced(&mut rig, "5", 3) else {
        return;
    };
    let left = rig.path("d1");
    destroy(&right[0], 5 << 20);
    destroy(&right[2], 5 << 20);
    std::fs::rename(&right[1], rig.path("away")).expect("renamed");
    let raw = bytes_of(&[right[0].clone(), left.clone(), right[2].clone()]);
    let slots = [&right[0], &left, &right[2]];
    let slots: Vec<String> = (0..)
        .zip(slots)
        .map(|(n, d): (usize, _)| format!("{n}={d}"))
        .collect();
    let restore = |slots: &[&String], more: &[&str]| {
        let mut args = vec!["config", "restore", &after, "data", "--yes"];
        slots.iter().for_each(|slot| args.extend(["--slot", slot]));
        rig.run(&[&args[..], more].concat())
    };
    let without = restore(&[&slots[0], &slots[2]], &[]);
    let cure = without.json_error()["cure"].to_string();
    assert!(cure.contains(&format!("not with {left}")), "{without:?}");
    without.refused(4, "members-missing");
    for more in [
        &[][..],
        &["--dry-run"],
        &["--accept-stale"],
        &["--accept-stale", "--force"],
    ] {
        let refused = restore(&[&slots[0], &slots[1], &slots[2]], more);
        let found = refused.json_error()["found"].to_string();
        assert!(found.contains("it left before"), "{refused:?}");
        refused.refused(4, "members-missing");
    }
    assert!(
        bytes_of(&[right[0].clone(), left, right[2].clone()]) == raw,
        "something was written"
    );
    // The way on: the device that took its place, or what is left of it.
    let ours = rig.path("away");
    let ours = format!("1={ours}");
    restore(&[&slots[0], &ours, &slots[2]], &[]).ok();
    rig.qemu_io("data", &["read -P 9 0 4M", "read -P 8 12M 64k"]);
}

#[test]
fn a_backup_from_before_data_moved_is_not_taken_for_what_the_array_was_in_the_end() {
    let mut rig = Rig::new();
    let Some((devices, file)) = backed_up(&mut rig, "5", 3) else {
        return;
    };
    rig.run(&["start", "data"]).ok();
    let fourth = rig.file("fourth", 64 << 20);
    rig.run(&["restripe", "data", "--add", &fourth]).ok();
    // It may be over already.
    rig.run(&["restripe", "data", "--stop"]);
    let jobs = rig.show("data")["jobs"].to_string();
    rig.run(&["stop", "data"]).ok();
    let all: Vec<&String> = devices.iter().chain([&fourth]).collect();
    all[1..].iter().for_each(|device| destroy(device, HEAD));
    let restore = ["config", "restore", &file, "--yes"];
    if jobs.contains("restripe") {
        rig.run(&restore).refused(4, "backup-moving");
    }
    destroy(all[0], HEAD);
    let refused = rig.run(&restore);
    let found = refused.json_error()["found"].to_string();
    refused.refused(4, "members-disagree");
    assert!(found.contains("shape"), "{found}");
}

#[test]
fn a_backup_of_a_member_that_was_not_in_sync_is_no_proof_that_it_is() {
    let mut rig = Rig::new();
    let Some((devices, file)) = backed_up(&mut rig, "5", 3) else {
        return;
    };
    let text = fs::read_to_string(&file).expect("read");
    let mut backup: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(backup["arrays"][0]["members"][1]["in_sync"], true);
    backup["arrays"][0]["members"][1]["in_sync"] = json!(false);
    fs::write(&file, backup.to_string()).expect("written");
    devices.iter().for_each(|device| destroy(device, HEAD));
    let restore = ["config", "restore", &file, "--yes"];
    rig.run(&restore).refused(4, "members-disagree");
    // A file takes the place of another, and of nothing else.
    rig.run(&["config", "backup", "/dev/null"])
        .refused(1, "io-error");
    assert!(!fs::metadata("/dev/null").expect("it is there").is_file());
}

#[test]
fn what_is_there_is_not_restored_and_a_name_is_not_given_twice() {
    let mut rig = Rig::new();
    let Some((devices, file)) = backed_up(&mut rig, "5", 3) else {
        return;
    };
    let raw = bytes_of(&devices);
    let stopped = rig.run(&["config", "restore", &file, "--yes"]).ok().json();
    assert_eq!(stopped["arrays"][0]["restored"], false, "{stopped}");
    assert!(bytes_of(&devices) == raw);
    rig.run(&["start", "data"]).ok();
    let serving = rig.run(&["config", "restore", &file, "--yes"]).ok().json();
    assert_eq!(serving["arrays"][0]["what"], "is serving");
    rig.run(&["stop", "data"]).ok();
    devices.iter().for_each(|device| destroy(device, HEAD));
    let others = rig.files_called("o", 2);
    rig.create("data", "1", NBD, &others).ok();
    rig.run(&["config", "restore", &file, "--yes"])
        .refused(4, "name-exists");
    // A foreign signature that has taken their place is not overwritten unasked.
    rig.run(&["rename", "data", "other"]).ok();
    let swap = std::process::Command::new("mkswap")
        .arg(&devices[2])
        .output();
    assert!(swap.expect("util-linux").status.success());
    let restore = ["config", "restore", &file, "--yes"];
    rig.run(&restore).refused(4, "foreign-signature");
    rig.run(&[&restore[..], &["--force"]].concat()).ok();
    rig.qemu_io("data", CONTENT);
}

#[test]
fn a_backup_that_makes_no_sense_is_refused_whole() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    let backup = rig.run(&["config", "backup"]).ok().json();
    assert_eq!(
        backup["arrays"][0]["members"].as_array().map(Vec::len),
        Some(3)
    );
    rig.stop_daemon();
    // Without a daemon it is the same.
    let offline = rig
        .run(&["config", "backup", &rig.path("offline.json")])
        .ok()
        .json();
    assert_eq!(
        offline["arrays"][0]["layout"],
        backup["arrays"][0]["layout"]
    );
    rig.run(&["config", "restore", &rig.path("offline.json")])
        .refused(1, "no-daemon");
    rig.start_daemon();
    let file = rig.path("b.json");
    let with = |change: &dyn Fn(&mut Value)| {
        let mut changed = backup.clone();
        change(&mut changed);
        fs::write(&file, changed.to_string()).expect("written");
        rig.run(&["config", "restore", &file, "--yes"])
    };
    with(&|b| b["strake_backup"] = json!(2)).refused(2, "backup-invalid");
    with(&|b| *b = json!("no backup")).refused(2, "backup-invalid");
    with(&|b| b["arrays"][0]["layout"]["log_offset"] = json!(0)).refused(2, "backup-invalid");
    with(&|b| b["arrays"][0]["layout"]["data_bytes"] = json!(u64::MAX))
        .refused(2, "backup-invalid");
    with(&|b| b["arrays"][0]["layout"]["map_pages"] = json!(u32::MAX)).refused(2, "backup-invalid");
    with(&|b| b["arrays"][0]["layout"]["region_bytes"] = json!(0)).refused(2, "backup-invalid");
    with(&|b| b["arrays"][0]["strip_bytes"] = json!(12345)).refused(2, "backup-invalid");
    with(&|b| b["arrays"][0]["group_size"] = json!(0)).refused(2, "backup-invalid");
    with(&|b| b["arrays"][0]["block_bytes"] = json!(0)).refused(2, "backup-invalid");
    with(&|b| b["arrays"][0]["members"] = json!([])).refused(2, "backup-invalid");
    with(&|b| b["arrays"][0]["members"][1]["uuid"] = json!("x")).ok();
    with(&|b| b["arrays"][0]["uuid"] = json!("x")).refused(2, "backup-invalid");
    with(&|b| b["arrays"][0]["level"] = json!("8")).refused(2, "level-unknown");
    with(&|b| b["arrays"][0]["name"] = json!("a/b")).refused(2, "name-invalid");
    rig.run(&["config", "restore", &rig.path("offline.json"), "none"])
        .refused(3, "array-not-found");
    rig.run(&["config", "restore", &rig.path("nothing.json")])
        .refused(3, "file-not-found");
}

fn in_pool(rig: &Rig, pool: &str) -> Vec<String> {
    let shown = rig.run(&["pool", "show", pool]).ok().json();
    let devices = shown["devices"].as_array().expect("devices");
    let path = |d: &Value| d["device"].as_str().expect("a path").to_owned();
    devices.iter().map(path).collect()
}

#[test]
fn a_pool_whose_labels_are_gone_is_made_again_and_arrays_take_from_it() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    let spares = rig.files_called("s", 2);
    rig.run(&["pool", "create", "spares", &spares[0], &spares[1]])
        .ok();
    rig.create(
        "data",
        "5",
        &["--export", "nbd", "--pool", "spares"],
        &devices,
    )
    .ok();
    rig.run(&["set", "data", "degraded=never"]).ok();
    let uuid = rig.run(&["pool", "show", "spares"]).ok().json()["uuid"].clone();
    let file = rig.path("backup.json");
    let backup = rig.run(&["config", "backup", &file]).ok().json();
    let told = &backup["pools"][0];
    assert_eq!((&told["name"], &told["uuid"]), (&json!("spares"), &uuid));
    assert_eq!(told["devices"][1]["device"], json!(spares[1]));
    rig.run(&["stop", "data"]).ok();
    let all: Vec<&String> = devices.iter().chain(&spares).collect();
    all.iter().for_each(|device| destroy(device, HEAD));
    rig.run(&["pool", "show", "spares"])
        .refused(3, "pool-not-found");

    let raw = bytes_of(&spares);
    let restore = ["config", "restore", &file];
    let would = rig
        .run(&[&restore[..], &["--dry-run"]].concat())
        .ok()
        .json();
    assert_eq!(would["pools"][0]["restored"], true, "{would}");
    assert_eq!(would["pools"][0]["devices"], json!(spares));
    let unsaid = rig.run(&restore);
    assert!(unsaid.err.contains(&spares[1]), "{unsaid:?}");
    unsaid.refused(4, "not-confirmed");
    assert!(bytes_of(&spares) == raw, "a rehearsal wrote something");
    let done = rig.run(&[&restore[..], &["--yes"]].concat()).ok().json();
    assert_eq!(done["pools"][0]["restored"], true, "{done}");
    assert_eq!(in_pool(&rig, "spares"), spares);
    assert_eq!(
        rig.run(&["pool", "show", "spares"]).ok().json()["uuid"],
        uuid
    );
    // What is this machine's of the array is made again with it.
    assert_eq!(rig.run(&["get", "data"]).ok().json()["pool"], "spares");
    assert_eq!(rig.show("data")["degraded_start"], "never");
    rig.until("the resync", || rig.show("data")["jobs"] == json!([]));
    rig.run(&["fail", "data", "0"]).ok();
    rig.until_state("data", "optimal");
    assert_eq!(in_pool(&rig, "spares"), spares[1..]);
    // What is left of it is left as it is, and the device that the array has is told.
    let again = rig
        .run(&["config", "restore", &file, "spares", "--yes"])
        .ok();
    let what = again.json()["pools"][0]["what"].to_string();
    assert!(
        what.contains("is there") && what.contains(&spares[0]),
        "{what}"
    );
    assert_eq!(in_pool(&rig, "spares"), spares[1..]);
}

#[test]
fn a_device_of_a_pool_that_is_somebody_s_by_now_is_not_taken_for_it() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let d = rig.files(6);
    rig.run(&["pool", "create", "spares", &d[0], &d[1]]).ok();
    rig.create("data", "5", NBD, &d[2..5]).ok();
    rig.stop_daemon();
    let file = rig.path("backup.json");
    // Without a daemon, too.
    rig.run(&["config", "backup", &file]).ok();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    let restore = ["config", "restore", &file, "spares", "--yes"];
    let forced = [&restore[..], &["--force"]].concat();
    let there = rig.run(&restore).ok().json();
    assert_eq!(there["pools"][0]["what"], "is there");
    rig.run(&["pool", "delete", "spares", "--yes"]).ok();
    let refuses = |rig: &Rig, args: &[&str], code: i32, error: &str| {
        let before = bytes_of(&d);
        rig.run(&[args, &["--dry-run"]].concat())
            .refused(code, error);
        rig.run(args).refused(code, error);
        assert!(bytes_of(&d) == before, "{error}: something was written");
    };
    // In another pool.
    rig.run(&["pool", "create", "other", &d[1]]).ok();
    refuses(&rig, &restore, 4, "device-in-pool");
    refuses(&rig, &forced, 4, "device-in-pool");
    rig.run(&["pool", "delete", "other", "--yes"]).ok();
    // A spare of an array that serves, and of one that does not.
    rig.run(&["add", "data", &d[1]]).ok();
    refuses(&rig, &restore, 4, "device-busy");
    rig.run(&["stop", "data"]).ok();
    refuses(&rig, &restore, 4, "member-of-another-array");
    refuses(&rig, &forced, 4, "member-of-another-array");
    rig.run(&["start", "data"]).ok();
    rig.run(&["remove", "data", &d[1]]).ok();
    // A foreign signature.
    destroy(&d[1], HEAD);
    let swap = std::process::Command::new("mkswap").arg(&d[1]).output();
    assert!(swap.expect("util-linux").status.success());
    refuses(&rig, &restore, 4, "foreign-signature");
    destroy(&d[1], HEAD);
    // Another pool has the name.
    rig.run(&["pool", "create", "spares", &d[5]]).ok();
    refuses(&rig, &restore, 4, "pool-exists");
    rig.run(&["pool", "delete", "spares", "--yes"]).ok();
    // What an array has lost lies on it: it is the array's, even with force.
    rig.run(&["replace", "data", "0", &d[1]]).ok();
    rig.until("the rebuild", || {
        let shown = rig.show("data");
        shown["jobs"] == json!([]) && shown["members"][0]["device"] == d[1].as_str()
    });
    rig.run(&["stop", "data"]).ok();
    d[1..5].iter().for_each(|device| destroy(device, HEAD));
    refuses(&rig, &forced, 4, "member-of-another-array");
    // None of them is to be had.
    std::fs::rename(&d[0], rig.path("away")).expect("renamed");
    std::fs::rename(&d[1], rig.path("away-too")).expect("renamed");
    rig.run(&restore).refused(3, "pool-not-found");
    std::fs::rename(rig.path("away"), &d[0]).expect("renamed");
    let done = rig.run(&restore).ok().json();
    assert_eq!(
        done["pools"][0]["what"],
        "made again; 1 more were not found"
    );
    assert_eq!(in_pool(&rig, "spares"), d[..1]);
}

/// Restored without its pool, an array lost all other settings with it, and the command exited with
/// 0.
#[test]
fn an_array_whose_pool_is_gone_is_made_again_with_its_other_settings_and_says_what_is_not() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices[..3]).ok();
    rig.run(&["pool", "create", "shelf", &devices[3]]).ok();
    let set = ["set", "data", "pool=shelf", "rebuild_priority=77"];
    rig.run(&set).ok();
    let file = rig.path("backup.json");
    rig.run(&["config", "backup", &file]).ok();
    rig.run(&["stop", "data"]).ok();
    rig.run(&["pool", "delete", "shelf", "--yes"]).ok();
    devices[..3].iter().for_each(|device| destroy(device, HEAD));
    let dry = |file: &str| rig.run(&["config", "restore", file, "data", "--dry-run"]);
    // Whatever cannot be set is said before, too.
    let text = fs::read_to_string(&file).expect("a backup");
    let not_taken = rig.path("not-taken.json");
    for (setting, value) in [
        ("memory_limit_bytes", json!(1u64 << 50)),
        ("rebuild_priority", json!(101)),
    ] {
        let mut backup: Value = serde_json::from_str(&text).expect("JSON");
        let settings = &mut backup["arrays"][0]["settings"];
        settings["pool"] = json!("none");
        settings[setting] = value;
        fs::write(&not_taken, backup.to_string()).expect("written");
        let run = dry(&not_taken);
        let lacks = run.json()["arrays"][0]["not_applied"].to_string();
        assert!(lacks.contains("none applies"), "{setting}: {run:?}");
        assert_eq!(run.code, 5, "{run:?}");
    }
    let would = dry(&file);
    let run = rig.run(&["config", "restore", &file, "data", "--yes"]);
    let told = run.json();
    assert_eq!(run.code, 5, "{run:?}");
    assert_eq!(would.code, 5, "{would:?}");
    let would = would.json()["arrays"][0].clone();
    assert_eq!(would["not_applied"], told["arrays"][0]["not_applied"]);
    assert!(
        would["what"]
            .to_string()
            .contains("would be made again, but"),
        "{would}"
    );
    let lacks = told["arrays"][0]["not_applied"].to_string();
    assert!(lacks.contains("pool=shelf"), "{told}");
    let what = told["arrays"][0]["what"].to_string();
    assert!(what.contains("pool=shelf"), "{told}");
    let get = rig.run(&["get", "data", "rebuild_priority"]).ok().json();
    assert_eq!(get["rebuild_priority"], 77, "{get}");
}

/// The daemon ends at some moment of a restore: of its superblocks none is written, or some, or
/// all, and the name means the old array. The same command finishes it, whatever the moment: with
/// the data, the volumes and the settings.
#[test]
fn a_restore_that_is_cut_off_at_any_moment_is_finished_by_the_same_command() {
    for pause_ms in [0, 4, 8, 16, 40, 120] {
        let mut rig = Rig::new();
        rig.start_daemon();
        let devices = rig.files(4);
        rig.create("data", "5", NBD, &devices).ok();
        rig.run(&["volume", "create", "data", "v", "--size", "40M"])
            .ok();
        rig.run(&["set", "data", "rebuild_priority=77"]).ok();
        if !volume_io(&rig, "write -P 3 0 20M") {
            return;
        }
        let file = rig.path("backup.json");
        rig.run(&["config", "backup", &file]).ok();
        rig.run(&["stop", "data"]).ok();
        devices.iter().for_each(|device| destroy(device, HEAD));

        let mut command = rig.command();
        command.args(["config", "restore", &file, "--yes"]);
        command.stderr(Stdio::null()).stdout(Stdio::null());
        let mut restore = command.spawn().expect("it runs");
        let heirs = rig.dir().join("heirs");
        let is_record = |file: fs::DirEntry| file.path().extension().is_some_and(|e| e == "json");
        let begun = || fs::read_dir(&heirs).is_ok_and(|files| files.flatten().any(is_record));
        rig.until("it begins, or has ended", || {
            begun() || restore.try_wait().expect("it runs").is_some()
        });
        std::thread::sleep(Duration::from_millis(pause_ms));
        rig.kill_daemon();
        restore.wait().expect("it ends");

        rig.start_daemon();
        // The first command may have finished before the daemon ended, though its client was not
        // answered: then the array is there, and the command says that nothing is to be done.
        let again = rig.run(&["config", "restore", &file, "--yes"]);
        if again.code != 0 {
            let again = again.refused(4, "name-exists");
            let cure = again.json_error()["cure"].to_string();
            assert!(cure.contains("nothing is to be done"), "{cure}");
        }
        rig.until_state("data", "optimal");
        assert!(volume_io(&rig, "read -P 3 0 20M"), "{pause_ms} ms");
        let settings = rig.run(&["get", "data"]).ok().json();
        assert_eq!(settings["rebuild_priority"], 77, "{pause_ms} ms");
        assert!(!begun(), "{pause_ms} ms: it is remembered for ever");
        rig.run(&["config", "restore", &file, "--dry-run"]);
        rig.run(&["stop", "data"]).ok();
        rig.run(&["start", "data"]).ok();
        assert!(volume_io(&rig, "read -P 3 0 20M"), "{pause_ms} ms");
    }
}

/// One command of qemu-io on the volume `v`; false where there is no qemu-io.
fn volume_io(rig: &Rig, command: &str) -> bool {
    let socket = rig.dir().join("volumes/data/v.sock");
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let mut qemu = Command::new("qemu-io");
    let Ok(output) = qemu.args(["-f", "raw", "-c", command, &uri]).output() else {
        skipped("qemu-io is not installed");
        return false;
    };
    assert!(output.status.success(), "{output:?}");
    true
}

/// What is no backup is refused as that, without an end to be read.
#[test]
fn a_file_that_is_no_backup_is_refused_whatever_it_is() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let binary = rig.path("binary");
    fs::write(&binary, b"{\xff").expect("written");
    let huge = rig.file("huge", 1 << 40);
    let folder = rig.folder.path().display().to_string();
    let fifo = rig.path("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo").success());
    for (file, found) in [
        (binary.as_str(), "byte 1 "),
        (&huge, "more than 64 MiB"),
        ("/dev/zero", "a character device"),
        (&folder, "a folder"),
        (&fifo, "a FIFO"),
    ] {
        let run = within(&rig, 60, &["config", "restore", file]);
        let run = run.refused(2, "backup-invalid");
        assert!(run.err.contains(found) && run.err.contains(file), "{run:?}");
    }
}

/// What a shell puts in place of a file is a pipe: `<(gpg -d backup.gpg)`, or /dev/stdin.
#[test]
fn a_backup_is_read_from_a_pipe_also_where_its_writer_is_slow() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "5", NBD, &rig.files(3)).ok();
    let file = rig.path("backup.json");
    rig.run(&["config", "backup", &file]).ok();
    let slowly = "(sleep 0.5; cat \"$1\")";
    for script in [
        format!("\"$0\" --json config restore <{slowly} --dry-run"),
        format!("{slowly} | \"$0\" --json config restore /dev/stdin --dry-run"),
    ] {
        let mut command = Command::new("bash");
        command.args(["-c", &script, STRAKE, &file]);
        let run = rig.run_command(command.env("STRAKE_DIR", rig.dir()));
        assert_eq!(run.ok().json()["arrays"][0]["name"], "data");
    }
}

/// The resync of the restored array computed parity from the data: what did not agree was gone, and
/// so was every sign of it.
#[test]
fn what_does_not_agree_after_a_restore_is_said_and_left_until_a_person_decides() {
    for (level, members, head) in [("5", 4, HEAD), ("6", 5, HEAD_AND_MAP), ("1", 2, HEAD)] {
        let mut rig = Rig::new();
        let Some((devices, file)) = backed_up(&mut rig, level, members) else {
            return;
        };
        let place = rig.run(&["explain", "data", "0"]).ok().json();
        let parity = &place["redundancy"][0];
        rot(parity);
        let before = stored(parity);
        devices.iter().for_each(|device| destroy(device, head));
        let slots: Vec<String> = (0..)
            .zip(&devices)
            .map(|(n, d): (u32, _)| format!("{n}={d}"))
            .collect();
        let mut restore = vec!["config", "restore", file.as_str(), "--yes"];
        if head == HEAD_AND_MAP {
            restore.extend(slots.iter().flat_map(|slot| ["--slot", slot]));
        }
        rig.run(&restore).ok();
        rig.until("it is compared", || {
            rig.show("data")["undecided_regions"] == 1
        });
        rig.until("the resync goes no further", || {
            let job = rig.show("data")["jobs"][0].clone();
            job["paused_by"] == "inconsistent"
        });
        assert!(stored(parity) == before, "{level}: it was written over");
        let events = rig.events();
        let called = |event: &str| events.iter().filter(|e| e["event"] == event).count();
        assert_eq!(called("undecided"), 1, "{level}: {events:?}");
        let named = if level == "6" {
            "mismatch"
        } else {
            "inconsistent"
        };
        assert_eq!(called(named), 1, "{level}: {events:?}");
        rig.qemu_io("data", CONTENT);
        rig.run(&["scrub", "data", "accept", "--yes", "--wait"])
            .ok();
        assert_eq!(rig.show("data")["undecided_regions"], 0);
        assert!(
            stored(parity) != before,
            "{level}: it was not computed anew"
        );
        rig.run(&["fail", "data", "0"]).ok();
        rig.qemu_io("data", CONTENT);
    }
}

/// A restored array has another identity: the backup that made it again makes it no second time.
#[test]
fn a_restore_advises_a_new_backup_and_the_old_one_is_refused_with_why() {
    let mut rig = Rig::new();
    let Some((devices, file)) = backed_up(&mut rig, "5", 3) else {
        return;
    };
    let elder = rig.show("data")["uuid"]
        .as_str()
        .expect("a uuid")
        .to_owned();
    devices.iter().for_each(|device| destroy(device, HEAD));
    let done = rig.run(&["config", "restore", &file, "--yes"]).ok().json();
    let what = done["arrays"][0]["what"].as_str().expect("it is said");
    assert!(what.contains("strake config backup FILE"), "{what}");
    rig.until("the resync", || rig.show("data")["jobs"] == json!([]));
    let new = rig.path("new.json");
    rig.run(&["config", "backup", &new]).ok();
    let own = rig.show("data")["uuid"]
        .as_str()
        .expect("a uuid")
        .to_owned();
    rig.run(&["stop", "data"]).ok();
    devices.iter().for_each(|device| destroy(device, HEAD));
    let refused = rig.run(&["config", "restore", &file, "--yes"]);
    let error = refused.json_error();
    refused.refused(4, "members-missing");
    let (found, cure) = (error["found"].to_string(), error["cure"].to_string());
    assert!(found.contains(&elder) && found.contains(&own), "{error}");
    assert!(
        cure.contains("use a backup that was taken since"),
        "{error}"
    );
    rig.run(&["config", "restore", &new, "--yes"]).ok();
    rig.qemu_io("data", CONTENT);
}

/// One pair was named, and the next by the refusal of what was advised.
#[test]
fn all_that_may_have_taken_the_place_of_members_is_named_at_once() {
    let mut rig = Rig::new();
    let Some((mut devices, file)) = backed_up(&mut rig, "6", 5) else {
        return;
    };
    rig.run(&["start", "data"]).ok();
    let old = devices.clone();
    for slot in [1, 3] {
        rig.run(&["fail", "data", &slot.to_string()]).ok();
        rig.qemu_io("data", &["write -P 9 0 4M", "flush"]);
        let new = rig.file(&format!("new{slot}"), 64 << 20);
        rig.run(&["add", "data", &new]).ok();
        rig.until_state("data", "optimal");
        devices[slot] = new;
    }
    rig.qemu_io("data", &["write -P 8 12M 64k", "flush"]);
    rig.run(&["stop", "data"]).ok();
    let all = devices.iter().chain([&old[1], &old[3]]);
    all.for_each(|device| destroy(device, HEAD));
    let restore = |more: &[&str]| {
        let args = ["config", "restore", &file, "data", "--yes", "--dry-run"];
        rig.run(&[&args[..], more].concat())
    };
    let refused = restore(&[]);
    let error = refused.json_error();
    refused.refused(4, "members-disagree");
    let (found, cure) = (error["found"].to_string(), error["cure"].to_string());
    for slot in [1, 3] {
        assert!(found.contains(&old[slot]), "{error}");
        for device in [&devices[1], &devices[3], &old[slot]] {
            assert!(cure.contains(&format!("--slot {slot}={device}")), "{error}");
        }
    }
    let named = [1, 3].map(|slot| format!("{slot}={}", devices[slot]));
    let would = restore(&["--slot", &named[0], "--slot", &named[1], "--accept-stale"]);
    assert_eq!(would.ok().json()["arrays"][0]["devices"], json!(devices));
}
