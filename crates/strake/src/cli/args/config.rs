//! Arguments of `strake config`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write down what all arrays are (levels, places, members, settings), and pools of spares
    Backup {
        /// Where to; standard output unless given
        file: Option<PathBuf>,
    },
    /// Make arrays again that lost their superblocks, over the data that their members still hold;
    /// and pools of which no device is left
    Restore(RestoreArgs),
    /// Check the configuration of the daemon, which /etc/strake/strake.toml holds
    Check {
        /// Another file
        file: Option<PathBuf>,
    },
}

/// Arguments of `config restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// What strake config backup wrote
    pub(crate) file: PathBuf,
    /// Only these arrays and pools
    pub(crate) names: Vec<String>,
    /// Look for members here, too; may be given more than once
    #[arg(long = "device", value_name = "DEV")]
    pub(crate) devices: Vec<PathBuf>,
    /// Which device is in which slot, where it tells no more; may be given more than once
    #[arg(long = "slot", value_name = "N=DEV")]
    pub(crate) slots: Vec<String>,
    /// Overwrite foreign signatures
    #[arg(long)]
    pub(crate) force: bool,
    /// Take members that may have missed writes: what they hold becomes the truth
    #[arg(long)]
    pub(crate) accept_stale: bool,
    /// Only check, and say what would be made again
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}
