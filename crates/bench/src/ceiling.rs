//! Ceilings: what raw members, measured in the same round, would make of the member I/O that a
//! request needs at least.
//!
//! A request of `reads` member reads and `writes` member writes takes, of what the raw members
//! carried per second, `reads / raw reads + writes / raw writes` of a second; the ceiling is one
//! request divided by that. Raw figures are those of the same request size and order. Member I/O
//! of the log is not counted as needed: what it costs is seen in the share of the ceiling.
//!
//! Sources, for stripes of k data strips and m parities on n = k + m members, one write within a
//! strip at a time:
//! * read: 1; where the strip is lost, k: any k strips of a stripe give the others. A request of
//!   whole stripes needs k reads for k strips, lost or not.
//! * write of whole stripes, and sequential write, which becomes one: n strips for k, less those
//!   lost.
//! * random write within a strip, with p parities left: the strip, if it is left, and p parities
//!   are written. With p = 0 nothing is read. A strip that is left: itself and p parities are read,
//!   or the k − 1 other strips, where these are fewer and all there. A strip that is lost: the
//!   k − 1 others. If one of those is lost, too, any k strips of the stripe, which give everything.
//!
//! Which strips of a stripe are lost with a member changes from stripe to stripe, in turns: what a
//! request needs is the mean over all turns and over all strips that it may be for. Of two members
//! it matters how far apart they are: those lost here lie side by side.
//!
//! Invariant: no figure here is measured; see `meter`.

use crate::array::{STRIP, Shape};
use crate::load::Load;

/// Member I/O of one request, of the request's own size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Need {
    pub(crate) reads: f64,
    pub(crate) writes: f64,
}

impl Need {
    /// What a request needs at least, with the first so many members lost.
    pub(crate) fn of(shape: Shape, lost: u64, load: Load) -> Need {
        assert!(lost <= shape.m, "data that is lost is not measured");
        let (n, k) = (shape.members() as f64, shape.k as f64);
        let row = shape.k * u64::from(STRIP);
        let whole_rows = (load.bytes as u64).is_multiple_of(row);
        match (load.write, load.random && !whole_rows) {
            (false, _) if whole_rows => Need {
                reads: 1.0,
                writes: 0.0,
            },
            (false, _) => Need {
                reads: (n - lost as f64 + lost as f64 * k) / n,
                writes: 0.0,
            },
            (true, false) => Need {
                reads: 0.0,
                writes: (n - lost as f64) / k,
            },
            (true, true) => Need::of_small_writes(shape, lost),
        }
    }

    /// The mean of all writes within a strip.
    fn of_small_writes(shape: Shape, lost: u64) -> Need {
        let (n, k) = (shape.members(), shape.k);
        let (mut reads, mut writes) = (0, 0);
        for turn in 0..n {
            let left = |strip: &u64| (strip + turn) % n >= lost;
            let (data, parities) = ((0..k).filter(left).count(), (k..n).filter(left).count());
            for strip in 0..k {
                let itself = u64::from(left(&strip));
                let others_lost = (k - data as u64) > (1 - itself);
                reads += small_reads(k, parities as u64, itself == 1, others_lost);
                writes += itself + parities as u64;
            }
        }
        let all = (n * k) as f64;
        Need {
            reads: reads as f64 / all,
            writes: writes as f64 / all,
        }
    }

    /// CPU time of the member I/O, from that of a raw read and of a raw write.
    pub(crate) fn cpu(self, raw_read: f64, raw_write: f64) -> f64 {
        self.reads * raw_read + self.writes * raw_write
    }

    /// Requests per second, from those of raw reads and writes.
    pub(crate) fn ceiling(self, raw_reads_per_s: f64, raw_writes_per_s: f64) -> f64 {
        1.0 / (self.reads / raw_reads_per_s + self.writes / raw_writes_per_s)
    }
}

/// Reads of a write within a strip, of k, with so many parities left.
fn small_reads(k: u64, parities: u64, itself_left: bool, others_lost: bool) -> u64 {
    let all = if others_lost { k } else { k - 1 };
    match (parities, itself_left) {
        (0, _) => 0,
        (_, true) => all.min(1 + parities),
        (_, false) => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strake_format::Level;

    const FIVE: Shape = Shape {
        level: Level::Raid5,
        k: 4,
        m: 1,
    };
    const SIX: Shape = Shape {
        level: Level::Raid6,
        k: 4,
        m: 2,
    };

    #[test]
    fn needs_are_those_of_the_textbook() {
        let need = |shape, lost, write, random, bytes| {
            let need = Need::of(shape, lost, Load::new(write, random, bytes));
            (need.reads, need.writes)
        };
        assert_eq!(need(FIVE, 0, false, true, 4096), (1.0, 0.0));
        assert_eq!(need(FIVE, 0, true, true, 4096), (2.0, 2.0));
        assert_eq!(need(SIX, 0, true, true, 4096), (3.0, 3.0));
        assert_eq!(need(FIVE, 0, true, false, 4096), (0.0, 1.25));
        assert_eq!(need(SIX, 0, true, false, 1 << 20), (0.0, 1.5));
        assert_eq!(need(FIVE, 1, true, false, 1 << 20), (0.0, 1.0));
        assert_eq!(need(FIVE, 1, false, false, 1 << 20), (1.0, 0.0));
        let (reads, writes) = need(FIVE, 1, false, true, 4096);
        assert!((reads - 1.6).abs() < 1e-9 && writes == 0.0);
        let (reads, writes) = need(FIVE, 1, true, true, 4096);
        assert!((reads - (0.6 + 1.2)).abs() < 1e-9 && (writes - 1.6).abs() < 1e-9);
        // Whole stripes are whole in any order.
        assert_eq!(need(FIVE, 0, true, true, 512 << 10), (0.0, 1.25));
        assert_eq!(need(SIX, 1, true, true, 1 << 20), (0.0, 1.25));
        assert_eq!(need(SIX, 1, false, true, 1 << 20), (1.0, 0.0));
        assert_eq!(need(FIVE, 0, true, true, 128 << 10), (2.0, 2.0));
    }

    #[test]
    fn needs_with_two_members_lost_are_those_of_all_six_turns() {
        let need = |write, random, bytes| {
            let need = Need::of(SIX, 2, Load::new(write, random, bytes));
            (need.reads, need.writes)
        };
        assert_eq!(need(true, false, 512 << 10), (0.0, 1.0));
        assert_eq!(need(false, false, 512 << 10), (1.0, 0.0));
        let (reads, writes) = need(false, true, 4096);
        assert!((reads - 2.0).abs() < 1e-9 && writes == 0.0);
        let (reads, writes) = need(true, true, 4096);
        // Three turns lose two data strips: two of four strips need 4 and 2, two 3 and 3. Two lose
        // a data strip and a parity: one needs 3 and 1, three 2 and 2. One loses both parities.
        let of = |(both, mixed, none): (f64, f64, f64)| (3.0 * both + 2.0 * mixed + none) / 24.0;
        assert!((reads - of((14.0, 9.0, 0.0))).abs() < 1e-9, "{reads}");
        assert!((writes - of((10.0, 7.0, 4.0))).abs() < 1e-9, "{writes}");
    }

    #[test]
    fn a_ceiling_is_the_harmonic_sum_of_what_is_needed() {
        let need = Need {
            reads: 2.0,
            writes: 2.0,
        };
        assert!((need.ceiling(100.0, 50.0) - 100.0 / 6.0).abs() < 1e-9);
    }
}
