//! [`Decoder`]: from the columns that are left to those that are wanted.
//!
//! Let E be the data columns that are not among the sources and T the parities that are; there are
//! as many. `Σ_{e∈E} c_te·D_e = P_t + Σ_{i∉E} c_ti·D_i` for t in T: a square system. Its matrix is
//! a minor of the code's and therefore invertible. Its inverse gives every D_e, and so every other
//! parity, as a combination of the sources; only a |T|×|T| matrix is inverted.
//!
//! Invariants: at most k sources, each with a coefficient that is not zero for some output; which
//! are taken depends on the sets named alone, not on their order. Absent: arithmetic on strips.

use crate::code::{Code, CodeError, MAX_COLUMNS};
use crate::coefficients;
use crate::dispatch;
use crate::gf;
use crate::ops::{Heat, Map, Shape};

/// A linear map from at most k source columns to the wanted ones. Made by [`Code::decoder`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoder {
    sources: Vec<usize>,
    wanted: Vec<usize>,
    /// One row per wanted column, one coefficient per source.
    coefficients: Vec<u8>,
    shape: Shape,
}

impl Decoder {
    pub(crate) fn new(
        code: &Code,
        available: &[usize],
        wanted: &[usize],
    ) -> Result<Decoder, CodeError> {
        let available = column_set(code, available.iter().copied())?.0;
        if let (_, Some(column)) = column_set(code, wanted.iter().copied())? {
            return Err(CodeError::WantedTwice { column });
        }
        let count = available.count_ones() as usize;
        if count < code.k() {
            return Err(CodeError::TooFewAvailable {
                needed: code.k(),
                available: count,
            });
        }
        let columns = 0..code.k() + code.m();
        // Ascending: data columns first, then the low parities.
        let taken: Vec<usize> = columns
            .filter(|&column| available >> column & 1 == 1)
            .take(code.k())
            .collect();
        let data = data_from_sources(code, &taken);
        let rows: Vec<Vec<u8>> = wanted
            .iter()
            .map(|&column| wanted_row(code, column, &taken, &data))
            .collect();

        let used: Vec<usize> = (0..taken.len())
            .filter(|&n| rows.iter().any(|row| row[n] != 0))
            .collect();
        let sources = used.iter().map(|&n| taken[n]).collect();
        let rows: Vec<Vec<u8>> = rows
            .iter()
            .map(|row| used.iter().map(|&n| row[n]).collect())
            .collect();
        let shape = shape_of(&rows);
        Ok(Decoder {
            sources,
            wanted: wanted.to_vec(),
            coefficients: rows.concat(),
            shape,
        })
    }

    /// The columns to read, in the order of `inputs`. Never more than k; columns that no output
    /// needs are left out.
    #[must_use]
    pub fn sources(&self) -> &[usize] {
        &self.sources
    }

    /// The columns to compute, in the order in which they were asked for.
    #[must_use]
    pub fn wanted(&self) -> &[usize] {
        &self.wanted
    }

    /// The coefficient of source `source` (an index into [`Decoder::sources`]) in output `output`.
    ///
    /// # Panics
    /// Where there is no such source or output.
    #[must_use]
    pub fn coefficient(&self, output: usize, source: usize) -> u8 {
        assert!(output < self.wanted.len() && source < self.sources.len());
        self.coefficients[output * self.sources.len() + source]
    }

    /// `outputs[n]` becomes column `wanted()[n]`; `inputs[n]` is column `sources()[n]`. All of one
    /// length in bytes. What the outputs held does not matter.
    pub fn decode(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.decode_with(Heat::Warm, inputs, outputs);
    }

    /// As [`Decoder::decode`], for inputs of this heat.
    pub fn decode_with(&self, heat: Heat, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert_eq!(
            inputs.len(),
            self.sources.len(),
            "as many inputs as sources"
        );
        let mut of_rows: [&[u8]; MAX_COLUMNS] = [&[]; MAX_COLUMNS];
        let rows = &mut of_rows[..self.wanted.len()];
        for (output, row) in rows.iter_mut().enumerate() {
            *row = &self.coefficients[output * self.sources.len()..][..self.sources.len()];
        }
        let map = Map {
            shape: self.shape,
            rows,
        };
        dispatch::ops().combine_with(heat, &map, inputs, outputs);
    }
}

/// A bit per column named, and a column that was named twice, if any.
fn column_set(
    code: &Code,
    columns: impl Iterator<Item = usize>,
) -> Result<(u64, Option<usize>), CodeError> {
    let mut set = 0u64;
    let mut repeated = None;
    for column in columns {
        if column >= code.k() + code.m() {
            return Err(CodeError::NoSuchColumn { column });
        }
        if set >> column & 1 == 1 {
            repeated = Some(column);
        }
        set |= 1 << column;
    }
    Ok((set, repeated))
}

/// For every data column, its coefficients over the k columns of `taken` (ascending).
fn data_from_sources(code: &Code, taken: &[usize]) -> Vec<Vec<u8>> {
    let k = code.k();
    let present = taken.iter().take_while(|&&column| column < k).count();
    let parities: Vec<usize> = taken[present..].iter().map(|&column| column - k).collect();
    let mut data = vec![vec![0; k]; k];
    for (n, &column) in taken[..present].iter().enumerate() {
        data[column][n] = 1;
    }
    let missing: Vec<usize> = (0..k)
        .filter(|column| !taken[..present].contains(column))
        .collect();
    let minor = parities
        .iter()
        .map(|&parity| {
            missing
                .iter()
                .map(|&column| code.coefficient(parity, column))
                .collect()
        })
        .collect();
    let inverse = coefficients::invert(minor).expect("every minor of a code is invertible");
    for (&column, factors) in missing.iter().zip(&inverse) {
        for (t, (&parity, &factor)) in parities.iter().zip(factors).enumerate() {
            data[column][present + t] = factor;
            for (n, &source) in taken[..present].iter().enumerate() {
                data[column][n] ^= gf::mul(factor, code.coefficient(parity, source));
            }
        }
    }
    data
}

/// The coefficients of any column over the k columns of `taken`.
fn wanted_row(code: &Code, column: usize, taken: &[usize], data: &[Vec<u8>]) -> Vec<u8> {
    if let Some(n) = taken.iter().position(|&source| source == column) {
        // A parity that is read anyway; through the data it would come out the same.
        let mut row = vec![0; taken.len()];
        row[n] = 1;
        return row;
    }
    let Some(parity) = column.checked_sub(code.k()) else {
        return data[column].clone();
    };
    let mut row = vec![0; taken.len()];
    for (of_column, &coefficient) in data.iter().zip(code.row(parity)) {
        for (sum, &entry) in row.iter_mut().zip(of_column) {
            *sum ^= gf::mul(coefficient, entry);
        }
    }
    row
}

/// The best shape that is true of these rows.
fn shape_of(rows: &[Vec<u8>]) -> Shape {
    let is_power_row = |base: u8, row: &[u8]| {
        row.iter()
            .enumerate()
            .all(|(column, &entry)| entry == gf::pow(base, column))
    };
    let ones = |row: &Vec<u8>| is_power_row(1, row);
    match rows {
        _ if rows.iter().all(ones) => Shape::Ones,
        [p, q] if ones(p) && is_power_row(2, q) => Shape::Horner,
        [p, q, r] if ones(p) && is_power_row(2, q) && is_power_row(4, r) => Shape::Horner,
        [first, ..] if ones(first) => Shape::OnesFirst,
        _ => Shape::General,
    }
}
