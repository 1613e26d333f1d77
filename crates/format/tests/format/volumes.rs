//! The table of volumes: identity, any bytes, every flipped bit, torn writes, and which of two
//! copies is believed.

use proptest::prelude::*;
use strake_format::volumes::{EXTENTS_MAX, VOLUME_TABLE_BYTES, VOLUMES_MAX};
use strake_format::*;

use crate::samples::*;

const SECOND: u64 = VOLUME_TABLE_OFFSETS[1];

pub(crate) fn volume(id: u8, name: &str, size_bytes: u64, extents: &[(u32, u32)]) -> Volume {
    let extents = extents.iter();
    Volume {
        uuid: VolumeUuid([id; 16]),
        name: name.parse().expect("a name"),
        size_bytes,
        created_unix_s: 1_800_000_000,
        extents: extents
            .map(|&(first, units)| Extent { first, units })
            .collect(),
    }
}

/// A table of several volumes, one in pieces.
pub(crate) fn sample_table() -> VolumeTable {
    VolumeTable {
        array: array(0xa5),
        generation: Generation(0x0102_0304_0506_0708),
        unit_bytes: 1 << 20,
        volumes: vec![
            volume(1, "data", 5 << 20, &[(2, 3), (9, 2)]),
            volume(
                2,
                "Golden_volume.v1-of-a-long-name!".trim_end_matches('!'),
                4096,
                &[(5, 1)],
            ),
        ],
    }
}

fn reseal(bytes: &mut [u8]) {
    let sum = checksum::sealed(bytes, 12);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}

prop_compose! {
    fn any_table()(
        a in any::<[u8; 16]>(),
        (generation, unit) in (0..=u64::MAX - (1 << 48), 12u32..31),
        gaps in proptest::collection::vec((0..99u32, 1..99u32, any::<bool>()), 0..200),
        short in 0..7u64,
    ) -> VolumeTable {
        let unit_bytes = 1 << unit;
        let mut at = VOLUME_AREA_BYTES.div_ceil(unit_bytes) as u32;
        let mut volumes: Vec<Volume> = Vec::new();
        for (gap, units, new) in gaps {
            if new || volumes.is_empty() {
                let id = volumes.len() as u8 + 1;
                volumes.push(volume(id, &format!("v{id}"), 0, &[]));
            }
            let last = volumes.last_mut().expect("there is one");
            last.extents.push(Extent { first: at + gap, units });
            last.size_bytes = last.units() * unit_bytes - short * 512;
            at += gap + units;
        }
        VolumeTable { array: ArrayUuid(a), generation: Generation(generation), unit_bytes, volumes }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_table_comes_back_as_it_was_whatever_lies_behind_it(
        table in any_table(),
        copy in 0..2usize,
        tail in proptest::collection::vec(any::<u8>(), 0..5000),
    ) {
        let offset = VOLUME_TABLE_OFFSETS[copy];
        let mut bytes = table.encode(offset);
        prop_assert!(bytes.len().is_multiple_of(4096));
        bytes.extend(tail);
        prop_assert_eq!(VolumeTable::decode(&bytes, offset, table.array), Ok(Some(table)));
    }

    #[test]
    fn any_bytes_are_no_table(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..9000),
        sealed in any::<bool>(),
    ) {
        if sealed && bytes.len() >= 64 {
            bytes[..8].copy_from_slice(b"STRKVOL\x1a");
            let length = bytes.len() as u32;
            bytes[56..60].copy_from_slice(&length.to_le_bytes());
            reseal(&mut bytes);
        }
        let _ = VolumeTable::decode(&bytes, 0, array(0xa5));
    }

    #[test]
    fn what_passes_with_a_right_checksum_makes_sense(
        at in 16..4096usize,
        byte in any::<u8>(),
    ) {
        let mut bytes = sample_table().encode(0);
        bytes[at] = byte;
        reseal(&mut bytes);
        if let Ok(Some(table)) = VolumeTable::decode(&bytes, 0, array(0xa5)) {
            prop_assert_eq!(table.check(), Ok(()));
            prop_assert_eq!(table.encode(0), bytes);
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let table = sample_table();
    let bytes = table.encode(SECOND);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let read = VolumeTable::decode(&flipped, SECOND, table.array);
        assert!(read.is_err(), "bit {bit}: {read:?}");
    }
}

#[test]
fn a_copy_elsewhere_of_another_array_or_of_a_newer_program_is_named() {
    let table = sample_table();
    let bytes = table.encode(0);
    let decode = |bytes: &[u8], offset| VolumeTable::decode(bytes, offset, table.array);
    assert_eq!(
        decode(&bytes, SECOND),
        Err(VolumeTableError::Misplaced {
            named: 0,
            offset: SECOND
        })
    );
    let foreign = VolumeTable::decode(&bytes, 0, array(0xa6));
    assert_eq!(foreign, Err(VolumeTableError::Foreign(array(0xa5))));
    assert_eq!(decode(&[7; 4096], 0), Err(VolumeTableError::NotATable));
    assert_eq!(decode(&[0; 4096], 0), Ok(None), "never written");
    assert_eq!(
        decode(&bytes[..64], 0),
        Err(VolumeTableError::Length { bytes: 64 })
    );
    let mut newer = bytes.clone();
    newer[8] = 2;
    reseal(&mut newer);
    assert_eq!(decode(&newer, 0), Err(VolumeTableError::Version(2)));
}

#[test]
fn volumes_share_nothing_and_have_what_they_say() {
    let good = sample_table();
    let with = |change: &dyn Fn(&mut VolumeTable)| {
        let mut table = good.clone();
        change(&mut table);
        table.check()
    };
    let extent = |first, units| Extent { first, units };
    assert_eq!(good.check(), Ok(()));
    let odd = with(&|t| t.unit_bytes = 4097);
    assert_eq!(odd, Err(VolumeTableError::Unit(4097)));
    let nil = with(&|t| t.volumes[1].uuid = VolumeUuid::NIL);
    assert_eq!(nil, Err(VolumeTableError::Identity(1)));
    let twin = with(&|t| t.volumes[1].uuid = t.volumes[0].uuid);
    assert_eq!(twin, Err(VolumeTableError::Identity(1)));
    let named = with(&|t| t.volumes[1].name = t.volumes[0].name.clone());
    assert_eq!(named, Err(VolumeTableError::Twice(1)));
    for size in [0, 4 << 20, (5 << 20) + 512, 513] {
        let size = with(&|t| t.volumes[0].size_bytes = size);
        assert_eq!(size, Err(VolumeTableError::Size(0)));
    }
    let shared = with(&|t| t.volumes[1].extents[0] = extent(4, 1));
    assert_eq!(shared, Err(VolumeTableError::Extent(1)));
    let table = with(&|t| t.volumes[1].extents[0] = extent(1, 1));
    assert_eq!(table, Err(VolumeTableError::Extent(1)), "the table's own");
    let beyond = with(&|t| t.volumes[1].extents[0] = extent(u32::MAX, 1));
    assert_eq!(beyond, Err(VolumeTableError::Extent(1)));
}

#[test]
fn the_largest_table_fits_its_place() {
    let mut at = 2;
    let mut volumes: Vec<Volume> = Vec::new();
    for id in 0..VOLUMES_MAX as u32 {
        let mut largest = volume(1, &format!("v{id}"), 1 << 20, &[(at, 1)]);
        largest.uuid.0[..4].copy_from_slice(&(id + 1).to_be_bytes());
        volumes.push(largest);
        at += 2;
    }
    for _ in VOLUMES_MAX..EXTENTS_MAX {
        volumes[7].extents.push(Extent {
            first: at,
            units: 1,
        });
        at += 2;
    }
    volumes[7].size_bytes = volumes[7].units() << 20;
    let mut table = VolumeTable {
        volumes,
        ..sample_table()
    };
    let bytes = table.encode(0);
    assert!(bytes.len() as u64 <= VOLUME_TABLE_BYTES);
    assert_eq!(
        VolumeTable::decode(&bytes, 0, table.array),
        Ok(Some(table.clone()))
    );
    table.volumes[7].extents.push(Extent {
        first: at,
        units: 1,
    });
    table.volumes[7].size_bytes += 1 << 20;
    assert_eq!(
        table.check(),
        Err(VolumeTableError::ExtentCount(EXTENTS_MAX + 1))
    );
}

#[test]
fn of_two_copies_the_newer_whole_one_is_believed() {
    use VolumeTableError::{Foreign, Unreadable, Version};
    let old = sample_table();
    let new = VolumeTable {
        generation: old.generation.next(),
        ..old.clone()
    };
    let torn = VolumeTableError::Damaged {
        stored: 1,
        computed: 2,
    };
    let whole = |table: &VolumeTable| Ok(Some(table.clone()));
    let believed = |first, second| {
        let chosen = select_table(&[first, second])?;
        Ok((chosen.table, chosen.behind))
    };
    let old_and = |behind| Ok((Some(old.clone()), behind));
    let new_and = |behind| Ok((Some(new.clone()), behind));
    let nothing = |behind| Ok((None, behind));
    assert_eq!(believed(Ok(None), Ok(None)), nothing([false, false]));
    assert_eq!(believed(whole(&old), whole(&old)), old_and([false, false]));
    // A crash in a change, at each of its two copies.
    assert_eq!(believed(Err(torn), whole(&old)), old_and([true, false]));
    assert_eq!(believed(whole(&new), whole(&old)), new_and([false, true]));
    assert_eq!(believed(whole(&new), Err(torn)), new_and([false, true]));
    // The same in the first change of all.
    assert_eq!(believed(Err(torn), Ok(None)), nothing([true, false]));
    assert_eq!(believed(Err(Unreadable), Ok(None)), nothing([true, false]));
    assert_eq!(believed(whole(&old), Ok(None)), old_and([false, true]));
    // A copy that was lost later.
    assert_eq!(believed(whole(&old), whole(&new)), new_and([true, false]));
    assert_eq!(
        believed(whole(&old), Err(Unreadable)),
        old_and([false, true])
    );
    assert_eq!(
        believed(Err(Unreadable), whole(&old)),
        old_and([true, false])
    );
    assert_eq!(believed(Ok(None), whole(&old)), old_and([true, false]));
    // What cannot be told.
    assert_eq!(believed(Err(torn), Err(Unreadable)), Err(torn));
    assert_eq!(believed(Ok(None), Err(torn)), Err(torn));
    assert_eq!(
        believed(Err(Foreign(old.array)), Ok(None)),
        Err(Foreign(old.array))
    );
    assert_eq!(believed(Err(Version(2)), whole(&old)), Err(Version(2)));
    assert_eq!(believed(whole(&old), Err(Version(2))), Err(Version(2)));
}
