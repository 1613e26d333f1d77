//! Memory for the data of ublk requests, and the requests that wait for it: the queues of one shard
//! share both.
//!
//! Buffers are of a few sizes, and each size has a line of its own: a short write does not wait
//! behind long ones that found none.
//!
//! Invariants:
//! * No request is passed by a later one that needs a buffer of the same size, of whichever queue,
//!   so none waits for ever.
//! * While a request waits for a larger buffer, every other request gets only a buffer of its own
//!   size.
//!
//! Deliberately absent: waking (the shard looks again in every turn, and after a while).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use strake_engine::buffers::{Buf, Pool};

use super::queue::Stock;

/// A tag, and the key of its queue.
pub(crate) type Waiter = (u16, u16);

/// Request memory of the queues of one shard.
#[derive(Clone, Debug)]
pub(crate) struct QueueMemory {
    /// For registration.
    addresses: Rc<[(usize, usize)]>,
    shared: Rc<RefCell<Lines>>,
}

#[derive(Debug)]
struct Lines {
    pool: Pool,
    /// One for each size, those of longer buffers later.
    lines: Vec<Line>,
}

/// The requests that wait for a buffer of this size.
#[derive(Debug)]
struct Line {
    bytes: usize,
    waiters: VecDeque<Waiter>,
}

impl QueueMemory {
    /// Allocates; `None` where there is no such memory.
    pub(crate) fn new(stock: &Stock) -> Option<QueueMemory> {
        let pool = Pool::try_new(stock)?;
        let mut sizes: Vec<usize> = pool.addresses().iter().map(|&(_, bytes)| bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let line = |bytes| Line {
            bytes,
            waiters: VecDeque::new(),
        };
        let lines = sizes.into_iter().map(line).collect();
        Some(QueueMemory {
            addresses: pool.addresses().into(),
            shared: Rc::new(RefCell::new(Lines { pool, lines })),
        })
    }

    /// As [`Pool::addresses`].
    pub(crate) fn addresses(&self) -> &[(usize, usize)] {
        &self.addresses
    }

    /// A request waits.
    pub(crate) fn is_short(&self) -> bool {
        let shared = self.shared.borrow();
        shared.lines.iter().any(|line| !line.waiters.is_empty())
    }

    /// Which line requests of this length wait in; `None` if no buffer is so large.
    pub(crate) fn line_of(&self, bytes: usize) -> Option<usize> {
        let shared = self.shared.borrow();
        shared.lines.iter().position(|line| line.bytes >= bytes)
    }

    /// Lines, those of longer buffers later.
    pub(crate) fn lines(&self) -> usize {
        self.shared.borrow().lines.len()
    }

    /// A buffer for one that has not waited, or for the `first` of its line; `None`: it is to wait.
    pub(crate) fn take(&self, bytes: usize, first: bool) -> Option<Buf> {
        let line = self.line_of(bytes)?;
        let Lines { pool, lines } = &mut *self.shared.borrow_mut();
        if !first && !lines[line].waiters.is_empty() {
            return None;
        }
        let longer = &lines[line + 1..];
        match longer.iter().all(|line| line.waiters.is_empty()) {
            true => pool.take(bytes),
            false => pool.take_fitting(bytes),
        }
    }

    /// Waits, behind those that do.
    pub(crate) fn wait(&self, waiter: Waiter, bytes: usize) {
        let line = self.line_of(bytes);
        let line = line.expect("nobody waits for a buffer that there is not");
        self.shared.borrow_mut().lines[line]
            .waiters
            .push_back(waiter);
    }

    /// The request that has waited longest in a line.
    pub(crate) fn first(&self, line: usize) -> Option<Waiter> {
        self.shared.borrow().lines[line].waiters.front().copied()
    }

    /// The first of a line waits no longer.
    pub(crate) fn served(&self, line: usize) {
        self.shared.borrow_mut().lines[line].waiters.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: usize = 4096;
    const LONG: usize = 65536;

    #[test]
    fn nobody_is_passed_by_one_that_came_later_for_as_much() {
        let memory = QueueMemory::new(&vec![(SHORT, 1), (LONG, 1)]).expect("small");
        let held = memory.take(LONG, false).expect("free");
        assert!(memory.take(LONG, false).is_none());
        memory.wait((3, 0), LONG);
        memory.wait((1, 1), LONG - 1);
        assert!(memory.is_short());
        drop(held);
        assert!(memory.take(LONG, false).is_none(), "others came first");
        let line = memory.line_of(LONG).expect("there is one");
        assert_eq!(memory.first(line), Some((3, 0)));
        let held = memory.take(LONG, true).expect("it came back");
        memory.served(line);
        assert_eq!(memory.first(line), Some((1, 1)));
        assert!(memory.take(LONG, true).is_none());
        drop(held);
        assert!(memory.take(LONG, true).is_some());
        memory.served(line);
        assert!(!memory.is_short());
        assert!(memory.take(LONG, false).is_some());
    }

    #[test]
    fn short_ones_neither_wait_behind_long_ones_nor_take_what_those_wait_for() {
        let memory = QueueMemory::new(&vec![(SHORT, 1), (LONG, 2)]).expect("small");
        let long = [memory.take(LONG, false), memory.take(LONG, false)];
        memory.wait((0, 0), LONG);
        let short = memory.take(SHORT, false);
        assert!(short.is_some(), "one of its own size is free");
        drop(long);
        assert!(memory.take(SHORT, false).is_none(), "others wait for these");
        let served = memory.take(LONG, true);
        memory.served(memory.line_of(LONG).expect("there is one"));
        assert!(served.is_some());
        let larger = memory.take(SHORT, false).expect("nobody waits");
        assert_eq!(larger.len(), LONG);
        assert_eq!(memory.line_of(LONG + 1), None);
    }
}
