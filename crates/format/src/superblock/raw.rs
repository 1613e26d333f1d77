//! The superblock as it lies on a member, and how a value comes from it and gets there.
//!
//! Invariants: each field names the failure that it defends against; what a superblock says of its
//! version is the oldest that knows all of its bytes.
//!
//! Deliberately absent: what the fields mean together ([`Superblock::check`]).

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::*;
use crate::checksum;
use crate::error::SuperblockError;
use crate::scrub::{RawScrubs, ScrubMode, ScrubPeriod};
use crate::sessions::{SESSIONS_MAX, Session, Sessions};
use crate::settings::{PRIORITY, SCRUB_MINUTE, SPARE_DELAY_MS};

const MAGIC: [u8; 8] = *b"STRAKE\x1a\n";
const VERSION_MAJOR: u16 = 1;
/// The newest that this program knows; 1 brought what steers background work, 2 that hedged reads
/// can be turned off, 3 how long spares wait, 4 scrubs that go on, 5 arrays that changed their
/// shape, 6 data that moves, 7 bands of rows and what steers data that moves, 8 data that moves to
/// other groups, or to parities that rotate, 9 arrays that are zeroed, 10 which superblocks a
/// member has, 11 a log base above all numbers used, 12 features that may be ignored, 13 sessions.
/// What a superblock says is the oldest that knows all of its bytes, so that an older program goes
/// on reading it.
const VERSION_MINOR: u16 = 13;
const CHECKSUM_AT: usize = 12;
/// The array's data begins with a table of volumes: its block device is none that a user may have.
const FEATURE_CARVED: u64 = 1;
/// Some parities do not rotate: data read without knowing lies elsewhere.
const FEATURE_FIXED_PARITIES: u64 = 2;
/// Data is moving to another shape: only up to the frontier does it lie in the one that is told.
const FEATURE_MOVING: u64 = 4;
/// Strips of users are made of several rows, in one of the shapes: data read without knowing lies
/// elsewhere.
const FEATURE_BANDS: u64 = 8;
/// Data is moving to other groups: what lies in the old shape has other neighbours.
const FEATURE_GROUPS: u64 = 16;
/// Data is moving to parities that rotate: in the old shape they lie elsewhere.
const FEATURE_ROTATING: u64 = 32;
/// Data is moving away from parities that go: in the old shape they rotate.
const FEATURE_LOWERING: u64 = 64;
/// Pages of the region map may say that regions are undecided: a program that does not believe
/// those pages goes by older ones.
const FEATURE_UNDECIDED: u64 = 128;
/// Pages of the region map may say which versions every member had: a program that does not believe
/// those pages goes by older ones, or has none.
const FEATURE_WHOLE_AT: u64 = 256;
/// Since regions became undecided, no strip of them was built from the others. A program that does
/// not know this clears it, and may build some.
const FEATURE_WITNESSED: u64 = 1;
/// Features that a program may ignore.
const FEATURES_COMPATIBLE: u64 = FEATURE_WITNESSED;
/// Features without which a superblock cannot be read rightly.
const FEATURES_KNOWN: u64 = FEATURE_CARVED
    | FEATURE_FIXED_PARITIES
    | FEATURE_MOVING
    | FEATURE_BANDS
    | FEATURE_GROUPS
    | FEATURE_ROTATING
    | FEATURE_LOWERING
    | FEATURE_UNDECIDED
    | FEATURE_WHOLE_AT;
const SLOT_NONE: u8 = 0xff;

/// Which superblocks a member has, as it lies on the member.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawKnown {
    /// An older image of a member taken for the member: the generation that it has, low part first.
    heard_low: U32,
    heard_high: u8,
    /// The member of another array that was made of an older image of this one.
    gap: u8,
}

impl From<Known> for RawKnown {
    fn from(known: Known) -> Self {
        Self {
            heard_low: (known.heard.0 as u32).into(),
            heard_high: (known.heard.0 >> 32) as u8,
            gap: known.gap,
        }
    }
}

impl From<RawKnown> for Known {
    fn from(raw: RawKnown) -> Self {
        let heard = u64::from(raw.heard_low.get()) | u64::from(raw.heard_high) << 32;
        Self {
            heard: Generation(heard),
            gap: raw.gap,
        }
    }
}

/// A row of the table as it lies on the member.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct RawSlot {
    /// A stranger, or a member that was replaced, in this slot.
    member: [u8; 16],
    /// A crash in the middle of a rebuild: what lies behind is not data.
    pub(super) rebuilt_bytes: U64,
    /// A member that was away and comes back: it is stale if it is older than this.
    since: U64,
    /// A member that missed writes taken for one that did not.
    state: u8,
    /// A member with untrusted content brought back by a partial rebuild; 1 no, 2 yes.
    kept: u8,
    /// An older image of a member taken for it.
    pub(super) known: RawKnown,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawReplacement {
    /// A crash in the middle of a replacement: what lies behind is not data.
    rebuilt_bytes: U64,
    /// A replacement that takes another member's place: slot + 1, 0 for a spare that only waits.
    slot: u8,
    /// An older image of the spare taken for it.
    known: RawKnown,
    /// Room to grow; zero.
    reserved: u8,
}

/// A session as it lies on the member; all of it is zero behind the last.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSession {
    /// The generation from which on it wrote them all, low part first.
    first_low: U32,
    first_high: u8,
    /// A member of another branch of the same history taken for that of this one.
    number: U32,
}

impl From<&Session> for RawSession {
    fn from(session: &Session) -> Self {
        Self {
            first_low: (session.first.0 as u32).into(),
            first_high: (session.first.0 >> 32) as u8,
            number: session.number.into(),
        }
    }
}

impl From<&RawSession> for Session {
    fn from(raw: &RawSession) -> Self {
        let first = u64::from(raw.first_low.get()) | u64::from(raw.first_high) << 32;
        Self {
            first: Generation(first),
            number: raw.number.get(),
        }
    }
}

/// The superblock as it lies on the member. Each field names the failure that it defends against.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    /// Something else lies here.
    magic: [u8; 8],
    /// A format of the future that this program would misread.
    version_major: U16,
    /// Tells what a newer program may have added where this one sees reserved bytes.
    version_minor: U16,
    /// Torn writes and rot: CRC-32C of the block with this field zero.
    checksum: U32,
    /// Misdirected writes and reads: the byte offset of this copy.
    offset: U64,
    /// A feature that changes the meaning of what lies on the member.
    features_incompatible: U64,
    /// Features that an older program may ignore, and clears when it writes.
    features_compatible: U64,
    /// A leftover of another array.
    array: [u8; 16],
    /// A drive that was copied or swapped.
    member: [u8; 16],
    /// An old copy taken for the new one: a crash between the copies, a lost write.
    generation: U64,
    /// A stale member believed.
    epoch: U64,
    /// Two arrays of one name confused by a person.
    created_unix_s: U64,
    /// A device that shrank or grew: the last copy would be sought elsewhere.
    device_bytes: U64,
    /// A planner of another version that would put the map elsewhere; so for all places.
    map_offset: U64,
    log_offset: U64,
    log_bytes: U64,
    data_offset: U64,
    data_bytes: U64,
    region_bytes: U64,
    map_pages: U32,
    /// Data read with another geometry than it was written with; so for block, level and shape.
    strip_bytes: U32,
    block_bytes: U32,
    /// A failing drive that is kept for ever, or a good one that is dropped for one error.
    read_error_threshold: U32,
    level: u8,
    level_n: u8,
    level_m: u8,
    members: u8,
    group_size: u8,
    /// A log that is not replayed because the policy was forgotten.
    write_hole: u8,
    /// An unclean stop taken for a clean one: 1 unclean, 2 clean.
    clean: u8,
    /// One copy read as the other: 0 first, 1 last.
    copy: u8,
    /// A spare taken for data: 1 slot, 2 spare.
    role: u8,
    /// Members exchanged between slots; 255 for a spare.
    slot: u8,
    spare_count: u8,
    rebuild_priority: u8,
    name_bytes: u8,
    /// A log replayed that does not tell all, or parity distrusted although it does: 1 not all, 2
    /// all.
    covered: u8,
    /// A state taken for that of other regions.
    page_regions: U16,
    /// Room to grow; zero.
    reserved_head: [u8; 4],
    /// A list of unreadable blocks looked for, or written, over what lies beside it.
    unreadable_bytes: U32,
    name: [u8; ArrayName::BYTES_MAX],
    /// A foreign drive taken for a spare and overwritten.
    spares: [[u8; 16]; SPARES_MAX],
    /// A lost member believed when it returns: every member knows the state of all.
    slots: [RawSlot; MEMBERS_MAX],
    /// A replacement begun again from the start at every restart; one for each spare.
    replacements: [RawReplacement; SPARES_MAX],
    /// A member that left before the flags of the region map began to count.
    whole_since: U64,
    /// Two pasts taken for one, after every row that told them apart was replaced.
    editions: [U32; EDITIONS],
    /// A record replayed long after its write was in place, over newer data.
    log_base: U64,
    /// An array that has to be started by force again after it was stopped cleanly.
    accepted: U64,
    /// Background work that crowds out requests after a restart: microseconds, 0 for no target.
    latency_target_us: U32,
    /// The same for a resync and a scrub that go on; 0 for the default of 50.
    resync_priority: u8,
    scrub_priority: u8,
    /// A table from before the shape changed taken for that of another array.
    shape_since: U64,
    /// Data read where it would lie if all parities rotated.
    fixed_parities: u8,
    /// Data read where it does not lie yet, or no more: 0 no move, 1 moving, 2 stopped.
    moving: u8,
    /// Members of the shape that data moves from.
    moving_members: u8,
    /// The frontier, in rows of the new shape.
    moved_rows: U64,
    /// Data read where it would lie if strips of users were one row high: the binary logarithm of
    /// the rows.
    band: u8,
    /// The same in the shape that data moves from.
    moving_band: u8,
    /// Data that moves crowds out requests after a restart; 0 for the default of 50.
    restripe_priority: u8,
    /// Data read, or computed from others, as if groups had always been what they are to be:
    /// members of a group of the shape that data moves from; 0 where groups stay what they are.
    moving_group: u8,
    /// The same as if parities had always rotated: those of the shape that data moves from which do
    /// not; 0 where as many do not in the new one. One more than these where more do not in the new
    /// one.
    moving_fixed: u8,
    /// Zeroing that crowds out requests after a restart; 0 for the default of 50.
    init_priority: u8,
    /// An array that was to be zeroed throughout and, after a restart, is not: 0 no, 1 zeroing.
    zeroing: u8,
    /// Numbers of operations given out again after a clean stop: 0 where some may have been used
    /// from the log base on, 1 where none were.
    numbers_noted: u8,
    /// Members of two branches of one history taken for those of one array: the newest first.
    sessions: [RawSession; SESSIONS_MAX],
    /// Room to grow; zero.
    reserved: [u8; 242],
    /// An array never scrubbed after a restart, or that repairs what it was told only to report.
    scrub_period: u8,
    scrub_policy: u8,
    /// One more than the minutes.
    scrub_minute: U16,
    /// Scrubs.
    scrubs: RawScrubs,
    /// A spare that takes the place of a member that only came back late, after a restart: 0 for
    /// the default, else one more than the milliseconds.
    spare_delay: U32,
    /// An array that was told not to do so loads its members with hedged reads: 0 on, 1 off.
    unhedged: u8,
    /// A torn head: the magic once more, so that what lost its first sector is known as ours.
    magic_tail: [u8; 8],
}

const _: () = {
    assert!(size_of::<RawSuperblock>() == SUPERBLOCK_BYTES);
    assert!(size_of::<RawSlot>() == 40);
    assert!(std::mem::offset_of!(RawSuperblock, checksum) == CHECKSUM_AT);
    assert!(std::mem::offset_of!(RawSuperblock, array) == 40);
    assert!(std::mem::offset_of!(RawSuperblock, device_bytes) == 96);
    assert!(std::mem::offset_of!(RawSuperblock, level) == 168);
    assert!(std::mem::offset_of!(RawSuperblock, page_regions) == 182);
    assert!(std::mem::offset_of!(RawSuperblock, unreadable_bytes) == 188);
    assert!(std::mem::offset_of!(RawSuperblock, name) == 192);
    assert!(std::mem::offset_of!(RawSuperblock, spares) == 224);
    assert!(std::mem::offset_of!(RawSuperblock, slots) == 480);
    assert!(std::mem::offset_of!(RawSuperblock, replacements) == 3040);
    assert!(std::mem::offset_of!(RawSuperblock, whole_since) == 3296);
    assert!(std::mem::offset_of!(RawSuperblock, editions) == 3304);
    assert!(std::mem::offset_of!(RawSuperblock, log_base) == 3560);
    assert!(std::mem::offset_of!(RawSuperblock, accepted) == 3568);
    assert!(std::mem::offset_of!(RawSuperblock, latency_target_us) == 3576);
    assert!(std::mem::offset_of!(RawSuperblock, shape_since) == 3582);
    assert!(std::mem::offset_of!(RawSuperblock, fixed_parities) == 3590);
    assert!(std::mem::offset_of!(RawSuperblock, moving) == 3591);
    assert!(std::mem::offset_of!(RawSuperblock, moved_rows) == 3593);
    assert!(std::mem::offset_of!(RawSuperblock, band) == 3601);
    assert!(std::mem::offset_of!(RawSuperblock, restripe_priority) == 3603);
    assert!(std::mem::offset_of!(RawSuperblock, moving_group) == 3604);
    assert!(std::mem::offset_of!(RawSuperblock, moving_fixed) == 3605);
    assert!(std::mem::offset_of!(RawSuperblock, init_priority) == 3606);
    assert!(std::mem::offset_of!(RawSuperblock, numbers_noted) == 3608);
    assert!(std::mem::offset_of!(RawSuperblock, sessions) == 3609);
    assert!(std::mem::offset_of!(RawSuperblock, reserved) == 3753);
    assert!(std::mem::offset_of!(RawSuperblock, scrub_period) == 3995);
    assert!(std::mem::offset_of!(RawSuperblock, scrubs) == 3999);
    assert!(std::mem::offset_of!(RawSuperblock, spare_delay) == 4083);
    assert!(std::mem::offset_of!(RawSuperblock, unhedged) == 4087);
    assert!(std::mem::offset_of!(RawSuperblock, magic_tail) == 4088);
};

/// Rows of a band, from their binary logarithm.
fn bands(log: u8) -> Result<u16, Invalid> {
    let rows = 1u16.checked_shl(u32::from(log));
    rows.ok_or(Invalid::Bands(u16::from(log)))
}

impl Superblock {
    /// This copy's bytes, for the place at `offset`: one of [`Layout::superblock_offsets`].
    ///
    /// # Panics
    /// If the value does not pass [`Superblock::check`], or the place is neither of the two.
    pub fn encode(&self, offset: u64) -> Box<[u8; SUPERBLOCK_BYTES]> {
        if let Err(invalid) = self.check() {
            panic!("a senseless superblock is not written: {invalid}");
        }
        let copy = copy_at(&self.layout, offset).expect("a superblock lies in one of two places");
        let mut raw = self.to_raw(offset, copy);
        raw.checksum = checksum::sealed(raw.as_bytes(), CHECKSUM_AT).into();
        let mut bytes = Box::new([0; SUPERBLOCK_BYTES]);
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }

    /// The superblock that lies at `offset`.
    ///
    /// # Errors
    /// Why these bytes cannot be believed. Only the first of several reasons is told, in the order:
    /// not ours, damaged, too new, misplaced, senseless.
    pub fn decode(bytes: &[u8], offset: u64) -> Result<Superblock, SuperblockError> {
        let raw = RawSuperblock::ref_from_bytes(bytes)
            .map_err(|_| SuperblockError::Length { bytes: bytes.len() })?;
        if raw.magic != MAGIC && raw.magic_tail != MAGIC {
            return Err(SuperblockError::NotStrake);
        }
        let (stored, computed) = (raw.checksum.get(), checksum::sealed(bytes, CHECKSUM_AT));
        if stored != computed || raw.magic != raw.magic_tail {
            return Err(SuperblockError::Damaged { stored, computed });
        }
        let (major, minor) = (raw.version_major.get(), raw.version_minor.get());
        if major != VERSION_MAJOR {
            return Err(SuperblockError::Version { major, minor });
        }
        let unknown = raw.features_incompatible.get() & !FEATURES_KNOWN;
        if unknown != 0 {
            return Err(SuperblockError::Features { unknown });
        }
        if raw.offset.get() != offset {
            return Err(SuperblockError::Misplaced {
                named: raw.offset.get(),
                offset,
            });
        }
        raw.parse(offset).map_err(SuperblockError::Invalid)
    }

    /// How large these bytes, which need not be whole, say that their device was. `None` where that
    /// cannot have been.
    pub(crate) fn claimed_device_bytes(bytes: &[u8]) -> Option<u64> {
        let raw = RawSuperblock::ref_from_bytes(bytes).ok()?;
        let device_bytes = raw.device_bytes.get();
        (device_bytes > 2 * SUPERBLOCK_BYTES as u64).then_some(device_bytes)
    }

    /// The fields as they lie on the member, without the checksum.
    fn to_raw(&self, offset: u64, copy: u8) -> RawSuperblock {
        let mut raw = RawSuperblock::empty();
        raw.offset = offset.into();
        raw.array = self.array.0;
        raw.member = self.member.0;
        raw.generation = self.generation.0.into();
        raw.epoch = self.epoch.0.into();
        raw.whole_since = self.whole_since.0.into();
        raw.shape_since = self.shape_since.0.into();
        raw.fixed_parities = self.fixed_parities;
        raw.put_moving(self);
        raw.band = self.band_rows.ilog2() as u8;
        raw.editions = self.editions.map(U32::from);
        raw.created_unix_s = self.created_unix_s.into();
        raw.put_layout(&self.layout);
        raw.strip_bytes = self.strip_bytes.into();
        raw.block_bytes = self.block_bytes.into();
        (raw.level, raw.level_n, raw.level_m) = level_codes(self.level);
        raw.members = self.members;
        raw.group_size = self.group_size;
        raw.write_hole = match self.write_hole {
            WriteHole::Closed => 1,
            WriteHole::Degraded => 2,
            WriteHole::Resync => 3,
        };
        raw.features_incompatible = raw.features_of(self).into();
        raw.features_compatible = match self.witnessed {
            true => FEATURE_WITNESSED.into(),
            false => 0.into(),
        };
        raw.clean = if self.clean { 2 } else { 1 };
        raw.covered = if self.covered { 2 } else { 1 };
        raw.log_base = self.log_base.into();
        raw.accepted = self.accepted.into();
        raw.copy = copy;
        (raw.role, raw.slot) = match self.role {
            Role::Slot(slot) => (1, slot.0),
            Role::Spare => (2, SLOT_NONE),
        };
        raw.spare_count = self.spares.len() as u8;
        raw.scrubs.put(self);
        raw.zeroing = u8::from(self.zeroing);
        raw.numbers_noted = u8::from(self.numbers_noted);
        for (row, session) in raw.sessions.iter_mut().zip(self.sessions.iter()) {
            *row = session.into();
        }
        raw.put_settings(&self.settings);
        let name = self.name.as_str().as_bytes();
        raw.name_bytes = name.len() as u8;
        raw.name[..name.len()].copy_from_slice(name);
        for (row, spare) in raw.spares.iter_mut().zip(&self.spares) {
            *row = spare.0;
        }
        for replacement in &self.replacements {
            let spare = self
                .spares
                .iter()
                .position(|spare| *spare == replacement.member);
            let row = &mut raw.replacements[spare.expect("check() found it among the spares")];
            row.slot = replacement.slot.0 + 1;
            row.rebuilt_bytes = replacement.rebuilt_bytes.into();
            row.known = replacement.known.into();
        }
        for (row, record) in raw.slots.iter_mut().zip(&self.slots) {
            *row = RawSlot::from(record);
        }
        raw.version_minor = raw.minor_in_use().into();
        raw
    }
}

/// Which copy lies at `offset`: 0 the first, 1 the last, None neither.
fn copy_at(layout: &Layout, offset: u64) -> Option<u8> {
    let offsets = Layout::superblock_offsets(layout.device_bytes);
    offsets
        .iter()
        .position(|&at| at == offset)
        .map(|copy| copy as u8)
}

/// The code of a level and its N and M, which are zero at all other levels.
fn level_codes(level: Level) -> (u8, u8, u8) {
    match level {
        Level::Raid0 => (1, 0, 0),
        Level::Raid1 => (2, 0, 0),
        Level::Raid5 => (3, 0, 0),
        Level::Raid6 => (4, 0, 0),
        Level::Raid7_3 => (5, 0, 0),
        Level::Raid10 => (6, 0, 0),
        Level::Raid50 => (7, 0, 0),
        Level::Raid60 => (8, 0, 0),
        Level::Raid70 => (9, 0, 0),
        Level::Nm { n, m } => (10, n, m),
    }
}

/// The level of its codes.
fn level_of(codes: (u8, u8, u8)) -> Result<Level, Invalid> {
    match codes {
        (1, 0, 0) => Ok(Level::Raid0),
        (2, 0, 0) => Ok(Level::Raid1),
        (3, 0, 0) => Ok(Level::Raid5),
        (4, 0, 0) => Ok(Level::Raid6),
        (5, 0, 0) => Ok(Level::Raid7_3),
        (6, 0, 0) => Ok(Level::Raid10),
        (7, 0, 0) => Ok(Level::Raid50),
        (8, 0, 0) => Ok(Level::Raid60),
        (9, 0, 0) => Ok(Level::Raid70),
        (10, n, m) => Ok(Level::Nm { n, m }),
        (code, _, _) => Err(Invalid::LevelCode(code)),
    }
}

impl From<&SlotRecord> for RawSlot {
    fn from(record: &SlotRecord) -> Self {
        let (state, rebuilt_bytes) = match record.state {
            SlotState::InSync => (1, 0),
            SlotState::Rebuilding { rebuilt_bytes } => (2, rebuilt_bytes),
            SlotState::Missing => (3, 0),
            SlotState::Failed => (4, 0),
        };
        Self {
            member: record.member.0,
            rebuilt_bytes: rebuilt_bytes.into(),
            since: record.since.0.into(),
            state,
            kept: if record.kept { 2 } else { 1 },
            known: record.known.into(),
        }
    }
}

impl RawSlot {
    /// The record of slot `slot`.
    fn parse(&self, slot: usize) -> Result<SlotRecord, Invalid> {
        let state = match (self.state, self.rebuilt_bytes.get()) {
            (1, 0) => SlotState::InSync,
            (2, rebuilt_bytes) => SlotState::Rebuilding { rebuilt_bytes },
            (3, 0) => SlotState::Missing,
            (4, 0) => SlotState::Failed,
            (1 | 3 | 4, _) => return Err(Invalid::SlotRecord(slot as u8)),
            (code, _) => {
                return Err(Invalid::StateCode {
                    slot: slot as u8,
                    code,
                });
            }
        };
        let kept = match self.kept {
            1 => false,
            2 => true,
            _ => return Err(Invalid::SlotRecord(slot as u8)),
        };
        Ok(SlotRecord {
            member: MemberUuid(self.member),
            state,
            since: Epoch(self.since.get()),
            kept,
            known: self.known.into(),
        })
    }
}

impl RawSuperblock {
    /// A superblock that says only what it is.
    fn empty() -> Self {
        let mut raw: Self = zerocopy::FromZeros::new_zeroed();
        raw.magic = MAGIC;
        raw.magic_tail = MAGIC;
        raw.version_major = VERSION_MAJOR.into();
        raw
    }

    /// Writes down the places.
    fn put_layout(&mut self, layout: &Layout) {
        self.device_bytes = layout.device_bytes.into();
        self.map_offset = layout.map_offset.into();
        self.map_pages = layout.map_pages.into();
        self.page_regions = layout.page_regions.into();
        self.unreadable_bytes = layout.unreadable_bytes.into();
        self.log_offset = layout.log_offset.into();
        self.log_bytes = layout.log_bytes.into();
        self.data_offset = layout.data_offset.into();
        self.data_bytes = layout.data_bytes.into();
        self.region_bytes = layout.region_bytes.into();
    }

    /// Writes down a move.
    fn put_moving(&mut self, superblock: &Superblock) {
        let Some(moving) = &superblock.moving else {
            return;
        };
        if moving.regroups(superblock.members, superblock.group_size) {
            self.moving_group = moving.group_size;
        }
        if moving.rotates(superblock.fixed_parities) {
            self.moving_fixed = moving.fixed_parities;
        } else if moving.lowers(superblock.fixed_parities) {
            self.moving_fixed = moving.fixed_parities + 1;
        }
        self.moving = if moving.stopped { 2 } else { 1 };
        self.moving_members = moving.members;
        self.moved_rows = moving.moved_rows.into();
        self.moving_band = moving.band_rows.ilog2() as u8;
    }

    /// The move, if there is one.
    fn moving(&self) -> Result<Option<Moving>, Invalid> {
        let told = |feature| self.has(feature);
        let (members, moved_rows) = (self.moving_members, self.moved_rows.get());
        let band_rows = bands(self.moving_band)?;
        let moving = |stopped| {
            let mut moving = Moving {
                members,
                group_size: members,
                fixed_parities: match self.moving_fixed {
                    0 => self.fixed_parities,
                    fixed if told(FEATURE_LOWERING) => fixed - 1,
                    fixed => fixed,
                },
                band_rows,
                moved_rows,
                stopped,
            };
            match (self.moving_group, told(FEATURE_GROUPS)) {
                // As many groups as there are.
                (0, false) if self.group_size < self.members => moving.group_size = self.group_size,
                (0, false) => {}
                (size, true) => moving.group_size = size,
                (_, false) => return Err(Invalid::Moving(members)),
            }
            let groups = moving.regroups(self.members, self.group_size) == told(FEATURE_GROUPS);
            let lowers = moving.lowers(self.fixed_parities) == told(FEATURE_LOWERING);
            let one = told(FEATURE_ROTATING) != told(FEATURE_LOWERING);
            let rotating = match self.moving_fixed {
                0 => !told(FEATURE_ROTATING | FEATURE_LOWERING),
                _ => one,
            };
            match groups && rotating && lowers {
                true => Ok(Some(moving)),
                false => Err(Invalid::Moving(members)),
            }
        };
        match (self.moving, told(FEATURE_MOVING)) {
            (0, false)
                if members | self.moving_group | self.moving_fixed == 0
                    && !told(FEATURE_GROUPS | FEATURE_ROTATING | FEATURE_LOWERING)
                    && (moved_rows, band_rows) == (0, 1) =>
            {
                Ok(None)
            }
            (1, true) => moving(false),
            (2, true) => moving(true),
            _ => Err(Invalid::Moving(members)),
        }
    }

    /// Writes down the settings. What is as it always was needs no newer program to read it.
    fn put_settings(&mut self, settings: &Settings) {
        let sparing = |priority: u8| if priority == PRIORITY { 0 } else { priority };
        self.rebuild_priority = settings.rebuild_priority;
        self.read_error_threshold = settings.read_error_threshold.into();
        self.latency_target_us = settings.latency_target_us.into();
        self.resync_priority = sparing(settings.resync_priority);
        self.scrub_priority = sparing(settings.scrub_priority);
        self.restripe_priority = sparing(settings.restripe_priority);
        self.init_priority = sparing(settings.init_priority);
        self.unhedged = u8::from(!settings.hedged_reads);
        self.spare_delay = match settings.spare_delay_ms {
            SPARE_DELAY_MS => 0,
            ms => ms + 1,
        }
        .into();
        self.scrub_period = settings.scrub_period.code();
        self.scrub_policy = match settings.scrub_policy {
            ScrubMode::Check => 0,
            policy => policy.code(),
        };
        self.scrub_minute = match settings.scrub_minute {
            SCRUB_MINUTE => 0,
            minute => minute + 1,
        }
        .into();
    }

    /// The oldest minor version that knows all the bytes in use.
    fn minor_in_use(&self) -> u16 {
        let steers_jobs =
            self.latency_target_us.get() | u32::from(self.resync_priority | self.scrub_priority);
        let scrubs = self.scrubs.as_bytes().iter().any(|&byte| byte != 0)
            || u16::from(self.scrub_period | self.scrub_policy) | self.scrub_minute.get() != 0;
        let moves = u64::from(self.moving | self.moving_members) | self.moved_rows.get();
        let slots = self.slots.iter().map(|row| row.known);
        let mut known = slots.chain(self.replacements.iter().map(|row| row.known));
        let uses = [
            (13, self.sessions[0].number.get() != 0),
            (12, self.features_compatible.get() != 0),
            (11, self.numbers_noted != 0),
            (
                10,
                known.any(|known| Known::from(known) != Known::default()),
            ),
            (9, self.init_priority | self.zeroing != 0),
            (8, self.moving_group | self.moving_fixed != 0),
            (
                7,
                self.band | self.moving_band | self.restripe_priority != 0,
            ),
            (6, moves != 0),
            (
                5,
                self.shape_since.get() | u64::from(self.fixed_parities) != 0,
            ),
            (4, scrubs),
            (3, self.spare_delay.get() != 0),
            (2, self.unhedged != 0),
            (1, steers_jobs != 0),
        ];
        uses.iter()
            .find(|(_, used)| *used)
            .map_or(0, |(minor, _)| *minor)
    }

    /// The settings.
    fn settings(&self) -> Result<Settings, Invalid> {
        let known = |priority: u8| if priority == 0 { PRIORITY } else { priority };
        Ok(Settings {
            rebuild_priority: self.rebuild_priority,
            resync_priority: known(self.resync_priority),
            scrub_priority: known(self.scrub_priority),
            restripe_priority: known(self.restripe_priority),
            init_priority: known(self.init_priority),
            latency_target_us: self.latency_target_us.get(),
            read_error_threshold: self.read_error_threshold.get(),
            hedged_reads: match self.unhedged {
                0 => true,
                1 => false,
                code => return Err(Invalid::HedgedReadsCode(code)),
            },
            spare_delay_ms: match self.spare_delay.get() {
                0 => SPARE_DELAY_MS,
                more => more - 1,
            },
            scrub_period: ScrubPeriod::of_code(self.scrub_period)?,
            scrub_policy: match self.scrub_policy {
                // Its code is 0.
                1 => return Err(Invalid::ScrubCode(1)),
                code => ScrubMode::of_code(code)?.unwrap_or(ScrubMode::Check),
            },
            scrub_minute: match self.scrub_minute.get() {
                0 => SCRUB_MINUTE,
                more => more - 1,
            },
        })
    }

    /// The places.
    fn layout(&self) -> Layout {
        Layout {
            device_bytes: self.device_bytes.get(),
            map_offset: self.map_offset.get(),
            map_pages: self.map_pages.get(),
            page_regions: self.page_regions.get(),
            unreadable_bytes: self.unreadable_bytes.get(),
            log_offset: self.log_offset.get(),
            log_bytes: self.log_bytes.get(),
            data_offset: self.data_offset.get(),
            data_bytes: self.data_bytes.get(),
            region_bytes: self.region_bytes.get(),
        }
    }

    /// The name; its padding is zero.
    fn array_name(&self) -> Result<ArrayName, Invalid> {
        let split = self.name.split_at_checked(usize::from(self.name_bytes));
        let (name, padding) = split.ok_or(Invalid::NameBytes)?;
        if padding.iter().any(|&byte| byte != 0) {
            return Err(Invalid::NameBytes);
        }
        let name = std::str::from_utf8(name).map_err(|_| Invalid::NameBytes)?;
        name.parse().map_err(Invalid::Name)
    }

    /// The table: as many rows as there are members; the rows behind them are empty.
    fn table(&self) -> Result<Vec<SlotRecord>, Invalid> {
        let split = self.slots.split_at_checked(usize::from(self.members));
        let (used, unused) = split.ok_or(Invalid::SlotCount(usize::from(self.members)))?;
        if unused.as_bytes().iter().any(|&byte| byte != 0) {
            return Err(Invalid::UnusedRow);
        }
        used.iter()
            .enumerate()
            .map(|(slot, row)| row.parse(slot))
            .collect()
    }

    /// The spares: as many as are counted; the rows behind them are empty.
    fn spare_list(&self) -> Result<Vec<MemberUuid>, Invalid> {
        let split = self.spares.split_at_checked(usize::from(self.spare_count));
        let (used, unused) = split.ok_or(Invalid::SpareCount(usize::from(self.spare_count)))?;
        if unused.as_bytes().iter().any(|&byte| byte != 0) {
            return Err(Invalid::UnusedRow);
        }
        Ok(used.iter().copied().map(MemberUuid).collect())
    }

    /// The sessions: rows behind the last are empty.
    fn session_list(&self) -> Result<Sessions, Invalid> {
        let empty = |row: &RawSession| row.as_bytes().iter().all(|&byte| byte == 0);
        let used = self.sessions.iter().position(empty);
        let (used, unused) = self.sessions.split_at(used.unwrap_or(SESSIONS_MAX));
        if !unused.iter().all(empty) {
            return Err(Invalid::Sessions);
        }
        Sessions::new(used.iter().map(Session::from).collect())
    }

    /// What the spares are filled for.
    fn replacement_list(&self, spares: &[MemberUuid]) -> Result<Vec<Replacement>, Invalid> {
        let (used, unused) = self.replacements.split_at(spares.len());
        let waits = |row: &RawReplacement| {
            let nothing = Known::from(row.known) == Known::default();
            row.slot == 0 && row.rebuilt_bytes.get() == 0 && nothing
        };
        if !unused.iter().all(waits) || used.iter().any(|r| r.slot == 0 && !waits(r)) {
            return Err(Invalid::UnusedRow);
        }
        let filled = used.iter().zip(spares).filter(|(row, _)| row.slot > 0);
        Ok(filled
            .map(|(row, member)| Replacement {
                member: *member,
                slot: Slot(row.slot - 1),
                rebuilt_bytes: row.rebuilt_bytes.get(),
                known: row.known.into(),
            })
            .collect())
    }

    /// What an older program must not ignore of a superblock with this shape.
    fn features_of(&self, superblock: &Superblock) -> u64 {
        let moving = superblock.moving.as_ref();
        let lowers = moving.is_some_and(|moving| moving.lowers(superblock.fixed_parities));
        let features = [
            (superblock.carved, FEATURE_CARVED),
            (superblock.fixed_parities > 0, FEATURE_FIXED_PARITIES),
            (superblock.moving.is_some(), FEATURE_MOVING),
            (self.band | self.moving_band > 0, FEATURE_BANDS),
            (self.moving_group > 0, FEATURE_GROUPS),
            (self.moving_fixed > 0 && !lowers, FEATURE_ROTATING),
            (lowers, FEATURE_LOWERING),
            (superblock.undecided, FEATURE_UNDECIDED),
            (superblock.map_whole_at, FEATURE_WHOLE_AT),
        ];
        let used = features.iter().filter(|(used, _)| *used);
        used.map(|(_, bit)| bit).sum()
    }

    fn has(&self, feature: u64) -> bool {
        self.features_incompatible.get() & feature != 0
    }

    /// Whether the features say of fixed parities and of bands what their bytes say.
    fn check_features(&self) -> Result<(), Invalid> {
        if self.has(FEATURE_FIXED_PARITIES) != (self.fixed_parities > 0) {
            return Err(Invalid::FixedParities(self.fixed_parities));
        }
        if self.has(FEATURE_BANDS) != (self.band | self.moving_band > 0) {
            return Err(Invalid::Bands(u16::from(self.band)));
        }
        Ok(())
    }

    fn write_hole(&self) -> Result<WriteHole, Invalid> {
        match self.write_hole {
            1 => Ok(WriteHole::Closed),
            2 => Ok(WriteHole::Degraded),
            3 => Ok(WriteHole::Resync),
            code => Err(Invalid::WriteHoleCode(code)),
        }
    }

    fn role(&self) -> Result<Role, Invalid> {
        match (self.role, self.slot) {
            (1, slot) => Ok(Role::Slot(Slot(slot))),
            (2, SLOT_NONE) => Ok(Role::Spare),
            (code, _) => Err(Invalid::RoleCode(code)),
        }
    }

    /// Whether bytes are in use of which a program of this version knows nothing. A newer minor
    /// version may use them for what an older program may ignore.
    fn check_reserved(&self) -> Result<(), Invalid> {
        let rows = self.replacements.iter().map(|row| &row.reserved);
        let used = rows
            .chain(&self.reserved_head)
            .chain(&self.reserved)
            .any(|&byte| byte != 0);
        let used = used || self.version_minor.get() < self.minor_in_use() || !self.scrubs.sound();
        let newer = self.version_minor.get() > VERSION_MINOR;
        let unknown = self.features_compatible.get() & !FEATURES_COMPATIBLE;
        if !newer && (used || unknown != 0) {
            return Err(Invalid::Reserved);
        }
        Ok(())
    }

    /// The value of a block that is whole, known and read where it says that it lies.
    fn parse(&self, offset: u64) -> Result<Superblock, Invalid> {
        self.check_reserved()?;
        self.check_features()?;
        let spares = self.spare_list()?;
        let superblock = Superblock {
            array: ArrayUuid(self.array),
            name: self.array_name()?,
            level: level_of((self.level, self.level_n, self.level_m))?,
            strip_bytes: self.strip_bytes.get(),
            band_rows: bands(self.band)?,
            group_size: self.group_size,
            members: self.members,
            block_bytes: self.block_bytes.get(),
            fixed_parities: self.fixed_parities,
            layout: self.layout(),
            shape_since: Epoch(self.shape_since.get()),
            moving: self.moving()?,
            created_unix_s: self.created_unix_s.get(),
            write_hole: self.write_hole()?,
            carved: self.has(FEATURE_CARVED),
            undecided: self.has(FEATURE_UNDECIDED),
            witnessed: self.features_compatible.get() & FEATURE_WITNESSED != 0,
            map_whole_at: self.has(FEATURE_WHOLE_AT),
            clean: match self.clean {
                1 => false,
                2 => true,
                code => return Err(Invalid::CleanCode(code)),
            },
            covered: match self.covered {
                1 => false,
                2 => true,
                code => return Err(Invalid::CoveredCode(code)),
            },
            log_base: self.log_base.get(),
            accepted: self.accepted.get(),
            epoch: Epoch(self.epoch.get()),
            generation: Generation(self.generation.get()),
            sessions: self.session_list()?,
            editions: self.editions.map(U32::get),
            whole_since: Epoch(self.whole_since.get()),
            member: MemberUuid(self.member),
            role: self.role()?,
            slots: self.table()?,
            replacements: self.replacement_list(&spares)?,
            spares,
            settings: self.settings()?,
            zeroing: match self.zeroing {
                0 => false,
                1 => true,
                code => return Err(Invalid::ZeroingCode(code)),
            },
            numbers_noted: match self.numbers_noted {
                0 => false,
                1 => true,
                code => return Err(Invalid::NumbersNotedCode(code)),
            },
            scrub: self.scrubs.scrub()?,
            scrub_begun_unix_s: self.scrubs.begun_unix_s(),
            last_scrub: self.scrubs.last()?,
        };
        superblock.check()?;
        match copy_at(&superblock.layout, offset) {
            Some(copy) if copy == self.copy => Ok(superblock),
            _ => Err(Invalid::Copy(self.copy)),
        }
    }
}
