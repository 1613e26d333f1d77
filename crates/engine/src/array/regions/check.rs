//! What is true of the region map whenever the array has given all its outputs.
//!
//! What a region may be with which state in its page stands in the table of phases (`regions`).
//! Besides, what a region or a request waits for is on its way.
//!
//! Deliberately absent: regions that wait for flushes (`flush_barrier`).

use strake_format::RegionState;

use crate::array::regions::{Map, Phase};
use crate::units::*;

impl Map {
    /// Names what is violated; `writes` of each page are in flight. In an array that `goes_on` what
    /// is waited for comes.
    pub(crate) fn check(&self, writes: &[u32], goes_on: bool) -> Result<(), String> {
        for (at, (page, &writes)) in self.pages.iter().zip(writes).enumerate() {
            ensure!(
                page.pending == writes,
                "page {at} of the map waits for {} writes, and {writes} are in flight",
                page.pending
            );
        }
        let regions = || (0..).map(RegionNo).zip(&self.regions);
        let mut waiting = vec![0; self.regions.len()];
        let pages = self.pages.iter();
        for region in pages.flat_map(|page| page.waiting.iter().chain(&page.next)) {
            waiting[region.0 as usize] += 1;
        }
        for ((RegionNo(no), region), waiting) in regions().zip(waiting) {
            let (phase, disk) = (region.phase, region.disk);
            let dirty = matches!(disk, RegionState::Dirty | RegionState::NeedSync);
            let holds = match phase {
                Phase::Open | Phase::Opening => dirty,
                Phase::Closing { unmap: false, .. } => dirty,
                Phase::Cleaning | Phase::Clean => disk == RegionState::Clean,
                Phase::Unmapping | Phase::Draining { .. } | Phase::Unwritten => {
                    disk == RegionState::Unwritten
                }
                Phase::Zeroing { .. } | Phase::Flushing { open: true } => {
                    disk == RegionState::Unwritten
                }
                _ => true,
            };
            ensure!(
                holds,
                "region {no} is {phase:?}, and its page says {disk:?}"
            );
            // (A region that is given up while data moves may leave its place behind.)
            let waits = matches!(phase, Phase::Opening | Phase::Cleaning | Phase::Unmapping);
            ensure!(
                !goes_on || !waits || waiting > 0,
                "region {no} is {phase:?}, and no page brings it on"
            );
            let still = matches!(
                phase,
                Phase::Unwritten | Phase::Clean | Phase::Open | Phase::NeedSync
            );
            ensure!(
                !(goes_on && still && region.wanted),
                "a shard waits for region {no}, which stays {phase:?}"
            );
            for id in &region.unmap {
                let known = self.unmapping.iter().any(|(other, ..)| other == id);
                ensure!(
                    known,
                    "request {} discards region {no} and was answered",
                    id.0
                );
            }
        }
        for &(id, left, _) in &self.unmapping {
            let asks = regions().map(|(_, region)| region.unmap.iter().filter(|&&r| r == id));
            let asked: usize = asks.map(Iterator::count).sum();
            ensure!(
                left as usize == asked,
                "request {} waits for {left} regions, and {asked} are being discarded",
                id.0
            );
        }
        Ok(())
    }

    /// Shards may write there, or have not closed it yet.
    pub(crate) fn is_written(&self, region: RegionNo) -> bool {
        let written =
            |phase| matches!(phase, Phase::Open | Phase::NeedSync | Phase::Closing { .. });
        let region = self.regions.get(region.0 as usize);
        region.is_some_and(|region| written(region.phase))
    }
}
