//! Devices that carry something of ours and may have another use by now.
//!
//! Partitioning a device that was a member, or was in a pool, or making a file system on it, mostly
//! overwrites the first superblock or label and seldom the last one, which lies just before the
//! end. So a last copy alone proves nothing: if the first is gone and something foreign is there,
//! the device is taken for what it is now. A table of partitions of the old kind, or swap, leaves
//! the first copy, too: but it lies before it, where there is nothing of ours. A superblock of md
//! (1.2), bcache or f2fs takes the first part of it and leaves the rest, so a first copy that is
//! not whole is no proof either: what begins before its end is foreign.
//!
//! Invariant: where that is so nothing is written but zeroes over what is certainly ours.
//! Deliberately absent: devices that are mounted or held (nobody gets these, see [`safety`]).

use std::path::Path;

use strake_format::{
    Layout, POOL_LABEL_BYTES, PoolLabel, PoolLabelError, SUPERBLOCK_BYTES, Superblock,
    SuperblockError,
};
use strake_runtime::{Device, OpenMode};

use crate::common::errors::{Code, Failure};
use crate::drives::safety;

/// What lies at the place of a copy of a superblock or label.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copy {
    /// A whole one, or one of a newer version.
    Ours,
    /// Something of one: torn, or partly overwritten. What writes a sector or two at its beginning
    /// leaves its end.
    Torn,
    Nothing,
}

fn copy_at(device: &Device, offset: u64) -> Copy {
    let (mut superblock, mut label) = ([0; SUPERBLOCK_BYTES], [0; POOL_LABEL_BYTES]);
    let superblock = match device.read_at(offset, &mut superblock) {
        Ok(()) => match Superblock::decode(&superblock, offset) {
            Err(SuperblockError::Version { .. } | SuperblockError::Features { .. }) | Ok(_) => {
                Copy::Ours
            }
            Err(SuperblockError::NotStrake) => Copy::Nothing,
            Err(_) => Copy::Torn,
        },
        Err(_) => Copy::Nothing,
    };
    let label = match device.read_at(offset, &mut label) {
        Ok(()) => match PoolLabel::decode(&label, offset) {
            Ok(_) | Err(PoolLabelError::Version { .. }) => Copy::Ours,
            Err(PoolLabelError::NotLabel) => Copy::Nothing,
            Err(_) => Copy::Torn,
        },
        Err(_) => Copy::Nothing,
    };
    match (superblock, label) {
        (Copy::Ours, _) | (_, Copy::Ours) => Copy::Ours,
        (Copy::Nothing, Copy::Nothing) => Copy::Nothing,
        _ => Copy::Torn,
    }
}

/// Refuses a device of which something foreign has taken the first copy, or a part of it.
pub(crate) fn still_ours(device: &Device) -> Result<(), Failure> {
    let [first, _] = Layout::superblock_offsets(device.info().bytes);
    let told = match copy_at(device, first) {
        Copy::Ours => nothing_before(device, first),
        Copy::Torn => nothing_before(device, first + SUPERBLOCK_BYTES as u64),
        Copy::Nothing => safety::nothing_foreign(device.path()),
    };
    match told {
        // Nobody can tell; it may as well be a copy that is damaged.
        Err(failure) if failure.code == Code::NoProber => Ok(()),
        told => told,
    }
}

/// Whether that is so; what is there is looked at, and stays.
pub(crate) fn is_still_ours(path: &Path) -> Result<bool, Failure> {
    let device = Device::open(path, OpenMode::ReadOnly)?;
    Ok(still_ours(&device).is_ok())
}

/// Refuses a device with partitions, or with something that is not ours before `first`.
fn nothing_before(device: &Device, first: u64) -> Result<(), Failure> {
    let mut head = vec![0; first as usize];
    let read = device.read_at(0, &mut head);
    let blank = read.is_ok() && head.iter().all(|byte| *byte == 0);
    safety::nothing_foreign_before(device.path(), if blank { 0 } else { first })
}

/// Zeroes what lies at these places, where it is ours; what something foreign has taken in part is
/// left to that. One that cannot be written keeps none of the others from it.
pub(crate) fn wipe(device: &Device, places: &[u64]) -> Result<(), Failure> {
    let mut written = Ok(());
    for &offset in places {
        if is_certainly_ours(device, offset) {
            written = written.and(device.write_at(offset, &[0; SUPERBLOCK_BYTES]));
        }
    }
    written.and(device.flush())?;
    Ok(())
}

fn is_certainly_ours(device: &Device, offset: u64) -> bool {
    let place = offset..offset + SUPERBLOCK_BYTES as u64;
    match copy_at(device, offset) {
        Copy::Ours => true,
        Copy::Nothing => false,
        Copy::Torn => match safety::nothing_foreign_within(device.path(), place) {
            Ok(()) => true,
            // Nobody can tell; it may as well be a copy that is damaged.
            Err(failure) => failure.code == Code::NoProber,
        },
    }
}
