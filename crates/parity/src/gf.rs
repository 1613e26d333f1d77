//! The field GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), generator 2.
//!
//! A byte is a polynomial over GF(2); addition is XOR, multiplication is taken modulo 0x11d. The
//! element 2 generates all 255 non-zero elements, so `2^i` differ for i in 0..255. That field and
//! generator are those of H. P. Anvin, "The mathematics of RAID-6" (2004), of Linux md and of
//! every P+Q implementation that wants to read its arrays.
//!
//! Why a fourth parity needs another matrix: with rows 1, 2^i, 4^i every square minor is a
//! Vandermonde determinant with distinct points (squaring is a bijection here), hence invertible.
//! With a row 8^i it is not: cubing is three-to-one as 3 divides 255, so 8^i repeats after 85
//! columns, and minors of rows that are not consecutive powers vanish far sooner. From the fourth
//! parity on `coefficients` uses a Cauchy matrix.
//!
//! Invariants: everything is computed at compile time from [`mul`], which multiplies by shifting
//! and adding and uses no table; the tables are what the vector kernels load. Absent: vectors.

/// The low byte of the field's polynomial: what is added when a doubling overflows.
pub const POLYNOMIAL: u8 = 0x1d;

/// `2·a`.
#[must_use]
pub const fn double(a: u8) -> u8 {
    (a << 1) ^ ((a >> 7) * POLYNOMIAL)
}

/// `a·b`, by shifting and adding.
#[must_use]
pub const fn mul(a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut shifted = a;
    let mut bit = 0;
    while bit < 8 {
        if b >> bit & 1 == 1 {
            product ^= shifted;
        }
        shifted = double(shifted);
        bit += 1;
    }
    product
}

/// `base^exponent`; `base^0` is 1.
#[must_use]
pub const fn pow(base: u8, exponent: usize) -> u8 {
    let mut result = 1;
    let mut square = base;
    let mut left = exponent;
    while left > 0 {
        if left & 1 == 1 {
            result = mul(result, square);
        }
        square = mul(square, square);
        left >>= 1;
    }
    result
}

/// `1/a`, which is `a^254`.
///
/// # Panics
/// On zero, which has no inverse.
#[must_use]
pub const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    pow(a, 254)
}

/// For each coefficient, the matrix over GF(2) that multiplies by it, as VGF2P8AFFINEQB wants it:
/// byte 7−r holds the row that makes bit r of the product, bit c of it the column of bit c.
#[cfg(any(test, target_arch = "x86_64"))]
pub(crate) static AFFINE: [u64; 256] = affine_table();

/// For each coefficient, its products with 0..16 and then with 16·(0..16): what a 16-byte shuffle
/// looks the two nibbles of a byte up in.
#[cfg(any(test, target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) static NIBBLES: [Nibbles; 256] = nibble_table();

/// The two 16-byte tables of one coefficient, aligned so that one cache line holds both.
#[cfg(any(test, target_arch = "x86_64", target_arch = "aarch64"))]
#[repr(C, align(32))]
#[derive(Clone, Copy)]
pub(crate) struct Nibbles {
    pub(crate) low: [u8; 16],
    pub(crate) high: [u8; 16],
}

/// The affine matrix of one coefficient; see [`AFFINE`].
#[cfg(any(test, target_arch = "x86_64"))]
pub(crate) const fn affine(coefficient: u8) -> u64 {
    let mut rows = [0u8; 8];
    let mut column = 0;
    while column < 8 {
        let product = mul(coefficient, 1 << column);
        let mut bit = 0;
        while bit < 8 {
            rows[bit] |= (product >> bit & 1) << column;
            bit += 1;
        }
        column += 1;
    }
    u64::from_be_bytes(rows)
}

#[cfg(any(test, target_arch = "x86_64"))]
const fn affine_table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        table[c] = affine(c as u8);
        c += 1;
    }
    table
}

#[cfg(any(test, target_arch = "x86_64", target_arch = "aarch64"))]
const fn nibble_table() -> [Nibbles; 256] {
    let mut table = [Nibbles {
        low: [0; 16],
        high: [0; 16],
    }; 256];
    let mut c = 0;
    while c < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            table[c].low[nibble] = mul(c as u8, nibble as u8);
            table[c].high[nibble] = mul(c as u8, (nibble as u8) << 4);
            nibble += 1;
        }
        c += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_generates_the_whole_field() {
        let mut seen = [false; 256];
        let mut element = 1;
        for exponent in 0..255 {
            assert_eq!(element, pow(2, exponent));
            assert!(!std::mem::replace(&mut seen[usize::from(element)], true));
            element = double(element);
        }
        assert_eq!(element, 1);
        assert!(!seen[0]);
    }

    #[test]
    fn multiplication_is_a_field() {
        for a in 0..=255u8 {
            assert_eq!(mul(a, 1), a);
            assert_eq!(mul(a, 2), double(a));
            if a != 0 {
                assert_eq!(mul(a, inverse(a)), 1);
            }
            for b in 0..=255u8 {
                assert_eq!(mul(a, b), mul(b, a));
                let c = a.wrapping_mul(31) ^ b;
                assert_eq!(mul(a, b ^ c), mul(a, b) ^ mul(a, c));
                assert_eq!(mul(a, mul(b, c)), mul(mul(a, b), c));
            }
        }
        // From the worked products of the polynomial: x^7·x = 0x1d, and x^8·x^8 = x^16.
        assert_eq!(mul(0x80, 2), 0x1d);
        assert_eq!(pow(2, 16), 0x4c);
    }

    #[test]
    fn tables_multiply() {
        for c in 0..=255u8 {
            let nibbles = &NIBBLES[usize::from(c)];
            let matrix = AFFINE[usize::from(c)].to_be_bytes();
            for x in 0..=255u8 {
                let expected = mul(c, x);
                let (low, high) = (usize::from(x & 15), usize::from(x >> 4));
                assert_eq!(nibbles.low[low] ^ nibbles.high[high], expected);
                let mut product = 0u8;
                for (bit, row) in matrix.iter().enumerate() {
                    product |= ((row & x).count_ones() as u8 & 1) << bit;
                }
                assert_eq!(product, expected);
            }
        }
    }
}
