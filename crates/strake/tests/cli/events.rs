//! The journal of events: it is where state is kept, outlives the daemon, and is read without one.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
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
    // The array's thread hands its events to the log a moment after the answer.
    let is_out = |e: &serde_json::Value| e["event"] == "member_out";
    rig.until("member_out", || rig.events().iter().any(is_out));
    let events = rig.run_command(rig.command().arg("events")).ok();
    let start = rig.run_command(rig.command().args(["start", "data", &devices[0]]));
    assert!(start.err.contains("data runs already"), "{start:?}");
    for text in [&events.out, &start.err] {
        let raw = text.contains('\u{1b}') || text.contains("\nd");
        assert!(!raw && text.contains("\\u{1b}[2J\\nd"), "{text:?}");
    }
    // JSON has an escape of its own.
    let json = rig.events();
    let out = json.iter().find(|event| is_out(event));
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
    let give_up = Instant::now() + Duration::from_secs(60);
    while follower.try_wait().expect("works").is_none() && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(20));
    }
    // One that has ended takes no signal.
    follower.kill().expect("works");
    let ended = follower.wait_with_output().expect("works");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(ended.stderr.is_empty(), "{ended:?}");
}

/// A browser goes on where it was by the id of its last event, also after the daemon was away.
#[test]
fn a_stream_of_events_resumes_after_its_last_id_over_a_restart_of_the_daemon() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "1", NBD, &rig.files(2)).ok();
    let stream = |rig: &Rig, query: &str, header: &str| {
        let mut stream = UnixStream::connect(rig.dir().join("api.sock")).expect("it listens");
        let patience = Some(Duration::from_secs(60));
        stream.set_read_timeout(patience).expect("works");
        let head = format!("GET /v1/events/stream{query} HTTP/1.1\r\nhost: strake\r\n{header}\r\n");
        stream.write_all(head.as_bytes()).expect("asks");
        BufReader::new(stream)
            .lines()
            .map(|line| line.expect("goes on"))
    };
    let begun: Vec<String> = stream(&rig, "", "")
        .take_while(|line| !line.contains("\"event\":\"created\""))
        .collect();
    assert!(begun[0].starts_with("HTTP/1.1 200"), "{begun:?}");
    assert!(
        begun.iter().any(|l| l == "content-type: text/event-stream"),
        "{begun:?}"
    );
    let last = begun
        .iter()
        .rev()
        .find_map(|line| line.strip_prefix("id: "));
    let last: u64 = last.expect("an id").parse().expect("a number");
    rig.stop_daemon();
    rig.start_daemon();
    // The header outweighs the query, with which a browser asks again.
    let header = format!("Last-Event-ID: {last}\r\n");
    let mut lines = stream(&rig, "?since=1", &header);
    let first = lines.find(|line| line.starts_with("id: ")).expect("an id");
    assert_eq!(first, format!("id: {}", last + 1));
    let data = lines.next().expect("data");
    let data = data.strip_prefix("data: ").expect("data");
    let event: serde_json::Value = serde_json::from_str(data).expect("JSON");
    let known = rig.events();
    assert_eq!(
        known.iter().find(|e| e["sequence"] == last + 1),
        Some(&event)
    );
    // What filters leave out does not come.
    let mut failed = stream(&rig, "?array=nothing", "");
    rig.run(&["fail", "data", "1"]).ok();
    let newest = rig.events().last().expect("an event")["sequence"].as_u64();
    let id = |line: &str| line.strip_prefix("id: ")?.parse::<u64>().ok();
    let is_before = |line: &String| id(line).is_none_or(|id| Some(id) < newest);
    let told: Vec<String> = failed.by_ref().take_while(is_before).collect();
    assert!(!told.iter().any(|l| l.starts_with("data: ")), "{told:?}");
    let refused = rig.ask("GET", "/v1/events/stream?severity=x");
    assert!(refused.contains("bad-request"), "{refused}");
}
