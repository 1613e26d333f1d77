//! Zeroing of what was never written, in the background.

use serde_json::Value;

use crate::rig::Rig;

const NBD: &[&str] = &["--export", "nbd"];
const ZERO: &[&str] = &["--export", "nbd", "--init", "zero"];

/// How often the event of a job of this kind was told.
fn told(rig: &Rig, event: &str) -> usize {
    let of = |e: &&Value| e["event"] == event && e["cause"] == "init";
    rig.events().iter().filter(of).count()
}

#[test]
fn an_array_that_is_to_be_zeroed_serves_at_once_and_says_when_all_of_it_is_zero() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    let options = [ZERO, &["--wait"]].concat();
    let made = rig.create("a", "6", &options, &devices).ok().json();
    assert_eq!(made["unwritten_bytes"], 0, "{made}");
    assert_eq!(made["jobs"], Value::Array(Vec::new()), "{made}");
    rig.until("it is told", || told(&rig, "job_finished") == 1);
    assert_eq!(told(&rig, "job_started"), 1);
    // What was zeroed is no data, but it is looked after as such.
    rig.qemu_io(
        "a",
        &["read -P 0 0 4M", "write -P 7 1M 8K", "read -P 7 1M 8K"],
    );
    rig.run(&["scrub", "a", "start", "--wait"]).ok();
    rig.run(&["stop", "a"]).ok();
    rig.run(&["start", "a", "--export", "nbd"]).ok();
    assert_eq!(rig.show("a")["unwritten_bytes"], 0);
    assert_eq!(told(&rig, "job_started"), 1, "it is not begun again");
}

#[test]
fn it_is_begun_later_and_left_again_and_outlives_the_daemon() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("a", "5", NBD, &devices).ok();
    let all = rig.show("a")["size_bytes"].clone();
    assert_eq!(rig.show("a")["unwritten_bytes"], all);
    let said = |words: &[&str]| rig.run(words).ok().json();
    assert_eq!(said(&["init", "a", "stop"])["changed"], false);
    let would = said(&["init", "a", "start", "--dry-run"]);
    assert_eq!(would["would"], "start the zeroing");
    assert_eq!(rig.show("a")["unwritten_bytes"], all);
    // Nobody waits for what is to be zeroed while it does not serve.
    assert_eq!(said(&["init", "a"])["changed"], true);
    rig.kill_daemon();
    rig.start_daemon();
    rig.until("all of it is zero", || {
        rig.show("a")["unwritten_bytes"] == 0
    });
    rig.until("nothing is at work", || {
        rig.show("a")["jobs"] == Value::Array(Vec::new())
    });
    assert_eq!(
        rig.run(&["init", "a", "--wait"]).ok().json()["changed"],
        true
    );
    assert_eq!(rig.show("a")["jobs"], Value::Array(Vec::new()));
    rig.run(&["set", "a", "init_priority=7"]).ok();
    assert_eq!(
        rig.run(&["get", "a", "init_priority"]).ok().json()["init_priority"],
        7
    );
}

#[test]
fn without_a_daemon_it_is_begun_by_the_next_and_nobody_can_wait_for_it() {
    let mut rig = Rig::new();
    let devices = rig.files(3);
    let options = ["--init", "zero", "--wait"];
    rig.create("a", "5", &options, &devices)
        .refused(1, "no-daemon");
    rig.create("a", "5", &["--init", "zero"], &devices).ok();
    rig.start_daemon();
    rig.until("it is found", || rig.run(&["show", "a"]).code == 0);
    rig.until("all of it is zero", || {
        rig.show("a")["unwritten_bytes"] == 0
    });
}
