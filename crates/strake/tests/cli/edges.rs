//! The edges of the process: where its answers go, what the machine permits it, what lies in its folder.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
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
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("File too large"), "{refused:?}");
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
    let run = within(&rig, 30, &["events"]).refused(1, "io-error");
    assert!(run.err.contains("events.jsonl"), "{run:?}");
    rig.start_daemon();
    assert!(rig.log().contains("events.jsonl"), "{}", rig.log());
    rig.create("data", "1", NONE, &rig.files(2)).ok();
    assert!(!rig.events().is_empty());
    rig.stop_daemon();
    fs::remove_file(&journal).expect("there");
    fs::create_dir(&journal).expect("works");
    let run = within(&rig, 30, &["events"]).refused(1, "io-error");
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

/// A file was cut short and made long again within the 30 s that the watcher slept from before it came.
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
    assert!(shrunk.elapsed() < Duration::from_secs(20), "{}", rig.log());
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
    rig.run(&["start", "data"]).refused(4, "members-missing");
    rig.run(&["start", "data", "--force"])
        .refused(4, "not-confirmed");
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
        command.args(["--json", "create", "data", "--level", "1", "--shards", "2"]);
        let run = rig.run_command(command.args(&files));
        run.refused(4, "state-dir-not-ours");
        for file in &files {
            assert!(rig::bytes(file).iter().all(|&byte| byte == 0), "{file}");
        }
        let mut command = rig.command();
        command.env("STRAKE_DIR", &dir);
        let run = rig.run_command(command.args(["--json", "daemon", "--no-devices"]));
        run.refused(4, "state-dir-not-ours");
    }
}

/// A file that was cut short and made long again between two looks passed for a member in sync: the stop
/// wrote its superblocks anew.
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
    let told = |e: &serde_json::Value| e["event"] == "member_emptied" || e["event"] == "member_out";
    assert!(rig.events().iter().any(told), "{}", rig.log());
}
