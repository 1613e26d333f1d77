//! Members of another past: older images of members, and devices that lost their content and kept a
//! copy of the superblock, on real files.

use std::fs::{self, File, OpenOptions};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::rig::*;

const NBD: &[&str] = &["--export", "nbd"];
const A: &[&str] = &["write -P 0xaa 0 8M", "flush"];
const B: &[&str] = &["write -P 0xbb 0 8M", "flush"];
const IS_B: &[&str] = &["read -P 0xbb 0 8M"];

/// What the daemon says of a member that is out, or is there again: it notes that after the array
/// has gone on.
fn said(rig: &Rig, event: &str, field: &str, text: &str) -> bool {
    rig.until("the event", || has_said(rig, event, field, text));
    true
}

fn has_said(rig: &Rig, event: &str, field: &str, text: &str) -> bool {
    let of = |e: &Value| e["event"] == event && e[field].as_str().is_some_and(|t| t.contains(text));
    rig.events().iter().any(of)
}

fn resize(path: &str, bytes: u64) {
    let file = OpenOptions::new()
        .write(true)
        .open(path)
        .expect("it is there");
    file.set_len(bytes).expect("it can be resized");
}

/// A member that was cut short and has its length again: all behind the cut is lost.
fn lose_end(path: &str) {
    let bytes = fs::metadata(path).expect("it is there").len();
    resize(path, 1 << 20);
    resize(path, bytes);
}

fn state_of(rig: &Rig, slot: usize) -> Value {
    rig.show("data")["members"][slot]["state"].clone()
}

/// Issue 31, 2.1: `optimal`, without an event, and A was read where B was.
#[test]
fn a_copy_of_a_member_from_before_is_stale_and_b_is_read_where_b_was_written() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "5", NBD, &files).ok();
    if rig.qemu_io("data", A).is_none() {
        return;
    }
    rig.run(&["stop", "data"]).ok();
    fs::copy(&files[1], rig.path("copy-of-1")).expect("copied");
    rig.run(&["start", "data"]).ok();
    rig.qemu_io("data", B);
    rig.run(&["stop", "data"]).ok();
    fs::copy(rig.path("copy-of-1"), &files[1]).expect("put back");
    assert_eq!(rig.run(&["start", "data"]).code, 5);
    rig.until_state("data", "degraded");
    assert_eq!(state_of(&rig, 1), "stale");
    assert!(
        said(&rig, "member_out", "cause", "older_image"),
        "{:?}",
        rig.events()
    );
    rig.qemu_io("data", IS_B);
    // It comes back as any other device: whole.
    rig.run(&["add", "data", &files[1]]).ok();
    rig.run(&["rebuild", "data", "--wait"]);
    rig.until_state("data", "optimal");
    rig.run(&["fail", "data", "0"]).ok();
    rig.qemu_io("data", IS_B);
}

/// All files are put back to what they were, and the array goes on a second time: the superblocks
/// of both times have the same numbers. The array was `optimal` with one of the first time, and A
/// was read where B was.
#[test]
fn a_member_of_another_branch_is_refused_and_the_advised_start_reads_b() {
    for (level, count) in [("5", 4), ("1", 2)] {
        let mut rig = Rig::new();
        rig.start_daemon();
        let files = rig.files(count);
        rig.create("data", level, NBD, &files).ok();
        rig.run(&["stop", "data"]).ok();
        let copy = |from: &str, to: &str| {
            fs::copy(from, to).expect("copied");
        };
        let kept: Vec<String> = (0..count)
            .map(|at| rig.path(&format!("kept-{at}")))
            .collect();
        files
            .iter()
            .zip(&kept)
            .for_each(|(file, kept)| copy(file, kept));
        let other = rig.path("other");
        for (fill, keep) in [(A, true), (B, false)] {
            // The second time this host knows them as older: they are named.
            let named: Vec<&str> = files.iter().map(String::as_str).collect();
            rig.run(&[&["start", "data"], named.as_slice()].concat())
                .ok();
            if rig.qemu_io("data", fill).is_none() {
                return;
            }
            rig.run(&["stop", "data"]).ok();
            if keep {
                copy(&files[1], &other);
                files
                    .iter()
                    .zip(&kept)
                    .for_each(|(file, kept)| copy(kept, file));
            }
        }
        copy(&other, &files[1]);
        let generation = |file: &String| {
            let examined = rig.run(&["examine", file]).ok().json();
            examined["generation"].clone()
        };
        assert_eq!(
            generation(&files[0]),
            generation(&files[1]),
            "the same numbers"
        );
        let sessions = |file: &String| {
            let examined = rig.run(&["examine", file]).ok().json();
            examined["sessions"].as_array().expect("a list").clone()
        };
        let (ours, others) = (sessions(&files[0]), sessions(&files[1]));
        assert_ne!(ours[0]["session"], others[0]["session"], "{ours:?}");
        assert_eq!(ours[0]["last_generation"], generation(&files[0]));
        assert_eq!(ours[1..], others[1..], "what they have in common");
        let text = rig.command().args(["examine", &files[0]]).output();
        let text = String::from_utf8_lossy(&text.expect("runs").stdout).into_owned();
        let number = ours[0]["session"].as_str().expect("digits");
        let line = format!(
            "  sessions  generation {}..{} by {number}\n",
            ours[0]["first_generation"], ours[0]["last_generation"]
        );
        assert!(text.contains(&line), "{text}");
        let refused = rig.run(&["start", "data"]);
        let error = refused.refused(4, "split-brain").json_error();
        let [found, cure] = ["found", "cure"].map(|key| error[key].as_str().expect("text"));
        assert!(found.contains(files[1].as_str()), "{found}");
        // Of a RAID 5 only one side has enough; of a mirror each has.
        let starts: Vec<&str> = cure
            .split("strake start ")
            .skip(1)
            .map(|rest| rest.split([';', ',']).next().unwrap_or_default())
            .collect();
        assert_eq!(starts.len(), if level == "1" { 2 } else { 1 }, "{cure}");
        let right = starts.iter().find(|args| args.contains(&files[0]));
        let args: Vec<&str> = right.expect("advised").split_whitespace().collect();
        let run = rig.run(&[&["start"], &args[..]].concat());
        assert_eq!(run.code, 5, "{run:?}");
        rig.qemu_io("data", IS_B);
        rig.run(&["add", "data", &files[1]])
            .refused(4, "split-brain");
        rig.run(&["add", "--force", "--yes", "data", &files[1]])
            .ok();
        rig.run(&["rebuild", "data", "--wait"]);
        rig.until_state("data", "optimal");
        rig.run(&["fail", "data", "0"]).ok();
        rig.qemu_io("data", IS_B);
    }
}

/// The same of a member that was unplugged, and of which an older copy is plugged in.
#[test]
fn an_older_copy_of_a_member_that_was_away_is_not_taken_back_by_itself() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "5", NBD, &files).ok();
    if rig.qemu_io("data", A).is_none() {
        return;
    }
    rig.run(&["stop", "data"]).ok();
    let (copy, away) = (rig.path("copy-of-1"), rig.path("away"));
    fs::copy(&files[1], &copy).expect("copied");
    rig.run(&["start", "data"]).ok();
    rig.qemu_io("data", B);
    rig.run(&["stop", "data"]).ok();
    rig.run(&["start", "data"]).ok();
    fs::rename(&files[1], &away).expect("unplugged");
    fs::remove_file(&away).expect("unplugged for good");
    rig.until_state("data", "degraded");
    // As a drive appears: at once, with all that it holds.
    fs::rename(&copy, &files[1]).expect("plugged");
    let told = || {
        said(
            &rig,
            "member_returned",
            "effect",
            "an older image of a member",
        )
    };
    rig.until("the watcher says what it is", told);
    assert_eq!(rig.show("data")["state"], "degraded");
    rig.qemu_io("data", IS_B);
}

#[test]
fn copies_of_more_members_than_may_be_lost_are_refused_with_their_generations() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "5", NBD, &files).ok();
    rig.run(&["stop", "data"]).ok();
    let copies: Vec<String> = (0..2).map(|at| rig.path(&format!("copy{at}"))).collect();
    for (file, copy) in files.iter().zip(&copies) {
        fs::copy(file, copy).expect("copied");
    }
    rig.run(&["start", "data"]).ok();
    rig.run(&["stop", "data"]).ok();
    for (file, copy) in files.iter().zip(&copies) {
        fs::copy(copy, file).expect("put back");
    }
    for options in [vec!["start", "data"], vec!["start", "data", "--force"]] {
        let refused = rig.run(&options).refused(4, "members-missing");
        let found = refused.json_error()["found"]
            .as_str()
            .expect("text")
            .to_owned();
        for slot in [0, 1] {
            let told = format!("slot {slot} is an older image: it has generation ");
            assert!(found.contains(&told), "{found}");
        }
    }
}

/// Issue 31, 2.2: it was kept with nothing to be rebuilt, and read as zeros.
#[test]
fn a_member_cut_short_while_it_serves_is_out_for_good_and_no_zeros_are_read() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "5", NBD, &files).ok();
    if rig.qemu_io("data", B).is_none() {
        return;
    }
    let bytes = fs::metadata(&files[1]).expect("it is there").len();
    resize(&files[1], 1 << 20);
    rig.qemu_io("data", IS_B);
    rig.until_state("data", "degraded");
    assert!(
        said(&rig, "member_out", "cause", "shrunk"),
        "{:?}",
        rig.events()
    );
    resize(&files[1], bytes);
    let told = || {
        said(
            &rig,
            "member_returned",
            "effect",
            "without its superblock at byte",
        )
    };
    rig.until("the watcher says what it is", told);
    assert!(
        !has_said(&rig, "member_kept", "array", "data"),
        "{:?}",
        rig.events()
    );
    assert_eq!(rig.show("data")["state"], "degraded");
    rig.qemu_io("data", IS_B);
    // What was another member's content is written anew.
    rig.run(&["add", "data", &files[1]]).ok();
    rig.run(&["rebuild", "data", "--wait"]);
    rig.until_state("data", "optimal");
    rig.run(&["fail", "data", "0"]).ok();
    rig.qemu_io("data", IS_B);
}

/// Nobody does I/O on it: the look at sizes finds it.
#[test]
fn a_member_cut_short_while_nothing_is_read_is_out_all_the_same() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "5", NBD, &files).ok();
    resize(&files[1], 1 << 20);
    rig.until_state("data", "degraded");
    assert!(
        said(&rig, "member_out", "cause", "shrunk"),
        "{:?}",
        rig.events()
    );
}

#[test]
fn a_member_cut_short_and_grown_again_while_it_was_stopped_is_out() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "5", NBD, &files).ok();
    if rig.qemu_io("data", B).is_none() {
        return;
    }
    rig.run(&["stop", "data"]).ok();
    lose_end(&files[1]);
    assert_eq!(rig.run(&["start", "data"]).code, 5);
    rig.until_state("data", "degraded");
    rig.until("the event", || said(&rig, "member_out", "cause", "emptied"));
    rig.qemu_io("data", IS_B);
    assert!(rig.events().iter().all(|e| e["event"] != "member_kept"));
}

/// A controller or a partition that ends a little earlier: all data is there, and three advices led
/// nowhere.
#[test]
fn members_that_are_all_a_little_shorter_are_believed_when_they_are_named() {
    // Less than 64 KiB: the last superblock is still where it was.
    for cut in [4096, 128 << 10] {
        let mut rig = Rig::new();
        rig.start_daemon();
        let files = rig.files(3);
        rig.create("data", "5", NBD, &files).ok();
        if rig.qemu_io("data", B).is_none() {
            return;
        }
        let backup = rig.path("backup.json");
        rig.run(&["config", "backup", &backup]).ok();
        rig.run(&["stop", "data"]).ok();
        let bytes = fs::metadata(&files[1]).expect("it is there").len();
        files.iter().for_each(|file| resize(file, bytes - cut));
        let way = format!("strake start --force data {}", files.join(" "));
        for args in [
            &["start", "data"][..],
            &["config", "restore", &backup, "--yes"],
        ] {
            let refused = rig.run(args).refused(4, "members-missing");
            let cure = refused.json_error()["cure"].to_string();
            assert!(cure.contains(&way), "{refused:?}");
        }
        let shown = rig.show("data");
        let cure = shown["set_aside"][0]["cure"].to_string();
        assert!(cure.contains(&way) && !cure.contains("clean"), "{shown}");
        let examined = rig
            .run(&["examine", &files[0]])
            .refused(1, "metadata-damaged");
        assert!(
            examined.err.contains(&format!("its {bytes} bytes back")),
            "{examined:?}"
        );
        // By force alone it does not start: they are to be named, and it asks.
        rig.run(&["start", "data", "--force", "--yes"])
            .refused(4, "members-missing");
        let named: Vec<&str> = files.iter().map(String::as_str).collect();
        let force = [&["start", "data", "--force"], &named[..]].concat();
        rig.run(&force).refused(4, "not-confirmed");
        rig.run(&[&["start", "data", "--yes"], &named[..]].concat())
            .refused(4, "members-emptied");
        rig.run(&[&force[..], &["--yes"]].concat()).ok();
        rig.qemu_io("data", IS_B);
        rig.until("the event", || {
            said(&rig, "member_believed", "cause", "start --force")
        });
        rig.run(&["stop", "data"]).ok();
        rig.run(&["start", "data"]).ok();
        assert_eq!(rig.show("data")["state"], "optimal");
        rig.run(&["fail", "data", "0"]).ok();
        rig.qemu_io("data", IS_B);
    }
}

#[test]
fn members_that_lost_data_with_their_ends_are_not_believed() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", NBD, &files).ok();
    rig.run(&["stop", "data"]).ok();
    files.iter().for_each(|file| resize(file, 32 << 20));
    let named: Vec<&str> = files.iter().map(String::as_str).collect();
    let force = [&["start", "data", "--force", "--yes"], &named[..]].concat();
    let refused = rig.run(&force).refused(4, "members-missing");
    let cure = refused.json_error()["cure"].to_string();
    assert!(
        cure.contains("67108864 bytes back") && !cure.contains("--force"),
        "{cure}"
    );
}

/// The way on that a degraded array names for a member that shrank.
#[test]
fn a_member_that_shrank_is_cleaned_and_taken_in_as_a_new_device() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", NBD, &files).ok();
    rig.run(&["stop", "data"]).ok();
    resize(&files[1], (64 << 20) - 4096);
    assert_eq!(rig.run(&["start", "data"]).code, 5);
    let cure = rig.show("data")["set_aside"][0]["cure"].to_string();
    for advised in ["drive clean", "add data"] {
        assert!(
            cure.contains(&format!("strake {advised} {}", files[1])),
            "{cure}"
        );
    }
    rig.run(&["drive", "clean", &files[1], "--yes"]).ok();
    rig.run(&["add", "data", &files[1]]).ok();
    rig.until_state("data", "optimal");
}

/// The refusal did not name the force that starts it, and `show` did not say why one is stale.
#[test]
fn one_older_and_one_emptied_member_start_by_the_force_that_the_refusal_names() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", NBD, &files).ok();
    let wrote = rig.qemu_io("data", B).is_some();
    rig.run(&["stop", "data"]).ok();
    let copy = rig.path("copy");
    fs::copy(&files[0], &copy).expect("copied");
    rig.run(&["start", "data"]).ok();
    rig.run(&["stop", "data"]).ok();
    fs::copy(&copy, &files[0]).expect("put back");
    fs::remove_file(&copy).expect("removed");
    let dry = rig.run_command(rig.command().args(["start", "data", "--dry-run"]));
    assert!(dry.out.contains("degraded then: slot 0 stale"), "{dry:?}");
    let aside = rig.show("data")["set_aside"][0].clone();
    assert!(
        aside["found"].to_string().contains("is an older image"),
        "{aside}"
    );
    let file = File::options().write(true).open(&files[1]).expect("there");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 8192], 0).expect("wiped");
    let refused = rig.run(&["start", "data"]).refused(4, "members-emptied");
    let cure = refused.json_error()["cure"].to_string();
    assert!(cure.contains("strake start --force data"), "{cure}");
    let shown = rig.show("data");
    let aside = |slot: usize| shown["set_aside"][slot]["found"].to_string();
    assert!(aside(0).contains("is an older image"), "{shown}");
    assert!(
        aside(1).contains("has no superblock at byte 4096"),
        "{shown}"
    );
    assert_eq!(rig.run(&["start", "data", "--force", "--yes"]).code, 5);
    if wrote {
        rig.qemu_io("data", IS_B);
    }
}

/// RAID 0 can do without none: it is refused, and a person may say that all else is whole.
#[test]
fn a_wiped_beginning_of_a_member_of_raid_0_needs_force() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(2);
    rig.create("data", "0", NBD, &files).ok();
    let wrote = rig.qemu_io("data", B).is_some();
    rig.run(&["stop", "data"]).ok();
    let file = File::options()
        .write(true)
        .open(&files[1])
        .expect("it is there");
    std::os::unix::fs::FileExt::write_all_at(&file, &[0; 8192], 0).expect("wiped");
    let refused = rig.run(&["start", "data"]).refused(4, "members-emptied");
    let found = refused.json_error()["found"]
        .as_str()
        .expect("text")
        .to_owned();
    assert!(
        found.contains("slot 1 has no superblock at byte 4096"),
        "{found}"
    );
    rig.run(&["start", "data", "--force", "--yes"]).ok();
    if wrote {
        rig.qemu_io("data", IS_B);
    }
    rig.run(&["stop", "data"]).ok();
    rig.run(&["start", "data"]).ok();
}

/// The first MiB of all members was overwritten, with both places of the region map: data is whole,
/// and the refusal said that other members may still start the array. There are none.
#[test]
fn the_way_on_that_a_refusal_names_where_all_region_maps_are_gone_brings_the_data_back() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "5", NBD, &files).ok();
    if rig.qemu_io("data", B).is_none() {
        return;
    }
    rig.run(&["stop", "data"]).ok();
    for path in &files {
        let file = OpenOptions::new().write(true).open(path).expect("opened");
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![0; 1 << 20], 0).expect("written");
    }
    rig.run(&["start", "data"]).refused(4, "members-emptied");
    let refused = rig.run(&["start", "data", "--force", "--yes"]);
    let refused = refused.refused(1, "metadata-damaged").json_error();
    let cure = refused["cure"].as_str().expect("a way on");
    let file = rig.path("backup.json");
    for command in ["config backup FILE", "config restore FILE"] {
        assert!(cure.contains(command), "{cure}");
        let command = command.replace("FILE", &file);
        let mut args: Vec<&str> = command.split(' ').collect();
        if args[1] == "restore" {
            args.push("--yes");
        }
        rig.run(&args).ok();
    }
    rig.until_state("data", "optimal");
    rig.qemu_io("data", IS_B);
}

/// `add` took it, overwrote the only copy of what was acknowledged, and said "puts it back".
#[test]
fn what_a_member_was_acknowledged_alone_is_overwritten_by_force_only() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(2);
    rig.create("data", "1", NBD, &files).ok();
    if rig.qemu_io("data", A).is_none() {
        return;
    }
    rig.run(&["stop", "data"]).ok();
    fs::copy(&files[0], rig.path("copy-of-0")).expect("copied");
    rig.run(&["start", "data"]).ok();
    rig.qemu_io("data", B);
    rig.run(&["stop", "data"]).ok();
    // Only member 1 has B now, and it is away when the array starts.
    let away = rig.path("away");
    fs::rename(&files[1], &away).expect("taken away");
    fs::copy(rig.path("copy-of-0"), &files[0]).expect("put back");
    assert_eq!(rig.run(&["start", "data", &files[0]]).code, 5);
    fs::rename(&away, &files[1]).expect("there again");
    let force = format!("strake add --force data {}", files[1]);
    assert!(said(&rig, "member_returned", "effect", &force));
    for args in [
        &["add", "data", &files[1]][..],
        &["add", "data", &files[1], "--dry-run"],
        &["replace", "data", "1", &files[1]],
    ] {
        rig.run(args).refused(4, "split-brain");
    }
    rig.run(&["stop", "data"]).ok();
    // What B was written to has it still.
    fs::rename(&files[0], rig.path("older")).expect("taken away");
    assert_eq!(rig.run(&["start", "data", &files[1]]).code, 5);
    rig.qemu_io("data", IS_B);
    rig.run(&["stop", "data"]).ok();
    rig.stop_daemon();
}

#[test]
fn by_force_a_member_that_went_on_apart_is_rebuilt() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(3);
    rig.create("data", "5", NBD, &files).ok();
    if rig.qemu_io("data", A).is_none() {
        return;
    }
    rig.run(&["stop", "data"]).ok();
    let copy = |n: usize| rig.path(&format!("copy-of-{n}"));
    for n in [0, 1] {
        fs::copy(&files[n], copy(n)).expect("copied");
    }
    rig.run(&["start", "data"]).ok();
    rig.qemu_io("data", B);
    rig.run(&["stop", "data"]).ok();
    let away = rig.path("away");
    fs::rename(&files[2], &away).expect("taken away");
    for n in [0, 1] {
        fs::copy(copy(n), &files[n]).expect("put back");
    }
    assert_eq!(rig.run(&["start", "data", &files[0], &files[1]]).code, 5);
    fs::rename(&away, &files[2]).expect("there again");
    let restripe = &["restripe", "data", "--level", "6", &files[2]];
    rig.run(restripe).refused(4, "split-brain");
    rig.run(&["add", "data", &files[2]])
        .refused(4, "split-brain");
    rig.run(&["add", "--force", "--yes", "data", &files[2]])
        .ok();
    rig.until_state("data", "optimal");
    rig.qemu_io("data", &["read -P 0xaa 0 8M"]);
    rig.stop_daemon();
}

/// A look a minute, or a stop, found it; what was read until then were zeros.
#[test]
fn a_member_cut_short_and_made_as_long_again_while_it_serves_is_out_within_seconds() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "6", NBD, &files).ok();
    if rig.qemu_io("data", A).is_none() {
        return;
    }
    // The first look after a change notes how much room the files take.
    std::thread::sleep(Duration::from_secs(15));
    lose_end(&files[1]);
    let cut = Instant::now();
    rig.until_state("data", "degraded");
    assert!(
        cut.elapsed() < Duration::from_secs(45),
        "{:?}",
        cut.elapsed()
    );
    assert!(said(&rig, "member_out", "cause", "emptied"));
    rig.qemu_io("data", &["read -P 0xaa 0 8M"]);
    rig.stop_daemon();
}

/// When their generation had passed what the newer device knew of them, they were `optimal` with it
/// and read what was never written.
#[test]
fn all_members_from_before_are_never_put_together_with_one_that_joined_since() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "5", NBD, &files[..3]).ok();
    if rig.qemu_io("data", A).is_none() {
        return;
    }
    rig.run(&["stop", "data"]).ok();
    let copy = |n: usize| rig.path(&format!("copy-of-{n}"));
    for (n, file) in files[..3].iter().enumerate() {
        fs::copy(file, copy(n)).expect("copied");
    }
    rig.run(&["start", "data"]).ok();
    rig.run(&["replace", "data", "1", &files[3]]).ok();
    rig.until("the replacement", || {
        let shown = rig.show("data");
        shown["members"][1]["device"] == files[3].as_str() && shown["state"] == "optimal"
    });
    rig.run(&["stop", "data"]).ok();
    for (n, file) in files[..3].iter().enumerate() {
        fs::copy(copy(n), file).expect("put back");
    }
    let all = ["start", "data", &files[0], &files[1], &files[2]];
    for _ in 0..6 {
        let started = rig.run(&["start", "data"]);
        assert!(started.code != 0, "{started:?}");
        rig.run(&all).ok();
        rig.qemu_io("data", B);
        rig.run(&["stop", "data"]).ok();
    }
    rig.run(&["start", "data"]).refused(4, "split-brain");
    rig.run(&all).ok();
    rig.qemu_io("data", IS_B);
    rig.stop_daemon();
}

/// A spare was built from the zeros, the array was optimal, and nothing was said.
#[test]
fn a_member_cut_short_just_before_another_is_failed_is_out_and_the_other_stays() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    let spare = ["--export", "nbd", "--spare", &files[3]];
    rig.create("data", "5", &spare, &files[..3]).ok();
    if rig.qemu_io("data", B).is_none() {
        return;
    }
    lose_end(&files[1]);
    rig.run(&["fail", "data", "0"]).refused(4, "would-fail");
    assert!(said(&rig, "member_out", "cause", "emptied"));
    rig.until_state("data", "optimal");
    rig.qemu_io("data", IS_B);
    rig.run(&["fail", "data", "2"]).ok();
    rig.qemu_io("data", IS_B);
    rig.stop_daemon();
}

#[test]
fn a_member_cut_short_just_before_the_array_is_renamed_is_out() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "6", NBD, &files).ok();
    if rig.qemu_io("data", B).is_none() {
        return;
    }
    lose_end(&files[1]);
    rig.run(&["rename", "data", "other"]).ok();
    assert_eq!(rig.show("other")["state"], "degraded");
    rig.qemu_io("other", IS_B);
    rig.stop_daemon();
}

/// The stop wrote new superblocks on it: A was read where B was, without an event.
#[test]
fn an_older_copy_put_over_a_member_that_serves_is_out_before_its_array_stops() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(2);
    rig.create("data", "1", NBD, &files).ok();
    if rig.qemu_io("data", A).is_none() {
        return;
    }
    rig.run(&["stop", "data"]).ok();
    fs::copy(&files[0], rig.path("copy-of-0")).expect("copied");
    rig.run(&["start", "data"]).ok();
    rig.qemu_io("data", B);
    overlay(rig.path("copy-of-0"), &files[0]);
    rig.run(&["stop", "data"]).ok();
    assert!(said(&rig, "member_out", "cause", "older_image"));
    assert_eq!(rig.run(&["start", "data"]).code, 5);
    rig.qemu_io("data", IS_B);
    rig.stop_daemon();
}

/// As `dd conv=notrunc` does: the file stays the one that the array has open.
fn overlay(from: impl AsRef<std::path::Path>, to: &str) {
    let bytes = fs::read(from).expect("the copy");
    let file = OpenOptions::new().write(true).open(to).expect("there");
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).expect("written");
}

/// The members in slots 1 and 2 are doubted as emptied ones, and no other.
fn doubts_are_shown(rig: &Rig) {
    let members = rig.show("data")["members"].clone();
    let causes = [0, 1, 2, 3].map(|slot: usize| members[slot]["doubted"].clone());
    let emptied = Value::from("emptied");
    assert_eq!(causes, [Value::Null, emptied.clone(), emptied, Value::Null]);
    for args in [&["show", "data"][..], &["status"]] {
        let text = rig.run_command(rig.command().args(args)).out;
        for slot in 0..4 {
            let line = format!("slot {slot} is doubted (emptied)");
            assert_eq!(text.contains(&line), [1, 2].contains(&slot), "{text}");
        }
    }
    let findings = rig.run(&["doctor"]).json()["findings"].clone();
    let findings = findings.as_array().expect("a list");
    let doubts = |f: &&Value| f["check"] == "doubted" && f["severity"] == "critical";
    let finding = findings.iter().find(doubts).expect("a finding");
    assert!(finding["found"].to_string().contains("1, 2"), "{finding}");
}

/// One was put out, which gave the other its superblock again: it was in sync for ever.
#[test]
fn two_members_of_raid_5_cut_short_while_it_serves_are_refused_by_name_at_the_next_start() {
    let mut rig = Rig::new();
    rig.start_daemon();
    let files = rig.files(4);
    rig.create("data", "5", NBD, &files).ok();
    if rig.qemu_io("data", B).is_none() {
        return;
    }
    // The first look after a change notes how much room the files take.
    std::thread::sleep(Duration::from_secs(15));
    for file in &files[1..3] {
        lose_end(file);
    }
    assert!(said(&rig, "member_emptied", "effect", "still in service"));
    assert!(said(&rig, "member_doubted", "cause", "emptied"));
    doubts_are_shown(&rig);
    rig.run(&["stop", "data"]).ok();
    let refused = rig.run(&["start", "data"]).refused(4, "members-emptied");
    let found = refused.json_error()["found"].to_string();
    for slot in ["slot 1 has no superblock", "slot 2 has no superblock"] {
        assert!(found.contains(slot), "{found}");
    }
    rig.stop_daemon();
}
