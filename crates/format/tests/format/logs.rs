//! The log: identity, any bytes, torn batches, and user data that looks like a batch.

use proptest::prelude::*;
use strake_format::log::{self, BATCH_BYTES_MAX, HEADER_BYTES};
use strake_format::*;

use crate::samples::*;

const AREA: u64 = 1 << 20;

/// An intent with every kind of payload.
pub(crate) fn sample_batch() -> LogBatch {
    let intent = LogRecord {
        stripe: 1234,
        operation: 77,
        start: 4096,
        len: 8192,
        written: 0b101,
        checksums: (0..6).map(|i| 0x0101_0101 * i).collect::<Vec<u32>>().into(),
        settled: false,
        payload: LogPayload::None,
    };
    let bytes: Vec<u8> = (0..8192u32).map(|i| (i * 7 % 251) as u8).collect();
    let syndrome = LogRecord {
        checksums: Default::default(),
        payload: LogPayload::PartialSyndrome {
            parity: 1,
            bytes: bytes.clone(),
        },
        ..intent.clone()
    };
    let lost = LogRecord {
        checksums: Default::default(),
        payload: LogPayload::LostStrip { column: 2, bytes },
        ..intent.clone()
    };
    LogBatch {
        array: array(0xa5),
        member: member(3),
        lane: 2,
        sequence: 99,
        retired_before: 97,
        epoch: Epoch(7),
        records: vec![intent, syndrome, lost],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_batch_comes_back_as_it_was(
        batch in any_batch(),
        offset in 0..1u64 << 40,
        granularity in proptest::sample::select(vec![4096u32, 12288, 16384, 65536]),
    ) {
        let offset = offset << 12;
        let bytes = batch.encode(offset, granularity);
        prop_assert_eq!(bytes.len(), batch.encoded_bytes(granularity));
        prop_assert!(bytes.len().is_multiple_of(granularity as usize));
        prop_assert_eq!(LogBatch::decode(&bytes, offset), Ok((batch.clone(), bytes.len())));
        prop_assert_eq!(log::scan(&bytes, offset), vec![Ok(batch)]);
        let astray = LogError::Misplaced { offset: offset + 4096, named: offset };
        prop_assert_eq!(LogBatch::decode(&bytes, offset + 4096), Err(astray));
    }

    #[test]
    fn a_batch_of_which_any_blocks_were_not_written_is_not_believed(
        batch in any_batch(),
        written in any::<u64>(),
        granularity in proptest::sample::select(vec![4096u32, 16384]),
    ) {
        let bytes = batch.encode(AREA, granularity);
        let mut torn = vec![0x33; bytes.len()];
        for (i, block) in bytes.chunks(4096).enumerate() {
            if written >> (i % 64) & 1 == 1 {
                torn[i * 4096..][..4096].copy_from_slice(block);
            }
        }
        let found = log::scan(&torn, AREA);
        if torn == bytes {
            prop_assert_eq!(found, vec![Ok(batch)]);
        } else {
            prop_assert!(found.iter().all(Result::is_err), "{:?}", found);
        }
    }

    #[test]
    fn any_bytes_never_panic(
        mut area in proptest::collection::vec(any::<u8>(), 0..20000),
        heads in any::<u8>(),
    ) {
        for (i, block) in area.chunks_mut(4096).enumerate() {
            if heads >> i & 1 == 1 && block.len() >= 8 {
                block[..8].copy_from_slice(b"STRKLOG\x1a");
            }
        }
        prop_assert!(log::scan(&area, AREA).iter().all(Result::is_err));
    }

    #[test]
    fn any_header_under_right_checksums_never_panics(
        batch in any_batch(),
        changes in proptest::collection::vec((0..3000usize, any::<u8>()), 1..4),
        near in any::<bool>(),
    ) {
        let mut bytes = batch.encode(AREA, 4096);
        for (at, byte) in changes {
            bytes[if near { 80 + at % 100 } else { at }] = byte;
        }
        let field = [bytes[84], bytes[85], bytes[86], bytes[87]];
        let header_bytes = u32::from_le_bytes(field) as usize;
        if (HEADER_BYTES..=bytes.len()).contains(&header_bytes) {
            let sum = checksum::crc32c(&bytes[header_bytes..]);
            bytes[92..96].copy_from_slice(&sum.to_le_bytes());
            let sum = checksum::sealed(&bytes[..header_bytes], 12);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        }
        if let Ok((decoded, taken)) = LogBatch::decode(&bytes, AREA) {
            prop_assert!(taken <= bytes.len());
            prop_assert!(decoded.records.iter().all(LogRecord::is_sensible));
        }
    }
}

#[test]
fn every_flipped_bit_of_a_batch_is_noticed() {
    let batch = sample_batch();
    let mut bytes = batch.encode(AREA, 4096);
    for bit in (0..8192 * 8).chain((8192 * 8..bytes.len() * 8).step_by(61)) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(LogBatch::decode(&bytes, AREA).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert_eq!(LogBatch::decode(&bytes, AREA), Ok((batch, bytes.len())));
}

/// A user writes, as data, the very bytes that a batch would have at the place where his data will
/// be logged; the batch that carries them is torn. They must not be taken for a batch.
#[test]
fn a_users_data_is_never_taken_for_a_batch() {
    let carrier = |bytes: Vec<u8>| LogBatch {
        records: vec![LogRecord {
            len: bytes.len() as u32,
            checksums: Default::default(),
            payload: LogPayload::LostStrip { column: 0, bytes },
            ..sample_batch().records[0].clone()
        }],
        ..sample_batch()
    };
    let forged = LogBatch {
        sequence: 1000,
        ..sample_batch()
    };
    let batch = carrier(forged.encode(AREA + 4096, 4096));
    let mut bytes = batch.encode(AREA, 4096);
    assert_eq!(log::scan(&bytes, AREA), vec![Ok(batch)]);
    bytes[..4096].fill(0);
    assert_eq!(log::scan(&bytes, AREA), vec![]);
    assert_eq!(
        LogBatch::decode(&bytes[4096..], AREA + 4096),
        Err(LogError::NotLog {
            offset: AREA + 4096
        })
    );
}

/// Checksums are a user's to choose as well: each is that of a block of his.
#[test]
fn a_users_checksums_are_never_taken_for_a_batch() {
    let forged = LogBatch {
        sequence: 1000,
        records: vec![],
        ..sample_batch()
    };
    let forged = forged.encode(AREA + 4096, 4096);
    let sum = |at: &[u8]| u32::from_le_bytes([at[0], at[1], at[2], at[3]]);
    let gap = (4096 - HEADER_BYTES - log::RECORD_BYTES) / 4;
    let checksums: Vec<u32> = std::iter::repeat_n(0, gap)
        .chain(forged.chunks(4).map(sum))
        .collect();
    let record = LogRecord {
        checksums: checksums.into(),
        ..sample_batch().records[0].clone()
    };
    let batch = LogBatch {
        records: vec![record],
        ..sample_batch()
    };
    let mut bytes = batch.encode(AREA, 4096);
    assert_eq!(&bytes[4104..8192], &forged[8..]);
    assert_eq!(log::scan(&bytes, AREA), vec![Ok(batch)]);
    bytes[..4096].fill(0);
    assert_eq!(log::scan(&bytes, AREA), vec![]);
}

#[test]
fn a_scan_finds_whole_batches_between_torn_ones_and_remains() {
    let batch = |sequence| LogBatch {
        sequence,
        ..sample_batch()
    };
    let mut area = vec![0x5a; 160 << 10];
    let place = |area: &mut Vec<u8>, at: usize, sequence| {
        let bytes = batch(sequence).encode(AREA + at as u64, 4096);
        area[at..at + bytes.len()].copy_from_slice(&bytes);
        bytes.len()
    };
    let len = place(&mut area, 0, 1);
    place(&mut area, len, 2);
    place(&mut area, 2 * len, 3);
    // The second is overwritten in its middle by a short one of a later round.
    let short = LogBatch {
        records: vec![],
        ..batch(9)
    };
    let at = len + 4096;
    area[at..at + 4096].copy_from_slice(&short.encode(AREA + at as u64, 4096));
    place(&mut area, 80 << 10, 5);
    area[(80 << 10) + 100] ^= 1;
    // The last is cut off by the end of the area.
    let bytes = batch(6).encode(AREA + (156 << 10), 4096);
    area[156 << 10..].copy_from_slice(&bytes[..4096]);
    let offset = |at: usize| AREA + at as u64;
    let found = log::scan(&area, AREA);
    let expected = vec![
        Ok(batch(1)),
        Err(LogError::TornPayload {
            offset: offset(len),
        }),
        Ok(short),
        Ok(batch(3)),
        Err(LogError::TornHeader {
            offset: offset(80 << 10),
        }),
        Err(LogError::Short {
            offset: offset(156 << 10),
            needed: bytes.len() as u64,
            bytes: 4096,
        }),
    ];
    assert_eq!(found, expected);
    assert_eq!(log::scan(&[], AREA), vec![]);
    assert_eq!(log::scan(&area[..100], AREA), vec![]);
    log::scan(&area, u64::MAX);
}

/// What a scan finds in an area that comes in pieces of so many bytes.
fn scan_in_pieces(area: &[u8], piece: usize) -> Vec<Result<LogBatch, LogError>> {
    let (mut scan, mut found) = (log::Scan::new(AREA), Vec::new());
    let count = area.len().div_ceil(piece);
    for (i, bytes) in area.chunks(piece).enumerate() {
        scan.feed(bytes, i + 1 == count, |batch| found.push(batch));
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whole batches, torn ones with whole ones inside, nothing, and pieces that end anywhere.
    #[test]
    fn an_area_that_comes_in_pieces_tells_the_same(
        batches in proptest::collection::vec((any_batch(), 0..12usize, any::<bool>()), 1..6),
        piece in proptest::sample::select(vec![1000usize, 4096, 5000, 65536, 1 << 20]),
    ) {
        let mut area: Vec<u8> = Vec::new();
        for (batch, back, torn) in batches {
            // Some begin over the end of the one before.
            let at = area.len().saturating_sub(if torn { back * 4096 } else { 0 });
            let bytes = batch.encode(AREA + at as u64, 4096);
            area.truncate(at);
            area.extend_from_slice(&bytes);
            area.resize(area.len() + if torn { 0 } else { back * 4096 }, 0);
        }
        prop_assert_eq!(scan_in_pieces(&area, piece), log::scan(&area, AREA));
    }
}

#[test]
fn a_block_of_small_intents_holds_more_than_fifty() {
    // RAID 6, 4 KiB random writes: one data block and two parities.
    let record = LogRecord {
        checksums: vec![1, 2, 3].into(),
        ..sample_batch().records[0].clone()
    };
    let batch = |count| LogBatch {
        records: vec![record.clone(); count],
        ..sample_batch()
    };
    assert_eq!(batch(61).encoded_bytes(4096), 4096);
    assert_eq!(batch(62).encoded_bytes(4096), 8192);
}

#[test]
#[should_panic(expected = "a batch of")]
fn a_batch_that_is_too_long_is_not_written() {
    let bytes = vec![0; 1 << 20];
    let record = LogRecord {
        start: 0,
        len: 1 << 20,
        payload: LogPayload::LostStrip { column: 0, bytes },
        ..sample_batch().records[0].clone()
    };
    let count = BATCH_BYTES_MAX >> 20;
    LogBatch {
        records: vec![record; count],
        ..sample_batch()
    }
    .encode(AREA, 4096);
}
