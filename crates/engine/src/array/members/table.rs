//! The membership: one table of what fills each slot, what waits as a spare, and what the
//! superblock says of both.
//!
//! The superblock's rows and spares are derived from it when one is written or shown
//! ([`Table::fill`]): between that the array's superblock has none. Every change of members is one
//! function here, which changes slot, row and spares together. (A change of shape brings rows with
//! a new superblock, and a function for each slot that comes or goes.)
//!
//! Invariants ([`Table::check`]):
//! * A device has one place, and every device that has one is known.
//! * The row of a slot says what serves it, and the listed spares are those that wait and those
//!   that are being filled for a member which is still in sync.
//!
//! Deliberately absent: whether a change is permitted (`preflight`), and when it is durable
//! (`metadata::superblocks`).

use std::collections::BTreeMap;
use std::ops::Index;

use strake_format::*;

use crate::array::members::slow::Watch;
use crate::array::metadata::copies::Copies;
use crate::geometry::Geometry;
use crate::proto::*;
use crate::units::*;

/// A device that the array uses.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) info: DeviceInfo,
    pub(crate) member: MemberUuid,
    pub(crate) layout: Layout,
    /// Both copies of this superblock are durable on it: see [`Known`].
    pub(crate) heard: Generation,
    /// Where the map and the list are written: those of `layout`, but while it is about to change.
    pub(crate) places: Layout,
    /// It has the zeroes that a growth adds, and may have to flush them.
    pub(crate) extended: bool,
    /// The superblock copy that is written first; the other was the only whole one at the start.
    pub(crate) first_copy: usize,
    /// What is known to lie at both places.
    pub(crate) copies: Copies,
    /// Which place of the list of unreadable blocks holds its newest version.
    pub(crate) list_place: usize,
    pub(crate) counts: ErrorCounts,
    /// I/Os that failed before this moment belong to a reset that was counted.
    pub(crate) reset_until: Time,
    pub(crate) watch: Watch,
}

impl Member {
    /// A device on which nothing was counted, or written, yet.
    pub(crate) fn new(info: DeviceInfo, member: MemberUuid, layout: Layout) -> Member {
        Member {
            info,
            member,
            layout,
            heard: Generation(0),
            places: layout,
            extended: false,
            first_copy: 0,
            copies: Copies::default(),
            // The first version goes to the first place.
            list_place: 1,
            counts: ErrorCounts::default(),
            reset_until: Time(0),
            watch: Watch::default(),
        }
    }
}

/// What fills a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SlotUse {
    current: Option<DeviceId>,
    incoming: Option<DeviceId>,
    outgoing: Option<DeviceId>,
    /// Rows below are valid on the incoming device.
    pub(crate) rebuilt: Row,
    /// Rows below are durable on it: what the superblock tells.
    pub(crate) flushed: Row,
    /// The last step of a job that was begun before it joined.
    pub(crate) joined: u64,
    /// Since when spares wait for the member that is missing here; `None`: they do not.
    pub(crate) missing_from: Option<Time>,
    /// The member that serves has too many read errors: a spare is to take its place.
    pub(crate) failing: bool,
    /// What was counted against the member that was here last, for `show`.
    pub(crate) counts: ErrorCounts,
    /// On which device that was.
    pub(crate) left: Option<DeviceId>,
    /// How often the member did not answer in time.
    pub(crate) stalls: Stalls,
}

impl SlotUse {
    /// A slot that this device serves.
    pub(crate) fn served_by(device: DeviceId) -> SlotUse {
        SlotUse {
            current: Some(device),
            ..SlotUse::default()
        }
    }

    /// This device is being filled, and is valid and durable below a row.
    pub(crate) fn fill(&mut self, device: DeviceId, rebuilt: Row) {
        self.incoming = Some(device);
        (self.rebuilt, self.flushed) = (rebuilt, rebuilt);
    }

    /// The member in sync.
    pub(crate) fn current(&self) -> Option<DeviceId> {
        self.current
    }

    /// The device that is being filled.
    pub(crate) fn incoming(&self) -> Option<DeviceId> {
        self.incoming
    }

    /// What was replaced, until that is durable everywhere: it gets every write as long.
    pub(crate) fn outgoing(&self) -> Option<DeviceId> {
        self.outgoing
    }

    /// It has no device: neither in sync nor being filled.
    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_none() && self.incoming.is_none()
    }

    /// Its first device, of the two that it may have.
    pub(crate) fn any(&self) -> Option<DeviceId> {
        self.current.or(self.incoming)
    }
}

/// How often a member went out because it did not answer in time: each time may be the last, and
/// each costs the users a deadline.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stalls {
    count: u32,
    last: Time,
}

impl Stalls {
    /// So many are forgiven, ...
    const MOST: u32 = 3;
    /// ... until as much time has passed without one.
    const FORGOTTEN_MS: u64 = 24 * 3600 * 1000;

    /// Counts one more. True if the array still waits for the member.
    pub(crate) fn record(&mut self, now: Time) -> bool {
        if self.count > 0 && now > self.last.plus_ms(Self::FORGOTTEN_MS) {
            self.count = 0;
        }
        self.count += 1;
        self.last = now;
        self.count <= Self::MOST
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    devices: BTreeMap<DeviceId, Member>,
    slots: Vec<SlotUse>,
    /// What the superblock says of each slot.
    records: Vec<SlotRecord>,
    /// Spares that wait.
    spares: Vec<DeviceId>,
    /// What the superblock lists as spares: these, and what is being filled for a member that is
    /// still in sync.
    listed: Vec<MemberUuid>,
    /// Devices that have no slot yet and get the map and the list.
    entering: Vec<DeviceId>,
}

/// What the row of a member that left says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) state: SlotState,
    pub(crate) since: Epoch,
    /// It still holds what it held.
    pub(crate) keeps: bool,
    pub(crate) known: Known,
    pub(crate) now: Time,
}

/// A device took a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) device: DeviceId,
    pub(crate) replaced: Option<DeviceId>,
    /// It was rebuilt by regions.
    pub(crate) partial: bool,
}

/// A row that says this of a member since an epoch.
fn row(member: MemberUuid, state: SlotState, since: Epoch) -> SlotRecord {
    SlotRecord {
        member,
        state,
        since,
        kept: false,
        known: Known::default(),
    }
}

/// A row without a member.
pub(crate) fn no_member(since: Epoch) -> SlotRecord {
    row(MemberUuid([0; 16]), SlotState::Missing, since)
}

/// A member that was there a moment ago and holds what it held: a cable, a slot, a restart of its
/// firmware that took too long. One that failed, was put out, or was being rebuilt as a whole is
/// not waited for.
fn may_return(record: &SlotRecord) -> bool {
    record.state == SlotState::Missing && record.kept && !record.member.is_nil()
}

impl Index<&DeviceId> for Table {
    type Output = Member;

    fn index(&self, device: &DeviceId) -> &Member {
        &self.devices[device]
    }
}

/// What it says.
impl Table {
    /// Takes the rows and the spares out of a superblock.
    pub(crate) fn of(
        sb: &mut Superblock,
        devices: BTreeMap<DeviceId, Member>,
        slots: Vec<SlotUse>,
        spares: Vec<DeviceId>,
    ) -> Table {
        Table {
            devices,
            slots,
            records: std::mem::take(&mut sb.slots),
            spares,
            listed: std::mem::take(&mut sb.spares),
            entering: Vec::new(),
        }
    }

    /// The superblock with the rows and the spares.
    pub(crate) fn fill(&self, sb: &Superblock) -> Superblock {
        Superblock {
            slots: self.records.clone(),
            spares: self.listed.clone(),
            ..sb.clone()
        }
    }

    /// Every device that has a place.
    pub(crate) fn devices(&self) -> impl Iterator<Item = (DeviceId, &Member)> {
        self.devices
            .iter()
            .map(|(&device, member)| (device, member))
    }

    pub(crate) fn has(&self, device: DeviceId) -> bool {
        self.devices.contains_key(&device)
    }

    pub(crate) fn get(&self, device: DeviceId) -> Option<&Member> {
        self.devices.get(&device)
    }

    pub(crate) fn get_mut(&mut self, device: DeviceId) -> Option<&mut Member> {
        self.devices.get_mut(&device)
    }

    pub(crate) fn members_mut(&mut self) -> impl Iterator<Item = &mut Member> {
        self.devices.values_mut()
    }

    pub(crate) fn slots(&self) -> &[SlotUse] {
        &self.slots
    }

    /// Progress and counters of the slots: what fills them is changed by the functions here alone.
    pub(crate) fn slots_mut(&mut self) -> &mut [SlotUse] {
        &mut self.slots
    }

    /// What the superblock says of each slot.
    pub(crate) fn records(&self) -> &[SlotRecord] {
        &self.records
    }

    /// Spares that wait, of which the first has waited longest.
    pub(crate) fn spares(&self) -> &[DeviceId] {
        &self.spares
    }

    /// So many spares are listed.
    pub(crate) fn listed(&self) -> usize {
        self.listed.len()
    }

    /// Devices that carry data and metadata of the array: in sync, being rebuilt, and replaced but
    /// not durably so.
    pub(crate) fn live(&self) -> Vec<DeviceId> {
        self.slots
            .iter()
            .flat_map(|s| [s.current, s.incoming, s.outgoing])
            .flatten()
            .chain(self.entering.iter().copied())
            .collect()
    }

    /// Live members that have a volatile cache.
    pub(crate) fn volatile(&self) -> Vec<DeviceId> {
        let volatile = |device: &DeviceId| self[device].info.volatile_cache;
        self.live().into_iter().filter(volatile).collect()
    }

    pub(crate) fn slot_of(&self, device: DeviceId) -> Option<Slot> {
        let holds = |s: &SlotUse| s.current == Some(device) || s.incoming == Some(device);
        self.slots.iter().position(holds).map(|at| Slot(at as u8))
    }

    /// The slot that this device held until another took it, which is not durable yet.
    pub(crate) fn outgoing_in(&self, device: DeviceId) -> Option<usize> {
        let goes = |slot: &SlotUse| slot.outgoing == Some(device);
        self.slots.iter().position(goes)
    }

    /// Some member stays in service although its superblocks speak against it.
    pub(crate) fn doubts(&self) -> bool {
        let mut members = self.devices.values();
        members.any(|member| member.copies.doubted.is_some())
    }

    /// Every slot has a member in sync.
    pub(crate) fn whole(&self) -> bool {
        self.slots.iter().all(|slot| slot.current.is_some())
    }

    /// Slots of the group of `slot` that have no member in sync: of the worse one while data moves
    /// to other groups.
    pub(crate) fn lost_in_group(&self, geometry: &Geometry, slot: Slot) -> usize {
        let groups = geometry.neighbours();
        let groups = groups.filter(|group| group.contains(&slot.index()));
        let lost = |group: std::ops::Range<usize>| {
            let slots = &self.slots[group];
            slots.iter().filter(|s| s.current.is_none()).count()
        };
        groups.map(lost).max().unwrap_or(0)
    }

    /// The slot's incoming member was kept: it is rebuilt by regions.
    pub(crate) fn kept(&self, at: usize) -> Option<DeviceId> {
        let (slot, record) = (self.slots[at], self.records[at]);
        let partial = slot.current.is_none() && record.kept && record.state.is_live();
        slot.incoming.filter(|_| partial)
    }

    /// Since when spares wait for the member that this slot lacks; `None` where they do not.
    pub(crate) fn awaited_from(&self, at: usize) -> Option<Time> {
        let slot = &self.slots[at];
        slot.missing_from.filter(|_| slot.is_empty())
    }
}

/// What changes it.
impl Table {
    /// The table has changed: the superblock, which has no rows, takes the next epoch and the
    /// number of the edition that these rows are.
    pub(crate) fn advance(&mut self, sb: &mut Superblock) {
        sb.slots = std::mem::take(&mut self.records);
        sb.advance();
        self.records = std::mem::take(&mut sb.slots);
    }

    /// The rows and the spares are those of this superblock from now on, which keeps none.
    pub(crate) fn take(&mut self, sb: &mut Superblock) {
        self.records = std::mem::take(&mut sb.slots);
        self.listed = std::mem::take(&mut sb.spares);
    }

    /// A device is known from now on; it gets its place next.
    pub(crate) fn admit(&mut self, device: DeviceId, member: Member) {
        self.devices.insert(device, member);
    }

    /// A device that has no place any more is not known any more.
    pub(crate) fn forget(&mut self, device: DeviceId) {
        self.devices.remove(&device);
    }

    fn unlist(&mut self, device: DeviceId) {
        if let Some(member) = self.devices.get(&device) {
            self.listed.retain(|listed| *listed != member.member);
        }
    }

    /// A device that was admitted waits as a spare.
    pub(crate) fn add_spare(&mut self, device: DeviceId) {
        self.spares.push(device);
        self.listed.push(self.devices[&device].member);
    }

    /// A spare that waits is none any more. True if it was known.
    pub(crate) fn drop_spare(&mut self, device: DeviceId) -> bool {
        self.entering.retain(|&d| d != device);
        self.spares.retain(|&d| d != device);
        self.unlist(device);
        self.devices.remove(&device).is_some()
    }

    /// A spare that waits is about to get a slot.
    pub(crate) fn take_spare(&mut self, which: usize) -> DeviceId {
        let device = self.spares.remove(which);
        self.unlist(device);
        device
    }

    /// It is durable, or does not matter any more, that another has the slot of this device.
    pub(crate) fn drop_outgoing(&mut self, at: usize) {
        if let Some(device) = self.slots[at].outgoing.take() {
            self.devices.remove(&device);
        }
    }

    /// A device that has just taken a slot is lost before that is durable: what it replaced holds
    /// all that it should, and keeps the slot. True if so.
    pub(crate) fn keep_slot(&mut self, at: usize, device: DeviceId, since: Epoch) -> bool {
        let place = &mut self.slots[at];
        if place.current != Some(device) {
            return false;
        }
        let Some(kept) = place.outgoing.take() else {
            return false;
        };
        place.current = Some(kept);
        self.records[at] = row(self.devices[&kept].member, SlotState::InSync, since);
        true
    }

    /// A device leaves its slot. True if it was the member in sync: what was to replace it takes
    /// its place in the table then, as far as it has come.
    pub(crate) fn leave(&mut self, at: usize, device: DeviceId, left: Left) -> bool {
        let place = &mut self.slots[at];
        let in_sync = place.incoming != Some(device);
        if in_sync {
            place.current = None;
        } else {
            place.incoming = None;
            (place.rebuilt, place.flushed) = (Row(0), Row(0));
        }
        let record = &mut self.records[at];
        match (place.current, place.incoming) {
            (Some(_), _) => {}
            (None, Some(incoming)) => {
                let state = SlotState::Rebuilding { rebuilt_bytes: 0 };
                *record = row(self.devices[&incoming].member, state, left.since);
                self.unlist(incoming);
            }
            (None, None) => {
                let kept = left.keeps && (in_sync || record.kept);
                (record.state, record.since) = (left.state, left.since);
                (record.kept, record.known) = (kept, left.known);
                place.missing_from = may_return(record).then_some(left.now);
            }
        }
        if !in_sync {
            self.unlist(device);
        }
        in_sync
    }

    /// A slot begins to be rebuilt onto a device; steps up to `joined` began before.
    pub(crate) fn join(&mut self, at: usize, device: DeviceId, joined: u64, since: Epoch) {
        let slot = &mut self.slots[at];
        slot.fill(device, Row(0));
        slot.joined = joined;
        let member = self.devices[&device].member;
        match slot.current {
            Some(_) => self.listed.push(member),
            None => {
                let state = SlotState::Rebuilding { rebuilt_bytes: 0 };
                self.records[at] = row(member, state, since);
            }
        }
    }

    /// A member that was away is in its slot again, to be rebuilt by regions.
    pub(crate) fn rejoin(&mut self, at: usize, device: DeviceId, joined: u64, since: Epoch) {
        self.slots[at] = SlotUse {
            incoming: Some(device),
            joined,
            stalls: self.slots[at].stalls,
            ..SlotUse::default()
        };
        let state = SlotState::Rebuilding { rebuilt_bytes: 0 };
        self.records[at] = SlotRecord {
            kept: true,
            ..row(self.devices[&device].member, state, since)
        };
    }

    /// The incoming member of a slot is whole: it takes the slot.
    pub(crate) fn take_slot(&mut self, at: usize, since: Epoch) -> Taken {
        let slot = &mut self.slots[at];
        let device = slot.incoming.take().expect("a rebuild has a target");
        let replaced = slot.current;
        let partial = self.records[at].kept && replaced.is_none();
        *slot = SlotUse {
            current: Some(device),
            outgoing: replaced,
            stalls: if partial {
                slot.stalls
            } else {
                Stalls::default()
            },
            ..SlotUse::default()
        };
        self.unlist(device);
        self.records[at] = row(self.devices[&device].member, SlotState::InSync, since);
        Taken {
            device,
            replaced,
            partial,
        }
    }

    /// The member of an empty slot is forgotten. False if it has none.
    pub(crate) fn clear(&mut self, at: usize, since: Epoch) -> bool {
        let any = !self.records[at].member.is_nil();
        if any {
            self.records[at] = no_member(since);
            self.slots[at] = SlotUse::default();
        }
        any
    }

    /// The slots that the newest superblock brought are empty.
    pub(crate) fn add_slot(&mut self) {
        self.slots.push(SlotUse::default());
    }

    /// Devices that wait as spares get the map and the list, to be members.
    pub(crate) fn enter(&mut self, devices: Vec<DeviceId>) {
        self.entering = devices;
    }

    /// None does any more.
    pub(crate) fn enter_none(&mut self) {
        self.entering.clear();
    }

    /// A device that entered serves a new slot.
    pub(crate) fn add_served(&mut self, device: DeviceId) {
        self.spares.retain(|spare| *spare != device);
        self.slots.push(SlotUse::served_by(device));
    }

    /// The member of a slot that is to go becomes a spare, if the slot still has one.
    pub(crate) fn vacate(&mut self, at: usize, since: Epoch) {
        let left = std::mem::take(&mut self.slots[at]);
        if let Some(device) = left.current {
            self.add_spare(device);
        }
        self.records[at] = no_member(since);
    }

    /// Only so many slots are left: the rows of the others have gone with the superblock.
    pub(crate) fn drop_slots(&mut self) {
        let gone = self.slots.drain(self.records.len()..);
        assert!(
            gone.into_iter().all(|slot| slot.is_empty()),
            "no slot goes that has a member"
        );
    }

    /// At the start: what is missing is waited for from now on.
    pub(crate) fn await_missing(&mut self, now: Time) {
        for (slot, record) in self.slots.iter_mut().zip(&self.records) {
            slot.missing_from = may_return(record).then_some(now);
        }
    }

    /// Members that are missing are not waited for any longer. True if a spare waited for one.
    pub(crate) fn wait_no_longer(&mut self) -> bool {
        let awaited = (0..self.slots.len()).any(|at| self.awaited_from(at).is_some());
        for slot in &mut self.slots {
            slot.missing_from = None;
        }
        awaited && !self.spares.is_empty()
    }

    /// How far rebuilds have durably come, and what every member is known to have, into the rows;
    /// gives the replacements of members that are still in sync.
    pub(crate) fn note_progress(&mut self, strip: u64) -> Vec<Replacement> {
        let mut replacements = Vec::new();
        for (at, (slot, record)) in self.slots.iter().zip(&mut self.records).enumerate() {
            let known = |device: DeviceId| Known::heard(self.devices[&device].heard);
            let rebuilt_bytes = slot.flushed.0 * strip;
            match (slot.current, slot.incoming) {
                (Some(_), Some(incoming)) => replacements.push(Replacement {
                    member: self.devices[&incoming].member,
                    slot: Slot(at as u8),
                    rebuilt_bytes,
                    known: known(incoming),
                }),
                (None, Some(_)) => record.state = SlotState::Rebuilding { rebuilt_bytes },
                _ => {}
            }
            if let Some(device) = slot.any() {
                record.known = known(device);
            }
        }
        replacements.sort_by_key(|r| self.listed.iter().position(|s| *s == r.member));
        replacements
    }
}

/// Whether it is as it must be.
impl Table {
    /// See the module; what serves must be enough for the level.
    pub(crate) fn check(&self, geometry: &Geometry) -> Result<(), String> {
        self.check_places()?;
        let uuid = |device: &DeviceId| self.devices[device].member;
        for (at, (slot, record)) in self.slots.iter().zip(&self.records).enumerate() {
            let (state, member) = (record.state, record.member);
            let agrees = match (slot.current, slot.incoming) {
                (Some(current), _) => state == SlotState::InSync && member == uuid(&current),
                (None, Some(incoming)) => {
                    matches!(state, SlotState::Rebuilding { .. }) && member == uuid(&incoming)
                }
                (None, None) => state != SlotState::InSync,
            };
            ensure!(
                agrees,
                "slot {at} has {:?} in sync and {:?} coming, and the table says {state:?}",
                slot.current,
                slot.incoming
            );
            let (flushed, rebuilt) = (slot.flushed.0, slot.rebuilt.0);
            ensure!(
                flushed <= rebuilt && (slot.incoming.is_some() || rebuilt == 0),
                "slot {at} has {rebuilt} rows rebuilt and {flushed} of them durable on {:?}",
                slot.incoming
            );
            let lost = self.lost_in_group(geometry, Slot(at as u8));
            ensure!(
                lost <= geometry.m,
                "the array serves, and the group of slot {at} lacks {lost} members"
            );
        }
        let replaces = |slot: &SlotUse| slot.incoming.filter(|_| slot.current.is_some());
        let spares = self.slots.iter().filter_map(replaces);
        let spares = spares.chain(self.spares.iter().copied());
        let mut spares: Vec<MemberUuid> = spares.map(|device| uuid(&device)).collect();
        let mut listed = self.listed.clone();
        spares.sort_unstable_by_key(|member| member.0);
        listed.sort_unstable_by_key(|member| member.0);
        ensure!(
            spares == listed,
            "spares are {spares:?}, and the table says {listed:?}"
        );
        Ok(())
    }

    fn check_places(&self) -> Result<(), String> {
        let slots = self.slots.iter();
        let held = slots.flat_map(|slot| [slot.current, slot.incoming, slot.outgoing]);
        let mut places: Vec<DeviceId> = held.flatten().chain(self.spares.iter().copied()).collect();
        places.sort_unstable();
        if let Some(twice) = places.windows(2).find(|two| two[0] == two[1]) {
            return Err(format!("device {} has two places", twice[0].0));
        }
        let known: Vec<DeviceId> = self.devices.keys().copied().collect();
        ensure!(
            places == known,
            "devices {places:?} have places, and {known:?} are members"
        );
        Ok(())
    }

    /// Breaks it in the ways that [`Table::check`] names.
    #[cfg(test)]
    pub(crate) fn broken(&mut self, how: usize) -> &'static str {
        match how {
            0 => {
                self.slots[1].current = None;
                "members"
            }
            1 => {
                self.records[2].state = SlotState::Missing;
                "slot 2 has Some"
            }
            2 => {
                self.slots[0].flushed = Row(3);
                "0 rows rebuilt and 3 of them durable"
            }
            3 => {
                self.spares.push(DeviceId(0));
                "device 0 has two places"
            }
            _ => {
                self.listed.clear();
                "spares are"
            }
        }
    }
}
