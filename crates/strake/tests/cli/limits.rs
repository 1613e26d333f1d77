//! What a daemon may not have on this machine is refused by name, and takes nothing else down.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::hung::within;
use crate::rig::{self, Rig};

const TOO_MUCH: u64 = 99_999 << 40;

#[test]
fn memory_that_the_machine_does_not_have_is_refused_to_its_array_alone() {
    let mut rig = Rig::new();
    rig.start_daemon();
    for name in ["a", "b"] {
        let devices = rig.files_called(name, 2);
        rig.create(name, "1", &["--export", "none"], &devices).ok();
    }
    rig.run(&["set", "a", "memory_limit=99999T"])
        .refused(4, "memory-short");
    rig.run(&["set", "a", "memory_limit=99999T", "--dry-run"])
        .refused(4, "memory-short");
    let more = rig.files_called("c", 2);
    let options = ["--memory-limit", "99999T"];
    rig.create("c", "1", &options, &more)
        .refused(4, "memory-short");
    // As a version that did not look left it behind.
    let uuid = rig.show("a")["uuid"].as_str().expect("a uuid").to_owned();
    let record = format!("{{\"memory_limit_bytes\":{TOO_MUCH}}}");
    rig.stop_daemon();
    fs::write(rig.dir().join(format!("placement/{uuid}.json")), record).expect("works");
    rig.start_daemon();
    rig.until("the other array to be served", || {
        rig.show("b")["state"] == "optimal"
    });
    rig.run(&["start", "a"]).refused(4, "memory-short");
    assert_eq!(rig.show("b")["state"], "optimal", "{}", rig.log());
    rig.stop_daemon();
    // It can be put right without a daemon.
    rig.run(&["set", "a", "memory_limit=99999T"])
        .refused(4, "memory-short");
    rig.run(&["set", "a", "memory_limit=auto"]).ok();
    rig.run(&["set", "a", "rebuild_priority=7"])
        .refused(1, "no-daemon");
    rig.start_daemon();
    rig.until("the array to be served", || {
        rig.show("a")["state"] == "optimal"
    });
}

#[test]
fn a_limit_of_address_space_is_told_and_ends_no_daemon() {
    let mut rig = Rig::new();
    // KiB.
    rig.start_daemon_limited("-v 4000000", &[]);
    let (small, large) = (rig.files_called("s", 2), rig.files_called("l", 2));
    rig.create("small", "1", &["--export", "none"], &small).ok();
    let options = ["--export", "none", "--memory-limit", "6G"];
    let refused = rig.create("large", "1", &options, &large);
    refused.refused(4, "memory-short");
    assert_eq!(rig.show("small")["state"], "optimal", "{}", rig.log());
}

/// Buffers were allowed the last byte of a limit, and the next allocation ended the daemon with all
/// arrays.
#[test]
fn limits_of_memory_refuse_an_array_by_name_and_end_no_daemon() {
    let mut rig = Rig::new();
    rig.start_daemon();
    for name in ["a", "b", "c"] {
        let devices = rig.files_called(name, 2);
        rig.create(name, "1", &["--export", "nbd"], &devices).ok();
    }
    rig.stop_daemon();
    let more = rig.files_called("more", 2);
    let (mut served, mut refused) = (0, 0);
    // KiB.
    let space = (600_000..=760_000).step_by(16_000).map(|n| ("-v", n));
    let data = (195_000..=260_000).step_by(6_500).map(|n| ("-d", n));
    for (option, kib) in space.chain(data) {
        let limit = format!("{option} {kib}");
        rig.start_daemon_limited(&limit, &["--shards", "2"]);
        let run = rig.create("more", "1", &["--export", "nbd"], &more);
        let all = within(&rig, 60, &["show"]).ok().json();
        let all = all.as_array().expect("a list").iter();
        served += all.filter(|array| array["state"] == "optimal").count();
        match run.code {
            0 => {
                rig.run(&["stop", "more"]).ok();
                rig.run(&["destroy", "more", "--yes"]).ok();
            }
            _ => {
                let run = run.refused(4, "memory-short");
                assert!(run.err.contains(&(kib << 10).to_string()), "{run:?}");
                assert!(run.err.contains("RLIMIT_"), "{run:?}");
                let found = run.json_error()["found"].to_string();
                assert!(!found.contains("was made"), "{limit}: {found}");
                refused += 1;
            }
        }
        rig.stop_daemon();
    }
    // On a busy machine arrays are still being started when they are counted.
    assert!(served > 3 && refused > 10, "{served}, {refused}");
    let log = rig.log();
    for wrong in ["io-error", "panicked", "memory allocation of"] {
        assert!(!log.contains(wrong), "{wrong}: {log}");
    }
}

/// Each was asked whether there is memory, and the last to start found none: it was made, and did
/// not start.
#[test]
fn of_two_arrays_that_are_made_at_once_none_is_made_without_the_memory_to_start() {
    let mut rig = Rig::new();
    let devices = ["a", "b"].map(|name| (name, rig.files_called(name, 2)));
    let (mut served, mut refused) = (0, 0);
    for kib in (460_000..=660_000).step_by(20_000) {
        rig.start_daemon_limited(&format!("-v {kib}"), &["--shards", "2"]);
        let runs = std::thread::scope(|scope| {
            let create = |(name, devices): &(&str, Vec<String>)| {
                rig.create(name, "1", &["--export", "nbd"], devices)
            };
            let both = [0, 1].map(|n| {
                scope.spawn({
                    let one = &devices[n];
                    move || create(one)
                })
            });
            both.map(|one| one.join().expect("no thread panics"))
        });
        for (run, (name, _)) in runs.into_iter().zip(&devices) {
            if run.code == 0 {
                served += 1;
                rig.run(&["stop", name]).ok();
                rig.run(&["destroy", name, "--yes"]).ok();
                continue;
            }
            let found = run.refused(4, "memory-short").json_error()["found"].to_string();
            assert!(!found.contains("was made"), "{kib}: {found}");
            refused += 1;
        }
        rig.stop_daemon();
    }
    assert!(served > 0 && refused > 0, "{served}, {refused}");
}

#[test]
fn a_daemon_that_may_have_too_little_memory_is_refused_with_the_limit() {
    let rig = Rig::new();
    for (limit, name) in [
        ("-d 20000", "RLIMIT_DATA, 20480000 bytes"),
        ("-d 40000", "RLIMIT_DATA, 40960000 bytes"),
        ("-v 60000", "RLIMIT_AS, 61440000 bytes"),
    ] {
        let script = format!("ulimit {limit} && exec \"$@\"");
        let by = ["sh", "-c", &script, "sh"].map(String::from);
        let (code, log) = begun(&rig, &by, rig::STRAKE);
        assert_eq!(code, Some(4), "{limit}: {log}");
        assert!(log.contains("memory-short"), "{limit}: {log}");
        assert!(log.contains(name), "{limit}: {log}");
    }
}

/// Superblocks were written, and the cure was to look at the drive.
#[test]
fn files_beyond_the_limit_of_a_file_are_refused_before_anything_is_written() {
    let mut rig = Rig::new();
    let devices = rig.files(2);
    // Blocks of 512 bytes: half of each file.
    rig.start_daemon_limited("-f 65536", &[]);
    for options in [&["--dry-run"][..], &["--export", "none"]] {
        let run = rig.create("data", "1", options, &devices);
        let run = run.refused(1, "no-space");
        assert!(run.err.contains("LimitFSIZE"), "{run:?}");
        assert!(run.err.contains("RLIMIT_FSIZE"), "{run:?}");
    }
    for device in &devices {
        assert!(rig::bytes(device).iter().all(|&byte| byte == 0), "{device}");
    }
    rig.stop_daemon();
    // One that is there already.
    rig.start_daemon();
    rig.create("data", "1", &["--export", "none"], &devices)
        .ok();
    rig.stop_daemon();
    rig.start_daemon_limited("-f 65536", &[]);
    let run = rig.run(&["start", "data"]).refused(1, "no-space");
    assert!(run.err.contains("LimitFSIZE"), "{run:?}");
}

#[test]
fn an_array_that_goes_gives_its_memory_back() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    let mapped = |rig: &Rig| {
        let status = fs::read_to_string(format!("/proc/{}/status", rig.daemon_pid()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|l| l.strip_prefix("VmData:"));
        let kib = line.and_then(|l| l.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.expect("a number") << 10
    };
    let options = ["--export", "none", "--memory-limit", "1G"];
    rig.create("data", "5", &options, &devices).ok();
    let served = mapped(&rig);
    rig.run(&["stop", "data"]).ok();
    rig.until(&format!("900 MiB less than {served}"), || {
        mapped(&rig) + (900 << 20) < served
    });
}

#[test]
fn few_descriptors_hold_up_nothing_and_are_told_of() {
    let mut rig = Rig::new();
    rig.start_daemon_limited("-n 64", &["--shards", "2"]);
    let mut refused = 0;
    for n in 0..8 {
        let name = format!("a{n}");
        let devices = rig.files_called(&name, 3);
        let mut args = vec!["create", &name, "--level", "5", "--export", "nbd"];
        args.extend(devices.iter().map(String::as_str));
        let run = within(&rig, 60, &args);
        if run.code != 0 {
            run.refused(4, "descriptors-short");
            refused += 1;
        }
        within(&rig, 60, &["show"]);
    }
    assert!((1..8).contains(&refused), "{refused} of 8 were refused");
    within(&rig, 60, &["stop", "a0"]).ok();
}

#[test]
fn the_soft_limit_of_descriptors_is_raised() {
    let mut rig = Rig::new();
    rig.start_daemon_limited("-S -n 128", &[]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", rig.daemon_pid()));
    let limits = limits.expect("it runs");
    let line = limits.lines().find(|l| l.starts_with("Max open files"));
    let mut words = line.expect("it is told").split_whitespace().skip(3);
    assert_eq!(words.next(), words.next(), "{limits}");
}

#[test]
fn clients_that_say_nothing_keep_nobody_from_the_api() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let silent: Vec<UnixStream> = (0..300)
        .filter_map(|_| {
            let mut stream = UnixStream::connect(rig.dir().join("api.sock")).ok()?;
            stream.write_all(b"GET /v1/arrays HTTP/1.1\r\n").ok()?;
            Some(stream)
        })
        .collect();
    within(&rig, 60, &["show"]).ok();
    drop(silent);
}

/// Each of them cost the next client 11 ms: behind 3000 the daemon was said to be silent.
#[test]
fn a_crowd_of_clients_that_say_nothing_is_passed_at_once() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let crowd = "import socket, sys, resource\n\
                 hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
                 resource.setrlimit(resource.RLIMIT_NOFILE, (min(4000, hard), hard))\n\
                 def one():\n s = socket.socket(socket.AF_UNIX)\n s.connect(sys.argv[1])\n\
                 \x20return s\n\
                 all = [one() for n in range(3000)]\n\
                 print('there', flush=True)\nsys.stdin.read()\n";
    let mut crowd = Command::new("python3")
        .args(["-c", crowd])
        .arg(rig.dir().join("api.sock"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let begun = Instant::now();
    let mut said = String::new();
    let out = crowd.stdout.take().expect("piped");
    let read = BufReader::new(out).read_line(&mut said);
    if read.is_err() || said != "there\n" {
        crowd.wait().expect("it ends");
        return rig::skipped("python3, or so many descriptors, cannot be had here");
    }
    within(&rig, 60, &["show"]).ok();
    assert!(
        begun.elapsed() < Duration::from_secs(28),
        "{:?}",
        begun.elapsed()
    );
    drop(crowd.stdin.take());
    crowd.wait().expect("it ends");
}

/// The daemon was said to be silent.
#[test]
fn a_command_for_which_no_descriptor_is_left_is_told_so_and_answered_when_one_is() {
    let mut rig = Rig::new();
    rig.start_daemon_limited("-n 64", &[]);
    let follow = |_| {
        let mut stream = UnixStream::connect(rig.dir().join("api.sock")).ok()?;
        let request = b"GET /v1/events?follow=true HTTP/1.1\r\nhost: strake\r\n\r\n";
        stream.write_all(request).ok()?;
        Some(stream)
    };
    let followers: Vec<UnixStream> = (0..60).filter_map(follow).collect();
    rig.until("no descriptor to be left", || {
        within(&rig, 60, &["status"]).code != 0
    });
    let told = within(&rig, 60, &["show"]).refused(4, "descriptors-short");
    let found = told.json_error()["found"].to_string();
    assert!(found.contains("limit 64"), "{found}");
    drop(followers);
    rig.until("descriptors", || within(&rig, 60, &["show"]).code == 0);
    rig.stop_daemon();
}

#[test]
fn a_terminal_that_goes_does_not_end_the_daemon() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let pid = rig.daemon_pid().to_string();
    let hung_up = Command::new("kill").args(["-HUP", &pid]).status();
    assert!(hung_up.expect("works").success());
    rig.run(&["show"]).ok();
    rig.until("the log to tell of it", || rig.log().contains("SIGHUP"));
    rig.stop_daemon();
}

#[test]
fn a_state_folder_that_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let rig = Rig::new();
    fs::create_dir(rig.dir()).expect("works");
    fs::set_permissions(rig.dir(), fs::Permissions::from_mode(0o777)).expect("works");
    let args = ["daemon", "--no-devices"];
    within(&rig, 60, &args).refused(4, "state-dir-not-ours");
}

/// Runs a program to which io_uring is forbidden, as containers do.
const FORBID: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
code = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
raw = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *op) for op in code))
prog = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(raw)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(prog), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn io_uring_that_is_forbidden_is_told_before_anything_is_written() {
    let mut rig = Rig::new();
    if !rig::has("python3") || !Path::new("/proc/sys/kernel/seccomp").exists() {
        return rig::skipped("python3 and seccomp are needed to forbid io_uring");
    }
    let devices = rig.files(3);
    rig.start_daemon_by(&["python3", "-c", FORBID], &[]);
    for options in [&["--dry-run"][..], &["--export", "none"]] {
        let run = rig.create("data", "5", options, &devices);
        run.refused(1, "no-io-uring");
    }
    for device in &devices {
        assert!(rig::bytes(device).iter().all(|&byte| byte == 0), "{device}");
    }
}

/// One ring was tried, and had what the rings of all shards did not have together: an array was
/// made that did not start.
#[test]
fn too_little_locked_memory_for_all_rings_is_told_before_anything_is_written() {
    if !rig::is_root() || !rig::has("setpriv") || !rig::has("prlimit") {
        return rig::skipped("it needs root, setpriv and prlimit");
    }
    let by = [
        "setpriv",
        "--bounding-set=-ipc_lock,-sys_resource",
        "prlimit",
    ];
    let mut served = 0;
    // From less than one ring takes to what is enough for four.
    for kib in [64, 160, 240, 320, 400, 640, 1280] {
        let mut rig = Rig::new();
        let limit = format!("--memlock={0}:{0}", kib << 10);
        let by: Vec<&str> = by.into_iter().chain([limit.as_str()]).collect();
        rig.start_daemon_by(&by, &["--shards", "4"]);
        let devices = rig.files(3);
        let run = rig.create("data", "5", &["--export", "none"], &devices);
        if run.code == 0 {
            served += 1;
            continue;
        }
        run.refused(1, "no-io-uring");
        for device in &devices {
            let blank = rig::bytes(device).iter().all(|&byte| byte == 0);
            assert!(blank, "{kib} KiB: {device} was written");
        }
    }
    assert!((1..6).contains(&served), "{served} of 7 were served");
}

/// An array was made, and could not be served for want of descriptors or memory: superblocks of it
/// were left.
#[test]
fn an_array_that_this_process_could_not_serve_is_refused_before_anything_is_written() {
    for (limit, code, option) in [
        ("-n 40", "descriptors-short", "--export=nbd"),
        ("-v 4000000", "memory-short", "--memory-limit=6G"),
    ] {
        let mut rig = Rig::new();
        rig.start_daemon_limited(limit, &["--shards", "2"]);
        let devices = rig.files(4);
        let run = rig.create("a", "5", &[option], &devices);
        run.refused(4, code);
        let blank = vec![0; 64 << 20];
        for device in &devices {
            assert!(rig::bytes(device) == blank, "{device} was written");
        }
        assert_eq!(rig.run(&["show", "a"]).code, 3, "{limit}");
    }
}

/// A cgroup with a limit; None where this user or this machine cannot make one.
struct Cgroup(std::path::PathBuf);

impl Cgroup {
    /// Of so many bytes of memory.
    fn new(rig: &Rig, bytes: u64) -> Option<Cgroup> {
        let kinds = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ];
        Cgroup::of(rig, kinds, bytes)
    }
    /// Of so many threads and processes.
    fn of_pids(rig: &Rig, most: u64) -> Option<Cgroup> {
        let kinds = [
            ("/sys/fs/cgroup/pids", "pids.max"),
            ("/sys/fs/cgroup", "pids.max"),
        ];
        Cgroup::of(rig, kinds, most)
    }
    /// Before the arguments of a program that is to be in it.
    fn enter(&self) -> [String; 4] {
        let procs = self.0.join("cgroup.procs").display().to_string();
        let enter = format!("echo $$ > {procs} && exec \"$@\"");
        ["sh".into(), "-c".into(), enter, "sh".into()]
    }
    fn of(rig: &Rig, kinds: [(&str, &str); 2], most: u64) -> Option<Cgroup> {
        let name = rig.dir().parent()?.file_name()?.to_owned();
        kinds.into_iter().find_map(|(root, limit)| {
            let cgroup = Cgroup(Path::new(root).join(&name));
            fs::create_dir(&cgroup.0).ok()?;
            let limited = cgroup.0.join(limit);
            let file = fs::OpenOptions::new().write(true).open(limited);
            let written = file.and_then(|mut file| file.write_all(most.to_string().as_bytes()));
            written.ok().map(|()| cgroup)
        })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let give_up = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while fs::remove_dir(&self.0).is_err() && std::time::Instant::now() < give_up {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

/// Connects many times, asks each time for more than its connection's memory, and reads nothing.
const READS_NOTHING: &str = r#"
import socket, struct, sys
kept = []
for path in sys.argv[1:]:
    for n in range(31):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(5)
        try:
            client.connect(path)
            client.recv(18)
            client.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 0))
            client.recv(10)
            for k in range(40):
                at = (k % 40) << 20
                client.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, k, at, 1 << 20))
        except OSError:
            pass
        kept.append(client)
print("connected", flush=True)
sys.stdin.read()
"#;

/// The kernel ended the daemon, and with it all arrays.
#[test]
fn clients_of_one_array_do_not_take_the_memory_of_all() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    if !rig::has("python3") {
        return rig::skipped("python3 is not installed");
    }
    let mut rig = Rig::new();
    let Some(cgroup) = Cgroup::new(&rig, 512 << 20) else {
        return rig::skipped("no memory cgroup can be made here");
    };
    rig.start_daemon_by(&cgroup.enter().each_ref().map(String::as_str), &[]);
    let (a, b) = (rig.files_called("a", 3), rig.files_called("b", 3));
    rig.create("a", "5", &["--export", "nbd"], &a).ok();
    rig.create("b", "5", &["--export", "nbd"], &b).ok();
    let mut clients = Command::new("python3")
        .args(["-c", READS_NOTHING])
        .args([rig.nbd("a"), rig.nbd("b")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut said = String::new();
    let out = clients.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut said).expect("it speaks");
    rig.until("a client to be refused", || {
        rig.log().contains("an NBD client is refused")
    });
    for name in ["a", "b"] {
        assert_eq!(rig.show(name)["state"], "optimal", "{}", rig.log());
    }
    drop(clients.stdin.take());
    clients.wait().expect("it ends");
    rig.until("clients to be taken again", || {
        let uri = format!("nbd+unix:///?socket={}", rig.nbd("a").display());
        let read = Command::new("qemu-io")
            .args(["-f", "raw", "-c", "read 0 4k", &uri])
            .output();
        read.map_or(true, |read| read.status.success())
    });
    rig.stop_daemon();
    drop(cgroup);
}

/// Answers at a socket as another user.
const ANOTHER: &str = r#"
import os, socket, sys
os.setuid(65534)
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen(5)
print("listens", flush=True)
sys.stdin.read()
"#;

/// "no arrays", exit 0: what another user's program said was believed.
#[test]
fn commands_do_not_believe_what_another_user_listens_with() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::chown;
    use std::process::Stdio;
    if !rig::is_root() || !rig::has("python3") {
        return rig::skipped("only root can be another user, by python3");
    }
    let rig = Rig::new();
    fs::create_dir_all(rig.dir()).expect("works");
    fs::set_permissions(rig.folder.path(), PermissionsExt::from_mode(0o711)).expect("ours");
    chown(rig.dir(), Some(65534), None).expect("root may");
    let socket = rig.dir().join("api.sock").display().to_string();
    let mut other = Command::new("python3")
        .args(["-c", ANOTHER, &socket])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut said = String::new();
    let out = other.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut said).expect("it speaks");
    for args in [&["show"][..], &["status"], &["stop", "x"]] {
        within(&rig, 60, args).refused(4, "state-dir-not-ours");
    }
    drop(other.stdin.take());
    other.wait().expect("it ends");
}

/// They took all descriptors, and no command was answered any more.
#[test]
fn clients_of_an_array_leave_descriptors_to_administration() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    if !rig::has("python3") {
        return rig::skipped("python3 is not installed");
    }
    let mut rig = Rig::new();
    rig.start_daemon_limited("-n 64", &[]);
    rig.create("a", "1", &["--export", "nbd"], &rig.files(2))
        .ok();
    let mut clients = Command::new("python3")
        .args(["-c", READS_NOTHING])
        .arg(rig.nbd("a"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 runs");
    let mut said = String::new();
    let out = clients.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut said).expect("it speaks");
    assert_eq!(
        within(&rig, 60, &["show", "a"]).ok().json()["state"],
        "optimal"
    );
    within(&rig, 60, &["fail", "a", "0"]).ok();
    rig.until("a client to be refused", || {
        rig.log().contains("an NBD client is refused")
    });
    drop(clients.stdin.take());
    clients.wait().expect("it ends");
}

/// Runs a daemon by a program, until it answers or ends: its exit code if it ended, and its log.
fn begun(rig: &Rig, by: &[String], strake: &str) -> (Option<i32>, String) {
    let log = rig.path("begun.log");
    let file = fs::File::create(&log).expect("made");
    let mut child = Command::new(&by[0])
        .args(&by[1..])
        .args([strake, "--json", "daemon", "--no-devices"])
        .env("STRAKE_DIR", rig.dir())
        .stderr(file)
        .spawn()
        .expect("it runs");
    let mut ended = None;
    rig.until("the daemon to answer or to end", || {
        ended = child.try_wait().expect("ours");
        ended.is_some() || UnixStream::connect(rig.dir().join("api.sock")).is_ok()
    });
    if ended.is_none() {
        assert!(rig::end(child), "it ends when it is asked to");
    }
    let log = fs::read_to_string(log).expect("written");
    (ended.and_then(|status| status.code()), log)
}

/// A thread that could not be made was a panic, and where it was not: want of memory.
#[test]
fn a_daemon_that_can_make_too_few_threads_is_refused_with_what_ran_out_and_never_panics() {
    let rig = Rig::new();
    let mut refused = 0;
    for most in [1, 2, 3, 4, 6, 8, 10, 12, 16] {
        let Some(cgroup) = Cgroup::of_pids(&rig, most) else {
            return rig::skipped("no cgroup of pids can be made here");
        };
        let (code, log) = begun(&rig, &cgroup.enter(), rig::STRAKE);
        assert!(!log.contains("panicked"), "{most}: {log}");
        if let Some(code) = code {
            assert_eq!(code, 4, "{most}: {log}");
            assert!(log.contains("threads-short"), "{most}: {log}");
            assert!(log.contains("errno 11"), "{most}: {log}");
            assert!(log.contains(&format!("of pids.max {most} in")), "{log}");
            refused += 1;
        }
    }
    assert!((4..9).contains(&refused), "{refused} of 9 were refused");
}

#[test]
fn the_limit_of_a_users_processes_is_named() {
    if !rig::is_root() || !rig::has("setpriv") || !rig::has("prlimit") {
        return rig::skipped("it needs root, setpriv and prlimit");
    }
    let rig = Rig::new();
    // No other process has it.
    let user = 60_000 + std::process::id() % 5000;
    std::os::unix::fs::chown(rig.folder.path(), Some(user), Some(user)).expect("root may");
    // The binary lies where that user may not go, perhaps.
    let program = rig.path("strake");
    fs::copy(rig::STRAKE, &program).expect("copied");
    let user = user.to_string();
    let by = [
        "setpriv",
        "--reuid",
        &user,
        "--regid",
        &user,
        "--clear-groups",
        "prlimit",
    ];
    let by: Vec<String> = by
        .into_iter()
        .chain(["--nproc=3:3"])
        .map(String::from)
        .collect();
    let (code, log) = begun(&rig, &by, &program);
    assert_eq!(code, Some(4), "{log}");
    assert!(log.contains("threads-short"), "{log}");
    let named = format!("RLIMIT_NPROC 3 of user {user}");
    assert!(log.contains(&named) && !log.contains("panicked"), "{log}");
}

#[test]
fn an_array_that_can_have_too_few_threads_is_refused_alone() {
    let mut rig = Rig::new();
    let Some(cgroup) = Cgroup::of_pids(&rig, 60) else {
        return rig::skipped("no cgroup of pids can be made here");
    };
    let by = cgroup.enter();
    rig.start_daemon_by(&by.each_ref().map(String::as_str), &["--shards", "4"]);
    let create = |n: usize| {
        let name = format!("a{n}");
        let devices = rig.files_called(&name, 2);
        let mut args = vec!["create", &name, "--level", "1", "--export", "nbd"];
        args.extend(devices.iter().map(String::as_str));
        within(&rig, 60, &args)
    };
    let mut made = 0;
    while made < 12 {
        let run = create(made);
        if run.code != 0 {
            let run = run.refused(4, "threads-short");
            assert!(run.err.contains("of pids.max 60 in"), "{run:?}");
            break;
        }
        made += 1;
    }
    assert!((1..12).contains(&made), "{made} of 12 were made");
    // Threads of the kernel that flush may take the last ones for a moment, and end when they are
    // idle.
    let done = |args: &[&str]| within(&rig, 60, args).code == 0;
    rig.until("room for a request", || done(&["show"]));
    let all = within(&rig, 60, &["show"]).ok().json();
    let all = all.as_array().expect("a list").clone();
    assert_eq!(all.len(), made, "nothing was written for the last: {all:?}");
    assert!(
        all.iter().all(|array| array["state"] == "optimal"),
        "{all:?}"
    );
    rig.until("an array to be stopped", || done(&["stop", "a0"]));
    rig.until("there to be room", || create(12).code == 0);
    let log = rig.log();
    assert!(!log.contains("panicked"), "{log}");
    rig.stop_daemon();
}

#[test]
fn an_array_goes_on_where_threads_run_out_and_commands_are_refused_with_the_cause() {
    let mut rig = Rig::new();
    let Some(cgroup) = Cgroup::of_pids(&rig, 200) else {
        return rig::skipped("no cgroup of pids can be made here");
    };
    let limit = |most: &str| fs::write(cgroup.0.join("pids.max"), most).expect("ours");
    rig.start_daemon_by(&cgroup.enter().each_ref().map(String::as_str), &[]);
    rig.create("a", "1", &["--export", "nbd"], &rig.files(2))
        .ok();
    if rig.qemu_io("a", &["write 0 4M", "flush"]).is_none() {
        return;
    }
    let uri = format!("nbd+unix:///?socket={}", rig.nbd("a").display());
    let writer = Command::new("qemu-io")
        .args(["-f", "raw", "-c", "write -P 7 0 1M", "-c", "sleep 15000"])
        .args(["-c", "write -P 8 1M 1M", "-c", "flush", &uri])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it runs");
    // Long enough for those of the kernel's threads that are idle to end, and not for the pause.
    let pause = |ms| std::thread::sleep(std::time::Duration::from_millis(ms));
    pause(9000);
    let there = |_| {
        pause(20);
        let there = fs::read_to_string(cgroup.0.join("pids.current")).expect("counted");
        there.trim().parse::<u64>().expect("a number")
    };
    let least = (0..100).map(there).min();
    limit(&least.expect("some").to_string());
    // A command needs a thread; it is refused with what ran out.
    within(&rig, 60, &["show", "a"]).refused(4, "threads-short");
    let written = writer.wait_with_output().expect("it ends");
    assert!(written.status.success(), "{written:?}");
    limit("200");
    rig.qemu_io("a", &["read -P 7 0 1M", "read -P 8 1M 1M"]);
    assert_eq!(rig.show("a")["state"], "optimal", "{}", rig.log());
    let out = |e: &serde_json::Value| e["event"] == "member_out";
    assert!(!rig.events().iter().any(out), "{:?}", rig.events());
    assert!(!rig.log().contains("panicked"), "{}", rig.log());
    rig.stop_daemon();
}

/// By default any of them ends a process.
#[test]
fn signals_without_a_meaning_end_no_daemon_and_reach_its_programs_as_usual() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let pid = rig.daemon_pid().to_string();
    for name in [
        "USR1", "USR2", "ALRM", "VTALRM", "PROF", "IO", "PWR", "STKFLT", "XCPU", "XFSZ", "34", "64",
    ] {
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.expect("works").success(), "{name}");
        assert_eq!(within(&rig, 60, &["show"]).code, 0, "{name}: {}", rig.log());
    }
    // What is ignored stays so in a program that is begun; what is caught does not.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let ignored = |status: &str| {
        let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
        u64::from_str_radix(ignored.expect("a line").trim(), 16).expect("a number")
    };
    let inherited = fs::read_to_string("/proc/self/status").expect("it runs");
    let sent = [10, 12, 14, 16, 24, 25, 26, 27, 29, 30, 34, 64];
    let sent: u64 = sent.map(|number| 1 << (number - 1)).iter().sum();
    assert_eq!(ignored(&status) & !ignored(&inherited) & sent, 0);
    rig.stop_daemon();
}

#[test]
fn an_array_without_inotify_serves_and_the_log_says_what_is_not_noticed() {
    let forbid = "echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"";
    let by = [
        "unshare",
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        forbid,
        "sh",
    ];
    let tried = Command::new(by[0]).args(&by[1..]).arg("true").status();
    if !rig::is_root() || !tried.is_ok_and(|status| status.success()) {
        return rig::skipped("inotify cannot be forbidden by a user namespace here");
    }
    let mut rig = Rig::new();
    rig.start_daemon_by(&by, &[]);
    rig.create("a", "1", &["--export", "nbd"], &rig.files(2))
        .ok();
    rig.until("the log to say so", || rig.log().contains("no inotify"));
    rig.qemu_io("a", &["write -P 7 0 1M", "read -P 7 0 1M"]);
    rig.stop_daemon();
}
