//! Which of several superblocks to believe: of the two copies on a member, and of the members of an
//! array.
//!
//! What the engine promises, and what all of this rests on:
//! * A change of membership takes a new epoch, and every row of the table that it changes takes
//!   that epoch as `since`.
//! * **No write is acknowledged under a table that is not durable on every member which that table
//!   calls live** (in sync or rebuilding).
//! * A member that was out comes back by way of rebuilding, and the rebuild runs only once the
//!   table that says so is durable on every member which that table calls live. (Else those could
//!   go on under the table before it, which needs no new epoch to leave the member out, while the
//!   member is called in sync.)
//!
//! * Before anything is written after a start, every row says which generation its member *heard*:
//!   both copies of it were durable there when the row was written. So does every row after a clean
//!   stop, and that of a member which is out, to which the first generation is added that says so.
//!
//! * Each start draws a number, and superblocks name the sessions that wrote their generations
//!   ([`Sessions`](crate::sessions::Sessions)).
//!
//! A member is of another *branch* where its own history and that of a table name two sessions for
//! a generation that it heard, and has: the array was started twice from one past. Generations and
//! epochs of two branches may be the same.
//!
//! What is older than its row says is an older image of the member ([`Past`]), and stale, whatever
//! else is said of it; nor does it witness anything that came after it. What a witness has got
//! since it went on without the holder of a table is not compared with that table: its numbers grow
//! as those of the holder did.
//!
//! Three questions decide about a member, and [`verdict`] is their table:
//! * What does the authority's table say of it: [`Listed`].
//! * Is its own table an older edition of the authority's: [`History`]. It is, if the authority's
//!   superblock has its number for the member's epoch, and every row is either the same in both or
//!   entered the authority's after that epoch. A member that went on alone put the authority's
//!   members out in an edition that is not among the authority's.
//! * Can anything have been acknowledged under its own table that the authority's members missed:
//!   [`Claim`]. Nothing can, if a member that shares the authority's history, and that its table
//!   calls in sync, was found and never saw that table: a crash came between the superblocks. A
//!   member that is rebuilding is no such witness: what came before it was taken in may have been
//!   acknowledged without it.
//!
//! The authority is the newest by (epoch, generation) of the members that their own table calls
//! live and that nothing found contradicts with a claim that stands. So a table that never took
//! effect does not beat one that did, however high its counters. If two tables of one moment
//! differ, neither took effect (a power cut came between the superblocks, and another at the next
//! start, which had not found the holder of the first); then neither is the authority, but the
//! table before them.
//!
//! How a member that was out may come back is [`returns`]'s to say: by the regions that are behind,
//! by a full rebuild, or, if it may hold acknowledged writes of its own, not at all.
//!
//! Invariants: no member is believed that missed an acknowledged write of which anything found
//! knows; what cannot be decided is an error that names both sides. The answer does not depend on
//! the order of what was found.
//!
//! Deliberately absent: whether enough members are believed to run (engine), and any reading of
//! data or clocks.

use crate::error::{SelectError, SuperblockError};
use crate::identity::{Epoch, Generation, Slot};
use crate::layout::Layout;
use crate::superblock::{
    Known, Replacement, Role, SUPERBLOCK_BYTES, SlotRecord, SlotState, Superblock,
};

/// What lies at a place for a superblock.
pub type SuperblockBytes = Box<[u8; SUPERBLOCK_BYTES]>;

/// What one copy of a superblock turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStatus {
    /// Believable, though perhaps older than the other.
    Valid(Generation),
    /// Not believable.
    Bad(SuperblockError),
}

impl CopyStatus {
    /// Whether the copy is believable.
    pub fn is_valid(self) -> bool {
        matches!(self, CopyStatus::Valid(_))
    }
}

/// The superblock of one member from its two copies: the newer of those that are valid.
///
/// # Errors
/// Why neither can be believed, or both cannot be believed together.
pub fn select_copy(
    device_bytes: u64,
    first: &[u8],
    last: &[u8],
) -> Result<(Superblock, [CopyStatus; 2]), SelectError> {
    let [first_at, last_at] = Layout::superblock_offsets(device_bytes);
    let first = Superblock::decode(first, first_at);
    let last = Superblock::decode(last, last_at);
    let status = |copy: &Result<Superblock, SuperblockError>| match copy {
        Ok(superblock) => CopyStatus::Valid(superblock.generation),
        Err(error) => CopyStatus::Bad(*error),
    };
    let statuses = [status(&first), status(&last)];
    let chosen = match (first, last) {
        (Ok(first), Ok(last)) => newer_copy(first, last)?,
        (Ok(only), Err(_)) | (Err(_), Ok(only)) => only,
        (Err(SuperblockError::NotStrake), Err(SuperblockError::NotStrake)) => {
            return Err(SelectError::NotStrake);
        }
        (Err(first), Err(last)) => return Err(SelectError::NoValidCopy { first, last }),
    };
    let recorded_bytes = chosen.layout.device_bytes;
    if recorded_bytes > device_bytes {
        return Err(SelectError::Shrunk {
            recorded_bytes,
            device_bytes,
        });
    }
    Ok((chosen, statuses))
}

/// The superblock of one member: what [`select_copy`] chooses of its two copies, unless its device
/// has grown since. Then no daemon was there to write another copy at the new end, and the one that
/// lies in the middle now may be the newer, or the only one that is whole.
///
/// `read` gives what lies at an offset, or nothing where that cannot be read.
///
/// # Errors
/// As those of [`select_copy`].
pub fn select_member(
    device_bytes: u64,
    mut read: impl FnMut(u64) -> Option<SuperblockBytes>,
) -> Result<(Superblock, [CopyStatus; 2]), SelectError> {
    // What cannot be read is as good as damaged: zeros are no superblock.
    let zeros = || Box::new([0; SUPERBLOCK_BYTES]);
    let copies = Layout::superblock_offsets(device_bytes);
    let [first, last] = copies.map(|offset| read(offset).unwrap_or_else(zeros));
    let end_of = |then: u64| Layout::superblock_offsets(then)[1];
    let mut former = |then: u64| {
        let offset = (then < device_bytes).then(|| end_of(then))?;
        let former = Superblock::decode(&read(offset)?[..], offset).ok()?;
        (former.layout.device_bytes == then).then_some(former)
    };
    match select_copy(device_bytes, &first[..], &last[..]) {
        Ok((chosen, statuses)) => {
            let of = |s: &Superblock| (s.array, s.member);
            let newer = |former: &Superblock| {
                of(former) == of(&chosen) && former.generation > chosen.generation
            };
            let former = former(chosen.layout.device_bytes).filter(newer);
            Ok((former.unwrap_or(chosen), statuses))
        }
        // Torn, before it was known that the device had grown. Of a damaged copy nothing is
        // believed but where to look.
        Err(
            error @ SelectError::NoValidCopy {
                first: damaged @ SuperblockError::Damaged { .. },
                last,
            },
        ) => {
            let then = Superblock::claimed_device_bytes(&first[..]);
            let statuses = [CopyStatus::Bad(damaged), CopyStatus::Bad(last)];
            let former = then.and_then(former);
            former.map(|former| (former, statuses)).ok_or(error)
        }
        Err(error) => Err(error),
    }
}

/// Which copy of a member the next version must go over first: one that is not valid, else the
/// older. The newest whole copy is written over last, so that a power cut between the two, or
/// another one while the next start writes them again, always leaves one.
pub fn copy_to_replace(copies: [CopyStatus; 2]) -> usize {
    match copies {
        // Of a device that grew: the old end holds a whole one, and where that is only the first
        // copy may say.
        [CopyStatus::Bad(_), CopyStatus::Bad(_)] => 1,
        [CopyStatus::Bad(_), _] => 0,
        [_, CopyStatus::Bad(_)] => 1,
        [CopyStatus::Valid(first), CopyStatus::Valid(last)] => usize::from(last < first),
    }
}

/// Which of the two places in which a member has a copy of its superblock holds none, and nothing
/// that one left: `None` where there is none. A write that was torn, rot, or a block that cannot be
/// read is not that; what lies there was written by another program, or is not the medium on which
/// the copy was. `own` is what [`select_member`] chose; `read` as there.
pub fn lost_copy(
    own: &Superblock,
    mut read: impl FnMut(u64) -> Option<SuperblockBytes>,
) -> Option<u64> {
    let mut places = Layout::superblock_offsets(own.layout.device_bytes).into_iter();
    places.find(|&offset| {
        let copy = read(offset).map(|bytes| Superblock::decode(&bytes[..], offset));
        matches!(copy, Some(Err(SuperblockError::NotStrake)))
    })
}

/// Of which past of a member what was found of it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// As far as can be told it is what the member was last.
    Last,
    /// It is an image of the member from before: it lacks a superblock that the member had.
    Older {
        /// What it has.
        has: Generation,
        /// What the member had at least.
        heard: Generation,
    },
    /// It went on after the array was without it: the array was started from images from before.
    Other {
        /// What it has.
        has: Generation,
        /// The first generation that the member cannot have.
        first: Generation,
    },
    /// It is of another branch of the same history.
    Branch {
        /// What it has.
        has: Generation,
        /// A generation that the member had, and that another session wrote.
        at: Generation,
    },
    /// It is either of what it was last and of another past: it was put out so many generations
    /// after the last that it is known to have had that the table cannot say how many.
    Unclear {
        /// What it has.
        has: Generation,
        /// It was out from this generation on, or from a later one.
        first: Generation,
    },
}

/// See [`Past`]: `own` as a table knows it, which is that of a running array, or of the authority.
pub fn past(own: &Superblock, table: &Superblock) -> Past {
    let filled = |member| {
        let mut replacements = table.replacements.iter();
        replacements.find(|r: &&Replacement| r.member == member)
    };
    let row = table.slot_of(own.member).and_then(|slot| table.slot(slot));
    let known = row
        .map(|row| row.known)
        .or(filled(own.member).map(|r| r.known));
    let (known, has) = (known.unwrap_or_default(), own.generation);
    let first = Generation(known.heard.0 + u64::from(known.gap));
    // The member had it, in the history of the table and in its own.
    let at = known.heard.min(has);
    if is_branch(own, table, at) {
        Past::Branch { has, at }
    } else if row.is_some() && own.epoch < table.epoch && has >= table.generation {
        // In one history neither number falls: this one is of another.
        let first = table.generation;
        Past::Other { has, first }
    } else if has < known.heard {
        let heard = known.heard;
        Past::Older { has, heard }
    } else if known.gap == u8::MAX && has >= first && row.is_some_and(|r| own.epoch < r.since) {
        Past::Unclear { has, first }
    } else if known.gap > 0 && has >= first {
        Past::Other { has, first }
    } else {
        Past::Last
    }
}

/// Whether two sessions wrote this generation: one in the history of the table, one in its own.
fn is_branch(own: &Superblock, table: &Superblock, at: Generation) -> bool {
    let sessions = (own.sessions.at(at), table.sessions.at(at));
    matches!(sessions, (Some(own), Some(table)) if own != table)
}

/// The newer of two valid copies.
fn newer_copy(first: Superblock, last: Superblock) -> Result<Superblock, SelectError> {
    if (first.array, first.member) != (last.array, last.member) {
        return Err(SelectError::CopiesDisagree {
            first: first.member,
            last: last.member,
        });
    }
    if first.generation == last.generation && first != last {
        return Err(SelectError::CopiesDiffer {
            generation: first.generation,
        });
    }
    Ok(if last.generation > first.generation {
        last
    } else {
        first
    })
}

/// What was found for a slot; the index is that of the superblock given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Its member, with all that the authority's table says it has.
    Believed(usize),
    /// A member that missed writes, an older image of one, or one that was removed.
    Stale(usize),
    /// Nothing.
    Absent,
}

/// What an array can be assembled from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The superblock that has the valid table.
    pub authority: usize,
    /// One finding per slot.
    pub slots: Vec<Finding>,
    /// Spares found that the authority lists.
    pub spares: Vec<usize>,
    /// Found, but of no use: removed or replaced members that lost their slot to another, spares
    /// that are no longer listed.
    pub strays: Vec<usize>,
}

/// What the authority's table says of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// In sync or rebuilding.
    Live,
    /// Missing, failed, or not in the table.
    Out,
}

/// How a member's table relates to the authority's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// It is the same, or an older edition of it.
    Shared,
    /// It is neither.
    Parted,
}

/// Whether writes can have been acknowledged under a member's own table that are not part of the
/// authority's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// They can.
    Stands,
    /// They cannot: a member of the authority's history that the table calls in sync never saw the
    /// table.
    Void,
}

/// What a member is to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All acknowledged writes reached it that its row says did.
    Believed,
    /// It missed writes.
    Stale,
    /// It and the authority may each hold acknowledged writes that the other lacks.
    SplitBrain,
}

/// The decision table.
pub fn verdict(listed: Listed, history: History, claim: Claim) -> Verdict {
    match (listed, history, claim) {
        // A crash between superblocks at most: nothing was acknowledged that this member missed.
        (Listed::Live, History::Shared, Claim::Stands) => Verdict::Believed,
        (Listed::Live, History::Shared, Claim::Void) => Verdict::Believed,
        // Its own table never took effect; as far as writes go it stands where the authority's
        // table has it.
        (Listed::Live, History::Parted, Claim::Void) => Verdict::Believed,
        // It was away, or put out, and knows nothing newer.
        (Listed::Out, History::Shared, Claim::Stands) => Verdict::Stale,
        (Listed::Out, History::Shared, Claim::Void) => Verdict::Stale,
        (Listed::Out, History::Parted, Claim::Void) => Verdict::Stale,
        // It went on alone.
        (Listed::Live, History::Parted, Claim::Stands) => Verdict::SplitBrain,
        (Listed::Out, History::Parted, Claim::Stands) => Verdict::SplitBrain,
    }
}

/// What the members found of one array are to it.
///
/// # Errors
/// Why no array can be assembled from them.
pub fn select_array(found: &[Superblock]) -> Result<Selection, SelectError> {
    let first = found.first().ok_or(SelectError::NoMembers)?;
    if let Some(other) = found.iter().find(|other| other.array != first.array) {
        return Err(SelectError::TwoArrays {
            first: first.array,
            second: other.array,
        });
    }
    let mut members: Vec<_> = found.iter().map(|superblock| superblock.member).collect();
    members.sort_unstable();
    if let Some(pair) = members.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(SelectError::DuplicateMember { member: pair[0] });
    }
    let authority = choose_authority(found)?;
    classify(found, authority)
}

/// Whether two records say the same of a slot; how far a rebuild has come does not count.
fn same_record(a: &SlotRecord, b: &SlotRecord) -> bool {
    let kind = |state| match state {
        SlotState::InSync => 1,
        SlotState::Rebuilding { .. } => 2,
        SlotState::Missing => 3,
        SlotState::Failed => 4,
    };
    a.member == b.member && a.since == b.since && kind(a.state) == kind(b.state)
}

/// Whether both describe one geometry.
fn same_geometry(a: &Superblock, b: &Superblock) -> bool {
    let of = |s: &Superblock| {
        let layout = Layout {
            device_bytes: 0,
            ..s.layout
        };
        (
            s.level,
            (s.strip_bytes, s.band_rows),
            s.group_size,
            s.members,
            s.fixed_parities,
            s.block_bytes,
            s.created_unix_s,
            layout,
        )
    };
    of(a) == of(b)
}

/// Whether both say the same of the array, whichever member they belong to.
fn same_content(a: &Superblock, b: &Superblock) -> bool {
    let of = |s: &Superblock| (s.name.clone(), s.write_hole, s.clean, s.settings, s.moving);
    let slots = |s: &Superblock| -> Vec<SlotRecord> {
        let known = Known::default();
        s.slots
            .iter()
            .map(|row| SlotRecord { known, ..*row })
            .collect()
    };
    let replacements = |s: &Superblock| -> Vec<Replacement> {
        let known = Known::default();
        let each = s.replacements.iter();
        each.map(|row| Replacement { known, ..*row }).collect()
    };
    of(a) == of(b)
        && slots(a) == slots(b)
        && a.spares == b.spares
        && replacements(a) == replacements(b)
}

/// Whether `old` is `new` or an older edition of it.
fn history(old: &Superblock, new: &Superblock) -> History {
    let rows = old.slots.iter().zip(&new.slots);
    let newer = |(old_row, new_row): (&SlotRecord, &SlotRecord)| {
        new_row.since > old.epoch || same_record(old_row, new_row)
    };
    // Further back than editions are kept, only the rows tell.
    let same_past = new
        .edition_of(old.epoch)
        .is_none_or(|edition| edition == old.editions[0]);
    let one_moment = (old.epoch, old.generation) == (new.epoch, new.generation);
    let same_shape = same_geometry(old, new) || new.shape_since > old.epoch;
    let shared = same_shape
        && old.epoch <= new.epoch
        && same_past
        && rows.into_iter().all(newer)
        && (!one_moment || same_content(old, new));
    if shared {
        History::Shared
    } else {
        History::Parted
    }
}

/// Whether a witness that now has numbers which no member of `holder`'s history can have ([`Past`])
/// got them only after it went on without the holder. Its own row of the holder says so: the
/// witness put the holder out in the epoch in which the two histories parted, and with the
/// generation that it had until then it was what it was last, by `holder`'s row of it. Its later
/// numbers are of its own history, and `holder`'s table says nothing of them.
fn grew_apart(witness: &Superblock, holder: &Superblock) -> bool {
    let row = |of: &Superblock, member| of.slot_of(member).and_then(|slot| of.slot(slot)).copied();
    let (Some(out), Some(own)) = (row(witness, holder.member), row(holder, witness.member)) else {
        return false;
    };
    // A gap that does not fit does not say which generation that was.
    let known = !out.state.is_live() && (1..u8::MAX).contains(&out.known.gap);
    let before = Epoch(out.since.0.saturating_sub(1));
    let edition = witness.edition_of(before);
    let together = edition.is_some() && edition == holder.edition_of(before);
    let first_without = out.known.heard.0 + u64::from(out.known.gap);
    let last = Generation(first_without.saturating_sub(1));
    known && together && (own.known.heard..holder.generation).contains(&last)
}

/// Whether writes can have been acknowledged under the table of `holder` that `authority`'s history
/// lacks.
fn claim(holder: &Superblock, authority: &Superblock, found: &[Superblock]) -> Claim {
    let never_saw = |witness: &Superblock| {
        let row = holder
            .slot_of(witness.member)
            .and_then(|slot| holder.slot(slot));
        witness.member != holder.member
            && row.is_some_and(|row| row.state == SlotState::InSync)
            && match past(witness, holder) {
                Past::Last => true,
                Past::Other { .. } => grew_apart(witness, holder),
                Past::Older { .. } | Past::Branch { .. } | Past::Unclear { .. } => false,
            }
            && history(holder, witness) == History::Parted
            && history(witness, authority) == History::Shared
    };
    if found.iter().any(never_saw) {
        Claim::Void
    } else {
        Claim::Stands
    }
}

/// Whether a member's own table calls it live: only such a member can be the authority.
fn is_eligible(superblock: &Superblock) -> bool {
    match superblock.role {
        Role::Slot(slot) => superblock
            .slot(slot)
            .is_some_and(|record| record.state.is_live()),
        Role::Spare => false,
    }
}

/// The error that names both sides. A witness that cannot itself be the authority tells of members
/// that are absent.
fn parted(found: &[Superblock], first: usize, second: usize) -> SelectError {
    let (first, second) = (&found[first], &found[second]);
    if !is_eligible(second) {
        return SelectError::AuthorityAbsent {
            witness: second.member,
            epoch: second.epoch,
        };
    }
    SelectError::SplitBrain {
        first: first.member,
        first_epoch: first.epoch,
        second: second.member,
        second_epoch: second.epoch,
    }
}

/// Indices of `found`, the newest first; equals by member, so that the order of what was found does
/// not matter.
fn newest_first(found: &[Superblock]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_unstable_by_key(|&i| {
        (
            std::cmp::Reverse((found[i].epoch, found[i].generation)),
            found[i].member,
        )
    });
    order
}

/// How a member that is out of the array may come back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// In its own slot, by a rebuild of the regions that are behind: elsewhere it holds what it
    /// should.
    Kept(Slot),
    /// As any other device: nothing of what it holds counts, and nothing is lost with it.
    Afresh,
    /// It may hold acknowledged writes that the array lacks: two halves ran apart, or it served on
    /// while the array was started from an older image of the others.
    SplitBrain,
}

/// How the member with the superblock `own` may come back to the array with the table `table` (that
/// of a running array, or of the authority).
///
/// It comes back by the regions that are behind only if the table says that it is out and kept, and
/// its own superblock says that it is the very member that was put out: in sync (or itself on its
/// way back) in an epoch not before the flags began to count and before it was put out, with a
/// table that is an older edition of the array's. A device that was copied long ago, one that the
/// table has forgotten, and one that was not the last in its slot all fail one of these.
pub fn returns(own: &Superblock, table: &Superblock) -> Returns {
    // It served on from what it had; the array went on from an older image of the others, which
    // therefore do not say whether they saw its table.
    let went_on = matches!(past(own, table), Past::Other { .. } | Past::Branch { .. });
    if own.array == table.array && went_on && is_eligible(own) {
        return Returns::SplitBrain;
    }
    if own.array == table.array && history(own, table) == History::Parted {
        // As in `claim`: a member in sync here that its table calls in sync never saw that table.
        let never_saw = |row: &SlotRecord| {
            let there = own.slot_of(row.member).and_then(|slot| own.slot(slot));
            row.state == SlotState::InSync
                && row.member != own.member
                && there.is_some_and(|row| row.state == SlotState::InSync)
        };
        let void = !is_eligible(own) || table.slots.iter().any(never_saw);
        return if void {
            Returns::Afresh
        } else {
            Returns::SplitBrain
        };
    }
    let Some(slot) = table
        .slot_of(own.member)
        .filter(|_| own.array == table.array)
    else {
        return Returns::Afresh;
    };
    let (Some(here), Some(there)) = (table.slot(slot), own.slot(slot)) else {
        return Returns::Afresh;
    };
    let was_true = match there.state {
        SlotState::InSync => true,
        SlotState::Rebuilding { .. } => there.kept,
        SlotState::Missing | SlotState::Failed => false,
    };
    let kept = here.kept
        && !here.state.is_live()
        && own.role == Role::Slot(slot)
        && there.member == own.member
        && was_true
        && past(own, table) == Past::Last
        && (table.whole_since..here.since).contains(&own.epoch)
        && table.edition_of(own.epoch).is_some();
    if kept {
        Returns::Kept(slot)
    } else {
        Returns::Afresh
    }
}

/// The superblock that has the valid table.
fn choose_authority(found: &[Superblock]) -> Result<usize, SelectError> {
    let order = newest_first(found);
    let eligible = || order.iter().copied().filter(|&i| is_eligible(&found[i]));
    let contradiction = |candidate: usize| {
        let contradicts = |&other: &usize| {
            let (other, candidate) = (&found[other], &found[candidate]);
            history(other, candidate) == History::Parted
                && claim(other, candidate, found) == Claim::Stands
        };
        order.iter().copied().find(contradicts)
    };
    let stands = |candidate: &usize| contradiction(*candidate).is_none();
    let Some(newest) = eligible().find(stands) else {
        // No table stands: name the newest and what stands against it.
        let newest = eligible().next();
        let against = newest.and_then(|newest| Some((newest, contradiction(newest)?)));
        let (first, second) = against.unwrap_or((order[0], order[0]));
        return Err(parted(found, first, second));
    };
    // Two of one moment that differ, neither of which took effect: nothing tells which to take. The
    // one that both come from holds, if it was found.
    let moment = |i: usize| (found[i].epoch, found[i].generation);
    let twin = |one: usize| {
        eligible().filter(stands).find(|&other| {
            let parted = history(&found[other], &found[one]) == History::Parted;
            moment(other) == moment(one) && parted
        })
    };
    let mut standing = eligible().filter(stands);
    match standing.find(|&one| twin(one).is_none()) {
        Some(chosen) => Ok(chosen),
        None => Err(parted(found, newest, twin(newest).unwrap_or(newest))),
    }
}

/// What each member is to the authority.
fn classify(found: &[Superblock], authority: usize) -> Result<Selection, SelectError> {
    let table = &found[authority];
    let mut slots = vec![Finding::Absent; table.slots.len()];
    let (mut spares, mut strays) = (Vec::new(), Vec::new());
    let mut unlisted = Vec::new();
    for (index, superblock) in found.iter().enumerate() {
        let slot = table.slot_of(superblock.member);
        let live = slot
            .and_then(|slot| table.slot(slot))
            .is_some_and(|row| row.state.is_live());
        let listed = if live { Listed::Live } else { Listed::Out };
        let finding = match verdict(
            listed,
            history(superblock, table),
            claim(superblock, table, found),
        ) {
            Verdict::Believed => match past(superblock, table) {
                Past::Last => Finding::Believed(index),
                // Each branch may hold acknowledged writes that the other lacks.
                Past::Branch { .. } => return Err(parted(found, authority, index)),
                _ => Finding::Stale(index),
            },
            Verdict::Stale => Finding::Stale(index),
            Verdict::SplitBrain => return Err(parted(found, authority, index)),
        };
        match slot {
            Some(slot) => slots[slot.index()] = finding,
            None if table.spares.contains(&superblock.member) => spares.push(index),
            None => unlisted.push(index),
        }
    }
    for index in unlisted {
        let slot = match found[index].role {
            Role::Slot(slot) => slots.get_mut(slot.index()),
            Role::Spare => None,
        };
        match slot {
            Some(empty) if *empty == Finding::Absent => *empty = Finding::Stale(index),
            _ => strays.push(index),
        }
    }
    Ok(Selection {
        authority,
        slots,
        spares,
        strays,
    })
}
