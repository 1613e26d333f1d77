//! Sets of regions.
//!
//! Invariant: a set has a bit for every region of the map that it was made for.

use crate::units::RegionNo;

/// A set of regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSet(Vec<u64>);

impl RegionSet {
    /// The regions below `count` that are asked for.
    pub(crate) fn of(count: u32, has: impl Fn(RegionNo) -> bool) -> RegionSet {
        let mut words = vec![0; count.div_ceil(64) as usize];
        for region in (0..count).filter(|&region| has(RegionNo(region))) {
            words[region as usize / 64] |= 1 << (region % 64);
        }
        RegionSet(words)
    }

    /// Is the region in it?
    pub fn has(&self, region: RegionNo) -> bool {
        self.0[region.0 as usize / 64] >> (region.0 % 64) & 1 == 1
    }
}
