//! What every block must hold: the memory against which the array is judged.
//!
//! Each 4 KiB block on the array names its offset, its version and the run, and carries a checksum
//! over all its bytes. Invariants: one writer at a time for each block; the version under way is
//! noted before it is sent, the acknowledged one after its answer. A block read must hold a version
//! between the one that was acknowledged before the read and the one under way after it; version 0
//! is zeros.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use strake_format::checksum;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"STRKDEMO");

/// See the module.
#[derive(Debug)]
pub(crate) struct Oracle {
    run: u64,
    blocks: Vec<Versions>,
    verified: AtomicU64,
    mismatches: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Versions {
    acknowledged: AtomicU32,
    under_way: AtomicU32,
}

/// What a block was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As it must be.
    Good,
    /// An older version than the acknowledged one.
    Lost,
    /// Nothing that was ever written there.
    Wrong,
    /// Not to be judged: a write was under way during the read.
    Moving,
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Oracle {
    /// For the first `blocks` blocks of an array that holds zeros.
    pub(crate) fn new(blocks: usize, run: u64) -> Oracle {
        Oracle {
            run,
            blocks: (0..blocks).map(|_| Versions::default()).collect(),
            verified: AtomicU64::new(0),
            mismatches: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }
    /// Blocks under its eye.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }
    /// Bytes read and found good.
    pub(crate) fn verified_bytes(&self) -> u64 {
        self.verified.load(Ordering::Relaxed) * BLOCK as u64
    }
    /// Blocks that held what was never written there.
    pub(crate) fn mismatches(&self) -> u64 {
        self.mismatches.load(Ordering::Relaxed)
    }
    /// Blocks that held less than was acknowledged.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Fills `bytes` with the next versions of the blocks from `first`, and notes them as under
    /// way.
    pub(crate) fn next(&self, first: usize, bytes: &mut [u8]) {
        for (i, block) in bytes.chunks_exact_mut(BLOCK).enumerate() {
            let version = self.blocks[first + i]
                .under_way
                .fetch_add(1, Ordering::SeqCst)
                + 1;
            fill(block, self.run, (first + i) as u64, version);
        }
    }
    /// Notes that what `next` gave was acknowledged.
    pub(crate) fn acknowledged(&self, first: usize, count: usize) {
        for block in &self.blocks[first..first + count] {
            let version = block.under_way.load(Ordering::SeqCst);
            block.acknowledged.store(version, Ordering::SeqCst);
        }
    }
    /// Acknowledged versions, to be taken before a read.
    pub(crate) fn before(&self, first: usize, count: usize) -> Vec<u32> {
        let blocks = &self.blocks[first..first + count];
        blocks
            .iter()
            .map(|b| b.acknowledged.load(Ordering::SeqCst))
            .collect()
    }

    /// Judges one block that was read; `low` is what `before` said of it.
    pub(crate) fn judge(&self, block: usize, bytes: &[u8], low: u32) -> Verdict {
        let high = self.blocks[block].under_way.load(Ordering::SeqCst);
        match version_of(bytes, self.run, block as u64) {
            Some(version) if (low..=high).contains(&version) => Verdict::Good,
            _ if low != high => Verdict::Moving,
            Some(version) if version < low => Verdict::Lost,
            _ => Verdict::Wrong,
        }
    }
    /// Counts a verdict that is final.
    pub(crate) fn count(&self, verdict: Verdict) {
        let counter = match verdict {
            Verdict::Good => &self.verified,
            Verdict::Lost => &self.lost,
            Verdict::Wrong => &self.mismatches,
            Verdict::Moving => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes a block's content.
fn fill(block: &mut [u8], run: u64, number: u64, version: u32) {
    // xorshift64*: cheap, and different for every block and version.
    let mut state = (run ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) ^ u64::from(version) << 32;
    state |= 1;
    for chunk in block.chunks_exact_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        chunk.copy_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    block[0..8].copy_from_slice(&MAGIC.to_le_bytes());
    block[8..16].copy_from_slice(&run.to_le_bytes());
    block[16..24].copy_from_slice(&number.to_le_bytes());
    block[24..28].copy_from_slice(&version.to_le_bytes());
    block[28..32].fill(0);
    let sum = checksum::crc32c(block);
    block[28..32].copy_from_slice(&sum.to_le_bytes());
}

/// The version that a block holds, if it is one of this run and this place.
fn version_of(block: &[u8], run: u64, number: u64) -> Option<u32> {
    if word(block, 0) != MAGIC {
        return block.iter().all(|&b| b == 0).then_some(0);
    }
    if word(block, 8) != run || word(block, 16) != number {
        return None;
    }
    let tail = word(block, 24);
    let sum = checksum::sealed(block, 28);
    (u64::from(sum) == tail >> 32).then_some(tail as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(oracle: &Oracle, block: usize) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        oracle.next(block, &mut bytes);
        bytes
    }

    #[test]
    fn a_block_never_written_is_zeros_and_nothing_else() {
        let oracle = Oracle::new(2, 7);
        assert_eq!(oracle.judge(0, &[0; BLOCK], 0), Verdict::Good);
        assert_eq!(oracle.judge(0, &[1; BLOCK], 0), Verdict::Wrong);
    }

    #[test]
    fn an_acknowledged_version_must_be_there_and_one_under_way_may() {
        let oracle = Oracle::new(4, 7);
        let one = written(&oracle, 2);
        assert_eq!(oracle.judge(2, &[0; BLOCK], 0), Verdict::Good);
        assert_eq!(oracle.judge(2, &one, 0), Verdict::Good);
        oracle.acknowledged(2, 1);
        assert_eq!(oracle.judge(2, &one, 1), Verdict::Good);
        assert_eq!(oracle.judge(2, &[0; BLOCK], 1), Verdict::Lost);
        let two = written(&oracle, 2);
        oracle.acknowledged(2, 1);
        assert_eq!(oracle.judge(2, &one, 2), Verdict::Lost);
        assert_eq!(oracle.judge(2, &two, 2), Verdict::Good);
    }

    #[test]
    fn a_flipped_bit_and_a_block_of_another_place_are_wrong() {
        let oracle = Oracle::new(4, 7);
        let block = written(&oracle, 1);
        oracle.acknowledged(1, 1);
        for at in [0, 9, 17, 25, 29, 40, 4095] {
            let mut flipped = block.clone();
            flipped[at] ^= 1;
            assert_eq!(oracle.judge(1, &flipped, 1), Verdict::Wrong, "byte {at}");
        }
        oracle.next(3, &mut [0; BLOCK]);
        oracle.acknowledged(3, 1);
        assert_eq!(oracle.judge(3, &block, 1), Verdict::Wrong);
    }
}
