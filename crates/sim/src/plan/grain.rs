//! What a plan draws of purport: strips that are larger than usual, devices that write coarsely,
//! devices that grow by different amounts.
//!
//! Invariant: draws of its own, so that what else a seed stands for stays. Large strips have fewer
//! rows, and are the rarer the larger they are: worlds with them take longer.

use super::*;

/// What a plan is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanUse {
    /// A script: strips of 8 KiB at most, devices that tell of no write granularity and grow alike,
    /// and nothing that spoils what was written.
    Script,
    /// All that the seed says.
    Seed,
}

/// One array in so many has devices that tell of a write granularity.
const GRAINED_ONE_IN: u64 = 8;
/// One array in so many has strips that are larger than usual.
const TALL_ONE_IN: u64 = 16;
/// The largest strip of an array in which data moves.
pub(super) const MOVED_STRIP_MOST: u32 = 32 << 10;

/// The coarsest grain of members, if devices tell of any; with the stream that goes on from there.
fn coarsest(seed: u64) -> Option<(u32, Prng)> {
    let mut rng = Prng::new(seed ^ 20, Purpose::Focus);
    let grained = rng.one_in(GRAINED_ONE_IN);
    grained.then(|| {
        let most = [8192, 16384, 65536][rng.weighted(&[7, 3, 1])];
        (most, rng)
    })
}

/// The strip, if others would have this one.
pub(super) fn strip(seed: u64, shape: &Shape, usual: u32) -> u32 {
    let mut rng = Prng::new(seed ^ 21, Purpose::Focus);
    let mut strip = usual;
    if rng.one_in(TALL_ONE_IN) {
        strip = [16384, 32768, 65536][rng.weighted(&[5, 3, 2])];
    }
    if let Some((grain, _)) = coarsest(seed) {
        strip = strip.max(grain);
    }
    match shape.members {
        0..=8 => strip,
        _ => strip.min(16384),
    }
}

/// Regions of so many rows where strips are of the usual size.
pub(super) fn region_bytes(strip: u32, rows: u64) -> u64 {
    let rows = match strip {
        ..=8192 => rows,
        _ => rows.div_ceil(3),
    };
    u64::from(strip) * rows
}

/// What members have more than they would with strips of the usual size.
pub(super) fn taller(strip: u32) -> u64 {
    let rows = match strip {
        ..=8192 => return 0,
        8193..=16384 => 32,
        16385..=32768 => 20,
        _ => 12,
    };
    u64::from(strip) * rows - 72 * 4096
}

/// Do devices grow by different amounts, where they grow?
pub(super) fn grows_unequally(seed: u64) -> bool {
    Prng::new(seed ^ 22, Purpose::Focus).percent(60)
}

/// By how much a device grows where others grow by `bytes`: some as much, some more, and some in
/// one array of three not at all. Purport are whole sectors, and not always whole blocks of 4096.
pub(crate) fn growth(seed: u64, device: usize, bytes: u64, block: u32) -> u64 {
    let mut rng = Prng::new(seed ^ 22 ^ bytes << 8, Purpose::Focus);
    let some_stay = rng.one_in(3);
    let mut own = Prng::new(rng.bits() ^ device as u64, Purpose::Focus);
    match own.below(6) {
        0 if some_stay => 0,
        1 => 2 * bytes,
        2 => bytes + 4096 * own.below(16),
        3 => bytes + u64::from(block) * own.below(16),
        _ => bytes,
    }
}

/// The write granularity of a device at a start, where devices tell of another each time.
pub(crate) fn grain_at(seed: u64, device: usize, start: u64) -> u32 {
    let place = prng::mix(seed ^ start << 32 ^ device as u64);
    Prng::new(place ^ 20, Purpose::Focus).pick(&GRAINS)
}

/// What devices tell of: nothing, less than a block of the log, what batches are padded to, more
/// than that, and what is no power of two.
const GRAINS: [u32; 8] = [0, 512, 4096, 8192, 12288, 16384, 65536, 1 << 20];

impl Plan {
    /// In one of eight arrays devices tell of a write granularity; the log has lanes that are large
    /// enough to be padded to it.
    pub(super) fn draw_grain(&mut self) {
        let Some((most, mut rng)) = coarsest(self.seed) else {
            return;
        };
        let most = most.min(self.strip);
        let mixed = rng.percent(60);
        let own = usize::from(self.shape.members) + self.spares;
        for (index, device) in self.devices.iter_mut().enumerate() {
            device.granularity = match (mixed, index < own) {
                (false, _) => most,
                // The strip is a multiple of what members have when the array is made.
                (true, true) => rng.pick(&[0, 4096, most, most]),
                (true, false) => rng.pick(&GRAINS),
            };
        }
        self.regrains = mixed && rng.one_in(3);
        let lanes = match most {
            ..=8192 => self.shards.min(3),
            8193..=16384 => self.shards.min(2),
            _ => 1,
        };
        if self.focus == Focus::Ring || !self.shape.level.has_parity() {
            return;
        }
        // As where arrays are made for use.
        self.tiny.align_bytes = self.tiny.align_bytes.max(u64::from(most));
        (self.shards, self.reshard) = (lanes, false);
        let lane = 8 * u64::from(most);
        let log_bytes = (lane * u64::from(lanes) * 8).div_ceil(7) + 16384;
        let log_bytes = self.tiny.log_bytes.max(log_bytes.next_multiple_of(8192));
        let more = log_bytes - self.tiny.log_bytes;
        self.tiny.log_bytes = log_bytes;
        let devices = self.devices.iter_mut();
        devices.for_each(|device| device.bytes += 2 * (more + u64::from(most)));
    }

    /// Buffers for what moves to lower rows, bytes.
    pub(super) fn moving_bytes(&self) -> usize {
        let strip = self.strip as usize;
        match self.strip {
            ..=8192 => 400 * strip,
            _ => ((4 << 20) / strip + 160) * strip,
        }
    }
}

/// Rules under which a handful of reads suffices, and a budget that is often used up.
pub(crate) fn draw_rules(seed: u64) -> HedgeRules {
    let mut rng = Prng::new(seed, Purpose::LatencyFault);
    HedgeRules {
        samples_min: rng.pick(&[1, 2, 8]),
        floor_ns: rng.pick(&[1_000, 20_000, 200_000]),
        ceiling_ns: rng.pick(&[200_000, 1_000_000, 20_000_000]),
        look_every_ns: rng.pick(&[1_000, 100_000]),
        one_in: rng.pick(&[1, 1, 4, 20]),
        burst: rng.pick(&[1, 8, 64]),
        slow_after_ns: rng.pick(&[1_000_000, 20_000_000]),
        report_ns: rng.pick(&[500_000, 10_000_000]),
        in_place_pause_ns: rng.pick(&[0, 50_000, 5_000_000]),
    }
}
