//! Arrays that change their shape: larger members, more parities.

use std::fs::File;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::Command;

use serde_json::Value;

use crate::rig::{self, Rig};

const NBD: &[&str] = &["--export", "nbd"];
const MIB: u64 = 1 << 20;

fn size(shown: &Value) -> u64 {
    shown["size_bytes"].as_u64().expect("a size")
}

/// Makes a file longer, as lvextend makes a volume.
fn lengthen(path: &str, bytes: u64) {
    let file = File::options().write(true).open(path).expect("it is there");
    file.set_len(bytes).expect("it is longer");
}

#[test]
fn an_array_grows_onto_members_that_were_replaced_by_larger_ones() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    let pattern = ["write -P 0x5a 1M 3M", "flush"];
    if rig.qemu_io("data", &pattern).is_none() {
        return;
    }
    let before = size(&rig.show("data"));
    rig.run(&["grow", "data"]).refused(4, "nothing-to-grow");
    for slot in 0..3 {
        let larger = rig.file(&format!("larger{slot}"), 256 * MIB);
        rig.run(&["replace", "data", &slot.to_string(), &larger])
            .ok();
        let replaced = || {
            let shown = rig.show("data");
            let members = shown["members"].as_array().expect("members");
            members.len() == 3 && members[slot]["device"] == larger
        };
        rig.until("the member is replaced", replaced);
    }
    let dry = rig.run(&["grow", "data", "--dry-run"]).ok().json();
    assert_eq!(dry["changed"], false);
    assert!(
        dry["what"]
            .as_str()
            .is_some_and(|what| what.contains("would grow")),
        "{dry}"
    );
    assert_eq!(size(&rig.show("data")), before);
    let grown = rig.run(&["grow", "data"]).ok().json();
    assert_eq!(grown["changed"], true);
    let after = size(&rig.show("data"));
    assert!(after >= before + 2 * 190 * MIB, "{before} {after}");
    let far = format!("write -P 0xa5 {} 1M", after - MIB);
    rig.qemu_io("data", &[&far, "read -P 0x5a 1M 3M"]);
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    assert_eq!(size(&rig.show("data")), after);
    let far = format!("read -P 0xa5 {} 1M", after - MIB);
    let between = format!("read -P 0 {} 1M", before + MIB);
    rig.qemu_io("data", &[&far, &between, "read -P 0x5a 1M 3M"]);
    let events = rig.events();
    let grown = events.iter().find(|event| event["event"] == "grown");
    assert!(grown.is_some(), "{events:?}");
}

#[test]
fn superblocks_follow_devices_that_grow_without_being_asked() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    let before = size(&rig.show("data"));
    devices.iter().for_each(|device| lengthen(device, 96 * MIB));
    let there = || {
        let examined = devices.iter().map(|d| rig.run(&["examine", d]).ok().json());
        let mut copies = examined.map(|json| json["copies"].clone());
        copies.all(|copies| copies[0]["valid"] == true && copies[1]["valid"] == true)
    };
    rig.until("superblocks at the new ends", there);
    assert_eq!(size(&rig.show("data")), before);
}

#[test]
fn an_array_grows_where_its_devices_grew_while_it_serves() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "6", NBD, &devices).ok();
    let before = size(&rig.show("data"));
    devices.iter().for_each(|device| lengthen(device, 96 * MIB));
    // A client that knows the old size.
    let mut client = UnixStream::connect(rig.nbd("data")).expect("it is served");
    let mut greeting = [0; 18];
    client.read_exact(&mut greeting).expect("a greeting");
    rig.run(&["grow", "data"]).ok();
    let not_told = || {
        let mut events = rig.events().into_iter();
        events.find(|event| event["event"] == "size_not_told")
    };
    rig.until("the event size_not_told comes", || not_told().is_some());
    let effect = "1 client will see the new size after connecting anew";
    assert_eq!(not_told().expect("it is there")["effect"], effect);
    drop(client);
    let after = size(&rig.show("data"));
    assert_eq!(after - before, 2 * 32 * MIB);
    rig.stop_daemon();
    for device in &devices {
        let examined = rig.run(&["examine", device]).ok().json();
        assert_eq!(examined["copies"][0]["valid"], true);
        assert_eq!(examined["copies"][1]["valid"], true);
    }
    rig.start_daemon();
    rig.until_state("data", "optimal");
    assert_eq!(size(&rig.show("data")), after);
}

#[test]
fn raid_5_becomes_raid_6_and_survives_two_members_less() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    if rig
        .qemu_io("data", &["write -P 0x5a 0 8M", "flush"])
        .is_none()
    {
        return;
    }
    let fourth = rig.file("fourth", 64 * MIB);
    let small = rig.file("small", 16 * MIB);
    let wrong = ["restripe", "data", "--level", "7.3", &fourth];
    rig.run(&wrong).refused(2, "level-unreachable");
    rig.run(&["restripe", "data", "--level", "9", &fourth])
        .refused(2, "level-unknown");
    rig.run(&["restripe", "data", "--level", "6", &devices[0]])
        .refused(4, "member-in-use");
    for wanted in [&["--level", "6"][..], &["--add"]] {
        let args = [&["restripe", "data"], wanted, &[&small]].concat();
        let run = rig.run(&args).refused(2, "device-too-small");
        let found = run.json_error()["found"].to_string();
        assert!(found.contains(&small), "{found}");
    }
    let dry = ["restripe", "data", "--level", "6", "--dry-run", &fourth];
    assert_eq!(rig.run(&dry).ok().json()["changed"], false);
    assert_eq!(rig.show("data")["level"], "5");
    rig.run(&["restripe", "data", "--level", "6", &fourth]).ok();
    let shown = rig.show("data");
    assert_eq!(
        (&shown["level"], &shown["fixed_parities"]),
        (&"6".into(), &1.into())
    );
    rig.until_state("data", "optimal");
    // Asked again after its end, with the device that has become a member.
    let found = |args: &[&str], code, error: &str| {
        let run = rig.run(args).refused(code, error);
        let json = run.json_error();
        format!("{}; {}", json["found"], json["cure"])
    };
    let again = ["restripe", "data", "--level", "6", &fourth];
    let text = found(&again, 2, "level-unreachable");
    assert!(text.contains("has level 6 already"), "{text}");
    let text = found(&["restripe", "data", "--add", &fourth], 4, "member-in-use");
    assert!(text.contains("has slot 3 of data"), "{text}");
    assert!(!text.contains("spare"), "{text}");
    rig.run(&["fail", "data", "0"]).ok();
    rig.run(&["fail", "data", "1"]).ok();
    rig.qemu_io("data", &["read -P 0x5a 0 8M", "write -P 0xa5 4M 1M"]);
    rig.run(&["fail", "data", "2"]).refused(4, "would-fail");
    rig.kill_daemon();
    rig.start_daemon_with(&["--wait", "0.2"]);
    rig.until_state("data", "degraded");
    rig.qemu_io("data", &["read -P 0x5a 0 4M", "read -P 0xa5 4M 1M"]);
}

#[test]
fn a_parity_that_was_added_goes_again_and_its_device_is_a_spare() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    let writes = ["write -P 0x5a 0 8M", "flush"];
    if rig.qemu_io("data", &writes).is_none() {
        return;
    }
    let lower = ["restripe", "data", "--level", "5"];
    rig.run(&lower).refused(2, "level-unreachable");
    let last = ["restripe", "data", "--level", "0"];
    rig.run(&last).refused(4, "last-parity");
    let fourth = rig.file("fourth", 64 * MIB);
    rig.run(&["restripe", "data", "--level", "6", &fourth]).ok();
    rig.until_state("data", "optimal");
    let without = ["restripe", "data", "--level", "7.3"];
    rig.run(&without).refused(2, "level-unreachable");
    rig.run(&last).refused(4, "last-parity");
    rig.run(&["fail", "data", "1"]).ok();
    rig.run(&lower).refused(4, "not-optimal");
    let fifth = rig.file("fifth", 64 * MIB);
    rig.run(&["add", "data", &fifth]).ok();
    rig.until_state("data", "optimal");
    let dry = ["restripe", "data", "--level", "5", "--dry-run"];
    assert_eq!(rig.run(&dry).ok().json()["changed"], false);
    assert_eq!(rig.show("data")["level"], "6");
    assert_eq!(rig.run(&lower).ok().json()["changed"], true);
    let shown = rig.show("data");
    assert_eq!(
        (&shown["level"], &shown["fixed_parities"], &shown["state"]),
        (&"5".into(), &0.into(), &"optimal".into())
    );
    assert_eq!(shown["spares"][0]["device"], fourth.as_str());
    let lowered = rig.event("that it is lowered", |e| e["event"] == "level_lowered");
    assert_eq!(lowered["cause"], "was 6");
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    rig.run(&["fail", "data", "0"]).ok();
    rig.until_state("data", "optimal");
    rig.qemu_io("data", &["read -P 0x5a 0 8M"]);
}

#[test]
fn a_raid_6_that_was_made_as_one_becomes_raid_5_while_it_serves() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(5);
    rig.create("data", "6", NBD, &devices).ok();
    let writes = ["write -P 0x5a 0 24M", "write -P 0xa5 60M 4M", "flush"];
    if rig.qemu_io("data", &writes).is_none() {
        return;
    }
    let before = size(&rig.show("data"));
    rig.run(&["set", "data", "restripe_priority=1"]).ok();
    let lower = ["restripe", "data", "--level", "5"];
    let mixed = |more: &[&str], code| {
        let words = [&lower[..], more].concat();
        rig.run(&words).refused(2, code);
    };
    mixed(&["--strip", "16K"], "shape-unreachable");
    mixed(&["--rotate"], "shape-unreachable");
    let fresh = rig.file("fresh", 64 * MIB);
    mixed(&[&fresh], "level-unreachable");
    rig.run(&["restripe", "data", "--level", "1"])
        .refused(4, "would-shrink");
    let dry = [&lower[..], &["--dry-run"]].concat();
    let told = rig.run(&dry).ok().json();
    assert_eq!(told["changed"], false);
    let what = "would become level 5 from 6, with a spare more, once its data has moved";
    assert_eq!(told["what"], what);
    assert_eq!(rig.run(&lower).ok().json()["changed"], true);
    let shown = rig.show("data");
    let moving = &shown["moving"];
    let told = (&moving["from_fixed_parities"], &moving["to_fixed_parities"]);
    assert_eq!(told, (&0.into(), &1.into()), "{shown}");
    assert_eq!(shown["level"], "6");
    rig.run(&lower).refused(4, "data-moves");
    rig.run(&dry).refused(4, "data-moves");
    rig.run(&["restripe", "data", "--stop"]).ok();
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    assert_eq!(rig.show("data")["moving"]["stopped"], true);
    rig.qemu_io("data", &["read -P 0x5a 0 24M", "read -P 0xa5 60M 4M"]);
    rig.run(&["restripe", "data", "--continue"]).ok();
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    rig.run(&["set", "data", "restripe_priority=100"]).ok();
    rig.until("the parity is gone", || rig.show("data")["level"] == "5");
    let shown = rig.show("data");
    assert_eq!(
        (&shown["moving"], &shown["fixed_parities"], size(&shown)),
        (&Value::Null, &0.into(), before)
    );
    assert_eq!(shown["members"].as_array().map(Vec::len), Some(4));
    assert_eq!(shown["spares"][0]["device"], devices[4].as_str());
    assert_eq!(shown["state"], "optimal");
    let lowered = rig.event("that it is lowered", |e| e["event"] == "level_lowered");
    assert_eq!(lowered["cause"], "was 6");
    rig.run(&["fail", "data", "0"]).ok();
    rig.until_state("data", "optimal");
    rig.run(&["fail", "data", "2"]).ok();
    let reads = [
        "read -P 0x5a 0 24M",
        "read -P 0 30M 8M",
        "read -P 0xa5 60M 4M",
    ];
    rig.qemu_io("data", &reads);
}

#[test]
fn the_last_parity_goes_only_by_force_and_the_device_stays_as_large() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    let writes = ["write -P 0x5a 0 24M", "flush"];
    if rig.qemu_io("data", &writes).is_none() {
        return;
    }
    let before = size(&rig.show("data"));
    let lower = ["restripe", "data", "--level", "0"];
    let error = rig.run(&lower).refused(4, "last-parity").json_error();
    let found = error["found"].as_str().map(str::to_owned);
    assert!(
        found.is_some_and(|found| found.contains("no member could be lost")),
        "{error}"
    );
    let dry = [&lower[..], &["--dry-run"]].concat();
    rig.run(&dry).refused(4, "last-parity");
    assert_eq!(rig.show("data")["level"], "5");
    let dry = [&lower[..], &["--force", "--dry-run"]].concat();
    assert_eq!(rig.run(&dry).ok().json()["changed"], false);
    let forced = [&lower[..], &["--force", "--wait"]].concat();
    rig.run(&forced).ok();
    let shown = rig.show("data");
    assert_eq!((&shown["level"], size(&shown)), (&"0".into(), before));
    assert_eq!(shown["members"].as_array().map(Vec::len), Some(2));
    assert_eq!(shown["spares"].as_array().map(Vec::len), Some(1));
    rig.run(&["fail", "data", "0"]).refused(4, "would-fail");
    rig.qemu_io("data", &["read -P 0x5a 0 24M", "write -P 0xa5 4M 1M"]);
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    rig.qemu_io("data", &["read -P 0x5a 0 4M", "read -P 0xa5 4M 1M"]);
}

#[test]
fn an_array_of_one_data_column_becomes_the_mirror_that_it_is() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(2);
    rig.create("data", "1+1", NBD, &devices).ok();
    if rig
        .qemu_io("data", &["write -P 0x5a 0 8M", "flush"])
        .is_none()
    {
        return;
    }
    let before = size(&rig.show("data"));
    let dry = ["restripe", "data", "--level", "1", "--dry-run"];
    assert_eq!(rig.run(&dry).ok().json()["changed"], false);
    rig.run(&["restripe", "data", "--level", "1"]).ok();
    let shown = rig.show("data");
    assert_eq!((&shown["level"], size(&shown)), (&"1".into(), before));
    assert_eq!(shown["state"], "optimal");
    rig.run(&["fail", "data", "0"]).ok();
    rig.qemu_io("data", &["read -P 0x5a 0 8M", "write -P 0xa5 1M 1M"]);
    rig.kill_daemon();
    rig.start_daemon_with(&["--wait", "0.2"]);
    rig.until_state("data", "degraded");
    rig.qemu_io("data", &["read -P 0x5a 0 1M", "read -P 0xa5 1M 1M"]);
}

#[test]
fn a_mirror_becomes_raid_5_and_has_room_for_twice_as_much() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(2);
    rig.create("data", "1", NBD, &devices).ok();
    let writes = ["write -P 0x5a 0 24M", "write -P 0xa5 40M 4M", "flush"];
    if rig.qemu_io("data", &writes).is_none() {
        return;
    }
    let third = rig.file("third", 64 * MIB);
    rig.run(&["restripe", "data", "--add", &third])
        .refused(2, "shape-unreachable");
    rig.run(&["restripe", "data", "--level", "6", &third])
        .refused(2, "level-unreachable");
    let before = size(&rig.show("data"));
    rig.run(&["restripe", "data", "--level", "5", &third]).ok();
    assert_eq!(rig.show("data")["level"], "5");
    let raised = rig.event("that it is raised", |e| e["event"] == "level_raised");
    let effect = "5 from now on; its data moves to the new members";
    assert_eq!(raised["effect"], effect);
    rig.kill_daemon();
    rig.start_daemon();
    rig.until("the new size", || size(&rig.show("data")) != before);
    assert_eq!(size(&rig.show("data")), 2 * before);
    rig.until_state("data", "optimal");
    rig.run(&["fail", "data", "0"]).ok();
    let reads = [
        "read -P 0x5a 0 24M",
        "read -P 0xa5 40M 4M",
        "read -P 0 30M 8M",
    ];
    rig.qemu_io("data", &reads);
}

#[test]
fn data_moves_to_other_strips_and_stays_what_it_was() {
    let mut rig = Rig::new();
    rig.start_daemon();
    // Room that strips of any size divide.
    let bytes = 64 * MIB + (64 << 10);
    let devices: Vec<String> = (0..4).map(|n| rig.file(&format!("m{n}"), bytes)).collect();
    rig.create("data", "5", NBD, &devices).ok();
    let writes = ["write -P 0x5a 0 24M", "write -P 0xa5 60M 4M", "flush"];
    if rig.qemu_io("data", &writes).is_none() {
        return;
    }
    let strip = |rig: &Rig| rig.show("data")["strip_bytes"].as_u64().expect("a number");
    let before = strip(&rig);
    let ask = |strip: &str| ["restripe", "data", "--strip", strip].map(str::to_owned);
    for (wanted, code) in [
        (before.to_string().as_str(), "shape-unreachable"),
        ("3000", "strip-invalid"),
        ("2M", "strip-invalid"),
    ] {
        let words = ask(wanted);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        rig.run(&words).refused(2, code);
    }
    let level = [
        "restripe",
        "data",
        "--level",
        "6",
        "--strip",
        "8K",
        &devices[0],
    ];
    rig.run(&level).refused(2, "shape-unreachable");
    let dry = ["restripe", "data", "--strip", "32K", "--dry-run"];
    assert_eq!(rig.run(&dry).ok().json()["changed"], false);
    let has = size(&rig.show("data"));
    for (wanted, bytes) in [("1M", 1 << 20), ("16K", 16 << 10)] {
        rig.run(&["restripe", "data", "--strip", wanted]).ok();
        rig.kill_daemon();
        rig.start_daemon();
        rig.until("all has moved", || rig.show("data")["moving"].is_null());
        assert_eq!((strip(&rig), size(&rig.show("data"))), (bytes, has));
        let reads = [
            "read -P 0x5a 0 24M",
            "read -P 0xa5 60M 4M",
            "read -P 0 30M 8M",
            "write -P 0x3c 12345K 700K",
            "read -P 0x3c 12345K 700K",
            "write -P 0x5a 12345K 700K",
        ];
        rig.qemu_io("data", &reads);
    }
    rig.until_state("data", "optimal");
    rig.run(&["fail", "data", "1"]).ok();
    rig.qemu_io("data", &["read -P 0x5a 0 24M", "read -P 0xa5 60M 4M"]);
    rig.run(&["stop", "data"]).ok();
    let stopped = rig.run(&["examine", &devices[0]]).ok().json();
    assert_eq!(stopped["array"]["strip_bytes"], 16384);
}

#[test]
fn data_moves_to_one_column_more_and_the_device_grows_when_it_has() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    if rig
        .qemu_io(
            "data",
            &["write -P 0x5a 0 24M", "write -P 0xa5 60M 4M", "flush"],
        )
        .is_none()
    {
        return;
    }
    let fourth = rig.file("fourth", 64 * MIB);
    rig.run(&["restripe", "data", "--stop"])
        .refused(4, "nothing-moves");
    let dry = ["restripe", "data", "--dry-run", "--add", &fourth];
    assert_eq!(rig.run(&dry).ok().json()["changed"], false);
    let before = size(&rig.show("data"));
    rig.run(&["restripe", "data", "--add", &fourth]).ok();
    rig.kill_daemon();
    rig.start_daemon();
    rig.until("the new size", || size(&rig.show("data")) != before);
    assert_eq!(size(&rig.show("data")), before / 2 * 3);
    rig.until_state("data", "optimal");
    rig.run(&["fail", "data", "1"]).ok();
    rig.qemu_io(
        "data",
        &[
            "read -P 0x5a 0 24M",
            "read -P 0xa5 60M 4M",
            "read -P 0 30M 8M",
        ],
    );
}

/// Buffers that are too few were told without what would suffice.
#[test]
fn the_memory_limit_that_is_named_suffices_for_the_other_shape() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    let least = ["--shards", "1", "--memory-limit", "1K"];
    let refused = rig.create("data", "5", &least, &devices[..3]);
    let found = refused.json_error()["found"].to_string();
    let mib = found.split(' ').zip(found.split(' ').skip(1));
    let mib = mib
        .filter(|(_, unit)| *unit == "MiB")
        .map(|(n, _)| n)
        .next();
    let limit = format!("{}M", mib.expect("what it takes"));
    let options = ["--export", "nbd", "--shards", "1", "--memory-limit", &limit];
    rig.create("data", "5", &options, &devices[..3]).ok();
    let more = ["restripe", "data", "--level", "6", &devices[3]];
    let refused = rig
        .run(&more)
        .refused(2, "memory-limit-too-small")
        .json_error();
    let cure = refused["cure"].as_str().expect("a cure");
    let setting = cure
        .split([' ', ','])
        .find(|word| word.starts_with("memory_limit="));
    rig.run(&["set", "data", setting.expect("a setting")]).ok();
    rig.run(&["stop", "data"]).ok();
    rig.run(&["start", "data"]).ok();
    let done = rig.run(&[&more[..], &["--wait"]].concat()).ok().json();
    let what = done["what"].as_str().expect("text");
    assert!(what.ends_with("it is done"), "{done}");
    let shown = rig.show("data");
    assert_eq!(
        (&shown["level"], &shown["state"]),
        (&"6".into(), &"optimal".into())
    );
    assert_eq!(shown["jobs"], serde_json::json!([]), "{shown}");
}

#[test]
fn who_waits_for_data_that_moves_comes_back_when_it_has_moved() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices[..3]).ok();
    if rig
        .qemu_io("data", &["write -P 0x5a 0 60M", "flush"])
        .is_none()
    {
        return;
    }
    let before = size(&rig.show("data"));
    // Slowly enough, as a rule, that there is some progress to tell of.
    rig.run(&["set", "data", "restripe_priority=1"]).ok();
    let mut command = rig.command();
    command.args(["restripe", "data", "--wait", "--add", &devices[3]]);
    let since = std::time::Instant::now();
    let run = rig.run_command(&mut command).ok();
    let took = since.elapsed();
    assert!(run.out.contains("it is done"), "{run:?}");
    let soon = took < std::time::Duration::from_secs(15);
    assert!(soon || run.err.contains("restripe: "), "{took:?}: {run:?}");
    let shown = rig.show("data");
    assert_eq!(shown["moving"], Value::Null, "{shown}");
    assert_eq!(size(&shown), before / 2 * 3);
    // Nothing is begun by it that would take a while.
    for device in &devices {
        let file = std::fs::File::options()
            .write(true)
            .open(device)
            .expect("works");
        file.set_len(96 * MIB).expect("works");
    }
    rig.run(&["grow", "data", "--wait"]).ok();
    assert!(size(&rig.show("data")) > before / 2 * 3);
}

/// What a client that connects now is told of the array's size, and whether all of it is data;
/// `None` where there is no nbdinfo.
fn seen_by_nbd(rig: &Rig, name: &str) -> Option<(u64, bool)> {
    let uri = format!("nbd+unix:///?socket={}", rig.nbd(name).display());
    let told = |options: &[&str]| {
        let output = Command::new("nbdinfo").args(options).arg(&uri).output();
        let output = output.expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    if !rig::has("nbdinfo") {
        rig::skipped("nbdinfo is not installed");
        return None;
    }
    let size = told(&["--size"]).trim().parse().expect("a size");
    let map: Value = serde_json::from_str(&told(&["--map", "--json"])).expect("JSON");
    let extents = map.as_array().expect("extents").clone();
    let length = |extent: &Value| extent["length"].as_u64().expect("a length");
    assert_eq!(extents.iter().map(length).sum::<u64>(), size, "{map}");
    Some((size, extents.iter().all(|extent| extent["type"] == 0)))
}

#[test]
fn data_that_stands_half_way_is_told_whether_the_array_runs_or_not() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    if rig
        .qemu_io("data", &["write -P 0x5a 0 80M", "flush"])
        .is_none()
    {
        return;
    }
    assert_eq!(rig.show("data")["moving"], Value::Null);
    let before = size(&rig.show("data"));
    let seen = seen_by_nbd(&rig, "data");
    assert!(seen.is_none_or(|seen| seen == (before, false)), "{seen:?}");
    rig.run(&["set", "data", "restripe_priority=1"]).ok();
    let fourth = rig.file("fourth", 64 * MIB);
    rig.run(&["restripe", "data", "--add", &fourth]).ok();
    rig.run(&["restripe", "data", "--stop"]).ok();
    // What was under way comes to its end.
    let rests = || rig.show("data")["jobs"][0]["paused"] == true;
    rig.until("it moves no further", rests);
    let shown = rig.show("data");
    let moving = shown["moving"].clone();
    assert_eq!(
        (&moving["from_columns"], &moving["to_columns"]),
        (&2.into(), &3.into())
    );
    assert_eq!(moving["stopped"], true, "{shown}");
    assert!(moving["moved_bytes"].as_u64() < moving["total_bytes"].as_u64());
    // What is a hole differs from shape to shape.
    let seen = seen_by_nbd(&rig, "data");
    assert!(seen.is_none_or(|seen| seen == (before, true)), "{seen:?}");
    rig.run(&["stop", "data"]).ok();
    let stopped = rig.show("data");
    assert_eq!(
        (&stopped["state"], &stopped["moving"]),
        (&"stopped".into(), &moving)
    );
    assert_eq!(stopped["unwritten_bytes"], shown["unwritten_bytes"]);
    rig.stop_daemon();
    let [first, second] = [&devices[0], &devices[1]];
    let scanned = rig.run(&["scan", first, second]).ok().json();
    assert_eq!(scanned[0]["moving"], moving);
    let examined = rig.run(&["examine", first]).ok().json();
    assert_eq!(examined["array"]["moving"], moving);
    for args in [&["show", "data"][..], &["scan", first], &["examine", first]] {
        let text = rig.run_command(rig.command().args(args)).out;
        let told = "from 2 to 3 data columns, stopped until restripe --continue";
        assert!(text.contains(told), "{args:?}: {text}");
    }
    rig.start_daemon();
    rig.until_state("data", "optimal");
    rig.run(&["set", "data", "restripe_priority=100"]).ok();
    rig.run(&["restripe", "data", "--continue"]).ok();
    rig.until("all has moved", || size(&rig.show("data")) > before);
    let after = size(&rig.show("data"));
    assert_eq!(after, before / 2 * 3);
    let seen = seen_by_nbd(&rig, "data");
    assert!(seen.is_none_or(|seen| seen == (after, false)), "{seen:?}");
    rig.qemu_io("data", &["read -P 0x5a 0 80M", "read -P 0 80M 8M"]);
    assert_eq!(rig.show("data")["moving"], Value::Null);
    // No client was connected that would see the old size.
    let events = rig.events();
    let not_told = events.iter().find(|e| e["event"] == "size_not_told");
    assert_eq!(not_told, None);
}

/// "the following required arguments were not provided: <NAME>", though the name stood there.
#[test]
fn a_name_behind_the_devices_of_add_is_found_by_the_error() {
    let rig = Rig::new();
    for (args, took, written) in [
        (
            &["restripe", "--add", "/dev/a", "/dev/b", "data"][..],
            "--add took /dev/a, /dev/b and data as devices",
            "strake restripe data --add /dev/a /dev/b",
        ),
        (
            &["restripe", "--dry-run", "--add", "/dev/a", "data", "--wait"],
            "--add took /dev/a and data as devices",
            "strake restripe data --add /dev/a",
        ),
        (
            &["restripe", "--add", "/dev/a"],
            "--add took /dev/a as a device",
            "strake restripe NAME --add /dev/a",
        ),
    ] {
        let run = rig.run(args).refused(2, "usage");
        let error = run.json_error();
        let (found, cure) = (error["found"].to_string(), error["cure"].to_string());
        assert!(found.contains("<NAME>") && found.contains(took), "{found}");
        assert!(cure.contains(&format!("{written},")), "{cure}");
    }
    // Both ways that the error names go on to look for the array.
    for args in [
        &["restripe", "--add", "/dev/a", "--", "data"][..],
        &["restripe", "data", "--add", "/dev/a"],
    ] {
        rig.run(args).refused(1, "no-daemon");
    }
    // What else lacks its name is told as before.
    let run = rig.run(&["restripe", "--stop"]).refused(2, "usage");
    assert!(!run.err.contains("--add took"), "{run:?}");
}
