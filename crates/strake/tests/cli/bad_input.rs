//! Bad input: every refusal has its own code and exit status, and leaves nothing behind.
//!
//! Each is tried without a daemon and with one, because both ways must refuse alike.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};

use crate::rig::{self, Rig, bytes};

/// Runs the same refusal without and with a daemon, and checks that the files are untouched.
fn refused_both_ways(
    files: usize,
    code: i32,
    error: &str,
    act: impl Fn(&Rig, &[String]) -> crate::rig::Run,
) {
    for daemon in [false, true] {
        let mut rig = Rig::new();
        let devices = rig.files(files);
        if daemon {
            rig.start_daemon();
        }
        act(&rig, &devices).refused(code, error);
        for device in &devices {
            assert!(
                bytes(device).iter().all(|&b| b == 0),
                "{device} was written"
            );
        }
    }
}

#[test]
fn too_few_members_are_refused() {
    for (level, count) in [
        ("1", 1),
        ("5", 2),
        ("6", 3),
        ("7.3", 4),
        ("10", 3),
        ("6+4", 9),
    ] {
        let rig = Rig::new();
        let devices = rig.files(count);
        let run = rig.create("a", level, &[], &devices);
        assert_eq!(run.code, 2, "{level}: {run:?}");
        let known = ["too-few-members", "group-size-invalid"];
        assert!(
            known.iter().any(|k| run.err.contains(k)),
            "{level}: {run:?}"
        );
    }
    refused_both_ways(2, 2, "too-few-members", |rig, devices| {
        rig.create("a", "5", &[], devices)
    });
}

#[test]
fn too_many_members_are_refused() {
    refused_both_ways(65, 2, "too-many-members", |rig, d| {
        rig.create("a", "5", &[], d)
    });
    refused_both_ways(11, 2, "too-many-members", |rig, d| {
        rig.create("a", "6+4", &[], d)
    });
}

#[test]
fn too_many_spares_are_refused() {
    refused_both_ways(22, 2, "too-many-spares", |rig, devices| {
        let options: Vec<&str> = devices[5..]
            .iter()
            .flat_map(|d| ["--spare", d.as_str()])
            .collect();
        rig.create("a", "5", &options, &devices[..5])
    });
}

#[test]
fn the_same_device_twice_is_refused_also_through_links() {
    refused_both_ways(3, 2, "device-given-twice", |rig, d| {
        rig.create("a", "5", &[], &[d[0].clone(), d[1].clone(), d[0].clone()])
    });
    refused_both_ways(3, 2, "device-given-twice", |rig, d| {
        let link = rig.path("link");
        symlink(&d[0], &link).expect("works");
        rig.create("a", "5", &[], &[d[0].clone(), d[1].clone(), link])
    });
    refused_both_ways(3, 2, "device-given-twice", |rig, d| {
        rig.create("a", "5", &["--spare", &d[1]], d)
    });
}

#[test]
fn unknown_levels_are_refused() {
    for level in ["2", "7", "5+", "x", "0+4", "60+9"] {
        refused_both_ways(5, 2, "level-unknown", |rig, d| {
            rig.create("a", level, &[], d)
        });
    }
}

#[test]
fn strips_that_are_no_power_of_two_are_refused() {
    for strip in ["3K", "65537", "2K", "2M", "0"] {
        let both = |rig: &Rig, d: &[String]| rig.create("a", "5", &["--strip", strip], d);
        refused_both_ways(5, 2, "strip-invalid", both);
    }
    let rig = Rig::new();
    let devices = rig.files(5);
    rig.create("a", "5", &["--strip", "64Q"], &devices)
        .refused(2, "size-invalid");
}

#[test]
fn group_sizes_that_do_not_divide_are_refused() {
    for (level, group, count) in [
        ("50", "4", 6),
        ("50", "2", 6),
        ("60", "3", 9),
        ("5", "5", 5),
    ] {
        refused_both_ways(count, 2, "group-size-invalid", |rig, d| {
            rig.create("a", level, &["--group-size", group], d)
        });
    }
    refused_both_ways(6, 2, "group-size-invalid", |rig, d| {
        rig.create("a", "50", &[], d)
    });
}

#[test]
fn block_sizes_that_are_none_are_refused() {
    for size in ["1024", "0", "8K"] {
        refused_both_ways(5, 2, "block-size-invalid", |rig, d| {
            rig.create("a", "5", &["--block-size", size], d)
        });
    }
}

#[test]
fn names_that_are_none_are_refused() {
    for name in ["", ".", "a/b", "-x", "ä", "a b", &"x".repeat(33)] {
        let rig = Rig::new();
        let devices = rig.files(3);
        let mut args = vec!["create", "--level", "5", "--"];
        args.push(name);
        args.extend(devices.iter().map(String::as_str));
        rig.run(&args).refused(2, "name-invalid");
    }
}

#[test]
fn a_name_that_exists_is_refused() {
    for daemon in [false, true] {
        let mut rig = Rig::new();
        if daemon {
            rig.start_daemon();
        }
        rig.create("a", "1", &["--export", "nbd"], &rig.files(2))
            .ok();
        let more = [rig.file("x", 64 << 20), rig.file("y", 64 << 20)];
        rig.create("a", "1", &[], &more).refused(4, "name-exists");
    }
}

#[test]
fn a_device_that_is_not_there_and_one_that_is_none_are_refused() {
    refused_both_ways(2, 3, "device-not-found", |rig, d| {
        rig.create(
            "a",
            "5",
            &[],
            &[d[0].clone(), d[1].clone(), rig.path("none")],
        )
    });
    refused_both_ways(2, 2, "device-kind", |rig, d| {
        rig.create("a", "5", &[], &[d[0].clone(), d[1].clone(), rig.path("")])
    });
    refused_both_ways(2, 2, "device-kind", |rig, d| {
        rig.create(
            "a",
            "5",
            &[],
            &[d[0].clone(), d[1].clone(), "/dev/null".to_owned()],
        )
    });
}

#[test]
fn a_device_that_is_too_small_is_refused() {
    for size in [0, 4096, 1 << 20] {
        let rig = Rig::new();
        let small = rig.file("small", size);
        let mut devices = rig.files(2);
        devices.push(small);
        rig.create("a", "5", &[], &devices)
            .refused(2, "device-too-small");
    }
}

#[test]
fn words_that_are_unknown_are_refused() {
    let rig = Rig::new();
    let devices = rig.files(3);
    rig.create("a", "5", &["--init", "fast"], &devices)
        .refused(2, "usage");
    rig.create("a", "5", &["--write-hole", "open"], &devices)
        .refused(2, "usage");
    rig.create("a", "5", &["--export", "iscsi"], &devices)
        .refused(2, "usage");
    rig.run(&["frobnicate"]).refused(2, "usage");
    rig.run(&["create", "a"]).refused(2, "usage");
}

#[test]
fn a_foreign_signature_needs_force() {
    if !rig::has("mkfs.ext4") && !rig::has("mke2fs") {
        return rig::skipped("mkfs.ext4 is not installed");
    }
    for daemon in [false, true] {
        let mut rig = Rig::new();
        let devices = rig.files(3);
        let made = std::process::Command::new("mkfs.ext4")
            .arg("-q")
            .arg(&devices[1])
            .status();
        assert!(made.is_ok_and(|status| status.success()));
        if daemon {
            rig.start_daemon();
        }
        let before = bytes(&devices[1]);
        let run = rig
            .create("a", "5", &[], &devices)
            .refused(4, "foreign-signature");
        assert!(
            run.err.contains("ext4") && run.err.contains("--force"),
            "{run:?}"
        );
        assert!(before == bytes(&devices[1]), "a refused device was written");
        let run = rig
            .create("a", "5", &["--force", "--dry-run"], &devices)
            .ok();
        assert_eq!(run.json()["dry_run"], true);
        assert!(before == bytes(&devices[1]), "a dry run wrote");
        rig.create("a", "5", &["--force", "--export", "nbd"], &devices)
            .ok();
    }
}

#[test]
fn a_member_of_another_array_needs_force() {
    let rig = Rig::new();
    let devices = rig.files(4);
    rig.create("a", "1", &[], &devices[..2]).ok();
    let before = bytes(&devices[0]);
    let three = [devices[0].clone(), devices[2].clone(), devices[3].clone()];
    rig.create("b", "5", &[], &three)
        .refused(4, "member-of-another-array");
    assert!(before == bytes(&devices[0]), "a refused device was written");
    rig.create("b", "5", &["--force"], &three).ok();
}

#[test]
fn a_member_in_service_is_refused_even_with_force() {
    let mut rig = Rig::new();
    let devices = rig.files(4);
    rig.start_daemon();
    rig.create("a", "1", &["--export", "nbd"], &devices[..2])
        .ok();
    let three = [devices[0].clone(), devices[2].clone(), devices[3].clone()];
    rig.create("b", "5", &["--force"], &three)
        .refused(4, "device-busy");
    assert_eq!(rig.show("a")["state"], "optimal");
}

#[test]
fn ublk_that_is_not_there_is_named_before_anything_is_written() {
    if fs::exists("/dev/ublk-control").expect("works") {
        return rig::skipped("this kernel has ublk");
    }
    refused_both_ways(3, 1, "no-ublk", |rig, d| {
        rig.create("a", "5", &["--export", "ublk"], d)
    });
}

#[test]
fn things_that_are_not_there_are_named() {
    let mut rig = Rig::new();
    let devices = rig.files(2);
    rig.run(&["fail", "a", "0"]).refused(1, "no-daemon");
    rig.run(&["show", "a"]).refused(3, "array-not-found");
    rig.run(&["examine", &devices[0]])
        .refused(3, "not-a-member");
    rig.run(&["examine", &rig.path("none")])
        .refused(3, "device-not-found");
    rig.start_daemon();
    for args in [
        &["show", "a"][..],
        &["start", "a"],
        &["stop", "a"],
        &["destroy", "a", "--yes"],
        &["fail", "a", "0"],
        &["rebuild", "a", "start"],
        &["scrub", "a", "start"],
        &["get", "a"],
        &["explain", "a", "0"],
        &["set", "a", "rebuild_priority=3"],
    ] {
        rig.run(args).refused(3, "array-not-found");
    }
    rig.create("a", "1", &["--export", "nbd"], &devices).ok();
    rig.run(&["fail", "a", "7"]).refused(3, "member-not-found");
    rig.run(&["remove", "a", &rig.path("none")])
        .refused(3, "member-not-found");
    rig.run(&["add", "a", &rig.path("none")])
        .refused(3, "device-not-found");
    rig.run(&["set", "a", "rebuild_priority=0"])
        .refused(2, "setting-invalid");
    rig.run(&["set", "a", "latency_target=61s"])
        .refused(2, "setting-invalid");
    for wrong in [
        "cpus=",
        "cpus=x",
        "cpus=0-4095",
        "shards=0",
        "shards=65",
        "memory_limit=0",
        "requests=0",
        "requests=-1",
    ] {
        rig.run(&["set", "a", wrong]).refused(2, "setting-invalid");
    }
    rig.run(&["set", "a", "memory_limit=1M", "scrub_priority=9"])
        .refused(2, "memory-limit-too-small");
    assert_eq!(rig.run(&["get", "a"]).ok().json()["scrub_priority"], 50);
    rig.run(&["set", "a", "speed=9"])
        .refused(2, "setting-invalid");
    rig.run(&["get", "a", "speed"])
        .refused(2, "setting-invalid");
    rig.run(&["explain", "a", "999999999999"])
        .refused(2, "lba-out-of-range");
    rig.run(&["show", "a/b"]).refused(2, "name-invalid");
    rig.run(&["destroy", "a", "--yes"])
        .refused(4, "array-in-use");
    rig.run(&["stop", "a"]).ok();
    rig.run(&["destroy", "a"]).refused(4, "not-confirmed");
}

#[test]
fn the_last_good_member_cannot_be_failed() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("a", "5", &["--export", "nbd"], &rig.files(3))
        .ok();
    assert_eq!(rig.run(&["fail", "a", "0"]).code, 0);
    rig.run(&["fail", "a", "1"]).refused(4, "would-fail");
    rig.run(&["remove", "a", "1"]).refused(4, "member-in-use");
}

#[test]
fn flipped_bits_in_one_superblock_copy_are_seen_and_survived() {
    let rig = Rig::new();
    let devices = rig.files(3);
    rig.create("a", "5", &[], &devices).ok();
    let examined = rig.run(&["examine", &devices[0]]).ok().json();
    let first = examined["copies"][0]["offset_bytes"]
        .as_u64()
        .expect("works");
    let last = examined["copies"][1]["offset_bytes"]
        .as_u64()
        .expect("works");
    let file = File::options()
        .read(true)
        .write(true)
        .open(&devices[0])
        .expect("works");
    // Every 97th byte covers every field of the block, and is quick.
    for at in (0..4096).step_by(97) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, first + at).expect("works");
        file.write_all_at(&[byte[0] ^ 0x10], first + at)
            .expect("works");
        let seen = rig.run(&["examine", &devices[0]]).ok().json();
        assert_eq!(seen["copies"][0]["valid"], false, "byte {at}");
        assert_eq!(seen["copies"][1]["valid"], true, "byte {at}");
        assert_eq!(seen["array"], examined["array"], "byte {at}");
        file.write_all_at(&byte, first + at).expect("works");
    }
    for copy in [first, last] {
        let mut byte = [0];
        file.read_exact_at(&mut byte, copy + 200).expect("works");
        file.write_all_at(&[byte[0] ^ 1], copy + 200)
            .expect("works");
    }
    rig.run(&["examine", &devices[0]])
        .refused(1, "metadata-damaged");
    let scan = rig
        .run(&["scan", &devices[0], &devices[1], &devices[2]])
        .ok()
        .json();
    assert_eq!(scan[0]["found"], 2);
    assert_eq!(scan[0]["state"], "degraded");
    // The damaged member is not taken for an empty device.
    let more = [devices[0].clone(), rig.file("x", 64 << 20)];
    rig.create("b", "1", &[], &more)
        .refused(4, "member-of-another-array");
}

#[test]
fn more_members_missing_than_the_level_survives_writes_nothing() {
    let mut rig = Rig::new();
    let devices = rig.files(4);
    rig.create("a", "5", &[], &devices).ok();
    for gone in &devices[..2] {
        fs::rename(gone, format!("{gone}.away")).expect("works");
    }
    let before: Vec<Vec<u8>> = devices[2..].iter().map(|d| bytes(d)).collect();
    rig.start_daemon();
    rig.run(&["start", "a"]).refused(4, "members-missing");
    rig.until("a refusal by itself", || {
        rig.events().iter().any(|e| e["event"] == "start_refused")
    });
    rig.run(&["start", "--foreground", "a"])
        .refused(4, "members-missing");
    rig.stop_daemon();
    let after: Vec<Vec<u8>> = devices[2..].iter().map(|d| bytes(d)).collect();
    assert!(before == after, "a refused start wrote");
}

#[test]
fn two_halves_started_apart_are_a_split_brain() {
    let mut rig = Rig::new();
    let devices = rig.files(2);
    rig.create("a", "1", &[], &devices).ok();
    for half in &devices {
        let child = rig.foreground(&["a", half]);
        assert!(rig::end(child));
    }
    let before: Vec<Vec<u8>> = devices.iter().map(|d| bytes(d)).collect();
    rig.run(&["start", "--foreground", "a", &devices[0], &devices[1]])
        .refused(4, "split-brain");
    let scan = rig.run(&["scan", &devices[0], &devices[1]]).ok().json();
    assert_eq!(scan[0]["state"], "conflicting", "{scan}");
    rig.start_daemon();
    rig.run(&["start", "a"]).refused(4, "split-brain");
    let after: Vec<Vec<u8>> = devices.iter().map(|d| bytes(d)).collect();
    assert!(before == after, "a refused start wrote");
    // One half can still be chosen.
    let run = rig.run(&["start", "a", "--export", "nbd", &devices[0]]);
    assert_eq!(run.code, 5, "{run:?}");
}

#[test]
fn a_second_daemon_is_refused() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.run(&["daemon", "--no-devices"])
        .refused(4, "daemon-running");
}

#[test]
fn errors_without_json_are_one_line_with_code_finding_and_cure() {
    let rig = Rig::new();
    let run = rig.run_command(rig.command().args(["show", "none"]));
    assert_eq!(run.code, 3);
    let expected = "error[array-not-found]: no array none was found; strake scan lists the arrays \
                    that the drives carry\n";
    assert_eq!(run.err, expected);
}
