//! Published figures beside ours, as pictures: one for each unit.

use strake_foresight::page::chart::{Bars, Group, bars};

use crate::definition::{Figure, Study};
use crate::result::Results;
use crate::table::{self, Row};

/// Groups of bars in one picture, at most: more are not told apart.
const GROUPS_MAX: usize = 4;

/// A picture: the name of its file, and what is in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// `rates`, `requests`, … and a number from the second on.
    pub name: String,
    /// SVG.
    pub svg: String,
}

/// A unit: its name, what figures it has, its label, and what a figure is divided by.
struct Unit {
    name: &'static str,
    label: &'static str,
    by: f64,
    figures: &'static [Figure],
}

const UNITS: [Unit; 4] = [
    Unit {
        name: "rates",
        label: "GB/s",
        by: 1e9,
        figures: &[Figure::ReadBytes, Figure::WriteBytes, Figure::JobBytes],
    },
    Unit {
        name: "requests",
        label: "thousand requests a second",
        by: 1e3,
        figures: &[Figure::ReadIops, Figure::WriteIops, Figure::Iops],
    },
    Unit {
        name: "times",
        label: "hours",
        by: 3600.0,
        figures: &[Figure::Seconds],
    },
    Unit {
        name: "wear",
        label: "bytes a byte",
        by: 1.0,
        figures: &[Figure::Waf, Figure::WafSlot, Figure::WafRaid],
    },
];

/// All pictures of a study that have something to show.
pub fn all(study: &Study, results: &Results) -> Vec<Picture> {
    let rows = table::rows(study, results);
    let mut pictures = Vec::new();
    for unit in &UNITS {
        let is_of =
            |row: &&Row| !row.is_share && row.ours.is_some() && unit.figures.contains(&row.figure);
        let of: Vec<&Row> = rows.iter().filter(is_of).collect();
        for (at, rows) in of.chunks(GROUPS_MAX).enumerate() {
            let name = match at {
                0 => unit.name.to_owned(),
                at => format!("{}-{}", unit.name, at + 1),
            };
            let svg = bars(&picture(study, unit, rows));
            pictures.push(Picture { name, svg });
        }
    }
    pictures
}

fn picture(study: &Study, unit: &Unit, rows: &[&Row]) -> Bars {
    let bar = |value: Option<f64>| value.map(|value| (value / unit.by, value / unit.by));
    let group = |row: &&Row| Group {
        label: format!("{}: {}", row.case, row.step),
        bars: vec![bar(row.published), bar(row.ours)],
    };
    Bars {
        title: format!("{}, {}: published and ours", study.name, unit.label),
        y: unit.label.to_owned(),
        series: vec!["published".to_owned(), "ours".to_owned()],
        groups: rows.iter().map(group).collect(),
    }
}
