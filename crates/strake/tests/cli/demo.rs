//! The demo, small: it must end well for a mirror, a parity level and a level of groups.

use serde_json::Value;

use crate::rig::Rig;

fn demo(level: &str) {
    let rig = Rig::new();
    let folder = rig.folder.path().display().to_string();
    let args = [
        "demo",
        "--level",
        level,
        "--size",
        "96M",
        "--work",
        "32M",
        "--seconds",
        // In half of it a busy machine is to answer a request.
        "10",
    ];
    let run = rig.run_command(
        rig.command()
            .arg("--json")
            .args(args)
            .args(["--dir", &folder]),
    );
    assert_eq!(run.code, 0, "{run:?}");
    let last = run.out.lines().last().expect("a last line");
    let report: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(report["level"], level);
    for (key, wanted) in [
        ("mismatches", 0),
        ("lost_acknowledged_writes", 0),
        ("scrub_inconsistent_stripes", 0),
        ("members_lost", 1),
        ("daemon_kills", 1),
    ] {
        assert_eq!(report[key], wanted, "{key}: {run:?}");
    }
    for key in ["verified_bytes", "write_bytes_per_s", "read_bytes_per_s"] {
        assert!(
            report[key].as_u64().is_some_and(|n| n > 0),
            "{key}: {run:?}"
        );
    }
    let left = std::fs::read_dir(rig.folder.path())
        .expect("folder")
        .count();
    assert_eq!(left, 0, "the demo left its folder behind");
}

#[test]
fn the_demo_of_a_mirror_ends_well() {
    demo("1");
}

#[test]
fn the_demo_of_raid_5_ends_well() {
    demo("5");
}

#[test]
fn the_demo_of_raid_60_ends_well() {
    demo("60");
}

#[test]
fn a_demo_without_redundancy_is_refused() {
    Rig::new()
        .run(&["demo", "--level", "0"])
        .refused(2, "usage");
    Rig::new()
        .run(&["demo", "--level", "9"])
        .refused(2, "level-unknown");
}

/// A demo in a folder of its own, and whatever process works in that folder.
struct Shown {
    rig: Rig,
    child: std::process::Child,
}

impl Shown {
    /// Begins one that takes long enough, and waits until its array is served.
    fn begin() -> Shown {
        let rig = Rig::new();
        let folder = rig.folder.path().display().to_string();
        let log = std::fs::File::create(rig.path("demo.log")).expect("a log");
        let child = rig
            .command()
            .args(["demo", "--size", "96M", "--work", "32M", "--seconds", "60"])
            .args(["--dir", &folder])
            .stdout(std::process::Stdio::null())
            .stderr(log)
            .spawn()
            .expect("spawned");
        let shown = Shown { rig, child };
        let served = || shown.log().contains("read and verify");
        shown.rig.until("the demo to be in its middle", served);
        shown
    }
    fn log(&self) -> String {
        std::fs::read_to_string(self.rig.path("demo.log")).unwrap_or_default()
    }
    fn signal(&self, signal: &str) {
        let mut kill = std::process::Command::new("kill");
        let pid = self.child.id().to_string();
        let sent = kill.args(["-s", signal, &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }
    fn folders(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.rig.folder.path()).expect("folder");
        let names = entries.map(|e| e.expect("entry").file_name().into_string().expect("text"));
        names
            .filter(|name| name.starts_with("strake-demo-"))
            .collect()
    }
    /// Daemons with their STRAKE_DIR in the folder.
    fn daemons(&self) -> usize {
        let folder = self.rig.folder.path().display().to_string();
        let processes = std::fs::read_dir("/proc")
            .expect("/proc")
            .filter_map(Result::ok);
        let read = |path: std::path::PathBuf| std::fs::read(path).unwrap_or_default();
        let has = |bytes: Vec<u8>, text: &str| String::from_utf8_lossy(&bytes).contains(text);
        processes
            .filter(|p| has(read(p.path().join("cmdline")), "daemon"))
            .filter(|p| has(read(p.path().join("environ")), &folder))
            .count()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Each interrupted demo left a daemon of 170 MB and a folder of as much.
#[test]
fn a_demo_that_is_interrupted_leaves_no_daemon_and_no_folder() {
    use std::os::unix::process::ExitStatusExt;
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129), ("QUIT", 131)] {
        let mut shown = Shown::begin();
        assert_eq!((shown.daemons(), shown.folders().len()), (1, 1), "{signal}");
        shown.signal(signal);
        let status = shown.child.wait().expect("it ends");
        assert_eq!(
            (status.code(), status.signal()),
            (Some(code), None),
            "{signal}"
        );
        assert_eq!((shown.daemons(), shown.folders().len()), (0, 0), "{signal}");
    }
}

#[test]
fn a_demo_that_is_killed_takes_its_daemon_with_it_and_the_next_one_removes_its_folder() {
    let mut shown = Shown::begin();
    let left = shown.folders();
    shown.signal("KILL");
    shown.child.wait().expect("it ends");
    shown
        .rig
        .until("its daemon to end", || shown.daemons() == 0);
    assert_eq!(shown.folders(), left);
    let folder = shown.rig.folder.path().display().to_string();
    // It needs nothing of a demo but its beginning.
    let args = ["demo", "--level", "1", "--size", "1M", "--dir", &folder];
    let run = shown.rig.run(&args);
    assert!(run.code != 0, "{run:?}");
    assert!(run.err.contains("of a demo that was killed"), "{run:?}");
    assert!(!shown.folders().contains(&left[0]), "{run:?}");
}
