//! AVX2 without GFNI: 32 bytes, products by two nibble look-ups, as in `ssse3`.

use std::arch::x86_64::*;

use super::{ops, past_caches};
use crate::generic::Isa;
use crate::gf::{NIBBLES, POLYNOMIAL};
use crate::ops::Ops;

/// Proof that the CPU has AVX2.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<&'static dyn Ops> {
        is_x86_feature_detected!("avx2").then_some(&Avx2(()) as &dyn Ops)
    }
}

ops!(Avx2, "avx2", "avx2");

impl Isa for Avx2 {
    type Vector = __m256i;
    /// Low nibbles, high nibbles.
    type Split = (__m256i, __m256i);
    /// The tables of the low and of the high nibble, each in both lanes.
    type Factor = (__m256i, __m256i);
    const WIDTH: usize = 32;
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn zero(self) -> __m256i {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn load(self, from: &[u8]) -> __m256i {
        let from = &from[..Self::WIDTH];
        // SAFETY: the token proves AVX2; `from` has 32 readable bytes.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, vector: __m256i, to: &mut [u8]) {
        let to = &mut to[..Self::WIDTH];
        // SAFETY: the token proves AVX2; `to` has 32 writable bytes.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), vector) }
    }

    past_caches!(__m256i, _mm256_stream_si256);

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn is_zero(self, vector: __m256i) -> bool {
        // SAFETY: the token proves AVX2.
        unsafe { _mm256_testz_si256(vector, vector) == 1 }
    }

    #[inline(always)]
    fn double(self, vector: __m256i) -> __m256i {
        // SAFETY: the token proves AVX2.
        unsafe {
            let carries = _mm256_cmpgt_epi8(_mm256_setzero_si256(), vector);
            let reduce = _mm256_and_si256(carries, _mm256_set1_epi8(POLYNOMIAL as i8));
            _mm256_xor_si256(_mm256_add_epi8(vector, vector), reduce)
        }
    }

    #[inline(always)]
    fn split(self, vector: __m256i) -> (__m256i, __m256i) {
        // SAFETY: the token proves AVX2.
        unsafe {
            let mask = _mm256_set1_epi8(0x0f);
            let high = _mm256_srli_epi64::<4>(vector);
            (_mm256_and_si256(vector, mask), _mm256_and_si256(high, mask))
        }
    }

    #[inline(always)]
    fn factor(self, coefficient: u8) -> (__m256i, __m256i) {
        let tables = &NIBBLES[usize::from(coefficient)];
        // SAFETY: the token proves AVX2; each table has 16 readable bytes.
        unsafe {
            (
                _mm256_broadcastsi128_si256(_mm_loadu_si128(tables.low.as_ptr().cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(tables.high.as_ptr().cast())),
            )
        }
    }

    #[inline(always)]
    fn times(self, (low, high): (__m256i, __m256i), factor: (__m256i, __m256i)) -> __m256i {
        // SAFETY: the token proves AVX2.
        unsafe {
            _mm256_xor_si256(
                _mm256_shuffle_epi8(factor.0, low),
                _mm256_shuffle_epi8(factor.1, high),
            )
        }
    }
}
