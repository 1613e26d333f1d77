//! Devices that carry something of somebody else: refused by name, and left as they are.
//!
//! What a tool of this machine can make is made with it; the other signatures are the least that
//! their formats document, with checksums where they have them. Invariant: each is found by
//! util-linux's prober, and `--force` is the only way over it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use crate::rig::{self, Rig, bytes};

const BYTES: u64 = 64 << 20;

/// How a signature is put on a file of so many bytes; false where a tool is missing.
type Maker = fn(&str, u64) -> bool;

fn put(path: &str, offset: u64, bytes: &[u8]) -> bool {
    let file = File::options().write(true).open(path).expect("opens");
    file.write_all_at(bytes, offset).expect("writes");
    true
}

/// Runs a tool on the file, with this on its standard input.
fn tool(program: &str, args: &[&str], path: &str, input: &str) -> bool {
    use std::io::Write;
    let mut command = Command::new(program);
    command.args(args).arg(path).stdin(Stdio::piped());
    let Ok(mut child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        rig::skipped(&format!("{program} is not installed"));
        return false;
    };
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    assert!(child.wait().expect("ends").success(), "{program}");
    true
}

/// md, version 1: magic, major version, its own place, and the sum of all of it.
fn md_1(path: &str, offset: u64) -> bool {
    let mut sb = vec![0u8; 256];
    sb[0..4].copy_from_slice(&0xa92b_4efcu32.to_le_bytes());
    sb[4..8].copy_from_slice(&1u32.to_le_bytes());
    sb[16..32].fill(7);
    sb[72..76].copy_from_slice(&1u32.to_le_bytes());
    sb[80..88].copy_from_slice(&2048u64.to_le_bytes());
    sb[92..96].copy_from_slice(&2u32.to_le_bytes());
    sb[144..152].copy_from_slice(&(offset / 512).to_le_bytes());
    let words = sb.chunks(4).map(|w| w.try_into().expect("four bytes"));
    let sum: u64 = words.map(|w| u64::from(u32::from_le_bytes(w))).sum();
    let folded = (sum & 0xffff_ffff) + (sum >> 32);
    sb[216..220].copy_from_slice(&(folded as u32).to_le_bytes());
    put(path, offset, &sb)
}

/// md, version 0.90, in the last whole 64 KiB but one.
fn md_0(path: &str, bytes: u64) -> bool {
    let mut sb = vec![0u8; 4096];
    for (at, word) in [(0, 0xa92b_4efcu32), (1, 0), (2, 90), (7, 1), (10, 2)] {
        sb[at * 4..][..4].copy_from_slice(&word.to_le_bytes());
    }
    let words = sb.chunks(4).map(|w| w.try_into().expect("four bytes"));
    let sum: u64 = words.map(|w| u64::from(u32::from_le_bytes(w))).sum();
    let folded = (sum & 0xffff_ffff) + (sum >> 32);
    sb[38 * 4..][..4].copy_from_slice(&(folded as u32).to_le_bytes());
    put(path, (bytes & !0xffff) - 0x1_0000, &sb)
}

/// An LVM label in the second sector, under its own CRC.
fn lvm(path: &str) -> bool {
    let mut label = vec![0u8; 512];
    label[0..8].copy_from_slice(b"LABELONE");
    label[8..16].copy_from_slice(&1u64.to_le_bytes());
    label[20..24].copy_from_slice(&32u32.to_le_bytes());
    label[24..32].copy_from_slice(b"LVM2 001");
    label[32..64].copy_from_slice(b"0123456789abcdef0123456789abcdef");
    let mut crc = 0xf597_a6cfu32;
    for &byte in &label[20..] {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    label[16..20].copy_from_slice(&crc.to_le_bytes());
    put(path, 512, &label)
}

/// Uberblocks of the first ZFS label.
fn zfs(path: &str) -> bool {
    let mut uberblock = vec![0u8; 1024];
    uberblock[0..8].copy_from_slice(&0x00ba_b10cu64.to_le_bytes());
    uberblock[8..16].copy_from_slice(&5000u64.to_le_bytes());
    (0..16).all(|i| put(path, (128 << 10) + i * 1024, &uberblock))
}

/// A btrfs superblock under its CRC-32C.
fn btrfs(path: &str) -> bool {
    let mut sb = vec![0u8; 4096];
    sb[48..56].copy_from_slice(&(64u64 << 10).to_le_bytes());
    sb[64..72].copy_from_slice(b"_BHRfS_M");
    for at in [144, 148, 152] {
        sb[at..at + 4].copy_from_slice(&4096u32.to_le_bytes());
    }
    let crc = strake_format::checksum::crc32c(&sb[32..]);
    sb[0..4].copy_from_slice(&crc.to_le_bytes());
    put(path, 64 << 10, &sb)
}

/// What is put there, what the refusal calls it, and with which code.
const FOREIGN: [(&str, Maker, &str, &str); 13] = [
    ("md-090", md_0, "linux_raid_member", "foreign-signature"),
    (
        "md-10",
        |path, bytes| md_1(path, ((bytes / 512 - 16) & !7) * 512),
        "linux_raid_member",
        "foreign-signature",
    ),
    (
        "md-11",
        |path, _| md_1(path, 0),
        "linux_raid_member",
        "foreign-signature",
    ),
    (
        "md-12",
        |path, _| md_1(path, 4096),
        "linux_raid_member",
        "foreign-signature",
    ),
    (
        "lvm",
        |path, _| lvm(path),
        "LVM2_member",
        "foreign-signature",
    ),
    (
        "zfs",
        |path, _| zfs(path),
        "zfs_member",
        "foreign-signature",
    ),
    ("btrfs", |path, _| btrfs(path), "btrfs", "foreign-signature"),
    (
        "luks",
        |path, _| put(path, 0, b"LUKS\xba\xbe\x00\x01aes\0"),
        "crypto_LUKS",
        "foreign-signature",
    ),
    (
        "ext4",
        |path, _| tool("mkfs.ext4", &["-q", "-F"], path, ""),
        "ext4",
        "foreign-signature",
    ),
    (
        "xfs",
        |path, _| tool("mkfs.xfs", &["-q", "-f"], path, ""),
        "xfs",
        "foreign-signature",
    ),
    (
        "swap",
        |path, _| tool("mkswap", &[], path, ""),
        "swap",
        "foreign-signature",
    ),
    (
        "gpt",
        |path, _| tool("sfdisk", &["-q"], path, "label: gpt\n,10M\n"),
        "gpt",
        "device-partitioned",
    ),
    (
        "mbr",
        |path, _| tool("sfdisk", &["-q"], path, "label: dos\n,10M\n"),
        "dos",
        "device-partitioned",
    ),
];

#[test]
fn what_belongs_to_somebody_else_is_refused_by_name_and_left_as_it_is() {
    if !rig::has("wipefs") {
        return rig::skipped("wipefs is not installed");
    }
    let rig = Rig::new();
    let blank = rig.file("blank", BYTES);
    for (name, make, called, code) in FOREIGN {
        // The least that mkfs.xfs takes.
        let bytes = if name == "xfs" { 320 << 20 } else { BYTES };
        let path = rig.file(name, bytes);
        if !make(&path, bytes) {
            continue;
        }
        let (before, devices) = (rig::bytes(&path), [blank.clone(), path.clone()]);
        let run = rig.create("data", "1", &[], &devices);
        let found = run.refused(4, code).json_error()["found"].to_string();
        assert!(
            found.contains(called) && found.contains(&path),
            "{name}: {found}"
        );
        assert!(rig::bytes(&path) == before, "{name} was changed");
        assert!(rig::bytes(&blank).iter().all(|b| *b == 0), "{name}");
        std::fs::remove_file(&path).expect("removed");
    }
    // By force it is taken, and nothing is left by which another program would take it back.
    let path = rig.file("forced", BYTES);
    md_1(&path, 4096);
    lvm(&path);
    rig.create("data", "1", &["--force", "--yes"], &[blank, path.clone()])
        .ok();
    let left = Command::new("wipefs").args(["--no-act", &path]).output();
    assert!(left.expect("wipefs runs").stdout.is_empty());
}

#[test]
fn a_device_that_an_array_refuses_keeps_what_it_holds_whatever_is_permitted() {
    if !rig::has("wipefs") {
        return rig::skipped("wipefs is not installed");
    }
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", &["--export", "nbd"], &devices).ok();
    let (small, large) = (rig.file("small", 16 << 20), rig.file("large", BYTES));
    for path in [&small, &large] {
        put(path, 0, b"LUKS\xba\xbe\x00\x01aes\0");
        md_1(path, 4096);
    }
    let before = [rig::bytes(&small), rig::bytes(&large)];
    let same = |what: &[&str]| {
        let now = [rig::bytes(&small), rig::bytes(&large)];
        assert!(now == before, "{what:?}");
        assert_eq!(rig.run(&["show", "data"]).ok().json()["level"], "5");
    };
    let too_small: [&[&str]; 5] = [
        &["add", "data", &small],
        &["replace", "data", "0", &small],
        &["restripe", "data", "--add", &small],
        &["restripe", "data", "--add", &large, &small],
        &["restripe", "data", "--level", "6", &small],
    ];
    for args in too_small {
        let run = rig.run(&[args, &["--force"]].concat());
        run.refused(2, "device-too-small");
        same(args);
        let run = rig.run(&[args, &["--force", "--dry-run"]].concat());
        run.refused(2, "device-too-small");
    }
    rig.run(&["fail", "data", "0"]).ok();
    let args = ["restripe", "data", "--add", &large, "--force"];
    rig.run(&args).refused(4, "not-optimal");
    let now = [rig::bytes(&small), rig::bytes(&large)];
    assert!(now == before, "{args:?}");
}

/// A member that was away, and that somebody else used meanwhile, was taken back by itself by the
/// superblock that was left at its end, and believed.
#[test]
fn a_member_that_somebody_used_while_it_was_away_is_not_taken_back() {
    if !rig::has("wipefs") || !rig::has("mkswap") {
        return rig::skipped("wipefs or mkswap is not installed");
    }
    let mut rig = Rig::new();
    let devices = rig.files(3);
    rig.create("data", "5", &["--export", "nbd"], &devices).ok();
    let away = rig.path("away");
    std::fs::rename(&devices[2], &away).expect("renamed");
    rig.start_daemon_with(&["--wait", "0"]);
    rig.until_state("data", "degraded");
    rig.qemu_io("data", &["write -P 7 0 8M"]);
    assert!(tool("mkswap", &[], &away, ""));
    let before = rig::bytes(&away);
    std::fs::rename(&away, &devices[2]).expect("renamed");
    let returned = |e: &serde_json::Value| e["event"] == "member_returned";
    rig.until("an event", || rig.events().iter().any(returned));
    let events = rig.events();
    let told = events.iter().find(|e| returned(e)).expect("just seen");
    assert!(told["effect"].to_string().contains("swap"), "{told}");
    assert_eq!(rig.show("data")["state"], "degraded");
    rig.run(&["add", "data", &devices[2]])
        .refused(4, "foreign-signature");
    assert!(rig::bytes(&devices[2]) == before, "it was changed");
    // By force it is taken, and nothing that it holds is believed.
    rig.run(&["add", "--force", "data", &devices[2]])
        .refused(4, "not-confirmed");
    rig.run(&["add", "--force", "--yes", "data", &devices[2]])
        .ok();
    rig.until_state("data", "optimal");
    let events = rig.events();
    assert!(
        !events.iter().any(|e| e["event"] == "member_kept"),
        "{events:?}"
    );
    rig.run(&["fail", "data", "0"]).ok();
    rig.qemu_io("data", &["read -P 7 0 8M"]);
}

/// What the array's user has in the data of a member is no signature of the member: it was wiped
/// there, from a member that was believed afterwards.
#[test]
fn a_member_that_comes_back_keeps_what_looks_foreign_in_its_data() {
    if !rig::has("wipefs") {
        return rig::skipped("wipefs is not installed");
    }
    let mut rig = Rig::new();
    rig.start_daemon();
    // Data ends behind where ZFS is looked for.
    let bytes = (64 << 20) + (128 << 10);
    let devices = ["a", "b", "c"].map(|name| rig.file(name, bytes));
    rig.create("data", "5", &["--export", "nbd"], &devices).ok();
    // All of the data looks like the end of a disk of ZFS, wherever one is looked for.
    let label = rig.path("label");
    let mut uberblock = vec![0; 1024];
    uberblock[..8].copy_from_slice(&0x00ba_b10c_u64.to_le_bytes());
    uberblock[8..16].copy_from_slice(&5000_u64.to_le_bytes());
    std::fs::write(&label, &uberblock).expect("written");
    let write = format!("write -s {label} 0 {}", rig.show("data")["size_bytes"]);
    if rig.qemu_io("data", &[&write]).is_none() {
        return;
    }
    // The other two have data in the last row.
    rig.run(&["fail", "data", "0"]).ok();
    let found = Command::new("wipefs")
        .args(["--no-act", &devices[0]])
        .output();
    let found = String::from_utf8_lossy(&found.expect("wipefs runs").stdout).into_owned();
    assert!(found.contains("zfs_member"), "{found}");
    let back = rig
        .run(&["add", "--force", "data", &devices[0]])
        .ok()
        .json();
    assert!(back["what"].to_string().contains("is back"), "{back}");
    rig.until_state("data", "optimal");
    rig.run(&["scrub", "data", "--wait"]).ok();
    let scrub = rig.run(&["scrub", "data", "status"]).ok().json();
    assert_eq!(scrub["past"][0]["inconsistent_stripes"], 0, "{scrub}");
}

#[test]
fn a_member_of_an_array_that_serves_is_named_as_in_use_and_nothing_advises_to_force_it() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let d = rig.files(9);
    let options = ["--export", "none", "--spare", &d[3]];
    rig.create("data", "5", &options, &d[..3]).ok();
    rig.create("other", "1", &["--export", "none"], &d[4..6])
        .ok();
    rig.run(&["pool", "create", "spares", &d[6]]).ok();
    let (member, spare, free) = (d[1].as_str(), d[3].as_str(), d[7].as_str());
    let before = [bytes(member), bytes(spare)];
    for (device, cure) in [
        (member, "strake replace data"),
        (spare, "strake remove data"),
    ] {
        for command in [
            vec!["pool", "create", "more", device],
            vec!["pool", "add", "spares", device],
            vec!["create", "new", "--level", "1", free, device],
            vec!["add", "other", device],
            vec!["replace", "other", "0", device],
            vec!["restripe", "other", "--level", "5", device],
        ] {
            // With force it waits for a holder that may just be letting go.
            let rounds: &[&[&str]] = match device == member {
                true => &[&[], &["--force"]],
                false => &[&[]],
            };
            for force in rounds {
                let run = rig.run(&[&command[..], *force].concat());
                let said = run.json_error();
                let (found, to_do) = (said["found"].as_str(), said["cure"].as_str());
                assert!(
                    found.is_some_and(|f| f.contains("of array data")),
                    "{run:?}"
                );
                assert!(to_do.is_some_and(|c| c.contains(cure)), "{run:?}");
                assert!(!run.err.contains("--force"), "{run:?}");
                run.refused(4, "device-busy");
            }
        }
    }
    assert!([bytes(member), bytes(spare)] == before);
    // Once nobody serves it, force does what is said.
    rig.run(&["stop", "data"]).ok();
    let refused = rig.run(&["pool", "add", "spares", member]);
    assert!(refused.err.contains("--force"), "{refused:?}");
    refused.refused(4, "member-of-another-array");
    let add = ["pool", "add", "spares", member, "--force"];
    rig.run(&add).refused(4, "not-confirmed");
    rig.run(&[&add[..], &["--yes"]].concat()).ok();
}

/// A superblock of md 1.2 takes the first sector of a member's first superblock and leaves its end,
/// which passed for a torn copy: the array started `optimal` with the member of an md array, and
/// wrote its superblock over that of md.
#[test]
fn a_member_whose_first_superblock_md_took_in_part_is_set_aside_and_stays_as_it_is() {
    if !rig::has("wipefs") {
        return rig::skipped("wipefs is not installed");
    }
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", &["--export", "nbd"], &devices).ok();
    rig.qemu_io("data", &["write -P 7 0 8M", "flush"]);
    rig.run(&["stop", "data"]).ok();
    assert!(md_1(&devices[1], 4096));
    let used = bytes(&devices[1]);
    assert_eq!(rig.run(&["start", "data"]).code, 5);
    let shown = rig.show("data");
    let aside = &shown["set_aside"][0];
    assert_eq!(aside["code"], "foreign-signature", "{shown}");
    assert!(
        aside["found"].to_string().contains("linux_raid_member"),
        "{shown}"
    );
    rig.qemu_io("data", &["read -P 7 0 8M"]);
    rig.run(&["stop", "data"]).ok();
    // What is somebody else's by now stays, whatever becomes of the array.
    rig.run(&["destroy", "data", "--yes"]).ok();
    let after = bytes(&devices[1]);
    assert!(used[..5 << 20] == after[..5 << 20], "its head was changed");
}

/// The way on that is shown for such a member really is one.
#[test]
fn what_is_advised_for_a_member_that_somebody_partitioned_takes_it_back() {
    if !rig::has("wipefs") || !rig::has("sfdisk") {
        return rig::skipped("wipefs or sfdisk is not installed");
    }
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", &["--export", "none"], &devices)
        .ok();
    rig.run(&["stop", "data"]).ok();
    assert!(tool("sfdisk", &["-q"], &devices[1], "label: gpt\n,10M\n"));
    assert_eq!(rig.run(&["start", "data"]).code, 5);
    let shown = rig.show("data");
    let cure = shown["set_aside"][0]["cure"].as_str().expect("a way on");
    let command = cure.split(" takes it").next().expect("a command");
    let mut args: Vec<&str> = command.split(' ').collect();
    assert_eq!(args.remove(0), "strake", "{cure}");
    args.push("--yes");
    rig.run(&args).ok();
    rig.until_state("data", "optimal");
}
