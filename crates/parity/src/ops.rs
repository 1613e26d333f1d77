//! The closed list of operations that an instruction set offers, and how a request names its
//! coefficients.
//!
//! There are three: [`Ops::combine`] (outputs from sources), [`Ops::consistent`] (do stored rows
//! agree with sources) and [`Ops::update`] (add one source to outputs). Generate, reconstruct, XOR
//! and the test for zero are the first two with another [`Map`], so an instruction set cannot be
//! fast in one and left behind in another. These have a form for cold data, which gives the same
//! bytes.
//!
//! Invariants: a map's shape is a promise about its coefficients that the fast loops rely upon
//! for correct bytes (never for memory safety); lengths are checked here, once, before any kernel
//! runs. Absent: coefficients themselves, and any choice of instruction set.

use crate::code::MAX_COLUMNS;

/// What is known about the coefficients of a map, and so which loop computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Every coefficient is 1: plain XOR (P, a mirror, one lost column with P alive).
    Ones,
    /// Row j has coefficient (2^j)^i in column i, for 2 or 3 rows: P+Q or P+Q+R by Horner's rule.
    Horner,
    /// Anything, but every coefficient of the first row is 1.
    OnesFirst,
    /// Anything.
    General,
}

/// A linear map from `columns` sources to `rows.len()` outputs.
#[derive(Clone, Copy)]
pub(crate) struct Map<'a> {
    pub(crate) shape: Shape,
    /// For each output, its coefficients in the order of the sources.
    pub(crate) rows: &'a [&'a [u8]],
}

impl<'a> Map<'a> {
    /// A map in which every coefficient is 1.
    pub(crate) fn ones(rows: &'a [&'a [u8]]) -> Map<'a> {
        Map {
            shape: Shape::Ones,
            rows,
        }
    }

    /// Asserts what callers promise: one output per row, one coefficient per source, equal lengths.
    /// Returns that length in bytes.
    pub(crate) fn check_lengths<'s>(
        &self,
        sources: &[&[u8]],
        outputs: usize,
        mut output_lengths: impl Iterator<Item = usize> + 's,
    ) -> usize {
        assert_eq!(outputs, self.rows.len(), "as many outputs as rows");
        assert!(
            sources.len() <= MAX_COLUMNS,
            "more sources than a code has columns"
        );
        let Some(length) = output_lengths.next() else {
            return 0;
        };
        assert!(
            output_lengths.all(|other| other == length),
            "outputs of one length"
        );
        assert!(
            sources.iter().all(|source| source.len() == length),
            "sources as long as outputs"
        );
        assert!(
            self.rows.iter().all(|row| row.len() == sources.len()),
            "as many sources as coefficients"
        );
        length
    }
}

/// Where sources and outputs lie, as the caller knows it: a hint, the bytes are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Heat {
    /// In the CPU's caches, or to be read from there soon: what was just copied, received or made.
    #[default]
    Warm,
    /// In memory, and no CPU reads the outputs soon: drives wrote the sources and will fetch the
    /// outputs. Sources are prefetched and outputs stored past the caches. For data that is in the
    /// caches all the same this is about half as fast.
    Cold,
}

/// One instruction set. A value of an implementing type is the proof that the CPU has it.
pub(crate) trait Ops: Sync {
    /// The name by which `dispatch` and its users know it.
    fn name(&self) -> &'static str;

    /// `outputs[j] = Σ_i rows[j][i]·sources[i]`, whatever the outputs held.
    fn combine(&self, map: &Map<'_>, sources: &[&[u8]], outputs: &mut [&mut [u8]]);

    /// `outputs[j] = bases[j] + coefficients[j]·source`, or without bases `outputs[j]` plus that.
    fn update(
        &self,
        coefficients: &[u8],
        source: &[u8],
        bases: Option<&[&[u8]]>,
        outputs: &mut [&mut [u8]],
    );

    /// Whether `stored[j] == Σ_i rows[j][i]·sources[i]` for every row. Stops early where not.
    fn consistent(&self, map: &Map<'_>, sources: &[&[u8]], stored: &[&[u8]]) -> bool;

    /// As [`Ops::combine`], for cold data.
    fn combine_cold(&self, map: &Map<'_>, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.combine(map, sources, outputs);
    }

    /// As [`Ops::consistent`], for cold data.
    fn consistent_cold(&self, map: &Map<'_>, sources: &[&[u8]], stored: &[&[u8]]) -> bool {
        self.consistent(map, sources, stored)
    }
}

impl dyn Ops {
    /// Outputs from sources.
    pub(crate) fn combine_with(
        &self,
        heat: Heat,
        map: &Map<'_>,
        sources: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) {
        match heat {
            Heat::Warm => self.combine(map, sources, outputs),
            Heat::Cold => self.combine_cold(map, sources, outputs),
        }
    }
}
