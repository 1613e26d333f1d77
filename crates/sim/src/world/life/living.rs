//! A life from its start to its end: misfortunes come at their moments, and one of them, or none,
//! ends it.
//!
//! Invariant: a life comes to an end, or the world fails.
//!
//! Deliberately absent: what a misfortune is (`life`), and what an end is (`ending`).

use std::iter::Peekable;
use std::slice::Iter;

use strake_engine::units::CommandId;

use crate::drive::overlay::{FaultKind, FaultSet};
use crate::plan::{Action, End, Life, Moment};
use crate::world::life::LifeOutcome;
use crate::world::{SimResult, World};

/// How far a life is.
struct Living<'a> {
    life: &'a Life,
    without: FaultSet,
    /// What is to end it.
    crash: Option<FaultKind>,
    /// What is still to happen.
    actions: Peekable<Iter<'a, (Moment, Action)>>,
    /// The command that says how many read errors are forgiven.
    threshold: Option<CommandId>,
    /// What has decayed was looked at since the start.
    audited: bool,
    /// Requests that wait until everything was read.
    held: u64,
    here: Moment,
    /// Requests that were made, and the event at which the last one was.
    asked: Option<u64>,
    asked_at: u64,
    /// Members that were lost before.
    lost_before: u64,
    /// The events at which a member was lost, data began to move by copies, and all data had left
    /// members.
    lost_at: Option<u64>,
    copied_at: Option<u64>,
    left_at: Option<u64>,
    /// Events since there was nothing more to do.
    idle: u64,
    /// Requests that were open, and the event at which their number changed last.
    open: (u64, u64),
}

impl World {
    pub(super) fn live(&mut self, life: &Life, without: FaultSet) -> SimResult<LifeOutcome> {
        self.slow_some();
        self.begin_latency_faults(without);
        let held = if self.reads_first() { life.asks } else { 0 };
        self.user.asks_left = life.asks - held;
        self.admin.reshaped_at = None;
        let mut now = Living {
            life,
            without,
            crash: crash_of(life.end).filter(|&kind| !without.has(kind)),
            actions: life.actions.iter().peekable(),
            threshold: None,
            audited: false,
            held,
            here: Moment::default(),
            asked: None,
            asked_at: self.stats.events,
            lost_before: self.stats.losses,
            lost_at: None,
            copied_at: None,
            left_at: None,
            idle: 0,
            open: (0, self.stats.events),
        };
        loop {
            self.look_around(&mut now)?;
            self.act_in_time(&mut now)?;
            if let Some(power) = self.is_cut_off(&mut now) {
                return self.crash(power);
            }
            self.note_threshold(now.threshold);
            if self.is_lived(&mut now) {
                break;
            }
            if !self.step()? {
                // What is left of the actions would wait for events that do not come.
                if self.is_content() {
                    break;
                }
                return self.stuck("nothing more happens");
            }
            self.check_alive()?;
            self.check_progress(&mut now)?;
        }
        self.end_in_peace(now.crash, now.threshold)
    }

    /// Does what a start and a loss bring.
    fn look_around(&mut self, now: &mut Living<'_>) -> SimResult {
        if self.stats.losses > now.lost_before {
            now.lost_at.get_or_insert(self.stats.events);
        }
        if !self.serves() {
            return Ok(());
        }
        if now.threshold.is_none() {
            now.threshold = self.settle_threshold();
        }
        self.look_at_torn(now.without)?;
        if !std::mem::replace(&mut now.audited, true) {
            self.audit_decay()?;
        }
        match std::mem::take(&mut now.held) {
            0 => Ok(()),
            asks => self.look_first(asks),
        }
    }

    /// Does what has its moment now, or is a matter of chance between two requests.
    fn act_in_time(&mut self, now: &mut Living<'_>) -> SimResult {
        let asks = now.life.asks - now.held - self.user.asks_left;
        if now.asked.replace(asks) != Some(asks) {
            now.asked_at = self.stats.events;
            self.strike_between_asks(now.without)?;
        }
        self.bring_back_stalled();
        let events = self.stats.events - now.asked_at;
        now.here = Moment { asks, events };
        while let Some((_, action)) = now.actions.next_if(|(at, _)| now.here >= *at) {
            self.act(*action, now.without)?;
        }
        if self.expected.resyncing && !now.without.has(FaultKind::Latent) {
            self.fail_reads_in_resync(now.life.read_errors_in_resync);
        }
        Ok(())
    }

    fn strike_between_asks(&mut self, without: FaultSet) -> SimResult {
        self.latency_fault(without);
        self.reset_some(without)?;
        self.stand_still_some(without);
        self.fill_some(without);
        Ok(())
    }

    /// The process ends now, and the power goes perhaps.
    fn is_cut_off(&mut self, now: &mut Living<'_>) -> Option<bool> {
        let due = self.is_due(now);
        match now.crash.filter(|_| self.strikes(due)) {
            Some(kind) if self.may_crash() => Some(kind == FaultKind::PowerCut),
            _ => self.cuts_replay_off(now.without),
        }
    }

    /// The end was to come now, or before.
    fn is_due(&mut self, now: &mut Living<'_>) -> bool {
        let (life, events) = (now.life, self.stats.events);
        if self.array().moves_by_copy() {
            now.copied_at.get_or_insert(events);
        }
        if !self.geometry.gone().is_empty() {
            now.left_at.get_or_insert(events);
        }
        let brings_it = |begun: Option<u64>, after: Option<u64>| {
            let begun = begun.zip(after);
            begun.is_some_and(|(at, after)| events >= at + after)
        };
        let found = self.decay_strikes() || self.volumes_strike();
        let due = found
            || brings_it(now.lost_at, life.end_after_loss)
            || brings_it(self.admin.reshaped_at, life.end_after_reshape)
            || brings_it(now.copied_at, life.end_after_copy)
            || brings_it(now.left_at, life.end_after_left)
            || now.here >= life.end_at;
        due && !self.is_corrupt()
    }

    /// Nothing more is to come, and jobs got some time of their own, up to the moment that was
    /// drawn for the end.
    fn is_lived(&self, now: &mut Living<'_>) -> bool {
        let over = now.held == 0 && self.is_content() && now.actions.peek().is_none();
        now.idle += u64::from(over);
        over && (now.here.events >= now.life.end_at.events || now.idle > 3000)
    }

    /// A drive may take most of a second for each I/O, and the map's clock goes on meanwhile.
    fn check_progress(&mut self, now: &mut Living<'_>) -> SimResult {
        let open = self.user.asks_left + now.held + self.under_way() as u64;
        // While a thread stands still, others may ask in vain, and send back what they are sent.
        if open != now.open.0 || self.machines().standing.is_some() {
            now.open = (open, self.stats.events);
        }
        if self.stats.events - now.open.1 > 300_000 {
            return self.stuck("requests do not come to an end");
        }
        Ok(())
    }

    /// It would be fair if the process died now.
    pub(super) fn may_crash(&mut self) -> bool {
        let situation = self.situation();
        self.tolerance().may_crash(&situation)
    }

    /// Everything is read before the user makes these requests.
    fn look_first(&mut self, asks: u64) -> SimResult {
        self.read_everything()?;
        self.user.asks_left = asks;
        self.pump()
    }

    /// The process ends in the middle of a replay: with the power, or only the process.
    fn cuts_replay_off(&mut self, without: FaultSet) -> Option<bool> {
        if without.has(FaultKind::PowerCut) || !self.cuts_replay() {
            return None;
        }
        self.may_crash().then(|| {
            self.note("in the middle of the replay:".to_owned());
            self.stats.crashes_replaying += 1;
            self.chance.faults.percent(70)
        })
    }
}

fn crash_of(end: End) -> Option<FaultKind> {
    match end {
        End::Stop => None,
        End::PowerCut => Some(FaultKind::PowerCut),
        End::Kill => Some(FaultKind::Kill),
    }
}
