//! Colour, where a terminal has it: states and severities.
//!
//! Invariants: text is made safe for a terminal before it is painted; without colour the text is
//! the same, so colour never says what the words do not. `NO_COLOR`, `CLICOLOR_FORCE` and `TERM`
//! are read as other programs do it (`anstream`). Deliberately absent: JSON, which has no colour.

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

use crate::common::events::Severity;

/// How good news is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Plain,
    Good,
    Bad,
    Worst,
}

impl Mood {
    /// Of the state of an array or a member.
    pub(crate) fn of_state(state: &str) -> Mood {
        match state {
            "optimal" | "in_sync" => Mood::Good,
            "degraded" | "rebuilding" | "missing" | "stale" | "unknown" | "stopping" => Mood::Bad,
            "failed" | "unresponsive" => Mood::Worst,
            _ => Mood::Plain,
        }
    }
    /// Of something so serious.
    pub(crate) fn of_severity(severity: Severity) -> Mood {
        match severity {
            Severity::Info => Mood::Plain,
            Severity::Warning => Mood::Bad,
            Severity::Critical => Mood::Worst,
        }
    }
}

/// Whether there is colour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    colour: bool,
}

impl Paint {
    /// As standard output has it.
    pub(crate) fn of_stdout() -> Paint {
        let choice = AutoStream::choice(&std::io::stdout());
        Paint {
            colour: choice != ColorChoice::Never,
        }
    }
    /// None.
    pub(crate) fn none() -> Paint {
        Paint { colour: false }
    }
    #[cfg(test)]
    pub(crate) fn always() -> Paint {
        Paint { colour: true }
    }
    /// Whether there is any.
    pub(crate) fn has_colour(self) -> bool {
        self.colour
    }
    /// A text in its colour.
    pub(crate) fn text(self, mood: Mood, text: &str) -> String {
        let colour = match mood {
            Mood::Plain => None,
            Mood::Good => Some(AnsiColor::Green),
            Mood::Bad => Some(AnsiColor::Yellow),
            Mood::Worst => Some(AnsiColor::Red),
        };
        match colour.filter(|_| self.colour) {
            None => text.to_owned(),
            Some(colour) => {
                let style = Style::new().fg_color(Some(colour.into()));
                format!("{style}{text}{style:#}")
            }
        }
    }
}
