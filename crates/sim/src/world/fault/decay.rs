//! Rot among everything else: one block of one member is wrong from some moment on, while requests,
//! crashes, losses and rebuilds go on as they would, on the same stripe too.
//!
//! What may be lost by that: a *spot* is the block and those at the same byte of the other strips
//! of its stripe; parity says what they must be together. Nothing but blocks of the spot may ever
//! be read wrong, and of these
//! * what a member held all the time and the user did not write is on its medium as it was:
//!   whatever is mended, replayed or built there leaves it alone;
//! * as long as the user writes nothing in the stripe, and some redundancy is left all the time:
//!   what is built on another member is right, or its region is undecided; and where the strips of
//!   a spot agree, all of them are true: parity is never computed from rot. A scrub of the whole
//!   array finds it.
//!
//! A spot ends where a look at the media shows that all of it is true, by a repair, a rebuild or a
//! write: from then on everything is demanded of it again. What is left at the end the user writes
//! anew, a whole stripe at a time, and then nothing of it may be left.
//!
//! A write into a stripe may compute with what rots there (no code looks at all of a stripe for
//! each write), so nothing is demanded after it but that it harms no other member's block, and
//! blocks of no other spot.
//!
//! Invariant: chance of its own; worlds without this are what they would be without it.
//!
//! Of a mirror any copy may answer, and a resync takes one of them for right: after a crash, which
//! always brings one, a mirror's spot may be wrong in every copy.
//!
//! When the array's shape changes, data moves as it is read, and its stripes become others. All
//! blocks of all spots are *carried* from then on: each may read wrong until it is written anew in
//! a shape that stays, and nothing else may.
//!
//! Deliberately absent: rot that begins while data moves, and rot that nothing else is mixed with
//! (`silent`), of which more is demanded.

use std::collections::BTreeSet;

use strake_engine::event::{ArrayState, Command, ScrubMode};
use strake_engine::geometry::{Geometry, StripPart};
use strake_engine::units::{RegionNo, StripeNo};
use strake_format::{Level, RegionState, WriteHole};
use strake_parity::Code;

use crate::oracle::Moment;
use crate::plan::workload::{Ask, AskKind};
use crate::plan::{Action, End, Life, Moment as At, Plan, aimed_life};
use crate::prng::{self, Prng, Purpose};
use crate::world::launch::{self, Reading};
use crate::world::{SimResult, World};

/// One array with parity in so many rots like this.
const ONE_IN: u64 = 6;
/// Spots at the same time.
const SPOTS_MOST: usize = 4;
/// So many of the stripes that were written last are remembered.
const RECENT: usize = 4;

/// A block that rotted, and its stripe at that place.
#[derive(Clone, Debug)]
struct Spot {
    stripe: StripeNo,
    /// The column that rotted.
    column: usize,
    /// The byte of the strip.
    at: u64,
    /// What it holds instead.
    held: Vec<u8>,
    /// The drive of each column then.
    drives: Vec<Option<usize>>,
    /// Columns of which another drive came, or that could not be read: they were built.
    built: u64,
    /// The user wrote in the stripe.
    touched: bool,
    /// There was no redundancy left, or it was not to be trusted.
    blind: bool,
    /// All of it was given back, or given up.
    void: bool,
    /// A walk that takes undecided data for right began after it rotted: none of that walk came
    /// before the rot.
    walked: bool,
    /// Its region was undecided, its data was taken for right, and nothing was written there since.
    accepted: bool,
}

impl Spot {
    fn was_built(&self, column: usize) -> bool {
        self.built >> column & 1 == 1
    }
}

/// See the module.
#[derive(Debug)]
pub struct Decay {
    pub(crate) chance: Prng,
    spots: Vec<Spot>,
    /// Blocks of spots of another shape: they may be wrong until they are written anew.
    carried: BTreeSet<u64>,
    /// What became true again while requests were under way that may have met it.
    ended: Vec<(Moment, Spot)>,
    /// Stripes that were written last, and where in them.
    pub(crate) recent: Vec<(StripeNo, u64)>,
    /// The stripe of which sectors became unreadable last, in this life.
    pub(crate) spoilt: Option<StripeNo>,
    /// The life ends then, if it ends with a crash.
    strikes_at: Option<u64>,
    /// It does whatever else happens until then.
    strikes_anyway: bool,
}

impl Decay {
    pub(crate) fn new(seed: u64) -> Decay {
        Decay {
            chance: Prng::new(seed ^ 1, Purpose::Decay),
            spots: Vec::new(),
            carried: BTreeSet::new(),
            ended: Vec::new(),
            recent: Vec::new(),
            spoilt: None,
            strikes_at: None,
            strikes_anyway: false,
        }
    }

    /// Nothing rots.
    pub(crate) fn is_empty(&self) -> bool {
        self.spots.is_empty() && self.carried.is_empty()
    }

    /// Requests that may have met what is true by now are over.
    pub(crate) fn forget_ended(&mut self) {
        self.ended.clear();
        let counts = self.strikes_anyway || !self.is_empty();
        self.strikes_at = self.strikes_at.filter(|_| counts);
    }
}

impl Plan {
    /// One array in some rots in the midst of everything. Draws of its own.
    pub(crate) fn draw_decay(&mut self) {
        let mut rng = Prng::new(self.seed, Purpose::Decay);
        self.decays = rng.one_in(ONE_IN) && self.shape.level != Level::Raid0;
        if !self.decays {
            return;
        }
        // What is beyond the tolerance is another matter; and of lost writes all is demanded.
        self.beyond = None;
        const PURE: [Action; 3] = [
            Action::LoseWrite,
            Action::MisdirectWrite,
            Action::MisdirectMetadata,
        ];
        let moves = |life: &Life| {
            life.actions
                .iter()
                .any(|(_, action)| MOVES.contains(action))
        };
        const MOVES: [Action; 6] = [
            Action::AddParity,
            Action::DropParity,
            Action::Restripe,
            Action::Strip,
            Action::Regroup,
            Action::Lower,
        ];
        if rng.percent(50) && !self.lives.iter().any(moves) {
            if rng.percent(75) {
                self.write_hole = WriteHole::Closed;
            }
            self.clean_after_ms = rng.pick(&[5, 50, 500]);
            let lives = rng.range(2, 6);
            self.lives = (0..lives).map(|_| decaying_life(&mut rng)).collect();
            return;
        }
        for life in &mut self.lives {
            life.actions.retain(|(_, action)| !PURE.contains(action));
            let mut actions = life.actions.iter();
            let first = actions.find(|(_, action)| MOVES.contains(action)).copied();
            if let Some((at, _)) = first.filter(|_| rng.percent(75)) {
                let events = at.events.saturating_sub(rng.below(60));
                life.act(At { events, ..at }, Action::Rot);
            }
            for _ in 0..rng.range(1, 3) {
                let at = life.moment(200, &mut rng);
                life.act(at, Action::Rot);
                if rng.percent(40) {
                    let mut soon = at;
                    soon.events += rng.below(300);
                    let what = rng.pick(&[Action::Scrub, Action::Lose, Action::Replace]);
                    life.act(soon, what);
                    soon.events += rng.below(600);
                    life.act(soon, Action::Add);
                }
            }
        }
    }

    /// In half of these arrays what lies in undecided regions is taken for right. Draws of its own.
    pub(crate) fn draw_accepted(&mut self) {
        let mut rng = Prng::new(self.seed ^ 25, Purpose::Focus);
        self.accepts = self.decays && rng.percent(50);
        if !self.accepts {
            return;
        }
        for life in &mut self.lives {
            for _ in 0..rng.below(3) {
                let mut at = life.moment(400, &mut rng);
                life.act(at, Action::Accept);
                if rng.percent(30) {
                    at.events += rng.below(60);
                    life.act(at, rng.pick(&[Action::Lose, Action::Rot, Action::Replace]));
                }
            }
        }
    }
}

/// A life in which something rots where the last write was, is perhaps repaired at once, and then
/// the power goes, before anything else happens there.
fn decaying_life(rng: &mut Prng) -> Life {
    let asks = rng.range(2, 12);
    let at = |events: u64| At { asks, events };
    let rots = rng.range(40, 250);
    // Then one write comes after it.
    let before = At {
        asks: asks - 1,
        events: rots,
    };
    let rot_at = if rng.percent(40) { before } else { at(rots) };
    let mut actions = vec![(rot_at, Action::Rot)];
    let scrubs = rng.percent(60);
    if scrubs {
        actions.push((at(rots + 1), Action::Repair));
    }
    let left = if scrubs { 4000 } else { 150 };
    Life {
        actions,
        end: [End::PowerCut, End::Kill, End::Stop][rng.weighted(&[5, 2, 1])],
        end_at: at(rots + rng.below(left)),
        missing_percent: rng.pick(&[0, 100]),
        asks,
        ..aimed_life(asks, rng)
    }
}

impl World {
    /// What a scrub found here is being repaired: the power may go as soon as it is.
    pub(crate) fn decay_is_found(&mut self, stripe: StripeNo) {
        let known = self.decay.spots.iter().any(|spot| spot.stripe == stripe);
        if known && self.decay.chance.percent(60) {
            let soon = self.stats.events + self.decay.chance.below(120);
            self.decay.strikes_at.get_or_insert(soon);
        }
    }

    /// The power goes soon, whatever the user asks for until then.
    pub(crate) fn strikes_soon(&mut self) {
        let most = self.decay.chance.pick(&[10, 40, 150]);
        let soon = self.stats.events + self.decay.chance.below(most);
        self.decay.strikes_at.get_or_insert(soon);
        self.decay.strikes_anyway = true;
    }

    /// Does the power go now, because of that?
    pub(crate) fn decay_strikes(&mut self) -> bool {
        let now = self.stats.events;
        let strikes = self.decay.strikes_at.take_if(|at| *at <= now).is_some();
        self.decay.strikes_anyway &= !strikes;
        strikes
    }

    /// A block rots, if some may.
    pub(crate) fn decay(&mut self) -> SimResult {
        if self.decay.spots.len() >= SPOTS_MOST || self.geometry.old_shape.is_some() {
            return Ok(());
        }
        let (strip, block) = (self.geometry.strip, self.geometry.block);
        let rng = &mut self.decay.chance;
        let stripe = match rng.percent(75) && !self.decay.recent.is_empty() {
            true => rng.pick(&self.decay.recent).0,
            false => StripeNo(rng.below(self.geometry.stripes())),
        };
        let beside = self.user.asks_left > 0 && self.geometry.k > 1 && rng.percent(50);
        let (k, width) = (self.geometry.k, self.geometry.width);
        let column = match beside && rng.percent(50) {
            true => rng.range(k as u64, width as u64 - 1) as usize,
            false => rng.index(width),
        };
        let at = rng.below(strip / block) * block;
        let other = (column + 1 + rng.index(k.max(2) - 1)) % k;
        self.decay_at(stripe, column, at)?;
        let known = self.decay.spots.iter().any(|spot| spot.stripe == stripe);
        if beside && known {
            // What is written next lies beside it.
            self.user.held.get_or_insert(Ask::new(
                AskKind::Write,
                self.block_of(stripe, other, at),
                1,
            ));
        }
        Ok(())
    }

    /// The block at this byte of a strip rots, if it may.
    pub fn decay_at(&mut self, stripe: StripeNo, column: usize, at: u64) -> SimResult {
        let geometry = self.geometry.clone();
        if geometry.m == 0 || geometry.old_shape.is_some() || !geometry.exists(stripe) {
            return Ok(());
        }
        let region = geometry.region(geometry.row(stripe).1);
        let state = self.array().region(region);
        let written = matches!(state, RegionState::Clean | RegionState::Dirty);
        let known = self.decay.spots.iter().any(|spot| spot.stripe == stripe);
        if !written || known || self.silent.emptied.contains(&region) {
            return Ok(());
        }
        let looks = self.looks();
        let slots = (0..geometry.width).map(|c| geometry.slot(stripe, c).index());
        let drives: Vec<Option<usize>> = slots.map(|slot| looks[slot].in_sync).collect();
        let offset = self.offset_of(stripe, at);
        let sector = offset / geometry.block;
        let mut here = drives.iter().flatten();
        let unreadable = here.any(|&d| self.drives[d].ssd.faults.latent.contains(&sector));
        let mut data = (0..geometry.k).map(|c| self.block_of(stripe, c, at));
        let carried = &self.decay.carried;
        let lost = data.any(|block| self.oracle.doubtful(block) || carried.contains(&block));
        let Some(drive) = drives[column].filter(|_| !unreadable && !lost) else {
            return Ok(());
        };
        if self.drives[drive].ssd.faults.gone {
            return Ok(());
        }
        let size = geometry.block as usize;
        let mut held = self.drives[drive].ssd.held(offset, size).to_vec();
        let noise = self.decay.chance.bits();
        match self.decay.chance.percent(50) {
            true => held[noise as usize % size] ^= 0x40,
            false => prng::fill(noise, &mut held),
        }
        self.note(format!(
            "drive {drive}: {stripe} rots in column {column} at {at:#x}"
        ));
        self.drives[drive].ssd.rot(offset, &held);
        self.stats.decays += 1;
        self.stats.decays_mirrored += u64::from(geometry.mirrored());
        self.expected.scrub_must_agree = false;
        let touched = self.changing(stripe).next().is_some();
        self.decay.spots.push(Spot {
            stripe,
            column,
            at,
            held,
            drives,
            built: 0,
            touched,
            blind: false,
            void: false,
            walked: false,
            accepted: false,
        });
        // A read that waits since before a resync makes the copies agree when its turn comes.
        if self.is_settled(stripe) {
            self.blind_decay();
        }
        self.watch_decay();
        Ok(())
    }

    /// The array has another shape than before: nothing is known any more of where a spot lies.
    pub(crate) fn carry_decay(&mut self, before: &Geometry) {
        let rows = self.geometry.rows;
        let same = Geometry {
            rows,
            ..before.clone()
        };
        if same == *self.geometry {
            return;
        }
        self.decay.recent.clear();
        self.decay.spoilt = None;
        for spot in std::mem::take(&mut self.decay.spots) {
            self.stats.decays_carried += 1;
            let columns = 0..before.k;
            let blocks = columns.map(|column| block_in(before, spot.stripe, column, spot.at));
            self.decay.carried.extend(blocks);
        }
    }

    /// Some of this stripe is carried.
    pub(crate) fn is_carried(&self, stripe: StripeNo) -> bool {
        let geometry = &self.geometry;
        let of = |block: &u64| geometry.locate(block * geometry.block).stripe == stripe;
        self.decay.carried.iter().any(of)
    }

    /// Where an administrator takes data for right, in so many of a hundred cases: what lies in
    /// undecided regions.
    pub(crate) fn accept_some(&mut self, percent: u64) -> SimResult {
        let undecided = !self.array().status().undecided.is_empty();
        if undecided && self.plan.accepts && self.decay.chance.percent(percent) {
            self.command(Command::AcceptData);
        }
        Ok(())
    }

    /// What lies in undecided regions is being taken for right: parity agrees with some of it, also
    /// where that is stopped before a region is decided. `anew` says that the walk has just begun,
    /// at its first stripe.
    pub(crate) fn may_be_accepted(&mut self, anew: bool) {
        let undecided = self.array().status().undecided;
        let geometry = self.geometry.clone();
        let of = |spot: &Spot| geometry.region(geometry.row(spot.stripe).1);
        let spots = self.decay.spots.iter_mut();
        let concerned = spots.filter(|spot| undecided.contains(&of(spot)));
        for spot in concerned {
            spot.blind = true;
            spot.walked |= anew;
        }
    }

    /// What lies in a region was taken for right: parity agrees with it, whatever rots there.
    pub(crate) fn is_accepted(&mut self, offset: u64, len: u64) {
        self.stats.accepted += 1;
        let geometry = self.geometry.clone();
        let of = |stripe: StripeNo| geometry.region(geometry.row(stripe).1);
        let region = of(geometry.locate(offset).stripe);
        let mut spots = std::mem::take(&mut self.decay.spots);
        for spot in spots.iter_mut().filter(|spot| of(spot.stripe) == region) {
            spot.blind = true;
            spot.accepted = spot.walked && self.changing(spot.stripe).next().is_none();
        }
        self.decay.spots = spots;
        let block = geometry.block;
        // Power goes most often when the page that says so is under way, or just durable.
        if len >= block && self.decay.chance.percent(40) {
            self.strikes_soon();
        }
    }

    fn offset_of(&self, stripe: StripeNo, at: u64) -> u64 {
        let row = self.geometry.row(stripe).1;
        self.superblock.layout.data_offset + self.geometry.row_offset(row) + at
    }

    fn block_of(&self, stripe: StripeNo, column: usize, lo: u64) -> u64 {
        block_in(&self.geometry, stripe, column, lo)
    }

    /// The user asks for this.
    pub(crate) fn touch_decay(&mut self, ask: &Ask) {
        let asked = self.plan.decays || self.plan.spoils_recent;
        if !asked || !ask.kind.changes() {
            return;
        }
        let place = self.geometry.locate(ask.first * self.geometry.block);
        let (stripe, offset) = (place.stripe, place.offset);
        let recent = &mut self.decay.recent;
        recent.retain(|(known, _)| *known != stripe);
        recent.push((stripe, offset));
        if recent.len() > RECENT {
            recent.remove(0);
        }
        let mut spots = std::mem::take(&mut self.decay.spots);
        for spot in &mut spots {
            let touched = self.touches(ask, spot.stripe);
            spot.touched |= touched;
            spot.accepted &= !touched;
        }
        self.decay.spots = spots;
    }

    /// Notes what happens to the members of spots: to be called after every event.
    pub(crate) fn watch_decay(&mut self) {
        if self.decay.spots.is_empty() || self.machines.is_none() {
            return;
        }
        let looks = self.looks();
        let mut spots = std::mem::take(&mut self.decay.spots);
        for spot in &mut spots {
            let (k, sector) = (
                self.geometry.k,
                self.offset_of(spot.stripe, spot.at) / self.geometry.block,
            );
            let mut intact = 0;
            for (column, before) in spot.drives.iter().enumerate() {
                let look = &looks[self.geometry.slot(spot.stripe, column).index()];
                let faults = look.in_sync.map(|drive| &self.drives[drive].ssd.faults);
                let unreadable = faults.is_some_and(|faults| {
                    faults.latent.contains(&sector) || faults.read_errors > 0
                });
                if look.in_sync != *before || unreadable {
                    spot.built |= 1 << column;
                }
                intact += usize::from(!unreadable && self.condition(look).intact);
            }
            let region = self.geometry.region(self.geometry.row(spot.stripe).1);
            let state = self.array().region(region);
            spot.blind |= intact <= k || state == RegionState::NeedSync;
            spot.void |= state == RegionState::Unwritten;
        }
        self.decay.spots = spots;
    }

    /// What the log does not tell of is resynced: parity is computed from whatever lies there.
    pub(crate) fn blind_decay(&mut self) {
        self.decay
            .spots
            .iter_mut()
            .for_each(|spot| spot.blind = true);
    }

    /// The region may be given back.
    pub(crate) fn void_decay(&mut self, region: RegionNo) {
        let geometry = self.geometry.clone();
        let of = |stripe: StripeNo| geometry.region(geometry.row(stripe).1);
        let mut spots = self.decay.spots.iter_mut();
        spots
            .by_ref()
            .filter(|spot| of(spot.stripe) == region)
            .for_each(|spot| spot.void = true);
    }

    /// The engine gave a block up: where something rots it may not know better.
    pub(crate) fn gives_up_decay(&mut self, block: u64) {
        let place = self.geometry.locate(block * self.geometry.block);
        let at = place.offset - place.offset % self.geometry.block;
        let here = |spot: &&mut Spot| (spot.stripe, spot.at) == (place.stripe, at);
        if let Some(spot) = self.decay.spots.iter_mut().find(here) {
            spot.void = true;
            self.oracle.doubt(block);
        }
        if self.decay.carried.contains(&block) {
            self.oracle.doubt(block);
        }
    }

    /// May a reader that asked at this moment have met rot here?
    pub(crate) fn may_be_rotten(&self, since: Moment, block: u64) -> bool {
        if self.decay.is_empty() && self.decay.ended.is_empty() {
            return false;
        }
        if self.decay.carried.contains(&block) {
            return true;
        }
        let place = self.geometry.locate(block * self.geometry.block);
        let here = |spot: &Spot| (spot.stripe, spot.at) == (place.stripe, place.offset);
        let mut ended = self.decay.ended.iter();
        self.decay.spots.iter().any(here)
            || ended.any(|(moment, spot)| since <= *moment && here(spot))
    }

    /// Regions that the newest page on some member calls undecided.
    fn undecided_on_media(&mut self) -> BTreeSet<RegionNo> {
        let serving: Vec<usize> = self
            .shown_in_sync()
            .iter()
            .map(|&(_, drive)| drive)
            .collect();
        let mut found = BTreeSet::new();
        for drive in serving {
            let drive = &self.drives[drive];
            let Some(sb) = drive.superblock(self.superblock.array) else {
                continue;
            };
            let pages = launch::map(&drive.ssd, &sb, Reading::Right);
            for page in pages.iter().flatten() {
                let first = u64::from(page.page) * u64::from(sb.layout.page_regions);
                let regions = page.undecided.iter().map(|at| first + u64::from(*at));
                found.extend(regions.map(|region| RegionNo(region as u32)));
            }
        }
        found
    }

    /// Looks at the media of every spot: see the module.
    pub(crate) fn audit_decay(&mut self) -> SimResult {
        self.watch_decay();
        if self.decay.spots.is_empty() || !self.serves() {
            return Ok(());
        }
        let undecided = self.undecided_on_media();
        let spots = std::mem::take(&mut self.decay.spots);
        let mut left = Vec::new();
        for spot in spots {
            let region = self.geometry.region(self.geometry.row(spot.stripe).1);
            match self.audit(&spot, undecided.contains(&region)) {
                Err(text) => {
                    let text = format!(
                        "{}, column {} rots at {:#x} (region {}): {text}; built {:#b}, \
                         touched {}, blind {}",
                        spot.stripe,
                        spot.column,
                        spot.at,
                        region.0,
                        spot.built,
                        spot.touched,
                        spot.blind
                    );
                    return self.failure(text);
                }
                Ok(true) => {
                    self.note(format!("{} is true again", spot.stripe));
                    self.stats.decays_ended += 1;
                    self.decay.ended.push((self.oracle.moment(), spot));
                }
                Ok(false) => left.push(spot),
            }
        }
        self.decay.spots = left;
        Ok(())
    }

    /// What each column of a spot holds that can be read.
    fn columns_of(&mut self, spot: &Spot) -> Vec<Option<Vec<u8>>> {
        let looks = self.looks();
        let offset = self.offset_of(spot.stripe, spot.at);
        let sector = offset / self.geometry.block;
        let column = |column: usize| {
            let look = &looks[self.geometry.slot(spot.stripe, column).index()];
            let drive = &self.drives[look.in_sync.filter(|_| self.condition(look).intact)?];
            let faults = &drive.ssd.faults;
            let lost = faults.reset.is_some_and(|reset| reset.cache_lost);
            let readable = !lost && !faults.latent.contains(&sector);
            let bytes = drive.ssd.held(offset, self.geometry.block as usize);
            readable.then(|| bytes.to_vec())
        };
        (0..self.geometry.width).map(column).collect()
    }

    /// Does each member that is built beside one in sync hold there what that one holds?
    fn replacements_agree(&mut self, spot: &Spot, columns: &[Option<Vec<u8>>]) -> bool {
        let looks = self.looks();
        let offset = self.offset_of(spot.stripe, spot.at) as usize;
        let len = self.geometry.block as usize;
        columns.iter().enumerate().all(|(column, held)| {
            let look = &looks[self.geometry.slot(spot.stripe, column).index()];
            let built = look.incoming.filter(|_| look.in_sync.is_some());
            let bytes = built.map(|drive| &self.drives[drive].ssd.bytes()[offset..][..len]);
            bytes.is_none_or(|bytes| held.as_deref() == Some(bytes))
        })
    }

    /// True if all of it is, for good.
    fn audit(&mut self, spot: &Spot, undecided: bool) -> Result<bool, String> {
        if spot.void {
            return Ok(false);
        }
        let columns = self.columns_of(spot);
        let k = self.geometry.k;
        let mirrored = self.geometry.mirrored();
        let right = |column: usize, bytes: &[u8]| {
            let data = if mirrored { 0 } else { column };
            let block = self.block_of(spot.stripe, data, spot.at);
            self.oracle.doubtful(block) || self.oracle.allows(block, bytes)
        };
        let held = |column: usize, bytes: &[u8]| column == spot.column && bytes == spot.held;
        let demanding = !spot.touched && !spot.blind && !undecided;
        let held_data = if mirrored { columns.len() } else { k };
        for (column, bytes) in columns.iter().enumerate().take(held_data) {
            let Some(bytes) = bytes else { continue };
            let good = right(column, bytes) || held(column, bytes);
            let own = !spot.was_built(column) && (column != spot.column || !spot.touched);
            let own = own && !(mirrored && spot.blind);
            if own && !good {
                return Err(format!("column {column} was left alone, and changed"));
            }
            if demanding && !good {
                return Err(format!("column {column} was built, and is wrong"));
            }
        }
        let Some(whole) = agreed(&self.geometry, &columns) else {
            let readable = columns.iter().flatten().count() > k;
            if spot.accepted && readable && !undecided && !self.expected.resyncing {
                let text = "its region was called decided, and its strips do not agree";
                return Err(text.to_owned());
            }
            return Ok(false);
        };
        let truth = (0..k).all(|column| right(column, &whole[column]));
        if demanding && !truth {
            return Err("its strips agree, and it is not true".to_owned());
        }
        let busy = self.changing(spot.stripe).next().is_some();
        let sector = self.offset_of(spot.stripe, spot.at) / self.geometry.block;
        let mut drives = self.drives.iter();
        let lasting = drives.all(|drive| !drive.ssd.may_lose(sector));
        // A member that is away may come back with it.
        let all = columns.iter().all(Option::is_some);
        // The content of a replacement counts when the replacement is in sync: it can be older than
        // the rot.
        let same = self.replacements_agree(spot, &columns);
        let sure = (0..k).all(|column| {
            let block = self.block_of(spot.stripe, column, spot.at);
            self.oracle.allows(block, &whole[column])
        });
        // So may the drive that rotted, as long as it is not known to be out.
        let rotted = spot.drives[spot.column].filter(|&drive| {
            let look = &self.looks()[self.geometry.slot(spot.stripe, spot.column).index()];
            look.in_sync != Some(drive)
        });
        let over = rotted.is_none_or(|drive| self.is_out(drive));
        Ok(sure && all && same && !busy && lasting && over)
    }

    /// The end of a life in peace: most often a scrub must find what rots, and what is left is
    /// written anew, durably.
    pub(crate) fn cure_decay(&mut self, all: bool) -> SimResult {
        self.audit_decay()?;
        if self.decay.is_empty() || !all && self.decay.chance.percent(40) {
            return Ok(());
        }
        self.settle()?;
        self.audit_decay()?;
        let whole = self.array().status().state == ArrayState::Optimal;
        if whole && self.decay.chance.percent(60) {
            self.scrub_finds_decay()?;
        }
        self.write_decay_anew()?;
        if self.geometry.old_shape.is_some() && !self.decay.carried.is_empty() {
            // It stops where strips do not agree.
            self.command(Command::ContinueRestripe);
            self.wait("what moved comes to rest", World::at_rest)?;
            self.write_decay_anew()?;
        }
        Ok(())
    }

    /// Writes every stripe in which something rots, durably. What is written as a whole has nothing
    /// of what was there; but a stripe that is about to move may not lie whole in one shape.
    fn write_decay_anew(&mut self) -> SimResult {
        let (carried, moves) = (&self.decay.carried, self.geometry.old_shape.is_some());
        let block = self.geometry.block;
        let of = |&block_no: &u64| self.geometry.locate(block_no * block).stripe;
        let spots = self.decay.spots.iter().map(|spot| spot.stripe);
        let mut stripes: BTreeSet<StripeNo> = spots.collect();
        stripes.extend(carried.iter().map(of));
        let ranges = stripes
            .iter()
            .map(|&stripe| self.geometry.band_range(stripe));
        let ranges: BTreeSet<(u64, u64)> = ranges.map(|range| (range.start, range.end)).collect();
        for (start, end) in ranges {
            self.note(format!("bytes {start:#x}..{end:#x} are written anew"));
            self.ask_for(AskKind::Write, start / block, (end - start) / block)?;
        }
        self.wait("it is written", |world| world.all_answered())?;
        self.submit(Ask::new(AskKind::Flush, 0, 0))?;
        self.wait("it is durable", |world| world.all_answered())?;
        if !moves {
            self.decay.carried.clear();
        }
        let spots = std::mem::take(&mut self.decay.spots);
        self.watch_decay();
        for spot in spots {
            let columns = self.columns_of(&spot);
            let there = columns.iter().flatten().count();
            let true_now = agreed(&self.geometry, &columns);
            let right = true_now.is_some_and(|whole| {
                (0..self.geometry.k).all(|column| {
                    let block = self.block_of(spot.stripe, column, spot.at);
                    self.oracle.allows(block, &whole[column])
                })
            });
            if there > self.geometry.k && !right {
                return self.failure(format!("{} was written anew, and is not true", spot.stripe));
            }
            self.decay.ended.push((self.oracle.moment(), spot));
        }
        Ok(())
    }

    fn scrub_finds_decay(&mut self) -> SimResult {
        let mode = match self.decay.chance.percent(60) {
            true => ScrubMode::Check,
            false => ScrubMode::Repair,
        };
        let mut hidden = Vec::new();
        for spot in self.decay.spots.clone() {
            let columns = self.columns_of(&spot);
            let there = columns.iter().all(Option::is_some);
            let lies = agreed(&self.geometry, &columns).is_none();
            if there && lies && !spot.void && self.can_be_seen(&spot) {
                hidden.push(spot);
            }
        }
        self.begin_to_find();
        self.command(Command::StopScrub);
        self.command(Command::StartScrub(mode));
        self.wait("the scrub ends", World::at_rest)?;
        for spot in hidden {
            let sector = self.offset_of(spot.stripe, spot.at) / self.geometry.block;
            let drives = spot.drives.iter().flatten().copied();
            let now = self.shown_in_sync().into_iter().map(|(_, drive)| drive);
            let drives: Vec<usize> = drives.chain(now).collect();
            // Read errors that the scrub met may have put out as many members as the level
            // survives: what it came to after that had no redundancy that could tell.
            let tells = self.columns_of(&spot).iter().flatten().count() > self.geometry.k;
            if tells && !self.was_found(spot.stripe, sector, &drives) {
                return self.failure(format!("a scrub does not find that {} rots", spot.stripe));
            }
        }
        self.audit_decay()
    }

    /// A scrub looks at what rotted: a strip of which a sector cannot be read is computed as a
    /// whole from the others, without a look at what the rest of it held; where that is so of too
    /// many, nothing can be compared.
    fn can_be_seen(&mut self, spot: &Spot) -> bool {
        let looks = self.looks();
        let first = self.offset_of(spot.stripe, 0);
        let block = self.geometry.block;
        let strip = first / block..(first + self.geometry.strip) / block;
        let computed = |column: &usize| {
            let look = &looks[self.geometry.slot(spot.stripe, *column).index()];
            let drive = look.in_sync.map(|drive| &self.drives[drive]);
            drive.is_none_or(|drive| drive.ssd.faults.unreadable(strip.start, strip.end))
        };
        let computed: Vec<usize> = (0..self.geometry.width).filter(computed).collect();
        computed.len() < self.geometry.m && !computed.contains(&spot.column)
    }
}

/// The block at this byte of a column's strip.
fn block_in(geometry: &Geometry, stripe: StripeNo, column: usize, lo: u64) -> u64 {
    let hi = lo + geometry.block;
    let part = StripPart {
        stripe,
        column,
        lo,
        hi,
    };
    geometry.blocks(&part).start
}

/// All columns, where more of them are there than data and agree with each other.
fn agreed(geometry: &Geometry, columns: &[Option<Vec<u8>>]) -> Option<Vec<Vec<u8>>> {
    let (k, m) = (geometry.k, geometry.m);
    let there: Vec<usize> = (0..columns.len())
        .filter(|&c| columns[c].is_some())
        .collect();
    let (first, rest) = there.split_at_checked(k)?;
    if rest.is_empty() {
        return None;
    }
    if geometry.mirrored() {
        let one = columns[first[0]].as_ref()?;
        let same = columns.iter().flatten().all(|copy| copy == one);
        return same.then(|| vec![one.clone(); columns.len()]);
    }
    let code = Code::new(k, m).expect("the geometry has a code");
    let inputs: Vec<&[u8]> = first
        .iter()
        .filter_map(|&c| columns[c].as_deref())
        .collect();
    let mut whole = Vec::new();
    for (column, held) in columns.iter().enumerate() {
        let mut bytes = vec![0; inputs[0].len()];
        match first.iter().position(|&c| c == column) {
            Some(at) => bytes.copy_from_slice(inputs[at]),
            None => {
                let decoder = code.decoder(first, &[column]).expect("k are enough");
                decoder.decode(&inputs, &mut [&mut bytes]);
            }
        }
        if held.as_ref().is_some_and(|held| *held != bytes) {
            return None;
        }
        whole.push(bytes);
    }
    Some(whole)
}
