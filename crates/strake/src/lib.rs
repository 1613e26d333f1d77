//! All of `strake` but its entry: the command line, the daemon, its HTTP/JSON API, the demo.
//!
//! Order: arguments → `commands::run` → exit status. Every error goes to standard error as one line
//! (`error[code]: found; cure`, or the same three fields in JSON).
//!
//! **Architecture invariant:** the only serde types and the only async runtime of what is shipped
//! are in this crate; the data path is the runtime's, decisions about an array are the engine's.
//!
//! Deliberately absent: an interface for other programs. What is public here is the program itself,
//! and what fuzzing needs of it.

/// Writes a line to standard error. A reader that has gone away, or a terminal, does not want it.
macro_rules! tell {
    ($($line:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($line)*);
    }};
}

mod api;
mod cli;
mod commands;
mod common;
mod config;
mod daemon;
mod demo;
mod drives;
mod http;
#[cfg(test)]
mod reference;
mod serve;
mod settings;
mod view;

pub use http::routes::without_changes as api_without_changes;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::common::errors::{Code, Failure, tell_failure};

/// The program.
pub fn main() -> ExitCode {
    cli::complete::answer_shell();
    let cli = match cli::args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let json = cli.json;
    let result = commands::run(cli);
    common::log::flush();
    match (result, cli::unwritten()) {
        (Ok(status), None) => ExitCode::from(status),
        (Err(failure), _) | (Ok(_), Some(failure)) => say(&failure, json),
    }
}

/// Prints an error.
fn say(failure: &Failure, json: bool) -> ExitCode {
    tell_failure(failure, json);
    ExitCode::from(failure.code.exit() as u8)
}

/// What clap did not take: help and version are answers, the rest is an error like all others.
fn refused(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().any(|arg| arg == "--json");
    let help = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !error.use_stderr() || error.kind() == help {
        cli::printed(error.print());
        return match cli::unwritten() {
            Some(failure) => say(&failure, json),
            None => ExitCode::from(if error.use_stderr() { 2 } else { 0 }),
        };
    }
    let text = error.render().to_string();
    let said: Vec<&str> = text
        .split("\n\n")
        .next()
        .unwrap_or_default()
        .lines()
        .map(|line| line.trim().trim_start_matches("error: "))
        .collect();
    let said = in_our_words(said.join(" "));
    let lacks_name = error.kind() == ErrorKind::MissingRequiredArgument && said.contains("<NAME>");
    let failure = match lacks_name.then(cli::args::taken_by_add).flatten() {
        Some(devices) => name_behind_add(&said, &devices),
        None => Failure::new(Code::Usage, said),
    };
    say(&failure, json)
}

/// Without what libraries say of numbers.
fn in_our_words(said: String) -> String {
    let of_numbers = [
        ("invalid digit found in string", "it is no whole number"),
        ("invalid float literal", "it is no number"),
        ("cannot parse integer from empty string", "it is empty"),
        ("cannot parse float from empty string", "it is empty"),
        ("number too large to fit in target type", "it is too large"),
        ("number too small to fit in target type", "it is too small"),
    ];
    of_numbers
        .into_iter()
        .fold(said, |said, (theirs, ours)| said.replace(theirs, ours))
}

/// `restripe --add` takes all words up to the next option, so also a NAME that stands there.
fn name_behind_add(said: &str, devices: &[String]) -> Failure {
    let (took, name, devices) = match devices {
        [rest @ .., last] if !rest.is_empty() => {
            let took = format!("{} and {last} as devices", rest.join(", "));
            (took, last.as_str(), rest)
        }
        _ => (format!("{} as a device", devices.concat()), "NAME", devices),
    };
    let devices: Vec<PathBuf> = devices.iter().map(PathBuf::from).collect();
    let devices = common::all_quoted(&devices);
    let cure = format!(
        "put NAME first: strake restripe {name} --add {devices}, or behind --: strake restripe \
         --add {devices} -- {name}"
    );
    Failure::new(Code::Usage, format!("{said}; --add took {took}")).cure(cure)
}
