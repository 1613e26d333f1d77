//! The one checksum of the format: CRC-32C (Castagnoli).
//!
//! Invariants: a block's own checksum is computed over all of the block with its checksum field
//! taken as zero; the place of that field and the polynomial never change, whatever the version, so
//! that "damaged" can be told from "too new" before any other field is believed.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of the sum (exclusive or) of blocks of one length, from their own; `zeros` is that of a
/// block of zeros of that length.
///
/// A CRC is affine over GF(2): crc(a + b) = crc(a) + crc(b) + crc(0).
pub fn crc32c_of_sum(checksums: impl IntoIterator<Item = u32>, zeros: u32) -> u32 {
    checksums
        .into_iter()
        .fold(zeros, |sum, checksum| sum ^ checksum ^ zeros)
}

/// CRC-32C of `block` with the four bytes at `field` taken as zero.
///
/// # Panics
/// If the field does not lie inside the block.
pub fn sealed(block: &[u8], field: usize) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&block[..field]);
    digest.update(&[0; 4]);
    digest.update(&block[field + 4..]);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    /// The definition: Castagnoli's polynomial, reflected, over bits from the lowest on.
    fn bit_by_bit(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |sum, &byte| {
            (0..8).fold(sum ^ u32::from(byte), |sum, _| {
                (sum >> 1) ^ (0x82f6_3b78 & (sum & 1).wrapping_neg())
            })
        })
    }

    /// The definition agrees, over every length around the steps of the vector kernels and
    /// every alignment.
    #[test]
    fn agrees_with_the_definition() {
        let bytes: Vec<u8> = (0..9000u32)
            .map(|i| (i * i) as u8 ^ (i >> 5) as u8)
            .collect();
        let lengths = (0..=600).chain([1023, 1024, 1025, 4095, 4096, 4097, 8192, 8999]);
        for (i, len) in lengths.enumerate() {
            let start = (i % 65).min(bytes.len() - len);
            let part = &bytes[start..start + len];
            assert_eq!(crc32c(part), bit_by_bit(part), "{len} bytes from {start}");
            if len > 16 {
                let mut zeroed = part.to_vec();
                zeroed[12..16].fill(0);
                assert_eq!(sealed(part, 12), bit_by_bit(&zeroed), "{len} bytes, sealed");
            }
        }
    }

    #[test]
    fn the_sum_of_blocks_needs_no_second_pass() {
        let block = |seed: u32| -> Vec<u8> {
            (0..512)
                .map(|i| (i * seed) as u8 ^ (i >> 3) as u8)
                .collect()
        };
        let zeros = crc32c(&[0; 512]);
        let (mut sum, mut checksums) = (vec![0u8; 512], Vec::new());
        for seed in 1..=9 {
            let block = block(seed);
            sum.iter_mut().zip(&block).for_each(|(s, b)| *s ^= b);
            checksums.push(crc32c(&block));
            let all = checksums.iter().copied();
            assert_eq!(crc32c_of_sum(all, zeros), crc32c(&sum), "{seed} blocks");
        }
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
