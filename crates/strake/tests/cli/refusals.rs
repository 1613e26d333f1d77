//! Starts that are refused: what is said is so, the way on that is named works, and nothing else is
//! kept from service.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use serde_json::Value;

use crate::aside::partition;
use crate::devices::Loop;
use crate::rig::{Rig, Run, bytes, skipped};

const NONE: &[&str] = &["--export", "none"];

/// An array of files that begin with its name, stopped.
fn stopped(rig: &Rig, name: &str, level: &str, members: usize) -> Vec<String> {
    let devices = rig.files_called(name, members);
    rig.create(name, level, NONE, &devices).ok();
    rig.run(&["stop", name]).ok();
    devices
}

fn plain(rig: &Rig, args: &[&str]) -> Run {
    rig.run_command(rig.command().args(args))
}

fn uuid(rig: &Rig, name: &str) -> String {
    let shown = rig.show(name);
    shown["uuid"].as_str().expect("a uuid").to_owned()
}

/// Carries out the first command of an error's cure that begins so, as a shell would.
fn carry_out(rig: &Rig, text: &str, begins: &str) -> Run {
    let from = text.find(begins).unwrap_or_else(|| panic!("{text}"));
    let line = &text[from..];
    let ends = [
        ";", ", and ", " then", " serves", " takes", " wipes", " makes", "\n",
    ];
    let end = ends.iter().filter_map(|end| line.find(end)).min();
    let line = &line[..end.unwrap_or(line.len())];
    let strake = std::path::Path::new(crate::rig::STRAKE);
    let folder = strake.parent().expect("a folder").display();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", line])
        .env("PATH", format!("{folder}:{path}"));
    shell.env("STRAKE_DIR", rig.dir());
    shell.stdin(std::process::Stdio::null());
    rig.run_command(&mut shell)
}

/// `start --all` ended at the first array that was refused: the later ones stayed stopped.
#[test]
fn an_array_that_is_refused_keeps_no_other_from_a_start_of_all() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let first = stopped(&rig, "aa", "0", 2);
    let gone = stopped(&rig, "bb", "1", 2);
    let last = stopped(&rig, "cc", "5", 3);
    stopped(&rig, "dd", "1", 2);
    let left = uuid(&rig, "bb");
    for (from, to) in [
        (&first[1], "away-a"),
        (&gone[1], "away-b"),
        (&last[0], "away-c"),
    ] {
        fs::rename(from, rig.path(to)).expect("unplugged");
    }
    fs::rename(&last[1], rig.path("away-d")).expect("unplugged");
    rig.run(&["destroy", "bb", "--yes"]).ok();
    fs::rename(rig.path("away-b"), &gone[1]).expect("plugged");

    let said = plain(&rig, &["start", "--all"]);
    assert_eq!(said.code, 4, "{said:?}");
    // Each is named, one by the error.
    for name in ["aa: ", "cc: "] {
        assert!(said.err.contains(name), "{said:?}");
    }
    assert!(said.err.contains("bb was destroyed here on 20"), "{said:?}");
    assert!(said.err.contains("error[members-missing]"), "{said:?}");
    assert_eq!(rig.show("dd")["state"], "optimal");
    // What was destroyed is no failure of all.
    fs::rename(rig.path("away-a"), &first[1]).expect("plugged");
    fs::rename(rig.path("away-c"), &last[0]).expect("plugged");
    rig.run(&["stop", "--all"]).ok();
    let said = plain(&rig, &["start", "--all"]);
    assert_eq!(said.code, 5, "{said:?}");
    assert_eq!(rig.show("aa")["state"], "optimal");
    assert_eq!(rig.show(&left)["state"], "stopped");
    rig.run(&["destroy", &left, "--yes"]).ok();
}

/// Every command that tells of this array, or would change it, knows that it was destroyed.
fn is_told_destroyed(rig: &Rig, uuid: &str, daemon: bool) {
    let shown = rig.run(&["show", "data"]);
    assert_eq!(shown.code, 7, "{shown:?}");
    let shown = shown.json();
    assert_eq!(
        (&shown["state"], &shown["startable"]),
        (&"stopped".into(), &false.into())
    );
    let date = shown["destroyed"].as_str().expect("a date").to_owned();
    let text = plain(rig, &["show", "data"]);
    assert!(text.out.contains("stopped, destroyed"), "{text:?}");
    let wipes = format!("strake destroy {uuid} wipes");
    assert!(
        text.out.contains(&wipes) && text.out.contains(&date),
        "{text:?}"
    );
    let all = plain(rig, &["show"]);
    // Without a daemon other arrays of the machine are seen.
    assert!(all.code == 0 || !daemon, "{all:?}");
    assert!(
        all.out.contains("  destroyed  ") && all.out.contains(&wipes),
        "{all:?}"
    );
    let status = plain(rig, &["status", "data"]);
    assert_eq!(status.code, 7, "{status:?}");
    assert!(
        status.out.contains(&format!("destroyed here on {date}")),
        "{status:?}"
    );
    let doctor = plain(rig, &["doctor"]);
    assert!(
        doctor
            .out
            .contains(&format!("info: data: it was destroyed here on {date}"))
    );
    assert!(doctor.out.contains(&wipes), "{doctor:?}");
    for command in [
        &["set", "data", "degraded=never"][..],
        &["rename", "data", "other"],
        &["import", "data"],
        &["start", "data", "--dry-run"],
    ] {
        if command[0] == "start" && !daemon {
            continue;
        }
        rig.run(command).refused(4, "array-destroyed");
    }
    let more = rig.files_called("more", 2);
    let refused = rig.create("data", "1", NONE, &more);
    assert!(refused.err.contains(&wipes), "{refused:?}");
    refused.refused(4, "name-exists");
}

/// `scan` and `start` alone knew it: `show` said that it could be started, `set` and `config
/// restore` succeeded.
#[test]
fn what_tells_of_an_array_and_what_changes_it_know_that_it_was_destroyed() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = stopped(&rig, "data", "1", 3);
    let backup = rig.path("backup.json");
    rig.run(&["config", "backup", &backup]).ok();
    let uuid = uuid(&rig, "data");
    fs::rename(&devices[2], rig.path("away")).expect("unplugged");
    rig.run(&["destroy", "data", "--yes"]).ok();
    fs::rename(rig.path("away"), &devices[2]).expect("plugged");

    is_told_destroyed(&rig, &uuid, true);
    rig.run(&["config", "restore", &backup, "--yes"])
        .refused(4, "array-destroyed");
    rig.stop_daemon();
    is_told_destroyed(&rig, &uuid, false);
    rig.start_daemon();
    // The way on that is named.
    let text = plain(&rig, &["show", "data"]).out;
    assert_eq!(carry_out(&rig, &text, "strake start --force").code, 5);
    assert_eq!(rig.show("data")["destroyed"], Value::Null);
    rig.run(&["set", "data", "degraded=never"]).ok();
}

fn attach(files: &[String], size: &str) -> Option<Vec<Loop>> {
    let each = files.iter();
    each.map(|file| Loop::over(file, &["--sector-size", size]))
        .collect()
}

fn paths(loops: &[Loop]) -> Vec<String> {
    loops.iter().map(|one| one.device.clone()).collect()
}

fn scanned(rig: &Rig, loops: &[Loop]) -> Value {
    let devices = paths(loops);
    let mut args = vec!["scan"];
    args.extend(devices.iter().map(String::as_str));
    rig.run(&args).ok().json()
}

/// Members with sectors that no start takes were in sync and complete wherever they were told of.
#[test]
fn members_that_no_start_takes_are_told_as_its_refusal_tells_them() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    let Some(small) = attach(&files, "512") else {
        return;
    };
    let options = [NONE, &["--block-size", "512"]].concat();
    rig.create("sectors", "5", &options, &paths(&small)).ok();
    rig.run(&["stop", "sectors"]).ok();
    rig.stop_daemon();
    drop(small);

    let Some(large) = attach(&files, "4096") else {
        return;
    };
    let devices = paths(&large);
    let scan = scanned(&rig, &large);
    assert_eq!(scan[0]["state"], "incomplete", "{scan}");
    let reason = scan[0]["reason"].as_str().expect("a reason");
    assert!(reason.contains("blocks of 4096 bytes"), "{scan}");
    assert_eq!(scan[0]["devices"][0]["state"], "set_aside", "{scan}");
    let options: Vec<&str> = devices
        .iter()
        .flat_map(|d| ["--scan", d.as_str()])
        .collect();
    rig.start_daemon_with(&options);
    let shown = rig.run(&["show", "sectors"]);
    assert_eq!(shown.code, 8, "{shown:?}");
    let shown = shown.json();
    assert_eq!(shown["startable"], false, "{shown}");
    assert_eq!(shown["members"][0]["state"], "missing", "{shown}");
    assert_eq!(
        shown["set_aside"].as_array().map(Vec::len),
        Some(3),
        "{shown}"
    );
    let status = plain(&rig, &["status", "sectors"]);
    assert_eq!(status.code, 8, "{status:?}");
    assert!(status.out.contains("0/3 in sync"), "{status:?}");
    let refused = rig.run(&["start", "sectors"]).refused(4, "members-missing");
    let refused = refused.json_error();
    let cure = refused["cure"].as_str().expect("a cure");
    assert!(
        cure.contains("blocks of 512 bytes") && !cure.contains("missing"),
        "{refused}"
    );
}

#[test]
fn one_member_that_no_start_takes_is_done_without() {
    let rig = Rig::new();
    let files = rig.files(3);
    let Some(mut loops) = attach(&files, "512") else {
        return;
    };
    let options = [NONE, &["--block-size", "512"]].concat();
    rig.create("onesector", "5", &options, &paths(&loops)).ok();
    drop(loops.remove(1));
    let Some(odd) = Loop::over(&files[1], &["--sector-size", "4096"]) else {
        return;
    };
    loops.push(odd);
    let scan = scanned(&rig, &loops);
    assert_eq!(scan[0]["state"], "degraded", "{scan}");
}

/// The members of a snapshot were refused beside a device that joined later: `bring the missing
/// members back`, and none was missing.
#[test]
fn a_state_from_before_is_refused_with_the_way_to_it() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = stopped(&rig, "data", "5", 4);
    let before: Vec<Vec<u8>> = devices.iter().map(|d| bytes(d)).collect();
    rig.run(&["start", "data"]).ok();
    let later = rig.file("later", 64 << 20);
    rig.run(&["replace", "data", "1", &later]).ok();
    rig.until("the replacement", || {
        let shown = rig.show("data");
        let all = shown["members"].as_array().expect("members");
        shown["jobs"] == serde_json::json!([])
            && all.len() == 4
            && all[1]["device"] == later.as_str()
    });
    rig.run(&["stop", "data"]).ok();
    for (path, before) in devices.iter().zip(&before) {
        fs::write(path, before).expect("restored");
    }
    let scan = rig.run(&["scan"]).ok().json();
    assert_eq!(scan[0]["state"], "incomplete", "{scan}");
    let refused = rig.run(&["start", "data"]).refused(4, "members-missing");
    let refused = refused.json_error();
    let cure = refused["cure"].as_str().expect("a cure");
    assert!(
        cure.contains(&later) && !cure.contains("missing"),
        "{refused}"
    );
    let started = carry_out(&rig, cure, "strake start");
    assert_eq!(started.code, 0, "{started:?}: {cure}");
    let yes = cure.replace("drive clean", "drive clean --yes");
    carry_out(&rig, &yes, "strake drive clean").ok();
    rig.stop_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
}

/// `show` of a stopped array advised `add`, which a stopped array refuses.
#[test]
fn what_is_advised_of_members_that_are_set_aside_can_be_done() {
    let mut rig = Rig::new();
    if Command::new("mkswap").arg("--version").output().is_err() {
        return skipped("mkswap is not installed");
    }
    rig.start_daemon();
    let devices = stopped(&rig, "data", "5", 4);
    for device in &devices {
        let made = Command::new("mkswap").arg(device).output();
        assert!(made.expect("it runs").status.success());
    }
    let shown = rig.show("data");
    let cure = shown["set_aside"][0]["cure"].as_str().expect("a cure");
    assert!(!cure.contains("strake add"), "{shown}");
    carry_out(&rig, cure, "wipefs").ok();
    carry_out(&rig, cure, "strake start").ok();
    rig.run(&["stop", "data"]).ok();
    // One alone: the array is started, and takes it then.
    let made = Command::new("mkswap").arg(&devices[2]).output();
    assert!(made.expect("it runs").status.success());
    let shown = rig.show("data");
    let cure = shown["set_aside"][0]["cure"].as_str().expect("a cure");
    assert_eq!(carry_out(&rig, cure, "strake start").code, 5, "{cure}");
    let add = format!("{cure} --yes");
    let add = carry_out(
        &rig,
        &add.replace(" takes it", " --yes takes it"),
        "strake add",
    );
    assert_eq!(add.code, 0, "{add:?}");
}

/// Paths in commands were not quoted: a shell took one with a space for two.
#[test]
fn a_command_that_is_advised_has_its_paths_quoted() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files_called("my file's ", 3);
    rig.create("data", "5", NONE, &devices).ok();
    rig.run(&["stop", "data"]).ok();
    devices.iter().for_each(|device| partition(device));
    let refused = rig.run(&["start", "data"]).refused(4, "members-missing");
    let refused = refused.json_error();
    let cure = refused["cure"].as_str().expect("a cure");
    let yes = cure.replace("--force", "--force --yes");
    carry_out(&rig, &yes, "strake start").ok();
    assert_eq!(rig.show("data")["state"], "optimal");
}

/// Files of an array that were overwritten were named, and not mentioned by the refusal.
#[test]
fn devices_that_are_named_and_are_no_members_are_told() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = stopped(&rig, "data", "5", 4);
    for device in &devices[..2] {
        let file = File::options().write(true).open(device).expect("opened");
        file.set_len(0).expect("emptied");
        file.set_len(64 << 20).expect("as long as before");
    }
    let file = File::options().write(true).open(&devices[0]);
    file.expect("opened")
        .write_all_at(b"LUKS\xba\xbe\x00\x02", 0)
        .expect("written");
    let mut args = vec!["start", "--force", "--yes", "data"];
    args.extend(devices.iter().map(String::as_str));
    let refused = rig.run(&args).refused(4, "members-missing").json_error();
    let found = refused["found"].as_str().expect("it is said");
    for device in &devices[..2] {
        assert!(found.contains(device.as_str()), "{refused}");
    }
    assert!(found.contains("holds no superblock"), "{refused}");
}

/// `start --force NAME DEV…` wiped tables of partitions unasked, and a dry run did not say so.
#[test]
fn a_start_that_wipes_tables_of_partitions_asks_first() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = stopped(&rig, "data", "5", 3);
    devices.iter().for_each(|device| partition(device));
    let before = bytes(&devices[1]);
    let with = |options: &[&'static str]| {
        let mut args = [options, &["data"]].concat();
        args.extend(devices.iter().map(String::as_str));
        args.iter()
            .map(|arg| (*arg).to_owned())
            .collect::<Vec<String>>()
    };
    let run = |rig: &Rig, args: &[String]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        rig.run(&args)
    };
    for options in [
        &["start", "--force"][..],
        &["start", "--foreground", "--force"],
    ] {
        let dry = with(&[options, &["--dry-run"]].concat());
        let dry = run(&rig, &dry).ok().json();
        let would = dry["would"].as_str().expect("it is said");
        assert!(
            would.contains("would wipe") && would.contains(&devices[1]),
            "{dry}"
        );
        let refused = run(&rig, &with(options)).refused(4, "not-confirmed");
        assert!(refused.err.contains(&devices[1]), "{refused:?}");
        assert!(bytes(&devices[1]) == before, "it was wiped unasked");
    }
    run(&rig, &with(&["start", "--force", "--yes"])).ok();
    assert_eq!(rig.show("data")["state"], "optimal");
}
