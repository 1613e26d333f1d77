//! The write buffer: parts of units that wait to become whole.
//!
//! Invariant: at most `limit` units wait; the one that has waited longest goes first. A unit that
//! has become whole goes at once.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Sectors of a unit, one bit each.
type Sectors = u128;
/// The most sectors of a unit.
const SECTORS: u64 = Sectors::BITS as u64;

/// Multiplies: the same order of the same keys each time, and quick.
#[derive(Default)]
struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }
    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0 ^ u64::from(value)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// A unit on its way to the flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaving {
    pub(crate) unit: u32,
    pub(crate) handle: u8,
    /// Every sector of it was written.
    pub(crate) whole: bool,
}

struct Part {
    written: Sectors,
    handle: u8,
    /// Distinguishes a unit that has come anew from its earlier place in the queue.
    turn: u64,
}

/// See the module.
pub(crate) struct Buffer {
    limit: usize,
    sector_bytes: u64,
    all: Sectors,
    parts: HashMap<u32, Part, BuildHasherDefault<Multiply>>,
    queue: VecDeque<(u32, u64)>,
    turn: u64,
}

impl Buffer {
    pub(crate) fn new(unit_bytes: u64, limit: u32) -> Buffer {
        let sector_bytes = (unit_bytes / SECTORS).max(512).min(unit_bytes);
        let sectors = unit_bytes / sector_bytes;
        let all = match sectors {
            SECTORS => Sectors::MAX,
            some => (1 << some) - 1,
        };
        Buffer {
            limit: limit as usize,
            sector_bytes,
            all,
            parts: HashMap::default(),
            queue: VecDeque::new(),
            turn: 0,
        }
    }

    /// Takes bytes `from..to` of a unit in; answers what leaves for it.
    pub(crate) fn take(
        &mut self,
        unit: u32,
        from: u64,
        to: u64,
        handle: u8,
        mut leaves: impl FnMut(Leaving),
    ) {
        let (first, end) = (
            from / self.sector_bytes,
            to.div_ceil(self.sector_bytes).min(SECTORS),
        );
        let below = |n: u64| match n {
            SECTORS => Sectors::MAX,
            n => (1 << n) - 1,
        };
        let written = below(end) & !below(first);
        self.turn += 1;
        let turn = self.turn;
        let part = self.parts.entry(unit).or_insert_with(|| Part {
            written: 0,
            handle,
            turn,
        });
        if part.turn == turn {
            self.queue.push_back((unit, turn));
        }
        part.written |= written;
        part.handle = handle;
        if part.written == self.all {
            self.parts.remove(&unit);
            leaves(Leaving {
                unit,
                handle,
                whole: true,
            });
        }
        while self.parts.len() > self.limit {
            self.evict(&mut leaves);
        }
        // Places of units that have left stay in the queue until they come to its head.
        while let Some((unit, turn)) = self.queue.front() {
            if self.parts.get(unit).is_some_and(|part| part.turn == *turn) {
                break;
            }
            self.queue.pop_front();
        }
    }

    fn evict(&mut self, leaves: &mut impl FnMut(Leaving)) {
        while let Some((unit, turn)) = self.queue.pop_front() {
            let is_it = self.parts.get(&unit).is_some_and(|part| part.turn == turn);
            let Some(part) = is_it.then(|| self.parts.remove(&unit)).flatten() else {
                continue;
            };
            leaves(Leaving {
                unit,
                handle: part.handle,
                whole: false,
            });
            return;
        }
    }

    /// Forgets what waits of a unit: it was deallocated.
    pub(crate) fn forget(&mut self, unit: u32) {
        self.parts.remove(&unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(buffer: &mut Buffer, unit: u32, from: u64, to: u64) -> Vec<(u32, bool)> {
        let mut left = Vec::new();
        buffer.take(unit, from, to, 0, |one| left.push((one.unit, one.whole)));
        left
    }

    #[test]
    fn parts_of_a_unit_become_one_whole_unit() {
        let mut buffer = Buffer::new(16 << 10, 4);
        assert!(take(&mut buffer, 7, 0, 4096).is_empty());
        assert!(take(&mut buffer, 7, 8192, 16384).is_empty());
        assert_eq!(take(&mut buffer, 7, 4096, 8192), [(7, true)]);
    }

    #[test]
    fn the_unit_that_has_waited_longest_leaves_in_part() {
        let mut buffer = Buffer::new(16 << 10, 2);
        assert!(take(&mut buffer, 1, 0, 4096).is_empty());
        assert!(take(&mut buffer, 2, 0, 4096).is_empty());
        assert_eq!(take(&mut buffer, 3, 0, 4096), [(1, false)]);
        // A unit that left whole leaves no trace in the order.
        assert_eq!(take(&mut buffer, 2, 4096, 16384), [(2, true)]);
        assert!(take(&mut buffer, 2, 0, 4096).is_empty());
        assert_eq!(take(&mut buffer, 4, 0, 4096), [(3, false)]);
    }

    #[test]
    fn units_of_64_kib_and_sectors_of_512_bytes() {
        let mut buffer = Buffer::new(64 << 10, 2);
        assert!(take(&mut buffer, 0, 0, 65024).is_empty());
        assert_eq!(take(&mut buffer, 0, 65024, 65536), [(0, true)]);
        let mut small = Buffer::new(4096, 0);
        assert_eq!(take(&mut small, 0, 0, 512), [(0, false)]);
    }
}
