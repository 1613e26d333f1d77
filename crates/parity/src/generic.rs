//! The loops, written once over an instruction set's vectors.
//!
//! Three loops compute every [`Map`]: XOR ([`Ones`]), Horner's rule ([`Horner`]) and a matrix
//! ([`Matrix`]). Each makes a few vectors of every one of its outputs in registers, in one pass
//! over the sources, and hands them to a [`Target`], which stores or compares. A fourth adds one
//! source to outputs ([`Update`]). A map with more outputs than registers hold is cut into groups
//! of rows, and the length into tiles that stay in the first-level cache, so that memory is still
//! read once.
//!
//! Each loop over a map is compiled twice: for data in the caches, and, as `COLD`, for data in
//! memory. A cold loop asks for its sources a way ahead and stores past the caches where an output
//! is aligned.
//!
//! Invariants: this file is safe code; every access is bounds-checked once for each run of vectors.
//! Everything is `inline(always)` because it must end up inside a function that has the instruction
//! set's target features; an ISA's entry points are the only callers. The last, partial vector goes
//! through a buffer on the stack, so no byte outside a slice is touched, nor asked for. A cold loop
//! ends with a fence, and no byte that it stored past the caches is touched before. Absent:
//! intrinsics, coefficients' origin, and cold updates (their outputs were just read).

use std::array;
use std::ops::Range;

use crate::code::MAX_COLUMNS;
use crate::ops::{Map, Ops, Shape};

/// Bytes of the widest vector.
const MAX_WIDTH: usize = 64;

/// Rows computed together by [`Matrix`]: 4 rows of 2 vectors, the sources and the tables fit the 16
/// registers of SSE and AVX2.
const GROUP_ROWS: usize = 4;

/// Vectors of each output computed together, where registers suffice: the longer a run, the fewer
/// bounds checks and loop ends for each vector.
const RUN: usize = 4;

/// The longer run, for XOR alone: 8 sums and one source are all that it holds.
const LONG_RUN: usize = 8;

/// The shorter run, for matrices with so many outputs that no registers would be left for sources
/// and tables.
const SHORT_RUN: usize = 2;

/// Bytes of each source from one run to the next where data is cold, at most: two lines. A shorter
/// run asks for lines at a more even pace, which is worth up to 3 %.
const COLD_RUN_BYTES: usize = 2 * LINE;

/// How far ahead a cold loop asks for its sources. From 512 to 4096 bytes make no difference above
/// 2 %. Without, P+Q is 6 % slower and P+Q+R 7 %: there are more columns than the CPU follows by
/// itself.
const AHEAD: usize = 1024;

/// Bytes of a line of the caches.
const LINE: usize = 64;

/// Registers that a matrix wants besides its outputs.
const SPARE_REGISTERS: usize = 8;

/// Bytes of all sources together that one tile may hold: two thirds of a 48 KiB first-level cache.
const TILE_BUDGET: usize = 32 * 1024;

/// A tile's length is a multiple of this: of the longest run of the widest vectors, at least.
const TILE_GRAIN: usize = 512;
const _: () = assert!(TILE_GRAIN.is_multiple_of(MAX_WIDTH * RUN));

/// One instruction set: a vector of `WIDTH` bytes and field arithmetic on it.
///
/// A value of an implementing type is the proof that the CPU has the instructions.
pub(crate) trait Isa: Copy {
    /// `WIDTH` bytes in a register.
    type Vector: Copy;
    /// A vector prepared for multiplication, once for all rows (nibbles taken apart, for example).
    type Split: Copy;
    /// A coefficient prepared for multiplication.
    type Factor: Copy;
    /// Bytes in a vector; at most [`MAX_WIDTH`], and a divisor of it.
    const WIDTH: usize;
    /// Vector registers.
    const REGISTERS: usize;

    /// All bytes zero.
    fn zero(self) -> Self::Vector;
    /// The first `WIDTH` bytes of `from`, at any alignment. Panics where it is shorter.
    fn load(self, from: &[u8]) -> Self::Vector;
    /// To the first `WIDTH` bytes of `to`, at any alignment. Panics where it is shorter.
    fn store(self, vector: Self::Vector, to: &mut [u8]);
    /// As `store`, past the caches where `to` is aligned to a vector. The caller must not touch
    /// these bytes again before a `fence`.
    #[inline(always)]
    fn stream(self, vector: Self::Vector, to: &mut [u8]) {
        self.store(vector, to);
    }
    /// The kernel that adds a source where every coefficient is 1, if another one is faster at
    /// that than this one.
    #[inline(always)]
    fn plain_update(self) -> Option<&'static dyn Ops> {
        None
    }
    /// Ends streams: what was stored past the caches is there for all that follows.
    #[inline(always)]
    fn fence(self) {}
    /// Asks for the line of the first byte.
    #[inline(always)]
    fn prefetch(self, _line: &[u8]) {}
    /// `a ^ b`.
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a | b`.
    fn or(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Whether all bytes are zero.
    fn is_zero(self, vector: Self::Vector) -> bool;
    /// `2·a` in every byte.
    fn double(self, vector: Self::Vector) -> Self::Vector;
    /// `4·a` in every byte.
    #[inline(always)]
    fn quadruple(self, vector: Self::Vector) -> Self::Vector {
        self.double(self.double(vector))
    }
    /// Prepares a vector.
    fn split(self, vector: Self::Vector) -> Self::Split;
    /// Prepares a coefficient.
    fn factor(self, coefficient: u8) -> Self::Factor;
    /// The product in every byte.
    fn times(self, split: Self::Split, factor: Self::Factor) -> Self::Vector;
}

/// A place in every slice: `N` vectors that a step reads or writes.
trait Span<I: Isa, const N: usize>: Copy {
    /// Whether data is cold.
    const COLD: bool;
    fn load(self, isa: I, from: &[u8]) -> [I::Vector; N];
    fn store(self, isa: I, vectors: [I::Vector; N], to: &mut [u8]);
}

/// `N` whole vectors from offset `at`.
#[derive(Clone, Copy)]
struct Whole<const COLD: bool> {
    at: usize,
}

impl<I: Isa, const N: usize, const COLD: bool> Span<I, N> for Whole<COLD> {
    const COLD: bool = COLD;

    #[inline(always)]
    fn load(self, isa: I, from: &[u8]) -> [I::Vector; N] {
        if COLD {
            let ahead = self.at + AHEAD;
            if let Some(lines) = from.get(ahead..ahead + N * I::WIDTH) {
                for line in lines.chunks(LINE) {
                    isa.prefetch(line);
                }
            }
        }
        let from = &from[self.at..self.at + N * I::WIDTH];
        let mut vectors = [isa.zero(); N];
        for (index, vector) in vectors.iter_mut().enumerate() {
            *vector = isa.load(&from[index * I::WIDTH..]);
        }
        vectors
    }

    #[inline(always)]
    fn store(self, isa: I, vectors: [I::Vector; N], to: &mut [u8]) {
        let to = &mut to[self.at..self.at + N * I::WIDTH];
        for (index, vector) in vectors.into_iter().enumerate() {
            let to = &mut to[index * I::WIDTH..];
            if COLD {
                isa.stream(vector, to);
            } else {
                isa.store(vector, to);
            }
        }
    }
}

/// What is left after the last whole vector, from offset `at` to the end: less than one vector.
#[derive(Clone, Copy)]
struct Rest {
    at: usize,
}

impl<I: Isa> Span<I, 1> for Rest {
    const COLD: bool = false;

    #[inline(always)]
    fn load(self, isa: I, from: &[u8]) -> [I::Vector; 1] {
        let from = &from[self.at..];
        let mut padded = [0; MAX_WIDTH];
        padded[..from.len()].copy_from_slice(from);
        [isa.load(&padded)]
    }

    #[inline(always)]
    fn store(self, isa: I, [vector]: [I::Vector; 1], to: &mut [u8]) {
        let to = &mut to[self.at..];
        let mut padded = [0; MAX_WIDTH];
        isa.store(vector, &mut padded);
        to.copy_from_slice(&padded[..to.len()]);
    }
}

/// Where the vectors of a row go.
trait Target<I: Isa> {
    fn put<S: Span<I, N>, const N: usize>(
        &mut self,
        isa: I,
        span: S,
        row: usize,
        vectors: [I::Vector; N],
    );

    /// Whether there is any point in going on. Asked once per tile.
    #[inline(always)]
    fn wants_more(&self, _isa: I) -> bool {
        true
    }
}

/// Writes rows over whatever the outputs held.
struct Overwrite<'o, 's>(&'o mut [&'s mut [u8]]);

impl<I: Isa> Target<I> for Overwrite<'_, '_> {
    #[inline(always)]
    fn put<S: Span<I, N>, const N: usize>(
        &mut self,
        isa: I,
        span: S,
        row: usize,
        vectors: [I::Vector; N],
    ) {
        span.store(isa, vectors, self.0[row]);
    }
}

/// Compares rows with stored ones: gathers every bit of their syndromes.
struct Compare<'o, 's, V> {
    stored: &'o [&'s [u8]],
    syndromes: V,
}

impl<I: Isa> Target<I> for Compare<'_, '_, I::Vector> {
    #[inline(always)]
    fn put<S: Span<I, N>, const N: usize>(
        &mut self,
        isa: I,
        span: S,
        row: usize,
        vectors: [I::Vector; N],
    ) {
        for syndrome in xor_all(isa, vectors, span.load(isa, self.stored[row])) {
            self.syndromes = isa.or(self.syndromes, syndrome);
        }
    }

    #[inline(always)]
    fn wants_more(&self, isa: I) -> bool {
        isa.is_zero(self.syndromes)
    }
}

#[inline(always)]
fn xor_all<I: Isa, const N: usize>(
    isa: I,
    mut a: [I::Vector; N],
    b: [I::Vector; N],
) -> [I::Vector; N] {
    for (a, b) in a.iter_mut().zip(b) {
        *a = isa.xor(*a, b);
    }
    a
}

/// What is done at one span.
trait Step<I: Isa> {
    fn step<S: Span<I, N>, const N: usize>(&mut self, isa: I, span: S);
}

/// Row `row` is the XOR of all sources.
struct Ones<'a, T> {
    sources: &'a [&'a [u8]],
    row: usize,
    target: &'a mut T,
}

impl<I: Isa, T: Target<I>> Step<I> for Ones<'_, T> {
    #[inline(always)]
    fn step<S: Span<I, N>, const N: usize>(&mut self, isa: I, span: S) {
        let mut sum = [isa.zero(); N];
        // From the last to the first, one by one: upwards or in pairs, second-level reads were half
        // as fast on a Zen 5, which takes the way from source to source for a stream.
        for source in self.sources.iter().rev() {
            sum = xor_all(isa, sum, span.load(isa, source));
        }
        self.target.put(isa, span, self.row, sum);
    }
}

/// Rows 0, 1 and, where `ROWS` is 3, 2 are Σ D_i, Σ 2^i·D_i and Σ 4^i·D_i, from the last source to
/// the first: `Q = (…(D_k−1·2 + D_k−2)·2 + …)·2 + D_0`.
struct Horner<'a, T, const ROWS: usize> {
    sources: &'a [&'a [u8]],
    target: &'a mut T,
}

impl<I: Isa, T: Target<I>, const ROWS: usize> Step<I> for Horner<'_, T, ROWS> {
    #[inline(always)]
    fn step<S: Span<I, N>, const N: usize>(&mut self, isa: I, span: S) {
        let mut p = [isa.zero(); N];
        let (mut q, mut r) = (p, p);
        for source in self.sources.iter().rev() {
            let data = span.load(isa, source);
            for n in 0..N {
                p[n] = isa.xor(p[n], data[n]);
                q[n] = isa.xor(isa.double(q[n]), data[n]);
                if ROWS == 3 {
                    r[n] = isa.xor(isa.quadruple(r[n]), data[n]);
                }
            }
        }
        self.target.put(isa, span, 0, p);
        self.target.put(isa, span, 1, q);
        if ROWS == 3 {
            self.target.put(isa, span, 2, r);
        }
    }
}

/// Rows `first..first + ROWS` are those of a matrix. With `ONES` the first of them is plain XOR.
struct Matrix<'a, T, const ROWS: usize, const ONES: bool> {
    sources: &'a [&'a [u8]],
    /// For each source, its coefficient in each row.
    coefficients: &'a [[u8; ROWS]],
    first: usize,
    target: &'a mut T,
}

impl<I: Isa, T: Target<I>, const ROWS: usize, const ONES: bool> Step<I>
    for Matrix<'_, T, ROWS, ONES>
{
    #[inline(always)]
    fn step<S: Span<I, N>, const N: usize>(&mut self, isa: I, span: S) {
        let columns = self.sources.iter().zip(self.coefficients);
        let sums = if S::COLD {
            // From memory, from the last to the first is up to 5 % faster, as for `Ones`.
            sums::<I, S, N, ROWS, ONES>(isa, span, columns.rev())
        } else {
            sums::<I, S, N, ROWS, ONES>(isa, span, columns)
        };
        for (row, sum) in sums.into_iter().enumerate() {
            self.target.put(isa, span, self.first + row, sum);
        }
    }
}

/// The sums of all rows of a [`Matrix`] at one span, source by source.
#[inline(always)]
fn sums<'a, I: Isa, S: Span<I, N>, const N: usize, const ROWS: usize, const ONES: bool>(
    isa: I,
    span: S,
    columns: impl Iterator<Item = (&'a &'a [u8], &'a [u8; ROWS])>,
) -> [[I::Vector; N]; ROWS] {
    let mut sums = [[isa.zero(); N]; ROWS];
    for (source, coefficients) in columns {
        let data = span.load(isa, source);
        for n in 0..N {
            let split = isa.split(data[n]);
            for row in 0..ROWS {
                let product = if ONES && row == 0 {
                    data[n]
                } else {
                    isa.times(split, isa.factor(coefficients[row]))
                };
                sums[row][n] = isa.xor(sums[row][n], product);
            }
        }
    }
    sums
}

/// Adds products of one source to several outputs, or to their bases: parities of one changed
/// strip.
///
/// A step reads what it adds to for all rows before it stores the first, and slices are held by
/// value and cut to one length, so that no step reads their addresses and lengths again. A CPU
/// takes a read for one of what was just stored where the last 12 bits of both addresses are the
/// same, as they are in strips at page boundaries: on a Zen 4 row after row is up to half as fast.
struct Update<'a, F, const ROWS: usize, const ONES: bool> {
    source: &'a [u8],
    factors: [F; ROWS],
    /// Where not the outputs.
    bases: Option<[&'a [u8]; ROWS]>,
    outputs: [&'a mut [u8]; ROWS],
}

impl<I: Isa, const ROWS: usize, const ONES: bool> Step<I> for Update<'_, I::Factor, ROWS, ONES> {
    #[inline(always)]
    fn step<S: Span<I, N>, const N: usize>(&mut self, isa: I, span: S) {
        let data = span.load(isa, self.source);
        let mut sums = [[isa.zero(); N]; ROWS];
        for (row, sum) in sums.iter_mut().enumerate() {
            *sum = match &self.bases {
                Some(bases) => span.load(isa, bases[row]),
                None => span.load(isa, self.outputs[row]),
            };
        }
        for n in 0..N {
            let split = isa.split(data[n]);
            for (row, sum) in sums.iter_mut().enumerate() {
                let product = if ONES && row == 0 {
                    data[n]
                } else {
                    isa.times(split, self.factors[row])
                };
                sum[n] = isa.xor(sum[n], product);
            }
        }
        for (sum, output) in sums.into_iter().zip(&mut self.outputs) {
            span.store(isa, sum, output);
        }
    }
}

/// Takes `step` over `range`: runs of `N` vectors, single vectors, and the rest of one. Only a
/// range that ends where the slices end may leave a rest.
#[inline(always)]
fn walk<I: Isa, K: Step<I>, const N: usize, const COLD: bool>(
    isa: I,
    range: Range<usize>,
    step: &mut K,
) {
    let mut at = range.start;
    while range.end - at >= N * I::WIDTH {
        step.step::<Whole<COLD>, N>(isa, Whole { at });
        at += N * I::WIDTH;
    }
    while range.end - at >= I::WIDTH {
        step.step::<Whole<COLD>, 1>(isa, Whole { at });
        at += I::WIDTH;
    }
    if at < range.end {
        step.step::<Rest, 1>(isa, Rest { at });
    }
}

/// [`walk`] by long runs.
#[inline(always)]
fn stride<I: Isa, K: Step<I>, const COLD: bool>(isa: I, range: Range<usize>, step: &mut K) {
    if COLD && RUN * I::WIDTH > COLD_RUN_BYTES {
        walk::<I, K, SHORT_RUN, COLD>(isa, range, step);
    } else {
        walk::<I, K, RUN, COLD>(isa, range, step);
    }
}

/// One group of at most [`GROUP_ROWS`] rows of a matrix over one tile.
#[inline(always)]
fn group<I: Isa, T: Target<I>, const ROWS: usize, const ONES: bool, const COLD: bool>(
    isa: I,
    rows: &[&[u8]],
    first: usize,
    range: Range<usize>,
    sources: &[&[u8]],
    target: &mut T,
) {
    let mut coefficients = [[0; ROWS]; MAX_COLUMNS];
    for (row, of_row) in rows.iter().enumerate() {
        for (of_source, &coefficient) in coefficients.iter_mut().zip(*of_row) {
            of_source[row] = coefficient;
        }
    }
    let coefficients = &coefficients[..sources.len()];
    let step = &mut Matrix::<_, ROWS, ONES> {
        sources,
        coefficients,
        first,
        target,
    };
    if ROWS * RUN + SPARE_REGISTERS <= I::REGISTERS {
        stride::<I, _, COLD>(isa, range, step);
    } else {
        walk::<I, _, SHORT_RUN, COLD>(isa, range, step);
    }
}

/// All rows of a matrix over one tile.
#[inline(always)]
fn matrix<I: Isa, T: Target<I>, const COLD: bool>(
    isa: I,
    map: &Map<'_>,
    range: &Range<usize>,
    sources: &[&[u8]],
    target: &mut T,
) {
    for (index, rows) in map.rows.chunks(GROUP_ROWS).enumerate() {
        let first = index * GROUP_ROWS;
        let range = range.clone();
        let ones = index == 0 && map.shape == Shape::OnesFirst;
        match (rows.len(), ones) {
            (1, _) => group::<I, T, 1, false, COLD>(isa, rows, first, range, sources, target),
            (2, false) => group::<I, T, 2, false, COLD>(isa, rows, first, range, sources, target),
            (2, true) => group::<I, T, 2, true, COLD>(isa, rows, first, range, sources, target),
            (3, false) => group::<I, T, 3, false, COLD>(isa, rows, first, range, sources, target),
            (3, true) => group::<I, T, 3, true, COLD>(isa, rows, first, range, sources, target),
            (_, false) => group::<I, T, 4, false, COLD>(isa, rows, first, range, sources, target),
            (_, true) => group::<I, T, 4, true, COLD>(isa, rows, first, range, sources, target),
        }
    }
}

/// Bytes of each slice that one tile covers: everything where one pass makes all rows.
#[inline(always)]
fn tile_bytes(map: &Map<'_>, sources: usize, length: usize, early_end: bool) -> usize {
    let passes = match map.shape {
        Shape::Ones => map.rows.len(),
        Shape::Horner => 1,
        Shape::OnesFirst | Shape::General => map.rows.len().div_ceil(GROUP_ROWS),
    };
    if passes <= 1 && !early_end {
        return length.max(1);
    }
    let fits = TILE_BUDGET / sources.max(1);
    (fits / TILE_GRAIN).max(1) * TILE_GRAIN
}

/// The whole length, tile by tile.
#[inline(always)]
fn run<I: Isa, T: Target<I>, const COLD: bool>(
    isa: I,
    map: &Map<'_>,
    length: usize,
    tile: usize,
    sources: &[&[u8]],
    target: &mut T,
) {
    let mut start = 0;
    while start < length && target.wants_more(isa) {
        let range = start..length.min(start.saturating_add(tile));
        start = range.end;
        match map.shape {
            Shape::Ones => {
                for row in 0..map.rows.len() {
                    let step = &mut Ones {
                        sources,
                        row,
                        target,
                    };
                    let range = range.clone();
                    if COLD {
                        stride::<I, _, COLD>(isa, range, step);
                    } else {
                        walk::<I, _, LONG_RUN, COLD>(isa, range, step);
                    }
                }
            }
            Shape::Horner if map.rows.len() == 2 => {
                stride::<I, _, COLD>(isa, range, &mut Horner::<_, 2> { sources, target });
            }
            Shape::Horner => {
                stride::<I, _, COLD>(isa, range, &mut Horner::<_, 3> { sources, target });
            }
            Shape::OnesFirst | Shape::General => {
                matrix::<I, T, COLD>(isa, map, &range, sources, target);
            }
        }
    }
}

/// [`crate::ops::Ops::combine`] and its cold form for any instruction set.
#[inline(always)]
pub(crate) fn combine<I: Isa, const COLD: bool>(
    isa: I,
    map: &Map<'_>,
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
) {
    const { assert!(MAX_WIDTH.is_multiple_of(I::WIDTH)) };
    let lengths = outputs.iter().map(|output| output.len());
    let length = map.check_lengths(sources, outputs.len(), lengths);
    let tile = tile_bytes(map, sources.len(), length, false);
    run::<I, _, COLD>(isa, map, length, tile, sources, &mut Overwrite(outputs));
    if COLD {
        isa.fence();
    }
}

/// At most [`GROUP_ROWS`] rows of an update over one tile.
#[inline(always)]
fn change<I: Isa, const ROWS: usize, const ONES: bool>(
    isa: I,
    range: Range<usize>,
    coefficients: &[u8],
    source: &[u8],
    bases: Option<&[&[u8]]>,
    outputs: &mut [&mut [u8]],
) {
    let length = source.len();
    let outputs: &mut [_; ROWS] = outputs.try_into().expect("an output for each row");
    let outputs = outputs.each_mut().map(|output| &mut output[..length]);
    let mut factors = [isa.factor(0); ROWS];
    for (factor, &coefficient) in factors.iter_mut().zip(coefficients) {
        *factor = isa.factor(coefficient);
    }
    match bases {
        None => {
            let step = &mut Update::<_, ROWS, ONES> {
                source,
                factors,
                bases: None,
                outputs,
            };
            walk::<I, _, SHORT_RUN, false>(isa, range, step);
        }
        Some(bases) => {
            let step = &mut Update::<_, ROWS, ONES> {
                source,
                factors,
                bases: Some(array::from_fn(|row| &bases[row][..length])),
                outputs,
            };
            walk::<I, _, SHORT_RUN, false>(isa, range, step);
        }
    }
}

/// [`crate::ops::Ops::update`] for any instruction set.
#[inline(always)]
pub(crate) fn update<I: Isa>(
    isa: I,
    coefficients: &[u8],
    source: &[u8],
    bases: Option<&[&[u8]]>,
    outputs: &mut [&mut [u8]],
) {
    let length = source.len();
    assert_eq!(outputs.len(), coefficients.len(), "as many outputs as rows");
    assert!(
        outputs.iter().all(|output| output.len() == length),
        "outputs as long as the source"
    );
    assert!(
        bases.is_none_or(|bases| {
            bases.len() == outputs.len() && bases.iter().all(|base| base.len() == length)
        }),
        "a base for each output, as long as that"
    );
    let all_ones = coefficients.iter().all(|&coefficient| coefficient == 1);
    let rows = if all_ones { 1 } else { GROUP_ROWS };
    let tile = if coefficients.len() <= rows {
        length.max(1)
    } else {
        TILE_BUDGET
    };
    let mut start = 0;
    while start < length {
        let tile = start..length.min(start.saturating_add(tile));
        start = tile.end;
        for (index, factors) in coefficients.chunks(rows).enumerate() {
            let range = tile.clone();
            let group = index * rows..index * rows + factors.len();
            let bases = bases.map(|bases| &bases[group.clone()]);
            let outputs = &mut outputs[group];
            match (factors.len(), factors[0] == 1) {
                (1, false) => change::<I, 1, false>(isa, range, factors, source, bases, outputs),
                (1, true) => change::<I, 1, true>(isa, range, factors, source, bases, outputs),
                (2, false) => change::<I, 2, false>(isa, range, factors, source, bases, outputs),
                (2, true) => change::<I, 2, true>(isa, range, factors, source, bases, outputs),
                (3, false) => change::<I, 3, false>(isa, range, factors, source, bases, outputs),
                (3, true) => change::<I, 3, true>(isa, range, factors, source, bases, outputs),
                (_, false) => change::<I, 4, false>(isa, range, factors, source, bases, outputs),
                (_, true) => change::<I, 4, true>(isa, range, factors, source, bases, outputs),
            }
        }
    }
}

/// [`crate::ops::Ops::consistent`] and its cold form for any instruction set.
#[inline(always)]
pub(crate) fn consistent<I: Isa, const COLD: bool>(
    isa: I,
    map: &Map<'_>,
    sources: &[&[u8]],
    stored: &[&[u8]],
) -> bool {
    let length = map.check_lengths(sources, stored.len(), stored.iter().map(|row| row.len()));
    let tile = tile_bytes(map, sources.len(), length, true);
    let mut target = Compare {
        stored,
        syndromes: isa.zero(),
    };
    run::<I, _, COLD>(isa, map, length, tile, sources, &mut target);
    isa.is_zero(target.syndromes)
}
