//! The best shape of so many drives: all levels, groups and strips are planned and compared.

use std::fmt;

use strake_format::Level;

use super::{Asked, Plan, plan};
use crate::shape::Shape;

/// What is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Least money for each usable TB.
    Cost,
    /// Most bytes a second of the loads, or of the four common ones, with all members.
    Speed,
    /// Most nines of durability.
    Durability,
}

/// What a shape must reach; figures are taken at their worst.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct AtLeast {
    /// Bytes for data.
    pub usable: Option<f64>,
    /// Members of a group that may be lost; 1 unless given.
    pub tolerance: Option<u8>,
    /// Nines of durability.
    pub nines: Option<f64>,
    /// Bytes a second of all loads together, with all members.
    pub rate: Option<f64>,
    /// Years of the drives' flash under the loads.
    pub life: Option<f64>,
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The shape of the best.
    pub shape: Shape,
    /// The best.
    pub winner: Plan,
    /// Why it is.
    pub why: Vec<String>,
    /// The best of each other level, the better first.
    pub others: Vec<Plan>,
}

/// Why none was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no shape of {members} drives reaches what is asked for: {}", most.join("; "))]
pub struct NoShape {
    /// Drives, without spares.
    pub members: u8,
    /// What the best shapes reach of each bound.
    pub most: Vec<String>,
}

/// Levels beside those of groups.
fn levels(members: u8) -> Vec<(Level, Option<u8>)> {
    let mut all = vec![
        (Level::Raid0, None),
        (Level::Raid5, None),
        (Level::Raid6, None),
        (Level::Raid7_3, None),
    ];
    if members <= 4 {
        all.push((Level::Raid1, None));
    }
    if let Some(n) = members.checked_sub(4).filter(|n| *n > 4) {
        all.push((Level::Nm { n, m: 4 }, None));
    }
    for group in 2..=members / 2 {
        let mirrors = (group <= 3).then_some(Level::Raid10);
        let parity = [Level::Raid50, Level::Raid60, Level::Raid70];
        for level in mirrors.into_iter().chain(parity) {
            all.push((level, Some(group)));
        }
    }
    all
}

/// All shapes of so many members.
fn shapes(asked: &Asked) -> Vec<Shape> {
    let members = asked.shape.members;
    let unit = asked.drive.unit.high as u64;
    let mut all = Vec::new();
    for (level, group) in levels(members) {
        for strip in (14..=20).map(|bits| 1u64 << bits) {
            let shape = Shape::new(level, members, group, Some(strip), unit).ok();
            let shape = shape.and_then(|s| s.with_spares(asked.shape.spares).ok());
            all.extend(shape.map(|s| Shape {
                log: s.log && asked.shape.log,
                ..s
            }));
        }
    }
    all
}

/// How good a plan is: larger is better.
fn score(goal: Goal, plan: &Plan) -> f64 {
    match goal {
        Goal::Cost => -plan.cost.usd_per_tb.middle(),
        Goal::Speed => speed(plan),
        Goal::Durability => plan.durability.nines.low,
    }
}

/// Bytes a second of the loads at once, at the worst; of the common ones the geometric mean.
fn speed(plan: &Plan) -> f64 {
    let low = |of: &[super::LoadPlan]| -> Vec<f64> {
        of.iter().map(|l| l.optimal.bytes_per_s.low).collect()
    };
    match plan.loads.is_empty() {
        false => low(&plan.loads).iter().sum(),
        true => {
            let all = low(&plan.rates);
            let logs: f64 = all.iter().map(|r| r.ln()).sum();
            (logs / all.len() as f64).exp()
        }
    }
}

/// A measure of a bound: its name, what is asked and what a plan has.
struct Bound {
    name: &'static str,
    least: f64,
    has: fn(&Plan) -> f64,
}

impl Bound {
    fn reached(&self, plan: &Plan) -> bool {
        (self.has)(plan) >= self.least
    }

    /// How many do not reach it, if any.
    fn refused(&self, all: &[(Shape, Plan)]) -> Option<String> {
        let missed = all.iter().filter(|(_, p)| !self.reached(p)).count();
        let least = number(self.name, self.least);
        (missed > 0).then(|| format!("{missed} shapes do not reach {} of {least}", self.name))
    }

    /// What is reached of it, and by which shape.
    fn most(&self, all: &[(Shape, Plan)]) -> String {
        let plans = all.iter().map(|(_, plan)| plan);
        let best = plans.max_by(|a, b| (self.has)(a).total_cmp(&(self.has)(b)));
        let text = best.map_or(String::new(), |p| {
            format!("{} by {}", number(self.name, (self.has)(p)), p.shape)
        });
        let least = number(self.name, self.least);
        format!("{} of {least} is asked, at most {text}", self.name)
    }
}

impl AtLeast {
    fn bounds(&self) -> Vec<Bound> {
        let mut all = Vec::new();
        let mut add = |name, least: Option<f64>, has: fn(&Plan) -> f64| {
            all.extend(least.map(|least| Bound { name, least, has }));
        };
        let tolerance = f64::from(self.tolerance.unwrap_or(1));
        add("tolerance", Some(tolerance), |p| f64::from(p.tolerance));
        add("usable", self.usable, |p| p.usable_bytes.low);
        add("nines", self.nines, |p| p.durability.nines.low);
        add("rate", self.rate, speed);
        add("life", self.life, |p| {
            p.life_years.map_or(f64::INFINITY, |l| l.low)
        });
        all
    }
}

/// The best shape of the members and spares of what is asked.
///
/// # Errors
/// None reaches the bounds: with what is reached of each.
pub fn best(asked: &Asked, goal: Goal, least: &AtLeast) -> Result<Found, NoShape> {
    let bounds = least.bounds();
    let planned = |shape: Shape| {
        let asked = Asked {
            shape,
            ..asked.clone()
        };
        (shape, plan(&asked))
    };
    let all: Vec<(Shape, Plan)> = shapes(asked).into_iter().map(planned).collect();
    let tried = all.len();
    let refused: Vec<String> = bounds.iter().filter_map(|b| b.refused(&all)).collect();
    let most = bounds.iter().map(|b| b.most(&all)).collect();
    let mut fit = all;
    fit.retain(|(_, p)| bounds.iter().all(|b| b.reached(p)));
    fit.sort_by(|(_, a), (_, b)| better(goal, a, b));
    let mut fit = fit.into_iter();
    let (shape, winner) = fit.next().ok_or(NoShape {
        members: asked.shape.members,
        most,
    })?;
    let mut others: Vec<Plan> = Vec::new();
    let mut same = None;
    for (_, plan) in fit {
        let is_new = |o: &Plan| (&o.level, o.group_size) != (&plan.level, plan.group_size);
        if !is_new(&winner) {
            same = same.or(Some(plan));
        } else if others.len() < 5 && others.iter().all(is_new) {
            others.push(plan);
        }
    }
    let first = format!("best of {tried} shapes for {goal}: {}", measures(&winner));
    let next = others.first();
    let next = next.map(|o| format!("next is {}: {}", o.shape, measures(o)));
    let strips = same.map(|s| {
        let kib = s.strip_bytes >> 10;
        format!("strips of {kib} KiB would give {}", measures(&s))
    });
    let why = [first].into_iter().chain(next).chain(strips).chain(refused);
    Ok(Found {
        shape,
        winner,
        why: why.collect(),
        others,
    })
}

/// By the goal; where that is the same within a thousandth, the faster one, then the cheaper one,
/// then the product's default strip or the nearest to it.
fn better(goal: Goal, a: &Plan, b: &Plan) -> std::cmp::Ordering {
    // Rounded first, so that this is an order.
    let round = |value: f64| {
        (value * 1e3 / 10f64.powf(value.abs().max(1e-30).log10().floor())).round() / 1e3
            * 10f64.powf(value.abs().max(1e-30).log10().floor())
    };
    let by = |goal| round(score(goal, b)).total_cmp(&round(score(goal, a)));
    let far = |p: &Plan| (p.strip_bytes as f64 / 131_072.0).log2().abs();
    by(goal)
        .then_with(|| by(Goal::Speed))
        .then_with(|| by(Goal::Cost))
        .then_with(|| far(a).total_cmp(&far(b)))
}

fn measures(plan: &Plan) -> String {
    format!(
        "{:.0} to {:.0} $/TB, {:.2} GB/s at least, {:.1} nines at least",
        plan.cost.usd_per_tb.low,
        plan.cost.usd_per_tb.high,
        speed(plan) / 1e9,
        plan.durability.nines.low
    )
}

fn number(name: &str, value: f64) -> String {
    match name {
        "usable" => format!("{:.1} TB", value / 1e12),
        "rate" => format!("{:.2} GB/s", value / 1e9),
        "tolerance" => format!("{value:.0}"),
        "life" => format!("{value:.1} years"),
        _ => format!("{value:.1}"),
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Goal::Cost => "cost",
            Goal::Speed => "speed",
            Goal::Durability => "durability",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::value::{Figure, Source};

    fn asked(members: u8) -> Asked {
        let mut drive = catalogue::builtin().find("D5-P5336-61.44").expect("there");
        drive.price_gb = Figure::point(0.0733, Source::Given);
        let shape = Shape::new(Level::Raid6, members, None, None, 16384).expect("a shape");
        let mut asked = Asked::new(drive, shape.with_spares(1).expect("few"));
        asked.loads = vec!["rand-write:4K:1024".parse().expect("a load")];
        asked
    }

    #[test]
    fn the_cheapest_has_least_parity_and_the_safest_most() {
        let cheap = best(&asked(24), Goal::Cost, &AtLeast::default()).expect("some");
        assert_eq!(cheap.winner.level, "5");
        assert_eq!(cheap.shape.describe(), cheap.winner.shape);
        let safe = best(&asked(24), Goal::Durability, &AtLeast::default()).expect("some");
        assert!(safe.winner.tolerance >= 3, "{:?}", safe.winner.shape);
        assert!(safe.winner.durability.nines.low > cheap.winner.durability.nines.low);
        let two = AtLeast {
            tolerance: Some(2),
            ..AtLeast::default()
        };
        let cheap = best(&asked(24), Goal::Cost, &two).expect("some");
        assert_eq!(cheap.winner.level, "6");
        assert!(cheap.why[0].contains("best of"), "{:?}", cheap.why);
        assert!(
            cheap.why.iter().any(|w| w.contains("tolerance of 2")),
            "{:?}",
            cheap.why
        );
    }

    #[test]
    fn the_fastest_small_writes_are_those_of_mirrors() {
        // A mirror of two writes twice and reads nothing; one parity writes twice and the log.
        let fast = best(&asked(24), Goal::Speed, &AtLeast::default()).expect("some");
        assert_eq!(
            (fast.winner.level.as_str(), fast.winner.group_size),
            ("10", 2)
        );
        let others = fast.others.iter().map(speed);
        assert!(others.into_iter().all(|o| o <= speed(&fast.winner) * 1.001));
    }

    #[test]
    fn what_nothing_reaches_is_told_with_what_is_reached() {
        let much = AtLeast {
            usable: Some(2e15),
            ..AtLeast::default()
        };
        let none = best(&asked(24), Goal::Cost, &much).expect_err("24 drives hold 1.5 PB");
        let text = none.to_string();
        assert!(
            text.contains("2000.0 TB") && text.contains("at most 147"),
            "{text}"
        );
    }

    #[test]
    fn the_winner_is_the_best_of_all_by_a_search_of_another_kind() {
        let asked = asked(12);
        for goal in [Goal::Cost, Goal::Speed, Goal::Durability] {
            let found = best(&asked, goal, &AtLeast::default()).expect("some");
            let won = score(goal, &found.winner);
            for shape in shapes(&asked).into_iter().filter(|s| s.tolerance() > 0) {
                let other = plan(&Asked {
                    shape,
                    ..asked.clone()
                });
                let slack = won.abs() * 2e-3;
                assert!(
                    score(goal, &other) <= won + slack,
                    "{goal}: {}",
                    other.shape
                );
            }
        }
    }
}
