//! AVX-512 with GFNI: 64 bytes, products by one VGF2P8AFFINEQB, three-way XOR by VPTERNLOG.
//!
//! The CPUs that have AVX-512 but no GFNI (2017 to 2019) run `avx2` here: on those, 512-bit
//! shuffles lower the clock, and a drive array does not outrun 256 bits. A source without
//! coefficients is added by 256 bits too: in the caches both are as fast, from memory 512 bits are
//! about a tenth slower on a Zen 4, in runs of one, two and four vectors, and with prefetches more.

use std::arch::x86_64::*;

use super::gfni::Avx2Gfni;
use super::{ops, past_caches};
use crate::generic::Isa;
use crate::gf;
use crate::ops::Ops;

/// Proof that the CPU has AVX-512 (F, BW), GFNI, and so AVX2.
#[derive(Clone, Copy)]
pub(super) struct Avx512Gfni(());

impl Avx512Gfni {
    pub(super) fn detect() -> Option<&'static dyn Ops> {
        let found = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("gfni")
            && is_x86_feature_detected!("avx2");
        found.then_some(&Avx512Gfni(()) as &dyn Ops)
    }
}

ops!(Avx512Gfni, "avx512-gfni", "avx512f,avx512bw,gfni");

const DOUBLE: i64 = gf::affine(2).cast_signed();
const QUADRUPLE: i64 = gf::affine(4).cast_signed();

impl Isa for Avx512Gfni {
    type Vector = __m512i;
    type Split = __m512i;
    /// The bit matrix, in every 64-bit lane.
    type Factor = __m512i;
    const WIDTH: usize = 64;
    const REGISTERS: usize = 32;

    #[inline(always)]
    fn zero(self) -> __m512i {
        // SAFETY: the token proves AVX-512 and GFNI.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn load(self, from: &[u8]) -> __m512i {
        let from = &from[..Self::WIDTH];
        // SAFETY: the token proves AVX-512 and GFNI; `from` has 64 readable bytes.
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(self, vector: __m512i, to: &mut [u8]) {
        let to = &mut to[..Self::WIDTH];
        // SAFETY: the token proves AVX-512 and GFNI; `to` has 64 writable bytes.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), vector) }
    }

    #[inline(always)]
    fn plain_update(self) -> Option<&'static dyn Ops> {
        Some(Avx2Gfni::beside(self))
    }

    past_caches!(__m512i, _mm512_stream_si512);

    #[inline(always)]
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the token proves AVX-512 and GFNI.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the token proves AVX-512 and GFNI.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn is_zero(self, vector: __m512i) -> bool {
        // SAFETY: the token proves AVX-512 and GFNI.
        unsafe { _mm512_test_epi64_mask(vector, vector) == 0 }
    }

    #[inline(always)]
    fn double(self, vector: __m512i) -> __m512i {
        // SAFETY: the token proves AVX-512 and GFNI.
        unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(vector, _mm512_set1_epi64(DOUBLE)) }
    }

    #[inline(always)]
    fn quadruple(self, vector: __m512i) -> __m512i {
        // SAFETY: the token proves AVX-512 and GFNI.
        unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(vector, _mm512_set1_epi64(QUADRUPLE)) }
    }

    #[inline(always)]
    fn split(self, vector: __m512i) -> __m512i {
        vector
    }

    #[inline(always)]
    fn factor(self, coefficient: u8) -> __m512i {
        // SAFETY: the token proves AVX-512 and GFNI.
        unsafe { _mm512_set1_epi64(gf::AFFINE[usize::from(coefficient)].cast_signed()) }
    }

    #[inline(always)]
    fn times(self, split: __m512i, factor: __m512i) -> __m512i {
        // SAFETY: the token proves AVX-512 and GFNI.
        unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(split, factor) }
    }
}
