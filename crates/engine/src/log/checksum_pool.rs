//! Memory for checksums of records, used again when no record has it any more.
//!
//! The same list is part of records for several members, each of which goes when its batch is
//! encoded.
//!
//! Invariant: what is kept for the next is no more than [`KEPT_BYTES`], whatever was in flight.

use std::collections::VecDeque;
use std::sync::Arc;

/// Checksums of a record.
pub(crate) type Sums = Arc<Vec<u32>>;

const KEPT_BYTES: usize = 1 << 20;
/// What a list takes beside its checksums, about.
const LIST_BYTES: usize = 64;

/// See the module.
#[derive(Default)]
pub(crate) struct SumsMemory {
    /// What records have or had: what was given to one longest ago comes first.
    lent: VecDeque<Sums>,
    bytes: usize,
    none: Sums,
}

fn bytes_of(sums: &Sums) -> usize {
    LIST_BYTES + sums.capacity() * size_of::<u32>()
}

impl SumsMemory {
    /// An empty list without another owner.
    pub(crate) fn take(&mut self) -> Sums {
        let free = self.lent.front_mut().and_then(Arc::get_mut);
        let Some(first) = free else {
            return Sums::default();
        };
        first.clear();
        let first = self.lent.pop_front().expect("it was looked at");
        self.bytes -= bytes_of(&first);
        first
    }

    /// A record has this list from now on.
    pub(crate) fn lend(&mut self, sums: &Sums) {
        if self.bytes + bytes_of(sums) <= KEPT_BYTES {
            self.bytes += bytes_of(sums);
            self.lent.push_back(Arc::clone(sums));
        }
    }

    /// The list of a record that has none.
    pub(crate) fn none(&self) -> Sums {
        Arc::clone(&self.none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(memory: &mut SumsMemory, len: usize) -> Sums {
        let mut sums = memory.take();
        let list = Arc::get_mut(&mut sums).expect("nobody else has it");
        assert!(list.is_empty());
        list.resize(len, 1);
        memory.lend(&sums);
        sums
    }

    #[test]
    fn a_list_is_used_again_when_no_record_has_it() {
        let mut memory = SumsMemory::default();
        let first = of(&mut memory, 9);
        let at = first.as_ptr();
        let second = of(&mut memory, 9);
        assert_ne!(second.as_ptr(), at);
        drop(first);
        assert_eq!(of(&mut memory, 3).as_ptr(), at);
    }

    #[test]
    fn no_more_is_kept_than_said() {
        let mut memory = SumsMemory::default();
        let long = (KEPT_BYTES / 3 - LIST_BYTES) / size_of::<u32>();
        let all: Vec<Sums> = (0..5).map(|_| of(&mut memory, long)).collect();
        assert_eq!(memory.lent.len(), 3);
        drop(all);
        drop(of(&mut memory, 1));
        assert!(memory.bytes <= KEPT_BYTES && memory.lent.len() == 3);
    }
}
