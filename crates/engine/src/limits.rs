//! How much memory a shard needs, and why.

use crate::geometry::Geometry;

/// The longest read that a shard takes as one request, bytes.
pub const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// The most strip-sized buffers that one operation asks for. Read-modify-write of k written
/// columns: old data, parity, and two buffers for each column (put together, difference): 3k + m.
/// Decoding writes: k + m reads at most, k put together, m parities, m decoded. Both m more for the
/// partial syndromes of the log. Check of a stripe: all columns, and 2m.
pub fn widest(geometry: &Geometry) -> usize {
    let (k, m) = (geometry.k, geometry.m);
    (3 * k + 2 * m).max(2 * k + 4 * m)
}

/// The fewest strip-sized buffers with which a shard can always go on: one of the widest operations,
/// and one of the longest reads, fit at once.
pub fn strips_least(geometry: &Geometry) -> usize {
    let widest = widest(geometry);
    let longest = (REQUEST_BYTES_MAX / geometry.strip) as usize + 2;
    widest + widest.max(longest)
}

/// Size classes and counts for [`crate::buffers::Pool::new`], so that a shard of this geometry can
/// always go on: one of the widest operations, and one of the longest reads, fit at once.
/// `budget_bytes` beyond that minimum is filled with small and strip-sized buffers.
pub fn stock(geometry: &Geometry, budget_bytes: usize) -> Vec<(usize, usize)> {
    let strip = geometry.strip as usize;
    let strips = strips_least(geometry).max(budget_bytes * 3 / 4 / strip);
    let small = 16384.min(strip);
    vec![(small, (budget_bytes / 4 / small).max(8)), (strip, strips)]
}
