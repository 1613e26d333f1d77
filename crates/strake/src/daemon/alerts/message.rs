//! What is told: items, and the message that a group of them becomes.
//!
//! Invariants: a message is complete when it is made, and is not changed by what happens later; its
//! size is bounded. Deliberately absent: when it is sent (`group`) and how (`mail`, `webhook`,
//! `exec`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::{ArrayJson, EventJson, MemberJson};
use crate::common::events::Severity;
use crate::common::shown;
use crate::common::time::{after_1970, rfc3339};
use crate::daemon::alerts::conditions::{Condition, Key};

/// Items that a message holds; more are counted.
pub(super) const ITEMS_MAX: usize = 100;
/// Bytes of the state of arrays in a message; a larger one is left out.
const ARRAYS_BYTES_MAX: usize = 256 << 10;
/// Characters of a subject.
const SUBJECT_CHARS_MAX: usize = 150;

/// What became of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Began,
    /// It is told again.
    Lasts,
    Ended,
}

/// Something to tell.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Event(EventJson, Severity),
    Condition {
        key: Key,
        /// The array's name.
        array: String,
        condition: Condition,
        change: Change,
        /// What is said of its end, where that is not what the condition says.
        over: Option<&'static str>,
        /// RFC 3339.
        since: String,
        /// RFC 3339.
        time: String,
    },
    Test {
        time: String,
    },
}

impl Item {
    pub(super) fn severity(&self) -> Severity {
        match self {
            Item::Event(_, severity) => *severity,
            Item::Condition {
                condition, change, ..
            } => match change {
                Change::Ended => Severity::Info,
                Change::Began | Change::Lasts => condition.severity(),
            },
            Item::Test { .. } => Severity::Info,
        }
    }

    /// Its name, as `events` of a channel has it.
    pub(super) fn name(&self) -> &str {
        match self {
            Item::Event(event, _) => &event.event,
            Item::Condition { condition, .. } => condition.as_str(),
            Item::Test { .. } => "test",
        }
    }

    pub(super) fn array(&self) -> Option<&str> {
        match self {
            Item::Event(event, _) => event.array.as_deref(),
            Item::Condition { array, .. } => Some(array),
            Item::Test { .. } => None,
        }
    }

    /// What it says of the array in a subject.
    fn headline(&self) -> String {
        match self {
            Item::Event(event, _) => {
                let about = match (&event.array, &event.device) {
                    (Some(array), _) => format!("{array}: "),
                    (None, Some(device)) => format!("{device}: "),
                    (None, None) => String::new(),
                };
                format!("{about}{}", event.event)
            }
            Item::Condition {
                array,
                condition,
                change,
                over,
                ..
            } => match change {
                Change::Began => format!("{array} {}", condition.says()),
                Change::Lasts => format!("{array} still {}", condition.says()),
                Change::Ended => {
                    let says = over.unwrap_or_else(|| condition.says_ended());
                    format!("{array} {says}")
                }
            },
            Item::Test { .. } => "test of an alert channel".to_owned(),
        }
    }

    /// The same in a line of the text.
    fn line(&self) -> String {
        match self {
            Item::Event(event, _) => {
                let slot = event.slot.map(|slot| format!("slot {slot}"));
                let parts = [
                    Some(event.time.clone()),
                    Some(event.event.clone()),
                    event.array.clone(),
                    slot,
                    event.device.clone(),
                    event
                        .cause
                        .as_ref()
                        .map(|cause| format!("because: {cause}")),
                    event.errno.map(|errno| format!("(errno {errno})")),
                    event.effect.as_ref().map(|effect| format!("so: {effect}")),
                ];
                let parts: Vec<String> = parts.into_iter().flatten().collect();
                parts.join(" ")
            }
            Item::Condition {
                time,
                since,
                change,
                ..
            } => {
                let since = match change {
                    Change::Began => String::new(),
                    Change::Lasts | Change::Ended => format!(" (since {since})"),
                };
                format!("{time} {}{since}", self.headline())
            }
            Item::Test { time } => {
                format!("{time} Somebody asked for this test: strake alert test.")
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Item::Event(event, severity) => json!({
                "kind": "event", "severity": severity, "event": event,
            }),
            Item::Condition {
                key,
                array,
                condition,
                change,
                since,
                time,
                ..
            } => json!({
                "kind": "condition", "severity": self.severity(), "array": array,
                "uuid": key.array, "condition": condition.as_str(), "since": since, "time": time,
                "change": match change {
                    Change::Began => "began",
                    Change::Lasts => "lasts",
                    Change::Ended => "ended",
                },
            }),
            Item::Test { time } => json!({"kind": "test", "severity": "info", "time": time}),
        }
    }
}

/// A time as the standard library has it; none before 1970.
pub(super) fn moment(time: jiff::Timestamp) -> SystemTime {
    let since = u64::try_from(time.as_millisecond()).unwrap_or(0);
    after_1970(Duration::from_millis(since))
}

/// What a channel sends, as it is spooled and as a webhook and a program get it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Message {
    /// Unique; a message that is sent twice has it twice.
    pub(super) id: String,
    pub(super) version: u32,
    pub(super) host: String,
    /// RFC 3339: when it was made.
    pub(super) time: String,
    pub(super) severity: Severity,
    pub(super) subject: String,
    pub(super) text: String,
    pub(super) items: Vec<Value>,
    /// The arrays that it is about, as `strake show --json` has them.
    pub(super) arrays: Vec<Value>,
    /// Items that were left out, by name.
    pub(super) left_out: BTreeMap<String, u64>,
    /// Messages of the channel that were dropped before this one.
    pub(super) dropped: u64,
}

/// An array in service, and what its drives call themselves, by slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) array: ArrayJson,
    pub(crate) drives: BTreeMap<u8, String>,
}

/// Of what a message is made.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) host: &'a str,
    pub(super) items: &'a [Item],
    pub(super) left_out: &'a BTreeMap<String, u64>,
    pub(super) dropped: u64,
    /// All arrays that are known.
    pub(super) arrays: &'a [Seen],
}

impl Draft<'_> {
    /// The message.
    pub(super) fn message(&self) -> Message {
        // The first of those that matter most: what came first is the cause of the rest.
        let of = |severity| {
            self.items
                .iter()
                .find(move |item| item.severity() == severity)
        };
        let changes = |item: &&Item| matches!(item, Item::Condition { .. });
        let severity = self
            .items
            .iter()
            .map(Item::severity)
            .max()
            .unwrap_or_default();
        let head = self
            .items
            .iter()
            .rfind(|item| changes(item) && item.severity() == severity)
            .or_else(|| of(severity));
        let arrays = self.concerned();
        let others = self.items.iter().filter_map(Item::array);
        let mut others: Vec<&str> = others
            .filter(|array| head.and_then(Item::array) != Some(array))
            .collect();
        others.sort_unstable();
        others.dedup();
        let mut subject = format!(
            "[strake] {}: {}",
            self.host,
            head.map(Item::headline).unwrap_or_default()
        );
        if !others.is_empty() {
            let _ = write!(subject, " (also {})", others.join(", "));
        }
        // One line, whatever a name holds.
        let subject = shown(&subject, ' ')
            .chars()
            .take(SUBJECT_CHARS_MAX)
            .collect();
        let mut all = Vec::new();
        let mut bytes = 0;
        for seen in &arrays {
            let value = serde_json::to_value(&seen.array).unwrap_or_default();
            bytes += value.to_string().len();
            if bytes > ARRAYS_BYTES_MAX {
                break;
            }
            all.push(value);
        }
        Message {
            id: uuid::Uuid::new_v4().to_string(),
            version: 1,
            host: self.host.to_owned(),
            time: rfc3339(SystemTime::now()),
            severity,
            subject,
            text: self.text(&arrays),
            items: self.items.iter().map(Item::json).collect(),
            arrays: all,
            left_out: self.left_out.clone(),
            dropped: self.dropped,
        }
    }

    /// Arrays that the items are about.
    fn concerned(&self) -> Vec<&Seen> {
        let named = |seen: &&Seen| {
            let of = |item: &Item| item.array() == Some(&seen.array.name);
            self.items.iter().any(of)
        };
        self.arrays.iter().filter(named).collect()
    }

    fn text(&self, arrays: &[&Seen]) -> String {
        let mut text = "What happened:\n".to_owned();
        for item in self.items {
            let _ = writeln!(text, "  {}", shown(&item.line(), ' '));
        }
        if !self.left_out.is_empty() {
            let all: u64 = self.left_out.values().sum();
            let each = self.left_out.iter().map(|(name, n)| format!("{n} {name}"));
            let each: Vec<String> = each.collect();
            let _ = writeln!(text, "  and {all} more: {}", each.join(", "));
        }
        if self.dropped > 0 {
            let _ = writeln!(
                text,
                "\n{} messages of this channel before this one were dropped: see strake events.",
                self.dropped
            );
        }
        for seen in arrays {
            state_of(&mut text, seen);
        }
        let next = self.next(arrays);
        if !next.is_empty() {
            text.push_str("\nWhat to do next:\n");
            for line in next {
                let _ = writeln!(text, "  {line}");
            }
        }
        text
    }

    /// Commands of the how-to pages that go with it.
    fn next(&self, arrays: &[&Seen]) -> Vec<String> {
        let mut next = Vec::new();
        for Seen { array, .. } in arrays {
            let name = &array.name;
            match array.state.as_str() {
                _ if array.not_found => next.extend([
                    "Look at power, cables and controllers of its drives: strake scan".to_owned(),
                    format!(
                        "If they are not to come back (the array is another host's now, or given \
                         up): strake forget {name}"
                    ),
                    "docs/how-to/it-is-missing.md".to_owned(),
                ]),
                "failed" => next.extend([
                    format!("strake show {name}; strake scan"),
                    "Do not create, format or dd anything on the drives. Bring drives back, then:"
                        .to_owned(),
                    format!("strake stop {name} && strake start {name}"),
                    "docs/how-to/it-is-failed.md".to_owned(),
                ]),
                "degraded" => {
                    next.push(format!("strake show {name}; strake events | tail"));
                    if !array.jobs.iter().any(|job| job.kind == "rebuild") {
                        next.push(format!(
                            "strake add {name} DEV    (a drive that is not in use)"
                        ));
                    }
                    next.push("docs/how-to/it-is-degraded.md".to_owned());
                }
                _ => next.push(format!("strake show {name}; strake events | tail")),
            }
            if array.unreadable_bytes > 0 {
                next.push(format!(
                    "Restore from a backup what lies in the unreadable ranges: strake show {name}"
                ));
            }
            if array.undecided_bytes > 0 {
                next.push(format!("strake scrub {name} status; docs/operations.md"));
            }
        }
        let refused = |item: &&Item| item.name() == "start_refused";
        for item in self.items.iter().filter(refused) {
            next.push("strake scan; docs/how-to/it-does-not-start.md".to_owned());
            if let Some(array) = item.array() {
                next.push(format!("strake start {array}"));
            }
        }
        let mut told = Vec::new();
        next.retain(|line| {
            let new = !told.contains(line);
            told.push(line.clone());
            new
        });
        next
    }
}

/// An array with its slots, as text.
fn state_of(text: &mut String, seen: &Seen) {
    let array = &seen.array;
    let device = array.device.as_deref().unwrap_or("no device");
    if array.not_found {
        let _ = writeln!(text, "\n{}: none of its members is found", array.name);
    } else {
        let _ = writeln!(
            text,
            "\n{}: level {}, {}, {} bytes, {}",
            array.name,
            array.level,
            array.state,
            array.size_bytes,
            shown(device, ' ')
        );
    }
    for member in array.members_and_spares() {
        let _ = writeln!(text, "  {}", shown(&member_line(member, &seen.drives), ' '));
    }
    if array.spares.is_empty() && !array.not_found {
        text.push_str("  no spare\n");
    }
    for job in &array.jobs {
        let percent = (job.done_bytes.saturating_mul(100)) / job.total_bytes.max(1);
        let paused = if job.paused { ", paused" } else { "" };
        let _ = writeln!(text, "  job {}: {percent} %{paused}", job.kind);
    }
    if array.unreadable_bytes > 0 {
        let _ = writeln!(text, "  {} bytes cannot be read", array.unreadable_bytes);
    }
    if array.undecided_bytes > 0 {
        let _ = writeln!(text, "  {} bytes are undecided", array.undecided_bytes);
    }
}

fn member_line(member: &MemberJson, drives: &BTreeMap<u8, String>) -> String {
    let slot = match member.slot {
        Some(slot) => format!("slot {slot}"),
        None => "spare".to_owned(),
    };
    let device = member.device.as_deref().unwrap_or("-");
    let mut line = format!("{slot}: {} {device}", member.state);
    let drive = member.slot.and_then(|slot| drives.get(&slot));
    if let Some(drive) = drive.filter(|_| member.device.is_some()) {
        let _ = write!(line, " ({drive})");
    }
    if let Some(was) = &member.was {
        let _ = write!(line, " (had {}", was.device);
        for (what, value) in [
            ("model", &was.model),
            ("serial", &was.serial),
            ("until", &was.until),
        ] {
            if let Some(value) = value {
                let _ = write!(line, ", {what} {value}");
            }
        }
        match &was.cause {
            Some(cause) => {
                let _ = write!(line, ": {cause})");
            }
            None => line.push(')'),
        }
    }
    line
}
