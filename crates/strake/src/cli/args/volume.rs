//! Arguments of `strake volume`.

use clap::{Args, Subcommand};

/// What to do with volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// Make a volume; the first one takes the place of the array's own block device
    Create(CreateVolume),
    /// Delete a volume and all that is on it
    Delete {
        array: String,
        volume: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Give a volume another size, while it is in use if it grows
    Resize(ResizeVolume),
    /// Give a volume another name
    Rename {
        array: String,
        volume: String,
        to: String,
        /// Only say what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Show the volumes of an array
    Show {
        array: String,
        /// Only this one
        volume: Option<String>,
    },
}

/// Arguments of `volume create`.
#[derive(Debug, Args)]
pub(crate) struct CreateVolume {
    pub(crate) array: String,
    pub(crate) volume: String,
    /// Its size: 100G, or max for all that is free
    #[arg(long, short)]
    pub(crate) size: String,
    /// Although the array has data, all of which is given up
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only check, and say what would be made
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Arguments of `volume resize`.
#[derive(Debug, Args)]
pub(crate) struct ResizeVolume {
    pub(crate) array: String,
    pub(crate) volume: String,
    /// Its new size
    #[arg(long, short)]
    pub(crate) size: String,
    /// Although what lies behind the new end is lost
    #[arg(long)]
    pub(crate) shrink: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}
