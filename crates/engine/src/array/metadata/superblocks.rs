//! Superblocks become durable: one flight at a time, one copy on every member, then the other.
//!
//! Before a flight writes, it reads what lies at the places ([`metadata::copies`]). A member with
//! copies that speak against it goes out, and the flight ends: another one takes the new table. A
//! look is a flight that reads and writes nothing.
//!
//! [`metadata::copies`]: crate::array::metadata::copies
//!
//! The first wave goes to the members that the last durable table calls in sync. The others follow
//! when these have their copies: spares, also those that had a slot until now. A device that joins
//! would otherwise be able to hold the newest table alone: after a crash and a start without that
//! device, which no other member records, its table would overrule an array that went on. (Where a
//! device is known, as a member or a spare, an array that starts without it takes a new epoch:
//! [`Array::assemble`].)
//!
//! Invariants:
//! * A device that no durable table knows never holds a table that a member in sync lacks.
//! * At every moment at least one copy on each member is whole: the second is written only when the
//!   first is durable, and the first is the one that was not whole, or older, at the start. (A
//!   start that follows a power cut may be cut off, too.) Except on a member that has lost a copy
//!   and stays in service: it has one place.
//! * A member is shown in sync only when the table that says so is durable everywhere.
//! * Before an array serves, and before it has stopped, every row says that its member has a
//!   superblock of this start, or of this stop ([`Known`]): what is older than that is an older
//!   image of it.
//! * Waiters run, and views are published, only when nothing newer than what is durable is wanted.

use strake_format::*;

use crate::array::members::cause_of;
use crate::array::members::table::Table;
use crate::array::metadata::copies::Durable;
use crate::array::outbox::Outbox;
use crate::array::{Array, Member, Purpose, SlotUse, Stage};
use crate::canary::{self, Canary};
use crate::mem::buffer::{Buf, Slice};
use crate::proto::*;
use crate::units::*;

/// What waits for the superblocks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SuperblockWaiter {
    Done(CommandId, Changed),
    /// An administrator puts this device out, if the others hold what they should.
    PutOut(CommandId, DeviceId),
    Release(DeviceId),
    /// Its slot has another member.
    Replaced(DeviceId),
    /// No slot is being rebuilt any more.
    RebuildOver,
    /// A device is whole, and what it was built from may be lost now.
    Rebuilt(Slot, DeviceId, bool),
    /// A shard's operation waits for what was decided on a member.
    Verdict(ShardNo, u64),
    /// No record of the region counts any more.
    Unmap(RegionNo),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Persist {
    /// Grows with every change of the table.
    wanted: u64,
    durable: u64,
    /// The places are to be read, whether or not anything is to be written.
    look: bool,
    flight: Option<Flight>,
    /// The membership differs from what shards know.
    pub(crate) view_due: bool,
    pub(crate) waiters: Vec<SuperblockWaiter>,
    /// Slots with a member that was found at the start and is not used, and why.
    pub(crate) stale: Vec<(Slot, Aside)>,
    /// For each slot the member that the last durable table calls in sync.
    in_sync: Vec<Option<MemberUuid>>,
    /// The view that each shard has.
    applied: Vec<u64>,
    /// The first view of the present epoch.
    pub(crate) epoch_view: u64,
    /// Devices to release once every shard has this view, which is the first without them.
    pub(crate) leaving: Vec<(DeviceId, u64)>,
    /// Every member is to be known to have this generation, or a newer one.
    seal_from: Generation,
    /// What the last durable table knows every member to have.
    known: Generation,
    /// Every superblock says that there may be undecided regions.
    says_undecided: bool,
    /// Every superblock announces pages that say what every member had.
    says_whole_at: bool,
}

#[derive(Debug)]
struct Flight {
    version: u64,
    copies: Copies,
    pending: usize,
    image: Superblock,
    /// The devices that get the image. A device that joins in the meantime gets the next one.
    devices: Vec<Reader>,
    /// Nothing is written.
    is_look: bool,
}

/// A device that gets an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    pub(crate) device: DeviceId,
    role: Role,
    /// It belongs to the first wave. This stays as it is while the image is written: the
    /// membership may change between two waves, and each device gets two copies.
    first: bool,
    /// Its places, in the order in which they are written.
    pub(crate) places: [Option<usize>; 2],
}

/// Which copies are being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copies {
    /// None yet: what lies at the places is being read.
    Read,
    /// The first, on members that the last durable table calls in sync.
    First,
    /// The first, on all other members.
    FirstOfOthers,
    /// The second, on all members.
    Second,
}

impl Persist {
    /// `agreed` is what all believed members' tables call in sync.
    pub(crate) fn new(
        waiters: Vec<SuperblockWaiter>,
        stale: Vec<(Slot, Aside)>,
        agreed: Vec<Option<MemberUuid>>,
        shards: u16,
        says_whole_at: bool,
    ) -> Persist {
        let applied = vec![1; usize::from(shards)];
        Persist {
            waiters,
            stale,
            in_sync: agreed,
            applied,
            says_whole_at,
            ..Persist::default()
        }
    }

    /// The shard works by this view, or a newer one.
    pub(crate) fn knows(&self, shard: ShardNo, version: u64) -> bool {
        self.applied[usize::from(shard.0)] >= version
    }

    /// Every superblock says durably that there may be undecided regions.
    pub(crate) fn says_undecided(&self) -> bool {
        self.says_undecided
    }

    /// Every superblock durably announces pages that say what every member had.
    pub(crate) fn says_whole_at(&self) -> bool {
        self.says_whole_at
    }

    /// The last durable table calls some member of the slot in sync.
    pub(crate) fn has_in_sync(&self, at: usize) -> bool {
        self.in_sync.get(at).is_some_and(Option::is_some)
    }

    /// Writes of superblocks that are waited for.
    pub(crate) fn pending(&self) -> usize {
        self.flight.as_ref().map_or(0, |flight| flight.pending)
    }

    /// What the table says is durable.
    pub(crate) fn nothing_wanted(&self) -> bool {
        self.wanted == self.durable
    }
}

/// For each slot the member that a table calls in sync.
pub(crate) fn in_sync(sb: &Superblock) -> impl Iterator<Item = Option<MemberUuid>> {
    let sync = |record: &SlotRecord| record.state == SlotState::InSync;
    sb.slots.iter().map(move |r| sync(r).then_some(r.member))
}

impl Persist {
    /// The table or a setting changed: it must become durable.
    pub(crate) fn touch(&mut self) {
        self.wanted += 1;
    }

    /// The places of all members are to be read.
    pub(crate) fn look(&mut self) {
        self.look = true;
    }

    /// They are to be read, and were not since that was asked for.
    pub(crate) fn looks(&self) -> bool {
        self.look
    }

    /// All that is wanted is durable.
    pub(crate) fn quiet(&self) -> bool {
        self.flight.is_none() && self.nothing_wanted()
    }

    /// From the next superblock on every member is to be known to have it before the array goes on.
    pub(crate) fn seal(&mut self, generation: Generation) {
        self.seal_from = generation.next();
    }

    /// It is durable that every member has what [`Persist::seal`] asked for; this is the newest
    /// generation.
    pub(crate) fn sealed(&self, generation: Generation) -> bool {
        // None of this is noted of numbers that no array comes to.
        let beyond = generation.0 >= Known::HEARD_MAX;
        let known = self.known >= self.seal_from;
        known || beyond || canary::hit(Canary::ServesUnsealed)
    }

    /// The view that every shard has.
    fn everywhere(&self) -> u64 {
        let applied = self.applied.iter().copied();
        applied.min().unwrap_or(u64::MAX)
    }

    /// Every shard works by this view, or a newer one.
    pub(crate) fn applied(&self, version: u64) -> bool {
        self.everywhere() >= version
    }

    /// Devices that no shard knows any more can be closed.
    pub(crate) fn release_left(&mut self, out: &mut Outbox) {
        let everywhere = self.everywhere();
        self.leaving.retain(|&(device, version)| {
            let left = version <= everywhere;
            if left {
                out.push(ArrayOutput::Release(device));
            }
            !left
        });
    }

    /// The slot has a member in sync, and would have one after a crash: the array may report it as
    /// in sync. A member that is being replaced counts until its replacement is durable.
    pub(crate) fn durably_in_sync(&self, table: &Table, at: usize) -> bool {
        let slot = &table.slots()[at];
        let durable = |device: DeviceId| {
            let member = table[&device].member;
            self.in_sync.get(at) == Some(&Some(member))
        };
        let known = |device| slot.outgoing().is_some() || durable(device);
        slot.current()
            .is_some_and(|device| known(device) || canary::hit(Canary::ShownTooSoon))
    }
}

impl Array {
    /// No superblock is being written, and one may be.
    pub(crate) fn may_persist(&self) -> bool {
        self.persist.flight.is_none() && !matches!(self.stage, Stage::Failed | Stage::Stopped)
    }

    /// Writes the next superblock, of what the table and the settings are now. True if pages of the
    /// region map may wait for it no longer.
    pub(crate) fn write_superblock(&mut self) -> bool {
        self.persist.says_undecided &= self.sb.undecided;
        self.persist.says_whole_at &= self.sb.map_whole_at;
        self.begin_flight(false)
    }

    /// Reads the places, and writes nothing: what they show decides.
    pub(crate) fn look_at_copies(&mut self) {
        self.begin_flight(true);
    }

    fn begin_flight(&mut self, is_look: bool) -> bool {
        self.persist.look = false;
        self.persist.flight = Some(Flight {
            version: self.persist.wanted,
            copies: Copies::Read,
            pending: 0,
            image: self.superblock(),
            devices: self.readers_of_superblocks(),
            is_look,
        });
        self.read_copies()
    }

    /// Reads the places of all members. Nothing rests on what lies on a spare.
    fn read_copies(&mut self) -> bool {
        let flight = self.persist.flight.as_ref().expect("a flight was begun");
        let members = flight.devices.iter().map(|reader| reader.device);
        let members: Vec<DeviceId> = members
            .filter(|&device| self.table.slot_of(device).is_some())
            .collect();
        let mut pending = 0;
        for device in members {
            let durable = self.table[&device].copies.durable;
            for (place, durable) in durable.into_iter().enumerate() {
                let unread = canary::hit(Canary::CopiesUnread);
                if let Some(durable) = durable.filter(|_| !unread) {
                    self.read_copy(durable, Purpose::SuperblockRead { device, place });
                    pending += 1;
                }
            }
        }
        let flight = self.persist.flight.as_mut().expect("a flight was begun");
        flight.pending = pending;
        pending == 0 && self.copies_read()
    }

    /// A read of a place is over. True as of [`Array::superblock_written`].
    pub(crate) fn superblock_read(
        &mut self,
        device: DeviceId,
        place: usize,
        completion: &Completion,
    ) -> bool {
        if let Err(error) = completion.result {
            self.place_unread(device, error);
        }
        self.note_shown(device, place, completion);
        let Some(flight) = &mut self.persist.flight else {
            return false;
        };
        flight.pending -= 1;
        flight.pending == 0 && self.copies_read()
    }

    /// A place could not be read. That says nothing of what lies there, and a write may heal the
    /// block. What says that the device does not answer costs no last redundancy: the write that
    /// follows shows whether it does.
    fn place_unread(&mut self, device: DeviceId, error: IoError) {
        let out = match error {
            IoError::Gone | IoError::Shrunk => true,
            IoError::Media | IoError::Unclear | IoError::Other(_) => false,
            IoError::TimedOut | IoError::Transport(_) | IoError::Unsent(_) | IoError::NoSpace => {
                self.may_lose(device)
            }
        };
        if !out {
            return;
        }
        if let Some(member) = self.table.get_mut(device) {
            member.counts.reads += 1;
        }
        self.member_out(device, cause_of(error));
    }

    /// Nothing was written yet: where a device has left, another flight takes what is so now.
    fn copies_read(&mut self) -> bool {
        let mut flight = self.persist.flight.take().expect("its places were read");
        let over = matches!(self.stage, Stage::Failed | Stage::Stopped);
        if over {
            return false;
        }
        let left = |reader: &Reader| !self.table.has(reader.device);
        if flight.devices.iter().any(left) {
            self.persist.look |= flight.is_look;
            return false;
        }
        if self.judge_copies(&mut flight.devices) || flight.is_look {
            return false;
        }
        flight.copies = Copies::First;
        self.persist.flight = Some(flight);
        self.write_copies()
    }

    /// A shard works by this view now: devices that no shard knows any more can be closed.
    pub(crate) fn view_applied(&mut self, shard: ShardNo, version: u64) {
        self.persist.applied[usize::from(shard.0)] = version;
        self.persist.release_left(&mut self.out);
    }

    /// Every device that gets the superblock, with the role that the table gives it.
    fn readers_of_superblocks(&self) -> Vec<Reader> {
        let role = |device: DeviceId| match self.table.slot_of(device) {
            // While a slot has a member in sync, its replacement is still a spare to the table.
            Some(slot) => match self.table.slots()[usize::from(slot.0)].current() {
                Some(current) if current != device => Role::Spare,
                _ => Role::Slot(slot),
            },
            None => Role::Spare,
        };
        // The table of a member that was replaced stays what it was.
        let stays = |device: &DeviceId| self.table.slot_of(*device).is_some();
        let live = self.table.live().into_iter().filter(stays);
        let devices = live.chain(self.table.spares().iter().copied());
        let reader = |device| {
            let first_copy = self.table[&device].first_copy;
            Reader {
                device,
                role: role(device),
                first: self.in_first_wave(device),
                places: [Some(first_copy), Some(1 - first_copy)],
            }
        };
        devices.map(reader).collect()
    }

    /// This superblock is durable on all that it speaks to.
    fn heard(&mut self, flight: &Flight) {
        let unwritten = |reader: &&Reader| reader.places == [None; 2];
        let unwritten = flight.devices.iter().filter(unwritten);
        let unwritten: Vec<DeviceId> = unwritten.map(|reader| reader.device).collect();
        for Reader { device, .. } in &flight.devices {
            let member = self.table.get_mut(*device);
            if let Some(member) = member.filter(|_| !unwritten.contains(device)) {
                member.heard = flight.image.generation;
            }
        }
        let rows = self.table.slots().iter().zip(&flight.image.slots);
        let there = rows.filter(|(slot, _)| {
            let device = slot.current().or(slot.incoming());
            device.is_some_and(|device| !unwritten.contains(&device))
        });
        let known = there.map(|(_, row)| row.known.heard).min();
        self.persist.known = known.unwrap_or(flight.image.generation);
    }

    /// A device that grew while it serves has the place of its last superblock at its new end,
    /// where nothing lies yet: that is written first.
    pub(crate) fn follow_ends(&mut self) {
        for member in self.table.members_mut() {
            if member.info.bytes > member.layout.device_bytes {
                member.layout.device_bytes = member.info.bytes;
                member.places.device_bytes = member.info.bytes;
                member.first_copy = 1;
            }
        }
    }

    fn write_copies(&mut self) -> bool {
        let flight = self.persist.flight.as_ref().expect("a flight was begun");
        let (copies, image) = (flight.copies, flight.image.clone());
        let devices = flight.devices.clone();
        let mut pending = 0;
        for Reader {
            device,
            role,
            first,
            places,
            ..
        } in devices
        {
            if copies != Copies::Second && first != (copies == Copies::First) {
                continue;
            }
            // A device that left since the flight began gets no second copy.
            let place = places[usize::from(copies == Copies::Second)];
            let (Some(member), Some(place)) = (self.table.get(device), place) else {
                continue;
            };
            let (fua, member_uuid) = (member.info.volatile_cache, member.member);
            let sb = Superblock {
                member: member_uuid,
                role,
                layout: member.layout,
                ..image.clone()
            };
            let offset = Layout::superblock_offsets(member.layout.device_bytes)[place];
            let data = Slice::new(Buf::from_bytes(&sb.encode(offset)[..]), 0, SUPERBLOCK_BYTES);
            let kind = IoKind::Write {
                offset,
                data,
                fua,
                purpose: WritePurpose::Metadata,
            };
            self.out
                .io(device, Purpose::Superblock { device, place }, kind);
            pending += 1;
        }
        let flight = self.persist.flight.as_mut().expect("a flight was begun");
        flight.pending = pending;
        pending == 0 && self.copies_written()
    }

    /// A write of a superblock is over. True if pages of the region map may wait for what all of
    /// them say now.
    pub(crate) fn superblock_written(&mut self, device: DeviceId, place: usize) -> bool {
        let Some(flight) = &mut self.persist.flight else {
            return false;
        };
        // A device is no member any more if its write failed.
        if let Some(member) = self.table.get_mut(device) {
            let offsets = Layout::superblock_offsets(member.layout.device_bytes);
            let durable = Durable {
                offset: offsets[place],
                generation: flight.image.generation,
                session: flight.image.sessions.newest(),
            };
            member.copies.written(place, durable);
        }
        flight.pending -= 1;
        flight.pending == 0 && self.copies_written()
    }

    fn copies_written(&mut self) -> bool {
        let over = matches!(self.stage, Stage::Failed | Stage::Stopped);
        if over || self.first_wave_lost() {
            self.persist.flight = None;
            return false;
        }
        let flight = self
            .persist
            .flight
            .as_mut()
            .expect("its last write came back");
        flight.copies = match flight.copies {
            Copies::Read => unreachable!("nothing was written yet"),
            Copies::First => Copies::FirstOfOthers,
            Copies::FirstOfOthers => Copies::Second,
            Copies::Second => {
                self.persist.durable = flight.version;
                self.persist.in_sync = in_sync(&flight.image).collect();
                let flight = self.persist.flight.take().expect("it is at its end");
                self.heard(&flight);
                let (undecided, whole_at) = (flight.image.undecided, flight.image.map_whole_at);
                let said = std::mem::replace(&mut self.persist.says_undecided, undecided);
                let said_whole_at = std::mem::replace(&mut self.persist.says_whole_at, whole_at);
                return !said || whole_at && !said_whole_at;
            }
        };
        self.write_copies()
    }

    /// A first-wave member failed before its copy was durable. The array aborts this version: the
    /// others would record that member as in sync, although it may lack the version. A version that
    /// records it as out follows.
    fn first_wave_lost(&self) -> bool {
        let flight = self.persist.flight.as_ref();
        let goes_on = canary::hit(Canary::FirstWaveGoesOn);
        flight.filter(|_| !goes_on).is_some_and(|flight| {
            let left = |reader: &Reader| !self.table.has(reader.device);
            flight.copies == Copies::First && flight.devices.iter().any(left)
        })
    }

    /// The last durable table calls it in sync, or what it replaces, which keeps its old table.
    fn in_first_wave(&self, device: DeviceId) -> bool {
        // What it holds counts no more once the others know that it is one.
        if self.table.spares().contains(&device) && !canary::hit(Canary::NewcomerHearsEarly) {
            return false;
        }
        let known = |member: &Member| self.persist.in_sync.contains(&Some(member.member));
        let replaces = |slot: &SlotUse| slot.current() == Some(device) && slot.outgoing().is_some();
        self.table.get(device).is_some_and(known)
            || self.table.slots().iter().any(replaces)
            || canary::hit(Canary::NewcomerHearsEarly)
    }
}
