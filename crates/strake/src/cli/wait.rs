//! `--wait`: until a job is over, and then how it ended.
//!
//! Order: newest event before the command → the command → looks at the array until nothing of the
//! job is at work → the events since then, and the array as it is now, say how it ended.
//!
//! Invariant: `done` is said only of what came to its end; whatever else became of it has a word, a
//! reason and an exit status of its own. Deliberately absent: starting jobs (the commands).

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use crate::api::*;
use crate::cli::client::Client;
use crate::cli::output;
use crate::cli::output::Bar;
use crate::cli::{Context, DONE, Ended, state_exit, url};
use crate::common::errors::{Code, Exit, Failure};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);
/// So long a job may be neither at work nor over: data that stands still, a spare that is just
/// taken, an event that is on its way.
const PATIENCE: Duration = Duration::from_secs(5);

/// A job that is waited for.
pub(crate) struct Wait<'a> {
    context: &'a Context,
    client: &'a Client,
    /// It may be renamed meanwhile, so it goes by this.
    uuid: String,
    /// Every name that it was seen to have: its events go by these.
    names: RefCell<BTreeSet<String>>,
    /// Events from here on are of this job, or of others beside it.
    since: u64,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct End {
    /// The array as it is then.
    array: ArrayJson,
    /// `done`, or what became of it instead.
    word: &'static str,
    reason: Option<String>,
    scrub: Option<ScrubJson>,
}

impl<'a> Wait<'a> {
    /// Before the command.
    pub(crate) fn new(
        context: &'a Context,
        client: &'a Client,
        name: &str,
    ) -> Result<Wait<'a>, Failure> {
        let array: ArrayJson = client.get(&url(name, "")?)?;
        let mut wait = Wait {
            context,
            client,
            uuid: array.uuid,
            names: RefCell::new(BTreeSet::from([array.name])),
            since: 0,
        };
        wait.since = wait.events()?.last().map_or(0, |last| last.sequence + 1);
        Ok(wait)
    }

    fn events(&self) -> Result<Vec<EventJson>, Failure> {
        let mut events = Vec::new();
        let path = format!("/v1/events?since={}", self.since);
        self.client.lines(&path, |line| {
            events.extend(serde_json::from_str::<EventJson>(line));
        })?;
        Ok(events)
    }

    /// The array, as soon as it says how it is: while it does not answer, or stops, nothing is
    /// known of its jobs.
    fn array(&self) -> Result<ArrayJson, Failure> {
        let mut said = false;
        loop {
            let array: ArrayJson = self.client.get(&url(&self.uuid, "")?)?;
            self.names.borrow_mut().insert(array.name.clone());
            if !matches!(array.state.as_str(), "unresponsive" | "stopping") {
                return Ok(array);
            }
            if !std::mem::replace(&mut said, true) {
                let now = format!("{} is {}: waiting", array.name, array.state);
                self.context.aside(&now);
            }
            thread::sleep(PAUSE);
        }
    }

    /// An event of this array.
    fn is_own(&self, event: &EventJson) -> bool {
        let names = self.names.borrow();
        event
            .array
            .as_ref()
            .is_some_and(|name| names.contains(name))
    }

    /// Waits until no job of this kind is at work; one that itself waits for data that moves is
    /// waited for, too.
    pub(crate) fn until_over(&self, kind: &str) -> Result<End, Failure> {
        let mut bar = Bar::new(kind, 0, self.context.json);
        let mut idle = Duration::ZERO;
        let array = loop {
            let array = self.array()?;
            if is_over(&array) {
                break array;
            }
            let moves = kind == "init" && array.moving.is_some();
            let at_work = |job: &&JobJson| job.kind == kind && (!job.paused || moves);
            // A spare has the slot, and its rebuild is just about to begin.
            let begins = kind == "rebuild"
                && array.jobs.iter().all(|job| job.kind != kind)
                && array.members.iter().any(|m| m.state == "rebuilding");
            match array.jobs.iter().find(at_work) {
                Some(job) => {
                    idle = Duration::ZERO;
                    bar.at(job.done_bytes, job.total_bytes);
                }
                None if begins && idle < PATIENCE => idle += PAUSE,
                None => break array,
            }
            thread::sleep(PAUSE);
        };
        bar.end();
        self.end(array, kind)
    }

    /// Waits until the array has the shape that it is to get: data moves no more, and what was
    /// added is rebuilt. What waits itself, for a member or a command, is not waited for without
    /// end.
    pub(crate) fn until_shaped(&self) -> Result<End, Failure> {
        const KINDS: [&str; 3] = ["restripe", "rebuild", "resync"];
        let mut bar = Bar::new("restripe", 0, self.context.json);
        let mut idle = Duration::ZERO;
        let array = loop {
            let array = self.array()?;
            let mut jobs = array.jobs.iter();
            let job = jobs.find(|job| KINDS.contains(&job.kind.as_str()) && !job.paused);
            match (job, &array.moving) {
                _ if is_over(&array) => break array,
                (Some(job), _) => {
                    idle = Duration::ZERO;
                    bar.at(job.done_bytes, job.total_bytes);
                }
                (None, None) => break array,
                (None, Some(moving)) if moving.stopped || idle >= PATIENCE => break array,
                (None, Some(_)) => idle += PAUSE,
            }
            thread::sleep(PAUSE);
        };
        bar.end();
        let kind = KINDS
            .iter()
            .find(|kind| array.jobs.iter().any(|job| job.kind == **kind));
        let kind = kind.copied();
        self.end(array, kind.unwrap_or("rebuild"))
    }

    /// How a job that is not at work any more ended.
    fn end(&self, array: ArrayJson, kind: &str) -> Result<End, Failure> {
        if array.state == "failed" {
            let reason = Some(format!("the array has failed: {kind} does not go on"));
            return Ok(End::new(array, "stopped", reason));
        }
        if array.state == "stopped" {
            let reason = format!(
                "{} was stopped: {kind} goes on when it is started",
                array.name
            );
            return Ok(End::new(array, "stopped", Some(reason)));
        }
        if let Some(job) = array.jobs.iter().find(|job| job.kind == kind) {
            let reason = job.paused_by.as_deref().map(output::paused_by);
            return Ok(End::new(array, "paused", reason));
        }
        match kind {
            "scrub" | "accept" => self.end_by_event(array, kind),
            "rebuild" => Ok(End::of_rebuild(array)),
            _ => Ok(End::new(array, "done", None)),
        }
    }

    /// Some jobs leave an event: that it finished, or why it stopped.
    fn end_by_event(&self, array: ArrayJson, kind: &str) -> Result<End, Failure> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let events = self.events()?;
            for event in events.iter().rev().filter(|event| self.is_own(event)) {
                let (cause, effect) = (event.cause.as_deref(), event.effect.as_deref());
                if event.event == "job_finished" && cause == Some(kind) {
                    // Its result was durable before the event.
                    let array = self.array()?;
                    let scrub = array.last_scrub.clone().filter(|_| kind == "scrub");
                    return Ok(End {
                        scrub,
                        ..End::new(array, "done", None)
                    });
                }
                if event.event == "job_stopped" && effect == Some(kind) {
                    let reason = cause.map(output::paused_by);
                    return Ok(End::new(array, "stopped", reason));
                }
            }
            if Instant::now() > give_up {
                let reason = Some("no event says what became of it".to_owned());
                return Ok(End::new(array, "stopped", reason));
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Nothing of it goes on: it has failed, or was stopped.
fn is_over(array: &ArrayJson) -> bool {
    matches!(array.state.as_str(), "failed" | "stopped")
}

impl End {
    fn new(array: ArrayJson, word: &'static str, reason: Option<String>) -> End {
        End {
            array,
            word,
            reason,
            scrub: None,
        }
    }

    fn of_rebuild(array: ArrayJson) -> End {
        let lacks = |m: &&MemberJson| m.state != "in_sync";
        let Some(slot) = array.members.iter().find(lacks) else {
            return End::new(array, "done", None);
        };
        let shown = slot.slot.map_or_else(|| "?".to_owned(), |s| s.to_string());
        let reason = match (array.spares.is_empty(), slot.spare_in_s) {
            (true, _) => format!(
                "slot {shown} is {} and there is no spare: strake add {} DEV gives it one",
                slot.state, array.name
            ),
            (false, Some(s)) => format!(
                "slot {shown} is {}, and a spare waits {s} s for it",
                slot.state
            ),
            (false, None) => format!(
                "slot {shown} is {}, and no spare has taken its place",
                slot.state
            ),
        };
        End::new(array, "not_begun", Some(reason))
    }

    /// Came it to its end?
    pub(crate) fn is_done(&self) -> bool {
        self.word == "done"
    }

    /// The answer to the command with how it ended, and its exit status.
    pub(crate) fn answer(self, context: &Context, outcome: &OutcomeJson) -> Ended {
        let mut what = outcome.what.clone();
        let word = self.word.replace('_', " ");
        what.push_str(&match &self.reason {
            Some(reason) => format!("; it is {word}: {reason}"),
            None => format!("; it is {word}"),
        });
        if let Some(scrub) = &self.scrub {
            what.push_str(&format!(": {}", output::found(scrub)));
        }
        context.outcome(&OutcomeJson {
            what,
            ended: Some(self.word.to_owned()),
            scrub: self.scrub.clone(),
            ..outcome.clone()
        })?;
        Ok(self.exit())
    }

    /// What is worst: a failed array, findings that were not mended, a degraded array, work left.
    pub(crate) fn exit(&self) -> u8 {
        let left =
            |s: &ScrubJson| s.inconsistent_stripes > s.repaired_stripes || s.unreadable_stripes > 0;
        match state_exit(&self.array) {
            failed if failed == Exit::ArrayFailed as u8 => failed,
            _ if self.scrub.as_ref().is_some_and(left) => Exit::Found as u8,
            DONE if !self.is_done() => Exit::Unfinished as u8,
            exit => exit,
        }
    }

    /// An error where it is not done: for a command that made something first.
    pub(crate) fn needs_done(self, kind: &str) -> Result<ArrayJson, Failure> {
        if self.is_done() {
            return Ok(self.array);
        }
        let reason = self.reason.unwrap_or_else(|| self.word.to_owned());
        let found = format!(
            "the array {} is made, and its {kind} is not done: {reason}",
            self.array.name
        );
        let cure = format!("strake show {} says how far it is", self.array.name);
        Err(Failure::new(Code::NotServing, found).cure(cure))
    }
}
