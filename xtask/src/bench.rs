//! `cargo xtask bench [parity|engine|system|vm]`: the benchmarks of the kernels, of the engine, of
//! arrays on files, and of block devices in the virtual machine; without a name, all of them, one
//! after the other.
//!
//! Which benchmarks a package has is cargo's knowledge, not ours: a new one needs no word here.

use crate::{door, host, vm};
use anyhow::{Result, bail};
use std::process::ExitCode;

/// A set of benchmarks by the name that people give it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    package: &'static str,
    /// A program of its own, not targets of `cargo bench`.
    program: bool,
}

pub(crate) const BENCHES: [Bench; 3] = [
    Bench {
        name: "parity",
        package: "strake-parity",
        program: false,
    },
    Bench {
        name: "engine",
        package: "strake-engine",
        program: false,
    },
    Bench {
        name: "system",
        package: "strake-bench",
        program: true,
    },
];

impl Bench {
    /// The command that runs it; `None` where the package has nothing to run.
    pub(crate) fn command(self, args: &[&str]) -> Result<Option<Vec<String>>> {
        if self.program {
            return Ok(Some(door::command(self.package, args)));
        }
        let tail = std::iter::once("--").chain(args.iter().copied());
        self.cargo_bench(&tail.collect::<Vec<_>>())
    }

    /// The command that builds what cargo runs of it; `None` where that is nothing.
    pub(crate) fn build(self) -> Result<Option<Vec<String>>> {
        match self.program {
            true => Ok(None),
            false => self.cargo_bench(&["--no-run"]),
        }
    }

    fn cargo_bench(self, tail: &[&str]) -> Result<Option<Vec<String>>> {
        let benches = host::targets(&host::metadata()?, self.package, "bench");
        if benches.is_empty() {
            return Ok(None);
        }
        let mut argv = vec![host::cargo()];
        argv.extend(["bench", "-p", self.package].map(str::to_owned));
        let chosen = benches.into_iter();
        argv.extend(chosen.flat_map(|bench| ["--bench".to_owned(), bench]));
        argv.extend(tail.iter().map(|&arg| arg.to_owned()));
        Ok(Some(argv))
    }
}

/// The name of the one that needs a kernel of its own.
const VM: &str = "vm";

/// The sets that the first argument names, whether that of the virtual machine is among them, and
/// the arguments for them.
fn choose(args: &[String]) -> Result<(Vec<Bench>, bool, &[String])> {
    match args.split_first() {
        Some((name, rest)) if name == VM => Ok((Vec::new(), true, rest)),
        Some((name, rest)) if !name.starts_with('-') => {
            let named = BENCHES.iter().find(|bench| bench.name == name);
            let Some(&bench) = named else {
                let names = BENCHES.map(|bench| bench.name).join(", ");
                bail!("there is no benchmark {name}: name one of {names}, {VM}, or none for all");
            };
            Ok((vec![bench], false, rest))
        }
        _ => Ok((BENCHES.to_vec(), true, args)),
    }
}

pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let (benches, with_vm, args) = choose(args)?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut all_well = true;
    for bench in benches {
        let Some(argv) = bench.command(&args)? else {
            println!("SKIPPED: {} has no benchmark", bench.package);
            continue;
        };
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        all_well &= host::open(&argv, &[])?;
    }
    if !all_well {
        return Ok(ExitCode::FAILURE);
    }
    match with_vm {
        true => vm::bench::run(&args),
        false => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_chooses_one_and_no_name_all() {
        let args = |words: &[&str]| words.iter().map(|&w| w.to_owned()).collect::<Vec<_>>();
        let smoke = args(&["system", "--smoke"]);
        let chosen = choose(&smoke).expect("it exists");
        assert_eq!(chosen, (vec![BENCHES[2]], false, &smoke[1..]));
        let vm = args(&["vm", "--smoke"]);
        let chosen = choose(&vm).expect("it exists");
        assert_eq!(chosen, (Vec::new(), true, &vm[1..]));
        let all = args(&["--smoke"]);
        let chosen = choose(&all).expect("all exist");
        assert_eq!(chosen, (BENCHES.to_vec(), true, &all[..]));
        assert!(choose(&args(&["sytem"])).is_err());
    }
}
