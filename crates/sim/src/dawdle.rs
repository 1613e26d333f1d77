//! Devices that dawdle: one I/O in so many takes a hundred times as long, or a few of them wait for
//! a while and then go on as ever; and what makes the engine's hedged reads come into play in worlds
//! as short as these.
//!
//! Invariant: whoever dawdles answers in the end, and rightly; nothing here is an error.
//!
//! Deliberately absent: devices that are slow for long (`Action::Slow`), or that never answer
//! (`Action::Stall`).

use strake_engine::HedgeRules;
use strake_engine::units::Time;

use crate::faults::{FaultKind, FaultSet};
use crate::prng::{Prng, Purpose};
use crate::world::{Going, Happening, World};

/// Rules under which a handful of reads suffices, and a budget that is often used up.
pub(crate) fn draw_rules(seed: u64) -> HedgeRules {
    let mut rng = Prng::new(seed, Purpose::Dawdle);
    HedgeRules {
        samples_min: rng.pick(&[1, 2, 8]),
        floor_ns: rng.pick(&[1_000, 20_000, 200_000]),
        ceiling_ns: rng.pick(&[200_000, 1_000_000, 20_000_000]),
        look_every_ns: rng.pick(&[1_000, 100_000]),
        one_in: rng.pick(&[1, 1, 4, 20]),
        burst: rng.pick(&[1, 8, 64]),
        slow_after_ns: rng.pick(&[1_000_000, 20_000_000]),
        report_ns: rng.pick(&[500_000, 10_000_000]),
    }
}

impl World {
    /// At the beginning of a life: some device has hiccups from now on.
    pub(crate) fn begin_to_dawdle(&mut self, without: FaultSet) {
        let rng = &mut self.chance.dawdle;
        if without.has(FaultKind::Slow) || rng.percent(50) {
            return;
        }
        let index = rng.index(self.drives.len());
        self.drives[index].ssd.faults.hiccup_one_in = rng.pick(&[2, 10, 50]);
    }

    /// In the course of it: some device stands still for a moment.
    pub(crate) fn dawdle(&mut self, without: FaultSet) {
        let rng = &mut self.chance.dawdle;
        if without.has(FaultKind::Slow) || !rng.one_in(20) {
            return;
        }
        let index = rng.index(self.drives.len());
        let faults = &mut self.drives[index].ssd.faults;
        faults.pauses = rng.range(1, 20) as u32;
        faults.pause_ns = rng.pick(&[500_000, 5_000_000, 40_000_000]);
    }

    pub(crate) fn shard_tick(&mut self, shard: u16) -> Going {
        self.trace([13, u64::from(shard), 0, 0], || {
            format!("shard {shard}: tick")
        });
        let (now, at) = (self.clock.now(), usize::from(shard));
        let machines = self.machines();
        machines.shard_ticks[at] = None;
        machines.shards[at].tick(now);
        self.poll_shard(shard)
    }

    /// Sees to it that a shard is called when it wants to be.
    pub(crate) fn arm_shard_tick(&mut self, shard: u16) {
        let (now, at) = (self.clock.now(), usize::from(shard));
        let machines = self.machines();
        let Some(deadline) = machines.shards[at].deadline() else {
            return;
        };
        if machines.shard_ticks[at].is_none_or(|due| deadline < due) {
            // Never at once again: a deadline that lies in the past must not stop time.
            let due = deadline.max(Time(now.0 + 1));
            machines.shard_ticks[at] = Some(due);
            self.clock.at(due, Happening::ShardTick(shard));
        }
    }

    /// Counts what the array was told of hedges in the life that ends.
    pub(crate) fn count_hedges(&mut self) {
        let Some(machines) = &self.machines else {
            return;
        };
        let members = machines.array.status().members;
        for hedges in members.iter().map(|member| member.latency.hedges) {
            self.stats.hedges += hedges.issued;
            self.stats.hedges_won += hedges.won;
            self.stats.hedges_lost += hedges.lost;
            self.stats.hedges_refused += hedges.refused;
        }
    }
}
