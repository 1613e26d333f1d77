//! Volumes through the CLI and real NBD: an array carved, volumes made, grown, shrunk, renamed and
//! deleted while it serves; daemons stopped and killed; members lost; what is refused.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::rig::{self, Rig, Run};

const NBD: &[&str] = &["--export", "nbd"];
const MIB: u64 = 1 << 20;

fn socket(rig: &Rig, volume: &str) -> PathBuf {
    let folder = rig.dir().join("volumes").join("data");
    folder.join(format!("{volume}.sock"))
}

/// Runs qemu-io commands against a volume; false where there is no qemu-io.
fn io(rig: &Rig, volume: &str, commands: &[&str]) -> bool {
    let uri = format!("nbd+unix:///?socket={}", socket(rig, volume).display());
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw"]);
    for text in commands {
        command.args(["-c", text]);
    }
    let Ok(output) = command.arg(uri).output() else {
        rig::skipped("qemu-io is not installed");
        return false;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("verification failed"), "{text}");
    // The server sees the end of the connection a moment after the client has ended.
    rig.until("the client to be gone", || {
        let pid = rig.daemon_pid();
        let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
        let mut names = threads
            .flatten()
            .map(|t| fs::read_to_string(t.path().join("comm")));
        !names.any(|name| name.is_ok_and(|name| name.starts_with("strake-nbd-in")))
    });
    true
}

fn volumes(rig: &Rig) -> Vec<Value> {
    let shown = rig.run(&["volume", "show", "data"]).ok().json();
    shown["volumes"].as_array().expect("a list").clone()
}

fn names(rig: &Rig) -> Vec<String> {
    let all = volumes(rig);
    let names = all.iter().filter_map(|v| v["name"].as_str());
    names.map(str::to_owned).collect()
}

fn event_names(rig: &Rig) -> Vec<String> {
    let events = rig.events();
    let names = events.iter().filter_map(|e| e["event"].as_str());
    names.map(str::to_owned).collect()
}

fn create(rig: &Rig, volume: &str, size: &str) -> Run {
    rig.run(&["volume", "create", "data", volume, "--size", size])
}

/// An array on four files of 64 MiB with the volumes `a` (40 MiB) and `b` (33 MiB).
fn carved(rig: &mut Rig) -> Vec<String> {
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices).ok();
    create(rig, "a", "40M").ok();
    create(rig, "b", "33M").ok();
    devices
}

#[test]
fn an_array_is_carved_and_its_volumes_come_back_after_a_stop_a_kill_and_a_restart() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices).ok();
    let whole = rig.run(&["volume", "show", "data"]).ok().json();
    assert_eq!(whole["carved"], false);
    let would = [
        "volume",
        "create",
        "data",
        "a",
        "--size",
        "40M",
        "--dry-run",
    ];
    let would = rig.run(&would).ok().json();
    assert_eq!(
        (&would["carves"], &would["dry_run"]),
        (&true.into(), &true.into())
    );
    assert!(rig.nbd("data").exists(), "nothing was done");
    let made = create(&rig, "a", "40M").ok().json();
    assert_eq!(made["size_bytes"], 40 * MIB);
    assert!(
        made["device"]
            .as_str()
            .is_some_and(|d| d.contains("volumes/data/a.sock"))
    );
    assert!(!rig.nbd("data").exists(), "no user may have the table");
    create(&rig, "b", "33M").ok();
    let shown = rig.show("data");
    assert_eq!(
        (&shown["carved"], &shown["device"]),
        (&true.into(), &Value::Null)
    );
    assert_eq!(shown["volumes"].as_array().map(Vec::len), Some(2));
    let said = rig.run_command(rig.command().args(["show", "data"])).ok();
    assert!(said.out.contains("2 volumes"), "{said:?}");
    if !io(&rig, "a", &["write -P 1 0 40M", "flush"]) {
        return;
    }
    io(&rig, "b", &["write -P 2 0 33M", "flush"]);
    let holds = |rig: &Rig| {
        io(rig, "a", &["read -P 1 0 40M"]);
        io(rig, "b", &["read -P 2 0 33M"]);
    };
    holds(&rig);
    rig.run(&["stop", "data"]).ok();
    assert!(!socket(&rig, "a").exists());
    assert_eq!(rig.show("data")["carved"], true, "its superblocks tell");
    rig.run(&["start", "data"]).ok();
    holds(&rig);
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    holds(&rig);
    rig.stop_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    rig.run(&["fail", "data", "2"]).ok();
    holds(&rig);
    let events = event_names(&rig);
    assert!(events.contains(&"carved".to_owned()), "{events:?}");
    let made = events.iter().filter(|e| *e == "volume_created").count();
    assert_eq!(made, 2, "{events:?}");
}

#[test]
fn volumes_grow_shrink_and_are_renamed_and_what_they_give_up_never_shows_again() {
    let mut rig = Rig::new();
    carved(&mut rig);
    if !io(&rig, "a", &["write -P 0xa1 0 40M", "flush"]) {
        return;
    }
    io(&rig, "b", &["write -P 0xb1 0 33M", "flush"]);
    let free = || rig.run(&["volume", "show", "data"]).ok().json()["volume_free_bytes"].as_u64();
    let before = free();
    let resize = |size: &str, more: &[&str]| {
        rig.run(&[&["volume", "resize", "data", "a", "--size", size], more].concat())
    };
    let dry = resize("70M", &["--dry-run"]).ok().json();
    assert_eq!(dry["changed"], false);
    assert_eq!(resize("70M", &[]).ok().json()["changed"], true);
    assert_eq!(resize("70M", &[]).ok().json()["changed"], false);
    // Behind what was between them lies b.
    assert_eq!(volumes(&rig)[0]["extents"], 2);
    io(
        &rig,
        "a",
        &[
            "read -P 0xa1 0 40M",
            "read -P 0 40M 30M",
            "write -P 0xa2 39M 31M",
        ],
    );
    io(&rig, "a", &["read -P 0xa1 0 39M", "read -P 0xa2 39M 31M"]);
    io(&rig, "b", &["read -P 0xb1 0 33M"]);
    resize("10M", &[]).refused(4, "would-shrink");
    let asked = resize("10M", &["--shrink"]).refused(4, "not-confirmed");
    for part in [
        "strake volume resize --shrink data a --size 10M",
        "from 73400320 to 10485760 bytes",
    ] {
        assert!(asked.err.contains(part), "{part} in {asked:?}");
    }
    resize("10M", &["--shrink", "--yes"]).ok();
    resize("40M", &[]).ok();
    io(&rig, "a", &["read -P 0xa1 0 10M", "read -P 0 10M 30M"]);
    rig.run(&["volume", "delete", "data", "b"])
        .refused(4, "not-confirmed");
    rig.run(&["volume", "delete", "data", "b", "--yes"]).ok();
    assert!(!socket(&rig, "b").exists());
    rig.run(&["volume", "rename", "data", "a", "c"]).ok();
    assert_eq!(names(&rig), ["c"]);
    io(&rig, "c", &["read -P 0xa1 0 10M", "read -P 0 10M 30M"]);
    assert_eq!(free(), before.map(|free| free + 33 * MIB));
    let made = create(&rig, "d", "max").ok().json();
    assert_eq!(free(), Some(0));
    let size = made["size_bytes"].as_u64().expect("a size");
    io(
        &rig,
        "d",
        &[
            &format!("read -P 0 0 {size}"),
            &format!("write -P 0xd1 0 {size}"),
        ],
    );
    create(&rig, "e", "4K").refused(1, "array-full");
    create(&rig, "e", "max").refused(1, "array-full");
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    assert_eq!(names(&rig), ["c", "d"]);
    io(&rig, "c", &["read -P 0xa1 0 10M", "read -P 0 10M 30M"]);
    io(&rig, "d", &[&format!("read -P 0xd1 0 {size}")]);
    let events = event_names(&rig);
    for event in ["volume_resized", "volume_deleted", "volume_renamed"] {
        assert!(events.iter().any(|e| e == event), "{event}: {events:?}");
    }
}

#[test]
fn an_array_with_data_is_carved_only_by_force_and_then_reads_as_zeros() {
    let mut rig = Rig::new();
    rig.start_daemon();
    rig.create("data", "6", NBD, &rig.files(4)).ok();
    if rig
        .qemu_io("data", &["write -P 0xee 0 8M", "write -P 0xee 64M 8M"])
        .is_none()
    {
        return;
    }
    let create = ["volume", "create", "data", "a", "--size", "80M"];
    rig.run(&create).refused(4, "array-not-empty");
    rig.qemu_io("data", &["read -P 0xee 0 8M"]);
    assert_eq!(rig.show("data")["carved"], false);
    let forced = [&create[..], &["--force"]].concat();
    let asked = rig.run(&forced).refused(4, "not-confirmed");
    for part in ["strake volume create --force data a", "bytes of data are"] {
        assert!(asked.err.contains(part), "{part} in {asked:?}");
    }
    rig.qemu_io("data", &["read -P 0xee 0 8M"]);
    let forced = [&create[..], &["--force", "--yes"]].concat();
    rig.run(&forced).ok();
    io(&rig, "a", &["read -P 0 0 80M"]);
}

#[test]
fn what_makes_no_sense_of_a_volume_is_refused_by_name() {
    let mut rig = Rig::new();
    let devices = carved(&mut rig);
    let run = |args: &[&str]| rig.run(&[&["volume"], args].concat());
    let create = |name: &str, size: &str| run(&["create", "data", name, "--size", size]);
    create("a", "1M").refused(4, "volume-exists");
    create("-", "1M").refused(2, "name-invalid");
    create(".x", "1M").refused(2, "name-invalid");
    create("c", "0").refused(2, "size-invalid");
    let byte = create("c", "1").refused(2, "size-invalid");
    assert!(byte.err.contains("a size of 1 byte is"), "{byte:?}");
    let odd = create("c", "1000").refused(2, "size-invalid");
    assert!(odd.err.contains("1000 bytes"), "{odd:?}");
    create("c", "10T").refused(1, "array-full");
    run(&["create", "none", "c", "--size", "1M"]).refused(3, "array-not-found");
    for one in [
        &["delete", "data", "c", "--yes"][..],
        &["show", "data", "c"],
        &["resize", "data", "c", "--size", "1M"],
        &["rename", "data", "c", "b"],
    ] {
        let none = run(one).refused(3, "volume-not-found");
        assert!(none.err.contains("data has no volume c"), "{none:?}");
    }
    run(&["rename", "data", "a", "b"]).refused(4, "volume-exists");
    run(&["rename", "data", "a", "a/b"]).refused(2, "name-invalid");
    // A connected client keeps its volume.
    let mut client = UnixStream::connect(socket(&rig, "a")).expect("it is served");
    // It is one as soon as it is greeted, and not before.
    client.read_exact(&mut [0; 8]).expect("a greeting");
    let busy = || run(&["delete", "data", "a", "--yes"]);
    rig.until("the client to be seen", || {
        busy().code == 4 && !names(&rig).is_empty()
    });
    busy().refused(4, "volume-in-use");
    run(&["resize", "data", "a", "--size", "1M", "--shrink"]).refused(4, "volume-in-use");
    run(&["rename", "data", "a", "c"]).refused(4, "volume-in-use");
    run(&["resize", "data", "a", "--size", "41M"]).ok();
    drop(client);
    rig.until("the volume to be free", || busy().code == 0);
    assert_eq!(names(&rig), ["b"]);
    rig.run(&["stop", "data"]).ok();
    create("c", "1M").refused(4, "array-not-serving");
    rig.run(&["destroy", "data", "--yes"]).ok();
    let again = rig.create("data", "5", NBD, &devices).ok().json();
    assert_eq!(again["carved"], false, "another array");
}

/// The first was asked to be confirmed, the second was said to be no size.
#[test]
fn what_is_not_there_is_not_asked_about_and_a_size_that_is_too_large_is_called_so() {
    let mut rig = Rig::new();
    carved(&mut rig);
    rig.run(&["volume", "delete", "data", "nosuch"])
        .refused(3, "volume-not-found");
    rig.run(&["volume", "delete", "data", "a"])
        .refused(4, "not-confirmed");
    assert_eq!(names(&rig), ["a", "b"]);
    for size in ["99999999T", "18446744073709551616"] {
        let refused = create(&rig, "c", size).refused(2, "size-invalid");
        assert!(refused.err.contains("too large"), "{refused:?}");
    }
}

#[test]
fn a_table_that_nobody_can_believe_is_told_and_not_written_over() {
    let mut rig = Rig::new();
    let devices = carved(&mut rig);
    rig.run(&["stop", "data"]).ok();
    // Both copies, on every member: of the array, not of a member, so no other member helps.
    let examined = rig.run(&["examine", &devices[0]]).ok().json();
    let at = examined["data_offset_bytes"].as_u64().expect("an offset");
    let junk = vec![0x11; 2 * MIB as usize];
    for device in &devices {
        let file = File::options().write(true).open(device).expect("a file");
        file.write_all_at(&junk, at).expect("written");
    }
    rig.run(&["start", "data"]).ok();
    let shown = rig.show("data");
    assert_eq!(shown["volume_table_damaged"], true, "{shown}");
    assert_eq!(
        shown["device"],
        Value::Null,
        "the array itself is no way out"
    );
    assert!(!socket(&rig, "a").exists());
    create(&rig, "c", "1M").refused(1, "volume-table-damaged");
    assert!(event_names(&rig).contains(&"volume_table_damaged".to_owned()));
    let said = rig.run_command(rig.command().args(["show", "data"])).ok();
    assert!(said.out.contains("table of volumes is damaged"), "{said:?}");
}
