//! The demo, small: it must end well for a mirror, a parity level and a level of groups.

use serde_json::Value;

use crate::rig::Rig;

fn demo(level: &str) {
    let rig = Rig::new();
    let folder = rig.folder.path().display().to_string();
    let args = [
        "demo",
        "--level",
        level,
        "--size",
        "96M",
        "--work",
        "32M",
        "--seconds",
        "1",
    ];
    let run = rig.run_command(
        rig.command()
            .arg("--json")
            .args(args)
            .args(["--dir", &folder]),
    );
    assert_eq!(run.code, 0, "{run:?}");
    let last = run.out.lines().last().expect("a last line");
    let report: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(report["level"], level);
    for (key, wanted) in [
        ("mismatches", 0),
        ("lost_acknowledged_writes", 0),
        ("scrub_inconsistent_stripes", 0),
        ("members_lost", 1),
        ("daemon_kills", 1),
    ] {
        assert_eq!(report[key], wanted, "{key}: {run:?}");
    }
    for key in ["verified_bytes", "write_bytes_per_s", "read_bytes_per_s"] {
        assert!(
            report[key].as_u64().is_some_and(|n| n > 0),
            "{key}: {run:?}"
        );
    }
    let left = std::fs::read_dir(rig.folder.path())
        .expect("folder")
        .count();
    assert_eq!(left, 0, "the demo left its folder behind");
}

#[test]
fn the_demo_of_a_mirror_ends_well() {
    demo("1");
}

#[test]
fn the_demo_of_raid_5_ends_well() {
    demo("5");
}

#[test]
fn the_demo_of_raid_60_ends_well() {
    demo("60");
}

#[test]
fn a_demo_without_redundancy_is_refused() {
    Rig::new()
        .run(&["demo", "--level", "0"])
        .refused(2, "usage");
    Rig::new()
        .run(&["demo", "--level", "9"])
        .refused(2, "level-unknown");
}
