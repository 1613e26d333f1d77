//! What every room may use: errors, kinds of events, files, sizes, times, the log, the process,
//! places of connections, what uses a device, what was done to some devices and not to others.
//!
//! Invariant: a leaf; it knows no array, no daemon and no command.

pub(crate) mod errors;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod log;
pub(crate) mod partly;
pub(crate) mod places;
pub(crate) mod process;
pub(crate) mod size;
pub(crate) mod time;
pub(crate) mod uses;

use std::path::{Path, PathBuf};

/// Text from outside as a terminal may have it: control characters are shown as Rust writes them.
pub(crate) fn shown(text: &str, keep: char) -> String {
    let each = |c: char| match c.is_control() && c != keep {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(each).collect()
}

/// A path as a shell needs it in a command.
pub(crate) fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    match shlex::try_quote(&path) {
        Ok(quoted) => quoted.into_owned(),
        Err(_) => path,
    }
}

/// The same of many, one after the other.
pub(crate) fn all_quoted(paths: &[PathBuf]) -> String {
    let all: Vec<String> = paths.iter().map(|path| quoted(path)).collect();
    all.join(" ")
}

/// A path from the root, as the daemon needs it, which works elsewhere.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The same of many.
pub(crate) fn absolutes(paths: &[PathBuf]) -> Vec<PathBuf> {
    paths.iter().map(|p| absolute(p)).collect()
}
