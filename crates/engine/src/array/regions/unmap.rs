//! Regions that hold nothing but zeros, as shards say (`shard::zero_tracker`), are given back.
//!
//! Invariant: a region is given back only while no write can begin in it.

use crate::array::regions::Phase;
use crate::array::{Array, Stage};
use crate::proto::*;
use crate::units::*;

impl Array {
    /// A shard has nothing but zeros in the region, or had for a moment.
    pub(crate) fn region_emptied(&mut self, region: RegionNo, shard: ShardNo) {
        self.map.empty.entry(region).or_default().insert(shard);
        self.give_back_if_empty(region);
    }

    /// The region is Clean, or a shard has said something of it.
    pub(crate) fn give_back_if_empty(&mut self, region: RegionNo) {
        let at_rest = self.stage == Stage::Serving
            && self.reshape.is_none()
            && self.sb.moving.is_none()
            && self.map.phase(region) == Phase::Clean;
        let Some(said) = self.map.empty.get(&region).filter(|_| at_rest) else {
            return;
        };
        if self.geometry.owners(region, self.shards).is_subset(said) {
            self.close(region, CloseIf::Empty, true);
        }
    }
}
