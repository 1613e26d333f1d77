//! Superblock and map page: identity, any bytes, every flipped bit, and errors that tell what was
//! found.

use proptest::prelude::*;
use strake_format::region_map::{self, PAGE_BYTES};
use strake_format::*;

use crate::samples::*;

const DEVICE: u64 = 16 << 20;

/// The checksum of a block that was tampered with, made right again: for faults that a checksum
/// cannot see.
fn reseal(bytes: &mut [u8]) {
    let sum = checksum::sealed(bytes, 12);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}

proptest! {
    #[test]
    fn a_superblock_comes_back_as_it_was(superblock in any_superblock()) {
        for offset in Layout::superblock_offsets(superblock.layout.device_bytes) {
            let bytes = superblock.encode(offset);
            prop_assert_eq!(Superblock::decode(&bytes[..], offset), Ok(superblock.clone()));
        }
    }

    #[test]
    fn a_superblock_read_where_it_was_not_written_is_misplaced(
        superblock in any_superblock(),
        offset in 0..u64::MAX,
    ) {
        let bytes = superblock.encode(4096);
        prop_assume!(offset != 4096);
        let misplaced = SuperblockError::Misplaced { named: 4096, offset };
        prop_assert_eq!(Superblock::decode(&bytes[..], offset), Err(misplaced));
    }

    #[test]
    fn any_bytes_under_a_right_checksum_never_panic_and_what_passes_encodes(
        superblock in any_superblock(),
        changes in proptest::collection::vec((0..4096usize, any::<u8>()), 1..4),
        near in any::<bool>(),
    ) {
        let mut bytes = superblock.encode(4096);
        for (at, byte) in changes {
            bytes[if near { at % 600 } else { at }] = byte;
        }
        reseal(&mut bytes[..]);
        if let Ok(decoded) = Superblock::decode(&bytes[..], 4096) {
            let again = decoded.encode(4096);
            prop_assert_eq!(Superblock::decode(&again[..], 4096), Ok(decoded));
            // What a newer minor version adds is not kept.
            prop_assert!(again[..] == bytes[..] || bytes[10..12] != [0, 0]);
        }
    }

    #[test]
    fn a_page_comes_back_as_it_was(page in any_page(), offset in any::<u64>()) {
        let bytes = page.encode(offset);
        prop_assert_eq!(MapPage::decode(&bytes[..], offset), Ok(page));
        let misplaced = MapError::Misplaced { named: offset, offset: !offset };
        prop_assert_eq!(MapPage::decode(&bytes[..], !offset), Err(misplaced));
    }

    #[test]
    fn a_page_of_any_bytes_under_a_right_checksum_never_panics(
        page in any_page(),
        changes in proptest::collection::vec((0..4096usize, any::<u8>()), 1..4),
    ) {
        let mut bytes = page.encode(0);
        changes.into_iter().for_each(|(at, byte)| bytes[at] = byte);
        reseal(&mut bytes[..]);
        if let Ok(decoded) = MapPage::decode(&bytes[..], 0) {
            prop_assert_eq!(&decoded.encode(0)[..], &bytes[..]);
        }
    }

    #[test]
    fn any_bytes_of_any_length_are_answered_by_an_error(
        bytes in proptest::collection::vec(any::<u8>(), 0..5000),
    ) {
        prop_assert!(Superblock::decode(&bytes, 4096).is_err());
        prop_assert!(MapPage::decode(&bytes, 4096).is_err());
    }

    #[test]
    fn a_plan_is_refused_or_checks(
        (device_bytes, spare_bytes) in (any::<u64>(), any::<u64>()),
        (strip, align, shrink) in (0..22u32, 0..64u32, 0..64u32),
        (log_bytes, region_bytes) in (any::<u64>(), any::<Option<u64>>()),
        (page_regions, tiny) in (any::<Option<u16>>(), any::<bool>()),
    ) {
        let device_bytes = device_bytes >> shrink;
        let strip_bytes = 1 << strip;
        let params = LayoutParams {
            device_bytes,
            usable_bytes: device_bytes - device_bytes.min(spare_bytes >> 32),
            strip_bytes,
            align_bytes: 1 << align,
            log_bytes: (log_bytes >> 40) << 12,
            region_bytes: region_bytes.map(|bytes| (bytes >> 20) << strip),
            page_regions,
            tiny,
        };
        if let Ok(layout) = Layout::plan(&params) {
            prop_assert_eq!(layout.check(strip_bytes), Ok(()));
            for page in 0..layout.map_pages {
                prop_assert!(layout.regions_in_page(page) > 0);
            }
        }
    }
}

#[test]
fn every_level_survives_both_copies() {
    for (level, members, group_size) in shapes() {
        let superblock = superblock(level, members, group_size, members - 1);
        for offset in Layout::superblock_offsets(DEVICE) {
            let bytes = superblock.encode(offset);
            assert_eq!(
                Superblock::decode(&bytes[..], offset).as_ref(),
                Ok(&superblock)
            );
        }
    }
}

#[test]
fn every_flipped_bit_of_a_superblock_is_known_as_damage() {
    let mut superblock = superblock(Level::Raid6, 6, 6, 2);
    superblock.spares = vec![member(0x77), member(0x78)];
    let mut bytes = superblock.encode(4096);
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let decoded = Superblock::decode(&bytes[..], 4096);
        assert!(
            matches!(decoded, Err(SuperblockError::Damaged { .. })),
            "bit {bit}: {decoded:?}"
        );
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn every_flipped_bit_of_a_page_is_known_as_damage() {
    let mut bytes = sample_page().encode(8192);
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let decoded = MapPage::decode(&bytes[..], 8192);
        assert!(
            matches!(decoded, Err(MapError::Damaged { .. })),
            "bit {bit}: {decoded:?}"
        );
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// A page with all states in it.
pub(crate) fn sample_page() -> MapPage {
    let state = |code: u8| RegionState::try_from(code % 4).expect("a state");
    MapPage {
        array: array(0xa5),
        member: member(3),
        page: 1,
        epoch: Epoch(7),
        sequence: 41,
        states: (0..250).map(state).collect(),
        behind: vec![0, 7, 130, 249],
        undecided: Vec::new(),
        whole_at: 0,
    }
}

#[test]
fn every_torn_write_of_a_superblock_is_known_as_damage() {
    let old = superblock(Level::Raid5, 3, 3, 0);
    let new = Superblock {
        generation: Generation(2),
        clean: true,
        ..old.clone()
    };
    let (old, new) = (old.encode(4096), new.encode(4096));
    let blank = [0u8; 4096];
    for before in [&old[..], &blank[..]] {
        for sectors in (0..256u32).filter(|bits| bits & 0b11 != 0 && bits & 0b11 != 0b11) {
            let mut torn = before.to_vec();
            for sector in (0..8).filter(|sector| sectors >> sector & 1 == 1) {
                torn[sector * 512..][..512].copy_from_slice(&new[sector * 512..][..512]);
            }
            match Superblock::decode(&torn, 4096) {
                Ok(decoded) => assert_eq!(&decoded.encode(4096)[..], &torn[..]),
                Err(SuperblockError::Damaged { .. }) => {}
                // Nothing of the first or of the last sector was written.
                Err(error) => {
                    assert_eq!(error, SuperblockError::NotStrake);
                    assert!(torn[..8] == [0; 8] && torn[4088..] == [0; 8]);
                }
            }
        }
    }
}

#[test]
fn a_move_from_parities_that_go_is_told_as_that_and_as_no_other() {
    let mut lowered = superblock(Level::Raid6, 6, 6, 5);
    lowered.fixed_parities = 1;
    lowered.moving = Some(Moving {
        members: 6,
        group_size: 6,
        fixed_parities: 0,
        band_rows: 1,
        moved_rows: 13,
        stopped: true,
    });
    let whole = lowered.encode(4096);
    assert_eq!(whole[24], 2 | 4 | 64);
    assert_eq!(Superblock::decode(&whole[..], 4096), Ok(lowered.clone()));
    for (at, byte) in [
        (24, 2 | 4),
        (24, 2 | 4 | 32),
        (24, 2 | 4 | 32 | 64),
        (3605, 0),
        (3605, 2),
    ] {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        reseal(&mut bytes[..]);
        let refused = Superblock::decode(&bytes[..], 4096);
        let expected = SuperblockError::Invalid(Invalid::Moving(6));
        assert_eq!(refused, Err(expected), "{at} {byte}");
    }
    // Alone: not on the way to other members, groups or strips, or of groups.
    let moving = lowered.moving.expect("it moves");
    for wrong in [
        Moving {
            members: 5,
            group_size: 5,
            ..moving
        },
        Moving {
            group_size: 3,
            ..moving
        },
        Moving {
            band_rows: 2,
            ..moving
        },
        Moving {
            fixed_parities: 2,
            ..moving
        },
    ] {
        let wrong = Superblock {
            moving: Some(wrong),
            ..lowered.clone()
        };
        assert!(wrong.check().is_err(), "{wrong:?}");
    }
}

#[test]
fn what_is_not_ours_is_told_from_what_is_damaged_and_from_the_future() {
    let decode = |bytes: &[u8]| Superblock::decode(bytes, 4096).expect_err("not believable");
    assert_eq!(decode(&[0; 4096]), SuperblockError::NotStrake);
    assert_eq!(decode(&[0xff; 4096]), SuperblockError::NotStrake);
    assert_eq!(decode(&[0; 512]), SuperblockError::Length { bytes: 512 });
    let whole = superblock(Level::Raid5, 3, 3, 0).encode(4096);
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        reseal(&mut bytes[..]);
        decode(&bytes[..])
    };
    assert_eq!(
        changed(8, 2),
        SuperblockError::Version { major: 2, minor: 0 }
    );
    assert_eq!(changed(25, 2), SuperblockError::Features { unknown: 512 });
    let invalid = |at, byte| match changed(at, byte) {
        SuperblockError::Invalid(invalid) => invalid,
        other => panic!("{other:?}"),
    };
    assert_eq!(invalid(32, 1), Invalid::Reserved);
    // Other groups, and no move to them.
    assert_eq!(invalid(24, 16), Invalid::Moving(0));
    assert_eq!(invalid(24, 32), Invalid::Moving(0));
    assert_eq!(invalid(24, 64), Invalid::Moving(0));
    assert_eq!(invalid(168, 0), Invalid::LevelCode(0));
    assert_eq!(invalid(169, 1), Invalid::LevelCode(3));
    let too_few = ShapeError::TooFewMembers {
        members: 3,
        members_min: 4,
    };
    assert_eq!(invalid(168, 4), Invalid::Shape(too_few));
    assert_eq!(invalid(171, 65), Invalid::SlotCount(65));
    assert_eq!(invalid(171, 2), Invalid::UnusedRow);
    assert_eq!(invalid(173, 0), Invalid::WriteHoleCode(0));
    assert_eq!(invalid(174, 0), Invalid::CleanCode(0));
    assert_eq!(invalid(181, 0), Invalid::CoveredCode(0));
    assert_eq!(invalid(3575, 1), Invalid::Accepted(1 << 56 | 2));
    assert_eq!(invalid(175, 1), Invalid::Copy(1));
    assert_eq!(invalid(176, 3), Invalid::RoleCode(3));
    assert_eq!(invalid(177, 1), Invalid::Role);
    assert_eq!(invalid(178, 17), Invalid::SpareCount(17));
    assert_eq!(invalid(178, 1), Invalid::NilSpare);
    assert_eq!(invalid(179, 0), Invalid::RebuildPriority(0));
    assert_eq!(invalid(180, 40), Invalid::NameBytes);
    assert_eq!(invalid(180, 0), Invalid::NameBytes);
    assert_eq!(
        invalid(192, b'/'),
        Invalid::Name(NameError::First { found: '/' })
    );
    assert_eq!(invalid(480 + 16, 1), Invalid::SlotRecord(0));
    assert_eq!(invalid(480 + 24, 2), Invalid::SlotRecord(0));
    assert_eq!(
        invalid(480 + 32, 9),
        Invalid::StateCode { slot: 0, code: 9 }
    );
    assert_eq!(invalid(3800, 1), Invalid::Reserved);
    assert_eq!(invalid(164, 0), Invalid::ReadErrorThreshold);
}

#[test]
fn a_newer_minor_version_may_use_what_this_one_leaves_zero() {
    let superblock = superblock(Level::Raid5, 3, 3, 0);
    let mut bytes = superblock.encode(4096);
    for (at, byte) in [(10, 14), (32, 8), (3800, 1), (187, 5)] {
        bytes[at] = byte;
    }
    reseal(&mut bytes[..]);
    assert_eq!(Superblock::decode(&bytes[..], 4096), Ok(superblock));
}

/// A program that knows nothing of it ignores it, and leaves it out of what it writes.
#[test]
fn that_undecided_regions_are_witnessed_is_a_compatible_feature() {
    let mut superblock = superblock(Level::Raid6, 4, 4, 0);
    assert_eq!(superblock.encode(4096)[32..40], [0; 8], "as it always was");
    (superblock.undecided, superblock.witnessed) = (true, true);
    let mut bytes = superblock.encode(4096);
    assert_eq!((bytes[10], &bytes[32..34]), (12, &[1, 0][..]));
    assert_eq!(Superblock::decode(&bytes[..], 4096), Ok(superblock));
    bytes[32] = 3;
    reseal(&mut bytes[..]);
    let refused = Superblock::decode(&bytes[..], 4096);
    assert!(refused.is_err(), "{refused:?}");
}

#[test]
fn what_steers_background_work_is_kept_and_costs_nothing_where_it_is_not_used() {
    let mut superblock = superblock(Level::Raid5, 3, 3, 0);
    assert_eq!(superblock.encode(4096)[10..12], [0, 0], "as it always was");
    superblock.settings = Settings {
        resync_priority: 1,
        scrub_priority: 100,
        latency_target_us: 2000,
        ..superblock.settings
    };
    let mut bytes = superblock.encode(4096);
    assert_eq!(bytes[10..12], [1, 0]);
    assert_eq!(bytes[3576..3582], [0xd0, 0x07, 0, 0, 1, 100]);
    assert_eq!(Superblock::decode(&bytes[..], 4096), Ok(superblock));
    // A program that knew nothing of them never wrote them.
    bytes[10] = 0;
    reseal(&mut bytes[..]);
    let refused = Superblock::decode(&bytes[..], 4096);
    assert_eq!(refused, Err(SuperblockError::Invalid(Invalid::Reserved)));
}

#[test]
fn zeroing_is_kept_and_an_older_program_that_ignores_it_leaves_it_undone() {
    let superblock = Superblock {
        zeroing: true,
        ..superblock(Level::Raid5, 3, 3, 0)
    };
    let mut bytes = superblock.encode(4096);
    assert_eq!((bytes[10], &bytes[3606..3608]), (9, &[0, 1][..]));
    assert_eq!(bytes[24..32], [0; 8], "it may be ignored");
    bytes[3607] = 2;
    reseal(&mut bytes[..]);
    let refused = Superblock::decode(&bytes[..], 4096);
    let wrong = Invalid::ZeroingCode(2);
    assert_eq!(refused, Err(SuperblockError::Invalid(wrong)));
}

#[test]
fn that_numbers_are_noted_is_kept_and_an_older_program_that_ignores_it_takes_it_back() {
    let superblock = Superblock {
        numbers_noted: true,
        ..superblock(Level::Raid5, 3, 3, 0)
    };
    let mut bytes = superblock.encode(4096);
    assert_eq!((bytes[10], bytes[3608]), (11, 1));
    assert_eq!(bytes[24..32], [0; 8], "it may be ignored");
    assert_eq!(Superblock::decode(&bytes[..], 4096), Ok(superblock));
    bytes[3608] = 2;
    reseal(&mut bytes[..]);
    let refused = Superblock::decode(&bytes[..], 4096);
    let wrong = Invalid::NumbersNotedCode(2);
    assert_eq!(refused, Err(SuperblockError::Invalid(wrong)));
}

#[test]
fn sessions_are_kept_and_an_older_program_ignores_them() {
    let session = |first, number| Session {
        first: Generation(first),
        number,
    };
    let sessions = vec![
        session(0x32_1234_5678, 0x7172_7374),
        session(9, 0),
        session(2, 3),
    ];
    let superblock = Superblock {
        sessions: Sessions::new(sessions).expect("sessions"),
        ..superblock(Level::Raid5, 3, 3, 0)
    };
    let mut bytes = superblock.encode(4096);
    assert_eq!(bytes[10], 13);
    assert_eq!(bytes[24..32], [0; 8], "it may be ignored");
    assert_eq!(
        bytes[3609..3619],
        [0x78, 0x56, 0x34, 0x12, 0x32, 0x74, 0x73, 0x72, 0x71, 9]
    );
    assert_eq!(Superblock::decode(&bytes[..], 4096), Ok(superblock));
    // Later than the one before it; behind a gap.
    for (at, byte) in [(3618 + 4, 0x33), (3609 + 9 * 5, 1)] {
        let was = std::mem::replace(&mut bytes[at], byte);
        reseal(&mut bytes[..]);
        let refused = Superblock::decode(&bytes[..], 4096);
        let wrong = SuperblockError::Invalid(Invalid::Sessions);
        assert_eq!(refused, Err(wrong), "byte {at}");
        bytes[at] = was;
    }
}

#[test]
fn strips_of_several_rows_are_refused_where_nothing_is_made_of_them() {
    let whole = Superblock {
        layout: layout(262_144, 16 << 20),
        band_rows: 4,
        ..superblock(Level::Raid5, 3, 3, 0)
    };
    let bytes = whole.encode(4096);
    assert_eq!((bytes[10], bytes[24], bytes[3601]), (7, 8, 2));
    assert_eq!(Superblock::decode(&bytes[..], 4096).as_ref(), Ok(&whole));
    let changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        reseal(&mut bytes[..]);
        Superblock::decode(&bytes[..], 4096).expect_err("not believable")
    };
    let bands = |rows| SuperblockError::Invalid(Invalid::Bands(rows));
    assert_eq!(changed(3601, 3), bands(8), "regions have four rows");
    assert_eq!(changed(3601, 5), bands(32), "more than the largest strip");
    assert_eq!(changed(3601, 16), bands(16), "no number of rows");
    assert_eq!(changed(3601, 0), bands(0), "the feature says otherwise");
    assert_eq!(changed(24, 0), bands(2), "nothing says that it is used");
    assert_eq!(changed(10, 6), SuperblockError::Invalid(Invalid::Reserved));
}

#[test]
fn a_carved_array_is_refused_by_programs_that_know_nothing_of_volumes() {
    let mut superblock = superblock(Level::Raid5, 3, 3, 0);
    assert_eq!(superblock.encode(4096)[24..32], [0; 8], "as it always was");
    superblock.carved = true;
    let bytes = superblock.encode(4096);
    // Where such a program sees bits that it does not know.
    assert_eq!(bytes[24..32], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Superblock::decode(&bytes[..], 4096), Ok(superblock));
}

#[test]
fn an_array_with_undecided_regions_is_refused_by_programs_that_know_nothing_of_them() {
    let mut superblock = superblock(Level::Raid6, 6, 6, 0);
    superblock.undecided = true;
    let bytes = superblock.encode(4096);
    // No new bytes: the version stays what it was.
    assert_eq!((&bytes[10..12], bytes[24]), (&[0, 0][..], 128));
    assert_eq!(Superblock::decode(&bytes[..], 4096), Ok(superblock));
}

#[test]
fn hedged_reads_that_are_off_stay_off_and_only_they_need_a_newer_program() {
    let mut superblock = superblock(Level::Raid5, 3, 3, 0);
    superblock.settings.hedged_reads = false;
    let mut bytes = superblock.encode(4096);
    assert_eq!((&bytes[10..12], bytes[4087]), (&[2, 0][..], 1));
    assert_eq!(Superblock::decode(&bytes[..], 4096), Ok(superblock));
    let mut refused = |minor: u8, unhedged: u8| {
        (bytes[10], bytes[4087]) = (minor, unhedged);
        reseal(&mut bytes[..]);
        Superblock::decode(&bytes[..], 4096).expect_err("no program writes this")
    };
    let invalid = |what| SuperblockError::Invalid(what);
    assert_eq!(refused(2, 2), invalid(Invalid::HedgedReadsCode(2)));
    // A program that knew nothing of it never wrote it.
    assert_eq!(refused(1, 1), invalid(Invalid::Reserved));
}

#[test]
fn scrubs_are_kept_and_cost_nothing_where_there_was_none() {
    let usual = superblock(Level::Raid5, 3, 3, 0);
    assert_eq!(usual.encode(4096)[3995..4083], [0; 88]);
    let found = ScrubCounts {
        inconsistent: 3,
        located: 2,
        unreadable: 1,
    };
    let superblock = Superblock {
        scrub: Some(ScrubRecord {
            mode: ScrubMode::Repair,
            paused: true,
            done_bytes: 0x10000,
            found,
        }),
        scrub_begun_unix_s: 77,
        ..usual.clone()
    };
    let bytes = superblock.encode(4096);
    assert_eq!(bytes[10..12], [4, 0]);
    assert_eq!(Superblock::decode(&bytes[..], 4096), Ok(superblock.clone()));
    let refused = |changes: &[(usize, u8)]| {
        let mut bytes = bytes.clone();
        for &(at, byte) in changes {
            bytes[at] = byte;
        }
        reseal(&mut bytes[..]);
        match Superblock::decode(&bytes[..], 4096) {
            Err(SuperblockError::Invalid(what)) => what,
            other => panic!("{changes:?}: {other:?}"),
        }
    };
    assert_eq!(refused(&[(10, 3)]), Invalid::Reserved);
    assert_eq!(refused(&[(3999, 4)]), Invalid::ScrubCode(4));
    assert_eq!(refused(&[(4000, 2)]), Invalid::ScrubCode(2));
    assert_eq!(refused(&[(4001, 9)]), Invalid::ScrubCode(9));
    // Bytes of a scrub that is not there.
    assert_eq!(refused(&[(3999, 0)]), Invalid::Reserved);
    assert_eq!(refused(&[(3995, 5)]), Invalid::ScrubCode(5));
    assert_eq!(refused(&[(3996, 1)]), Invalid::ScrubCode(1));
    assert_eq!(refused(&[(3998, 6)]), Invalid::ScrubMinute(0x5ff));
    assert_eq!(
        refused(&[(4018, 0xff)]),
        Invalid::ScrubDone(0xff00_0000_0001_0000)
    );
}

#[test]
fn a_delay_of_spares_is_kept_and_only_one_that_was_set_needs_a_newer_program() {
    let usual = superblock(Level::Raid5, 3, 3, 0);
    assert_eq!(usual.settings.spare_delay_ms, 180_000);
    assert_eq!(usual.encode(4096)[4083..4087], [0; 4]);
    for (spare_delay_ms, raw) in [
        (0, 1u32),
        (2000, 2001),
        (Settings::SPARE_DELAY_MS_MAX, 604_800_001),
    ] {
        let settings = Settings {
            spare_delay_ms,
            ..usual.settings
        };
        let superblock = Superblock {
            settings,
            ..usual.clone()
        };
        let mut bytes = superblock.encode(4096);
        assert_eq!(
            (&bytes[10..12], &bytes[4083..4087]),
            (&[3, 0][..], &raw.to_le_bytes()[..])
        );
        assert_eq!(Superblock::decode(&bytes[..], 4096), Ok(superblock));
        bytes[10] = 2;
        reseal(&mut bytes[..]);
        let refused = Superblock::decode(&bytes[..], 4096);
        assert_eq!(refused, Err(SuperblockError::Invalid(Invalid::Reserved)));
    }
    let mut bytes = usual.encode(4096);
    bytes[10] = 3;
    bytes[4083..4087].copy_from_slice(&604_800_002u32.to_le_bytes());
    reseal(&mut bytes[..]);
    let refused = Superblock::decode(&bytes[..], 4096);
    let invalid = Invalid::SpareDelay(604_800_001);
    assert_eq!(refused, Err(SuperblockError::Invalid(invalid)));
}

#[test]
fn a_priority_or_a_target_out_of_range_is_named() {
    let mut bytes = superblock(Level::Raid5, 3, 3, 0).encode(4096);
    bytes[10] = 1;
    let mut with = |at: usize, byte: u8| {
        let before = std::mem::replace(&mut bytes[at], byte);
        reseal(&mut bytes[..]);
        let refused = Superblock::decode(&bytes[..], 4096).expect_err("out of range");
        bytes[at] = before;
        refused
    };
    let invalid = SuperblockError::Invalid;
    assert_eq!(with(3580, 101), invalid(Invalid::JobPriority(101)));
    assert_eq!(with(3581, 200), invalid(Invalid::JobPriority(200)));
    assert_eq!(with(3579, 4), invalid(Invalid::LatencyTarget(4 << 24)));
}

#[test]
#[should_panic(expected = "a senseless superblock is not written")]
fn a_senseless_superblock_is_not_written() {
    let mut superblock = superblock(Level::Raid5, 3, 3, 0);
    superblock.slots[1].member = superblock.member;
    superblock.encode(4096);
}

#[test]
fn a_page_with_undecided_regions_is_not_for_older_programs() {
    let page = MapPage {
        undecided: vec![1, 7, 249],
        ..sample_page()
    };
    let mut bytes = page.encode(8192);
    assert_eq!((bytes[8], bytes[96 + 1], bytes[96 + 7]), (2, 0x41, 0xc3));
    assert_eq!(MapPage::decode(&bytes[..], 8192), Ok(page));
    bytes[8] = 1;
    reseal(&mut bytes[..]);
    let refused = MapPage::decode(&bytes[..], 8192);
    let (region, code) = (1, 0x41);
    assert_eq!(refused, Err(MapError::State { region, code }));
}

#[test]
fn a_page_that_says_what_every_member_had_is_not_for_older_programs() {
    let page = MapPage {
        whole_at: 38,
        ..sample_page()
    };
    let mut bytes = page.encode(8192);
    assert_eq!((bytes[8], bytes[76], bytes[77]), (3, 38, 0));
    assert_eq!(MapPage::decode(&bytes[..], 8192), Ok(page));
    for version in [1, 2] {
        bytes[8] = version;
        reseal(&mut bytes[..]);
        assert_eq!(MapPage::decode(&bytes[..], 8192), Err(MapError::Reserved));
    }
    let mut superblock = superblock(Level::Raid6, 6, 6, 0);
    superblock.map_whole_at = true;
    let bytes = superblock.encode(4096);
    // No new bytes: the version stays what it was.
    assert_eq!((&bytes[10..12], &bytes[24..26]), (&[0, 0][..], &[0, 1][..]));
    assert_eq!(Superblock::decode(&bytes[..], 4096), Ok(superblock));
}

#[test]
fn a_page_names_what_is_wrong_with_it() {
    let whole = sample_page().encode(8192);
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        reseal(&mut bytes[..]);
        MapPage::decode(&bytes[..], 8192).expect_err("not believable")
    };
    assert_eq!(changed(8, 3), MapError::Version { version: 3 });
    assert_eq!(changed(11, 0x80), MapError::Count { count: 0x80fa });
    assert_eq!(changed(96 + 7, 4), MapError::State { region: 7, code: 4 });
    assert_eq!(
        changed(96 + 7, 0x84),
        MapError::State {
            region: 7,
            code: 0x84
        }
    );
    assert_eq!(changed(96 + 250, 1), MapError::Reserved);
    assert_eq!(MapPage::decode(&[0; 4096], 0), Err(MapError::NotMap));
    assert_eq!(
        MapPage::decode(&[0; 4095], 0),
        Err(MapError::Length { bytes: 4095 })
    );
}

#[test]
fn a_torn_page_leaves_the_version_before_it() {
    let layout = wide_layout();
    let page = |sequence| MapPage {
        sequence,
        ..sample_page()
    };
    let (old_at, new_at) = (
        region_map::place(&layout, 1, 41),
        region_map::place(&layout, 1, 42),
    );
    let old = page(41).encode(old_at);
    let mut new = page(42).encode(new_at);
    let read = |new: &[u8]| {
        let places = [
            MapPage::decode(new, new_at),
            MapPage::decode(&old[..], old_at),
        ];
        let [a, b] = places;
        region_map::newest(a.clone(), b.clone()).map(|page| {
            assert_eq!(region_map::newest(b, a).as_ref(), Some(&page));
            page.sequence
        })
    };
    assert_eq!(read(&new[..]), Some(42));
    new[2000] ^= 1;
    assert_eq!(read(&new[..]), Some(41));
    assert_eq!(
        region_map::newest(Err(MapError::NotMap), Err(MapError::NotMap)),
        None
    );
}

#[test]
fn the_places_of_all_pages_are_disjoint_and_inside_the_map() {
    let layout = wide_layout();
    assert!(layout.map_pages > 1);
    let mut places: Vec<u64> = (0..layout.map_pages)
        .flat_map(|page| [0, 1].map(|sequence| region_map::place(&layout, page, sequence)))
        .collect();
    places.sort_unstable();
    assert!(
        places
            .windows(2)
            .all(|pair| pair[0] + PAGE_BYTES as u64 <= pair[1])
    );
    assert!(places[0] >= layout.map_offset);
    assert!(places[places.len() - 1] + PAGE_BYTES as u64 <= layout.log_offset);
    let covered: usize = (0..layout.map_pages)
        .map(|page| layout.regions_in_page(page))
        .sum();
    assert_eq!(covered, layout.regions() as usize);
}
