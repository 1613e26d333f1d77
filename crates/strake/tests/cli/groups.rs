//! An array gets groups, others and one again, from the command line.

use serde_json::Value;

use crate::rig::Rig;

const NBD: &[&str] = &["--export", "nbd"];

fn size(shown: &Value) -> u64 {
    shown["size_bytes"].as_u64().expect("a size")
}

fn moved(rig: &Rig) {
    rig.until("all has moved", || rig.show("data")["moving"].is_null());
}

const READS: [&str; 3] = [
    "read -P 0x5a 0 24M",
    "read -P 0xa5 60M 4M",
    "read -P 0 30M 8M",
];

#[test]
fn raid_5_becomes_raid_50_and_raid_5_again_while_its_daemon_is_killed() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices).ok();
    let writes = ["write -P 0x5a 0 24M", "write -P 0xa5 60M 4M", "flush"];
    if rig.qemu_io("data", &writes).is_none() {
        return;
    }
    let columns = size(&rig.show("data")) / 3;
    let new = rig.files_called("new", 4);
    let mut restripe = vec!["restripe", "data", "--level", "50", "--group-size", "4"];
    restripe.extend(new.iter().map(String::as_str));
    let dry = [&restripe[..], &["--dry-run"]].concat();
    let told = rig.run(&dry).ok().json();
    assert_eq!(told["changed"], false, "{told}");
    rig.run(&["set", "data", "restripe_priority=1"]).ok();
    rig.run(&restripe).ok();
    let shown = rig.show("data");
    let moving = &shown["moving"];
    let groups = (&moving["from_group_size"], &moving["to_group_size"]);
    assert_eq!(groups, (&Value::Null, &4.into()), "{shown}");
    let told = (&moving["from_columns"], &moving["to_columns"]);
    assert_eq!(told, (&3.into(), &6.into()), "{shown}");
    let text = rig.run_command(rig.command().args(["show", "data"])).out;
    assert!(text.contains("from one group to groups of 4"), "{text}");
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    rig.run(&["set", "data", "restripe_priority=100"]).ok();
    moved(&rig);
    let shown = rig.show("data");
    assert_eq!((&shown["level"], size(&shown)), (&"50".into(), 6 * columns));
    assert_eq!(shown["group_size"], 4);
    // One of each group.
    rig.run(&["fail", "data", "1"]).ok();
    rig.run(&["fail", "data", "6"]).ok();
    rig.qemu_io("data", &READS);
    let refused = ["restripe", "data", "--level", "5"];
    rig.run(&refused).refused(4, "not-optimal");
    for (slot, name) in [("1", "another"), ("6", "a-third")] {
        let device = rig.file(name, 64 << 20);
        rig.run(&["remove", "data", slot]).ok();
        rig.run(&["add", "data", &device]).ok();
    }
    rig.until_state("data", "optimal");
    rig.run(&["restripe", "data", "--level", "5"]).ok();
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    moved(&rig);
    let shown = rig.show("data");
    assert_eq!((&shown["level"], size(&shown)), (&"5".into(), 7 * columns));
    assert_eq!(shown["group_size"], Value::Null);
    rig.run(&["fail", "data", "3"]).ok();
    rig.qemu_io("data", &READS);
}

#[test]
fn an_array_with_groups_gets_one_more_and_others() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(6);
    let spec = [NBD, &["--group-size", "3"]].concat();
    rig.create("data", "50", &spec, &devices).ok();
    let writes = ["write -P 0x5a 0 24M", "write -P 0xa5 60M 4M", "flush"];
    if rig.qemu_io("data", &writes).is_none() {
        return;
    }
    let column = size(&rig.show("data")) / 4;
    let new = rig.files_called("new", 3);
    let mut add = vec!["restripe", "data", "--add"];
    add.extend(new.iter().map(String::as_str));
    rig.run(&add[..5]).refused(2, "group-size-invalid");
    rig.run(&add).ok();
    moved(&rig);
    assert_eq!(size(&rig.show("data")), 6 * column);
    for (slot, reads) in [("0", READS), ("4", READS), ("8", READS)] {
        rig.run(&["fail", "data", slot]).ok();
        rig.qemu_io("data", &reads);
    }
}

#[test]
fn a_parity_that_was_added_rotates_and_then_the_array_gets_groups() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    rig.create("data", "5", NBD, &devices).ok();
    let writes = ["write -P 0x5a 0 24M", "write -P 0xa5 60M 4M", "flush"];
    if rig.qemu_io("data", &writes).is_none() {
        return;
    }
    let new = rig.files_called("new", 5);
    rig.run(&["restripe", "data", "--level", "6", &new[0]]).ok();
    rig.until_state("data", "optimal");
    assert_eq!(rig.show("data")["fixed_parities"], 1);
    let before = size(&rig.show("data"));
    rig.run(&["set", "data", "restripe_priority=1"]).ok();
    rig.run(&["restripe", "data", "--rotate"]).ok();
    let shown = rig.show("data");
    let moving = &shown["moving"];
    let told = (&moving["from_fixed_parities"], &moving["to_fixed_parities"]);
    assert_eq!(told, (&1.into(), &0.into()), "{shown}");
    rig.kill_daemon();
    rig.start_daemon();
    rig.until_state("data", "optimal");
    rig.run(&["set", "data", "restripe_priority=100"]).ok();
    moved(&rig);
    let shown = rig.show("data");
    assert_eq!(
        (&shown["fixed_parities"], size(&shown)),
        (&0.into(), before)
    );
    let mut groups = vec!["restripe", "data", "--level", "60", "--group-size", "4"];
    groups.extend(new[1..].iter().map(String::as_str));
    rig.run(&groups).ok();
    moved(&rig);
    assert_eq!(size(&rig.show("data")), 2 * before);
    for slot in ["0", "3", "4", "7"] {
        rig.run(&["fail", "data", slot]).ok();
    }
    rig.qemu_io("data", &READS);
}

#[test]
fn groups_that_cannot_be_are_refused_by_name() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    rig.create("data", "5", NBD, &devices).ok();
    let new = rig.files_called("new", 4);
    let before: Vec<Vec<u8>> = new
        .iter()
        .map(|path| std::fs::read(path).expect("a file"))
        .collect();
    let refused = |words: &[&str], devices: usize, (exit, code): (i32, &str)| {
        let mut all = vec!["restripe", "data"];
        all.extend(words);
        all.extend(new[..devices].iter().map(String::as_str));
        rig.run(&all).refused(exit, code);
    };
    refused(&["--level", "50"], 4, (2, "group-size-invalid"));
    let of_4 = ["--level", "50", "--group-size", "4"];
    refused(&of_4, 3, (2, "group-size-invalid"));
    let of_3 = ["--level", "50", "--group-size", "3"];
    refused(&of_3, 1, (2, "group-size-invalid"));
    let of_2 = ["--level", "50", "--group-size", "2"];
    refused(&of_2, 4, (2, "group-size-invalid"));
    let other = ["--level", "60", "--group-size", "4"];
    refused(&other, 4, (2, "shape-unreachable"));
    refused(&["--group-size", "4"], 0, (2, "shape-unreachable"));
    let none = ["--level", "5", "--group-size", "4"];
    refused(&none, 4, (2, "shape-unreachable"));
    for (path, before) in new.iter().zip(&before) {
        assert!(std::fs::read(path).expect("a file") == *before, "{path}");
    }
    let six = rig.files_called("six", 6);
    rig.create("six", "5", NBD, &six).ok();
    let smaller = ["restripe", "six", "--level", "50", "--group-size", "3"];
    let answer = rig.run(&smaller).refused(4, "would-shrink");
    let found = answer.json_error()["found"].to_string();
    assert!(found.contains("9 members"), "{found}");
    let grouped = rig.files_called("grouped", 6);
    let spec = [NBD, &["--group-size", "3"]].concat();
    rig.create("grouped", "50", &spec, &grouped).ok();
    let same = ["restripe", "grouped", "--level", "50", "--group-size", "3"];
    rig.run(&same).refused(2, "shape-unreachable");
    rig.run(&["restripe", "grouped", "--level", "50"])
        .refused(2, "level-unreachable");
    let one = ["restripe", "grouped", "--level", "5", "--group-size", "6"];
    rig.run(&one).refused(2, "group-size-invalid");
    // No parity was added that could rotate from now on.
    refused(&["--rotate"], 0, (2, "shape-unreachable"));
    refused(&["--level", "6", "--rotate"], 1, (2, "shape-unreachable"));
}
