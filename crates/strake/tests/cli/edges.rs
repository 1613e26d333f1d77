//! The edges of the process: where its answers go, what the machine permits it, what lies in its
//! folder.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::hung::within;
use crate::rig::{self, Rig, STRAKE};

const NONE: &[&str] = &["--export", "none"];

/// `strake config backup > FILE` on a full disk exited with 0 and left an empty file.
#[test]
fn an_answer_that_cannot_be_written_is_an_error_and_a_reader_that_has_gone_is_none() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "1", NONE, &rig.files(2)).ok();
    for args in [
        &["show"][..],
        &["scan"],
        &["config", "backup"],
        &["completions", "bash"],
        &["events"],
        &["events", "--follow"],
        &["--help"],
        &["get", "data"],
    ] {
        let full = File::options().write(true).open("/dev/full");
        let run = rig.run_command(
            rig.command()
                .args(args)
                .stdout(Stdio::from(full.expect("a full device"))),
        );
        assert_eq!(run.code, 1, "{args:?}: {run:?}");
        assert!(run.err.contains("error[io-error]"), "{args:?}: {run:?}");
        let (read, write) = std::io::pipe().expect("a pipe");
        drop(read);
        let run = rig.run_command(rig.command().args(args).stdout(Stdio::from(write)));
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{args:?}");
    }
}

#[test]
fn a_limit_of_the_size_of_files_refuses_the_array_that_meets_it_alone() {
    let mut rig = Rig::new();
    // 32 MiB, in blocks of 512 bytes.
    rig.start_daemon_limited("-f 65536", &[]);
    let small: Vec<String> = (0..2)
        .map(|n| rig.file(&format!("s{n}"), 24 << 20))
        .collect();
    rig.create("small", "1", NONE, &small).ok();
    let refused = rig.create("large", "1", NONE, &rig.files(2));
    let limit = "33554432 bytes only (RLIMIT_FSIZE)";
    assert!(refused.err.contains(limit), "{refused:?}");
    refused.refused(1, "no-space");
    assert_eq!(rig.show("small")["state"], "optimal", "{}", rig.log());
}

#[test]
fn too_few_descriptors_for_any_array_are_a_plain_error_of_the_daemon() {
    let rig = Rig::new();
    for descriptors in [8, 12, 20] {
        let script = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command
            .args(["-c", &script, STRAKE, "--json", "daemon", "--no-devices"])
            .env("STRAKE_DIR", rig.dir())
            .stdin(Stdio::null());
        rig.run_command(&mut command)
            .refused(4, "descriptors-short");
    }
}

#[test]
fn what_is_no_file_in_place_of_the_journal_holds_up_nothing() {
    let mut rig = Rig::new();
    fs::create_dir(rig.dir()).expect("works");
    let journal = rig.dir().join("events.jsonl");
    let fifo = Command::new("mkfifo").arg(&journal).status();
    assert!(fifo.expect("mkfifo").success());
    let run = within(&rig, 60, &["events"]).refused(1, "io-error");
    assert!(run.err.contains("events.jsonl"), "{run:?}");
    rig.start_daemon();
    rig.until("the log to name it", || rig.log().contains("events.jsonl"));
    rig.create("data", "1", NONE, &rig.files(2)).ok();
    assert!(!rig.events().is_empty());
    rig.stop_daemon();
    fs::remove_file(&journal).expect("there");
    fs::create_dir(&journal).expect("works");
    let run = within(&rig, 60, &["events"]).refused(1, "io-error");
    assert!(run.err.contains("events.jsonl"), "{run:?}");
    rig.start_daemon();
    rig.stop_daemon();
}

#[test]
fn requests_without_their_body_and_idle_connections_keep_nobody_from_the_api() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let connect = |text: &[u8]| {
        let mut stream = UnixStream::connect(rig.dir().join("api.sock")).ok()?;
        stream.write_all(text).ok()?;
        Some(stream)
    };
    let head = b"POST /v1/arrays HTTP/1.1\r\nhost: strake\r\ncontent-type: application/json\r\n\
        content-length: 100\r\n\r\n{";
    let mut one = connect(head).expect("it listens");
    let patience = Some(Duration::from_secs(60));
    one.set_read_timeout(patience).expect("works");
    let mut answer = String::new();
    one.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("bad-request"), "{answer}");
    let unfinished: Vec<_> = (0..600).filter_map(|_| connect(head)).collect();
    within(&rig, 60, &["show"]).ok();
    let idle: Vec<_> = (0..600).filter_map(|_| connect(b"")).collect();
    within(&rig, 60, &["show"]).ok();
    drop((unfinished, idle));
    let long = b"POST /v1/arrays HTTP/1.1\r\nhost: strake\r\ncontent-length: 99999999\r\n\r\n";
    let mut long = connect(long).expect("it listens");
    let _ = long.write_all(&vec![b' '; 3 << 20]);
    let mut answer = String::new();
    long.set_read_timeout(patience).expect("works");
    let _ = long.read_to_string(&mut answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 413"),
        "{answer}"
    );
}

/// A file was cut short and made long again within the 30 s that the watcher slept from before it
/// came.
#[test]
fn a_member_file_is_watched_from_its_first_moments() {
    let mut rig = Rig::new();
    rig.start_daemon();
    // The first look of the daemon, with no file, is over.
    std::thread::sleep(Duration::from_millis(500));
    let files = rig.files(2);
    rig.create("data", "1", NONE, &files).ok();
    let file = File::options().write(true).open(&files[1]).expect("there");
    file.set_len(0).expect("cut");
    let shrunk = Instant::now();
    rig.until("the member to go out", || {
        rig.events().iter().any(|e| e["event"] == "member_out")
    });
    assert!(shrunk.elapsed() < Duration::from_secs(27), "{}", rig.log());
}

#[test]
fn scan_calls_an_array_degraded_that_serves_without_a_member() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", NONE, &files).ok();
    assert_eq!(rig.run(&["scan"]).ok().json()[0]["state"], "complete");
    rig.run(&["fail", "data", "1"]).ok();
    rig.until("the loss to be on the members", || {
        rig.run(&["scan"]).json()[0]["state"] == "degraded"
    });
    rig.run(&["stop", "data"]).ok();
    assert_eq!(rig.run(&["scan"]).ok().json()[0]["state"], "degraded");
    // Nothing that is expected is away, so no start waits for it.
    assert_eq!(rig.run(&["start", "data"]).code, 5);
}

/// The superblock places of two of three members were overwritten: `start --force` asked nothing.
#[test]
fn a_forced_start_with_emptied_members_asks_and_names_each() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", NONE, &files).ok();
    rig.run(&["stop", "data"]).ok();
    for file in &files[..2] {
        let file = File::options().write(true).open(file).expect("there");
        use std::os::unix::fs::FileExt;
        file.write_all_at(&[0; 8192], 0).expect("overwritten");
    }
    rig.run(&["start", "data"]).refused(4, "members-emptied");
    rig.run(&["start", "data", "--force"])
        .refused(4, "not-confirmed");
    // What it would believe is said before, too.
    for args in [
        &["start", "data", "--force", "--dry-run"][..],
        &["import", "data", "--force", "--dry-run"],
        &[
            "start",
            "--foreground",
            "data",
            "--force",
            "--dry-run",
            &files[0],
            &files[1],
            &files[2],
        ],
    ] {
        let would = rig.run(args).ok().json()["would"].to_string();
        let believed = "would believe members that may have lost their content";
        let all = files[..2].iter().all(|file| would.contains(file));
        assert!(would.contains(believed) && all, "{args:?}: {would}");
    }
    rig.run(&["start", "data", "--force", "--yes"]).ok();
    let events = rig.events();
    let mut slots: Vec<_> = events
        .iter()
        .filter(|e| e["event"] == "member_believed")
        .map(|e| e["slot"].as_u64())
        .collect();
    slots.sort_unstable();
    assert_eq!(slots, [Some(0), Some(1)], "{events:?}");
}

/// The advice was `strake add --force`, which is refused for an array that does not run.
#[test]
fn members_made_swap_are_advised_what_brings_the_array_back() {
    if !rig::has("mkswap") || !rig::has("wipefs") {
        return rig::skipped("mkswap and wipefs are needed");
    }
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", NONE, &files).ok();
    rig.run(&["stop", "data"]).ok();
    let made = |program: &str, args: &[&str]| {
        let done = Command::new(program).args(args).output().expect("it runs");
        assert!(done.status.success(), "{done:?}");
    };
    for file in &files[..2] {
        made("mkswap", &[file]);
    }
    let refused = rig.run(&["start", "data"]).refused(4, "members-missing");
    let advice = format!("wipefs -a {} {}; strake start data", files[0], files[1]);
    assert!(refused.err.contains(&advice), "{refused:?}");
    made("wipefs", &["-a", &files[0], &files[1]]);
    rig.run(&["start", "data"]).ok();
}

#[test]
fn a_member_is_replaced_by_a_path_from_where_the_user_is() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(2);
    rig.create("data", "1", NONE, &files).ok();
    let new = rig.file("new", 64 << 20);
    let mut command = rig.command();
    command
        .current_dir(rig.folder.path())
        .args(["--json", "replace", "data", "d1", "new"]);
    rig.run_command(&mut command).ok();
    rig.until("the new one", || {
        let members = rig.show("data")["members"].clone();
        members[1]["device"] == new.as_str() && members[1]["state"] == "in_sync"
    });
}

#[test]
fn what_answers_say_is_so() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", NONE, &files).ok();
    let uuid = rig.show("data")["uuid"].as_str().expect("one").to_owned();
    let import = rig.run(&["import", &uuid, &files[0]]).ok();
    assert_eq!(import.json()["daemon"], rig.show("data")["daemon"]);
    let whole = rig.run(&["rebuild", "data", "start"]).ok().json();
    assert!(
        whole["what"]
            .as_str()
            .is_some_and(|w| w.contains("in sync"))
    );
    rig.run(&["fail", "data", "1"]).ok();
    let none = rig.run(&["rebuild", "data", "start"]).ok().json();
    assert_eq!(none["changed"], false);
    assert!(
        none["what"]
            .as_str()
            .is_some_and(|w| w.contains("no slot has a device"))
    );
    for (setting, range) in [
        ("degraded=-1s", "allow, never, wait"),
        ("shards=101", "1 to 64"),
        ("cpus=99", "or auto"),
    ] {
        let refused = rig.run(&["set", "data", setting]);
        let refused = refused.refused(2, "setting-invalid");
        assert!(refused.err.contains(range), "{refused:?}");
        assert!(!refused.err.contains("is no setting"), "{refused:?}");
    }
    rig.run(&["pool", "delete", "nix"])
        .refused(3, "pool-not-found");
    let demo = rig.run(&["demo", "--size", "0"]);
    assert!(demo.err.contains("--size"), "{demo:?}");
    rig.run(&["stop", "data"]).ok();
    let copy = rig.path("copy");
    fs::copy(&files[0], &copy).expect("copied");
    rig.stop_daemon();
    rig.start_daemon_with(&["--scan", &copy]);
    let twice = rig.run(&["start", "data"]).refused(4, "member-found-twice");
    assert!(twice.err.contains(&copy) && twice.err.contains(&files[0]));
}

/// Copies of all members of an array.
fn copied(rig: &Rig, files: &[String]) -> Vec<String> {
    let copies: Vec<String> = (0..files.len())
        .map(|at| rig.path(&format!("copy{at}")))
        .collect();
    for (file, copy) in files.iter().zip(&copies) {
        fs::copy(file, copy).expect("copied");
    }
    copies
}

/// It took the place of the one in service, which lost its devices under its users.
#[test]
fn a_copy_of_an_array_in_service_is_refused_whatever_it_is_called() {
    let mut rig = Rig::new();
    let files = rig.files(2);
    rig.start_daemon();
    rig.create("data", "1", &["--export", "none"], &files).ok();
    rig.run(&["stop", "data"]).ok();
    let copies = copied(&rig, &files);
    rig.run(&["start", "data"]).ok();
    rig.run(&["rename", "data", "other"]).ok();
    let before: Vec<_> = copies.iter().map(|c| rig::bytes(c)).collect();
    for verb in [
        &["start", "data"][..],
        &["start", "data", "--dry-run"],
        &["import", "data", "--as", "third"],
        &["import", "data", "--as", "third", "--dry-run"],
    ] {
        let args = [verb, &[copies[0].as_str(), copies[1].as_str()]].concat();
        let refused = rig.run(&args).refused(4, "array-in-use");
        let found = refused.json_error()["found"].to_string();
        assert!(found.contains("in service as other"), "{found}");
        assert!(copies.iter().all(|copy| found.contains(copy)), "{found}");
    }
    assert_eq!(rig.show("other")["state"], "optimal");
    assert_eq!(rig.show("other")["members"][0]["device"], files[0]);
    rig.run(&["stop", "other"]).ok();
    let after: Vec<_> = copies.iter().map(|c| rig::bytes(c)).collect();
    assert!(before == after, "a copy is written");
    rig.stop_daemon();
}

/// Each of the two commands left another pair of twins among the devices.
#[test]
fn where_all_members_are_there_twice_the_commands_name_one_set_each() {
    let mut rig = Rig::new();
    let files = rig.files(3);
    rig.start_daemon();
    rig.create("data", "5", &["--export", "none"], &files).ok();
    rig.run(&["stop", "data"]).ok();
    let copies = copied(&rig, &files);
    rig.stop_daemon();
    let scan: Vec<&str> = copies.iter().flat_map(|copy| ["--scan", copy]).collect();
    rig.start_daemon_with(&scan);
    let twice = rig.run(&["start", "data"]).refused(4, "member-found-twice");
    let cure = twice.json_error()["cure"].to_string();
    let devices = |part: &str| -> BTreeSet<String> {
        let end = part.find(['\"', ';']).unwrap_or(part.len());
        part[..end].split_whitespace().map(str::to_owned).collect()
    };
    let advised: Vec<BTreeSet<String>> = cure
        .split("strake start data ")
        .skip(1)
        .map(devices)
        .collect();
    let set = |all: &[String]| all.iter().cloned().collect::<BTreeSet<String>>();
    assert_eq!(advised.len(), 2, "{cure}");
    for all in [&files, &copies] {
        assert!(advised.contains(&set(all)), "{cure}");
    }
    let mut args = vec!["start", "data"];
    args.extend(advised[0].iter().map(String::as_str));
    rig.run(&args).ok();
    rig.run(&["stop", "data"]).ok();
    rig.stop_daemon();
}

#[test]
fn a_state_folder_behind_a_link_is_refused_before_anything_is_written() {
    let rig = Rig::new();
    let (real, link) = (rig.path("real"), rig.path("link"));
    fs::create_dir(&real).expect("works");
    std::os::unix::fs::symlink(&real, &link).expect("works");
    let files = rig.files(2);
    for dir in [link.clone(), format!("{link}/")] {
        let mut command = rig.command();
        command.env("STRAKE_DIR", &dir);
        command.args(["--json", "create", "data", "--level", "1"]);
        let run = rig.run_command(command.args(&files));
        run.refused(4, "state-dir-not-ours");
        for args in [&["scan"][..], &["destroy", "data", "-y"], &["events"]] {
            let mut command = rig.command();
            command.env("STRAKE_DIR", &dir).arg("--json").args(args);
            rig.run_command(&mut command)
                .refused(4, "state-dir-not-ours");
        }
        for file in &files {
            assert!(rig::bytes(file).iter().all(|&byte| byte == 0), "{file}");
        }
        let mut command = rig.command();
        command.env("STRAKE_DIR", &dir);
        let run = rig.run_command(command.args(["--json", "daemon", "--no-devices"]));
        run.refused(4, "state-dir-not-ours");
    }
}

/// A file that was cut short and made long again between two looks passed for a member in sync: the
/// stop wrote its superblocks anew.
#[test]
fn a_member_file_that_was_emptied_is_out_when_its_array_stops() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(2);
    rig.create("data", "1", NONE, &files).ok();
    let file = File::options().write(true).open(&files[1]).expect("there");
    file.set_len(0).expect("cut");
    file.set_len(64 << 20).expect("long again");
    rig.run(&["stop", "data"]).ok();
    assert_eq!(rig.run(&["scan"]).ok().json()[0]["state"], "degraded");
    rig.event("the member to be told of", |e| {
        e["event"] == "member_emptied"
    });
    // An administrator asked for nothing.
    let out = rig.event("the member to go out", |e| e["event"] == "member_out");
    assert_eq!(out["cause"], "emptied", "{out}");
}

/// Where the level could not do without them, the members stayed in service: the stop made their
/// superblocks anew, and the next start served zeros as `optimal`.
#[test]
fn an_array_that_loses_too_many_emptied_files_at_its_stop_is_not_optimal_again() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", NONE, &files).ok();
    for path in &files[1..] {
        let file = File::options().write(true).open(path).expect("there");
        file.set_len(0).expect("cut");
        file.set_len(64 << 20).expect("long again");
    }
    rig.run(&["stop", "data"]);
    let events = rig.events();
    let effects = events.iter().filter(|e| e["event"] == "member_emptied");
    assert_eq!(effects.count(), 2, "{}", rig.log());
    for path in &files[1..] {
        assert!(rig::bytes(path).iter().all(|&byte| byte == 0), "{path}");
    }
    let refused = rig.run(&["start", "data"]);
    refused.refused(4, "members-missing");
}

/// `--slot` was ignored where the array needed no restoring.
#[test]
fn a_slot_named_to_restore_is_refused_where_the_array_is_there_with_another() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "5", NONE, &files[..3]).ok();
    let backup = rig.path("backup");
    rig.run(&["config", "backup", &backup]).ok();
    let restore = |slot: &str| rig.run(&["config", "restore", &backup, "--slot", slot, "--yes"]);
    for serves in [true, false] {
        restore(&format!("1={}", files[1])).ok();
        let refused = restore(&format!("1={}", files[3])).refused(4, "members-disagree");
        for said in [&files[1], &files[3], "--slot 1", "strake replace data 1"] {
            assert!(refused.err.contains(said), "{refused:?}");
        }
        let other = restore(&format!("1={}", files[0])).refused(4, "members-disagree");
        assert!(other.err.contains("has slot 0"), "{other:?}");
        restore(&format!("7={}", files[1])).refused(3, "member-not-found");
        if serves {
            rig.run(&["stop", "data"]).ok();
        }
    }
    let file = File::options().write(true).open(&files[1]).expect("there");
    file.set_len(0).expect("cut");
    let refused = restore(&format!("1={}", files[3])).refused(4, "members-disagree");
    assert!(refused.err.contains("no device"), "{refused:?}");
    // The way on that it names.
    assert_eq!(rig.run(&["start", "data"]).code, 5);
    rig.run(&["add", "data", &files[3]]).ok();
    rig.until_state("data", "optimal");
}

/// A member file that was cut short while its array was stopped was `not_found`, although `start`
/// had found it.
#[test]
fn a_member_that_was_cut_short_is_named_with_both_sizes_and_so_is_the_way_on() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", NONE, &files).ok();
    rig.run(&["stop", "data"]).ok();
    let file = File::options().write(true).open(&files[1]).expect("there");
    file.set_len(1 << 20).expect("cut");
    assert_eq!(rig.run(&["start", "data"]).code, 5);
    rig.until("the event", || {
        rig.events().iter().any(|e| e["event"] == "member_out")
    });
    let events = rig.events();
    let out = events.iter().find(|e| e["event"] == "member_out");
    let out = out.expect("one is out");
    assert_eq!(
        (&out["cause"], &out["slot"]),
        (&"set_aside".into(), &1.into())
    );
    assert_eq!(out["device"], files[1].as_str());
    for said in ["shrank", "67108864", "1048576"] {
        let effect = out["effect"].as_str().expect("one");
        assert!(effect.contains(said), "{out}");
    }
    let shown = rig.show("data");
    assert_eq!(shown["members"][1]["was"]["cause"], "set_aside");
    let aside = &shown["set_aside"][0];
    let found = aside["found"].as_str().expect("a text");
    assert!(!found.contains("copies"), "the first one is whole: {aside}");
    // The way on that it names.
    assert!(
        aside["cure"]
            .as_str()
            .is_some_and(|c| c.contains("67108864 bytes back"))
    );
    file.set_len(64 << 20).expect("long again");
    rig.run(&["add", "data", &files[1]]).ok();
    rig.until_state("data", "optimal");
    assert_eq!(rig.show("data")["set_aside"], serde_json::json!([]));
}

/// `show` said `stale` and not why, nor what to do.
#[test]
fn show_says_why_a_member_is_stale_and_the_command_that_goes_on() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", NONE, &files).ok();
    rig.run(&["stop", "data"]).ok();
    let copy = rig.path("copy");
    fs::copy(&files[1], &copy).expect("copied");
    rig.run(&["start", "data"]).ok();
    rig.run(&["stop", "data"]).ok();
    fs::copy(&copy, &files[1]).expect("put in its place");
    for _ in 0..2 {
        assert_eq!(rig.run(&["start", "data"]).code, 5);
        let shown = rig.show("data");
        assert_eq!(shown["members"][1]["state"], "stale");
        let aside = &shown["set_aside"][0];
        assert_eq!(
            (&aside["slot"], &aside["device"]),
            (&1.into(), &files[1].as_str().into())
        );
        let found = aside["found"].as_str().expect("a text");
        assert!(found.contains("generation"), "{aside}");
        let add = format!("strake add data {}", files[1]);
        assert!(
            aside["cure"].as_str().is_some_and(|c| c.contains(&add)),
            "{aside}"
        );
        let text = rig.run_command(rig.command().args(["show", "data"]));
        assert!(text.out.contains(&add), "{text:?}");
        rig.run(&["stop", "data"]).ok();
    }
    assert_eq!(rig.run(&["start", "data"]).code, 5);
    rig.run(&["add", "data", &files[1]]).ok();
    rig.until_state("data", "optimal");
    assert_eq!(rig.show("data")["set_aside"], serde_json::json!([]));
}

/// `show` of the stopped array called older images in sync, and the refusal named no device.
#[test]
fn older_images_of_too_many_members_are_stale_and_named_before_and_at_the_start() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", NONE, &files).ok();
    rig.run(&["stop", "data"]).ok();
    let copy = |at: usize| rig.path(&format!("copy{at}"));
    for at in [1, 2] {
        fs::copy(&files[at], copy(at)).expect("copied");
    }
    rig.run(&["start", "data"]).ok();
    rig.run(&["stop", "data"]).ok();
    for at in [1, 2] {
        fs::copy(copy(at), &files[at]).expect("put in its place");
    }
    let shown = rig.show("data");
    let states: Vec<_> = (0..3).map(|at| &shown["members"][at]["state"]).collect();
    assert_eq!(states, ["in_sync", "stale", "stale"], "{shown}");
    let refused = rig.run(&["start", "data"]).refused(4, "members-missing");
    for at in [1, 2] {
        let named = format!("{} of slot {at} is an older image", files[at]);
        assert!(refused.err.contains(&named), "{refused:?}");
    }
}

/// The event of the loss that failed an array said that reads are answered from the others, and the
/// scrub that had been under way had time left.
#[test]
fn the_events_and_jobs_of_an_array_that_fails_claim_nothing_that_ended() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create(
        "data",
        "5",
        &["--export", "none", "--init", "assume-clean"],
        &files,
    )
    .ok();
    rig.run(&["set", "data", "scrub_priority=1"]).ok();
    rig.run(&["scrub", "data", "start"]).ok();
    for file in &files[..2] {
        fs::remove_file(file).expect("there");
    }
    rig.until_state("data", "failed");
    let shown = rig.show("data");
    for job in shown["jobs"].as_array().expect("a list") {
        assert_eq!(
            (&job["eta_s"], &job["rate_bytes_per_s"]),
            (&serde_json::Value::Null, &0.into())
        );
        assert_eq!(job["paused_by"], "array_failed", "{job}");
    }
    rig.until("the event", || {
        rig.events().iter().any(|e| e["event"] == "failed")
    });
    let events = rig.events();
    let out: Vec<_> = events
        .iter()
        .filter(|e| e["event"] == "member_out")
        .collect();
    assert_eq!(out.len(), 2, "{events:?}");
    let effect = |at: usize| out[at]["effect"].as_str().unwrap_or_default();
    assert!(effect(0).contains("from the others"), "{events:?}");
    assert!(effect(1).contains("no redundancy"), "{events:?}");
}

/// A pool took what no array can use.
#[test]
fn a_pool_takes_only_what_could_be_a_member() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let small = rig.file("small", 300 << 10);
    let least = rig.run(&["pool", "create", "spares", &small]);
    let least = least.refused(2, "device-too-small");
    assert!(least.err.contains("307200") && least.err.contains("at least"));
    // What it says is enough.
    let number = least
        .err
        .split("at least ")
        .nth(1)
        .and_then(|text| text.split(' ').next());
    let bytes: u64 = number.and_then(|n| n.parse().ok()).expect("a number");
    let file = File::options().write(true).open(&small).expect("there");
    file.set_len(bytes - 4096).expect("works");
    rig.run(&["pool", "create", "spares", &small])
        .refused(2, "device-too-small");
    file.set_len(bytes).expect("works");
    rig.run(&["pool", "create", "spares", &small]).ok();
    let other = rig.file("other", bytes);
    rig.run(&["pool", "delete", "spares", "--yes"]).ok();
    rig.create("tiny", "1", NONE, &[small, other]).ok();
}

/// Clients that follow events took all places of the API.
#[test]
fn those_who_follow_events_leave_places_for_requests() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let follow = || {
        let mut stream = UnixStream::connect(rig.dir().join("api.sock")).expect("it listens");
        let request = b"GET /v1/events?follow=true HTTP/1.1\r\nhost: strake\r\n\r\n";
        stream.write_all(request).expect("asks");
        stream
    };
    let mut followers: Vec<_> = (0..200).map(|_| follow()).collect();
    within(&rig, 60, &["show"]).ok();
    let mut last = followers.pop().expect("one");
    last.set_read_timeout(Some(Duration::from_secs(60)))
        .expect("works");
    let mut answer = [0; 512];
    let len = last.read(&mut answer).expect("it is answered");
    let answer = String::from_utf8_lossy(&answer[..len]).into_owned();
    assert!(
        answer.contains("409") && answer.contains("too-many-followers"),
        "{answer}"
    );
    drop(followers);
    rig.until("a place for one that follows", || {
        let mut stream = follow();
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).is_ok() && answer.ends_with(b"200 OK")
    });
}

/// A number without a unit was taken for microseconds.
#[test]
fn a_latency_target_without_its_unit_is_refused() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(2);
    rig.create(
        "data",
        "1",
        &["--export", "none", "--latency-target", "101"],
        &files,
    )
    .refused(2, "setting-invalid");
    rig.create("data", "1", NONE, &files).ok();
    let refused = rig.run(&["set", "data", "latency_target=101"]);
    let refused = refused.refused(2, "setting-invalid");
    assert!(refused.err.contains("unit"), "{refused:?}");
    rig.run(&["set", "data", "latency_target=101us"]).ok();
    rig.run(&["set", "data", "latency_target_us=102"]).ok();
    assert_eq!(rig.show("data")["latency_target_us"], 102);
    rig.run(&["set", "data", "latency_target=0"]).ok();
}

/// The advice was to remove a spare, also where the device was a member.
#[test]
fn a_replacement_that_the_array_has_already_is_refused_with_a_way_that_works() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "5", NONE, &files[..3]).ok();
    rig.run(&["add", "data", &files[3]]).ok();
    let member = rig.run(&["replace", "data", "0", &files[1]]);
    let member = member.refused(4, "member-in-use");
    assert!(member.err.contains("has slot 1 of data"), "{member:?}");
    let spare = rig.run(&["replace", "data", "0", &files[3]]);
    let spare = spare.refused(4, "member-in-use");
    let advice = format!("strake remove data {} first", files[3]);
    assert!(spare.err.contains(&advice), "{spare:?}");
    rig.run(&["remove", "data", &files[3]]).ok();
    rig.run(&["replace", "data", "0", &files[3]]).ok();
}

/// The array was made, and then refused with the advice to make room: `strake set` and `strake
/// start` did not find it.
#[test]
fn what_cannot_be_kept_of_an_array_is_refused_before_it_is_made() {
    let mut rig = Rig::new();
    let files = rig.files(2);
    let folder = rig.dir().join("placement");
    for daemon in [true, false] {
        if daemon {
            rig.start_daemon();
        } else {
            rig.stop_daemon();
        }
        let _ = fs::remove_dir_all(&folder);
        fs::write(&folder, "in the way").expect("works");
        let options = ["--export", "none", "--shards", "2"];
        let refused = rig.create("data", "1", &options, &files);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.err.contains("placement"), "{refused:?}");
        for file in &files {
            assert!(rig::bytes(file).iter().all(|&byte| byte == 0), "{file}");
        }
        fs::remove_file(&folder).expect("there");
    }
    rig.start_daemon();
    // Nor are the paths of its members.
    fs::create_dir(rig.dir().join("known-files.json")).expect("works");
    let made = rig.create("data", "1", &[], &files).ok().json();
    let start = format!("strake start data {} {}", files[0], files[1]);
    assert!(made["notes"].to_string().contains(&start), "{made}");
    rig.stop_daemon();
    rig.start_daemon();
    rig.run(&["start", "data", &files[0], &files[1]]).ok();
}

/// A user without access to STRAKE_DIR and to a device was answered that no daemon listens there,
/// that there is no such array, and that the device carries none.
#[test]
fn what_a_user_may_not_look_at_is_not_said_to_be_absent() {
    if !rig::is_root() || !rig::has("setpriv") {
        return rig::skipped("it needs root, and setpriv");
    }
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(2);
    rig.create("a", "1", &["--export", "none"], &devices).ok();
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
    open(rig.folder.path()).expect("it is ours");
    fs::set_permissions(rig.dir(), fs::Permissions::from_mode(0o700)).expect("it is ours");
    // The binary lies where that user may not go, perhaps.
    let program = rig.path("strake");
    fs::copy(STRAKE, &program).expect("copied");
    let nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        let user = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
        command.args(user).args([&program, "--json"]).args(args);
        command.env("STRAKE_DIR", rig.dir());
        rig.run_command(&mut command)
    };
    let missing: [&[&str]; 7] = [
        &["show"],
        &["show", "a"],
        &["scan"],
        &["events"],
        &["stop", "a"],
        &["destroy", "a", "--yes"],
        &["config", "backup"],
    ];
    for args in missing {
        nobody(args).refused(1, "permission-denied");
    }
    nobody(&["scan", &devices[0]]).refused(1, "permission-denied");
}
