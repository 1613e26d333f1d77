//! The superblock: the identity of a member, its array, and what this member knows of the others.
//!
//! Protocol: a change is written to the first copy, made durable, then to the last copy, with the
//! next generation; so at any time one copy is whole. A change of membership also takes the next
//! epoch, and no write is acknowledged under an epoch that is not durable on every live member (in
//! sync or rebuilding).
//!
//! Invariants: parsed is trusted: a decoded [`Superblock`] is whole, in its place and passes
//! [`Superblock::check`]; what does not pass is never encoded. Place and algorithm of the checksum
//! are the same in all versions.
//!
//! Deliberately absent: how it lies on a member (`raw`), which of several superblocks to believe
//! (`select`), and counters that change with I/O.

mod raw;

use zerocopy::IntoBytes;

use crate::ARRAY_BYTES_MAX;
use crate::checksum;
use crate::error::Invalid;
use crate::identity::{ArrayName, ArrayUuid, Epoch, Generation, MemberUuid, Slot, WriteHole};
use crate::layout::{Layout, STRIP_BYTES_MAX, check_strip};
use crate::level::Level;
use crate::moving::Moving;
use crate::scrub::{ScrubRecord, ScrubResult};
use crate::sessions::Sessions;
use crate::settings::Settings;
use crate::superblock::raw::RawSlot;

/// Bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// The most slots of an array.
pub const MEMBERS_MAX: usize = 64;
/// How many epochs back a superblock can tell of its own past.
pub const EDITIONS: usize = 64;
/// The most spares of an array.
pub const SPARES_MAX: usize = 16;

/// What a member is to its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It holds, or is to hold, the data of a slot.
    Slot(Slot),
    /// It waits.
    Spare,
}

/// What the array knows of the member in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotState {
    /// All its data is true.
    InSync,
    /// Its data is true up to a point, and every write reaches it.
    Rebuilding {
        /// Data bytes of the member, from 0, that are valid.
        rebuilt_bytes: u64,
    },
    /// It was not there when it was needed, or the slot has no member.
    Missing,
    /// It failed.
    Failed,
}

impl SlotState {
    /// Whether every write reaches this member: in sync or rebuilding.
    pub fn is_live(self) -> bool {
        matches!(self, SlotState::InSync | SlotState::Rebuilding { .. })
    }
}

/// One row of the table of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotRecord {
    /// The member of this slot; nil (and then `Missing`) where it was removed.
    pub member: MemberUuid,
    /// Its state.
    pub state: SlotState,
    /// The epoch with which it entered this state (the kind of state: progress of a rebuild does
    /// not count), or with which this member got the slot.
    pub since: Epoch,
    /// Outside the regions that are *behind* (see [`crate::region_map`]) this member holds what it
    /// should: it was in sync in the epoch `whole_since` or later, and nothing but its absence
    /// stands against it. Of a member that is out: it may come back by a partial rebuild. Of one
    /// that is rebuilding: this is one. Never of a member in sync, or of an empty slot.
    pub kept: bool,
    /// Which superblocks this member is known to have: those of an older image of it lack some.
    pub known: Known,
}

/// What a table knows of the superblocks that a member has. All of it is zero where nothing is
/// known, as in a table of a version that did not note it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Known {
    /// Both copies of this generation were durable on the member when the table was written.
    pub heard: Generation,
    /// Of a member that is out: so much newer than `heard` is the first generation that says so
    /// (255: or more). What the member itself has is older than that.
    pub gap: u8,
}

impl Known {
    /// Generations are noted up to this one.
    pub const HEARD_MAX: u64 = (1 << 40) - 1;

    /// Of a member that has this generation.
    pub fn heard(generation: Generation) -> Known {
        match generation.0 > Known::HEARD_MAX {
            true => Known::default(),
            false => Known {
                heard: generation,
                gap: 0,
            },
        }
    }

    /// Whether this can be known of a member that is not out (`is_in`), or is.
    fn is_sound(self, is_in: bool) -> bool {
        let heard = self.heard.0;
        heard <= Known::HEARD_MAX && (self.gap == 0 || (heard > 0 && !is_in))
    }

    /// The same of a member that is out from generation `first` on.
    pub fn until(self, first: Generation) -> Known {
        let gap = first.0.saturating_sub(self.heard.0).min(u64::from(u8::MAX));
        Known {
            gap: if self.heard.0 == 0 { 0 } else { gap as u8 },
            ..self
        }
    }
}

/// A spare that is being filled to take the place of a member which is still in sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replacement {
    /// Which of the spares.
    pub member: MemberUuid,
    /// The slot that it will take.
    pub slot: Slot,
    /// Data bytes of it, from 0, that are valid; every write below reaches it.
    pub rebuilt_bytes: u64,
    /// As that of a slot; it is not out.
    pub known: Known,
}

/// What one member says of itself and its array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The array.
    pub array: ArrayUuid,
    /// The array's name.
    pub name: ArrayName,
    /// The level.
    pub level: Level,
    /// The strip of which rows are made, a power of two from 4 KiB to 1 MiB: that of users, or a
    /// part of it where they were given another while the array served.
    pub strip_bytes: u32,
    /// Rows of a band: so many strips of a column, one behind the other, are one of users. A power
    /// of two.
    pub band_rows: u16,
    /// Members of a group; equal to `members` where the level is not grouped.
    pub group_size: u8,
    /// Slots, at most 64.
    pub members: u8,
    /// Parities that were added to the array: each lies on a member of its own, behind the slots
    /// among which data and the other parities rotate.
    pub fixed_parities: u8,
    /// The array's logical block: 512 or 4096.
    pub block_bytes: u32,
    /// Where things lie on this member.
    pub layout: Layout,
    /// The epoch with which level, members and places became what they are; zero since the array
    /// was made.
    pub shape_since: Epoch,
    /// Data is moving to this shape from another.
    pub moving: Option<Moving>,
    /// When the array was created, in seconds since 1970.
    pub created_unix_s: u64,
    /// The write-hole policy.
    pub write_hole: WriteHole,
    /// The array is carved: its data begins with a table of volumes (see [`crate::volumes`]).
    pub carved: bool,
    /// Pages of the region map may say that regions are undecided (see [`crate::region_map`]).
    pub undecided: bool,
    /// Since the first of the regions that are undecided became so, no strip of any of them was
    /// built from the others: where its strips agree, they were written anew.
    pub witnessed: bool,
    /// Pages of the region map may say which versions every member had when the array was last
    /// whole (see [`crate::region_map`]).
    pub map_whole_at: bool,
    /// Whether the array was stopped cleanly: nothing is dirty and the log is retired.
    pub clean: bool,
    /// Every write that may be under way has its record in the log: after an unclean stop the log
    /// is replayed, and no region needs a resync for what is Dirty.
    pub covered: bool,
    /// Records of operations with a lower number are retired: recovery ignores them.
    pub log_base: u64,
    /// The array was stopped cleanly, and no operation ever had a number from `log_base` on.
    pub numbers_noted: bool,
    /// Bit i: what the member of slot i held in regions that need a resync is taken to be what
    /// parity makes of it, because an administrator said so. Set by the clean stop of an array that
    /// was started by force, taken away by its next start.
    pub accepted: u64,
    /// Grows with membership.
    pub epoch: Epoch,
    /// Grows with every superblock write.
    pub generation: Generation,
    /// Which starts of the array wrote which generations.
    pub sessions: Sessions,
    /// What the table was: a number for the edition of each of the last epochs, the present one
    /// first. It follows from all editions before it, so two arrays that went on apart differ in
    /// it for ever, whatever becomes of their rows. Zero where there was no epoch yet.
    pub editions: [u32; EDITIONS],
    /// The epoch with which the array was last whole: every slot in sync, no region behind. What
    /// was written since then while a slot was not in sync lies in regions that are behind.
    pub whole_since: Epoch,
    /// This member.
    pub member: MemberUuid,
    /// What this member is.
    pub role: Role,
    /// One record per slot: `members` of them.
    pub slots: Vec<SlotRecord>,
    /// The spares, at most 16.
    pub spares: Vec<MemberUuid>,
    /// What some of the spares are filled for, in the order of the spares.
    pub replacements: Vec<Replacement>,
    /// Settings.
    pub settings: Settings,
    /// Regions that were never written are to be zeroed in the background, as before their first
    /// write.
    pub zeroing: bool,
    /// The scrub that is not over.
    pub scrub: Option<ScrubRecord>,
    /// When the newest one began, whatever became of it, seconds since 1970; 0 if there was none.
    pub scrub_begun_unix_s: u64,
    /// The last one that ended.
    pub last_scrub: Option<ScrubResult>,
}

/// The number of an edition of a table: that of the first has no edition before it.
fn edition(before: u32, epoch: Epoch, slots: &[SlotRecord]) -> u32 {
    let mut bytes = Vec::with_capacity(16 + slots.len() * 40);
    bytes.extend_from_slice(&before.to_le_bytes());
    bytes.extend_from_slice(&epoch.0.to_le_bytes());
    for record in slots {
        let mut raw = RawSlot::from(record);
        // Neither progress nor what members have heard is a change of the table.
        raw.rebuilt_bytes = 0.into();
        raw.known = raw::RawKnown::default();
        bytes.extend_from_slice(raw.as_bytes());
    }
    // Zero means that there was none.
    checksum::crc32c(&bytes).max(1)
}

/// The editions of a new array with the table `slots`.
pub fn first_edition(epoch: Epoch, slots: &[SlotRecord]) -> [u32; EDITIONS] {
    let mut editions = [0; EDITIONS];
    editions[0] = edition(0, epoch, slots);
    editions
}

impl Superblock {
    /// The table has changed: takes the next epoch, and a number for the new edition.
    pub fn advance(&mut self) {
        self.epoch = self.epoch.next();
        self.editions.rotate_right(1);
        self.editions[0] = self.own_edition();
    }

    /// The number that the newest edition of this table has.
    pub fn own_edition(&self) -> u32 {
        edition(self.editions[1], self.epoch, &self.slots)
    }

    /// The number of the edition of an epoch, as far as this superblock can tell.
    pub fn edition_of(&self, epoch: Epoch) -> Option<u32> {
        let back = self.epoch.0.checked_sub(epoch.0)?;
        let edition = self.editions.get(usize::try_from(back).ok()?)?;
        Some(*edition)
    }

    /// The record of a slot.
    pub fn slot(&self, slot: Slot) -> Option<&SlotRecord> {
        self.slots.get(slot.index())
    }

    /// The slot that this superblock's table gives to a member, if any.
    pub fn slot_of(&self, member: MemberUuid) -> Option<Slot> {
        let index = self
            .slots
            .iter()
            .position(|record| record.member == member && !member.is_nil());
        index.map(|index| Slot(index as u8))
    }

    /// Whether all fields make sense together.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.array.is_nil() {
            return Err(Invalid::NilArray);
        }
        if self.member.is_nil() {
            return Err(Invalid::NilMember);
        }
        self.level
            .check_shape(self.members, self.group_size)
            .map_err(Invalid::Shape)?;
        check_strip(self.strip_bytes).map_err(Invalid::Layout)?;
        if !matches!(self.block_bytes, 512 | 4096) {
            return Err(Invalid::BlockBytes(self.block_bytes));
        }
        self.layout
            .check(self.strip_bytes)
            .map_err(Invalid::Layout)?;
        self.settings.check()?;
        if self.size_bytes().is_none() {
            return Err(Invalid::Size(self.layout.data_bytes));
        }
        let done_bytes = self.scrub.map_or(0, |scrub| scrub.done_bytes);
        if done_bytes > self.layout.data_bytes {
            return Err(Invalid::ScrubDone(done_bytes));
        }
        if self.members < 64 && self.accepted >> self.members != 0 {
            return Err(Invalid::Accepted(self.accepted));
        }
        if self.editions[0] == 0 {
            return Err(Invalid::Edition);
        }
        if self.whole_since > self.epoch {
            return Err(Invalid::WholeSince(self.whole_since));
        }
        if self.shape_since > self.epoch {
            return Err(Invalid::ShapeSince(self.shape_since));
        }
        if self.fixed_parities > 0
            && (self.level.is_grouped() || self.fixed_parities > self.level.parity_count())
        {
            return Err(Invalid::FixedParities(self.fixed_parities));
        }
        self.check_bands(self.band_rows)?;
        if let Some(moving) = &self.moving {
            moving.check(self)?;
        }
        self.check_table()?;
        let listed = match self.role {
            Role::Slot(slot) => self.slot(slot).is_some_and(|r| r.member == self.member),
            Role::Spare => self.spares.contains(&self.member),
        };
        if listed { Ok(()) } else { Err(Invalid::Role) }
    }

    /// Bytes that the array has when no data moves: those of a member times columns of data. `None`
    /// where these are more than [`ARRAY_BYTES_MAX`].
    pub fn size_bytes(&self) -> Option<u64> {
        let groups = self.members.checked_div(self.group_size)?;
        let columns = u64::from(groups) * u64::from(self.level.data_count(self.group_size));
        let bytes = self.layout.data_bytes.checked_mul(columns)?;
        (bytes <= ARRAY_BYTES_MAX).then_some(bytes)
    }

    /// The strip as users know it, bytes.
    pub fn user_strip_bytes(&self) -> u32 {
        self.strip_bytes * u32::from(self.band_rows)
    }

    /// The same array with rows as high as strips of users are, from the next epoch on; `None`
    /// where they are, or where something may lie about that counts rows: records, or data that
    /// moves.
    pub fn folded(&self) -> Option<Superblock> {
        let rests = self.clean && self.moving.is_none() && self.band_rows > 1;
        rests.then(|| Superblock {
            strip_bytes: self.user_strip_bytes(),
            band_rows: 1,
            shape_since: self.epoch.next(),
            ..self.clone()
        })
    }

    /// Whether bands of so many rows make sense: members and regions are made of whole ones.
    pub(crate) fn check_bands(&self, rows: u16) -> Result<(), Invalid> {
        let bytes = u64::from(self.strip_bytes) * u64::from(rows);
        let mirrored = matches!(self.level, Level::Raid1 | Level::Raid10);
        let whole = |of: u64| bytes > 0 && of.is_multiple_of(bytes);
        let sound = rows == 1
            || (rows.is_power_of_two()
                && !mirrored
                && bytes <= u64::from(STRIP_BYTES_MAX)
                && whole(self.layout.data_bytes)
                && whole(self.layout.region_bytes));
        match sound {
            true => Ok(()),
            false => Err(Invalid::Bands(rows)),
        }
    }

    /// Whether the table and the spares make sense.
    fn check_table(&self) -> Result<(), Invalid> {
        if self.slots.len() != usize::from(self.members) {
            return Err(Invalid::SlotCount(self.slots.len()));
        }
        if self.spares.len() > SPARES_MAX {
            return Err(Invalid::SpareCount(self.spares.len()));
        }
        if self.spares.iter().any(|spare| spare.is_nil()) {
            return Err(Invalid::NilSpare);
        }
        for (slot, record) in self.slots.iter().enumerate() {
            let rebuilt = match record.state {
                SlotState::Rebuilding { rebuilt_bytes } => rebuilt_bytes,
                SlotState::InSync | SlotState::Missing | SlotState::Failed => 0,
            };
            let peopled = !record.member.is_nil() || record.state == SlotState::Missing;
            let kept =
                !record.kept || (record.state != SlotState::InSync && !record.member.is_nil());
            if !record
                .known
                .is_sound(record.state.is_live() || record.member.is_nil())
            {
                return Err(Invalid::SlotRecord(slot as u8));
            }
            if !peopled || !kept || record.since > self.epoch || rebuilt > self.layout.data_bytes {
                return Err(Invalid::SlotRecord(slot as u8));
            }
        }
        let mut slots_taken = Vec::new();
        for replacement in &self.replacements {
            let record = self.slot(replacement.slot);
            let sound = self.spares.contains(&replacement.member)
                && record.is_some_and(|r| r.state == SlotState::InSync)
                && replacement.rebuilt_bytes <= self.layout.data_bytes
                && replacement.known.is_sound(true)
                && !slots_taken.contains(&replacement.slot);
            if !sound {
                return Err(Invalid::Replacement(replacement.slot.0));
            }
            slots_taken.push(replacement.slot);
        }
        let slots = self.slots.iter().map(|record| record.member);
        let mut named: Vec<_> = slots.chain(self.spares.iter().copied()).collect();
        named.retain(|member| !member.is_nil());
        named.sort_unstable();
        match named.windows(2).any(|pair| pair[0] == pair[1]) {
            true => Err(Invalid::Twice),
            false => Ok(()),
        }
    }
}
