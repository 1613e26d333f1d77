//! Looking at a world: what serves each slot, what faults are fair, how things stand.
//!
//! Invariant: looking changes nothing that the engine or the oracle could notice.
//!
//! Deliberately absent: judging what is seen.

use std::borrow::Borrow;
use std::sync::Arc;

use strake_engine::Shard;
use strake_engine::event::*;
use strake_engine::units::*;
use strake_format::{Level, MemberUuid, RegionState, SlotState, Superblock};

use crate::canary::Canary;
use crate::world::fault::tolerance::{Condition, Rules, Situation, Tolerance};
use crate::world::{Machines, SimResult, World};

/// After one in so many polls of shards all invariants of the shard are checked. At each, worlds
/// take a fifth longer.
const CHECKED_POLLS: u64 = 4;

/// What serves a slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Drive of the member in sync.
    pub in_sync: Option<usize>,
    /// Drive of the member being rebuilt.
    pub incoming: Option<usize>,
    /// A member is named there that is not in service.
    pub remains: bool,
}

impl Machines {
    /// A shard writes only in regions that are Dirty on the members. (One that holds, or that does
    /// not have the array's shape yet, gets the regions of another shape with its next message.)
    fn dirty_before_writes(&self, shard: u16) -> Result<(), String> {
        let machine = &self.shards[usize::from(shard)];
        if machine.holds() || *machine.geometry() != **self.array.geometry() {
            return Ok(());
        }
        let regions = self.array.geometry().regions();
        let writes = |region: &RegionNo| machine.is_written(*region);
        let mut written = (0..regions).map(RegionNo).filter(writes);
        match written.find(|&region| !self.array.is_written(region)) {
            Some(RegionNo(region)) => {
                let state = self.array.region(RegionNo(region));
                let text = format!("shard {shard} writes in region {region}, which is {state:?}");
                Err(text)
            }
            None => Ok(()),
        }
    }
}

/// The newest of these superblocks.
pub(crate) fn newest<T: Borrow<Superblock>>(present: &[(usize, T)]) -> Option<&T> {
    let tables = present.iter().map(|(_, sb)| sb);
    tables.max_by_key(|sb| {
        let sb: &Superblock = (*sb).borrow();
        (sb.epoch, sb.generation)
    })
}

/// Is the member in sync or being rebuilt, by this table?
pub(crate) fn calls_live(table: &Superblock, member: MemberUuid) -> bool {
    let row = table.slot_of(member).and_then(|slot| table.slot(slot));
    row.is_some_and(|row| row.state.is_live())
}

impl World {
    /// What must be true of a shard that was polled to its end. All of it is looked at after some
    /// polls: a request or an operation that was left behind is so at the next of them, too.
    pub(crate) fn check_shard(&mut self, shard: u16) -> SimResult {
        let machines = self.machines();
        machines.polls += 1;
        let checked = match machines.polls.is_multiple_of(CHECKED_POLLS) {
            true => machines.shards[usize::from(shard)].invariants(),
            false => Ok(()),
        };
        let checked = checked.and_then(|()| machines.dirty_before_writes(shard));
        match checked {
            Ok(()) => Ok(()),
            Err(violated) => self.failure(format!("invariant of shard {shard}: {violated}")),
        }
    }

    /// What must be true of the array that was polled to its end.
    pub(crate) fn check_array(&mut self) -> SimResult {
        let machines = self.machines();
        let shards = 0..machines.shards.len() as u16;
        let checked = machines.array.invariants();
        let checked = checked.and_then(|()| {
            let mut shards = shards;
            shards.try_for_each(|shard| machines.dirty_before_writes(shard))
        });
        match checked {
            Ok(()) => Ok(()),
            Err(violated) => self.failure(format!("invariant of the array: {violated}")),
        }
    }

    /// What serves each slot, as the array says.
    pub fn looks(&mut self) -> Vec<Look> {
        let mut looks = vec![Look::default(); self.geometry.slots()];
        let status = self.array().status();
        for member in &status.members {
            let Some(slot) = member.slot else { continue };
            // A slot of another shape, which is not announced yet.
            let Some(look) = looks.get_mut(slot.index()) else {
                continue;
            };
            let drive = member.device.map(|device| self.drive_of(device));
            match member.state {
                MemberState::InSync => look.in_sync = drive,
                MemberState::Rebuilding => look.incoming = drive,
                MemberState::Failed | MemberState::Missing | MemberState::Stale => {
                    look.remains = !member.member.is_nil();
                }
                MemberState::Spare => {}
            }
        }
        looks
    }

    /// The slots that the array shows in sync, with their drives.
    pub(crate) fn shown_in_sync(&mut self) -> Vec<(usize, usize)> {
        let looks = self.looks().into_iter().enumerate();
        let found = looks.filter_map(|(slot, look)| Some((slot, look.in_sync?)));
        found.collect()
    }

    /// When the status shows a slot in sync, another member may be pulled: so every member shown as
    /// in sync must record all of them as in sync, also after a crash.
    pub(crate) fn shown_is_on_media(&mut self, shown: &[(usize, usize)]) -> SimResult<()> {
        if self.is_corrupt() {
            return Ok(());
        }
        for &(_, holder) in shown {
            let Some(table) = self.table_of(holder) else {
                continue;
            };
            // Of a superblock that went astray, or of an older one, the others tell.
            if self.is_damaged(holder) || self.pasts.is_strange(holder) {
                continue;
            }
            let forgotten = |slot: usize| {
                let row = table.slots.get(slot);
                row.is_none_or(|row| row.state != SlotState::InSync)
            };
            if let Some((slot, _)) = shown.iter().find(|(slot, _)| forgotten(*slot)) {
                return self.failure(format!(
                    "slot {slot} was shown in sync, and drive {holder} says otherwise"
                ));
            }
        }
        Ok(())
    }

    /// Drives with a place that is not surely theirs yet.
    pub(crate) fn newcomers(&mut self) -> Vec<usize> {
        let status = self.array().status();
        let joins = |member: &&MemberStatus| member.state == MemberState::Rebuilding;
        let devices = status.members.iter().filter(joins);
        let devices = devices.filter_map(|member| member.device);
        devices.map(|device| self.drive_of(device)).collect()
    }

    /// They have no table that a member lacks which was shown in sync, or which that table calls in
    /// sync, and which knows nothing of them: it would overrule an array that goes on without
    /// having heard of it.
    pub(crate) fn newcomers_heard_last(
        &mut self,
        newcomers: &[usize],
        shown: &[(usize, usize)],
    ) -> SimResult<()> {
        if self.is_corrupt() {
            return Ok(());
        }
        let table = |drive: usize| {
            let table = self.table_of(drive);
            table.filter(|_| !self.is_damaged(drive))
        };
        for &newcomer in newcomers {
            let Some(own) = table(newcomer).filter(|own| calls_live(own, own.member)) else {
                continue;
            };
            // An array that starts without a known device records that in a new epoch.
            let lacks = |known: Arc<Superblock>| {
                let knows = calls_live(&known, own.member) || known.spares.contains(&own.member);
                own.epoch > known.epoch && !knows
            };
            // One that only the new table calls in sync is a newcomer, too: by its own table it
            // serves in no slot.
            let in_sync = |by: &Superblock, member| {
                let mut rows = by.slots.iter();
                rows.any(|row| row.state == SlotState::InSync && row.member == member)
            };
            // One that was replaced, and takes its slot back because the replacement is lost, is a
            // newcomer, too, where the table with the replacement was durable. Its own table is
            // from before, and calls it in sync. An array that starts by this table alone lacks
            // every member that heard the durable one, and takes a new epoch.
            let takes_back = |known: &Superblock| {
                let row = own.slot_of(known.member).and_then(|slot| own.slot(slot));
                let mut rows = own.slots.iter();
                let others_heard = rows.any(|row| {
                    row.state == SlotState::InSync && row.known.heard > known.generation
                });
                row.is_some_and(|row| row.since > known.epoch) && others_heard
            };
            let called = |&drive: &usize| {
                table(drive).is_some_and(|known| {
                    let both = in_sync(&own, known.member) && in_sync(&known, known.member);
                    both && !takes_back(&known)
                })
            };
            let ours = |drive: &usize| !self.pasts.is_strange(*drive);
            let called = (0..self.drives.len()).filter(ours).filter(called);
            // A replacement that has just taken its place is shown in sync; until the table that
            // says so is durable, it is a spare by its own, and the member that it replaces counts.
            let shown = shown.iter().map(|&(_, holder)| holder).filter(ours);
            let shown =
                shown.filter(|&holder| table(holder).is_some_and(|t| in_sync(&t, t.member)));
            let holders = shown.chain(called);
            let mut behind = holders.filter(|&holder| table(holder).is_some_and(&lacks));
            if let Some(holder) = behind.next() {
                return self.failure(format!(
                    "drive {newcomer} joins, and has a table that drive {holder} lacks"
                ));
            }
        }
        Ok(())
    }

    /// The array as far as faults go.
    pub fn situation(&mut self) -> Situation {
        self.refresh_resyncing();
        let looks = self.looks();
        // What is shown in sync is, whatever comes.
        let whole = |look: &Look| match look.in_sync {
            Some(_) => self.condition(look),
            None => Condition::default(),
        };
        let slots = looks.iter().map(whole).collect();
        let regions = self.geometry.regions();
        let array = self.array();
        let dirty = (0..regions).any(|region| array.region(RegionNo(region)) == RegionState::Dirty);
        let array_ios = self.machines().array_ios;
        let writing = dirty || array_ios > 0 || !self.all_answered();
        Situation {
            slots,
            resyncing: self.expected.resyncing,
            writing,
        }
    }

    /// Leftovers that no start can tell from members that went on alone: out of the array, with a
    /// table of their own that never took effect, and none is there that this table calls in sync
    /// and that never saw it. The array is right to refuse to start beside one; a person takes it
    /// away.
    pub(crate) fn unwitnessed(&self) -> Vec<usize> {
        let present = self.present();
        let Some(newest) = newest(&present) else {
            return Vec::new();
        };
        let contradicts = |own: &Superblock| {
            let mut rows = own.slots.iter().zip(&newest.slots);
            let edition = newest.edition_of(own.epoch);
            edition.is_some_and(|edition| edition != own.editions[0])
                || rows.any(|(own_row, row)| row.since <= own.epoch && own_row != row)
        };
        let witnessed = |own: &Superblock| {
            // What an image from before the table says of it is nothing.
            let others = present
                .iter()
                .filter(|(drive, sb)| sb.member != own.member && !self.pasts.is_strange(*drive));
            let mut current = others.filter(|(_, sb)| calls_live(newest, sb.member));
            current.any(|(_, sb)| {
                let row = own.slot_of(sb.member).and_then(|slot| own.slot(slot));
                row.is_some_and(|row| row.state == SlotState::InSync)
            })
        };
        let leftover = |own: &Superblock| !calls_live(newest, own.member);
        let alone = |own: &Superblock| leftover(own) && contradicts(own) && !witnessed(own);
        let alone = present.iter().filter(|(_, own)| alone(own));
        alone.map(|&(index, _)| index).collect()
    }

    /// The condition of a slot that this serves.
    pub fn condition(&self, look: &Look) -> Condition {
        let Some(drive) = look.in_sync.map(|index| &self.drives[index]) else {
            return Condition::default();
        };
        let faults = &drive.ssd.faults;
        let errors = faults.write_errors + faults.flush_errors;
        let fine = !faults.gone && !faults.vanishing && errors == 0 && faults.stalls == 0;
        let layout = &self.superblock.layout;
        let row = |block: &u64| {
            let data = (block * drive.ssd.block).checked_sub(layout.data_offset);
            let data = data.filter(|offset| *offset < layout.data_bytes);
            data.map(|offset| offset / self.geometry.strip)
        };
        let mut spoiled_rows: Vec<u64> = faults.latent.iter().filter_map(row).collect();
        spoiled_rows.sort_unstable();
        spoiled_rows.dedup();
        Condition {
            intact: fine && !drive.doomed && !drive.is_full(),
            spoiled_rows,
            damaged: look.in_sync.is_some_and(|index| self.is_damaged(index)),
        }
    }

    /// Finds out whether redundancy is still untrue after an unclean stop.
    pub fn refresh_resyncing(&mut self) {
        if !self.expected.resyncing {
            return;
        }
        let regions = self.geometry.regions();
        let started = self.machines().started;
        let array = self.array();
        let unsynced =
            (0..regions).any(|region| array.region(RegionNo(region)) == RegionState::NeedSync);
        let job = array
            .status()
            .jobs
            .iter()
            .any(|job| job.kind == JobKind::Resync);
        if started && !unsynced && !job && !self.untrusted_on_media() {
            self.expected.resyncing = false;
        }
    }

    /// Every member that is there says that the log tells of all that is under way, and goes on to
    /// say so.
    pub(crate) fn covered_on_media(&self) -> bool {
        // Of superblocks that are being written some may be durable after a power cut.
        let new_policy = self.admin.new_policy.as_ref();
        let changes = new_policy.is_some_and(|id| self.admin.commands.contains_key(id));
        !changes && self.present().iter().all(|(_, sb)| sb.covered)
    }

    /// The region map of some member in sync says that parity is not to be trusted somewhere.
    pub(crate) fn untrusted_on_media(&self) -> bool {
        let members = self.condition_on_media().0.into_iter().flatten();
        // What is damaged may be an older version that is whole.
        let sound = members.filter(|&index| !self.is_damaged(index));
        sound.into_iter().any(|index| {
            let ssd = &self.drives[index].ssd;
            let Some(sb) = self.table_of(index) else {
                return false;
            };
            let pages = crate::world::launch::map(ssd, &sb, crate::world::launch::Reading::Right);
            let states = pages.iter().flatten().flat_map(|page| &page.states);
            states.into_iter().any(|s| *s == RegionState::NeedSync)
        })
    }

    /// Some superblock says that the mirror is an array with parity already: the command that makes
    /// it one is not answered yet.
    fn becomes_parity(&self) -> bool {
        let present = self.present();
        let mut tables = present.iter().map(|(_, sb)| sb);
        tables.any(|sb| !matches!(sb.level, Level::Raid1 | Level::Raid10))
    }

    /// The tolerance rules of this world.
    pub fn tolerance(&self) -> Tolerance {
        let geometry = &self.geometry;
        Tolerance {
            groups: geometry
                .neighbours()
                .chain(self.admin.wary.clone())
                .collect(),
            tolerated: geometry.m,
            mirrored: geometry.mirrored() && !self.becomes_parity(),
            rules: Rules {
                write_hole_closed: self.covered_on_media(),
                lose_in_resync: self.plan.lose_in_resync,
                lose_blocks: self.plan.lose_blocks,
                errors_fail_members: !self.admin.errors_forgiven,
            },
        }
    }

    /// A number for a device that is opened.
    pub fn open(&mut self, drive: usize) -> DeviceId {
        let device = DeviceId(self.devices.len() as u32);
        self.devices.push(drive);
        self.drives[drive].device = Some(device);
        device
    }

    /// What the engine must know of a drive.
    pub fn info(&self, drive: usize) -> DeviceInfo {
        let ssd = &self.drives[drive].ssd;
        let hides = self.has(Canary::CacheHidden);
        DeviceInfo {
            bytes: ssd.len(),
            block_bytes: ssd.sector as u32,
            granularity_bytes: ssd.granularity,
            volatile_cache: ssd.volatile_cache() && !hides,
            dma: true,
        }
    }

    /// A fresh identity.
    pub fn identity(&mut self) -> MemberUuid {
        MemberUuid(self.chance.identity.bytes16())
    }

    /// The process is gone: forgets machines, messages and requests.
    pub fn forget_process(&mut self) {
        self.silent.emptied.clear();
        self.silent.ended.clear();
        self.decay.forget_ended();
        self.count_hedges();
        self.clock.clear();
        self.volumes.iter_mut().for_each(|volumes| volumes.forget());
        self.expected.leaving.clear();
        self.machines = None;
        self.expected.unlisting.clear();
        self.user.forget();
        self.admin.forget();
        self.expected.scrub_must_agree = false;
        self.expected.excused.clear();
        for drive in &mut self.drives {
            let lost = drive.ssd.faults.reset.take().is_some_and(|r| r.cache_lost);
            if lost && drive.device.is_some() {
                // What it has lost is not known yet.
                (drive.ssd.faults.gone, drive.pulled) = (true, true);
            }
            drive.device = None;
            drive.stands = None;
            (drive.doomed, drive.stalls) = (false, false);
            drive.ssd.faults.vanishing = false;
            drive.ssd.faults.full_from = None;
            drive.ssd.faults.write_errors = 0;
            drive.ssd.faults.flush_errors = 0;
            drive.ssd.faults.read_errors = 0;
            drive.ssd.faults.read_error = None;
            drive.ssd.faults.stalls = 0;
            drive.ssd.faults.slowness = 0;
            drive.ssd.faults.hiccup_one_in = 0;
            drive.ssd.faults.pauses = 0;
        }
    }

    /// Goes on until `until` says so.
    pub fn wait(&mut self, what: &str, until: impl Fn(&mut World) -> bool) -> SimResult {
        let limit = Time(self.clock.now().0 + 30_000_000_000);
        // One device with hiccups may take ten seconds for an I/O, again and again.
        let limit_of_slow = Time(limit.0 + 270_000_000_000);
        let mut round = 0u32;
        loop {
            round += 1;
            // A spare that waits for its time ends the rest that was waited for.
            let far = self.clock.next_at().is_some_and(|at| at > limit);
            if (far || round % 8 == 1) && until(self) {
                return Ok(());
            }
            let more = self.step()?;
            if !more && !until(self) {
                return self.stuck(&format!("nothing more happens, waiting for {what}"));
            }
            if !more {
                return Ok(());
            }
            let late = self.clock.now() > limit_of_slow || round > 3_000_000;
            // The event looked for may be followed by one that is far away.
            if late && !until(self) {
                return self.stuck(&format!("does not come to rest: {what}"));
            }
        }
    }

    /// The world has failed, and this is how things stand.
    pub(crate) fn stuck<T>(&mut self, how: &str) -> SimResult<T> {
        let state = self.state_text();
        self.failure(format!("{how}; {state}"))
    }

    /// The state of things, in words.
    pub fn state_text(&mut self) -> String {
        let asks: Vec<String> = self
            .user
            .asks
            .iter()
            .take(4)
            .map(|(id, a)| format!("{} {:?}", id.0, a.ask))
            .collect();
        let commands: Vec<&String> = self.admin.commands.values().collect();
        let queues: Vec<usize> = self.drives.iter().map(|d| d.ssd.in_flight()).collect();
        let mut text = format!(
            "requests {} {asks:?}, commands {commands:?}, I/Os in flight {queues:?}",
            self.user.asks.len()
        );
        if let Some(machines) = &self.machines {
            let status = machines.array.status();
            let members: Vec<_> = status
                .members
                .iter()
                .map(|m| (m.slot.map(|s| s.0), m.device, m.state))
                .collect();
            text += &format!(", {:?}, {members:?}, jobs {:?}", status.state, status.jobs);
            let free: Vec<usize> = machines.shards.iter().map(Shard::free_buffers).collect();
            text += &format!(", {:?}, buffers free {free:?}", machines.shards);
        }
        text
    }
}
