//! Prose: lines and paragraphs of Markdown that are too long, and words for persons used of things.
//!
//! Invariants: one finding for each rule and file, at the first place. It is an error, but for the
//! places in [`OPEN`].
//! Not looked at: rows of tables, which cannot be broken; records of benchmarks, which programs
//! write; paragraphs in code and in comments, and of pages that are made from the code (their first
//! line says so).
//!
//! A function that the way of a write names and no crate has is an error, too.

use super::{Finding, Weight};

/// The page that follows one write, function by function: `name()`.
const LIFE: &str = "docs/explanation/life-of-a-write.md";
const COLUMNS: usize = 100;
const PARAGRAPH_LINES: usize = 6;
/// A part of the program, a drive or a request is `which` or `that`.
const WORDS: &[&str] = &["who", "whoever", "whom", "whose"];
/// Folders and files that still have findings: these are warnings until the last one is gone.
const OPEN: &[&str] = &[
    "crates/strake/src/daemon/service/ending.rs",
    "crates/strake/src/daemon/state/",
];
/// The first line of a page that is made from the code begins so.
const MADE: &str = "<!-- Made from the code";

pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    if path.starts_with("benchmarks/record/") {
        return Vec::new();
    }
    if path.ends_with(".md") {
        let mut findings = Vec::new();
        let wide = places(text.lines(), |line| {
            line.chars().count() > COLUMNS && !is_row(line)
        });
        let what = format!("lines wider than {COLUMNS} columns; break them");
        findings.extend(finding(path, &wide, &what));
        if !text.starts_with(MADE) {
            let what = format!("paragraphs of more than {PARAGRAPH_LINES} lines; split them");
            findings.extend(finding(path, &long_paragraphs(text), &what));
        }
        if path.starts_with("docs/") {
            findings.extend(persons(path, text.lines()));
        }
        return findings;
    }
    if path.ends_with(".rs") && path.contains("src/") {
        let comment = |line: &str| line.trim_start().starts_with("//");
        let lines = text.lines();
        let comments = lines.map(|line| if comment(line) { line } else { "" });
        return persons(path, comments).into_iter().collect();
    }
    Vec::new()
}

/// Functions that the page names and no source under crates/ has.
pub(super) fn functions(paths: &[String], read: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let Some(page) = read(LIFE) else {
        return Vec::new();
    };
    let mut missing: Vec<(usize, &str)> = page
        .lines()
        .enumerate()
        .flat_map(|(at, line)| named(line).map(move |name| (at + 1, name)))
        .collect();
    let sources = paths
        .iter()
        .filter(|path| path.starts_with("crates/") && path.ends_with(".rs"));
    for text in sources.filter_map(|path| read(path)) {
        missing.retain(|(_, name)| {
            let function = format!("fn {name}");
            let mut after = text.split(&function).skip(1);
            !after.any(|rest| rest.starts_with(['(', '<']))
        });
    }
    missing
        .into_iter()
        .map(|(line, name)| Finding {
            weight: Weight::Error,
            path: LIFE.to_owned(),
            line,
            text: format!("no crate has fn {name}; write where the write goes now"),
        })
        .collect()
}

/// What stands as `name()` in a line.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans.filter_map(|span| span.strip_suffix("()"))
}

/// Numbers of the lines for which it holds, from 1 on.
fn places<'a>(
    lines: impl Iterator<Item = &'a str>,
    mut holds: impl FnMut(&str) -> bool,
) -> Vec<usize> {
    let numbered = lines.enumerate();
    numbered
        .filter(|(_, line)| holds(line))
        .map(|(at, _)| at + 1)
        .collect()
}

/// Whether a rule of prose is only a warning there.
pub(super) fn is_open(path: &str) -> bool {
    OPEN.iter().any(|folder| path.starts_with(folder))
}

fn finding(path: &str, places: &[usize], what: &str) -> Option<Finding> {
    let &line = places.first()?;
    let weight = match is_open(path) {
        true => Weight::Warning,
        false => Weight::Error,
    };
    Some(Finding {
        weight,
        path: path.to_owned(),
        line,
        text: format!("{} {what}", places.len()),
    })
}

fn persons<'a>(path: &str, lines: impl Iterator<Item = &'a str>) -> Option<Finding> {
    let found = places(lines, |line| {
        let mut words = line.split(|c: char| !c.is_alphanumeric());
        words.any(|word| WORDS.contains(&word.to_lowercase().as_str()))
    });
    let what = "lines with who, whom or whose; name the thing: which, that, the shard, the member";
    finding(path, &found, what)
}

fn is_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// Lines with which a paragraph, or an item of a list, of too many lines begins.
fn long_paragraphs(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let (mut begin, mut lines, mut code) = (0, 0, false);
    // A blank line behind the last one ends the last paragraph.
    for (at, line) in text.lines().chain([""]).enumerate() {
        let line = line.trim();
        let fence = line.starts_with("```") || line.starts_with("<!--") || line == "-->";
        code ^= fence && !line.ends_with(" -->");
        let ends = line.is_empty() || code || fence || is_row(line) || line.starts_with('#');
        if ends || begins_item(line) {
            if lines > PARAGRAPH_LINES {
                found.push(begin + 1);
            }
            (begin, lines) = (at, 0);
        }
        if !ends {
            lines += 1;
        }
        if lines == 1 {
            begin = at;
        }
    }
    found
}

fn begins_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with("* ")
        || line.starts_with("- ")
        || (number.len() < line.len() && number.starts_with(". "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> Vec<String> {
        let findings = check(path, text);
        findings.iter().map(|f| format!("{f}")).collect()
    }

    #[test]
    fn a_long_line_is_found_unless_it_is_a_row_of_a_table() {
        let long = "x".repeat(101);
        let found = said("docs/a.md", &format!("short\n{long}\n| {long} |\n"));
        assert_eq!(
            found,
            ["docs/a.md:2: 1 lines wider than 100 columns; break them"]
        );
    }

    #[test]
    fn a_paragraph_ends_at_a_blank_line_and_at_the_next_item() {
        let six = "line\n".repeat(6);
        assert!(said("docs/a.md", &format!("{six}\n{six}* {six}1. {six}# {six}")).is_empty());
        let found = said("docs/a.md", &format!("{six}\n{six}seven\n"));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("docs/a.md:8: "), "{found:?}");
        assert!(said("docs/a.md", &format!("```\n{six}{six}```\n")).is_empty());
        assert!(said("docs/a.md", &format!("<!-- rig\n{six}{six}-->\n{six}")).is_empty());
    }

    #[test]
    fn the_way_of_a_write_names_functions_that_there_are() {
        let source = "crates/engine/src/a.rs";
        let read = |path: &str| {
            let text = match path {
                LIFE => "1. `begin()` and `go_on()`.\n2. `finish()` of `Shard`.\n",
                _ => "fn begin() {}\nfn finishing() {}\nfn go_on<T>(t: T) {}\n",
            };
            Some(text.to_owned())
        };
        let found = functions(&[source.to_owned()], read);
        let found: Vec<String> = found.iter().map(|f| format!("{f}")).collect();
        let what = "no crate has fn finish; write where the write goes now";
        assert_eq!(found, [format!("{LIFE}:2: {what}")]);
    }

    #[test]
    fn who_is_found_in_documents_and_comments_and_not_in_code() {
        assert_eq!(said("docs/a.md", "the shard whose turn it is\n").len(), 1);
        assert_eq!(said("crates/engine/src/a.rs", "/// Who waits.\n").len(), 1);
        assert_eq!(said("crates/engine/src/a.rs", "fn who() {}\n").len(), 0);
        assert_eq!(said("docs/a.md", "the whole of it\n").len(), 0);
    }

    #[test]
    fn a_finding_is_an_error_but_for_the_places_that_still_have_some() {
        let open = said("crates/strake/src/daemon/state/mod.rs", "/// Who waits.\n");
        assert!(open[0].starts_with("warning: "), "{open:?}");
        let closed = said("crates/engine/src/shard/mod.rs", "/// Who waits.\n");
        assert!(closed[0].starts_with("crates/"), "{closed:?}");
    }
}
