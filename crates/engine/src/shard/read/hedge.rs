//! Hedged reads: one that its member does not answer in time is asked of the others, and whichever
//! comes first is the answer.
//!
//! Order: a read that goes straight to its member bears the time at which it is late
//! (`stats::device_latency`). When that has passed, the same piece is queued as a degraded read
//! that does without this member; from then on both sides *race*. The first that has the bytes
//! answers the request; the other side ends without a word when it comes in, whenever that is.
//!
//! Invariants:
//! * Each side knows the request only as long as nobody has answered it: what comes later looks at
//!   its race, never at the request's number, which may be another's by then.
//! * A buffer in flight belongs to its I/O: the loser's goes back to the pool when the member lets
//!   go of it, and counts as held until then.
//! * What fills its user's place is never hedged (`direct`): nobody else may answer there.
//! * A hedge takes its turn on the stripe like any degraded read, and is given up where parity is
//!   not trusted: an administrator's word (`trusted`) does not suffice, because it is about members
//!   that are missing.
//! * A late error is an error of the member all the same: told, counted, and repaired.
//! * A remote read (`remote`) is hedged by the owner of its stripe. The shard that reads tells the
//!   owner which member is late, and the hedge counts in the budget of that shard, not of the
//!   owner.
//! * At most one direct read in [`HedgeRules::one_in`] is hedged, beyond a small burst, and none
//!   where the stripe has lost as many columns as its code can bear.
//! * There is no timer for a read: one time for all that are in flight, and none while none is.
//!
//! What a hedge computes is as good as the other strips: one that lies shows in it, as in any
//! degraded read.
//!
//! Deliberately absent: hedges of hedges, and of reads that are part of an operation.
//!
//! [`HedgeRules::one_in`]: crate::stats::device_latency::HedgeRules

use slab::Slab;
use smallvec::SmallVec;

use crate::canary::{self, Canary};
use crate::proto::*;
use crate::shard::Shard;
use crate::shard::op::work::{Work, WorkKind};
use crate::shard::outbox::IoFor;
use crate::shard::read::direct::DirectRead;
use crate::stats::device_latency::Meters;
use crate::units::*;

/// Later than any read.
pub(crate) const NEVER: Time = Time(u64::MAX);

/// A side of a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Racing {
    race: usize,
    /// It is the hedge, and not the member's own answer (or what repairs it).
    pub(crate) hedge: bool,
}

/// A piece that was asked for twice.
#[derive(Debug)]
struct Race {
    request: usize,
    /// The member that is late.
    device: DeviceId,
    answered: bool,
    /// Sides that have not ended.
    sides: u8,
    /// What the member's own side came to.
    error: Option<RequestError>,
}

/// What a shard knows of late reads.
#[derive(Debug)]
pub(crate) struct Hedges {
    races: Slab<Race>,
    /// Direct reads in flight.
    reading: usize,
    /// When the first of them may be late.
    look_at: Time,
    /// Direct reads that were not hedged yet: the budget.
    credit: u32,
}

impl Default for Hedges {
    fn default() -> Hedges {
        Hedges {
            races: Slab::new(),
            reading: 0,
            look_at: NEVER,
            credit: 0,
        }
    }
}

impl Hedges {
    /// See the module; so many direct reads are in flight.
    pub(crate) fn check(&self, direct: usize) -> Result<(), String> {
        ensure!(
            self.reading == direct,
            "{} direct reads are counted and {direct} in flight",
            self.reading
        );
        Ok(())
    }

    /// Requests with a piece that both sides of a race may still answer.
    pub(crate) fn open_races(&self) -> impl Iterator<Item = usize> {
        let open = self.races.iter().filter(|(_, race)| !race.answered);
        open.map(|(_, race)| race.request)
    }

    pub(crate) fn direct_ends(&mut self) {
        self.reading -= 1;
    }

    /// A side has what was asked for: may it answer?
    pub(crate) fn claims(&mut self, racing: Option<Racing>, meters: &mut Meters) -> bool {
        let Some(Racing { race, hedge }) = racing else {
            return true;
        };
        let race = &mut self.races[race];
        if race.answered {
            return canary::hit(Canary::LateReadAnswers);
        }
        race.answered = true;
        if let Some(counts) = meters.hedges(race.device) {
            counts.won += u64::from(hedge);
            counts.lost += u64::from(!hedge);
        }
        true
    }

    /// Nobody waits for this side any more.
    pub(crate) fn outrun(&self, racing: Option<Racing>) -> bool {
        racing.is_some_and(|side| self.races[side.race].answered)
    }

    /// A side has ended, perhaps without an answer. When it was the last, the request, and its
    /// error if neither side had an answer: that of the member's own side, which has tried
    /// everything.
    pub(crate) fn side_ends(
        &mut self,
        racing: Option<Racing>,
        error: Option<RequestError>,
    ) -> Option<(usize, Option<RequestError>)> {
        let Racing { race: key, hedge } = racing?;
        let race = &mut self.races[key];
        race.sides -= 1;
        match hedge {
            true => race.error = race.error.or(error),
            false => race.error = error.or(race.error),
        }
        if race.sides > 0 {
            return None;
        }
        let race = self.races.remove(key);
        let error = race.error.unwrap_or(RequestError::Unreadable);
        Some((race.request, (!race.answered).then_some(error)))
    }

    /// Pieces that were asked for twice.
    pub(crate) fn races(&self) -> usize {
        self.races.len()
    }
}

impl Shard {
    /// When [`Shard::tick`] wants to be called: a read in flight may be late by then, a write has
    /// waited long enough for its stream, or the array is to hear of latencies. `None` for a shard
    /// that has been idle for a while.
    pub fn deadline(&self) -> Option<Time> {
        let late = (self.hedges.reading > 0 && self.hedges.look_at != NEVER)
            .then_some(self.hedges.look_at);
        let waits = late.into_iter().chain(self.streams.deadline());
        waits.chain(self.meters.report_at).min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time) {
        self.out.set_now(now);
        if self.hedges.reading > 0 && self.hedges.look_at <= now {
            self.look_for_late();
        }
        if self.meters.report_at.is_some_and(|at| at <= now) {
            let report = self.meters.report();
            self.out.say(FromShard::Latencies(report));
        }
    }

    /// A direct read is about to be issued: when it is late, if ever.
    pub(crate) fn direct_begins(&mut self, read: &DirectRead) -> Time {
        let known = self.known_late(read);
        let hedges = &mut self.hedges;
        hedges.reading += 1;
        let rules = &self.meters.rules;
        let most = rules.burst.saturating_mul(rules.one_in);
        hedges.credit = hedges.credit.saturating_add(1).min(most);
        if !self.map.view().hedging || self.map.geometry().m == 0 {
            return NEVER;
        }
        let ns = match known {
            true => 0,
            false => match self.meters.deadline_ns(read.device) {
                Some(ns) => ns,
                None => return NEVER,
            },
        };
        let late_at = Time(self.out.now().0.saturating_add(ns));
        self.hedges.look_at = self.hedges.look_at.min(late_at);
        late_at
    }

    /// Another shard found the member late, and has paid for the hedge.
    fn known_late(&self, read: &DirectRead) -> bool {
        self.requests.late(read.request) == Some(read.device)
    }

    /// Hedges what is late, and says when to look again.
    #[cold]
    fn look_for_late(&mut self) {
        let (now, mut next) = (self.out.now(), NEVER);
        let mut late: SmallVec<[usize; 16]> = SmallVec::new();
        for (key, what) in self.out.in_flight() {
            match what {
                IoFor::Read(read) if read.late_at <= now => late.push(key),
                IoFor::Read(read) => next = next.min(read.late_at),
                _ => {}
            }
        }
        for key in late {
            next = next.min(self.hedge(key));
        }
        let soonest = Time(now.0.saturating_add(self.meters.rules.look_every_ns));
        self.hedges.look_at = match next {
            NEVER => NEVER,
            next => next.max(soonest),
        };
    }

    /// Hedges a read that is late, if that may be; says when to look at it again.
    fn hedge(&mut self, key: usize) -> Time {
        let read = *self.out.direct_read(key);
        let known = self.known_late(&read);
        let in_ns = match self.meters.deadline_ns(read.device) {
            None if known => Some(self.meters.rules.floor_ns),
            told => told,
        };
        let again = in_ns.map_or(NEVER, |ns| Time(self.out.now().0.saturating_add(ns)));
        let one_in = match known {
            true => 0,
            false => self.meters.rules.one_in,
        };
        let due = match self.may_hedge(&read) {
            _ if read.place.is_some() && !canary::hit(Canary::HedgeInPlace) => {
                self.meters.late_in_place(read.device, self.out.now());
                self.left_waiting(key, &read);
                again
            }
            false => again,
            true if self.hedges.credit < one_in => {
                self.left_waiting(key, &read);
                again
            }
            true if read.remote => {
                if self.pass_late(&read) {
                    self.hedges.credit -= one_in;
                }
                NEVER
            }
            true => {
                self.hedges.credit -= one_in;
                self.begin_race(key, &read);
                NEVER
            }
        };
        self.out.direct_read(key).late_at = due;
        due
    }

    /// Counts a late read that is not hedged, once.
    fn left_waiting(&mut self, key: usize, read: &DirectRead) {
        if !read.refused
            && let Some(counts) = self.meters.hedges(read.device)
        {
            counts.refused += 1;
        }
        self.out.direct_read(key).refused = true;
    }

    /// Whether the others can answer this read, and would not suffer from it.
    fn may_hedge(&self, read: &DirectRead) -> bool {
        let source = |c: usize| self.map.source(read.stripe, c);
        let lost = (0..self.map.width(read.stripe)).filter(|&c| source(c).is_none());
        let room = self.starved.is_empty() && self.requests.has_turn(1);
        let serves = source(read.source).is_some_and(|d| d.device == read.device);
        self.map.view().hedging
            && self.map.closed().is_none()
            && serves
            && lost.count() < self.map.geometry().m
            && room
            && self.gates[self.map.region(read.stripe)].answers_hedge()
    }

    fn begin_race(&mut self, key: usize, read: &DirectRead) {
        let race = self.hedges.races.insert(Race {
            request: read.request,
            device: read.device,
            answered: false,
            sides: 2,
            error: None,
        });
        self.out.direct_read(key).racing = Some(Racing { race, hedge: false });
        // Two buffers, until both sides have ended.
        self.requests.take_room();
        if let Some(counts) = self.meters.hedges(read.device) {
            counts.issued += 1;
        }
        let racing = Some(Racing { race, hedge: true });
        let avoid = vec![(read.source, read.device)];
        let work = read.computed(avoid).racing(racing);
        if canary::hit(Canary::HedgeOutOfOrder) {
            let op = self.ops.insert(read.stripe, &self.map, work);
            return self.start_op(op);
        }
        self.queue.enqueue(read.stripe, work);
    }
}

impl Work {
    /// The same read, as a side of a race.
    pub(crate) fn racing(mut self, side: Option<Racing>) -> Work {
        if let WorkKind::Read(read) = &mut self.kind {
            read.race = side;
        }
        self
    }
}
