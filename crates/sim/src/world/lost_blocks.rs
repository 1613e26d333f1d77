//! Which blocks cannot be computed: the simulator's own view of what may be lost.
//!
//! Invariant: a block is held lost only if its own member cannot give it, and too many others of
//! its stripe cannot give theirs either, at the same place; or parity was not to be trusted.
//!
//! Deliberately absent: what the engine makes of it. What it gives up is compared with this.

use std::collections::BTreeSet;

use strake_engine::geometry::{Shape, StripPart};
use strake_engine::units::{Row, StripeNo};

use crate::world::inspect::Look;
use crate::world::{SimResult, World};

impl World {
    /// Tells the oracle of every block that cannot be computed now. To be called whenever a member
    /// or a sector was lost.
    pub fn note_lost_blocks(&mut self) {
        let places = self.unreadable_places();
        if places.is_empty() || self.machines.is_none() {
            return;
        }
        self.refresh_resyncing();
        let looks = self.looks();
        for (group, row, offset) in places {
            let stripe = self.geometry.stripe(group, Row(row));
            for block in self.lost_of(&looks, stripe, offset) {
                self.oracle.doubt(block);
            }
        }
    }

    /// Group, row and byte within the strip of every sector that cannot be read.
    fn unreadable_places(&self) -> BTreeSet<(u64, u64, u64)> {
        let layout = &self.superblock.layout;
        let geometry = &self.geometry;
        let sectors = self
            .drives
            .iter()
            .flat_map(|drive| &drive.ssd.faults.latent);
        let offsets = sectors.filter_map(|sector| {
            let data = (sector * geometry.block).checked_sub(layout.data_offset)?;
            (data < layout.data_bytes).then_some(data)
        });
        let places = offsets.flat_map(|data| {
            (0..geometry.per_row)
                .map(move |group| (group, data / geometry.strip, data % geometry.strip))
        });
        places.collect()
    }

    /// The blocks at this byte of the strips of a stripe that cannot be computed.
    fn lost_of(&self, looks: &[Look], stripe: StripeNo, offset: u64) -> Vec<u64> {
        let geometry = &self.geometry;
        let Shape { width, k, .. } = geometry.columns(stripe);
        let (_, row) = geometry.row(stripe);
        if !geometry.exists(stripe) {
            return Vec::new();
        }
        let sector = (self.superblock.layout.data_offset + geometry.row_offset(row) + offset)
            / geometry.block;
        let unreadable = |column: &usize| {
            let look = &looks[geometry.slot(stripe, *column).index()];
            let Some(index) = look.in_sync.filter(|_| self.condition(look).intact) else {
                return true;
            };
            self.drives[index].ssd.faults.latent.contains(&sector)
        };
        let gone: Vec<usize> = (0..width).filter(unreadable).collect();
        let distrusted = self.expected.resyncing && !geometry.mirrored();
        if gone.len() <= geometry.m && !distrusted {
            return Vec::new();
        }
        let block = |column: usize| {
            geometry.blocks(&StripPart {
                stripe,
                column,
                lo: offset,
                hi: offset + geometry.block,
            })
        };
        let all = self.oracle.blocks();
        let blocks = gone.into_iter().filter(|&c| c < k).flat_map(block);
        blocks.filter(|&block| block < all).collect()
    }

    /// A shard has a new list: blocks of its stripes that left it answer no error from now on. A
    /// write that is answered before may have been in place when the block was lost.
    pub(crate) fn note_unlisted(&mut self, shard: u16, listed: impl Fn(u64) -> bool) {
        let (geometry, shards) = (&self.geometry, self.shards);
        let owner = |block: u64| {
            let stripe = geometry.locate(block * geometry.block).stripe;
            geometry.shard(stripe, shards).0
        };
        let unlisting = &mut self.expected.unlisting;
        let known = unlisting.extract_if(.., |&block| owner(block) == shard && !listed(block));
        known.for_each(|block| self.oracle.rewritten(block));
    }

    /// The engine gave blocks up: each must be one that could not be computed.
    pub(crate) fn given_up(&mut self, offset: u64, len: u64) -> SimResult {
        self.note_lost_blocks();
        let size = self.geometry.block;
        self.stats.lost_blocks += len / size;
        for block in offset / size..(offset + len) / size {
            // There a read may fail for no reason, and parity does not help.
            let place = self.geometry.locate(block * size);
            let region = self.geometry.region(self.geometry.row(place.stripe).1);
            if self.expected.excused.contains(&region) {
                self.oracle.doubt(block);
            }
            self.gives_up_decay(block);
            if !self.oracle.doubtful(block) {
                let place = self.place(block);
                let text = format!("block {block} ({place}) was given up and could be computed");
                return self.failure(text);
            }
            self.expected.unlisting.remove(&block);
            self.oracle.given_up(block);
            self.gave_up_recent(block);
        }
        Ok(())
    }
}
