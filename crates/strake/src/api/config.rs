//! A backup of the configuration, and what becomes of it.
//!
//! Invariants: what a backup says of an array is enough to make its metadata again over its
//! members' data; a backup of another format is refused, never guessed at. Deliberately absent:
//! data, and what drives tell of themselves again (sizes, wear).

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::SettingsJson;
use crate::common::errors::{Code, Failure};

/// The format of a backup.
pub(crate) const FORMAT: u32 = 1;

/// The configuration of all arrays and pools.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupJson {
    /// The format: 1.
    pub(crate) strake_backup: u32,
    /// When, RFC 3339.
    pub(crate) taken: String,
    pub(crate) arrays: Vec<BackupArrayJson>,
    /// Pools of spares; an older Strake takes only backups without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pools: Vec<BackupPoolJson>,
}

/// One pool of spares.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupPoolJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) devices: Vec<BackupPoolDeviceJson>,
}

/// One device of a pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupPoolDeviceJson {
    /// As the pool knows it.
    pub(crate) uuid: String,
    /// Where it was.
    pub(crate) device: PathBuf,
    pub(crate) size_bytes: u64,
    /// What the drive calls itself everywhere, where the kernel tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) wwid: Option<String>,
}

fn one_row() -> u16 {
    1
}

fn is_one_row(rows: &u16) -> bool {
    *rows == 1
}

/// One array.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupArrayJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) level: String,
    pub(crate) strip_bytes: u32,
    /// Rows of a band: so many strips are one of users.
    #[serde(default = "one_row", skip_serializing_if = "is_one_row")]
    pub(crate) band_rows: u16,
    pub(crate) group_size: u8,
    pub(crate) fixed_parities: u8,
    /// Of its superblock then: it rises with every change of members or shape.
    #[serde(default)]
    pub(crate) epoch: u64,
    /// Data was moving to this shape from another.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) moving: bool,
    pub(crate) block_bytes: u32,
    pub(crate) carved: bool,
    pub(crate) layout: BackupLayoutJson,
    /// `auto`, `ublk`, `nbd` or `none`.
    pub(crate) export: String,
    pub(crate) settings: SettingsJson,
    /// One for each slot, in order.
    pub(crate) members: Vec<BackupMemberJson>,
}

/// Where things lie on every member, bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupLayoutJson {
    pub(crate) map_offset: u64,
    pub(crate) map_pages: u32,
    pub(crate) page_regions: u16,
    pub(crate) unreadable_bytes: u32,
    pub(crate) log_offset: u64,
    pub(crate) log_bytes: u64,
    pub(crate) data_offset: u64,
    pub(crate) data_bytes: u64,
    pub(crate) region_bytes: u64,
}

/// One member.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupMemberJson {
    pub(crate) uuid: String,
    /// Whether it was in sync then.
    pub(crate) in_sync: bool,
    /// Where it was, for people.
    pub(crate) device: Option<String>,
}

/// What is to be restored.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestoreRequest {
    pub(crate) backup: BackupJson,
    /// Names or uuids of arrays and pools; none: all of the backup.
    #[serde(default)]
    pub(crate) names: Vec<String>,
    /// Where to look, too.
    #[serde(default)]
    pub(crate) devices: Vec<PathBuf>,
    /// Which device is in which slot of the one array that is named, where devices tell nothing any
    /// more.
    #[serde(default)]
    pub(crate) slots: Vec<SlotDevice>,
    /// Overwrite foreign signatures.
    #[serde(default)]
    pub(crate) force: bool,
    /// Take members that may have missed what others got.
    #[serde(default)]
    pub(crate) accept_stale: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// A device and its slot.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SlotDevice {
    pub(crate) slot: u8,
    pub(crate) device: PathBuf,
}

/// What became of each array.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RestoredJson {
    pub(crate) dry_run: bool,
    pub(crate) arrays: Vec<RestoredArrayJson>,
    #[serde(default)]
    pub(crate) pools: Vec<RestoredPoolJson>,
}

/// What became of one pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RestoredPoolJson {
    pub(crate) name: String,
    /// Its labels were made again (or would be).
    pub(crate) restored: bool,
    pub(crate) what: String,
    pub(crate) devices: Vec<String>,
}

/// What became of one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RestoredArrayJson {
    pub(crate) name: String,
    /// Its metadata was made again (or would be).
    pub(crate) restored: bool,
    pub(crate) what: String,
    /// Why a member may have missed writes, where that was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) doubt: Option<String>,
    /// Where its members are, by slot.
    pub(crate) devices: Vec<String>,
    /// Settings that are not as they were, and why.
    #[serde(default)]
    pub(crate) not_applied: Option<String>,
}

impl BackupJson {
    /// Refuses what is not of this format.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.strake_backup == FORMAT {
            return Ok(());
        }
        let found = format!("a backup of format {}, not {FORMAT}", self.strake_backup);
        Err(Failure::new(Code::BackupInvalid, found))
    }
}
