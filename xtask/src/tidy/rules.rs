//! The rules over the text of files. Each rule is one function and says what to do instead.

use super::prose::is_open;
use super::source::{Source, grouped_std, has_word};
use super::{Finding, Weight};

/// Files that may have more than [`LINES`] lines, each with its reason. Empty, and meant to stay
/// so.
const LONG_FILES: &[(&str, &str)] = &[];

const LINES: usize = 1000;
const FUNCTION_LINES: usize = 70;
const COLUMNS: usize = 100;

/// What every checkout must have.
const REQUIRED: &[&str] = &[
    "README.md",
    "CHANGELOG.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
    "rust-toolchain.toml",
];

/// The only folders in which `unsafe` may stand.
const UNSAFE_ROOMS: &[&str] = &[
    "crates/parity/src/x86/",
    "crates/parity/src/aarch64/",
    "crates/parity/benches/kernels/isal.rs",
    "crates/runtime/src/",
];

/// The crates that do no I/O, and what they may not name.
const SANS_IO: &[&str] = &["crates/engine/src/", "crates/format/src/"];
const FORBIDDEN_STD: &[&str] = &["time", "thread", "fs", "net", "io", "env", "process", "os"];
const FORBIDDEN_WORDS: &[(&str, &str)] = &[
    ("rand", "chance is the caller's: take it as an argument"),
    (
        "HashMap",
        "its order changes from run to run: use BTreeMap or a Vec",
    ),
    (
        "HashSet",
        "its order changes from run to run: use BTreeSet or a Vec",
    ),
    (
        "RandomState",
        "it seeds itself from the system: use an ordered collection",
    ),
    ("Instant", "time is an argument: take it from the caller"),
    ("SystemTime", "time is an argument: take it from the caller"),
    ("println!", "the crate does no I/O: return an event"),
    ("eprintln!", "the crate does no I/O: return an event"),
];

fn error(path: &str, line: usize, text: impl Into<String>) -> Finding {
    Finding {
        weight: Weight::Error,
        path: path.to_owned(),
        line,
        text: text.into(),
    }
}

fn warning(path: &str, line: usize, text: impl Into<String>) -> Finding {
    Finding {
        weight: Weight::Warning,
        path: path.to_owned(),
        line,
        text: text.into(),
    }
}

/// What must exist, and what the engine must say of itself.
pub(super) fn whole_tree(paths: &[String]) -> Vec<Finding> {
    let missing = REQUIRED
        .iter()
        .filter(|name| !paths.iter().any(|path| path == *name));
    let mut findings: Vec<Finding> = missing
        .map(|name| error(name, 0, "does not exist; write it"))
        .collect();
    for krate in ["engine", "format"] {
        let path = format!("crates/{krate}/src/lib.rs");
        let text = std::fs::read_to_string(crate::host::root().join(&path)).unwrap_or_default();
        if !text.contains("#![forbid(unsafe_code)]") {
            findings.push(error(&path, 1, "lacks #![forbid(unsafe_code)]; add it"));
        }
    }
    findings
}

/// Paths of one machine and hosts of package registries have no business in a file of the project.
/// The lock file names its registry by cargo's own rule.
pub(super) fn any_text(path: &str, text: &str) -> Vec<Finding> {
    if path.ends_with("Cargo.lock") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if let Some(folder) = machine_path(line) {
            let what = format!("names {folder} of one machine; use a relative path");
            findings.push(error(path, at + 1, what));
        }
        if let Some(host) = registry_host(line) {
            let what = format!("names the registry host {host}; use the package's name alone");
            findings.push(error(path, at + 1, what));
        }
    }
    findings
}

/// The folders are written in two parts, so that this file passes its own rule.
fn machine_path(line: &str) -> Option<&'static str> {
    const FOLDERS: [&str; 3] = [
        concat!("/wo", "rk/"),
        concat!("/fa", "rm/"),
        concat!("/ro", "ot/"),
    ];
    // `a/work/b` is a relative path; only an absolute one names a machine.
    let absolute = |at: usize| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !(c.is_alphanumeric() || "_-.}$~*/>".contains(c)))
    };
    FOLDERS
        .into_iter()
        .find(|folder| line.match_indices(folder).any(|(at, _)| absolute(at)))
}

fn registry_host(line: &str) -> Option<&'static str> {
    const HOSTS: [&str; 9] = [
        concat!("index.", "crates.io"),
        concat!("static.", "crates.io"),
        concat!("deb.", "debian.org"),
        concat!("security.", "debian.org"),
        concat!("snapshot.", "debian.org"),
        concat!("pypi", ".org"),
        concat!("files.", "pythonhosted.org"),
        concat!("proxy.", "golang.org"),
        concat!("registry.", "npmjs.org"),
    ];
    HOSTS.into_iter().find(|host| line.contains(host))
}

/// All rules over one Rust file.
pub(super) fn rust(path: &str, text: &str) -> Vec<Finding> {
    let source = Source::read(text);
    let mut findings = Vec::new();
    findings.extend(header(path, text));
    findings.extend(sizes(path, text, &source));
    findings.extend(words(path, &source));
    if SANS_IO.iter().any(|room| path.starts_with(room)) {
        findings.extend(sans_io(path, &source));
    }
    findings
}

/// Every file says first what it is.
fn header(path: &str, text: &str) -> Option<Finding> {
    let first = text
        .lines()
        .find(|line| !line.trim().is_empty() && !line.starts_with("#!"));
    let has = first.is_some_and(|line| line.starts_with("//!"));
    (!has).then(|| {
        error(
            path,
            1,
            "has no //! header; say what the file is and what it holds true",
        )
    })
}

fn sizes(path: &str, text: &str, source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = text.lines().count();
    if lines > LINES && !LONG_FILES.iter().any(|(file, _)| *file == path) {
        let what = format!("{lines} lines, more than {LINES}; give a part of it a room of its own");
        findings.push(error(path, 1, what));
    }
    for (name, first, last) in &source.functions {
        let length = last - first + 1;
        if length > FUNCTION_LINES {
            let what = format!("fn {name}: {length} lines, more than {FUNCTION_LINES}; split it");
            findings.push(warning(path, first + 1, what));
        }
    }
    let columns = |line: &str| line.chars().count();
    let wide: Vec<usize> = text
        .lines()
        .enumerate()
        .filter(|(_, line)| columns(line) > COLUMNS && !is_row(line))
        .map(|(at, _)| at + 1)
        .collect();
    if let Some(&first) = wide.first() {
        let what = format!(
            "{} lines wider than {COLUMNS} columns; break them",
            wide.len()
        );
        findings.push(match is_open(path) {
            true => warning(path, first, what),
            false => error(path, first, what),
        });
    }
    findings
}

/// A row of a table in a comment, which cannot be broken.
fn is_row(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") && line.trim_start_matches(['/', '!', ' ']).starts_with('|')
}

/// Words that may not stand in code.
fn words(path: &str, source: &Source) -> Vec<Finding> {
    let unsafe_allowed = UNSAFE_ROOMS.iter().any(|room| path.starts_with(room));
    let all_test = is_test_path(path);
    let mut findings = Vec::new();
    for (at, code) in source.code.iter().enumerate() {
        let mut found = |text: &str| findings.push(error(path, at + 1, text));
        if !unsafe_allowed && has_word(code, "unsafe") && !code.contains("unsafe_") {
            found("unsafe outside its rooms; move it to parity's ISA folders or to runtime");
        }
        if !(all_test || source.test[at]) && code.contains(".unwrap()") {
            found("unwrap(); use expect(\"the invariant\") or return the error");
        }
        for name in ["todo!", "unimplemented!", "dbg!"] {
            if has_word(code, name) {
                found(&format!("{name} left in; write the code or remove it"));
            }
        }
        if code.contains("#[allow(") || code.contains("#![allow(") {
            found("allow attribute; use #[expect(lint, reason = \"…\")]");
        }
    }
    findings
}

/// Whether the whole file is a test, a benchmark or an example.
fn is_test_path(path: &str) -> bool {
    ["/tests/", "/benches/", "/examples/"]
        .iter()
        .any(|folder| path.contains(folder))
        || path.ends_with("/tests.rs")
}

/// The crates that are data in, data out may not touch the world; their tests may.
fn sans_io(path: &str, source: &Source) -> Vec<Finding> {
    if is_test_path(path) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut found = |at: usize, what: String| {
        if !source.test[at] {
            findings.push(error(path, at + 1, what));
        }
    };
    for (at, code) in source.code.iter().enumerate() {
        for module in FORBIDDEN_STD {
            let name = format!("std::{module}");
            if has_word(code, &name) {
                found(
                    at,
                    format!("{name} in a crate that does no I/O; make it the caller's"),
                );
            }
        }
        for (word, instead) in FORBIDDEN_WORDS {
            let used = has_word(code, word);
            if used && (*word != "rand" || code.contains("rand::") || code.contains("use rand")) {
                found(at, format!("{word}: {instead}"));
            }
        }
    }
    for (at, word) in grouped_std(&source.code) {
        if FORBIDDEN_STD.contains(&word.as_str()) {
            found(
                at,
                format!("std::{word} in a crate that does no I/O; make it the caller's"),
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(findings: &[Finding]) -> String {
        findings
            .iter()
            .map(|finding| format!("{finding}\n"))
            .collect()
    }

    #[test]
    fn unsafe_is_found_outside_its_rooms_only() {
        let text = "//! A file.\nfn a() { unsafe { b() } }\n";
        assert_eq!(rust("crates/runtime/src/ring.rs", text).len(), 0);
        assert_eq!(rust("crates/parity/src/x86/avx2.rs", text).len(), 0);
        let found = texts(&rust("crates/parity/src/ops.rs", text));
        assert!(
            found.starts_with("crates/parity/src/ops.rs:2: unsafe outside"),
            "{found}"
        );
        let forbids = "//! A file.\n#![forbid(unsafe_code)]\n";
        assert_eq!(rust("crates/engine/src/lib.rs", forbids).len(), 0);
    }

    #[test]
    fn the_engine_may_not_look_at_the_clock_but_its_tests_may() {
        let code = "//! A file.\nuse std::time::Instant;\n";
        assert_eq!(rust("crates/engine/src/read.rs", code).len(), 2);
        assert_eq!(rust("crates/runtime/src/clock.rs", code).len(), 0);
        let test = "//! A file.\n#[cfg(test)]\nmod tests {\n    use std::time::Instant;\n}\n";
        assert_eq!(rust("crates/engine/src/read.rs", test).len(), 0);
        let grouped = "//! A file.\nuse std::{fmt, fs};\n";
        assert_eq!(rust("crates/format/src/log.rs", grouped).len(), 1);
    }

    #[test]
    fn words_that_promise_work_later_are_refused() {
        let text =
            "//! A file.\nfn a() { todo!() }\nfn b() { c().unwrap() }\n#[allow(dead_code)]\n";
        assert_eq!(rust("crates/sim/src/a.rs", text).len(), 3);
        assert_eq!(rust("crates/sim/tests/a.rs", text).len(), 2);
    }

    #[test]
    fn a_file_without_a_header_is_found() {
        assert_eq!(rust("crates/sim/src/a.rs", "fn a() {}\n").len(), 1);
        assert_eq!(
            rust(
                "crates/sim/src/a.rs",
                "#!/bin/x\n\n//! A file.\nfn a() {}\n"
            )
            .len(),
            0
        );
    }

    #[test]
    fn a_path_of_one_machine_is_told_from_a_relative_one() {
        assert!(machine_path(concat!("cd /wo", "rk/main")).is_some());
        assert!(machine_path(concat!("\"/ro", "ot/x\"")).is_some());
        assert!(machine_path(concat!("target/wo", "rk/main")).is_none());
        assert!(registry_host(concat!("see pypi", ".org")).is_some());
        assert!(registry_host("crates").is_none());
    }

    #[test]
    fn the_long_list_gives_reasons() {
        assert!(LONG_FILES.iter().all(|(_, reason)| !reason.is_empty()));
    }
}
