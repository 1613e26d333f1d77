//! The daemon's folder, lock or sockets are taken away while it serves: `rm -rf`, a cleaner of
//! temporary folders. Its arrays go on, and it is reached again.

use std::fs;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::hung::within;
use crate::manager;
use crate::rig::{Rig, STRAKE, skipped};

fn serving() -> (Rig, Vec<String>) {
    let mut rig = Rig::new();
    let devices = rig.files(3);
    rig.start_daemon();
    rig.create("data", "5", &["--export", "nbd"], &devices).ok();
    (rig, devices)
}

/// At once, so that the daemon does not see half of it gone, or writes into it meanwhile.
fn remove(rig: &Rig) {
    let gone = rig.folder.path().join("gone");
    fs::rename(rig.dir(), &gone).expect("moved");
    fs::remove_dir_all(gone).expect("removed");
}

fn restored(rig: &Rig) -> usize {
    let is = |e: &&serde_json::Value| e["event"] == "folder_restored";
    rig.events().iter().filter(is).count()
}

#[test]
fn a_daemon_that_loses_its_folder_makes_it_again_and_is_reached() {
    let (mut rig, _) = serving();
    let client = UnixStream::connect(rig.nbd("data")).expect("it listens");
    remove(&rig);
    rig.until("the daemon to be reached again", || {
        UnixStream::connect(rig.dir().join("api.sock")).is_ok()
            && UnixStream::connect(rig.nbd("data")).is_ok()
    });
    drop(client);
    assert_eq!(rig.show("data")["state"], "optimal");
    rig.until("the event", || restored(&rig) == 1);
    // It is the only daemon here, and remembers what it serves when it comes back from a kill.
    let second = rig.command().args(["--json", "daemon"]).output();
    let second = second.expect("it runs");
    assert!(String::from_utf8_lossy(&second.stderr).contains("daemon-running"));
    rig.qemu_io("data", &["write -P 7 0 64k", "read -P 7 0 64k"]);
    rig.until("the journal to go on", || {
        let journal = fs::read_to_string(rig.dir().join("events.jsonl"));
        journal.is_ok_and(|text| text.contains("folder_restored"))
    });
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    rig.stop_daemon();
    assert!(!rig.dir().join("api.sock").exists());
}

/// It had the lock then, and the next look took the folder for one that had never gone: what it
/// serves was not remembered.
#[test]
fn a_folder_that_comes_back_in_two_steps_remembers_what_is_served() {
    let (mut rig, _) = serving();
    let anew = rig.folder.path().join("anew");
    fs::create_dir(&anew).expect("made");
    fs::write(anew.join("arrays"), "in the way").expect("written");
    let (here, flags) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
    rustix::fs::renameat_with(here, &anew, here, rig.dir(), flags).expect("exchanged");
    rig.until("the daemon to find the file", || {
        rig.log().contains("no command reaches this daemon")
    });
    fs::remove_file(rig.dir().join("arrays")).expect("there");
    rig.until("the daemon to be reached again", || {
        UnixStream::connect(rig.dir().join("api.sock")).is_ok()
    });
    rig.until("the event", || restored(&rig) == 1);
    let remembered = rig.events().into_iter();
    let mut remembered = remembered.filter(|e| e["event"] == "folder_restored");
    let cause = remembered.next().expect("noted")["cause"].to_string();
    assert!(cause.contains("its lock was removed"), "{cause}");
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    rig.stop_daemon();
}

/// It asked all arrays before it listened, each for ten seconds.
#[test]
fn arrays_that_stand_still_keep_no_command_from_a_daemon_that_lost_its_folder() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let names = ["a", "b", "c"];
    for name in names {
        let one = &["--export", "none", "--shards", "1"];
        rig.create(name, "1", one, &rig.files_called(name, 2)).ok();
    }
    let hold = |name| manager::hold(manager::thread(&rig, &format!("strake-{name}-0")));
    let holders: Vec<_> = names.into_iter().filter_map(hold).collect();
    if holders.len() < names.len() {
        return skipped("no thread may be traced here");
    }
    let since = Instant::now();
    remove(&rig);
    rig.until("the daemon to be reached again", || {
        UnixStream::connect(rig.dir().join("api.sock")).is_ok()
    });
    assert!(since.elapsed() < Duration::from_secs(20), "it waits");
    for mut holder in holders {
        drop(holder.stdin.take());
        holder.wait().expect("it ends");
    }
    rig.until("the event", || restored(&rig) == 1);
    rig.kill_daemon();
    rig.start_daemon();
    for name in names {
        rig.until_state(name, "optimal");
    }
    rig.stop_daemon();
}

#[test]
fn sockets_that_are_removed_are_made_again() {
    let (mut rig, _) = serving();
    for socket in [rig.dir().join("api.sock"), rig.nbd("data")] {
        fs::remove_file(&socket).expect("removed");
        rig.until("the socket", || UnixStream::connect(&socket).is_ok());
    }
    rig.until("the event", || restored(&rig) == 1);
    rig.run(&["stop", "data"]).ok();
    assert!(!rig.nbd("data").exists());
    rig.stop_daemon();
}

#[test]
fn a_daemon_whose_folder_another_one_has_says_so_and_comes_back_after_it() {
    let (mut rig, devices) = serving();
    remove(&rig);
    let mut second = Command::new(STRAKE)
        .args(["daemon", "--no-devices"])
        .env("STRAKE_DIR", rig.dir())
        .stderr(Stdio::null())
        .spawn()
        .expect("it runs");
    rig.until("one of the two to say so", || {
        rig.log().contains("has it now") || second.try_wait().expect("ours").is_some()
    });
    let own = rig.daemon_pid();
    if second.try_wait().expect("ours").is_none() {
        let cure = format!("kill {own} stops them cleanly");
        rig.until("the way on to be told", || rig.log().contains(&cure));
        let mut start = vec!["start", "data"];
        start.extend(devices.iter().map(String::as_str));
        let refused = rig.run(&start).refused(4, "device-busy");
        let holder = format!("locked by strake ({own})");
        assert!(refused.err.contains(&holder), "{refused:?}");
        second.kill().expect("ours");
        second.wait().expect("ours");
    }
    rig.until("the first to come back", || {
        rig.run(&["show", "data"]).out.contains("\"daemon\":true")
    });
    assert_eq!(rig.show("data")["state"], "optimal");
    rig.stop_daemon();
}

#[test]
fn a_daemon_without_arrays_ends_where_another_one_has_its_folder() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let own = rig.daemon_pid();
    let lock = rig.dir().join("lock");
    // What another daemon does that starts in a folder made anew, without its race.
    fs::remove_file(&lock).expect("removed");
    let other = fs::File::create(&lock).expect("made");
    rustix::fs::flock(&other, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("free");
    rig.until("the daemon to end", || {
        let status = fs::read_to_string(format!("/proc/{own}/stat"));
        status.map_or(true, |text| text.contains(") Z "))
    });
}

/// The link was moved aside, and an empty folder made in its place.
#[test]
fn a_link_of_the_folder_that_leads_nowhere_yet_is_named_and_stays() {
    let mut rig = Rig::new();
    fs::create_dir(rig.dir()).expect("made");
    let (link, target) = (rig.dir().join("placement"), rig.path("mounted-later"));
    std::os::unix::fs::symlink(&target, &link).expect("made");
    let said = within(&rig, 60, &["daemon"]).err;
    assert!(said.contains("state-dir"), "{said}");
    assert!(said.contains(&target), "{said}");
    assert!(said.contains(&link.display().to_string()), "{said}");
    assert!(fs::read_link(&link).is_ok());
    fs::create_dir(&target).expect("made");
    rig.start_daemon();
    rig.create("data", "1", &["--export", "none"], &rig.files(2))
        .ok();
    assert!(fs::read_dir(&target).expect("there").count() > 0);
    rig.stop_daemon();
}

/// It moved them before it knew that they were another daemon's.
#[test]
fn a_daemon_without_the_lock_moves_nothing() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let file = rig.dir().join("volumes");
    fs::write(&file, "kept").expect("written");
    let second = within(&rig, 60, &["daemon"]);
    assert!(second.err.contains("daemon-running"), "{second:?}");
    assert_eq!(fs::read_to_string(&file).ok().as_deref(), Some("kept"));
    rig.stop_daemon();
}

/// The daemon did not start: "File exists".
#[test]
fn files_in_place_of_folders_of_the_daemon_are_set_aside_and_named() {
    let mut rig = Rig::new();
    fs::create_dir(rig.dir()).expect("made");
    let folders = ["nbd", "arrays", "volumes", "placement", "alerts"];
    for name in folders {
        fs::write(rig.dir().join(name), name).expect("written");
    }
    rig.start_daemon();
    rig.create("data", "1", &["--export", "nbd"], &rig.files(2))
        .ok();
    rig.run(&["set", "data", "memory_limit=1G"]).ok();
    rig.run(&["volume", "create", "data", "v", "--size", "8M"])
        .ok();
    let events = rig.events();
    for name in folders {
        let path = rig.dir().join(name);
        let kept = format!("{}.damaged", path.display());
        assert_eq!(fs::read_to_string(&kept).ok().as_deref(), Some(name));
        let is = |e: &&serde_json::Value| {
            e["event"] == "state_damaged"
                && e["cause"].to_string().contains(&path.display().to_string())
                && e["effect"].to_string().contains(&kept)
        };
        assert!(events.iter().any(|e| is(&e)), "{name}: {events:?}");
    }
    rig.stop_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
}
