//! What lies where a flight of superblocks is about to write: read before it is written over.
//!
//! Another program may empty a member that serves, or put an older image of it in its place. Two
//! copies of a superblock show that, until the array writes new ones over them. So the array reads
//! each place first, and compares the copy with what it wrote there last.
//!
//! | a place shows | verdict |
//! |---|---|
//! | the copy that the array wrote last | nothing |
//! | a read error, or a damaged copy | nothing: a drive may do that to one block |
//! | no superblock, or one of another member | the member is emptied |
//! | a copy of another generation, and so does the other place | the member is an older image |
//!
//! One copy of another generation is nothing: the drive lost a write, or put it elsewhere.
//!
//! A member with a verdict goes out. Members go out together, or not at all: where the level does
//! not survive the loss of all of them, they stay in service, the array does not write over what
//! shows their state, and nothing is rebuilt from them. A member that shows no copy at either place
//! goes out in any case.
//!
//! Invariants:
//! * The array writes no superblock to a place that shows that its member was emptied, nor to an
//!   older image that the table knows as one: the next start has the same evidence.
//! * The array reads only places to which it wrote, or from which it started.
//!
//! Deliberately absent: when places are read and written (`metadata::superblocks`).

use strake_format::*;

use crate::array::metadata::superblocks::Reader;
use crate::array::{Array, Member, Stage};
use crate::mem::buffer::Buf;
use crate::proto::*;
use crate::units::*;

/// A copy that is durable at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Durable {
    pub(crate) offset: u64,
    pub(crate) generation: Generation,
}

/// What the array knows of the two copies on a member.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copies {
    pub(crate) durable: [Option<Durable>; 2],
    /// The member stays in service although its copies speak against it.
    pub(crate) doubted: bool,
}

impl Copies {
    /// Of a device that was read when the array started, or when its member came back: the copy
    /// that is not replaced first is the one that was chosen. Of the other one nothing is known.
    pub(crate) fn found(info: &DeviceInfo, own: &Superblock, copy_to_replace: usize) -> Copies {
        let mut durable = [None; 2];
        // A device that has grown since has its last copy elsewhere.
        if own.layout.device_bytes == info.bytes {
            let place = 1 - copy_to_replace;
            durable[place] = Some(Durable {
                offset: Layout::superblock_offsets(info.bytes)[place],
                generation: own.generation,
            });
        }
        let doubted = false;
        Copies { durable, doubted }
    }
}

/// What a place shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Shown {
    /// Nothing that speaks against the member.
    #[default]
    Nothing,
    /// The copy that was written last.
    Last,
    /// No superblock of this member.
    Missing,
    /// A copy of another generation.
    Other(Generation),
}

impl Shown {
    fn of(bytes: &[u8], durable: Durable, array: ArrayUuid, member: MemberUuid) -> Shown {
        match Superblock::decode(bytes, durable.offset) {
            Ok(sb) if (sb.array, sb.member) != (array, member) => Shown::Missing,
            Ok(sb) if sb.generation != durable.generation => Shown::Other(sb.generation),
            Ok(_) => Shown::Last,
            Err(SuperblockError::NotStrake) => Shown::Missing,
            Err(_) => Shown::Nothing,
        }
    }
}

/// Why a member with such copies cannot be believed.
fn doubt(shown: [Shown; 2]) -> Option<OutCause> {
    let other = |shown: &Shown| matches!(shown, Shown::Other(_));
    match shown {
        _ if shown.contains(&Shown::Missing) => Some(OutCause::Emptied),
        _ if shown.iter().all(other) => Some(OutCause::OlderImage),
        _ => None,
    }
}

/// The places of a doubted member that may be written, of which `first` comes first.
fn writable(shown: [Shown; 2], first: usize, heard: Generation) -> [Option<usize>; 2] {
    // By what its row says the next start sets it aside.
    let known = |shown: &Shown| matches!(shown, Shown::Other(has) if *has < heard);
    let older = shown.iter().all(known);
    let order = [first, 1 - first].into_iter();
    let mut may = order.filter(|&place| shown[place] != Shown::Missing && !older);
    [may.next(), may.next()]
}

impl Array {
    /// Reads a place before it is written over.
    pub(crate) fn read_copy(&mut self, durable: Durable, purpose: crate::array::Purpose) {
        let device = purpose.device();
        let kind = IoKind::Read {
            offset: durable.offset,
            buf: Buf::zeroed(SUPERBLOCK_BYTES),
            start: 0,
            len: SUPERBLOCK_BYTES,
        };
        self.out.io(device, purpose, kind);
    }

    /// What was read there.
    pub(crate) fn shown_by(
        &self,
        device: DeviceId,
        place: usize,
        completion: &Completion,
    ) -> Shown {
        let member = self.table.get(device);
        let durable = member.and_then(|m: &Member| m.copies.durable[place]);
        let (Some(member), Some(durable)) = (member, durable) else {
            return Shown::Nothing;
        };
        match (&completion.result, &completion.buf) {
            (Ok(()), Some(buf)) => {
                let bytes = &buf.bytes()[..SUPERBLOCK_BYTES];
                Shown::of(bytes, durable, self.sb.array, member.member)
            }
            _ => Shown::Nothing,
        }
    }

    /// Puts out members with copies that speak against them, and notes where others are written.
    /// True if a member went out: the table is another now.
    pub(crate) fn judge_copies(&mut self, readers: &mut [Reader]) -> bool {
        let gone = |reader: &&Reader| reader.shown == [Shown::Missing; 2];
        let gone: Vec<DeviceId> = readers.iter().filter(gone).map(|r| r.device).collect();
        for &device in &gone {
            self.member_out(device, OutCause::Emptied);
        }
        if self.stage == Stage::Failed {
            return true;
        }
        let doubts: Vec<(DeviceId, OutCause)> = readers
            .iter()
            .filter(|reader| !gone.contains(&reader.device))
            .filter_map(|reader| Some((reader.device, doubt(reader.shown)?)))
            .collect();
        let others = |device: DeviceId| {
            let all = doubts.iter().map(|&(other, _)| other);
            all.filter(|&other| other != device).collect::<Vec<_>>()
        };
        let (out, stay): (Vec<_>, Vec<_>) = doubts
            .iter()
            .partition(|&&(device, _)| self.bears_loss(device, &others(device)));
        for &(device, cause) in &out {
            self.member_out(device, cause);
        }
        for reader in readers.iter_mut() {
            self.note_doubt(reader, &stay);
        }
        !(gone.is_empty() && out.is_empty())
    }

    fn note_doubt(&mut self, reader: &mut Reader, stay: &[(DeviceId, OutCause)]) {
        let device = reader.device;
        let slot = self.table.slot_of(device);
        let Some(member) = self.table.get_mut(device) else {
            return;
        };
        let doubt = stay.iter().find(|(doubted, _)| *doubted == device);
        let said = std::mem::replace(&mut member.copies.doubted, doubt.is_some());
        let Some(&(_, cause)) = doubt else {
            return;
        };
        reader.places = writable(reader.shown, member.first_copy, member.heard);
        if let Some(slot) = slot.filter(|_| !said) {
            self.out.event(EventKind::MemberDoubted {
                slot,
                device,
                cause,
            });
        }
    }
}
