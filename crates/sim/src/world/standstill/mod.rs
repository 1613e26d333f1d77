//! Deadlines of I/Os, as the runtime keeps them: which threads have run meanwhile, and what the
//! array decides. And stalls: the machine, the thread of one shard or of the array, or what lies
//! behind all devices.
//!
//! | what stands still | for | what is to come of it |
//! |---|---|---|
//! | the machine, for longer than the deadline; answers come a while after it | 1 to 3 deadlines | nothing |
//! | one thread; the others go on | 1 to 3 deadlines | nothing |
//! | the answers of several devices at once | less than 2 deadlines | nothing |
//!
//! Invariants:
//! * An I/O is answered late only where that is watched ([`Watched`]): no other misses its
//!   deadline.
//! * No I/O is watched that a device took while it dawdled: it may take longer than the deadline by
//!   itself.
//! * A device that hangs answers nothing until the array has given its I/Os up.
//! * Chance of its own: worlds without this are what they would be without it.
//!
//! Deliberately absent: devices that hang (`Action::Stall`), and those that are slow
//! (`fault::latency`).

mod full;

use strake_engine::units::*;
use strake_engine::{Late, Pulse, Verdict};

use crate::drive::overlay::{FaultKind, FaultSet};
use crate::drive::{OpNo, Owner, Watched};
use crate::plan::Plan;
use crate::prng::{self, Prng, Purpose};
use crate::world::clock::Place;
use crate::world::{Drive, Happening, SimResult, World};

/// The pulses of a process that begins: the array's thread, then each shard's.
pub(crate) fn pulses(plan: &Plan, shards: u16, now: Time) -> Vec<Pulse> {
    let mut pulse = Pulse::of_deadline(plan.latencies.deadline_ns, now);
    pulse.sleeps(None);
    vec![pulse; usize::from(shards) + 1]
}

/// Where its pulse is among all.
fn pulse_of(owner: Owner) -> usize {
    match owner {
        Owner::Array => 0,
        Owner::Shard(shard) => usize::from(shard) + 1,
    }
}

fn place_of(owner: Owner) -> Place {
    match owner {
        Owner::Array => Place::Array,
        Owner::Shard(shard) => Place::Shard(shard),
    }
}

impl World {
    fn pulse(&mut self, owner: Owner) -> &mut Pulse {
        &mut self.machines().pulses[pulse_of(owner)]
    }

    /// Now, in the time in which this thread ran.
    pub(crate) fn ran(&mut self, owner: Owner) -> Time {
        let standing = self.machines().standing.as_ref();
        let since = standing
            .filter(|(of, ..)| *of == owner)
            .map(|(_, at, _)| *at);
        let now = since.unwrap_or(self.clock.now());
        self.pulse(owner).ran(now)
    }

    // ---- deadlines ----------------------------------------------------------------------------

    /// The deadline of an I/O is watched; it is not answered before `answered_at`.
    pub(crate) fn watch(&mut self, drive: usize, op: OpNo, answered_at: Time) {
        let Some(owner) = self.drives[drive].ssd.owner_of(op) else {
            return;
        };
        let deadline_ns = self.plan.latencies.deadline_ns;
        let due = Time(self.ran(owner).0 + deadline_ns);
        if let Some((_, watched)) = self.drives[drive].ssd.watched(op) {
            *watched = Some(Watched {
                due,
                reported: false,
                rounds: 0,
                answered_at,
            });
        }
        self.clock.after(deadline_ns, Happening::Due(drive, op));
    }

    /// An I/O was to end now, and does so later.
    pub(crate) fn is_put_off(&mut self, drive: usize, op: OpNo) -> bool {
        let now = self.clock.now();
        let ssd = &mut self.drives[drive].ssd;
        if ssd.hangs(op) {
            let again_ns = self.plan.latencies.deadline_ns / 4;
            self.clock.after(again_ns, Happening::Io(drive, op));
            return true;
        }
        let gone = ssd.faults.gone;
        let watched = ssd.watched(op).and_then(|(_, watched)| *watched);
        let later = watched.map(|watched| watched.answered_at);
        let Some(at) = later.filter(|&at| at > now && !gone) else {
            return false;
        };
        self.clock.at(at, Happening::Io(drive, op));
        true
    }

    /// A thread looks whether an I/O is overdue.
    pub(crate) fn due(&mut self, drive: usize, op: OpNo) -> SimResult {
        let Some(owner) = self.drives[drive].ssd.owner_of(op) else {
            return Ok(());
        };
        let ran = self.ran(owner);
        let Some((device, Some(watched))) = self.drives[drive].ssd.watched(op) else {
            return Ok(());
        };
        if watched.reported {
            return Ok(());
        }
        if ran < watched.due {
            let ns = watched.due.since(ran);
            self.clock.after(ns, Happening::Due(drive, op));
            return Ok(());
        }
        watched.reported = true;
        let late = Late::Overdue(watched.rounds);
        self.trace.add(16);
        let what = Happening::Overdue(device, late);
        self.send(place_of(owner), Place::Array, what);
        Ok(())
    }

    /// The array gets the report.
    pub(crate) fn overdue(&mut self, device: DeviceId, late: Late) -> SimResult {
        let (rounds, full) = match late {
            Late::Overdue(rounds) => (rounds, 0),
            Late::NoSpace => (0, 1),
        };
        self.trace([16, u64::from(device.0), rounds.into(), full], || {
            format!("array: {device:?}: {late:?}")
        });
        let (now, deadline_ns) = (self.clock.now(), self.plan.latencies.deadline_ns);
        let array = &mut self.machines().array;
        array.overdue(now, device, late, deadline_ns);
        self.poll_array()
    }

    /// The array has decided.
    pub(crate) fn tell_verdict(&mut self, device: DeviceId, verdict: Verdict) {
        self.note_verdict(device, verdict);
        let shards = (0..self.shards).map(Owner::Shard);
        for owner in std::iter::once(Owner::Array).chain(shards) {
            let what = Happening::Judged(owner, device, verdict);
            self.send(Place::Array, place_of(owner), what);
        }
    }

    /// A thread gets the decision.
    pub(crate) fn judged(&mut self, owner: Owner, device: DeviceId, verdict: Verdict) -> SimResult {
        let (ran, deadline_ns) = (self.ran(owner), self.plan.latencies.deadline_ns);
        let drive = self.drive_of(device);
        self.judged_full(drive, owner, device, verdict)?;
        for op in self.drives[drive].ssd.overdue(owner, device) {
            let retry = self.drives[drive].ssd.retry_of(op);
            if verdict == Verdict::GiveUp {
                if let Some(finished) = self.drives[drive].ssd.give_up(op) {
                    self.deliver(drive, finished, retry)?;
                }
                continue;
            }
            if let Some((_, Some(watched))) = self.drives[drive].ssd.watched(op) {
                watched.reported = false;
                watched.rounds += 1;
                watched.due = Time(ran.0 + deadline_ns);
            }
            self.clock.after(deadline_ns, Happening::Due(drive, op));
        }
        Ok(())
    }

    // ---- what stands still --------------------------------------------------------------------

    /// In the course of a life: something stands still, in the worlds that have such.
    pub(crate) fn stand_still_some(&mut self, without: FaultSet) {
        let now = self.clock.now();
        for drive in &mut self.drives {
            if drive.stands.is_some_and(|until| until <= now) {
                (drive.stands, drive.doomed) = (None, false);
            }
        }
        let mut of_world = Prng::new(prng::mix(self.plan.seed), Purpose::Standstill);
        let has = of_world.one_in(3);
        if !has || without.has(FaultKind::Standstill) || !self.serves() {
            return;
        }
        let rng = &mut self.chance.standstill;
        if !rng.one_in(16) {
            return;
        }
        let deadline_ns = self.plan.latencies.deadline_ns;
        let ns = rng.range(deadline_ns, 3 * deadline_ns);
        match rng.below(3) {
            0 => {
                let late = rng.percent(60);
                self.machine_stands_still(ns, late);
            }
            1 => {
                let at = rng.below(u64::from(self.shards) + 1) as u16;
                let owner = at.checked_sub(1).map_or(Owner::Array, Owner::Shard);
                self.thread_stands_still(owner, ns);
            }
            _ => drop(self.answers_stand_still()),
        }
    }

    /// The whole machine stands still for so long: a virtual machine that is paused. Devices may
    /// need a while for what is under way when it goes on.
    pub(crate) fn machine_stands_still(&mut self, ns: u64, late: bool) {
        self.note(format!("the machine stands still for {} us", ns / 1000));
        let deadline_ns = self.plan.latencies.deadline_ns;
        let now = self.clock.now();
        let resumes = Time(now.0 + ns);
        let mut watched = Vec::new();
        for drive in 0..self.drives.len() {
            self.drives[drive].ssd.put_off(ns);
            self.drives[drive].ssd.prolong_tries(None, ns);
            self.drives[drive].ssd.faults.keep_peace(now, ns, resumes);
            if let Some(until) = &mut self.drives[drive].stands {
                *until = Time(until.0 + ns);
            }
            for op in self.drives[drive].ssd.unwatched() {
                let rng = &mut self.chance.standstill;
                if late && rng.percent(70) {
                    let in_ns = rng.range(3 * deadline_ns / 10, 6 * deadline_ns / 10);
                    self.watch(drive, op, Time(resumes.0 + in_ns));
                    watched.push((drive, op));
                }
            }
        }
        for pulse in &mut self.machines().pulses {
            pulse.wakes(now);
        }
        self.clock.stand_still(ns);
        let machines = self.machines();
        let standing = machines
            .standing
            .as_ref()
            .map(|(owner, ..)| pulse_of(*owner));
        for (at, pulse) in machines.pulses.iter_mut().enumerate() {
            pulse.wakes(resumes);
            // A thread that stands still goes on to do so, and did not ask for it.
            if standing != Some(at) {
                pulse.sleeps(None);
            }
        }
        // Its pulse counts up to here.
        if let Some((_, since, _)) = &mut machines.standing {
            *since = resumes;
        }
        let ticks = machines.shard_ticks.iter_mut();
        for at in ticks.chain([&mut machines.tick_at]).flatten() {
            *at = Time(at.0 + ns);
        }
        // The first thing that a thread does is to look at its clock.
        for (drive, op) in watched {
            self.clock.after(1, Happening::Due(drive, op));
        }
    }

    /// One thread stands still; the others go on.
    pub(crate) fn thread_stands_still(&mut self, owner: Owner, ns: u64) {
        let stands = self.drives.iter().any(|drive| drive.stands.is_some());
        if stands || self.machines().standing.is_some() {
            return;
        }
        self.note(format!("{owner:?} stands still for {} us", ns / 1000));
        let now = self.clock.now();
        self.pulse(owner).wakes(now);
        self.machines().standing = Some((owner, now, Vec::new()));
        self.clock.after(ns, Happening::GoesOn(owner));
    }

    /// What happens, unless it waits for a thread that stands still.
    pub(crate) fn hold_back(&mut self, happening: Happening) -> Option<Happening> {
        if self.machines.as_ref().is_none_or(|m| m.standing.is_none()) {
            return Some(happening);
        }
        let owner = match &happening {
            Happening::Io(drive, op) | Happening::Retry(drive, op) | Happening::Due(drive, op) => {
                self.drives[*drive].ssd.owner_of(*op)
            }
            Happening::ToShard(shard, _)
            | Happening::AskShard(shard, _)
            | Happening::RemoteRead(_, shard, _)
            | Happening::Passed(shard, ..)
            | Happening::WriteToken(shard, _)
            | Happening::ShardTick(shard) => Some(Owner::Shard(*shard)),
            Happening::Judged(owner, ..) => Some(*owner),
            Happening::FromShard(..)
            | Happening::AskArray(_)
            | Happening::Command(..)
            | Happening::Gone(_)
            | Happening::Overdue(..)
            | Happening::Tick => Some(Owner::Array),
            _ => None,
        };
        match &mut self.machines().standing {
            Some((standing, _, waits)) if owner == Some(*standing) => {
                waits.push(happening);
                None
            }
            _ => Some(happening),
        }
    }

    /// A thread goes on: answers of devices first, then messages, then the clock.
    pub(crate) fn goes_on(&mut self, owner: Owner) -> SimResult {
        let now = self.clock.now();
        let pulse = self.pulse(owner);
        let gap_ns = pulse.wakes(now);
        pulse.sleeps(None);
        for drive in &mut self.drives {
            drive.ssd.prolong_tries(Some(owner), gap_ns);
            drive.ssd.faults.keep_peace(now, gap_ns, now);
        }
        let Some((.., waits)) = self.machines().standing.take() else {
            return Ok(());
        };
        let (mut answers, mut rest) = (Vec::new(), Vec::new());
        let mut ticks = false;
        for one in waits {
            match one {
                Happening::Io(..) => answers.push(one),
                Happening::ShardTick(_) => ticks = true,
                _ => rest.push(one),
            }
        }
        for one in answers.into_iter().chain(rest) {
            self.happen(one)?;
        }
        if let Owner::Shard(shard) = owner
            && ticks
        {
            self.machines().shard_ticks[usize::from(shard)] = None;
            let ran = self.ran(owner);
            self.machines().shards[usize::from(shard)].tick(ran);
            self.poll_shard(shard)?;
        }
        Ok(())
    }

    /// Several devices that have I/Os in flight answer none of them for longer than the deadline,
    /// and then do: what lies behind them stands still. None may be given up while another is as
    /// late. True if there are several.
    pub(crate) fn answers_stand_still(&mut self) -> bool {
        let standing = self.machines().standing.is_some();
        let doomed = |drive: &Drive| drive.doomed || drive.is_full();
        if standing || self.drives.iter().any(doomed) {
            return false;
        }
        let looks = self.looks();
        let of_slots = looks.iter().filter_map(|look| look.in_sync);
        let several: Vec<(usize, Vec<OpNo>)> = of_slots
            .filter(|&index| {
                let faults = &self.drives[index].ssd.faults;
                !faults.gone && !faults.vanishing && faults.reset.is_none()
            })
            .map(|index| (index, self.drives[index].ssd.unwatched()))
            .filter(|(_, ops)| !ops.is_empty())
            .collect();
        if several.len() < 2 {
            return false;
        }
        let (now, deadline_ns) = (self.clock.now(), self.plan.latencies.deadline_ns);
        let rng = &mut self.chance.standstill;
        let ns = rng.range(12 * deadline_ns / 10, 18 * deadline_ns / 10);
        let until = Time(now.0 + ns);
        self.note(format!(
            "{} devices stand still for {} us",
            several.len(),
            ns / 1000
        ));
        for (index, ops) in several {
            let drive = &mut self.drives[index];
            (drive.stands, drive.doomed) = (Some(until), true);
            for op in ops {
                self.watch(index, op, until);
            }
        }
        true
    }

    /// This device is late, and no other that stood still beside it is there any more.
    pub(crate) fn stands_alone(&self, index: usize) -> bool {
        let others = self
            .drives
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != index);
        let mut others = others.map(|(_, drive)| drive);
        let stands = self.drives[index].stands.is_some();
        stands && !others.any(|drive| drive.stands.is_some() && drive.device.is_some())
    }
}
