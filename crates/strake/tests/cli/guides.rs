//! Every command of the guides, in order, against a daemon of its own: one test for each page.
//!
//! A page is a story in blocks:
//!
//! * Lines of a block marked `console` that begin with `$ ` or `# ` are commands; the lines below a
//!   command are its output. `…` stands for what varies: within a line for any text, alone for any
//!   lines. Runs of blanks count as one. Each other line of the page must come, in this order.
//! * `console exit=5`: each command of the block ends with 5; `exit=0|5`: with one of these.
//!   `console vm`: the commands need what a test machine lacks (ublk, systemd, kernel modules);
//!   they are counted and listed, not run.
//! * An HTML comment that begins with `<!-- rig` holds commands that a reader does not see: they
//!   make the drives, pull them and put them back. `@another-host` forgets all that the daemon
//!   knew.
//!
//! `/dev/nvme…` stands for files in the folder of the test, `/run/strake` for its STRAKE_DIR.
//!
//! Invariant: a block that holds commands is run or counted; none is passed over.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::rig::{Rig, STRAKE, has, skipped};

/// Commands of all pages that no test runs. To be lowered, not raised.
const NOT_RUN_MAX: usize = 15;
/// So long a command that only reads may take to show what its page shows.
const PATIENCE: Duration = Duration::from_secs(60);
/// Commands that change nothing: repeated until they show what the page shows.
const READERS: &[&str] = &[
    "strake show",
    "strake scan",
    "strake events",
    "strake get",
    "strake scrub data status",
    "strake volume show",
    "strake pool show",
    "curl ",
];
/// Programs of other packages. A page that uses one that is not installed is skipped.
const PROGRAMS: &[&str] = &["nbdinfo", "nbdcopy", "curl", "jq"];

macro_rules! guides {
    ($($test:ident, $page:literal;)*) => {
        const PAGES: &[&str] = &[$($page,)*];
        $(#[test] fn $test() { follow($page); })*
    };
}

guides! {
    getting_started_ends_with_an_array_that_serves, "getting-started.md";
    a_drive_is_replaced_as_the_guide_says, "how-to/replace-a-drive.md";
    a_degraded_array_is_mended_as_the_guide_says, "how-to/it-is-degraded.md";
    a_failed_array_comes_back_as_the_guide_says, "how-to/it-is-failed.md";
    an_array_that_does_not_start_is_started_as_the_guide_says, "how-to/it-does-not-start.md";
    drives_are_added_as_the_guide_says, "how-to/add-drives.md";
    the_level_is_changed_as_the_guide_says, "how-to/change-the-level.md";
    an_array_is_tuned_as_the_guide_says, "how-to/tune.md";
    an_array_is_monitored_as_the_guide_says, "how-to/monitor.md";
    the_configuration_is_backed_up_as_the_guide_says, "how-to/back-up.md";
    drives_move_to_another_host_as_the_guide_says, "how-to/move-to-another-host.md";
}

/// A command and what its page shows of it.
#[derive(Debug, PartialEq)]
struct Shown {
    line: usize,
    command: String,
    output: Vec<String>,
    exit: Vec<i32>,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Run,
    /// It prepares what the reader has already; its output is not compared.
    Hidden,
    /// It needs another machine.
    Elsewhere,
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn text_of(page: &str) -> String {
    fs::read_to_string(docs().join(page)).unwrap_or_else(|e| panic!("docs/{page}: {e}"))
}

/// The commands of a page.
fn commands(page: &str, text: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let mut block: Option<(How, Vec<i32>)> = None;
    let mut other = false;
    for (at, line) in text.lines().enumerate() {
        let place = format!("docs/{page}:{}", at + 1);
        if line == "<!-- rig" {
            block = Some((How::Hidden, vec![0]));
        } else if line == "-->" && matches!(block, Some((How::Hidden, _))) {
            block = None;
        } else if let Some(info) = line.trim_start().strip_prefix("```") {
            match (block.is_some(), other) {
                (true, _) => block = None,
                (_, true) => other = false,
                _ => match info.strip_prefix("console") {
                    Some(words) => block = Some(kind_of(words, &place)),
                    None => other = true,
                },
            }
        } else if let Some((how, exit)) = &block {
            let prompt = ["$ ", "# "].iter().find_map(|p| line.strip_prefix(p));
            match (prompt, *how, all.last_mut()) {
                (_, _, Some(last)) if last.line > 0 && last.command.ends_with('\\') => {
                    last.command.pop();
                    last.command.push_str(line.trim_start());
                }
                (Some(command), _, _) => all.push(shown(at + 1, command, exit, *how)),
                (None, How::Hidden, _) => all.push(shown(at + 1, line, exit, *how)),
                (None, _, Some(last)) => last.output.push(line.to_owned()),
                (None, _, None) => panic!("{place}: output without a command"),
            }
        } else if other {
            let begins = ["$ ", "# strake", "strake "];
            let command = begins.iter().any(|text| line.starts_with(text));
            assert!(!command, "{place}: a command outside a console block");
        }
    }
    assert!(block.is_none() && !other, "docs/{page}: a block has no end");
    all
}

fn shown(line: usize, command: &str, exit: &[i32], how: How) -> Shown {
    Shown {
        line,
        command: command.to_owned(),
        output: Vec::new(),
        exit: exit.to_vec(),
        how,
    }
}

/// What the words behind `console` say.
fn kind_of(words: &str, place: &str) -> (How, Vec<i32>) {
    let mut kind = (How::Run, vec![0]);
    for word in words.split_whitespace() {
        match word.strip_prefix("exit=") {
            Some(exit) => {
                let codes = exit.split('|').map(|code| code.parse().expect("a number"));
                kind.1 = codes.collect();
            }
            None if word == "vm" => kind.0 = How::Elsewhere,
            None => panic!("{place}: console knows no '{word}'"),
        }
    }
    kind
}

/// Runs a page.
fn follow(page: &str) {
    let shown = commands(page, &text_of(page));
    for program in PROGRAMS {
        let used = |s: &Shown| s.how != How::Elsewhere && s.command.contains(program);
        if shown.iter().any(used) && !has(program) {
            return skipped(&format!("docs/{page}: {program} is not installed"));
        }
    }
    let mut rig = Rig::new();
    fs::create_dir(rig.path("dev")).expect("works");
    start(&mut rig);
    for shown in &shown {
        match (shown.how, shown.command.as_str()) {
            (How::Elsewhere, command) => println!("NOT RUN: docs/{page}: {command}"),
            (How::Hidden, "@another-host") => {
                rig.stop_daemon();
                fs::remove_dir_all(rig.dir()).expect("works");
                start(&mut rig);
            }
            _ => run(&rig, page, shown),
        }
    }
}

fn start(rig: &mut Rig) {
    let folder = rig.path("dev");
    rig.start_daemon_with(&["--scan", &folder]);
}

/// Runs one command, again and again where it only reads, until it shows what the page shows.
fn run(rig: &Rig, page: &str, shown: &Shown) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let (exit, output) = bash(rig, &shown.command);
        let wrong = wrong(shown, exit, &output);
        let Some(wrong) = wrong else { return };
        let reads = READERS.iter().any(|r| shown.command.starts_with(r));
        assert!(
            reads && Instant::now() < give_up,
            "docs/{page}:{}: {}\n{wrong}\n--- it printed, with exit status {exit}:\n{output}\n{}",
            shown.line,
            shown.command,
            rig.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What is not as the page shows it.
fn wrong(shown: &Shown, exit: i32, output: &str) -> Option<String> {
    if !shown.exit.contains(&exit) {
        return Some(format!("it is to end with exit status {:?}", shown.exit));
    }
    if shown.how == How::Hidden {
        return None;
    }
    let missing = missing(&shown.output, output)?;
    Some(format!("it does not print: {missing}"))
}

/// The first line of a page that does not come.
fn missing<'a>(page: &'a [String], output: &str) -> Option<&'a str> {
    let mut lines = output.lines();
    page.iter()
        .map(String::as_str)
        .filter(|line| !line.trim().is_empty() && line.trim() != "…")
        .find(|shown| !lines.any(|line| fits(shown, line)))
}

/// Whether a line is as the page has it: `…` is any text, a run of blanks is one.
fn fits(shown: &str, line: &str) -> bool {
    let [shown, line] = [shown, line].map(|t| t.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut parts = shown.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Exit status and all output of a command, with the names of the page.
fn bash(rig: &Rig, command: &str) -> (i32, String) {
    let real = rig.path("dev/nvme");
    let state = rig.dir().display().to_string();
    let command = command.replace("/dev/nvme", &real);
    let command = command.replace("/run/strake", &state);
    let bin = Path::new(STRAKE).parent().expect("it is in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("timeout")
        .args(["120", "bash", "-c"])
        .arg(format!("exec 2>&1; umask 077; set -o pipefail; {command}"))
        .env("STRAKE_DIR", &state)
        .env("PATH", format!("{}:{path}", bin.display()))
        .current_dir(rig.folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("bash runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let text = text
        .replace(&real, "/dev/nvme")
        .replace(&state, "/run/strake");
    (output.status.code().unwrap_or(-1), text)
}

#[test]
fn every_page_of_the_guides_is_run() {
    let mut found = vec!["getting-started.md".to_owned()];
    for entry in fs::read_dir(docs().join("how-to")).expect("the folder is there") {
        let name = entry.expect("works").file_name();
        found.push(format!("how-to/{}", name.to_string_lossy()));
    }
    found.retain(|page| page != "how-to/README.md");
    found.sort();
    let mut run: Vec<String> = PAGES.iter().map(|&page| page.to_owned()).collect();
    run.sort();
    assert_eq!(found, run, "each page needs a line in guides!");
}

#[test]
fn the_commands_that_need_another_machine_are_listed_and_few() {
    let mut count = [0; 2];
    for page in PAGES {
        for shown in commands(page, &text_of(page)) {
            match shown.how {
                How::Run => count[0] += 1,
                How::Hidden => {}
                How::Elsewhere => {
                    println!("NOT RUN: docs/{page}:{}: {}", shown.line, shown.command);
                    count[1] += 1;
                }
            }
        }
    }
    println!("{} commands are run, {} are not", count[0], count[1]);
    assert!(count[1] <= NOT_RUN_MAX, "{} are not run", count[1]);
}

#[test]
fn a_page_about_a_symptom_begins_with_three_commands() {
    let symptoms = PAGES.iter().filter(|page| page.contains("/it-"));
    for page in symptoms {
        let text = text_of(page);
        let above = text.split("\n## ").next().unwrap_or_default();
        let seen = commands(page, above);
        let seen = seen.iter().filter(|shown| shown.how != How::Hidden);
        assert_eq!(seen.count(), 3, "docs/{page}, above its first section");
    }
}

#[test]
fn a_line_fits_where_dots_stand_for_what_varies() {
    assert!(fits("a  b", "a b"));
    assert!(fits("uuid …, epoch …", "  uuid   1-2, epoch 3"));
    assert!(fits("… started data", "2026 started data"));
    assert!(!fits("started data", "2026 started data"));
    assert!(!fits("a … b", "a b c"));
    assert!(!fits("a", "ab"));
    let page = ["a".to_owned(), "…".to_owned(), "c".to_owned()];
    assert_eq!(missing(&page, "a\nb\nc\n"), None);
    assert_eq!(missing(&page, "c\na\n"), Some("c"), "the order counts");
}

#[test]
fn a_page_is_read_block_by_block() {
    let page = "text\n<!-- rig\ntruncate x\n-->\n\
                ```console exit=5\n# strake show \\\n  data\nout\n```\n\
                ```ini\n# a comment\n```\n```console vm\n$ mount x\n```\n";
    let read = commands("x.md", page);
    let said: Vec<(&str, i32, How)> = read
        .iter()
        .map(|s| (s.command.as_str(), s.exit[0], s.how))
        .collect();
    let expected = [
        ("truncate x", 0, How::Hidden),
        ("strake show data", 5, How::Run),
        ("mount x", 0, How::Elsewhere),
    ];
    assert_eq!(said, expected);
    assert_eq!(read[1].output, ["out"]);
}
