//! What is written: blocks that say where they belong and which write they are of.
//!
//! ```text
//!   0         8            12           16                4096
//!   | address | version    | pattern    | the pattern's bytes |      (little endian)
//! ```
//!
//! Invariant: two blocks of different addresses, or of two writes to one address, differ; so a
//! read of another place, of an older write, or of parity that was never true is found. Only the
//! first 12 bytes change from write to write: stamping must cost little beside the I/O.

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

/// Bytes of a block: the array's logical block.
pub(crate) const BLOCK: usize = 4096;
const HEAD: usize = 16;
const COUNT: usize = 16;

/// The bodies of blocks.
pub(crate) struct Patterns(Vec<[u8; BLOCK]>);

impl Patterns {
    pub(crate) fn new() -> Patterns {
        let mut chance = SmallRng::seed_from_u64(0x5712_a4e5);
        let body = |at: usize| {
            let mut body = [0; BLOCK];
            chance.fill_bytes(&mut body);
            body[12..HEAD].copy_from_slice(&(at as u32).to_le_bytes());
            body
        };
        Patterns((0..COUNT).map(body).collect())
    }

    /// Fills a whole buffer, each block with a body; `first` picks the first one's.
    pub(crate) fn fill(&self, buf: &mut [u8], first: usize) {
        for (at, block) in buf.chunks_exact_mut(BLOCK).enumerate() {
            block.copy_from_slice(&self.0[(first + at) % COUNT]);
        }
    }

    /// What is wrong with a block that was read, if anything is.
    pub(crate) fn check(&self, block: &[u8], address: u64, version: u32) -> Result<(), String> {
        let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("4 bytes"));
        let found = u64::from_le_bytes(block[..8].try_into().expect("8 bytes"));
        if (found, word(8)) != (address, version) {
            return Err(format!(
                "block {address:#x} of write {version} reads as block {found:#x} of write {}",
                word(8)
            ));
        }
        match self.0.get(word(12) as usize) {
            Some(body) if body[HEAD..] == block[HEAD..] => Ok(()),
            _ => Err(format!("block {address:#x} has a wrong body")),
        }
    }
}

/// Makes a filled block that of an address and a write.
pub(crate) fn stamp(block: &mut [u8], address: u64, version: u32) {
    block[..8].copy_from_slice(&address.to_le_bytes());
    block[8..12].copy_from_slice(&version.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_another_place_or_write_or_body_is_found() {
        let patterns = Patterns::new();
        let mut buf = vec![0; 2 * BLOCK];
        patterns.fill(&mut buf, 15);
        stamp(&mut buf[..BLOCK], 7, 3);
        assert_eq!(patterns.check(&buf[..BLOCK], 7, 3), Ok(()));
        assert!(patterns.check(&buf[..BLOCK], 8, 3).is_err());
        assert!(patterns.check(&buf[..BLOCK], 7, 2).is_err());
        for at in [12, HEAD, BLOCK - 1] {
            let mut block = buf[..BLOCK].to_vec();
            block[at] ^= 0x40;
            assert!(patterns.check(&block, 7, 3).is_err(), "byte {at}");
        }
        assert!(patterns.check(&[0; BLOCK], 0, 0).is_err(), "zeros");
    }
}
