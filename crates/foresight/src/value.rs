//! Figures with their sources: a figure is a range, and a range of one point where it is known.
//!
//! Invariants: `low <= high`; what is computed from an unknown input is a range, never a guess that
//! looks like a fact; the source of a computed figure is the weakest of its inputs' and its own.

use schemars::JsonSchema;
use serde::Serialize;

/// Where a figure comes from, from the strongest to the weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The user gave it.
    Given,
    /// Measured on this machine.
    Measured,
    /// A data sheet or a published measurement; the catalogue names it.
    DataSheet,
    /// A formula over figures of a data sheet.
    Formula,
    /// The engine or a drive, modelled in virtual time.
    Simulated,
    /// Unknown: a range that covers what such parts are known to do.
    Assumed,
}

/// A figure: from `low` to `high`, in the unit that its place names.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Figure {
    /// Lowest.
    pub low: f64,
    /// Highest.
    pub high: f64,
    /// Where it comes from.
    pub source: Source,
}

impl Figure {
    /// A figure of one point.
    pub fn point(value: f64, source: Source) -> Figure {
        Figure {
            low: value,
            high: value,
            source,
        }
    }

    /// A range; the bounds may come in either order.
    pub fn range(a: f64, b: f64, source: Source) -> Figure {
        Figure {
            low: a.min(b),
            high: a.max(b),
            source,
        }
    }

    /// The middle of the range.
    pub fn middle(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }

    /// Whether it is one point.
    pub fn is_point(self) -> bool {
        self.low == self.high
    }

    /// What a function that only grows (or only falls) makes of it.
    pub fn map(self, source: Source, of: impl Fn(f64) -> f64) -> Figure {
        Figure::range(of(self.low), of(self.high), self.source.max(source))
    }

    /// What a function that is monotone in each of two figures makes of them.
    pub fn with(self, other: Figure, source: Source, of: impl Fn(f64, f64) -> f64) -> Figure {
        let corners = [
            of(self.low, other.low),
            of(self.low, other.high),
            of(self.high, other.low),
            of(self.high, other.high),
        ];
        Figure {
            low: corners.into_iter().fold(f64::INFINITY, f64::min),
            high: corners.into_iter().fold(f64::NEG_INFINITY, f64::max),
            source: self.source.max(other.source).max(source),
        }
    }
}
