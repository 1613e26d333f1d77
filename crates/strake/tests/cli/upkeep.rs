//! What an administrator asks of an array now and then.

use std::fs;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::rig::{Rig, bytes};

const NBD: &[&str] = &["--export", "nbd"];

fn mismatches(rig: &Rig) -> Vec<u64> {
    let shown = rig.show("data");
    let members = shown["members"].as_array().expect("members");
    let of = |m: &Value| m["mismatches"].as_u64().expect("a count");
    members.iter().map(of).collect()
}

/// Makes the strip that holds block 0 lie, and scrubs.
fn lie(rig: &Rig) -> usize {
    let place = &rig.run(&["explain", "data", "0"]).ok().json()["data"];
    let device = place["device"].as_str().expect("a device");
    let file = fs::File::options().read(true).write(true).open(device);
    let offset = place["member_offset_bytes"].as_u64().expect("an offset");
    let mut byte = [0];
    let file = file.expect("opened");
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[!byte[0]], offset).expect("written");
    rig.run(&["scrub", "data", "--repair", "--wait"]).ok();
    rig.until("the scrub", || {
        rig.show("data")["jobs"] == serde_json::json!([])
    });
    place["slot"].as_u64().expect("a slot") as usize
}

#[test]
fn counts_against_members_begin_anew_when_asked_and_an_event_tells_what_they_were() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(5);
    rig.create("data", "6", NBD, &devices).ok();
    if rig.qemu_io("data", &["write -P 1 0 4M", "flush"]).is_none() {
        return;
    }
    let slot = lie(&rig);
    assert_eq!(mismatches(&rig)[slot], 1);
    // Another member's count, and a rehearsal, leave it as it is.
    let other = ((slot + 1) % 5).to_string();
    let none = rig.run(&["reset", "data", &other]).ok().json();
    assert_eq!(none["changed"], false);
    let would = rig.run(&["reset", "data", "--dry-run"]).ok().json();
    let says = "forget 0 read errors, 0 write errors, 1 mismatches and 0 retries";
    assert_eq!(would["would"], says);
    assert_eq!(mismatches(&rig)[slot], 1);
    let done = rig.run(&["reset", "data", &devices[slot]]).ok().json();
    assert_eq!(done["changed"], true);
    assert_eq!(mismatches(&rig), [0; 5]);
    let again = rig.run(&["reset", "data"]).ok().json();
    assert_eq!(again["changed"], false);
    let reset = |e: &Value| e["event"] == "counters_reset";
    rig.event("the event", reset);
    let events = rig.events();
    let told: Vec<&Value> = events.iter().filter(|e| reset(e)).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["slot"], slot);
    assert_eq!(told[0]["device"], devices[slot]);
    let had = "had 0 read errors, 0 write errors, 1 mismatches, 0 retries";
    assert_eq!(told[0]["cause"], had);
    // They count on from there.
    assert_eq!(lie(&rig), slot);
    assert_eq!(mismatches(&rig)[slot], 1);
    rig.run(&["reset", "data"]).ok();
    assert_eq!(mismatches(&rig), [0; 5]);

    rig.run(&["reset", "data", "7"])
        .refused(3, "member-not-found");
    rig.run(&["reset", "none"]).refused(3, "array-not-found");
    rig.run(&["stop", "data"]).ok();
    rig.run(&["reset", "data"]).refused(4, "array-not-serving");
}

#[test]
fn an_array_is_renamed_under_its_users_and_everything_that_goes_by_the_name_follows() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(5);
    rig.create("data", "5", NBD, &devices[..3]).ok();
    rig.create("more", "1", NBD, &devices[3..]).ok();
    let uuid = rig.show("data")["uuid"].clone();
    // An open connection stays.
    let mut user = std::os::unix::net::UnixStream::connect(rig.nbd("data")).expect("connected");
    let written = rig.qemu_io("data", &["write -P 5 0 8M"]).is_some();

    rig.run(&["rename", "data", "more"])
        .refused(4, "name-exists");
    rig.run(&["rename", "data", "a/b"])
        .refused(2, "name-invalid");
    rig.run(&["rename", "none", "other"])
        .refused(3, "array-not-found");
    let would = rig.run(&["rename", "data", "store", "--dry-run"]);
    assert_eq!(would.ok().json()["changed"], false);
    let same = rig.run(&["rename", "data", "data"]).ok().json();
    assert_eq!(same["changed"], false);
    assert!(rig.nbd("data").exists());

    let done = rig.run(&["rename", "data", "store"]).ok().json();
    assert_eq!(done["changed"], true);
    assert!(!rig.nbd("data").exists());
    let shown = rig.show("store");
    assert_eq!(shown["uuid"], uuid);
    let device = shown["device"].as_str().expect("a device");
    assert!(device.ends_with("/nbd/store.sock"), "{device}");
    rig.run(&["show", "data"]).refused(3, "array-not-found");
    let mut hello = [0; 8];
    std::io::Read::read_exact(&mut user, &mut hello).expect("the server's greeting");
    assert_eq!(&hello, b"NBDMAGIC");
    if written {
        rig.qemu_io("store", &["read -P 5 0 8M"]);
    }
    let told = rig.event("the event", |e| e["event"] == "renamed");
    assert_eq!(
        (&told["array"], &told["effect"]),
        (
            &serde_json::json!("data"),
            &serde_json::json!("called store from now on")
        )
    );
    // The old name is free, and an array that takes it keeps it when the first one stops.
    let other = rig.files_called("e", 2);
    rig.create("data", "1", NBD, &other).ok();
    rig.run(&["stop", "store"]).ok();
    assert!(rig.nbd("data").exists() && !rig.nbd("store").exists());
    let stopped = rig.event("the event", |e| e["event"] == "stopped");
    assert_eq!(stopped["array"], "store");
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("store", "optimal");
    if written {
        rig.qemu_io("store", &["read -P 5 0 8M"]);
    }
}

#[test]
fn a_spare_takes_the_place_of_a_member_that_still_serves_when_asked() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    let options = ["--export", "nbd", "--spare", &devices[3]];
    rig.create("data", "5", &options, &devices[..3]).ok();
    let written = rig.qemu_io("data", &["write -P 3 0 8M"]).is_some();
    rig.run(&["replace", "data", "7"])
        .refused(3, "member-not-found");
    let would = rig.run(&["replace", "data", "1", "--dry-run"]).ok().json();
    assert_eq!(would["changed"], false);
    let done = rig.run(&["replace", "data", &devices[1]]).ok().json();
    assert_eq!(done["changed"], true);
    rig.until("the replacement", || {
        let shown = rig.show("data");
        let members = shown["members"].as_array().expect("members");
        assert_eq!(shown["state"], "optimal");
        members.len() == 3 && members[1]["device"] == devices[3]
    });
    if written {
        rig.qemu_io("data", &["read -P 3 0 8M"]);
    }
    assert!(rig.events().iter().all(|e| e["effect"] != "degraded"));
    rig.run(&["replace", "data", "0"]).refused(4, "no-spare");
}

#[test]
fn when_worn_drives_are_to_be_replaced_is_set_beside_the_daemon() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(2);
    rig.create("data", "1", NBD, &devices).ok();
    let told = |rig: &Rig| {
        let run = rig.run_command(rig.command().args(["get", "data", "replace_at_wear"]));
        run.ok().out.trim().to_owned()
    };
    assert_eq!(told(&rig), "90");
    let set = |rig: &Rig, value: &str| {
        let wanted = format!("replace_at_wear={value}");
        let done = rig.run(&["set", "data", &wanted]).ok().json();
        assert_eq!(done["what"], format!("set {wanted}"));
        assert_eq!(told(rig), value);
    };
    set(&rig, "80");
    rig.kill_daemon();
    rig.start_daemon();
    assert_eq!(told(&rig), "80");
    set(&rig, "off");
    rig.run(&["stop", "data"]).ok();
    assert_eq!(told(&rig), "off");
    set(&rig, "90");
    for wrong in ["0", "256", "-1", "worn", "auto"] {
        rig.run(&["set", "data", &format!("replace_at_wear={wrong}")])
            .refused(2, "setting-invalid");
    }
}

#[test]
fn a_member_that_has_no_light_is_named_with_what_was_looked_for() {
    let mut rig = Rig::new();
    let devices = rig.files(2);
    rig.create("data", "1", &["--export", "none"], &devices)
        .ok();
    for with_daemon in [false, true] {
        if with_daemon {
            rig.start_daemon();
        }
        for member in ["0", &devices[1]] {
            let refused = rig.run(&["locate", "data", member, "on"]);
            refused.refused(1, "no-locate-light");
        }
        let refused = rig.run(&["locate", "data", "7", "off"]);
        refused.refused(3, "member-not-found");
        rig.run(&["locate", "data", "0", "blink"])
            .refused(2, "usage");
        rig.run(&["locate", "none", "0", "on"])
            .refused(3, "array-not-found");
    }
}

#[test]
fn devices_are_cleaned_of_what_strake_left_and_of_nothing_else() {
    for with_daemon in [false, true] {
        let mut rig = Rig::new();
        if with_daemon {
            rig.start_daemon();
        }
        let d = rig.files(5);
        rig.create("data", "1", &["--export", "none"], &d[..2]).ok();
        rig.run(&["pool", "create", "spares", &d[2]]).ok();
        let clean = |devices: &[&String], options: &[&str]| {
            let mut args = vec!["drive", "clean"];
            args.extend(devices.iter().map(|device| device.as_str()));
            args.extend(options);
            rig.run(&args)
        };
        if with_daemon {
            clean(&[&d[2], &d[0]], &["--yes"]).refused(4, "member-in-use");
            rig.run(&["stop", "data"]).ok();
        }
        clean(&[&d[0], &d[4]], &["--yes"]).refused(3, "not-a-member");
        clean(&[&d[0], &d[0]], &["--yes"]).refused(2, "device-given-twice");
        clean(&[&d[0]], &[]).refused(4, "not-confirmed");
        let would = clean(&[&d[0], &d[2]], &["--dry-run"]).ok().json();
        assert_eq!(would["devices"][1]["was"], "in the pool spares");
        // So far nothing was written.
        rig.run(&["examine", &d[0]]).ok();
        rig.run(&["pool", "show", "spares"]).ok();
        // What is damaged is cleaned, too.
        let mut damaged = bytes(&d[1]);
        let last = damaged.len() - 65536;
        for at in [4096 + 100, last + 100] {
            damaged[at] ^= 1;
        }
        std::fs::write(&d[1], damaged).expect("it is ours");
        rig.run(&["examine", &d[1]]).refused(1, "metadata-damaged");
        let done = clean(&[&d[0], &d[1], &d[2]], &["--yes"]).ok().json();
        let was = done["devices"][0]["was"].as_str().expect("text");
        assert!(was.starts_with("slot 0 of array data"), "{was}");
        for device in &d[..3] {
            rig.run(&["examine", device]).refused(3, "not-a-member");
            clean(&[device], &["--yes"]).refused(3, "not-a-member");
        }
        for device in [&d[0], &d[2]] {
            assert!(
                bytes(device).iter().all(|byte| *byte == 0),
                "nothing is left"
            );
        }
        rig.create("data", "1", &["--export", "none"], &d[..3]).ok();
    }
}

#[test]
fn what_past_scrubs_found_is_told_also_after_a_kill_and_without_a_daemon() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    let past = |rig: &Rig| {
        let told = rig.run(&["scrub", "data", "status"]).ok().json();
        assert_eq!(told["name"], "data");
        told["past"].as_array().expect("a list").clone()
    };
    assert!(past(&rig).is_empty());
    rig.run(&["scrub", "data", "--wait"]).ok();
    assert_eq!(past(&rig).len(), 1);
    // Times are told in seconds, and tell one from the other.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    rig.run(&["scrub", "data", "--repair", "--wait"]).ok();
    let both = past(&rig);
    let repairs: Vec<bool> = both.iter().map(|s| s["repair"] == true).collect();
    assert_eq!(repairs, [true, false], "the newest comes first");
    rig.kill_daemon();
    assert_eq!(past(&rig), both);
    rig.start_daemon();
    rig.until_state("data", "optimal");
    assert_eq!(past(&rig), both);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    rig.run(&["scrub", "data", "--wait"]).ok();
    assert_eq!(past(&rig)[1..], both);
    rig.run(&["stop", "data"]).ok();
    assert_eq!(past(&rig)[1..], both);
    rig.run(&["scrub", "none", "status"])
        .refused(3, "array-not-found");
}

#[test]
fn a_member_that_is_found_and_cannot_be_used_counts_as_missing_at_a_start() {
    let mut rig = Rig::new();
    let devices = rig.files(3);
    rig.create("data", "5", &[], &devices).ok();
    // The last superblock is left: it is found by that.
    let swap = std::process::Command::new("mkswap")
        .arg(&devices[2])
        .output();
    assert!(swap.expect("util-linux").status.success());
    rig.start_daemon_with(&["--wait", "0", "--degraded", "never"]);
    let refused = |e: &Value| {
        let cause = e["cause"].as_str().unwrap_or_default();
        e["event"] == "start_refused" && cause.starts_with("degraded-start-not-allowed")
    };
    rig.until("the refusal", || rig.events().iter().any(refused));
    assert_eq!(rig.show("data")["state"], "stopped");
    let asked = rig.run(&["start", "data", "--export", "none"]);
    assert_eq!(asked.json()["state"], "degraded");
}

#[test]
fn an_array_without_some_members_starts_by_the_rule_for_that() {
    let mut rig = Rig::new();
    let devices = rig.files(3);
    rig.create("data", "5", &[], &devices).ok();
    let out = |rig: &Rig| fs::rename(&devices[2], rig.path("away")).expect("renamed");
    let back = |rig: &Rig| fs::rename(rig.path("away"), &devices[2]).expect("renamed");
    out(&rig);
    // Not by itself: the event says what to do.
    rig.start_daemon_with(&["--wait", "0", "--degraded", "never"]);
    let refused = |e: &Value| {
        let cause = e["cause"].as_str().unwrap_or_default();
        e["event"] == "start_refused" && cause.starts_with("degraded-start-not-allowed")
    };
    rig.until("the refusal", || rig.events().iter().any(refused));
    assert_eq!(rig.show("data")["state"], "stopped");
    back(&rig);
    rig.until_state("data", "optimal");
    rig.stop_daemon();
    out(&rig);
    // By hand, always.
    rig.start_daemon_with(&["--wait", "0", "--degraded", "never"]);
    let asked = rig.run(&["start", "data", "--export", "none"]);
    assert_eq!(asked.json()["state"], "degraded");
    assert_eq!(asked.code, 5);
    rig.stop_daemon();
    // That the member is missing is known now: nothing is unexpected about it.
    rig.start_daemon_with(&["--wait", "0", "--degraded", "never"]);
    rig.until_state("data", "degraded");
    back(&rig);
    rig.until_state("data", "optimal");
    rig.stop_daemon();
    out(&rig);
    // At once, however long others would be waited for.
    rig.start_daemon_with(&["--wait", "600", "--degraded", "allow"]);
    rig.until_state("data", "degraded");
}

#[test]
fn a_stopped_array_is_renamed_with_and_without_a_daemon_unless_members_are_missing() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    let written = rig.qemu_io("data", &["write -P 5 0 8M"]).is_some();
    rig.run(&["stop", "data"]).ok();
    rig.run(&["rename", "data", "store"]).ok();
    assert_eq!(rig.show("store")["state"], "stopped");
    rig.stop_daemon();
    let done = rig.run(&["rename", "store", "depot"]).ok().json();
    assert_eq!(done["changed"], true);
    for device in &devices {
        let lies = rig.run(&["examine", device]).ok().json();
        assert_eq!(lies["array"]["name"], "depot");
    }
    fs::rename(&devices[2], rig.path("away")).expect("renamed");
    rig.run(&["rename", "depot", "data"])
        .refused(4, "members-missing");
    fs::rename(rig.path("away"), &devices[2]).expect("renamed");
    rig.start_daemon();
    rig.until_state("depot", "optimal");
    if written {
        rig.qemu_io("depot", &["read -P 5 0 8M"]);
    }
    // As it was told before it was renamed.
    let device = rig.show("depot")["device"].clone();
    assert!(device.as_str().is_some_and(|d| d.ends_with("depot.sock")));
}

/// What a member holds, as a newer version would write it.
pub(crate) fn of_newer_version(member: &str) -> Vec<u8> {
    let mut newer = bytes(member);
    let last = newer.len() - 65536;
    for at in [4096, last] {
        let block = &mut newer[at..at + 4096];
        block[8] = 99;
        let sum = strake_format::checksum::sealed(block, 12).to_le_bytes();
        block[12..16].copy_from_slice(&sum);
    }
    newer
}

#[test]
fn a_member_of_a_newer_version_is_not_called_damaged_and_not_cleaned() {
    let rig = Rig::new();
    let d = rig.files(2);
    rig.create("data", "1", &["--export", "none"], &d).ok();
    let newer = of_newer_version(&d[0]);
    std::fs::write(&d[0], &newer).expect("written");
    let refused = rig.run(&["drive", "clean", &d[0], "--yes"]);
    refused.refused(4, "metadata-newer");
    rig.run(&["examine", &d[0]]).refused(4, "metadata-newer");
    assert!(bytes(&d[0]) == newer);
}
