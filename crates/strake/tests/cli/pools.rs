//! Pools of spares: made, shown, taken from, and never two owners of one device.

use crate::hung::{HungDevice, within};
use crate::rig;
use crate::rig::*;

const NBD: &[&str] = &["--export", "nbd"];
/// Spares do not wait for members that are only away.
const AT_ONCE: &str = "spare_delay=off";

fn devices_of(rig: &Rig, pool: &str) -> Vec<String> {
    let shown = rig.run(&["pool", "show", pool]).ok().json();
    let devices = shown["devices"].as_array().expect("devices");
    let path = |d: &serde_json::Value| d["device"].as_str().expect("a path").to_owned();
    devices.iter().map(path).collect()
}

/// Names of arrays and pools that a scan of the folder finds.
fn scanned(rig: &Rig) -> Vec<(String, String)> {
    let folder = rig.folder.path().to_str().expect("text");
    let found = rig.run(&["scan", folder]).ok().json();
    let text = |v: &serde_json::Value| v.as_str().expect("text").to_owned();
    let both = |a: &serde_json::Value| (text(&a["name"]), text(&a["state"]));
    found.as_array().expect("a list").iter().map(both).collect()
}

#[test]
fn a_pool_is_what_its_devices_carry_with_a_daemon_or_without() {
    for with_daemon in [false, true] {
        let mut rig = Rig::new();
        if with_daemon {
            rig.start_daemon();
        }
        let d = rig.files(5);
        rig.run(&["pool", "show", "p"]).refused(3, "pool-not-found");
        rig.run(&["pool", "add", "p", &d[0]])
            .refused(3, "pool-not-found");
        rig.run(&["pool", "create", "none", &d[0]])
            .refused(2, "name-invalid");
        let tiny = rig.path("tiny");
        std::fs::write(
            &tiny,
            [&b"LUKS\xba\xbe\x00\x01aes\0"[..], &[7; 9000]].concat(),
        )
        .expect("works");
        let before = bytes(&tiny);
        rig.run(&["pool", "create", "p", &tiny, "--force"])
            .refused(2, "device-too-small");
        assert!(bytes(&tiny) == before);
        let would = rig.run(&["pool", "create", "p", &d[0], "--dry-run"]).ok();
        assert_eq!(would.json()["changed"], false);
        rig.run(&["pool", "show", "p"]).refused(3, "pool-not-found");
        rig.run(&["pool", "create", "p", &d[0], &d[1]]).ok();
        rig.run(&["pool", "create", "p", &d[2]])
            .refused(4, "pool-exists");
        rig.run(&["pool", "add", "p", &d[2]]).ok();
        let again = rig.run(&["pool", "add", "p", &d[2]]).ok().json();
        assert_eq!(again["changed"], false);
        assert_eq!(devices_of(&rig, "p"), d[..3]);
        assert_eq!(scanned(&rig), [("p".to_owned(), "pool".to_owned())]);
        let examined = rig.run(&["examine", &d[0]]).refused(3, "not-a-member");
        assert!(examined.err.contains("in the pool p"), "{examined:?}");
        // Nobody else takes them by mistake.
        rig.run(&["pool", "create", "q", &d[0]])
            .refused(4, "device-in-pool");
        rig.create(
            "data",
            "1",
            &["--export", "none"],
            &[d[0].clone(), d[3].clone()],
        )
        .refused(4, "device-in-pool");
        rig.run(&["pool", "remove", "p", &d[4]])
            .refused(3, "pool-not-found");
        rig.run(&["pool", "remove", "p", &d[0], &d[2]]).ok();
        assert_eq!(devices_of(&rig, "p"), d[1..2]);
        rig.run(&["pool", "delete", "p"])
            .refused(4, "not-confirmed");
        rig.run(&["pool", "delete", "p", "--yes"]).ok();
        assert_eq!(scanned(&rig), []);
        rig.create(
            "data",
            "1",
            &["--export", "none"],
            &[d[0].clone(), d[1].clone()],
        )
        .ok();
    }
}

#[test]
fn the_array_that_needs_one_first_gets_the_smallest_device_that_fits() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let d = rig.files(6);
    let (small, large) = (rig.file("small", 9 << 20), rig.file("large", 96 << 20));
    rig.run(&["pool", "create", "spares", &large]).ok();
    let options = ["--export", "nbd", "--pool", "spares"];
    rig.create("a", "5", &options, &d[..3]).ok();
    rig.create("b", "1", NBD, &d[3..5]).ok();
    rig.run(&["set", "b", "pool=nowhere"])
        .refused(3, "pool-not-found");
    rig.run(&["set", "b", "pool=spares"]).ok();
    assert_eq!(rig.run(&["get", "b"]).ok().json()["pool"], "spares");
    let added = rig
        .run(&["pool", "add", "spares", &d[5], &small])
        .ok()
        .json();
    let what = added["what"].as_str().expect("text");
    assert!(
        what.contains(&format!("{small} is no spare for a: ")),
        "{what}"
    );
    let shown = rig.run(&["pool", "show", "spares"]).ok().json();
    assert_eq!(shown["arrays"][0]["name"], "a");
    assert_eq!(shown["arrays"][0]["fitting"], 2);
    let written = rig.qemu_io("a", &["write -P 7 0 8M"]).is_some();
    // A member that failed is not waited for.
    rig.run(&["fail", "a", "1"]).ok();
    rig.until("the pool's device", || rig.show("a")["state"] == "optimal");
    assert_eq!(rig.show("a")["members"][1]["device"], d[5].as_str());
    assert_eq!(devices_of(&rig, "spares"), [large.clone(), small.clone()]);
    if written {
        rig.qemu_io("a", &["read -P 7 0 8M"]);
    }
    // The other array asks by itself before a member fails.
    let done = rig.run(&["replace", "b", "0", "--dry-run"]).ok().json();
    assert_eq!(done["changed"], false);
    rig.run(&["replace", "b", "0"]).ok();
    rig.until("the replacement", || {
        let shown = rig.show("b");
        shown["members"].as_array().expect("members").len() == 2
            && shown["members"][0]["device"] == large.as_str()
    });
    assert_eq!(devices_of(&rig, "spares"), std::slice::from_ref(&small));
    rig.run(&["replace", "b", "0"]).refused(4, "no-spare");
    // None that fits is left: that is told once, and a new one is taken at once.
    rig.run(&["fail", "a", "0"]).ok();
    let told = || {
        rig.events()
            .iter()
            .filter(|e| e["event"] == "pool_has_no_spare")
            .count()
    };
    rig.until("the event", || told() == 1);
    let late = rig.file("late", 64 << 20);
    rig.run(&["pool", "add", "spares", &late]).ok();
    rig.until("the late one", || rig.show("a")["state"] == "optimal");
    assert_eq!(rig.show("a")["members"][0]["device"], late.as_str());
    assert_eq!(told(), 1);
    rig.until("three to be told of", || {
        let events = rig.events();
        let taken = events.iter().filter(|e| e["event"] == "pool_spare_taken");
        taken.count() == 3
    });
}

#[test]
fn arrays_without_a_pool_and_arrays_with_a_spare_of_their_own_take_nothing() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let d = rig.files(7);
    rig.run(&["pool", "create", "spares", &d[6]]).ok();
    let options = ["--export", "nbd", "--pool", "spares", "--spare", &d[2]];
    rig.create("own", "1", &options, &d[..2]).ok();
    rig.create("without", "1", NBD, &d[3..5]).ok();
    for array in ["own", "without"] {
        rig.run(&["set", array, AT_ONCE]).ok();
        rig.run(&["fail", array, "0"]).ok();
    }
    rig.until("its own spare", || rig.show("own")["state"] == "optimal");
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(devices_of(&rig, "spares"), d[6..7]);
    assert_eq!(rig.show("without")["state"], "degraded");
    // Named after all, it gets it.
    rig.run(&["set", "without", "pool=spares"]).ok();
    rig.until("the pool's device", || {
        rig.show("without")["state"] == "optimal"
    });
    rig.run(&["set", "without", "pool=none"]).ok();
    assert_eq!(rig.run(&["get", "without"]).ok().json()["pool"], "none");
}

#[test]
fn of_two_pools_of_one_name_nothing_is_taken_until_one_is_gone() {
    let other = Rig::new();
    let foreign = other.file("foreign", 64 << 20);
    other.run(&["pool", "create", "spares", &foreign]).ok();
    let mut rig = Rig::new();
    rig.start_daemon();
    let d = rig.files(3);
    rig.run(&["pool", "create", "spares", &d[2]]).ok();
    let options = ["--export", "nbd", "--pool", "spares"];
    rig.create("a", "1", &options, &d[..2]).ok();
    rig.stop_daemon();
    rig.start_daemon_with(&["--scan", &foreign]);
    rig.until("it is back", || {
        rig.run(&["show", "a"]).json()["state"] == "optimal"
    });
    for refused in [
        ["pool", "show", "spares"],
        ["pool", "add", "spares"],
        ["set", "a", "pool=spares"],
    ] {
        let more = rig.file("more", 64 << 20);
        let device = if refused[1] == "add" {
            Some(more.as_str())
        } else {
            None
        };
        let args: Vec<&str> = refused.into_iter().chain(device).collect();
        rig.run(&args).refused(4, "pool-ambiguous");
    }
    rig.run(&["fail", "a", "0"]).ok();
    rig.until("the event", || {
        let events = rig.events();
        let told = events.iter().find(|e| e["event"] == "pool_has_no_spare");
        told.is_some_and(|e| {
            e["cause"]
                .as_str()
                .is_some_and(|c| c.contains("pool-ambiguous"))
        })
    });
    let pools = rig.run(&["pool", "show"]).ok().json();
    let pools = pools.as_array().expect("a list");
    let of = |device: &str| {
        pools
            .iter()
            .find(|pool| pool["devices"][0]["device"] == device)
    };
    let uuid = of(&foreign).expect("it is shown")["uuid"]
        .as_str()
        .expect("text");
    rig.run(&["pool", "delete", uuid, "--yes"]).ok();
    rig.until("the own pool's device", || {
        rig.show("a")["state"] == "optimal"
    });
    assert_eq!(rig.show("a")["members"][0]["device"], d[2].as_str());
}

#[test]
fn a_daemon_that_is_killed_while_it_hands_a_device_over_leaves_it_one_owner() {
    for pause_ms in [0, 2, 5, 10, 20, 40, 80] {
        let mut rig = Rig::new();
        rig.start_daemon();
        let d = rig.files(4);
        rig.run(&["pool", "create", "spares", &d[3]]).ok();
        let options = ["--export", "nbd", "--pool", "spares"];
        rig.create("a", "5", &options, &d[..3]).ok();
        rig.run(&["fail", "a", "1"]).ok();
        // The device is read before it is taken: from then on every moment may be the last.
        rig.until("the event", || {
            let news = ["pool_spare_taken", "spare_added"];
            rig.events()
                .iter()
                .any(|e| news.iter().any(|name| e["event"] == *name))
        });
        std::thread::sleep(std::time::Duration::from_millis(pause_ms));
        rig.kill_daemon();
        let pools = scanned(&rig)
            .iter()
            .filter(|(_, state)| state == "pool")
            .count();
        let member = rig.run(&["examine", &d[3]]);
        assert_eq!(pools == 0, member.code == 0, "one owner, {pause_ms} ms");
        rig.start_daemon();
        rig.until("the rebuild", || {
            rig.run(&["show", "a"]).json()["state"] == "optimal"
        });
        rig.run(&["pool", "show", "spares"]).ok();
        assert_eq!(devices_of(&rig, "spares"), [] as [String; 0]);
    }
}

/// Somebody takes the device for something else: its first page is gone, with some tools the first
/// label or superblock as well; the last one is left.
fn reuse(path: &str, first_is_gone: bool) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(path);
    let file = file.expect("opened");
    if first_is_gone {
        file.write_all_at(&[0x5a; 8192], 4096).expect("written");
    }
    let swap = std::process::Command::new("mkswap").arg(path).output();
    assert!(swap.expect("util-linux").status.success());
}

/// The content but for where a first and a last superblock or label may lie.
fn but_for_ours(content: &[u8]) -> (&[u8], &[u8]) {
    (
        &content[..4096],
        &content[8192..content.len() - (192 << 10)],
    )
}

#[test]
fn a_device_that_somebody_reused_is_taken_by_no_array_and_keeps_what_it_has() {
    [true, false].into_iter().for_each(reused_in_a_pool);
}

fn reused_in_a_pool(first_is_gone: bool) {
    let mut rig = Rig::new();
    rig.start_daemon();
    let d = rig.files(4);
    rig.run(&["pool", "create", "p", &d[3]]).ok();
    let options = ["--export", "nbd", "--pool", "p"];
    rig.create("a", "5", &options, &d[..3]).ok();
    reuse(&d[3], first_is_gone);
    let before = std::fs::read(&d[3]).expect("read");
    rig.run(&["fail", "a", "1"]).ok();
    rig.until("the pool has none", || {
        let none = |event: &serde_json::Value| event["event"] == "pool_has_no_spare";
        rig.events().iter().any(none)
    });
    assert_eq!(rig.show("a")["state"], "degraded");
    assert!(std::fs::read(&d[3]).expect("read") == before);
    // The label can be removed, and nothing is lost by that.
    let cleaned = rig.run(&["drive", "clean", &d[3], "--yes"]).ok();
    assert!(
        cleaned.out.contains("used for something else"),
        "{cleaned:?}"
    );
    let after = std::fs::read(&d[3]).expect("read");
    assert!(but_for_ours(&after) == but_for_ours(&before));
    assert!(devices_of(&rig, "p").is_empty());
}

#[test]
fn a_member_that_somebody_reused_is_left_out_of_its_array() {
    [true, false].into_iter().for_each(reused_in_an_array);
}

fn reused_in_an_array(first_is_gone: bool) {
    let mut rig = Rig::new();
    rig.start_daemon();
    let d = rig.files(3);
    rig.create("a", "5", NBD, &d).ok();
    rig.run(&["stop", "a"]).ok();
    reuse(&d[2], first_is_gone);
    let before = std::fs::read(&d[2]).expect("read");
    assert_eq!(rig.run(&["start", "a"]).code, 5);
    assert_eq!(rig.show("a")["state"], "degraded");
    rig.run(&["stop", "a"]).ok();
    rig.run(&["destroy", "a", "--yes"]).ok();
    let after = std::fs::read(&d[2]).expect("read");
    assert!(but_for_ours(&after) == but_for_ours(&before));
    assert_eq!(scanned(&rig), []);
}

/// Another path to a drive is a device of its own to the kernel; here a copy stands for it.
#[test]
fn another_path_to_a_member_in_service_is_neither_added_nor_cleaned() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let d = rig.files(4);
    rig.create("a", "5", NBD, &d[..3]).ok();
    rig.run(&["fail", "a", "2"]).ok();
    std::fs::copy(&d[0], &d[3]).expect("copied");
    let before = std::fs::read(&d[3]).expect("read");
    for force in [&[][..], &["--force"]] {
        let add = [&["add", "a", &d[3]], force].concat();
        rig.run(&add).refused(4, "member-found-twice");
    }
    let replace = ["replace", "a", "2", &d[3], "--force"];
    rig.run(&replace).refused(4, "member-found-twice");
    let clean = ["drive", "clean", &d[3], "--yes"];
    rig.run(&clean).refused(4, "member-found-twice");
    assert!(std::fs::read(&d[3]).expect("read") == before);
    assert_eq!(rig.show("a")["members"][0]["state"], "in_sync");
}

#[test]
fn how_an_array_is_to_be_served_is_remembered_when_the_machine_starts_anew() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let d = rig.files(3);
    rig.create("a", "5", &["--export", "none"], &d).ok();
    let kind = |rig: &Rig| rig.show("a")["export"]["kind"].clone();
    let before = kind(&rig);
    rig.stop_daemon();
    // As after a start of the machine: what is true of a running kernel is gone.
    std::fs::remove_dir_all(rig.dir().join("arrays")).expect("it was there");
    rig.start_daemon();
    rig.until_state("a", "optimal");
    assert_eq!(kind(&rig), before);
}

/// Only the error of the device was told: not that the others were changed, or were not.
#[test]
fn a_change_of_a_pool_that_one_device_refuses_says_what_became_of_the_others() {
    for with_daemon in [false, true] {
        let mut rig = Rig::new();
        if with_daemon {
            rig.start_daemon();
        }
        let (d, sealed) = (rig.files(2), Sealed::new(64 << 20));
        let hard = sealed.path();
        rig.run(&["pool", "create", "p", &d[0], &hard]).ok();
        sealed.refuse_writes();
        let run = rig.run(&["pool", "delete", "p", "--yes"]);
        let found = run.json_error()["found"].to_string();
        assert!(run.code != 0 && found.contains(&hard), "{found}");
        assert!(found.contains(&format!("removed: {}", d[0])), "{found}");
        let left = rig.run(&["pool", "show", "p"]).ok().json();
        assert_eq!(left["devices"][0]["device"], hard.as_str());
        assert_eq!(left["devices"].as_array().map(Vec::len), Some(1));
        if with_daemon {
            let events = rig.events();
            let changed = events.iter().filter(|e| e["event"] == "pool_changed");
            let told: Vec<String> = changed.map(|e| e["effect"].to_string()).collect();
            assert!(told[1].contains(&format!("{} removed", d[0])), "{told:?}");
            let left = told[1].contains(&hard);
            assert!(left, "{told:?}");
        }
        // What is left can be wiped by another command, which says as much.
        rig.run(&["pool", "create", "r", &d[1]]).ok();
        let run = rig.run(&["drive", "clean", "--yes", &hard, &d[1]]);
        let found = run.json_error()["found"].to_string();
        let wiped = found.contains(&format!("wiped: {}", d[1]));
        assert!(run.code != 0 && wiped, "{found}");
        rig.run(&["pool", "show", "r"]).refused(3, "pool-not-found");
    }
}

#[test]
fn a_pool_of_which_one_device_takes_no_label_has_the_others() {
    let rig = Rig::new();
    let (small, large) = (rig.file("small", 32 << 20), rig.file("large", 64 << 20));
    let run = rig.run_within_40_mib(&["pool", "create", "p", &large, &small]);
    let found = run.json_error()["found"].to_string();
    assert!(run.code != 0 && found.contains(&large), "{run:?}");
    assert!(found.contains(&format!("added: {small}")), "{found}");
    assert_eq!(devices_of(&rig, "p"), std::slice::from_ref(&small));
    rig.run(&["pool", "add", "p", &large, &small]).ok();
    assert_eq!(devices_of(&rig, "p"), [large, small]);
}

/// Both counted as spares.
#[test]
fn a_copy_of_a_device_in_a_pool_is_no_second_device() {
    let mut rig = Rig::new();
    let folder = rig.folder.path().to_str().expect("text").to_owned();
    rig.start_daemon_with(&["--scan", &folder]);
    let d = rig.files(3);
    let copy = rig.path("d2c");
    rig.create("data", "1", &["--export", "none"], &d[..2]).ok();
    rig.run(&["pool", "create", "shelf", &d[2]]).ok();
    rig.run(&["set", "data", "pool=shelf", AT_ONCE]).ok();
    std::fs::copy(&d[2], &copy).expect("copied");
    let copies = format!(
        "{} and {copy} are copies of one device of the pool shelf",
        d[2]
    );
    let scan = rig.run(&["scan", &d[2], &copy]).ok();
    assert!(scan.out.contains(&copies), "{scan:?}");
    let shown = rig.run(&["pool", "show", "shelf"]).ok().json();
    assert_eq!(shown["arrays"][0]["fitting"], 0, "{shown}");
    assert_eq!(shown["devices"][0]["problem"], copies.as_str(), "{shown}");
    let added = rig.run(&["pool", "add", "shelf", &copy]);
    let cure = added.json_error()["cure"].to_string();
    assert!(added.err.contains("are copies of one device"), "{added:?}");
    added.refused(4, "member-found-twice");
    rig.run(&["replace", "data", "0"])
        .refused(4, "member-found-twice");
    // What is advised helps.
    assert!(cure.contains("strake pool remove shelf DEV"), "{cure}");
    rig.run(&["pool", "remove", "shelf", &copy]).ok();
    let mut show = rig.command();
    let text = rig.run_command(show.args(["pool", "show", "shelf"])).ok();
    assert!(text.out.contains("1 of them fits\n"), "{text:?}");
    rig.run(&["replace", "data", "0"]).ok();
}

/// It was said to be empty, and a second pool of its name to be the cure. Of two nothing is taken.
#[test]
fn a_pool_that_may_be_on_a_device_that_gives_no_answer_is_not_said_to_be_empty() {
    if !rig::is_root() {
        return rig::skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    let d = rig.files(3);
    rig.start_daemon();
    rig.run(&["pool", "create", "p", &d[2]]).ok();
    let options = ["--export", "none", "--pool", "p"];
    rig.create("data", "1", &options, &d[..2]).ok();
    rig.run(&["pool", "remove", "p", &d[2]]).ok();
    let Some(hung) = HungDevice::new(&rig) else {
        return;
    };
    let path = hung.path.as_str();
    rig.knows(path);
    let shown = within(&rig, 60, &["pool", "show"]).ok().json();
    assert_eq!(shown[0]["silent"], serde_json::json!([path]), "{shown}");
    let text = rig.run_command(rig.command().args(["pool", "show"])).out;
    let part = format!("no answer, perhaps in it: {path}");
    assert!(text.contains(&part), "{text}");
    let doctor = within(&rig, 60, &["doctor"]).json();
    let findings = doctor["findings"].to_string();
    for check in ["\"spare\"", "\"pool\""] {
        assert!(!findings.contains(check), "{check} in {findings}");
    }
    let unchecked = doctor["unchecked"].to_string();
    assert!(
        unchecked.contains("the pool p") && unchecked.contains(path),
        "{unchecked}"
    );
    let replace = within(&rig, 60, &["replace", "data", "0"]).refused(4, "device-silent");
    assert!(replace.err.contains(path), "{replace:?}");
    within(&rig, 60, &["fail", "data", "0"]).ok();
    let told = || {
        let mut events = rig.events().into_iter();
        let told = events.find(|event| event["event"] == "pool_has_no_spare");
        told.map(|event| event["cause"].to_string())
    };
    rig.until("it is told", || told().is_some());
    assert!(
        told().expect("there").contains(path),
        "{told:?}",
        told = told()
    );
    drop(hung);
    rig.stop_daemon();
}
