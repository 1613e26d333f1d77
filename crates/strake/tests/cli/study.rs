//! `strake study` on files: a daemon serves the array, fio is the load.
//!
//! Files have no SMART log: what a study says of one is tested here, what it makes of logs in the
//! crate of studies.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::rig::{Rig, bytes, has, skipped};

/// Two cases on three files, each step short.
const SMALL: &str = r#"name = "small"
title = "Three files"
drive = "D5-P5336-61.44"

[[case]]
name = "raid5"
array = { drives = 3, level = "5", strip = "64K", rebuild_priority = 100 }

[[case.step]]
name = "erase"
do = "erase"

[[case.step]]
name = "raw-read"
do = "load"
on = "drives"
loads = ["rand-read:4K:4"]
until = { run = "200ms" }

[[case.step]]
name = "create"
do = "create"

[[case.step]]
name = "fill"
do = "load"
on = "array"
loads = ["seq-write:1M:2"]
until = { passes = 0.5 }

[[case.step]]
name = "mixed"
do = "load"
on = "array"
loads = ["rand-mixed70:4K:8", "seq-read:64K:1:10MB"]
until = { ramp = "100ms", run = "300ms" }

[[case.step]]
name = "fail"
do = "fail"
slot = 1

[[case.step]]
name = "rebuild"
do = "rebuild"
slot = 1
beside = ["rand-read:4K:2"]

[[case.step]]
name = "check"
do = "scrub"

[[case.expect]]
name = "reads"
step = "mixed"
figure = "read_iops"
published = 1e12
kind = "P"
outside = "files are no drives"

[[case.expect]]
name = "wear"
step = "mixed"
figure = "waf"
published = 1.0
kind = "F"

[[case]]
name = "mirror"
array = { drives = 2, level = "1" }

[[case.step]]
name = "create"
do = "create"

[[case.step]]
name = "read"
do = "load"
on = "array"
loads = ["rand-read:4K:4"]
until = { run = "LENGTH" }
"#;

struct Stage {
    rig: Rig,
    devices: Vec<String>,
    file: String,
    out: String,
}

/// A daemon, three files, and the study; its last step takes so long.
fn stage(length: &str) -> Option<Stage> {
    if !has("fio") {
        skipped("fio is not installed");
        return None;
    }
    let mut rig = Rig::new();
    rig.start_daemon();
    let file = rig.path("small.toml");
    fs::write(&file, SMALL.replace("LENGTH", length)).expect("works");
    Some(Stage {
        devices: rig.files(3),
        out: rig.path("out"),
        file,
        rig,
    })
}

impl Stage {
    fn on(&self) -> String {
        self.devices.join(",")
    }
    fn folder(&self) -> PathBuf {
        PathBuf::from(&self.out).join("small")
    }
    fn result(&self) -> Value {
        let text = fs::read(self.folder().join("result.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
    fn steps(&self, case: usize) -> usize {
        let result = self.result();
        result["cases"][case]["steps"]
            .as_array()
            .map_or(0, Vec::len)
    }
    fn run(&self) -> crate::rig::Run {
        let on = self.on();
        let words = [
            "study",
            "run",
            &self.file,
            "--on",
            &on,
            "--yes-erase",
            &on,
            "--out",
        ];
        self.rig.run(&[&words[..], &[&self.out]].concat())
    }
    fn spawn(&self) -> Child {
        let on = self.on();
        let mut command = self.rig.command();
        command.args([
            "study",
            "run",
            &self.file,
            "--on",
            &on,
            "--yes-erase",
            &on,
            "--out",
        ]);
        command.arg(&self.out).process_group(0);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("works")
    }
    fn resume(&self) -> crate::rig::Run {
        self.rig
            .run(&["study", "resume", &self.folder().display().to_string()])
    }
}

/// With all that it started.
fn kill(mut child: Child) {
    use rustix::process::{Pid, Signal, kill_process_group};
    let pid = Pid::from_raw(child.id() as i32).expect("a process");
    kill_process_group(pid, Signal::KILL).expect("works");
    child.wait().expect("works");
}

#[test]
fn a_study_runs_on_files_and_says_what_it_found_and_what_it_could_not() {
    let Some(stage) = stage("200ms") else { return };
    let answer = stage.run().ok().json();
    assert_eq!(
        (answer["steps_done"].as_u64(), answer["steps"].as_u64()),
        (Some(10), Some(10))
    );
    let rows = &answer["rows"];
    assert_eq!(rows[0]["verdict"], "explained", "{rows}");
    assert!(
        rows[0]["ours"].as_f64().is_some_and(|iops| iops > 100.0),
        "{rows}"
    );
    assert_eq!(rows[1]["verdict"], "not-measured", "{rows}");
    assert!(
        rows[1]["why"]
            .as_str()
            .is_some_and(|why| why.contains("SMART")),
        "{rows}"
    );
    let result = stage.result();
    let step = |at: usize| &result["cases"][0]["steps"][at];
    let positive = |at: usize, figure: &str| {
        let value = step(at)["figures"][figure].as_f64();
        assert!(
            value.is_some_and(|value| value > 0.0),
            "{figure}: {}",
            step(at)
        );
    };
    positive(1, "read_iops");
    positive(2, "seconds");
    positive(3, "write_bytes_per_s");
    assert_eq!(
        step(4)["loads"].as_array().map(Vec::len),
        Some(2),
        "{}",
        step(4)
    );
    let limited = step(4)["loads"][1]["read_bytes_per_s"]
        .as_f64()
        .expect("a rate");
    assert!(limited < 40e6, "{}", step(4));
    positive(6, "seconds");
    positive(6, "read_iops");
    positive(7, "seconds");
    assert!(
        step(0)["notes"][0]
            .as_str()
            .is_some_and(|note| note.contains("emptied"))
    );
    // Nothing is left of the arrays, and the answers of fio are kept.
    assert_eq!(
        stage.rig.run(&["show"]).json().as_array().map(Vec::len),
        Some(0)
    );
    let raw = stage.folder().join("raw");
    assert!(raw.join("raid5-mixed.fio").exists() && raw.join("raid5-mixed-2.json").exists());
    let page = fs::read_to_string(stage.folder().join("report.html")).expect("a report");
    assert!(
        page.contains("files are no drives") && page.contains("not measured"),
        "{page}"
    );
    // The same folder again is refused, and compared with itself nothing changes.
    stage.run().refused(4, "study-exists");
    let folder = stage.folder().display().to_string();
    let pairs = stage
        .rig
        .run(&["study", "compare", &folder, &folder])
        .ok()
        .json();
    let pairs = pairs.as_array().expect("pairs");
    assert!(
        pairs.len() > 20 && pairs.iter().all(|pair| pair["change"] == 0.0),
        "{pairs:?}"
    );
}

#[test]
fn a_study_that_was_killed_goes_on_behind_what_it_measured() {
    let Some(mut stage) = stage("60s") else {
        return;
    };
    let child = stage.spawn();
    stage.rig.until("the long step", || {
        stage.steps(1) == 1 && stage.folder().join("raw/mirror-read.fio").exists()
    });
    // Two at once would spoil each other.
    stage.resume().refused(4, "study-busy");
    kill(child);
    let before = stage.result();
    assert_eq!(before["cases"][0]["complete"], true);
    // The daemon ends, too, as with a reboot.
    stage.rig.stop_daemon();
    let scan = stage.rig.path("");
    stage.rig.start_daemon_with(&["--scan", &scan]);
    let text = fs::read_to_string(stage.folder().join("study.toml")).expect("works");
    let text = text.replace("60s", "200ms");
    fs::write(stage.folder().join("study.toml"), text).expect("works");
    stage.resume().ok();
    let after = stage.result();
    assert_eq!(after["cases"][0], before["cases"][0]);
    assert_eq!(
        after["cases"][1]["steps"][0],
        before["cases"][1]["steps"][0]
    );
    assert_eq!(after["cases"][1]["complete"], true);
    // What is complete is only reported again.
    stage.resume().ok();
    assert_eq!(stage.result(), after);
}

#[test]
fn a_member_that_is_lost_during_a_study_is_named_and_nothing_is_lost_with_it() {
    let Some(stage) = stage("15s") else { return };
    let on = stage.on();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| stage.run());
        stage.rig.until("the long step", || {
            stage.folder().join("raw/mirror-read.fio").exists()
        });
        stage.rig.run(&["fail", "study-small-mirror", "0"]);
        let run = run.join().expect("works").refused(1, "study-failed");
        let error = run.json_error();
        let found = error["found"].as_str().expect("text");
        for part in [
            "step read of case mirror",
            "slot 0",
            &stage.devices[0],
            "failed",
        ] {
            assert!(found.contains(part), "{found} lacks {part}");
        }
        assert!(
            error["cure"]
                .as_str()
                .is_some_and(|cure| cure.contains("study resume"))
        );
    });
    assert_eq!((stage.steps(0), stage.steps(1)), (8, 1));
    // It goes on when the member is back.
    stage.resume().refused(1, "study-failed");
    stage.rig.run(&["remove", "study-small-mirror", "0"]).ok();
    let back = on.split(',').next().expect("a device");
    stage
        .rig
        .run(&["add", "study-small-mirror", back, "--force", "--yes"])
        .ok();
    stage.rig.until("the rebuild", || {
        stage.rig.show("study-small-mirror")["state"] == "optimal"
    });
    stage.resume().ok();
    assert_eq!((stage.steps(0), stage.steps(1)), (8, 2));
}

#[test]
fn drives_that_were_not_named_or_are_in_use_are_not_touched() {
    let Some(stage) = stage("200ms") else { return };
    let (rig, on, file) = (&stage.rig, stage.on(), &stage.file);
    let run = |more: &[&str]| {
        let words = ["study", "run", file, "--on", &on, "--out", &stage.out];
        rig.run(&[&words[..], more].concat())
    };
    for more in [&[][..], &["--yes-erase", "d0,d1"]] {
        let refused = run(more).refused(4, "not-confirmed");
        assert!(refused.err.contains("--yes-erase"), "{refused:?}");
    }
    run(&["--yes-erase", "d9"]).refused(2, "usage");
    let planned = run(&["--dry-run"]).ok().json();
    assert_eq!(planned["would_overwrite"].as_array().map(Vec::len), Some(3));
    let few = [
        "study",
        "run",
        file,
        "--on",
        &stage.devices[0],
        "--out",
        &stage.out,
    ];
    rig.run(&few).refused(2, "usage");
    rig.create("a", "1", &["--export", "nbd"], &stage.devices[..2])
        .ok();
    let before: Vec<Vec<u8>> = stage.devices.iter().map(|device| bytes(device)).collect();
    run(&["--yes-erase", &on]).refused(4, "device-busy");
    rig.run(&["stop", "a"]).ok();
    // A member of an array that does not run: only if it is named.
    let refused = run(&["--yes-erase", "d2"]).refused(4, "not-confirmed");
    assert!(refused.err.contains("array a"), "{refused:?}");
    let after: Vec<Vec<u8>> = stage.devices.iter().map(|device| bytes(device)).collect();
    // Stopping it wrote that it was stopped.
    assert!(before[2] == after[2]);
    assert!(!stage.folder().exists());
}

#[test]
fn a_mistake_in_a_study_is_named_by_file_line_and_key() {
    let rig = Rig::new();
    let file = rig.path("wrong.toml");
    fs::write(
        &file,
        SMALL.replace("\"seq-write:1M:2\"", "\"seq-write:1M\""),
    )
    .expect("works");
    let run = rig
        .run(&["study", "show", &file])
        .refused(2, "study-invalid");
    let error = run.json_error();
    let found = error["found"].as_str().expect("text");
    for part in [
        "wrong.toml, line 28, loads in [[case.step]]",
        "'seq-write:1M'",
    ] {
        assert!(found.contains(part), "{found} lacks {part}");
    }
    let list = rig.run(&["study", "list"]).ok().json();
    let names: Vec<&str> = list
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|s| s["name"].as_str())
        .collect();
    assert_eq!(names, ["s1", "s2", "s3", "s4", "s5"]);
    for name in names {
        let shown = rig.run(&["study", "show", name]).ok().json();
        let text = shown["toml"].as_str().expect("text");
        fs::write(&file, text).expect("works");
        rig.run(&["study", "show", &file]).ok();
    }
}

#[test]
fn a_study_of_md_is_refused_before_anything_is_lost_where_md_cannot_do_it() {
    let Some(stage) = stage("200ms") else { return };
    let on = stage.on();
    let file = stage.rig.path("seven.toml");
    let text = SMALL
        .replace("LENGTH", "200ms")
        .replace("level = \"1\"", "level = \"2+1\"");
    fs::write(&file, text.replace("drives = 2", "drives = 3")).expect("works");
    let before = fs::read(&stage.devices[0]).expect("works");
    let args = [
        "study",
        "run",
        &file,
        "--on",
        &on,
        "--yes-erase",
        &on,
        "--engine",
        "md",
    ];
    let refused = stage.rig.run(&args).refused(2, "usage");
    let found = refused.json_error()["found"].to_string();
    assert!(
        found.contains("case mirror of small") && found.contains("2+1"),
        "{found}"
    );
    assert_eq!(fs::read(&stage.devices[0]).expect("works"), before);
    let both = ["study", "run", &file, "--simulated", "--engine", "md"];
    stage.rig.run(&both).refused(2, "usage");
}
