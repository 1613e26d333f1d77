//! The items of one channel that wait to become a message.
//!
//! Order: an item that the channel wants begins a group or joins it; when the group's time is over
//! and the limit of messages an hour allows one more, the group is a message.
//!
//! Invariants: no more than `per_hour` messages in any hour; no more than [`ITEMS_MAX`] items wait,
//! of which those that matter more push out the others, and each that is left out is counted.
//! Intervals are of the monotonic clock, so that a clock that jumps makes no message. Deliberately
//! absent: the text of a message (`message`).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::common::events::Severity;
use crate::config::alerts::Channel;
use crate::daemon::alerts::conditions::{Key, Open};
use crate::daemon::alerts::message::{Change, ITEMS_MAX, Item};

const HOUR: Duration = Duration::from_secs(3600);

/// Messages that may be sent: a few at once, then one from time to time.
#[derive(Debug)]
struct Budget {
    left: u64,
    most: u64,
    period: Duration,
    /// Since when the next one accrues.
    since: Instant,
}

impl Budget {
    fn new(now: Instant, per_hour: u64) -> Budget {
        let most = per_hour.div_ceil(4);
        // Together with those at once they are `per_hour`.
        let accrued = (per_hour - most).max(1);
        Budget {
            left: most,
            most,
            period: HOUR / u32::try_from(accrued).unwrap_or(u32::MAX),
            since: now,
        }
    }

    fn accrue(&mut self, now: Instant) {
        while self.left < self.most && now.saturating_duration_since(self.since) >= self.period {
            self.left += 1;
            self.since += self.period;
        }
        if self.left == self.most {
            self.since = now;
        }
    }

    /// When there is one.
    fn at(&self) -> Option<Instant> {
        (self.left == 0).then(|| self.since + self.period)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Group {
    channel: Channel,
    items: Vec<Item>,
    left_out: BTreeMap<String, u64>,
    since: Option<Instant>,
    budget: Budget,
    /// When each condition was told last.
    told: BTreeMap<Key, Instant>,
    /// Events up to this one are in messages, or are not wanted.
    done: u64,
    /// Events up to this one were looked at.
    seen: u64,
}

impl Group {
    /// Of a channel that was told of events up to `done`.
    pub(super) fn new(now: Instant, channel: Channel, done: u64) -> Group {
        Group {
            budget: Budget::new(now, channel.per_hour.get()),
            channel,
            items: Vec::new(),
            left_out: BTreeMap::new(),
            since: None,
            told: BTreeMap::new(),
            done,
            seen: done,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.channel.name
    }

    /// Events up to this one need not be looked at after a restart.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    fn wants(&self, item: &Item) -> bool {
        let channel = &self.channel;
        let array = item.array();
        if !channel.arrays.is_empty()
            && array.is_some_and(|a| !channel.arrays.iter().any(|b| a == b))
        {
            return false;
        }
        let named = channel.events.iter().any(|name| name == item.name());
        let severity = match item {
            // The end of a condition goes where its beginning went.
            Item::Condition { condition, .. } => condition.severity(),
            other => other.severity(),
        };
        match item {
            // A channel that fails would tell of nothing but itself.
            Item::Event(event, _)
                if event.event.starts_with("alert_")
                    && event.cause.as_ref() == Some(&channel.name) =>
            {
                false
            }
            _ if !channel.events.is_empty() => named,
            // Told as a condition.
            Item::Event(event, _) if event.event == "state" => false,
            _ => severity >= channel.severity,
        }
    }

    /// Something to tell, if the channel wants it.
    pub(super) fn push(&mut self, now: Instant, item: &Item) {
        if let Item::Event(event, _) = item {
            if event.sequence <= self.seen {
                return;
            }
            let gap = event.sequence - self.seen - 1;
            self.seen = event.sequence;
            // A follower that does not keep up misses the oldest. Of a new journal nothing is
            // known.
            if gap > 0 && self.done > 0 {
                *self
                    .left_out
                    .entry("events not followed".to_owned())
                    .or_default() += gap;
            }
        }
        if !self.wants(item) {
            if self.items.is_empty() {
                self.done = self.seen;
            }
            return;
        }
        if let Item::Condition { key, change, .. } = item {
            match change {
                Change::Ended => self.told.remove(key),
                Change::Began | Change::Lasts => self.told.insert(key.clone(), now),
            };
        }
        self.since.get_or_insert(now);
        if self.items.len() < ITEMS_MAX {
            self.items.push(item.clone());
            return;
        }
        let least = self.items.iter().map(Item::severity).min();
        let least = least.unwrap_or(Severity::Critical);
        let out = match item.severity() > least {
            true => {
                let at = self.items.iter().rposition(|item| item.severity() == least);
                let out = self.items.remove(at.expect("it is the least of them"));
                self.items.push(item.clone());
                out
            }
            false => item.clone(),
        };
        *self.left_out.entry(out.name().to_owned()).or_default() += 1;
    }

    /// Tells again what lasts.
    pub(super) fn remind(&mut self, now: Instant, open: &[Open], time: &str) {
        let every = self.channel.remind.get();
        if every.is_zero() {
            return;
        }
        for open in open.iter().filter(|open| open.lasts) {
            let told = self.told.get(&open.key);
            if told.is_some_and(|told| now.saturating_duration_since(*told) >= every) {
                self.push(now, &open.item(Change::Lasts, time));
            }
        }
    }

    /// When the group becomes a message, as things are.
    pub(super) fn due(&mut self, now: Instant) -> Option<Instant> {
        self.budget.accrue(now);
        let over = self.since? + self.channel.group.get();
        Some(self.budget.at().map_or(over, |at| at.max(over)))
    }

    /// The items of the message that is due, and what was left out; with `at_once` of one that is
    /// not due yet.
    pub(super) fn take(
        &mut self,
        now: Instant,
        at_once: bool,
    ) -> Option<(Vec<Item>, BTreeMap<String, u64>)> {
        let due = self.due(now)?;
        if now < due && !at_once {
            return None;
        }
        self.budget.left = self.budget.left.saturating_sub(1);
        self.since = None;
        self.done = self.seen;
        Some((
            std::mem::take(&mut self.items),
            std::mem::take(&mut self.left_out),
        ))
    }
}

#[cfg(test)]
mod tests {
    use crate::api::EventJson;

    use super::*;

    fn channel(more: &str) -> Channel {
        let text = format!("name = 'c'\nexec = {{ command = ['/bin/true'] }}\n{more}");
        toml::from_str(&text).expect("a channel")
    }

    fn event(sequence: u64, name: &str, severity: Severity) -> Item {
        let event = EventJson {
            sequence,
            event: name.to_owned(),
            array: Some("data".to_owned()),
            ..EventJson::default()
        };
        Item::Event(event, severity)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_happens_within_its_time_is_one_message() {
        let begun = Instant::now();
        let mut group = Group::new(begun, channel("group = '5s'"), 0);
        assert_eq!(group.due(begun), None);
        group.push(begun, &event(1, "member_out", Severity::Warning));
        group.push(begun + SECOND, &event(2, "started", Severity::Info));
        group.push(
            begun + 2 * SECOND,
            &event(3, "read_error", Severity::Warning),
        );
        assert_eq!(group.due(begun), Some(begun + 5 * SECOND));
        assert!(group.take(begun + 4 * SECOND, false).is_none());
        assert_eq!(group.done(), 0);
        let (items, left_out) = group.take(begun + 5 * SECOND, false).expect("due");
        let names: Vec<&str> = items.iter().map(Item::name).collect();
        assert_eq!(names, ["member_out", "read_error"]);
        assert!(left_out.is_empty());
        assert_eq!(group.done(), 3);
        // It was told already.
        group.push(begun, &event(3, "read_error", Severity::Warning));
        assert_eq!(group.due(begun), None);
    }

    #[test]
    fn no_hour_has_more_messages_than_allowed_and_what_is_more_is_counted() {
        let begun = Instant::now();
        let mut group = Group::new(begun, channel("group = '1s'\nper_hour = 8"), 0);
        let mut sent = Vec::new();
        let mut told = 0;
        let mut counted = 0;
        for second in 0..7200 {
            let now = begun + second * SECOND;
            group.push(
                now,
                &event(u64::from(second) + 1, "read_error", Severity::Warning),
            );
            if let Some((items, left_out)) = group.take(now, false) {
                sent.push(now);
                told += items.len() as u64;
                counted += left_out.values().sum::<u64>();
            }
        }
        assert_eq!(sent.len(), 2 + 11);
        for at in &sent {
            let within = sent.iter().filter(|b| *b >= at && **b < *at + HOUR);
            assert!(within.count() <= 8);
        }
        assert!(counted > 0 && told > 100);
        let waiting = group.items.len() as u64 + group.left_out.values().sum::<u64>();
        assert_eq!(told + counted + waiting, 7200);
    }

    #[test]
    fn what_matters_more_pushes_out_what_matters_less() {
        let now = Instant::now();
        let mut group = Group::new(now, channel(""), 0);
        for n in 1..=ITEMS_MAX as u64 {
            group.push(now, &event(n, "read_error", Severity::Warning));
        }
        group.push(now, &event(200, "failed", Severity::Critical));
        group.push(now, &event(201, "read_error", Severity::Warning));
        let (items, left_out) = group.take(now, true).expect("some");
        assert_eq!(items.len(), ITEMS_MAX);
        assert_eq!(items.last().map(Item::name), Some("failed"));
        assert_eq!(left_out.get("read_error"), Some(&2));
    }

    #[test]
    fn a_channel_gets_what_it_wants_and_nothing_of_itself() {
        let wants = |more: &str, item: &Item| {
            let now = Instant::now();
            let mut group = Group::new(now, channel(more), 0);
            group.push(now, item);
            group.due(now).is_some()
        };
        let out = event(1, "member_out", Severity::Warning);
        let started = event(1, "started", Severity::Info);
        assert!(wants("", &out) && !wants("", &started));
        assert!(wants("severity = 'info'", &started));
        assert!(!wants("severity = 'critical'", &out));
        assert!(wants("events = ['started']", &started));
        assert!(!wants("events = ['started']", &out));
        assert!(wants("arrays = ['data']", &out) && !wants("arrays = ['b']", &out));
        let failing = |channel: &str| {
            let event = EventJson {
                sequence: 1,
                event: "alert_failing".to_owned(),
                cause: Some(channel.to_owned()),
                ..EventJson::default()
            };
            Item::Event(event, Severity::Warning)
        };
        assert!(wants("", &failing("other")) && !wants("", &failing("c")));
    }

    #[test]
    fn what_lasts_is_told_again_after_its_time() {
        use crate::api::ArrayJson;
        use crate::daemon::alerts::conditions::Conditions;
        let degraded = ArrayJson {
            name: "data".to_owned(),
            state: "degraded".to_owned(),
            ..ArrayJson::default()
        };
        let begun = Instant::now();
        let mut group = Group::new(begun, channel("remind = '1h'"), 0);
        let mut conditions = Conditions::default();
        for item in conditions.look(&[degraded], "t") {
            group.push(begun, &item);
        }
        assert_eq!(
            group.take(begun + 5 * SECOND, false).expect("due").0.len(),
            1
        );
        let open: Vec<Open> = conditions.open().cloned().collect();
        conditions.look(&[], "t");
        let stopped: Vec<Open> = conditions.open().cloned().collect();
        group.remind(begun + 2 * HOUR, &stopped, "t");
        assert_eq!(group.due(begun), None, "it is stopped");
        group.remind(begun + HOUR - SECOND, &open, "t");
        assert_eq!(group.due(begun), None);
        group.remind(begun + HOUR, &open, "t");
        let (items, _) = group.take(begun + HOUR, true).expect("told again");
        assert!(matches!(
            items[0],
            Item::Condition {
                change: Change::Lasts,
                ..
            }
        ));
        group.remind(begun + HOUR + SECOND, &open, "t");
        assert_eq!(group.due(begun), None);
    }
}
