//! Flushes of members that regions wait for, before a page says Clean, or Dirty after zeroes.
//!
//! A flush makes durable whatever was answered before it, whichever region it lies in. So there is
//! one round of flushes at a time, on every live member with a volatile cache, for all regions that
//! wait; who comes while it is under way waits for the next. A sweep that closes a thousand regions
//! flushes once and not a thousand times.
//!
//! Invariant: a region goes on only after a round that began when shards had finished their writes
//! there, or all of its zeroes were answered. A member whose flush fails is out before a page
//! builds on it (`regions`).
//!
//! Deliberately absent: which regions close, and when (`aging`), and pages (`regions`).

use crate::array::regions::Phase;
use crate::array::{Array, Purpose, Stage};
use crate::canary::{self, Canary};
use crate::proto::*;
use crate::units::*;

/// The round that is under way, and who waits for the next.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    /// Flushes in flight.
    pending: usize,
    /// Regions that go on when they are over.
    round: Vec<RegionNo>,
    /// Regions that came since it began.
    next: Vec<RegionNo>,
}

impl Array {
    /// Flushes members, then opens the region or makes it Clean.
    pub(crate) fn settle_region(&mut self, region: RegionNo, open: bool) {
        self.set_phase(region, Phase::Settling { open });
        let settling = &mut self.map.settling;
        if settling.pending > 0 && canary::hit(Canary::SettlesWithOthers) {
            settling.round.push(region);
        } else {
            settling.next.push(region);
        }
        self.drive_settling();
    }

    /// A flush of the round is over, well or not.
    pub(crate) fn region_flushed(&mut self) {
        self.map.settling.pending -= 1;
        self.drive_settling();
    }

    /// Ends the round if it is over, and begins the next if somebody waits.
    fn drive_settling(&mut self) {
        while self.map.settling.pending == 0 && self.stage != Stage::Failed {
            for region in std::mem::take(&mut self.map.settling.round) {
                self.region_settled(region);
            }
            if self.map.settling.pending > 0 {
                return;
            }
            let round = std::mem::take(&mut self.map.settling.next);
            if round.is_empty() {
                return;
            }
            let opens =
                |&region: &RegionNo| self.map.phase(region) == Phase::Settling { open: true };
            let hasty = !round.iter().any(opens) && canary::hit(Canary::CleanWithoutFlush);
            let volatile = |d: &DeviceId| self.members[d].info.volatile_cache && !hasty;
            let devices: Vec<DeviceId> = self.live().into_iter().filter(volatile).collect();
            self.map.settling.round = round;
            self.map.settling.pending = devices.len();
            for device in devices {
                self.io(device, Purpose::Settle { device }, IoKind::Flush);
            }
        }
    }

    fn region_settled(&mut self, region: RegionNo) {
        match self.map.phase(region) {
            Phase::Settling { open: true } => self.open_region(region),
            Phase::Settling { open: false } => self.make_clean(region),
            _ => unreachable!("settling ends before the region's phase changes"),
        }
    }
}
