//! The manual pages, one for each command, made of what `--help` says.
//!
//! Deliberately absent: installing them; a package does that.

use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::cli::args::Cli;
use crate::cli::{DONE, Ended};
use crate::common::errors::Failure;

/// They are commands of the administrator.
const SECTION: &str = "8";

/// Writes all pages into a folder that is there.
pub(crate) fn write(folder: &Path) -> Ended {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    pages(&command, folder).map_err(|error| Failure::io(folder.display(), &error))?;
    Ok(DONE)
}

fn pages(command: &Command, folder: &Path) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        pages(below, folder)?;
    }
    let page = Man::new(command.clone())
        .section(SECTION)
        .source(concat!("strake ", env!("CARGO_PKG_VERSION")))
        .manual("Strake");
    page.generate_to(folder)?;
    Ok(())
}
