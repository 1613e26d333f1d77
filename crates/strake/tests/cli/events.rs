//! The journal of events: it is where state is kept, outlives the daemon, and is read without one.

use std::fs;
use std::io::Write;

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
