//! SSSE3: 16 bytes, products by two nibble look-ups (PSHUFB). What every x86-64 of the last
//! fifteen years has. The scheme is that of J. Plank, K. Greenan and E. Miller, "Screaming fast
//! Galois field arithmetic using Intel SIMD instructions" (2013).

use std::arch::x86_64::*;

use super::{ops, past_caches};
use crate::generic::Isa;
use crate::gf::{NIBBLES, POLYNOMIAL};
use crate::ops::Ops;

/// Proof that the CPU has SSSE3.
#[derive(Clone, Copy)]
pub(super) struct Ssse3(());

impl Ssse3 {
    pub(super) fn detect() -> Option<&'static dyn Ops> {
        is_x86_feature_detected!("ssse3").then_some(&Ssse3(()) as &dyn Ops)
    }
}

ops!(Ssse3, "ssse3", "ssse3");

impl Isa for Ssse3 {
    type Vector = __m128i;
    /// Low nibbles, high nibbles.
    type Split = (__m128i, __m128i);
    /// The tables of the low and of the high nibble.
    type Factor = (__m128i, __m128i);
    const WIDTH: usize = 16;
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn zero(self) -> __m128i {
        // SAFETY: the token proves SSSE3.
        unsafe { _mm_setzero_si128() }
    }

    #[inline(always)]
    fn load(self, from: &[u8]) -> __m128i {
        let from = &from[..Self::WIDTH];
        // SAFETY: the token proves SSSE3; `from` has 16 readable bytes.
        unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, vector: __m128i, to: &mut [u8]) {
        let to = &mut to[..Self::WIDTH];
        // SAFETY: the token proves SSSE3; `to` has 16 writable bytes.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), vector) }
    }

    past_caches!(__m128i, _mm_stream_si128);

    #[inline(always)]
    fn xor(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: the token proves SSSE3.
        unsafe { _mm_xor_si128(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: the token proves SSSE3.
        unsafe { _mm_or_si128(a, b) }
    }

    #[inline(always)]
    fn is_zero(self, vector: __m128i) -> bool {
        // SAFETY: the token proves SSSE3.
        unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(vector, _mm_setzero_si128())) == 0xffff }
    }

    #[inline(always)]
    fn double(self, vector: __m128i) -> __m128i {
        // SAFETY: the token proves SSSE3.
        unsafe {
            let carries = _mm_cmpgt_epi8(_mm_setzero_si128(), vector);
            let reduce = _mm_and_si128(carries, _mm_set1_epi8(POLYNOMIAL as i8));
            _mm_xor_si128(_mm_add_epi8(vector, vector), reduce)
        }
    }

    #[inline(always)]
    fn split(self, vector: __m128i) -> (__m128i, __m128i) {
        // SAFETY: the token proves SSSE3.
        unsafe {
            let mask = _mm_set1_epi8(0x0f);
            (
                _mm_and_si128(vector, mask),
                _mm_and_si128(_mm_srli_epi64::<4>(vector), mask),
            )
        }
    }

    #[inline(always)]
    fn factor(self, coefficient: u8) -> (__m128i, __m128i) {
        let tables = &NIBBLES[usize::from(coefficient)];
        (self.load(&tables.low), self.load(&tables.high))
    }

    #[inline(always)]
    fn times(self, (low, high): (__m128i, __m128i), factor: (__m128i, __m128i)) -> __m128i {
        // SAFETY: the token proves SSSE3.
        unsafe {
            _mm_xor_si128(
                _mm_shuffle_epi8(factor.0, low),
                _mm_shuffle_epi8(factor.1, high),
            )
        }
    }
}
