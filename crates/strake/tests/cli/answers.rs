//! What commands answer: how a job ended that was waited for, what state an array is in and whether
//! that is known, what was in a slot.

use std::fs;

use serde_json::Value;

use crate::hung::within;
use crate::rig::{self, Rig};

const NBD: &[&str] = &["--export", "nbd"];
const MIB: u64 = 1 << 20;

/// `rebuild --wait` said "rebuild started" and 0 where there was nothing to rebuild onto.
#[test]
fn a_rebuild_without_a_spare_says_so_and_does_not_exit_as_if_it_were_done() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices[..3]).ok();
    rig.run(&["fail", "data", "1"]).ok();
    let run = rig.run(&["rebuild", "data", "--wait"]);
    assert_eq!((run.code, &run.json()["ended"]), (11, &"not_begun".into()));
    let what = run.json()["what"].to_string();
    assert!(
        what.contains("slot 1") && what.contains("no spare"),
        "{what}"
    );
    rig.run(&["add", "data", &devices[3]]).ok();
    let run = rig.run(&["rebuild", "data", "--wait"]).ok().json();
    assert_eq!(run["ended"], "done", "{run}");
    assert_eq!(rig.show("data")["state"], "optimal");
}

/// An array of which a user has stopped the move to another shape.
fn half_way() -> Option<Rig> {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices[..3]).ok();
    rig.qemu_io("data", &["write -P 1 0 80M", "flush"])?;
    rig.run(&["set", "data", "restripe_priority=1"]).ok();
    rig.run(&["restripe", "data", "--add", &devices[3]]).ok();
    rig.run(&["restripe", "data", "--stop"]).ok();
    rig.until("it moves no further", || {
        rig.show("data")["jobs"][0]["paused_by"] == "asked"
    });
    Some(rig)
}

/// `restripe --wait` said that data stands half-way, exited with 0, and `show` did not say why.
#[test]
fn a_restripe_that_stands_half_way_says_why_and_exits_with_it() {
    let Some(rig) = half_way() else {
        return;
    };
    let job = || rig.show("data")["jobs"][0].clone();
    rig.run(&["fail", "data", "0"]).ok();
    let run = rig.run(&["restripe", "data", "--continue", "--wait"]);
    let told = run.json();
    assert_eq!((run.code, &told["ended"]), (11, &"paused".into()), "{told}");
    let what = told["what"].to_string();
    assert!(what.contains("no member in sync"), "{what}");
    assert_eq!(job()["paused_by"], "members_missing");
    let shown = rig.run_command(rig.command().args(["show", "data"]));
    let why = "paused (a slot has no member in sync)";
    assert!(shown.out.contains(why), "{shown:?}");
}

/// It waited for data that a user had stopped, without end.
#[test]
fn an_init_beside_data_that_stands_half_way_is_not_waited_for() {
    let Some(rig) = half_way() else {
        return;
    };
    let run = within(&rig, 60, &["init", "data", "start", "--wait"]);
    let told = run.json();
    assert_eq!((run.code, &told["ended"]), (11, &"paused".into()), "{told}");
    let what = told["what"].to_string();
    assert!(what.contains("a user stopped it"), "{what}");
}

#[test]
fn the_exit_status_of_show_tells_states_apart() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    let code = |args: &[&str]| rig.run(args).code;
    assert_eq!(code(&["show", "data"]), 0);
    rig.run(&["fail", "data", "1"]).ok();
    assert_eq!((code(&["show", "data"]), code(&["show"])), (5, 5));
    rig.run(&["stop", "data"]).ok();
    let stopped = rig.run(&["show", "data"]);
    assert_eq!(
        (stopped.code, &stopped.json()["startable"]),
        (7, &true.into())
    );
    // That an array is stopped is no fault of all arrays.
    assert_eq!(code(&["show"]), 0);
    fs::rename(&devices[0], rig.path("away")).expect("renamed");
    let stopped = rig.run(&["show", "data"]);
    assert_eq!(
        (stopped.code, &stopped.json()["startable"]),
        (8, &false.into())
    );
    assert_eq!(code(&["show"]), 8);
    let said = rig.run_command(rig.command().args(["show", "data"]));
    assert!(said.out.contains("too few members"), "{said:?}");
}

#[test]
fn an_array_that_has_failed_exits_otherwise_than_a_degraded_one() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    if rig.qemu_io("data", &["write -P 1 0 1M", "flush"]).is_none() {
        return;
    }
    for device in &devices[..2] {
        fs::remove_file(device).expect("removed");
    }
    rig.until_state("data", "failed");
    assert_eq!(rig.run(&["show", "data"]).code, 6);
    assert_eq!(rig.run(&["show"]).code, 6);
    let run = rig.run(&["scrub", "data", "--wait"]);
    assert!(run.code != 0, "{run:?}");
}

/// Without a daemon every array was called `stopped`, also one that another daemon served.
#[test]
fn without_a_daemon_show_says_so_and_calls_nothing_stopped_that_somebody_serves() {
    let mut rig = Rig::new();
    let devices = rig.files(3);
    rig.create("data", "5", &[], &devices).ok();
    let said = rig.run_command(rig.command().args(["show", "data"]));
    assert!(said.err.contains("no daemon listens"), "{said:?}");
    let shown = rig.show("data");
    assert_eq!(shown["daemon"], false);
    assert_eq!(shown["state"], "stopped", "nothing holds its members");
    let other = rig.path("other");
    let serving = rig.foreground(&["data"]);
    // Another STRAKE_DIR, without a daemon, that knows the files.
    fs::create_dir_all(&other).expect("made");
    let known = rig.dir().join("known-files.json");
    fs::copy(known, format!("{other}/known-files.json")).expect("copied");
    let elsewhere = |args: &[&str]| {
        let mut command = rig.command();
        rig.run_command(command.env("STRAKE_DIR", &other).args(args))
    };
    let run = elsewhere(&["--json", "show", "data"]);
    assert_eq!((run.code, &run.json()["state"]), (9, &"unknown".into()));
    assert_eq!(run.json()["daemon"], false);
    let said = elsewhere(&["show", "data"]);
    assert!(said.err.contains("held by another process"), "{said:?}");
    assert!(rig::end(serving));
    let run = elsewhere(&["--json", "show", "data"]);
    assert_eq!((run.code, &run.json()["state"]), (7, &"stopped".into()));
}

#[test]
fn show_remembers_what_was_in_a_slot_also_after_restarts_and_locate_goes_by_it() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices[..3]).ok();
    assert_eq!(rig.show("data")["members"][1]["was"], Value::Null);
    rig.run(&["fail", "data", "1"]).ok();
    let was = |rig: &Rig| rig.show("data")["members"][1]["was"].clone();
    rig.until("it is remembered", || {
        was(&rig)["device"] == devices[1].as_str()
    });
    assert_eq!(was(&rig)["cause"], "asked");
    let run = rig.run(&["locate", "data", "1", "on", "--dry-run"]);
    assert!(run.err.contains(&devices[1]), "{run:?}");
    run.refused(1, "no-locate-light");
    let kept = was(&rig);
    rig.kill_daemon();
    assert_eq!(was(&rig), kept, "without a daemon");
    rig.start_daemon();
    rig.until_state("data", "degraded");
    assert_eq!(was(&rig), kept);
    let said = rig.run_command(rig.command().args(["show", "data"]));
    let line = format!("slot 1 had {} until ", devices[1]);
    assert!(said.out.contains(&line), "{said:?}");
    // A spare takes its place: which drive is to be pulled is still known.
    rig.run(&["add", "data", &devices[3]]).ok();
    rig.until_state("data", "optimal");
    let shown = rig.show("data");
    assert_eq!(shown["members"][1]["device"], devices[3].as_str());
    assert_eq!(shown["members"][1]["was"], kept);
    rig.run(&["destroy", "nothing", "--yes"])
        .refused(3, "array-not-found");
}

/// `remove` advised `fail`, and did not know the device afterwards.
#[test]
fn a_device_that_left_its_slot_is_still_a_name_of_it() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let d = rig.files(5);
    rig.create("data", "5", NBD, &d[..3]).ok();
    rig.run(&["remove", "data", &d[1]])
        .refused(4, "member-in-use");
    rig.run(&["fail", "data", &d[1]]).ok();
    let again = rig.run(&["fail", "data", &d[1]]).ok().json();
    assert_eq!(again["changed"], false, "{again}");
    let dry = ["replace", "data", &d[1], &d[3], "--dry-run"];
    let would = rig.run(&dry).ok().json();
    assert!(would["what"].to_string().contains("slot 1"), "{would}");
    rig.run(&["reset", "data", &d[1]]).ok();
    let located = rig.run(&["locate", "data", &d[1], "on"]);
    assert!(located.err.contains(&d[1]), "{located:?}");
    rig.run(&["remove", "data", &d[1]]).ok();
    let missing = || rig.show("data")["members"][1].clone();
    assert_eq!(missing()["state"], "missing");
    // Which drive it was is still asked.
    assert_eq!(missing()["was"]["device"], d[1].as_str());
    let located = rig.run(&["locate", "data", "1", "on"]);
    assert!(located.err.contains(&d[1]), "{located:?}");
    rig.run(&["replace", "data", &d[1], &d[3]]).ok();
    rig.until_state("data", "optimal");
    // What is asked of one device is not done to another.
    for command in [
        &["fail", "data", &d[1]][..],
        &["remove", "data", &d[1]],
        &["reset", "data", &d[1]],
        &["replace", "data", &d[1], &d[4]],
    ] {
        let error = rig.run(command).refused(3, "member-not-found").json_error();
        let found = error["found"].to_string();
        let has = format!("was in slot 1 of data, which has {} now", d[3]);
        assert!(found.contains(&has), "{error}");
    }
    let located = rig.run(&["locate", "data", &d[1], "on"]);
    assert!(
        located.err.contains(&d[1]) && !located.err.contains(&d[3]),
        "{located:?}"
    );
    // It has no slot: another array, or this one, may take it.
    rig.run(&["add", "data", &d[1], "--force"]).ok();
}

/// A member that failed a write told nothing of what the kernel had answered.
#[test]
fn a_failed_member_keeps_its_errno_in_events_and_show() {
    let mut rig = Rig::new();
    let small = rig.path("small");
    fs::create_dir(&small).expect("made");
    let Some(_mount) = Tmpfs::on(&small, 8 * MIB) else {
        return;
    };
    rig.start_daemon();
    let mut devices = rig.files(2);
    // Sparse: the file system under it has no room for what is to be written.
    devices.push(rig.file("small/d", 64 * MIB));
    rig.create("data", "5", NBD, &devices).ok();
    if rig
        .qemu_io("data", &["write -P 1 0 40M", "flush"])
        .is_none()
    {
        return;
    }
    rig.until_state("data", "degraded");
    let was = || rig.show("data")["members"][2]["was"].clone();
    rig.until("it is remembered", || was()["cause"] == "write_error");
    assert_eq!(was()["errno"], 28, "ENOSPC");
    let out = rig.event("that it is out", |e| e["event"] == "member_out");
    assert_eq!(out["errno"], 28);
    let said = rig.run_command(rig.command().args(["show", "data"]));
    let why = "write_error, errno 28, No space left on device";
    assert!(said.out.contains(why), "{said:?}");
    let said = rig.run_command(rig.command().arg("events")).ok();
    assert!(
        said.out.contains("write_error (errno 28, No space"),
        "{said:?}"
    );
    rig.stop_daemon();
}

/// `completions bash | true` panicked.
#[test]
fn a_reader_that_has_gone_away_ends_a_command_quietly() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "1", NBD, &rig.files(2)).ok();
    let commands: [&[&str]; 7] = [
        &["completions", "bash"],
        &["--help"],
        &["show"],
        &["--json", "show", "data"],
        &["events"],
        &["events", "--follow"],
        &["show", "nothing"],
    ];
    for args in commands {
        // Nothing reads either of them.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let errors = writer.try_clone().expect("a pipe");
        let mut command = rig.command();
        let status = command.args(args).stdout(writer).stderr(errors).status();
        let code = status.expect("it runs").code();
        assert!(matches!(code, Some(0 | 3)), "{args:?}: {code:?}");
    }
}

#[test]
fn numbers_just_outside_of_their_range_are_refused_with_the_range() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(2);
    rig.create("data", "1", NBD, &devices).ok();
    for (setting, takes) in [
        ("rebuild_priority=0", "1 to 100"),
        ("rebuild_priority=101", "1 to 100"),
        ("scrub_priority=-1", "1 to 100"),
        ("replace_at_wear=101", "1 to 100"),
        ("latency_target=49us", "50us to 60s"),
        ("latency_target=61s", "50us to 60s"),
        ("spare_delay=8d", "to 7d"),
        ("read_error_threshold=0", "1 to"),
        ("read_error_threshold=4294967296", "1 to 4294967295"),
        ("scrub_at=24:00", "00:00 to 23:59"),
        ("shards=0", "1 to 64"),
        ("degraded=8d", "1ms to 7d"),
        ("degraded=0s", "1ms to 7d"),
        ("latency_target=50.4us", "whole microseconds"),
        ("memory_limit=10P", "10240T"),
        ("hedged_reads=maybe", "on or off"),
        ("write_hole=open", "closed, degraded or resync"),
    ] {
        let run = rig.run(&["set", "data", setting]);
        assert!(run.err.contains(takes), "{setting}: {run:?}");
        run.refused(2, "setting-invalid");
    }
    // Of `create` these are the same, and `auto` is one of them.
    let spare = rig.files_called("e", 2);
    for (option, value, takes) in [
        ("--shards", "65", "1 to 64, or auto"),
        ("--requests", "4294967296", "1 to 4294967295, or auto"),
        ("--requests", "0", "1 to 4294967295, or auto"),
        ("--memory-limit", "0", "or auto"),
    ] {
        let run = rig.create("made", "1", &[option, value], &spare);
        assert!(run.err.contains(takes), "{option} {value}: {run:?}");
        run.refused(2, "setting-invalid");
        let auto = [option, "auto", "--dry-run"];
        rig.create("made", "1", &auto, &spare).ok();
    }
    // The API knows them as well.
    let socket = rig.dir().join("api.sock");
    for (body, takes) in [
        (r#"{"rebuild_priority":101}"#, "1 to 100"),
        (r#"{"replace_at_wear":101}"#, "1 to 100"),
        (r#"{"latency_target_us":49}"#, "50 to 60000000"),
        (r#"{"read_error_threshold":0}"#, "1 to"),
    ] {
        use std::io::{Read, Write};
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
        let head = "PATCH /v1/arrays/data/settings HTTP/1.1\r\nhost: strake\r\n\
                    connection: close\r\ncontent-type: application/json\r\n";
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).expect("asks");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("answers");
        assert!(
            text.contains("setting-invalid") && text.contains(takes),
            "{body}: {text}"
        );
    }
    for wrong in [
        &["--shards", "0"][..],
        &["--shards", "65"],
        &["--io-timeout", "0"],
        &["--memory", "0"],
    ] {
        let run = rig.run(&[&["daemon", "--no-devices"], wrong].concat());
        assert_eq!(run.code, 2, "{wrong:?}: {run:?}");
    }
}

/// It was "not serving", with the advice to start it first: what the limit kept from starting.
#[test]
fn settings_of_this_machine_are_said_to_be_taken_alone_by_an_array_that_is_stopped() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "1", NBD, &rig.files(2)).ok();
    rig.run(&["stop", "data"]).ok();
    let both = ["set", "data", "memory_limit=auto", "write_hole=closed"];
    let run = rig.run(&both).refused(4, "array-not-serving");
    for part in [
        "its members carry write_hole",
        "strake set data takes memory_limit alone",
    ] {
        assert!(run.err.contains(part), "{part} in {run:?}");
    }
    rig.run(&both[..3]).ok();
}

/// `--halt` found something, and its exit status said that nothing came of it.
#[test]
fn a_scrub_that_halts_says_by_its_exit_status_that_it_found_something() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "5", NBD, &rig.files(3)).ok();
    if rig.qemu_io("data", &["write -P 1 0 4M", "flush"]).is_none() {
        return;
    }
    let place = rig.run(&["explain", "data", "0"]).ok().json();
    crate::life::rot(&place["data"]);
    let run = rig.run(&["scrub", "data", "--halt", "--wait"]);
    assert_eq!((run.code, &run.json()["ended"]), (10, &"paused".into()));
    let what = run.json()["what"].to_string();
    assert!(what.contains("1 inconsistent stripe so far"), "{what}");
}

/// Neither the member nor what is amiss was named.
#[test]
fn a_refusal_for_want_of_redundancy_names_the_member_and_what_is_amiss() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices[..3]).ok();
    let run = rig
        .run(&["remove", "data", "2"])
        .refused(4, "member-in-use");
    assert!(run.err.contains("slot 2 of data"), "{run:?}");
    rig.run(&["fail", "data", "1"]).ok();
    let run = rig.run(&["fail", "data", "0"]).refused(4, "would-fail");
    let named = format!("slot 0 of data ({}, in_sync now)", devices[0]);
    assert!(run.err.contains(&named), "{run:?}");
    let add = ["restripe", "data", "--add", &devices[3]];
    let run = rig.run(&add).refused(4, "not-optimal");
    assert!(run.err.contains("slot 1 is failed"), "{run:?}");
}

#[test]
fn a_device_that_is_too_small_is_named_with_what_would_suffice() {
    let rig = Rig::new();
    let devices = [
        rig.file("a", 64 * MIB),
        rig.file("tiny", MIB),
        rig.file("c", 64 * MIB),
    ];
    let run = rig.create("data", "5", &[], &devices);
    let found = run.json_error()["found"].as_str().expect("text").to_owned();
    run.refused(2, "device-too-small");
    assert!(found.contains("tiny, for slot 1,"), "{found}");
    let least = found
        .split("at least ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let least: u64 = least.expect("a size").parse().expect("a number");
    let retry = |bytes: u64| {
        let tiny = rig.file("tiny", bytes);
        rig.create(
            "data",
            "5",
            &["--dry-run"],
            &[devices[0].clone(), tiny, devices[2].clone()],
        )
    };
    retry(least - 4096).refused(2, "device-too-small");
    let made = retry(least).ok().json();
    let notes = made["notes"].to_string();
    assert!(
        notes.contains("as the smallest has") && notes.contains("tiny"),
        "{notes}"
    );
    let even = [rig.file("e", 64 * MIB), rig.file("f", 80 * MIB)];
    let made = rig.create("even", "1", &["--dry-run"], &even).ok().json();
    assert!(!made["notes"].to_string().contains("smallest"), "{made}");
}

#[test]
fn devices_named_for_an_array_that_runs_are_said_to_be_ignored() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "1", NBD, &devices[..2]).ok();
    for verb in ["import", "start"] {
        let run = rig.run(&[verb, "data", &devices[2]]);
        assert!(run.err.contains("data runs already"), "{run:?}");
        assert!(run.err.contains(&devices[2]), "{run:?}");
        assert_eq!(run.code, 0, "{run:?}");
    }
}

/// A small file system in memory, taken away again.
struct Tmpfs(String);

impl Tmpfs {
    fn on(path: &str, bytes: u64) -> Option<Tmpfs> {
        let size = format!("size={bytes}");
        let mut mount = std::process::Command::new("mount");
        let mount = mount.args(["-t", "tmpfs", "-o", &size, "tmpfs", path]);
        match mount.status() {
            Ok(status) if status.success() => Some(Tmpfs(path.to_owned())),
            _ => {
                rig::skipped("a tmpfs cannot be mounted");
                None
            }
        }
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let mut umount = std::process::Command::new("umount");
        // A test that failed may still have a daemon that uses it.
        let _ = umount.args(["--lazy", &self.0]).status();
    }
}

/// With a daemon here it was called stopped, and could be started.
#[test]
fn what_another_daemon_serves_is_unknown_with_a_daemon_here_and_without() {
    let mut rig = Rig::new();
    let devices = rig.files(3);
    rig.start_daemon();
    rig.create("data", "5", &["--export", "none"], &devices)
        .ok();
    let mut other = Rig::new();
    let mut import = vec!["import", "data"];
    import.extend(devices.iter().map(String::as_str));
    let adopted = other.run(&import).ok().json();
    let what = adopted["what"].as_str().expect("a text").to_owned();
    assert!(what.contains("another process holds its members"), "{what}");
    let is_unknown = |other: &Rig| {
        let one = other.run(&["show", "data"]);
        assert_eq!((one.code, &one.json()["state"]), (9, &"unknown".into()));
        for args in [&["show"][..], &["status"], &["status", "data"]] {
            let run = other.run(args);
            let states = run.json();
            let of_data = states.as_array().and_then(|all| {
                let mut all = all.iter();
                all.find(|array| array["name"] == "data")
            });
            let state = of_data.map(|array| array["state"].clone());
            assert_eq!((run.code, state), (9, Some("unknown".into())), "{args:?}");
        }
    };
    is_unknown(&other);
    other.start_daemon_with(&["--wait", "0.5"]);
    is_unknown(&other);
    let line = "strake_array_state{array=\"data\",state=\"unknown\"} 1\n";
    other.until(line, || other.ask("GET", "/metrics").contains(line));
    other
        .run(&["destroy", "data", "-y"])
        .refused(4, "device-busy");
    other.run(&["start", "data"]).refused(4, "device-busy");
    other.run(&["stop", "--all"]).ok();
    assert_eq!(rig.show("data")["state"], "optimal");
    rig.run(&["stop", "data"]).ok();
    rig.stop_daemon();
    other.run(&["start", "data", "--export", "none"]).ok();
    assert_eq!(other.show("data")["state"], "optimal");
    other.stop_daemon();
}

/// Of two members the first was named, as `locked by  (PID)` of a process that had ended.
#[test]
fn what_holds_members_is_told_of_all_of_them_also_where_the_locker_has_ended() {
    use std::io::Read;
    use std::process::{Command, Stdio};
    if !rig::has("flock") {
        return rig::skipped("flock is not installed");
    }
    let mut rig = Rig::new();
    let devices = rig.files(2);
    rig.start_daemon();
    rig.create("data", "1", &["--export", "none"], &devices)
        .ok();
    rig.run(&["stop", "data"]).ok();
    let script = "exec 8<\"$0\" 9<\"$1\"; flock -x 8; flock -x 9; echo; exec sleep 1000";
    let mut heir = Command::new("sh")
        .args(["-c", script, &devices[0], &devices[1]])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut line = [0];
    let said = heir.stdout.as_mut().expect("piped").read_exact(&mut line);
    said.expect("both are locked");
    let by = format!("which has ended: the file is open in sleep ({})", heir.id());
    for args in [
        &["start", "data"][..],
        &["destroy", "data", "-y"],
        &["drive", "clean", "-y", &devices[0], &devices[1]],
    ] {
        let refused = rig.run(args).refused(4, "device-busy");
        let found = refused.json_error()["found"].to_string();
        for device in &devices {
            assert!(found.contains(device), "{args:?}: {found}");
        }
        assert_eq!(found.matches(&by).count(), 2, "{args:?}: {found}");
    }
    heir.kill().expect("ours");
    heir.wait().expect("ours");
    rig.run(&["start", "data", "--export", "none"]).ok();
    rig.stop_daemon();
}
