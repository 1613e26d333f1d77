//! Arrays that miss members: which of them are started by themselves, by the daemon's rule and by
//! their own.

use std::fs;

use serde_json::Value;

use crate::rig::*;

const NBD: &[&str] = &["--export", "nbd"];

/// RAID 5 arrays with these names.
fn arrays(rig: &Rig, names: &[&str]) {
    for name in names {
        rig.create(name, "5", NBD, &rig.files_called(name, 3)).ok();
    }
}

/// The last member of an array is unplugged.
fn unplug(rig: &Rig, array: &str) {
    let last = rig.path(&format!("{array}2"));
    fs::rename(&last, format!("{last}-away")).expect("renamed");
}

/// Why the array was not started, if that was said.
fn refusal(rig: &Rig, array: &str) -> Option<String> {
    let of = |e: &Value| e["event"] == "start_refused" && e["array"] == array;
    let event = rig.events().into_iter().find(of)?;
    Some(event["cause"].as_str().expect("a cause").to_owned())
}

fn refused_for_that(rig: &Rig, array: &str) -> bool {
    refusal(rig, array).is_some_and(|why| why.starts_with("degraded-start-not-allowed"))
}

#[test]
fn an_array_s_own_rule_for_missing_members_outweighs_the_daemon_s() {
    let mut rig = Rig::new();
    rig.start_daemon();
    arrays(&rig, &["careful", "eager", "patient", "usual"]);
    assert_eq!(rig.show("careful")["degraded_start"], "default");
    rig.run(&["set", "careful", "degraded=never"]).ok();
    rig.run(&["set", "eager", "degraded=allow"]).ok();
    // Of an array that is stopped, too.
    rig.run(&["stop", "patient"]).ok();
    rig.run(&["set", "patient", "degraded=1s"]).ok();
    assert_eq!(rig.show("patient")["degraded_start"], "1s");
    for (name, rule) in [
        ("careful", "never"),
        ("eager", "allow"),
        ("usual", "default"),
    ] {
        assert_eq!(rig.show(name)["degraded_start"], rule);
        assert_eq!(rig.run(&["get", name]).ok().json()["degraded"], rule);
    }
    let human = rig
        .run_command(rig.command().args(["show", "careful"]))
        .ok();
    assert!(human.out.contains("degraded    start never"), "{human:?}");
    let news = rig.events();
    let set = |e: &Value| e["effect"] == "degraded=never (was default)" && e["array"] == "careful";
    assert!(news.iter().any(set), "{news:?}");
    rig.stop_daemon();
    let all = ["careful", "eager", "patient", "usual"];
    all.iter().for_each(|name| unplug(&rig, name));
    // The wait for an array without a rule of its own would be longer than this test.
    rig.start_daemon_with(&["--wait", "600", "--degraded", "wait"]);
    rig.until_state("eager", "degraded");
    rig.until_state("patient", "degraded");
    assert_eq!(rig.show("usual")["state"], "stopped");
    assert_eq!(rig.show("careful")["state"], "stopped");
    rig.stop_daemon();
    // What is missing of the other two is known by now: nothing is unexpected about it.
    rig.start_daemon_with(&["--wait", "0", "--degraded", "allow"]);
    rig.until_state("usual", "degraded");
    rig.until("the refusal", || refused_for_that(&rig, "careful"));
    assert_eq!(rig.show("careful")["state"], "stopped");
    assert_eq!(refusal(&rig, "eager").or(refusal(&rig, "usual")), None);
    // Another word, and it starts by itself.
    rig.run(&["set", "careful", "degraded=allow"]).ok();
    rig.until_state("careful", "degraded");
}

#[test]
fn all_that_may_are_started_and_by_its_name_any() {
    let mut rig = Rig::new();
    // Without a daemon, too.
    let options = ["--export", "none", "--degraded", "never"];
    let careful = rig.files_called("careful", 3);
    let would = rig.create(
        "careful",
        "5",
        &["--degraded", "never", "--dry-run"],
        &careful,
    );
    assert_eq!(would.ok().json()["degraded_start"], "never");
    let made = rig.create("careful", "5", &options, &careful).ok();
    assert_eq!(made.json()["degraded_start"], "never");
    assert_eq!(rig.show("careful")["degraded_start"], "never");
    let options = ["--export", "none", "--degraded", "default"];
    let other = rig.files_called("other", 3);
    rig.create("other", "5", &options, &other).ok();
    ["careful", "other"]
        .iter()
        .for_each(|name| unplug(&rig, name));
    rig.start_daemon_with(&["--wait", "600"]);
    let refused = rig.run(&["start", "--all", "--dry-run"]);
    refused.refused(4, "degraded-start-not-allowed");
    let refused = rig.run(&["start", "--all"]);
    assert!(
        refused.err.contains("careful misses members"),
        "{refused:?}"
    );
    refused.refused(4, "degraded-start-not-allowed");
    assert_eq!(
        rig.show("other")["state"],
        "degraded",
        "the others are started"
    );
    assert_eq!(rig.show("careful")["state"], "stopped");
    let asked = rig.run(&["start", "careful"]);
    assert_eq!(
        (asked.code, &asked.json()["state"]),
        (5, &"degraded".into())
    );
    assert_eq!(asked.json()["degraded_start"], "never");
}

#[test]
fn a_rule_that_is_none_is_refused_and_changes_nothing() {
    let mut rig = Rig::new();
    rig.start_daemon();
    arrays(&rig, &["data"]);
    rig.run(&["set", "data", "degraded=never"]).ok();
    for wrong in ["degraded=perhaps", "degraded=0", "degraded=8d", "degraded="] {
        let refused = rig.run(&["set", "data", wrong]);
        assert!(
            refused.json_error()["cure"]
                .as_str()
                .is_some_and(|c| c.contains("default"))
        );
        refused.refused(2, "setting-invalid");
    }
    let more = rig.files_called("more", 3);
    rig.create("more", "5", &["--degraded", "sometimes"], &more)
        .refused(2, "setting-invalid");
    assert!(
        bytes(&more[0]).iter().all(|&b| b == 0),
        "nothing was written"
    );
    assert_eq!(rig.show("data")["degraded_start"], "never");
    rig.run(&["set", "data", "degraded=default"]).ok();
    assert_eq!(rig.show("data")["degraded_start"], "default");
}
