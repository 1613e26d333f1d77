//! Blocks given up, and sectors mended, where something was just written: records of the stripe log
//! that tell of the same stripe count yet.
//!
//! A record counts until it is retired: on a quiet lane until its region is Clean. What changes
//! beside it in place must not make it untrue: giving a block up writes other content, and a repair
//! writes back what was there. So sectors of a stripe that was written last become unreadable, on
//! more members than parity covers or on as many; the user writes there once more, a scrub repairs
//! or a rebuild comes by; then the power goes, and members are missing at the next start.
//!
//! Invariant: draws of its own, chance of its own (`fault::decay`, which is not at work then).
//!
//! Deliberately absent: what may be lost by that (`lost_blocks`).

use strake_engine::geometry::StripPart;
use strake_engine::units::StripeNo;
use strake_format::{Level, WriteHole};

use crate::plan::workload::{Ask, AskKind};
use crate::plan::{Action, End, Life, Moment as At, Plan, aimed_life};
use crate::prng::{Prng, Purpose};
use crate::world::{SimResult, World};

/// One array with redundancy in so many has such sectors.
const ONE_IN: u64 = 7;

impl Plan {
    /// Sectors of what was just written become unreadable in one array of some. Draws of its own.
    pub(crate) fn draw_spoilt(&mut self) {
        let mut rng = Prng::new(self.seed ^ 23, Purpose::Focus);
        let redundant = self.shape.level != Level::Raid0;
        if !rng.one_in(ONE_IN) || !redundant || self.decays {
            return;
        }
        self.spoils_recent = true;
        (self.lose_blocks, self.read_error_threshold) = (true, Some(1000));
        self.beyond = None;
        // Where nothing else is protected, there are no records; but a resync comes by.
        if rng.percent(75) {
            self.write_hole = WriteHole::Closed;
        }
        if rng.percent(60) {
            self.clean_after_ms = rng.pick(&[5, 50, 500, 500]);
            let lives = rng.range(2, 5);
            self.lives = (0..lives).map(|_| spoiling_life(&mut rng)).collect();
            return;
        }
        for life in &mut self.lives {
            let at = life.moment(200, &mut rng);
            life.act(at, Action::SpoilRecent);
        }
    }
}

/// A life in which that happens where the last write was, and which is cut off soon after.
fn spoiling_life(rng: &mut Prng) -> Life {
    let asks = rng.range(2, 12);
    let at = |events: u64| At { asks, events };
    let spoils = rng.range(20, 250);
    // Then one write comes after it, as a rule in the same stripe.
    let before = At {
        asks: asks - 1,
        events: spoils,
    };
    let spoilt_at = if rng.percent(60) { before } else { at(spoils) };
    let mut actions = vec![(spoilt_at, Action::SpoilRecent)];
    let mut left = rng.pick(&[60, 200, 1000]);
    match rng.below(8) {
        0 | 1 => {
            actions.push((at(spoils + 1), Action::Repair));
            left = 3000;
        }
        2..=4 => {
            // What is written last has no member in one column, and a rebuild gives blocks up
            // there.
            let early = At {
                asks: rng.below(asks),
                events: rng.below(60),
            };
            let lost = if rng.percent(60) { early } else { at(spoils) };
            actions.push((lost, Action::Lose));
            let joins = spoils + rng.range(1, 300);
            actions.push((at(joins), Action::Add));
            actions.push((at(joins + 1), Action::StartRebuild));
            left = 4000;
        }
        5 => {
            actions.push((at(spoils + 1), Action::Replace));
            left = 3000;
        }
        _ => {}
    }
    actions.sort_by_key(|&(at, _)| at);
    Life {
        actions,
        end: [End::PowerCut, End::Kill, End::Stop][rng.weighted(&[6, 2, 1])],
        end_at: at(spoils + rng.below(left)),
        missing_percent: rng.pick(&[0, 100, 100]),
        asks,
        ..aimed_life(asks, rng)
    }
}

impl World {
    /// Sectors at one byte of the strips of a stripe that was written last become unreadable.
    pub(crate) fn spoil_recent(&mut self) -> SimResult {
        let geometry = self.geometry.clone();
        let looks = self.looks();
        let rng = &mut self.decay.chance;
        if geometry.m == 0 || self.decay.recent.is_empty() {
            return Ok(());
        }
        let newest = self.decay.recent.len() - 1;
        let (stripe, written) = match rng.percent(70) {
            true => self.decay.recent[newest],
            false => rng.pick(&self.decay.recent),
        };
        if !geometry.exists(stripe) {
            return Ok(());
        }
        let (strip, block) = (geometry.strip, geometry.block);
        let place = match rng.percent(75) {
            true => written % strip / block * block,
            false => rng.below(strip / block) * block,
        };
        // Beyond what parity covers, or just so much.
        let mut columns: Vec<usize> = (0..geometry.columns(stripe).width).collect();
        rng.shuffle(&mut columns);
        let away = |&&column: &&usize| {
            let slot = geometry.slot(stripe, column).index();
            looks[slot].in_sync.is_none()
        };
        let away = columns.iter().filter(away).count();
        let count = match rng.below(10) {
            0..=5 => (geometry.m + 1).saturating_sub(away).max(1),
            6 => geometry.m + 2,
            // Its last parity may have gone since.
            _ => rng.range(1, geometry.m.max(1) as u64) as usize,
        };
        let row = geometry.row(stripe).1;
        let data_offset = self.superblock.layout.data_offset;
        let sector = (data_offset + geometry.row_offset(row) + place) / block;
        let (situation, tolerance) = (self.situation(), self.tolerance());
        let rows = [row.0];
        let mut spoilt = Vec::new();
        for column in columns {
            let slot = geometry.slot(stripe, column).index();
            let drive = looks[slot].in_sync;
            let Some(drive) = drive.filter(|_| spoilt.len() < count) else {
                continue;
            };
            if tolerance.may_spoil(&situation, slot, &rows) {
                self.drives[drive].ssd.faults.latent.insert(sector);
                spoilt.push(column);
            }
        }
        if spoilt.is_empty() {
            return Ok(());
        }
        self.note(format!(
            "{stripe}: at {place:#x} columns {spoilt:?} become unreadable"
        ));
        self.stats.latent_errors += spoilt.len() as u64;
        self.stats.spoilt_recently += 1;
        self.decay.spoilt = Some(stripe);
        self.note_lost_blocks();
        self.write_where_spoilt(stripe, place);
        Ok(())
    }

    /// Most often the next request writes a block of this stripe at this byte of a strip.
    fn write_where_spoilt(&mut self, stripe: StripeNo, place: u64) {
        let geometry = self.geometry.clone();
        let column = self.decay.chance.index(geometry.columns(stripe).k);
        if self.user.asks_left > 0 && self.decay.chance.percent(75) {
            let part = StripPart {
                stripe,
                column,
                lo: place,
                hi: place + geometry.block,
            };
            let first = geometry.blocks(&part).start;
            let ask = Ask::new(AskKind::Write, first, 1);
            if first < self.oracle.blocks() {
                self.user.held.get_or_insert(ask);
            }
        }
    }

    /// A block was given up: most often the power goes soon, where records of its stripe count yet.
    pub(crate) fn gave_up_recent(&mut self, block: u64) {
        if !self.plan.spoils_recent {
            return;
        }
        let stripe = self.geometry.locate(block * self.geometry.block).stripe;
        let recent = self.decay.recent.iter().any(|(known, _)| *known == stripe);
        if recent {
            self.stats.given_up_recently += 1;
            if self.decay.chance.percent(60) {
                self.strikes_soon();
            }
        }
    }

    /// Where blocks of a stripe were spoilt in the life before, the slots of its data, most often:
    /// what was not written there is computed at the next start if its member is missing, and
    /// records tell how.
    pub(crate) fn victims_of_spoilt(&mut self) -> Option<Vec<usize>> {
        let stripe = self.decay.spoilt.take()?;
        let geometry = self.geometry.clone();
        if !geometry.exists(stripe) || !self.decay.chance.percent(75) {
            return None;
        }
        let columns = 0..geometry.columns(stripe).k;
        let slots = columns.map(|column| geometry.slot(stripe, column).index());
        Some(slots.collect())
    }
}
