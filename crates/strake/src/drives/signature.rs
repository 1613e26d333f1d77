//! What a block device is to programs that look for signatures: a member, a device of a pool, or
//! nothing of Strake's.
//!
//! Invariants: it reads four blocks and the size, without the locks and locks' holders that serving
//! needs, and writes nothing. What a newer program wrote is Strake's, too. Deliberately absent:
//! whether the member can be used (`find`).

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use strake_format::{
    ArrayName, Layout, POOL_LABEL_BYTES, PoolLabel, SUPERBLOCK_BYTES, Superblock, SuperblockError,
};

/// What a block is, if it is known.
type Known = Option<(&'static str, Option<About>)>;

/// What lies on a device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Signature {
    pub(crate) kind: &'static str,
    /// Of the first of the two places: the last one may be left of a device that others use now.
    pub(crate) is_first: bool,
    /// Unless a newer program wrote it.
    pub(crate) about: Option<About>,
}

/// What it says of itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// Of the array or the pool.
    pub(crate) uuid: String,
    /// Of the member, or the device in the pool.
    pub(crate) own: String,
    pub(crate) name: ArrayName,
}

/// Reads the signature of a device.
///
/// # Errors
/// The device cannot be opened, or has no size.
pub(crate) fn of(path: &Path) -> io::Result<Option<Signature>> {
    let options = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = File::options()
        .read(true)
        .custom_flags(options)
        .open(path)?;
    let bytes = file.seek(SeekFrom::End(0))?;
    if bytes < 2 * SUPERBLOCK_BYTES as u64 {
        return Ok(None);
    }
    let places = Layout::superblock_offsets(bytes);
    let block = |offset| {
        let mut block = [0; SUPERBLOCK_BYTES];
        file.read_exact_at(&mut block, offset).map(|()| block)
    };
    // A place that cannot be read holds nothing that is known.
    let read = |offset: u64| Some((offset, block(offset).ok()?));
    let blocks: Vec<_> = places.into_iter().filter_map(read).collect();
    let found = |of: fn(&[u8], u64) -> Known| {
        blocks.iter().find_map(|(offset, block)| {
            let (kind, about) = of(block, *offset)?;
            let is_first = *offset == places[0];
            Some(Signature {
                kind,
                is_first,
                about,
            })
        })
    };
    // A device with a whole superblock is in no pool, whatever label lies beside it.
    Ok(found(of_member).or_else(|| found(of_pool)))
}

fn of_member(block: &[u8], offset: u64) -> Option<(&'static str, Option<About>)> {
    use SuperblockError::{Features, Invalid, Version};
    let about = match Superblock::decode(block, offset) {
        Ok(superblock) => Some(About {
            uuid: superblock.array.to_string(),
            own: superblock.member.to_string(),
            name: superblock.name,
        }),
        // Its checksum is right.
        Err(Features { .. } | Invalid(_) | Version { .. }) => None,
        Err(_) => return None,
    };
    Some(("strake_member", about))
}

fn of_pool(block: &[u8], offset: u64) -> Option<(&'static str, Option<About>)> {
    const { assert!(POOL_LABEL_BYTES == SUPERBLOCK_BYTES) };
    let label = PoolLabel::decode(block, offset).ok()?;
    let about = About {
        uuid: label.pool.to_string(),
        own: label.device.to_string(),
        name: label.name,
    };
    Some(("strake_pool", Some(about)))
}
