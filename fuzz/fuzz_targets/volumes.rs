//! Any table of volumes, as it is and with its length and checksum made right: decoding never
//! panics, and what passes makes sense and encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use strake_format::{ArrayUuid, VolumeTable, checksum};

fuzz_target!(|data: &[u8]| {
    let array = ArrayUuid([0xa5; 16]);
    let _ = VolumeTable::decode(data, 0, array);
    let mut copy = data.to_vec();
    copy.resize(copy.len().div_ceil(4096).clamp(1, 64) * 4096, 0);
    let length = copy.len() as u32;
    copy[56..60].copy_from_slice(&length.to_le_bytes());
    let sum = checksum::sealed(&copy, 12);
    copy[12..16].copy_from_slice(&sum.to_le_bytes());
    if let Ok(Some(table)) = VolumeTable::decode(&copy, 0, array) {
        let again = table.encode(0);
        assert_eq!(VolumeTable::decode(&again, 0, array), Ok(Some(table)));
    }
});
