//! The list of unreadable blocks: identity, any bytes, every flipped bit, and errors that tell what
//! was found.

use proptest::prelude::*;
use strake_format::unreadable::{self, UNREADABLE_BYTES, capacity, places};
use strake_format::*;

use crate::samples::*;

const PLACE: u64 = 12288;

/// A list of several ranges.
pub(crate) fn sample_list() -> UnreadableList {
    UnreadableList {
        array: array(0xa5),
        member: member(3),
        epoch: Epoch(0x0102_0304_0506_0708),
        sequence: 0x1112_1314_1516_1718,
        ranges: vec![0..1, 7..9, 1 << 40..(1 << 40) + 77],
    }
}

/// Blocks between two ranges, and blocks of the second.
fn gap() -> impl Strategy<Value = (u64, u64)> {
    (1..u64::MAX >> 12, 1..u64::MAX >> 12)
}

prop_compose! {
    fn any_list()(
        (a, m) in (any::<[u8; 16]>(), any::<[u8; 16]>()),
        (epoch, sequence) in (any::<u64>(), any::<u64>()),
        gaps in proptest::collection::vec(gap(), 0..=capacity(4096)),
    ) -> UnreadableList {
        let mut at = 0;
        let ranges = gaps.into_iter().map(|(gap, blocks)| {
            let start = at + gap;
            at = start + blocks;
            start..at
        });
        UnreadableList {
            array: ArrayUuid(a),
            member: MemberUuid(m),
            epoch: Epoch(epoch),
            sequence,
            ranges: ranges.collect(),
        }
    }
}

fn reseal(bytes: &mut [u8]) {
    let sum = checksum::sealed(bytes, 12);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_list_comes_back_as_it_was(
        list in any_list(),
        offset in any::<u64>(),
        blocks in 1..=16u32,
    ) {
        let bytes = list.encode(blocks * 4096, offset);
        prop_assert_eq!(bytes.len(), blocks as usize * 4096);
        prop_assert_eq!(UnreadableList::decode(&bytes, offset), Ok(list));
        let misplaced = UnreadableError::Misplaced { named: offset, offset: !offset };
        prop_assert_eq!(UnreadableList::decode(&bytes, !offset), Err(misplaced));
    }

    #[test]
    fn a_list_of_any_bytes_under_a_right_checksum_never_panics(
        list in any_list(),
        changes in proptest::collection::vec((0..4096usize, any::<u8>()), 1..4),
        near in any::<bool>(),
    ) {
        let mut bytes = list.encode(4096, 0);
        for (at, byte) in changes {
            bytes[if near { at % 200 } else { at }] = byte;
        }
        reseal(&mut bytes);
        if let Ok(decoded) = UnreadableList::decode(&bytes, 0) {
            prop_assert_eq!(decoded.encode(4096, 0), bytes);
        }
    }

    #[test]
    fn no_bytes_of_any_length_are_a_list(
        bytes in proptest::collection::vec(any::<u8>(), 0..9000),
    ) {
        prop_assert!(UnreadableList::decode(&bytes, 4096).is_err());
    }
}

#[test]
fn every_flipped_bit_of_a_list_is_known_as_damage() {
    let mut bytes = sample_list().encode(4096, PLACE);
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let decoded = UnreadableList::decode(&bytes, PLACE);
        let damaged = matches!(decoded, Err(UnreadableError::Damaged { .. }));
        assert!(damaged, "bit {bit}: {decoded:?}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_list_names_what_is_wrong_with_it() {
    let whole = sample_list().encode(4096, PLACE);
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        reseal(&mut bytes);
        UnreadableList::decode(&bytes, PLACE).expect_err("not believable")
    };
    assert_eq!(changed(8, 2), UnreadableError::Version { version: 2 });
    assert_eq!(changed(73, 1), UnreadableError::Count { count: 0x103 });
    assert_eq!(changed(96 + 8, 0), UnreadableError::Range { index: 0 });
    // It would touch the next: that is one range, not two.
    assert_eq!(changed(96 + 8, 7), UnreadableError::Range { index: 1 });
    assert_eq!(changed(80, 1), UnreadableError::Reserved);
    assert_eq!(changed(96 + 48, 1), UnreadableError::Reserved);
    let none = UnreadableList::decode(&[0; 4096], 0);
    assert_eq!(none, Err(UnreadableError::NotList));
    let short = UnreadableList::decode(&whole[..4095], PLACE);
    assert_eq!(short, Err(UnreadableError::Length { bytes: 4095 }));
    let longer = [whole.clone(), vec![0; 4096]].concat();
    let longer = UnreadableList::decode(&longer, PLACE);
    assert!(matches!(longer, Err(UnreadableError::Damaged { .. })));
}

#[test]
fn a_torn_list_leaves_the_version_before_it_and_an_epoch_outweighs_sequences() {
    let list = |epoch, sequence| UnreadableList {
        epoch: Epoch(epoch),
        sequence,
        ..sample_list()
    };
    let (array, me) = (sample_list().array, sample_list().member);
    let sequence = |places: [Option<UnreadableList>; 2]| {
        unreadable::newest(&places, array, me).map(|(place, list)| (place, list.sequence))
    };
    assert_eq!(sequence([Some(list(1, 8)), Some(list(1, 9))]), Some((1, 9)));
    assert_eq!(sequence([Some(list(1, 8)), None]), Some((0, 8)));
    assert_eq!(sequence([Some(list(2, 3)), Some(list(1, 9))]), Some((0, 3)));
    let foreign = UnreadableList {
        member: member(9),
        ..list(5, 50)
    };
    assert_eq!(sequence([Some(foreign), None]), None);
}

#[test]
fn a_full_list_fits_and_one_more_range_does_not() {
    let list = |ranges: u64| UnreadableList {
        ranges: (0..ranges).map(|at| 2 * at..2 * at + 1).collect(),
        ..sample_list()
    };
    let most = capacity(UNREADABLE_BYTES) as u64;
    let full = list(most);
    let bytes = full.encode(UNREADABLE_BYTES, PLACE);
    assert_eq!(UnreadableList::decode(&bytes, PLACE), Ok(full));
    let more = std::panic::catch_unwind(|| list(most + 1).encode(UNREADABLE_BYTES, PLACE));
    assert!(more.is_err());
}

#[test]
fn the_places_of_the_list_are_apart_from_each_other_and_from_the_map() {
    let layout = wide_layout();
    let list = places(&layout).map(|at| (at, u64::from(layout.unreadable_bytes)));
    let mut all: Vec<(u64, u64)> = (0..layout.map_pages)
        .flat_map(|page| [0, 1].map(|sequence| region_map::place(&layout, page, sequence)))
        .map(|at| (at, 4096))
        .chain(list)
        .collect();
    all.sort_unstable();
    assert!(
        all.windows(2)
            .all(|pair| pair[0].0 + pair[0].1 <= pair[1].0)
    );
    assert!(all[0].0 >= layout.map_offset);
    let (last, bytes) = all[all.len() - 1];
    assert!(last + bytes <= layout.log_offset);
    let none = Layout {
        unreadable_bytes: 0,
        ..layout
    };
    let refused = LayoutError::UnreadableBytes { bytes: 0 };
    assert_eq!(none.check(4096), Err(refused));
    assert!(unreadable::capacity(layout.unreadable_bytes) > 4000);
}
