//! A shell completes names that the daemon knows: what bash offers is asked of a real bash.

use std::process::Command;

use crate::rig::{Rig, STRAKE};

/// What bash offers for the last of these words.
fn offered(rig: &Rig, words: &[&str]) -> Vec<String> {
    // As bash calls the function: with the line in COMP_WORDS, and what is completed second.
    let script = r#"
        source <("$STRAKE" completions bash)
        complete -p strake | grep -q -- '-F _clap_complete_strake' || exit 3
        COMP_WORDS=(strake "$@") COMP_CWORD=$# COMP_TYPE=9
        _clap_complete_strake strake "${@: -1}" ""
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let output = Command::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .args(words)
        .env("STRAKE", STRAKE)
        .env("STRAKE_DIR", rig.dir())
        .output()
        .expect("bash runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

#[test]
fn bash_completes_names_of_arrays_members_volumes_pools_and_settings() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let none = &["--export", "none"];
    let devices = rig.files_called("d", 3);
    rig.create("data", "1", none, &devices[..2]).ok();
    rig.create("dawn", "1", none, &rig.files_called("e", 2))
        .ok();
    rig.create(
        "carved",
        "1",
        &["--export", "nbd"],
        &rig.files_called("c", 2),
    )
    .ok();
    rig.run(&["volume", "create", "carved", "logs", "--size", "8M"])
        .ok();
    rig.run(&["pool", "create", "shelf", &devices[2]]).ok();
    assert_eq!(offered(&rig, &["sho"]), ["show"]);
    assert_eq!(offered(&rig, &["show", "da"]), ["data", "dawn"]);
    assert_eq!(offered(&rig, &["rename", "dat"]), ["data"]);
    let members = offered(&rig, &["fail", "data", ""]);
    for member in ["0", "1", &devices[0], &devices[1]] {
        assert!(members.iter().any(|m| m == member), "{member}: {members:?}");
    }
    assert_eq!(offered(&rig, &["fail", "data", "1"]), ["1"]);
    assert_eq!(
        offered(&rig, &["volume", "delete", "carved", "l"]),
        ["logs"]
    );
    assert_eq!(offered(&rig, &["pool", "show", "s"]), ["shelf"]);
    assert_eq!(offered(&rig, &["set", "data", "spare"]), ["spare_delay="]);
    assert_eq!(offered(&rig, &["get", "data", "spare"]), ["spare_delay"]);
    // What is to be made has no name yet.
    assert_eq!(offered(&rig, &["create", "da"]), [""; 0]);
    // Where no daemon answers, commands complete all the same.
    rig.stop_daemon();
    assert_eq!(offered(&rig, &["show", "da"]), [""; 0]);
    assert_eq!(offered(&rig, &["scru"]), ["scrub"]);
}
