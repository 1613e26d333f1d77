//! The label of a device that waits in a pool of spares: it says which pool, and that no array has
//! the device yet.
//!
//! Protocol: it lies where the copies of a superblock would lie, twice
//! ([`Layout::superblock_offsets`]). An array that takes the device writes its superblocks over the
//! labels, so one block decides: a device with a whole superblock belongs to the array, whatever
//! label is left beside it; only one without is in the pool.
//!
//! Invariants: a decoded label lies where it says, and is whole. Deliberately absent: which arrays
//! may take from the pool (an administrator says so on each machine).
//!
//! [`Layout::superblock_offsets`]: crate::Layout::superblock_offsets

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum;
use crate::identity::{ArrayName, MemberUuid, PoolUuid};

/// Bytes of a label: as a superblock's, so that the one is written over the other as a whole.
pub const POOL_LABEL_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"STRKPOL\x1a";
const VERSION: u16 = 1;
const CHECKSUM_AT: usize = 12;

/// What a device in a pool carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolLabel {
    /// The pool.
    pub pool: PoolUuid,
    /// Its name.
    pub name: ArrayName,
    /// The device, as the pool knows it: no member of an array has this identity.
    pub device: MemberUuid,
    /// Bytes of the device.
    pub device_bytes: u64,
}

/// Why a block is not a believable label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolLabelError {
    /// Not a block.
    #[error("{bytes} bytes are not a block")]
    Length {
        /// Bytes given.
        bytes: usize,
    },
    /// No trace of our magic.
    #[error("no label of a pool here")]
    NotLabel,
    /// Ours, but the checksum is wrong.
    #[error("damaged: checksum {stored:08x} stored, {computed:08x} computed")]
    Damaged {
        /// As it lies on the device.
        stored: u32,
        /// Of what lies on the device.
        computed: u32,
    },
    /// Whole, but it belongs elsewhere.
    #[error("misplaced: read at {offset}, names {named}")]
    Misplaced {
        /// Where it says that it lies.
        named: u64,
        /// Where it was read.
        offset: u64,
    },
    /// Written by a version that this one cannot read.
    #[error("version {version} is not one that this program reads")]
    Version {
        /// Its version.
        version: u16,
    },
    /// Bytes that mean nothing are not zero.
    #[error("reserved bytes are not zero")]
    Reserved,
    /// The identity of the pool or of the device is nil.
    #[error("no identity")]
    Nil,
    /// Not a name.
    #[error("the name is no name")]
    Name,
}

/// As it lies on the device. Each field names the failure that it defends against.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    /// Something else lies here.
    magic: [u8; 8],
    /// A format of the future.
    version: U16,
    /// Room to grow; zero.
    reserved_head: [u8; 2],
    /// Torn writes and rot: CRC-32C of the whole block with this field zero.
    checksum: U32,
    /// Misdirected writes and reads: the byte offset on the device.
    offset: U64,
    /// Two pools of one name from two machines taken for one.
    pool: [u8; 16],
    /// A device that was copied.
    device: [u8; 16],
    /// A device that shrank.
    device_bytes: U64,
    /// Bytes of the name.
    name_len: u8,
    /// Room to grow; zero.
    reserved_name: [u8; 7],
    /// The name, zero-padded.
    name: [u8; 32],
    /// Room to grow; zero.
    reserved: [u8; 3984],
    /// A torn head: a block that lost its first sector is damaged, not empty.
    tail: [u8; 8],
}

const _: () = {
    assert!(size_of::<Raw>() == POOL_LABEL_BYTES);
    assert!(std::mem::offset_of!(Raw, checksum) == CHECKSUM_AT);
    assert!(std::mem::offset_of!(Raw, name) == 72);
};

impl PoolLabel {
    /// The block for the place at `offset`.
    pub fn encode(&self, offset: u64) -> Box<[u8; POOL_LABEL_BYTES]> {
        assert!(
            !self.pool.is_nil() && !self.device.is_nil(),
            "a label names a pool and a device"
        );
        let text = self.name.as_str().as_bytes();
        let mut name = [0; ArrayName::BYTES_MAX];
        name[..text.len()].copy_from_slice(text);
        let raw = Raw {
            magic: MAGIC,
            version: VERSION.into(),
            reserved_head: [0; 2],
            checksum: 0.into(),
            offset: offset.into(),
            pool: self.pool.0,
            device: self.device.0,
            device_bytes: self.device_bytes.into(),
            name_len: text.len() as u8,
            reserved_name: [0; 7],
            name,
            reserved: [0; 3984],
            tail: MAGIC,
        };
        let mut block = Box::new([0; POOL_LABEL_BYTES]);
        block.copy_from_slice(raw.as_bytes());
        let sum = checksum::sealed(&block[..], CHECKSUM_AT);
        block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// The label that lies at `offset`.
    ///
    /// # Errors
    /// Why these bytes cannot be believed.
    pub fn decode(bytes: &[u8], offset: u64) -> Result<PoolLabel, PoolLabelError> {
        let length = PoolLabelError::Length { bytes: bytes.len() };
        let raw = Raw::ref_from_bytes(bytes).map_err(|_| length)?;
        if raw.magic != MAGIC && raw.tail != MAGIC {
            return Err(PoolLabelError::NotLabel);
        }
        let (stored, computed) = (raw.checksum.get(), checksum::sealed(bytes, CHECKSUM_AT));
        if stored != computed || raw.magic != raw.tail {
            return Err(PoolLabelError::Damaged { stored, computed });
        }
        let version = raw.version.get();
        if version != VERSION {
            return Err(PoolLabelError::Version { version });
        }
        let named = raw.offset.get();
        if named != offset {
            return Err(PoolLabelError::Misplaced { named, offset });
        }
        raw.parse()
    }
}

impl Raw {
    /// The value of a block that is whole and in its place.
    fn parse(&self) -> Result<PoolLabel, PoolLabelError> {
        let (name, padding) = self
            .name
            .split_at_checked(usize::from(self.name_len))
            .ok_or(PoolLabelError::Name)?;
        let mut reserved = self
            .reserved_head
            .iter()
            .chain(&self.reserved_name)
            .chain(padding)
            .chain(&self.reserved);
        if reserved.any(|&byte| byte != 0) {
            return Err(PoolLabelError::Reserved);
        }
        let (pool, device) = (PoolUuid(self.pool), MemberUuid(self.device));
        if pool.is_nil() || device.is_nil() {
            return Err(PoolLabelError::Nil);
        }
        let name = std::str::from_utf8(name)
            .ok()
            .and_then(|text| text.parse().ok());
        Ok(PoolLabel {
            pool,
            name: name.ok_or(PoolLabelError::Name)?,
            device,
            device_bytes: self.device_bytes.get(),
        })
    }
}
