//! Parity arithmetic over GF(2^8): generate, update (in place or of copies), reconstruct and check.
//!
//! A [`Code`] is `k` data columns and `m` parity rows, `parity[j] = Σ_i c_ji · data[i]`, taken byte
//! by byte over the field of [`gf`]. A [`Decoder`] is the inverse question: which of the columns
//! that are left give back those that are wanted, and with which coefficients. A [`Locator`] names
//! the columns that lie, where there is redundancy enough to tell.
//!
//! | m | code | coefficients |
//! |---|---|---|
//! | 0 | none (RAID 0) | |
//! | 1 | XOR (RAID 5) | 1 |
//! | 2 | P+Q (RAID 6) | 1, 2^i |
//! | 3 | P+Q+R | 1, 2^i, 4^i |
//! | 4..=32 | N+M | an extended Cauchy matrix that begins with P and Q |
//! | 1..=63, k = 1 | mirror | 1 |
//!
//! How a request travels: [`Code`] or [`Decoder`] names coefficients and their shape
//! (`ops::Map`); [`dispatch`] picks an instruction set; one generic loop per shape (`generic`) runs
//! with that set's vectors. Checks run through the very loops that generate, so they are as fast.
//! Where a caller says that data is cold ([`Heat`]), the same loops prefetch sources and store past
//! the caches.
//!
//! Invariants: every instruction set gives the same bytes as [`mod@reference`] (the battery in
//! `tests/` says so); outputs are never read before they are written unless the operation is an
//! update; slices need no alignment and may have any length; nothing on these paths allocates,
//! apart from building a `Code` or a `Decoder`. `unsafe` lives in the folders of the
//! instruction sets and nowhere else.
//!
//! Deliberately absent: threads, files, strips and slots (the engine knows those), Galois fields of
//! other sizes, and a choice of kernel by timing them at start (a fixed order is reproducible).
//!
//! ```
//! # fn main() -> Result<(), strake_parity::CodeError> {
//! let code = strake_parity::Code::new(3, 2)?;
//! let data: [&[u8]; 3] = [b"some", b"data", b"here"];
//! let (mut p, mut q) = ([0; 4], [0; 4]);
//! code.generate(&data, &mut [&mut p, &mut q]);
//! assert!(code.check(&data, &[&p, &q]));
//!
//! // Columns 0 and 2 are lost; 1, P (3) and Q (4) are left.
//! let decoder = code.decoder(&[1, 3, 4], &[0, 2])?;
//! assert_eq!(decoder.sources(), [1, 3, 4]);
//! let (mut first, mut third) = ([0; 4], [0; 4]);
//! decoder.decode(&[data[1], &p, &q], &mut [&mut first, &mut third]);
//! assert_eq!((&first, &third), (b"some", b"here"));
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

mod code;
mod coefficients;
mod decoder;
pub mod dispatch;
mod generic;
pub mod gf;
mod locate;
mod ops;
pub mod reference;
mod scalar;

#[cfg(target_arch = "aarch64")]
#[expect(unsafe_code, reason = "intrinsics")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "intrinsics")]
mod x86;

pub use code::{Code, CodeError, MAX_COLUMNS, MAX_PARITIES};
pub use decoder::Decoder;
pub use locate::{Locator, Verdict};
pub use ops::Heat;

use ops::Map;

/// `out ^= a`, byte by byte. Both of the same length.
pub fn xor_into(out: &mut [u8], a: &[u8]) {
    dispatch::ops().update(&[1], a, None, &mut [out]);
}

/// `out = a ^ b`, byte by byte. All of the same length; what `out` held does not matter.
pub fn xor(out: &mut [u8], a: &[u8], b: &[u8]) {
    dispatch::ops().combine(&Map::ones(&[&[1, 1]]), &[a, b], &mut [out]);
}

/// Whether every byte is zero. True for an empty slice.
pub fn is_zero(bytes: &[u8]) -> bool {
    dispatch::ops().consistent(&Map::ones(&[&[]]), &[], &[bytes])
}
