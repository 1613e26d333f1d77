//! Any image, as it is and with its checksum made right: decoding never panics, and what passes
//! encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use strake_format::{UnreadableList, checksum};

fuzz_target!(|data: &[u8]| {
    let _ = UnreadableList::decode(data, 12288);
    let mut image = data.to_vec();
    let blocks = image.len().div_ceil(4096).clamp(1, 16);
    image.resize(blocks * 4096, 0);
    let sum = checksum::sealed(&image, 12);
    image[12..16].copy_from_slice(&sum.to_le_bytes());
    if let Ok(list) = UnreadableList::decode(&image, 12288) {
        assert_eq!(list.encode(image.len() as u32, 12288), image);
    }
});
