//! Beyond the tolerance: more is lost than the level survives.
//!
//! A share of the seeds ends with a *disaster*. While it lasts requests may be answered with an
//! error, and nothing else may be wrong:
//! * what is answered is right, by the oracle: never bytes that were not written, never older ones
//!   than what was acknowledged and flushed, never zeros for what cannot be computed;
//! * an array that has lost too much says so (`failed`), answers everything with an error from then
//!   on, takes no command and writes nothing more;
//! * it starts from too little neither by itself nor by force, and says by name why.
//!
//! Then what was merely away is there again (`comeback`), and everything that was acknowledged must
//! be there with it.
//!
//! Invariant: an error is fair only from the moment at which the tolerance rules would have
//! forbidden the fault; before, and after the comeback, it is a failure as ever.
//!
//! Deliberately absent: members that went on without those that have the newest writes, and are
//! found alone. Nothing on them can tell that there was more (`part` has what can be told).

use std::ops::Range;

use strake_engine::StartError;
use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::{MemberUuid, SelectError, SlotState, Superblock};

use crate::drive::overlay::FaultSet;
use crate::plan::Life;
use crate::plan::disaster::Disaster;
use crate::plan::workload::AskKind;
use crate::world::inspect;
use crate::world::life::LifeOutcome;
use crate::world::user::PendingRequest;
use crate::world::{SimResult, World};

/// What is demanded while more is lost than the level survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Demand {
    /// The right answer.
    #[default]
    All,
    /// The right answer or an error.
    NothingWrong,
    /// An error.
    Nothing,
}

/// The names under which a start from too few members is refused.
pub(crate) fn is_too_little(error: &StartError) -> bool {
    let absent = |select: &SelectError| {
        matches!(
            select,
            SelectError::NoMembers | SelectError::AuthorityAbsent { .. }
        )
    };
    match error {
        StartError::TooFewMembers { .. } => true,
        StartError::Select(select) => absent(select),
        _ => false,
    }
}

impl World {
    /// The disaster, and what comes after it.
    pub(crate) fn go_beyond(
        &mut self,
        disaster: Disaster,
        outcome: LifeOutcome,
        without: FaultSet,
    ) -> SimResult<LifeOutcome> {
        self.silent.armed = None;
        self.metadata.spare();
        let group = self.chance.faults.index(self.geometry.groups as usize);
        self.note(format!("beyond the tolerance: {disaster:?}, group {group}"));
        self.begin(&Life::quiet(), outcome, without)?;
        self.wait("the array starts", |world| world.serves())?;
        self.work()?;
        match disaster {
            Disaster::WithPower => {
                self.stats.beyond_with_power += 1;
                self.fall(true)?;
                let victims = self.victims_at_rest(group);
                self.refuse_too_little()?;
                self.come_back(&victims)
            }
            Disaster::Sectors => self.spoil_beyond(group),
            Disaster::Metadata => self.destroy_metadata(group),
            Disaster::Logs => self.destroy_logs(),
            Disaster::Parted => self.part(without),
            Disaster::Unlogged => self.lose_unlogged(),
            _ => self.lose_too_many(disaster, group, without),
        }
    }

    /// Requests, some of which are left under way.
    pub(crate) fn work(&mut self) -> SimResult {
        self.user.asks_left += self.chance.faults.range(4, 40);
        self.pump()?;
        let events = self.chance.faults.pick(&[0, 20, 100, 400]);
        let events = self.chance.faults.below(events + 1);
        self.steps(events)
    }

    pub(crate) fn steps(&mut self, events: u64) -> SimResult {
        for _ in 0..events {
            if !self.step()? {
                break;
            }
        }
        Ok(())
    }

    /// The slots of a group; there may be fewer groups than when it was chosen.
    fn slots_of(&self, group: usize) -> Range<usize> {
        let (width, groups) = (self.geometry.width, self.geometry.groups as usize);
        let first = group % groups * width;
        first..first + width
    }

    /// Drives of the slots of a group that hold a member in sync, and are there.
    fn serving(&mut self, group: usize) -> Vec<(usize, usize)> {
        let looks = self.looks();
        let in_sync = self
            .slots_of(group)
            .filter_map(|slot| Some((slot, looks[slot].in_sync?)));
        in_sync
            .filter(|&(_, drive)| !self.drives[drive].ssd.faults.gone)
            .collect()
    }

    /// More members of the group are gone than the level survives.
    fn is_beyond(&mut self, group: usize) -> bool {
        self.geometry.width - self.serving(group).len() > self.geometry.m
    }

    fn lose_too_many(
        &mut self,
        disaster: Disaster,
        group: usize,
        without: FaultSet,
    ) -> SimResult<LifeOutcome> {
        match disaster {
            Disaster::Rebuilding => {
                self.stats.beyond_rebuilding += 1;
                self.begin_to_rebuild(group)?;
            }
            Disaster::Replaying => {
                self.stats.beyond_replaying += 1;
                self.begin_to_replay(without)?;
            }
            Disaster::OneByOne => self.stats.beyond_one_by_one += 1,
            _ => self.stats.beyond_at_once += 1,
        }
        let pause = match disaster {
            Disaster::AtOnce => 0,
            _ => self.chance.faults.pick(&[0, 30, 300]),
        };
        let mut victims = self.strike_beyond(group, pause)?;
        self.outage(group)?;
        // If not, a member was whole in time.
        let too_many = self.is_beyond(group);
        let power = self.chance.faults.percent(50);
        if power || self.chance.faults.percent(50) {
            self.fall(power)?;
        } else {
            self.stop_failed()?;
        }
        if too_many {
            // A member that was replaced in memory only is still the one in sync.
            victims.extend(self.victims_at_rest(group));
            self.refuse_too_little()?;
        }
        self.come_back(&victims)
    }

    /// Members of the group vanish until too many are gone, and perhaps some more.
    fn strike_beyond(&mut self, group: usize, pause: u64) -> SimResult<Vec<usize>> {
        let mut victims = Vec::new();
        if self.chance.faults.percent(30) {
            let slots = self.slots_of(group);
            let targets: Vec<usize> = self.looks()[slots]
                .iter()
                .filter_map(|look| look.incoming)
                .filter(|&drive| !self.drives[drive].ssd.faults.gone)
                .collect();
            for drive in targets {
                self.vanish(drive)?;
                victims.push(drive);
            }
        }
        while !self.is_beyond(group) || self.chance.faults.percent(20) {
            let serving = self.serving(group);
            if serving.is_empty() {
                break;
            }
            let (slot, drive) = self.chance.faults.pick(&serving);
            let situation = self.situation();
            if !self.tolerance().may_lose(&situation, slot) && self.expected.demand == Demand::All {
                self.expected.demand = Demand::NothingWrong;
                self.note("from here on errors are fair".to_owned());
            }
            self.vanish(drive)?;
            victims.push(drive);
            let events = self.chance.faults.below(pause + 1);
            self.steps(events)?;
        }
        Ok(victims)
    }

    fn begin_to_rebuild(&mut self, group: usize) -> SimResult {
        let serving = self.serving(group);
        if let Some(&(slot, _)) = serving.first()
            && let Some(new) = self.fresh()
        {
            self.command(Command::Replace(Slot(slot as u8), new));
        }
        let events = self.chance.faults.below(150);
        self.steps(events)
    }

    /// The power goes, and the array starts anew, in the middle of its replay.
    fn begin_to_replay(&mut self, without: FaultSet) -> SimResult {
        let situation = self.situation();
        if !self.tolerance().may_crash(&situation) {
            return Ok(());
        }
        let outcome = self.crash(true)?;
        self.begin(&Life::quiet(), outcome, without)?;
        let events = self.chance.faults.below(60);
        self.steps(events)
    }

    /// Too much is gone: nothing wrong is answered, and as soon as the array had to notice it says
    /// that it has failed, and does nothing more.
    fn outage(&mut self, group: usize) -> SimResult {
        self.wait("it serves, or says that it has failed", |world| {
            world.serves() || world.has_failed()
        })?;
        if !self.serves() {
            return self.nothing_is_written();
        }
        self.user.asks_left = 0;
        self.user.held = None;
        self.probe_all()?;
        self.wait("requests are answered", |world| world.all_answered())?;
        if !self.is_beyond(group) {
            // A spare was whole in time.
            return Ok(());
        }
        if !self.has_failed() {
            return self.stuck("too many members are gone, and nothing says so");
        }
        self.stats.beyond_failures += 1;
        self.expected.demand = Demand::Nothing;
        self.nothing_is_written()?;
        let command = self.command(Command::StartScrub(ScrubMode::Repair));
        self.wait("the command is answered", |world| {
            world.admin.commands.is_empty()
        })?;
        if self.admin.done.get(&command) != Some(&Err(CommandError::NotServing)) {
            return self.failure("a failed array takes commands");
        }
        Ok(())
    }

    fn has_failed(&mut self) -> bool {
        self.array().status().state == ArrayState::Failed
    }

    /// A write and a read in every stripe.
    fn probe_all(&mut self) -> SimResult {
        let stripe = self.user.shape.stripe;
        let all = self.oracle.blocks();
        for first in (0..all).step_by(stripe as usize) {
            // Stripes of two shapes do not end where the array does.
            let block = first + self.chance.faults.below(stripe.min(all - first));
            for kind in [AskKind::Write, AskKind::Read] {
                self.ask_for(kind, block, 1)?;
            }
        }
        Ok(())
    }

    /// Nothing is asked of any device any more, whatever the user asks for.
    fn nothing_is_written(&mut self) -> SimResult {
        self.steps(2000)?;
        if !self.serves() {
            return Ok(());
        }
        let accepted = |world: &World| -> u64 {
            let drives = world.drives.iter();
            drives.map(|drive| drive.ssd.accepted()).sum()
        };
        let before = accepted(self);
        let blocks = self.oracle.blocks();
        self.ask_for(AskKind::Write, 0, 1)?;
        self.ask_for(AskKind::Read, blocks - 1, 1)?;
        self.ask_for(AskKind::WriteZeroes, 0, blocks)?;
        self.ask_for(AskKind::Discard, 0, blocks)?;
        self.ask_for(AskKind::Flush, 0, 0)?;
        self.wait("requests are answered", |world| world.all_answered())?;
        match accepted(self) == before {
            true => Ok(()),
            false => self.failure("a failed array goes on writing or reading"),
        }
    }

    /// The answer to a request is an error because too much is lost; true if that is fair.
    pub(crate) fn excused_beyond(&mut self, asked: &PendingRequest, error: RequestError) -> bool {
        let named = matches!(error, RequestError::Failed | RequestError::Unreadable);
        let fair = match self.expected.demand {
            Demand::All => false,
            Demand::NothingWrong => named,
            Demand::Nothing => error == RequestError::Failed,
        };
        if fair {
            self.stats.beyond_errors += 1;
            match &asked.ticket {
                // Some of it may be in place: with members that come back stale it is as torn as
                // what was under way at a power cut.
                Some(ticket) => {
                    self.oracle.unanswered(ticket);
                    let blocks = asked
                        .asks()
                        .flat_map(|ask| ask.first..ask.first + ask.count);
                    self.expected.torn_blocks.extend(blocks);
                }
                None => self.oracle.unread(asked.moment),
            }
        }
        fair
    }

    // ---- the end of the outage ----------------------------------------------------------------

    /// The process ends in the middle of it.
    pub(crate) fn fall(&mut self, power: bool) -> SimResult {
        self.expected.demand = Demand::All;
        self.crash(power)?;
        self.forget_what_was_pulled();
        Ok(())
    }

    /// What lost its power lost what its cache held: to what was not durable that is a power cut.
    fn forget_what_was_pulled(&mut self) {
        if self.drives.iter().any(|d| d.ssd.faults.gone && d.pulled) {
            self.oracle.crash(true);
        }
    }

    /// An array that has failed is stopped by command.
    fn stop_failed(&mut self) -> SimResult {
        if !self.has_failed() {
            return self.fall(false);
        }
        let id = self.command(Command::Stop);
        self.wait("the array stops", |world| world.machines().stopped)?;
        if self.admin.done.get(&id) != Some(&Ok(Changed::Yes)) {
            return self.failure("a failed array refused to stop");
        }
        self.fall(false)
    }

    /// While nothing runs: members in sync of a group, by what is durable, that go as well, so that
    /// too many are gone.
    fn victims_at_rest(&mut self, group: usize) -> Vec<usize> {
        let (drives, _) = self.condition_on_media();
        let mut there: Vec<usize> = drives[self.slots_of(group)]
            .iter()
            .flatten()
            .copied()
            .collect();
        self.chance.faults.shuffle(&mut there);
        let least = (there.len() + 1).saturating_sub(self.geometry.width - self.geometry.m);
        let count = self.chance.faults.range(least as u64, there.len() as u64);
        there.truncate(count as usize);
        // These would do, too.
        there.extend(self.doubtful(group, &drives));
        for &drive in &there {
            self.note(format!("drive {drive} is gone"));
            self.drives[drive].ssd.faults.gone = true;
        }
        there
    }

    /// Members that only some tables call in sync in a slot of the group.
    pub(crate) fn doubtful(&self, group: usize, agreed: &[Option<usize>]) -> Vec<usize> {
        let slots = self.slots_of(group);
        let present = self.present();
        let in_sync = |member: MemberUuid| {
            // A table from before the shape changed has fewer rows.
            let rows = |sb: &Superblock| {
                let mut rows = sb.slots.iter().skip(slots.start).take(slots.len());
                rows.any(|row| row.member == member && row.state == SlotState::InSync)
            };
            present.iter().any(|(_, sb)| rows(sb))
        };
        let doubtful = present
            .iter()
            .filter(|(index, sb)| !agreed.contains(&Some(*index)) && in_sync(sb.member));
        doubtful.map(|(index, _)| *index).collect()
    }

    /// With these gone the array starts neither by itself nor by force.
    fn refuse_too_little(&mut self) -> SimResult {
        let hidden = self.hide_who_is_out();
        let refused = self.refused_by_name();
        for (drive, hidden) in self.drives.iter_mut().zip(hidden) {
            (drive.hidden, drive.device) = (hidden, None);
        }
        refused
    }

    /// Hides members that were out: such a member may have continued alone, and could not tell by
    /// itself. Returns which drives were hidden before.
    pub(crate) fn hide_who_is_out(&mut self) -> Vec<bool> {
        let hidden = self.drives.iter().map(|drive| drive.hidden).collect();
        for index in self.not_live() {
            self.drives[index].hidden = true;
        }
        hidden
    }

    fn refused_by_name(&mut self) -> SimResult {
        for force in [false, true] {
            match self.assemble(force) {
                Ok(_) => return self.failure(format!("it starts from too little (force {force})")),
                Err(error) => {
                    self.note(format!("refused: {error}"));
                    self.stats.beyond_refusals += 1;
                    if !is_too_little(&error) {
                        return self.failure(format!("refused for another reason: {error}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Drives with a member that the newest table of all, there or gone, does not call live.
    pub(crate) fn not_live(&mut self) -> Vec<usize> {
        let gone: Vec<bool> = self.drives.iter().map(|d| d.ssd.faults.gone).collect();
        self.drives
            .iter_mut()
            .for_each(|d| d.ssd.faults.gone = false);
        let present = self.present();
        for (drive, gone) in self.drives.iter_mut().zip(gone) {
            drive.ssd.faults.gone = gone;
        }
        let Some(newest) = inspect::newest(&present) else {
            return Vec::new();
        };
        let out = |sb: &strake_format::Superblock| {
            !inspect::calls_live(newest, sb.member) && !newest.spares.contains(&sb.member)
        };
        present
            .iter()
            .filter(|(_, sb)| out(sb))
            .map(|&(index, _)| index)
            .collect()
    }
}
