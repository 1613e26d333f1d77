//! `--wait`: what is said of jobs while other things happen to the array.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::manager;
use crate::rig::{self, Rig, Run};

/// A command that goes on while others are given.
fn begin(rig: &Rig, args: &[&str]) -> Child {
    let mut command = rig.command();
    command.arg("--json").args(args);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it runs")
}

fn signal(child: &Child, signal: &str) {
    let mut kill = Command::new("kill");
    let sent = kill.args([signal, &child.id().to_string()]).status();
    assert!(sent.expect("kill").success());
}

fn end(child: Child) -> Run {
    let output = child.wait_with_output().expect("it ends");
    Run {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

/// An array with a scrub that takes a while: so many GiB of each member are read, which are sparse.
fn slow(rig: &Rig, name: &str, gib: u64) {
    let files: Vec<String> = (0..3)
        .map(|n| rig.file(&format!("{name}{n}"), gib << 30))
        .collect();
    let options = ["--export", "none", "--init", "assume-clean"];
    rig.create(name, "5", &options, &files).ok();
}

fn scrubs(rig: &Rig, name: &str) -> bool {
    works(rig, name, "scrub")
}

fn works(rig: &Rig, name: &str, kind: &str) -> bool {
    let shown = rig.run(&["show", name]);
    let shown: Value = serde_json::from_str(&shown.out).unwrap_or_default();
    let mut jobs = shown["jobs"].as_array().into_iter().flatten();
    jobs.any(|job| job["kind"] == kind && job["paused"] == false)
}

/// It went by the name, and ended with `array-not-found`.
#[test]
fn a_scrub_that_is_waited_for_goes_on_while_its_array_is_renamed() {
    let mut rig = Rig::new();
    rig.start_daemon();
    slow(&rig, "data", 8);
    let wait = begin(&rig, &["scrub", "data", "start", "--wait"]);
    rig.until("the scrub", || scrubs(&rig, "data"));
    rig.run(&["rename", "data", "other"]).ok();
    let ended = end(wait).ok().json();
    assert_eq!(ended["ended"], "done", "{ended}");
    assert_eq!(ended["scrub"]["inconsistent_stripes"], 0, "{ended}");
}

/// The end of another array's scrub was taken for its own.
#[test]
fn the_end_of_another_arrays_scrub_is_not_that_of_the_one_waited_for() {
    let mut rig = Rig::new();
    rig.start_daemon();
    slow(&rig, "data", 256);
    slow(&rig, "other", 1);
    let wait = begin(&rig, &["scrub", "data", "start", "--wait"]);
    rig.until("the scrub", || scrubs(&rig, "data"));
    // It looks when the end of the other one is the newest event.
    signal(&wait, "-STOP");
    rig.run(&["scrub", "data", "stop"]).ok();
    rig.run(&["scrub", "other", "start", "--wait"]).ok();
    signal(&wait, "-CONT");
    let ended = end(wait);
    assert_eq!(ended.code, 11, "{ended:?}");
    assert_eq!(ended.json()["ended"], "stopped", "{ended:?}");
}

/// A job of an array that was stopped meanwhile was `done`.
#[test]
fn a_job_whose_array_is_stopped_is_not_done() {
    let mut rig = Rig::new();
    rig.start_daemon();
    slow(&rig, "data", 256);
    let wait = begin(&rig, &["scrub", "data", "start", "--wait"]);
    rig.until("the scrub", || scrubs(&rig, "data"));
    rig.run(&["stop", "data"]).ok();
    let ended = end(wait);
    assert_eq!(ended.code, 11, "{ended:?}");
    let json: Value = ended.json();
    assert!(
        json["what"]
            .as_str()
            .is_some_and(|w| w.contains("was stopped")),
        "{json}"
    );
}

/// "error[daemon-lost]: … No such file or directory", and JSON did not say how it ended.
#[test]
fn a_job_whose_daemon_goes_ends_as_nobody_knows() {
    for killed in [true, false] {
        let mut rig = Rig::new();
        rig.start_daemon();
        slow(&rig, "data", 256);
        rig.run(&["scrub", "data"]).ok();
        let wait = begin(&rig, &["scrub", "data", "start", "--wait"]);
        // A daemon that goes before it has answered this command is another matter.
        std::thread::sleep(std::time::Duration::from_secs(10));
        match killed {
            true => rig.kill_daemon(),
            false => rig.stop_daemon(),
        }
        let ended = end(wait);
        assert_eq!(ended.code, 11, "{ended:?}");
        let json = ended.json();
        assert_eq!(json["ended"], "unknown", "{json}");
        let what = json["what"].to_string();
        assert!(
            what.contains("the daemon went while the scrub of data was waited for"),
            "{what}"
        );
        // It goes on, as is said.
        rig.start_daemon();
        rig.until("the scrub", || scrubs(&rig, "data"));
    }
}

/// A degraded array gave the same exit status, 5, to one that was done and one that was not. And
/// a start that changed nothing said that it had started one.
#[test]
fn a_scrub_of_a_degraded_array_that_is_stopped_is_not_done() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files: Vec<String> = (0..4)
        .map(|n| rig.file(&format!("data{n}"), 256 << 30))
        .collect();
    let options = ["--export", "none", "--init", "assume-clean"];
    rig.create("data", "6", &options, &files).ok();
    rig.run(&["fail", "data", "3"]).ok();
    let wait = begin(&rig, &["scrub", "data", "start", "--wait"]);
    rig.until("the scrub", || scrubs(&rig, "data"));
    let again = rig.run(&["scrub", "data"]).ok().json();
    let told = (&again["changed"], &again["what"]);
    assert_eq!(told, (&false.into(), &"a scrub runs already".into()));
    rig.run(&["scrub", "data", "stop"]).ok();
    let ended = end(wait);
    assert_eq!(ended.code, 11, "{ended:?}");
    assert_eq!(ended.json()["ended"], "stopped", "{ended:?}");
}

/// An array that does not answer shows no job, which was taken for the end of the job.
#[test]
fn a_job_whose_array_does_not_answer_is_waited_for() {
    if !rig::has("python3") {
        return rig::skipped("python3 is not installed");
    }
    let mut rig = Rig::new();
    rig.start_daemon();
    slow(&rig, "data", 256);
    let mut wait = begin(&rig, &["scrub", "data", "start", "--wait"]);
    rig.until("the scrub", || scrubs(&rig, "data"));
    let Some(mut holder) = manager::hold(manager::thread(&rig, "strake-data-0")) else {
        wait.kill().and_then(|()| wait.wait()).expect("it ends");
        return rig::skipped("no thread may be traced here");
    };
    // Each look of it takes as long as one of these.
    for _ in 0..3 {
        assert_eq!(rig.show("data")["state"], "unresponsive");
        assert!(wait.try_wait().expect("a child").is_none(), "{}", rig.log());
    }
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    rig.until("the scrub to go on", || scrubs(&rig, "data"));
    rig.run(&["scrub", "data", "stop"]).ok();
    let ended = end(wait);
    assert_eq!(ended.code, 11, "{ended:?}");
    assert_eq!(ended.json()["ended"], "stopped", "{ended:?}");
}

/// It was `done`, with 0: only a scrub was asked how it ended.
#[test]
fn zeroing_that_is_stopped_is_not_done() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files: Vec<String> = (0..3)
        .map(|n| rig.file(&format!("data{n}"), 8 << 30))
        .collect();
    rig.create("data", "5", &["--export", "none", "--init", "lazy"], &files)
        .ok();
    rig.run(&["set", "data", "init_priority=1"]).ok();
    let wait = begin(&rig, &["init", "data", "start", "--wait"]);
    rig.until("zeroing", || works(&rig, "data", "init"));
    rig.run(&["init", "data", "stop"]).ok();
    let ended = end(wait);
    assert_eq!(ended.code, 11, "{ended:?}");
    let json = ended.json();
    assert_eq!(json["ended"], "stopped", "{json}");
    let what = json["what"].to_string();
    assert!(what.contains("a user stopped it"), "{what}");
    rig.run(&["stop", "data"]).ok();
    rig.run(&["destroy", "data", "-y"]).ok();

    let mut args = vec!["create", "made", "--level", "5", "--export", "none"];
    args.extend(["--init", "zero", "--wait"]);
    args.extend(files.iter().map(String::as_str));
    let wait = begin(&rig, &args);
    rig.until("zeroing", || works(&rig, "made", "init"));
    rig.run(&["init", "made", "stop"]).ok();
    let ended = end(wait);
    assert_eq!(ended.code, 11, "{ended:?}");
    let json = ended.json();
    let note = json["notes"][0].to_string();
    assert!(
        note.contains("init is stopped: a user stopped it"),
        "{json}"
    );
    assert_eq!(json["name"], "made", "{json}");
}

/// One that stood half-way when its device failed was `not begun`.
#[test]
fn a_rebuild_that_loses_its_device_was_begun() {
    let mut rig = Rig::new();
    rig.start_daemon();
    slow(&rig, "data", 8);
    rig.run(&["set", "data", "rebuild_priority=1"]).ok();
    rig.run(&["fail", "data", "2"]).ok();
    let fresh = rig.file("fresh", 8 << 30);
    rig.run(&["add", "data", &fresh]).ok();
    let wait = begin(&rig, &["rebuild", "data", "--wait"]);
    rig.until("the rebuild", || works(&rig, "data", "rebuild"));
    rig.run(&["fail", "data", "2"]).ok();
    let ended = end(wait);
    assert_eq!(ended.code, 11, "{ended:?}");
    let json = ended.json();
    assert_eq!(json["ended"], "stopped", "{json}");
    let what = json["what"].to_string();
    assert!(
        what.contains("the members changed; slot 2 is failed and there is no spare"),
        "{what}"
    );
}

/// The same of the parity that a level gets.
#[test]
fn a_level_whose_new_parity_loses_its_device_was_begun() {
    let mut rig = Rig::new();
    rig.start_daemon();
    slow(&rig, "data", 8);
    rig.run(&["set", "data", "rebuild_priority=1"]).ok();
    let fresh = rig.file("fresh", 8 << 30);
    let wait = begin(
        &rig,
        &["restripe", "data", "--level", "6", &fresh, "--wait"],
    );
    rig.until("the rebuild", || works(&rig, "data", "rebuild"));
    rig.run(&["fail", "data", "3"]).ok();
    let ended = end(wait);
    assert_eq!(ended.code, 11, "{ended:?}");
    let json = ended.json();
    assert_eq!(json["ended"], "stopped", "{json}");
    assert!(
        json["what"].to_string().contains("slot 3 is failed"),
        "{json}"
    );
}
