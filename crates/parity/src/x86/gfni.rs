//! AVX2 with GFNI: 32 bytes, products by one VGF2P8AFFINEQB with the coefficient's bit matrix.
//! (VGF2P8MULB multiplies modulo 0x11b, which is another field.)

use std::arch::x86_64::*;

use super::avx512::Avx512Gfni;
use super::{ops, past_caches};
use crate::generic::Isa;
use crate::gf;
use crate::ops::Ops;

/// Proof that the CPU has AVX2 and GFNI.
#[derive(Clone, Copy)]
pub(super) struct Avx2Gfni(());

impl Avx2Gfni {
    pub(super) fn detect() -> Option<&'static dyn Ops> {
        let found = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni");
        found.then_some(&Avx2Gfni(()) as &dyn Ops)
    }

    /// This kernel on a CPU that also has the wider one.
    pub(super) fn beside(_wider: Avx512Gfni) -> &'static dyn Ops {
        &Avx2Gfni(())
    }
}

ops!(Avx2Gfni, "avx2-gfni", "avx2,gfni");

const DOUBLE: i64 = gf::affine(2).cast_signed();
const QUADRUPLE: i64 = gf::affine(4).cast_signed();

impl Isa for Avx2Gfni {
    type Vector = __m256i;
    type Split = __m256i;
    /// The bit matrix, in every 64-bit lane.
    type Factor = __m256i;
    const WIDTH: usize = 32;
    const REGISTERS: usize = 16;

    #[inline(always)]
    fn zero(self) -> __m256i {
        // SAFETY: the token proves AVX2 and GFNI.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn load(self, from: &[u8]) -> __m256i {
        let from = &from[..Self::WIDTH];
        // SAFETY: the token proves AVX2 and GFNI; `from` has 32 readable bytes.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, vector: __m256i, to: &mut [u8]) {
        let to = &mut to[..Self::WIDTH];
        // SAFETY: the token proves AVX2 and GFNI; `to` has 32 writable bytes.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), vector) }
    }

    past_caches!(__m256i, _mm256_stream_si256);

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the token proves AVX2 and GFNI.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the token proves AVX2 and GFNI.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn is_zero(self, vector: __m256i) -> bool {
        // SAFETY: the token proves AVX2 and GFNI.
        unsafe { _mm256_testz_si256(vector, vector) == 1 }
    }

    #[inline(always)]
    fn double(self, vector: __m256i) -> __m256i {
        // SAFETY: the token proves AVX2 and GFNI.
        unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(vector, _mm256_set1_epi64x(DOUBLE)) }
    }

    #[inline(always)]
    fn quadruple(self, vector: __m256i) -> __m256i {
        // SAFETY: the token proves AVX2 and GFNI.
        unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(vector, _mm256_set1_epi64x(QUADRUPLE)) }
    }

    #[inline(always)]
    fn split(self, vector: __m256i) -> __m256i {
        vector
    }

    #[inline(always)]
    fn factor(self, coefficient: u8) -> __m256i {
        // SAFETY: the token proves AVX2 and GFNI.
        unsafe { _mm256_set1_epi64x(gf::AFFINE[usize::from(coefficient)].cast_signed()) }
    }

    #[inline(always)]
    fn times(self, split: __m256i, factor: __m256i) -> __m256i {
        // SAFETY: the token proves AVX2 and GFNI.
        unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(split, factor) }
    }
}
