//! Arguments of `strake alert`.

use clap::Subcommand;

/// What to do with channels of alerts.
#[derive(Debug, Subcommand)]
pub(crate) enum AlertCommand {
    /// Show the channels: what they delivered last, what failed, what waits
    Status,
    /// Send a test by a channel, or by all, and wait for what comes of it
    Test {
        /// Only by this one
        channel: Option<String>,
        /// Only say what would be sent
        #[arg(long)]
        dry_run: bool,
    },
}
