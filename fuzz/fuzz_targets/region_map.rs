//! Any block, as it is and with its checksum made right: decoding never panics, and what passes
//! encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use strake_format::region_map::PAGE_BYTES;
use strake_format::{MapPage, checksum};

fuzz_target!(|data: &[u8]| {
    let _ = MapPage::decode(data, 8192);
    let mut block = data.to_vec();
    block.resize(PAGE_BYTES, 0);
    let sum = checksum::sealed(&block, 12);
    block[12..16].copy_from_slice(&sum.to_le_bytes());
    if let Ok(page) = MapPage::decode(&block, 8192) {
        assert_eq!(page.encode(8192)[..], block[..]);
    }
});
