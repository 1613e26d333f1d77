//! What lasts: that an array is degraded, failed, missing, does not answer, has unreadable blocks,
//! no spare, or does not start.
//!
//! Events say what happened; a condition is what is so until it ends. The daemon looks at the
//! arrays in service, compares with what was so, and tells what began and what ended.
//!
//! Invariants: a condition ends only when its array is seen without it, or is destroyed: an array
//! that is stopped keeps its conditions, and they are not told meanwhile. What is open outlives the
//! daemon (`spool` keeps it), so that an end during a restart is told too. Time is an argument.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::api::{ArrayJson, EventJson};
use crate::common::events::Severity;
use crate::daemon::alerts::message::{Change, Item};

/// Conditions that are remembered.
const OPEN_MAX: usize = 1024;

/// What may be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Condition {
    Degraded,
    Failed,
    Unreadable,
    Undecided,
    NoSpare,
    NotStarted,
    Missing,
    Unresponsive,
}

/// The subject of a condition: one array can have one of each at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Subject {
    State,
    Blocks,
    Strips,
    Spares,
    Start,
    Members,
    Answer,
}

impl Condition {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Condition::Degraded => "degraded",
            Condition::Failed => "array_failed",
            Condition::Unreadable => "unreadable_blocks",
            Condition::Undecided => "undecided_strips",
            Condition::NoSpare => "no_spare",
            Condition::NotStarted => "not_started",
            Condition::Missing => "array_missing",
            Condition::Unresponsive => "array_unresponsive",
        }
    }

    pub(super) fn severity(self) -> Severity {
        match self {
            Condition::Degraded | Condition::NoSpare => Severity::Warning,
            Condition::Failed
            | Condition::Unreadable
            | Condition::Undecided
            | Condition::NotStarted
            | Condition::Missing
            | Condition::Unresponsive => Severity::Critical,
        }
    }

    /// Behind the name of an array.
    pub(super) fn says(self) -> &'static str {
        match self {
            Condition::Degraded => "is degraded",
            Condition::Failed => "is failed",
            Condition::Unreadable => "has unreadable blocks",
            Condition::Undecided => "has undecided strips",
            Condition::NoSpare => "has no spare for a missing member",
            Condition::NotStarted => "is not started",
            Condition::Missing => "is missing: none of its members is found",
            Condition::Unresponsive => "does not answer: its threads hang",
        }
    }

    /// The same when it is over.
    pub(super) fn says_ended(self) -> &'static str {
        match self {
            Condition::Degraded | Condition::Failed => "is optimal again",
            Condition::Unreadable => "has no unreadable blocks any more",
            Condition::Undecided => "has no undecided strips any more",
            Condition::NoSpare => "needs no spare any more",
            Condition::NotStarted => "is started",
            Condition::Missing => "is not missing any more",
            Condition::Unresponsive => "answers again, or is stopped",
        }
    }

    /// When another condition of the same subject takes its place.
    fn says_replaced(self) -> &'static str {
        match self {
            Condition::Degraded => "is not degraded any more: it is failed",
            Condition::Failed => "is not failed any more: it is degraded",
            other => other.says_ended(),
        }
    }

    fn subject(self) -> Subject {
        match self {
            Condition::Degraded | Condition::Failed => Subject::State,
            Condition::Unreadable => Subject::Blocks,
            Condition::Undecided => Subject::Strips,
            Condition::NoSpare => Subject::Spares,
            Condition::NotStarted => Subject::Start,
            Condition::Missing => Subject::Members,
            Condition::Unresponsive => Subject::Answer,
        }
    }
}

/// An array, by its uuid, and what of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Key {
    pub(super) array: String,
    subject: Subject,
}

/// A condition that lasts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Open {
    pub(super) key: Key,
    /// The array's name.
    pub(super) name: String,
    pub(super) condition: Condition,
    /// RFC 3339.
    pub(super) since: String,
    /// It was seen in this life of the daemon.
    #[serde(skip)]
    pub(super) seen: bool,
    /// The last look saw it.
    #[serde(skip)]
    pub(super) lasts: bool,
}

impl Open {
    pub(super) fn item(&self, change: Change, time: &str) -> Item {
        Item::Condition {
            key: self.key.clone(),
            array: self.name.clone(),
            condition: self.condition,
            change,
            over: None,
            since: self.since.clone(),
            time: time.to_owned(),
        }
    }

    /// It is over, and what is told of that.
    fn over(self, says: &'static str, time: &str) -> Item {
        Item::Condition {
            key: self.key,
            array: self.name,
            condition: self.condition,
            change: Change::Ended,
            over: Some(says),
            since: self.since,
            time: time.to_owned(),
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    open: BTreeMap<Key, Open>,
}

/// It is in service, and says how it is.
fn answers(array: &ArrayJson) -> bool {
    !matches!(
        array.state.as_str(),
        "stopped" | "stopping" | "unresponsive" | "unknown"
    )
}

/// What is so of an array in service, or whether one is found that is not.
fn of(array: &ArrayJson) -> BTreeSet<Condition> {
    let mut so = BTreeSet::new();
    if array.not_found {
        so.insert(Condition::Missing);
    }
    if array.state == "unresponsive" {
        so.insert(Condition::Unresponsive);
    }
    if !answers(array) {
        return so;
    }
    match array.state.as_str() {
        "degraded" => so.insert(Condition::Degraded),
        "failed" => so.insert(Condition::Failed),
        _ => false,
    };
    if array.unreadable_bytes > 0 {
        so.insert(Condition::Unreadable);
    }
    if array.undecided_bytes > 0 {
        so.insert(Condition::Undecided);
    }
    // The second in a slot is to take the place of the first.
    let slots: BTreeSet<u8> = array.members.iter().filter_map(|m| m.slot).collect();
    let served = |slot: &u8| {
        let mut of = array.members.iter().filter(|m| m.slot == Some(*slot));
        // The last one that an array lost before it failed keeps its slot: no spare takes it.
        of.any(|m| m.device.is_some() || matches!(m.state.as_str(), "in_sync" | "rebuilding"))
    };
    let out = matches!(array.state.as_str(), "degraded" | "failed");
    if out && array.spares.is_empty() && !slots.iter().all(served) {
        so.insert(Condition::NoSpare);
    }
    so
}

impl Conditions {
    /// With what was open when the daemon ended.
    pub(super) fn new(open: Vec<Open>) -> Conditions {
        let open = open.into_iter().map(|open| (open.key.clone(), open));
        Conditions {
            open: open.collect(),
        }
    }

    /// What is open.
    pub(super) fn open(&self) -> impl Iterator<Item = &Open> {
        self.open.values()
    }

    /// What is so of an array, with the end of what was so of the same subject.
    fn begin(&mut self, uuid: &str, name: &str, condition: Condition, time: &str) -> Vec<Item> {
        let key = Key {
            array: uuid.to_owned(),
            subject: condition.subject(),
        };
        let full = self.open.len() >= OPEN_MAX;
        match self.open.get_mut(&key) {
            Some(open) if open.condition == condition => {
                open.name = name.to_owned();
                open.lasts = true;
                let again = !std::mem::replace(&mut open.seen, true);
                let again = again.then(|| open.item(Change::Lasts, time));
                again.into_iter().collect()
            }
            None if full => Vec::new(),
            _ => {
                let open = Open {
                    key: key.clone(),
                    name: name.to_owned(),
                    condition,
                    since: time.to_owned(),
                    seen: true,
                    lasts: true,
                };
                let item = open.item(Change::Began, time);
                let before = self.open.insert(key, open);
                let ended = before.map(|open| {
                    let says = open.condition.says_replaced();
                    open.over(says, time)
                });
                ended.into_iter().chain([item]).collect()
            }
        }
    }

    /// Compares arrays in service, and others that are found or missing, with what was so.
    pub(super) fn look(&mut self, arrays: &[ArrayJson], time: &str) -> Vec<Item> {
        let mut items = Vec::new();
        for open in self.open.values_mut() {
            // One that does not start is seen as long as it is on drives.
            let is_there = |a: &ArrayJson| !a.not_found && a.uuid == open.key.array;
            open.lasts = open.key.subject == Subject::Start && arrays.iter().any(is_there);
        }
        for array in arrays {
            let so = of(array);
            // It serves, so it was started.
            let serves = answers(array);
            let over = |open: &Open| {
                let own = open.key.array == array.uuid;
                // Of one that does not serve it is known whether it is found and whether it is to
                // answer, and nothing more.
                let known =
                    serves || matches!(open.key.subject, Subject::Members | Subject::Answer);
                own && known && !so.iter().any(|c| c.subject() == open.key.subject)
            };
            let ended: Vec<Key> = self
                .open()
                .filter(|open| over(open))
                .map(|open| open.key.clone())
                .collect();
            for key in ended {
                let open = self.open.remove(&key);
                items.extend(open.map(|open| {
                    Open {
                        name: array.name.clone(),
                        ..open
                    }
                    .item(Change::Ended, time)
                }));
            }
            for condition in so {
                items.extend(self.begin(&array.uuid, &array.name, condition, time));
            }
        }
        // It was found, is forgotten, or another array has its name.
        let is_missing = |uuid: &str| arrays.iter().any(|a| a.not_found && a.uuid == uuid);
        let over = |open: &&Open| open.key.subject == Subject::Members && open.seen;
        let over = self.open().filter(over).map(|open| open.key.clone());
        let over: Vec<Key> = over.filter(|key| !is_missing(&key.array)).collect();
        for key in over {
            let Some(open) = self.open.remove(&key) else {
                continue;
            };
            let renamed = |a: &ArrayJson| a.name == open.name && a.uuid != open.key.array;
            let says = match arrays.iter().any(renamed) {
                true => "is not expected any more: its name means another array",
                false => open.condition.says_ended(),
            };
            items.push(open.over(says, time));
        }
        items
    }

    /// What an event says of what lasts.
    pub(super) fn follow(&mut self, event: &EventJson) -> Vec<Item> {
        // A journal may be of a version that noted no uuid.
        let (Some(array), Some(uuid)) = (event.array.as_deref(), event.uuid.as_deref()) else {
            return Vec::new();
        };
        let says = match event.event.as_str() {
            "start_refused" => {
                return self.begin(uuid, array, Condition::NotStarted, &event.time);
            }
            "destroyed" => "is destroyed",
            "forgotten" => "is not expected any more",
            _ => return Vec::new(),
        };
        // Whatever was so of it is gone with it.
        let gone = self.open.keys().filter(|key| key.array == uuid);
        let gone: Vec<Key> = gone.cloned().collect();
        let gone = gone.iter().filter_map(|key| self.open.remove(key));
        gone.map(|open| open.over(says, &event.time)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(state: &str, members: &[(u8, &str)]) -> ArrayJson {
        let member = |&(slot, state): &(u8, &str)| crate::api::MemberJson {
            slot: Some(slot),
            state: state.to_owned(),
            ..crate::api::MemberJson::default()
        };
        ArrayJson {
            name: "data".to_owned(),
            uuid: "u".to_owned(),
            state: state.to_owned(),
            members: members.iter().map(member).collect(),
            ..ArrayJson::default()
        }
    }

    /// Conditions and what became of them.
    fn told(items: &[Item]) -> Vec<(&str, Change)> {
        let each = items.iter().map(|item| match item {
            Item::Condition { change, .. } => (item.name(), *change),
            other => panic!("{other:?}"),
        });
        each.collect()
    }

    const OUT: &[(u8, &str)] = &[(0, "in_sync"), (1, "missing")];
    const WHOLE: &[(u8, &str)] = &[(0, "in_sync"), (1, "in_sync")];

    #[test]
    fn a_channel_can_name_each_condition() {
        let all = [
            Condition::Degraded,
            Condition::Failed,
            Condition::Unreadable,
            Condition::Undecided,
            Condition::NoSpare,
            Condition::NotStarted,
            Condition::Missing,
            Condition::Unresponsive,
        ];
        assert_eq!(
            all.map(Condition::as_str),
            crate::config::alerts::CONDITIONS
        );
    }

    #[test]
    fn a_condition_is_told_when_it_begins_and_when_it_ends() {
        let mut all = Conditions::default();
        assert_eq!(told(&all.look(&[array("optimal", WHOLE)], "1")), []);
        let began = all.look(&[array("degraded", OUT)], "2");
        let both = [("degraded", Change::Began), ("no_spare", Change::Began)];
        assert_eq!(told(&began), both);
        assert_eq!(told(&all.look(&[array("degraded", OUT)], "3")), []);
        let worse = all.look(&[array("failed", OUT)], "4");
        let both = [("degraded", Change::Ended), ("array_failed", Change::Began)];
        assert_eq!(told(&worse), both);
        // It does not serve: nothing is known of it.
        assert_eq!(told(&all.look(&[], "5")), []);
        let ended = all.look(&[array("optimal", WHOLE)], "6");
        let both = [("array_failed", Change::Ended), ("no_spare", Change::Ended)];
        assert_eq!(told(&ended), both);
        assert_eq!(all.open().count(), 0);
    }

    #[test]
    fn an_array_is_missing_until_it_is_found_or_forgotten() {
        let missing = || ArrayJson {
            not_found: true,
            ..array("stopped", &[(0, "missing")])
        };
        let mut all = Conditions::default();
        all.look(&[array("degraded", OUT)], "1");
        let began = all.look(&[missing()], "2");
        assert_eq!(told(&began), [("array_missing", Change::Began)]);
        // At the start of the next daemon nothing is known of it at first.
        let kept: Vec<Open> = all.open().cloned().collect();
        let kept = serde_json::to_vec(&kept).expect("JSON");
        let mut again = Conditions::new(serde_json::from_slice(&kept).expect("the same"));
        assert_eq!(told(&again.look(&[], "3")), []);
        // It is found, and not started.
        let ended = again.look(&[array("stopped", OUT)], "4");
        assert_eq!(told(&ended), [("array_missing", Change::Ended)]);
        assert_eq!(
            again.open().count(),
            2,
            "it is still degraded, without a spare"
        );
        again.look(&[missing()], "5");
        let ended = again.look(&[], "6");
        assert_eq!(told(&ended), [("array_missing", Change::Ended)]);
        all = again;
        let mut event = EventJson {
            array: Some("data".to_owned()),
            uuid: Some("another".to_owned()),
            event: "forgotten".to_owned(),
            ..EventJson::default()
        };
        assert_eq!(told(&all.follow(&event)), [], "an array of the same name");
        event.uuid = Some("u".to_owned());
        let ended = all.follow(&event);
        let both = [("degraded", Change::Ended), ("no_spare", Change::Ended)];
        assert_eq!(told(&ended), both);
        assert_eq!(all.open().count(), 0);
    }

    #[test]
    fn of_an_array_that_does_not_answer_nothing_else_ends() {
        let mut all = Conditions::default();
        all.look(&[array("degraded", OUT)], "1");
        // What its drives say is not how it is.
        let began = all.look(&[array("unresponsive", WHOLE)], "2");
        assert_eq!(told(&began), [("array_unresponsive", Change::Began)]);
        assert_eq!(told(&all.look(&[array("unresponsive", WHOLE)], "3")), []);
        let ended = all.look(&[array("stopping", WHOLE)], "4");
        assert_eq!(told(&ended), [("array_unresponsive", Change::Ended)]);
        all.look(&[array("unresponsive", WHOLE)], "5");
        let ended = all.look(&[array("degraded", OUT)], "6");
        assert_eq!(told(&ended), [("array_unresponsive", Change::Ended)]);
        let still: Vec<Condition> = all.open().map(|open| open.condition).collect();
        assert_eq!(still, [Condition::Degraded, Condition::NoSpare]);
    }

    #[test]
    fn what_was_open_is_told_again_or_ended_in_the_next_life() {
        let mut before = Conditions::default();
        before.look(&[array("degraded", OUT)], "1");
        let kept: Vec<Open> = before.open().cloned().collect();
        let kept = serde_json::to_vec(&kept).expect("JSON");
        let kept = || Conditions::new(serde_json::from_slice(&kept).expect("the same"));
        let mut again = kept();
        let first = again.look(&[array("degraded", OUT)], "2");
        let both = [("degraded", Change::Lasts), ("no_spare", Change::Lasts)];
        assert_eq!(told(&first), both);
        assert_eq!(told(&again.look(&[array("degraded", OUT)], "3")), []);
        let ended = kept().look(&[array("optimal", WHOLE)], "2");
        let both = [("degraded", Change::Ended), ("no_spare", Change::Ended)];
        assert_eq!(told(&ended), both);
    }

    #[test]
    fn an_array_that_does_not_start_is_a_condition_until_it_serves_or_is_destroyed() {
        let event = |name: &str| EventJson {
            array: Some("data".to_owned()),
            uuid: Some("u".to_owned()),
            event: name.to_owned(),
            ..EventJson::default()
        };
        let mut all = Conditions::default();
        let began = all.follow(&event("start_refused"));
        assert_eq!(told(&began), [("not_started", Change::Began)]);
        assert_eq!(told(&all.follow(&event("start_refused"))), []);
        let twin = ArrayJson {
            uuid: "of the same name".to_owned(),
            ..array("optimal", WHOLE)
        };
        assert_eq!(told(&all.look(&[twin], "2")), []);
        assert!(!all.open().any(|open| open.lasts), "it is not on drives");
        all.look(&[array("stopped", OUT)], "2");
        assert!(all.open().all(|open| open.lasts), "it is");
        let ended = all.look(&[array("optimal", WHOLE)], "2");
        assert_eq!(told(&ended), [("not_started", Change::Ended)]);
        all.follow(&event("start_refused"));
        all.follow(&event("destroyed"));
        assert_eq!(all.open().count(), 0);
    }

    #[test]
    fn a_channel_of_one_condition_sees_its_end_when_another_takes_its_place() {
        let mut all = Conditions::default();
        all.look(&[array("failed", WHOLE)], "1");
        let items = all.look(&[array("degraded", WHOLE)], "2");
        let both = [("array_failed", Change::Ended), ("degraded", Change::Began)];
        assert_eq!(told(&items), both);
        let Item::Condition { over, .. } = &items[0] else {
            panic!("{items:?}")
        };
        assert_eq!(*over, Some("is not failed any more: it is degraded"));
    }

    #[test]
    fn what_the_last_look_did_not_see_does_not_last() {
        let mut all = Conditions::default();
        all.look(&[array("degraded", WHOLE)], "1");
        assert!(all.open().all(|open| open.lasts));
        // It is stopped, and its drives are away.
        all.look(&[array("stopped", WHOLE)], "2");
        assert!(all.open().all(|open| !open.lasts), "it is stopped");
        all.look(&[], "3");
        assert!(all.open().all(|open| !open.lasts), "its drives are away");
        assert_eq!(told(&all.look(&[array("degraded", WHOLE)], "4")), []);
        assert!(all.open().all(|open| open.lasts));
    }

    #[test]
    fn an_array_whose_name_means_another_is_not_said_to_be_found() {
        let mut all = Conditions::default();
        let missing = ArrayJson {
            not_found: true,
            ..array("stopped", &[])
        };
        all.look(&[missing], "1");
        let another = ArrayJson {
            uuid: "new".to_owned(),
            ..array("optimal", WHOLE)
        };
        let items = all.look(&[another], "2");
        let [
            Item::Condition {
                over: Some(over), ..
            },
        ] = &items[..]
        else {
            panic!("{items:?}")
        };
        assert!(over.contains("means another array"), "{over}");
    }
}
