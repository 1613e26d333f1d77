//! Arguments of `strake study`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What to do with studies.
#[derive(Debug, Subcommand)]
pub(crate) enum StudyCommand {
    /// List the studies that come with the program
    List,
    /// Show what a study does, and what was published about it
    Show {
        /// One that `study list` names, or a file
        name: String,
        /// Print the study as it is written, to begin a study of your own
        #[arg(long)]
        toml: bool,
    },
    /// Run studies on modelled drives (--simulated), or on real ones (--on): what is on these is
    /// lost
    ///
    /// Modelled drives need nothing: the engine runs on them in virtual time. Of real drives each
    /// is asked about by its name, or named by --yes-erase; drives that are mounted, held, or
    /// members of an array that runs are refused. A daemon serves the array of a study, or Linux md
    /// (--engine md); fio is the load, nvme-cli erases NVMe drives.
    Run(StudyRunArgs),
    /// Go on with a study that was interrupted, also by a reboot
    Resume {
        /// Folder of the study
        folder: PathBuf,
        /// Drives that may be overwritten although they hold something else meanwhile
        #[arg(long, value_name = "DEV", value_delimiter = ',')]
        yes_erase: Vec<String>,
    },
    /// Put the figures of two runs beside each other
    Compare {
        /// Folder of the first
        a: PathBuf,
        /// Folder of the second
        b: PathBuf,
    },
    /// Write report.md and report.html anew, and print the table of published figures
    Report {
        /// Folder of the study
        folder: PathBuf,
    },
}

/// Arguments of `study run`.
#[derive(Debug, Args)]
pub(crate) struct StudyRunArgs {
    /// Those that `study list` names, files, or `all`
    #[arg(required = true)]
    pub(crate) names: Vec<String>,
    /// On modelled drives
    #[arg(long, conflicts_with_all = ["on", "yes_erase"])]
    pub(crate) simulated: bool,
    /// On these drives, in the order of the slots
    #[arg(
        long,
        required_unless_present = "simulated",
        value_name = "DEV",
        value_delimiter = ','
    )]
    pub(crate) on: Vec<PathBuf>,
    /// What serves the array: strake, or Linux md by mdadm, to put beside it
    #[arg(
        long,
        value_name = "ENGINE",
        value_parser = ["strake", "md"],
        default_value = "strake",
        conflicts_with = "simulated"
    )]
    pub(crate) engine: String,
    /// Do not ask about this drive: its path, its name below /dev, or its serial number
    #[arg(long, value_name = "DEV", value_delimiter = ',')]
    pub(crate) yes_erase: Vec<String>,
    /// Where each study gets a folder of its name
    #[arg(long, value_name = "DIR", default_value = "studies")]
    pub(crate) out: PathBuf,
    /// Only check the drives and say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}
