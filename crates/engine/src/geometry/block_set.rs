//! Sets of logical blocks: those that answer an error.
//!
//! Invariant: nothing is in it of which the geometry has no byte.

use std::ops::Range;

use rangemap::RangeSet;

use crate::geometry::{Geometry, StripPart};

/// Logical blocks of the array that answer an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadBlocks {
    pub(crate) blocks: RangeSet<u64>,
}

impl BadBlocks {
    /// This block of the array is listed.
    pub fn has(&self, block: u64) -> bool {
        self.blocks.contains(&block)
    }

    /// These blocks are the middle of a range: when they leave, it becomes two ranges.
    pub(crate) fn splits_at(&self, blocks: &Range<u64>) -> bool {
        let range = self.blocks.get(&blocks.start);
        range.is_some_and(|r| r.start < blocks.start && blocks.end < r.end)
    }

    /// Does any block of these bytes of a strip answer an error?
    pub(crate) fn touches(&self, geometry: &Geometry, part: &StripPart) -> bool {
        // The case of every request of an array in order.
        let blocks = || Some(geometry.blocks(part)).filter(|blocks| !blocks.is_empty());
        !self.blocks.is_empty() && blocks().is_some_and(|blocks| self.blocks.overlaps(&blocks))
    }

    /// Are all blocks of these bytes of a strip listed?
    pub(crate) fn covers(&self, geometry: &Geometry, part: &StripPart) -> bool {
        let blocks = geometry.blocks(part);
        blocks.is_empty() || self.blocks.gaps(&blocks).next().is_none()
    }

    /// The ranges, in order: bytes of the array's address space.
    pub(crate) fn bytes(&self, geometry: &Geometry) -> Vec<Range<u64>> {
        let range = |r: &Range<u64>| r.start * geometry.block..r.end * geometry.block;
        self.blocks.iter().map(range).collect()
    }

    /// The parts of `range` that are listed.
    pub(crate) fn parts_within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let part = |r: &Range<u64>| r.start.max(range.start)..r.end.min(range.end);
        self.blocks.overlapping(range.clone()).map(part).collect()
    }
}
