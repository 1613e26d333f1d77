//! File systems under file members that run full: writes wait, which is said, and nothing is lost.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::devices::Mount;
use crate::hung::within;
use crate::rig::{self, Rig};

/// A small file system, and an array of sparse files in it that are larger together.
struct Small {
    rig: Rig,
    mount: Mount,
    files: Vec<String>,
}

impl Small {
    /// None where it cannot be had.
    fn new() -> Option<Small> {
        if !rig::is_root() || !rig::has("qemu-io") {
            rig::skipped("a small file system needs root, and the load qemu-io");
            return None;
        }
        let rig = Rig::new();
        let options = ["-t", "tmpfs", "-o", "size=24m"];
        let mount = Mount::of(&options, "tmpfs", &rig.path("small"))?;
        Some(Small {
            rig,
            mount,
            files: Vec::new(),
        })
    }

    /// The array `data`, with 1 MiB that is written and acknowledged.
    fn create(&mut self, level: &str) {
        let file = |n| self.rig.file(&format!("small/{level}-{n}"), 64 << 20);
        self.files = (0..3).map(file).collect();
        let options = ["--export", "nbd"];
        self.rig.create("data", level, &options, &self.files).ok();
        self.rig.qemu_io("data", &["write -P 5 45M 1M", "flush"]);
    }

    fn is_read(&self) {
        self.rig.qemu_io("data", &["read -P 5 45M 1M"]);
    }

    /// Writes more than there is room for, until that is said.
    fn overfill(&self) -> Child {
        let uri = format!("nbd+unix:///?socket={}", self.rig.nbd("data").display());
        let load = Command::new("qemu-io")
            .args(["-f", "raw", "-c", "write -P 7 0 40M", "-c", "flush", &uri])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("works");
        self.rig.until("writes to wait", || self.waiting() > 1);
        load
    }

    /// Members whose writes wait, as `show` says.
    fn waiting(&self) -> usize {
        let shown = self.rig.show("data");
        let members = shown["members"].as_array().expect("a list");
        members
            .iter()
            .filter(|m| m["full_since"].is_string())
            .count()
    }

    fn resize(&self, size: &str) {
        let mut command = Command::new("mount");
        let command = command.args(["-o", &format!("remount,size={size}"), &self.mount.point]);
        assert!(command.status().expect("works").success());
    }

    fn told(&self, event: &str) -> usize {
        let told = self.rig.events();
        told.iter().filter(|e| e["event"] == event).count()
    }
}

fn text(rig: &Rig, args: &[&str]) -> String {
    rig.run_command(rig.command().args(args)).out
}

/// One member after the other was put out, until the array had failed.
#[test]
fn members_on_a_full_file_system_stay_and_their_writes_wait_for_room() {
    let Some(mut small) = Small::new() else {
        return;
    };
    small.rig.start_daemon();
    for level in ["5", "1"] {
        let before = small.told("member_full");
        small.create(level);
        let load = small.overfill();
        let rig = &small.rig;
        assert_eq!(rig.show("data")["state"], "optimal");
        let shown = text(rig, &["show", "data"]);
        assert!(shown.contains("writes wait since 20"), "{shown}");
        assert!(shown.contains("make room in the file systems"), "{shown}");
        let doctor = text(rig, &["doctor"]);
        assert!(doctor.contains("have no space for writes"), "{doctor}");
        let status = text(rig, &["status"]);
        assert!(
            status.contains("writes wait for space on slots"),
            "{status}"
        );
        small.is_read();
        std::thread::sleep(Duration::from_secs(8));
        // The last of them may have been full a moment later than the others.
        small.rig.until("each to be told of, and once", || {
            let waiting = small.waiting();
            waiting > 1 && small.told("member_full") - before == waiting
        });
        small.resize("400m");
        let written = load.wait_with_output().expect("works");
        let said = String::from_utf8_lossy(&written.stdout).into_owned();
        assert!(said.contains("wrote 41943040"), "{said}");
        small.rig.qemu_io("data", &["read -P 7 0 40M"]);
        small.rig.until("no write to wait", || small.waiting() == 0);
        small.rig.until("that to be told of each", || {
            small.told("member_no_longer_full") == small.told("member_full")
        });
        assert_eq!(small.rig.show("data")["state"], "optimal");
        within(&small.rig, 60, &["stop", "data"]).ok();
        within(&small.rig, 60, &["destroy", "data", "--yes"]).ok();
        for file in &small.files {
            fs::remove_file(file).expect("there");
        }
        small.resize("24m");
    }
    small.rig.stop_daemon();
}

/// It took more than five minutes, and said nothing of why.
#[test]
fn a_stop_while_writes_wait_for_room_ends_soon_and_says_on_which_members() {
    let Some(mut small) = Small::new() else {
        return;
    };
    small.rig.start_daemon();
    small.create("5");
    let mut load = small.overfill();
    let begun = Instant::now();
    let told = within(&small.rig, 120, &["stop", "data"]).refused(1, "no-space");
    assert!(begun.elapsed() < Duration::from_secs(90), "{begun:?}");
    assert!(!told.err.contains("no answer"), "each answers: {told:?}");
    let error = told.json_error();
    let found = error["found"].as_str().expect("text");
    assert!(found.contains("small/5-"), "{found}");
    let cure = error["cure"].as_str().expect("text");
    assert!(cure.contains("make room"), "{cure}");
    assert!(cure.contains("strake start data"), "{cure}");
    assert!(!load.wait().expect("works").success(), "it was not written");
    small.resize("400m");
    within(&small.rig, 60, &["start", "data"]).ok();
    small.is_read();
    assert_eq!(small.rig.show("data")["state"], "optimal");
    small.rig.stop_daemon();
}

#[test]
fn a_start_on_a_full_file_system_puts_no_member_out_and_is_repeated_when_there_is_room() {
    let Some(mut small) = Small::new() else {
        return;
    };
    small.rig.start_daemon();
    small.create("5");
    let mut load = small.overfill();
    small.rig.kill_daemon();
    let _ = load.wait();
    small.rig.start_daemon();
    let first = within(&small.rig, 60, &["start", "data"]);
    if first.code != 0 {
        let error = first.refused(1, "no-space").json_error();
        let found = error["found"].as_str().expect("text");
        assert!(found.contains("small/5-"), "{found}");
        let cure = error["cure"].as_str().expect("text");
        assert!(cure.contains("start the array again"), "{cure}");
        small.resize("400m");
        within(&small.rig, 60, &["start", "data"]).ok();
    }
    assert_eq!(small.told("member_out"), 0);
    assert_eq!(small.rig.show("data")["state"], "optimal");
    small.is_read();
    small.rig.stop_daemon();
}
