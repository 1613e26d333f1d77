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
//! * read: 1; where the strip is lost (1 of n), k: any k strips of a stripe give the others. A
//!   request of whole stripes needs k reads for k strips, lost or not.
//! * sequential write: whole stripes, n strips for k, less the lost one.
//! * random write: old data and m parities read (or the k − 1 other strips, where these are
//!   fewer), data and m parities written. With a lost member: the strip itself (1 of n): the k − 1
//!   others read, m written; a parity (m of n): one parity less to read and write, and with none
//!   left nothing to read; another data strip: its place in the sum stays, so all is read by the
//!   first way.
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
    /// What a request needs at least, with so many members (none or one) lost.
    pub(crate) fn of(shape: Shape, lost: u64, load: Load) -> Need {
        assert!(lost <= 1, "one lost member at most is measured");
        let (n, k, m) = (shape.members() as f64, shape.k as f64, shape.m as f64);
        let row = shape.k * u64::from(STRIP);
        if !load.write {
            let whole_rows = (load.bytes as u64).is_multiple_of(row);
            let reads = match lost == 0 || whole_rows {
                true => 1.0,
                false => (n - 1.0) / n + k / n,
            };
            return Need { reads, writes: 0.0 };
        }
        if !load.random {
            let writes = (n - lost as f64) / k;
            return Need { reads: 0.0, writes };
        }
        if lost == 0 {
            return Need {
                reads: (1.0 + m).min(k - 1.0),
                writes: 1.0 + m,
            };
        }
        let fewer = if m == 1.0 { 0.0 } else { m.min(k - 1.0) };
        let cases = [
            (1.0 / n, k - 1.0, m),
            (m / n, fewer, m),
            ((k - 1.0) / n, 1.0 + m, 1.0 + m),
        ];
        Need {
            reads: cases.iter().map(|(share, reads, _)| share * reads).sum(),
            writes: cases.iter().map(|(share, _, writes)| share * writes).sum(),
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
