//! Volumes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The volumes of an array.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VolumesJson {
    /// It has volumes, or is to have, and no block device of its own.
    #[serde(default)]
    pub(crate) carved: bool,
    /// Neither copy of their table can be believed.
    #[serde(default, rename = "volume_table_damaged")]
    pub(crate) damaged: bool,
    /// What volumes are given room in; `null` while it is stopped.
    #[serde(default, rename = "volume_unit_bytes")]
    pub(crate) unit_bytes: Option<u64>,
    /// What volumes can still be given; `null` while it is stopped.
    #[serde(default, rename = "volume_free_bytes")]
    pub(crate) free_bytes: Option<u64>,
    /// Empty while it is stopped.
    #[serde(default)]
    pub(crate) volumes: Vec<VolumeJson>,
}

/// A volume.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VolumeJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) size_bytes: u64,
    /// What it has of the array: whole units.
    pub(crate) allocated_bytes: u64,
    /// Pieces that it lies in.
    pub(crate) extents: u64,
    /// RFC 3339.
    pub(crate) created: String,
    pub(crate) device: Option<String>,
    /// Why it has no device; it is tried again.
    #[serde(default)]
    pub(crate) not_served: Option<String>,
}

/// Body of the request that makes a volume.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeRequest {
    pub(crate) name: String,
    /// All that is free, where there is none.
    #[serde(default)]
    pub(crate) size_bytes: Option<u64>,
    /// Although the array has data.
    #[serde(default)]
    pub(crate) force: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// A volume that was made, or would be.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VolumeCreatedJson {
    pub(crate) dry_run: bool,
    /// The array was one block device until now.
    pub(crate) carves: bool,
    #[serde(flatten)]
    pub(crate) volume: VolumeJson,
}

/// Body of the request that changes a volume: its size or its name.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeChange {
    #[serde(default)]
    pub(crate) size_bytes: Option<u64>,
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// What lies behind a new end is given up.
    #[serde(default)]
    pub(crate) shrink: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// Body of the request that deletes a volume.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeDeletion {
    #[serde(default)]
    pub(crate) dry_run: bool,
}
