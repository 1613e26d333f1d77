//! The one checksum of the format: CRC-32C (Castagnoli).
//!
//! Invariants: a block's own checksum is computed over all of the block with its checksum field
//! taken as zero; the place of that field and the polynomial never change, whatever the version, so
//! that "damaged" can be told from "too new" before any other field is believed.

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// CRC-32C of `block` with the four bytes at `field` taken as zero.
///
/// # Panics
/// If the field does not lie inside the block.
pub fn sealed(block: &[u8], field: usize) -> u32 {
    let before = ::crc32c::crc32c(&block[..field]);
    let zeroed = ::crc32c::crc32c_append(before, &[0; 4]);
    ::crc32c::crc32c_append(zeroed, &block[field + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn the_field_itself_does_not_count_and_its_neighbours_do() {
        let mut block = [7u8; 64];
        let sum = sealed(&block, 12);
        block[12..16].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(sealed(&block, 12), sum);
        block[16] ^= 1;
        assert_ne!(sealed(&block, 12), sum);
    }
}
