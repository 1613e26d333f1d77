//! [`Locator`]: which columns of a stripe lie.
//!
//! Of n columns present (n ≥ k), k are taken as they are and give the other r = n − k, as a
//! [`Decoder`] does; what is stored of those XOR what is given are the r *syndromes*. Columns that
//! are present form an MDS code of their own, of distance r + 1. With H the r × n matrix that takes
//! columns to syndromes, errors in the columns E, and nowhere else, have every byte's syndromes in
//! the span of H's columns E: E *explains* the syndromes. Whether it does is decided exactly, by
//! r − |E| linear checks that vanish on that span.
//!
//! What is named is right if at most r − 1 columns lie in the piece that is looked at:
//! * One column explains: any other set of at most r − 1 that does would differ from it by a
//!   codeword of weight at most r, and there is none: the error is the same.
//! * No column explains and exactly one pair does: of at most two liars these are the two, since
//!   every pair was tried. (From r = 4 on there can be only one; for r = 3 two pairs may fit, and
//!   then none is named.)
//!
//! Nothing more is tried, so with three or more liars nobody is named, or, if their errors
//! conspire, the wrong ones: r columns that all follow the same error look like one other column's.
//! That is why a caller looks at pieces as small as a write can be.
//!
//! Invariant: a set is named only where every byte of the piece fits it and no other set of its
//! size does. Deliberately absent: strips and members; mending (that is [`Decoder`]'s).

use crate::code::{Code, CodeError};
use crate::decoder::Decoder;
use crate::{gf, xor_into};

/// What the syndromes of a piece of a stripe tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All columns agree.
    Consistent,
    /// These columns lie (bit c is column c); the others agree.
    Lies(u64),
    /// They do not agree, and the wrong column cannot be located.
    Unclear,
}

/// Names the columns that lie among those that are present. Made by [`Code::locator`].
#[derive(Clone, Debug)]
pub struct Locator {
    /// What is taken → what is checked.
    decoder: Decoder,
    taken: Vec<usize>,
    checked: Vec<usize>,
    /// For each column present, its number and its r coefficients in the syndromes.
    columns: Vec<(usize, Vec<u8>)>,
}

impl Locator {
    pub(crate) fn new(code: &Code, available: &[usize]) -> Result<Locator, CodeError> {
        let mut present = available.to_vec();
        present.sort_unstable();
        present.dedup();
        if present.len() < code.k() {
            return Err(CodeError::TooFewAvailable {
                needed: code.k(),
                available: present.len(),
            });
        }
        let checked = present.split_off(code.k());
        let taken = present;
        let decoder = code.decoder(&taken, &checked)?;
        let of_taken = |&column: &usize| {
            let source = decoder.sources().iter().position(|&s| s == column);
            let coefficient = |row| source.map_or(0, |source| decoder.coefficient(row, source));
            (column, (0..checked.len()).map(coefficient).collect())
        };
        let of_checked = |(row, &column): (usize, &usize)| {
            let unit = (0..checked.len()).map(|r| u8::from(r == row)).collect();
            (column, unit)
        };
        let columns = taken
            .iter()
            .map(of_taken)
            .chain(checked.iter().enumerate().map(of_checked))
            .collect();
        Ok(Locator {
            decoder,
            taken,
            checked,
            columns,
        })
    }

    /// Syndromes that there are: columns present beyond k.
    #[must_use]
    pub fn syndromes(&self) -> usize {
        self.checked.len()
    }

    /// Computes the syndromes: `columns[c]` is column c, of which those present are looked at;
    /// `syndromes` are as many slices as [`Locator::syndromes`], all of one length in bytes. True
    /// if all are zero. What the outputs held does not matter.
    pub fn compute(&self, columns: &[Option<&[u8]>], syndromes: &mut [&mut [u8]]) -> bool {
        let present = |&c: &usize| columns[c].expect("the locator was made for this column");
        let inputs: Vec<&[u8]> = self.decoder.sources().iter().map(present).collect();
        self.decoder.decode(&inputs, syndromes);
        let mut zero = true;
        for (syndrome, column) in syndromes.iter_mut().zip(&self.checked) {
            xor_into(syndrome, present(column));
            zero &= crate::is_zero(syndrome);
        }
        zero
    }

    /// Locates the wrong columns in a piece of the stripe, of which these are the syndromes.
    #[must_use]
    pub fn locate(&self, syndromes: &[&[u8]]) -> Verdict {
        assert_eq!(syndromes.len(), self.checked.len(), "a slice for each");
        let wrong = |at: &usize| syndromes.iter().any(|s| s[*at] != 0);
        let Some(first) = (0..syndromes.first().map_or(0, |s| s.len())).find(wrong) else {
            return Verdict::Consistent;
        };
        let singles = self.columns.iter().map(|(c, h)| (1 << c, vec![h]));
        let named = self.only(singles, syndromes, first);
        if named != Verdict::Consistent {
            return named;
        }
        let pairs = self.columns.iter().enumerate().flat_map(|(n, (a, h))| {
            let later = self.columns[n + 1..].iter();
            later.map(move |(b, g)| (1 << a | 1 << b, vec![h, g]))
        });
        match self.only(pairs, syndromes, first) {
            Verdict::Consistent => Verdict::Unclear,
            named => named,
        }
    }

    /// The only one of the sets that explains the syndromes; `Unclear` if several do, `Consistent`
    /// if none does.
    fn only<'l>(
        &'l self,
        sets: impl Iterator<Item = (u64, Vec<&'l Vec<u8>>)>,
        syndromes: &[&[u8]],
        first: usize,
    ) -> Verdict {
        let mut named = Verdict::Consistent;
        for (set, columns) in sets {
            if columns.len() >= syndromes.len() {
                // It would explain anything.
                return Verdict::Unclear;
            }
            let checks = vanishing(&columns, syndromes.len());
            let fits = |at: usize| checks.iter().all(|check| vanishes(check, syndromes, at));
            if !fits(first) || !(first..syndromes[0].len()).all(fits) {
                continue;
            }
            named = match named {
                Verdict::Consistent => Verdict::Lies(set),
                _ => return Verdict::Unclear,
            };
        }
        named
    }

    /// The columns that are taken as they are, and those that are compared with what they give.
    #[must_use]
    pub fn columns(&self) -> (&[usize], &[usize]) {
        (&self.taken, &self.checked)
    }
}

/// `rows` − |columns| independent rows of coefficients that vanish on each of the columns.
fn vanishing(columns: &[&Vec<u8>], rows: usize) -> Vec<Vec<u8>> {
    // Each row: its entries in the columns, then the combination of rows that it is.
    let mut work: Vec<(Vec<u8>, Vec<u8>)> = (0..rows)
        .map(|row| {
            let entries = columns.iter().map(|column| column[row]).collect();
            let unit = (0..rows).map(|r| u8::from(r == row)).collect();
            (entries, unit)
        })
        .collect();
    for column in 0..columns.len() {
        let pivot = work.iter().position(|(entries, _)| entries[column] != 0);
        let (entries, made_of) = work.remove(pivot.expect("any few columns are independent"));
        let scale = gf::inverse(entries[column]);
        for row in &mut work {
            let factor = gf::mul(row.0[column], scale);
            add(&mut row.0, factor, &entries);
            add(&mut row.1, factor, &made_of);
        }
    }
    work.into_iter().map(|(_, made_of)| made_of).collect()
}

fn add(sum: &mut [u8], factor: u8, row: &[u8]) {
    for (sum, &entry) in sum.iter_mut().zip(row) {
        *sum ^= gf::mul(factor, entry);
    }
}

fn vanishes(check: &[u8], syndromes: &[&[u8]], at: usize) -> bool {
    let products = check.iter().zip(syndromes).map(|(&c, s)| gf::mul(c, s[at]));
    products.fold(0, |sum, product| sum ^ product) == 0
}
