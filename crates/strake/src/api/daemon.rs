//! The daemon and its events.

use std::path::PathBuf;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::events::{self, Severity};

/// Something that happened.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct EventJson {
    /// Grows by one with each event of this daemon.
    pub(crate) sequence: u64,
    /// RFC 3339, UTC.
    pub(crate) time: String,
    pub(crate) array: Option<String>,
    /// What happened, in snake_case.
    pub(crate) event: String,
    /// `info`, `warning` or `critical`.
    #[serde(default)]
    #[schemars(with = "String")]
    pub(crate) severity: Severity,
    pub(crate) slot: Option<u8>,
    pub(crate) device: Option<String>,
    /// Why.
    pub(crate) cause: Option<String>,
    /// What came of it.
    pub(crate) effect: Option<String>,
    /// Of an I/O that failed: what the kernel answered.
    #[serde(default)]
    pub(crate) errno: Option<i32>,
    /// Of a finished resync or scrub.
    pub(crate) inconsistent_stripes: Option<u64>,
    /// Of a finished resync or scrub: those that are consistent again.
    #[serde(default)]
    pub(crate) repaired_stripes: Option<u64>,
}

impl EventJson {
    /// With the severity that the catalogue has for it: a journal may be older than that.
    pub(crate) fn graded(self) -> EventJson {
        let known = events::severity(&self.event, self.effect.as_deref());
        EventJson {
            severity: known.unwrap_or(self.severity),
            ..self
        }
    }
}

/// Which events are asked for: those that all of this is true of.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventFilter {
    /// Of the array that was called so then.
    pub(crate) array: Option<String>,
    /// As serious as this, or more.
    pub(crate) severity: Severity,
    /// Not before this.
    pub(crate) since: Option<Timestamp>,
}

impl EventFilter {
    /// Whether an event is asked for. One with a time that cannot be read is, whatever the time.
    pub(crate) fn takes(&self, event: &EventJson) -> bool {
        let before = |since: &Timestamp| {
            let time = event.time.parse::<Timestamp>();
            time.is_ok_and(|time| time < *since)
        };
        event.severity >= self.severity
            && (self.array.is_none() || self.array == event.array)
            && !self.since.as_ref().is_some_and(before)
    }
}

/// The daemon.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct VersionJson {
    pub(crate) version: String,
    pub(crate) pid: u32,
    pub(crate) dir: PathBuf,
}
