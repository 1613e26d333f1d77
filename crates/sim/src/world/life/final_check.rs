//! The end of a world: a last life without misfortunes, and everything looked at.
//!
//! Invariants: every block is read, redundancy is checked on the media, and the content is read
//! once more with members missing. Deliberately absent: what a block may be (`oracle`).

use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::RegionState;

use crate::drive::overlay::FaultSet;
use crate::plan::Life;
use crate::plan::workload::{Ask, AskKind};
use crate::world::life::LifeOutcome;
use crate::world::life::redundancy;
use crate::world::{SimResult, World};

impl World {
    /// Nothing is under way, and no job is at work.
    pub fn at_rest(&mut self) -> bool {
        if !self.serves() || !self.all_answered() || !self.admin.commands.is_empty() {
            return false;
        }
        self.refresh_resyncing();
        let status = self.array().status();
        let rests = !self.expected.resyncing || self.resync_is_halted();
        rests && status.jobs.iter().all(|job| job.paused)
    }

    /// A resync that found what an administrator has to decide goes no further.
    fn resync_is_halted(&mut self) -> bool {
        let status = self.array().status();
        let resync = |job: &JobStatus| job.kind == JobKind::Resync && job.paused;
        !status.undecided.is_empty() && status.jobs.iter().any(resync)
    }

    /// Regions that the resync leaves to an administrator. Nobody decides them while a member is
    /// out; with all members in sync they were decided, and none is left.
    fn left_undecided(&mut self) -> Vec<RegionNo> {
        let status = self.array().status();
        match self.resync_is_halted() && status.state != ArrayState::Optimal {
            true => status.undecided,
            false => Vec::new(),
        }
    }

    pub(crate) fn finale(&mut self, outcome: LifeOutcome, without: FaultSet) -> SimResult {
        self.begin(&Life::quiet(), outcome, without)?;
        self.wait("the array starts", |world| world.serves())?;
        self.settle()?;
        if self.plan.made_whole {
            self.make_whole()?;
        }
        self.cure_decay(true)?;
        if self.resync_is_halted() {
            // Nothing rots any more: the data is right.
            self.command(Command::AcceptData);
            self.wait("it is decided", World::at_rest)?;
        }
        if self.volumes.is_some() {
            self.verify_volumes()?;
        }
        self.read_everything()?;
        if self.chance.faults.percent(30) {
            self.scrub();
            self.wait("the scrub ends", World::at_rest)?;
        }
        self.fall_asleep()?;
        let states = self.region_states();
        let looks = self.looks();
        let left = self.left_undecided();
        self.stop()?;
        if let Err(text) = redundancy::check(self, &states, &looks, &left) {
            return self.failure(text);
        }
        self.read_degraded()
    }

    /// Rebuilds go on and come to an end.
    pub(crate) fn settle(&mut self) -> SimResult {
        for index in 0..self.drives.len() {
            if let (true, Some(device)) = (
                self.drives[index].ssd.faults.gone,
                self.drives[index].device,
            ) {
                self.clock
                    .after(1000, crate::world::Happening::Gone(device));
            }
        }
        self.command(Command::StartRebuild);
        self.wait("jobs come to an end", World::at_rest)
    }

    /// With nothing to do, the array asks for no more ticks.
    fn fall_asleep(&mut self) -> SimResult {
        // A member that fails at the last reads brings a rebuild, and data moves on behind that.
        for _ in 0..2 {
            for _ in 0..3000 {
                if !self.step()? {
                    return Ok(());
                }
            }
            self.wait("jobs come to an end", World::at_rest)?;
        }
        self.stuck("an idle array does not fall asleep")
    }

    /// Every slot gets a member in sync.
    fn make_whole(&mut self) -> SimResult {
        for _ in 0..24 {
            let looks = self.looks();
            let Some(slot) = looks.iter().position(|look| look.in_sync.is_none()) else {
                return self.check_optimal();
            };
            if looks[slot].remains && self.chance.faults.percent(70) {
                self.command(Command::Remove(MemberRef::Slot(Slot(slot as u8))));
                self.wait("the member is removed", |world| {
                    world.admin.commands.is_empty()
                })?;
            }
            let Some(new) = self.fresh() else {
                return Ok(());
            };
            let add = self.command(Command::Add(new));
            self.command(Command::StartRebuild);
            self.wait("the rebuild ends", World::at_rest)?;
            if let Some(Err(error)) = self.admin.done.get(&add) {
                let text = format!("a fresh device was refused: {error}");
                return self.failure(text);
            }
        }
        self.stuck("the array is not made whole")
    }

    fn check_optimal(&mut self) -> SimResult {
        let state = self.array().status().state;
        if state == ArrayState::Optimal {
            return Ok(());
        }
        self.stuck(&format!(
            "every member is in sync and the array is {state:?}"
        ))
    }

    pub(crate) fn region_states(&mut self) -> Vec<RegionState> {
        let regions = self.geometry.regions();
        let array = self.array();
        (0..regions)
            .map(|region| array.region(RegionNo(region)))
            .collect()
    }

    /// Reads every block.
    pub fn read_everything(&mut self) -> SimResult {
        let total = self.oracle.blocks();
        let stripe = self.geometry.stripe_bytes() / self.geometry.block;
        let piece = (stripe * 3).min(self.longest_read());
        self.user.refused_reads.clear();
        self.user.refused_blocks.clear();
        let mut first = 0;
        while first < total {
            let count = piece.min(total - first);
            self.ask_for(AskKind::Read, first, count)?;
            first += count;
        }
        self.wait("everything is read", |world| world.all_answered())?;
        // An error is that of some blocks: each of the others must answer for itself.
        for ask in std::mem::take(&mut self.user.refused_reads) {
            for block in ask.first..ask.first + ask.count {
                self.ask_for(AskKind::Read, block, 1)?;
            }
        }
        self.wait("every block is read", |world| world.all_answered())
    }

    /// Makes a request as soon as the user may.
    pub(crate) fn ask_for(&mut self, kind: AskKind, first: u64, count: u64) -> SimResult {
        let ask = Ask::new(kind, first, count);
        while !self.may_ask(&ask) {
            if !self.step()? {
                self.check_alive()?;
            }
        }
        self.submit(ask)
    }

    /// Reads everything once more, with as many members missing as is fair.
    fn read_degraded(&mut self) -> SimResult {
        let (drives, mut situation) = self.condition_on_media();
        situation.resyncing = self.expected.resyncing;
        let tolerance = self.tolerance();
        let mut order: Vec<usize> = (0..drives.len()).collect();
        self.chance.faults.shuffle(&mut order);
        for slot in order {
            if let Some(index) = drives[slot].filter(|_| tolerance.may_lose(&situation, slot)) {
                situation.slots[slot].intact = false;
                self.drives[index].hidden = true;
                self.note(format!("drive {index} (slot {slot}) is taken away"));
            }
        }
        self.take_leftovers_away();
        self.launch()?;
        self.wait("the degraded array starts", |world| world.serves())?;
        self.read_everything()
    }
}
