//! The daemon and its events.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that happened.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EventJson {
    /// Grows by one with each event of this daemon.
    pub(crate) sequence: u64,
    /// RFC 3339, UTC.
    pub(crate) time: String,
    pub(crate) array: Option<String>,
    /// What happened, in snake_case.
    pub(crate) event: String,
    pub(crate) slot: Option<u8>,
    pub(crate) device: Option<String>,
    /// Why.
    pub(crate) cause: Option<String>,
    /// What came of it.
    pub(crate) effect: Option<String>,
    /// Of an I/O that failed: what the kernel answered.
    #[serde(default)]
    pub(crate) errno: Option<i32>,
    /// Of a finished resync or scrub.
    pub(crate) inconsistent_stripes: Option<u64>,
    /// Of a finished resync or scrub: those that are consistent again.
    #[serde(default)]
    pub(crate) repaired_stripes: Option<u64>,
}

/// The daemon.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VersionJson {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) dir: PathBuf,
}
