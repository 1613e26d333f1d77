//! How long members take: a histogram for each, and the deadlines that are learned from it.
//!
//! The deadline of a member's reads is [`FACTOR`] times what 95 of 100 of its own recent reads
//! stayed below, or twice that of its peers if theirs is lower (a member that is slow all the time
//! would otherwise never be late), within a floor and a ceiling; there is none before
//! [`HedgeRules::samples_min`] reads. Not the 99th percentile: where one read of a hundred is slow,
//! that *is* the slow one. The shape of the rule is that of "The Tail at Scale" (Dean and Barroso,
//! 2013): defer the second request until the first has been out for longer than the 95th
//! percentile, which bounds the extra load; the factor and the budget (see `hedge`) keep it far
//! smaller still, because here a second request costs k reads.
//!
//! Invariants:
//! * Noting a latency allocates nothing and takes a constant number of steps, but for a look at all
//!   of one histogram after every [`LEARN_EVERY`] reads.
//! * Old latencies lose half of their weight with every [`WINDOW`] / 2 new ones: what is learned
//!   follows the drive.
//!
//! Deliberately absent: the size of a request. Reads of all sizes share a histogram; a load that
//! changes from small to large ones is late for a while, and the budget bounds what that costs.

use crate::event::View;
use crate::units::*;

/// Buckets of a histogram: four to an octave, from 256 ns up to 17 s.
pub const BUCKETS: usize = 104;
/// A histogram that counts so many is halved.
const WINDOW: u32 = 8192;
/// Deadlines are learned anew after so many reads of a member.
const LEARN_EVERY: u32 = 128;
/// The quantile that deadlines and verdicts go by, per mille.
pub(crate) const USUAL: u64 = 950;
/// A read is late after this many times the usual.
const FACTOR: u64 = 4;

/// The rules by which reads are hedged and members called slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HedgeRules {
    /// Reads of a member before it has a deadline; at least 1.
    pub samples_min: u32,
    /// No deadline is shorter, nanoseconds: below that a second request gains nothing.
    pub floor_ns: u64,
    /// Nor longer, nanoseconds.
    pub ceiling_ns: u64,
    /// Late reads are looked for at most this often, nanoseconds.
    pub look_every_ns: u64,
    /// One read in so many may be hedged.
    pub one_in: u32,
    /// So many may be at once, if there were none for long.
    pub burst: u32,
    /// A member is called slow, or not any more, when it was so for so long, nanoseconds.
    pub slow_after_ns: u64,
    /// Shards tell the array of latencies this often, while there is anything to tell, nanoseconds.
    pub report_ns: u64,
}

impl Default for HedgeRules {
    fn default() -> HedgeRules {
        HedgeRules {
            samples_min: 256,
            floor_ns: 500_000,
            ceiling_ns: 1_000_000_000,
            look_every_ns: 100_000,
            one_in: 20,
            burst: 16,
            slow_after_ns: 10_000_000_000,
            report_ns: 1_000_000_000,
        }
    }
}

/// Recent latencies, counted in buckets whose width is a quarter of an octave at most.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: [u32; BUCKETS],
    total: u32,
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Histogram({} latencies)", self.total)
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: [0; BUCKETS],
            total: 0,
        }
    }
}

/// The bucket of a latency.
fn bucket(ns: u64) -> usize {
    let units = ns >> 8;
    if units < 4 {
        return units as usize;
    }
    let octave = 63 - units.leading_zeros() as usize;
    let quarter = (units >> (octave - 2) & 3) as usize;
    ((octave - 1) * 4 + quarter).min(BUCKETS - 1)
}

/// The least latency that lies above this bucket, nanoseconds.
fn end_ns(bucket: usize) -> u64 {
    match bucket {
        0..4 => (bucket as u64 + 1) << 8,
        _ => (5 + bucket as u64 % 4) << (bucket / 4 - 1) << 8,
    }
}

impl Histogram {
    /// Counts a latency.
    #[inline]
    pub fn note(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        if self.total == WINDOW {
            self.age();
        }
    }

    #[cold]
    fn age(&mut self) {
        self.counts.iter_mut().for_each(|count| *count /= 2);
        self.total = self.counts.iter().sum();
    }

    /// Adds what another counted.
    pub fn add(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
    }

    /// Latencies counted, the aged ones by their weight.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// So many of a thousand latencies lie below this, nanoseconds (rounded up by a fifth at most);
    /// zero where there are none.
    pub fn quantile_ns(&self, per_mille: u64) -> u64 {
        let rank = (u64::from(self.total) * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let reached = |count: &u32| {
            seen += u64::from(*count);
            seen >= rank
        };
        self.counts.iter().position(reached).map_or(0, end_ns)
    }
}

/// What became of the hedges of a member's reads, since it was first read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HedgeCounts {
    /// Reads that were late and asked for once more, of the others.
    pub issued: u64,
    /// Answered by the others.
    pub won: u64,
    /// Answered by the member after all.
    pub lost: u64,
    /// Late reads that were left waiting because the budget was used up.
    pub refused: u64,
}

impl HedgeCounts {
    /// Adds another's counts.
    pub fn add(&mut self, other: &HedgeCounts) {
        self.issued += other.issued;
        self.won += other.won;
        self.lost += other.lost;
        self.refused += other.refused;
    }
}

/// What one shard knows of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Of its reads.
    pub read: Histogram,
    /// Of its writes.
    pub write: Histogram,
    /// Of hedges of its reads.
    pub hedges: HedgeCounts,
}

/// What is measured of a member I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measured {
    Read,
    Write,
    Nothing,
}

/// A member as one shard sees it.
#[derive(Debug, Default)]
struct Meter {
    device: Option<DeviceId>,
    latencies: Box<Latencies>,
    /// What is usual for it, nanoseconds; zero if that is not known yet.
    usual_ns: u64,
    /// A read is late after this, nanoseconds.
    deadline_ns: Option<u64>,
    /// Reads until it is learned anew.
    until_learned: u32,
}

/// What a shard measures: one meter for each slot.
#[derive(Debug)]
pub(crate) struct Meters {
    pub(crate) rules: HedgeRules,
    meters: Vec<Meter>,
    /// Slot + 1 of each device, by its number.
    slots: Vec<u8>,
    /// When the array is to be told; `None` while there is nothing to tell.
    pub(crate) report_at: Option<Time>,
}

impl Meters {
    pub(crate) fn new(rules: HedgeRules, view: &View) -> Meters {
        let mut meters = Meters {
            rules,
            meters: Vec::new(),
            slots: Vec::new(),
            report_at: None,
        };
        meters.meters.resize_with(view.slots.len(), Meter::default);
        meters.follow(view);
        meters
    }

    /// The membership changed: a member that takes a slot starts anew.
    pub(crate) fn follow(&mut self, view: &View) {
        self.slots.fill(0);
        for (at, (meter, slot)) in self.meters.iter_mut().zip(&view.slots).enumerate() {
            let incoming = slot.incoming.as_ref().map(|incoming| incoming.target);
            let device = slot.current.or(incoming).map(|d| d.device);
            if meter.device != device {
                *meter = Meter {
                    device,
                    until_learned: self.rules.samples_min,
                    ..Meter::default()
                };
            }
            if let Some(device) = device {
                let number = device.0 as usize;
                if self.slots.len() <= number {
                    self.slots.resize(number + 1, 0);
                }
                self.slots[number] = at as u8 + 1;
            }
        }
    }

    fn slot(&self, device: DeviceId) -> Option<usize> {
        let slot = *self.slots.get(device.0 as usize)?;
        usize::from(slot).checked_sub(1)
    }

    /// An I/O that was issued at `begun` succeeded.
    #[inline]
    pub(crate) fn note(&mut self, what: Measured, device: DeviceId, begun: Time, now: Time) {
        let Some(slot) = self.slot(device) else {
            return;
        };
        let meter = &mut self.meters[slot];
        let ns = now.since(begun);
        match what {
            Measured::Nothing => return,
            Measured::Write => meter.latencies.write.note(ns),
            Measured::Read => {
                meter.latencies.read.note(ns);
                meter.until_learned -= 1;
                if meter.until_learned == 0 {
                    self.learn(slot);
                }
            }
        }
        if self.report_at.is_none() {
            self.report_at = Some(Time(now.0.saturating_add(self.rules.report_ns)));
        }
    }

    #[cold]
    fn learn(&mut self, slot: usize) {
        let meter = &mut self.meters[slot];
        meter.until_learned = LEARN_EVERY.min(self.rules.samples_min);
        meter.usual_ns = meter.latencies.read.quantile_ns(USUAL);
        let mut known = [0; strake_format::MEMBERS_MAX];
        let usual = self.meters.iter().map(|meter| meter.usual_ns);
        let mut count = 0;
        for usual_ns in usual.filter(|&ns| ns > 0) {
            (known[count], count) = (usual_ns, count + 1);
        }
        let peers = median(&mut known[..count]).unwrap_or(u64::MAX);
        let rules = self.rules;
        let meter = &mut self.meters[slot];
        let usual = meter.usual_ns.min(peers.saturating_mul(2));
        let deadline = usual.saturating_mul(FACTOR);
        meter.deadline_ns = Some(deadline.clamp(rules.floor_ns, rules.ceiling_ns));
    }

    /// After how long a read of this device is late, nanoseconds; `None` if that is not known.
    pub(crate) fn deadline_ns(&self, device: DeviceId) -> Option<u64> {
        self.meters[self.slot(device)?].deadline_ns
    }

    /// The counts of a device's hedges, while it serves.
    pub(crate) fn hedges(&mut self, device: DeviceId) -> Option<&mut HedgeCounts> {
        let slot = self.slot(device)?;
        Some(&mut self.meters[slot].latencies.hedges)
    }

    /// All that the array is told.
    pub(crate) fn report(&mut self) -> Vec<(DeviceId, Box<Latencies>)> {
        self.report_at = None;
        let meters = self.meters.iter();
        let known = meters.filter_map(|meter| Some((meter.device?, meter.latencies.clone())));
        known.collect()
    }
}

/// The median, the lower one of two.
pub(crate) fn median(values: &mut [u64]) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_below_the_end_of_its_bucket_and_not_below_that_of_the_one_before() {
        let around = |ns: u64| [ns - 1, ns, ns + 1];
        let octaves = (8..34).map(|bit| 1u64 << bit);
        let all = octaves.flat_map(|ns| [ns, ns * 5 / 4, ns * 3 / 2, ns * 7 / 4]);
        for ns in all.flat_map(around) {
            let at = bucket(ns);
            assert!(ns < end_ns(at), "{ns} is beyond bucket {at}");
            assert!(
                at == 0 || ns >= end_ns(at - 1),
                "{ns} is before bucket {at}"
            );
            assert!(end_ns(at) <= ns.max(1024) / 4 * 5 + 256, "{ns}: too coarse");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_histogram_forgets_what_was_when_the_drive_changes() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile_ns(990), 0);
        (0..100_000).for_each(|_| histogram.note(80_000));
        assert!((80_000..100_000).contains(&histogram.quantile_ns(950)));
        (0..WINDOW).for_each(|_| histogram.note(8_000_000));
        assert!((8_000_000..10_000_000).contains(&histogram.quantile_ns(500)));
        (0..10 * WINDOW).for_each(|_| histogram.note(80_000));
        assert!((80_000..100_000).contains(&histogram.quantile_ns(999)));
    }

    #[test]
    fn one_slow_read_of_a_hundred_does_not_move_what_is_usual() {
        let mut histogram = Histogram::default();
        (0..10_000).for_each(|n| histogram.note(if n % 100 == 0 { 8_000_000 } else { 80_000 }));
        assert!(histogram.quantile_ns(USUAL) < 100_000);
        assert!(histogram.quantile_ns(995) > 8_000_000);
    }

    #[test]
    fn of_two_the_median_is_the_quicker_one() {
        assert_eq!(median(&mut [9, 1]), Some(1));
        assert_eq!(median(&mut [9, 1, 5]), Some(5));
        assert_eq!(median(&mut []), None);
    }
}
