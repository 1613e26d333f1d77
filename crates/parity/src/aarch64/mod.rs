//! The kernel of AArch64, and how it comes to be callable: as in `x86`, a token type that only
//! detection makes. Absent: SVE, since its vector length is not known when this is compiled.

mod neon;

use crate::ops::Ops;

/// The kernels that this CPU has, fastest first.
pub(crate) fn detect() -> impl Iterator<Item = &'static dyn Ops> {
    neon::Neon::detect().into_iter()
}
