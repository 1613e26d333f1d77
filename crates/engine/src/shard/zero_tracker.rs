//! Regions that hold nothing but zeros by now, because all of them was discarded or zeroed in
//! parts.
//!
//! A request cannot be as long as a region of large members, so a region is given back in parts: a
//! shard remembers which bytes of its stripes it has zeroed since they were written last, and tells
//! the array when that is all that it has in a region (`RegionEmpty`). When the region is Clean and
//! every shard has said so, the array closes it on the condition that it is empty still
//! (`array::regions::unmap`); then it goes the way of a region that is discarded as a whole. No
//! user can see a difference: it reads as zeros before and after.
//!
//! What is remembered is in memory only, bounded, and lost without harm: at a restart, when the
//! shape changes, and where more regions are being emptied at once than are followed.
//!
//! Invariants:
//! * What is remembered as zero is zero: whatever ends in a stripe, and was no zeroing, or failed,
//!   makes the shard forget what it knew of that stripe, before the region counts it as over.
//!
//! Deliberately absent: zeros that a user writes as data.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::canary::{self, Canary};
use crate::proto::*;
use crate::shard::op::StripeOp;
use crate::shard::op::kind::Kind;
use crate::shard::outbox::Outbox;
use crate::shard::stripe_map::StripeMap;
use crate::units::*;

/// Regions that a shard follows at once.
const FOLLOWED: usize = 256;
/// Stripes of a region that are zero in parts.
const IN_PARTS: usize = 64;
/// Parts of a stripe.
const PARTS: usize = 64;

/// What a shard has zeroed.
#[derive(Default)]
pub(crate) struct ZeroTracker {
    regions: BTreeMap<RegionNo, Followed>,
    /// In the order in which they were begun.
    order: VecDeque<RegionNo>,
}

struct Followed {
    /// The first stripe.
    first: u64,
    /// For each stripe from there on: it is zero as a whole.
    zero: Vec<u64>,
    /// Stripes of this shard that are not.
    left: u64,
    /// Of those, bytes that are: in order, apart from each other.
    parts: BTreeMap<StripeNo, Vec<Range<u64>>>,
}

impl Followed {
    fn is_zero(&self, stripe: StripeNo) -> bool {
        let at = stripe.0 - self.first;
        self.zero[at as usize / 64] >> (at % 64) & 1 == 1
    }

    fn flip(&mut self, stripe: StripeNo) {
        let at = stripe.0 - self.first;
        self.zero[at as usize / 64] ^= 1 << (at % 64);
    }

    fn forget(&mut self, stripe: StripeNo) {
        self.parts.remove(&stripe);
        if self.is_zero(stripe) {
            self.flip(stripe);
            self.left += 1;
        }
    }

    /// These bytes of a stripe of so many are zero. True if that makes the last one whole.
    fn zeroed(&mut self, stripe: StripeNo, bytes: Range<u64>, all: u64) -> bool {
        if self.is_zero(stripe) {
            return false;
        }
        if bytes != (0..all) {
            if self.parts.len() >= IN_PARTS && !self.parts.contains_key(&stripe) {
                self.parts.pop_first();
            }
            let parts = self.parts.entry(stripe).or_default();
            join(parts, bytes);
            if parts.len() > PARTS {
                parts.clear();
            }
            if parts.first() != Some(&(0..all)) {
                return false;
            }
        }
        self.parts.remove(&stripe);
        self.flip(stripe);
        self.left -= 1;
        self.left == 0
    }
}

/// Puts a range among others.
fn join(parts: &mut Vec<Range<u64>>, mut new: Range<u64>) {
    parts.retain(|part| {
        let apart = part.end < new.start || new.end < part.start;
        if !apart {
            new = new.start.min(part.start)..new.end.max(part.end);
        }
        apart
    });
    let at = parts.partition_point(|part| part.start < new.start);
    parts.insert(at, new);
}

impl ZeroTracker {
    /// Nothing is known of the region any more.
    pub(crate) fn forget(&mut self, region: RegionNo) {
        if self.regions.remove(&region).is_some() {
            self.order.retain(|&other| other != region);
        }
    }

    /// All that the shard has in a region is zero: nothing may be all.
    pub(crate) fn is_emptied(&self, region: RegionNo, map: &StripeMap) -> bool {
        self.regions.get(&region).is_some_and(|r| r.left == 0)
            || !map
                .geometry()
                .owners(region, map.count())
                .contains(&map.index())
    }

    /// An operation is about to be over: what it zeroed is remembered, what it wrote forgotten.
    pub(crate) fn note(&mut self, op: &StripeOp, failed: bool, map: &StripeMap, out: &mut Outbox) {
        // The case of every other operation of an array where nothing is zeroed.
        if self.regions.is_empty() && (failed || !op.kind.only_zeros()) {
            return;
        }
        let (stripe, region) = (op.stripe, map.region(op.stripe));
        let strip = map.geometry().strip;
        let mut zeroed: Vec<Range<u64>> = Vec::new();
        match &op.kind {
            Kind::Write(write) => {
                let zeros = !failed && op.kind.only_zeros();
                let of = |column: usize, from: u64| column as u64 * strip + from;
                let parts = write.asked.pieces.iter().filter(|_| zeros);
                zeroed.extend(parts.map(|p| of(p.column, p.lo)..of(p.column, p.hi)));
            }
            Kind::Zero(_) => {
                let (lo, hi) = (op.lo, op.hi);
                let k = map.shape(stripe).k as u64;
                let whole = (lo, hi) == (0, strip);
                match whole {
                    true => zeroed.push(0..k * strip),
                    false => zeroed.extend((0..k).map(|c| c * strip + lo..c * strip + hi)),
                }
                if failed {
                    zeroed.clear();
                }
            }
            Kind::Read(_) | Kind::Step(_) => return,
        }
        if zeroed.is_empty() {
            let known = self.regions.get_mut(&region);
            if let Some(followed) = known.filter(|_| !canary::hit(Canary::EmptyForEver)) {
                followed.forget(stripe);
            }
            return;
        }
        if map.geometry().old_shape.is_some() {
            return;
        }
        let all = map.geometry().stripe_bytes();
        self.follow(region, map);
        let followed = self.regions.get_mut(&region).expect("followed");
        let mut empty = false;
        for bytes in zeroed {
            empty |= followed.zeroed(stripe, bytes, all);
        }
        if empty {
            out.say(FromShard::RegionEmpty { region });
        }
    }

    /// Begins to follow a region.
    fn follow(&mut self, region: RegionNo, map: &StripeMap) {
        if self.regions.contains_key(&region) {
            return;
        }
        if self.order.len() >= FOLLOWED
            && let Some(longest) = self.order.pop_front()
        {
            self.regions.remove(&longest);
        }
        let rows = map.geometry().region_rows(region);
        let stripes = map
            .geometry()
            .stripes_of_rows(Row(rows.start), Row(rows.end));
        let ours = |stripe: &u64| map.is_ours(StripeNo(*stripe));
        let followed = Followed {
            first: stripes.start,
            zero: vec![0; (stripes.end - stripes.start).div_ceil(64) as usize],
            left: stripes.filter(ours).count() as u64,
            parts: BTreeMap::new(),
        };
        self.regions.insert(region, followed);
        self.order.push_back(region);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_become_one() {
        let mut parts = Vec::new();
        for part in [8..12, 0..4, 20..24, 4..8, 10..21] {
            join(&mut parts, part);
        }
        assert_eq!(parts, vec![0..24]);
        join(&mut parts, 30..31);
        assert_eq!(parts, [0..24, 30..31]);
    }

    #[test]
    fn a_region_is_empty_when_its_last_stripe_is_and_not_after_a_write() {
        let mut followed = Followed {
            first: 10,
            zero: vec![0; 1],
            left: 2,
            parts: BTreeMap::new(),
        };
        let (first, last) = (StripeNo(10), StripeNo(12));
        assert!(!followed.zeroed(first, 0..8, 8));
        assert!(!followed.zeroed(first, 0..8, 8));
        assert!(!followed.zeroed(last, 0..4, 8));
        followed.forget(last);
        assert!(!followed.zeroed(last, 4..8, 8));
        assert!(followed.zeroed(last, 0..4, 8));
        followed.forget(first);
        assert_eq!(followed.left, 1);
        assert!(followed.zeroed(first, 0..8, 8));
    }
}
