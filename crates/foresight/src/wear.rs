//! Write amplification: RAID × indirection unit × garbage collection, each factor for itself.
//!
//! Formulas: greedy collection of random writes is Xiang and Kurkoski 2011 and Desnoyers 2012 (the
//! same limit); the mean of unaligned runs is counted; mixed lifetimes are a counting argument of
//! our own (`docs/explanation/foresight.md`).

use schemars::JsonSchema;
use serde::Serialize;

use crate::drive::{Drive, End};
use crate::load::Load;
use crate::shape::{Shape, Work};
use crate::value::{Figure, Source};

/// What streams in order cost beside their data: metadata and the ends of blocks.
pub const SEQUENTIAL: f64 = 1.02;

/// Flash bytes for each byte of random writes over the whole drive, by greedy collection, where
/// spare flash is this fraction of the data.
pub fn greedy(spare: f64) -> f64 {
    strake_flash::collection_waf(spare)
}

/// The spare flash at which greedy collection costs so much: the inverse of [`greedy`].
pub fn spare_of(waf: f64) -> f64 {
    let (mut low, mut high) = (1e-4, 100.0);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        match greedy(middle) > waf {
            true => low = middle,
            false => high = middle,
        }
    }
    f64::midpoint(low, high)
}

/// Bytes that a drive writes for each byte of runs of `run` bytes that begin anywhere on a grid of
/// `grid` bytes, where it maps in units of `unit`.
pub fn fragment(run: f64, unit: f64, grid: f64) -> f64 {
    1.0 + (1.0 - grid.min(unit) / unit) * unit / run
}

/// The same for pieces of `bytes` that are aligned to their size.
pub fn aligned(bytes: f64, unit: f64) -> f64 {
    fragment(bytes, unit, grid_of(bytes, unit))
}

/// On which grid pieces of so many bytes begin within units: their greatest common divisor.
fn grid_of(bytes: f64, unit: f64) -> f64 {
    let (mut a, mut b) = (bytes as u64, unit as u64);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    (a as f64).clamp(512.0, unit)
}

/// A rebuild fills blocks that live long beside `streams` that overwrite theirs; `share` of the
/// bytes are the rebuild's.
pub fn mixed_lifetimes(share: f64, streams: f64) -> f64 {
    SEQUENTIAL * (1.0 + share + (1.0 - share) / streams)
}

/// What strips of these bytes cost on drives of this unit, in flash writes for each byte, if whole
/// stripes are written: at least (the drive joins neighbouring strips) and at most.
pub fn strip_cost(strip: u64, unit: u64) -> Figure {
    let most = aligned(strip as f64, unit as f64);
    Figure::range(1.0, most, Source::Formula)
}

/// The factors of a load's write amplification.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Waf {
    /// Bytes in place on the drives for each byte that is written to the array.
    pub raid: Figure,
    /// Bytes of whole indirection units for each of those.
    pub unit: Figure,
    /// Bytes of flash for each of those: garbage collection.
    pub gc: Figure,
    /// Bytes of the stripe log for each byte that is written to the array, in order.
    pub log: Figure,
    /// raid × unit × gc + log × 1.02.
    pub total: Figure,
}

/// Of the writes of a load; `None` where it only reads.
pub fn of_load(drive: &Drive, shape: &Shape, load: &Load, written: f64) -> Option<Waf> {
    if load.read_percent == 100 {
        return None;
    }
    let asks = Load {
        read_percent: 0,
        ..*load
    };
    let work = Work::optimal(shape, &asks);
    let bytes = load.bytes as f64;
    let point = |value| Figure::point(value, Source::Formula);
    let raid = point(work.writes * work.write_each / bytes);
    let log = point(work.log_bytes / bytes);
    let unit = unit_factor(drive, &work, load.sequential);
    let gc = match load.sequential {
        true => point(SEQUENTIAL),
        false => drive.over_provisioning.map(Source::Formula, |spare| {
            greedy((1.0 + spare) / written - 1.0)
        }),
    };
    let product = |a: Figure, b: Figure| a.with(b, Source::Formula, |a, b| a * b);
    let place = product(product(raid, unit), gc);
    let total = place.with(log, Source::Formula, |p, l| p + l * SEQUENTIAL);
    Some(Waf {
        raid,
        unit,
        gc,
        log,
        total,
    })
}

fn unit_factor(drive: &Drive, work: &Work, sequential: bool) -> Figure {
    let each = work.write_each;
    let at = |end: End| match end {
        // The drive's buffer joins strips that follow each other.
        End::Best if sequential => 1.0,
        end => aligned(each, end.less(drive.unit)),
    };
    let source = drive.unit.source.max(Source::Formula);
    Figure::range(at(End::Best), at(End::Worst), source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_collection_is_what_the_papers_print() {
        // Known values by the equation itself, solved by hand to four digits.
        for (spare, waf) in [
            (0.07, 7.82),
            (0.10, 5.68),
            (0.126, 4.65),
            (0.13, 4.53),
            (0.14, 4.25),
            (0.167, 3.68),
            (0.28, 2.48),
        ] {
            let got = greedy(spare);
            assert!((got / waf - 1.0).abs() < 0.005, "{spare}: {got}");
            assert!((spare_of(got) / spare - 1.0).abs() < 1e-6);
        }
        // Without spare flash it has no end, with much it is 1.
        assert!(greedy(0.001) > 100.0);
        assert!(greedy(20.0) < 1.001);
        let falls = (1..200).map(|n| greedy(f64::from(n) / 100.0));
        let falls: Vec<f64> = falls.collect();
        assert!(falls.windows(2).all(|w| w[0] > w[1]));
    }

    #[test]
    fn units_cost_what_is_touched() {
        assert_eq!(aligned(4096.0, 16384.0), 4.0);
        assert_eq!(aligned(4096.0, 65536.0), 16.0);
        assert_eq!(aligned(16384.0, 16384.0), 1.0);
        assert_eq!(aligned(131_072.0, 16384.0), 1.0);
        // 24 KiB on a grid of 8 KiB: half of the runs touch 2 units of 16 KiB, half touch 2 too.
        assert!((aligned(24576.0, 16384.0) - 32.0 / 24.0).abs() < 1e-9);
        // 64 KiB on units of 48 KiB: three starts, 16 KiB apart, of 2 + 2 + 2 units.
        assert!((aligned(65536.0, 49152.0) - 96.0 / 64.0).abs() < 1e-9);
        assert_eq!(strip_cost(65536, 16384).high, 1.0);
        assert_eq!(strip_cost(16384, 65536).high, 4.0);
        assert_eq!(strip_cost(16384, 65536).low, 1.0);
    }

    #[test]
    fn a_run_of_unaligned_sectors_is_counted_right() {
        // Every start of a run of 6 sectors on units of 4: units touched, over the mean.
        let (run, unit) = (6u32, 4u32);
        let touched = |start: u32| (start + run).div_ceil(unit) - start / unit;
        let mean = (0..unit).map(touched).sum::<u32>() as f64 / f64::from(unit);
        let counted = mean * f64::from(unit) / f64::from(run);
        let formula = fragment(f64::from(run), f64::from(unit), 1.0);
        assert!((counted - formula).abs() < 1e-12);
    }
}
