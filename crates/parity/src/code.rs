//! [`Code`]: k data columns, m parity rows, and what may be asked of them.
//!
//! Invariants: k ≥ 1 and k + m ≤ [`MAX_COLUMNS`], checked once, when a code is made; its
//! coefficients are those of `coefficients`, for ever; row 0 is all ones. Slices of unequal length
//! and rows that do not exist are programmers' errors and assert. Absent: reconstruction
//! (`decoder`), arithmetic.

use std::error::Error;
use std::fmt;

use crate::coefficients;
use crate::decoder::Decoder;
use crate::dispatch;
use crate::locate::Locator;
use crate::ops::{Heat, Map, Shape};

/// The most columns, data and parity together, that a code has.
pub const MAX_COLUMNS: usize = 64;

/// The most parity rows of a code that is not a mirror.
pub const MAX_PARITIES: usize = 32;

/// Why a code or a decoder cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeError {
    /// A code needs at least one data column.
    NoData,
    /// More than [`MAX_PARITIES`] parity rows.
    TooManyParities {
        /// Rows asked for.
        m: usize,
    },
    /// More than [`MAX_COLUMNS`] columns.
    TooManyColumns {
        /// Columns asked for, data and parity together.
        columns: usize,
    },
    /// A mirror has 2 to [`MAX_COLUMNS`] copies.
    Copies {
        /// Copies asked for.
        copies: usize,
    },
    /// Fewer columns are available than the code has data columns: more are lost than it survives.
    TooFewAvailable {
        /// Columns needed: k.
        needed: usize,
        /// Different columns available.
        available: usize,
    },
    /// A column was named that the code does not have.
    NoSuchColumn {
        /// Its number.
        column: usize,
    },
    /// A column was wanted twice.
    WantedTwice {
        /// Its number.
        column: usize,
    },
}

impl fmt::Display for CodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            CodeError::NoData => write!(f, "a code needs at least one data column"),
            CodeError::TooManyParities { m } => {
                write!(f, "{m} parity rows; a code has at most {MAX_PARITIES}")
            }
            CodeError::TooManyColumns { columns } => {
                write!(f, "{columns} columns; a code has at most {MAX_COLUMNS}")
            }
            CodeError::Copies { copies } => {
                write!(f, "{copies} copies; a mirror has 2 to {MAX_COLUMNS}")
            }
            CodeError::TooFewAvailable { needed, available } => {
                write!(
                    f,
                    "{available} columns are available and {needed} are needed"
                )
            }
            CodeError::NoSuchColumn { column } => write!(f, "the code has no column {column}"),
            CodeError::WantedTwice { column } => write!(f, "column {column} is wanted twice"),
        }
    }
}

impl Error for CodeError {}

/// A systematic code: `k` data columns, `m` parity rows, `parity[j] = Σ_i c_ji · data[i]`.
///
/// Columns are numbered: 0..k are data, k..k+m are the parity rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    k: usize,
    m: usize,
    /// Row by row, k coefficients each.
    coefficients: Vec<u8>,
    /// Whether every coefficient is 1.
    all_ones: bool,
}

impl Code {
    /// The code of `k` data columns and `m` parity rows: none for 0, XOR for 1, P+Q for 2, P+Q+R
    /// for 3, an extended Cauchy matrix that begins with P and Q from 4 on. Any `m` columns may be
    /// lost.
    ///
    /// # Errors
    /// Unless `k ≥ 1`, `m ≤` [`MAX_PARITIES`] and `k + m ≤` [`MAX_COLUMNS`].
    pub fn new(k: usize, m: usize) -> Result<Code, CodeError> {
        if k == 0 {
            return Err(CodeError::NoData);
        }
        if m > MAX_PARITIES {
            return Err(CodeError::TooManyParities { m });
        }
        if k > MAX_COLUMNS - m {
            return Err(CodeError::TooManyColumns {
                columns: k.saturating_add(m),
            });
        }
        let rows = (0..m).flat_map(|j| (0..k).map(move |i| coefficients::coefficient(m, j, i)));
        let coefficients: Vec<u8> = rows.collect();
        let all_ones = coefficients.iter().all(|&coefficient| coefficient == 1);
        Ok(Code {
            k,
            m,
            coefficients,
            all_ones,
        })
    }

    /// A mirror as a code: k = 1, m = `copies` − 1, every coefficient 1.
    ///
    /// # Errors
    /// [`CodeError::Copies`] unless `copies` is in 2..=[`MAX_COLUMNS`].
    pub fn mirror(copies: usize) -> Result<Code, CodeError> {
        if !(2..=MAX_COLUMNS).contains(&copies) {
            return Err(CodeError::Copies { copies });
        }
        let m = copies - 1;
        Ok(Code {
            k: 1,
            m,
            coefficients: vec![1; m],
            all_ones: true,
        })
    }

    /// Data columns.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Parity rows: how many columns may be lost.
    #[must_use]
    pub fn m(&self) -> usize {
        self.m
    }

    /// The coefficient of data column `column` (below k) in parity row `parity` (below m).
    ///
    /// # Panics
    /// Where there is no such row or column.
    #[must_use]
    pub fn coefficient(&self, parity: usize, column: usize) -> u8 {
        assert!(column < self.k, "data column {column} of {}", self.k);
        self.row(parity)[column]
    }

    /// The coefficients of one parity row.
    pub(crate) fn row(&self, parity: usize) -> &[u8] {
        assert!(parity < self.m, "parity row {parity} of {}", self.m);
        &self.coefficients[parity * self.k..][..self.k]
    }

    /// `parity[j] = Σ_i c_ji · data[i]` for every row: `data` has k slices, `parity` m, all of one
    /// length in bytes. What the parity slices held does not matter.
    pub fn generate(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        self.generate_with(Heat::Warm, data, parity);
    }

    /// As [`Code::generate`], for data of this heat.
    pub fn generate_with(&self, heat: Heat, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        self.generate_rows_with(heat, &ALL_ROWS[..self.m], data, parity);
    }

    /// As [`Code::generate`] for the rows named only: `outputs[n]` becomes parity row `rows[n]`.
    pub fn generate_rows(&self, rows: &[usize], data: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.generate_rows_with(Heat::Warm, rows, data, outputs);
    }

    /// As [`Code::generate_rows`], for data of this heat.
    pub fn generate_rows_with(
        &self,
        heat: Heat,
        rows: &[usize],
        data: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) {
        assert_eq!(data.len(), self.k, "as many slices of data as data columns");
        let mut of_rows: [&[u8]; MAX_COLUMNS] = [&[]; MAX_COLUMNS];
        let map = self.map(rows, &mut of_rows);
        dispatch::ops().combine_with(heat, &map, data, outputs);
    }

    /// `parity_row ^= c · delta`, c being the coefficient of data column `column` in row `parity`,
    /// and `delta` old XOR new data of that column. Both of one length in bytes.
    pub fn update(&self, parity: usize, column: usize, delta: &[u8], parity_row: &mut [u8]) {
        self.update_rows(&[parity], column, delta, &mut [parity_row]);
    }

    /// As [`Code::update`] for several rows in one pass over `delta`: `outputs[n] ^= c · delta`
    /// with the coefficient of row `rows[n]`.
    pub fn update_rows(
        &self,
        rows: &[usize],
        column: usize,
        delta: &[u8],
        outputs: &mut [&mut [u8]],
    ) {
        self.change_rows(rows, column, delta, None, outputs);
    }

    /// As [`Code::update_rows`], of copies: `outputs[n] = bases[n] ^ c · delta`, in one pass. What
    /// the outputs held does not matter.
    pub fn update_copies(
        &self,
        rows: &[usize],
        column: usize,
        delta: &[u8],
        bases: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) {
        self.change_rows(rows, column, delta, Some(bases), outputs);
    }

    fn change_rows(
        &self,
        rows: &[usize],
        column: usize,
        delta: &[u8],
        bases: Option<&[&[u8]]>,
        outputs: &mut [&mut [u8]],
    ) {
        let mut coefficients = [0; MAX_COLUMNS];
        let coefficients = &mut coefficients[..rows.len()];
        for (coefficient, &row) in coefficients.iter_mut().zip(rows) {
            *coefficient = self.coefficient(row, column);
        }
        dispatch::ops().update(coefficients, delta, bases, outputs);
    }

    /// Whether the stored parity is that of the data: every syndrome is zero. `data` has k slices,
    /// `parity` m (row 0 first), all of one length. Reads everything once, allocates nothing, and
    /// stops early at an inconsistency.
    #[must_use]
    pub fn check(&self, data: &[&[u8]], parity: &[&[u8]]) -> bool {
        self.check_with(Heat::Warm, data, parity)
    }

    /// As [`Code::check`], for data and parity of this heat.
    #[must_use]
    pub fn check_with(&self, heat: Heat, data: &[&[u8]], parity: &[&[u8]]) -> bool {
        self.check_rows_with(heat, &ALL_ROWS[..self.m], data, parity)
    }

    /// As [`Code::check`] for the rows named only: `stored[n]` is parity row `rows[n]`.
    #[must_use]
    pub fn check_rows(&self, rows: &[usize], data: &[&[u8]], stored: &[&[u8]]) -> bool {
        self.check_rows_with(Heat::Warm, rows, data, stored)
    }

    /// As [`Code::check_rows`], for data and parity of this heat.
    #[must_use]
    pub fn check_rows_with(
        &self,
        heat: Heat,
        rows: &[usize],
        data: &[&[u8]],
        stored: &[&[u8]],
    ) -> bool {
        assert_eq!(data.len(), self.k, "as many slices of data as data columns");
        let mut of_rows: [&[u8]; MAX_COLUMNS] = [&[]; MAX_COLUMNS];
        let map = self.map(rows, &mut of_rows);
        match heat {
            Heat::Warm => dispatch::ops().consistent(&map, data, stored),
            Heat::Cold => dispatch::ops().consistent_cold(&map, data, stored),
        }
    }

    /// How to compute the columns in `wanted` from k of those in `available` (or fewer, where that
    /// is enough). Data columns are taken before parities, low parities before high ones; so one
    /// lost data column is the XOR of the others and P. A column that is both wanted and taken is
    /// copied. Order and repetition in `available` do not matter.
    ///
    /// # Errors
    /// [`CodeError::TooFewAvailable`] where fewer than k different columns are available,
    /// [`CodeError::NoSuchColumn`], and [`CodeError::WantedTwice`].
    pub fn decoder(&self, available: &[usize], wanted: &[usize]) -> Result<Decoder, CodeError> {
        Decoder::new(self, available, wanted)
    }

    /// Names the columns that lie among those in `available`.
    ///
    /// # Errors
    /// As [`Code::decoder`].
    pub fn locator(&self, available: &[usize]) -> Result<Locator, CodeError> {
        Locator::new(self, available)
    }

    /// The map from data to the rows named; their coefficients go to `of_rows`.
    fn map<'m, 'c: 'm>(
        &'c self,
        rows: &[usize],
        of_rows: &'m mut [&'c [u8]; MAX_COLUMNS],
    ) -> Map<'m> {
        assert!(
            rows.len() <= MAX_COLUMNS,
            "more rows than a code has columns"
        );
        for (of_row, &row) in of_rows.iter_mut().zip(rows) {
            *of_row = self.row(row);
        }
        let shape = match rows {
            _ if self.all_ones => Shape::Ones,
            [0] => Shape::Ones,
            [0, 1] => Shape::Horner,
            [0, 1, 2] if self.m == 3 => Shape::Horner,
            [0, ..] => Shape::OnesFirst,
            _ => Shape::General,
        };
        Map {
            shape,
            rows: &of_rows[..rows.len()],
        }
    }
}

/// 0, 1, 2, …: the rows of any code, for callers that want them all.
const ALL_ROWS: [usize; MAX_COLUMNS] = {
    let mut rows = [0; MAX_COLUMNS];
    let mut row = 0;
    while row < MAX_COLUMNS {
        rows[row] = row;
        row += 1;
    }
    rows
};
