//! Any log area, as it is and with the checksums of its first batch made right: scanning never
//! panics, and what passes is sensible, encodes, and comes back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use strake_format::log::{BATCH_BYTES_MAX, HEADER_BYTES, scan};
use strake_format::{LogBatch, checksum};

/// Where the area lies; the committed corpus was written for this place.
const AREA: u64 = 1 << 20;

/// The four bytes at `at` as a number.
fn number(area: &[u8], at: usize) -> usize {
    area.get(at..at + 4)
        .and_then(|field| field.try_into().ok())
        .map_or(0, |field| u32::from_le_bytes(field) as usize)
}

/// Makes the checksums of the batch that the area begins with right, if its lengths are.
fn seal(area: &mut [u8]) {
    let (blocks, header_bytes) = (number(area, 80), number(area, 84));
    let total = blocks.saturating_mul(4096);
    if header_bytes < HEADER_BYTES || header_bytes > total || total > area.len() {
        return;
    }
    let sum = checksum::crc32c(&area[header_bytes..total]);
    area[92..96].copy_from_slice(&sum.to_le_bytes());
    let sum = checksum::sealed(&area[..header_bytes], 12);
    area[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// What was believed can be written and read again.
fn check(area: &[u8]) {
    for batch in scan(area, AREA).into_iter().flatten() {
        if batch.encoded_bytes(4096) <= BATCH_BYTES_MAX {
            let bytes = batch.encode(AREA, 4096);
            assert_eq!(LogBatch::decode(&bytes, AREA), Ok((batch, bytes.len())));
        }
    }
}

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut area = data.to_vec();
    area.resize(area.len().next_multiple_of(4096), 0);
    seal(&mut area);
    check(&area);
});
