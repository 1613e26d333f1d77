//! The journal of events: it is where state is kept, outlives the daemon, and is read without one.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::rig::Rig;

const NBD: &[&str] = &["--export", "nbd"];

/// `strake events` needed a daemon, and the file lay in /run: after a power cut nothing said why an
/// array was degraded.
#[test]
fn events_are_read_without_a_daemon_and_a_torn_last_line_costs_itself_only() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "5", NBD, &rig.files(3)).ok();
    rig.run(&["fail", "data", "1"]).ok();
    let known = rig.events();
    rig.stop_daemon();
    let journal = rig.dir().join("events.jsonl");
    let mut file = fs::File::options()
        .append(true)
        .open(&journal)
        .expect("the journal");
    file.write_all(b"{\"sequence\":99,\"ti").expect("written");
    let run = rig.run(&["events"]).ok();
    assert!(run.err.contains("no daemon listens"), "{run:?}");
    assert!(run.err.contains("events.jsonl"), "{run:?}");
    let events = rig.events();
    assert_eq!(events[..known.len()], known[..]);
    // The end of the daemon's life is in it.
    let stopped = |e: &serde_json::Value| e["event"] == "stopped";
    assert!(events[known.len()..].iter().any(stopped), "{events:?}");
    let said = rig.run_command(rig.command().arg("events")).ok();
    assert!(said.err.starts_with("note: no daemon"), "{said:?}");
    assert!(said.out.contains(" member_out data slot 1"), "{said:?}");
    // The next daemon goes on where the journal ends.
    rig.start_daemon();
    let events = rig.events();
    let sequences: Vec<u64> = events
        .iter()
        .filter_map(|e| e["sequence"].as_u64())
        .collect();
    assert!(sequences.is_sorted_by(|a, b| a < b), "{sequences:?}");
    assert!(sequences.len() > known.len());
}

#[test]
fn events_that_nobody_kept_are_not_made_up() {
    let rig = Rig::new();
    rig.run(&["events"]).refused(1, "no-daemon");
    rig.run(&["events", "--follow"]).refused(1, "no-daemon");
}

/// A device's name may hold what a terminal takes for a command, or a line that looks like an
/// event.
#[test]
fn events_and_notes_show_control_characters_of_names_as_tables_do() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files_called("\u{1b}[2J\nd", 3);
    rig.create("data", "5", NBD, &devices).ok();
    rig.run(&["fail", "data", "1"]).ok();
    let events = rig.run_command(rig.command().arg("events")).ok();
    let start = rig.run_command(rig.command().args(["start", "data", &devices[0]]));
    assert!(start.err.contains("data runs already"), "{start:?}");
    for text in [&events.out, &start.err] {
        let raw = text.contains('\u{1b}') || text.contains("\nd");
        assert!(!raw && text.contains("\\u{1b}[2J\\nd"), "{text:?}");
    }
    // JSON has an escape of its own.
    let json = rig.events();
    let out = json.iter().find(|event| event["event"] == "member_out");
    assert_eq!(out.expect("an event")["device"], devices[1].as_str());
}

/// `strake events --follow | head -1` ended with the next event: on a quiet array never.
#[test]
fn a_follower_ends_when_its_reader_has_gone_though_no_event_comes() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "1", NBD, &rig.files(2)).ok();
    let mut command = rig.command();
    command.args(["events", "--follow"]).stdout(Stdio::piped());
    let mut follower = command.stderr(Stdio::piped()).spawn().expect("works");
    let mut lines = BufReader::new(follower.stdout.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("an event");
    assert!(line.contains(" data"), "{line}");
    // It follows while there is a reader.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(follower.try_wait().expect("works"), None);
    drop(lines);
    let give_up = Instant::now() + Duration::from_secs(20);
    while follower.try_wait().expect("works").is_none() && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(20));
    }
    // One that has ended takes no signal.
    follower.kill().expect("works");
    let ended = follower.wait_with_output().expect("works");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(ended.stderr.is_empty(), "{ended:?}");
}
