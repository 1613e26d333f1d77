//! The rules that neither the compiler nor clippy can hold, checked over every file that git
//! tracks.
//!
//! A finding is an error or a warning; each says where, what and what to do. The soft limits (lines
//! of a function, columns, prose) warn; everything else fails. New, not yet added files are looked
//! at too, so that a finding comes before the commit and not after it.

mod arrows;
mod graph;
mod paths;
mod prose;
mod rooms;
mod rules;
mod source;

use crate::host;
use crate::outcome::{Counts, Outcome};
use anyhow::Result;
use std::fmt;
use std::process::ExitCode;

/// How much a finding weighs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weight {
    /// Fails the check.
    Error,
    /// Is told, and that is all.
    Warning,
}

/// One thing that is not as it should be.
struct Finding {
    weight: Weight,
    path: String,
    /// Counted from 1; 0 where the finding is about the whole file.
    line: usize,
    /// What was found; what to do.
    text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.weight == Weight::Error {
            ""
        } else {
            "warning: "
        };
        let line = self.line.max(1);
        write!(f, "{word}{}:{line}: {}", self.path, self.text)
    }
}

/// The paths of all files of the project, tracked or about to be.
fn files() -> Result<Vec<String>> {
    let argv = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let listed = host::output(&argv)?;
    let mut paths: Vec<String> = listed.lines().map(str::to_owned).collect();
    paths.retain(|path| host::root().join(path).is_file());
    paths.sort();
    paths.dedup();
    Ok(paths)
}

/// Everything that every rule finds, in the order of the paths.
fn findings() -> Result<Vec<Finding>> {
    let paths = files()?;
    let mut findings = arrows::check(&host::metadata()?);
    findings.extend(rules::whole_tree(&paths));
    let read = |path: &str| std::fs::read_to_string(host::root().join(path)).ok();
    findings.extend(rooms::check(&paths, read));
    findings.extend(graph::check(&paths, read));
    findings.extend(prose::functions(&paths, read));
    for path in &paths {
        let Ok(text) = std::fs::read_to_string(host::root().join(path)) else {
            continue; // not text: a golden image
        };
        findings.extend(rules::any_text(path, &text));
        findings.extend(prose::check(path, &text));
        if path.ends_with(".rs") {
            findings.extend(rules::rust(path, &text));
        }
    }
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    Ok(findings)
}

fn errors(findings: &[Finding]) -> usize {
    findings
        .iter()
        .filter(|finding| finding.weight == Weight::Error)
        .count()
}

/// Prints how many files of each owner type call each other in a circle.
pub(crate) fn graphs() -> Result<ExitCode> {
    let paths = files()?;
    let read = |path: &str| std::fs::read_to_string(host::root().join(path)).ok();
    for owner in &graph::OWNERS {
        println!("{}", graph::of_tree(owner, &paths, read).report(owner));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn run() -> Result<ExitCode> {
    let findings = findings()?;
    for finding in &findings {
        println!("{finding}");
    }
    let errors = errors(&findings);
    println!(
        "tidy: {errors} errors, {} warnings",
        findings.len() - errors
    );
    Ok(if errors == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The same as a step of the whole run.
pub(crate) fn step() -> Result<Outcome> {
    let findings = findings()?;
    let failed = errors(&findings) > 0;
    Ok(Outcome {
        counts: Counts {
            passed: u64::from(!failed),
            failed: u64::from(failed),
            skipped: 0,
        },
        notes: findings.iter().map(Finding::to_string).collect(),
    })
}
