//! Commands that look: filters of events, states in a line, rates, findings.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::manager;
use crate::rig::{Rig, has, skipped};

const NBD: &[&str] = &["--export", "nbd"];

fn names(run: &str) -> Vec<String> {
    let event = |line: &str| serde_json::from_str::<Value>(line).expect("an event");
    let name = |event: Value| event["event"].as_str().expect("a name").to_owned();
    run.lines().map(event).map(name).collect()
}

fn text(rig: &Rig, args: &[&str]) -> String {
    rig.run_command(rig.command().args(args)).ok().out
}

#[test]
fn events_are_filtered_by_severity_array_and_time_with_a_daemon_and_without() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "5", NBD, &rig.files(3)).ok();
    rig.create("other", "1", NBD, &rig.files_called("o", 2))
        .ok();
    rig.run(&["fail", "data", "1"]).ok();
    // All of these events, in any order: what comes later would come between two looks.
    for (key, word) in [
        ("event", "member_out"),
        ("effect", "degraded"),
        ("event", "member_returned"),
    ] {
        rig.event(word, |e| e[key] == word);
    }
    let looks = |rig: &Rig| {
        let events = |args: &[&str]| names(&rig.run(&[&["events"], args].concat()).ok().out);
        let all = events(&[]);
        let bad = events(&["--severity", "warning"]);
        assert!(all.contains(&"created".to_owned()) && all.len() > bad.len());
        assert!(bad.contains(&"member_out".to_owned()), "{bad:?}");
        assert!(bad.contains(&"state".to_owned()), "it is degraded: {bad:?}");
        assert!(!bad.contains(&"created".to_owned()), "{bad:?}");
        assert_eq!(events(&["--severity", "critical"]), [""; 0]);
        assert_eq!(events(&["--severity", "info"]), all);
        let other = events(&["--array", "other"]);
        assert!(other.contains(&"created".to_owned()), "{other:?}");
        assert!(!other.contains(&"member_out".to_owned()), "{other:?}");
        let both = events(&["--array", "other", "--severity", "warning"]);
        assert_eq!(both, [""; 0]);
        assert_eq!(events(&["--since", "1h"]), all);
        assert_eq!(events(&["--since", "2000-01-01"]), all);
        assert_eq!(events(&["--since", "2999-01-01 12:00"]), [""; 0]);
        let line = rig.run(&["events", "--severity", "warning", "--array", "data"]);
        assert!(line.out.contains(r#""severity":"warning""#), "{line:?}");
    };
    looks(&rig);
    for wrong in [
        &["events", "--since", "yesterday"][..],
        &["events", "--severity", "bad"],
        &["events", "--array", "no/name"],
    ] {
        assert_eq!(rig.run(wrong).code, 2, "{wrong:?}");
    }
    let answer = rig.ask("GET", "/v1/events?since_time=soon");
    assert!(
        answer.contains("bad-request") && answer.contains("since_time=soon"),
        "{answer}"
    );
    // A journal of the time before there were severities.
    rig.stop_daemon();
    let journal = rig.dir().join("events.jsonl");
    let lines = std::fs::read_to_string(&journal).expect("a journal");
    let old = lines
        .replace(r#""severity":"warning","#, "")
        .replace(r#""severity":"info","#, "");
    assert!(!old.contains("severity") && lines != old);
    std::fs::write(&journal, old).expect("written");
    looks(&rig);
}

#[test]
fn a_follower_hears_only_of_what_it_asked_for() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "5", NBD, &rig.files(3)).ok();
    let mut command = rig.command();
    command.args(["events", "--follow", "--severity", "warning"]);
    let mut follower = command.stdout(Stdio::piped()).spawn().expect("works");
    let mut lines = BufReader::new(follower.stdout.take().expect("a pipe"));
    rig.run(&["set", "data", "scrub_priority=7"]).ok();
    rig.run(&["fail", "data", "1"]).ok();
    let mut line = String::new();
    lines.read_line(&mut line).expect("an event");
    assert!(line.contains(" member_out data slot 1"), "{line}");
    drop(lines);
    follower.kill().expect("works");
    follower.wait().expect("works");
}

#[test]
fn status_is_a_line_for_each_array_and_ends_with_the_worst_state() {
    let mut rig = Rig::new();
    rig.start_daemon();
    assert_eq!(text(&rig, &["status"]), "no arrays\n");
    rig.create("data", "5", NBD, &rig.files(3)).ok();
    rig.create("other", "1", NBD, &rig.files_called("o", 2))
        .ok();
    let lines = text(&rig, &["status"]);
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].starts_with("data   optimal  level 5  3/3 in sync"),
        "{lines:?}"
    );
    rig.run(&["fail", "data", "1"]).ok();
    let run = rig.run_command(rig.command().arg("status"));
    assert_eq!(run.code, 5, "{run:?}");
    assert!(
        run.out.contains("data   degraded  level 5  2/3 in sync"),
        "{run:?}"
    );
    assert!(run.out.contains("slot 1 "), "{run:?}");
    let json = rig.run(&["status"]).json();
    assert_eq!((&json[0]["exit"], &json[1]["exit"]), (&5.into(), &0.into()));
    assert_eq!(json[0]["in_sync"], 2);
    assert_eq!(rig.run(&["status", "other"]).code, 0);
    assert_eq!(rig.run(&["status", "data"]).code, 5);
    rig.run(&["status", "none"]).refused(3, "array-not-found");
    rig.run(&["stop", "other"]).ok();
    assert_eq!(rig.run(&["status", "other"]).code, 7);
    // Without a daemon it says so, and looks at the drives.
    rig.run(&["stop", "data"]).ok();
    rig.stop_daemon();
    let run = rig.run_command(rig.command().arg("status"));
    assert!(run.err.contains("no daemon listens"), "{run:?}");
}

#[test]
fn colour_is_where_it_is_wanted_and_nowhere_else() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "1", NBD, &rig.files(2)).ok();
    let run_of = |args: &[&str], environment: &[(&str, &str)]| {
        let mut command = rig.command();
        for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        command.envs(environment.iter().copied()).args(args);
        rig.run_command(&mut command).ok().out
    };
    for args in [&["status"][..], &["show"], &["show", "data"]] {
        let run = |environment: &[(&str, &str)]| run_of(args, environment);
        let plain = run(&[]);
        assert!(!plain.contains('\u{1b}'), "a pipe has none: {plain:?}");
        let painted = run(&[("CLICOLOR_FORCE", "1")]);
        let green = |text: &str| format!("\u{1b}[32m{text}\u{1b}[0m");
        assert!(painted.contains(&green("optimal")), "{painted:?}");
        if args == ["show", "data"] {
            assert!(painted.contains(&green("in_sync")), "{painted:?}");
        }
        let unpainted = painted.replace("\u{1b}[32m", "").replace("\u{1b}[0m", "");
        assert_eq!(unpainted, plain, "colour changes no word");
        assert_eq!(run(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), plain);
    }
}

/// A login must not hang with the daemon.
#[test]
fn status_waits_for_a_silent_daemon_only_some_seconds() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let signal = |name: &str| {
        let pid = rig.daemon_pid().to_string();
        let sent = std::process::Command::new("kill")
            .args([name, &pid])
            .status();
        assert!(sent.expect("kill runs").success());
    };
    signal("-STOP");
    let begun = Instant::now();
    let run = rig.run(&["status"]);
    signal("-CONT");
    run.refused(1, "daemon-silent");
    assert!(begun.elapsed() < Duration::from_secs(50));
}

#[test]
fn iostat_has_rates_since_the_start_and_then_of_each_interval() {
    let mut rig = Rig::new();
    rig.run(&["iostat"]).refused(1, "no-daemon");
    rig.start_daemon();
    assert!(text(&rig, &["iostat"]).ends_with("no array is in service\n"));
    rig.create("data", "5", NBD, &rig.files(3)).ok();
    let report = text(&rig, &["iostat", "-v"]);
    let lines: Vec<&str> = report.lines().collect();
    assert!(
        lines[0].starts_with("ARRAY ") && lines[0].ends_with("logMB/s"),
        "{report}"
    );
    assert!(
        lines[1].starts_with("data ") && lines.len() == 5,
        "{report}"
    );
    assert_eq!(text(&rig, &["iostat"]).lines().count(), 2);
    let count = |args: &[&str]| text(&rig, args).matches("ARRAY").count();
    assert_eq!(count(&["iostat", "0.1", "3"]), 3);
    assert_eq!(count(&["iostat", "-y", "0.1", "1"]), 1);
    rig.run(&["iostat", "--array", "none"])
        .refused(3, "array-not-found");
    for wrong in [
        &["iostat", "-y"][..],
        &["iostat", "0"],
        &["iostat", "1", "0"],
    ] {
        assert_eq!(rig.run(wrong).code, 2, "{wrong:?}");
    }
    if !has("qemu-io") {
        return skipped("qemu-io is not installed");
    }
    let mut command = rig.command();
    command.args(["--json", "iostat", "-v", "--array", "data", "12", "2"]);
    let mut iostat = command.stdout(Stdio::piped()).spawn().expect("works");
    let mut lines = BufReader::new(iostat.stdout.take().expect("a pipe")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a report").expect("read");
        serde_json::from_str(&line).expect("JSON")
    };
    assert_eq!(next()["since_start"], true);
    rig.qemu_io("data", &["write -P 7 0 8M", "flush", "read -P 7 0 4M"]);
    let report = next();
    assert!(iostat.wait().expect("works").success());
    assert_eq!(report["since_start"], false);
    let array = &report["arrays"][0];
    let number = |value: &Value| value.as_f64().expect("a number");
    let seconds = number(&array["interval_s"]);
    assert!((11.5..120.0).contains(&seconds), "{report}");
    let whole = |of: &Value, rate: &str| (number(&of[rate]) * seconds).round() as u64;
    assert_eq!(whole(array, "written_bytes_per_s"), 8 << 20, "{report}");
    assert_eq!(whole(array, "read_bytes_per_s"), 4 << 20, "{report}");
    let requests = whole(array, "writes_per_s");
    assert!((1..=2048).contains(&requests), "{report}");
    let (mean, p99) = (&array["write_mean_us"], &array["write_p99_us"]);
    assert!(number(mean) > 0.0 && number(p99) > 0.0, "{report}");
    assert!(number(&array["queue"]) > 0.0, "{report}");
    let members = array["members"].as_array().expect("members");
    assert_eq!(members.len(), 3);
    // Data and parity: all that was written, and half as much again at least.
    let written = members.iter().map(|m| whole(m, "written_bytes_per_s"));
    assert!(written.sum::<u64>() >= 12 << 20, "{report}");
}

fn findings(rig: &Rig) -> (i32, Vec<(String, String)>, Value) {
    let run = rig.run(&["doctor"]);
    let json = run.json();
    let found = json["findings"].as_array().expect("findings").clone();
    let found = found.iter().filter(|f| f["array"] == "data").map(|f| {
        let word = |key: &str| f[key].as_str().expect("a word").to_owned();
        assert!(word("found").len() > 10 && word("cure").len() > 3, "{f}");
        (word("check"), word("severity"))
    });
    (run.code, found.collect(), json)
}

#[test]
fn doctor_finds_what_an_array_lacks_and_nothing_when_it_has_it() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices[..3]).ok();
    let warning = |check: &str| (check.to_owned(), "warning".to_owned());
    let (code, found, json) = findings(&rig);
    assert_eq!(found, [warning("spare"), warning("scrub-schedule")]);
    assert_eq!((code, &json["daemon"]), (10, &Value::Bool(true)));
    let said = rig.run_command(rig.command().arg("doctor"));
    assert!(
        said.out.contains("warning: data: it has no spare"),
        "{said:?}"
    );
    assert!(
        said.out.contains("  to do: strake add data DEV"),
        "{said:?}"
    );
    rig.run(&["set", "data", "scrub_schedule=weekly"]).ok();
    rig.run(&["add", "data", &devices[3]]).ok();
    let (_, found, json) = findings(&rig);
    assert_eq!(found, [], "{json}");
    rig.run(&["fail", "data", "1"]).ok();
    rig.until("a finding", || !findings(&rig).1.is_empty());
    // Without a daemon it says what is not known, and looks at the rest.
    rig.stop_daemon();
    let json = rig.run(&["doctor"]).json();
    assert_eq!(json["daemon"], false);
    assert_eq!(json["unchecked"][0]["check"], "daemon", "{json}");
}

/// Nothing told of it before something was lost.
#[test]
fn doctor_tells_of_a_state_folder_without_room_or_inodes_until_there_is_some() {
    let mut rig = Rig::new();
    let small = rig.dir().display().to_string();
    let options = ["-t", "tmpfs", "-o", "size=32m,nr_inodes=200,mode=700"];
    let Some(_mount) = crate::devices::Mount::of(&options, "tmpfs", &small) else {
        return;
    };
    rig.start_daemon();
    let found = |severity: &str| {
        let run = rig.run(&["doctor"]);
        let json = run.json();
        let all = json["findings"].as_array().expect("findings").clone();
        let is = |f: &&Value| f["check"] == "state-folder";
        let one = all.iter().find(is).map(|f| {
            assert_eq!(f["severity"], severity, "{f}");
            assert!(f["cure"].to_string().contains(&small), "{f}");
            f["found"].to_string()
        });
        (one, run.code)
    };
    assert_eq!(found("none").0, None);
    let ballast = format!("{small}/ballast");
    let room = std::fs::File::create(&ballast).expect("made");
    let filled = std::io::copy(&mut std::io::repeat(1), &mut &room);
    assert!(filled.is_err(), "it is full");
    let (said, code) = found("critical");
    assert!(said.expect("a finding").contains("0 B left"));
    assert_eq!(code, 10);
    room.set_len(24 << 20).expect("works");
    assert!(found("warning").0.is_some());
    drop(room);
    std::fs::remove_file(&ballast).expect("works");
    assert_eq!(found("none").0, None);
    let files = || (0..200).map(|n| format!("{small}/f{n}"));
    let made = files().take_while(|f| std::fs::File::create(f).is_ok());
    assert!(made.count() < 200);
    let (said, _) = found("critical");
    assert!(said.expect("a finding").contains("0 inodes left"));
    // What is advised.
    files().for_each(|f| drop(std::fs::remove_file(f)));
    assert_eq!(found("none").0, None);
    rig.stop_daemon();
}

#[test]
fn a_drive_with_two_names_is_told_once_as_what_it_is_used_for() {
    let mut rig = Rig::new();
    std::fs::create_dir(rig.path("drives")).expect("works");
    let files = rig.files_called("drives/d", 3);
    let link = rig.path("link");
    std::os::unix::fs::symlink(&files[0], &link).expect("works");
    rig.start_daemon_with(&["--scan", &rig.path("drives")]);
    let members = [link.clone(), files[1].clone()];
    rig.create("data", "1", &["--export", "none"], &members)
        .ok();
    let answer = rig.ask("GET", "/v1/drives");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let drives: Vec<Value> = serde_json::from_str(body).expect("JSON");
    let told = |drive: &Value| {
        let text = |field: &str| drive[field].as_str().expect("a text").to_owned();
        (text("device"), text("use"), drive["slot"].as_u64())
    };
    let told: Vec<_> = drives.iter().map(told).collect();
    let [_, second, free] = <[String; 3]>::try_from(files).expect("three");
    let expected = [
        (link, "member".to_owned(), Some(0)),
        (second, "member".to_owned(), Some(1)),
        (free, "free".to_owned(), None),
    ];
    assert_eq!(told, expected, "{body}");
}

#[test]
fn doctor_names_members_that_other_users_can_read() {
    use std::os::unix::fs::PermissionsExt;
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    let mode = |bits| {
        let mode = std::fs::Permissions::from_mode(bits);
        std::fs::set_permissions(&devices[1], mode).expect("ours");
    };
    let readable = |json: &Value| {
        let found = json["findings"].as_array().expect("a list").iter();
        let found: Vec<Value> = found
            .filter(|f| f["check"] == "readable")
            .cloned()
            .collect();
        found
    };
    mode(0o644);
    let (code, _, json) = findings(&rig);
    let found = readable(&json);
    assert_eq!((code, found.len()), (10, 1), "{json}");
    assert_eq!(found[0]["device"], devices[1].as_str(), "{json}");
    assert_eq!(found[0]["slot"], 1, "{json}");
    assert!(
        found[0]["found"].to_string().contains("mode 0644"),
        "{json}"
    );
    assert_eq!(found[0]["cure"], format!("chmod 600 {}", devices[1]));
    mode(0o600);
    assert_eq!(readable(&findings(&rig).2).len(), 0);
}

/// Beside a second device of one member it counted a member, too, that had left.
#[test]
fn what_scan_counts_as_found_goes_by_one_rule() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    rig.run(&["fail", "data", "2"]).ok();
    rig.run(&["stop", "data"]).ok();
    let twin = rig.path("twin");
    std::fs::copy(&devices[0], &twin).expect("copied");
    let count = |more: &[&str]| {
        let all: Vec<&str> = devices.iter().map(String::as_str).collect();
        let scan = rig.run(&[&["scan"], &all[..], more].concat()).ok().json();
        (scan[0]["state"].clone(), scan[0]["members_found"].clone())
    };
    assert_eq!(count(&[]), ("degraded".into(), 2.into()));
    assert_eq!(count(&[&twin]), ("conflicting".into(), 2.into()));
}

/// It was said that no array is in service.
#[test]
fn iostat_names_arrays_that_serve_where_none_of_them_answers() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "1", &["--export", "none"], &rig.files(2))
        .ok();
    let Some(mut holder) = manager::hold(manager::thread(&rig, "strake-data-0")) else {
        return skipped("no thread may be traced here");
    };
    let said = "an array in service has not answered: data (unresponsive)";
    for args in [&["iostat"][..], &["iostat", "--array", "data"]] {
        assert!(text(&rig, args).ends_with(&format!("{said}\n")), "{args:?}");
        let json = rig.run(args).ok();
        assert!(json.err.contains(said), "{args:?}: {json:?}");
    }
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    rig.until_state("data", "optimal");
    assert!(text(&rig, &["iostat"]).contains("\ndata "));
    rig.stop_daemon();
}
