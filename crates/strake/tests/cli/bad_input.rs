//! Bad input: every refusal has its own code and exit status, and leaves nothing behind.
//!
//! Each is tried without a daemon and with one, because both ways must refuse alike.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

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
        // What would be lost is asked about; nothing answers here.
        let run = rig
            .create("a", "5", &["--force"], &devices)
            .refused(4, "not-confirmed");
        assert!(run.err.contains("ext4"), "{run:?}");
        assert!(before == bytes(&devices[1]), "it was written without --yes");
        let options = ["--force", "--yes", "--export", "nbd"];
        rig.create("a", "5", &options, &devices).ok();
    }
}

/// The first device was asked about, and the others were overwritten without a word.
#[test]
fn all_that_force_would_overwrite_is_named_before_it_is_overwritten() {
    if !rig::has("mkfs.ext4") && !rig::has("mke2fs") {
        return rig::skipped("mkfs.ext4 is not installed");
    }
    for daemon in [false, true] {
        let mut rig = Rig::new();
        let devices = rig.files(4);
        if daemon {
            rig.start_daemon();
        }
        rig.create("old", "1", &["--export", "none"], &devices[2..])
            .ok();
        if daemon {
            rig.run(&["stop", "old"]).ok();
        }
        for device in &devices[..2] {
            let mut mkfs = std::process::Command::new("mkfs.ext4");
            let made = mkfs.arg("-q").arg(device).status();
            assert!(made.is_ok_and(|status| status.success()));
        }
        let before: Vec<Vec<u8>> = devices.iter().map(|device| bytes(device)).collect();
        let names_all = |run: &rig::Run, devices: &[String]| {
            let all = devices.iter().all(|device| run.err.contains(device));
            assert!(all, "{run:?}");
        };
        let run = rig
            .create("new", "5", &[], &devices)
            .refused(4, "foreign-signature");
        names_all(&run, &devices);
        let run = rig
            .create("new", "5", &["--force"], &devices)
            .refused(4, "not-confirmed");
        names_all(&run, &devices);
        let what = "strake create --force new would overwrite: ";
        assert!(run.err.contains(what), "{run:?}");
        let pool = ["pool", "create", "p", "--force", &devices[1], &devices[3]];
        let run = rig.run(&pool).refused(4, "not-confirmed");
        names_all(&run, &[devices[1].clone(), devices[3].clone()]);
        let after: Vec<Vec<u8>> = devices.iter().map(|device| bytes(device)).collect();
        assert!(after == before, "something was written unasked");
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
    rig.create("b", "5", &["--force"], &three)
        .refused(4, "not-confirmed");
    rig.create("b", "5", &["--force", "--yes"], &three).ok();
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
        &["forget", "a"],
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

// ---- every command -----------------------------------------------------------------------------

/// Command lines that make no sense, their exit and error codes; `$name` is a file of the stage.
/// Those that end with `!` are refused for want of a word that a dry run does not need.
const ROWS: &[(&str, i32, &str)] = &[
    ("create x --level 9 $f0 $f1 $f2", 2, "level-unknown"),
    ("create x --level 5 $f0 $f1", 2, "too-few-members"),
    ("create x --level 5 $f0 $f1 $none", 3, "device-not-found"),
    ("create x --level 1 $f0 $f0", 2, "device-given-twice"),
    ("create x --level 1 $f0 $small", 2, "device-too-small"),
    ("create x/y --level 1 $f0 $f1", 2, "name-invalid"),
    ("create a --level 1 $f0 $f1", 4, "name-exists"),
    ("create x --level 1 --strip 3K $f0 $f1", 2, "strip-invalid"),
    (
        "create x --level 1 --block-size 8K $f0 $f1",
        2,
        "block-size-invalid",
    ),
    (
        "create x --level 1 --group-size 2 $f0 $f1",
        2,
        "group-size-invalid",
    ),
    (
        "create x --level 1 --shards 0 $f0 $f1",
        2,
        "setting-invalid",
    ),
    (
        "create x --level 1 --shards 65 $f0 $f1",
        2,
        "setting-invalid",
    ),
    (
        "create x --level 1 --requests 0 $f0 $f1",
        2,
        "setting-invalid",
    ),
    (
        "create x --level 1 --memory-limit 0 $f0 $f1",
        2,
        "setting-invalid",
    ),
    (
        "create x --level 1 --memory-limit 1K $f0 $f1",
        2,
        "memory-limit-too-small",
    ),
    (
        "create x --level 1 --latency-target 61s $f0 $f1",
        2,
        "setting-invalid",
    ),
    (
        "create x --level 1 --cpus 0-4095 $f0 $f1",
        2,
        "setting-invalid",
    ),
    (
        "create x --level 1 --pool nope $f0 $f1",
        3,
        "pool-not-found",
    ),
    ("create x --level 1 --init fast $f0 $f1", 2, "usage"),
    ("create x --level 1 $d0 $f0", 4, "device-busy"),
    ("create x --level 1 --force $d0 $f0", 4, "device-busy"),
    ("create x --level 1 $s0 $f0", 4, "member-of-another-array"),
    ("create x --level 1 $q0 $f0", 4, "device-in-pool"),
    ("show nope", 3, "array-not-found"),
    ("show a/b", 2, "name-invalid"),
    ("show --wear", 2, "usage"),
    ("show --latency", 2, "usage"),
    ("show a --wear --since x", 2, "usage"),
    ("start nope", 3, "array-not-found"),
    ("start", 2, "usage"),
    ("start s --export iscsi", 2, "usage"),
    ("start s $f0", 3, "array-not-found"),
    ("start --foreground nope", 3, "array-not-found"),
    ("import nope", 3, "array-not-found"),
    ("import a --as b", 4, "array-in-use"),
    ("import s --as a", 4, "name-exists"),
    ("import s --as a/b", 2, "name-invalid"),
    ("stop nope", 3, "array-not-found"),
    ("stop", 2, "usage"),
    ("destroy nope --yes", 3, "array-not-found"),
    ("destroy a --yes", 4, "array-in-use"),
    ("destroy s !", 4, "not-confirmed"),
    ("scan $none", 3, "device-not-found"),
    ("scan /dev/null", 2, "device-kind"),
    ("examine $none", 3, "device-not-found"),
    ("examine $f0", 3, "not-a-member"),
    ("examine /dev/null", 2, "device-kind"),
    ("fail nope 0", 3, "array-not-found"),
    ("fail a 9", 3, "member-not-found"),
    ("fail a $none", 3, "member-not-found"),
    ("fail g 1", 4, "would-fail"),
    ("fail s 0", 4, "array-not-serving"),
    ("remove nope 0", 3, "array-not-found"),
    ("remove a 9", 3, "member-not-found"),
    ("remove a 1", 4, "member-in-use"),
    ("remove s 0", 4, "array-not-serving"),
    ("add nope $f0", 3, "array-not-found"),
    ("add a $none", 3, "device-not-found"),
    ("add a /dev/null", 2, "device-kind"),
    ("add a $small", 2, "device-too-small"),
    ("add a $s0", 4, "member-of-another-array"),
    ("add a $q0", 4, "device-in-pool"),
    ("add s $f0", 4, "array-not-serving"),
    ("replace nope 0 $f0", 3, "array-not-found"),
    ("replace a 0", 4, "no-spare"),
    ("replace a 9 $f0", 3, "member-not-found"),
    ("replace a 0 $d1", 4, "member-in-use"),
    ("replace a 0 $small", 2, "device-too-small"),
    ("replace a 0 $none", 3, "device-not-found"),
    ("drive clean $none --yes", 3, "device-not-found"),
    ("drive clean $f0 --yes", 3, "not-a-member"),
    ("drive clean $d0 --yes", 4, "member-in-use"),
    ("drive clean $s0 !", 4, "not-confirmed"),
    ("drive locate $none on", 3, "device-not-found"),
    ("drive locate $f0 on", 1, "no-locate-light"),
    ("drive locate $f0 dim", 2, "usage"),
    ("drive locate on", 2, "usage"),
    ("drive locate a 9 on", 3, "member-not-found"),
    ("drive locate nope 0 on", 3, "array-not-found"),
    ("locate nope 0 on", 3, "array-not-found"),
    ("locate a 9 on", 3, "member-not-found"),
    ("locate a 0 on", 1, "no-locate-light"),
    ("reset nope", 3, "array-not-found"),
    ("reset a 9", 3, "member-not-found"),
    ("reset s", 4, "array-not-serving"),
    ("forget nope", 3, "array-not-found"),
    ("forget a", 4, "array-in-use"),
    ("forget b/c", 2, "name-invalid"),
    ("rename nope b", 3, "array-not-found"),
    ("rename a s", 4, "name-exists"),
    ("rename a b/c", 2, "name-invalid"),
    ("grow nope", 3, "array-not-found"),
    ("grow a", 4, "nothing-to-grow"),
    ("grow g", 4, "not-optimal"),
    ("grow s", 4, "array-not-serving"),
    ("restripe nope --stop", 3, "array-not-found"),
    ("restripe a", 2, "usage"),
    ("restripe a --stop", 4, "nothing-moves"),
    ("restripe a --continue", 4, "nothing-moves"),
    ("restripe a --stop --wait", 2, "usage"),
    ("restripe a --level 9 $f0", 2, "level-unknown"),
    ("restripe a --level 1 $f0", 2, "level-unreachable"),
    ("restripe a --level 6 $small", 2, "device-too-small"),
    ("restripe a --level 6 $d0", 4, "member-in-use"),
    ("restripe a --strip 3K", 2, "strip-invalid"),
    ("restripe a --strip 64K", 2, "shape-unreachable"),
    ("restripe a --add $none", 3, "device-not-found"),
    ("restripe g --add $f0", 4, "not-optimal"),
    ("restripe s --add $f0", 4, "array-not-serving"),
    ("rebuild nope", 3, "array-not-found"),
    ("rebuild a fly", 2, "usage"),
    ("rebuild s", 4, "array-not-serving"),
    ("init nope", 3, "array-not-found"),
    ("init a pause", 2, "usage"),
    ("init s", 4, "array-not-serving"),
    (
        "create x --level 1 --init zero --wait $none $f0",
        3,
        "device-not-found",
    ),
    ("scrub nope", 3, "array-not-found"),
    ("scrub a --repair --halt", 2, "usage"),
    ("scrub a stop --repair", 2, "usage"),
    ("scrub s", 4, "array-not-serving"),
    ("set nope scrub_priority=9", 3, "array-not-found"),
    ("set a", 2, "usage"),
    ("set a speed=9", 2, "setting-invalid"),
    ("set a scrub_priority=0", 2, "setting-invalid"),
    (
        "set a scrub_priority=5 scrub_priority=6",
        2,
        "setting-invalid",
    ),
    ("set a restripe_priority=101", 2, "setting-invalid"),
    ("set a init_priority=0", 2, "setting-invalid"),
    ("set a shards=0", 2, "setting-invalid"),
    ("set a memory_limit=1K", 2, "memory-limit-too-small"),
    ("set a pool=nope", 3, "pool-not-found"),
    ("set s scrub_priority=9", 4, "array-not-serving"),
    ("get nope", 3, "array-not-found"),
    ("get a speed", 2, "setting-invalid"),
    ("pool create p $f0", 4, "pool-exists"),
    ("pool create r $none", 3, "device-not-found"),
    ("pool create r $d0", 4, "device-busy"),
    ("pool create r $s0", 4, "member-of-another-array"),
    ("pool create r --force $d0", 4, "device-busy"),
    ("pool create r/s $f0", 2, "name-invalid"),
    ("pool add nope $f0", 3, "pool-not-found"),
    ("pool add p $s0", 4, "member-of-another-array"),
    ("pool remove nope $f0", 3, "pool-not-found"),
    ("pool delete nope --yes", 3, "pool-not-found"),
    ("pool delete p !", 4, "not-confirmed"),
    ("pool show nope", 3, "pool-not-found"),
    ("config backup", 2, "usage"),
    ("config restore $none", 3, "file-not-found"),
    ("config restore $small", 2, "backup-invalid"),
    ("volume create nope v --size 1M", 3, "array-not-found"),
    ("volume create a v/w --size 1M", 2, "name-invalid"),
    ("volume create a v --size x", 2, "size-invalid"),
    ("volume create a v --size 9T", 1, "array-full"),
    ("volume delete a v --yes", 3, "volume-not-found"),
    ("volume delete a v !", 3, "volume-not-found"),
    ("volume resize a v --size 8M", 3, "volume-not-found"),
    ("volume rename a v w", 3, "volume-not-found"),
    ("volume show nope", 3, "array-not-found"),
    ("volume show a v", 3, "volume-not-found"),
    ("events --nope", 2, "usage"),
    ("explain nope 0", 3, "array-not-found"),
    ("explain a 99999999999", 2, "lba-out-of-range"),
    ("explain a x", 2, "usage"),
    ("demo --level 9", 2, "level-unknown"),
    ("demo --export none", 2, "usage"),
    ("daemon --no-devices", 4, "daemon-running"),
    ("daemon --degraded perhaps", 2, "usage"),
    ("config check $none", 3, "file-not-found"),
    ("config check /dev/null", 2, "config-invalid"),
    ("daemon --config $none", 3, "file-not-found"),
    ("console --port 65536", 2, "usage"),
    ("console --expires 2h", 2, "usage"),
    ("alert status extra", 2, "usage"),
    ("alert test nope", 3, "channel-not-found"),
    ("doctor extra", 2, "usage"),
    ("iostat nope", 2, "usage"),
    ("status extra", 3, "array-not-found"),
    ("top extra", 2, "usage"),
    ("plan --drive nope --level 5", 3, "drive-unknown"),
    ("plan --drive D5-P5336-61.44 --level 5", 2, "usage"),
    (
        "plan --capacity 8TB --level 5 --count 5 --host-file /dev/null",
        2,
        "host-file-invalid",
    ),
    ("study list extra", 2, "usage"),
    ("study show nope", 3, "study-not-found"),
    ("study show $none.toml", 3, "file-not-found"),
    ("study run nope --on $f0", 3, "study-not-found"),
    ("study run s1 --on $f0", 2, "usage"),
    ("study run s1", 2, "usage"),
    ("study run nope --simulated", 3, "study-not-found"),
    ("study run s1 --simulated --on $f0", 2, "usage"),
    ("study resume $none", 3, "study-not-found"),
    ("study compare $none $none", 3, "study-not-found"),
    ("study report $none", 3, "study-not-found"),
    ("completions tcsh", 2, "usage"),
];

/// Words of the commands that the help lists below these words.
fn listed(rig: &Rig, words: &[String]) -> Vec<String> {
    let run = rig.run_command(rig.command().args(words).arg("--help"));
    let text = run.out;
    let commands = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let named = commands.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let word = named.filter_map(|line| line.split_whitespace().next());
    word.filter(|word| *word != "help")
        .map(str::to_owned)
        .collect()
}

/// Every command, with those below it in its place.
fn commands(rig: &Rig) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for command in listed(rig, &[]) {
        let below = listed(rig, std::slice::from_ref(&command));
        match below.is_empty() {
            true => all.insert(command),
            false => {
                all.extend(below.iter().map(|word| format!("{command} {word}")));
                true
            }
        };
    }
    all
}

/// What lies in a file. Holes, which are most of it, are passed over as the zeros that they are.
fn hash(path: &Path) -> u64 {
    use rustix::fs::{SeekFrom, seek};
    let file = File::open(path).expect("works");
    let mut hasher = DefaultHasher::new();
    let mut end = 0;
    while let Ok(data) = seek(&file, SeekFrom::Data(end)) {
        end = seek(&file, SeekFrom::Hole(data)).expect("works");
        let mut bytes = vec![0; (end - data) as usize];
        file.read_exact_at(&mut bytes, data).expect("works");
        // What was written as zeros is no change of what is read.
        for (at, page) in (data..).step_by(4096).zip(bytes.chunks(4096)) {
            if page.iter().any(|&byte| byte != 0) {
                hasher.write_u64(at);
                hasher.write(page);
            }
        }
    }
    hasher.finish()
}

/// What lies in the folder's files.
fn hashes(rig: &Rig) -> Vec<(String, u64)> {
    let files = fs::read_dir(rig.folder.path()).expect("works");
    let paths = files.map(|file| file.expect("works").path());
    let mut all: Vec<(String, u64)> = paths
        .filter(|path| path.is_file() && path.extension().is_none())
        .map(|path| (path.display().to_string(), hash(&path)))
        .collect();
    all.sort();
    all
}

/// An array that serves, one that is stopped, one that has lost a member, a pool, and files of
/// nobody.
fn stage() -> Rig {
    let mut rig = Rig::new();
    let files = |name: &str, count: usize| -> Vec<String> {
        (0..count)
            .map(|i| rig.file(&format!("{name}{i}"), 32 << 20))
            .collect()
    };
    let (d, s, g, q) = (files("d", 3), files("s", 2), files("g", 3), files("q", 1));
    let _free = (files("f", 3), rig.file("small", 1 << 20));
    rig.start_daemon();
    let nbd = ["--export", "nbd", "--strip", "64K"];
    rig.create("a", "5", &nbd, &d).ok();
    rig.create("s", "1", &nbd, &s).ok();
    rig.run(&["stop", "s"]).ok();
    rig.create("g", "5", &nbd, &g).ok();
    rig.run(&["fail", "g", "0"]).ok();
    rig.run(&["pool", "create", "p", &q[0]]).ok();
    rig
}

#[test]
fn every_command_refuses_what_makes_no_sense_by_name_and_changes_nothing() {
    let rig = stage();
    let all = commands(&rig);
    assert!(all.len() > 35, "{all:?}");
    let command_of = |line: &str| {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default().to_owned();
        let both = format!("{first} {}", words.next().unwrap_or_default());
        if all.contains(&both) { both } else { first }
    };
    let told = |verb: &str| rig.run(&[verb]).out;
    let before = (hashes(&rig), told("show"), rig.run(&["pool", "show"]).out);
    let (mut tried, mut wrong) = (BTreeSet::new(), Vec::new());
    let mut dry = 0;
    for (line, code, error) in ROWS {
        let command = command_of(line);
        let words: Vec<String> = line
            .split_whitespace()
            .filter(|word| *word != "!")
            .map(|word| match word.strip_prefix('$') {
                Some(name) => rig.path(name),
                None => word.to_owned(),
            })
            .collect();
        let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
        if *line == "config backup" {
            args.extend(["one", "two"]);
        }
        let mut refuse = |args: &[&str]| {
            let run = rig.run(args);
            // Before the error a device of the machine may be told of that hangs.
            let last = run.err.lines().last().unwrap_or_default();
            let right = serde_json::from_str::<serde_json::Value>(last);
            let right = right.is_ok_and(|said| said["code"] == *error && said["cure"] != "");
            if !right || run.code != *code {
                wrong.push(format!("{}: {run:?}", args.join(" ")));
            }
        };
        refuse(&args);
        let help = rig
            .command()
            .args(command.split(' '))
            .arg("--help")
            .output();
        let help = String::from_utf8_lossy(&help.expect("works").stdout).into_owned();
        if help.contains("--dry-run") && !line.ends_with('!') {
            args.push("--dry-run");
            refuse(&args);
            dry += 1;
        }
        if tried.insert(command.clone()) {
            assert!(
                hashes(&rig) == before.0,
                "before {line} something was written"
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let untried: Vec<&String> = all.difference(&tried).collect();
    assert!(untried.is_empty(), "no row of bad input: {untried:?}");
    assert!(dry > 80, "{dry}");
    let after = (hashes(&rig), told("show"), rig.run(&["pool", "show"]).out);
    assert!(after.0 == before.0, "something was written");
    assert_eq!(after.1, before.1);
    assert_eq!(after.2, before.2);
}

/// It said "rebuild first" twice, and what suffices nowhere.
#[test]
fn cures_name_what_helps() {
    let mut rig = Rig::new();
    let d = rig.files(3);
    rig.start_daemon();
    rig.create("a", "5", &["--export", "nbd"], &d).ok();
    let run = rig.run(&["set", "a", "speed=9"]);
    let keys = run.json_error()["cure"].to_string();
    for key in rig
        .run(&["get", "a"])
        .ok()
        .json()
        .as_object()
        .expect("settings")
        .keys()
    {
        let key = key.trim_end_matches("_us").trim_end_matches("_ms");
        let key = key.trim_end_matches("_bytes");
        assert!(keys.contains(key), "{key} is not in {keys}");
    }
    assert!(keys.len() < 600, "{keys}");
    rig.run(&["fail", "a", "0"]).ok();
    let run = rig.run(&["fail", "a", "1"]);
    let said = run.json_error();
    let cure = said["cure"].as_str().expect("a cure");
    assert!(cure.contains("add NAME DEV"), "{said}");
    assert!(!cure.contains("no redundancy"), "{said}");
}

/// An argument that is no UTF-8 is refused like all others, and one that names a device, too.
#[test]
fn arguments_that_are_no_text_are_refused_in_one_line() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let mut rig = Rig::new();
    let devices = rig.files(1);
    rig.start_daemon();
    let name = OsStr::from_bytes(b"\xff");
    let run = rig.run_command(rig.command().args(["--json", "show"]).arg(name));
    run.refused(2, "usage");
    let path = rig.folder.path().join(OsStr::from_bytes(b"b\xff"));
    let made = File::create(&path).and_then(|file| file.set_len(64 << 20));
    made.expect("a sparse file");
    let create = ["--json", "create", "a", "--level", "1"];
    let run = rig.run_command(rig.command().args(create).arg(&devices[0]).arg(&path));
    run.refused(2, "usage");
}

#[test]
fn names_of_devices_are_no_commands_of_a_terminal() {
    let mut rig = Rig::new();
    let devices = [rig.file("a\x1b[31m\nb", 64 << 20), rig.file("c", 64 << 20)];
    rig.start_daemon();
    rig.create("a", "1", &["--export", "none"], &devices).ok();
    let shown = rig.run_command(rig.command().args(["show", "a"])).ok();
    assert!(shown.out.contains("a\\u{1b}[31m\\nb"), "{shown:?}");
    assert!(!shown.out.contains('\x1b'), "{shown:?}");
}
