//! Arrays that were served here and of which no member is found, and one that loses more than its
//! level survives while it serves.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::rig::Rig;
use crate::upkeep::of_newer_version;

const NBD: &[&str] = &["--export", "nbd"];

/// Drives lose their power, or are moved to another host.
fn take_away(devices: &[String]) {
    for device in devices {
        fs::rename(device, format!("{device}.away")).expect("renamed");
    }
}

fn bring_back(devices: &[String]) {
    for device in devices {
        fs::rename(format!("{device}.away"), device).expect("renamed");
    }
}

fn text(rig: &Rig, args: &[&str]) -> String {
    rig.run_command(rig.command().args(args)).out
}

/// A channel of alerts whose program appends each message to a file.
fn channel(rig: &Rig) -> String {
    let (program, out) = (rig.path("alert"), rig.path("out"));
    fs::write(&program, format!("#!/bin/sh\ncat >> {out}\n")).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("ours");
    fs::create_dir_all(rig.dir()).expect("made");
    let file = rig.dir().join("strake.toml");
    let text =
        format!("[[alerts]]\nname = \"ops\"\ngroup = \"1s\"\nexec.command = [\"{program}\"]\n");
    fs::write(&file, text).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("ours");
    out
}

#[test]
fn an_array_without_any_member_is_shown_and_told_until_it_is_found() {
    let mut rig = Rig::new();
    let out = channel(&rig);
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    rig.create("other", "1", NBD, &rig.files_called("o", 2))
        .ok();
    rig.stop_daemon();
    take_away(&devices);
    // Without a daemon it is seen, too.
    let offline = rig.run(&["show", "data"]);
    assert_eq!(offline.code, 8, "{offline:?}");
    assert_eq!(offline.json()["not_found"], true, "{offline:?}");
    rig.start_daemon();
    rig.until("it is told", || {
        rig.events().iter().any(|e| e["event"] == "array_not_found")
    });
    let events = rig.events();
    let event = events.iter().find(|e| e["event"] == "array_not_found");
    let event = event.expect("there");
    assert_eq!(event["severity"], "critical", "{event}");
    let cause = event["cause"].as_str().expect("a cause");
    assert!(
        cause.contains(&format!("slot 1: {}", devices[1])),
        "{event}"
    );
    let effect = event["effect"].as_str().expect("an effect");
    assert!(effect.contains("strake forget data"), "{event}");

    let status = rig.run_command(rig.command().arg("status"));
    assert_eq!(status.code, 8, "{status:?}");
    assert!(
        status.out.contains("none of its members is found"),
        "{status:?}"
    );
    let list = text(&rig, &["show"]);
    assert!(list.contains("data   -      missing"), "{list}");
    let shown = rig.run_command(rig.command().args(["show", "data"]));
    assert_eq!(shown.code, 8, "{shown:?}");
    for part in [
        "data  missing\n",
        &format!("slot 2 had {}", devices[2]),
        "strake forget data",
    ] {
        assert!(shown.out.contains(part), "{part} in {shown:?}");
    }
    let doctor = rig.run(&["doctor"]).json();
    let finding = doctor["findings"][0].clone();
    assert_eq!(finding["array"], "data", "{doctor}");
    assert_eq!(finding["severity"], "critical", "{doctor}");
    let metrics = rig.ask("GET", "/metrics");
    for line in [
        "strake_array_missing{array=\"data\"} 1\n",
        "strake_array_missing{array=\"other\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let told = || fs::read_to_string(&out).unwrap_or_default();
    rig.until("the alert", || {
        told().contains("\"condition\":\"array_missing\"")
    });
    // Each command says which devices it is about, and the ways on.
    let commands: [&[&str]; 6] = [
        &["start", "data"],
        &["destroy", "data", "--yes"],
        &["stop", "data"],
        &["fail", "data", "0"],
        &["get", "data"],
        &["explain", "data", "0"],
    ];
    for command in commands {
        let run = rig.run(command).refused(3, "array-not-found");
        let had = format!("slot 1: {}", devices[1]);
        let said = run.err.contains(&had) && run.err.contains("strake forget data");
        assert!(said, "{command:?}: {run:?}");
    }
    assert!(status.out.contains("data   missing"), "{status:?}");
    let backup = rig.run(&["config", "backup"]).ok();
    assert!(
        backup.err.contains("data is not in this backup"),
        "{backup:?}"
    );

    bring_back(&devices);
    rig.until_state("data", "optimal");
    rig.until("the end of it", || {
        told().contains("data is not missing any more")
    });
    let line = "strake_array_missing{array=\"data\"} 0\n";
    rig.until(line, || rig.ask("GET", "/metrics").contains(line));
    let began = |text: &str| {
        let is = |item: &&str| item.contains("array_missing") && item.contains("\"began\"");
        text.split("\"kind\":").filter(is).count()
    };
    assert_eq!(began(&told()), 1, "{}", told());
}

#[test]
fn an_array_that_is_another_hosts_is_forgotten_and_served_when_it_comes_back() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(2);
    rig.create("data", "1", NBD, &devices).ok();
    let refused = rig.run(&["forget", "data"]).refused(4, "array-in-use");
    assert!(refused.err.contains(&devices[0]), "{refused:?}");
    rig.run(&["stop", "data"]).ok();
    take_away(&devices);
    // A user stopped it: it is shown, and not told.
    rig.until("it is missing", || rig.show("data")["not_found"] == true);
    rig.run(&["forget", "data", "--dry-run"]).ok();
    assert_eq!(rig.show("data")["not_found"], true);
    let done = rig.run(&["forget", "data"]).ok().json();
    assert_eq!(done["changed"], true, "{done}");
    rig.run(&["show", "data"]).refused(3, "array-not-found");
    rig.run(&["forget", "data"]).refused(3, "array-not-found");
    let events = rig.events();
    assert!(!events.iter().any(|e| e["event"] == "array_not_found"));
    assert!(events.iter().any(|e| e["event"] == "forgotten"));
    rig.stop_daemon();
    bring_back(&devices);
    rig.start_daemon();
    rig.until_state("data", "optimal");
}

/// What a user wipes or overwrites is not missed.
#[test]
fn an_array_whose_devices_were_cleaned_or_taken_is_not_expected() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(2);
    rig.create("data", "1", NBD, &devices).ok();
    rig.run(&["stop", "data"]).ok();
    let mut args = vec![
        "create", "new", "--level", "1", "--force", "--yes", "--export", "nbd",
    ];
    args.extend(devices.iter().map(String::as_str));
    rig.run(&args).ok();
    let all = rig.run(&["show"]).json();
    assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
    rig.run(&["stop", "new"]).ok();
    rig.run(&["drive", "clean", "--yes", &devices[0]]).ok();
    assert_eq!(rig.show("new")["not_found"], false, "one member is there");
    rig.run(&["drive", "clean", "--yes", &devices[1]]).ok();
    assert_eq!(rig.run(&["show"]).json(), serde_json::json!([]));
}

/// Every command advised `strake start`, which did nothing to an array in service.
#[test]
fn an_array_that_has_failed_names_its_members_and_the_way_back() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let d = rig.files(6);
    rig.create("data", "5", NBD, &d[..3]).ok();
    let written = ["write -P 0x5a 0 8M", "flush"];
    if rig.qemu_io("data", &written).is_none() {
        return;
    }
    for device in &d[1..3] {
        fs::copy(device, format!("{device}.kept")).expect("copied");
        let file = fs::OpenOptions::new().write(true).open(device);
        file.and_then(|file| file.set_len(0)).expect("truncated");
    }
    let shrunk = |slot: usize| format!("slot {slot} ({}: shrunk)", d[slot]);
    // What is known of the members comes a moment after the state.
    rig.until("it fails, and why is known", || {
        let said = rig.run(&["scrub", "data"]).err;
        said.contains(&shrunk(1)) && said.contains(&shrunk(2))
    });
    let shown = rig.show("data");
    assert_eq!(shown["state"], "failed");
    // The last one that it lost keeps its slot: it was shown, and counted, as in sync.
    let lost = |state: &serde_json::Value| state != "in_sync";
    let members = &shown["members"];
    assert!(
        lost(&members[1]["state"]) && lost(&members[2]["state"]),
        "{members}"
    );
    let status = rig.run(&["status", "data"]).json();
    assert_eq!(status[0]["in_sync"], 1, "{status}");
    let place = rig.run(&["explain", "data", "0"]).json();
    let places = place["redundancy"].as_array().expect("a list").iter();
    for place in places.chain([&place["data"]]) {
        let is_lost = lost(&place["member_state"]);
        assert_eq!(is_lost, place["slot"] != 0, "{place}");
    }
    let counted = rig.ask("GET", "/v1/stats");
    assert_eq!(counted.matches("\"in_sync\"").count(), 1, "{counted}");
    // What it takes no more is not advised.
    let doctor = rig.run(&["doctor"]).json();
    let findings = doctor["findings"].as_array().expect("a list").iter();
    let mut of_it = findings.filter(|finding| finding["array"] == "data");
    let advised = ["spare", "scrub-schedule"];
    assert!(
        of_it.all(|finding| !advised.iter().any(|check| finding["check"] == *check)),
        "{doctor}"
    );
    let way = "bring these members back, strake stop data, then strake start data";
    let commands: [&[&str]; 16] = [
        &["scrub", "data"],
        &["scrub", "data", "accept", "-y"],
        &["rebuild", "data", "--wait"],
        &["init", "data", "start", "--wait"],
        &["add", "data", &d[3]],
        &["replace", "data", "0", &d[4]],
        &["restripe", "data", "--add", &d[5], "--wait"],
        &["restripe", "data", "--level", "6", &d[5]],
        &["grow", "data"],
        &["volume", "create", "data", "v", "--size", "10M"],
        &["fail", "data", "0"],
        &["remove", "data", "1"],
        &["remove", "data", &d[2]],
        &["set", "data", "rebuild_priority=7"],
        &["rename", "data", "other"],
        &["reset", "data"],
    ];
    for command in commands {
        let run = rig.run(command).refused(4, "array-not-serving");
        let error = run.json_error();
        let found = error["found"].as_str().expect("text");
        assert!(found.contains("data has failed"), "{command:?}: {error}");
        let both = found.contains(&shrunk(1)) && found.contains(&shrunk(2));
        assert!(both, "{command:?}: {error}");
        assert_eq!(error["cure"], way, "{command:?}");
    }
    for verb in ["start", "import"] {
        let run = rig.run(&[verb, "data"]);
        assert!(run.code == 6 && run.err.contains(way), "{run:?}");
    }
    for device in &d[1..3] {
        fs::copy(format!("{device}.kept"), device).expect("copied");
    }
    rig.run(&["stop", "data"]).ok();
    let started = rig.run(&["start", "data"]);
    assert!(matches!(started.code, 0 | 5), "{started:?}");
    rig.qemu_io("data", &["read -P 0x5a 0 8M"]);
    // One that went before the other is told of, and put back so.
    let told = || {
        let events = rig.events();
        let back = events.iter().find(|e| e["event"] == "member_returned");
        back.and_then(|e| e["device"].as_str().map(str::to_owned))
    };
    if started.code == 5 {
        rig.until("it is told", || told().is_some());
        rig.run(&["add", "data", &told().expect("a device")]).ok();
    }
    rig.until_state("data", "optimal");
    rig.qemu_io("data", &["read -P 0x5a 0 8M"]);
}

fn event(rig: &Rig, name: &str) -> Option<Value> {
    let mut events = rig.events().into_iter().rev();
    events.find(|event| event["event"] == name)
}

fn spares(rig: &Rig) -> usize {
    rig.show("data")["spares"].as_array().map_or(0, Vec::len)
}

/// An array with a spare, which the daemon starts again without the spare's device: that is told.
fn without_spare(rig: &mut Rig) -> String {
    rig.start_daemon();
    let devices = rig.files(4);
    let options = [NBD, &["--spare", &devices[3]]].concat();
    rig.create("data", "5", &options, &devices[..3]).ok();
    rig.stop_daemon();
    take_away(&devices[3..]);
    rig.start_daemon();
    rig.until_state("data", "optimal");
    rig.until("it is told", || event(rig, "spare_gone").is_some());
    devices[3].clone()
}

/// It was forgotten, and nothing said so.
#[test]
fn a_spare_that_a_start_does_not_find_is_named_and_added_again_when_it_is_back() {
    let mut rig = Rig::new();
    let spare = without_spare(&mut rig);
    let told = event(&rig, "spare_gone").expect("an event");
    assert_eq!(told["device"], spare.as_str(), "{told}");
    assert_eq!(told["cause"], "not_found", "{told}");
    let effect = told["effect"].as_str().expect("an effect");
    let add = format!("strake add data {spare}");
    assert!(effect.ends_with(&add), "{effect}");
    let warnings = rig.run(&["events", "--severity", "warning"]).ok().out;
    assert!(warnings.contains("spare_gone"), "{warnings}");
    assert_eq!(spares(&rig), 0);
    // Late, as a drive that takes long to spin up.
    bring_back(std::slice::from_ref(&spare));
    rig.until("it is a spare again", || spares(&rig) == 1);
    // Or between two lives of the daemon.
    rig.stop_daemon();
    take_away(std::slice::from_ref(&spare));
    rig.start_daemon();
    rig.until("it is gone", || spares(&rig) == 0);
    rig.until("it is told again", || {
        let told = |e: &&Value| e["event"] == "spare_gone";
        rig.events().iter().filter(told).count() == 2
    });
    rig.stop_daemon();
    bring_back(std::slice::from_ref(&spare));
    rig.start_daemon();
    rig.until("it is a spare again", || spares(&rig) == 1);
    assert_eq!(rig.show("data")["spares"][0]["device"], spare.as_str());
    // It is used as any other.
    rig.run(&["fail", "data", "0"]).ok();
    rig.until_state("data", "optimal");
}

#[test]
fn a_spare_that_nothing_is_known_of_is_told_with_the_command_that_adds_it() {
    let mut rig = Rig::new();
    let spare = without_spare(&mut rig);
    rig.stop_daemon();
    fs::remove_dir_all(rig.dir().join("spares")).expect("removed");
    bring_back(std::slice::from_ref(&spare));
    rig.start_daemon();
    rig.until("it is told", || event(&rig, "member_returned").is_some());
    let told = event(&rig, "member_returned").expect("an event");
    assert_eq!(told["device"], spare.as_str(), "{told}");
    let effect = told["effect"].as_str().expect("an effect");
    assert!(effect.contains("not used; strake add data "), "{effect}");
    assert_eq!(spares(&rig), 0);
    rig.run(&["add", "data", &spare]).ok();
    assert_eq!(spares(&rig), 1);
}

/// What an administrator removes stays away.
#[test]
fn a_spare_that_was_removed_does_not_come_back_by_itself() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    let options = [NBD, &["--spare", &devices[3]]].concat();
    rig.create("data", "5", &options, &devices[..3]).ok();
    // As it was before the removal.
    fs::copy(&devices[3], rig.path("copy")).expect("copied");
    rig.run(&["remove", "data", &devices[3]]).ok();
    fs::copy(rig.path("copy"), &devices[3]).expect("copied");
    rig.stop_daemon();
    rig.start_daemon();
    rig.until("it is told", || event(&rig, "member_returned").is_some());
    assert_eq!(spares(&rig), 0);
}

/// The list, `status` and `doctor` said that it is missing, and to forget it, and that there are no
/// arrays.
#[test]
fn an_array_that_may_be_on_a_device_that_is_not_read_is_not_said_to_be_missing() {
    let mut rig = Rig::new();
    let (devices, other) = (rig.files(2), rig.files_called("other", 1));
    let none = &["--export", "none"];
    rig.start_daemon();
    rig.create("other", "0", none, &other).ok();
    rig.run(&["stop", "other"]).ok();
    let newer = of_newer_version(&other[0]);
    rig.run(&["destroy", "other", "--yes"]).ok();
    fs::write(&other[0], newer).expect("written");
    let path = other[0].as_str();
    rig.knows(path);
    for args in [&["show"][..], &["scan"], &["status"], &["pool", "show"]] {
        let run = rig.run(args);
        let is_said = run.out.trim() == "[]" && run.err.contains(path);
        assert!(run.code == 0 && is_said, "{args:?}: {run:?}");
    }
    rig.create("data", "1", none, &devices).ok();
    rig.run(&["stop", "data"]).ok();
    take_away(&devices);
    let shown = rig.run(&["show"]);
    let array = &shown.json()[0];
    assert_eq!((shown.code, &array["not_found"]), (8, &true.into()));
    assert_eq!(array["may_be_on"], serde_json::json!([path]));
    for args in ["show", "status", "doctor"] {
        let said = text(&rig, &[args]);
        let part = format!("may be on {path}, which gives no answer or cannot be read");
        assert!(said.contains(&part), "{part} in {said}");
        for part in ["missing  ", "strake forget"] {
            assert!(!said.contains(part), "{part} in {said}");
        }
    }
    let unchecked = rig.run(&["doctor"]).json()["unchecked"].to_string();
    assert!(unchecked.contains(path), "{unchecked}");
    rig.run(&["forget", "data"]).refused(4, "device-silent");
    fs::remove_file(path).expect("ours");
    let said = text(&rig, &["show"]);
    assert!(
        said.contains("missing  ") && said.contains("strake forget data"),
        "{said}"
    );
    rig.run(&["forget", "data"]).ok();
    rig.stop_daemon();
}

/// It was said that no array of that name was found.
#[test]
fn where_it_cannot_be_read_which_arrays_are_known_the_folder_is_named() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "1", NBD, &rig.files(2)).ok();
    rig.stop_daemon();
    let (names, aside) = (rig.dir().join("names"), rig.path("aside"));
    let replace = || {
        fs::rename(&names, &aside).expect("ours");
        fs::write(&names, "").expect("ours");
    };
    let mend = || {
        fs::remove_file(&names).expect("ours");
        fs::rename(&aside, &names).expect("ours");
    };
    replace();
    let run = rig.run(&["show", "nothing"]);
    // A device that another test has hang may be it, too.
    let is_named = run.err.contains("io-error") && run.err.contains("names");
    assert!(is_named || run.err.contains("device-silent"), "{run:?}");
    mend();
    rig.start_daemon();
    replace();
    let run = rig.run(&["show", "nothing"]).refused(1, "io-error");
    assert!(run.err.contains("names"), "{run:?}");
    mend();
    rig.run(&["show", "nothing"]).refused(3, "array-not-found");
    rig.stop_daemon();
}
