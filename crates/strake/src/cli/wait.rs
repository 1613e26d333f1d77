//! `--wait`: until a job is over, and then how it ended.
//!
//! Order: newest event before the command → the command → looks at the array until nothing of the
//! job is at work → the newest event of the job since then, and the array as it is now, say how it
//! ended.
//!
//! Invariants: `done` is said only of what came to its end; whatever else became of it has a word,
//! a reason and an exit status of its own. A daemon that goes meanwhile leaves it `unknown`. The
//! exit status for a degraded array is that of jobs that are done. Deliberately absent: starting
//! jobs (the commands), and waiting for another daemon.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use crate::api::*;
use crate::cli::client::Client;
use crate::cli::output;
use crate::cli::output::Bar;
use crate::cli::{Context, Ended, state_exit, url};
use crate::common::errors::{Code, Exit, Failure};
use crate::common::size;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);
/// So long a job may be neither at work nor over: data that stands still, a spare that is just
/// taken, an event that is on its way.
const PATIENCE: Duration = Duration::from_secs(5);
/// A window of data that moves is read within so long, if nothing holds it back.
const MOVES_WITHIN: Duration = Duration::from_secs(2);

/// A job that is waited for.
pub(crate) struct Wait<'a> {
    context: &'a Context,
    client: &'a Client,
    /// It may be renamed meanwhile, so it goes by this.
    uuid: String,
    /// As it was seen last.
    last: RefCell<ArrayJson>,
    /// Every name that it was seen to have: its events go by these.
    names: RefCell<BTreeSet<String>>,
    /// Events from here on are of this job, or of others beside it.
    since: u64,
    /// Regions that were undecided before.
    undecided: u64,
}

/// What the newest event of a job says. Of one that started its end follows, seen or not.
enum Told {
    Started,
    Finished,
    Stopped(Option<String>),
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
    /// It found something, and halted there.
    found: bool,
    /// So many regions more are undecided than before.
    undecided: u64,
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
            uuid: array.uuid.clone(),
            names: RefCell::new(BTreeSet::from([array.name.clone()])),
            undecided: array.undecided_regions,
            last: RefCell::new(array),
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
            self.last.replace(array.clone());
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
        self.unless_gone(kind, self.at_its_end(kind))
    }

    /// How a job ended, or that this is not known, for nothing answers any more.
    fn unless_gone(&self, kind: &str, ended: Result<End, Failure>) -> Result<End, Failure> {
        let failure = match ended {
            Err(failure) => failure,
            Ok(end) => {
                let undecided = end.array.undecided_regions;
                return Ok(End {
                    undecided: undecided.saturating_sub(self.undecided),
                    ..end
                });
            }
        };
        let what = match failure.code {
            Code::DaemonLost | Code::NoDaemon => "the daemon went",
            Code::DaemonSilent => failure.found.as_str(),
            _ => return Err(failure),
        };
        let array = self.last.borrow().clone();
        let name = &array.name;
        let reason = format!(
            "{what} while the {kind} of {name} was waited for; what is left of it goes on when a \
             daemon serves {name}: strake show {name} says how far it is"
        );
        Ok(End::new(array, "unknown", Some(reason)))
    }

    fn at_its_end(&self, kind: &str) -> Result<End, Failure> {
        let mut bar = Bar::new(kind, 0, self.context.json);
        let mut idle = Duration::ZERO;
        let mut seen = false;
        let array = loop {
            let array = self.array()?;
            if is_over(&array) {
                break array;
            }
            seen |= array.jobs.iter().any(|job| job.kind == kind);
            let moves = kind == "init" && moves_on(&array);
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
                // So may data that has stood still for a moment.
                None if (begins || is_held_by_move(&array, kind)) && idle < PATIENCE => {
                    idle += PAUSE;
                }
                None => break array,
            }
            thread::sleep(PAUSE);
        };
        bar.end();
        self.end(array, kind, seen)
    }

    /// Waits until the array has the shape that it is to get: data moves no more, and what was
    /// added is rebuilt. What waits itself, for a member or a command, is not waited for without
    /// end.
    pub(crate) fn until_shaped(&self) -> Result<End, Failure> {
        self.unless_gone("restripe", self.at_its_shape())
    }

    fn at_its_shape(&self) -> Result<End, Failure> {
        const KINDS: [&str; 3] = ["restripe", "rebuild", "resync"];
        let mut bar = Bar::new("restripe", 0, self.context.json);
        let mut idle = Duration::ZERO;
        let mut last = None;
        let array = loop {
            let array = self.array()?;
            let mut jobs = array.jobs.iter();
            let job = jobs.find(|job| KINDS.contains(&job.kind.as_str()) && !job.paused);
            match (job, &array.moving) {
                _ if is_over(&array) => break array,
                (Some(job), _) => {
                    idle = Duration::ZERO;
                    last = KINDS.into_iter().find(|kind| job.kind == *kind);
                    bar.at(job.done_bytes, job.total_bytes);
                }
                (None, None) => break array,
                (None, Some(moving)) if moving.stopped || idle >= PATIENCE => break array,
                (None, Some(_)) => idle += PAUSE,
            }
            thread::sleep(PAUSE);
        };
        bar.end();
        let left = |kind: &&str| array.jobs.iter().any(|job| job.kind == *kind);
        let kind = KINDS.iter().copied().find(left).or(last);
        self.end(array, kind.unwrap_or("rebuild"), last.is_some())
    }

    /// Waits until data that is to go on moving does; why it stands, if it stands again at once.
    pub(crate) fn until_moving(&self) -> Result<Option<String>, Failure> {
        let give_up = Instant::now() + MOVES_WITHIN;
        let (mut from, mut paused) = (None, false);
        loop {
            let array = self.array()?;
            let Some(job) = array.jobs.iter().find(|job| job.kind == MOVE) else {
                return Ok(None);
            };
            // The event that says why comes with the second look.
            if job.paused && paused {
                return Ok(Some(why_paused(&array, job).unwrap_or_default()));
            }
            paused = job.paused;
            let from = *from.get_or_insert(job.done_bytes);
            if job.done_bytes > from || Instant::now() > give_up && !paused {
                return Ok(None);
            }
            thread::sleep(PAUSE);
        }
    }

    /// How a job that is not at work any more, and may have been seen before, ended.
    fn end(&self, array: ArrayJson, kind: &str, seen: bool) -> Result<End, Failure> {
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
            let reason = why_paused(&array, job);
            return Ok(End {
                found: has_halted(job) && kind != MOVE,
                ..End::new(array, "paused", reason)
            });
        }
        let nothing_left = match kind {
            "rebuild" => array.members.iter().all(|m| m.state == "in_sync"),
            "init" => array.unwritten_bytes == 0,
            _ => false,
        };
        if nothing_left {
            return Ok(End::new(array, "done", None));
        }
        let leaves_event = seen || matches!(kind, "scrub" | "accept" | "init");
        let lacks = lacking(&array);
        Ok(match (self.told(kind, leaves_event)?, lacks) {
            (Some(Told::Finished), _) if matches!(kind, "scrub" | "accept") => {
                // Its result was durable before the event.
                let array = self.array()?;
                let scrub = array.last_scrub.clone().filter(|_| kind == "scrub");
                End {
                    scrub,
                    ..End::new(array, "done", None)
                }
            }
            (Some(Told::Finished), lacks) => {
                let shapes = matches!(kind, "restripe" | "rebuild");
                End::new(array, "done", lacks.filter(|_| shapes))
            }
            (Some(Told::Stopped(why)), Some(lacks)) if kind == "rebuild" => {
                let why = why.map(|why| format!("{why}; ")).unwrap_or_default();
                End::new(array, "stopped", Some(why + &lacks))
            }
            (Some(Told::Stopped(why)), _) => End::new(array, "stopped", why),
            (None, lacks) if kind == "rebuild" => End::new(array, "not_begun", lacks),
            (told, _) if leaves_event || told.is_some() => {
                let reason = Some("no event says what became of it".to_owned());
                End::new(array, "stopped", reason)
            }
            _ => End::new(array, "done", None),
        })
    }

    /// What the newest event says of a job; one that is on its way is waited for.
    fn told(&self, kind: &str, comes: bool) -> Result<Option<Told>, Failure> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let events = self.events()?;
            let own = events.iter().rev().filter(|event| self.is_own(event));
            let told = own.filter_map(|event| {
                let (cause, effect) = (event.cause.as_deref(), event.effect.as_deref());
                match event.event.as_str() {
                    "job_started" if cause == Some(kind) => Some(Told::Started),
                    "job_finished" if cause == Some(kind) => Some(Told::Finished),
                    "job_stopped" if effect == Some(kind) => {
                        Some(Told::Stopped(cause.map(output::paused_by)))
                    }
                    _ => None,
                }
            });
            let told = told.into_iter().next();
            let is_told = match told {
                None => !comes,
                Some(Told::Started) => false,
                Some(Told::Finished | Told::Stopped(_)) => true,
            };
            if is_told || Instant::now() > give_up {
                return Ok(told);
            }
            thread::sleep(PAUSE);
        }
    }
}

/// The job that moves data to another shape.
const MOVE: &str = "restripe";

/// Data moves to another shape, and nothing keeps it from that.
fn moves_on(array: &ArrayJson) -> bool {
    let stopped = array.moving.as_ref().is_none_or(|moving| moving.stopped);
    let paused = |job: &JobJson| job.kind == MOVE && job.paused;
    !stopped && !array.jobs.iter().any(paused)
}

/// A job of this kind waits for data that moves.
fn is_held_by_move(array: &ArrayJson, kind: &str) -> bool {
    let held = |job: &JobJson| job.kind == kind && job.paused_by.as_deref() == Some(MOVE);
    array.moving.is_some() && array.jobs.iter().any(held)
}

/// What keeps data from moving.
fn why_it_stands(array: &ArrayJson) -> Option<String> {
    let job = array.jobs.iter().find(|job| job.kind == MOVE)?;
    job.paused_by.as_deref().map(output::paused_by)
}

/// A job that halts at what does not agree has done so.
fn has_halted(job: &JobJson) -> bool {
    job.paused_by.as_deref() == Some("inconsistent")
}

/// Why a job is paused, and what to do about it.
fn why_paused(array: &ArrayJson, job: &JobJson) -> Option<String> {
    let kind = job.kind.as_str();
    let mut reason = output::paused_by(job.paused_by.as_deref()?);
    if has_halted(job) {
        let name = &array.name;
        let then = format!("strake restripe {name} --continue");
        reason += &match kind {
            MOVE if array.undecided_regions > 0 => format!(
                "; strake scrub {name} accept takes what is read there for right, then {then}"
            ),
            MOVE => format!(
                "; strake scrub {name} --repair rewrites the strip that is wrong where that is \
                 known, else write anew what event inconsistent names; then {then}"
            ),
            _ => {
                let found = size::count(job.inconsistent_stripes, "inconsistent stripe");
                format!(", {found} so far")
            }
        };
    }
    if is_held_by_move(array, kind)
        && let Some(why) = why_it_stands(array)
    {
        reason += &format!(", and that stands still: {why}");
    }
    Some(reason)
}

/// Nothing of it goes on: it has failed, or was stopped.
fn is_over(array: &ArrayJson) -> bool {
    matches!(array.state.as_str(), "failed" | "stopped")
}

/// The slot that has no member in sync, and what it waits for.
fn lacking(array: &ArrayJson) -> Option<String> {
    let slot = array.members.iter().find(|m| m.state != "in_sync")?;
    let shown = slot.slot.map_or_else(|| "?".to_owned(), |s| s.to_string());
    let (state, name) = (&slot.state, &array.name);
    Some(match (array.spares.is_empty(), slot.spare_in_s) {
        (true, _) => format!(
            "slot {shown} is {state} and there is no spare: strake add {name} DEV gives it one"
        ),
        (false, Some(s)) => format!("slot {shown} is {state}, and a spare waits {s} s for it"),
        (false, None) => format!("slot {shown} is {state}, and no spare has taken its place"),
    })
}

impl End {
    fn new(array: ArrayJson, word: &'static str, reason: Option<String>) -> End {
        End {
            array,
            word,
            reason,
            scrub: None,
            found: false,
            undecided: 0,
        }
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
            Some(reason) if self.is_done() => format!("; it is {word}, but {reason}"),
            Some(reason) => format!("; it is {word}: {reason}"),
            None => format!("; it is {word}"),
        });
        if let Some(scrub) = &self.scrub {
            what.push_str(&format!(": {}", output::found(scrub)));
        }
        if self.undecided > 0 {
            let regions = size::count(self.undecided, "region");
            let are = size::verb(self.undecided, "is", "are");
            let name = &self.array.name;
            what.push_str(&format!(
                "; {regions} in which strips do not agree {are} undecided, without redundancy: \
                 strake show {name} says where, and strake scrub {name} accept takes what is read \
                 there for right"
            ));
        }
        context.outcome(&OutcomeJson {
            what,
            ended: Some(self.word.to_owned()),
            scrub: self.scrub.clone(),
            ..outcome.clone()
        })?;
        Ok(self.exit())
    }

    /// What is worst: a failed array, findings that were not mended, work left, a degraded array.
    pub(crate) fn exit(&self) -> u8 {
        let left =
            |s: &ScrubJson| s.inconsistent_stripes > s.repaired_stripes || s.unreadable_stripes > 0;
        match state_exit(&self.array) {
            // How it is now is not known.
            _ if self.word == "unknown" => Exit::Unfinished as u8,
            failed if failed == Exit::ArrayFailed as u8 => failed,
            _ if self.found || self.scrub.as_ref().is_some_and(left) => Exit::Found as u8,
            _ if self.undecided > 0 => Exit::Found as u8,
            _ if !self.is_done() => Exit::Unfinished as u8,
            exit => exit,
        }
    }

    /// Why it is not done, for a command that made something first; and the array.
    pub(crate) fn left(self, kind: &str) -> (ArrayJson, Option<String>) {
        let note = (!self.is_done()).then(|| {
            let reason = self.reason.as_ref().map(|reason| format!(": {reason}"));
            format!(
                "{kind} is {}{}; strake show {} says how far it is",
                self.word,
                reason.unwrap_or_default(),
                self.array.name
            )
        });
        (self.array, note)
    }
}
