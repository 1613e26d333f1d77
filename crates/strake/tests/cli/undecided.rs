//! Regions that were rebuilt from strips that do not agree: what commands say of them, and how a
//! person decides.

use serde_json::Value;

use crate::life::{rot, stored};
use crate::rig::Rig;

const NBD: &[&str] = &["--export", "nbd"];

/// RAID 6: a bit of block 0 changes, then the member of Q of its stripe is replaced. Where block 0
/// and its redundancy lie; none where there is no qemu-io.
fn undecided(rig: &mut Rig) -> Option<Value> {
    rig.start_daemon();
    let devices = rig.files(6);
    rig.create("data", "6", NBD, &devices[..5]).ok();
    rig.qemu_io("data", &["write -P 1 0 4M", "flush"])?;
    let place = rig.run(&["explain", "data", "0"]).ok().json();
    assert_eq!(place["undecided"], false);
    rot(&place["data"]);
    let slot = place["redundancy"][1]["slot"].to_string();
    rig.run(&["fail", "data", &slot]).ok();
    rig.run(&["add", "data", &devices[5]]).ok();
    rig.until_state("data", "optimal");
    Some(place)
}

/// What a command prints for people.
fn text(rig: &Rig, args: &[&str]) -> String {
    rig.run_command(rig.command().args(args)).ok().out
}

fn events_called(rig: &Rig, event: &str) -> Vec<Value> {
    let called = |e: &Value| e["event"] == event;
    rig.events().into_iter().filter(called).collect()
}

#[test]
fn what_was_rebuilt_from_strips_that_do_not_agree_is_shown_until_it_is_written_anew() {
    let mut rig = Rig::new();
    if undecided(&mut rig).is_none() {
        return;
    }
    let shown = rig.show("data");
    let place = &shown["undecided"][0];
    assert_eq!(shown["undecided_regions"], 1, "{shown}");
    assert_eq!(shown["undecided_bytes"], place["len_bytes"]);
    assert_eq!(place["offset_bytes"], 0);
    let told = text(&rig, &["show", "data"]);
    assert!(told.contains("undecided   1 region ("), "{told}");
    assert_eq!(
        rig.run(&["explain", "data", "0"]).ok().json()["undecided"],
        true
    );
    let told = text(&rig, &["explain", "data", "0"]);
    assert!(told.contains("its region is undecided"), "{told}");
    rig.event("it to be told", |e| e["event"] == "undecided");
    let told = events_called(&rig, "undecided");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["cause"], "rebuilt from strips that do not agree");
    let bytes = format!(
        "strake_undecided_bytes{{array=\"data\"}} {}",
        place["len_bytes"]
    );
    rig.until(&bytes, || rig.ask("GET", "/metrics").contains(&bytes));
    // A stopped array says the same, and one that was started again.
    rig.run(&["stop", "data"]).ok();
    assert_eq!(rig.show("data")["undecided"], shown["undecided"]);
    assert_eq!(
        rig.run(&["explain", "data", "0"]).ok().json()["undecided"],
        true
    );
    rig.run(&["start", "data", NBD[0], NBD[1]]).ok();
    assert_eq!(rig.show("data")["undecided_regions"], 1);
    // No repair decides; what is written anew as whole stripes, and scrubbed, does.
    rig.run(&["scrub", "data", "--repair", "--wait"]);
    assert_eq!(rig.show("data")["undecided_regions"], 1);
    rig.qemu_io("data", &["write -P 1 0 4M", "flush"]);
    rig.run(&["scrub", "data", "--wait"]).ok();
    let shown = rig.show("data");
    assert_eq!(shown["undecided_regions"], 0, "{shown}");
    assert_eq!(shown["undecided"], Value::Array(Vec::new()));
    assert!(!text(&rig, &["show", "data"]).contains("undecided"));
    let told = events_called(&rig, "decided");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["cause"], "its strips agree");
}

#[test]
fn a_person_who_says_that_the_data_are_right_decides() {
    let mut rig = Rig::new();
    let Some(place) = undecided(&mut rig) else {
        return;
    };
    let read = stored(&place["data"]);
    // Without a terminal only --yes says so; a rehearsal changes nothing.
    rig.run(&["scrub", "data", "accept"])
        .refused(4, "not-confirmed");
    let would = rig
        .run(&["scrub", "data", "accept", "--dry-run"])
        .ok()
        .json();
    let what = would["would"].as_str().expect("it is said");
    assert!(
        what.starts_with("take what is read in 1 region ("),
        "{would}"
    );
    assert_eq!(rig.show("data")["undecided_regions"], 1);
    // One that is degraded cannot say of all strips that they agree.
    let slot = place["redundancy"][0]["slot"].to_string();
    rig.run(&["fail", "data", &slot]).ok();
    rig.run(&["scrub", "data", "accept", "--yes"])
        .refused(4, "not-optimal");
    let fresh = rig.file("fresh", 64 << 20);
    rig.run(&["add", "data", &fresh]).ok();
    rig.until_state("data", "optimal");
    let done = rig
        .run(&["scrub", "data", "accept", "--yes", "--wait"])
        .ok()
        .json();
    assert_eq!(
        (&done["changed"], &done["ended"]),
        (&true.into(), &"done".into())
    );
    assert_eq!(rig.show("data")["undecided_regions"], 0);
    assert_eq!(stored(&place["data"]), read, "what is read was changed");
    let told = events_called(&rig, "decided");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["cause"], "its data were taken for right");
    rig.run(&["scrub", "data", "--wait"]).ok();
    assert_eq!(rig.show("data")["last_scrub"]["inconsistent_stripes"], 0);
    rig.run(&["scrub", "data", "accept", "--yes"])
        .refused(4, "nothing-undecided");
}

/// It was said that the job is done, and nothing of what it left.
#[test]
fn a_change_of_level_that_leaves_a_region_undecided_says_so() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(5);
    rig.create("data", "5", NBD, &devices[..4]).ok();
    if rig.qemu_io("data", &["write -P 1 0 4M", "flush"]).is_none() {
        return;
    }
    rot(&rig.run(&["explain", "data", "0"]).ok().json()["data"]);
    let raise = ["restripe", "data", "--level", "6", &devices[4], "--wait"];
    let done = rig.run(&raise);
    assert_eq!(done.code, 10, "{done:?}");
    let done = done.json();
    assert_eq!(done["ended"], "done", "{done}");
    let what = done["what"].as_str().expect("it is said");
    assert!(
        what.contains("1 region in which strips do not agree is undecided"),
        "{what}"
    );
    assert_eq!(rig.show("data")["undecided_regions"], 1);
    // The way on.
    let accept = ["scrub", "data", "accept", "--yes", "--wait"];
    rig.run(&accept).ok();
    assert_eq!(rig.show("data")["undecided_regions"], 0);
}

/// It was said that data moves, which stood still again at once; and what was advised was refused,
/// for nothing is undecided.
#[test]
fn data_that_stands_still_again_at_once_is_not_said_to_move() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let devices = rig.files(5);
    rig.create("data", "6", NBD, &devices[..4]).ok();
    let write = ["write -P 1 0 32M", "flush"];
    if rig.qemu_io("data", &write).is_none() {
        return;
    }
    rot(&rig.run(&["explain", "data", "40000"]).ok().json()["data"]);
    let run = rig.run(&["restripe", "data", "--add", &devices[4], "--wait"]);
    assert_eq!(run.code, 11, "{run:?}");
    let go_on = ["restripe", "data", "--continue"];
    let done = rig.run(&go_on).ok().json();
    let what = done["what"].as_str().expect("it is said");
    let stands = "data moves no further: a stripe is inconsistent; strake scrub data --repair ";
    assert!(what.starts_with(stands), "{what}");
    assert!(
        what.ends_with("then strake restripe data --continue"),
        "{what}"
    );
    rig.run(&["scrub", "data", "--repair", "--wait"]).ok();
    let done = rig.run(&go_on).ok().json();
    assert_eq!(done["what"], "data is to go on moving", "{done}");
    rig.until("it has moved", || rig.show("data")["moving"].is_null());
}
