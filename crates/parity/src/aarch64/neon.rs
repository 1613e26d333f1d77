//! NEON: 16 bytes, products by two nibble look-ups (TBL), as in `x86::ssse3`.

use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

use crate::generic::{self, Isa};
use crate::gf::{NIBBLES, POLYNOMIAL};
use crate::ops::{Map, Ops};

/// Proof that the CPU has NEON.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

impl Neon {
    pub(super) fn detect() -> Option<&'static dyn Ops> {
        is_aarch64_feature_detected!("neon").then_some(&Neon(()) as &dyn Ops)
    }
}

impl Ops for Neon {
    fn name(&self) -> &'static str {
        "neon"
    }

    fn combine(&self, map: &Map<'_>, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        #[target_feature(enable = "neon")]
        fn with_features(isa: Neon, map: &Map<'_>, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
            generic::combine::<_, false>(isa, map, sources, outputs);
        }
        // SAFETY: the token exists only where detection found NEON.
        unsafe { with_features(*self, map, sources, outputs) }
    }

    fn update(
        &self,
        coefficients: &[u8],
        source: &[u8],
        bases: Option<&[&[u8]]>,
        outputs: &mut [&mut [u8]],
    ) {
        #[target_feature(enable = "neon")]
        fn with_features(
            isa: Neon,
            coefficients: &[u8],
            source: &[u8],
            bases: Option<&[&[u8]]>,
            outputs: &mut [&mut [u8]],
        ) {
            generic::update(isa, coefficients, source, bases, outputs);
        }
        // SAFETY: the token exists only where detection found NEON.
        unsafe { with_features(*self, coefficients, source, bases, outputs) }
    }

    fn consistent(&self, map: &Map<'_>, sources: &[&[u8]], stored: &[&[u8]]) -> bool {
        #[target_feature(enable = "neon")]
        fn with_features(isa: Neon, map: &Map<'_>, sources: &[&[u8]], stored: &[&[u8]]) -> bool {
            generic::consistent::<_, false>(isa, map, sources, stored)
        }
        // SAFETY: the token exists only where detection found NEON.
        unsafe { with_features(*self, map, sources, stored) }
    }
}

impl Isa for Neon {
    type Vector = uint8x16_t;
    /// Low nibbles, high nibbles.
    type Split = (uint8x16_t, uint8x16_t);
    /// The tables of the low and of the high nibble.
    type Factor = (uint8x16_t, uint8x16_t);
    const WIDTH: usize = 16;
    const REGISTERS: usize = 32;

    #[inline(always)]
    fn zero(self) -> uint8x16_t {
        // SAFETY: the token proves NEON.
        unsafe { vdupq_n_u8(0) }
    }

    #[inline(always)]
    fn load(self, from: &[u8]) -> uint8x16_t {
        let from = &from[..Self::WIDTH];
        // SAFETY: the token proves NEON; `from` has 16 readable bytes.
        unsafe { vld1q_u8(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, vector: uint8x16_t, to: &mut [u8]) {
        let to = &mut to[..Self::WIDTH];
        // SAFETY: the token proves NEON; `to` has 16 writable bytes.
        unsafe { vst1q_u8(to.as_mut_ptr(), vector) }
    }

    #[inline(always)]
    fn xor(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        // SAFETY: the token proves NEON.
        unsafe { veorq_u8(a, b) }
    }

    #[inline(always)]
    fn or(self, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        // SAFETY: the token proves NEON.
        unsafe { vorrq_u8(a, b) }
    }

    #[inline(always)]
    fn is_zero(self, vector: uint8x16_t) -> bool {
        // SAFETY: the token proves NEON.
        unsafe { vmaxvq_u8(vector) == 0 }
    }

    #[inline(always)]
    fn double(self, vector: uint8x16_t) -> uint8x16_t {
        // SAFETY: the token proves NEON.
        unsafe {
            let carries = vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(vector)));
            let reduce = vandq_u8(carries, vdupq_n_u8(POLYNOMIAL));
            veorq_u8(vshlq_n_u8::<1>(vector), reduce)
        }
    }

    #[inline(always)]
    fn split(self, vector: uint8x16_t) -> (uint8x16_t, uint8x16_t) {
        // SAFETY: the token proves NEON.
        unsafe { (vandq_u8(vector, vdupq_n_u8(0x0f)), vshrq_n_u8::<4>(vector)) }
    }

    #[inline(always)]
    fn factor(self, coefficient: u8) -> (uint8x16_t, uint8x16_t) {
        let tables = &NIBBLES[usize::from(coefficient)];
        (self.load(&tables.low), self.load(&tables.high))
    }

    #[inline(always)]
    fn times(
        self,
        (low, high): (uint8x16_t, uint8x16_t),
        factor: (uint8x16_t, uint8x16_t),
    ) -> uint8x16_t {
        // SAFETY: the token proves NEON.
        unsafe { veorq_u8(vqtbl1q_u8(factor.0, low), vqtbl1q_u8(factor.1, high)) }
    }
}
