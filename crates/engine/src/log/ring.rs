//! What lies in the ring of a lane of the stripe log: batches, none over another, written one after
//! the other and from the beginning again where the end is too near.
//!
//! Invariants:
//! * In order of their places come first those of this round, then, from where the next goes, what
//!   is left of the rounds before.
//! * A batch leaves as soon as another is written over any part of it.
//!
//! Deliberately absent: whether a batch may be written over (`shard::log_writer`).

use std::collections::VecDeque;

use crate::mem::list::List;

/// A batch in the ring.
pub(crate) struct BatchInRing {
    pub(crate) bytes: u64,
    pub(crate) newest: u64,
    pub(crate) retired_before: u64,
    pub(crate) durable: bool,
}

type Batches = VecDeque<(u64, BatchInRing)>;

/// See the module.
pub(crate) struct Ring {
    /// Where it begins and ends in the lane.
    first: u64,
    end: u64,
    /// Where the next batch goes, if it fits there.
    head: u64,
    /// Of this round: all below `head`.
    ahead: Batches,
    /// All from `head` on.
    behind: Batches,
}

fn find(batches: &Batches, start: u64) -> Option<usize> {
    batches.binary_search_by_key(&start, |batch| batch.0).ok()
}

impl Ring {
    /// An empty one, over these bytes of a lane.
    pub(crate) fn new(first: u64, end: u64) -> Ring {
        Ring {
            first,
            end,
            head: first,
            ahead: VecDeque::new(),
            behind: VecDeque::new(),
        }
    }

    fn start(&self, bytes: u64) -> u64 {
        match self.head + bytes <= self.end {
            true => self.head,
            false => self.first,
        }
    }

    /// Where a batch of so many bytes would go, and which batches lie there.
    pub(crate) fn place(&self, bytes: u64) -> (u64, List<u64, 8>) {
        let start = self.start(bytes);
        assert!(start + bytes <= self.end, "a batch lies within its ring");
        let again = (start != self.head).then_some(&self.ahead);
        let over = again.into_iter().flatten().chain(&self.behind);
        let over = over.map(|batch| batch.0);
        (start, over.take_while(|&at| at < start + bytes).collect())
    }

    /// A batch is written to the place that was told for its length.
    pub(crate) fn write(&mut self, batch: BatchInRing) {
        let start = self.start(batch.bytes);
        if start != self.head {
            self.ahead.append(&mut self.behind);
            std::mem::swap(&mut self.ahead, &mut self.behind);
        }
        self.head = start + batch.bytes;
        while self.behind.front().is_some_and(|next| next.0 < self.head) {
            self.behind.pop_front();
        }
        self.ahead.push_back((start, batch));
    }

    /// The batch that begins there, if it has not been written over.
    pub(crate) fn get(&self, start: u64) -> Option<&BatchInRing> {
        let at = |batches: &Batches| find(batches, start);
        let of_this_round = at(&self.ahead).map(|at| &self.ahead[at]);
        let batch = of_this_round.or_else(|| at(&self.behind).map(|at| &self.behind[at]));
        batch.map(|batch| &batch.1)
    }

    pub(crate) fn get_mut(&mut self, start: u64) -> Option<&mut BatchInRing> {
        let batch = match find(&self.ahead, start) {
            Some(at) => &mut self.ahead[at],
            None => find(&self.behind, start).map(|at| &mut self.behind[at])?,
        };
        Some(&mut batch.1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Beside a list of all batches, in which everything is looked for.
    #[test]
    fn batches_leave_when_they_are_written_over_and_not_before() {
        let (first, end) = (8, 100);
        let mut ring = Ring::new(first, end);
        let mut all: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let (mut head, mut number) = (first, 0x9e37_79b9_u64);
        for newest in 0..20_000 {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let bytes = 1 + (number >> 33) % if newest % 700 < 350 { 4 } else { 46 };
            let want = if head + bytes <= end { head } else { first };
            let lies = |(at, (len, _)): (&u64, &(u64, u64))| {
                (*at < want + bytes && want < at + len).then_some(*at)
            };
            let there: Vec<u64> = all.iter().filter_map(lies).collect();
            let (start, over) = ring.place(bytes);
            assert_eq!((start, &over[..]), (want, &there[..]));
            all.retain(|at, _| !there.contains(at));
            all.insert(start, (bytes, newest));
            head = start + bytes;
            ring.write(BatchInRing {
                bytes,
                newest,
                retired_before: 0,
                durable: false,
            });
            for at in first..end {
                let known = ring.get(at).map(|batch| (batch.bytes, batch.newest));
                assert_eq!(known, all.get(&at).copied());
                let changes = ring.get_mut(at).map(|batch| batch.newest);
                assert_eq!(changes, all.get(&at).map(|batch| batch.1));
            }
        }
    }
}
