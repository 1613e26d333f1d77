//! Only older members are found: no table says so, and the host knows it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::rig::*;

const NBD: &[&str] = &["--export", "nbd"];
const A: &[&str] = &["write -P 0xaa 0 8M", "flush"];
const B: &[&str] = &["write -P 0xbb 0 8M", "flush"];
const IS_A: &[&str] = &["read -P 0xaa 0 8M"];
const IS_B: &[&str] = &["read -P 0xbb 0 8M"];

fn copy(from: &str, to: &str) {
    fs::copy(from, to).expect("copied");
}

/// What all commands say of an array of which only older members are found: it does not start.
fn is_refused(rig: &Rig, why: &str) {
    rig.run(&["start", "data"]).refused(4, "members-older");
    rig.run(&["start", "--force", "--yes", "data"])
        .refused(4, "members-older");
    rig.run(&["start", "--dry-run", "data"])
        .refused(4, "members-older");
    // What was noted in the moment of a look says nothing of it.
    rig.until("it is shown", || rig.show("data")["startable"] == false);
    let shown = rig.show("data");
    assert_eq!(shown["conflict"]["code"], "members-older", "{shown}");
    let scanned = rig.run(&["scan"]).ok().json();
    let reason = scanned[0]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains(why), "{scanned}");
    assert_eq!(rig.run(&["show", "data"]).code, 8);
}

/// One half of a mirror, as it was before B was written, while the other half is away: it was
/// started, and A was read where B was.
#[test]
fn a_half_of_a_mirror_from_before_is_not_served_alone() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(2);
    let (before, live, away) = (rig.path("before"), rig.path("live"), rig.path("away"));
    rig.create("data", "1", NBD, &files).ok();
    if rig.qemu_io("data", A).is_none() {
        return;
    }
    rig.run(&["stop", "data"]).ok();
    copy(&files[1], &before);
    rig.run(&["start", "data"]).ok();
    // Images that are taken while it serves are known after the stop.
    copy(&files[1], &live);
    rig.qemu_io("data", B);
    rig.run(&["stop", "data"]).ok();
    let newest = rig.path("newest");
    copy(&files[1], &newest);
    fs::rename(&files[0], &away).expect("taken away");
    for older in [&live, &before] {
        copy(older, &files[1]);
        is_refused(&rig, &format!("{} has generation", files[1]));
    }
    // No daemon, and another one.
    rig.kill_daemon();
    let shown = rig.show("data");
    assert_eq!(shown["conflict"]["code"], "members-older", "{shown}");
    rig.start_daemon();
    is_refused(&rig, "is older than what this host served");
    // The newest copy is no older image.
    copy(&newest, &files[1]);
    rig.run(&["start", "data"]);
    rig.qemu_io("data", IS_B);
    rig.run(&["stop", "data"]).ok();
    // Older data is served where a person names it, and is what this host knows then.
    copy(&before, &files[1]);
    rig.run(&["start", "data", &files[1]]);
    rig.qemu_io("data", IS_A);
    rig.run(&["stop", "data"]).ok();
    rig.run(&["start", "data"]);
    rig.qemu_io("data", IS_A);
}

/// A half of a mirror that was put out is found alone after a crash. Its own table calls it in
/// sync: it was started by itself, and A was read where B was.
#[test]
fn a_half_of_a_mirror_that_was_out_is_not_served_alone_after_a_crash() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(2);
    rig.create("data", "1", NBD, &files).ok();
    if rig.qemu_io("data", A).is_none() {
        return;
    }
    rig.run(&["fail", "data", "0"]).ok();
    let uuid = rig.show("data")["uuid"].as_str().expect("one").to_owned();
    let noted = rig.path(&format!("run/served/{uuid}.json"));
    rig.until("it is noted that the member is out", || {
        let noted = fs::read(&noted).expect("noted at the start");
        let noted: serde_json::Value = serde_json::from_slice(&noted).expect("JSON");
        noted.as_object().expect("members").len() == 1
    });
    rig.qemu_io("data", B);
    rig.kill_daemon();
    let away = rig.path("away");
    fs::rename(&files[1], &away).expect("taken away");
    rig.start_daemon();
    rig.until("the daemon refuses to start it", || {
        let refused = |e: &serde_json::Value| {
            e["event"] == "start_refused"
                && e["cause"]
                    .as_str()
                    .is_some_and(|c| c.contains("members-older"))
        };
        rig.events().iter().any(refused)
    });
    is_refused(&rig, "was not in sync when others had");
    fs::rename(&away, &files[1]).expect("brought back");
    rig.until_state("data", "degraded");
    rig.qemu_io("data", IS_B);
}

/// Members that are in sync, where the array serves.
fn in_sync(rig: &Rig) -> Option<BTreeSet<String>> {
    let shown = rig.show("data");
    let serves = matches!(shown["state"].as_str(), Some("optimal" | "degraded"));
    let members = shown["members"].as_array().filter(|_| serves)?.iter();
    let in_sync = members.filter(|m| m["state"] == "in_sync");
    Some(
        in_sync
            .filter_map(|m| m["device"].as_str().map(str::to_owned))
            .collect(),
    )
}

/// Members leave, come back, fail and are rebuilt, between kills and stops. A member that was in
/// sync when the array served last is enough; where none is there, nothing serves.
#[test]
fn whatever_members_did_one_that_was_in_sync_is_needed_and_enough() {
    let (mut needed, mut enough) = (0, 0);
    for (life, (level, count)) in [("1", 2), ("5", 3), ("1", 3), ("10", 4)]
        .into_iter()
        .enumerate()
    {
        let mut number = life as u64 + 1;
        // Numerical Recipes' generator.
        let mut draw = |below: u64| {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % (1 << 32);
            (number >> 16) % below
        };
        let mut rig = Rig::new();
        rig.start_daemon_with(&["--wait", "0"]);
        let files = rig.files(count);
        rig.create("data", level, &["--export", "none"], &files)
            .ok();
        let away = |file: &String| format!("{file}.away");
        let mut last = in_sync(&rig).expect("it serves");
        let mut told = Vec::new();
        for _ in 0..12 {
            let step = draw(4);
            told.push(step);
            match step {
                0 => drop(rig.run(&["fail", "data", &draw(count as u64).to_string()])),
                1 => files
                    .iter()
                    .for_each(|file| drop(rig.run(&["add", "data", file]))),
                2 => drop(rig.run(&["rebuild", "data", "--wait"])),
                _ => {
                    match draw(2) {
                        0 => rig.kill_daemon(),
                        _ => rig.stop_daemon(),
                    }
                    for file in &files {
                        match (Path::new(file).exists(), draw(3)) {
                            (true, 0) => fs::rename(file, away(file)).expect("taken away"),
                            (false, 0 | 1) => fs::rename(away(file), file).expect("brought back"),
                            _ => {}
                        }
                    }
                    rig.start_daemon_with(&["--wait", "0"]);
                    let start = rig.run(&["start", "data"]);
                    let is_there = |file: &&String| Path::new(file).exists();
                    let there = last.iter().filter(is_there).count();
                    let older = start.err.contains("members-older");
                    let serves = in_sync(&rig).is_some();
                    assert!(!(older && there > 0), "level {level}, {told:?}: {start:?}");
                    assert!(
                        !(serves && there == 0),
                        "level {level}, {told:?}: {start:?}"
                    );
                    needed += u32::from(older);
                    enough += u32::from(serves && there < last.len());
                    if !serves {
                        let gone = files.iter().filter(|file| !Path::new(file).exists());
                        gone.for_each(|file| fs::rename(away(file), file).expect("brought back"));
                        rig.run(&["start", "data"]);
                    }
                }
            }
            // One that just failed is noted a moment later.
            std::thread::sleep(std::time::Duration::from_millis(200));
            last = in_sync(&rig).unwrap_or(last);
        }
    }
    assert!(
        needed > 0 && enough > 0,
        "{needed} refused, {enough} degraded"
    );
}
