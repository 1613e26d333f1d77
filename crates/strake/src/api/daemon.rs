//! The daemon, its events, and its channels of alerts.

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
    /// The array's uuid, of an event after which its name may mean another array.
    #[serde(default)]
    pub(crate) uuid: Option<String>,
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

/// What a stream of Server-Sent Events has in its data.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum StreamedJson {
    Event(EventJson),
    /// Where the stream names the event `gap`.
    Gap(GapJson),
}

/// Events that a stream lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GapJson {
    /// The last number before the gap: the client has the events up to it.
    pub(crate) after_sequence: u64,
    /// With this number the stream goes on.
    pub(crate) next_sequence: u64,
    /// `not_kept`: the events between are not kept any more. `numbered_anew`: the daemon has lost
    /// its journal and has not come to the number that was asked for.
    pub(crate) reason: String,
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

/// A channel; counts are since the start of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AlertChannelJson {
    pub(crate) name: String,
    /// `mail`, `webhook` or `exec`.
    pub(crate) way: String,
    /// Addresses, the host of a URL, or a program; nothing secret.
    pub(crate) to: String,
    /// What matters less is not told.
    pub(crate) severity: String,
    /// The arrays that it tells of; empty: all.
    #[serde(default)]
    pub(crate) arrays: Vec<String>,
    /// The last attempt failed.
    pub(crate) failing: bool,
    /// RFC 3339: when the first attempt failed after the last that did not; `null` where the last
    /// did not.
    #[serde(default)]
    pub(crate) failing_since: Option<String>,
    /// Messages that wait.
    pub(crate) queued: u64,
    /// Messages.
    pub(crate) delivered: u64,
    /// Attempts.
    pub(crate) failures: u64,
    /// Messages.
    pub(crate) dropped: u64,
    /// RFC 3339.
    pub(crate) last_success: Option<String>,
    pub(crate) last_error: Option<String>,
    /// RFC 3339.
    pub(crate) last_error_at: Option<String>,
}

/// A channel that does not deliver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AlertFailingJson {
    pub(crate) channel: String,
    /// RFC 3339.
    pub(crate) since: Option<String>,
    pub(crate) error: Option<String>,
}

/// The channels.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AlertsJson {
    pub(crate) channels: Vec<AlertChannelJson>,
    /// Files of the spool that could not be written yet: what they hold is in memory alone.
    pub(crate) unwritten_files: u64,
    /// Why the file of the configuration is not used, and what holds instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) configuration_not_used: Option<String>,
}

/// What a test asks.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AlertTestRequest {
    /// All unless given.
    pub(crate) channel: Option<String>,
    pub(crate) dry_run: bool,
}

/// What came of a test, by channel.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AlertTestsJson {
    pub(crate) channels: Vec<AlertTestJson>,
}

/// What came of a test.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AlertTestJson {
    pub(crate) channel: String,
    pub(crate) delivered: bool,
    pub(crate) error: Option<String>,
    /// Nothing was sent.
    pub(crate) dry_run: bool,
}
