//! The daemon stands still, or its log does: arrays lose nothing by it.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::rig::{Rig, skipped};

const NBD: &[&str] = &["--export", "nbd"];

/// So much is written and read that I/Os are in flight at any moment.
fn load(rig: &Rig) -> Option<std::process::Child> {
    let uri = format!("nbd+unix:///?socket={}", rig.nbd("data").display());
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]);
    for n in 0..4000 {
        let at = (n * 7919) % 1500 * 64;
        command.args(["-c", &format!("aio_write -q -P 5 {at}k 64k")]);
        command.args(["-c", &format!("aio_read -q {at}k 64k")]);
    }
    let child = command
        .args(["-c", "aio_flush"])
        .arg(uri)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    if child.is_err() {
        skipped("qemu-io is not installed");
    }
    child.ok()
}

fn signal(rig: &Rig, signal: &str) {
    let pid = rig.daemon_pid().to_string();
    let sent = Command::new("kill").args([signal, &pid]).status();
    assert!(sent.expect("kill runs").success());
}

#[test]
fn a_daemon_that_is_stopped_for_longer_than_the_deadline_keeps_its_members() {
    let mut rig = Rig::new();
    rig.start_daemon_with(&["--io-timeout", "1"]);
    let devices = rig.files(5);
    rig.create("data", "5", NBD, &devices).ok();
    let Some(mut child) = load(&rig) else {
        return;
    };
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(150));
        signal(&rig, "-STOP");
        std::thread::sleep(Duration::from_millis(2200));
        signal(&rig, "-CONT");
    }
    let mut said = String::new();
    let mut out = child.stdout.take().expect("piped");
    out.read_to_string(&mut said).expect("reads");
    assert!(child.wait().expect("ends").success(), "{said}");
    assert!(!said.contains("error"), "{said}");
    assert_eq!(rig.show("data")["state"], "optimal", "{}", rig.log());
    let out = |e: &serde_json::Value| e["event"] == "member_out";
    assert!(!rig.events().iter().any(out), "{}", rig.log());
}

/// Members go and come, and blocks are written, while the log is as it is.
fn goes_on(rig: &Rig, times: usize) {
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices).ok();
    rig.qemu_io("data", &["write -P 7 0 64k", "read -P 7 0 64k"]);
    for _ in 0..times {
        rig.run(&["fail", "data", "1"]).ok();
        rig.run(&["add", "data", &devices[1]]).ok();
        rig.until_state("data", "optimal");
    }
    rig.qemu_io("data", &["write -P 8 0 64k", "read -P 8 0 64k"]);
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing_and_is_counted() {
    let mut rig = Rig::new();
    let full = std::fs::File::options().write(true).open("/dev/full");
    rig.start_daemon_logging_to(Stdio::from(full.expect("there is one")));
    goes_on(&rig, 2);
    let metrics = rig.ask("GET", "/metrics");
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("strake_log_lines_dropped_total "));
    let dropped: u64 = line.expect("counted").parse().expect("a number");
    assert!(dropped > 4, "{dropped}");
    rig.stop_daemon();
}

#[test]
fn a_log_whose_reader_has_gone_away_stops_nothing() {
    let mut rig = Rig::new();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    rig.start_daemon_logging_to(Stdio::from(writer));
    drop(reader);
    goes_on(&rig, 2);
    rig.stop_daemon();
}

#[test]
fn a_log_that_nobody_reads_stops_nothing_and_says_what_it_lacks_when_it_is_read_again() {
    let mut rig = Rig::new();
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    // A page is left of the 64 KiB that a pipe holds.
    writer.write_all(&[b'\n'; 15 * 4096]).expect("it has room");
    rig.start_daemon_logging_to(Stdio::from(writer));
    goes_on(&rig, 30);
    let read = std::thread::spawn(move || {
        let mut text = Vec::new();
        reader.read_to_end(&mut text).expect("reads");
        text
    });
    rig.stop_daemon();
    let text = String::from_utf8_lossy(&read.join().expect("ends")).into_owned();
    let lines = text.lines().filter(|line| !line.is_empty()).count();
    assert!(lines > 60, "what waited is written: {text}");
}
