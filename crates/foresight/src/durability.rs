//! How likely it is that data is lost, as three numbers: the array, any sector, bytes a year.
//!
//! Formulas: Chen et al. 1994 (ACM Computing Surveys) with unreadable sectors and correlated later
//! failures; expected bytes lost after Greenan, Plank and Wylie (HotStorage 2010). Schroeder et al.
//! (FAST 2016) show that a rate of unreadable bits predicts little: it is an input with a name, not
//! a property of a drive.

use schemars::JsonSchema;
use serde::Serialize;

use crate::drive::End;
use crate::shape::Shape;
use crate::value::{Figure, Source};

/// Hours of a year.
pub const YEAR_H: f64 = 8760.0;
/// Data of which nothing is read for so long, in hours, has as many new unreadable sectors as one
/// reading finds: drives for servers are rated for three months of retention (JEDEC JESD218).
const RETENTION_H: f64 = YEAR_H / 4.0;
/// What one unreadable sector costs on each column.
const SECTOR: f64 = 4096.0;

/// What durability is computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// Failures of a drive a year.
    pub afr: Figure,
    /// Unreadable sectors for each bit that is read.
    pub uber: Figure,
    /// How much more likely a drive fails while another of its group has failed.
    pub correlation: Figure,
    /// Hours between two scrubs; `None`: latent errors are left out.
    pub scrub_h: Option<Figure>,
    /// Hours from a failure until a rebuild begins.
    pub before_h: Figure,
    /// Hours of a rebuild.
    pub rebuild_h: Figure,
    /// Bytes of a member that hold data.
    pub member_bytes: f64,
}

/// The three numbers, each for a year.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Durability {
    /// Probability that more members of a group fail than it may lose: the array is lost.
    pub array_lost: Figure,
    /// Probability that the array is lost, or a sector that cannot be read meets lost members.
    pub sector_lost: Figure,
    /// Nines of the second: 6 is 99.9999 %.
    pub nines: Figure,
    /// Expected bytes lost.
    pub bytes_lost: Figure,
    /// What they are computed from.
    pub inputs: Named,
}

/// The inputs as they are printed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Named {
    /// Failures of a drive a year.
    pub afr: Figure,
    /// Unreadable sectors for each bit that is read.
    pub uber: Figure,
    /// How much more likely a drive fails while another of its group has failed.
    pub correlation: Figure,
    /// Hours between two scrubs.
    pub scrub_interval_h: Option<Figure>,
    /// Hours without full redundancy after a failure: until a rebuild begins, and the rebuild.
    pub exposed_h: Figure,
}

/// Probability that some sector is unreadable while so many bytes of each of `reads` drives are
/// read.
pub fn p_unreadable(bytes: f64, uber: f64, reads: f64) -> f64 {
    -(-reads * bytes * 8.0 * uber).exp_m1()
}

/// Failures that leave no parity, expected in a year: all but the last of `m + 1`.
fn p_critical(n: f64, m: u8, afr: f64, hours: f64, correlation: f64) -> f64 {
    (1..m).fold(n * afr, |p, i| {
        p * (correlation * (n - f64::from(i)) * afr * hours / YEAR_H).min(1.0)
    })
}

/// Yearly probability that one group of n members, m of them parity, loses data.
pub fn p_loss(n: f64, m: u8, afr: f64, hours: f64, unreadable: f64, correlation: f64) -> f64 {
    let last = (correlation * (n - f64::from(m)) * afr * hours / YEAR_H).min(1.0);
    let both = 1.0 - (1.0 - last) * (1.0 - unreadable);
    (p_critical(n, m, afr, hours, correlation) * both).min(1.0)
}

/// One of several equal groups at least.
fn any(p: f64, groups: f64) -> f64 {
    -(groups * (-p.min(1.0 - 1e-16)).ln_1p()).exp_m1()
}

/// Numbers of one case.
struct Case {
    array: f64,
    sector: f64,
    bytes: f64,
}

fn case(shape: &Shape, inputs: &Inputs, end: End) -> Case {
    let (afr, uber) = (end.less(inputs.afr), end.less(inputs.uber));
    let a = end.less(inputs.correlation);
    let hours = end.less(inputs.before_h) + end.less(inputs.rebuild_h);
    let aged = inputs
        .scrub_h
        .map_or(0.0, |scrub| end.less(scrub) / 2.0 / RETENTION_H);
    let uber = uber * (1.0 + aged);
    let (n, m) = (f64::from(shape.group_size), shape.tolerance());
    let groups = shape.groups();
    let k = shape.data();
    let bits = inputs.member_bytes * 8.0;
    let all = groups * k * inputs.member_bytes;
    if m == 0 {
        // No parity: any drive takes the array with it, and each sector is read once a year.
        let array = -(-f64::from(shape.members) * afr).exp_m1();
        let sectors = f64::from(shape.members) * bits * uber;
        return Case {
            array,
            sector: 1.0 - (1.0 - array) * (-sectors).exp(),
            bytes: array * all + sectors * SECTOR,
        };
    }
    let unreadable = p_unreadable(inputs.member_bytes, uber, k);
    let array = any(p_loss(n, m, afr, hours, 0.0, a), groups);
    let sector = any(p_loss(n, m, afr, hours, unreadable, a), groups);
    let critical = groups * p_critical(n, m, afr, hours, a);
    let sectors = critical * k * bits * uber;
    Case {
        array,
        sector,
        bytes: array * all + sectors * SECTOR * (f64::from(m) + 1.0),
    }
}

/// The three numbers of a shape.
pub fn durability(shape: &Shape, inputs: &Inputs) -> Durability {
    let (worst, best) = (
        case(shape, inputs, End::Worst),
        case(shape, inputs, End::Best),
    );
    let used = [
        inputs.afr,
        inputs.uber,
        inputs.correlation,
        inputs.before_h,
        inputs.rebuild_h,
    ];
    let source = used
        .iter()
        .map(|f| f.source)
        .fold(Source::Formula, Source::max);
    let figure = |of: fn(&Case) -> f64| Figure::range(of(&best), of(&worst), source);
    let sector_lost = figure(|c| c.sector);
    Durability {
        array_lost: figure(|c| c.array),
        sector_lost,
        nines: sector_lost.map(Source::Formula, |p| -p.log10()),
        bytes_lost: figure(|c| c.bytes),
        inputs: Named {
            afr: inputs.afr,
            uber: inputs.uber,
            correlation: inputs.correlation,
            scrub_interval_h: inputs.scrub_h,
            exposed_h: inputs
                .before_h
                .with(inputs.rebuild_h, Source::Formula, |a, b| a + b),
        },
    }
}

#[cfg(test)]
mod tests {
    use strake_format::Level;

    use super::*;

    fn inputs(rebuild_h: f64) -> Inputs {
        let point = |v| Figure::point(v, Source::Given);
        Inputs {
            afr: point(0.0044),
            uber: point(1e-17),
            correlation: point(5.0),
            scrub_h: None,
            before_h: point(0.0),
            rebuild_h: point(rebuild_h),
            member_bytes: 61.44e12,
        }
    }

    fn group(level: Level, members: u8) -> Shape {
        Shape::new(level, members, None, Some(131_072), 16384).expect("a shape")
    }

    #[test]
    fn nines_are_those_of_the_arithmetic() {
        // 61.44 TB, 8+M: computed by hand from the formula of the module.
        for (hours, nines) in [
            (1.2, [2.8, 7.3, 11.8]),
            (5.4, [2.8, 6.7, 10.5]),
            (53.9, [2.8, 5.7, 8.5]),
        ] {
            let shapes = [
                group(Level::Raid5, 9),
                group(Level::Raid6, 10),
                group(Level::Raid7_3, 11),
            ];
            for (shape, nines) in shapes.iter().zip(nines) {
                let got = durability(shape, &inputs(hours)).nines.low;
                assert!(
                    (got - nines).abs() < 0.06,
                    "{hours} {shape:?}: {got} {nines}"
                );
            }
        }
    }

    #[test]
    fn without_unreadable_sectors_it_is_the_mean_time_to_data_loss() {
        // RAID 5: n(n-1)λ²T/H, RAID 6: n(n-1)(n-2)λ³(T/H)².
        let (l, t) = (0.0044, 4.7 / YEAR_H);
        let five = p_loss(11.0, 1, l, 4.7, 0.0, 1.0);
        assert!((five / (11.0 * 10.0 * l * l * t) - 1.0).abs() < 1e-12);
        let six = p_loss(12.0, 2, l, 4.7, 0.0, 1.0);
        assert!((six / (12.0 * 11.0 * 10.0 * l.powi(3) * t * t) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn time_buys_nothing_on_one_parity_and_a_nine_a_decade_on_two() {
        let of =
            |level, members, hours| durability(&group(level, members), &inputs(hours)).nines.low;
        assert!(of(Level::Raid5, 9, 1.0) - of(Level::Raid5, 9, 10.0) < 0.1);
        let six = of(Level::Raid6, 10, 1.0) - of(Level::Raid6, 10, 10.0);
        assert!((six - 1.0).abs() < 0.05, "{six}");
        let three = of(Level::Raid7_3, 11, 1.0) - of(Level::Raid7_3, 11, 10.0);
        assert!((three - 2.0).abs() < 0.1, "{three}");
    }

    #[test]
    fn each_number_grows_with_each_cause() {
        let base = durability(&group(Level::Raid6, 10), &inputs(10.0));
        assert!(base.array_lost.low < base.sector_lost.low);
        let mut worse = Vec::new();
        for change in [
            |i: &mut Inputs| i.afr = Figure::point(0.01, Source::Given),
            |i: &mut Inputs| i.correlation = Figure::point(10.0, Source::Given),
            |i: &mut Inputs| i.before_h = Figure::point(24.0, Source::Given),
        ] {
            let mut inputs = inputs(10.0);
            change(&mut inputs);
            worse.push(durability(&group(Level::Raid6, 10), &inputs));
        }
        for worse in worse {
            assert!(worse.array_lost.low > base.array_lost.low);
            assert!(worse.sector_lost.low > base.sector_lost.low);
            assert!(worse.bytes_lost.low > base.bytes_lost.low);
        }
        let mut rare = inputs(10.0);
        rare.scrub_h = Some(Figure::point(YEAR_H, Source::Given));
        let rare = durability(&group(Level::Raid6, 10), &rare);
        assert!(rare.sector_lost.low > base.sector_lost.low);
        assert_eq!(rare.array_lost, base.array_lost);
    }

    #[test]
    fn many_groups_lose_as_often_as_their_number_and_striping_as_its_drives() {
        let ten = Shape::new(Level::Raid10, 20, Some(2), None, 16384).expect("a shape");
        let one = group(Level::Raid1, 2);
        let of = |shape: &Shape| durability(shape, &inputs(5.0)).sector_lost.low;
        assert!((of(&ten) / of(&one) - 10.0).abs() < 0.1);
        let stripes = durability(&group(Level::Raid0, 10), &inputs(5.0));
        assert!(
            (stripes.array_lost.low - 0.043).abs() < 0.001,
            "{stripes:?}"
        );
        // Certain loss stays a probability.
        let mut doomed = inputs(1e6);
        doomed.afr = Figure::point(1.0, Source::Given);
        let doomed = durability(&group(Level::Raid6, 60), &doomed);
        assert!(doomed.sector_lost.high <= 1.0 && doomed.nines.low >= 0.0);
    }
}
