//! Making the metadata of an array again over the data that its members still hold: for an array whose superblocks are
//! lost, by what a backup or a superblock that is left says of it.
//!
//! It becomes a new array, with an identity of its own, in the places of the old one: nothing that the old one left (a
//! member that was away, a page of a map, a record in a log) is believed ever again. What regions hold is taken as it
//! lies there: all are NeedSync, so parity is made true from data. What had a record in the log and nothing else is
//! lost: blocks of writes that were under way when the array last stopped without a word, and were never answered.
//!
//! Invariants: every slot has its member, for parity that may be untrue brings back no member; data is not written.
//! Deliberately absent: telling which device was in which slot, and whether all of them were in sync (the caller's).

use strake_format::*;

use crate::create::{self, CreatePlan, Definition, Init};
use crate::event::DeviceInfo;

/// What to make again.
#[derive(Clone, Debug)]
pub struct RestoreSpec {
    /// Random identity, drawn by the caller: not that of the array that was.
    pub array: ArrayUuid,
    /// Seconds since the Unix epoch.
    pub created_unix_s: u64,
    /// What it is.
    pub definition: Definition,
    /// The device of every slot in order, with new identities drawn by the caller.
    pub members: Vec<(DeviceInfo, MemberUuid)>,
}

/// Why it cannot be made again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Not one device for each slot.
    #[error("the array has {slots} slots, {devices} devices were given")]
    Members {
        /// Slots.
        slots: u8,
        /// Devices.
        devices: usize,
    },
    /// Blocks larger than the array's.
    #[error("the device of slot {slot} has blocks of {has} bytes, the array's have {array}")]
    Block {
        /// Which.
        slot: usize,
        /// The device's.
        has: u32,
        /// The array's.
        array: u32,
    },
    /// The places do not fit.
    #[error("the device of slot {slot} does not fit: {source}")]
    Layout {
        /// Which.
        slot: usize,
        /// What does not fit.
        source: LayoutError,
    },
    /// What it is said to be is nothing that an array can be.
    #[error("no array can be like that: {0}")]
    Definition(Invalid),
}

/// Checks `spec` and lays the superblocks, maps and lists out.
///
/// # Errors
/// The first thing that does not fit.
pub fn plan(spec: &RestoreSpec) -> Result<CreatePlan, RestoreError> {
    let definition = &spec.definition;
    if spec.members.len() != usize::from(definition.members) || spec.members.is_empty() {
        return Err(RestoreError::Members {
            slots: definition.members,
            devices: spec.members.len(),
        });
    }
    let array = definition.block_bytes;
    let mut layouts = Vec::new();
    for (slot, (info, _)) in spec.members.iter().enumerate() {
        let has = info.block_bytes;
        if has > array {
            return Err(RestoreError::Block { slot, has, array });
        }
        let layout = definition
            .layout
            .for_device(info.bytes, definition.strip_bytes);
        layouts.push(layout.map_err(|source| RestoreError::Layout { slot, source })?);
    }
    let ids: Vec<MemberUuid> = spec.members.iter().map(|(_, member)| *member).collect();
    let superblocks =
        create::superblocks(spec.array, spec.created_unix_s, definition, &ids, &layouts);
    // Before anything computes with numbers that may come from a file which anybody wrote.
    for sb in &superblocks {
        sb.check().map_err(RestoreError::Definition)?;
    }
    Ok(CreatePlan::of(superblocks, Init::Sync))
}
