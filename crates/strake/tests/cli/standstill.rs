//! The daemon stands still, or a thread of it, or its log does: arrays lose nothing by it.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::hung::{Freezer, spawn, within};
use crate::manager;
use crate::rig::{self, Rig, skipped};

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
    // A busy machine answers within it while the daemon runs.
    rig.start_daemon_with(&["--io-timeout", "5"]);
    let devices = rig.files(5);
    rig.create("data", "5", NBD, &devices).ok();
    let Some(mut child) = load(&rig) else {
        return;
    };
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(150));
        signal(&rig, "-STOP");
        std::thread::sleep(Duration::from_secs(11));
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
    rig.until("lines to be counted as dropped", || dropped(&rig) > 4);
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

/// The longest that one of these I/Os may take: machines that run tests are busy with others, and a
/// log that holds up an I/O does so until it is read again.
const STALL_MAX: Duration = Duration::from_secs(20);

/// Random reads and writes for so many seconds.
fn fio(rig: &Rig, seconds: u32) -> Option<std::process::Child> {
    let engines = Command::new("fio").arg("--enghelp").output();
    let engines = engines.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if !engines.is_ok_and(|names| names.contains("nbd")) {
        skipped("there is no fio with an NBD engine");
        return None;
    }
    let uri = format!("--uri=nbd+unix:///?socket={}", rig.nbd("data").display());
    let runtime = format!("--runtime={seconds}");
    let args = [
        "--name=log",
        "--ioengine=nbd",
        "--rw=randrw",
        "--bs=4k",
        "--iodepth=8",
        "--size=32m",
        "--time_based",
        "--output-format=json",
    ];
    let mut command = Command::new("fio");
    command.args(args).args([&uri, &runtime]);
    command
        .current_dir(rig.folder.path())
        .stdout(Stdio::piped());
    Some(command.spawn().expect("fio runs"))
}

/// It met no error, and none of its I/Os took long.
fn none_stalled(fio: std::process::Child) {
    let output = fio.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let json: serde_json::Value =
        serde_json::from_str(&text[text.find('{').expect("JSON")..]).expect("JSON");
    let job = &json["jobs"][0];
    assert_eq!(job["error"], 0, "{job}");
    for kind in ["read", "write"] {
        let ios = job[kind]["total_ios"].as_u64().expect("counted");
        let longest = job[kind]["clat_ns"]["max"].as_u64().expect("measured");
        assert!(ios > 100, "{ios} {kind}s");
        let longest = Duration::from_nanos(longest);
        assert!(longest < STALL_MAX, "a {kind} took {longest:?}");
    }
}

fn dropped(rig: &Rig) -> u64 {
    let metrics = rig.ask("GET", "/metrics");
    let mut lines = metrics.lines();
    let line = lines.find_map(|line| line.strip_prefix("strake_log_lines_dropped_total "));
    line.expect("counted").parse().expect("a number")
}

/// A member of an array beside goes and comes, each time with some lines in the log, until more
/// than so many lines are dropped.
fn lines_until_dropped(rig: &Rig, beside: &[String], more_than: u64) {
    let since = std::time::Instant::now();
    while dropped(rig) <= more_than {
        assert!(since.elapsed().as_secs() < 180, "no line is dropped");
        for _ in 0..10 {
            rig.run(&["fail", "noise", "1"]).ok();
            rig.run(&["add", "noise", &beside[1]]).ok();
        }
    }
}

/// The lines that the log says it lacks.
fn said_to_lack(text: &str) -> u64 {
    let lines = text.lines().filter_map(|line| {
        let (before, _) = line.split_once(" lines of the log were dropped")?;
        before.rsplit(' ').next()?.parse::<u64>().ok()
    });
    lines.sum()
}

fn two_arrays(rig: &Rig) -> Vec<String> {
    let (devices, beside) = (rig.files(4), rig.files_called("n", 2));
    rig.create("data", "5", NBD, &devices).ok();
    rig.create("noise", "1", &["--export", "none"], &beside)
        .ok();
    beside
}

#[test]
fn a_log_that_is_read_slowly_holds_up_no_io_and_says_how_many_lines_it_lacks() {
    let mut rig = Rig::new();
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    // A page is left of the 64 KiB that a pipe holds.
    writer.write_all(&[b'\n'; 15 * 4096]).expect("it has room");
    rig.start_daemon_logging_to(Stdio::from(writer));
    let beside = two_arrays(&rig);
    let fast = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let goes_fast = fast.clone();
    let read = std::thread::spawn(move || {
        let (mut text, mut some) = (Vec::new(), [0; 64]);
        loop {
            let count = reader.read(&mut some).expect("reads");
            text.extend_from_slice(&some[..count]);
            if count == 0 {
                return text;
            }
            if !goes_fast.load(std::sync::atomic::Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    });
    let load = fio(&rig, 10);
    lines_until_dropped(&rig, &beside, 50);
    let lacks = dropped(&rig);
    load.into_iter().for_each(none_stalled);
    assert_eq!(rig.show("data")["state"], "optimal");
    fast.store(true, std::sync::atomic::Ordering::SeqCst);
    rig.stop_daemon();
    let text = String::from_utf8_lossy(&read.join().expect("ends")).into_owned();
    let said = said_to_lack(&text);
    assert!(said >= lacks, "{said} said of {lacks}");
    let lines = text.lines().filter(|line| !line.is_empty()).count();
    assert!(lines > 1000, "what waited is written: {lines} lines");
}

#[test]
fn a_log_on_a_full_file_system_holds_up_no_io_and_says_how_many_lines_it_lacks() {
    let mut rig = Rig::new();
    let small = rig.path("small");
    let options = ["-t", "tmpfs", "-o", "size=64k"];
    let Some(_mount) = crate::devices::Mount::of(&options, "tmpfs", &small) else {
        return;
    };
    let (ballast, log) = (format!("{small}/ballast"), format!("{small}/log"));
    std::fs::write(&ballast, vec![1; 48 << 10]).expect("fits");
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&log);
    rig.start_daemon_logging_to(Stdio::from(file.expect("made")));
    let beside = two_arrays(&rig);
    let load = fio(&rig, 5);
    lines_until_dropped(&rig, &beside, 20);
    load.into_iter().for_each(none_stalled);
    assert_eq!(rig.show("data")["state"], "optimal");
    let lacks = dropped(&rig);
    std::fs::remove_file(&ballast).expect("removed");
    rig.run(&["fail", "noise", "1"]).ok();
    rig.stop_daemon();
    let text = std::fs::read_to_string(&log).expect("reads");
    let said = said_to_lack(&text);
    assert!(said >= lacks, "{said} said of {lacks}: {text}");
}

/// Each of them took 320 s, in which no other change of the array was possible.
#[test]
fn a_thread_that_stands_still_is_named_soon_and_nothing_is_done() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let (files, other) = (rig.files(3), rig.files_called("o", 2));
    let two = &["--export", "none", "--shards", "2"];
    rig.create("data", "1", two, &files[..2]).ok();
    rig.create("other", "1", two, &other).ok();
    let Some(mut holder) = manager::hold(manager::thread(&rig, "strake-data-1")) else {
        return skipped("no thread may be traced here");
    };
    let commands: [&[&str]; 6] = [
        &["fail", "data", "0"],
        &["fail", "data", "0", "--dry-run"],
        &["stop", "data"],
        &["stop", "data", "--dry-run"],
        &["add", "data", &files[2]],
        &["set", "data", "rebuild_priority=70"],
    ];
    for command in commands {
        let begun = Instant::now();
        let refused = within(&rig, 120, command);
        let refused = refused.refused(1, "array-silent");
        assert!(begun.elapsed() < Duration::from_secs(90), "{command:?}");
        let found = refused.json_error()["found"].to_string();
        let named = "thread 1 of the array has not answered for ";
        assert!(
            found.contains(named) && !found.contains("has begun"),
            "{command:?}: {found}"
        );
    }
    assert_eq!(rig.show("data")["state"], "unresponsive");
    within(&rig, 60, &["fail", "other", "0"]).ok();
    // What the error advises: the daemon ends in time, and the array comes back as it was.
    let pid = rig.daemon_pid().to_string();
    let asked = Command::new("kill").arg(&pid).status();
    assert!(asked.is_ok_and(|status| status.success()));
    let begun = Instant::now();
    rig.until("the next daemon to have a place", || {
        let lock = std::fs::File::open(rig.dir().join("lock")).expect("there");
        let operation = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&lock, operation).is_ok()
    });
    assert!(begun.elapsed() < Duration::from_secs(80));
    // Of a thread that was killed it is told, before its process is gone.
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    rig.stop_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    within(&rig, 60, &["fail", "data", "0"]).ok();
    within(&rig, 60, &["stop", "data"]).ok();
    rig.stop_daemon();
}

/// Threads had no time to answer, and were said to stand still.
#[test]
fn a_daemon_that_stood_still_says_nothing_of_its_threads() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let two = &["--export", "none", "--shards", "2"];
    rig.create("data", "1", two, &rig.files(2)).ok();
    let pid = rig.daemon_pid().to_string();
    let signal = |which: &str| {
        let sent = Command::new("kill").args([which, &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()));
    };
    let Some(mut holder) = manager::hold(manager::thread(&rig, "strake-data-1")) else {
        return skipped("no thread may be traced here");
    };
    // The command waits for the thread, and the daemon stands still for longer than that wait.
    let fail = spawn(&rig, &["fail", "data", "0"]);
    std::thread::sleep(Duration::from_secs(3));
    signal("-STOP");
    std::thread::sleep(Duration::from_secs(12));
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    signal("-CONT");
    let _ = fail.wait_with_output().expect("works");
    // Its client may have given up; the daemon has not.
    rig.until_state("data", "degraded");
    rig.stop_daemon();
}

/// Each of them waited for as long as the thread stood still.
#[test]
fn volumes_of_an_array_with_a_thread_that_stands_still_are_shown_and_not_changed() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let two = &["--export", "nbd", "--shards", "2"];
    rig.create("data", "1", two, &rig.files(2)).ok();
    rig.run(&["volume", "create", "data", "v", "--size", "1M"])
        .ok();
    let Some(mut holder) = manager::hold(manager::thread(&rig, "strake-data-1")) else {
        return skipped("no thread may be traced here");
    };
    let commands: [&[&str]; 5] = [
        &["volume", "create", "data", "w", "--size", "1M"],
        &["volume", "create", "data", "w", "--size", "1M", "--dry-run"],
        &["volume", "resize", "data", "v", "--size", "2M"],
        &["volume", "rename", "data", "v", "w"],
        &["volume", "delete", "data", "v", "-y"],
    ];
    for command in commands {
        let begun = Instant::now();
        let refused = within(&rig, 120, command).refused(1, "array-silent");
        assert!(begun.elapsed() < Duration::from_secs(90), "{command:?}");
        let found = refused.json_error()["found"].to_string();
        assert!(found.contains("nothing was done"), "{found}");
    }
    let shown = within(&rig, 60, &["volume", "show", "data"]).ok();
    assert!(
        shown.out.contains("\"v\"") && !shown.out.contains("\"w\""),
        "{shown:?}"
    );
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    within(&rig, 60, commands[0]).ok();
    rig.stop_daemon();
}

/// The array was asked for each of the drives, ten seconds each time.
#[test]
fn drives_are_cleaned_soon_beside_an_array_with_a_thread_that_stands_still() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let none = &["--export", "none", "--shards", "1"];
    let data = rig.files(2);
    rig.create("data", "1", none, &data).ok();
    let old = rig.files_called("old", 12);
    rig.create("old", "6", none, &old).ok();
    rig.run(&["stop", "old"]).ok();
    let Some(mut holder) = manager::hold(manager::thread(&rig, "strake-data-0")) else {
        return skipped("no thread may be traced here");
    };
    let mut clean = vec!["drive", "clean", "-y"];
    clean.extend(old.iter().map(String::as_str));
    within(&rig, 60, &clean).ok();
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    rig.until_state("data", "optimal");
    let own = ["drive", "clean", "-y", &data[1]];
    within(&rig, 60, &own).refused(4, "member-in-use");
    rig.stop_daemon();
}

/// What becomes of a change of volumes whose member hangs, and then a thread of the array.
#[test]
fn a_change_of_volumes_whose_end_is_not_known_says_so_and_no_other_begins_before_it_is_settled() {
    if !rig::is_root() {
        return skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    let Some(mut freezer) = Freezer::new(&rig) else {
        return;
    };
    rig.start_daemon_with(&["--io-timeout", "600"]);
    let two = &["--export", "nbd", "--shards", "2"];
    for name in ["a", "b"] {
        let members = [freezer.file(name), rig.file(&format!("{name}.1"), 64 << 20)];
        rig.create(name, "1", two, &members).ok();
    }
    let create = |array, volume| ["volume", "create", array, volume, "--size", "1M"];
    rig.run(&create("b", "old")).ok();
    freezer.freeze();
    let begun: Vec<_> = ["a", "b"]
        .map(|array| spawn(&rig, &create(array, "v")))
        .into();
    std::thread::sleep(Duration::from_secs(6));
    let hold = |array: &str| manager::hold(manager::thread(&rig, &format!("strake-{array}-1")));
    let holders: Vec<_> = ["a", "b"].into_iter().filter_map(hold).collect();
    if holders.len() < 2 {
        return skipped("no thread may be traced here");
    }
    let since = Instant::now();
    for command in begun {
        let output = command.wait_with_output().expect("works");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("command-unfinished"), "{said}");
    }
    assert!(since.elapsed() < Duration::from_secs(120));
    for array in ["a", "b"] {
        let refused = within(&rig, 60, &create(array, "w")).refused(4, "change-under-way");
        let found = refused.json_error()["found"].to_string();
        assert!(found.contains("has not ended a change"), "{found}");
        let shown = within(&rig, 60, &["volume", "show", array]).ok();
        assert!(!shown.out.contains("\"v\""), "{shown:?}");
    }
    freezer.thaw();
    for mut holder in holders {
        drop(holder.stdin.take());
        holder.wait().expect("it ends");
    }
    for array in ["a", "b"] {
        rig.until("a volume can be made", || {
            within(&rig, 60, &create(array, "v")).code == 0
        });
    }
    let over = |effect: &str| {
        let is = |e: &serde_json::Value| {
            e["event"] == "volume_change_in_doubt"
                && e["effect"].as_str().is_some_and(|all| all.contains(effect))
        };
        rig.event(effect, is);
    };
    over("takes volumes when it goes on");
    over("the array takes volumes now");
    over("it is taken back: the volumes are as before");
    for array in ["a", "b"] {
        within(&rig, 60, &["stop", array]).ok();
        within(&rig, 60, &["start", array]).ok();
    }
    let names = |array: &str| {
        let shown = within(&rig, 60, &["volume", "show", array]).ok().json();
        let all = shown["volumes"].as_array().expect("a list").clone();
        let name = |v: &serde_json::Value| v["name"].as_str().unwrap_or_default().to_owned();
        all.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(names("a"), ["v"]);
    assert_eq!(names("b"), ["old", "v"]);
    rig.stop_daemon();
}

/// It said nothing before its end, which may take three deadlines of 75 s.
#[test]
fn a_stop_that_waits_for_a_member_says_for_which_and_since_when() {
    if !rig::is_root() {
        return skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    let Some(mut freezer) = Freezer::new(&rig) else {
        return;
    };
    let members = [rig.file("m", 64 << 20), freezer.file("hangs")];
    rig.start_daemon_with(&["--io-timeout", "25"]);
    rig.create("z", "1", &["--export", "none"], &members).ok();
    freezer.freeze();
    let begun = Instant::now();
    let mut stop = spawn(&rig, &["stop", "z"]);
    let is = |e: &serde_json::Value| e["event"] == "stop_waits";
    rig.until("the daemon to tell", || rig.events().iter().any(is));
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(stop.try_wait().expect("ours").is_none(), "it waits");
    let told = rig.events().into_iter().find(is).expect("it was there");
    assert_eq!(told["slot"], 1, "{told}");
    assert_eq!(told["device"], members[1].as_str(), "{told}");
    let output = stop.wait_with_output().expect("works");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let of = format!("z: slot 1, {}: no answer to an I/O for ", members[1]);
    assert!(
        said.contains(&of) && said.contains("--io-timeout"),
        "{said}"
    );
    assert_eq!(said.matches(&of).count(), 1, "{said}");
    freezer.thaw();
    rig.stop_daemon();
}
