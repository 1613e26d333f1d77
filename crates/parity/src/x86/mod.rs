//! The kernels of x86-64, and how one comes to be callable.
//!
//! Each file has a token type with one constructor, `detect`, which asks the CPU. The token is what
//! `generic` computes with and what `dispatch` calls, so nothing here can run without the
//! instructions being there. SAFETY of every intrinsic that touches no memory rests on that token;
//! loads and stores also rest on a slice that was just cut to the vector's width.
//!
//! Absent: loops (`generic` has them), aligned accesses (callers' slices may lie anywhere; only
//! stores past the caches need it, and look first), and PREFETCHNTA (a third of the rate of
//! PREFETCHT0 where it was measured, a Xeon).

mod avx2;
mod avx512;
mod gfni;
mod ssse3;

use crate::ops::Ops;

/// Implements [`Ops`] for a token type: `generic`'s loops compiled with the token's CPU features.
macro_rules! ops {
    ($isa:ident, $name:literal, $features:literal) => {
        impl $crate::ops::Ops for $isa {
            fn name(&self) -> &'static str {
                $name
            }

            fn combine(
                &self,
                map: &$crate::ops::Map<'_>,
                sources: &[&[u8]],
                outputs: &mut [&mut [u8]],
            ) {
                #[target_feature(enable = $features)]
                fn with_features(
                    isa: $isa,
                    map: &$crate::ops::Map<'_>,
                    sources: &[&[u8]],
                    outputs: &mut [&mut [u8]],
                ) {
                    $crate::generic::combine::<_, false>(isa, map, sources, outputs);
                }
                // SAFETY: the token exists only where detection found these features.
                unsafe { with_features(*self, map, sources, outputs) }
            }

            fn update(
                &self,
                coefficients: &[u8],
                source: &[u8],
                bases: Option<&[&[u8]]>,
                outputs: &mut [&mut [u8]],
            ) {
                #[target_feature(enable = $features)]
                fn with_features(
                    isa: $isa,
                    coefficients: &[u8],
                    source: &[u8],
                    bases: Option<&[&[u8]]>,
                    outputs: &mut [&mut [u8]],
                ) {
                    $crate::generic::update(isa, coefficients, source, bases, outputs);
                }
                if let Some(other) = $crate::generic::Isa::plain_update(*self)
                    && coefficients.iter().all(|&coefficient| coefficient == 1)
                {
                    return other.update(coefficients, source, bases, outputs);
                }
                // SAFETY: the token exists only where detection found these features.
                unsafe { with_features(*self, coefficients, source, bases, outputs) }
            }

            fn consistent(
                &self,
                map: &$crate::ops::Map<'_>,
                sources: &[&[u8]],
                stored: &[&[u8]],
            ) -> bool {
                #[target_feature(enable = $features)]
                fn with_features(
                    isa: $isa,
                    map: &$crate::ops::Map<'_>,
                    sources: &[&[u8]],
                    stored: &[&[u8]],
                ) -> bool {
                    $crate::generic::consistent::<_, false>(isa, map, sources, stored)
                }
                // SAFETY: the token exists only where detection found these features.
                unsafe { with_features(*self, map, sources, stored) }
            }

            fn combine_cold(
                &self,
                map: &$crate::ops::Map<'_>,
                sources: &[&[u8]],
                outputs: &mut [&mut [u8]],
            ) {
                #[target_feature(enable = $features)]
                fn with_features(
                    isa: $isa,
                    map: &$crate::ops::Map<'_>,
                    sources: &[&[u8]],
                    outputs: &mut [&mut [u8]],
                ) {
                    $crate::generic::combine::<_, true>(isa, map, sources, outputs);
                }
                // SAFETY: the token exists only where detection found these features.
                unsafe { with_features(*self, map, sources, outputs) }
            }

            fn consistent_cold(
                &self,
                map: &$crate::ops::Map<'_>,
                sources: &[&[u8]],
                stored: &[&[u8]],
            ) -> bool {
                #[target_feature(enable = $features)]
                fn with_features(
                    isa: $isa,
                    map: &$crate::ops::Map<'_>,
                    sources: &[&[u8]],
                    stored: &[&[u8]],
                ) -> bool {
                    $crate::generic::consistent::<_, true>(isa, map, sources, stored)
                }
                // SAFETY: the token exists only where detection found these features.
                unsafe { with_features(*self, map, sources, stored) }
            }
        }
    };
}

/// The methods of [`crate::generic::Isa`] for cold data: the vector's non-temporal store, and what
/// SSE has for all.
macro_rules! past_caches {
    ($vector:ty, $stream:ident) => {
        #[inline(always)]
        fn stream(self, vector: $vector, to: &mut [u8]) {
            let to = &mut to[..Self::WIDTH];
            let at: *mut $vector = to.as_mut_ptr().cast();
            if at.is_aligned() {
                // SAFETY: the token proves the instructions; `to` has the vector's bytes, writable
                // and aligned. The caller keeps away from them until the fence.
                unsafe { $stream(at, vector) }
            } else {
                self.store(vector, to);
            }
        }

        #[inline(always)]
        fn fence(self) {
            // SAFETY: every x86-64 has SSE.
            unsafe { _mm_sfence() }
        }

        #[inline(always)]
        fn prefetch(self, line: &[u8]) {
            // SAFETY: every x86-64 has SSE; a prefetch touches nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) }
        }
    };
}
use ops;
use past_caches;

/// The kernels that this CPU has, fastest first.
pub(crate) fn detect() -> impl Iterator<Item = &'static dyn Ops> {
    [
        avx512::Avx512Gfni::detect(),
        gfni::Avx2Gfni::detect(),
        avx2::Avx2::detect(),
        ssse3::Ssse3::detect(),
    ]
    .into_iter()
    .flatten()
}
