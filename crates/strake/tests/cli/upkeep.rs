//! What an administrator asks of an array now and then.

use std::fs;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::rig::Rig;

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
    let says = "forget 0 read errors, 0 write errors and 1 mismatches";
    assert_eq!(would["would"], says);
    assert_eq!(mismatches(&rig)[slot], 1);
    let done = rig.run(&["reset", "data", &devices[slot]]).ok().json();
    assert_eq!(done["changed"], true);
    assert_eq!(mismatches(&rig), [0; 5]);
    let again = rig.run(&["reset", "data"]).ok().json();
    assert_eq!(again["changed"], false);
    let events = rig.events();
    let told: Vec<&Value> = events
        .iter()
        .filter(|e| e["event"] == "counters_reset")
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["slot"], slot);
    assert_eq!(told[0]["device"], devices[slot]);
    let had = "had 0 read errors, 0 write errors, 1 mismatches";
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
    // Somebody who is connected stays so.
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
    let events = rig.events();
    let told = events.iter().find(|e| e["event"] == "renamed");
    let told = told.expect("an event");
    assert_eq!(
        (&told["array"], &told["effect"]),
        (
            &serde_json::json!("data"),
            &serde_json::json!("called store from now on")
        )
    );
    // The old name is free, and whoever has it keeps it when the first one stops.
    let other = rig.files_called("e", 2);
    rig.create("data", "1", NBD, &other).ok();
    rig.run(&["stop", "store"]).ok();
    assert!(rig.nbd("data").exists() && !rig.nbd("store").exists());
    let events = rig.events();
    let stopped = events.iter().rfind(|e| e["event"] == "stopped");
    assert_eq!(stopped.expect("an event")["array"], "store");
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("store", "optimal");
    if written {
        rig.qemu_io("store", &["read -P 5 0 8M"]);
    }
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
