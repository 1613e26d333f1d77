//! The table of volumes: what an array that is carved gives to its users.
//!
//! It lies in the array's own data, in two copies of [`VOLUME_TABLE_BYTES`] each from the first
//! byte on, so that the array's redundancy keeps it like everything else. Protocol: a version is
//! written to the first copy, made durable, then to the second and made durable; only then is it
//! acknowledged. So at any time one copy is whole, and the loss of one is never the loss of what
//! was acknowledged. A copy that reads as zeros was never written: an array that is carved and has
//! only such copies has no volumes yet.
//!
//! Invariants: a decoded table is whole, lies where it says, belongs to the array, and its volumes
//! have names and identities of their own and share no unit with each other or with the tables.
//!
//! Deliberately absent: where there is room for a volume (engine), and how large the array is: that
//! may grow without a word to the table.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::BLOCK_BYTES;
use crate::checksum;
use crate::error::NameError;
use crate::identity::{ArrayName, ArrayUuid, Generation, VolumeUuid};

/// Bytes of the array's address space that each copy has for itself.
pub const VOLUME_TABLE_BYTES: u64 = 1 << 20;
/// Where the two copies lie in the array's address space.
pub const VOLUME_TABLE_OFFSETS: [u64; 2] = [0, VOLUME_TABLE_BYTES];
/// What the copies take of an array that is carved; no volume has a byte of it.
pub const VOLUME_AREA_BYTES: u64 = 2 * VOLUME_TABLE_BYTES;
/// The most volumes of an array.
pub const VOLUMES_MAX: usize = 1023;
/// The most extents of all volumes together: what fits behind the most volumes.
pub const EXTENTS_MAX: usize =
    (VOLUME_TABLE_BYTES as usize - HEADER_BYTES - VOLUMES_MAX * VOLUME_BYTES) / EXTENT_BYTES;

const HEADER_BYTES: usize = 64;
const VOLUME_BYTES: usize = 80;
const EXTENT_BYTES: usize = 8;
const MAGIC: [u8; 8] = *b"STRKVOL\x1a";
const VERSION: u16 = 1;
const CHECKSUM_AT: usize = 12;

/// Units in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The first of them.
    pub first: u32,
    /// How many; at least one.
    pub units: u32,
}

/// A part of an array with a name and a block device of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Which it is, whatever its name.
    pub uuid: VolumeUuid,
    /// Its name, by the rules for arrays.
    pub name: ArrayName,
    /// Size of its block device, bytes; its extents have room for it, and less than a unit more.
    pub size_bytes: u64,
    /// When it was made, seconds since 1970.
    pub created_unix_s: u64,
    /// Where its bytes lie, in their order.
    pub extents: Vec<Extent>,
}

/// The volumes of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeTable {
    /// The array.
    pub array: ArrayUuid,
    /// Grows with every version.
    pub generation: Generation,
    /// What extents count in, bytes; unit `n` begins at byte `n * unit_bytes` of the array.
    pub unit_bytes: u64,
    /// In the order in which they were made.
    pub volumes: Vec<Volume>,
}

/// Why a copy cannot be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeTableError {
    /// It could not be read.
    #[error("it cannot be read")]
    Unreadable,
    /// Too few bytes were given.
    #[error("{bytes} bytes are no table of volumes")]
    Length {
        /// How many.
        bytes: usize,
    },
    /// Something else lies there.
    #[error("no table of volumes")]
    NotATable,
    /// Torn or rotten.
    #[error("damaged: checksum {stored:08x}, computed {computed:08x}")]
    Damaged {
        /// What it says.
        stored: u32,
        /// What it is.
        computed: u32,
    },
    /// Written by a newer program.
    #[error("version {0} is not known to this program")]
    Version(u16),
    /// It belongs elsewhere.
    #[error("it names offset {named} and lies at {offset}")]
    Misplaced {
        /// Where it says that it lies.
        named: u64,
        /// Where it lies.
        offset: u64,
    },
    /// It is another array's.
    #[error("it belongs to array {0}")]
    Foreign(ArrayUuid),
    /// Bytes are in use that this version leaves zero.
    #[error("bytes that are to be zero are not")]
    Reserved,
    /// The unit is none, or not whole blocks.
    #[error("a unit of {0} bytes")]
    Unit(u64),
    /// More volumes than there may be.
    #[error("{0} volumes")]
    VolumeCount(usize),
    /// More extents than there may be.
    #[error("{0} extents")]
    ExtentCount(usize),
    /// A name that is none.
    #[error("volume {at}: {why}")]
    Name {
        /// Which volume, by its place.
        at: u16,
        /// Why not.
        why: NameError,
    },
    /// A volume without identity, or with another's.
    #[error("volume {0} has no identity of its own")]
    Identity(u16),
    /// A name that another has.
    #[error("volume {0} has the name of another")]
    Twice(u16),
    /// A generation that is about to end.
    #[error("the table's generation has come to {0}, and must not wrap")]
    Generation(u64),
    /// A size that is none, or for which there are too few or too many units.
    #[error("volume {0} has a size that its extents do not have")]
    Size(u16),
    /// An extent that is empty, runs beyond all numbers, or has units of another or of the table.
    #[error("volume {0} has an extent that is not its own")]
    Extent(u16),
}

/// The beginning of a copy. Each field names the failure that it defends against.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    /// A user's data taken for a table.
    magic: [u8; 8],
    /// A format of the future.
    version: U16,
    /// Room to grow; zero.
    reserved: [u8; 2],
    /// Torn writes and rot: CRC-32C of `length` bytes with this field zero.
    checksum: U32,
    /// Misdirected writes and reads, and one copy taken for the other: the byte of the array.
    offset: U64,
    /// A leftover of another array on the same drives.
    array: [u8; 16],
    /// An old version taken for the new one: a crash between the copies.
    generation: U64,
    /// Extents read in another unit than they were written in.
    unit_bytes: U64,
    /// A longer version's tail taken for this one's: bytes that count, whole blocks.
    length: U32,
    /// Bytes behind the end taken for volumes.
    volumes: U16,
    /// Room to grow; zero.
    reserved_tail: [u8; 2],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawVolume {
    /// A device that a killed daemon left, taken for that of another volume of the same name.
    uuid: [u8; 16],
    size_bytes: U64,
    created_unix_s: U64,
    /// Extents of the next volume taken for this one's.
    extents: U32,
    name_bytes: u8,
    /// Room to grow; zero.
    reserved: [u8; 11],
    name: [u8; ArrayName::BYTES_MAX],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawExtent {
    first: U32,
    units: U32,
}

const _: () = {
    assert!(size_of::<RawHeader>() == HEADER_BYTES);
    assert!(size_of::<RawVolume>() == VOLUME_BYTES);
    assert!(size_of::<RawExtent>() == EXTENT_BYTES);
    assert!(std::mem::offset_of!(RawHeader, checksum) == CHECKSUM_AT);
    assert!(EXTENTS_MAX == 120_834);
};

impl Extent {
    /// The unit after the last.
    pub fn end(self) -> u64 {
        u64::from(self.first) + u64::from(self.units)
    }
}

impl Volume {
    /// Units that it has.
    pub fn units(&self) -> u64 {
        self.extents.iter().map(|e| u64::from(e.units)).sum()
    }
}

impl VolumeTable {
    /// The table of an array that is carved and has no volumes yet.
    pub fn empty(array: ArrayUuid, unit_bytes: u64) -> VolumeTable {
        VolumeTable {
            array,
            generation: Generation(0),
            unit_bytes,
            volumes: Vec::new(),
        }
    }

    /// Units at the array's start that the copies of the table lie in.
    pub fn reserved_units(&self) -> u64 {
        VOLUME_AREA_BYTES.div_ceil(self.unit_bytes)
    }

    /// The volume of that name.
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.iter().find(|v| v.name.as_str() == name)
    }

    /// All extents, in the order of the volumes.
    pub fn extents(&self) -> impl Iterator<Item = Extent> {
        self.volumes.iter().flat_map(|v| v.extents.iter().copied())
    }

    /// Whether all of it makes sense together.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), VolumeTableError> {
        if self.unit_bytes == 0 || !self.unit_bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(VolumeTableError::Unit(self.unit_bytes));
        }
        if self.generation.0 > u64::MAX - (1 << 48) {
            return Err(VolumeTableError::Generation(self.generation.0));
        }
        if self.volumes.len() > VOLUMES_MAX {
            return Err(VolumeTableError::VolumeCount(self.volumes.len()));
        }
        let extents = self.extents().count();
        if extents > EXTENTS_MAX {
            return Err(VolumeTableError::ExtentCount(extents));
        }
        let mut taken = Vec::with_capacity(extents);
        for (at, volume) in (0..).zip(&self.volumes) {
            let before = &self.volumes[..usize::from(at)];
            if volume.uuid.is_nil() || before.iter().any(|v| v.uuid == volume.uuid) {
                return Err(VolumeTableError::Identity(at));
            }
            if before.iter().any(|v| v.name == volume.name) {
                return Err(VolumeTableError::Twice(at));
            }
            let units = volume.size_bytes.div_ceil(self.unit_bytes);
            if !volume.size_bytes.is_multiple_of(512) || units == 0 || units != volume.units() {
                return Err(VolumeTableError::Size(at));
            }
            let inside = |e: &Extent| {
                let end = e.end().checked_mul(self.unit_bytes);
                end.is_some_and(|end| end <= crate::ARRAY_BYTES_MAX)
            };
            let sound = |e: &Extent| e.units > 0 && e.end() <= u64::from(u32::MAX) && inside(e);
            if !volume.extents.iter().all(sound) {
                return Err(VolumeTableError::Extent(at));
            }
            taken.extend(volume.extents.iter().map(|e| (e.first, e.end(), at)));
        }
        taken.sort_unstable();
        let mut free_from = self.reserved_units();
        for (first, end, at) in taken {
            if u64::from(first) < free_from {
                return Err(VolumeTableError::Extent(at));
            }
            free_from = end;
        }
        Ok(())
    }

    /// The bytes of the copy at `offset`, whole blocks.
    ///
    /// # Panics
    /// If the value does not pass [`VolumeTable::check`], or no copy lies there.
    pub fn encode(&self, offset: u64) -> Vec<u8> {
        if let Err(error) = self.check() {
            panic!("a senseless table of volumes is not written: {error}");
        }
        assert!(VOLUME_TABLE_OFFSETS.contains(&offset), "a copy's place");
        let extents = self.extents().count();
        let used = HEADER_BYTES + self.volumes.len() * VOLUME_BYTES + extents * EXTENT_BYTES;
        let length = used.next_multiple_of(BLOCK_BYTES as usize);
        let header = RawHeader {
            magic: MAGIC,
            version: VERSION.into(),
            reserved: [0; 2],
            checksum: 0.into(),
            offset: offset.into(),
            array: self.array.0,
            generation: self.generation.0.into(),
            unit_bytes: self.unit_bytes.into(),
            length: (length as u32).into(),
            volumes: (self.volumes.len() as u16).into(),
            reserved_tail: [0; 2],
        };
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(header.as_bytes());
        for volume in &self.volumes {
            let name = volume.name.as_str().as_bytes();
            let mut raw = RawVolume {
                uuid: volume.uuid.0,
                size_bytes: volume.size_bytes.into(),
                created_unix_s: volume.created_unix_s.into(),
                extents: (volume.extents.len() as u32).into(),
                name_bytes: name.len() as u8,
                reserved: [0; 11],
                name: [0; ArrayName::BYTES_MAX],
            };
            raw.name[..name.len()].copy_from_slice(name);
            bytes.extend_from_slice(raw.as_bytes());
        }
        for extent in self.extents() {
            let (first, units) = (extent.first.into(), extent.units.into());
            bytes.extend_from_slice(RawExtent { first, units }.as_bytes());
        }
        bytes.resize(length, 0);
        let sum = checksum::sealed(&bytes, CHECKSUM_AT);
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The copy that lies at `offset` of the array, from bytes that may go on behind it. `None`: it
    /// was never written.
    ///
    /// # Errors
    /// Why these bytes cannot be believed.
    pub fn decode(
        bytes: &[u8],
        offset: u64,
        array: ArrayUuid,
    ) -> Result<Option<VolumeTable>, VolumeTableError> {
        let short = VolumeTableError::Length { bytes: bytes.len() };
        let (header, _) = RawHeader::ref_from_prefix(bytes).map_err(|_| short)?;
        if header.as_bytes().iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        if header.magic != MAGIC {
            return Err(VolumeTableError::NotATable);
        }
        let length = header.length.get() as usize;
        if length < HEADER_BYTES || length as u64 > VOLUME_TABLE_BYTES {
            return Err(VolumeTableError::Length { bytes: length });
        }
        let bytes = bytes.get(..length).ok_or(short)?;
        let (stored, computed) = (header.checksum.get(), checksum::sealed(bytes, CHECKSUM_AT));
        if stored != computed {
            return Err(VolumeTableError::Damaged { stored, computed });
        }
        if header.version.get() != VERSION {
            return Err(VolumeTableError::Version(header.version.get()));
        }
        let named = header.offset.get();
        if named != offset {
            return Err(VolumeTableError::Misplaced { named, offset });
        }
        if header.array != array.0 {
            return Err(VolumeTableError::Foreign(ArrayUuid(header.array)));
        }
        let table = VolumeTable {
            array,
            generation: Generation(header.generation.get()),
            unit_bytes: header.unit_bytes.get(),
            volumes: volumes(header, &bytes[HEADER_BYTES..])?,
        };
        table.check()?;
        Ok(Some(table))
    }
}

/// The volumes behind a header.
fn volumes(header: &RawHeader, bytes: &[u8]) -> Result<Vec<Volume>, VolumeTableError> {
    let count = usize::from(header.volumes.get());
    let split = bytes.split_at_checked(count * VOLUME_BYTES);
    let (rows, mut rest) = split.ok_or(VolumeTableError::VolumeCount(count))?;
    let mut volumes = Vec::with_capacity(count);
    for (at, row) in (0..).zip(rows.chunks_exact(VOLUME_BYTES)) {
        let raw = RawVolume::ref_from_bytes(row).expect("a row has its length");
        let extents = raw.extents.get() as usize;
        let split = rest.split_at_checked(extents.saturating_mul(EXTENT_BYTES));
        let (own, behind) = split.ok_or(VolumeTableError::ExtentCount(extents))?;
        rest = behind;
        if raw.reserved.iter().any(|&byte| byte != 0) {
            return Err(VolumeTableError::Reserved);
        }
        let own = own.chunks_exact(EXTENT_BYTES).map(|bytes| {
            let raw = RawExtent::ref_from_bytes(bytes).expect("a row has its length");
            Extent {
                first: raw.first.get(),
                units: raw.units.get(),
            }
        });
        volumes.push(Volume {
            uuid: VolumeUuid(raw.uuid),
            name: name_of(raw).map_err(|why| VolumeTableError::Name { at, why })?,
            size_bytes: raw.size_bytes.get(),
            created_unix_s: raw.created_unix_s.get(),
            extents: own.collect(),
        });
    }
    let reserved = header.reserved.iter().chain(&header.reserved_tail);
    match rest.iter().chain(reserved).any(|&byte| byte != 0) {
        true => Err(VolumeTableError::Reserved),
        false => Ok(volumes),
    }
}

/// A volume's name; its padding is zero.
fn name_of(raw: &RawVolume) -> Result<ArrayName, NameError> {
    let bytes = usize::from(raw.name_bytes);
    let (name, padding) = raw
        .name
        .split_at_checked(bytes)
        .ok_or(NameError::TooLong { bytes })?;
    let odd = padding.iter().chain(name).find(|byte| !byte.is_ascii());
    if let Some(&byte) = odd.or(padding.iter().find(|&&byte| byte != 0)) {
        let found = char::from(byte);
        return Err(NameError::Character { found });
    }
    std::str::from_utf8(name).expect("it is ASCII").parse()
}

/// What the two copies say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenTable {
    /// The table to believe; `None`: none was ever acknowledged.
    pub table: Option<VolumeTable>,
    /// Which copies hold something else and are to be written anew before the next version is.
    pub behind: [bool; 2],
}

/// Chooses between the two copies.
///
/// A first copy that is whole is never older than what was acknowledged, and so is a second, for
/// both were durable before that. A first copy that is torn beside a second that was never written
/// is the first version of all, cut off. What a newer program wrote is not passed over.
///
/// # Errors
/// Why a copy cannot be believed, where what was acknowledged cannot be told.
pub fn select_table(
    copies: &[Result<Option<VolumeTable>, VolumeTableError>; 2],
) -> Result<ChosenTable, VolumeTableError> {
    use VolumeTableError::{Damaged, Unreadable, Version};
    let table = match copies {
        [Err(error @ Version(_)), _] | [_, Err(error @ Version(_))] => return Err(*error),
        [Ok(Some(first)), Ok(Some(second))] if second.generation > first.generation => Some(second),
        [Ok(Some(table)), _] | [_, Ok(Some(table))] => Some(table),
        [Ok(None) | Err(Damaged { .. } | Unreadable), Ok(None)] => None,
        [Err(error), _] | [Ok(None), Err(error)] => return Err(*error),
    };
    let behind = |copy: &Result<Option<VolumeTable>, VolumeTableError>| match copy {
        Ok(copy) => copy.as_ref() != table,
        Err(_) => true,
    };
    let behind = [behind(&copies[0]), behind(&copies[1])];
    Ok(ChosenTable {
        table: table.cloned(),
        behind,
    })
}
