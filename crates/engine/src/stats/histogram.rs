//! How long requests take, or the I/Os of a member: a histogram with buckets that grow with what
//! they hold. What goes in and comes out are nanoseconds.
//!
//! Invariants:
//! * Noting a latency costs a few instructions and no memory.
//! * What is read from it errs to the slow side, by an eighth at most (below 8 µs by one): a target
//!   that is met here is met.
//!
//! A [`Distribution`] is of all that were, by doublings: it costs the addition of what each took
//! and a comparison, for what a histogram forgets it hands over at once, thousands at a time.
//!
//! Deliberately absent: time. The owner of a histogram decides which period it covers, and when
//! older values lose weight (`halve`).

/// Buckets: one for each of the first 8 units, then 8 for each doubling up to a minute.
const BUCKETS: usize = 192;
/// A unit is 1024 ns.
const UNIT_BITS: u32 = 10;

/// Doublings of [`Distribution`]: 8 buckets of a histogram each.
pub const DOUBLINGS: usize = BUCKETS / 8;
/// The last of them that ends: 17 s.
const DOUBLINGS_TOLD: usize = DOUBLINGS - 2;

/// All latencies since something began, by doublings; what goes in and comes out are nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    counts: [u64; DOUBLINGS],
    /// Of all together, nanoseconds.
    pub sum_ns: u64,
    /// The longest one, nanoseconds.
    pub max_ns: u64,
}

impl Distribution {
    /// Those of another owner, which counted by [`doubling`].
    pub fn of(counts: [u64; DOUBLINGS], sum_ns: u64, max_ns: u64) -> Distribution {
        Distribution {
            counts,
            sum_ns,
            max_ns,
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Bounds from 8.192 µs on, each twice the one before, to 17.2 s, and how many took less. What
    /// took longer than the last is in `count` alone.
    pub fn below(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.counts.iter().take(DOUBLINGS_TOLD).enumerate();
        counts.scan(0, |below, (doubling, count)| {
            *below += count;
            Some((beyond(doubling * 8 + 7), *below))
        })
    }

    /// Takes in those of another.
    pub fn add(&mut self, other: &Distribution) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// Recent latencies, and what is left of those before them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The recent ones, of which old ones lose weight.
    pub recent: Histogram,
    /// What `recent` does not count any more, and what all of them took.
    forgotten: Distribution,
}

impl Kept {
    /// One more, which took so long. Past `window` recent ones these lose half of their weight.
    #[inline]
    pub fn note(&mut self, ns: u64, window: u64) {
        self.recent.note(ns);
        self.forgotten.sum_ns = self.forgotten.sum_ns.saturating_add(ns);
        self.forgotten.max_ns = self.forgotten.max_ns.max(ns);
        if self.recent.count() >= window {
            self.halve();
        }
    }

    #[cold]
    fn halve(&mut self) {
        let before = self.all();
        self.recent.halve();
        let counts = self.forgotten.counts.iter_mut().zip(before.counts);
        for ((forgotten, all), recent) in counts.zip(self.recent.doublings()) {
            *forgotten = all - recent;
        }
    }

    /// All of them, recent or not.
    pub fn all(&self) -> Distribution {
        let mut all = self.forgotten;
        for (count, recent) in all.counts.iter_mut().zip(self.recent.doublings()) {
            *count += recent;
        }
        all
    }
}

/// See the module.
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: [u32; BUCKETS],
    total: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: [0; BUCKETS],
            total: 0,
        }
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let p99 = self.quantile_ns(990);
        write!(f, "{} latencies, p99 {p99:?} ns", self.total)
    }
}

fn bucket(ns: u64) -> usize {
    let units = ns >> UNIT_BITS;
    if units < 8 {
        return units as usize;
    }
    let exponent = units.ilog2();
    let within = (units >> (exponent - 3)) & 7;
    ((exponent as usize - 2) * 8 + within as usize).min(BUCKETS - 1)
}

/// Which doubling of a [`Distribution`] counts what took so long.
#[inline]
pub fn doubling(ns: u64) -> usize {
    bucket(ns) / 8
}

/// The first nanosecond that lies beyond a bucket.
fn beyond(bucket: usize) -> u64 {
    if bucket < 8 {
        return (bucket as u64 + 1) << UNIT_BITS;
    }
    let (exponent, within) = (bucket / 8 + 2, bucket % 8);
    (8 + within as u64 + 1) << (exponent - 3) << UNIT_BITS
}

impl Histogram {
    /// One more, which took so long.
    #[inline]
    pub fn note(&mut self, ns: u64) {
        let count = &mut self.counts[bucket(ns)];
        *count = count.saturating_add(1);
        self.total += 1;
    }

    /// Latencies noted, the halved ones by their weight.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Takes in those of another.
    pub fn add(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.total += other.total;
    }

    /// What it holds counts half as much from now on.
    pub fn halve(&mut self) {
        self.counts.iter_mut().for_each(|count| *count /= 2);
        self.total = self.counts.iter().map(|&count| u64::from(count)).sum();
    }

    /// How many lie in each doubling.
    fn doublings(&self) -> impl Iterator<Item = u64> + '_ {
        let counts = self.counts.chunks_exact(8);
        counts.map(|counts| counts.iter().map(|&count| u64::from(count)).sum())
    }

    /// Those that may have taken so long or longer.
    pub fn late(&self, ns: u64) -> u64 {
        self.counts[bucket(ns)..]
            .iter()
            .map(|&n| u64::from(n))
            .sum()
    }

    /// So many of a thousand took less; none if there was none.
    pub fn quantile_ns(&self, per_mille: u64) -> Option<u64> {
        let mut slower = self.total * (1000 - per_mille.min(1000)) / 1000;
        let last = self.counts.iter().enumerate().rev().find(|&(_, &count)| {
            let here = slower < u64::from(count);
            slower = slower.saturating_sub(u64::from(count));
            here
        });
        last.map(|(bucket, _)| beyond(bucket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_one_another_and_are_an_eighth_wide_at_most() {
        let mut before = 0;
        for bucket_no in 0..BUCKETS {
            let end = beyond(bucket_no);
            assert_eq!(bucket(before), bucket_no);
            assert_eq!(bucket(end - 1), bucket_no);
            let width = end - before;
            assert!(
                before < 8 << UNIT_BITS || width * 8 <= before,
                "{bucket_no}"
            );
            before = end;
        }
        assert!(before > 60_000_000_000, "a minute fits");
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn ninety_nine_of_a_hundred_are_quicker_than_the_p99() {
        let mut seen = Histogram::default();
        assert_eq!(seen.quantile_ns(990), None);
        (0..99).for_each(|_| seen.note(100_000));
        seen.note(5_000_000);
        let p99 = seen.quantile_ns(990).expect("there are requests");
        assert!((100_000..=112_500).contains(&p99), "{p99}");
        seen.note(5_000_000);
        let p99 = seen.quantile_ns(990).expect("there are requests");
        assert!((5_000_000..=5_700_000).contains(&p99), "{p99}");
    }

    #[test]
    fn no_late_request_is_overlooked() {
        let mut seen = Histogram::default();
        for us in 1..=1000 {
            seen.note(us * 1000);
        }
        for target_us in [10, 100, 500, 999] {
            let (late, truly) = (seen.late(target_us * 1000), 1000 - target_us);
            assert!(late >= truly, "{target_us}: {late}");
            assert!(late <= truly + target_us / 8 + 2, "{target_us}: {late}");
        }
    }

    #[test]
    fn what_was_halved_gives_way_to_what_comes() {
        let mut seen = Histogram::default();
        (0..1000).for_each(|_| seen.note(80_000));
        seen.halve();
        assert_eq!(seen.count(), 500);
        (0..600).for_each(|_| seen.note(8_000_000));
        let median = seen.quantile_ns(500).expect("there are latencies");
        assert!((8_000_000..=9_000_000).contains(&median), "{median}");
        // One alone is forgotten.
        let mut seen = Histogram::default();
        seen.note(80_000);
        seen.halve();
        assert_eq!((seen.count(), seen.quantile_ns(500)), (0, None));
    }

    #[test]
    fn nothing_is_lost_of_all_that_were_though_recent_ones_lose_weight() {
        let mut kept = Kept::default();
        let mut sum_ns = 0;
        for n in 0..100_000u64 {
            // From 1 µs to more than a minute.
            let ns = 1000 << (n % 27);
            kept.note(ns, 1000);
            sum_ns += ns;
        }
        assert!(kept.recent.count() < 1000);
        let all = kept.all();
        assert_eq!((all.count(), all.sum_ns), (100_000, sum_ns));
        assert_eq!(all.max_ns, 1000 << 26);
        let mut last = (0, 0);
        for (bound_ns, below) in all.below() {
            assert!(bound_ns == last.0 * 2 || last.0 == 0, "{bound_ns}");
            assert!(below >= last.1, "cumulative at {bound_ns}");
            let truly = (0..100_000u64).filter(|n| 1000 << (n % 27) < bound_ns);
            assert_eq!(below, truly.count() as u64, "below {bound_ns}");
            last = (bound_ns, below);
        }
        assert_eq!(last.0, 1 << 34, "17 s");
        assert!(last.1 < all.count(), "some took longer");
        assert_eq!(all.below().next().map(|(ns, _)| ns), Some(8192));
    }

    #[test]
    fn what_another_owner_counts_by_doublings_is_the_same_distribution() {
        let mut kept = Kept::default();
        let mut counts = [0; DOUBLINGS];
        let mut sum_ns = 0;
        for n in 0..10_000u64 {
            let ns = 700 << (n % 28);
            kept.note(ns, 1000);
            counts[doubling(ns)] += 1;
            sum_ns += ns;
        }
        assert_eq!(Distribution::of(counts, sum_ns, 700 << 27), kept.all());
    }

    #[test]
    fn of_two_shards_all_are_counted_and_the_longest_is_kept() {
        let (mut one, mut other) = (Kept::default(), Kept::default());
        one.note(5_000, 100);
        other.note(70_000, 100);
        let mut all = one.all();
        all.add(&other.all());
        assert_eq!((all.count(), all.sum_ns, all.max_ns), (2, 75_000, 70_000));
        assert_eq!(all.below().next(), Some((8192, 1)));
    }

    #[test]
    fn two_together_are_what_both_saw() {
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        one.note(1_000);
        other.note(2_000_000);
        one.add(&other);
        assert_eq!((one.count(), one.late(1_000_000)), (2, 1));
    }
}
