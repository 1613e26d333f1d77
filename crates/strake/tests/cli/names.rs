//! Arrays of one name: which of them is served, and how the other is had.

use std::fs;

use serde_json::Value;

use crate::config::{HEAD, destroy};
use crate::rig::Rig;

/// An array called data that another host made, in a folder of its own; and its uuid.
fn foreign(rig: &Rig, folder: &str) -> String {
    let host = Rig::new();
    let devices = host.files(2);
    host.create("data", "1", &[], &devices).ok();
    let uuid = host.show("data")["uuid"].clone();
    fs::create_dir_all(rig.path(folder)).expect("a folder");
    for (i, device) in devices.iter().enumerate() {
        let to = format!("{}/{folder}{i}", rig.path(folder));
        fs::copy(device, to).expect("copied");
    }
    uuid.as_str().expect("a uuid").to_owned()
}

fn refusals(rig: &Rig) -> Vec<String> {
    let told = |e: &Value| (e["event"] == "start_refused").then(|| e["cause"].to_string());
    rig.events().iter().filter_map(told).collect()
}

/// The array data of this host, and one of that name from another host in the folder x.
struct Both {
    devices: Vec<String>,
    own: Value,
    other: String,
}

impl Both {
    /// Its own is stopped.
    fn new(rig: &mut Rig) -> Both {
        rig.start_daemon();
        let devices = rig.files(2);
        rig.create("data", "1", &["--export", "nbd"], &devices).ok();
        let own = rig.show("data")["uuid"].clone();
        rig.stop_daemon();
        let other = foreign(rig, "x");
        Both {
            devices,
            own,
            other,
        }
    }

    /// Starts a daemon that finds both, and serves its own.
    fn start(&self, rig: &mut Rig) {
        rig.start_daemon_with(&["--scan", &rig.path("x")]);
        rig.until_state(self.own.as_str().expect("a uuid"), "optimal");
    }
}

#[test]
fn an_array_of_another_host_never_takes_the_name_of_one_that_is_served_here() {
    let mut rig = Rig::new();
    let options = ["--scan", &rig.path("x")];
    let both = Both::new(&mut rig);
    let (devices, own, other) = (&both.devices, &both.own, &both.other);

    // Both are there.
    both.start(&mut rig);
    rig.until("the refusal", || !refusals(&rig).is_empty());
    assert_eq!(rig.show("data")["uuid"], *own);
    rig.run(&["start", other]).refused(4, "name-exists");
    let before = refusals(&rig).len();
    rig.stop_daemon();

    // Only the other one is.
    for device in devices {
        fs::rename(device, format!("{device}-away")).expect("renamed");
    }
    rig.start_daemon_with(&options);
    rig.until("the refusal", || refusals(&rig).len() > before);
    let said = refusals(&rig).pop().expect("a refusal");
    assert!(said.contains("name-of-another-array"), "{said}");
    let refused = rig
        .run(&["start", "data"])
        .refused(4, "name-of-another-array");
    let cure = refused.json_error()["cure"].clone();
    assert!(
        cure.as_str()
            .is_some_and(|c| c.contains(&format!("strake import {other} --as")))
    );
    rig.run(&[
        "start",
        "--foreground",
        "--export",
        "none",
        "data",
        options[1],
    ])
    .refused(4, "name-of-another-array");
    for device in devices {
        fs::rename(format!("{device}-away"), device).expect("renamed");
    }
    rig.until("its own", || {
        let shown = rig.run(&["show", "data"]);
        shown.code == 0 && shown.json()["state"] == "optimal"
    });
    assert_eq!(rig.show("data")["uuid"], *own);
}

#[test]
fn an_array_of_another_host_is_imported_under_another_name_and_keeps_it() {
    let mut rig = Rig::new();
    let both = Both::new(&mut rig);
    both.start(&mut rig);
    let other = both.other.as_str();
    rig.run(&["import", other]).refused(4, "name-exists");
    rig.run(&["import", other, "--as", "a b"])
        .refused(2, "name-invalid");
    let would = rig.run(&["import", other, "--as", "theirs", "--dry-run"]);
    assert_eq!(would.ok().json()["array"], "theirs");
    let theirs = rig.run(&["import", other, "--as", "theirs", "--export", "nbd"]);
    assert_eq!(theirs.ok().json()["name"], "theirs");
    assert!(rig.nbd("theirs").exists() && rig.nbd("data").exists());
    rig.run(&["import", other, "--as", "theirs"]).ok();
    rig.run(&["import", other, "--as", "mine"])
        .refused(4, "array-in-use");
    let events = rig.events();
    let told = events.iter().find(|e| e["event"] == "imported");
    assert_eq!(told.expect("an event")["array"], "theirs");
    rig.kill_daemon();
    both.start(&mut rig);
    rig.until_state("theirs", "optimal");
    rig.until_state("data", "optimal");
    assert_eq!(rig.show("theirs")["uuid"], Value::from(other));
    assert_eq!(rig.show("data")["uuid"], both.own);
}

#[test]
fn of_two_arrays_that_were_never_served_here_none_is_chosen() {
    let mut rig = Rig::new();
    let uuids = [foreign(&rig, "x"), foreign(&rig, "y")];
    rig.start_daemon_with(&["--scan", &rig.path("x"), "--scan", &rig.path("y")]);
    rig.until("both refusals", || refusals(&rig).len() == 2);
    assert!(
        refusals(&rig)
            .iter()
            .all(|said| said.contains("name-ambiguous"))
    );
    rig.run(&["start", "data"]).refused(4, "name-ambiguous");
    assert!(!rig.nbd("data").exists());
    rig.run(&["import", &uuids[0]]).refused(4, "name-exists");
    rig.run(&["import", &uuids[0], "--as", "first"]).ok();
    // The other is alone with its name now.
    rig.until_state("data", "optimal");
    assert_eq!(rig.show("data")["uuid"], Value::from(uuids[1].clone()));
}

#[test]
fn a_name_whose_array_is_gone_is_taken_over_by_word_and_by_a_new_array() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(2);
    rig.create("data", "1", &["--export", "nbd"], &devices).ok();
    rig.stop_daemon();
    for device in &devices {
        fs::remove_file(device).expect("removed");
    }
    let other = foreign(&rig, "x");
    let folder = rig.path("x");
    // Without a daemon it is adopted, and served by the next.
    let here = rig.run(&["import", &other, &folder]).ok().json();
    assert_eq!(here["changed"], true);
    rig.run(&["import", "00000000-0000-4000-8000-000000000001", &folder])
        .refused(3, "array-not-found");
    rig.start_daemon();
    rig.until_state("data", "optimal");
    assert_eq!(rig.show("data")["uuid"], Value::from(other));
    rig.run(&["stop", "data"]).ok();
    for device in 0..2 {
        fs::remove_file(format!("{folder}/x{device}")).expect("removed");
    }
    let more = rig.files_called("e", 2);
    rig.create("data", "1", &["--export", "nbd"], &more).ok();
    let uuid = rig.show("data")["uuid"].clone();
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    assert_eq!(rig.show("data")["uuid"], uuid);
}

#[test]
fn what_is_asked_by_a_uuid_is_told_by_the_name() {
    let mut rig = Rig::new();
    let both = Both::new(&mut rig);
    both.start(&mut rig);
    let own = both.own.as_str().expect("a uuid");
    for asked in [
        &["set", own, "rebuild_priority=7"][..],
        &["scrub", own, "start"],
        &["fail", own, "1"],
        &["add", own, &rig.file("more", 64 << 20)],
        &["stop", own],
        &["destroy", &both.other, "--yes"],
    ] {
        let done = rig.run(asked).ok().json();
        assert_eq!(done["array"], "data", "{asked:?}: {done}");
    }
    let destroyed = rig.events().into_iter().find(|e| e["event"] == "destroyed");
    assert_eq!(destroyed.expect("it is told")["array"], "data");
}

/// A mirror that was made again by a backup, and the uuid of the one before it, of which a member
/// that was replaced is still there.
fn restored(rig: &mut Rig) -> (Vec<String>, String) {
    rig.start_daemon();
    let devices = rig.files(2);
    rig.create("data", "1", &["--export", "nbd"], &devices).ok();
    let elder = rig.show("data")["uuid"].clone();
    rig.run(&["fail", "data", "1"]).ok();
    let new = rig.file("new", 64 << 20);
    rig.run(&["add", "data", &new]).ok();
    rig.until_state("data", "optimal");
    let file = rig.path("backup.json");
    rig.run(&["config", "backup", &file]).ok();
    rig.run(&["stop", "data"]).ok();
    let ours = vec![devices[0].clone(), new];
    ours.iter().for_each(|device| destroy(device, HEAD));
    rig.run(&["config", "restore", &file, "--yes"]).ok();
    (ours, elder.as_str().expect("a uuid").to_owned())
}

/// Nothing but `drive clean` of the old member helped.
#[test]
fn a_name_means_the_array_that_had_it_last_also_beside_an_old_member_of_another() {
    let mut rig = Rig::new();
    let (ours, elder) = restored(&mut rig);
    let own = rig.show("data")["uuid"].clone();
    assert_ne!(own, elder.as_str());
    rig.run(&["stop", "data"]).ok();
    assert_eq!(rig.show("data")["uuid"], own);
    rig.run(&["get", "data"]);
    rig.run(&["start", "data"]).ok();
    assert_eq!(rig.show("data")["uuid"], own);
    rig.stop_daemon();
    // Without a daemon it means the same.
    assert_eq!(rig.show("data")["uuid"], own);
    rig.start_daemon();
    rig.until("it serves", || rig.show("data")["state"] == "optimal");
    // The old member is had by the uuid.
    assert_eq!(rig.show(&elder)["uuid"], elder.as_str());
    // What it says of the others is not so any more: they are the other array's.
    let done = rig.run(&["destroy", &elder, "--yes"]).ok().json();
    assert_eq!(done["what"], "1 superblock wiped", "{done}");
    let devices = rig.show("data")["members"].clone();
    assert_eq!(devices[0]["device"], ours[0].as_str());
    assert_eq!(devices[1]["device"], ours[1].as_str());
    rig.run(&["stop", "data"]).ok();
    rig.run(&["destroy", "data", "--yes"]).ok();
}

#[test]
fn what_was_wiped_before_is_not_named_as_what_still_carries_a_superblock() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(2);
    rig.create("data", "1", &["--export", "nbd"], &devices).ok();
    let uuid = rig.show("data")["uuid"]
        .as_str()
        .expect("a uuid")
        .to_owned();
    rig.run(&["stop", "data"]).ok();
    fs::rename(&devices[1], rig.path("away")).expect("unplugged");
    let done = rig.run(&["destroy", "data", "--yes"]).ok().json();
    let what = done["what"].as_str().expect("it is said");
    assert!(what.contains("still carry"), "{done}");
    fs::rename(rig.path("away"), &devices[1]).expect("plugged");
    for (args, what) in [
        (&["--dry-run"], "wipe the superblocks of "),
        (&["--yes"], "1 superblock wiped"),
    ] {
        let args = [&["destroy", uuid.as_str()], &args[..]].concat();
        let done = rig.run(&args).ok().json();
        let told = [&done["what"], &done["would"]];
        let told = told.iter().find_map(|t| t.as_str()).expect("it is said");
        assert!(told.starts_with(what), "{done}");
        assert!(!told.contains("still carry"), "{done}");
    }
}

/// Which members were wiped was forgotten when the array was taken back.
#[test]
fn what_was_wiped_stays_known_of_an_array_that_is_taken_back() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "1", &["--export", "none"], &devices)
        .ok();
    let uuid = rig.show("data")["uuid"]
        .as_str()
        .expect("a uuid")
        .to_owned();
    rig.run(&["stop", "data"]).ok();
    fs::rename(&devices[2], rig.path("away")).expect("unplugged");
    rig.run(&["destroy", "data", "--yes"]).ok();
    fs::rename(rig.path("away"), &devices[2]).expect("plugged");
    for device in &devices[..2] {
        fs::remove_file(device).expect("its drive is used elsewhere");
    }
    rig.run(&["start", &uuid]).refused(4, "array-destroyed");
    let started = rig.run(&["start", "--force", &uuid, "--export", "none"]);
    assert!([0, 5].contains(&started.code), "{started:?}");
    assert_eq!(rig.show(&uuid)["state"], "degraded");
    rig.run(&["stop", &uuid]).ok();
    let started = rig.run(&["start", &uuid, "--export", "none"]);
    assert!([0, 5].contains(&started.code), "{started:?}");
    rig.run(&["stop", &uuid]).ok();
    let done = rig.run(&["destroy", &uuid, "--yes"]).ok().json();
    assert_eq!(done["what"], "1 superblock wiped", "{done}");
    rig.run(&["start", &uuid]).refused(3, "array-not-found");
}
