//! Arguments of `strake pool`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What to do with pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Make a pool of devices
    Create(PoolDevices),
    /// Add devices to a pool
    Add(PoolDevices),
    /// Take devices out of a pool
    Remove {
        pool: String,
        #[arg(required = true, value_name = "DEV")]
        devices: Vec<PathBuf>,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Take all devices out of a pool
    Delete {
        pool: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Show pools, their devices, and the arrays that may take from them
    Show {
        /// Only this one
        pool: Option<String>,
    },
}

/// Arguments of `pool create` and `pool add`.
#[derive(Debug, Args)]
pub(crate) struct PoolDevices {
    pub(crate) pool: String,
    #[arg(required = true, value_name = "DEV")]
    pub(crate) devices: Vec<PathBuf>,
    /// Overwrite foreign signatures and members of arrays that do not run
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only check, and say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}
