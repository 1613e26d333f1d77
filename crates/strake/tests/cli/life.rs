//! The life of arrays through the CLI: made, served, degraded, rebuilt, killed, found again,
//! destroyed.

use std::fs;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::rig::{self, Rig, bytes};

const NBD: &[&str] = &["--export", "nbd"];

#[test]
fn without_a_daemon_create_makes_what_scan_and_examine_find() {
    let rig = Rig::new();
    let devices = rig.files(4);
    let options = ["--strip", "64K", "--spare", &devices[3]];
    let made = rig.create("data", "5", &options, &devices[..3]).ok().json();
    assert_eq!(made["serving"], false);
    assert_eq!(made["state"], "stopped");
    let scan = rig
        .run(&["scan", rig.folder.path().to_str().expect("text")])
        .ok()
        .json();
    assert_eq!(scan[0]["name"], "data");
    assert_eq!(scan[0]["state"], "complete");
    assert_eq!(scan[0]["found"], 4);
    let examined = rig.run(&["examine", &devices[1]]).ok().json();
    assert_eq!(examined["slot"], 1);
    assert_eq!(examined["array"]["level"], "5");
    assert_eq!(examined["array"]["strip_bytes"], 65536);
    assert_eq!(examined["array"]["group_size"], Value::Null);
    assert_eq!(examined["array"]["uuid"], made["uuid"]);
    assert_eq!(examined["copies"][0]["valid"], true);
    assert_eq!(examined["copies"][1]["valid"], true);
    assert!(examined["data_offset_bytes"].as_u64() >= Some(1 << 20));
    assert_eq!(
        rig.run(&["examine", &devices[3]]).ok().json()["slot"],
        Value::Null
    );
    // The files are remembered: no need to name them again.
    assert_eq!(rig.show("data")["size_bytes"], made["size_bytes"]);
    let said = rig.run_command(rig.command().args(["show", "data"]));
    assert_eq!(said.code, 7, "{said:?}");
    assert!(said.out.contains("stopped"), "{said:?}");
}

#[test]
fn a_dry_run_of_create_writes_nothing() {
    let rig = Rig::new();
    let devices = rig.files(3);
    let run = rig
        .create("data", "5", &["--dry-run"], &devices)
        .ok()
        .json();
    assert_eq!(run["dry_run"], true);
    assert!(run["size_bytes"].as_u64() > Some(0));
    assert!(devices.iter().all(|d| bytes(d).iter().all(|&b| b == 0)));
    rig.run(&["show", "data"]).refused(3, "array-not-found");
}

#[test]
fn an_array_is_served_read_back_and_found_again_by_the_next_daemon() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    let made = rig.create("data", "6", NBD, &devices).ok().json();
    assert_eq!(made["state"], "optimal");
    let socket = rig.nbd("data").display().to_string();
    assert_eq!(made["device"], format!("nbd+unix:///?socket={socket}"));
    assert_eq!(made["export"]["kind"], "nbd");
    let write = ["write -P 0x5a 1M 3M", "write -P 0xa5 4096 4096", "flush"];
    if rig.qemu_io("data", &write).is_none() {
        return;
    }
    rig.stop_daemon();
    assert!(rig.log().contains("stopped"), "{}", rig.log());
    rig.start_daemon();
    rig.until_state("data", "optimal");
    let read = [
        "read -P 0x5a 1M 3M",
        "read -P 0xa5 4096 4096",
        "read -P 0 0 4096",
    ];
    rig.qemu_io("data", &read);
    let shown = rig.show("data");
    assert_eq!(shown["level"], "6");
    assert_eq!(shown["members"].as_array().map(Vec::len), Some(4));
    assert!(shown["unwritten_bytes"].as_u64() < shown["size_bytes"].as_u64());
}

#[test]
fn a_killed_daemon_leaves_an_array_that_comes_back() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "5", NBD, &rig.files(3)).ok();
    if rig.qemu_io("data", &["write -P 7 0 2M"]).is_none() {
        return;
    }
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    rig.qemu_io("data", &["read -P 7 0 2M"]);
    for name in ["created", "started"] {
        rig.event(name, |e| e["event"] == name);
    }
}

#[test]
fn a_member_is_failed_removed_and_put_back() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices[..3]).ok();
    if rig.qemu_io("data", &["write -P 9 0 8M"]).is_none() {
        return;
    }
    let dry = rig.run(&["fail", "data", "1", "--dry-run"]).ok().json();
    assert_eq!(dry["dry_run"], true);
    assert_eq!(rig.show("data")["state"], "optimal");
    let failed = rig.run(&["fail", "data", &devices[1]]).ok().json();
    assert_eq!(failed["changed"], true);
    let run = rig.run(&["show", "data"]);
    assert_eq!(
        (run.code, run.json()["state"].as_str()),
        (5, Some("degraded"))
    );
    rig.qemu_io("data", &["read -P 9 0 8M", "write -P 8 1M 1M"]);
    rig.run(&["remove", "data", "1"]).ok();
    // It carries this array's name, so no --force is needed.
    rig.run(&["add", "data", &devices[1]]).ok();
    rig.until_state("data", "optimal");
    rig.qemu_io(
        "data",
        &["read -P 9 0 1M", "read -P 8 1M 1M", "read -P 9 2M 6M"],
    );
    let again = rig.run(&["add", "data", &devices[1]]).ok().json();
    assert_eq!(again["changed"], false);
}

#[test]
fn a_spare_takes_over_when_a_member_vanishes() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    let options = ["--export", "nbd", "--spare", &devices[3]];
    rig.create("data", "5", &options, &devices[..3]).ok();
    if rig.qemu_io("data", &["write -P 3 0 8M"]).is_none() {
        return;
    }
    fs::remove_file(&devices[0]).expect("removed");
    rig.until("the spare waits", || {
        let shown = rig.show("data");
        let left = shown["members"][0]["spare_in_s"].as_u64();
        shown["state"] == "degraded" && left.is_some_and(|s| (100..=180).contains(&s))
    });
    let text = rig.run_command(rig.command().args(["show", "data"]));
    let says = "slot 0 is missing; a spare takes its place in ";
    assert!(text.out.contains(says), "{}", text.out);
    rig.run(&["set", "data", "spare_delay=1s"]).ok();
    rig.until("the rebuild", || {
        let shown = rig.show("data");
        shown["state"] == "optimal" && shown["members"][0]["device"] == devices[3]
    });
    rig.qemu_io("data", &["read -P 3 0 8M"]);
    let out = rig.event("that it is out", |e| e["event"] == "member_out");
    assert_eq!(out["cause"], "gone");
    rig.event("that the spare is used", |e| e["event"] == "spare_used");
}

#[test]
fn a_member_is_replaced_while_it_serves() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "1", NBD, &devices[..2]).ok();
    if rig.qemu_io("data", &["write -P 4 0 4M"]).is_none() {
        return;
    }
    rig.run(&["replace", "data", "0", &devices[2]]).ok();
    rig.until("the replacement", || {
        let shown = rig.show("data");
        shown["members"][0]["device"] == devices[2] && shown["members"][0]["state"] == "in_sync"
    });
    assert_eq!(rig.show("data")["state"], "optimal");
    rig.qemu_io("data", &["read -P 4 0 4M"]);
}

#[test]
fn a_scrub_finds_a_flipped_byte_and_changes_nothing() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    if rig.qemu_io("data", &["write -P 1 0 4M", "flush"]).is_none() {
        return;
    }
    assert_eq!(scrub(&rig, &[])["inconsistent_stripes"], 0);
    let place = rig.run(&["explain", "data", "0"]).ok().json();
    let lie = rot(&place["redundancy"][0]);
    assert_eq!(scrub(&rig, &[])["inconsistent_stripes"], 1);
    let again = scrub(&rig, &[]);
    assert_eq!(
        again["inconsistent_stripes"], 1,
        "a read-only scrub repaired"
    );
    // Of two readings nobody can say which is true: a repair keeps both.
    let found = scrub(&rig, &["--repair"]);
    assert_eq!(found["inconsistent_stripes"], 1);
    assert_eq!(found["repaired_stripes"], 0);
    assert_eq!(stored(&place["redundancy"][0]), lie);
    let events = rig.events();
    let told = |e: &&Value| e["event"] == "inconsistent";
    assert!(events.iter().any(|e| told(&e)), "{events:?}");
}

#[test]
fn scrub_repair_names_the_member_of_raid_6_that_lies_and_rewrites_it() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(5);
    rig.create("data", "6", NBD, &devices).ok();
    if rig.qemu_io("data", &["write -P 1 0 4M", "flush"]).is_none() {
        return;
    }
    let place = rig.run(&["explain", "data", "0"]).ok().json();
    // Data and parity are strips like any other: each of them may lie.
    for column in [&place["data"], &place["redundancy"][1]] {
        let truth = stored(column);
        let lie = rot(column);
        let found = scrub(&rig, &[]);
        assert_eq!(found["located_stripes"], 1, "{found}");
        assert_eq!(found["repaired_stripes"], 0, "{found}");
        assert_eq!(stored(column), lie, "a check repaired");
        let found = scrub(&rig, &["--repair"]);
        assert_eq!(found["repaired_stripes"], 1, "{found}");
        assert_eq!(stored(column), truth);
        assert_eq!(scrub(&rig, &[])["inconsistent_stripes"], 0);
        let events = rig.events();
        let repaired = |e: &Value| e["event"] == "mismatch" && e["slot"] == column["slot"];
        assert!(events.iter().any(repaired), "{events:?}");
    }
    let read = rig.qemu_io("data", &["read -P 1 0 4M"]);
    assert!(read.is_some_and(|text| !text.contains("verification failed")));
}

/// Scrubs, waits, and tells what was found.
fn scrub(rig: &Rig, flags: &[&str]) -> Value {
    let before = rig.events().len();
    let run = rig.run(&[&["scrub", "data", "--wait"], flags].concat());
    let done = |e: &Value| e["event"] == "job_finished" && e["cause"] == "scrub";
    assert!(rig.events()[before..].iter().any(done), "{run:?}");
    // The answer has what was found, and its exit status says whether something is left.
    let (told, found) = (run.json(), rig.show("data")["last_scrub"].clone());
    assert_eq!((&told["ended"], &told["scrub"]), (&"done".into(), &found));
    let count = |key: &str| found[key].as_u64().expect("a number");
    let left = count("inconsistent_stripes") > count("repaired_stripes");
    assert_eq!(run.code, if left { 10 } else { 0 }, "{run:?}");
    found
}

/// The file of a place that `explain` told, and the byte.
fn open_place(place: &Value) -> (fs::File, u64) {
    let device = place["device"].as_str().expect("a device");
    let mut options = fs::File::options();
    let file = options.read(true).write(true).open(device).expect("open");
    (
        file,
        place["member_offset_bytes"].as_u64().expect("an offset"),
    )
}

/// The block at a place.
pub(crate) fn stored(place: &Value) -> Vec<u8> {
    let (file, offset) = open_place(place);
    let mut block = vec![0; 4096];
    file.read_exact_at(&mut block, offset).expect("read");
    block
}

/// One bit of the block at a place changes by itself; what is there now.
pub(crate) fn rot(place: &Value) -> Vec<u8> {
    let mut block = stored(place);
    block[100] ^= 1;
    let (file, offset) = open_place(place);
    file.write_all_at(&block, offset).expect("write");
    file.sync_all().expect("sync");
    block
}

#[test]
fn scrubs_begin_by_themselves_and_are_told_of_after_restarts() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "6", NBD, &rig.files(4)).ok();
    rig.qemu_io("data", &["write -P 1 0 4M"]);
    assert_eq!(rig.show("data")["last_scrub"], Value::Null);
    let schedule = ["scrub_schedule=continuous", "scrub_policy=repair"];
    rig.run(&["set", "data", schedule[0], schedule[1]]).ok();
    rig.until("a scrub by itself", || {
        rig.show("data")["last_scrub"]["ended"].is_string()
    });
    let last = rig.show("data")["last_scrub"].clone();
    assert_eq!(last["repair"], true);
    assert_eq!(last["inconsistent_stripes"], 0);
    // No other before the hour is over.
    let idle = rig.run(&["scrub", "data", "pause"]).ok().json();
    assert_eq!(idle["changed"], false);
    rig.stop_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    assert_eq!(rig.show("data")["last_scrub"], last);
    for wrong in [
        &["scrub", "data", "--repair", "--halt"][..],
        &["scrub", "data", "pause", "--repair"],
        &["scrub", "data", "stop", "--halt"],
        &["rebuild", "data", "pause"],
        &["set", "data", "scrub_at=25:00"],
    ] {
        assert_eq!(rig.run(wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn explain_names_the_place_where_the_bytes_are() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(5);
    rig.create(
        "data",
        "6",
        &["--export", "nbd", "--strip", "64K"],
        &devices,
    )
    .ok();
    let write = ["write -P 0x77 1216K 4096", "flush"];
    if rig.qemu_io("data", &write).is_none() {
        return;
    }
    let block = rig.show("data")["block_bytes"].as_u64().expect("a number");
    let lba = (1216 << 10) / block;
    let place = rig.run(&["explain", "data", &lba.to_string()]).ok().json();
    assert_eq!(place["offset_bytes"], 1216 << 10);
    assert_eq!(place["redundancy"].as_array().map(Vec::len), Some(2));
    assert_eq!(place["redundancy"][1]["kind"], "Q");
    assert_ne!(place["region_state"], "unwritten");
    rig.run(&["stop", "data"]).ok();
    let offline = rig.run(&["explain", "data", &lba.to_string()]).ok().json();
    assert_eq!(
        offline["data"]["member_offset_bytes"],
        place["data"]["member_offset_bytes"]
    );
    let device = place["data"]["device"].as_str().expect("a device");
    let offset = place["data"]["member_offset_bytes"]
        .as_u64()
        .expect("an offset") as usize;
    assert!(
        bytes(device)[offset..offset + 4096]
            .iter()
            .all(|&b| b == 0x77)
    );
}

#[test]
fn what_a_user_stopped_stays_stopped_until_started() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "1", NBD, &rig.files(2)).ok();
    assert_eq!(rig.run(&["stop", "data"]).ok().json()["changed"], true);
    assert_eq!(rig.run(&["stop", "data"]).ok().json()["changed"], false);
    // Two periods of the watcher.
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert_eq!(rig.show("data")["state"], "stopped");
    rig.run(&["fail", "data", "0"])
        .refused(4, "array-not-serving");
    assert_eq!(rig.run(&["start", "data"]).ok().json()["state"], "optimal");
    rig.run(&["stop", "--all"]).ok();
    rig.run(&["start", "--all"]).ok();
    assert_eq!(rig.show("data")["state"], "optimal");
}

#[test]
fn settings_are_kept_over_a_restart() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "1", NBD, &rig.files(2)).ok();
    rig.run(&[
        "set",
        "data",
        "rebuild_priority=77",
        "read_error_threshold=5",
        "write_hole=degraded",
        "resync_priority=3",
        "scrub_priority=99",
        "restripe_priority=42",
        "latency_target=2ms",
        "hedged_reads=off",
        "spare_delay=45s",
        "scrub_schedule=weekly",
        "scrub_at=4:05",
        "scrub_policy=halt",
    ])
    .ok();
    let settings = rig.run(&["get", "data"]).ok().json();
    assert_eq!(settings["rebuild_priority"], 77);
    assert_eq!(settings["resync_priority"], 3);
    assert_eq!(settings["scrub_priority"], 99);
    assert_eq!(settings["restripe_priority"], 42);
    let shown = rig.run(&["show", "data"]).ok().json();
    assert_eq!(shown["latency_target_us"], 2000);
    rig.stop_daemon();
    let offline = rig
        .run(&["get", "data", "read_error_threshold"])
        .ok()
        .json();
    assert_eq!(offline["read_error_threshold"], 5);
    let offline = rig.run(&["get", "data", "latency_target"]).ok().json();
    assert_eq!(offline["latency_target_us"], 2000);
    let offline = rig.run(&["get", "data", "write_hole"]).ok().json();
    assert_eq!(offline["write_hole"], "degraded");
    let offline = rig.run(&["get", "data", "hedged_reads"]).ok().json();
    assert_eq!(offline["hedged_reads"], "off");
    let offline = rig.run(&["get", "data", "spare_delay"]).ok().json();
    assert_eq!(offline["spare_delay_ms"], 45_000);
    let offline = rig.run(&["get", "data"]).ok().json();
    assert_eq!(offline["scrub_schedule"], "weekly");
    assert_eq!(offline["scrub_at"], "04:05");
    assert_eq!(offline["scrub_policy"], "halt");
    rig.start_daemon();
    rig.until_state("data", "optimal");
    assert_eq!(rig.run(&["get", "data"]).ok().json(), settings);
}

/// CPUs that the first thread of an array may use, as the kernel tells it.
fn cpus_of_thread(rig: &Rig, thread: &str) -> String {
    let tasks = fs::read_dir(format!("/proc/{}/task", rig.daemon_pid())).expect("it runs");
    let task = tasks
        .map(|task| task.expect("readable").path())
        .find(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == thread))
        .expect("the array's thread");
    let status = fs::read_to_string(task.join("status")).expect("readable");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("the kernel tells").trim().to_owned()
}

/// Makes an array that may take one CPU, one thread, 48 MiB and 3 requests; with its placement.
fn limited(rig: &mut Rig) -> (String, Value) {
    rig.start_daemon();
    let cpu = strake_runtime::usable_cpus()[0].to_string();
    let limits = [
        "--cpus",
        &cpu,
        "--shards",
        "1",
        "--memory-limit",
        "48M",
        "--requests",
        "3",
        "--export",
        "nbd",
    ];
    let made = rig.create("data", "5", &limits, &rig.files(3)).ok().json();
    (cpu, made["placement"].clone())
}

#[test]
fn an_array_takes_of_the_machine_what_it_may_and_no_more() {
    let mut rig = Rig::new();
    let (cpu, placement) = limited(&mut rig);
    assert_eq!(placement["shards"], 1);
    assert_eq!(placement["cpus"], cpu);
    assert_eq!(placement["requests"], 3);
    let memory = placement["memory_bytes"].as_u64().expect("a number");
    assert!((32 << 20..=48 << 20).contains(&memory), "{memory}");
    assert_eq!(cpus_of_thread(&rig, "strake-data-0"), cpu);
    let text = rig
        .run_command(rig.command().args(["show", "data"]))
        .ok()
        .out;
    assert!(text.contains(&format!("threads 1, CPUs {cpu}, ")), "{text}");
    assert!(text.contains("at most 3 requests"), "{text}");
    rig.qemu_io("data", &["write -P 0x5a 0 8M", "read -P 0x5a 0 8M"]);
}

#[test]
fn what_an_array_may_take_changes_from_its_next_start_on() {
    let mut rig = Rig::new();
    let (cpu, placement) = limited(&mut rig);
    if rig
        .qemu_io(
            "data",
            &["write -P 0x5a 0 8M", "flush", "read -P 0x5a 0 8M"],
        )
        .is_none()
    {
        return;
    }

    let changes = [
        "shards=2",
        "memory_limit=96M",
        "requests=auto",
        "scrub_priority=7",
    ];
    let set = [&["set", "data"][..], &changes].concat();
    assert!(rig.run(&set).ok().out.contains("from the next start on"));
    assert_eq!(rig.show("data")["placement"], placement, "until then");
    let settings = rig.run(&["get", "data"]).ok().json();
    assert_eq!(settings["cpus"], cpu);
    assert_eq!(settings["memory_limit_bytes"], 96 << 20);
    rig.stop_daemon();
    assert_eq!(rig.run(&["get", "data"]).ok().json(), settings);
    rig.start_daemon();
    rig.until_state("data", "optimal");
    let placement = &rig.show("data")["placement"];
    assert_eq!(
        (&placement["shards"], &placement["requests"]),
        (&Value::from(2), &Value::Null)
    );
    assert_eq!(placement["cpus"], cpu, "two threads share it");
    rig.qemu_io("data", &["read -P 0x5a 0 8M"]);

    // What keeps it from starting can be changed while it is stopped.
    rig.run(&["stop", "data"]).ok();
    rig.run(&["set", "data", "memory_limit=auto", "cpus=auto"])
        .ok();
    rig.run(&["set", "data", "scrub_priority=8"])
        .refused(4, "array-not-serving");
    let line = rig
        .run_command(rig.command().args(["get", "data"]))
        .ok()
        .out;
    for setting in [
        "cpus=auto\n",
        "memory_limit=auto\n",
        "write_hole=closed\n",
        "shards=2\n",
    ] {
        assert!(line.contains(setting), "{line}");
    }
    rig.run(&["start", "data"]).ok();
    rig.qemu_io("data", &["read -P 0x5a 0 8M"]);
}

#[test]
fn a_degraded_array_starts_after_the_wait_and_says_so() {
    let mut rig = Rig::new();
    let devices = rig.files(3);
    rig.create("data", "5", &[], &devices).ok();
    fs::rename(&devices[2], rig.path("away")).expect("renamed");
    let begun = std::time::Instant::now();
    rig.start_daemon_with(&["--wait", "3"]);
    rig.until_state("data", "degraded");
    let took = begun.elapsed();
    assert!(took >= std::time::Duration::from_secs(3), "{took:?}");
    assert_eq!(rig.run(&["show"]).code, 5);
    // The member comes back, and gets what was written meanwhile.
    fs::rename(rig.path("away"), &devices[2]).expect("renamed");
    rig.until_state("data", "optimal");
    for name in ["member_kept", "member_in_sync"] {
        rig.event(name, |e| e["event"] == name);
    }
}

#[test]
fn a_member_that_was_put_out_comes_back_when_it_is_asked_for() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    rig.qemu_io("data", &["write -P 1 0 8M"]);
    rig.run(&["fail", "data", "1"]).ok();
    rig.qemu_io("data", &["write -P 2 1M 4096"]);
    rig.until("an event", || {
        rig.events().iter().any(|e| e["event"] == "member_returned")
    });
    assert_eq!(rig.show("data")["state"], "degraded");
    let what = rig.run(&["add", "data", &devices[1]]).ok().json();
    assert!(
        what["what"]
            .as_str()
            .is_some_and(|what| what.contains("is back"))
    );
    rig.until_state("data", "optimal");
    let partial = |e: &Value| e["event"] == "member_in_sync" && e["cause"] == "partial_rebuild";
    rig.event("that it is in sync", partial);
    // What was kept is served: the others of its stripes are not needed for it.
    rig.run(&["fail", "data", "0"]).ok();
    let reads = [
        "read -P 1 0 1M",
        "read -P 2 1M 4096",
        "read -P 1 1052672 6M",
    ];
    rig.qemu_io("data", &reads);
}

#[test]
fn a_half_that_went_on_alone_is_not_overwritten_unasked() {
    let mut rig = Rig::new();
    let devices = rig.files(2);
    rig.create("data", "1", NBD, &devices).ok();
    let away = rig.path("away");
    for other in [1, 0] {
        fs::rename(&devices[other], &away).expect("renamed");
        rig.start_daemon_with(&["--wait", "0"]);
        // The second half starts only where it is named.
        rig.run(&["start", "data", &devices[1 - other]]);
        rig.until_state("data", "degraded");
        rig.qemu_io("data", &["write -P 3 0 1M"]);
        rig.stop_daemon();
        fs::rename(&away, &devices[other]).expect("renamed");
    }
    // Together they are refused, with their error code.
    rig.start_daemon_with(&["--wait", "0"]);
    rig.run(&["start", "data"]).refused(4, "split-brain");
    rig.run(&["start", "data", "--force"])
        .refused(4, "split-brain");
    // With one of them alone it starts, and does not overwrite the other unasked.
    assert_eq!(rig.run(&["start", "data", &devices[0]]).code, 5);
    rig.run(&["add", "data", &devices[1]])
        .refused(4, "split-brain");
    rig.run(&["add", "data", &devices[1], "--force"])
        .refused(4, "not-confirmed");
    rig.run(&["add", "data", &devices[1], "--force", "--yes"])
        .ok();
    rig.until_state("data", "optimal");
}

#[test]
fn members_that_are_no_nvme_drives_say_so_when_asked_how_they_wear() {
    let mut rig = Rig::new();
    rig.run(&["show", "data", "--wear"]).refused(1, "no-daemon");
    rig.start_daemon();
    let devices = rig.files(4);
    let options = ["--export", "nbd", "--spare", &devices[3]];
    rig.create("data", "5", &options, &devices[..3]).ok();
    let wear = rig
        .run(&["show", "data", "--wear", "--since", "24h"])
        .ok()
        .json();
    let members = wear["members"].as_array().expect("a list");
    assert_eq!(members.len(), 4);
    for member in members {
        assert_eq!(member["reason"], "not an NVMe drive");
        assert_eq!(member["percentage_used"], Value::Null);
        assert_eq!(member["write_amplification"], Value::Null);
    }
    let text = rig.run_command(rig.command().args(["show", "data", "--wear"]));
    assert!(text.ok().out.contains("not an NVMe drive"));
    for wrong in [
        &["show", "--wear"][..],
        &["show", "data", "--since", "24h"],
        &["show", "data", "--wear", "--since", "yesterday"],
    ] {
        assert_eq!(rig.run(wrong).code, 2, "{wrong:?}");
    }
    rig.run(&["show", "other", "--wear"])
        .refused(3, "array-not-found");
}

#[test]
fn a_folder_given_to_the_daemon_is_searched() {
    let mut rig = Rig::new();
    let devices = rig.files(3);
    rig.create("data", "5", &[], &devices).ok();
    fs::remove_dir_all(rig.dir()).expect("removed");
    let folder = rig.folder.path().display().to_string();
    rig.start_daemon_with(&["--scan", &folder]);
    rig.until_state("data", "optimal");
}

#[test]
fn one_array_is_served_in_the_foreground_until_asked_to_end() {
    let mut rig = Rig::new();
    let devices = rig.files(3);
    rig.create("data", "5", &[], &devices).ok();
    let child = rig.foreground(&["data"]);
    rig.qemu_io("data", &["write -P 6 0 1M", "read -P 6 0 1M"]);
    rig.run(&["start", "--foreground", "data"])
        .refused(4, "device-busy");
    assert!(rig::end(child), "it did not end cleanly");
    assert_eq!(
        rig.run(&["examine", &devices[0]]).ok().json()["clean"],
        true
    );
}

#[test]
fn a_destroyed_array_is_gone_and_its_devices_are_free() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    rig.run(&["destroy", "data", "--yes"])
        .refused(4, "array-in-use");
    rig.run(&["stop", "data"]).ok();
    let dry = rig.run(&["destroy", "data", "--dry-run"]).ok().json();
    assert_eq!(dry["dry_run"], true);
    rig.run(&["destroy", "data", "--yes"]).ok();
    rig.run(&["examine", &devices[0]])
        .refused(3, "not-a-member");
    assert_eq!(
        rig.run(&["show"]).ok().json().as_array().map(Vec::len),
        Some(0)
    );
    rig.create("data", "1", NBD, &devices[..2]).ok();
}

#[test]
fn every_way_to_initialise_gives_zeros_and_true_parity() {
    let mut rig = Rig::new();
    rig.start_daemon();
    for init in ["auto", "lazy", "trim", "zero", "sync", "assume-clean"] {
        let devices: Vec<String> = (0..3)
            .map(|i| rig.file(&format!("{init}{i}"), 64 << 20))
            .collect();
        let made = rig
            .create(init, "5", &["--export", "nbd", "--init", init], &devices)
            .ok();
        assert_eq!(made.json()["state"], "optimal", "{init}");
        rig.until("resync", || {
            rig.show(init)["jobs"] == Value::Array(Vec::new())
        });
        rig.qemu_io(
            init,
            &[
                "read -P 0 0 4M",
                "write -P 5 64K 4096",
                "read -P 5 64K 4096",
            ],
        );
        rig.run(&["scrub", init, "start", "--wait"]).ok();
    }
    let scrubs = |rig: &Rig| {
        let events = rig.events();
        let done = |e: &&Value| e["event"] == "job_finished" && e["cause"] == "scrub";
        events
            .iter()
            .filter(done)
            .map(|e| e["inconsistent_stripes"].as_u64())
            .collect::<Vec<_>>()
    };
    rig.until("six scrubs", || scrubs(&rig).len() == 6);
    assert_eq!(scrubs(&rig), [Some(0); 6]);
}

#[test]
fn every_level_is_made_and_served() {
    let mut rig = Rig::new();
    rig.start_daemon();
    for (i, (level, count, options)) in [
        ("0", 3, &[][..]),
        ("1", 3, &[]),
        ("5", 3, &[]),
        ("6", 4, &[]),
        ("7.3", 5, &[]),
        ("10", 4, &[]),
        ("50", 6, &["--group-size", "3"]),
        ("60", 8, &["--group-size", "4"]),
        ("70", 10, &["--group-size", "5"]),
        ("6+4", 10, &[]),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("l{i}");
        let devices: Vec<String> = (0..count)
            .map(|d| rig.file(&format!("{name}-{d}"), 32 << 20))
            .collect();
        let mut all = NBD.to_vec();
        all.extend(options);
        let made = rig.create(&name, level, &all, &devices).ok().json();
        assert_eq!(made["level"], level);
        rig.qemu_io(&name, &["write -P 2 12K 300K", "read -P 2 12K 300K"]);
        rig.run(&["stop", &name]).ok();
    }
}

#[test]
fn the_api_document_is_served_and_followers_hear_of_events() {
    use std::io::{BufRead, BufReader};
    let mut rig = Rig::new();
    rig.start_daemon();
    let mut follower = rig
        .command()
        .args(["--json", "events", "--follow"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("spawned");
    let mut lines = BufReader::new(follower.stdout.take().expect("a pipe")).lines();
    rig.create("data", "1", NBD, &rig.files(2)).ok();
    let started = lines.find(|line| {
        line.as_ref()
            .is_ok_and(|l| l.contains("\"event\":\"started\""))
    });
    assert!(started.is_some());
    follower.kill().expect("killed");
    follower.wait().expect("waited");
    if !rig::has("curl") {
        return rig::skipped("curl is not installed");
    }
    let curl = |path: &str| {
        let mut command = std::process::Command::new("curl");
        command
            .arg("-sS")
            .arg("--unix-socket")
            .arg(rig.dir().join("api.sock"));
        rig.run_command(command.arg(format!("http://strake{path}")))
            .ok()
    };
    assert_eq!(curl("/openapi.json").json()["openapi"], "3.1.0");
    assert_eq!(curl("/v1/arrays/data").json()["state"], "optimal");
    assert_eq!(curl("/v1/none").json()["code"], "no-such-route");
    let metrics = curl("/metrics").out;
    for line in [
        "strake_size_bytes{array=\"data\"}",
        "strake_member_read_errors_total{array=\"data\",slot=\"0\"} 0",
        "strake_member_write_errors_total{array=\"data\",slot=\"0\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
}

/// A follower that hung up was kept, with what worked for it, until the next event: on a quiet
/// array for ever.
#[test]
fn who_hangs_up_follows_events_no_longer_though_none_comes() {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixStream;
    let mut rig = Rig::new();
    rig.start_daemon();
    let ask = |path: &str| {
        let mut stream = UnixStream::connect(rig.dir().join("api.sock")).expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nhost: strake\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("asks");
        stream
    };
    let followers = || {
        let mut text = String::new();
        ask("/metrics").read_to_string(&mut text).expect("answers");
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix("strake_event_followers "));
        line.expect("a line").parse::<usize>().expect("a number")
    };
    assert_eq!(followers(), 0);
    let stay = ask("/v1/events?follow=true");
    let go = ask("/v1/events?follow=true");
    rig.until("both to follow", || followers() == 2);
    drop(go);
    rig.until("the one that hung up to be gone", || followers() == 1);
    // The other is still told what happens.
    let devices = rig.files(2);
    rig.create("data", "1", NBD, &devices).ok();
    let mut lines = BufReader::new(stay).lines();
    assert!(lines.any(|line| line.is_ok_and(|l| l.contains("\"event\":\"started\""))));
}

#[test]
fn a_scrub_of_an_array_without_redundancy_says_that_it_compares_nothing() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(12);
    let bare = "no redundancy is left: there";
    for (name, level, of, lost, says) in [
        ("r0", "0", 0..2, None, bare),
        ("r5", "5", 2..5, Some("0"), bare),
        ("r1", "1", 5..8, Some("0"), ""),
        (
            "r10",
            "10",
            8..12,
            Some("3"),
            "no redundancy is left in 1 of 2 groups",
        ),
    ] {
        rig.create(name, level, NBD, &devices[of]).ok();
        if let Some(slot) = lost {
            rig.run(&["fail", name, slot]).ok();
        }
        let run = rig.run(&["scrub", name, "--wait"]);
        let what = run.json()["what"].to_string();
        assert_eq!(
            what.contains("no redundancy is left"),
            !says.is_empty(),
            "{name}: {what}"
        );
        assert!(what.contains(says), "{name}: {what}");
    }
}

#[test]
fn a_start_that_is_refused_leaves_the_export_as_it_was() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    let uuid = rig.show("data")["uuid"].as_str().map(str::to_owned);
    rig.run(&["stop", "data"]).ok();
    let held = fs::File::open(&devices[0]).expect("it is there");
    held.lock().expect("nobody holds it");
    let held_too = fs::File::open(&devices[1]).expect("it is there");
    held_too.lock().expect("nobody holds it");
    let refused = rig.run(&["start", "data", "--export", "none"]);
    assert_ne!(refused.code, 0, "{refused:?}");
    let file = format!("placement/{}.json", uuid.expect("it has one"));
    let kept = fs::read(rig.dir().join(file)).expect("it is remembered");
    let kept: Value = serde_json::from_slice(&kept).expect("JSON");
    assert_eq!(kept["export"], "nbd");
    drop((held, held_too));
    rig.run(&["start", "data"]).ok();
    assert_eq!(rig.show("data")["export"]["kind"], "nbd");
}
