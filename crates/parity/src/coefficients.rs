//! Which coefficients each code has. These numbers lie on drives: they never change.
//!
//! Up to three parities the rows are 1, 2^i and 4^i (see [`crate::gf`] for why any three columns
//! may be lost). From four on the matrix is an *extended Cauchy* matrix. Take a Cauchy matrix
//! `1/(x_j + y_i)` with distinct x and y, and put a row of ones above it, which is the row of `x =
//! ∞`: every square minor of the whole is still non-zero (a minor with the row of ones is the limit
//! of `x·(minor)`; J. Blömer et al., "An XOR-based erasure-resilient coding scheme", 1995, for the
//! plain case). Any row may be multiplied by a constant without harm.
//!
//! * Row 0 is `x = ∞`: all ones, so it is P.
//! * Row 1 shall be Q. With `x_1 = 0`, `1/(0 + y_i) = 2^i` asks for `y_i = 2^-i`.
//! * Row j ≥ 2 takes `x_j = 2^(j−1)`. The y use the exponents −63..=0, the x use 1..=30: distinct.
//!   `1/(2^(j−1) + 2^-i)`, scaled so that column 0 has a one, is
//!   `c_ji = 2^i · (1 + 2^(j−1)) / (1 + 2^(i+j−1))`.
//!
//! Invariants: every square minor of every matrix is invertible, so any m columns may be lost (the
//! battery proves it); a coefficient depends on (j, i) and on whether m ≥ 4, never on k, so a wider
//! array of the same m keeps the parity of the columns that it had, padded with zeros; column 0
//! is all ones, so a code of one data column is a mirror.

use crate::gf;

/// The coefficient of data column `column` in row `parity` of a code with `m` parity rows.
pub(crate) fn coefficient(m: usize, parity: usize, column: usize) -> u8 {
    match parity {
        0 => 1,
        1 => gf::pow(2, column),
        2 if m <= 3 => gf::pow(4, column),
        _ => {
            let numerator = gf::mul(gf::pow(2, column), 1 ^ gf::pow(2, parity - 1));
            gf::mul(numerator, gf::inverse(1 ^ gf::pow(2, column + parity - 1)))
        }
    }
}

/// Inverts the square matrix `rows` (each of the same length) by Gauss and Jordan.
/// `None` where it is singular.
pub(crate) fn invert(mut rows: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let order = rows.len();
    for (index, row) in rows.iter_mut().enumerate() {
        assert_eq!(row.len(), order, "only square matrices have inverses");
        row.resize(2 * order, 0);
        row[order + index] = 1;
    }
    for pivot in 0..order {
        let found = (pivot..order).find(|&row| rows[row][pivot] != 0)?;
        rows.swap(pivot, found);
        let scale = gf::inverse(rows[pivot][pivot]);
        for entry in &mut rows[pivot] {
            *entry = gf::mul(*entry, scale);
        }
        let pivot_row = rows[pivot].clone();
        for (index, row) in rows.iter_mut().enumerate() {
            let factor = row[pivot];
            if index != pivot && factor != 0 {
                for (entry, &above) in row.iter_mut().zip(&pivot_row) {
                    *entry ^= gf::mul(factor, above);
                }
            }
        }
    }
    Some(rows.into_iter().map(|row| row[order..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_times_its_matrix_is_the_identity() {
        let matrix: Vec<Vec<u8>> = (0..7)
            .map(|row| (0..7).map(|column| coefficient(7, row, column)).collect())
            .collect();
        let inverse = invert(matrix.clone()).expect("the minors of the code are invertible");
        for (row, entries) in inverse.iter().enumerate() {
            for column in 0..inverse.len() {
                let products = entries
                    .iter()
                    .zip(&matrix)
                    .map(|(&entry, below)| gf::mul(entry, below[column]));
                let sum = products.fold(0, |sum, product| sum ^ product);
                assert_eq!(sum, u8::from(row == column));
            }
        }
        assert_eq!(invert(vec![vec![1, 2], vec![2, 4]]), None);
    }
}
