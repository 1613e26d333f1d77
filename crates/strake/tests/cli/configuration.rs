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

/// They said that the file has no channels.
#[test]
fn a_file_that_is_not_used_is_named_by_commands_that_ask_for_channels() {
    let mut rig = Rig::new();
    fs::create_dir_all(rig.dir()).expect("made");
    let file = rig.dir().join("strake.toml");
    let text = "nonsense = 1\n[[alerts]]\nname = \"hook\"\n[alerts.webhook]\n\
                url = \"http://127.0.0.1:1/\"\n";
    fs::write(&file, text).expect("written");
    rig.start_daemon();
    let named = |said: &str| said.contains("strake.toml") && said.contains("nonsense");
    let status = rig.run(&["alert", "status"]).ok().json();
    let why = status["configuration_not_used"]
        .as_str()
        .expect("it is said");
    assert!(named(why), "{why}");
    let refused = rig.run(&["alert", "test"]).refused(2, "config-invalid");
    assert!(named(&refused.err), "{}", refused.err);
    let report = rig.run(&["doctor"]).json();
    let findings = report["findings"].as_array().expect("a list");
    let found = findings
        .iter()
        .find(|finding| finding["check"] == "configuration");
    let found = found.expect("it is found")["found"].to_string();
    assert!(named(&found), "{found}");
    let none = findings
        .iter()
        .any(|finding| finding["check"] == "alert-channel");
    assert!(!none, "{report}");
    // What is advised.
    let check = rig.run(&["config", "check"]).refused(2, "config-invalid");
    assert!(named(&check.err), "{}", check.err);
    fs::write(&file, text.replace("nonsense = 1\n", "")).expect("written");
    rig.run(&["config", "check"]).ok();
    rig.stop_daemon();
    rig.start_daemon();
    let status = rig.run(&["alert", "status"]).ok().json();
    assert_eq!(status["channels"][0]["name"], "hook", "{status}");
    assert_eq!(status["configuration_not_used"], serde_json::Value::Null);
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

/// A backup that is too old was told of when it was needed.
#[test]
fn doctor_tells_of_arrays_that_changed_since_the_newest_backup() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(4);
    let none = &["--export", "none"];
    rig.create("data", "1", none, &devices[..2]).ok();
    let old = |rig: &Rig| {
        let report = rig.run(&["doctor"]).json();
        let all = report["findings"].as_array().expect("a list").clone();
        let is = |finding: &serde_json::Value| finding["check"] == "backup-old";
        all.into_iter().filter(is).collect::<Vec<_>>()
    };
    assert_eq!(old(&rig), [] as [serde_json::Value; 0], "there is none");
    let file = rig.path("backup.json");
    rig.run(&["config", "backup", &file]).ok();
    assert_eq!(old(&rig), [] as [serde_json::Value; 0]);
    rig.run(&["fail", "data", "0"]).ok();
    rig.create("more", "1", none, &devices[2..]).ok();
    let told = old(&rig);
    assert_eq!(told.len(), 2, "{told:?}");
    for (told, what) in told
        .iter()
        .zip(["have changed since", "was made, imported"])
    {
        let found = told["found"].as_str().expect("text");
        assert!(found.contains(what) && found.contains(&file), "{found}");
    }
    let cure = told[0]["cure"].as_str().expect("text");
    let words: Vec<&str> = cure.split(' ').skip(1).collect();
    rig.run(&words).ok();
    assert_eq!(old(&rig), [] as [serde_json::Value; 0], "as advised");
    rig.stop_daemon();
}
