//! The course of a world: lives of the process between starts and ends, and the end of all.
//!
//! Invariants: a fault happens only where the tolerance rules permit it at that moment; at the end
//! every block is read, redundancy is checked on the media, and the content is read once more with
//! members missing.
//!
//! Deliberately absent: what a fault does to a device (`drive`) or to the array (the engine).

pub mod beyond_tolerance;
pub mod comeback;
mod ending;
pub mod final_check;
mod living;
mod redundancy;
mod restore;
mod spoilt;
mod targeted;
mod trim;

use std::collections::BTreeSet;

use strake_engine::Geometry;
use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::{RegionState, SlotState, WriteHole};

use crate::drive::overlay::{FaultKind, FaultSet, Overlay};
use crate::plan::{Action, Life, draw_spare_delay_ms, draw_target_us};
use crate::prng::Prng;
use crate::world::fault::silent::WriteFault;
use crate::world::fault::tolerance::{Condition, Situation};
use crate::world::inspect::{self, Look, calls_live};
use crate::world::{SimResult, World};

/// How the last life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifeOutcome {
    /// Nothing was being written and redundancy was true.
    pub calm: bool,
}

impl World {
    /// Everything that the plan says, and the verification at the end.
    pub fn run(&mut self, without: FaultSet) -> SimResult {
        let lives = self.plan.lives.clone();
        let mut outcome = LifeOutcome {
            calm: self.oracle_is_defined(),
        };
        for life in &lives {
            if life.enlarge_bytes > 0 && !without.has(FaultKind::Command) {
                self.enlarge(life.enlarge_bytes);
            }
            self.begin(life, outcome, without)?;
            outcome = self.live(life, without)?;
        }
        if let Some(disaster) = self.plan.beyond.filter(|_| !without.has(FaultKind::Beyond)) {
            self.volumes = None;
            outcome = self.go_beyond(disaster, outcome, without)?;
        }
        self.finale(outcome, without)
    }

    fn oracle_is_defined(&self) -> bool {
        self.plan.init != strake_engine::create::Init::Sync
    }

    // ---- beginning ----------------------------------------------------------------------------

    pub(crate) fn begin(
        &mut self,
        life: &Life,
        outcome: LifeOutcome,
        without: FaultSet,
    ) -> SimResult {
        if !without.has(FaultKind::StaleReturn) {
            self.bring_back(life.return_percent);
        }
        let spared = !self.tolerance().may_start_without(outcome.calm);
        let missing = !without.has(FaultKind::MissingAtStart)
            && !spared
            && self.chance.faults.percent(life.missing_percent);
        if self.decay.is_empty() {
            self.change_pasts(spared, without);
        }
        if missing {
            self.hide_some();
        }
        if self.chance.faults.percent(15) {
            self.try_forced_start()?;
        }
        self.take_leftovers_away();
        // A crash may have torn the other copy, so that this one is all that the member has.
        if !without.has(FaultKind::Latent) && !spared && self.chance.faults.percent(20) {
            self.spoil_metadata();
        }
        self.arm_start(without);
        self.launch()
    }

    /// Tries a forced start from a part of the members, fair or not. The start is refused with its
    /// error code, or there are enough members: never a crash, never an array with too few.
    fn try_forced_start(&mut self) -> SimResult {
        let before: Vec<bool> = self.drives.iter().map(|drive| drive.hidden).collect();
        for index in 0..self.drives.len() {
            self.drives[index].hidden |= self.chance.faults.percent(40);
        }
        let tried = self.assemble(true);
        for (drive, hidden) in self.drives.iter_mut().zip(before) {
            (drive.hidden, drive.device) = (hidden, None);
        }
        let array = match tried {
            Ok(array) => array,
            Err(error) => {
                self.stats.refused_starts += 1;
                self.note(format!("by force, it is refused: {error}"));
                return Ok(());
            }
        };
        let status = array.status();
        let slots = status.members.iter().filter(|m| m.slot.is_some());
        // It is shown in sync only when all know of it.
        let serves = |m: &&MemberStatus| {
            let row = m.slot.and_then(|slot| status.superblock.slot(slot));
            m.device.is_some() && row.is_some_and(|row| row.state == SlotState::InSync)
        };
        let in_sync = slots.filter(serves).count();
        // Older images alone are an array of the shape that it had then.
        let geometry = Geometry::of(&status.superblock);
        let groups = geometry.slots() / geometry.width;
        let enough = groups * (geometry.width - geometry.m);
        if in_sync < enough {
            return self.failure("by force, it starts with too few members");
        }
        Ok(())
    }

    /// Some of the lost and hidden devices come back.
    pub(crate) fn bring_back(&mut self, percent: u64) {
        for index in 0..self.drives.len() {
            let returns = self.chance.faults.percent(percent);
            let drive = &mut self.drives[index];
            if drive.hidden {
                drive.hidden = !returns;
            }
            if !drive.ssd.faults.gone || !returns || !drive.used {
                continue;
            }
            if drive.pulled && !self.known_to_be_out(index) {
                continue;
            }
            let drive = &mut self.drives[index];
            (drive.ssd.faults.gone, drive.pulled) = (false, false);
            self.stats.stale_returns += 1;
            self.note(format!("drive {index} is there again"));
        }
    }

    /// When a device returns that lost what its cache had answered, every other member must know
    /// that it is out, since the only one that knows could be missing at the start.
    fn known_to_be_out(&mut self, index: usize) -> bool {
        self.drives[index].ssd.faults.gone = false;
        let own = self.table_of(index);
        self.drives[index].ssd.faults.gone = true;
        let Some(own) = own else { return true };
        let present = self.present();
        let Some(newest) = inspect::newest(&present) else {
            return false;
        };
        let mut current = present
            .iter()
            .filter(|(_, sb)| sb.epoch == newest.epoch || calls_live(newest, sb.member));
        current.all(|(_, sb)| !calls_live(sb, own.member))
    }

    /// The condition of the slots as the superblocks tell it: in sync only if all say so.
    pub fn condition_on_media(&self) -> (Vec<Option<usize>>, Situation) {
        // An older image says nothing of the members now; a drive that was emptied and kept a
        // superblock says what it did, and is no member.
        let mut present = self.present();
        present.retain(|(index, _)| !self.pasts.is_older(*index));
        let newest = inspect::newest(&present);
        let mut slots = vec![None; self.geometry.slots()];
        let mut situation = Situation::default();
        for (slot, serving) in slots.iter_mut().enumerate() {
            let member = newest
                .and_then(|sb| sb.slots.get(slot))
                .map(|record| record.member);
            let holder = present
                .iter()
                .find(|(index, sb)| Some(sb.member) == member && !self.pasts.is_strange(*index));
            // What a spare knows counts, too: a member that it knows to be out does not start
            // alone.
            let current = present.iter().filter(|(_, sb)| {
                newest.is_some_and(|n| sb.epoch == n.epoch || calls_live(n, sb.member))
            });
            let agreed = current.clone().all(|(_, sb)| {
                // A table from before the shape changed has fewer.
                let record = sb.slots.get(slot);
                record.is_some_and(|record| {
                    Some(record.member) == member && record.state == SlotState::InSync
                })
            });
            let mut condition = Condition::default();
            if let Some(&(index, _)) = holder.filter(|_| agreed) {
                *serving = Some(index);
                let look = Look {
                    in_sync: Some(index),
                    ..Look::default()
                };
                condition = self.condition(&look);
            }
            situation.slots.push(condition);
        }
        (slots, situation)
    }

    /// Leaves out members at the next start, as many as are fair.
    fn hide_some(&mut self) {
        let (drives, mut situation) = self.condition_on_media();
        let tolerance = self.tolerance();
        let order = self.victims();
        let most = self.chance.faults.range(1, 3) as usize;
        let mut hidden = 0;
        for slot in order {
            let Some(index) = drives[slot].filter(|_| hidden < most) else {
                continue;
            };
            if tolerance.may_lose(&situation, slot) {
                situation.slots[slot].intact = false;
                self.drives[index].hidden = true;
                hidden += 1;
                self.stats.missing_at_start += 1;
                self.note(format!(
                    "drive {index} (slot {slot}) is missing at the start"
                ));
            }
        }
        self.hide_others();
    }

    /// What the array could not tell from a member that went on alone is not there.
    pub(crate) fn take_leftovers_away(&mut self) {
        for index in self.unwitnessed() {
            self.drives[index].hidden = true;
            self.note(format!("drive {index} is a leftover: it is taken away"));
        }
    }

    // ---- living -------------------------------------------------------------------------------

    fn note_threshold(&mut self, threshold: Option<CommandId>) {
        if let Some(id) = threshold
            && matches!(self.admin.done.get(&id), Some(Ok(_)))
            && self.plan.read_error_threshold == Some(1000)
        {
            self.admin.errors_forgiven = true;
        }
    }

    pub(crate) fn check_alive(&mut self) -> SimResult {
        if self.clock.is_empty() && !(self.all_answered() && self.admin.commands.is_empty()) {
            return self.stuck("nothing more happens");
        }
        Ok(())
    }

    /// Beyond the tolerance: reads of a member fail where parity is still untrue. Nothing may be
    /// computed from it, so requests there may be refused; they may not be answered wrongly.
    fn fail_reads_in_resync(&mut self, count: u32) {
        let parity = self.geometry.m > 0 && !self.geometry.mirrored();
        if count == 0 || !parity || !self.expected.excused.is_empty() || !self.serves() {
            return;
        }
        let situation = self.situation();
        if !situation.resyncing || situation.slots.iter().any(|slot| !slot.intact) {
            return;
        }
        let states = self.region_states();
        let untrue = (0..)
            .zip(states)
            .filter(|(_, s)| *s == RegionState::NeedSync);
        self.expected.excused = untrue.map(|(region, _)| RegionNo(region)).collect();
        let slot = self.chance.faults.below(self.geometry.slots() as u64) as usize;
        let Some(index) = self.looks()[slot]
            .in_sync
            .filter(|_| !self.expected.excused.is_empty())
        else {
            return;
        };
        self.note(format!(
            "{count} reads of drive {index} (slot {slot}) will fail"
        ));
        let faults = &mut self.drives[index].ssd.faults;
        (faults.read_errors, faults.read_error) = (count, None);
        self.drives[index].doomed |= !self.admin.errors_forgiven;
    }

    // ---- misfortunes --------------------------------------------------------------------------

    fn act(&mut self, action: Action, without: FaultSet) -> SimResult {
        let kind = kind_of(action);
        if without.has(kind) || !self.serves() {
            return Ok(());
        }
        let harmless = matches!(
            action,
            Action::Slow
                | Action::Scrub
                | Action::Repair
                | Action::PauseScrub
                | Action::StopScrub
                | Action::Set
                | Action::Rot
        );
        if !harmless && self.is_corrupt() {
            return Ok(());
        }
        self.take_live_image();
        if !harmless {
            self.ruin_a_member(without);
        }
        match action {
            Action::Lose | Action::WriteError | Action::Stall | Action::Latent | Action::Fail => {
                self.strike(action)
            }
            Action::LoseTarget => self.lose_target(),
            Action::Rot if self.plan.decays => self.decay(),
            Action::Rot => self.rot(),
            // Which of them a change of volumes writes over again is not known.
            Action::LoseWrite | Action::MisdirectWrite if self.volumes.is_some() => Ok(()),
            Action::LoseWrite => {
                self.arm(WriteFault::Lost);
                Ok(())
            }
            Action::MisdirectWrite => {
                self.arm(WriteFault::Misdirected);
                Ok(())
            }
            Action::LoseMetadata => {
                self.arm_metadata(WriteFault::Lost, true);
                Ok(())
            }
            Action::MisdirectMetadata => {
                self.arm_metadata(WriteFault::Misdirected, true);
                Ok(())
            }
            Action::Slow => {
                self.slow_down(&[1, 5, 30]);
                Ok(())
            }
            Action::Trim => self.trim(),
            Action::Accept => self.accept_some(100),
            Action::SpoilRecent => self.spoil_recent(),
            Action::Return => {
                self.take_back(without);
                Ok(())
            }
            _ => self.administer(action),
        }
    }

    pub(crate) fn choose(&mut self, items: &[usize]) -> Option<usize> {
        if items.is_empty() {
            None
        } else {
            Some(self.chance.faults.pick(items))
        }
    }

    pub(crate) fn slow_down(&mut self, by: &[u32]) {
        let open = self.open_drives();
        if let Some(index) = self.choose(&open) {
            self.drives[index].ssd.faults.slowness = self.chance.faults.pick(by);
        }
    }

    fn open_drives(&self) -> Vec<usize> {
        (0..self.drives.len())
            .filter(|&index| self.drives[index].device.is_some())
            .collect()
    }

    /// Hits a member that may be hit.
    fn strike(&mut self, action: Action) -> SimResult {
        let situation = self.situation();
        let tolerance = self.tolerance();
        let fair: Vec<usize> = match action {
            Action::Latent => (0..situation.slots.len())
                .filter(|&s| situation.slots[s].intact)
                .collect(),
            _ => (0..situation.slots.len())
                .filter(|&s| tolerance.may_lose(&situation, s))
                .collect(),
        };
        let Some(slot) = self.choose(&fair) else {
            return if action == Action::Fail {
                self.ask_too_much()
            } else {
                Ok(())
            };
        };
        let Some(index) = self.looks()[slot].in_sync else {
            return Ok(());
        };
        // A slow survivor records late what happened.
        if action != Action::Latent && self.chance.faults.one_in(3) {
            self.slow_down(&[5, 30]);
        }
        match action {
            Action::Lose => self.vanish_somehow(index),
            Action::WriteError => {
                self.fail_next_io(slot, index);
                Ok(())
            }
            Action::Stall => {
                let count = self.chance.faults.range(1, 4) as u32;
                self.note(format!(
                    "{count} I/Os of drive {index} (slot {slot}) will time out"
                ));
                self.drives[index].ssd.faults.stalls = count;
                self.drives[index].doomed = true;
                self.drives[index].stalls = true;
                Ok(())
            }
            Action::Latent => self.spoil(&situation, slot, index),
            _ => {
                self.drives[index].doomed = true;
                let fail = Command::Fail(Slot(slot as u8));
                let command = self.found_empty_instead(index).unwrap_or(fail);
                self.command(command);
                Ok(())
            }
        }
    }

    /// Nothing is left to lose somewhere: there the array must refuse to fail a member.
    pub fn ask_too_much(&mut self) -> SimResult {
        // A spare that waits, or a command that brings one, could be whole in its slot before the
        // command arrives.
        let members = self.array().status().members;
        let spare = members.iter().any(|m| m.state == MemberState::Spare);
        if spare || !self.admin.commands.is_empty() {
            return Ok(());
        }
        let looks = self.looks();
        let m = self.geometry.m;
        let exhausted: Vec<usize> = (0..looks.len())
            .filter(|&slot| looks[slot].in_sync.is_some())
            .filter(|slot| {
                let groups = self.geometry.neighbours();
                let mut groups = groups.filter(|group| group.contains(slot));
                groups.any(|group| {
                    let group = &looks[group];
                    // A rebuild could end while the command is on its way.
                    let rebuilding = group.iter().any(|look| look.incoming.is_some());
                    let lost = group.iter().filter(|look| look.in_sync.is_none());
                    !rebuilding && lost.count() == m
                })
            })
            .collect();
        if let Some(slot) = self.choose(&exhausted) {
            let id = self.command(Command::Fail(Slot(slot as u8)));
            self.admin.refusals.push(id);
        }
        Ok(())
    }

    /// A drive vanishes, perhaps noticed by the runtime.
    pub fn vanish(&mut self, index: usize) -> SimResult {
        self.vanish_pulled(index, self.plan.pulled_percent)
    }

    /// The same, one time in so many with its power.
    pub fn vanish_pulled(&mut self, index: usize, percent: u64) -> SimResult {
        let pulled = self.chance.faults.percent(percent);
        let noticed = self.chance.faults.percent(50);
        self.note(format!(
            "drive {index} ({:?}) vanishes{}{}",
            self.drives[index].device,
            if pulled { " with its power" } else { "" },
            if noticed { "" } else { ", unnoticed" }
        ));
        let drive = &mut self.drives[index];
        drive.pulled = pulled;
        drive.ssd.vanish(pulled, &mut self.chance.fate);
        if let Some(device) = drive.device.filter(|_| noticed) {
            let ns = self.chance.faults.below(2_000_000);
            self.clock.after(ns, crate::world::Happening::Gone(device));
        }
        Ok(())
    }

    /// The next write, flush or read of a member fails.
    fn fail_next_io(&mut self, slot: usize, index: usize) {
        let chance = &mut self.chance.removal;
        let error = draw_io_error(chance);
        let (of_flush, of_read) = (chance.one_in(4), chance.one_in(4));
        let reads = chance.range(1, 2) as u32;
        let drive = &mut self.drives[index];
        let of_flush = of_flush && drive.ssd.volatile_cache();
        let faults = &mut drive.ssd.faults;
        let what = match (of_flush, of_read) {
            (true, _) => {
                (faults.flush_errors, faults.write_error) = (1, Some(error));
                "flush"
            }
            (false, true) => {
                (faults.read_errors, faults.read_error) = (reads, Some(error));
                "read"
            }
            (false, false) => {
                (faults.write_errors, faults.write_error) = (1, Some(error));
                "write"
            }
        };
        // What could not be sent may be tried again later, with what the member holds.
        drive.stalls |= matches!(error, IoError::Unsent(_));
        drive.doomed = true;
        self.note(format!(
            "the next {what} of drive {index} (slot {slot}) will fail: {error:?}"
        ));
    }

    fn lose_target(&mut self) -> SimResult {
        let targets: Vec<usize> = self
            .looks()
            .iter()
            .filter_map(|look| look.incoming)
            .collect();
        match self.choose(&targets) {
            Some(index) if !self.drives[index].ssd.faults.gone => self.vanish(index),
            _ => Ok(()),
        }
    }

    fn spoil(&mut self, situation: &Situation, slot: usize, index: usize) -> SimResult {
        let layout = self.superblock.layout;
        let size = self.geometry.block;
        let first = layout.data_offset / size;
        let count = self.chance.faults.range(1, 3);
        let mut at = first + self.chance.faults.below(layout.data_bytes / size - count);
        if self.plan.lose_blocks && self.chance.faults.percent(60) {
            at = self.beside_another(slot).unwrap_or(at);
        }
        let row = |block: u64| (block * size - layout.data_offset) / self.geometry.strip;
        let rows: BTreeSet<u64> = (at..at + count).map(row).collect();
        let rows: Vec<u64> = rows.into_iter().collect();
        if self.tolerance().may_spoil(situation, slot, &rows) {
            self.note(format!(
                "drive {index} (slot {slot}): rows {rows:?} become unreadable"
            ));
            self.drives[index].ssd.faults.latent.extend(at..at + count);
            self.stats.latent_errors += count;
            self.note_lost_blocks();
        }
        Ok(())
    }

    /// A sector that another member of the group cannot read either.
    fn beside_another(&mut self, slot: usize) -> Option<u64> {
        let data_offset = self.superblock.layout.data_offset / self.geometry.block;
        let looks = self.looks();
        let mut groups = self.geometry.neighbours();
        let group = groups.find(|group| group.contains(&slot));
        let others = group.unwrap_or_default().filter(|&other| other != slot);
        let latent = |index: usize| self.drives[index].ssd.faults.latent.iter().copied();
        let sectors: Vec<u64> = others
            .filter_map(|other| looks[other].in_sync)
            .flat_map(latent)
            .filter(|&sector| sector >= data_offset)
            .collect();
        let limit = data_offset + self.superblock.layout.data_bytes / self.geometry.block - 3;
        (!sectors.is_empty()).then(|| self.chance.faults.pick(&sectors).min(limit))
    }

    fn administer(&mut self, action: Action) -> SimResult {
        let looks = self.looks();
        let slots = |fits: &dyn Fn(&Look) -> bool| -> Vec<usize> {
            (0..looks.len())
                .filter(|&slot| fits(&looks[slot]))
                .collect()
        };
        match action {
            Action::Remove => {
                let idle = slots(&|look| look.in_sync.is_none() && look.incoming.is_none());
                if let Some(slot) = self.choose(&idle) {
                    self.command(Command::Remove(MemberRef::Slot(Slot(slot as u8))));
                }
            }
            Action::Add => {
                if let Some(new) = self.fresh() {
                    self.command(Command::Add(new));
                }
            }
            Action::Replace => {
                let whole = slots(&|look| look.in_sync.is_some() && look.incoming.is_none());
                let Some(slot) = self.choose(&whole) else {
                    return Ok(());
                };
                let members = self.array().status().members;
                let spare = members.iter().find(|m| m.state == MemberState::Spare);
                match spare.and_then(|spare| spare.device) {
                    Some(spare) if slot % 2 == 0 => {
                        self.command(Command::ReplaceBySpare(Slot(slot as u8), spare));
                    }
                    _ => {
                        if let Some(new) = self.fresh() {
                            self.command(Command::Replace(Slot(slot as u8), new));
                        }
                    }
                }
            }
            Action::StopRebuild => drop(self.command(Command::StopRebuild)),
            Action::StartRebuild => drop(self.command(Command::StartRebuild)),
            Action::StartInit => drop(self.command(Command::StartInit)),
            Action::StopInit => drop(self.command(Command::StopInit)),
            Action::Grow => drop(self.command(Command::Grow(Vec::new()))),
            Action::AddParity => {
                if let Some(new) = self.fresh() {
                    let device = new.device;
                    let id = self.command(Command::AddParity(vec![new]));
                    self.admin.offered.insert(id, vec![device]);
                }
            }
            Action::DropParity => drop(self.command(Command::DropParity(Fewer::of(1)))),
            Action::Restripe => drop(self.restripe(1 + looks.len() % 2, DataShape::default())),
            Action::Regroup => self.regroup(),
            Action::Lower => self.lower_some(),
            Action::Strip => self.restrip(),
            Action::StopRestripe => drop(self.command(Command::StopRestripe)),
            Action::ContinueRestripe => drop(self.command(Command::ContinueRestripe)),
            Action::Scrub => self.scrub(),
            Action::Repair => drop(self.command(Command::StartScrub(ScrubMode::Repair))),
            Action::PauseScrub => drop(self.command(Command::PauseScrub)),
            Action::StopScrub => drop(self.command(Command::StopScrub)),
            Action::Set => self.set_some(),
            _ => {}
        }
        Ok(())
    }

    /// Changes a setting; or, now and then, resets the counters or renames the array.
    fn set_some(&mut self) {
        let priority = self.chance.faults.range(1, 100) as u8;
        let target_us = draw_target_us(&mut self.chance.faults);
        let delay_ms = draw_spare_delay_ms(&mut self.chance.faults);
        if self.plan.resets_policy && self.chance.faults.percent(70) {
            let policies = [WriteHole::Closed, WriteHole::Degraded, WriteHole::Resync];
            let policy = Setting::WriteHole(self.chance.faults.pick(&policies));
            let hedged = Setting::HedgedReads(self.chance.faults.percent(50));
            let setting = self.chance.faults.pick(&[policy, policy, hedged]);
            self.command(Command::Set(setting));
            return;
        }
        let setting = self.chance.faults.pick(&[
            Setting::RebuildPriority(priority),
            Setting::ResyncPriority(priority),
            Setting::ScrubPriority(priority),
            Setting::LatencyTargetUs(target_us),
            Setting::SpareDelayMs(delay_ms),
        ]);
        self.command(match setting {
            Setting::ScrubPriority(n) if n % 3 == 0 => Command::ResetCounters(None),
            Setting::ResyncPriority(n) if n % 3 == 0 => {
                let name = format!("name-{n}").parse();
                Command::Rename(name.expect("a name"))
            }
            setting => Command::Set(setting),
        });
    }

    pub(crate) fn scrub(&mut self) {
        self.refresh_resyncing();
        let corrupt = self.is_corrupt() || !self.decay.is_empty();
        // One that is at work goes on, and counts what it found while something was wrong.
        let jobs = self.array().status().jobs;
        let goes_on = jobs.iter().any(|job| job.kind == JobKind::Scrub);
        let must_agree = !self.expected.resyncing && !corrupt && !goes_on;
        let mode = match self.chance.faults.percent(50) {
            true => ScrubMode::Repair,
            false => ScrubMode::Check,
        };
        self.begin_scrub(mode, must_agree);
    }

    /// Asks for a scrub, which finds nothing if it must agree.
    pub fn begin_scrub(&mut self, mode: ScrubMode, must_agree: bool) -> CommandId {
        self.expected.scrub_must_agree = must_agree;
        self.command(Command::StartScrub(mode))
    }

    /// A device that is not in use, with a new identity; an old one is as good as new.
    pub fn fresh(&mut self) -> Option<NewDevice> {
        let free: Vec<usize> = (0..self.drives.len())
            .filter(|&index| {
                let drive = &self.drives[index];
                let idle = drive.device.is_none() && drive.ssd.in_flight() == 0;
                // An array that grew may have outgrown what was its member once.
                let layout = &self.superblock.layout;
                let fits = layout.for_device(drive.ssd.len(), self.superblock.strip_bytes);
                idle && fits.is_ok() && !drive.hidden && !self.named(index)
            })
            .collect();
        let index = self.choose(&free)?;
        self.metadata.forget(index);
        self.pasts.forget(index);
        self.ruined.forget(index);
        self.drives[index].ssd.faults = Overlay::default();
        self.drives[index].doomed = false;
        self.drives[index].stalls = false;
        self.drives[index].pulled = false;
        self.drives[index].used = true;
        let device = self.open(index);
        let member = self.identity();
        self.note(format!("drive {index} becomes {device:?}"));
        Some(NewDevice {
            device,
            info: self.info(index),
            member,
        })
    }
}

/// How an I/O fails.
fn draw_io_error(rng: &mut Prng) -> IoError {
    // EIO, EINVAL, EROFS, EBADE, EREMOTEIO.
    let other = rng.pick(&[5, 22, 30, 52, 121]);
    // EAGAIN, ENOMEM, ENOBUFS.
    let unsent = rng.pick(&[11, 12, 105]);
    rng.pick(&[
        IoError::Unclear,
        IoError::Unclear,
        IoError::Media,
        IoError::NoSpace,
        IoError::Other(other),
        IoError::Unsent(unsent),
    ])
}

fn kind_of(action: Action) -> FaultKind {
    match action {
        Action::Lose | Action::LoseTarget => FaultKind::Gone,
        Action::WriteError => FaultKind::WriteError,
        Action::Stall => FaultKind::Stall,
        Action::Latent | Action::SpoilRecent => FaultKind::Latent,
        Action::Slow => FaultKind::Slow,
        Action::Return => FaultKind::StaleReturn,
        Action::Rot => FaultKind::Rot,
        Action::LoseWrite | Action::LoseMetadata => FaultKind::LostWrite,
        Action::MisdirectWrite | Action::MisdirectMetadata => FaultKind::Misdirected,
        _ => FaultKind::Command,
    }
}
