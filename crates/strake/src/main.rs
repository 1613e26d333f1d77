//! `strake`: the entry. Everything is in the library beside it, so that fuzzing reaches it too.

use std::process::ExitCode;

fn main() -> ExitCode {
    strake::main()
}
