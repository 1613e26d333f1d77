//! Any block, as it is and with its checksum made right: decoding never panics, and what passes
//! encodes and comes back; so is the label of a pool, which lies in the same places. Two blocks
//! together go through the choice of a copy and of an array.
#![no_main]

use libfuzzer_sys::fuzz_target;
use strake_format::{PoolLabel, SUPERBLOCK_BYTES, Superblock, checksum, select_array, select_copy};

/// Where the first copy lies.
const FIRST: u64 = 4096;

/// A block that begins with `data`, under a right checksum.
fn sealed(data: &[u8]) -> Vec<u8> {
    let mut block = data.to_vec();
    block.resize(SUPERBLOCK_BYTES, 0);
    let sum = checksum::sealed(&block, 12);
    block[12..16].copy_from_slice(&sum.to_le_bytes());
    block
}

fuzz_target!(|data: &[u8]| {
    let _ = Superblock::decode(data, FIRST);
    let mut found = Vec::new();
    for part in data.chunks(SUPERBLOCK_BYTES).take(4) {
        let block = sealed(part);
        if let Ok(label) = PoolLabel::decode(&block, FIRST) {
            assert_eq!(label.encode(FIRST)[..], block[..]);
        }
        if let Ok(superblock) = Superblock::decode(&block, FIRST) {
            let again = superblock.encode(FIRST);
            assert_eq!(
                Superblock::decode(&again[..], FIRST).as_ref(),
                Ok(&superblock)
            );
            let device_bytes = superblock.layout.device_bytes;
            let _ = select_copy(
                device_bytes,
                &block,
                data.get(4096..8192).unwrap_or_default(),
            );
            found.push(superblock);
        }
    }
    if let Ok(selection) = select_array(&found) {
        assert_eq!(
            selection.slots.len(),
            found[selection.authority].slots.len()
        );
    }
});
