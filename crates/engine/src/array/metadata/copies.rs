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
//! | a copy of another generation or session, and the other place that or a damaged one | an older image |
//!
//! One copy of another generation beside the last one is nothing: the drive lost a write, or put it
//! elsewhere. An image may have been taken while a copy was being written, so one is damaged there.
//!
//! What a place shows against its member counts until the array writes there, or reads there the
//! copy that it wrote last. A read that fails in between changes nothing.
//!
//! A member with a verdict goes out. Members go out together, or not at all: where the level does
//! not survive the loss of all of them, they stay in service and are *doubted*. The array does not
//! write over what shows their state, and no job computes anything from them ([`Jobs`]). A member
//! that shows no copy at either place goes out in any case.
//!
//! A doubt ends when the copies are right again, and the array says so.
//!
//! | a doubted member shows | written |
//! |---|---|
//! | no copy at one place; at the other the last one, or nothing is known | the other place |
//! | no copy at one place; at the other another generation | none |
//! | other generations at both places | none |
//!
//! A member that is not written lacks the tables of that time, so it may witness nothing of them
//! ([`Known`]): the table says that the member had more than what it shows.
//!
//! Invariants:
//! * The array writes no superblock to a place that shows that its member was emptied, nor to a
//!   member of which no place shows the copy that was written last: the next start has the same
//!   evidence.
//! * The array reads only places to which it wrote, or from which it started.
//!
//! [`Jobs`]: crate::array::jobs::Jobs
//!
//! Deliberately absent: when places are read and written (`metadata::superblocks`).

use strake_format::*;

use crate::array::metadata::superblocks::Reader;
use crate::array::{Array, Stage};
use crate::canary::{self, Canary};
use crate::mem::buffer::Buf;
use crate::proto::*;
use crate::units::*;

/// A copy that is durable at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Durable {
    pub(crate) offset: u64,
    pub(crate) generation: Generation,
    /// The session that wrote it.
    pub(crate) session: Option<u32>,
}

/// What the array knows of the two copies on a member.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copies {
    pub(crate) durable: [Option<Durable>; 2],
    /// What each place showed when something was last known of it.
    pub(crate) shown: [Shown; 2],
    /// The member stays in service although its copies speak against it: why it would be out.
    pub(crate) doubted: Option<OutCause>,
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
                session: own.sessions.newest(),
            });
        }
        Copies {
            durable,
            ..Copies::default()
        }
    }

    /// A copy is durable at a place.
    pub(crate) fn written(&mut self, place: usize, durable: Durable) {
        self.durable[place] = Some(durable);
        self.shown[place] = Shown::Nothing;
    }

    /// The newest generation that was durable at a place.
    fn newest(&self) -> Option<Generation> {
        let durable = self.durable.iter().flatten();
        durable.map(|durable| durable.generation).max()
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
    /// A superblock that is not whole.
    Damaged,
    /// No superblock of this member.
    Missing,
    /// A copy of another generation, or of another session.
    Other(Generation),
}

impl Shown {
    fn of(bytes: &[u8], durable: Durable, array: ArrayUuid, member: MemberUuid) -> Shown {
        match Superblock::decode(bytes, durable.offset) {
            Ok(sb) if (sb.array, sb.member) != (array, member) => Shown::Missing,
            Ok(sb) if sb.generation != durable.generation => Shown::Other(sb.generation),
            // Of another branch of the same history.
            Ok(sb) if sb.sessions.newest() != durable.session => Shown::Other(sb.generation),
            Ok(_) => Shown::Last,
            Err(SuperblockError::NotStrake) => Shown::Missing,
            Err(SuperblockError::Damaged { .. }) => Shown::Damaged,
            // A write went astray, or worse.
            Err(_) => Shown::Nothing,
        }
    }

    /// What is known of a place once it shows this.
    fn after(self, before: Shown) -> Shown {
        match self {
            Shown::Nothing => before,
            Shown::Damaged if matches!(before, Shown::Missing | Shown::Other(_)) => before,
            _ => self,
        }
    }
}

/// Why a member with such copies cannot be believed.
fn doubt(shown: [Shown; 2]) -> Option<OutCause> {
    let old = |shown: &Shown| matches!(shown, Shown::Other(_) | Shown::Damaged);
    match shown {
        _ if shown.contains(&Shown::Missing) => Some(OutCause::Emptied),
        [Shown::Damaged, Shown::Damaged] => None,
        _ if shown.iter().all(old) => Some(OutCause::OlderImage),
        _ => None,
    }
}

/// What a doubted member shows is of another moment: none of it is what was written last.
fn is_other(shown: [Shown; 2]) -> bool {
    let other = |shown: &Shown| matches!(shown, Shown::Other(_));
    shown.iter().any(other) && !shown.contains(&Shown::Last)
}

/// The places of a doubted member that may be written, of which `first` comes first.
fn writable(shown: [Shown; 2], first: usize) -> [Option<usize>; 2] {
    let order = [first, 1 - first].into_iter();
    let mut may = order.filter(|&place| shown[place] != Shown::Missing && !is_other(shown));
    [may.next(), may.next()]
}

/// What the table is to say that a doubted member has heard, if it is not written: more than what
/// it shows. `heard` is what the table says, `had` the newest that was durable on the member. An
/// image that is newer than that is no older one.
fn heard_beyond(shown: [Shown; 2], heard: Generation, had: Option<Generation>) -> Generation {
    let shows = shown.iter().filter_map(|shown| match shown {
        Shown::Other(has) => Some(*has),
        _ => None,
    });
    let newest = shows
        .max()
        .filter(|&has| is_other(shown) && Some(has) < had);
    newest.map_or(heard, |has| heard.max(has.next()))
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

    /// Notes what was read there. Where nothing was, what the place showed before counts.
    pub(crate) fn note_shown(&mut self, device: DeviceId, place: usize, completion: &Completion) {
        let array = self.sb.array;
        let Some(member) = self.table.get_mut(device) else {
            return;
        };
        let shown = match (&completion.result, &completion.buf) {
            (Ok(()), Some(buf)) => member.copies.durable[place].map(|durable| {
                let bytes = &buf.bytes()[..SUPERBLOCK_BYTES];
                Shown::of(bytes, durable, array, member.member)
            }),
            _ => None,
        };
        let before = member.copies.shown[place];
        member.copies.shown[place] = match shown {
            Some(shown) => shown.after(before),
            None if canary::hit(Canary::DoubtForgotten) => Shown::Nothing,
            None => before,
        };
    }

    /// Puts out members with copies that speak against them, and notes where others are written.
    /// True if the table is another now.
    pub(crate) fn judge_copies(&mut self, readers: &mut [Reader]) -> bool {
        let shown = |reader: &Reader| {
            let member = self.table.get(reader.device);
            (
                reader.device,
                member.map_or_else(Default::default, |m| m.copies.shown),
            )
        };
        let shown: Vec<(DeviceId, [Shown; 2])> = readers.iter().map(shown).collect();
        let (gone, left): (Vec<_>, Vec<_>) = shown
            .into_iter()
            .partition(|(_, shown)| *shown == [Shown::Missing; 2]);
        for &(device, _) in &gone {
            self.member_out(device, OutCause::Emptied);
        }
        if self.stage == Stage::Failed {
            return true;
        }
        let doubts: Vec<(DeviceId, OutCause)> = left
            .into_iter()
            .filter_map(|(device, shown)| Some((device, doubt(shown)?)))
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
        let mut changed = !(gone.is_empty() && out.is_empty());
        for reader in readers.iter_mut() {
            changed |= self.note_doubt(reader, &stay);
        }
        changed
    }

    /// True if the table is another now.
    fn note_doubt(&mut self, reader: &mut Reader, stay: &[(DeviceId, OutCause)]) -> bool {
        let device = reader.device;
        let slot = self.table.slot_of(device);
        let Some(member) = self.table.get_mut(device) else {
            return false;
        };
        let doubt = stay.iter().find(|(doubted, _)| *doubted == device);
        let doubt = doubt.map(|&(_, cause)| cause);
        let before = std::mem::replace(&mut member.copies.doubted, doubt);
        let Some(cause) = doubt else {
            if let Some(slot) = slot.filter(|_| before.is_some()) {
                let ends = EventKind::MemberNoLongerDoubted { slot, device };
                self.out.event(ends);
            }
            return false;
        };
        let shown = member.copies.shown;
        reader.places = writable(shown, member.first_copy);
        let heard = heard_beyond(shown, member.heard, member.copies.newest());
        let changed = heard > std::mem::replace(&mut member.heard, heard);
        if let Some(slot) = slot.filter(|_| before.is_none()) {
            self.out.event(EventKind::MemberDoubted {
                slot,
                device,
                cause,
            });
        }
        if changed {
            self.persist.touch();
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Shown = Shown::Nothing;
    const LAST: Shown = Shown::Last;
    const MISSING: Shown = Shown::Missing;

    fn other(generation: u64) -> Shown {
        Shown::Other(Generation(generation))
    }

    #[test]
    fn a_doubted_member_is_written_only_where_a_place_may_hold_what_was_written_last() {
        let both = [Some(1), Some(0)];
        let table = [
            ([MISSING, LAST], [Some(1), None]),
            ([MISSING, NOTHING], [Some(1), None]),
            ([NOTHING, MISSING], [Some(0), None]),
            ([MISSING, other(3)], [None, None]),
            ([MISSING, other(30)], [None, None]),
            ([other(3), MISSING], [None, None]),
            ([other(3), other(2)], [None, None]),
            ([other(30), other(2)], [None, None]),
            ([other(30), other(31)], [None, None]),
            ([other(3), LAST], both),
            ([Shown::Damaged, other(3)], [None, None]),
            ([Shown::Damaged, LAST], both),
        ];
        for (shown, places) in table {
            assert_eq!(writable(shown, 1), places, "{shown:?}");
        }
    }

    /// An image that was taken while a copy was being written passed for the member.
    #[test]
    fn a_copy_of_another_generation_beside_a_damaged_one_is_an_older_image() {
        let damaged = Shown::Damaged;
        assert_eq!(doubt([damaged, other(3)]), Some(OutCause::OlderImage));
        assert_eq!(doubt([other(3), damaged]), Some(OutCause::OlderImage));
        assert_eq!(doubt([damaged, LAST]), None);
        assert_eq!(doubt([damaged, NOTHING]), None);
        assert_eq!(doubt([damaged, damaged]), None);
        // What speaks against a member stays.
        assert_eq!(damaged.after(MISSING), MISSING);
        assert_eq!(damaged.after(other(3)), other(3));
        assert_eq!(damaged.after(LAST), damaged);
        assert_eq!(NOTHING.after(damaged), damaged);
    }

    /// An image that was taken between the two writes of a flight shows at one place what the table
    /// says that its member heard: the next start would take it for the member.
    #[test]
    fn the_table_says_that_an_image_which_is_not_written_had_more() {
        let (heard, had) = (Generation(7), Some(Generation(8)));
        let beyond = |shown| heard_beyond(shown, heard, had);
        assert_eq!(beyond([other(7), other(6)]), Generation(8));
        assert_eq!(beyond([MISSING, other(7)]), Generation(8));
        assert_eq!(beyond([other(3), other(2)]), heard);
        // What is written is not held against its member, ...
        assert_eq!(beyond([MISSING, LAST]), heard);
        assert_eq!(beyond([other(7), LAST]), heard);
        // ... and an image of another past is not older.
        assert_eq!(beyond([other(8), other(2)]), heard);
        assert_eq!(beyond([other(90), other(2)]), heard);
    }
}
