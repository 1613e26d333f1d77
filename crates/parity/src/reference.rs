//! The byte-at-a-time reference that every kernel is measured against.
//!
//! It shares nothing with the kernels but the code's coefficients and [`gf::mul`]: no tables, no
//! shapes, and a solver of its own for lost columns (elimination over all columns, for each
//! byte position). For tests: slow, and it allocates.

use crate::code::Code;
use crate::gf;

/// Parity row `row` of the data, by the definition.
///
/// # Panics
/// Where the slices' lengths differ or their number is not k.
#[must_use]
pub fn parity_row(code: &Code, row: usize, data: &[&[u8]]) -> Vec<u8> {
    assert_eq!(data.len(), code.k());
    let mut parity = vec![0; data[0].len()];
    for (column, bytes) in data.iter().enumerate() {
        assert_eq!(bytes.len(), parity.len());
        for (sum, &byte) in parity.iter_mut().zip(*bytes) {
            *sum ^= gf::mul(code.coefficient(row, column), byte);
        }
    }
    parity
}

/// All k + m columns, from those present: `columns[c]` is `None` where column c is lost. Solves the
/// equations of all parity rows that are present for the lost data columns.
///
/// `None` where the equations do not determine them.
///
/// # Panics
/// Where the slices' lengths differ or their number is not k + m.
#[must_use]
pub fn reconstruct(code: &Code, columns: &[Option<&[u8]>]) -> Option<Vec<Vec<u8>>> {
    assert_eq!(columns.len(), code.k() + code.m());
    let length = columns.iter().flatten().next()?.len();
    let lost: Vec<usize> = (0..code.k())
        .filter(|&column| columns[column].is_none())
        .collect();
    // One equation per parity that is present: coefficients of the lost, and a right side of bytes.
    let mut equations: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for row in 0..code.m() {
        let Some(stored) = columns[code.k() + row] else {
            continue;
        };
        let mut right = stored.to_vec();
        for (column, bytes) in columns[..code.k()].iter().enumerate() {
            if let Some(bytes) = bytes {
                add_product(&mut right, code.coefficient(row, column), bytes);
            }
        }
        equations.push((
            lost.iter().map(|&c| code.coefficient(row, c)).collect(),
            right,
        ));
    }
    for pivot in 0..lost.len() {
        let found = (pivot..equations.len()).find(|&row| equations[row].0[pivot] != 0)?;
        equations.swap(pivot, found);
        let scale = gf::inverse(equations[pivot].0[pivot]);
        let (mut left, mut right) = equations[pivot].clone();
        for entry in left.iter_mut().chain(&mut right) {
            *entry = gf::mul(*entry, scale);
        }
        equations[pivot] = (left.clone(), right.clone());
        for (row, equation) in equations.iter_mut().enumerate() {
            let factor = equation.0[pivot];
            if row != pivot {
                add_product(&mut equation.0, factor, &left);
                add_product(&mut equation.1, factor, &right);
            }
        }
    }
    let mut data: Vec<Vec<u8>> = Vec::new();
    for (column, bytes) in columns[..code.k()].iter().enumerate() {
        let solved = lost
            .iter()
            .position(|&c| c == column)
            .map(|n| equations[n].1.clone());
        data.push(solved.or_else(|| bytes.map(<[u8]>::to_vec))?);
    }
    assert!(data.iter().all(|column| column.len() == length));
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let parities: Vec<Vec<u8>> = (0..code.m())
        .map(|row| parity_row(code, row, &slices))
        .collect();
    Some(data.into_iter().chain(parities).collect())
}

fn add_product(sum: &mut [u8], factor: u8, bytes: &[u8]) {
    assert_eq!(sum.len(), bytes.len());
    for (sum, &byte) in sum.iter_mut().zip(bytes) {
        *sum ^= gf::mul(factor, byte);
    }
}
