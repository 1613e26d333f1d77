//! How a life ends: by a clean stop, a power cut or a kill.
//!
//! Invariant: nothing but what the devices hold, and what the oracle knows, outlives a process.
//!
//! Deliberately absent: when a life ends (`life`).

use strake_engine::event::Command;
use strake_engine::units::CommandId;

use crate::drive::overlay::FaultKind;
use crate::world::life::LifeOutcome;
use crate::world::{SimResult, World};

impl World {
    /// The end of a life that had to wait until it was fair, or was to be clean.
    pub(super) fn end_in_peace(
        &mut self,
        crash: Option<FaultKind>,
        set: Option<CommandId>,
    ) -> SimResult<LifeOutcome> {
        self.wait("requests and commands are answered", |world| {
            world.serves() && world.all_answered() && world.admin.commands.is_empty()
        })?;
        self.note_threshold(set);
        self.cure()?;
        self.cure_decay(false)?;
        let Some(kind) = crash else {
            return self.stop();
        };
        for _ in 0..400 {
            if self.may_crash() {
                return self.crash(kind == FaultKind::PowerCut);
            }
            for _ in 0..20 {
                if !self.step()? {
                    break;
                }
            }
        }
        self.stop()
    }

    /// A clean stop.
    pub fn stop(&mut self) -> SimResult<LifeOutcome> {
        self.audit_decay()?;
        self.situation();
        let calm = !self.expected.resyncing;
        self.stats.stops += 1;
        let id = self.command(Command::Stop);
        self.wait("the array stops", |world| world.machines().stopped)?;
        if self.admin.done.get(&id).is_some_and(Result::is_err) {
            return self.failure("the array refused to stop");
        }
        if self.drives.iter().any(|drive| drive.ssd.waiting()) {
            return self.failure("the array has stopped, but I/Os are in flight");
        }
        self.oracle.all_durable();
        self.volumes.iter_mut().for_each(|v| v.all_durable());
        let off = self.chance.fate.percent(50);
        for drive in &mut self.drives {
            drive.ssd.kill(&mut self.chance.fate);
            if off {
                drive.ssd.power_cut(&mut self.chance.fate);
            }
        }
        self.forget_process();
        self.expected.clean = calm;
        self.clock.pass(1_000_000);
        Ok(LifeOutcome { calm })
    }

    /// A power cut, or a SIGKILL.
    pub fn crash(&mut self, power: bool) -> SimResult<LifeOutcome> {
        self.audit_decay()?;
        let situation = self.situation();
        let (shown, newcomers) = (self.shown_in_sync(), self.newcomers());
        self.count_crash(power);
        let name = if power { "POWER CUT" } else { "SIGKILL" };
        self.note(format!(
            "{name} with {} requests under way",
            self.user.asks.len()
        ));
        // A write during which a member was lost, and then the power: some of it may be in place.
        let now = self.oracle.moment();
        let since = match self.expected.leaving.is_empty() {
            true => self.expected.last_loss,
            false => now,
        };
        let halved: Vec<u64> = self.oracle.in_flight(since).collect();
        halved
            .into_iter()
            .for_each(|block| self.oracle.doubt(block));
        self.expected.torn_blocks.extend(self.oracle.in_flight(now));
        let blocks = self.geometry.stripe_bytes() / self.geometry.block;
        let torn = self.oracle.in_flight(now).map(|block| block / blocks);
        self.expected.torn_stripes = torn.collect();
        self.oracle.crash(power);
        self.volumes.iter_mut().for_each(|v| v.crash(power));
        let mut torn_inside = Vec::new();
        self.expected.torn_on.clear();
        for (index, drive) in self.drives.iter_mut().enumerate() {
            let report = if power {
                drive.ssd.power_cut(&mut self.chance.fate)
            } else {
                drive.ssd.kill(&mut self.chance.fate)
            };
            self.stats.torn_writes += report.torn;
            self.stats.lost_writes += report.lost;
            torn_inside.push(report.torn_inside);
            let torn_on = report.torn_blocks.into_iter().map(|offset| (index, offset));
            self.expected.torn_on.extend(torn_on);
        }
        self.count_torn(&torn_inside);
        self.shown_is_on_media(&shown)?;
        self.newcomers_heard_last(&newcomers, &shown)?;
        let covered = self.covered_on_media() && !self.geometry.mirrored();
        if !covered {
            self.blind_decay();
        }
        let calm = !situation.resyncing && (covered || !situation.writing);
        self.forget_process();
        self.expected.clean = false;
        self.expected.resyncing |= !calm && self.geometry.m > 0;
        self.clock.pass(1_000_000);
        Ok(LifeOutcome { calm })
    }

    /// A member is lost (or cannot be read everywhere) before the log was replayed: what was being
    /// written may be lost with it.
    pub fn doubt_torn_blocks(&mut self) {
        for &block in &self.expected.torn_blocks {
            self.oracle.doubt(block);
        }
    }

    /// More is lost of these blocks than the level survives.
    pub(crate) fn doubt(&mut self, first: u64, count: u64) {
        (first..first + count).for_each(|block| self.oracle.doubt(block));
    }

    /// Nothing is demanded of this block until it is written again.
    pub(crate) fn demand_nothing(&mut self, block: u64) {
        self.oracle.undefine(block, 1);
    }

    fn count_crash(&mut self, power: bool) {
        let looks = self.looks();
        let started = self.machines().started;
        let stats = &mut self.stats;
        stats.power_cuts += u64::from(power);
        stats.kills += u64::from(!power);
        stats.crashes_starting += u64::from(!started);
        stats.crashes_resyncing += u64::from(self.expected.resyncing);
        stats.crashes_rebuilding += u64::from(looks.iter().any(|look| look.incoming.is_some()));
        stats.crashes_degraded += u64::from(looks.iter().any(|look| look.in_sync.is_none()));
    }
}
