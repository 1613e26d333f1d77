//! What was merely away is there again: one member, or, after a disaster, all; then the array is to
//! be whole again.
//!
//! Invariants:
//! * what was acknowledged and durable before is there; with `--force` all but what its statement
//!   covers, which is blocks of members that are missing, in regions that were being written;
//! * force is needed only where the array was writing without a log and a member is missing, and
//!   once it was used and the array stopped cleanly, never again;
//! * afterwards everything is as if nothing had happened: the end of the world checks it.
//!
//! Deliberately absent: the disaster itself (`beyond_tolerance`).

use strake_engine::event::*;
use strake_engine::units::*;
use strake_engine::{Array, Aside, StartError};
use strake_format::{
    Layout, MemberUuid, RegionState, SUPERBLOCK_BYTES, SelectError, SlotState, Superblock,
    copy_to_replace, region_map, unreadable,
};

use crate::canary::Canary;
use crate::drive::overlay::{FaultKind, FaultSet, Overlay};
use crate::plan::workload::AskKind;
use crate::prng;
use crate::world::launch::{Reading, map};
use crate::world::life::LifeOutcome;
use crate::world::life::beyond_tolerance::{Demand, is_too_little};
use crate::world::{SimResult, World};

impl World {
    /// The drive carries a member of the array that is out, and is not used.
    pub(crate) fn is_away(&self, index: usize) -> bool {
        let drive = &self.drives[index];
        let quiet = drive.ssd.in_flight() == 0 || self.has(Canary::ReturnsBusy);
        let idle = drive.used && drive.device.is_none() && quiet;
        idle && self.named(index)
    }

    /// One of the drives that are away is there again, perhaps as an image of what it was.
    pub(crate) fn take_back(&mut self, without: FaultSet) {
        let all = 0..self.drives.len();
        let away: Vec<usize> = all.filter(|&index| self.is_away(index)).collect();
        if let Some(index) = self.choose(&away) {
            if !without.has(FaultKind::OlderImage) && self.named(index) {
                self.swap_for_live_image(index);
            }
            self.offer(index);
        }
    }

    /// A drive that was away is there again, with what it holds, and is offered to the array.
    pub fn offer(&mut self, index: usize) -> Option<CommandId> {
        let drive = &mut self.drives[index];
        let latent = std::mem::take(&mut drive.ssd.faults.latent);
        drive.ssd.faults = Overlay {
            latent,
            ..Overlay::default()
        };
        (drive.doomed, drive.pulled, drive.hidden) = (false, false, false);
        drive.stalls = false;
        let (superblock, copies) = drive.carried()?;
        if superblock.array != self.superblock.array {
            return None;
        }
        self.stats.stale_returns += 1;
        let device = self.open(index);
        self.note(format!("drive {index} is there again as {device:?}"));
        let id = self.command(Command::Return(Returning {
            device,
            info: self.info(index),
            copy_to_replace: copy_to_replace(copies),
            emptied: self.drives[index].emptied(&superblock),
            map: map(&self.drives[index].ssd, &superblock, Reading::Right),
            superblock: Box::new(superblock.as_ref().clone()),
        }));
        self.admin.offered.insert(id, vec![device]);
        Some(id)
    }

    /// Is the drive's member named by the array (and might return)?
    pub(crate) fn named(&self, index: usize) -> bool {
        let Some(machines) = &self.machines else {
            return false;
        };
        let Some(own) = self.drives[index].named(self.superblock.array) else {
            return false;
        };
        machines
            .array
            .status()
            .members
            .iter()
            .any(|member| member.member == own)
    }

    /// Leaves out devices that no table calls in sync, whatever they record.
    pub(crate) fn hide_others(&mut self) {
        let present = self.present();
        let counts = |member: MemberUuid| {
            let row = |sb: &Superblock| sb.slot_of(member).and_then(|at| sb.slot(at).copied());
            let rows = present.iter().filter_map(|(_, sb)| row(sb));
            let mut states = rows.map(|row| row.state);
            states.any(|state| state == SlotState::InSync)
        };
        let others = present.iter().filter(|(_, sb)| !counts(sb.member));
        let others: Vec<usize> = others.map(|(index, _)| *index).collect();
        for index in others {
            if self.chance.faults.percent(30) {
                self.drives[index].hidden = true;
                self.note(format!("drive {index}, no member, is missing at the start"));
            }
        }
    }

    /// Members come back, first some of them, then all.
    pub(crate) fn come_back(&mut self, victims: &[usize]) -> SimResult<LifeOutcome> {
        // The writes that were cut off may be lost where a member comes back stale.
        self.doubt_torn_blocks();
        // One member that was in service to the end must be there: the others alone could not tell
        // that there was more.
        let out = self.not_live();
        let survives = |index: &usize| !out.contains(index);
        let survivors = self
            .present()
            .iter()
            .map(|(index, _)| *index)
            .any(|i| survives(&i));
        if survivors && self.chance.faults.percent(60) {
            let some: Vec<usize> = victims.to_vec();
            for index in some {
                if self.chance.faults.percent(60) {
                    self.is_there_again(index);
                }
            }
            if self.some_suffice()? {
                return self.start_again();
            }
        }
        for &index in victims {
            self.is_there_again(index);
        }
        self.start_again()
    }

    fn is_there_again(&mut self, index: usize) {
        let drive = &mut self.drives[index];
        (drive.ssd.faults.gone, drive.pulled, drive.hidden) = (false, false, false);
        self.note(format!("drive {index} is there again"));
    }

    /// Those that are there now are enough, and the array is to be started from them. If it is
    /// refused, force does not help, unless all that is wrong is what force is for.
    fn some_suffice(&mut self) -> SimResult<bool> {
        let refusal = self.assemble(false).err();
        let forced = self.assemble(true).is_ok();
        self.drives.iter_mut().for_each(|drive| drive.device = None);
        match refusal {
            None => Ok(self.chance.faults.percent(50)),
            Some(StartError::DirtyDegraded) if forced => Ok(self.chance.faults.percent(50)),
            Some(error) if forced && !has_emptied(&error) => {
                self.failure(format!("force starts in spite of: {error}"))
            }
            Some(error) => {
                self.note(format!("still refused: {error}"));
                self.stats.beyond_refusals += 1;
                Ok(false)
            }
        }
    }

    /// The array starts, by itself or by force if that is what is said; everything is read, written
    /// to, and stopped.
    pub(crate) fn start_again(&mut self) -> SimResult<LifeOutcome> {
        self.take_leftovers_away();
        let parity = self.geometry.m > 0 && !self.geometry.mirrored();
        // Without a log, or not yet resynced from when there was none.
        let unlogged = parity && (!self.covered_on_media() || self.untrusted_on_media());
        let force = match self.assemble(false) {
            Ok(_) => false,
            Err(StartError::DirtyDegraded) if unlogged => self.accept_losses()?,
            Err(error) => return self.failure(format!("it does not come back: {error}")),
        };
        self.stats.comebacks += 1;
        self.launch_as(force)?;
        self.wait("the array is back", |world| world.serves())?;
        if force && self.chance.faults.percent(40) {
            return self.lose_another();
        }
        if self.chance.faults.percent(50) {
            self.read_everything()?;
        }
        // Stopped in the middle of whatever it has to do first, or when that is done.
        if self.chance.faults.percent(60) {
            self.work()?;
            self.until_content()?;
            self.settle()?;
            self.read_everything()?;
        }
        self.stop()
    }

    /// After a start by force one more member is lost, before parity is true again: what force was
    /// used for is not said of it. It may answer an error, and nothing wrong.
    fn lose_another(&mut self) -> SimResult<LifeOutcome> {
        let looks = self.looks();
        let can_do_without = |slot: &usize| {
            let groups = self.geometry.neighbours();
            let mut groups = groups.filter(|group| group.contains(slot));
            let survives = groups.all(|group| {
                let lost = looks[group].iter().filter(|look| look.in_sync.is_none());
                lost.count() < self.geometry.m
            });
            looks[*slot].in_sync.is_some() && survives
        };
        let slots: Vec<usize> = (0..looks.len()).filter(can_do_without).collect();
        if let Some(slot) = self.choose(&slots)
            && let Some(drive) = looks[slot].in_sync
        {
            self.stats.beyond_after_force += 1;
            self.expected.demand = Demand::NothingWrong;
            self.vanish(drive)?;
            self.read_everything()?;
            self.fall(false)?;
            self.is_there_again(drive);
            self.doubt_torn_blocks();
            return self.start_again();
        }
        self.stop()
    }

    /// Force suffices; nothing is demanded any more of what it says that it gives up.
    fn accept_losses(&mut self) -> SimResult<bool> {
        self.stats.forced_starts += 1;
        let array = match self.assemble(true) {
            Ok(array) => array,
            Err(error) => return self.failure(format!("force does not suffice: {error}")),
        };
        self.give_up(&array);
        Ok(true)
    }

    /// Blocks of members that are missing, in regions that were being written.
    pub fn give_up(&mut self, array: &Array) {
        let members = array.status().members;
        let in_sync = |slot: Slot| {
            let mut there = members.iter().filter(|m| m.state == MemberState::InSync);
            there.any(|member| member.slot == Some(slot))
        };
        let geometry = self.geometry.clone();
        for block in 0..self.oracle.blocks() {
            let place = geometry.locate(block * geometry.block);
            let region = geometry.region(geometry.row(place.stripe).1);
            let open = array.region(region) == RegionState::NeedSync;
            if open && !in_sync(geometry.slot(place.stripe, place.column)) {
                self.oracle.undefine(block, 1);
            }
        }
    }

    // ---- other disasters ----------------------------------------------------------------------

    /// Sectors of more members than parity covers become unreadable, in the same rows: exactly what
    /// they held is lost.
    pub(crate) fn spoil_beyond(&mut self, group: usize) -> SimResult<LifeOutcome> {
        self.stats.beyond_sectors += 1;
        self.plan.lose_blocks = true;
        let width = self.geometry.width;
        let layout = self.superblock.layout;
        let per_strip = self.geometry.strip / self.geometry.block;
        for _ in 0..self.chance.faults.range(1, 4) {
            let row = self.chance.faults.below(self.geometry.rows);
            let first = self.chance.faults.below(per_strip);
            let count = self.chance.faults.range(1, per_strip - first);
            let from = (layout.data_offset + row * self.geometry.strip) / self.geometry.block;
            // Parities may have gone since.
            let looks = self.looks();
            let ours = looks.chunks(width).nth(group);
            let drives: Vec<usize> = ours
                .into_iter()
                .flatten()
                .filter_map(|look| look.in_sync)
                .collect();
            let least = (self.geometry.m + 1).min(drives.len()) as u64;
            let victims = self.chance.faults.range(least, drives.len() as u64) as usize;
            for &drive in &drives[..victims] {
                let sectors = from + first..from + first + count;
                self.drives[drive].ssd.faults.latent.extend(sectors);
                self.stats.latent_errors += count;
            }
            self.note(format!("row {row}: {victims} strips become unreadable"));
            self.note_lost_blocks();
            let events = self.chance.faults.below(100);
            self.steps(events)?;
        }
        self.until_content()?;
        if self.chance.faults.percent(50) {
            self.read_everything()?;
        }
        if self.chance.faults.percent(50) {
            return self.stop();
        }
        // The replay, or the resync, meets them.
        self.work()?;
        self.fall(true)?;
        self.doubt_torn_blocks();
        self.start_again()
    }

    /// Log areas are destroyed: of all members after a clean stop, else of as many as may be lost.
    /// Nothing is missed.
    pub(crate) fn destroy_logs(&mut self) -> SimResult<LifeOutcome> {
        self.stats.beyond_logs += 1;
        let crashed = self.chance.faults.percent(50);
        if crashed {
            self.fall(true)?;
            self.doubt_torn_blocks();
        } else {
            self.until_content()?;
            self.stop()?;
        }
        let (drives, _) = self.condition_on_media();
        let (width, m) = (self.geometry.width, self.geometry.m);
        let layout = self.superblock.layout;
        let two = self.geometry.regroups() || !self.admin.wary.is_empty();
        for group in drives.chunks(width) {
            let mut there: Vec<usize> = group.iter().flatten().copied().collect();
            self.chance.faults.shuffle(&mut there);
            let whole = there
                .iter()
                .all(|&i| self.drives[i].ssd.faults.latent.is_empty());
            let most = match (crashed, whole && !two) {
                (true, true) => (there.len() + m).saturating_sub(width),
                (true, false) => 0,
                (false, _) => there.len(),
            };
            for &index in &there[..most] {
                let garbage = self.chance.faults.percent(50);
                let mut bytes = vec![0; layout.log_bytes as usize];
                if garbage {
                    prng::fill(self.chance.faults.bits(), &mut bytes);
                }
                self.note(format!("drive {index}: its log is destroyed"));
                self.drives[index].ssd.rot(layout.log_offset, &bytes);
            }
        }
        self.start_again()
    }

    /// Superblocks of too many members, or a page of the map or the list of unreadable blocks on
    /// all of them, are destroyed: the start is refused with its error code, and writes nothing, so
    /// that an administrator can restore a copy of what was there.
    pub(crate) fn destroy_metadata(&mut self, group: usize) -> SimResult<LifeOutcome> {
        self.stats.beyond_metadata += 1;
        if self.chance.faults.percent(50) {
            self.crash(true)?;
        } else {
            self.until_content()?;
            self.stop()?;
        }
        let (drives, _) = self.condition_on_media();
        let width = self.geometry.width;
        let layout = self.superblock.layout;
        let what = self.chance.faults.below(3);
        let groups = match what {
            0 => group..group + 1,
            _ => 0..drives.len() / width,
        };
        let mut victims = Vec::new();
        for group in groups {
            victims.extend(drives[group * width..(group + 1) * width].iter().flatten());
            victims.extend(self.doubtful(group, &drives));
        }
        let mut saved = Vec::new();
        for index in victims {
            let ssd = &self.drives[index].ssd;
            let places = match what {
                0 => Layout::superblock_offsets(ssd.len()),
                1 => [0, 1].map(|sequence| region_map::place(&layout, 0, sequence)),
                _ => unreadable::places(&layout),
            };
            for place in places {
                let bytes = ssd.held(place, SUPERBLOCK_BYTES).to_vec();
                saved.push((index, place, bytes));
            }
        }
        let hidden = self.hide_who_is_out();
        for (index, place, bytes) in &saved {
            self.drives[*index].ssd.rot(*place, &vec![0; bytes.len()]);
        }
        self.note(format!("metadata {what} is destroyed"));
        for force in [false, true] {
            let refusal = self.assemble(force).err();
            let named = match what {
                0 => refusal.as_ref().is_some_and(is_too_little),
                1 => matches!(refusal, Some(StartError::MapDamaged(_))),
                _ => refusal == Some(StartError::UnreadableDamaged),
            };
            self.stats.beyond_refusals += 1;
            if !named {
                return self.failure(format!("metadata {what} is destroyed: {refusal:?}"));
            }
        }
        for (drive, hidden) in self.drives.iter_mut().zip(hidden) {
            (drive.hidden, drive.device) = (hidden, None);
        }
        for (index, place, bytes) in &saved {
            self.drives[*index].ssd.rot(*place, bytes);
        }
        self.start_again()
    }

    /// Writes were under way without a log, and members that the level could do without are gone
    /// with the power: force starts it, and gives up only what it says.
    pub(crate) fn lose_unlogged(&mut self) -> SimResult<LifeOutcome> {
        self.stats.beyond_unlogged += 1;
        self.fall(true)?;
        self.doubt_torn_blocks();
        let (drives, situation) = self.condition_on_media();
        let width = self.geometry.width;
        let two = self.geometry.regroups() || !self.admin.wary.is_empty();
        for (first, group) in (0..).step_by(width).zip(drives.chunks(width)) {
            let mut there: Vec<usize> = group.iter().flatten().copied().collect();
            let spare = there.len().saturating_sub(width - self.geometry.m);
            let latent = situation.slots[first..first + width]
                .iter()
                .any(|slot| !slot.spoiled_rows.is_empty());
            self.chance.faults.shuffle(&mut there);
            let count = self.chance.faults.below(spare as u64 + 1) as usize;
            for &index in there[..count].iter().filter(|_| !latent && !two) {
                self.note(format!("drive {index} is missing"));
                self.drives[index].hidden = true;
            }
        }
        self.start_again()
    }

    /// Two parts of the array, each of which can run alone, are started apart. Together they are
    /// refused; the one that is kept has its own past.
    pub(crate) fn part(&mut self, without: FaultSet) -> SimResult<LifeOutcome> {
        self.until_content()?;
        self.settle()?;
        let (width, k) = (self.geometry.width, self.geometry.k);
        let looks = self.looks();
        let serving: Vec<Option<usize>> = looks.iter().map(|look| look.in_sync).collect();
        let outcome = self.stop()?;
        let all: Option<Vec<usize>> = serving.iter().copied().collect();
        let all = all.filter(|_| self.geometry.m > 0 && self.may_part(without));
        if let Some((all, lives)) = all.zip(self.pasts.branches()) {
            return self.branch(all, lives);
        }
        let enough = |group: &[Option<usize>]| group.iter().flatten().count() >= 2 * k;
        if !self.may_part(without) || !serving.chunks(width).all(enough) {
            return Ok(outcome);
        }
        self.stats.beyond_parted += 1;
        let mut halves: [Vec<usize>; 2] = [Vec::new(), Vec::new()];
        for group in serving.chunks(width) {
            let mut members: Vec<usize> = group.iter().flatten().copied().collect();
            self.chance.faults.shuffle(&mut members);
            let most = members.len() - k;
            let cut = self.chance.faults.range(k as u64, most as u64) as usize;
            halves[0].extend(&members[..cut]);
            halves[1].extend(&members[cut..]);
        }
        if self.pasts.parts_by_images() {
            return self.go_back(halves);
        }
        let before = self.oracle.clone();
        let mut pasts = Vec::new();
        for half in &halves {
            self.oracle = before.clone();
            self.live_alone(half)?;
            pasts.push(self.oracle.clone());
        }
        self.show_only(&[&halves[0][..], &halves[1][..]].concat());
        for force in [false, true] {
            let refusal = self.assemble(force).err();
            let split = matches!(
                refusal,
                Some(StartError::Select(SelectError::SplitBrain { .. }))
            );
            if !split {
                return self.failure(format!("two pasts are put together: {refusal:?}"));
            }
            self.stats.beyond_refusals += 1;
        }
        let kept = self.chance.faults.index(2);
        self.oracle = pasts.swap_remove(kept);
        self.keep_only(&halves[kept]);
        self.start_again()
    }

    /// Drives may be exchanged for what they were, or be left out.
    fn may_part(&self, without: FaultSet) -> bool {
        let whole = (0..self.drives.len()).all(|i| self.drives[i].ssd.faults.latent.is_empty());
        let two = self.geometry.regroups() || !self.admin.wary.is_empty();
        whole && !two && !without.has(FaultKind::Kill)
    }

    /// The array is started twice from one past, so often in a row each time, and members of the
    /// first time are put beside those of the second: together they are no array.
    fn branch(&mut self, all: Vec<usize>, lives: [u64; 2]) -> SimResult<LifeOutcome> {
        self.stats.beyond_branches += 1;
        let past = self.contents(&all);
        let before = self.oracle.clone();
        for _ in 0..lives[0] {
            self.live_alone(&all)?;
        }
        let most = self.geometry.m.min(all.len() - 1);
        let first = self.pasts.some_of_a_branch(all.clone(), most);
        let of_first = self.contents(&first);
        self.put_contents(past);
        self.oracle = before;
        for _ in 0..lives[1] {
            self.live_alone(&all)?;
        }
        self.put_contents(of_first);
        for &drive in &first {
            self.pasts.is_older_now(drive);
        }
        self.note(format!("drives {first:?} are of another branch"));
        self.show_only(&all);
        for force in [false, true] {
            let refusal = self.assemble(force).err();
            let split = |error: &StartError| {
                matches!(error, StartError::Select(SelectError::SplitBrain { .. }))
            };
            if !refusal.as_ref().is_some_and(split) {
                return self.failure(format!("two branches are put together: {refusal:?}"));
            }
            self.stats.beyond_refusals += 1;
        }
        let rest: Vec<usize> = all.into_iter().filter(|d| !first.contains(d)).collect();
        self.show_only(&rest);
        self.start_and_offer("the rest starts", first)?;
        self.stop()?;
        self.keep_only(&rest);
        self.start_again()
    }

    /// The array goes on, and then one part of it is what it was before, and is started alone. The
    /// other part holds what was acknowledged since, and is not taken for something else.
    fn go_back(&mut self, [older, apart]: [Vec<usize>; 2]) -> SimResult<LifeOutcome> {
        let images = self.contents(&older);
        let before = self.oracle.clone();
        self.live_alone(&[&older[..], &apart[..]].concat())?;
        self.go_apart(images, &apart);
        self.oracle = before;
        self.show_only(&older);
        self.start_and_offer("the older part starts", apart)?;
        self.stop()?;
        self.are_given_up();
        self.keep_only(&older);
        self.start_again()
    }

    /// What is shown starts, and others are offered to it.
    fn start_and_offer(&mut self, what: &str, others: Vec<usize>) -> SimResult {
        self.launch()?;
        self.wait(what, |world| world.serves())?;
        for drive in others {
            if let Some(id) = self.offer(drive) {
                self.wait("the answer", |world| world.answer_to(id).is_some())?;
            }
        }
        Ok(())
    }

    fn show_only(&mut self, members: &[usize]) {
        for (index, drive) in self.drives.iter_mut().enumerate() {
            drive.hidden = !members.contains(&index);
            drive.device = None;
        }
    }

    /// A part of the array is started where nothing else is, and written to.
    fn live_alone(&mut self, members: &[usize]) -> SimResult {
        self.show_only(members);
        self.note(format!("drives {members:?} alone:"));
        self.launch()?;
        self.wait("the part starts", |world| world.serves())?;
        self.ask_for(AskKind::Write, 0, 1)?;
        self.work()?;
        self.until_content()?;
        self.stop().map(drop)
    }

    /// The past of all others is given up: they are wiped.
    fn keep_only(&mut self, members: &[usize]) {
        for index in 0..self.drives.len() {
            let drive = &mut self.drives[index];
            (drive.hidden, drive.device) = (false, None);
            if members.contains(&index) {
                continue;
            }
            drive.used = false;
            for place in Layout::superblock_offsets(drive.ssd.len()) {
                drive.ssd.rot(place, &[0; SUPERBLOCK_BYTES]);
            }
        }
    }
}

/// Too few are there without those that lost their content, and force takes these too.
fn has_emptied(error: &StartError) -> bool {
    let StartError::TooFewMembers {
        missing,
        tolerated,
        aside,
    } = error
    else {
        return false;
    };
    let emptied = aside
        .iter()
        .filter(|(_, aside)| matches!(aside, Aside::Emptied { .. }));
    let emptied = emptied.count();
    emptied > 0 && missing.saturating_sub(emptied) <= *tolerated
}
