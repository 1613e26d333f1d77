//! Members that were found and cannot be used as they are: each is told, with what is wrong with
//! it, and nothing that is whole is out of reach.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;

use rustix::fs::FlockOperation;
use serde_json::{Value, json};

use crate::devices::Mount;
use crate::rig::{self, Rig, Sealed, bytes};

const NBD: &[&str] = &["--export", "nbd"];

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    };
    !bytes.iter().fold(!0, step)
}

/// Writes an empty GPT over a file as `sgdisk -o` does: the protective MBR, the table and its copy
/// at the end.
pub(crate) fn partition(path: &str) {
    let file = File::options().write(true).open(path).expect("opened");
    let last = file.metadata().expect("a size").len() / 512 - 1;
    let entries = [0; 128 * 128];
    let header = |own: u64, other: u64, table: u64| {
        let mut header = [0; 512];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
        for (at, value) in [
            (24, own),
            (32, other),
            (40, 34),
            (48, last - 33),
            (72, table),
        ] {
            header[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
        }
        header[56..72].copy_from_slice(b"sixteen bytes id");
        for (at, value) in [(80, 128), (84, 128), (88, crc32(&entries))] {
            header[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
        }
        let sum = crc32(&header[..92]);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        header
    };
    let mut mbr = [0; 512];
    mbr[446..458].copy_from_slice(&[0, 0, 2, 0, 0xee, 255, 255, 255, 1, 0, 0, 0]);
    mbr[458..462].copy_from_slice(&(last as u32).to_le_bytes());
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    for (at, bytes) in [
        (0, &mbr[..]),
        (1, &header(1, last, 2)),
        (2, &entries),
        (last - 32, &entries),
        (last, &header(last, 1, last - 32)),
    ] {
        file.write_all_at(bytes, at * 512).expect("written");
    }
}

/// An array with data that is stopped; None where nobody can write data.
fn stopped(rig: &mut Rig, level: &str, members: usize) -> Option<Vec<String>> {
    rig.start_daemon();
    let devices = rig.files(members);
    rig.create("data", level, NBD, &devices).ok();
    rig.qemu_io("data", &["write -P 7 0 4M", "flush"])?;
    rig.run(&["stop", "data"]).ok();
    Some(devices)
}

fn told<'a>(events: &'a [Value], name: &str) -> Option<&'a Value> {
    events.iter().rev().find(|event| event["event"] == name)
}

#[test]
fn members_under_a_partition_table_are_told_and_started_when_they_are_named() {
    let mut rig = Rig::new();
    let Some(devices) = stopped(&mut rig, "5", 4) else {
        return;
    };
    let backup = rig.path("backup.json");
    rig.run(&["config", "backup", &backup]).ok();
    devices.iter().for_each(|device| partition(device));
    let raw: Vec<Vec<u8>> = devices.iter().map(|d| bytes(d)).collect();

    let scan = rig.run(&["scan"]).ok().json();
    assert_eq!(scan[0]["state"], "incomplete", "{scan}");
    assert_eq!(scan[0]["members_found"], 0, "{scan}");
    for device in scan[0]["devices"].as_array().expect("devices") {
        assert_eq!(device["state"], "set_aside", "{scan}");
        let problem = device["problem"].as_str().expect("a problem");
        assert!(problem.contains("partition table"), "{scan}");
    }
    let shown = rig.show("data");
    assert_eq!(shown["set_aside"].as_array().map(Vec::len), Some(4));
    assert_eq!(shown["members"][0]["state"], "missing", "{shown}");
    for command in [
        &["start", "data"][..],
        &["start", "data", "--force"],
        &["config", "restore", &backup, "--yes"],
    ] {
        let refused = rig.run(command);
        for device in &devices {
            assert!(refused.err.contains(device), "{command:?}: {refused:?}");
        }
        assert!(
            refused.err.contains("strake start --force data"),
            "{refused:?}"
        );
        refused.refused(4, "members-missing");
    }
    rig.stop_daemon();
    rig.start_daemon();
    rig.until("a refusal", || {
        told(&rig.events(), "start_refused").is_some()
    });
    let events = rig.events();
    let refusal = told(&events, "start_refused")
        .expect("an event")
        .to_string();
    assert!(refusal.contains(&devices[3]), "{refusal}");
    assert!(refusal.contains("strake start --force data"), "{refusal}");
    assert!(
        devices.iter().map(|d| bytes(d)).eq(raw),
        "something was written"
    );

    let mut named = vec!["start", "--force", "data"];
    named.extend(devices.iter().map(String::as_str));
    rig.run(&[&named[..], &["--dry-run"]].concat()).ok();
    rig.run(&[&named[..], &["--yes"]].concat()).ok();
    rig.qemu_io("data", &["read -P 7 0 4M"]);
    // The tables are gone: from now on it starts as ever.
    rig.run(&["stop", "data"]).ok();
    rig.run(&["start", "data"]).ok();
    assert_eq!(rig.show("data")["state"], "optimal");
    rig.qemu_io("data", &["read -P 7 0 4M"]);
}

/// How a member is spoiled, and what is told of it.
type Spoil<'a> = (&'a dyn Fn(&str), &'a [&'a str]);

#[test]
fn what_is_wrong_with_a_member_that_is_left_out_is_an_event_and_shown() {
    let swap = |path: &str| {
        let made = std::process::Command::new("mkswap").arg(path).output();
        assert!(made.expect("util-linux").status.success());
    };
    let shrink = |path: &str| {
        let file = File::options().write(true).open(path).expect("opened");
        file.set_len(48 << 20).expect("shrunk");
    };
    let spoil: [Spoil<'_>; 2] = [
        (&swap, &["foreign-signature", "swap"]),
        (&shrink, &["67108864", "50331648"]),
    ];
    for (spoil, words) in spoil {
        let mut rig = Rig::new();
        let Some(devices) = stopped(&mut rig, "5", 4) else {
            return;
        };
        spoil(&devices[2]);
        // Not even by name: what it holds may be anything.
        let mut named = vec!["start", "--force", "data"];
        named.extend(devices.iter().map(String::as_str));
        assert_eq!(rig.run(&named).code, 5, "{}", rig.log());
        let events = rig.events();
        let event = told(&events, "member_set_aside").expect("an event");
        assert_eq!(
            (&event["slot"], &event["device"]),
            (&json!(2), &json!(devices[2]))
        );
        for word in words {
            assert!(event["cause"].to_string().contains(word), "{event}");
        }
        let shown = rig.show("data");
        assert_eq!(
            shown["set_aside"][0]["device"],
            devices[2].as_str(),
            "{shown}"
        );
        assert_eq!(shown["set_aside"][0]["slot"], 2);
        rig.qemu_io("data", &["read -P 7 0 4M"]);
    }
}

#[test]
fn a_member_that_another_program_holds_is_a_missing_one_as_long_as_most_are_free() {
    let mut rig = Rig::new();
    let Some(devices) = stopped(&mut rig, "5", 4) else {
        return;
    };
    let hold = |path: &str| {
        let file = File::open(path).expect("opened");
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).expect("held");
        file
    };
    let (first, second) = (hold(&devices[1]), hold(&devices[2]));
    // Half of them may be in service where they are held.
    let refused = rig.run(&["start", "data"]);
    assert!(
        refused.err.contains("2 of 4 members are free"),
        "{refused:?}"
    );
    refused.refused(4, "device-busy");
    drop(second);
    assert_eq!(rig.run(&["start", "data"]).code, 5);
    rig.qemu_io("data", &["read -P 7 0 4M", "write -P 8 4M 1M"]);
    let events = rig.events();
    let event = told(&events, "member_set_aside").expect("an event");
    assert!(
        event["cause"].to_string().contains("device-busy"),
        "{event}"
    );
    // It is looked for, and taken back when it is let go of.
    drop(first);
    rig.until_state("data", "optimal");
    rig.qemu_io("data", &["read -P 7 0 4M", "read -P 8 4M 1M"]);

    let mirror = rig.files_called("m", 2);
    rig.create("mirror", "1", NBD, &mirror).ok();
    rig.run(&["stop", "mirror"]).ok();
    let _held = hold(&mirror[1]);
    // The refusal names the way on, and it works.
    let refused = rig.run(&["start", "mirror"]).refused(4, "device-busy");
    let way = format!("strake start mirror {}", mirror[0]);
    let cure = refused.json_error()["cure"].to_string();
    assert!(cure.contains(&way), "{cure}");
    assert_eq!(rig.run(&["start", "mirror", &mirror[0]]).code, 5);
}

/// It was counted as found that another program holds: "force does not start it without them" was
/// said of an array that force starts.
#[test]
fn force_is_advised_by_the_members_that_can_be_used() {
    let mut rig = Rig::new();
    let Some(devices) = stopped(&mut rig, "5", 3) else {
        return;
    };
    for bytes in [6 << 20, 64 << 20] {
        let file = File::options().write(true).open(&devices[0]);
        let resized = file.and_then(|file| file.set_len(bytes));
        resized.expect("cut short, and as long again");
    }
    let held = File::open(&devices[1]).expect("opened");
    rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).expect("held");
    let refused = rig.run(&["start", "data"]).refused(4, "members-emptied");
    let cure = refused.json_error()["cure"].to_string();
    assert!(!cure.contains("force does not"), "{cure}");
    assert!(cure.contains("strake start --force data"), "{cure}");
    // It was found, and that is not denied.
    let found = refused.json_error()["found"].to_string();
    assert!(!found.contains("no device was found"), "{found}");
    let forced = rig.run(&["start", "data", "--force", "--yes"]);
    assert_eq!(forced.code, 5, "{forced:?}");
}

#[test]
fn an_array_that_was_destroyed_does_not_come_back_with_a_member_that_was_away() {
    let mut rig = Rig::new();
    let Some(devices) = stopped(&mut rig, "1", 2) else {
        return;
    };
    let uuid = rig.show("data")["uuid"]
        .as_str()
        .expect("a uuid")
        .to_owned();
    fs::rename(&devices[1], rig.path("away")).expect("unplugged");
    let done = rig.run(&["destroy", "data", "--yes"]).ok().json();
    let what = done["what"].as_str().expect("it is said");
    assert!(
        what.contains(&format!("slot 1, which had {}", devices[1])) && what.contains("still carry"),
        "{done}"
    );
    rig.stop_daemon();
    fs::rename(rig.path("away"), &devices[1]).expect("plugged");
    rig.start_daemon();
    rig.until("a refusal", || {
        told(&rig.events(), "start_refused").is_some()
    });
    let events = rig.events();
    let refusal = told(&events, "start_refused")
        .expect("an event")
        .to_string();
    assert!(refusal.contains("array-destroyed"), "{refusal}");
    let scan = rig.run(&["scan"]).ok().json();
    assert!(
        scan[0]["destroyed"]
            .as_str()
            .is_some_and(|d| d.starts_with("20")),
        "{scan}"
    );
    let refused = rig.run(&["start", "data"]);
    assert!(refused.err.contains("destroyed here on 20"), "{refused:?}");
    refused.refused(4, "array-destroyed");
    // No command sends a user to the start, which refuses.
    for args in [
        &["fail", "data", "0"][..],
        &["grow", "data"],
        &["scrub", "data", "start"],
    ] {
        rig.run(args).refused(4, "array-destroyed");
    }
    rig.run(&["start", "--foreground", "data", &devices[1]])
        .refused(4, "array-destroyed");
    // Somebody may want it after all.
    assert_eq!(rig.run(&["start", "--force", "data"]).code, 5);
    rig.qemu_io("data", &["read -P 7 0 4M"]);
    rig.run(&["stop", "data"]).ok();
    // Or be rid of it.
    rig.run(&["destroy", &uuid, "--yes"]).ok();
    assert_eq!(rig.run(&["scan"]).ok().json(), json!([]));
}

/// It was said that a start takes it back.
#[test]
fn a_destroyed_array_with_too_few_members_comes_back_with_the_others_only() {
    let mut rig = Rig::new();
    let Some(devices) = stopped(&mut rig, "5", 3) else {
        return;
    };
    for (device, away) in devices[1..].iter().zip(["away1", "away2"]) {
        fs::rename(device, rig.path(away)).expect("unplugged");
    }
    rig.run(&["destroy", "data", "--yes"]).ok();
    fs::rename(rig.path("away1"), &devices[1]).expect("plugged");
    let plain = |args: &[&str]| rig.run_command(rig.command().args(args)).out;
    let way = "with the members that are missing, strake start --force";
    rig.until("it is seen", || plain(&["scan"]).contains("destroyed on"));
    for args in [&["scan"][..], &["show"], &["doctor"]] {
        rig.until("it is told", || plain(args).contains(way));
    }
    fs::rename(rig.path("away2"), &devices[2]).expect("plugged");
    rig.until("the other one is seen", || {
        let all = plain(&["scan"]);
        all.contains("takes it back") && !all.contains(way)
    });
    let uuid = rig.show("data")["uuid"].as_str().expect("one").to_owned();
    assert_eq!(rig.run(&["start", "--force", &uuid]).code, 5);
}

#[test]
fn destroy_wipes_members_that_are_set_aside_too() {
    let mut rig = Rig::new();
    let Some(devices) = stopped(&mut rig, "5", 3) else {
        return;
    };
    partition(&devices[1]);
    rig.run(&["destroy", "data", "--yes"]).ok();
    let all = [&["scan"][..], &[&devices[0], &devices[1], &devices[2]]].concat();
    assert_eq!(rig.run(&all).ok().json(), json!([]));
}

#[test]
fn a_partition_table_that_is_overwritten_leaves_no_copy_of_itself() {
    let mut rig = Rig::new();
    let devices = rig.files(2);
    partition(&devices[0]);
    rig.start_daemon();
    rig.create("a", "1", NBD, &devices)
        .refused(4, "device-partitioned");
    rig.create("a", "1", &["--export", "nbd", "--force", "--yes"], &devices)
        .ok();
    rig.run(&["stop", "a"]).ok();
    let raw = bytes(&devices[0]);
    assert_ne!(&raw[512..520], b"EFI PART");
    assert_ne!(
        &raw[raw.len() - 512..][..8],
        b"EFI PART",
        "the copy is left"
    );
    rig.run(&["start", "a"]).ok();
    assert_eq!(rig.show("a")["state"], "optimal");
}

#[test]
fn scan_counts_members_and_spares_and_not_what_was_a_member_once() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(5);
    let options = [
        "--export",
        "none",
        "--spare",
        &devices[3],
        "--spare",
        &devices[4],
    ];
    rig.create("a", "5", &options, &devices[..3]).ok();
    rig.run(&["fail", "a", "0"]).ok();
    rig.until_state("a", "optimal");
    rig.run(&["stop", "a"]).ok();
    let scan = rig.run(&["scan"]).ok().json();
    let counts = [
        "members",
        "members_found",
        "spares",
        "spares_found",
        "found",
    ];
    assert_eq!(
        counts.map(|key| scan[0][key].as_u64()),
        [3, 3, 1, 1, 4].map(Some),
        "{scan}"
    );
    let text = rig.run_command(rig.command().arg("scan")).ok().out;
    assert!(
        text.contains("(3 of 3 members, 1 of 1 spares found)"),
        "{text}"
    );
}

#[test]
fn a_member_that_others_may_read_gets_a_note() {
    let rig = Rig::new();
    let devices = rig.files(2);
    let made = rig.create("a", "1", &["--dry-run"], &devices).ok().json();
    assert_eq!(made["notes"], json!([]), "{made}");
    fs::set_permissions(&devices[1], fs::Permissions::from_mode(0o644)).expect("changed");
    let made = rig.create("a", "1", &[], &devices).ok().json();
    let note = made["notes"][0].as_str().expect("a note");
    assert!(
        note.contains(&devices[1]) && note.contains("0644"),
        "{made}"
    );
}

#[test]
fn of_two_copies_of_a_member_it_is_told_which_is_the_older_one() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("a", "5", &["--export", "none"], &devices).ok();
    rig.run(&["stop", "a"]).ok();
    let copy = rig.path("copy");
    fs::copy(&devices[1], &copy).expect("copied");
    rig.run(&["start", "a"]).ok();
    rig.run(&["stop", "a"]).ok();
    let generation = |path: &str| {
        let told = rig.run(&["examine", path]).ok().json();
        told["generation"].as_u64().expect("a number")
    };
    let (now, then) = (generation(&devices[1]), generation(&copy));
    assert!(then < now);
    // The only other member proves nothing of the two: it is not there.
    let args = ["start", "a", &copy, &devices[1]];
    let refused = rig.run(&args).refused(4, "member-found-twice").json_error();
    let found = refused["found"].as_str().expect("text");
    for (path, generation) in [(&devices[1], now), (&copy, then)] {
        let told = format!("{path} (slot 1, epoch 1, generation {generation})");
        assert!(found.contains(&told), "{found}");
    }
    let mut args = vec!["start", "a", &copy];
    args.extend(devices.iter().map(String::as_str));
    let array = rig.run(&args).ok().json();
    assert_eq!(array["set_aside"][0]["device"], copy, "{array}");
}

/// The copy kept the array down, and `show` said that the copy was the member.
#[test]
fn an_older_copy_beside_a_member_is_set_aside_and_the_array_starts_by_itself() {
    let mut rig = Rig::new();
    let Some(devices) = stopped(&mut rig, "5", 3) else {
        return;
    };
    let copy = rig.path("copy");
    fs::copy(&devices[1], &copy).expect("copied");
    rig.run(&["start", "data"]).ok();
    rig.run(&["set", "data", "degraded=never"]).ok();
    rig.qemu_io("data", &["write -P 8 0 4M", "flush"]);
    rig.stop_daemon();
    rig.start_daemon_with(&["--scan", &copy]);
    rig.until_state("data", "optimal");
    rig.qemu_io("data", &["read -P 8 0 4M"]);
    let shown = rig.show("data");
    assert_eq!(shown["members"][1]["device"], devices[1], "{shown}");
    let aside = &shown["set_aside"][0];
    assert_eq!(aside["device"], copy, "{shown}");
    let found = aside["found"].as_str().expect("a text");
    assert!(
        found.contains("older copy of") && found.contains(&devices[1]),
        "{found}"
    );
    // What it advises.
    rig.run(&["stop", "data"]).ok();
    rig.run(&["drive", "clean", &copy, "--yes"]).ok();
}

/// `show` said that too few members were found, and `doctor` that others were to be plugged in.
#[test]
fn two_devices_that_carry_one_member_are_both_named_with_the_way_on() {
    let mut rig = Rig::new();
    let Some(devices) = stopped(&mut rig, "5", 3) else {
        return;
    };
    let copy = rig.path("copy");
    fs::copy(&devices[1], &copy).expect("copied");
    rig.stop_daemon();
    rig.start_daemon_with(&["--scan", &copy]);
    rig.until("a refusal", || {
        told(&rig.events(), "start_refused").is_some()
    });
    let shown = rig.show("data");
    let states: Vec<&Value> = (0..3)
        .map(|slot| &shown["members"][slot]["state"])
        .collect();
    assert_eq!(states, ["in_sync", "conflicting", "in_sync"], "{shown}");
    assert_eq!(shown["members"][1]["device"], Value::Null, "{shown}");
    assert_eq!(shown["conflict"]["code"], "member-found-twice", "{shown}");
    for text in [&shown["conflict"]["found"], &shown["conflict"]["cure"]] {
        let text = text.as_str().expect("a text");
        assert!(text.contains(&copy) && text.contains(&devices[1]), "{text}");
    }
    let human = |args: &[&str]| rig.run_command(rig.command().args(args)).out;
    for args in [&["show", "data"][..], &["status", "data"], &["doctor"]] {
        let out = human(args);
        assert!(out.contains("two devices carry one member"), "{out}");
        assert!(!out.contains("too few"), "{out}");
    }
    assert!(human(&["doctor"]).contains(&copy));
    // The first of the two commands that it advises: the original, or the copy, which is the same.
    let command = format!("strake start data {} {} {}", devices[0], devices[2], copy);
    let cure = shown["conflict"]["cure"].as_str().expect("a cure");
    let advised: Vec<&str> = cure
        .match_indices("strake start")
        .map(|(at, _)| &cure[at..])
        .collect();
    assert_eq!(advised.len(), 2, "{cure} {command}");
    let args = advised[1].split(' ').skip(1).collect::<Vec<&str>>();
    rig.run(&args).ok();
    rig.qemu_io("data", &["read -P 7 0 4M"]);
}

/// It was called a device that was not found.
#[test]
fn a_device_that_was_overwritten_is_named_with_what_it_holds() {
    let mut rig = Rig::new();
    let Some(devices) = stopped(&mut rig, "5", 4) else {
        return;
    };
    for device in &devices[1..3] {
        let file = File::options().write(true).open(device).expect("opened");
        file.set_len(0).expect("cut");
        file.set_len(64 << 20).expect("zeros");
    }
    let refused = rig.run(&["start", "data"]).refused(4, "members-missing");
    let found = refused.json_error()["found"].to_string();
    let shown = rig.show("data");
    for (slot, device) in devices.iter().enumerate().take(3).skip(1) {
        let now = format!("{device} holds no superblock");
        assert!(
            found.contains(&format!("(it had {device}, which is there: {now})")),
            "{found}"
        );
        assert_eq!(shown["members"][slot]["was"]["holds"], now, "{shown}");
    }
}

#[test]
fn a_start_without_enough_members_names_the_slots_and_what_was_in_them() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("a", "5", &["--export", "none"], &devices).ok();
    rig.run(&["stop", "a"]).ok();
    for device in &devices[1..3] {
        fs::rename(device, format!("{device}.away")).expect("unplugged");
    }
    let refused = rig.run(&["start", "a"]).refused(4, "members-missing");
    let found = refused.json_error()["found"].to_string();
    for (slot, device) in [(1, &devices[1]), (2, &devices[2])] {
        assert!(
            found.contains(&format!("{slot} (it had {device})")),
            "{found}"
        );
    }
}

/// Only the error of the member was told, and the array was not remembered as destroyed: what was
/// left was started by itself.
#[test]
fn a_destroy_that_one_member_refuses_says_what_is_wiped_and_the_rest_does_not_come_back() {
    for with_daemon in [false, true] {
        let mut rig = Rig::new();
        if with_daemon {
            rig.start_daemon();
        }
        let sealed = Sealed::new(64 << 20);
        let mut d = rig.files(2);
        d.push(sealed.path());
        let made = rig.create("data", "5", &["--export", "none"], &d).ok();
        let uuid = made.json()["uuid"].as_str().expect("text").to_owned();
        if with_daemon {
            rig.run(&["stop", "data"]).ok();
        }
        sealed.refuse_writes();
        let run = rig.run(&["destroy", "data", "--yes"]);
        assert!(run.code != 0, "{run:?}");
        let error = run.json_error();
        let found = error["found"].to_string();
        assert!(found.contains(&sealed.path()), "{found}");
        assert!(
            found.contains(&format!("wiped: {}, {}", d[0], d[1])),
            "{found}"
        );
        let cure = error["cure"].to_string();
        assert!(cure.contains(&format!("strake destroy {uuid}")), "{cure}");
        if with_daemon {
            let events = rig.events();
            let destroyed = events.iter().find(|e| e["event"] == "destroyed");
            let effect = destroyed.expect("an event")["effect"].to_string();
            assert!(effect.contains(&sealed.path()), "{effect}");
            assert!(
                effect.starts_with("\"2 superblocks wiped, not all"),
                "{effect}"
            );
            // The member that is left is still found.
            let scanned = rig.run(&["scan"]).ok().json();
            assert_eq!(scanned[0]["uuid"], uuid.as_str(), "{scanned}");
            assert!(scanned[0]["destroyed"].is_string(), "{scanned}");
        }
        let start: &[&str] = match with_daemon {
            true => &["start", &uuid],
            false => &["start", "--foreground", &uuid, &d[2]],
        };
        rig.run(start).refused(4, "array-destroyed");
        // Nothing is wiped any more: that is not told to be more than it is.
        let again = rig.run(&["destroy", &uuid, "--yes"]);
        let found = again.json_error()["found"].to_string();
        assert!(found.ends_with("no device was wiped\""), "{found}");
    }
}

/// All but the last page of a device fits: a superblock is there, and cannot be wiped whole.
#[test]
fn a_create_that_one_device_refuses_names_what_it_may_have_left() {
    const PAGE: u64 = 4096;
    const ROOM: u64 = 16 << 20;
    if !rig::is_root() {
        return rig::skipped("a small file system needs root");
    }
    let rig = Rig::new();
    let options = ["-t", "tmpfs", "-o", "size=16M"];
    let Some(mount) = Mount::of(&options, "tmpfs", &rig.path("small")) else {
        return;
    };
    let [a, b] = ["a", "b"].map(|name| rig.file(name, 64 << 20));
    let create = [
        "create", "refused", "--level", "5", "--export", "none", "--force", "--yes",
    ];
    let ballast = format!("{}/ballast", mount.point);
    // Makes the array where the third device has so many pages.
    let made = |pages: u64| {
        let _ = fs::remove_file(rig.path("small/full"));
        let _ = fs::remove_file(&ballast);
        fs::write(&ballast, vec![1; (ROOM - pages * PAGE) as usize]).expect("it fits");
        let full = rig.file("small/full", 64 << 20);
        rig.run(&[&create[..], &[&a, &b, &full]].concat())
    };
    let (mut too_few, mut enough) = (1, ROOM / PAGE);
    while enough - too_few > 1 {
        let pages = too_few.midpoint(enough);
        let run = made(pages);
        match run.code {
            0 => enough = pages,
            _ => too_few = pages,
        }
        assert!(run.code == 0 || run.err.contains("small/full"), "{run:?}");
    }
    let run = made(too_few);
    assert!(run.code != 0 && run.err.contains("small/full"), "{run:?}");
    let found = run.json_error()["found"].to_string();
    let left = format!("wiped again: {a}, {b}");
    assert!(
        found.contains("may be left") && found.contains(&left),
        "{found}"
    );
    let other = rig.file("other", 64 << 20);
    rig.run(&[&create[..], &[&a, &b, &other]].concat()).ok();
}

/// It was found out when superblocks were written.
#[test]
fn a_create_beyond_the_limit_of_the_size_of_files_writes_nothing() {
    let rig = Rig::new();
    let [a, b] = ["a", "b"].map(|name| rig.file(name, 32 << 20));
    let large = rig.file("large", 64 << 20);
    let create = ["create", "data", "--level", "5", "--export", "none"];
    let run = rig.run_within_40_mib(&[&create[..], &[&a, &b, &large]].concat());
    let found = run.json_error()["found"].to_string();
    assert!(
        found.contains(&large) && found.contains("RLIMIT_FSIZE"),
        "{found}"
    );
    for file in [&a, &b, &large] {
        assert!(bytes(file).iter().all(|&byte| byte == 0), "{file}");
    }
}

/// What `scan` tells, with the daemon and without, and after that as text.
fn scans(rig: &mut Rig) -> [(Value, String); 2] {
    let scan = |rig: &Rig| {
        let text = rig.run_command(rig.command().arg("scan")).ok().out;
        (rig.run(&["scan"]).ok().json(), text)
    };
    let with = scan(rig);
    rig.stop_daemon();
    [with, scan(rig)]
}

/// `scan` left out what `start` and `show` named.
#[test]
fn a_scan_names_devices_that_were_members_and_carry_something_else() {
    for all in [false, true] {
        let mut rig = Rig::new();
        let Some(devices) = stopped(&mut rig, "5", 4) else {
            return;
        };
        let lost: Vec<usize> = if all { (0..4).collect() } else { vec![1, 2] };
        for &slot in &lost {
            let bytes = fs::metadata(&devices[slot]).expect("a size").len();
            let file = File::create(&devices[slot]).expect("opened");
            file.set_len(bytes).expect("sized");
        }
        partition(&devices[2]);
        for (json, text) in scans(&mut rig) {
            let array = &json[0];
            assert_eq!(array["name"], "data", "{json}");
            assert_eq!(array["state"], "incomplete", "{json}");
            let told = array["overwritten"].as_array().expect("a list");
            let slots: Vec<u64> = told.iter().filter_map(|one| one["slot"].as_u64()).collect();
            let expected: Vec<u64> = lost.iter().map(|&slot| slot as u64).collect();
            assert_eq!(slots, expected, "{json}");
            for one in told {
                let slot = one["slot"].as_u64().expect("a slot") as usize;
                let holds = one["holds"].as_str().expect("it is said");
                assert_eq!(one["device"], devices[slot].as_str());
                let expected = if slot == 2 {
                    "gpt"
                } else {
                    "holds no superblock"
                };
                assert!(holds.contains(expected), "{holds}");
                let line = format!("slot {slot} had {}, which is there: {holds}", devices[slot]);
                assert!(text.contains(&line), "{text}");
            }
        }
    }
}

/// A loop device, until it is dropped.
struct Loop(String);

impl Loop {
    fn over(file: &str) -> Option<Loop> {
        let mut losetup = Command::new("losetup");
        let made = losetup.args(["-f", "--show", file]).output();
        let made = made.ok().filter(|made| made.status.success())?;
        Some(Loop(
            String::from_utf8_lossy(&made.stdout).trim().to_owned(),
        ))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let freed = Command::new("losetup").args(["-d", &self.0]).status();
        assert!(freed.is_ok_and(|freed| freed.success()), "{}", self.0);
    }
}

/// They were told to carry no member: one is another drive at the same path, one cannot be read.
#[test]
fn a_scan_calls_neither_another_drive_nor_one_that_cannot_be_read_overwritten() {
    if !rig::is_root() {
        return rig::skipped("only root can make loop devices");
    }
    let mut rig = Rig::new();
    let mut d = rig.files(4);
    let file = std::mem::take(&mut d[3]);
    let Some(device) = Loop::over(&file) else {
        return rig::skipped("no loop device can be made here");
    };
    d[3].clone_from(&device.0);
    rig.start_daemon();
    rig.create("data", "6", &["--export", "none"], &d).ok();
    rig.run(&["stop", "data"]).ok();
    let uuid = rig.show("data")["uuid"]
        .as_str()
        .expect("it has")
        .to_owned();
    let bytes = fs::metadata(&d[1]).expect("a size").len();
    let empty = |path: &str, bytes| File::create(path).and_then(|file| file.set_len(bytes));
    empty(&d[1], bytes).expect("emptied");
    empty(&d[2], bytes).expect("emptied");
    // A read behind the end of its file is an error of the device.
    empty(&file, 0).expect("cut short");
    let seats = rig.dir().join(format!("seats/{uuid}.json"));
    let text = fs::read_to_string(&seats).expect("kept");
    let mut json: Value = serde_json::from_str(&text).expect("an object");
    json["1"]["now"]["serial"] = "of another drive".into();
    fs::write(&seats, json.to_string()).expect("written");
    for (json, text) in scans(&mut rig) {
        let array = &json[0];
        let overwritten = array["overwritten"].as_array().expect("a list");
        assert_eq!(overwritten.len(), 1, "{json}");
        assert_eq!(overwritten[0]["slot"], 2, "{json}");
        let unread = array["unread"].as_array().expect("a list");
        assert_eq!(unread.len(), 1, "{json}");
        assert_eq!(unread[0]["slot"], 3, "{json}");
        let line = format!("slot 3 had {}, which cannot be read", d[3]);
        assert!(text.contains(&line), "{text}");
    }
}

/// It was shown in sync, and a start left it out.
#[test]
fn a_member_that_another_program_holds_is_told_with_that_program() {
    let mut rig = Rig::new();
    let Some(devices) = stopped(&mut rig, "5", 4) else {
        return;
    };
    let file = File::open(&devices[1]).expect("opened");
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).expect("held");
    let holder = format!("({})", std::process::id());
    let names = |text: &Value| {
        let text = text.as_str().expect("it is said");
        text.contains("locked by") && text.contains(&holder)
    };
    for daemon in [true, false] {
        if !daemon {
            rig.stop_daemon();
        }
        let shown = rig.run(&["show", "data"]);
        assert_eq!(shown.code, 7, "{shown:?}");
        let shown = shown.json();
        assert_eq!(shown["members"][1]["state"], "missing", "{shown}");
        assert_eq!(shown["members"][2]["state"], "in_sync", "{shown}");
        assert_eq!(shown["set_aside"][0]["slot"], 1, "{shown}");
        assert_eq!(shown["set_aside"][0]["code"], "device-busy", "{shown}");
        assert!(names(&shown["set_aside"][0]["found"]), "{shown}");
        let scan = rig.run(&["scan"]).ok().json();
        let devices = scan[0]["devices"].as_array().expect("a list");
        for device in devices {
            match device["slot"] == 1 {
                true => assert!(names(&device["held"]), "{scan}"),
                false => assert_eq!(device["held"], Value::Null, "{scan}"),
            }
        }
        let text = rig.run_command(rig.command().arg("scan")).ok().out;
        assert!(
            text.contains("  held: ") && text.contains(&holder),
            "{text}"
        );
    }
}

/// Exit statuses: the state of an array is 8, a refusal is 4.
#[test]
fn members_that_contradict_each_other_are_told_alike_by_all_commands() {
    let mut rig = Rig::new();
    let Some(devices) = stopped(&mut rig, "1", 2) else {
        return;
    };
    let backup = rig.path("backup.json");
    rig.run(&["config", "backup", &backup]).ok();
    let uuid = rig.show("data")["uuid"]
        .as_str()
        .expect("a uuid")
        .to_owned();
    let away = rig.path("away");
    for other in [1, 0] {
        fs::rename(&devices[other], &away).expect("unplugged");
        let start = ["start", "data", &devices[1 - other], "--export", "none"];
        assert_eq!(rig.run(&start).code, 5);
        rig.run(&["stop", "data"]).ok();
        fs::rename(&away, &devices[other]).expect("plugged");
    }
    for daemon in [true, false] {
        if !daemon {
            rig.stop_daemon();
        }
        for args in [&["show", "data"][..], &["show"], &["status"]] {
            assert_eq!(rig.run(args).code, 8, "{args:?}, daemon {daemon}");
        }
        assert_eq!(rig.show("data")["conflict"]["code"], "split-brain");
        let scan = rig.run(&["scan"]).ok().json();
        assert_eq!(scan[0]["state"], "conflicting", "{scan}");
        let foreground: &[&str] = if daemon { &[] } else { &["--foreground"] };
        let start = [&["start", "data"], foreground].concat();
        rig.run(&start).refused(4, "split-brain");
        if daemon {
            rig.run(&["import", &uuid]).refused(4, "split-brain");
            rig.run(&["config", "restore", &backup, "--yes"])
                .refused(4, "split-brain");
        }
    }
}
