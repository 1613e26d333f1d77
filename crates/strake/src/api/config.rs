//! A backup of the configuration: its shape, and the routes that give and take it.
//!
//! Invariants: what a backup says of an array is enough to make its metadata again over its members' data; a backup of
//! another format is refused, never guessed at. Handlers only translate. Deliberately absent: data, and what drives tell
//! of themselves again (sizes, wear).

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use strake_engine::create::Definition;
use strake_format::{Layout, SlotState, Superblock};

use crate::api::routes::{Answer, In, Shared, blocking};
use crate::api::types::SettingsJson;
use crate::daemon::service::Service;
use crate::drives::make;
use crate::errors::{Code, Failure};

/// Room for the last superblock, wherever data ends.
const TAIL_BYTES: u64 = 256 << 10;

/// The format of a backup.
pub(crate) const FORMAT: u32 = 1;

/// The configuration of all arrays and pools.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupPoolJson {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) devices: Vec<BackupPoolDeviceJson>,
}

/// One device of a pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupLayoutJson {
    map_offset: u64,
    map_pages: u32,
    page_regions: u16,
    unreadable_bytes: u32,
    log_offset: u64,
    log_bytes: u64,
    data_offset: u64,
    data_bytes: u64,
    region_bytes: u64,
}

/// One member.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackupMemberJson {
    pub(crate) uuid: String,
    /// Whether it was in sync then.
    pub(crate) in_sync: bool,
    /// Where it was, for people.
    pub(crate) device: Option<String>,
}

/// What is to be restored.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestoreRequest {
    pub(crate) backup: BackupJson,
    /// Names or uuids of arrays and pools; none: all of the backup.
    #[serde(default)]
    pub(crate) names: Vec<String>,
    /// Where to look, too.
    #[serde(default)]
    pub(crate) devices: Vec<PathBuf>,
    /// Which device is in which slot of the one array that is named, where devices tell nothing any more.
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SlotDevice {
    pub(crate) slot: u8,
    pub(crate) device: PathBuf,
}

/// What became of each array.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RestoredJson {
    pub(crate) dry_run: bool,
    pub(crate) arrays: Vec<RestoredArrayJson>,
    #[serde(default)]
    pub(crate) pools: Vec<RestoredPoolJson>,
}

/// What became of one pool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RestoredPoolJson {
    pub(crate) name: String,
    /// Its labels were made again (or would be).
    pub(crate) restored: bool,
    pub(crate) what: String,
    pub(crate) devices: Vec<String>,
}

/// What became of one.
#[derive(Clone, Debug, Serialize, Deserialize)]
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

impl BackupArrayJson {
    /// What this superblock says of its array.
    pub(crate) fn of(
        sb: &Superblock,
        settings: SettingsJson,
        export: String,
        device: impl Fn(usize) -> Option<String>,
    ) -> BackupArrayJson {
        let member = |(slot, row): (usize, &strake_format::SlotRecord)| BackupMemberJson {
            uuid: row.member.to_string(),
            in_sync: row.state == SlotState::InSync,
            device: device(slot),
        };
        let layout = &sb.layout;
        BackupArrayJson {
            name: sb.name.to_string(),
            uuid: sb.array.to_string(),
            level: sb.level.to_string(),
            strip_bytes: sb.strip_bytes,
            band_rows: sb.band_rows,
            group_size: sb.group_size,
            fixed_parities: sb.fixed_parities,
            epoch: sb.epoch.0,
            moving: sb.moving.is_some(),
            block_bytes: sb.block_bytes,
            carved: sb.carved,
            layout: BackupLayoutJson {
                map_offset: layout.map_offset,
                map_pages: layout.map_pages,
                page_regions: layout.page_regions,
                unreadable_bytes: layout.unreadable_bytes,
                log_offset: layout.log_offset,
                log_bytes: layout.log_bytes,
                data_offset: layout.data_offset,
                data_bytes: layout.data_bytes,
                region_bytes: layout.region_bytes,
            },
            export,
            settings,
            members: sb.slots.iter().enumerate().map(member).collect(),
        }
    }

    /// The array as it is to be made again; the format's own checks are still to come.
    pub(crate) fn definition(&self) -> Result<Definition, Failure> {
        let l = &self.layout;
        let members = u8::try_from(self.members.len()).unwrap_or(u8::MAX);
        Ok(Definition {
            name: make::parse_name(&self.name)?,
            level: make::parse_level(&self.level)?,
            strip_bytes: self.strip_bytes,
            band_rows: self.band_rows,
            group_size: self.group_size,
            members,
            fixed_parities: self.fixed_parities,
            block_bytes: self.block_bytes,
            write_hole: make::parse_write_hole(self.settings.write_hole.as_deref())?,
            // The others follow once it serves, by the words of `set`.
            settings: strake_format::Settings::default(),
            carved: self.carved,
            layout: Layout {
                // Of some device that has room for all of it.
                device_bytes: l
                    .data_offset
                    .saturating_add(l.data_bytes)
                    .saturating_add(TAIL_BYTES),
                map_offset: l.map_offset,
                map_pages: l.map_pages,
                page_regions: l.page_regions,
                unreadable_bytes: l.unreadable_bytes,
                log_offset: l.log_offset,
                log_bytes: l.log_bytes,
                data_offset: l.data_offset,
                data_bytes: l.data_bytes,
                region_bytes: l.region_bytes,
            },
        })
    }
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

/// The routes below `/v1/config`.
pub(super) fn router() -> Router<Arc<Service>> {
    Router::new()
        .route("/v1/config/backup", get(backup))
        .route("/v1/config/restore", post(restore))
}

async fn backup(State(service): Shared) -> Answer {
    blocking(move || Ok(service.backup())).await
}

async fn restore(State(service): Shared, In(request): In<RestoreRequest>) -> Answer {
    blocking(move || service.restore(&request)).await
}
