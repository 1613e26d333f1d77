//! Devices that carry something of ours and may be somebody else's by now.
//!
//! Whoever partitions a device that was a member, or was in a pool, or makes a file system on it, overwrites the first
//! superblock or label and seldom the last one, which lies just before the end. So a last copy alone proves nothing: if
//! the first is gone and something foreign is there, the device is taken for what it is now.
//!
//! Invariant: where that is so nothing is written but zeroes over what is certainly ours. Deliberately absent: devices
//! that are mounted or held (nobody gets these, see [`safety`]).

use strake_format::{
    Layout, POOL_LABEL_BYTES, PoolLabel, PoolLabelError, SUPERBLOCK_BYTES, Superblock,
    SuperblockError,
};
use strake_runtime::Device;

use crate::drives::safety;
use crate::errors::{Code, Failure};

/// Does a superblock or a label lie here, whole or not?
fn is_ours(device: &Device, offset: u64) -> bool {
    let (mut superblock, mut label) = ([0; SUPERBLOCK_BYTES], [0; POOL_LABEL_BYTES]);
    let superblock = match device.read_at(offset, &mut superblock) {
        Ok(()) => Superblock::decode(&superblock, offset) != Err(SuperblockError::NotStrake),
        Err(_) => false,
    };
    let label = match device.read_at(offset, &mut label) {
        Ok(()) => PoolLabel::decode(&label, offset) != Err(PoolLabelError::NotLabel),
        Err(_) => false,
    };
    superblock || label
}

/// Refuses a device of which something foreign has taken the first copy.
pub(crate) fn still_ours(device: &Device) -> Result<(), Failure> {
    let [first, _] = Layout::superblock_offsets(device.info().bytes);
    if is_ours(device, first) {
        return Ok(());
    }
    match safety::nothing_foreign(device.path()) {
        // Nobody can tell; it may as well be a copy that is damaged.
        Err(failure) if failure.code == Code::NoProber => Ok(()),
        told => told,
    }
}

/// Zeroes what lies at these places, where it is ours.
pub(crate) fn wipe(device: &Device, places: &[u64]) -> Result<(), Failure> {
    for &offset in places {
        if is_ours(device, offset) {
            device.write_at(offset, &[0; SUPERBLOCK_BYTES])?;
        }
    }
    device.flush()?;
    Ok(())
}
