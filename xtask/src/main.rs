//! Habits as code: what a person or CI runs by hand lives here, not in shell files or in memory.
//!
//! `ci` and `test` are the whole proof, `tidy` the rules a compiler cannot hold, `sim`, `torture`
//! and `bench` thin doors to the crates that do the work, `mutants` looks for code that no test of
//! the simulator would miss, `console` builds the web page, `package` makes what is installed,
//! `golden` rewrites the frozen images on purpose, `studies` runs the published studies on modelled
//! drives, and `vm` boots a real kernel with emulated ones.
//!
//! **Architecture Invariant:** xtask depends on no crate of the product. It sees what a user sees:
//! the `strake` binary, cargo's output, files. A change of an internal type can never break it.

mod bench;
mod ci;
mod clock;
mod console;
mod door;
mod golden;
mod host;
mod mutants;
mod need;
mod outcome;
mod package;
mod studies;
mod test;
mod tidy;
mod vm;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Builds, proves and measures Strake.
#[derive(Parser)]
#[command(name = "cargo xtask", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run everything: formatting, rules, lints, tests, simulation, demo, virtual machine
    Test(ci::Options),
    /// The same as `test`: what CI runs
    Ci(ci::Options),
    /// Check the rules that the compiler cannot hold
    Tidy {
        /// Print instead how many files of `Shard` and of `Array` call each other in a circle
        #[arg(long)]
        graph: bool,
    },
    /// Run the simulator: all arguments go to it (`--seeds N --seed S --json`, `canaries`)
    #[command(disable_help_flag = true)]
    Sim {
        /// Passed on as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Kill and reopen arrays on real files, endlessly or for `--minutes N`; all arguments go to
    /// the program (`--seed S --level L`)
    #[command(disable_help_flag = true)]
    Torture {
        /// Passed on as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the benchmarks `parity`, `engine`, `system` or `vm`, or all; arguments go to each
    #[command(disable_help_flag = true)]
    Bench {
        /// A name (or none), then what is passed on as it is (`--smoke` for a short run)
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Change the engine in small ways and look whether the simulator notices: a sample, or `--all`
    Mutants(mutants::Options),
    /// Compare the frozen on-disk images with the code, or write them anew
    Golden(golden::Options),
    /// Build the web page, from console/ into console/dist
    Console(console::Options),
    /// Make a .deb and an .rpm of the release build
    Package(package::Options),
    /// Run the published studies on modelled drives, and compare with the documentation
    Studies(studies::Options),
    /// Boot a real kernel with emulated NVMe drives; `vm test` runs the scenarios there
    Vm(vm::Options),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Test(options) | Command::Ci(options) => ci::run(&options),
        Command::Tidy { graph: true } => tidy::graphs(),
        Command::Tidy { graph: false } => tidy::run(),
        Command::Sim { args } => door::run(door::SIM, &args),
        Command::Torture { args } => door::run(door::TORTURE, &args),
        Command::Bench { args } => bench::run(&args),
        Command::Mutants(options) => mutants::run(&options),
        Command::Golden(options) => golden::run(&options),
        Command::Console(options) => console::run(&options),
        Command::Package(options) => package::run(&options),
        Command::Studies(options) => studies::run(&options),
        Command::Vm(options) => vm::run(&options),
    }
}
