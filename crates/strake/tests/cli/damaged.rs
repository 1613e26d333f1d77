//! Files of the daemon's state that were damaged while no daemon ran.

use std::fs;

use crate::rig::Rig;

/// The daemon went on without a word, as if nothing had ever been said, and wrote over what was
/// left.
#[test]
fn state_that_cannot_be_read_is_told_and_kept_and_the_way_on_that_is_told_works() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(3);
    let options = ["--export", "none", "--degraded", "never"];
    rig.create("a", "5", &options, &devices).ok();
    let uuid = rig.show("a")["uuid"].as_str().expect("text").to_owned();
    rig.stop_daemon();
    let known = rig.dir().join("known-files.json");
    let placement = rig.dir().join(format!("placement/{uuid}.json"));
    let whole = fs::read(&known).expect("it is there");
    fs::write(&known, &whole[..whole.len() / 2]).expect("written");
    fs::write(&placement, b"{").expect("written");

    rig.start_daemon();
    let damaged = |e: &&serde_json::Value| e["event"] == "state_damaged";
    let count = || rig.events().iter().filter(damaged).count();
    rig.until("both to be told of", || count() == 2);
    let events = rig.events();
    let told = |path: &std::path::Path| {
        let path = path.display().to_string();
        let about = |e: &&serde_json::Value| {
            e["event"] == "state_damaged" && e["cause"].to_string().contains(&path)
        };
        let event = events.iter().find(about).expect("it is told");
        event["effect"].as_str().expect("text").to_owned()
    };
    assert!(told(&known).contains("strake start NAME DEV"));
    assert!(told(&placement).contains("strake set"));
    let mut args = vec!["start", "a"];
    args.extend(devices.iter().map(String::as_str));
    rig.run(&args).ok();
    rig.run(&["set", "a", "degraded_start=never"]);
    let kept = known.with_extension("json.damaged");
    assert_eq!(
        fs::read(kept).expect("it is kept"),
        whole[..whole.len() / 2]
    );
    // It is told once.
    rig.stop_daemon();
    rig.start_daemon();
    assert_eq!(rig.events().iter().filter(damaged).count(), 2);
}
