//! `cargo xtask torture`: a door to the program that kills and reopens arrays, in its optimised
//! build: more kills in the same time.

use crate::host;
use anyhow::Result;
use std::process::ExitCode;

/// The command that runs it with these arguments.
pub(crate) fn command(args: &[&str]) -> Vec<String> {
    let cargo = host::cargo();
    let head = [
        cargo.as_str(),
        "run",
        "--quiet",
        "--release",
        "-p",
        "strake-torture",
        "--",
    ];
    head.iter().chain(args).map(|&arg| arg.to_owned()).collect()
}

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let argv = command(&args);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    Ok(if host::open(&argv, &[])? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
