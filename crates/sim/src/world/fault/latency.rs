//! Latency faults: one I/O in so many takes a hundred times as long, or a few of them wait for a
//! while and then go on as ever; and what makes the engine's hedged reads come into play in worlds
//! as short as these.
//!
//! After a crash that no log covers some device becomes slow as soon as the array serves again, and
//! the user reads at once what was being written: there parity is untrue until its resync, and a
//! late read must not be answered from it.
//!
//! Invariant: a slow device answers in the end, and rightly; nothing here is an error.
//!
//! Deliberately absent: devices that are slow for long (`Action::Slow`), or that never answer
//! (`Action::Stall`).

use strake_engine::units::Time;
use strake_format::RegionState;

use crate::drive::overlay::{FaultKind, FaultSet};
use crate::plan::workload::AskKind;
use crate::world::{Happening, SimResult, World};

/// So many of the stripes that were being written at a crash are looked at.
const TORN_MOST: usize = 8;

impl World {
    /// At the beginning of a life: some device has hiccups from now on.
    pub(crate) fn begin_latency_faults(&mut self, without: FaultSet) {
        let rng = &mut self.chance.latency_fault;
        if without.has(FaultKind::Slow) || rng.percent(50) {
            return;
        }
        let index = rng.index(self.drives.len());
        self.drives[index].ssd.faults.hiccup_one_in = rng.pick(&[2, 10, 50]);
    }

    /// In the course of it: some device stands still for a moment.
    pub(crate) fn latency_fault(&mut self, without: FaultSet) {
        let rng = &mut self.chance.latency_fault;
        if without.has(FaultKind::Slow) || !rng.one_in(20) {
            return;
        }
        let index = rng.index(self.drives.len());
        let faults = &mut self.drives[index].ssd.faults;
        faults.pauses = rng.range(1, 20) as u32;
        faults.pause_ns = rng.pick(&[500_000, 5_000_000, 40_000_000]);
    }

    /// The array serves again after a crash: perhaps the user looks at what was being written then,
    /// a few times, and some device is slow meanwhile.
    pub(crate) fn look_at_torn(&mut self, without: FaultSet) -> SimResult {
        let torn = std::mem::take(&mut self.expected.torn_stripes);
        let parity = self.geometry.m > 0 && !self.geometry.mirrored();
        if torn.is_empty() || !parity || without.has(FaultKind::Slow) {
            return Ok(());
        }
        let waits = self.region_states().contains(&RegionState::NeedSync);
        let rng = &mut self.chance.latency_fault;
        if !waits || rng.percent(10) {
            return Ok(());
        }
        let (index, rounds) = (rng.index(self.drives.len()), rng.range(3, 6));
        let faults = &mut self.drives[index].ssd.faults;
        faults.hiccup_one_in = 2;
        self.note(format!(
            "drive {index} dawdles while what was torn is looked at"
        ));
        let blocks = self.geometry.stripe_bytes() / self.geometry.block;
        let count = blocks.min(self.longest_read());
        let all = self.oracle.blocks();
        for stripe in (0..rounds).flat_map(|_| torn.iter().take(TORN_MOST)) {
            // Stripes of two shapes do not end where the array does.
            let first = stripe * blocks;
            if first < all {
                self.ask_for(AskKind::Read, first, count.min(all - first))?;
            }
        }
        Ok(())
    }

    pub(crate) fn shard_tick(&mut self, shard: u16) -> SimResult {
        self.trace([13, u64::from(shard), 0, 0], || {
            format!("shard {shard}: tick")
        });
        let (now, at) = (self.clock.now(), usize::from(shard));
        let machines = self.machines();
        // Another was put on the queue for an earlier moment: that one went on from there.
        if machines.shard_ticks[at] != Some(now) {
            return Ok(());
        }
        machines.shard_ticks[at] = None;
        let ran = machines.pulses[at + 1].ran(now);
        machines.shards[at].tick(ran);
        self.poll_shard(shard)
    }

    /// Sees to it that a shard is called when it wants to be.
    pub(crate) fn arm_shard_tick(&mut self, shard: u16) {
        let (now, at) = (self.clock.now(), usize::from(shard));
        let machines = self.machines();
        let Some(deadline) = machines.shards[at].deadline() else {
            return;
        };
        // The shard counts the time in which its thread ran.
        let deadline = Time(deadline.0.saturating_add(machines.pulses[at + 1].lost_ns()));
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
