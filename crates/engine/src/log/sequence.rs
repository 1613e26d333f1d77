//! The numbers of logged operations.
//!
//! Invariant: they only grow, and none wraps: an array fails, or does not start, before that
//! ([`NUMBERS_END`]).

use std::collections::VecDeque;

/// No base is higher.
pub(crate) const NUMBERS_END: u64 = u64::MAX - (1 << 33);

/// The shard that gives out this number says so, and the array fails. The numbers that it gives out
/// until it gets that view do not wrap.
pub(crate) const NUMBERS_SHORT: u64 = u64::MAX - (1 << 32);

/// Operations that have records and are not over, by their numbers.
#[derive(Default)]
pub(crate) struct Active {
    /// In order; those that are over stay until all before them are.
    begun: VecDeque<(u64, bool)>,
}

impl Active {
    /// A number that is higher than all before.
    pub(crate) fn begin(&mut self, number: u64) {
        self.begun.push_back((number, true));
    }

    /// It is over.
    pub(crate) fn end(&mut self, number: u64) {
        if let Ok(at) = self.begun.binary_search_by_key(&number, |begun| begun.0) {
            self.begun[at].1 = false;
        }
        while self.begun.front().is_some_and(|first| !first.1) {
            self.begun.pop_front();
        }
    }

    /// It has records and is not over.
    pub(crate) fn has(&self, number: u64) -> bool {
        let at = self.begun.binary_search_by_key(&number, |begun| begun.0);
        at.is_ok_and(|at| self.begun[at].1)
    }

    /// So many are not over.
    pub(crate) fn count(&self) -> usize {
        self.begun.iter().filter(|begun| begun.1).count()
    }

    /// The first that is not over.
    pub(crate) fn first(&self) -> Option<u64> {
        self.begun.front().map(|first| first.0)
    }
}
