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
