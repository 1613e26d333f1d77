//! Channels of alerts: what they did, and tests of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A channel; counts are since the start of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AlertChannelJson {
    pub(crate) name: String,
    /// `mail`, `webhook` or `exec`.
    pub(crate) way: String,
    /// Addresses, the host of a URL, or a program; nothing secret.
    pub(crate) to: String,
    /// What matters less is not told.
    pub(crate) severity: String,
    /// The last attempt failed.
    pub(crate) failing: bool,
    /// Messages that wait.
    pub(crate) queued: u64,
    /// Messages.
    pub(crate) delivered: u64,
    /// Attempts.
    pub(crate) failures: u64,
    /// Messages.
    pub(crate) dropped: u64,
    /// RFC 3339.
    pub(crate) last_success: Option<String>,
    pub(crate) last_error: Option<String>,
    /// RFC 3339.
    pub(crate) last_error_at: Option<String>,
}

/// The channels.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AlertsJson {
    pub(crate) channels: Vec<AlertChannelJson>,
    /// Files of the spool that could not be written yet: what they hold is in memory alone.
    pub(crate) unwritten_files: u64,
}

/// What a test asks.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AlertTestRequest {
    /// All unless given.
    pub(crate) channel: Option<String>,
    pub(crate) dry_run: bool,
}

/// What came of a test, by channel.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AlertTestsJson {
    pub(crate) channels: Vec<AlertTestJson>,
}

/// What came of a test.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AlertTestJson {
    pub(crate) channel: String,
    pub(crate) delivered: bool,
    pub(crate) error: Option<String>,
    /// Nothing was sent.
    pub(crate) dry_run: bool,
}
