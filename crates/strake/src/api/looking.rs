//! What commands that look print: the state of arrays in a line.
//!
//! Deliberately absent: routes; the commands make these from what the daemon answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::JobJson;

/// An array, as `status` prints it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StatusJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) state: String,
    pub(crate) level: String,
    pub(crate) size_bytes: u64,
    pub(crate) members: u64,
    pub(crate) in_sync: u64,
    pub(crate) spares: u64,
    pub(crate) jobs: Vec<JobJson>,
    /// What is wrong or under way, in words.
    pub(crate) remarks: Vec<String>,
    /// The exit status of `strake status NAME`.
    pub(crate) exit: u8,
}
