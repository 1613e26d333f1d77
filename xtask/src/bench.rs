//! `cargo xtask bench`: every benchmark of the kernels and of the engine, one package after the
//! other.
//!
//! Which benchmarks a package has is cargo's knowledge, not ours: a new one needs no word here.

use crate::host;
use anyhow::Result;
use std::process::ExitCode;

/// The packages that have figures to show.
pub(crate) const PACKAGES: [&str; 2] = ["strake-parity", "strake-engine"];

/// The command that runs the benchmarks of one package.
pub(crate) fn command(package: &str, benches: &[String], args: &[&str]) -> Vec<String> {
    let mut argv = vec![host::cargo(), "bench".into(), "-p".into(), package.into()];
    for bench in benches {
        argv.extend(["--bench".into(), bench.clone()]);
    }
    argv.push("--".into());
    argv.extend(args.iter().map(|&arg| arg.to_owned()));
    argv
}

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let metadata = host::metadata()?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut all_well = true;
    for package in PACKAGES {
        let benches = host::targets(&metadata, package, "bench");
        if benches.is_empty() {
            println!("SKIPPED: {package} has no benchmark");
            continue;
        }
        let argv = command(package, &benches, &args);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        all_well &= host::open(&argv, &[])?;
    }
    Ok(if all_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
