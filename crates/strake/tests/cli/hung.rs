//! What hangs holds up nothing else: a device, the daemon, a client.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::config::{HEAD, destroy};
use crate::manager;
use crate::rig::{self, Rig, Run, STRAKE};

/// A file system in a file, with writes that can be made to hang.
pub(crate) struct Freezer {
    folder: PathBuf,
    frozen: bool,
}

fn run(program: &str, args: &[&str]) -> bool {
    let status = Command::new(program)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

impl Freezer {
    /// None where this machine cannot have one.
    pub(crate) fn new(rig: &Rig) -> Option<Freezer> {
        Freezer::at(rig, PathBuf::from(rig.path("freezer")))
    }
    pub(crate) fn at(rig: &Rig, folder: PathBuf) -> Option<Freezer> {
        let image = rig.file("freezer.img", 256 << 20);
        std::fs::create_dir(&folder).expect("works");
        let shown = folder.display().to_string();
        let made =
            run("mkfs.ext4", &["-q", &image]) && run("mount", &["-o", "loop", &image, &shown]);
        let freezer = Freezer {
            folder,
            frozen: false,
        };
        if !made {
            rig::skipped("no ext4 on a loop device can be mounted here");
            std::mem::forget(freezer);
            return None;
        }
        Some(freezer)
    }
    pub(crate) fn file(&self, name: &str) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, vec![0; 64 << 20]).expect("works");
        path.display().to_string()
    }
    pub(crate) fn freeze(&mut self) {
        assert!(run("fsfreeze", &["-f", &self.folder.display().to_string()]));
        self.frozen = true;
    }
    pub(crate) fn thaw(&mut self) {
        if std::mem::take(&mut self.frozen) {
            assert!(run("fsfreeze", &["-u", &self.folder.display().to_string()]));
        }
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        let folder = self.folder.display().to_string();
        let give_up = Instant::now() + Duration::from_secs(60);
        while !run("umount", &[&folder]) {
            if Instant::now() > give_up {
                // A test that failed leaves a daemon with files there, which is yet to end.
                run("umount", &["-l", &folder]);
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Runs a command that must end by itself within so many seconds.
pub(crate) fn within(rig: &Rig, seconds: u64, args: &[&str]) -> Run {
    let mut command = Command::new("timeout");
    command
        .args(["-s", "KILL", &seconds.to_string(), STRAKE, "--json"])
        .args(args)
        .env("STRAKE_DIR", rig.dir())
        .stdin(Stdio::null());
    let run = rig.run_command(&mut command);
    assert!(
        run.code != 137 && run.code != -1,
        "no answer within {seconds} s: {args:?}"
    );
    run
}

pub(crate) fn spawn(rig: &Rig, args: &[&str]) -> Child {
    let mut command = rig.command();
    command.arg("--json").args(args);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().expect("works")
}

#[test]
fn one_hung_member_holds_up_no_other_array_and_the_stop_names_it() {
    if !rig::is_root() {
        return rig::skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    let Some(mut freezer) = Freezer::new(&rig) else {
        return;
    };
    let mut z = rig.files_called("z", 3);
    let hangs = freezer.folder.join("m").display().to_string();
    std::fs::write(&hangs, vec![0; 64 << 20]).expect("works");
    z.push(hangs.clone());
    let y = rig.files_called("y", 4);
    // The others answer within it on a busy machine too.
    rig.start_daemon_with(&["--io-timeout", "8"]);
    rig.create("z", "5", &["--export", "nbd"], &z).ok();
    rig.create("y", "5", &["--export", "nbd"], &y[..3]).ok();
    if rig.qemu_io("z", &["write 0 4M", "flush"]).is_none() {
        return;
    }
    freezer.freeze();
    let uri = format!("nbd+unix:///?socket={}", rig.nbd("z").display());
    let mut writer = Command::new("qemu-io")
        .args(["-f", "raw", "-c", "write -P 7 0 4M", "-c", "flush", &uri])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("works");
    // Long enough for the write to be under way; the case is the same if the member is out already.
    rig.until("the member to be put out", || {
        rig.show("z")["state"] == "degraded"
    });
    let stop = spawn(&rig, &["stop", "z"]);
    within(&rig, 60, &["set", "y", "rebuild_priority=70"]).ok();
    within(&rig, 60, &["fail", "y", "0"]).ok();
    within(&rig, 60, &["add", "y", &y[3]]).ok();
    rig.until_state("y", "optimal");
    let output = stop.wait_with_output().expect("works");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains(&hangs), "the stop names the device: {said}");
    let _ = writer.kill();
    let _ = writer.wait();
    // The others are free, and the array goes on without the one that is not.
    let started = within(&rig, 60, &["start", "z", "--export", "nbd"]);
    assert_eq!(started.code, 5, "{started:?}");
    assert_eq!(rig.show("z")["state"], "degraded");
    rig.qemu_io("z", &["read 0 4M"]);
    within(&rig, 60, &["stop", "z"]).ok();
    freezer.thaw();
    within(&rig, 60, &["stop", "y"]).ok();
    rig.stop_daemon();
}

/// The daemon stayed until the deadlines of the member's I/O: 83 s with those that it has by
/// itself.
#[test]
fn the_end_of_the_daemon_does_not_wait_for_the_deadlines_of_a_member_that_hangs() {
    use rustix::fs::FlockOperation;
    if !rig::is_root() {
        return rig::skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    let Some(mut freezer) = Freezer::new(&rig) else {
        return;
    };
    let mut z = rig.files_called("z", 2);
    let hangs = freezer.folder.join("m").display().to_string();
    std::fs::write(&hangs, vec![0; 64 << 20]).expect("works");
    z.push(hangs);
    let y = rig.files_called("y", 2);
    rig.start_daemon();
    rig.create("z", "5", &["--export", "nbd"], &z).ok();
    rig.create("y", "1", &["--export", "nbd"], &y).ok();
    if rig.qemu_io("z", &["write -P 7 0 4M", "flush"]).is_none() {
        return;
    }
    freezer.freeze();
    assert!(run("kill", &[&rig.daemon_pid().to_string()]));
    let begun = Instant::now();
    let is_free = |path: &str| {
        let file = std::fs::File::open(path).expect("there");
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    };
    rig.until("the other array to be let go", || {
        y.iter().all(|f| is_free(f))
    });
    assert!(begun.elapsed() < Duration::from_secs(40));
    let lock = rig.dir().join("lock").display().to_string();
    rig.until("the next daemon to have a place", || is_free(&lock));
    assert!(begun.elapsed() < Duration::from_secs(70), "{}", rig.log());
    let stopped = rig.events();
    let of = |name: &str| {
        let is = |e: &&serde_json::Value| e["event"] == "stopped" && e["array"] == name;
        let found = stopped.iter().find(is).expect("an event");
        found["effect"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(of("y"), "clean");
    assert!(of("z").starts_with("not clean"), "{}", of("z"));
    freezer.thaw();
    rig.stop_daemon();
    // As after a kill: it comes back, with all that was acknowledged.
    rig.start_daemon();
    rig.until("z to serve", || rig.show("z")["state"] == "optimal");
    rig.qemu_io("z", &["read -P 7 0 4M"]);
}

/// It was shown as stopped, left out of backups and of `stop --all`, and held up every look.
#[test]
fn an_array_with_a_thread_that_hangs_is_unresponsive_and_hides_no_other() {
    let mut rig = Rig::new();
    let (data, other) = (rig.files_called("d", 2), rig.files_called("o", 2));
    let third = rig.files_called("t", 2);
    rig.start_daemon();
    let none = &["--export", "none"];
    rig.create("data", "1", none, &data).ok();
    rig.create("other", "1", none, &other).ok();
    let Some(mut holder) = manager::hold(manager::thread(&rig, "strake-data-0")) else {
        return rig::skipped("no thread may be traced here");
    };
    // The watcher looks at all superblocks two seconds after an array was made.
    rig.create("third", "1", none, &third).ok();
    let all = within(&rig, 60, &["show"]).json();
    assert_eq!(all[0]["state"], "unresponsive", "{all}");
    assert_eq!(all[0]["members"][1]["device"], data[1].as_str(), "{all}");
    assert_eq!(all[1]["state"], "optimal", "{all}");
    let one = within(&rig, 60, &["show", "data"]);
    assert_eq!(one.code, 9, "{one:?}");
    let status = within(&rig, 60, &["status"]);
    assert!(
        status.out.contains("its threads do not answer"),
        "{status:?}"
    );
    assert_eq!(within(&rig, 60, &["status", "other"]).code, 0);
    // As long as Prometheus waits.
    let asked = Instant::now();
    let mut metrics = rig.ask("GET", "/metrics");
    let mut took = asked.elapsed();
    for _ in 0..2 {
        if took >= Duration::from_secs(10) {
            let asked = Instant::now();
            metrics = rig.ask("GET", "/metrics");
            took = asked.elapsed();
        }
    }
    assert!(took < Duration::from_secs(10), "{took:?}");
    for line in [
        "strake_array_state{array=\"data\",state=\"unresponsive\"} 1\n",
        "strake_array_state{array=\"other\",state=\"optimal\"} 1\n",
        "strake_members_not_in_sync{array=\"other\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    let backup = rig.path("backup.toml");
    within(&rig, 60, &["config", "backup", &backup]).ok();
    let backup = std::fs::read_to_string(&backup).expect("written");
    for name in ["data", "other"] {
        assert!(
            backup.contains(&format!("\"name\": \"{name}\"")),
            "{backup}"
        );
    }
    let planned = within(&rig, 60, &["stop", "--all", "--dry-run"]);
    assert!(format!("{planned:?}").contains("data"), "{planned:?}");
    let list = within(&rig, 60, &["show"]).json();
    assert_eq!(list.as_array().map(Vec::len), Some(3), "{list}");
    // It goes on when the one that traces it ends.
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    within(&rig, 60, &["stop", "data"]).ok();
    assert_eq!(rig.show("data")["state"], "stopped");
    within(&rig, 60, &["start", "data", "--export", "none"]).ok();
    rig.until_state("data", "optimal");
    let events = rig.events();
    let is_out = |e: &serde_json::Value| e["event"] == "member_returned";
    assert!(!events.iter().any(is_out), "it serves them: {events:?}");
    rig.stop_daemon();
}

/// `added`, exit 0, of a device that was out again by then, and an event without device or cause.
#[test]
fn a_device_that_hangs_as_it_joins_is_not_said_to_have_joined() {
    if !rig::is_root() {
        return rig::skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    let Some(mut freezer) = Freezer::new(&rig) else {
        return;
    };
    let hangs = freezer.file("hangs");
    let y = rig.files_called("y", 2);
    rig.start_daemon_with(&["--io-timeout", "5"]);
    rig.create("y", "1", &["--export", "none"], &y).ok();
    freezer.freeze();
    within(&rig, 120, &["add", "y", &hangs]).refused(4, "device-silent");
    let is = |e: &serde_json::Value| e["event"] == "removed" && e["device"] == hangs.as_str();
    let removed = rig.event("the removal", is);
    assert_eq!(removed["cause"], "timed_out", "{removed}");
    assert_eq!(rig.show("y")["spares"], serde_json::json!([]));
    freezer.thaw();
    rig.stop_daemon();
}

/// It was told to be an error of one member: neither the array was said to be out of service, nor
/// the device to be busy, and no event was noted.
#[test]
fn a_stop_that_is_not_clean_names_what_stays_busy_and_is_an_event() {
    if !rig::is_root() {
        return rig::skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    let Some(mut freezer) = Freezer::new(&rig) else {
        return;
    };
    let mut z = rig.files_called("z", 1);
    let hangs = freezer.file("m");
    z.push(hangs.clone());
    rig.start_daemon_with(&["--io-timeout", "5"]);
    rig.create("z", "0", &["--export", "none"], &z).ok();
    freezer.freeze();
    let stop = within(&rig, 180, &["stop", "z"]);
    assert_eq!(stop.code, 1, "{stop:?}");
    let found = stop.json_error()["found"].to_string();
    assert!(
        found.contains("z is out of service and was not stopped cleanly")
            && found.contains(&format!("the kernel still has I/O on {hangs}")),
        "{found}"
    );
    let events = rig.events();
    let is = |e: &&serde_json::Value| e["event"] == "stopped" && e["array"] == "z";
    let stopped = events.iter().find(is).expect("an event");
    let effect = stopped["effect"].as_str().unwrap_or_default();
    assert!(effect.starts_with("not clean"), "{stopped}");
    assert!(stopped["cause"].to_string().contains(&hangs), "{stopped}");
    freezer.thaw();
    rig.until("z to serve again", || {
        within(&rig, 60, &["start", "z", "--export", "none"]).code == 0
    });
    within(&rig, 60, &["stop", "z"]).ok();
    rig.stop_daemon();
}

/// A stop took as long as the file system hung, and so did whatever came after it.
#[test]
fn a_state_folder_that_hangs_holds_up_no_command() {
    if !rig::is_root() {
        return rig::skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    let Some(mut freezer) = Freezer::at(&rig, rig.dir()) else {
        return;
    };
    let (a, b) = (rig.files_called("a", 2), rig.files_called("b", 2));
    let d = rig.file("d", 64 << 20);
    rig.start_daemon();
    rig.create("a", "1", &["--export", "none"], &a).ok();
    rig.create("b", "1", &["--export", "nbd"], &b).ok();
    rig.create("c", "1", &["--export", "none"], &rig.files_called("c", 2))
        .ok();
    within(&rig, 60, &["stop", "c"]).ok();
    let turn = rig.dir().join("known-files.lock");
    std::fs::remove_file(&turn).expect("it was made with a");
    freezer.freeze();
    let set = within(&rig, 80, &["set", "a", "memory_limit=1G"]);
    assert_eq!(set.code, 1, "{set:?}");
    let found = set.json_error()["found"].to_string();
    assert!(found.contains("has not answered for 15 seconds"), "{found}");
    within(&rig, 80, &["fail", "a", "0"]).ok();
    within(&rig, 80, &["stop", "b"]).ok();
    // The lock of what is known is not there, and was opened without a bound.
    let added = within(&rig, 120, &["add", "a", &d]).ok();
    let notes = added.json()["notes"].to_string();
    assert!(notes.contains("are not remembered"), "{notes}");
    // The folder of what was destroyed was never made.
    within(&rig, 80, &["destroy", "c", "-y"]).ok();
    let events = within(&rig, 80, &["events", "--json"]).out;
    assert!(events.contains("member_out"), "{events}");
    freezer.thaw();
    let limit = rig.show("a")["settings"]["memory_limit_bytes"].clone();
    assert_ne!(limit, 1u64 << 30, "it was given up");
    // What was given up may still be at its end.
    rig.until("the file system to answer", || {
        within(&rig, 80, &["set", "a", "memory_limit=1G"]).code == 0
    });
    within(&rig, 60, &["start", "b", "--export", "none"]).ok();
    rig.stop_daemon();
}

/// Such a device was waited for, and the change was under way for all that time.
#[test]
fn a_daemon_refuses_devices_that_hang_and_goes_on_with_others() {
    if !rig::is_root() {
        return rig::skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    let d = rig.files(4);
    rig.start_daemon();
    rig.create("old", "1", &["--export", "none"], &d[2..4]).ok();
    within(&rig, 60, &["stop", "old"]).ok();
    let Some(hung) = HungDevice::new(&rig) else {
        return;
    };
    let path = hung.path.as_str();
    let of_it: [&[&str]; 4] = [
        &["create", "n", "--level", "1", &d[0], path],
        &["drive", "clean", "-y", path],
        &["start", "other", path],
        &["import", "other", path],
    ];
    for (run, args) in all_within(&rig, 120, &of_it).into_iter().zip(of_it) {
        assert!(run.err.contains("device-silent"), "{args:?}: {run:?}");
        assert_eq!(run.code, 4, "{args:?}: {run:?}");
    }
    within(&rig, 60, &["create", "n", "--level", "1", &d[0], &d[1]]).ok();
    within(&rig, 60, &["drive", "clean", "-y", &d[2]]).ok();
}

/// All pools had one key, which was held as long as a device of one of them did not answer.
#[test]
fn a_pool_device_that_hangs_costs_its_own_pool_and_nothing_else() {
    if !rig::is_root() {
        return rig::skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    let Some(mut freezer) = Freezer::new(&rig) else {
        return;
    };
    let (first, hangs) = (freezer.file("first"), freezer.file("hangs"));
    let d = rig.files(5);
    rig.start_daemon();
    rig.run(&["pool", "create", "p", &first]).ok();
    rig.run(&["pool", "create", "q", &d[3]]).ok();
    let options = ["--export", "none", "--pool", "q"];
    rig.create("y", "1", &options, &d[..2]).ok();
    freezer.freeze();
    let mut adding = spawn(&rig, &["pool", "add", "p", &hangs]);
    let under_way = || {
        // Before the other has begun it is refused for another reason.
        let refused = within(&rig, 60, &["pool", "create", "p", &first]);
        let found = refused.json_error()["found"].to_string();
        refused.code != 0 && found.contains("the pool p") && found.contains("strake pool add")
    };
    rig.until("the change of p to be under way", under_way);
    // It writes nothing: it waits for no change, and is refused for none.
    let at_once = (0..3).any(|_| {
        let begun = Instant::now();
        within(&rig, 60, &["pool", "remove", "p", &first, "--dry-run"]).ok();
        begun.elapsed() < Duration::from_secs(8)
    });
    assert!(at_once, "it waits");
    within(&rig, 60, &["pool", "create", "r", &d[4]]).ok();
    within(&rig, 60, &["pool", "remove", "r", &d[4]]).ok();
    within(&rig, 60, &["fail", "y", "0"]).ok();
    rig.until_state("y", "optimal");
    let shown = rig.show("y");
    assert!(shown["members"].to_string().contains(&d[3]), "{shown}");
    assert!(adding.try_wait().expect("works").is_none(), "it hangs");
    freezer.thaw();
    assert!(adding.wait().expect("works").success());
    let shown = rig.run(&["pool", "show", "p"]).ok().json();
    assert_eq!(shown["devices"].as_array().map(Vec::len), Some(2));
    rig.stop_daemon();
}

#[test]
fn a_member_that_somebody_else_holds_is_missing_and_does_not_keep_the_array_from_its_start() {
    use rustix::fs::FlockOperation;
    let mut rig = Rig::new();
    let (data, pair) = (rig.files_called("d", 4), rig.files_called("p", 2));
    rig.start_daemon();
    rig.create("data", "5", &["--export", "none"], &data).ok();
    rig.create("pair", "1", &["--export", "none"], &pair).ok();
    rig.run(&["stop", "data"]).ok();
    rig.run(&["stop", "pair"]).ok();
    let lock = |path: &String| {
        let file = std::fs::File::open(path).expect("works");
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).expect("free");
        file
    };
    let held = [lock(&data[1]), lock(&pair[1])];
    let started = within(&rig, 60, &["start", "data", "--export", "none"]);
    assert_eq!(started.code, 5, "{started:?}");
    assert_eq!(started.json()["state"], "degraded");
    // Half of this one is held: the holder may serve the array with it alone.
    within(&rig, 60, &["start", "pair", "--export", "none"]).refused(4, "device-busy");
    drop(held);
    rig.run(&["start", "pair", "--export", "none"]).ok();
}

#[test]
fn a_daemon_that_is_stopped_is_told_of_and_waited_for_no_longer() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let pid = rig.daemon_pid().to_string();
    assert!(run("kill", &["-STOP", &pid]));
    for (args, later) in [
        (&["show"][..], false),
        (&["set", "x", "rebuild_priority=7"], true),
    ] {
        let run = within(&rig, 60, args);
        let found = run.json_error()["found"].to_string();
        run.refused(1, "daemon-silent");
        assert_eq!(found.contains("be done later"), later, "{found}");
    }
    assert!(run("kill", &["-CONT", &pid]));
    within(&rig, 60, &["show"]).ok();
    rig.stop_daemon();
}

/// A block device that answers nothing, by a write that its frozen file system holds up.
pub(crate) struct HungDevice {
    freezer: Freezer,
    pub(crate) path: String,
    writer: Child,
}

impl HungDevice {
    /// None where this machine cannot have one.
    pub(crate) fn new(rig: &Rig) -> Option<HungDevice> {
        let mut freezer = Freezer::new(rig)?;
        let file = freezer.file("m");
        let mut setup = Command::new("losetup");
        let made = setup.args(["-f", "--show", &file]).output();
        let made = made.expect("it runs");
        let path = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        assert!(made.status.success() && !path.is_empty(), "{made:?}");
        freezer.freeze();
        let writer = Command::new("dd")
            .args(["if=/dev/urandom", "bs=1M", "count=8", "oflag=direct"])
            .arg(format!("of={path}"))
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        // In a state that no signal ends, for a while: the write is under way.
        let stat = format!("/proc/{}/stat", writer.id());
        let waits = || std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") D "));
        rig.until("a write to hang", waits);
        std::thread::sleep(Duration::from_millis(1500));
        Some(HungDevice {
            freezer,
            path,
            writer,
        })
    }
}

impl Drop for HungDevice {
    fn drop(&mut self) {
        self.freezer.thaw();
        let _ = self.writer.wait();
        let give_up = Instant::now() + Duration::from_secs(60);
        while !run("losetup", &["-d", &self.path]) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// What comes of commands that are begun at the same time, each within so many seconds: one that a
/// device holds up cannot even be killed.
pub(crate) fn all_within(rig: &Rig, seconds: u64, all: &[&[&str]]) -> Vec<Run> {
    let until = Instant::now() + Duration::from_secs(seconds);
    let begun = all.iter().map(|args| (spawn(rig, args), args));
    let begun: Vec<_> = begun.collect();
    let ended = begun.into_iter().map(|(mut child, args)| {
        while child.try_wait().expect("ours").is_none() {
            assert!(
                Instant::now() < until,
                "no end within {seconds} s: {args:?}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = child.wait_with_output().expect("it ended");
        Run {
            code: output.status.code().expect("it was not killed"),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    });
    ended.collect()
}

/// Commands waited for such a device for good, and no signal ended them.
#[test]
fn commands_without_a_daemon_end_although_a_device_of_the_machine_hangs_and_name_it() {
    if !rig::is_root() {
        return rig::skipped("only root can freeze a file system");
    }
    let rig = Rig::new();
    let d = rig.files(5);
    rig.run(&[
        "create", "old", "--level", "1", "--export", "none", &d[2], &d[3],
    ])
    .ok();
    let Some(hung) = HungDevice::new(&rig) else {
        return;
    };
    let path = hung.path.as_str();
    let no_answer = format!("{path}: no answer");
    let looks: [&[&str]; 7] = [
        &["status"],
        &["show"],
        &["scan"],
        &["doctor"],
        &["pool", "show"],
        &["config", "backup"],
        &["show", "old"],
    ];
    for (run, args) in all_within(&rig, 120, &looks).iter().zip(looks) {
        let named = run.err.lines().find(|line| line.contains("no answer"));
        assert!(
            named.is_some_and(|line| line.contains(path)),
            "{args:?}: {run:?}"
        );
        assert!(args == ["doctor"] || [0, 7].contains(&run.code), "{run:?}");
    }
    let of_it: [&[&str]; 8] = [
        &["udev", "member", path],
        &["examine", path],
        &["scan", path],
        &["create", "n", "--level", "1", &d[0], path],
        &["drive", "clean", "-y", path],
        &["pool", "create", "p", path],
        &["import", "old", path],
        &["start", "old", "--foreground", path],
    ];
    for (run, args) in all_within(&rig, 120, &of_it).into_iter().zip(of_it) {
        assert!(run.err.contains(&no_answer), "{args:?}: {run:?}");
        assert!(run.err.contains("device-silent"), "{args:?}: {run:?}");
        assert_eq!(run.code, 4, "{args:?}: {run:?}");
    }
    let changes: [&[&[&str]]; 3] = [
        &[
            &[
                "create", "new", "--level", "1", "--export", "none", &d[0], &d[1],
            ],
            &["pool", "create", "p", &d[4]],
        ],
        &[
            &["rename", "new", "newer"],
            &["destroy", "old", "-y"],
            &["drive", "clean", "-y", &d[4]],
        ],
        &[&["destroy", "newer", "-y"]],
    ];
    for round in changes {
        for (run, args) in all_within(&rig, 120, round).into_iter().zip(round) {
            assert_eq!(run.code, 0, "{args:?}: {run:?}");
        }
    }
    // Where the devices are named, no other is asked for.
    let named = [&["start", "gone", "--foreground", &d[0], &d[1]][..]];
    let named = all_within(&rig, 120, &named).remove(0);
    assert!(named.err.contains("array-not-found"), "{named:?}");
    // Of what is not found it is not known that it is not there.
    let absent = all_within(&rig, 120, &[&["show", "old"]]).remove(0);
    assert!(absent.err.contains("device-silent"), "{absent:?}");
}

/// All devices were read by the thread of the request, which waited for the one that hangs.
#[test]
fn a_restore_passes_devices_that_hang_and_names_them_where_they_may_be_what_is_missing() {
    if !rig::is_root() {
        return rig::skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    let (data, other) = (rig.files_called("d", 2), rig.files_called("o", 2));
    let shelf = rig.file("shelf", 64 << 20);
    rig.start_daemon();
    let none = &["--export", "none"];
    rig.create("data", "1", none, &data).ok();
    rig.create("other", "1", none, &other).ok();
    rig.run(&["pool", "create", "p", &shelf]).ok();
    let file = rig.path("backup.json");
    rig.run(&["config", "backup", &file]).ok();
    rig.run(&["stop", "--all"]).ok();
    for path in data.iter().chain(&other).chain([&shelf]) {
        destroy(path, HEAD);
    }
    let Some(hung) = HungDevice::new(&rig) else {
        return;
    };
    let path = hung.path.as_str();
    let moved = rig.path("backup-moved.json");
    let text = std::fs::read_to_string(&file).expect("written");
    std::fs::write(&moved, text.replace(&shelf, path)).expect("written");
    let slot = format!("1={path}");
    let named = ["config", "restore", &file, "data", "--device", path];
    let of_it: [&[&str]; 4] = [
        &[&named[..], &["--dry-run"]].concat(),
        &[&named[..], &["-y"]].concat(),
        &["config", "restore", &file, "data", "--slot", &slot, "-y"],
        &["config", "restore", &moved, "p", "-y"],
    ];
    for (run, args) in all_within(&rig, 120, &of_it).into_iter().zip(of_it) {
        assert!(run.err.contains("device-silent"), "{args:?}: {run:?}");
        assert!(run.err.contains(path), "{args:?}: {run:?}");
        assert_eq!(run.code, 4, "{args:?}: {run:?}");
    }
    rig.knows(path);
    let taken = format!("{}.taken", data[1]);
    std::fs::rename(&data[1], &taken).expect("ours");
    let restore = ["config", "restore", &file, "data", "-y"];
    let run = within(&rig, 60, &restore).refused(4, "device-silent");
    let found = run.json_error()["found"].to_string();
    let silent = format!("{path}: no answer, perhaps a member");
    assert!(
        found.contains("slot 1") && found.contains(&silent),
        "{found}"
    );
    within(&rig, 60, &["config", "restore", &file, "other", "-y"]).ok();
    within(&rig, 60, &["config", "restore", &file, "p", "-y"]).ok();
    std::fs::rename(&taken, &data[1]).expect("ours");
    within(&rig, 60, &restore).ok();
    rig.until_state("other", "optimal");
    drop(hung);
    rig.stop_daemon();
}

/// A command had a thread in a change that did not end, and could not end itself; a daemon waited
/// for its lock for good. No signal ended them.
#[test]
fn a_daemon_and_commands_without_one_end_although_the_state_folder_hangs() {
    if !rig::is_root() {
        return rig::skipped("only root can freeze a file system");
    }
    let rig = Rig::new();
    let d = rig.files(6);
    let Some(mut freezer) = Freezer::at(&rig, rig.dir()) else {
        return;
    };
    let none = &["--export", "none"];
    rig.create("old", "1", none, &d[..2]).ok();
    rig.create("gone", "1", none, &d[2..4]).ok();
    rig.run(&["set", "old", "memory_limit=1G"]).ok();
    std::fs::write(rig.dir().join("lock"), "").expect("as a daemon before left it");
    let turn = rig.dir().join("known-files.lock");
    std::fs::remove_file(&turn).expect("it was made with old");
    freezer.freeze();
    let folder = rig.dir().display().to_string();
    let begin: [&[&str]; 3] = [
        &["daemon", "--no-devices"],
        &["start", "old", "--foreground", "--export", "none"],
        &["set", "old", "memory_limit=2G"],
    ];
    for (run, args) in all_within(&rig, 120, &begin).into_iter().zip(begin) {
        assert!(run.err.contains(&folder), "{args:?}: {run:?}");
        match args[0] {
            "set" => assert!(run.err.contains("not answered for 15 seconds"), "{run:?}"),
            _ => assert!(run.err.contains("state-dir-silent"), "{args:?}: {run:?}"),
        }
        assert_ne!(run.code, 0, "{args:?}: {run:?}");
    }
    let changes: [&[&str]; 5] = [
        &[
            "create", "new", "--level", "1", "--export", "none", &d[4], &d[5],
        ],
        &["rename", "old", "older"],
        &["destroy", "gone", "-y"],
        &["show"],
        &["status"],
    ];
    let all = all_within(&rig, 120, &changes);
    freezer.thaw();
    for (run, args) in all.iter().zip(changes) {
        // 8: `show` finds nothing more of what `destroy` wipes beside it.
        let done = [0, 7, 8, 9].contains(&run.code);
        assert!(done || run.err.contains(&folder), "{args:?}: {run:?}");
        if matches!(args[0], "rename" | "destroy") {
            let said = format!("{}{}", run.out, run.err);
            assert!(said.contains("not remembered"), "{args:?}: {run:?}");
        }
    }
    rig.run(&["set", "older", "memory_limit=2G"]).ok();
}

/// A folder that answers nothing, as that of a file server that is gone: FUSE without its server.
struct Gone {
    folder: PathBuf,
    server: Child,
}

impl Gone {
    /// None where this machine cannot have one.
    fn at(folder: PathBuf) -> Option<Gone> {
        std::fs::create_dir(&folder).expect("works");
        let mount = "exec 3<>/dev/fuse && mount -i -t fuse \
                     -o fd=3,rootmode=40000,user_id=0,group_id=0 none \"$0\" && exec cat";
        let mut server = Command::new("sh");
        let server = server.args(["-c", mount]).arg(&folder);
        let server = server.stdin(Stdio::piped()).stderr(Stdio::null());
        let server = server.spawn().expect("it runs");
        let mut gone = Gone { folder, server };
        let shown = gone.folder.display().to_string();
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            let mounts = std::fs::read_to_string("/proc/mounts").expect("there");
            if mounts.contains(&format!(" {shown} fuse ")) {
                return Some(gone);
            }
            if gone.server.try_wait().expect("ours").is_some() || Instant::now() > give_up {
                rig::skipped("no FUSE can be mounted here");
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Gone {
    fn drop(&mut self) {
        // What waits for it gets an error.
        drop(self.server.stdin.take());
        let _ = self.server.wait();
        run("umount", &["-l", &self.folder.display().to_string()]);
    }
}

/// The state folder was looked at by the command itself before it was asked whether it answers.
#[test]
fn a_daemon_and_commands_end_although_the_state_folder_answers_nothing_at_all() {
    if !rig::is_root() {
        return rig::skipped("only root can mount a file system");
    }
    let rig = Rig::new();
    let d = rig.files(2);
    let Some(_gone) = Gone::at(rig.dir().to_owned()) else {
        return;
    };
    let all: [&[&str]; 5] = [
        &["daemon", "--no-devices"],
        &["show"],
        &["status"],
        &["create", "new", "--level", "1", &d[0], &d[1]],
        &["start", "old", "--foreground", "--export", "none"],
    ];
    let folder = rig.dir().display().to_string();
    for (run, args) in all_within(&rig, 120, &all).iter().zip(all) {
        assert!(run.err.contains("state-dir-silent"), "{args:?}: {run:?}");
        assert!(run.err.contains(&folder), "{args:?}: {run:?}");
    }
    // These need none.
    within(&rig, 60, &["completions", "bash"]).ok();
    within(&rig, 60, &["examine", &d[0]]).refused(3, "not-a-member");
    assert_eq!(within(&rig, 60, &["udev", "member", &d[0]]).code, 0);
    let export = within(&rig, 60, &["udev", "export", "/dev/ublkb0"]);
    assert_eq!((export.code, export.out.as_str()), (0, ""), "{export:?}");
}

/// Both folders were asked before the daemon was: a /var on an array that hangs kept every command
/// from it, and the error named the folder that answers, too.
#[test]
fn a_folder_of_what_lasts_that_answers_nothing_keeps_no_command_from_the_daemon() {
    if !rig::is_root() {
        return rig::skipped("only root can mount a file system");
    }
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "1", &["--export", "none"], &rig.files(2))
        .ok();
    // Seen by these commands alone, which have no STRAKE_DIR.
    let mount = "mount -t tmpfs none /run && mkdir -m 700 /run/strake && \
                 mount --bind \"$0\" /run/strake && mount -t tmpfs none /var/lib && \
                 mkdir -m 700 /var/lib/strake && exec 3<>/dev/fuse && \
                 mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 none \
                 /var/lib/strake && { echo mounted >&2; timeout -s KILL 60 \"$@\"; }";
    let seen = |folder: &std::path::Path, args: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "sh", "-c", mount])
            .arg(folder)
            .args([STRAKE, "--json"])
            .args(args)
            .env_remove("STRAKE_DIR")
            .stdin(Stdio::null());
        let mut run = rig.run_command(&mut command);
        let said = run.err.strip_prefix("mounted\n").map(str::to_owned);
        said.map(|said| {
            run.err = said;
            run
        })
    };
    let Some(show) = seen(&rig.dir(), &["show", "data"]) else {
        return rig::skipped("no mounts of its own, or no FUSE, can be had here");
    };
    show.ok();
    let seen = |folder: &std::path::Path, args: &[&str]| seen(folder, args).expect("mounted");
    seen(&rig.dir(), &["set", "data", "rebuild_priority=70"]).ok();
    seen(&rig.dir(), &["status"]).ok();
    let empty = PathBuf::from(rig.path("nobody"));
    std::fs::create_dir(&empty).expect("made");
    let alone = seen(&empty, &["show"]).refused(4, "state-dir-silent");
    assert!(alone.err.contains("/var/lib/strake"), "{alone:?}");
    assert!(!alone.err.contains("/run/strake"), "{alone:?}");
    rig.stop_daemon();
}

/// The thread that answers for the array was asked, and no other: an array whose users wait was
/// called optimal.
#[test]
fn an_array_with_another_thread_that_hangs_is_unresponsive_too() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(2);
    let two = &["--export", "none", "--shards", "2"];
    rig.create("data", "1", two, &files).ok();
    let Some(mut holder) = manager::hold(manager::thread(&rig, "strake-data-1")) else {
        return rig::skipped("no thread may be traced here");
    };
    let shown = within(&rig, 60, &["show", "data"]);
    assert_eq!(
        (shown.code, shown.json()["state"].as_str()),
        (9, Some("unresponsive"))
    );
    let status = within(&rig, 60, &["status"]);
    assert!(
        status.out.contains("its threads do not answer"),
        "{status:?}"
    );
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    rig.until_state("data", "optimal");
    rig.stop_daemon();
}

/// They were stopped one after the other: those behind one that hangs after ten minutes.
#[test]
fn one_array_that_hangs_holds_up_the_stop_of_no_other() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let none = &["--export", "none"];
    for name in ["a", "b", "c"] {
        rig.create(name, "1", none, &rig.files_called(name, 2)).ok();
    }
    let Some(mut holder) = manager::hold(manager::thread(&rig, "strake-a-0")) else {
        return rig::skipped("no thread may be traced here");
    };
    let stop = spawn(&rig, &["stop", "--all"]);
    for name in ["b", "c"] {
        rig.until_state(name, "stopped");
    }
    // It goes on when the one that traces it ends.
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
    let stopped = stop.wait_with_output().expect("works");
    assert!(stopped.status.success(), "{stopped:?}");
    let said = String::from_utf8_lossy(&stopped.stdout).into_owned();
    let named = |line: &str| line.get(10..11).map(str::to_owned);
    let names: Vec<String> = said.lines().filter_map(named).collect();
    assert_eq!(names, ["a", "b", "c"], "{said}");
    rig.stop_daemon();
}

/// They were started one after the other: those behind one with a device that hangs after its
/// deadline.
#[test]
fn one_array_that_hangs_holds_up_the_start_of_no_other() {
    if !rig::is_root() {
        return rig::skipped("only root can freeze a file system");
    }
    let mut rig = Rig::new();
    let Some(mut freezer) = Freezer::new(&rig) else {
        return;
    };
    rig.start_daemon_with(&["--io-timeout", "600"]);
    let none = &["--export", "none"];
    let hangs = [freezer.file("0"), freezer.file("1")];
    rig.create("a", "1", none, &hangs).ok();
    for name in ["b", "c"] {
        rig.create(name, "1", none, &rig.files_called(name, 2)).ok();
    }
    rig.run(&["stop", "--all"]).ok();
    freezer.freeze();
    let start = spawn(&rig, &["start", "--all"]);
    for name in ["b", "c"] {
        rig.until_state(name, "optimal");
    }
    assert_eq!(rig.show("a")["state"], "stopped", "its devices hang");
    freezer.thaw();
    let started = start.wait_with_output().expect("works");
    assert!(started.status.success(), "{started:?}");
    rig.until_state("a", "optimal");
    rig.run(&["stop", "--all"]).ok();
    rig.stop_daemon();
}
