//! Pools of spares.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pool of spares.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PoolJson {
    pub(crate) name: String,
    /// `null` where no device of it was found.
    pub(crate) uuid: Option<String>,
    pub(crate) devices: Vec<PoolDeviceJson>,
    /// Those that may take from it.
    pub(crate) arrays: Vec<PoolUserJson>,
    /// Devices that gave no answer: they may be in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) silent: Vec<String>,
}

/// A device in a pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PoolDeviceJson {
    pub(crate) device: String,
    pub(crate) uuid: String,
    pub(crate) size_bytes: u64,
    pub(crate) block_bytes: u32,
    /// Why no array takes it, if that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// An array that may take from a pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PoolUserJson {
    pub(crate) name: String,
    /// Devices of the pool that can be a spare of it.
    pub(crate) fitting: usize,
}

/// Body of the requests that change a pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PoolRequest {
    #[serde(default)]
    pub(crate) devices: Vec<PathBuf>,
    /// All that the pool has (`remove`): the pool itself.
    #[serde(default)]
    pub(crate) all: bool,
    #[serde(default)]
    pub(crate) force: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// What was done to a pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PoolDone {
    pub(crate) pool: String,
    pub(crate) changed: bool,
    pub(crate) what: String,
}
