//! An array of a backup, from its superblock and back.
//!
//! Invariant: what is made again has the place of everything that was there. Deliberately absent:
//! the format's own checks, which come after it.

use strake_engine::create::Definition;
use strake_format::{Layout, SlotState, Superblock};

use crate::api::SettingsJson;
use crate::api::config::{BackupArrayJson, BackupLayoutJson, BackupMemberJson};
use crate::common::errors::Failure;
use crate::settings::words;

/// Room for the last superblock, wherever data ends.
const TAIL_BYTES: u64 = 256 << 10;

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
            name: words::parse_name(&self.name)?,
            level: words::parse_level(&self.level)?,
            strip_bytes: self.strip_bytes,
            band_rows: self.band_rows,
            group_size: self.group_size,
            members,
            fixed_parities: self.fixed_parities,
            block_bytes: self.block_bytes,
            write_hole: words::parse_write_hole(self.settings.write_hole.as_deref())?,
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
