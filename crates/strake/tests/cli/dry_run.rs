//! `--dry-run`: it refuses what the command itself refuses, by the same code, and does nothing of
//! what would be done.

use crate::hung::all_within;
use crate::rig::{Rig, end};

/// Both the dry run and the command are refused so.
fn refused(rig: &Rig, args: &[&str], code: i32, error: &str) {
    let dry = [args, &["--dry-run"]].concat();
    rig.run(&dry).refused(code, error);
    rig.run(args).refused(code, error);
}

/// The dry run says what it would do.
fn would(rig: &Rig, args: &[&str], what: &str) {
    let dry = rig.run(&[args, &["--dry-run"]].concat()).ok().json();
    assert_eq!(dry["dry_run"], true, "{args:?}: {dry}");
    let said = dry["would"].as_str().expect("it is said");
    assert!(said.contains(what), "{args:?}: {dry}");
}

#[test]
fn a_dry_run_refuses_what_the_command_refuses() {
    let mut rig = Rig::new();
    let d = rig.files(4);
    rig.start_daemon();
    rig.create("a", "5", &["--export", "nbd"], &d[..3]).ok();
    refused(&rig, &["remove", "a", "1"], 4, "member-in-use");
    refused(&rig, &["remove", "a", &d[1]], 4, "member-in-use");
    refused(&rig, &["restripe", "a", "--stop"], 4, "nothing-moves");
    refused(&rig, &["restripe", "a", "--continue"], 4, "nothing-moves");
    refused(&rig, &["grow", "a"], 4, "nothing-to-grow");
    refused(&rig, &["set", "a", "pool=nope"], 3, "pool-not-found");
    refused(
        &rig,
        &["set", "a", "memory_limit=1M"],
        2,
        "memory-limit-too-small",
    );
    refused(&rig, &["set", "a", "cpus=0-4095"], 2, "setting-invalid");
    refused(&rig, &["fail", "a", "9"], 3, "member-not-found");
    refused(&rig, &["reset", "a", "9"], 3, "member-not-found");
    refused(&rig, &["replace", "a", "0"], 4, "no-spare");
    would(&rig, &["fail", "a", "0"], "take 0");
    rig.run(&["fail", "a", "0"]).ok();
    for member in ["1", d[1].as_str()] {
        refused(&rig, &["fail", "a", member], 4, "would-fail");
    }
    would(&rig, &["remove", "a", "0"], "forget 0");
    would(&rig, &["init", "a", "start"], "start the zeroing");
    would(&rig, &["scrub", "a", "start"], "start the scrub");
    would(&rig, &["reset", "a"], "forget 0 read errors");
    let replaced = rig
        .run(&["replace", "a", "1", &d[3], "--dry-run"])
        .ok()
        .json();
    let what = replaced["what"].as_str().expect("it is said");
    assert!(what.contains("would rebuild slot 1 onto"), "{replaced}");
    would(&rig, &["stop", "a"], "stop");
    assert_eq!(rig.show("a")["state"], "degraded", "it serves still");
    rig.run(&["stop", "a"]).ok();
    for verb in [
        &["rebuild", "a", "start"][..],
        &["scrub", "a", "start"],
        &["fail", "a", "1"],
        &["remove", "a", "0"],
        &["reset", "a"],
        &["grow", "a"],
        &["set", "a", "scrub_priority=9"],
    ] {
        refused(&rig, verb, 4, "array-not-serving");
    }
    would(&rig, &["start", "a"], "start");
    would(&rig, &["destroy", "a"], "wipe the superblocks of");
    assert_eq!(rig.show("a")["state"], "stopped");
}

#[test]
fn a_dry_run_of_start_looks_as_far_as_the_start_would() {
    let mut rig = Rig::new();
    let d = rig.files(3);
    rig.create("a", "5", &[], &d).ok();
    let away = format!("{}.away", d[0]);
    std::fs::rename(&d[0], &away).expect("works");
    std::fs::rename(&d[1], format!("{}.away", d[1])).expect("works");
    rig.start_daemon();
    refused(&rig, &["start", "a"], 4, "members-missing");
    refused(&rig, &["start", "--foreground", "a"], 4, "members-missing");
    refused(&rig, &["import", "a", "--as", "b"], 4, "members-missing");
    std::fs::rename(&away, &d[0]).expect("works");
    rig.stop_daemon();
    would(
        &rig,
        &["start", "--foreground", "a", &d[0], &d[2]],
        "start (degraded)",
    );
}

/// The dry run said that it would start or stop what is as it is to be.
#[test]
fn a_dry_run_says_as_the_command_does_that_there_is_nothing_to_do() {
    let mut rig = Rig::new();
    let d = rig.files(3);
    rig.start_daemon();
    rig.create("a", "5", &["--export", "nbd"], &d).ok();
    let nothing = |args: &[&str]| {
        let dry = rig.run(&[args, &["--dry-run"]].concat()).ok().json();
        let done = rig.run(args).ok().json();
        assert_eq!(done["changed"], false, "{args:?}: {done}");
        let why = done["what"].as_str().expect("it is said");
        let would = format!("change nothing: {why}");
        assert_eq!(dry["would"], would, "{args:?}: {dry}");
    };
    let does = |args: &[&str], what: &str| {
        would(&rig, args, what);
        let done = rig.run(args).ok().json();
        assert_eq!(done["changed"], true, "{args:?}: {done}");
    };
    nothing(&["rebuild", "a", "start"]);
    does(&["rebuild", "a", "stop"], "stop the rebuild");
    nothing(&["rebuild", "a", "stop"]);
    does(&["rebuild", "a", "start"], "start the rebuild");
    nothing(&["init", "a", "stop"]);
    nothing(&["scrub", "a", "pause"]);
    nothing(&["scrub", "a", "stop"]);
    rig.run(&["fail", "a", "0"]).ok();
    nothing(&["rebuild", "a", "start"]);
    rig.run(&["stop", "a"]).ok();
    nothing(&["stop", "a"]);
    for more in [&[][..], &["--dry-run"]] {
        let stop = rig.run(&[&["stop", "--all"], more].concat()).ok();
        assert!(stop.err.contains("nothing to stop"), "{stop:?}");
    }
    let mut stop = rig.command();
    let said = rig.run_command(stop.args(["stop", "a", "--dry-run"])).ok();
    assert_eq!(
        said.out,
        "a: would change nothing: it was stopped already\n"
    );
}

#[test]
fn a_dry_run_without_a_daemon_refuses_what_another_process_holds() {
    let mut rig = Rig::new();
    let d = rig.files(3);
    rig.create("a", "5", &[], &d).ok();
    let serving = rig.foreground(&[&["a"][..], &[&d[0], &d[1], &d[2]]].concat());
    refused(&rig, &["rename", "a", "b"], 4, "device-busy");
    refused(&rig, &["import", "a", "--as", "b"], 4, "device-busy");
    assert!(end(serving), "it ends");
    for args in [&["rename", "a", "b"][..], &["import", "a", "--as", "b"]] {
        rig.run(&[args, &["--dry-run"]].concat()).ok();
    }
    // With a daemon it is the same.
    let serving = rig.foreground(&[&["a"][..], &[&d[0], &d[1], &d[2]]].concat());
    rig.start_daemon();
    refused(&rig, &["rename", "a", "b"], 4, "device-busy");
    assert!(end(serving), "it ends");
}

/// A client of the API from before there was a request body still sends none.
#[test]
fn an_array_is_stopped_and_destroyed_by_requests_without_a_body() {
    let mut rig = Rig::new();
    let d = rig.files(2);
    rig.start_daemon();
    rig.create("a", "1", &["--export", "nbd"], &d).ok();
    let answer = rig.ask("DELETE", "/v1/arrays/a");
    assert!(answer.contains("array-in-use"), "{answer}");
    let answer = rig.ask("POST", "/v1/arrays/a/stop");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = rig.ask("DELETE", "/v1/arrays/a");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    rig.run(&["show", "a"]).refused(3, "array-not-found");
}

#[test]
fn settings_are_changed_all_or_none() {
    let mut rig = Rig::new();
    let d = rig.files(3);
    rig.start_daemon();
    rig.create("a", "5", &["--export", "nbd"], &d).ok();
    let both = ["set", "a", "scrub_priority=9", "memory_limit=1M"];
    refused(&rig, &both, 2, "memory-limit-too-small");
    assert_eq!(rig.run(&["get", "a"]).ok().json()["scrub_priority"], 50);
    would(
        &rig,
        &["set", "a", "scrub_priority=9"],
        "set scrub_priority=9",
    );
    assert_eq!(rig.run(&["get", "a"]).ok().json()["scrub_priority"], 50);
}

/// They held the members beside each other, and beside a start or a destruction: what one of them
/// held was busy for the others.
#[test]
fn dry_runs_that_hold_members_take_turns() {
    let mut rig = Rig::new();
    let d = rig.files(6);
    rig.start_daemon();
    rig.create("a", "5", &["--export", "none"], &d).ok();
    let destroy: &[&str] = &["destroy", "a", "--dry-run"];
    let start: &[&str] = &["start", "a", "--dry-run"];
    let import: &[&str] = &["import", "a", "--dry-run"];
    for _ in 0..4 {
        rig.run(&["stop", "a"]).ok();
        let all = [destroy, start, destroy, import, destroy, start, destroy];
        for run in all_within(&rig, 120, &all) {
            run.ok();
        }
        let real: &[&str] = &["start", "a", "--export", "none"];
        for (run, args) in all_within(&rig, 120, &[start, destroy, real])
            .iter()
            .zip([0, 1, 2])
        {
            // It serves already where the start was first.
            let serves = run.err.contains("array-in-use");
            assert!(run.code == 0 || args == 1 && serves, "{run:?}");
        }
        assert_eq!(rig.show("a")["state"], "optimal");
    }
    rig.stop_daemon();
}
