//! `cargo xtask sim` and `cargo xtask torture`: doors to the programs that look for lost writes,
//! always in their optimised build: their speed is their reach.

use crate::host;
use anyhow::Result;
use std::process::ExitCode;

/// The package of the simulator.
pub(crate) const SIM: &str = "strake-sim";
/// The package that kills and reopens arrays.
pub(crate) const TORTURE: &str = "strake-torture";

/// The command that runs a package's program with these arguments.
pub(crate) fn command(package: &str, args: &[&str]) -> Vec<String> {
    let cargo = host::cargo();
    let head = [
        cargo.as_str(),
        "run",
        "--quiet",
        "--release",
        "-p",
        package,
        "--",
    ];
    head.iter().chain(args).map(|&arg| arg.to_owned()).collect()
}

pub(crate) fn run(package: &str, args: &[String]) -> Result<ExitCode> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let argv = command(package, &args);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    Ok(if host::open(&argv, &[])? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
