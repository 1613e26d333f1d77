//! `cargo xtask sim`: a door to the simulator, always in its optimised build: its speed is its
//! reach.

use crate::host;
use anyhow::Result;
use std::process::ExitCode;

/// The command that runs the simulator with these arguments.
pub(crate) fn command(args: &[&str]) -> Vec<String> {
    let cargo = host::cargo();
    let head = [
        cargo.as_str(),
        "run",
        "--quiet",
        "--release",
        "-p",
        "strake-sim",
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
