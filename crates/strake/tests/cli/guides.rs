//! Every command of README.md and of the pages of docs/, in order, against a daemon of its own: one
//! test for each page.
//!
//! A page is a story in blocks:
//!
//! * Lines of a block marked `console` that begin with `$ ` or `# ` are commands; the lines below a
//!   command are its output. `…` stands for what varies: within a line for any text, alone for any
//!   lines. Runs of blanks count as one. Each other line of the page must come, in this order.
//! * Each line of a block marked `sh` is a command; its output is not shown.
//! * `console exit=5`: each command of the block ends with 5; `exit=0|5`: with one of these.
//! * A block marked `ini`, `text`, `mermaid` or `toml` holds no command. There are no other blocks.
//! * An HTML comment that begins with `<!-- rig` holds commands that a reader does not see: they
//!   make the drives, pull them and put them back. `@another-host` forgets all that the daemon
//!   knew.
//! * `strake daemon &` starts the daemon of the test; a page without it has one from the beginning.
//!
//! `/dev/nvme…` stands for files in the folder of the test, `/run/strake` for its STRAKE_DIR.
//!
//! Invariants: a command of a page is run, or stands in [`NOT_RUN`] with the reason; the unit of
//! the package is one that systemd takes, a configuration one that the daemon takes. Deliberately
//! absent: pages that are made from the code, which the tests of the library compare with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::rig::{Rig, STRAKE, has, skipped};

const UBLK: &str = "needs a block device of ublk; machines of cargo xtask vm have it";
const MD: &str = "needs a kernel with md; the scenario md-study of cargo xtask vm does it";
const LIGHT: &str = "needs a drive with a light";
const SYSTEMD: &str = "needs systemd as the first process; the unit of the package is verified";
const INSTALLS: &str =
    "changes what is installed on the machine; cargo xtask test installs it in a copy of the root";
const ROOT: &str = "changes what a machine boots from; scenarios of cargo xtask vm do it";
const BUILDS: &str = "builds by cargo, which runs this test";

/// Commands that no test runs, and why. One that ends with a blank stands for all that begin so.
const NOT_RUN: &[(&str, &str)] = &[
    ("cargo xtask ", BUILDS),
    ("npm --prefix console test", BUILDS),
    (
        "curl --unix-socket /run/strake/api.sock http://strake/openapi.json | node ",
        "writes a file of the source",
    ),
    ("cargo run --release -- demo", BUILDS),
    ("cargo build --release -p strake", BUILDS),
    (
        "install target/release/strake /usr/local/bin/",
        "changes what is installed on the machine",
    ),
    ("apt install ", INSTALLS),
    ("systemctl status strake", SYSTEMD),
    ("systemctl daemon-reload && mount /srv/data", SYSTEMD),
    (
        "echo \"UUID=$(blkid -s UUID -o value /dev/strake/data) /srv/data xfs defaults 0 0\" \
         >>/etc/fstab",
        "changes what the machine mounts",
    ),
    ("mkfs.xfs /dev/strake/data", UBLK),
    ("mkdir /srv/data && mount /dev/strake/data /srv/data", UBLK),
    ("umount /srv/data", UBLK),
    ("xfs_growfs /srv/data", UBLK),
    ("resize2fs /dev/strake/data", UBLK),
    (
        "modprobe nbd && nbd-client -unix /run/strake/nbd/data.sock /dev/nbd0",
        "needs a module of the kernel",
    ),
    (
        "mkfs.xfs /dev/nbd0 && mount /dev/nbd0 /srv/data",
        "needs a module of the kernel",
    ),
    (
        "strake create root --level 1 /dev/nvme0n1p2 /dev/nvme1n1p2",
        ROOT,
    ),
    ("mkfs.ext4 /dev/strake/root", ROOT),
    ("mount /dev/strake/root /mnt", ROOT),
    ("cp -ax / /mnt", ROOT),
    ("mount /dev/nvme0n1p1 /mnt/boot", ROOT),
    ("for folder in dev proc sys run; do ", ROOT),
    ("chroot /mnt ", ROOT),
    ("lsinitramfs ", ROOT),
    (
        "strake console",
        "serves until it is interrupted; tests of the command and of the page run it",
    ),
    (
        "strake study run ./mine.toml --engine md --out studies-md ",
        MD,
    ),
    ("strake study compare studies/mine studies-md/mine", MD),
    ("strake locate data 1 on", LIGHT),
    ("strake drive locate /dev/nvme1n1 on", LIGHT),
];
/// Starts the daemon of the test.
const DAEMON: &str = "strake daemon &";
/// Blocks without commands.
const OTHER_BLOCKS: &[&str] = &["ini", "text", "mermaid", "toml"];
/// How a page begins that is made from the code.
const MADE: &str = "<!-- Made from the code";
/// So long a command that only reads may take to show what its page shows.
const PATIENCE: Duration = Duration::from_secs(120);
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
const PROGRAMS: &[&str] = &["nbdinfo", "nbdcopy", "curl", "jq", "fio"];

macro_rules! guides {
    ($($test:ident, $page:literal;)*) => {
        const PAGES: &[&str] = &[$($page,)*];
        $(#[test] fn $test() { follow($page); })*
    };
}

guides! {
    an_array_is_used_as_the_readme_says, "README.md";
    superblocks_come_back_as_operations_say, "docs/operations.md";
    getting_started_ends_with_an_array_that_serves, "docs/getting-started.md";
    a_drive_is_replaced_as_the_guide_says, "docs/how-to/replace-a-drive.md";
    a_degraded_array_is_mended_as_the_guide_says, "docs/how-to/it-is-degraded.md";
    a_failed_array_comes_back_as_the_guide_says, "docs/how-to/it-is-failed.md";
    an_array_that_does_not_start_is_started_as_the_guide_says, "docs/how-to/it-does-not-start.md";
    drives_are_added_as_the_guide_says, "docs/how-to/add-drives.md";
    the_level_is_changed_as_the_guide_says, "docs/how-to/change-the-level.md";
    an_array_is_planned_as_the_guide_says, "docs/how-to/plan.md";
    an_array_is_tuned_as_the_guide_says, "docs/how-to/tune.md";
    an_array_is_monitored_as_the_guide_says, "docs/how-to/monitor.md";
    alerts_are_set_up_as_the_guide_says, "docs/how-to/alerts.md";
    the_configuration_is_backed_up_as_the_guide_says, "docs/how-to/back-up.md";
    drives_move_to_another_host_as_the_guide_says, "docs/how-to/move-to-another-host.md";
    a_missing_array_is_found_as_the_guide_says, "docs/how-to/it-is-missing.md";
    drives_are_measured_as_the_guide_says, "docs/how-to/study.md";
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
}

impl Shown {
    /// The command without the remark behind it.
    fn bare(&self) -> &str {
        let bare = self.command.split(" # ").next();
        bare.unwrap_or_default().trim_end()
    }
    /// Why no test runs it, if none does.
    fn not_run(&self) -> Option<&'static str> {
        let mut listed = NOT_RUN.iter();
        let listed = listed.find(|(not_run, _)| covers(not_run, self.bare()));
        listed.filter(|_| self.how == How::Run).map(|(_, why)| *why)
    }
}

/// Whether an entry of [`NOT_RUN`] is about a command.
fn covers(not_run: &str, command: &str) -> bool {
    match not_run.ends_with(' ') {
        true => command.starts_with(not_run),
        false => command == not_run,
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text_of(page: &str) -> String {
    fs::read_to_string(repository().join(page)).unwrap_or_else(|e| panic!("{page}: {e}"))
}

/// README.md and all pages below docs/ that are written by hand.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(repository().join(&folder)).expect("the folder is there") {
            let entry = entry.expect("works");
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type().expect("works").is_dir() {
                folders.push(path);
            } else if path.ends_with(".md") && !text_of(&path).starts_with(MADE) {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The commands of a page.
fn commands(page: &str, text: &str) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let mut block: Option<Block> = None;
    let mut other = false;
    for (at, line) in text.lines().enumerate() {
        let place = format!("{page}:{}", at + 1);
        if line == "<!-- rig" {
            block = Some(Block::new(How::Hidden, ""));
        } else if line == "-->" && block.as_ref().is_some_and(|b| b.how == How::Hidden) {
            block = None;
        } else if let Some(info) = line.trim_start().strip_prefix("```") {
            match (block.is_some(), other) {
                (true, _) => block = None,
                (_, true) => other = false,
                _ => {
                    block = kind_of(info, &place);
                    other = block.is_none();
                }
            }
        } else if let Some(block) = &block {
            let prompt = block.prompts.iter().find_map(|p| line.strip_prefix(p));
            match (prompt, all.last_mut()) {
                (_, Some(last)) if last.command.ends_with('\\') => {
                    last.command.pop();
                    last.command.push_str(line.trim_start());
                }
                (Some(command), _) => all.push(block.command(at + 1, command)),
                (None, Some(last)) => last.output.push(line.to_owned()),
                (None, None) => panic!("{place}: output without a command"),
            }
        } else if other {
            let begins = ["$ ", "# strake", "strake ", "cargo "];
            let command = begins.iter().any(|text| line.starts_with(text));
            assert!(!command, "{place}: a command in a block that is not run");
        }
    }
    assert!(block.is_none() && !other, "{page}: a block has no end");
    all
}

/// What holds for the commands of a block.
struct Block {
    how: How,
    /// What a line with a command begins with.
    prompts: &'static [&'static str],
    exit: Vec<i32>,
}

impl Block {
    fn new(how: How, prompt: &str) -> Block {
        let prompts: &[&str] = match prompt {
            "" => &[""],
            _ => &["$ ", "# "],
        };
        let exit = vec![0];
        Block { how, prompts, exit }
    }
    fn command(&self, line: usize, command: &str) -> Shown {
        Shown {
            line,
            command: command.to_owned(),
            output: Vec::new(),
            exit: self.exit.clone(),
            how: self.how,
        }
    }
}

/// What the words behind the fence say; None of a block without commands.
fn kind_of(info: &str, place: &str) -> Option<Block> {
    let mut words = info.split_whitespace();
    let mut block = match words.next() {
        Some("console") => Block::new(How::Run, "$ "),
        Some("sh") => Block::new(How::Run, ""),
        Some(other) if OTHER_BLOCKS.contains(&other) => return None,
        other => panic!(
            "{place}: a block is console, sh, {}, not {other:?}",
            OTHER_BLOCKS.join(", ")
        ),
    };
    for word in words {
        let exit = word.strip_prefix("exit=");
        let exit = exit.unwrap_or_else(|| panic!("{place}: a block knows no '{word}'"));
        let codes = exit.split('|').map(|code| code.parse().expect("a number"));
        block.exit = codes.collect();
    }
    Some(block)
}

/// Runs a page.
fn follow(page: &str) {
    let shown = commands(page, &text_of(page));
    for program in PROGRAMS {
        let used = |s: &Shown| s.not_run().is_none() && s.command.contains(program);
        if shown.iter().any(used) && !has(program) {
            return skipped(&format!("{page}: {program} is not installed"));
        }
    }
    let mut rig = Rig::new();
    fs::create_dir(rig.path("dev")).expect("works");
    if !shown.iter().any(|shown| shown.bare() == DAEMON) {
        start(&mut rig);
    }
    for shown in &shown {
        match (shown.not_run(), shown.bare()) {
            (Some(why), command) => println!("NOT RUN: {page}: {command}: {why}"),
            (None, DAEMON) => start(&mut rig),
            (None, "@another-host") => {
                rig.stop_daemon();
                fs::remove_dir_all(rig.dir()).expect("works");
                start(&mut rig);
            }
            (None, _) => run(&rig, page, shown),
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
            "{page}:{}: {}\n{wrong}\n--- it printed, with exit status {exit}:\n{output}\n{}",
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
fn every_page_with_commands_is_run() {
    let is_run = |shown: &Shown| shown.how == How::Run && shown.not_run().is_none();
    let mut found = pages();
    found.retain(|page| commands(page, &text_of(page)).iter().any(is_run));
    let mut run: Vec<String> = PAGES.iter().map(|&page| page.to_owned()).collect();
    run.sort();
    assert_eq!(
        found, run,
        "each page with a command needs a line in guides!"
    );
}

#[test]
fn the_commands_that_are_not_run_are_listed_with_the_reason_and_nothing_else_is_listed() {
    let mut unused: Vec<&str> = NOT_RUN.iter().map(|(command, _)| *command).collect();
    let mut run = 0;
    for page in pages() {
        for shown in commands(&page, &text_of(&page)) {
            match shown.not_run() {
                Some(why) => {
                    println!("NOT RUN: {page}:{}: {}: {why}", shown.line, shown.bare());
                    unused.retain(|not_run| !covers(not_run, shown.bare()));
                }
                None => run += usize::from(shown.how == How::Run),
            }
        }
    }
    println!("{run} commands are run");
    assert!(unused.is_empty(), "no page has {unused:?} any more");
}

#[test]
fn systemd_takes_the_unit_of_the_package() {
    let unit = text_of("packaging/systemd/strake.service");
    if !has("systemd-analyze") {
        return skipped("systemd-analyze is not installed");
    }
    let folder = tempfile::tempdir().expect("works");
    let verified = |text: &str| {
        let path = folder.path().join("strake.service");
        fs::write(&path, text.replace("/usr/bin/strake", STRAKE)).expect("written");
        let mut verify = Command::new("systemd-analyze");
        let output = verify.args(["verify", "--man=no"]).arg(&path).output();
        let output = output.expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    assert_eq!(verified(&unit), (true, String::new()));
    // It knows a wrong one.
    let (taken, said) = verified(&unit.replace("\nExecStart=", "\nExecStat="));
    assert!(!taken && said.contains("ExecStat"), "{said}");
}

#[test]
fn the_daemon_takes_the_configurations_of_the_documents() {
    let rig = Rig::new();
    let path = rig.path("strake.toml");
    let mut seen = 0;
    for page in pages() {
        let text = text_of(&page);
        for block in text.split("```toml\n").skip(1) {
            let (said, _) = block.split_once("```").expect("the block ends");
            fs::write(&path, said).expect("written");
            let checked = rig.run(&["config", "check", &path]);
            assert_eq!(checked.code, 0, "{page}: {said}{checked:?}");
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
fn a_page_about_a_symptom_begins_with_three_commands() {
    let symptoms = PAGES.iter().filter(|page| page.contains("/it-"));
    for page in symptoms {
        let text = text_of(page);
        let above = text.split("\n## ").next().unwrap_or_default();
        let seen = commands(page, above);
        let seen = seen.iter().filter(|shown| shown.how != How::Hidden);
        assert_eq!(seen.count(), 3, "{page}, above its first section");
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
                ```ini\n# a comment\n```\n\
                ```sh\numount /srv/data  # a remark\nstrake scan\n```\n";
    let read = commands("x.md", page);
    let said: Vec<(&str, i32, How, bool)> = read
        .iter()
        .map(|s| (s.bare(), s.exit[0], s.how, s.not_run().is_some()))
        .collect();
    let expected = [
        ("truncate x", 0, How::Hidden, false),
        ("strake show data", 5, How::Run, false),
        ("umount /srv/data", 0, How::Run, true),
        ("strake scan", 0, How::Run, false),
    ];
    assert_eq!(said, expected);
    assert_eq!(read[1].output, ["out"]);
}

#[test]
#[should_panic(expected = "x.md:2: a block is console, sh, ini, text, mermaid, toml, not None")]
fn a_block_without_a_kind_hides_no_command() {
    commands("x.md", "text\n```\nstrake scan\n```\n");
}

#[test]
#[should_panic(expected = "x.md:2: a command in a block that is not run")]
fn a_block_of_another_kind_hides_no_command() {
    commands("x.md", "```text\nstrake scan\n```\n");
}
