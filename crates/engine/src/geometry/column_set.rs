//! Sets of columns of a stripe.
//!
//! Invariant: a stripe has at most 64 columns.

/// A set of columns (at most 64).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Columns(pub(crate) u64);

impl Columns {
    /// The first so many.
    pub(crate) fn first(count: usize) -> Columns {
        Columns(u64::MAX.checked_shr(64 - count as u32).unwrap_or(0))
    }
    pub(crate) fn has(self, column: usize) -> bool {
        self.0 >> column & 1 == 1
    }
    pub(crate) fn add(&mut self, column: usize) {
        self.0 |= 1 << column;
    }
    pub(crate) fn with(self, other: Columns) -> Columns {
        Columns(self.0 | other.0)
    }
    pub(crate) fn without(self, column: usize) -> Columns {
        Columns(self.0 & !(1 << column))
    }
    pub(crate) fn count(self) -> usize {
        self.0.count_ones() as usize
    }
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// Each of them, in ascending order.
    pub(crate) fn each(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(next)
        })
    }
}

impl FromIterator<usize> for Columns {
    fn from_iter<T: IntoIterator<Item = usize>>(columns: T) -> Columns {
        let mut set = Columns::default();
        columns.into_iter().for_each(|column| set.add(column));
        set
    }
}
