//! Selection: the decision table, the two copies, and the scenes that the rules are for.

use strake_format::select::{Claim, History, Listed, Verdict, verdict};
use strake_format::*;

use crate::samples::{array, member, superblock};

const DEVICE: u64 = 16 << 20;

/// Members `slots` of a mirror or RAID 5 of three, all of them well, in epoch 1.
fn three(level: Level) -> Vec<Superblock> {
    (0..3).map(|slot| superblock(level, 3, 3, slot)).collect()
}

/// Takes the next epoch and puts a slot into a state.
fn change(superblock: &Superblock, slot: usize, state: SlotState) -> Superblock {
    let mut next = superblock.clone();
    next.generation = next.generation.next();
    next.slots[slot].state = state;
    next.slots[slot].since = next.epoch.next();
    next.advance();
    next
}

use Finding::{Absent, Believed, Stale};

#[test]
fn the_decision_table_is_total_and_cautious() {
    let mut verdicts = [0; 3];
    for listed in [Listed::Live, Listed::Out] {
        for history in [History::Shared, History::Parted] {
            for claim in [Claim::Stands, Claim::Void] {
                let verdict = verdict(listed, history, claim);
                verdicts[verdict as usize] += 1;
                let parted = history == History::Parted && claim == Claim::Stands;
                assert_eq!(verdict == Verdict::SplitBrain, parted);
                // No member is believed that the authority does not call live.
                assert!(verdict != Verdict::Believed || listed == Listed::Live);
            }
        }
    }
    assert_eq!(verdicts, [3, 3, 2]);
}

/// A RAID 5 of three: member 2 was put out in the next epoch and is kept. Its own superblock, and
/// the others' table.
fn put_out() -> (Superblock, Superblock) {
    let found = three(Level::Raid5);
    let mut table = change(&found[0], 2, SlotState::Missing);
    table.slots[2].kept = true;
    (found[2].clone(), table)
}

#[test]
fn a_member_that_was_put_out_and_is_kept_comes_back_in_its_slot() {
    let (own, mut table) = put_out();
    assert_eq!(returns(&own, &table), Returns::Kept(Slot(2)));
    // Later changes of the others do not matter.
    (0..9).for_each(|_| table.advance());
    assert_eq!(returns(&own, &table), Returns::Kept(Slot(2)));
    table.slots[2].state = SlotState::Failed;
    assert_eq!(returns(&own, &table), Returns::Kept(Slot(2)));
    // Nor does a member that was itself on its way back.
    let mut own = own;
    own.slots[2].state = SlotState::Rebuilding { rebuilt_bytes: 0 };
    own.slots[2].kept = true;
    assert_eq!(returns(&own, &table), Returns::Kept(Slot(2)));
}

#[test]
fn a_member_of_which_anything_is_in_doubt_comes_back_afresh() {
    let (own, table) = put_out();
    let doubts: [fn(&mut Superblock, &mut Superblock); 9] = [
        |_, table| table.slots[2].kept = false,
        |_, table| table.slots[2].member = member(9),
        |_, table| table.slots[2].state = SlotState::InSync,
        |_, table| table.whole_since = Epoch(2),
        |_, table| table.array = array(7),
        |own, _| own.slots[2].state = SlotState::Missing,
        |own, _| own.slots[2].state = SlotState::Rebuilding { rebuilt_bytes: 8 },
        |own, _| own.role = Role::Slot(Slot(1)),
        |own, _| own.role = Role::Spare,
    ];
    for (at, doubt) in doubts.iter().enumerate() {
        let (mut own, mut table) = (own.clone(), table.clone());
        doubt(&mut own, &mut table);
        assert_eq!(returns(&own, &table), Returns::Afresh, "doubt {at}");
    }
    // The others put it out in an epoch that it knows: it cannot be the one that was put out.
    let mut late = table.clone();
    late.slots[2].since = Epoch(1);
    assert_eq!(returns(&own, &late), Returns::Afresh);
    // So long ago that the table cannot tell any more.
    let mut old = table;
    (0..EDITIONS).for_each(|_| old.advance());
    assert_eq!(returns(&own, &old), Returns::Afresh);
}

#[test]
fn two_pasts_are_told_apart_after_every_row_was_replaced() {
    let pair: Vec<Superblock> = (0..2)
        .map(|slot| superblock(Level::Raid1, 2, 2, slot))
        .collect();
    let alone = change(&pair[0], 1, SlotState::Missing);
    let mut other = change(&pair[1], 0, SlotState::Missing);
    for slot in [0, 1] {
        other.slots[slot].member = member(0x70 + slot as u8);
        other = change(&other, slot, SlotState::InSync);
    }
    other.member = other.slots[1].member;
    let third = Superblock {
        member: other.slots[0].member,
        role: Role::Slot(Slot(0)),
        ..other.clone()
    };
    let found = [alone.clone(), other.clone(), third];
    let selection = select_array(&found);
    assert!(
        matches!(selection, Err(SelectError::SplitBrain { .. })),
        "{selection:?}"
    );
    assert_eq!(returns(&alone, &other), Returns::SplitBrain);
}

#[test]
fn a_member_that_went_on_alone_does_not_come_back() {
    let pair = three(Level::Raid1);
    let mut here = change(&pair[0], 1, SlotState::Missing);
    here.slots[1].kept = true;
    let there = change(&pair[1], 0, SlotState::Missing);
    let there = change(&there, 2, SlotState::Missing);
    assert_eq!(returns(&there, &here), Returns::SplitBrain);
    // A table of its own that a member here never saw did not take effect: nothing is lost.
    let told = change(&pair[1], 2, SlotState::Failed);
    let mut other = here.clone();
    other.slots[2].since = Epoch(1);
    assert_eq!(returns(&told, &other), Returns::Afresh);
}

#[test]
fn the_newest_whole_copy_is_the_last_to_be_written_over() {
    let valid = |generation| CopyStatus::Valid(Generation(generation));
    let bad = CopyStatus::Bad(SuperblockError::NotStrake);
    assert_eq!(copy_to_replace([valid(4), valid(4)]), 0);
    assert_eq!(copy_to_replace([valid(4), valid(5)]), 0);
    assert_eq!(copy_to_replace([valid(5), valid(4)]), 1);
    assert_eq!(copy_to_replace([bad, valid(4)]), 0);
    assert_eq!(copy_to_replace([valid(4), bad]), 1);
}

#[test]
fn the_newer_of_two_copies_wins_and_a_bad_one_is_named() {
    let [first_at, last_at] = Layout::superblock_offsets(DEVICE);
    let old = superblock(Level::Raid5, 3, 3, 0);
    let new = Superblock {
        generation: Generation(2),
        ..old.clone()
    };
    let select = |first: &[u8], last: &[u8]| select_copy(DEVICE, first, last);
    let valid = |generation| CopyStatus::Valid(Generation(generation));
    let (old_first, old_last) = (old.encode(first_at), old.encode(last_at));
    let (new_first, new_last) = (new.encode(first_at), new.encode(last_at));
    let chosen = select(&new_first[..], &old_last[..]);
    assert_eq!(chosen, Ok((new.clone(), [valid(2), valid(1)])));
    let chosen = select(&old_first[..], &new_last[..]);
    assert_eq!(chosen, Ok((new.clone(), [valid(1), valid(2)])));
    let chosen = select(&[0; 4096], &old_last[..]);
    let bad = CopyStatus::Bad(SuperblockError::NotStrake);
    assert_eq!(chosen, Ok((old.clone(), [bad, valid(1)])));
    // The first copy written over the last one: known as misplaced.
    let misplaced = SuperblockError::Misplaced {
        named: first_at,
        offset: last_at,
    };
    let chosen = select(&old_first[..], &new_first[..]);
    assert_eq!(
        chosen,
        Ok((old.clone(), [valid(1), CopyStatus::Bad(misplaced)]))
    );
    assert_eq!(select(&[0; 4096], &[0; 4096]), Err(SelectError::NotStrake));
    let none = SelectError::NoValidCopy {
        first: SuperblockError::NotStrake,
        last: misplaced,
    };
    assert_eq!(select(&[0; 4096], &old_first[..]), Err(none));
    let other = superblock(Level::Raid5, 3, 3, 1);
    let disagree = SelectError::CopiesDisagree {
        first: member(1),
        last: member(2),
    };
    assert_eq!(
        select(&old_first[..], &other.encode(last_at)[..]),
        Err(disagree)
    );
    let differs = Superblock {
        clean: true,
        ..old.clone()
    };
    let differ = SelectError::CopiesDiffer {
        generation: Generation(1),
    };
    assert_eq!(
        select(&old_first[..], &differs.encode(last_at)[..]),
        Err(differ)
    );
    let shrunk = select_copy(DEVICE - 65536, &old_first[..], &old_last[..]);
    let (recorded_bytes, device_bytes) = (DEVICE, DEVICE - 65536);
    assert_eq!(
        shrunk,
        Err(SelectError::Shrunk {
            recorded_bytes,
            device_bytes
        })
    );
}

#[test]
fn the_last_copy_is_found_where_the_device_ended_before_it_grew() {
    let [first_at, last_at] = Layout::superblock_offsets(DEVICE);
    let old = superblock(Level::Raid5, 3, 3, 0);
    let new = Superblock {
        generation: Generation(2),
        ..old.clone()
    };
    let grown = DEVICE + (1 << 20);
    let lie = |places: &[(u64, &[u8; 4096])], offset: u64| {
        let mut found = places.iter().filter(|(at, _)| *at == offset);
        found.next().map(|(_, copy)| Box::new(**copy))
    };
    let first = old.encode(first_at);
    let chosen = |former: &[u8; 4096]| {
        let places = [(first_at, &*first), (last_at, former)];
        let (chosen, copies) = select_member(grown, |at| lie(&places, at)).expect("a superblock");
        assert_eq!(copy_to_replace(copies), 1, "the new end comes first");
        chosen
    };
    assert_eq!(chosen(&new.encode(last_at)), new);
    assert_eq!(chosen(&old.encode(last_at)), old);
    // A leftover of another member, or of the same one when it was smaller, says nothing.
    let other = Superblock {
        generation: Generation(3),
        ..superblock(Level::Raid5, 3, 3, 1)
    };
    assert_eq!(chosen(&other.encode(last_at)), old);
    assert_eq!(chosen(&new.encode(first_at)), old);
    assert_eq!(chosen(&[0; 4096]), old);

    // The first copy is torn, before it was known that the device had grown.
    let mut torn = *new.encode(first_at);
    torn[600] ^= 1;
    let places = [(first_at, &torn), (last_at, &*old.encode(last_at))];
    let (whole, copies) = select_member(grown, |at| lie(&places, at)).expect("a superblock");
    assert_eq!(
        (whole, copies.map(CopyStatus::is_valid)),
        (old.clone(), [false; 2])
    );
    // Of what is torn nothing else is believed.
    assert!(select_member(grown, |at| lie(&places[..1], at)).is_err());
    torn[96..104].copy_from_slice(&u64::MAX.to_le_bytes());
    let places = [(first_at, &torn), (last_at, &*old.encode(last_at))];
    assert!(select_member(grown, |at| lie(&places, at)).is_err());
}

#[test]
fn all_members_of_a_healthy_array_are_believed_in_any_order() {
    let mut found = three(Level::Raid5);
    found.rotate_left(1);
    let selection = select_array(&found).expect("an array");
    assert_eq!(selection.slots, [Believed(2), Believed(0), Believed(1)]);
    assert_eq!((selection.spares.len(), selection.strays.len()), (0, 0));
}

#[test]
fn what_is_not_one_array_is_refused() {
    assert_eq!(select_array(&[]), Err(SelectError::NoMembers));
    let mut found = three(Level::Raid5);
    found[2].array = array(7);
    let two = SelectError::TwoArrays {
        first: array(0xa5),
        second: array(7),
    };
    assert_eq!(select_array(&found), Err(two));
    let mut found = three(Level::Raid5);
    found[2] = found[0].clone();
    assert_eq!(
        select_array(&found),
        Err(SelectError::DuplicateMember { member: member(1) })
    );
}

#[test]
fn a_member_that_was_away_is_stale_when_it_returns() {
    let mut found = three(Level::Raid5);
    for survivor in [0, 1] {
        found[survivor] = change(&found[survivor], 2, SlotState::Missing);
    }
    let selection = select_array(&found).expect("an array");
    assert_eq!(selection.slots, [Believed(0), Believed(1), Stale(2)]);
    // Even when only one of the survivors is found with it.
    let selection = select_array(&found[1..]).expect("an array");
    assert_eq!(selection.slots, [Absent, Believed(0), Stale(1)]);
}

#[test]
fn a_member_that_was_told_that_it_is_out_is_stale_and_no_authority() {
    let mut found = three(Level::Raid1);
    found
        .iter_mut()
        .for_each(|s| *s = change(s, 2, SlotState::Failed));
    let selection = select_array(&found).expect("an array");
    assert_eq!(selection.slots, [Believed(0), Believed(1), Stale(2)]);
    let absent = SelectError::AuthorityAbsent {
        witness: member(3),
        epoch: Epoch(2),
    };
    assert_eq!(select_array(&found[2..]), Err(absent));
}

#[test]
fn a_crash_between_superblocks_leaves_the_older_ones_believed() {
    let mut found = three(Level::Raid5);
    found[1] = change(&found[1], 2, SlotState::Failed);
    let selection = select_array(&found).expect("an array");
    assert_eq!(selection.authority, 1);
    assert_eq!(selection.slots, [Believed(0), Believed(1), Stale(2)]);
}

/// A power cut came while a spare was taken in, of which one member had heard; that one was missing
/// at the next start, which was cut off while it said so.
#[test]
fn of_two_tables_of_one_moment_that_never_took_effect_the_one_before_holds() {
    let mut found = three(Level::Raid5);
    found[0].spares = vec![member(0x77)];
    found[0].generation = found[0].generation.next();
    found[0].advance();
    found[1] = change(&found[1], 0, SlotState::Missing);
    let moment = |s: &Superblock| (s.epoch, s.generation);
    assert_eq!(moment(&found[0]), moment(&found[1]));
    for _ in 0..3 {
        let authority = found.iter().position(|s| s.member == member(3));
        let selection = select_array(&found).expect("an array");
        assert_eq!(Some(selection.authority), authority);
        let believed = |finding: &Finding| matches!(finding, Believed(_));
        assert!(selection.slots.iter().all(believed), "{selection:?}");
        found.rotate_left(1);
    }
    // Without it, the member that was put out is stale: the other may have gone on.
    let selection = select_array(&found[..2]).expect("an array");
    assert_eq!(selection.slots, [Stale(0), Believed(1), Absent]);
}

#[test]
fn two_halves_of_a_mirror_that_went_on_alone_are_split_brain() {
    let pair: Vec<_> = (0..2)
        .map(|slot| superblock(Level::Raid1, 2, 2, slot))
        .collect();
    let alone = [
        change(&pair[0], 1, SlotState::Missing),
        change(&pair[1], 0, SlotState::Missing),
    ];
    let split = SelectError::SplitBrain {
        first: member(1),
        first_epoch: Epoch(2),
        second: member(2),
        second_epoch: Epoch(2),
    };
    assert_eq!(select_array(&alone), Err(split));
    // So they are when one of them has gone on for longer.
    let longer = Superblock {
        generation: Generation(9),
        ..alone[1].clone()
    };
    let error = select_array(&[alone[0].clone(), longer]).expect_err("split");
    assert!(matches!(error, SelectError::SplitBrain { first, .. } if first == member(2)));
}

#[test]
fn equal_counters_over_different_tables_are_split_brain() {
    let mut found = three(Level::Raid1);
    found.truncate(2);
    found[0] = change(&found[0], 2, SlotState::Missing);
    found[1] = change(&found[1], 2, SlotState::Failed);
    assert!(matches!(
        select_array(&found),
        Err(SelectError::SplitBrain { .. })
    ));
    let mut found = three(Level::Raid1);
    found[0].spares = vec![member(0x77)];
    found[1].spares = vec![member(0x78)];
    assert!(matches!(
        select_array(&found),
        Err(SelectError::SplitBrain { .. })
    ));
}

/// A writes a new epoch, the power fails before B has it; twice. Then A is away, and B goes on
/// alone under an epoch lower than A's. A's table is the newest by its counters, calls both live,
/// and never took effect.
#[test]
fn a_newer_table_that_never_took_effect_does_not_beat_one_that_did() {
    let pair: Vec<_> = (0..2)
        .map(|slot| superblock(Level::Raid1, 2, 2, slot))
        .collect();
    let spare = |s: &Superblock, byte| {
        let mut next = s.clone();
        next.epoch = next.epoch.next();
        next.generation = next.generation.next();
        next.spares.push(member(byte));
        next
    };
    let a = spare(&spare(&pair[0], 0x71), 0x72);
    let b = change(&pair[1], 0, SlotState::Missing);
    assert!(a.epoch > b.epoch);
    let selection = select_array(&[a, b]).expect("B went on");
    assert_eq!(selection.authority, 1);
    assert_eq!(selection.slots, [Stale(0), Believed(1)]);
}

/// The power fails when only A knows that C failed. A is slow to appear at the next start: B and C
/// go on without it. A could not have acknowledged a write without B.
#[test]
fn a_member_that_could_not_go_on_alone_is_stale_and_no_split_brain() {
    let mut found = three(Level::Raid5);
    found[0] = change(&found[0], 2, SlotState::Failed);
    for other in [1, 2] {
        found[other] = change(&found[other], 0, SlotState::Missing);
    }
    let selection = select_array(&found).expect("B and C went on");
    assert_eq!(selection.slots, [Stale(0), Believed(1), Believed(2)]);
}

/// A fell out of a mirror, which went on as B alone; B dies; A and the spare, which B told, are
/// found.
#[test]
fn a_spare_that_knows_better_stops_a_stale_member_from_starting_alone() {
    let mut pair: Vec<_> = (0..2)
        .map(|slot| superblock(Level::Raid1, 2, 2, slot))
        .collect();
    pair.iter_mut().for_each(|s| s.spares = vec![member(0x71)]);
    let told = change(&pair[1], 0, SlotState::Failed);
    let spare = Superblock {
        member: member(0x71),
        role: Role::Spare,
        ..told.clone()
    };
    let absent = SelectError::AuthorityAbsent {
        witness: member(0x71),
        epoch: Epoch(2),
    };
    assert_eq!(select_array(&[pair[0].clone(), spare.clone()]), Err(absent));
    let selection = select_array(&[pair[0].clone(), spare, told]).expect("B went on");
    assert_eq!(selection.slots, [Stale(0), Believed(2)]);
    assert_eq!(selection.spares, [1]);
}

#[test]
fn a_spare_that_took_a_slot_is_believed_there_and_the_old_member_is_a_stray() {
    let mut found = three(Level::Raid5);
    found
        .iter_mut()
        .for_each(|s| s.spares = vec![member(0x71), member(0x72)]);
    let spares = [0x71, 0x72].map(|byte| Superblock {
        member: member(byte),
        role: Role::Spare,
        ..found[0].clone()
    });
    found.extend(spares);
    for survivor in [0, 1] {
        let mut next = change(
            &found[survivor],
            2,
            SlotState::Rebuilding { rebuilt_bytes: 0 },
        );
        next.slots[2].member = member(0x71);
        next.spares.remove(0);
        found[survivor] = next;
    }
    let selection = select_array(&found).expect("an array");
    assert_eq!(selection.slots, [Believed(0), Believed(1), Believed(3)]);
    assert_eq!((selection.spares, selection.strays), (vec![4], vec![2]));
    // Without the new member the old one stands for its slot, stale.
    found.remove(3);
    let selection = select_array(&found).expect("an array");
    assert_eq!(selection.slots, [Believed(0), Believed(1), Stale(2)]);
}

#[test]
fn a_removed_member_is_stale() {
    let mut found = three(Level::Raid5);
    for survivor in [0, 1] {
        let mut next = change(&found[survivor], 2, SlotState::Missing);
        next.slots[2].member = MemberUuid::NIL;
        found[survivor] = next;
    }
    let selection = select_array(&found).expect("an array");
    assert_eq!(selection.slots, [Believed(0), Believed(1), Stale(2)]);
}

/// An array of older images went on until its generation was that of a table which it never saw.
#[test]
fn an_older_epoch_with_as_new_a_generation_is_of_another_past() {
    let found = three(Level::Raid5);
    let table = change(&found[0], 2, SlotState::Missing);
    let mut own = found[1].clone();
    assert_eq!(past(&own, &table), Past::Last);
    own.generation = table.generation;
    let (has, first) = (own.generation, table.generation);
    assert_eq!(past(&own, &table), Past::Other { has, first });
    own.epoch = table.epoch;
    assert_eq!(past(&own, &table), Past::Last);
}

/// Two starts from one past: superblocks of both have the same numbers.
#[test]
fn a_member_of_another_branch_makes_no_array_with_the_others() {
    let (before, heard) = (Generation(9), Generation(12));
    let mut found = three(Level::Raid5);
    let session = |first, number| Session {
        first: Generation(first),
        number,
    };
    for member in &mut found {
        member.generation = heard.next();
        member.sessions.begin(session(2, 70), Generation(1), &[]);
        member.sessions.begin(session(10, 71), before, &[]);
        for row in &mut member.slots {
            row.known = Known::heard(heard);
        }
    }
    assert!(select_array(&found).is_ok());
    let branch = |number| {
        let mut sessions = Sessions::default();
        sessions.begin(session(2, 70), Generation(1), &[]);
        sessions.begin(session(10, number), before, &[]);
        sessions
    };
    let last = found[2].clone();
    found[2].sessions = branch(72);
    let has = found[2].generation;
    let at = heard;
    assert_eq!(past(&found[2], &found[0]), Past::Branch { has, at });
    for _ in 0..3 {
        found.rotate_right(1);
        let refused = select_array(&found);
        assert!(
            matches!(refused, Err(SelectError::SplitBrain { .. })),
            "{refused:?}"
        );
    }
    // Its generation is as new as that of a table of a later epoch.
    let mut later = change(&found[0], 2, SlotState::InSync);
    later.slots[2].known = found[0].slots[2].known;
    later.generation = has;
    assert!(found[2].epoch < later.epoch);
    assert_eq!(past(&found[2], &later), Past::Branch { has, at });
    // It went on for longer, or for less.
    let own = |generation, sessions: &Sessions| Superblock {
        generation: Generation(generation),
        sessions: sessions.clone(),
        ..last.clone()
    };
    let table = &found[0];
    let longer = own(90, &branch(72));
    assert!(matches!(past(&longer, table), Past::Branch { .. }));
    let less = own(11, &branch(72));
    let (has, at) = (Generation(11), Generation(11));
    assert_eq!(past(&less, table), Past::Branch { has, at });
    let older = own(11, &last.sessions);
    assert_eq!(past(&older, table), Past::Older { has, heard });
    // Nothing is known of sessions.
    for unknown in [
        Sessions::default(),
        Sessions::new(vec![session(14, 72)]).expect("sessions"),
    ] {
        assert_eq!(past(&own(13, &unknown), table), Past::Last);
    }
    // One that is out is not taken back, whether or not the table can say from when on.
    let mut table = change(table, 2, SlotState::Missing);
    table.slots[2].known = table.slots[2].known.until(table.generation);
    table.slots[2].kept = true;
    assert_eq!(
        returns(&own(13, &last.sessions), &table),
        Returns::Kept(Slot(2))
    );
    assert_eq!(returns(&own(13, &branch(72)), &table), Returns::SplitBrain);
}

/// A has two tables that never took effect, one after the other: the power failed before B had
/// either. A is away, B goes on alone, and its generation grows to that of A's table, under a lower
/// epoch. B is a witness by what it had when it put A out.
#[test]
fn a_witness_that_went_on_alone_is_one_however_high_its_generation() {
    let heard = Generation(10);
    let mut found = three(Level::Raid1);
    for member in &mut found {
        member.generation = heard;
        for row in &mut member.slots {
            row.known = Known::heard(heard);
        }
    }
    let mut a = change(&found[0], 2, SlotState::Missing);
    a.slots[2].known = a.slots[2].known.until(a.generation);
    let once = a.clone();
    a.generation = a.generation.next();
    a.advance();
    let out = |before: &Superblock, of_a: Known| {
        let mut b = before.clone();
        let since = b.epoch.next();
        for (slot, known) in [(0, of_a), (2, Known::heard(heard).until(Generation(11)))] {
            let row = &mut b.slots[slot];
            (row.state, row.since, row.known) = (SlotState::Missing, since, known);
        }
        b.advance();
        b.generation = Generation(15);
        b
    };
    let known = Known::heard(Generation(9)).until(Generation(11));
    let b = out(&found[1], known);
    assert!(b.epoch < a.epoch && b.generation > a.generation);
    assert!(matches!(past(&b, &a), Past::Other { .. }));
    for both in [[a.clone(), b.clone()], [b.clone(), a.clone()]] {
        let selection = select_array(&both).expect("B went on");
        let at = both.iter().position(|s| s.member == b.member);
        let at = at.expect("it was found");
        assert_eq!(selection.authority, at);
        assert_eq!(selection.slots, [Stale(1 - at), Believed(at), Absent]);
    }
    // One that was older when it put A out is none, nor one that does not say what it was, ...
    let unknown = [
        Known::heard(Generation(7)).until(Generation(10)),
        Known::heard(Generation(9)).until(Generation(8000)),
        Known::heard(Generation(9)),
        Known::default(),
    ];
    for known in unknown {
        let refused = select_array(&[a.clone(), out(&found[1], known)]);
        let parted = matches!(refused, Err(SelectError::SplitBrain { .. }));
        assert!(parted, "{known:?}: {refused:?}");
    }
    // ... or that had as new a generation as A's table in an older epoch when it put A out, ...
    let known = Known::heard(Generation(9)).until(Generation(13));
    let refused = select_array(&[a.clone(), out(&found[1], known)]);
    assert!(matches!(refused, Err(SelectError::SplitBrain { .. })));
    // ... or in whose history A was still there when it parted from that of A's table.
    let known = Known::heard(Generation(9)).until(Generation(11));
    let mut apart = change(&found[1], 2, SlotState::Failed);
    apart.generation = heard;
    let apart = out(&apart, known);
    a.advance();
    assert!(apart.epoch < a.epoch && apart.edition_of(once.epoch) != a.edition_of(once.epoch));
    let refused = select_array(&[a, apart]);
    assert!(matches!(refused, Err(SelectError::SplitBrain { .. })));
}

/// A member came back after many generations, and was lost again before it was known to have the
/// superblocks of its return: how far it had come does not fit into its row. It was taken for one
/// that had served on apart.
#[test]
fn a_gap_that_does_not_fit_its_row_makes_no_split_brain() {
    let found = three(Level::Raid5);
    let mut table = change(&found[0], 2, SlotState::Missing);
    let mut own = found[2].clone();
    let heard = Generation(10);
    table.generation = Generation(9000);
    table.slots[2].kept = true;
    let at = |table: &mut Superblock, first: u64| {
        table.slots[2].known = Known::heard(heard).until(Generation(first));
    };
    // It fits: what the member has is what it had last, or of another past.
    for first in [11, 264] {
        at(&mut table, first);
        let first = Generation(first);
        own.generation = first;
        let has = first;
        assert_eq!(past(&own, &table), Past::Other { has, first });
        assert_eq!(returns(&own, &table), Returns::SplitBrain);
        own.generation = Generation(first.0 - 1);
        assert_eq!(past(&own, &table), Past::Last);
        assert_eq!(returns(&own, &table), Returns::Kept(Slot(2)));
    }
    // It does not.
    let first = Generation(265);
    for out_from in [265, 266, 8001] {
        at(&mut table, out_from);
        own.generation = Generation(264);
        assert_eq!(past(&own, &table), Past::Last);
        for has in [265, 300, 8000].map(Generation) {
            own.generation = has;
            assert_eq!(past(&own, &table), Past::Unclear { has, first });
            assert_eq!(returns(&own, &table), Returns::Afresh);
        }
    }
    // With the epoch in which it was put out it has seen what it cannot have seen.
    own.epoch = table.slots[2].since;
    let has = own.generation;
    assert_eq!(past(&own, &table), Past::Other { has, first });
}
