//! The daemon's configuration file: its check, what options outweigh, what a mistake in it costs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::rig::Rig;

const NBD: &[&str] = &["--export", "nbd"];

#[test]
fn the_check_names_file_line_and_key() {
    let rig = Rig::new();
    fs::create_dir_all(rig.dir()).expect("made");
    let file = rig.dir().join("strake.toml");
    // STRAKE_DIR is set, so the file lies there.
    let absent = rig.run(&["config", "check", "--json"]).ok().json();
    assert_eq!(absent["exists"], false, "{absent}");
    assert_eq!(absent["configuration"]["daemon"]["wait"], "10s", "{absent}");
    let missing = rig.path("none.toml");
    rig.run(&["config", "check", &missing])
        .refused(3, "file-not-found");
    fs::write(&file, "[daemon]\ndevices = true\nwait = \"soon\"\n").expect("written");
    let wrong = rig.run(&["config", "check"]).refused(2, "config-invalid");
    let parts = ["strake.toml, line 3, wait in [daemon]: 'soon'", "0s to 7d"];
    for part in parts {
        assert!(wrong.err.contains(part), "{}", wrong.err);
    }
    fs::write(&file, "[daemon]\nwait = \"1h\"\n").expect("written");
    let right = rig.run(&["config", "check", "--json"]).ok().json();
    assert_eq!(right["configuration"]["daemon"]["wait"], "1h", "{right}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("set");
    let wrong = rig.run(&["config", "check"]).refused(2, "config-invalid");
    assert!(wrong.err.contains("others can write it"), "{}", wrong.err);
}

/// What the rig's daemon does without `--scan`: it finds member files by the configuration alone.
#[test]
fn the_daemon_takes_what_the_file_says_and_serves_on_after_a_mistake() {
    let mut rig = Rig::new();
    fs::create_dir_all(rig.dir()).expect("made");
    fs::create_dir(rig.path("members")).expect("made");
    let file = rig.dir().join("strake.toml");
    let said = format!(
        "[daemon]\nscan = [\"{}\"]\nwait = \"20s\"\n",
        rig.path("members")
    );
    fs::write(&file, said).expect("written");
    rig.start_daemon();
    let devices: Vec<String> = (0..3)
        .map(|n| rig.file(&format!("members/{n}"), 64 << 20))
        .collect();
    rig.create("data", "5", NBD, &devices).ok();
    rig.stop_daemon();
    fs::remove_file(rig.dir().join("known-files.json")).expect("the daemon remembers files");
    rig.start_daemon();
    rig.until_state("data", "optimal");

    // A mistake: what was said before holds, so the members are found again.
    rig.stop_daemon();
    fs::remove_file(rig.dir().join("known-files.json")).expect("the daemon remembers files");
    fs::write(&file, "[daemon]\nscan = \n").expect("written");
    rig.start_daemon();
    rig.until_state("data", "optimal");
    let events = rig.events();
    let said = events.iter().find(|e| e["event"] == "config_not_used");
    let said = said.expect("it is said");
    let cause = said["cause"].as_str().unwrap_or_default();
    assert!(cause.contains("line 2, scan in [daemon]"), "{said}");
    let goes_on = "the daemon goes on with what it was before";
    assert_eq!(said["effect"], goes_on, "{said}");
}

#[test]
fn a_daemon_that_was_given_a_wrong_file_does_not_start() {
    let rig = Rig::new();
    let file = rig.path("own.toml");
    rig.run(&["daemon", "--config", &file])
        .refused(3, "file-not-found");
    fs::write(&file, "[daemon]\nshards = 0\n").expect("written");
    let wrong = rig
        .run(&["daemon", "--config", &file])
        .refused(2, "config-invalid");
    assert!(wrong.err.contains("shards in [daemon]"), "{}", wrong.err);
}
