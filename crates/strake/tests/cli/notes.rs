//! Notes: what a shape costs is told, and never refused.

use serde_json::Value;

use crate::rig::Rig;

fn notes(answer: &Value) -> Vec<String> {
    let all = answer["notes"].as_array().expect("notes");
    all.iter()
        .map(|note| note.as_str().expect("text").to_owned())
        .collect()
}

#[test]
fn a_stripe_that_requests_do_not_fill_is_told_when_it_is_chosen() {
    for daemon in [false, true] {
        let mut rig = Rig::new();
        let d = rig.files(5);
        if daemon {
            rig.start_daemon();
        }
        let dry = rig.create("a", "5", &["--dry-run"], &d[..4]).ok().json();
        assert!(notes(&dry)[0].contains("no power of two"), "{dry}");
        let dry = rig
            .create("a", "5", &["--dry-run", "--strip", "1M"], &d)
            .ok()
            .json();
        assert!(notes(&dry)[0].contains("more than 1 MiB"), "{dry}");
        let made = rig
            .create("a", "5", &["--export", "nbd"], &d[..3])
            .ok()
            .json();
        assert_eq!(notes(&made), Vec::<String>::new(), "{made}");
        if !daemon {
            continue;
        }
        let add = ["restripe", "a", "--add", d[3].as_str(), "--dry-run"];
        let dry = rig.run(&add).ok().json();
        assert!(notes(&dry)[0].contains("is 1.5 MiB"), "{dry}");
        let mut command = rig.command();
        let run = rig.run_command(command.args(&add[..4])).ok();
        assert!(run.err.starts_with("note: a full stripe is"), "{run:?}");
        assert_eq!(run.err.lines().count(), 1, "{run:?}");
        let added = rig.run(&["add", "a", &d[4]]).ok().json();
        assert_eq!(notes(&added), Vec::<String>::new(), "{added}");
    }
}

#[test]
fn notes_go_to_standard_error_and_the_answer_does_not_have_them() {
    let rig = Rig::new();
    let d = rig.files(4);
    let mut command = rig.command();
    command.args(["create", "a", "--level", "5"]).args(&d);
    let run = rig.run_command(&mut command).ok();
    assert!(
        run.err.starts_with("note: a full stripe is 768 KiB"),
        "{run:?}"
    );
    assert!(!run.out.contains("note"), "{run:?}");
}
