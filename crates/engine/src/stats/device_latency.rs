//! How long members take: histograms for each, and the deadlines that are learned from it.
//!
//! The deadline of a member's reads is [`FACTOR`] times what 95 of 100 of its own recent reads
//! stayed below, or twice that of its peers if theirs is lower (a member that is slow all the time
//! would otherwise never be late), within a floor and a ceiling; there is none before
//! [`HedgeRules::samples_min`] reads. Not the 99th percentile: where one read of a hundred is slow,
//! that *is* the slow one. The shape of the rule is that of "The Tail at Scale" (Dean and Barroso,
//! 2013): defer the second request until the first has been out for longer than the 95th
//! percentile, which bounds the extra load; the factor and the budget (see `shard::read::hedge`)
//! keep it far smaller still, because here a second request costs k reads.
//!
//! Invariants:
//! * Noting a latency allocates nothing and takes a constant number of steps, but for a look at all
//!   of one histogram after every [`LEARN_EVERY`] reads.
//! * Old latencies lose half of their weight with every [`WINDOW`] / 2 new ones: what is learned
//!   follows the drive.
//!
//! Deliberately absent: the size of a request. Reads of all sizes share a histogram; a load that
//! changes from small to large ones is late for a while, and the budget bounds what that costs.

use crate::stats::histogram::Kept;
use crate::units::*;

/// A histogram that counts so many is halved.
const WINDOW: u64 = 8192;
/// Deadlines are learned anew after so many reads of a member.
const LEARN_EVERY: u32 = 128;
/// The quantile that deadlines and verdicts go by, per mille.
pub(crate) const USUAL: u64 = 950;
/// A read is late after this many times the usual.
const FACTOR: u64 = 4;

/// The rules by which reads are hedged and members called slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HedgeRules {
    /// Reads of a member before it has a deadline; 0 is as 1: one must be known.
    pub samples_min: u32,
    /// No deadline is shorter, nanoseconds, whatever the ceiling: below that a second request gains
    /// nothing.
    pub floor_ns: u64,
    /// Nor longer, nanoseconds.
    pub ceiling_ns: u64,
    /// Late reads are looked for at most this often, nanoseconds.
    pub look_every_ns: u64,
    /// One read in so many may be hedged; 0 is as 1.
    pub one_in: u32,
    /// So many may be at once, if there were none for long.
    pub burst: u32,
    /// A member is called slow, or not any more, when it was so for so long, nanoseconds.
    pub slow_after_ns: u64,
    /// A member that was late with a read in place is read into buffers for so long, nanoseconds.
    pub in_place_pause_ns: u64,
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
            in_place_pause_ns: 100_000_000,
            report_ns: 1_000_000_000,
        }
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
    /// Late reads that were left waiting: the budget was used up, or they fill their user's place.
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
    pub read: Kept,
    /// Of its writes.
    pub write: Kept,
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
    /// It is read into buffers until then.
    buffers_until: Time,
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
    pub(crate) fn new(
        rules: HedgeRules,
        serving: impl ExactSizeIterator<Item = Option<DeviceId>>,
    ) -> Meters {
        let rules = HedgeRules {
            samples_min: rules.samples_min.max(1),
            one_in: rules.one_in.max(1),
            ..rules
        };
        let mut meters = Meters {
            rules,
            meters: Vec::new(),
            slots: Vec::new(),
            report_at: None,
        };
        meters.follow(serving);
        meters
    }

    /// The membership or the number of slots changed: a member that takes a slot starts anew, one
    /// that stays in its own goes on.
    pub(crate) fn follow(&mut self, serving: impl ExactSizeIterator<Item = Option<DeviceId>>) {
        self.meters.resize_with(serving.len(), Meter::default);
        self.slots.fill(0);
        for (at, (meter, device)) in self.meters.iter_mut().zip(serving).enumerate() {
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
            Measured::Write => meter.latencies.write.note(ns, WINDOW),
            Measured::Read => {
                meter.latencies.read.note(ns, WINDOW);
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
        meter.usual_ns = meter.latencies.read.recent.quantile_ns(USUAL).unwrap_or(0);
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
        meter.deadline_ns = Some(deadline.min(rules.ceiling_ns).max(rules.floor_ns));
    }

    /// After how long a read of this device is late, nanoseconds; `None` if that is not known.
    pub(crate) fn deadline_ns(&self, device: DeviceId) -> Option<u64> {
        self.meters[self.slot(device)?].deadline_ns
    }

    /// A read in place is late: it is looked at again when it was due once more.
    pub(crate) fn late_in_place(&mut self, device: DeviceId, now: Time) {
        let pause_ns = self.rules.in_place_pause_ns;
        if let Some(slot) = self.slot(device) {
            let meter = &mut self.meters[slot];
            let again_ns = meter.deadline_ns.unwrap_or(0);
            let until = now.0.saturating_add(again_ns).saturating_add(pause_ns);
            meter.buffers_until = Time(until);
        }
    }

    /// A device has not been late with reads in place for a while.
    pub(crate) fn fills_in_time(&self, device: DeviceId, now: Time) -> bool {
        let slot = self.slot(device);
        slot.is_none_or(|slot| self.meters[slot].buffers_until <= now)
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
    fn a_histogram_forgets_what_was_when_the_drive_changes() {
        let mut recent = Kept::default();
        let note = |kept: &mut Kept, ns| kept.note(ns, WINDOW);
        let quantile = |kept: &Kept, per_mille| {
            let ns = kept.recent.quantile_ns(per_mille);
            ns.expect("there are latencies")
        };
        (0..100_000).for_each(|_| note(&mut recent, 80_000));
        assert!((80_000..=90_000).contains(&quantile(&recent, 950)));
        (0..WINDOW).for_each(|_| note(&mut recent, 8_000_000));
        assert!((8_000_000..=9_000_000).contains(&quantile(&recent, 500)));
        (0..14 * WINDOW).for_each(|_| note(&mut recent, 80_000));
        assert!((80_000..=90_000).contains(&quantile(&recent, 999)));
        assert!(recent.recent.count() < WINDOW);
        assert_eq!(recent.all().count(), 100_000 + 15 * WINDOW);
    }

    #[test]
    fn one_slow_read_of_a_hundred_does_not_move_what_is_usual() {
        let mut kept = Kept::default();
        (0..10_000).for_each(|n| {
            let ns = if n % 100 == 0 { 8_000_000 } else { 80_000 };
            kept.note(ns, WINDOW);
        });
        let recent = &kept.recent;
        assert!(recent.quantile_ns(USUAL) < Some(100_000));
        assert!(recent.quantile_ns(995) > Some(8_000_000));
    }

    #[test]
    fn of_two_the_median_is_the_quicker_one() {
        assert_eq!(median(&mut [9, 1]), Some(1));
        assert_eq!(median(&mut [9, 1, 5]), Some(5));
        assert_eq!(median(&mut []), None);
    }
}
