//! Published figures beside those of a study, and figures of two runs beside each other.
//!
//! Invariants: a row is never left out: what was not measured says so and why. A row is right only
//! if it is within [`WITHIN`] of what was published; what is known to miss it says why beside it.

use serde::Serialize;

use crate::definition::{Expect, Figure, Kind, Study};
use crate::result::Results;

/// How far a figure may be from the published one.
pub const WITHIN: f64 = 0.10;

/// What became of a published figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within 10 %.
    Within,
    /// Further away, and not meant to be.
    Outside,
    /// Further away, for a reason that the study gives.
    Explained,
    /// No number was published.
    Unpublished,
    /// The study has not measured it.
    NotMeasured,
}

impl Verdict {
    /// In tables.
    pub fn shown(self) -> &'static str {
        match self {
            Verdict::Within => "within 10 %",
            Verdict::Outside => "outside 10 %",
            Verdict::Explained => "outside 10 %, explained",
            Verdict::Unpublished => "no number published",
            Verdict::NotMeasured => "not measured",
        }
    }
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Case of the study.
    pub case: String,
    /// What it is called.
    pub name: String,
    /// Step of the case.
    pub step: String,
    /// Its figure.
    pub figure: Figure,
    /// It is a share of the same figure of another step.
    pub is_share: bool,
    /// See [`Kind`].
    pub kind: Kind,
    /// What was published.
    pub published: Option<f64>,
    /// What was measured.
    pub ours: Option<f64>,
    /// Ours / published - 1.
    pub deviation: Option<f64>,
    /// What became of it.
    pub verdict: Verdict,
    /// Why it is not measured, or not within 10 %.
    pub why: Option<String>,
}

/// All expectations of a study, in their order.
pub fn rows(study: &Study, results: &Results) -> Vec<Row> {
    let of = |(case, expect): (&str, &Expect)| row(case, expect, results);
    let cases = study.cases.iter();
    let all = cases.flat_map(|case| {
        case.expect
            .iter()
            .map(|expect| (case.name.as_str(), expect))
    });
    all.map(of).collect()
}

fn row(case: &str, expect: &Expect, results: &Results) -> Row {
    let measured = |step: &str| {
        let done = results
            .step(case, step)
            .ok_or_else(|| format!("step {step} is not done"))?;
        let figure = done.figures.get(&expect.figure).copied();
        figure.ok_or_else(|| {
            let why = done.missing.get(&expect.figure).cloned();
            why.unwrap_or_else(|| format!("step {step} has no {}", expect.figure))
        })
    };
    let ours = measured(&expect.step).and_then(|ours| match &expect.share_of {
        None => Ok(ours),
        Some(step) => {
            let whole = measured(step)?;
            let share = ours / whole;
            let none = || format!("step {step} has {} = 0", expect.figure);
            share.is_finite().then_some(share).ok_or_else(none)
        }
    });
    let deviation = match (&ours, expect.published) {
        (Ok(ours), Some(published)) => Some(ours / published - 1.0),
        _ => None,
    };
    let (verdict, why) = match (&ours, deviation) {
        (Err(why), _) => (Verdict::NotMeasured, Some(why.clone())),
        (Ok(_), None) => (Verdict::Unpublished, None),
        (Ok(_), Some(by)) if by.abs() <= WITHIN => (Verdict::Within, None),
        (Ok(_), Some(_)) => match &expect.outside {
            Some(why) => (Verdict::Explained, Some(why.clone())),
            None => (Verdict::Outside, None),
        },
    };
    Row {
        case: case.to_owned(),
        name: expect.name.clone(),
        step: expect.step.clone(),
        figure: expect.figure,
        is_share: expect.share_of.is_some(),
        kind: expect.kind,
        published: expect.published,
        ours: ours.ok(),
        deviation,
        verdict,
        why,
    }
}

/// One figure of two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// Case of both.
    pub case: String,
    /// Step of both.
    pub step: String,
    /// Figure of one of both, or of both.
    pub figure: Figure,
    /// Of the first run.
    pub a: Option<f64>,
    /// Of the second run.
    pub b: Option<f64>,
    /// b / a - 1.
    pub change: Option<f64>,
}

/// All figures that one of two runs has in a step that both have.
pub fn pairs(a: &Results, b: &Results) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for case in &a.cases {
        for step in &case.steps {
            let Some(other) = b.step(&case.name, &step.name) else {
                continue;
            };
            for &figure in Figure::ALL {
                let of = |step: &crate::result::StepResult| step.figures.get(&figure).copied();
                let (a, b) = (of(step), of(other));
                if a.is_none() && b.is_none() || (a, b) == (Some(0.0), Some(0.0)) {
                    continue;
                }
                let change = a.zip(b).map(|(a, b)| b / a - 1.0);
                pairs.push(Pair {
                    case: case.name.clone(),
                    step: step.name.clone(),
                    figure,
                    a,
                    b,
                    change: change.filter(|change| change.is_finite()),
                });
            }
        }
    }
    pairs
}

/// A figure for a reader.
pub fn shown(figure: Figure, value: f64) -> String {
    match figure {
        Figure::ReadBytes | Figure::WriteBytes | Figure::JobBytes => {
            format!("{}B/s", scaled(value))
        }
        Figure::ReadIops | Figure::WriteIops | Figure::Iops | Figure::IopsPerCore => {
            format!("{}IO/s", scaled(value))
        }
        Figure::P50 | Figure::P99 | Figure::P999 | Figure::P9999 => match value {
            us if us < 1e4 => format!("{us:.0} µs"),
            us => format!("{:.1} ms", us / 1e3),
        },
        Figure::Seconds => time(value),
        Figure::LoadsWrote | Figure::DrivesWritten | Figure::FlashWritten => {
            format!("{}B", scaled(value))
        }
        Figure::Waf | Figure::WafSlot | Figure::WafRaid => format!("{value:.2}"),
        Figure::Cores => format!("{value:.3}"),
    }
}

/// A share, or the figure itself.
pub fn shown_in(row: &Row, value: f64) -> String {
    match row.is_share {
        true => format!("{:.0} %", value * 100.0),
        false => shown(row.figure, value),
    }
}

/// `+3.2 %`.
pub fn percent(change: f64) -> String {
    format!("{:+.1} %", change * 100.0)
}

fn scaled(value: f64) -> String {
    let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let step = steps.into_iter().find(|(from, _)| value >= *from);
    let (by, unit) = step.unwrap_or((1.0, ""));
    let digits = match value / by {
        small if small < 10.0 && by > 1.0 => 2,
        middle if middle < 100.0 && by > 1.0 => 1,
        _ => 0,
    };
    format!("{:.digits$} {unit}", value / by)
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.2} h", s / 3600.0),
    }
}
