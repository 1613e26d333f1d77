//! `cargo xtask golden`: the frozen images of the on-disk format.
//!
//! Without a flag the images are compared with what the code writes. With `--write` the test of
//! crate `format` writes them anew: a change of the format, to be made knowingly, never by a
//! failing test.

use crate::host;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Options {
    /// Write the images instead of comparing them: a change of the on-disk format
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let cargo = host::cargo();
    let env: &[(&str, &str)] = if options.write {
        &[("STRAKE_GOLDEN", "write")]
    } else {
        &[]
    };
    let ok = host::open(&[&cargo, "test", "-p", "strake-format", "golden"], env)?;
    Ok(if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
