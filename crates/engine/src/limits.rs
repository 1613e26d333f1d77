//! How much memory a shard needs, and why.

use crate::geometry::Geometry;

/// Size classes and counts for [`crate::buffers::Pool::new`], so that a shard of this geometry can always
/// go on: the widest operation reads and writes every strip of a stripe at once, and two of those must fit.
/// `budget_bytes` beyond that minimum is filled with small and strip-sized buffers.
pub fn stock(geometry: &Geometry, budget_bytes: usize) -> Vec<(usize, usize)> {
    let strip = geometry.strip as usize;
    let widest = 2 * (geometry.width + geometry.m);
    let strips = widest.max(budget_bytes * 3 / 4 / strip);
    let small = 16384.min(strip);
    vec![(small, (budget_bytes / 4 / small).max(8)), (strip, strips)]
}
