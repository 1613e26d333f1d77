//! Drives: what lies on them, and what is done to them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::{MovingJson, RangeJson};
use crate::common::errors::FailureJson;

/// Body of the request that cleans devices.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CleanRequest {
    pub(crate) devices: Vec<PathBuf>,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// Devices that were cleaned, or would be.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CleanedJson {
    pub(crate) dry_run: bool,
    pub(crate) devices: Vec<CleanedDeviceJson>,
}

/// One of them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CleanedDeviceJson {
    pub(crate) device: String,
    /// What it was, in words.
    pub(crate) was: String,
}

/// Body of `locate`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LocateRequest {
    /// A slot number or a device.
    pub(crate) member: String,
    pub(crate) on: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// Body of the request that switches the light of a drive, whatever it is used for.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriveLocateRequest {
    pub(crate) device: PathBuf,
    pub(crate) on: bool,
    #[serde(default)]
    pub(crate) dry_run: bool,
}

/// A device or file that the daemon sees, and what it is used for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Drive")]
pub(crate) struct DriveJson {
    pub(crate) device: String,
    /// `null` where it cannot be opened.
    pub(crate) size_bytes: Option<u64>,
    pub(crate) block_bytes: Option<u32>,
    pub(crate) model: Option<String>,
    pub(crate) serial: Option<String>,
    /// `free`, `member`, `spare`, `pool`, or `other` where `problem` says what stands against it.
    #[serde(rename = "use")]
    pub(crate) used_for: String,
    pub(crate) array: Option<String>,
    pub(crate) slot: Option<u8>,
    pub(crate) pool: Option<String>,
    /// Why no array can take it as it is.
    pub(crate) problem: Option<FailureJson>,
}

/// What was done to a drive.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DriveDone {
    pub(crate) device: String,
    pub(crate) changed: bool,
    pub(crate) what: String,
}

/// An array found on drives.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ScanArray")]
pub(crate) struct ScanJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) level: String,
    pub(crate) members: u8,
    /// Members and spares that were found, and can be used.
    pub(crate) found: usize,
    /// Members of them.
    #[serde(default)]
    pub(crate) members_found: usize,
    /// Spares that it has.
    #[serde(default)]
    pub(crate) spares: usize,
    #[serde(default)]
    pub(crate) spares_found: usize,
    /// `complete`, `degraded` (startable), `incomplete` or `conflicting`.
    pub(crate) state: String,
    /// Why it cannot be started.
    pub(crate) reason: Option<String>,
    /// When it was destroyed on this machine, while this member was away.
    #[serde(default)]
    pub(crate) destroyed: Option<String>,
    /// Its data moves to another shape, or stands half-way; `null` where it does not.
    #[serde(default)]
    pub(crate) moving: Option<MovingJson>,
    pub(crate) devices: Vec<ScanDeviceJson>,
    /// Devices that had a slot of it when it was served here last, and carry no member of it now.
    #[serde(default)]
    pub(crate) overwritten: Vec<ScanOverwrittenJson>,
    /// Devices that had a slot of it when it was served here last, and cannot be read: they may
    /// carry it.
    #[serde(default)]
    pub(crate) unread: Vec<ScanUnreadJson>,
}

/// A device that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ScanUnread")]
pub(crate) struct ScanUnreadJson {
    pub(crate) slot: u8,
    pub(crate) device: String,
    /// Why.
    pub(crate) problem: String,
}

/// What lies where a member was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ScanOverwritten")]
pub(crate) struct ScanOverwrittenJson {
    pub(crate) slot: u8,
    pub(crate) device: String,
    /// What it holds.
    pub(crate) holds: String,
}

/// A device of an array found.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ScanDeviceJson {
    pub(crate) device: String,
    pub(crate) uuid: String,
    pub(crate) slot: Option<u8>,
    /// `in_sync`, `rebuilding`, `stale`, `spare`, `stray`, or `set_aside` where it cannot be used
    /// as it is.
    pub(crate) state: String,
    pub(crate) epoch: u64,
    /// Why it is set aside.
    #[serde(default)]
    pub(crate) problem: Option<String>,
    /// What holds it, where that is another process.
    #[serde(default)]
    pub(crate) held: Option<String>,
    /// Other names of the same drive.
    #[serde(default)]
    pub(crate) also: Vec<String>,
}

/// One member, offline.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ExamineJson {
    pub(crate) array: ExamineArrayJson,
    pub(crate) member_uuid: String,
    pub(crate) slot: Option<u8>,
    pub(crate) data_offset_bytes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) epoch: u64,
    pub(crate) generation: u64,
    /// Which starts of the array wrote which generations, the newest first: branches of one history
    /// number their superblocks alike, and their sessions have different numbers.
    #[serde(default)]
    pub(crate) sessions: Vec<SessionJson>,
    pub(crate) clean: bool,
    pub(crate) copies: Vec<CopyJson>,
    pub(crate) slots: Vec<SlotJson>,
    pub(crate) regions: RegionsJson,
    /// Bytes of the block device with lost content; `null` where the member has no valid list.
    pub(crate) unreadable: Option<Vec<RangeJson>>,
}

/// What a member says of its array.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ExamineArrayJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) level: String,
    pub(crate) members: u8,
    pub(crate) strip_bytes: u32,
    pub(crate) group_size: Option<u8>,
    pub(crate) block_bytes: u32,
    pub(crate) write_hole: String,
    pub(crate) created_unix_s: u64,
    /// Its data moves to another shape, or stands half-way; `null` where it does not.
    #[serde(default)]
    pub(crate) moving: Option<MovingJson>,
}

/// One start of the array, as its superblocks know it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SessionJson {
    /// Its number, drawn at random, in hexadecimal digits; `null` in place of those that are not
    /// known any more.
    pub(crate) session: Option<String>,
    pub(crate) first_generation: u64,
    pub(crate) last_generation: u64,
}

/// A superblock copy.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CopyJson {
    pub(crate) offset_bytes: u64,
    pub(crate) valid: bool,
}

/// A row of the member's table.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SlotJson {
    pub(crate) slot: u8,
    pub(crate) uuid: Option<String>,
    pub(crate) state: String,
    pub(crate) since_epoch: u64,
}

/// Regions of the member's map, counted by state.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RegionsJson {
    pub(crate) unwritten: u64,
    pub(crate) clean: u64,
    pub(crate) dirty: u64,
    pub(crate) need_sync: u64,
    pub(crate) damaged_pages: u64,
}
