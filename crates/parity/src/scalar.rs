//! The portable form: 32 bytes as four 64-bit words, eight bytes multiplied side by side in each.
//!
//! Multiplication adds up the doublings of a word that the coefficient's bits select, under
//! masks: no table and no branch on data. Compilers turn the four words into vectors of
//! whatever the target guarantees, so this is also what an unknown CPU runs. Absent: `unsafe`.

use crate::generic::{self, Isa};
use crate::ops::{Map, Ops};

/// The portable instruction set; needs no proof.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

const WORDS: usize = 4;
const WORD_BYTES: usize = 8;
const LOW_BITS: u64 = 0x0101_0101_0101_0101;

/// Doubles eight bytes: each shifted left, and 0x1d added where its top bit was set.
#[inline(always)]
fn double(word: u64) -> u64 {
    let carries = word >> 7 & LOW_BITS;
    // 0x01 per carrying byte becomes 0xff: carries·255, which no byte carries out of.
    let mask = (carries << 8).wrapping_sub(carries);
    (word & !(LOW_BITS << 7)) << 1 ^ mask & (LOW_BITS * 0x1d)
}

impl Isa for Scalar {
    type Vector = [u64; WORDS];
    type Split = [u64; WORDS];
    type Factor = u8;
    const WIDTH: usize = WORDS * WORD_BYTES;
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn zero(self) -> [u64; WORDS] {
        [0; WORDS]
    }

    #[inline(always)]
    fn load(self, from: &[u8]) -> [u64; WORDS] {
        let (words, _) = from[..Self::WIDTH].as_chunks::<WORD_BYTES>();
        [words[0], words[1], words[2], words[3]].map(u64::from_ne_bytes)
    }

    #[inline(always)]
    fn store(self, vector: [u64; WORDS], to: &mut [u8]) {
        let (words, _) = to[..Self::WIDTH].as_chunks_mut::<WORD_BYTES>();
        for (bytes, word) in words.iter_mut().zip(vector) {
            *bytes = word.to_ne_bytes();
        }
    }

    #[inline(always)]
    fn xor(self, a: [u64; WORDS], b: [u64; WORDS]) -> [u64; WORDS] {
        [a[0] ^ b[0], a[1] ^ b[1], a[2] ^ b[2], a[3] ^ b[3]]
    }

    #[inline(always)]
    fn or(self, a: [u64; WORDS], b: [u64; WORDS]) -> [u64; WORDS] {
        [a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3]]
    }

    #[inline(always)]
    fn is_zero(self, vector: [u64; WORDS]) -> bool {
        vector == [0; WORDS]
    }

    #[inline(always)]
    fn double(self, vector: [u64; WORDS]) -> [u64; WORDS] {
        vector.map(double)
    }

    #[inline(always)]
    fn split(self, vector: [u64; WORDS]) -> [u64; WORDS] {
        vector
    }

    #[inline(always)]
    fn factor(self, coefficient: u8) -> u8 {
        coefficient
    }

    #[inline(always)]
    fn times(self, mut shifted: [u64; WORDS], coefficient: u8) -> [u64; WORDS] {
        let mut product = [0; WORDS];
        for bit in 0..8 {
            let mask = 0u64.wrapping_sub(u64::from(coefficient >> bit & 1));
            for (sum, word) in product.iter_mut().zip(&mut shifted) {
                *sum ^= *word & mask;
                *word = double(*word);
            }
        }
        product
    }
}

impl Ops for Scalar {
    fn name(&self) -> &'static str {
        "scalar"
    }

    fn combine(&self, map: &Map<'_>, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        generic::combine::<_, false>(*self, map, sources, outputs);
    }

    fn update(
        &self,
        coefficients: &[u8],
        source: &[u8],
        bases: Option<&[&[u8]]>,
        outputs: &mut [&mut [u8]],
    ) {
        generic::update(*self, coefficients, source, bases, outputs);
    }

    fn consistent(&self, map: &Map<'_>, sources: &[&[u8]], stored: &[&[u8]]) -> bool {
        generic::consistent::<_, false>(*self, map, sources, stored)
    }
}
