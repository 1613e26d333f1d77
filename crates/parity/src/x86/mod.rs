//! The kernels of x86-64, and how one comes to be callable.
//!
//! Each file has a token type whose only constructor is its `detect`, which asks the CPU. The token
//! is what `generic` computes with and what `dispatch` calls, so nothing here can run without the
//! instructions being there. SAFETY of every intrinsic that touches no memory rests on that token;
//! loads and stores also rest on a slice that was just cut to the vector's width.
//!
//! Absent: loops (`generic` has them) and aligned accesses (callers' slices may lie anywhere).

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
                goal: $crate::ops::Goal,
                sources: &[&[u8]],
                outputs: &mut [&mut [u8]],
            ) {
                #[target_feature(enable = $features)]
                fn with_features(
                    isa: $isa,
                    map: &$crate::ops::Map<'_>,
                    goal: $crate::ops::Goal,
                    sources: &[&[u8]],
                    outputs: &mut [&mut [u8]],
                ) {
                    $crate::generic::combine(isa, map, goal, sources, outputs);
                }
                // SAFETY: the token exists only where detection found these features.
                unsafe { with_features(*self, map, goal, sources, outputs) }
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
                    $crate::generic::consistent(isa, map, sources, stored)
                }
                // SAFETY: the token exists only where detection found these features.
                unsafe { with_features(*self, map, sources, stored) }
            }
        }
    };
}
use ops;

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
