//! How much of the members' time background work takes: a priority, and below it a throttle that
//! keeps the latency of requests within a target.
//!
//! While there are no requests, work runs at full depth without a pause. While requests are served,
//! the priority p is the part of the time that it works, in hundredths. With a target, the throttle
//! takes away from that: first stripes at work at once, down to one; then time.
//!
//! The throttle looks at trials of [`TRIAL_REQUESTS`] requests. A trial in which more than one in
//! two hundred was late halves it, at once; any other lets it grow by an eighth. One in two hundred
//! is half of what a p99 leaves: it pays for the trials that went wrong.
//!
//! Invariants:
//! * The throttle stays between its floor and full, whatever comes. Where less work means fewer
//!   late requests it swings around the most that the target bears, between half of that and an
//!   eighth above it: six trials or so of growth follow each that went wrong.
//! * Work never stops: at least [`FLOOR_PERCENT`] of the time one stripe is at work, the same as
//!   with priority 1, and no pause is longer than [`PAUSE_NS_MAX`]. A member that is never whole is
//!   worse than late requests, which may have another cause.
//!
//! Deliberately absent: clocks, and what the work is.

use crate::proto::status::HeldBack;
use crate::stats::histogram::Histogram;
use crate::units::Time;

/// A trial ends after so many requests,
const TRIAL_REQUESTS: u64 = 200;
/// or after this long with any.
const TRIAL_NS: u64 = 2_000_000_000;
/// One late request in so many is borne.
const LATE_ONE_IN: u64 = 200;
/// The part of the time that is always left to background work.
const FLOOR_PERCENT: u64 = 1;
/// So soon work notices that a load is over; and a step that took long (a member that did not
/// answer) does not stop it for minutes.
const PAUSE_NS_MAX: u64 = 1_000_000_000;
/// A load is over when nothing was asked for so long: with a target longer, since each of a few
/// requests counts.
const QUIET_NS: u64 = 100_000_000;
const QUIET_NS_WITH_TARGET: u64 = 1_000_000_000;
/// How long a step shall take: what comes meanwhile finds it at work as it is. Short beside a load,
/// so that its pauses are short.
const STEP_NS: u64 = 50_000_000;
const STEP_NS_BESIDE_LOAD: u64 = 5_000_000;
/// Bytes of each member that the first step covers, while nothing is known yet, and the most that
/// any does.
const STEP_BYTES: u64 = 256 << 10;
const STEP_BYTES_MAX: u64 = 64 << 20;
/// Half of what the p99 that is shown is about.
const SHOWN_NS: u64 = 1_000_000_000;
/// The whole throttle.
const FULL: u64 = 1 << 20;
/// What a step told is not known any more after this long without one: longer than any pause.
const FORGOTTEN_NS: u64 = 2 * PAUSE_NS_MAX;

/// What a job has to keep to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// 1 to 100.
    pub(crate) priority: u8,
    /// None: latency is not looked at.
    pub(crate) target_ns: Option<u64>,
    /// Stripes of a shard at work at once, at most.
    pub(crate) depth_max: u16,
}

/// Requests that were looked at since the throttle last moved.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    since: Option<Time>,
    requests: u64,
    late: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Of [`FULL`]; none before the first step that has a target.
    throttle: Option<u64>,
    trial: Trial,
    /// When requests were last seen.
    served: Option<Time>,
    step_bytes: u64,
    /// None: not known.
    depth: Option<u16>,
    /// When the last step ended.
    stepped: Time,
    /// Nothing was asked for lately.
    alone: bool,
    held_back: HeldBack,
    /// What was seen since then, and in the same time before.
    shown_since: Time,
    shown: [Histogram; 2],
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            throttle: None,
            trial: Trial::default(),
            served: None,
            step_bytes: STEP_BYTES,
            depth: None,
            stepped: Time(0),
            alone: false,
            held_back: HeldBack::None,
            shown_since: Time(0),
            shown: [Histogram::default(), Histogram::default()],
        }
    }
}

impl Pace {
    /// Work begins, or goes on: what it was like long ago tells nothing.
    pub(crate) fn refresh(&mut self, now: Time) {
        if now.since(self.stepped) >= FORGOTTEN_NS {
            (self.step_bytes, self.depth, self.alone) = (STEP_BYTES, None, false);
        }
    }

    /// Bytes of each member that the next step is to cover.
    pub(crate) fn step_bytes(&self) -> u64 {
        self.step_bytes
    }

    /// Stripes of a shard that the next step may have at work at once.
    pub(crate) fn depth(&self, rules: Rules) -> u16 {
        let unknown = match rules.target_ns {
            Some(_) => 1,
            None => rules.depth_max,
        };
        self.depth.unwrap_or(unknown).min(rules.depth_max)
    }

    /// When the last step ended, nothing was there to be disturbed.
    pub(crate) fn alone(&self) -> bool {
        self.alone
    }

    /// What holds work back.
    pub(crate) fn held_back(&self, now: Time, rules: Rules) -> HeldBack {
        match self.beside_load(now, rules) {
            true => self.held_back,
            false => HeldBack::None,
        }
    }

    /// The p99 of requests, as far as they were seen beside jobs in the last seconds.
    pub(crate) fn p99_ns(&self, now: Time) -> Option<u64> {
        if now.since(self.shown_since) >= 2 * SHOWN_NS {
            return None;
        }
        let mut both = self.shown[0].clone();
        both.add(&self.shown[1]);
        both.quantile_ns(990)
    }

    /// A shard tells what it served since it told last.
    pub(crate) fn served(&mut self, now: Time, asked: u64, seen: Option<&Histogram>, rules: Rules) {
        if asked > 0 || seen.is_some() {
            self.served = Some(now);
        }
        let Some(seen) = seen else { return };
        let age = now.since(self.shown_since);
        if age >= SHOWN_NS {
            let before = std::mem::take(&mut self.shown[0]);
            self.shown[1] = match age < 2 * SHOWN_NS {
                true => before,
                false => Histogram::default(),
            };
            self.shown_since = now;
        }
        self.shown[0].add(seen);
        if let Some(target_ns) = rules.target_ns {
            self.trial.since.get_or_insert(now);
            self.trial.requests += seen.count();
            self.trial.late += seen.late(target_ns);
        }
    }

    fn beside_load(&self, now: Time, rules: Rules) -> bool {
        let quiet_ns = match rules.target_ns {
            Some(_) => QUIET_NS_WITH_TARGET,
            None => QUIET_NS,
        };
        self.served.is_some_and(|at| now.since(at) < quiet_ns)
    }

    /// A step that covered `bytes` of each member took so long. Answers how long to pause after it,
    /// and decides on the next one.
    pub(crate) fn stepped(&mut self, now: Time, took_ns: u64, bytes: u64, rules: Rules) -> u64 {
        if rules.target_ns.is_none() {
            self.throttle = None;
            self.trial = Trial::default();
        }
        let beside_load = self.beside_load(now, rules);
        if beside_load && rules.target_ns.is_some() {
            self.decide(now, rules);
        }
        let whole_time = beside_load.then(|| self.share(rules));
        let (share, depth) = whole_time.unwrap_or((FULL, rules.depth_max));
        (self.depth, self.stepped, self.alone) = (Some(depth), now, !beside_load);
        let free = share == FULL && (!beside_load || rules.target_ns.is_none());
        let step_ns = if free { STEP_NS } else { STEP_NS_BESIDE_LOAD };
        let fits = u128::from(bytes) * u128::from(step_ns) / u128::from(took_ns.max(1));
        let fits = u64::try_from(fits).unwrap_or(u64::MAX);
        self.step_bytes = fits.min(2 * bytes).clamp(1, STEP_BYTES_MAX);
        let throttled = self.throttle.is_some_and(|throttle| throttle < FULL);
        self.held_back = match (throttled, share < FULL) {
            (true, _) => HeldBack::Latency,
            (false, true) => HeldBack::Priority,
            (false, false) => HeldBack::None,
        };
        let pause = u128::from(took_ns) * u128::from(FULL - share) / u128::from(share);
        u64::try_from(pause).map_or(PAUSE_NS_MAX, |ns| ns.min(PAUSE_NS_MAX))
    }

    /// Ends the trial if it is over.
    fn decide(&mut self, now: Time, rules: Rules) {
        // One stripe at a time, until it is known what the target bears.
        let depth_max = u64::from(rules.depth_max);
        let throttle = self.throttle.get_or_insert(FULL / depth_max);
        let Trial {
            since,
            requests,
            late,
        } = self.trial;
        let Some(since) = since else { return };
        if late * LATE_ONE_IN > requests.max(TRIAL_REQUESTS) {
            *throttle /= 2;
        } else if requests >= TRIAL_REQUESTS || now.since(since) >= TRIAL_NS {
            match late * LATE_ONE_IN > requests {
                true => *throttle /= 2,
                false => *throttle += *throttle / 8,
            }
        } else {
            return;
        }
        // Less would change nothing any more, and take long to make good.
        let priority = u64::from(rules.priority);
        let floor = FULL * FLOOR_PERCENT / (depth_max * priority);
        *throttle = (*throttle).clamp(floor, FULL);
        self.trial = Trial::default();
    }

    /// The part of the time, of [`FULL`], and the stripes at work at once.
    fn share(&self, rules: Rules) -> (u64, u16) {
        let throttle = self.throttle.unwrap_or(FULL);
        let stripes = throttle * u64::from(rules.depth_max);
        let share = stripes.min(FULL) * u64::from(rules.priority) / 100;
        let share = share.clamp(FULL * FLOOR_PERCENT / 100, FULL);
        let depth = (stripes / FULL).clamp(1, u64::from(rules.depth_max));
        (share, depth as u16)
    }
}

/// Bytes of a member at work at once for one shard, in full swing; but not fewer stripes than
/// [`STRIPES_LEAST`], and not more than [`STRIPES_MOST`].
const BYTES_AT_WORK: u64 = 1 << 20;

const STRIPES_LEAST: u64 = 8;

const STRIPES_MOST: u64 = 64;

/// Stripes of a shard at work at once, in full swing.
pub(crate) fn depth_max(strip: u64) -> u16 {
    (BYTES_AT_WORK / strip).clamp(STRIPES_LEAST, STRIPES_MOST) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPTH: u16 = 8;

    fn rules(priority: u8, target_us: u64) -> Rules {
        Rules {
            priority,
            target_ns: (target_us > 0).then_some(target_us * 1000),
            depth_max: DEPTH,
        }
    }

    /// Members that take longer for a request the more stripes are at work: `us` with none,
    /// `us_each` more for each stripe.
    struct Drives {
        us: u64,
        us_each: u64,
    }

    /// What came of a while of work beside a load.
    #[derive(Default)]
    struct Past {
        now: Time,
        worked_ns: u64,
        stripes: u64,
        pauses: u64,
        longest_pause_ns: u64,
        latencies: Histogram,
    }

    impl Drives {
        /// Steps beside a load of one request each 100 µs, for so many seconds.
        fn work(&self, pace: &mut Pace, rules: Rules, past: &mut Past, seconds: u64) {
            let until = Time(past.now.0 + seconds * 1_000_000_000);
            while past.now < until {
                let depth = u64::from(pace.depth(rules));
                let bytes = pace.step_bytes();
                let stripes = bytes.div_ceil(128 << 10);
                let took_ns = stripes.div_ceil(depth) * (300_000 + 20_000 * depth);
                past.now.0 += took_ns;
                past.worked_ns += took_ns;
                past.stripes += stripes;
                let busy_ns = (self.us + self.us_each * depth) * 1000;
                let mut seen = Histogram::default();
                (0..took_ns / 100_000).for_each(|_| seen.note(busy_ns));
                pace.served(past.now, 1, Some(&seen), rules);
                past.latencies.add(&seen);
                let pause = pace.stepped(past.now, took_ns, bytes, rules);
                past.now.0 += pause;
                past.pauses += u64::from(pause > 0);
                past.longest_pause_ns = past.longest_pause_ns.max(pause);
                let mut seen = Histogram::default();
                (0..pause / 100_000).for_each(|_| seen.note(self.us * 1000));
                past.latencies.add(&seen);
                pace.served(past.now, 1, Some(&seen), rules);
            }
        }
    }

    #[test]
    fn without_a_load_work_runs_at_full_depth_whatever_the_priority() {
        for priority in [1, 50, 100] {
            let (mut pace, rules) = (Pace::default(), rules(priority, 100));
            for step in 1..100 {
                assert_eq!(
                    pace.stepped(Time(step * 60_000_000), 1_000_000, 1 << 20, rules),
                    0
                );
                assert_eq!(pace.depth(rules), DEPTH);
            }
        }
    }

    #[test]
    fn beside_a_load_the_priority_is_the_part_of_the_time_that_it_works() {
        for priority in [1, 2, 10, 50, 90, 100] {
            let (mut pace, mut past) = (Pace::default(), Past::default());
            let drives = Drives {
                us: 100,
                us_each: 50,
            };
            drives.work(&mut pace, rules(priority, 0), &mut past, 20);
            let percent = past.worked_ns as f64 / past.now.0 as f64 * 100.0;
            assert!((percent - f64::from(priority)).abs() < 0.6, "{percent}");
            assert_eq!(past.pauses == 0, priority == 100);
        }
    }

    #[test]
    fn the_p99_stays_within_a_target_that_a_few_stripes_at_a_time_bear() {
        // Four stripes take 300 µs, five 350: the most that the target bears is four.
        let drives = Drives {
            us: 100,
            us_each: 50,
        };
        for (target_us, at_least) in [(310, 2.0), (410, 3.0), (1000, 7.0)] {
            let (mut pace, mut past) = (Pace::default(), Past::default());
            let rules = rules(100, target_us);
            drives.work(&mut pace, rules, &mut past, 10);
            let mut past = Past {
                now: past.now,
                ..Past::default()
            };
            let from = past.now;
            drives.work(&mut pace, rules, &mut past, 60);
            let p99 = past
                .latencies
                .quantile_ns(990)
                .expect("there were requests");
            // A target counts as missed from the start of the bucket in which it lies.
            assert!(p99 <= target_us * 1000 * 9 / 8, "{target_us}: {p99}");
            let each_ms = past.stripes as f64 / ((past.now.0 - from.0) as f64 / 1e6);
            assert!(
                each_ms > at_least * 0.8 / 0.5,
                "{target_us}: {each_ms} stripes/ms"
            );
        }
    }

    #[test]
    fn a_target_that_cannot_be_met_leaves_the_floor_and_never_less() {
        let drives = Drives {
            us: 5000,
            us_each: 100,
        };
        for priority in [1, 50, 100] {
            let (mut pace, mut past) = (Pace::default(), Past::default());
            drives.work(&mut pace, rules(priority, 1000), &mut past, 30);
            let mut past = Past {
                now: past.now,
                ..Past::default()
            };
            let from = past.now.0;
            drives.work(&mut pace, rules(priority, 1000), &mut past, 100);
            let percent = past.worked_ns as f64 / (past.now.0 - from) as f64 * 100.0;
            assert!((0.9..1.6).contains(&percent), "{priority}: {percent}");
            assert!(past.longest_pause_ns <= PAUSE_NS_MAX);
            assert_eq!(
                pace.held_back(past.now, rules(priority, 1000)),
                HeldBack::Latency
            );
        }
    }

    #[test]
    fn it_comes_back_when_the_load_lets_it() {
        let rules = rules(100, 1000);
        let (mut pace, mut past) = (Pace::default(), Past::default());
        Drives {
            us: 5000,
            us_each: 100,
        }
        .work(&mut pace, rules, &mut past, 30);
        Drives {
            us: 100,
            us_each: 10,
        }
        .work(&mut pace, rules, &mut past, 30);
        assert_eq!(pace.depth(rules), DEPTH);
        assert_eq!(pace.held_back(past.now, rules), HeldBack::None);
        assert!(pace.p99_ns(past.now).is_some_and(|ns| ns < 250_000));
    }

    #[test]
    fn a_step_that_took_an_age_is_followed_by_a_pause_of_a_second_at_most() {
        let (mut pace, rules) = (Pace::default(), rules(1, 0));
        let age = 60_000_000_000;
        pace.served(Time(age), 1, None, rules);
        assert_eq!(pace.stepped(Time(age), age, 1 << 20, rules), PAUSE_NS_MAX);
    }

    #[test]
    fn steps_become_as_long_as_they_shall_be() {
        let (mut pace, rules) = (Pace::default(), rules(50, 0));
        let mut now = Time(0);
        // 1 GB/s.
        for _ in 0..20 {
            let bytes = pace.step_bytes();
            now.0 += bytes;
            pace.stepped(now, bytes, bytes, rules);
        }
        assert_eq!(pace.step_bytes(), STEP_NS);
        pace.served(now, 1, None, rules);
        pace.stepped(now, STEP_NS, STEP_NS, rules);
        assert_eq!(pace.step_bytes(), STEP_NS_BESIDE_LOAD);
    }
}
